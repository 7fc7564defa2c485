//! Floats: the operations that IEEE 754 defines to the last bit. Logarithms, powers and the like depend on
//! the server's C library and are not modelled.

use super::{float4, float8};
use crate::value::call::Implementation;
use crate::value::{SqlError, Value};

fn overflow() -> SqlError {
    SqlError::raised("22003", "value out of range: overflow")
}

fn underflow() -> SqlError {
    SqlError::raised("22003", "value out of range: underflow")
}

macro_rules! arithmetic {
    ($add:ident, $sub:ident, $mul:ident, $div:ident, $type:ty) => {
        fn $add(a: $type, b: $type) -> Result<$type, SqlError> {
            let result = a + b;
            if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
                Err(overflow())
            } else {
                Ok(result)
            }
        }

        fn $sub(a: $type, b: $type) -> Result<$type, SqlError> {
            $add(a, -b)
        }

        fn $mul(a: $type, b: $type) -> Result<$type, SqlError> {
            let result = a * b;
            if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
                return Err(overflow());
            }
            if result == 0.0 && a != 0.0 && b != 0.0 {
                Err(underflow())
            } else {
                Ok(result)
            }
        }

        fn $div(a: $type, b: $type) -> Result<$type, SqlError> {
            if b == 0.0 && !a.is_nan() {
                return Err(SqlError::division_by_zero());
            }
            let result = a / b;
            if result.is_infinite() && !a.is_infinite() {
                return Err(overflow());
            }
            if result == 0.0 && a != 0.0 && !b.is_infinite() {
                Err(underflow())
            } else {
                Ok(result)
            }
        }
    };
}

arithmetic!(add4, sub4, mul4, div4, f32);
arithmetic!(add8, sub8, mul8, div8, f64);

/// Whole numbers to whole powers are exact in every C library as long as the result is.
fn power(base: f64, exponent: f64) -> Result<f64, SqlError> {
    let exact = |x: f64| x.fract() == 0.0 && x.abs() < 9_007_199_254_740_992.0;
    if exact(base) && exact(exponent) && (0.0..=64.0).contains(&exponent) {
        let mut result = 1.0;
        for _ in 0..exponent as u32 {
            result *= base;
            if !exact(result) {
                return Err(SqlError::not_modelled("power with an inexact result"));
            }
        }
        return Ok(result);
    }
    Err(SqlError::not_modelled("power with an inexact result"))
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "float8pl" => |a, _| Ok(Value::Float8(add8(float8(a, 0)?, float8(a, 1)?)?)),
        "float8mi" => |a, _| Ok(Value::Float8(sub8(float8(a, 0)?, float8(a, 1)?)?)),
        "float8mul" => |a, _| Ok(Value::Float8(mul8(float8(a, 0)?, float8(a, 1)?)?)),
        "float8div" => |a, _| Ok(Value::Float8(div8(float8(a, 0)?, float8(a, 1)?)?)),
        "float4pl" => |a, _| Ok(Value::Float4(add4(float4(a, 0)?, float4(a, 1)?)?)),
        "float4mi" => |a, _| Ok(Value::Float4(sub4(float4(a, 0)?, float4(a, 1)?)?)),
        "float4mul" => |a, _| Ok(Value::Float4(mul4(float4(a, 0)?, float4(a, 1)?)?)),
        "float4div" => |a, _| Ok(Value::Float4(div4(float4(a, 0)?, float4(a, 1)?)?)),
        "float48pl" => |a, _| Ok(Value::Float8(add8(float4(a, 0)?.into(), float8(a, 1)?)?)),
        "float48mi" => |a, _| Ok(Value::Float8(sub8(float4(a, 0)?.into(), float8(a, 1)?)?)),
        "float48mul" => |a, _| Ok(Value::Float8(mul8(float4(a, 0)?.into(), float8(a, 1)?)?)),
        "float48div" => |a, _| Ok(Value::Float8(div8(float4(a, 0)?.into(), float8(a, 1)?)?)),
        "float84pl" => |a, _| Ok(Value::Float8(add8(float8(a, 0)?, float4(a, 1)?.into())?)),
        "float84mi" => |a, _| Ok(Value::Float8(sub8(float8(a, 0)?, float4(a, 1)?.into())?)),
        "float84mul" => |a, _| Ok(Value::Float8(mul8(float8(a, 0)?, float4(a, 1)?.into())?)),
        "float84div" => |a, _| Ok(Value::Float8(div8(float8(a, 0)?, float4(a, 1)?.into())?)),
        "float4um" => |a, _| Ok(Value::Float4(-float4(a, 0)?)),
        "float8um" => |a, _| Ok(Value::Float8(-float8(a, 0)?)),
        "float4up" | "float8up" => |a, _| Ok(a[0].clone()),
        "float4abs" => |a, _| Ok(Value::Float4(float4(a, 0)?.abs())),
        "float8abs" => |a, _| Ok(Value::Float8(float8(a, 0)?.abs())),
        "dround" => |a, _| Ok(Value::Float8(float8(a, 0)?.round_ties_even())),
        "dtrunc" => |a, _| {
            let value = float8(a, 0)?;
            Ok(Value::Float8(if value >= 0.0 {
                value.floor()
            } else {
                -(-value).floor()
            }))
        },
        "dceil" => |a, _| Ok(Value::Float8(float8(a, 0)?.ceil())),
        "dfloor" => |a, _| Ok(Value::Float8(float8(a, 0)?.floor())),
        "dsign" => |a, _| {
            let value = float8(a, 0)?;
            Ok(Value::Float8(if value > 0.0 {
                1.0
            } else if value < 0.0 {
                -1.0
            } else {
                0.0
            }))
        },
        "dsqrt" => |a, _| {
            let value = float8(a, 0)?;
            if value < 0.0 {
                return Err(SqlError::raised(
                    "2201F",
                    "cannot take square root of a negative number",
                ));
            }
            Ok(Value::Float8(value.sqrt()))
        },
        "dpow" => |a, _| Ok(Value::Float8(power(float8(a, 0)?, float8(a, 1)?)?)),
        _ => return None,
    })
}
