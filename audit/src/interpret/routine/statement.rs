//! SQL inside a routine: its variables are the parameters, its rows go into variables.

use super::body::Body;
use super::path::{Come, hash_effect};
use crate::interpret::run::{Fault, Outcome, Run};
use crate::interpret::{Effect, Views};
use crate::sql::plan::{Kind, Planned};
use crate::state::view::Focus;
use crate::value::compare::same;
use crate::value::{self, CastKind, Collation, Value};
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

impl Body<'_, '_> {
    /// The value of an expression: a query of one row and one column.
    pub(super) fn value(&mut self, planned: &Arc<Planned>) -> Outcome<Value> {
        let Some(rows) = self.rows(planned)? else {
            return Ok(Value::Unknown);
        };
        Ok(rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next())
            .unwrap_or(Value::Null))
    }

    pub(super) fn assign(&mut self, variable: usize, planned: &Arc<Planned>) -> Outcome<()> {
        let value = self.value(planned)?;
        let from = planned.columns.first().map_or(0, |column| column.type_oid);
        let target = &self.routine.variables[variable];
        let value = self.convert(value, from, target.type_oid, target.type_modifier)?;
        self.set(variable, value);
        Ok(())
    }

    pub(super) fn convert(&self, value: Value, from: u32, to: u32, type_modifier: i32) -> Outcome<Value> {
        if value.is_unknown() || value.is_null() || (from == to && type_modifier < 0) {
            return Ok(value);
        }
        let cast = |value: &Value, from, type_modifier, kind| {
            value::cast(value, from, to, type_modifier, kind, self.run.context)
        };
        let mut converted = cast(&value, from, type_modifier, CastKind::Assignment);
        if let (Err(value::SqlError::NotModelled(_)), Value::Text(_)) = (&converted, &value) {
            // Where no cast may be used, PL/pgSQL reads the text as a constant of that type.
            converted = cast(&value, from, -1, CastKind::Explicit)
                .and_then(|value| cast(&value, to, type_modifier, CastKind::Assignment));
        }
        match converted {
            Ok(value) => Ok(value),
            Err(value::SqlError::Raised { sqlstate, message }) => Err(Fault::Raised {
                sqlstate: sqlstate.to_owned(),
                message,
            }),
            Err(value::SqlError::NotModelled(_)) => Fault::unsure("assignment_cast"),
        }
    }

    pub(super) fn inner<T: Come>(
        &mut self,
        planned: &Arc<Planned>,
        f: impl FnOnce(&Run<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let bound = match planned.bind(&self.variables, &[], self.run.context) {
            Ok(bound) => bound,
            Err(value::SqlError::Raised { sqlstate, message }) => {
                return Err(Fault::Raised {
                    sqlstate: sqlstate.to_owned(),
                    message,
                });
            }
            Err(value::SqlError::NotModelled(reason)) => return Fault::unsure(reason),
        };
        let mut views = if self.reads == 0 { self.views } else { self.later };
        self.reads += usize::from(reads_unlocked(planned));
        let before = self.at_an_instant(planned, &mut views);
        let mut run = Run::new(planned, bound, views, self.run.context);
        run.routine_depth = self.run.routine_depth + 1;
        if planned.only_calls() {
            run.path = self.path.clone();
        }
        let result = f(&run);
        let (touches, asks) = (run.take_footprint(), run.take_asks());
        let (possible, reasons, effects) = (run.possible.take(), run.reasons.take(), run.effects.take());
        let any_error = run.any_error.get();
        drop(run);
        self.read(touches);
        self.run.ask(&asks);
        let mut come = DefaultHasher::new();
        let path = self
            .path
            .clone()
            .filter(|path| before.is_some() && !path.forked.get() && views.latest.has_asked());
        if path.is_some() {
            (&possible, &reasons, any_error).hash(&mut come);
            effects.iter().for_each(|effect| hash_effect(effect, &mut come));
        }
        for (sqlstate, why) in possible {
            self.run.may_fail(&sqlstate, why);
        }
        if any_error {
            self.run.any_error.set(true);
        }
        for reason in reasons {
            self.run.note(reason);
        }
        let applied = result.and_then(|value| {
            let mut changes = self.changes.borrow_mut();
            for effect in effects {
                if let Effect::Update { table, id, .. } | Effect::Delete { table, id, .. } = &effect {
                    views.latest.claimed(*table, *id);
                }
                changes.apply(effect, self.run.routine_depth as u64)?;
            }
            Ok(value)
        });
        if let Some((snapshot, latest)) = before {
            self.views.snapshot.focus(snapshot);
            self.views.latest.focus(latest);
        }
        if let (Ok(value), Some(path)) = (&applied, path) {
            value.hash(&mut come);
            if self.views.snapshot.has_come_to(path.go_on(come)) {
                return Err(Fault::Repeated);
            }
        }
        applied
    }

    /// A statement that looks at tables, or writes them, does so at an instant of its own. Returns how the views were
    /// looked through before.
    fn at_an_instant(&self, planned: &Planned, views: &mut Views<'_>) -> Option<(Focus, Focus)> {
        let instants = &self.path.as_ref()?.instants;
        if planned.touches.read.is_empty() && planned.touches.written.is_empty() {
            return None;
        }
        let nth = instants.get() + 1;
        instants.set(nth + 1);
        let catalog = views.latest.catalog();
        let claims = planned.claims(catalog);
        if claims.is_some() && views.recheck {
            // It is a matter of one instant: when the row is locked.
            views.snapshot = views.latest;
        }
        let read = Focus {
            nth,
            // Where there is one snapshot, whoever writes a row has seen its newest version there.
            claims: claims.clone().filter(|_| !views.recheck),
            columns: planned.columns_read.clone(),
        };
        let lock = Focus {
            nth: nth + 1,
            claims,
            columns: None,
        };
        Some((self.views.snapshot.focus(read), self.views.latest.focus(lock)))
    }

    /// The rows of a query in an order that is certain; `None` if they are not known.
    pub(super) fn rows(&mut self, planned: &Arc<Planned>) -> Outcome<Option<Vec<Vec<Value>>>> {
        let Kind::Select(query) = &planned.kind else {
            return Fault::unsure("routine_query");
        };
        self.inner(planned, |run| {
            let output = run.output(query, None, true)?;
            if output.open || output.rows.iter().any(|row| !row.certain) {
                run.note("routine_over_unknown");
                return Ok(None);
            }
            let cutting = match run.cutting(query, None) {
                Err(Fault::Unsure(reason)) => {
                    run.note(reason);
                    return Ok(None);
                }
                other => other?,
            };
            let first = (cutting.offset as usize).min(output.rows.len());
            let last = cutting.limit.map_or(output.rows.len(), |limit| {
                (first + limit as usize).min(output.rows.len())
            });
            // Rows that sort alike may come in any order: then only their common cells are known.
            let ambiguous = output.ends.iter().scan(0, |start, end| {
                let group = (*start, *end);
                *start = *end;
                Some(group)
            });
            let ambiguous = ambiguous
                .filter(|(start, end)| end - start > 1)
                .any(|(start, end)| start < last && end > first);
            let unsorted = run.is_unsorted.get() && !query.order.is_empty();
            let several = output.rows.len() > 1 && (ambiguous || unsorted);
            if several {
                let alike = output.rows.windows(2).all(|pair| {
                    pair[0]
                        .values
                        .iter()
                        .zip(&pair[1].values)
                        .all(|(one, other)| same(one, other, Collation::Bytes) == Some(true))
                });
                if !alike {
                    run.note("routine_order");
                    return Ok(None);
                }
            }
            let rows = output.rows[first..last].iter();
            Ok(Some(
                rows.map(|row| row.values[..query.visible].to_vec()).collect(),
            ))
        })
    }

    pub(super) fn statement(
        &mut self,
        planned: &Arc<Planned>,
        into: Option<&[usize]>,
        strict: bool,
    ) -> Outcome<()> {
        let question = into
            .filter(|_| !strict)
            .and_then(|into| self.question(planned, into));
        let rows = match &planned.kind {
            Kind::Select(_) => {
                let rows = self.rows(planned)?;
                let is_of_one = rows.as_ref().is_some_and(|rows| rows.len() == 1);
                self.question = question.map(|question| question.found(is_of_one));
                let most = if into.is_some() { 1 } else { usize::MAX };
                self.count(rows.as_ref().map(|rows| rows.len().min(most) as u64));
                rows
            }
            kind => {
                let written = self.inner(planned, |run| match kind {
                    Kind::Insert(insert) => run.insert(insert, None),
                    Kind::Update(update) => run.update(update, None),
                    Kind::Delete(delete) => run.delete(delete, None),
                    _ => Fault::unsure("routine_statement"),
                })?;
                let known = written.max == Some(written.min);
                self.count(known.then_some(written.min));
                if written.min == 0 && !matches!(kind, Kind::Insert(_)) {
                    self.strayed.write_nothing();
                }
                if known && into.is_some() && written.rows.len() > 1 {
                    return Fault::unsure("routine_order");
                }
                if !known {
                    self.run.note("routine_over_unknown");
                }
                known.then(|| written.rows.into_iter().map(|row| row.values).collect())
            }
        };
        let Some(targets) = into else { return Ok(()) };
        match rows {
            None => {
                if strict {
                    self.run.may_fail("P0002", "no row may be found");
                    self.run.may_fail("P0003", "several rows may be found");
                }
                for variable in targets {
                    self.variables[*variable] = Value::Unknown;
                }
                self.witness(planned, targets);
                Ok(())
            }
            Some(rows) if strict && rows.len() != 1 => {
                let sqlstate = if rows.is_empty() { "P0002" } else { "P0003" };
                Err(Fault::Raised {
                    sqlstate: sqlstate.to_owned(),
                    message: "INTO STRICT".to_owned(),
                })
            }
            Some(rows) => {
                self.fill(targets, planned, rows.first())?;
                self.found(planned, targets, rows.is_empty());
                Ok(())
            }
        }
    }

    /// INTO: the columns of a row, or NULLs if there is none.
    pub(super) fn fill(
        &mut self,
        targets: &[usize],
        planned: &Arc<Planned>,
        row: Option<&Vec<Value>>,
    ) -> Outcome<()> {
        for (place, variable) in targets.iter().enumerate() {
            let value = row.and_then(|row| row.get(place)).cloned().unwrap_or(Value::Null);
            let from = planned.columns.get(place).map_or(0, |column| column.type_oid);
            let target = &self.routine.variables[*variable];
            let value = self.convert(value, from, target.type_oid, target.type_modifier)?;
            self.set(*variable, value);
        }
        Ok(())
    }
}

/// Whether a statement reads tables in a snapshot without locking the rows that it finds.
pub(super) fn reads_unlocked(planned: &Planned) -> bool {
    let read = &planned.touches.read;
    match &planned.kind {
        Kind::Select(query) => match &query.body {
            crate::sql::plan::Body::Select(select) => {
                !read.is_empty() && select.locking.len() < select.relations.len().max(1)
            }
            _ => !read.is_empty(),
        },
        Kind::Insert(insert) => read.iter().any(|table| *table != insert.table),
        Kind::Update(update) => read.iter().any(|table| *table != update.table),
        Kind::Delete(delete) => read.iter().any(|table| *table != delete.table),
        _ => !read.is_empty(),
    }
}
