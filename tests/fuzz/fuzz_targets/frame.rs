//! The framer of the hot path: however a stream is cut, it ends up in the same place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgassay::wire::frame::Framer;

fuzz_target!(|input: (Vec<u8>, usize)| {
    let (bytes, cut) = input;
    let (head, tail) = bytes.split_at(cut % (bytes.len() + 1));
    let (mut whole, mut parts) = (Framer::default(), Framer::default());
    whole.take(&bytes);
    parts.take(head);
    parts.take(tail);
    assert_eq!(whole.is_lost(), parts.is_lost());
    assert_eq!(whole.messages(), parts.messages());
    assert_eq!(whole.at_boundary(), parts.at_boundary());
    assert_eq!(whole.is_idle(), parts.is_idle());
});
