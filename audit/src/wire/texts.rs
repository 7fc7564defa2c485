//! Shares what repeats: statement texts and row descriptions.
//!
//! Applications say the same few things over and over; a small direct-mapped memory of what was said
//! last saves the copy, the check and the allocation. It only ever hands out what is equal byte for byte,
//! and its size is fixed.

use super::secret;
use crate::trace::Column;
use bytes::Bytes;
use rustc_hash::FxHasher;
use std::borrow::Cow;
use std::hash::Hasher;
use std::sync::Arc;

const SLOTS: usize = 1024;
/// Longer ones seldom repeat.
const BYTES_MAX: usize = 4096;

pub struct Texts {
    texts: Vec<Option<Arc<str>>>,
    columns: Vec<Option<(Bytes, Arc<[Column]>)>>,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts {
            texts: vec![None; SLOTS],
            columns: vec![None; SLOTS],
        }
    }
}

impl Texts {
    /// The text without secrets; `None` if it is not UTF-8.
    pub fn text(&mut self, bytes: &[u8]) -> Option<Arc<str>> {
        if bytes.len() > BYTES_MAX {
            return Some(secret::redact(std::str::from_utf8(bytes).ok()?).into());
        }
        let slot = &mut self.texts[slot(bytes)];
        if let Some(known) = slot
            && known.as_bytes() == bytes
        {
            return Some(known.clone());
        }
        match secret::redact(std::str::from_utf8(bytes).ok()?) {
            Cow::Owned(redacted) => Some(redacted.into()),
            Cow::Borrowed(text) => {
                let text: Arc<str> = text.into();
                *slot = Some(text.clone());
                Some(text)
            }
        }
    }

    /// The columns that a RowDescription with this body names.
    pub fn columns(
        &mut self,
        body: &[u8],
        read: impl FnOnce() -> Option<Vec<Column>>,
    ) -> Option<Arc<[Column]>> {
        let slot = &mut self.columns[slot(body)];
        if let Some((known, columns)) = slot
            && **known == *body
        {
            return Some(columns.clone());
        }
        let columns: Arc<[Column]> = read()?.into();
        *slot = Some((Bytes::copy_from_slice(body), columns.clone()));
        Some(columns)
    }
}

fn slot(bytes: &[u8]) -> usize {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish() as usize % SLOTS
}
