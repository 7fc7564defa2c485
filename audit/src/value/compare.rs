//! Equality and order of values, as the types' default operators define them.
//!
//! In: two values of one type. Out: a truth or an order, or "not known".
//!
//! Always true:
//!   - an unknown value makes the answer unknown, unless it does not matter;
//!   - for known values of one type [`same`], [`Key`] and the server's hash and btree equality agree;
//!   - character(n) is compared without trailing blanks: pass such values through [`comparable`] first.

use super::context::Collation;
use super::interval::Interval;
use super::json::{Json, parse_jsonb};
use super::text::trim_blanks;
use super::{Array, TypeOid, Value, oid};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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

    pub fn and(self, other: Truth) -> Truth {
        match (self, other) {
            (Truth::False, _) | (_, Truth::False) => Truth::False,
            (Truth::Unknown, _) | (_, Truth::Unknown) => Truth::Unknown,
            (Truth::Null, _) | (_, Truth::Null) => Truth::Null,
            _ => Truth::True,
        }
    }

    pub fn or(self, other: Truth) -> Truth {
        match (self, other) {
            (Truth::True, _) | (_, Truth::True) => Truth::True,
            (Truth::Unknown, _) | (_, Truth::Unknown) => Truth::Unknown,
            (Truth::Null, _) | (_, Truth::Null) => Truth::Null,
            _ => Truth::False,
        }
    }

    pub fn negate(self) -> Truth {
        match self {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            other => other,
        }
    }
}

impl From<Option<bool>> for Truth {
    fn from(known: Option<bool>) -> Truth {
        match known {
            Some(true) => Truth::True,
            Some(false) => Truth::False,
            None => Truth::Unknown,
        }
    }
}

/// A value as its type compares it: character(n) loses its trailing blanks, everything else is itself.
pub fn comparable(value: &Value, type_oid: TypeOid) -> Cow<'_, Value> {
    match value {
        Value::Text(text) if type_oid == oid::BPCHAR && text.ends_with(' ') => {
            Cow::Owned(Value::Text(trim_blanks(text).into()))
        }
        _ => Cow::Borrowed(value),
    }
}

/// `left = right` for two values of one type.
pub fn equal(left: &Value, right: &Value, collation: Collation) -> Truth {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Truth::Null,
        _ => same(left, right, collation).into(),
    }
}

/// Not distinct: NULL equals NULL. `None`: not known.
pub fn same(left: &Value, right: &Value, collation: Collation) -> Option<bool> {
    match (left, right) {
        (Value::Unknown, _) | (_, Value::Unknown) => None,
        (Value::Null, Value::Null) => Some(true),
        (Value::Null, _) | (_, Value::Null) => Some(false),
        (Value::Text(a), Value::Text(b)) => match a == b {
            true => Some(true),
            false if collation == Collation::Nondeterministic => None,
            false => Some(false),
        },
        (
            Value::Opaque { type_oid, text: a },
            Value::Opaque {
                type_oid: other,
                text: b,
            },
        ) => match a == b {
            _ if type_oid != other => None,
            true => Some(true),
            false if text_decides(*type_oid) => Some(false),
            false => None,
        },
        (Value::Array(a), Value::Array(b)) => {
            if a.dimensions != b.dimensions {
                return Some(false);
            }
            let mut known = true;
            for (x, y) in a.items.iter().zip(&b.items) {
                match same(x, y, collation) {
                    Some(false) => return Some(false),
                    Some(true) => {}
                    None => known = false,
                }
            }
            known.then_some(true)
        }
        _ if std::mem::discriminant(left) != std::mem::discriminant(right) => None,
        _ => Some(total_order(left, right) == Ordering::Equal),
    }
}

/// The server's types whose values differ whenever their text does.
fn text_decides(type_oid: TypeOid) -> bool {
    matches!(
        type_oid,
        oid::OID
            | oid::XID
            | oid::CID
            | oid::TID
            | oid::XID8
            | oid::MACADDR
            | oid::MACADDR8
            | oid::BIT
            | oid::VARBIT
            | oid::MONEY
            | oid::PG_LSN
            | oid::INET
            | oid::CIDR
            | oid::REGCLASS
            | oid::REGTYPE
            | oid::REGPROC
    )
}

/// The order of two values of one type that are not NULL; `None`: not known.
pub fn sort_compare(left: &Value, right: &Value, collation: Collation) -> Option<Ordering> {
    match (left, right) {
        (Value::Unknown | Value::Null, _) | (_, Value::Unknown | Value::Null) => None,
        (Value::Text(a), Value::Text(b)) => match collation {
            Collation::Bytes => Some(a.as_bytes().cmp(b.as_bytes())),
            _ if a == b => Some(Ordering::Equal),
            _ => None,
        },
        (Value::Array(a), Value::Array(b)) => {
            for (x, y) in a.items.iter().zip(&b.items) {
                let order = match (x, y) {
                    (Value::Unknown, _) | (_, Value::Unknown) => return None,
                    (Value::Null, Value::Null) => Ordering::Equal,
                    (Value::Null, _) => Ordering::Greater,
                    (_, Value::Null) => Ordering::Less,
                    _ => sort_compare(x, y, collation)?,
                };
                if order != Ordering::Equal {
                    return Some(order);
                }
            }
            Some(shape_order(a, b))
        }
        (Value::Json(_) | Value::Jsonb(_) | Value::Opaque { .. }, _) => {
            (same(left, right, collation) == Some(true)).then_some(Ordering::Equal)
        }
        _ if std::mem::discriminant(left) != std::mem::discriminant(right) => None,
        _ => Some(total_order(left, right)),
    }
}

fn shape_order(a: &Array, b: &Array) -> Ordering {
    let lengths = |array: &Array| array.dimensions.iter().map(|d| d.0).collect::<Vec<_>>();
    let bounds = |array: &Array| array.dimensions.iter().map(|d| d.1).collect::<Vec<_>>();
    (a.items.len().cmp(&b.items.len()))
        .then_with(|| a.dimensions.len().cmp(&b.dimensions.len()))
        .then_with(|| lengths(a).cmp(&lengths(b)))
        .then_with(|| bounds(a).cmp(&bounds(b)))
}

/// Whether two values print the same: what an observed cell is compared with. Equal values may differ
/// here (1.0 and 1.00). `None`: not known.
pub fn identical(left: &Value, right: &Value) -> Option<bool> {
    match (left, right) {
        (Value::Unknown, _) | (_, Value::Unknown) => None,
        (Value::Null, Value::Null) => Some(true),
        (Value::Null, _) | (_, Value::Null) => Some(false),
        (Value::Numeric(a), Value::Numeric(b)) => Some(a.is_identical(b)),
        (Value::Float8(a), Value::Float8(b)) => {
            Some((a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits())
        }
        (Value::Float4(a), Value::Float4(b)) => {
            Some((a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits())
        }
        (
            Value::Interval { months, days, micros },
            Value::Interval {
                months: months2,
                days: days2,
                micros: micros2,
            },
        ) => Some((months, days, micros) == (months2, days2, micros2)),
        (Value::Json(a), Value::Json(b)) | (Value::Jsonb(a), Value::Jsonb(b)) => Some(a == b),
        (Value::Opaque { text: a, .. }, Value::Opaque { text: b, .. }) => Some(a == b),
        (Value::Enum { label: a, .. }, Value::Enum { label: b, .. }) => Some(a == b),
        (Value::Array(a), Value::Array(b)) => {
            if a.dimensions != b.dimensions {
                return Some(false);
            }
            let mut known = true;
            for (x, y) in a.items.iter().zip(&b.items) {
                match identical(x, y) {
                    Some(false) => return Some(false),
                    Some(true) => {}
                    None => known = false,
                }
            }
            known.then_some(true)
        }
        _ if std::mem::discriminant(left) != std::mem::discriminant(right) => None,
        _ => Some(total_order(left, right) == Ordering::Equal),
    }
}

/// A value as GROUP BY, DISTINCT and indexes compare it: `Eq`, `Hash` and a total `Ord` that agree with
/// "not distinct" for known values of one type (under a deterministic collation). The order is the same on
/// every run, but not SQL's.
#[derive(Clone, Debug)]
pub struct Key(pub Value);

impl Key {
    /// The key of a value of `type_oid`: character(n) without its trailing blanks.
    pub fn of(value: &Value, type_oid: TypeOid) -> Key {
        Key(comparable(value, type_oid).into_owned())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        total_order(&self.0, &other.0) == Ordering::Equal
    }
}

impl Eq for Key {}

impl Key {
    /// Whether this is that value.
    pub fn is(&self, value: &Value) -> bool {
        total_order(&self.0, value) == Ordering::Equal
    }
}

/// Whether both rows hold the same values; unknown is the same as unknown.
pub fn same_cells(a: &[Value], b: &[Value]) -> bool {
    KeyRef(a) == KeyRef(b)
}

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
        hash_value(&self.0, state);
    }
}

/// Several values as one key, borrowed: hashes and compares as a `[Key]` does.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'a>(pub &'a [Value]);

impl PartialEq for KeyRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(other.0)
                .all(|(a, b)| total_order(a, b) == Ordering::Equal)
    }
}

impl Eq for KeyRef<'_> {}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.0.len());
        self.0.iter().for_each(|value| hash_value(value, state));
    }
}

fn float_key(value: f64) -> f64 {
    match value {
        nan if nan.is_nan() => f64::NAN,
        0.0 => 0.0,
        other => other,
    }
}

fn float_order(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

/// The text by which two jsonb are equal: numbers without trailing zeros.
fn jsonb_key(text: &Arc<str>) -> Cow<'_, str> {
    if !text.contains('.') {
        return Cow::Borrowed(text);
    }
    fn reduce(json: &mut Json) {
        match json {
            Json::Number(number) => *number = number.trim_scale(),
            Json::Array(items) => items.iter_mut().for_each(reduce),
            Json::Object(members) => members.iter_mut().for_each(|(_, value)| reduce(value)),
            _ => {}
        }
    }
    match parse_jsonb(text) {
        Ok(mut json) => {
            reduce(&mut json);
            Cow::Owned(json.print())
        }
        Err(_) => Cow::Borrowed(text),
    }
}

/// The hash of [`Key`].
pub fn hash_value<H: Hasher>(value: &Value, state: &mut H) {
    state.write_u8(rank(value));
    match value {
        Value::Unknown | Value::Null => {}
        Value::Bool(v) => v.hash(state),
        Value::Int2(v) => v.hash(state),
        Value::Int4(v) | Value::Date(v) => v.hash(state),
        Value::Int8(v) | Value::Time(v) | Value::Timestamp(v) | Value::TimestampTz(v) => v.hash(state),
        Value::Float4(v) => float_key(f64::from(*v)).to_bits().hash(state),
        Value::Float8(v) => float_key(*v).to_bits().hash(state),
        Value::Numeric(v) => v.hash(state),
        Value::Text(v) | Value::Json(v) => v.hash(state),
        Value::Jsonb(v) => jsonb_key(v).hash(state),
        Value::Bytea(v) => v.hash(state),
        Value::Uuid(v) => v.hash(state),
        Value::Interval { months, days, micros } => interval(*months, *days, *micros).hash(state),
        Value::Array(array) => {
            array.dimensions.hash(state);
            array.items.iter().for_each(|item| hash_value(item, state));
        }
        Value::Enum { label, .. } => label.hash(state),
        Value::Opaque { type_oid, text } => (type_oid, text).hash(state),
    }
}

fn interval(months: i32, days: i32, micros: i64) -> i128 {
    Interval { months, days, micros }.linear()
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Int2(_) => 2,
        Value::Int4(_) => 3,
        Value::Int8(_) => 4,
        Value::Float4(_) => 5,
        Value::Float8(_) => 6,
        Value::Numeric(_) => 7,
        Value::Text(_) => 8,
        Value::Bytea(_) => 9,
        Value::Uuid(_) => 10,
        Value::Date(_) => 11,
        Value::Time(_) => 12,
        Value::Timestamp(_) => 13,
        Value::TimestampTz(_) => 14,
        Value::Interval { .. } => 15,
        Value::Json(_) => 16,
        Value::Jsonb(_) => 17,
        Value::Array(_) => 18,
        Value::Enum { .. } => 19,
        Value::Opaque { .. } => 20,
        Value::Unknown => 21,
    }
}

/// The order of [`Key`].
pub fn total_order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int2(a), Value::Int2(b)) => a.cmp(b),
        (Value::Int4(a), Value::Int4(b)) | (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (Value::Int8(a), Value::Int8(b))
        | (Value::Time(a), Value::Time(b))
        | (Value::Timestamp(a), Value::Timestamp(b))
        | (Value::TimestampTz(a), Value::TimestampTz(b)) => a.cmp(b),
        (Value::Float4(a), Value::Float4(b)) => float_order(f64::from(*a), f64::from(*b)),
        (Value::Float8(a), Value::Float8(b)) => float_order(*a, *b),
        (Value::Numeric(a), Value::Numeric(b)) => a.cmp(b),
        // Rows that were made of each other share most of their texts.
        (Value::Text(a), Value::Text(b)) | (Value::Json(a), Value::Json(b)) if Arc::ptr_eq(a, b) => {
            Ordering::Equal
        }
        (Value::Text(a), Value::Text(b)) | (Value::Json(a), Value::Json(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Jsonb(a), Value::Jsonb(b)) if a == b => Ordering::Equal,
        (Value::Jsonb(a), Value::Jsonb(b)) => jsonb_key(a).cmp(&jsonb_key(b)),
        (Value::Bytea(a), Value::Bytea(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        (
            Value::Interval { months, days, micros },
            Value::Interval {
                months: months2,
                days: days2,
                micros: micros2,
            },
        ) => interval(*months, *days, *micros).cmp(&interval(*months2, *days2, *micros2)),
        (Value::Array(a), Value::Array(b)) => {
            let mut pairs = a.items.iter().zip(&b.items).map(|(x, y)| match (x, y) {
                (Value::Null, Value::Null) => Ordering::Equal,
                (Value::Null, _) => Ordering::Greater,
                (_, Value::Null) => Ordering::Less,
                _ => total_order(x, y),
            });
            pairs
                .find(|order| *order != Ordering::Equal)
                .unwrap_or_else(|| shape_order(a, b))
        }
        (
            Value::Enum {
                type_oid,
                order,
                label,
            },
            Value::Enum {
                type_oid: type_oid2,
                order: order2,
                label: label2,
            },
        ) => (type_oid, order, label).cmp(&(type_oid2, order2, label2)),
        (
            Value::Opaque { type_oid, text },
            Value::Opaque {
                type_oid: type_oid2,
                text: text2,
            },
        ) => (type_oid, text).cmp(&(type_oid2, text2)),
        _ => rank(left).cmp(&rank(right)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Numeric;

    #[test]
    fn keys_agree_with_sql() {
        let numeric = |text: &str| Value::Numeric(Numeric::parse(text).unwrap());
        assert_eq!(Key(numeric("1.0")), Key(numeric("1.00")));
        assert_eq!(Key(Value::Float8(-0.0)), Key(Value::Float8(0.0)));
        assert_eq!(Key(Value::Float8(f64::NAN)), Key(Value::Float8(f64::NAN)));
        assert_eq!(
            Key(Value::Jsonb("{\"a\": 1.0}".into())),
            Key(Value::Jsonb("{\"a\": 1.00}".into()))
        );
        assert_eq!(
            Key::of(&Value::text("a  "), oid::BPCHAR),
            Key::of(&Value::text("a"), oid::BPCHAR)
        );
        assert_ne!(Key(Value::text("a ")), Key(Value::text("a")));
        assert_eq!(
            Key(Value::Interval {
                months: 1,
                days: 0,
                micros: 0
            }),
            Key(Value::Interval {
                months: 0,
                days: 30,
                micros: 0
            })
        );
    }

    #[test]
    fn order_of_text_is_known_by_bytes_only() {
        let (a, b) = (Value::text("a"), Value::text("B"));
        assert_eq!(sort_compare(&a, &b, Collation::Bytes), Some(Ordering::Greater));
        assert_eq!(sort_compare(&a, &b, Collation::Deterministic), None);
        assert_eq!(
            sort_compare(&a, &a, Collation::Deterministic),
            Some(Ordering::Equal)
        );
        assert_eq!(equal(&a, &b, Collation::Nondeterministic), Truth::Unknown);
        assert_eq!(equal(&a, &Value::Null, Collation::Bytes), Truth::Null);
    }
}
