//! Queries of a routine whose outcome the answer of the call tells.
//!
//! In: a query that filled variables, and what the answer says about them. Out: [`Pinned`]: where it looked, and when.
//!
//! Always true: nothing looks at what such a query found before the answer tells it. So whatever it finds, a routine that
//! gives this answer goes on in the same way, and where it goes does not depend on what is there.

use super::body::Body;
use super::shown::{column_of, is_never_null};
use crate::interpret::{Heed, Touch};
use crate::sql::plan::{Kind, Planned, Step};
use crate::state::view::Focus;
use crate::value::Value;
use std::sync::Arc;

/// What was read where the answer says what was found.
#[derive(Debug, Default)]
pub struct Pinned {
    pub touches: Vec<Touch>,
    /// The instants at which that was, as [`Focus`] counts them.
    pub instants: Vec<u32>,
}

impl Pinned {
    pub fn join(&mut self, other: Pinned) {
        self.touches.extend(other.touches);
        self.instants.extend(other.instants);
    }
}

/// A query of which one value went into a variable, as long as nothing else was read.
pub(super) struct Question {
    planned: Arc<Planned>,
    filled: usize,
    /// The first of its instants; the other one is when it locks.
    nth: u32,
    /// It found one row, or was cut off behind it.
    is_of_one: bool,
}

impl Question {
    pub(super) fn found(self, is_of_one: bool) -> Question {
        Question { is_of_one, ..self }
    }
}

impl Body<'_, '_> {
    /// The next query is a question that the answer may tell.
    pub(super) fn question(&self, planned: &Arc<Planned>, filled: &[usize]) -> Option<Question> {
        let ([filled], Kind::Select(_)) = (filled, &planned.kind) else {
            return None;
        };
        let path = self.path.as_ref().filter(|path| !path.forked.get())?;
        (self.is_told(Heed::Believed) && self.supposed == 0).then(|| Question {
            planned: planned.clone(),
            filled: *filled,
            nth: path.instants.get() + 1,
            is_of_one: false,
        })
    }

    /// Whether the next step is the one in which the answer tells what a question found: any other may look at it.
    pub(super) fn is_told_by(&self, step: &Step) -> bool {
        let Step::Assign { appends, settles, .. } = step else {
            return false;
        };
        let filled = self.question.as_ref().map(|question| question.filled);
        *settles && filled.is_some() && *appends == filled
    }

    /// Something was read. It is kept back while the answer may tell what was found there.
    pub(super) fn read(&mut self, touches: Vec<Touch>) {
        if touches.is_empty() {
            return;
        }
        self.pass_on();
        self.kept_back = touches;
        if !self.is_told(Heed::Believed) {
            self.pass_on();
        }
    }

    /// What was kept back is something that the routine depends on.
    pub(super) fn pass_on(&mut self) {
        self.question = None;
        for touch in self.kept_back.drain(..) {
            self.run.touch(touch);
        }
    }

    /// The answer says that a variable has this value.
    pub(super) fn tell(&mut self, variable: usize, value: &Value) {
        let Some(question) = self.question.take_if(|question| question.filled == variable) else {
            return;
        };
        if value.is_null() && !is_never_null(&question.planned, 0, self.views.latest.catalog()) {
            // It is not plain whether there was a row.
            return self.pass_on();
        }
        self.strayed.tell(variable);
        self.show(&question, value);
        self.pinned.touches.append(&mut self.kept_back);
        self.pinned.instants.extend([question.nth, question.nth + 1]);
    }

    /// What a question found has this value. Where that is the column of the one row that it asked for, as it is, the row
    /// was there, and what is sorted behind it was not asked for; else nobody knows how far it looked.
    fn show(&mut self, question: &Question, value: &Value) {
        let variable = &self.routine.variables[question.filled];
        let from = question.planned.columns.first().map(|column| column.type_oid);
        let is_as_found = from == Some(variable.type_oid) && variable.type_modifier < 0;
        let is_shown = question.is_of_one && is_as_found && !value.is_null();
        let shown = column_of(&question.planned, 0).filter(|_| is_shown);
        for touch in &mut self.kept_back {
            let Touch::Key {
                table,
                columns,
                key,
                cut: of_found,
                ..
            } = touch
            else {
                continue;
            };
            let Some(mut cut) = of_found.take() else { continue };
            let is_alike = std::mem::discriminant(&cut.last) == std::mem::discriminant(value);
            if shown != Some((*table, cut.column)) || !is_alike {
                continue;
            }
            let (mut columns, mut key) = (columns.to_vec(), key.clone());
            if !columns.contains(&cut.column) {
                columns.push(cut.column);
                key.push(value.clone());
            }
            cut.last = value.clone();
            *of_found = Some(cut);
            let before = self.views.latest.focus(Focus {
                nth: question.nth + 1,
                ..Focus::default()
            });
            self.views.latest.showed(*table, &columns, &key);
            self.views.latest.focus(before);
        }
    }
}
