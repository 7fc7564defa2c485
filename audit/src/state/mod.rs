//! Tables, versions and what is known of them.

pub mod catalog;
pub mod view;

pub use catalog::{Catalog, TableId};
pub use view::{Row, RowId, View};
