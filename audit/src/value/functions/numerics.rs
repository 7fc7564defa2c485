//! Numeric arithmetic.

use super::{int4, numeric};
use crate::value::call::Implementation;
use crate::value::{Numeric, SqlError, Value};

fn done(value: Result<Numeric, SqlError>) -> Result<Value, SqlError> {
    value.map(Value::Numeric)
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "numeric_add" => |a, _| done(numeric(a, 0)?.add(numeric(a, 1)?)),
        "numeric_sub" => |a, _| done(numeric(a, 0)?.sub(numeric(a, 1)?)),
        "numeric_mul" => |a, _| done(numeric(a, 0)?.mul(numeric(a, 1)?)),
        "numeric_div" => |a, _| done(numeric(a, 0)?.div(numeric(a, 1)?)),
        "numeric_div_trunc" => |a, _| done(numeric(a, 0)?.div_trunc(numeric(a, 1)?)),
        "numeric_mod" => |a, _| done(numeric(a, 0)?.rem(numeric(a, 1)?)),
        "numeric_uminus" => |a, _| Ok(Value::Numeric(numeric(a, 0)?.neg())),
        "numeric_uplus" => |a, _| Ok(a[0].clone()),
        "numeric_abs" => |a, _| Ok(Value::Numeric(numeric(a, 0)?.abs())),
        "numeric_sign" => |a, _| {
            let value = numeric(a, 0)?;
            Ok(Value::Numeric(if value.is_nan() {
                Numeric::NAN
            } else {
                Numeric::from(value.signum())
            }))
        },
        "numeric_round" => |a, _| done(numeric(a, 0)?.round(int4(a, 1)?)),
        "@1708" => |a, _| done(numeric(a, 0)?.round(0)),
        "numeric_trunc" => |a, _| done(numeric(a, 0)?.trunc(int4(a, 1)?)),
        "@1710" => |a, _| done(numeric(a, 0)?.trunc(0)),
        "numeric_ceil" => |a, _| done(numeric(a, 0)?.ceil()),
        "numeric_floor" => |a, _| done(numeric(a, 0)?.floor()),
        "numeric_sqrt" => |a, _| done(numeric(a, 0)?.sqrt()),
        "numeric_gcd" => |a, _| done(numeric(a, 0)?.gcd(numeric(a, 1)?)),
        "numeric_scale" => |a, _| {
            let value = numeric(a, 0)?;
            Ok(value
                .min_scale()
                .map_or(Value::Null, |_| Value::Int4(value.scale().into())))
        },
        "numeric_min_scale" => |a, _| {
            Ok(numeric(a, 0)?
                .min_scale()
                .map_or(Value::Null, |scale| Value::Int4(scale.into())))
        },
        "numeric_trim_scale" => |a, _| Ok(Value::Numeric(numeric(a, 0)?.trim_scale())),
        "numeric_inc" => |a, _| done(numeric(a, 0)?.add(&Numeric::new(1, 0))),
        "numeric_larger" => |a, _| Ok(Value::Numeric(numeric(a, 0)?.max(numeric(a, 1)?).clone())),
        "numeric_smaller" => |a, _| Ok(Value::Numeric(numeric(a, 0)?.min(numeric(a, 1)?).clone())),
        _ => return None,
    })
}
