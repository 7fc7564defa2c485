//! LIMIT and OFFSET: which rows are left, and which are perhaps.

use super::OutputRow;
use crate::interpret::run::{Fault, Frame, Outcome, Run, Scope};
use crate::sql::plan::{Expr, Query};
use crate::value::Value;

/// LIMIT and OFFSET as numbers.
#[derive(Clone, Copy, Debug)]
pub(in crate::interpret) struct Cutting {
    pub offset: u64,
    pub limit: Option<u64>,
}

impl Run<'_> {
    pub(in crate::interpret) fn cutting(&self, query: &Query, outer: Option<&Scope<'_>>) -> Outcome<Cutting> {
        let empty = Frame::default();
        let nothing = Scope {
            frame: &empty,
            outer: None,
        };
        let scope = outer.unwrap_or(&nothing);
        let number = |expr: &Option<Expr>, state: &str| -> Outcome<Option<u64>> {
            let Some(expr) = expr else { return Ok(None) };
            match self.eval(expr, scope)? {
                Value::Null => Ok(None),
                Value::Int8(number) if number >= 0 => Ok(Some(number as u64)),
                Value::Int8(_) => Err(Fault::Raised {
                    sqlstate: state.to_owned(),
                    message: "LIMIT must not be negative".to_owned(),
                }),
                _ => Fault::unsure("unknown_limit"),
            }
        };
        Ok(Cutting {
            offset: number(&query.offset, "2201X")?.unwrap_or(0),
            limit: number(&query.limit, "2201W")?,
        })
    }
}

/// LIMIT inside a statement: rows of a tie that is cut through may or may not be there.
pub(super) fn cut_loosely(
    rows: Vec<OutputRow>,
    ends: &[usize],
    cutting: Cutting,
    with_ties: bool,
    open: bool,
) -> Outcome<Vec<OutputRow>> {
    if cutting.offset == 0 && cutting.limit.is_none() {
        return Ok(rows);
    }
    let unsure = open || rows.iter().any(|row| !row.certain);
    let first = cutting.offset as usize;
    let last = cutting
        .limit
        .map_or(usize::MAX, |limit| first.saturating_add(limit as usize));
    if unsure {
        if cutting.limit == Some(0) {
            return Ok(Vec::new());
        }
        return Ok(rows
            .into_iter()
            .map(|row| OutputRow {
                certain: false,
                ..row
            })
            .collect());
    }
    let mut kept = Vec::new();
    let mut start = 0;
    let mut rows = rows.into_iter();
    for end in ends {
        let group: Vec<OutputRow> = rows.by_ref().take(end - start).collect();
        // WITH TIES: who sorts like the last one comes, too.
        let last = if with_ties && start < last {
            last.max(*end)
        } else {
            last
        };
        let inside = (*end).min(last).saturating_sub(start.max(first));
        if inside == group.len() {
            kept.extend(group);
        } else if inside > 0 {
            kept.extend(group.into_iter().map(|row| OutputRow {
                certain: false,
                ..row
            }));
        }
        start = *end;
    }
    Ok(kept)
}
