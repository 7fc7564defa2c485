//! DDL: the catalog that a statement leaves behind.
//!
//! Always true: what is not followed leaves its tables unknown; the server may refuse any DDL for reasons that are
//! not modelled, so no error is ever held against it.

mod table;
mod constraint;
mod alter;
mod drop;
mod index;
mod view;
mod function;

use super::Effect;
use super::expect::{Expect, Tag};
use super::run::{Fault, Outcome, Run};
use crate::sql::plan::Ddl;
use crate::sql::{SessionSettings, schema_of};
use crate::state::catalog::{Editor, Sequence, TEMPORARY, Table, TableKind, Trigger, Type, TypeKind};
use crate::state::{Catalog, TableId};
use crate::value::oid;
use pg_query::protobuf::{self as pg};
use pg_query::{Node, NodeEnum};
use std::sync::Arc;

pub(super) fn apply(run: &Run<'_>, ddl: &Ddl) -> Outcome<Expect> {
    let catalog = run.views.latest.catalog().clone();
    let mut settings = SessionSettings::default();
    settings.search_path = ddl.search_path.clone();
    let change = DdlRun {
        run,
        catalog,
        settings: &settings,
    };
    let mut expect = Expect::success(run.context.clone());
    expect.any_error = true;
    match change.apply(&ddl.statement) {
        Ok(tag) => expect.tag = tag,
        Err(Fault::Unsure(reason)) => {
            change.lose_track(&reason);
            return Ok(Expect::anything(&reason, run.context.clone()));
        }
        Err(fault) => return Err(fault),
    }
    Ok(expect)
}

struct DdlRun<'r, 'a> {
    run: &'r Run<'a>,
    catalog: Catalog,
    settings: &'r SessionSettings,
}

impl DdlRun<'_, '_> {
    fn apply(&self, statement: &NodeEnum) -> Outcome<Option<Tag>> {
        match statement {
            NodeEnum::CreateStmt(create) => self.create_table(create)?,
            NodeEnum::CreateTableAsStmt(create) => return self.create_table_as(create),
            NodeEnum::DropStmt(drop) => self.drop(drop)?,
            NodeEnum::AlterTableStmt(alter) => self.alter_table(alter)?,
            NodeEnum::IndexStmt(index) => self.create_index(index)?,
            NodeEnum::ViewStmt(view) => self.create_view(view)?,
            NodeEnum::CreateSeqStmt(create) => {
                let Some(range) = &create.sequence else {
                    return Fault::unsure("create_sequence");
                };
                let schema = self.schema_for(range);
                if self.exists(&schema, &range.relname) {
                    return Ok(None);
                }
                self.edit(|editor| {
                    let id = TableId(editor.new_id(&schema, &range.relname));
                    let mut made = Table::new(id, &schema, &range.relname, TableKind::Sequence);
                    made.sequence = Sequence::with_options(oid::INT8, &create.options);
                    editor.put(made);
                });
            }
            NodeEnum::AlterSeqStmt(_) | NodeEnum::CreateExtensionStmt(_) => {}
            NodeEnum::CreateEnumStmt(create) => {
                let (schema, name) = self.qualified(&create.type_name);
                let labels: Vec<Arc<str>> = create.vals.iter().filter_map(string_of).map(Arc::from).collect();
                self.edit(|editor| {
                    let oid = editor.new_id(&schema, &name);
                    let array_oid = editor.new_id(&schema, &format!("_{name}"));
                    let array_name = format!("_{name}");
                    editor.add_type(Type {
                        oid,
                        schema: schema.clone(),
                        name,
                        kind: TypeKind::Enum(labels.into()),
                        array_oid,
                    });
                    editor.add_type(Type {
                        oid: array_oid,
                        schema,
                        name: array_name,
                        kind: TypeKind::Array { element: oid },
                        array_oid: 0,
                    });
                });
            }
            NodeEnum::AlterEnumStmt(alter) => {
                // Where the new label stands among the others is not followed: values of the type have no order.
                let (_, name) = self.qualified(&alter.type_name);
                let path = &self.settings.search_path;
                let Some(old) = self.catalog.find_type(None, &name, path).cloned() else {
                    return Fault::unsure("alter_type");
                };
                self.edit(|editor| {
                    editor.drop_type(old.oid);
                    let kind = TypeKind::Other;
                    editor.add_type(Type {
                        kind,
                        ..(*old).clone()
                    });
                });
            }
            NodeEnum::CreateSchemaStmt(create) => {
                if !create.schema_elts.is_empty() {
                    return Fault::unsure("create_schema");
                }
                self.edit(|editor| editor.add_schema(&create.schemaname));
            }
            NodeEnum::CreateFunctionStmt(create) => self.create_function(create)?,
            NodeEnum::RenameStmt(rename) => self.rename(rename)?,
            NodeEnum::CreateTrigStmt(trigger) => self.create_trigger(trigger),
            NodeEnum::RuleStmt(rule) => self.mark(rule.relation.as_ref(), "rule", true),
            NodeEnum::CreatePolicyStmt(policy) => self.mark(policy.table.as_ref(), "row_security", true),
            _ => return Fault::unsure("ddl"),
        }
        Ok(None)
    }

    /// Something was done that is not followed: what it names is not what it was.
    fn lose_track(&self, reason: &str) {
        let touched = &self.run.planned.touches.written;
        let is_part = |table: &&Arc<Table>| touched.contains(&table.id) || touched.contains(&table.storage);
        let tables: Vec<&Arc<Table>> = self.catalog.tables().into_iter().filter(is_part).collect();
        // Whoever writes one of them may write another.
        let mut triggers: Vec<Trigger> = Vec::new();
        for trigger in tables.iter().flat_map(|table| &table.triggers) {
            if !triggers.contains(trigger) {
                triggers.push(trigger.clone());
            }
        }
        let wild = tables.iter().find(|table| table.writes_reach_anywhere());
        let wild = wild.and_then(|table| table.unmodelled_write.clone());
        let reason_to_write = wild.as_deref().unwrap_or(reason);
        self.run.effects.borrow_mut().clear();
        if !tables.is_empty() {
            self.edit(|editor| {
                for table in &tables {
                    editor.alter(table.id, |table| {
                        table.unmodelled_read = Some(reason.to_owned());
                        table.unmodelled_write = Some(reason_to_write.to_owned());
                        table.triggers.clone_from(&triggers);
                    });
                }
            });
        }
        let mut effects = self.run.effects.borrow_mut();
        effects.extend(touched.iter().map(|table| Effect::Havoc {
            table: *table,
            reason: reason.to_owned(),
        }));
        drop(effects);
        self.run.note(reason);
        self.run.any_error.set(true);
    }

    fn edit(&self, change: impl FnOnce(&mut Editor)) {
        self.publish(self.catalog.with(change));
    }

    fn publish(&self, catalog: Catalog) {
        self.run
            .effects
            .borrow_mut()
            .push(Effect::Catalog(Arc::new(catalog)));
    }

    fn schema_for(&self, range: &pg::RangeVar) -> String {
        if range.relpersistence == "t" || range.schemaname == TEMPORARY {
            return self.run.context.temporary.to_string();
        }
        if !range.schemaname.is_empty() {
            return range.schemaname.clone();
        }
        self.default_schema()
    }

    fn default_schema(&self) -> String {
        let known = self
            .settings
            .search_path
            .iter()
            .find(|schema| self.catalog.has_schema(schema));
        known
            .or(self.settings.search_path.last())
            .cloned()
            .unwrap_or_else(|| "public".to_owned())
    }

    fn qualified(&self, nodes: &[Node]) -> (String, String) {
        let (schema, name) = said(nodes).unwrap_or_default();
        let schema = schema.map_or_else(|| self.default_schema(), str::to_owned);
        (schema, name.to_owned())
    }

    fn exists(&self, schema: &str, name: &str) -> bool {
        self.catalog.find(Some(schema), name, &[]).is_some()
    }

    fn find(&self, range: Option<&pg::RangeVar>) -> Option<Arc<Table>> {
        let range = range?;
        let schema = schema_of(range);
        self.catalog
            .find(schema, &range.relname, &self.settings.search_path)
            .cloned()
    }

    fn create_trigger(&self, create: &pg::CreateTrigStmt) {
        let Some(table) = self.find(create.relation.as_ref()) else {
            return;
        };
        let (schema, function) = said(&create.funcname).unwrap_or_default();
        let path = &self.settings.search_path;
        let found = self.catalog.find_functions(schema, function, path);
        // Where it is not known which one is meant, it may do anything.
        let trigger = match found.as_slice() {
            [found] => Trigger {
                schema: found.schema.clone(),
                function: found.name.clone(),
            },
            _ => Trigger {
                schema: String::new(),
                function: String::new(),
            },
        };
        self.edit(|editor| {
            let mut ids = vec![table.id, table.storage];
            ids.extend(
                self.catalog
                    .tables()
                    .iter()
                    .filter(|t| t.storage == table.id)
                    .map(|t| t.id),
            );
            ids.sort();
            ids.dedup();
            for id in ids {
                editor.alter(id, |table| {
                    table.unmodelled_write.get_or_insert("trigger".to_owned());
                    if !table.triggers.contains(&trigger) {
                        table.triggers.push(trigger.clone());
                    }
                });
            }
        });
    }

    fn mark(&self, range: Option<&pg::RangeVar>, reason: &str, reads: bool) {
        if let Some(table) = self.find(range) {
            self.edit(|editor| {
                editor.alter(table.storage, |table| {
                    table.unmodelled_write = Some(reason.to_owned())
                });
                editor.alter(table.id, |table| {
                    table.unmodelled_write = Some(reason.to_owned());
                    if reads {
                        table.unmodelled_read = Some(reason.to_owned());
                    }
                });
            });
        }
    }

    fn expression_text(&self, node: &Node) -> Outcome<Arc<str>> {
        match expression_text(node) {
            Some(text) => Ok(text),
            None => Fault::unsure("ddl_expression"),
        }
    }
}

/// The schema, if one is said, and the name.
fn said(nodes: &[Node]) -> Option<(Option<&str>, &str)> {
    let mut names = nodes.iter().rev().filter_map(string_of);
    let name = names.next()?;
    Some((names.next(), name))
}

fn string_of(node: &Node) -> Option<&str> {
    match node.node.as_ref()? {
        NodeEnum::String(string) => Some(&string.sval),
        _ => None,
    }
}

/// An expression as SQL text.
fn expression_text(node: &Node) -> Option<Arc<str>> {
    let target = pg::ResTarget {
        val: Some(Box::new(node.clone())),
        ..pg::ResTarget::default()
    };
    let select = pg::SelectStmt {
        target_list: vec![Node {
            node: Some(NodeEnum::ResTarget(Box::new(target))),
        }],
        limit_option: pg::LimitOption::Default as i32,
        op: pg::SetOperation::SetopNone as i32,
        ..pg::SelectStmt::default()
    };
    let text = statement_text(NodeEnum::SelectStmt(Box::new(select)))?;
    text.strip_prefix("SELECT ").map(Arc::from)
}

fn statement_text(node: NodeEnum) -> Option<String> {
    node.deparse(pg_query::DeparseOptions::default()).ok()
}
