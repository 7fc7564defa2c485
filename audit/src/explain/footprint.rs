//! Where a transaction reads and writes: enough to tell whether the order of two of them can matter.
//!
//! In: an attempt. Out: for another transaction, whether it could have changed what this one did, had it come
//! first.

use super::between::{Between, Change};
use super::merge::same_row;
use super::run::{Attempt, SNAPSHOT};
use crate::assemble::Transaction;
use crate::interpret::Touch;
use crate::sql::plan::AllAsks;
use crate::state::store::Store;
use crate::state::view::has_key;
use crate::state::{Row, RowId, TableId};
use crate::trace::{Nanos, Outcome};
use crate::value::compare::same_cells;
use crate::value::{Key, Value};
use std::sync::Arc;

/// One row that is written, and the step that does it.
#[derive(Clone, Debug)]
struct Written {
    step: usize,
    table: TableId,
    /// `None`: a new row.
    id: Option<RowId>,
    before: Option<Row>,
    after: Option<Row>,
}

#[derive(Clone, Debug, Default)]
pub struct Footprint {
    touches: Vec<(usize, Touch)>,
    /// Where else it reads, but where its answer says what it found: that does not decide where it goes.
    pinned: Vec<(usize, Touch)>,
    /// What it depends on there.
    asks: AllAsks,
    written: Vec<Written>,
    /// Where rows that nobody has seen may have been written.
    unseen: Vec<(usize, Touch)>,
    /// Steps that may have written.
    writing: Vec<usize>,
    /// Of these, the ones that make rows, or write those that are in their way.
    inserting: Vec<usize>,
    /// Tables of which it is not known what was written.
    wild: Vec<TableId>,
    /// It is not known of any of its tables what was read or written there.
    is_boundless: bool,
    /// Tables to which its answers say that it wrote something else than it would as things are.
    elsewhere: Vec<TableId>,
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
        let writes = !attempt.wrote.is_empty();
        let anything =
            (txn.torn && writes) || overlay.catalog.is_some() || overlay.havoc_everything.is_some();
        let mut footprint = Footprint {
            anything,
            calls: attempt.calls,
            // Where its level is not known, neither is what it should have found.
            beyond_rows: anything || attempt.changes_session || (txn.vague && writes),
            writing: attempt.wrote.clone(),
            inserting: attempt.inserted.clone(),
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
        let differs = |step: &usize| attempt.wrote.contains(step) && !says_nothing(txn, *step);
        // A call goes on by its answer: it is where it says that it was, or nobody knows where.
        if !attempt.calls && attempt.wrong_steps.iter().any(differs) {
            footprint.elsewhere = attempt.may_have_written.clone();
        }
        for read in &attempt.reads {
            let touches = read.touches.iter().map(|t| (read.step, t.clone()));
            footprint.touches.extend(touches);
            let pinned = read.pinned.iter().map(|t| (read.step, t.clone()));
            footprint.pinned.extend(pinned);
            footprint.asks.join(&read.asks);
        }
        for (table, own) in &attempt.overlay.tables {
            if own.truncated || own.havoc.is_some() {
                footprint.wild.push(*table);
            } else if own.unseen || !own.absent.is_empty() {
                let touches = footprint.places();
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

    pub fn touches(&self) -> impl Iterator<Item = &Touch> {
        self.places().map(|(_, touch)| touch)
    }

    /// Everywhere it reads.
    fn places(&self) -> impl Iterator<Item = &(usize, Touch)> {
        self.touches.iter().chain(&self.pinned)
    }

    /// What one of two runs of the same transaction reads or writes.
    pub fn join(&mut self, other: Footprint) {
        self.touches.extend(other.touches);
        self.pinned.extend(other.pinned);
        self.asks.join(&other.asks);
        self.written.extend(other.written);
        self.unseen.extend(other.unseen);
        for step in other.writing {
            if !self.writing.contains(&step) {
                self.writing.push(step);
            }
        }
        self.inserting.extend(other.inserting);
        self.run_wild(&other.wild);
        self.is_boundless &= other.is_boundless;
        self.elsewhere.extend(other.elsewhere);
        self.anything |= other.anything;
        self.beyond_rows |= other.beyond_rows;
        self.snapshot_done = self.snapshot_done.max(other.snapshot_done);
        self.is_blind &= other.is_blind;
        self.calls |= other.calls;
    }

    /// Nobody knows what it writes to these tables, nor what it reads, but that it is in those (`None`: in any).
    pub fn run_anywhere(&mut self, written: &[TableId], read: Option<&[TableId]>) {
        self.run_wild(written);
        self.is_boundless = read.is_some_and(|read| read.iter().all(|table| self.wild.contains(table)));
    }

    /// Whether it may be another one after `other`, as far as that is worth knowing.
    pub fn is_outdated_by(&self, other: &Footprint) -> bool {
        // What it finds where its answer says what that is does not change where it goes.
        self.heeds_at(&self.touches, other)
            // Without bounds it cannot become wider, only narrower.
            || (!self.is_boundless && self.is_wild_where(other))
    }

    /// Whether it is not known of any of these tables what it writes there.
    pub fn is_wild_in(&self, tables: &[TableId]) -> bool {
        tables.iter().all(|table| self.wild.contains(table))
    }

    /// Nobody knows what it writes there.
    pub fn run_wild(&mut self, tables: &[TableId]) {
        for table in tables {
            if !self.wild.contains(table) {
                self.wild.push(*table);
            }
        }
    }

    /// The same where it does not do what its answers say: what it writes once somebody else has come before it, nobody
    /// knows. `None` if it does.
    pub fn let_loose(&self) -> Option<Footprint> {
        if self.elsewhere.is_empty() {
            return None;
        }
        let mut loose = self.clone();
        loose.run_wild(&self.elsewhere);
        Some(loose)
    }

    /// Whether both write the same, so that nobody can tell by whom of them something was written.
    pub fn writes_same(&self, other: &Footprint) -> bool {
        let same_place = |(a, b): (&Written, &Written)| (a.table, a.id) == (b.table, b.id);
        let same = |(a, b): (&Written, &Written)| {
            same_row(a.before.as_ref(), b.before.as_ref()) && same_row(a.after.as_ref(), b.after.as_ref())
        };
        let both = || self.written.iter().zip(&other.written);
        self.written.len() == other.written.len()
            && both().all(same_place)
            && both().all(same)
            && self.unseen.is_empty()
            && other.unseen.is_empty()
            && self.wild == other.wild
            && self.anything == other.anything
    }

    /// Whether this one may have written wherever the other one wrote, its rows not told apart.
    pub fn is_wider_than(&self, other: &Footprint) -> bool {
        self.anything || (!other.anything && other.tables_written().all(|table| self.wild.contains(&table)))
    }

    /// Whether it may have written any row of a table.
    pub fn may_write_all(&self, table: TableId) -> bool {
        self.anything || self.wild.contains(&table)
    }

    /// The tables that it wrote, rows not told apart.
    pub fn widened(&self) -> Footprint {
        let mut wide = Footprint {
            anything: self.anything,
            ..Footprint::default()
        };
        wide.run_wild(&self.tables_written().collect::<Vec<_>>());
        wide
    }

    fn tables_written(&self) -> impl Iterator<Item = TableId> + '_ {
        let rows = self.written.iter().map(|w| w.table);
        let unseen = self.unseen.iter().map(|(_, touch)| touch.table());
        rows.chain(unseen).chain(self.wild.iter().copied())
    }

    pub fn writes(&self) -> bool {
        !self.written.is_empty() || !self.unseen.is_empty() || !self.wild.is_empty() || self.beyond_rows
    }

    /// Until when a step could still find what another transaction left.
    fn until(&self, txn: &Transaction, step: usize) -> Nanos {
        let done = txn.steps.get(step).map_or(Nanos::MAX, |s| s.seen.window.done);
        let kept = self.snapshot_done.filter(|_| !self.asks_for_the_newest(step));
        kept.map_or(done, |snapshot| snapshot.min(done))
    }

    /// Whether a step looks at the newest rows, whatever its snapshot: where a key is given or set free, it matters who has it
    /// now, and who refers to it.
    fn asks_for_the_newest(&self, step: usize) -> bool {
        let keys = || {
            self.places().filter_map(move |(at, touch)| match touch {
                Touch::Key { table, columns, .. } if *at == step => Some((*table, columns)),
                _ => None,
            })
        };
        let mut written = self.written.iter().filter(|w| w.step == step).peekable();
        // Where it should have failed, nothing is there that it wrote.
        let nothing = written.peek().is_none();
        let is_keyed = |w: &Written| {
            let (Some(before), Some(after)) = (&w.before, &w.after) else {
                return true;
            };
            let cell = |row: &Row, column: usize| row.get(column).cloned().map(Key);
            let is_other = |column: &usize| cell(before, *column) != cell(after, *column);
            keys().any(|(table, columns)| table != w.table || columns.iter().any(is_other))
        };
        self.inserting.contains(&step) || (self.writing.contains(&step) && (nothing || written.any(is_keyed)))
    }

    /// Whether `other`, sent at `sent`, would have mattered to this one, `txn`, had it committed before. With
    /// `only_effects`, to what it wrote: what its other answers show is explained already.
    pub fn depends_on(&self, txn: &Transaction, other: &Footprint, sent: Nanos, only_effects: bool) -> bool {
        let in_time = |step: usize| sent <= self.until(txn, step);
        let matters = |step: usize| !only_effects || self.writing.contains(&step);
        self.places().any(|(step, touch)| {
            matters(*step) && in_time(*step) && other.may_write_for(touch, &self.asks, false)
        }) || self
            .written
            .iter()
            .any(|own| in_time(own.step) && other.may_write(own))
            || self.wild.iter().any(|t| other.touches_table(*t))
    }

    /// The key that all reading of a step is about.
    pub fn only_key(&self, step: usize) -> Option<(TableId, &Arc<[usize]>, &[Value])> {
        let mut touches = self.places().filter(|(at, _)| *at == step).map(|(_, t)| t);
        let Touch::Key {
            table, columns, key, ..
        } = touches.next()?
        else {
            return None;
        };
        let same = |touch: &Touch| match touch {
            Touch::Key {
                table: other,
                columns: others,
                key: wanted,
                ..
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
                .places()
                .all(|(_, touch)| touch.table() != table || apart(touch))
            && self.written.iter().all(|w| w.table != table || is_apart(w))
    }

    /// Whether what this one answers and leaves behind may depend on whether `other` came before.
    pub fn heeds(&self, other: &Footprint) -> bool {
        self.heeds_at(self.places(), other) || self.is_wild_where(other)
    }

    /// The same, of what it reads at some places.
    fn heeds_at<'p>(&self, places: impl IntoIterator<Item = &'p (usize, Touch)>, other: &Footprint) -> bool {
        let mut places = places.into_iter();
        places.any(|(_, touch)| other.may_write_for(touch, &self.asks, true))
    }

    fn is_wild_where(&self, other: &Footprint) -> bool {
        self.wild.iter().any(|table| other.touches_table(*table))
    }

    /// Whether it makes a difference to this one which of two writers came first.
    pub fn tells(&self, between: &Between) -> bool {
        self.notices(&between.first) && self.notices(&between.second)
    }

    fn notices(&self, changes: &[Change]) -> bool {
        changes.iter().any(|change| {
            let reads = |touch: &Touch| touch.table() == change.table && is_met(touch, change.rows());
            let asks = || match &change.columns {
                None => true,
                Some(columns) => columns
                    .iter()
                    .any(|(column, is_sum)| self.asks.asks_for(change.table, *column, *is_sum)),
            };
            asks() && (self.wild.contains(&change.table) || self.places().any(|(_, touch)| reads(touch)))
        })
    }

    /// The rows that are others after it; `None` where it may have written more than is known.
    pub fn changes(&self, is_sum: impl Fn(TableId, usize) -> bool) -> Option<Vec<Change>> {
        if !self.unseen.is_empty() || !self.wild.is_empty() || self.beyond_rows {
            return None;
        }
        let rows = self.written.iter();
        let changes = rows.map(|w| Change::of(w.table, w.before.as_ref(), w.after.as_ref(), &is_sum));
        Some(changes.flatten().collect())
    }

    /// Whether it may do something else to a column than adding to it.
    pub fn may_overwrite(&self, table: TableId, column: usize) -> bool {
        self.asks.may_overwrite(table, column)
    }

    /// Whether what `other` wrote is where this one reads.
    pub fn sees(&self, other: &Footprint) -> bool {
        self.places().any(|(_, touch)| other.may_write_at(touch))
    }

    /// Whether this one may have written where somebody reads.
    fn may_write_at(&self, touch: &Touch) -> bool {
        self.may_write_some(touch, |_| true)
    }

    /// The same, and something on which it depends; with `but_sums` not, if both only add to it.
    fn may_write_for(&self, touch: &Touch, asks: &AllAsks, but_sums: bool) -> bool {
        let table = touch.table();
        self.may_write_some(touch, |written| {
            written.before.is_none()
                || written.after.is_none()
                || self.asks.may_set_for(table, asks, but_sums)
        })
    }

    fn may_write_some(&self, touch: &Touch, counts: impl Fn(&Written) -> bool) -> bool {
        let table = touch.table();
        let written = |w: &Written| w.table == table && is_hit(touch, w) && counts(w);
        self.anything
            || self.wild.contains(&table)
            || self.written.iter().any(written)
            || self.unseen.iter().any(|(_, place)| overlap(place, touch))
    }

    /// Whether it was there in any way: what it finds now may not be what it has found.
    pub fn was_at(&self, touch: &Touch) -> bool {
        self.may_write_at(touch) || self.places().any(|(_, place)| overlap(place, touch))
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
        self.may_write_table(table) || self.places().any(|(_, t)| t.table() == table)
    }
}

/// Whether the answer says that a step wrote nothing.
fn says_nothing(txn: &Transaction, step: usize) -> bool {
    match txn.steps.get(step).map(|step| &step.seen.outcome) {
        Some(Outcome::Answer(answer)) => answer.counts_none(),
        _ => false,
    }
}

fn is_hit(touch: &Touch, written: &Written) -> bool {
    is_met(touch, written.before.iter().chain(&written.after))
}

/// Whether one of the rows is where somebody reads.
fn is_met<'a>(touch: &Touch, mut rows: impl Iterator<Item = &'a Row>) -> bool {
    match touch {
        Touch::Key {
            columns, key, cut, ..
        } => rows.any(|row| has_key(row, columns, key) && cut.as_ref().is_none_or(|cut| cut.may_reach(row))),
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
