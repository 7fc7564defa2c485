//! CREATE INDEX.

use super::DdlRun;
use crate::interpret::run::{Fault, Outcome};
use crate::state::catalog::UniqueKey;
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg};

impl DdlRun<'_, '_> {
    pub(super) fn create_index(&self, index: &pg::IndexStmt) -> Outcome<()> {
        if !index.unique {
            return Ok(());
        }
        let Some(table) = self.find(index.relation.as_ref()) else {
            return Fault::unsure("unknown_table");
        };
        let mut columns = Vec::new();
        let mut expressions = Vec::new();
        let mut names = Vec::new();
        for node in &index.index_params {
            let Some(NodeEnum::IndexElem(element)) = &node.node else {
                return Fault::unsure("create_index");
            };
            match &element.expr {
                Some(expr) => {
                    columns.push(usize::MAX);
                    expressions.push(Some(self.expression_text(expr)?));
                    names.push("expr".to_owned());
                }
                None => match table.column(&element.name) {
                    Some(column) => {
                        columns.push(column);
                        expressions.push(None);
                        names.push(element.name.clone());
                    }
                    None => return Fault::unsure("unknown_column"),
                },
            }
        }
        let predicate = match &index.where_clause {
            Some(node) => Some(self.expression_text(node)?),
            None => None,
        };
        let name = match index.idxname.as_str() {
            "" => format!("{}_{}_idx", table.name, names.join("_")),
            name => name.to_owned(),
        };
        if table.keys.iter().any(|key| key.name == name) {
            return Ok(());
        }
        if table.storage != table.id {
            self.edit(|editor| {
                editor.alter(table.storage, |root| {
                    root.unmodelled_write
                        .get_or_insert("partition_constraint".to_owned());
                });
            });
            return Ok(());
        }
        self.edit(|editor| {
            editor.alter(table.id, |table| {
                table.keys.push(UniqueKey {
                    name,
                    columns,
                    expressions,
                    predicate,
                    primary: false,
                    constraint: false,
                    nulls_not_distinct: index.nulls_not_distinct,
                    deferrable: false,
                });
            });
        });
        Ok(())
    }
}
