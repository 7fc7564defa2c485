//! Rows by the values of some columns, and, where asked for, in the order of one more.
//!
//! Always true:
//!   - a row with an unknown in one of the columns is found under every key;
//!   - what is found may hold a row with another key, seldom (keys are kept as hashes): whoever asks compares;
//!   - rows of one key come in an order that is the same on every run.

mod buckets;
mod ids;
mod runs;

use super::{Row, RowId};
use crate::value::compare::{hash_value, total_order};
use crate::value::{Key, Value};
use buckets::{Buckets, NEIGHBOUR_BITS};
use ids::Ids;
use runs::{Runs, SortedKey};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::ops::Bound;
use std::sync::Arc;

/// Cheap to copy where it is hashed, as nearly all are.
#[derive(Clone, Debug)]
pub struct Index {
    columns: Box<[usize]>,
    /// The column whose order the rows of one key are kept in.
    sorted: Option<usize>,
    rows: Rows,
    unknown: Arc<BTreeSet<RowId>>,
}

#[derive(Clone, Debug)]
enum Rows {
    Hashed(Buckets),
    Sorted(Runs),
}

/// A part of an order: values of one column.
#[derive(Clone, Debug)]
pub struct Range {
    pub column: usize,
    pub lower: Bound<Value>,
    pub upper: Bound<Value>,
    pub descending: bool,
    /// No more is asked for once there are this many.
    pub enough: usize,
    /// The rows before it were read already, and with them those that have no place in the order.
    pub goes_on: bool,
}

/// Where a row is kept.
enum Place {
    Hashed(u64),
    Sorted(u64, Key),
}

impl Index {
    pub fn new(columns: &[usize], sorted: Option<usize>) -> Index {
        Index {
            columns: columns.into(),
            sorted,
            rows: match sorted {
                None => Rows::Hashed(Buckets::default()),
                Some(_) => Rows::Sorted(Runs::default()),
            },
            unknown: Arc::default(),
        }
    }

    pub fn is_by(&self, columns: &[usize], sorted: Option<usize>) -> bool {
        *self.columns == *columns && self.sorted == sorted
    }

    /// `None` if a cell is unknown.
    fn place_of(&self, row: &Row) -> Option<Place> {
        let cell = |column: &usize| row.get(*column).filter(|value| !matches!(value, Value::Unknown));
        if !self.columns.iter().all(|column| cell(column).is_some()) {
            return None;
        }
        let hash = hash_of(self.columns.iter().filter_map(cell));
        match self.sorted.map(|column| row.get(column)) {
            None => Some(Place::Hashed(hash)),
            Some(None | Some(Value::Unknown)) => None,
            Some(Some(value)) => Some(Place::Sorted(hash, Key(value.clone()))),
        }
    }

    /// Whether both are kept at the same place.
    pub fn same_key(&self, a: &Row, b: &Row) -> bool {
        let columns = || self.columns.iter().copied().chain(self.sorted);
        let is_unknown =
            |row: &Row| columns().any(|column| matches!(row.get(column), None | Some(Value::Unknown)));
        if is_unknown(a) || is_unknown(b) {
            return is_unknown(a) && is_unknown(b);
        }
        let same = |column: usize| match (a.get(column), b.get(column)) {
            (Some(a), Some(b)) => total_order(a, b).is_eq(),
            (a, b) => a.is_none() && b.is_none(),
        };
        columns().all(same)
    }

    pub fn add(&mut self, row: &Row, id: RowId) {
        match (self.place_of(row), &mut self.rows) {
            (Some(Place::Hashed(hash)), Rows::Hashed(rows)) => rows.insert(hash, id),
            (Some(Place::Sorted(hash, key)), Rows::Sorted(rows)) => rows.insert((hash, key), id),
            _ => {
                if !self.unknown.contains(&id) {
                    Arc::make_mut(&mut self.unknown).insert(id);
                }
            }
        }
    }

    pub fn remove(&mut self, row: &Row, id: RowId) {
        match (self.place_of(row), &mut self.rows) {
            (Some(Place::Hashed(hash)), Rows::Hashed(rows)) => rows.remove(hash, id),
            (Some(Place::Sorted(hash, key)), Rows::Sorted(rows)) => rows.remove(&(hash, key), id),
            _ => {
                if self.unknown.contains(&id) {
                    Arc::make_mut(&mut self.unknown).remove(&id);
                }
            }
        }
    }

    pub fn find(&self, key: &[Value]) -> SmallVec<[RowId; 4]> {
        let Rows::Hashed(rows) = &self.rows else {
            return SmallVec::new();
        };
        let hash = hash_of(key.iter());
        let mut found: SmallVec<[RowId; 4]> = SmallVec::new();
        rows.each(hash, |id| found.push(id));
        let others = self.unknown.iter().copied();
        found.extend(others.filter(|id| !rows.contains(hash, *id)));
        found
    }

    /// The rows of a key in the order of the sorted column, each with the value it is kept under, and whether there
    /// are no more. Ends after the last row of a value; `unknown` rows are not among them.
    pub fn range(&self, key: &[Value], range: &Range) -> (Vec<(Key, SmallVec<[RowId; 2]>)>, bool) {
        let Rows::Sorted(rows) = &self.rows else {
            return (Vec::new(), true);
        };
        let hash = hash_of(key.iter());
        let bound = |bound: &Bound<Value>, none: Bound<(u64, Key)>| match bound {
            Bound::Included(value) => Bound::Included((hash, Key(value.clone()))),
            Bound::Excluded(value) => Bound::Excluded((hash, Key(value.clone()))),
            Bound::Unbounded => none,
        };
        // NULL is the least key, and unknown the greatest, which is never kept.
        let lower = bound(&range.lower, Bound::Included((hash, Key(Value::Null))));
        let upper = bound(&range.upper, Bound::Included((hash, Key(Value::Unknown))));
        if is_empty(&lower, &upper) {
            return (Vec::new(), true);
        }
        let mut found = Vec::new();
        let mut count = 0;
        let mut take = |(place, ids): (&SortedKey, &Ids)| {
            let mut list = SmallVec::new();
            ids.each(|id| list.push(id));
            count += list.len();
            found.push((place.1.clone(), list));
            count >= range.enough
        };
        let part = rows.range(&lower, &upper);
        let stopped = if range.descending {
            part.rev().any(&mut take)
        } else {
            let mut part = part;
            part.any(&mut take)
        };
        (found, !stopped)
    }

    /// Rows that may have any key.
    pub fn unknown(&self) -> impl Iterator<Item = RowId> + '_ {
        self.unknown.iter().copied()
    }
}

/// Whether nothing can lie between.
fn is_empty(lower: &Bound<(u64, Key)>, upper: &Bound<(u64, Key)>) -> bool {
    match (lower, upper) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low >= high
        }
        _ => false,
    }
}

/// Keys that end in numbers that follow each other differ in the lowest bits alone: they are kept side by side, so that what
/// comes after what was just written finds its place in the cache.
fn hash_of<'v>(key: impl DoubleEndedIterator<Item = &'v Value>) -> u64 {
    let mut hasher = FxHasher::default();
    let mut key = key.rev();
    let number = match key.next() {
        Some(Value::Int2(v)) => i64::from(*v),
        Some(Value::Int4(v)) => i64::from(*v),
        Some(Value::Int8(v)) => *v,
        last => {
            last.into_iter().for_each(|value| hash_value(value, &mut hasher));
            0
        }
    };
    hasher.write_i64(number >> NEIGHBOUR_BITS);
    key.for_each(|value| hash_value(value, &mut hasher));
    let nth = number as u64 & ((1 << NEIGHBOUR_BITS) - 1);
    hasher.finish() << NEIGHBOUR_BITS | nth
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn row(a: i32, b: i32) -> Row {
        Row::from(vec![Value::Int4(a), Value::Int4(b)])
    }

    #[test]
    fn rows_come_in_the_order_of_the_column() {
        let mut index = Index::new(&[0], Some(1));
        for n in 0..100 {
            index.add(&row(n % 2, n), RowId(n as u64));
        }
        let range = |lower, upper, descending, enough| Range {
            column: 1,
            lower,
            upper,
            descending,
            enough,
            goes_on: false,
        };
        let ids = |range: &Range| -> (Vec<u64>, bool) {
            let (found, over) = index.range(&[Value::Int4(0)], range);
            (
                found.iter().flat_map(|(_, ids)| ids).map(|id| id.0).collect(),
                over,
            )
        };
        let below = Bound::Excluded(Value::Int4(8));
        assert_eq!(
            ids(&range(Bound::Unbounded, below.clone(), false, usize::MAX)),
            (vec![0, 2, 4, 6], true)
        );
        assert_eq!(
            ids(&range(Bound::Unbounded, below.clone(), true, 2)),
            (vec![6, 4], false)
        );
        assert_eq!(
            ids(&range(Bound::Included(Value::Int4(9)), below, false, 2)),
            (vec![], true)
        );
    }

    #[test]
    fn many_rows_of_one_key_come_and_go() {
        let mut index = Index::new(&[0], None);
        for n in 0..100 {
            index.add(&row(1, n), RowId(n as u64));
            index.add(&row(1, n), RowId(n as u64));
        }
        assert_eq!(index.find(&[Value::Int4(1)]).len(), 100);
        for n in 0..99 {
            index.remove(&row(1, n), RowId(n as u64));
        }
        let last: SmallVec<[RowId; 4]> = smallvec![RowId(99)];
        assert_eq!(index.find(&[Value::Int4(1)]), last);
        index.add(&Row::from(vec![Value::Unknown, Value::Null]), RowId(7));
        assert_eq!(index.find(&[Value::Int4(5)]).as_slice(), [RowId(7)]);
    }
}
