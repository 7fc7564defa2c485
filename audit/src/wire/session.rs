//! One session: what it asked, what it was answered, and what it may still be answered.
//!
//! In: the pieces of both streams of one connection. Out: records.
//!
//! Always true:
//!   - requests are answered in the order in which they were written; `queue` holds the unanswered ones;
//!   - observations of a group wait in `done` until its ReadyForQuery tells how the group ended;
//!   - a session that lost its place records nothing but a gap until both streams are surely at a
//!     message boundary again: an idle ReadyForQuery at the end of all that was read, with nothing asked
//!     after it. A client that pipelines could have more answers on the way, so for it that moment must
//!     have lasted a while. What was prepared before a gap is forgotten: it may have been replaced.
//!
//! The files `asked.rs` and `answered.rs` hold the two halves of the state machine.

use super::answer::Gathering;
use super::decoder::{Around, Commit, Limits};
use super::frame::Framer;
use super::request::{Named, Portal, Prepared, Request};
use crate::trace::lex::{self, Effect};
use crate::trace::{
    Gap, LIMBO_NS, Nanos, Observation, Outcome, Parameter, Protocol, Record, SessionFacts, SessionId, Status,
    Window,
};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

pub struct Session {
    pub(super) id: SessionId,
    pub(super) phase: Phase,
    pub(super) facts: SessionFacts,
    pub(super) encoding: Encoding,
    pub(super) client: Option<Framer>,
    pub(super) server: Option<Framer>,

    pub(super) statements: Named<Prepared>,
    pub(super) portals: Named<Portal>,
    pub(super) queue: VecDeque<Request>,
    /// Groups whose end was written and whose ReadyForQuery has not come.
    pub(super) groups_open: usize,
    /// More than one group was open at once, ever.
    pub(super) pipelines: bool,
    /// The server ignores everything up to the next Sync.
    pub(super) skipping: bool,
    /// The answer of the request in front, as far as it has come.
    pub(super) gathering: Gathering,
    /// Data of COPY … FROM STDIN on its way to the server.
    pub(super) incoming: Gathering,
    /// The server reads copy data (and ignores Sync) until CopyDone or CopyFail.
    pub(super) copying_in: bool,
    /// Which statement of the Query in front is being answered.
    pub(super) part: u16,
    /// The earliest Parse or Bind of this transaction since the last statement was carried out: at
    /// REPEATABLE READ it may have taken the snapshot already.
    pub(super) early: Option<Nanos>,

    pub(super) status: Status,
    group: u64,
    seq: u64,
    #[expect(
        clippy::vec_box,
        reason = "handed on as they are, to a record that holds a box"
    )]
    pub(super) done: Vec<Box<Observation>>,
    /// Something in this group could not be read: from when on, and why.
    pub(super) blind: Option<(Nanos, String)>,
    lost: Option<Lost>,
    /// The xid of the transaction that the group in front commits.
    xid: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Until the first ReadyForQuery.
    Starting,
    Running,
    /// Replication and cancel connections: passed by, not read.
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// UTF8, and SQL_ASCII where it happens to be UTF-8.
    Utf8,
    Latin1,
    Other,
}

struct Lost {
    from: Nanos,
    reason: String,
    /// The last bytes that the server sent.
    tail: [u8; 6],
    /// When the server last sent something, if nothing was asked since.
    quiet_since: Option<Nanos>,
}

const READY_IDLE: [u8; 6] = *b"Z\0\0\0\x05I";

/// How long a pipelining client must be quiet before its streams count as aligned, and how long the mark
/// waits for a session that lost its place before the gap is told so far.
const QUIET: Nanos = 1_000_000_000;

/// Why the streams cannot be followed any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Confused {
    #[error(transparent)]
    Frame(#[from] super::frame::FrameError),
    #[error("a malformed message of type {0:?}")]
    Malformed(char),
    #[error("a message of type {0:?} that answers nothing that was asked")]
    Unexpected(char),
}

impl Session {
    pub fn open(id: SessionId, at: Nanos, limits: Limits) -> Session {
        Session {
            id,
            phase: Phase::Starting,
            facts: SessionFacts {
                session: id,
                at,
                user: String::new(),
                database: String::new(),
                server_version: String::new(),
                parameters: Vec::new(),
            },
            encoding: Encoding::Utf8,
            client: Some(Framer::startup(limits.message_bytes_max)),
            server: Some(Framer::tagged(limits.message_bytes_max)),
            statements: Named::default(),
            portals: Named::default(),
            queue: VecDeque::new(),
            groups_open: 0,
            pipelines: false,
            skipping: false,
            gathering: Gathering::default(),
            incoming: Gathering::default(),
            copying_in: false,
            part: 0,
            early: None,
            status: Status::Idle,
            group: 0,
            seq: 0,
            done: Vec::new(),
            blind: None,
            lost: None,
            xid: None,
        }
    }

    /// A session whose beginning was not captured.
    pub fn join(id: SessionId, at: Nanos, limits: Limits) -> Session {
        let mut session = Session::open(id, at, limits);
        // How it was used before is not known.
        session.pipelines = true;
        session.lost = Some(Lost {
            from: at,
            reason: "the beginning of the session was not captured".to_owned(),
            tail: [0; 6],
            quiet_since: None,
        });
        session
    }

    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// The COMMIT in front is that of this xid.
    pub fn expect_commit(&mut self, xid: u64) {
        self.xid = Some(xid).filter(|_| self.lost.is_none());
    }

    pub fn to_server(&mut self, bytes: Bytes, at: Nanos, around: &mut Around) {
        if self.phase == Phase::Ignored || bytes.is_empty() {
            return;
        }
        if let Some(lost) = &mut self.lost {
            if !(lost.is_aligned(at, self.pipelines) && begins_message(&bytes)) {
                lost.quiet_since = None;
                return;
            }
            self.find_place(around);
        }
        if let Err(confused) = self.asked(bytes, at, around) {
            around.counters.decode_errors += 1;
            self.lose(at, at, confused.to_string(), around);
        }
    }

    pub fn to_client(&mut self, bytes: Bytes, at: Nanos, around: &mut Around) {
        if self.phase == Phase::Ignored || bytes.is_empty() {
            return;
        }
        if let Some(lost) = &mut self.lost {
            lost.see(&bytes, at);
            return;
        }
        if let Err(confused) = self.answered(bytes.clone(), at, around) {
            around.counters.decode_errors += 1;
            self.lose(at, at, confused.to_string(), around);
            if let Some(lost) = &mut self.lost {
                lost.see(&bytes, at);
            }
        }
    }

    /// The streams cannot be followed from here on. What was asked and not yet recorded is part of the
    /// gap: the transaction around it may have done anything.
    pub fn lose(&mut self, from: Nanos, to: Nanos, reason: String, around: &mut Around) {
        if self.phase == Phase::Ignored {
            return;
        }
        tracing::debug!(
            session = self.id.0,
            reason,
            "lost the place in the captured streams"
        );
        if let Some(lost) = &mut self.lost {
            lost.quiet_since = None;
            lost.tail = [0; 6];
            return;
        }
        let oldest = self.unrecorded_since().unwrap_or(from).min(from);
        self.forget(around.limits);
        self.lost = Some(Lost {
            from: oldest.min(to),
            reason,
            tail: [0; 6],
            quiet_since: None,
        });
    }

    /// Tells of the gap of a lost session, as far as it has come, so that the mark need not wait for its
    /// end; closes it when the session is surely at rest.
    pub fn tell_gap(&mut self, now: Nanos, around: &mut Around) {
        let Some(lost) = &mut self.lost else { return };
        if lost.is_aligned(now, self.pipelines) {
            self.find_place(around);
        } else if lost.quiet_since.is_none() && now.saturating_sub(lost.from) >= QUIET {
            let window = Window::new(lost.from, now);
            lost.from = now;
            let reason = lost.reason.clone();
            self.tell(window, reason, around);
        }
    }

    /// The oldest instant that a mark must not pass because of this session.
    pub fn held(&self) -> Option<Nanos> {
        if self.phase == Phase::Ignored {
            return None;
        }
        if let Some(lost) = &self.lost {
            // At rest, with the answer to everything read: nothing is in flight that could commit.
            let at_rest = lost.quiet_since.is_some() && lost.tail[..5] == READY_IDLE[..5] && !self.pipelines;
            return (!at_rest).then_some(lost.from);
        }
        let waiting = self.client.as_ref().and_then(Framer::waiting_since);
        [waiting, self.could_commit_since()].into_iter().flatten().min()
    }

    /// When the oldest unrecorded request was written that could commit something.
    fn could_commit_since(&self) -> Option<Nanos> {
        if self.queue.is_empty() && self.done.is_empty() {
            return None;
        }
        let in_block = matches!(self.status, Status::InBlock | Status::Failed);
        let holds = |text: Option<&str>, simple: bool| {
            match text.map_or(Effect::Several, lex::effect) {
                Effect::Harmless => false,
                Effect::Ends | Effect::Several => true,
                Effect::Other => !in_block,
                // In the extended protocol it is Sync that commits.
                Effect::Data => simple && !in_block,
            }
        };
        for observation in &self.done {
            let simple = observation.protocol == Protocol::Simple;
            if holds(Some(&observation.text), simple) {
                return Some(observation.window.sent);
            }
        }
        for (index, request) in self.queue.iter().enumerate() {
            let found = match request {
                Request::Query { text, sent } => holds(text.as_deref(), true).then_some(*sent),
                Request::Execute { portal, sent } => {
                    holds(self.text_ahead(index, portal).as_deref(), false).then_some(*sent)
                }
                Request::Sync { sent } => holds(Some("select"), true).then_some(*sent),
                Request::Function { sent, .. } => holds(Some("select"), true).then_some(*sent),
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The text that the Execute at `index` of the queue will run, if everything before it succeeds.
    pub(super) fn text_ahead(&self, index: usize, portal: &[u8]) -> Option<Arc<str>> {
        let bound = self
            .queue
            .iter()
            .take(index)
            .enumerate()
            .rev()
            .find_map(|(at, r)| match r {
                Request::Bind {
                    portal: p, statement, ..
                } if p[..] == *portal => Some((at, statement.clone())),
                _ => None,
            });
        let Some((at, statement)) = bound else {
            return self.portals.get(portal).and_then(|p| p.text.clone());
        };
        let parsed = self.queue.iter().take(at).rev().find_map(|r| match r {
            Request::Parse { name, text, .. } if *name == statement => Some(text.clone()),
            _ => None,
        });
        parsed.unwrap_or_else(|| self.statements.get(&statement).and_then(|s| s.text.clone()))
    }

    fn unrecorded_since(&self) -> Option<Nanos> {
        let done = self.done.iter().map(|o| o.window.sent);
        let asked = self.queue.iter().filter_map(Request::sent);
        let blind = self.blind.iter().map(|(since, _)| *since);
        let waiting = self.client.as_ref().and_then(Framer::waiting_since);
        done.chain(asked).chain(blind).chain(waiting).min()
    }

    fn forget(&mut self, limits: Limits) {
        self.client = Some(Framer::tagged(limits.message_bytes_max));
        self.server = Some(Framer::tagged(limits.message_bytes_max));
        self.statements.clear();
        self.portals.clear();
        self.queue.clear();
        self.groups_open = 0;
        self.skipping = false;
        self.gathering = Gathering::default();
        self.incoming = Gathering::default();
        self.copying_in = false;
        self.part = 0;
        self.early = None;
        self.status = Status::Unknown;
        self.done.clear();
        self.blind = None;
        self.xid = None;
    }

    /// Both streams are at a message boundary again.
    fn find_place(&mut self, around: &mut Around) {
        let Some(lost) = self.lost.take() else { return };
        let until = lost.quiet_since.unwrap_or(lost.from);
        if self.phase == Phase::Starting {
            self.start(around);
        }
        self.tell(Window::new(lost.from.min(until), until), lost.reason, around);
        self.forget(around.limits);
        self.status = Status::Idle;
        self.group += 1;
    }

    fn tell(&mut self, window: Window, reason: String, around: &mut Around) {
        around.counters.gaps += 1;
        around.out.push(Record::Gap(Gap {
            session: Some(self.id),
            window,
            reason,
        }));
    }

    /// The first ReadyForQuery: the session is open for questions.
    pub(super) fn start(&mut self, around: &mut Around) {
        self.phase = Phase::Running;
        self.status = Status::Idle;
        let mut facts = self.facts.clone();
        if facts.database.is_empty() {
            facts.database.clone_from(&facts.user);
        }
        around.out.push(Record::SessionStart(facts));
    }

    /// The group in front was answered to its end.
    pub(super) fn finish(&mut self, status: Status, ready: Window, around: &mut Around) {
        let ready = self.commit_window(ready);
        for mut observation in self.done.drain(..) {
            observation.seq = self.seq;
            observation.after = status;
            observation.ready = ready;
            self.seq += 1;
            around.counters.statements += 1;
            around.out.push(Record::Statement(observation));
        }
        if let Some((since, reason)) = self.blind.take() {
            self.tell(Window::new(since, ready.done), reason, around);
        }
        if let Some(xid) = self.xid.take().filter(|_| status == Status::Idle) {
            around.commits.push(Commit {
                session: self.id,
                group: self.group,
                at: ready.done,
                xid,
            });
        }
        self.status = status;
        self.group += 1;
        self.part = 0;
        if status == Status::Idle {
            self.portals.clear();
            self.early = None;
        }
    }

    /// When the group's transaction may have committed: at its end, unless a COMMIT or a statement that
    /// commits by itself was carried out before Sync was written.
    fn commit_window(&self, ready: Window) -> Window {
        let early = self.done.iter().filter(|o| o.window.sent < ready.sent);
        let commits = early.filter(|o| !matches!(lex::effect(&o.text), Effect::Data | Effect::Harmless));
        let sent = commits.map(|o| o.window.sent).min().unwrap_or(ready.sent);
        Window::new(sent.min(ready.sent), ready.done)
    }

    /// Keeps one answered statement until its group ends.
    pub(super) fn observe(
        &mut self,
        text: Option<Arc<str>>,
        protocol: Protocol,
        mut parameters: Vec<Parameter>,
        window: Window,
        mut outcome: Outcome,
    ) {
        let readable = self.encoding == Encoding::Utf8 || self.to_utf8(&mut parameters, &mut outcome);
        let Some(text) = text.filter(|_| readable) else {
            let reason = if readable {
                "a statement whose text is not known"
            } else {
                "text in a client_encoding that cannot be read"
            };
            self.blind(window.sent, reason);
            return;
        };
        self.done.push(Box::new(Observation {
            session: self.id,
            seq: 0,
            text,
            part: self.part,
            protocol,
            parameters,
            window,
            outcome,
            before: self.status,
            after: Status::Unknown,
            group: self.group,
            ready: Window::new(Nanos::MAX, Nanos::MAX),
        }));
    }

    pub(super) fn blind(&mut self, since: Nanos, reason: &str) {
        match &mut self.blind {
            Some((earliest, _)) => *earliest = since.min(*earliest),
            None => self.blind = Some((since, reason.to_owned())),
        }
    }

    /// The connection is gone. Whatever was not answered may or may not have happened.
    pub fn close(&mut self, at: Nanos, abruptly: bool, around: &mut Around) {
        if self.phase == Phase::Ignored {
            return;
        }
        if let Some(lost) = self.lost.take() {
            // A server that is only out of reach goes on with what it was asked.
            let until = if abruptly { at.saturating_add(LIMBO_NS) } else { at };
            self.tell(Window::new(lost.from, until.max(lost.from)), lost.reason, around);
        }
        if self.phase == Phase::Starting {
            return;
        }
        self.lose_unanswered(around);
        let session = self.id;
        if abruptly {
            around.out.push(Record::ServerGone { session, at });
        }
        around.out.push(Record::SessionEnd { session, at });
    }

    fn lose_unanswered(&mut self, around: &mut Around) {
        for index in 0..self.queue.len() {
            let (text, parameters, protocol, sent) = match &self.queue[index] {
                Request::Query { text, sent } => (text.clone(), Vec::new(), Protocol::Simple, *sent),
                Request::Execute { portal, sent } => {
                    let protocol = self.protocol_ahead(index, portal);
                    let parameters = self.parameters_ahead(index, portal);
                    (self.text_ahead(index, portal), parameters, protocol, *sent)
                }
                Request::Function { oid, arguments, sent } => (
                    Some(function_text(*oid)),
                    arguments.clone(),
                    Protocol::Function,
                    *sent,
                ),
                Request::Sync { sent } => {
                    self.finish(Status::Unknown, Window::new(*sent, Nanos::MAX), around);
                    continue;
                }
                _ => continue,
            };
            let sent = self.early.take().map_or(sent, |early| early.min(sent));
            self.observe(
                text,
                protocol,
                parameters,
                Window::new(sent, Nanos::MAX),
                Outcome::Lost,
            );
            if self.queue[index].ends_group() {
                self.finish(Status::Unknown, Window::new(sent, Nanos::MAX), around);
            }
        }
        // The end of the last group was never written: nothing could commit it.
        self.finish(Status::Unknown, Window::new(Nanos::MAX, Nanos::MAX), around);
        self.queue.clear();
    }

    /// Whether the Execute at `index` begins or continues its portal.
    pub(super) fn protocol_ahead(&self, index: usize, portal: &[u8]) -> Protocol {
        let binds = |r: &Request| matches!(r, Request::Bind { portal: p, .. } if p[..] == *portal);
        let bound_ahead = self.queue.iter().take(index).any(binds);
        let fetched = self.portals.get(portal).is_some_and(|p| p.fetched);
        if fetched && !bound_ahead {
            Protocol::Continued
        } else {
            Protocol::Extended
        }
    }

    pub(super) fn parameters_ahead(&self, index: usize, portal: &[u8]) -> Vec<Parameter> {
        let bound = self.queue.iter().take(index).rev().find_map(|r| match r {
            Request::Bind {
                portal: p,
                parameters,
                ..
            } if p[..] == *portal => Some(parameters.clone()),
            _ => None,
        });
        bound
            .or_else(|| self.portals.get(portal).map(|p| p.parameters.clone()))
            .unwrap_or_default()
    }
}

pub(super) fn function_text(oid: u32) -> Arc<str> {
    format!("FUNCTION CALL {oid}").into()
}

impl Lost {
    fn see(&mut self, bytes: &[u8], at: Nanos) {
        let kept = self.tail.len().saturating_sub(bytes.len());
        let seen = self.tail.len() - kept;
        self.tail.rotate_left(seen);
        self.tail[kept..].copy_from_slice(&bytes[bytes.len() - seen..]);
        self.quiet_since = Some(at);
    }

    fn is_aligned(&self, now: Nanos, pipelines: bool) -> bool {
        self.tail == READY_IDLE
            && self
                .quiet_since
                .is_some_and(|since| !pipelines || now.saturating_sub(since) >= QUIET)
    }
}

fn begins_message(bytes: &[u8]) -> bool {
    let known = b"QPBDECSHFX".contains(&bytes[0]);
    known
        && bytes.first_chunk::<5>().is_none_or(|head| {
            let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            (4..1 << 30).contains(&length)
        })
}
