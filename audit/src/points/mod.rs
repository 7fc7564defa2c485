//! Points in windows: when commits became visible and snapshots were taken.
//!
//! What is observed is a window, what happened is a point inside it. [`order`] keeps the commits whose
//! place is still open, [`choose`] tries the places that a snapshot could have had among them.

pub mod order;
mod queue;
pub mod choose;

pub use choose::{Chooser, PointId};
pub use order::{Commit, CommitId, Order};
