//! Tables as chains of row versions.
//!
//! In: the net writes of commits, in the order of the audit. Out: for every row its versions, oldest
//! first, each with the commit that made it.
//!
//! Always true:
//!   - the versions of a chain are in the order in which their writers held the row;
//!   - a row has the same id in every copy of the store, and no other row ever gets it;
//!   - a version whose successor every future snapshot must see is gone;
//!   - an index names every row of which any kept version has the key.

mod doubts;

use super::chains::Chains;
use super::contents::Contents;
use super::index::{Index, Range};
use super::view::{Knowledge, has_key};
use super::{Catalog, Row, RowId, TableId};
use crate::points::CommitId;
use crate::trace::Nanos;
use crate::value::{Key, Value};
use doubts::{Doubts, Guesses};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Debug)]
pub struct Version {
    pub commit: CommitId,
    /// `None`: deleted.
    pub row: Option<Row>,
    /// Made by TRUNCATE or a rewrite, which older snapshots see as well.
    pub rewrite: bool,
    /// Learned from an answer that arrived at this instant: snapshots before it may have seen anything.
    pub since: Nanos,
    /// What all versions up to the next one have in common: nobody knows which of them a snapshot saw.
    pub vague: bool,
    /// Perhaps the row was left alone, and not locked.
    pub perhaps: bool,
}

impl Version {
    pub fn new(commit: CommitId, row: Option<Row>) -> Version {
        Version {
            commit,
            row,
            rewrite: false,
            since: 0,
            perhaps: false,
            vague: false,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Chain {
    pub versions: SmallVec<[Version; 1]>,
    /// Snapshots from before this teach nothing about it: which of its versions they saw is not known.
    pub(super) unsettled_until: Nanos,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub knowledge: Knowledge,
    /// By row id; an empty chain is no row.
    chains: Chains,
    /// The next row's id, of all copies of the table together.
    next: Arc<AtomicU64>,
    indexes: RefCell<Vec<Index>>,
    rows_len: usize,
    /// What somebody wrote until then had to be guessed: an answer from before that accuses nobody.
    guessed_until: Nanos,
    /// The same, where it is known which keys were written.
    guessed: Arc<Guesses>,
    /// Snapshots from before this may have seen other versions of some rows than the one that is kept.
    blurred_until: Nanos,
    /// It was read as a whole: snapshots from before this may have seen other rows.
    whole_since: Nanos,
    /// Snapshots from before this teach nothing: something unknown happened to any of its rows.
    unstable_until: Nanos,
    /// The same, for what is not about a single row.
    disturbed_until: Nanos,
    /// Until this instant commits that wrote it may have become visible.
    busy_until: Nanos,
    /// Until this instant somebody may have written it whom nobody saw.
    unseen_until: Option<Nanos>,
    /// Keys of which nothing is known: an answer about them was wrong, or who wrote there last is open.
    doubtful: Arc<Doubts>,
    /// Partial tables: keys of which every row is known, and since when.
    known: Arc<doubts::Known>,
}

impl Table {
    pub fn new(knowledge: Knowledge) -> Table {
        Table {
            knowledge,
            chains: Chains::default(),
            next: Arc::default(),
            indexes: RefCell::new(Vec::new()),
            rows_len: 0,
            guessed_until: 0,
            guessed: Arc::default(),
            blurred_until: 0,
            whole_since: 0,
            unstable_until: 0,
            disturbed_until: 0,
            busy_until: 0,
            unseen_until: None,
            doubtful: Arc::default(),
            known: Arc::default(),
        }
    }

    pub fn chain(&self, id: RowId) -> Option<&Chain> {
        self.chains.get(id.0 as usize).filter(|c| !c.versions.is_empty())
    }

    pub fn chains(&self) -> impl Iterator<Item = (RowId, &Chain)> {
        let all = self.chains.iter().filter(|(_, c)| !c.versions.is_empty());
        all.map(|(at, c)| (RowId(at as u64), c))
    }

    /// Rows of which some kept version has `key` in `columns`, or an unknown there.
    pub fn candidates(&self, columns: &[usize], key: &[Value]) -> SmallVec<[RowId; 4]> {
        self.with_index(columns, None, |index| index.find(key))
    }

    /// A row that has this key now, as far as is known, and what it holds.
    pub fn live(&self, columns: &[usize], key: &[Value]) -> Option<(RowId, Row)> {
        self.candidates(columns, key).into_iter().find_map(|id| {
            let newest = self.chain(id)?.versions.last()?.row.as_ref()?;
            has_key(newest, columns, key).then(|| (id, newest.clone()))
        })
    }

    /// Rows in the order of one column: those with `key` in `columns` (or with an unknown, in the first list), each
    /// with the value under which it was found; and whether there are no more.
    pub fn range(
        &self,
        columns: &[usize],
        key: &[Value],
        range: &Range,
    ) -> (Vec<RowId>, Vec<(Key, RowId)>, bool) {
        self.with_index(columns, Some(range.column), |index| {
            let (found, over) = index.range(key, range);
            let found = found
                .into_iter()
                .flat_map(|(key, ids)| ids.into_iter().map(move |id| (key.clone(), id)));
            (index.unknown().collect(), found.collect(), over)
        })
    }

    /// The index, built when it is first asked for.
    fn with_index<T>(&self, columns: &[usize], sorted: Option<usize>, ask: impl FnOnce(&Index) -> T) -> T {
        let mut indexes = self.indexes.borrow_mut();
        let at = match indexes.iter().position(|i| i.is_by(columns, sorted)) {
            Some(at) => at,
            None => {
                let mut index = Index::new(columns, sorted);
                self.chains
                    .for_each_row(|id, row| index.add(row, RowId(id as u64)));
                indexes.push(index);
                indexes.len() - 1
            }
        };
        ask(&indexes[at])
    }

    /// Puts a version below the one of a commit, if that is known.
    fn push_under(&mut self, id: RowId, commit: CommitId, version: Version) -> bool {
        let place = |chain: &Chain| chain.versions.iter().position(|v| v.commit == commit);
        let Some(at) = self.chain(id).and_then(place) else {
            return false;
        };
        self.push_at(id, at, version);
        true
    }

    /// Puts a version below all that are known of a row.
    pub fn push_below(&mut self, id: RowId, version: Version) {
        self.push_at(id, 0, version);
    }

    fn push_at(&mut self, id: RowId, at: usize, version: Version) {
        if let Some(row) = &version.row {
            for index in self.indexes.get_mut() {
                index.add(row, id);
            }
        }
        self.chains.get_mut(id.0 as usize).versions.insert(at, version);
    }

    /// Rows that a snapshot taken at `sent` could not find here, although they may have been there.
    pub fn learned_since(&self, sent: Nanos) -> Vec<RowId> {
        let late = |c: &Chain| {
            c.versions.iter().any(|v| v.since > 0 && v.since >= sent) && !c.versions.iter().any(|v| v.vague)
        };
        let learned = self.chains.learned_since(sent).filter(|(_, c)| late(c));
        learned.map(|(id, _)| RowId(id as u64)).collect()
    }

    pub fn rows_len(&self) -> usize {
        self.rows_len
    }

    /// An id that no row has had.
    pub fn fresh_id(&self) -> RowId {
        RowId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes over the rows of a copy; indexes are built anew when they are asked for.
    fn load(&mut self, contents: Contents) {
        let rows = contents.len();
        let first = self.next.fetch_add(rows as u64, Ordering::Relaxed);
        self.chains.load(first as usize, contents);
        self.rows_len += rows;
        self.indexes.get_mut().clear();
    }

    /// A new row; its first version comes with it.
    pub fn insert(&mut self, id: RowId, version: Version) {
        self.rows_len += usize::from(self.chain(id).is_none());
        self.push(id, version);
    }

    /// The next version of a row.
    pub fn push(&mut self, id: RowId, version: Version) {
        let chain = self.chains.get_mut(id.0 as usize);
        if let Some(row) = &version.row {
            let last = chain.versions.last().and_then(|v| v.row.as_ref());
            for index in self.indexes.get_mut() {
                // Most changes leave the key alone.
                if !last.is_some_and(|last| index.same_key(last, row)) {
                    index.add(row, id);
                }
            }
        }
        chain.versions.push(version);
    }

    /// Gives a known value to an unknown cell, wherever in the chain that version is, says a snapshot taken at `from`.
    pub fn learn(&mut self, id: RowId, row: &Row, column: usize, value: &Value, from: Nanos) {
        if self.chain(id).is_none_or(|chain| from <= chain.unsettled_until) {
            return;
        }
        let mut learned = false;
        for version in &mut self.chains.get_mut(id.0 as usize).versions {
            let Some(kept) = &version.row else { continue };
            if Arc::ptr_eq(kept, row) {
                let mut cells: Vec<Value> = kept.to_vec();
                cells[column] = value.clone();
                version.row = Some(cells.into());
                learned = true;
            }
        }
        if learned {
            self.reindex(id, std::slice::from_ref(row));
        }
    }

    /// Keeps the indexes true after some versions of a row have changed; `gone`: what they were. Another version may have
    /// the same key as one of these.
    fn reindex(&mut self, id: RowId, gone: &[Row]) {
        let versions = self.chains.get(id.0 as usize).map_or(&[][..], |c| &c.versions);
        for index in self.indexes.get_mut() {
            gone.iter().for_each(|row| index.remove(row, id));
            let kept = versions.iter().filter_map(|v| v.row.as_ref());
            kept.for_each(|row| index.add(row, id));
        }
    }

    /// What `commit` made of a row is a guess: the cells that it changed are unknown, in its version and in all
    /// later ones, which may be computed from it. Where it inserted or deleted the row, the row is taken out, and
    /// what it was before that and since is returned: nobody knows whether it is there.
    pub fn soften(&mut self, id: RowId, commit: CommitId) -> Vec<Row> {
        let versions = self.chain(id).map_or(&[][..], |chain| &chain.versions);
        let Some(at) = versions.iter().position(|v| v.commit == commit) else {
            return Vec::new();
        };
        let below: Option<Row> = at.checked_sub(1).and_then(|b| versions[b].row.clone());
        let (Some(made), Some(_)) = (versions[at].row.clone(), &below) else {
            let since = versions[at..].iter().filter_map(|v| v.row.clone());
            let forms = below.into_iter().chain(since).collect();
            self.remove(id);
            return forms;
        };
        let changed: Vec<usize> = (0..made.len())
            .filter(|&c| {
                below
                    .as_ref()
                    .is_none_or(|b| b.get(c).is_none_or(|v| Key(v.clone()) != Key(made[c].clone())))
            })
            .collect();
        self.blank(id, at, |column| changed.contains(&column));
        Vec::new()
    }

    /// How the row came to be what it is does not matter any more, or is not known: only its newest version stays,
    /// and snapshots from before `until` may have seen anything, or, where the row was always there, something that
    /// looks like `vague`.
    pub fn blur(&mut self, id: RowId, until: Nanos, vague: Option<Row>) {
        if self.chain(id).is_none() {
            return;
        }
        let chain = self.chains.get_mut(id.0 as usize);
        let newest = chain.versions.last().and_then(|v| v.row.clone());
        let gone: Vec<Row> = chain.versions.drain(..).filter_map(|v| v.row).collect();
        match vague.filter(|_| newest.is_some()) {
            None => self.blurred_until = self.blurred_until.max(until),
            Some(row) => chain.versions.push(Version {
                vague: true,
                ..Version::new(CommitId::INITIAL, Some(row))
            }),
        }
        let version = Version {
            since: until,
            ..Version::new(CommitId::INITIAL, newest)
        };
        chain.versions.push(version);
        self.reindex(id, &gone);
    }

    /// The same, of what the row was before its last versions, so many of which stay as they are: snapshots that see none of
    /// them have seen something that looks like `vague`.
    pub fn blur_below(&mut self, id: RowId, last: usize, vague: Row) {
        if self.chain(id).is_none() {
            return;
        }
        let chain = self.chains.get_mut(id.0 as usize);
        let below = chain.versions.len().saturating_sub(last);
        let gone: Vec<Row> = chain.versions.iter().filter_map(|v| v.row.clone()).collect();
        chain.versions.drain(..below);
        let past = Version {
            vague: true,
            ..Version::new(CommitId::INITIAL, Some(vague))
        };
        chain.versions.insert(0, past);
        self.reindex(id, &gone);
    }

    /// Nobody knows whether the row is there: it is taken out. Returns its newest version.
    pub fn remove(&mut self, id: RowId) -> Option<Row> {
        self.chain(id)?;
        let gone = std::mem::take(&mut self.chains.get_mut(id.0 as usize).versions);
        let rows: Vec<Row> = gone.into_iter().filter_map(|v| v.row).collect();
        self.reindex(id, &rows);
        self.rows_len -= 1;
        rows.last().cloned()
    }

    /// Makes single cells of the newest version unknown.
    pub fn soften_cells(&mut self, id: RowId, columns: &[usize]) {
        let Some(row) = self
            .chain(id)
            .and_then(|c| c.versions.last())
            .and_then(|v| v.row.clone())
        else {
            return;
        };
        let unknown = without(&row, |column| columns.contains(&column));
        for index in self.indexes.get_mut() {
            // Older versions may still be found by the old key.
            index.add(&unknown, id);
        }
        if let Some(newest) = self.chains.get_mut(id.0 as usize).versions.last_mut() {
            newest.row = Some(unknown);
        }
    }

    /// Makes every cell outside `columns` unknown, in every version.
    pub fn unlearn(&mut self, id: RowId, columns: &[usize]) {
        if self.chain(id).is_none() {
            return;
        }
        self.blank(id, 0, |column| !columns.contains(&column));
    }

    /// Makes cells unknown in every version from number `from` on.
    fn blank(&mut self, id: RowId, from: usize, is_unknown: impl Fn(usize) -> bool) {
        let mut gone: SmallVec<[Row; 2]> = SmallVec::new();
        for version in &mut self.chains.get_mut(id.0 as usize).versions[from..] {
            let Some(row) = &mut version.row else { continue };
            let unknown = without(row, &is_unknown);
            gone.push(std::mem::replace(row, unknown));
        }
        self.reindex(id, &gone);
    }

    /// Forgets what no snapshot can ask for any more: everything before the last version made at or
    /// before `settled`. Returns how many versions went.
    pub fn prune(&mut self, id: RowId, settled: CommitId) -> u64 {
        let Some(chain) = self.chain(id) else {
            return 0;
        };
        let Some(mut keep) = chain.versions.iter().rposition(|v| v.commit < settled) else {
            return 0;
        };
        if chain.versions[keep].since > 0 && keep > 0 && chain.versions[keep - 1].vague {
            // Snapshots from before that have nothing else to look at.
            keep -= 1;
        }
        if keep == 0 && (chain.versions.len() > 1 || chain.versions[0].row.is_some()) {
            return 0;
        }
        let chain = self.chains.get_mut(id.0 as usize);
        let mut gone: SmallVec<[Version; 2]> = chain.versions.drain(..keep).collect();
        let dead = chain.versions.len() == 1 && chain.versions[0].row.is_none();
        if dead {
            gone.extend(chain.versions.drain(..));
        }
        let kept = chain.versions.clone();
        for version in &gone {
            let Some(row) = &version.row else { continue };
            for index in self.indexes.get_mut() {
                if !kept
                    .iter()
                    .any(|k| k.row.as_ref().is_some_and(|r| index.same_key(r, row)))
                {
                    index.remove(row, id);
                }
            }
        }
        if dead {
            self.rows_len -= 1;
            self.chains.trim(id.0 as usize);
        }
        gone.len() as u64
    }

    /// Nothing is known of its rows any more.
    pub fn forget(&mut self) -> u64 {
        let gone = self.chains.versions_len();
        *self = Table {
            next: self.next.clone(),
            guessed_until: self.guessed_until,
            guessed: self.guessed.clone(),
            // Whoever wrote it before may become visible only later, and is forgotten now.
            unstable_until: self.unstable_until.max(self.busy_until),
            disturbed_until: self.disturbed_until.max(self.busy_until),
            busy_until: self.busy_until,
            unseen_until: self.unseen_until,
            ..Table::new(Knowledge::Partial)
        };
        gone
    }
}

/// The row with some of its cells unknown.
fn without(row: &Row, is_unknown: impl Fn(usize) -> bool) -> Row {
    let cells = row.iter().enumerate();
    cells
        .map(|(column, value)| match is_unknown(column) {
            true => Value::Unknown,
            false => value.clone(),
        })
        .collect()
}

/// All tables, and the catalog that describes them.
#[derive(Clone, Debug)]
pub struct Store {
    pub catalog: Arc<Catalog>,
    /// When the last commit that changed it had ended.
    pub catalog_since: Nanos,
    /// Until then somebody may have written any table whom nobody saw.
    unseen_until: Option<Nanos>,
    pub tables: FxHashMap<TableId, Table>,
    /// What sequences give next; only while somebody is judged who was alone.
    pub sequences: Option<Arc<FxHashMap<TableId, i64>>>,
    pub versions_alive: u64,
    pub versions_collected: u64,
}

impl Store {
    pub fn new(catalog: Arc<Catalog>) -> Store {
        Store {
            catalog,
            catalog_since: 0,
            unseen_until: None,
            tables: FxHashMap::default(),
            sequences: None,
            versions_alive: 0,
            versions_collected: 0,
        }
    }

    /// The table, unknown at first sight.
    pub fn table_mut(&mut self, id: TableId) -> &mut Table {
        self.tables
            .entry(id)
            .or_insert_with(|| Table::new(Knowledge::Partial))
    }

    pub fn insert(&mut self, table: TableId, id: RowId, version: Version) {
        self.versions_alive += 1;
        self.table_mut(table).insert(id, version);
    }

    /// The rows of a table as they were copied before anything else was known of them.
    pub fn load(&mut self, table: TableId, contents: Contents) {
        self.versions_alive += contents.len() as u64;
        self.table_mut(table).load(contents);
    }

    /// A row as it was seen by a snapshot taken until `since`.
    pub fn insert_seen(&mut self, table: TableId, id: RowId, row: Row, since: Nanos) {
        let version = Version {
            since,
            ..Version::new(CommitId::INITIAL, Some(row))
        };
        self.insert(table, id, version);
    }

    pub fn push(&mut self, table: TableId, id: RowId, version: Version) {
        self.versions_alive += 1;
        self.table_mut(table).push(id, version);
    }

    /// Puts a version below the one of a commit, if that is known.
    pub fn push_under(&mut self, table: TableId, id: RowId, commit: CommitId, version: Version) {
        let is_there = self.table_mut(table).push_under(id, commit, version);
        self.versions_alive += u64::from(is_there);
    }

    pub fn prune(&mut self, table: TableId, id: RowId, settled: CommitId) {
        if let Some(kept) = self.tables.get_mut(&table) {
            let gone = kept.prune(id, settled);
            self.versions_alive -= gone;
            self.versions_collected += gone;
        }
    }

    /// The primary key of a row, where the table has one and it is known.
    pub fn key_of(&self, table: TableId, row: &Row) -> Option<(Vec<usize>, Vec<Value>)> {
        let key = self.catalog.table(table)?.primary_key()?;
        let values: Option<Vec<Value>> = key.columns.iter().map(|c| row.get(*c).cloned()).collect();
        let values = values.filter(|values| !values.iter().any(|v| v.is_null() || v.has_unknown()))?;
        Some((key.columns.clone(), values))
    }

    /// Whether a snapshot taken after `at` finds every row with this key. Of rows of which only the newest version is kept
    /// it is not known where else they were, but for their primary key.
    pub fn knows(&self, table: TableId, columns: &[usize], key: &[Value], at: Nanos) -> bool {
        let is_primary = || {
            let primary = self.catalog.table(table).and_then(|t| t.primary_key());
            primary.is_some_and(|primary| *primary.columns == *columns)
        };
        let kept = self.tables.get(&table);
        kept.is_some_and(|t| t.knows(columns, key, at) && (!t.is_blurred(at) || is_primary()))
    }

    /// Nobody knows whether there is a row with the key of this one.
    pub fn distrust(&mut self, table: TableId, row: &Row, until: Nanos) {
        match self.key_of(table, row) {
            Some((columns, key)) => self.table_mut(table).distrust(&columns, &key, until),
            None => self.lose(table, until),
        }
    }

    /// Nobody knows which rows have this key: those that may have it now are taken out, and it is not known either where
    /// else they were. Those that have another one by now stay.
    pub fn take_out(&mut self, table: TableId, columns: &[usize], key: &[Value], until: Nanos) {
        let ids = self.table_mut(table).candidates(columns, key);
        self.table_mut(table).distrust(columns, key, until);
        for id in ids {
            self.take_out_row(table, id, columns, key, until);
        }
    }

    /// The same, of one row.
    pub fn take_out_row(
        &mut self,
        table: TableId,
        id: RowId,
        columns: &[usize],
        key: &[Value],
        until: Nanos,
    ) {
        let kept = self.table_mut(table);
        let Some(chain) = kept.chain(id) else { return };
        let newest = chain.versions.last().and_then(|v| v.row.as_ref());
        if !newest.is_some_and(|row| has_key(row, columns, key)) {
            return;
        }
        let forms: Vec<Row> = chain.versions.iter().filter_map(|v| v.row.clone()).collect();
        kept.remove(id);
        let is_elsewhere = |row: &&Row| {
            columns
                .iter()
                .zip(key)
                .any(|(c, v)| Key(row[*c].clone()) != Key(v.clone()))
        };
        for row in forms.iter().filter(is_elsewhere) {
            self.distrust(table, row, until);
        }
    }

    /// Whether the rows of a table can be told from each other.
    pub fn is_keyed(&self, table: TableId) -> bool {
        let table = self.catalog.table(table);
        table.is_some_and(|table| table.primary_key().is_some())
    }

    /// Nothing is known of a table any more, nor learned from snapshots from before `until`.
    pub fn lose(&mut self, table: TableId, until: Nanos) {
        self.forget(table);
        self.table_mut(table).unsettle(until);
    }

    /// The same, and until then somebody may write it whom nobody sees.
    pub fn lose_to_unseen(&mut self, table: TableId, until: Nanos) {
        self.lose(table, until);
        let kept = self.table_mut(table);
        kept.unseen_until = kept.unseen_until.max(Some(until));
    }

    /// The same, for all tables.
    pub fn lose_everything_to_unseen(&mut self, until: Nanos) {
        self.forget_everything();
        self.tables.values_mut().for_each(|t| t.unsettle(until));
        self.unseen_until = self.unseen_until.max(Some(until));
    }

    /// Nobody whom nobody sees writes after `at`.
    pub fn settle(&mut self, at: Nanos) {
        let end = |until: Option<Nanos>| until.map(|until| until.min(at));
        self.unseen_until = end(self.unseen_until);
        for table in self.tables.values_mut() {
            table.unseen_until = end(table.unseen_until);
            table.settle(at);
        }
    }

    /// Until when somebody unseen may have written a table after a commit that was asked for at `sent`.
    pub fn unseen_since(&self, table: TableId, sent: Nanos) -> Option<Nanos> {
        let of_table = self.tables.get(&table).and_then(|t| t.unseen_until);
        of_table.max(self.unseen_until).filter(|until| sent <= *until)
    }

    pub fn forget(&mut self, table: TableId) {
        let gone = self.table_mut(table).forget();
        self.versions_alive -= gone;
    }

    pub fn forget_everything(&mut self) {
        let all: Vec<TableId> = self.tables.keys().copied().collect();
        for table in all {
            self.forget(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_may_not_have_been_inserted_is_missed_wherever_it_was_since() {
        let mut table = Table::new(Knowledge::Complete);
        let row = |key: i32| -> Row { vec![Value::Int4(key)].into() };
        let id = table.fresh_id();
        table.insert(id, Version::new(CommitId(1), Some(row(3))));
        table.push(id, Version::new(CommitId(2), Some(row(2))));
        let gone = table.soften(id, CommitId(1));
        let keys: Vec<Key> = gone.iter().map(|row| Key(row[0].clone())).collect();
        assert_eq!(keys, [Key(Value::Int4(3)), Key(Value::Int4(2))]);
        assert!(table.chain(id).is_none());
    }

    #[test]
    fn a_version_that_is_learned_leaves_the_others_where_they_are_found() {
        let mut table = Table::new(Knowledge::Complete);
        let row = || -> Row { vec![Value::Int4(1), Value::Unknown].into() };
        let (id, first) = (table.fresh_id(), row());
        table.insert(id, Version::new(CommitId(1), Some(first.clone())));
        table.push(id, Version::new(CommitId(2), Some(row())));
        let nine = [Value::Int4(9)];
        assert_eq!(table.candidates(&[1], &nine).to_vec(), [id]);
        table.learn(id, &first, 1, &Value::Int4(7), 1);
        assert_eq!(
            table.candidates(&[1], &nine).to_vec(),
            [id],
            "the newest may be 9"
        );
        assert_eq!(table.candidates(&[1], &[Value::Int4(7)]).to_vec(), [id]);
    }
}
