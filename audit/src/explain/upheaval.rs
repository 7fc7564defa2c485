//! Changes of the catalog of which nobody can tell what they have come to.
//!
//! In: transactions that were judged. Out: until when the catalog is in doubt.
//!
//! That is so where a change is not followed, and where two of them overlap that name the same: which came first cannot be
//! told. `CREATE … IF NOT EXISTS` and `DROP … IF EXISTS` both succeed in any order; so do two defaults of one column.

use super::run::Attempt;
use crate::assemble::{End, Transaction};
use crate::trace::{LIMBO_NS, Nanos, Window};
use std::collections::VecDeque;

/// Changes that are remembered; they are few and far between.
const REMEMBERED_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Unfollowed {
    until: Option<Nanos>,
    /// What was changed by several at once, since this was last asked.
    names: Vec<String>,
    /// When the last changes were made, and what they name.
    recent: VecDeque<(Window, Vec<String>)>,
}

impl Unfollowed {
    /// Until when the catalog may have been changed in a way that nobody followed, since this was last asked.
    pub fn take(&mut self) -> Option<Nanos> {
        self.until.take()
    }

    /// The names of what was changed by several at once, since this was last asked.
    pub(super) fn take_names(&mut self) -> Vec<String> {
        std::mem::take(&mut self.names)
    }

    pub(super) fn note(&mut self, txn: &Transaction, attempt: &Attempt) {
        let until = match txn.end {
            End::Committed(window) => window.done,
            End::Unknown(window) => window.sent.saturating_add(LIMBO_NS),
            End::Aborted(_) => return,
        };
        if attempt.unfollowed {
            self.until = self.until.max(Some(until));
        }
        if !attempt.upheaval.is_empty() {
            self.meet(Window::new(txn.sent(), until), &attempt.upheaval);
        }
    }

    fn meet(&mut self, window: Window, names: &[String]) {
        for (other, said) in &self.recent {
            let is_beside = other.done >= window.sent && other.sent <= window.done;
            if is_beside && said.iter().any(|name| names.contains(name)) {
                self.until = self.until.max(Some(other.done.max(window.done)));
                self.names.extend(said.iter().chain(names).cloned());
            }
        }
        self.recent.push_back((window, names.to_vec()));
        if self.recent.len() > REMEMBERED_MAX {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_same_thing_that_overlap_are_in_doubt() {
        let mut unfollowed = Unfollowed::default();
        let mut meet = |sent: Nanos, done: Nanos, names: &str| {
            let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
            unfollowed.meet(Window::new(sent, done), &names);
            unfollowed.take()
        };
        assert_eq!(meet(10, 20, "bag one_of_b"), None);
        assert_eq!(meet(15, 30, "acct extra"), None);
        assert_eq!(meet(18, 25, "one_of_b"), Some(25));
        assert_eq!(meet(26, 40, "one_of_b"), None);
        assert_eq!(meet(28, 29, "acct"), Some(30));
        assert_eq!(
            unfollowed.take_names(),
            ["bag", "one_of_b", "one_of_b", "acct", "extra", "acct"]
        );
    }
}
