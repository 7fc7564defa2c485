//! A row by itself: generated columns are filled in, NOT NULL, CHECK and the bounds of a partition hold.

use super::{Batch, single};
use crate::interpret::run::{Outcome, Scope};
use crate::sql::plan::TableChecks;
use crate::state::Row;
use crate::state::catalog::{Table, TableKind};
use crate::value::Value;
use std::sync::Arc;

impl Batch<'_, '_> {
    /// Fills in generated columns and checks the row by itself.
    pub fn complete(
        &mut self,
        table: &Arc<Table>,
        checks: &Arc<TableChecks>,
        mut row: Vec<Value>,
    ) -> Outcome<Row> {
        if !checks.generated.is_empty() {
            let frame = single(Row::from(row.clone()));
            let scope = Scope {
                frame: &frame,
                outer: None,
            };
            for (column, expr) in &checks.generated {
                row[*column] = self.run.eval(expr, &scope)?;
            }
        }
        for (place, (column, value)) in table.columns.iter().zip(&row).enumerate() {
            if !column.not_null || column.dropped {
                continue;
            }
            match value {
                Value::Null => self.fail(
                    "23502",
                    format!("null value in column \"{}\" of \"{}\"", column.name, table.name),
                ),
                Value::Unknown if !self.is_kept(place) => self
                    .run
                    .may_fail("23502", format!("column \"{}\" may be null", column.name)),
                _ => {}
            }
        }
        let row = Row::from(row);
        if !checks.checks.is_empty() || checks.partition.is_some() {
            let frame = single(row.clone());
            let scope = Scope {
                frame: &frame,
                outer: None,
            };
            let own = checks.checks.iter().map(|(name, expr)| (name.as_str(), expr));
            for (name, expr) in own.chain(checks.partition.iter().map(|expr| ("partition", expr))) {
                match self.run.eval(expr, &scope)? {
                    Value::Bool(false) => {
                        self.fail("23514", format!("row violates check constraint \"{name}\""))
                    }
                    Value::Unknown => self
                        .run
                        .may_fail("23514", format!("check constraint \"{name}\" may be violated")),
                    _ => {}
                }
            }
        }
        if table.kind == TableKind::Partitioned {
            self.run.may_fail("23514", "no partition may accept the row");
        }
        Ok(row)
    }

    /// Whether the next update leaves a column as it was.
    fn is_kept(&self, column: usize) -> bool {
        self.set.as_ref().is_some_and(|set| !set.contains(&column))
    }
}
