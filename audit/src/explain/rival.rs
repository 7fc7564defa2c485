//! Two writers of one row whose order the windows leave open.
//!
//! In: a transaction that was just applied, and the one whose version it replaced. Out: nothing, if their
//! answers fix the order or both orders leave the same row; otherwise the cells in which the orders differ
//! become unknown, until somebody reads them.
//!
//! Only transactions without a COMMIT of their own can leave this open: an explicit one holds its locks for
//! a while that others can see.

use crate::assemble::Transaction;
use crate::points::{CommitId, Order};
use crate::reference::base::Base;
use crate::reference::{Case, Member, serial};
use crate::sql::Planner;
use crate::state::store::Store;
use crate::state::{RowId, TableId};
use crate::value::{Key, Value};

/// The open commits that `txn`, which is `commit`, replaced a version of and that may have come after it.
pub fn rivals(txn: &Transaction, commit: CommitId, store: &Store, order: &Order) -> Vec<CommitId> {
    let Some(own) = order.get(commit) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (table, id) in &own.rows {
        let Some(chain) = store.tables.get(table).and_then(|t| t.chain(*id)) else {
            continue;
        };
        let before = chain
            .versions
            .iter()
            .rev()
            .find(|v| v.commit != commit)
            .map(|v| v.commit);
        let Some(before) = before.filter(|b| !found.contains(b)) else {
            continue;
        };
        let Some(other) = order.get(before) else { continue };
        let both_spread = txn.is_spread() && other.txn.is_spread();
        if !both_spread && other.txn.end.window().overlaps(txn.end.window()) {
            found.push(before);
        }
    }
    found
}

/// Cells that the two orders of `first` and `second` leave with different values: after both, and in between.
pub struct Open {
    pub last: Vec<(TableId, RowId, Vec<usize>)>,
    pub between: Vec<(TableId, RowId, Vec<usize>)>,
}

/// What the order of two rivals leaves open.
pub enum Rivalry {
    /// Their answers fix the order, as it is.
    Settled,
    Open(Open),
    /// They came the other way round, or neither order alone explains them.
    Upset,
}

/// Plays both orders.
pub fn compare(first: Member, second: Member, store: &Store, order: &Order, planner: &Planner) -> Rivalry {
    let members = [first, second];
    let start = members.iter().map(|m| m.txn.sent()).min().unwrap_or(0);
    let commits = members.iter().filter_map(|m| m.commit).collect();
    let base = Base {
        store,
        order,
        members: commits,
        start,
        strays: Default::default(),
    };
    let case = Case {
        base,
        planner,
        members: &members,
    };
    let play = |turns: &[usize]| serial::play_in_order(&case, turns);
    let (kept, swapped) = match (play(&[0, 1]), play(&[1, 0])) {
        (Some(_), None) => return Rivalry::Settled,
        (Some(kept), Some(swapped)) => (kept, swapped),
        (None, _) => return Rivalry::Upset,
    };
    let (Some(alone), Some(other)) = (play(&[0]), play(&[1])) else {
        return Rivalry::Upset;
    };
    let differing = |a: &crate::reference::base::Delta, b: &crate::reference::base::Delta| {
        let mut all = Vec::new();
        for ((table, id), row) in &a.rows {
            let (Some(row), Some(Some(twin))) = (row, b.rows.get(&(*table, *id))) else {
                continue;
            };
            let cells = row.iter().zip(twin.iter()).enumerate();
            let open: Vec<usize> = cells
                .filter(|(_, (x, y))| Key((*x).clone()) != Key((*y).clone()))
                .map(|(at, _)| at)
                .collect();
            if !open.is_empty() {
                all.push((*table, *id, open));
            }
        }
        all
    };
    Rivalry::Open(Open {
        last: differing(&kept, &swapped),
        between: differing(&alone, &other),
    })
}

/// Makes cells of the version that `commit` made unknown.
pub fn soften(store: &mut Store, commit: CommitId, cells: &[(TableId, RowId, Vec<usize>)]) {
    for (table, id, columns) in cells {
        let Some(table) = store.tables.get_mut(table) else {
            continue;
        };
        let Some(chain) = table.chain(*id) else { continue };
        let row = chain
            .versions
            .iter()
            .find(|v| v.commit == commit)
            .and_then(|v| v.row.clone());
        let Some(mut row) = row else { continue };
        for column in columns {
            table.learn(*id, &row, *column, &Value::Unknown);
            let chain = table.chain(*id).expect("it was there");
            match chain
                .versions
                .iter()
                .find(|v| v.commit == commit)
                .and_then(|v| v.row.clone())
            {
                Some(changed) => row = changed,
                None => break,
            }
        }
    }
}
