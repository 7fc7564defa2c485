//! Cuts transactions down to what they do to one row.
//!
//! In: a transaction that nothing explains, wrong at a statement that looks up one key; and others that wrote the row. Out:
//! the same transactions with only those of their statements that concern the row.
//!
//! What is impossible for the parts is impossible for the whole: a statement that is left out wrote nothing that the others
//! read, and without its answer there are more ways to explain them, never fewer. So a proof that has too many transactions, or
//! too many instants, is tried once more with a fraction of them:
//!
//!   ```text
//!   t1  begin · read 3 · set 1 to 5 · read 2 · set 2 to 7 · commit          becomes   begin · set 1 to 5 · commit
//!   ```
//!
//! Always true: every statement that may have written the row is kept, or nothing is cut at all. Only where every statement has
//! a snapshot of its own: elsewhere the first one decides what all others see.

use crate::assemble::{End, Step, Transaction};
use crate::control::Control;
use crate::explain::asked::Asked;
use crate::explain::footprint::Footprint;
use crate::explain::place::Task;
use crate::explain::spot::Spot;
use crate::explain::world::World;
use crate::explain::{Explainer, Suspect};
use crate::reference::Member;
use crate::trace::Outcome;
use pgassay_rules::profile::{ReadPoint, RealTime};
use std::sync::Arc;

/// The row that a story is about.
pub struct Slice<'a> {
    world: &'a World,
    explainer: &'a Explainer,
    row: Spot,
}

/// What a statement has to do with the row.
enum Bearing {
    About,
    Elsewhere,
    /// Nobody can tell.
    Open,
}

impl<'a> Slice<'a> {
    /// `None` if it is about more than one row, or nobody knows which.
    pub fn of(
        suspect: &Suspect,
        member: &Member,
        world: &'a World,
        explainer: &'a Explainer,
    ) -> Option<Slice<'a>> {
        let looked = Looked::of(member, &suspect.txn.steps[suspect.step], world, explainer);
        Some(Slice {
            world,
            explainer,
            row: looked.at?,
        })
    }

    /// A transaction with only those statements that concern the row, and which they were; `None` if that cannot be told.
    pub fn cut(&self, member: &Member) -> Option<(Member, Vec<usize>)> {
        let (txn, rules) = (&member.txn, &member.rules);
        let is_plain = !txn.vague && !txn.torn && !txn.borrows && !matches!(txn.end, End::Unknown(_));
        if !is_plain || rules.read_point != ReadPoint::Statement || rules.real_time != RealTime::Strict {
            return None;
        }
        let mut kept = Vec::new();
        for (at, step) in txn.steps.iter().enumerate() {
            match &step.control {
                Control::Begin { .. } | Control::Commit { .. } | Control::Rollback { .. } => kept.push(at),
                Control::Data => match self.bearing(member, step) {
                    Bearing::About => kept.push(at),
                    Bearing::Elsewhere => {}
                    Bearing::Open => return None,
                },
                _ => return None,
            }
        }
        let steps = kept.iter().map(|at| txn.steps[*at].clone()).collect();
        let member = Member {
            txn: with_steps(txn, steps),
            ..member.clone()
        };
        Some((member, kept))
    }

    fn bearing(&self, member: &Member, step: &Step) -> Bearing {
        let looked = Looked::of(member, step, self.world, self.explainer);
        match looked.at {
            _ if looked.is_lasting => Bearing::Open,
            Some(at) if at.is_at(&self.row) => Bearing::About,
            Some(at) if !looked.writes || at.is_beside(&self.row) => Bearing::Elsewhere,
            None if !looked.writes => Bearing::Elsewhere,
            _ => Bearing::Open,
        }
    }
}

/// What one statement does by itself.
struct Looked {
    /// Where it reads and writes, if it says so.
    at: Option<Spot>,
    /// It may have left something.
    writes: bool,
    /// It was not simply answered, or changes what later ones mean.
    is_lasting: bool,
}

impl Looked {
    fn of(member: &Member, step: &Step, world: &World, explainer: &Explainer) -> Looked {
        let (planner, catalog) = (&explainer.planner, &world.store.catalog);
        let task = Task {
            txn: with_steps(&member.txn, vec![step.clone()]),
            rules: member.rules,
            session: member.session.clone(),
        };
        let asked = Asked::of(planner, catalog, &step.seen, &task.session);
        let attempt = world.run_anyway(&task.txn, &task.rules, &task.session, planner);
        let footprint = Footprint::new(&task.txn, &attempt, &world.store);
        let is_answered = matches!(step.seen.outcome, Outcome::Answer(_));
        Looked {
            at: Spot::of(&task, &footprint, catalog, planner),
            writes: asked.prepared.planned.may_write && !asked.wrote_nothing(&step.seen.outcome),
            is_lasting: !asked.is_run() || !is_answered || attempt.changes_session || footprint.beyond_rows,
        }
    }
}

fn with_steps(txn: &Transaction, steps: Vec<Step>) -> Arc<Transaction> {
    Arc::new(Transaction {
        facts: txn.facts.clone(),
        steps,
        ..*txn
    })
}
