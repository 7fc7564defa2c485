//! A table without some of its rows, and a row without the rest of its table.
//!
//! Where an answer is made of what each row gives to it, it can be computed in parts: once on everything whose version
//! is certain, and once on each version that is not.

use crate::state::index::Range;
use crate::state::view::{Focus, Knowledge, Reached, has_key};
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::value::Value;
use std::collections::BTreeSet;

/// What `inner` shows, but for these rows of one table.
pub struct Without<'a> {
    pub inner: &'a dyn View,
    pub table: TableId,
    pub rows: &'a BTreeSet<RowId>,
}

impl Without<'_> {
    fn hides(&self, table: TableId, id: RowId) -> bool {
        table == self.table && self.rows.contains(&id)
    }
}

impl View for Without<'_> {
    fn catalog(&self) -> &Catalog {
        self.inner.catalog()
    }

    fn focus(&self, focus: Focus) -> Focus {
        self.inner.focus(focus)
    }

    fn has_written(&self, table: TableId) -> bool {
        self.inner.has_written(table)
    }

    fn knowledge(&self, table: TableId) -> Knowledge {
        self.inner.knowledge(table)
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        self.inner.scan(table, &mut |id, row| {
            if !self.hides(table, id) {
                each(id, row);
            }
        });
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        self.inner.lookup(table, columns, key, &mut |id, row| {
            if !self.hides(table, id) {
                each(id, row);
            }
        })
    }

    fn range(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        range: &Range,
        each: &mut dyn FnMut(RowId, &Row),
    ) -> Reached {
        self.inner.range(table, columns, key, range, &mut |id, row| {
            if !self.hides(table, id) {
                each(id, row);
            }
        })
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        (!self.hides(table, id)).then(|| self.inner.row(table, id))?
    }

    fn now(&self) -> Value {
        self.inner.now()
    }
}

/// Nothing but one version of one row.
pub struct Alone<'a> {
    pub catalog: &'a Catalog,
    pub table: TableId,
    pub id: RowId,
    pub row: Option<&'a Row>,
}

impl View for Alone<'_> {
    fn catalog(&self) -> &Catalog {
        self.catalog
    }

    fn knowledge(&self, _table: TableId) -> Knowledge {
        Knowledge::Complete
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        if let Some(row) = self.row.filter(|_| table == self.table) {
            each(self.id, row);
        }
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        if let Some(row) = self
            .row
            .filter(|row| table == self.table && has_key(row, columns, key))
        {
            each(self.id, row);
        }
        true
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        self.row.filter(|_| table == self.table && id == self.id).cloned()
    }
}
