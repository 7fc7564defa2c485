//! What every write to a table must respect, compiled once: checks, generated columns, keys.

use crate::sql::analyze::{Analyzer, Result, Unmodelled};
use crate::sql::plan::{Expr, KeyCheck, TableChecks};
use crate::state::catalog::Table;
use std::sync::Arc;

impl Analyzer<'_> {
    /// Checks, generated columns and keys of a table, over its row as relation 0.
    pub(in crate::sql::analyze) fn table_checks(&mut self, table: &Arc<Table>) -> Result<Arc<TableChecks>> {
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
}
