//! Those that nothing explains yet wait for the others to have their turn.
//!
//! In: transactions that were judged. Out: the fates of those that had waited for them.

use super::budget::Budget;
use super::place::Task;
use super::session::SessionState;
use super::world::Explained;
use super::{Accusation, Explainer, Fate, Suspect, witness};
use crate::assemble::{End, Transaction};
use crate::points::CommitId;
use crate::sequence::{Key, key_of};
use crate::trace::Nanos;
use crate::verdict::TxnId;
use pgassay_rules::Level;
use pgassay_rules::profile::LevelRules;
use std::sync::Arc;

/// How long a suspicion waits for transactions that were under way at the time, on the trace's clock.
const WAIT_NS_MAX: Nanos = 5_000_000_000;

/// A transaction that is judged, or told, when the others have had their turn.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) task: Task,
    /// How it was explained in those worlds in which it was.
    explained: Option<Arc<Explained>>,
    /// It was refuted already, and only waits to be named well.
    pub(super) accused: Option<Box<Accusation>>,
    /// Judged again when everything up to here was, …
    until: Key,
    /// … and these, which were under way, have ended.
    open: Vec<TxnId>,
}

impl Waiting {
    /// Somebody else had a turn: it may be before the one that waits, unless real time tells.
    fn meet(&mut self, judged: &Arc<Transaction>) {
        let Some(accusation) = &mut self.accused else {
            return;
        };
        let beside = judged.id != self.task.txn.id && judged.sent() < self.task.txn.end.window().done;
        if beside && self.task.rules.may_read_older() && !matches!(judged.end, End::Aborted(_)) {
            accusation.later.push(judged.clone());
        }
    }
}

impl Explainer {
    pub(super) fn wait(
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
            self.foreseen.forget(txn.id);
            let fate = match w.accused {
                Some(accusation) if w.task.rules.may_read_older() && !w.open.is_empty() => {
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
            // What there was no time for may explain it.
            let difference = ways.difference.take().filter(|_| ways.complete);
            match (ways.found.pop(), difference) {
                (Some(mut way), _) => {
                    // What it did can only be told here: it was there before those that explain it were placed.
                    way.attempt.overlay = Default::default();
                    let (mut world, done) = self.adopt(world, &task, way);
                    self.leave_to_certify(&mut world, &done);
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
            (Some(done), _) => Fate::explained(done),
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
        let mut gone = Vec::new();
        for (mut world, _, step) in refuted {
            let own = world.footprint(&task.txn, &task.rules, &task.session, &self.planner);
            // What had to be guessed refutes nothing.
            let is_guess = self.doubts_guess(&mut world, &task, step);
            let is_open = world.may_be_otherwise(&task.txn, &own) || self.is_otherwise(&world, &task, &own);
            match kept.is_empty() || is_guess || is_open {
                true => kept.push(world),
                false => gone.push(world),
            }
        }
        witness::testify(&task, &mut kept, &gone);
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
}
