//! Merges the sessions' transactions by time; from here on the order is deterministic.
//!
//! In: ended transactions and marks. Out: transactions in the order of their key, each released only when
//! no transaction with a smaller key can still come.
//!
//! The key of a transaction is the instant its COMMIT was sent, or, for one that is not spread over several
//! requests (implicit, or pipelined with its COMMIT), the instant its end was read. Of two writers of one row whose order the windows decide, the first has the
//! smaller key: a writer that came first had its COMMIT under way before the other's lock was obtained.
//! What the windows leave open involves a transaction that is not spread and overlaps the other.
//!
//! Always true: the order out depends on the transactions alone, never on when marks arrive.

use crate::assemble::{End, Transaction};
use crate::trace::{Bootstrap, CatalogRead, Gap, Nanos, Reread, SessionId};
use crate::verdict::TxnId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a transaction stands in the order of the audit.
pub type Key = (Nanos, TxnId);

pub fn key_of(txn: &Transaction) -> Key {
    let at = match (txn.is_spread(), txn.end) {
        (true, end) => end.window().sent,
        (false, End::Unknown(w)) => w.sent,
        (false, end) => end.window().done,
    };
    (at, txn.id)
}

/// Whether nobody can tell when it held its locks.
fn is_hasty(txn: &Transaction) -> bool {
    matches!(txn.end, End::Committed(_)) && !txn.is_spread()
}

/// What is put in order.
#[derive(Clone, Debug)]
pub enum Item {
    Transaction(Arc<Transaction>),
    /// From here on something was not seen.
    Gap(Gap),
    /// Something of a transaction that ends later may be committed from here on.
    Parts(Arc<Transaction>),
    /// A transaction was prepared, and its session goes on.
    Prepared(Arc<Transaction>),
    /// State that was read on the side.
    Bootstrap(Arc<Bootstrap>),
    /// Tables that were read again.
    Reread(Arc<Reread>),
    /// The catalog, read again.
    Catalog(Arc<CatalogRead>),
    /// The session is over.
    SessionEnd(SessionId),
    /// The server went away without a word.
    ServerGone(Nanos),
    /// Somebody writes past the proxy, or does no longer.
    Writers {
        at: Nanos,
        exclusive: bool,
    },
}

#[derive(Clone, Default)]
pub struct Sequencer {
    waiting: BTreeMap<(Key, u64), Item>,
    /// The transactions among these, by when they were sent.
    begun: BTreeMap<(Nanos, TxnId), Arc<Transaction>>,
    /// What is neither a transaction nor the end of a session.
    events: BTreeSet<(Key, u64)>,
    mark: Nanos,
    others: u64,
}

impl Sequencer {
    /// The last mark.
    pub fn marked(&self) -> Nanos {
        self.mark
    }

    pub fn add(&mut self, txn: Arc<Transaction>) {
        self.begun.insert((txn.sent(), txn.id), txn.clone());
        self.waiting.insert((key_of(&txn), 0), Item::Transaction(txn));
    }

    /// Something that is not a transaction and takes effect at `at`.
    pub fn add_other(&mut self, at: Nanos, item: Item) {
        self.others += 1;
        let nobody = TxnId {
            session: SessionId(0),
            number: 0,
        };
        let place = ((at, nobody), self.others);
        if !matches!(item, Item::SessionEnd(_)) {
            self.events.insert(place);
        }
        self.waiting.insert(place, item);
    }

    /// Every request that could commit something and was sent before `at` has been recorded.
    pub fn mark(&mut self, at: Nanos) {
        self.mark = self.mark.max(at);
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next item, once all that could matter to it has been recorded: for a transaction every commit
    /// that was sent before its last answer arrived.
    pub fn release(&mut self) -> Option<Item> {
        let (((at, _), _), item) = self.waiting.first_key_value()?;
        let needed = match item {
            Item::Transaction(txn) if txn.end.window().done != Nanos::MAX => txn.end.window().done,
            _ => *at,
        };
        if needed >= self.mark {
            return None;
        }
        let (place, item) = self.waiting.pop_first()?;
        match &item {
            Item::Transaction(txn) => drop(self.begun.remove(&(txn.sent(), txn.id))),
            _ => drop(self.events.remove(&place)),
        }
        Some(item)
    }

    /// Committed transactions that are not spread, not yet released, and were sent before `at`: they may have come before
    /// transactions with a smaller key.
    pub fn hasty_before(&self, at: Nanos) -> impl Iterator<Item = &Arc<Transaction>> {
        self.upcoming(at)
            .filter(move |txn| txn.sent() < at && is_hasty(txn))
    }

    /// Whether something that nobody saw, and whose turn is still to come, may have happened before `at`.
    pub fn is_unseen_before(&self, at: Nanos) -> bool {
        let before = self.events.iter().take_while(|((sent, _), _)| *sent <= at);
        let mut items = before.filter_map(|place| self.waiting.get(place));
        items.any(|item| matches!(item, Item::Gap(_)))
    }

    /// When something happens next that is no transaction, and more than the end of a session.
    pub fn next_other(&self) -> Option<Nanos> {
        self.events.first().map(|((at, _), _)| *at)
    }

    /// Transactions not yet released that were sent by `until`, in that order: those that may matter to what is being
    /// judged now.
    pub fn upcoming(&self, until: Nanos) -> impl Iterator<Item = &Arc<Transaction>> {
        let all = self.begun.iter().take_while(move |((sent, _), _)| *sent <= until);
        all.map(|(_, txn)| txn)
    }
}
