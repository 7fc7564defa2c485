//! The unique keys that a transaction gives to rows: no committed state has one of them twice, whatever a snapshot shows.
//!
//! In: what a transaction wrote. Out: keys, and whether a state has another row with the same one.
//!
//! Always true: a key is repeated only if both rows are known to have it, and the table is known as a whole.

use super::overlay::Overlay;
use super::store::Store;
use super::view::Knowledge;
use super::{Catalog, Row, TableId, View};
use crate::points::CommitId;
use crate::value::Value;
use crate::value::compare::same_cells;

pub struct Given {
    pub table: TableId,
    pub columns: Vec<usize>,
    pub key: Vec<Value>,
}

/// The keys of rows that were inserted, and of those that got another one.
pub fn given(own: &Overlay, catalog: &Catalog) -> Vec<Given> {
    let mut all = Vec::new();
    for (table, written) in &own.tables {
        let keys = catalog.table(*table).map_or(&[][..], |table| &table.keys);
        for key in keys.iter().filter(|key| key.is_plain() && !key.deferrable) {
            let inserted = written.inserted.values().map(|row| (None, row));
            let certain = written.replaced.values().filter(|replaced| !replaced.perhaps);
            let replaced = certain.filter_map(|r| Some((Some(&r.before), r.row.as_ref()?)));
            for (before, row) in inserted.chain(replaced) {
                let Some(cells) = cells(row, &key.columns) else {
                    continue;
                };
                let kept = before.and_then(|before| self::cells(before, &key.columns));
                if !kept.is_some_and(|kept| same_cells(&kept, &cells)) {
                    all.push(Given {
                        table: *table,
                        columns: key.columns.clone(),
                        key: cells,
                    });
                }
            }
        }
    }
    all
}

/// The cells of a key, if all of them are known and none is NULL.
fn cells(row: &Row, columns: &[usize]) -> Option<Vec<Value>> {
    let cell = |column: &usize| {
        let value = row.get(*column)?;
        (!value.has_unknown() && !matches!(value, Value::Null)).then(|| value.clone())
    };
    let cells: Option<Vec<Value>> = columns.iter().map(cell).collect();
    cells.filter(|cells| !cells.is_empty())
}

impl Given {
    fn is_of(&self, row: &Row) -> bool {
        cells(row, &self.columns).is_some_and(|cells| same_cells(&cells, &self.key))
    }

    /// Whether a state has it twice.
    pub fn is_repeated(&self, view: &dyn View) -> bool {
        let mut rows = 0;
        view.lookup(self.table, &self.columns, &self.key, &mut |_, row| {
            rows += usize::from(self.is_of(row));
        });
        rows > 1 && view.knowledge(self.table) == Knowledge::Complete
    }

    /// Whether somebody else's row has it as well, in the newest version that is kept; `own` has not been applied, or is
    /// `hidden`.
    pub fn is_taken(&self, own: &Overlay, store: &Store, hidden: Option<CommitId>) -> bool {
        let Some(kept) = store.tables.get(&self.table) else {
            return false;
        };
        let is_own = |id| own.table(self.table).is_some_and(|o| o.replaced.contains_key(id));
        let ids = kept.candidates(&self.columns, &self.key);
        let mut chains = ids
            .iter()
            .filter(|id| !is_own(id))
            .filter_map(|id| kept.chain(*id));
        chains.any(|chain| {
            let mut others = chain.versions.iter().rev().filter(|v| Some(v.commit) != hidden);
            others
                .next()
                .and_then(|v| v.row.as_ref())
                .is_some_and(|row| self.is_of(row))
        })
    }
}
