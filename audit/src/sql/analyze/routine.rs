//! Calls of functions and procedures that users wrote.

use super::{Analyzer, Result, Typed, strings_of, unmodelled};
use crate::sql::plan::Kind;
use crate::state::catalog::Function;
use crate::value::TypeOid;
use pg_query::protobuf as pg;
use std::sync::Arc;

/// The variables of a routine, which SQL inside it refers to as parameters.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    pub routine: String,
    pub names: Vec<String>,
    pub types: Vec<TypeOid>,
}

impl Variables {
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().rposition(|other| other == name)
    }
}

impl Analyzer<'_> {
    pub(super) fn user_function(&mut self, name: &str, _candidates: Vec<Arc<Function>>, _call: &pg::FuncCall) -> Result<Typed> {
        self.raw_call(name, None);
        unmodelled(format!("function_{name}"))
    }

    pub(super) fn call(&mut self, call: &pg::FuncCall) -> Result<Kind> {
        let name = strings_of(&call.funcname).last().copied().unwrap_or("").to_owned();
        self.touches.writes_everything = true;
        unmodelled(format!("procedure_{name}"))
    }

    pub(super) fn do_block(&mut self, _statement: &pg::DoStmt) -> Result<Kind> {
        self.touches.writes_everything = true;
        unmodelled("do_block")
    }
}
