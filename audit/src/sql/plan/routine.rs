//! A body in SQL or PL/pgSQL, step by step.

use super::{Asks, Planned};
use crate::state::catalog::Function;
use crate::value::TypeOid;
use std::sync::Arc;

/// A body in SQL or PL/pgSQL that is modelled.
#[derive(Debug)]
pub struct Routine {
    pub function: Option<Arc<Function>>,
    pub name: String,
    /// Types of all variables; the arguments come first.
    pub variables: Vec<Variable>,
    pub inputs: usize,
    pub body: Vec<Step>,
    pub returns: TypeOid,
    pub returns_void: bool,
    /// Positions of OUT and INOUT arguments.
    pub outputs: Vec<usize>,
    pub procedure: bool,
    /// What its statements depend on, whether or not they are run.
    pub asks: Asks,
}

#[derive(Debug)]
pub struct Variable {
    pub name: String,
    pub type_oid: TypeOid,
    pub type_modifier: i32,
    pub default: Option<Arc<Planned>>,
}

/// A statement of PL/pgSQL. Embedded SQL is planned with the variables as its parameters.
#[derive(Debug)]
pub enum Step {
    Assign {
        variable: usize,
        value: Arc<Planned>,
        /// It only adds this variable to the end of an array.
        appends: Option<usize>,
        /// The variable is answered, and nothing behind this step gives it another value, or does more than append to it
        /// if this step appends.
        settles: bool,
    },
    Run {
        statement: Arc<Planned>,
        into: Option<Vec<usize>>,
        strict: bool,
        /// Those of `into` that are answered, and to which nothing behind this step gives another value.
        settles: Vec<usize>,
    },
    If {
        branches: Vec<(Arc<Planned>, Vec<Step>)>,
        otherwise: Vec<Step>,
    },
    Loop {
        body: Vec<Step>,
        label: Option<String>,
    },
    While {
        condition: Arc<Planned>,
        body: Vec<Step>,
        label: Option<String>,
    },
    ForRange {
        variable: usize,
        also: Vec<usize>,
        from: Arc<Planned>,
        to: Arc<Planned>,
        by: Option<Arc<Planned>>,
        reverse: bool,
        body: Vec<Step>,
        label: Option<String>,
    },
    ForQuery {
        targets: Vec<usize>,
        query: Arc<Planned>,
        body: Vec<Step>,
        label: Option<String>,
    },
    Exit {
        condition: Option<Arc<Planned>>,
        is_exit: bool,
        label: Option<String>,
    },
    Return(Option<Arc<Planned>>),
    Raise {
        sqlstate: Option<String>,
        is_error: bool,
    },
    GetRowCount(usize),
    Commit,
    Rollback,
    Nothing,
}

impl Step {
    /// The variables that it gives values to.
    pub fn assigned(&self, variables: &mut Vec<usize>) {
        self.assigned_here(variables);
        self.inside().for_each(|step| step.assigned(variables));
    }

    /// The same, without those that it only appends to.
    fn replaced(&self, variables: &mut Vec<usize>) {
        if !matches!(self, Step::Assign { appends: Some(_), .. }) {
            self.assigned_here(variables);
        }
        self.inside().for_each(|step| step.replaced(variables));
    }

    /// Those that it gives values to itself, not a step inside it.
    fn assigned_here(&self, variables: &mut Vec<usize>) {
        match self {
            Step::Assign { variable, .. } | Step::GetRowCount(variable) => variables.push(*variable),
            Step::Run { into, .. } => variables.extend(into.iter().flatten()),
            Step::ForRange { variable, also, .. } => {
                variables.push(*variable);
                variables.extend(also);
            }
            Step::ForQuery { targets, .. } => variables.extend(targets),
            _ => {}
        }
    }

    /// The statements that it runs.
    pub fn statements<'s>(&'s self, statements: &mut Vec<&'s Arc<Planned>>) {
        match self {
            Step::Run { statement, .. } => statements.push(statement),
            Step::ForQuery { query, .. } => statements.push(query),
            Step::Assign { value, .. } | Step::Return(Some(value)) => statements.push(value),
            Step::If { branches, .. } => statements.extend(branches.iter().map(|(condition, _)| condition)),
            Step::While { condition, .. } => statements.push(condition),
            _ => {}
        }
        self.inside().for_each(|step| step.statements(statements));
    }

    /// Whether the routine may end, or a loop be left, in it.
    pub fn may_leave(&self) -> bool {
        matches!(self, Step::Return(_) | Step::Exit { .. } | Step::Raise { .. })
            || self.inside().any(Step::may_leave)
    }

    fn inside(&self) -> Box<dyn Iterator<Item = &Step> + '_> {
        match self {
            Step::If { branches, otherwise } => {
                Box::new(branches.iter().flat_map(|(_, body)| body).chain(otherwise))
            }
            Step::Loop { body, .. }
            | Step::While { body, .. }
            | Step::ForRange { body, .. }
            | Step::ForQuery { body, .. } => Box::new(body.iter()),
            _ => Box::new(std::iter::empty()),
        }
    }
}

/// Finds out after which steps the answers are settled.
pub fn settle(steps: &mut [Step], outputs: &[usize]) {
    settle_before(steps, outputs, Behind::default());
}

/// The variables that get another value behind a step: at all, and by more than being appended to.
#[derive(Clone, Default)]
struct Behind {
    assigned: Vec<usize>,
    replaced: Vec<usize>,
}

impl Behind {
    fn add(&mut self, step: &Step) {
        step.assigned(&mut self.assigned);
        step.replaced(&mut self.replaced);
    }
}

fn settle_before(steps: &mut [Step], outputs: &[usize], mut behind: Behind) {
    for step in steps.iter_mut().rev() {
        match step {
            Step::Assign {
                variable,
                appends,
                settles,
                ..
            } => {
                let changed = match appends {
                    Some(_) => &behind.replaced,
                    None => &behind.assigned,
                };
                *settles = outputs.contains(variable) && !changed.contains(variable);
            }
            Step::Run { into, settles, .. } => {
                let into = into.iter().flatten().copied();
                let settled = into.filter(|v| outputs.contains(v) && !behind.assigned.contains(v));
                *settles = settled.collect();
            }
            Step::If { branches, otherwise } => {
                for (_, body) in branches {
                    settle_before(body, outputs, behind.clone());
                }
                settle_before(otherwise, outputs, behind.clone());
            }
            Step::Loop { body, .. }
            | Step::While { body, .. }
            | Step::ForRange { body, .. }
            | Step::ForQuery { body, .. } => {
                // Behind each turn there may be another one.
                let mut again = behind.clone();
                body.iter().for_each(|step| again.add(step));
                settle_before(body, outputs, again);
            }
            _ => {}
        }
        behind.add(step);
    }
}
