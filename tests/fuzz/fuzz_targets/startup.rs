//! `fuzz_wire::startup` for libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pgassay_tests::fuzz_wire::startup(bytes));
