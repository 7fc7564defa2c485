//! UPDATE and DELETE: the rows that are found, and what becomes of them.

use crate::sql::analyze::from::Tree;
use crate::sql::analyze::select::collect_recheck;
use crate::sql::analyze::{Analyzer, Level, Result, unmodelled};
use crate::sql::plan::{Delete, Select, Update};
use crate::state::catalog::Table;
use pg_query::Node;
use pg_query::protobuf as pg;
use std::sync::Arc;

impl Analyzer<'_> {
    pub(in crate::sql::analyze) fn update(&mut self, update: &pg::UpdateStmt) -> Result<Update> {
        if let Some(rewritten) = self.update_through_view(update) {
            return self.update(&rewritten);
        }
        let clause = update.with_clause.as_ref();
        let (ctes, plan) = self.with_ctes(clause, |analyzer| analyzer.update_body(update))?;
        Ok(Update { ctes, ..plan })
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

    pub(in crate::sql::analyze) fn delete(&mut self, delete: &pg::DeleteStmt) -> Result<Delete> {
        if let Some(rewritten) = self.delete_through_view(delete) {
            return self.delete(&rewritten);
        }
        let clause = delete.with_clause.as_ref();
        let (ctes, plan) = self.with_ctes(clause, |analyzer| analyzer.delete_body(delete))?;
        Ok(Delete { ctes, ..plan })
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
            tree = Tree::Inner(Box::new(tree), Box::new(more), Vec::new());
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
        let select = Select::of_rows(relations, from, filter, recheck, recheckable);
        Ok((select, extra))
    }
}
