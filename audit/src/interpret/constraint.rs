//! What a write must respect, and what follows from it: NOT NULL, CHECK, unique keys, foreign keys, cascades.
//!
//! In: the changes of one statement, in order. Out: effects, errors that the server must raise, and errors that
//! it may raise because something is not known.

use super::run::{Fault, Frame, Outcome, Run, Scope, Slot};
use super::{Effect, Touch};
use crate::sql::plan::{Expr, TableChecks};
use crate::state::catalog::{Action, ForeignKey, Table};
use crate::state::view::Knowledge;
use crate::state::{Row, RowId, TableId, View};
use crate::value::compare::same;
use crate::value::{Collation, Key, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Cascades deeper than this are not followed.
const CASCADE_MAX: usize = 32;
/// Expression keys are checked by reading the whole table, up to this many rows.
const SCAN_MAX: usize = 20_000;

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

pub(super) enum Conflicts {
    None,
    /// A row that exists.
    Row(RowId, Row),
    /// A row that this very statement wrote.
    Own(usize),
    /// Nobody has seen whether there is one.
    Unseen,
    Maybe,
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

    /// Fills in generated columns and checks the row by itself.
    pub fn complete(
        &mut self,
        table: &Arc<Table>,
        checks: &Arc<TableChecks>,
        mut row: Vec<Value>,
    ) -> Outcome<Row> {
        if !checks.generated.is_empty() {
            let frame = single(Row::from(row.clone()));
            let scope = Scope {
                frame: &frame,
                outer: None,
            };
            for (column, expr) in &checks.generated {
                row[*column] = self.run.eval(expr, &scope)?;
            }
        }
        for (place, (column, value)) in table.columns.iter().zip(&row).enumerate() {
            if !column.not_null || column.dropped {
                continue;
            }
            match value {
                Value::Null => self.fail(
                    "23502",
                    format!("null value in column \"{}\" of \"{}\"", column.name, table.name),
                ),
                Value::Unknown if !self.is_kept(place) => self
                    .run
                    .may_fail("23502", format!("column \"{}\" may be null", column.name)),
                _ => {}
            }
        }
        let row = Row::from(row);
        if !checks.checks.is_empty() || checks.partition.is_some() {
            let frame = single(row.clone());
            let scope = Scope {
                frame: &frame,
                outer: None,
            };
            let own = checks.checks.iter().map(|(name, expr)| (name.as_str(), expr));
            for (name, expr) in own.chain(checks.partition.iter().map(|expr| ("partition", expr))) {
                match self.run.eval(expr, &scope)? {
                    Value::Bool(false) => {
                        self.fail("23514", format!("row violates check constraint \"{name}\""))
                    }
                    Value::Unknown => self
                        .run
                        .may_fail("23514", format!("check constraint \"{name}\" may be violated")),
                    _ => {}
                }
            }
        }
        if table.kind == crate::state::catalog::TableKind::Partitioned {
            self.run.may_fail("23514", "no partition may accept the row");
        }
        Ok(row)
    }

    /// Whether the next update leaves a column as it was.
    fn is_kept(&self, column: usize) -> bool {
        self.set.as_ref().is_some_and(|set| !set.contains(&column))
    }

    fn fail(&mut self, sqlstate: &str, why: String) {
        self.errors.push((sqlstate.to_owned(), why));
    }

    pub fn insert(&mut self, table: &Arc<Table>, checks: &Arc<TableChecks>, row: Row) -> Outcome<usize> {
        self.remember(table, checks);
        let table = self.root(table)?;
        self.push(Change {
            table,
            id: None,
            before: None,
            after: Some(row),
            set: None,
            certain: true,
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

    /// The existing row that a proposed row conflicts with under the arbitrating keys (all keys if `None`).
    pub fn conflicts(
        &mut self,
        table: &Arc<Table>,
        checks: &Arc<TableChecks>,
        row: &Row,
        keys: Option<&[usize]>,
        alone: bool,
    ) -> Outcome<Conflicts> {
        let table = self.root(table)?;
        let all: Vec<usize> = (0..table.keys.len()).collect();
        let (mut maybe, mut unseen) = (false, false);
        for key in keys.unwrap_or(&all) {
            let Some(check) = checks.keys.get(*key) else {
                return Fault::unsure("unique_index");
            };
            if !check.modelled || check.expressions.is_some() {
                return Fault::unsure("unique_index_expression");
            }
            if let Some(predicate) = &check.predicate {
                match self.holds(predicate, row)? {
                    Some(true) => {}
                    Some(false) => continue,
                    None => return Ok(Conflicts::Maybe),
                }
            }
            let Some(values) = key_values(row, &check.columns) else {
                maybe = true;
                continue;
            };
            if values.iter().any(Value::is_null) {
                if table.keys[*key].nulls_not_distinct {
                    maybe = true;
                }
                continue;
            }
            for (place, change) in self.changes.iter().enumerate() {
                if change.table.storage == table.storage {
                    if let Some(after) = &change.after {
                        match equal_on(after, &check.columns, &values) {
                            Some(true) => return Ok(Conflicts::Own(place)),
                            None => maybe = true,
                            Some(false) => {}
                        }
                    }
                }
            }
            let mut found: Option<(RowId, Row)> = None;
            let columns: Arc<[usize]> = check.columns.iter().copied().collect();
            let replaced = self.replaced(table.storage);
            let mut rows = Vec::new();
            let sure = self
                .run
                .views
                .latest
                .lookup(table.storage, &columns, &values, &mut |id, other| {
                    rows.push((id, other.clone()))
                });
            self.run.touch_key(table.storage, &columns, &values);
            // One proposed row is looked at after the other, each at an instant of its own.
            if !alone && !self.run.views.latest.is_fixed(table.storage, &columns, &values) {
                return Fault::unsure("conflicts_at_several_instants");
            }
            for (id, other) in rows {
                if replaced.is_some_and(|replaced| replaced.contains(&id)) {
                    continue;
                }
                if let Some(predicate) = &check.predicate {
                    match self.holds(predicate, &other)? {
                        Some(true) => {}
                        Some(false) => continue,
                        None => {
                            maybe = true;
                            continue;
                        }
                    }
                }
                match equal_on(&other, &check.columns, &values) {
                    Some(true) => found = Some((id, other)),
                    None => maybe = true,
                    Some(false) => {}
                }
            }
            if let Some((id, other)) = found {
                return Ok(if maybe {
                    Conflicts::Maybe
                } else {
                    Conflicts::Row(id, other)
                });
            }
            unseen |= !sure;
        }
        Ok(match (maybe, unseen) {
            (true, _) => Conflicts::Maybe,
            (false, true) => Conflicts::Unseen,
            (false, false) => Conflicts::None,
        })
    }

    fn holds(&self, predicate: &crate::sql::plan::Expr, row: &Row) -> Outcome<Option<bool>> {
        let frame = single(row.clone());
        let scope = Scope {
            frame: &frame,
            outer: None,
        };
        Ok(match self.run.eval(predicate, &scope)? {
            Value::Bool(holds) => Some(holds),
            Value::Unknown => None,
            _ => Some(false),
        })
    }

    fn unique_keys(&mut self) -> Outcome<()> {
        let mut errors = Vec::new();
        let mut tables: Vec<Arc<Table>> = Vec::new();
        for change in &self.changes {
            if change.after.is_some() && !tables.iter().any(|table| table.storage == change.table.storage) {
                tables.push(change.table.clone());
            }
        }
        for table in tables {
            let known = self.checks.iter().find(|(known, _)| *known == table.storage);
            let Some(checks) = known.map(|(_, checks)| checks.clone()) else {
                if !table.keys.is_empty() {
                    self.run.may_fail("23505", "a cascade may violate a unique key");
                }
                continue;
            };
            for (place, key) in table.keys.iter().enumerate() {
                let Some(check) = checks.keys.get(place) else {
                    continue;
                };
                if !check.modelled {
                    let why = format!("unique constraint \"{}\" may be violated", key.name);
                    self.run.may_fail("23505", why);
                    continue;
                }
                if !self.leaves_alone(&table, key, check) {
                    self.unique_key(&table, key, check, &mut errors)?;
                }
            }
        }
        self.errors.extend(errors);
        Ok(())
    }

    /// The usual case: one row changed, and not in the key.
    fn leaves_alone(
        &self,
        table: &Table,
        key: &crate::state::catalog::UniqueKey,
        check: &crate::sql::plan::KeyCheck,
    ) -> bool {
        let [change] = self.changes.as_slice() else {
            return false;
        };
        change.table.storage == table.storage
            && !key.nulls_not_distinct
            && check.predicate.is_none()
            && check.expressions.is_none()
            && change.keeps(&check.columns)
    }

    fn unique_key(
        &self,
        table: &Arc<Table>,
        key: &crate::state::catalog::UniqueKey,
        check: &crate::sql::plan::KeyCheck,
        errors: &mut Vec<(String, String)>,
    ) -> Outcome<()> {
        let columns: Arc<[usize]> = check.columns.iter().copied().collect();
        let replaced = self.replaced(table.storage);
        let mut own: FxHashMap<Vec<Key>, usize> = FxHashMap::default();
        // Keys that rows of this statement have just given up: whether they still block depends on the order.
        let mut given_up: FxHashSet<Vec<Key>> = FxHashSet::default();
        let several = self
            .changes
            .iter()
            .filter(|change| change.table.storage == table.storage)
            .count()
            > 1;
        if several && check.expressions.is_none() {
            for change in self
                .changes
                .iter()
                .filter(|change| change.table.storage == table.storage)
            {
                if change.keeps(&check.columns) {
                    continue;
                }
                if let Some(values) = change
                    .before
                    .as_ref()
                    .and_then(|before| key_values(before, &check.columns))
                {
                    given_up.insert(values.into_iter().map(Key).collect());
                }
            }
        }
        let fails = |error: &mut Vec<(String, String)>, certain: bool| {
            let message = format!("duplicate key violates unique constraint \"{}\"", key.name);
            if certain && !key.deferrable {
                error.push(("23505".to_owned(), message))
            } else {
                self.run.may_fail("23505", message)
            }
        };
        for change in self
            .changes
            .iter()
            .filter(|change| change.table.storage == table.storage)
        {
            let Some(after) = &change.after else { continue };
            let kept =
                check.expressions.is_none() && check.predicate.is_none() && change.keeps(&check.columns);
            if let Some(predicate) = &check.predicate {
                match self.holds(predicate, after)? {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        fails(errors, false);
                        continue;
                    }
                }
            }
            let values = match &check.expressions {
                None => key_values(after, &check.columns),
                Some(expressions) => {
                    let frame = single(after.clone());
                    let scope = Scope {
                        frame: &frame,
                        outer: None,
                    };
                    let mut values = Vec::new();
                    for expr in expressions {
                        values.push(self.run.eval(expr, &scope)?);
                    }
                    (!values.iter().any(Value::has_unknown)).then_some(values)
                }
            };
            let Some(values) = values else {
                fails(errors, false);
                continue;
            };
            if values.iter().any(Value::is_null) {
                if key.nulls_not_distinct {
                    fails(errors, false);
                }
                continue;
            }
            let hashed: Vec<Key> = values.iter().cloned().map(Key).collect();
            let count = own.entry(hashed.clone()).or_default();
            *count += 1;
            if *count > 1 {
                fails(errors, change.certain);
            }
            if kept {
                // It holds its own key already; only a newcomer can be in its way.
                continue;
            }
            if given_up.contains(&hashed) {
                fails(errors, false);
            }
            let mut rows = Vec::new();
            let view = self.run.views.latest;
            let sure = match &check.expressions {
                None => {
                    self.run.touch_key(table.storage, &columns, &values);
                    view.lookup(table.storage, &columns, &values, &mut |id, row| {
                        rows.push((id, row.clone()))
                    })
                }
                Some(_) => {
                    self.run.touch_scan(table.storage, None);
                    view.scan(table.storage, &mut |id, row| rows.push((id, row.clone())));
                    view.knowledge(table.storage) == crate::state::view::Knowledge::Complete
                        && rows.len() <= SCAN_MAX
                }
            };
            if !sure {
                fails(errors, false);
            }
            for (id, other) in rows.into_iter().take(SCAN_MAX) {
                if change.id == Some(id) || replaced.is_some_and(|replaced| replaced.contains(&id)) {
                    continue;
                }
                if let Some(predicate) = &check.predicate {
                    match self.holds(predicate, &other)? {
                        Some(true) => {}
                        Some(false) => continue,
                        None => {
                            fails(errors, false);
                            continue;
                        }
                    }
                }
                let equal = match &check.expressions {
                    None => equal_on(&other, &check.columns, &values),
                    Some(expressions) => {
                        let frame = single(other);
                        let scope = Scope {
                            frame: &frame,
                            outer: None,
                        };
                        let mut equal = Some(true);
                        for (expr, value) in expressions.iter().zip(&values) {
                            match same(&self.run.tolerant(expr, &scope)?, value, Collation::Bytes) {
                                Some(true) => {}
                                Some(false) => {
                                    equal = Some(false);
                                    break;
                                }
                                None => equal = None,
                            }
                        }
                        equal
                    }
                };
                match equal {
                    Some(true) => fails(errors, change.certain),
                    None => fails(errors, false),
                    Some(false) => {}
                }
            }
        }
        Ok(())
    }

    /// Rows that point at parents: the parents must exist.
    fn foreign_keys(&mut self) -> Outcome<()> {
        let mut errors = Vec::new();
        for change in &self.changes {
            let Some(after) = &change.after else { continue };
            for key in &change.table.foreign_keys {
                if change.keeps(&key.columns) {
                    continue;
                }
                let certain = change.certain && !key.deferrable;
                match self.parent_exists(key, after)? {
                    Some(true) => {}
                    Some(false) if certain => {
                        errors.push((
                            "23503".to_owned(),
                            format!("no parent for foreign key \"{}\"", key.name),
                        ));
                    }
                    _ => self
                        .run
                        .may_fail("23503", format!("foreign key \"{}\" may be violated", key.name)),
                }
            }
        }
        self.errors.extend(errors);
        Ok(())
    }

    fn parent_exists(&self, key: &ForeignKey, row: &Row) -> Outcome<Option<bool>> {
        let values: Vec<Value> = key.columns.iter().map(|column| row[*column].clone()).collect();
        if values.iter().any(Value::is_null) {
            let mixed = key.match_full && !values.iter().all(Value::is_null);
            return Ok(if mixed { None } else { Some(true) });
        }
        if values.iter().any(Value::has_unknown) {
            return Ok(None);
        }
        let target = self.run.views.latest.catalog().storage(key.target);
        let Some(values) = self.as_target_types(key, values) else {
            return Ok(None);
        };
        let columns: Arc<[usize]> = key.target_columns.iter().copied().collect();
        let mut maybe = false;
        for change in self
            .changes
            .iter()
            .filter(|change| change.table.storage == target)
        {
            if let Some(after) = &change.after {
                match equal_on(after, &key.target_columns, &values) {
                    Some(true) => return Ok(Some(true)),
                    None => maybe = true,
                    Some(false) => {}
                }
            }
        }
        self.run.touch_key(target, &columns, &values);
        let exists = |view: &dyn View| {
            let replaced = self.replaced(target);
            let (mut found, mut maybe) = (false, maybe);
            let sure = view.lookup(target, &columns, &values, &mut |id, other| {
                if replaced.is_some_and(|replaced| replaced.contains(&id)) {
                    return;
                }
                match equal_on(other, &key.target_columns, &values) {
                    Some(true) => found = true,
                    None => maybe = true,
                    Some(false) => {}
                }
            });
            match (found, maybe || !sure) {
                (true, _) => Some(true),
                (false, true) => None,
                (false, false) => Some(false),
            }
        };
        let latest = exists(self.run.views.latest);
        if self.run.views_differ() {
            return Ok(latest);
        }
        // A transaction with one snapshot looks for the parent there, except in partitions; and it fails to lock one
        // that has changed since.
        let seen = exists(self.run.views.snapshot);
        Ok(latest.filter(|_| latest == seen))
    }

    /// Foreign keys may join columns of different integer types.
    fn as_target_types(&self, key: &ForeignKey, values: Vec<Value>) -> Option<Vec<Value>> {
        let catalog = self.run.views.latest.catalog();
        let target = catalog.table(key.target)?;
        values
            .into_iter()
            .zip(&key.target_columns)
            .map(|(value, column)| convert(value, target.columns.get(*column)?.type_oid))
            .collect()
    }

    /// What a change of a parent does to its children.
    fn cascade(&mut self, place: usize) -> Outcome<()> {
        let change = &self.changes[place];
        let (parent, certain, depth) = (change.table.clone(), change.certain, change.depth);
        let Some(before) = change.before.clone() else {
            return Ok(());
        };
        let after = change.after.clone();
        if parent.referenced_by.is_empty() {
            return Ok(());
        }
        if depth > CASCADE_MAX {
            return Fault::unsure("cascade_depth");
        }
        let run = self.run;
        let catalog = run.views.latest.catalog();
        for child in &parent.referenced_by {
            let Some(child) = catalog.table(*child).cloned() else {
                return Fault::unsure("foreign_key");
            };
            for key in child.foreign_keys.iter().filter(|key| key.target == parent.id) {
                if self.changes[place].keeps(&key.target_columns) {
                    continue;
                }
                self.cascade_key(&parent, &child, key, &before, after.as_ref(), certain, depth)?;
            }
        }
        Ok(())
    }

    /// Whether a table is known to hold nothing.
    fn is_empty(&self, table: &Table) -> bool {
        let view = self.run.views.latest;
        let mut empty = view.knowledge(table.storage) == Knowledge::Complete;
        if empty {
            view.scan(table.storage, &mut |_, _| empty = false);
            self.run.touch(Touch::Scan {
                table: table.storage,
                filter: None,
            });
        }
        empty
    }

    fn cascade_key(
        &mut self,
        parent: &Arc<Table>,
        child: &Arc<Table>,
        key: &ForeignKey,
        before: &Row,
        after: Option<&Row>,
        certain: bool,
        depth: usize,
    ) -> Outcome<()> {
        let action = if after.is_some() {
            key.on_update
        } else {
            key.on_delete
        };
        let writes = !matches!(action, Action::NoAction | Action::Restrict);
        let what = format!("row is still referenced by foreign key \"{}\"", key.name);
        let Some(values) = key_values(before, &key.target_columns) else {
            if writes && !self.is_empty(child) {
                return Fault::unsure("cascade_of_unknown");
            }
            self.run.may_fail("23503", what);
            return Ok(());
        };
        if values.iter().any(Value::is_null) {
            return Ok(());
        }
        let converted: Option<Vec<Value>> = values
            .iter()
            .cloned()
            .zip(&key.columns)
            .map(|(value, column)| convert(value, child.columns.get(*column)?.type_oid))
            .collect();
        let Some(values) = converted else { return Ok(()) };
        let columns: Arc<[usize]> = key.columns.iter().copied().collect();
        let mut children = Vec::new();
        let storage = child.storage;
        let sure = self
            .run
            .views
            .latest
            .lookup(storage, &columns, &values, &mut |id, row| {
                children.push((id, row.clone()))
            });
        self.run.touch_key(storage, &columns, &values);
        let replaced = self.replaced(storage);
        let mut exact = true;
        children.retain(|(id, row)| {
            if replaced.is_some_and(|replaced| replaced.contains(id)) {
                return false;
            }
            match equal_on(row, &key.columns, &values) {
                Some(true) => true,
                None => {
                    exact = false;
                    true
                }
                Some(false) => false,
            }
        });
        if writes && (!sure || !exact || !certain) {
            return Fault::unsure("cascade_of_unknown");
        }
        if !writes {
            // Rows of this very statement may still point at the parent, or a new parent may have its key.
            let own = self
                .changes
                .iter()
                .filter(|change| change.table.storage == storage)
                .any(|change| {
                    change
                        .after
                        .as_ref()
                        .is_some_and(|after| equal_on(after, &key.columns, &values) != Some(false))
                });
            let heir = action == Action::NoAction
                && self
                    .changes
                    .iter()
                    .filter(|change| change.table.storage == parent.storage)
                    .any(|change| {
                        change
                            .after
                            .as_ref()
                            .is_some_and(|after| equal_on(after, &key.target_columns, &values) != Some(false))
                    });
            if !children.is_empty() && exact && certain && !heir && !key.deferrable {
                self.fail("23503", what);
            } else if !children.is_empty() || !sure || own {
                self.run.may_fail("23503", what);
            }
            return Ok(());
        }
        if children.is_empty() {
            return Ok(());
        }
        if let Some(reason) = &child.unmodelled_write {
            return Fault::unsure(reason.clone());
        }
        for (id, row) in children {
            let change = match action {
                Action::Cascade if after.is_none() => Change {
                    table: child.clone(),
                    id: Some(id),
                    before: Some(row),
                    after: None,
                    set: None,
                    certain: true,
                    depth: depth + 1,
                },
                _ => {
                    let mut changed = row.to_vec();
                    for (place, column) in key.columns.iter().enumerate() {
                        changed[*column] = match (action, after) {
                            (Action::Cascade, Some(after)) => {
                                let value = after[key.target_columns[place]].clone();
                                match convert(value, child.columns[*column].type_oid) {
                                    Some(value) => value,
                                    None => return Fault::unsure("cascade_conversion"),
                                }
                            }
                            (Action::SetNull, _) => Value::Null,
                            _ => return Fault::unsure("set_default"),
                        };
                        if changed[*column].is_null() && child.columns[*column].not_null {
                            self.fail(
                                "23502",
                                format!("null value in column \"{}\"", child.columns[*column].name),
                            );
                        }
                    }
                    if !child.checks.is_empty() || child.columns.iter().any(|column| column.generated) {
                        return Fault::unsure("cascade_checks");
                    }
                    let after = Row::from(changed);
                    Change {
                        table: child.clone(),
                        id: Some(id),
                        before: Some(row),
                        after: Some(after),
                        set: Some(key.columns.iter().copied().collect()),
                        certain: true,
                        depth: depth + 1,
                    }
                }
            };
            self.push(change)?;
        }
        Ok(())
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

/// A value of another integer width; other types must be the same already.
fn convert(value: Value, target: u32) -> Option<Value> {
    use crate::value::oid;
    let number = match value {
        Value::Int2(number) => i64::from(number),
        Value::Int4(number) => i64::from(number),
        Value::Int8(number) => number,
        other => return Some(other),
    };
    match target {
        oid::INT2 => i16::try_from(number).ok().map(Value::Int2),
        oid::INT4 => i32::try_from(number).ok().map(Value::Int4),
        oid::INT8 => Some(Value::Int8(number)),
        _ => Some(value),
    }
}
