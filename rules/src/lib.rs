//! What «correct» means: levels, profiles and the catalogue of anomalies.
//!
//! In: nothing but text; this crate owns the shared nouns and knows no I/O, clock or thread.
//! Out: [`Level`] (what a transaction asked for), [`Profile`] (what a database promises there), [`Rule`] (what
//! can be broken).

#![forbid(unsafe_code)]

pub mod level;
pub mod profile;
pub mod anomaly;
pub mod nearest;

pub use anomaly::{CATALOGUE, Rule};
pub use level::Level;
pub use profile::{LevelRules, Profile};
