//! Names: columns, types, tables.

use super::{Analyzer, Collated, Item, ItemColumn, Result, Typed, string_of, strings_of, unmodelled};
use crate::sql::mention::{mentioned, schema_of};
use crate::sql::plan::{Expr, Touches};
use crate::state::catalog::{Table, TableKind};
use crate::value::{self, Collation, TypeOid, oid};
use pg_query::protobuf as pg;
use pg_query::{Node, NodeEnum};
use std::sync::Arc;

impl Analyzer<'_> {
    pub(super) fn column_ref(&mut self, column: &pg::ColumnRef) -> Result<Typed> {
        if column
            .fields
            .iter()
            .any(|field| matches!(field.node, Some(NodeEnum::AStar(_))))
        {
            return unmodelled("whole_row");
        }
        let names = strings_of(&column.fields);
        let found = match names.as_slice() {
            [name] => self.find_column(None, None, name),
            [table, name] => self.find_column(None, Some(table), name),
            [schema, table, name] => self.find_column(Some(schema), Some(table), name),
            _ => return unmodelled("column_name"),
        };
        match found? {
            Some(typed) => Ok(typed),
            None => match self.variable(&names) {
                Some(number) => self.parameter(number as i32 + 1),
                None if names.len() == 1 && self.is_relation(names[0]) => unmodelled("whole_row"),
                None => unmodelled("unknown_column"),
            },
        }
    }

    fn variable(&self, names: &[&str]) -> Option<usize> {
        let variables = self.variables.as_ref()?;
        match names {
            [name] => variables.find(name),
            [scope, name] if variables.routine == *scope => variables.find(name),
            [record, field] => variables.find(&format!("{record}.{field}")),
            _ => None,
        }
    }

    fn is_relation(&self, name: &str) -> bool {
        self.levels
            .iter()
            .any(|level| level.items.iter().any(|item| item.alias.as_deref() == Some(name)))
    }

    /// Searches the levels from the inside out.
    fn find_column(
        &mut self,
        schema: Option<&str>,
        table: Option<&str>,
        name: &str,
    ) -> Result<Option<Typed>> {
        for up in 0..self.levels.len() {
            let place = self.levels.len() - 1 - up;
            let mut found: Option<Typed> = None;
            for item in &self.levels[place].items {
                let matches = match table {
                    Some(table) => {
                        item.alias.as_deref() == Some(table)
                            && schema.is_none_or(|schema| item.schema.as_deref() == Some(schema))
                    }
                    None => !item.qualified_only,
                };
                if !matches {
                    continue;
                }
                for column in &item.columns {
                    if column.name == name && (table.is_some() || !column.hidden) {
                        if found.is_some() {
                            return unmodelled("ambiguous_column");
                        }
                        found = Some(column.typed.clone());
                    }
                }
            }
            if let Some(mut typed) = found {
                if up > 0 {
                    typed.expr = shifted(typed.expr, up as u16);
                    for level in &mut self.levels[place + 1..] {
                        level.correlated = true;
                    }
                }
                return Ok(Some(typed));
            }
        }
        Ok(None)
    }

    /// All columns that `*` or `alias.*` stands for, with the relation each comes from.
    pub(super) fn star(&self, fields: &[Node]) -> Result<Vec<ItemColumn>> {
        let names = strings_of(fields);
        let Some(level) = self.levels.last() else {
            return unmodelled("star");
        };
        let mut columns = Vec::new();
        let mut any = false;
        for item in &level.items {
            let wanted = match names.as_slice() {
                [] => !item.qualified_only,
                [table] => item.alias.as_deref() == Some(*table),
                [schema, table] => {
                    item.alias.as_deref() == Some(*table) && item.schema.as_deref() == Some(*schema)
                }
                _ => false,
            };
            if wanted {
                any = true;
                columns.extend(
                    item.columns
                        .iter()
                        .filter(|column| !names.is_empty() || !column.hidden)
                        .cloned(),
                );
            }
        }
        if any { Ok(columns) } else { unmodelled("star") }
    }

    /// The names that a base table gives to a level.
    pub(super) fn table_item(&self, table: &Table, alias: &str, relation: usize, names: &[String]) -> Item {
        let mut columns = Vec::new();
        for (place, (position, column)) in table.live_columns().enumerate() {
            let collation = match column.collation_is_c {
                is_c if is_c == self.catalog.collation_is_c() => Collated::Default,
                true => Collated::Implicit(Collation::Bytes),
                false => Collated::Implicit(Collation::Deterministic),
            };
            columns.push(ItemColumn {
                name: names.get(place).unwrap_or(&column.name).clone(),
                typed: Typed {
                    expr: Expr::column(relation, position),
                    oid: column.type_oid,
                    type_modifier: column.type_modifier,
                    collation,
                },
                hidden: false,
            });
        }
        Item {
            alias: Some(alias.to_owned()),
            schema: Some(table.schema.clone()),
            columns,
            qualified_only: false,
        }
    }

    pub(super) fn find_table(&self, range: &pg::RangeVar) -> Option<Arc<Table>> {
        let schema = schema_of(range);
        self.catalog
            .find(schema, &range.relname, &self.settings.search_path)
            .cloned()
    }

    /// The tables that may be meant.
    pub(super) fn candidates(&self, range: &pg::RangeVar) -> Vec<Arc<Table>> {
        let schema = schema_of(range);
        let path = &self.settings.search_path;
        self.catalog.candidates(schema, &range.relname, path)
    }

    /// Type and modifier that a type name means.
    pub(super) fn type_name(&mut self, name: &pg::TypeName) -> Result<(TypeOid, i32)> {
        if name.setof || name.pct_type {
            return unmodelled("type_name");
        }
        let names = strings_of(&name.names);
        let (schema, last) = match names.as_slice() {
            [last] => (None, *last),
            [schema, last] => (Some(*schema), *last),
            _ => return unmodelled("type_name"),
        };
        let user = self
            .catalog
            .find_type(schema, last, &self.settings.search_path)
            .map(|found| found.oid);
        let built_in = match schema {
            None | Some("pg_catalog") => value::type_by_name(last),
            _ => None,
        };
        let Some(base) = built_in.or(user) else {
            return unmodelled("unknown_type");
        };
        let type_modifier = self.type_modifier(base, &name.typmods)?;
        if name.array_bounds.is_empty() {
            return Ok((base, type_modifier));
        }
        match self.types().array_of(base) {
            Some(array) => Ok((array, type_modifier)),
            None => unmodelled("array_type"),
        }
    }

    fn type_modifier(&mut self, base: TypeOid, nodes: &[Node]) -> Result<i32> {
        let mut numbers = Vec::new();
        for node in nodes {
            match &node.node {
                Some(NodeEnum::AConst(constant)) => match &constant.val {
                    Some(pg::a_const::Val::Ival(integer)) => {
                        self.pin(constant.location);
                        numbers.push(integer.ival);
                    }
                    _ => return unmodelled("type_modifier"),
                },
                _ => return unmodelled("type_modifier"),
            }
        }
        match (base, numbers.as_slice()) {
            (_, []) => Ok(-1),
            (oid::VARCHAR | oid::BPCHAR, [length]) => Ok(length + 4),
            (oid::NUMERIC, [precision]) => Ok((precision << 16) + 4),
            (oid::NUMERIC, [precision, scale]) => Ok(((precision << 16) | (scale & 0x7ff)) + 4),
            (oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::TIME | oid::TIMETZ, [precision]) => Ok(*precision),
            // INTERVAL with all fields and no precision is spelled as a mask.
            (oid::INTERVAL, [0x7fff]) => Ok(-1),
            _ => unmodelled("type_modifier"),
        }
    }

    /// Everything that an unmodelled piece of a statement may touch, from the raw tree.
    pub(super) fn raw_touches(&mut self, node: &NodeEnum, writes: bool) {
        let said = mentioned(node);
        for (schema, name) in said.tables {
            let path = &self.settings.search_path;
            let tables = self.catalog.candidates(schema.as_deref(), &name, path);
            if tables.is_empty() {
                // A CTE's name, or a table that nobody knows.
                self.touches.reads_everything |= !self.catalog.is_loaded();
            }
            for table in &tables {
                self.touch_read(table);
                if writes || said.writes {
                    self.touch_write(table);
                }
            }
        }
        // What is only defined is not called.
        let defines = matches!(
            node,
            NodeEnum::CreateTrigStmt(_)
                | NodeEnum::CreateFunctionStmt(_)
                | NodeEnum::ViewStmt(_)
                | NodeEnum::RuleStmt(_)
                | NodeEnum::CreatePolicyStmt(_)
        );
        for call in said.calls.into_iter().filter(|_| !defines) {
            let (schema, name) = call.name;
            self.raw_call(&name, schema.as_deref());
        }
    }

    /// Whether every table that a statement names is known.
    pub(super) fn knows_tables(&self, node: &NodeEnum) -> bool {
        let path = &self.settings.search_path;
        let mut tables = mentioned(node).tables.into_iter();
        tables.all(|(schema, name)| self.catalog.find(schema.as_deref(), &name, path).is_some())
    }

    pub(super) fn touch_read(&mut self, table: &Arc<Table>) {
        self.touches.read.push(table.storage);
        for child in table.children.clone() {
            if let Some(child) = self.catalog.table(child).cloned() {
                if child.storage != table.storage {
                    self.touch_read(&child);
                }
            }
        }
    }

    /// A view without triggers and rules passes a write on to a table that it is made of.
    fn touch_write_of_view(&mut self, view: &Arc<Table>) {
        let parsed = view
            .definition
            .as_ref()
            .and_then(|text| pg_query::parse(text, pg_query::ParserOptions::default()).ok());
        let Some(parsed) = parsed else {
            self.touches.writes_everything = true;
            return;
        };
        for name in parsed.tables() {
            let (schema, name) = match name.rsplit_once('.') {
                Some((schema, name)) => (Some(schema), name),
                None => (None, name.as_str()),
            };
            match self
                .catalog
                .find(schema, name, &self.settings.search_path)
                .cloned()
            {
                Some(table) => self.touch_write(&table),
                None => self.touches.writes_everything = true,
            }
        }
    }

    /// A write to a table, and what it may cascade to.
    pub(super) fn touch_write(&mut self, table: &Arc<Table>) {
        let storage = table.storage;
        let Touches {
            written, unfollowed, ..
        } = &mut self.touches;
        let is_new = !written.contains(&storage);
        let is_unfollowed = self.is_unfollowed && !unfollowed.contains(&storage);
        if is_unfollowed {
            unfollowed.push(storage);
        }
        if is_new {
            written.push(storage);
        }
        if !is_new && !is_unfollowed {
            return;
        }
        if table.writes_reach_anywhere() {
            self.touches.writes_everything = true;
        } else if table.kind == TableKind::View {
            self.touch_write_of_view(table);
        }
        self.touch_triggers(&table.triggers);
        for source in table.referenced_by.clone() {
            if let Some(source) = self.catalog.table(source).cloned() {
                let cascades = source.foreign_keys.iter().any(|key| {
                    use crate::state::catalog::Action::{Cascade, SetDefault, SetNull};
                    key.target == table.id
                        && (matches!(key.on_delete, Cascade | SetNull | SetDefault)
                            || matches!(key.on_update, Cascade | SetNull | SetDefault))
                });
                if cascades {
                    self.touch_write(&source);
                }
            }
        }
        for child in table.children.clone() {
            if let Some(child) = self.catalog.table(child).cloned() {
                if child.storage != storage {
                    self.touch_write(&child);
                }
            }
        }
    }
}

/// The same expression, seen from `by` levels further in.
pub(super) fn shifted(expr: Expr, by: u16) -> Expr {
    match expr {
        Expr::Column { up, relation, column } => Expr::Column {
            up: up + by,
            relation,
            column,
        },
        Expr::Grouped { up, position } => Expr::Grouped {
            up: up + by,
            position,
        },
        Expr::Coalesce(arguments) => Expr::Coalesce(arguments.into_iter().map(|a| shifted(a, by)).collect()),
        Expr::Cast {
            argument,
            from,
            to,
            type_modifier,
            kind,
        } => Expr::Cast {
            argument: Box::new(shifted(*argument, by)),
            from,
            to,
            type_modifier,
            kind,
        },
        other => other,
    }
}

/// Column aliases of `FROM x AS a (b, c)`.
pub(super) fn alias_names(alias: Option<&pg::Alias>) -> Vec<String> {
    alias.map_or_else(Vec::new, |alias| {
        alias
            .colnames
            .iter()
            .filter_map(string_of)
            .map(str::to_owned)
            .collect()
    })
}
