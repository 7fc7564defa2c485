//! Queries over a view: rows found, joined, grouped, sorted and cut.
//!
//! In: a planned query and the views that it reads. Out: its rows, each certain or perhaps there, with their ties.
//! The modules stand in the order in which a row walks.
//!
//! Always true: rows that nobody has seen are not made up; where they may be missing the output is `open`.

mod scan;
mod join;
mod lock;
mod group;
mod aggregate;
mod distinct;
mod combine;
mod cte;
mod order;
mod limit;

use super::eval::is_plain;
use super::run::{Derived, Fault, Frame, Outcome, Run, Scope, Slot};
use crate::sql::plan::{Body, Distinct, Expr, Query, RelationSource, Select};
use crate::state::catalog::TableKind;
use crate::state::{Row, RowId, TableId};
use crate::value::Value;
use distinct::{distinct, distinct_on};
pub(super) use limit::Cutting;
use limit::cut_loosely;
pub(super) use lock::Newest;
use order::First;
pub(super) use order::{compare_for_sort, ends, sorted};
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;

/// One row of a query's output.
#[derive(Clone, Debug)]
pub(super) struct OutputRow {
    pub values: Vec<Value>,
    pub certain: bool,
    pub sources: SmallVec<[(TableId, RowId); 1]>,
}

/// The output of a query before LIMIT: sorted, with the places where one tie ends and the next begins.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub rows: Vec<OutputRow>,
    /// Ends of groups of rows that sort alike; one group if there is no order.
    pub ends: Vec<usize>,
    pub open: bool,
}

/// What the parts of one SELECT share while it runs.
pub(super) struct Level<'s> {
    pub select: &'s Select,
    pub outer: Option<&'s Scope<'s>>,
    /// Rows that nobody has seen may be among those found.
    pub open: Cell<bool>,
    /// An error in a condition is one that the server must raise, too.
    pub strict: bool,
    /// Only the first rows in the order of a column are asked for.
    pub first: Option<First>,
}

type Emit<'e> = &'e mut dyn FnMut(&mut Frame, bool) -> Outcome<()>;

impl Run<'_> {
    /// The rows of a subquery, computed once if nothing outside can change them.
    pub(super) fn subquery(&self, query: &Query, scope: &Scope<'_>) -> Outcome<Rc<Derived>> {
        if !query.correlated {
            if let Some(known) = self.answers.borrow().get(&query.number) {
                return Ok(known.clone());
            }
        }
        let derived = Rc::new(self.derived(query, Some(scope))?);
        if !query.correlated {
            self.answers.borrow_mut().insert(query.number, derived.clone());
        }
        Ok(derived)
    }

    /// A query's rows as a relation: order forgotten, LIMIT applied.
    pub(super) fn derived(&self, query: &Query, outer: Option<&Scope<'_>>) -> Outcome<Derived> {
        let output = match self.output(query, outer, false) {
            // Whether the server evaluates this part of the statement at all depends on its plan.
            Err(Fault::Raised { .. }) => return Fault::unsure("error_in_subquery"),
            other => other?,
        };
        let cutting = self.cutting(query, outer)?;
        let rows = cut_loosely(output.rows, &output.ends, cutting, query.with_ties, output.open)?;
        let rows = rows.into_iter().map(|row| {
            let mut values = row.values;
            values.truncate(query.visible);
            (Row::from(values), row.certain)
        });
        Ok(Derived {
            rows: rows.collect(),
            open: output.open,
        })
    }

    /// The whole output of a query, without LIMIT.
    pub(super) fn output(&self, query: &Query, outer: Option<&Scope<'_>>, top: bool) -> Outcome<Output> {
        self.run_ctes(&query.ctes, outer)?;
        let mut output = match &query.body {
            Body::Select(select) => {
                let first = self.first(query, select, outer)?;
                self.select(select, outer, top && query.limit.is_none(), first)?
            }
            Body::Values(rows) => {
                let frame = Frame::default();
                let scope = Scope { frame: &frame, outer };
                let mut output = Output::default();
                for row in rows {
                    let mut values = Vec::with_capacity(row.len());
                    for expr in row {
                        values.push(self.eval(expr, &scope)?);
                    }
                    output.rows.push(OutputRow {
                        values,
                        certain: true,
                        sources: SmallVec::new(),
                    });
                }
                output
            }
            Body::SetOperation {
                operation,
                all,
                left,
                right,
            } => self.set_operation(*operation, *all, left, right, outer)?,
        };
        if let Body::Select(select) = &query.body {
            if let Distinct::On(places) = &select.distinct {
                self.sort(&mut output, &query.order);
                distinct_on(&mut output, places)?;
            }
        }
        self.sort(&mut output, &query.order);
        Ok(output)
    }

    fn select(
        &self,
        select: &Select,
        outer: Option<&Scope<'_>>,
        strict: bool,
        first: Option<First>,
    ) -> Outcome<Output> {
        let level = Level {
            select,
            outer,
            open: Cell::new(false),
            strict: strict && self.sees_every_row(select),
            first,
        };
        let mut output = match &select.group {
            Some(group) => self.grouped(&level, group)?,
            None if !select.windows.is_empty() => self.windowed(&level)?,
            None => {
                let mut output = Output::default();
                self.found(&level, &mut |frame, certain| {
                    let scope = Scope { frame, outer };
                    let mut values = Vec::with_capacity(select.targets.len());
                    for target in &select.targets {
                        values.push(self.target(target, &scope, certain && strict)?);
                    }
                    let sources = sources(select, frame);
                    if let (Some(first), Some(Slot { row: Some(row), .. }), true) =
                        (&level.first, frame.slots.first(), certain)
                    {
                        first.note(row);
                    }
                    output.rows.push(OutputRow {
                        values,
                        certain,
                        sources,
                    });
                    Ok(())
                })?;
                output
            }
        };
        output.open |= level.open.get();
        if let Distinct::All = select.distinct {
            output.rows = distinct(output.rows);
        }
        Ok(output)
    }

    /// Whether the server evaluates the conditions on every row: it reads one relation, and neither a partition nor
    /// the whole of it is left out because of other conditions.
    pub(super) fn sees_every_row(&self, select: &Select) -> bool {
        match select.relations.as_slice() {
            [] => true,
            [_] if !select.filter.is_empty() => false,
            [relation] => match relation.source {
                RelationSource::Table(table) => {
                    let table = self.views.snapshot.catalog().table(table);
                    table.is_some_and(|table| table.kind != TableKind::Partitioned)
                }
                _ => true,
            },
            _ => false,
        }
    }

    /// An output expression: its error is certain only where the row is.
    pub(super) fn target(&self, expr: &Expr, scope: &Scope<'_>, strict: bool) -> Outcome<Value> {
        match self.eval(expr, scope) {
            Err(Fault::Raised { .. }) if !strict || !is_plain(expr) => Fault::unsure("error_in_expression"),
            other => other,
        }
    }

    /// A level with window functions: all rows must be there before the first is answered.
    fn windowed(&self, level: &Level<'_>) -> Outcome<Output> {
        let mut frames: Vec<(Frame, bool)> = Vec::new();
        self.found(level, &mut |frame, certain| {
            frames.push((frame.clone(), certain));
            Ok(())
        })?;
        self.windows(&level.select.windows, &mut frames, level.outer, level.open.get())?;
        self.projected(level, frames, |frame| sources(level.select, frame))
    }

    /// The output expressions of the frames that are left.
    fn projected(
        &self,
        level: &Level<'_>,
        frames: Vec<(Frame, bool)>,
        sources: impl Fn(&Frame) -> SmallVec<[(TableId, RowId); 1]>,
    ) -> Outcome<Output> {
        let mut output = Output::default();
        for (frame, certain) in frames {
            let scope = Scope {
                frame: &frame,
                outer: level.outer,
            };
            let mut values = Vec::with_capacity(level.select.targets.len());
            for target in &level.select.targets {
                values.push(self.target(target, &scope, certain && level.strict)?);
            }
            output.rows.push(OutputRow {
                values,
                certain,
                sources: sources(&frame),
            });
        }
        Ok(output)
    }
}

pub(super) fn sources(select: &Select, frame: &Frame) -> SmallVec<[(TableId, RowId); 1]> {
    select
        .relations
        .iter()
        .zip(&frame.slots)
        .map(|(relation, slot)| match relation.source {
            RelationSource::Table(table) if slot.row.is_some() => (table, slot.id),
            _ => (TableId(0), RowId(0)),
        })
        .collect()
}
