//! The part of the journal that a violation lies in, as a segment that `pgassay check` reads.
//!
//! In: the journal's directory, and the violation. Out: the bytes of one segment: how every session started,
//! the state that was read at start, and whatever was under way while the story happened.

use crate::config::Journal;
use anyhow::{Context, Result};
use pgassay_audit::trace::journal::{Key, Options, Reader, Writer};
use pgassay_audit::trace::{Nanos, Record, Window};
use pgassay_audit::verdict::Violation;

/// How far before and after the story the cut reaches.
const AROUND: Nanos = 1_000_000_000;

pub fn around(violation: &Violation, journal: &Journal) -> Result<Vec<u8>> {
    let dir = journal
        .dir
        .as_ref()
        .context("no journal is kept: journal.dir is not set")?;
    let key = match &journal.key_file {
        Some(file) => Some(Key::read(file)?),
        None => None,
    };
    let window = span(violation);
    let temporary = Temporary::new()?;
    // Literals were redacted, if at all, when they were first written.
    let options = Options {
        segment_bytes_max: u64::MAX,
        encrypt: key.clone().filter(|_| journal.encrypt),
        ..Options::default()
    };
    let mut writer = Writer::open(&temporary.0, options)?;
    for record in Reader::open(dir, key)? {
        let record = record?;
        if belongs(&record, window) {
            writer.push(&record)?;
        }
    }
    writer.close()?;
    let mut segments: Vec<_> = std::fs::read_dir(&temporary.0)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("segment-"))
        })
        .collect();
    segments.sort();
    let segment = segments
        .first()
        .context("the journal holds nothing of this violation any more")?;
    Ok(std::fs::read(segment)?)
}

fn span(violation: &Violation) -> Window {
    let windows = violation
        .transactions
        .iter()
        .flat_map(|t| t.statements.iter().map(|s| s.window).chain(t.commit));
    let mut span = Window::new(Nanos::MAX, violation.at);
    for window in windows {
        span.sent = span.sent.min(window.sent);
        if window.done != Nanos::MAX {
            span.done = span.done.max(window.done);
        }
    }
    Window::new(span.sent.saturating_sub(AROUND), span.done.saturating_add(AROUND))
}

fn belongs(record: &Record, window: Window) -> bool {
    let within = |at: Nanos| window.sent <= at && at <= window.done;
    match record {
        Record::SessionStart(facts) => facts.at <= window.done,
        Record::Bootstrap(bootstrap) => bootstrap.window.sent <= window.done,
        Record::Reread(reread) => reread.at <= window.done,
        Record::Catalog(_) => true,
        Record::Writers { at, .. } => *at <= window.done,
        Record::Statement(statement) => statement.window.overlaps(window),
        Record::Gap(gap) => gap.window.overlaps(window),
        Record::SessionEnd { at, .. }
        | Record::ServerGone { at, .. }
        | Record::Mark { at }
        | Record::CommitTimestamp { at, .. } => within(*at),
    }
}

/// A directory that goes when this does.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new() -> Result<Temporary> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgassay-cut-{}-{number}", std::process::id()));
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
