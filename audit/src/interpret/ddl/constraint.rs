//! Constraints of tables and columns: keys, checks, references.

use super::DdlRun;
use super::index::apart;
use super::string_of;
use crate::interpret::run::{Fault, Outcome};
use crate::state::TableId;
use crate::state::catalog::{Action, Check, ForeignKey, Table, UniqueKey};
use pg_query::Node;
use pg_query::protobuf::{self as pg, ConstrType};
use std::sync::Arc;

impl DdlRun<'_, '_> {
    pub(super) fn add_constraint(
        &self,
        table: &mut Table,
        column: Option<&str>,
        constraint: &pg::Constraint,
        references: &mut Vec<TableId>,
    ) -> Outcome<()> {
        let named = |fallback: String, is_taken: &dyn Fn(&str) -> bool| match constraint.conname.as_str() {
            "" => free_name(&fallback, is_taken),
            name => name.to_owned(),
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
                        if !constraint.conname.is_empty() {
                            key.name.clone_from(&constraint.conname);
                        }
                    }
                    return Ok(());
                }
                let columns = positions(table, &constraint.keys)?;
                let included = match constraint.including.as_slice() {
                    [] => Vec::new(),
                    including => positions(table, including)?,
                };
                let primary = kind == ConstrType::ConstrPrimary;
                let all = columns.iter().chain(&included);
                let names = all.map(|column| table.columns[*column].name.clone());
                let name = match primary {
                    true => format!("{}_pkey", table.name),
                    false => format!("{}_{}_key", table.name, apart(names.collect()).join("_")),
                };
                if primary {
                    for column in &columns {
                        table.columns[*column].not_null = true;
                    }
                }
                // It is the name of an index, too.
                let name = named(name, &|name| {
                    table.has_constraint(name) || table.has_index(name) || self.is_named(&table.schema, name)
                });
                table.keys.push(UniqueKey {
                    name,
                    expressions: vec![None; columns.len()],
                    columns,
                    predicate: None,
                    included,
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
                // It is named by the one column that it is about, wherever it stands.
                let name = match columns_in(&condition).as_deref() {
                    Some([column]) => format!("{}_{column}_check", table.name),
                    _ => format!("{}_check", table.name),
                };
                let name = named(name, &|name| table.has_constraint(name));
                table.checks.push(Check { name, condition });
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
                let name = format!("{}_{}_fkey", table.name, joined.join("_"));
                let name = named(name, &|name| table.has_constraint(name));
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
                let _ = table
                    .unmodelled_write
                    .get_or_insert("exclusion_constraint".to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}

/// The constraints of one statement, keys first; of keys that are the same there is one, the primary one if there is. It has the name that
/// either was given.
pub(super) fn without_twins(
    constraints: Vec<(Option<String>, pg::Constraint)>,
) -> Vec<(Option<String>, pg::Constraint)> {
    let is_primary = |constraint: &pg::Constraint| constraint.contype == ConstrType::ConstrPrimary as i32;
    let is_key = |constraint: &pg::Constraint| {
        is_primary(constraint) || constraint.contype == ConstrType::ConstrUnique as i32
    };
    let columns = |(column, constraint): &(Option<String>, pg::Constraint)| -> Vec<String> {
        match (constraint.keys.as_slice(), column) {
            ([], Some(column)) => vec![column.clone()],
            (keys, _) => keys.iter().filter_map(string_of).map(str::to_owned).collect(),
        }
    };
    let mut kept: Vec<(Option<String>, pg::Constraint)> = Vec::new();
    for next in constraints {
        let is_twin = |other: &&mut (Option<String>, pg::Constraint)| {
            let (a, b) = (&other.1, &next.1);
            is_key(a)
                && is_key(b)
                && columns(other) == columns(&next)
                && a.including == b.including
                && (a.deferrable, a.initdeferred) == (b.deferrable, b.initdeferred)
                && a.nulls_not_distinct == b.nulls_not_distinct
        };
        let Some(twin) = kept.iter_mut().find(is_twin) else {
            kept.push(next);
            continue;
        };
        let (mut stays, goes) = match is_primary(&next.1) && !is_primary(&twin.1) {
            true => (next, twin.clone()),
            false => (twin.clone(), next),
        };
        if stays.1.conname.is_empty() {
            stays.1.conname = goes.1.conname;
        }
        *twin = stays;
    }
    // Whatever refers to a key finds it, wherever it stands.
    kept.sort_by_key(|(_, constraint)| match is_key(constraint) {
        true => !is_primary(constraint) as u8,
        false => 2,
    });
    kept
}

/// The name that something gets which is given none.
pub(super) fn free_name(wanted: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (1..).map(|number| format!("{wanted}{number}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
    names
        .find(|name| !is_taken(name))
        .expect("there is no end of them")
}

/// The columns that an expression names, each once; `None` if it names whole rows, or cannot be read.
pub(super) fn columns_in(expression: &str) -> Option<Vec<String>> {
    let parsed = pg_query::parse(
        &format!("SELECT {expression}"),
        pg_query::ParserOptions::default(),
    )
    .ok()?;
    let mut columns: Vec<String> = Vec::new();
    for (node, ..) in parsed.protobuf.nodes() {
        if let pg_query::NodeRef::ColumnRef(column) = node {
            let name = column.fields.last().and_then(string_of)?;
            if !columns.iter().any(|known| known == name) {
                columns.push(name.to_owned());
            }
        }
    }
    Some(columns)
}

/// Whether an expression may name a column.
pub(super) fn mentions(expression: &str, column: &str) -> bool {
    columns_in(expression).is_none_or(|columns| columns.iter().any(|named| named == column))
}

pub(super) fn action(letter: &str) -> Action {
    match letter {
        "r" => Action::Restrict,
        "c" => Action::Cascade,
        "n" => Action::SetNull,
        "d" => Action::SetDefault,
        _ => Action::NoAction,
    }
}
