//! CREATE INDEX.

use super::constraint::free_name;
use super::{DdlRun, string_of};
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
        let mut columns = Vec::new();
        let mut expressions = Vec::new();
        let mut names = Vec::new();
        for node in &index.index_params {
            let Some(NodeEnum::IndexElem(element)) = &node.node else {
                return Fault::unsure("create_index");
            };
            names.push(name_in(element));
            match &element.expr {
                Some(expr) => {
                    columns.push(usize::MAX);
                    expressions.push(Some(self.expression_text(expr)?));
                }
                None => match table.column(&element.name) {
                    Some(column) => {
                        columns.push(column);
                        expressions.push(None);
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
            names.push(name_in(element));
        }
        let predicate = match &index.where_clause {
            Some(node) => Some(self.expression_text(node)?),
            None => None,
        };
        let name = match index.idxname.as_str() {
            "" => {
                let names = apart(names).join("_");
                free_name(&format!("{}_{names}_idx", table.name), |name| {
                    self.is_named(&table.schema, name)
                })
            }
            name => name.to_owned(),
        };
        if !index.unique {
            self.edit(|editor| editor.alter(table.id, |table| table.plain_indexes.push(name)));
            return Ok(());
        }
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

    /// Whether a schema has a table or an index of this name.
    pub(super) fn is_named(&self, schema: &str, name: &str) -> bool {
        let tables = self.catalog.tables();
        let mut here = tables.iter().filter(|table| table.schema == schema);
        here.any(|table| table.name == name || table.has_index(name))
    }
}

/// What a column of an index is called that is given no name.
fn name_in(element: &pg::IndexElem) -> String {
    let call = element.expr.as_ref().and_then(|expr| match &expr.node {
        Some(NodeEnum::FuncCall(call)) => call.funcname.iter().filter_map(string_of).next_back(),
        _ => None,
    });
    match (element.expr.is_some(), call) {
        (false, _) => element.name.clone(),
        (true, Some(function)) => function.to_owned(),
        (true, None) => "expr".to_owned(),
    }
}

/// Columns that are called the same are told apart by numbers.
pub(super) fn apart(names: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let next = free_name(&name, |name| all.iter().any(|other| other == name));
        all.push(next);
    }
    all
}
