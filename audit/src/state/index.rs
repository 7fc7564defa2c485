//! Rows by the values of some columns, and, where asked for, in the order of one more.
//!
//! Always true:
//!   - a row with an unknown in one of the columns is found under every key;
//!   - what is found may hold a row with another key, seldom (keys are kept as hashes): whoever asks compares;
//!   - rows of one key come in an order that is the same on every run.

mod buckets;
mod ids;

use super::{Row, RowId};
use crate::value::compare::{hash_value, total_order};
use crate::value::{Key, Value};
use buckets::Buckets;
use ids::Ids;
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

/// The hash of the key, and the value in the column of the order.
type SortedKey = (u64, Key);

/// An ordered map that is cheap to copy: short sorted runs, one after the other.
#[derive(Clone, Debug, Default)]
struct Runs {
    /// None of them is empty.
    runs: Vec<Arc<Vec<(SortedKey, Ids)>>>,
}

/// Entries beyond which a run becomes two.
const RUN_MAX: usize = 128;

impl Runs {
    /// The run that has, or would have, the key.
    fn run_of(&self, key: &SortedKey) -> usize {
        let after = self.runs.partition_point(|run| run[0].0 <= *key);
        after.saturating_sub(1)
    }

    fn insert(&mut self, key: SortedKey, id: RowId) {
        let at = self.run_of(&key);
        let Some(run) = self.runs.get_mut(at) else {
            let mut ids = Ids::default();
            ids.insert(id);
            self.runs.push(Arc::new(vec![(key, ids)]));
            return;
        };
        match run.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(place) if run[place].1.contains(id) => {}
            Ok(place) => Arc::make_mut(run)[place].1.insert(id),
            Err(place) => {
                let mut ids = Ids::default();
                ids.insert(id);
                let run = Arc::make_mut(run);
                run.insert(place, (key, ids));
                if run.len() > RUN_MAX {
                    let upper = run.split_off(RUN_MAX / 2);
                    run.shrink_to_fit();
                    self.runs.insert(at + 1, Arc::new(upper));
                }
            }
        }
    }

    fn remove(&mut self, key: &SortedKey, id: RowId) {
        let at = self.run_of(key);
        let Some(run) = self.runs.get_mut(at) else { return };
        let Ok(place) = run.binary_search_by(|(k, _)| k.cmp(key)) else {
            return;
        };
        if !run[place].1.contains(id) {
            return;
        }
        let run = Arc::make_mut(run);
        if run[place].1.remove(id) {
            run.remove(place);
        }
        if run.is_empty() {
            self.runs.remove(at);
        }
    }

    /// The entries between two bounds, in order.
    fn range<'a>(
        &'a self,
        lower: &'a Bound<SortedKey>,
        upper: &'a Bound<SortedKey>,
    ) -> impl DoubleEndedIterator<Item = (&'a SortedKey, &'a Ids)> {
        let too_low = move |key: &SortedKey| match lower {
            Bound::Included(low) => key < low,
            Bound::Excluded(low) => key <= low,
            Bound::Unbounded => false,
        };
        let too_high = move |key: &SortedKey| match upper {
            Bound::Included(high) => key > high,
            Bound::Excluded(high) => key >= high,
            Bound::Unbounded => false,
        };
        let first = self.runs.partition_point(|run| too_low(&run[run.len() - 1].0));
        let last = self.runs.partition_point(|run| !too_high(&run[0].0));
        let runs = self.runs.get(first..last.max(first)).unwrap_or(&[]);
        let entries = runs.iter().flat_map(|run| run.iter());
        let inside = entries.filter(move |(key, _)| !too_low(key) && !too_high(key));
        inside.map(|(key, ids)| (key, ids))
    }
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
        let mut hasher = FxHasher::default();
        for &column in &self.columns {
            match row.get(column) {
                None | Some(Value::Unknown) => return None,
                Some(value) => hash_value(value, &mut hasher),
            }
        }
        let hash = hasher.finish();
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
        let hash = hash_of(key);
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
        let hash = hash_of(key);
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

fn hash_of(key: &[Value]) -> u64 {
    let mut hasher = FxHasher::default();
    key.iter().for_each(|value| hash_value(value, &mut hasher));
    hasher.finish()
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
