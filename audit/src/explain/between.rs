//! What two writers leave behind, where only somebody in between can tell who came first.
//!
//! In: a world without them, and one with each of two writers that leave the same behind in either order. Out: the rows
//! by which somebody could tell.
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
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.before.iter().chain(&self.after)
    }
}

impl Between {
    pub fn of(world: &World, first: (&World, &Footprint), second: (&World, &Footprint)) -> Between {
        let is_sum = |table: TableId, column: usize| {
            !first.1.may_overwrite(table, column) && !second.1.may_overwrite(table, column)
        };
        Between {
            first: changes(world, first.0, is_sum),
            second: changes(world, second.0, is_sum),
        }
    }

    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.first.iter().chain(&self.second).map(|change| change.table)
    }
}

fn changes(before: &World, after: &World, is_sum: impl Fn(TableId, usize) -> bool) -> Vec<Change> {
    let mut all = Vec::new();
    for &(table, id) in &after.changed {
        let (old, new) = (newest(before, table, id), newest(after, table, id));
        if same_row(old, new) {
            continue;
        }
        let columns = match (old, new) {
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
        all.push(Change {
            table,
            before: old.cloned(),
            after: new.cloned(),
            columns,
        });
    }
    all
}
