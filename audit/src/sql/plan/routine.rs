//! A body in SQL or PL/pgSQL, step by step.

use super::Planned;
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
