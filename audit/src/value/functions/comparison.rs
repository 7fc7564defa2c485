//! The comparison operators of every type.

use super::{mistyped, timestamp, timestamptz};
use crate::value::call::{Call, Implementation};
use crate::value::compare::{same, sort_compare};
use crate::value::context::Collation;
use crate::value::datetime::{DATE_INFINITY, DATE_NEG_INFINITY, USECS_PER_DAY, local_to_instant};
use crate::value::text::trim_blanks;
use crate::value::{SqlError, Value};
use std::cmp::Ordering;

type Outcome = Result<Value, SqlError>;
type Order = fn(&[Value], &Call<'_>) -> Result<Option<Ordering>, SqlError>;

fn known(truth: Option<bool>) -> Outcome {
    Ok(truth.map_or(Value::Unknown, Value::Bool))
}

fn same_type(a: &[Value], call: &Call<'_>) -> Result<Option<Ordering>, SqlError> {
    Ok(sort_compare(&a[0], &a[1], call.collation))
}

fn integers(a: &[Value], _: &Call<'_>) -> Result<Option<Ordering>, SqlError> {
    let wide = |value: &Value| match value {
        Value::Int2(v) => Ok(i64::from(*v)),
        Value::Int4(v) => Ok(i64::from(*v)),
        Value::Int8(v) => Ok(*v),
        _ => Err(mistyped()),
    };
    Ok(Some(wide(&a[0])?.cmp(&wide(&a[1])?)))
}

fn floats(a: &[Value], call: &Call<'_>) -> Result<Option<Ordering>, SqlError> {
    let wide = |value: &Value| match value {
        Value::Float4(v) => Ok(Value::Float8(f64::from(*v))),
        Value::Float8(v) => Ok(Value::Float8(*v)),
        _ => Err(mistyped()),
    };
    Ok(sort_compare(&wide(&a[0])?, &wide(&a[1])?, call.collation))
}

fn by_bytes(a: &[Value], _: &Call<'_>) -> Result<Option<Ordering>, SqlError> {
    Ok(sort_compare(&a[0], &a[1], Collation::Bytes))
}

fn padded(a: &[Value], call: &Call<'_>) -> Result<Option<Ordering>, SqlError> {
    padded_under(a, call.collation)
}

fn padded_by_bytes(a: &[Value], _: &Call<'_>) -> Result<Option<Ordering>, SqlError> {
    padded_under(a, Collation::Bytes)
}

fn padded_under(a: &[Value], collation: Collation) -> Result<Option<Ordering>, SqlError> {
    let (Value::Text(x), Value::Text(y)) = (&a[0], &a[1]) else {
        return Err(mistyped());
    };
    let (x, y) = (trim_blanks(x), trim_blanks(y));
    Ok(match collation {
        Collation::Bytes => Some(x.as_bytes().cmp(y.as_bytes())),
        _ => (x == y).then_some(Ordering::Equal),
    })
}

/// A date or timestamp on one common line; a date beyond the range of timestamps still sorts right.
fn instants(a: &[Value], call: &Call<'_>) -> Result<Option<Ordering>, SqlError> {
    let zoned = a.iter().any(|value| matches!(value, Value::TimestampTz(_)));
    let point = |index: usize| -> Result<Option<i128>, SqlError> {
        let local = match &a[index] {
            Value::Date(DATE_INFINITY) => return Ok(Some(i128::from(i64::MAX))),
            Value::Date(DATE_NEG_INFINITY) => return Ok(Some(i128::from(i64::MIN))),
            Value::Date(days) => match i128::from(*days) * i128::from(USECS_PER_DAY) {
                far if i64::try_from(far).is_err() => return Ok(Some(i128::from(i64::MAX) - 1)),
                near => near as i64,
            },
            Value::Timestamp(_) => timestamp(a, index)?,
            Value::TimestampTz(_) => return Ok(Some(timestamptz(a, index)?.into())),
            _ => return Err(mistyped()),
        };
        if !zoned {
            return Ok(Some(local.into()));
        }
        Ok(local_to_instant(local, call.context.time_zone)
            .and_then(Result::ok)
            .map(i128::from))
    };
    Ok(match (point(0)?, point(1)?) {
        (Some(x), Some(y)) => Some(x.cmp(&y)),
        _ => None,
    })
}

fn equality(a: &[Value], call: &Call<'_>) -> Outcome {
    known(same(&a[0], &a[1], call.collation))
}

fn inequality(a: &[Value], call: &Call<'_>) -> Outcome {
    known(same(&a[0], &a[1], call.collation).map(|same| !same))
}

fn padded_same(a: &[Value], call: &Call<'_>) -> Result<Option<bool>, SqlError> {
    let (Value::Text(x), Value::Text(y)) = (&a[0], &a[1]) else {
        return Err(mistyped());
    };
    match trim_blanks(x) == trim_blanks(y) {
        true => Ok(Some(true)),
        false if call.collation == Collation::Nondeterministic => Ok(None),
        false => Ok(Some(false)),
    }
}

/// The six operators over one notion of order.
macro_rules! operators {
    ($order:expr, $operator:expr) => {
        match $operator {
            "eq" => |a, c| known(($order as Order)(a, c)?.map(Ordering::is_eq)),
            "ne" => |a, c| known(($order as Order)(a, c)?.map(Ordering::is_ne)),
            "lt" => |a, c| known(($order as Order)(a, c)?.map(Ordering::is_lt)),
            "le" => |a, c| known(($order as Order)(a, c)?.map(Ordering::is_le)),
            "gt" => |a, c| known(($order as Order)(a, c)?.map(Ordering::is_gt)),
            "ge" => |a, c| known(($order as Order)(a, c)?.map(Ordering::is_ge)),
            _ => return None,
        }
    };
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "booleq" | "texteq" | "int4eq" | "int8eq" | "int2eq" | "nameeq" | "chareq" | "byteaeq"
        | "date_eq" | "time_eq" | "timestamp_eq" | "interval_eq" | "numeric_eq" | "uuid_eq" | "enum_eq"
        | "array_eq" | "jsonb_eq" | "float4eq" | "float8eq" | "oideq" | "nameeqtext" | "texteqname"
        | "network_eq" | "macaddr_eq" => equality,
        "boolne" | "textne" | "int4ne" | "int8ne" | "int2ne" | "namene" | "charne" | "byteane"
        | "date_ne" | "time_ne" | "timestamp_ne" | "interval_ne" | "numeric_ne" | "uuid_ne" | "enum_ne"
        | "array_ne" | "jsonb_ne" | "float4ne" | "float8ne" | "oidne" | "namenetext" | "textnename"
        | "network_ne" | "macaddr_ne" => inequality,
        "bpchareq" => |a, c| known(padded_same(a, c)?),
        "bpcharne" => |a, c| known(padded_same(a, c)?.map(|same| !same)),
        _ => return ordered(source),
    })
}

fn ordered(source: &str) -> Option<Implementation> {
    if let Some(operator) = source.strip_prefix("text_pattern_") {
        return Some(operators!(by_bytes, operator));
    }
    if let Some(operator) = source.strip_prefix("bpchar_pattern_") {
        return Some(operators!(padded_by_bytes, operator));
    }
    for prefix in ["date", "timestamp", "timestamptz"] {
        let Some(rest) = source
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('_'))
        else {
            continue;
        };
        if let Some((operator, "date" | "timestamp" | "timestamptz")) = rest.split_once('_') {
            return Some(operators!(instants, operator));
        }
    }
    for prefix in [
        "text_",
        "date_",
        "time_",
        "timestamp_",
        "interval_",
        "numeric_",
        "uuid_",
        "enum_",
        "array_",
    ] {
        if let Some(operator @ ("lt" | "le" | "gt" | "ge")) = source.strip_prefix(prefix) {
            return Some(operators!(same_type, operator));
        }
    }
    for prefix in ["bool", "bytea", "int2", "int4", "int8", "float4", "float8"] {
        if let Some(operator @ ("lt" | "le" | "gt" | "ge")) = source.strip_prefix(prefix) {
            return Some(operators!(same_type, operator));
        }
    }
    for prefix in ["int24", "int42", "int28", "int82", "int48", "int84"] {
        if let Some(operator) = source.strip_prefix(prefix) {
            return Some(operators!(integers, operator));
        }
    }
    for prefix in ["float48", "float84"] {
        if let Some(operator) = source.strip_prefix(prefix) {
            return Some(operators!(floats, operator));
        }
    }
    if let Some(operator) = source.strip_prefix("bpchar") {
        return Some(operators!(padded, operator));
    }
    None
}
