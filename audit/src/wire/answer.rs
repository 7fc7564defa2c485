//! Gathers the rows and copy data of one answer, up to a limit.
//!
//! Always true: once the limit is reached nothing more is kept, but every row still counts and enters the
//! digest, which does not depend on how the bytes were cut into pieces.

use crate::trace::{Answer, Cells, Column, Cut};
use bytes::BytesMut;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Gathering {
    columns: Option<Arc<[Column]>>,
    rows: Vec<Cells>,
    copy: Option<BytesMut>,
    kept_bytes: usize,
    cut: Option<Digest>,
}

/// CRC-32C of the row bodies (or of the copied bytes) in the upper half, their length in the lower.
#[derive(Clone, Copy, Debug, Default)]
struct Digest {
    rows: u64,
    crc: u32,
    bytes: u64,
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.bytes += bytes.len() as u64;
    }

    fn value(self) -> u64 {
        u64::from(self.crc) << 32 | self.bytes & 0xffff_ffff
    }
}

impl Gathering {
    pub fn describe(&mut self, columns: Arc<[Column]>) {
        self.columns = Some(columns);
    }

    /// One DataRow; `read` is only called while the row is going to be kept.
    pub fn row(&mut self, body: &[u8], max: usize, read: impl FnOnce() -> Option<Cells>) -> Option<()> {
        if self.cut.is_none() {
            self.kept_bytes += body.len();
            if self.kept_bytes <= max {
                self.rows.push(read()?);
                return Some(());
            }
            self.cut_rows();
        }
        if let Some(cut) = &mut self.cut {
            cut.rows += 1;
            cut.add(body);
        }
        Some(())
    }

    /// A row or copy message that was too long to be seen whole.
    pub fn huge(&mut self, tag: u8, bytes: u64, crc: u32) {
        if tag == b'd' {
            self.cut_copy();
        } else {
            self.cut_rows();
        }
        if let Some(cut) = &mut self.cut {
            cut.rows += 1;
            cut.crc = crc32c::crc32c_combine(cut.crc, crc, bytes as usize);
            cut.bytes += bytes;
        }
    }

    /// COPY begins, in either direction.
    pub fn begin_copy(&mut self) {
        self.copy.get_or_insert_default();
    }

    pub fn copy(&mut self, data: &[u8], max: usize) {
        if self.cut.is_none() {
            self.kept_bytes += data.len();
            if self.kept_bytes <= max {
                self.copy.get_or_insert_default().extend_from_slice(data);
                return;
            }
            self.cut_copy();
        }
        if let Some(cut) = &mut self.cut {
            cut.rows += 1;
            cut.add(data);
        }
    }

    /// The data of COPY … FROM STDIN, which came the other way.
    pub fn take_copy(&mut self, data: Gathering) {
        self.copy = Some(data.copy.unwrap_or_default());
        self.cut = data.cut;
    }

    pub fn answer(self, tag: Option<String>) -> Answer {
        let columns = match (self.columns, self.rows.first()) {
            (Some(columns), _) => columns,
            (None, None) => Arc::default(),
            // Nobody asked for a description.
            (None, Some(first)) => unnamed_columns(first.len(), &[]),
        };
        Answer {
            columns,
            rows: self.rows,
            tag,
            cut: self.cut.map(|digest| Cut {
                rows: digest.rows,
                digest: digest.value(),
            }),
            copy: self.copy.map(BytesMut::freeze),
        }
    }

    pub fn first_row_len(&self) -> Option<usize> {
        self.rows.first().map(Vec::len)
    }

    fn cut_rows(&mut self) {
        if self.cut.is_some() {
            return;
        }
        let mut digest = Digest {
            rows: self.rows.len() as u64,
            ..Digest::default()
        };
        for row in &self.rows {
            digest.add(&(row.len() as u16).to_be_bytes());
            for cell in row {
                match cell {
                    None => digest.add(&(-1i32).to_be_bytes()),
                    Some(cell) => {
                        digest.add(&(cell.len() as i32).to_be_bytes());
                        digest.add(cell);
                    }
                }
            }
        }
        self.cut = Some(digest);
    }

    fn cut_copy(&mut self) {
        if self.cut.is_some() {
            return;
        }
        let mut digest = Digest::default();
        digest.add(self.copy.as_deref().unwrap_or_default());
        self.cut = Some(digest);
    }
}

/// Columns of which only the format is known.
pub fn unnamed_columns(count: usize, formats: &[i16]) -> Arc<[Column]> {
    (0..count)
        .map(|i| Column {
            name: String::new(),
            type_oid: 0,
            type_modifier: -1,
            format: super::message::format_of(formats, i),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn row(cells: &[Option<&str>]) -> (Vec<u8>, Cells) {
        let mut body = (cells.len() as u16).to_be_bytes().to_vec();
        let mut out = Vec::new();
        for cell in cells {
            match cell {
                None => body.extend((-1i32).to_be_bytes()),
                Some(text) => {
                    body.extend((text.len() as i32).to_be_bytes());
                    body.extend(text.as_bytes());
                }
            }
            out.push(cell.map(|text| Bytes::copy_from_slice(text.as_bytes())));
        }
        (body, out)
    }

    #[test]
    fn limit_keeps_a_prefix_and_the_digest_of_all() {
        let rows = [
            row(&[Some("one"), None]),
            row(&[Some("two"), Some("")]),
            row(&[Some("three"), None]),
        ];
        let digest = |max: usize| {
            let mut gathering = Gathering::default();
            for (body, cells) in &rows {
                gathering.row(body, max, || Some(cells.clone())).unwrap();
            }
            let answer = gathering.answer(None);
            (answer.rows.len(), answer.cut)
        };
        assert_eq!(digest(1000), (3, None));
        let (kept, cut) = digest(30);
        let (none, cut_all) = digest(0);
        assert_eq!((kept, none), (2, 0));
        assert_eq!(cut, cut_all);
        assert_eq!(cut.unwrap().rows, 3);
    }

    #[test]
    fn a_huge_row_enters_the_digest_like_any_other() {
        let (body, cells) = row(&[Some("a long one")]);
        let mut whole = Gathering::default();
        whole.row(&body, 3, || Some(cells)).unwrap();
        let mut huge = Gathering::default();
        huge.huge(b'D', body.len() as u64, crc32c::crc32c(&body));
        assert_eq!(whole.answer(None).cut, huge.answer(None).cut);
    }
}
