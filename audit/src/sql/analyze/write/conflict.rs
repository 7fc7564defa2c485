//! ON CONFLICT: which keys arbitrate, and what is done instead.

use crate::sql::analyze::{Analyzer, Result, unmodelled};
use crate::sql::plan::{Conflict, ConflictAction};
use crate::state::catalog::Table;
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, OnConflictAction};
use std::sync::Arc;

impl Analyzer<'_> {
    pub(super) fn on_conflict(
        &mut self,
        clause: &pg::OnConflictClause,
        table: &Arc<Table>,
    ) -> Result<Conflict> {
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
}
