//! INSERT, UPDATE, DELETE, MERGE: which rows, which values, and what a write must respect.

mod checks;
mod conflict;
mod insert;
mod merge;
mod update;

use super::{Analyzer, Result, Typed, Unmodelled, unmodelled};
use crate::sql::plan::{Cte, Expr, Kind, Returning};
use crate::state::TableId;
use crate::state::catalog::{Identity, Table, TableKind};
use crate::value::{CastKind, oid};
use pg_query::protobuf as pg;
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

    /// Something is written that may be one of several tables, or none that is known: a view, then, or a table whose
    /// triggers write anything.
    fn unknown_target(&mut self, range: Option<&pg::RangeVar>) {
        let Some(range) = range else { return };
        let tables = self.candidates(range);
        self.touches.writes_everything |= tables.is_empty();
        for table in &tables {
            self.touch_write(table);
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

    /// Analyses a statement where the names of its WITH clause are known.
    fn with_ctes<T>(
        &mut self,
        clause: Option<&pg::WithClause>,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(Vec<Cte>, T)> {
        let ctes_before = self.ctes.len();
        let ctes = self.take_ctes(clause)?;
        let depth = self.levels.len();
        let result = body(self);
        self.levels.truncate(depth);
        self.ctes.truncate(ctes_before);
        Ok((ctes, result?))
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
        if let Some(sequence) = column.sequence {
            return self.draw(sequence, table, position);
        }
        if column.identity != Identity::None {
            self.touches.draws_everything = true;
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

    /// The next value of a sequence as the default of a column.
    fn draw(&mut self, sequence: TableId, table: &Arc<Table>, position: usize) -> Expr {
        self.mark_volatile();
        let at = (sequence, self.is_orderly.then_some(position));
        if !self.touches.draws.contains(&at) {
            self.touches.draws.push(at);
        }
        if !self.is_orderly {
            return Expr::Unknown;
        }
        let typed = Typed {
            expr: Expr::Draw(sequence),
            ..self.unknown(oid::INT8)
        };
        self.assign(typed, table, position).unwrap_or(Expr::Unknown)
    }

    /// SET: columns and their new values.
    fn set_clause(&mut self, nodes: &[Node], table: &Arc<Table>) -> Result<Vec<(usize, Expr)>> {
        let before = std::mem::replace(&mut self.is_orderly, false);
        let result = self.set_columns(nodes, table);
        self.is_orderly = before;
        result
    }

    fn set_columns(&mut self, nodes: &[Node], table: &Arc<Table>) -> Result<Vec<(usize, Expr)>> {
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
}
