//! Who held which row, and whether two transactions held one at the same time.
//!
//! In: transactions that have ended, with what each certainly held. Out: whom a transaction should have waited for, or who
//! should have waited for it.
//!
//! What was held, and when, is certain (`explain/claim.rs`): nothing has to be placed to see that two of them exclude each
//! other. It is a suspicion all the same, which the reference checker decides.
//!
//! Always true: what is kept ends after everybody whose turn is still to come may have begun.

use crate::assemble::Transaction;
use crate::explain::claim::{Claim, Held, Place};
use crate::trace::Nanos;
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Clone, Default)]
pub struct Excluder {
    held: FxHashMap<Place, Vec<Holder>>,
}

#[derive(Clone)]
struct Holder {
    held: Held,
    who: Who,
}

/// A transaction, and whether it left something behind that others see.
#[derive(Clone)]
pub struct Who {
    pub txn: Arc<Transaction>,
    pub leaves: bool,
}

/// Two that held one row.
pub struct Overlap {
    /// The statement of the one that was added last.
    pub step: usize,
    pub other: Who,
}

impl Excluder {
    /// Adds what a transaction held; the first of the others that held one of the rows at the same time, if somebody did.
    pub fn add(&mut self, who: &Who, claims: &[Claim]) -> Option<Overlap> {
        let mut found = None;
        for held in Held::of(&who.txn, claims) {
            let holders = self.held.entry(held.claim.place.clone()).or_default();
            let excluded = |holder: &&Holder| holder.who.txn.id != who.txn.id && held.excludes(&holder.held);
            if found.is_none()
                && let Some(other) = holders.iter().find(excluded)
            {
                found = Some(Overlap {
                    step: held.claim.step,
                    other: other.who.clone(),
                });
            }
            let who = who.clone();
            holders.push(Holder { held, who });
        }
        found
    }

    /// Forgets what nobody who began at `horizon` or later can have met.
    pub fn collect(&mut self, horizon: Nanos) {
        self.held.retain(|_, holders| {
            holders.retain(|holder| holder.held.window.done >= horizon);
            !holders.is_empty()
        });
    }
}
