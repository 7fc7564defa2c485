//! Writes to views that the server passes on to their table: «updatable views».
//!
//! In: INSERT, UPDATE or DELETE of a view over one table, without renamed columns. Out: the same statement of the
//! table, under the view's name, with the view's condition added.
//!
//! Source: PostgreSQL manual, CREATE VIEW, «Updatable Views».

use super::{Analyzer, string_of};
use crate::state::catalog::{Table, TableKind};
use pg_query::protobuf as pg;
use pg_query::{Node, NodeEnum};

/// A place that no constant of the statement is near.
const NOWHERE: i32 = i32::MIN / 2;

/// A view over one table whose columns have the names that they have there.
struct Updatable {
    base: pg::RangeVar,
    columns: Vec<String>,
    condition: Option<Node>,
}

impl Analyzer<'_> {
    pub(super) fn insert_through_view(&self, insert: &pg::InsertStmt) -> Option<pg::InsertStmt> {
        let (view, target) = self.updatable(insert.relation.as_ref()?)?;
        let mut insert = insert.clone();
        if insert.cols.is_empty() {
            let list = view.columns.iter().map(|name| {
                node(NodeEnum::ResTarget(Box::new(pg::ResTarget {
                    name: name.clone(),
                    location: -1,
                    ..pg::ResTarget::default()
                })))
            });
            // VALUES may give fewer columns than the view has.
            let given = match insert.select_stmt.as_ref()?.node.as_ref()? {
                NodeEnum::SelectStmt(select) => match select.values_lists.first().map(|list| &list.node) {
                    Some(Some(NodeEnum::List(list))) => list.items.len(),
                    _ => view.columns.len(),
                },
                _ => view.columns.len(),
            };
            insert.cols = list.take(given).collect();
        }
        if let Some(clause) = &mut insert.returning_clause {
            clause.exprs = returned(&clause.exprs, &view, &target);
        }
        insert.relation = Some(target);
        Some(insert)
    }

    pub(super) fn update_through_view(&self, update: &pg::UpdateStmt) -> Option<pg::UpdateStmt> {
        let (view, target) = self.updatable(update.relation.as_ref()?)?;
        let mut update = update.clone();
        if let Some(clause) = &mut update.returning_clause {
            clause.exprs = returned(&clause.exprs, &view, &target);
        }
        update.where_clause = both(update.where_clause, view.condition);
        update.relation = Some(target);
        Some(update)
    }

    pub(super) fn delete_through_view(&self, delete: &pg::DeleteStmt) -> Option<pg::DeleteStmt> {
        let (view, target) = self.updatable(delete.relation.as_ref()?)?;
        let mut delete = delete.clone();
        if let Some(clause) = &mut delete.returning_clause {
            clause.exprs = returned(&clause.exprs, &view, &target);
        }
        delete.where_clause = both(delete.where_clause, view.condition);
        delete.relation = Some(target);
        Some(delete)
    }

    /// The view that is written, and its table under the view's name.
    fn updatable(&self, range: &pg::RangeVar) -> Option<(Updatable, pg::RangeVar)> {
        let table = self.find_table(range)?;
        if table.kind != TableKind::View {
            return None;
        }
        let name = range
            .alias
            .as_ref()
            .map_or(&range.relname, |alias| &alias.aliasname);
        let mut view = self.definition_of(&table, name)?;
        // A view of a view.
        for _ in 0..8 {
            let base = self.find_table(&view.base)?;
            if base.kind != TableKind::View {
                let mut target = view.base.clone();
                target.alias = Some(pg::Alias {
                    aliasname: name.clone(),
                    colnames: Vec::new(),
                });
                return Some((view, target));
            }
            let inner = self.definition_of(&base, name)?;
            view.base = inner.base;
            view.condition = both(view.condition.map(Box::new), inner.condition).map(|node| *node);
        }
        None
    }

    /// What the view selects, if that is columns of one table and nothing else; its condition speaks of `name`.
    fn definition_of(&self, view: &Table, name: &str) -> Option<Updatable> {
        if view.unmodelled_write.is_some() || view.columns.iter().any(|column| column.default.is_some()) {
            return None;
        }
        let parsed = pg_query::parse(view.definition.as_ref()?, pg_query::ParserOptions::default()).ok()?;
        let statement = parsed.protobuf.stmts.into_iter().next()?.stmt?.node?;
        let NodeEnum::SelectStmt(select) = statement else {
            return None;
        };
        let plain = select.op <= pg::SetOperation::SetopNone as i32
            && select.with_clause.is_none()
            && select.distinct_clause.is_empty()
            && select.group_clause.is_empty()
            && select.having_clause.is_none()
            && select.window_clause.is_empty()
            && select.values_lists.is_empty()
            && select.limit_count.is_none()
            && select.limit_offset.is_none();
        let [from] = select.from_clause.as_slice() else {
            return None;
        };
        let Some(NodeEnum::RangeVar(base)) = &from.node else {
            return None;
        };
        if !plain
            || base
                .alias
                .as_ref()
                .is_some_and(|alias| !alias.colnames.is_empty())
        {
            return None;
        }
        let mut columns = Vec::new();
        for target in &select.target_list {
            let Some(NodeEnum::ResTarget(target)) = &target.node else {
                return None;
            };
            let Some(NodeEnum::ColumnRef(column)) = target.val.as_ref().and_then(|value| value.node.as_ref())
            else {
                return None;
            };
            match column.fields.last().and_then(|field| field.node.as_ref())? {
                NodeEnum::AStar(_) => {
                    // The columns that the table had when the view was made.
                    columns.extend(view.live_columns().map(|(_, column)| column.name.clone()));
                }
                _ => columns.push(string_of(column.fields.last()?)?.to_owned()),
            }
        }
        let names: Vec<&String> = view.live_columns().map(|(_, column)| &column.name).collect();
        if names.len() != columns.len() || names.iter().zip(&columns).any(|(one, other)| *one != other) {
            return None;
        }
        let condition = match select.where_clause {
            Some(condition) => Some(requalified(*condition, name)?),
            None => None,
        };
        Some(Updatable {
            base: base.clone(),
            columns,
            condition,
        })
    }
}

fn node(node: NodeEnum) -> Node {
    Node { node: Some(node) }
}

fn string(text: &str) -> Node {
    node(NodeEnum::String(pg::String {
        sval: text.to_owned(),
    }))
}

/// The condition with every column named through `name`. `None` where something else stands in it.
fn requalified(mut condition: Node, name: &str) -> Option<Node> {
    let inner = condition.node.as_mut()?;
    let each = |list: &mut Vec<Node>| -> Option<()> {
        for item in list.iter_mut() {
            *item = requalified(std::mem::take(item), name)?;
        }
        Some(())
    };
    let one = |place: &mut Option<Box<Node>>| -> Option<()> {
        if let Some(found) = place.take() {
            *place = Some(Box::new(requalified(*found, name)?));
        }
        Some(())
    };
    match inner {
        NodeEnum::ColumnRef(column) => {
            let last = column.fields.pop()?;
            string_of(&last)?;
            column.fields = vec![string(name), last];
            column.location = NOWHERE;
        }
        // Its place is not one of the statement's text.
        NodeEnum::AConst(constant) => constant.location = NOWHERE,
        NodeEnum::AExpr(expr) => {
            expr.location = NOWHERE;
            one(&mut expr.lexpr)?;
            one(&mut expr.rexpr)?;
        }
        NodeEnum::BoolExpr(expr) => each(&mut expr.args)?,
        NodeEnum::NullTest(test) => one(&mut test.arg)?,
        NodeEnum::BooleanTest(test) => one(&mut test.arg)?,
        NodeEnum::TypeCast(cast) => one(&mut cast.arg)?,
        NodeEnum::List(list) => each(&mut list.items)?,
        NodeEnum::AArrayExpr(array) => each(&mut array.elements)?,
        _ => return None,
    }
    Some(condition)
}

fn both(one: Option<Box<Node>>, other: Option<Node>) -> Option<Box<Node>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Box::new(node(NodeEnum::BoolExpr(Box::new(pg::BoolExpr {
            boolop: pg::BoolExprType::AndExpr as i32,
            args: vec![*one, other],
            ..pg::BoolExpr::default()
        }))))),
        (one, other) => one.or(other.map(Box::new)),
    }
}

/// RETURNING * means the columns of the view.
fn returned(list: &[Node], view: &Updatable, target: &pg::RangeVar) -> Vec<Node> {
    let name = target.alias.as_ref().map_or("", |alias| alias.aliasname.as_str());
    let is_star = |item: &Node| match &item.node {
        Some(NodeEnum::ResTarget(target)) => {
            match target.val.as_ref().and_then(|value| value.node.as_ref()) {
                Some(NodeEnum::ColumnRef(column)) => {
                    matches!(
                        column.fields.last().map(|field| &field.node),
                        Some(Some(NodeEnum::AStar(_)))
                    )
                }
                _ => false,
            }
        }
        _ => false,
    };
    let mut result = Vec::new();
    for item in list {
        if !is_star(item) {
            result.push(item.clone());
            continue;
        }
        for column in &view.columns {
            let reference = pg::ColumnRef {
                fields: vec![string(name), string(column)],
                location: -1,
            };
            result.push(node(NodeEnum::ResTarget(Box::new(pg::ResTarget {
                val: Some(Box::new(node(NodeEnum::ColumnRef(reference)))),
                location: -1,
                ..pg::ResTarget::default()
            }))));
        }
    }
    result
}
