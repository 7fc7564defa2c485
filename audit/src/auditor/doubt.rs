//! What may have happened that nobody saw: to the catalog, and by parts of transactions.
//!
//! In: transactions, before they are judged. Out: what is relied on no longer.

use super::Auditor;
use crate::assemble::{End, Step, Transaction};
use crate::trace::lex::{self, Effect};
use crate::trace::{LIMBO_NS, Nanos, Observation, Status};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Auditor {
    /// Somebody may have changed the catalog unseen, at the latest at `until`.
    pub(super) fn distrust_catalog(&mut self, until: Nanos, why: impl FnOnce() -> String) {
        if !self.withheld.now().is_in_doubt() {
            tracing::info!(why = why(), "the catalog is in doubt until it is read again");
        }
        self.withheld.doubt(until, self.explainer.catalog());
    }

    /// The server went away without a word, and may have crashed. Where it need not keep what it has committed, nothing
    /// that was known can be relied on.
    pub(super) fn survive(&mut self, at: Nanos) {
        self.explainer.survive(at);
        if self.explainer.may_lose_commits() {
            self.summary.gaps += 1;
            self.distrust_catalog(at, || "the server may have crashed and lost commits".to_owned());
            self.explainer.forget(at);
        }
    }

    /// Until when a transaction may change the catalog in a way that nobody sees, by what is known before it is looked at.
    pub(super) fn may_change_unseen(&self, txn: &Transaction) -> Option<Nanos> {
        match txn.end {
            End::Committed(window) => txn.torn.then_some(window.done),
            End::Unknown(window) => {
                let planned = AssertUnwindSafe(|| self.explainer.may_change_catalog(txn));
                let is_more = || says_more_than_data(txn) && catch_unwind(planned).unwrap_or(true);
                let until = window.sent.saturating_add(LIMBO_NS);
                (txn.torn || is_more()).then_some(until)
            }
            End::Aborted(_) => None,
        }
    }

    /// What a transaction may have committed on its way is not known until it has ended.
    pub(super) fn distrust_parts(&mut self, txn: &Transaction) {
        let until = txn.end.window().done;
        if by_parts(txn).any(|seen| lex::is_concurrent(&seen.text)) {
            self.distrust_catalog(until, || format!("it may have failed half-way: {}", said_by(txn)));
        }
        if txn.steps.iter().any(Step::may_end_transaction) {
            let parts = AssertUnwindSafe(|| self.explainer.committed_on_its_way(txn));
            match catch_unwind(parts).unwrap_or(None) {
                Some(tables) => self.explainer.forget_tables(&tables, until),
                None => {
                    self.distrust_catalog(until, || format!("it may commit on its way: {}", said_by(txn)));
                    self.explainer.forget(until);
                }
            }
        }
    }
}

/// The statements of a transaction that may have committed something before it ended.
pub(super) fn by_parts(txn: &Transaction) -> impl Iterator<Item = &Observation> {
    let aborted = matches!(txn.end, End::Aborted(_));
    let is_half_done =
        move |seen: &Observation| aborted && seen.before == Status::Idle && lex::is_concurrent(&seen.text);
    let parts = txn.steps.iter();
    let parts = parts.filter(move |step| step.may_end_transaction() || is_half_done(&step.seen));
    parts.map(|step| &*step.seen)
}

/// The statements of a transaction, without their constants.
pub(super) fn said_by(txn: &Transaction) -> String {
    let texts = txn.steps.iter().map(|step| &*step.seen.text);
    let shapes = texts.map(|text| pg_query::normalize(text).unwrap_or_else(|_| "(unreadable)".to_owned()));
    shapes.collect::<Vec<_>>().join("; ")
}

/// Whether something in it is neither a query nor plain DML nor transaction control.
pub(super) fn says_more_than_data(txn: &Transaction) -> bool {
    let is_more = |text: &str| matches!(lex::effect(text), Effect::Other | Effect::Several);
    let texts = txn.steps.iter().map(|step| &step.seen.text);
    texts.flat_map(|text| lex::statements(text)).any(is_more)
}
