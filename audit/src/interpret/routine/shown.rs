//! What the answer of a call tells while its routine is run.
//!
//! In: the OUT arguments as they were answered. Out: values of variables that nobody would know otherwise; and, where a
//! variable has another value than was answered, that this run is not what happened, there and not at its end.
//!
//! Always true: a value is compared with the answer, or taken from it, only where nothing behind can change it.

use super::body::Body;
use crate::interpret::run::{Fault, Outcome};
use crate::sql::plan::{Kind, Planned, RelationSource, Routine};
use crate::state::Catalog;
use crate::value::compare::same;
use crate::value::{Array, Collation, Value};
use std::sync::Arc;

/// The answer of a call, by variable.
pub(super) struct Shown {
    values: Vec<Option<Value>>,
    /// A run that cannot have given this answer need not be finished.
    until_wrong: bool,
}

/// The variables that a statement filled which may have found nothing; with those that are NULL only then.
pub(super) struct Witnesses {
    filled: Vec<usize>,
    never_null: Vec<usize>,
}

impl Witnesses {
    pub(super) fn is_about(&self, variable: usize) -> bool {
        self.filled.contains(&variable)
    }
}

impl Shown {
    pub(super) fn of(routine: &Routine, row: Vec<Value>, until_wrong: bool) -> Shown {
        let mut values = vec![None; routine.variables.len()];
        for (place, value) in routine.outputs.iter().zip(row) {
            values[*place] = Some(value).filter(|value| !value.has_unknown());
        }
        Shown { values, until_wrong }
    }
}

impl Body<'_, '_> {
    /// A variable has the value that is answered in the end.
    pub(super) fn heed(&mut self, variable: usize) -> Outcome<()> {
        let Some(shown) = self.shown(variable) else {
            return Ok(());
        };
        let value = &self.variables[variable];
        if value.is_unknown() && is_exact(&shown) {
            self.learn(variable, shown);
            self.taken.push(variable);
            return Ok(());
        }
        match same(value, &shown, Collation::Bytes) {
            Some(false) => self.refute(variable, value.clone()),
            _ => Ok(()),
        }
    }

    /// Something was appended to an array of which the rest stays as it is until it is answered.
    pub(super) fn heed_appended(&mut self, variable: usize, before: &Value, item: usize) -> Outcome<()> {
        let Some(Value::Array(shown)) = self.shown(variable) else {
            return Ok(());
        };
        let old: &[Value] = match before {
            Value::Array(old) if is_plain(old) => &old.items,
            Value::Null => &[],
            _ => return Ok(()),
        };
        let appended = |item: Value| {
            let items: Vec<Value> = old.iter().cloned().chain([item]).collect();
            Value::Array(Arc::new(Array::vector(shown.element, items)))
        };
        let come = shown.items.get(old.len()).filter(|_| is_plain(&shown));
        match (come, self.variables[item].clone()) {
            (None, value) => self.refute(variable, appended(value)),
            (Some(come), Value::Unknown) if is_exact(come) => {
                self.learn(item, come.clone());
                self.variables[variable] = appended(come.clone());
                self.taken.push(variable);
                Ok(())
            }
            (Some(come), value) => match same(&value, come, Collation::Bytes) {
                Some(false) => self.refute(variable, appended(value)),
                _ => Ok(()),
            },
        }
    }

    /// It is not known whether a statement found a row: what it filled may tell.
    pub(super) fn witness(&mut self, planned: &Planned, filled: &[usize]) {
        let catalog = self.views.latest.catalog();
        let is_null_if_absent = |place: &usize| is_never_null(planned, *place, catalog);
        let places = (0..filled.len()).filter(is_null_if_absent);
        self.witnesses = Some(Witnesses {
            never_null: places.map(|place| filled[place]).collect(),
            filled: filled.to_vec(),
        });
    }

    fn shown(&self, variable: usize) -> Option<Value> {
        self.shown.as_ref()?.values[variable].clone()
    }

    fn learn(&mut self, variable: usize, value: Value) {
        if let Some(witnesses) = self.witnesses.take_if(|w| w.is_about(variable)) {
            let found = !value.is_null();
            if found || witnesses.never_null.contains(&variable) {
                self.count(Some(u64::from(found)));
            }
        }
        self.variables[variable] = value;
    }

    /// This run is not what happened, unless what is known is wrong.
    fn refute(&self, variable: usize, value: Value) -> Outcome<()> {
        let stops = self.shown.as_ref().is_some_and(|shown| shown.until_wrong);
        match stops || self.supposed > 0 {
            true => Err(Fault::Refuted { variable, value }),
            false => Ok(()),
        }
    }
}

/// Whether what is answered is the value itself, not what is shown of it.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Float4(_) | Value::Float8(_) => false,
        Value::Array(array) => array.items.iter().all(is_exact),
        _ => true,
    }
}

/// Whether its elements are counted from one.
fn is_plain(array: &Array) -> bool {
    matches!(array.dimensions.as_slice(), [] | [(_, 1)])
}

/// Whether a column of a query is NULL only where there is no row.
fn is_never_null(planned: &Planned, place: usize, catalog: &Catalog) -> bool {
    let Kind::Select(query) = &planned.kind else {
        return false;
    };
    let crate::sql::plan::Body::Select(select) = &query.body else {
        return false;
    };
    let ([relation], Some(Some((_, column))), None) = (
        select.relations.as_slice(),
        select.origins.get(place),
        &select.group,
    ) else {
        return false;
    };
    let RelationSource::Table(table) = relation.source else {
        return false;
    };
    let table = catalog.table(table);
    table
        .and_then(|table| table.columns.get(*column as usize))
        .is_some_and(|column| column.not_null)
}
