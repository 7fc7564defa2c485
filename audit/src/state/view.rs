//! The state as one statement may see it: a snapshot with the transaction's own writes on top.
//!
//! The interpreter reads through this trait and knows nothing of time, order or versions; the same
//! statement is run on different views to learn what each possible order would have answered.

use super::index::Range;
use super::{Catalog, TableId};
use crate::value::Value;
use crate::value::compare::total_order;
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

/// How far a read in order has come.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The absence of further rows in the range is certain.
    pub certain: bool,
    /// There may be more rows behind this value.
    pub last: Option<Value>,
}

/// The columns of tables that a statement looks at; a table that is not listed matters as a whole.
pub type Columns = Arc<[(TableId, Vec<usize>)]>;

/// At which instant, and for the sake of what, a view is looked through.
#[derive(Clone, Debug, Default)]
pub struct Focus {
    /// Which of the instants of its statement; statements inside of a routine have their own. 0: that of the
    /// statement itself.
    pub nth: u32,
    /// The row that is found in this table by these columns is written or locked, whatever is in it.
    pub claims: Option<(TableId, Vec<usize>)>,
    /// `None`: everything matters.
    pub columns: Option<Columns>,
}

pub trait View {
    fn catalog(&self) -> &Catalog;

    /// From now on the view is looked through like this; returns how it was before.
    fn focus(&self, _focus: Focus) -> Focus {
        Focus::default()
    }

    /// A row that was there was written or deleted, at the instant in focus.
    fn claimed(&self, _table: TableId, _id: RowId) {}

    /// A row with this key was there at the instant in focus.
    fn showed(&self, _table: TableId, _columns: &[usize], _key: &[Value]) {}

    /// Whether anything that was found so far depends on the order of commits.
    fn has_asked(&self) -> bool {
        false
    }

    /// A routine has come to this state; whether it has been there before, with nothing else to follow.
    fn has_come_to(&self, _state: u64) -> bool {
        false
    }

    /// Whether the transaction itself has written rows of this table that are among those found.
    fn has_written(&self, _table: TableId) -> bool {
        false
    }

    /// Whether it is certain that nobody else writes this table while the statement runs.
    fn is_still(&self, _table: TableId) -> bool {
        false
    }

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

    /// A part of the rows that [`View::lookup`] finds (of all rows, if `columns` is empty), in the order of one
    /// column as far as this view can tell; rows outside of the range may come as well. Where only the first rows
    /// are asked for, the value to go on behind is returned with them.
    fn range(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        _range: &Range,
        each: &mut dyn FnMut(RowId, &Row),
    ) -> Reached {
        let certain = if columns.is_empty() {
            self.scan(table, each);
            self.knowledge(table) == Knowledge::Complete
        } else {
            self.lookup(table, columns, key, each)
        };
        Reached { certain, last: None }
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row>;

    /// Whether a statement finds the same rows with this key at any instant of its own.
    fn is_fixed(&self, _table: TableId, _columns: &[usize], _key: &[Value]) -> bool {
        true
    }

    /// The value that a sequence gives next, where it is certain that nobody else draws from it.
    fn sequence(&self, _sequence: TableId) -> Option<i64> {
        None
    }

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
            Some(cell) => total_order(cell, wanted).is_eq(),
        })
}
