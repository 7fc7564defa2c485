//! Statements → transactions with their lifetimes and fates.
//!
//! In: records in the order of the trace. Out: ended [`Transaction`]s, in the order in which their ends
//! became known.
//!
//! Always true:
//!   - a transaction leaves only when its fate is known, or known never to be known;
//!   - its statements are in the order of the session;
//!   - the commit point lies in `end.window()`; for an implicit transaction that is from the moment its
//!     first statement was sent until ReadyForQuery, for COMMIT from the moment COMMIT was sent.

use crate::control::{Classifier, Control, Modes};
use crate::state::catalog::RoleSettings;
use crate::trace::{
    CatalogPart, Gap, NOBODY, Nanos, Observation, Outcome, Record, SessionFacts, SessionId, Status, Window,
    lex,
};
use crate::verdict::TxnId;
use pgassay_rules::Level;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Committed(Window),
    Aborted(Window),
    /// The connection was lost: it may have committed at any time from `sent` on, or not at all.
    Unknown(Window),
}

impl End {
    pub fn window(self) -> Window {
        match self {
            End::Committed(w) | End::Aborted(w) | End::Unknown(w) => w,
        }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub struct Step {
    pub control: Control,
    pub seen: Arc<Observation>,
}

impl Step {
    /// Whether it may commit on its way what was done before it, or take that back: a routine outside of a block.
    pub fn may_end_transaction(&self) -> bool {
        self.seen.before == Status::Idle && lex::calls_routine(&self.seen.text)
    }
}

/// A transaction whose fate is known.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub id: TxnId,
    /// The level on the wire.
    pub level: Level,
    pub read_only: bool,
    /// Its begin, or what decides about its level, was not seen: nobody can tell what it should have seen.
    pub vague: bool,
    /// Its begin was not seen: nobody can tell what it did.
    pub torn: bool,
    /// It reads a snapshot that somebody else has taken, at a time that nobody knows.
    pub borrows: bool,
    /// Begun by BEGIN; otherwise a single statement or one request group.
    pub explicit: bool,
    pub facts: Arc<SessionFacts>,
    pub steps: Vec<Step>,
    pub end: End,
}

impl Transaction {
    /// Whether its end was asked for only after everything else had been answered, so that others can tell that
    /// it holds its locks for a while.
    pub fn is_spread(&self) -> bool {
        let asked = self.end.window().sent;
        let data = self.steps.iter().filter(|s| s.control == Control::Data);
        self.explicit && data.map(|s| s.seen.window.done).all(|done| done <= asked)
    }

    pub fn sent(&self) -> Nanos {
        self.steps
            .first()
            .map_or(self.end.window().sent, |s| s.seen.window.sent)
    }
}

/// What leaves this stage.
#[derive(Debug)]
pub enum Assembled {
    Ended(Arc<Transaction>),
    /// Its session has left it to whoever ends it, and goes on.
    Prepared(Arc<Transaction>),
    /// Something was not seen; what it may have written is unknown.
    Gap(Gap),
}

/// The transaction that a session is in.
#[derive(Clone)]
struct Open {
    steps: Vec<Step>,
    modes: Modes,
    explicit: bool,
    group: u64,
    ready: Window,
    failed: bool,
    /// It began before it was seen.
    torn: bool,
    borrows: bool,
    /// Since when its connection is lost; what was sent behind is still to come.
    lost: Option<Nanos>,
    /// What the session said of its transactions when this one began, and at its savepoints.
    began: Said,
    savepoints: Vec<(String, Said)>,
}

/// What a session has said of the transactions to come.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Said {
    modes: Modes,
    /// Part of it was not seen: what it has set since is not known.
    vague: bool,
}

/// Nothing of it was heard.
const UNHEARD: Said = Said {
    modes: Modes {
        level: None,
        read_only: None,
        deferrable: None,
    },
    vague: true,
};

#[derive(Clone)]
struct Session {
    facts: Arc<SessionFacts>,
    said: Said,
    initial: Said,
    /// Of the last record that was seen.
    seq: Option<u64>,
    number: u64,
    open: Option<Open>,
}

/// A transaction that its session has left to whoever ends it.
#[derive(Clone)]
struct Prepared {
    txn: Transaction,
}

impl Prepared {
    /// Nobody saw how it ended, or whether it did.
    fn abandon(self, out: &mut Vec<Assembled>) {
        let window = Window::new(self.txn.end.window().sent, Nanos::MAX);
        self.end(End::Unknown(window), out);
    }

    fn end(mut self, end: End, out: &mut Vec<Assembled>) {
        if self.txn.torn {
            tear(self.txn.id.session, &end, out);
        }
        self.txn.end = end;
        out.push(Assembled::Ended(Arc::new(self.txn)));
    }
}

impl Open {
    /// The modes of this transaction, as far as they were said; COMMIT AND CHAIN hands them on.
    fn chained(&self) -> Modes {
        let mut modes = Modes::default();
        if !self.began.vague {
            modes = self.began.modes;
        }
        modes.read_only = self.began.modes.read_only;
        merge(&mut modes, self.modes);
        modes
    }

    fn level(&self, server_default: Option<Level>) -> Level {
        let said = self.chained().level;
        said.or(server_default.filter(|_| !self.began.vague))
            .unwrap_or(Level::ReadCommitted)
    }
}

impl Session {
    /// The transaction that it is in, or will be in next.
    fn current(&self) -> TxnId {
        TxnId {
            session: self.facts.session,
            number: self.number,
        }
    }
}

/// A transaction that has not ended yet, or not had its turn, with what it has been answered so far.
pub struct UnderWay<'a> {
    pub id: TxnId,
    pub level: Level,
    pub facts: &'a Arc<SessionFacts>,
    pub steps: &'a [Step],
}

/// Groups the statements of every session into transactions.
#[derive(Clone, Default)]
pub struct Assembler {
    classifier: Classifier,
    sessions: FxHashMap<SessionId, Session>,
    /// Prepared transactions by global identifier: their statements are over, their end is not known.
    prepared: FxHashMap<String, Prepared>,
    /// `default_transaction_isolation` of the server.
    server_default: Option<Level>,
    roles: RoleSettings,
    /// The sessions that ended last: from when to when they were there.
    over: VecDeque<(SessionId, Window)>,
    /// When the last of those before them has ended.
    ended: Nanos,
}

/// Sessions that have ended and are remembered one by one.
const OVER_MAX: usize = 64;

impl Assembler {
    /// What sessions begin with from now on, if they say nothing themselves.
    pub fn expect_settings(&mut self, server: &[(String, String)], catalog: &[CatalogPart]) {
        let level = server
            .iter()
            .find(|(name, _)| name == "default_transaction_isolation");
        self.server_default = level
            .and_then(|(_, level)| level.parse().ok())
            .or(self.server_default);
        self.roles = RoleSettings::from_answers(catalog);
    }

    /// What a session says of its transactions when it begins.
    fn startup(&self, facts: &SessionFacts) -> Said {
        let mut modes = startup_modes(self.roles.of(&facts.user).chain(&facts.parameters));
        let is_of_another = self
            .roles
            .are_of_another(&facts.user, "default_transaction_isolation");
        let vague = modes.level.is_none() && is_of_another;
        if !is_of_another {
            // Later it may be another one, for those who come then.
            modes.level = modes.level.or(self.server_default);
        }
        Said { modes, vague }
    }

    pub fn take(&mut self, record: Record, out: &mut Vec<Assembled>) {
        match record {
            Record::SessionStart(facts) => {
                let initial = self.startup(&facts);
                let id = facts.session;
                let session = Session {
                    facts: Arc::new(facts),
                    said: initial,
                    initial,
                    seq: None,
                    number: 0,
                    open: None,
                };
                self.sessions.insert(id, session);
            }
            Record::Statement(seen) => self.statement(Arc::from(seen), out),
            Record::SessionEnd { session, at } => {
                self.lose(session, at, out);
                let gone = self.sessions.remove(&session);
                let since = gone.map_or(0, |gone| if gone.said.vague { 0 } else { gone.facts.at });
                self.over.push_back((session, Window::new(since, at)));
                if self.over.len() > OVER_MAX
                    && let Some((_, oldest)) = self.over.pop_front()
                {
                    self.ended = self.ended.max(oldest.done);
                }
            }
            Record::Gap(gap) => {
                match gap.session {
                    Some(session) => self.blur(session, gap.window.done, out),
                    None => {
                        let mut all: Vec<SessionId> = self.sessions.keys().copied().collect();
                        all.sort();
                        for session in all {
                            self.blur(session, gap.window.done, out);
                        }
                    }
                }
                out.push(Assembled::Gap(gap));
            }
            Record::Mark { at } => self.close_groups(at, out),
            Record::Bootstrap(_)
            | Record::Reread(_)
            | Record::Catalog(_)
            | Record::Writers { .. }
            | Record::ServerGone { .. }
            | Record::CommitTimestamp { .. } => {}
        }
    }

    /// When the oldest transaction that is still open took, or may have taken, its first snapshot.
    pub fn oldest_open(&self) -> Option<Nanos> {
        let open = self.sessions.values().filter_map(|s| s.open.as_ref());
        let open = open.map(|o| o.steps.first().map_or(o.ready.sent, |s| s.seen.window.sent));
        open.chain(self.prepared.values().map(|p| p.txn.sent())).min()
    }

    /// Transactions under way that began before `at`, those that are prepared among them.
    pub fn open_before(&self, at: Nanos) -> Vec<TxnId> {
        let began = |session: &Session| {
            let first = session.open.as_ref().and_then(|o| o.steps.first());
            first.is_some_and(|step| step.seen.window.sent < at)
        };
        let open = self.sessions.values().filter(|s| began(s)).map(Session::current);
        let prepared = self.prepared.values().filter(|p| p.txn.sent() < at);
        let mut ids: Vec<TxnId> = open.chain(prepared.map(|p| p.txn.id)).collect();
        ids.sort();
        ids
    }

    /// Transactions under way of which it is known at which level they run.
    pub fn under_way(&self) -> Vec<UnderWay<'_>> {
        let open = self.sessions.values().filter_map(|session| {
            let open = session.open.as_ref().filter(|open| !open.torn && !open.borrows)?;
            let level = open.level(self.server_default);
            let is_known = !open.began.vague || open.modes.level.is_some();
            is_known.then_some(UnderWay {
                id: session.current(),
                level,
                facts: &session.facts,
                steps: &open.steps,
            })
        });
        let mut open: Vec<UnderWay<'_>> = open.collect();
        open.sort_by_key(|open| open.id);
        open
    }

    /// Whether no other session was there at any time from `sent` to `done`, nor anything prepared: whoever is there
    /// may have sent something that will only be recorded with its end.
    pub fn is_alone(&self, session: SessionId, sent: Nanos, done: Nanos) -> bool {
        let mut others = self.sessions.iter().filter(|(id, _)| **id != session);
        // Its own end is recorded by the time its last transaction is judged.
        let mut over = self.over.iter().filter(|(id, _)| *id != session);
        self.prepared.is_empty()
            && self.ended < sent
            && over.all(|(_, was)| was.done < sent || was.sent > done)
            && others.all(|(_, other)| other.facts.at > done)
    }

    /// Whether somebody is connected.
    pub fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }

    pub fn open_len(&self) -> usize {
        self.sessions.values().filter(|s| s.open.is_some()).count()
    }

    /// No more records will come: what is open is never learned.
    pub fn finish(&mut self, out: &mut Vec<Assembled>) {
        self.close_groups(Nanos::MAX, out);
        let mut all: Vec<SessionId> = self.sessions.keys().copied().collect();
        all.sort();
        for session in all {
            self.lose(session, Nanos::MAX, out);
        }
        let mut left: Vec<Prepared> = self.prepared.drain().map(|(_, prepared)| prepared).collect();
        left.sort_by_key(|prepared| prepared.txn.id);
        left.into_iter().for_each(|prepared| prepared.abandon(out));
    }

    fn statement(&mut self, seen: Arc<Observation>, out: &mut Vec<Assembled>) {
        let control = self.classifier.classify(&seen.text, seen.part);
        let id = seen.session;
        let last = self.sessions.get(&id).and_then(|s| s.seq);
        if last.is_some_and(|last| seen.seq > last + 1) {
            self.lose_track(id, seen.window.sent, out);
        }
        let session = self.sessions.entry(id).or_insert_with(|| Session {
            facts: Arc::new(unseen_session(&seen)),
            said: UNHEARD,
            initial: UNHEARD,
            seq: None,
            number: 0,
            open: None,
        });
        session.seq = Some(seen.seq);

        // An implicit transaction ends with its request group.
        if session
            .open
            .as_ref()
            .is_some_and(|o| !o.explicit && o.group != seen.group)
        {
            close_implicit(session, self.server_default, out);
        }
        let ok = matches!(seen.outcome, Outcome::Answer(_));
        let lost = matches!(seen.outcome, Outcome::Lost);

        match &control {
            Control::CommitPrepared(gid) | Control::RollbackPrepared(gid) if ok || lost => {
                let window = Window::new(seen.window.sent, seen.ready.done);
                if let Some(prepared) = self.prepared.remove(gid) {
                    let end = match (&control, lost) {
                        (_, true) => End::Unknown(Window::new(window.sent, Nanos::MAX)),
                        (Control::CommitPrepared(_), _) => End::Committed(window),
                        _ => End::Aborted(window),
                    };
                    prepared.end(end, out);
                } else if matches!(control, Control::CommitPrepared(_)) {
                    // It was prepared before anybody looked.
                    out.push(Assembled::Gap(Gap {
                        session: Some(NOBODY),
                        window,
                        reason: "transaction was prepared unseen".to_owned(),
                    }));
                }
                return;
            }
            _ => {}
        }

        let group = seen.group;
        let open = session.open.get_or_insert_with(|| Open {
            steps: Vec::new(),
            modes: Modes::default(),
            explicit: seen.before == Status::InBlock || seen.before == Status::Failed,
            group,
            ready: seen.ready,
            failed: false,
            torn: seen.before == Status::InBlock,
            borrows: false,
            lost: None,
            began: session.said,
            savepoints: Vec::new(),
        });
        open.ready = Window::new(open.ready.sent.min(seen.ready.sent), seen.ready.done);
        if open.explicit {
            open.ready = seen.ready;
        }
        let failed_statement = matches!(seen.outcome, Outcome::Error(_));
        open.steps.push(Step {
            control: control.clone(),
            seen: seen.clone(),
        });

        if ok {
            let mut may_set = || self.classifier.may_set_level(&seen.text);
            let said = &mut session.said;
            match &control {
                Control::Data if may_set() => said.vague = true,
                Control::SetDefault(modes) => {
                    merge(&mut said.modes, *modes);
                    said.vague &= modes.level.is_none();
                }
                Control::ResetDefault | Control::ResetAll | Control::DiscardAll => *said = session.initial,
                Control::TakeSnapshot => open.borrows = true,
                Control::Savepoint(name) => open.savepoints.push((name.clone(), *said)),
                Control::RollbackTo(name) => {
                    match open.savepoints.iter().rposition(|(n, _)| n == name) {
                        Some(at) => {
                            open.savepoints.truncate(at + 1);
                            *said = open.savepoints[at].1;
                        }
                        // It was set unseen, before or after what was said since.
                        None => said.vague |= *said != open.began,
                    }
                }
                _ => {}
            }
        }

        match control {
            Control::Begin(modes) if ok => {
                open.explicit = true;
                merge(&mut open.modes, modes);
            }
            Control::SetTransaction(modes) if ok => merge(&mut open.modes, modes),
            Control::Commit { chain } if ok || lost => {
                let window = Window::new(seen.window.sent, seen.ready.done);
                let rolled_back = tag_of(&seen.outcome) == Some("ROLLBACK");
                let end = match (lost, rolled_back) {
                    (true, _) => End::Unknown(Window::new(window.sent, Nanos::MAX)),
                    (_, true) => End::Aborted(window),
                    _ => End::Committed(window),
                };
                let modes = open.chained();
                close(session, end, self.server_default, out);
                reopen(session, chain && !lost, modes, &seen);
            }
            Control::Rollback { chain } if ok || lost => {
                let modes = open.chained();
                close(
                    session,
                    End::Aborted(Window::new(seen.window.sent, seen.ready.done)),
                    self.server_default,
                    out,
                );
                reopen(session, chain && !lost, modes, &seen);
            }
            // In a pipeline it commits at once, whatever comes behind.
            Control::DiscardAll if ok && !open.explicit => close_implicit(session, self.server_default, out),
            Control::PrepareTransaction(gid) if ok => {
                let window = Window::new(seen.window.sent, seen.ready.done);
                let said = session.said;
                let prepared =
                    take_open(session, End::Unknown(window), self.server_default).and_then(|txn| {
                        out.push(Assembled::Prepared(Arc::new(txn.clone())));
                        self.prepared.insert(gid, Prepared { txn })
                    });
                // What is prepared is as good as committed for its session.
                session.said = said;
                // The name is free again: somebody has ended it unseen.
                if let Some(ended) = prepared {
                    ended.abandon(out);
                }
            }
            // Unless a COMMIT was sent behind it, losing the connection rolls it back.
            _ if lost && open.explicit => drop(open.lost.get_or_insert(seen.window.sent)),
            _ if lost => {
                let end = End::Unknown(Window::new(seen.window.sent, Nanos::MAX));
                close(session, end, self.server_default, out);
            }
            _ => {
                open.failed |= failed_statement;
                // COMMIT of a failed block, or an error in COMMIT itself (deferred constraint, 40001).
                let ended_block =
                    open.explicit && seen.after == Status::Idle && failed_statement && seen.ready.done > 0;
                if ended_block {
                    close(
                        session,
                        End::Aborted(Window::new(seen.window.sent, seen.ready.done)),
                        self.server_default,
                        out,
                    );
                }
            }
        }
    }

    /// Implicit transactions whose group was sent before `at`: a group is recorded as a whole when it has ended, and
    /// whoever ended before `at` may have met it, even if its own end came later.
    fn close_groups(&mut self, at: Nanos, out: &mut Vec<Assembled>) {
        let is_due = |open: &Open| {
            let sent = open.steps.first().map_or(open.ready.sent, |s| s.seen.window.sent);
            !open.explicit && sent < at
        };
        let mut due: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.open.as_ref().is_some_and(is_due))
            .map(|(id, _)| *id)
            .collect();
        due.sort();
        for id in due {
            let session = self.sessions.get_mut(&id).expect("listed above");
            close_implicit(session, self.server_default, out);
        }
    }

    /// Part of the session was not seen.
    fn blur(&mut self, id: SessionId, at: Nanos, out: &mut Vec<Assembled>) {
        self.lose_track(id, at, out);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.said.vague = true;
        }
    }

    /// Something of the session was not seen: how what was open ended, at the latest at `at`, is not known.
    fn lose_track(&mut self, id: SessionId, at: Nanos, out: &mut Vec<Assembled>) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let last = session.open.as_ref().and_then(|open| open.steps.last());
        let from = last.map_or(at, |step| step.seen.window.sent.min(at));
        close(
            session,
            End::Unknown(Window::new(from, at)),
            self.server_default,
            out,
        );
    }

    /// The session ended.
    fn lose(&mut self, id: SessionId, at: Nanos, out: &mut Vec<Assembled>) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let Some(open) = &session.open else { return };
        if open.explicit {
            let window = open
                .lost
                .map_or(Window::new(at, at), |lost| Window::new(lost, Nanos::MAX));
            close(session, End::Aborted(window), self.server_default, out);
        } else {
            close_implicit(session, self.server_default, out);
        }
    }
}

fn startup_modes<'s>(said: impl Iterator<Item = &'s (String, String)>) -> Modes {
    let mut modes = Modes::default();
    for (name, value) in said {
        match name.as_str() {
            "default_transaction_isolation" => modes.level = value.parse().ok(),
            "default_transaction_read_only" => modes.read_only = Some(value == "on"),
            "options" => {
                // `-c name=value` and `--name=value`, backslash-escaped blanks.
                let plain = value.replace("\\ ", "\u{1}");
                for word in plain.split_whitespace() {
                    let word = word
                        .trim_start_matches("-c")
                        .trim_start_matches("--")
                        .replace('\u{1}', " ");
                    if let Some((name, value)) = word.split_once('=')
                        && name.replace('-', "_") == "default_transaction_isolation"
                    {
                        modes.level = value.parse().ok();
                    }
                }
            }
            _ => {}
        }
    }
    modes
}

fn unseen_session(seen: &Observation) -> SessionFacts {
    SessionFacts {
        session: seen.session,
        at: seen.window.sent,
        user: String::new(),
        database: String::new(),
        server_version: String::new(),
        parameters: Vec::new(),
    }
}

fn merge(into: &mut Modes, said: Modes) {
    into.level = said.level.or(into.level);
    into.read_only = said.read_only.or(into.read_only);
    into.deferrable = said.deferrable.or(into.deferrable);
}

fn tag_of(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Answer(answer) => answer.tag.as_deref(),
        _ => None,
    }
}

/// COMMIT AND CHAIN begins the next transaction with the same modes at once.
fn reopen(session: &mut Session, chain: bool, modes: Modes, seen: &Observation) {
    if chain {
        session.open = Some(Open {
            steps: Vec::new(),
            modes,
            explicit: true,
            group: seen.group,
            ready: seen.ready,
            failed: false,
            torn: false,
            borrows: false,
            lost: None,
            began: session.said,
            savepoints: Vec::new(),
        });
    }
}

fn close_implicit(session: &mut Session, server_default: Option<Level>, out: &mut Vec<Assembled>) {
    let Some(open) = &session.open else { return };
    let sent = open.steps.first().map_or(open.ready.sent, |s| s.seen.window.sent);
    let window = Window::new(sent, open.ready.done);
    let lost = open.steps.iter().any(|s| matches!(s.seen.outcome, Outcome::Lost));
    let end = match (open.failed, lost) {
        (true, _) => End::Aborted(window),
        (_, true) => End::Unknown(Window::new(sent, Nanos::MAX)),
        _ => End::Committed(window),
    };
    close(session, end, server_default, out);
}

fn close(session: &mut Session, end: End, server_default: Option<Level>, out: &mut Vec<Assembled>) {
    let torn = session.open.as_ref().is_some_and(|o| o.torn);
    if torn {
        tear(session.facts.session, &end, out);
    }
    if let Some(txn) = take_open(session, end, server_default) {
        out.push(Assembled::Ended(Arc::new(txn)));
    }
}

/// What a transaction wrote before it was seen takes effect with its end.
fn tear(session: SessionId, end: &End, out: &mut Vec<Assembled>) {
    if !matches!(end, End::Aborted(_)) {
        out.push(Assembled::Gap(Gap {
            session: Some(session),
            window: end.window(),
            reason: "transaction began unseen".to_owned(),
        }));
    }
}

fn take_open(session: &mut Session, end: End, server_default: Option<Level>) -> Option<Transaction> {
    let open = session.open.take()?;
    let id = session.current();
    session.number += 1;
    let data = open.steps.iter().filter(|s| s.control == Control::Data);
    // A single statement that succeeds does the same at every level.
    let alone =
        data.clone().count() <= 1 && data.clone().all(|s| matches!(s.seen.outcome, Outcome::Answer(_)));
    let began = open.began;
    let vague = open.torn || (began.vague && open.modes.level.is_none() && !alone);
    let level = open.level(server_default);
    let read_only = open.chained().read_only.unwrap_or(false);
    let parted = session.said != began && open.steps.iter().any(Step::may_end_transaction);
    // What it has set is undone with it.
    match end {
        End::Committed(_) => {}
        End::Aborted(_) => session.said = began,
        End::Unknown(_) => session.said.vague |= session.said != began,
    }
    session.said.vague |= parted;
    Some(Transaction {
        id,
        level,
        read_only,
        vague,
        torn: open.torn,
        borrows: open.borrows,
        explicit: open.explicit,
        facts: session.facts.clone(),
        steps: open.steps,
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Answer, Protocol};

    fn statement(text: &str, sent: Nanos, done: Nanos) -> Record {
        Record::Statement(Box::new(Observation {
            session: SessionId(1),
            seq: 0,
            text: text.into(),
            part: 0,
            protocol: Protocol::Extended,
            parameters: Vec::new(),
            window: Window::new(sent, done),
            outcome: Outcome::Answer(Answer::default()),
            before: Status::Idle,
            after: Status::Idle,
            group: 1,
            ready: Window::new(sent, done),
        }))
    }

    fn session(number: u64, at: Nanos) -> Record {
        let Record::Statement(seen) = statement("", at, at) else {
            unreachable!()
        };
        let session = SessionId(number);
        Record::SessionStart(SessionFacts {
            session,
            ..unseen_session(&seen)
        })
    }

    #[test]
    fn a_block_whose_end_was_not_seen_may_have_been_committed() {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        assembler.take(session(1, 0), &mut out);
        let say = |assembler: &mut Assembler, text: &str, seq: u64, group: u64, out: &mut Vec<Assembled>| {
            let at = 10 * seq + 10;
            let Record::Statement(mut seen) = statement(text, at, at + 5) else {
                unreachable!()
            };
            (seen.seq, seen.group) = (seq, group);
            assembler.take(Record::Statement(seen), out);
        };
        say(&mut assembler, "begin", 0, 1, &mut out);
        say(&mut assembler, "update t set a = 1", 1, 2, &mut out);
        say(&mut assembler, "select 1", 3, 4, &mut out);
        assert!(matches!(&out[..], [Assembled::Ended(txn)] if matches!(txn.end, End::Unknown(_))));
        out.clear();
        say(&mut assembler, "select 2", 4, 5, &mut out);
        assert!(matches!(&out[..], [Assembled::Ended(txn)] if matches!(txn.end, End::Committed(_))));
    }

    #[test]
    fn a_commit_that_was_sent_behind_what_is_lost_may_have_been_done() {
        let ended = |last: Option<&str>| {
            let mut assembler = Assembler::default();
            let mut out = Vec::new();
            assembler.take(session(1, 0), &mut out);
            let told = ["begin", "update t set a = 1", "update t set a = 2"]
                .into_iter()
                .chain(last);
            for (seq, text) in told.enumerate() {
                let at = 10 * seq as u64 + 10;
                let Record::Statement(mut seen) = statement(text, at, at + 5) else {
                    unreachable!()
                };
                seen.seq = seq as u64;
                if seq > 1 {
                    seen.outcome = Outcome::Lost;
                }
                assembler.take(Record::Statement(seen), &mut out);
            }
            let over = Record::SessionEnd {
                session: SessionId(1),
                at: 99,
            };
            assembler.take(over, &mut out);
            match &out[..] {
                [Assembled::Ended(txn)] => txn.end,
                other => panic!("{other:?}"),
            }
        };
        assert!(matches!(ended(Some("commit")), End::Unknown(window) if window.sent == 40));
        assert!(matches!(ended(None), End::Aborted(window) if window == Window::new(30, Nanos::MAX)));
    }

    #[test]
    fn prepared_transactions_are_under_way_until_somebody_ends_them() {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        let mut say = |assembler: &mut Assembler, text: &str, at: Nanos| {
            assembler.take(statement(text, at, at + 5), &mut out);
            out.drain(..)
                .filter(|told| matches!(told, Assembled::Ended(_)))
                .count()
        };
        assembler.take(session(1, 0), &mut Vec::new());
        for (text, at) in [("begin", 10), ("select 1", 20), ("prepare transaction 'p'", 30)] {
            assert_eq!(say(&mut assembler, text, at), 0, "{text}");
        }
        assembler.take(
            Record::SessionEnd {
                session: SessionId(1),
                at: 40,
            },
            &mut Vec::new(),
        );
        assert_eq!(assembler.oldest_open(), Some(10));
        assert_eq!(assembler.open_before(11).len(), 1);
        assert!(assembler.open_before(10).is_empty());
        let mut again = assembler.clone();
        assert_eq!(say(&mut again, "rollback prepared 'p'", 50), 1);
        assert!(again.open_before(40).is_empty());
        // Nobody ended it: what it did is said all the same.
        let mut out = Vec::new();
        assembler.finish(&mut out);
        assert!(matches!(&out[..], [Assembled::Ended(left)] if matches!(left.end, End::Unknown(_))));
    }

    #[test]
    fn the_end_of_a_session_does_not_make_it_two() {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        let end = |number: u64, at: Nanos| Record::SessionEnd {
            session: SessionId(number),
            at,
        };
        for record in [session(1, 10), end(1, 100), session(2, 110), end(2, 120)] {
            assembler.take(record, &mut out);
        }
        assert!(assembler.is_alone(SessionId(1), 20, 90), "the other came later");
        assert!(!assembler.is_alone(SessionId(1), 20, 115));
        assert!(!assembler.is_alone(SessionId(2), 90, 119));
        for number in 3..200 {
            assembler.take(session(number, 130), &mut out);
            assembler.take(end(number, 140), &mut out);
        }
        assert!(
            !assembler.is_alone(SessionId(1), 20, 90),
            "too many to remember them all"
        );
    }

    /// Somebody who ended at 90 may have seen what it wrote: it must be known when he is judged.
    #[test]
    fn a_group_that_was_sent_before_a_mark_is_known_with_it() {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        assembler.take(statement("insert into t values (1)", 50, 100), &mut out);
        assembler.take(statement("select 1", 50, 100), &mut out);
        assembler.take(Record::Mark { at: 40 }, &mut out);
        assert!(out.is_empty(), "more of it may come");
        assembler.take(Record::Mark { at: 95 }, &mut out);
        let [Assembled::Ended(txn)] = out.as_slice() else {
            panic!("{} were assembled", out.len())
        };
        assert_eq!(txn.steps.len(), 2);
        assert_eq!(txn.end, End::Committed(Window::new(50, 100)));
    }
}
