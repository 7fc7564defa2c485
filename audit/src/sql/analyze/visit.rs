//! Walks over expressions and the queries inside them.

use crate::sql::plan::{Access, Body, CteQuery, Expr, From, Query, RelationSource, Select, Window};

/// Calls `f` on every expression of the tree from the outside in, with the number of levels between it and the
/// start. `f` says whether to go further down.
pub(super) fn walk(expr: &mut Expr, depth: u16, f: &mut dyn FnMut(&mut Expr, u16) -> bool) {
    if !f(expr, depth) {
        return;
    }
    match expr {
        Expr::Const(_)
        | Expr::Bound(_)
        | Expr::Column { .. }
        | Expr::RowPresent { .. }
        | Expr::Grouped { .. }
        | Expr::Windowed(_)
        | Expr::Grouping(_)
        | Expr::Draw(_)
        | Expr::Unknown => {}
        Expr::Call { arguments, .. }
        | Expr::And(arguments)
        | Expr::Or(arguments)
        | Expr::Coalesce(arguments)
        | Expr::Extreme { arguments, .. }
        | Expr::Array { items: arguments, .. }
        | Expr::Routine { arguments, .. } => {
            for argument in arguments {
                walk(argument, depth, f);
            }
        }
        Expr::Equal { sides, .. } | Expr::Distinct { arguments: sides, .. } => {
            walk(&mut sides.0, depth, f);
            walk(&mut sides.1, depth, f);
        }
        Expr::Not(argument)
        | Expr::IsNull(argument, _)
        | Expr::BoolTest { argument, .. }
        | Expr::Cast { argument, .. } => walk(argument, depth, f),
        Expr::Case { whens, otherwise } => {
            for (condition, result) in whens {
                walk(condition, depth, f);
                walk(result, depth, f);
            }
            walk(otherwise, depth, f);
        }
        Expr::AnyArray { argument, array, .. } => {
            walk(argument, depth, f);
            walk(array, depth, f);
        }
        Expr::InList { argument, items, .. } => {
            walk(argument, depth, f);
            for (_, item) in items {
                walk(item, depth, f);
            }
        }
        Expr::Subscript { array, index } => {
            walk(array, depth, f);
            walk(index, depth, f);
        }
        Expr::Exists(query) | Expr::Scalar(query) | Expr::ArrayQuery { query, .. } => {
            walk_query(query, depth, f)
        }
        Expr::AnyQuery { arguments, query, .. } => {
            for argument in arguments {
                walk(argument, depth, f);
            }
            walk_query(query, depth, f);
        }
        Expr::RowCompare { pairs, .. } => {
            for (left, right, _, _) in pairs {
                walk(left, depth, f);
                walk(right, depth, f);
            }
        }
    }
}

/// Over a query that stands `depth` levels below the start.
pub(super) fn walk_query(query: &mut Query, depth: u16, f: &mut dyn FnMut(&mut Expr, u16) -> bool) {
    for cte in &mut query.ctes {
        match &mut cte.query {
            CteQuery::Plain(query) => walk_query(query, depth, f),
            CteQuery::Recursive { first, next, .. } => {
                walk_query(first, depth, f);
                walk_query(next, depth, f);
            }
            CteQuery::Insert(_) | CteQuery::Update(_) | CteQuery::Delete(_) => {}
        }
    }
    match &mut query.body {
        Body::Select(select) => walk_select(select, depth + 1, f),
        Body::Values(rows) => {
            for expr in rows.iter_mut().flatten() {
                walk(expr, depth + 1, f);
            }
        }
        Body::SetOperation { left, right, .. } => {
            walk_query(left, depth, f);
            walk_query(right, depth, f);
        }
    }
    for expr in query.limit.iter_mut().chain(&mut query.offset) {
        walk(expr, depth, f);
    }
}

pub(super) fn walk_select(select: &mut Select, depth: u16, f: &mut dyn FnMut(&mut Expr, u16) -> bool) {
    for relation in &mut select.relations {
        match &mut relation.source {
            RelationSource::Query(query) => walk_query(query, depth, f),
            RelationSource::Function { arguments, .. } => {
                for argument in arguments {
                    walk(argument, depth, f);
                }
            }
            _ => {}
        }
    }
    if let Some(from) = &mut select.from {
        walk_from(from, depth, f);
    }
    for expr in select
        .filter
        .iter_mut()
        .chain(&mut select.recheck)
        .chain(&mut select.targets)
    {
        walk(expr, depth, f);
    }
    for expr in select.windows.iter_mut().flat_map(Window::exprs_mut) {
        walk(expr, depth, f);
    }
    if let Some(group) = &mut select.group {
        for expr in group.keys.iter_mut().chain(&mut group.having) {
            walk(expr, depth, f);
        }
        for aggregate in &mut group.aggregates {
            for expr in aggregate.arguments.iter_mut().chain(&mut aggregate.filter) {
                walk(expr, depth, f);
            }
            for (expr, _, _) in &mut aggregate.order {
                walk(expr, depth, f);
            }
        }
    }
}

fn walk_from(from: &mut From, depth: u16, f: &mut dyn FnMut(&mut Expr, u16) -> bool) {
    match from {
        From::Scan(scan) => {
            match &mut scan.access {
                Access::All => {}
                Access::Lookup { key, .. } => {
                    for (expr, _) in key {
                        walk(expr, depth, f);
                    }
                }
                Access::AnyOf { values, .. } => {
                    for (expr, _) in values {
                        walk(expr, depth, f);
                    }
                }
            }
            for expr in &mut scan.filter {
                walk(expr, depth, f);
            }
            if let Some(bounds) = &mut scan.bounds {
                for (expr, _) in bounds.lower.iter_mut().chain(&mut bounds.upper) {
                    walk(expr, depth, f);
                }
            }
        }
        From::Inner(left, right) | From::Left { left, right, .. } => {
            walk_from(left, depth, f);
            walk_from(right, depth, f);
        }
        From::Filter(inner, conditions) => {
            walk_from(inner, depth, f);
            for expr in conditions {
                walk(expr, depth, f);
            }
        }
        From::Full { left, right, on, .. } => {
            walk_from(left, depth, f);
            walk_from(right, depth, f);
            for expr in on {
                walk(expr, depth, f);
            }
        }
    }
}

/// Relations of the level itself that the expression looks at; `None` if it looks at none.
pub(super) fn relations_of(expr: &Expr) -> Vec<usize> {
    let mut copy = expr.clone();
    let mut found = Vec::new();
    walk(&mut copy, 0, &mut |expr, depth| {
        let relation = match expr {
            Expr::Column { up, relation, .. } | Expr::RowPresent { up, relation } if *up == depth => {
                Some(*relation)
            }
            _ => None,
        };
        if let Some(relation) = relation {
            if !found.contains(&(relation as usize)) {
                found.push(relation as usize);
            }
        }
        true
    });
    found
}

/// Holds nothing but this level's columns, constants and parameters: it can be evaluated on a row alone.
pub(super) fn is_simple(expr: &Expr) -> bool {
    let mut copy = expr.clone();
    let mut simple = true;
    walk(&mut copy, 0, &mut |expr, _| {
        simple &= !matches!(
            expr,
            Expr::Exists(_)
                | Expr::Scalar(_)
                | Expr::AnyQuery { .. }
                | Expr::ArrayQuery { .. }
                | Expr::Routine { .. }
                | Expr::Grouped { .. }
                | Expr::Windowed(_)
                | Expr::Grouping(_)
                | Expr::Column { up: 1.., .. }
        );
        simple
    });
    simple
}

/// Looks at nothing but constants and parameters.
pub(super) fn is_constant(expr: &Expr) -> bool {
    let mut copy = expr.clone();
    let mut constant = true;
    walk(&mut copy, 0, &mut |expr, _| {
        constant &= !matches!(
            expr,
            Expr::Column { .. }
                | Expr::RowPresent { .. }
                | Expr::Grouped { .. }
                | Expr::Windowed(_)
                | Expr::Grouping(_)
                | Expr::Exists(_)
                | Expr::Scalar(_)
                | Expr::AnyQuery { .. }
                | Expr::ArrayQuery { .. }
                | Expr::Routine { .. }
                | Expr::Draw(_)
                | Expr::Unknown
        );
        constant
    });
    constant
}
