//! Window functions over the rows of one query level.
//!
//! In: all rows of a level (or its groups), as frames. Out: the same frames, each with the values of its windows.
//!
//! Always true: where rows sort alike and the value depends on which of them comes first, it is unknown.
//!
//! Source: PostgreSQL manual, «Window Functions» and «Window Function Calls».

use super::query::{compare_for_sort, ends, sorted};
use super::run::{Fault, Frame, Outcome, Run, Scope};
use crate::sql::plan::{Aggregate, Bound, Expr, FrameMode, Window, WindowFunction};
use crate::value::{Accumulator, Key, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Rows of one partition in their order.
struct Partition {
    /// Indexes of the frames.
    rows: Vec<usize>,
    /// For each row the first of those that sort like it, and the one behind the last of them.
    peers: Vec<(usize, usize)>,
    /// Number of the group of peers of each row, and where each group begins.
    group: Vec<usize>,
    starts: Vec<usize>,
}

impl Partition {
    fn has_ties(&self) -> bool {
        self.starts.len() < self.rows.len()
    }
}

impl Run<'_> {
    /// Computes every window for every frame. Nothing is known of them where rows are missing or doubtful.
    pub(super) fn windows(
        &self,
        windows: &[Window],
        frames: &mut [(Frame, bool)],
        outer: Option<&Scope<'_>>,
        open: bool,
    ) -> Outcome<()> {
        if windows.is_empty() {
            return Ok(());
        }
        let doubtful = open || frames.iter().any(|(_, certain)| !certain);
        let mut columns = Vec::new();
        for window in windows {
            columns.push(match doubtful {
                true => None,
                false => self.window(window, frames, outer)?,
            });
        }
        if columns.iter().any(Option::is_none) {
            self.note("window_over_unknown");
        }
        for (place, (frame, _)) in frames.iter_mut().enumerate() {
            let value = |column: &Option<Vec<Value>>| match column {
                Some(values) => values[place].clone(),
                None => Value::Unknown,
            };
            frame.windowed = columns.iter().map(value).collect();
        }
        Ok(())
    }

    /// The value of one window for each frame; `None` if nothing is known of it.
    fn window(
        &self,
        window: &Window,
        frames: &[(Frame, bool)],
        outer: Option<&Scope<'_>>,
    ) -> Outcome<Option<Vec<Value>>> {
        self.work(frames.len() as u64 + 1)?;
        let at = |place: usize| Scope {
            frame: &frames[place].0,
            outer,
        };
        let mut partitions: FxHashMap<Vec<Key>, usize> = FxHashMap::default();
        let mut members: Vec<Vec<usize>> = Vec::new();
        for place in 0..frames.len() {
            let mut key = Vec::with_capacity(window.partition.len());
            for expr in &window.partition {
                let value = self.target(expr, &at(place), false)?;
                if value.has_unknown() {
                    return Ok(None);
                }
                key.push(Key(value));
            }
            let partition = *partitions.entry(key).or_insert_with(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            members[partition].push(place);
        }
        let mut values = vec![Value::Unknown; frames.len()];
        for rows in members {
            let Some(partition) = self.partition(window, rows, &at)? else {
                return Ok(None);
            };
            self.over(window, &partition, &at, &mut values)?;
        }
        Ok(Some(values))
    }

    /// Sorts the rows of a partition; `None` if their order is not known.
    fn partition<'s>(
        &self,
        window: &Window,
        rows: Vec<usize>,
        at: &dyn Fn(usize) -> Scope<'s>,
    ) -> Outcome<Option<Partition>> {
        let mut keyed: Vec<(Vec<Value>, usize)> = Vec::with_capacity(rows.len());
        for row in rows {
            let mut keys = Vec::with_capacity(window.order.len());
            for order in &window.order {
                keys.push(self.target(&order.expr, &at(row), false)?);
            }
            keyed.push((keys, row));
        }
        let compare = |(left, _): &(Vec<Value>, usize), (right, _): &(Vec<Value>, usize)| {
            for (order, (one, other)) in window.order.iter().zip(left.iter().zip(right)) {
                match compare_for_sort(one, other, &order.key, self.context.collation)? {
                    Ordering::Equal => {}
                    ordering => return Some(ordering),
                }
            }
            Some(Ordering::Equal)
        };
        let Some(keyed) = sorted(keyed, &compare) else {
            return Ok(None);
        };
        let mut starts = vec![0];
        let ends = ends(&keyed, &compare);
        starts.extend(ends.iter().filter(|end| **end < keyed.len()));
        let mut peers = Vec::with_capacity(keyed.len());
        let mut group = Vec::with_capacity(keyed.len());
        for (number, start) in starts.iter().enumerate() {
            let end = starts.get(number + 1).copied().unwrap_or(keyed.len());
            for _ in *start..end {
                peers.push((*start, end));
                group.push(number);
            }
        }
        Ok(Some(Partition {
            rows: keyed.into_iter().map(|(_, row)| row).collect(),
            peers,
            group,
            starts,
        }))
    }

    fn over<'s>(
        &self,
        window: &Window,
        partition: &Partition,
        at: &dyn Fn(usize) -> Scope<'s>,
        values: &mut [Value],
    ) -> Outcome<()> {
        let total = partition.rows.len();
        let value_at = |expr: &Expr, place: usize| self.target(expr, &at(partition.rows[place]), false);
        for place in 0..total {
            let row = partition.rows[place];
            let (first, last) = partition.peers[place];
            // Where it stands among those that sort alike is open, and with it the frame that counts rows.
            let whole = matches!(
                (&window.frame.start, &window.frame.end),
                (Bound::First, Bound::Last)
            );
            let moves = last - first > 1 && window.frame.mode == FrameMode::Rows && !whole;
            values[row] = match &window.function {
                // Which of the rows that sort alike comes first is for the server to choose.
                WindowFunction::RowNumber if last - first > 1 => Value::Unknown,
                WindowFunction::RowNumber => Value::Int8(place as i64 + 1),
                WindowFunction::Rank => Value::Int8(first as i64 + 1),
                WindowFunction::DenseRank => Value::Int8(partition.group[place] as i64 + 1),
                WindowFunction::PercentRank if total == 1 => Value::Float8(0.0),
                WindowFunction::PercentRank => Value::Float8(first as f64 / (total - 1) as f64),
                WindowFunction::CumeDist => Value::Float8(last as f64 / total as f64),
                WindowFunction::Ntile(buckets) => match value_at(buckets, 0)? {
                    Value::Null => Value::Null,
                    Value::Int4(buckets) if buckets > 0 => {
                        let number = |place: usize| bucket(place, total, buckets as usize);
                        match number(first) == number(last - 1) {
                            true => Value::Int4(number(place) as i32),
                            false => Value::Unknown,
                        }
                    }
                    Value::Int4(_) => return raised("22014", "argument of ntile must be greater than zero"),
                    _ => Value::Unknown,
                },
                WindowFunction::Shifted {
                    value,
                    offset,
                    default,
                    back,
                } => {
                    let offset = match offset {
                        Some(offset) => value_at(offset, place)?,
                        None => Value::Int4(1),
                    };
                    match offset {
                        Value::Null => Value::Null,
                        Value::Int4(offset) if !partition.has_ties() => {
                            let offset = if *back {
                                -i64::from(offset)
                            } else {
                                i64::from(offset)
                            };
                            let wanted = place as i64 + offset;
                            match (usize::try_from(wanted).ok().filter(|w| *w < total), default) {
                                (Some(wanted), _) => value_at(value, wanted)?,
                                (None, Some(default)) => value_at(default, place)?,
                                (None, None) => Value::Null,
                            }
                        }
                        _ => Value::Unknown,
                    }
                }
                WindowFunction::First(value) | WindowFunction::Last(value) => {
                    match self.frame(window, partition, place, at)? {
                        Some((start, end)) if start >= end && !moves => Value::Null,
                        Some((start, end)) if !partition.has_ties() => {
                            let is_first = matches!(window.function, WindowFunction::First(_));
                            value_at(value, if is_first { start } else { end - 1 })?
                        }
                        _ => Value::Unknown,
                    }
                }
                WindowFunction::Nth(value, number) => {
                    match (
                        value_at(number, place)?,
                        self.frame(window, partition, place, at)?,
                    ) {
                        (Value::Null, _) => Value::Null,
                        (Value::Int4(number), _) if number <= 0 => {
                            return raised("22016", "argument of nth_value must be greater than zero");
                        }
                        (Value::Int4(number), Some((start, end))) if !partition.has_ties() => {
                            let wanted = start + number as usize - 1;
                            match wanted < end {
                                true => value_at(value, wanted)?,
                                false => Value::Null,
                            }
                        }
                        _ => Value::Unknown,
                    }
                }
                WindowFunction::Aggregate(_) if moves => Value::Unknown,
                WindowFunction::Aggregate(aggregate) => {
                    let same_as_before = place > 0
                        && window.frame.mode != FrameMode::Rows
                        && partition.group[place] == partition.group[place - 1];
                    if same_as_before {
                        values[partition.rows[place - 1]].clone()
                    } else {
                        match self.frame(window, partition, place, at)? {
                            Some((start, end)) => {
                                self.windowed_sum(aggregate, window, partition, start, end, at)?
                            }
                            None => Value::Unknown,
                        }
                    }
                }
            };
        }
        if partition.has_ties() && values.iter().any(Value::is_unknown) {
            // Which rows the server computes it on depends on their order, and so does what fails.
            self.any_error.set(true);
        }
        Ok(())
    }

    /// The rows of the frame of a row, from and up to; `None` if its bounds are not known.
    fn frame<'s>(
        &self,
        window: &Window,
        partition: &Partition,
        place: usize,
        at: &dyn Fn(usize) -> Scope<'s>,
    ) -> Outcome<Option<(usize, usize)>> {
        let total = partition.rows.len() as i64;
        let mode = window.frame.mode;
        // Where a group of peers begins; with rows as the unit every row is a group.
        let begins = |group: i64| match mode {
            FrameMode::Rows => group.clamp(0, total),
            _ if group < 0 => 0,
            _ => partition
                .starts
                .get(group as usize)
                .map_or(total, |start| *start as i64),
        };
        let current = match mode {
            FrameMode::Rows => place as i64,
            _ => partition.group[place] as i64,
        };
        let bound = |bound: &Bound, is_end: bool| -> Outcome<Option<i64>> {
            let offset = |expr: &Expr| -> Outcome<Option<i64>> {
                match self.target(expr, &at(partition.rows[place]), false)? {
                    Value::Int8(offset) if offset >= 0 => Ok(Some(offset)),
                    Value::Int8(_) => raised("22013", "frame offset must not be negative"),
                    Value::Null => raised("22004", "frame offset must not be null"),
                    _ => Ok(None),
                }
            };
            let group = match bound {
                Bound::First => return Ok(Some(0)),
                Bound::Last => return Ok(Some(total)),
                Bound::Current => current,
                Bound::Before(expr) => match offset(expr)? {
                    Some(offset) => current.saturating_sub(offset),
                    None => return Ok(None),
                },
                Bound::After(expr) => match offset(expr)? {
                    Some(offset) => current.saturating_add(offset),
                    None => return Ok(None),
                },
            };
            Ok(Some(begins(group.saturating_add(i64::from(is_end)))))
        };
        let (Some(start), Some(end)) = (
            bound(&window.frame.start, false)?,
            bound(&window.frame.end, true)?,
        ) else {
            return Ok(None);
        };
        Ok(Some((start as usize, end as usize)))
    }

    fn windowed_sum<'s>(
        &self,
        aggregate: &Aggregate,
        window: &Window,
        partition: &Partition,
        start: usize,
        end: usize,
        at: &dyn Fn(usize) -> Scope<'s>,
    ) -> Outcome<Value> {
        let whole = start == 0 && end >= partition.rows.len();
        let by_rows = window.frame.mode == FrameMode::Rows && !whole;
        let Some(function) = &aggregate.function else {
            return Ok(Value::Unknown);
        };
        if partition.has_ties() && (by_rows || function.order_sensitive) {
            return Ok(Value::Unknown);
        }
        let collation = aggregate.collation.unwrap_or(self.context.collation);
        let mut running = Accumulator::new(function, collation);
        self.work((end.saturating_sub(start)) as u64)?;
        for place in start..end {
            let scope = at(partition.rows[place]);
            if let Some(filter) = &aggregate.filter {
                match self.target(filter, &scope, false)? {
                    Value::Bool(true) => {}
                    Value::Unknown => return Ok(Value::Unknown),
                    _ => continue,
                }
            }
            let mut arguments: SmallVec<[Value; 2]> = SmallVec::new();
            for argument in &aggregate.arguments {
                arguments.push(self.target(argument, &scope, false)?);
            }
            if arguments.iter().any(Value::has_unknown) {
                return Ok(Value::Unknown);
            }
            let added = running.add(&arguments, self.context).map(|()| Value::Null);
            if self.settle(added)?.is_unknown() {
                return Ok(Value::Unknown);
            }
        }
        self.settle(running.finish(self.context))
    }
}

/// The bucket of a row: the first ones hold one row more where they cannot be equal.
fn bucket(place: usize, total: usize, buckets: usize) -> usize {
    let (size, larger) = (total / buckets, total % buckets);
    let in_larger = larger * (size + 1);
    match place < in_larger {
        true => place / (size + 1) + 1,
        false => larger + (place - in_larger) / size.max(1) + 1,
    }
}

fn raised<T>(sqlstate: &str, message: &str) -> Outcome<T> {
    Err(Fault::Raised {
        sqlstate: sqlstate.to_owned(),
        message: message.to_owned(),
    })
}
