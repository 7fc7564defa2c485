//! What the answer of a call tells while its routine is run.
//!
//! In: the OUT arguments as they were answered. Out: values of variables that nobody would know otherwise; and, where a
//! variable has another value than was answered, that this run is not what happened, there and not at its end.
//!
//! Where the answer is believed, the routine goes on with it instead: it is run for where it was when it gave that answer. Where
//! it finds nothing although it was somewhere, it is not known where.
//!
//! Always true: a value is compared with the answer, or taken from it, only where nothing behind can change it.

use super::body::Body;
use crate::interpret::Heed;
use crate::interpret::run::{Fault, Outcome};
use crate::sql::plan::{Kind, Planned, RelationSource, Routine};
use crate::state::{Catalog, TableId};
use crate::value::compare::same;
use crate::value::{Array, Collation, Value};
use std::sync::Arc;

/// The answer of a call, by variable.
pub(super) struct Shown {
    values: Vec<Option<Value>>,
    heed: Heed,
}

/// Where a routine went on by its answer, and not by what it found.
#[derive(Default)]
pub(super) struct Strayed {
    /// The first variable that had another value, and which.
    pub(super) at: Option<(usize, Value)>,
    /// Statements that found nothing, by what they were to fill, as long as the answer does not say what.
    missed: Vec<Vec<usize>>,
    /// One that was to write found nothing.
    wrote_nothing: bool,
    /// It went another way than the one on which it gave its answer.
    is_lost: bool,
}

impl Strayed {
    /// Something must have been found that is not here.
    fn is_lost(&self) -> bool {
        self.is_lost || (self.at.is_some() && self.wrote_nothing)
    }

    /// The answer says what was to be found for a variable.
    pub(super) fn tell(&mut self, variable: usize) {
        self.missed.retain(|filled| !filled.contains(&variable));
    }

    /// Whether one that was to write found nothing.
    pub(super) fn is_empty_handed(&self) -> bool {
        self.wrote_nothing
    }

    /// A statement that was to write found nothing.
    pub(super) fn write_nothing(&mut self) {
        self.wrote_nothing = true;
    }
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
    pub(super) fn of(routine: &Routine, row: Vec<Value>, heed: Heed) -> Shown {
        let mut values = vec![None; routine.variables.len()];
        for (place, value) in routine.outputs.iter().zip(row) {
            values[*place] = Some(value).filter(|value| !value.has_unknown());
        }
        Shown { values, heed }
    }
}

impl Body<'_, '_> {
    /// A variable has the value that is answered in the end.
    pub(super) fn heed(&mut self, variable: usize) -> Outcome<()> {
        let Some(shown) = self.shown(variable) else {
            return Ok(());
        };
        let value = self.variables[variable].clone();
        if self.believes(&shown) {
            self.tell(variable, &shown);
        }
        if value.is_unknown() && is_exact(&shown) {
            self.learn(variable, shown);
            self.taken.push(variable);
            return Ok(());
        }
        match same(&value, &shown, Collation::Bytes) {
            Some(false) if self.believes(&shown) => {
                self.believe((variable, value), variable, shown);
                Ok(())
            }
            Some(false) => self.refute(variable, value),
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
        if let Some(come) = come.filter(|come| self.believes(come)) {
            self.tell(item, come);
        }
        match (come, self.variables[item].clone()) {
            (None, value) => self.refute(variable, appended(value)),
            (Some(come), Value::Unknown) if is_exact(come) => {
                self.learn(item, come.clone());
                self.variables[variable] = appended(come.clone());
                self.taken.push(variable);
                Ok(())
            }
            (Some(come), value) => match same(&value, come, Collation::Bytes) {
                Some(false) if self.believes(come) => {
                    self.variables[variable] = appended(come.clone());
                    self.believe((variable, appended(value)), item, come.clone());
                    Ok(())
                }
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

    /// What was filled by a statement that found nothing, or not, goes on as it was answered.
    pub(super) fn found(&mut self, planned: &Planned, filled: &[usize], nothing: bool) {
        if self.is_told(Heed::Believed) {
            self.witness(planned, filled);
            if nothing {
                self.strayed.missed.push(filled.to_vec());
            }
        }
    }

    /// Whether it went on by its answer and did not find what must have been there, or came to another one all the same.
    pub(super) fn is_lost(&self) -> bool {
        let Some(shown) = self.shown.as_ref().filter(|s| s.heed == Heed::Believed) else {
            return false;
        };
        let differs = |(value, shown): (&Value, &Option<Value>)| {
            let shown = shown.as_ref();
            shown.is_some_and(|shown| same(value, shown, Collation::Bytes) == Some(false))
        };
        self.strayed.is_lost() || self.variables.iter().zip(&shown.values).any(differs)
    }

    fn believes(&self, value: &Value) -> bool {
        self.is_told(Heed::Believed) && self.supposed == 0 && is_exact(value)
    }

    /// A variable goes on as it was answered, though another one had another value than was `found`.
    fn believe(&mut self, found: (usize, Value), variable: usize, value: Value) {
        self.strayed.at.get_or_insert(found);
        if self.witnesses.as_ref().is_some_and(|w| w.is_about(variable)) {
            self.strayed.tell(variable);
        }
        // What was not found before may have been there: then it has taken another way since.
        self.strayed.is_lost |= !self.strayed.missed.is_empty();
        self.learn(variable, value);
    }

    /// Whether its answer is known, and is this to it.
    pub(super) fn is_told(&self, heed: Heed) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.heed == heed)
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
        match self.is_told(Heed::UntilWrong) || self.supposed > 0 {
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
pub(super) fn is_never_null(planned: &Planned, place: usize, catalog: &Catalog) -> bool {
    let Some((table, column)) = column_of(planned, place) else {
        return false;
    };
    let table = catalog.table(table);
    table
        .and_then(|table| table.columns.get(column))
        .is_some_and(|column| column.not_null)
}

/// The column that a query shows, if it is one of the only table that it reads.
pub(super) fn column_of(planned: &Planned, place: usize) -> Option<(TableId, usize)> {
    let Kind::Select(query) = &planned.kind else {
        return None;
    };
    let crate::sql::plan::Body::Select(select) = &query.body else {
        return None;
    };
    let ([relation], Some(Some((_, column))), None) = (
        select.relations.as_slice(),
        select.origins.get(place),
        &select.group,
    ) else {
        return None;
    };
    match relation.source {
        RelationSource::Table(table) => Some((table, *column as usize)),
        _ => None,
    }
}
