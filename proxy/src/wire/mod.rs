//! The little of the protocol that the hot path and the startup need to know.

pub mod frame;
pub mod message;
