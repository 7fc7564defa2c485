//! Observations in, verdicts out: could any correct database have answered like this?
//!
//! The modules are listed in the order in which the data walks; reading them from top to bottom is
//! reading the product. Everything from [`trace`] on is a pure function of the trace and the
//! configuration: the same journal gives the same verdicts, byte for byte.

#![forbid(unsafe_code)]

pub mod wire;
pub mod trace;
pub mod control;
pub mod assemble;
pub mod sequence;
pub mod value;
pub mod state;
pub mod sql;
pub mod interpret;
pub mod points;
pub mod solve;
pub mod explain;
pub mod places;
pub mod certify;
pub mod exclude;
pub mod reference;
pub mod classify;
pub mod slice;
pub mod confirm;
pub mod relate;
pub mod ground;
pub mod coverage;
pub mod withhold;
pub mod verdict;
pub mod story;
pub mod script;
pub mod cluster;
pub mod pool;
pub mod auditor;
pub mod report;

pub use auditor::{Auditor, Settings, Stats};
