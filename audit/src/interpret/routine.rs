//! Functions and procedures that users wrote, run statement by statement.
//!
//! Always true:
//!   - a later statement of a routine sees what an earlier one wrote;
//!   - under READ COMMITTED every statement of a routine may see a newer snapshot than the one before. A routine is
//!     run on the oldest and on the newest state that it can see; only where both agree is anything concluded.

use super::expect::{ExpectedRow, Group, Rows};
use super::run::{Fault, Outcome, Run};
use super::{Effect, Views};
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
        let first = self.run_on(
            routine,
            arguments.clone(),
            Views {
                snapshot: views.snapshot,
                latest: views.latest,
                recheck: views.recheck,
            },
        )?;
        if views.recheck && self.views_differ() {
            let second = self.run_on(
                routine,
                arguments,
                Views {
                    snapshot: views.latest,
                    latest: views.latest,
                    recheck: views.recheck,
                },
            )?;
            if !first.agrees(&second) {
                return Fault::unsure("routine_snapshots");
            }
        }
        self.effects.borrow_mut().extend(first.effects.iter().cloned());
        Ok(first)
    }

    fn run_on(&self, routine: &Arc<Routine>, arguments: Vec<Value>, views: Views<'_>) -> Outcome<Ended> {
        let changes = Rc::new(RefCell::new(Changes::default()));
        let snapshot = Layer {
            base: views.snapshot,
            changes: changes.clone(),
        };
        let latest = Layer {
            base: views.latest,
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
            changes: changes.clone(),
            variables: vec![Value::Null; routine.variables.len()],
            row_count: 0,
            found: routine
                .variables
                .iter()
                .position(|variable| variable.name == "found"),
            steps: 0,
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
        drop(body);
        let effects = changes.borrow_mut().take();
        Ok(Ended {
            returned,
            variables,
            effects,
        })
    }
}

struct Ended {
    returned: Option<Value>,
    variables: Vec<Value>,
    effects: Vec<Effect>,
}

impl Ended {
    fn agrees(&self, other: &Ended) -> bool {
        let equal = |one: &Value, other: &Value| same(one, other, Collation::Bytes) == Some(true);
        let equal_rows = |one: &Row, other: &Row| {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other.iter())
                    .all(|(a, b)| equal(a, b) || (a.is_unknown() && b.is_unknown()))
        };
        let returned = match (&self.returned, &other.returned) {
            (Some(one), Some(other)) => equal(one, other),
            (None, None) => true,
            _ => false,
        };
        returned
            && self
                .variables
                .iter()
                .zip(&other.variables)
                .all(|(one, other)| equal(one, other) || (one.is_unknown() && other.is_unknown()))
            && self.effects.len() == other.effects.len()
            && self.effects.iter().zip(&other.effects).all(|pair| match pair {
                (Effect::Insert { table: a, row: x }, Effect::Insert { table: b, row: y }) => {
                    a == b && equal_rows(x, y)
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
                ) => a == b && i == j && equal_rows(x, y),
                (Effect::Delete { table: a, id: i, .. }, Effect::Delete { table: b, id: j, .. }) => {
                    a == b && i == j
                }
                _ => false,
            })
    }
}

/// How a list of steps ended.
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
    changes: Rc<RefCell<Changes>>,
    variables: Vec<Value>,
    row_count: u64,
    found: Option<usize>,
    steps: usize,
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
                for (condition, body) in branches {
                    if self.condition(condition)? {
                        return self.run(body);
                    }
                }
                return self.run(otherwise);
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
                while at <= to {
                    turned = true;
                    for place in std::iter::once(variable).chain(also) {
                        self.variables[*place] = Value::Int4(at as i32);
                    }
                    if let Some(flow) = after_turn(self.run(body)?, label.as_deref()) {
                        self.set_found(true);
                        return Ok(flow);
                    }
                    self.turn()?;
                    at += by;
                }
                self.set_found(turned);
            }
            Step::ForQuery {
                targets,
                query,
                body,
                label,
            } => {
                let rows = self.rows(query)?;
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
            Step::Raise { is_error: true, .. } => return Fault::unsure("raise"),
            Step::Raise { .. } | Step::Nothing => {}
            Step::GetRowCount(variable) => {
                let count = Value::Int8(self.row_count as i64);
                let target = &self.routine.variables[*variable];
                self.variables[*variable] =
                    self.convert(count, oid::INT8, target.type_oid, target.type_modifier)?;
            }
            Step::Commit | Step::Rollback => return Fault::unsure("transaction_in_procedure"),
        }
        Ok(Flow::On)
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

    fn condition(&mut self, planned: &Arc<Planned>) -> Outcome<bool> {
        match self.value(planned)? {
            Value::Bool(value) => Ok(value),
            Value::Null => Ok(false),
            _ => Fault::unsure("unknown_condition"),
        }
    }

    /// The value of an expression: a query of one row and one column.
    fn value(&mut self, planned: &Arc<Planned>) -> Outcome<Value> {
        let rows = self.rows(planned)?;
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
        let mut run = Run::new(planned, bound, self.views, self.run.context);
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

    /// The rows of a query in an order that is certain.
    fn rows(&mut self, planned: &Arc<Planned>) -> Outcome<Vec<Vec<Value>>> {
        let Kind::Select(query) = &planned.kind else {
            return Fault::unsure("routine_query");
        };
        self.inner(planned, |run| {
            let output = run.output(query, None, true)?;
            let cutting = run.cutting(query, None)?;
            if output.open || output.rows.iter().any(|row| !row.certain) {
                return Fault::unsure("routine_over_unknown");
            }
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
                    return Fault::unsure("routine_order");
                }
            }
            Ok(output.rows[first..last]
                .iter()
                .map(|row| row.values[..query.visible].to_vec())
                .collect())
        })
    }

    fn statement(&mut self, planned: &Arc<Planned>, into: Option<&[usize]>, strict: bool) -> Outcome<()> {
        let rows = match &planned.kind {
            Kind::Select(_) => {
                let rows = self.rows(planned)?;
                self.row_count = if into.is_some() {
                    rows.len().min(1) as u64
                } else {
                    rows.len() as u64
                };
                rows
            }
            kind => {
                let written = self.inner(planned, |run| match kind {
                    Kind::Insert(insert) => run.insert(insert, None),
                    Kind::Update(update) => run.update(update, None),
                    Kind::Delete(delete) => run.delete(delete, None),
                    _ => Fault::unsure("routine_statement"),
                })?;
                if written.max != Some(written.min) {
                    return Fault::unsure("routine_over_unknown");
                }
                self.row_count = written.min;
                if into.is_some() && written.rows.len() > 1 {
                    return Fault::unsure("routine_order");
                }
                written.rows.into_iter().map(|row| row.values).collect()
            }
        };
        self.set_found(self.row_count > 0);
        if let Some(targets) = into {
            if strict && rows.len() != 1 {
                let sqlstate = if rows.is_empty() { "P0002" } else { "P0003" };
                return Err(Fault::Raised {
                    sqlstate: sqlstate.to_owned(),
                    message: "INTO STRICT".to_owned(),
                });
            }
            self.fill(targets, planned, rows.first())?;
        }
        Ok(())
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
#[derive(Default)]
struct Changes {
    tables: BTreeMap<TableId, Changed>,
    effects: Vec<Option<Effect>>,
    /// Which effect made a row of our own, or last changed a row that was there.
    places: BTreeMap<(TableId, RowId), usize>,
    next: u64,
}

#[derive(Default)]
struct Changed {
    replaced: BTreeMap<RowId, Option<Row>>,
    inserted: BTreeMap<RowId, Row>,
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
        self.base.knowledge(table)
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        let changes = self.changes.borrow();
        let own = changes.tables.get(&table);
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
        sure
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
