//! Whether a statement looks at the rows of each table once.
//!
//! In: a planned statement. Out: yes, where it is plain to see: it has neither subqueries nor WITH nor routines, and names no
//! table twice.

use super::visit::{walk, walk_query, walk_select};
use crate::sql::plan::{
    Body, Conflict, ConflictAction, Expr, InsertValue, Kind, Query, RelationSource, Returning, Select,
};
use crate::state::TableId;

pub(super) fn looks_once(kind: &Kind) -> bool {
    match kind {
        Kind::Select(query) => is_once(query),
        Kind::Insert(insert) => {
            insert.ctes.is_empty()
                && insert.query.as_ref().is_none_or(is_once)
                && insert.values.iter().all(is_plain_value)
                && insert.conflict.as_ref().is_none_or(is_plain_conflict)
                && is_plain_answer(insert.returning.as_ref())
        }
        Kind::Update(update) => {
            update.ctes.is_empty()
                && is_once_in(&update.select)
                && update.set.iter().all(|(_, expr)| is_plain(expr))
                && is_plain_answer(update.returning.as_ref())
        }
        Kind::Delete(delete) => {
            delete.ctes.is_empty() && is_once_in(&delete.select) && is_plain_answer(delete.returning.as_ref())
        }
        _ => false,
    }
}

fn is_once(query: &Query) -> bool {
    let once = match &query.body {
        Body::Select(select) => are_different(select),
        Body::Values(_) => true,
        Body::SetOperation { .. } => false,
    };
    let mut plain = once && query.ctes.is_empty();
    walk_query(&mut query.clone(), 0, &mut |expr, _| {
        plain &= looks_at_no_table(expr);
        plain
    });
    plain
}

fn is_once_in(select: &Select) -> bool {
    let mut plain = are_different(select);
    walk_select(&mut select.clone(), 0, &mut |expr, _| {
        plain &= looks_at_no_table(expr);
        plain
    });
    plain
}

/// Whether its relations are tables, each of them once.
fn are_different(select: &Select) -> bool {
    let mut met: Vec<TableId> = Vec::new();
    select.relations.iter().all(|relation| match relation.source {
        RelationSource::Table(table) => {
            let is_new = !met.contains(&table);
            met.push(table);
            is_new
        }
        _ => false,
    })
}

fn is_plain_value(value: &InsertValue) -> bool {
    match value {
        InsertValue::Column(_) => true,
        InsertValue::Default(expr) => is_plain(expr),
    }
}

fn is_plain_conflict(conflict: &Conflict) -> bool {
    match &conflict.action {
        ConflictAction::Nothing => true,
        ConflictAction::Update { set, filter } => {
            set.iter().all(|(_, expr)| is_plain(expr)) && filter.iter().all(is_plain)
        }
        ConflictAction::Unmodelled(_) => false,
    }
}

fn is_plain_answer(returning: Option<&Returning>) -> bool {
    let mut targets = returning.into_iter().flat_map(|returning| &returning.targets);
    targets.all(is_plain)
}

fn is_plain(expr: &Expr) -> bool {
    let mut plain = true;
    walk(&mut expr.clone(), 0, &mut |expr, _| {
        plain &= looks_at_no_table(expr);
        plain
    });
    plain
}

fn looks_at_no_table(expr: &Expr) -> bool {
    !matches!(
        expr,
        Expr::Exists(_)
            | Expr::Scalar(_)
            | Expr::AnyQuery { .. }
            | Expr::ArrayQuery { .. }
            | Expr::Routine { .. }
    )
}
