//! What a run of a routine came to, and what two runs have in common.

use crate::interpret::Effect;
use crate::sql::plan::Routine;
use crate::state::Row;
use crate::value::compare::same;
use crate::value::{Collation, Value};

pub(super) struct Ended {
    pub(super) returned: Option<Value>,
    pub(super) variables: Vec<Value>,
    pub(super) effects: Vec<Effect>,
    /// How many statements read a snapshot without locking what they read.
    pub(super) reads: usize,
    /// A variable that would have been answered, had it not gone on by the answer.
    pub(super) strayed: Option<(usize, Value)>,
    /// It is not known where it was.
    pub(super) is_lost: bool,
}

impl Ended {
    /// What two runs have in common: what differs is unknown. `None`: they did different things.
    pub(super) fn merge(mut self, other: Ended, routine: &Routine) -> Option<Ended> {
        let merge = unknown_unless_same;
        let merge_rows = |one: &mut Row, other: &Row| *one = common(one, other);
        match (&mut self.returned, &other.returned) {
            (Some(one), Some(other)) => merge(one, other),
            (None, None) => {}
            _ => return None,
        }
        for place in &routine.outputs {
            merge(&mut self.variables[*place], &other.variables[*place]);
        }
        if self.effects.len() != other.effects.len() {
            return None;
        }
        for pair in self.effects.iter_mut().zip(&other.effects) {
            match pair {
                (Effect::Insert { table: a, row: x }, Effect::Insert { table: b, row: y })
                    if a == b && x.len() == y.len() =>
                {
                    merge_rows(x, y);
                }
                (
                    Effect::Update {
                        table: a,
                        id: i,
                        after: x,
                        ..
                    },
                    Effect::Update {
                        table: b,
                        id: j,
                        after: y,
                        ..
                    },
                ) if a == b && i == j && x.len() == y.len() => merge_rows(x, y),
                (Effect::Delete { table: a, id: i, .. }, Effect::Delete { table: b, id: j, .. })
                    if a == b && i == j => {}
                (Effect::Unseen { table: a }, Effect::Unseen { table: b })
                | (Effect::Havoc { table: a, .. }, Effect::Havoc { table: b, .. })
                    if a == b => {}
                _ => return None,
            }
        }
        Some(self)
    }

    pub(super) fn forget_answer(mut self, routine: &Routine) -> Ended {
        self.returned = self.returned.map(|_| Value::Unknown);
        for place in &routine.outputs {
            self.variables[*place] = Value::Unknown;
        }
        self
    }
}

pub(super) fn unknown_unless_same(value: &mut Value, other: &Value) {
    if same(value, other, Collation::Bytes) != Some(true) {
        *value = Value::Unknown;
    }
}

/// The cells that two versions of a row have in common.
pub(super) fn common(one: &Row, other: &Row) -> Row {
    let pairs = one.iter().zip(other.iter());
    pairs
        .map(|(one, other)| match same(one, other, Collation::Bytes) {
            Some(true) => one.clone(),
            _ => Value::Unknown,
        })
        .collect()
}
