//! A small database in memory: one state, no versions. For tests of the interpreter by itself.

use super::{Effect, Execution, Match, Told, Views, context, execute_told};
use crate::sql::{Planner, Prepared, SessionSettings};
use crate::state::view::Knowledge;
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::trace::Outcome;
use crate::value::compare::same;
use crate::value::{self, Collation, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Memory {
    pub catalog: Catalog,
    pub tables: BTreeMap<TableId, Contents>,
    next: u64,
    planner: Planner,
    pub settings: SessionSettings,
}

#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub rows: BTreeMap<RowId, Row>,
    pub partial: bool,
}

impl Memory {
    /// An empty database whose catalog is known to be empty.
    pub fn new() -> Memory {
        let catalog = Catalog::default().with(|editor| {
            editor.set_loaded();
            editor.set_collation_is_c(true);
            editor.add_schema("public");
        });
        Memory {
            catalog,
            ..Memory::default()
        }
    }

    /// Runs the first statement of `text`; changes nothing yet.
    pub fn run(&self, text: &str, parameters: &[Value]) -> Execution {
        self.run_told(text, parameters, Told::default())
    }

    fn run_told(&self, text: &str, parameters: &[Value], told: Told<'_>) -> Execution {
        let context = context(&self.catalog, &self.settings, Value::Unknown);
        execute_told(&self.plan(text), parameters, told, Views::one(self), &context)
    }

    fn plan(&self, text: &str) -> Prepared {
        self.planner
            .plan(&self.catalog, &Arc::from(text), 0, &self.settings, &[])
    }

    /// Runs a statement, compares its answer, and keeps its effects if the server kept them.
    pub fn observe(&mut self, text: &str, observed: &Outcome) -> (Match, Execution) {
        let execution = self.run_told(text, &[], Told::of(observed));
        let verdict = execution.expect.compare(observed);
        if matches!(observed, Outcome::Answer(_)) && !self.plan(text).planned.wrote_nothing(observed) {
            for effect in &execution.effects {
                self.apply(effect);
            }
        }
        (verdict, execution)
    }

    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Insert { table, row } => {
                self.next += 1;
                self.tables
                    .entry(*table)
                    .or_default()
                    .rows
                    .insert(RowId(self.next), row.clone());
            }
            Effect::Update { table, id, after, .. } | Effect::Perhaps { table, id, after, .. } => {
                self.tables
                    .entry(*table)
                    .or_default()
                    .rows
                    .insert(*id, after.clone());
            }
            Effect::Delete { table, id, .. } => {
                self.tables.entry(*table).or_default().rows.remove(id);
            }
            Effect::Truncate { table } => self.tables.entry(*table).or_default().rows.clear(),
            Effect::Havoc { table, .. } => {
                self.tables.insert(
                    *table,
                    Contents {
                        partial: true,
                        ..Contents::default()
                    },
                );
            }
            Effect::Unseen { .. } | Effect::Absent { .. } | Effect::Drawn { .. } => {}
            Effect::HavocEverything { .. } => {
                for contents in self.tables.values_mut() {
                    *contents = Contents {
                        partial: true,
                        ..Contents::default()
                    };
                }
            }
            Effect::Catalog(catalog) => self.catalog = (**catalog).clone(),
        }
    }

    /// Replaces the contents of a table by rows in the text format.
    pub fn load(&mut self, table: TableId, rows: &[Vec<Option<String>>]) {
        let Some(found) = self.catalog.table(table).cloned() else {
            return;
        };
        let context = context(&self.catalog, &self.settings, Value::Unknown);
        let mut contents = Contents::default();
        for row in rows {
            let cells = found.columns.iter().zip(row).map(|(column, cell)| match cell {
                None => Value::Null,
                Some(text) => value::parse(text, column.type_oid, column.type_modifier, &context)
                    .unwrap_or(Value::Unknown),
            });
            self.next += 1;
            contents.rows.insert(RowId(self.next), cells.collect());
        }
        self.tables.insert(table, contents);
    }
}

impl View for Memory {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn knowledge(&self, table: TableId) -> Knowledge {
        match self.tables.get(&table) {
            Some(contents) if contents.partial => Knowledge::Partial,
            _ => Knowledge::Complete,
        }
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        for (id, row) in self
            .tables
            .get(&table)
            .into_iter()
            .flat_map(|contents| &contents.rows)
        {
            each(*id, row);
        }
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        self.scan(table, &mut |id, row| {
            let fits = columns.iter().zip(key).all(|(column, value)| {
                row.get(*column)
                    .is_some_and(|cell| !cell.is_null() && same(cell, value, Collation::Bytes) != Some(false))
            });
            if fits {
                each(id, row);
            }
        });
        self.knowledge(table) == Knowledge::Complete
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        self.tables.get(&table)?.rows.get(&id).cloned()
    }
}
