//! Rows in the order of a key: a tree of short sorted runs that is cheap to copy.
//!
//! Always true:
//!   - no run is empty, and no group of runs;
//!   - a run has what lies between the key that it begins with and the one that the next begins with; the first of all has
//!     what lies before as well.

use super::super::RowId;
use super::ids::Ids;
use crate::value::Key;
use std::ops::Bound;
use std::sync::Arc;

/// The hash of the key, and the value in the column of the order.
pub type SortedKey = (u64, Key);

/// Entries of a run, or runs of a group, beyond which it becomes two.
const PARTS_MAX: usize = 128;

/// Parts in order, each with the key that it begins with.
#[derive(Clone, Debug)]
struct Parts<T>(Vec<(SortedKey, T)>);

type Run = Parts<Ids>;
type Group = Parts<Arc<Run>>;

#[derive(Clone, Debug, Default)]
pub struct Runs {
    groups: Parts<Arc<Group>>,
}

impl<T> Default for Parts<T> {
    fn default() -> Parts<T> {
        Parts(Vec::new())
    }
}

impl<T> Parts<T> {
    /// The part that has, or would have, the key.
    fn part_of(&self, key: &SortedKey) -> usize {
        let after = self.0.partition_point(|(first, _)| first <= key);
        after.saturating_sub(1)
    }

    fn find(&self, key: &SortedKey) -> Result<usize, usize> {
        self.0.binary_search_by(|(k, _)| k.cmp(key))
    }

    fn is_full(&self) -> bool {
        self.0.len() > PARTS_MAX
    }

    /// Takes the upper half out.
    fn split(&mut self) -> Parts<T> {
        let upper = self.0.split_off(self.0.len() / 2);
        self.0.shrink_to_fit();
        Parts(upper)
    }
}

impl<T> Parts<Arc<Parts<T>>> {
    /// Adds a part, under the least of its keys.
    fn put(&mut self, at: usize, part: Parts<T>) {
        self.0.insert(at, (part.0[0].0.clone(), Arc::new(part)));
    }
}

impl Runs {
    /// The group and the run that have, or would have, the key; `None` while there are none.
    fn place_of(&self, key: &SortedKey) -> Option<(usize, usize)> {
        let group = self.groups.part_of(key);
        let (_, runs) = self.groups.0.get(group)?;
        Some((group, runs.part_of(key)))
    }

    pub fn insert(&mut self, key: SortedKey, id: RowId) {
        let one = |key: SortedKey| {
            let mut ids = Ids::default();
            ids.insert(id);
            (key, ids)
        };
        let Some((at, nth)) = self.place_of(&key) else {
            let mut group = Group::default();
            group.put(0, Parts(vec![one(key)]));
            self.groups.put(0, group);
            return;
        };
        let run = &self.groups.0[at].1.0[nth].1;
        let found = run.find(&key);
        if found.is_ok_and(|place| run.0[place].1.contains(id)) {
            return;
        }
        let group = Arc::make_mut(&mut self.groups.0[at].1);
        let run = Arc::make_mut(&mut group.0[nth].1);
        match found {
            Ok(place) => run.0[place].1.insert(id),
            Err(place) => run.0.insert(place, one(key)),
        }
        if run.is_full() {
            let upper = run.split();
            group.put(nth + 1, upper);
        }
        if group.is_full() {
            let upper = group.split();
            self.groups.put(at + 1, upper);
        }
    }

    pub fn remove(&mut self, key: &SortedKey, id: RowId) {
        let Some((at, nth)) = self.place_of(key) else {
            return;
        };
        let run = &self.groups.0[at].1.0[nth].1;
        let Ok(place) = run.find(key) else { return };
        if !run.0[place].1.contains(id) {
            return;
        }
        let group = Arc::make_mut(&mut self.groups.0[at].1);
        let run = Arc::make_mut(&mut group.0[nth].1);
        if run.0[place].1.remove(id) {
            run.0.remove(place);
        }
        if run.0.is_empty() {
            group.0.remove(nth);
        }
        if group.0.is_empty() {
            self.groups.0.remove(at);
        }
    }

    /// The entries between two bounds, in order.
    pub fn range<'a>(
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
        let groups = reached(&self.groups, lower, too_high).iter();
        let runs = groups.flat_map(move |(_, group)| reached(group, lower, too_high));
        let entries = runs.flat_map(move |(_, run)| {
            let first = run.0.partition_point(|(key, _)| too_low(key));
            let last = run.0.partition_point(|(key, _)| !too_high(key));
            &run.0[first..last.max(first)]
        });
        entries.map(|(key, ids)| (key, ids))
    }
}

/// The parts in which something may lie that is not too low, and not too high.
fn reached<'a, T>(
    parts: &'a Parts<T>,
    lower: &Bound<SortedKey>,
    too_high: impl Fn(&SortedKey) -> bool,
) -> &'a [(SortedKey, T)] {
    let first = match lower {
        Bound::Included(low) | Bound::Excluded(low) => parts.part_of(low),
        Bound::Unbounded => 0,
    };
    // The first of all may begin with less than it says.
    let last = parts.0.partition_point(|(key, _)| !too_high(key)).max(1);
    parts.0.get(first..last.max(first)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use std::collections::{BTreeMap, BTreeSet};

    fn key(hash: u64, value: i32) -> SortedKey {
        (hash, Key(Value::Int4(value)))
    }

    #[test]
    fn it_is_an_ordered_map() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut runs, mut model) = (Runs::default(), BTreeMap::<SortedKey, BTreeSet<u64>>::new());
        let mut copies = Vec::new();
        for round in 0..120_000 {
            let key = key(rng.u64(0..40), rng.i32(0..2_000));
            let id = rng.u64(0..3);
            // It grows, and then nearly all of it goes.
            if rng.u32(0..10) < if round < 80_000 { 7 } else { 1 } {
                runs.insert(key.clone(), RowId(id));
                model.entry(key).or_default().insert(id);
            } else {
                let known = model.range(key.clone()..).next().map(|(key, _)| key.clone());
                let key = known.filter(|_| rng.u8(0..5) > 0).unwrap_or(key);
                runs.remove(&key, RowId(id));
                if let Some(ids) = model.get_mut(&key) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        model.remove(&key);
                    }
                }
            }
            if round % 20_000 == 0 {
                copies.push((runs.clone(), model.clone()));
            }
        }
        let groups_most = copies.iter().map(|(runs, _)| runs.groups.0.len()).max();
        assert!(groups_most > Some(1), "it was never large");
        copies.push((runs, model));
        let listed = |(key, ids): (&SortedKey, &Ids)| {
            let mut list = BTreeSet::new();
            ids.each(|id| list.extend([id.0]));
            (key.clone(), list)
        };
        for (runs, model) in &copies {
            let all = (Bound::Unbounded, Bound::Unbounded);
            let all: Vec<_> = runs.range(&all.0, &all.1).map(listed).collect();
            assert!(
                all.iter().map(|(k, ids)| (k, ids)).eq(model),
                "everything is there"
            );
            for _ in 0..200 {
                let mut bound = |hash| {
                    let key = key(hash, rng.i32(-5..2_005));
                    match rng.bool() {
                        true => Bound::Included(key),
                        false => Bound::Excluded(key),
                    }
                };
                let (lower, upper) = (bound(7), bound(9));
                let expected = || model.range((lower.clone(), upper.clone()));
                let expected: Vec<_> = expected().map(|(k, ids)| (k.clone(), ids.clone())).collect();
                let found: Vec<_> = runs.range(&lower, &upper).map(listed).collect();
                assert_eq!(found, expected);
                let mut back: Vec<_> = runs.range(&lower, &upper).rev().map(listed).collect();
                back.reverse();
                assert_eq!(back, expected);
            }
        }
    }
}
