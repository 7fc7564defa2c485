//! Functions and procedures that users wrote, run statement by statement.
//!
//! Always true:
//!   - a later statement of a routine sees what an earlier one wrote;
//!   - a STABLE or IMMUTABLE function sees the snapshot of the statement that calls it; in any other routine each
//!     statement has an instant of its own, and under READ COMMITTED a snapshot of its own, one after the other;
//!   - where a routine is called in the midst of a query it is not known when. What was locked cannot have changed
//!     since, so one view of the newest state serves all writes, and one read of a snapshot is the snapshot's. Beyond
//!     that the routine is run on the oldest and on the newest state that it can see, and what differs is unknown.

mod body;
pub(super) mod path;
mod statement;
mod ended;
mod changes;
pub(super) mod pinned;
mod shown;

use super::expect::{Expect, ExpectedRow, Group, Rows};
use super::run::{Fault, Outcome, Run};
use super::{Effect, Touch, Views};
use crate::sql::plan::Routine;
use crate::state::{Row, RowId, TableId, View};
use crate::value::Value;
use body::Body;
use changes::{Changes, Layer};
use ended::Ended;
use pinned::Pinned;
use shown::{Shown, Strayed};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Ids of rows that a routine inserted and may yet change itself.
const OWN: u64 = 1 << 61;
const STEPS_MAX: usize = 100_000;
/// Each unknown condition doubles what is run behind it, at worst.
const FORKS_MAX: usize = 64;

impl Run<'_> {
    pub(super) fn call_routine(&self, routine: &Arc<Routine>, arguments: Vec<Value>) -> Outcome<Value> {
        let strict = routine.function.as_ref().is_some_and(|function| function.strict);
        if strict && arguments.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let ended = self.run_body(routine, arguments, None)?;
        if routine.returns_void {
            return Ok(if routine.procedure {
                Value::Null
            } else {
                Value::Text(Arc::from(""))
            });
        }
        match ended.returned {
            Some(value) => Ok(value),
            None => Fault::unsure(format!("function_{}", routine.name)),
        }
    }

    /// CALL: the INOUT arguments are answered as one row.
    pub(super) fn call_procedure(
        &self,
        routine: &Arc<Routine>,
        arguments: Vec<Value>,
    ) -> Outcome<Option<Rows>> {
        let outputs = || routine.outputs.iter();
        let mut rows = Rows {
            types: outputs()
                .map(|place| routine.variables[*place].type_oid)
                .collect(),
            names: outputs()
                .map(|place| routine.variables[*place].name.clone())
                .collect(),
            ..Rows::default()
        };
        let values = match self.run_body(routine, arguments, self.shown(routine, &rows)) {
            Ok(ended) => {
                if ended.is_lost {
                    let tables = self.planned.touches.written.iter();
                    let anything = tables.map(|table| Effect::Havoc {
                        table: *table,
                        reason: "routine_over_unknown".to_owned(),
                    });
                    self.effects.borrow_mut().extend(anything);
                }
                outputs()
                    .map(|place| match &ended.strayed {
                        Some((variable, value)) if variable == place => value.clone(),
                        _ => ended.variables[*place].clone(),
                    })
                    .collect()
            }
            Err(Fault::Refuted { variable, value }) => outputs()
                .map(|place| match *place == variable {
                    true => value.clone(),
                    false => Value::Unknown,
                })
                .collect(),
            Err(fault) => return Err(fault),
        };
        if routine.outputs.is_empty() {
            return Ok(None);
        }
        let row = ExpectedRow {
            values,
            certain: true,
            sources: SmallVec::new(),
        };
        rows.groups = vec![Group {
            rows: vec![row],
            take: None,
        }];
        Ok(Some(rows))
    }

    /// What the answer says about the OUT arguments.
    fn shown(&self, routine: &Routine, rows: &Rows) -> Option<Shown> {
        let (answer, heed) = self.answered?;
        let decoded = Expect::success(self.context.clone()).decoded(rows, answer).ok()?;
        let row = decoded.into_iter().next()?;
        (row.len() == routine.outputs.len()).then(|| Shown::of(routine, row, heed))
    }

    fn run_body(
        &self,
        routine: &Arc<Routine>,
        arguments: Vec<Value>,
        shown: Option<Shown>,
    ) -> Outcome<Ended> {
        if self.routine_depth > 8 {
            return Fault::unsure("routine_depth");
        }
        let views = self.views;
        if self.path.is_some() || !is_volatile(routine) {
            return Ok(self.adopt(self.run_on(routine, arguments, shown, views, views)?));
        }
        let first = match self.run_on(routine, arguments.clone(), None, views, views) {
            // A newer snapshot may have been kinder.
            Err(Fault::Raised { .. }) if views.recheck && !self.is_quiet() => {
                return Fault::unsure("routine_snapshots");
            }
            other => other?,
        };
        if !views.recheck || (first.reads <= 1 && first.effects.is_empty()) {
            return Ok(self.adopt(first));
        }
        let newest = Views {
            snapshot: views.latest,
            ..views
        };
        if first.reads <= 1 {
            // What is found to be written after the read may be found in a newer snapshot.
            let second = self.run_on(routine, arguments, None, views, newest)?;
            return match first.merge(second, routine) {
                Some(both) => Ok(self.adopt(both)),
                None => Fault::unsure("routine_snapshots"),
            };
        }
        if self.is_quiet() {
            return Ok(self.adopt(first));
        }
        let second = self.run_on(routine, arguments, None, newest, newest)?;
        match first.merge(second, routine) {
            // Between two equal answers there may have been another one.
            Some(both) => Ok(self.adopt(both.forget_answer(routine))),
            None => Fault::unsure("routine_snapshots"),
        }
    }

    fn adopt(&self, ended: Ended) -> Ended {
        self.effects.borrow_mut().extend(ended.effects.iter().cloned());
        ended
    }

    /// Whether everything that was read is the same version in the snapshot and in the newest state.
    fn is_quiet(&self) -> bool {
        let same_rows = |one: &[(RowId, Row)], other: &[(RowId, Row)]| {
            let alike = |((a, x), (b, y)): (&(RowId, Row), &(RowId, Row))| a == b && Arc::ptr_eq(x, y);
            one.len() == other.len() && one.iter().zip(other).all(alike)
        };
        let mut known: Vec<TableId> = Vec::new();
        self.touches().iter().all(|touch| {
            let read = |view: &dyn View| {
                let mut rows = Vec::new();
                match touch {
                    Touch::Key {
                        table, columns, key, ..
                    } => {
                        view.lookup(*table, columns, key, &mut |id, row| rows.push((id, row.clone())));
                    }
                    Touch::Scan { table, .. } => {
                        view.scan(*table, &mut |id, row| rows.push((id, row.clone())));
                    }
                }
                rows.sort_by_key(|(id, _)| *id);
                rows
            };
            if let Touch::Scan { table, .. } = touch {
                if known.contains(table) {
                    return true;
                }
                known.push(*table);
            }
            same_rows(&read(self.views.snapshot), &read(self.views.latest))
        })
    }

    /// Runs the body: the first statement that reads, and those before it, on `views`, the others on `later`.
    fn run_on(
        &self,
        routine: &Arc<Routine>,
        arguments: Vec<Value>,
        shown: Option<Shown>,
        views: Views<'_>,
        later: Views<'_>,
    ) -> Outcome<Ended> {
        let changes = Rc::new(RefCell::new(Changes::default()));
        let snapshot = Layer {
            base: views.snapshot,
            changes: changes.clone(),
        };
        let latest = Layer {
            base: views.latest,
            changes: changes.clone(),
        };
        let later_snapshot = Layer {
            base: later.snapshot,
            changes: changes.clone(),
        };
        let mut body = Body {
            run: self,
            routine,
            views: Views {
                snapshot: &snapshot,
                latest: &latest,
                recheck: views.recheck,
            },
            later: Views {
                snapshot: &later_snapshot,
                latest: &latest,
                recheck: views.recheck,
            },
            reads: 0,
            path: self.path.clone().filter(|_| is_volatile(routine)),
            changes: changes.clone(),
            variables: vec![Value::Null; routine.variables.len()],
            row_count: Some(0),
            found: routine
                .variables
                .iter()
                .position(|variable| variable.name == "found"),
            steps: 0,
            forks: 0,
            supposed: 0,
            shown,
            taken: Vec::new(),
            strayed: Strayed::default(),
            witnesses: None,
            question: None,
            kept_back: Vec::new(),
            pinned: Pinned::default(),
            returned: None,
        };
        for (place, value) in arguments.into_iter().enumerate() {
            body.variables[place] = value;
        }
        if let Some(found) = body.found {
            body.variables[found] = Value::Bool(false);
        }
        for (place, variable) in routine.variables.iter().enumerate() {
            if let Some(default) = &variable.default {
                body.assign(place, default)?;
            }
        }
        let flow = body.run(&routine.body);
        body.pass_on();
        let is_lost = body.is_lost();
        let pinned = std::mem::take(&mut body.pinned);
        self.pin(pinned);
        // What was not found may be there when the answer is explained.
        if flow.is_err() || (body.strayed.is_empty_handed() && !is_lost) {
            self.unpin();
        }
        flow?;
        let (returned, mut variables) = (body.returned.take(), std::mem::take(&mut body.variables));
        for variable in body.taken.drain(..) {
            variables[variable] = Value::Unknown;
        }
        let (reads, strayed) = (body.reads, body.strayed.at.take());
        drop(body);
        let effects = changes.borrow_mut().take();
        Ok(Ended {
            returned,
            variables,
            effects,
            reads,
            strayed,
            is_lost,
        })
    }
}

/// Whether its statements take snapshots of their own.
fn is_volatile(routine: &Routine) -> bool {
    routine.function.as_ref().is_none_or(|f| f.volatility == 'v')
}
