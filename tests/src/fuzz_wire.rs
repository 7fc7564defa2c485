//! Everything that reads bytes from strangers, as functions from bytes: what must hold whatever they are.
//!
//! In: any bytes. Out: nothing, or a panic that names what does not hold.
//!
//! The same functions are run twice: by libFuzzer, guided by coverage (`tests/fuzz`, needs a nightly toolchain),
//! and by [`mutate`], seeded and bounded, on every `make test`.

use bytes::Bytes;
use pgassay::auth;
use pgassay::auth::scram::{Exchange, Verifier};
use pgassay::inject::{Inject, Permission};
use pgassay::upstream::Upstream;
use pgassay::wire::frame::Framer;
use pgassay::wire::message;
use pgassay_audit::trace::journal::{Key, Reader, Redactor};
use pgassay_audit::trace::{Record, SessionId, lex, shape};
use pgassay_audit::wire::{Captured, Decoder, Direction, Limits};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One thing to try with any bytes.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub const TARGETS: &[Target] = &[
    Target {
        name: "frame",
        run: frame,
    },
    Target {
        name: "startup",
        run: startup,
    },
    Target {
        name: "scram",
        run: scram,
    },
    Target {
        name: "certificate",
        run: certificate,
    },
    Target {
        name: "inject",
        run: inject,
    },
    Target {
        name: "decode",
        run: decode,
    },
    Target {
        name: "sql",
        run: sql,
    },
    Target {
        name: "journal",
        run: journal,
    },
    Target {
        name: "upstream",
        run: upstream,
    },
];

/// The framer of the hot path: however a stream is cut, it ends up in the same place.
pub fn frame(bytes: &[u8]) {
    let (cut, bytes) = number(bytes);
    let (head, tail) = bytes.split_at(cut % (bytes.len() + 1));
    let (mut whole, mut parts) = (Framer::default(), Framer::default());
    whole.take(bytes);
    parts.take(head);
    parts.take(tail);
    assert_eq!(whole.is_lost(), parts.is_lost());
    assert_eq!(whole.messages(), parts.messages());
    assert_eq!(whole.at_boundary(), parts.at_boundary());
    assert_eq!(whole.is_idle(), parts.is_idle());
    assert_eq!(whole.is_in_block(), parts.is_in_block());
}

/// The first packets of a client.
pub fn startup(bytes: &[u8]) {
    if let Ok(Some((_, length))) = message::first(bytes) {
        assert!(length <= bytes.len());
        message::is_replication(&message::startup_parameters(&bytes[..length]));
    }
    message::startup_parameters(bytes);
    if bytes.len() > 5 {
        auth::without_plus(Bytes::copy_from_slice(bytes));
    }
}

/// SCRAM messages of a client that has not proved anything yet: none of them is a proof.
pub fn scram(bytes: &[u8]) {
    let (cut, bytes) = number(bytes);
    let plus = cut % 2 == 1;
    let (first, last) = bytes.split_at(cut / 2 % (bytes.len() + 1));
    let mechanism = if plus {
        "SCRAM-SHA-256-PLUS"
    } else {
        "SCRAM-SHA-256"
    };
    let end_point = plus.then(|| vec![7; 32]);
    if let Ok(mut exchange) = Exchange::new(Verifier::random(), mechanism, end_point, first) {
        assert!(exchange.verify(last).is_err());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Verifier::parse(text);
    }
}

/// A server's certificate, of which the proxy reads the signature's algorithm by itself.
pub fn certificate(bytes: &[u8]) {
    let hash = pgassay::tls::end_point_hash(&bytes.into());
    assert!(hash.is_none_or(|hash| hash.len() >= 32));
}

/// A COMMIT in company: however the answer is cut, the client reads the same.
pub fn inject(bytes: &[u8]) {
    let (cut, bytes) = number(bytes);
    let asked = || {
        let permission = Arc::new(Permission::default());
        permission.granted.store(true, Relaxed);
        let mut inject = Inject::new(permission);
        inject.ahead_of(bytes, true);
        if !inject.is_swallowing() {
            inject.ahead_of(b"Q\0\0\0\x0bcommit\0", true);
        }
        assert!(inject.is_swallowing());
        inject
    };
    let (head, tail) = bytes.split_at(cut % (bytes.len() + 1));
    let (mut whole, mut parts) = (asked(), asked());
    let at_once = whole.sift(Bytes::copy_from_slice(bytes)).to_client;
    let first = parts.sift(Bytes::copy_from_slice(head)).to_client;
    let then = if parts.is_swallowing() {
        parts.sift(Bytes::copy_from_slice(tail)).to_client
    } else {
        Bytes::copy_from_slice(tail)
    };
    assert_eq!(at_once, [first, then].concat());
    assert!(at_once.len() <= bytes.len());
}

/// The decoder: any bytes in either direction, in pieces of any size. It may say that it lost its place; its
/// marks must not go back.
pub fn decode(bytes: &[u8]) {
    let session = SessionId(1);
    let mut decoder = Decoder::new(Limits {
        result_bytes_max: 1 << 16,
        message_bytes_max: 1 << 18,
    });
    let mut records = Vec::new();
    decoder.take(Captured::Opened { session, at: 1 }, &mut records);
    let mut at = 1;
    for (kind, piece) in pieces(bytes) {
        at += 10;
        let captured = match kind % 8 {
            0..=2 => Captured::Bytes {
                session,
                direction: Direction::ToServer,
                at,
                bytes: Bytes::copy_from_slice(piece),
            },
            3..=5 => Captured::Bytes {
                session,
                direction: Direction::ToClient,
                at,
                bytes: Bytes::copy_from_slice(piece),
            },
            6 => Captured::Xid {
                session,
                xid: piece.len() as u64,
            },
            _ => Captured::Gap {
                session,
                from: at - 5,
                to: at,
                lost_bytes: piece.len() as u64,
            },
        };
        decoder.take(captured, &mut records);
        decoder.mark(at + 5, &mut records);
    }
    let closed = Captured::Closed {
        session,
        at: at + 1,
        abruptly: false,
    };
    decoder.take(closed, &mut records);
    let (mut marked, mut seq) = (0, 0);
    for record in &records {
        match record {
            Record::Mark { at } => {
                assert!(*at >= marked);
                marked = *at;
            }
            Record::Statement(o) => {
                assert!(o.seq >= seq && o.window.sent <= o.window.done);
                seq = o.seq;
            }
            _ => (),
        }
    }
}

/// Text that a client calls SQL: its tokens lie in it, in order, and hashing it leaves none of its strings.
pub fn sql(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut end = 0;
    for token in lex::tokens(text) {
        assert!(end <= token.place.start && token.place.start < token.place.end);
        end = token.place.end;
        let _ = &text[token.place];
    }
    lex::effect(text);
    shape::shape(text);
    shape::tables(text);
    let redactor = Redactor::new(Key::new([7; 32]));
    let _ = redactor.sql(text);
}

/// A file that is found where a journal should be: records or an error.
pub fn journal(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("segment-00000000000000000000"), bytes).expect("a file");
    if let Ok(reader) = Reader::open(dir.path(), None) {
        let mut errors = 0;
        for record in reader {
            errors += usize::from(record.is_err());
        }
        assert!(errors <= 1, "after an error nothing more comes");
    }
}

/// Not a stranger's, but a person's: a mistyped address is an error that repeats no password.
pub fn upstream(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = Upstream::parse(text);
    let uri = format!("postgresql://me:hunter2@{text}");
    if let Err(error) = Upstream::parse(&uri) {
        assert!(!format!("{error:#}").contains("hunter2") || text.contains("hunter2"));
    }
}

/// The first two bytes as a number, and the rest.
fn number(bytes: &[u8]) -> (usize, &[u8]) {
    match bytes {
        [high, low, rest @ ..] => (usize::from(*high) << 8 | usize::from(*low), rest),
        _ => (0, bytes),
    }
}

/// Pieces with a kind: one byte of kind (0 to the server, 3 to the client), two of length, then so many bytes.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, rest) = bytes.split_first()?;
        let (length, rest) = number(rest);
        let (piece, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        Some((*kind, piece))
    })
}

/// Tries `target` with `rounds` mutations of `corpus`. The input of a failure is told in hexadecimal, so that it
/// can become part of the corpus.
pub fn mutate(target: &Target, corpus: &[Vec<u8>], seed: u64, rounds: usize) {
    assert!(
        !corpus.is_empty(),
        "{}: there is nothing to begin with",
        target.name
    );
    let mut random = fastrand::Rng::with_seed(seed);
    for input in corpus {
        attempt(target, input, seed);
    }
    for _ in 0..rounds {
        let mut input = corpus[random.usize(..corpus.len())].clone();
        for _ in 0..random.usize(1..=6) {
            let other = &corpus[random.usize(..corpus.len())];
            change(&mut input, other, &mut random);
        }
        attempt(target, &input, seed);
    }
}

fn attempt(target: &Target, input: &[u8], seed: u64) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{} (seed {seed}) failed with the input {hex}", target.name);
    }
}

/// One of the usual mutations: bits, bytes, numbers at the edge, blocks moved, doubled, dropped or borrowed.
fn change(input: &mut Vec<u8>, other: &[u8], random: &mut fastrand::Rng) {
    const EDGES: [u32; 8] = [0, 3, 4, 5, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0xffff];
    if input.is_empty() {
        input.extend_from_slice(other);
        input.push(random.u8(..));
        return;
    }
    let at = random.usize(..input.len());
    let length = random.usize(1..=(input.len() - at).min(64));
    match random.u8(..8) {
        0 => input[at] ^= 1 << random.u8(..8),
        1 => input[at] = random.u8(..),
        2 => {
            let edge = EDGES[random.usize(..EDGES.len())].to_be_bytes();
            let room = length.min(4);
            input[at..at + room].copy_from_slice(&edge[4 - room..]);
        }
        3 => drop(input.drain(at..at + length)),
        4 => {
            let block = input[at..at + length].to_vec();
            input.splice(at..at, block);
        }
        5 => input.truncate(at),
        6 => input.insert(at, random.u8(..)),
        _ => {
            if !other.is_empty() {
                let from = random.usize(..other.len());
                let to = random.usize(from..=other.len().min(from + 256));
                input.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    input.truncate(1 << 16);
}
