//! Array functions.

use super::{array, int4, mistyped, text};
use crate::value::call::{Call, Implementation};
use crate::value::compare::same;
use crate::value::context::Collation;
use crate::value::{Array, SqlError, Value, encode_text, oid};
use std::sync::Arc;

type Outcome = Result<Value, SqlError>;

fn made(array: Array) -> Outcome {
    Ok(Value::Array(Arc::new(array)))
}

/// Only vectors are changed here; what the server does with more dimensions is not modelled.
fn vector(value: &Array) -> Result<&Array, SqlError> {
    match value.dimensions.len() {
        0 | 1 => Ok(value),
        _ => Err(SqlError::not_modelled("array of several dimensions")),
    }
}

fn lower_bound(array: &Array) -> i32 {
    array.dimensions.first().map_or(1, |d| d.1)
}

fn dimension(array: &Array, number: i32) -> Option<(i32, i32)> {
    usize::try_from(number)
        .ok()?
        .checked_sub(1)
        .and_then(|index| array.dimensions.get(index))
        .copied()
}

/// One vector with one more element, before or after.
fn extended(old: &Array, item: &Value, in_front: bool) -> Outcome {
    let old = vector(old)?;
    let mut items = old.items.clone();
    let lower = lower_bound(old);
    match in_front {
        true => items.insert(0, item.clone()),
        false => items.push(item.clone()),
    }
    // The new first element takes the old lower bound.
    made(Array {
        element: old.element,
        dimensions: vec![(items.len() as i32, lower)],
        items,
    })
}

fn element_of(value: &Value) -> Option<u32> {
    Some(match value {
        Value::Bool(_) => oid::BOOL,
        Value::Int2(_) => oid::INT2,
        Value::Int4(_) => oid::INT4,
        Value::Int8(_) => oid::INT8,
        Value::Float4(_) => oid::FLOAT4,
        Value::Float8(_) => oid::FLOAT8,
        Value::Numeric(_) => oid::NUMERIC,
        Value::Text(_) => oid::TEXT,
        Value::Bytea(_) => oid::BYTEA,
        Value::Uuid(_) => oid::UUID,
        Value::Date(_) => oid::DATE,
        Value::Time(_) => oid::TIME,
        Value::Timestamp(_) => oid::TIMESTAMP,
        Value::TimestampTz(_) => oid::TIMESTAMPTZ,
        Value::Interval { .. } => oid::INTERVAL,
        Value::Json(_) => oid::JSON,
        Value::Jsonb(_) => oid::JSONB,
        Value::Enum { type_oid, .. } | Value::Opaque { type_oid, .. } => *type_oid,
        Value::Array(_) | Value::Null | Value::Unknown => return None,
    })
}

fn append(old: &Value, item: &Value, in_front: bool) -> Outcome {
    match (old, element_of(item)) {
        (Value::Array(old), _) => extended(old, item, in_front),
        (Value::Null, Some(element)) => made(Array::vector(element, vec![item.clone()])),
        _ => Err(SqlError::not_modelled("array append to NULL")),
    }
}

fn concatenate(left: &Value, right: &Value) -> Outcome {
    let (left, right) = match (left, right) {
        (Value::Null, other) | (other, Value::Null) => return Ok(other.clone()),
        (Value::Array(left), Value::Array(right)) => (left, right),
        _ => return Err(mistyped()),
    };
    if left.dimensions.is_empty() {
        return Ok(Value::Array(right.clone()));
    }
    if right.dimensions.is_empty() {
        return Ok(Value::Array(left.clone()));
    }
    let (left, right) = (vector(left)?, vector(right)?);
    let items: Vec<Value> = left.items.iter().chain(&right.items).cloned().collect();
    made(Array {
        element: left.element,
        dimensions: vec![(items.len() as i32, lower_bound(left))],
        items,
    })
}

/// The position of an element that is not distinct from `wanted`; `None` inside: not known.
fn position(array: &Array, wanted: &Value, from: i32, call: &Call<'_>) -> Outcome {
    let array = vector(array)?;
    for (index, item) in array.items.iter().enumerate() {
        let at = lower_bound(array) + index as i32;
        if at < from {
            continue;
        }
        match same(item, wanted, call.collation) {
            Some(true) => return Ok(Value::Int4(at)),
            Some(false) => {}
            None => return Ok(Value::Unknown),
        }
    }
    Ok(Value::Null)
}

fn filtered(array: &Array, unwanted: &Value, call: &Call<'_>) -> Outcome {
    let array = vector(array)?;
    let mut items = Vec::with_capacity(array.items.len());
    for item in &array.items {
        match same(item, unwanted, call.collation) {
            Some(true) => {}
            Some(false) => items.push(item.clone()),
            None => return Ok(Value::Unknown),
        }
    }
    let lower = lower_bound(array);
    made(match items.len() {
        0 => Array::empty(array.element),
        length => Array {
            element: array.element,
            dimensions: vec![(length as i32, lower)],
            items,
        },
    })
}

/// Whether every element of `small` is one of `large`; NULL elements never are.
fn contains(large: &Array, small: &Array, call: &Call<'_>) -> Option<bool> {
    let mut certain = true;
    for item in &small.items {
        match found(large, item, call) {
            Some(false) => return Some(false),
            Some(true) => {}
            None => certain = false,
        }
    }
    certain.then_some(true)
}

fn overlaps(left: &Array, right: &Array, call: &Call<'_>) -> Option<bool> {
    let mut certain = true;
    for item in &left.items {
        match found(right, item, call) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => certain = false,
        }
    }
    certain.then_some(false)
}

fn found(array: &Array, wanted: &Value, call: &Call<'_>) -> Option<bool> {
    if wanted.is_null() {
        return Some(false);
    }
    let mut certain = true;
    for item in array.items.iter().filter(|item| !item.is_null()) {
        match same(item, wanted, call.collation) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => certain = false,
        }
    }
    certain.then_some(false)
}

fn truth(known: Option<bool>) -> Outcome {
    Ok(known.map_or(Value::Unknown, Value::Bool))
}

fn joined(array: &Array, separator: &str, null: Option<&str>, call: &Call<'_>) -> Outcome {
    let mut parts = Vec::with_capacity(array.items.len());
    for item in &array.items {
        match item {
            Value::Null => parts.extend(null.map(str::to_owned)),
            item => parts.push(
                encode_text(item, call.context)
                    .ok_or_else(|| SqlError::not_modelled("text of an array element"))?,
            ),
        }
    }
    Ok(Value::text(parts.join(separator)))
}

fn split(a: &[Value], call: &Call<'_>) -> Outcome {
    let Value::Text(value) = &a[0] else {
        return Ok(Value::Null);
    };
    if call.collation == Collation::Nondeterministic {
        return Err(SqlError::not_modelled("nondeterministic collation"));
    }
    let null = match a.get(2) {
        Some(Value::Text(null)) => Some(null.clone()),
        _ => None,
    };
    let item = |part: &str| match &null {
        Some(null) if **null == *part => Value::Null,
        _ => Value::text(part),
    };
    if value.is_empty() {
        return made(Array::empty(oid::TEXT));
    }
    let items: Vec<Value> = match &a[1] {
        Value::Null => value.chars().map(|c| item(c.encode_utf8(&mut [0; 4]))).collect(),
        Value::Text(separator) if separator.is_empty() => vec![item(value)],
        Value::Text(separator) => value.split(&**separator).map(item).collect(),
        _ => return Err(mistyped()),
    };
    made(Array::vector(oid::TEXT, items))
}

/// `array[index]`: NULL where there is no such element.
pub fn subscript(value: &Value, indexes: &[i32]) -> Value {
    let Value::Array(array) = value else {
        return if value.is_null() {
            Value::Null
        } else {
            Value::Unknown
        };
    };
    if indexes.len() != array.dimensions.len() {
        return Value::Null;
    }
    let mut at = 0usize;
    for (&index, &(length, lower)) in indexes.iter().zip(&array.dimensions) {
        let offset = i64::from(index) - i64::from(lower);
        if !(0..i64::from(length)).contains(&offset) {
            return Value::Null;
        }
        at = at * length as usize + offset as usize;
    }
    array.items.get(at).cloned().unwrap_or(Value::Null)
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "array_length" => |a, _| {
            Ok(dimension(&*array(a, 0)?, int4(a, 1)?).map_or(Value::Null, |(length, _)| Value::Int4(length)))
        },
        "array_lower" => |a, _| {
            Ok(dimension(&*array(a, 0)?, int4(a, 1)?).map_or(Value::Null, |(_, lower)| Value::Int4(lower)))
        },
        "array_upper" => |a, _| {
            let found = dimension(&*array(a, 0)?, int4(a, 1)?);
            Ok(found.map_or(Value::Null, |(length, lower)| Value::Int4(lower + length - 1)))
        },
        "array_ndims" => |a, _| match array(a, 0)?.dimensions.len() {
            0 => Ok(Value::Null),
            count => Ok(Value::Int4(count as i32)),
        },
        "array_cardinality" => |a, _| Ok(Value::Int4(array(a, 0)?.items.len() as i32)),
        "array_append" => |a, _| append(&a[0], &a[1], false),
        "array_prepend" => |a, _| append(&a[1], &a[0], true),
        "array_cat" => |a, _| concatenate(&a[0], &a[1]),
        "array_position" => |a, c| match &a[0] {
            Value::Null => Ok(Value::Null),
            _ => position(&*array(a, 0)?, &a[1], i32::MIN, c),
        },
        "array_remove" => |a, c| match &a[0] {
            Value::Null => Ok(Value::Null),
            _ => filtered(&*array(a, 0)?, &a[1], c),
        },
        "arraycontains" => |a, c| truth(contains(&*array(a, 0)?, &*array(a, 1)?, c)),
        "arraycontained" => |a, c| truth(contains(&*array(a, 1)?, &*array(a, 0)?, c)),
        "arrayoverlap" => |a, c| truth(overlaps(&*array(a, 0)?, &*array(a, 1)?, c)),
        "array_to_text" => |a, c| joined(&*array(a, 0)?, text(a, 1)?, None, c),
        "array_to_text_null" => |a, c| match (&a[0], &a[1], &a[2]) {
            (Value::Null, ..) | (_, Value::Null, _) => Ok(Value::Null),
            (Value::Array(array), Value::Text(separator), Value::Text(null)) => {
                joined(array, separator, Some(null), c)
            }
            (Value::Array(array), Value::Text(separator), Value::Null) => joined(array, separator, None, c),
            _ => Err(mistyped()),
        },
        "text_to_array" | "text_to_array_null" => split,
        _ => return None,
    })
}
