//! The decoder: any bytes in either direction, in pieces of any size. It may say that it lost its place;
//! it must not panic, and its marks must not go back.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pgassay_audit::trace::{Record, SessionId};
use pgassay_audit::wire::{Captured, Decoder, Direction, Limits};

fuzz_target!(|pieces: Vec<(bool, Vec<u8>)>| {
    let session = SessionId(1);
    let mut decoder = Decoder::new(Limits { result_bytes_max: 1 << 16, message_bytes_max: 1 << 18 });
    let mut records = Vec::new();
    decoder.take(Captured::Opened { session, at: 1 }, &mut records);
    let mut at = 1;
    for (to_server, bytes) in pieces {
        at += 10;
        let direction = if to_server { Direction::ToServer } else { Direction::ToClient };
        decoder.take(Captured::Bytes { session, direction, at, bytes: Bytes::from(bytes) }, &mut records);
        decoder.mark(at + 5, &mut records);
    }
    decoder.take(Captured::Closed { session, at: at + 1 }, &mut records);
    let mut marked = 0;
    for record in records {
        if let Record::Mark { at } = record {
            assert!(at >= marked);
            marked = at;
        }
    }
});
