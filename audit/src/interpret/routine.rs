//! Functions and procedures that users wrote, run statement by statement.
//!
//! Always true:
//!   - a later statement of a routine sees what an earlier one wrote;
//!   - under READ COMMITTED every statement of a routine may see a newer snapshot than the one before. What was
//!     locked cannot have changed since, so one view of the newest state serves all writes, and one read of a
//!     snapshot is the snapshot's. Beyond that the routine is run on the oldest and on the newest state that it can
//!     see, and what differs is unknown.

use super::expect::{ExpectedRow, Group, Rows};
use super::run::{Fault, Outcome, Run};
use super::{Effect, Touch, Views};
use crate::sql::plan::{Kind, Planned, Routine, Step};
use crate::state::view::Knowledge;
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::value::compare::same;
use crate::value::{self, CastKind, Collation, Value, oid};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeMap;
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
        let ended = self.run_body(routine, arguments)?;
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
        let ended = self.run_body(routine, arguments)?;
        if routine.outputs.is_empty() {
            return Ok(None);
        }
        let values = routine
            .outputs
            .iter()
            .map(|place| ended.variables[*place].clone())
            .collect();
        let row = ExpectedRow {
            values,
            certain: true,
            sources: SmallVec::new(),
        };
        Ok(Some(Rows {
            groups: vec![Group {
                rows: vec![row],
                take: None,
            }],
            types: routine
                .outputs
                .iter()
                .map(|place| routine.variables[*place].type_oid)
                .collect(),
            names: routine
                .outputs
                .iter()
                .map(|place| routine.variables[*place].name.clone())
                .collect(),
            ..Rows::default()
        }))
    }

    fn run_body(&self, routine: &Arc<Routine>, arguments: Vec<Value>) -> Outcome<Ended> {
        if self.routine_depth > 8 {
            return Fault::unsure("routine_depth");
        }
        let views = self.views;
        let first = match self.run_on(routine, arguments.clone(), views, views) {
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
            let second = self.run_on(routine, arguments, views, newest)?;
            return match first.merge(second, routine) {
                Some(both) => Ok(self.adopt(both)),
                None => Fault::unsure("routine_snapshots"),
            };
        }
        if self.is_quiet() {
            return Ok(self.adopt(first));
        }
        let second = self.run_on(routine, arguments, newest, newest)?;
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
                    Touch::Key { table, columns, key } => {
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
            changes: changes.clone(),
            variables: vec![Value::Null; routine.variables.len()],
            row_count: Some(0),
            found: routine
                .variables
                .iter()
                .position(|variable| variable.name == "found"),
            steps: 0,
            forks: 0,
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
        body.run(&routine.body)?;
        let (returned, variables) = (body.returned.take(), std::mem::take(&mut body.variables));
        let reads = body.reads;
        drop(body);
        let effects = changes.borrow_mut().take();
        Ok(Ended {
            returned,
            variables,
            effects,
            reads,
        })
    }
}

struct Ended {
    returned: Option<Value>,
    variables: Vec<Value>,
    effects: Vec<Effect>,
    /// How many statements read a snapshot without locking what they read.
    reads: usize,
}

impl Ended {
    /// What two runs have in common: what differs is unknown. `None`: they did different things.
    fn merge(mut self, other: Ended, routine: &Routine) -> Option<Ended> {
        let merge = unknown_unless_same;
        let merge_rows = |one: &mut Row, other: &Row| *one = common(one, other);
        match (&mut self.returned, &other.returned) {
            (Some(one), Some(other)) => merge(one, other),
            (None, None) => {}
            _ => return None,
        }
        for place in &routine.outputs {
            merge(&mut self.variables[*place], &other.variables[*place]);
        }
        if self.effects.len() != other.effects.len() {
            return None;
        }
        for pair in self.effects.iter_mut().zip(&other.effects) {
            match pair {
                (Effect::Insert { table: a, row: x }, Effect::Insert { table: b, row: y })
                    if a == b && x.len() == y.len() =>
                {
                    merge_rows(x, y);
                }
                (
                    Effect::Update {
                        table: a,
                        id: i,
                        after: x,
                        ..
                    },
                    Effect::Update {
                        table: b,
                        id: j,
                        after: y,
                        ..
                    },
                ) if a == b && i == j && x.len() == y.len() => merge_rows(x, y),
                (Effect::Delete { table: a, id: i, .. }, Effect::Delete { table: b, id: j, .. })
                    if a == b && i == j => {}
                (Effect::Unseen { table: a }, Effect::Unseen { table: b })
                | (Effect::Havoc { table: a, .. }, Effect::Havoc { table: b, .. })
                    if a == b => {}
                _ => return None,
            }
        }
        Some(self)
    }

    fn forget_answer(mut self, routine: &Routine) -> Ended {
        self.returned = self.returned.map(|_| Value::Unknown);
        for place in &routine.outputs {
            self.variables[*place] = Value::Unknown;
        }
        self
    }
}

fn unknown_unless_same(value: &mut Value, other: &Value) {
    if same(value, other, Collation::Bytes) != Some(true) {
        *value = Value::Unknown;
    }
}

/// The cells that two versions of a row have in common.
fn common(one: &Row, other: &Row) -> Row {
    let pairs = one.iter().zip(other.iter());
    pairs
        .map(|(one, other)| match same(one, other, Collation::Bytes) {
            Some(true) => one.clone(),
            _ => Value::Unknown,
        })
        .collect()
}

/// How a list of steps ended.
#[derive(PartialEq)]
enum Flow {
    On,
    Exit(Option<String>),
    Next(Option<String>),
    Return,
}

struct Body<'b, 'a> {
    run: &'b Run<'a>,
    routine: &'b Arc<Routine>,
    views: Views<'b>,
    /// What statements behind the first one that reads see.
    later: Views<'b>,
    reads: usize,
    changes: Rc<RefCell<Changes>>,
    variables: Vec<Value>,
    /// `None`: not known.
    row_count: Option<u64>,
    found: Option<usize>,
    steps: usize,
    /// Conditions that were not known.
    forks: usize,
    returned: Option<Value>,
}

impl Body<'_, '_> {
    fn run(&mut self, steps: &[Step]) -> Outcome<Flow> {
        for step in steps {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Fault::unsure("routine_steps");
            }
            match self.step(step)? {
                Flow::On => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::On)
    }

    fn step(&mut self, step: &Step) -> Outcome<Flow> {
        match step {
            Step::Assign { variable, value } => self.assign(*variable, value)?,
            Step::Run {
                statement,
                into,
                strict,
            } => self.statement(statement, into.as_deref(), *strict)?,
            Step::If { branches, otherwise } => {
                return self.branch(branches, otherwise);
            }
            Step::Loop { body, label } => loop {
                if let Some(flow) = after_turn(self.run(body)?, label.as_deref()) {
                    return Ok(flow);
                }
                self.turn()?;
            },
            Step::While {
                condition,
                body,
                label,
            } => {
                while self.condition(condition)? {
                    if let Some(flow) = after_turn(self.run(body)?, label.as_deref()) {
                        return Ok(flow);
                    }
                    self.turn()?;
                }
            }
            Step::ForRange {
                variable,
                also,
                from,
                to,
                by,
                reverse,
                body,
                label,
            } => {
                let number = |value: Value| match value {
                    Value::Int2(number) => Ok(i64::from(number)),
                    Value::Int4(number) => Ok(i64::from(number)),
                    Value::Int8(number) => Ok(number),
                    _ => Fault::unsure("loop_bounds"),
                };
                let from = number(self.value(from)?)?;
                let to = number(self.value(to)?)?;
                let by = match by {
                    Some(by) => number(self.value(by)?)?,
                    None => 1,
                };
                if by <= 0 {
                    return Fault::unsure("loop_bounds");
                }
                let mut at = from;
                let mut turned = false;
                while if *reverse { at >= to } else { at <= to } {
                    turned = true;
                    for place in std::iter::once(variable).chain(also) {
                        self.variables[*place] = Value::Int4(at as i32);
                    }
                    if let Some(flow) = after_turn(self.run(body)?, label.as_deref()) {
                        self.set_found(true);
                        return Ok(flow);
                    }
                    self.turn()?;
                    at += if *reverse { -by } else { by };
                }
                self.set_found(turned);
            }
            Step::ForQuery {
                targets,
                query,
                body,
                label,
            } => {
                let Some(rows) = self.rows(query)? else {
                    return Fault::unsure("routine_over_unknown");
                };
                let any = !rows.is_empty();
                for row in rows {
                    self.fill(targets, query, Some(&row))?;
                    if let Some(flow) = after_turn(self.run(body)?, label.as_deref()) {
                        self.set_found(true);
                        return Ok(flow);
                    }
                    self.turn()?;
                }
                self.set_found(any);
            }
            Step::Exit {
                condition,
                is_exit,
                label,
            } => {
                let taken = match condition {
                    Some(condition) => self.condition(condition)?,
                    None => true,
                };
                if taken {
                    return Ok(if *is_exit {
                        Flow::Exit(label.clone())
                    } else {
                        Flow::Next(label.clone())
                    });
                }
            }
            Step::Return(value) => {
                if let Some(value) = value {
                    let result = self.value(value)?;
                    let from = value.columns.first().map_or(0, |column| column.type_oid);
                    self.returned = Some(self.convert(result, from, self.routine.returns, -1)?);
                }
                return Ok(Flow::Return);
            }
            Step::Raise {
                sqlstate: Some(sqlstate),
                is_error: true,
            } => {
                // What it says is put together first, which may fail as well.
                self.run.any_error.set(true);
                return Err(Fault::Raised {
                    sqlstate: sqlstate.clone(),
                    message: "RAISE".to_owned(),
                });
            }
            Step::Raise { is_error: true, .. } => return Fault::unsure("raise"),
            Step::Raise { .. } | Step::Nothing => {}
            Step::GetRowCount(variable) => {
                let count = self
                    .row_count
                    .map_or(Value::Unknown, |count| Value::Int8(count as i64));
                let target = &self.routine.variables[*variable];
                self.variables[*variable] =
                    self.convert(count, oid::INT8, target.type_oid, target.type_modifier)?;
            }
            Step::Commit | Step::Rollback => return Fault::unsure("transaction_in_procedure"),
        }
        Ok(Flow::On)
    }

    /// IF: where the condition is not known, both ways are gone, and what they have in common is kept.
    fn branch(&mut self, branches: &[(Arc<Planned>, Vec<Step>)], otherwise: &[Step]) -> Outcome<Flow> {
        let Some(((condition, body), rest)) = branches.split_first() else {
            return self.run(otherwise);
        };
        match self.value(condition)? {
            Value::Bool(true) => return self.run(body),
            Value::Bool(false) | Value::Null => return self.branch(rest, otherwise),
            _ => {}
        }
        self.run.note("unknown_condition");
        self.forks += 1;
        if self.forks > FORKS_MAX {
            return Fault::unsure("unknown_condition");
        }
        let before = (
            self.variables.clone(),
            self.changes.borrow().clone(),
            self.row_count,
        );
        let one = perhaps(self.run(body))?;
        let after = (
            std::mem::replace(&mut self.variables, before.0),
            std::mem::replace(&mut *self.changes.borrow_mut(), before.1),
            std::mem::replace(&mut self.row_count, before.2),
            self.returned.take(),
        );
        let other = perhaps(self.branch(rest, otherwise))?;
        if one != other {
            return Fault::unsure("unknown_condition");
        }
        for (value, other) in self.variables.iter_mut().zip(&after.0) {
            unknown_unless_same(value, other);
        }
        if let (Some(value), Some(other)) = (&mut self.returned, &after.3) {
            unknown_unless_same(value, other);
        }
        if self.row_count != after.2 {
            self.row_count = None;
        }
        let merged = std::mem::take(&mut *self.changes.borrow_mut()).merge(after.1);
        *self.changes.borrow_mut() = merged;
        Ok(other)
    }

    fn turn(&mut self) -> Outcome<()> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            Fault::unsure("routine_steps")
        } else {
            Ok(())
        }
    }

    fn set_found(&mut self, found: bool) {
        if let Some(place) = self.found {
            self.variables[place] = Value::Bool(found);
        }
    }

    fn count(&mut self, rows: Option<u64>) {
        self.row_count = rows;
        match rows {
            Some(rows) => self.set_found(rows > 0),
            None => {
                if let Some(place) = self.found {
                    self.variables[place] = Value::Unknown;
                }
            }
        }
    }

    fn condition(&mut self, planned: &Arc<Planned>) -> Outcome<bool> {
        match self.value(planned)? {
            Value::Bool(value) => Ok(value),
            Value::Null => Ok(false),
            _ => Fault::unsure("unknown_condition"),
        }
    }

    /// The value of an expression: a query of one row and one column.
    fn value(&mut self, planned: &Arc<Planned>) -> Outcome<Value> {
        let Some(rows) = self.rows(planned)? else {
            return Ok(Value::Unknown);
        };
        Ok(rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next())
            .unwrap_or(Value::Null))
    }

    fn assign(&mut self, variable: usize, planned: &Arc<Planned>) -> Outcome<()> {
        let value = self.value(planned)?;
        let from = planned.columns.first().map_or(0, |column| column.type_oid);
        let target = &self.routine.variables[variable];
        self.variables[variable] = self.convert(value, from, target.type_oid, target.type_modifier)?;
        Ok(())
    }

    fn convert(&self, value: Value, from: u32, to: u32, type_modifier: i32) -> Outcome<Value> {
        if value.is_unknown() || value.is_null() || (from == to && type_modifier < 0) {
            return Ok(value);
        }
        match value::cast(
            &value,
            from,
            to,
            type_modifier,
            CastKind::Assignment,
            self.run.context,
        ) {
            Ok(value) => Ok(value),
            Err(value::SqlError::Raised { sqlstate, message }) => Err(Fault::Raised {
                sqlstate: sqlstate.to_owned(),
                message,
            }),
            Err(value::SqlError::NotModelled(_)) => Fault::unsure("assignment_cast"),
        }
    }

    fn inner<T>(&mut self, planned: &Arc<Planned>, f: impl FnOnce(&Run<'_>) -> Outcome<T>) -> Outcome<T> {
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
        let views = if self.reads == 0 { self.views } else { self.later };
        self.reads += usize::from(reads_unlocked(planned));
        let mut run = Run::new(planned, bound, views, self.run.context);
        run.routine_depth = self.run.routine_depth + 1;
        let result = f(&run);
        for touch in run.take_footprint() {
            self.run.touch(touch);
        }
        for (sqlstate, why) in run.possible.take() {
            self.run.may_fail(&sqlstate, why);
        }
        if run.any_error.get() {
            self.run.any_error.set(true);
        }
        for reason in run.reasons.take() {
            self.run.note(reason);
        }
        let value = result?;
        let effects = run.effects.take();
        drop(run);
        let mut changes = self.changes.borrow_mut();
        for effect in effects {
            changes.apply(effect, self.run.routine_depth as u64)?;
        }
        Ok(value)
    }

    /// The rows of a query in an order that is certain; `None` if they are not known.
    fn rows(&mut self, planned: &Arc<Planned>) -> Outcome<Option<Vec<Vec<Value>>>> {
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
            let several = output.rows.len() > 1 && ambiguous;
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

    fn statement(&mut self, planned: &Arc<Planned>, into: Option<&[usize]>, strict: bool) -> Outcome<()> {
        let rows = match &planned.kind {
            Kind::Select(_) => {
                let rows = self.rows(planned)?;
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
                Ok(())
            }
            Some(rows) if strict && rows.len() != 1 => {
                let sqlstate = if rows.is_empty() { "P0002" } else { "P0003" };
                Err(Fault::Raised {
                    sqlstate: sqlstate.to_owned(),
                    message: "INTO STRICT".to_owned(),
                })
            }
            Some(rows) => self.fill(targets, planned, rows.first()),
        }
    }

    /// INTO: the columns of a row, or NULLs if there is none.
    fn fill(&mut self, targets: &[usize], planned: &Arc<Planned>, row: Option<&Vec<Value>>) -> Outcome<()> {
        for (place, variable) in targets.iter().enumerate() {
            let value = row.and_then(|row| row.get(place)).cloned().unwrap_or(Value::Null);
            let from = planned.columns.get(place).map_or(0, |column| column.type_oid);
            let target = &self.routine.variables[*variable];
            self.variables[*variable] = self.convert(value, from, target.type_oid, target.type_modifier)?;
        }
        Ok(())
    }
}

/// An error on a way that was perhaps not gone is none that must come.
fn perhaps<T>(result: Outcome<T>) -> Outcome<T> {
    match result {
        Err(Fault::Raised { .. }) => Fault::unsure("unknown_condition"),
        other => other,
    }
}

/// Whether a statement reads tables in a snapshot without locking the rows that it finds.
fn reads_unlocked(planned: &Planned) -> bool {
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

fn after_turn(flow: Flow, label: Option<&str>) -> Option<Flow> {
    match flow {
        Flow::On => None,
        Flow::Exit(None) => Some(Flow::On),
        Flow::Exit(Some(wanted)) if Some(wanted.as_str()) == label => Some(Flow::On),
        Flow::Next(None) => None,
        Flow::Next(Some(wanted)) if Some(wanted.as_str()) == label => None,
        other => Some(other),
    }
}

/// What a routine has written so far.
#[derive(Clone, Default)]
struct Changes {
    tables: BTreeMap<TableId, Changed>,
    effects: Vec<Option<Effect>>,
    /// Which effect made a row of our own, or last changed a row that was there.
    places: BTreeMap<(TableId, RowId), usize>,
    next: u64,
}

#[derive(Clone, Default)]
struct Changed {
    replaced: BTreeMap<RowId, Option<Row>>,
    inserted: BTreeMap<RowId, Row>,
    /// Rows that nobody has seen may have been written.
    unseen: bool,
    /// Nothing is known of its rows any more.
    havoc: bool,
}

impl Changes {
    fn apply(&mut self, effect: Effect, depth: u64) -> Outcome<()> {
        match effect {
            Effect::Insert { table, row } => {
                let id = RowId(OWN | (depth << 40) | self.next);
                self.next += 1;
                self.tables
                    .entry(table)
                    .or_default()
                    .inserted
                    .insert(id, row.clone());
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(Effect::Insert { table, row }));
            }
            Effect::Update {
                table,
                id,
                before,
                after,
            } => {
                let changed = self.tables.entry(table).or_default();
                if let Some(own) = changed.inserted.get_mut(&id) {
                    *own = after.clone();
                    if let Some(place) = self.places.get(&(table, id)) {
                        self.effects[*place] = Some(Effect::Insert { table, row: after });
                    }
                    return Ok(());
                }
                changed.replaced.insert(id, Some(after.clone()));
                let before = self.first_version(table, id).unwrap_or(before);
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(Effect::Update {
                    table,
                    id,
                    before,
                    after,
                }));
            }
            Effect::Delete { table, id, before } => {
                let changed = self.tables.entry(table).or_default();
                if changed.inserted.remove(&id).is_some() {
                    if let Some(place) = self.places.remove(&(table, id)) {
                        self.effects[place] = None;
                    }
                    return Ok(());
                }
                changed.replaced.insert(id, None);
                let before = self.first_version(table, id).unwrap_or(before);
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(Effect::Delete { table, id, before }));
            }
            Effect::Unseen { table } => {
                self.tables.entry(table).or_default().unseen = true;
                self.effects.push(Some(Effect::Unseen { table }));
            }
            Effect::Havoc { table, reason } => {
                self.tables.entry(table).or_default().havoc = true;
                self.effects.push(Some(Effect::Havoc { table, reason }));
            }
            _ => return Fault::unsure("routine_effect"),
        }
        Ok(())
    }

    /// Several changes of one row count as one: takes back the earlier one and tells what it started from.
    fn first_version(&mut self, table: TableId, id: RowId) -> Option<Row> {
        let place = *self.places.get(&(table, id))?;
        match self.effects[place].take() {
            Some(Effect::Update { before, .. } | Effect::Delete { before, .. }) => Some(before),
            _ => None,
        }
    }

    /// Two ways from the same begin of which one was gone, and nobody knows which.
    fn merge(mut self, mut other: Changes) -> Changes {
        let mut lost: Vec<TableId> = Vec::new();
        let mut rows: Vec<(TableId, RowId)> = self.places.keys().copied().collect();
        rows.extend(other.places.keys());
        rows.sort();
        rows.dedup();
        for (table, id) in rows {
            let mine = self.effect(table, id).cloned();
            match (mine, other.effect(table, id).cloned()) {
                (Some(Effect::Insert { row: x, .. }), Some(Effect::Insert { row: y, .. })) => {
                    let row = common(&x, &y);
                    self.set(table, id, Effect::Insert { table, row });
                }
                (Some(Effect::Update { before, after: x, .. }), Some(Effect::Update { after: y, .. })) => {
                    let after = common(&x, &y);
                    self.set(
                        table,
                        id,
                        Effect::Update {
                            table,
                            id,
                            before,
                            after,
                        },
                    );
                }
                (Some(Effect::Delete { .. }), Some(Effect::Delete { .. })) | (None, None) => {}
                // Whether the row is there, or whether it is locked, is not known.
                _ => lost.push(table),
            }
        }
        for (table, changed) in &mut other.tables {
            let own = self.tables.entry(*table).or_default();
            if changed.unseen && !own.unseen {
                own.unseen = true;
                self.effects.push(Some(Effect::Unseen { table: *table }));
            }
            if changed.havoc && !own.havoc {
                lost.push(*table);
            }
        }
        for table in lost {
            self.tables.entry(table).or_default().havoc = true;
            let reason = "unknown_condition".to_owned();
            self.effects.push(Some(Effect::Havoc { table, reason }));
        }
        self.next = self.next.max(other.next);
        self
    }

    fn effect(&self, table: TableId, id: RowId) -> Option<&Effect> {
        self.places
            .get(&(table, id))
            .and_then(|place| self.effects[*place].as_ref())
    }

    fn set(&mut self, table: TableId, id: RowId, effect: Effect) {
        let changed = self.tables.entry(table).or_default();
        match &effect {
            Effect::Insert { row, .. } => {
                changed.inserted.insert(id, row.clone());
            }
            Effect::Update { after, .. } => {
                changed.replaced.insert(id, Some(after.clone()));
            }
            _ => {}
        }
        match self.places.get(&(table, id)) {
            Some(place) => self.effects[*place] = Some(effect),
            None => {
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(effect));
            }
        }
    }

    fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects).into_iter().flatten().collect()
    }
}

/// A view with a routine's own writes on top.
struct Layer<'a> {
    base: &'a dyn View,
    changes: Rc<RefCell<Changes>>,
}

impl View for Layer<'_> {
    fn catalog(&self) -> &Catalog {
        self.base.catalog()
    }

    fn knowledge(&self, table: TableId) -> Knowledge {
        match self.changes.borrow().tables.get(&table) {
            Some(own) if own.unseen || own.havoc => Knowledge::Partial,
            _ => self.base.knowledge(table),
        }
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        let changes = self.changes.borrow();
        let own = changes.tables.get(&table);
        if own.is_some_and(|own| own.havoc) {
            return;
        }
        self.base.scan(
            table,
            &mut |id, row| match own.and_then(|own| own.replaced.get(&id)) {
                None => each(id, row),
                Some(Some(row)) => each(id, row),
                Some(None) => {}
            },
        );
        for (id, row) in own.into_iter().flat_map(|own| &own.inserted) {
            each(*id, row);
        }
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        let changes = self.changes.borrow();
        let own = changes.tables.get(&table);
        if own.is_some_and(|own| own.havoc) {
            return false;
        }
        let sure = self.base.lookup(table, columns, key, &mut |id, row| {
            if !own.is_some_and(|own| own.replaced.contains_key(&id)) {
                each(id, row);
            }
        });
        let fits = |row: &Row| {
            columns.iter().zip(key).all(|(column, value)| {
                row.get(*column)
                    .is_some_and(|cell| !cell.is_null() && same(cell, value, Collation::Bytes) != Some(false))
            })
        };
        if let Some(own) = own {
            let replaced = own
                .replaced
                .iter()
                .filter_map(|(id, row)| row.as_ref().map(|row| (id, row)));
            for (id, row) in replaced.chain(&own.inserted) {
                if fits(row) {
                    each(*id, row);
                }
            }
        }
        sure && !own.is_some_and(|own| own.unseen)
    }

    fn is_fixed(&self, table: TableId, columns: &[usize], key: &[Value]) -> bool {
        self.base.is_fixed(table, columns, key)
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        let changes = self.changes.borrow();
        if let Some(own) = changes.tables.get(&table) {
            if let Some(row) = own.inserted.get(&id) {
                return Some(row.clone());
            }
            if let Some(row) = own.replaced.get(&id) {
                return row.clone();
            }
        }
        self.base.row(table, id)
    }

    fn now(&self) -> Value {
        self.base.now()
    }
}
