//! The chains of versions of a table, by the number of their row.
//!
//! A large table that was copied as a whole is kept as it was copied: packed, and its rows are unpacked when somebody
//! asks for them. Most rows of a large table are never asked for; those that a statement only passed by when it read
//! the whole table are packed again. Rows that came one by one are packed, too, once nobody has asked for them or for one
//! of their neighbours for long.
//!
//! Always true:
//!   - copies of a table unpack the same row: the same row is the same allocation in all of them, and as long as
//!     anybody has it;
//!   - a copy never sees what is written to the other.

use super::Row;
use super::block::{PLACES, is_unused};
use super::bunch::Bunch;
use super::contents::Contents;
use super::forest::Forest;
use super::store::{Chain, Version};
use crate::points::CommitId;
use crate::trace::Nanos;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A copy with fewer rows is unpacked at once.
const PACKED_MIN: usize = 5_000;
/// So many rows, or this part of a copy if that is more, may stay unpacked: unpacking is not free either.
const UNPACKED_MIN: usize = 50_000;
const UNPACKED_SHARE: usize = 4;
/// So many bunches of rows that came one by one may stay loose.
const LISTED_MIN: usize = 1_024;
/// This part of those beyond is looked at in one go, and at most so many.
const LOOKED_AT_SHARE: usize = 16;
const LOOKED_AT_MAX: usize = 4_096;

#[derive(Clone, Debug, Default)]
pub struct Chains {
    /// Those that came one by one. An empty chain is no row.
    bunches: Forest<Option<Arc<Bunch>>>,
    /// Numbers of the bunches that may have something to pack, in any copy of the table.
    listed: Arc<Mutex<VecDeque<usize>>>,
    /// Ordered by their first number; numbers within them are in no bunch.
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

impl Chains {
    fn packed(&self, at: usize) -> Option<&Arc<Packed>> {
        let after = self.packed.partition_point(|packed| packed.first <= at);
        let packed = self.packed.get(after.checked_sub(1)?)?;
        packed.ids().contains(&at).then_some(packed)
    }

    pub fn get(&self, at: usize) -> Option<&Chain> {
        match self.packed(at) {
            None => self.bunch(at)?.get(at % PLACES),
            Some(packed) => match self.written.get(at) {
                Some(Some(chain)) => Some(chain),
                _ => Some(packed.chain(at)),
            },
        }
    }

    /// The chain, made if it was not there.
    pub fn get_mut(&mut self, at: usize) -> &mut Chain {
        match self.packed(at).cloned() {
            None => self.bunch_mut(at).get_mut(at % PLACES),
            Some(packed) => self
                .written
                .get_mut(at)
                .get_or_insert_with(|| Box::new(packed.chain(at).clone())),
        }
    }

    /// The bunch of a row that somebody asks for.
    fn bunch(&self, at: usize) -> Option<&Bunch> {
        let bunch = self.bunches.get(at / PLACES)?.as_deref()?;
        if bunch.touch() {
            list(&self.listed, at / PLACES);
        }
        Some(bunch)
    }

    fn bunch_mut(&mut self, at: usize) -> &mut Bunch {
        let bunch = Arc::make_mut(self.bunches.get_mut(at / PLACES).get_or_insert_default());
        if bunch.touch() {
            list(&self.listed, at / PLACES);
        }
        bunch
    }

    fn bunches(&self) -> impl Iterator<Item = (usize, &Bunch)> {
        let all = self.bunches.iter();
        all.filter_map(|(number, bunch)| Some((number * PLACES, bunch.as_deref()?)))
    }

    /// Every chain; those of a copy first. Unpacks all of them.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Chain)> {
        let packed = self.packed.iter().flat_map(|packed| packed.ids());
        let packed = packed.filter_map(|at| Some((at, self.get(at)?)));
        let firsts = self.bunches().map(|(first, _)| first);
        let bunches = firsts.filter_map(|first| Some((first, self.bunch(first)?)));
        packed.chain(
            bunches.flat_map(|(first, bunch)| bunch.iter().map(move |(place, chain)| (first + place, chain))),
        )
    }

    fn written(&self) -> impl Iterator<Item = (usize, &Chain)> {
        let written = self.written.iter();
        written.filter_map(|(at, chain)| Some((at, chain.as_deref()?)))
    }

    /// Every chain of which something was learned at `sent` or later, and others.
    pub fn learned_since(&self, sent: Nanos) -> impl Iterator<Item = (usize, &Chain)> {
        let bunches = self.bunches().flat_map(move |(first, bunch)| {
            let learned = bunch.learned_since(sent);
            learned.map(move |(place, chain)| (first + place, chain))
        });
        self.written().chain(bunches)
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
        for (at, chain) in self.written() {
            let rows = chain.versions.iter().filter_map(|version| version.row.as_ref());
            rows.for_each(|row| each(at, row));
        }
        for (first, bunch) in self.bunches() {
            bunch.for_each_row(|place, row| each(first + place, row));
        }
    }

    pub fn versions_len(&self) -> u64 {
        let copied: usize = self.packed.iter().map(|packed| packed.ids().len()).sum();
        let written: usize = self.written().map(|(_, chain)| chain.versions.len()).sum();
        let bunches: usize = self.bunches().map(|(_, bunch)| bunch.versions_len()).sum();
        (copied - self.written().count() + written + bunches) as u64
    }

    /// Gives back the memory around an empty chain.
    pub fn trim(&mut self, at: usize) {
        let number = at / PLACES;
        let bunch = self.bunches.get(number).and_then(Option::as_deref);
        if self.packed(at).is_none() && bunch.is_some_and(Bunch::is_empty) {
            *self.bunches.get_mut(number) = None;
            self.bunches.trim(number, Option::is_none);
        }
    }

    /// Packs rows that somebody looked at and nobody keeps, if there are many, and if there is no other copy of this
    /// table now. No snapshot from before `horizon` is asked about any more.
    pub fn repack(&mut self, horizon: Nanos) {
        self.repack_beyond(UNPACKED_MIN);
        self.rest_beyond(LISTED_MIN, horizon);
    }

    fn repack_beyond(&mut self, least: usize) {
        let many = self.packed.iter_mut().filter(|packed| packed.is_to_repack(least));
        many.filter_map(Arc::get_mut).for_each(Packed::repack);
    }

    /// Looks at some of the bunches that are listed beyond so many, those first that were looked at longest ago.
    fn rest_beyond(&mut self, least: usize, horizon: Nanos) {
        let Some(listed) = Arc::get_mut(&mut self.listed) else {
            return;
        };
        let listed = listed.get_mut().unwrap_or_else(PoisonError::into_inner);
        let many = listed.len().saturating_sub(least);
        for _ in 0..many.div_ceil(LOOKED_AT_SHARE).min(LOOKED_AT_MAX) {
            let Some(number) = listed.pop_front() else { return };
            if !matches!(self.bunches.get(number), Some(Some(_))) {
                continue;
            }
            let bunch = Arc::make_mut(self.bunches.get_mut(number).get_or_insert_default());
            if bunch.rest(horizon) {
                listed.push_back(number);
            }
        }
    }

    /// Takes over a copy whose rows get the numbers from `first` on, which nobody has had.
    pub fn load(&mut self, first: usize, contents: Contents) {
        if contents.len() < PACKED_MIN {
            for (place, row) in contents.iter().enumerate() {
                let at = first + place;
                *self.bunch_mut(at).get_mut(at % PLACES) = as_copied(Some(row));
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

/// The bunch will be looked at some time.
fn list(listed: &Mutex<VecDeque<usize>>, number: usize) {
    let listed = listed.lock();
    listed.unwrap_or_else(PoisonError::into_inner).push_back(number);
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
        chains.repack(0);
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
    }

    /// Looks at everything twice: once for whoever asked, once to pack.
    fn rest(chains: &mut Chains) {
        for _ in 0..256 {
            chains.rest_beyond(0, 1);
        }
    }

    fn version(commit: u64, number: i32) -> Version {
        Version::new(CommitId(commit), Some(Arc::from([Value::Int4(number)])))
    }

    /// Rows that came one by one, numbered from 0 on.
    fn grown(len: usize) -> Chains {
        let mut chains = Chains::default();
        for at in 0..len {
            chains.get_mut(at).versions.push(version(at as u64, at as i32));
        }
        chains
    }

    fn loose(chains: &Chains) -> usize {
        chains.bunches().map(|(_, bunch)| bunch.loose_len()).sum()
    }

    #[test]
    fn rows_that_nobody_asks_for_are_packed() {
        let mut chains = grown(1_000);
        let row =
            |chains: &Chains, at: usize| chains.get(at).and_then(|c| c.versions[0].row.clone()).unwrap();
        let held = row(&chains, 70);
        let mut other = chains.clone();
        rest(&mut chains);
        assert_eq!(
            loose(&chains),
            1_000,
            "another copy could compare rows with this one"
        );
        other.get_mut(71).versions.clear();
        drop(other);
        rest(&mut chains);
        assert_eq!(loose(&chains), 1);
        assert!(Arc::ptr_eq(&held, &row(&chains, 70)));
        // Copies unpack the same row, and write for themselves.
        let mut other = chains.clone();
        assert!(Arc::ptr_eq(&row(&chains, 500), &row(&other, 500)));
        other.get_mut(500).versions.push(version(2_000, -1));
        assert_eq!(number(chains.get(500).unwrap()), Some(500));
        assert_eq!(number(other.get(500).unwrap()), Some(-1));
        drop(chains);
        drop(held);
        rest(&mut other);
        assert_eq!(loose(&other), 1, "of two versions both are kept");
        assert_eq!((other.versions_len(), other.iter().count()), (1_001, 1_000));
    }

    #[test]
    fn rows_that_went_leave_nothing_behind() {
        let mut chains = grown(1_000);
        rest(&mut chains);
        for at in 0..1_000 {
            chains.get_mut(at).versions.clear();
            chains.trim(at);
        }
        assert_eq!(chains.bunches().count(), 0);
        rest(&mut chains);
        assert_eq!(chains.listed.lock().unwrap().len(), 0);
        // Most of a bunch went, and it is packed anew without them.
        let mut chains = grown(64);
        rest(&mut chains);
        (1..64).for_each(|at| chains.get_mut(at).versions.clear());
        rest(&mut chains);
        assert_eq!((loose(&chains), chains.iter().count()), (0, 1));
    }

    #[test]
    fn nobody_can_tell_which_rows_are_packed() {
        let seen = |chains: &Chains| {
            let kept = chains.iter().filter(|(_, chain)| !chain.versions.is_empty());
            let kept: Vec<(usize, String)> = kept.map(|(at, chain)| (at, format!("{chain:?}"))).collect();
            let mut rows = Vec::new();
            chains.for_each_row(|at, row| rows.push((at, format!("{row:?}"))));
            rows.sort();
            (kept, rows, chains.versions_len())
        };
        let learned = |chains: &Chains, sent: Nanos| {
            let late = chains.learned_since(sent);
            let late =
                late.filter(|(_, chain)| chain.versions.iter().any(|v| v.since > 0 && v.since >= sent));
            late.map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut packed, mut plain) = (Chains::default(), Chains::default());
        for round in 0..4_000_u64 {
            let at = rng.usize(0..300);
            let what = rng.u32(0..10);
            let (since, perhaps, number) = (rng.u64(0..4).saturating_sub(2) * round, rng.bool(), rng.i32(..));
            for chains in [&mut packed, &mut plain] {
                match what {
                    0..4 => chains.get_mut(at).versions.push(Version {
                        since,
                        perhaps,
                        ..version(round, number)
                    }),
                    4..7 => {
                        let versions = &mut chains.get_mut(at).versions;
                        versions.drain(..versions.len().saturating_sub(1));
                    }
                    7 => {
                        chains.get_mut(at).versions.clear();
                        chains.trim(at);
                    }
                    8 => chains.get_mut(at).unsettled_until = round % 3,
                    _ => drop(chains.get(at)),
                }
            }
            if round % 7 == 0 {
                packed.rest_beyond(0, 1);
            }
            if round % 100 == 0 {
                rest(&mut packed);
                assert_eq!(learned(&packed, round / 2), learned(&plain, round / 2));
                assert_eq!(seen(&packed.clone()), seen(&plain));
            }
        }
        rest(&mut packed);
        assert!(loose(&packed) < loose(&plain));
    }
}
