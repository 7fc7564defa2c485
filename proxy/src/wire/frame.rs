//! Where a message ends: tag and length, no bodies.
//!
//! In: a byte stream after the startup packet, in pieces cut anywhere. Out: whether the stream stands at
//! the end of a message, and which message that was.
//!
//! Always true:
//!   - bodies are skipped, not looked at, except the one status byte of ReadyForQuery;
//!   - a length below 4 means that this is not the protocol: the framer is lost, says so and looks no
//!     further. The relay goes on regardless.

/// Follows one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framer {
    header: [u8; 5],
    /// Bytes of `header` that are filled.
    filled: u8,
    /// Bytes of the body still to come.
    body: u32,
    /// Tag of the last complete message.
    last: u8,
    /// Transaction status of the last ReadyForQuery.
    status: u8,
    /// Nothing but what may come at any time has come since.
    ready: bool,
    lost: bool,
    messages: u64,
}

impl Framer {
    pub fn take(&mut self, bytes: &[u8]) {
        self.take_each(bytes, |_| ());
    }

    /// Like [`take`](Framer::take), and calls `complete` with the tag of every message that ends in `bytes`.
    pub fn take_each(&mut self, mut bytes: &[u8], mut complete: impl FnMut(u8)) {
        while !bytes.is_empty() && !self.lost {
            if self.body > 0 {
                let skip = (self.body as usize).min(bytes.len());
                if self.header[0] == b'Z' {
                    self.status = bytes[skip - 1];
                }
                self.body -= skip as u32;
                bytes = &bytes[skip..];
                if self.body == 0 {
                    self.complete();
                    complete(self.last);
                }
                continue;
            }
            let missing = 5 - usize::from(self.filled);
            let take = missing.min(bytes.len());
            let filled = usize::from(self.filled);
            self.header[filled..filled + take].copy_from_slice(&bytes[..take]);
            self.filled += take as u8;
            bytes = &bytes[take..];
            if self.filled == 5 {
                let length =
                    u32::from_be_bytes([self.header[1], self.header[2], self.header[3], self.header[4]]);
                match length.checked_sub(4) {
                    Some(body) if length <= i32::MAX as u32 => self.body = body,
                    _ => self.lost = true,
                }
                if self.body == 0 && !self.lost {
                    self.complete();
                    complete(self.last);
                }
            }
        }
    }

    fn complete(&mut self) {
        self.filled = 0;
        self.last = self.header[0];
        self.ready = match self.last {
            b'Z' => true,
            // Notifications, notices and settings come unasked.
            b'A' | b'N' | b'S' => self.ready,
            _ => false,
        };
        self.messages += 1;
    }

    /// Between two messages, and sure of it.
    pub fn at_boundary(&self) -> bool {
        !self.lost && self.filled == 0 && self.body == 0
    }

    /// The tag of the last complete message; 0 when there was none.
    pub fn last(&self) -> u8 {
        self.last
    }

    /// The server said ReadyForQuery, outside any transaction block, and no answer after it.
    pub fn is_idle(&self) -> bool {
        self.at_boundary() && self.ready && self.status == b'I'
    }

    /// The same inside a block that has not failed.
    pub fn is_in_block(&self) -> bool {
        self.at_boundary() && self.ready && self.status == b'T'
    }

    pub fn is_lost(&self) -> bool {
        self.lost
    }

    pub fn messages(&self) -> u64 {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"T\0\0\0\x06\0\0D\0\0\0\x0b\0\x01\0\0\0\x01xC\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";

    #[test]
    fn finds_the_end_wherever_the_stream_is_cut() {
        for cut in 0..=ANSWER.len() {
            let mut framer = Framer::default();
            framer.take(&ANSWER[..cut]);
            assert_eq!(framer.is_idle(), cut == ANSWER.len(), "cut at {cut}");
            framer.take(&ANSWER[cut..]);
            assert!(framer.is_idle());
            assert_eq!(framer.messages(), 4);
        }
    }

    #[test]
    fn a_block_is_not_idle() {
        let mut framer = Framer::default();
        framer.take(b"Z\0\0\0\x05T");
        assert!(framer.at_boundary() && !framer.is_idle() && framer.is_in_block());
        framer.take(b"Z\0\0\0\x05");
        assert!(!framer.at_boundary());
    }

    #[test]
    fn what_comes_unasked_changes_nothing() {
        let mut framer = Framer::default();
        framer.take(ANSWER);
        framer.take(b"A\0\0\0\x0c\0\0\0\x01n\0\0\0");
        assert!(framer.is_idle());
        framer.take(b"1\0\0\0\x04");
        assert!(!framer.is_idle());
    }

    #[test]
    fn an_absurd_length_loses_the_place() {
        for length in [0u32, 3, 0x8000_0000, u32::MAX] {
            let mut framer = Framer::default();
            framer.take(b"D");
            framer.take(&length.to_be_bytes());
            assert!(framer.is_lost() && !framer.at_boundary());
            framer.take(ANSWER);
            assert!(framer.is_lost());
        }
    }
}
