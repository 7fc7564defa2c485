//! Neighbouring rows that nobody has asked for lately, as few bytes.
//!
//! In: chains of one version each, and the block that they come into. Out: the same chains, unpacked one by one when
//! somebody asks for them.
//!
//! Always true:
//!   - nobody could tell what is unpacked from what was packed;
//!   - whoever asks for a row gets the same allocation, as long as anybody has it.

use super::Row;
use super::store::{Chain, Version};
use crate::points::CommitId;
use crate::trace::Nanos;
use crate::value::pack::{pack, put_number, take_byte, take_number, unpack};
use smallvec::smallvec;
use std::sync::{Arc, OnceLock};

/// So many rows are neighbours: a place is a bit of a `u64`.
pub const PLACES: usize = u64::BITS as usize;

#[derive(Debug, Default)]
pub struct Block {
    /// Which of its places have a row.
    places: u64,
    /// Where each row ends, counted from the first, in two bytes (in four, where two may not do); then the rows.
    bytes: Box<[u8]>,
    /// No row was learned later.
    since_max: Nanos,
    unpacked: OnceLock<Box<[OnceLock<Box<Chain>>]>>,
}

impl Block {
    pub fn places(&self) -> u64 {
        self.places
    }

    /// Whether one of its rows was learned at `sent` or later.
    pub fn is_learned_since(&self, sent: Nanos) -> bool {
        self.since_max > 0 && self.since_max >= sent
    }

    /// The chain at a place that has one.
    pub fn chain(&self, place: usize) -> &Chain {
        let (at, len) = (self.rank(place), self.len());
        let unpacked = self
            .unpacked
            .get_or_init(|| std::iter::repeat_with(OnceLock::new).take(len).collect());
        unpacked[at].get_or_init(|| Box::new(unpack_chain(self.packed(at))))
    }

    /// The same, and nothing stays unpacked because of it.
    pub fn row(&self, place: usize) -> Row {
        let mut from = self.packed(self.rank(place));
        take_head(&mut from);
        take_row(&mut from)
    }

    pub fn is_open(&self) -> bool {
        self.unpacked.get().is_some()
    }

    /// Drops unpacked rows that nobody else has, and all that are not at `places`.
    pub fn close(&mut self, places: u64) {
        let all = self.places;
        let Some(unpacked) = self.unpacked.get_mut() else {
            return;
        };
        for (place, chain) in bits(all).zip(unpacked.iter_mut()) {
            if places & 1 << place == 0 || chain.get().is_some_and(|chain| is_unused(chain)) {
                chain.take();
            }
        }
        if unpacked.iter().all(|chain| chain.get().is_none()) {
            self.unpacked.take();
        }
    }

    /// A block of the rows at `places` of this one, and of others at places of their own, in order.
    pub fn with(&mut self, places: u64, others: &[(usize, &Chain)]) -> Block {
        let added = others.iter().fold(0, |all, (place, _)| all | 1 << place);
        let (mut rows, mut ends) = (Vec::with_capacity(self.bytes.len()), Vec::new());
        let mut others = others.iter().peekable();
        let mut since_max = if places == 0 { 0 } else { self.since_max };
        for place in bits(places | added) {
            match others.next_if(|(other, _)| *other == place) {
                Some((_, chain)) => {
                    since_max = chain.versions.iter().fold(since_max, |max, v| max.max(v.since));
                    pack_chain(chain, &mut rows);
                }
                None => rows.extend_from_slice(self.packed(self.rank(place))),
            }
            ends.push(rows.len());
        }
        let mut block = Block {
            places: places | added,
            bytes: joined(&ends, &rows),
            since_max,
            unpacked: OnceLock::new(),
        };
        block.inherit(self, places);
        block
    }

    /// Takes over what is unpacked at `places` of another.
    fn inherit(&mut self, other: &mut Block, places: u64) {
        let all = other.places;
        for (place, chain) in bits(all).zip(other.unpacked.take().unwrap_or_default()) {
            if let Some(chain) = chain.into_inner().filter(|_| places & 1 << place != 0) {
                let len = self.len();
                let unpacked = self
                    .unpacked
                    .get_or_init(|| std::iter::repeat_with(OnceLock::new).take(len).collect());
                let _ = unpacked[self.rank(place)].set(chain);
            }
        }
    }

    fn len(&self) -> usize {
        self.places.count_ones() as usize
    }

    /// How many rows come before a place.
    fn rank(&self, place: usize) -> usize {
        (self.places & ((1 << place) - 1)).count_ones() as usize
    }

    /// The bytes of a row.
    fn packed(&self, at: usize) -> &[u8] {
        let wide = is_wide(self.bytes.len());
        let rows = self.len() * if wide { 4 } else { 2 };
        let end = |at: usize| match wide {
            true => u32::from_le_bytes([0, 1, 2, 3].map(|n| self.bytes[4 * at + n])) as usize,
            false => u16::from_le_bytes([0, 1].map(|n| self.bytes[2 * at + n])).into(),
        };
        let start = at.checked_sub(1).map_or(0, end);
        &self.bytes[rows + start..rows + end(at)]
    }
}

/// Whether the ends of rows have four bytes in a block of so many.
fn is_wide(len: usize) -> bool {
    len > u16::MAX.into()
}

fn joined(ends: &[usize], rows: &[u8]) -> Box<[u8]> {
    let wide = is_wide(2 * ends.len() + rows.len());
    let mut bytes = Vec::with_capacity(4 * ends.len() + rows.len());
    for end in ends {
        match wide {
            true => bytes.extend_from_slice(&(*end as u32).to_le_bytes()),
            false => bytes.extend_from_slice(&(*end as u16).to_le_bytes()),
        }
    }
    bytes.extend_from_slice(rows);
    bytes.into()
}

/// The numbers of the bits that are set.
pub fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (next < PLACES).then_some(next)
    })
}

/// Whether nobody else has one of its rows.
pub fn is_unused(chain: &Chain) -> bool {
    let held = |row: &Row| Arc::strong_count(row) > 1 || Arc::weak_count(row) > 0;
    !chain
        .versions
        .iter()
        .any(|version| version.row.as_ref().is_some_and(held))
}

/// Whether a chain can be kept in a block.
pub fn is_packable(chain: &Chain) -> bool {
    matches!(chain.versions.as_slice(), [version] if version.row.is_some()) && is_unused(chain)
}

const REWRITE: u8 = 1;
const VAGUE: u8 = 2;
const PERHAPS: u8 = 4;
const SINCE: u8 = 8;
const UNSETTLED: u8 = 16;

fn pack_chain(chain: &Chain, into: &mut Vec<u8>) {
    let [version] = chain.versions.as_slice() else {
        unreachable!("only rows with one version are packed");
    };
    let flags = [
        (version.rewrite, REWRITE),
        (version.vague, VAGUE),
        (version.perhaps, PERHAPS),
        (version.since > 0, SINCE),
        (chain.unsettled_until > 0, UNSETTLED),
    ];
    into.push(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum());
    put_number(version.commit.0, into);
    for instant in [version.since, chain.unsettled_until] {
        if instant > 0 {
            put_number(instant, into);
        }
    }
    let cells = version.row.as_deref().unwrap_or_default();
    put_number(cells.len() as u64, into);
    cells.iter().for_each(|cell| pack(cell, into));
}

fn unpack_chain(mut from: &[u8]) -> Chain {
    let mut chain = take_head(&mut from);
    for version in &mut chain.versions {
        version.row = Some(take_row(&mut from));
    }
    chain
}

/// A chain that lacks its row.
fn take_head(from: &mut &[u8]) -> Chain {
    let flags = take_byte(from);
    let commit = CommitId(take_number(from));
    let mut instant = |flag: u8| match flags & flag {
        0 => 0,
        _ => take_number(from),
    };
    let (since, unsettled_until) = (instant(SINCE), instant(UNSETTLED));
    let version = Version {
        rewrite: flags & REWRITE != 0,
        vague: flags & VAGUE != 0,
        perhaps: flags & PERHAPS != 0,
        since,
        ..Version::new(commit, None)
    };
    Chain {
        versions: smallvec![version],
        unsettled_until,
    }
}

fn take_row(from: &mut &[u8]) -> Row {
    (0..take_number(from) as usize).map(|_| unpack(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn chain(text: &str, version: Version, unsettled_until: Nanos) -> Chain {
        let mut chain = Chain {
            unsettled_until,
            ..Chain::default()
        };
        chain.versions.push(Version {
            row: Some(Arc::from([Value::text(text), Value::Unknown])),
            ..version
        });
        chain
    }

    fn plain(commit: u64) -> Version {
        Version::new(CommitId(commit), None)
    }

    #[test]
    fn all_that_is_known_of_a_row_is_kept() {
        let chains = [
            chain("a", plain(0), 0),
            chain(
                "b",
                Version {
                    rewrite: true,
                    since: 300,
                    ..plain(1 << 40)
                },
                0,
            ),
            chain(
                "c",
                Version {
                    vague: true,
                    perhaps: true,
                    ..plain(7)
                },
                u64::MAX,
            ),
            chain(&"long".repeat(20_000), plain(9), 1),
        ];
        for some in [&chains[..3], &chains[..]] {
            let placed: Vec<(usize, &Chain)> = some.iter().enumerate().map(|(n, c)| (n * 21, c)).collect();
            let block = Block::default().with(0, &placed);
            for (place, chain) in placed {
                assert_eq!(format!("{:?}", block.chain(place)), format!("{chain:?}"));
            }
            assert!(block.is_learned_since(300) && !block.is_learned_since(301));
        }
    }

    #[test]
    fn a_block_takes_rows_from_the_one_before() {
        let chains: Vec<Chain> = (0..64).map(|n| chain(&n.to_string(), plain(n), 0)).collect();
        let all: Vec<(usize, &Chain)> = chains.iter().enumerate().collect();
        let mut first = Block::default().with(0, &all);
        let held = first.chain(40).versions[0].row.clone();
        let passed_by = format!("{:?}", first.chain(41));
        let new = chain("new", plain(99), 0);
        first.close(u64::MAX);
        let second = first.with(!(1 << 3 | 1 << 63), &[(3, &new)]);
        assert_eq!(second.places(), u64::MAX >> 1);
        assert!(Arc::ptr_eq(
            &held.unwrap(),
            second.chain(40).versions[0].row.as_ref().unwrap()
        ));
        assert_eq!(format!("{:?}", second.chain(41)), passed_by);
        assert_eq!(format!("{:?}", second.chain(3)), format!("{new:?}"));
        assert_eq!(format!("{:?}", second.chain(62)), format!("{:?}", chains[62]));
    }
}
