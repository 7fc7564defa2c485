//! Tries every serial order of a case's committed transactions.
//!
//! A serial order explains a case if each transaction, run alone on what the ones before it left, gives
//! every answer that was observed. The order need not be that of the commits; with `real_time` a
//! transaction that ended before another began must come first.
//!
//! Nobody sees what was not yet asked for: a transaction may come behind others that it cannot have seen, but only if
//! what each of them wrote makes no difference to it. (Where a snapshot is kept, this has exceptions that no serial order
//! knows: [`newest`].) So its statements must agree, and write the same, with what those before it left who had asked for it
//! (where snapshots are taken in real time: for their commit) by then; and still so when the others are added, one after
//! the other.

use super::base::{CaseView, Delta, Me};
use super::{Case, Decision, Done, Member, NODES_MAX, execute, is_judged, newest, overwrites_unseen, plan};
use crate::assemble::End;
use crate::control::Control;
use crate::explain::session::SessionState;
use crate::interpret::{Difference, Effect, Views};
use crate::sql::plan::Planned;
use crate::state::overlay::{Overlay, OwnTable};
use crate::state::{Row, TableId};
use crate::trace::{Nanos, Outcome};
use crate::value::Collation;
use crate::value::compare::same;
use pgassay_rules::profile::{ReadPoint, RealTime, Writes};
use std::collections::BTreeSet;
use std::rc::Rc;

/// What the members of the order so far left.
#[derive(Clone, Default)]
struct Before {
    /// Who, in order, and what each wrote.
    parts: Vec<(usize, Rc<Overlay>)>,
    all: Rc<Delta>,
    /// Why nobody can tell what some of it is.
    unsure: Option<&'static str>,
}

impl Before {
    fn then(&self, member: usize, own: Overlay, unsure: Option<&'static str>) -> Before {
        let mut parts = self.parts.clone();
        let mut all = (*self.all).clone();
        all.commit(&own);
        parts.push((member, Rc::new(own)));
        Before {
            parts,
            all: Rc::new(all),
            unsure: self.unsure.or(unsure),
        }
    }

    /// What is left without those who are `unseen`, then with the first of them, and so on until all but the last are
    /// there; nothing if there are none.
    fn without(&self, unseen: impl Fn(usize) -> bool) -> Vec<Delta> {
        let hidden = |(member, own): &(usize, Rc<Overlay>)| unseen(*member) && is_plain(own);
        let hidden: Vec<bool> = self.parts.iter().map(hidden).collect();
        let count = hidden.iter().filter(|hidden| **hidden).count();
        let with = |first: usize| {
            let (mut some, mut met) = (Delta::default(), 0);
            for ((_, own), hidden) in self.parts.iter().zip(&hidden) {
                met += usize::from(*hidden);
                match *hidden && met > first {
                    true => some.skip(own),
                    false => some.commit(own),
                }
            }
            some
        };
        (0..count).map(with).collect()
    }
}

/// Whether it is rows that were written, and nothing that older snapshots notice too.
fn is_plain(own: &Overlay) -> bool {
    let plain = |t: &OwnTable| !t.truncated && t.havoc.is_none();
    own.catalog.is_none() && own.havoc_everything.is_none() && own.tables.values().all(plain)
}

/// Whether both may have written the same: what is not known is not known to differ.
fn may_be_same(a: &[Effect], b: &[Effect]) -> bool {
    let both = || a.iter().chain(b);
    if both().any(|effect| matches!(effect, Effect::HavocEverything { .. })) {
        return true;
    }
    let vague: BTreeSet<TableId> = both().filter_map(vague_in).collect();
    let certain = |effect: &&Effect| match effect {
        Effect::Insert { table, .. }
        | Effect::Update { table, .. }
        | Effect::Delete { table, .. }
        | Effect::Truncate { table } => !vague.contains(table),
        Effect::Catalog(_) => true,
        _ => false,
    };
    let (a, b): (Vec<&Effect>, Vec<&Effect>) = (
        a.iter().filter(certain).collect(),
        b.iter().filter(certain).collect(),
    );
    a.len() == b.len() && a.into_iter().zip(b).all(|(a, b)| may_be_one(a, b))
}

/// The table of which an effect does not say for certain what it does to which rows.
fn vague_in(effect: &Effect) -> Option<TableId> {
    match effect {
        Effect::Perhaps { table, .. }
        | Effect::Havoc { table, .. }
        | Effect::Absent { table, .. }
        | Effect::Unseen { table } => Some(*table),
        _ => None,
    }
}

/// Whether two effects, each of which is certain, may be the same.
fn may_be_one(a: &Effect, b: &Effect) -> bool {
    let may_be = |x: &Row, y: &Row| {
        let differ = |(x, y)| same(x, y, Collation::Bytes) == Some(false);
        x.len() == y.len() && !x.iter().zip(y.iter()).any(differ)
    };
    match (a, b) {
        (Effect::Insert { table: a, row: x }, Effect::Insert { table: b, row: y }) => a == b && may_be(x, y),
        (Effect::Update { id: a, after: x, .. }, Effect::Update { id: b, after: y, .. }) => {
            a == b && may_be(x, y)
        }
        (Effect::Delete { id: a, .. }, Effect::Delete { id: b, .. }) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

struct Search<'a> {
    case: &'a Case<'a>,
    real_time: bool,
    nodes: u64,
    differences: Vec<(usize, usize, Difference)>,
    /// Why an order that was met may be right, or not.
    open: Option<&'static str>,
}

/// Decides whether a serial order of the committed members explains all their answers. One in which nobody can tell what
/// somebody did explains nothing, and refutes nothing.
pub fn decide(case: &Case<'_>, real_time: bool) -> Decision {
    let members: Vec<usize> = (0..case.members.len())
        .filter(|m| matches!(case.members[*m].txn.end, End::Committed(_)))
        .collect();
    let mut search = Search {
        case,
        real_time,
        nodes: 0,
        differences: Vec::new(),
        open: None,
    };
    match search.go(&members, Before::default()) {
        Some(left) => Decision::Explained((*left.all).clone()),
        None if search.is_over() => Decision::TooLarge,
        None => match search.open {
            Some(reason) => Decision::Open(reason),
            None => Decision::Impossible(search.differences),
        },
    }
}

impl Search<'_> {
    /// The tables in which nobody can tell what a statement that keeps a snapshot has done, and why.
    fn unsure(
        &self,
        at: usize,
        own: &Overlay,
        planned: &Planned,
        before: &Before,
        alone: &Done,
    ) -> Option<(Vec<TableId>, &'static str)> {
        let earlier = before.parts.iter().map(|(other, theirs)| (*other, &**theirs));
        if newest::may_see_two(self.case, at, own, &planned.touches.read, earlier) {
            return Some((planned.touches.written.clone(), "two_rows_with_one_key"));
        }
        let tables = newest::unsure_of_keys(self.case, at, planned, alone);
        if !tables.is_empty() {
            return Some((tables, "keys_at_several_instants"));
        }
        let tables = newest::unsure_of_children(self.case, at, &planned.touches.written, alone);
        (!tables.is_empty()).then_some((tables, "children_at_several_instants"))
    }

    /// Whether it was given up.
    fn is_over(&self) -> bool {
        self.nodes > NODES_MAX || self.case.work.is_over()
    }

    fn go(&mut self, left: &[usize], before: Before) -> Option<Before> {
        if left.is_empty() {
            self.open = self.open.or(before.unsure);
            return before.unsure.is_none().then_some(before);
        }
        for &next in left {
            if self.real_time
                && left
                    .iter()
                    .any(|&other| other != next && self.ended_before(other, next))
            {
                continue;
            }
            self.nodes += 1;
            if !self.case.work.spend() || self.is_over() {
                return None;
            }
            if let Some(after) = self.play(next, &before) {
                let rest: Vec<usize> = left.iter().copied().filter(|&m| m != next).collect();
                if let Some(found) = self.go(&rest, after) {
                    return Some(found);
                }
            }
        }
        None
    }

    fn ended_before(&self, a: usize, b: usize) -> bool {
        self.case.members[a].txn.end.window().done < self.case.members[b].txn.sent()
    }

    /// Whether what `other` wrote cannot have been seen by a statement of `member` that had read by `done`.
    fn is_unseen(&self, other: usize, member: &Member, done: Nanos) -> bool {
        let Member { txn, commit, .. } = &self.case.members[other];
        let asked = match member.rules.real_time {
            RealTime::Strict => {
                // Its place may be that of somebody who did the same.
                let placed = commit.and_then(|id| self.case.base.order.get(id));
                let sent = txn.end.window().sent;
                placed.map_or(sent, |place| sent.min(place.observed.sent))
            }
            RealTime::AnyEarlier => {
                let first = txn.steps.iter().find(|s| s.control == Control::Data);
                first.map_or(txn.sent(), |s| s.seen.window.sent)
            }
        };
        asked > done
    }

    /// Runs one member alone; `None` if an answer does not agree.
    fn play(&mut self, at: usize, before: &Before) -> Option<Before> {
        let member = &self.case.members[at];
        let forbidden = matches!(
            member.rules.writes,
            Writes::FirstUpdaterWins | Writes::NoWriteConflict
        );
        // Whoever does not care what was written since may have read the newest of everything, each under its lock.
        let one_snapshot = forbidden
            && member.rules.real_time == RealTime::Strict
            && member.rules.read_point == ReadPoint::Transaction;
        let mut read_by: Option<Nanos> = None;
        let mut doubt = None;
        let mut overlay = Overlay::default();
        let mut session = member.session.at(member.txn.id.number);
        let mut savepoints: Vec<(String, Overlay, SessionState)> = Vec::new();
        for (number, step) in member.txn.steps.iter().enumerate() {
            match &step.control {
                Control::Data => {}
                control => {
                    if matches!(step.seen.outcome, Outcome::Answer(_)) {
                        let catalog = overlay
                            .catalog
                            .as_ref()
                            .unwrap_or(&self.case.base.store.catalog)
                            .clone();
                        session.control(control, &catalog);
                        match control {
                            Control::Savepoint(name) => {
                                savepoints.push((name.clone(), overlay.clone(), session.clone()));
                            }
                            Control::RollbackTo(name) => {
                                let saved = savepoints.iter().rev().find(|(n, ..)| n == name);
                                if let Some((_, written, set)) = saved {
                                    overlay = written.clone();
                                    session.set_back(set, &catalog);
                                }
                            }
                            _ => {}
                        }
                    }
                    continue;
                }
            }
            // A statement that failed says nothing about a serial order: it left no trace.
            if !is_judged(step) || !matches!(step.seen.outcome, Outcome::Answer(_) | Outcome::Lost) {
                continue;
            }
            let view = |delta| CaseView {
                base: &self.case.base,
                delta,
                own: &overlay,
                me: Me::Alone,
                instants: None,
            };
            let latest = view(&before.all);
            let asked = plan(self.case, step, &session, &latest);
            if !one_snapshot || (read_by.is_none() && asked.reads_snapshot()) {
                read_by = Some(step.seen.window.done);
            }
            let on = |snapshot: &CaseView<'_>, latest: &CaseView<'_>| {
                let views = Views {
                    snapshot,
                    latest,
                    recheck: false,
                };
                execute(&asked, number, step, &session, views)
            };
            let planned = &asked.prepared.planned;
            let alone = on(&latest, &latest);
            let unsure = match one_snapshot {
                true => self.unsure(at, &overlay, planned, before, &alone),
                false => None,
            };
            if let Some((tables, reason)) = unsure {
                let catalog = crate::state::View::catalog(&latest).clone();
                session.set(planned, &step.seen.outcome, &catalog);
                doubt = doubt.or(Some(reason));
                for table in tables {
                    let reason = reason.to_owned();
                    overlay.apply(&Effect::Havoc { table, reason }, number);
                }
                continue;
            }
            let done = read_by.unwrap_or(step.seen.window.done);
            let seen = before.without(|other| self.is_unseen(other, member, done));
            let Done {
                mut agrees,
                effects,
                change,
                ..
            } = alone;
            for (nth, seen) in seen.iter().enumerate() {
                if agrees.is_err() {
                    break;
                }
                let overwrites = || overwrites_unseen(&effects, seen, &before.all, &overlay);
                let there = view(seen);
                // Nor was it there for whoever looks at the newest rows, if it had not been asked for by the end of the statement.
                let really = match nth == 0 && done == step.seen.window.done {
                    true => on(&there, &there),
                    false => on(&there, &latest),
                };
                if nth == 0 && forbidden && overwrites() || !may_be_same(&effects, &really.effects) {
                    return None;
                }
                agrees = really.agrees;
            }
            if let Err(difference) = agrees {
                if self.differences.len() < 64 {
                    self.differences.push((at, number, difference));
                }
                return None;
            }
            let catalog = crate::state::View::catalog(&latest).clone();
            session.step(&asked.prepared.planned, &change, &step.seen.outcome, &catalog);
            for effect in &effects {
                overlay.apply(effect, number);
            }
        }
        Some(before.then(at, overlay, doubt))
    }
}
