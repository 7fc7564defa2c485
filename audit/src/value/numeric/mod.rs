//! Arbitrary-precision decimals with PostgreSQL's display scale rules.
//!
//! A finite numeric is `coefficient × 10^-scale`; the scale is the server's display scale, so 1.0 and 1.00
//! are equal values that print differently.
//!
//! Always true:
//!   - the representation is `Small` whenever the coefficient fits an i64: one value, one representation;
//!   - `scale <= MAX_SCALE`, and the integer part has at most 131072 digits.

mod arithmetic;
mod binary;
mod convert;
mod pack;
mod text;

use super::SqlError;
use num_bigint::{BigInt, Sign};
use num_traits::{Signed, ToPrimitive, Zero};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The largest display scale (NUMERIC_DSCALE_MAX).
pub const MAX_SCALE: u16 = 16383;

#[derive(Clone, Debug)]
pub struct Numeric(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Small(i64, u16),
    Big(Arc<BigInt>, u16),
    NaN,
    Infinity,
    NegInfinity,
}

impl Numeric {
    pub const ZERO: Numeric = Numeric(Repr::Small(0, 0));
    pub const NAN: Numeric = Numeric(Repr::NaN);
    pub const INFINITY: Numeric = Numeric(Repr::Infinity);
    pub const NEG_INFINITY: Numeric = Numeric(Repr::NegInfinity);

    /// `coefficient × 10^-scale`.
    pub fn new(coefficient: i64, scale: u16) -> Numeric {
        Numeric(Repr::Small(coefficient, scale.min(MAX_SCALE)))
    }

    pub(super) fn from_i128(coefficient: i128, scale: u16) -> Numeric {
        match i64::try_from(coefficient) {
            Ok(small) => Numeric(Repr::Small(small, scale)),
            Err(_) => Numeric(Repr::Big(Arc::new(BigInt::from(coefficient)), scale)),
        }
    }

    /// Checks the limits of the server's format.
    fn from_big(coefficient: BigInt, scale: u32) -> Result<Numeric, SqlError> {
        if scale > u32::from(MAX_SCALE) || integer_digits(&coefficient, scale) > 131_072 {
            return Err(overflow());
        }
        Ok(match coefficient.to_i64() {
            Some(small) => Numeric(Repr::Small(small, scale as u16)),
            None => Numeric(Repr::Big(Arc::new(coefficient), scale as u16)),
        })
    }

    fn is_special(&self) -> bool {
        !matches!(self.0, Repr::Small(..) | Repr::Big(..))
    }

    pub fn is_nan(&self) -> bool {
        matches!(self.0, Repr::NaN)
    }

    pub fn is_infinite(&self) -> bool {
        matches!(self.0, Repr::Infinity | Repr::NegInfinity)
    }

    /// The display scale; 0 for NaN and the infinities.
    pub fn scale(&self) -> u16 {
        match self.0 {
            Repr::Small(_, scale) | Repr::Big(_, scale) => scale,
            _ => 0,
        }
    }

    /// -1, 0 or 1; NaN counts as positive.
    pub fn signum(&self) -> i32 {
        match &self.0 {
            Repr::Small(coefficient, _) => coefficient.signum() as i32,
            Repr::Big(coefficient, _) if coefficient.is_negative() => -1,
            Repr::NegInfinity => -1,
            _ => 1,
        }
    }

    pub fn is_zero(&self) -> bool {
        matches!(self.0, Repr::Small(0, _))
    }

    /// The coefficient of a finite numeric.
    fn coefficient(&self) -> BigInt {
        match &self.0 {
            Repr::Small(coefficient, _) => BigInt::from(*coefficient),
            Repr::Big(coefficient, _) => (**coefficient).clone(),
            _ => BigInt::ZERO,
        }
    }

    /// The value without trailing zeros after the point: equal numerics have equal reduced forms.
    fn reduced(&self) -> Repr {
        match &self.0 {
            Repr::Small(coefficient, scale) => {
                let (mut coefficient, mut scale) = (*coefficient, *scale);
                if coefficient == 0 {
                    return Repr::Small(0, 0);
                }
                while scale > 0 && coefficient % 10 == 0 {
                    coefficient /= 10;
                    scale -= 1;
                }
                Repr::Small(coefficient, scale)
            }
            Repr::Big(coefficient, scale) => {
                let (mut coefficient, mut scale) = ((**coefficient).clone(), *scale);
                let ten = BigInt::from(10);
                while scale > 0 && (&coefficient % &ten).is_zero() {
                    coefficient /= &ten;
                    scale -= 1;
                }
                match coefficient.to_i64() {
                    Some(small) => Numeric(Repr::Small(small, scale)).reduced(),
                    None => Repr::Big(Arc::new(coefficient), scale),
                }
            }
            other => other.clone(),
        }
    }

    /// The same value and the same display scale: what the server prints is the same.
    pub fn is_identical(&self, other: &Numeric) -> bool {
        self == other && self.scale() == other.scale()
    }
}

/// 22003, as the server words it.
fn overflow() -> SqlError {
    SqlError::raised("22003", "value overflows numeric format")
}

fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10u8).pow(exponent)
}

fn power_of_ten_i128(exponent: u32) -> Option<i128> {
    10i128.checked_pow(exponent)
}

/// How many decimal digits the coefficient has; 0 for zero.
fn digit_count(coefficient: &BigInt) -> u64 {
    if coefficient.is_zero() {
        return 0;
    }
    let bits = coefficient.bits();
    // log10(2) from below and above; only numbers close to a power of ten need the exact comparison.
    let low = ((bits - 1) as f64 * std::f64::consts::LOG10_2).floor() as u64;
    let high = (bits as f64 * std::f64::consts::LOG10_2).floor() as u64;
    if low == high {
        return low + 1;
    }
    if coefficient.magnitude() >= power_of_ten(high as u32).magnitude() {
        high + 1
    } else {
        high
    }
}

/// Digits before the point, rounded up to the server's groups of four.
fn integer_digits(coefficient: &BigInt, scale: u32) -> u64 {
    if coefficient.bits() < 400_000 && coefficient.bits() / 3 < u64::from(scale) {
        return 0;
    }
    digit_count(coefficient)
        .saturating_sub(u64::from(scale))
        .div_ceil(4)
        * 4
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Numeric) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Numeric) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The server's order: -Infinity, finite values, Infinity, NaN.
impl Ord for Numeric {
    fn cmp(&self, other: &Numeric) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Small(a, s), Repr::Small(b, t)) if s == t => a.cmp(b),
            (Repr::Small(a, s), Repr::Small(b, t)) => {
                let (low, high) = if s < t { (s, t) } else { (t, s) };
                let Some(factor) = power_of_ten_i128(u32::from(high - low)) else {
                    return compare_big(self, other);
                };
                let (a, b) = (i128::from(*a), i128::from(*b));
                let pair = if s < t {
                    (a.checked_mul(factor), Some(b))
                } else {
                    (Some(a), b.checked_mul(factor))
                };
                match pair {
                    (Some(a), Some(b)) => a.cmp(&b),
                    _ => compare_big(self, other),
                }
            }
            (a, b) => {
                let rank = |repr: &Repr| match repr {
                    Repr::NegInfinity => 0,
                    Repr::Small(..) | Repr::Big(..) => 1,
                    Repr::Infinity => 2,
                    Repr::NaN => 3,
                };
                match (rank(a), rank(b)) {
                    (1, 1) => compare_big(self, other),
                    (a, b) => a.cmp(&b),
                }
            }
        }
    }
}

fn compare_big(a: &Numeric, b: &Numeric) -> Ordering {
    let signs = a.signum().cmp(&b.signum());
    if signs != Ordering::Equal {
        return signs;
    }
    let (s, t) = (u32::from(a.scale()), u32::from(b.scale()));
    let (mut x, mut y) = (a.coefficient(), b.coefficient());
    match s.cmp(&t) {
        Ordering::Less => x *= power_of_ten(t - s),
        Ordering::Greater => y *= power_of_ten(s - t),
        Ordering::Equal => {}
    }
    x.cmp(&y)
}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.reduced() {
            Repr::Small(coefficient, scale) => (0u8, coefficient, scale).hash(state),
            Repr::Big(coefficient, scale) => (1u8, coefficient, scale).hash(state),
            Repr::NaN => 2u8.hash(state),
            Repr::Infinity => 3u8.hash(state),
            Repr::NegInfinity => 4u8.hash(state),
        }
    }
}

/// Divides and rounds half away from zero.
fn divide_rounded(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let quotient = dividend / divisor;
    let remainder = dividend - &quotient * divisor;
    if remainder.magnitude() * 2u8 >= *divisor.magnitude() {
        let away = if (dividend.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus) {
            1
        } else {
            -1
        };
        quotient + away
    } else {
        quotient
    }
}

#[cfg(test)]
mod tests;
