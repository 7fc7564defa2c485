//! Records in, segments out.
//!
//! Always true:
//!   - after `tick(now)` returns, every record that was pushed longer than the flush bound ago is with the
//!     operating system: a kill -9 loses what came later, nothing else;
//!   - a failed write leaves the journal readable up to the last whole block; the records of the failed
//!     block are told by the error, not kept for ever.

use super::format::{self, HEADER, Header};
use super::index::{Index, IndexEntry};
use super::key::{Key, Nonce};
use super::redact::Redactor;
use super::{JournalError, reader, segment_name, segments};
use crate::trace::{Nanos, Record};
use chacha20poly1305::aead::rand_core::RngCore;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Options {
    /// A new segment is begun when one has this many bytes or is this old.
    pub segment_bytes_max: u64,
    pub segment_age_max: Nanos,
    /// The oldest segments go before all together have more bytes than this, or when they are older; 0 keeps all.
    /// A segment is at most a quarter of either, so that what is dropped at once is small.
    pub bytes_max: u64,
    pub age_seconds_max: u64,
    /// How long a record may wait in memory.
    pub flush: Nanos,
    pub encrypt: Option<Key>,
    pub redact: Option<Key>,
    /// The wall clock, in nanoseconds since 1970, when the recorder's monotonic clock stood at 0.
    pub clock_zero_unix: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes_max: 64 << 20,
            segment_age_max: 3_600_000_000_000,
            bytes_max: 0,
            age_seconds_max: 0,
            flush: 1_000_000_000,
            encrypt: None,
            redact: None,
            clock_zero_unix: 0,
        }
    }
}

impl Options {
    /// A segment that is being written is never dropped, so it must be small beside the limits.
    fn fitting(mut self) -> Options {
        if self.bytes_max > 0 {
            self.segment_bytes_max = self.segment_bytes_max.min(self.bytes_max / 4);
        }
        if self.age_seconds_max > 0 {
            let quarter = self.age_seconds_max.saturating_mul(1_000_000_000 / 4);
            self.segment_age_max = self.segment_age_max.min(quarter);
        }
        self
    }
}

pub struct Writer {
    dir: PathBuf,
    options: Options,
    redactor: Option<Redactor>,
    run: u64,
    /// Of the next segment: its number in the directory, and in this run.
    number: u64,
    ordinal: u64,
    index: Index,
    segment: Option<Segment>,
    raw: Vec<u8>,
    raw_records: u32,
    /// When the oldest record in `raw` was pushed.
    waiting_since: Option<Nanos>,
    /// The earliest instant that a record in `raw` speaks of.
    earliest: Nanos,
    /// Of the records in `raw`: see [`IndexEntry`].
    beginnings: u64,
    session_max: u64,
    now: Nanos,
    bytes: u64,
}

struct Segment {
    path: PathBuf,
    file: File,
    header: [u8; HEADER],
    salt: [u8; 16],
    blocks: u64,
    opened_at: Nanos,
    entry: IndexEntry,
}

/// Enough for zstd to find what repeats.
const BLOCK_BYTES: usize = 256 << 10;

impl Writer {
    /// Opens a directory for a new run of the recorder, after cutting torn tails of earlier ones.
    pub fn open(dir: &Path, options: Options) -> Result<Writer, JournalError> {
        let options = options.fitting();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(JournalError::io(dir, "creating the journal"))?;
        let existing = segments(dir)?;
        let mut index = Index::read(dir);
        let mut number = 0;
        let mut kept = Vec::new();
        for path in &existing {
            cut_tail(path)?;
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            number = name[super::PREFIX.len()..].parse::<u64>().unwrap_or(0) + 1;
            kept.push(match index.segments.iter().position(|e| e.file == name) {
                Some(at) => index.segments.swap_remove(at),
                None => entry_of(path, name),
            });
        }
        index.segments = kept;
        let redactor = options.redact.clone().map(Redactor::new);
        let mut run = [0; 8];
        random(&mut run);
        Ok(Writer {
            dir: dir.to_owned(),
            options,
            redactor,
            run: u64::from_le_bytes(run),
            number,
            ordinal: 0,
            index,
            segment: None,
            raw: Vec::with_capacity(BLOCK_BYTES * 2),
            raw_records: 0,
            waiting_since: None,
            earliest: Nanos::MAX,
            beginnings: 0,
            session_max: 0,
            now: 0,
            bytes: 0,
        })
    }

    /// Appends one record; it reaches the disk with its block.
    pub fn push(&mut self, record: &Record) -> Result<(), JournalError> {
        let raw = std::mem::take(&mut self.raw);
        let before = raw.len();
        let encoded = match &self.redactor {
            None => postcard::to_extend(record, raw),
            Some(redactor) => postcard::to_extend(&redactor.redact(record), raw),
        };
        self.raw = encoded?;
        debug_assert!(self.raw.len() > before);
        self.raw_records += 1;
        let (first, last) = instants(record);
        self.now = self.now.max(last);
        self.earliest = self.earliest.min(first);
        self.beginnings += u64::from(record.is_beginning());
        self.session_max = self
            .session_max
            .max(record.session().map_or(0, |session| session.0));
        self.waiting_since.get_or_insert(self.now);
        if self.raw.len() >= BLOCK_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Lets time pass: writes out what has waited long enough, begins a new segment, drops the oldest.
    pub fn tick(&mut self, now: Nanos) -> Result<(), JournalError> {
        self.now = self.now.max(now);
        if self
            .waiting_since
            .is_some_and(|since| now.saturating_sub(since) >= self.options.flush)
        {
            self.flush()?;
        }
        let old = |s: &Segment| now.saturating_sub(s.opened_at) >= self.options.segment_age_max;
        if self.segment.as_ref().is_some_and(old) {
            self.rotate()?;
        }
        Ok(())
    }

    /// Writes out everything that waits.
    pub fn flush(&mut self) -> Result<(), JournalError> {
        self.waiting_since = None;
        if self.raw.is_empty() {
            return Ok(());
        }
        if self.segment.is_none() {
            self.segment = Some(self.begin()?);
        }
        let Some(segment) = &mut self.segment else {
            return Ok(());
        };
        let nonce = Nonce {
            salt: segment.salt,
            block: segment.blocks,
        };
        let key = self.options.encrypt.as_ref().map(|key| (key, nonce));
        let mut block = Vec::with_capacity(self.raw.len() / 2);
        let (raw, records) = (
            std::mem::take(&mut self.raw),
            std::mem::take(&mut self.raw_records),
        );
        let written = format::encode_block(&raw, records, key, &segment.header, &mut block)
            .and_then(|()| segment.file.write_all(&block));
        // Keep the allocation, unless a copied table made it large.
        self.raw = raw;
        self.raw.clear();
        self.raw.shrink_to(BLOCK_BYTES * 4);
        if let Err(error) = written {
            // Half a block may be on disk; only a new segment is sure to be readable.
            let path = segment.path.clone();
            let _ = segment.file.set_len(segment.entry.bytes);
            (self.beginnings, self.session_max) = (0, 0);
            self.end_segment()?;
            return Err(JournalError::io(&path, "appending to the journal")(error));
        }
        segment.entry.first_at = segment.entry.first_at.min(self.earliest);
        segment.entry.beginnings = segment.entry.beginnings.map(|count| count + self.beginnings);
        segment.entry.session_max = segment.entry.session_max.max(self.session_max);
        (self.beginnings, self.session_max) = (0, 0);
        self.earliest = Nanos::MAX;
        segment.blocks += 1;
        segment.entry.bytes += block.len() as u64;
        segment.entry.records += u64::from(records);
        segment.entry.last_at = self.now;
        self.bytes += block.len() as u64;
        if segment.entry.bytes >= self.options.segment_bytes_max {
            self.rotate()?;
        }
        Ok(())
    }

    /// Writes out everything and closes the segment.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.flush()?;
        self.rotate()
    }

    /// Bytes written since the journal was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn rotate(&mut self) -> Result<(), JournalError> {
        self.end_segment()?;
        self.retain()?;
        self.index.write(&self.dir)
    }

    fn end_segment(&mut self) -> Result<(), JournalError> {
        let Some(mut segment) = self.segment.take() else {
            return Ok(());
        };
        segment.entry.closed_unix = self.unix_seconds(self.now);
        let synced = segment.file.sync_data();
        self.index.segments.push(segment.entry);
        synced.map_err(JournalError::io(&segment.path, "closing the segment"))
    }

    fn begin(&mut self) -> Result<Segment, JournalError> {
        let name = segment_name(self.number);
        let path = self.dir.join(&name);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(JournalError::io(&path, "creating a segment"))?;
        let first_at = self.earliest.min(self.now);
        let mut salt = [0; 16];
        random(&mut salt);
        let header = Header {
            encrypted: self.options.encrypt.is_some(),
            redacted: self.redactor.is_some(),
            run: self.run,
            ordinal: self.ordinal,
            clock_zero_unix: self.options.clock_zero_unix,
            opened_at: first_at,
            salt,
            key_check: self
                .options
                .encrypt
                .as_ref()
                .map_or([0; 8], |key| key.check(&salt)),
        }
        .encode();
        self.number += 1;
        file.write_all(&header)
            .map_err(JournalError::io(&path, "beginning a segment"))?;
        self.ordinal += 1;
        self.bytes += HEADER as u64;
        let entry = IndexEntry {
            file: name,
            run: self.run,
            bytes: HEADER as u64,
            records: 0,
            first_at,
            last_at: self.now,
            closed_unix: 0,
            beginnings: Some(0),
            session_max: 0,
        };
        Ok(Segment {
            path,
            file,
            header,
            salt,
            blocks: 0,
            opened_at: self.now,
            entry,
        })
    }

    /// Drops the oldest segments beyond the limits, and leaves room for the next one.
    fn retain(&mut self) -> Result<(), JournalError> {
        let now = self.unix_seconds(self.now);
        let room = self
            .options
            .bytes_max
            .saturating_sub(self.options.segment_bytes_max);
        let mut total: u64 = self.index.segments.iter().map(|e| e.bytes).sum();
        let mut dropped = 0;
        for entry in &self.index.segments {
            let too_much = self.options.bytes_max > 0 && total > room;
            let too_old = self.options.age_seconds_max > 0
                && now.saturating_sub(entry.closed_unix) > self.options.age_seconds_max;
            if !too_much && !too_old {
                break;
            }
            let path = self.dir.join(&entry.file);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(JournalError::io(&path, "dropping an old segment")(error));
                }
                _ => {}
            }
            tracing::info!(file = entry.file, "dropped the oldest segment of the journal");
            total -= entry.bytes;
            dropped += 1;
        }
        self.index.segments.drain(..dropped);
        Ok(())
    }

    fn unix_seconds(&self, at: Nanos) -> u64 {
        self.options.clock_zero_unix.saturating_add(at) / 1_000_000_000
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.flush().and_then(|()| self.rotate()) {
            tracing::error!("{error}");
        }
    }
}

/// The earliest and the latest instant that a record speaks of.
fn instants(record: &Record) -> (Nanos, Nanos) {
    let span = |first: Nanos, instants: &[Nanos]| {
        let known = instants.iter().copied().filter(|at| *at != Nanos::MAX);
        (first, known.fold(first, Nanos::max))
    };
    match record {
        Record::SessionStart(facts) => (facts.at, facts.at),
        Record::Statement(o) => span(o.window.sent, &[o.window.done, o.ready.done]),
        Record::SessionEnd { at, .. }
        | Record::ServerGone { at, .. }
        | Record::Mark { at }
        | Record::Writers { at, .. }
        | Record::CommitTimestamp { at, .. } => (*at, *at),
        Record::Gap(gap) => span(gap.window.sent, &[gap.window.done]),
        Record::Bootstrap(bootstrap) => span(bootstrap.window.sent, &[bootstrap.window.done]),
        Record::Reread(reread) => span(reread.window.sent, &[reread.window.done, reread.at]),
        Record::Catalog(read) => span(read.window.sent, &[read.window.done, read.at]),
    }
}

/// Cuts what a crash left behind the last whole block.
fn cut_tail(path: &Path) -> Result<(), JournalError> {
    let bytes = std::fs::metadata(path)
        .map_err(JournalError::io(path, "opening the journal"))?
        .len();
    let sound = reader::sound_length(path)?;
    if sound < bytes {
        tracing::warn!(
            file = %path.display(), bytes = bytes - sound,
            "cut the torn tail of a segment: the recorder was stopped while it wrote"
        );
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(JournalError::io(path, "opening the journal"))?;
        file.set_len(sound)
            .map_err(JournalError::io(path, "cutting the torn tail"))?;
    }
    Ok(())
}

/// An entry for a segment that a crash kept out of the index.
fn entry_of(path: &Path, file: String) -> IndexEntry {
    let about = std::fs::metadata(path).ok();
    let modified = about.as_ref().and_then(|a| a.modified().ok());
    let unix = modified.and_then(|m| m.duration_since(std::time::UNIX_EPOCH).ok());
    IndexEntry {
        file,
        run: 0,
        bytes: about.map_or(0, |a| a.len()),
        records: 0,
        first_at: 0,
        last_at: Nanos::MAX,
        closed_unix: unix.map_or(0, |d| d.as_secs()),
        beginnings: None,
        session_max: 0,
    }
}

fn random(bytes: &mut [u8]) {
    chacha20poly1305::aead::OsRng.fill_bytes(bytes);
}
