//! What it depends on, column by column, what a statement answers and leaves behind.
//!
//! Always true: in two states in which the rows that it finds are there alike, and agree in the columns that are asked for, a
//! statement gives the same answer and does the same to every column but those that it adds to; to these it adds the
//! same.

use crate::state::TableId;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Columns on whose values its answer, or what it does to other columns, depends.
    pub read: BTreeSet<usize>,
    /// Columns that it sets.
    pub set: BTreeSet<usize>,
    /// Those of them to which it only adds something.
    pub added: BTreeSet<usize>,
    /// It locks the rows, so that it waits for whoever writes them, whatever he writes.
    pub locks: bool,
}

impl Asked {
    fn join(&mut self, other: &Asked) {
        let overwritten = &(&self.set - &self.added) | &(&other.set - &other.added);
        self.added = &(&self.added | &other.added) - &overwritten;
        self.read.extend(&other.read);
        self.set.extend(&other.set);
        self.locks |= other.locks;
    }

    /// Whether it matters what is in a column; with `is_sum` not, if it only adds to it.
    fn asks_for(&self, column: usize, is_sum: bool) -> bool {
        self.read.contains(&column)
            || (self.set.contains(&column) && !(is_sum && self.added.contains(&column)))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// `None`: every column counts, and so does the row itself.
    pub tables: Vec<(TableId, Option<Asked>)>,
    /// There may be other tables, of which every column counts.
    pub others: bool,
}

impl Asks {
    pub fn everything() -> Asks {
        Asks {
            tables: Vec::new(),
            others: true,
        }
    }

    /// Every column of one table.
    pub fn whole(table: TableId) -> Asks {
        Asks {
            tables: vec![(table, None)],
            others: false,
        }
    }

    /// What both depend on.
    pub fn join(&mut self, other: &Asks) {
        for (table, theirs) in &other.tables {
            match (self.tables.iter_mut().find(|(known, _)| known == table), theirs) {
                (Some((_, Some(own))), Some(theirs)) => own.join(theirs),
                (Some((_, own)), _) => *own = None,
                (None, theirs) => self.tables.push((*table, theirs.clone())),
            }
        }
        self.others |= other.others;
    }

    fn of(&self, table: TableId) -> Of<'_> {
        match self.tables.iter().find(|(known, _)| *known == table) {
            Some((_, Some(asked))) => Of::Columns(asked),
            Some((_, None)) => Of::Everything,
            None if self.others => Of::Everything,
            None => Of::Nothing,
        }
    }
}

enum Of<'a> {
    Nothing,
    Everything,
    Columns(&'a Asked),
}

/// Those of all statements of a transaction.
#[derive(Clone, Debug, Default)]
pub struct AllAsks(SmallVec<[Arc<Asks>; 2]>);

impl AllAsks {
    pub fn of(asks: &Arc<Asks>) -> AllAsks {
        AllAsks(smallvec![asks.clone()])
    }

    pub fn join(&mut self, other: &AllAsks) {
        for asks in &other.0 {
            if !self.0.iter().any(|known| Arc::ptr_eq(known, asks)) {
                self.0.push(asks.clone());
            }
        }
    }

    /// Whether it makes a difference to a transaction that meets rows of a table what is in a column; with `is_sum` not, if
    /// it only adds to it.
    pub fn asks_for(&self, table: TableId, column: usize, is_sum: bool) -> bool {
        self.in_table(table, |asked| asked.asks_for(column, is_sum))
    }

    /// Whether it may do something else to a column than adding to it.
    pub fn may_overwrite(&self, table: TableId, column: usize) -> bool {
        self.in_table(table, |asked| {
            asked.set.contains(&column) && !asked.added.contains(&column)
        })
    }

    /// Whether it may set a column that matters to another one, or something in a row that it locks; with `but_sums` only the
    /// first, and not if both only add to it.
    pub fn may_set_for(&self, table: TableId, other: &AllAsks, but_sums: bool) -> bool {
        if !but_sums && other.in_table(table, |asked| asked.locks) {
            return self.in_table(table, |own| !own.set.is_empty());
        }
        self.in_table(table, |own| {
            own.set.iter().any(|column| {
                let is_sum = but_sums && !self.may_overwrite(table, *column);
                other.asks_for(table, *column, is_sum)
            })
        })
    }

    /// Whether something is true of the columns of a table; it is, where nothing is known of them.
    fn in_table(&self, table: TableId, mut is_true: impl FnMut(&Asked) -> bool) -> bool {
        let mut is_known = false;
        for asks in &self.0 {
            match asks.of(table) {
                Of::Nothing => continue,
                Of::Everything => return true,
                Of::Columns(asked) if is_true(asked) => return true,
                Of::Columns(_) => is_known = true,
            }
        }
        !is_known
    }
}
