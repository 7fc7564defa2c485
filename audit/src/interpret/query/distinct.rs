//! DISTINCT and DISTINCT ON.

use super::{Output, OutputRow};
use crate::interpret::run::{Fault, Outcome};
use crate::value::compare::same;
use crate::value::{Collation, Key, Value};
use rustc_hash::FxHashMap;

/// DISTINCT and UNION: equal rows become one. A row with an unknown cell may be equal to another one.
pub(super) fn distinct(rows: Vec<OutputRow>) -> Vec<OutputRow> {
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
pub(super) fn distinct_on(output: &mut Output, places: &[usize]) -> Outcome<()> {
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
