//! Keeps records on disk, as the configuration says, whatever the disk does.
//!
//! In: batches of records. Out: a journal (see `pgassay_audit::trace::journal`).
//!
//! Always true: a write that fails is counted and said once, and what it lost is a gap in the journal as soon
//! as the disk takes anything again.

use crate::clock;
use crate::config::{self, Redact};
use crate::live::Live;
use anyhow::{Context, Result};
use pgassay_audit::trace::journal::{JournalError, Key, Options, Writer};
use pgassay_audit::trace::{Gap, Nanos, Record, Window};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub struct Keeper {
    writer: Writer,
    live: Arc<Live>,
    /// Since when records are being lost.
    lost_from: Option<Nanos>,
    earlier_bytes: u64,
}

impl Keeper {
    /// `None` when no journal is wanted.
    pub fn open(config: &config::Journal, live: Arc<Live>) -> Result<Option<Keeper>> {
        let Some(dir) = &config.dir else { return Ok(None) };
        let writer = Writer::open(dir, options(config)?).context("the journal cannot be opened")?;
        Ok(Some(Keeper {
            writer,
            live,
            lost_from: None,
            earlier_bytes: 0,
        }))
    }

    /// Appends records and lets time pass.
    pub fn keep(&mut self, records: &[Record]) {
        if let Err(error) = self.try_keep(records) {
            self.failed(error);
        }
        self.count();
    }

    fn count(&mut self) {
        let bytes = self.writer.bytes();
        self.live
            .journal_bytes
            .fetch_add(bytes.saturating_sub(self.earlier_bytes), Relaxed);
        self.earlier_bytes = bytes;
    }

    fn try_keep(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let now = clock::now();
        if let Some(from) = self.lost_from {
            let reason = "the journal could not be written".to_owned();
            self.writer.push(&Record::Gap(Gap {
                session: None,
                window: Window::new(from, now),
                reason,
            }))?;
            self.writer.flush()?;
            tracing::info!("the journal can be written again; the hole in it is marked");
            self.lost_from = None;
        }
        for record in records {
            self.writer.push(record)?;
        }
        self.writer.tick(now)
    }

    fn failed(&mut self, error: JournalError) {
        self.live.journal_errors.fetch_add(1, Relaxed);
        if self.lost_from.is_none() {
            tracing::error!("the journal cannot be written: {error}; the proxy goes on without");
            // Whatever waited in memory may be lost with this block.
            let waited = self.live.config.load().journal.flush_ms * 1_000_000;
            self.lost_from = Some(clock::now().saturating_sub(waited + 1_000_000_000));
        }
    }

    pub fn close(mut self) {
        let flushed = self.writer.flush();
        self.count();
        if let Err(error) = flushed.and_then(|()| self.writer.close()) {
            self.live.journal_errors.fetch_add(1, Relaxed);
            tracing::error!("the end of the journal could not be written: {error}");
        }
    }
}

/// How records are written to disk: what the configuration says about keys holds for everything that is.
pub fn options(config: &config::Journal) -> Result<Options> {
    let key = match &config.key_file {
        Some(file) => Some(Key::read(file)?),
        None => None,
    };
    let needed = |what: &str| {
        key.clone()
            .with_context(|| format!("{what} needs journal.key_file"))
    };
    Ok(Options {
        segment_bytes_max: config.segment_bytes_max,
        bytes_max: config.bytes_max,
        age_seconds_max: config.age_seconds_max,
        flush: config.flush_ms * 1_000_000,
        encrypt: if config.encrypt {
            Some(needed("journal.encrypt")?)
        } else {
            None
        },
        redact: match config.redact {
            Redact::None => None,
            Redact::Hash => Some(needed("journal.redact")?),
        },
        // Our clock reads as nanoseconds since 1970.
        clock_zero_unix: 0,
        ..Options::default()
    })
}
