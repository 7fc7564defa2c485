//! Keeps the number of worlds small.
//!
//! In: worlds. Out: fewer of them, which still cover all.
//!
//! Worlds that agree in everything are one. Too many worlds that agree on the rows as they are now forget how it
//! came to that; if there are still too many, what they do not agree on becomes unknown.

use super::world::World;
use crate::state::store::{Chain, Table, Version};
use crate::state::{Row, RowId, TableId};
use crate::trace::Nanos;
use crate::value::Value;
use crate::value::compare::{identical, same_cells};
use crate::verdict::TxnId;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn chain(world: &World, table: TableId, id: RowId) -> Option<&Chain> {
    world.store.tables.get(&table).and_then(|t| t.chain(id))
}

pub(super) fn newest(world: &World, table: TableId, id: RowId) -> Option<&Row> {
    chain(world, table, id)?.versions.last()?.row.as_ref()
}

pub(super) fn same_row(a: Option<&Row>, b: Option<&Row>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || same_cells(a, b),
        _ => false,
    }
}

/// Who made a version, if that is not forgotten.
fn writer(world: &World, version: &Version) -> Option<TxnId> {
    world.order.get(version.commit).map(|commit| commit.txn.id)
}

/// The versions of a row in all worlds, if it is there in all of them.
fn versions<'a>(worlds: &[&'a World], table: TableId, id: RowId) -> Option<Vec<(&'a World, &'a [Version])>> {
    let of = |world: &&'a World| Some((*world, &chain(world, table, id)?.versions[..]));
    worlds.iter().map(of).collect()
}

/// Whether a row has the same versions, made by the same transactions, in both.
pub(super) fn same_chain(a: &World, b: &World, table: TableId, id: RowId) -> bool {
    fn versions(world: &World, table: TableId, id: RowId) -> &[Version] {
        chain(world, table, id).map_or(&[], |c| &c.versions)
    }
    let (mine, theirs) = (versions(a, table, id), versions(b, table, id));
    mine.len() == theirs.len()
        && mine
            .iter()
            .zip(theirs)
            .all(|(x, y)| writer(a, x) == writer(b, y) && same_row(x.row.as_ref(), y.row.as_ref()))
}

/// The same, of a row that need not have been written since there is more than one world.
pub(super) fn is_agreed(a: &World, b: &World, (table, id): (TableId, RowId)) -> bool {
    let is_touched = a.changed.contains(&(table, id)) || b.changed.contains(&(table, id));
    !is_touched || same_chain(a, b, table, id)
}

/// Those who wrote the rows in which two worlds differ, as far as the first one remembers them.
pub(super) fn writers_apart(world: &World, other: &World) -> Vec<TxnId> {
    let chains = differing(world, other).filter_map(|(table, id)| chain(world, table, id));
    let versions = chains.flat_map(|chain| &chain.versions);
    versions.filter_map(|version| writer(world, version)).collect()
}

fn touched<'a>(a: &'a World, b: &'a World) -> impl Iterator<Item = (TableId, RowId)> + 'a {
    a.changed.union(&b.changed).copied()
}

/// The rows that do not have the same versions in both.
fn differing<'a>(a: &'a World, b: &'a World) -> impl Iterator<Item = (TableId, RowId)> + 'a {
    touched(a, b).filter(|(table, id)| !same_chain(a, b, *table, *id))
}

fn names(world: &World) -> BTreeSet<TxnId> {
    world.ahead.iter().map(|e| e.txn.id).collect()
}

/// Whether both expect the same of what is still to come.
fn same_duties(a: &World, b: &World) -> bool {
    a.waiting == b.waiting
        && a.blended == b.blended
        && a.ahead.len() == b.ahead.len()
        && a.ahead.iter().all(|e| b.is_ahead(e.txn.id))
        && same_tables(a, b)
}

/// Whether as much is known of the tables.
fn same_tables(a: &World, b: &World) -> bool {
    let (mine, theirs) = (&a.store.tables, &b.store.tables);
    let same = |(id, table): (&TableId, &Table)| {
        let other = theirs.get(id);
        other.is_some_and(|other| other.scanned() == table.scanned() && other.knowledge == table.knowledge)
    };
    mine.len() == theirs.len() && mine.iter().all(same)
}

/// Whether both have the same rows now, and whoever comes from now on knows as much of the others.
pub fn same_after(a: &World, b: &World) -> bool {
    let (mine, theirs) = (&a.store.tables, &b.store.tables);
    let as_known = |(id, table): (&TableId, &Table)| theirs.get(id).is_some_and(|t| t.is_as_known(table));
    mine.len() == theirs.len() && mine.iter().all(as_known) && same_rows(a, b)
}

/// Whether both have the same rows now.
fn same_rows(a: &World, b: &World) -> bool {
    touched(a, b).all(|(table, id)| same_row(newest(a, table, id), newest(b, table, id)))
}

fn is_twin(a: &World, b: &World) -> bool {
    same_duties(a, b) && touched(a, b).all(|(table, id)| same_chain(a, b, table, id))
}

/// Drops all but one of several worlds that are the same.
pub fn drop_twins<T>(all: &mut Vec<T>, world: impl Fn(&T) -> &World)
where
    T: HasWorld,
{
    let mut at = 0;
    while at < all.len() {
        let mut other = at + 1;
        while other < all.len() {
            if is_twin(world(&all[at]), world(&all[other])) {
                let differ = !world(&all[at]).order.same_facts(&world(&all[other]).order);
                let mut gone = all.remove(other);
                all[at].world_mut().inherit(gone.world_mut());
                if differ {
                    all[at].world_mut().order.forget_facts();
                }
            } else {
                other += 1;
            }
        }
        at += 1;
    }
}

/// Whatever has a world in it.
pub trait HasWorld {
    fn world_mut(&mut self) -> &mut World;
}

impl HasWorld for World {
    fn world_mut(&mut self) -> &mut World {
        self
    }
}

impl<T> HasWorld for (World, T) {
    fn world_mut(&mut self) -> &mut World {
        &mut self.0
    }
}

/// Makes the worlds few enough: of not so many the past is forgotten where it no longer matters, of more than
/// `worlds_max` most become one. `until`: when the last of the transactions that they differ in had ended.
pub fn reduce(worlds: &mut Vec<World>, worlds_max: usize, until: Nanos) {
    if worlds.len() > 1 {
        drop_twins(worlds, |w| w);
    }
    // Three writers have six orders.
    if worlds.len() > worlds_max * 3 / 4 {
        blur(worlds, until);
    }
    if worlds.len() > worlds_max {
        thin(worlds, worlds_max / 2, until);
    }
}

/// Worlds become one, two by two and those first that differ least, until there are no more than `most`: what is
/// independent of each other is not forgotten together.
pub fn thin(worlds: &mut Vec<World>, most: usize, until: Nanos) {
    let mut apart: Vec<Vec<usize>> = Vec::new();
    for (at, world) in worlds.iter().enumerate() {
        apart.push(worlds[..at].iter().map(|other| distance(world, other)).collect());
    }
    while worlds.len() > most.max(1) {
        let pairs = apart.iter().enumerate().flat_map(|(b, row)| {
            let pair = move |(a, distance): (usize, &usize)| (*distance, a, b);
            row.iter().enumerate().map(pair)
        });
        let Some((_, a, b)) = pairs.min() else { return };
        let (other, one) = (worlds.remove(b), worlds.remove(a));
        let mut waiting = one.waiting.clone();
        waiting.extend(other.waiting.iter().filter(|id| !one.waiting.contains(id)));
        let mut pair = vec![one, other];
        collapse(&mut pair, until);
        // It can still be asked whether it explains them.
        pair[0].waiting = waiting;
        worlds.insert(a, pair.remove(0));
        apart.remove(b);
        apart.iter_mut().filter(|row| row.len() > b).for_each(|row| {
            row.remove(b);
        });
        for other in 0..worlds.len() {
            let (low, high) = (other.min(a), other.max(a));
            if low < high {
                apart[high][low] = distance(&worlds[high], &worlds[low]);
            }
        }
    }
}

/// How much becomes unknown when two worlds become one.
fn distance(a: &World, b: &World) -> usize {
    let forgotten: usize = differing(a, b)
        .map(
            |(table, id)| match same_row(newest(a, table, id), newest(b, table, id)) {
                true => 1,
                false => 4,
            },
        )
        .sum();
    forgotten + 16 * names(a).symmetric_difference(&names(b)).count()
}

/// Rows that are the same in all worlds by now need not be compared again.
pub fn forget_agreed(worlds: &mut [World]) {
    let [first, others @ ..] = &*worlds else {
        return;
    };
    let mut rows: BTreeSet<(TableId, RowId)> = first.changed.clone();
    others.iter().for_each(|other| rows.extend(&other.changed));
    rows.retain(|(table, id)| {
        let agrees = |other: &World| same_chain(first, other, *table, *id);
        !others.iter().all(agrees)
    });
    worlds
        .iter_mut()
        .for_each(|world| world.changed.retain(|row| rows.contains(row)));
}

/// Worlds that have the same rows become one that does not know how they came to be.
fn blur(worlds: &mut Vec<World>, until: Nanos) {
    let mut at = 0;
    while at < worlds.len() {
        let mut other = at + 1;
        while other < worlds.len() {
            if same_duties(&worlds[at], &worlds[other]) && same_rows(&worlds[at], &worlds[other]) {
                let gone = worlds.remove(other);
                let kept = &mut worlds[at];
                let rows: Vec<(TableId, RowId)> = differing(kept, &gone).collect();
                for (table, id) in rows {
                    let past = Past::of(&[kept, &gone], table, id);
                    forget_past(kept, table, id, until, past);
                }
                kept.inherit(&gone);
                kept.order.forget_facts();
                kept.uncertified.clear();
                kept.footprints.clear();
            } else {
                other += 1;
            }
        }
        at += 1;
    }
}

/// Worlds that have the same rows, and expect the same, become one if they differ in nothing but what rows were like before
/// their last versions. `asks` says who is known to be answered rightly in both who asks for a row as it was before an instant;
/// `None` if somebody is not.
pub fn forget_unasked(
    worlds: &mut Vec<World>,
    asks: impl Fn([Named<'_>; 2], TableId, &Row, Nanos) -> Option<Answered>,
) {
    // What has become of two is another one.
    let (mut called, mut next): (Vec<usize>, usize) = ((0..worlds.len()).collect(), worlds.len());
    let mut at = 0;
    while at < worlds.len() {
        let mut other = at + 1;
        while other < worlds.len() {
            let pair = [(&worlds[at], called[at]), (&worlds[other], called[other])];
            let is_certified = pair.iter().all(|(world, _)| world.uncertified.is_empty());
            let pasts = match is_certified && same_duties(pair[0].0, pair[1].0) {
                true => unasked(pair, &asks),
                false => None,
            };
            let Some((pasts, answered)) = pasts else {
                other += 1;
                continue;
            };
            let gone = worlds.remove(other);
            called.remove(other);
            called[at] = next;
            next += 1;
            let kept = &mut worlds[at];
            pasts.into_iter().for_each(|past| past.forget(kept));
            kept.answered.retain(|step| gone.answered.contains(step));
            kept.answered.extend(answered);
            kept.inherit(&gone);
            if !kept.order.same_facts(&gone.order) {
                kept.order.forget_facts();
            }
        }
        at += 1;
    }
}

/// A world, and how it is called among others.
pub type Named<'a> = (&'a World, usize);

/// What a row was like before its last versions, which are the same in all worlds.
struct Before {
    table: TableId,
    id: RowId,
    /// How many versions are the same.
    last: usize,
    /// What those before have in common.
    row: Row,
    /// From then on everybody has seen one of the last versions.
    until: Nanos,
}

impl Before {
    /// `None` if the newest version is not the same, or the row was not always there.
    fn of(worlds: &[&World], table: TableId, id: RowId) -> Option<Before> {
        let chains = versions(worlds, table, id)?;
        let &(first, mine) = chains.first()?;
        let state = |v: &Version| (v.rewrite, v.since, v.vague, v.perhaps);
        let last = chains.iter().map(|(world, theirs)| {
            let pairs = mine.iter().rev().zip(theirs.iter().rev());
            let same = |(x, y): &(&Version, &Version)| {
                writer(first, x) == writer(world, y)
                    && same_row(x.row.as_ref(), y.row.as_ref())
                    && state(x) == state(y)
            };
            pairs.take_while(same).count()
        });
        let last = last.min().filter(|last| *last > 0)?;
        let below = chains
            .iter()
            .map(|(world, versions)| (*world, &versions[..versions.len() - last]));
        let oldest = |(world, versions): &(&World, &[Version])| {
            let commit = versions[versions.len() - last].commit;
            world.order.get(commit).map_or(0, |commit| commit.hi)
        };
        Some(Before {
            table,
            id,
            last,
            row: common(below, table)?,
            until: chains.iter().map(oldest).max()?,
        })
    }

    fn forget(self, world: &mut World) {
        let table = world.store.table_mut(self.table);
        table.blur_below(self.id, self.last, self.row);
        table.unsettle_row(self.id, self.until);
    }
}

/// The rows in whose past two worlds differ, if they differ in nothing else and nobody asks for it.
fn unasked(
    pair: [Named<'_>; 2],
    asks: &impl Fn([Named<'_>; 2], TableId, &Row, Nanos) -> Option<Answered>,
) -> Option<(Vec<Before>, Answered)> {
    let [one, other] = pair.map(|(world, _)| world);
    let (mut found, mut answered) = (Vec::new(), Answered::new());
    for (table, id) in differing(one, other) {
        let before = Before::of(&[one, other], table, id)?;
        answered.extend(asks(pair, table, &before.row, before.until)?);
        found.push(before);
    }
    Some((found, answered))
}

/// Steps that are known to be answered rightly.
pub type Answered = Vec<(TxnId, usize)>;

/// What all versions of a row have in common in all worlds, if it was there all the time.
fn always(worlds: &[&World], table: TableId, id: RowId) -> Option<Row> {
    common(versions(worlds, table, id)?.into_iter(), table)
}

/// The same, of some of its versions.
fn common<'a>(chains: impl Iterator<Item = (&'a World, &'a [Version])>, table: TableId) -> Option<Row> {
    let mut common: Option<Vec<Value>> = None;
    let mut store = None;
    for (world, versions) in chains {
        store = Some(&world.store);
        let first = versions.first()?;
        if first.commit >= world.order.settled() || first.since > 0 {
            return None;
        }
        for version in versions {
            let row = version.row.as_ref()?;
            let known = common.get_or_insert_with(|| row.to_vec());
            if known.len() != row.len() || version.rewrite {
                return None;
            }
            for (cell, other) in known.iter_mut().zip(row.iter()) {
                if identical(cell, other) != Some(true) {
                    *cell = Value::Unknown;
                }
            }
        }
    }
    let row: Row = common?.into();
    // A row whose key has changed was found in other places.
    store?.key_of(table, &row).map(|_| row)
}

/// What a row was like, in all worlds.
struct Past {
    always: Option<Row>,
    forms: Vec<Row>,
}

impl Past {
    fn of(worlds: &[&World], table: TableId, id: RowId) -> Past {
        let chains = worlds.iter().filter_map(|world| chain(world, table, id));
        let versions = chains.flat_map(|chain| &chain.versions);
        Past {
            always: always(worlds, table, id),
            forms: versions.filter_map(|version| version.row.clone()).collect(),
        }
    }
}

/// Only what a row is now is kept. Who looks for it where it was and is not any more may have found it or not.
fn forget_past(world: &mut World, table: TableId, id: RowId, until: Nanos, past: Past) {
    let is_keyed = world.store.is_keyed(table);
    let keys: Vec<Option<Place>> = past
        .forms
        .iter()
        .map(|row| world.store.key_of(table, row))
        .collect();
    let now = newest(world, table, id).and_then(|row| world.store.key_of(table, row));
    let kept: &mut Table = world.store.table_mut(table);
    kept.blur(id, until, past.always);
    kept.unsettle_row(id, until);
    let is_there = |(_, key): &Place| now.as_ref().is_some_and(|(_, now)| same_cells(key, now));
    for place in keys {
        match place {
            Some(place) if is_there(&place) => {}
            Some((columns, key)) => world.store.table_mut(table).blur_key(&columns, &key, until),
            None if is_keyed => world.store.lose(table, until),
            None => {}
        }
    }
}

/// Columns, and a key in them.
type Place = (Vec<usize>, Vec<Value>);

/// All worlds become one, in which everything is unknown that they do not agree on.
pub fn collapse(worlds: &mut Vec<World>, until: Nanos) {
    let Some((first, others)) = worlds.split_first_mut() else {
        return;
    };
    if others.is_empty() {
        return;
    }
    let mut rows: BTreeSet<(TableId, RowId)> = BTreeSet::new();
    let mut ahead_of_some: BTreeSet<TxnId> = BTreeSet::new();
    let mut blended: BTreeSet<TxnId> = first.blended.iter().copied().collect();
    let mut distrusted: Vec<(TableId, Row)> = Vec::new();
    for other in others.iter() {
        rows.extend(differing(first, other));
        ahead_of_some.extend(names(first).symmetric_difference(&names(other)).copied());
        blended.extend(other.blended.iter().copied());
    }
    others.iter().for_each(|other| {
        first.answered.retain(|step| other.answered.contains(step));
        first.inherit(other);
    });
    // Rows that differ only in what they were before are what they are.
    for &(table, id) in &rows.clone() {
        let worlds: Vec<&World> = std::iter::once(&*first).chain(others.iter()).collect();
        if let Some(before) = Before::of(&worlds, table, id) {
            let place = first.store.key_of(table, &before.row);
            let until = before.until;
            before.forget(first);
            if let Some((columns, key)) = place {
                first
                    .store
                    .table_mut(table)
                    .guess_at(&columns, &key, until, false);
            }
            rows.remove(&(table, id));
        }
    }
    // Under which keys, `None` if a row has none; and whether it was not there all the time.
    let guessed: Vec<(TableId, Option<Vec<Place>>, bool)> = rows
        .iter()
        .map(|&(table, id)| {
            let worlds: Vec<&World> = std::iter::once(&*first).chain(others.iter()).collect();
            let chains = worlds.iter().filter_map(|w| chain(w, table, id));
            let made = chains.flat_map(|c| &c.versions).filter_map(|v| v.row.as_ref());
            let keys = made.map(|row| first.store.key_of(table, row)).collect();
            (table, keys, always(&worlds, table, id).is_none())
        })
        .collect();
    for &(table, id) in &rows {
        let mut cells: Vec<usize> = Vec::new();
        let mut is_open = false;
        let own = newest(first, table, id).cloned();
        for other in others.iter() {
            match (&own, newest(other, table, id)) {
                (Some(a), Some(b)) => {
                    let pairs = a.iter().zip(b.iter()).enumerate();
                    let differ = pairs
                        .filter(|(_, (x, y))| !same_cells(std::slice::from_ref(x), std::slice::from_ref(y)));
                    cells.extend(differ.map(|(at, _)| at));
                }
                (None, None) => {}
                (a, b) => {
                    is_open = true;
                    distrusted.extend(a.iter().chain(b).map(|row| (table, (*row).clone())));
                }
            }
        }
        let all: Vec<&World> = std::iter::once(&*first).chain(others.iter()).collect();
        let past = Past::of(&all, table, id);
        forget_past(first, table, id, until, past);
        let kept = first.store.table_mut(table);
        if is_open {
            kept.remove(id);
        } else if !cells.is_empty() {
            kept.soften_cells(id, &cells);
        }
    }
    let tables: Vec<TableId> = first.store.tables.keys().copied().collect();
    for table in tables {
        for other in others.iter() {
            let own = first.store.table_mut(table).knowledge;
            let theirs = other.store.tables.get(&table);
            if theirs.is_none_or(|theirs| theirs.knowledge != own) {
                first.store.lose(table, until);
            }
        }
    }
    for (table, row) in distrusted {
        first.store.distrust(table, &row, until);
    }
    // Who is placed in some worlds only may still change the rows in the others.
    for other in &ahead_of_some {
        match first.ahead.iter().find(|e| e.txn.id == *other).cloned() {
            Some(placed) => {
                first.soften(&placed.txn, &placed.attempt, None);
                let made = placed.commit.and_then(|c| first.order.get(c));
                for (table, id) in made.map(|c| c.rows.clone()).unwrap_or_default() {
                    first.unlearn_row(table, id, placed.attempt.overlay.table(table), until);
                }
            }
            None => {
                blended.insert(*other);
            }
        }
    }
    for (table, keys, moved) in guessed {
        let kept = first.store.table_mut(table);
        match keys {
            Some(keys) => keys
                .iter()
                .for_each(|(columns, key)| kept.guess_at(columns, key, until, moved)),
            None => kept.guess(until),
        }
    }
    first.blended = blended.into_iter().collect();
    first.waiting.clear();
    first.uncertified.clear();
    first.footprints.clear();
    first.order.forget_facts();
    worlds.truncate(1);
}
