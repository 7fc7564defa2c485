//! FOR UPDATE and FOR SHARE: rows that changed since they were found are looked at again.

use super::Level;
use crate::interpret::run::{Fault, Frame, Outcome, Run, Scope};
use crate::sql::plan::{Access, From, RelationSource, Select};
use crate::state::{Row, RowId, TableId};
use std::sync::Arc;

pub(in crate::interpret) enum Newest {
    Unchanged,
    Changed(Row),
    Gone,
}

impl Run<'_> {
    /// FOR UPDATE and FOR SHARE: a row that changed since is looked at again in its newest version.
    pub(super) fn relock(
        &self,
        level: &Level<'_>,
        frame: &mut Frame,
        mut certain: bool,
    ) -> Outcome<Option<bool>> {
        let mut changed = false;
        for lock in &level.select.locking {
            certain &= !lock.skip_locked;
            let RelationSource::Table(table) = level.select.relations[lock.relation].source else {
                continue;
            };
            let slot = &frame.slots[lock.relation];
            let Some(row) = &slot.row else { continue };
            match self.newest(table, slot.id, row) {
                Newest::Unchanged => {}
                Newest::Gone => return Ok(None),
                Newest::Changed(newest) => {
                    changed = true;
                    match &level.first {
                        // It comes where it was found.
                        Some(first) => certain &= first.is_in_place(row, &newest),
                        None => self.is_unsorted.set(true),
                    }
                    frame.slots[lock.relation].row = Some(newest);
                }
            }
        }
        if !changed {
            return Ok(Some(certain));
        }
        if !level.select.recheckable {
            return Fault::unsure("epq_join");
        }
        let scope = Scope {
            frame,
            outer: level.outer,
        };
        Ok(match self.admits(&level.select.recheck, &scope, false)? {
            Some(still) => Some(certain && still),
            // It was not locked: by the time that other rows were, it may have matched again.
            None if !self.finds_one_row(level.select) => Some(false),
            None => None,
        })
    }

    /// Whether no more than one row can be found.
    fn finds_one_row(&self, select: &Select) -> bool {
        let (Some(From::Scan(scan)), [relation]) = (&select.from, select.relations.as_slice()) else {
            return false;
        };
        match (&scan.access, &relation.source) {
            (Access::Lookup { columns, .. }, RelationSource::Table(table)) => {
                let table = self.views.snapshot.catalog().table(*table);
                table.is_some_and(|table| table.is_unique(columns))
            }
            _ => false,
        }
    }

    pub(in crate::interpret) fn newest(&self, table: TableId, id: RowId, row: &Row) -> Newest {
        if !self.views_differ() {
            return Newest::Unchanged;
        }
        match self.views.latest.row(table, id) {
            None => Newest::Gone,
            Some(newest) if Arc::ptr_eq(&newest, row) => Newest::Unchanged,
            Some(newest) => Newest::Changed(self.widen_row(table, newest)),
        }
    }

    /// Rows older than a column hold its `missing` value.
    pub(super) fn widen_row(&self, table: TableId, row: Row) -> Row {
        match self.views.snapshot.catalog().table(table) {
            Some(table) if row.len() < table.columns.len() => {
                let missing = table.columns[row.len()..]
                    .iter()
                    .map(|column| column.missing.clone());
                row.iter().cloned().chain(missing).collect()
            }
            _ => row,
        }
    }
}
