//! Applies what a transaction wrote to the store.
//!
//! Always true: a transaction that did not commit leaves no trace; one whose fate is unknown leaves the
//! tables that it wrote unknown.

use super::run::Lesson;
use crate::assemble::{End, Transaction};
use crate::interpret::Touch;
use crate::points::{CommitId, Order};
use crate::state::overlay::Overlay;
use crate::state::store::{Store, Table, Version};
use crate::state::view::Knowledge;
use crate::state::{Row, RowId, TableId};
use crate::trace::{Nanos, TableCopy};
use crate::value::{self, Context, TimeZone, Value};
use crate::verdict::TxnId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Applies the net writes of `txn`; the commit they belong to, if it wrote anything.
pub fn apply(
    txn: &Arc<Transaction>,
    overlay: &Overlay,
    store: &mut Store,
    order: &mut Order,
    births: &mut Births,
) -> Option<CommitId> {
    if overlay.is_empty() {
        return None;
    }
    let window = match txn.end {
        End::Committed(window) => window,
        End::Aborted(_) => return None,
        End::Unknown(window) => {
            forget_written(overlay, store, window.sent.saturating_add(LIMBO_NS));
            return None;
        }
    };
    if overlay.havoc_everything.is_some() {
        store.forget_everything();
        store.tables.values_mut().for_each(|t| {
            t.unsettle(window.done);
            t.guess(window.done);
        });
    }
    if let Some(catalog) = &overlay.catalog {
        adopt(store, catalog.clone());
    }
    let mut rows: Vec<(TableId, RowId)> = Vec::new();
    // The id is fixed before the versions are made; the rows are handed over afterwards.
    let commit = order.next_id();
    for (table, own) in &overlay.tables {
        if own.havoc.is_some() {
            store.forget(*table);
            store.table_mut(*table).unsettle(window.done);
            store.table_mut(*table).guess(window.done);
            continue;
        }
        if own.unseen {
            forget_late(store, *table, txn.sent());
            store.table_mut(*table).doubt();
            store.table_mut(*table).unsettle(window.done);
            store.table_mut(*table).guess(window.done);
        }
        if own.truncated {
            let kept = store.table_mut(*table);
            let all: Vec<RowId> = kept.chains().map(|(id, _)| id).collect();
            kept.knowledge = Knowledge::Complete;
            for id in all {
                store.push(
                    *table,
                    id,
                    Version {
                        rewrite: true,
                        ..Version::new(commit, None)
                    },
                );
                rows.push((*table, id));
            }
        }
        for (id, replaced) in &own.replaced {
            let Some(chain) = store.tables.get(table).and_then(|t| t.chain(*id)) else {
                continue;
            };
            if let Some(before) = chain.versions.last().map(|v| v.commit) {
                order.remember(before, commit);
            }
            store.push(*table, *id, Version::new(commit, replaced.row.clone()));
            rows.push((*table, *id));
        }
        let ids = births.ids(txn.id, *table, own.inserted.len(), store);
        for (row, id) in own.inserted.values().zip(ids) {
            let guessed = store.tables.get(table).is_some_and(|t| t.is_guessed(window.sent));
            if guessed && is_there(store, *table, row) {
                continue;
            }
            store.insert(*table, id, Version::new(commit, Some(row.clone())));
            rows.push((*table, id));
        }
    }
    let made = order.push(window.sent, window.done, false, txn.clone(), rows);
    debug_assert_eq!(made, commit);
    Some(commit)
}

/// Rows that were learned only after a transaction had begun may be the ones that it wrote without being seen.
fn forget_late(store: &mut Store, table: TableId, sent: Nanos) {
    let catalog = store.catalog.clone();
    let key = catalog.table(table).and_then(|t| t.primary_key());
    let complete = store.table_mut(table).knowledge == Knowledge::Complete;
    for id in store.table_mut(table).learned_since(sent) {
        let gone = store.table_mut(table).remove(id);
        if !complete {
            continue;
        }
        match (key, gone) {
            (Some(key), Some(row)) => {
                let values: Vec<Value> = key.columns.iter().filter_map(|c| row.get(*c).cloned()).collect();
                store.table_mut(table).distrust(&key.columns, &values);
            }
            _ => return store.forget(table),
        }
    }
}

/// The ids of rows that a transaction inserts: the same wherever it is applied.
#[derive(Debug, Default)]
pub struct Births {
    given: FxHashMap<(TxnId, TableId), Vec<RowId>>,
    /// Whether a transaction may be applied more than once.
    pub remembers: bool,
}

impl Births {
    fn ids(&mut self, txn: TxnId, table: TableId, len: usize, store: &mut Store) -> Vec<RowId> {
        if len == 0 {
            return Vec::new();
        }
        let table_mut = store.table_mut(table);
        let given = self.given.get(&(txn, table));
        let mut ids: Vec<RowId> = given.into_iter().flatten().copied().take(len).collect();
        let had = given.map_or(0, Vec::len);
        while ids.len() < len {
            ids.push(table_mut.fresh_id());
        }
        if self.remembers && ids.len() > had {
            self.given.insert((txn, table), ids.clone());
        }
        ids
    }

    /// Nothing is applied twice any more.
    pub fn forget(&mut self) {
        self.given.clear();
    }
}

/// How long a server may go on with a commit after its client was lost.
const LIMBO_NS: Nanos = 60_000_000_000;

/// Nobody knows whether it happened, nor when it does.
fn forget_written(overlay: &Overlay, store: &mut Store, until: Nanos) {
    let everything = overlay.havoc_everything.is_some() || overlay.catalog.is_some();
    let tables: Vec<TableId> = match everything {
        true => store.tables.keys().copied().collect(),
        false => overlay.tables.keys().copied().collect(),
    };
    for table in tables {
        store.forget(table);
        store.table_mut(table).unsettle(until);
    }
}

/// Takes over a catalog; tables that it adds are known to be empty.
fn adopt(store: &mut Store, catalog: Arc<crate::state::Catalog>) {
    let before = std::mem::replace(&mut store.catalog, catalog.clone());
    for table in catalog.tables() {
        if before.table(table.id).is_none() {
            store
                .tables
                .insert(catalog.storage(table.id), Table::new(Knowledge::Complete));
        }
    }
    for table in before.tables() {
        if catalog.table(table.id).is_none() {
            store.tables.remove(&table.id);
        }
    }
}

/// Takes over the contents of one table as they were copied.
pub fn load_copy(store: &mut Store, copy: &TableCopy, settings: &[(String, String)]) {
    let catalog = store.catalog.clone();
    let id = TableId(copy.oid);
    let Some(table) = catalog.table(id) else { return };
    let storage = catalog.storage(id);
    let Some(rows) = &copy.rows else {
        store.table_mut(storage).knowledge = Knowledge::Partial;
        return;
    };
    let zone = settings
        .iter()
        .find(|(n, _)| n.eq_ignore_ascii_case("TimeZone"))
        .map(|(_, v)| v.as_str());
    let context = Context {
        time_zone: zone.map_or(TimeZone::Unknown, TimeZone::from_setting),
        user_types: catalog.user_types(),
        ..Context::defaults()
    };
    let Some(target) = catalog.table(storage) else {
        return;
    };
    // Columns by name: a partition may have them in another order than its parent.
    let places: Vec<Option<(usize, u32)>> = copy
        .columns
        .iter()
        .map(|name| target.column(name).map(|at| (at, target.columns[at].type_oid)))
        .collect();
    let _ = table;
    for cells in rows {
        let mut row: Vec<Value> = vec![Value::Null; target.columns.len()];
        for (cell, place) in cells.iter().zip(&places) {
            let Some((at, type_oid)) = *place else { continue };
            row[at] = match cell {
                None => Value::Null,
                Some(text) => value::decode(type_oid, 0, Some(text.as_bytes()), &context),
            };
        }
        let row: Row = row.into();
        let id = store.table_mut(storage).fresh_id();
        store.insert(storage, id, Version::new(CommitId::INITIAL, Some(row)));
    }
}

/// Makes what a statement read unknown.
pub fn unlearn(store: &mut Store, touch: &Touch, until: Nanos) {
    let (Touch::Key { table, .. } | Touch::Scan { table, .. }) = touch;
    store.table_mut(*table).unsettle(until);
    match touch {
        Touch::Key { table, columns, key } => {
            let Some(kept) = store.tables.get_mut(table) else {
                return;
            };
            kept.distrust(columns, key);
            for id in kept.candidates(columns, key) {
                kept.unlearn(id, columns);
            }
        }
        Touch::Scan { table, .. } => store.forget(*table),
    }
}

/// Adopts what an answer taught, unless something unknown may have happened since.
pub fn learn(store: &mut Store, lesson: &Lesson) {
    let (Lesson::Cell { table, from, .. }
    | Lesson::Row { table, from, .. }
    | Lesson::Absent { table, from, .. }) = lesson;
    let table = *table;
    if *from <= store.table_mut(table).unstable_until {
        return;
    }
    match lesson {
        Lesson::Cell {
            id,
            row,
            column,
            value,
            ..
        } => store.table_mut(table).learn(*id, row, *column, value),
        Lesson::Row { row, since, .. } => {
            if is_there(store, table, row) {
                return;
            }
            let version = Version {
                since: *since,
                ..Version::new(CommitId::INITIAL, Some(row.clone()))
            };
            let id = store.table_mut(table).fresh_id();
            store.insert(table, id, version);
        }
        Lesson::Absent {
            columns, key, since, ..
        } => store.table_mut(table).know(columns, key, *since),
    }
}

/// Whether a row with the same primary key is kept already; true where that cannot be told.
fn is_there(store: &Store, table: TableId, row: &Row) -> bool {
    let Some(key) = store.catalog.table(table).and_then(|t| t.primary_key()) else {
        return true;
    };
    let values: Vec<Value> = key.columns.iter().filter_map(|c| row.get(*c).cloned()).collect();
    if values.iter().any(|v| matches!(v, Value::Unknown | Value::Null)) {
        return true;
    }
    store
        .tables
        .get(&table)
        .is_some_and(|t| !t.candidates(&key.columns, &values).is_empty())
}
