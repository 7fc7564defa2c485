//! Writers that may have slipped under somebody who has overwritten all that they left.
//!
//! In: a world, a transaction placed in it, and those who may have been quicker. Out: those of them of whom nothing is left
//! once it has written: no world is made for them until their own turn, or until somebody turns out to have seen them.
//!
//! Always true:
//!   - what is there in the end is the same with them and without them;
//!   - whoever cannot be put under the one that has overwritten him, row by row, has not slipped;
//!   - of several that have slipped under the same row one order is taken, and nobody is refuted by it.
//!
//! Example. c2's 29 was asked for before c4's 22 was committed, and answered after it:
//!
//!   ```text
//!   c4  ├ begin · set v to 22 ────── commit ┤          22 stays, whether 29 came before it or after it, if before;
//!   c2         ├ set v to 29 ───────────────────┤      whoever reads 29 meanwhile is explained by the one that has slipped
//!   ```

use super::budget::Budget;
use super::footprint::Footprint;
use super::place::{Placement, Task, Under};
use super::rivals::Then;
use super::run::is_statement_level;
use super::world::{Explained, World};
use super::{Ahead, Explainer, merge};
use crate::assemble::Transaction;
use crate::state::overlay::Overlay;
use crate::state::store::{Chain, Version};
use crate::state::{RowId, TableId};
use crate::trace::Nanos;
use crate::verdict::TxnId;
use std::sync::Arc;

/// A writer that may have come before somebody who has overwritten all that it left.
#[derive(Clone)]
pub struct Slipped {
    /// How it was explained there.
    pub writer: Arc<Explained>,
    pub under: TxnId,
    /// Its turn has come, and it is thought to have come before another one.
    pub is_over: bool,
    /// When both had ended.
    pub until: Nanos,
}

impl Slipped {
    pub fn new(writer: Arc<Explained>, under: &Transaction) -> Slipped {
        Slipped {
            until: writer.txn.end.window().done.max(under.end.window().done),
            under: under.id,
            is_over: false,
            writer,
        }
    }

    /// The rows that it wrote.
    fn rows(&self) -> impl Iterator<Item = (TableId, RowId)> + '_ {
        self.writer.attempt.overlay.replaced()
    }

    fn meets(&self, other: &Slipped) -> bool {
        self.rows().any(|row| other.rows().any(|theirs| theirs == row))
    }

    pub fn is(&self, other: &Slipped) -> bool {
        (self.writer.txn.id, self.under) == (other.writer.txn.id, other.under)
    }
}

impl World {
    /// A writer that has slipped and those others that have where it wrote, with when all of them, and those that they have
    /// slipped under, had ended; `None` if there are no others.
    pub fn crowd_of(&self, txn: TxnId) -> Option<(Vec<Arc<Transaction>>, Nanos)> {
        let of = |slipped: &&Slipped| slipped.writer.txn.id == txn;
        let own = self.slipped.iter().find(of)?;
        let beside = |slipped: &&Slipped| slipped.meets(own);
        let crowd: Vec<&Slipped> = self.slipped.iter().filter(beside).collect();
        let until = crowd.iter().map(|slipped| slipped.until).max()?;
        let mut txns: Vec<Arc<Transaction>> = crowd.iter().map(|s| s.writer.txn.clone()).collect();
        txns.sort_by_key(|txn| txn.id);
        txns.dedup_by_key(|txn| txn.id);
        (txns.len() > 1).then_some((txns, until))
    }

    /// Whether a writer may have slipped under somebody, and has not had its turn.
    pub fn may_slip(&self, txn: TxnId) -> bool {
        let mut slipped = self.slipped.iter();
        slipped.any(|slipped| slipped.writer.txn.id == txn && !slipped.is_over) && !self.is_ahead(txn)
    }

    /// A writer that was ahead has had its turn: it has slipped nowhere else.
    pub fn stay_ahead(&mut self, txn: TxnId) {
        self.slipped
            .retain(|slipped| slipped.is_over || slipped.writer.txn.id != txn);
    }

    /// The world in which a writer came before the last of those that have overwritten all that it left; in this one it comes
    /// after them.
    pub fn take_slipped(&mut self, txn: TxnId) -> Option<(World, Arc<Explained>)> {
        let is_own = |slipped: &Slipped| slipped.writer.txn.id == txn;
        let last = self.slipped.iter().rev().find(|slipped| is_own(slipped))?.clone();
        let mut world = self.clone();
        let over = self.slipped.iter().filter(|slipped| is_own(slipped));
        self.firsts.extend(over.map(|slipped| (slipped.under, txn)));
        self.slipped.retain(|slipped| !is_own(slipped));
        world.slipped.retain(|slipped| !slipped.is(&last));
        let others = world.slipped.iter_mut().filter(|slipped| is_own(slipped));
        others.for_each(|slipped| slipped.is_over = true);
        world.put_under(&last);
        Some((world, last.writer))
    }

    /// The world in which a writer was ahead of its turn, and under somebody who has overwritten all that it left.
    pub fn with_slipped(&self, txn: TxnId) -> Option<World> {
        let (mut before, explained) = self.clone().take_slipped(txn)?;
        before.ahead.push(explained);
        Some(before)
    }

    /// Whether somebody may have seen what several left that have slipped under the same row: which is what, nobody tried.
    pub fn may_show_crowd(&self, txn: &Transaction, own: &Footprint) -> bool {
        let beside: Vec<&Slipped> = self.slipped.iter().filter(|s| s.until >= txn.sent()).collect();
        let in_crowd = |slipped: &&&Slipped| {
            let id = slipped.writer.txn.id;
            let mut others = beside.iter().filter(|other| other.writer.txn.id != id);
            others.any(|other| slipped.meets(other))
        };
        beside.iter().filter(in_crowd).any(|slipped| {
            let Explained { txn, attempt, .. } = &*slipped.writer;
            own.heeds(&Footprint::new(txn, attempt, &self.store))
        })
    }

    /// The world in which all those came before who may have, that were there when somebody was sent; `None` if there are none.
    pub fn otherwise(&self, txn: &Transaction) -> Option<World> {
        let beside = |slipped: &&Slipped| slipped.until >= txn.sent() && slipped.writer.txn.id != txn.id;
        let slipped: Vec<Slipped> = self.slipped.iter().filter(beside).cloned().collect();
        if slipped.is_empty() {
            return None;
        }
        let mut world = self.clone();
        slipped.iter().for_each(|slipped| world.put_under(slipped));
        Some(world)
    }

    /// Whether each row that somebody wrote has a version here that `over` has made, so that it could be put under that; and
    /// whether there is nothing else that he wrote.
    pub fn has_overwritten(&self, over: &Transaction, written: &Overlay) -> bool {
        let Some(over) = self.commit_of(over).filter(|_| written.only_replaces()) else {
            return false;
        };
        let is_over = |chain: &Chain| chain.versions.iter().any(|v| v.commit == over);
        let mut chains = written
            .replaced()
            .map(|(table, id)| merge::chain(self, table, id));
        chains.all(|chain| chain.is_some_and(is_over))
    }

    /// Puts what a writer left under what somebody has overwritten it with.
    fn put_under(&mut self, slipped: &Slipped) {
        let Some(over) = self.commit_by(slipped.under) else {
            return;
        };
        let writer = &slipped.writer;
        let own = self.order.next_id();
        let mut rows = Vec::new();
        for (table, written) in &writer.attempt.overlay.tables {
            for (id, replaced) in &written.replaced {
                let version = Version::new(own, replaced.row.clone());
                self.store.push_under(*table, *id, over, version);
                rows.push((*table, *id));
            }
        }
        let window = writer.txn.end.window();
        self.changed.extend(rows.iter().copied());
        self.order
            .push(window.sent, window.done, false, writer.txn.clone(), rows);
        self.order.precede(own, over);
    }
}

impl Explainer {
    /// Those of the rivals of whom nothing is left once a transaction has written, with what explains them before it; and the
    /// others. Where an answer that was given already shows that one of them came before, all are others.
    pub(super) fn overwritten(
        &mut self,
        world: &mut World,
        task: &Task,
        rivals: Vec<Task>,
        ahead: &Ahead<'_>,
        budget: &mut Budget,
    ) -> (Vec<Slipped>, Vec<Task>) {
        let is_apt = |task: &Task| is_statement_level(&task.rules) && task.rules.mutual_exclusion;
        if self.claims_serial || !is_apt(task) || !rivals.iter().any(is_apt) {
            return (Vec::new(), rivals);
        }
        let Then::One(mut after) = self.then(world, task, budget) else {
            return (Vec::new(), rivals);
        };
        let mut slipped = Vec::new();
        for rival in rivals.iter().filter(|rival| is_apt(rival)) {
            let mut ways = self.explanations(world, rival, None, budget);
            let (Some(way), true, true) = (ways.found.pop(), ways.found.is_empty(), ways.complete) else {
                continue;
            };
            let (before, explained) = self.adopt(world.sketch(), rival, way);
            if !after.has_overwritten(&task.txn, &explained.attempt.overlay) {
                continue;
            }
            if let Then::One(both) = self.then(&before, task, budget)
                && merge::same_after(&both, &after)
            {
                slipped.push((rival, explained));
            }
        }
        after.ahead = world.ahead.clone();
        if slipped.is_empty() || self.is_contradicted_by_any(&mut after, ahead) {
            return (Vec::new(), rivals);
        }
        let slipped: Vec<Slipped> = slipped
            .into_iter()
            .map(|(_, writer)| Slipped::new(writer, &task.txn))
            .collect();
        let is_left = |rival: &Task| {
            !slipped
                .iter()
                .any(|slipped| slipped.writer.txn.id == rival.txn.id)
        };
        let left = rivals.into_iter().filter(is_left).collect();
        (slipped, left)
    }

    /// Where others, too, have slipped under who has overwritten the rows of a writer, one order of all of them is taken, with
    /// what each of them would have left by itself.
    pub(super) fn take_order_of_slipped(&mut self, world: &mut World, txn: &Arc<Transaction>) {
        let Some((crowd, until)) = world.crowd_of(txn.id) else {
            return;
        };
        for other in crowd {
            let task = self.task(&other);
            let footprint = world.footprint(&task.txn, &task.rules, &task.session, &self.planner);
            self.take_one_place(world, &task, footprint, until);
        }
    }

    /// Whether a transaction that nothing explains in a world is explained if those came before others who may have.
    pub(super) fn may_have_slipped(
        &mut self,
        world: &World,
        task: &Task,
        own: &Footprint,
        ahead: &Ahead<'_>,
    ) -> bool {
        if world.may_show_crowd(&task.txn, own) {
            return true;
        }
        let Some(other) = world.otherwise(&task.txn) else {
            return false;
        };
        self.births.remembers = true;
        let placement = self.place(other, task, ahead, &mut self.budget(true), &Under::default());
        !matches!(placement, Placement::Nowhere(..))
    }

    /// Whether a reader is explained in a world if those came before others who may have.
    pub(super) fn is_otherwise(&self, world: &World, task: &Task, own: &Footprint) -> bool {
        if world.may_show_crowd(&task.txn, own) {
            return true;
        }
        world.otherwise(&task.txn).is_some_and(|other| {
            let ways = self.explanations(&other, task, None, &mut Budget::of(&self.limits));
            !ways.is_stuck()
        })
    }
}
