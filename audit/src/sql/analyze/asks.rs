//! What a statement depends on, column by column.
//!
//! In: a planned statement. Out: its [`Asks`]; everything, where it is not plain to see.

use super::columns::{keys_of, note, used_by, used_in};
use super::visit::{walk, walk_query};
use crate::sql::plan::{
    Asked, Asks, Body, Delete, Expr, Insert, KeyCheck, Kind, Query, Step, TableChecks, Update,
};
use crate::state::catalog::Table;
use crate::state::{Catalog, TableId};
use crate::value::oid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a statement depends on.
pub(super) fn asks(kind: &Kind, catalog: &Catalog) -> Asks {
    let known = match kind {
        Kind::Select(query) => asked_by_query(query, catalog),
        Kind::Call { routine, .. } => Some(routine.asks.clone()),
        Kind::Update(update) => asked_by_update(update, catalog),
        Kind::Insert(insert) => asked_by_insert(insert, catalog),
        Kind::Delete(delete) => asked_by_delete(delete, catalog),
        _ => None,
    };
    known.unwrap_or_else(Asks::everything)
}

/// What the statements of a routine depend on.
pub(super) fn asked_by_routine(body: &[Step]) -> Asks {
    let mut statements = Vec::new();
    body.iter().for_each(|step| step.statements(&mut statements));
    let mut asks = Asks::default();
    statements.iter().for_each(|statement| asks.join(&statement.asks));
    asks
}

fn asked_by_query(query: &Query, catalog: &Catalog) -> Option<Asks> {
    if let Body::Select(select) = &query.body
        && select.relations.is_empty()
        && query.ctes.is_empty()
    {
        let mut plain = true;
        let mut asks = Asks::default();
        walk_query(&mut query.clone(), 0, &mut |expr, _| {
            match expr {
                Expr::Routine { routine, .. } => asks.join(&routine.asks),
                Expr::Exists(_) | Expr::Scalar(_) | Expr::AnyQuery { .. } | Expr::ArrayQuery { .. } => {
                    plain = false;
                }
                _ => {}
            }
            plain
        });
        return plain.then_some(asks);
    }
    let locks = matches!(&query.body, Body::Select(select) if !select.locking.is_empty());
    let mut tables = Vec::new();
    for (table, columns) in used_by(query, catalog)? {
        plain_table(table, catalog)?;
        let asked = Asked {
            read: columns,
            locks,
            ..Asked::default()
        };
        tables.push((table, Some(asked)));
    }
    Some(Asks {
        tables,
        others: false,
    })
}

fn asked_by_update(update: &Update, catalog: &Catalog) -> Option<Asks> {
    let [_] = update.select.relations.as_slice() else {
        return None;
    };
    let table = plain_table(update.table, catalog)?;
    let checks = &update.checks;
    if !update.ctes.is_empty() || !is_plainly_checked(checks) || !checks.generated.is_empty() {
        return None;
    }
    let mut asked = Asked {
        read: used_in(&update.select, catalog)?.remove(&update.table)?,
        ..Asked::default()
    };
    let mut used = vec![BTreeSet::new()];
    let mut plain = true;
    let mut look = |expr: &Expr| {
        walk(&mut expr.clone(), 0, &mut |expr, _| {
            plain &= note(expr, &mut used);
            plain
        });
    };
    let returned = update.returning.iter().flat_map(|returning| &returning.targets);
    returned.for_each(&mut look);
    checks.checks.iter().for_each(|(_, check)| look(check));
    for (column, expr) in &update.set {
        asked.set.insert(*column);
        let is_sum = table.columns.get(*column).is_some_and(|c| is_exact(c.type_oid));
        match addend(expr, *column).filter(|_| is_sum) {
            Some(addend) => {
                asked.added.insert(*column);
                look(addend);
            }
            None => look(expr),
        }
    }
    if !plain {
        return None;
    }
    asked.read.extend(used.remove(0));
    // Whoever refers to it is looked at where a key changes; those that it refers to where its own columns do.
    let mut refers = table.foreign_keys.iter().flat_map(|key| &key.columns);
    if keys_of(update.table, catalog).any(|column| asked.set.contains(&column))
        || refers.any(|column| asked.set.contains(column))
    {
        return None;
    }
    let tables = vec![(update.table, Some(asked))];
    Some(Asks {
        tables,
        others: false,
    })
}

fn asked_by_insert(insert: &Insert, catalog: &Catalog) -> Option<Asks> {
    let table = plain_table(insert.table, catalog)?;
    if !insert.ctes.is_empty() || insert.conflict.is_some() || !is_plainly_checked(&insert.checks) {
        return None;
    }
    if let Some(query) = &insert.query {
        let Body::Values(_) = &query.body else {
            return None;
        };
        let mut plain = query.ctes.is_empty();
        walk_query(&mut query.clone(), 0, &mut |expr, _| {
            plain &= note(expr, &mut []);
            plain
        });
        if !plain {
            return None;
        }
    }
    let own = Asked {
        read: keys_of(insert.table, catalog).collect(),
        ..Asked::default()
    };
    let mut tables = parents(table, catalog)?;
    tables.push((insert.table, Some(own)));
    Some(Asks {
        tables,
        others: false,
    })
}

fn asked_by_delete(delete: &Delete, catalog: &Catalog) -> Option<Asks> {
    let table = plain_table(delete.table, catalog)?;
    let [_] = delete.select.relations.as_slice() else {
        return None;
    };
    used_in(&delete.select, catalog)?;
    let plain = delete.ctes.is_empty() && delete.returning.is_none() && table.referenced_by.is_empty();
    plain.then(|| Asks::whole(delete.table))
}

/// A table of its own, neither a partition nor made of them.
fn plain_table(table: TableId, catalog: &Catalog) -> Option<&Arc<Table>> {
    catalog
        .table(table)
        .filter(|t| t.children.is_empty() && t.parents.is_empty())
}

/// Whether nothing but the values of plain columns decides whether a row may be written.
fn is_plainly_checked(checks: &TableChecks) -> bool {
    let plain = |key: &KeyCheck| key.modelled && key.expressions.is_none() && key.predicate.is_none();
    checks.unmodelled.is_none() && checks.partition.is_none() && checks.keys.iter().all(plain)
}

/// The tables to which a row refers: only whether there is such a row counts.
fn parents(table: &Table, catalog: &Catalog) -> Option<Vec<(TableId, Option<Asked>)>> {
    let mut all: BTreeMap<TableId, Asked> = BTreeMap::new();
    for key in &table.foreign_keys {
        let parent = plain_table(key.target, catalog).filter(|parent| parent.id != table.id)?;
        let columns = key.target_columns.iter().copied();
        all.entry(parent.id).or_default().read.extend(columns);
    }
    Some(
        all.into_iter()
            .map(|(table, asked)| (table, Some(asked)))
            .collect(),
    )
}

/// Sums of these are the same in any order.
fn is_exact(type_oid: u32) -> bool {
    matches!(type_oid, oid::INT2 | oid::INT4 | oid::INT8 | oid::NUMERIC)
}

/// What is added to a column by an expression that is its sum, without using the column otherwise.
fn addend(expr: &Expr, column: usize) -> Option<&Expr> {
    let is_column =
        |expr: &Expr| matches!(expr, Expr::Column { up: 0, relation: 0, column: c } if *c as usize == column);
    let sum = match expr {
        Expr::Cast {
            argument, from, to, ..
        } if from == to => argument,
        other => other,
    };
    let Expr::Call { function, arguments } = sum else {
        return None;
    };
    let [left, right] = arguments.as_slice() else {
        return None;
    };
    match (function.source(), is_column(left), is_column(right)) {
        ("int2pl" | "int4pl" | "int8pl" | "numeric_add", true, false) => Some(right),
        ("int2pl" | "int4pl" | "int8pl" | "numeric_add", false, true) => Some(left),
        ("int2mi" | "int4mi" | "int8mi" | "numeric_sub", true, false) => Some(right),
        _ => None,
    }
}
