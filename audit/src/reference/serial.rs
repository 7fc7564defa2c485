//! Tries every serial order of a case's committed transactions.
//!
//! A serial order explains a case if each transaction, run alone on what the ones before it left, gives
//! every answer that was observed. The order need not be that of the commits; with `real_time` a
//! transaction that ended before another began must come first.

use super::base::{CaseView, Delta, Me};
use super::{Case, Decision, Done, NODES_MAX, execute, is_judged, plan};
use crate::assemble::End;
use crate::control::Control;
use crate::interpret::{Difference, Views};
use crate::state::overlay::Overlay;
use crate::trace::Outcome;

struct Search<'a> {
    case: &'a Case<'a>,
    real_time: bool,
    nodes: u64,
    differences: Vec<(usize, usize, Difference)>,
}

/// Decides whether a serial order of the committed members explains all their answers.
pub fn decide(case: &Case<'_>, real_time: bool) -> Decision {
    let members: Vec<usize> = (0..case.members.len())
        .filter(|m| matches!(case.members[*m].txn.end, End::Committed(_)))
        .collect();
    let mut search = Search {
        case,
        real_time,
        nodes: 0,
        differences: Vec::new(),
    };
    match search.go(&members, Delta::default()) {
        Some(delta) => Decision::Explained(delta),
        None if search.nodes > NODES_MAX => Decision::TooLarge,
        None => Decision::Impossible(search.differences),
    }
}

/// Plays the members in the given order, one after the other; `None` if an answer does not agree.
pub fn play_in_order(case: &Case<'_>, order: &[usize]) -> Option<Delta> {
    let mut search = Search {
        case,
        real_time: false,
        nodes: 0,
        differences: Vec::new(),
    };
    let mut committed = Delta::default();
    for &member in order {
        committed = search.play(member, &committed)?;
    }
    Some(committed)
}

impl Search<'_> {
    fn go(&mut self, left: &[usize], committed: Delta) -> Option<Delta> {
        if left.is_empty() {
            return Some(committed);
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
            if self.nodes > NODES_MAX {
                return None;
            }
            if let Some(after) = self.play(next, &committed) {
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

    /// Runs one member alone; `None` if an answer does not agree.
    fn play(&mut self, at: usize, committed: &Delta) -> Option<Delta> {
        let member = &self.case.members[at];
        let mut overlay = Overlay::default();
        let mut session = member.session.at(member.txn.id.number);
        let mut savepoints: Vec<(String, Overlay)> = Vec::new();
        for (number, step) in member.txn.steps.iter().enumerate() {
            match &step.control {
                Control::Data => {}
                control => {
                    if matches!(step.seen.outcome, Outcome::Answer(_)) {
                        session.control(control);
                        match control {
                            Control::Savepoint(name) => savepoints.push((name.clone(), overlay.clone())),
                            Control::RollbackTo(name) => {
                                if let Some((_, saved)) = savepoints.iter().rev().find(|(n, _)| n == name) {
                                    overlay = saved.clone();
                                }
                            }
                            _ => {}
                        }
                    }
                    continue;
                }
            }
            // A statement that failed says nothing about a serial order: it left no trace.
            if !is_judged(step) || !matches!(step.seen.outcome, Outcome::Answer(_)) {
                continue;
            }
            let view = CaseView {
                base: &self.case.base,
                delta: committed,
                own: &overlay,
                me: Me::Alone,
                instants: None,
            };
            let asked = plan(self.case, step, &session, &view);
            let views = Views {
                snapshot: &view,
                latest: &view,
                recheck: false,
            };
            let Done {
                agrees,
                effects,
                change,
            } = execute(&asked, step, &session, views);
            if let Err(difference) = agrees {
                if self.differences.len() < 64 {
                    self.differences.push((at, number, difference));
                }
                return None;
            }
            let catalog = crate::state::View::catalog(&view).clone();
            session.step(
                &asked.prepared.planned.kind,
                &change,
                &step.seen.outcome,
                &catalog,
            );
            for effect in &effects {
                overlay.apply(effect, number);
            }
        }
        let mut after = committed.clone();
        after.commit(&overlay);
        Some(after)
    }
}
