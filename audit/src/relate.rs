//! Who saw whom, and who did not: what the arrows of a story say.
//!
//! In: the transactions that prove a violation, and the world in which it was proved. Out: the same, with the one
//! that a reader would ask for (the writer that a stale read missed, the one that was rolled back), and the
//! dependencies among them.
//!
//! The interpreter is asked: does the answer agree with the state before that writer, and with the state after it?
//!
//! Always true: nothing is decided here. Where it cannot be told who saw whom, there is no arrow.

use crate::assemble::Transaction;
use crate::classify::{self, only_step};
use crate::control::Control;
use crate::explain::run::{Scene, run};
use crate::explain::world::World;
use crate::explain::{Explainer, Suspect};
use crate::interpret::Heed;
use crate::points::{Chooser, CommitId, Order};
use crate::reference::Member;
use crate::trace::{Nanos, Window};
use crate::verdict::Coverage;
use pgassay_rules::profile::ReadPoint;
use pgassay_rules::{Rule, anomaly};
use std::cell::RefCell;

/// `from` comes before `to`; the kind; the statement of the reader that says so.
pub type Relation = (usize, usize, &'static str, Option<usize>);

/// Statements of one member that are asked about, writers that are tried, arrows that are drawn.
const STEPS_MAX: usize = 12;
const WRITERS_MAX: usize = 32;
const ARROWS_MAX: usize = 8;
/// After everything that happened.
const LATEST: Window = Window {
    sent: Nanos::MAX - 2,
    done: Nanos::MAX - 1,
};

pub struct Related {
    pub members: Vec<Member>,
    pub edges: Vec<Relation>,
}

/// What a suspect's story needs to be understood. The suspect is the first member.
pub fn story(
    rule: &Rule,
    suspect: &Suspect,
    mut members: Vec<Member>,
    world: &World,
    explainer: &Explainer,
) -> Related {
    let place = Place {
        world,
        explainer,
        order: world.order.without_facts(),
    };
    let mut edges = Vec::new();
    if rule.name == anomaly::ABORTED_READ.name
        && let Some(writer) = classify::rolled_back(suspect, world, members[0].commit, explainer)
    {
        edges.push((members.len(), 0, "wr", Some(suspect.step)));
        members.push(member_of(&writer, None, explainer));
    }
    let early = [
        &anomaly::INTERMEDIATE_READ,
        &anomaly::FUTURE_READ,
        &anomaly::CIRCULAR_INFORMATION_FLOW,
    ];
    if early.iter().any(|each| each.name == rule.name)
        && let Some((writer, _)) = classify::unfinished(suspect, world, members[0].commit, explainer)
    {
        let known = members.iter().position(|member| member.txn.id == writer.id);
        let at = known.unwrap_or(members.len());
        if known.is_none() {
            members.push(member_of(&writer, world.commit_of(&writer), explainer));
        }
        edges.push((at, 0, "wr", Some(suspect.step)));
        if rule.name == anomaly::CIRCULAR_INFORMATION_FLOW.name {
            edges.push((0, at, "wr", None));
        }
    }
    if rule.name == anomaly::STALE_READ.name
        && members.len() == 1
        && let Some((id, writer)) = place.missed(suspect)
    {
        members.push(member_of(&writer, Some(id), explainer));
    }
    edges.extend(place.relations(&members));
    let mut edges = strongest(edges);
    edges.truncate(ARROWS_MAX);
    Related { members, edges }
}

/// One arrow in each direction: the one that says most.
fn strongest(edges: Vec<Relation>) -> Vec<Relation> {
    const KINDS: [&str; 4] = ["real-time", "ww", "wr", "rw"];
    let weight = |kind: &str| KINDS.iter().position(|k| *k == kind);
    let mut kept: Vec<Relation> = Vec::new();
    for edge in edges {
        match kept.iter_mut().find(|k| (k.0, k.1) == (edge.0, edge.1)) {
            Some(same) if weight(edge.2) < weight(same.2) => *same = edge,
            Some(_) => {}
            None => kept.push(edge),
        }
    }
    kept
}

fn member_of(txn: &std::sync::Arc<Transaction>, commit: Option<CommitId>, explainer: &Explainer) -> Member {
    Member {
        txn: txn.clone(),
        level: txn.level,
        rules: explainer.rules_of(txn.level),
        session: explainer.session_of(txn),
        commit,
    }
}

struct Place<'a> {
    world: &'a World,
    explainer: &'a Explainer,
    /// Nothing but windows orders it.
    order: Order,
}

impl Place<'_> {
    /// The latest commit without which the answer would have been right.
    fn missed(&self, suspect: &Suspect) -> Option<(CommitId, std::sync::Arc<Transaction>)> {
        let member = Member {
            txn: suspect.txn.clone(),
            level: suspect.level,
            rules: suspect.rules,
            session: suspect.session.clone(),
            commit: None,
        };
        let window = suspect.txn.steps[suspect.step].seen.window;
        let recent = self.world.order.iter().rev().take(WRITERS_MAX);
        recent
            .filter(|(_, commit)| commit.txn.id != suspect.txn.id)
            .find(|(id, _)| self.agrees(&member, suspect.step, window, Some(*id)) == Some(Ok(())))
            .map(|(id, commit)| (id, commit.txn.clone()))
    }

    fn relations(&self, members: &[Member]) -> Vec<Relation> {
        let mut found: Vec<Relation> = Vec::new();
        let mut add = |relation: Relation| {
            let (from, to, kind, _) = relation;
            if !found.iter().any(|(f, t, k, _)| (*f, *t, *k) == (from, to, kind)) {
                found.push(relation);
            }
        };
        for (reader, member) in members.iter().enumerate() {
            let data = |step: &usize| member.txn.steps[*step].control == Control::Data;
            for step in (0..member.txn.steps.len()).filter(data).take(STEPS_MAX) {
                for (writer, saw) in self.seen(members, reader, step) {
                    if saw {
                        add((writer, reader, "wr", Some(step)));
                        continue;
                    }
                    add((reader, writer, "rw", Some(step)));
                    if self.had_ended(&members[writer], member, step) {
                        add((writer, reader, "real-time", None));
                    }
                }
            }
        }
        for (first, a) in members.iter().enumerate() {
            for (second, b) in members.iter().enumerate() {
                if first != second && self.wrote_over(a, b) {
                    add((first, second, "ww", None));
                }
            }
        }
        found
    }

    /// Of which other members it can be told whether this statement saw them.
    fn seen(&self, members: &[Member], reader: usize, step: usize) -> Vec<(usize, bool)> {
        let member = &members[reader];
        let mut told = Vec::new();
        let mut open = Vec::new();
        for (writer, other) in members.iter().enumerate() {
            let Some(id) = other.commit.filter(|_| writer != reader) else {
                continue;
            };
            // Only one commit can be hidden at a time, and one's own has to be: then time itself tells them apart.
            let (without, with) = match (member.commit, self.world.order.get(id)) {
                (None, _) => (
                    self.agrees(member, step, LATEST, Some(id)),
                    self.agrees(member, step, LATEST, None),
                ),
                (own, Some(commit)) if commit.hi < LATEST.sent => {
                    let (before, after) = (commit.lo.saturating_sub(1), commit.hi + 1);
                    (
                        self.agrees(member, step, Window::new(before, before), own),
                        self.agrees(member, step, Window::new(after, after), own),
                    )
                }
                _ => continue,
            };
            match (without, with) {
                (Some(Ok(())), Some(Err(_))) => told.push((writer, false)),
                (Some(Err(_)), Some(Ok(()))) => told.push((writer, true)),
                // It matters, but so does another one that was not seen.
                (Some(Err(one)), Some(Err(other))) if one != other => open.push(writer),
                _ => {}
            }
        }
        if member.commit.is_none() && told.iter().any(|(_, saw)| !saw) {
            told.extend(open.into_iter().map(|writer| (writer, true)));
        }
        told
    }

    /// Whether the answer agrees with the state at an instant; else what would have been right. Nothing when that
    /// is not known for certain.
    fn agrees(
        &self,
        member: &Member,
        step: usize,
        at: Window,
        hidden: Option<CommitId>,
    ) -> Option<Result<(), String>> {
        let variant = only_step(&member.txn, step, |_| at);
        let scene = Scene {
            store: &self.world.store,
            order: &self.order,
            planner: &self.explainer.planner,
            hidden,
        };
        let chooser = RefCell::new(Chooser::default());
        let attempt = run(
            &variant,
            &classify::statement_snapshots(),
            &scene,
            &member.session,
            &chooser,
            Heed::Compared,
        );
        let firm = attempt.judged[0].as_ref()?.coverage == Coverage::Checked;
        match attempt.wrong {
            None => firm.then_some(Ok(())),
            Some((_, difference)) => Some(Err(difference.expected)),
        }
    }

    /// Whether the writer's commit had been answered before the reader's snapshot could be taken.
    fn had_ended(&self, writer: &Member, reader: &Member, step: usize) -> bool {
        let Some(commit) = writer.commit.and_then(|id| self.world.order.get(id)) else {
            return false;
        };
        let first = reader.txn.steps.iter().position(|s| s.control == Control::Data);
        let step = match reader.rules.read_point {
            ReadPoint::Statement => step,
            _ => first.unwrap_or(step),
        };
        commit.hi < reader.txn.steps[step].seen.window.sent
    }

    /// Whether both wrote the same row, `a` before `b`.
    fn wrote_over(&self, a: &Member, b: &Member) -> bool {
        let (Some(first), Some(second)) = (a.commit, b.commit) else {
            return false;
        };
        let order = &self.world.order;
        let (Some(one), Some(other)) = (order.get(first), order.get(second)) else {
            return false;
        };
        order.must_precede(first, second) && one.rows.iter().any(|row| other.rows.contains(row))
    }
}
