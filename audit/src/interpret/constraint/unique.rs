//! Unique keys: the row that a proposed one conflicts with, and keys that would be there twice.

use super::{Batch, equal_on, key_values, single};
use crate::interpret::run::{Fault, Outcome, Scope};
use crate::sql::plan::{KeyCheck, TableChecks};
use crate::state::catalog::{Table, UniqueKey};
use crate::state::view::Knowledge;
use crate::state::{Row, RowId};
use crate::value::compare::same;
use crate::value::{Collation, Key, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Expression keys are checked by reading the whole table, up to this many rows.
const SCAN_MAX: usize = 20_000;

pub(in crate::interpret) enum Conflicts {
    None,
    /// A row that exists.
    Row(RowId, Row),
    /// A row that this very statement wrote.
    Own(usize),
    /// Nobody has seen whether there is one.
    Unseen,
    Maybe,
}

impl Batch<'_, '_> {
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
            match self.covers(check, row)? {
                Some(true) => {}
                Some(false) => continue,
                None => return Ok(Conflicts::Maybe),
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
                            Some(true) if change.certain => return Ok(Conflicts::Own(place)),
                            // It may have been left alone.
                            Some(true) | None => maybe = true,
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
                match self.covers(check, &other)? {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        maybe = true;
                        continue;
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

    /// Whether a row is one of those that the key is about: all of them, or those that its predicate accepts.
    fn covers(&self, check: &KeyCheck, row: &Row) -> Outcome<Option<bool>> {
        let Some(predicate) = &check.predicate else {
            return Ok(Some(true));
        };
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

    pub(super) fn unique_keys(&mut self) -> Outcome<()> {
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
    fn leaves_alone(&self, table: &Table, key: &UniqueKey, check: &KeyCheck) -> bool {
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
        key: &UniqueKey,
        check: &KeyCheck,
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
            match self.covers(check, after)? {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    fails(errors, false);
                    continue;
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
                    view.knowledge(table.storage) == Knowledge::Complete && rows.len() <= SCAN_MAX
                }
            };
            if !sure {
                fails(errors, false);
            }
            for (id, other) in rows.into_iter().take(SCAN_MAX) {
                if change.id == Some(id) {
                    continue;
                }
                // It may block before its own turn comes, even with a key that the snapshot does not show.
                let certain = change.certain && !replaced.is_some_and(|replaced| replaced.contains(&id));
                match self.covers(check, &other)? {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        fails(errors, false);
                        continue;
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
                    Some(true) => fails(errors, certain),
                    None => fails(errors, false),
                    Some(false) => {}
                }
            }
        }
        Ok(())
    }
}
