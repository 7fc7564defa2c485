//! CREATE TABLE, also AS a query: columns, types, defaults.

use super::DdlRun;
use super::constraint::without_twins;
use super::statement_text;
use super::string_of;
use crate::interpret::Effect;
use crate::interpret::expect::Tag;
use crate::interpret::run::{Fault, Outcome};
use crate::sql::{self};
use crate::state::TableId;
use crate::state::catalog::{Column, Editor, Identity, Partitioning, Sequence, TEMPORARY, Table, TableKind};
use crate::value::{Collation, oid};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, ConstrType, ObjectType};
use std::sync::Arc;

/// A table that is being put together.
pub(super) struct Draft {
    pub(super) table: Table,
    pub(super) constraints: Vec<(Option<String>, pg::Constraint)>,
    /// Columns with sequences of their own.
    pub(super) sequences: Vec<(usize, Sequence)>,
}

impl Draft {
    fn new(schema: &str, name: &str) -> Draft {
        Draft {
            table: Table::new(TableId(0), schema, name, TableKind::Table),
            constraints: Vec::new(),
            sequences: Vec::new(),
        }
    }
}

/// The sequence of a serial or identity column. Where the server would have to give it another name, it is not
/// followed.
fn add_sequence(editor: &mut Editor, table: &mut Table, column: usize, sequence: Sequence) {
    const NAME_MAX: usize = 63;
    let name = format!("{}_{}_seq", table.name, table.columns[column].name);
    if name.len() > NAME_MAX || editor.finds(&table.schema, &name) {
        return;
    }
    let id = TableId(editor.new_id(&table.schema, &name));
    let mut made = Table::new(id, &table.schema, &name, TableKind::Sequence);
    made.temporary = table.temporary;
    made.sequence = Some(Sequence {
        owner: Some(table.id),
        ..sequence
    });
    editor.put(made);
    table.columns[column].sequence = Some(id);
}

impl DdlRun<'_, '_> {
    pub(super) fn create_table(&self, create: &pg::CreateStmt) -> Outcome<()> {
        let Some(range) = &create.relation else {
            return Fault::unsure("create_table");
        };
        let schema = self.schema_for(range);
        if self.exists(&schema, &range.relname) {
            return if create.if_not_exists {
                Ok(())
            } else {
                Fault::unsure("table_exists")
            };
        }
        if create.if_not_exists && !self.catalog.is_loaded() {
            // Perhaps it is there, with other columns, and rows.
            return Fault::unsure("create_if_not_exists");
        }
        if create.of_typename.is_some() {
            return Fault::unsure("create_table_of");
        }
        let mut draft = Draft::new(&schema, &range.relname);
        draft.table.unlogged = range.relpersistence == "u";
        let parent = match create.inh_relations.first() {
            None => None,
            Some(node) => match &node.node {
                Some(NodeEnum::RangeVar(parent)) if create.partbound.is_some() => {
                    match self.find(Some(parent)) {
                        Some(parent) => Some(parent),
                        None => return Fault::unsure("unknown_table"),
                    }
                }
                _ => return Fault::unsure("inheritance"),
            },
        };
        if let Some(parent) = &parent {
            draft.table.columns = parent.columns.clone();
            let identities = draft.table.columns.iter_mut();
            identities
                .filter(|column| column.identity != Identity::None)
                .for_each(|column| column.sequence = None);
        }
        for element in &create.table_elts {
            match &element.node {
                Some(NodeEnum::ColumnDef(column)) => self.add_column(&mut draft, column)?,
                Some(NodeEnum::Constraint(constraint)) => {
                    draft.constraints.push((None, (**constraint).clone()))
                }
                _ => return Fault::unsure("create_table_like"),
            }
        }
        for node in &create.constraints {
            if let Some(NodeEnum::Constraint(constraint)) = &node.node {
                draft.constraints.push((None, (**constraint).clone()));
            }
        }
        if let Some(spec) = &create.partspec {
            draft.table.kind = TableKind::Partitioned;
            let mut columns = Vec::new();
            for node in &spec.part_params {
                if let Some(NodeEnum::PartitionElem(element)) = &node.node {
                    columns.extend(draft.table.column(&element.name));
                }
            }
            let strategy = match pg::PartitionStrategy::try_from(spec.strategy) {
                Ok(pg::PartitionStrategy::List) => 'l',
                Ok(pg::PartitionStrategy::Range) => 'r',
                _ => 'h',
            };
            draft.table.partitioning = Some(Partitioning { strategy, columns });
        }
        let temporary = schema.starts_with(TEMPORARY);
        draft.table.temporary = temporary;
        if temporary && create.oncommit > pg::OnCommitAction::OncommitPreserveRows as i32 {
            draft.table.unmodelled_read = Some("on_commit".to_owned());
        }
        self.finish_table(draft, parent)
    }

    pub(super) fn finish_table(&self, mut draft: Draft, parent: Option<Arc<Table>>) -> Outcome<()> {
        let mut references = Vec::new();
        let mut created = None;
        let mut catalog = self.catalog.with(|editor| {
            let id = TableId(editor.new_id(&draft.table.schema, &draft.table.name));
            draft.table.id = id;
            draft.table.storage = parent.as_ref().map_or(id, |parent| parent.storage);
            created = Some(id);
            for (column, sequence) in std::mem::take(&mut draft.sequences) {
                add_sequence(editor, &mut draft.table, column, sequence);
            }
        });
        let Some(id) = created else {
            return Fault::unsure("create_table");
        };
        let constraints = without_twins(std::mem::take(&mut draft.constraints));
        for (column, constraint) in &constraints {
            self.add_constraint(&mut draft.table, column.as_deref(), constraint, &mut references)?;
        }
        if let Some(parent) = &parent {
            draft.table.parents.push(parent.id);
            draft.table.bound = Some(String::new());
            if !draft.table.keys.is_empty() || !draft.table.checks.is_empty() {
                draft.table.unmodelled_write = Some("partition_constraint".to_owned());
            }
        }
        catalog = catalog.with(|editor| {
            editor.put(draft.table);
            for target in references {
                editor.alter(target, |target| {
                    if !target.referenced_by.contains(&id) {
                        target.referenced_by.push(id);
                    }
                });
            }
            if let Some(parent) = &parent {
                editor.alter(parent.id, |parent| parent.children.push(id));
            }
        });
        self.publish(catalog);
        Ok(())
    }

    pub(super) fn add_column(&self, draft: &mut Draft, definition: &pg::ColumnDef) -> Outcome<()> {
        let Some(type_name) = &definition.type_name else {
            return Fault::unsure("create_table");
        };
        let last = type_name.names.last().and_then(string_of).unwrap_or("");
        let serial = match last {
            "serial" | "serial4" => Some(oid::INT4),
            "bigserial" | "serial8" => Some(oid::INT8),
            "smallserial" | "serial2" => Some(oid::INT2),
            _ => None,
        };
        let (type_oid, type_modifier) = match serial {
            Some(type_oid) => (type_oid, -1),
            None => match sql::resolve_type(&self.catalog, self.settings, type_name) {
                Some(found) => found,
                // A type that is not modelled: its values are only compared as text.
                None => return Fault::unsure("unknown_type"),
            },
        };
        let mut column = Column::new(&definition.colname, type_oid, type_modifier);
        column.collation_is_c = self.catalog.collation_is_c();
        if let Some(clause) = &definition.coll_clause {
            let name = clause.collname.last().and_then(string_of).unwrap_or("");
            let collation = Collation::named(name);
            if collation == Collation::Nondeterministic && name != "default" {
                return Fault::unsure("nondeterministic_collation");
            }
            column.collation_is_c = match name {
                "default" => self.catalog.collation_is_c(),
                _ => collation == Collation::Bytes,
            };
        }
        column.not_null = definition.is_not_null || serial.is_some();
        let place = draft.table.columns.len();
        if let Some(type_oid) = serial {
            let sequence = format!("nextval('{}_{}_seq')", draft.table.name, definition.colname);
            column.default = Some(Arc::from(sequence));
            draft.sequences.push((place, Sequence::of_type(type_oid)));
        }
        if let Some(default) = &definition.raw_default {
            column.default = Some(self.expression_text(default)?);
        }
        for node in &definition.constraints {
            let Some(NodeEnum::Constraint(constraint)) = &node.node else {
                continue;
            };
            match ConstrType::try_from(constraint.contype) {
                Ok(ConstrType::ConstrNotnull) => column.not_null = true,
                Ok(ConstrType::ConstrNull) => {}
                Ok(ConstrType::ConstrDefault) => {
                    let Some(expr) = &constraint.raw_expr else {
                        continue;
                    };
                    column.default = Some(self.expression_text(expr)?);
                }
                Ok(ConstrType::ConstrIdentity) => {
                    column.not_null = true;
                    column.identity = if constraint.generated_when == "a" {
                        Identity::Always
                    } else {
                        Identity::ByDefault
                    };
                    let sequence = Sequence::with_options(type_oid, &constraint.options);
                    draft.sequences.extend(sequence.map(|s| (place, s)));
                }
                Ok(ConstrType::ConstrGenerated) => {
                    let Some(expr) = &constraint.raw_expr else {
                        continue;
                    };
                    column.generated = true;
                    column.default = Some(self.expression_text(expr)?);
                }
                // Said of the constraint before it; INITIALLY DEFERRED says as much.
                Ok(ConstrType::ConstrAttrDeferrable | ConstrType::ConstrAttrDeferred) => {
                    if let Some((_, last)) = draft.constraints.last_mut() {
                        last.deferrable = true;
                    }
                }
                _ => draft
                    .constraints
                    .push((Some(definition.colname.clone()), (**constraint).clone())),
            }
        }
        draft.table.columns.push(column);
        Ok(())
    }

    pub(super) fn create_table_as(&self, create: &pg::CreateTableAsStmt) -> Outcome<Option<Tag>> {
        let Some(range) = create.into.as_ref().and_then(|into| into.rel.as_ref()) else {
            return Fault::unsure("create_table_as");
        };
        let schema = self.schema_for(range);
        if self.exists(&schema, &range.relname) {
            return if create.if_not_exists {
                Ok(None)
            } else {
                Fault::unsure("table_exists")
            };
        }
        if create.if_not_exists && !self.catalog.is_loaded() {
            return Fault::unsure("create_if_not_exists");
        }
        let Some(NodeEnum::SelectStmt(select)) = create.query.as_ref().and_then(|node| node.node.as_ref())
        else {
            return Fault::unsure("create_table_as");
        };
        let Some(text) = statement_text(NodeEnum::SelectStmt(select.clone())) else {
            return Fault::unsure("create_table_as");
        };
        let Some((columns, certain)) = sql::stored_columns_of(&self.catalog, self.settings, &text) else {
            return Fault::unsure("create_table_as");
        };
        let names: Vec<&str> = create
            .into
            .as_ref()
            .map(|into| into.col_names.iter().filter_map(string_of).collect())
            .unwrap_or_default();
        let mut draft = Draft::new(&schema, &range.relname);
        draft.table.temporary = schema.starts_with(TEMPORARY);
        draft.table.unlogged = range.relpersistence == "u";
        for (place, mut column) in columns.into_iter().enumerate() {
            if let Some(name) = names.get(place) {
                column.name = (*name).to_owned();
            }
            draft.table.columns.push(column);
        }
        if !certain {
            draft.table.unmodelled_write = Some("create_table_as".to_owned());
        }
        if create.objtype == ObjectType::ObjectMatview as i32 {
            draft.table.kind = TableKind::MaterializedView;
        }
        self.finish_table(draft, None)?;
        let effects = self.run.effects.borrow();
        let table = effects.iter().rev().find_map(|effect| match effect {
            Effect::Catalog(catalog) => catalog
                .find(Some(&schema), &range.relname, &[])
                .map(|table| table.id),
            _ => None,
        });
        drop(effects);
        if let Some(table) = table {
            // Its rows are those of a query that is not run here.
            self.run.effects.borrow_mut().push(Effect::Havoc {
                table,
                reason: "create_table_as".to_owned(),
            });
            self.run.note("create_table_as");
        }
        Ok(None)
    }
}
