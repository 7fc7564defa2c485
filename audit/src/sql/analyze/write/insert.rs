//! INSERT: a value for every column of every row.

use crate::sql::analyze::{Analyzer, Level, Result, Typed, unmodelled};
use crate::sql::plan::{Body, Conflict, Distinct, Expr, Insert, InsertValue, Query, Returning};
use crate::state::catalog::{Identity, Table};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, OverridingKind};
use std::sync::Arc;

impl Analyzer<'_> {
    pub(in crate::sql::analyze) fn insert(&mut self, insert: &pg::InsertStmt) -> Result<Insert> {
        if let Some(rewritten) = self.insert_through_view(insert) {
            return self.insert(&rewritten);
        }
        let clause = insert.with_clause.as_ref();
        let (ctes, plan) = self.with_ctes(clause, |analyzer| analyzer.insert_body(insert))?;
        Ok(Insert { ctes, ..plan })
    }

    fn insert_body(&mut self, insert: &pg::InsertStmt) -> Result<Insert> {
        let before = std::mem::replace(&mut self.is_orderly, true);
        let result = self.insert_rows(insert);
        self.is_orderly = before;
        result
    }

    fn insert_rows(&mut self, insert: &pg::InsertStmt) -> Result<Insert> {
        let table = self.target(insert.relation.as_ref())?;
        let checks = self.table_checks(&table)?;
        let overriding = OverridingKind::try_from(insert.r#override).unwrap_or(OverridingKind::Undefined);

        let mut columns: Vec<usize> = Vec::new();
        for node in &insert.cols {
            let Some(NodeEnum::ResTarget(target)) = &node.node else {
                return unmodelled("insert_columns");
            };
            if !target.indirection.is_empty() {
                return unmodelled("insert_into_element");
            }
            match table.column(&target.name) {
                Some(column) => columns.push(column),
                None => return unmodelled("unknown_column"),
            }
        }
        if insert.cols.is_empty() {
            columns = table.live_columns().map(|(column, _)| column).collect();
        }

        let mut query = match insert.select_stmt.as_ref().and_then(|node| node.node.as_ref()) {
            None => None,
            Some(NodeEnum::SelectStmt(select))
                if !select.values_lists.is_empty() && is_bare_values(select) =>
            {
                Some(self.insert_values(select, &table, &columns)?)
            }
            Some(NodeEnum::SelectStmt(select)) => {
                let mut query = self.query(select, true)?;
                let given = query.visible;
                if given > columns.len() {
                    return unmodelled("insert_columns");
                }
                columns.truncate(given);
                self.assign_output(&mut query, &table, &columns)?;
                Some(query)
            }
            Some(_) => return unmodelled("insert_source"),
        };
        if let Some(query) = &query {
            columns.truncate(query.visible);
        } else {
            columns.clear();
        }

        let mut values = Vec::new();
        for (position, column) in table.columns.iter().enumerate() {
            let place = columns.iter().position(|column| *column == position);
            let user_value_ignored =
                overriding == OverridingKind::OverridingUserValue && column.identity != Identity::None;
            values.push(match place {
                Some(place) if !column.generated && !user_value_ignored => {
                    if column.identity == Identity::Always
                        && overriding != OverridingKind::OverridingSystemValue
                    {
                        return unmodelled("identity_always");
                    }
                    InsertValue::Column(place)
                }
                _ => InsertValue::Default(self.default_of(&table, position)),
            });
        }

        // Relation 0 is the row (new, or existing under ON CONFLICT), relation 1 is `excluded`.
        let alias = insert
            .relation
            .as_ref()
            .and_then(|range| range.alias.as_ref())
            .map_or(table.name.clone(), |alias| alias.aliasname.clone());
        let depth = self.levels.len();
        let mut level = Level::default();
        level.items.push(self.table_item(&table, &alias, 0, &[]));
        level.tables = vec![Some(table.storage), Some(table.storage)];
        self.levels.push(level);
        let mut finish = || -> Result<(Option<Conflict>, Option<Returning>)> {
            let conflict = match &insert.on_conflict_clause {
                None => None,
                Some(clause) => {
                    let mut excluded = self.table_item(&table, "excluded", 1, &[]);
                    excluded.qualified_only = true;
                    self.level().items.push(excluded);
                    let conflict = self.on_conflict(clause, &table)?;
                    self.level().items.pop();
                    Some(conflict)
                }
            };
            let returning = self.returning(insert.returning_clause.as_ref())?;
            Ok((conflict, returning))
        };
        let finished = finish();
        self.levels.truncate(depth);
        let (conflict, returning) = finished?;
        if let Some(query) = &mut query {
            query.names.truncate(query.visible);
        }
        Ok(Insert {
            ctes: Vec::new(),
            table: table.id,
            values,
            query,
            conflict,
            returning,
            checks,
        })
    }

    /// VALUES rows: every cell is cast to its column's type; DEFAULT stands for the column's default.
    fn insert_values(
        &mut self,
        select: &pg::SelectStmt,
        table: &Arc<Table>,
        columns: &[usize],
    ) -> Result<Query> {
        let depth = self.levels.len();
        self.levels.push(Level::default());
        let mut rows = Vec::new();
        let mut width = 0;
        for list in &select.values_lists {
            let Some(NodeEnum::List(list)) = &list.node else {
                return unmodelled("values");
            };
            if list.items.len() > columns.len() {
                return unmodelled("insert_columns");
            }
            width = list.items.len();
            let mut row = Vec::new();
            for (node, column) in list.items.iter().zip(columns) {
                if let Some(NodeEnum::SetToDefault(_)) = &node.node {
                    row.push(self.default_of(table, *column));
                    continue;
                }
                let typed = self.expr_or_unknown(node);
                row.push(self.assign(typed, table, *column)?);
            }
            rows.push(row);
        }
        self.levels.truncate(depth + 1);
        let level = self.levels.pop().unwrap_or_default();
        if rows.iter().any(|row| row.len() != width) {
            return unmodelled("values");
        }
        Ok(Query {
            described: Default::default(),
            ctes: Vec::new(),
            body: Body::Values(rows),
            order: Vec::new(),
            limit: None,
            offset: None,
            with_ties: false,
            visible: width,
            types: columns[..width]
                .iter()
                .map(|column| table.columns[*column].type_oid)
                .collect(),
            names: Vec::new(),
            correlated: level.correlated,
            volatile: level.volatile,
            number: self.next_query(),
        })
    }

    /// Casts a query's output columns to the table's.
    fn assign_output(&mut self, query: &mut Query, table: &Arc<Table>, columns: &[usize]) -> Result<()> {
        let types = query.types.clone();
        match &mut query.body {
            Body::Select(select) if !matches!(select.distinct, Distinct::All) => {
                for (place, column) in columns.iter().enumerate() {
                    let expr = select.targets[place].clone();
                    let typed = Typed {
                        expr,
                        oid: types[place],
                        ..self.unknown(0)
                    };
                    let assigned = self.assign(typed, table, *column)?;
                    // A column that also sorts keeps its own value for that.
                    if query.order.iter().any(|key| key.column == place)
                        && !matches!(assigned, Expr::Column { .. } | Expr::Grouped { .. })
                    {
                        let kept = select.targets[place].clone();
                        select.targets.push(kept);
                        let moved = select.targets.len() - 1;
                        for key in query.order.iter_mut().filter(|key| key.column == place) {
                            key.column = moved;
                        }
                        query.types.push(types[place]);
                        query.names.push(String::new());
                    }
                    select.targets[place] = assigned;
                }
            }
            Body::Values(rows) => {
                for row in rows {
                    for (place, column) in columns.iter().enumerate() {
                        let typed = Typed {
                            expr: row[place].clone(),
                            oid: types[place],
                            ..self.unknown(0)
                        };
                        row[place] = self.assign(typed, table, *column)?;
                    }
                }
            }
            _ => {
                // The rows must be compared before they are cast: only equal types are modelled.
                for (place, column) in columns.iter().enumerate() {
                    let target = &table.columns[*column];
                    let same = self.is_relabel(types[place], target.type_oid) && target.type_modifier < 0;
                    if !same {
                        return unmodelled("insert_cast_of_set_operation");
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_bare_values(select: &pg::SelectStmt) -> bool {
    select.sort_clause.is_empty()
        && select.limit_count.is_none()
        && select.limit_offset.is_none()
        && select.with_clause.is_none()
}
