//! A name for where a case stands, so that the same place is not searched twice.
//!
//! In: where every member stands, and what is committed. Out: 128 bits that two states share only if nothing that
//! can still happen tells them apart. Rows that members inserted are named by what is in them: their ids depend on
//! who was first.

use super::base::{CASE, Delta};
use super::points::Walker;
use crate::state::overlay::Overlay;
use crate::state::{Row, RowId, TableId};
use crate::trace::Nanos;
use crate::value::compare::hash_value;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// `None` if there is more to a member than rows: then every state is a place of its own. What came before counts only if
/// somebody may still `look_back`.
pub fn signature(walkers: &[Walker], committed: &Delta, now: Nanos, look_back: bool) -> Option<(u64, u64)> {
    if walkers.iter().any(|w| !w.session.portals.is_empty()) || committed.catalog.is_some() {
        return None;
    }
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, now, delta(committed, seed)).hash(&mut hasher);
        if look_back {
            let states = committed.and_before().map(|state| delta(state, seed));
            states.fold(0, u64::wrapping_add).hash(&mut hasher);
        }
        for walker in walkers {
            (walker.step, walker.ended).hash(&mut hasher);
            if let Some(snapshot) = &walker.snapshot {
                (delta(snapshot, seed), unchanged(snapshot, committed, seed)).hash(&mut hasher);
            }
            for instant in &walker.instants {
                delta(instant, seed).hash(&mut hasher);
            }
            for (table, id) in &walker.held {
                one(*table, *id, None, committed, seed).hash(&mut hasher);
            }
            for held in &walker.claims {
                (held.claim.step, &held.claim.place).hash(&mut hasher);
            }
            overlay(&walker.overlay, committed, seed).hash(&mut hasher);
            for saved in &walker.savepoints {
                (
                    &saved.name,
                    saved.earlier,
                    overlay(&saved.overlay, committed, seed),
                )
                    .hash(&mut hasher);
            }
            for own in &walker.earlier {
                overlay(own, committed, seed).hash(&mut hasher);
            }
        }
        hasher.finish()
    };
    if walkers.iter().any(|w| w.overlay.catalog.is_some()) {
        return None;
    }
    Some((half(1), half(2)))
}

fn delta(delta: &Delta, seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, &delta.truncated, &delta.havoc, delta.havoc_everything).hash(&mut hasher);
    let rows = delta
        .rows
        .iter()
        .map(|((table, id), row)| one(*table, *id, row.as_ref(), delta, seed));
    rows.fold(0, u64::wrapping_add).hash(&mut hasher);
    hasher.finish()
}

/// Which rows nobody has written since a snapshot was taken; a value may have come back.
fn unchanged(snapshot: &Delta, committed: &Delta, seed: u64) -> u64 {
    let rows = committed
        .rows
        .iter()
        .filter(|(place, row)| match (snapshot.rows.get(*place), row) {
            (Some(Some(before)), Some(now)) => Arc::ptr_eq(before, now),
            (Some(None), None) => true,
            _ => false,
        });
    let names = rows.map(|((table, id), row)| one(*table, *id, row.as_ref(), committed, seed));
    names.fold(0, u64::wrapping_add)
}

fn overlay(own: &Overlay, committed: &Delta, seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, own.havoc_everything.is_some()).hash(&mut hasher);
    for (table, own) in &own.tables {
        (table, own.truncated, own.unseen, own.havoc.is_some()).hash(&mut hasher);
        let replaced = own.replaced.iter();
        let replaced = replaced.map(|(id, r)| one(*table, *id, r.row.as_ref(), committed, seed));
        replaced.fold(0, u64::wrapping_add).hash(&mut hasher);
        for row in own.inserted.values() {
            cells(row, &mut hasher);
        }
    }
    hasher.finish()
}

fn one(table: TableId, id: RowId, row: Option<&Row>, committed: &Delta, seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, table, row.is_some()).hash(&mut hasher);
    match id.0 & CASE {
        0 => id.hash(&mut hasher),
        _ => {
            if let Some(Some(before)) = committed.rows.get(&(table, id)) {
                cells(before, &mut hasher);
            }
        }
    }
    if let Some(row) = row {
        cells(row, &mut hasher);
    }
    hasher.finish()
}

fn cells(row: &Row, hasher: &mut DefaultHasher) {
    row.len().hash(hasher);
    row.iter().for_each(|value| hash_value(value, hasher));
}
