//! Aggregates: what is added up, row by row, and what comes of it.

use super::order::{compare_for_sort, sorted};
use crate::interpret::run::{Outcome, Run, Scope};
use crate::sql::plan::{Aggregate, SortKey};
use crate::value::compare::same;
use crate::value::{Accumulator, Collation, Key, Value, oid};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The running value of an aggregate over one group.
pub(super) struct Sum {
    pub(super) running: Option<Accumulator>,
    pub(super) unknown: bool,
    /// Rows that must be sorted before they are added.
    pub(super) rows: Vec<(Vec<Value>, SmallVec<[Value; 2]>)>,
    pub(super) seen: FxHashMap<Vec<Key>, ()>,
    pub(super) count: u64,
}

impl Run<'_> {
    pub(super) fn sum(&self, aggregate: &Aggregate) -> Sum {
        let collation = aggregate.collation.unwrap_or(self.context.collation);
        Sum {
            running: aggregate
                .function
                .as_ref()
                .map(|function| Accumulator::new(function, collation)),
            unknown: aggregate.function.is_none(),
            rows: Vec::new(),
            seen: FxHashMap::default(),
            count: 0,
        }
    }

    pub(super) fn add(
        &self,
        aggregate: &Aggregate,
        sum: &mut Sum,
        scope: &Scope<'_>,
        certain: bool,
        strict: bool,
    ) -> Outcome<()> {
        if let Some(filter) = &aggregate.filter {
            match self.target(filter, scope, false)? {
                Value::Bool(true) => {}
                Value::Unknown => {
                    sum.unknown = true;
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
        let mut arguments: SmallVec<[Value; 2]> = SmallVec::new();
        for argument in &aggregate.arguments {
            arguments.push(self.target(argument, scope, certain && strict)?);
        }
        if !certain || arguments.iter().any(Value::has_unknown) {
            sum.unknown = true;
        }
        if sum.unknown {
            return Ok(());
        }
        if aggregate.distinct {
            let key: Vec<Key> = arguments.iter().cloned().map(Key).collect();
            if sum.seen.insert(key, ()).is_some() {
                return Ok(());
            }
        }
        sum.count += 1;
        let Some(function) = &aggregate.function else {
            return Ok(());
        };
        if function.order_sensitive {
            let mut keys = Vec::new();
            for (expr, _, _) in &aggregate.order {
                keys.push(self.target(expr, scope, certain && strict)?);
            }
            sum.rows.push((keys, arguments));
            return Ok(());
        }
        if let Some(running) = &mut sum.running {
            let added = running.add(&arguments, self.context).map(|()| Value::Null);
            if self.settle(added)?.is_unknown() {
                sum.unknown = true;
            }
        }
        Ok(())
    }

    pub(super) fn finish(&self, aggregate: &Aggregate, mut sum: Sum) -> Outcome<Value> {
        if sum.unknown {
            return Ok(Value::Unknown);
        }
        let Some(mut running) = sum.running.take() else {
            return Ok(Value::Unknown);
        };
        if sum.rows.len() > 1 {
            // The input's order shows in the result: it must be total.
            let keys: Vec<SortKey> = aggregate
                .order
                .iter()
                .enumerate()
                .map(|(column, (_, descending, nulls_first))| SortKey {
                    column,
                    descending: *descending,
                    nulls_first: *nulls_first,
                    collation_is_c: self.context.collation == Collation::Bytes,
                })
                .collect();
            type Row = (Vec<Value>, SmallVec<[Value; 2]>);
            let compare = |(left, left_row): &Row, (right, right_row): &Row| {
                for key in &keys {
                    let (left, right) = (&left[key.column], &right[key.column]);
                    match compare_for_sort(left, right, key, self.context.collation)? {
                        Ordering::Equal => {}
                        ordering => return Some(ordering),
                    }
                }
                let alike = left_row
                    .iter()
                    .zip(right_row)
                    .all(|(one, other)| same(one, other, Collation::Bytes) == Some(true));
                alike.then_some(Ordering::Equal)
            };
            match sorted(std::mem::take(&mut sum.rows), &compare) {
                Some(rows) if !keys.is_empty() => sum.rows = rows,
                _ => return Ok(Value::Unknown),
            }
        }
        for (_, arguments) in &sum.rows {
            let added = running.add(arguments, self.context).map(|()| Value::Null);
            if self.settle(added)?.is_unknown() {
                return Ok(Value::Unknown);
            }
        }
        let finished = self.settle(running.finish(self.context))?;
        if finished.is_unknown() {
            let function = aggregate.function.as_ref();
            let text =
                function.is_some_and(|f| f.arguments.iter().any(|t| [oid::TEXT, oid::BPCHAR].contains(t)));
            // Floats add up differently in every order; so may equal values that print differently.
            self.note(if text {
                "collation"
            } else {
                "aggregate_in_any_order"
            });
        }
        Ok(finished)
    }
}
