//! How far sequences are.
//!
//! In: transactions as they are judged. Out: what each sequence gives next, for those who draw alone.
//!
//! What is drawn is never undone, is seen at once by everybody, and may have been drawn by somebody of whom nothing is
//! recorded yet. So the next value is only known to a session that was the only one from the begin to the end of its
//! transaction: loading data is like that.
//!
//! Always true: a value that is kept is what the sequence gives after everything that was judged so far; whoever may
//! have drawn without its being known how often leaves the sequence unknown, until a key is returned to somebody alone.

use super::asked::Asked;
use super::place::Task;
use super::{Ahead, Explainer, Fate};
use crate::assemble::{End, Transaction};
use crate::sql::Kind;
use crate::state::catalog::Sequence;
use crate::state::{Catalog, TableId};
use crate::trace::{LIMBO_NS, Nanos, Outcome};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// When a transaction has ended, at the latest.
pub fn over_by(txn: &Transaction) -> Nanos {
    let end = txn.end.window();
    match end.done {
        Nanos::MAX => end.sent.saturating_add(LIMBO_NS),
        done => done,
    }
}

#[derive(Clone, Debug, Default)]
pub struct Sequences {
    next: Arc<FxHashMap<TableId, i64>>,
    /// Until then somebody who is lost may draw.
    limbo: Nanos,
}

impl Sequences {
    pub fn forget(&mut self) {
        if !self.next.is_empty() {
            self.next = Arc::default();
        }
    }

    /// How far they were when the catalog was read.
    pub fn load(&mut self, catalog: &Catalog) {
        let mut next = FxHashMap::default();
        for table in catalog.tables() {
            if let Some(sequence) = table.sequence
                && let Some(after) = sequence.last.and_then(|last| sequence.after(last))
            {
                next.insert(table.id, after);
            }
        }
        self.next = Arc::new(next);
    }
}

impl Explainer {
    /// Before a transaction is judged: if it was alone, it knows how far the sequences are.
    pub fn lay_out_sequences(&mut self, txn: &Transaction, ahead: &Ahead<'_>) {
        let known = match self.catalog.has_sequences() && self.is_alone(txn, ahead) {
            true => Some(self.sequences.next.clone()),
            false => None,
        };
        for world in &mut self.worlds {
            world.store.sequences.clone_from(&known);
        }
    }

    /// Whether everybody else had ended before it began, or began after it had ended.
    fn is_alone(&self, txn: &Transaction, ahead: &Ahead<'_>) -> bool {
        let end = txn.end.window().done;
        self.worlds.len() == 1
            && txn.sent() > self.busy_until.max(self.sequences.limbo)
            && ahead.assembler.is_alone(txn.id.session, txn.sent(), end)
            && !ahead.sequencer.upcoming(end).any(|other| other.sent() < end)
    }

    /// After a transaction was judged, and before its catalog is known to the sessions.
    pub fn draw(&mut self, task: &Task, fate: &Fate) {
        let alone = self.worlds[0].store.sequences.is_some();
        let certain = match fate {
            Fate::Explained(done, _) if self.worlds.len() == 1 && done.decisions.is_empty() => Some(done),
            _ => None,
        };
        for world in &mut self.worlds {
            world.store.sequences = None;
        }
        self.haunt(&task.txn);
        match certain {
            Some(done) if alone => {
                let overlay = &done.attempt.overlay;
                let drawn = &overlay.drawn;
                if drawn.everything || overlay.havoc_everything.is_some() {
                    self.sequences.forget();
                }
                if !drawn.from.is_empty() {
                    let known = Arc::make_mut(&mut self.sequences.next);
                    for (sequence, next) in &drawn.from {
                        match next {
                            Some(next) => known.insert(*sequence, *next),
                            None => known.remove(sequence),
                        };
                    }
                }
            }
            _ => self.draw_unseen(task),
        }
        let catalog = self.worlds[0].store.catalog.clone();
        if catalog.version() == self.catalog.version() || !catalog.has_sequences() {
            return;
        }
        let known = Arc::make_mut(&mut self.sequences.next);
        known.retain(|sequence, _| catalog.table(*sequence).is_some());
        // What it made itself nobody else has drawn from.
        let Some(done) = certain else { return };
        for table in catalog.tables() {
            if table.sequence.is_none() || self.catalog.table(table.id).is_some() {
                continue;
            }
            let drawn = done.attempt.overlay.drawn.next(table.id);
            let next = drawn.unwrap_or(table.sequence.as_ref().and_then(Sequence::first));
            known.extend(next.map(|next| (table.id, next)));
        }
    }

    /// Somebody drew, and nobody knows how often, or when.
    pub fn draw_unseen(&mut self, task: &Task) {
        if self.sequences.next.is_empty() {
            return;
        }
        let catalog = self.worlds[0].store.catalog.clone();
        let mut gone: Vec<TableId> = Vec::new();
        for step in &task.txn.steps {
            let asked = Asked::of(&self.planner, &catalog, &step.seen, &task.session);
            let planned = &asked.prepared.planned;
            let touches = &planned.touches;
            let anything = touches.draws_everything
                || touches.writes_everything
                || matches!(planned.kind, Kind::Execute { .. } | Kind::Ddl(_));
            if anything {
                return self.sequences.forget();
            }
            gone.extend(touches.draws.iter().map(|(sequence, _)| *sequence));
        }
        if !gone.is_empty() {
            Arc::make_mut(&mut self.sequences.next).retain(|sequence, _| !gone.contains(sequence));
        }
    }

    /// A statement whose client was lost may still be under way.
    pub fn haunt(&mut self, txn: &Transaction) {
        let lost = |outcome: &Outcome| matches!(outcome, Outcome::Lost);
        let end = txn.end.window();
        let is_lost = matches!(txn.end, End::Unknown(_)) || end.done == Nanos::MAX;
        if is_lost || txn.steps.iter().any(|step| lost(&step.seen.outcome)) {
            self.sequences.forget();
            let last = txn.steps.iter().map(|step| step.seen.window.sent).max();
            let until = last.unwrap_or(end.sent).saturating_add(LIMBO_NS);
            self.sequences.limbo = self.sequences.limbo.max(until);
        }
    }
}
