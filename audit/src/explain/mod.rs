//! Places every commit and snapshot point: is there an order that explains what was answered?
//!
//! In: transactions in the order of the audit. Out: findings, coverage, and the state after.
//!
//! A transaction is run on the state. Where the windows decide what it saw, one run settles it. Where
//! they leave it open, the run asks, and is repeated with other answers until one explains what was
//! observed. What no order of the known commits explains may still be explained by a commit that comes
//! later in the order of the audit: such a transaction waits for those, and only then goes to the solver.
//!
//! Always true:
//!   - a transaction is applied once, in the order of the audit, whether or not it could be explained;
//!   - what is recorded about the order of commits was part of an explanation.

pub mod session;
pub mod asked;
pub mod run;
pub mod apply;
pub mod rival;

use crate::assemble::{Assembler, End, Transaction};
use crate::certify;
use crate::interpret::{Difference, Touch};
use crate::points::choose::Decision;
use crate::points::{Chooser, CommitId, Order};
use crate::reference::Member;
use crate::sequence::{Key, Sequencer, key_of};
use crate::sql::Planner;
use crate::state::store::{Store, Table};
use crate::state::view::Knowledge;
use crate::state::{Catalog, RowId, TableId};
use crate::trace::{Bootstrap, Nanos, SessionId};
use crate::verdict::TxnId;
use pgassay_rules::Level;
use pgassay_rules::profile::LevelRules;
use rival::Rivalry;
use run::{Attempt, World, run};
use rustc_hash::FxHashMap;
use session::SessionState;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many other explanations are looked at before what was written counts as a guess.
const ALTERNATIVES_MAX: usize = 32;

/// How many sequences of choices are tried before a transaction goes to the solver, or is given up.
const ATTEMPTS_MAX: usize = 128;

/// A transaction that no order explains, before it is confirmed.
#[derive(Debug)]
pub struct Suspect {
    pub txn: Arc<Transaction>,
    pub level: Level,
    pub rules: LevelRules,
    pub step: usize,
    pub difference: Difference,
    /// Its own commit, if it wrote.
    pub commit: Option<CommitId>,
    pub session: SessionState,
}

/// What became of one transaction.
pub enum Fate {
    /// Explained; the attempt says how.
    Explained {
        attempt: Box<Attempt>,
        tier: &'static str,
        decisions: Vec<Decision>,
    },
    /// Waits for commits that may still explain it.
    Deferred,
    Suspect(Box<Suspect>, Box<Attempt>),
    /// More orders than there is time for.
    TooMany(Box<Attempt>),
}

struct Deferred {
    txn: Arc<Transaction>,
    commit: Option<CommitId>,
    session: SessionState,
    written: Vec<certify::Written>,
    /// Whether it waits for somebody who may explain it, or only to be named well.
    has_rivals: bool,
    /// Judged again when everything up to here was, …
    until: Key,
    /// … and these, which were under way, have ended.
    open: Vec<TxnId>,
}

/// What is known to come: transactions that have ended but are not judged, and those still under way.
pub struct Ahead<'a> {
    pub sequencer: &'a Sequencer,
    pub assembler: &'a Assembler,
}

impl Ahead<'_> {
    /// The last of the transactions not yet judged that began before `txn` ended, whose writes it may have
    /// seen, rightly or wrongly.
    fn last_rival(&self, txn: &Transaction) -> Option<Key> {
        let end = txn.end.window().done;
        self.sequencer
            .upcoming()
            .filter(|t| t.sent() < end)
            .map(|t| key_of(t))
            .max()
    }

    /// Whether one of them may rightly have been seen.
    fn has_rival(&self, txn: &Transaction) -> bool {
        let end = txn.end.window().done;
        self.sequencer
            .upcoming()
            .any(|t| !matches!(t.end, End::Aborted(_)) && t.end.window().sent < end)
    }

    fn open(&self, txn: &Transaction) -> Vec<TxnId> {
        self.assembler.open_before(txn.end.window().done)
    }
}

/// How long a suspicion waits for transactions that were under way at the time, on the trace's clock.
const WAIT_NS_MAX: Nanos = 5_000_000_000;

pub struct Explainer {
    pub store: Store,
    pub order: Order,
    pub planner: Planner,
    sessions: FxHashMap<SessionId, SessionState>,
    server: Vec<(String, String)>,
    deferred: Vec<Deferred>,
    aborted: VecDeque<Arc<Transaction>>,
}

/// Rolled back transactions that are remembered, to name what saw their writes.
const ABORTED_MAX: usize = 32;

impl Explainer {
    pub fn new() -> Explainer {
        Explainer {
            store: Store::new(Arc::new(Catalog::default())),
            order: Order::default(),
            planner: Planner::new(),
            sessions: FxHashMap::default(),
            server: Vec::new(),
            deferred: Vec::new(),
            aborted: VecDeque::new(),
        }
    }

    /// Takes over catalog and contents that were read on the side.
    pub fn bootstrap(&mut self, bootstrap: &Bootstrap) {
        let catalog = Arc::new(Catalog::load(bootstrap));
        self.server = bootstrap.settings.clone();
        self.store = Store::new(catalog.clone());
        self.sessions.clear();
        for table in catalog.tables() {
            let storage = catalog.storage(table.id);
            self.store
                .tables
                .entry(storage)
                .or_insert_with(|| Table::new(Knowledge::Complete));
        }
        for copy in &bootstrap.tables {
            apply::load_copy(&mut self.store, copy, &self.server);
        }
    }

    /// Nothing that was known can be relied on any more, nor what is seen before `until`.
    pub fn forget(&mut self, until: Nanos) {
        self.store.forget_everything();
        self.store.tables.values_mut().for_each(|t| t.unsettle(until));
    }

    pub fn session(&mut self, txn: &Transaction) -> SessionState {
        let (server, catalog) = (&self.server, &self.store.catalog);
        let facts = &txn.facts;
        self.sessions
            .entry(txn.id.session)
            .or_insert_with(|| SessionState::new(facts, server, catalog))
            .clone()
    }

    /// Nothing more will come of this session.
    pub fn end_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// The session as it is now, for a transaction that was judged before.
    pub fn session_of(&self, txn: &Transaction) -> SessionState {
        let fresh = || SessionState::new(&txn.facts, &self.server, &self.store.catalog);
        self.sessions.get(&txn.id.session).cloned().unwrap_or_else(fresh)
    }

    /// Keeps a rolled back transaction, to name what saw its writes.
    pub fn remember_aborted(&mut self, txn: &Arc<Transaction>) {
        // What was prepared outlives a rollback; nobody followed it here.
        let first_word = |text: &str, word: &str| {
            text.trim_start()
                .get(..word.len())
                .is_some_and(|w| w.eq_ignore_ascii_case(word))
        };
        let renames = |text: &str| first_word(text, "prepare") || first_word(text, "deallocate");
        if txn.steps.iter().any(|step| renames(&step.seen.text))
            && let Some(session) = self.sessions.get_mut(&txn.id.session)
        {
            session.change().prepared.clear();
        }
        self.aborted.push_back(txn.clone());
        if self.aborted.len() > ABORTED_MAX {
            self.aborted.pop_front();
        }
    }

    /// Rolled back transactions, latest first.
    pub fn recent_aborted(&self) -> impl Iterator<Item = &Arc<Transaction>> {
        self.aborted.iter().rev()
    }

    /// Transactions whose commits are still open, latest first.
    pub fn recent_committed(&self) -> impl Iterator<Item = &Arc<Transaction>> {
        self.order.iter().rev().take(ABORTED_MAX).map(|(_, c)| &c.txn)
    }

    /// What a wrong answer read is unknown until it is seen again.
    pub fn unlearn(&mut self, txn: &Transaction, reads: &[run::StepReads], step: usize) {
        let until = txn.end.window().done;
        for touch in reads.iter().filter(|r| r.step == step).flat_map(|r| &r.touches) {
            apply::unlearn(&mut self.store, touch, until);
        }
    }

    /// What a transaction wrote is a guess, since it is not known what it saw: it is unknown until it is seen.
    pub fn soften(&mut self, txn: &Transaction, attempt: &Attempt, commit: Option<CommitId>) {
        let until = txn.end.window().done;
        let mut written = attempt.may_have_written.clone();
        written.extend(attempt.overlay.tables.keys().copied());
        for touch in attempt
            .reads
            .iter()
            .filter(|r| attempt.wrote.contains(&r.step))
            .flat_map(|r| &r.touches)
        {
            match touch {
                Touch::Scan { table, .. } if written.contains(table) => self.store.forget(*table),
                Touch::Key { table, columns, key } if written.contains(table) => {
                    let guessed = attempt
                        .overlay
                        .table(*table)
                        .is_some_and(|own| !own.replaced.is_empty());
                    let kept = self.store.table_mut(*table);
                    kept.distrust(columns, key);
                    if !guessed {
                        for id in kept.candidates(columns, key) {
                            kept.unlearn(id, columns);
                        }
                    }
                }
                _ => {}
            }
        }
        for table in written {
            let kept = self.store.table_mut(table);
            kept.unsettle(until);
            kept.guess(txn.id);
        }
        if let Some(commit) = commit {
            self.soften_rows(commit, |_, _| true);
        }
    }

    /// The order in which the members of a story wrote the rows that they share is a guess.
    pub fn soften_shared(&mut self, members: &[Member]) {
        let commits: Vec<CommitId> = members.iter().filter_map(|m| m.commit).collect();
        let mut rows: FxHashMap<(TableId, RowId), usize> = FxHashMap::default();
        for row in commits
            .iter()
            .filter_map(|c| self.order.get(*c))
            .flat_map(|c| &c.rows)
        {
            *rows.entry(*row).or_default() += 1;
        }
        for commit in commits {
            self.soften_rows(commit, |table, id| rows.get(&(table, id)).is_some_and(|n| *n > 1));
        }
    }

    fn soften_rows(&mut self, commit: CommitId, which: impl Fn(TableId, RowId) -> bool) {
        let Some((rows, txn)) = self.order.get(commit).map(|c| (c.rows.clone(), c.txn.clone())) else {
            return;
        };
        let until = txn.end.window().done;
        let catalog = self.store.catalog.clone();
        for (table, id) in rows.into_iter().filter(|(table, id)| which(*table, *id)) {
            let Some(kept) = self.store.tables.get_mut(&table) else {
                continue;
            };
            kept.unsettle(until);
            kept.guess(txn.id);
            if let Some(deleted) = kept.soften(id, commit) {
                match catalog.table(table).and_then(|t| t.primary_key()) {
                    Some(key) => {
                        let values: Vec<_> = key
                            .columns
                            .iter()
                            .filter_map(|c| deleted.get(*c).cloned())
                            .collect();
                        kept.distrust(&key.columns, &values);
                    }
                    None => self.store.forget(table),
                }
            }
        }
    }

    /// Judges one transaction and applies what it wrote.
    pub fn judge(
        &mut self,
        txn: &Arc<Transaction>,
        rules: &LevelRules,
        ahead: &Ahead<'_>,
    ) -> (Fate, Option<CommitId>) {
        let session = self.session(txn);
        if matches!(txn.end, End::Aborted(_)) {
            self.remember_aborted(txn);
        }
        match self.search(txn, rules, &session, None) {
            Search::Found(mut attempt, chooser) => {
                let settled = self.is_settled(txn, rules, &session, &attempt, &chooser);
                attempt.written = certify::written(&attempt.overlay, &self.store);
                let commit = self.accept(txn, rules, &session, &attempt, Some(&chooser));
                if !settled {
                    self.soften(txn, &attempt, commit);
                }
                (
                    Fate::Explained {
                        attempt,
                        tier: "candidates",
                        decisions: chooser.decisions().to_vec(),
                    },
                    commit,
                )
            }
            Search::None(difference, step) => {
                let attempt = self.run_anyway(txn, rules, &session);
                let written = certify::written(&attempt.overlay, &self.store);
                let commit = self.accept(txn, rules, &session, &attempt, None);
                let (until, open) = (ahead.last_rival(txn), ahead.open(txn));
                if until.is_some() || !open.is_empty() {
                    let has_rivals = ahead.has_rival(txn);
                    if has_rivals {
                        self.soften(txn, &attempt, commit);
                    }
                    let until = until.unwrap_or(key_of(txn));
                    self.deferred.push(Deferred {
                        txn: txn.clone(),
                        commit,
                        session,
                        written,
                        has_rivals,
                        until,
                        open,
                    });
                    return (Fate::Deferred, commit);
                }
                let suspect = Suspect {
                    txn: txn.clone(),
                    level: txn.level,
                    rules: *rules,
                    step,
                    difference,
                    commit,
                    session,
                };
                (Fate::Suspect(Box::new(suspect), attempt), commit)
            }
            Search::GivenUp => {
                let attempt = self.run_anyway(txn, rules, &session);
                let commit = self.accept(txn, rules, &session, &attempt, None);
                self.soften(txn, &attempt, commit);
                (Fate::TooMany(attempt), commit)
            }
        }
    }

    /// Judges again what has waited for everything up to `judged`; everything that waits, if there is no more.
    pub fn retry(
        &mut self,
        judged: Option<&Transaction>,
        rules_of: impl Fn(&Transaction) -> LevelRules,
    ) -> Vec<(Arc<Transaction>, Option<CommitId>, Fate)> {
        if self.deferred.is_empty() {
            return Vec::new();
        }
        let (mut due, mut waiting) = (Vec::new(), Vec::new());
        for mut d in std::mem::take(&mut self.deferred) {
            let ready = judged.is_none_or(|judged| {
                d.open.retain(|id| *id != judged.id);
                let late = judged.end.window().sent > d.txn.end.window().done.saturating_add(WAIT_NS_MAX);
                d.until <= key_of(judged) && (d.open.is_empty() || late)
            });
            if ready { due.push(d) } else { waiting.push(d) }
        }
        self.deferred = waiting;
        let mut fates = Vec::new();
        for Deferred {
            txn,
            mut commit,
            session,
            written,
            ..
        } in due
        {
            let rules = rules_of(&txn);
            let fate = match self.search(&txn, &rules, &session, commit) {
                // What it wrote could not be told before: a key was still taken, a row not yet there.
                Search::Found(mut attempt, chooser) if commit.is_none() && !attempt.overlay.is_empty() => {
                    attempt.written = certify::written(&attempt.overlay, &self.store);
                    commit = self.accept(&txn, &rules, &session, &attempt, Some(&chooser));
                    self.soften(&txn, &attempt, commit);
                    Fate::Explained {
                        attempt,
                        tier: "solver",
                        decisions: chooser.decisions().to_vec(),
                    }
                }
                Search::Found(mut attempt, chooser) => {
                    attempt.written = written;
                    let witness = witness(&txn, &rules, &session, commit);
                    self.record(&attempt, &chooser, witness);
                    self.forget_unwritten(&attempt, commit);
                    Fate::Explained {
                        attempt,
                        tier: "solver",
                        decisions: chooser.decisions().to_vec(),
                    }
                }
                Search::None(difference, step) => {
                    let attempt = self.run_anyway(&txn, &rules, &session);
                    let suspect = Suspect {
                        txn: txn.clone(),
                        level: txn.level,
                        rules,
                        step,
                        difference,
                        commit,
                        session,
                    };
                    Fate::Suspect(Box::new(suspect), attempt)
                }
                Search::GivenUp => Fate::TooMany(self.run_anyway(&txn, &rules, &session)),
            };
            fates.push((txn, commit, fate));
        }
        fates
    }

    /// What was applied before the explanation was known may be less than what it wrote: then nobody knows.
    fn forget_unwritten(&mut self, attempt: &Attempt, commit: Option<CommitId>) {
        let Some(applied) = commit.and_then(|c| self.order.get(c)).map(|c| &c.rows) else {
            return;
        };
        let tables = attempt
            .overlay
            .tables
            .iter()
            .filter(|(_, own)| !own.truncated && own.havoc.is_none());
        let fewer: Vec<_> = tables
            .filter(|(table, own)| {
                let told = applied.iter().filter(|(t, _)| t == *table).count();
                told < own.replaced.len() + own.inserted.len()
            })
            .map(|(table, _)| *table)
            .collect();
        fewer.into_iter().for_each(|table| self.store.forget(table));
    }

    /// Whether some order explains `txn` at another level than its own; nothing is applied.
    pub fn doubt(
        &self,
        txn: &Arc<Transaction>,
        level: Level,
        rules: &LevelRules,
        session: SessionState,
        commit: Option<CommitId>,
    ) -> Option<Suspect> {
        match self.search(txn, rules, &session, commit) {
            Search::None(difference, step) => Some(Suspect {
                txn: txn.clone(),
                level,
                rules: *rules,
                step,
                difference,
                commit,
                session,
            }),
            Search::Found(..) | Search::GivenUp => None,
        }
    }

    /// Whether a step read where something of somebody else had to be guessed.
    pub fn is_guessed(&self, txn: &Transaction, attempt: &Attempt, step: usize) -> bool {
        let touches = attempt
            .reads
            .iter()
            .filter(|r| r.step <= step)
            .flat_map(|r| &r.touches);
        let read = touches.map(|t| match t {
            Touch::Key { table, .. } | Touch::Scan { table, .. } => *table,
        });
        let written = attempt.may_have_written.iter().copied();
        read.chain(written).any(|t| {
            self.store
                .tables
                .get(&t)
                .is_some_and(|t| t.is_guessed_but_for(txn.id))
        })
    }

    /// Whether the transaction waits for others to be judged.
    pub fn is_waiting(&self, txn: &Transaction) -> bool {
        self.deferred.iter().any(|d| d.has_rivals && d.txn.id == txn.id)
    }

    /// When the oldest transaction that still waits took its first snapshot.
    pub fn oldest_deferred(&self) -> Option<Nanos> {
        self.deferred.iter().map(|d| d.txn.sent()).min()
    }

    /// Forgets what no snapshot from `horizon` on can ask for.
    pub fn collect(&mut self, horizon: Nanos) {
        let mut settled = Vec::new();
        self.order.settle(horizon, |_, commit| settled.push(commit.rows));
        let below = self.order.settled();
        for (table, id) in settled.into_iter().flatten() {
            self.store.prune(table, id, below);
        }
    }

    /// Whether every other sequence of choices that explains the transaction has it write the same.
    fn is_settled(
        &self,
        txn: &Transaction,
        rules: &LevelRules,
        session: &SessionState,
        attempt: &Attempt,
        chooser: &Chooser,
    ) -> bool {
        if !chooser.has_chosen() || attempt.overlay.is_empty() {
            return true;
        }
        let world = World {
            store: &self.store,
            order: &self.order,
            planner: &self.planner,
            hidden: None,
        };
        let chooser = RefCell::new(chooser.clone());
        for _ in 0..ALTERNATIVES_MAX {
            if !chooser.borrow_mut().next() {
                return true;
            }
            let other = run(txn, rules, &world, session, &chooser, false);
            let explains = other.wrong.is_none() && !chooser.borrow().is_contradiction();
            if explains && !other.overlay.writes_same(&attempt.overlay) {
                return false;
            }
        }
        false
    }

    /// Tries one sequence of choices after the other.
    fn search(
        &self,
        txn: &Transaction,
        rules: &LevelRules,
        session: &SessionState,
        hidden: Option<CommitId>,
    ) -> Search {
        let world = World {
            store: &self.store,
            order: &self.order,
            planner: &self.planner,
            hidden,
        };
        let chooser = RefCell::new(Chooser::default());
        let mut first: Option<(Difference, usize)> = None;
        for _ in 0..ATTEMPTS_MAX {
            let attempt = run(txn, rules, &world, session, &chooser, false);
            match attempt.wrong {
                None if !chooser.borrow().is_contradiction() => {
                    return Search::Found(Box::new(attempt), chooser.into_inner());
                }
                None => {}
                Some((step, difference)) => {
                    first.get_or_insert((difference, step));
                }
            }
            if !chooser.borrow_mut().next() {
                return match first {
                    Some((difference, step)) => Search::None(difference, step),
                    None => Search::GivenUp,
                };
            }
        }
        Search::GivenUp
    }

    /// Runs a transaction that could not be explained, for what it wrote.
    fn run_anyway(&self, txn: &Transaction, rules: &LevelRules, session: &SessionState) -> Box<Attempt> {
        let world = World {
            store: &self.store,
            order: &self.order,
            planner: &self.planner,
            hidden: None,
        };
        let chooser = RefCell::new(Chooser::default());
        Box::new(run(txn, rules, &world, session, &chooser, true))
    }

    /// Adopts what an attempt wrote and taught.
    fn accept(
        &mut self,
        txn: &Arc<Transaction>,
        rules: &LevelRules,
        session: &SessionState,
        attempt: &Attempt,
        chooser: Option<&Chooser>,
    ) -> Option<CommitId> {
        let committed = matches!(txn.end, End::Committed(_));
        let certain = chooser.is_some_and(|chooser| !chooser.has_chosen());
        let (running, lasting) = (&attempt.session, &attempt.lasting);
        let ended = session.ended(txn.id.number, committed, running, lasting, certain);
        self.sessions.insert(txn.id.session, ended);
        let changed = self.store.catalog.version();
        let commit = apply::apply(txn, &attempt.overlay, &mut self.store, &mut self.order);
        if self.store.catalog.version() != changed {
            let catalog = self.store.catalog.clone();
            self.sessions
                .values_mut()
                .for_each(|s| s.change().refresh(&catalog));
        }
        if let Some(chooser) = chooser {
            self.record(attempt, chooser, witness(txn, rules, session, commit));
        }
        if let Some(commit) = commit {
            self.leave_open(txn, rules, session, commit);
        }
        commit
    }

    /// What the order of two overlapping writers of one row decides is unknown, where nothing else decides it.
    fn leave_open(
        &mut self,
        txn: &Arc<Transaction>,
        rules: &LevelRules,
        session: &SessionState,
        commit: CommitId,
    ) {
        for before in rival::rivals(txn, commit, &self.store, &self.order) {
            let Some(other) = self.order.get(before).map(|c| c.txn.clone()) else {
                continue;
            };
            let first = witness(&other, rules, &self.session_of(&other), Some(before))();
            let second = witness(txn, rules, session, Some(commit))();
            match rival::compare(
                first.clone(),
                second.clone(),
                &self.store,
                &self.order,
                &self.planner,
            ) {
                Rivalry::Settled => {}
                Rivalry::Open(open) => {
                    rival::soften(&mut self.store, commit, &open.last);
                    rival::soften(&mut self.store, before, &open.between);
                }
                Rivalry::Upset => self.soften_shared(&[first, second]),
            }
        }
    }

    /// Keeps what an explanation says about the order of commits, and what its answers taught.
    fn record(&mut self, attempt: &Attempt, chooser: &Chooser, witness: impl FnOnce() -> Member) {
        let decisions = chooser.decisions();
        if decisions.is_empty() {
            for lesson in &attempt.lessons {
                apply::learn(&mut self.store, lesson);
            }
            return;
        }
        // Where it was a matter of choice which version was seen, nothing is learned about it.
        let witness = Arc::new(witness());
        for d in decisions {
            let Some((_, window)) = attempt.windows.iter().find(|(p, _)| *p == d.point) else {
                continue;
            };
            if d.visible {
                self.order.seen_by(d.commit, window.done, &witness);
            } else {
                self.order.unseen_by(d.commit, window.sent, &witness);
            }
        }
        for seen in decisions.iter().filter(|d| d.visible) {
            for unseen in decisions.iter().filter(|d| !d.visible && d.point >= seen.point) {
                self.order.precede(seen.commit, unseen.commit);
            }
        }
    }
}

/// The transaction as one who can be asked again what it saw.
fn witness<'a>(
    txn: &'a Arc<Transaction>,
    rules: &'a LevelRules,
    session: &'a SessionState,
    commit: Option<CommitId>,
) -> impl FnOnce() -> Member + 'a {
    move || Member {
        txn: txn.clone(),
        level: txn.level,
        rules: *rules,
        session: session.clone(),
        commit,
    }
}

impl Default for Explainer {
    fn default() -> Explainer {
        Explainer::new()
    }
}

enum Search {
    Found(Box<Attempt>, Chooser),
    /// Every choice was tried; the first difference found is as good as any.
    None(Difference, usize),
    GivenUp,
}
