//! GROUP BY and HAVING: one row per group, for each grouping set.

use super::aggregate::Sum;
use super::{Level, Output};
use crate::interpret::run::{Fault, Frame, Outcome, Run, Scope};
use crate::sql::plan::Group;
use crate::value::{Key, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

impl Run<'_> {
    pub(super) fn grouped(&self, level: &Level<'_>, group: &Group) -> Outcome<Output> {
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
        let output = self.projected(level, frames, |_| SmallVec::new())?;
        if group.plain {
            // One row comes whatever the table holds.
            level.open.set(false);
        }
        Ok(output)
    }
}

/// The key of a group in one of several grouping sets.
pub(super) fn in_set(number: usize, keys: &[Value]) -> Vec<Key> {
    let set = Key(Value::Int8(number as i64));
    std::iter::once(set)
        .chain(keys.iter().cloned().map(Key))
        .collect()
}
