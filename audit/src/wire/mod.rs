//! Captured bytes in, records out: the PostgreSQL protocol read off the hot path.

pub mod captured;

pub use captured::{Captured, Direction};
