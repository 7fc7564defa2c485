//! The recorder: drains all lanes, decodes, writes the journal, feeds the audit. Two threads of their own.
//!
//! In: lanes (see `capture`), and records of the side connection. Out: the journal, verdicts in [`Live`].
//!
//! Always true:
//!   - nothing here can stop or slow a relay: lanes that are not drained in time turn into gaps, a journal
//!     that cannot be written is counted, an audit that is behind is shed, one that crashes is replaced;
//!   - whatever the audit did not get lies in a `Gap` that it did get, before anything later;
//!   - the journal and the audit see the same records in the same order (the audit perhaps fewer).

use crate::capture::Recorder;
use crate::clock;
use crate::config::Config;
use crate::keep::Keeper;
use crate::live::Live;
use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender};
use pgassay_audit::trace::{Gap, Nanos, Record, Window};
use pgassay_audit::verdict::Summary;
use pgassay_audit::wire::{Captured, Decoder, Direction};
use pgassay_audit::{Auditor, Settings};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the recorder sleeps between two rounds while there is traffic.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(4);
/// How long it sleeps at most when there is none.
const AT_MOST: Duration = Duration::from_millis(250);
/// How often the audit's totals are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);

/// Both threads, running.
pub struct Recording {
    recorder: JoinHandle<()>,
    audit: Option<JoinHandle<()>>,
    /// Takes records of the side connection.
    pub inbox: Sender<Record>,
}

impl Recording {
    pub fn start(recorder: Recorder, live: Arc<Live>) -> Result<Recording> {
        let config = live.config.load_full();
        let (inbox, side) = crossbeam_channel::unbounded();
        let (feed, audit) = if config.record_only {
            (None, None)
        } else {
            let (feed, queue) = Feed::new(&config, live.clone());
            let (settings, live) = (settings(&config)?, live.clone());
            let thread = std::thread::Builder::new().name("audit".to_owned());
            (Some(feed), Some(thread.spawn(move || judge(queue, settings, &live)).context("a thread")?))
        };
        let mut work = Work::new(live, &config, side, feed)?;
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let recorder = thread.spawn(move || work.run(recorder)).context("a thread")?;
        Ok(Recording { recorder, audit, inbox })
    }

    /// Waits until everything captured is on disk and judged. All lanes and taps must be gone.
    pub fn finish(self) {
        drop(self.inbox);
        let _ = self.recorder.join();
        if let Some(audit) = self.audit {
            let _ = audit.join();
        }
    }
}

pub fn settings(config: &Config) -> Result<Settings> {
    let claim = match &config.audit.claim {
        Some(text) => Some(text.parse().map_err(|error| anyhow::anyhow!("audit.claim: {error}"))?),
        None => None,
    };
    Ok(Settings {
        profile: config.audit.profile.clone(),
        claim,
        workers: config.audit.workers,
        solve_ms_max: config.audit.solve_ms_max,
    })
}

/// What the recorder's thread holds.
struct Work {
    live: Arc<Live>,
    decoder: Decoder,
    side: Receiver<Record>,
    keeper: Option<Keeper>,
    feed: Option<Feed>,
    records: Vec<Record>,
}

impl Work {
    fn new(live: Arc<Live>, config: &Config, side: Receiver<Record>, feed: Option<Feed>) -> Result<Work> {
        let limits = pgassay_audit::wire::Limits {
            result_bytes_max: config.capture.result_bytes_max,
            ..pgassay_audit::wire::Limits::default()
        };
        let keeper = Keeper::open(&config.journal, live.clone())?;
        Ok(Work { live, decoder: Decoder::new(limits), side, keeper, feed, records: Vec::new() })
    }

    fn run(&mut self, mut recorder: Recorder) {
        loop {
            let finished = self.round(&mut recorder);
            if finished {
                break;
            }
            recorder.rest(BETWEEN_ROUNDS, AT_MOST);
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.close();
        }
    }

    fn round(&mut self, recorder: &mut Recorder) -> bool {
        let (mut to_server, mut to_client, mut lost) = (0, 0, 0);
        let (decoder, records) = (&mut self.decoder, &mut self.records);
        let mut added = self.live.added_latency.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let round = recorder.collect(
            |captured| {
                match &captured {
                    Captured::Bytes { direction: Direction::ToServer, bytes, .. } => to_server += bytes.len(),
                    Captured::Bytes { direction: Direction::ToClient, bytes, .. } => to_client += bytes.len(),
                    Captured::Gap { lost_bytes, .. } => lost += lost_bytes,
                    _ => (),
                }
                decoder.take(captured, records);
            },
            |took| added.saturating_record(u64::from(took)),
        );
        drop(added);
        if let Some(until) = round.until {
            self.decoder.mark(until, &mut self.records);
        }
        self.records.extend(self.side.try_iter());

        let live = &self.live;
        for pid in self.decoder.new_backends() {
            live.own.add_backend(pid);
        }
        live.bytes_to_server.fetch_add(to_server as u64, Relaxed);
        live.bytes_to_client.fetch_add(to_client as u64, Relaxed);
        live.lost_bytes.fetch_add(lost, Relaxed);
        let counters = self.decoder.counters();
        live.messages.store(counters.messages, Relaxed);
        live.statements.store(counters.statements, Relaxed);
        live.unknown_messages.store(counters.unknown_messages, Relaxed);
        live.decode_errors.store(counters.decode_errors, Relaxed);
        live.gaps.store(counters.gaps, Relaxed);

        if let Some(keeper) = &mut self.keeper {
            keeper.keep(&self.records);
        }
        if !self.records.is_empty() {
            self.time_statements();
            let records = std::mem::take(&mut self.records);
            if let Some(feed) = &mut self.feed {
                feed.send(records);
            }
        }
        round.finished
    }

    fn time_statements(&self) {
        let mut latency =
            self.live.statement_latency.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for record in &self.records {
            if let Record::Statement(statement) = record
                && statement.window.done != Nanos::MAX
            {
                latency.saturating_record(statement.window.done.saturating_sub(statement.window.sent));
            }
        }
    }
}

/// The recorder's end of the audit's queue: bounded, never waited on.
struct Feed {
    queue: Sender<Batch>,
    waiting: Arc<AtomicU64>,
    waiting_bytes: Arc<AtomicU64>,
    records_max: u64,
    bytes_max: u64,
    /// Since when nothing was handed over, and what must not be lost of it.
    shed_from: Option<Nanos>,
    deferred: Vec<Record>,
    live: Arc<Live>,
}

struct Batch {
    records: Vec<Record>,
    bytes: u64,
    /// When it was handed over.
    at: Nanos,
}

/// The audit's end.
struct Queue {
    batches: Receiver<Batch>,
    waiting: Arc<AtomicU64>,
    waiting_bytes: Arc<AtomicU64>,
}

impl Feed {
    fn new(config: &Config, live: Arc<Live>) -> (Feed, Queue) {
        let (queue, batches) = crossbeam_channel::unbounded();
        let (waiting, waiting_bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let feed = Feed {
            queue,
            waiting: waiting.clone(),
            waiting_bytes: waiting_bytes.clone(),
            records_max: config.audit.queue_len_max as u64,
            bytes_max: config.audit.queue_bytes_max as u64,
            shed_from: None,
            deferred: Vec::new(),
            live,
        };
        (feed, Queue { batches, waiting, waiting_bytes })
    }

    fn send(&mut self, mut records: Vec<Record>) {
        let waiting = self.waiting.load(Relaxed);
        let full = waiting > 0
            && (waiting + records.len() as u64 > self.records_max
                || self.waiting_bytes.load(Relaxed) > self.bytes_max);
        if full {
            self.shed(records);
        } else {
            if let Some(from) = self.shed_from.take() {
                let reason = "the audit was behind".to_owned();
                let window = Window::new(from, clock::now());
                let mut first = vec![Record::Gap(Gap { session: None, window, reason })];
                first.append(&mut self.deferred);
                first.append(&mut records);
                records = first;
            }
            let bytes = records.iter().map(cost).sum();
            self.waiting.fetch_add(records.len() as u64, Relaxed);
            self.waiting_bytes.fetch_add(bytes, Relaxed);
            let _ = self.queue.send(Batch { records, bytes, at: clock::now() });
        }
        self.live.audit_queue_records.store(self.waiting.load(Relaxed), Relaxed);
    }

    /// Drops statements and marks; keeps what later records cannot be understood without.
    fn shed(&mut self, records: Vec<Record>) {
        for record in records {
            match record {
                Record::Statement(statement) => {
                    let from = self.shed_from.get_or_insert(statement.window.sent);
                    *from = (*from).min(statement.window.sent);
                    self.live.shed_records.fetch_add(1, Relaxed);
                }
                Record::Mark { at } => {
                    self.shed_from.get_or_insert(at);
                }
                kept => self.deferred.push(kept),
            }
        }
        self.shed_from.get_or_insert_with(clock::now);
    }
}

/// About how much memory a record holds.
fn cost(record: &Record) -> u64 {
    use pgassay_audit::trace::Outcome;
    let Record::Statement(statement) = record else {
        return 128;
    };
    let parameters: usize =
        statement.parameters.iter().flat_map(|p| &p.value).map(|value| 48 + value.len()).sum();
    let answer = match &statement.outcome {
        Outcome::Answer(answer) => {
            let cells: usize = answer.rows.iter().flatten().flatten().map(|cell| 32 + cell.len()).sum();
            cells + answer.copy.as_ref().map_or(0, |copy| copy.len())
        }
        _ => 0,
    };
    (512 + parameters + answer) as u64
}

/// The audit's thread: takes records until there are no more, whatever happens to the auditor.
fn judge(queue: Queue, settings: Settings, live: &Live) {
    let mut earlier = Summary::default();
    let mut auditor = Auditor::new(settings.clone());
    let mut published = Instant::now();
    loop {
        let batch = match queue.batches.recv_timeout(PUBLISH_EVERY) {
            Ok(batch) => Some(batch),
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => None,
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => break,
        };
        let mut found = false;
        if let Some(Batch { records, bytes, at }) = batch {
            live.audit_oldest.store(at, Relaxed);
            let count = records.len() as u64;
            let mut records = records.into_iter();
            // A crash loses one record and the auditor; the rest of the batch goes to its successor.
            while records.len() > 0 {
                let taken = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    records.by_ref().fold(false, |found, record| {
                        let violations = auditor.take(record);
                        tell(&violations);
                        found || !violations.is_empty()
                    })
                }));
                match taken {
                    Ok(more) => found |= more,
                    Err(_) => {
                        live.audit_panics.fetch_add(1, Relaxed);
                        tracing::error!(
                            "the audit crashed; it starts anew and knows nothing of what was before"
                        );
                        earlier = merged(&earlier, &auditor.summary());
                        auditor = Auditor::new(settings.clone());
                        let window = Window::new(0, clock::now());
                        let reason = "the audit crashed".to_owned();
                        auditor.take(Record::Gap(Gap { session: None, window, reason }));
                    }
                }
            }
            queue.waiting.fetch_sub(count, Relaxed);
            queue.waiting_bytes.fetch_sub(bytes, Relaxed);
            live.audit_queue_records.store(queue.waiting.load(Relaxed), Relaxed);
            if queue.batches.is_empty() {
                live.audit_oldest.store(0, Relaxed);
            }
        }
        if found || published.elapsed() >= PUBLISH_EVERY {
            published = Instant::now();
            publish(live, &earlier, &auditor);
        }
    }
    match std::panic::catch_unwind(AssertUnwindSafe(|| auditor.finish())) {
        Ok(violations) => tell(&violations),
        Err(_) => {
            live.audit_panics.fetch_add(1, Relaxed);
        }
    }
    publish(live, &earlier, &auditor);
}

fn tell(violations: &[pgassay_audit::verdict::Violation]) {
    for violation in violations {
        tracing::error!(id = %violation.id, rule = %violation.rule, level = ?violation.level, "violation");
    }
}

fn publish(live: &Live, earlier: &Summary, auditor: &Auditor) {
    let summary = merged(earlier, &auditor.summary());
    live.transactions.store(summary.transactions, Relaxed);
    let mut snapshot = live.audit();
    snapshot.stats = auditor.stats();
    snapshot.summary = summary;
}

/// The totals of two auditors, one after the other.
pub fn merged(earlier: &Summary, later: &Summary) -> Summary {
    if *earlier == Summary::default() {
        return later.clone();
    }
    let mut sum = later.clone();
    sum.transactions += earlier.transactions;
    sum.statements += earlier.statements;
    sum.gaps += earlier.gaps;
    sum.violations.splice(0..0, earlier.violations.iter().cloned());
    sum.coverage.checked += earlier.coverage.checked;
    sum.coverage.partial += earlier.coverage.partial;
    sum.coverage.unchecked += earlier.coverage.unchecked;
    for (reason, count) in &earlier.coverage.reasons {
        *sum.coverage.reasons.entry(reason.clone()).or_default() += count;
    }
    for (tier, count) in &earlier.tiers {
        *sum.tiers.entry(tier.clone()).or_default() += count;
    }
    for shape in &earlier.coverage.shapes {
        match sum.coverage.shapes.iter_mut().find(|other| other.shape == shape.shape) {
            Some(other) => {
                other.checked += shape.checked;
                other.partial += shape.partial;
                other.unchecked += shape.unchecked;
            }
            None => sum.coverage.shapes.push(shape.clone()),
        }
    }
    sum
}
