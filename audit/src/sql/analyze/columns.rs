//! The columns that a query looks at.
//!
//! In: a planned statement. Out: for every table that it reads the columns that can change its answer, or nothing
//! where that is not plain to see: then every column counts.
//!
//! Always true: two versions of a row that agree in these columns, and are both there, give the same answer.

use super::visit::walk_select;
use crate::sql::plan::{Access, Body, Expr, From, Kind, RelationSource, Select};
use crate::state::view::Columns;
use crate::state::{Catalog, TableId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn columns_read(kind: &Kind, catalog: &Catalog) -> Option<Columns> {
    let Kind::Select(query) = kind else {
        return None;
    };
    let Body::Select(select) = &query.body else {
        return None;
    };
    if !query.ctes.is_empty() || !select.locking.is_empty() || select.relations.is_empty() {
        return None;
    }
    let mut tables: Vec<TableId> = Vec::new();
    for relation in &select.relations {
        match relation.source {
            RelationSource::Table(table) => tables.push(table),
            _ => return None,
        }
    }
    let mut used: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); tables.len()];
    let mut plain = true;
    let mut copy: Select = (**select).clone();
    walk_select(&mut copy, 0, &mut |expr, _| {
        match expr {
            Expr::Column {
                up: 0,
                relation,
                column,
            } => {
                used[*relation as usize].insert(*column as usize);
            }
            Expr::Column { .. }
            | Expr::Exists(_)
            | Expr::Scalar(_)
            | Expr::AnyQuery { .. }
            | Expr::ArrayQuery { .. }
            | Expr::Routine { .. } => plain = false,
            _ => {}
        }
        plain
    });
    if !plain {
        return None;
    }
    select.from.iter().for_each(|from| accessed(from, &mut used));
    let mut all: BTreeMap<TableId, BTreeSet<usize>> = BTreeMap::new();
    for (table, columns) in tables.into_iter().zip(used) {
        // A row is known by its keys.
        let keys = catalog.table(table).into_iter().flat_map(|t| &t.keys);
        let columns = columns.into_iter().chain(keys.flat_map(|k| k.columns.clone()));
        all.entry(table).or_default().extend(columns);
    }
    let listed = |(table, columns): (TableId, BTreeSet<usize>)| (table, columns.into_iter().collect());
    Some(all.into_iter().map(listed).collect())
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
