//! What placing one transaction may cost.
//!
//! Always true: it is counted in work, so that it is the same on every machine.

use super::limits::Limits;
use super::run::Attempt;

/// A run that looks at more places than this counts for several.
const PLACES_A_RUN: usize = 16;
/// Calls that look at no more places than this end early, and so many of them count for one.
const PLACES_OF_SHORT: usize = 4;
const SHORT_A_RUN: usize = 4;
/// What part of its runs a transaction has at least, however many were in vain; and how many that were not it takes until
/// nothing is withheld.
const PATIENCE_MIN: usize = 16;
const PATIENCE_RETURNS: usize = 64;

/// What may still be spent on placing one transaction: counted in work, so that it is the same on every machine.
pub struct Budget {
    /// How many others may still be placed before it, and how many that were at first.
    pub(super) detours: usize,
    detours_max: usize,
    pub(super) runs: usize,
    /// Calls that were run and did not come far.
    short: usize,
    /// Writers of which only somebody in between can tell who came first are taken in one order, from the start.
    lazy: bool,
}

impl Budget {
    pub fn of(limits: &Limits) -> Budget {
        Budget {
            detours: limits.detours_max,
            detours_max: limits.detours_max,
            runs: limits.runs_max,
            short: 0,
            lazy: false,
        }
    }

    /// What runs long counts for several; of the calls that do not come far, several count for one.
    pub(super) fn charge(&mut self, attempt: &Attempt) {
        let places: usize = attempt.reads.iter().map(|read| read.touches.len()).sum();
        self.runs = self.runs.saturating_sub(places / PLACES_A_RUN);
        if attempt.calls && places <= PLACES_OF_SHORT {
            self.short += 1;
            self.runs += usize::from(!self.short.is_multiple_of(SHORT_A_RUN));
        }
    }

    pub(super) fn is_lazy(&self) -> bool {
        self.lazy || self.detours < self.detours_max - self.detours_max / 6
    }

    /// For a second look, with fewer orders.
    pub fn lazy(limits: &Limits) -> Budget {
        Budget {
            lazy: true,
            ..Budget::of(limits)
        }
    }
}

/// How many runs one transaction is worth: fewer, the more were in vain of late.
#[derive(Clone, Copy, Default)]
pub struct Patience {
    withheld: usize,
}

impl Patience {
    /// A transaction was given up, or was not.
    pub fn note(&mut self, given_up: bool, limits: &Limits) {
        let most = limits.runs_max;
        self.withheld = match given_up {
            true => most.saturating_sub(((most - self.withheld.min(most)) / 2).max(most / PATIENCE_MIN)),
            false => self.withheld.saturating_sub(most / PATIENCE_RETURNS),
        };
    }

    pub fn limit(self, budget: Budget) -> Budget {
        Budget {
            runs: budget.runs.saturating_sub(self.withheld).max(1),
            ..budget
        }
    }
}

pub(super) fn spend(what: &mut usize) -> bool {
    let left = what.checked_sub(1);
    *what = left.unwrap_or(0);
    left.is_some()
}
