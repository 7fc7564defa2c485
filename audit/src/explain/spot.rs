//! The keys at which a transaction reads and writes, whatever it finds there.
//!
//! In: a transaction whose statements name their keys, and where it was seen to read. Out: a [`Spot`], by which it is
//! told apart from others without running it again in every world.
//!
//! Always true: in every world, and after whatever others do, the transaction reads nothing but the rows of its
//! keys, and every row that it writes has one of them before and after.

use super::Explainer;
use super::asked::Asked;
use super::footprint::Footprint;
use super::place::Task;
use super::run::Lesson;
use super::world::World;
use crate::assemble::Transaction;
use crate::control::Control;
use crate::interpret::Touch;
use crate::sql::plan::ConflictAction;
use crate::sql::{Kind, Planned, Planner};
use crate::state::view::has_key;
use crate::state::{Catalog, Row, TableId};
use crate::trace::Outcome;
use crate::value::Value;
use crate::value::compare::{same_cells, total_order};
use smallvec::SmallVec;
use std::sync::Arc;

pub struct Spot {
    /// In the order of the statements.
    places: SmallVec<[Place; 1]>,
}

/// The one key that a statement is about.
struct Place {
    table: TableId,
    columns: Arc<[usize]>,
    key: Vec<Value>,
    /// Its answer does not say that it wrote nothing.
    writes: bool,
    /// Columns that it sets to the values that they have at the end, whatever was there before.
    sets: Vec<(usize, Value)>,
    /// Nothing else is done, nobody is told what was there, and nothing can forbid it.
    blindly: bool,
}

impl Spot {
    pub fn of(task: &Task, footprint: &Footprint, catalog: &Catalog, planner: &Planner) -> Option<Spot> {
        if task.txn.vague || footprint.beyond_rows {
            return None;
        }
        let mut places = SmallVec::new();
        for (at, step) in task.txn.steps.iter().enumerate() {
            match &step.control {
                Control::Data => {}
                Control::Begin { .. } | Control::Commit { .. } => continue,
                _ => return None,
            }
            let Outcome::Answer(_) = &step.seen.outcome else {
                return None;
            };
            let asked = Asked::of(planner, catalog, &step.seen, &task.session);
            if !asked.is_run() {
                return None;
            }
            let planned = &*asked.prepared.planned;
            let mut place = Place::of(at, planned, footprint, catalog)?;
            place.writes &= !asked.wrote_nothing(&step.seen.outcome);
            places.push(place);
        }
        Some(Spot { places })
    }

    /// Whether it certainly writes nothing that somebody reads or writes.
    pub fn misses(&self, other: &Footprint) -> bool {
        self.places.iter().all(|place| {
            let (apart, none) = (
                |touch: &Touch| place.is_apart(touch),
                |row: &Row| place.is_none(row),
            );
            !place.writes || other.is_elsewhere(place.table, apart, none)
        })
    }

    /// Whether it may be about a row.
    pub fn may_be_at(&self, table: TableId, row: &Row) -> bool {
        let mut places = self.places.iter().filter(|place| place.table == table);
        places.any(|place| !place.is_none(row))
    }

    /// Whether both are about one row, and the same.
    pub fn is_at(&self, other: &Spot) -> bool {
        matches!((&*self.places, &*other.places), ([mine], [theirs]) if mine.is_certainly_at(theirs))
    }

    /// Whether two are about different rows.
    pub fn is_beside(&self, other: &Spot) -> bool {
        let beside = |place: &Place| other.places.iter().all(|other| place.is_beside(other));
        self.places.iter().all(beside)
    }

    /// Whether it certainly writes nothing of what an answer taught.
    pub fn leaves(&self, lesson: &Lesson) -> bool {
        self.places.iter().all(|place| place.leaves(lesson))
    }

    /// Whether two leave the same behind in either order; `None` if that is not plain to see.
    pub fn commutes(&self, other: &Spot) -> Option<bool> {
        if let ([mine], [theirs]) = (&*self.places, &*other.places)
            && mine.is_at(theirs)
            && mine.blindly
            && theirs.blindly
            && !mine
                .sets
                .iter()
                .any(|(c, _)| theirs.sets.iter().any(|(set, _)| set == c))
        {
            return Some(true);
        }
        let differ_at_end = |mine: &Place, theirs: &Place| {
            mine.is_at(theirs)
                && mine.sets.iter().any(|(column, value)| {
                    let set = theirs.sets.iter().find(|(set, _)| set == column);
                    set.is_some_and(|(_, other)| {
                        differ(std::slice::from_ref(value), std::slice::from_ref(other))
                    })
                })
        };
        let mut mine = self.places.iter().filter(|place| place.writes);
        let found = mine.any(|mine| {
            let mut theirs = other.places.iter().filter(|place| place.writes);
            theirs.any(|theirs| differ_at_end(mine, theirs))
        });
        found.then_some(false)
    }
}

impl Place {
    fn of(step: usize, planned: &Planned, footprint: &Footprint, catalog: &Catalog) -> Option<Place> {
        if !stays(planned, catalog) {
            return None;
        }
        let (table, columns, key) = footprint.only_key(step)?;
        let kept = catalog.table(table).filter(|t| t.is_unique(columns))?;
        if key.iter().any(Value::has_unknown) {
            return None;
        }
        let end = footprint.row_of(table, columns, key);
        let set: &[_] = match &planned.kind {
            Kind::Update(update) => &update.set,
            Kind::Insert(insert) => match insert.conflict.as_ref().map(|c| &c.action) {
                Some(ConflictAction::Update { set, .. }) => set,
                _ => &[],
            },
            _ => &[],
        };
        let given = set.iter().filter(|(_, expr)| planned.is_given(expr));
        let value = |column: usize| Some((column, end?.get(column)?.clone()));
        let sets: Vec<(usize, Value)> = given.filter_map(|(column, _)| value(*column)).collect();
        Some(Place {
            table,
            columns: columns.clone(),
            key: key.to_vec(),
            writes: planned.may_write,
            blindly: planned.sets_constants(catalog)
                && sets.len() == set.len()
                && footprint.is_blind
                && kept.checks.is_empty()
                && !kept.columns.iter().any(|column| column.generated),
            sets,
        })
    }

    fn is_at(&self, other: &Place) -> bool {
        self.table == other.table && self.columns == other.columns && !differ(&self.key, &other.key)
    }

    fn is_certainly_at(&self, other: &Place) -> bool {
        self.table == other.table && self.columns == other.columns && same_cells(&self.key, &other.key)
    }

    fn is_beside(&self, other: &Place) -> bool {
        self.table != other.table || (self.columns == other.columns && differ(&self.key, &other.key))
    }

    fn leaves(&self, lesson: &Lesson) -> bool {
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
                let [key] = table.keys.as_slice() else {
                    return false;
                };
                let keeps_key = match insert.conflict.as_ref().map(|conflict| &conflict.action) {
                    None | Some(ConflictAction::Nothing) => true,
                    Some(ConflictAction::Update { set, .. }) => {
                        set.iter().all(|(column, _)| !key.columns.contains(column))
                    }
                    Some(ConflictAction::Unmodelled(_)) => false,
                };
                touches.astray.is_empty() && keeps_key
            }
            Kind::Delete(_) => touches.astray.is_empty(),
            _ => false,
        }
}

impl Explainer {
    /// Where a transaction whose turn is still to come reads and writes in every world, if its statements say it.
    pub(super) fn spot(&mut self, world: &mut World, txn: &Arc<Transaction>) -> Option<Arc<Spot>> {
        if let Some(known) = self.foreseen.spots.get(&txn.id) {
            return known.clone();
        }
        let task = self.task(txn);
        let footprint = world.footprint(txn, &task.rules, &task.session, &self.planner);
        self.spot_of(world, &task, &footprint)
    }

    /// The same for one that was run already.
    pub(super) fn spot_of(&mut self, world: &World, task: &Task, ran: &Footprint) -> Option<Arc<Spot>> {
        if let Some(known) = self.foreseen.spots.get(&task.txn.id) {
            return known.clone();
        }
        let spot = Spot::of(task, ran, &world.store.catalog, &self.planner).map(Arc::new);
        self.foreseen.spots.insert(task.txn.id, spot.clone());
        spot
    }
}
