//! What a write must respect, and what follows from it: NOT NULL, CHECK, unique keys, foreign keys, cascades.
//!
//! In: the changes of one statement, in order. Out: effects, errors that the server must raise, and errors that
//! it may raise because something is not known.

mod cascade;
mod foreign;
mod row;
mod unique;

pub(super) use unique::Conflicts;

use super::Effect;
use super::run::{Fault, Frame, Outcome, Run, Slot};
use crate::sql::plan::{Expr, TableChecks};
use crate::state::catalog::Table;
use crate::state::{Row, RowId, TableId};
use crate::value::compare::same;
use crate::value::{Collation, Value};
use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The changes of one statement.
pub(super) struct Batch<'r, 'a> {
    run: &'r Run<'a>,
    changes: Vec<Change>,
    /// Rows that this statement replaced or removed, by table; a statement writes few tables.
    replaced: SmallVec<[(TableId, RowSet); 1]>,
    checks: SmallVec<[(TableId, Arc<TableChecks>); 1]>,
    /// Errors that are certain; the first row that fails decides which one is raised.
    errors: Vec<(String, String)>,
    /// The columns that the next update sets.
    set: Option<Columns>,
    /// How many effects the statement had when this part began.
    begin: usize,
}

struct Change {
    table: Arc<Table>,
    id: Option<RowId>,
    before: Option<Row>,
    after: Option<Row>,
    /// The columns that an update sets, if these are known: the others are as they were, even those that nobody
    /// knows.
    set: Option<Columns>,
    certain: bool,
    depth: usize,
}

type Columns = SmallVec<[usize; 4]>;

impl Change {
    /// An update that leaves these columns alone.
    fn keeps(&self, columns: &[usize]) -> bool {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return false;
        };
        columns.iter().all(|column| {
            self.set.as_ref().is_some_and(|set| !set.contains(column)) || unchanged(before, after, &[*column])
        })
    }
}

/// Rows of one table: a list while they are few.
#[derive(Default)]
struct RowSet {
    few: SmallVec<[RowId; 4]>,
    many: FxHashSet<RowId>,
}

impl RowSet {
    fn insert(&mut self, id: RowId) {
        if self.many.is_empty() && self.few.len() < 16 {
            if !self.few.contains(&id) {
                self.few.push(id);
            }
        } else {
            self.many.extend(self.few.drain(..));
            self.many.insert(id);
        }
    }

    fn contains(&self, id: &RowId) -> bool {
        self.few.contains(id) || self.many.contains(id)
    }
}

impl<'r, 'a> Batch<'r, 'a> {
    pub fn new(run: &'r Run<'a>) -> Batch<'r, 'a> {
        Batch {
            run,
            changes: Vec::new(),
            replaced: SmallVec::new(),
            checks: SmallVec::new(),
            errors: Vec::new(),
            set: None,
            begin: run.effects.borrow().len(),
        }
    }

    pub fn insert(&mut self, table: &Arc<Table>, checks: &Arc<TableChecks>, row: Row) -> Outcome<usize> {
        self.insert_if(table, checks, row, true)
    }

    /// The same; unless it is certain that the row is written, it is not certain either that it must fail.
    pub fn insert_if(
        &mut self,
        table: &Arc<Table>,
        checks: &Arc<TableChecks>,
        row: Row,
        certain: bool,
    ) -> Outcome<usize> {
        self.remember(table, checks);
        let table = self.root(table)?;
        self.push(Change {
            table,
            id: None,
            before: None,
            after: Some(row),
            set: None,
            certain,
            depth: 0,
        })
    }

    /// Says which columns the next update sets.
    pub fn sets(&mut self, set: &[(usize, Expr)], checks: &TableChecks) {
        let generated = checks.generated.iter().map(|(column, _)| *column);
        self.set = Some(set.iter().map(|(column, _)| *column).chain(generated).collect());
    }

    pub fn update(
        &mut self,
        table: &Arc<Table>,
        checks: &Arc<TableChecks>,
        id: RowId,
        before: Row,
        after: Row,
        certain: bool,
    ) -> Outcome<usize> {
        self.remember(table, checks);
        // A partition may number its columns in another way than its root.
        let set = self.set.take().filter(|_| table.storage == table.id);
        let table = self.root(table)?;
        self.push(Change {
            table,
            id: Some(id),
            before: Some(before),
            after: Some(after),
            set,
            certain,
            depth: 0,
        })
    }

    pub fn delete(
        &mut self,
        table: &Arc<Table>,
        checks: &Arc<TableChecks>,
        id: RowId,
        before: Row,
    ) -> Outcome<usize> {
        self.remember(table, checks);
        let table = self.root(table)?;
        self.push(Change {
            table,
            id: Some(id),
            before: Some(before),
            after: None,
            set: None,
            certain: true,
            depth: 0,
        })
    }

    fn remember(&mut self, table: &Table, checks: &Arc<TableChecks>) {
        if !self.checks.iter().any(|(known, _)| *known == table.storage) {
            self.checks.push((table.storage, checks.clone()));
        }
    }

    /// Rows of a table that this statement replaced or removed.
    fn replaced(&self, table: TableId) -> Option<&RowSet> {
        let found = self.replaced.iter().find(|(known, _)| *known == table);
        found.map(|(_, rows)| rows)
    }

    /// Constraints belong to the root of a partition tree.
    fn root(&self, table: &Arc<Table>) -> Outcome<Arc<Table>> {
        if table.storage == table.id {
            Ok(table.clone())
        } else {
            self.run.table_of(table.storage)
        }
    }

    fn push(&mut self, change: Change) -> Outcome<usize> {
        self.run.work(4)?;
        let table = change.table.storage;
        if let (Some(id), true) = (change.id, self.run.several_writers) {
            let wrote = |effect: &Effect| match effect {
                Effect::Update { table: t, id: i, .. } | Effect::Delete { table: t, id: i, .. } => {
                    *t == table && *i == id
                }
                _ => false,
            };
            // Whoever comes first writes it, the other one leaves it alone.
            if self.run.effects.borrow()[..self.begin].iter().any(wrote) {
                return Fault::unsure("row_written_twice");
            }
        }
        if let Some(id) = change.id {
            match self.replaced.iter_mut().find(|(known, _)| *known == table) {
                Some((_, rows)) => rows.insert(id),
                None => {
                    let mut rows = RowSet::default();
                    rows.insert(id);
                    self.replaced.push((table, rows));
                }
            }
        }
        let effect = match (&change.id, &change.before, &change.after) {
            (Some(id), Some(before), Some(after)) => Effect::Update {
                table,
                id: *id,
                before: before.clone(),
                after: after.clone(),
            },
            (Some(id), Some(before), None) => Effect::Delete {
                table,
                id: *id,
                before: before.clone(),
            },
            (_, _, Some(after)) => Effect::Insert {
                table,
                row: after.clone(),
            },
            _ => return Fault::unsure("empty_change"),
        };
        self.changes.push(change);
        let mut effects = self.run.effects.borrow_mut();
        effects.push(effect);
        Ok(effects.len() - 1)
    }

    /// Checks everything that the changes together must respect.
    pub fn finish(mut self) -> Outcome<()> {
        let mut place = 0;
        while place < self.changes.len() {
            self.cascade(place)?;
            place += 1;
        }
        self.unique_keys()?;
        self.foreign_keys()?;
        if self.run.several_writers {
            // What the other parts insert and delete may make an error, or unmake it.
            self.run.any_error.set(true);
            if !self.errors.is_empty() {
                return Fault::unsure("sibling_writes");
            }
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        // Which of several errors comes first depends on the order in which the rows are visited.
        let (sqlstate, message) = self.errors[0].clone();
        for (sqlstate, message) in &self.errors[1..] {
            self.run.may_fail(sqlstate, message.clone());
        }
        Err(Fault::Raised { sqlstate, message })
    }

    fn fail(&mut self, sqlstate: &str, why: String) {
        self.errors.push((sqlstate.to_owned(), why));
    }
}

fn single(row: Row) -> Frame {
    Frame {
        slots: smallvec![Slot {
            row: Some(row),
            id: RowId(0),
        }],
        grouped: Vec::new(),
        windowed: Vec::new(),
    }
}

/// The key of a row, or `None` if part of it is unknown.
fn key_values(row: &Row, columns: &[usize]) -> Option<Vec<Value>> {
    let values: Vec<Value> = columns
        .iter()
        .map(|column| row.get(*column).cloned().unwrap_or(Value::Null))
        .collect();
    (!values.iter().any(Value::has_unknown)).then_some(values)
}

fn unchanged(before: &Row, after: &Row, columns: &[usize]) -> bool {
    columns
        .iter()
        .all(|column| match (before.get(*column), after.get(*column)) {
            (Some(before), Some(after)) => same(before, after, Collation::Bytes) == Some(true),
            _ => false,
        })
}

fn equal_on(row: &Row, columns: &[usize], values: &[Value]) -> Option<bool> {
    let mut result = Some(true);
    for (column, value) in columns.iter().zip(values) {
        match row
            .get(*column)
            .map_or(Some(false), |cell| same(cell, value, Collation::Bytes))
        {
            Some(true) => {}
            Some(false) => return Some(false),
            None => result = None,
        }
    }
    result
}
