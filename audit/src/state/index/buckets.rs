//! Rows by the hash of their key: a hash table that is small, and cheap to copy.
//!
//! It grows by one page at a time: the entries of the page whose turn it is are shared out between it and the new one.
//!
//! Always true:
//!   - a row is listed once under a hash;
//!   - the rows of a hash are entries of one page, or, where they are many, a crowd that one entry names.

use super::RowId;
use super::ids::{FEW, Span};
use crate::state::forest::Forest;
use std::collections::BTreeSet;
use std::sync::Arc;

/// So many entries are on a page, on average.
const PAGE_LEN: usize = 16;

/// Hashes that differ in no more than so many of their lowest bits are on one page.
pub const NEIGHBOUR_BITS: u32 = 3;

type Page = Vec<(u64, Span)>;

#[derive(Clone, Debug)]
pub struct Buckets {
    pages: Forest<Option<Arc<Page>>>,
    pages_len: usize,
    entries_len: usize,
    crowds: Forest<Arc<BTreeSet<RowId>>>,
    crowds_len: usize,
    /// Numbers of crowds that are no more.
    free: Vec<usize>,
}

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets {
            pages: Forest::default(),
            pages_len: 1,
            entries_len: 0,
            crowds: Forest::default(),
            crowds_len: 0,
            free: Vec::new(),
        }
    }
}

impl Buckets {
    /// Each row under a hash.
    pub fn each(&self, hash: u64, mut f: impl FnMut(RowId)) {
        for span in self.spans(hash) {
            match span.as_other() {
                None => span.each(&mut f),
                Some(crowd) => self.crowd(crowd).for_each(&mut f),
            }
        }
    }

    pub fn contains(&self, hash: u64, id: RowId) -> bool {
        self.spans(hash).any(|span| match span.as_other() {
            None => span.contains(id),
            Some(crowd) => self.crowds.get(crowd).is_some_and(|ids| ids.contains(&id)),
        })
    }

    pub fn insert(&mut self, hash: u64, id: RowId) {
        if self.contains(hash, id) {
            return;
        }
        if let Some(crowd) = self.crowd_of(hash) {
            Arc::make_mut(self.crowds.get_mut(crowd)).insert(id);
            return;
        }
        if self.spans(hash).count() >= FEW {
            return self.gather(hash, id);
        }
        let page = self.page_mut(hash);
        let mut same = page.iter_mut().filter(|(h, _)| *h == hash);
        match same.find_map(|(_, span)| Some((span.with(id)?, span))) {
            Some((longer, span)) => *span = longer,
            None => self.push(hash, Span::one(id)),
        }
    }

    pub fn remove(&mut self, hash: u64, id: RowId) {
        if !self.contains(hash, id) {
            return;
        }
        if let Some(crowd) = self.crowd_of(hash) {
            let ids = Arc::make_mut(self.crowds.get_mut(crowd));
            ids.remove(&id);
            // Half of the limit, so that a row that comes and goes does not turn the list back and forth.
            if ids.len() <= FEW / 2 {
                self.scatter(hash, crowd);
            }
            return;
        }
        let page = self.page_mut(hash);
        if let Some(at) = page.iter().position(|(h, span)| *h == hash && span.contains(id)) {
            let rest = page[at].1.without(id);
            let len = rest.len();
            page.splice(at..=at, rest.into_iter().map(|span| (hash, span)));
            self.entries_len = self.entries_len + len - 1;
            self.tidy(hash);
        }
    }

    fn spans(&self, hash: u64) -> impl Iterator<Item = Span> {
        let page = self.pages.get(self.place(hash)).and_then(Option::as_deref);
        let page = page.map_or(&[][..], |page| page);
        page.iter()
            .filter(move |(h, _)| *h == hash)
            .map(|(_, span)| *span)
    }

    fn crowd_of(&self, hash: u64) -> Option<usize> {
        self.spans(hash).find_map(Span::as_other)
    }

    fn crowd(&self, number: usize) -> impl Iterator<Item = RowId> {
        self.crowds
            .get(number)
            .into_iter()
            .flat_map(|ids| ids.iter().copied())
    }

    fn place(&self, hash: u64) -> usize {
        let hash = hash >> NEIGHBOUR_BITS;
        // The upper half of the hash is mixed best.
        let mixed = (hash >> 32 ^ hash) as usize;
        let mask = self.pages_len.next_power_of_two() - 1;
        match mixed & mask {
            place if place < self.pages_len => place,
            // That page is still to come.
            place => place & mask >> 1,
        }
    }

    fn page_mut(&mut self, hash: u64) -> &mut Page {
        let place = self.place(hash);
        Arc::make_mut(self.pages.get_mut(place).get_or_insert_default())
    }

    fn push(&mut self, hash: u64, span: Span) {
        let page = self.page_mut(hash);
        if page.len() == page.capacity() {
            // Twice as many would be half empty.
            page.reserve_exact(page.len() / 4 + 2);
        }
        page.push((hash, span));
        self.entries_len += 1;
        if self.entries_len > self.pages_len * PAGE_LEN {
            self.grow();
        }
    }

    /// Adds a page.
    fn grow(&mut self) {
        let new = self.pages_len;
        self.pages_len += 1;
        let from = new & (self.pages_len.next_power_of_two() - 1) >> 1;
        let Some(page) = self.pages.get_mut(from).take() else {
            return;
        };
        let (old, new_page): (Page, Page) = page.iter().partition(|(hash, _)| self.place(*hash) != new);
        for (place, mut page) in [(from, old), (new, new_page)] {
            page.shrink_to_fit();
            *self.pages.get_mut(place) = (!page.is_empty()).then(|| Arc::new(page));
        }
    }

    /// Gives back what a page does not need any more.
    fn tidy(&mut self, hash: u64) {
        let page = self.page_mut(hash);
        let (len, capacity) = (page.len(), page.capacity());
        if len == 0 {
            let place = self.place(hash);
            *self.pages.get_mut(place) = None;
        } else if capacity > 2 * len + 8 {
            page.shrink_to_fit();
        }
    }

    /// The rows of a hash become a crowd, with one more.
    fn gather(&mut self, hash: u64, id: RowId) {
        let mut ids = BTreeSet::from([id]);
        self.each(hash, |id| ids.extend([id]));
        self.drop_spans(hash);
        let number = self.free.pop().unwrap_or(self.crowds_len);
        self.crowds_len = self.crowds_len.max(number + 1);
        *self.crowds.get_mut(number) = Arc::new(ids);
        self.push(hash, Span::other(number));
    }

    /// A crowd becomes few again.
    fn scatter(&mut self, hash: u64, number: usize) {
        let ids = std::mem::take(self.crowds.get_mut(number));
        self.free.push(number);
        self.drop_spans(hash);
        ids.iter().for_each(|id| self.insert(hash, *id));
    }

    fn drop_spans(&mut self, hash: u64) {
        let page = self.page_mut(hash);
        let before = page.len();
        page.retain(|(h, _)| *h != hash);
        let gone = before - page.len();
        self.entries_len -= gone;
        self.tidy(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn listed(buckets: &Buckets, hash: u64) -> BTreeSet<u64> {
        let mut found = Vec::new();
        buckets.each(hash, |id| found.push(id.0));
        let all: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(all.len(), found.len(), "no row twice");
        all
    }

    #[test]
    fn every_row_is_found_under_its_hashes_and_no_other() {
        let mut rng = fastrand::Rng::with_seed(3);
        let (mut buckets, mut model) = (Buckets::default(), BTreeMap::<u64, BTreeSet<u64>>::new());
        let mut copies = Vec::new();
        for round in 0..60_000_u64 {
            // Some keys have very many rows, most have few; and rows of one key come one after the other.
            let keys = 1 << rng.u32(1..12);
            let key = rng.u64(0..keys);
            let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let id = rng.u64(0..400) * 3 + round % 3;
            match rng.u32(0..10) {
                0..6 => {
                    buckets.insert(hash, RowId(id));
                    model.entry(hash).or_default().insert(id);
                }
                _ => {
                    let known = model.get(&hash).and_then(|ids| ids.first().copied());
                    let id = known.filter(|_| rng.bool()).unwrap_or(id);
                    buckets.remove(hash, RowId(id));
                    if let Some(ids) = model.get_mut(&hash) {
                        ids.remove(&id);
                    }
                }
            }
            if round % 10_000 == 0 {
                copies.push((buckets.clone(), model.clone()));
            }
        }
        copies.push((buckets.clone(), model.clone()));
        for (buckets, model) in &copies {
            for (hash, ids) in model {
                assert_eq!(listed(buckets, *hash), *ids);
            }
            assert!(listed(buckets, 12_345).is_empty());
        }
        assert!(buckets.pages_len > 64 && buckets.crowds_len > 0);
        for (hash, ids) in &model {
            ids.iter().for_each(|id| buckets.remove(*hash, RowId(*id)));
        }
        assert_eq!((buckets.entries_len, buckets.free.len()), (0, buckets.crowds_len));
    }

    #[test]
    fn neighbours_are_one_entry() {
        let mut buckets = Buckets::default();
        (10..20).for_each(|id| buckets.insert(7, RowId(id)));
        assert_eq!(buckets.entries_len, 1);
        buckets.remove(7, RowId(14));
        assert_eq!((buckets.entries_len, listed(&buckets, 7).len()), (2, 9));
        (1_000..2_000).for_each(|id| buckets.insert(7, RowId(id)));
        assert_eq!(listed(&buckets, 7).len(), 1_009);
        assert!(buckets.entries_len < 8);
    }
}
