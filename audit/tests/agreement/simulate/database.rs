//! Rows with their versions and locks.
//!
//! Always true: versions are ordered by the number of the commit that made them; whoever has written a row is its owner
//! until he has ended.

use super::query::{Table, Unique};
use crate::history::Pair;
use fastrand::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// One row from its birth to its death; a key that is inserted again is another row.
struct Row {
    table: Table,
    /// By commit number; `None` is deleted.
    versions: Vec<(u64, Option<Pair>)>,
    owner: Option<usize>,
    /// Its owner does more than writing what nobody refers to.
    is_owned_whole: bool,
    /// Who refers to it.
    sharers: Vec<usize>,
    /// What its owner has made of it.
    claimed: Vec<Pair>,
}

/// What a transaction has made so far.
#[derive(Clone, Default)]
pub struct Own {
    pub rows: BTreeMap<usize, Option<Pair>>,
    locked: Vec<usize>,
    shared: Vec<usize>,
    /// What it has looked at.
    pub reads: Vec<(Table, Option<Vec<i64>>)>,
}

/// A SERIALIZABLE transaction that has committed.
struct Committed {
    snapshot: u64,
    commit: u64,
    reads: Vec<(Table, Option<Vec<i64>>)>,
    writes: Vec<(Table, i64)>,
}

pub struct Database {
    rows: Vec<Row>,
    clock: u64,
    committed: Vec<Committed>,
    /// Every row that is read may be that of another state, as this says.
    mixes: Option<RefCell<Rng>>,
}

/// What a row is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To refer to it.
    Refer,
    /// To write what nobody refers to.
    Write,
    /// For anything.
    Whole,
}

/// Who has what is unique.
pub enum Holder {
    Nobody,
    Row(usize),
    Waits(usize),
}

impl Database {
    pub fn new(kv: &[Pair], bag: &[Pair], mixes: Option<Rng>) -> Database {
        let row = |table: Table, row: &Pair| Row {
            table,
            versions: vec![(0, Some(*row))],
            owner: None,
            is_owned_whole: false,
            sharers: Vec::new(),
            claimed: Vec::new(),
        };
        let kv = kv.iter().map(|r| row(Table::Kv, r));
        Database {
            rows: kv.chain(bag.iter().map(|r| row(Table::Bag, r))).collect(),
            clock: 0,
            committed: Vec::new(),
            mixes: mixes.map(RefCell::new),
        }
    }

    /// The snapshot that sees everything.
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// The rows that a transaction sees: its own versions, or the newest of its snapshot; or, where states are mixed, any
    /// version that was committed, unless a key would come twice.
    pub fn visible(&self, table: Table, own: &Own, snapshot: u64) -> Vec<(usize, Pair)> {
        let of_table = |row: &usize| self.rows[*row].table == table;
        if self.mixes.is_some() {
            let rows = (0..self.rows.len()).filter(of_table);
            let mixed: Vec<_> = rows
                .filter_map(|row| Some((row, self.any_version(row, own)?)))
                .collect();
            let mut keys: Vec<i64> = mixed.iter().map(|(_, (k, _))| *k).collect();
            keys.sort_unstable();
            keys.dedup();
            if table == Table::Bag || keys.len() == mixed.len() {
                return mixed;
            }
        }
        let seen = |row: usize| match own.rows.get(&row) {
            Some(made) => *made,
            None => {
                let mut newest = self.rows[row].versions.iter().rev();
                newest.find(|(c, _)| *c <= snapshot).and_then(|(_, v)| *v)
            }
        };
        (0..self.rows.len())
            .filter(of_table)
            .filter_map(|row| Some((row, seen(row)?)))
            .collect()
    }

    /// A row as it was in any state that was committed.
    fn any_version(&self, row: usize, own: &Own) -> Option<Pair> {
        let now = self.newest(row, own);
        let Some(rng) = &self.mixes else { return now };
        let mut rng = rng.borrow_mut();
        let versions = &self.rows[row].versions;
        match (rng.u8(0..4), versions.len()) {
            (0, _) | (_, 0) => now,
            // Before it was there.
            (1, _) if rng.u8(0..3) == 0 => None,
            (_, len) => versions[rng.usize(0..len)].1,
        }
    }

    /// The version that somebody writes anew: the newest, or, where states are mixed, an older one of the same key.
    pub fn found(&self, row: usize, own: &Own) -> Option<Pair> {
        let now = self.newest(row, own)?;
        let older = self.any_version(row, own).filter(|(k, _)| *k == now.0);
        Some(older.unwrap_or(now))
    }

    /// Both tables, as somebody sees them who comes now.
    pub fn committed(&self) -> (Vec<Pair>, Vec<Pair>) {
        let rows = |table| {
            let visible = self.visible(table, &Own::default(), self.clock);
            visible.into_iter().map(|(_, row)| row).collect()
        };
        (rows(Table::Kv), rows(Table::Bag))
    }

    pub fn changed_since(&self, row: usize, snapshot: u64) -> bool {
        self.rows[row].versions.last().is_some_and(|(c, _)| *c > snapshot)
    }

    /// Whether somebody else holds the row so that it cannot be had.
    pub fn is_blocked(&self, row: usize, session: usize, need: Need) -> bool {
        let owned = self.owner(row, session).is_some();
        match need {
            Need::Refer => owned && self.rows[row].is_owned_whole,
            Need::Write => owned,
            Need::Whole => owned || self.rows[row].sharers.iter().any(|s| *s != session),
        }
    }

    /// Who holds the row, if it is somebody else.
    pub fn owner(&self, row: usize, session: usize) -> Option<usize> {
        self.rows[row].owner.filter(|o| *o != session)
    }

    /// The newest version: the transaction's own, or the last that was committed.
    pub fn newest(&self, row: usize, own: &Own) -> Option<Pair> {
        match own.rows.get(&row) {
            Some(made) => *made,
            None => self.rows[row].versions.last().and_then(|(_, v)| *v),
        }
    }

    /// Whether somebody has set the key of a row free since a snapshot; with `distinct` its value is a key, too.
    pub fn lost_its_keys_since(&self, row: usize, snapshot: u64, distinct: bool) -> bool {
        let mut versions = self.rows[row].versions.windows(2);
        versions.any(|pair| {
            let ((_, before), (commit, after)) = (pair[0], pair[1]);
            let keys = |made: Option<Pair>| made.map(|(k, v)| (k, v.filter(|_| distinct)));
            commit > snapshot && keys(before) != keys(after)
        })
    }

    /// Locks a row against those who would set its key free.
    pub fn share(&mut self, own: &mut Own, session: usize, row: usize) {
        if !own.shared.contains(&row) {
            own.shared.push(row);
            self.rows[row].sharers.push(session);
        }
    }

    /// Locks a row.
    pub fn take(&mut self, own: &mut Own, session: usize, row: usize, need: Need) {
        self.rows[row].is_owned_whole |= need == Need::Whole;
        self.rows[row].owner = Some(session);
        if !own.locked.contains(&row) {
            own.locked.push(row);
        }
    }

    /// Writes a row that is locked.
    pub fn put(&mut self, own: &mut Own, row: usize, made: Option<Pair>) {
        self.rows[row].claimed.extend(made);
        own.rows.insert(row, made);
    }

    pub fn insert(&mut self, own: &mut Own, session: usize, table: Table, made: Pair) -> usize {
        let row = self.rows.len();
        self.rows.push(Row {
            table,
            versions: Vec::new(),
            owner: None,
            is_owned_whole: false,
            sharers: Vec::new(),
            claimed: Vec::new(),
        });
        self.take(own, session, row, Need::Whole);
        self.put(own, row, Some(made));
        row
    }

    /// Who has in `kv` now what is unique of `wanted`, whatever a snapshot says.
    pub fn holder(
        &self,
        unique: Unique,
        wanted: Pair,
        own: &Own,
        session: usize,
        except: Option<usize>,
    ) -> Holder {
        let wanted = unique.of(wanted);
        if wanted.is_none() {
            return Holder::Nobody;
        }
        let has = |row: Pair| unique.of(row) == wanted;
        for (id, row) in self.rows.iter().enumerate() {
            if row.table != Table::Kv || Some(id) == except {
                continue;
            }
            let committed = row.versions.last().and_then(|(_, v)| *v);
            let is_claimed = row.claimed.iter().any(|made| has(*made)) || committed.is_some_and(has);
            // Inserted, changed or deleted by somebody who has not ended: wait for it.
            if is_claimed && self.owner(id, session).is_some() {
                return Holder::Waits(id);
            }
            if self.newest(id, own).is_some_and(has) {
                return Holder::Row(id);
            }
        }
        Holder::Nobody
    }

    /// Undoes what was done since a savepoint.
    pub fn back_to(&mut self, own: &mut Own, session: usize, saved: Own) {
        for row in own.shared.iter().filter(|r| !saved.shared.contains(r)) {
            self.rows[*row].sharers.retain(|s| *s != session);
        }
        for row in own.locked.iter().filter(|r| !saved.locked.contains(r)) {
            self.rows[*row].owner = None;
            self.rows[*row].is_owned_whole = false;
            self.rows[*row].claimed.clear();
        }
        let reads = std::mem::take(&mut own.reads);
        *own = Own { reads, ..saved };
    }

    pub fn release(&mut self, own: &mut Own, session: usize) {
        self.back_to(own, session, Own::default());
        own.reads.clear();
    }

    /// Makes everything visible; with the snapshot of a transaction that was promised a serial order, only if there
    /// still is one. Otherwise everything is undone.
    pub fn commit(&mut self, own: &mut Own, session: usize, serial: Option<u64>) -> bool {
        let commit = self.clock + 1;
        if let Some(snapshot) = serial {
            let written = own.rows.iter().flat_map(|(id, made)| {
                let row = &self.rows[*id];
                let before = row.versions.last().and_then(|(_, v)| *v);
                [before, *made].into_iter().flatten().map(|(k, _)| (row.table, k))
            });
            self.committed.push(Committed {
                snapshot,
                commit,
                writes: written.collect(),
                reads: own.reads.clone(),
            });
            if self.has_cycle() {
                self.committed.pop();
                self.release(own, session);
                return false;
            }
        }
        self.clock = commit;
        for (row, made) in std::mem::take(&mut own.rows) {
            self.rows[row].versions.push((commit, made));
        }
        self.release(own, session);
        true
    }

    /// Whether the newest of the SERIALIZABLE transactions comes before itself.
    fn has_cycle(&self) -> bool {
        let last = self.committed.len() - 1;
        let (mut reached, mut to_do) = (vec![false; last + 1], vec![last]);
        while let Some(at) = to_do.pop() {
            for (next, (other, reached)) in self.committed.iter().zip(&mut reached).enumerate() {
                if next != at && self.committed[at].is_before(other) {
                    if next == last {
                        return true;
                    }
                    if !std::mem::replace(reached, true) {
                        to_do.push(next);
                    }
                }
            }
        }
        false
    }
}

impl Committed {
    fn is_before(&self, other: &Committed) -> bool {
        let wrote_what_it_writes =
            self.commit < other.commit && self.writes.iter().any(|w| other.writes.contains(w));
        let wrote_what_it_reads = self.commit <= other.snapshot && meet(&other.reads, &self.writes);
        let read_what_it_overwrites = other.commit > self.snapshot && meet(&self.reads, &other.writes);
        wrote_what_it_writes || wrote_what_it_reads || read_what_it_overwrites
    }
}

fn meet(reads: &[(Table, Option<Vec<i64>>)], writes: &[(Table, i64)]) -> bool {
    reads.iter().any(|(table, keys)| {
        writes
            .iter()
            .any(|(written, k)| written == table && keys.as_ref().is_none_or(|keys| keys.contains(k)))
    })
}
