//! Values as they travel: text and binary, in and out.
//!
//! In: a type, a format and bytes, or a value. Out: the value, or what the server prints with its default
//! settings.
//!
//! Always true: bytes that are not modelled, or not a value of the type, decode to unknown.

use super::array::malformed_binary;
use super::context::{Context, TimeZone, UserKind};
use super::interval::Interval;
use super::text::{is_space, trim_space};
use super::types::Types;
use super::{Array, Numeric, SqlError, TypeOid, Value, cast, datetime, float, json, oid};
use std::sync::Arc;

/// A cell of an answer or a parameter: `format` 0 is text, 1 binary; `None` is NULL.
pub fn decode(type_oid: TypeOid, format: i16, bytes: Option<&[u8]>, context: &Context) -> Value {
    let Some(bytes) = bytes else { return Value::Null };
    let decoded = match format {
        0 => std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| decode_text(type_oid, text, context)),
        1 => decode_binary(type_oid, bytes, context),
        _ => None,
    };
    decoded.unwrap_or(Value::Unknown)
}

fn decode_text(type_oid: TypeOid, text: &str, context: &Context) -> Option<Value> {
    match type_oid {
        oid::INT4 => text.parse().ok().map(Value::Int4),
        oid::INT8 => text.parse().ok().map(Value::Int8),
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR => Some(Value::Text(text.into())),
        oid::INT2 => text.parse().ok().map(Value::Int2),
        oid::TIMESTAMPTZ => match datetime::parse_literal(text, "timestamptz").ok()? {
            // The server always prints the zone; without one this is another DateStyle.
            datetime::Literal::Point { east: None, .. } => None,
            _ => parse(text, type_oid, -1, context).ok(),
        },
        oid::DATE | oid::TIMESTAMP | oid::TIME | oid::INTERVAL => parse(text, type_oid, -1, context).ok(),
        // A client may have written a jsonb in any form; the server's own is canonical already.
        oid::JSONB => parse(text, type_oid, -1, context).ok(),
        // Rounded for display: not the value.
        oid::FLOAT4 | oid::FLOAT8 if !context.shortest_floats => None,
        oid::JSON => Some(Value::Json(text.into())),
        _ => match parse(text, type_oid, -1, context) {
            Ok(value) => Some(value),
            Err(_) => opaque(type_oid, text, context),
        },
    }
}

/// A value of a type that is not modelled is kept as its text, unless the type's values have structure.
fn opaque(type_oid: TypeOid, text: &str, context: &Context) -> Option<Value> {
    let types = Types::with(&context.user_types);
    if is_modelled(type_oid) || types.element(types.base(type_oid)).is_some() {
        return None;
    }
    Some(Value::Opaque {
        type_oid,
        text: text.into(),
    })
}

fn is_modelled(type_oid: TypeOid) -> bool {
    matches!(
        type_oid,
        oid::BOOL
            | oid::INT2
            | oid::INT4
            | oid::INT8
            | oid::FLOAT4
            | oid::FLOAT8
            | oid::NUMERIC
            | oid::BYTEA
            | oid::UUID
            | oid::DATE
            | oid::TIME
            | oid::TIMESTAMP
            | oid::TIMESTAMPTZ
            | oid::INTERVAL
    )
}

fn decode_binary(type_oid: TypeOid, bytes: &[u8], context: &Context) -> Option<Value> {
    let text = || std::str::from_utf8(bytes).ok().map(Arc::<str>::from);
    Some(match type_oid {
        oid::INT4 => Value::Int4(i32::from_be_bytes(bytes.try_into().ok()?)),
        oid::INT8 => Value::Int8(i64::from_be_bytes(bytes.try_into().ok()?)),
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR => Value::Text(text()?),
        oid::INT2 => Value::Int2(i16::from_be_bytes(bytes.try_into().ok()?)),
        oid::BOOL => match bytes {
            [0] => Value::Bool(false),
            [_] => Value::Bool(true),
            _ => return None,
        },
        oid::FLOAT4 => Value::Float4(f32::from_be_bytes(bytes.try_into().ok()?)),
        oid::FLOAT8 => Value::Float8(f64::from_be_bytes(bytes.try_into().ok()?)),
        oid::NUMERIC => Value::Numeric(Numeric::from_binary(bytes)?),
        oid::BYTEA => Value::Bytea(bytes.into()),
        oid::UUID => Value::Uuid(u128::from_be_bytes(bytes.try_into().ok()?)),
        oid::DATE => Value::Date(i32::from_be_bytes(bytes.try_into().ok()?)),
        oid::TIME => Value::Time(i64::from_be_bytes(bytes.try_into().ok()?)),
        oid::TIMESTAMP => Value::Timestamp(i64::from_be_bytes(bytes.try_into().ok()?)),
        oid::TIMESTAMPTZ => Value::TimestampTz(i64::from_be_bytes(bytes.try_into().ok()?)),
        oid::INTERVAL if bytes.len() == 16 => Value::Interval {
            micros: i64::from_be_bytes(bytes[..8].try_into().ok()?),
            days: i32::from_be_bytes(bytes[8..12].try_into().ok()?),
            months: i32::from_be_bytes(bytes[12..].try_into().ok()?),
        },
        oid::JSON => Value::Json(text()?),
        // A binary jsonb is a version byte and the text, which a client may have written in any form.
        oid::JSONB => {
            let text = std::str::from_utf8(bytes.strip_prefix(&[1])?).ok()?;
            parse(text, oid::JSONB, -1, context).ok()?
        }
        oid::OID => Value::Opaque {
            type_oid,
            text: u32::from_be_bytes(bytes.try_into().ok()?).to_string().into(),
        },
        _ => {
            let types = Types::with(&context.user_types);
            let base = types.base(type_oid);
            if base != type_oid {
                return decode_binary(base, bytes, context);
            }
            if types.element(base).is_some() {
                return decode_array(bytes, context);
            }
            if types.is_enum(base) {
                return parse(std::str::from_utf8(bytes).ok()?, base, -1, context).ok();
            }
            return None;
        }
    })
}

fn decode_array(bytes: &[u8], context: &Context) -> Option<Value> {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let (count, element) = (word(0)?, word(8)? as u32);
    if !(0..=6).contains(&count) {
        return None;
    }
    let mut at = 12;
    let mut dimensions = Vec::with_capacity(count as usize);
    let mut total = usize::from(count > 0);
    for _ in 0..count {
        let length = usize::try_from(word(at)?).ok()?;
        total = total.checked_mul(length).filter(|total| *total <= bytes.len())?;
        dimensions.push((length as i32, word(at + 4)?));
        at += 8;
    }
    let mut items = Vec::with_capacity(total);
    for _ in 0..total {
        let length = word(at)?;
        at += 4;
        items.push(match length {
            -1 => Value::Null,
            _ => {
                let end = at.checked_add(usize::try_from(length).ok()?)?;
                let item = bytes.get(at..end)?;
                at = end;
                decode_binary(element, item, context).unwrap_or(Value::Unknown)
            }
        });
    }
    malformed_binary(at != bytes.len())?;
    if total == 0 {
        dimensions.clear();
    }
    Some(Value::Array(Arc::new(Array {
        element,
        dimensions,
        items,
    })))
}

/// The text that the server prints, or `None` where that is not known. NULL and unknown have none.
pub fn encode_text(value: &Value, context: &Context) -> Option<String> {
    Some(match value {
        Value::Unknown | Value::Null => return None,
        Value::Bool(v) => if *v { "t" } else { "f" }.to_owned(),
        Value::Int2(v) => v.to_string(),
        Value::Int4(v) => v.to_string(),
        Value::Int8(v) => v.to_string(),
        Value::Float4(v) if context.shortest_floats => float::print_float4(*v),
        Value::Float8(v) if context.shortest_floats => float::print_float8(*v),
        Value::Float4(_) | Value::Float8(_) => return None,
        Value::Numeric(v) => v.to_string(),
        Value::Text(v) | Value::Json(v) | Value::Jsonb(v) => v.to_string(),
        Value::Bytea(v) if context.bytea_hex => print_bytea(v),
        Value::Bytea(_) => return None,
        Value::Uuid(v) => print_uuid(*v),
        Value::Date(v) if context.date_style.is_iso() => datetime::print_date(*v),
        Value::Time(v) => datetime::print_time(*v),
        Value::Timestamp(v) if context.date_style.is_iso() => datetime::print_timestamp(*v, None),
        Value::TimestampTz(v) if context.date_style.is_iso() => match context.time_zone {
            TimeZone::Fixed(east) => {
                let local = datetime::instant_to_local(*v, context.time_zone)?.ok()?;
                datetime::print_timestamp(local, Some(east))
            }
            TimeZone::Unknown if *v == i64::MAX || *v == i64::MIN => datetime::print_timestamp(*v, None),
            TimeZone::Unknown => return None,
        },
        Value::Date(_) | Value::Timestamp(_) | Value::TimestampTz(_) => return None,
        Value::Interval { months, days, micros } if context.interval_style_postgres => Interval {
            months: *months,
            days: *days,
            micros: *micros,
        }
        .print(),
        Value::Interval { .. } => return None,
        Value::Array(array) => return array.print(|item| encode_text(item, context)),
        Value::Enum { label, .. } => label.to_string(),
        Value::Opaque { text, .. } => text.to_string(),
    })
}

/// Reads a literal of `type_oid`, as the type's input function does. `typmod` is -1 for none.
pub fn parse(text: &str, type_oid: TypeOid, typmod: i32, context: &Context) -> Result<Value, SqlError> {
    let value = match type_oid {
        oid::BOOL => parse_bool(text)?,
        oid::INT2 => parse_integer(text, "smallint").map(Value::Int2)?,
        oid::INT4 => parse_integer(text, "integer").map(Value::Int4)?,
        oid::INT8 => parse_integer(text, "bigint").map(Value::Int8)?,
        oid::FLOAT4 => Value::Float4(float::parse_float4(text)?),
        oid::FLOAT8 => Value::Float8(float::parse_float8(text)?),
        oid::NUMERIC => Value::Numeric(Numeric::parse(text)?),
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::UNKNOWN => Value::Text(text.into()),
        oid::NAME if text.len() < 64 => Value::Text(text.into()),
        oid::CHAR if text.len() == 1 => Value::Text(text.into()),
        oid::BYTEA => Value::Bytea(parse_bytea(text)?.into()),
        oid::UUID => parse_uuid(text).map(Value::Uuid)?,
        oid::DATE => datetime::parse_date(text, context)?,
        oid::TIME => datetime::parse_time(text, typmod)?,
        oid::TIMESTAMP => datetime::parse_timestamp(text, typmod, context)?,
        oid::TIMESTAMPTZ => datetime::parse_timestamptz(text, typmod, context)?,
        // Under other styles a sign means something else.
        oid::INTERVAL if !context.interval_style_postgres => {
            return Err(SqlError::not_modelled(
                "interval literal under another IntervalStyle",
            ));
        }
        oid::INTERVAL => {
            let Interval { months, days, micros } = Interval::parse(text)?;
            Value::Interval { months, days, micros }
        }
        oid::JSON => {
            json::check_json(text)?;
            Value::Json(text.into())
        }
        oid::JSONB => Value::Jsonb(json::parse_jsonb(text)?.print().into()),
        _ => return parse_other(text, type_oid, typmod, context),
    };
    cast::with_typmod(value, type_oid, typmod, false)
}

fn parse_other(text: &str, type_oid: TypeOid, typmod: i32, context: &Context) -> Result<Value, SqlError> {
    let types = Types::with(&context.user_types);
    if let Some(element) = types.element(type_oid) {
        if matches!(element, oid::CHAR | oid::NAME) {
            return Err(SqlError::not_modelled("array of internal text"));
        }
        let array = Array::parse(text, element, |item| parse(item, element, typmod, context))?;
        return Ok(Value::Array(Arc::new(array)));
    }
    match context.user_types.by_oid.get(&type_oid) {
        Some(user) => match &user.kind {
            UserKind::Enum(labels) => match labels.iter().position(|label| **label == *text) {
                Some(order) => Ok(Value::Enum {
                    type_oid,
                    order: order as u32,
                    label: labels[order].clone(),
                }),
                None => Err(SqlError::raised(
                    "22P02",
                    format!("invalid input value for enum {}: \"{text}\"", user.name),
                )),
            },
            UserKind::Domain(base, domain_typmod) => parse(text, *base, *domain_typmod, context),
            _ => Err(SqlError::not_modelled(format!("type {}", user.name))),
        },
        None => Err(SqlError::not_modelled(format!("type {}", types.name(type_oid)))),
    }
}

/// The digits are read first: a number that is too large is out of range whatever follows it.
fn parse_integer<T: TryFrom<i64>>(text: &str, kind: &str) -> Result<T, SqlError> {
    let trimmed = trim_space(text);
    let unsigned = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    let count = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = unsigned.split_at(count);
    if digits.is_empty() {
        return Err(SqlError::invalid_text(kind, text));
    }
    let too_large = || {
        SqlError::raised(
            "22003",
            format!("value \"{text}\" is out of range for type {kind}"),
        )
    };
    let negative = trimmed.starts_with('-');
    let magnitude: i64 = match digits.parse::<u64>() {
        Ok(magnitude) if negative => 0i64.checked_sub_unsigned(magnitude).ok_or_else(too_large)?,
        Ok(magnitude) => i64::try_from(magnitude).map_err(|_| too_large())?,
        Err(_) => return Err(too_large()),
    };
    let value = T::try_from(magnitude).map_err(|_| too_large())?;
    match rest.bytes().next() {
        None => Ok(value),
        // Other bases and digit groups are read since PostgreSQL 16, an error before.
        Some(b'_' | b'x' | b'X' | b'o' | b'O' | b'b' | b'B') => {
            Err(SqlError::not_modelled("non-decimal integer literal"))
        }
        Some(_) => Err(SqlError::invalid_text(kind, text)),
    }
}

pub(crate) fn parse_bool(text: &str) -> Result<Value, SqlError> {
    let word = trim_space(text).to_ascii_lowercase();
    let prefix = |whole: &str, least: usize| word.len() >= least && whole.starts_with(word.as_str());
    if prefix("true", 1) || prefix("yes", 1) || word == "on" || word == "1" {
        Ok(Value::Bool(true))
    } else if prefix("false", 1) || prefix("no", 1) || prefix("off", 2) || word == "0" {
        Ok(Value::Bool(false))
    } else {
        Err(SqlError::invalid_text("boolean", text))
    }
}

fn parse_bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    let bad = || SqlError::invalid_text("bytea", text);
    if let Some(hex) = text.strip_prefix("\\x") {
        let mut out = Vec::with_capacity(hex.len() / 2);
        let mut bytes = hex.bytes().filter(|b| !matches!(b, b' ' | b'\n' | b'\t' | b'\r'));
        if hex.bytes().any(|b| matches!(b, b' ' | b'\n' | b'\t' | b'\r')) {
            return Err(SqlError::not_modelled("bytea literal with blanks"));
        }
        let digit = |b: u8| {
            (b as char)
                .to_digit(16)
                .ok_or_else(|| SqlError::invalid_parameter("invalid hexadecimal data"))
        };
        while let Some(high) = bytes.next() {
            let high = digit(high)?;
            let low = bytes
                .next()
                .ok_or_else(|| SqlError::invalid_parameter("invalid hexadecimal data"))?;
            out.push((high << 4 | digit(low)?) as u8);
        }
        return Ok(out);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'\\') {
            out.push(b'\\');
            at += 2;
        } else {
            match bytes.get(at + 1..at + 4) {
                Some(&[a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7']) => {
                    out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                    at += 4;
                }
                _ => return Err(bad()),
            }
        }
    }
    Ok(out)
}

fn print_bytea(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("\\x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn parse_uuid(text: &str) -> Result<u128, SqlError> {
    let bad = || SqlError::invalid_text("uuid", text);
    let bytes = text.as_bytes();
    let braces = bytes.first() == Some(&b'{');
    let mut at = usize::from(braces);
    let mut value = 0u128;
    for index in 0..16 {
        let digit = |b: Option<&u8>| b.and_then(|b| (*b as char).to_digit(16)).ok_or_else(bad);
        value = value << 8 | u128::from(digit(bytes.get(at))? << 4 | digit(bytes.get(at + 1))?);
        at += 2;
        if bytes.get(at) == Some(&b'-') && index % 2 == 1 && index < 15 {
            at += 1;
        }
    }
    if braces {
        if bytes.get(at) != Some(&b'}') {
            return Err(bad());
        }
        at += 1;
    }
    if at == bytes.len() { Ok(value) } else { Err(bad()) }
}

pub fn print_uuid(value: u128) -> String {
    let hex = format!("{value:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// Whether the text is blank, for callers that read optional fields.
pub fn is_blank(text: &str) -> bool {
    text.bytes().all(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(text: &str, type_oid: TypeOid) -> String {
        let context = Context::defaults();
        encode_text(&decode(type_oid, 0, Some(text.as_bytes()), &context), &context).unwrap()
    }

    #[test]
    fn text_round_trips() {
        for (type_oid, text) in [
            (oid::BOOL, "t"),
            (oid::INT4, "-5"),
            (oid::NUMERIC, "1.50"),
            (oid::FLOAT8, "0.1"),
            (oid::TIMESTAMP, "2024-02-29 12:34:56.789"),
            (oid::TIMESTAMPTZ, "2024-02-29 12:34:56+00"),
            (oid::INTERVAL, "1 year 2 mons -3 days +04:05:06.7"),
            (oid::BYTEA, "\\x00ff"),
            (oid::UUID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (oid::INT4_ARRAY, "{1,NULL,3}"),
            (oid::TEXT_ARRAY, "{\"a b\",\"NULL\",NULL,\"\",x}"),
            (oid::JSONB, "{\"a\": [1, 2.50, null]}"),
        ] {
            assert_eq!(through(text, type_oid), text);
        }
    }

    #[test]
    fn what_the_settings_blur_is_unknown() {
        let context = Context {
            shortest_floats: false,
            interval_style_postgres: false,
            ..Context::defaults()
        };
        assert!(decode(oid::FLOAT8, 0, Some(b"0.1"), &context).is_unknown());
        assert!(decode(oid::INTERVAL, 0, Some(b"1 day"), &context).is_unknown());
        assert!(matches!(
            decode(oid::FLOAT8, 1, Some(&0.1f64.to_be_bytes()), &context),
            Value::Float8(_)
        ));
    }

    #[test]
    fn what_is_not_understood_is_unknown() {
        let context = Context::defaults();
        assert!(decode(oid::INT4, 0, Some(b"x"), &context).is_unknown());
        assert!(decode(oid::TIMESTAMPTZ, 0, Some(b"2024-01-01 00:00:00"), &context).is_unknown());
        assert!(decode(oid::INT4, 1, Some(b"abc"), &context).is_unknown());
        assert!(matches!(
            decode(oid::INET, 0, Some(b"10.0.0.1"), &context),
            Value::Opaque { .. }
        ));
    }
}
