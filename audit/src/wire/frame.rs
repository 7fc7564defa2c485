//! Cuts a byte stream into protocol messages.
//!
//! In: the pieces of one direction of one session, as captured. Out: whole messages, each with the
//! instant of the piece that carried its first byte; the instant of its last byte is that of the piece
//! being cut.
//!
//! Always true:
//!   - a message that lies within one piece is handed on as a slice of it; only messages that straddle
//!     pieces are copied, once;
//!   - no more than `bytes_max` of one message are kept: a longer row or copy message is told as
//!     [`Frame::Huge`] with its digest, any longer message of another kind is an error;
//!   - the bytes of the stream decide the messages, not how it was cut into pieces.

use crate::trace::Nanos;
use bytes::{Buf, Bytes, BytesMut};

/// One message: its body is `chunk[start..end]`.
pub struct Message<'a> {
    pub tag: u8,
    pub chunk: &'a Bytes,
    pub start: usize,
    pub end: usize,
    /// The instant of the piece that carried the first byte.
    pub first: Nanos,
}

pub enum Frame<'a> {
    Whole(Message<'a>),
    /// A row or copy message too long to keep.
    Huge {
        tag: u8,
        bytes: u64,
        crc: u32,
    },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a message of type {tag:?} claims a length of {length}")]
    Length { tag: char, length: i32 },
    #[error("a message of type {tag:?} with {length} bytes is longer than the limit")]
    TooLong { tag: char, length: i32 },
}

#[derive(Debug)]
pub struct Framer {
    /// The beginning of a message whose end has not come yet.
    held: BytesMut,
    first: Nanos,
    skip: Option<Skip>,
    /// The first message of a client has no tag.
    untagged: bool,
    bytes_max: usize,
}

#[derive(Debug)]
struct Skip {
    tag: u8,
    bytes: u64,
    left: usize,
    crc: u32,
}

/// The tag that [`Framer`] gives to the first message of a client.
pub const STARTUP: u8 = 0;

/// A startup packet is never longer in PostgreSQL (MAX_STARTUP_PACKET_LENGTH).
const STARTUP_BYTES_MAX: usize = 10_000;

impl Framer {
    /// The server's stream, or a client's after its startup packet.
    pub fn tagged(bytes_max: usize) -> Framer {
        Framer {
            held: BytesMut::new(),
            first: 0,
            skip: None,
            untagged: false,
            bytes_max,
        }
    }

    /// A client's stream, which begins with the startup packet.
    pub fn startup(bytes_max: usize) -> Framer {
        Framer {
            untagged: true,
            ..Framer::tagged(bytes_max)
        }
    }

    /// The instant of the oldest byte that is still waiting for the rest of its message.
    pub fn waiting_since(&self) -> Option<Nanos> {
        (!self.held.is_empty() || self.skip.is_some()).then_some(self.first)
    }

    /// Cuts one more piece; `each` is called for every message it completes, until it fails.
    pub fn cut<E: From<FrameError>>(
        &mut self,
        mut chunk: Bytes,
        at: Nanos,
        mut each: impl FnMut(Frame) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.skip.is_some() || !self.held.is_empty() {
            if !self.complete(&mut chunk, at, &mut each)? {
                return Ok(());
            }
        }
        let mut at_byte = 0;
        while let Some(header) = self.header(&chunk[at_byte..])? {
            let end = at_byte + header.total;
            if end > chunk.len() {
                break;
            }
            let start = at_byte + header.length;
            self.untagged = false;
            each(Frame::Whole(Message {
                tag: header.tag,
                chunk: &chunk,
                start,
                end,
                first: at,
            }))?;
            at_byte = end;
        }
        if at_byte < chunk.len() {
            chunk.advance(at_byte);
            self.first = at;
            self.hold(chunk)?;
        }
        Ok(())
    }

    /// Completes the message that is held from earlier pieces, as far as `chunk` reaches. Says whether to
    /// go on.
    fn complete<E: From<FrameError>>(
        &mut self,
        chunk: &mut Bytes,
        at: Nanos,
        each: &mut impl FnMut(Frame) -> Result<(), E>,
    ) -> Result<bool, E> {
        if let Some(skip) = &mut self.skip {
            let taken = skip.left.min(chunk.len());
            skip.crc = crc32c::crc32c_append(skip.crc, &chunk[..taken]);
            skip.left -= taken;
            chunk.advance(taken);
            if skip.left > 0 {
                return Ok(false);
            }
            let (tag, bytes, crc) = (skip.tag, skip.bytes, skip.crc);
            self.skip = None;
            each(Frame::Huge { tag, bytes, crc })?;
            return Ok(true);
        }
        let wanted = match self.header(&self.held)? {
            None => self.header_length(),
            Some(header) => header.total,
        };
        let taken = (wanted - self.held.len()).min(chunk.len());
        self.held.extend_from_slice(&chunk[..taken]);
        chunk.advance(taken);
        if self.held.len() < wanted {
            return Ok(false);
        }
        let Some(header) = self.header(&self.held)? else {
            return Ok(true);
        };
        if self.held.len() < header.total {
            // Only now is the length known.
            let held = self.held.split().freeze();
            self.hold(held)?;
            return Ok(!chunk.is_empty());
        }
        self.untagged = false;
        let whole = self.held.split().freeze();
        let first = self.first;
        self.first = at;
        each(Frame::Whole(Message {
            tag: header.tag,
            chunk: &whole,
            start: header.length,
            end: header.total,
            first,
        }))?;
        Ok(true)
    }

    /// Keeps the beginning of a message, or only counts it when it is going to be huge.
    fn hold(&mut self, begun: Bytes) -> Result<(), FrameError> {
        if let Some(header) = self.header(&begun)? {
            if header.total > self.bytes_max {
                if !matches!(header.tag, b'D' | b'd') || self.untagged {
                    let length = (header.total - 1) as i32;
                    return Err(FrameError::TooLong {
                        tag: header.tag as char,
                        length,
                    });
                }
                let body = &begun[header.length..];
                self.skip = Some(Skip {
                    tag: header.tag,
                    bytes: (header.total - header.length) as u64,
                    left: header.total - begun.len(),
                    crc: crc32c::crc32c(body),
                });
                return Ok(());
            }
            self.held.reserve(header.total);
        }
        self.held.extend_from_slice(&begun);
        Ok(())
    }

    fn header_length(&self) -> usize {
        if self.untagged { 4 } else { 5 }
    }

    fn header(&self, bytes: &[u8]) -> Result<Option<Header>, FrameError> {
        if self.untagged {
            let Some(head) = bytes.first_chunk::<4>() else {
                return Ok(None);
            };
            let length = i32::from_be_bytes(*head);
            if length < 8 || length as usize > STARTUP_BYTES_MAX {
                return Err(FrameError::Length { tag: 'S', length });
            }
            return Ok(Some(Header {
                tag: STARTUP,
                length: 4,
                total: length as usize,
            }));
        }
        let Some(&[tag, a, b, c, d]) = bytes.first_chunk::<5>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes([a, b, c, d]);
        if length < 4 || !tag.is_ascii_alphanumeric() {
            return Err(FrameError::Length {
                tag: tag as char,
                length,
            });
        }
        Ok(Some(Header {
            tag,
            length: 5,
            total: 1 + length as usize,
        }))
    }
}

struct Header {
    tag: u8,
    /// Of the header itself.
    length: usize,
    /// Of header and body.
    total: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// The stream cut at the given places, as text, with the instant of each first byte.
    fn cut(stream: &[u8], places: &[usize], bytes_max: usize) -> Vec<(u8, String, Nanos)> {
        let mut framer = Framer::tagged(bytes_max);
        let mut seen = Vec::new();
        let mut from = 0;
        for (i, &to) in places.iter().chain([&stream.len()]).enumerate() {
            let to = to.clamp(from, stream.len());
            let chunk = Bytes::copy_from_slice(&stream[from..to]);
            framer
                .cut(chunk, i as Nanos, |frame| {
                    seen.push(match frame {
                        Frame::Whole(m) => (
                            m.tag,
                            String::from_utf8_lossy(&m.chunk[m.start..m.end]).into_owned(),
                            m.first,
                        ),
                        Frame::Huge { tag, bytes, crc } => (tag, format!("huge {bytes} {crc}"), 0),
                    });
                    Ok::<(), FrameError>(())
                })
                .unwrap();
            from = to;
        }
        assert_eq!(framer.waiting_since(), None);
        seen
    }

    #[test]
    fn first_byte_gives_the_instant() {
        let stream = [message(b'Q', b"abc"), message(b'X', b"")].concat();
        assert_eq!(
            cut(&stream, &[], 100),
            vec![(b'Q', "abc".into(), 0), (b'X', "".into(), 0)]
        );
        assert_eq!(
            cut(&stream, &[3, 6], 100),
            vec![(b'Q', "abc".into(), 0), (b'X', "".into(), 2)]
        );
        assert_eq!(
            cut(&stream, &[8], 100),
            vec![(b'Q', "abc".into(), 0), (b'X', "".into(), 1)]
        );
    }

    #[test]
    fn absurd_lengths_are_errors() {
        for bytes in [
            &b"Q\0\0\0\x03"[..],
            b"Q\xff\xff\xff\xff",
            b"\0\0\0\0\x04",
            b"Q\x7f\xff\xff\xff",
        ] {
            let mut framer = Framer::tagged(1000);
            let error = framer.cut(Bytes::copy_from_slice(bytes), 0, |_| Ok::<(), FrameError>(()));
            assert!(error.is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            bodies in prop::collection::vec((prop::sample::select(b"DdQZ".to_vec()), "[a-z]{0,30}"), 1..6),
            mut places in prop::collection::vec(0usize..160, 0..8),
        ) {
            places.sort();
            let stream: Vec<u8> =
                bodies.iter().flat_map(|(tag, body)| message(*tag, body.as_bytes())).collect();
            let whole: Vec<_> = cut(&stream, &[], 1000).into_iter().map(|(t, b, _)| (t, b)).collect();
            let pieces: Vec<_> = cut(&stream, &places, 1000).into_iter().map(|(t, b, _)| (t, b)).collect();
            prop_assert_eq!(whole, pieces);
        }

        #[test]
        fn huge_rows_are_digested(
            body in "[a-z]{50,90}",
            mut places in prop::collection::vec(0usize..90, 1..8),
        ) {
            places.sort();
            let stream = [message(b'D', body.as_bytes()), message(b'Z', b"I")].concat();
            let seen = cut(&stream, &places, 40);
            prop_assert_eq!(seen.len(), 2);
            let huge = format!("huge {} {}", body.len(), crc32c::crc32c(body.as_bytes()));
            prop_assert!(seen[0].1 == huge || seen[0].1 == body);
        }

        #[test]
        fn garbage_never_panics(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            for untagged in [false, true] {
                let mut framer = if untagged { Framer::startup(64) } else { Framer::tagged(64) };
                for chunk in &chunks {
                    if framer.cut(Bytes::from(chunk.clone()), 1, |_| Ok::<(), FrameError>(())).is_err() {
                        break;
                    }
                }
            }
        }
    }
}
