//! All sessions at once: captured pieces in, records out.
//!
//! Always true:
//!   - records come out in the order in which their groups completed;
//!   - a [`Record::Mark`] never goes back, and never passes a request that could commit something and
//!     is neither recorded nor inside a recorded gap;
//!   - the same pieces give the same records.

use super::captured::{Captured, Direction};
use super::session::Session;
use super::texts::Texts;
use crate::trace::{Gap, Nanos, Record, SessionId, Window};
use rustc_hash::FxHashMap;

/// How much of one session is held in memory at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows and copy data kept of one answer; the rest is counted and digested.
    pub result_bytes_max: usize,
    /// One message of a client, or of the server other than a row. A longer one makes a gap.
    pub message_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            result_bytes_max: 16 << 20,
            message_bytes_max: 64 << 20,
        }
    }
}

/// What was seen so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub messages: u64,
    pub statements: u64,
    /// Messages of a type that this decoder does not know.
    pub unknown_messages: u64,
    /// Times that the decoder lost its place in a stream.
    pub decode_errors: u64,
    pub gaps: u64,
    pub sessions: u64,
    pub replication_sessions: u64,
    pub cancel_requests: u64,
}

pub struct Decoder {
    limits: Limits,
    sessions: FxHashMap<SessionId, Session>,
    texts: Texts,
    counters: Counters,
    backends: Vec<u32>,
    commits: Vec<Commit>,
    marked: Nanos,
}

/// A commit whose xid is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    pub session: SessionId,
    /// Of the observation that committed.
    pub group: u64,
    /// When it was known to have ended.
    pub at: Nanos,
    pub xid: u64,
}

/// What a session may use of the decoder around it.
pub(super) struct Around<'a> {
    pub limits: Limits,
    pub texts: &'a mut Texts,
    pub counters: &'a mut Counters,
    pub backends: &'a mut Vec<u32>,
    pub commits: &'a mut Vec<Commit>,
    pub out: &'a mut Vec<Record>,
}

impl Decoder {
    pub fn new(limits: Limits) -> Decoder {
        let result_bytes_max = limits.result_bytes_max.min(limits.message_bytes_max);
        Decoder {
            limits: Limits {
                result_bytes_max,
                ..limits
            },
            sessions: FxHashMap::default(),
            texts: Texts::default(),
            counters: Counters::default(),
            backends: Vec::new(),
            commits: Vec::new(),
            marked: 0,
        }
    }

    /// Takes one piece; appends the records it completes.
    pub fn take(&mut self, captured: Captured, out: &mut Vec<Record>) {
        let limits = self.limits;
        let mut around = Around {
            limits,
            texts: &mut self.texts,
            counters: &mut self.counters,
            backends: &mut self.backends,
            commits: &mut self.commits,
            out,
        };
        match captured {
            Captured::Opened { session, at } => {
                around.counters.sessions += 1;
                if let Some(mut old) = self.sessions.insert(session, Session::open(session, at, limits)) {
                    old.close(at, false, &mut around);
                }
            }
            Captured::Bytes {
                session,
                direction,
                at,
                bytes,
            } => {
                let session = self
                    .sessions
                    .entry(session)
                    .or_insert_with(|| Session::join(session, at, limits));
                match direction {
                    Direction::ToServer => session.to_server(bytes, at, &mut around),
                    Direction::ToClient => session.to_client(bytes, at, &mut around),
                }
            }
            Captured::Gap {
                session,
                from,
                to,
                lost_bytes,
            } => match self.sessions.get_mut(&session) {
                Some(session) => {
                    session.lose(
                        from,
                        to,
                        format!("{lost_bytes} bytes were not captured"),
                        &mut around,
                    );
                }
                None => {
                    around.counters.gaps += 1;
                    around.out.push(Record::Gap(Gap {
                        session: Some(session),
                        window: Window::new(from, to),
                        reason: format!("{lost_bytes} bytes were not captured"),
                    }));
                }
            },
            Captured::Xid { session, xid } => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.expect_commit(xid);
                }
            }
            Captured::Closed {
                session,
                at,
                abruptly,
            } => {
                if let Some(mut session) = self.sessions.remove(&session) {
                    session.close(at, abruptly, &mut around);
                }
            }
        }
    }

    /// Everything captured before `now` has been taken: appends a mark as late as can be promised.
    pub fn mark(&mut self, now: Nanos, out: &mut Vec<Record>) {
        let mut at = now;
        let mut around = Around {
            limits: self.limits,
            texts: &mut self.texts,
            counters: &mut self.counters,
            backends: &mut self.backends,
            commits: &mut self.commits,
            out,
        };
        for session in self.sessions.values_mut().filter(|s| s.is_lost()) {
            session.tell_gap(now, &mut around);
        }
        for session in self.sessions.values() {
            if let Some(held) = session.held() {
                at = at.min(held);
            }
        }
        if at > self.marked {
            self.marked = at;
            out.push(Record::Mark { at });
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Process ids of the server's backends behind sessions that were begun since this was last asked.
    pub fn new_backends(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.backends)
    }

    /// Commits of known xid that were answered since this was last asked.
    pub fn new_commits(&mut self) -> Vec<Commit> {
        std::mem::take(&mut self.commits)
    }
}
