//! The door: records in, findings and totals out.
//!
//! The life of a record in one page: assemble → sequence → explain → certify → confirm → tell. Suspicions are confirmed
//! beside the others (`flight`), and told as if each had been confirmed on the spot.

mod doubt;
mod flight;
mod order;

use crate::assemble::{Assembled, Assembler, End, Step, Transaction};
use crate::certify::Certifier;
use crate::cluster::{Charge, Proved};
use crate::coverage::Tally;
use crate::exclude::{Excluder, Overlap, Who};
use crate::explain::claim;
use crate::explain::crash::{self, Crash};
use crate::explain::limits::Limits;
use crate::explain::run::Attempt;
use crate::explain::session::SessionState;
use crate::explain::{Accusation, Ahead, Explainer, Fate, Suspect};
use crate::points::CommitId;
use crate::pool::Pool;
use crate::report;
use crate::sequence::{Item, Sequencer};
use crate::state::TableId;
use crate::trace::{CatalogRead, Gap, NOBODY, Nanos, Record, TableName, Window};
use crate::verdict::{Summary, Violation};
use crate::withhold::{self, Kept, Reading, Standing, Wanted, Withheld};
use doubt::{by_parts, said_by, says_more_than_data};
use flight::Flight;
use pgassay_rules::Level;
use pgassay_rules::profile::{AbortedReads, LevelRules, Profile, ProfileError, ReadPoint};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// What the audit is told before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The database profile: `postgres`, `postgres-standby`, …
    pub profile: String,
    /// Judge every transaction at this level as well, besides the one on the wire.
    pub claim: Option<Level>,
    /// Threads that prove suspicions, and how many of these may wait for one; with 0 each is proved before anything else
    /// is judged.
    pub workers: usize,
    pub proofs_len_max: usize,
    /// How much work one transaction is worth.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            profile: "postgres".to_owned(),
            claim: None,
            workers: 1,
            proofs_len_max: 64,
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// The profile, if there is one of that name and it knows the level that is claimed.
    pub fn validate(&self) -> Result<Profile, ProfileError> {
        let profile = Profile::named(&self.profile)?;
        if let Some(level) = self.claim
            && rules_of_claim(&profile, level).is_none()
        {
            return Err(ProfileError {
                profile: self.profile.clone(),
                place: "claim".to_owned(),
                what: format!("the profile has no level «{level}»"),
            });
        }
        Ok(profile)
    }
}

/// A claim may name a level of the profile, or one of the paper's, which say something about any database.
fn rules_of_claim(profile: &Profile, level: Level) -> Option<LevelRules> {
    let paper = || Profile::named("paper").ok().and_then(|p| p.level(level).copied());
    profile.level(level).copied().or_else(paper)
}

/// Gauges of the audit's inside, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Records taken, and records whose verdict is known.
    pub taken: u64,
    pub judged: u64,
    /// Latest instant on the proxy's clock that is fully judged.
    pub judged_until: u64,
    pub versions_alive: u64,
    pub versions_collected: u64,
    pub transactions_open: u64,
    /// Transactions that have ended and still matter: whose place is open, or that may still be part of a cycle.
    pub transactions_remembered: u64,
    pub solver_ns: u64,
    /// Transactions in whose turn the audit crashed, and suspicions that it crashed on.
    pub crashes: u64,
    /// Violations that were kept back because the catalog may have gone stale, whatever became of them.
    pub withheld: u64,
    /// Suspicions that were decided again by the reference checker, those that are being, and of these the ones that no
    /// worker has begun with.
    pub proofs: u64,
    pub proofs_open: u64,
    pub proofs_waiting: u64,
    /// How often a suspect was explained after all, so that what came since was judged again.
    pub went_back: u64,
}

/// How many suspicions of one fingerprint are proved again; later ones are only counted.
const PROOFS_MAX: u64 = 8;
/// Crashes that are remembered until somebody asks for them.
const CRASHES_MAX: usize = 8;
/// Crashes in a row after which the audit itself is thought to be at fault.
const CRASHES_IN_A_ROW_MAX: usize = 3;
/// Transactions between two garbage collections.
const COLLECT_EVERY: u64 = 64;

/// Takes records in the order of the trace and tells what it found.
pub struct Auditor {
    settings: Settings,
    /// The rules of the level that is claimed, if one is.
    claim: Option<LevelRules>,
    assembler: Assembler,
    sequencer: Sequencer,
    explainer: Explainer,
    certifier: Certifier,
    excluder: Excluder,
    tally: Tally,
    /// Where in the summary the violation with this fingerprint is.
    told: FxHashMap<String, usize>,
    /// How often a suspicion with this fingerprint was looked at.
    looked: FxHashMap<String, u64>,
    /// What was found by a catalog that may have gone stale.
    withheld: Withheld,
    summary: Summary,
    stats: Stats,
    since_collect: u64,
    /// Somebody writes past the proxy: nothing is known for long.
    shared: bool,
    /// The one database whose state is kept: the one that was read at start, or the first that is seen.
    database: Option<String>,
    crashes: Vec<Crash>,
    /// How many transactions crashed the audit, with none in between that did not.
    crashed_in_a_row: usize,
    agenda: Agenda,
    flight: Flight,
}

/// What is still to be done in the turn of one transaction.
#[derive(Clone, Default)]
struct Agenda {
    /// Whose turn it is; nobody's, when there are no more records.
    txn: Option<Arc<Transaction>>,
    /// Statements that were counted before.
    counted: u64,
    due: VecDeque<Due>,
}

#[derive(Clone)]
enum Due {
    Settle(Fate),
    /// Would it have been right at the level that is claimed? With its session as it was, and its commit.
    Doubt(SessionState, Option<CommitId>),
    /// Judge again what was waiting for this one.
    Retry,
    Certify,
    CertifyApart,
    Close,
}

impl Auditor {
    /// An unknown profile, or a claim that it does not know, is refused by [`Settings::validate`]; here the
    /// built-in profile of PostgreSQL takes its place.
    pub fn new(settings: Settings) -> Auditor {
        let profile = settings
            .validate()
            .unwrap_or_else(|_| Profile::named("postgres").expect("built in"));
        let claim = settings.claim.and_then(|level| rules_of_claim(&profile, level));
        let mut explainer = Explainer::new(profile);
        explainer.limits = settings.limits;
        explainer.claims_serial = claim.is_some_and(|claim| claim.is_serial());
        let flight = Flight::new(Pool::new(settings.workers, settings.proofs_len_max));
        Auditor {
            settings,
            claim,
            assembler: Assembler::default(),
            sequencer: Sequencer::default(),
            explainer,
            certifier: Certifier::default(),
            excluder: Excluder::default(),
            tally: Tally::default(),
            told: FxHashMap::default(),
            looked: FxHashMap::default(),
            withheld: Withheld::default(),
            summary: Summary::default(),
            stats: Stats::default(),
            since_collect: 0,
            shared: false,
            database: None,
            crashes: Vec::new(),
            crashed_in_a_row: 0,
            agenda: Agenda::default(),
            flight,
        }
    }

    /// Takes one record as far as it can be taken now; returns what was found wrong.
    pub fn take(&mut self, record: Record) -> Vec<Violation> {
        let mut found = Vec::new();
        let mark = match &record {
            Record::Mark { at } => Some(*at),
            _ => None,
        };
        self.flight.remember(&record);
        self.receive(record, &mut found);
        if self.flight.is_due(mark) {
            self.take_over(&mut found);
        }
        found
    }

    fn receive(&mut self, record: Record, found: &mut Vec<Violation>) {
        self.stats.taken += 1;
        match record {
            Record::Bootstrap(bootstrap) => {
                self.assembler
                    .expect_settings(&bootstrap.settings, &bootstrap.catalog);
                self.sequencer
                    .add_other(bootstrap.window.done, Item::Bootstrap(Arc::from(bootstrap)));
            }
            Record::Reread(reread) => {
                self.sequencer
                    .add_other(reread.at, Item::Reread(Arc::from(reread)));
            }
            Record::Catalog(read) => {
                // Nothing but its version is there if it is known already.
                if read.catalog.len() > 1 {
                    self.assembler.expect_settings(&read.settings, &read.catalog);
                }
                self.sequencer.add_other(read.at, Item::Catalog(Arc::from(read)));
            }
            Record::Writers { at, exclusive, .. } => {
                self.sequencer.add_other(at, Item::Writers { at, exclusive })
            }
            record => {
                if let Record::Mark { at } = record {
                    self.sequencer.mark(at);
                }
                if let Record::SessionEnd { session, at } = record {
                    // What it takes down with it ends at the same instant.
                    let after = at.saturating_add(1);
                    self.sequencer.add_other(after, Item::SessionEnd(session));
                }
                if let Record::ServerGone { at, .. } = record {
                    self.sequencer.add_other(at, Item::ServerGone(at));
                }
                let mut assembled = Vec::new();
                self.assembler.take(record, &mut assembled);
                self.sequence(assembled);
            }
        }
        self.advance(found);
    }

    /// What is proved by now, if nothing has to be waited for: so that it is told while no records come. When this is
    /// asked changes nothing but when it is told.
    pub fn rest(&mut self) -> Vec<Violation> {
        let mut found = Vec::new();
        if self.flight.is_ready() {
            self.take_over(&mut found);
        }
        found
    }

    /// No more records will come: decides everything that is still open.
    pub fn finish(&mut self) -> Vec<Violation> {
        let mut found = Vec::new();
        loop {
            let mut assembled = Vec::new();
            self.assembler.finish(&mut assembled);
            self.sequence(assembled);
            self.sequencer.mark(Nanos::MAX);
            self.advance(&mut found);
            self.begin(None);
            self.agenda.due.extend([Due::Retry, Due::CertifyApart]);
            self.guard(&mut found, Auditor::work_off);
            if self.flight.is_empty() {
                self.release(&mut found);
                let kept = self.withheld.take_all();
                self.drop_kept(kept);
                return found;
            }
            // If something has to be judged again, it is not finished.
            self.take_over(&mut found);
        }
    }

    /// A recording that ends while sessions are there lacks what was under way and had no answer yet, though others may
    /// have seen it already: a gap from the last mark on, to be taken before the end, if anything depends on it.
    pub fn broken_off(&self) -> Option<Record> {
        let marked = self.sequencer.marked();
        let is_over = self.sequencer.is_empty() && self.assembler.open_len() == 0;
        if marked == 0
            || !self.assembler.has_sessions()
            || (is_over && self.explainer.oldest_waiting().is_none())
        {
            return None;
        }
        Some(Record::Gap(Gap {
            session: Some(NOBODY),
            window: Window::new(marked, Nanos::MAX),
            reason: "the recording ends while sessions are under way".to_owned(),
        }))
    }

    pub fn summary(&self) -> Summary {
        let mut summary = self.summary.clone();
        self.tally.fill(&mut summary);
        // When each was told is another matter.
        let place = |violation: &Violation| (violation.at, violation.id.clone());
        summary.violations.sort_by_key(place);
        summary
    }

    pub fn stats(&self) -> Stats {
        Stats {
            versions_alive: self.explainer.world().store.versions_alive,
            versions_collected: self.explainer.world().store.versions_collected,
            transactions_open: self.assembler.open_len() as u64,
            solver_ns: self.explainer.effort.get().time.as_nanos() as u64,
            proofs_open: self.flight.len() as u64,
            proofs_waiting: self.flight.waiting() as u64,
            went_back: self.flight.went_back(),
            transactions_remembered: self.explainer.world().order.open_len().max(self.certifier.len()) as u64,
            ..self.stats
        }
    }

    /// Tables of which something was lost, so that it is worth reading them again.
    pub fn lost(&self) -> Vec<TableName> {
        match self.shared {
            true => Vec::new(),
            false => self.explainer.world().lost(),
        }
    }

    /// Whether the catalog should be read again, because it may not be what it is taken for.
    pub fn wanted(&self) -> Option<Wanted> {
        self.withheld
            .wanted(self.explainer.catalog(), !self.flight.is_empty())
    }

    fn sequence(&mut self, assembled: Vec<Assembled>) {
        for item in assembled {
            match item {
                Assembled::Ended(txn) => {
                    // Whatever it has committed everybody can see at once.
                    if let Some(first) = by_parts(&txn).next() {
                        let item = Item::Parts(txn.clone());
                        self.sequencer.add_other(first.window.sent, item);
                    }
                    self.sequencer.add(txn);
                }
                Assembled::Prepared(txn) => {
                    let at = txn.end.window().sent;
                    self.sequencer.add_other(at, Item::Prepared(txn));
                }
                Assembled::Gap(gap) => self.sequencer.add_other(gap.window.sent, Item::Gap(gap)),
            }
        }
    }

    /// Judges everything that can be judged now.
    fn advance(&mut self, found: &mut Vec<Violation>) {
        while let Some(item) = self.sequencer.release() {
            // What was suspected before the catalog is looked at again is told, or kept back, before.
            if matches!(item, Item::Catalog(_) | Item::Bootstrap(_)) && self.take_over(found) {
                // It was looked at when what came since was judged again.
                continue;
            }
            match item {
                Item::Transaction(txn) => {
                    self.begin(Some(txn.clone()));
                    self.guard(found, |auditor, found| {
                        auditor.judge(&txn);
                        if txn.steps.len() > 1 && txn.steps.iter().any(Step::may_end_transaction) {
                            auditor.explainer.doubt_settings(&txn);
                        }
                        auditor.work_off(found);
                    });
                }
                Item::Gap(gap) => {
                    self.summary.gaps += 1;
                    if gap.may_hide_ddl() {
                        self.distrust_catalog(gap.window.done, || gap.reason.clone());
                    }
                    self.explainer.forget(gap.window.done);
                    self.explainer.blur_sessions(gap.session);
                }
                Item::Parts(txn) => self.distrust_parts(&txn),
                Item::Prepared(txn) => self.guard(found, |auditor, _| auditor.explainer.leave(&txn)),
                Item::SessionEnd(session) => self.explainer.end_session(session),
                Item::ServerGone(at) => self.survive(at),
                Item::Bootstrap(bootstrap) => {
                    let named = bootstrap.settings.iter().find(|(name, _)| name == "database");
                    if let Some((_, database)) = named {
                        self.database = Some(database.clone());
                    }
                    self.explainer.bootstrap(&bootstrap);
                    self.withheld.begin(&bootstrap.catalog, self.explainer.catalog());
                }
                Item::Catalog(read) => self.look_at(&read, found),
                Item::Reread(reread) => {
                    // Somebody whose turn is still to come may have been seen.
                    let early = self.sequencer.hasty_before(reread.window.done).next().is_some();
                    if !self.shared && !early {
                        self.explainer.reread(&reread);
                    }
                }
                Item::Writers { at, exclusive } => {
                    let before = std::mem::replace(&mut self.shared, !exclusive);
                    if self.shared {
                        self.explainer.forget(Nanos::MAX);
                        self.distrust_catalog(Nanos::MAX, || "somebody writes past the proxy".to_owned());
                    } else if before {
                        self.explainer.settle(at);
                        self.withheld.settle(at);
                    }
                }
            }
            self.release(found);
        }
    }

    /// The turn of a transaction begins.
    fn begin(&mut self, txn: Option<Arc<Transaction>>) {
        self.agenda.txn = txn;
        self.agenda.counted = self.counted();
    }

    /// Statements that are counted, or will be as soon as a suspicion is decided.
    fn counted(&self) -> u64 {
        self.tally.statements() + self.flight.statements()
    }

    /// The catalog was read again.
    fn look_at(&mut self, read: &CatalogRead, found: &mut Vec<Violation>) {
        // Somebody whose turn is still to come may have changed what was read, or somebody who was seen since.
        let early = self.sequencer.hasty_before(read.window.done).next().is_some();
        if early || self.explainer.catalog_since() >= read.window.sent {
            return;
        }
        let catalog = self.explainer.catalog().clone();
        match self.withheld.read(read.window, &read.catalog, &catalog) {
            Reading::Idle => {}
            Reading::Confirmed(kept) => {
                for kept in kept {
                    self.tell(&kept.first_sight, &kept.violation, found);
                }
            }
            Reading::Changed(kept) => {
                self.drop_kept(kept);
                for txn in self.explainer.renew(read) {
                    self.tally.count_unjudged(&txn, withhold::REASON);
                }
                self.certifier = Certifier::default();
                self.excluder = Excluder::default();
                self.withheld.adopted(&read.catalog, self.explainer.catalog());
            }
        }
    }

    /// What was found may be wrong, since what it was judged by is.
    fn drop_kept(&mut self, kept: Vec<Kept>) {
        for kept in kept {
            self.looked.remove(&kept.first_sight);
            self.tally.reason(withhold::REASON);
        }
    }

    /// Tells what was kept back until those had their turn who were there at the same time.
    fn release(&mut self, found: &mut Vec<Violation>) {
        let sequencer = &self.sequencer;
        let is_over = |kept: &Kept| sequencer.hasty_before(kept.done).next().is_none();
        for kept in self.withheld.release(is_over) {
            self.tell(&kept.first_sight, &kept.violation, found);
        }
    }

    /// A crash costs what is being judged, and what was known: everything is learned again. One after the other is for
    /// somebody else to end.
    fn guard(&mut self, found: &mut Vec<Violation>, judge: impl FnOnce(&mut Auditor, &mut Vec<Violation>)) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| judge(self, found))) else {
            self.crashed_in_a_row = 0;
            return;
        };
        self.crashed_in_a_row += 1;
        if self.crashed_in_a_row > CRASHES_IN_A_ROW_MAX {
            self.land(found);
            resume_unwind(panic);
        }
        self.agenda.due.clear();
        let txn = self.agenda.txn.take();
        if let Some(txn) = &txn {
            self.crashed(txn, crash::message(&*panic));
        } else {
            self.stats.crashes += 1;
        }
        let until = txn.as_ref().map_or(Nanos::MAX, |txn| txn.end.window().done);
        let waiting = self.explainer.recover(until);
        let is_about_rows = |txn: &Arc<Transaction>| {
            let tables = AssertUnwindSafe(|| self.explainer.tables_of(txn));
            !says_more_than_data(txn) && catch_unwind(tables).is_ok_and(|tables| tables.is_some())
        };
        if !txn.as_ref().is_some_and(is_about_rows) {
            self.distrust_catalog(until, || "the audit crashed".to_owned());
        }
        self.certifier = Certifier::default();
        self.excluder = Excluder::default();
        let uncounted = self.counted() == self.agenda.counted;
        for txn in waiting.iter().chain(txn.as_ref().filter(|_| uncounted)) {
            self.tally.count_unjudged(txn, crash::REASON);
        }
    }

    /// Remembers a crash until somebody asks for it.
    fn crashed(&mut self, txn: &Arc<Transaction>, message: Arc<str>) {
        let others = self
            .explainer
            .recent_committed()
            .chain(self.sequencer.upcoming(Nanos::MAX));
        let crash = Crash::new(txn, message, others);
        self.keep_crash(&crash);
    }

    fn keep_crash(&mut self, crash: &Crash) {
        self.stats.crashes += 1;
        if self.crashes.len() < CRASHES_MAX {
            self.crashes.push(crash.clone());
        }
    }

    /// What has crashed since the last time, as far as it was kept.
    pub fn take_crashes(&mut self) -> Vec<Crash> {
        match self.flight.may_go_back() {
            // It may crash again.
            true => Vec::new(),
            false => std::mem::take(&mut self.crashes),
        }
    }

    /// Judges a transaction; what follows from it is put on the agenda.
    fn judge(&mut self, txn: &Arc<Transaction>) {
        self.summary.transactions += 1;
        self.stats.judged += txn.steps.len() as u64;
        let database = &txn.facts.database;
        if !database.is_empty() && self.database.get_or_insert_with(|| database.clone()) != database {
            self.tally.count_unjudged(txn, "other_database");
            return;
        }
        if self.shared {
            // Whatever was known may have been overwritten since, by somebody nobody sees.
            self.explainer.forget(Nanos::MAX);
        }
        if let Some(until) = self.may_change_unseen(txn) {
            self.distrust_catalog(until, || format!("not wholly seen, or lost: {}", said_by(txn)));
        }
        if txn.vague || txn.borrows {
            let reason = match (txn.torn, txn.vague) {
                (true, _) => "begun_unseen",
                (false, true) => "unknown_level",
                (false, false) => "borrowed_snapshot",
            };
            self.tally.count_unjudged(txn, reason);
            self.explainer.follow(txn);
            self.agenda.due.push_back(Due::Retry);
            return;
        }
        let rules = self.rules_of(txn.level);
        let aborted = matches!(txn.end, End::Aborted(_));
        if aborted && rules.aborted_reads == AbortedReads::Anything {
            self.tally.count_aborted(txn);
            self.explainer.pass_over(txn);
            self.agenda.due.push_back(Due::Retry);
            return;
        }
        let ahead = Ahead {
            sequencer: &self.sequencer,
            assembler: &self.assembler,
        };
        let before = self.claim.is_some().then(|| self.explainer.session(txn));
        let fate = self.explainer.judge(txn, &ahead);
        if let Some(until) = self.explainer.take_unfollowed() {
            self.distrust_catalog(until, || format!("not followed: {}", said_by(txn)));
        }
        self.withheld
            .follow(txn.end.window().sent, self.explainer.catalog());
        let commit = match &fate {
            Fate::Explained(done, _) => done.commit,
            _ => None,
        };
        let due = &mut self.agenda.due;
        due.push_back(Due::Settle(fate));
        due.extend(before.map(|session| Due::Doubt(session, commit)));
        due.extend([Due::Retry, Due::Close]);
    }

    /// Does what is still to be done in this turn.
    fn work_off(&mut self, found: &mut Vec<Violation>) {
        while let Some(due) = self.agenda.due.pop_front() {
            match due {
                Due::Settle(fate) => self.settle(fate, found),
                Due::Doubt(session, commit) => self.doubt(session, commit, found),
                Due::Retry => {
                    let again = self.explainer.retry(self.agenda.txn.as_ref());
                    self.agenda.due.push_front(Due::Certify);
                    for (_, fate) in again.into_iter().rev() {
                        self.agenda.due.push_front(Due::Settle(fate));
                    }
                }
                Due::Certify => {
                    for explained in self.explainer.certifiable() {
                        self.certify(&explained, found);
                    }
                }
                Due::CertifyApart => self.certify_apart(found),
                Due::Close => self.close(),
            }
        }
    }

    /// What the profile promises at this level.
    fn rules_of(&self, level: Level) -> LevelRules {
        self.explainer.rules_of(level)
    }

    /// Would the transaction have been right at the level that is claimed for it?
    fn doubt(&mut self, session: SessionState, commit: Option<CommitId>, found: &mut Vec<Violation>) {
        let (Some(level), Some(rules), Some(txn)) = (self.settings.claim, self.claim, &self.agenda.txn)
        else {
            return;
        };
        let stronger = rules.read_point == ReadPoint::Transaction && !rules.is_serial();
        if !stronger || self.rules_of(txn.level).is_serial() || !matches!(txn.end, End::Committed(_)) {
            return;
        }
        if let Some(accusation) = self.explainer.doubt(txn, level, &rules, session, commit) {
            self.accuse(Charge::Doubt(accusation), found);
        }
    }

    /// What follows from the fate of one transaction.
    fn settle(&mut self, fate: Fate, found: &mut Vec<Violation>) {
        let doubt = self.withheld.now().is_in_doubt().then_some(withhold::REASON);
        match fate {
            Fate::Deferred => {}
            Fate::Explained(done, tier) => {
                self.exclude(&done.txn, &done.attempt, false, found);
                self.tally.count(&done.attempt, done.txn.level, tier, doubt);
                if let Some(message) = &done.attempt.crash {
                    self.crashed(&done.txn, message.clone());
                }
            }
            Fate::Unknown(attempt, reason) => self.tally.count_unknown(&attempt, reason),
            Fate::Suspect(accusation) => {
                let Suspect { txn, difference, .. } = &accusation.suspect;
                let (txn, attempt) = (txn.clone(), accusation.attempt.clone());
                // That it did not wait is suspected already.
                let suspected = ["dirty_write", "lost_update"].contains(&difference.rule.name);
                self.suspect(accusation, found);
                self.exclude(&txn, &attempt, suspected, found);
            }
        }
    }

    /// Did somebody else hold what it held, at the same time?
    fn exclude(
        &mut self,
        txn: &Arc<Transaction>,
        attempt: &Attempt,
        suspected: bool,
        found: &mut Vec<Violation>,
    ) {
        let leaves = matches!(txn.end, End::Committed(_)) && !attempt.overlay.is_empty();
        let who = Who {
            txn: txn.clone(),
            leaves,
        };
        let overlap = self.excluder.add(&who, &attempt.claims);
        let Some(Overlap { step, other }) = overlap.filter(|_| !suspected) else {
            return;
        };
        let worlds = self.explainer.worlds().iter();
        let worlds: Vec<_> = worlds.map(|w| (w.clone(), w.commit_of(txn))).collect();
        if leaves && worlds.iter().any(|(_, commit)| commit.is_none()) {
            return self.tally.reason("story_forgotten");
        }
        let suspect = Suspect {
            txn: txn.clone(),
            level: txn.level,
            rules: self.rules_of(txn.level),
            step,
            difference: claim::difference(),
            session: self.explainer.session_of(txn),
        };
        let accusation = Box::new(Accusation {
            suspect,
            worlds,
            attempt: attempt.clone(),
            later: Vec::new(),
        });
        self.accuse(Charge::Overlap(accusation, other), found);
    }

    /// Nothing the fast path knows explains it: prove it, or learn better.
    fn suspect(&mut self, accusation: Box<Accusation>, found: &mut Vec<Violation>) {
        let (txn, step) = (&accusation.suspect.txn, accusation.suspect.step);
        let attempt = &accusation.attempt;
        let guessed = accusation
            .worlds
            .iter()
            .any(|(w, _)| w.is_guessed(txn, attempt, step));
        if guessed {
            self.tally.count_unknown(attempt, "state_was_guessed");
            self.explainer.unlearn(txn, attempt, step);
            return;
        }
        // A transaction whose end was not seen has its turn before some of those whom it saw.
        if self.sequencer.is_unseen_before(txn.steps[step].seen.window.done) {
            self.tally.count_unknown(attempt, "unseen_writers");
            return;
        }
        if self.explainer.explains_by_rows(&accusation) {
            let doubt = self.withheld.now().is_in_doubt().then_some(withhold::REASON);
            self.tally.count(attempt, txn.level, "candidates", doubt);
            return;
        }
        self.accuse(Charge::Suspect(accusation), found);
    }

    /// Tells what was proved, or keeps it back while it may be the catalog that is wrong, as things stood when it was
    /// suspected. `first_sight` is the fingerprint under which its suspicions are counted.
    fn report(&mut self, first_sight: &str, proved: &Proved, stood: &Standing, found: &mut Vec<Violation>) {
        let (violation, done) = (&proved.violation, proved.done);
        let known = |tables: &Vec<TableId>| stood.are_known(tables);
        let doubted = stood.may_be_wrong(done) && !proved.tables.as_ref().is_some_and(known);
        let beside = self.sequencer.hasty_before(done).next().is_some();
        if !beside && !doubted {
            return self.tell(first_sight, violation, found);
        }
        if doubted {
            self.stats.withheld += 1;
            tracing::info!(
                rule = violation.rule,
                "kept back, as the tables may have been changed unseen: {}",
                violation.story
            );
            // With what the client sent, so not for every log.
            tracing::debug!("{}", report::markdown::violation(violation));
        }
        let kept = Kept {
            first_sight: first_sight.to_owned(),
            violation: violation.clone(),
            done,
        };
        if !self.withheld.keep(kept) {
            self.tally.reason(withhold::REASON);
        }
    }

    /// Tells a violation, or counts it if its like was told.
    fn tell(&mut self, first_sight: &str, violation: &Violation, found: &mut Vec<Violation>) {
        if let Some(&at) = self.told.get(&violation.fingerprint) {
            self.summary.violations[at].repeats += 1;
            self.told.insert(first_sight.to_owned(), at);
            return;
        }
        let at = self.summary.violations.len();
        self.told.insert(violation.fingerprint.clone(), at);
        self.told.insert(first_sight.to_owned(), at);
        self.summary.violations.push(violation.clone());
        found.push(violation.clone());
    }

    /// Whether the serial order that is promised to this level, or claimed, respects real time.
    fn is_in_real_time(&self, level: Level) -> bool {
        let rules = self.claim.unwrap_or_else(|| self.rules_of(level));
        rules.is_in_real_time()
    }

    /// The turn is over.
    fn close(&mut self) {
        let Some(txn) = self.agenda.txn.clone() else {
            return;
        };
        self.stats.judged_until = self.stats.judged_until.max(txn.end.window().sent);
        self.since_collect += 1;
        if self.since_collect >= COLLECT_EVERY {
            self.since_collect = 0;
            self.collect(&txn);
        }
    }

    fn collect(&mut self, current: &Transaction) {
        let mut horizon = current.end.window().sent;
        let waiting = self.sequencer.upcoming(Nanos::MAX).map(|t| t.sent()).next();
        for bound in [
            self.assembler.oldest_open(),
            waiting,
            self.explainer.oldest_waiting(),
        ]
        .into_iter()
        .flatten()
        {
            horizon = horizon.min(bound);
        }
        self.certifier.collect(horizon);
        self.excluder.collect(horizon);
        let kept = self
            .certifier
            .oldest()
            .map_or(horizon, |oldest| horizon.min(oldest));
        self.explainer.collect(current.end.window().sent, kept);
    }
}
