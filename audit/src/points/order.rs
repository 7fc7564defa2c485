//! The commits whose point may still be open, and what is known of their order.
//!
//! In: commits with their windows; facts «this one came before that one». Out: whether one commit must
//! precede another.
//!
//! Always true:
//!   - a commit's point lies between `lo` and `hi`; both only move inwards;
//!   - facts that the bounds imply are not kept as edges;
//!   - commits below [`Order::settled`] are visible to every snapshot that can still be asked about.
//!
//! Points exist for a set of facts iff the facts are acyclic and no bound is crossed; a cycle can only
//! run among points that share an instant, so everything older than the horizon can be forgotten.

use super::queue::Queue;
use crate::assemble::Transaction;
use crate::reference::Member;
use crate::state::{RowId, TableId};
use crate::trace::{Nanos, Window};
use crate::verdict::TxnId;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// Commits in the order of the audit; 0 is what was there before the trace began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(pub u64);

impl CommitId {
    /// The initial state.
    pub const INITIAL: CommitId = CommitId(0);
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub lo: Nanos,
    pub hi: Nanos,
    /// Where it lies as observed; answers may say more.
    pub observed: Window,
    /// Nobody knows whether it committed at all.
    pub maybe: bool,
    pub txn: Arc<Transaction>,
    /// Rows it wrote, for garbage collection.
    pub rows: Vec<(TableId, RowId)>,
    /// Transactions whose answers say something about where its point lies.
    pub witnesses: Vec<Arc<Member>>,
    /// Transactions whose answers have decided between orders of this one and others.
    pub deciders: Vec<Arc<Member>>,
    /// Commits known to come later although the windows overlap.
    after: SmallVec<[CommitId; 2]>,
}

/// Witnesses of one commit that are remembered.
const WITNESSES_MAX: usize = 16;

impl Commit {
    /// Whether nothing is known of it but what was observed.
    fn is_plain(&self) -> bool {
        let bounds = (self.observed.sent, self.observed.done);
        (self.lo, self.hi) == bounds && self.after.is_empty() && self.witnesses.is_empty()
    }
}

fn hear(witnesses: &mut Vec<Arc<Member>>, witness: &Arc<Member>) {
    if witnesses.len() < WITNESSES_MAX && !witnesses.iter().any(|w| w.txn.id == witness.txn.id) {
        witnesses.push(witness.clone());
    }
}

#[derive(Clone, Debug)]
pub struct Order {
    /// The commit that `open[0]` is.
    first: u64,
    open: Queue<Arc<Commit>>,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            first: 1,
            open: Queue::default(),
        }
    }
}

impl Order {
    pub fn push(
        &mut self,
        lo: Nanos,
        hi: Nanos,
        maybe: bool,
        txn: Arc<Transaction>,
        rows: Vec<(TableId, RowId)>,
    ) -> CommitId {
        let id = CommitId(self.first + self.open.len() as u64);
        self.open.push_back(Arc::new(Commit {
            lo,
            hi,
            observed: Window::new(lo, hi),
            maybe,
            txn,
            rows,
            witnesses: Vec::new(),
            deciders: Vec::new(),
            after: SmallVec::new(),
        }));
        id
    }

    /// The same commits with their windows as observed, and nothing else known of their order.
    pub fn without_facts(&self) -> Order {
        let mut open = Queue::default();
        for c in self.open.iter() {
            open.push_back(Arc::new(Commit {
                lo: c.observed.sent,
                hi: c.observed.done,
                observed: c.observed,
                maybe: c.maybe,
                txn: c.txn.clone(),
                rows: Vec::new(),
                witnesses: Vec::new(),
                deciders: Vec::new(),
                after: SmallVec::new(),
            }));
        }
        Order {
            first: self.first,
            open,
        }
    }

    /// The commit lies in this window, not in the one that was observed for its transaction.
    pub fn lies_in(&mut self, id: CommitId, window: Window) {
        if let Some(commit) = self.get_mut(id) {
            commit.observed = window;
            (commit.lo, commit.hi) = (window.sent, window.done);
        }
    }

    /// Every commit lies where it may lie here, or where it may lie in another order of the same commits.
    pub fn widen(&mut self, other: &Order) {
        let moved: FxHashSet<TxnId> = self.moved().chain(other.moved()).collect();
        if moved.is_empty() {
            return;
        }
        let of_moved = |order: &Order| -> FxHashMap<TxnId, (CommitId, Window, Nanos, Nanos)> {
            let commits = order.iter().filter(|(_, commit)| moved.contains(&commit.txn.id));
            let place = |(id, c): (CommitId, &Commit)| (c.txn.id, (id, c.observed, c.lo, c.hi));
            commits.map(place).collect()
        };
        let theirs = of_moved(other);
        for (txn, (id, observed, ..)) in of_moved(self) {
            let Some((_, other, lo, hi)) = theirs.get(&txn) else {
                continue;
            };
            if observed != *other
                && let Some(commit) = self.get_mut(id)
            {
                commit.observed = observed.hull(*other);
                (commit.lo, commit.hi) = (commit.lo.min(*lo), commit.hi.max(*hi));
            }
        }
    }

    /// Those who lie in another window than that of their end.
    fn moved(&self) -> impl Iterator<Item = TxnId> + '_ {
        let moved = |commit: &&Arc<Commit>| commit.observed != commit.txn.end.window();
        self.open.iter().filter(moved).map(|commit| commit.txn.id)
    }

    /// Whether both know the same of the same commits, whatever their ids.
    pub fn same_facts(&self, other: &Order) -> bool {
        let name = |order: &Order, id: CommitId| order.get(id).map(|c| c.txn.id);
        // Of the others nothing is known but the window of their transaction.
        let tells = |c: &&Arc<Commit>| !c.is_plain() || c.observed != c.txn.end.window();
        let facts = |order: &Order| {
            let mut all: Vec<_> = order
                .open
                .iter()
                .filter(tells)
                .map(|c| {
                    let mut after: Vec<_> = c.after.iter().filter_map(|id| name(order, *id)).collect();
                    after.sort();
                    (c.txn.id, c.lo, c.hi, after)
                })
                .collect();
            all.sort();
            all
        };
        facts(self) == facts(other)
    }

    /// Forgets what answers said about the order; that of writers of the same row is in their chain.
    pub fn forget_facts(&mut self) {
        for at in 0..self.open.len() {
            if self.open.get(at).is_none_or(|commit| commit.is_plain()) {
                continue;
            }
            let Some(commit) = self.open.get_mut(at).map(Arc::make_mut) else {
                continue;
            };
            (commit.lo, commit.hi) = (commit.observed.sent, commit.observed.done);
            commit.after.clear();
            commit.witnesses.clear();
        }
    }

    /// The id that the next commit will have.
    pub fn next_id(&self) -> CommitId {
        CommitId(self.first + self.open.len() as u64)
    }

    /// `before` wrote a row that `next`, which is about to be pushed, overwrote.
    pub fn remember(&mut self, before: CommitId, next: CommitId) {
        if let Some(commit) = self.get_mut(before)
            && !commit.maybe
            && !commit.after.contains(&next)
        {
            commit.after.push(next);
        }
    }

    /// Everything below this is visible to everyone.
    pub fn settled(&self) -> CommitId {
        CommitId(self.first)
    }

    pub fn get(&self, id: CommitId) -> Option<&Commit> {
        id.0.checked_sub(self.first)
            .and_then(|at| self.open.get(at as usize))
            .map(|c| &**c)
    }

    fn get_mut(&mut self, id: CommitId) -> Option<&mut Commit> {
        id.0.checked_sub(self.first)
            .and_then(|at| self.open.get_mut(at as usize))
            .map(Arc::make_mut)
    }

    pub fn open_len(&self) -> usize {
        self.open.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (CommitId, &Commit)> {
        let id = |at: usize| CommitId(self.first + at as u64);
        (0..self.open.len()).filter_map(move |at| Some((id(at), &**self.open.get(at)?)))
    }

    /// Whether `a` became visible before `b` in every order that is still possible.
    pub fn must_precede(&self, a: CommitId, b: CommitId) -> bool {
        if a == b {
            return false;
        }
        let (Some(from), Some(to)) = (self.get(a), self.get(b)) else {
            return a < b && self.get(b).is_some();
        };
        if from.hi < to.lo {
            return true;
        }
        if from.after.is_empty() || from.lo > to.hi {
            return false;
        }
        let mut seen: SmallVec<[CommitId; 16]> = SmallVec::new();
        let mut stack: SmallVec<[CommitId; 16]> = from.after.iter().copied().collect();
        while let Some(next) = stack.pop() {
            if next == b {
                return true;
            }
            if seen.contains(&next) {
                continue;
            }
            seen.push(next);
            let Some(commit) = self.get(next) else { continue };
            if commit.hi < to.lo {
                return true;
            }
            // Whoever comes after this one came after `b`, too.
            if commit.lo <= to.hi {
                stack.extend(commit.after.iter().copied());
            }
        }
        false
    }

    /// Records that `a` came before `b`.
    pub fn precede(&mut self, a: CommitId, b: CommitId) {
        let (Some(from), Some(to)) = (self.get(a), self.get(b)) else {
            return;
        };
        if from.hi < to.lo {
            return;
        }
        let (lo, hi) = (from.lo, to.hi);
        if let Some(from) = self.get_mut(a) {
            if !from.after.contains(&b) {
                from.after.push(b);
            }
            from.hi = from.hi.min(hi);
        }
        if let Some(to) = self.get_mut(b) {
            to.lo = to.lo.max(lo);
        }
    }

    /// A snapshot taken at or before `done` saw it.
    pub fn seen_by(&mut self, id: CommitId, done: Nanos, witness: &Arc<Member>) {
        if let Some(commit) = self.get_mut(id) {
            hear(&mut commit.witnesses, witness);
            commit.hi = commit.hi.min(done);
            commit.maybe = false;
        }
    }

    /// A snapshot taken at or after `sent` did not see it.
    pub fn unseen_by(&mut self, id: CommitId, sent: Nanos, witness: &Arc<Member>) {
        if let Some(commit) = self.get_mut(id) {
            hear(&mut commit.witnesses, witness);
            commit.lo = commit.lo.max(sent);
        }
    }

    /// Somebody's answers have decided between orders of this commit and others.
    pub fn decided_by(&mut self, id: CommitId, witness: &Arc<Member>) {
        if let Some(commit) = self.get_mut(id) {
            hear(&mut commit.deciders, witness);
        }
    }

    /// Drops the leading commits that every snapshot from `horizon` on must see.
    pub fn settle(&mut self, horizon: Nanos, mut each: impl FnMut(CommitId, &Commit)) {
        while self.open.get(0).is_some_and(|c| c.observed.done < horizon)
            && let Some(commit) = self.open.pop_front()
        {
            let id = CommitId(self.first);
            self.first += 1;
            each(id, &commit);
        }
    }
}
