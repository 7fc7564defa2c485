//! What neither windows nor a handful of choices decide.
//!
//! [`smt`] asks Z3 which of many overlapping commits a snapshot must have seen for its totals to come out
//! as they did.

pub mod smt;
