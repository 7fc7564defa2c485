//! What a routine has written so far, and a view with that on top.

use super::OWN;
use super::ended::common;
use crate::interpret::Effect;
use crate::interpret::run::{Fault, Outcome};
use crate::state::index::Range;
use crate::state::view::{Focus, Knowledge, Reached};
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::value::compare::same;
use crate::value::{Collation, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a routine has written so far.
#[derive(Clone, Default)]
pub(super) struct Changes {
    pub(super) tables: BTreeMap<TableId, Changed>,
    pub(super) effects: Vec<Option<Effect>>,
    /// Which effect made a row of our own, or last changed a row that was there.
    pub(super) places: BTreeMap<(TableId, RowId), usize>,
    pub(super) next: u64,
}

#[derive(Clone, Default)]
pub(super) struct Changed {
    pub(super) replaced: BTreeMap<RowId, Option<Row>>,
    pub(super) inserted: BTreeMap<RowId, Row>,
    /// Rows that nobody has seen may have been written.
    pub(super) unseen: bool,
    /// Nothing is known of its rows any more.
    pub(super) havoc: bool,
}

impl Changes {
    pub(super) fn apply(&mut self, effect: Effect, depth: u64) -> Outcome<()> {
        match effect {
            Effect::Insert { table, row } => {
                let id = RowId(OWN | (depth << 40) | self.next);
                self.next += 1;
                self.tables
                    .entry(table)
                    .or_default()
                    .inserted
                    .insert(id, row.clone());
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(Effect::Insert { table, row }));
            }
            Effect::Update {
                table,
                id,
                before,
                after,
            } => {
                if self.rewrites_own(table, id, &after) {
                    return Ok(());
                }
                let before = self.first_version(table, id).unwrap_or(before);
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(Effect::Update {
                    table,
                    id,
                    before,
                    after,
                }));
            }
            Effect::Perhaps {
                table,
                id,
                before,
                after,
            } => {
                if self.rewrites_own(table, id, &after) {
                    return Ok(());
                }
                let is_locked = matches!(self.effect(table, id), Some(Effect::Update { .. }));
                let before = self.first_version(table, id).unwrap_or(before);
                let effect = match is_locked {
                    true => Effect::Update {
                        table,
                        id,
                        before,
                        after,
                    },
                    false => Effect::Perhaps {
                        table,
                        id,
                        before,
                        after,
                    },
                };
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(effect));
            }
            Effect::Delete { table, id, before } => {
                let changed = self.tables.entry(table).or_default();
                if changed.inserted.remove(&id).is_some() {
                    if let Some(place) = self.places.remove(&(table, id)) {
                        self.effects[place] = None;
                    }
                    return Ok(());
                }
                changed.replaced.insert(id, None);
                let before = self.first_version(table, id).unwrap_or(before);
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(Effect::Delete { table, id, before }));
            }
            Effect::Unseen { table } => {
                self.tables.entry(table).or_default().unseen = true;
                self.effects.push(Some(Effect::Unseen { table }));
            }
            Effect::Havoc { table, reason } => {
                self.tables.entry(table).or_default().havoc = true;
                self.effects.push(Some(Effect::Havoc { table, reason }));
            }
            // Whoever calls the routine knows that it may draw.
            Effect::Drawn { .. } => {}
            _ => return Fault::unsure("routine_effect"),
        }
        Ok(())
    }

    /// A row gets new contents. Whether it was inserted here: then it is only inserted otherwise.
    fn rewrites_own(&mut self, table: TableId, id: RowId, after: &Row) -> bool {
        let changed = self.tables.entry(table).or_default();
        let Some(own) = changed.inserted.get_mut(&id) else {
            changed.replaced.insert(id, Some(after.clone()));
            return false;
        };
        *own = after.clone();
        if let Some(place) = self.places.get(&(table, id)) {
            let row = after.clone();
            self.effects[*place] = Some(Effect::Insert { table, row });
        }
        true
    }

    /// Several changes of one row count as one: takes back the earlier one and tells what it started from.
    pub(super) fn first_version(&mut self, table: TableId, id: RowId) -> Option<Row> {
        let place = *self.places.get(&(table, id))?;
        match self.effects[place].take() {
            Some(
                Effect::Update { before, .. }
                | Effect::Perhaps { before, .. }
                | Effect::Delete { before, .. },
            ) => Some(before),
            _ => None,
        }
    }

    /// Two ways from the same begin of which one was gone, and nobody knows which.
    pub(super) fn merge(mut self, mut other: Changes) -> Changes {
        let mut lost: Vec<TableId> = Vec::new();
        let mut rows: Vec<(TableId, RowId)> = self.places.keys().copied().collect();
        rows.extend(other.places.keys());
        rows.sort();
        rows.dedup();
        for (table, id) in rows {
            let mine = self.effect(table, id).cloned();
            match (mine, other.effect(table, id).cloned()) {
                (Some(Effect::Insert { row: x, .. }), Some(Effect::Insert { row: y, .. })) => {
                    let row = common(&x, &y);
                    self.set(table, id, Effect::Insert { table, row });
                }
                (Some(Effect::Update { before, after: x, .. }), Some(Effect::Update { after: y, .. })) => {
                    let after = common(&x, &y);
                    self.set(
                        table,
                        id,
                        Effect::Update {
                            table,
                            id,
                            before,
                            after,
                        },
                    );
                }
                (Some(Effect::Delete { .. }), Some(Effect::Delete { .. })) | (None, None) => {}
                // One way left it alone, or may have.
                (
                    Some(Effect::Update { before, after: x, .. } | Effect::Perhaps { before, after: x, .. }),
                    Some(Effect::Update { after: y, .. } | Effect::Perhaps { after: y, .. }),
                ) => {
                    self.leave_open(table, id, before, common(&x, &y));
                }
                (
                    Some(Effect::Update { before, after, .. } | Effect::Perhaps { before, after, .. }),
                    None,
                )
                | (
                    None,
                    Some(Effect::Update { before, after, .. } | Effect::Perhaps { before, after, .. }),
                ) => {
                    let after = common(&before, &after);
                    self.leave_open(table, id, before, after);
                }
                // Whether the row is there, or whether it is locked, is not known.
                _ => lost.push(table),
            }
        }
        for (table, changed) in &mut other.tables {
            let own = self.tables.entry(*table).or_default();
            if changed.unseen && !own.unseen {
                own.unseen = true;
                self.effects.push(Some(Effect::Unseen { table: *table }));
            }
            if changed.havoc && !own.havoc {
                lost.push(*table);
            }
        }
        for table in lost {
            self.tables.entry(table).or_default().havoc = true;
            let reason = "unknown_condition".to_owned();
            self.effects.push(Some(Effect::Havoc { table, reason }));
        }
        self.next = self.next.max(other.next);
        self
    }

    /// Perhaps a row was written, and if so, it has become `after`.
    fn leave_open(&mut self, table: TableId, id: RowId, before: Row, after: Row) {
        let effect = Effect::Perhaps {
            table,
            id,
            before,
            after,
        };
        self.set(table, id, effect);
    }

    pub(super) fn effect(&self, table: TableId, id: RowId) -> Option<&Effect> {
        self.places
            .get(&(table, id))
            .and_then(|place| self.effects[*place].as_ref())
    }

    pub(super) fn set(&mut self, table: TableId, id: RowId, effect: Effect) {
        let changed = self.tables.entry(table).or_default();
        match &effect {
            Effect::Insert { row, .. } => {
                changed.inserted.insert(id, row.clone());
            }
            Effect::Update { after, .. } | Effect::Perhaps { after, .. } => {
                changed.replaced.insert(id, Some(after.clone()));
            }
            _ => {}
        }
        match self.places.get(&(table, id)) {
            Some(place) => self.effects[*place] = Some(effect),
            None => {
                self.places.insert((table, id), self.effects.len());
                self.effects.push(Some(effect));
            }
        }
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects).into_iter().flatten().collect()
    }
}

impl Changed {
    /// The rows that may have a key.
    fn with_key(&self, columns: &[usize], key: &[Value], each: &mut dyn FnMut(RowId, &Row)) {
        let fits = |row: &Row| {
            columns.iter().zip(key).all(|(column, value)| {
                row.get(*column)
                    .is_some_and(|cell| !cell.is_null() && same(cell, value, Collation::Bytes) != Some(false))
            })
        };
        let replaced = self
            .replaced
            .iter()
            .filter_map(|(id, row)| row.as_ref().map(|row| (id, row)));
        for (id, row) in replaced.chain(&self.inserted) {
            if fits(row) {
                each(*id, row);
            }
        }
    }
}

/// A view with a routine's own writes on top.
pub(super) struct Layer<'a> {
    pub(super) base: &'a dyn View,
    pub(super) changes: Rc<RefCell<Changes>>,
}

impl View for Layer<'_> {
    fn catalog(&self) -> &Catalog {
        self.base.catalog()
    }

    fn focus(&self, focus: Focus) -> Focus {
        self.base.focus(focus)
    }

    fn claimed(&self, table: TableId, id: RowId) {
        if id.0 & OWN == 0 {
            self.base.claimed(table, id);
        }
    }

    fn showed(&self, table: TableId, columns: &[usize], key: &[Value]) {
        self.base.showed(table, columns, key);
    }

    fn has_asked(&self) -> bool {
        self.base.has_asked()
    }

    fn has_come_to(&self, state: u64) -> bool {
        self.base.has_come_to(state)
    }

    fn has_written(&self, table: TableId) -> bool {
        self.changes.borrow().tables.contains_key(&table) || self.base.has_written(table)
    }

    fn is_still(&self, table: TableId) -> bool {
        self.base.is_still(table)
    }

    fn knowledge(&self, table: TableId) -> Knowledge {
        match self.changes.borrow().tables.get(&table) {
            Some(own) if own.unseen || own.havoc => Knowledge::Partial,
            _ => self.base.knowledge(table),
        }
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        let changes = self.changes.borrow();
        let own = changes.tables.get(&table);
        if own.is_some_and(|own| own.havoc) {
            return;
        }
        self.base.scan(
            table,
            &mut |id, row| match own.and_then(|own| own.replaced.get(&id)) {
                None => each(id, row),
                Some(Some(row)) => each(id, row),
                Some(None) => {}
            },
        );
        for (id, row) in own.into_iter().flat_map(|own| &own.inserted) {
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
        let changes = self.changes.borrow();
        let own = changes.tables.get(&table);
        if own.is_some_and(|own| own.havoc) {
            return false;
        }
        let sure = self.base.lookup(table, columns, key, &mut |id, row| {
            if !own.is_some_and(|own| own.replaced.contains_key(&id)) {
                each(id, row);
            }
        });
        if let Some(own) = own {
            own.with_key(columns, key, each);
        }
        sure && !own.is_some_and(|own| own.unseen)
    }

    fn range(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        range: &Range,
        each: &mut dyn FnMut(RowId, &Row),
    ) -> Reached {
        let changes = self.changes.borrow();
        let own = changes.tables.get(&table);
        if own.is_some_and(|own| own.havoc) {
            let certain = false;
            return Reached { certain, last: None };
        }
        if let Some(own) = own.filter(|_| !range.goes_on) {
            own.with_key(columns, key, each);
        }
        let mut reached = self.base.range(table, columns, key, range, &mut |id, row| {
            if !own.is_some_and(|own| own.replaced.contains_key(&id)) {
                each(id, row);
            }
        });
        reached.certain &= !own.is_some_and(|own| own.unseen);
        reached
    }

    fn is_fixed(&self, table: TableId, columns: &[usize], key: &[Value]) -> bool {
        self.base.is_fixed(table, columns, key)
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        let changes = self.changes.borrow();
        if let Some(own) = changes.tables.get(&table) {
            if let Some(row) = own.inserted.get(&id) {
                return Some(row.clone());
            }
            if let Some(row) = own.replaced.get(&id) {
                return row.clone();
            }
        }
        self.base.row(table, id)
    }

    fn now(&self) -> Value {
        self.base.now()
    }
}
