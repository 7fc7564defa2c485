//! Where whoever keeps a snapshot looks at the newest rows, which no serial order knows.
//!
//! In: what a member of a case does, and who else was there at the same time. Out: whether what it finds, and does, may be
//! otherwise than in every serial order although the server keeps its promise.
//!
//! Two questions are asked of the newest rows, whatever the snapshot: who has a key that is given to a row, and who refers to
//! a key that is set free. The server lets both commit, even where the snapshot showed something else.

use super::{Case, Done};
use crate::control::Control;
use crate::explain::asked::Asked;
use crate::interpret::Effect;
use crate::sql::plan::{Kind, Planned, Touches};
use crate::state::catalog::{Action, ForeignKey, Table, UniqueKey};
use crate::state::overlay::Overlay;
use crate::state::{Catalog, Row, TableId};
use crate::value::compare::same;
use crate::value::{Collation, Value};
use pgassay_rules::anomaly::MISSING_ERROR;
use std::sync::Arc;

/// The tables that keep their rows there. Most steps ask for none, and the catalog may be large.
fn stored<'c>(catalog: &'c Catalog, storages: &[TableId]) -> impl Iterator<Item = &'c Arc<Table>> {
    let tables = (!storages.is_empty()).then(|| catalog.tables());
    let tables = tables.into_iter().flatten();
    tables.filter(|table| storages.contains(&table.storage))
}

/// Whether both were under way at some time.
fn overlap(case: &Case<'_>, one: usize, other: usize) -> bool {
    let span = |member: usize| {
        let txn = &case.members[member].txn;
        (txn.sent(), txn.end.window().done)
    };
    let ((begun, done), (theirs, ended)) = (span(one), span(other));
    theirs <= done && ended >= begun
}

/// Whether a member may see two rows with one key in one of these tables: its own, and one that somebody `before` it has
/// taken away, but not yet when its snapshot was taken.
pub(super) fn may_see_two<'o>(
    case: &Case<'_>,
    at: usize,
    own: &Overlay,
    read: &[TableId],
    before: impl Iterator<Item = (usize, &'o Overlay)> + Clone,
) -> bool {
    let catalog = &case.base.store.catalog;
    let written = read.iter().copied().filter(|table| own.table(*table).is_some());
    let written: Vec<TableId> = written.collect();
    stored(catalog, &written).any(|table| {
        let Some(own) = own.table(table.storage) else {
            return false;
        };
        let beside = before.clone().filter(|(other, _)| overlap(case, at, *other));
        let theirs = beside.filter_map(|(_, theirs)| theirs.table(table.storage));
        let mut gone = theirs.flat_map(|theirs| theirs.replaced.values().map(|replaced| &replaced.before));
        gone.any(|gone| own.inserted.values().any(|made| share_key(table, gone, made)))
    })
}

/// Whether both rows have the same key, in one of the keys of their table.
fn share_key(table: &Table, one: &Row, other: &Row) -> bool {
    let is_plain = |key: &&UniqueKey| key.predicate.is_none() && key.expressions.iter().all(Option::is_none);
    table.keys.iter().filter(is_plain).any(|key| {
        key.columns
            .iter()
            .all(|&column| match (one.get(column), other.get(column)) {
                (Some(Value::Null), _) | (_, None) | (None, _) => false,
                (Some(a), Some(b)) => same(a, b, Collation::Bytes) == Some(true),
            })
    })
}

/// The tables in which nobody can tell what a member has done: it set keys free, or could not have, and rows may refer to
/// them that somebody else may have taken away or put there meanwhile. `written`: where it may write.
pub(super) fn unsure_of_children(
    case: &Case<'_>,
    at: usize,
    written: &[TableId],
    done: &Done,
) -> Vec<TableId> {
    let catalog = &case.base.store.catalog;
    // Where children are not to be changed, it makes no difference which of them there are, as long as nobody is refused.
    let changes_children = |action: Action| !matches!(action, Action::NoAction | Action::Restrict);
    let is_followed = |key: &ForeignKey| {
        let parent = catalog.storage(key.target);
        done.effects.iter().any(|effect| match effect {
            Effect::Delete { table, .. } => *table == parent && changes_children(key.on_delete),
            Effect::Update {
                table, before, after, ..
            } => {
                *table == parent
                    && changes_children(key.on_update)
                    && !share_cells(&key.target_columns, before, after)
            }
            _ => false,
        })
    };
    let refused = is_refused(done);
    let parents = stored(catalog, written);
    let children = parents.flat_map(|parent| parent.referenced_by.iter().map(move |child| (parent, child)));
    let mut unsure = Vec::new();
    for (parent, child) in children {
        let Some(child) = catalog.table(*child) else {
            continue;
        };
        let mut keys = child.foreign_keys.iter().filter(|key| key.target == parent.id);
        let writes =
            |touches: &Touches| touches.writes_everything || touches.written.contains(&child.storage);
        if keys.any(|key| refused || is_followed(key)) && is_touched_beside(case, at, catalog, writes) {
            unsure.extend([parent.storage, child.storage]);
        }
    }
    unsure
}

fn share_cells(columns: &[usize], one: &Row, other: &Row) -> bool {
    let cells = |column: &usize| one.get(*column).zip(other.get(*column));
    columns
        .iter()
        .all(|column| cells(column).is_some_and(|(a, b)| same(a, b, Collation::Bytes) == Some(true)))
}

/// The tables in which nobody can tell what a member has done: it met keys that somebody else may have set free meanwhile.
pub(super) fn unsure_of_keys(case: &Case<'_>, at: usize, planned: &Planned, done: &Done) -> Vec<TableId> {
    let is_met = match &planned.kind {
        Kind::Insert(insert) if insert.ctes.is_empty() => match insert.conflict {
            None => is_refused(done),
            // Which of both it does is not always part of the answer.
            Some(_) => {
                done.agrees.is_err() || !done.effects.iter().all(|e| matches!(e, Effect::Insert { .. }))
            }
        },
        Kind::Update(update) if update.ctes.is_empty() => is_refused(done),
        Kind::Delete(delete) if delete.ctes.is_empty() => false,
        // What else may follow from it is not looked at.
        _ => done.agrees.is_err(),
    };
    if !is_met {
        return Vec::new();
    }
    let catalog = &case.base.store.catalog;
    let given = stored(catalog, &planned.touches.moved).filter(|table| !table.keys.is_empty());
    let unsure = given.map(|table| table.storage).filter(|table| {
        let frees = |touches: &Touches| touches.writes_everything || touches.freed.contains(table);
        is_touched_beside(case, at, catalog, frees)
    });
    unsure.collect()
}

/// Whether it should have failed.
fn is_refused(done: &Done) -> bool {
    let difference = done.agrees.as_ref().err();
    difference.is_some_and(|difference| difference.rule.name == MISSING_ERROR.name)
}

/// Whether somebody else may have touched something meanwhile.
fn is_touched_beside(
    case: &Case<'_>,
    at: usize,
    catalog: &Catalog,
    is_meant: impl Fn(&Touches) -> bool,
) -> bool {
    let others = (0..case.members.len()).filter(|other| *other != at && overlap(case, at, *other));
    others.map(|other| &case.members[other]).any(|member| {
        let session = member.session.at(member.txn.id.number);
        let data = member
            .txn
            .steps
            .iter()
            .filter(|step| step.control == Control::Data);
        data.into_iter().any(|step| {
            let asked = Asked::of(case.planner, catalog, &step.seen, &session);
            is_meant(&asked.prepared.planned.touches)
        })
    })
}
