//! Functions and procedures that users wrote, run statement by statement.

use super::expect::Rows;
use super::run::{Fault, Outcome, Run};
use crate::sql::plan::Routine;
use crate::value::Value;
use std::sync::Arc;

impl Run<'_> {
    pub(super) fn call_routine(&self, routine: &Arc<Routine>, _arguments: Vec<Value>) -> Outcome<Value> {
        Fault::unsure(format!("function_{}", routine.name))
    }

    pub(super) fn call_procedure(&self, routine: &Arc<Routine>, _arguments: Vec<Value>) -> Outcome<Option<Rows>> {
        Fault::unsure(format!("procedure_{}", routine.name))
    }
}
