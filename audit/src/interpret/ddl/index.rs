//! CREATE INDEX.

use super::DdlRun;
use crate::interpret::run::{Fault, Outcome};
use crate::state::catalog::{Table, UniqueKey};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg};
use std::sync::Arc;

impl DdlRun<'_, '_> {
    pub(super) fn create_index(&self, index: &pg::IndexStmt) -> Outcome<()> {
        let Some(table) = self.find(index.relation.as_ref()) else {
            return Fault::unsure("unknown_table");
        };
        if !index.unique {
            if !index.idxname.is_empty() {
                let name = index.idxname.clone();
                self.edit(|editor| editor.alter(table.id, |table| table.plain_indexes.push(name)));
            }
            return Ok(());
        }
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
        let mut included = Vec::new();
        for node in &index.index_including_params {
            let Some(NodeEnum::IndexElem(element)) = &node.node else {
                return Fault::unsure("create_index");
            };
            let Some(column) = table.column(&element.name) else {
                return Fault::unsure("unknown_column");
            };
            included.push(column);
            names.push(element.name.clone());
        }
        let predicate = match &index.where_clause {
            Some(node) => Some(self.expression_text(node)?),
            None => None,
        };
        let name = match index.idxname.as_str() {
            "" => self.free_name(&table.schema, &format!("{}_{}_idx", table.name, names.join("_"))),
            name => name.to_owned(),
        };
        if index.if_not_exists {
            let is_there = |old: &&Arc<Table>| old.schema == table.schema && old.has_index(&name);
            match self.catalog.tables().into_iter().find(is_there) {
                Some(old) if old.has_key(&name) => return Ok(()),
                Some(_) => return Fault::unsure("create_index"),
                None => {}
            }
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
                    included,
                    primary: false,
                    constraint: false,
                    nulls_not_distinct: index.nulls_not_distinct,
                    deferrable: false,
                });
            });
        });
        Ok(())
    }

    /// The name that an index gets which is given none.
    fn free_name(&self, schema: &str, wanted: &str) -> String {
        let tables = self.catalog.tables();
        let here = || tables.iter().filter(|table| table.schema == schema);
        let is_taken = |name: &String| here().any(|table| table.name == *name || table.has_index(name));
        let numbered = (1..).map(|number| format!("{wanted}{number}"));
        let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
        names
            .find(|name| !is_taken(name))
            .expect("there is no end of them")
    }
}
