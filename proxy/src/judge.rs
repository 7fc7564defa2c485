//! Feeds the audit, and keeps it going: a bounded queue, and a thread that survives its auditor.
//!
//! In: batches of records from the recorder. Out: verdicts in [`Live`].
//!
//! Always true:
//!   - the recorder never waits: what the queue cannot take is shed, and becomes a gap as soon as there is
//!     room;
//!   - sessions' beginnings and ends, and what the side connection read, are never shed;
//!   - a transaction in whose turn the audit panics is counted, kept for replay, and costs nothing else; an auditor that
//!     panics all the same is replaced by one that knows nothing; what it had found stays.

use crate::clock;
use crate::config::{Config, Redact};
use crate::crashes;
use crate::live::Live;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use pgassay_audit::explain::crash::Crash;
use pgassay_audit::report::redact;
use pgassay_audit::trace::lex::{self, Effect};
use pgassay_audit::trace::{Gap, NOBODY, Nanos, Outcome, Record, SessionId, TableName, Window};
use pgassay_audit::verdict::{Summary, Violation};
use pgassay_audit::withhold::Wanted;
use pgassay_audit::{Auditor, Stats};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often the audit's totals are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);

/// What the thread needs of an auditor.
pub trait Judge {
    fn take(&mut self, record: Record) -> Vec<Violation>;
    /// What is proved by now, while no records come.
    fn rest(&mut self) -> Vec<Violation>;
    /// What must be taken before the end if the recording ends in midst.
    fn broken_off(&self) -> Option<Record>;
    fn finish(&mut self) -> Vec<Violation>;
    fn summary(&self) -> Summary;
    fn stats(&self) -> Stats;
    /// Tables that should be read again.
    fn lost(&self) -> Vec<TableName>;
    /// Whether the catalog should be read again.
    fn wanted(&self) -> Option<Wanted>;
    /// Transactions in whose turn it crashed and went on, since the last time.
    fn take_crashes(&mut self) -> Vec<Crash>;
}

impl Judge for Auditor {
    fn take(&mut self, record: Record) -> Vec<Violation> {
        Auditor::take(self, record)
    }

    fn rest(&mut self) -> Vec<Violation> {
        Auditor::rest(self)
    }

    fn broken_off(&self) -> Option<Record> {
        Auditor::broken_off(self)
    }

    fn finish(&mut self) -> Vec<Violation> {
        Auditor::finish(self)
    }

    fn summary(&self) -> Summary {
        Auditor::summary(self).clone()
    }

    fn stats(&self) -> Stats {
        Auditor::stats(self)
    }

    fn lost(&self) -> Vec<TableName> {
        Auditor::lost(self)
    }

    fn wanted(&self) -> Option<Wanted> {
        Auditor::wanted(self)
    }

    fn take_crashes(&mut self) -> Vec<Crash> {
        Auditor::take_crashes(self)
    }
}

/// An auditor that survives itself: one that panics is replaced by one that knows nothing.
pub struct Guarded<A, M> {
    make: M,
    auditor: A,
    /// What those before it have found.
    earlier: Summary,
    earlier_crashes: u64,
    /// Latest instant that a record spoke of.
    latest: Nanos,
}

impl<A: Judge, M: Fn() -> A> Guarded<A, M> {
    pub fn new(make: M) -> Guarded<A, M> {
        Guarded {
            auditor: make(),
            make,
            earlier: Summary::default(),
            earlier_crashes: 0,
            latest: 0,
        }
    }

    pub fn take(&mut self, record: Record) -> Vec<Violation> {
        let at = match &record {
            Record::Statement(statement) => statement.window.done.max(statement.ready.done),
            Record::Mark { at } => *at,
            _ => 0,
        };
        self.latest = self.latest.max(at);
        self.survive(|auditor| auditor.take(record))
    }

    pub fn rest(&mut self) -> Vec<Violation> {
        self.survive(Judge::rest)
    }

    /// No more records will come of sessions that may still be there.
    pub fn break_off(&mut self) -> Vec<Violation> {
        let gap = self.auditor.broken_off();
        gap.map_or_else(Vec::new, |gap| self.take(gap))
    }

    pub fn finish(&mut self) -> Vec<Violation> {
        self.survive(Judge::finish)
    }

    fn survive(&mut self, judge: impl FnOnce(&mut A) -> Vec<Violation>) -> Vec<Violation> {
        let judged = std::panic::catch_unwind(AssertUnwindSafe(|| judge(&mut self.auditor)));
        judged.unwrap_or_else(|_| {
            tracing::error!("the audit crashed; it starts anew and knows nothing of what was before");
            self.earlier = merged(&self.earlier, &self.auditor.summary());
            self.earlier_crashes += self.auditor.stats().crashes + 1;
            self.auditor = (self.make)();
            self.auditor.take(Record::Gap(Gap {
                session: None,
                window: Window::new(0, self.latest),
                reason: "the audit crashed".to_owned(),
            }))
        })
    }

    pub fn summary(&self) -> Summary {
        merged(&self.earlier, &self.auditor.summary())
    }

    /// How often the audit crashed, whatever it cost.
    pub fn crashes(&self) -> u64 {
        self.earlier_crashes + self.auditor.stats().crashes
    }

    pub fn take_crashes(&mut self) -> Vec<Crash> {
        self.auditor.take_crashes()
    }
}

/// The recorder's end of the audit's queue: bounded, never waited on.
pub struct Feed {
    queue: Sender<Batch>,
    waiting: Arc<AtomicU64>,
    waiting_bytes: Arc<AtomicU64>,
    records_max: u64,
    bytes_max: u64,
    /// Since when nothing was handed over, and what must not be lost of it.
    shed_from: Option<Nanos>,
    /// When what was shed was over.
    shed_until: Nanos,
    deferred: Vec<Record>,
    /// Sessions that may have set something meanwhile.
    unsettled: BTreeSet<SessionId>,
    /// The request group of which each session's last statement was dropped: the rest of it cannot be understood alone.
    cut: BTreeMap<SessionId, u64>,
    live: Arc<Live>,
}

struct Batch {
    records: Vec<Record>,
    bytes: u64,
    /// When it was handed over.
    at: Nanos,
}

/// The audit's end.
pub struct Queue {
    batches: Receiver<Batch>,
    waiting: Arc<AtomicU64>,
    waiting_bytes: Arc<AtomicU64>,
}

impl Feed {
    pub fn new(config: &Config, live: Arc<Live>) -> (Feed, Queue) {
        let (queue, batches) = crossbeam_channel::unbounded();
        let (waiting, waiting_bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let feed = Feed {
            queue,
            waiting: waiting.clone(),
            waiting_bytes: waiting_bytes.clone(),
            records_max: config.audit.queue_len_max as u64,
            bytes_max: config.audit.queue_bytes_max as u64,
            shed_from: None,
            shed_until: 0,
            deferred: Vec::new(),
            unsettled: BTreeSet::new(),
            cut: BTreeMap::new(),
            live,
        };
        (
            feed,
            Queue {
                batches,
                waiting,
                waiting_bytes,
            },
        )
    }

    pub fn send(&mut self, mut records: Vec<Record>) {
        let waiting = self.waiting.load(Relaxed);
        let full = waiting > 0
            && (waiting + records.len() as u64 > self.records_max
                || self.waiting_bytes.load(Relaxed) > self.bytes_max);
        if full {
            self.shed(records);
        } else {
            self.drop_rests(&mut records);
            if let Some(from) = self.shed_from.take() {
                let window = Window::new(from, std::mem::take(&mut self.shed_until).max(clock::now()));
                let unsettled = std::mem::take(&mut self.unsettled);
                let all = [NOBODY].into_iter().chain(unsettled);
                let mut first: Vec<Record> = all.map(|session| behind(session, window)).collect();
                first.append(&mut self.deferred);
                first.append(&mut records);
                records = first;
            }
            let bytes = records.iter().map(cost).sum();
            self.waiting.fetch_add(records.len() as u64, Relaxed);
            self.waiting_bytes.fetch_add(bytes, Relaxed);
            let _ = self.queue.send(Batch {
                records,
                bytes,
                at: clock::now(),
            });
        }
        self.live
            .audit_queue_records
            .store(self.waiting.load(Relaxed), Relaxed);
    }

    /// The statements of one request group are one transaction, or part of one: where some of them were dropped the others
    /// are dropped, too, each with a gap in its place.
    fn drop_rests(&mut self, records: &mut [Record]) {
        if self.cut.is_empty() {
            return;
        }
        for record in records {
            let session = match &*record {
                Record::Statement(statement) => statement.session,
                Record::SessionEnd { session, .. } => *session,
                _ => continue,
            };
            let Entry::Occupied(cut) = self.cut.entry(session) else {
                continue;
            };
            match record {
                Record::Statement(statement) if statement.group == *cut.get() => {
                    let window = Window::new(statement.window.sent, statement.over_by());
                    let of = if may_set(&statement.text) { session } else { NOBODY };
                    self.live.shed_records.fetch_add(1, Relaxed);
                    *record = behind(of, window);
                }
                _ => drop(cut.remove()),
            }
        }
    }

    /// Drops statements and marks; keeps what later records cannot be understood without.
    fn shed(&mut self, records: Vec<Record>) {
        for record in records {
            match record {
                Record::Statement(statement) => {
                    let from = self.shed_from.get_or_insert(statement.window.sent);
                    *from = (*from).min(statement.window.sent);
                    self.shed_until = self.shed_until.max(statement.over_by());
                    if may_set(&statement.text) {
                        self.unsettled.insert(statement.session);
                    }
                    self.cut.insert(statement.session, statement.group);
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

/// What stands in the place of records that were shed.
fn behind(session: SessionId, window: Window) -> Record {
    Record::Gap(Gap {
        session: Some(session),
        window,
        reason: "the audit was behind".to_owned(),
    })
}

/// Whether later statements of the session may mean something else after this one.
fn may_set(text: &str) -> bool {
    let plain = match lex::effect(text) {
        Effect::Data | Effect::Ends => true,
        Effect::Harmless => lex::is_begin(text),
        Effect::Other | Effect::Several => false,
    };
    // A cursor that is held goes on from transaction to transaction.
    let moves = text
        .trim_start()
        .get(..5)
        .is_some_and(|word| word.eq_ignore_ascii_case("fetch"));
    !plain || moves || text.contains("set_config")
}

/// About how much memory a record holds.
fn cost(record: &Record) -> u64 {
    let Record::Statement(statement) = record else {
        return 128;
    };
    let parameters: usize = statement
        .parameters
        .iter()
        .flat_map(|p| &p.value)
        .map(|value| 48 + value.len())
        .sum();
    let answer = match &statement.outcome {
        Outcome::Answer(answer) => {
            let cells: usize = answer
                .rows
                .iter()
                .flatten()
                .flatten()
                .map(|cell| 32 + cell.len())
                .sum();
            cells + answer.copy.as_ref().map_or(0, |copy| copy.len())
        }
        _ => 0,
    };
    (512 + parameters + answer) as u64
}

/// The audit's thread: takes records until there are no more, whatever happens to the auditor. `make` makes a
/// new one.
pub fn judge<A: Judge>(queue: Queue, make: impl Fn() -> A, live: &Live) {
    let mut auditor = Guarded::new(make);
    let mut published = Instant::now();
    loop {
        let batch = match queue.batches.recv_timeout(PUBLISH_EVERY) {
            Ok(batch) => Some(batch),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let mut found = false;
        if let Some(Batch { records, bytes, at }) = batch {
            live.audit_oldest.store(at, Relaxed);
            let count = records.len() as u64;
            for record in records {
                let violations = auditor.take(record);
                tell(&violations);
                found |= !violations.is_empty();
            }
            note_crashes(live, &mut auditor);
            queue.waiting.fetch_sub(count, Relaxed);
            queue.waiting_bytes.fetch_sub(bytes, Relaxed);
            live.audit_queue_records
                .store(queue.waiting.load(Relaxed), Relaxed);
            if queue.batches.is_empty() {
                live.audit_oldest.store(0, Relaxed);
            }
        }
        // Whoever waits for the end asks what is wanted.
        let wants = auditor.auditor.wanted().is_some();
        let news = found || wants != live.audit().wanted.is_some();
        if news || published.elapsed() >= PUBLISH_EVERY {
            published = Instant::now();
            tell(&auditor.rest());
            note_crashes(live, &mut auditor);
            publish(live, &auditor);
        }
    }
    tell(&auditor.break_off());
    tell(&auditor.finish());
    note_crashes(live, &mut auditor);
    publish(live, &auditor);
}

/// Counts crashes, and keeps what is needed to see them again.
fn note_crashes<A: Judge, M: Fn() -> A>(live: &Live, auditor: &mut Guarded<A, M>) {
    live.audit_panics.store(auditor.crashes(), Relaxed);
    for crash in auditor.take_crashes() {
        crashes::keep(&live.config.load().journal, &crash);
    }
}

fn tell(violations: &[Violation]) {
    for violation in violations {
        tracing::error!(target: "pgassay::violations", id = %violation.id, rule = %violation.rule, level = ?violation.level, "violation");
    }
}

fn publish<A: Judge, M: Fn() -> A>(live: &Live, guarded: &Guarded<A, M>) {
    let mut summary = guarded.summary();
    let auditor = &guarded.auditor;
    // From here on it is told to people: what may not be written down may not be shown either.
    if live.config.load().journal.redact == Redact::Hash {
        summary.violations = summary.violations.iter().map(redact::violation).collect();
    }
    live.transactions.store(summary.transactions, Relaxed);
    let mut snapshot = live.audit();
    snapshot.stats = auditor.stats();
    snapshot.lost = auditor.lost();
    snapshot.wanted = auditor.wanted();
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
    for (level, count) in &earlier.coverage.levels {
        *sum.coverage.levels.entry(*level).or_default() += count;
    }
    for (tier, count) in &earlier.tiers {
        *sum.tiers.entry(tier.clone()).or_default() += count;
    }
    for shape in &earlier.coverage.shapes {
        match sum
            .coverage
            .shapes
            .iter_mut()
            .find(|other| other.shape == shape.shape)
        {
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

#[cfg(test)]
mod tests {
    use super::*;
    use pgassay_audit::trace::LIMBO_NS;
    use pgassay_audit::trace::{Observation, Protocol, SessionId, Status};

    fn statement(text: &str, sent: Nanos) -> Record {
        Record::Statement(Box::new(Observation {
            session: SessionId(1),
            seq: 0,
            text: text.into(),
            part: 0,
            protocol: Protocol::Simple,
            parameters: Vec::new(),
            window: Window::new(sent, sent + 1),
            outcome: Outcome::Skipped,
            before: Status::Idle,
            after: Status::Idle,
            group: sent / 10,
            ready: Window::new(sent, sent + 1),
        }))
    }

    /// Counts statements; panics when it is told to.
    #[derive(Default)]
    struct Fragile {
        summary: Summary,
    }

    impl Judge for Fragile {
        fn take(&mut self, record: Record) -> Vec<Violation> {
            match record {
                Record::Statement(statement) if &*statement.text == "panic" => {
                    panic!("as the test asked for")
                }
                Record::Statement(_) => self.summary.statements += 1,
                Record::Gap(_) => self.summary.gaps += 1,
                _ => (),
            }
            Vec::new()
        }

        fn rest(&mut self) -> Vec<Violation> {
            Vec::new()
        }

        fn broken_off(&self) -> Option<Record> {
            None
        }

        fn finish(&mut self) -> Vec<Violation> {
            Vec::new()
        }

        fn summary(&self) -> Summary {
            self.summary.clone()
        }

        fn stats(&self) -> Stats {
            Stats::default()
        }

        fn lost(&self) -> Vec<TableName> {
            Vec::new()
        }

        fn wanted(&self) -> Option<Wanted> {
            None
        }

        fn take_crashes(&mut self) -> Vec<Crash> {
            Vec::new()
        }
    }

    #[test]
    fn an_auditor_that_panics_is_replaced() {
        let live = Arc::new(Live::new(Config::default()));
        let (mut feed, queue) = Feed::new(&Config::default(), live.clone());
        feed.send(vec![statement("a", 1), statement("panic", 2), statement("b", 3)]);
        feed.send(vec![statement("panic", 4)]);
        feed.send(vec![statement("c", 5)]);
        drop(feed);
        judge(queue, Fragile::default, &live);
        assert_eq!(live.audit_panics.load(Relaxed), 2);
        assert_eq!(live.summary().statements, 3);
        assert_eq!(
            live.summary().gaps,
            2,
            "each successor is told that it missed everything before"
        );
    }

    #[test]
    fn what_does_not_fit_is_shed_as_a_gap_before_anything_later() {
        let mut config = Config::default();
        config.audit.queue_len_max = 3;
        let live = Arc::new(Live::new(config.clone()));
        let (mut feed, queue) = Feed::new(&config, live.clone());
        feed.send(vec![statement("a", 10), statement("b", 11)]);
        let end = Record::SessionEnd {
            session: SessionId(7),
            at: 25,
        };
        feed.send(vec![
            statement("select 'c'", 20),
            end.clone(),
            statement("set search_path = d", 19),
            Record::Mark { at: 30 },
        ]);
        assert_eq!(live.shed_records.load(Relaxed), 2);
        // The audit catches up.
        let first = queue.batches.try_recv().unwrap();
        queue.waiting.fetch_sub(first.records.len() as u64, Relaxed);
        // The rest of the group that was dropped last, and the next one.
        feed.send(vec![statement("rest of c", 18), statement("e", 40)]);
        let second = queue.batches.try_recv().unwrap().records;
        let Record::Gap(gap) = &second[0] else {
            panic!("{second:?}")
        };
        assert_eq!((gap.session, gap.window.sent), (Some(NOBODY), 19));
        let Record::Gap(gap) = &second[1] else {
            panic!("{second:?}")
        };
        assert_eq!((gap.session, gap.window.sent), (Some(SessionId(1)), 19));
        assert_eq!(second[2], end);
        assert!(matches!(&second[3], Record::Gap(gap) if gap.window == Window::new(18, 19)));
        assert!(matches!(&second[4], Record::Statement(statement) if &*statement.text == "e"));
    }

    #[test]
    fn what_is_shed_of_a_lost_client_may_go_on() {
        let mut config = Config::default();
        config.audit.queue_len_max = 1;
        let live = Arc::new(Live::new(config.clone()));
        let (mut feed, queue) = Feed::new(&config, live);
        feed.send(vec![statement("a", 10)]);
        let sent = clock::now();
        let mut lost = statement("b", sent);
        if let Record::Statement(statement) = &mut lost {
            statement.outcome = Outcome::Lost;
        }
        feed.send(vec![lost]);
        let first = queue.batches.try_recv().unwrap();
        queue.waiting.fetch_sub(first.records.len() as u64, Relaxed);
        feed.send(vec![statement("c", clock::now())]);
        let second = queue.batches.try_recv().unwrap().records;
        let until = sent + LIMBO_NS;
        assert!(matches!(&second[0], Record::Gap(gap) if gap.window == Window::new(sent, until)));
    }
}
