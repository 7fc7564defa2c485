//! INSERT, UPDATE, DELETE, MERGE: which rows, which values, and what a write must respect.

use super::select::collect_recheck;
use super::{Analyzer, Level, Result, Typed, Unmodelled, string_of, unmodelled};
use crate::sql::plan::{
    Body, Conflict, ConflictAction, Delete, Expr, Insert, InsertValue, KeyCheck, Kind, Merge, MergeAction,
    MergeWhen, Query, Relation, RelationSource, Returning, Select, TableChecks, Update,
};
use crate::state::catalog::{Identity, Table, TableKind};
use crate::value::{CastKind, oid};
use pg_query::protobuf::{self as pg, CmdType, MergeMatchKind, OnConflictAction, OverridingKind};
use pg_query::{Node, NodeEnum};
use std::sync::Arc;

impl Analyzer<'_> {
    pub(super) fn insert_statement(&mut self, insert: &pg::InsertStmt) -> Result<Kind> {
        self.tag = "INSERT 0";
        self.begin_write();
        match self.insert(insert) {
            Ok(plan) => {
                self.output_returning(plan.returning.as_ref());
                Ok(Kind::Insert(Box::new(plan)))
            }
            Err(error) => {
                self.raw_touches(&NodeEnum::InsertStmt(Box::new(insert.clone())), true);
                self.unknown_target(insert.relation.as_ref());
                Err(error)
            }
        }
    }

    pub(super) fn update_statement(&mut self, update: &pg::UpdateStmt) -> Result<Kind> {
        self.tag = "UPDATE";
        self.begin_write();
        match self.update(update) {
            Ok(plan) => {
                self.output_returning(plan.returning.as_ref());
                Ok(Kind::Update(Box::new(plan)))
            }
            Err(error) => {
                self.raw_touches(&NodeEnum::UpdateStmt(Box::new(update.clone())), true);
                self.unknown_target(update.relation.as_ref());
                Err(error)
            }
        }
    }

    pub(super) fn delete_statement(&mut self, delete: &pg::DeleteStmt) -> Result<Kind> {
        self.tag = "DELETE";
        self.begin_write();
        match self.delete(delete) {
            Ok(plan) => {
                self.output_returning(plan.returning.as_ref());
                Ok(Kind::Delete(Box::new(plan)))
            }
            Err(error) => {
                self.raw_touches(&NodeEnum::DeleteStmt(Box::new(delete.clone())), true);
                self.unknown_target(delete.relation.as_ref());
                Err(error)
            }
        }
    }

    pub(super) fn merge_statement(&mut self, merge: &pg::MergeStmt) -> Result<Kind> {
        self.tag = "MERGE";
        self.begin_write();
        match self.merge(merge) {
            Ok(plan) => Ok(Kind::Merge(Box::new(plan))),
            Err(error) => {
                self.raw_touches(&NodeEnum::MergeStmt(Box::new(merge.clone())), true);
                self.unknown_target(merge.relation.as_ref());
                Err(error)
            }
        }
    }

    fn begin_write(&mut self) {
        self.reads_snapshot = true;
        self.may_write = true;
    }

    fn output_returning(&mut self, returning: Option<&Returning>) {
        if let Some(returning) = returning {
            let (names, types) = (returning.names.to_vec(), returning.types.to_vec());
            self.output(&names, &types, names.len());
        }
    }

    /// A table that is not in the catalog is written: whatever it is, nothing that is known changes, unless it is a
    /// view or has triggers.
    fn unknown_target(&mut self, range: Option<&pg::RangeVar>) {
        if let Some(range) = range {
            if self.find_table(range).is_none() {
                self.touches.writes_everything = true;
            }
        }
    }

    /// The table that is written, if writes to it are modelled.
    fn target(&mut self, range: Option<&pg::RangeVar>) -> Result<Arc<Table>> {
        let Some(range) = range else {
            return unmodelled("target");
        };
        let Some(table) = self.find_table(range) else {
            return unmodelled("unknown_table");
        };
        self.touch_write(&table);
        if let Some(reason) = table.unmodelled_write.clone().or(table.unmodelled_read.clone()) {
            return unmodelled(reason);
        }
        match table.kind {
            TableKind::Table | TableKind::Partitioned => {}
            TableKind::View => return unmodelled("write_to_view"),
            _ => return unmodelled("write_target"),
        }
        let separate = table
            .children
            .iter()
            .any(|child| self.catalog.storage(*child) != table.storage);
        if separate && range.inh {
            return unmodelled("inheritance");
        }
        if table.kind == TableKind::Partitioned && !range.inh {
            return unmodelled("only_partitioned");
        }
        self.touch_read(&table);
        Ok(table)
    }

    pub(super) fn insert(&mut self, insert: &pg::InsertStmt) -> Result<Insert> {
        if let Some(rewritten) = self.insert_through_view(insert) {
            return self.insert(&rewritten);
        }
        let ctes_before = self.ctes.len();
        let ctes = self.take_ctes(insert.with_clause.as_ref())?;
        let result = self.insert_body(insert);
        self.ctes.truncate(ctes_before);
        let mut plan = result?;
        plan.ctes = ctes;
        Ok(plan)
    }

    fn insert_body(&mut self, insert: &pg::InsertStmt) -> Result<Insert> {
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
            Body::Select(select) if !matches!(select.distinct, crate::sql::plan::Distinct::All) => {
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

    /// Casts a value for storing it in a column.
    fn assign(&mut self, typed: Typed, table: &Arc<Table>, column: usize) -> Result<Expr> {
        let column = &table.columns[column];
        match self.coerce(typed, column.type_oid, column.type_modifier, CastKind::Assignment) {
            Ok(typed) => Ok(typed.expr),
            Err(Unmodelled(reason)) => {
                self.note(reason);
                Ok(Expr::Unknown)
            }
        }
    }

    /// What a column holds when nothing is said.
    pub(super) fn default_of(&mut self, table: &Arc<Table>, position: usize) -> Expr {
        let column = &table.columns[position];
        if column.dropped || column.generated {
            return Expr::null();
        }
        if column.identity != Identity::None {
            self.mark_volatile();
            return Expr::Unknown;
        }
        let Some(text) = column.default.clone() else {
            return Expr::null();
        };
        match self.catalog_expression(&text, Vec::new()) {
            Ok(typed) => self.assign(typed, table, position).unwrap_or(Expr::Unknown),
            Err(Unmodelled(reason)) => {
                self.note(format!("default_{reason}"));
                Expr::Unknown
            }
        }
    }

    /// Checks, generated columns and keys of a table, over its row as relation 0.
    pub(super) fn table_checks(&mut self, table: &Arc<Table>) -> Result<Arc<TableChecks>> {
        if let Some(known) = self.checks.get(&table.id) {
            return Ok(known.clone());
        }
        // Constraints are those of the whole partition tree.
        let root = self
            .catalog
            .table(table.storage)
            .cloned()
            .unwrap_or_else(|| table.clone());
        let mut checks = TableChecks::default();
        let item = self.table_item(&root, &root.name, 0, &[]);
        let mut conditions = root.checks.clone();
        conditions.sort_by(|one, other| one.name.cmp(&other.name));
        for check in &conditions {
            let expr = match self.catalog_expression(&check.condition, vec![item.clone()]) {
                Ok(typed) => typed.expr,
                Err(Unmodelled(reason)) => {
                    self.note(format!("check_{reason}"));
                    Expr::Unknown
                }
            };
            checks.checks.push((check.name.clone(), expr));
        }
        for (position, column) in root.columns.iter().enumerate() {
            if column.generated && !column.dropped {
                let text = column.default.clone().unwrap_or_else(|| Arc::from("NULL"));
                let expr = match self.catalog_expression(&text, vec![item.clone()]) {
                    Ok(typed) => self.assign(typed, &root, position)?,
                    Err(Unmodelled(reason)) => {
                        self.note(format!("generated_{reason}"));
                        Expr::Unknown
                    }
                };
                checks.generated.push((position, expr));
            }
        }
        for key in &root.keys {
            let mut check = KeyCheck {
                columns: key.columns.clone(),
                expressions: None,
                predicate: None,
                modelled: true,
            };
            if let Some(predicate) = &key.predicate {
                match self.catalog_expression(predicate, vec![item.clone()]) {
                    Ok(typed) => check.predicate = Some(typed.expr),
                    Err(_) => check.modelled = false,
                }
            }
            if key.expressions.iter().any(Option::is_some) {
                let mut expressions = Vec::new();
                for (column, text) in key.columns.iter().zip(&key.expressions) {
                    match text {
                        None => expressions.push(Expr::column(0, *column)),
                        Some(text) => match self.catalog_expression(text, vec![item.clone()]) {
                            Ok(typed) => expressions.push(typed.expr),
                            Err(_) => check.modelled = false,
                        },
                    }
                }
                check.expressions = Some(expressions);
            }
            if !check.modelled {
                self.note("unique_index_expression");
            }
            checks.keys.push(check);
        }
        if table.storage != table.id {
            checks.partition = Some(self.partition_condition(table, 0)?);
        }
        let checks = Arc::new(checks);
        self.checks.insert(table.id, checks.clone());
        Ok(checks)
    }

    fn on_conflict(&mut self, clause: &pg::OnConflictClause, table: &Arc<Table>) -> Result<Conflict> {
        let root = self
            .catalog
            .table(table.storage)
            .cloned()
            .unwrap_or_else(|| table.clone());
        let keys = match &clause.infer {
            None => None,
            Some(infer) if !infer.conname.is_empty() => {
                match root
                    .keys
                    .iter()
                    .position(|key| key.constraint && key.name == infer.conname)
                {
                    Some(place) => Some(vec![place]),
                    None => return unmodelled("conflict_constraint"),
                }
            }
            Some(infer) => {
                let mut wanted = Vec::new();
                for element in &infer.index_elems {
                    let Some(NodeEnum::IndexElem(element)) = &element.node else {
                        return unmodelled("conflict_target");
                    };
                    match root.column(&element.name) {
                        Some(column) if element.expr.is_none() => wanted.push(column),
                        _ => return unmodelled("conflict_expression"),
                    }
                }
                wanted.sort_unstable();
                wanted.dedup();
                let mut places = Vec::new();
                for (place, key) in root.keys.iter().enumerate() {
                    let mut columns = key.columns.clone();
                    columns.sort_unstable();
                    if columns != wanted || key.deferrable {
                        continue;
                    }
                    if key.predicate.is_some() {
                        if infer.where_clause.is_none() {
                            continue;
                        }
                        return unmodelled("conflict_predicate");
                    }
                    places.push(place);
                }
                if places.is_empty() {
                    return unmodelled("conflict_target");
                }
                Some(places)
            }
        };
        let action = match OnConflictAction::try_from(clause.action) {
            Ok(OnConflictAction::OnconflictNothing) => ConflictAction::Nothing,
            Ok(OnConflictAction::OnconflictUpdate) => {
                let set = self.set_clause(&clause.target_list, table)?;
                let mut filter = Vec::new();
                if let Some(node) = &clause.where_clause {
                    self.conditions(node, &mut filter);
                }
                ConflictAction::Update { set, filter }
            }
            _ => return unmodelled("on_conflict"),
        };
        Ok(Conflict { keys, action })
    }

    /// SET: columns and their new values.
    fn set_clause(&mut self, nodes: &[Node], table: &Arc<Table>) -> Result<Vec<(usize, Expr)>> {
        let mut set = Vec::new();
        for node in nodes {
            let Some(NodeEnum::ResTarget(target)) = &node.node else {
                return unmodelled("set_clause");
            };
            if !target.indirection.is_empty() {
                return unmodelled("update_element");
            }
            let Some(column) = table.column(&target.name) else {
                return unmodelled("unknown_column");
            };
            let value = self.required(&target.val)?;
            let expr = match &value.node {
                Some(NodeEnum::SetToDefault(_)) => self.default_of(table, column),
                Some(NodeEnum::MultiAssignRef(multi)) => {
                    let source = self.required(&multi.source)?;
                    let Some(NodeEnum::RowExpr(row)) = &source.node else {
                        return unmodelled("multi_assignment");
                    };
                    let Some(node) = row.args.get(multi.colno as usize - 1) else {
                        return unmodelled("multi_assignment");
                    };
                    match &node.node {
                        Some(NodeEnum::SetToDefault(_)) => self.default_of(table, column),
                        _ => {
                            let typed = self.expr_or_unknown(node);
                            self.assign(typed, table, column)?
                        }
                    }
                }
                _ => {
                    let typed = self.expr_or_unknown(value);
                    self.assign(typed, table, column)?
                }
            };
            if table.columns[column].generated {
                return unmodelled("update_generated");
            }
            set.push((column, expr));
        }
        Ok(set)
    }

    fn returning(&mut self, clause: Option<&pg::ReturningClause>) -> Result<Option<Returning>> {
        let Some(clause) = clause else { return Ok(None) };
        if clause.exprs.is_empty() {
            return Ok(None);
        }
        if !clause.options.is_empty() {
            return unmodelled("returning_options");
        }
        let (targets, types, names) = self.plain_targets(&clause.exprs)?;
        let tables = self.level().tables.clone();
        let origins: Vec<Option<(u16, u16)>> = targets
            .iter()
            .map(|target| match target {
                Expr::Column {
                    up: 0,
                    relation,
                    column,
                } if tables.get(*relation as usize).copied().flatten().is_some() => {
                    Some((*relation, *column))
                }
                _ => None,
            })
            .collect();
        if let Some(reason) = self.fatal.take() {
            return unmodelled(reason);
        }
        Ok(Some(Returning {
            targets,
            origins: origins.into(),
            types: types.into(),
            names: names.into(),
        }))
    }

    pub(super) fn update(&mut self, update: &pg::UpdateStmt) -> Result<Update> {
        if let Some(rewritten) = self.update_through_view(update) {
            return self.update(&rewritten);
        }
        let ctes_before = self.ctes.len();
        let ctes = self.take_ctes(update.with_clause.as_ref())?;
        let depth = self.levels.len();
        let result = self.update_body(update);
        self.levels.truncate(depth);
        self.ctes.truncate(ctes_before);
        let mut plan = result?;
        plan.ctes = ctes;
        Ok(plan)
    }

    fn update_body(&mut self, update: &pg::UpdateStmt) -> Result<Update> {
        let table = self.target(update.relation.as_ref())?;
        let checks = self.table_checks(&table)?;
        self.levels.push(Level::default());
        let (select, set) = self.found_rows(
            &table,
            update.relation.as_ref(),
            &update.from_clause,
            update.where_clause.as_deref(),
            |analyzer| analyzer.set_clause(&update.target_list, &table),
        )?;
        let returning = self.returning(update.returning_clause.as_ref())?;
        Ok(Update {
            ctes: Vec::new(),
            table: table.id,
            select,
            set,
            returning,
            checks,
        })
    }

    pub(super) fn delete(&mut self, delete: &pg::DeleteStmt) -> Result<Delete> {
        if let Some(rewritten) = self.delete_through_view(delete) {
            return self.delete(&rewritten);
        }
        let ctes_before = self.ctes.len();
        let ctes = self.take_ctes(delete.with_clause.as_ref())?;
        let depth = self.levels.len();
        let result = self.delete_body(delete);
        self.levels.truncate(depth);
        self.ctes.truncate(ctes_before);
        let mut plan = result?;
        plan.ctes = ctes;
        Ok(plan)
    }

    fn delete_body(&mut self, delete: &pg::DeleteStmt) -> Result<Delete> {
        let table = self.target(delete.relation.as_ref())?;
        let checks = self.table_checks(&table)?;
        self.levels.push(Level::default());
        let (select, ()) = self.found_rows(
            &table,
            delete.relation.as_ref(),
            &delete.using_clause,
            delete.where_clause.as_deref(),
            |_| Ok(()),
        )?;
        let returning = self.returning(delete.returning_clause.as_ref())?;
        Ok(Delete {
            ctes: Vec::new(),
            table: table.id,
            select,
            returning,
            checks,
        })
    }

    /// The rows that UPDATE and DELETE find: relation 0 is the target. `values` is analysed where all names are known.
    fn found_rows<T>(
        &mut self,
        table: &Arc<Table>,
        range: Option<&pg::RangeVar>,
        others: &[Node],
        condition: Option<&Node>,
        values: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(Select, T)> {
        let alias = range
            .and_then(|range| range.alias.as_ref())
            .map_or(table.name.clone(), |alias| alias.aliasname.clone());
        let mut relations = Vec::new();
        let mut tree = self.table_relation(table, &alias, &[], true, &mut relations)?;
        if let Some(more) = self.from_clause(others, &mut relations)? {
            tree = super::from::Tree::Inner(Box::new(tree), Box::new(more), Vec::new());
        }
        let mut conditions = Vec::new();
        if let Some(node) = condition {
            self.conditions(node, &mut conditions);
        }
        let extra = values(self)?;
        if let Some(reason) = self.fatal.take() {
            return unmodelled(reason);
        }
        let mut recheck = Vec::new();
        let recheckable = collect_recheck(&tree, &mut recheck);
        recheck.extend(conditions.iter().cloned());
        let (from, filter) = self.plan_joins(tree, conditions, &[], &relations);
        let select = Select {
            relations,
            from: Some(from),
            filter,
            recheck,
            recheckable,
            group: None,
            windows: Vec::new(),
            targets: Vec::new(),
            distinct: crate::sql::plan::Distinct::No,
            locking: Vec::new(),
            origins: Arc::from([]),
        };
        Ok((select, extra))
    }

    fn merge(&mut self, merge: &pg::MergeStmt) -> Result<Merge> {
        let ctes_before = self.ctes.len();
        let ctes = self.take_ctes(merge.with_clause.as_ref())?;
        let depth = self.levels.len();
        let result = self.merge_body(merge);
        self.levels.truncate(depth);
        self.ctes.truncate(ctes_before);
        let mut plan = result?;
        plan.ctes = ctes;
        Ok(plan)
    }

    fn merge_body(&mut self, merge: &pg::MergeStmt) -> Result<Merge> {
        if merge
            .returning_clause
            .as_ref()
            .is_some_and(|clause| !clause.exprs.is_empty())
        {
            return unmodelled("merge_returning");
        }
        let table = self.target(merge.relation.as_ref())?;
        let checks = self.table_checks(&table)?;
        self.levels.push(Level::default());
        let alias = merge
            .relation
            .as_ref()
            .and_then(|range| range.alias.as_ref())
            .map_or(table.name.clone(), |alias| alias.aliasname.clone());
        let mut relations: Vec<Relation> = Vec::new();
        let target = self.table_relation(&table, &alias, &[], true, &mut relations)?;
        let source = self.required(&merge.source_relation)?.clone();
        let Some(source) = self.from_clause(std::slice::from_ref(&source), &mut relations)? else {
            return unmodelled("merge_source");
        };
        if table.storage != table.id
            || relations.len() != 2
            || !matches!(relations[0].source, RelationSource::Table(_))
        {
            return unmodelled("merge_source");
        }
        let mut on = Vec::new();
        self.conditions(self.required(&merge.join_condition)?, &mut on);
        let mut whens = Vec::new();
        for node in &merge.merge_when_clauses {
            let Some(NodeEnum::MergeWhenClause(when)) = &node.node else {
                return unmodelled("merge_when");
            };
            let matched = match MergeMatchKind::try_from(when.match_kind) {
                Ok(MergeMatchKind::MergeWhenMatched) => true,
                Ok(MergeMatchKind::MergeWhenNotMatchedByTarget) => false,
                _ => return unmodelled("merge_not_matched_by_source"),
            };
            let condition = match &when.condition {
                Some(node) => {
                    let typed = self.expr_or_unknown(node);
                    Some(self.coerce(typed, oid::BOOL, -1, CastKind::Implicit)?.expr)
                }
                None => None,
            };
            let action = match CmdType::try_from(when.command_type) {
                Ok(CmdType::CmdUpdate) => MergeAction::Update(self.set_clause(&when.target_list, &table)?),
                Ok(CmdType::CmdDelete) => MergeAction::Delete,
                Ok(CmdType::CmdNothing) => MergeAction::Nothing,
                Ok(CmdType::CmdInsert) => MergeAction::Insert(self.merge_insert(when, &table)?),
                _ => return unmodelled("merge_action"),
            };
            whens.push(MergeWhen {
                matched,
                condition,
                action,
            });
        }
        if let Some(reason) = self.fatal.take() {
            return unmodelled(reason);
        }
        let recheck = on.clone();
        let tree = super::from::Tree::Left(Box::new(source), Box::new(target), on);
        let (from, filter) = self.plan_joins(tree, Vec::new(), &[], &relations);
        let select = Select {
            relations,
            from: Some(from),
            filter,
            recheck,
            recheckable: true,
            group: None,
            windows: Vec::new(),
            targets: Vec::new(),
            distinct: crate::sql::plan::Distinct::No,
            locking: Vec::new(),
            origins: Arc::from([]),
        };
        Ok(Merge {
            ctes: Vec::new(),
            table: table.id,
            select,
            whens,
            checks,
        })
    }

    fn merge_insert(&mut self, when: &pg::MergeWhenClause, table: &Arc<Table>) -> Result<Vec<Expr>> {
        let mut columns: Vec<usize> = Vec::new();
        for node in &when.target_list {
            let Some(NodeEnum::ResTarget(target)) = &node.node else {
                return unmodelled("insert_columns");
            };
            match table.column(&target.name) {
                Some(column) => columns.push(column),
                None => return unmodelled("unknown_column"),
            }
        }
        if columns.is_empty() {
            columns = table
                .live_columns()
                .map(|(column, _)| column)
                .take(when.values.len())
                .collect();
        }
        let mut row = Vec::new();
        for position in 0..table.columns.len() {
            let place = columns.iter().position(|column| *column == position);
            let node = place.and_then(|place| when.values.get(place));
            row.push(match node {
                Some(node) if !matches!(node.node, Some(NodeEnum::SetToDefault(_))) => {
                    let typed = self.expr_or_unknown(node);
                    self.assign(typed, table, position)?
                }
                _ => self.default_of(table, position),
            });
        }
        Ok(row)
    }
}

fn is_bare_values(select: &pg::SelectStmt) -> bool {
    select.sort_clause.is_empty()
        && select.limit_count.is_none()
        && select.limit_offset.is_none()
        && select.with_clause.is_none()
}

/// The name of an option, for utility statements.
pub(super) fn option_name(node: &Node) -> Option<(&str, Option<&Node>)> {
    match &node.node {
        Some(NodeEnum::DefElem(element)) => Some((&element.defname, element.arg.as_deref())),
        _ => None,
    }
}

/// The plain text of an option's value.
pub(super) fn option_text(node: Option<&Node>) -> Option<String> {
    match node.and_then(|node| node.node.as_ref())? {
        NodeEnum::String(string) => Some(string.sval.clone()),
        NodeEnum::Integer(integer) => Some(integer.ival.to_string()),
        NodeEnum::Float(float) => Some(float.fval.clone()),
        NodeEnum::Boolean(boolean) => Some(boolean.boolval.to_string()),
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            pg::a_const::Val::Ival(integer) => Some(integer.ival.to_string()),
            pg::a_const::Val::Sval(string) => Some(string.sval.clone()),
            pg::a_const::Val::Fval(float) => Some(float.fval.clone()),
            pg::a_const::Val::Boolval(boolean) => Some(boolean.boolval.to_string()),
            pg::a_const::Val::Bsval(_) => None,
        },
        NodeEnum::TypeName(name) => name.names.last().and_then(string_of).map(str::to_owned),
        _ => None,
    }
}
