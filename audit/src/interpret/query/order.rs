//! ORDER BY: rows sorted, with their ties; and the first rows of an order, read without the others.

use super::scan::{Fitted, fitted};
use super::{Level, Output, OutputRow};
use crate::interpret::Cut;
use crate::interpret::run::{Frame, Outcome, Run, Scope};
use crate::sql::plan::{
    Access, Distinct, Expr, Fit, From, Query, RelationSource, Scan, Select, SortKey, is_ordered,
};
use crate::state::index::Range;
use crate::state::{Row, RowId, TableId};
use crate::value::compare::{identical, sort_compare, total_order};
use crate::value::{Collation, Value};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// ORDER BY … LIMIT over one table whose rows can be read in that order.
pub(in crate::interpret) struct First {
    pub(super) column: usize,
    pub(super) descending: bool,
    pub(super) wanted: usize,
    /// Where the rows are in the order that were found for certain so far.
    pub(super) found: RefCell<Vec<Value>>,
}

impl First {
    /// A row was found for certain.
    pub(super) fn note(&self, row: &Row) {
        let value = row.get(self.column).cloned();
        self.found.borrow_mut().push(value.unwrap_or(Value::Unknown));
    }

    /// Whether two versions of a row are at the same place.
    pub(super) fn is_in_place(&self, one: &Row, other: &Row) -> bool {
        match (one.get(self.column), other.get(self.column)) {
            (Some(one), Some(other)) => identical(one, other) == Some(true),
            _ => false,
        }
    }

    /// Behind which place in the order nothing matters any more, if enough rows were found before it.
    fn cut(&self) -> Option<Cut> {
        let found = self.found.borrow();
        let mut places: Vec<&Value> = found.iter().filter(|value| !value.has_unknown()).collect();
        places.sort_by(|one, other| match self.descending {
            true => total_order(other, one),
            false => total_order(one, other),
        });
        let last = places.get(self.wanted.max(1) - 1)?;
        Some(Cut {
            column: self.column,
            last: (*last).clone(),
            descending: self.descending,
        })
    }

    /// Whether there are enough of them up to `last`: those of the transaction itself come before their turn.
    fn is_enough(&self, last: &Value) -> bool {
        let is_reached = |value: &&Value| match total_order(value, last) {
            Ordering::Equal => true,
            Ordering::Less => !self.descending && !value.is_unknown(),
            Ordering::Greater => self.descending && !value.is_unknown(),
        };
        self.found.borrow().iter().filter(is_reached).count() >= self.wanted
    }
}

impl Run<'_> {
    /// Puts rows in order as far as the order is known.
    pub(super) fn sort(&self, output: &mut Output, order: &[SortKey]) {
        let count = output.rows.len();
        if order.is_empty() || count <= 1 {
            output.ends = vec![count];
            return;
        }
        let mut keys = order.len();
        let places;
        // The first key that cannot be compared ends the known order.
        loop {
            let compare = |left: &usize, right: &usize| -> Option<Ordering> {
                for key in &order[..keys] {
                    let (one, other) = (
                        &output.rows[*left].values[key.column],
                        &output.rows[*right].values[key.column],
                    );
                    match compare_for_sort(one, other, key, self.context.collation) {
                        Some(Ordering::Equal) => {}
                        Some(ordering) => return Some(ordering),
                        None => {
                            if !one.has_unknown() && !other.has_unknown() {
                                self.note("collation");
                            }
                            return None;
                        }
                    }
                }
                Some(Ordering::Equal)
            };
            let Some(sorted) = sorted((0..count).collect(), &compare) else {
                keys -= 1;
                continue;
            };
            output.ends = ends(&sorted, &compare);
            places = sorted;
            break;
        }
        let mut taken: Vec<Option<OutputRow>> =
            std::mem::take(&mut output.rows).into_iter().map(Some).collect();
        output.rows = places
            .into_iter()
            .filter_map(|place| taken[place].take())
            .collect();
    }

    /// Whether it is enough to look at the first rows in the order of a column.
    pub(super) fn first(
        &self,
        query: &Query,
        select: &Select,
        outer: Option<&Scope<'_>>,
    ) -> Outcome<Option<First>> {
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
            // A row that changed since it was found is looked at again, and may then be elsewhere in the order.
            && (select.locking.is_empty() || !self.views_differ() || query.order.len() == 1);
        if !is_ordered || !is_plain {
            return Ok(None);
        }
        let cutting = self.cutting(query, outer)?;
        Ok(cutting.limit.map(|limit| First {
            column,
            descending: key.descending,
            wanted: cutting.offset.saturating_add(limit) as usize,
            found: RefCell::default(),
        }))
    }

    /// Reads the rows between bounds, or the first ones in the order of a column; `false` if that is not possible.
    pub(super) fn in_order(
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
            match fitted(self.key(level, expr, &scope)?, *fit) {
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
        let range = Range {
            column,
            lower: bound(bounds.and_then(|bounds| bounds.lower.as_ref())),
            upper: bound(bounds.and_then(|bounds| bounds.upper.as_ref())),
            descending: first.is_some_and(|first| first.descending),
            // What is read beyond what is wanted may raise questions that nobody has.
            enough: first.map_or(usize::MAX, |first| first.wanted.max(1)),
            goes_on: false,
        };
        let read = self.read_range(level, table, columns, &key, range, frame, each);
        if columns.is_empty() {
            self.touch_scan(table, self.row_filter(level, scan));
        } else {
            let cut = first.filter(|_| read.is_ok()).and_then(First::cut);
            self.touch_key_until(table, columns, &key, cut);
        }
        read.map(|()| true)
    }

    /// Reads rows in order until there are enough of them.
    fn read_range(
        &self,
        level: &Level<'_>,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        mut range: Range,
        frame: &mut Frame,
        each: &mut dyn FnMut(&mut Frame, RowId, Row) -> Outcome<()>,
    ) -> Outcome<()> {
        loop {
            let mut rows: Vec<(RowId, Row)> = Vec::new();
            let view = self.views.snapshot;
            let reached = view.range(table, columns, key, &range, &mut |id, row| {
                rows.push((id, row.clone()));
            });
            if !reached.certain {
                level.open.set(true);
            }
            self.work(rows.len() as u64 + 1)?;
            for (id, row) in rows {
                each(frame, id, row)?;
            }
            let Some(last) = reached.last else { return Ok(()) };
            if level.first.as_ref().is_some_and(|first| first.is_enough(&last)) {
                return Ok(());
            }
            range.enough = range.enough.saturating_mul(2).max(8);
            match range.descending {
                true => range.upper = Bound::Excluded(last),
                false => range.lower = Bound::Excluded(last),
            }
            range.goes_on = true;
        }
    }

    /// The query's ORDER BY leaves no choice (as far as its output tells).
    pub(in crate::interpret) fn has_total_order(&self, query: &Query) -> bool {
        !query.order.is_empty() && query.order.iter().any(|key| key.column < query.visible)
    }
}

/// Sorts, keeping the order of what is equal; `None` as soon as two cannot be compared. Where some pairs can be
/// compared and others cannot there is no total order, which the standard library's sort would not forgive.
pub(in crate::interpret) fn sorted<T>(
    mut items: Vec<T>,
    compare: &impl Fn(&T, &T) -> Option<Ordering>,
) -> Option<Vec<T>> {
    let count = items.len();
    if count <= 1 {
        return Some(items);
    }
    let right = items.split_off(count / 2);
    let mut left = sorted(items, compare)?.into_iter().peekable();
    let mut right = sorted(right, compare)?.into_iter().peekable();
    let mut merged = Vec::with_capacity(count);
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        let from = match compare(one, other)? {
            Ordering::Greater => &mut right,
            _ => &mut left,
        };
        merged.extend(from.next());
    }
    merged.extend(left);
    merged.extend(right);
    Some(merged)
}

/// Where one group of equals ends and the next begins, in what was sorted by this comparison.
pub(in crate::interpret) fn ends<T>(
    sorted: &[T],
    compare: &impl Fn(&T, &T) -> Option<Ordering>,
) -> Vec<usize> {
    let differ = |place: &usize| compare(&sorted[place - 1], &sorted[*place]) != Some(Ordering::Equal);
    let inner = (1..sorted.len()).filter(differ);
    inner
        .chain((!sorted.is_empty()).then_some(sorted.len()))
        .collect()
}

pub(in crate::interpret) fn compare_for_sort(
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

#[cfg(test)]
mod tests {
    use super::{ends, sorted};
    use std::cmp::Ordering;

    #[test]
    fn what_cannot_be_compared_is_not_sorted() {
        let numbers: Vec<i32> = (0..60).map(|n| n * 37 % 50).collect();
        let by_tens = |one: &i32, other: &i32| Some((one / 10).cmp(&(other / 10)));
        let mut expected = numbers.clone();
        expected.sort_by_key(|n| n / 10);
        let result = sorted(numbers.clone(), &by_tens);
        assert_eq!(result.as_ref(), Some(&expected));
        assert_eq!(ends(&expected, &by_tens).len(), 5);
        // Some pairs can be compared, their neighbours cannot: no order, and no panic.
        let partly = |one: &i32, other: &i32| match (one - other) % 3 {
            0 => None,
            1 => Some(Ordering::Less),
            _ => Some(Ordering::Greater),
        };
        assert_eq!(sorted(numbers, &partly), None);
    }
}
