//! Reads a catalog from the rows of the queries.
//!
//! A row that does not have the shape it should have is skipped: what is then missing from the catalog makes
//! statements unknown, never wrong.

use super::{
    Action, Argument, Catalog, Check, Column, ForeignKey, Function, Identity, Inner, Partitioning,
    RoleSettings, Sequence, Table, TableId, TableKind, Trigger, Type, TypeKind, UniqueKey,
};
use crate::trace::Bootstrap;
use rustc_hash::FxHashMap;
use std::sync::Arc;

type Rows<'a> = &'a [Vec<Option<String>>];

impl Catalog {
    /// The catalog that a bootstrap carries.
    pub fn load(bootstrap: &Bootstrap) -> Catalog {
        Catalog::from_answers(&bootstrap.catalog)
    }

    /// The catalog that these answers to [`super::QUERIES`] describe.
    pub fn from_answers(answers: &[(String, Vec<Vec<Option<String>>>)]) -> Catalog {
        let part = |name: &str| -> Rows<'_> {
            answers
                .iter()
                .find(|(query, _)| query == name)
                .map_or(&[], |(_, rows)| rows.as_slice())
        };
        let mut inner = Inner {
            loaded: !answers.is_empty(),
            ..Inner::default()
        };
        if let Some(row) = part("database").first() {
            // ICU orders text in its own way whatever `datcollate` says; the server's own provider goes by code point.
            inner.collation_is_c = match row.get(2).and_then(Option::as_deref) {
                Some("i") => false,
                Some("b") => true,
                _ => is_c(text(row, 0), text(row, 0)),
            };
        }
        inner.role_settings = RoleSettings::from_answers(answers);
        let event_triggers = part("event_triggers").iter().map(|row| Trigger {
            schema: text(row, 0).to_owned(),
            function: text(row, 1).to_owned(),
        });
        inner.event_triggers = event_triggers.collect();
        inner.schemas = part("namespaces")
            .iter()
            .map(|row| text(row, 1).to_owned())
            .collect();
        let default_is_c = inner.collation_is_c;

        let mut tables: FxHashMap<u32, Table> = FxHashMap::default();
        let mut partition: FxHashMap<u32, bool> = FxHashMap::default();
        for row in part("tables") {
            let Some(id) = number(row, 0) else { continue };
            let kind = match text(row, 3) {
                "r" => TableKind::Table,
                "p" => TableKind::Partitioned,
                "v" => TableKind::View,
                "m" => TableKind::MaterializedView,
                "f" => TableKind::Foreign,
                "S" => TableKind::Sequence,
                _ => continue,
            };
            let mut table = Table::new(TableId(id), text(row, 1), text(row, 2), kind);
            if is_true(row, 4) {
                table.give_up("row_security");
            }
            if kind == TableKind::Foreign {
                table.give_up("foreign_table");
            }
            table.unlogged = text(row, 10) == "u";
            partition.insert(id, is_true(row, 5));
            table.bound = optional(row, 6);
            table.partition_condition = optional(row, 9).map(Arc::from);
            table.partitioning = optional(row, 7).map(|strategy| Partitioning {
                strategy: strategy.chars().next().unwrap_or('?'),
                // Attribute numbers for now; turned into positions once the columns are known.
                columns: numbers(text(row, 8))
                    .into_iter()
                    .map(|number| number as usize)
                    .collect(),
            });
            tables.insert(id, table);
        }

        // Attribute numbers have holes where columns were dropped; positions have none.
        let mut positions: FxHashMap<(u32, i64), usize> = FxHashMap::default();
        for row in part("columns") {
            let (Some(id), Some(attribute), Some(type_oid)) =
                (number(row, 0), number(row, 1), number(row, 3))
            else {
                continue;
            };
            let Some(table) = tables.get_mut(&id) else {
                continue;
            };
            positions.insert((id, attribute as i64), table.columns.len());
            if row.get(11).and_then(Option::as_deref) == Some("false") {
                // Texts with different bytes may be equal.
                table.unmodelled_read = Some("nondeterministic_collation".to_owned());
            }
            table.columns.push(Column {
                not_null: is_true(row, 5),
                default: optional(row, 6).map(Arc::from),
                identity: match text(row, 7) {
                    "a" => Identity::Always,
                    "d" => Identity::ByDefault,
                    _ => Identity::None,
                },
                generated: !text(row, 8).is_empty(),
                collation_is_c: match text(row, 9) {
                    "default" => default_is_c,
                    name => is_c(name, text(row, 10)),
                },
                ..Column::new(text(row, 2), type_oid, text(row, 4).parse().unwrap_or(-1))
            });
        }
        let to_positions = |table: u32, list: &str| -> Option<Vec<usize>> {
            numbers(list)
                .into_iter()
                .map(|number| positions.get(&(table, number)).copied())
                .collect()
        };
        for (id, table) in &mut tables {
            if let Some(partitioning) = &mut table.partitioning {
                partitioning.columns = partitioning
                    .columns
                    .iter()
                    .map(|number| positions.get(&(*id, *number as i64)).copied())
                    .collect::<Option<Vec<_>>>()
                    .unwrap_or_default();
            }
        }

        for row in part("sequences") {
            let Some(sequence) = number(row, 0).filter(|id| tables.contains_key(id)) else {
                continue;
            };
            let cell = |place: usize| text(row, place).parse::<i64>().ok();
            let known = (cell(1), cell(2), cell(3), cell(4), cell(5));
            let (Some(start), Some(increment), Some(least), Some(greatest), Some(cache)) = known else {
                continue;
            };
            let owner = number(row, 6);
            if let Some(found) = tables.get_mut(&sequence) {
                found.sequence = Some(Sequence {
                    start,
                    increment,
                    least,
                    greatest,
                    cache,
                    owner: owner.map(TableId),
                    last: cell(8),
                });
            }
            let column = owner.zip(cell(7)).and_then(|at| positions.get(&at).copied());
            let owner = owner.and_then(|owner| tables.get_mut(&owner));
            if let Some((column, owner)) = column.zip(owner) {
                let column = &mut owner.columns[column];
                let draws = |default: &Arc<str>| default.starts_with("nextval(");
                if column.identity != Identity::None || column.default.as_ref().is_some_and(draws) {
                    column.sequence = Some(TableId(sequence));
                }
            }
        }
        for row in part("indexes") {
            let Some(id) = number(row, 0) else { continue };
            let Some(table) = tables.get_mut(&id) else {
                continue;
            };
            if !is_true(row, 2) {
                table.plain_indexes.push(text(row, 1).to_owned());
                continue;
            }
            let key_count = number(row, 7).unwrap_or(0) as usize;
            let attributes = numbers(text(row, 6));
            let texts: Vec<&str> = text(row, 9).split('\u{1f}').collect();
            let mut columns = Vec::new();
            let mut expressions = Vec::new();
            for (place, attribute) in attributes.iter().take(key_count).enumerate() {
                match positions.get(&(id, *attribute)) {
                    Some(position) => {
                        columns.push(*position);
                        expressions.push(None);
                    }
                    None => {
                        columns.push(usize::MAX);
                        expressions.push(texts.get(place).map(|expression| Arc::from(*expression)));
                    }
                }
            }
            table.keys.push(UniqueKey {
                name: text(row, 1).to_owned(),
                columns,
                expressions,
                predicate: optional(row, 8).map(Arc::from),
                included: attributes
                    .iter()
                    .skip(key_count)
                    .filter_map(|attribute| positions.get(&(id, *attribute)).copied())
                    .collect(),
                primary: is_true(row, 3),
                constraint: is_true(row, 10),
                nulls_not_distinct: text(row, 11).to_ascii_uppercase().contains("NULLS NOT DISTINCT"),
                deferrable: !is_true(row, 4),
            });
        }

        let mut references: Vec<(u32, u32)> = Vec::new();
        for row in part("constraints") {
            let Some(id) = number(row, 0) else { continue };
            let name = text(row, 1).to_owned();
            match text(row, 2) {
                "c" => {
                    let Some(table) = tables.get_mut(&id) else {
                        continue;
                    };
                    match optional(row, 12) {
                        Some(condition) => table.checks.push(Check {
                            name,
                            condition: Arc::from(condition),
                        }),
                        None => table.unmodelled_write = Some("check_constraint".to_owned()),
                    }
                }
                "f" => {
                    // A constraint with a parent is a partition's share of its root's constraint.
                    if number(row, 13).unwrap_or(0) != 0 {
                        continue;
                    }
                    let Some(target) = number(row, 4) else { continue };
                    let columns = to_positions(id, text(row, 3));
                    let target_columns = to_positions(target, text(row, 5));
                    let Some(table) = tables.get_mut(&id) else {
                        continue;
                    };
                    let (Some(columns), Some(target_columns)) = (columns, target_columns) else {
                        table.unmodelled_write = Some("foreign_key".to_owned());
                        continue;
                    };
                    references.push((target, id));
                    table.foreign_keys.push(ForeignKey {
                        name,
                        columns,
                        target: TableId(target),
                        target_columns,
                        on_update: action(text(row, 6)),
                        on_delete: action(text(row, 7)),
                        match_full: text(row, 8) == "f",
                        deferrable: is_true(row, 9),
                        validated: is_true(row, 11),
                    });
                }
                "x" => {
                    let Some(table) = tables.get_mut(&id) else {
                        continue;
                    };
                    table.unmodelled_write = Some("exclusion_constraint".to_owned());
                }
                _ => {}
            }
        }
        for (target, source) in references {
            if let Some(table) = tables.get_mut(&target) {
                if !table.referenced_by.contains(&TableId(source)) {
                    table.referenced_by.push(TableId(source));
                }
            }
        }

        for row in part("views") {
            let Some(id) = number(row, 0) else { continue };
            if let (Some(table), Some(definition)) = (tables.get_mut(&id), optional(row, 1)) {
                table.definition = Some(Arc::from(definition.trim().trim_end_matches(';')));
            }
        }
        for row in part("triggers") {
            let Some(id) = number(row, 0) else { continue };
            if let Some(table) = tables.get_mut(&id) {
                table.unmodelled_write.get_or_insert("trigger".to_owned());
                table.triggers.push(Trigger {
                    schema: text(row, 3).to_owned(),
                    function: text(row, 4).to_owned(),
                });
            }
        }
        for row in part("rules") {
            let Some(id) = number(row, 0) else { continue };
            if let Some(table) = tables.get_mut(&id) {
                table.unmodelled_write = Some("rule".to_owned());
                if text(row, 2) == "1" {
                    table.unmodelled_read = Some("rule".to_owned());
                }
            }
        }
        for row in part("inheritance") {
            let (Some(child), Some(parent)) = (number(row, 0), number(row, 1)) else {
                continue;
            };
            if !tables.contains_key(&child) || !tables.contains_key(&parent) {
                continue;
            }
            if let Some(table) = tables.get_mut(&child) {
                table.parents.push(TableId(parent));
            }
            if let Some(table) = tables.get_mut(&parent) {
                table.children.push(TableId(child));
            }
        }
        settle_partitions(&mut tables, &partition);

        let mut labels: FxHashMap<u32, Vec<Arc<str>>> = FxHashMap::default();
        for row in part("enums") {
            if let Some(oid) = number(row, 0) {
                labels.entry(oid).or_default().push(Arc::from(text(row, 1)));
            }
        }
        for row in part("types") {
            let Some(oid) = number(row, 0) else { continue };
            let element = number(row, 9).unwrap_or(0);
            let kind = match text(row, 3) {
                "e" => TypeKind::Enum(labels.remove(&oid).unwrap_or_default().into()),
                "d" => TypeKind::Domain {
                    base: number(row, 4).unwrap_or(0),
                    type_modifier: text(row, 5).parse().unwrap_or(-1),
                    not_null: is_true(row, 6),
                    checks: is_true(row, 7),
                },
                "b" if text(row, 10) == "A" && element != 0 => TypeKind::Array { element },
                "c" => TypeKind::Composite,
                _ => TypeKind::Other,
            };
            inner.add_type(Type {
                oid,
                schema: text(row, 1).to_owned(),
                name: text(row, 2).to_owned(),
                kind,
                array_oid: number(row, 8).unwrap_or(0),
            });
        }
        for row in part("functions") {
            if let Some(function) = function(row) {
                inner
                    .functions
                    .entry(function.name.clone())
                    .or_default()
                    .push(Arc::new(function));
                inner.function_count += 1;
            }
        }
        let mut ids: Vec<u32> = tables.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(table) = tables.remove(&id) {
                inner.put(table);
            }
        }
        Catalog::from_inner(inner)
    }
}

/// Rows of a partition are kept with the root of its tree.
fn settle_partitions(tables: &mut FxHashMap<u32, Table>, partition: &FxHashMap<u32, bool>) {
    let mut ids: Vec<u32> = tables.keys().copied().collect();
    ids.sort_unstable();
    for id in ids {
        if !partition.get(&id).copied().unwrap_or(false) {
            continue;
        }
        let mut root = id;
        while let Some(parent) = tables.get(&root).and_then(|table| table.parents.first().copied()) {
            root = parent.0;
        }
        let Some(root_table) = tables.get(&root) else {
            continue;
        };
        let root_names: Vec<String> = root_table
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect();
        let root_has_key = |key: &UniqueKey| {
            root_table.keys.iter().any(|other| {
                let ours = key
                    .columns
                    .iter()
                    .map(|column| tables[&id].columns.get(*column).map(|c| &c.name));
                let theirs = other
                    .columns
                    .iter()
                    .map(|column| root_table.columns.get(*column).map(|c| &c.name));
                ours.eq(theirs)
            })
        };
        let local_keys = tables[&id].keys.iter().any(|key| !root_has_key(key));
        let local_checks = tables[&id]
            .checks
            .iter()
            .any(|check| !root_table.checks.iter().any(|c| c.name == check.name));
        let unmodelled = tables[&id].unmodelled_write.clone();
        let reaches_anywhere = tables[&id].writes_reach_anywhere();
        let (inherited, local) = (root_table.triggers.clone(), tables[&id].triggers.clone());
        let same_columns = tables[&id]
            .columns
            .iter()
            .map(|column| &column.name)
            .eq(root_names.iter());
        if let Some(root_table) = tables.get_mut(&root) {
            if local_keys || local_checks {
                root_table
                    .unmodelled_write
                    .get_or_insert("partition_constraint".to_owned());
            }
            match unmodelled {
                Some(reason) if reaches_anywhere => root_table.unmodelled_write = Some(reason),
                Some(reason) => drop(root_table.unmodelled_write.get_or_insert(reason)),
                None => {}
            }
            root_table.triggers.extend(local);
        }
        if let Some(table) = tables.get_mut(&id) {
            table.storage = TableId(root);
            if !inherited.is_empty() {
                // Row triggers of the root fire for its partitions, too.
                table.unmodelled_write.get_or_insert("trigger".to_owned());
                table.triggers.extend(inherited);
            }
            if !same_columns {
                table
                    .unmodelled_read
                    .get_or_insert("partition_columns".to_owned());
                table
                    .unmodelled_write
                    .get_or_insert("partition_columns".to_owned());
            }
        }
    }
}

fn function(row: &[Option<String>]) -> Option<Function> {
    let types: Vec<u32> = numbers(text(row, 9)).into_iter().map(|oid| oid as u32).collect();
    let modes: Vec<&str> = match text(row, 10) {
        "" => vec!["i"; types.len()],
        modes => modes.split(',').collect(),
    };
    let names: Vec<&str> = text(row, 11).split(',').collect();
    let inputs = modes
        .iter()
        .filter(|mode| matches!(**mode, "i" | "b" | "v"))
        .count();
    let defaults = number(row, 12).unwrap_or(0) as usize;
    let mut seen = 0;
    let arguments = types
        .iter()
        .enumerate()
        .map(|(place, type_oid)| {
            let mode = modes
                .get(place)
                .and_then(|mode| mode.chars().next())
                .unwrap_or('i');
            if matches!(mode, 'i' | 'b' | 'v') {
                seen += 1;
            }
            Argument {
                name: names
                    .get(place)
                    .filter(|name| !name.is_empty())
                    .map(|name| (*name).to_owned()),
                type_oid: *type_oid,
                mode,
                has_default: matches!(mode, 'i' | 'b' | 'v') && seen > inputs - defaults.min(inputs),
            }
        })
        .collect();
    let kind = text(row, 4).chars().next().unwrap_or('f');
    Some(Function {
        oid: number(row, 0)?,
        schema: text(row, 1).to_owned(),
        name: text(row, 2).to_owned(),
        language: text(row, 3).to_owned(),
        procedure: kind == 'p',
        kind,
        volatility: text(row, 5).chars().next().unwrap_or('v'),
        strict: is_true(row, 6),
        returns: number(row, 7).unwrap_or(0),
        returns_set: is_true(row, 8),
        arguments,
        source: Arc::from(text(row, 13)),
        definition: Arc::from(text(row, 14)),
        own_settings: is_true(row, 15),
    })
}

fn is_c(name: &str, locale: &str) -> bool {
    ["C", "POSIX", "C.UTF-8", "C.utf8", "ucs_basic"]
        .iter()
        .any(|known| name == *known || locale == *known)
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

fn text(row: &[Option<String>], place: usize) -> &str {
    row.get(place).and_then(Option::as_deref).unwrap_or("")
}

fn optional(row: &[Option<String>], place: usize) -> Option<String> {
    row.get(place).cloned().flatten()
}

fn number(row: &[Option<String>], place: usize) -> Option<u32> {
    text(row, place).parse().ok()
}

fn is_true(row: &[Option<String>], place: usize) -> bool {
    matches!(text(row, place), "t" | "true")
}

fn numbers(list: &str) -> Vec<i64> {
    list.split([',', ' '])
        .filter_map(|number| number.parse().ok())
        .collect()
}
