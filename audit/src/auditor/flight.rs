//! Suspicions in flight: they are proved on a pool while the judging goes on.
//!
//! In: suspicions, in the order in which they arise. Out: what would have been told if each had been proved on the spot.
//!
//! The judging goes on as it does after a violation and after a suspicion that is too large to be decided: what the
//! suspect read is unknown. If the reference checker explains the suspect after all, that was the wrong way: then
//! everything is put back to where the first suspicion in flight arose, and what came since is judged again, knowing how
//! it ends.
//!
//! Always true:
//!   - what is told depends neither on the number of workers, nor on how fast they are, nor on when
//!     outcomes are taken over;
//!   - outcomes are taken over in the order of the suspicions; they are waited for at places that the records alone
//!     decide, so that neither what is kept for the way back nor the time until it is told grows without bound;
//!   - a record is judged again once at most: meanwhile every suspicion is waited for.

use super::{Auditor, Due, PROOFS_MAX};
use crate::cluster::{Charge, Cluster, Decided, Outcome};
use crate::explain::{Fate, crash};
use crate::pool::{Pool, Ticket};
use crate::reference::Member;
use crate::trace::{Nanos, Record};
use crate::verdict::Violation;
use crate::withhold::{self, Standing};
use std::collections::VecDeque;

/// Records that are taken while a suspicion is in flight; then it is waited for.
const RECORDS_MAX: usize = 1_024;
/// How long a suspicion is in flight before it is waited for, on the trace's clock.
const FLIGHT_NS_MAX: Nanos = 1_000_000_000;

#[derive(Default)]
pub(super) struct Flight {
    pool: Pool,
    /// In the order in which they arose.
    suspicions: VecDeque<Suspicion>,
    /// There as soon as one of them is a suspect: it may be explained.
    way_back: Option<Box<WayBack>>,
    /// What is known already of suspicions that arise again, in order.
    foreseen: VecDeque<Outcome>,
    /// Records are judged again.
    again: bool,
    went_back: u64,
    /// Records since the first of them arose, and the mark until which everything was judged then.
    records: usize,
    marked: Nanos,
}

struct Suspicion {
    /// The fingerprint under which it is counted.
    first_sight: String,
    /// Statements that are counted when it is decided.
    statements: u64,
    /// How far the catalog could be relied on when it arose.
    stood: Standing,
    proof: Proof,
}

enum Proof {
    Asked(Ticket),
    /// Enough like it were asked for: nobody has to be asked if one of them is told.
    Kept(Box<Cluster>),
}

struct WayBack {
    /// As it was when the first suspect arose, which is the next on its agenda.
    before: Auditor,
    /// How many suspicions were in flight then.
    earlier: usize,
    /// What was taken since.
    records: Vec<Record>,
}

/// A suspicion that is over.
struct Over {
    first_sight: String,
    stood: Standing,
    charge: Charge,
    outcome: Outcome,
}

impl Over {
    fn new(first_sight: String, stood: Standing, decided: Decided) -> Over {
        Over {
            first_sight,
            stood,
            charge: decided.cluster.charge,
            outcome: decided.outcome,
        }
    }

    /// Who explains a suspect, if it is explained.
    fn explained(&self) -> Option<&[Member]> {
        match (&self.charge, &self.outcome) {
            (Charge::Suspect(_), Outcome::Explained(members)) => Some(members),
            _ => None,
        }
    }
}

impl Flight {
    pub(super) fn new(pool: Pool) -> Flight {
        Flight {
            pool,
            ..Flight::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.suspicions.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.suspicions.len()
    }

    /// Suspicions that no worker has begun with.
    pub(super) fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    /// Whether nobody would have to wait for an outcome.
    pub(super) fn is_ready(&self) -> bool {
        self.suspicions.iter().all(|suspicion| match &suspicion.proof {
            Proof::Asked(ticket) => ticket.is_ready(),
            Proof::Kept(_) => true,
        })
    }

    /// Whether what was done last may turn out to be wrong.
    pub(super) fn may_go_back(&self) -> bool {
        self.way_back.is_some()
    }

    /// Whether suspicions are proved beside the judging, and not on the spot.
    fn goes_on(&self) -> bool {
        !self.again && self.pool.queue_len_max() > 0
    }

    /// How often it went back.
    pub(super) fn went_back(&self) -> u64 {
        self.went_back
    }

    /// Statements that will be counted.
    pub(super) fn statements(&self) -> u64 {
        self.suspicions.iter().map(|suspicion| suspicion.statements).sum()
    }

    /// A record that will be judged again if what is going on was wrong.
    pub(super) fn remember(&mut self, record: &Record) {
        if !self.suspicions.is_empty() {
            self.records += 1;
        }
        if let Some(way) = &mut self.way_back {
            way.records.push(record.clone());
        }
    }

    /// Whether outcomes are taken over now, after a record that was a mark, or none.
    pub(super) fn is_due(&self, mark: Option<Nanos>) -> bool {
        let late = |mark: Nanos| mark >= self.marked.saturating_add(FLIGHT_NS_MAX);
        !self.suspicions.is_empty() && (self.records >= RECORDS_MAX || mark.is_some_and(late))
    }
}

impl Auditor {
    /// Has a suspicion proved, and goes on meanwhile.
    pub(super) fn accuse(&mut self, charge: Charge, found: &mut Vec<Violation>) {
        let (shapes, first_sight) = charge.first_sight(&self.explainer);
        let looked = self.looked.get(&first_sight).copied().unwrap_or(0);
        let enough = looked >= PROOFS_MAX;
        let outcome = match enough && self.is_told(&first_sight) {
            true => Some(Outcome::Repeated),
            false => self.flight.foreseen.pop_front(),
        };
        let goes_on = outcome.is_none() && self.flight.goes_on();
        if goes_on {
            self.mark_way_back(&charge);
        }
        self.looked.insert(first_sight.clone(), looked + 1);
        if let Some(outcome) = outcome {
            let over = Over {
                first_sight,
                stood: self.withheld.now().clone(),
                charge,
                outcome,
            };
            return self.decided(&over, found);
        }
        let cluster = Box::new(Cluster::new(self.explainer.clone(), self.claim, charge, shapes));
        if !goes_on {
            let stood = self.withheld.now().clone();
            let over = Over::new(first_sight, stood, self.flight.pool.ask(cluster).wait());
            return self.decided(&over, found);
        }
        self.widen(&cluster.charge);
        let flight = &mut self.flight;
        if flight.suspicions.is_empty() {
            flight.records = 0;
            flight.marked = self.sequencer.marked();
        }
        let statements = cluster.charge.statements();
        let proof = match enough && !flight.suspicions.is_empty() {
            true => Proof::Kept(cluster),
            false => Proof::Asked(flight.pool.ask(cluster)),
        };
        flight.suspicions.push_back(Suspicion {
            first_sight,
            statements,
            stood: self.withheld.now().clone(),
            proof,
        });
    }

    /// Keeps everything as it is before a suspect is taken for guilty.
    fn mark_way_back(&mut self, charge: &Charge) {
        let Charge::Suspect(accusation) = charge else {
            return;
        };
        if self.flight.way_back.is_some() {
            return;
        }
        let mut before = self.copy();
        let fate = Fate::Suspect(accusation.clone());
        before.agenda.due.push_front(Due::Settle(fate));
        self.flight.way_back = Some(Box::new(WayBack {
            before,
            earlier: self.flight.suspicions.len(),
            records: Vec::new(),
        }));
    }

    /// What a wrong answer read is unknown until it is seen again.
    fn widen(&mut self, charge: &Charge) {
        if let Charge::Suspect(accusation) = charge {
            let suspect = &accusation.suspect;
            self.explainer
                .unlearn(&suspect.txn, &accusation.attempt, suspect.step);
        }
    }

    /// A suspicion whose outcome is known before anything else is judged.
    fn decided(&mut self, over: &Over, found: &mut Vec<Violation>) {
        match over.explained() {
            Some(members) => self.explainer.distrust(members),
            None => self.widen(&over.charge),
        }
        self.conclude(over, found);
    }

    /// Counts a suspicion that is over, and tells what was proved.
    fn conclude(&mut self, over: &Over, found: &mut Vec<Violation>) {
        let Over {
            first_sight,
            stood,
            charge,
            outcome,
        } = over;
        let doubt = stood.is_in_doubt().then_some(withhold::REASON);
        let unknown = match outcome {
            Outcome::Unknown(reason) => Some(*reason),
            Outcome::Crashed(_) => Some(crash::REASON),
            Outcome::Proved(_) | Outcome::Explained(_) | Outcome::Repeated => None,
        };
        match (charge, unknown) {
            (Charge::Suspect(accusation), None) => {
                let level = accusation.suspect.txn.level;
                self.tally.count(&accusation.attempt, level, "solver", doubt);
            }
            (Charge::Suspect(accusation), Some(reason)) => {
                self.tally.count_unknown(&accusation.attempt, reason);
            }
            (Charge::Cycle { .. } | Charge::Overlap(..), Some(reason)) => self.tally.reason(reason),
            (Charge::Cycle { .. }, None) if matches!(outcome, Outcome::Explained(_)) => {
                self.tally.reason("cycle_explained");
            }
            // At its own level it is counted already.
            (Charge::Cycle { .. } | Charge::Overlap(..), None) | (Charge::Doubt(_), _) => {}
        }
        self.stats.proofs += u64::from(!matches!(outcome, Outcome::Repeated));
        match outcome {
            Outcome::Proved(proved) => self.report(first_sight, proved, stood, found),
            Outcome::Repeated => match self.told.get(first_sight) {
                Some(at) => self.summary.violations[*at].repeats += 1,
                None => {
                    self.withheld.repeat(first_sight);
                }
            },
            Outcome::Crashed(crash) => self.keep_crash(crash),
            Outcome::Explained(_) | Outcome::Unknown(_) => {}
        }
    }

    /// Whether a violation with this fingerprint was told, or would have been.
    fn is_told(&self, first_sight: &str) -> bool {
        self.told.contains_key(first_sight) || self.withheld.has(first_sight)
    }

    /// Takes over what became of the suspicions in flight, waiting for those that are not decided yet. Whether it went
    /// back, so that everything that was taken was judged again.
    pub(super) fn take_over(&mut self, found: &mut Vec<Violation>) -> bool {
        let mut told = Vec::new();
        let mut all = Vec::new();
        while let Some(suspicion) = self.flight.suspicions.pop_front() {
            let over = self.wait_for(suspicion);
            if over.explained().is_some()
                && let Some(way) = self.flight.way_back.take()
            {
                all.push(over);
                self.go_back(*way, all, found);
                return true;
            }
            self.conclude(&over, &mut told);
            all.push(over);
        }
        self.flight.way_back = None;
        found.append(&mut told);
        false
    }

    /// Takes over what became of the suspicions in flight, and nothing is judged again.
    pub(super) fn land(&mut self, found: &mut Vec<Violation>) {
        self.flight.way_back = None;
        self.take_over(found);
    }

    fn wait_for(&mut self, suspicion: Suspicion) -> Over {
        let Suspicion {
            first_sight,
            stood,
            proof,
            ..
        } = suspicion;
        let decided = match proof {
            Proof::Kept(cluster) if self.is_told(&first_sight) => Decided {
                cluster,
                outcome: Outcome::Repeated,
            },
            Proof::Kept(cluster) => self.flight.pool.ask(cluster).wait(),
            Proof::Asked(ticket) => ticket.wait(),
        };
        Over::new(first_sight, stood, decided)
    }

    /// The last of those that are over was explained: what came since the first suspect is judged again.
    fn go_back(&mut self, way: WayBack, mut all: Vec<Over>, found: &mut Vec<Violation>) {
        let mut flight = Flight::new(std::mem::take(&mut self.flight.pool));
        flight.went_back = self.flight.went_back + 1;
        *self = way.before;
        self.flight = flight;
        let since = all.split_off(way.earlier);
        all.iter().for_each(|over| self.conclude(over, found));
        // Those whose like was told often enough by then are known to be: nobody is asked for them.
        let foreseen = since.into_iter().map(|over| over.outcome);
        self.flight.foreseen = foreseen.filter(|o| !matches!(o, Outcome::Repeated)).collect();
        self.flight.again = true;
        self.guard(found, Auditor::work_off);
        self.advance(found);
        for record in way.records {
            self.receive(record, found);
        }
        self.flight.again = false;
    }

    /// Everything as it is now, but for what is in flight.
    fn copy(&self) -> Auditor {
        Auditor {
            settings: self.settings.clone(),
            claim: self.claim,
            assembler: self.assembler.clone(),
            sequencer: self.sequencer.clone(),
            explainer: self.explainer.clone(),
            certifier: self.certifier.clone(),
            excluder: self.excluder.clone(),
            tally: self.tally.clone(),
            told: self.told.clone(),
            looked: self.looked.clone(),
            withheld: self.withheld.clone(),
            summary: self.summary.clone(),
            stats: self.stats,
            since_collect: self.since_collect,
            shared: self.shared,
            database: self.database.clone(),
            crashes: self.crashes.clone(),
            crashed_in_a_row: self.crashed_in_a_row,
            agenda: self.agenda.clone(),
            flight: Flight::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, Stats, script};
    use std::path::PathBuf;

    /// What is reported with so many workers, and with so many suspicions that may wait for one.
    fn report(records: &[Record], workers: usize, proofs_len_max: usize, claim: bool) -> (String, Stats) {
        let mut auditor = Auditor::new(Settings {
            workers,
            proofs_len_max,
            claim: claim.then_some(pgassay_rules::Level::Serializable),
            ..Settings::default()
        });
        let mut found: Vec<Violation> = Vec::new();
        for record in records {
            found.extend(auditor.take(record.clone()));
        }
        found.extend(auditor.finish());
        let summary = auditor.summary();
        let mut told: Vec<&str> = found.iter().map(|v| v.id.as_str()).collect();
        let mut kept: Vec<&str> = summary.violations.iter().map(|v| v.id.as_str()).collect();
        told.sort();
        kept.sort();
        assert_eq!(told, kept, "each is told once");
        (
            serde_json::to_string_pretty(&summary).expect("JSON"),
            auditor.stats(),
        )
    }

    fn stories() -> Vec<PathBuf> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testscripts");
        let folders = ["verdict", "silent", "hermitage", "semantics"];
        let files = folders.map(|folder| std::fs::read_dir(root.join(folder)).expect("stories"));
        let mut files: Vec<PathBuf> = files
            .into_iter()
            .flatten()
            .map(|f| f.expect("a file").path())
            .collect();
        files.sort();
        files
    }

    #[test]
    fn every_story_is_told_as_if_it_were_proved_on_the_spot() {
        let (mut proofs, mut went_back) = (0, 0);
        for path in stories() {
            let text = std::fs::read_to_string(&path).expect("a readable story");
            let (story, expected) = script::expectations(&text).expect("expectations");
            for expectation in expected {
                let records = script::parse(&story, expectation.level).expect("a story");
                let claim = expectation.claim.is_some();
                let (on_the_spot, _) = report(&records, 1, 0, claim);
                let workers = 1 + records.len() % 3;
                let (beside, stats) = report(&records, workers, 2, claim);
                assert!(beside == on_the_spot, "{} with {workers} workers", path.display());
                proofs += stats.proofs;
                went_back += stats.went_back;
            }
        }
        assert!(
            proofs > 100 && went_back > 0,
            "{proofs} proofs, {went_back} times back"
        );
    }
}
