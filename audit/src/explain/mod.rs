//! Places every commit and snapshot point: is there an order that explains what was answered?
//!
//! In: transactions in the order of the audit. Out: fates, and the worlds after.
//!
//! A transaction is run on the state. Where the windows decide what it saw, one run settles it. Where they
//! leave it open, the run asks, and is repeated with other answers until one explains what was observed. Where
//! they leave open who wrote first, there is a world for each order, until an answer decides between them.
//!
//! A reader that nothing explains yet may still be explained by a commit whose turn is still to come: it waits
//! for those. A writer is placed at its turn, after those that may have been quicker.
//!
//! Always true:
//!   - a transaction is applied once in every world, whether or not it could be explained;
//!   - a world is dropped only when no order of points explains an answer in it.

pub mod session;
pub mod asked;
pub mod claim;
pub mod run;
pub mod crash;
pub mod apply;
pub mod draw;
pub mod between;
pub mod footprint;
pub mod spot;
pub mod extent;
pub mod world;
pub mod limits;
pub mod budget;
pub mod place;
pub mod rivals;
pub mod slip;
pub mod solved;
pub mod rows;
pub mod merge;
pub mod early;
pub mod witness;
pub mod judge;
pub mod wait;
pub mod reread;
pub mod renew;
pub mod upheaval;

use crate::assemble::{Assembler, End, Transaction};
use crate::interpret::{Difference, Effect};
use crate::points::CommitId;
use crate::reference::Member;
use crate::sequence::{Key, Sequencer, key_of};
use crate::sql::Planner;
use crate::state::store::Table;
use crate::state::view::Knowledge;
use crate::state::{Catalog, TableId};
use crate::trace::{Bootstrap, Nanos, Reread, SessionId};
use crate::verdict::TxnId;
use apply::Births;
use budget::Patience;
use draw::Sequences;
use early::Listening;
use extent::Foreseen;
use limits::Limits;
use pgassay_rules::Level;
use pgassay_rules::profile::{LevelRules, Profile};
use run::Attempt;
use rustc_hash::FxHashMap;
use session::{Left, SessionState};
use solved::Effort;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use upheaval::Unfollowed;
use wait::Waiting;
use world::{Explained, World};

/// A transaction that no order explains, before it is confirmed.
#[derive(Clone, Debug)]
pub struct Suspect {
    pub txn: Arc<Transaction>,
    pub level: Level,
    pub rules: LevelRules,
    pub step: usize,
    pub difference: Difference,
    pub session: SessionState,
}

/// A suspect, and every world in which nothing explains it.
#[derive(Clone)]
pub struct Accusation {
    pub suspect: Suspect,
    /// Each with the suspect's own commit in it, if it wrote.
    pub worlds: Vec<(World, Option<CommitId>)>,
    pub attempt: Attempt,
    /// Those whose turn came after these worlds, and whom it may have seen all the same.
    pub later: Vec<Arc<Transaction>>,
}

/// What became of one transaction.
#[derive(Clone)]
pub enum Fate {
    /// Explained; by which tier.
    Explained(Arc<Explained>, &'static str),
    /// Waits for commits that may still explain it, or for those that may give it a name.
    Deferred,
    Suspect(Box<Accusation>),
    /// Not decided, and why.
    Unknown(Box<Attempt>, &'static str),
}

impl Fate {
    fn explained(done: Arc<Explained>) -> Fate {
        let tier = match done.attempt.solved {
            true => "solver",
            false => "candidates",
        };
        Fate::Explained(done, tier)
    }
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
        let rivals = self.sequencer.upcoming(end).filter(|t| t.sent() < end);
        rivals.map(|t| key_of(t)).max()
    }

    fn open(&self, txn: &Transaction) -> Vec<TxnId> {
        self.assembler.open_before(txn.end.window().done)
    }
}

#[derive(Clone)]
pub struct Explainer {
    profile: Profile,
    pub planner: Arc<Planner>,
    /// Never empty.
    worlds: Vec<World>,
    births: Births,
    sessions: FxHashMap<SessionId, SessionState>,
    /// What the sessions were like that have left a transaction to whoever ends it.
    left: Left,
    server: Vec<(String, String)>,
    waiting: Vec<Waiting>,
    aborted: VecDeque<Arc<Transaction>>,
    /// The catalog that the sessions know: the same in all worlds.
    catalog: Arc<Catalog>,
    sequences: Sequences,
    foreseen: Foreseen,
    listening: Listening,
    /// When the last transaction that was placed had ended.
    busy_until: Nanos,
    /// Somebody turned `synchronous_commit` off.
    commits_early: bool,
    /// When the last of those had ended that called a routine which may write.
    called_at: Nanos,
    /// Until when the catalog may have been changed in a way that nobody followed.
    unfollowed: Unfollowed,
    /// What happened before this is forgotten.
    collected: Nanos,
    /// How many worlds beside the first there were at the last garbage collections, all in all.
    apart: usize,
    /// How much was spent on more worlds than can be kept for long.
    spent: usize,
    patience: Patience,
    pub limits: Limits,
    /// Everybody is claimed to have a place in a serial order, whatever was promised.
    pub claims_serial: bool,
    /// What the solver was asked so far.
    pub effort: Cell<Effort>,
}

/// How long reading a table again may take, from its snapshot to its turn.
const REREAD_NS_MAX: Nanos = 10_000_000_000;

/// Worlds beside the first, summed over garbage collections, after which those that nobody has told apart become one:
/// two are kept for long, many for a short time. Twice as much while somebody's place differs among them; a quarter
/// where somebody waits for a place in a serial order, since nothing is forgotten as long as they do.
const APART_MAX: usize = 64;

/// Rolled back transactions that are remembered, to name what saw their writes.
const ABORTED_MAX: usize = 32;

impl Explainer {
    pub fn new(profile: Profile) -> Explainer {
        Explainer {
            profile,
            planner: Arc::default(),
            worlds: vec![World::new(Arc::new(Catalog::default()))],
            births: Births::default(),
            sessions: FxHashMap::default(),
            left: Left::default(),
            server: Vec::new(),
            waiting: Vec::new(),
            aborted: VecDeque::new(),
            catalog: Arc::new(Catalog::default()),
            sequences: Sequences::default(),
            foreseen: Foreseen::default(),
            listening: Listening::default(),
            busy_until: 0,
            commits_early: false,
            called_at: 0,
            unfollowed: Unfollowed::default(),
            collected: 0,
            apart: 0,
            spent: 0,
            patience: Patience::default(),
            limits: Limits::default(),
            claims_serial: false,
            effort: Cell::default(),
        }
    }

    /// Somebody crashed while it judged: nothing that was known can be relied on, and nobody waits any more. Returns
    /// those that did.
    pub fn recover(&mut self, until: Nanos) -> Vec<Arc<Transaction>> {
        if self.worlds.is_empty() {
            self.worlds.push(World::unread(self.catalog.clone()));
        }
        self.become_one();
        self.births.forget();
        self.sequences.forget();
        self.foreseen.clear();
        self.busy_until = self.busy_until.max(until);
        let world = &mut self.worlds[0];
        world.store.sequences = None;
        world.store.lose_everything_to_unseen(until);
        world.ahead.clear();
        world.slipped.clear();
        world.deciding.clear();
        world.firsts.clear();
        world.waiting.clear();
        world.shared.clear();
        world.uncertified.clear();
        world.footprints.clear();
        world.order.forget_facts();
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|w| w.task.txn).collect()
    }

    /// What the profile promises at a level; a level that it does not have is judged as the weakest.
    pub fn rules_of(&self, level: Level) -> LevelRules {
        let weakest = || self.profile.levels().next().map(|(_, rules)| rules);
        let rules = self.profile.level(level).or_else(weakest);
        *rules.expect("a profile has at least one level")
    }

    /// The world, or the first of them.
    pub fn world(&self) -> &World {
        &self.worlds[0]
    }

    /// Whether transactions at this level were promised a serial order, or are claimed to have one.
    pub fn is_serial(&self, level: Level) -> bool {
        self.claims_serial || self.rules_of(level).is_serial()
    }

    /// Keeps what was explained until it is known in which way, if it was promised a place in a serial order.
    fn leave_to_certify(&self, world: &mut World, done: &Arc<Explained>) {
        if self.is_serial(done.txn.level) {
            world.uncertified.push(done.clone());
        }
    }

    /// What can be certified: nothing while it is open how things happened.
    pub fn certifiable(&mut self) -> Vec<Arc<Explained>> {
        match self.worlds.as_mut_slice() {
            [world] => std::mem::take(&mut world.uncertified),
            _ => Vec::new(),
        }
    }

    /// All that may have happened; the first of them is [`Explainer::world`].
    pub fn worlds(&self) -> &[World] {
        &self.worlds
    }

    /// What could not be certified because it was open how things happened, for each way in which they may have.
    pub fn uncertified(&mut self) -> Vec<Vec<Arc<Explained>>> {
        let worlds = self.worlds.iter_mut();
        worlds
            .map(|world| std::mem::take(&mut world.uncertified))
            .collect()
    }

    /// Takes over catalog and contents that were read on the side.
    pub fn bootstrap(&mut self, bootstrap: &Bootstrap) {
        let catalog = Arc::new(Catalog::load(bootstrap));
        self.server = bootstrap.settings.clone();
        let mut world = World::new(catalog.clone());
        self.sessions.clear();
        for table in catalog.tables() {
            let storage = catalog.storage(table.id);
            let tables = world.store.tables.entry(storage);
            tables.or_insert_with(|| Table::new(Knowledge::Complete));
        }
        for copy in &bootstrap.tables {
            apply::load_copy(&mut world.store, copy, &self.server);
        }
        self.sequences.forget();
        if self.busy_until < bootstrap.window.sent {
            // Nobody can have drawn between the reading and its turn who is judged already.
            self.sequences.load(&catalog);
        }
        self.busy_until = self.busy_until.max(bootstrap.window.done);
        self.catalog = catalog;
        self.foreseen.clear();
        self.worlds = vec![world];
        self.births.forget();
    }

    /// Takes over tables that were read again on the side.
    pub fn reread(&mut self, reread: &Reread) {
        if reread.window.sent <= self.collected {
            // What was written since is not known well enough any more.
            return;
        }
        for world in &mut self.worlds {
            reread::reread(world, &mut self.births, reread, &self.server);
        }
    }

    /// Nothing that was known can be relied on any more, nor what is seen before `until`.
    pub fn forget(&mut self, until: Nanos) {
        self.become_one();
        self.sequences.forget();
        self.worlds[0].store.lose_everything_to_unseen(until);
    }

    /// The same, of some tables.
    pub fn forget_tables(&mut self, tables: &[TableId], until: Nanos) {
        for world in &mut self.worlds {
            for table in tables {
                world.store.lose_to_unseen(*table, until);
            }
        }
    }

    /// Whoever wrote unseen has ended: from `at` on what is seen can be relied on again.
    pub fn settle(&mut self, at: Nanos) {
        self.become_one();
        self.worlds[0].store.settle(at);
    }

    /// The session as it was when a transaction began.
    pub fn session(&mut self, txn: &Transaction) -> SessionState {
        if let Some(then) = self.left.of(txn.id) {
            return then.clone();
        }
        let (server, catalog) = (&self.server, &self.catalog);
        let facts = &txn.facts;
        self.sessions
            .entry(txn.id.session)
            .or_insert_with(|| {
                let mut state = SessionState::new(facts, server, catalog);
                if facts.user.is_empty() {
                    // Nobody saw how it began.
                    state.blur(catalog);
                }
                state
            })
            .clone()
    }

    /// The server may have crashed: it leaves out some values of its sequences, and empties some tables.
    pub fn survive(&mut self, until: Nanos) {
        self.sequences.forget();
        let unlogged = self.catalog.tables().into_iter().filter(|table| table.unlogged);
        let unlogged: Vec<TableId> = unlogged.map(|table| table.storage).collect();
        self.forget_tables(&unlogged, until);
    }

    /// Whether a crash may undo what was committed, and nothing is wrong with that.
    pub fn may_lose_commits(&self) -> bool {
        let is_on = |name: &str| {
            let said = self.server.iter().find(|(n, _)| n == name);
            said.is_some_and(|(_, value)| !session::is_off(value))
        };
        self.commits_early || !is_on("synchronous_commit") || !is_on("fsync")
    }

    /// A transaction is prepared: its session goes on with what it has set, whoever ends it.
    pub fn leave(&mut self, txn: &Arc<Transaction>) {
        let task = self.task(txn);
        let attempt = self.worlds[0].run_anyway(txn, &task.rules, &task.session, &self.planner);
        let (running, lasting) = (&attempt.session, &attempt.lasting);
        let ended = task.session.ended(txn.id.number, true, running, lasting, false);
        self.sessions.insert(txn.id.session, ended);
        self.left.keep(txn.id, task.session);
    }

    /// The session goes on after a transaction, unless it has left it.
    fn go_on(&mut self, txn: &Transaction, ended: SessionState) {
        if self.left.of(txn.id).is_none() {
            self.sessions.insert(txn.id.session, ended);
        }
    }

    /// Nothing more will come of this session.
    pub fn end_session(&mut self, session: SessionId) {
        let Some(gone) = self.sessions.remove(&session) else {
            return;
        };
        if self.sessions.is_empty() {
            // It may have crashed, as nobody is there to see it.
            self.survive(self.busy_until);
        }
        let version = self.catalog.version();
        let mut temporary = self.catalog.tables();
        temporary.retain(|table| table.schema == *gone.settings.temporary);
        let same = self
            .worlds
            .iter()
            .all(|world| world.store.catalog.version() == version);
        if temporary.is_empty() || !same {
            return;
        }
        let ids: Vec<TableId> = temporary.iter().map(|table| table.id).collect();
        let catalog = self
            .catalog
            .with(|editor| ids.iter().for_each(|id| editor.drop_table(*id)));
        let catalog = Arc::new(catalog);
        for world in &mut self.worlds {
            world.store.catalog = catalog.clone();
            ids.iter().for_each(|id| drop(world.store.tables.remove(id)));
            world.footprints.clear();
        }
        self.refresh();
    }

    /// What a session has set since it began is not known any more; `None`: of all sessions.
    pub fn blur_sessions(&mut self, of: Option<SessionId>) {
        let catalog = &self.catalog;
        for (id, session) in &mut self.sessions {
            if of.is_none_or(|of| of == *id) {
                session.blur(catalog);
            }
        }
    }

    /// Applies a transaction of which nobody can tell what it should have seen: what it wrote is unknown.
    pub fn follow(&mut self, txn: &Arc<Transaction>) {
        let task = self.task(txn);
        self.foreseen.forget(txn.id);
        self.haunt(txn);
        self.draw_unseen(&task);
        if matches!(txn.end, End::Aborted(_)) {
            return self.remember_aborted(txn);
        }
        self.become_one();
        let world = &mut self.worlds[0];
        world.take_ahead(txn.id);
        let mut attempt = world.run_anyway(txn, &task.rules, &task.session, &self.planner);
        let mut written = attempt.may_have_written.clone();
        written.extend(attempt.overlay.tables.keys().copied());
        for table in written {
            let reason = "begun_unseen".to_owned();
            attempt.overlay.apply(&Effect::Havoc { table, reason }, 0);
        }
        world.apply(txn, &attempt, &mut self.births);
        self.busy_until = self.busy_until.max(draw::over_by(txn));
        let ended = self.session_after(&task, &attempt, false);
        self.go_on(txn, ended);
        self.refresh();
        self.alone();
    }

    /// The session after a transaction; a cursor is held only if its rows are `certain`.
    fn session_after(&self, task: &place::Task, attempt: &Attempt, certain: bool) -> SessionState {
        let (number, committed) = (task.txn.id.number, task.is_committed());
        let (running, lasting) = (&attempt.session, &attempt.lasting);
        let mut ended = task.session.ended(number, committed, running, lasting, certain);
        if matches!(task.txn.end, End::Unknown(_)) && attempt.changes_session {
            ended.blur(&self.catalog);
        }
        ended
    }

    /// The session as it is now, for a transaction that was judged before.
    pub fn session_of(&self, txn: &Transaction) -> SessionState {
        if let Some(then) = self.left.of(txn.id) {
            return then.clone();
        }
        let fresh = || SessionState::new(&txn.facts, &self.server, &self.catalog);
        self.sessions.get(&txn.id.session).cloned().unwrap_or_else(fresh)
    }

    /// A rolled back transaction to which nothing was promised.
    pub fn pass_over(&mut self, txn: &Arc<Transaction>) {
        let task = self.task(txn);
        self.foreseen.forget(txn.id);
        self.haunt(txn);
        self.draw_unseen(&task);
        self.busy_until = self.busy_until.max(draw::over_by(txn));
        self.remember_aborted(txn);
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
        let world = self.worlds.first();
        let open = world
            .into_iter()
            .flat_map(|w| w.order.iter().rev().take(ABORTED_MAX));
        open.map(|(_, c)| &c.txn)
    }

    /// What a wrong answer read is unknown until it is seen again.
    pub fn unlearn(&mut self, txn: &Transaction, attempt: &Attempt, step: usize) {
        for world in &mut self.worlds {
            world.unlearn(txn, &attempt.reads, step);
        }
    }

    /// An order was found that none of the worlds has: what its transactions wrote is a guess.
    pub fn distrust(&mut self, members: &[Member]) {
        for world in &mut self.worlds {
            let commits: Vec<(CommitId, Nanos)> = world
                .order
                .iter()
                .filter(|(_, c)| members.iter().any(|m| m.txn.id == c.txn.id))
                .map(|(id, c)| (id, c.txn.end.window().done))
                .collect();
            for (commit, until) in commits {
                let rows = world
                    .order
                    .get(commit)
                    .map(|c| c.rows.clone())
                    .unwrap_or_default();
                world.soften_rows(commit, until);
                for (table, _) in rows {
                    world.store.table_mut(table).guess(until);
                }
            }
        }
    }

    /// Sessions look at the catalog that is in force.
    fn refresh(&mut self) {
        let catalog = &self.worlds[0].store.catalog;
        if catalog.version() == self.catalog.version() {
            return;
        }
        self.catalog = catalog.clone();
        self.foreseen.clear();
        let catalog = catalog.clone();
        self.sessions
            .values_mut()
            .for_each(|s| s.change().refresh(&catalog));
    }

    fn reduce(&mut self) {
        let worlds_max = self.worlds_max();
        merge::reduce(&mut self.worlds, worlds_max, self.busy_until);
        self.alone();
    }

    /// How many worlds there may be now: more than can be kept for long, if there were few of late.
    fn worlds_max(&self) -> usize {
        let Limits {
            worlds_max,
            worlds_spare,
            ..
        } = self.limits;
        match self.spent < worlds_spare {
            true => 4 * worlds_max,
            false => worlds_max,
        }
    }

    /// What the worlds of the transaction that was judged last cost; a calm time makes up for it.
    fn account(&mut self) {
        let Limits {
            worlds_max,
            worlds_spare,
            ..
        } = self.limits;
        let beyond = self.worlds.len().saturating_sub(worlds_max);
        self.spent = match beyond {
            0 if self.worlds.len() <= worlds_max / 4 => self.spent.saturating_sub(1),
            _ => (self.spent + beyond).min(2 * worlds_spare),
        };
    }

    /// There is only one way in which things may have happened: nothing needs to be told apart any more.
    fn alone(&mut self) {
        if let [world] = self.worlds.as_mut_slice() {
            world.changed.clear();
            if self.births.remembers && world.ahead.is_empty() {
                self.births.remembers = false;
                self.births.forget();
            }
        }
    }

    fn become_one(&mut self) {
        if self.worlds.len() > 1 {
            merge::collapse(&mut self.worlds, self.busy_until);
            self.alone();
        }
    }

    /// Forgets what no snapshot from `horizon` on can ask for.
    pub fn collect(&mut self, now: Nanos, horizon: Nanos) {
        let horizon = match self.worlds.iter().any(World::is_lost) {
            // Tables may be read again: then what happened since matters.
            true => horizon.min(now.saturating_sub(REREAD_NS_MAX)),
            false => horizon,
        };
        self.collected = self.collected.max(horizon);
        for world in &mut self.worlds {
            world.collect(horizon);
        }
        if self.worlds.len() > 1 {
            merge::forget_agreed(&mut self.worlds);
            self.reduce();
        }
        let others = self.worlds.len() - 1;
        self.apart = if others > 0 { self.apart + others } else { 0 };
        let is_calm = self
            .worlds
            .iter()
            .all(|w| w.ahead.is_empty() && w.waiting.is_empty());
        let is_held = self.worlds.iter().any(|w| !w.uncertified.is_empty());
        let most = APART_MAX / if is_held { 4 } else { 1 };
        if self.apart > if is_calm { most } else { 2 * most } {
            // Nobody asks how it was: then it need not be known.
            self.apart = 0;
            if self.called_at >= horizon || !is_held {
                // Nothing waits for it to be known; and what a routine wrote is seldom told by any answer: half is kept.
                let half = self.worlds.len() / 2;
                merge::thin(&mut self.worlds, half, self.busy_until);
                self.alone();
            } else {
                self.become_one();
            }
        }
    }
}
