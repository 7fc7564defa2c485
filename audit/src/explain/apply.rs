//! Applies what a transaction wrote to the store.
//!
//! Always true: a transaction that did not commit leaves no trace; one whose fate is unknown leaves the
//! tables that it wrote unknown.

use super::run::Lesson;
use crate::assemble::{End, Transaction};
use crate::interpret::{Touch, merged};
use crate::points::{CommitId, Order};
use crate::state::contents::Contents;
use crate::state::overlay::{Overlay, OwnTable};
use crate::state::store::{Store, Table, Version};
use crate::state::view::{Knowledge, has_key};
use crate::state::{Catalog, Row, RowId, TableId};
use crate::trace::{LIMBO_NS, Nanos, TableCopy, Window};
use crate::value::compare::identical;
use crate::value::{Key, Value};
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
    if let Some(catalog) = &overlay.catalog {
        let before = store.catalog.clone();
        adopt(store, catalog.clone());
        if !before.is_as_lasting(catalog) {
            store.catalog_since = store.catalog_since.max(window.done);
        }
    }
    // Also tables that it made itself, and rows that it wrote before.
    let havoc = overlay.havoc_everything.is_some();
    if havoc {
        store.forget_everything();
        store.tables.values_mut().for_each(|t| {
            t.unsettle(window.done);
            t.guess(window.done);
        });
    }
    let mut rows: Vec<(TableId, RowId)> = Vec::new();
    // The id is fixed before the versions are made; the rows are handed over afterwards.
    let commit = order.next_id();
    for (table, own) in &overlay.tables {
        store.table_mut(*table).written(window.done);
        // Somebody whom nobody saw may have come later, and have written the same.
        let unseen = store.unseen_since(*table, window.sent);
        if own.havoc.is_some() || havoc || unseen.is_some() {
            let until = window.done.max(unseen.unwrap_or(0));
            store.lose(*table, until);
            store.table_mut(*table).guess(until);
            continue;
        }
        if own.unseen {
            forget_late(store, order, *table, own, txn.sent(), window.done);
            store.table_mut(*table).doubt();
            store.table_mut(*table).unsettle(window.done);
            store.table_mut(*table).guess(window.done);
        }
        if store.table_mut(*table).may_contain(window.sent) && !store.is_keyed(*table) {
            // It may or may not be part of what was read as a whole.
            store.lose(*table, window.done);
        }
        if own.truncated {
            let kept = store.table_mut(*table);
            let all: Vec<RowId> = kept.chains().map(|(id, _)| id).collect();
            kept.emptied(window.done);
            kept.unsettle(window.done);
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
            let before = chain.versions.last().filter(|v| !v.perhaps && !replaced.perhaps);
            if let Some(before) = before.map(|v| v.commit) {
                order.remember(before, commit);
            }
            let version = Version {
                perhaps: replaced.perhaps,
                ..Version::new(commit, replaced.row.clone())
            };
            store.push(*table, *id, version);
            rows.push((*table, *id));
        }
        let entry = Entry {
            table: *table,
            commit,
            from: txn.sent(),
            window,
        };
        for (columns, key) in &own.absent {
            if !own.inserted.values().any(|row| has_key(row, columns, key)) {
                entry.leave(store, columns, key);
            }
        }
        for (nth, row) in own.inserted.values().enumerate() {
            let entered = entry.enter(store, order, births, (txn.id, nth), row);
            rows.extend(entered.map(|id| (*table, id)));
        }
    }
    let made = order.push(window.sent, window.done, false, txn.clone(), rows);
    debug_assert_eq!(made, commit);
    Some(commit)
}

/// Where rows come and go by one commit.
struct Entry {
    table: TableId,
    commit: CommitId,
    /// When its transaction began.
    from: Nanos,
    /// Where its commit lies.
    window: Window,
}

impl Entry {
    /// A row that was inserted, or that was found to be there when it was written. Returns its id, unless nobody can
    /// tell whether it still is there.
    fn enter(
        &self,
        store: &mut Store,
        order: &mut Order,
        births: &mut Births,
        nth: (TxnId, usize),
        row: &Row,
    ) -> Option<RowId> {
        let table = self.table;
        let made = Version::new(self.commit, Some(row.clone()));
        // Something unknown happened at the same time: it may have come later, and have taken the row away again.
        let beside = !store.table_mut(table).is_settled(self.window.sent);
        let Some((columns, key)) = store.key_of(table, row) else {
            if beside {
                store.lose(table, self.window.done);
                return None;
            }
            let id = births.nth(nth, table, store);
            store.insert(table, id, made);
            return Some(id);
        };
        let kept = store.table_mut(table);
        if beside || kept.is_too_early(&columns, &key, self.from) {
            // Whoever left the doubt may have come later, and have taken it away again.
            store.take_out(table, &columns, &key, self.window.done);
            return None;
        }
        kept.cleared(&columns, &key, self.window.done);
        let there = match kept.is_certain() {
            true => None,
            false => kept.live(&columns, &key),
        };
        if let Some((id, there)) = there {
            // It was learned from an answer; which of the two came first is open.
            if store.key_of(table, &there).is_none() {
                store.lose(table, self.window.done);
                return None;
            }
            let merged: Row = merged(&there, row).into();
            store.push(table, id, Version::new(self.commit, Some(merged)));
            store.table_mut(table).unsettle_row(id, self.window.done);
            return Some(id);
        }
        let id = births.by_key(table, &key, store);
        let last = |store: &Store| {
            let chain = store.tables.get(&table).and_then(|t| t.chain(id));
            chain.and_then(|c| c.versions.last()).map(|v| v.commit)
        };
        match last(store) {
            // In this world it had been there before, and was deleted.
            Some(before) => {
                if before != self.commit {
                    order.remember(before, self.commit);
                }
                store.push(table, id, made);
            }
            None => store.insert(table, id, made),
        }
        Some(id)
    }

    /// There is no row with this key any more, whatever there was.
    fn leave(&self, store: &mut Store, columns: &[usize], key: &[Value]) {
        let table = self.table;
        let kept = store.table_mut(table);
        let beside = !kept.is_settled(self.window.sent);
        let early = beside || kept.is_too_early(columns, key, self.from);
        let late = kept.live(columns, key);
        // What was learned meanwhile may have come before or after.
        if early || late.is_some() {
            store.take_out(table, columns, key, self.window.done);
        } else {
            kept.left(columns, key, self.window.done);
        }
    }
}

/// Rows that were learned, or written by others, only after a transaction had begun may be the ones that it wrote
/// without being seen.
fn forget_late(store: &mut Store, order: &Order, table: TableId, own: &OwnTable, sent: Nanos, until: Nanos) {
    let is_late =
        |commit: CommitId| commit >= order.settled() && order.get(commit).is_some_and(|c| c.hi >= sent);
    let kept = store.table_mut(table);
    let mut late = kept.learned_since(sent);
    late.extend(kept.chains().filter_map(|(id, chain)| {
        let newest = chain.versions.last()?;
        (is_late(newest.commit) && !own.replaced.contains_key(&id)).then_some(id)
    }));
    for id in late {
        let left = own.replaced.get(&id).and_then(|replaced| replaced.row.as_ref());
        if let Some(gone) = store.table_mut(table).remove(id) {
            store.distrust(table, &gone, until);
            // It may have got another key besides.
            left.into_iter().for_each(|row| store.distrust(table, row, until));
        }
    }
}

/// The ids of rows that transactions insert: the same in every world, for the same transaction and for the same key.
#[derive(Clone, Debug, Default)]
pub struct Births {
    given: FxHashMap<(TxnId, usize, TableId), RowId>,
    by_key: FxHashMap<(TableId, Vec<Key>), RowId>,
    /// Whether a transaction may be applied more than once.
    pub remembers: bool,
}

impl Births {
    /// An id for a row without a key that is known.
    fn nth(&mut self, (txn, nth): (TxnId, usize), table: TableId, store: &mut Store) -> RowId {
        let kept = store.table_mut(table);
        match self.remembers {
            true => *self
                .given
                .entry((txn, nth, table))
                .or_insert_with(|| kept.fresh_id()),
            false => kept.fresh_id(),
        }
    }

    /// An id for a row with a key that no row has here.
    pub fn by_key(&mut self, table: TableId, key: &[Value], store: &mut Store) -> RowId {
        let kept = store.table_mut(table);
        if !self.remembers {
            return kept.fresh_id();
        }
        let place = (table, key.iter().cloned().map(Key).collect());
        let given = *self.by_key.entry(place).or_insert_with(|| kept.fresh_id());
        let newest = kept.chain(given).and_then(|c| c.versions.last());
        match newest.is_none_or(|v| v.row.is_none()) {
            true => given,
            // The row that had the key here has another one now.
            false => kept.fresh_id(),
        }
    }

    /// Nothing is applied twice any more.
    pub fn forget(&mut self) {
        self.given.clear();
        self.by_key.clear();
    }
}

/// Nobody knows whether it happened, nor when it does.
fn forget_written(overlay: &Overlay, store: &mut Store, until: Nanos) {
    let everything = overlay.havoc_everything.is_some() || overlay.catalog.is_some();
    let tables: Vec<TableId> = match everything {
        true => store.tables.keys().copied().collect(),
        false => overlay.tables.keys().copied().collect(),
    };
    for table in tables {
        store.lose_to_unseen(table, until);
    }
}

/// Takes over a catalog; tables that it adds are known to be empty.
fn adopt(store: &mut Store, catalog: Arc<Catalog>) {
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
    let Some(storage) = store.catalog.table(TableId(copy.oid)).map(|t| t.storage) else {
        return;
    };
    match Contents::of(&store.catalog, TableId(copy.oid), copy, settings) {
        Some(contents) => store.load(storage, contents),
        None => store.table_mut(storage).knowledge = Knowledge::Partial,
    }
}

/// Makes what a statement read unknown.
pub fn unlearn(store: &mut Store, touch: &Touch, until: Nanos) {
    match touch {
        Touch::Key {
            table, columns, key, ..
        } => {
            let kept = store.table_mut(*table);
            kept.distrust(columns, key, until);
            for id in kept.candidates(columns, key) {
                kept.unlearn(id, columns);
                kept.unsettle_row(id, until);
            }
        }
        Touch::Scan { table, .. } => {
            store.lose(*table, until);
        }
    }
}

/// Whether two rows may hold the same, as far as is known.
fn may_be_identical(one: &Row, other: &Row) -> bool {
    let mut cells = one.iter().zip(other.iter());
    cells.all(|(a, b)| identical(a, b) != Some(false))
}

/// What became of a lesson.
pub enum Learnt {
    /// The row that it is about, if it is kept.
    Adopted(Option<(TableId, RowId)>),
    /// Something unknown may have happened since.
    Refused,
}

/// Adopts what an answer taught, unless something unknown may have happened since.
pub fn learn(store: &mut Store, order: &Order, lesson: &Lesson, births: &mut Births) -> Learnt {
    let (Lesson::Cell { from, .. } | Lesson::Row { from, .. } | Lesson::Absent { from, .. }) = lesson;
    let (table, from) = (lesson.table(), *from);
    // Rows without a key cannot be told from each other: what happened to one of them may have happened to any.
    let keyed = store.is_keyed(table);
    let kept = store.table_mut(table);
    if !kept.is_settled(from) || !(keyed || kept.is_quiet(from)) {
        return Learnt::Refused;
    }
    match lesson {
        Lesson::Cell {
            id,
            row,
            column,
            value,
            ..
        } => {
            store.table_mut(table).learn(*id, row, *column, value, from);
            Learnt::Adopted(Some((table, *id)))
        }
        Lesson::Row { row, since, .. } => {
            let Some((columns, key)) = store.key_of(table, row) else {
                return Learnt::Refused;
            };
            let kept = store.table_mut(table);
            if kept.is_too_early(&columns, &key, from) {
                return Learnt::Refused;
            }
            let is_over =
                |commit: CommitId| commit < order.settled() || order.get(commit).is_none_or(|c| c.hi < from);
            let ids = kept.candidates(&columns, &key);
            let newest = |id: &RowId| kept.chain(*id)?.versions.last()?.row.as_ref();
            let is_named = |there: &Row| {
                columns
                    .iter()
                    .all(|&c| !there.get(c).is_none_or(Value::is_unknown))
            };
            // One whose key is unknown may be this one, unless something else in it differs.
            let may_be_it = |there: &Row| !is_named(there) && may_be_identical(there, row);
            if ids.iter().filter_map(newest).any(may_be_it) {
                return Learnt::Refused;
            }
            let is_it = |id: &&RowId| newest(id).is_some_and(|r| is_named(r) && has_key(r, &columns, &key));
            if let Some(&id) = ids.iter().find(is_it) {
                // What was there before its first writer, whom this snapshot may not have seen, is not kept.
                let first = kept.chain(id).and_then(|c| c.versions.first());
                return match first.is_some_and(|v| is_over(v.commit)) {
                    true => Learnt::Adopted(None),
                    false => Learnt::Refused,
                };
            }
            // One that was deleted may have come again since; but not before it went.
            let mut chains = ids.iter().filter_map(|id| kept.chain(*id));
            if !chains.all(|c| c.versions.last().is_some_and(|v| is_over(v.commit))) {
                return Learnt::Refused;
            }
            let id = births.by_key(table, &key, store);
            store.insert_seen(table, id, row.clone(), *since);
            Learnt::Adopted(Some((table, id)))
        }
        Lesson::Absent {
            columns, key, since, ..
        } => {
            let primary = store.catalog.table(table).and_then(|t| t.primary_key());
            let single = primary.is_some_and(|k| *k.columns == **columns);
            let kept = store.table_mut(table);
            if single || kept.is_quiet(from) {
                kept.know(columns, key, from, *since);
            }
            Learnt::Adopted(None)
        }
    }
}
