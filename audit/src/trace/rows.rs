//! The rows of a table as text, many of them in little memory.
//!
//! In: rows, cell by cell. Out: the same rows, in order or one by its number.
//!
//! Always true:
//!   - all rows lie in one buffer; a text that comes again and again lies there once;
//!   - the same rows give the same bytes, wherever they are packed;
//!   - a copy shares the buffer.

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHasher};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::hash::Hasher;
use std::sync::Arc;

/// The place of every so manieth row is kept; those between are found from there.
const STRIDE: usize = 16;
/// Texts shorter than this are not worth a place of their own.
const SHARED_MIN: usize = 4;
/// Texts that are kept once.
const SHARED_MAX: usize = 4_096;
/// A text that comes again while it is one of about so many is kept once.
const RECENT: usize = 1_024;

#[derive(Clone)]
pub struct Rows(Arc<Packed>);

struct Packed {
    len: usize,
    /// Where the rows 0, 16, 32 … begin.
    marks: Vec<usize>,
    /// For each row the number of its cells, then for each cell 0 (NULL), 2 n + 1 (the shared text n) or 2 n + 2 and n
    /// bytes of text; numbers in groups of seven bits, the lowest first.
    cells: Bytes,
    shared: Vec<Box<str>>,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.0.len
    }

    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Vec<Option<&str>>> {
        let mut at = 0;
        (0..self.0.len).map(move |_| self.0.read(&mut at))
    }

    /// A row by its number.
    pub fn row(&self, number: usize) -> Option<Vec<Option<&str>>> {
        if number >= self.0.len {
            return None;
        }
        let mut at = *self.0.marks.get(number / STRIDE)?;
        for _ in 0..number % STRIDE {
            self.0.skip(&mut at);
        }
        Some(self.0.read(&mut at))
    }

    /// Takes over rows from the journal; what does not hang together is refused.
    fn unpack(len: usize, shared: Vec<Box<str>>, cells: Bytes) -> Option<Rows> {
        let (mut marks, mut at) = (Vec::new(), 0);
        for number in 0..len {
            if number % STRIDE == 0 {
                marks.push(at);
            }
            for _ in 0..number_at(&cells, &mut at)? {
                match Cell::at(&cells, &mut at)? {
                    Cell::Null => {}
                    Cell::Shared(place) => {
                        shared.get(place)?;
                    }
                    Cell::Own(text) => {
                        std::str::from_utf8(text).ok()?;
                    }
                }
            }
        }
        let packed = Packed {
            len,
            marks,
            cells,
            shared,
        };
        Some(Rows(Arc::new(packed)))
    }
}

impl Packed {
    fn read(&self, at: &mut usize) -> Vec<Option<&str>> {
        let width = number_at(&self.cells, at).unwrap_or(0);
        let cells = (0..width).map(|_| match Cell::at(&self.cells, at) {
            None | Some(Cell::Null) => None,
            Some(Cell::Shared(place)) => self.shared.get(place).map(|text| &**text),
            // It was text when it was packed.
            Some(Cell::Own(text)) => Some(std::str::from_utf8(text).unwrap_or_default()),
        });
        cells.collect()
    }

    fn skip(&self, at: &mut usize) {
        for _ in 0..number_at(&self.cells, at).unwrap_or(0) {
            let _ = Cell::at(&self.cells, at);
        }
    }
}

enum Cell<'c> {
    Null,
    Shared(usize),
    Own(&'c [u8]),
}

impl<'c> Cell<'c> {
    fn at(cells: &'c [u8], at: &mut usize) -> Option<Cell<'c>> {
        let head = number_at(cells, at)?;
        Some(match head {
            0 => Cell::Null,
            _ if head % 2 == 1 => Cell::Shared(head / 2),
            _ => {
                let end = at.checked_add(head / 2 - 1)?;
                let text = cells.get(*at..end)?;
                *at = end;
                Cell::Own(text)
            }
        })
    }
}

fn number_at(cells: &[u8], at: &mut usize) -> Option<usize> {
    let mut number = 0u64;
    for shift in (0..63).step_by(7) {
        let byte = *cells.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return usize::try_from(number).ok();
        }
    }
    None
}

fn write_number(cells: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        cells.push(number as u8 | 0x80);
        number >>= 7;
    }
    cells.push(number as u8);
}

/// Packs rows one after the other.
#[derive(Default)]
pub struct Packer {
    len: usize,
    text_len: u64,
    marks: Vec<usize>,
    cells: Vec<u8>,
    shared: Vec<Box<str>>,
    places: FxHashMap<Box<str>, usize>,
    /// Hashes of texts that came lately.
    recent: Vec<u64>,
}

impl Packer {
    pub fn push<'c>(&mut self, row: impl ExactSizeIterator<Item = Option<&'c str>>) {
        if self.len.is_multiple_of(STRIDE) {
            self.marks.push(self.cells.len());
        }
        self.len += 1;
        write_number(&mut self.cells, row.len());
        for cell in row {
            let Some(text) = cell else {
                self.cells.push(0);
                continue;
            };
            self.text_len += text.len() as u64;
            match self.share(text) {
                Some(place) => write_number(&mut self.cells, 2 * place + 1),
                None => {
                    write_number(&mut self.cells, 2 * text.len() + 2);
                    self.cells.extend_from_slice(text.as_bytes());
                }
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of text, before they were packed.
    pub fn text_len(&self) -> u64 {
        self.text_len
    }

    pub fn finish(mut self) -> Rows {
        self.cells.shrink_to_fit();
        Rows(Arc::new(Packed {
            len: self.len,
            marks: self.marks,
            cells: self.cells.into(),
            shared: self.shared,
        }))
    }

    /// Where a text is kept that came before.
    fn share(&mut self, text: &str) -> Option<usize> {
        if text.len() < SHARED_MIN {
            return None;
        }
        if let Some(place) = self.places.get(text) {
            return Some(*place);
        }
        let mut hasher = FxHasher::default();
        hasher.write(text.as_bytes());
        let hash = hasher.finish();
        self.recent.resize(RECENT, 0);
        let seen = &mut self.recent[hash as usize % RECENT];
        if std::mem::replace(seen, hash) != hash || self.shared.len() >= SHARED_MAX {
            return None;
        }
        self.shared.push(text.into());
        self.places.insert(text.into(), self.shared.len() - 1);
        Some(self.shared.len() - 1)
    }
}

impl FromIterator<Vec<Option<String>>> for Rows {
    fn from_iter<I: IntoIterator<Item = Vec<Option<String>>>>(rows: I) -> Rows {
        let mut packer = Packer::default();
        for row in rows {
            packer.push(row.iter().map(Option::as_deref));
        }
        packer.finish()
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Rows) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Rows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// How a journal keeps rows that may be there or not. The first two are what an `Option` of a list looks like: so they
/// stand in journals of version 1.
#[derive(Serialize, Deserialize)]
enum Kept<'r> {
    Absent,
    Listed(Vec<Vec<Option<String>>>),
    Packed {
        len: usize,
        shared: std::borrow::Cow<'r, [Box<str>]>,
        cells: Bytes,
    },
}

/// Rows that may be there or not: packed in the journal, a list of lists for people.
pub(super) mod perhaps {
    use super::*;

    pub fn serialize<S: Serializer>(rows: &Option<Rows>, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return rows.serialize(serializer);
        }
        let kept = match rows {
            None => Kept::Absent,
            Some(Rows(packed)) => Kept::Packed {
                len: packed.len,
                shared: (&packed.shared[..]).into(),
                cells: packed.cells.clone(),
            },
        };
        kept.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rows>, D::Error> {
        if deserializer.is_human_readable() {
            let listed = Option::<Vec<Vec<Option<String>>>>::deserialize(deserializer)?;
            return Ok(listed.map(Rows::from_iter));
        }
        Ok(match Kept::deserialize(deserializer)? {
            Kept::Absent => None,
            Kept::Listed(rows) => Some(Rows::from_iter(rows)),
            Kept::Packed { len, shared, cells } => {
                let rows = Rows::unpack(len, shared.into_owned(), cells);
                Some(rows.ok_or_else(|| D::Error::custom("the rows of a table do not hang together"))?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TableCopy;

    fn listed(len: usize) -> Vec<Vec<Option<String>>> {
        let row = |n: usize| {
            let often = format!("{:84}", n % 3);
            let long = (n % 50 == 7).then(|| format!("{n}{}", "ü".repeat(100)));
            vec![Some(n.to_string()), Some(often), None, long, Some(String::new())]
        };
        (0..len).map(row).collect()
    }

    fn copy(len: usize) -> TableCopy {
        TableCopy {
            oid: 7,
            columns: vec!["a".to_owned()],
            rows: Some(listed(len).into_iter().collect()),
        }
    }

    #[test]
    fn rows_come_back_in_order_and_by_number() {
        let rows: Rows = listed(100).into_iter().collect();
        let owned = |row: Vec<Option<&str>>| -> Vec<Option<String>> {
            row.into_iter().map(|cell| cell.map(str::to_owned)).collect()
        };
        assert_eq!(rows.iter().map(owned).collect::<Vec<_>>(), listed(100));
        for number in [0, 15, 16, 57, 99] {
            assert_eq!(rows.row(number).map(owned), listed(100).get(number).cloned());
        }
        assert_eq!(rows.row(100), None);
    }

    #[test]
    fn what_comes_often_is_kept_once() {
        let rows: Rows = listed(1_000).into_iter().collect();
        assert!(rows.0.cells.len() < 20_000, "{} bytes", rows.0.cells.len());
    }

    #[test]
    fn a_journal_keeps_them_packed_and_people_get_lists() {
        let bytes = postcard::to_allocvec(&copy(100)).unwrap();
        assert_eq!(postcard::from_bytes::<TableCopy>(&bytes).unwrap(), copy(100));
        let json = serde_json::to_string(&copy(2)).unwrap();
        assert!(json.contains("\"rows\":[[\"0\",\" "), "{json}");
        assert_eq!(serde_json::from_str::<TableCopy>(&json).unwrap(), copy(2));
    }

    #[test]
    fn journals_of_version_1_are_read() {
        let old = |rows: Option<Vec<Vec<Option<String>>>>| {
            postcard::to_allocvec(&(7u32, vec!["a".to_owned()], rows)).unwrap()
        };
        let read = |bytes: Vec<u8>| postcard::from_bytes::<TableCopy>(&bytes).unwrap();
        assert_eq!(read(old(Some(listed(20)))), copy(20));
        assert_eq!(read(old(None)).rows, None);
    }

    #[test]
    fn damaged_rows_are_refused() {
        let rows: Rows = listed(40).into_iter().collect();
        let (cells, shared) = (rows.0.cells.to_vec(), rows.0.shared.clone());
        for end in 0..cells.len() {
            assert!(Rows::unpack(40, shared.clone(), Bytes::copy_from_slice(&cells[..end])).is_none());
        }
        assert!(Rows::unpack(40, Vec::new(), cells.into()).is_none());
    }
}
