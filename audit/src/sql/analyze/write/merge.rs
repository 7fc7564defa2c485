//! MERGE: source and target joined, and what is done with each pair.

use crate::sql::analyze::from::Tree;
use crate::sql::analyze::{Analyzer, Level, Result, unmodelled};
use crate::sql::plan::{Expr, Merge, MergeAction, MergeWhen, Relation, RelationSource, Select};
use crate::state::catalog::Table;
use crate::value::{CastKind, oid};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, CmdType, MergeMatchKind};
use std::sync::Arc;

impl Analyzer<'_> {
    pub(super) fn merge(&mut self, merge: &pg::MergeStmt) -> Result<Merge> {
        let clause = merge.with_clause.as_ref();
        let (ctes, plan) = self.with_ctes(clause, |analyzer| analyzer.merge_body(merge))?;
        Ok(Merge { ctes, ..plan })
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
        let tree = Tree::Left(Box::new(source), Box::new(target), on);
        let (from, filter) = self.plan_joins(tree, Vec::new(), &[], &relations);
        let select = Select::of_rows(relations, from, filter, recheck, true);
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
