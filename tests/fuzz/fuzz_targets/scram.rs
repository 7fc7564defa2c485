//! SCRAM messages of a client that has not proved anything yet: none of them is a proof.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgassay::auth::scram::{Exchange, Verifier};

fuzz_target!(|input: (bool, Vec<u8>, Vec<u8>)| {
    let (plus, first, last) = input;
    let mechanism = if plus { "SCRAM-SHA-256-PLUS" } else { "SCRAM-SHA-256" };
    let end_point = plus.then(|| vec![7; 32]);
    if let Ok(mut exchange) = Exchange::new(Verifier::random(), mechanism, end_point, &first) {
        assert!(exchange.verify(&last).is_err());
    }
});
