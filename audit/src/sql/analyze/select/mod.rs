//! SELECT: from parse tree to query.
//!
//! In: a statement and the names in scope. Out: a query over relations, with its output columns.
//!
//! Always true: a level of names that is opened is closed again, whatever comes of the query.

mod target;
mod group;
mod combine;
mod cte;

use super::{Analyzer, Level, Result, Typed, unmodelled};
use crate::sql::plan::{
    Body, CteQuery, Distinct, Expr, Kind, Locking, OutputColumn, Query, RelationSource, Select, Strength,
};
use crate::value::{CastKind, TypeOid, Value, oid};
use pg_query::protobuf::{self as pg, LimitOption, LockClauseStrength, LockWaitPolicy};
use pg_query::{Node, NodeEnum};

/// Gathers the conditions of inner joins; says whether there are only such joins.
pub(super) fn collect_recheck(tree: &super::from::Tree, into: &mut Vec<Expr>) -> bool {
    use super::from::Tree;
    match tree {
        Tree::Relation(_) => true,
        Tree::Inner(left, right, on) => {
            into.extend(on.iter().cloned());
            collect_recheck(left, into) && collect_recheck(right, into)
        }
        Tree::Left(..) | Tree::Full(..) => false,
    }
}

/// One entry of the select list.
pub(super) struct Target {
    pub name: String,
    pub typed: Typed,
}

impl Analyzer<'_> {
    pub(super) fn select_statement(&mut self, select: &pg::SelectStmt) -> Result<Kind> {
        if select.into_clause.is_some() {
            return unmodelled("select_into");
        }
        self.tag = "SELECT";
        self.reads_snapshot = true;
        let node = NodeEnum::SelectStmt(Box::new(select.clone()));
        match self.query(select, false) {
            Ok(query) => {
                self.output(&query.names, &query.types, query.visible);
                Ok(Kind::Select(Box::new(query)))
            }
            Err(error) => {
                self.raw_touches(&node, false);
                Err(error)
            }
        }
    }

    pub(super) fn output(&mut self, names: &[String], types: &[TypeOid], visible: usize) {
        self.columns = names
            .iter()
            .zip(types)
            .take(visible)
            .map(|(name, type_oid)| OutputColumn {
                name: name.clone(),
                type_oid: *type_oid,
            })
            .collect();
    }

    /// A query; bare literals in its select list stay untyped if `keep_unknown`.
    pub(super) fn query(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let ctes_before = self.ctes.len();
        let ctes = self.take_ctes(select.with_clause.as_ref())?;
        let result = self.query_body(select, keep_unknown);
        self.ctes.truncate(ctes_before);
        let mut query = result?;
        if let Some(reason) = self.fatal.take() {
            return unmodelled(reason);
        }
        query.volatile |= ctes.iter().any(|cte| match &cte.query {
            CteQuery::Plain(query) => query.volatile,
            _ => true,
        });
        query.correlated |= ctes.iter().any(|cte| match &cte.query {
            CteQuery::Plain(query) => query.correlated,
            CteQuery::Recursive { first, next, .. } => first.correlated || next.correlated,
            _ => false,
        });
        query.ctes = ctes;
        Ok(query)
    }

    fn query_body(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let number = self.next_query();
        let mut query = if select.op > pg::SetOperation::SetopNone as i32 {
            self.set_operation(select)?
        } else if !select.values_lists.is_empty() {
            self.values(select, keep_unknown)?
        } else {
            self.simple_select(select, keep_unknown)?
        };
        query.number = number;
        query.with_ties = select.limit_option == LimitOption::WithTies as i32;
        query.limit = self.row_count(select.limit_count.as_deref())?;
        query.offset = self.row_count(select.limit_offset.as_deref())?;
        Ok(query)
    }

    /// LIMIT or OFFSET: a number that no column of the query can give.
    fn row_count(&mut self, node: Option<&Node>) -> Result<Option<Expr>> {
        let Some(node) = node else { return Ok(None) };
        // Evaluated outside the query; a level of its own keeps expressions happy where there is none.
        let typed = if self.levels.is_empty() {
            self.levels.push(Level::default());
            let typed = self.expr(node);
            self.levels.pop();
            typed?
        } else {
            self.expr(node)?
        };
        let typed = self.coerce(typed, oid::INT8, -1, CastKind::Assignment)?;
        Ok(match typed.expr {
            Expr::Const(Value::Null) => None,
            expr => Some(expr),
        })
    }

    fn values(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        self.levels.push(Level::default());
        let mut rows: Vec<Vec<Typed>> = Vec::new();
        for list in &select.values_lists {
            let Some(NodeEnum::List(list)) = &list.node else {
                return unmodelled("values");
            };
            rows.push(self.exprs(&list.items)?);
        }
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != width) {
            return unmodelled("values");
        }
        let mut columns: Vec<Vec<Expr>> = Vec::new();
        let mut types = Vec::new();
        for place in 0..width {
            let cells: Vec<Typed> = rows.iter().map(|row| row[place].clone()).collect();
            if keep_unknown && cells.iter().all(|cell| cell.oid == oid::UNKNOWN) {
                columns.push(cells.into_iter().map(|cell| cell.expr).collect());
                types.push(oid::UNKNOWN);
            } else {
                let (exprs, type_oid, _) = self.unify(cells)?;
                columns.push(exprs);
                types.push(type_oid);
            }
        }
        let level = self.levels.pop().unwrap_or_default();
        let count = rows.len();
        let body: Vec<Vec<Expr>> = (0..count)
            .map(|row| columns.iter().map(|column| column[row].clone()).collect())
            .collect();
        let names: Vec<String> = (1..=width).map(|place| format!("column{place}")).collect();
        let order = self.order_of_output(select, &names, &types, "values_order")?;
        Ok(Query {
            described: Default::default(),
            ctes: Vec::new(),
            body: Body::Values(body),
            order,
            limit: None,
            offset: None,
            with_ties: false,
            visible: width,
            types,
            names,
            correlated: level.correlated,
            volatile: level.volatile,
            number: 0,
        })
    }

    fn simple_select(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let depth = self.levels.len();
        self.levels.push(Level {
            aggregates_allowed: true,
            ..Level::default()
        });
        let result = self.simple_select_in_level(select, keep_unknown);
        self.levels.truncate(depth + 1);
        let level = self.levels.pop().unwrap_or_default();
        let mut query = result?;
        query.correlated = level.correlated;
        query.volatile = level.volatile;
        Ok(query)
    }

    fn simple_select_in_level(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let mut relations = Vec::new();
        let tree = self.from_clause(&select.from_clause, &mut relations)?;
        let mut conditions = Vec::new();
        if let Some(node) = &select.where_clause {
            self.conditions(node, &mut conditions);
        }

        self.window_clause(select);
        let mut targets = self.target_list(&select.target_list, keep_unknown)?;
        let visible = targets.len();

        // GROUP BY: a bare name is an input column first, then an output name.
        let (keys, sets) = self.group_by(select, &targets[..visible])?;
        let mut having = Vec::new();
        if let Some(node) = &select.having_clause {
            self.conditions(node, &mut having);
        }

        let mut order = Vec::new();
        for node in &select.sort_clause {
            let Some(NodeEnum::SortBy(sort)) = &node.node else {
                return unmodelled("order_by");
            };
            let column = self.sort_target(self.required(&sort.node)?, &mut targets, visible)?;
            let (type_oid, collation) = (targets[column].typed.oid, targets[column].typed.collation);
            order.push(self.sort_key(sort, column, type_oid, collation)?);
        }
        let distinct = match select.distinct_clause.as_slice() {
            [] => Distinct::No,
            [only] if only.node.is_none() => Distinct::All,
            nodes => {
                let mut places = Vec::new();
                for node in nodes {
                    places.push(self.sort_target(node, &mut targets, visible)?);
                }
                Distinct::On(places)
            }
        };

        let aggregates = std::mem::take(&mut self.level().aggregates);
        let mut windows = std::mem::take(&mut self.level().windows);
        let grouped =
            !select.group_clause.is_empty() || !aggregates.is_empty() || select.having_clause.is_some();
        let group = if grouped {
            Some(self.group(
                keys,
                aggregates,
                having,
                &mut targets,
                &mut windows,
                sets,
                select.group_clause.is_empty(),
            )?)
        } else {
            None
        };

        let tables = self.level().tables.clone();
        let origins: Vec<Option<(u16, u16)>> = targets[..visible]
            .iter()
            .map(|target| match target.typed.expr {
                Expr::Column {
                    up: 0,
                    relation,
                    column,
                } if tables.get(relation as usize).copied().flatten().is_some() => Some((relation, column)),
                _ => None,
            })
            .collect();
        let locking = self.locking(select, &relations)?;

        let mut recheckable = true;
        let mut recheck = Vec::new();
        let (from, filter) = match tree {
            None => (None, conditions),
            Some(tree) => {
                if !locking.is_empty() {
                    recheckable = collect_recheck(&tree, &mut recheck);
                    recheck.extend(conditions.iter().cloned());
                }
                let (from, filter) = self.plan_joins(tree, conditions, &[], &relations);
                (Some(from), filter)
            }
        };
        let types = targets.iter().map(|target| target.typed.oid).collect();
        let names = targets.iter().map(|target| target.name.clone()).collect();
        let body = Select {
            relations,
            from,
            filter,
            recheck,
            recheckable,
            group,
            windows,
            targets: targets.into_iter().map(|target| target.typed.expr).collect(),
            distinct,
            locking,
            origins: origins.into(),
        };
        Ok(Query {
            described: Default::default(),
            ctes: Vec::new(),
            body: Body::Select(Box::new(body)),
            order,
            limit: None,
            offset: None,
            with_ties: false,
            visible,
            types,
            names,
            correlated: false,
            volatile: false,
            number: 0,
        })
    }

    fn locking(
        &mut self,
        select: &pg::SelectStmt,
        relations: &[crate::sql::plan::Relation],
    ) -> Result<Vec<Locking>> {
        let mut locking: Vec<Locking> = Vec::new();
        for node in &select.locking_clause {
            let Some(NodeEnum::LockingClause(clause)) = &node.node else {
                continue;
            };
            let names: Vec<String> = clause
                .locked_rels
                .iter()
                .filter_map(|node| match &node.node {
                    Some(NodeEnum::RangeVar(range)) => Some(range.relname.clone()),
                    _ => None,
                })
                .collect();
            for (place, relation) in relations.iter().enumerate() {
                if !names.is_empty() && !names.contains(&relation.alias) {
                    continue;
                }
                if !matches!(relation.source, RelationSource::Table(_)) {
                    if !matches!(
                        relation.source,
                        RelationSource::Cte(_) | RelationSource::Function { .. }
                    ) {
                        self.note("locking_subquery");
                    }
                    continue;
                }
                locking.push(Locking {
                    relation: place,
                    skip_locked: clause.wait_policy == LockWaitPolicy::LockWaitSkip as i32,
                    no_wait: clause.wait_policy == LockWaitPolicy::LockWaitError as i32,
                    strength: strength_of(clause.strength()),
                });
            }
        }
        Ok(locking)
    }
}

fn returned(returning: Option<&crate::sql::plan::Returning>) -> (Vec<String>, Vec<TypeOid>) {
    returning.map_or_else(Default::default, |returning| {
        (returning.names.to_vec(), returning.types.to_vec())
    })
}

fn strength_of(clause: LockClauseStrength) -> Strength {
    match clause {
        LockClauseStrength::LcsForupdate => Strength::Update,
        LockClauseStrength::LcsFornokeyupdate => Strength::NoKeyUpdate,
        LockClauseStrength::LcsForshare => Strength::Share,
        _ => Strength::KeyShare,
    }
}
