//! What «correct» means: levels, profiles and the catalogue of anomalies.
//!
//! In: nothing; this crate owns the shared nouns and knows no I/O, clock or thread.
//! Out: [`Level`] (what a transaction asked for), [`Rule`] (what can be broken).

#![forbid(unsafe_code)]

pub mod level;
pub mod anomaly;

pub use anomaly::{Rule, CATALOGUE};
pub use level::Level;
