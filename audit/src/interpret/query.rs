//! Queries over a view: rows found, joined, grouped, sorted and cut.

use super::eval::is_plain;
use super::run::{Derived, Fault, Frame, Outcome, Run, Scope, Slot};
use crate::sql::plan::{
    Access, Aggregate, Body, Cte, CteQuery, Distinct, Expr, Fit, From, Group, Query, RelationSource, Scan,
    Select, SetFunction, SetOperation, SortKey, is_ordered,
};
use crate::state::index::Range;
use crate::state::view::Knowledge;
use crate::state::{Row, RowId, TableId};
use crate::value::compare::{same, sort_compare, total_order};
use crate::value::{Accumulator, Collation, Key, Value, oid};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

/// One row of a query's output.
#[derive(Clone, Debug)]
pub(super) struct OutputRow {
    pub values: Vec<Value>,
    pub certain: bool,
    pub sources: SmallVec<[(TableId, RowId); 1]>,
}

/// The output of a query before LIMIT: sorted, with the places where one tie ends and the next begins.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub rows: Vec<OutputRow>,
    /// Ends of groups of rows that sort alike; one group if there is no order.
    pub ends: Vec<usize>,
    pub open: bool,
}

/// LIMIT and OFFSET as numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cutting {
    pub offset: u64,
    pub limit: Option<u64>,
}

/// What the parts of one SELECT share while it runs.
pub(super) struct Level<'s> {
    pub select: &'s Select,
    pub outer: Option<&'s Scope<'s>>,
    /// Rows that nobody has seen may be among those found.
    pub open: Cell<bool>,
    /// An error in a condition is one that the server must raise, too.
    pub strict: bool,
    /// Only the first rows in the order of a column are asked for.
    pub first: Option<First>,
}

/// ORDER BY … LIMIT over one table whose rows can be read in that order.
pub(super) struct First {
    column: usize,
    descending: bool,
    wanted: usize,
    /// Rows that were found for certain so far.
    found: Cell<usize>,
}

type Emit<'e> = &'e mut dyn FnMut(&mut Frame, bool) -> Outcome<()>;

impl Run<'_> {
    /// The rows of a subquery, computed once if nothing outside can change them.
    pub(super) fn subquery(&self, query: &Query, scope: &Scope<'_>) -> Outcome<Rc<Derived>> {
        if !query.correlated {
            if let Some(known) = self.answers.borrow().get(&query.number) {
                return Ok(known.clone());
            }
        }
        let derived = Rc::new(self.derived(query, Some(scope))?);
        if !query.correlated {
            self.answers.borrow_mut().insert(query.number, derived.clone());
        }
        Ok(derived)
    }

    /// A query's rows as a relation: order forgotten, LIMIT applied.
    pub(super) fn derived(&self, query: &Query, outer: Option<&Scope<'_>>) -> Outcome<Derived> {
        let output = match self.output(query, outer, false) {
            // Whether the server evaluates this part of the statement at all depends on its plan.
            Err(Fault::Raised { .. }) => return Fault::unsure("error_in_subquery"),
            other => other?,
        };
        let cutting = self.cutting(query, outer)?;
        let rows = cut_loosely(output.rows, &output.ends, cutting, query.with_ties, output.open)?;
        let rows = rows.into_iter().map(|row| {
            let mut values = row.values;
            values.truncate(query.visible);
            (Row::from(values), row.certain)
        });
        Ok(Derived {
            rows: rows.collect(),
            open: output.open,
        })
    }

    pub(super) fn cutting(&self, query: &Query, outer: Option<&Scope<'_>>) -> Outcome<Cutting> {
        let empty = Frame::default();
        let nothing = Scope {
            frame: &empty,
            outer: None,
        };
        let scope = outer.unwrap_or(&nothing);
        let number = |expr: &Option<Expr>, state: &str| -> Outcome<Option<u64>> {
            let Some(expr) = expr else { return Ok(None) };
            match self.eval(expr, scope)? {
                Value::Null => Ok(None),
                Value::Int8(number) if number >= 0 => Ok(Some(number as u64)),
                Value::Int8(_) => Err(Fault::Raised {
                    sqlstate: state.to_owned(),
                    message: "LIMIT must not be negative".to_owned(),
                }),
                _ => Fault::unsure("unknown_limit"),
            }
        };
        Ok(Cutting {
            offset: number(&query.offset, "2201X")?.unwrap_or(0),
            limit: number(&query.limit, "2201W")?,
        })
    }

    /// The whole output of a query, without LIMIT.
    pub(super) fn output(&self, query: &Query, outer: Option<&Scope<'_>>, top: bool) -> Outcome<Output> {
        self.run_ctes(&query.ctes, outer)?;
        let mut output = match &query.body {
            Body::Select(select) => {
                let first = self.first(query, select, outer)?;
                self.select(select, outer, top && query.limit.is_none(), first)?
            }
            Body::Values(rows) => {
                let frame = Frame::default();
                let scope = Scope { frame: &frame, outer };
                let mut output = Output::default();
                for row in rows {
                    let mut values = Vec::with_capacity(row.len());
                    for expr in row {
                        values.push(self.eval(expr, &scope)?);
                    }
                    output.rows.push(OutputRow {
                        values,
                        certain: true,
                        sources: SmallVec::new(),
                    });
                }
                output
            }
            Body::SetOperation {
                operation,
                all,
                left,
                right,
            } => self.set_operation(*operation, *all, left, right, outer)?,
        };
        if let Body::Select(select) = &query.body {
            if let Distinct::On(places) = &select.distinct {
                self.sort(&mut output, &query.order);
                distinct_on(&mut output, places)?;
            }
        }
        self.sort(&mut output, &query.order);
        Ok(output)
    }

    /// Puts rows in order as far as the order is known.
    fn sort(&self, output: &mut Output, order: &[SortKey]) {
        let count = output.rows.len();
        if order.is_empty() || count <= 1 {
            output.ends = vec![count];
            return;
        }
        let mut keys = order.len();
        let mut places: Vec<usize> = (0..count).collect();
        // The first key that cannot be compared ends the known order.
        loop {
            let unknown = Cell::new(false);
            let compare = |left: &usize, right: &usize| -> Ordering {
                for key in &order[..keys] {
                    let (one, other) = (
                        &output.rows[*left].values[key.column],
                        &output.rows[*right].values[key.column],
                    );
                    match compare_for_sort(one, other, key, self.context.collation) {
                        Some(Ordering::Equal) => {}
                        Some(ordering) => return ordering,
                        None => {
                            if !one.has_unknown() && !other.has_unknown() {
                                self.note("collation");
                            }
                            unknown.set(true);
                            return Ordering::Equal;
                        }
                    }
                }
                Ordering::Equal
            };
            places.sort_by(compare);
            if unknown.get() {
                keys -= 1;
                places = (0..count).collect();
                continue;
            }
            let mut ends = Vec::new();
            for window in 1..count {
                if compare(&places[window - 1], &places[window]) != Ordering::Equal {
                    ends.push(window);
                }
            }
            if unknown.get() {
                keys -= 1;
                places = (0..count).collect();
                continue;
            }
            ends.push(count);
            output.ends = ends;
            break;
        }
        let mut taken: Vec<Option<OutputRow>> =
            std::mem::take(&mut output.rows).into_iter().map(Some).collect();
        output.rows = places
            .into_iter()
            .filter_map(|place| taken[place].take())
            .collect();
    }

    pub(super) fn run_ctes(&self, ctes: &[Cte], outer: Option<&Scope<'_>>) -> Outcome<()> {
        for cte in ctes {
            let derived = match &cte.query {
                CteQuery::Plain(query) => self.derived(query, outer)?,
                CteQuery::Recursive { first, next, all, .. } => {
                    self.recursive(cte.number, first, next, *all, outer)?
                }
                CteQuery::Insert(insert) => self.written(self.insert(insert, outer)?),
                CteQuery::Update(update) => self.written(self.update(update, outer)?),
                CteQuery::Delete(delete) => self.written(self.delete(delete, outer)?),
            };
            self.ctes.borrow_mut().insert(cte.number, Rc::new(derived));
        }
        Ok(())
    }

    fn recursive(
        &self,
        number: usize,
        first: &Query,
        next: &Query,
        all: bool,
        outer: Option<&Scope<'_>>,
    ) -> Outcome<Derived> {
        let start = self.derived(first, outer)?;
        let exact = |derived: &Derived| {
            !derived.open
                && derived
                    .rows
                    .iter()
                    .all(|(row, certain)| *certain && !row.iter().any(Value::has_unknown))
        };
        if !exact(&start) {
            return Fault::unsure("recursive_over_unknown");
        }
        let mut seen: FxHashMap<Vec<Key>, ()> = FxHashMap::default();
        let mut fresh = |rows: Vec<(Row, bool)>| -> Vec<(Row, bool)> {
            if all {
                return rows;
            }
            rows.into_iter()
                .filter(|(row, _)| seen.insert(row.iter().cloned().map(Key).collect(), ()).is_none())
                .collect()
        };
        let mut working = fresh(start.rows);
        let mut result = working.clone();
        while !working.is_empty() {
            self.work(working.len() as u64 + 1)?;
            self.ctes.borrow_mut().insert(
                number,
                Rc::new(Derived {
                    rows: working,
                    open: false,
                }),
            );
            self.answers.borrow_mut().clear();
            let step = self.derived(next, outer)?;
            if !exact(&step) {
                return Fault::unsure("recursive_over_unknown");
            }
            working = fresh(step.rows);
            result.extend(working.iter().cloned());
            if result.len() > 100_000 {
                return Fault::unsure("recursion_depth");
            }
        }
        Ok(Derived {
            rows: result,
            open: false,
        })
    }

    fn set_operation(
        &self,
        operation: SetOperation,
        all: bool,
        left: &Query,
        right: &Query,
        outer: Option<&Scope<'_>>,
    ) -> Outcome<Output> {
        let left = self.derived(left, outer)?;
        let right = self.derived(right, outer)?;
        let open = left.open || (right.open && operation != SetOperation::Except);
        let plain = |(row, certain): (Row, bool)| OutputRow {
            values: row.to_vec(),
            certain,
            sources: SmallVec::new(),
        };
        if operation == SetOperation::Union {
            let rows: Vec<OutputRow> = left.rows.into_iter().chain(right.rows).map(plain).collect();
            let rows = if all { rows } else { distinct(rows) };
            return Ok(Output {
                rows,
                ends: Vec::new(),
                open,
            });
        }
        let known = |derived: &Derived| {
            !derived.open
                && derived
                    .rows
                    .iter()
                    .all(|(row, certain)| *certain && !row.iter().any(Value::has_unknown))
        };
        if !known(&left) || !known(&right) {
            return Fault::unsure("set_operation_over_unknown");
        }
        let mut counts: FxHashMap<Vec<Key>, usize> = FxHashMap::default();
        for (row, _) in &right.rows {
            *counts.entry(row.iter().cloned().map(Key).collect()).or_default() += 1;
        }
        let mut rows = Vec::new();
        for (row, certain) in left.rows {
            let key: Vec<Key> = row.iter().cloned().map(Key).collect();
            let other = counts.get_mut(&key);
            let keep = match (operation, all) {
                (SetOperation::Intersect, true) => match other {
                    Some(count) if *count > 0 => {
                        *count -= 1;
                        true
                    }
                    _ => false,
                },
                (SetOperation::Intersect, false) => other.is_some(),
                (_, true) => match other {
                    Some(count) if *count > 0 => {
                        *count -= 1;
                        false
                    }
                    _ => true,
                },
                (_, false) => other.is_none(),
            };
            if keep {
                rows.push(plain((row, certain)));
            }
        }
        let rows = if all { rows } else { distinct(rows) };
        Ok(Output {
            rows,
            ends: Vec::new(),
            open,
        })
    }

    /// Whether it is enough to look at the first rows in the order of a column.
    fn first(&self, query: &Query, select: &Select, outer: Option<&Scope<'_>>) -> Outcome<Option<First>> {
        let (Some(From::Scan(scan)), [relation], Some(key), Some(_)) = (
            &select.from,
            select.relations.as_slice(),
            query.order.first(),
            &query.limit,
        ) else {
            return Ok(None);
        };
        let plain = |target: &Expr| matches!(target, Expr::Column { .. } | Expr::Const(_) | Expr::Bound(_));
        let (RelationSource::Table(table), Some(Expr::Column { up: 0, column, .. })) =
            (&relation.source, select.targets.get(key.column))
        else {
            return Ok(None);
        };
        let column = *column as usize;
        let table = self.views.snapshot.catalog().table(*table);
        let is_ordered = table.is_some_and(|table| {
            let kept = table.columns.get(column);
            let unique = match &scan.access {
                Access::Lookup { columns, .. } => {
                    let covered = |key: &[usize]| key.iter().all(|column| columns.contains(column));
                    columns.contains(&column)
                        || table
                            .keys
                            .iter()
                            .any(|key| key.is_plain() && covered(&key.columns))
                }
                Access::AnyOf { .. } => true,
                Access::All => false,
            };
            !unique && kept.is_some_and(|kept| kept.not_null && is_ordered(kept.type_oid))
        });
        let is_plain = select.group.is_none()
            && !query.with_ties
            && select.filter.is_empty()
            && matches!(select.distinct, Distinct::No)
            && scan.never_fails
            && select.targets.iter().all(plain)
            && scan.bounds.as_ref().is_none_or(|bounds| bounds.column == column)
            // A row that changed since it was found is looked at again, and may then be another.
            && (select.locking.is_empty() || !self.views_differ());
        if !is_ordered || !is_plain {
            return Ok(None);
        }
        let cutting = self.cutting(query, outer)?;
        Ok(cutting.limit.map(|limit| First {
            column,
            descending: key.descending,
            wanted: cutting.offset.saturating_add(limit) as usize,
            found: Cell::new(0),
        }))
    }

    fn select(
        &self,
        select: &Select,
        outer: Option<&Scope<'_>>,
        strict: bool,
        first: Option<First>,
    ) -> Outcome<Output> {
        let level = Level {
            select,
            outer,
            open: Cell::new(false),
            strict: strict && select.relations.len() <= 1,
            first,
        };
        let mut output = match &select.group {
            Some(group) => self.grouped(&level, group)?,
            None if !select.windows.is_empty() => self.windowed(&level)?,
            None => {
                let mut output = Output::default();
                self.found(&level, &mut |frame, certain| {
                    let scope = Scope { frame, outer };
                    let mut values = Vec::with_capacity(select.targets.len());
                    for target in &select.targets {
                        values.push(self.target(target, &scope, certain && strict)?);
                    }
                    let sources = sources(select, frame);
                    if let Some(first) = &level.first {
                        first.found.set(first.found.get() + usize::from(certain));
                    }
                    output.rows.push(OutputRow {
                        values,
                        certain,
                        sources,
                    });
                    Ok(())
                })?;
                output
            }
        };
        output.open |= level.open.get();
        if let Distinct::All = select.distinct {
            output.rows = distinct(output.rows);
        }
        Ok(output)
    }

    /// An output expression: its error is certain only where the row is.
    pub(super) fn target(&self, expr: &Expr, scope: &Scope<'_>, strict: bool) -> Outcome<Value> {
        match self.eval(expr, scope) {
            Err(Fault::Raised { .. }) if !strict || !is_plain(expr) => Fault::unsure("error_in_expression"),
            other => other,
        }
    }

    /// Every combination of rows that the FROM clause and the conditions admit.
    pub(super) fn found(&self, level: &Level<'_>, emit: Emit<'_>) -> Outcome<()> {
        let mut frame = Frame::new(level.select.relations.len());
        let locked = !level.select.locking.is_empty() && level.select.group.is_none();
        let mut admit = |frame: &mut Frame, certain: bool| -> Outcome<()> {
            let scope = Scope {
                frame,
                outer: level.outer,
            };
            let Some(filtered) = self.admits(&level.select.filter, &scope, level.strict)? else {
                return Ok(());
            };
            let certain = certain && filtered;
            if locked {
                return match self.relock(level, frame, certain)? {
                    Some(certain) => emit(frame, certain),
                    None => Ok(()),
                };
            }
            emit(frame, certain)
        };
        match &level.select.from {
            None => admit(&mut frame, true),
            Some(from) => self.from(level, from, &mut frame, true, &mut admit),
        }
    }

    /// FOR UPDATE and FOR SHARE: a row that changed since is looked at again in its newest version.
    fn relock(&self, level: &Level<'_>, frame: &mut Frame, mut certain: bool) -> Outcome<Option<bool>> {
        let mut changed = false;
        for lock in &level.select.locking {
            certain &= !lock.skip_locked;
            let RelationSource::Table(table) = level.select.relations[lock.relation].source else {
                continue;
            };
            let slot = &frame.slots[lock.relation];
            let Some(row) = &slot.row else { continue };
            match self.newest(table, slot.id, row) {
                Newest::Unchanged => {}
                Newest::Gone => return Ok(None),
                Newest::Changed(newest) => {
                    changed = true;
                    frame.slots[lock.relation].row = Some(newest);
                }
            }
        }
        if !changed {
            return Ok(Some(certain));
        }
        if !level.select.recheckable {
            return Fault::unsure("epq_join");
        }
        let scope = Scope {
            frame,
            outer: level.outer,
        };
        Ok(match self.admits(&level.select.recheck, &scope, false)? {
            Some(still) => Some(certain && still),
            // It was not locked: by the time that other rows were, it may have matched again.
            None if !self.finds_one_row(level.select) => Some(false),
            None => None,
        })
    }

    /// Whether no more than one row can be found.
    fn finds_one_row(&self, select: &Select) -> bool {
        let (Some(From::Scan(scan)), [relation]) = (&select.from, select.relations.as_slice()) else {
            return false;
        };
        match (&scan.access, &relation.source) {
            (Access::Lookup { columns, .. }, RelationSource::Table(table)) => {
                let table = self.views.snapshot.catalog().table(*table);
                table.is_some_and(|table| table.is_unique(columns))
            }
            _ => false,
        }
    }

    pub(super) fn newest(&self, table: TableId, id: RowId, row: &Row) -> Newest {
        if !self.views_differ() {
            return Newest::Unchanged;
        }
        match self.views.latest.row(table, id) {
            None => Newest::Gone,
            Some(newest) if Arc::ptr_eq(&newest, row) => Newest::Unchanged,
            Some(newest) => Newest::Changed(self.widen_row(table, newest)),
        }
    }

    /// Rows older than a column hold its `missing` value.
    fn widen_row(&self, table: TableId, row: Row) -> Row {
        match self.views.snapshot.catalog().table(table) {
            Some(table) if row.len() < table.columns.len() => {
                let missing = table.columns[row.len()..]
                    .iter()
                    .map(|column| column.missing.clone());
                row.iter().cloned().chain(missing).collect()
            }
            _ => row,
        }
    }

    fn from(
        &self,
        level: &Level<'_>,
        from: &From,
        frame: &mut Frame,
        certain: bool,
        emit: Emit<'_>,
    ) -> Outcome<()> {
        match from {
            From::Scan(scan) => self.scan(level, scan, frame, certain, emit),
            From::Inner(left, right) => self.from(level, left, frame, certain, &mut |frame, certain| {
                self.from(level, right, frame, certain, emit)
            }),
            From::Filter(inner, conditions) => {
                self.from(level, inner, frame, certain, &mut |frame, certain| {
                    let scope = Scope {
                        frame,
                        outer: level.outer,
                    };
                    match self.admits(conditions, &scope, level.strict)? {
                        Some(still) => emit(frame, certain && still),
                        None => Ok(()),
                    }
                })
            }
            From::Left {
                left,
                right,
                right_relations,
            } => self.from(level, left, frame, certain, &mut |frame, certain| {
                let (mut surely, mut maybe) = (false, false);
                let open_before = level.open.replace(false);
                self.from(level, right, frame, true, &mut |frame, matched| {
                    surely |= matched;
                    maybe |= !matched;
                    emit(frame, certain && matched)
                })?;
                let open = level.open.get();
                level.open.set(open || open_before);
                if surely {
                    return Ok(());
                }
                for relation in right_relations {
                    frame.slots[*relation] = Slot {
                        row: None,
                        id: RowId(0),
                    };
                }
                emit(frame, certain && !maybe && !open)
            }),
            From::Full {
                left,
                right,
                on,
                left_relations,
                right_relations,
            } => self.full_join(
                level,
                left,
                right,
                on,
                left_relations,
                right_relations,
                frame,
                certain,
                emit,
            ),
        }
    }

    fn full_join(
        &self,
        level: &Level<'_>,
        left: &From,
        right: &From,
        on: &[Expr],
        left_relations: &[usize],
        right_relations: &[usize],
        frame: &mut Frame,
        certain: bool,
        emit: Emit<'_>,
    ) -> Outcome<()> {
        let mut lefts: Vec<Vec<Slot>> = Vec::new();
        let mut rights: Vec<Vec<Slot>> = Vec::new();
        let mut all_certain = certain;
        self.from(level, left, frame, true, &mut |frame, certain| {
            all_certain &= certain;
            lefts.push(
                left_relations
                    .iter()
                    .map(|relation| frame.slots[*relation].clone())
                    .collect(),
            );
            Ok(())
        })?;
        self.from(level, right, frame, true, &mut |frame, certain| {
            all_certain &= certain;
            rights.push(
                right_relations
                    .iter()
                    .map(|relation| frame.slots[*relation].clone())
                    .collect(),
            );
            Ok(())
        })?;
        if !all_certain || level.open.get() {
            return Fault::unsure("full_join_over_unknown");
        }
        let empty = Slot {
            row: None,
            id: RowId(0),
        };
        let mut right_matched = vec![false; rights.len()];
        for slots in &lefts {
            for (relation, slot) in left_relations.iter().zip(slots) {
                frame.slots[*relation] = slot.clone();
            }
            let mut matched = false;
            for (place, other) in rights.iter().enumerate() {
                self.work(1)?;
                for (relation, slot) in right_relations.iter().zip(other) {
                    frame.slots[*relation] = slot.clone();
                }
                let scope = Scope {
                    frame,
                    outer: level.outer,
                };
                match self.admits(on, &scope, false)? {
                    None => {}
                    Some(true) => {
                        matched = true;
                        right_matched[place] = true;
                        emit(frame, true)?;
                    }
                    Some(false) => return Fault::unsure("full_join_over_unknown"),
                }
            }
            if !matched {
                for relation in right_relations {
                    frame.slots[*relation] = empty.clone();
                }
                emit(frame, true)?;
            }
        }
        for (place, other) in rights.iter().enumerate() {
            if right_matched[place] {
                continue;
            }
            for relation in left_relations {
                frame.slots[*relation] = empty.clone();
            }
            for (relation, slot) in right_relations.iter().zip(other) {
                frame.slots[*relation] = slot.clone();
            }
            emit(frame, true)?;
        }
        Ok(())
    }

    fn scan(
        &self,
        level: &Level<'_>,
        scan: &Scan,
        frame: &mut Frame,
        certain: bool,
        emit: Emit<'_>,
    ) -> Outcome<()> {
        let relation = &level.select.relations[scan.relation];
        let mut each = |frame: &mut Frame, id: RowId, row: &Row, sure: bool| -> Outcome<()> {
            frame.slots[scan.relation] = Slot {
                row: Some(row.clone()),
                id,
            };
            let scope = Scope {
                frame,
                outer: level.outer,
            };
            match self.admits(&scan.filter, &scope, level.strict)? {
                Some(admitted) => emit(frame, certain && sure && admitted),
                None => Ok(()),
            }
        };
        match &relation.source {
            RelationSource::Table(table) => {
                if level.first.is_some() || scan.bounds.is_some() {
                    let mut rows = |frame: &mut Frame, id: RowId, row: Row| {
                        let row = match row.len() < relation.width {
                            true => self.widen_row(*table, row),
                            false => row,
                        };
                        each(frame, id, &row, true)
                    };
                    if self.in_order(level, scan, *table, frame, &mut rows)? {
                        return Ok(());
                    }
                }
                let rows = self.table_rows(level, scan, *table, frame)?;
                self.work(rows.len() as u64 + 1)?;
                for (id, row) in rows.iter() {
                    if row.len() < relation.width {
                        let row = self.widen_row(*table, row.clone());
                        each(frame, *id, &row, true)?;
                    } else {
                        each(frame, *id, row, true)?;
                    }
                }
                Ok(())
            }
            RelationSource::Query(query) => {
                let derived = {
                    let scope = Scope {
                        frame,
                        outer: level.outer,
                    };
                    self.subquery(query, &scope)?
                };
                self.each_derived(level, &derived, frame, &mut each)
            }
            RelationSource::Cte(number) | RelationSource::Working(number) => {
                let derived = self.ctes.borrow().get(number).cloned();
                match derived {
                    Some(derived) => self.each_derived(level, &derived, frame, &mut each),
                    None => Fault::unsure("cte_order"),
                }
            }
            RelationSource::Function {
                function,
                arguments,
                ordinality,
            } => {
                let mut values = Vec::new();
                {
                    let scope = Scope {
                        frame,
                        outer: level.outer,
                    };
                    for argument in arguments {
                        values.push(self.eval(argument, &scope)?);
                    }
                }
                let items = self.set_function(*function, &values)?;
                for (place, item) in items.into_iter().enumerate() {
                    self.work(1)?;
                    let mut cells = vec![item];
                    if *ordinality {
                        cells.push(Value::Int8(place as i64 + 1));
                    }
                    each(frame, RowId(place as u64), &Row::from(cells), true)?;
                }
                Ok(())
            }
            RelationSource::Unknown => Fault::unsure("unknown_relation"),
        }
    }

    fn each_derived(
        &self,
        level: &Level<'_>,
        derived: &Derived,
        frame: &mut Frame,
        each: &mut dyn FnMut(&mut Frame, RowId, &Row, bool) -> Outcome<()>,
    ) -> Outcome<()> {
        if derived.open {
            level.open.set(true);
        }
        self.work(derived.rows.len() as u64 + 1)?;
        for (place, (row, sure)) in derived.rows.iter().enumerate() {
            each(frame, RowId(place as u64), row, *sure)?;
        }
        Ok(())
    }

    fn set_function(&self, function: SetFunction, values: &[Value]) -> Outcome<Vec<Value>> {
        if values.iter().any(Value::has_unknown) {
            return Fault::unsure("set_function_of_unknown");
        }
        if values.iter().any(Value::is_null) {
            return Ok(Vec::new());
        }
        match function {
            SetFunction::Unnest => match &values[0] {
                Value::Array(array) => Ok(array.items.clone()),
                _ => Fault::unsure("unnest"),
            },
            SetFunction::GenerateSeries => {
                let number = |value: &Value| match value {
                    Value::Int4(number) => Some(i64::from(*number)),
                    Value::Int8(number) => Some(*number),
                    _ => None,
                };
                let narrow = matches!(values[0], Value::Int4(_));
                let (Some(from), Some(to)) = (number(&values[0]), number(&values[1])) else {
                    return Fault::unsure("generate_series");
                };
                let step = values.get(2).map_or(Some(1), number).unwrap_or(0);
                if step == 0 {
                    return Err(Fault::Raised {
                        sqlstate: "22023".to_owned(),
                        message: "step size cannot equal zero".to_owned(),
                    });
                }
                let mut items = Vec::new();
                let mut at = from;
                while (step > 0 && at <= to) || (step < 0 && at >= to) {
                    items.push(if narrow {
                        Value::Int4(at as i32)
                    } else {
                        Value::Int8(at)
                    });
                    if items.len() > 1_000_000 {
                        return Fault::unsure("work_budget");
                    }
                    match at.checked_add(step) {
                        Some(next) => at = next,
                        None => break,
                    }
                }
                Ok(items)
            }
        }
    }

    /// Reads the rows between bounds, or the first ones in the order of a column; `false` if that is not possible.
    fn in_order(
        &self,
        level: &Level<'_>,
        scan: &Scan,
        table: TableId,
        frame: &mut Frame,
        each: &mut dyn FnMut(&mut Frame, RowId, Row) -> Outcome<()>,
    ) -> Outcome<bool> {
        let scope = Scope {
            frame,
            outer: level.outer,
        };
        let none: Arc<[usize]> = Arc::from([]);
        let (columns, exprs) = match &scan.access {
            Access::All => (&none, &[][..]),
            Access::Lookup { columns, key } => (columns, key.as_slice()),
            Access::AnyOf { .. } => return Ok(false),
        };
        let mut key: SmallVec<[Value; 4]> = SmallVec::new();
        for (expr, fit) in exprs {
            match fitted(self.eval(expr, &scope)?, *fit) {
                Fitted::Value(value) => key.push(value),
                Fitted::Nothing => return Ok(true),
                Fitted::Unknown => return Ok(false),
            }
        }
        // A bound that does not fit the column, or cannot be computed, bounds nothing: the condition decides.
        let bound = |side: Option<&(Expr, Fit)>| match side.map(|(expr, fit)| (self.eval(expr, &scope), *fit))
        {
            Some((Ok(value), fit)) => match fitted(value, fit) {
                Fitted::Value(value) => Bound::Included(value),
                _ => Bound::Unbounded,
            },
            _ => Bound::Unbounded,
        };
        let bounds = scan.bounds.as_ref();
        let first = level.first.as_ref();
        let Some(column) = first
            .map(|first| first.column)
            .or(bounds.map(|bounds| bounds.column))
        else {
            return Ok(false);
        };
        let mut range = Range {
            column,
            lower: bound(bounds.and_then(|bounds| bounds.lower.as_ref())),
            upper: bound(bounds.and_then(|bounds| bounds.upper.as_ref())),
            descending: first.is_some_and(|first| first.descending),
            enough: first.map_or(usize::MAX, |first| first.wanted.max(8)),
            goes_on: false,
        };
        if columns.is_empty() {
            self.touch_scan(table, self.row_filter(level, scan));
        } else {
            self.touch_key(table, columns, &key);
        }
        loop {
            let mut rows: Vec<(RowId, Row)> = Vec::new();
            let view = self.views.snapshot;
            let reached = view.range(table, columns, &key, &range, &mut |id, row| {
                rows.push((id, row.clone()));
            });
            if !reached.certain {
                level.open.set(true);
            }
            self.work(rows.len() as u64 + 1)?;
            for (id, row) in rows {
                each(frame, id, row)?;
            }
            let Some(last) = reached.last else { return Ok(true) };
            if first.is_some_and(|first| first.found.get() >= first.wanted) {
                return Ok(true);
            }
            match range.descending {
                true => range.upper = Bound::Excluded(last),
                false => range.lower = Bound::Excluded(last),
            }
            range.goes_on = true;
        }
    }

    /// The rows of a base table that the access path gives; also records what was read.
    fn table_rows(
        &self,
        level: &Level<'_>,
        scan: &Scan,
        table: TableId,
        frame: &Frame,
    ) -> Outcome<Rc<Vec<(RowId, Row)>>> {
        let view = self.views.snapshot;
        let scope = Scope {
            frame,
            outer: level.outer,
        };
        match &scan.access {
            Access::All => self.whole_table(level, scan, table),
            Access::Lookup { columns, key } => {
                let mut values = Vec::with_capacity(key.len());
                for (expr, fit) in key {
                    match fitted(self.eval(expr, &scope)?, *fit) {
                        Fitted::Value(value) => values.push(value),
                        Fitted::Nothing => return Ok(Rc::default()),
                        Fitted::Unknown => return self.whole_table(level, scan, table),
                    }
                }
                let mut rows = Vec::new();
                let sure = view.lookup(table, columns, &values, &mut |id, row| {
                    rows.push((id, row.clone()))
                });
                self.touch_key(table, columns, &values);
                if !sure {
                    level.open.set(true);
                }
                Ok(Rc::new(rows))
            }
            Access::AnyOf {
                column,
                values,
                array,
            } => {
                let columns: Arc<[usize]> = Arc::from([*column]);
                let mut keys: Vec<Value> = Vec::new();
                for (expr, fit) in values {
                    let value = self.eval(expr, &scope)?;
                    let items = match (array, value) {
                        (false, value) => vec![value],
                        (true, Value::Array(array)) => array.items.clone(),
                        (true, Value::Null) => Vec::new(),
                        (true, _) => return self.whole_table(level, scan, table),
                    };
                    for item in items {
                        match fitted(item, *fit) {
                            Fitted::Value(value) => {
                                let known = keys.iter().any(|other| total_order(other, &value).is_eq());
                                if !known {
                                    keys.push(value);
                                }
                            }
                            Fitted::Nothing => {}
                            Fitted::Unknown => return self.whole_table(level, scan, table),
                        }
                    }
                }
                let mut rows: Vec<(RowId, Row)> = Vec::new();
                for key in keys {
                    let key = [key];
                    let sure = view.lookup(table, &columns, &key, &mut |id, row| {
                        // A row with an unknown key comes with every lookup.
                        let repeated =
                            row[*column].has_unknown() && rows.iter().any(|(other, _)| *other == id);
                        if !repeated {
                            rows.push((id, row.clone()));
                        }
                    });
                    self.touch_key(table, &columns, &key);
                    if !sure {
                        level.open.set(true);
                    }
                }
                Ok(Rc::new(rows))
            }
        }
    }

    fn whole_table(&self, level: &Level<'_>, scan: &Scan, table: TableId) -> Outcome<Rc<Vec<(RowId, Row)>>> {
        let view = self.views.snapshot;
        if view.knowledge(table) == Knowledge::Partial {
            level.open.set(true);
        }
        let known = self.scans.borrow().get(&table).cloned();
        let rows = match known {
            Some(rows) => rows,
            None => {
                let mut rows = Vec::new();
                view.scan(table, &mut |id, row| rows.push((id, row.clone())));
                let rows = Rc::new(rows);
                self.scans.borrow_mut().insert(table, rows.clone());
                rows
            }
        };
        let filter = self.row_filter(level, scan);
        self.touch_scan(table, filter);
        Ok(rows)
    }

    /// The conditions on this relation alone, as something that can outlive the execution.
    fn row_filter(&self, level: &Level<'_>, scan: &Scan) -> Option<Arc<dyn Fn(&Row) -> bool + Send + Sync>> {
        if scan.own.is_empty() {
            return None;
        }
        let own = scan.own.clone();
        let bound: Arc<[Value]> = Arc::from(&*self.bound);
        let context = self.context.clone();
        let (place, count) = (scan.relation, level.select.relations.len());
        Some(Arc::new(move |row: &Row| {
            super::may_accept(&own, &bound, &context, place, count, row)
        }))
    }

    fn grouped(&self, level: &Level<'_>, group: &Group) -> Outcome<Output> {
        struct State {
            keys: Vec<Value>,
            sums: Vec<Sum>,
            certain: bool,
            /// A bit for each key that is in the state's grouping set.
            present: i64,
        }
        let mut order: Vec<State> = Vec::new();
        let mut places: FxHashMap<Vec<Key>, usize> = FxHashMap::default();
        let fresh = |keys: Vec<Value>, present: i64| State {
            keys,
            sums: group.aggregates.iter().map(|a| self.sum(a)).collect(),
            certain: false,
            present,
        };
        if group.plain {
            let mut state = fresh(Vec::new(), 0);
            state.certain = true;
            order.push(state);
        }
        // The empty grouping set has a row even of nothing.
        let empty = vec![Value::Null; group.keys.len()];
        for (number, _) in group.sets.iter().enumerate().filter(|(_, set)| set.is_empty()) {
            let hashed = in_set(number, &empty);
            places.insert(hashed, order.len());
            let mut state = fresh(empty.clone(), 0);
            state.certain = true;
            order.push(state);
        }
        self.found(level, &mut |frame, certain| {
            let scope = Scope {
                frame,
                outer: level.outer,
            };
            let mut keys = Vec::with_capacity(group.keys.len());
            for key in &group.keys {
                keys.push(self.target(key, &scope, level.strict && certain)?);
            }
            for (number, set) in group.sets.iter().enumerate() {
                let kept = |place: usize| set.contains(&place);
                let masked: Vec<Value> = keys
                    .iter()
                    .enumerate()
                    .map(|(place, key)| if kept(place) { key.clone() } else { Value::Null })
                    .collect();
                if masked.iter().any(Value::has_unknown) {
                    return Fault::unsure("group_by_unknown");
                }
                let place = *places.entry(in_set(number, &masked)).or_insert_with(|| {
                    let present = set.iter().fold(0, |bits, key| bits | 1 << key);
                    order.push(fresh(masked, present));
                    order.len() - 1
                });
                let state = &mut order[place];
                state.certain |= certain;
                for (aggregate, sum) in group.aggregates.iter().zip(&mut state.sums) {
                    self.add(aggregate, sum, &scope, certain, level.strict)?;
                }
            }
            if !group.sets.is_empty() {
                return Ok(());
            }
            let place = if group.plain {
                // Columns that depend on nothing but the keys exist here only by error of the query.
                if !keys.is_empty() && order[0].keys.is_empty() {
                    order[0].keys = keys;
                }
                0
            } else {
                if keys.iter().any(Value::has_unknown) {
                    return Fault::unsure("group_by_unknown");
                }
                let hashed: Vec<Key> = keys.iter().cloned().map(Key).collect();
                *places.entry(hashed).or_insert_with(|| {
                    order.push(fresh(keys, 0));
                    order.len() - 1
                })
            };
            let state = &mut order[place];
            state.certain |= certain;
            for (aggregate, sum) in group.aggregates.iter().zip(&mut state.sums) {
                self.add(aggregate, sum, &scope, certain, level.strict)?;
            }
            Ok(())
        })?;
        let open = level.open.get();
        let mut frames: Vec<(Frame, bool)> = Vec::new();
        for state in order {
            let mut grouped = state.keys;
            if group.plain && grouped.len() < group.keys.len() {
                grouped.resize(group.keys.len(), Value::Null);
            }
            for (aggregate, sum) in group.aggregates.iter().zip(state.sums) {
                grouped.push(if open {
                    Value::Unknown
                } else {
                    self.finish(aggregate, sum)?
                });
            }
            if !group.sets.is_empty() {
                grouped.push(Value::Int8(state.present));
            }
            let frame = Frame {
                slots: SmallVec::new(),
                grouped,
                windowed: Vec::new(),
            };
            let scope = Scope {
                frame: &frame,
                outer: level.outer,
            };
            let Some(admitted) = self.admits(&group.having, &scope, level.strict)? else {
                continue;
            };
            frames.push((frame, state.certain && admitted));
        }
        let doubtful = open && !group.plain;
        self.windows(&level.select.windows, &mut frames, level.outer, doubtful)?;
        let mut output = Output::default();
        for (frame, certain) in frames {
            let scope = Scope {
                frame: &frame,
                outer: level.outer,
            };
            let mut values = Vec::with_capacity(level.select.targets.len());
            for target in &level.select.targets {
                values.push(self.target(target, &scope, certain && level.strict)?);
            }
            output.rows.push(OutputRow {
                values,
                certain,
                sources: SmallVec::new(),
            });
        }
        if group.plain {
            // One row comes whatever the table holds.
            level.open.set(false);
        }
        Ok(output)
    }

    /// A level with window functions: all rows must be there before the first is answered.
    fn windowed(&self, level: &Level<'_>) -> Outcome<Output> {
        let mut frames: Vec<(Frame, bool)> = Vec::new();
        self.found(level, &mut |frame, certain| {
            frames.push((frame.clone(), certain));
            Ok(())
        })?;
        self.windows(&level.select.windows, &mut frames, level.outer, level.open.get())?;
        let mut output = Output::default();
        for (frame, certain) in frames {
            let scope = Scope {
                frame: &frame,
                outer: level.outer,
            };
            let mut values = Vec::with_capacity(level.select.targets.len());
            for target in &level.select.targets {
                values.push(self.target(target, &scope, certain && level.strict)?);
            }
            output.rows.push(OutputRow {
                values,
                certain,
                sources: sources(level.select, &frame),
            });
        }
        Ok(output)
    }

    fn sum(&self, aggregate: &Aggregate) -> Sum {
        let collation = aggregate.collation.unwrap_or(self.context.collation);
        Sum {
            running: aggregate
                .function
                .as_ref()
                .map(|function| Accumulator::new(function, collation)),
            unknown: aggregate.function.is_none(),
            rows: Vec::new(),
            seen: FxHashMap::default(),
            count: 0,
        }
    }

    fn add(
        &self,
        aggregate: &Aggregate,
        sum: &mut Sum,
        scope: &Scope<'_>,
        certain: bool,
        strict: bool,
    ) -> Outcome<()> {
        if let Some(filter) = &aggregate.filter {
            match self.target(filter, scope, false)? {
                Value::Bool(true) => {}
                Value::Unknown => {
                    sum.unknown = true;
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
        let mut arguments: SmallVec<[Value; 2]> = SmallVec::new();
        for argument in &aggregate.arguments {
            arguments.push(self.target(argument, scope, certain && strict)?);
        }
        if !certain || arguments.iter().any(Value::has_unknown) {
            sum.unknown = true;
        }
        if sum.unknown {
            return Ok(());
        }
        if aggregate.distinct {
            let key: Vec<Key> = arguments.iter().cloned().map(Key).collect();
            if sum.seen.insert(key, ()).is_some() {
                return Ok(());
            }
        }
        sum.count += 1;
        let Some(function) = &aggregate.function else {
            return Ok(());
        };
        if function.order_sensitive {
            let mut keys = Vec::new();
            for (expr, _, _) in &aggregate.order {
                keys.push(self.eval(expr, scope)?);
            }
            sum.rows.push((keys, arguments));
            return Ok(());
        }
        if let Some(running) = &mut sum.running {
            let added = running.add(&arguments, self.context).map(|()| Value::Null);
            if self.settle(added)?.is_unknown() {
                sum.unknown = true;
            }
        }
        Ok(())
    }

    fn finish(&self, aggregate: &Aggregate, mut sum: Sum) -> Outcome<Value> {
        if sum.unknown {
            return Ok(Value::Unknown);
        }
        let Some(mut running) = sum.running.take() else {
            return Ok(Value::Unknown);
        };
        if sum.rows.len() > 1 {
            // The input's order shows in the result: it must be total.
            let keys: Vec<SortKey> = aggregate
                .order
                .iter()
                .enumerate()
                .map(|(column, (_, descending, nulls_first))| SortKey {
                    column,
                    descending: *descending,
                    nulls_first: *nulls_first,
                    collation_is_c: self.context.collation == Collation::Bytes,
                })
                .collect();
            let unknown = Cell::new(keys.is_empty());
            sum.rows.sort_by(|(left, left_row), (right, right_row)| {
                for key in &keys {
                    match compare_for_sort(&left[key.column], &right[key.column], key, self.context.collation)
                    {
                        Some(Ordering::Equal) => {}
                        Some(ordering) => return ordering,
                        None => unknown.set(true),
                    }
                }
                let alike = left_row
                    .iter()
                    .zip(right_row)
                    .all(|(one, other)| same(one, other, Collation::Bytes) == Some(true));
                if !alike {
                    unknown.set(true);
                }
                Ordering::Equal
            });
            if unknown.get() {
                return Ok(Value::Unknown);
            }
        }
        for (_, arguments) in &sum.rows {
            let added = running.add(arguments, self.context).map(|()| Value::Null);
            self.settle(added)?;
        }
        let finished = self.settle(running.finish(self.context))?;
        if finished.is_unknown() {
            let function = aggregate.function.as_ref();
            let text =
                function.is_some_and(|f| f.arguments.iter().any(|t| [oid::TEXT, oid::BPCHAR].contains(t)));
            // Floats add up differently in every order; so may equal values that print differently.
            self.note(if text {
                "collation"
            } else {
                "aggregate_in_any_order"
            });
        }
        Ok(finished)
    }

    /// The query's ORDER BY leaves no choice (as far as its output tells).
    pub(super) fn has_total_order(&self, query: &Query) -> bool {
        !query.order.is_empty() && query.order.iter().any(|key| key.column < query.visible)
    }
}

/// The running value of an aggregate over one group.
struct Sum {
    running: Option<Accumulator>,
    unknown: bool,
    /// Rows that must be sorted before they are added.
    rows: Vec<(Vec<Value>, SmallVec<[Value; 2]>)>,
    seen: FxHashMap<Vec<Key>, ()>,
    count: u64,
}

pub(super) enum Newest {
    Unchanged,
    Changed(Row),
    Gone,
}

enum Fitted {
    Value(Value),
    /// No row can be equal to it.
    Nothing,
    Unknown,
}

/// Makes the value of a key comparable with its column.
fn fitted(value: Value, fit: Fit) -> Fitted {
    let number = |value: &Value| match value {
        Value::Int2(number) => Some(i64::from(*number)),
        Value::Int4(number) => Some(i64::from(*number)),
        Value::Int8(number) => Some(*number),
        _ => None,
    };
    match (&value, fit) {
        (Value::Null, _) => Fitted::Nothing,
        (value, _) if value.has_unknown() => Fitted::Unknown,
        (_, Fit::Same) => Fitted::Value(value),
        (_, Fit::Integer(target)) => {
            let Some(number) = number(&value) else {
                return Fitted::Unknown;
            };
            let fitted = match target {
                oid::INT2 => i16::try_from(number).ok().map(Value::Int2),
                oid::INT4 => i32::try_from(number).ok().map(Value::Int4),
                _ => Some(Value::Int8(number)),
            };
            fitted.map_or(Fitted::Nothing, Fitted::Value)
        }
        (Value::Text(text), Fit::Pad(length)) => {
            let trimmed = text.trim_end_matches(' ');
            let count = trimmed.chars().count();
            if count > length {
                return Fitted::Nothing;
            }
            let padded = format!("{trimmed}{}", " ".repeat(length - count));
            Fitted::Value(Value::Text(Arc::from(padded)))
        }
        _ => Fitted::Unknown,
    }
}

pub(super) fn sources(select: &Select, frame: &Frame) -> SmallVec<[(TableId, RowId); 1]> {
    select
        .relations
        .iter()
        .zip(&frame.slots)
        .map(|(relation, slot)| match relation.source {
            RelationSource::Table(table) if slot.row.is_some() => (table, slot.id),
            _ => (TableId(0), RowId(0)),
        })
        .collect()
}

/// The key of a group in one of several grouping sets.
fn in_set(number: usize, keys: &[Value]) -> Vec<Key> {
    let set = Key(Value::Int8(number as i64));
    std::iter::once(set)
        .chain(keys.iter().cloned().map(Key))
        .collect()
}

pub(super) fn compare_for_sort(
    left: &Value,
    right: &Value,
    key: &SortKey,
    default: Collation,
) -> Option<Ordering> {
    if left.has_unknown() || right.has_unknown() {
        return None;
    }
    match (left.is_null(), right.is_null()) {
        (true, true) => return Some(Ordering::Equal),
        (true, false) => {
            return Some(if key.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            });
        }
        (false, true) => {
            return Some(if key.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            });
        }
        (false, false) => {}
    }
    let collation = match key.collation_is_c {
        true => Collation::Bytes,
        false if default == Collation::Bytes => Collation::Deterministic,
        false => default,
    };
    let ordering = sort_compare(left, right, collation)?;
    Some(if key.descending {
        ordering.reverse()
    } else {
        ordering
    })
}

/// DISTINCT and UNION: equal rows become one. A row with an unknown cell may be equal to another one.
fn distinct(rows: Vec<OutputRow>) -> Vec<OutputRow> {
    let mut places: FxHashMap<Vec<Key>, usize> = FxHashMap::default();
    let mut kept: Vec<OutputRow> = Vec::new();
    for mut row in rows {
        if row.values.iter().any(Value::has_unknown) {
            row.certain = false;
            kept.push(row);
            continue;
        }
        let key: Vec<Key> = row.values.iter().cloned().map(Key).collect();
        match places.get(&key) {
            Some(place) => {
                kept[*place].certain |= row.certain;
                kept[*place].sources.clear();
            }
            None => {
                places.insert(key, kept.len());
                kept.push(row);
            }
        }
    }
    kept
}

/// DISTINCT ON: of the rows that agree on some columns, the first in the order.
fn distinct_on(output: &mut Output, places: &[usize]) -> Outcome<()> {
    if output.open
        || output
            .rows
            .iter()
            .any(|row| !row.certain || places.iter().any(|place| row.values[*place].has_unknown()))
    {
        return Fault::unsure("distinct_on_unknown");
    }
    let mut firsts: FxHashMap<Vec<Key>, (usize, usize)> = FxHashMap::default();
    let mut kept: Vec<OutputRow> = Vec::new();
    let mut start = 0;
    for (tie, end) in output.ends.iter().enumerate() {
        for row in &output.rows[start..*end] {
            let key: Vec<Key> = places
                .iter()
                .map(|place| Key(row.values[*place].clone()))
                .collect();
            match firsts.get(&key) {
                None => {
                    firsts.insert(key, (tie, kept.len()));
                    kept.push(row.clone());
                }
                Some((other_tie, place)) if *other_tie == tie => {
                    // Either of them may be the first.
                    let first = &mut kept[*place];
                    first.sources.clear();
                    for (one, other) in first.values.iter_mut().zip(&row.values) {
                        if same(one, other, Collation::Bytes) != Some(true) {
                            *one = Value::Unknown;
                        }
                    }
                }
                Some(_) => {}
            }
        }
        start = *end;
    }
    output.rows = kept;
    Ok(())
}

/// LIMIT inside a statement: rows of a tie that is cut through may or may not be there.
fn cut_loosely(
    rows: Vec<OutputRow>,
    ends: &[usize],
    cutting: Cutting,
    with_ties: bool,
    open: bool,
) -> Outcome<Vec<OutputRow>> {
    if cutting.offset == 0 && cutting.limit.is_none() {
        return Ok(rows);
    }
    let unsure = open || rows.iter().any(|row| !row.certain);
    let first = cutting.offset as usize;
    let last = cutting
        .limit
        .map_or(usize::MAX, |limit| first.saturating_add(limit as usize));
    if unsure {
        if cutting.limit == Some(0) {
            return Ok(Vec::new());
        }
        return Ok(rows
            .into_iter()
            .map(|row| OutputRow {
                certain: false,
                ..row
            })
            .collect());
    }
    let mut kept = Vec::new();
    let mut start = 0;
    let mut rows = rows.into_iter();
    for end in ends {
        let group: Vec<OutputRow> = rows.by_ref().take(end - start).collect();
        // WITH TIES: who sorts like the last one comes, too.
        let last = if with_ties && start < last {
            last.max(*end)
        } else {
            last
        };
        let inside = (*end).min(last).saturating_sub(start.max(first));
        if inside == group.len() {
            kept.extend(group);
        } else if inside > 0 {
            kept.extend(group.into_iter().map(|row| OutputRow {
                certain: false,
                ..row
            }));
        }
        start = *end;
    }
    Ok(kept)
}
