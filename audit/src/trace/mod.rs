//! What was asked, what was answered, and between which two instants: the only input of the audit.

pub mod observation;
pub mod rows;
pub mod lex;
pub mod shape;
pub mod journal;

pub use observation::*;
pub use rows::{Packer, Rows};
