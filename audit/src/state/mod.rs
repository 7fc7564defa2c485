//! Tables, versions and what is known of them.

pub mod catalog;
pub mod view;
pub mod forest;
pub mod contents;
pub mod block;
pub mod bunch;
pub mod chains;
pub mod index;
pub mod store;
pub mod overlay;
pub mod unique;
pub mod reader;

pub use catalog::{Catalog, TableId};
pub use view::{Row, RowId, View};
