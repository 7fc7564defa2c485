//! Integers: arithmetic with overflow, bits.

use super::{int2, int4, int8};
use crate::value::call::Implementation;
use crate::value::{SqlError, Value};

fn small(value: Option<i16>) -> Result<Value, SqlError> {
    value
        .map(Value::Int2)
        .ok_or_else(|| SqlError::out_of_range("smallint"))
}

fn plain(value: Option<i32>) -> Result<Value, SqlError> {
    value
        .map(Value::Int4)
        .ok_or_else(|| SqlError::out_of_range("integer"))
}

fn big(value: Option<i64>) -> Result<Value, SqlError> {
    value
        .map(Value::Int8)
        .ok_or_else(|| SqlError::out_of_range("bigint"))
}

/// Refuses a zero divisor.
fn divisor<T: Default + PartialEq>(value: T) -> Result<T, SqlError> {
    if value == T::default() {
        Err(SqlError::division_by_zero())
    } else {
        Ok(value)
    }
}

/// What a shift by more than the width gives is the processor's choice.
fn shift(count: i32, width: i32) -> Result<u32, SqlError> {
    match (0..width).contains(&count) {
        true => Ok(count as u32),
        false => Err(SqlError::not_modelled("shift beyond the width")),
    }
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs()
}

fn lcm(a: i128, b: i128) -> i128 {
    if a == 0 || b == 0 {
        0
    } else {
        (a / gcd(a, b) * b).abs()
    }
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "int4pl" => |a, _| plain(int4(a, 0)?.checked_add(int4(a, 1)?)),
        "int4mi" => |a, _| plain(int4(a, 0)?.checked_sub(int4(a, 1)?)),
        "int4mul" => |a, _| plain(int4(a, 0)?.checked_mul(int4(a, 1)?)),
        "int4div" => |a, _| plain(int4(a, 0)?.checked_div(divisor(int4(a, 1)?)?)),
        "int4mod" => |a, _| Ok(Value::Int4(int4(a, 0)?.wrapping_rem(divisor(int4(a, 1)?)?))),
        "int8pl" => |a, _| big(int8(a, 0)?.checked_add(int8(a, 1)?)),
        "int8mi" => |a, _| big(int8(a, 0)?.checked_sub(int8(a, 1)?)),
        "int8mul" => |a, _| big(int8(a, 0)?.checked_mul(int8(a, 1)?)),
        "int8div" => |a, _| big(int8(a, 0)?.checked_div(divisor(int8(a, 1)?)?)),
        "int8mod" => |a, _| Ok(Value::Int8(int8(a, 0)?.wrapping_rem(divisor(int8(a, 1)?)?))),
        "int2pl" => |a, _| small(int2(a, 0)?.checked_add(int2(a, 1)?)),
        "int2mi" => |a, _| small(int2(a, 0)?.checked_sub(int2(a, 1)?)),
        "int2mul" => |a, _| small(int2(a, 0)?.checked_mul(int2(a, 1)?)),
        "int2div" => |a, _| small(int2(a, 0)?.checked_div(divisor(int2(a, 1)?)?)),
        "int2mod" => |a, _| Ok(Value::Int2(int2(a, 0)?.wrapping_rem(divisor(int2(a, 1)?)?))),
        "int24pl" => |a, _| plain(i32::from(int2(a, 0)?).checked_add(int4(a, 1)?)),
        "int24mi" => |a, _| plain(i32::from(int2(a, 0)?).checked_sub(int4(a, 1)?)),
        "int24mul" => |a, _| plain(i32::from(int2(a, 0)?).checked_mul(int4(a, 1)?)),
        "int24div" => |a, _| plain(i32::from(int2(a, 0)?).checked_div(divisor(int4(a, 1)?)?)),
        "int42pl" => |a, _| plain(int4(a, 0)?.checked_add(int2(a, 1)?.into())),
        "int42mi" => |a, _| plain(int4(a, 0)?.checked_sub(int2(a, 1)?.into())),
        "int42mul" => |a, _| plain(int4(a, 0)?.checked_mul(int2(a, 1)?.into())),
        "int42div" => |a, _| plain(int4(a, 0)?.checked_div(divisor(int2(a, 1)?)?.into())),
        "int84pl" => |a, _| big(int8(a, 0)?.checked_add(int4(a, 1)?.into())),
        "int84mi" => |a, _| big(int8(a, 0)?.checked_sub(int4(a, 1)?.into())),
        "int84mul" => |a, _| big(int8(a, 0)?.checked_mul(int4(a, 1)?.into())),
        "int84div" => |a, _| big(int8(a, 0)?.checked_div(divisor(int4(a, 1)?)?.into())),
        "int48pl" => |a, _| big(i64::from(int4(a, 0)?).checked_add(int8(a, 1)?)),
        "int48mi" => |a, _| big(i64::from(int4(a, 0)?).checked_sub(int8(a, 1)?)),
        "int48mul" => |a, _| big(i64::from(int4(a, 0)?).checked_mul(int8(a, 1)?)),
        "int48div" => |a, _| big(i64::from(int4(a, 0)?).checked_div(divisor(int8(a, 1)?)?)),
        "int82pl" => |a, _| big(int8(a, 0)?.checked_add(int2(a, 1)?.into())),
        "int82mi" => |a, _| big(int8(a, 0)?.checked_sub(int2(a, 1)?.into())),
        "int82mul" => |a, _| big(int8(a, 0)?.checked_mul(int2(a, 1)?.into())),
        "int82div" => |a, _| big(int8(a, 0)?.checked_div(divisor(int2(a, 1)?)?.into())),
        "int28pl" => |a, _| big(i64::from(int2(a, 0)?).checked_add(int8(a, 1)?)),
        "int28mi" => |a, _| big(i64::from(int2(a, 0)?).checked_sub(int8(a, 1)?)),
        "int28mul" => |a, _| big(i64::from(int2(a, 0)?).checked_mul(int8(a, 1)?)),
        "int28div" => |a, _| big(i64::from(int2(a, 0)?).checked_div(divisor(int8(a, 1)?)?)),
        "int2um" => |a, _| small(int2(a, 0)?.checked_neg()),
        "int4um" => |a, _| plain(int4(a, 0)?.checked_neg()),
        "int8um" => |a, _| big(int8(a, 0)?.checked_neg()),
        "int2up" | "int4up" | "int8up" => |a, _| Ok(a[0].clone()),
        "int2abs" => |a, _| small(int2(a, 0)?.checked_abs()),
        "int4abs" => |a, _| plain(int4(a, 0)?.checked_abs()),
        "int8abs" => |a, _| big(int8(a, 0)?.checked_abs()),
        "int2and" => |a, _| Ok(Value::Int2(int2(a, 0)? & int2(a, 1)?)),
        "int2or" => |a, _| Ok(Value::Int2(int2(a, 0)? | int2(a, 1)?)),
        "int2xor" => |a, _| Ok(Value::Int2(int2(a, 0)? ^ int2(a, 1)?)),
        "int2not" => |a, _| Ok(Value::Int2(!int2(a, 0)?)),
        "int2shl" => |a, _| {
            Ok(Value::Int2(
                (i32::from(int2(a, 0)?) << shift(int4(a, 1)?, 32)?) as i16,
            ))
        },
        "int2shr" => |a, _| {
            Ok(Value::Int2(
                (i32::from(int2(a, 0)?) >> shift(int4(a, 1)?, 32)?) as i16,
            ))
        },
        "int4and" => |a, _| Ok(Value::Int4(int4(a, 0)? & int4(a, 1)?)),
        "int4or" => |a, _| Ok(Value::Int4(int4(a, 0)? | int4(a, 1)?)),
        "int4xor" => |a, _| Ok(Value::Int4(int4(a, 0)? ^ int4(a, 1)?)),
        "int4not" => |a, _| Ok(Value::Int4(!int4(a, 0)?)),
        "int4shl" => |a, _| Ok(Value::Int4(int4(a, 0)? << shift(int4(a, 1)?, 32)?)),
        "int4shr" => |a, _| Ok(Value::Int4(int4(a, 0)? >> shift(int4(a, 1)?, 32)?)),
        "int8and" => |a, _| Ok(Value::Int8(int8(a, 0)? & int8(a, 1)?)),
        "int8or" => |a, _| Ok(Value::Int8(int8(a, 0)? | int8(a, 1)?)),
        "int8xor" => |a, _| Ok(Value::Int8(int8(a, 0)? ^ int8(a, 1)?)),
        "int8not" => |a, _| Ok(Value::Int8(!int8(a, 0)?)),
        "int8shl" => |a, _| Ok(Value::Int8(int8(a, 0)? << shift(int4(a, 1)?, 64)?)),
        "int8shr" => |a, _| Ok(Value::Int8(int8(a, 0)? >> shift(int4(a, 1)?, 64)?)),
        "int4gcd" => |a, _| plain(i32::try_from(gcd(int4(a, 0)?.into(), int4(a, 1)?.into())).ok()),
        "int8gcd" => |a, _| big(i64::try_from(gcd(int8(a, 0)?.into(), int8(a, 1)?.into())).ok()),
        "int4lcm" => |a, _| plain(i32::try_from(lcm(int4(a, 0)?.into(), int4(a, 1)?.into())).ok()),
        "int8lcm" => |a, _| big(i64::try_from(lcm(int8(a, 0)?.into(), int8(a, 1)?.into())).ok()),
        "to_hex32" => |a, _| Ok(Value::text(format!("{:x}", int4(a, 0)?))),
        "to_hex64" => |a, _| Ok(Value::text(format!("{:x}", int8(a, 0)?))),
        _ => return None,
    })
}
