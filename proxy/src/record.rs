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
use crate::config::Config;
pub use crate::judge::merged;
use crate::judge::{Feed, judge};
use crate::keep::Keeper;
use crate::live::Live;
use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender};
use pgassay_audit::explain::limits::Limits;
use pgassay_audit::trace::{Nanos, Record};
use pgassay_audit::wire::{Captured, Commit, Decoder, Direction};
use pgassay_audit::{Auditor, Settings};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the recorder sleeps between two rounds while there is traffic. A burst wakes it earlier, so this is the
/// price of a wake-up (two switches of a processor that clients wait for) against the age of a verdict.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(50);
/// How long it sleeps at most when there is none.
const AT_MOST: Duration = Duration::from_millis(250);

/// Both threads, running.
pub struct Recording {
    recorder: JoinHandle<()>,
    audit: Option<JoinHandle<()>>,
    /// Takes records of the side connection.
    pub inbox: Sender<Record>,
}

impl Recording {
    /// `commits` gets the commits whose xid is known.
    pub fn start(
        recorder: Recorder,
        live: Arc<Live>,
        commits: tokio::sync::mpsc::Sender<Commit>,
    ) -> Result<Recording> {
        let config = live.config.load_full();
        let (inbox, side) = crossbeam_channel::unbounded();
        let (feed, audit) = if config.record_only {
            (None, None)
        } else {
            let (feed, queue) = Feed::new(&config, live.clone());
            let (settings, live) = (settings(&config)?, live.clone());
            let thread = std::thread::Builder::new().name("audit".to_owned());
            (
                Some(feed),
                Some(
                    thread
                        .spawn(move || judge(queue, || Auditor::new(settings.clone()), &live))
                        .context("a thread")?,
                ),
            )
        };
        let mut work = Work::new(live, &config, side, feed, commits)?;
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let recorder = thread.spawn(move || work.run(recorder)).context("a thread")?;
        Ok(Recording {
            recorder,
            audit,
            inbox,
        })
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
        Some(text) => Some(
            text.parse()
                .map_err(|error| anyhow::anyhow!("audit.claim: {error}"))?,
        ),
        None => None,
    };
    Ok(Settings {
        profile: config.audit.profile.clone(),
        claim,
        workers: config.audit.workers,
        proofs_len_max: config.audit.proofs_len_max,
        limits: Limits {
            runs_max: config.audit.runs_max,
            detours_max: config.audit.detours_max,
            worlds_max: config.audit.worlds_max,
            solver_steps_max: config.audit.solver_steps_max,
            proof_steps_max: config.audit.proof_steps_max,
            ..Limits::default()
        },
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
    commits: tokio::sync::mpsc::Sender<Commit>,
}

impl Work {
    fn new(
        live: Arc<Live>,
        config: &Config,
        side: Receiver<Record>,
        feed: Option<Feed>,
        commits: tokio::sync::mpsc::Sender<Commit>,
    ) -> Result<Work> {
        let limits = pgassay_audit::wire::Limits {
            result_bytes_max: config.capture.result_bytes_max,
            ..pgassay_audit::wire::Limits::default()
        };
        let keeper = Keeper::open(&config.journal, live.clone())?;
        Ok(Work {
            live,
            decoder: Decoder::new(limits),
            side,
            keeper,
            feed,
            records: Vec::new(),
            commits,
        })
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
        let mut added = self
            .live
            .added_latency
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let round = recorder.collect(
            |captured| {
                match &captured {
                    Captured::Bytes {
                        direction: Direction::ToServer,
                        bytes,
                        ..
                    } => to_server += bytes.len(),
                    Captured::Bytes {
                        direction: Direction::ToClient,
                        bytes,
                        ..
                    } => to_client += bytes.len(),
                    Captured::Gap { lost_bytes, .. } => lost += lost_bytes,
                    _ => (),
                }
                decoder.take(captured, records);
            },
            |took| added.saturating_record(u64::from(took)),
        );
        drop(added);
        // What the side connection said was said before the clients whose bytes were just collected were let in.
        self.records.splice(0..0, self.side.try_iter());
        if let Some(until) = round.until {
            self.decoder.mark(until, &mut self.records);
        }

        let live = &self.live;
        for pid in self.decoder.new_backends() {
            live.own.add_backend(pid);
        }
        for commit in self.decoder.new_commits() {
            // A hint: when too many wait, it is not missed.
            let _ = self.commits.try_send(commit);
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
        let mut latency = self
            .live
            .statement_latency
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for record in &self.records {
            if let Record::Statement(statement) = record
                && statement.window.done != Nanos::MAX
            {
                latency.saturating_record(statement.window.done.saturating_sub(statement.window.sent));
            }
        }
    }
}
