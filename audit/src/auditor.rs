//! The door: records in, findings and totals out.
//!
//! The life of a record in one page: assemble → sequence → explain → certify → confirm → tell.

use crate::assemble::{Assembled, Assembler, End, Transaction};
use crate::certify::{self, Certifier, Node};
use crate::classify;
use crate::confirm::{self, Confirmed};
use crate::coverage::Tally;
use crate::explain::crash::{self, Crash};
use crate::explain::limits::Limits;
use crate::explain::renew::LIMBO_NS;
use crate::explain::run::{SNAPSHOT, is_statement_level};
use crate::explain::session::SessionState;
use crate::explain::world::Explained;
use crate::explain::{Accusation, Ahead, Explainer, Fate};
use crate::ground;
use crate::interpret::Touch;
use crate::points::{CommitId, PointId};
use crate::reference::Member;
use crate::relate;
use crate::sequence::{Item, Sequencer};
use crate::state::TableId;
use crate::story::{self, Proof};
use crate::trace::lex::{self, Effect};
use crate::trace::{CatalogRead, Nanos, Record, Status, TableName};
use crate::verdict::{Summary, Violation};
use crate::withhold::{self, Kept, Reading, Wanted, Withheld};
use pgassay_rules::profile::{AbortedReads, LevelRules, Profile, ProfileError, ReadPoint, SerialOrder};
use pgassay_rules::{Level, Rule};
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// What the audit is told before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The database profile: `postgres`, `postgres-standby`, …
    pub profile: String,
    /// Judge every transaction at this level as well, besides the one on the wire.
    pub claim: Option<Level>,
    pub workers: usize,
    /// How much work one transaction is worth.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            profile: "postgres".to_owned(),
            claim: None,
            workers: 1,
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
    /// Transactions in whose turn the audit crashed.
    pub crashes: u64,
    /// Violations that were kept back because the catalog may have gone stale, whatever became of them.
    pub withheld: u64,
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
        Auditor {
            settings,
            claim,
            assembler: Assembler::default(),
            sequencer: Sequencer::default(),
            explainer,
            certifier: Certifier::default(),
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
        }
    }

    /// Takes one record as far as it can be taken now; returns what was found wrong.
    pub fn take(&mut self, record: Record) -> Vec<Violation> {
        self.stats.taken += 1;
        match record {
            Record::Bootstrap(bootstrap) => {
                let level = bootstrap
                    .settings
                    .iter()
                    .find(|(n, _)| n == "default_transaction_isolation");
                if let Some(level) = level.and_then(|(_, v)| v.parse().ok()) {
                    self.assembler.default_level(level);
                }
                self.sequencer
                    .add_other(bootstrap.window.done, Item::Bootstrap(Arc::from(bootstrap)));
            }
            Record::Reread(reread) => {
                self.sequencer
                    .add_other(reread.at, Item::Reread(Arc::from(reread)));
            }
            Record::Catalog(read) => {
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
                    self.sequencer.add_other(at, Item::SessionEnd(session));
                }
                let mut assembled = Vec::new();
                self.assembler.take(record, &mut assembled);
                self.sequence(assembled);
            }
        }
        self.advance()
    }

    /// No more records will come: decides everything that is still open.
    pub fn finish(&mut self) -> Vec<Violation> {
        let mut assembled = Vec::new();
        self.assembler.finish(&mut assembled);
        self.sequence(assembled);
        self.sequencer.mark(Nanos::MAX);
        let mut found = self.advance();
        self.guard(None, &mut found, |auditor, found| auditor.retry(None, found));
        self.release(&mut found);
        let kept = self.withheld.take_all();
        self.drop_kept(kept);
        found
    }

    pub fn summary(&self) -> Summary {
        let mut summary = self.summary.clone();
        self.tally.fill(&mut summary);
        summary
    }

    pub fn stats(&self) -> Stats {
        Stats {
            versions_alive: self.explainer.world().store.versions_alive,
            versions_collected: self.explainer.world().store.versions_collected,
            transactions_open: self.assembler.open_len() as u64,
            solver_ns: self.explainer.effort.get().time.as_nanos() as u64,
            transactions_remembered: self.explainer.world().order.open_len().max(self.certifier.len()) as u64,
            ..self.stats
        }
    }

    /// Tables of which something was lost, so that it is worth reading them again.
    pub fn lost(&self) -> Vec<TableName> {
        match self.shared {
            true => Vec::new(),
            false => self.explainer.lost(),
        }
    }

    /// Whether the catalog should be read again, because it may not be what it is taken for.
    pub fn wanted(&self) -> Option<Wanted> {
        self.withheld.wanted(self.explainer.catalog())
    }

    fn sequence(&mut self, assembled: Vec<Assembled>) {
        for item in assembled {
            match item {
                Assembled::Ended(txn) => self.sequencer.add(txn),
                Assembled::Gap(gap) => self.sequencer.add_other(gap.window.sent, Item::Gap(gap)),
            }
        }
    }

    /// Judges everything that can be judged now.
    fn advance(&mut self) -> Vec<Violation> {
        let mut found = Vec::new();
        while let Some(item) = self.sequencer.release() {
            match item {
                Item::Transaction(txn) => self.guard(Some(&txn), &mut found, |auditor, found| {
                    auditor.judge(&txn, found);
                }),
                Item::Gap(gap) => {
                    self.summary.gaps += 1;
                    if gap.may_hide_ddl() {
                        self.withheld.doubt(gap.window.done, self.explainer.catalog());
                    }
                    self.explainer.forget(gap.window.done);
                    self.explainer.blur_sessions(gap.session);
                }
                Item::SessionEnd(session) => self.explainer.end_session(session),
                Item::Bootstrap(bootstrap) => {
                    let named = bootstrap.settings.iter().find(|(name, _)| name == "database");
                    if let Some((_, database)) = named {
                        self.database = Some(database.clone());
                    }
                    self.explainer.bootstrap(&bootstrap);
                    self.withheld.begin(&bootstrap.catalog, self.explainer.catalog());
                }
                Item::Catalog(read) => self.look_at(&read, &mut found),
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
                        self.withheld.doubt(Nanos::MAX, self.explainer.catalog());
                    } else if before {
                        self.explainer.settle(at);
                        self.withheld.settle(at);
                    }
                }
            }
            self.release(&mut found);
        }
        found
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
                    self.tell(kept.first_sight, kept.violation, found);
                }
            }
            Reading::Changed(kept) => {
                self.drop_kept(kept);
                for txn in self.explainer.renew(read) {
                    self.tally.count_unjudged(&txn, withhold::REASON);
                }
                self.certifier = Certifier::default();
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
            self.tell(kept.first_sight, kept.violation, found);
        }
    }

    /// A crash costs what is being judged, and what was known: everything is learned again. One after the other is for
    /// somebody else to end.
    fn guard(
        &mut self,
        txn: Option<&Arc<Transaction>>,
        found: &mut Vec<Violation>,
        judge: impl FnOnce(&mut Auditor, &mut Vec<Violation>),
    ) {
        let counted = self.tally.statements();
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| judge(self, found))) else {
            self.crashed_in_a_row = 0;
            return;
        };
        self.crashed_in_a_row += 1;
        if self.crashed_in_a_row > CRASHES_IN_A_ROW_MAX {
            resume_unwind(panic);
        }
        if let Some(txn) = txn {
            self.crashed(txn, crash::message(&*panic));
        } else {
            self.stats.crashes += 1;
        }
        let until = txn.map_or(Nanos::MAX, |txn| txn.end.window().done);
        let waiting = self.explainer.recover(until);
        let is_about_rows = |txn: &Arc<Transaction>| {
            let tables = AssertUnwindSafe(|| self.explainer.tables_of(txn));
            !says_more_than_data(txn) && catch_unwind(tables).is_ok_and(|tables| tables.is_some())
        };
        if !txn.is_some_and(is_about_rows) {
            self.withheld.doubt(until, self.explainer.catalog());
        }
        self.certifier = Certifier::default();
        let uncounted = self.tally.statements() == counted;
        for txn in waiting.iter().chain(txn.filter(|_| uncounted)) {
            self.tally.count_unjudged(txn, crash::REASON);
        }
    }

    /// Remembers a crash until somebody asks for it.
    fn crashed(&mut self, txn: &Arc<Transaction>, message: Arc<str>) {
        self.stats.crashes += 1;
        if self.crashes.len() < CRASHES_MAX {
            let others = self.explainer.recent_committed().chain(self.sequencer.upcoming());
            let crash = Crash::new(txn, message, others);
            self.crashes.push(crash);
        }
    }

    /// What has crashed since the last time, as far as it was kept.
    pub fn take_crashes(&mut self) -> Vec<Crash> {
        std::mem::take(&mut self.crashes)
    }

    fn judge(&mut self, txn: &Arc<Transaction>, found: &mut Vec<Violation>) {
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
        if let Some(until) = may_change_unseen(txn) {
            self.withheld.doubt(until, self.explainer.catalog());
        }
        if txn.vague {
            self.tally.count_unjudged(txn, "begun_unseen");
            self.explainer.follow(txn);
            self.retry(Some(txn), found);
            return;
        }
        let rules = self.rules_of(txn.level);
        let aborted = matches!(txn.end, End::Aborted(_));
        if aborted && rules.aborted_reads == AbortedReads::Anything {
            self.tally.count_aborted(txn);
            self.explainer.pass_over(txn);
            self.retry(Some(txn), found);
            return;
        }
        let ahead = Ahead {
            sequencer: &self.sequencer,
            assembler: &self.assembler,
        };
        let before = self.claim.is_some().then(|| self.explainer.session(txn));
        let fate = self.explainer.judge(txn, &ahead);
        if let Some(until) = self.explainer.take_unfollowed() {
            self.withheld.doubt(until, self.explainer.catalog());
        }
        self.withheld
            .follow(txn.end.window().sent, self.explainer.catalog());
        let commit = match &fate {
            Fate::Explained(done, _) => done.commit,
            _ => None,
        };
        self.settle(fate, found);
        if let Some(session) = before {
            self.doubt(txn, session, commit, found);
        }
        self.retry(Some(txn), found);
        self.stats.judged_until = self.stats.judged_until.max(txn.end.window().sent);
        self.since_collect += 1;
        if self.since_collect >= COLLECT_EVERY {
            self.since_collect = 0;
            self.collect(txn);
        }
    }

    /// Judges again what was waiting for this one.
    fn retry(&mut self, judged: Option<&Transaction>, found: &mut Vec<Violation>) {
        for (_, fate) in self.explainer.retry(judged) {
            self.settle(fate, found);
        }
        for explained in self.explainer.certifiable() {
            self.certify(&explained, found);
        }
    }

    /// What the profile promises at this level.
    fn rules_of(&self, level: Level) -> LevelRules {
        self.explainer.rules_of(level)
    }

    /// Would the transaction have been right at the level that is claimed for it?
    fn doubt(
        &mut self,
        txn: &Arc<Transaction>,
        session: SessionState,
        commit: Option<CommitId>,
        found: &mut Vec<Violation>,
    ) {
        let (Some(level), Some(rules)) = (self.settings.claim, self.claim) else {
            return;
        };
        let stronger = rules.read_point == ReadPoint::Transaction && rules.serial_order == SerialOrder::None;
        if !stronger || is_promised(&self.rules_of(txn.level)) || !matches!(txn.end, End::Committed(_)) {
            return;
        }
        if let Some(accusation) = self.explainer.doubt(txn, level, &rules, session, commit) {
            self.accuse(&accusation, found);
        }
    }

    /// What follows from the fate of one transaction.
    fn settle(&mut self, fate: Fate, found: &mut Vec<Violation>) {
        let doubt = self.withheld.is_in_doubt().then_some(withhold::REASON);
        match fate {
            Fate::Deferred => {}
            Fate::Explained(done, tier) => {
                self.tally.count(&done.attempt, done.txn.level, tier, doubt);
                if let Some(message) = &done.attempt.crash {
                    self.crashed(&done.txn, message.clone());
                }
            }
            Fate::Unknown(attempt, reason) => self.tally.count_unknown(&attempt, reason),
            Fate::Suspect(accusation) => self.suspect(&accusation, found),
        }
    }

    /// Nothing the fast path knows explains it: prove it, or learn better.
    fn suspect(&mut self, accusation: &Accusation, found: &mut Vec<Violation>) {
        let (txn, step) = (&accusation.suspect.txn, accusation.suspect.step);
        let attempt = &accusation.attempt;
        let doubt = self.withheld.is_in_doubt().then_some(withhold::REASON);
        let guessed = accusation
            .worlds
            .iter()
            .any(|(w, _)| w.is_guessed(txn, attempt, step));
        let accused = match guessed {
            true => Accused::Unknown("state_was_guessed"),
            false => self.accuse(accusation, found),
        };
        match accused {
            Accused::Proved => {
                self.tally.count(attempt, txn.level, "solver", doubt);
                self.explainer.unlearn(txn, attempt, step);
            }
            Accused::Explained(members) => {
                self.tally.count(attempt, txn.level, "solver", doubt);
                self.explainer.distrust(&members);
            }
            Accused::Unknown(reason) => {
                self.tally.count_unknown(attempt, reason);
                self.explainer.unlearn(txn, attempt, step);
            }
        }
    }

    /// Has the reference checker decide a suspicion in every world, and tells what is proved in all of them.
    fn accuse(&mut self, accusation: &Accusation, found: &mut Vec<Violation>) -> Accused {
        let suspect = &accusation.suspect;
        if suspect.rules.read_point == ReadPoint::Key && !reads_one_key(accusation) {
            // Every row may come from another state, and nobody tries all of their combinations.
            return Accused::Unknown("reads_by_key");
        }
        let shapes = vec![classify::shape(suspect, &self.explainer)];
        let first_sight = story::fingerprint(suspect.difference.rule, suspect.level, &shapes);
        if self.is_known(&first_sight) {
            return Accused::Proved;
        }
        let mut proved = None;
        for (world, commit) in &accusation.worlds {
            match confirm::suspect(suspect, world, *commit, &self.explainer) {
                Confirmed::Impossible { members, differences } => {
                    proved.get_or_insert((world, *commit, members, differences));
                }
                Confirmed::Explained { members, .. } => return Accused::Explained(members),
                Confirmed::Unknown(reason) => return Accused::Unknown(reason),
            }
        }
        let Some((world, commit, members, differences)) = proved else {
            return Accused::Unknown("order_left_open");
        };
        let mut told: Vec<_> = differences.into_iter().filter(|(m, _, _)| *m == 0).collect();
        if told.is_empty() {
            told.push((0, suspect.step, suspect.difference.clone()));
        }
        let rule = classify::suspect(suspect, world, commit, &self.explainer);
        let alone = ["internal_inconsistency", "stale_read"].contains(&rule.name);
        if alone && !suspect.rules.internal && has_written_before(accusation) {
            // Without its own writes, which it need not see, a committed state explains the answer.
            return Accused::Unknown("own_writes");
        }
        let related = relate::story(rule, suspect, members, world, &self.explainer);
        let proof = Proof {
            rule,
            level: suspect.level,
            members: &related.members,
            differences: &told,
            edges: &related.edges,
            shapes,
            initial: story::initial_rows(&related.members, world),
            ground: ground::of(&related.members, world, &self.explainer),
        };
        let violation = story::tell(&proof);
        self.report(first_sight, violation, &related.members, found);
        Accused::Proved
    }

    /// Whether enough suspicions with this fingerprint were proved; if so it is counted.
    fn is_known(&mut self, fingerprint: &str) -> bool {
        let looked = self.looked.entry(fingerprint.to_owned()).or_default();
        *looked += 1;
        let enough = *looked > PROOFS_MAX;
        if enough && let Some(at) = self.told.get(fingerprint) {
            self.summary.violations[*at].repeats += 1;
            return true;
        }
        enough && self.withheld.repeat(fingerprint)
    }

    /// Tells a violation, or keeps it back while it may be the catalog that is wrong. `first_sight` is the fingerprint
    /// under which its suspicions are counted.
    fn report(
        &mut self,
        first_sight: String,
        violation: Violation,
        members: &[Member],
        found: &mut Vec<Violation>,
    ) {
        let ends = members.iter().map(|member| match member.txn.end {
            End::Unknown(window) => window.sent,
            end => end.window().done,
        });
        let done = ends.max().unwrap_or(violation.at);
        let beside = self.sequencer.hasty_before(done).next().is_some();
        let doubted = self.withheld.may_be_wrong(done) && !self.are_known(members);
        if !beside && !doubted {
            return self.tell(first_sight, violation, found);
        }
        self.stats.withheld += u64::from(doubted);
        let kept = Kept {
            first_sight,
            violation,
            done,
        };
        if !self.withheld.keep(kept) {
            self.tally.reason(withhold::REASON);
        }
    }

    /// Whether what these are about was made after the catalog had been in doubt.
    fn are_known(&self, members: &[Member]) -> bool {
        let tables: Option<Vec<Vec<TableId>>> = members
            .iter()
            .map(|member| self.explainer.tables_of(&member.txn))
            .collect();
        tables.is_some_and(|tables| self.withheld.are_known(&tables.concat()))
    }

    /// Tells a violation, or counts it if its like was told.
    fn tell(&mut self, first_sight: String, violation: Violation, found: &mut Vec<Violation>) {
        if let Some(&at) = self.told.get(&violation.fingerprint) {
            self.summary.violations[at].repeats += 1;
            self.told.insert(first_sight, at);
            return;
        }
        let at = self.summary.violations.len();
        self.told.insert(violation.fingerprint.clone(), at);
        self.told.insert(first_sight, at);
        self.summary.violations.push(violation.clone());
        found.push(violation);
    }

    /// Whether transactions at this level were promised a serial order, or are claimed to have one.
    fn is_serial(&self, level: Level) -> bool {
        is_promised(&self.rules_of(level)) || self.claim.as_ref().is_some_and(is_promised)
    }

    /// Whether the serial order that is promised to this level, or claimed, respects real time.
    fn is_in_real_time(&self, level: Level) -> bool {
        let rules = self.claim.unwrap_or_else(|| self.rules_of(level));
        rules.serial_order == SerialOrder::RealTime
    }

    /// Adds an explained transaction to the serialization graph.
    fn certify(&mut self, explained: &Explained, found: &mut Vec<Violation>) {
        let Explained {
            txn,
            commit,
            attempt,
            decisions,
        } = explained;
        if !self.is_serial(txn.level) || !matches!(txn.end, End::Committed(_)) {
            return;
        }
        let by_statement = is_statement_level(&self.rules_of(txn.level));
        let point_of = |step: usize| {
            let wrote = attempt.wrote.contains(&step);
            let point = match (by_statement, wrote) {
                (true, true) => PointId::lock(step),
                (true, false) => PointId::read(step),
                (false, _) => SNAPSHOT,
            };
            let window = attempt.windows.iter().find(|(p, _)| *p == point).map(|(_, w)| *w);
            (point, window.unwrap_or(txn.steps[step].seen.window))
        };
        let reads = certify::reads_of(&attempt.reads, point_of, decisions);
        if reads.is_empty() && attempt.written.is_empty() {
            return;
        }
        let session = self.explainer.session_of(txn);
        let mut node = Node::new(
            txn.clone(),
            txn.level,
            session,
            *commit,
            reads,
            attempt.written.clone(),
        );
        let placed = commit.and_then(|commit| self.explainer.world().order.get(commit));
        if let Some(placed) = placed {
            // Where its place is, which may be that of somebody who did the same.
            node.window = placed.observed;
        }
        let real_time = self.is_in_real_time(txn.level);
        if let Some(cycle) = self.certifier.add(node, real_time) {
            self.cycle(&cycle, found);
        }
    }

    fn cycle(&mut self, cycle: &[(Node, &'static str)], found: &mut Vec<Violation>) {
        let rule: &'static Rule = classify::cycle(cycle);
        let level = self.settings.claim.unwrap_or(cycle[0].0.level);
        let shapes = classify::shapes(cycle, &self.explainer);
        let fingerprint = story::fingerprint(rule, level, &shapes);
        if self.is_known(&fingerprint) {
            return;
        }
        let real_time = self.is_in_real_time(level);
        let participates = |level: Level| self.is_serial(level);
        match confirm::cycle(cycle, &self.explainer, participates, real_time) {
            Confirmed::Impossible { members, differences } => {
                let len = cycle.len();
                let edges: Vec<relate::Relation> = cycle
                    .iter()
                    .enumerate()
                    .map(|(at, (_, kind))| (at, (at + 1) % len, *kind, None))
                    .collect();
                let told: Vec<_> = differences.into_iter().filter(|(m, _, _)| *m < len).collect();
                let proof = Proof {
                    rule,
                    level,
                    members: &members[..len],
                    differences: &told,
                    edges: &edges,
                    shapes,
                    initial: story::initial_rows(&members[..len], self.explainer.world()),
                    ground: ground::of(&members[..len], self.explainer.world(), &self.explainer),
                };
                let violation = story::tell(&proof);
                self.report(fingerprint, violation, &members[..len], found);
            }
            Confirmed::Explained { .. } => self.tally.reason("cycle_explained"),
            Confirmed::Unknown(reason) => self.tally.reason(reason),
        }
    }

    fn collect(&mut self, current: &Transaction) {
        let mut horizon = current.end.window().sent;
        let waiting = self.sequencer.upcoming().map(|t| t.sent()).min();
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
        let kept = self
            .certifier
            .oldest()
            .map_or(horizon, |oldest| horizon.min(oldest));
        self.explainer.collect(current.end.window().sent, kept);
    }
}

/// What became of a suspicion.
enum Accused {
    Proved,
    Explained(Vec<Member>),
    Unknown(&'static str),
}

/// Whether the step in question looked at one key and nothing else.
fn reads_one_key(accusation: &Accusation) -> bool {
    let step = accusation.suspect.step;
    let mut reads = accusation.attempt.reads.iter().filter(|read| read.step == step);
    let touches: Vec<&Touch> = reads.by_ref().flat_map(|read| &read.touches).collect();
    matches!(touches.as_slice(), [Touch::Key { .. }])
}

/// Until when a transaction may change the catalog in a way that nobody sees, by what is known before it is looked at.
fn may_change_unseen(txn: &Transaction) -> Option<Nanos> {
    let mut steps = txn.steps.iter().map(|step| &step.seen);
    match txn.end {
        End::Committed(window) => txn.vague.then_some(window.done),
        End::Unknown(window) => {
            let until = window.sent.saturating_add(LIMBO_NS);
            (txn.vague || says_more_than_data(txn)).then_some(until)
        }
        // Some statements commit on their way, and what they did until they failed stays.
        End::Aborted(window) => {
            let by_parts = steps.any(|seen| seen.before == Status::Idle && lex::commits_by_parts(&seen.text));
            by_parts.then_some(window.done)
        }
    }
}

/// Whether something in it is neither a query nor plain DML nor transaction control.
fn says_more_than_data(txn: &Transaction) -> bool {
    let is_more = |text: &str| matches!(lex::effect(text), Effect::Other | Effect::Several);
    txn.steps.iter().any(|step| is_more(&step.seen.text))
}

/// Whether the transaction had written something before the step in question.
fn has_written_before(accusation: &Accusation) -> bool {
    let step = accusation.suspect.step;
    accusation.attempt.wrote.iter().any(|wrote| *wrote < step)
}

fn is_promised(rules: &LevelRules) -> bool {
    rules.serial_order != SerialOrder::None
}
