//! What the statements of a routine came to, one after the other.
//!
//! In: the outcome of each statement that looks at tables. Out: a number that two runs share only if they have come to the
//! same state, whatever they were told about the order of commits on the way.
//!
//! Always true: what lies between two statements depends on nothing but what the statements came to.

use crate::interpret::Effect;
use crate::interpret::write::Written;
use crate::value::Value;
use crate::value::compare::hash_value;
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The instants that the routines of a statement take, and the way they have gone.
#[derive(Default)]
pub(in crate::interpret) struct Path {
    /// How many instants have passed.
    pub(super) instants: Cell<u32>,
    /// What the statements came to since a question was first asked: until then all runs are the same.
    so_far: Cell<u64>,
    /// A condition was not known: more than one way is gone.
    pub(super) forked: Cell<bool>,
}

impl Path {
    pub(super) fn go_on(&self, outcome: DefaultHasher) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.so_far.get().hash(&mut hasher);
        self.instants.get().hash(&mut hasher);
        outcome.finish().hash(&mut hasher);
        self.so_far.set(hasher.finish());
        self.so_far.get()
    }
}

/// What a statement gives to the routine.
pub(super) trait Come {
    fn hash(&self, hasher: &mut DefaultHasher);
}

impl Come for Option<Vec<Vec<Value>>> {
    fn hash(&self, hasher: &mut DefaultHasher) {
        self.as_ref().map(Vec::len).hash(hasher);
        self.iter().flatten().for_each(|row| hash_row(row, hasher));
    }
}

impl Come for Written {
    fn hash(&self, hasher: &mut DefaultHasher) {
        (self.min, self.max, self.rows.len()).hash(hasher);
        for row in &self.rows {
            row.certain.hash(hasher);
            hash_row(&row.values, hasher);
        }
    }
}

pub(super) fn hash_effect(effect: &Effect, hasher: &mut DefaultHasher) {
    std::mem::discriminant(effect).hash(hasher);
    match effect {
        Effect::Insert { table, row } => {
            table.hash(hasher);
            hash_row(row, hasher);
        }
        Effect::Update { table, id, after, .. } | Effect::Perhaps { table, id, after, .. } => {
            (table, id).hash(hasher);
            hash_row(after, hasher);
        }
        Effect::Delete { table, id, .. } => (table, id).hash(hasher),
        Effect::Absent { table, columns, key } => {
            (table, columns).hash(hasher);
            hash_row(key, hasher);
        }
        Effect::Drawn { sequence, next } => (sequence, next).hash(hasher),
        Effect::Havoc { table, .. } | Effect::Unseen { table } | Effect::Truncate { table } => {
            table.hash(hasher);
        }
        Effect::HavocEverything { .. } | Effect::Catalog(_) => {}
    }
}

fn hash_row(row: &[Value], hasher: &mut DefaultHasher) {
    row.len().hash(hasher);
    row.iter().for_each(|value| hash_exactly(value, hasher));
}

/// Values that are equal and do not look the same are told apart.
fn hash_exactly(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Numeric(_)
        | Value::Float4(_)
        | Value::Float8(_)
        | Value::Interval { .. }
        | Value::Jsonb(_)
        | Value::Array(_) => format!("{value:?}").hash(hasher),
        _ => hash_value(value, hasher),
    }
}
