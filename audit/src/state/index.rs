//! Rows by the values of some columns.
//!
//! Always true: a row with an unknown in one of the columns is found under every key.

use super::{Row, RowId};
use crate::value::{Key, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

type IndexKey = SmallVec<[Key; 2]>;

#[derive(Debug)]
pub struct Index {
    columns: Box<[usize]>,
    rows: FxHashMap<IndexKey, SmallVec<[RowId; 2]>>,
    unknown: Vec<RowId>,
}

impl Index {
    pub fn new(columns: &[usize]) -> Index {
        Index {
            columns: columns.into(),
            rows: FxHashMap::default(),
            unknown: Vec::new(),
        }
    }

    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// `None` if a cell is unknown.
    fn key_of(&self, row: &Row) -> Option<IndexKey> {
        let mut key = IndexKey::new();
        for &column in &self.columns {
            match row.get(column) {
                None | Some(Value::Unknown) => return None,
                Some(value) => key.push(Key(value.clone())),
            }
        }
        Some(key)
    }

    pub fn same_key(&self, a: &Row, b: &Row) -> bool {
        self.key_of(a) == self.key_of(b)
    }

    pub fn add(&mut self, row: &Row, id: RowId) {
        match self.key_of(row) {
            Some(key) => {
                let rows = self.rows.entry(key).or_default();
                if !rows.contains(&id) {
                    rows.push(id);
                }
            }
            None => {
                if !self.unknown.contains(&id) {
                    self.unknown.push(id);
                }
            }
        }
    }

    pub fn remove(&mut self, row: &Row, id: RowId) {
        match self.key_of(row) {
            Some(key) => {
                if let Some(rows) = self.rows.get_mut(&key) {
                    rows.retain(|r| *r != id);
                    if rows.is_empty() {
                        self.rows.remove(&key);
                    }
                }
            }
            None => self.unknown.retain(|r| *r != id),
        }
    }

    pub fn find(&self, key: &[Value]) -> SmallVec<[RowId; 4]> {
        let key: IndexKey = key.iter().map(|v| Key(v.clone())).collect();
        let mut found: SmallVec<[RowId; 4]> = self.rows.get(&key).into_iter().flatten().copied().collect();
        found.extend(
            self.unknown
                .iter()
                .copied()
                .filter(|id| !self.rows.get(&key).is_some_and(|r| r.contains(id))),
        );
        found
    }
}
