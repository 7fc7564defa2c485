//! What two writers leave behind, where only somebody in between can tell who came first.
//!
//! In: two writers that leave the same behind in either order, as the worlds without them and with each of them show, or
//! because none of them heeds the other. Out: the rows by which somebody could tell.
//!
//! Always true: if one order is taken, what nobody can see any more is the second writer without the first. Whoever does not
//! notice the first one finds the same when both have written, whoever does not notice the second one when none has. So
//! only those can tell that notice both.

use super::footprint::Footprint;
use super::merge::{newest, same_row};
use super::world::World;
use crate::state::{Row, TableId};
use crate::value::compare::same_cells;

pub struct Between {
    pub first: Vec<Change>,
    pub second: Vec<Change>,
}

/// A row that is another one after a writer.
pub struct Change {
    pub table: TableId,
    before: Option<Row>,
    after: Option<Row>,
    /// Which columns, and whether both writers do nothing else but add to it; `None`: it came or went.
    pub columns: Option<Vec<(usize, bool)>>,
}

impl Change {
    /// What it is that differs in a row, if anything does.
    pub fn of(
        table: TableId,
        before: Option<&Row>,
        after: Option<&Row>,
        is_sum: impl Fn(TableId, usize) -> bool,
    ) -> Option<Change> {
        if same_row(before, after) {
            return None;
        }
        let columns = match (before, after) {
            (Some(x), Some(y)) if x.len() == y.len() => {
                let cells = x.iter().zip(y.iter()).enumerate();
                let differ = cells
                    .filter(|(_, (x, y))| !same_cells(std::slice::from_ref(*x), std::slice::from_ref(*y)));
                Some(
                    differ
                        .map(|(column, _)| (column, is_sum(table, column)))
                        .collect(),
                )
            }
            _ => None,
        };
        Some(Change {
            table,
            before: before.cloned(),
            after: after.cloned(),
            columns,
        })
    }

    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.before.iter().chain(&self.after)
    }
}

impl Between {
    pub fn of(world: &World, first: (&World, &Footprint), second: (&World, &Footprint)) -> Between {
        let is_sum = sums(first.1, second.1);
        Between {
            first: changes(world, first.0, &is_sum),
            second: changes(world, second.0, &is_sum),
        }
    }

    /// Where none of the two heeds the other, so that they do the same in either order.
    pub fn of_heedless(first: &Footprint, second: &Footprint) -> Option<Between> {
        if first.heeds(second) || second.heeds(first) {
            return None;
        }
        let is_sum = sums(first, second);
        Some(Between {
            first: first.changes(&is_sum)?,
            second: second.changes(&is_sum)?,
        })
    }

    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.first.iter().chain(&self.second).map(|change| change.table)
    }
}

/// Whether both do nothing else but add to a column.
fn sums(first: &Footprint, second: &Footprint) -> impl Fn(TableId, usize) -> bool {
    move |table, column| !first.may_overwrite(table, column) && !second.may_overwrite(table, column)
}

fn changes(before: &World, after: &World, is_sum: impl Fn(TableId, usize) -> bool) -> Vec<Change> {
    let rows = after.changed.iter().map(|&(table, id)| {
        let (old, new) = (newest(before, table, id), newest(after, table, id));
        Change::of(table, old, new, &is_sum)
    });
    rows.flatten().collect()
}
