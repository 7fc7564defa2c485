//! What a transaction may read and write, whatever it finds.
//!
//! In: a transaction whose turn is still to come. Out: its [`Extent`], by which it is passed over where it has nothing to do
//! with a question, without running it in every world.
//!
//! Always true: in every world, and after whatever others do, it looks at no other tables, and depends on no other columns.

use super::Explainer;
use super::asked::Asked;
use super::between::{Between, Change};
use super::early::Heard;
use super::place::Task;
use super::spot::Spot;
use super::world::World;
use crate::assemble::Transaction;
use crate::control::Control;
use crate::sql::plan::AllAsks;
use crate::sql::{Kind, Planned, Planner};
use crate::state::{Catalog, TableId};
use crate::trace::Outcome;
use crate::verdict::TxnId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

pub struct Extent {
    asks: AllAsks,
    tables: Vec<TableId>,
    /// It may write rows.
    pub writes: bool,
}

impl Extent {
    fn of(task: &Task, catalog: &Catalog, planner: &Planner) -> Option<Extent> {
        if task.txn.vague || task.txn.torn {
            return None;
        }
        let mut extent = Extent {
            asks: AllAsks::default(),
            tables: Vec::new(),
            writes: false,
        };
        for step in &task.txn.steps {
            match &step.control {
                Control::Data => {}
                Control::Begin { .. } | Control::Commit { .. } => continue,
                _ => return None,
            }
            let asked = Asked::of(planner, catalog, &step.seen, &task.session);
            let planned = &*asked.prepared.planned;
            if !asked.is_run() || !is_plain(planned) || !matches!(step.seen.outcome, Outcome::Answer(_)) {
                return None;
            }
            extent.asks.join(&AllAsks::of(&planned.asks));
            let tables = planned.touches.read.iter().chain(&planned.touches.written);
            extent.tables.extend(tables.map(|table| catalog.storage(*table)));
            extent.writes |= planned.may_write;
        }
        Some(extent)
    }

    /// Whether it may make a difference to it which of two writers came first.
    pub fn may_tell(&self, between: &Between) -> bool {
        self.may_notice(&between.first) && self.may_notice(&between.second)
    }

    fn may_notice(&self, changes: &[Change]) -> bool {
        // What is added to a column may be rounded: then it matters what was there.
        let asks = |change: &Change, column: usize| self.asks.asks_for(change.table, column, false);
        changes.iter().any(|change| {
            let columns = change.columns.as_ref();
            self.tables.contains(&change.table)
                && columns.is_none_or(|columns| columns.iter().any(|(column, _)| asks(change, *column)))
        })
    }
}

/// Whether all that a statement may do is known from its plan.
pub(super) fn is_plain(planned: &Planned) -> bool {
    let touches = &planned.touches;
    let is_about_rows = matches!(
        planned.kind,
        Kind::Select(_) | Kind::Insert(_) | Kind::Update(_) | Kind::Delete(_) | Kind::Call { .. }
    );
    is_about_rows
        && planned.reasons.is_empty()
        && planned.sets.is_empty()
        && touches.unfollowed.is_empty()
        && !touches.writes_everything
        && !touches.reads_everything
        && !touches.changes_session
        && !touches.commits
}

/// What is known of transactions whose turn is still to come, in all worlds.
#[derive(Clone, Default)]
pub struct Foreseen {
    /// The keys that they are about, if they are about nothing else.
    pub spots: FxHashMap<TxnId, Option<Arc<Spot>>>,
    extents: FxHashMap<TxnId, Option<Arc<Extent>>>,
    pub heard: FxHashMap<TxnId, Heard>,
}

impl Foreseen {
    pub fn forget(&mut self, txn: TxnId) {
        self.spots.remove(&txn);
        self.extents.remove(&txn);
        self.heard.remove(&txn);
    }

    pub fn clear(&mut self) {
        self.spots.clear();
        self.extents.clear();
        self.heard.clear();
    }
}

impl Explainer {
    /// What a transaction whose turn is still to come may read and write, if its statements say it.
    pub(super) fn extent(&mut self, world: &World, txn: &Arc<Transaction>) -> Option<Arc<Extent>> {
        if let Some(known) = self.foreseen.extents.get(&txn.id) {
            return known.clone();
        }
        let task = self.task(txn);
        let extent = Extent::of(&task, &world.store.catalog, &self.planner).map(Arc::new);
        self.foreseen.extents.insert(txn.id, extent.clone());
        extent
    }
}
