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
    },
    Run {
        statement: Arc<Planned>,
        into: Option<Vec<usize>>,
        strict: bool,
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
        self.inside().for_each(|step| step.assigned(variables));
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
