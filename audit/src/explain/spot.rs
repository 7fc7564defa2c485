//! The one key at which a transaction reads and writes, whatever it finds there.
//!
//! In: a transaction of one statement, and where it was seen to read. Out: a [`Spot`], by which it is told apart
//! from others without running it again in every world.
//!
//! Always true: in every world, and after whatever others do, the transaction reads nothing but the rows of its
//! key, and every row that it writes has that key before and after.

use super::footprint::Footprint;
use super::place::Task;
use super::run::Lesson;
use super::world::World;
use super::{Explainer, asked::Asked};
use crate::assemble::Transaction;
use crate::control::Control;
use crate::interpret::Touch;
use crate::sql::{Kind, Planned, Planner};
use crate::state::view::has_key;
use crate::state::{Catalog, Row, TableId};
use crate::trace::Outcome;
use crate::value::Value;
use crate::value::compare::total_order;
use std::sync::Arc;

pub struct Spot {
    table: TableId,
    columns: Arc<[usize]>,
    key: Vec<Value>,
    /// Its answer does not say that it wrote nothing.
    pub writes: bool,
    /// All that it does is to set these columns of the row to these values, whatever was there.
    sets: Option<Vec<(usize, Value)>>,
}

impl Spot {
    fn of(task: &Task, footprint: &Footprint, catalog: &Catalog, planner: &Planner) -> Option<Spot> {
        let txn = &task.txn;
        let mut data = txn.steps.iter().filter(|step| step.control == Control::Data);
        let (Some(step), None) = (data.next(), data.next()) else {
            return None;
        };
        if txn.vague || footprint.beyond_rows || !matches!(step.seen.outcome, Outcome::Answer(_)) {
            return None;
        }
        let asked = Asked::of(planner, catalog, &step.seen, &task.session);
        let planned = &*asked.prepared.planned;
        if !asked.is_run() || !stays(planned, catalog) {
            return None;
        }
        let (table, columns, key) = footprint.only_key()?;
        let is_unique = catalog.table(table).is_some_and(|t| t.is_unique(columns));
        (is_unique && !key.iter().any(Value::has_unknown)).then(|| Spot {
            table,
            columns: columns.clone(),
            key: key.to_vec(),
            writes: planned.may_write && !asked.wrote_nothing(&step.seen.outcome),
            sets: set_blindly(planned, catalog, footprint),
        })
    }

    /// Whether two that are about the same row leave the same behind in either order; `None` if that is not plain
    /// to see.
    pub fn commutes(&self, other: &Spot) -> Option<bool> {
        let (mine, theirs) = (self.sets.as_ref()?, other.sets.as_ref()?);
        if self.table != other.table || self.columns != other.columns || differ(&self.key, &other.key) {
            return None;
        }
        let mut common = mine.iter().filter_map(|(column, value)| {
            let (_, other) = theirs.iter().find(|(set, _)| set == column)?;
            Some((value, other))
        });
        match common.next() {
            None => Some(true),
            first => first
                .into_iter()
                .chain(common)
                .any(|(a, b)| differ(std::slice::from_ref(a), std::slice::from_ref(b)))
                .then_some(false),
        }
    }

    /// Whether it certainly writes nothing that somebody reads or writes.
    pub fn misses(&self, other: &Footprint) -> bool {
        !self.writes || other.is_elsewhere(self.table, |touch| self.is_apart(touch), |row| self.is_none(row))
    }

    /// Whether two are about different rows.
    pub fn is_beside(&self, other: &Spot) -> bool {
        self.table != other.table || (self.columns == other.columns && differ(&self.key, &other.key))
    }

    /// Whether it certainly writes nothing of what an answer taught.
    pub fn leaves(&self, lesson: &Lesson) -> bool {
        !self.writes
            || lesson.table() != self.table
            || match lesson {
                Lesson::Cell { row, .. } | Lesson::Row { row, .. } => self.is_none(row),
                Lesson::Absent { columns, key, .. } => *columns == *self.columns && differ(key, &self.key),
            }
    }

    fn is_apart(&self, touch: &Touch) -> bool {
        match touch {
            Touch::Key { columns, key, .. } => *columns == self.columns && differ(key, &self.key),
            Touch::Scan { .. } => false,
        }
    }

    /// Whether a row is not the one of the key.
    fn is_none(&self, row: &Row) -> bool {
        !has_key(row, &self.columns, &self.key)
    }
}

/// Whether two keys are certainly not the same.
fn differ(a: &[Value], b: &[Value]) -> bool {
    let same_kind = |a: &Value, b: &Value| std::mem::discriminant(a) == std::mem::discriminant(b);
    let mut pairs = a.iter().zip(b);
    pairs.any(|(a, b)| same_kind(a, b) && !a.has_unknown() && !b.has_unknown() && total_order(a, b).is_ne())
}

/// What an UPDATE sets to constants, if that is all it does and nothing can forbid it.
fn set_blindly(planned: &Planned, catalog: &Catalog, footprint: &Footprint) -> Option<Vec<(usize, Value)>> {
    let Kind::Update(update) = &planned.kind else {
        return None;
    };
    let table = catalog.table(update.table)?;
    let plain = planned.sets_constants(catalog)
        && footprint.is_blind
        && table.checks.is_empty()
        && !table.columns.iter().any(|column| column.generated);
    let row = footprint.only_row().filter(|_| plain)?;
    let sets = update.set.iter();
    sets.map(|(column, _)| Some((*column, row.get(*column)?.clone())))
        .collect()
}

/// Whether which rows a statement reads and writes is said by its constants, and nothing follows from it elsewhere.
fn stays(planned: &Planned, catalog: &Catalog) -> bool {
    let touches = &planned.touches;
    let mut tables = touches.read.iter().chain(&touches.written);
    let Some(table) = tables.next().copied().and_then(|table| catalog.table(table)) else {
        return false;
    };
    let plain = !planned.many_relations
        && !planned.volatile
        && planned.reasons.is_empty()
        && !touches.writes_everything
        && !touches.reads_everything
        && tables.all(|other| *other == table.id)
        && table.foreign_keys.is_empty()
        && table.referenced_by.is_empty()
        && table.children.is_empty()
        && table.parents.is_empty();
    plain
        && match &planned.kind {
            Kind::Select(_) => !planned.may_write && planned.looks_up(),
            Kind::Update(_) => touches.astray.is_empty() && touches.moved.is_empty(),
            Kind::Insert(insert) => {
                touches.astray.is_empty() && insert.conflict.is_none() && table.keys.len() == 1
            }
            Kind::Delete(_) => touches.astray.is_empty(),
            _ => false,
        }
}

impl Explainer {
    /// Where a transaction whose turn is still to come reads and writes in every world, if that is one key.
    pub(super) fn spot(&mut self, world: &mut World, txn: &Arc<Transaction>) -> Option<Arc<Spot>> {
        if let Some(known) = self.spots.get(&txn.id) {
            return known.clone();
        }
        let task = self.task(txn);
        let footprint = world.footprint(txn, &task.rules, &task.session, &self.planner);
        let spot = Spot::of(&task, &footprint, &world.store.catalog, &self.planner).map(Arc::new);
        self.spots.insert(txn.id, spot.clone());
        spot
    }
}
