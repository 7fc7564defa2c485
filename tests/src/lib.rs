//! The system from outside: real servers, real drivers, a lying server.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod proxy;
