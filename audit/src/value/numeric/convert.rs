//! To and from integers and floats.

use super::{Numeric, Repr};
use crate::value::{SqlError, float};
use num_bigint::BigInt;
use num_traits::ToPrimitive;

impl From<i64> for Numeric {
    fn from(value: i64) -> Numeric {
        Numeric(Repr::Small(value, 0))
    }
}

impl From<i32> for Numeric {
    fn from(value: i32) -> Numeric {
        Numeric(Repr::Small(i64::from(value), 0))
    }
}

impl From<i128> for Numeric {
    fn from(value: i128) -> Numeric {
        Numeric::from_i128(value, 0)
    }
}

impl Numeric {
    /// Rounds to the nearest integer. The name of the type is for the message.
    pub fn to_i64(&self, type_name: &str) -> Result<i64, SqlError> {
        match self.0 {
            Repr::NaN => Err(SqlError::raised(
                "0A000",
                format!("cannot convert NaN to {type_name}"),
            )),
            Repr::Infinity | Repr::NegInfinity => Err(SqlError::raised(
                "0A000",
                format!("cannot convert infinity to {type_name}"),
            )),
            Repr::Small(value, 0) => Ok(value),
            _ => match self.round(0)?.0 {
                Repr::Small(value, _) => Ok(value),
                _ => Err(SqlError::out_of_range(type_name)),
            },
        }
    }

    pub fn to_f64(&self) -> Result<f64, SqlError> {
        match self.0 {
            Repr::NaN => Ok(f64::NAN),
            Repr::Infinity => Ok(f64::INFINITY),
            Repr::NegInfinity => Ok(f64::NEG_INFINITY),
            Repr::Small(value, 0) => Ok(value as f64),
            _ => float::parse_float8(&self.to_string()),
        }
    }

    pub fn to_f32(&self) -> Result<f32, SqlError> {
        match self.0 {
            Repr::NaN => Ok(f32::NAN),
            Repr::Infinity => Ok(f32::INFINITY),
            Repr::NegInfinity => Ok(f32::NEG_INFINITY),
            _ => float::parse_float4(&self.to_string()),
        }
    }

    /// As the server does it: through 15 significant digits.
    pub fn from_f64(value: f64) -> Result<Numeric, SqlError> {
        Numeric::from_digits(value, 15)
    }

    /// Through 6 significant digits.
    pub fn from_f32(value: f32) -> Result<Numeric, SqlError> {
        Numeric::from_digits(f64::from(value), 6)
    }

    fn from_digits(value: f64, digits: usize) -> Result<Numeric, SqlError> {
        if value.is_nan() {
            return Ok(Numeric::NAN);
        }
        if value.is_infinite() {
            return Ok(if value > 0.0 {
                Numeric::INFINITY
            } else {
                Numeric::NEG_INFINITY
            });
        }
        let printed = format!("{value:.*e}", digits - 1);
        let (mantissa, exponent) = printed.split_once('e').expect("an exponent was asked for");
        let mantissa = if mantissa.contains('.') {
            mantissa.trim_end_matches('0')
        } else {
            mantissa
        };
        Numeric::parse(&format!("{mantissa}e{exponent}"))
    }

    /// The exact integer, if it is one.
    pub fn to_big_integer(&self) -> Option<BigInt> {
        match self.is_integral() {
            true => Some(self.trim_scale().coefficient()),
            false => None,
        }
    }

    /// The exact integer, if it is a small one.
    pub fn to_exact_i64(&self) -> Option<i64> {
        self.to_big_integer().and_then(|big| big.to_i64())
    }
}
