//! DROP, and what goes with it.

use super::{DdlRun, said, string_of};
use crate::interpret::run::{Fault, Outcome};
use crate::sql;
use crate::state::TableId;
use crate::state::catalog::{Indexed, Table, TableKind};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, ObjectType};
use std::sync::Arc;

impl DdlRun<'_, '_> {
    pub(super) fn drop(&self, drop: &pg::DropStmt) -> Outcome<()> {
        let kind = ObjectType::try_from(drop.remove_type).unwrap_or(ObjectType::Undefined);
        let cascade = drop.behavior == pg::DropBehavior::DropCascade as i32;
        let is_followed = matches!(
            kind,
            ObjectType::ObjectTable
                | ObjectType::ObjectView
                | ObjectType::ObjectMatview
                | ObjectType::ObjectSequence
                | ObjectType::ObjectTrigger
                | ObjectType::ObjectRule
                | ObjectType::ObjectPolicy
        ) || (kind == ObjectType::ObjectSchema && self.catalog.is_plain());
        if cascade && !is_followed {
            // Columns of a type that is gone, defaults that called a function, keys that pointed to an index.
            self.run.note("drop_cascade");
        }
        match kind {
            ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectMatview
            | ObjectType::ObjectSequence => {
                let mut tables = Vec::new();
                for object in &drop.objects {
                    let Some(NodeEnum::List(list)) = &object.node else {
                        continue;
                    };
                    let Some((schema, name)) = said(&list.items) else {
                        continue;
                    };
                    if let Some(table) = self.catalog.find(schema, name, &self.settings.search_path) {
                        tables.push(table.clone());
                    }
                }
                if cascade {
                    tables.extend(self.views_over(&tables));
                    if tables.iter().any(|table| table.kind == TableKind::Sequence) {
                        // Defaults that used the sequence are gone, too.
                        self.run.note("drop_cascade");
                    }
                }
                self.edit(|editor| {
                    let mut place = 0;
                    while place < tables.len() {
                        let table = tables[place].clone();
                        for child in &table.children {
                            if let Some(child) = editor.table(*child).cloned() {
                                tables.push(child);
                            }
                        }
                        editor.drop_table(table.id);
                        place += 1;
                    }
                });
            }
            ObjectType::ObjectIndex => {
                let mut catalog = self.catalog.clone();
                for object in &drop.objects {
                    let Some(NodeEnum::List(list)) = &object.node else {
                        continue;
                    };
                    let Some((schema, name)) = said(&list.items) else {
                        continue;
                    };
                    match catalog.find_index(schema, name, &self.settings.search_path) {
                        Indexed::Nowhere if drop.missing_ok => {}
                        Indexed::On(owner) => {
                            let drop = |table: &mut Table| table.drop_index(name);
                            catalog = catalog.with(|editor| editor.alter(owner, drop));
                        }
                        // Perhaps it has another name than was thought.
                        Indexed::Nowhere | Indexed::Unsure => return Fault::unsure("drop_index"),
                    }
                }
                self.publish(catalog);
            }
            ObjectType::ObjectType => {
                let mut catalog = self.catalog.clone();
                for object in &drop.objects {
                    let Some(NodeEnum::TypeName(name)) = &object.node else {
                        continue;
                    };
                    let Some((schema, name)) = said(&name.names) else {
                        continue;
                    };
                    let found = catalog.find_type(schema, name, &self.settings.search_path);
                    if let Some(found) = found.map(|found| found.oid) {
                        catalog = catalog.with(|editor| editor.drop_type(found));
                    }
                }
                self.publish(catalog);
            }
            ObjectType::ObjectFunction | ObjectType::ObjectProcedure | ObjectType::ObjectRoutine => {
                let mut catalog = self.catalog.clone();
                for object in &drop.objects {
                    let Some(NodeEnum::ObjectWithArgs(object)) = &object.node else {
                        continue;
                    };
                    let Some((schema, name)) = said(&object.objname) else {
                        continue;
                    };
                    let types: Option<Vec<u32>> = object
                        .objargs
                        .iter()
                        .map(|node| match &node.node {
                            Some(NodeEnum::TypeName(name)) => {
                                sql::resolve_type(&self.catalog, self.settings, name).map(|(oid, _)| oid)
                            }
                            _ => None,
                        })
                        .collect();
                    let types = types.filter(|_| !object.args_unspecified);
                    let path = &self.settings.search_path;
                    catalog =
                        catalog.with(|editor| editor.drop_functions(schema, name, path, types.as_deref()));
                }
                self.publish(catalog);
            }
            ObjectType::ObjectSchema => {
                let names: Vec<&str> = drop.objects.iter().filter_map(string_of).collect();
                let gone: Vec<TableId> = self
                    .catalog
                    .tables()
                    .into_iter()
                    .filter(|table| names.contains(&table.schema.as_str()))
                    .map(|table| table.id)
                    .collect();
                self.edit(|editor| {
                    for table in gone {
                        editor.drop_table(table);
                    }
                });
            }
            ObjectType::ObjectTrigger
            | ObjectType::ObjectRule
            | ObjectType::ObjectPolicy
            | ObjectType::ObjectExtension => {}
            _ => return Fault::unsure("drop"),
        }
        Ok(())
    }

    /// The views that use these tables, directly or through other views. Where a name is enough to doubt it, what
    /// depends on it is not known to be there any more.
    pub(super) fn views_over(&self, tables: &[Arc<Table>]) -> Vec<Arc<Table>> {
        let mut gone: Vec<Arc<Table>> = tables.to_vec();
        let mut place = 0;
        while place < gone.len() {
            let name = gone[place].name.clone();
            for view in self.catalog.tables() {
                let uses = |definition: &Arc<str>| match pg_query::parse(
                    definition,
                    pg_query::ParserOptions::default(),
                ) {
                    Ok(parsed) => parsed.tables().iter().any(|table| {
                        let (_, last) = table.rsplit_once('.').unwrap_or(("", table));
                        last.trim_matches('"') == name
                    }),
                    Err(_) => true,
                };
                let known = gone.iter().any(|other| other.id == view.id);
                if !known && view.definition.as_ref().is_some_and(uses) {
                    gone.push(view.clone());
                }
            }
            place += 1;
        }
        gone.split_off(tables.len())
    }
}
