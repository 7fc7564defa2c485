//! The columns that a query looks at.
//!
//! In: a planned statement. Out: for every table that it reads the columns that can change its answer, or nothing
//! where that is not plain to see: then every column counts.
//!
//! Always true: two versions of a row that agree in these columns, and are both there, give the same answer.

use super::visit::walk_select;
use crate::sql::plan::{Access, Body, Expr, From, Kind, Query, RelationSource, Select};
use crate::state::view::Columns;
use crate::state::{Catalog, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Columns by table.
pub(super) type Used = BTreeMap<TableId, BTreeSet<usize>>;

pub(super) fn columns_read(kind: &Kind, catalog: &Catalog) -> Option<Columns> {
    let Kind::Select(query) = kind else {
        return None;
    };
    if plain_select(query).is_none_or(|select| !select.locking.is_empty()) {
        return None;
    }
    let used = used_by(query, catalog)?;
    let listed = |(table, columns): (TableId, BTreeSet<usize>)| (table, columns.into_iter().collect());
    Some(used.into_iter().map(listed).collect())
}

fn plain_select(query: &Query) -> Option<&Select> {
    match &query.body {
        Body::Select(select) if query.ctes.is_empty() && !select.relations.is_empty() => Some(select),
        _ => None,
    }
}

/// The columns of its tables that a query uses, and their keys, by which a row is known.
pub(super) fn used_by(query: &Query, catalog: &Catalog) -> Option<Used> {
    used_in(plain_select(query)?, catalog)
}

pub(super) fn used_in(select: &Select, catalog: &Catalog) -> Option<Used> {
    let mut tables: Vec<TableId> = Vec::new();
    for relation in &select.relations {
        match relation.source {
            RelationSource::Table(table) => tables.push(table),
            _ => return None,
        }
    }
    let mut used: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); tables.len()];
    let mut plain = true;
    let mut copy: Select = select.clone();
    walk_select(&mut copy, 0, &mut |expr, _| {
        plain &= note(expr, &mut used);
        plain
    });
    if !plain {
        return None;
    }
    select.from.iter().for_each(|from| accessed(from, &mut used));
    let mut all = Used::new();
    for (table, columns) in tables.into_iter().zip(used) {
        all.entry(table)
            .or_default()
            .extend(columns.into_iter().chain(keys_of(table, catalog)));
    }
    Some(all)
}

pub(super) fn keys_of(table: TableId, catalog: &Catalog) -> impl Iterator<Item = usize> + '_ {
    let keys = catalog.table(table).into_iter().flat_map(|t| &t.keys);
    keys.flat_map(|key| key.columns.iter().copied())
}

/// Notes which column an expression is; whether nothing else is read by it.
pub(super) fn note(expr: &Expr, used: &mut [BTreeSet<usize>]) -> bool {
    match expr {
        Expr::Column {
            up: 0,
            relation,
            column,
        } => {
            let used = used.get_mut(*relation as usize);
            used.map(|used| used.insert(*column as usize)).is_some()
        }
        Expr::Column { .. }
        | Expr::Exists(_)
        | Expr::Scalar(_)
        | Expr::AnyQuery { .. }
        | Expr::ArrayQuery { .. }
        | Expr::Routine { .. } => false,
        _ => true,
    }
}

/// The columns by which rows are found.
fn accessed(from: &From, used: &mut [BTreeSet<usize>]) {
    match from {
        From::Scan(scan) => {
            let used = &mut used[scan.relation];
            match &scan.access {
                Access::All => {}
                Access::Lookup { columns, .. } => used.extend(columns.iter()),
                Access::AnyOf { column, .. } => {
                    used.insert(*column);
                }
            }
            used.extend(scan.bounds.iter().map(|bounds| bounds.column));
        }
        From::Inner(left, right) | From::Left { left, right, .. } | From::Full { left, right, .. } => {
            accessed(left, used);
            accessed(right, used);
        }
        From::Filter(inner, _) => accessed(inner, used),
    }
}
