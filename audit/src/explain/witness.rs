//! Whose answers have decided between worlds, and about which writers.
//!
//! In: worlds that are kept, and those that an answer gave up for them. Out: on every commit in which they differ, the
//! transaction that told them apart.
//!
//! A proof looks at few transactions. If it is about writers whose order somebody else has decided, that one must be among
//! them, or the proof finds the other order:
//!
//!   ```text
//!   t1  begin        ├─ x := 7 ──────┤ commit
//!   t2       ├─ x := 5 ─────────────────────────┤        was it before t1, or after?
//!   t3              ├ x = 5 ┤                            before: t3 has seen it while t1 was not through
//!   t4                                            ├ x = 5 ┤   wrong, but only t3 shows it
//!   ```
//!
//! Always true: a witness only adds what was observed to a proof; what it says is decided there again.

use super::merge::{self, HasWorld};
use super::place::Task;
use super::world::World;
use crate::points::CommitId;
use crate::verdict::TxnId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Somebody whose turn is still to come has decided about a writer.
#[derive(Clone, Copy, PartialEq)]
pub struct Deciding {
    pub by: TxnId,
    pub about: TxnId,
}

/// So many are remembered of one world.
const DECIDING_MAX: usize = 64;

/// A transaction whose turn it is, or was, is the reason why some worlds are given up.
pub(super) fn testify(task: &Task, kept: &mut [World], gone: &[World]) {
    for world in kept {
        let about = told_apart(world, gone.iter());
        world.decided_by(task, about);
    }
}

/// The same, of somebody whose turn is still to come.
pub(super) fn testify_early<T: HasWorld>(by: TxnId, kept: &mut [T], gone: &mut [T]) {
    for any in kept {
        let world = any.world_mut();
        for about in told_apart(world, gone.iter_mut().map(|any| &*any.world_mut())) {
            world.expect_witness(Deciding { by, about });
        }
    }
}

impl World {
    /// Its turn has come: what it has decided is kept with the commits that it is about.
    pub(super) fn take_witness(&mut self, task: &Task) {
        let mut about = BTreeSet::new();
        self.deciding.retain(|deciding| {
            let is_own = deciding.by == task.txn.id;
            about.extend(is_own.then_some(deciding.about));
            !is_own
        });
        self.decided_by(task, about);
    }

    pub(super) fn expect_witness(&mut self, deciding: Deciding) {
        if self.deciding.len() < DECIDING_MAX && !self.deciding.contains(&deciding) {
            self.deciding.push(deciding);
        }
    }

    fn decided_by(&mut self, task: &Task, mut about: BTreeSet<TxnId>) {
        about.remove(&task.txn.id);
        if about.is_empty() {
            return;
        }
        let witness = Arc::new(task.member(self.commit_of(&task.txn)));
        let commits = self.order.iter().filter(|(_, c)| about.contains(&c.txn.id));
        let concerned: Vec<CommitId> = commits.map(|(id, _)| id).collect();
        for commit in concerned {
            self.order.decided_by(commit, &witness);
        }
    }
}

/// Those who wrote the rows in which a world differs from others, and are not forgotten.
fn told_apart<'a>(world: &World, others: impl Iterator<Item = &'a World>) -> BTreeSet<TxnId> {
    others
        .flat_map(|other| merge::writers_apart(world, other))
        .collect()
}
