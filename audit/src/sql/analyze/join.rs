//! Chooses how the relations of a level are reached: by key where a condition gives one.
//!
//! In: the joins as written and the conditions of WHERE. Out: a [`From`] in which every condition stands as
//! early as all it looks at is there. The order of the joins never changes what the query means, only how many
//! rows are looked at.

use super::Analyzer;
use super::from::Tree;
use super::visit::{is_simple, relations_of};
use crate::sql::plan::{Access, Bounds, Expr, Fit, From, Relation, RelationSource, Scan, is_ordered};
use crate::value::{TypeOid, oid};
use std::cmp::Ordering;
use std::sync::Arc;

impl Analyzer<'_> {
    /// `bound` are the relations whose rows are there already; takes every condition that it can place.
    pub(super) fn plan_joins(
        &self,
        tree: Tree,
        mut conditions: Vec<Expr>,
        bound: &[usize],
        relations: &[Relation],
    ) -> (From, Vec<Expr>) {
        let mut parts = Vec::new();
        flatten(tree, &mut parts, &mut conditions);
        let mut bound = bound.to_vec();
        let mut plan: Option<From> = None;
        while !parts.is_empty() {
            let next = self.choose(&parts, &conditions, &bound, relations);
            let part = parts.remove(next);
            let mut own = Vec::new();
            part.relations(&mut own);
            let step = match part {
                Tree::Relation(relation) => {
                    let (placed, rest) = split(conditions, &bound, &own);
                    conditions = rest;
                    self.scan(relation, placed, &bound, relations)
                }
                Tree::Left(left, right, on) => {
                    let mut left_relations = Vec::new();
                    left.relations(&mut left_relations);
                    let mut right_relations = Vec::new();
                    right.relations(&mut right_relations);
                    // Conditions on the left side alone may go below the join; others must wait until after it.
                    let (below, above) = split(conditions, &bound, &left_relations);
                    let (left_plan, unplaced) = self.plan_joins(*left, below, &bound, relations);
                    let mut inner_bound = bound.clone();
                    inner_bound.extend(&left_relations);
                    let (right_plan, unplaced_on) = self.plan_joins(*right, on, &inner_bound, relations);
                    let right_plan = filtered(right_plan, unplaced_on);
                    let join = From::Left {
                        left: Box::new(left_plan),
                        right: Box::new(right_plan),
                        right_relations,
                    };
                    let (after, rest) = split(above, &bound, &own);
                    conditions = rest;
                    filtered(filtered(join, unplaced), after)
                }
                Tree::Full(left, right, on) => {
                    let mut left_relations = Vec::new();
                    left.relations(&mut left_relations);
                    let mut right_relations = Vec::new();
                    right.relations(&mut right_relations);
                    let (left_plan, _) = self.plan_joins(*left, Vec::new(), &bound, relations);
                    let (right_plan, _) = self.plan_joins(*right, Vec::new(), &bound, relations);
                    let join = From::Full {
                        left: Box::new(left_plan),
                        right: Box::new(right_plan),
                        on,
                        left_relations,
                        right_relations,
                    };
                    let (after, rest) = split(conditions, &bound, &own);
                    conditions = rest;
                    filtered(join, after)
                }
                Tree::Inner(..) => unreachable!("inner joins were flattened"),
            };
            bound.extend(own);
            plan = Some(match plan {
                None => step,
                Some(left) => From::Inner(Box::new(left), Box::new(step)),
            });
        }
        let plan = plan.expect("a FROM clause has at least one relation");
        (plan, conditions)
    }

    /// The part to join next: one that is reached by a key, else the first that can be read now.
    fn choose(&self, parts: &[Tree], conditions: &[Expr], bound: &[usize], relations: &[Relation]) -> usize {
        let mut best = (0, usize::MAX);
        for (place, part) in parts.iter().enumerate() {
            let mut own = Vec::new();
            part.relations(&mut own);
            if !ready(&own, bound, relations) {
                continue;
            }
            let cost = match part {
                Tree::Relation(relation) => {
                    let (placed, _) = split(conditions.to_vec(), bound, &own);
                    match self.access(*relation, &placed, bound, relations) {
                        (Access::Lookup { .. }, true) => 0,
                        (Access::Lookup { .. }, false) => 1,
                        (Access::AnyOf { .. }, _) => 2,
                        (Access::All, _)
                            if matches!(relations[*relation].source, RelationSource::Table(_)) =>
                        {
                            4
                        }
                        (Access::All, _) => 3,
                    }
                }
                _ => 5,
            };
            if cost < best.1 {
                best = (place, cost);
            }
        }
        best.0
    }

    fn scan(&self, relation: usize, conditions: Vec<Expr>, bound: &[usize], relations: &[Relation]) -> From {
        let (access, is_unique) = self.access(relation, &conditions, bound, relations);
        let never_fails = conditions.iter().all(never_fails);
        let bounds = match is_unique || !never_fails {
            true => None,
            false => self.bounds(relation, &access, &conditions, bound, relations),
        };
        let own: Vec<Expr> = conditions
            .iter()
            .filter(|condition| is_simple(condition) && relations_of(condition) == [relation])
            .cloned()
            .collect();
        From::Scan(Scan {
            relation,
            access,
            filter: conditions,
            own: Arc::from(own),
            bounds,
            never_fails,
        })
    }

    /// How to reach the relation's rows, and whether that is a unique key.
    fn access(
        &self,
        relation: usize,
        conditions: &[Expr],
        bound: &[usize],
        relations: &[Relation],
    ) -> (Access, bool) {
        let RelationSource::Table(table) = relations[relation].source else {
            return (Access::All, false);
        };
        let Some(table) = self.catalog.table(table) else {
            return (Access::All, false);
        };
        let available = |expr: &Expr| relations_of(expr).iter().all(|used| bound.contains(used));
        let mut keys: Vec<(usize, Expr, Fit)> = Vec::new();
        let any_of = |argument: &Expr, items: &[&Expr], types: (TypeOid, TypeOid), array: bool| {
            let column = column_of(argument, relation)?;
            if !items.iter().all(|item| available(item)) {
                return None;
            }
            let fit = self.fit(types.0, types.1, table.columns[column].type_modifier)?;
            Some(Access::AnyOf {
                column,
                values: items.iter().map(|item| ((*item).clone(), fit)).collect(),
                array,
            })
        };
        let mut any: Option<Access> = None;
        for condition in conditions {
            match condition {
                Expr::Equal { sides, types, .. } => {
                    for (column, key, column_type, key_type) in [
                        (&sides.0, &sides.1, types.0, types.1),
                        (&sides.1, &sides.0, types.1, types.0),
                    ] {
                        let Some(column) = column_of(column, relation) else {
                            continue;
                        };
                        if !available(key) || keys.iter().any(|(c, _, _)| *c == column) {
                            continue;
                        }
                        if let Some(fit) =
                            self.fit(column_type, key_type, table.columns[column].type_modifier)
                        {
                            keys.push((column, key.clone(), fit));
                            break;
                        }
                    }
                }
                Expr::InList {
                    argument,
                    items,
                    negated: false,
                    types,
                } => {
                    let items: Vec<&Expr> = items.iter().map(|(_, item)| item).collect();
                    any = any.or_else(|| any_of(argument, &items, *types, false));
                }
                Expr::AnyArray {
                    argument,
                    array,
                    all: false,
                    types,
                    ..
                } => any = any.or_else(|| any_of(argument, &[array], *types, true)),
                _ => {}
            }
        }
        let covers = |columns: &[usize]| {
            columns
                .iter()
                .all(|column| keys.iter().any(|(c, _, _)| c == column))
        };
        let unique = table
            .keys
            .iter()
            .find(|key| key.is_plain() && covers(&key.columns));
        let is_unique = unique.is_some();
        if let Some(unique) = unique {
            keys.retain(|(column, _, _)| unique.columns.contains(column));
        }
        if keys.is_empty() {
            return (any.unwrap_or(Access::All), false);
        }
        if !is_unique && any.is_some() && keys.len() == 1 && self.is_unique_column(table, &any) {
            return (any.unwrap_or(Access::All), false);
        }
        keys.sort_by_key(|(column, _, _)| *column);
        let columns: Arc<[usize]> = keys.iter().map(|(column, _, _)| *column).collect();
        let key = keys.into_iter().map(|(_, expr, fit)| (expr, fit)).collect();
        (Access::Lookup { columns, key }, is_unique)
    }

    /// Bounds of a column that the access path does not look at yet.
    fn bounds(
        &self,
        relation: usize,
        access: &Access,
        conditions: &[Expr],
        bound: &[usize],
        relations: &[Relation],
    ) -> Option<Bounds> {
        let RelationSource::Table(table) = relations[relation].source else {
            return None;
        };
        let table = self.catalog.table(table)?;
        let taken: &[usize] = match access {
            Access::All => &[],
            Access::Lookup { columns, .. } => columns,
            Access::AnyOf { .. } => return None,
        };
        let mut bounds: Option<Bounds> = None;
        for condition in conditions.iter().flat_map(parts) {
            let Expr::Call { function, arguments } = condition else {
                continue;
            };
            let (Some(order), [left, right]) = (order_of(function.source()), arguments.as_slice()) else {
                continue;
            };
            for (column, value, order) in [(left, right, order), (right, left, order.reverse())] {
                let Some(column) = column_of(column, relation).filter(|column| !taken.contains(column))
                else {
                    continue;
                };
                let is_there = relations_of(value).iter().all(|used| bound.contains(used));
                let type_oid = self.types().base(table.columns[column].type_oid);
                if !is_there || !is_ordered(type_oid) {
                    continue;
                }
                let bounds = bounds.get_or_insert(Bounds {
                    column,
                    lower: None,
                    upper: None,
                });
                if bounds.column != column {
                    continue;
                }
                let fit = match type_oid {
                    oid::INT2 | oid::INT4 | oid::INT8 => Fit::Integer(type_oid),
                    _ => Fit::Same,
                };
                let side = match order {
                    Ordering::Less => &mut bounds.upper,
                    _ => &mut bounds.lower,
                };
                side.get_or_insert((value.clone(), fit));
            }
        }
        bounds
    }

    fn is_unique_column(&self, table: &crate::state::catalog::Table, any: &Option<Access>) -> bool {
        match any {
            Some(Access::AnyOf { column, .. }) => table
                .keys
                .iter()
                .any(|key| key.is_plain() && key.columns == [*column]),
            _ => false,
        }
    }

    /// Whether equality of these types can be looked up in the column, and how.
    fn fit(&self, column: TypeOid, key: TypeOid, type_modifier: i32) -> Option<Fit> {
        let (column, key) = (self.types().base(column), self.types().base(key));
        let integer = |type_oid| matches!(type_oid, oid::INT2 | oid::INT4 | oid::INT8);
        match (column, key) {
            (oid::BPCHAR, oid::BPCHAR) if type_modifier > 4 => Some(Fit::Pad(type_modifier as usize - 4)),
            (oid::BPCHAR, _) | (_, oid::BPCHAR) | (0, _) => None,
            (same, other) if same == other => match same {
                // Equal values of these may look different, or equality is not that of the value's form.
                oid::JSON | oid::JSONB | oid::XML | oid::POINT | oid::INTERVAL | oid::TIMETZ => None,
                _ => Some(Fit::Same),
            },
            (one, other) if integer(one) && integer(other) => Some(Fit::Integer(one)),
            _ => None,
        }
    }
}

/// BETWEEN holds two conditions.
fn parts(condition: &Expr) -> &[Expr] {
    match condition {
        Expr::And(parts) => parts,
        other => std::slice::from_ref(other),
    }
}

/// Whether a comparison says that its left side is less (or the same), or greater (or the same).
fn order_of(source: &str) -> Option<Ordering> {
    let (kind, operator) = source.split_at_checked(source.len().checked_sub(2)?)?;
    let is_comparable = matches!(
        kind,
        "int2" | "int4" | "int8" | "int24" | "int42" | "int28" | "int82" | "int48" | "int84"
    ) || matches!(kind, "date_" | "timestamp_" | "numeric_");
    match operator {
        "lt" | "le" if is_comparable => Some(Ordering::Less),
        "gt" | "ge" if is_comparable => Some(Ordering::Greater),
        _ => None,
    }
}

/// Whether no row can make this raise an error. What does not depend on rows is the same for all of them.
fn never_fails(expr: &Expr) -> bool {
    match expr {
        Expr::Const(_) | Expr::Bound(_) | Expr::Column { .. } | Expr::RowPresent { .. } => true,
        Expr::Equal { sides, .. } => never_fails(&sides.0) && never_fails(&sides.1),
        Expr::And(parts) | Expr::Or(parts) | Expr::Coalesce(parts) => parts.iter().all(never_fails),
        Expr::Not(inner) | Expr::IsNull(inner, _) => never_fails(inner),
        Expr::BoolTest { argument, .. } => never_fails(argument),
        Expr::InList { argument, items, .. } => {
            never_fails(argument) && items.iter().all(|(_, item)| never_fails(item))
        }
        Expr::Call { function, arguments } if order_of(function.source()).is_some() => {
            arguments.iter().all(never_fails)
        }
        other => is_simple(other) && relations_of(other).is_empty(),
    }
}

/// Inner joins become one list of parts and their conditions join the others.
fn flatten(tree: Tree, parts: &mut Vec<Tree>, conditions: &mut Vec<Expr>) {
    match tree {
        Tree::Inner(left, right, on) => {
            flatten(*left, parts, conditions);
            flatten(*right, parts, conditions);
            conditions.extend(on);
        }
        Tree::Relation(usize::MAX) => {}
        other => parts.push(other),
    }
}

/// Conditions that can be decided once `own` has joined `bound`, and the rest.
fn split(conditions: Vec<Expr>, bound: &[usize], own: &[usize]) -> (Vec<Expr>, Vec<Expr>) {
    conditions.into_iter().partition(|condition| {
        let used = relations_of(condition);
        !used.is_empty()
            && used
                .iter()
                .all(|relation| bound.contains(relation) || own.contains(relation))
    })
}

/// Whether everything that these relations refer to laterally is there.
fn ready(own: &[usize], bound: &[usize], relations: &[Relation]) -> bool {
    own.iter().all(|relation| {
        lateral_needs(&relations[*relation])
            .iter()
            .all(|needed| bound.contains(needed) || own.contains(needed))
    })
}

fn lateral_needs(relation: &Relation) -> Vec<usize> {
    match &relation.source {
        RelationSource::Query(query) if query.correlated => {
            // Columns of the level outside the query are those of this level.
            relations_of(&Expr::Exists(query.clone()))
        }
        RelationSource::Function { arguments, .. } => arguments.iter().flat_map(relations_of).collect(),
        _ => Vec::new(),
    }
}

fn filtered(from: From, conditions: Vec<Expr>) -> From {
    if conditions.is_empty() {
        from
    } else {
        From::Filter(Box::new(from), conditions)
    }
}

/// The column of this relation that an expression is, if it is one.
fn column_of(expr: &Expr, relation: usize) -> Option<usize> {
    match expr {
        Expr::Column {
            up: 0,
            relation: r,
            column,
        } if *r as usize == relation => Some(*column as usize),
        _ => None,
    }
}
