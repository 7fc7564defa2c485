//! The state as one statement may see it: a snapshot with the transaction's own writes on top.
//!
//! The interpreter reads through this trait and knows nothing of time, order or versions; the same
//! statement is run on different views to learn what each possible order would have answered.

use super::{Catalog, TableId};
use crate::value::{Key, Value};
use std::sync::Arc;

/// The identity of a row across its versions, unique within its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

/// One version of a row: a value per column, in attribute order.
pub type Row = Arc<[Value]>;

/// How much of a table is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Every row is known (single cells may still be unknown).
    Complete,
    /// Rows that were never seen may exist.
    Partial,
}

pub trait View {
    fn catalog(&self) -> &Catalog;

    fn knowledge(&self, table: TableId) -> Knowledge;

    /// Every known visible row, in an order that is the same on every run.
    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row));

    /// Every known visible row whose `columns` equal `key` (which holds neither NULL nor unknown), and
    /// every row in which one of these columns is unknown. `columns` need not be a declared key; the view
    /// builds what it needs. Returns whether the absence of further rows is certain (always so for
    /// complete tables; for partial ones only where that key was looked up before).
    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool;

    fn row(&self, table: TableId, id: RowId) -> Option<Row>;

    /// The transaction's `now()`, where it is known.
    fn now(&self) -> Value {
        Value::Unknown
    }
}

/// Whether a row has `key` in `columns`, as far as is known: an unknown cell may have any value.
pub fn has_key(row: &Row, columns: &[usize], key: &[Value]) -> bool {
    columns
        .iter()
        .zip(key)
        .all(|(&column, wanted)| match row.get(column) {
            None | Some(Value::Unknown) => true,
            Some(cell) => Key(cell.clone()) == Key(wanted.clone()),
        })
}
