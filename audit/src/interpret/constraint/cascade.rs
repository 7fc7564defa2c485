//! Foreign keys, seen from the parent: what becomes of the children when it changes or goes.

use super::foreign::convert;
use super::{Batch, Change, equal_on, key_values};
use crate::interpret::Touch;
use crate::interpret::run::{Fault, Outcome};
use crate::state::Row;
use crate::state::catalog::{Action, ForeignKey, Table};
use crate::state::view::Knowledge;
use crate::value::Value;
use std::sync::Arc;

/// Cascades deeper than this are not followed.
const CASCADE_MAX: usize = 32;

impl Batch<'_, '_> {
    /// What a change of a parent does to its children.
    pub(super) fn cascade(&mut self, place: usize) -> Outcome<()> {
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
