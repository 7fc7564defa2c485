//! numeric_in and numeric_out.

use super::{Numeric, Repr, overflow, power_of_ten};
use crate::value::SqlError;
use num_bigint::BigInt;
use num_traits::Zero;
use std::fmt;

impl Numeric {
    /// Reads a literal, without modifier.
    pub fn parse(text: &str) -> Result<Numeric, SqlError> {
        let invalid = || SqlError::invalid_text("numeric", text);
        let trimmed = crate::value::text::trim_space(text);
        let bytes = trimmed.as_bytes();
        let (negative, rest) = match bytes.first() {
            Some(b'-') => (true, &trimmed[1..]),
            Some(b'+') => (false, &trimmed[1..]),
            _ => (false, trimmed),
        };
        let first = rest.as_bytes().first().copied().ok_or_else(invalid)?;
        if first.is_ascii_alphabetic() {
            // Hex, octal and binary integers begin with a digit: only names here.
            return match rest.to_ascii_lowercase().as_str() {
                "nan" if !bytes[0].is_ascii_punctuation() => Ok(Numeric::NAN),
                "inf" | "infinity" if negative => Ok(Numeric::NEG_INFINITY),
                "inf" | "infinity" => Ok(Numeric::INFINITY),
                _ => Err(invalid()),
            };
        }
        if rest.len() > 1
            && first == b'0'
            && matches!(rest.as_bytes()[1], b'x' | b'X' | b'o' | b'O' | b'b' | b'B')
            || rest.contains('_')
        {
            // Integers of other bases and digit groups are read since PostgreSQL 16, an error before.
            return Err(SqlError::not_modelled("non-decimal numeric literal"));
        }
        let (digits, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
            return Err(invalid());
        }
        let mut scale = fraction.len() as i64;
        if let Some(exponent) = exponent {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.is_empty() || !all_digits(unsigned) {
                // The C library of some servers skips blanks here.
                if exponent.trim_start() != exponent {
                    return Err(SqlError::not_modelled("blank in an exponent"));
                }
                return Err(invalid());
            }
            let exponent: i64 = exponent.parse().unwrap_or(i64::MAX);
            if exponent.abs() >= i64::from(i32::MAX / 2) {
                return Err(overflow());
            }
            scale -= exponent;
        }
        let digits = whole.len() + fraction.len();
        if digits <= 18 && (0..=i64::from(super::MAX_SCALE)).contains(&scale) {
            let mut coefficient = 0i64;
            for byte in whole.bytes().chain(fraction.bytes()) {
                coefficient = coefficient * 10 + i64::from(byte - b'0');
            }
            return Ok(Numeric(Repr::Small(
                if negative { -coefficient } else { coefficient },
                scale as u16,
            )));
        }
        let mut coefficient: BigInt = format!("{whole}{fraction}").parse().map_err(|_| invalid())?;
        if coefficient.is_zero() {
            return Numeric::from_big(coefficient, scale.clamp(0, 1 << 20) as u32);
        }
        if negative {
            coefficient = -coefficient;
        }
        if scale < 0 {
            if scale < -140_000 {
                return Err(overflow());
            }
            return Numeric::from_big(coefficient * power_of_ten(-scale as u32), 0);
        }
        Numeric::from_big(coefficient, scale.min(1 << 20) as u32)
    }
}

/// As numeric_out prints.
impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(coefficient, 0) => write!(f, "{coefficient}"),
            Repr::Small(coefficient, scale) if *scale <= 18 => {
                let unit = 10u64.pow(u32::from(*scale));
                let magnitude = coefficient.unsigned_abs();
                let sign = if *coefficient < 0 { "-" } else { "" };
                write!(
                    f,
                    "{sign}{}.{:0width$}",
                    magnitude / unit,
                    magnitude % unit,
                    width = *scale as usize
                )
            }
            Repr::NaN => f.write_str("NaN"),
            Repr::Infinity => f.write_str("Infinity"),
            Repr::NegInfinity => f.write_str("-Infinity"),
            Repr::Small(..) | Repr::Big(..) => {
                let scale = self.scale() as usize;
                let digits = self.coefficient().magnitude().to_string();
                if self.signum() < 0 {
                    f.write_str("-")?;
                }
                if scale == 0 {
                    return f.write_str(&digits);
                }
                if digits.len() > scale {
                    let (whole, fraction) = digits.split_at(digits.len() - scale);
                    write!(f, "{whole}.{fraction}")
                } else {
                    write!(f, "0.{digits:0>scale$}")
                }
            }
        }
    }
}
