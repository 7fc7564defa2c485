//! Merges the sessions' transactions by time; from here on the order is deterministic.
//!
//! In: ended transactions and marks. Out: transactions in the order of their key, each released only when
//! no transaction with a smaller key can still come.
//!
//! The key of a transaction is the instant its COMMIT was sent, or, for an implicit transaction, the
//! instant its end was read. Of two writers of one row whose order the windows decide, the first has the
//! smaller key: a writer that came first had its COMMIT under way before the other's lock was obtained.
//! What the windows leave open involves an implicit transaction that overlaps the other.
//!
//! Always true: the order out depends on the transactions alone, never on when marks arrive.

use crate::assemble::{End, Transaction};
use crate::trace::Nanos;
use crate::verdict::TxnId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a transaction stands in the order of the audit.
pub type Key = (Nanos, TxnId);

pub fn key_of(txn: &Transaction) -> Key {
    let at = match (txn.explicit, txn.end) {
        (true, end) => end.window().sent,
        (false, End::Unknown(w)) => w.sent,
        (false, end) => end.window().done,
    };
    (at, txn.id)
}

#[derive(Default)]
pub struct Sequencer {
    waiting: BTreeMap<Key, Arc<Transaction>>,
    mark: Nanos,
}

impl Sequencer {
    pub fn add(&mut self, txn: Arc<Transaction>) {
        self.waiting.insert(key_of(&txn), txn);
    }

    /// Every request that could commit something and was sent before `at` has been recorded.
    pub fn mark(&mut self, at: Nanos) {
        self.mark = self.mark.max(at);
    }

    pub fn mark_reached(&self) -> Nanos {
        self.mark
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next transaction, once all that could matter to it has been recorded: every commit that was
    /// sent before this transaction's last answer arrived.
    pub fn release(&mut self) -> Option<Arc<Transaction>> {
        let (_, txn) = self.waiting.first_key_value()?;
        let end = txn.end.window();
        let needed = if end.done == Nanos::MAX { end.sent } else { end.done };
        if needed >= self.mark {
            return None;
        }
        self.waiting.pop_first().map(|(_, txn)| txn)
    }

    /// Transactions not yet released, in order: those that may matter to what is being judged now.
    pub fn upcoming(&self) -> impl Iterator<Item = &Arc<Transaction>> {
        self.waiting.values()
    }
}
