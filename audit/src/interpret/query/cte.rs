//! WITH: common table expressions, recursive ones too.

use crate::interpret::run::{Derived, Fault, Outcome, Run, Scope};
use crate::sql::plan::{Cte, CteQuery, Query};
use crate::state::Row;
use crate::value::{Key, Value};
use rustc_hash::FxHashMap;
use std::rc::Rc;

impl Run<'_> {
    pub(in crate::interpret) fn run_ctes(&self, ctes: &[Cte], outer: Option<&Scope<'_>>) -> Outcome<()> {
        for cte in ctes {
            let derived = match &cte.query {
                CteQuery::Plain(query) => self.derived(query, outer)?,
                CteQuery::Recursive { first, next, all, .. } => {
                    self.recursive(cte.number, first, next, *all, outer)?
                }
                CteQuery::Insert(insert) => self.written(self.insert(insert, outer)?),
                CteQuery::Update(update) => self.written(self.update(update, outer)?),
                CteQuery::Delete(delete) => self.written(self.delete(delete, outer)?),
            };
            self.ctes.borrow_mut().insert(cte.number, Rc::new(derived));
        }
        Ok(())
    }

    pub(super) fn recursive(
        &self,
        number: usize,
        first: &Query,
        next: &Query,
        all: bool,
        outer: Option<&Scope<'_>>,
    ) -> Outcome<Derived> {
        let start = self.derived(first, outer)?;
        let exact = |derived: &Derived| {
            !derived.open
                && derived
                    .rows
                    .iter()
                    .all(|(row, certain)| *certain && !row.iter().any(Value::has_unknown))
        };
        if !exact(&start) {
            return Fault::unsure("recursive_over_unknown");
        }
        let mut seen: FxHashMap<Vec<Key>, ()> = FxHashMap::default();
        let mut fresh = |rows: Vec<(Row, bool)>| -> Vec<(Row, bool)> {
            if all {
                return rows;
            }
            rows.into_iter()
                .filter(|(row, _)| seen.insert(row.iter().cloned().map(Key).collect(), ()).is_none())
                .collect()
        };
        let mut working = fresh(start.rows);
        let mut result = working.clone();
        while !working.is_empty() {
            self.work(working.len() as u64 + 1)?;
            self.ctes.borrow_mut().insert(
                number,
                Rc::new(Derived {
                    rows: working,
                    open: false,
                }),
            );
            self.answers.borrow_mut().clear();
            let step = self.derived(next, outer)?;
            if !exact(&step) {
                return Fault::unsure("recursive_over_unknown");
            }
            working = fresh(step.rows);
            result.extend(working.iter().cloned());
            if result.len() > 100_000 {
                return Fault::unsure("recursion_depth");
            }
        }
        Ok(Derived {
            rows: result,
            open: false,
        })
    }
}
