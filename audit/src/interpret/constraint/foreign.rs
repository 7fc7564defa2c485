//! Foreign keys, seen from the child: the parent must exist.

use super::{Batch, equal_on};
use crate::interpret::run::Outcome;
use crate::state::catalog::ForeignKey;
use crate::state::{Row, View};
use crate::value::Value;
use std::sync::Arc;

impl Batch<'_, '_> {
    /// Rows that point at parents: the parents must exist.
    pub(super) fn foreign_keys(&mut self) -> Outcome<()> {
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
        let found_by = |view: &dyn View| {
            let replaced = self.replaced(target);
            let (mut found, mut maybe) = (None, maybe);
            let sure = view.lookup(target, &columns, &values, &mut |id, other| {
                if replaced.is_some_and(|replaced| replaced.contains(&id)) {
                    return;
                }
                match equal_on(other, &key.target_columns, &values) {
                    Some(true) => found = Some(id),
                    None => maybe = true,
                    Some(false) => {}
                }
            });
            match (found, maybe || !sure) {
                (Some(id), _) => Some(Some(id)),
                (None, true) => None,
                (None, false) => Some(None),
            }
        };
        let latest = found_by(self.run.views.latest);
        let exists = latest.map(|found| found.is_some());
        if self.run.views_differ() {
            // Who waits for the parent that was there does not find the one that has its key by then.
            let failed = self.run.answered.is_none();
            return Ok(match latest {
                Some(Some(_)) if failed && found_by(self.run.views.snapshot) != latest => None,
                _ => exists,
            });
        }
        // A transaction with one snapshot looks for the parent there, except in partitions; and it fails to lock one
        // that has changed since.
        let seen = found_by(self.run.views.snapshot).map(|found| found.is_some());
        Ok(exists.filter(|_| exists == seen))
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
}

/// A value of another integer width; other types must be the same already.
pub(super) fn convert(value: Value, target: u32) -> Option<Value> {
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
