//! The slow, obvious decider: the definition of correct.
//!
//! In: a [`Case`]: a few transactions with everything that was observed of them, and the state they start
//! from. Out: whether points exist that explain every answer.
//!
//! It tries every order of every point with plain loops: no bounds are propagated, no order is inferred; only a
//! state that was searched before is not searched again. Slow is fine; wrong is not. Before a violation is told it is
//! decided again here, and property tests hold the fast path against it.
//!
//! Always true: `Impossible` is answered only after every order was tried.

pub mod base;
mod keys;
mod newest;
pub mod points;
mod state;
pub mod serial;

use crate::assemble::{Step, Transaction};
use crate::explain::asked::{Asked, Change};
use crate::explain::claim::{self, Claim};
use crate::explain::session::SessionState;
use crate::interpret::{Difference, Effect, Heed, Learned, Match, Views};
use crate::points::CommitId;
use crate::sql::Planner;
use crate::state::overlay::{OWN, Overlay};
use crate::state::{RowId, TableId};
use crate::trace::{Outcome, Status};
use base::{Base, CaseView, Delta};
use pgassay_rules::Level;
use pgassay_rules::profile::LevelRules;
use std::cell::Cell;
use std::sync::Arc;

/// How many nodes of the search tree are visited before it is called too large.
pub const NODES_MAX: u64 = 40_000;

/// How much work a suspicion is still worth: nodes of all its search trees together.
pub struct Work {
    left: Cell<u64>,
    over: Cell<bool>,
}

impl Work {
    pub fn new(nodes_max: u64) -> Work {
        Work {
            left: Cell::new(nodes_max),
            over: Cell::new(false),
        }
    }

    /// Takes one node off; whether there was one left.
    fn spend(&self) -> bool {
        self.spend_all(1)
    }

    /// Takes off as much as this.
    fn spend_all(&self, work: u64) -> bool {
        match self.left.get().checked_sub(work) {
            Some(left) => self.left.set(left),
            None => self.over.set(true),
        }
        !self.over.get()
    }

    /// Whether more was asked for than there was.
    fn is_over(&self) -> bool {
        self.over.get()
    }
}

/// One transaction of a case.
#[derive(Clone, Debug)]
pub struct Member {
    pub txn: Arc<Transaction>,
    pub level: Level,
    pub rules: LevelRules,
    pub session: SessionState,
    /// Its commit in the store, hidden while the case is decided.
    pub commit: Option<CommitId>,
}

pub struct Case<'a> {
    pub base: Base<'a>,
    pub planner: &'a Planner,
    pub members: &'a [Member],
    pub work: &'a Work,
}

#[derive(Debug)]
pub enum Decision {
    /// Some order explains everything; the rows as they are afterwards.
    Explained(Delta),
    /// No order does. The differences met on the way, each with its member and step.
    Impossible(Vec<(usize, usize, Difference)>),
    /// Too many orders to try.
    TooLarge,
    /// None that was tried does, but there are ways to read what was read that were not.
    Open(&'static str),
}

/// What one step does on given views.
struct Done {
    agrees: Result<(), Difference>,
    effects: Vec<Effect>,
    /// Rows that it certainly held.
    claims: Vec<Claim>,
    /// How the session goes on.
    change: Change,
}

fn plan(case: &Case<'_>, step: &Step, session: &SessionState, view: &CaseView<'_>) -> Asked {
    Asked::of(
        case.planner,
        crate::state::View::catalog(view),
        &step.seen,
        session,
    )
}

/// Whether the interpreter has a say in this step at all.
fn is_judged(step: &Step) -> bool {
    !matches!(step.seen.outcome, Outcome::Skipped) && step.seen.before != Status::Failed
}

fn execute(asked: &Asked, at: usize, step: &Step, session: &SessionState, views: Views<'_>) -> Done {
    let catalog = views.snapshot.catalog();
    let (execution, change) = asked.perform(&step.seen, session, views, Heed::Compared);
    let mut effects = execution.effects;
    let agrees = match execution.expect.compare(&step.seen.outcome) {
        Match::Differs(difference) => Err(difference),
        Match::Unknown(_) => Ok(()),
        Match::Agrees { learned } => {
            for lesson in learned {
                if let Learned::Written {
                    effect,
                    column,
                    value,
                } = lesson
                    && let Some(Effect::Insert { row, .. } | Effect::Update { after: row, .. }) =
                        effects.get_mut(effect)
                {
                    let mut cells = row.to_vec();
                    if let Some(cell) = cells.get_mut(column) {
                        *cell = value;
                    }
                    *row = cells.into();
                }
            }
            Ok(())
        }
    };
    // Of an answer that never came nobody knows whether it was done: the end says so.
    if !matches!(step.seen.outcome, Outcome::Answer(_) | Outcome::Lost)
        || asked.wrote_nothing(&step.seen.outcome)
    {
        effects.clear();
    }
    let claims = match step.seen.outcome {
        Outcome::Answer(_) => claim::claims(
            at,
            &step.seen,
            asked,
            catalog,
            &execution.expect,
            &execution.footprint,
            &effects,
        ),
        _ => Vec::new(),
    };
    Done {
        agrees,
        effects,
        claims,
        change,
    }
}

/// First updater wins: a row that changed since the snapshot cannot be written.
fn overwrites_unseen(effects: &[Effect], snapshot: &Delta, committed: &Delta, own: &Overlay) -> bool {
    effects.iter().any(|effect| {
        let (table, id): (TableId, RowId) = match effect {
            Effect::Update { table, id, .. } | Effect::Delete { table, id, .. } => (*table, *id),
            _ => return false,
        };
        if id.0 & OWN != 0 || own.table(table).is_some_and(|o| o.replaced.contains_key(&id)) {
            return false;
        }
        let before = snapshot.rows.get(&(table, id));
        let now = committed.rows.get(&(table, id));
        match (before, now) {
            (None, None) => false,
            (Some(Some(a)), Some(Some(b))) => !Arc::ptr_eq(a, b),
            (Some(None), Some(None)) => false,
            _ => true,
        }
    })
}
