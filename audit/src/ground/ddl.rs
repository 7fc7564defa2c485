//! Tables, types, functions and rows as the statements that make them.
//!
//! Always true: statements stand in an order in which an empty database takes them; what cannot be written is a remark.

use crate::report::script::literal;
use crate::state::catalog::{
    Action, Column, ForeignKey, Function, Identity, Table, TableKind, TypeKind, UniqueKey,
};
use crate::state::{Catalog, Row, TableId};
use crate::trace::lex::tokens;
use crate::value::{Context, Types, Value, encode_text, oid};
use crate::verdict::Ground;
use std::collections::BTreeSet;
use std::sync::Arc;

pub struct Written<'a> {
    catalog: &'a Catalog,
    tables: Vec<Arc<Table>>,
    types: BTreeSet<u32>,
    schemas: BTreeSet<String>,
    sequences: BTreeSet<String>,
    before: Vec<String>,
    create: Vec<String>,
    after: Vec<String>,
    /// In the order of making; taken away backwards.
    drop: Vec<String>,
    remarks: Vec<String>,
}

impl<'a> Written<'a> {
    pub fn new(catalog: &'a Catalog) -> Written<'a> {
        Written {
            catalog,
            tables: Vec::new(),
            types: BTreeSet::new(),
            schemas: BTreeSet::new(),
            sequences: BTreeSet::new(),
            before: Vec::new(),
            create: Vec::new(),
            after: Vec::new(),
            drop: Vec::new(),
            remarks: Vec::new(),
        }
    }

    pub fn finish(mut self) -> Ground {
        let create = [self.before, self.create, self.after].concat();
        self.drop.reverse();
        Ground {
            create,
            drop: self.drop,
            remarks: self.remarks,
            settings: Vec::new(),
        }
    }

    /// The table, its parents before it, its partitions behind it.
    pub fn table(&mut self, table: &Arc<Table>) {
        if self.tables.iter().any(|known| known.id == table.id) {
            return;
        }
        if table.temporary || !matches!(table.kind, TableKind::Table | TableKind::Partitioned) {
            self.remarks.push(format!(
                "{} is not an ordinary table: make it yourself",
                name(table)
            ));
            return;
        }
        for parent in &table.parents {
            if let Some(parent) = self.catalog.table(*parent) {
                self.table(&parent.clone());
            }
        }
        // The partitions of a parent came with it.
        if self.tables.iter().any(|known| known.id == table.id) {
            return;
        }
        self.tables.push(table.clone());
        self.schema(&table.schema);
        for column in table.live_columns().map(|(_, column)| column) {
            self.type_of(column.type_oid);
            if let Some(sequence) = sequence_of(column) {
                self.sequence(sequence);
            }
        }
        self.drop.push(format!("DROP TABLE {}", name(table)));
        let text = match &table.bound {
            Some(bound) => self.partition(table, bound),
            None => self.definition(table),
        };
        self.create.push(text);
        for key in table.keys.iter().filter(|key| !key.constraint) {
            // Partitions get theirs from the parent.
            if table.bound.is_none() {
                self.create.push(index(table, key));
            }
        }
        if let Some(reason) = table.unmodelled_write.as_ref().or(table.unmodelled_read.as_ref()) {
            let reason = reason.replace('_', " ");
            self.remarks
                .push(format!("{} also had a {reason}, which is not here", name(table)));
        }
        if table.partitioning.is_some() {
            for child in &table.children {
                if let Some(child) = self.catalog.table(*child) {
                    self.table(&child.clone());
                }
            }
        }
    }

    fn definition(&mut self, table: &Table) -> String {
        let mut parts: Vec<String> = table
            .live_columns()
            .map(|(_, column)| self.column(column))
            .collect();
        parts.extend(table.keys.iter().filter(|key| key.constraint).map(|key| {
            let kind = if key.primary { "PRIMARY KEY" } else { "UNIQUE" };
            let nulls = if key.nulls_not_distinct {
                " NULLS NOT DISTINCT"
            } else {
                ""
            };
            let deferrable = if key.deferrable { " DEFERRABLE" } else { "" };
            let columns = columns(table, &key.columns);
            format!(
                "CONSTRAINT {} {kind}{nulls} ({columns}){deferrable}",
                quoted(&key.name)
            )
        }));
        parts.extend(
            table
                .checks
                .iter()
                .map(|check| format!("CONSTRAINT {} CHECK ({})", quoted(&check.name), check.condition)),
        );
        let mut text = format!("CREATE TABLE {} ({})", name(table), parts.join(", "));
        if let Some(partitioning) = &table.partitioning {
            let strategy = match partitioning.strategy {
                'l' => "LIST",
                'h' => "HASH",
                _ => "RANGE",
            };
            let key = columns(table, &partitioning.columns);
            text.push_str(&format!(" PARTITION BY {strategy} ({key})"));
            if partitioning.columns.is_empty() {
                self.remarks.push(format!(
                    "{} is partitioned by an expression: write it in",
                    name(table)
                ));
            }
        } else if !table.parents.is_empty() {
            let parents = table.parents.iter().filter_map(|id| self.catalog.table(*id));
            let parents: Vec<String> = parents.map(|parent| name(parent)).collect();
            text.push_str(&format!(" INHERITS ({})", parents.join(", ")));
        }
        text
    }

    fn partition(&self, table: &Table, bound: &str) -> String {
        let parent = table.parents.first().and_then(|id| self.catalog.table(*id));
        let parent = parent.map_or_else(|| "?".to_owned(), |parent| name(parent));
        format!("CREATE TABLE {} PARTITION OF {parent} {bound}", name(table))
    }

    fn column(&self, column: &Column) -> String {
        let mut text = format!(
            "{} {}",
            quoted(&column.name),
            self.type_name(column.type_oid, column.type_modifier)
        );
        let sorts = [oid::TEXT, oid::VARCHAR, oid::BPCHAR].contains(&column.type_oid);
        if sorts && column.collation_is_c {
            text.push_str(" COLLATE \"C\"");
        }
        match (&column.default, column.identity) {
            (_, Identity::Always) => text.push_str(" GENERATED ALWAYS AS IDENTITY"),
            (_, Identity::ByDefault) => text.push_str(" GENERATED BY DEFAULT AS IDENTITY"),
            (Some(value), _) if column.generated => {
                text.push_str(&format!(" GENERATED ALWAYS AS ({value}) STORED"));
            }
            (Some(value), _) => text.push_str(&format!(" DEFAULT {value}")),
            (None, _) => {}
        }
        if column.not_null {
            text.push_str(" NOT NULL");
        }
        text
    }

    fn schema(&mut self, schema: &str) {
        if schema != "public" && self.schemas.insert(schema.to_owned()) {
            self.before
                .push(format!("CREATE SCHEMA IF NOT EXISTS {}", quoted(schema)));
        }
    }

    fn sequence(&mut self, sequence: &str) {
        if self.sequences.insert(sequence.to_owned()) {
            self.before.push(format!("CREATE SEQUENCE {sequence}"));
            self.drop.push(format!("DROP SEQUENCE {sequence}"));
        }
    }

    /// A type that the database defines itself.
    fn type_of(&mut self, type_oid: u32) {
        let Some(found) = self.catalog.type_by_oid(type_oid).cloned() else {
            return;
        };
        if let TypeKind::Array { element } = found.kind {
            return self.type_of(element);
        }
        if !self.types.insert(type_oid) {
            return;
        }
        self.schema(&found.schema);
        let name = qualified(&found.schema, &found.name);
        match &found.kind {
            TypeKind::Enum(labels) => {
                let labels: Vec<String> = labels.iter().map(|label| literal(label)).collect();
                self.before
                    .push(format!("CREATE TYPE {name} AS ENUM ({})", labels.join(", ")));
                self.drop.push(format!("DROP TYPE {name}"));
            }
            TypeKind::Domain {
                base,
                type_modifier,
                not_null,
                checks,
            } => {
                self.type_of(*base);
                let not_null = if *not_null { " NOT NULL" } else { "" };
                let base = self.type_name(*base, *type_modifier);
                self.before
                    .push(format!("CREATE DOMAIN {name} AS {base}{not_null}"));
                self.drop.push(format!("DROP DOMAIN {name}"));
                if *checks {
                    self.remarks
                        .push(format!("the domain {name} also had a check, which is not here"));
                }
            }
            TypeKind::Array { .. } | TypeKind::Composite | TypeKind::Other => {
                self.remarks
                    .push(format!("the type {name} is needed: make it first"));
            }
        }
    }

    fn type_name(&self, type_oid: u32, modifier: i32) -> String {
        if let Some(found) = self.catalog.type_by_oid(type_oid) {
            return match found.kind {
                TypeKind::Array { element } => self.type_name(element, -1) + "[]",
                _ => qualified(&found.schema, &found.name),
            };
        }
        let user = self.catalog.user_types();
        let types = Types::with(&user);
        let plain = types.name(type_oid);
        if modifier < 0 {
            return plain;
        }
        let element = types.element(type_oid);
        let with = |words: &str| match element {
            Some(_) => format!("{}({words})[]", plain.trim_end_matches("[]")),
            None => format!("{plain}({words})"),
        };
        match element.unwrap_or(type_oid) {
            oid::VARCHAR | oid::BPCHAR => with(&(modifier - 4).to_string()),
            oid::NUMERIC => {
                let packed = modifier - 4;
                let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
                with(&format!("{}, {scale}", (packed >> 16) & 0xffff))
            }
            oid::BIT | oid::VARBIT => with(&modifier.to_string()),
            oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::TIME | oid::TIMETZ => {
                let (word, rest) = plain.split_once(' ').unwrap_or((&plain, ""));
                format!("{word}({modifier}) {rest}")
            }
            _ => plain,
        }
    }

    /// Functions are made before the rows; those that a default or a check calls before the tables.
    pub fn functions<'f>(&mut self, all: impl Iterator<Item = &'f Arc<Function>>) {
        let texts: Vec<Arc<str>> = self.tables.iter().flat_map(|table| texts_of(table)).collect();
        for function in all {
            if !matches!(function.kind, 'f' | 'p') || function.definition.is_empty() {
                self.remarks
                    .push(format!("the function {} is needed: make it first", function.name));
                continue;
            }
            let is_early = texts
                .iter()
                .any(|text| tokens(text).any(|token| text[token.place].eq_ignore_ascii_case(&function.name)));
            let text = function.definition.trim().trim_end_matches(';').to_owned();
            self.schema(&function.schema);
            match is_early {
                true => self.before.push(text),
                false => self.create.push(text),
            }
            let kind = if function.procedure {
                "PROCEDURE"
            } else {
                "FUNCTION"
            };
            self.drop.push(format!(
                "DROP {kind} {} CASCADE",
                qualified(&function.schema, &function.name)
            ));
        }
    }

    pub fn rows<'r>(&mut self, table: &Table, rows: impl Iterator<Item = &'r Row>) {
        if !self.tables.iter().any(|known| known.id == table.id) {
            return;
        }
        let mut guessed = BTreeSet::new();
        let lines: Vec<String> = rows
            .map(|row| {
                let cells = table.live_columns().map(|(at, column)| {
                    let value = row.get(at).unwrap_or(&column.missing);
                    cell(column, value).unwrap_or_else(|| {
                        guessed.insert(column.name.clone());
                        stand_in(column)
                    })
                });
                format!("({})", cells.collect::<Vec<_>>().join(", "))
            })
            .collect();
        if lines.is_empty() {
            return;
        }
        let overriding = match table.columns.iter().any(|c| c.identity == Identity::Always) {
            true => " OVERRIDING SYSTEM VALUE",
            false => "",
        };
        self.create.push(format!(
            "INSERT INTO {}{overriding} VALUES\n{}",
            name(table),
            lines.join(",\n")
        ));
        for (_, column) in table.live_columns() {
            let (own, quoted_column) = (name(table), quoted(&column.name));
            let sequence = match (sequence_of(column), column.identity) {
                (Some(sequence), _) => literal(sequence),
                (None, Identity::None) => continue,
                (None, _) => format!(
                    "pg_get_serial_sequence({}, {})",
                    literal(&own),
                    literal(&column.name)
                ),
            };
            self.create.push(format!(
                "SELECT setval({sequence}, (SELECT max({quoted_column}) FROM {own}))"
            ));
        }
        if !guessed.is_empty() {
            let names: Vec<String> = guessed.into_iter().collect();
            self.remarks.push(format!(
                "of {} some values are not known and stand in for any: {}",
                name(table),
                names.join(", ")
            ));
        }
    }

    /// Among the tables that are here; checked for what comes, not for what was known of the rows.
    pub fn foreign_keys(&mut self) {
        for table in self.tables.clone() {
            for key in &table.foreign_keys {
                let target = self.tables.iter().find(|target| target.id == key.target);
                let Some(target) = target.filter(|_| table.bound.is_none()) else {
                    continue;
                };
                self.after.push(reference(&table, key, target));
                // Whoever points at a table goes first.
                let own = format!(
                    "ALTER TABLE {} DROP CONSTRAINT {}",
                    name(&table),
                    quoted(&key.name)
                );
                self.drop.push(own);
            }
        }
    }

    /// A view, those that it reads before it.
    pub fn views(&mut self, id: TableId) {
        let Some(view) = self.catalog.table(id).cloned() else {
            return;
        };
        let Some(definition) = &view.definition else {
            return;
        };
        let kind = match view.kind {
            TableKind::MaterializedView => "MATERIALIZED VIEW",
            _ => "VIEW",
        };
        self.schema(&view.schema);
        let text = definition.trim().trim_end_matches(';');
        self.after
            .push(format!("CREATE {kind} {} AS {text}", name(&view)));
        self.drop.push(format!("DROP {kind} {}", name(&view)));
    }
}

/// What a relation's definition says in SQL: it may name others.
pub fn texts_of(table: &Table) -> Vec<Arc<str>> {
    let defaults = table.columns.iter().filter_map(|column| column.default.clone());
    let checks = table.checks.iter().map(|check| check.condition.clone());
    defaults.chain(checks).chain(table.definition.clone()).collect()
}

fn reference(table: &Table, key: &ForeignKey, target: &Table) -> String {
    let action = |action: Action| match action {
        Action::NoAction => "NO ACTION",
        Action::Restrict => "RESTRICT",
        Action::Cascade => "CASCADE",
        Action::SetNull => "SET NULL",
        Action::SetDefault => "SET DEFAULT",
    };
    let full = if key.match_full { " MATCH FULL" } else { "" };
    let deferrable = if key.deferrable { " DEFERRABLE" } else { "" };
    let not_valid = if table.partitioning.is_none() {
        " NOT VALID"
    } else {
        ""
    };
    format!(
        "ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({}){full} ON UPDATE {} ON DELETE {}{deferrable}{not_valid}",
        name(table),
        quoted(&key.name),
        columns(table, &key.columns),
        name(target),
        columns(target, &key.target_columns),
        action(key.on_update),
        action(key.on_delete),
    )
}

fn index(table: &Table, key: &UniqueKey) -> String {
    let parts = key
        .columns
        .iter()
        .zip(&key.expressions)
        .map(
            |(column, expression)| match (expression, table.columns.get(*column)) {
                (Some(expression), _) => format!("({expression})"),
                (None, Some(column)) => quoted(&column.name),
                (None, None) => "?".to_owned(),
            },
        );
    let parts = parts.collect::<Vec<_>>().join(", ");
    let nulls = if key.nulls_not_distinct {
        " NULLS NOT DISTINCT"
    } else {
        ""
    };
    let predicate = key.predicate.as_ref();
    let predicate = predicate.map_or_else(String::new, |p| format!(" WHERE {p}"));
    format!(
        "CREATE UNIQUE INDEX {} ON {} ({parts}){nulls}{predicate}",
        quoted(&key.name),
        name(table)
    )
}

/// `app.seq` of `nextval('app.seq'::regclass)`.
fn sequence_of(column: &Column) -> Option<&str> {
    let call = column.default.as_ref()?.strip_prefix("nextval('")?;
    call.split('\'').next()
}

/// A value as SQL; nothing when it is not known.
fn cell(column: &Column, value: &Value) -> Option<String> {
    if column.generated {
        return Some("DEFAULT".to_owned());
    }
    Some(match value {
        Value::Unknown => return None,
        Value::Null => "NULL".to_owned(),
        Value::Bool(yes) => yes.to_string(),
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) => encode_text(value, &Context::defaults())?,
        other => literal(&encode_text(other, &Context::defaults())?),
    })
}

/// Something that the column takes, in the place of a value that nobody knows.
fn stand_in(column: &Column) -> String {
    if column.default.is_some() {
        return "DEFAULT".to_owned();
    }
    if !column.not_null {
        return "NULL".to_owned();
    }
    match column.type_oid {
        oid::INT2 | oid::INT4 | oid::INT8 | oid::NUMERIC | oid::FLOAT4 | oid::FLOAT8 => "0",
        oid::BOOL => "false",
        oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ => "'epoch'",
        oid::UUID => "'00000000-0000-0000-0000-000000000000'",
        oid::JSON | oid::JSONB => "'null'",
        _ => "''",
    }
    .to_owned()
}

fn columns(table: &Table, positions: &[usize]) -> String {
    let found = positions.iter().filter_map(|at| table.columns.get(*at));
    found
        .map(|column| quoted(&column.name))
        .collect::<Vec<_>>()
        .join(", ")
}

fn name(table: &Table) -> String {
    qualified(&table.schema, &table.name)
}

fn qualified(schema: &str, name: &str) -> String {
    match schema {
        "public" => quoted(name),
        _ => format!("{}.{}", quoted(schema), quoted(name)),
    }
}

/// An identifier, in quotes unless it is plainly none of SQL's own words.
pub fn quoted(name: &str) -> String {
    let mut letters = name.chars();
    let is_plain = letters.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !is_key_word(name);
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// PostgreSQL's reserved words (manual, appendix C): quoting another word does no harm, leaving one of these bare does.
fn is_key_word(name: &str) -> bool {
    const RESERVED: &str = " all analyse analyze and any array as asc asymmetric authorization between bigint binary \
        bit boolean both case cast char character check coalesce collate collation column concurrently constraint \
        create cross current_catalog current_date current_role current_schema current_time current_timestamp \
        current_user dec decimal default deferrable desc distinct do else end except exists extract false fetch float \
        for foreign freeze from full grant greatest group grouping having ilike in initially inner inout int integer \
        intersect interval into is isnull join lateral leading least left like limit localtime localtimestamp natural \
        national nchar none normalize not notnull null nullif numeric offset on only or order out outer overlaps \
        overlay placing position precision primary real references returning right row select session_user setof \
        similar smallint some substring symmetric system_user table tablesample then time timestamp to trailing treat \
        trim true union unique user using values varchar variadic verbose when where window with xmlattributes ";
    RESERVED.split_whitespace().any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_survive() {
        assert_eq!(quoted("account"), "account");
        assert_eq!(quoted("Account"), "\"Account\"");
        assert_eq!(quoted("order"), "\"order\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn sequences_are_found_in_defaults() {
        let mut column = Column::new("id", oid::INT4, -1);
        assert_eq!(sequence_of(&column), None);
        column.default = Some("nextval('app.account_id_seq'::regclass)".into());
        assert_eq!(sequence_of(&column), Some("app.account_id_seq"));
    }
}
