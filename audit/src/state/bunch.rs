//! Neighbouring rows: some as chains, to be read and written, the others packed.
//!
//! In: who asks for which row, and when to look what nobody asks for. Out: the chains.
//!
//! Always true: a row is loose or packed, not both; what is in the block and is loose now does not count.

use super::Row;
use super::block::{Block, bits, is_packable};
use super::store::Chain;
use crate::trace::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug, Default)]
pub struct Bunch {
    loose_places: u64,
    /// In the order of their places.
    loose: Vec<Chain>,
    /// Which rows of the block count.
    packed_places: u64,
    block: Option<Arc<Block>>,
    /// Somebody asked for one of its rows since it was last looked at.
    is_touched: AtomicBool,
    /// It is among those that will be looked at.
    is_listed: AtomicBool,
}

impl Clone for Bunch {
    fn clone(&self) -> Bunch {
        Bunch {
            loose_places: self.loose_places,
            loose: self.loose.clone(),
            packed_places: self.packed_places,
            block: self.block.clone(),
            is_touched: AtomicBool::new(self.is_touched.load(Relaxed)),
            is_listed: AtomicBool::new(self.is_listed.load(Relaxed)),
        }
    }
}

impl Bunch {
    pub fn get(&self, place: usize) -> Option<&Chain> {
        if self.loose_places & 1 << place != 0 {
            return Some(&self.loose[self.rank(place)]);
        }
        let block = self.block.as_ref()?;
        (self.packed_places & 1 << place != 0).then(|| block.chain(place))
    }

    /// The chain, made if it was not there; loose from now on.
    pub fn get_mut(&mut self, place: usize) -> &mut Chain {
        let at = self.rank(place);
        if self.loose_places & 1 << place == 0 {
            let chain = self.get(place).cloned().unwrap_or_default();
            self.loose.insert(at, chain);
            self.loose_places |= 1 << place;
            self.packed_places &= !(1 << place);
        }
        &mut self.loose[at]
    }

    /// Every chain; unpacks all of them.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Chain)> {
        let all = bits(self.loose_places | self.packed_places);
        all.filter_map(|place| Some((place, self.get(place)?)))
    }

    /// Every chain of which something was learned at `sent` or later, and others.
    pub fn learned_since(&self, sent: Nanos) -> impl Iterator<Item = (usize, &Chain)> {
        let block = self.block.as_ref();
        let packed = match block.is_some_and(|block| block.is_learned_since(sent)) {
            true => self.packed_places,
            false => 0,
        };
        let some = bits(self.loose_places | packed);
        some.filter_map(|place| Some((place, self.get(place)?)))
    }

    /// Every version of every row; nothing stays unpacked because of it.
    pub fn for_each_row(&self, mut each: impl FnMut(usize, &Row)) {
        for (place, chain) in bits(self.loose_places).zip(&self.loose) {
            let rows = chain.versions.iter().filter_map(|version| version.row.as_ref());
            rows.for_each(|row| each(place, row));
        }
        if let Some(block) = &self.block {
            for place in bits(self.packed_places) {
                each(place, &block.row(place));
            }
        }
    }

    pub fn versions_len(&self) -> usize {
        let loose: usize = self.loose.iter().map(|chain| chain.versions.len()).sum();
        loose + self.packed_places.count_ones() as usize
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.packed_places == 0 && self.loose.iter().all(|chain| chain.versions.is_empty())
    }

    /// Somebody asks for one of its rows. Whether it is to be listed now.
    pub fn touch(&self) -> bool {
        if self.is_touched.load(Relaxed) {
            return false;
        }
        self.is_touched.store(true, Relaxed);
        !self.is_listed.swap(true, Relaxed)
    }

    /// Packs what can be packed, if nobody has asked for it since the last time. Whether it stays listed.
    pub fn rest(&mut self, horizon: Nanos) -> bool {
        if std::mem::take(self.is_touched.get_mut()) {
            return true;
        }
        self.pack(horizon);
        let is_open = self.block.as_ref().is_some_and(|block| block.is_open());
        *self.is_listed.get_mut() = is_open || !self.loose.is_empty();
        *self.is_listed.get_mut()
    }

    fn pack(&mut self, horizon: Nanos) {
        // An empty chain is no row, and what it says of snapshots is over.
        self.drop_loose(|chain| chain.versions.is_empty() && chain.unsettled_until < horizon);
        let mut none = Block::default();
        let before = match self.block.as_mut().map(Arc::get_mut) {
            None => &mut none,
            Some(Some(block)) => block,
            Some(None) => return,
        };
        before.close(self.packed_places);
        let loose = bits(self.loose_places).zip(&self.loose);
        let cold: Vec<(usize, &Chain)> = loose.filter(|(_, chain)| is_packable(chain)).collect();
        if cold.is_empty() && before.places() == self.packed_places {
            return;
        }
        let block = before.with(self.packed_places, &cold);
        self.packed_places = block.places();
        self.block = (self.packed_places != 0).then(|| Arc::new(block));
        let packed = self.packed_places;
        self.drop_loose_at(|place, _| packed & 1 << place != 0);
    }

    #[cfg(test)]
    pub fn loose_len(&self) -> usize {
        self.loose.len()
    }

    fn drop_loose(&mut self, is_over: impl Fn(&Chain) -> bool) {
        self.drop_loose_at(|_, chain| is_over(chain));
    }

    fn drop_loose_at(&mut self, is_over: impl Fn(usize, &Chain) -> bool) {
        let mut places = bits(self.loose_places);
        let mut kept = 0;
        self.loose.retain(|chain| {
            let place = places.next().unwrap_or_default();
            let keep = !is_over(place, chain);
            kept |= u64::from(keep) << place;
            keep
        });
        self.loose_places = kept;
        self.loose.shrink_to(2 * self.loose.len());
    }

    /// How many loose chains come before a place.
    fn rank(&self, place: usize) -> usize {
        (self.loose_places & ((1 << place) - 1)).count_ones() as usize
    }
}
