//! One way in which things may have happened.
//!
//! In: explanations of transactions. Out: the state as it is if they are true.
//!
//! Nearly always there is one world. When two transactions overlap and wrote the same row, and nothing says who
//! came first, there is one for each way; a later answer that only some of them explain leaves only those.
//!
//! Always true: what really happened is one of the worlds, or is covered by what is unknown in one of them.

use super::apply::{self, Births, Learnt};
use super::between::Between;
use super::footprint::Footprint;
use super::merge;
use super::run::{self, Attempt, Lesson, Scene, StepReads};
use super::session::SessionState;
use super::slip::Slipped;
use super::spot::Spot;
use super::witness::Deciding;
use crate::assemble::Transaction;
use crate::interpret::{Heed, Touch};
use crate::points::choose::Decision;
use crate::points::{Chooser, CommitId, Order};
use crate::reference::Member;
use crate::sql::Planner;
use crate::state::catalog::{TEMPORARY, TableKind};
use crate::state::overlay::{OwnTable, Replaced};
use crate::state::store::Store;
use crate::state::view::Knowledge;
use crate::state::{Catalog, Row, RowId, TableId};
use crate::trace::{Nanos, TableName, Window};
use crate::value::Value;
use crate::value::compare::same_cells;
use crate::verdict::TxnId;
use pgassay_rules::profile::LevelRules;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Commits that are remembered for the sake of tables that may be read again.
const REMEMBERED_MAX: usize = 1_024;

/// In how many ways one writer whose order was taken may have written until only the tables are remembered.
const WRITTEN_MAX: usize = 8;

/// How many ways a routine may go until nobody knows what it does.
const WAYS_MAX: usize = 4;

/// How many runs it takes at most to find them; and how many questions may be open where no answer explains it.
const REACH_RUNS_MAX: usize = 32;
const OPEN_MAX: usize = 8;

/// Whether a row certainly has this key.
fn is_row_of(row: &Row, columns: &[usize], key: &[Value]) -> bool {
    let cells: Option<Vec<Value>> = columns.iter().map(|c| row.get(*c).cloned()).collect();
    cells.is_some_and(|cells| same_cells(&cells, key) && !cells.iter().any(Value::has_unknown))
}

/// How one transaction was explained, in one world.
pub struct Explained {
    pub txn: Arc<Transaction>,
    pub commit: Option<CommitId>,
    pub attempt: Attempt,
    pub decisions: Vec<Decision>,
}

/// What was written by one of two whose order only somebody in between could tell: one order was taken, and whoever
/// is not explained by it may be explained by the other.
#[derive(Clone)]
pub struct Taken {
    pub by: TxnId,
    pub written: Wrote,
    /// When both had ended.
    pub until: Nanos,
}

/// Where the place lies of a writer that does the same as others.
#[derive(Clone, Copy)]
pub struct Shared {
    window: Window,
    /// Where its own commit lies.
    own: Window,
}

impl Shared {
    /// It may lie in either of two.
    fn or(self, other: Option<&Shared>) -> Shared {
        let window = self.window.hull(other.map_or(self.own, |other| other.window));
        Shared { window, ..self }
    }
}

/// Where somebody wrote.
#[derive(Clone)]
pub enum Wrote {
    At(Arc<Spot>),
    Rows(Arc<Footprint>),
    /// What somebody in between could tell the order by.
    Between(Arc<Between>),
}

impl Wrote {
    fn covers(&self, other: &Wrote) -> bool {
        match (self, other) {
            (Wrote::At(a), Wrote::At(b)) => Arc::ptr_eq(a, b),
            (Wrote::Between(a), Wrote::Between(b)) => Arc::ptr_eq(a, b),
            (Wrote::Rows(a), Wrote::Between(b)) => b.tables().all(|table| a.may_write_all(table)),
            (Wrote::Rows(a), Wrote::Rows(b)) => Arc::ptr_eq(a, b) || a.is_wider_than(b) || a.writes_same(b),
            _ => false,
        }
    }
}

#[derive(Clone)]
pub struct World {
    pub store: Store,
    pub order: Order,
    /// Writers that were placed before their turn.
    pub ahead: Vec<Arc<Explained>>,
    /// Writers that may have come before somebody who has overwritten all that they left.
    pub slipped: Vec<Slipped>,
    /// Steps of transactions still to come that are known to be answered rightly, though what they saw is forgotten.
    pub answered: Vec<(TxnId, usize)>,
    /// Answers to them that are explained here, and with which versions of their rows.
    pub heard: Vec<(TxnId, usize, (usize, u64))>,
    /// Who of those still to come has told this one from others.
    pub deciding: Vec<Deciding>,
    /// Writers that came before others whose turn is still to come: there are other worlds for the other orders.
    pub firsts: Vec<(TxnId, TxnId)>,
    /// Readers whose answers nothing explains yet.
    pub waiting: Vec<TxnId>,
    /// Writers whose place among others could not be told: what they write is unknown.
    pub blended: Vec<TxnId>,
    /// Where the places of writers lie that do the same as others at the same time: nobody can tell them apart, so
    /// they have shared out their windows, the earlier place the earlier bounds.
    pub shared: FxHashMap<TxnId, Shared>,
    /// Writers that were taken in one order of several, by their ids.
    pub taken: Vec<Taken>,
    /// What the certifier has not seen yet.
    pub uncertified: Vec<Arc<Explained>>,
    /// Rows written since there is more than one world.
    pub changed: BTreeSet<(TableId, RowId)>,
    /// Where writers that are still to come read and write, as far as it is known here.
    pub footprints: FxHashMap<TxnId, Arc<Footprint>>,
}

impl World {
    pub fn new(catalog: Arc<Catalog>) -> World {
        World {
            store: Store::new(catalog),
            order: Order::default(),
            ahead: Vec::new(),
            slipped: Vec::new(),
            answered: Vec::new(),
            heard: Vec::new(),
            deciding: Vec::new(),
            firsts: Vec::new(),
            waiting: Vec::new(),
            blended: Vec::new(),
            shared: FxHashMap::default(),
            taken: Vec::new(),
            uncertified: Vec::new(),
            changed: BTreeSet::new(),
            footprints: FxHashMap::default(),
        }
    }

    /// One in which nothing is known of what is in the tables.
    pub fn unread(catalog: Arc<Catalog>) -> World {
        let mut world = World::new(catalog.clone());
        for table in catalog.tables() {
            world.store.table_mut(catalog.storage(table.id));
        }
        world
    }

    /// A copy to try something on: without what is only remembered for later.
    pub fn sketch(&self) -> World {
        World {
            store: self.store.clone(),
            order: self.order.clone(),
            blended: self.blended.clone(),
            changed: self.changed.clone(),
            ..World::new(self.store.catalog.clone())
        }
    }

    pub fn scene<'a>(&'a self, planner: &'a Planner, hidden: Option<CommitId>) -> Scene<'a> {
        Scene {
            store: &self.store,
            order: &self.order,
            planner,
            hidden,
        }
    }

    /// Whether another order of those that were taken in one order may explain what is not explained here.
    pub fn may_be_otherwise(&self, txn: &Transaction, own: &Footprint) -> bool {
        let mut taken = self.taken.iter().filter(|t| t.until >= txn.sent());
        taken.any(|t| match &t.written {
            Wrote::At(spot) => !spot.misses(own),
            Wrote::Rows(written) => own.heeds(written),
            Wrote::Between(between) => own.tells(between),
        })
    }

    /// What has to be remembered of a world that is given up for this one.
    pub fn inherit(&mut self, other: &World) {
        other.taken.iter().for_each(|taken| self.take_one_order(taken));
        for slipped in &other.slipped {
            if !self.slipped.iter().any(|known| known.is(slipped)) {
                self.slipped.push(slipped.clone());
            }
        }
        self.firsts.retain(|pair| other.firsts.contains(pair));
        for (txn, theirs) in &other.shared {
            self.shared.entry(*txn).or_insert(Shared {
                window: theirs.own,
                ..*theirs
            });
        }
        for (txn, shared) in &mut self.shared {
            *shared = shared.or(other.shared.get(txn));
        }
        self.order.widen(&other.order);
        other
            .deciding
            .iter()
            .for_each(|deciding| self.expect_witness(*deciding));
        for (table, own) in &mut self.store.tables {
            if let Some(theirs) = other.store.tables.get(table) {
                own.share_doubts(theirs);
            }
        }
    }

    /// Of two writers one order was taken.
    pub fn take_one_order(&mut self, taken: &Taken) {
        let from = self.taken.partition_point(|own| own.by < taken.by);
        let to = from + self.taken[from..].partition_point(|own| own.by == taken.by);
        let mut same = self.taken[from..to].iter_mut();
        if let Some(known) = same.find(|own| own.written.covers(&taken.written)) {
            known.until = known.until.max(taken.until);
            return;
        }
        self.taken.insert(from, taken.clone());
        if to - from >= WRITTEN_MAX {
            self.widen(from, to + 1);
        }
    }

    /// What one writer may have written in ever so many ways: from here on only in which tables.
    fn widen(&mut self, from: usize, to: usize) {
        let same: Vec<Taken> = self.taken.drain(from..to).collect();
        let (mut kept, rows): (Vec<Taken>, Vec<Taken>) = same
            .into_iter()
            .partition(|taken| matches!(taken.written, Wrote::At(_)));
        let last = rows.iter().max_by_key(|taken| taken.until);
        if let Some(Taken { by, until, .. }) = last.cloned() {
            let mut wide = Footprint::default();
            for taken in &rows {
                match &taken.written {
                    Wrote::Rows(rows) => wide.join(rows.widened()),
                    Wrote::Between(between) => {
                        wide.run_wild(&between.tables().collect::<Vec<_>>());
                    }
                    Wrote::At(_) => {}
                }
            }
            let written = Wrote::Rows(Arc::new(wide));
            kept.push(Taken { by, written, until });
        }
        self.taken.splice(from..from, kept);
    }

    pub fn take_ahead(&mut self, txn: TxnId) -> Option<Arc<Explained>> {
        let at = self.ahead.iter().position(|e| e.txn.id == txn)?;
        Some(self.ahead.remove(at))
    }

    pub fn is_ahead(&self, txn: TxnId) -> bool {
        self.ahead.iter().any(|e| e.txn.id == txn)
    }

    /// The commit of a transaction, if it wrote anything and that is not forgotten.
    pub fn commit_of(&self, txn: &Transaction) -> Option<CommitId> {
        self.commit_by(txn.id)
    }

    pub(super) fn commit_by(&self, txn: TxnId) -> Option<CommitId> {
        let mut commits = self.order.iter().rev();
        commits.find(|(_, commit)| commit.txn.id == txn).map(|(id, _)| id)
    }

    /// Runs a transaction for what it wrote, whether or not it can be explained.
    pub fn run_anyway(
        &self,
        txn: &Transaction,
        rules: &LevelRules,
        session: &SessionState,
        planner: &Planner,
    ) -> Attempt {
        let chooser = RefCell::new(Chooser::default());
        run::run(
            txn,
            rules,
            &self.scene(planner, None),
            session,
            &chooser,
            Heed::Compared,
        )
    }

    /// Where a writer that is still to come reads and writes.
    pub fn footprint(
        &mut self,
        txn: &Transaction,
        rules: &LevelRules,
        session: &SessionState,
        planner: &Planner,
    ) -> Arc<Footprint> {
        if let Some(known) = self.footprints.get(&txn.id) {
            return known.clone();
        }
        let footprint = Arc::new(self.reach(txn, rules, session, planner));
        self.footprints.insert(txn.id, footprint.clone());
        footprint
    }

    /// Where a transaction may read and write. What a routine does depends on what it finds: it is run on everything
    /// that it can find here, as far as that explains its answer, if anything does.
    pub fn reach(
        &self,
        txn: &Transaction,
        rules: &LevelRules,
        session: &SessionState,
        planner: &Planner,
    ) -> Footprint {
        let chooser = RefCell::new(Chooser::default());
        let scene = self.scene(planner, None);
        let attempt = run::run(txn, rules, &scene, session, &chooser, Heed::Believed);
        let footprint = || Footprint::new(txn, &attempt, &self.store);
        let begun = footprint();
        if !attempt.calls {
            return begun;
        }
        // Where the answer says what was found, another choice leads to the same place.
        let open = chooser
            .borrow()
            .open_among(|point| !attempt.pinned.contains(&point));
        let written = &attempt.may_have_written;
        let is_wide = !written.is_empty() && begun.is_wild_in(written);
        if open == 0 && !is_wide {
            return begun;
        }
        let ways = |heed, begun| self.ways(txn, rules, session, planner, heed, begun);
        let is_explained = attempt.wrong.is_none() && !chooser.borrow().is_contradiction();
        let begun = (chooser, begun);
        let found = match open {
            0 => None,
            _ if is_explained => ways(Heed::UntilWrong, Some(begun)),
            _ => {
                let anyway = || (open <= OPEN_MAX && !is_wide).then(|| ways(Heed::Believed, Some(begun)));
                ways(Heed::UntilWrong, None).or_else(|| anyway().flatten())
            }
        };
        found.unwrap_or_else(|| {
            let is_through = attempt.judged.iter().all(Option::is_some);
            let read = attempt.may_have_read.as_deref().filter(|_| is_through);
            let mut footprint = footprint();
            footprint.run_anywhere(&attempt.may_have_written, read);
            footprint
        })
    }

    /// Where it is on all the ways that it can go, the first of which may have `begun`, or on those only that explain
    /// its answers. `None` if there are too many, or none.
    fn ways(
        &self,
        txn: &Transaction,
        rules: &LevelRules,
        session: &SessionState,
        planner: &Planner,
        heed: Heed,
        begun: Option<(RefCell<Chooser>, Footprint)>,
    ) -> Option<Footprint> {
        let scene = self.scene(planner, None);
        let (chooser, mut footprint) = begun.map_or_else(Default::default, |(chooser, f)| (chooser, Some(f)));
        let mut ways = usize::from(footprint.is_some());
        for _ in 0..REACH_RUNS_MAX {
            if footprint.is_some() && !chooser.borrow_mut().next() {
                return footprint.filter(|_| ways > 0);
            }
            let attempt = run::run(txn, rules, &scene, session, &chooser, heed);
            let is_over = chooser.borrow().is_over();
            ways += usize::from((heed == Heed::Believed || attempt.wrong.is_none()) && !is_over);
            if ways > WAYS_MAX {
                return None;
            }
            let on_this = Footprint::new(txn, &attempt, &self.store);
            match &mut footprint {
                Some(all) => all.join(on_this),
                None => footprint = Some(on_this),
            }
        }
        None
    }

    /// Applies what a transaction wrote.
    pub fn apply(
        &mut self,
        txn: &Arc<Transaction>,
        attempt: &Attempt,
        births: &mut Births,
    ) -> Option<CommitId> {
        self.footprints.remove(&txn.id);
        if !self.footprints.is_empty() && !attempt.overlay.is_empty() {
            let own = Footprint::new(txn, attempt, &self.store);
            self.footprints
                .retain(|_, other| !other.is_outdated_by(&own) && !own.beyond_rows);
        }
        let commit = apply::apply(txn, &attempt.overlay, &mut self.store, &mut self.order, births);
        if births.remembers
            && let Some(made) = commit.and_then(|c| self.order.get(c))
        {
            self.changed.extend(made.rows.iter().copied());
        }
        if let Some(shared) = self.shared.remove(&txn.id)
            && let Some(commit) = commit
        {
            self.order.lies_in(commit, shared.window);
        }
        let firsts: Vec<TxnId> = self
            .firsts
            .extract_if(.., |(_, next)| *next == txn.id)
            .map(|(first, _)| first)
            .collect();
        for first in firsts {
            if let (Some(first), Some(next)) = (self.commit_by(first), commit) {
                self.order.precede(first, next);
            }
        }
        if let Some(at) = self.blended.iter().position(|b| *b == txn.id) {
            self.blended.remove(at);
            self.soften(txn, attempt, commit);
        }
        commit
    }

    /// Writers do the same as `first`, and are placed after it: of each two, the first to commit did so no later than
    /// either window ends, the second no earlier than either begins.
    pub fn share_windows(&mut self, first: &Transaction, alike: &[Arc<Transaction>]) {
        for next in alike {
            let window = |txn: &Transaction| {
                let shared = self.shared.get(&txn.id);
                shared.map_or(txn.end.window(), |shared| shared.window)
            };
            let (a, b) = (window(first), window(next));
            let earlier = Window::new(a.sent.min(b.sent), a.done.min(b.done));
            let later = Window::new(a.sent.max(b.sent), a.done.max(b.done));
            for (txn, window) in [(first, earlier), (&**next, later)] {
                let own = txn.end.window();
                self.shared.insert(txn.id, Shared { window, own });
            }
        }
    }

    /// Keeps what an explanation says about the order of commits, and what its answers taught.
    pub fn record(
        &mut self,
        attempt: &Attempt,
        decisions: &[Decision],
        facts: &[Decision],
        births: &mut Births,
        witness: impl FnOnce() -> Member,
    ) {
        if decisions.is_empty() {
            let mut refused: Vec<TableId> = Vec::new();
            for lesson in &attempt.lessons {
                // Where a row was seen that cannot be kept, it is not known what else there is.
                if let Lesson::Absent { table, .. } = lesson
                    && refused.contains(table)
                {
                    continue;
                }
                match apply::learn(&mut self.store, &self.order, lesson, births) {
                    Learnt::Adopted(about) => self.changed.extend(about.filter(|_| births.remembers)),
                    Learnt::Refused => refused.push(lesson.table()),
                }
            }
            return;
        }
        // Where it was a matter of choice which version was seen, nothing is learned about it.
        if facts.is_empty() {
            return;
        }
        let witness = Arc::new(witness());
        for d in facts {
            let Some((_, window)) = attempt
                .windows
                .iter()
                .find(|(p, _)| *p == d.point || d.point.is_inside(*p))
            else {
                continue;
            };
            if d.visible {
                self.order.seen_by(d.commit, window.done, &witness);
            } else {
                self.order.unseen_by(d.commit, window.sent, &witness);
            }
        }
        for seen in facts.iter().filter(|d| d.visible) {
            for unseen in facts.iter().filter(|d| !d.visible && d.point >= seen.point) {
                self.order.precede(seen.commit, unseen.commit);
            }
        }
    }

    /// What a wrong answer read is unknown until it is seen again.
    pub fn unlearn(&mut self, txn: &Transaction, reads: &[StepReads], step: usize) {
        let until = txn.end.window().done;
        for touch in reads.iter().filter(|r| r.step == step).flat_map(|r| &r.touches) {
            apply::unlearn(&mut self.store, touch, until);
        }
    }

    /// What a step read is unknown until it is seen again, as far as it was guessed.
    pub fn unlearn_guesses(&mut self, txn: &Transaction, reads: &[StepReads], step: usize) {
        let (sent, until) = (txn.sent(), txn.end.window().done);
        for touch in reads.iter().filter(|r| r.step == step).flat_map(|r| &r.touches) {
            if run::is_guessed([touch], &self.store, sent) {
                match touch {
                    Touch::Key {
                        table, columns, key, ..
                    } if !self.store.table_mut(*table).is_row_guessed_at(columns, key, sent) => {
                        self.unlearn_cells(*table, columns, key, until);
                    }
                    _ => apply::unlearn(&mut self.store, touch, until),
                }
            }
        }
    }

    /// What is in the rows with this key is unknown until it is seen again.
    fn unlearn_cells(&mut self, table: TableId, columns: &[usize], key: &[Value], until: Nanos) {
        let kept = self.store.table_mut(table);
        for id in kept.candidates(columns, key) {
            kept.unlearn(id, columns);
            kept.unsettle_row(id, until);
        }
    }

    /// What a transaction wrote is a guess, since it is not known what it saw: it is unknown until it is seen.
    pub fn soften(&mut self, txn: &Transaction, attempt: &Attempt, commit: Option<CommitId>) {
        let until = txn.end.window().done;
        let mut written = attempt.may_have_written.clone();
        written.extend(attempt.overlay.tables.keys().copied());
        written.sort();
        written.dedup();
        let catalog = self.store.catalog.clone();
        for table in &attempt.astray {
            self.store.lose(*table, until);
        }
        let touches = attempt
            .reads
            .iter()
            .filter(|r| attempt.wrote.contains(&r.step))
            .flat_map(|r| r.touches.iter().map(|touch| (r.step, touch)));
        for (step, touch) in touches {
            match touch {
                Touch::Scan { table, .. } if written.contains(table) => {
                    self.store.lose(*table, until);
                }
                Touch::Key {
                    table, columns, key, ..
                } if written.contains(table) => {
                    let own = attempt.overlay.table(*table);
                    let unique = catalog.table(*table).is_some_and(|t| t.is_unique(columns));
                    // The one row of this key is there afterwards, whoever made it.
                    let stays = own.is_some_and(|own| {
                        let replaced = own.replaced.values().filter_map(|r| r.row.as_ref());
                        let mut after = replaced.chain(own.inserted.values());
                        after.any(|row| is_row_of(row, columns, key))
                    });
                    // A routine may have done something else to it than what it is thought to have done.
                    if unique && stays && !attempt.calls {
                        continue;
                    }
                    let moved = attempt.may_have_moved.contains(&(step, *table));
                    if unique && !moved {
                        // Whatever it did, whether there is such a row has not changed.
                        self.unlearn_cells(*table, columns, key, until);
                        continue;
                    }
                    let kept = self.store.table_mut(*table);
                    kept.distrust(columns, key, until);
                    for id in kept.candidates(columns, key) {
                        let told = own.is_some_and(|own| own.replaced.contains_key(&id));
                        if told && !attempt.calls {
                            continue;
                        }
                        if moved {
                            self.store.take_out_row(*table, id, columns, key, until);
                        } else {
                            let kept = self.store.table_mut(*table);
                            kept.unlearn(id, columns);
                            kept.unsettle_row(id, until);
                        }
                    }
                }
                _ => {}
            }
        }
        for table in written {
            self.store.table_mut(table).disturb(until);
            self.guess_written(table, attempt, until);
        }
        if let Some(commit) = commit {
            self.soften_rows(commit, until);
        }
        self.footprints.clear();
    }

    /// What an attempt wrote to a table had to be guessed: under the keys by which it found its rows, and their own.
    fn guess_written(&mut self, table: TableId, attempt: &Attempt, until: Nanos) {
        let writing = attempt.reads.iter().filter(|r| attempt.wrote.contains(&r.step));
        let touches: Vec<&Touch> = writing
            .flat_map(|r| &r.touches)
            .filter(|t| t.table() == table)
            .collect();
        let scanned = touches.iter().any(|touch| matches!(touch, Touch::Scan { .. }));
        let own = attempt.overlay.table(table);
        let wild = own.is_none_or(|own| own.truncated || own.havoc.is_some() || own.unseen);
        let chains = self.store.tables.get(&table);
        let before = |id: &RowId| chains.and_then(|t| t.chain(*id)).map(|c| c.versions.clone());
        let replaced = own.into_iter().flat_map(|own| &own.replaced);
        let mut rows: Vec<Row> = own
            .into_iter()
            .flat_map(|own| own.inserted.values())
            .cloned()
            .collect();
        for (id, replaced) in replaced {
            rows.extend(replaced.row.clone());
            rows.extend(before(id).into_iter().flatten().filter_map(|v| v.row));
        }
        let keys: Option<Vec<_>> = rows.iter().map(|row| self.store.key_of(table, row)).collect();
        let kept = self.store.table_mut(table);
        let Some(keys) = keys.filter(|_| !scanned && !wild && !touches.is_empty()) else {
            return kept.guess(until);
        };
        let moved = attempt.calls || attempt.may_have_moved.iter().any(|(_, moved)| *moved == table);
        for touch in touches {
            if let Touch::Key { columns, key, .. } = touch {
                kept.guess_at(columns, key, until, moved);
            }
        }
        keys.iter()
            .for_each(|(columns, key)| kept.guess_at(columns, key, until, moved));
    }

    /// What a commit changed is unknown, until somebody who came after `until` sees it.
    pub fn soften_rows(&mut self, commit: CommitId, until: Nanos) {
        let rows = self.order.get(commit).map(|c| c.rows.clone()).unwrap_or_default();
        for (table, id) in rows {
            let kept = self.store.table_mut(table);
            kept.unsettle_row(id, until);
            for gone in kept.soften(id, commit) {
                self.store.distrust(table, &gone, until);
            }
        }
    }

    /// Nothing is known of a row that somebody wrote, but its key; nor that, if it was inserted or deleted.
    pub fn unlearn_row(&mut self, table: TableId, id: RowId, own: Option<&OwnTable>, until: Nanos) {
        let replaced = own.and_then(|o| o.replaced.get(&id));
        let catalog = self.store.catalog.clone();
        let key = catalog.table(table).and_then(|t| t.primary_key());
        match replaced {
            Some(Replaced {
                row: Some(row),
                before,
                ..
            }) => {
                let columns: &[usize] = key.map_or(&[], |k| &k.columns);
                let kept = self.store.table_mut(table);
                kept.unlearn(id, columns);
                kept.unsettle_row(id, until);
                if merge::newest(self, table, id).is_none() {
                    // Somebody took it away since, or before: then it was put there again.
                    for row in [row, before] {
                        self.store.distrust(table, row, until);
                    }
                }
            }
            _ => {
                if let Some(gone) = self.store.table_mut(table).remove(id) {
                    self.store.distrust(table, &gone, until);
                }
            }
        }
    }

    /// Whether a step read where something of somebody else had to be guessed.
    pub fn is_guessed(&self, txn: &Transaction, attempt: &Attempt, step: usize) -> bool {
        let reads = attempt.reads.iter().filter(|r| r.step <= step);
        let touches: Vec<&Touch> = reads.flat_map(|r| &r.touches).collect();
        let is_read = |table: &TableId| touches.iter().any(|touch| touch.table() == *table);
        let mut written = attempt.may_have_written.iter().filter(|table| !is_read(table));
        let tables = &self.store.tables;
        run::is_guessed(touches.iter().copied(), &self.store, txn.sent())
            || written.any(|t| tables.get(t).is_some_and(|t| t.is_guessed(txn.sent())))
    }

    /// The tables that hold the rows of one that is kept: itself, or its partitions.
    pub fn leaves(&self, table: TableId) -> Vec<TableId> {
        let all = self.store.catalog.tables();
        all.into_iter()
            .filter(|t| t.storage == table && t.kind == TableKind::Table)
            .map(|t| t.id)
            .collect()
    }

    /// Whether something was lost that may be read again, and there is room to remember what happens meanwhile.
    pub fn is_lost(&self) -> bool {
        let mut tables = self.store.tables.values();
        self.order.open_len() < REMEMBERED_MAX && tables.any(|table| table.scanned() == Knowledge::Partial)
    }

    /// Tables of which something was lost that can be read again.
    pub fn lost(&self) -> Vec<TableName> {
        let tables = self.store.tables.iter();
        let lost = tables.filter(|(_, table)| table.scanned() == Knowledge::Partial);
        let leaves = lost.flat_map(|(id, _)| self.leaves(*id));
        let named = leaves.filter_map(|id| self.store.catalog.table(id));
        let mut names: Vec<TableName> = named
            .filter(|table| !table.schema.starts_with(TEMPORARY))
            .map(|table| TableName {
                schema: table.schema.clone(),
                name: table.name.clone(),
            })
            .collect();
        names.sort();
        names
    }

    /// Forgets what no snapshot from `horizon` on can ask for.
    pub fn collect(&mut self, horizon: Nanos) {
        self.taken.retain(|t| t.until >= horizon);
        self.slipped.retain(|s| !s.is_over || s.until >= horizon);
        let mut settled = Vec::new();
        self.order
            .settle(horizon, |_, commit| settled.extend_from_slice(&commit.rows));
        let (below, order) = (self.order.settled(), &self.order);
        if !self.firsts.is_empty() || !self.deciding.is_empty() {
            let kept: FxHashSet<TxnId> = order.iter().map(|(_, commit)| commit.txn.id).collect();
            self.firsts.retain(|(first, _)| kept.contains(first));
            self.deciding.retain(|deciding| kept.contains(&deciding.about));
        }
        for (table, id) in settled {
            self.store.prune(table, id, below);
        }
        for table in self.store.tables.values_mut() {
            table.clear_up(horizon);
        }
    }
}
