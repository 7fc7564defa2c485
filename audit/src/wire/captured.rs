//! What the relay hands over: pieces of the two byte streams of a session, with the instant of each.
//!
//! In: nothing; the proxy's relay makes these. Out: the decoder turns them into records.
//!
//! Always true:
//!   - a session begins with `Opened` and ends with `Closed`, and its pieces come in the order in which
//!     the relay saw them, so `at` never goes back within a session;
//!   - `at` of a piece `ToServer` was read from the clock *before* any of it was written to the server,
//!     `at` of a piece `ToClient` *after* all of it was read from the server;
//!   - a piece may begin and end anywhere within a message;
//!   - SSLRequest, GSSENCRequest and their answers are not part of the streams: the first piece
//!     `ToServer` begins with the startup packet, whatever encryption was negotiated around it;
//!   - whatever was not captured lies in a `Gap`, after which either stream may be in mid-message;
//!   - the streams hold passwords, SASL messages and cancel keys: the decoder never records these.

use crate::trace::{Nanos, SessionId};
use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    ToServer,
    ToClient,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Captured {
    Opened {
        session: SessionId,
        at: Nanos,
    },
    Bytes {
        session: SessionId,
        direction: Direction,
        at: Nanos,
        bytes: Bytes,
    },
    /// `lost_bytes` (of either direction) passed between the two instants without being captured.
    Gap {
        session: SessionId,
        from: Nanos,
        to: Nanos,
        lost_bytes: u64,
    },
    Closed {
        session: SessionId,
        at: Nanos,
        /// By the server, and it did not say why.
        abruptly: bool,
    },
    /// The COMMIT that was last seen, and has not been answered, commits the transaction of this xid. (The
    /// question and its answer were ours: they are not part of the streams.)
    Xid {
        session: SessionId,
        xid: u64,
    },
}

impl Captured {
    pub fn session(&self) -> SessionId {
        match *self {
            Captured::Opened { session, .. }
            | Captured::Bytes { session, .. }
            | Captured::Gap { session, .. }
            | Captured::Xid { session, .. }
            | Captured::Closed { session, .. } => session,
        }
    }
}
