//! The steps of a routine: assignments, conditions, loops, and where they lead.

use super::changes::Changes;
use super::ended::unknown_unless_same;
use super::path::Path;
use super::pinned::{Pinned, Question};
use super::shown::{Shown, Strayed, Witnesses};
use super::{FORKS_MAX, STEPS_MAX};
use crate::interpret::run::{Fault, Outcome, Run};
use crate::interpret::{Touch, Views};
use crate::sql::plan::{Planned, Routine, Step};
use crate::value::{Value, oid};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// How a list of steps ended.
#[derive(PartialEq)]
pub(super) enum Flow {
    On,
    Exit(Option<String>),
    Next(Option<String>),
    Return,
}

pub(super) struct Body<'b, 'a> {
    pub(super) run: &'b Run<'a>,
    pub(super) routine: &'b Arc<Routine>,
    pub(super) views: Views<'b>,
    /// What statements behind the first one that reads see.
    pub(super) later: Views<'b>,
    pub(super) reads: usize,
    /// The way that was gone so far; `None`: all statements share the instants of the one outside.
    pub(super) path: Option<Rc<Path>>,
    pub(super) changes: Rc<RefCell<Changes>>,
    pub(super) variables: Vec<Value>,
    /// `None`: not known.
    pub(super) row_count: Option<u64>,
    pub(super) found: Option<usize>,
    pub(super) steps: usize,
    /// Conditions that were not known.
    pub(super) forks: usize,
    /// Of those, how many it is supposed of that they were true, or not.
    pub(super) supposed: usize,
    /// What the routine is known to answer.
    pub(super) shown: Option<Shown>,
    /// Variables whose value was taken from there: it says nothing about them.
    pub(super) taken: Vec<usize>,
    /// Where it went on by what was answered.
    pub(super) strayed: Strayed,
    /// What may tell whether the last statement found something.
    pub(super) witnesses: Option<Witnesses>,
    /// The last query, as long as the answer may tell what it found; and what it read.
    pub(super) question: Option<Question>,
    pub(super) kept_back: Vec<Touch>,
    /// What was read where the answer says what was found.
    pub(super) pinned: Pinned,
    pub(super) returned: Option<Value>,
}

impl Body<'_, '_> {
    pub(super) fn run(&mut self, steps: &[Step]) -> Outcome<Flow> {
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
        if !self.is_told_by(step) {
            self.pass_on();
        }
        match step {
            Step::Assign {
                variable,
                value,
                appends,
                settles,
            } => {
                let before = self.variables[*variable].clone();
                self.assign(*variable, value)?;
                match appends {
                    Some(item) if *settles => self.heed_appended(*variable, &before, *item)?,
                    None if *settles => self.heed(*variable)?,
                    _ => {}
                }
            }
            Step::Run {
                statement,
                into,
                strict,
                settles,
            } => {
                self.statement(statement, into.as_deref(), *strict)?;
                for variable in settles {
                    self.heed(*variable)?;
                }
            }
            Step::If { branches, otherwise } => {
                return self.branch(branches, otherwise);
            }
            Step::Loop { body, label } => loop {
                if let Some(flow) = self.turn(body, label.as_deref())? {
                    return Ok(flow);
                }
            },
            Step::While {
                condition,
                body,
                label,
            } => {
                while self.condition(condition)? {
                    if let Some(flow) = self.turn(body, label.as_deref())? {
                        return Ok(flow);
                    }
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
                        self.set(*place, Value::Int4(at as i32));
                    }
                    if let Some(flow) = self.turn(body, label.as_deref())? {
                        self.set_found(true);
                        return Ok(flow);
                    }
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
                    if let Some(flow) = self.turn(body, label.as_deref())? {
                        self.set_found(true);
                        return Ok(flow);
                    }
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
                let count = self.convert(count, oid::INT8, target.type_oid, target.type_modifier)?;
                self.set(*variable, count);
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
        if let Some(path) = &self.path {
            path.forked.set(true);
        }
        self.forks += 1;
        if self.forks > FORKS_MAX {
            return Fault::unsure("unknown_condition");
        }
        let before = (
            self.variables.clone(),
            self.changes.borrow().clone(),
            self.row_count,
        );
        self.supposed += 1;
        let one = perhaps(self.run(body));
        self.witnesses = None;
        let after = (
            std::mem::replace(&mut self.variables, before.0),
            std::mem::replace(&mut *self.changes.borrow_mut(), before.1),
            std::mem::replace(&mut self.row_count, before.2),
            self.returned.take(),
        );
        if let Err(Fault::Refuted { .. }) = one {
            // The answer says that it was the other way.
            self.supposed -= 1;
            return self.branch(rest, otherwise);
        }
        let one = one?;
        let other = perhaps(self.branch(rest, otherwise));
        self.witnesses = None;
        self.supposed -= 1;
        if let Err(Fault::Refuted { .. }) = other {
            (self.variables, self.row_count, self.returned) = (after.0, after.2, after.3);
            *self.changes.borrow_mut() = after.1;
            return Ok(one);
        }
        let other = other?;
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

    /// One turn of a loop; how the loop ends, if it does.
    fn turn(&mut self, body: &[Step], label: Option<&str>) -> Outcome<Option<Flow>> {
        let ended = after_turn(self.run(body)?, label);
        self.steps += 1;
        match ended {
            None if self.steps > STEPS_MAX => Fault::unsure("routine_steps"),
            ended => Ok(ended),
        }
    }

    /// A variable gets another value: it no longer tells what a statement found.
    pub(super) fn set(&mut self, variable: usize, value: Value) {
        self.witnesses.take_if(|w| w.is_about(variable));
        self.variables[variable] = value;
    }

    pub(super) fn set_found(&mut self, found: bool) {
        if let Some(place) = self.found {
            self.variables[place] = Value::Bool(found);
        }
    }

    pub(super) fn count(&mut self, rows: Option<u64>) {
        self.witnesses = None;
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
}

/// An error on a way that was perhaps not gone is none that must come.
fn perhaps<T>(result: Outcome<T>) -> Outcome<T> {
    match result {
        Err(Fault::Raised { .. }) => Fault::unsure("unknown_condition"),
        other => other,
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
