//! The built-in functions and operators, by subject.
//!
//! In: the name of the C function behind a row of pg_proc (or `@` and its oid, where it is written in SQL).
//! Out: the implementation, if there is one.
//!
//! Always true: an implementation is called with known arguments only, and with NULL only where the
//! function is not strict; it answers as every supported server does, or says unknown.

mod arrays;
mod calendar;
mod comparison;
mod conversion;
pub(crate) mod documents;
mod extract;
mod floats;
mod integers;
mod numerics;
mod pattern;
mod strings;
mod templates;

pub use arrays::subscript;

use super::call::Implementation;
use super::{SqlError, Value};

/// The implementation of the C function `source`.
pub fn implementation(source: &str) -> Option<Implementation> {
    integers::implementation(source)
        .or_else(|| comparison::implementation(source))
        .or_else(|| numerics::implementation(source))
        .or_else(|| floats::implementation(source))
        .or_else(|| conversion::implementation(source))
        .or_else(|| strings::implementation(source))
        .or_else(|| pattern::implementation(source))
        .or_else(|| calendar::implementation(source))
        .or_else(|| extract::implementation(source))
        .or_else(|| templates::implementation(source))
        .or_else(|| arrays::implementation(source))
        .or_else(|| documents::implementation(source))
}

/// An argument of another type than the function declares: the caller did not cast it. Never a wrong value.
fn mistyped() -> SqlError {
    SqlError::not_modelled("argument of an unexpected type")
}

macro_rules! getter {
    ($name:ident, $variant:ident, $type:ty) => {
        fn $name(arguments: &[Value], index: usize) -> Result<$type, SqlError> {
            match arguments.get(index) {
                Some(Value::$variant(value)) => Ok(value.clone()),
                _ => Err(mistyped()),
            }
        }
    };
}

getter!(int2, Int2, i16);
getter!(int4, Int4, i32);
getter!(int8, Int8, i64);
getter!(float4, Float4, f32);
getter!(float8, Float8, f64);
getter!(date, Date, i32);
getter!(time, Time, i64);
getter!(timestamp, Timestamp, i64);
getter!(timestamptz, TimestampTz, i64);
getter!(array, Array, std::sync::Arc<super::Array>);

fn text(arguments: &[Value], index: usize) -> Result<&str, SqlError> {
    match arguments.get(index) {
        Some(Value::Text(value)) => Ok(value),
        _ => Err(mistyped()),
    }
}

fn bytea(arguments: &[Value], index: usize) -> Result<&[u8], SqlError> {
    match arguments.get(index) {
        Some(Value::Bytea(value)) => Ok(value),
        _ => Err(mistyped()),
    }
}

fn numeric(arguments: &[Value], index: usize) -> Result<&super::Numeric, SqlError> {
    match arguments.get(index) {
        Some(Value::Numeric(value)) => Ok(value),
        _ => Err(mistyped()),
    }
}

fn interval(arguments: &[Value], index: usize) -> Result<super::interval::Interval, SqlError> {
    match arguments.get(index) {
        Some(&Value::Interval { months, days, micros }) => {
            Ok(super::interval::Interval { months, days, micros })
        }
        _ => Err(mistyped()),
    }
}

impl From<super::interval::Interval> for Value {
    fn from(interval: super::interval::Interval) -> Value {
        Value::Interval {
            months: interval.months,
            days: interval.days,
            micros: interval.micros,
        }
    }
}
