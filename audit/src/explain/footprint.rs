//! Where a transaction reads and writes: enough to tell whether the order of two of them can matter.
//!
//! In: an attempt. Out: for another transaction, whether it could have changed what this one did, had it come
//! first.

use super::merge::same_row;
use super::run::{Attempt, SNAPSHOT};
use crate::assemble::Transaction;
use crate::interpret::Touch;
use crate::state::store::Store;
use crate::state::view::has_key;
use crate::state::{Row, RowId, TableId};
use crate::trace::{Nanos, Outcome};
use crate::value::Value;
use crate::value::compare::same_cells;
use std::sync::Arc;

/// One row that is written, and the step that does it.
#[derive(Debug)]
struct Written {
    step: usize,
    table: TableId,
    /// `None`: a new row.
    id: Option<RowId>,
    before: Option<Row>,
    after: Option<Row>,
}

#[derive(Debug, Default)]
pub struct Footprint {
    touches: Vec<(usize, Touch)>,
    written: Vec<Written>,
    /// Where rows that nobody has seen may have been written.
    unseen: Vec<(usize, Touch)>,
    /// Steps that may have written.
    writing: Vec<usize>,
    /// Tables of which it is not known what was written.
    wild: Vec<TableId>,
    /// Nobody knows which tables it wrote.
    anything: bool,
    /// It changes more than rows: the catalog, the session, or nobody knows what.
    pub beyond_rows: bool,
    /// Where the one snapshot lies, if there is only one.
    snapshot_done: Option<Nanos>,
    /// No answer of it shows a row: only how many were written.
    pub is_blind: bool,
    /// It called routines that may write.
    pub calls: bool,
}

impl Footprint {
    pub fn new(txn: &Transaction, attempt: &Attempt, store: &Store) -> Footprint {
        let overlay = &attempt.overlay;
        let vague = txn.vague && !attempt.wrote.is_empty();
        let anything = vague || overlay.catalog.is_some() || overlay.havoc_everything.is_some();
        let mut footprint = Footprint {
            anything,
            calls: attempt.calls,
            beyond_rows: anything || attempt.changes_session,
            writing: attempt.wrote.clone(),
            snapshot_done: attempt
                .windows
                .iter()
                .find(|(p, _)| *p == SNAPSHOT)
                .map(|(_, w)| w.done),
            is_blind: txn.steps.iter().all(|s| match &s.seen.outcome {
                Outcome::Answer(answer) => answer.columns.is_empty(),
                _ => false,
            }),
            ..Footprint::default()
        };
        for read in &attempt.reads {
            let touches = read.touches.iter().map(|t| (read.step, t.clone()));
            footprint.touches.extend(touches);
        }
        for (table, own) in &attempt.overlay.tables {
            if own.truncated || own.havoc.is_some() {
                footprint.wild.push(*table);
            } else if own.unseen || !own.absent.is_empty() {
                let touches = footprint.touches.iter();
                let there = touches.filter(|(step, t)| attempt.wrote.contains(step) && t.table() == *table);
                footprint.unseen.extend(there.cloned().collect::<Vec<_>>());
            }
            for (id, replaced) in &own.replaced {
                let chain = store.tables.get(table).and_then(|t| t.chain(*id));
                footprint.written.push(Written {
                    step: replaced.step,
                    table: *table,
                    id: Some(*id),
                    before: chain.and_then(|c| c.versions.last()).and_then(|v| v.row.clone()),
                    after: replaced.row.clone(),
                });
            }
            for row in own.inserted.values() {
                footprint.written.push(Written {
                    step: attempt.wrote.last().copied().unwrap_or(0),
                    table: *table,
                    id: None,
                    before: None,
                    after: Some(row.clone()),
                });
            }
        }
        footprint
    }

    /// What one of two runs of the same transaction reads or writes.
    pub fn join(&mut self, other: Footprint) {
        self.touches.extend(other.touches);
        self.written.extend(other.written);
        self.unseen.extend(other.unseen);
        for step in other.writing {
            if !self.writing.contains(&step) {
                self.writing.push(step);
            }
        }
        self.run_wild(&other.wild);
        self.anything |= other.anything;
        self.beyond_rows |= other.beyond_rows;
        self.snapshot_done = self.snapshot_done.max(other.snapshot_done);
        self.is_blind &= other.is_blind;
        self.calls |= other.calls;
    }

    /// Nobody knows what it writes there.
    pub fn run_wild(&mut self, tables: &[TableId]) {
        for table in tables {
            if !self.wild.contains(table) {
                self.wild.push(*table);
            }
        }
    }

    /// Whether both write the same, so that nobody can tell by whom of them something was written.
    pub fn writes_same(&self, other: &Footprint) -> bool {
        let same = |(a, b): (&Written, &Written)| {
            (a.table, a.id) == (b.table, b.id)
                && same_row(a.before.as_ref(), b.before.as_ref())
                && same_row(a.after.as_ref(), b.after.as_ref())
        };
        self.written.len() == other.written.len()
            && self.written.iter().zip(&other.written).all(same)
            && self.unseen.is_empty()
            && other.unseen.is_empty()
            && self.wild == other.wild
            && self.anything == other.anything
    }

    pub fn writes(&self) -> bool {
        !self.written.is_empty() || !self.unseen.is_empty() || !self.wild.is_empty() || self.beyond_rows
    }

    /// Until when a step could still find what another transaction left.
    fn until(&self, txn: &Transaction, step: usize) -> Nanos {
        let done = txn.steps.get(step).map_or(Nanos::MAX, |s| s.seen.window.done);
        self.snapshot_done.map_or(done, |snapshot| snapshot.min(done))
    }

    /// Whether `other`, sent at `sent`, would have mattered to this one, `txn`, had it committed before. With
    /// `only_effects`, to what it wrote: what its other answers show is explained already.
    pub fn depends_on(&self, txn: &Transaction, other: &Footprint, sent: Nanos, only_effects: bool) -> bool {
        let in_time = |step: usize| sent <= self.until(txn, step);
        let matters = |step: usize| !only_effects || self.writing.contains(&step);
        self.touches
            .iter()
            .any(|(step, touch)| matters(*step) && in_time(*step) && other.may_write_at(touch))
            || self
                .written
                .iter()
                .any(|own| in_time(own.step) && other.may_write(own))
            || self.wild.iter().any(|t| other.touches_table(*t))
    }

    /// The key that all reading of a step is about.
    pub fn only_key(&self, step: usize) -> Option<(TableId, &Arc<[usize]>, &[Value])> {
        let mut touches = self.touches.iter().filter(|(at, _)| *at == step).map(|(_, t)| t);
        let Touch::Key { table, columns, key } = touches.next()? else {
            return None;
        };
        let same = |touch: &Touch| match touch {
            Touch::Key {
                table: other,
                columns: others,
                key: wanted,
            } => other == table && others == columns && same_cells(wanted, key),
            Touch::Scan { .. } => false,
        };
        touches.all(same).then_some((*table, columns, key))
    }

    /// The row of a key as it leaves it behind, if it writes one.
    pub fn row_of(&self, table: TableId, columns: &[usize], key: &[Value]) -> Option<&Row> {
        let written = self.written.iter().filter(|w| w.table == table);
        let mut rows = written.filter_map(|w| w.after.as_ref());
        rows.find(|row| has_key(row, columns, key))
    }

    /// Whether nothing of what it reads and writes in a table is where `apart` and `none` do not say that it is not.
    pub fn is_elsewhere(
        &self,
        table: TableId,
        apart: impl Fn(&Touch) -> bool,
        none: impl Fn(&Row) -> bool,
    ) -> bool {
        let is_apart = |w: &Written| {
            let mut rows = w.before.iter().chain(&w.after).peekable();
            rows.peek().is_some() && rows.all(&none)
        };
        !self.wild.contains(&table)
            && self
                .touches
                .iter()
                .all(|(_, touch)| touch.table() != table || apart(touch))
            && self.written.iter().all(|w| w.table != table || is_apart(w))
    }

    /// Whether what `other` wrote is where this one reads.
    pub fn sees(&self, other: &Footprint) -> bool {
        self.touches.iter().any(|(_, touch)| other.may_write_at(touch))
    }

    /// Whether this one may have written where somebody reads.
    fn may_write_at(&self, touch: &Touch) -> bool {
        let table = touch.table();
        self.anything
            || self.wild.contains(&table)
            || self.written.iter().any(|w| w.table == table && is_hit(touch, w))
            || self.unseen.iter().any(|(_, place)| overlap(place, touch))
    }

    /// Whether this one may have written a row that somebody writes.
    fn may_write(&self, row: &Written) -> bool {
        let same = |w: &Written| row.id.is_some() && w.table == row.table && w.id == row.id;
        self.anything
            || self.wild.contains(&row.table)
            || self.written.iter().any(same)
            || self
                .unseen
                .iter()
                .any(|(_, place)| place.table() == row.table && is_hit(place, row))
    }

    /// Whether this one may have written a row of a table.
    pub fn may_write_table(&self, table: TableId) -> bool {
        self.anything
            || self.wild.contains(&table)
            || self.written.iter().any(|w| w.table == table)
            || self.unseen.iter().any(|(_, t)| t.table() == table)
    }

    fn touches_table(&self, table: TableId) -> bool {
        self.may_write_table(table) || self.touches.iter().any(|(_, t)| t.table() == table)
    }
}

fn is_hit(touch: &Touch, written: &Written) -> bool {
    let mut rows = written.before.iter().chain(&written.after);
    match touch {
        Touch::Key { columns, key, .. } => rows.any(|row| has_key(row, columns, key)),
        Touch::Scan { filter, .. } => rows.any(|row| filter.as_ref().is_none_or(|accepts| accepts(row))),
    }
}

/// Whether some row can be in both places.
fn overlap(a: &Touch, b: &Touch) -> bool {
    match (a, b) {
        (
            Touch::Key { columns, key, .. },
            Touch::Key {
                columns: others,
                key: other,
                ..
            },
        ) if columns == others => a.table() == b.table() && same_cells(key, other),
        _ => a.table() == b.table(),
    }
}
