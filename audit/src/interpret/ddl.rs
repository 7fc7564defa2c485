//! DDL: the catalog that a statement leaves behind.
//!
//! Always true: what is not followed leaves its tables unknown; the server may refuse any DDL for reasons that are
//! not modelled, so no error is ever held against it.

use super::Effect;
use super::expect::{Expect, Tag};
use super::run::{Fault, Outcome, Run};
use crate::sql::plan::Ddl;
use crate::sql::{self, SessionSettings};
use crate::state::catalog::{
    Action, Argument, Check, Column, Editor, ForeignKey, Function, Identity, Partitioning, TEMPORARY, Table,
    TableKind, Type, TypeKind, UniqueKey,
};
use crate::state::{Catalog, TableId};
use crate::value::{Collation, Value, oid};
use pg_query::protobuf::{self as pg, AlterTableType, ConstrType, ObjectType};
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
    if let Some(tag) = change.apply(&ddl.statement)? {
        expect.tag = Some(tag);
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
                    editor.put(Table::new(id, &schema, &range.relname, TableKind::Sequence));
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
            NodeEnum::CreateSchemaStmt(create) => {
                if !create.schema_elts.is_empty() {
                    return Fault::unsure("create_schema");
                }
                self.edit(|editor| editor.add_schema(&create.schemaname));
            }
            NodeEnum::CreateFunctionStmt(create) => self.create_function(create)?,
            NodeEnum::RenameStmt(rename) => self.rename(rename)?,
            NodeEnum::CreateTrigStmt(trigger) => self.mark(trigger.relation.as_ref(), "trigger", false),
            NodeEnum::RuleStmt(rule) => self.mark(rule.relation.as_ref(), "rule", true),
            NodeEnum::CreatePolicyStmt(policy) => self.mark(policy.table.as_ref(), "row_security", true),
            _ => return Fault::unsure("ddl"),
        }
        Ok(None)
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
        if range.relpersistence == "t" {
            return TEMPORARY.to_owned();
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
        let names: Vec<&str> = nodes.iter().filter_map(string_of).collect();
        match names.as_slice() {
            [.., schema, name] => ((*schema).to_owned(), (*name).to_owned()),
            [name] => (self.default_schema(), (*name).to_owned()),
            [] => (self.default_schema(), String::new()),
        }
    }

    fn exists(&self, schema: &str, name: &str) -> bool {
        self.catalog.find(Some(schema), name, &[]).is_some()
    }

    fn find(&self, range: Option<&pg::RangeVar>) -> Option<Arc<Table>> {
        let range = range?;
        let schema = (!range.schemaname.is_empty()).then_some(range.schemaname.as_str());
        self.catalog
            .find(schema, &range.relname, &self.settings.search_path)
            .cloned()
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

    fn create_table(&self, create: &pg::CreateStmt) -> Outcome<()> {
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
        if create.of_typename.is_some() {
            return Fault::unsure("create_table_of");
        }
        let mut draft = Draft::new(&schema, &range.relname);
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
        draft.table.temporary = schema == TEMPORARY;
        if schema == TEMPORARY && create.oncommit > pg::OnCommitAction::OncommitPreserveRows as i32 {
            draft.table.unmodelled_read = Some("on_commit".to_owned());
        }
        self.finish_table(draft, parent)
    }

    fn finish_table(&self, mut draft: Draft, parent: Option<Arc<Table>>) -> Outcome<()> {
        let mut references = Vec::new();
        let mut created = None;
        let mut catalog = self.catalog.with(|editor| {
            let id = TableId(editor.new_id(&draft.table.schema, &draft.table.name));
            draft.table.id = id;
            draft.table.storage = parent.as_ref().map_or(id, |parent| parent.storage);
            created = Some(id);
        });
        let Some(id) = created else {
            return Fault::unsure("create_table");
        };
        let constraints = std::mem::take(&mut draft.constraints);
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

    fn add_column(&self, draft: &mut Draft, definition: &pg::ColumnDef) -> Outcome<()> {
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
        if serial.is_some() {
            let sequence = format!("nextval('{}_{}_seq')", draft.table.name, definition.colname);
            column.default = Some(Arc::from(sequence));
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
                }
                Ok(ConstrType::ConstrGenerated) => {
                    let Some(expr) = &constraint.raw_expr else {
                        continue;
                    };
                    column.generated = true;
                    column.default = Some(self.expression_text(expr)?);
                }
                _ => draft
                    .constraints
                    .push((Some(definition.colname.clone()), (**constraint).clone())),
            }
        }
        draft.table.columns.push(column);
        Ok(())
    }

    fn expression_text(&self, node: &Node) -> Outcome<Arc<str>> {
        match expression_text(node) {
            Some(text) => Ok(text),
            None => Fault::unsure("ddl_expression"),
        }
    }

    fn add_constraint(
        &self,
        table: &mut Table,
        column: Option<&str>,
        constraint: &pg::Constraint,
        references: &mut Vec<TableId>,
    ) -> Outcome<()> {
        let named = |fallback: String| {
            if constraint.conname.is_empty() {
                fallback
            } else {
                constraint.conname.clone()
            }
        };
        let positions = |table: &Table, nodes: &[Node]| -> Outcome<Vec<usize>> {
            let names: Vec<&str> = match (nodes, column) {
                ([], Some(column)) => vec![column],
                (nodes, _) => nodes.iter().filter_map(string_of).collect(),
            };
            match names
                .iter()
                .map(|name| table.column(name))
                .collect::<Option<Vec<usize>>>()
            {
                Some(positions) => Ok(positions),
                None => Fault::unsure("unknown_column"),
            }
        };
        match ConstrType::try_from(constraint.contype) {
            Ok(kind @ (ConstrType::ConstrPrimary | ConstrType::ConstrUnique)) => {
                if !constraint.indexname.is_empty() {
                    // ALTER TABLE … ADD CONSTRAINT … USING INDEX: the index is a key already.
                    let primary = kind == ConstrType::ConstrPrimary;
                    for key in table
                        .keys
                        .iter_mut()
                        .filter(|key| key.name == constraint.indexname)
                    {
                        key.primary = primary;
                        key.constraint = true;
                    }
                    return Ok(());
                }
                let columns = positions(table, &constraint.keys)?;
                let primary = kind == ConstrType::ConstrPrimary;
                let joined: Vec<&str> = columns
                    .iter()
                    .map(|column| table.columns[*column].name.as_str())
                    .collect();
                let name = if primary {
                    format!("{}_pkey", table.name)
                } else {
                    format!("{}_{}_key", table.name, joined.join("_"))
                };
                if primary {
                    for column in &columns {
                        table.columns[*column].not_null = true;
                    }
                }
                table.keys.push(UniqueKey {
                    name: named(name),
                    expressions: vec![None; columns.len()],
                    columns,
                    predicate: None,
                    primary,
                    constraint: true,
                    nulls_not_distinct: constraint.nulls_not_distinct,
                    deferrable: constraint.deferrable,
                });
            }
            Ok(ConstrType::ConstrCheck) => {
                let Some(expr) = &constraint.raw_expr else {
                    return Fault::unsure("check_constraint");
                };
                let condition = self.expression_text(expr)?;
                let name = match column {
                    Some(column) => format!("{}_{column}_check", table.name),
                    None => format!("{}_check{}", table.name, table.checks.len()),
                };
                table.checks.push(Check {
                    name: named(name),
                    condition,
                });
            }
            Ok(ConstrType::ConstrForeign) => {
                let columns = positions(table, &constraint.fk_attrs)?;
                let Some(range) = &constraint.pktable else {
                    return Fault::unsure("foreign_key");
                };
                let own = range.relname == table.name
                    && (range.schemaname.is_empty() || range.schemaname == table.schema);
                let target = match self.find(Some(range)) {
                    Some(target) => target,
                    None if own => Arc::new(table.clone()),
                    None => return Fault::unsure("unknown_table"),
                };
                let target_columns = if constraint.pk_attrs.is_empty() {
                    match target.primary_key() {
                        Some(key) => key.columns.clone(),
                        None => return Fault::unsure("foreign_key"),
                    }
                } else {
                    let names = constraint.pk_attrs.iter().filter_map(string_of);
                    match names
                        .map(|name| target.column(name))
                        .collect::<Option<Vec<usize>>>()
                    {
                        Some(columns) => columns,
                        None => return Fault::unsure("unknown_column"),
                    }
                };
                let joined: Vec<&str> = columns
                    .iter()
                    .map(|column| table.columns[*column].name.as_str())
                    .collect();
                let name = named(format!("{}_{}_fkey", table.name, joined.join("_")));
                if own && target.id == table.id {
                    table.referenced_by.push(table.id);
                } else {
                    references.push(target.id);
                }
                table.foreign_keys.push(ForeignKey {
                    name,
                    columns,
                    target: target.id,
                    target_columns,
                    on_update: action(&constraint.fk_upd_action),
                    on_delete: action(&constraint.fk_del_action),
                    deferrable: constraint.deferrable,
                    match_full: constraint.fk_matchtype == "f",
                    validated: !constraint.skip_validation,
                });
            }
            Ok(ConstrType::ConstrNotnull) => {
                for column in positions(table, &constraint.keys)? {
                    table.columns[column].not_null = true;
                }
            }
            Ok(ConstrType::ConstrExclusion) => {
                table.unmodelled_write = Some("exclusion_constraint".to_owned())
            }
            _ => {}
        }
        Ok(())
    }

    fn create_table_as(&self, create: &pg::CreateTableAsStmt) -> Outcome<Option<Tag>> {
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
        let Some(NodeEnum::SelectStmt(select)) = create.query.as_ref().and_then(|node| node.node.as_ref())
        else {
            return Fault::unsure("create_table_as");
        };
        let Some(text) = statement_text(NodeEnum::SelectStmt(select.clone())) else {
            return Fault::unsure("create_table_as");
        };
        let Some(columns) = sql::columns_of(&self.catalog, self.settings, &text) else {
            return Fault::unsure("create_table_as");
        };
        let names: Vec<&str> = create
            .into
            .as_ref()
            .map(|into| into.col_names.iter().filter_map(string_of).collect())
            .unwrap_or_default();
        let mut draft = Draft::new(&schema, &range.relname);
        for (place, column) in columns.iter().enumerate() {
            let name = names.get(place).copied().unwrap_or(&column.name);
            let mut column = Column::new(name, column.type_oid, -1);
            column.collation_is_c = self.catalog.collation_is_c();
            draft.table.columns.push(column);
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

    /// The views that use these tables, directly or through other views. Where a name is enough to doubt it, what
    /// depends on it is not known to be there any more.
    fn views_over(&self, tables: &[Arc<Table>]) -> Vec<Arc<Table>> {
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

    fn drop(&self, drop: &pg::DropStmt) -> Outcome<()> {
        let kind = ObjectType::try_from(drop.remove_type).unwrap_or(ObjectType::Undefined);
        let cascade = drop.behavior == pg::DropBehavior::DropCascade as i32;
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
                    let names: Vec<&str> = list.items.iter().filter_map(string_of).collect();
                    let (schema, name) = match names.as_slice() {
                        [name] => (None, *name),
                        [.., schema, name] => (Some(*schema), *name),
                        [] => continue,
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
                    let Some(name) = list.items.last().and_then(string_of) else {
                        continue;
                    };
                    let owner = catalog
                        .tables()
                        .into_iter()
                        .find(|table| table.keys.iter().any(|key| key.name == name))
                        .map(|table| table.id);
                    if let Some(owner) = owner {
                        catalog = catalog.with(|editor| {
                            editor.alter(owner, |table| table.keys.retain(|key| key.name != name))
                        });
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
                    let Some(last) = name.names.last().and_then(string_of) else {
                        continue;
                    };
                    if let Some(found) = catalog
                        .find_type(None, last, &self.settings.search_path)
                        .map(|found| found.oid)
                    {
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
                    if let Some(name) = object.objname.last().and_then(string_of) {
                        catalog = catalog.with(|editor| editor.drop_functions(name));
                    }
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

    fn alter_table(&self, alter: &pg::AlterTableStmt) -> Outcome<()> {
        if alter.objtype != ObjectType::ObjectTable as i32 {
            return Ok(());
        }
        let Some(table) = self.find(alter.relation.as_ref()) else {
            return if alter.missing_ok {
                Ok(())
            } else {
                Fault::unsure("unknown_table")
            };
        };
        let mut changed = (*table).clone();
        let mut references = Vec::new();
        let mut havoc = false;
        for node in &alter.cmds {
            let Some(NodeEnum::AlterTableCmd(command)) = &node.node else {
                continue;
            };
            let kind = AlterTableType::try_from(command.subtype).unwrap_or(AlterTableType::Undefined);
            let definition = command.def.as_ref().and_then(|node| node.node.as_ref());
            let column = changed.column(&command.name);
            match (kind, definition) {
                (AlterTableType::AtAddColumn, Some(NodeEnum::ColumnDef(definition))) => {
                    if changed.column(&definition.colname).is_some() {
                        if command.missing_ok {
                            continue;
                        }
                        return Fault::unsure("column_exists");
                    }
                    let mut draft = Draft {
                        table: changed.clone(),
                        constraints: Vec::new(),
                    };
                    self.add_column(&mut draft, definition)?;
                    changed = draft.table;
                    let place = changed.columns.len() - 1;
                    let column = &changed.columns[place];
                    let missing = if column.identity != Identity::None || column.generated {
                        Value::Unknown
                    } else {
                        match &column.default {
                            None => Value::Null,
                            Some(default) => self.constant(default, column.type_oid, column.type_modifier),
                        }
                    };
                    changed.columns[place].missing = missing;
                    for (column, constraint) in &draft.constraints {
                        self.add_constraint(&mut changed, column.as_deref(), constraint, &mut references)?;
                    }
                }
                (AlterTableType::AtDropColumn, _) => match column {
                    Some(column) => {
                        changed.columns[column].dropped = true;
                        changed.columns[column].not_null = false;
                        changed.keys.retain(|key| !key.columns.contains(&column));
                        changed.foreign_keys.retain(|key| !key.columns.contains(&column));
                        if !changed.checks.is_empty() {
                            // A check that used the column went with it.
                            changed
                                .checks
                                .retain(|check| !check.condition.contains(&command.name));
                        }
                    }
                    None if command.missing_ok => {}
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtSetNotNull, _) => match column {
                    Some(column) => changed.columns[column].not_null = true,
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtDropNotNull, _) => match column {
                    Some(column) => changed.columns[column].not_null = false,
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtColumnDefault, _) => match column {
                    Some(column) => {
                        changed.columns[column].default = match &command.def {
                            Some(node) => Some(self.expression_text(node)?),
                            None => None,
                        };
                    }
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtAddConstraint, Some(NodeEnum::Constraint(constraint))) => {
                    self.add_constraint(&mut changed, None, constraint, &mut references)?;
                }
                (AlterTableType::AtDropConstraint, _) => {
                    changed.keys.retain(|key| key.name != command.name);
                    changed.checks.retain(|check| check.name != command.name);
                    changed.foreign_keys.retain(|key| key.name != command.name);
                }
                (AlterTableType::AtAlterColumnType, Some(NodeEnum::ColumnDef(definition))) => {
                    let (Some(column), Some(type_name)) = (column, &definition.type_name) else {
                        return Fault::unsure("unknown_column");
                    };
                    let Some((type_oid, type_modifier)) =
                        sql::resolve_type(&self.catalog, self.settings, type_name)
                    else {
                        return Fault::unsure("unknown_type");
                    };
                    changed.columns[column].type_oid = type_oid;
                    changed.columns[column].type_modifier = type_modifier;
                    havoc = true;
                }
                (AlterTableType::AtEnableRowSecurity | AlterTableType::AtForceRowSecurity, _) => {
                    changed.unmodelled_read = Some("row_security".to_owned());
                    changed.unmodelled_write = Some("row_security".to_owned());
                }
                (
                    AlterTableType::AtAttachPartition
                    | AlterTableType::AtDetachPartition
                    | AlterTableType::AtAddInherit
                    | AlterTableType::AtDropInherit,
                    _,
                ) => return Fault::unsure("alter_partition"),
                (
                    AlterTableType::AtChangeOwner
                    | AlterTableType::AtSetStatistics
                    | AlterTableType::AtSetStorage
                    | AlterTableType::AtSetRelOptions
                    | AlterTableType::AtResetRelOptions
                    | AlterTableType::AtClusterOn
                    | AlterTableType::AtDropCluster
                    | AlterTableType::AtSetLogged
                    | AlterTableType::AtSetUnLogged
                    | AlterTableType::AtReplicaIdentity
                    | AlterTableType::AtValidateConstraint
                    | AlterTableType::AtDisableTrig
                    | AlterTableType::AtDisableTrigAll
                    | AlterTableType::AtDisableTrigUser,
                    _,
                ) => {}
                _ => return Fault::unsure("alter_table"),
            }
        }
        let id = changed.id;
        self.edit(|editor| {
            editor.put(changed);
            for target in references {
                editor.alter(target, |target| {
                    if !target.referenced_by.contains(&id) {
                        target.referenced_by.push(id);
                    }
                });
            }
        });
        if havoc {
            self.run.effects.borrow_mut().push(Effect::Havoc {
                table: table.storage,
                reason: "alter_column_type".to_owned(),
            });
        }
        Ok(())
    }

    /// The value of a constant expression, or unknown.
    fn constant(&self, text: &str, type_oid: u32, type_modifier: i32) -> Value {
        sql::constant(
            &self.catalog,
            self.settings,
            text,
            type_oid,
            type_modifier,
            self.run.context,
        )
        .unwrap_or(Value::Unknown)
    }

    fn create_index(&self, index: &pg::IndexStmt) -> Outcome<()> {
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
                    root.unmodelled_write = Some("partition_constraint".to_owned())
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

    fn create_view(&self, view: &pg::ViewStmt) -> Outcome<()> {
        let Some(range) = &view.view else {
            return Fault::unsure("create_view");
        };
        let schema = self.schema_for(range);
        let Some(query) = view.query.as_ref().and_then(|node| node.node.clone()) else {
            return Fault::unsure("create_view");
        };
        let Some(text) = statement_text(query) else {
            return Fault::unsure("create_view");
        };
        let columns = sql::columns_of(&self.catalog, self.settings, &text);
        let names: Vec<&str> = view.aliases.iter().filter_map(string_of).collect();
        let old = self
            .catalog
            .find(Some(&schema), &range.relname, &[])
            .map(|table| table.id);
        self.edit(|editor| {
            if let Some(old) = old {
                editor.drop_table(old);
            }
            let id = TableId(editor.new_id(&schema, &range.relname));
            let mut table = Table::new(id, &schema, &range.relname, TableKind::View);
            match columns {
                Some(columns) => {
                    for (place, column) in columns.iter().enumerate() {
                        let name = names.get(place).copied().unwrap_or(&column.name);
                        table.columns.push(Column::new(name, column.type_oid, -1));
                    }
                    table.definition = Some(Arc::from(text));
                }
                None => table.unmodelled_read = Some("view_definition".to_owned()),
            }
            editor.put(table);
        });
        Ok(())
    }

    fn rename(&self, rename: &pg::RenameStmt) -> Outcome<()> {
        let kind = ObjectType::try_from(rename.rename_type).unwrap_or(ObjectType::Undefined);
        let Some(table) = self.find(rename.relation.as_ref()) else {
            return if rename.missing_ok {
                Ok(())
            } else {
                Fault::unsure("rename")
            };
        };
        match kind {
            ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectSequence
            | ObjectType::ObjectMatview => {
                self.edit(|editor| editor.alter(table.id, |table| table.name.clone_from(&rename.newname)));
            }
            ObjectType::ObjectColumn => {
                let Some(column) = table.column(&rename.subname) else {
                    return Fault::unsure("unknown_column");
                };
                let used = |text: &str| text.contains(&rename.subname);
                if table.checks.iter().any(|check| used(&check.condition))
                    || table.columns.iter().any(|column| column.generated)
                    || table.keys.iter().any(|key| !key.is_plain())
                {
                    return Fault::unsure("rename_column");
                }
                self.edit(|editor| {
                    editor.alter(table.id, |table| {
                        table.columns[column].name.clone_from(&rename.newname)
                    })
                });
            }
            ObjectType::ObjectTabconstraint => {
                self.edit(|editor| {
                    editor.alter(table.id, |table| {
                        for key in table.keys.iter_mut().filter(|key| key.name == rename.subname) {
                            key.name.clone_from(&rename.newname);
                        }
                    });
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn create_function(&self, create: &pg::CreateFunctionStmt) -> Outcome<()> {
        let (schema, name) = self.qualified(&create.funcname);
        let mut function = Function {
            oid: 0,
            schema,
            name,
            language: String::new(),
            procedure: create.is_procedure,
            kind: if create.is_procedure { 'p' } else { 'f' },
            volatility: 'v',
            strict: false,
            returns: oid::VOID,
            returns_set: false,
            arguments: Vec::new(),
            source: Arc::from(""),
            definition: Arc::from(""),
            own_settings: false,
        };
        for node in &create.parameters {
            let Some(NodeEnum::FunctionParameter(parameter)) = &node.node else {
                continue;
            };
            let Some(type_name) = &parameter.arg_type else {
                continue;
            };
            let type_oid = sql::resolve_type(&self.catalog, self.settings, type_name)
                .map_or(0, |(type_oid, _)| type_oid);
            let mode = match pg::FunctionParameterMode::try_from(parameter.mode) {
                Ok(pg::FunctionParameterMode::FuncParamOut) => 'o',
                Ok(pg::FunctionParameterMode::FuncParamInout) => 'b',
                Ok(pg::FunctionParameterMode::FuncParamVariadic) => 'v',
                Ok(pg::FunctionParameterMode::FuncParamTable) => 't',
                _ => 'i',
            };
            function.arguments.push(Argument {
                name: (!parameter.name.is_empty()).then(|| parameter.name.clone()),
                type_oid,
                mode,
                has_default: parameter.defexpr.is_some(),
            });
        }
        if let Some(returns) = &create.return_type {
            function.returns =
                sql::resolve_type(&self.catalog, self.settings, returns).map_or(0, |(type_oid, _)| type_oid);
            function.returns_set = returns.setof;
            if returns.names.last().and_then(string_of) == Some("void") {
                function.returns = oid::VOID;
            }
            if returns.names.last().and_then(string_of) == Some("trigger") {
                function.returns = oid::TRIGGER;
            }
        }
        for node in &create.options {
            let Some(NodeEnum::DefElem(option)) = &node.node else {
                continue;
            };
            let argument = option.arg.as_ref().and_then(|node| node.node.as_ref());
            match (option.defname.as_str(), argument) {
                ("language", Some(NodeEnum::String(language))) => {
                    function.language = language.sval.to_ascii_lowercase()
                }
                ("volatility", Some(NodeEnum::String(volatility))) => {
                    function.volatility = volatility.sval.chars().next().unwrap_or('v').to_ascii_lowercase();
                }
                ("strict", Some(NodeEnum::Boolean(strict))) => function.strict = strict.boolval,
                ("as", Some(NodeEnum::List(list))) => {
                    function.source = Arc::from(list.items.first().and_then(string_of).unwrap_or(""));
                }
                ("security" | "set", _) => function.own_settings = true,
                _ => {}
            }
        }
        if let Some(text) = statement_text(NodeEnum::CreateFunctionStmt(Box::new(create.clone()))) {
            function.definition = Arc::from(text);
        }
        self.edit(|editor| {
            function.oid = editor.new_id(&function.schema, &function.name);
            editor.put_function(function);
        });
        Ok(())
    }
}

/// A table that is being put together.
struct Draft {
    table: Table,
    constraints: Vec<(Option<String>, pg::Constraint)>,
}

impl Draft {
    fn new(schema: &str, name: &str) -> Draft {
        Draft {
            table: Table::new(TableId(0), schema, name, TableKind::Table),
            constraints: Vec::new(),
        }
    }
}

fn action(letter: &str) -> Action {
    match letter {
        "r" => Action::Restrict,
        "c" => Action::Cascade,
        "n" => Action::SetNull,
        "d" => Action::SetDefault,
        _ => Action::NoAction,
    }
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
