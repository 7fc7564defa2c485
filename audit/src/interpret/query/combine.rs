//! UNION, INTERSECT and EXCEPT.

use super::distinct::distinct;
use super::{Output, OutputRow};
use crate::interpret::run::{Derived, Fault, Outcome, Run, Scope};
use crate::sql::plan::{Query, SetOperation};
use crate::state::Row;
use crate::value::{Key, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

impl Run<'_> {
    pub(super) fn set_operation(
        &self,
        operation: SetOperation,
        all: bool,
        left: &Query,
        right: &Query,
        outer: Option<&Scope<'_>>,
    ) -> Outcome<Output> {
        let left = self.derived(left, outer)?;
        let right = self.derived(right, outer)?;
        let open = left.open || (right.open && operation != SetOperation::Except);
        let plain = |(row, certain): (Row, bool)| OutputRow {
            values: row.to_vec(),
            certain,
            sources: SmallVec::new(),
        };
        if operation == SetOperation::Union {
            let rows: Vec<OutputRow> = left.rows.into_iter().chain(right.rows).map(plain).collect();
            let rows = if all { rows } else { distinct(rows) };
            return Ok(Output {
                rows,
                ends: Vec::new(),
                open,
            });
        }
        let known = |derived: &Derived| {
            !derived.open
                && derived
                    .rows
                    .iter()
                    .all(|(row, certain)| *certain && !row.iter().any(Value::has_unknown))
        };
        if !known(&left) || !known(&right) {
            return Fault::unsure("set_operation_over_unknown");
        }
        let mut counts: FxHashMap<Vec<Key>, usize> = FxHashMap::default();
        for (row, _) in &right.rows {
            *counts.entry(row.iter().cloned().map(Key).collect()).or_default() += 1;
        }
        let mut rows = Vec::new();
        for (row, certain) in left.rows {
            let key: Vec<Key> = row.iter().cloned().map(Key).collect();
            let other = counts.get_mut(&key);
            let keep = match (operation, all) {
                (SetOperation::Intersect, true) => match other {
                    Some(count) if *count > 0 => {
                        *count -= 1;
                        true
                    }
                    _ => false,
                },
                (SetOperation::Intersect, false) => other.is_some(),
                (_, true) => match other {
                    Some(count) if *count > 0 => {
                        *count -= 1;
                        false
                    }
                    _ => true,
                },
                (_, false) => other.is_none(),
            };
            if keep {
                rows.push(plain((row, certain)));
            }
        }
        let rows = if all { rows } else { distinct(rows) };
        Ok(Output {
            rows,
            ends: Vec::new(),
            open,
        })
    }
}
