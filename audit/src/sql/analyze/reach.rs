//! How far a write can reach: which rows it may write, had it read something else.
//!
//! In: a planned statement. Out: [`Touches::moved`], [`Touches::freed`] and [`Touches::astray`]. What is not plain to see
//! counts as all of them.

use crate::sql::plan::{
    Access, Body, ConflictAction, Expr, From, Insert, InsertValue, Kind, Planned, RelationSource, Select,
    Source, Step, Touches, Update,
};
use crate::state::{Catalog, TableId};

/// Fills in how far the writes of a statement reach; those of the routines that it calls are there already.
pub(super) fn reach(kind: &Kind, touches: &mut Touches, is_plain: bool, catalog: &Catalog) {
    let only_calls = match kind {
        Kind::Select(query) => query.ctes.is_empty(),
        Kind::Call { .. } | Kind::Do { .. } => true,
        _ => false,
    };
    if only_calls && is_plain {
        return;
    }
    let keeps_keys = match kind {
        Kind::Update(update) => update.ctes.is_empty() && !sets_key(update, catalog),
        _ => false,
    };
    if !keeps_keys || !is_plain {
        touches.moved = touches.written.clone();
    }
    let only_adds = match kind {
        Kind::Insert(insert) => insert.ctes.is_empty() && !moves_on_conflict(insert, catalog),
        _ => false,
    };
    if !(keeps_keys || only_adds) || !is_plain {
        touches.freed = touches.written.clone();
    }
    let decided = is_plain && deciding(kind, catalog).is_some_and(|exprs| exprs.into_iter().all(is_flat));
    // Where a row goes that gets another key is not where it was looked for.
    let leads_away = match kind {
        Kind::Update(update) => sets_key(update, catalog),
        Kind::Insert(insert) => moves_on_conflict(insert, catalog),
        _ => false,
    };
    if !decided || leads_away {
        touches.astray = touches.written.clone();
    }
}

/// Whether an update may change by which key a row is found: one of its table, or the one by which it is looked for.
fn sets_key(update: &Update, catalog: &Catalog) -> bool {
    let sets = |column: &usize| update.set.iter().any(|(set, _)| set == column);
    let table = catalog.table(update.table);
    let of_table = table.is_none_or(|t| t.keys.iter().any(|key| key.columns.iter().any(sets)));
    let looked_for = match &update.select.from {
        Some(From::Scan(scan)) => match &scan.access {
            Access::All => false,
            Access::Lookup { columns, .. } => columns.iter().any(sets),
            Access::AnyOf { column, .. } => sets(column),
        },
        _ => false,
    };
    of_table || looked_for
}

/// Whether an insert may give another key to a row that is there already.
fn moves_on_conflict(insert: &Insert, catalog: &Catalog) -> bool {
    let Some(ConflictAction::Update { set, .. }) = insert.conflict.as_ref().map(|c| &c.action) else {
        return false;
    };
    let sets = |column: &usize| set.iter().any(|(set, _)| set == column);
    let table = catalog.table(insert.table);
    table.is_none_or(|t| t.keys.iter().any(|key| key.columns.iter().any(sets)))
}

/// The tables of which a routine may write other rows if it reads something else: all but those of which each
/// statement that writes is about a key that was given to the routine, and about which it always asks.
pub(super) fn astray(steps: &[Step], inputs: usize) -> Vec<TableId> {
    let mut changed = Vec::new();
    steps.iter().for_each(|step| step.assigned(&mut changed));
    let fixed = |variable: usize| variable < inputs && !changed.contains(&variable);
    let mut always = Vec::new();
    for step in steps {
        match step {
            Step::Run { statement, .. } => always.extend(target(statement, &fixed)),
            Step::Assign { .. } | Step::GetRowCount(_) | Step::Nothing => {}
            // What comes behind it may never be reached.
            step if step.may_leave() => break,
            _ => {}
        }
    }
    let mut statements = Vec::new();
    steps.iter().for_each(|step| step.statements(&mut statements));
    let mut astray = Vec::new();
    for planned in statements {
        let steady = target(planned, &fixed).is_some_and(|target| always.contains(&target));
        if !steady {
            astray.extend(&planned.touches.written);
        }
    }
    astray
}

/// The key that a statement is about, in terms of variables that are `fixed`.
fn target(planned: &Planned, fixed: &dyn Fn(usize) -> bool) -> Option<(TableId, Vec<usize>, Vec<usize>)> {
    let (table, select) = match &planned.kind {
        Kind::Update(update) if update.ctes.is_empty() => (update.table, &update.select),
        Kind::Delete(delete) if delete.ctes.is_empty() => (delete.table, &delete.select),
        Kind::Select(query) if query.ctes.is_empty() => match &query.body {
            Body::Select(select) => match select.relations.first()?.source {
                RelationSource::Table(table) => (table, &**select),
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    let (Some(From::Scan(scan)), 1) = (&select.from, select.relations.len()) else {
        return None;
    };
    let Access::Lookup { columns, key } = &scan.access else {
        return None;
    };
    let variable = |expr: &Expr| match expr {
        Expr::Bound(slot) => match planned.binds.get(*slot)?.source {
            Source::Parameter(variable) if fixed(variable) => Some(variable),
            _ => None,
        },
        _ => None,
    };
    let variables: Option<Vec<usize>> = key.iter().map(|(expr, _)| variable(expr)).collect();
    Some((table, columns.to_vec(), variables?))
}

/// The expressions that say which rows may be written at all; `None`: more than they do.
fn deciding<'p>(kind: &'p Kind, catalog: &Catalog) -> Option<Vec<&'p Expr>> {
    match kind {
        Kind::Update(update) if update.ctes.is_empty() => looked_up(&update.select),
        Kind::Delete(delete) if delete.ctes.is_empty() => looked_up(&delete.select),
        Kind::Insert(insert) if insert.ctes.is_empty() => keys_given(insert, insert.table, catalog),
        _ => None,
    }
}

fn looked_up(select: &Select) -> Option<Vec<&Expr>> {
    let (Some(From::Scan(scan)), 1) = (&select.from, select.relations.len()) else {
        return None;
    };
    Some(match &scan.access {
        Access::All => Vec::new(),
        Access::Lookup { key, .. } => key.iter().map(|(expr, _)| expr).collect(),
        Access::AnyOf { values, .. } => values.iter().map(|(expr, _)| expr).collect(),
    })
}

fn keys_given<'p>(insert: &'p Insert, table: TableId, catalog: &Catalog) -> Option<Vec<&'p Expr>> {
    let rows: Vec<&Vec<Expr>> = match &insert.query.as_ref()?.body {
        Body::Values(rows) => rows.iter().collect(),
        Body::Select(select) if select.from.is_none() => vec![&select.targets],
        _ => return None,
    };
    let mut exprs = Vec::new();
    for column in catalog.table(table)?.keys.iter().flat_map(|key| &key.columns) {
        match insert.values.get(*column)? {
            InsertValue::Default(expr) => exprs.push(expr),
            InsertValue::Column(place) => {
                for row in &rows {
                    exprs.push(row.get(*place)?);
                }
            }
        }
    }
    Some(exprs)
}

/// Constants, parameters, and what is computed from them alone.
fn is_flat(expr: &Expr) -> bool {
    match expr {
        Expr::Const(_) | Expr::Bound(_) => true,
        Expr::Cast { argument, .. } => is_flat(argument),
        Expr::Call { arguments, .. } => arguments.iter().all(is_flat),
        _ => false,
    }
}
