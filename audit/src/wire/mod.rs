//! Captured bytes in, records out: the PostgreSQL protocol read off the hot path.
//!
//! ```text
//! captured ─► frame ─► message ─► session (request ◄─► answer) ─► Record
//! ```

pub mod captured;
pub mod frame;
mod message;
mod request;
mod answer;
pub mod secret;
mod texts;
mod session;
mod asked;
mod answered;
pub mod decoder;
#[cfg(test)]
mod tests;

pub use asked::asks_for_replication;
pub use captured::{Captured, Direction};
pub use decoder::{Commit, Counters, Decoder, Limits};
