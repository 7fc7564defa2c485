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
pub mod world;
pub mod limits;
pub mod place;
pub mod solved;
pub mod merge;
pub mod reread;
pub mod renew;

use crate::assemble::{Assembler, End, Step, Transaction};
use crate::control::Control;
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
use asked::Asked;
use draw::Sequences;
use limits::Limits;
use pgassay_rules::Level;
use pgassay_rules::profile::{LevelRules, Profile};
use place::{Budget, Placement, Task, wrote_nothing};
use run::Attempt;
use rustc_hash::FxHashMap;
use session::SessionState;
use solved::Effort;
use spot::Spot;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
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

/// A transaction that is judged, or told, when the others have had their turn.
#[derive(Clone)]
struct Waiting {
    task: Task,
    /// How it was explained in those worlds in which it was.
    explained: Option<Arc<Explained>>,
    /// It was refuted already, and only waits to be named well.
    accused: Option<Box<Accusation>>,
    /// Judged again when everything up to here was, …
    until: Key,
    /// … and these, which were under way, have ended.
    open: Vec<TxnId>,
}

impl Waiting {
    /// Somebody else had a turn: if a serial order is all that counts, it may be before the one that waits.
    fn meet(&mut self, judged: &Arc<Transaction>) {
        let Some(accusation) = &mut self.accused else {
            return;
        };
        let beside = judged.id != self.task.txn.id && judged.sent() < self.task.txn.end.window().done;
        if beside && self.task.rules.is_serial_alone() && !matches!(judged.end, End::Aborted(_)) {
            accusation.later.push(judged.clone());
        }
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
        let rivals = self.sequencer.upcoming().filter(|t| t.sent() < end);
        rivals.map(|t| key_of(t)).max()
    }

    fn open(&self, txn: &Transaction) -> Vec<TxnId> {
        self.assembler.open_before(txn.end.window().done)
    }
}

/// How long a suspicion waits for transactions that were under way at the time, on the trace's clock.
const WAIT_NS_MAX: Nanos = 5_000_000_000;

#[derive(Clone)]
pub struct Explainer {
    profile: Profile,
    pub planner: Arc<Planner>,
    /// Never empty.
    worlds: Vec<World>,
    births: Births,
    sessions: FxHashMap<SessionId, SessionState>,
    server: Vec<(String, String)>,
    waiting: Vec<Waiting>,
    aborted: VecDeque<Arc<Transaction>>,
    /// The catalog that the sessions know: the same in all worlds.
    catalog: Arc<Catalog>,
    sequences: Sequences,
    /// Of transactions whose turn is still to come, the key that they are about, if it is one.
    spots: FxHashMap<TxnId, Option<Arc<Spot>>>,
    /// When the last transaction that was placed had ended.
    busy_until: Nanos,
    /// When the last of those had ended that called a routine which may write.
    called_at: Nanos,
    /// Until when the catalog may have been changed in a way that nobody followed.
    unfollowed: Option<Nanos>,
    /// What happened before this is forgotten.
    collected: Nanos,
    /// How many worlds beside the first there were at the last garbage collections, all in all.
    apart: usize,
    /// How much was spent on more worlds than can be kept for long.
    spent: usize,
    pub limits: Limits,
    /// What the solver was asked so far.
    pub effort: Cell<Effort>,
}

/// How long reading a table again may take, from its snapshot to its turn.
const REREAD_NS_MAX: Nanos = 10_000_000_000;

/// Worlds beside the first, summed over garbage collections, after which those that nobody has told apart become one:
/// two are kept for long, many for a short time. Twice as much while somebody's place differs among them.
const APART_MAX: usize = 16;

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
            server: Vec::new(),
            waiting: Vec::new(),
            aborted: VecDeque::new(),
            catalog: Arc::new(Catalog::default()),
            sequences: Sequences::default(),
            spots: FxHashMap::default(),
            busy_until: 0,
            called_at: 0,
            unfollowed: None,
            collected: 0,
            apart: 0,
            spent: 0,
            limits: Limits::default(),
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
        self.spots.clear();
        self.busy_until = self.busy_until.max(until);
        let world = &mut self.worlds[0];
        world.store.sequences = None;
        world.store.lose_everything_to_unseen(until);
        world.ahead.clear();
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
        self.spots.clear();
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

    /// Whoever wrote unseen has ended: from `at` on what is seen can be relied on again.
    pub fn settle(&mut self, at: Nanos) {
        self.become_one();
        self.worlds[0].store.settle(at);
    }

    pub fn session(&mut self, txn: &Transaction) -> SessionState {
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

    /// Nothing more will come of this session.
    pub fn end_session(&mut self, session: SessionId) {
        let Some(gone) = self.sessions.remove(&session) else {
            return;
        };
        if self.sessions.is_empty() {
            // A server that crashes ends all of them, and leaves out some values of its sequences.
            self.sequences.forget();
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
        self.spots.remove(&txn.id);
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
        let (running, lasting) = (&attempt.session, &attempt.lasting);
        let ended = task
            .session
            .ended(txn.id.number, task.is_committed(), running, lasting, false);
        self.sessions.insert(txn.id.session, ended);
        self.refresh();
        self.alone();
    }

    /// The session as it is now, for a transaction that was judged before.
    pub fn session_of(&self, txn: &Transaction) -> SessionState {
        let fresh = || SessionState::new(&txn.facts, &self.server, &self.catalog);
        self.sessions.get(&txn.id.session).cloned().unwrap_or_else(fresh)
    }

    /// A rolled back transaction to which nothing was promised.
    pub fn pass_over(&mut self, txn: &Arc<Transaction>) {
        let task = self.task(txn);
        self.spots.remove(&txn.id);
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

    /// Judges one transaction and applies what it wrote.
    pub fn judge(&mut self, txn: &Arc<Transaction>, ahead: &Ahead<'_>) -> Fate {
        let task = self.task(txn);
        if matches!(txn.end, End::Aborted(_)) {
            self.remember_aborted(txn);
        }
        self.lay_out_sequences(txn, ahead);
        if self.worlds.len() > 1 && self.changes_more_than_rows(&task) {
            self.become_one();
        }
        #[cfg(test)]
        txn.steps
            .iter()
            .for_each(|step| crash::if_told("place", &step.seen.text));
        // With many worlds, only orders that change what is found in the end make another one.
        let mut budget = match self.worlds.len() > self.limits.worlds_max / 4 {
            true => Budget::lazy(&self.limits),
            false => Budget::of(&self.limits),
        };
        let mut kept: Vec<World> = Vec::new();
        let mut refuted: Vec<(World, Difference, usize)> = Vec::new();
        let mut explained: Option<Arc<Explained>> = None;
        let mut undecided: Option<Attempt> = None;
        for mut world in std::mem::take(&mut self.worlds) {
            world.footprints.remove(&txn.id);
            if let Some(done) = world.take_ahead(txn.id) {
                world.uncertified.push(done.clone());
                explained.get_or_insert(done);
                kept.push(world);
                continue;
            }
            let mut placement = self.place(world, &task, ahead, &mut budget, &[]);
            if let Placement::GivenUp(world) = placement {
                placement = self.place(world, &task, ahead, &mut Budget::lazy(&self.limits), &[]);
            }
            match placement {
                Placement::Placed(all) => {
                    for (mut world, done) in all {
                        world.uncertified.push(done.clone());
                        explained.get_or_insert(done);
                        kept.push(world);
                    }
                }
                Placement::Nowhere(world, difference, step) => refuted.push((world, difference, step)),
                Placement::GivenUp(world) => {
                    let (world, attempt) = self.blend(world, &task, ahead);
                    undecided.get_or_insert(attempt);
                    kept.push(world);
                }
            }
        }
        let fate = match (explained, undecided) {
            (Some(done), _) => {
                let tier = tier_of(&done);
                Fate::Explained(done, tier)
            }
            (None, Some(attempt)) => Fate::Unknown(Box::new(attempt), "too_many_orders"),
            (None, None) => Fate::Deferred,
        };
        let fate = match (refuted.is_empty(), fate) {
            (true, fate) => fate,
            (false, Fate::Deferred) => self.refute(&task, refuted, None, &mut kept, ahead),
            (false, fate) => self.refute(&task, refuted, Some(fate), &mut kept, ahead),
        };
        self.worlds = kept;
        self.after(&task, &fate);
        fate
    }

    /// What follows for the worlds in which nothing explains a transaction, when its turn comes.
    fn refute(
        &mut self,
        task: &Task,
        refuted: Vec<(World, Difference, usize)>,
        fate: Option<Fate>,
        kept: &mut Vec<World>,
        ahead: &Ahead<'_>,
    ) -> Fate {
        let txn = &task.txn;
        let (until, open) = (ahead.last_rival(txn), ahead.open(txn));
        let attempt = refuted[0]
            .0
            .run_anyway(txn, &task.rules, &task.session, &self.planner);
        let without_effect = !task.is_committed() || wrote_nothing(txn, &attempt);
        let due = until.is_none() && open.is_empty();
        if without_effect && !due {
            // Somebody whose turn is still to come may explain it.
            for (mut world, ..) in refuted {
                world.waiting.push(txn.id);
                kept.push(world);
            }
            let explained = match fate {
                Some(Fate::Explained(done, _)) => Some(done),
                _ => None,
            };
            self.wait(task, explained, None, until, open);
            return Fate::Deferred;
        }
        // Those that cannot be relied on are kept, whoever else explains it.
        let mut undecided = None;
        let mut reliable = Vec::new();
        for (mut world, difference, step) in refuted {
            let own = world.footprint(txn, &task.rules, &task.session, &self.planner);
            let accused = fate.is_none() && without_effect;
            if !accused && world.may_be_otherwise(txn, &own) {
                let (world, attempt) = self.blend(world, task, ahead);
                undecided.get_or_insert(attempt);
                kept.push(world);
            } else {
                reliable.push((world, difference, step));
            }
        }
        let refuted = reliable;
        let fate = fate.or(undecided.map(|attempt| Fate::Unknown(Box::new(attempt), "too_many_orders")));
        if let Some(fate) = fate {
            // Another world may explain it: these are not what happened.
            return fate;
        }
        // Whoever was on the way may come before it, whatever it wrote and whenever it had ended.
        let is_open = !due && task.rules.is_serial_alone();
        let (_, difference, step) = &refuted[0];
        let suspect = Suspect {
            txn: txn.clone(),
            level: txn.level,
            rules: task.rules,
            step: *step,
            difference: difference.clone(),
            session: task.session.clone(),
        };
        let mut worlds = Vec::new();
        for (mut world, ..) in refuted {
            let blended = is_open.then(|| self.blend(world.clone(), task, ahead).0);
            let attempt = world.run_anyway(txn, &task.rules, &task.session, &self.planner);
            let commit = world.apply(txn, &attempt, &mut self.births);
            worlds.push((world.clone(), commit));
            if task.is_committed() {
                world.soften(txn, &attempt, commit);
            }
            kept.push(blended.unwrap_or(world));
        }
        let accusation = Box::new(Accusation {
            suspect,
            worlds,
            attempt,
            later: Vec::new(),
        });
        if due {
            return Fate::Suspect(accusation);
        }
        self.wait(task, None, Some(accusation), until, open);
        Fate::Deferred
    }

    fn wait(
        &mut self,
        task: &Task,
        explained: Option<Arc<Explained>>,
        accused: Option<Box<Accusation>>,
        until: Option<Key>,
        open: Vec<TxnId>,
    ) {
        self.waiting.push(Waiting {
            task: task.clone(),
            explained,
            accused,
            until: until.unwrap_or(key_of(&task.txn)),
            open,
        });
    }

    /// Applies a transaction that has more places than there is time for: what it and its rivals write is unknown.
    fn blend(&mut self, mut world: World, task: &Task, ahead: &Ahead<'_>) -> (World, Attempt) {
        let attempt = world.run_anyway(&task.txn, &task.rules, &task.session, &self.planner);
        let own = world.reach(&task.txn, &task.rules, &task.session, &self.planner);
        let end = task.txn.end.window().done;
        let writes = !attempt.wrote.is_empty() || !attempt.overlay.is_empty();
        let others: Vec<Arc<Transaction>> = ahead.sequencer.hasty_before(end).cloned().collect();
        for other in others {
            if other.id == task.txn.id || world.is_ahead(other.id) {
                continue;
            }
            if self
                .spot(&mut world, &other)
                .is_some_and(|spot| spot.misses(&own))
            {
                continue;
            }
            let other = self.task(&other);
            let theirs = world.footprint(&other.txn, &other.rules, &other.session, &self.planner);
            // Whoever writes nothing leaves what the others write as it is. To forget it makes the search shorter all the
            // same, and the next answer shows it again, but not what a routine wrote.
            if !writes && theirs.calls {
                continue;
            }
            let rivals = own.depends_on(&task.txn, &theirs, other.txn.sent(), false);
            if rivals && !world.blended.contains(&other.txn.id) {
                world.blended.push(other.txn.id);
            }
        }
        let commit = world.apply(&task.txn, &attempt, &mut self.births);
        if task.is_committed() {
            world.soften(&task.txn, &attempt, commit);
        }
        (world, attempt)
    }

    /// Whether a transaction does something that cannot be told apart by worlds.
    fn changes_more_than_rows(&mut self, task: &Task) -> bool {
        let world = &self.worlds[0];
        let only_rows = |step: &Step| match &step.control {
            Control::Data => {
                let catalog = &world.store.catalog;
                let asked = Asked::of(&self.planner, catalog, &step.seen, &task.session);
                asked.is_run() && asked.prepared.planned.writes_only_rows()
            }
            Control::Begin(_) | Control::Commit { .. } => true,
            _ => false,
        };
        if task.txn.steps.iter().all(only_rows) {
            return false;
        }
        let attempt = world.run_anyway(&task.txn, &task.rules, &task.session, &self.planner);
        attempt.overlay.catalog.is_some() || attempt.overlay.havoc_everything.is_some()
    }

    /// The session goes on; the worlds are made few.
    fn after(&mut self, task: &Task, fate: &Fate) {
        let txn = &task.txn;
        self.spots.remove(&txn.id);
        self.draw(task, fate);
        self.busy_until = self.busy_until.max(draw::over_by(txn));
        let certain = matches!(fate, Fate::Explained(done, _) if done.decisions.is_empty());
        let waiting = self.waiting.iter().rev().find(|w| w.task.txn.id == txn.id);
        let accused = waiting.and_then(|w| w.accused.as_ref());
        let attempt = match (fate, accused) {
            (Fate::Explained(done, _), _) => Some(&done.attempt),
            (Fate::Unknown(attempt, _), _) => Some(&**attempt),
            (Fate::Suspect(accusation), _) => Some(&accusation.attempt),
            (Fate::Deferred, accused) => accused.map(|a| &a.attempt),
        };
        if let Some(attempt) = attempt {
            if attempt.calls {
                self.called_at = self.busy_until;
            }
            Explainer::note_unfollowed(&mut self.unfollowed, txn, attempt);
            let (running, lasting) = (&attempt.session, &attempt.lasting);
            let ended = task
                .session
                .ended(txn.id.number, task.is_committed(), running, lasting, certain);
            self.sessions.insert(txn.id.session, ended);
        }
        self.refresh();
        if self.worlds.len() > 1 {
            self.reduce();
        } else {
            self.alone();
        }
        self.account();
    }

    /// Sessions look at the catalog that is in force.
    fn refresh(&mut self) {
        let catalog = &self.worlds[0].store.catalog;
        if catalog.version() == self.catalog.version() {
            return;
        }
        self.catalog = catalog.clone();
        self.spots.clear();
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

    /// Judges again what has waited for everything up to `judged`; everything that waits, if there is no more.
    pub fn retry(&mut self, judged: Option<&Arc<Transaction>>) -> Vec<(Arc<Transaction>, Fate)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (mut due, mut waiting) = (Vec::new(), Vec::new());
        for mut w in std::mem::take(&mut self.waiting) {
            let ready = judged.is_none_or(|judged| {
                w.open.retain(|id| *id != judged.id);
                w.meet(judged);
                let late =
                    judged.end.window().sent > w.task.txn.end.window().done.saturating_add(WAIT_NS_MAX);
                w.until <= key_of(judged) && (w.open.is_empty() || late)
            });
            if ready { due.push(w) } else { waiting.push(w) }
        }
        self.waiting = waiting;
        let mut fates = Vec::new();
        for w in due {
            let txn = w.task.txn.clone();
            let fate = match w.accused {
                Some(accusation) if w.task.rules.is_serial_alone() && !w.open.is_empty() => {
                    Fate::Unknown(Box::new(accusation.attempt), "order_left_open")
                }
                Some(accusation) => Fate::Suspect(accusation),
                None => self.look_again(w.task, w.explained),
            };
            fates.push((txn, fate));
        }
        if !fates.is_empty() && self.worlds.len() > 1 {
            self.reduce();
        }
        fates
    }

    /// Whether one of the worlds explains a reader by now.
    fn look_again(&mut self, task: Task, mut explained: Option<Arc<Explained>>) -> Fate {
        let mut kept = Vec::new();
        let mut refuted = Vec::new();
        let mut undecided = None;
        let mut budget = Budget::of(&self.limits);
        for mut world in std::mem::take(&mut self.worlds) {
            let Some(at) = world.waiting.iter().position(|id| *id == task.txn.id) else {
                kept.push(world);
                continue;
            };
            world.waiting.remove(at);
            let mut ways = self.explanations(&world, &task, None, &mut budget);
            match (ways.found.pop(), ways.difference) {
                (Some(mut way), _) => {
                    // What it did can only be told here: it was there before those that explain it were placed.
                    way.attempt.overlay = Default::default();
                    let (mut world, done) = self.adopt(world, &task, way);
                    world.uncertified.push(done.clone());
                    explained.get_or_insert(done);
                    kept.push(world);
                }
                (None, Some((difference, step))) => refuted.push((world, difference, step)),
                (None, None) => {
                    let attempt = world.run_anyway(&task.txn, &task.rules, &task.session, &self.planner);
                    undecided.get_or_insert(attempt);
                    kept.push(world);
                }
            }
        }
        let fate = match (explained, undecided) {
            (Some(done), _) => {
                let tier = tier_of(&done);
                Fate::Explained(done, tier)
            }
            (None, Some(attempt)) => Fate::Unknown(Box::new(attempt), "too_many_orders"),
            (None, None) if refuted.is_empty() => {
                // The worlds became one while it waited.
                let attempt = kept[0].run_anyway(&task.txn, &task.rules, &task.session, &self.planner);
                Fate::Unknown(Box::new(attempt), "order_left_open")
            }
            (None, None) => {
                let (world, difference, step) = &refuted[0];
                let attempt = world.run_anyway(&task.txn, &task.rules, &task.session, &self.planner);
                let suspect = Suspect {
                    txn: task.txn.clone(),
                    level: task.txn.level,
                    rules: task.rules,
                    step: *step,
                    difference: difference.clone(),
                    session: task.session.clone(),
                };
                // The worlds without it may still be right: then it was explained when its turn came.
                let worlds = refuted.iter().map(|(w, ..)| (w.clone(), None)).collect();
                kept.extend(refuted.drain(..).map(|(w, ..)| w));
                Fate::Suspect(Box::new(Accusation {
                    suspect,
                    worlds,
                    attempt,
                    later: Vec::new(),
                }))
            }
        };
        for (mut world, ..) in refuted {
            let own = world.footprint(&task.txn, &task.rules, &task.session, &self.planner);
            if kept.is_empty() || world.may_be_otherwise(&task.txn, &own) {
                kept.push(world);
            }
        }
        self.worlds = kept;
        fate
    }

    /// Whether some order explains `txn` at another level than its own; nothing is applied.
    pub fn doubt(
        &self,
        txn: &Arc<Transaction>,
        level: Level,
        rules: &LevelRules,
        session: SessionState,
        commit: Option<CommitId>,
    ) -> Option<Box<Accusation>> {
        let [world] = self.worlds.as_slice() else {
            return None;
        };
        let task = Task {
            txn: txn.clone(),
            rules: *rules,
            session,
        };
        let ways = self.explanations(world, &task, commit, &mut Budget::of(&self.limits));
        let (difference, step) = ways.difference.filter(|_| ways.found.is_empty())?;
        let attempt = world.run_anyway(txn, rules, &task.session, &self.planner);
        Some(Box::new(Accusation {
            suspect: Suspect {
                txn: txn.clone(),
                level,
                rules: *rules,
                step,
                difference,
                session: task.session,
            },
            worlds: vec![(world.clone(), commit)],
            attempt,
            later: Vec::new(),
        }))
    }

    /// When the oldest transaction that still waits took its first snapshot.
    pub fn oldest_waiting(&self) -> Option<Nanos> {
        let waiting = self.waiting.iter().map(|w| w.task.txn.sent());
        let uncertified = self
            .worlds
            .iter()
            .flat_map(|w| &w.uncertified)
            .map(|e| e.txn.sent());
        waiting.chain(uncertified).min()
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
        if self.apart > if is_calm { APART_MAX } else { 2 * APART_MAX } {
            // Nobody asks how it was: then it need not be known.
            self.apart = 0;
            if self.called_at >= horizon {
                // What a routine wrote is seldom told by any answer: more of it is kept.
                let half = self.worlds.len() / 2;
                merge::thin(&mut self.worlds, half, self.busy_until);
                self.alone();
            } else {
                self.become_one();
            }
        }
    }
}

/// Who found the explanation.
fn tier_of(done: &Explained) -> &'static str {
    if done.attempt.solved {
        "solver"
    } else {
        "candidates"
    }
}
