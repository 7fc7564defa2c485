//! Judges one transaction whose turn it is.
//!
//! In: the worlds, and a transaction. Out: its fate, and the worlds after it.
//!
//! It is placed in every world. Those in which nothing explains it are given up if another one does; a suspicion arises where
//! none does and nobody who is still to come can change that.

use super::asked::Asked;
use super::budget::Budget;
use super::place::{Placement, Task, Under, wrote_nothing};
use super::run::Attempt;
use super::world::{Explained, World};
use super::{Accusation, Ahead, Explainer, Fate, Suspect, draw, witness};
use crate::assemble::{End, Step, Transaction};
use crate::control::Control;
use crate::interpret::Difference;
use crate::sql::Planner;
use crate::state::TableId;
use crate::trace::Nanos;
use std::sync::Arc;

impl Explainer {
    /// Judges one transaction and applies what it wrote.
    pub fn judge(&mut self, txn: &Arc<Transaction>, ahead: &Ahead<'_>) -> Fate {
        let task = self.task(txn);
        if matches!(txn.end, End::Aborted(_)) {
            self.remember_aborted(txn);
        }
        self.lay_out_sequences(txn, ahead);
        self.listen(txn);
        if self.worlds.len() > 1 && self.changes_more_than_rows(&task) {
            self.become_one();
        }
        #[cfg(test)]
        txn.steps
            .iter()
            .for_each(|step| super::crash::if_told("place", &step.seen.text));
        // With many worlds, only orders that change what is found in the end make another one.
        let mut budget = self.budget(self.worlds.len() > self.limits.worlds_max / 4);
        let mut kept: Vec<World> = Vec::new();
        let mut refuted: Vec<(World, Difference, usize)> = Vec::new();
        let mut explained: Option<Arc<Explained>> = None;
        let mut undecided: Option<Attempt> = None;
        for mut world in std::mem::take(&mut self.worlds) {
            world.footprints.remove(&txn.id);
            if let Some(done) = world.take_ahead(txn.id) {
                world.stay_ahead(txn.id);
                self.leave_to_certify(&mut world, &done);
                explained.get_or_insert(done);
                kept.push(world);
                continue;
            }
            self.take_order_of_slipped(&mut world, txn);
            let before = world.take_slipped(txn.id);
            self.births.remembers |= before.is_some();
            let mut placement = self.place(world, &task, ahead, &mut budget, &Under::default());
            if let Placement::GivenUp(world) = placement {
                placement = self.place(world, &task, ahead, &mut self.budget(true), &Under::default());
            }
            match placement {
                Placement::Placed(all) => {
                    for (mut world, done) in all {
                        self.leave_to_certify(&mut world, &done);
                        explained.get_or_insert(done);
                        kept.push(world);
                    }
                }
                Placement::Nowhere(..) if before.is_some() => {}
                Placement::Nowhere(world, difference, step) => refuted.push((world, difference, step)),
                Placement::GivenUp(world) => {
                    let (world, attempt) = self.blend(world, &task, ahead);
                    undecided.get_or_insert(attempt);
                    kept.push(world);
                }
            }
            if let Some((world, done)) = before {
                explained.get_or_insert(done);
                kept.push(world);
            }
        }
        self.patience.note(undecided.is_some(), &self.limits);
        let fate = match (explained, undecided) {
            (Some(done), _) => Fate::explained(done),
            (None, Some(attempt)) => Fate::Unknown(Box::new(attempt), "too_many_orders"),
            (None, None) => Fate::Deferred,
        };
        let fate = match (refuted.is_empty(), fate) {
            (true, fate) => fate,
            (false, Fate::Deferred) => self.refute(&task, refuted, None, &mut kept, ahead),
            (false, fate) => self.refute(&task, refuted, Some(fate), &mut kept, ahead),
        };
        self.hear(&mut kept, ahead);
        self.forget_unasked(&mut kept, ahead);
        self.worlds = kept;
        match &fate {
            Fate::Explained(done, _) => self.truncated(txn, &done.attempt, ahead),
            Fate::Unknown(attempt, _) => self.truncated(txn, attempt, ahead),
            _ => {}
        }
        self.after(&task, &fate);
        fate
    }

    /// What placing one transaction is worth now.
    pub(super) fn budget(&self, lazy: bool) -> Budget {
        self.patience.limit(match lazy {
            true => Budget::lazy(&self.limits),
            false => Budget::of(&self.limits),
        })
    }

    /// TRUNCATE waits for whoever writes the table, and whoever writes it waits for TRUNCATE: which of those who were there
    /// at the same time came first is not tried, so nothing is known of the table until it was seen again.
    fn truncated(&mut self, txn: &Transaction, attempt: &Attempt, ahead: &Ahead<'_>) {
        let tables = attempt.overlay.tables.iter();
        let emptied: Vec<TableId> = tables
            .filter(|(_, own)| own.truncated)
            .map(|(id, _)| *id)
            .collect();
        if emptied.is_empty() || matches!(txn.end, End::Aborted(_)) {
            return;
        }
        let (sent, done) = (txn.sent(), txn.end.window().done);
        let upcoming = ahead.sequencer.upcoming(done);
        let others = self.worlds[0].order.iter().map(|(_, commit)| commit);
        let ended = others.filter(|commit| commit.txn.id != txn.id && commit.observed.done >= sent);
        let beside: Vec<Option<Vec<TableId>>> = upcoming
            .chain(ended.map(|commit| &commit.txn))
            .filter(|other| !matches!(other.end, End::Aborted(_)))
            .map(|other| self.tables_of(other))
            .collect();
        let is_open = !ahead.assembler.open_before(done).is_empty();
        for table in emptied {
            let is_about = |tables: &Option<Vec<TableId>>| match tables {
                Some(tables) => tables.iter().any(|named| self.catalog.storage(*named) == table),
                None => true,
            };
            if is_open || beside.iter().any(is_about) {
                self.forget_tables(&[table], done);
            }
        }
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
        let is_final = !matches!(txn.end, End::Unknown(_)) || wrote_nothing(txn, &attempt);
        if without_effect && !due && !is_final {
            // Somebody whose turn is still to come may explain it; but whoever comes may have seen what it wrote.
            for (world, ..) in refuted {
                kept.push(self.blend(world, task, ahead).0);
            }
            return fate.unwrap_or(Fate::Unknown(Box::new(attempt), "order_left_open"));
        }
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
            let is_open = |explainer: &mut Explainer, world: &mut World| {
                world.may_be_otherwise(txn, &own)
                    || explainer.may_have_slipped(world, task, &own, ahead)
                    || explainer.doubts_guess(world, task, step)
            };
            if !accused && is_open(self, &mut world) {
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
            let gone: Vec<World> = refuted.into_iter().map(|(world, ..)| world).collect();
            witness::testify(task, kept, &gone);
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
            if !matches!(txn.end, End::Aborted(_)) {
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

    /// Whether something of what a transaction read had to be guessed in a world that does not explain it: then that is
    /// unknown there, and the world may still be what happened.
    pub(super) fn doubts_guess(&self, world: &mut World, task: &Task, step: usize) -> bool {
        let sent = task.txn.sent();
        if !world.store.tables.values().any(|table| table.is_guessed(sent)) {
            return false;
        }
        let attempt = world.run_anyway(&task.txn, &task.rules, &task.session, &self.planner);
        let is_guessed = world.is_guessed(&task.txn, &attempt, step);
        if is_guessed {
            world.unlearn_guesses(&task.txn, &attempt.reads, step);
        }
        is_guessed
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
            let theirs = self.effects(&mut world, &other);
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
        if !matches!(task.txn.end, End::Aborted(_)) {
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
        self.foreseen.forget(txn.id);
        self.draw(task, fate);
        self.busy_until = self.busy_until.max(draw::over_by(txn));
        let certain = matches!(fate, Fate::Explained(done, _) if done.decisions.is_empty());
        let waiting = self.waiting.iter().rev().find(|w| w.task.txn.id == txn.id);
        let accused = waiting.and_then(|w| w.accused.as_ref());
        let anyway;
        let attempt = match (fate, accused) {
            (Fate::Explained(done, _), _) => &done.attempt,
            (Fate::Unknown(attempt, _), _) => &**attempt,
            (Fate::Suspect(accusation), _) => &accusation.attempt,
            (Fate::Deferred, Some(accusation)) => &accusation.attempt,
            (Fate::Deferred, None) => {
                // Whatever explains its answers, what it has set is set.
                let world = &self.worlds[0];
                anyway = world.run_anyway(txn, &task.rules, &task.session, &self.planner);
                &anyway
            }
        };
        if task.rules.may_read_older() && task.is_committed() {
            distrust_unwritten(&mut self.worlds, task, attempt, &self.planner);
        }
        if attempt.calls {
            self.called_at = self.busy_until;
        }
        self.unfollowed.note(txn, attempt);
        self.commits_early |= attempt.session.settings.commits_early || task.session.settings.commits_early;
        let ended = self.session_after(task, attempt, certain);
        self.go_on(txn, ended);
        let names = self.unfollowed.take_names();
        if !names.is_empty() {
            self.lose_named(&names);
        }
        self.refresh();
        if self.worlds.len() > 1 {
            self.reduce();
        } else {
            self.alone();
        }
        self.account();
    }
}

/// Where an older state may have been read, somebody who is thought to have left nothing may have written all the same, and
/// nobody would ask him again: from now on what is in those tables is a guess, unless his answers say that he wrote nothing.
fn distrust_unwritten(worlds: &mut [World], task: &Task, attempt: &Attempt, planner: &Planner) {
    for world in worlds {
        let catalog = world.store.catalog.clone();
        let may_have_written = |step: &usize| {
            let seen = &task.txn.steps[*step].seen;
            let asked = Asked::of(planner, &catalog, seen, &task.session);
            !asked.wrote_nothing(&seen.outcome)
        };
        if world.commit_of(&task.txn).is_none() && attempt.wrote.iter().any(may_have_written) {
            for table in &attempt.may_have_written {
                let storage = catalog.storage(*table);
                world.store.table_mut(storage).guess(Nanos::MAX);
            }
        }
    }
}
