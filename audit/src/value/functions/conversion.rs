//! The functions behind pg_cast.

use super::{
    date, float4, float8, int2, int4, int8, interval, mistyped, numeric, text, time, timestamp, timestamptz,
};
use crate::value::call::{Call, Implementation};
use crate::value::datetime::{self, USECS_PER_DAY, instant_to_local, local_to_instant};
use crate::value::interval::Interval;
use crate::value::json::{Json, parse_jsonb};
use crate::value::text::{byte_of_char, trim_blanks};
use crate::value::{Numeric, SqlError, Value};

type Outcome = Result<Value, SqlError>;

/// Rounds half to even, as rint does, and checks the range.
fn rounded(value: f64, low: f64, beyond: f64, kind: &str) -> Result<f64, SqlError> {
    let value = value.round_ties_even();
    if value >= low && value < beyond {
        Ok(value)
    } else {
        Err(SqlError::out_of_range(kind))
    }
}

fn to_int2(value: f64) -> Outcome {
    rounded(value, -32768.0, 32768.0, "smallint").map(|v| Value::Int2(v as i16))
}

fn to_int4(value: f64) -> Outcome {
    rounded(value, -2_147_483_648.0, 2_147_483_648.0, "integer").map(|v| Value::Int4(v as i32))
}

fn to_int8(value: f64) -> Outcome {
    rounded(
        value,
        -9_223_372_036_854_775_808.0,
        9_223_372_036_854_775_808.0,
        "bigint",
    )
    .map(|v| Value::Int8(v as i64))
}

fn numeric_to_int2(value: &Numeric) -> Outcome {
    let wide = value.to_i64("smallint")?;
    i16::try_from(wide)
        .map(Value::Int2)
        .map_err(|_| SqlError::out_of_range("smallint"))
}

fn numeric_to_int4(value: &Numeric) -> Outcome {
    let wide = value.to_i64("integer")?;
    i32::try_from(wide)
        .map(Value::Int4)
        .map_err(|_| SqlError::out_of_range("integer"))
}

/// An instant as local time, where the zone is known.
pub fn local(instant: i64, call: &Call<'_>) -> Result<i64, SqlError> {
    instant_to_local(instant, call.context.time_zone)
        .ok_or_else(|| SqlError::not_modelled("time zone of the session"))?
}

/// Local time as an instant, where the zone is known.
pub fn instant(local: i64, call: &Call<'_>) -> Result<i64, SqlError> {
    local_to_instant(local, call.context.time_zone)
        .ok_or_else(|| SqlError::not_modelled("time zone of the session"))?
}

fn is_infinite(timestamp: i64) -> bool {
    timestamp == i64::MAX || timestamp == i64::MIN
}

fn time_of(timestamp: i64) -> Value {
    if is_infinite(timestamp) {
        Value::Null
    } else {
        Value::Time(timestamp.rem_euclid(USECS_PER_DAY))
    }
}

/// A scalar of a jsonb, for its casts to SQL types. NULL for JSON null is new; before it is an error.
fn jsonb_number(a: &[Value]) -> Result<Numeric, SqlError> {
    let Value::Jsonb(document) = &a[0] else {
        return Err(mistyped());
    };
    match parse_jsonb(document)? {
        Json::Number(number) => Ok(number),
        Json::Null => Err(SqlError::not_modelled("cast of a JSON null")),
        other => Err(SqlError::invalid_parameter(format!(
            "cannot cast jsonb {} to a number",
            other.type_name()
        ))),
    }
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "bool_int4" => |a, _| match a[0] {
            Value::Bool(value) => Ok(Value::Int4(value.into())),
            _ => Err(mistyped()),
        },
        "int4_bool" => |a, _| Ok(Value::Bool(int4(a, 0)? != 0)),
        "booltext" => |a, _| match a[0] {
            Value::Bool(value) => Ok(Value::text(if value { "true" } else { "false" })),
            _ => Err(mistyped()),
        },
        "name_text" | "char_text" => |a, _| Ok(Value::text(text(a, 0)?)),
        "name_bpchar" | "char_bpchar" => |a, _| Ok(Value::text(text(a, 0)?)),
        "text_name" => |a, _| {
            let value = text(a, 0)?;
            if value.len() >= 64 {
                return Err(SqlError::not_modelled("truncation of a name"));
            }
            Ok(Value::text(value))
        },
        "bpchar_name" => |a, _| {
            let value = trim_blanks(text(a, 0)?);
            if value.len() >= 64 {
                return Err(SqlError::not_modelled("truncation of a name"));
            }
            Ok(Value::text(value))
        },
        "rtrim1" => |a, _| match &a[0] {
            Value::Text(value) if !value.ends_with(' ') => Ok(a[0].clone()),
            Value::Text(value) => Ok(Value::text(trim_blanks(value))),
            _ => Err(mistyped()),
        },
        "int82" => |a, _| {
            i16::try_from(int8(a, 0)?)
                .map(Value::Int2)
                .map_err(|_| SqlError::out_of_range("smallint"))
        },
        "int84" => |a, _| {
            i32::try_from(int8(a, 0)?)
                .map(Value::Int4)
                .map_err(|_| SqlError::out_of_range("integer"))
        },
        "i4toi2" => |a, _| {
            i16::try_from(int4(a, 0)?)
                .map(Value::Int2)
                .map_err(|_| SqlError::out_of_range("smallint"))
        },
        "int28" => |a, _| Ok(Value::Int8(int2(a, 0)?.into())),
        "int48" => |a, _| Ok(Value::Int8(int4(a, 0)?.into())),
        "i2toi4" => |a, _| Ok(Value::Int4(int2(a, 0)?.into())),
        "i2tof" => |a, _| Ok(Value::Float4(int2(a, 0)?.into())),
        "i2tod" => |a, _| Ok(Value::Float8(int2(a, 0)?.into())),
        "i4tof" => |a, _| Ok(Value::Float4(int4(a, 0)? as f32)),
        "i4tod" => |a, _| Ok(Value::Float8(int4(a, 0)?.into())),
        "i8tof" => |a, _| Ok(Value::Float4(int8(a, 0)? as f32)),
        "i8tod" => |a, _| Ok(Value::Float8(int8(a, 0)? as f64)),
        "int2_numeric" => |a, _| Ok(Value::Numeric(i64::from(int2(a, 0)?).into())),
        "int4_numeric" => |a, _| Ok(Value::Numeric(i64::from(int4(a, 0)?).into())),
        "int8_numeric" => |a, _| Ok(Value::Numeric(int8(a, 0)?.into())),
        "ftoi2" => |a, _| to_int2(float4(a, 0)?.into()),
        "ftoi4" => |a, _| to_int4(float4(a, 0)?.into()),
        "ftoi8" => |a, _| to_int8(float4(a, 0)?.into()),
        "ftod" => |a, _| Ok(Value::Float8(float4(a, 0)?.into())),
        "dtoi2" => |a, _| to_int2(float8(a, 0)?),
        "dtoi4" => |a, _| to_int4(float8(a, 0)?),
        "dtoi8" => |a, _| to_int8(float8(a, 0)?),
        "dtof" => |a, _| {
            let wide = float8(a, 0)?;
            let value = wide as f32;
            if (value.is_infinite() && !wide.is_infinite()) || (value == 0.0 && wide != 0.0) {
                return Err(SqlError::raised("22003", "value out of range"));
            }
            Ok(Value::Float4(value))
        },
        "float4_numeric" => |a, _| Ok(Value::Numeric(Numeric::from_f32(float4(a, 0)?)?)),
        "float8_numeric" => |a, _| Ok(Value::Numeric(Numeric::from_f64(float8(a, 0)?)?)),
        "numeric_int2" => |a, _| numeric_to_int2(numeric(a, 0)?),
        "numeric_int4" => |a, _| numeric_to_int4(numeric(a, 0)?),
        "numeric_int8" => |a, _| numeric(a, 0)?.to_i64("bigint").map(Value::Int8),
        "numeric_float4" => |a, _| numeric(a, 0)?.to_f32().map(Value::Float4),
        "numeric_float8" => |a, _| numeric(a, 0)?.to_f64().map(Value::Float8),
        "date_timestamp" => |a, _| datetime::date_to_timestamp(date(a, 0)?).map(Value::Timestamp),
        "date_timestamptz" => |a, c| {
            let midnight = datetime::date_to_timestamp(date(a, 0)?)?;
            instant(midnight, c).map(Value::TimestampTz)
        },
        "timestamp_date" => |a, _| Ok(Value::Date(datetime::timestamp_to_date(timestamp(a, 0)?))),
        "timestamptz_date" => |a, c| {
            Ok(Value::Date(datetime::timestamp_to_date(local(
                timestamptz(a, 0)?,
                c,
            )?)))
        },
        "timestamp_time" => |a, _| Ok(time_of(timestamp(a, 0)?)),
        "timestamptz_time" => |a, c| Ok(time_of(local(timestamptz(a, 0)?, c)?)),
        "timestamp_timestamptz" => |a, c| instant(timestamp(a, 0)?, c).map(Value::TimestampTz),
        "timestamptz_timestamp" => |a, c| local(timestamptz(a, 0)?, c).map(Value::Timestamp),
        "time_interval" => |a, _| {
            Ok(Interval {
                months: 0,
                days: 0,
                micros: time(a, 0)?,
            }
            .into())
        },
        "interval_time" => |a, _| Ok(Value::Time(interval(a, 0)?.micros.rem_euclid(USECS_PER_DAY))),
        "jsonb_bool" => |a, _| {
            let Value::Jsonb(document) = &a[0] else {
                return Err(mistyped());
            };
            match parse_jsonb(document)? {
                Json::Bool(value) => Ok(Value::Bool(value)),
                Json::Null => Err(SqlError::not_modelled("cast of a JSON null")),
                other => Err(SqlError::invalid_parameter(format!(
                    "cannot cast jsonb {} to type boolean",
                    other.type_name()
                ))),
            }
        },
        "jsonb_numeric" => |a, _| jsonb_number(a).map(Value::Numeric),
        "jsonb_int2" => |a, _| numeric_to_int2(&jsonb_number(a)?),
        "jsonb_int4" => |a, _| numeric_to_int4(&jsonb_number(a)?),
        "jsonb_int8" => |a, _| jsonb_number(a)?.to_i64("bigint").map(Value::Int8),
        "jsonb_float4" => |a, _| jsonb_number(a)?.to_f32().map(Value::Float4),
        "jsonb_float8" => |a, _| jsonb_number(a)?.to_f64().map(Value::Float8),
        "text_char" => |a, _| {
            let value = text(a, 0)?;
            match value.is_ascii() && !value.is_empty() && !value.starts_with('\\') {
                true => Ok(Value::text(&value[..byte_of_char(value, 1)])),
                false => Err(SqlError::not_modelled("cast to \"char\"")),
            }
        },
        _ => return None,
    })
}
