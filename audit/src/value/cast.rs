//! Casting a value from one type to another.
//!
//! In: a value with its type, the wanted type with its modifier, and the situation. Out: the value, or the
//! server's error.
//!
//! Always true: casting to a domain casts to its base type; the domain's checks are the caller's.

use super::call::{FunctionId, call};
use super::context::{Context, UserKind};
use super::text::{byte_of_char, char_count};
use super::types::{CastKind, Pathway, Types};
use super::{Array, SqlError, TypeOid, Value, datetime, encode_text, oid, parse};
use std::sync::Arc;

/// Casts `value` of type `from` to `to` with its modifier (-1: none). `from` = 705 is an unknown literal,
/// whose value is its text.
pub fn cast(
    value: &Value,
    from: TypeOid,
    to: TypeOid,
    typmod: i32,
    kind: CastKind,
    context: &Context,
) -> Result<Value, SqlError> {
    if matches!(value, Value::Null | Value::Unknown) {
        return Ok(value.clone());
    }
    if from == to {
        return with_typmod(value.clone(), to, typmod, kind == CastKind::Explicit);
    }
    if let Some(UserKind::Domain(base, base_typmod)) = context.user_types.by_oid.get(&to).map(|t| &t.kind) {
        return cast(value, from, *base, *base_typmod, kind, context);
    }
    let converted = match from {
        oid::UNKNOWN => match value {
            Value::Text(text) if to == oid::INTERVAL => return parse(text, to, typmod, context),
            Value::Text(text) => parse(text, to, -1, context)?,
            other => other.clone(),
        },
        _ => convert(value, from, to, kind, context)?,
    };
    with_typmod(converted, to, typmod, kind == CastKind::Explicit)
}

fn convert(
    value: &Value,
    from: TypeOid,
    to: TypeOid,
    kind: CastKind,
    context: &Context,
) -> Result<Value, SqlError> {
    let types = Types::with(&context.user_types);
    let not_modelled = || SqlError::not_modelled(format!("cast {} to {}", types.name(from), types.name(to)));
    match types.pathway(from, to, kind).ok_or_else(not_modelled)? {
        Pathway::Relabel => match value {
            Value::Array(array) => {
                let element = types.element(types.base(to)).ok_or_else(not_modelled)?;
                Ok(Value::Array(Arc::new(Array {
                    element,
                    ..(**array).clone()
                })))
            }
            Value::Text(_) if is_text(types.base(from)) && is_text(types.base(to)) => Ok(value.clone()),
            _ if types.base(from) == types.base(to) => Ok(value.clone()),
            _ => Err(not_modelled()),
        },
        Pathway::Function(index) => call(FunctionId::new(index), std::slice::from_ref(value), context)
            .map_err(|error| {
                if error.sqlstate().is_none() {
                    not_modelled()
                } else {
                    error
                }
            }),
        Pathway::ThroughText => {
            let text = encode_text(value, context).ok_or_else(not_modelled)?;
            parse(&text, to, -1, context)
        }
        Pathway::Array => {
            let Value::Array(array) = value else {
                return Err(not_modelled());
            };
            let element = types.element(types.base(to)).ok_or_else(not_modelled)?;
            let items: Result<Vec<Value>, SqlError> = array
                .items
                .iter()
                .map(|item| cast(item, array.element, element, -1, kind, context))
                .collect();
            Ok(Value::Array(Arc::new(Array {
                element,
                dimensions: array.dimensions.clone(),
                items: items?,
            })))
        }
    }
}

fn is_text(type_oid: TypeOid) -> bool {
    matches!(type_oid, oid::TEXT | oid::VARCHAR | oid::BPCHAR)
}

/// Applies a type modifier: varchar(n), character(n), numeric(p,s), timestamp(p) and their arrays.
pub fn with_typmod(value: Value, type_oid: TypeOid, typmod: i32, explicit: bool) -> Result<Value, SqlError> {
    if typmod < 0 {
        return Ok(value);
    }
    match (&value, type_oid) {
        (Value::Null | Value::Unknown, _) => Ok(value),
        (Value::Text(text), oid::VARCHAR) => {
            let most = (typmod - 4).max(0) as usize;
            if text.len() <= most || char_count(text) <= most {
                return Ok(value);
            }
            shorten(text, most, explicit, "character varying").map(Value::text)
        }
        (Value::Text(text), oid::BPCHAR) => {
            let wanted = (typmod - 4).max(0) as usize;
            let have = char_count(text);
            match have.cmp(&wanted) {
                std::cmp::Ordering::Equal => Ok(value),
                std::cmp::Ordering::Less => Ok(Value::text(format!("{text}{}", " ".repeat(wanted - have)))),
                std::cmp::Ordering::Greater => shorten(text, wanted, explicit, "character").map(Value::text),
            }
        }
        (Value::Numeric(number), oid::NUMERIC) => Ok(Value::Numeric(number.with_typmod(typmod)?)),
        (Value::Timestamp(at), oid::TIMESTAMP) => {
            Ok(Value::Timestamp(datetime::round_timestamp(*at, typmod)?))
        }
        (Value::TimestampTz(at), oid::TIMESTAMPTZ) => {
            Ok(Value::TimestampTz(datetime::round_timestamp(*at, typmod)?))
        }
        (Value::Time(at), oid::TIME) => Ok(Value::Time(datetime::round_time(*at, typmod))),
        (Value::Interval { months, days, micros }, oid::INTERVAL) => {
            let (fields, precision) = (typmod >> 16 & 0x7fff, typmod & 0xffff);
            match precision {
                _ if fields != 0x7fff => Err(SqlError::not_modelled("interval with fields")),
                0..=5 => Ok(Value::Interval {
                    months: *months,
                    days: *days,
                    micros: datetime::round_micros(*micros, precision),
                }),
                _ => Ok(value),
            }
        }
        (Value::Array(array), _) => {
            let items: Result<Vec<Value>, SqlError> = array
                .items
                .iter()
                .map(|item| with_typmod(item.clone(), array.element, typmod, explicit))
                .collect();
            let array = Array {
                element: array.element,
                dimensions: array.dimensions.clone(),
                items: items?,
            };
            Ok(Value::Array(Arc::new(array)))
        }
        _ => Err(SqlError::not_modelled("type modifier")),
    }
}

/// Cuts to `most` characters; only blanks may go unless the cast is explicit (22001).
fn shorten(text: &str, most: usize, explicit: bool, kind: &str) -> Result<String, SqlError> {
    let (kept, cut) = text.split_at(byte_of_char(text, most));
    if explicit || cut.bytes().all(|b| b == b' ') {
        Ok(kept.to_owned())
    } else {
        Err(SqlError::raised(
            "22001",
            format!("value too long for type {kind}({most})"),
        ))
    }
}
