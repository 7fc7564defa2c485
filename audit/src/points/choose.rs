//! Tries the places that a transaction's snapshots could have had among the open commits.
//!
//! In: questions «does this snapshot see that commit?» as the interpreter stumbles over versions whose
//! visibility the windows leave open. Out: an answer, the same for the same point, consistent with all
//! that is known of the order.
//!
//! A transaction is run again and again, each time with the next sequence of answers, until one explains
//! what was observed: a depth-first search over the choices that matter, and only those. Where nothing
//! overlaps no question is ever asked.
//!
//! Always true: answers never contradict each other or the known order, unless `is_contradiction`.

use super::order::{CommitId, Order};
use crate::trace::{Nanos, Window};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A snapshot or lock point of the transaction, in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PointId(u64);

impl PointId {
    /// The one snapshot of a transaction that has no more.
    pub const SNAPSHOT: PointId = PointId(0);

    /// Where a statement takes its snapshot.
    pub fn read(step: usize) -> PointId {
        PointId((step as u64 + 1) << 32)
    }

    /// Where it locks what it writes.
    pub fn lock(step: usize) -> PointId {
        PointId(((step as u64 + 1) << 32) | u64::from(u32::MAX))
    }

    /// The nth instant of a routine that the same statement calls.
    pub fn inside(self, nth: u32) -> PointId {
        match (nth, self) {
            (0, _) | (_, PointId::SNAPSHOT) => self,
            (nth, PointId(point)) => PointId((point >> 32 << 32) | u64::from(nth.min(u32::MAX - 1))),
        }
    }

    /// Whether this is an instant of a routine that the statement of the other point calls.
    pub fn is_inside(self, of: PointId) -> bool {
        let nth = self.0 as u32;
        nth != 0 && nth != u32::MAX && of != PointId::SNAPSHOT && self.0 >> 32 == of.0 >> 32
    }

    /// The step that a point belongs to, where every statement has its own.
    pub fn step(self) -> usize {
        (self.0 >> 32).saturating_sub(1) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub commit: CommitId,
    pub point: PointId,
    pub visible: bool,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    commit: CommitId,
    point: PointId,
    visible: bool,
    flipped: bool,
}

#[derive(Clone, Default, Debug)]
pub struct Chooser {
    script: Vec<Choice>,
    used: usize,
    decisions: Vec<Decision>,
    /// Answers that follow from others: which, and at which point.
    implied: Vec<((CommitId, PointId), PointId)>,
    contradiction: bool,
    /// Answers that are not to be chosen: somebody else has found them.
    given: BTreeMap<(CommitId, PointId), bool>,
    /// Those of them that mattered, in any run.
    used_given: BTreeMap<(CommitId, PointId), bool>,
    /// What routines have come to in earlier runs.
    come_to: FxHashSet<u64>,
    /// This run has come to where an earlier one was.
    repeated: bool,
    /// What was decided before may still be asked for: a state does not say what follows.
    looks_back: bool,
}

impl Chooser {
    /// Asks about nothing that is given.
    pub fn guided(given: BTreeMap<(CommitId, PointId), bool>) -> Chooser {
        Chooser {
            given,
            ..Chooser::default()
        }
    }

    /// Whether the point in `window` sees `commit`, which the windows leave open. `hint` is the side to try
    /// first.
    pub fn decide(
        &mut self,
        order: &Order,
        commit: CommitId,
        point: PointId,
        window: Window,
        hint: impl FnOnce() -> Option<bool>,
    ) -> bool {
        let mut forced: Option<bool> = None;
        for d in &self.decisions {
            if d.commit == commit && d.point == point {
                return d.visible;
            }
            let implied = if d.visible && d.point <= point {
                (d.commit == commit || order.must_precede(commit, d.commit)).then_some(true)
            } else if !d.visible && d.point >= point {
                (d.commit == commit || order.must_precede(d.commit, commit)).then_some(false)
            } else {
                None
            };
            if implied.is_some() {
                self.implied.push(((d.commit, d.point), point));
            }
            match (forced, implied) {
                (Some(a), Some(b)) if a != b => self.contradiction = true,
                (None, Some(_)) => forced = implied,
                _ => {}
            }
        }
        let visible = forced.unwrap_or_else(|| self.choose(order, commit, point, window, hint));
        self.decisions.push(Decision {
            commit,
            point,
            visible,
        });
        visible
    }

    fn choose(
        &mut self,
        order: &Order,
        commit: CommitId,
        point: PointId,
        window: Window,
        hint: impl FnOnce() -> Option<bool>,
    ) -> bool {
        if self.used == self.script.len() {
            let middle = || {
                order
                    .get(commit)
                    .is_none_or(|c| likely_before(c.lo, c.hi, window))
            };
            let given = self.given.get(&(commit, point)).copied();
            if let Some(visible) = given {
                self.used_given.insert((commit, point), visible);
            }
            let visible = given.or_else(hint).unwrap_or_else(middle);
            self.script.push(Choice {
                commit,
                point,
                visible,
                flipped: given.is_some(),
            });
        }
        let choice = self.script[self.used];
        self.used += 1;
        choice.visible
    }

    /// Requires an answer; false if another one was given before.
    pub fn require(
        &mut self,
        order: &Order,
        commit: CommitId,
        point: PointId,
        window: Window,
        visible: bool,
    ) -> bool {
        for d in &self.decisions {
            if d.commit == commit && d.point == point {
                return d.visible == visible;
            }
        }
        let free = self.script.len();
        let answer = self.decide(order, commit, point, window, || Some(visible));
        if let Some(choice) = self.script.get_mut(free) {
            // What is required is no choice: there is nothing to flip.
            choice.flipped = true;
        }
        answer == visible
    }

    /// What was given and asked for, in all runs together.
    pub fn used_given(&self) -> &BTreeMap<(CommitId, PointId), bool> {
        &self.used_given
    }

    /// Whether it is decided that a point sees a commit.
    pub fn is_seen_by(&self, commit: CommitId, point: PointId) -> bool {
        let mut decisions = self.decisions.iter();
        decisions.any(|d| d.commit == commit && d.visible && d.point <= point)
    }

    /// What follows in this run depends on more than the commits that were seen so far.
    pub fn looks_back(&mut self) {
        self.looks_back = true;
    }

    /// A routine that `step` calls has come to a state; whether it was there in an earlier run. All that can follow has
    /// been tried then: what was seen stays seen, what was not seen may be seen or not.
    pub fn has_come_to(&mut self, state: u64, step: usize) -> bool {
        if self.looks_back || self.contradiction {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (state, step).hash(&mut hasher);
        let earlier = self.decisions.iter().filter(|d| d.point.step() < step);
        earlier.for_each(|d| (d.commit, d.point, d.visible).hash(&mut hasher));
        let seen: BTreeSet<CommitId> = self
            .decisions
            .iter()
            .filter(|d| d.visible)
            .map(|d| d.commit)
            .collect();
        seen.hash(&mut hasher);
        let is_new = self.come_to.insert(hasher.finish());
        // As long as the choices are those of the last run, so is the state.
        self.repeated |= !is_new && self.used == self.script.len();
        self.repeated
    }

    /// Whether nothing is to be learned from this run that an earlier one has not shown.
    pub fn is_repeated(&self) -> bool {
        self.repeated
    }

    pub fn is_contradiction(&self) -> bool {
        self.contradiction
    }

    /// How many answers of this run can be changed, as far as they matter.
    pub fn open_among(&self, matters: impl Fn(PointId) -> bool) -> usize {
        let chosen = self.script.iter().take(self.used);
        let is_open = |choice: &&Choice| !choice.flipped && self.is_heard(choice, &matters);
        chosen.filter(is_open).count()
    }

    /// Whether a choice is made at a point that matters, or an answer at such a point follows from it.
    fn is_heard(&self, choice: &Choice, matters: &impl Fn(PointId) -> bool) -> bool {
        let mut implied = self.implied.iter();
        matters(choice.point)
            || implied.any(|(of, point)| *of == (choice.commit, choice.point) && matters(*point))
    }

    /// Whether nothing comes of this run: it contradicts itself, or repeats an earlier one.
    pub fn is_over(&self) -> bool {
        self.contradiction || self.repeated
    }

    /// Whether any question was asked in this run.
    pub fn has_chosen(&self) -> bool {
        !self.decisions.is_empty()
    }

    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Prepares the next run; false when every sequence of answers has been tried.
    pub fn next(&mut self) -> bool {
        self.next_among(|_| true)
    }

    /// The same, but the last answers are changed only at some points, or where answers at those points follow from them.
    pub fn next_among(&mut self, matters: impl Fn(PointId) -> bool) -> bool {
        self.script.truncate(self.used);
        self.used = 0;
        self.decisions.clear();
        self.contradiction = false;
        self.repeated = false;
        self.looks_back = false;
        while let Some(last) = self.script.pop() {
            if !last.flipped && self.is_heard(&last, &matters) {
                self.script.push(Choice {
                    visible: !last.visible,
                    flipped: true,
                    ..last
                });
                break;
            }
        }
        self.implied.clear();
        !self.script.is_empty()
    }
}

/// Which side to try first: the middle of the windows is a fair guess.
fn likely_before(lo: Nanos, hi: Nanos, window: Window) -> bool {
    lo / 2 + hi / 2 <= window.sent / 2 + window.done / 2
}
