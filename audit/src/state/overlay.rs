//! What a transaction has written so far, on top of what it reads.
//!
//! Always true:
//!   - rows it inserted are named by ids with [`OWN`] set, in the order of insertion;
//!   - a row it replaced or deleted hides the version below.

use super::{Catalog, Row, RowId, TableId};
use crate::interpret::Effect;
use crate::trace::Nanos;
use crate::value::compare::same_cells;
use crate::value::{Key, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ids of rows that only this transaction has.
pub const OWN: u64 = 1 << 62;

#[derive(Clone, Debug)]
pub struct Replaced {
    /// The version that was found.
    pub before: Row,
    /// `None`: deleted.
    pub row: Option<Row>,
    /// The step that first wrote it: when that was done, the row was locked.
    pub step: usize,
    /// It was written, or left alone: then it was not locked.
    pub perhaps: bool,
}

#[derive(Clone, Debug, Default)]
pub struct OwnTable {
    pub replaced: BTreeMap<RowId, Replaced>,
    pub inserted: BTreeMap<RowId, Row>,
    /// Keys whose row is not there any more, whether or not there was one: columns, and what they hold.
    pub absent: Vec<(Arc<[usize]>, Vec<Value>)>,
    /// TRUNCATE: nothing below is there any more.
    pub truncated: bool,
    /// Rows that nobody has seen may have been written.
    pub unseen: bool,
    /// Something unknown was done to it.
    pub havoc: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Overlay {
    pub tables: BTreeMap<TableId, OwnTable>,
    pub catalog: Option<Arc<Catalog>>,
    pub havoc_everything: Option<String>,
    pub drawn: Drawn,
    /// When the transaction began: what was learned since of a table in which it may have written rows without seeing
    /// them is not what it sees.
    pub begun: Nanos,
    next: u64,
}

/// What it drew from sequences: that is never undone.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    /// What each of them gives next; `None`: nobody knows.
    pub from: BTreeMap<TableId, Option<i64>>,
    /// Perhaps from any of them.
    pub everything: bool,
}

impl Drawn {
    pub fn is_empty(&self) -> bool {
        self.from.is_empty() && !self.everything
    }

    /// What a sequence gives next, if it was drawn from.
    pub fn next(&self, sequence: TableId) -> Option<Option<i64>> {
        let from = self.from.get(&sequence).copied();
        from.or(self.everything.then_some(None))
    }

    fn draw(&mut self, sequence: Option<TableId>, next: Option<i64>) {
        match sequence {
            Some(sequence) => drop(self.from.insert(sequence, next)),
            None => {
                self.from.clear();
                self.everything = true;
            }
        }
    }
}

impl Overlay {
    /// That of a transaction that has begun by then and has written nothing yet.
    pub fn of(begun: Nanos) -> Overlay {
        Overlay {
            begun,
            ..Overlay::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.catalog.is_none() && self.havoc_everything.is_none()
    }

    pub fn table(&self, table: TableId) -> Option<&OwnTable> {
        self.tables.get(&table)
    }

    /// The rows that were there and that it wrote.
    pub fn replaced(&self) -> impl Iterator<Item = (TableId, RowId)> + '_ {
        let tables = self.tables.iter();
        tables.flat_map(|(table, own)| own.replaced.keys().map(|id| (*table, *id)))
    }

    /// Whether it certainly wrote these, and did nothing else.
    pub fn only_replaces(&self) -> bool {
        let only_rows = self.catalog.is_none() && self.havoc_everything.is_none();
        only_rows
            && self.tables.values().all(|own| {
                let beside = own.truncated || own.unseen || own.havoc.is_some();
                let moved = !own.inserted.is_empty() || !own.absent.is_empty();
                !beside && !moved && !own.replaced.values().any(|replaced| replaced.perhaps)
            })
    }

    /// Whether there are rows in this table as it left them.
    pub fn has_written(&self, table: TableId) -> bool {
        self.table(table)
            .is_some_and(|own| !own.inserted.is_empty() || own.replaced.values().any(|r| r.row.is_some()))
    }

    /// Applies one effect of step number `step`.
    pub fn apply(&mut self, effect: &Effect, step: usize) {
        match effect {
            Effect::Insert { table, row } => {
                let id = RowId(OWN | self.next);
                self.next += 1;
                self.tables
                    .entry(*table)
                    .or_default()
                    .inserted
                    .insert(id, row.clone());
            }
            Effect::Update {
                table,
                id,
                before,
                after,
            } => self.replace(*table, *id, before, Some(after.clone()), (step, false)),
            Effect::Perhaps {
                table,
                id,
                before,
                after,
            } => self.replace(*table, *id, before, Some(after.clone()), (step, true)),
            Effect::Delete { table, id, before } => self.replace(*table, *id, before, None, (step, false)),
            Effect::Truncate { table } => {
                let own = self.tables.entry(*table).or_default();
                own.truncated = true;
                own.replaced.clear();
                own.inserted.clear();
            }
            Effect::Havoc { table, reason } => {
                self.tables.entry(*table).or_default().havoc = Some(reason.clone());
            }
            Effect::HavocEverything { reason } => self.havoc_everything = Some(reason.clone()),
            Effect::Absent { table, columns, key } => {
                let absent = &mut self.tables.entry(*table).or_default().absent;
                absent.push((columns.clone(), key.clone()));
            }
            Effect::Unseen { table } => self.tables.entry(*table).or_default().unseen = true,
            Effect::Catalog(catalog) => self.catalog = Some(catalog.clone()),
            Effect::Drawn { sequence, next } => self.drawn.draw(*sequence, *next),
        }
    }

    fn replace(
        &mut self,
        table: TableId,
        id: RowId,
        before: &Row,
        row: Option<Row>,
        (step, perhaps): (usize, bool),
    ) {
        let own = self.tables.entry(table).or_default();
        if id.0 & OWN != 0 {
            match row {
                Some(row) => own.inserted.insert(id, row),
                None => own.inserted.remove(&id),
            };
            return;
        }
        own.replaced
            .entry(id)
            .and_modify(|r| {
                r.row = row.clone();
                if r.perhaps && !perhaps {
                    (r.step, r.perhaps) = (step, false);
                }
            })
            .or_insert_with_key(|_| Replaced {
                before: before.clone(),
                row: row.clone(),
                step,
                perhaps,
            });
    }

    /// Whether it left no row with this key.
    pub fn is_absent(&self, table: TableId, columns: &[usize], key: &[Value]) -> bool {
        self.table(table).is_some_and(|own| {
            let mut absent = own.absent.iter();
            absent.any(|(of, gone)| **of == *columns && same_cells(gone, key))
        })
    }

    /// Whether both leave the same rows.
    pub fn writes_same(&self, other: &Overlay) -> bool {
        let same_row = |a: &Row, b: &Row| {
            a.len() == b.len()
                && a.iter()
                    .zip(b.iter())
                    .all(|(x, y)| Key(x.clone()) == Key(y.clone()))
        };
        let same_table = |a: &OwnTable, b: &OwnTable| {
            a.truncated == b.truncated
                && a.havoc == b.havoc
                && a.absent.len() == b.absent.len()
                && a.absent
                    .iter()
                    .zip(&b.absent)
                    .all(|(x, y)| x.0 == y.0 && same_cells(&x.1, &y.1))
                && a.replaced.len() == b.replaced.len()
                && a.inserted.len() == b.inserted.len()
                && a.replaced
                    .iter()
                    .all(|(id, r)| match (&r.row, b.replaced.get(id).map(|o| &o.row)) {
                        (Some(x), Some(Some(y))) => same_row(x, y),
                        (None, Some(None)) => true,
                        _ => false,
                    })
                && a.inserted
                    .values()
                    .zip(b.inserted.values())
                    .all(|(x, y)| same_row(x, y))
        };
        self.tables.len() == other.tables.len()
            && self
                .tables
                .iter()
                .all(|(id, a)| other.tables.get(id).is_some_and(|b| same_table(a, b)))
    }

    /// Gives a known value to an unknown cell of a row that this transaction wrote.
    pub fn learn(&mut self, table: TableId, id: RowId, column: usize, value: &crate::value::Value) {
        let Some(own) = self.tables.get_mut(&table) else {
            return;
        };
        let row = match own.inserted.get_mut(&id) {
            Some(row) => row,
            None => match own.replaced.get_mut(&id).and_then(|r| r.row.as_mut()) {
                Some(row) => row,
                None => return,
            },
        };
        let mut cells = row.to_vec();
        if let Some(cell) = cells.get_mut(column) {
            *cell = value.clone();
        }
        *row = cells.into();
    }
}
