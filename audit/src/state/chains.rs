//! The chains of versions of a table, by the number of their row.
//!
//! A large table that was copied as a whole is kept as it was copied: packed, and its rows are unpacked when somebody
//! asks for them. Most rows of a large table are never asked for; those that a statement only passed by when it read
//! the whole table are packed again.
//!
//! Always true:
//!   - copies of a table unpack the same row: the same row is the same allocation in all of them, and as long as
//!     anybody has it;
//!   - a copy never sees what is written to the other.

use super::Row;
use super::contents::Contents;
use super::forest::Forest;
use super::store::{Chain, Version};
use crate::points::CommitId;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A copy with fewer rows is unpacked at once.
const PACKED_MIN: usize = 5_000;
/// So many rows, or this part of a copy if that is more, may stay unpacked: unpacking is not free either.
const UNPACKED_MIN: usize = 50_000;
const UNPACKED_SHARE: usize = 4;

#[derive(Clone, Debug, Default)]
pub struct Chains {
    /// An empty chain is no row.
    loose: Forest<Chain>,
    /// Ordered by their first number; numbers within them are not loose.
    packed: Vec<Arc<Packed>>,
    /// Rows of `packed` that were written since.
    written: Forest<Option<Box<Chain>>>,
}

/// The rows of one copy.
#[derive(Debug)]
struct Packed {
    first: usize,
    contents: Contents,
    unpacked: Box<[OnceLock<Box<Chain>>]>,
    unpacked_len: AtomicUsize,
    /// So many rows were in use when they were last looked through.
    used_len: usize,
}

impl Packed {
    fn ids(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.unpacked.len()
    }

    fn chain(&self, at: usize) -> &Chain {
        let number = at - self.first;
        self.unpacked[number].get_or_init(|| {
            self.unpacked_len.fetch_add(1, Relaxed);
            Box::new(as_copied(self.contents.row(number)))
        })
    }

    fn is_to_repack(&self, least: usize) -> bool {
        let least = least.max(self.unpacked.len() / UNPACKED_SHARE);
        self.unpacked_len.load(Relaxed) > least.max(2 * self.used_len)
    }

    /// Drops the unpacked rows that nobody else holds.
    fn repack(&mut self) {
        self.used_len = 0;
        for place in &mut self.unpacked {
            match place.get() {
                None => (),
                Some(chain) if is_unused(chain) => drop(place.take()),
                Some(_) => self.used_len += 1,
            }
        }
        *self.unpacked_len.get_mut() = self.used_len;
    }
}

/// The one version that a copied row has.
fn as_copied(row: Option<Row>) -> Chain {
    let mut chain = Chain::default();
    chain.versions.push(Version::new(CommitId::INITIAL, row));
    chain
}

/// Whether nobody could tell it from one that is unpacked anew.
fn is_unused(chain: &Chain) -> bool {
    let held = |version: &Version| {
        version
            .row
            .as_ref()
            .is_some_and(|row| Arc::strong_count(row) > 1 || Arc::weak_count(row) > 0)
    };
    !chain.versions.iter().any(held)
}

impl Chains {
    fn packed(&self, at: usize) -> Option<&Arc<Packed>> {
        let after = self.packed.partition_point(|packed| packed.first <= at);
        let packed = self.packed.get(after.checked_sub(1)?)?;
        packed.ids().contains(&at).then_some(packed)
    }

    pub fn get(&self, at: usize) -> Option<&Chain> {
        match self.packed(at) {
            None => self.loose.get(at),
            Some(packed) => match self.written.get(at) {
                Some(Some(chain)) => Some(chain),
                _ => Some(packed.chain(at)),
            },
        }
    }

    /// The chain, made if it was not there.
    pub fn get_mut(&mut self, at: usize) -> &mut Chain {
        match self.packed(at).cloned() {
            None => self.loose.get_mut(at),
            Some(packed) => self
                .written
                .get_mut(at)
                .get_or_insert_with(|| Box::new(packed.chain(at).clone())),
        }
    }

    /// Every chain; those of a copy first. Unpacks all of them.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Chain)> {
        let packed = self.packed.iter().flat_map(|packed| packed.ids());
        let packed = packed.filter_map(|at| Some((at, self.get(at)?)));
        packed.chain(self.loose.iter())
    }

    /// Every chain that is not just what was copied.
    pub fn changed(&self) -> impl Iterator<Item = (usize, &Chain)> {
        let written = self.written.iter();
        let written = written.filter_map(|(at, chain)| Some((at, chain.as_deref()?)));
        written.chain(self.loose.iter())
    }

    /// Every version of every row; nothing stays unpacked because of it.
    pub fn for_each_row(&self, mut each: impl FnMut(usize, &Row)) {
        for packed in &self.packed {
            for (at, row) in packed.ids().zip(packed.contents.iter()) {
                if !matches!(self.written.get(at), Some(Some(_))) {
                    each(at, &row);
                }
            }
        }
        for (at, chain) in self.changed() {
            let rows = chain.versions.iter().filter_map(|version| version.row.as_ref());
            rows.for_each(|row| each(at, row));
        }
    }

    pub fn versions_len(&self) -> u64 {
        let copied: usize = self.packed.iter().map(|packed| packed.ids().len()).sum();
        let written = self.written.iter().filter(|(_, chain)| chain.is_some()).count();
        let changed: usize = self.changed().map(|(_, chain)| chain.versions.len()).sum();
        (copied - written + changed) as u64
    }

    /// Gives back the memory around an empty chain.
    pub fn trim(&mut self, at: usize) {
        if self.packed(at).is_none() {
            self.loose.trim(at, |chain| chain.versions.is_empty());
        }
    }

    /// Packs rows of a copy again that somebody looked at and nobody keeps, if there are many, and if there is no other
    /// copy of this table now.
    pub fn repack(&mut self) {
        self.repack_beyond(UNPACKED_MIN);
    }

    fn repack_beyond(&mut self, least: usize) {
        let many = self.packed.iter_mut().filter(|packed| packed.is_to_repack(least));
        many.filter_map(Arc::get_mut).for_each(Packed::repack);
    }

    /// Takes over a copy whose rows get the numbers from `first` on, which nobody has had.
    pub fn load(&mut self, first: usize, contents: Contents) {
        if contents.len() < PACKED_MIN {
            for (place, row) in contents.iter().enumerate() {
                *self.loose.get_mut(first + place) = as_copied(Some(row));
            }
            return;
        }
        let unpacked = std::iter::repeat_with(OnceLock::new);
        self.packed.push(Arc::new(Packed {
            first,
            unpacked: unpacked.take(contents.len()).collect(),
            unpacked_len: AtomicUsize::new(0),
            used_len: 0,
            contents,
        }));
        self.packed.sort_by_key(|packed| packed.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    /// Numbers from 0 on: packed if there are many.
    fn loaded(len: usize) -> Chains {
        let mut chains = Chains::default();
        chains.load(0, Contents::of_numbers(len));
        chains
    }

    fn number(chain: &Chain) -> Option<i32> {
        match chain.versions.last()?.row.as_ref()?.first()? {
            Value::Int4(number) => Some(*number),
            _ => None,
        }
    }

    #[test]
    fn packed_rows_are_there_and_the_same_in_every_copy() {
        let one = loaded(PACKED_MIN);
        assert_eq!(one.packed.len(), 1);
        let mut two = one.clone();
        two.get_mut(70).versions.clear();
        let row = |chains: &Chains, at: usize| chains.get(at).and_then(|c| c.versions[0].row.clone());
        let (a, b) = (row(&one, 71).unwrap(), row(&two, 71).unwrap());
        assert!(Arc::ptr_eq(&a, &b), "whoever compares rows may compare places");
        assert_eq!(number(one.get(70).unwrap()), Some(70));
        assert!(two.get(70).unwrap().versions.is_empty());
        assert!(one.get(PACKED_MIN).is_none());
    }

    #[test]
    fn what_was_only_passed_by_is_packed_again() {
        let mut chains = loaded(PACKED_MIN);
        let unpacked = |chains: &Chains| chains.packed[0].unpacked.iter().flat_map(OnceLock::get).count();
        assert_eq!(chains.iter().count(), PACKED_MIN);
        chains.get_mut(5).versions.clear();
        let held = chains
            .get(70)
            .and_then(|chain| chain.versions[0].row.clone())
            .unwrap();
        assert_eq!(unpacked(&chains), PACKED_MIN);
        // Another copy of the table could compare rows with this one.
        let other = chains.clone();
        chains.repack_beyond(0);
        assert_eq!(unpacked(&chains), PACKED_MIN);
        drop(other);
        chains.repack();
        assert_eq!(unpacked(&chains), PACKED_MIN, "these are few");
        chains.repack_beyond(0);
        assert_eq!(unpacked(&chains), 1);
        // Whoever holds a row finds the same again; whoever does not finds an equal one.
        let again = chains
            .get(70)
            .and_then(|chain| chain.versions[0].row.clone())
            .unwrap();
        assert!(Arc::ptr_eq(&held, &again));
        assert_eq!(number(chains.get(71).unwrap()), Some(71));
        assert!(chains.get(5).unwrap().versions.is_empty());
        assert_eq!(chains.packed[0].unpacked_len.load(Relaxed), 2);
        assert_eq!(
            chains.iter().filter_map(|(_, chain)| number(chain)).count(),
            PACKED_MIN - 1
        );
    }

    #[test]
    fn packed_or_loose_makes_no_difference() {
        let seen = |chains: &Chains| {
            let mut rows = Vec::new();
            chains.for_each_row(|at, row| rows.push((at, format!("{row:?}"))));
            rows.sort();
            let all: Vec<(usize, Option<i32>)> = chains.iter().map(|(at, c)| (at, number(c))).collect();
            let all: Vec<_> = all.into_iter().filter(|(_, number)| number.is_some()).collect();
            (rows, all, chains.versions_len())
        };
        let mut packed = loaded(PACKED_MIN);
        let mut loose = Chains::default();
        for (at, row) in Contents::of_numbers(PACKED_MIN).iter().enumerate() {
            *loose.get_mut(at) = as_copied(Some(row));
        }
        assert_eq!(seen(&packed), seen(&loose));
        for chains in [&mut packed, &mut loose] {
            let row: Row = Arc::from([Value::Int4(-1)]);
            let version = Version::new(CommitId::INITIAL, Some(row));
            chains.get_mut(9).versions.push(version.clone());
            chains.get_mut(PACKED_MIN + 3).versions.push(version);
            chains.get_mut(12).versions.clear();
            chains.trim(12);
        }
        assert_eq!(seen(&packed), seen(&loose));
        assert_eq!(
            packed.changed().filter(|(_, c)| !c.versions.is_empty()).count(),
            2
        );
    }
}
