//! The system from outside: real servers, real drivers, a lying server.

#![forbid(unsafe_code)]

pub mod deps;
pub mod certificates;
pub mod cluster;
pub mod liar;
pub mod proxy;
pub mod random;
pub mod raw;
pub mod recorded;
pub mod sniff;
pub mod wait;
pub mod http;
pub mod lost;
pub mod fuzz_ddl;
pub mod seeds;
pub mod fuzz_sql;
pub mod interleave;
pub mod tools;
pub mod prometheus;
pub mod fuzz_values;
pub mod fuzz_wire;
