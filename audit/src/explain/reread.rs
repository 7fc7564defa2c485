//! Takes over tables that were read again, in the midst of the traffic.
//!
//! In: what one snapshot saw of a table of which something was lost. Out: what is known of it from then on.
//!
//! The snapshot lies in a window, like any other. Commits before it are part of what it saw, commits after it are not;
//! of those that overlap it nobody can tell, and what they wrote stays in doubt until they had ended.
//!
//! Always true:
//!   - nothing that is known is changed, it is only added to;
//!   - nothing was forgotten that happened since the snapshot was taken.

use super::apply::Births;
use super::world::World;
use crate::points::CommitId;
use crate::state::contents::Contents;
use crate::state::store::Version;
use crate::state::view::Knowledge;
use crate::state::{Row, RowId, TableId};
use crate::trace::{Nanos, Reread, TableCopy, TableName, Window};
use crate::value::{Key, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Takes over what can be of the tables that were read again.
pub fn reread(world: &mut World, births: &mut Births, reread: &Reread, settings: &[(String, String)]) {
    if world.store.catalog_since >= reread.window.sent {
        // Whether they were called the same when they were read is not known.
        return;
    }
    let catalog = world.store.catalog.clone();
    let mut read: FxHashMap<TableId, Vec<(TableId, &TableCopy)>> = FxHashMap::default();
    for table in catalog.tables() {
        let is_named = |name: &TableName| name.schema == table.schema && name.name == table.name;
        if let Some((_, copy)) = reread.tables.iter().find(|(name, _)| is_named(name)) {
            read.entry(table.storage).or_default().push((table.id, copy));
        }
    }
    let mut tables: Vec<TableId> = read.keys().copied().collect();
    tables.sort();
    for table in tables {
        let copies = &read[&table];
        // Of a partitioned table all parts, or nothing.
        let is_read = |id: TableId| copies.iter().any(|(read, _)| *read == id);
        if !world.leaves(table).into_iter().all(is_read) {
            continue;
        }
        let contents: Option<Vec<Contents>> = copies
            .iter()
            .map(|(id, copy)| Contents::of(&catalog, *id, copy, settings))
            .collect();
        let Some(contents) = contents else { continue };
        if !world.store.table_mut(table).is_settled(reread.window.sent) {
            continue;
        }
        let look = Look {
            table,
            window: reread.window,
        };
        let rows = contents.iter().flat_map(Contents::iter);
        match catalog.table(table).and_then(|t| t.primary_key()) {
            Some(key) => look.by_key(world, births, &key.columns, rows),
            None => look.without_key(world, rows),
        }
    }
}

/// Where the snapshot stands to a version that is kept.
enum Stand {
    Before,
    Overlaps(Nanos),
    After,
}

struct Look {
    table: TableId,
    window: Window,
}

impl Look {
    /// Where a commit stands to the snapshot.
    fn stand(&self, world: &World, commit: CommitId) -> Stand {
        if commit < world.order.settled() {
            return Stand::Before;
        }
        match world.order.get(commit).map(|c| c.observed) {
            Some(w) if w.sent > self.window.done => Stand::After,
            Some(w) if w.done >= self.window.sent => Stand::Overlaps(w.done),
            _ => Stand::Before,
        }
    }

    fn by_key(
        &self,
        world: &mut World,
        births: &mut Births,
        columns: &[usize],
        rows: impl Iterator<Item = Row>,
    ) {
        let table = self.table;
        let partial = world.store.table_mut(table).knowledge == Knowledge::Partial;
        let mut shown: FxHashSet<Vec<Key>> = FxHashSet::default();
        for row in rows {
            let Some((_, key)) = world.store.key_of(table, &row) else {
                // Without its key the row cannot be told from others.
                return;
            };
            shown.insert(key.iter().cloned().map(Key).collect());
            self.show(world, births, columns, &key, row, partial);
        }
        let is_shown = |key: &[Value]| shown.contains(&key.iter().cloned().map(Key).collect::<Vec<_>>());
        if partial {
            if !self.miss(world, columns, is_shown) {
                return;
            }
            // Rows that were seen only later are known since then.
            let kept = world.store.table_mut(table);
            let versions = kept.chains().flat_map(|(_, chain)| chain.versions.iter());
            let since = versions.map(|version| version.since).max();
            kept.complete(self.window.done.max(since.unwrap_or(0)));
        }
        let kept = world.store.table_mut(table);
        for key in kept.doubts(columns, self.window.sent) {
            if !is_shown(&key) && kept.candidates(columns, &key).is_empty() {
                kept.cleared(columns, &key, self.window.done);
            }
        }
    }

    /// The snapshot saw this row.
    fn show(
        &self,
        world: &mut World,
        births: &mut Births,
        columns: &[usize],
        key: &[Value],
        row: Row,
        partial: bool,
    ) {
        let (table, done) = (self.table, self.window.done);
        let kept = world.store.table_mut(table);
        if kept.is_too_early(columns, key, self.window.sent) {
            return;
        }
        let ids = kept.candidates(columns, key);
        let Some(id) = ids.first().copied() else {
            if !partial && kept.knows(columns, key, Nanos::MAX) {
                return;
            }
            match kept.known_since(columns, key) {
                // Somebody took it away since.
                Some(since) if since >= self.window.sent => self.doubt_until(world, columns, key, since),
                _ => {
                    self.add(world, births, columns, key, row);
                }
            }
            return;
        };
        let newest = kept.chain(id).and_then(|c| c.versions.last()).cloned();
        let oldest = kept.chain(id).and_then(|c| c.versions.first()).map(|v| v.commit);
        let (Some(newest), Some(oldest), 1) = (newest, oldest, ids.len()) else {
            if partial {
                kept.distrust(columns, key, done);
            }
            return;
        };
        match (self.stand(world, newest.commit), &newest.row) {
            // One that was learned from a later answer may hold something else.
            (Stand::Before, Some(_)) if newest.since >= self.window.sent => {}
            (Stand::Before, Some(known)) => {
                let kept = world.store.table_mut(table);
                let mut known = known.clone();
                for (column, value) in row.iter().enumerate() {
                    if known.get(column).is_some_and(Value::is_unknown) && !value.is_unknown() {
                        kept.learn(id, &known, column, value, self.window.sent);
                        let newest = kept.chain(id).and_then(|c| c.versions.last());
                        if let Some(now) = newest.and_then(|v| v.row.clone()) {
                            known = now;
                        }
                    }
                }
                world.changed.extend(births.remembers.then_some((table, id)));
            }
            // It came again, and nobody saw how.
            (Stand::Before, None) => {
                let kept = world.store.table_mut(table);
                if partial || !kept.knows(columns, key, Nanos::MAX) {
                    self.add(world, births, columns, key, row);
                }
            }
            (Stand::Overlaps(until), _) => {
                if partial {
                    self.doubt_until(world, columns, key, until);
                }
            }
            (Stand::After, _) if partial => match self.stand(world, oldest) {
                // What it was before somebody wrote it without having been seen.
                Stand::After => {
                    let version = Version {
                        since: done,
                        ..Version::new(CommitId::INITIAL, Some(row))
                    };
                    world.store.table_mut(table).push_below(id, version);
                    world.store.versions_alive += 1;
                    world.changed.extend(births.remembers.then_some((table, id)));
                }
                Stand::Overlaps(until) => self.doubt_until(world, columns, key, until),
                Stand::Before => {}
            },
            (Stand::After, _) => {}
        }
    }

    /// A row that nothing is known of.
    fn add(&self, world: &mut World, births: &mut Births, columns: &[usize], key: &[Value], row: Row) {
        let (table, done) = (self.table, self.window.done);
        world.store.table_mut(table).cleared(columns, key, done);
        let id = births.by_key(table, key, &mut world.store);
        world.store.insert_seen(table, id, row, done);
        world.changed.extend(births.remembers.then_some((table, id)));
    }

    /// Rows that are kept and that the snapshot did not see; whether all that is left of them is known.
    fn miss(&self, world: &mut World, columns: &[usize], is_shown: impl Fn(&[Value]) -> bool) -> bool {
        let table = self.table;
        let kept = world.store.table_mut(table);
        let all: Vec<(RowId, Vec<Version>)> =
            kept.chains().map(|(id, c)| (id, c.versions.to_vec())).collect();
        let mut is_whole = true;
        for (id, versions) in all {
            let (Some(first), Some(newest)) = (versions.first(), versions.last()) else {
                continue;
            };
            // A row may have had several keys, one after the other.
            let key_of = |version: &Version| {
                let row = version.row.as_ref()?;
                world.store.key_of(table, row).map(|(_, key)| key)
            };
            let is_before = |v: &&Version| matches!(self.stand(world, v.commit), Stand::Before);
            let seen = versions.iter().rev().find(is_before);
            let is_missed = seen.and_then(key_of).is_some_and(|key| !is_shown(&key));
            let keys: Vec<Vec<Value>> = versions.iter().filter_map(key_of).collect();
            match (self.stand(world, first.commit), self.stand(world, newest.commit)) {
                (Stand::After, _) => {}
                (Stand::Overlaps(until), _) => {
                    for key in keys.iter().filter(|key| !is_shown(key)) {
                        self.doubt_until(world, columns, key, until);
                    }
                }
                (Stand::Before, latest) if is_missed => {
                    // What was written since was written to a row that nobody knows.
                    is_whole &= matches!(latest, Stand::Before);
                    let kept = world.store.table_mut(table);
                    kept.remove(id);
                    for key in &keys {
                        kept.distrust(columns, key, self.window.done);
                    }
                }
                (Stand::Before, _) => {}
            }
        }
        is_whole
    }

    /// Which rows have this key is not known to snapshots from before `until`.
    fn doubt_until(&self, world: &mut World, columns: &[usize], key: &[Value], until: Nanos) {
        let until = until.max(self.window.done);
        let kept = world.store.table_mut(self.table);
        kept.distrust(columns, key, until);
        kept.cleared(columns, key, until);
    }

    /// Rows without a key: nothing may have been written meanwhile, but rows that came later.
    fn without_key(&self, world: &mut World, rows: impl Iterator<Item = Row>) {
        let table = self.table;
        let kept = world.store.table_mut(table);
        if kept.knowledge == Knowledge::Complete || !kept.is_quiet(self.window.sent) {
            return;
        }
        let all: Vec<(RowId, CommitId, usize)> = kept
            .chains()
            .filter_map(|(id, c)| Some((id, c.versions.last()?.commit, c.versions.len())))
            .collect();
        let mut old: Vec<RowId> = Vec::new();
        for (id, newest, len) in all {
            match self.stand(world, newest) {
                Stand::Before => old.push(id),
                Stand::After if len == 1 => {}
                _ => return,
            }
        }
        for id in old {
            world.store.table_mut(table).remove(id);
        }
        for row in rows {
            let id = world.store.table_mut(table).fresh_id();
            world.store.insert_seen(table, id, row, self.window.done);
        }
        world.store.table_mut(table).complete(self.window.done);
    }
}
