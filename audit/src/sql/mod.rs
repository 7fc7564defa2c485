//! What a statement means: from text to a plan that the interpreter can run many times.
//!
//! In: the text of a statement, the catalog, and the session's settings. Out: a [`Planned`] with the
//! constants that were lifted out of the text.
//!
//! Always true:
//!   - PostgreSQL's own grammar decides what a statement says;
//!   - what is not modelled is in the plan as a reason, never as a guess;
//!   - a plan depends on the shape of the text, the catalog's version, the search path and the types of the
//!     parameters, and on nothing else; constants that a plan does look at are pinned.

pub mod token;
mod mention;
pub mod config;
pub mod plan;
pub mod planner;
mod analyze;

pub(crate) use analyze::{columns_of, constant, resolve_type, stored_columns_of};
pub(crate) use mention::{qualified, schema_of};
pub use plan::{Kind, Planned};
pub use planner::{Planner, Prepared, SessionSettings};
