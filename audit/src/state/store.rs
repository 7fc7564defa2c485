//! Tables as chains of row versions.
//!
//! In: the net writes of commits, in the order of the audit. Out: for every row its versions, oldest
//! first, each with the commit that made it.
//!
//! Always true:
//!   - the versions of a chain are in the order in which their writers held the row;
//!   - a version whose successor every future snapshot must see is gone;
//!   - an index names every row of which any kept version has the key.

use super::index::{Index, Range};
use super::view::Knowledge;
use super::{Catalog, Row, RowId, TableId};
use crate::points::CommitId;
use crate::trace::Nanos;
use crate::value::{Key, Value};
use crate::verdict::TxnId;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Version {
    pub commit: CommitId,
    /// `None`: deleted.
    pub row: Option<Row>,
    /// Made by TRUNCATE or a rewrite, which older snapshots see as well.
    pub rewrite: bool,
    /// Learned from an answer that arrived at this instant: snapshots before it may have seen anything.
    pub since: Nanos,
}

impl Version {
    pub fn new(commit: CommitId, row: Option<Row>) -> Version {
        Version {
            commit,
            row,
            rewrite: false,
            since: 0,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Chain {
    pub versions: SmallVec<[Version; 1]>,
}

/// Whose writes to a table had to be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guessed {
    Nothing,
    By(TxnId),
    Several,
}

/// Keys of a partial table that are remembered as known.
const KNOWN_MAX: usize = 100_000;

#[derive(Debug)]
pub struct Table {
    pub knowledge: Knowledge,
    /// By row id; an empty chain is a free slot.
    chains: Vec<Chain>,
    free: Vec<u32>,
    indexes: RefCell<Vec<Index>>,
    rows_len: usize,
    /// What some transaction wrote here had to be guessed once: an answer that does not fit accuses nobody.
    guessed: Guessed,
    /// Until this instant a commit whose fate is unknown may still take effect: nothing is learned.
    pub unstable_until: Nanos,
    /// Keys about which an answer was wrong, so that nothing is known of them.
    doubtful: FxHashSet<(Box<[usize]>, Vec<Key>)>,
    /// Partial tables: keys of which every row is known, and since when.
    known: FxHashMap<(Box<[usize]>, Vec<Key>), Nanos>,
}

impl Table {
    pub fn new(knowledge: Knowledge) -> Table {
        Table {
            knowledge,
            chains: Vec::new(),
            free: Vec::new(),
            indexes: RefCell::new(Vec::new()),
            rows_len: 0,
            guessed: Guessed::Nothing,
            unstable_until: 0,
            doubtful: FxHashSet::default(),
            known: FxHashMap::default(),
        }
    }

    pub fn chain(&self, id: RowId) -> Option<&Chain> {
        self.chains.get(id.0 as usize).filter(|c| !c.versions.is_empty())
    }

    pub fn chains(&self) -> impl Iterator<Item = (RowId, &Chain)> {
        let all = self.chains.iter().enumerate();
        all.filter(|(_, c)| !c.versions.is_empty())
            .map(|(at, c)| (RowId(at as u64), c))
    }

    /// Rows of which some kept version has `key` in `columns`, or an unknown there.
    pub fn candidates(&self, columns: &[usize], key: &[Value]) -> SmallVec<[RowId; 4]> {
        self.with_index(columns, None, |index| index.find(key))
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
                for (id, chain) in self.chains() {
                    for version in &chain.versions {
                        if let Some(row) = &version.row {
                            index.add(row, id);
                        }
                    }
                }
                indexes.push(index);
                indexes.len() - 1
            }
        };
        ask(&indexes[at])
    }

    /// Every row with this key is known, from `since` on.
    pub fn know(&mut self, columns: &[usize], key: &[Value], since: Nanos) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let key: Vec<Key> = key.iter().cloned().map(Key).collect();
        let place = (columns.into(), key);
        self.doubtful.remove(&place);
        if self.knowledge == Knowledge::Partial {
            self.known.entry(place).or_insert(since);
        }
    }

    /// An answer about this key was wrong: there may be other rows, and other values.
    pub fn distrust(&mut self, columns: &[usize], key: &[Value]) {
        let key: Vec<Key> = key.iter().cloned().map(Key).collect();
        let place = (columns.into(), key);
        self.known.remove(&place);
        self.doubtful.insert(place);
    }

    /// What a scan can rely on.
    pub fn scanned(&self) -> Knowledge {
        if self.doubtful.is_empty() {
            self.knowledge
        } else {
            Knowledge::Partial
        }
    }

    /// What this transaction wrote had to be guessed.
    pub fn guess(&mut self, txn: TxnId) {
        self.guessed = match self.guessed {
            Guessed::Nothing => Guessed::By(txn),
            Guessed::By(other) if other == txn => Guessed::By(txn),
            _ => Guessed::Several,
        };
    }

    /// Whether somebody else's writes had to be guessed.
    pub fn is_guessed_but_for(&self, txn: TxnId) -> bool {
        !matches!(self.guessed, Guessed::Nothing) && self.guessed != Guessed::By(txn)
    }

    pub fn is_guessed(&self) -> bool {
        self.guessed != Guessed::Nothing
    }

    /// Something unknown happened to it before `until`: what snapshots from before that show is not learned.
    pub fn unsettle(&mut self, until: Nanos) {
        self.unstable_until = self.unstable_until.max(until);
    }

    /// Rows that nobody has seen were written: no key is known any more.
    pub fn doubt(&mut self) {
        self.known.clear();
    }

    /// Whether a snapshot taken after `at` finds every row with this key.
    pub fn knows(&self, columns: &[usize], key: &[Value], at: Nanos) -> bool {
        if self.doubtful.is_empty() && self.knowledge == Knowledge::Complete {
            return true;
        }
        if self.doubtful.is_empty() && self.known.is_empty() {
            return false;
        }
        let key: Vec<Key> = key.iter().cloned().map(Key).collect();
        if self.knowledge == Knowledge::Complete {
            // A row whose key is in doubt may have anything in its other columns.
            let comparable = self.doubtful.iter().all(|(other, _)| **other == *columns);
            return comparable && !self.doubtful.contains(&(columns.into(), key));
        }
        self.known
            .get(&(columns.into(), key))
            .is_some_and(|since| *since < at)
    }

    pub fn rows_len(&self) -> usize {
        self.rows_len
    }

    /// A new row; its first version comes with it.
    pub fn insert(&mut self, version: Version) -> RowId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.chains.push(Chain::default());
            (self.chains.len() - 1) as u32
        });
        let id = RowId(u64::from(slot));
        self.rows_len += 1;
        self.push(id, version);
        id
    }

    /// The next version of a row.
    pub fn push(&mut self, id: RowId, version: Version) {
        let chain = &mut self.chains[id.0 as usize];
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

    /// Gives a known value to an unknown cell, wherever in the chain that version is.
    pub fn learn(&mut self, id: RowId, row: &Row, column: usize, value: &Value) {
        let Some(chain) = self.chains.get_mut(id.0 as usize) else {
            return;
        };
        for version in &mut chain.versions {
            let Some(kept) = &version.row else { continue };
            if Arc::ptr_eq(kept, row) {
                let mut cells: Vec<Value> = kept.to_vec();
                cells[column] = value.clone();
                let learned: Row = cells.into();
                for index in self.indexes.get_mut() {
                    index.remove(row, id);
                    index.add(&learned, id);
                }
                version.row = Some(learned);
            }
        }
    }

    /// What `commit` made of a row is a guess: the cells that it changed are unknown, in its version and in all
    /// later ones, which may be computed from it. Where it inserted or deleted the row, the row is taken out and
    /// returned: nobody knows whether it is there.
    pub fn soften(&mut self, id: RowId, commit: CommitId) -> Option<Row> {
        let chain = self.chains.get_mut(id.0 as usize)?;
        let at = chain.versions.iter().position(|v| v.commit == commit)?;
        let below: Option<Row> = at.checked_sub(1).and_then(|b| chain.versions[b].row.clone());
        let made = chain.versions[at].row.clone();
        let (Some(made), Some(_)) = (&made, &below) else {
            let gone = std::mem::take(&mut chain.versions);
            let rows: Vec<Row> = gone.into_iter().filter_map(|v| v.row).collect();
            for row in &rows {
                for index in self.indexes.get_mut() {
                    index.remove(row, id);
                }
            }
            self.rows_len -= 1;
            return made.or(below);
        };
        let made = made.clone();
        let changed: Vec<usize> = (0..made.len())
            .filter(|&c| {
                below
                    .as_ref()
                    .is_none_or(|b| b.get(c).is_none_or(|v| Key(v.clone()) != Key(made[c].clone())))
            })
            .collect();
        for version in &mut chain.versions[at..] {
            let Some(row) = &version.row else { continue };
            let cells = row.iter().enumerate();
            let cells: Vec<Value> = cells
                .map(|(c, v)| {
                    if changed.contains(&c) {
                        Value::Unknown
                    } else {
                        v.clone()
                    }
                })
                .collect();
            let unknown: Row = cells.into();
            for index in self.indexes.get_mut() {
                index.remove(row, id);
                index.add(&unknown, id);
            }
            version.row = Some(unknown);
        }
        None
    }

    /// Makes every cell outside `columns` unknown, in every version.
    pub fn unlearn(&mut self, id: RowId, columns: &[usize]) {
        let Some(chain) = self.chains.get_mut(id.0 as usize) else {
            return;
        };
        for version in &mut chain.versions {
            let Some(row) = &version.row else { continue };
            let cells = row.iter().enumerate();
            let cells: Vec<Value> = cells
                .map(|(at, v)| {
                    if columns.contains(&at) {
                        v.clone()
                    } else {
                        Value::Unknown
                    }
                })
                .collect();
            let unknown: Row = cells.into();
            for index in self.indexes.get_mut() {
                index.remove(row, id);
                index.add(&unknown, id);
            }
            version.row = Some(unknown);
        }
    }

    /// Forgets what no snapshot can ask for any more: everything before the last version made at or
    /// before `settled`. Returns how many versions went.
    pub fn prune(&mut self, id: RowId, settled: CommitId) -> u64 {
        let Some(chain) = self.chains.get_mut(id.0 as usize) else {
            return 0;
        };
        let Some(keep) = chain.versions.iter().rposition(|v| v.commit < settled) else {
            return 0;
        };
        let mut gone: SmallVec<[Version; 2]> = chain.versions.drain(..keep).collect();
        let dead = chain.versions.len() == 1 && chain.versions[0].row.is_none();
        if dead {
            gone.extend(chain.versions.drain(..));
        }
        let kept = &self.chains[id.0 as usize].versions;
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
            self.free.push(id.0 as u32);
        }
        gone.len() as u64
    }

    /// Nothing is known of its rows any more.
    pub fn forget(&mut self) -> u64 {
        let gone = self.chains.iter().map(|c| c.versions.len() as u64).sum();
        let (guessed, unstable_until) = (self.guessed, self.unstable_until);
        *self = Table {
            guessed,
            unstable_until,
            ..Table::new(Knowledge::Partial)
        };
        gone
    }
}

/// All tables, and the catalog that describes them.
#[derive(Debug)]
pub struct Store {
    pub catalog: Arc<Catalog>,
    pub tables: FxHashMap<TableId, Table>,
    pub versions_alive: u64,
    pub versions_collected: u64,
}

impl Store {
    pub fn new(catalog: Arc<Catalog>) -> Store {
        Store {
            catalog,
            tables: FxHashMap::default(),
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

    pub fn insert(&mut self, table: TableId, version: Version) -> RowId {
        self.versions_alive += 1;
        self.table_mut(table).insert(version)
    }

    pub fn push(&mut self, table: TableId, id: RowId, version: Version) {
        self.versions_alive += 1;
        self.table_mut(table).push(id, version);
    }

    pub fn prune(&mut self, table: TableId, id: RowId, settled: CommitId) {
        if let Some(kept) = self.tables.get_mut(&table) {
            let gone = kept.prune(id, settled);
            self.versions_alive -= gone;
            self.versions_collected += gone;
        }
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
