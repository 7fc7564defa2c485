//! The first packets of a client.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgassay::wire::message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((_, length))) = message::first(bytes) {
        assert!(length <= bytes.len());
        message::is_replication(&message::startup_parameters(&bytes[..length]));
    }
    message::startup_parameters(bytes);
});
