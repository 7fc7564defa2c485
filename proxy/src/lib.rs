//! A transparent PostgreSQL proxy: bytes pass untouched, and what they meant is recorded beside them.
//!
//! The modules are listed in the order in which a connection meets them.

#![forbid(unsafe_code)]

pub mod config;
pub mod clock;
pub mod live;
pub mod throwaway;
pub mod cli;
