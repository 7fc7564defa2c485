//! The rows of one key.
//!
//! Always true: a row is in no more than one span; rows come in the same order on every run.

use super::RowId;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Beyond this many spans of one key a list is no longer looked through.
pub const FEW: usize = 32;

/// Rows with consecutive ids, as those that one statement inserts; or the number of something else. The length, less
/// one, is in the lowest byte.
#[derive(Clone, Copy, Debug)]
pub struct Span(u64);

const LEN_BITS: u32 = 8;
/// As a length: it is not a span of rows.
const OTHER: u64 = (1 << LEN_BITS) - 1;

impl Span {
    pub fn one(id: RowId) -> Span {
        debug_assert!(id.0 >> (u64::BITS - LEN_BITS) == 0, "a row of no table");
        Span(id.0 << LEN_BITS)
    }

    pub fn other(number: usize) -> Span {
        Span((number as u64) << LEN_BITS | OTHER)
    }

    /// The number, if it is not a span of rows.
    pub fn as_other(self) -> Option<usize> {
        (self.0 & OTHER == OTHER).then_some((self.0 >> LEN_BITS) as usize)
    }

    fn first(self) -> u64 {
        self.0 >> LEN_BITS
    }

    fn last(self) -> u64 {
        self.first() + (self.0 & OTHER)
    }

    pub fn contains(self, id: RowId) -> bool {
        (self.first()..=self.last()).contains(&id.0)
    }

    pub fn each(self, f: impl FnMut(RowId)) {
        (self.first()..=self.last()).map(RowId).for_each(f);
    }

    /// The span with a row behind it, if it is the next one.
    pub fn with(self, id: RowId) -> Option<Span> {
        let is_long = self.0 & OTHER == OTHER - 1;
        (self.last() + 1 == id.0 && !is_long).then_some(Span(self.0 + 1))
    }

    /// What is left without a row of it.
    pub fn without(self, id: RowId) -> SmallVec<[Span; 2]> {
        let parts = [(self.first(), id.0), (id.0 + 1, self.last() + 1)];
        let parts = parts.into_iter().filter(|(from, to)| from < to);
        parts
            .map(|(from, to)| Span(from << LEN_BITS | (to - from - 1)))
            .collect()
    }
}

/// The rows of one key, by themselves.
#[derive(Clone, Debug)]
pub enum Ids {
    Few(SmallVec<[Span; 1]>),
    Many(BTreeSet<RowId>),
}

impl Default for Ids {
    fn default() -> Ids {
        Ids::Few(SmallVec::new())
    }
}

impl Ids {
    pub fn insert(&mut self, id: RowId) {
        match self {
            Ids::Few(spans) if spans.iter().any(|span| span.contains(id)) => {}
            Ids::Few(spans) => {
                let next = spans.iter_mut().find_map(|span| Some((span.with(id)?, span)));
                if let Some((longer, span)) = next {
                    *span = longer;
                } else if spans.len() < FEW {
                    spans.push(Span::one(id));
                } else {
                    let mut many = BTreeSet::from([id]);
                    self.each(|id| many.extend([id]));
                    *self = Ids::Many(many);
                }
            }
            Ids::Many(ids) => {
                ids.insert(id);
            }
        }
    }

    /// Whether nothing is left.
    pub fn remove(&mut self, id: RowId) -> bool {
        match self {
            Ids::Few(spans) => {
                if let Some(at) = spans.iter().position(|span| span.contains(id)) {
                    let rest = spans.remove(at).without(id);
                    spans.insert_many(at, rest);
                }
                spans.is_empty()
            }
            Ids::Many(ids) => {
                ids.remove(&id);
                // Half of the limit, so that a row that comes and goes does not turn the list back and forth.
                if ids.len() <= FEW / 2 {
                    let mut few = Ids::default();
                    ids.iter().for_each(|id| few.insert(*id));
                    *self = few;
                }
                false
            }
        }
    }

    pub fn contains(&self, id: RowId) -> bool {
        match self {
            Ids::Few(spans) => spans.iter().any(|span| span.contains(id)),
            Ids::Many(ids) => ids.contains(&id),
        }
    }

    pub fn each(&self, mut f: impl FnMut(RowId)) {
        match self {
            Ids::Few(spans) => spans.iter().for_each(|span| span.each(&mut f)),
            Ids::Many(ids) => ids.iter().copied().for_each(f),
        }
    }
}
