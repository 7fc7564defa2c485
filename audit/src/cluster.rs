//! One suspicion, with everything that is needed to decide it.
//!
//! In: an accusation or a cycle, and what was known when it arose, by value. Out: what the reference checker finds, told
//! as a violation if it is one.
//!
//! Always true:
//!   - nothing is shared with whoever goes on judging: a cluster comes to the same on any thread, at any time;
//!   - the work is counted, for all worlds together; what is beyond it is unknown;
//!   - a crash costs this cluster and nothing else.

use crate::assemble::End;
use crate::certify::Cycle;
use crate::classify;
use crate::confirm::{self, Confirmed};
use crate::exclude::Who;
use crate::explain::crash::{self, Crash};
use crate::explain::{Accusation, Explainer};
use crate::ground;
use crate::reference::{Member, Work};
use crate::relate;
use crate::sql::Planner;
use crate::state::TableId;
use crate::story::{self, Proof};
use crate::trace::Nanos;
use crate::verdict::Violation;
use pgassay_rules::Level;
use pgassay_rules::profile::LevelRules;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub struct Cluster {
    /// As it was when the suspicion arose.
    known: Explainer,
    /// The rules of the level that is claimed, if one is.
    claim: Option<LevelRules>,
    pub charge: Charge,
    /// Of the statements that its fingerprint is made of.
    shapes: Vec<Arc<str>>,
}

/// What is suspected.
pub enum Charge {
    /// A transaction that nothing explains.
    Suspect(Box<Accusation>),
    /// One that nothing explains at the level that is claimed for it.
    Doubt(Box<Accusation>),
    /// One that held a row while another one did.
    Overlap(Box<Accusation>, Who),
    /// Serializable transactions of which each must come before the next: one of these, at least.
    Cycle { cycles: Vec<Cycle>, level: Level },
}

#[derive(Clone)]
pub enum Outcome {
    /// In no world does any order explain it.
    Proved(Box<Proved>),
    Explained(Vec<Member>),
    Unknown(&'static str),
    /// Its like was told often enough: nobody looked.
    Repeated,
    /// Deciding it crashed.
    Crashed(Box<Crash>),
}

/// What was proved.
#[derive(Clone)]
pub struct Proved {
    pub violation: Violation,
    /// When the last of its transactions had ended.
    pub done: Nanos,
    /// The tables that it is about, if they are known.
    pub tables: Option<Vec<TableId>>,
}

/// A cluster that is decided.
pub struct Decided {
    pub cluster: Box<Cluster>,
    pub outcome: Outcome,
}

impl Charge {
    /// The shapes of the statements in question, and the name under which suspicions like this are counted.
    pub fn first_sight(&self, explainer: &Explainer) -> (Vec<Arc<str>>, String) {
        let (rule, level, shapes) = match self {
            Charge::Suspect(accusation) | Charge::Doubt(accusation) | Charge::Overlap(accusation, _) => {
                let suspect = &accusation.suspect;
                let shapes = vec![classify::shape(suspect, explainer)];
                (suspect.difference.rule, suspect.level, shapes)
            }
            Charge::Cycle { cycles, level } => {
                let shapes = classify::shapes(&cycles[0], explainer);
                (classify::cycle(&cycles[0]), *level, shapes)
            }
        };
        let name = story::fingerprint(rule, level, &shapes);
        (shapes, name)
    }

    /// Statements that are counted by what becomes of it.
    pub fn statements(&self) -> u64 {
        match self {
            Charge::Suspect(accusation) => accusation.attempt.judged.iter().flatten().count() as u64,
            Charge::Doubt(_) | Charge::Overlap(..) | Charge::Cycle { .. } => 0,
        }
    }
}

impl Cluster {
    pub fn new(
        known: Explainer,
        claim: Option<LevelRules>,
        charge: Charge,
        shapes: Vec<Arc<str>>,
    ) -> Cluster {
        Cluster {
            known,
            claim,
            charge,
            shapes,
        }
    }

    /// Decides it, with the plans of whoever does.
    pub fn decide(mut self: Box<Cluster>, planner: &Arc<Planner>) -> Decided {
        self.known.planner = planner.clone();
        let decided = catch_unwind(AssertUnwindSafe(|| self.outcome()));
        let outcome = decided.unwrap_or_else(|panic| self.crashed(crash::message(&*panic)));
        Decided {
            cluster: self,
            outcome,
        }
    }

    /// What it crashed on, with those who were there.
    fn crashed(&self, message: Arc<str>) -> Outcome {
        let txn = match &self.charge {
            Charge::Suspect(accusation) | Charge::Doubt(accusation) | Charge::Overlap(accusation, _) => {
                &accusation.suspect.txn
            }
            Charge::Cycle { cycles, .. } => &cycles[0][0].0.txn,
        };
        let crash = Crash::new(txn, message, self.known.recent_committed());
        Outcome::Crashed(Box::new(crash))
    }

    fn outcome(&self) -> Outcome {
        let work = Work::new(self.known.limits.proof_steps_max);
        match &self.charge {
            Charge::Suspect(accusation) | Charge::Doubt(accusation) => self.suspect(accusation, None, &work),
            Charge::Overlap(accusation, other) => self.suspect(accusation, Some(other), &work),
            Charge::Cycle { cycles, level } => self.cycles(cycles, *level, &work),
        }
    }

    /// Has the reference checker decide a suspicion in every world; only what is proved in all of them is.
    fn suspect(&self, accusation: &Accusation, other: Option<&Who>, work: &Work) -> Outcome {
        let suspect = &accusation.suspect;
        #[cfg(test)]
        crash::if_told("prove", &suspect.txn.steps[suspect.step].seen.text);
        let later = accusation.later.iter().map(|txn| Who {
            txn: txn.clone(),
            leaves: false,
        });
        let later: Vec<Who> = later.collect();
        let others: Vec<Who> = later.iter().chain(other).cloned().collect();
        // Where no serial order was promised, not all are there who explain those that came later: it must be impossible
        // without them, too.
        let alone = (!later.is_empty() && !suspect.rules.is_serial_alone()).then(|| other.cloned());
        let cases: Vec<Vec<Who>> = alone
            .map(|other| other.into_iter().collect())
            .into_iter()
            .chain([others])
            .collect();
        let mut proved = None;
        for (world, commit) in &accusation.worlds {
            for others in &cases {
                match confirm::suspect(suspect, others, world, *commit, &self.known, work) {
                    Confirmed::Impossible { members, differences } => {
                        proved.get_or_insert((world, *commit, members, differences));
                    }
                    Confirmed::Explained { members, .. } => return Outcome::Explained(members),
                    Confirmed::Unknown(reason) => return Outcome::Unknown(reason),
                }
            }
        }
        let Some((world, commit, members, differences)) = proved else {
            return Outcome::Unknown("order_left_open");
        };
        let mut told: Vec<_> = differences.into_iter().filter(|(m, _, _)| *m == 0).collect();
        if told.is_empty() {
            told.push((0, suspect.step, suspect.difference.clone()));
        }
        let rule = classify::suspect(suspect, world, commit, &self.known);
        let related = relate::story(rule, suspect, members, world, &self.known);
        let proof = Proof {
            rule,
            level: suspect.level,
            members: &related.members,
            differences: &told,
            edges: &related.edges,
            shapes: self.shapes.clone(),
            initial: story::initial_rows(&related.members, world),
            ground: ground::of(&related.members, world, &self.known),
        };
        self.proved(&proof)
    }

    fn proved(&self, proof: &Proof<'_>) -> Outcome {
        let violation = story::tell(proof);
        let ends = proof.members.iter().map(|member| match member.txn.end {
            End::Unknown(window) => window.sent,
            end => end.window().done,
        });
        let done = ends.max().unwrap_or(violation.at);
        let tables = proof
            .members
            .iter()
            .map(|member| self.known.tables_of(&member.txn));
        let tables: Option<Vec<Vec<TableId>>> = tables.collect();
        Outcome::Proved(Box::new(Proved {
            violation,
            done,
            tables: tables.map(|tables| tables.concat()),
        }))
    }

    /// The first that is proved; or else what became of the first.
    fn cycles(&self, cycles: &[Cycle], level: Level, work: &Work) -> Outcome {
        let mut first = None;
        for cycle in cycles {
            match self.cycle(cycle, level, work) {
                proved @ Outcome::Proved(_) => return proved,
                other => drop(first.get_or_insert(other)),
            }
        }
        first.unwrap_or(Outcome::Unknown("order_left_open"))
    }

    /// Has the reference checker try every serial order.
    fn cycle(&self, cycle: &Cycle, level: Level, work: &Work) -> Outcome {
        let claim = self.claim.as_ref();
        let rules = self.claim.unwrap_or_else(|| self.known.rules_of(level));
        let participates =
            |level: Level| self.known.rules_of(level).is_serial() || claim.is_some_and(LevelRules::is_serial);
        let confirmed = confirm::cycle(cycle, &self.known, participates, rules.is_in_real_time(), work);
        let (members, differences) = match confirmed {
            Confirmed::Impossible { members, differences } => (members, differences),
            Confirmed::Explained { members, .. } => return Outcome::Explained(members),
            Confirmed::Unknown(reason) => return Outcome::Unknown(reason),
        };
        let len = cycle.len();
        let edges: Vec<relate::Relation> = cycle
            .iter()
            .enumerate()
            .map(|(at, (_, kind))| (at, (at + 1) % len, *kind, None))
            .collect();
        let told: Vec<_> = differences.into_iter().filter(|(m, _, _)| *m < len).collect();
        let world = self.known.world();
        let proof = Proof {
            rule: classify::cycle(cycle),
            level,
            members: &members[..len],
            differences: &told,
            edges: &edges,
            shapes: classify::shapes(cycle, &self.known),
            initial: story::initial_rows(&members[..len], world),
            ground: ground::of(&members[..len], world, &self.known),
        };
        self.proved(&proof)
    }
}
