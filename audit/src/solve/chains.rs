//! The rows of a table whose visible version is open to a snapshot.
//!
//! In: the store, the order of the commits, and the window of a snapshot. Out: for every such row the version that is
//! there at least, and those that may have replaced it, each with the commit that made it.
//!
//! Always true: of two versions of a row, whoever sees the later one's commit also sees the earlier one's.

use crate::points::{CommitId, Order};
use crate::state::store::Store;
use crate::state::{Row, RowId, TableId};
use crate::trace::Window;
use std::collections::BTreeSet;

/// One row with several versions that may have been seen.
#[derive(Debug)]
pub struct OpenRow {
    pub id: RowId,
    /// What is there if none of the open commits is seen.
    pub base: Option<Row>,
    /// Versions that may have been seen, oldest first.
    pub versions: Vec<(CommitId, Option<Row>)>,
}

#[derive(Debug, Default)]
pub struct OpenRows {
    pub rows: Vec<OpenRow>,
    /// Commits that must have been seen, or not, because of what others wrote over them.
    pub given: Vec<(CommitId, bool)>,
}

/// The open rows of a table; `None` if it is not plain which versions they have.
pub fn open_rows(
    store: &Store,
    order: &Order,
    table: TableId,
    window: Window,
    hidden: Option<CommitId>,
) -> Option<OpenRows> {
    let is_seen = |id: CommitId| match order.get(id) {
        _ if hidden == Some(id) => Some(false),
        None => Some(true),
        Some(commit) if commit.hi < window.sent => Some(true),
        Some(commit) if commit.lo > window.done => Some(false),
        Some(_) => None,
    };
    let mut ids: BTreeSet<RowId> = BTreeSet::new();
    for (id, commit) in order.iter() {
        if is_seen(id).is_none() {
            let rows = commit.rows.iter().filter(|(of, _)| *of == table);
            ids.extend(rows.map(|(_, row)| *row));
        }
    }
    let mut open = OpenRows::default();
    let Some(kept) = store.tables.get(&table) else {
        return Some(open);
    };
    for id in ids {
        let Some(chain) = kept.chain(id) else { continue };
        let mut row = OpenRow {
            id,
            base: None,
            versions: Vec::new(),
        };
        let (mut over, mut is_open) = (false, false);
        for version in &chain.versions {
            let learned = version.since > 0 && version.since >= window.sent;
            let doubtful = order.get(version.commit).is_some_and(|c| c.maybe);
            if learned || doubtful || version.vague || version.perhaps || version.rewrite {
                return None;
            }
            let seen = is_seen(version.commit);
            is_open |= seen.is_none();
            match seen {
                Some(true) => {
                    // Whoever wrote before has been seen, too.
                    open.given.extend(row.versions.drain(..).map(|(c, _)| (c, true)));
                    row.base = version.row.clone();
                    over = false;
                }
                Some(false) => over = true,
                None if over => open.given.push((version.commit, false)),
                None => row.versions.push((version.commit, version.row.clone())),
            }
        }
        if is_open {
            open.rows.push(row);
        }
    }
    Some(open)
}
