//! INSERT, UPDATE, DELETE and MERGE: which rows change, and into what.

use super::compare::WRITTEN;
use super::constraint::{Batch, Conflicts};
use super::query::{Level, Newest, OutputRow};
use super::run::{Derived, Fault, Frame, Outcome, Run, Scope, Slot};
use super::{Effect, Touch, Views};
use crate::sql::plan::{
    ConflictAction, Delete, Expr, Insert, InsertValue, Merge, MergeAction, RelationSource, Returning, Select,
    Update,
};
use crate::state::catalog::{Action, ForeignKey, Table, UniqueKey};
use crate::state::{Row, RowId, TableId};
use crate::value::compare::same;
use crate::value::{Collation, Value};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cell::Cell;
use std::sync::Arc;

/// What a write answers.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Rows of RETURNING.
    pub rows: Vec<OutputRow>,
    pub min: u64,
    /// `None`: rows that nobody has seen may have been written, too.
    pub max: Option<u64>,
}

/// A row that UPDATE or DELETE found, with the rows it was joined with.
struct Found {
    id: RowId,
    frame: Frame,
    certain: bool,
}

/// The place of an effect that a row in doubt does not have.
const NOWHERE: usize = u32::MAX as usize;

impl Run<'_> {
    pub(super) fn written(&self, written: Written) -> Derived {
        Derived {
            rows: written
                .rows
                .into_iter()
                .map(|row| (Row::from(row.values), row.certain))
                .collect(),
            open: written.max.is_none(),
        }
    }

    pub(super) fn table_of(&self, id: TableId) -> Outcome<Arc<Table>> {
        match self.views.snapshot.catalog().table(id) {
            Some(table) => Ok(table.clone()),
            None => Fault::unsure("unknown_table"),
        }
    }

    pub(super) fn insert(&self, insert: &Insert, outer: Option<&Scope<'_>>) -> Outcome<Written> {
        self.run_ctes(&insert.ctes, outer)?;
        let table = self.table_of(insert.table)?;
        let proposed = match &insert.query {
            None => vec![(Vec::new(), true)],
            Some(query) => {
                let output = self.output(query, outer, true)?;
                let cutting = self.cutting(query, outer)?;
                let exact = !output.open && output.rows.iter().all(|row| row.certain);
                let cut = cutting.limit.is_some() || cutting.offset > 0;
                if !exact || (cut && output.ends.len() < output.rows.len()) {
                    return Fault::unsure("insert_of_uncertain_rows");
                }
                let listed = matches!(query.body, crate::sql::plan::Body::Values(_));
                let sorted = !query.order.is_empty() && output.ends.len() == output.rows.len();
                self.is_unordered
                    .set(!(listed && query.order.is_empty() || sorted) && output.rows.len() > 1);
                let rows = output.rows.into_iter().skip(cutting.offset as usize);
                rows.take(cutting.limit.map_or(usize::MAX, |limit| limit as usize))
                    .map(|row| (row.values, true))
                    .collect()
            }
        };
        let empty = Frame::default();
        let scope = Scope { frame: &empty, outer };
        let mut batch = Batch::new(self);
        let mut result = Written {
            max: Some(0),
            ..Written::default()
        };
        let alone = proposed.len() == 1;
        for (values, _) in proposed {
            let mut row = Vec::with_capacity(insert.values.len());
            for value in &insert.values {
                row.push(match value {
                    InsertValue::Column(place) => values[*place].clone(),
                    InsertValue::Default(expr) => self.eval(expr, &scope)?,
                });
            }
            self.insert_row(&mut batch, &table, row, insert, alone, outer, &mut result)?;
        }
        batch.finish()?;
        Ok(result)
    }

    fn insert_row(
        &self,
        batch: &mut Batch<'_, '_>,
        table: &Arc<Table>,
        row: Vec<Value>,
        insert: &Insert,
        alone: bool,
        outer: Option<&Scope<'_>>,
        result: &mut Written,
    ) -> Outcome<()> {
        let row = batch.complete(table, &insert.checks, row)?;
        if let Some(conflict) = &insert.conflict {
            match batch.conflicts(table, &insert.checks, &row, conflict.keys.as_deref(), alone)? {
                Conflicts::None => {}
                Conflicts::Maybe => {
                    return Fault::unsure("conflict_with_unknown");
                }
                Conflicts::Unseen => {
                    return self.insert_unseen(batch, table, row, insert, alone, outer, result);
                }
                Conflicts::Own(effect) => match &conflict.action {
                    ConflictAction::Nothing => return Ok(()),
                    _ => {
                        let _ = effect;
                        return Err(Fault::Raised {
                            sqlstate: "21000".to_owned(),
                            message: "ON CONFLICT DO UPDATE command cannot affect row a second time"
                                .to_owned(),
                        });
                    }
                },
                Conflicts::Row(id, existing) => {
                    return match &conflict.action {
                        ConflictAction::Nothing => Ok(()),
                        ConflictAction::Unmodelled(reason) => Fault::unsure(reason.clone()),
                        ConflictAction::Update { set, filter } => {
                            let frame = Frame {
                                slots: smallvec![
                                    Slot {
                                        row: Some(existing.clone()),
                                        id,
                                    },
                                    Slot {
                                        row: Some(row),
                                        id: RowId(0),
                                    },
                                ],
                                grouped: Vec::new(),
                                windowed: Vec::new(),
                            };
                            let scope = Scope { frame: &frame, outer };
                            match self.admits(filter, &scope, true)? {
                                None => Ok(()),
                                Some(false) => Fault::unsure("conflict_with_unknown"),
                                Some(true) => {
                                    let after = self.changed(&existing, set, &scope)?;
                                    batch.sets(set, &insert.checks);
                                    let after = batch.complete(table, &insert.checks, after)?;
                                    let effect = batch.update(
                                        table,
                                        &insert.checks,
                                        id,
                                        existing,
                                        after.clone(),
                                        true,
                                    )?;
                                    self.returned(
                                        insert.returning.as_ref(),
                                        &frame,
                                        after,
                                        effect,
                                        table,
                                        true,
                                        outer,
                                        result,
                                    )
                                }
                            }
                        }
                    };
                }
            }
        }
        let effect = batch.insert(table, &insert.checks, row.clone())?;
        let frame = Frame::new(2);
        self.returned(
            insert.returning.as_ref(),
            &frame,
            row,
            effect,
            table,
            true,
            outer,
            result,
        )
    }

    /// INSERT … ON CONFLICT where nobody has seen whether there is a row already: there is one afterwards.
    fn insert_unseen(
        &self,
        batch: &mut Batch<'_, '_>,
        table: &Arc<Table>,
        row: Row,
        insert: &Insert,
        alone: bool,
        outer: Option<&Scope<'_>>,
        result: &mut Written,
    ) -> Outcome<()> {
        let conflict = insert.conflict.as_ref().and_then(|conflict| {
            let [arbiter] = conflict.keys.as_deref()? else {
                return None;
            };
            let key = table.keys.get(*arbiter).filter(|key| key.primary)?;
            Some((conflict, &key.columns))
        });
        let Some((conflict, key)) = conflict.filter(|_| self.tag_tells() && table.storage == table.id) else {
            return Fault::unsure("conflict_with_unknown");
        };
        let cells = row.iter().enumerate();
        let existing: Row = cells
            .map(|(column, cell)| match key.contains(&column) {
                true => cell.clone(),
                false => Value::Unknown,
            })
            .collect();
        let frame = Frame {
            slots: smallvec![
                Slot {
                    row: Some(existing.clone()),
                    id: RowId(0),
                },
                Slot {
                    row: Some(row.clone()),
                    id: RowId(0),
                },
            ],
            grouped: Vec::new(),
            windowed: Vec::new(),
        };
        let (after, certain) = match &conflict.action {
            // The answer says whether it was inserted, and otherwise it was left alone.
            ConflictAction::Nothing if alone => (row, false),
            // One of several that was left alone is not locked, and may go away at once.
            ConflictAction::Nothing => return Fault::unsure("conflict_with_unknown"),
            ConflictAction::Unmodelled(reason) => return Fault::unsure(reason.clone()),
            ConflictAction::Update { set, filter } => {
                let scope = Scope { frame: &frame, outer };
                let mut after = existing.to_vec();
                for (column, expr) in set {
                    after[*column] = self.tolerant(expr, &scope)?;
                }
                if key
                    .iter()
                    .any(|column| after[*column].is_unknown() || set.iter().any(|(c, _)| c == column))
                {
                    return Fault::unsure("conflict_with_unknown");
                }
                let after = batch.complete(table, &insert.checks, merged(&row, &after))?;
                (after, filter.is_empty())
            }
        };
        if !certain {
            self.note("conflict_with_unknown");
        }
        let effect = batch.insert_if(table, &insert.checks, after.clone(), certain)?;
        let values = key.iter().map(|column| after[*column].clone()).collect();
        self.gone(table, key.iter().copied().collect(), values);
        self.returned(
            insert.returning.as_ref(),
            &frame,
            after,
            effect,
            table,
            certain,
            outer,
            result,
        )
    }

    /// Whether the answer to this very statement says how many rows were written.
    fn tag_tells(&self) -> bool {
        self.planned.tag_tells() && self.routine_depth == 0
    }

    /// Whatever row had this key is not there any more.
    fn gone(&self, table: &Table, columns: Arc<[usize]>, key: Vec<Value>) {
        self.effects.borrow_mut().push(Effect::Absent {
            table: table.storage,
            columns,
            key,
        });
    }

    /// The row that a write looked for by its primary key alone, since `before` places had been read.
    fn pinned(&self, table: &Table, select: &Select, before: usize) -> Option<(Arc<[usize]>, Vec<Value>)> {
        if select.relations.len() > 1 || !self.tag_tells() || table.storage != table.id {
            return None;
        }
        let primary = &table.primary_key()?.columns;
        match &self.touches()[before..] {
            [
                Touch::Key {
                    table: of,
                    columns,
                    key,
                    ..
                },
            ] if *of == table.id && **columns == **primary => Some((columns.clone(), key.clone())),
            _ => None,
        }
    }

    /// Counts a written row and answers it, if asked for.
    fn returned(
        &self,
        returning: Option<&Returning>,
        frame: &Frame,
        row: Row,
        effect: usize,
        table: &Arc<Table>,
        certain: bool,
        outer: Option<&Scope<'_>>,
        result: &mut Written,
    ) -> Outcome<()> {
        result.min += u64::from(certain);
        result.max = result.max.map(|max| max + 1);
        let Some(returning) = returning else { return Ok(()) };
        let mut frame = frame.clone();
        frame.slots[0] = Slot {
            row: Some(row),
            id: RowId(0),
        };
        let scope = Scope { frame: &frame, outer };
        let mut values = Vec::with_capacity(returning.targets.len());
        for target in &returning.targets {
            values.push(if certain {
                self.target(target, &scope, true)?
            } else {
                self.tolerant(target, &scope)?
            });
        }
        let mut sources: SmallVec<[(TableId, RowId); 1]> = SmallVec::new();
        sources.push((table.storage, RowId(WRITTEN | effect as u64)));
        result.rows.push(OutputRow {
            values,
            certain,
            sources,
        });
        Ok(())
    }

    /// The row with the SET clause applied.
    fn changed(&self, row: &Row, set: &[(usize, Expr)], scope: &Scope<'_>) -> Outcome<Vec<Value>> {
        let mut after = row.to_vec();
        for (column, expr) in set {
            after[*column] = self.target(expr, scope, true)?;
        }
        Ok(after)
    }

    pub(super) fn update(&self, update: &Update, outer: Option<&Scope<'_>>) -> Outcome<Written> {
        let told = self.told.take();
        self.run_ctes(&update.ctes, outer)?;
        let table = self.table_of(update.table)?;
        let before = self.touches_len();
        let (found, open) = self.targets(&update.select, outer)?;
        let pinned = match open && found.is_empty() {
            true => self.pinned(&table, &update.select, before),
            false => None,
        };
        let mut batch = Batch::new(self);
        let mut result = Written {
            max: (!open).then_some(0),
            ..Written::default()
        };
        let mut unsure = false;
        let (groups, all) = decided(grouped_by_row(found), open, told);
        for group in groups {
            let mut after: Option<Vec<Value>> = None;
            let mut certain = all;
            let before = group[0].frame.slots[0]
                .row
                .clone()
                .unwrap_or_else(|| Row::from(Vec::new()));
            let several = group.len() > 1;
            for found in &group {
                certain |= found.certain;
                let scope = Scope {
                    frame: &found.frame,
                    outer,
                };
                let mut row = before.to_vec();
                for (column, expr) in &update.set {
                    row[*column] = if found.certain && !several {
                        self.target(expr, &scope, true)?
                    } else {
                        self.tolerant(expr, &scope)?
                    };
                    self.ask_if_rounded(update.table, expr, &row[*column], &scope);
                }
                after = Some(match after {
                    None => row,
                    // Any of the joined rows may be the one that counts.
                    Some(other) => merged(&other, &row),
                });
            }
            let mut after = after.unwrap_or_default();
            if !certain {
                after = merged(&before, &after);
            }
            batch.sets(&update.set, &update.checks);
            let after = batch.complete(&table, &update.checks, after)?;
            let effect = match certain {
                true => batch.update(&table, &update.checks, group[0].id, before, after.clone(), true)?,
                false => {
                    unsure = true;
                    NOWHERE
                }
            };
            let mut frame = group[0].frame.clone();
            if several {
                for slot in &mut frame.slots[1..] {
                    slot.row = slot
                        .row
                        .as_ref()
                        .map(|row| row.iter().map(|_| Value::Unknown).collect());
                }
            }
            self.returned(
                update.returning.as_ref(),
                &frame,
                after,
                effect,
                &table,
                certain,
                outer,
                &mut result,
            )?;
        }
        batch.finish()?;
        let unsure = unsure || (open && pinned.is_none() && self.may_have_come(&table, before));
        if unsure {
            self.may_be_refused(&table, |column| update.set.iter().any(|(set, _)| set == column));
            // It holds no lock on a row that it did not write: others may have changed that meanwhile.
            self.havoc(&table, "update_of_uncertain_rows");
        } else if open {
            let claimed = pinned.and_then(|(columns, key)| {
                let row = self.updated_unseen(&table, update, &columns, &key, outer)?;
                Some((columns, key, row))
            });
            match claimed {
                Some((columns, key, row)) => {
                    self.gone(&table, columns, key);
                    self.effects.borrow_mut().push(Effect::Insert {
                        table: table.storage,
                        row,
                    });
                }
                // A row that nobody has seen may have any key by now.
                None if table.keys.iter().any(|key| {
                    let mut columns = key.columns.iter();
                    columns.any(|column| update.set.iter().any(|(set, _)| set == column))
                }) =>
                {
                    self.havoc(&table, "key_of_unseen_rows")
                }
                None => self.unseen(&table, &update.select),
            }
        }
        if open || unsure {
            let is_set = |column: &usize| update.set.iter().any(|(set, _)| set == column);
            self.unseen_cascade(&table, |key| key.target_columns.iter().any(is_set));
        }
        Ok(result)
    }

    /// Whether a row that the snapshot does not show is now among those that were asked for: it may have been there, unseen,
    /// until somebody wrote it, and then it is one of those written. `before`: what had been read before they were.
    fn may_have_come(&self, table: &Table, before: usize) -> bool {
        let Views { snapshot, latest, .. } = self.views;
        if !self.views_differ() || latest.is_still(table.storage) {
            return false;
        }
        let was_absent = |row: &Row| {
            let Some(primary) = table.primary_key() else {
                return false;
            };
            let key: Option<Vec<Value>> = primary.columns.iter().map(|c| row.get(*c).cloned()).collect();
            let key = key.filter(|key| !key.iter().any(Value::has_unknown));
            key.is_some_and(|key| snapshot.lookup(table.storage, &primary.columns, &key, &mut |_, _| ()))
        };
        self.touches()[before..].iter().any(|touch| {
            let (of, Touch::Key { filter, .. } | Touch::Scan { filter, .. }) = (touch.table(), touch);
            let mut came = false;
            let mut look = |id: RowId, row: &Row| {
                came |= filter.as_ref().is_none_or(|may_accept| may_accept(row))
                    && snapshot.row(of, id).is_none()
                    && !was_absent(row);
            };
            match touch {
                _ if of != table.id && of != table.storage => {}
                Touch::Key { columns, key, .. } => {
                    latest.lookup(of, columns, key, &mut look);
                }
                Touch::Scan { .. } => latest.scan(of, &mut look),
            }
            came
        })
    }

    /// Rows of which nobody knows whether they were written may have got a key that is taken, or lack a parent.
    fn may_be_refused(&self, table: &Table, is_set: impl Fn(&usize) -> bool) {
        let is_plain =
            |key: &UniqueKey| key.predicate.is_none() && key.expressions.iter().all(Option::is_none);
        if table
            .keys
            .iter()
            .any(|key| !is_plain(key) || key.columns.iter().any(&is_set))
        {
            self.may_fail(
                "23505",
                "a row that may have been written may have a key that is taken",
            );
        }
        let of_parent = |key: &ForeignKey| key.columns.iter().any(&is_set);
        let of_children = || table.keys.iter().any(|key| key.columns.iter().any(&is_set));
        if table.foreign_keys.iter().any(of_parent) || (!table.referenced_by.is_empty() && of_children()) {
            self.may_fail(
                "23503",
                "a row that may have been written may break a foreign key",
            );
        }
    }

    /// What UPDATE leaves of the row with this primary key, which nobody has seen; it is there if it was written.
    fn updated_unseen(
        &self,
        table: &Table,
        update: &Update,
        columns: &[usize],
        key: &[Value],
        outer: Option<&Scope<'_>>,
    ) -> Option<Row> {
        let mut cells = vec![Value::Unknown; table.columns.len()];
        for (column, value) in columns.iter().zip(key) {
            cells[*column] = value.clone();
        }
        let mut frame = Frame::new(1);
        frame.slots[0].row = Some(cells.clone().into());
        let scope = Scope { frame: &frame, outer };
        for (column, expr) in &update.set {
            if columns.contains(column) {
                return None;
            }
            cells[*column] = self.tolerant(expr, &scope).ok()?;
        }
        Some(cells.into())
    }

    /// Rows that nobody has seen may have been written; or rows that are known, because of others joined to them
    /// that are not.
    fn unseen(&self, table: &Table, select: &Select) {
        let table = table.storage;
        let effect = match select.relations.len() {
            0 | 1 => Effect::Unseen { table },
            _ => Effect::Havoc {
                table,
                reason: "joined_with_unseen_rows".to_owned(),
            },
        };
        self.effects.borrow_mut().push(effect);
    }

    /// What a row that nobody has seen takes along when it goes, or when its key changes, is not known either.
    fn unseen_cascade(&self, table: &Table, is_hit: impl Fn(&ForeignKey) -> bool) {
        let catalog = self.views.snapshot.catalog();
        let mut reached: Vec<TableId> = Vec::new();
        let mut from = vec![table.id];
        while let Some(parent) = from.pop() {
            for child in catalog.tables() {
                let hit = child.foreign_keys.iter().any(|key| {
                    let acts = |action| !matches!(action, Action::NoAction | Action::Restrict);
                    let first = parent == table.id;
                    key.target == parent
                        && (acts(key.on_delete) || acts(key.on_update))
                        && (!first || is_hit(key))
                });
                if hit && !reached.contains(&child.id) {
                    reached.push(child.id);
                    from.push(child.id);
                    self.havoc(child, "cascade_of_unseen_rows");
                }
            }
        }
    }

    pub(super) fn delete(&self, delete: &Delete, outer: Option<&Scope<'_>>) -> Outcome<Written> {
        let told = self.told.take();
        self.run_ctes(&delete.ctes, outer)?;
        let table = self.table_of(delete.table)?;
        let before = self.touches_len();
        let (found, open) = self.targets(&delete.select, outer)?;
        let pinned = match open && found.is_empty() {
            true => self.pinned(&table, &delete.select, before),
            false => None,
        };
        let mut batch = Batch::new(self);
        let mut result = Written {
            max: (!open).then_some(0),
            ..Written::default()
        };
        let mut unsure = false;
        let (groups, all) = decided(grouped_by_row(found), open, told);
        for group in groups {
            let certain = all || group.iter().any(|found| found.certain);
            let before = group[0].frame.slots[0]
                .row
                .clone()
                .unwrap_or_else(|| Row::from(Vec::new()));
            let mut effect = NOWHERE;
            if certain {
                effect = batch.delete(&table, &delete.checks, group[0].id, before.clone())?;
            } else {
                unsure = true;
            }
            let mut frame = group[0].frame.clone();
            if group.len() > 1 {
                for slot in &mut frame.slots[1..] {
                    slot.row = slot
                        .row
                        .as_ref()
                        .map(|row| row.iter().map(|_| Value::Unknown).collect());
                }
            }
            self.returned(
                delete.returning.as_ref(),
                &frame,
                before,
                effect,
                &table,
                certain,
                outer,
                &mut result,
            )?;
        }
        batch.finish()?;
        let unsure = unsure || (open && pinned.is_none() && self.may_have_come(&table, before));
        if unsure {
            if !table.referenced_by.is_empty() {
                self.may_fail("23503", "a row that may have gone may still be referenced");
            }
            self.havoc(&table, "delete_of_uncertain_rows");
        } else if open {
            match pinned {
                Some((columns, key)) => self.gone(&table, columns, key),
                None => self.unseen(&table, &delete.select),
            }
        }
        if open || unsure {
            self.unseen_cascade(&table, |_| true);
        }
        Ok(result)
    }

    pub(super) fn merge(&self, merge: &Merge) -> Outcome<Written> {
        self.run_ctes(&merge.ctes, None)?;
        let table = self.table_of(merge.table)?;
        let level = Level {
            select: &merge.select,
            outer: None,
            open: Cell::new(false),
            strict: false,
            first: None,
        };
        let mut frames: Vec<Frame> = Vec::new();
        let mut uncertain = false;
        self.found(&level, &mut |frame, certain| {
            uncertain |= !certain;
            frames.push(frame.clone());
            Ok(())
        })?;
        if uncertain || level.open.get() {
            return Fault::unsure("merge_over_unknown");
        }
        if self.views_differ()
            && frames
                .iter()
                .any(|frame| self.is_changed(&table, &frame.slots[0]))
        {
            return Fault::unsure("epq_merge");
        }
        let mut batch = Batch::new(self);
        let mut result = Written {
            max: Some(0),
            ..Written::default()
        };
        let mut touched: Vec<RowId> = Vec::new();
        for frame in frames {
            let scope = Scope {
                frame: &frame,
                outer: None,
            };
            let matched = frame.slots[0].row.is_some();
            for when in merge.whens.iter().filter(|when| when.matched == matched) {
                if let Some(condition) = &when.condition {
                    match self.target(condition, &scope, true)? {
                        Value::Bool(true) => {}
                        Value::Unknown => return Fault::unsure("merge_over_unknown"),
                        _ => continue,
                    }
                }
                if matched && !matches!(when.action, MergeAction::Nothing) {
                    if touched.contains(&frame.slots[0].id) {
                        return Err(Fault::Raised {
                            sqlstate: "21000".to_owned(),
                            message: "MERGE command cannot affect row a second time".to_owned(),
                        });
                    }
                    touched.push(frame.slots[0].id);
                }
                match (&when.action, &frame.slots[0].row) {
                    (MergeAction::Nothing, _) => {}
                    (MergeAction::Update(set), Some(row)) => {
                        let after = self.changed(row, set, &scope)?;
                        batch.sets(set, &merge.checks);
                        let after = batch.complete(&table, &merge.checks, after)?;
                        batch.update(&table, &merge.checks, frame.slots[0].id, row.clone(), after, true)?;
                        result.min += 1;
                    }
                    (MergeAction::Delete, Some(row)) => {
                        batch.delete(&table, &merge.checks, frame.slots[0].id, row.clone())?;
                        result.min += 1;
                    }
                    (MergeAction::Insert(values), _) => {
                        let mut row = Vec::with_capacity(values.len());
                        for value in values {
                            row.push(self.target(value, &scope, true)?);
                        }
                        let row = batch.complete(&table, &merge.checks, row)?;
                        batch.insert(&table, &merge.checks, row)?;
                        result.min += 1;
                    }
                    _ => {}
                }
                break;
            }
        }
        batch.finish()?;
        result.max = Some(result.min);
        Ok(result)
    }

    fn is_changed(&self, table: &Arc<Table>, slot: &Slot) -> bool {
        match &slot.row {
            None => false,
            Some(row) => !matches!(self.newest(table.storage, slot.id, row), Newest::Unchanged),
        }
    }

    /// The rows that a write finds in its snapshot, re-checked on the newest state.
    fn targets(&self, select: &Select, outer: Option<&Scope<'_>>) -> Outcome<(Vec<Found>, bool)> {
        let strict = self.sees_every_row(select);
        let level = Level {
            select,
            outer,
            open: Cell::new(false),
            strict,
            first: None,
        };
        let mut found = Vec::new();
        let mut passed_over: Vec<RowId> = Vec::new();
        let RelationSource::Table(table) = select.relations[0].source else {
            return Fault::unsure("write_target");
        };
        self.found(&level, &mut |frame, certain| {
            let mut certain = certain;
            let slot = &frame.slots[0];
            if let Some(row) = &slot.row {
                match self.newest(table, slot.id, row) {
                    Newest::Unchanged => {}
                    Newest::Gone => return Ok(()),
                    Newest::Changed(newest) => {
                        if !select.recheckable {
                            return Fault::unsure("epq_join");
                        }
                        frame.slots[0].row = Some(newest);
                        let scope = Scope { frame, outer };
                        match self.admits(&select.recheck, &scope, strict)? {
                            None => {
                                passed_over.push(frame.slots[0].id);
                                return Ok(());
                            }
                            Some(still) => certain &= still,
                        }
                    }
                }
            }
            found.push(Found {
                id: frame.slots[0].id,
                frame: frame.clone(),
                certain,
            });
            Ok(())
        })?;
        // A row that was passed over is not locked: by the time that others were, it may have matched again.
        if let Some(one) = passed_over.first()
            && (!found.is_empty() || passed_over.iter().any(|other| other != one))
        {
            return Fault::unsure("rows_locked_at_several_instants");
        }
        Ok((found, level.open.get()))
    }

    pub(super) fn havoc(&self, table: &Arc<Table>, reason: &str) {
        self.note(reason);
        self.effects.borrow_mut().push(Effect::Havoc {
            table: table.storage,
            reason: reason.to_owned(),
        });
    }
}

/// Rows found once or several times, in the order of their first sight.
/// Which of the rows in doubt were written, where their number tells: none of them, or all (then `true`).
fn decided(mut groups: Vec<Vec<Found>>, open: bool, told: Option<u64>) -> (Vec<Vec<Found>>, bool) {
    let is_certain = |group: &Vec<Found>| group.iter().any(|found| found.certain);
    let certain = groups.iter().filter(|group| is_certain(group)).count();
    if told == Some(certain as u64) {
        groups.retain(is_certain);
    }
    let all = !open && told == Some(groups.len() as u64);
    (groups, all)
}

fn grouped_by_row(found: Vec<Found>) -> Vec<Vec<Found>> {
    let mut places: FxHashMap<RowId, usize> = FxHashMap::default();
    let mut groups: Vec<Vec<Found>> = Vec::new();
    for one in found {
        match places.get(&one.id) {
            Some(place) => groups[*place].push(one),
            None => {
                places.insert(one.id, groups.len());
                groups.push(vec![one]);
            }
        }
    }
    groups
}

/// What is known if it is one or the other.
pub fn merged(one: &[Value], other: &[Value]) -> Vec<Value> {
    one.iter()
        .zip(other)
        .map(|(one, other)| {
            if same(one, other, Collation::Bytes) == Some(true) {
                one.clone()
            } else {
                Value::Unknown
            }
        })
        .collect()
}
