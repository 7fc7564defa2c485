//! A transparent PostgreSQL proxy: bytes pass untouched, and what they meant is recorded beside them.
//!
//! The modules are listed in the order in which a connection meets them.

#![forbid(unsafe_code)]

/// The audit makes and drops many small things: this one is a sixth cheaper for it than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod config;
pub mod clock;
pub mod live;
pub mod listen;
pub mod startup;
pub mod knock;
pub mod auth;
pub mod tls;
pub mod leg;
pub mod upstream;
pub mod relay;
pub mod inject;
pub mod wire;
pub mod capture;
pub mod record;
pub mod keep;
pub mod crashes;
pub mod judge;
pub mod bootstrap;
pub mod writers;
pub mod restore;
pub mod side;
pub mod schema;
pub mod stamps;
pub mod threads;
pub mod serve;
pub mod leash;
pub mod throwaway;
pub mod metrics;
pub mod admin;
pub mod webhook;
pub mod cli;
