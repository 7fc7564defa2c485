//! Takes over a catalog that was read again, because the one in use is not the server's.
//!
//! In: a catalog as it was read. Out: an explainer that knows what is there, and nothing of what is in it.
//!
//! Always true: nothing that was learned by the old catalog is left; a session keeps its temporary tables, which
//! nobody else can see.

use super::Explainer;
use super::asked::Asked;
use super::world::World;
use crate::assemble::Transaction;
use crate::control::Control;
use crate::sql::{Kind, Planned};
use crate::state::{Catalog, TableId};
use crate::trace::{CatalogRead, Nanos};
use std::sync::Arc;

impl Explainer {
    /// The catalog in use.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.worlds[0].store.catalog
    }

    /// When the last change of the catalog that was seen had ended.
    pub fn catalog_since(&self) -> Nanos {
        self.worlds[0].store.catalog_since
    }

    /// Until when the catalog may have been changed in a way that nobody followed, since this was last asked.
    pub fn take_unfollowed(&mut self) -> Option<Nanos> {
        self.unfollowed.take()
    }

    /// The plans of what a transaction asks for.
    fn plans_of(&self, txn: &Transaction) -> impl Iterator<Item = Arc<Planned>> {
        let mut session = self.session_of(txn);
        txn.steps.iter().filter_map(move |step| {
            if step.control != Control::Data {
                session.control(&step.control, self.catalog());
                return None;
            }
            let asked = Asked::of(&self.planner, self.catalog(), &step.seen, &session);
            let planned = asked.prepared.planned.clone();
            session.set(&planned, &step.seen.outcome, self.catalog());
            Some(planned)
        })
    }

    /// The tables that a transaction is about; `None` if it may be about more than is known.
    pub fn tables_of(&self, txn: &Transaction) -> Option<Vec<TableId>> {
        let mut tables = Vec::new();
        for planned in self.plans_of(txn) {
            let touches = &planned.touches;
            if touches.reads_everything || touches.writes_everything {
                return None;
            }
            tables.extend(touches.read.iter().chain(&touches.written));
        }
        Some(tables)
    }

    /// Whether a transaction may write rows of one of these tables.
    pub fn may_write(&self, txn: &Transaction, tables: &[TableId]) -> bool {
        let mut plans = self.plans_of(txn);
        plans.any(|planned| {
            let touches = &planned.touches;
            let is_data = !matches!(planned.kind, Kind::Ddl(_));
            is_data
                && (touches.writes_everything || touches.written.iter().any(|table| tables.contains(table)))
        })
    }

    /// The tables that a transaction may have written and committed before it ended; `None`: any, or the catalog.
    pub fn committed_on_its_way(&self, txn: &Transaction) -> Option<Vec<TableId>> {
        let (mut tables, mut changes, mut commits) = (Vec::new(), false, false);
        for planned in self.plans_of(txn) {
            let touches = &planned.touches;
            if touches.writes_everything {
                return None;
            }
            commits |= touches.commits;
            // What was done before is committed with it.
            tables.extend(&touches.written);
            changes |= matches!(planned.kind, Kind::Ddl(_));
        }
        match (commits, changes) {
            (true, true) => None,
            (true, false) => Some(tables),
            (false, _) => Some(Vec::new()),
        }
    }

    /// What a session has set may have been committed or taken back by a routine, however its transaction ended.
    pub fn doubt_settings(&mut self, txn: &Transaction) {
        let (mut sets, mut ends) = (false, false);
        sets |= txn.steps.iter().any(|step| step.control == Control::ResetAll);
        for planned in self.plans_of(txn) {
            sets |= planned.may_set();
            ends |= planned.touches.commits || planned.touches.writes_everything;
        }
        if sets && ends {
            self.blur_sessions(Some(txn.id.session));
        }
    }

    /// Whether a transaction may change the catalog, or in a way that is not followed.
    pub fn may_change_catalog(&self, txn: &Transaction) -> bool {
        let changes =
            |planned: Arc<Planned>| planned.touches.writes_everything || matches!(planned.kind, Kind::Ddl(_));
        self.plans_of(txn).any(changes)
    }

    /// What these tables look like by now, or those with indexes of these names, cannot be told.
    pub(super) fn lose_named(&mut self, names: &[String]) {
        const REASON: &str = "overlapping_ddl";
        for world in &mut self.worlds {
            let is_named = |name: &String| names.contains(&name.to_lowercase());
            let tables = world.store.catalog.tables().into_iter();
            let lost: Vec<TableId> = tables
                .filter(|table| is_named(&table.name) || table.keys.iter().any(|key| is_named(&key.name)))
                .map(|table| table.id)
                .collect();
            let catalog = world.store.catalog.with(|editor| {
                for id in lost {
                    editor.alter(id, |table| table.give_up(REASON));
                }
            });
            world.store.catalog = Arc::new(catalog);
        }
    }

    /// Takes over a catalog; those who waited to be judged by the old one are returned.
    pub fn renew(&mut self, read: &CatalogRead) -> Vec<Arc<Transaction>> {
        let waiting = self.recover(read.at);
        let old = self.worlds[0].store.catalog.clone();
        let catalog = Arc::new(Catalog::from_answers(&read.catalog).with_temporary_of(&old));
        let mut world = World::unread(catalog);
        world.store.lose_everything_to_unseen(read.at);
        self.worlds = vec![world];
        self.server = read.settings.clone();
        for session in self.sessions.values_mut() {
            session.change().portals = Default::default();
        }
        self.refresh();
        waiting
    }
}
