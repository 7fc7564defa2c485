//! The bytes of headers and blocks.

use super::JournalError;
use super::key::{Key, Nonce};
use crate::trace::{Nanos, Record};
use std::path::Path;

/// Changes whenever a record or a block is written differently. Version 1 kept copied rows as lists;
/// up to version 2 nobody read a catalog again.
pub const VERSION: u32 = 3;
/// The oldest version that is read.
const VERSION_MIN: u32 = 1;

const MAGIC: &[u8; 8] = b"PGASSAYJ";
pub const HEADER: usize = 76;
pub const BLOCK_HEADER: usize = 16;
/// No block is larger; a length beyond it is damage.
const BLOCK_BYTES_MAX: u32 = 1 << 31;

const ENCRYPTED: u32 = 1;
const REDACTED: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub encrypted: bool,
    pub redacted: bool,
    /// Which run of the recorder wrote this.
    pub run: u64,
    /// Counts the segments of the run from 0.
    pub ordinal: u64,
    /// The wall clock, in nanoseconds since 1970, when the recorder's monotonic clock stood at 0.
    pub clock_zero_unix: u64,
    /// The recorder's clock when the segment was opened.
    pub opened_at: Nanos,
    pub salt: [u8; 16],
    pub key_check: [u8; 8],
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let flags = if self.encrypted { ENCRYPTED } else { 0 } | if self.redacted { REDACTED } else { 0 };
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        for number in [self.run, self.ordinal, self.clock_zero_unix, self.opened_at] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(&self.key_check);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.try_into().expect("the parts add up")
    }

    pub fn decode(bytes: &[u8; HEADER], file: &Path) -> Result<Header, JournalError> {
        if &bytes[..8] != MAGIC {
            return Err(JournalError::NotASegment(file.to_owned()));
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        // A damaged version number must not pass for another version.
        let sound = word(HEADER - 4) == crc32c::crc32c(&bytes[..HEADER - 4]);
        let is_known = (VERSION_MIN..=VERSION).contains(&word(8));
        if !is_known && (sound || word(8) < 1000) {
            return Err(JournalError::Version {
                file: file.to_owned(),
                found: word(8),
            });
        }
        if !sound {
            return Err(JournalError::Header(file.to_owned()));
        }
        Ok(Header {
            encrypted: word(12) & ENCRYPTED != 0,
            redacted: word(12) & REDACTED != 0,
            run: long(16),
            ordinal: long(24),
            clock_zero_unix: long(32),
            opened_at: long(40),
            salt: bytes[48..64].try_into().expect("sixteen bytes"),
            key_check: bytes[64..72].try_into().expect("eight bytes"),
        })
    }

    /// The key, if this segment needs one.
    pub fn unlock<'k>(&self, key: Option<&'k Key>, file: &Path) -> Result<Option<&'k Key>, JournalError> {
        if !self.encrypted {
            return Ok(None);
        }
        let key = key.ok_or_else(|| JournalError::KeyMissing(file.to_owned()))?;
        if key.check(&self.salt) != self.key_check {
            return Err(JournalError::KeyWrong(file.to_owned()));
        }
        Ok(Some(key))
    }
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug)]
pub struct BlockHeader {
    pub length: u32,
    raw_length: u32,
    records: u32,
    crc: u32,
}

impl BlockHeader {
    pub fn decode(bytes: &[u8; BLOCK_HEADER]) -> BlockHeader {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        BlockHeader {
            length: word(0),
            raw_length: word(4),
            records: word(8),
            crc: word(12),
        }
    }

    pub fn is_sane(&self) -> bool {
        self.length <= BLOCK_BYTES_MAX && self.raw_length <= BLOCK_BYTES_MAX && self.length > 0
    }

    fn first_part(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.raw_length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.records.to_le_bytes());
        bytes
    }

    fn checksum(&self, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.first_part()), payload)
    }

    pub fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.length as usize && self.crc == self.checksum(payload)
    }
}

/// `raw` holds `records` encoded records; appends the block to `out`.
pub fn encode_block(
    raw: &[u8],
    records: u32,
    key: Option<(&Key, Nonce)>,
    header: &[u8; HEADER],
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let mut payload = zstd::bulk::compress(raw, 1)?;
    if let Some((key, nonce)) = key {
        payload = key.seal(&nonce, header, &payload);
    }
    let mut block = BlockHeader {
        length: payload.len() as u32,
        raw_length: raw.len() as u32,
        records,
        crc: 0,
    };
    block.crc = block.checksum(&payload);
    out.extend_from_slice(&block.first_part());
    out.extend_from_slice(&block.crc.to_le_bytes());
    out.extend_from_slice(&payload);
    Ok(())
}

/// The records of a block whose checksum is right.
pub fn decode_block(
    block: &BlockHeader,
    payload: &[u8],
    key: Option<(&Key, Nonce)>,
    header: &[u8; HEADER],
) -> Result<Vec<Record>, String> {
    let opened;
    let compressed = match key {
        None => payload,
        Some((key, nonce)) => {
            opened = key
                .open(&nonce, header, payload)
                .ok_or("it was changed after it was encrypted")?;
            &opened[..]
        }
    };
    let raw = zstd::bulk::decompress(compressed, block.raw_length as usize)
        .map_err(|error| format!("it cannot be decompressed: {error}"))?;
    let mut records = Vec::with_capacity((block.records as usize).min(raw.len()));
    let mut rest = &raw[..];
    while !rest.is_empty() {
        let (record, left) =
            postcard::take_from_bytes(rest).map_err(|error| format!("a record cannot be read: {error}"))?;
        records.push(record);
        rest = left;
    }
    if records.len() != block.records as usize {
        return Err(format!(
            "it holds {} records instead of {}",
            records.len(),
            block.records
        ));
    }
    Ok(records)
}
