//! Arithmetic with the server's choice of result scale.

use super::{
    MAX_SCALE, Numeric, Repr, digit_count, divide_rounded, overflow, power_of_ten, power_of_ten_i128,
};
use crate::value::SqlError;
use num_bigint::BigInt;
use num_traits::{Signed, Zero};

/// NUMERIC_MIN_SIG_DIGITS and NUMERIC_MAX_DISPLAY_SCALE.
const MIN_SIGNIFICANT: i64 = 16;
const MAX_DISPLAY_SCALE: i64 = 1000;

impl Numeric {
    pub fn add(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        match (&self.0, &other.0) {
            (Repr::Small(a, s), Repr::Small(b, t)) if s == t => {
                return Ok(Numeric::from_i128(i128::from(*a) + i128::from(*b), *s));
            }
            (Repr::Small(a, s), Repr::Small(b, t)) => {
                if let Some((a, b, scale)) = align(*a, *s, *b, *t)
                    && let Some(sum) = a.checked_add(b)
                {
                    return Ok(Numeric::from_i128(sum, scale));
                }
            }
            (Repr::NaN, _) | (_, Repr::NaN) => return Ok(Numeric::NAN),
            (Repr::Infinity, Repr::NegInfinity) | (Repr::NegInfinity, Repr::Infinity) => {
                return Ok(Numeric::NAN);
            }
            (Repr::Infinity, _) | (_, Repr::Infinity) => return Ok(Numeric::INFINITY),
            (Repr::NegInfinity, _) | (_, Repr::NegInfinity) => return Ok(Numeric::NEG_INFINITY),
            _ => {}
        }
        let (s, t) = (u32::from(self.scale()), u32::from(other.scale()));
        let scale = s.max(t);
        let a = self.coefficient() * power_of_ten(scale - s);
        let b = other.coefficient() * power_of_ten(scale - t);
        Numeric::from_big(a + b, scale)
    }

    pub fn sub(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        self.add(&other.neg())
    }

    pub fn neg(&self) -> Numeric {
        match &self.0 {
            Repr::Small(coefficient, scale) => Numeric::from_i128(-i128::from(*coefficient), *scale),
            Repr::Big(coefficient, scale) => Numeric::from_big(-(**coefficient).clone(), u32::from(*scale))
                .expect("the negative of a numeric is a numeric"),
            Repr::NaN => Numeric::NAN,
            Repr::Infinity => Numeric::NEG_INFINITY,
            Repr::NegInfinity => Numeric::INFINITY,
        }
    }

    pub fn abs(&self) -> Numeric {
        if self.signum() < 0 {
            self.neg()
        } else {
            self.clone()
        }
    }

    pub fn mul(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        if let (Repr::Small(a, s), Repr::Small(b, t)) = (&self.0, &other.0)
            && s + t <= MAX_SCALE
        {
            return Ok(Numeric::from_i128(i128::from(*a) * i128::from(*b), s + t));
        }
        if self.is_special() || other.is_special() {
            if self.is_nan() || other.is_nan() {
                return Ok(Numeric::NAN);
            }
            return Ok(match self.signum() * other.signum() {
                0 => Numeric::NAN,
                1 => Numeric::INFINITY,
                _ => Numeric::NEG_INFINITY,
            });
        }
        let scale = u32::from(self.scale()) + u32::from(other.scale());
        let product = self.coefficient() * other.coefficient();
        if scale > u32::from(MAX_SCALE) {
            let excess = power_of_ten(scale - u32::from(MAX_SCALE));
            return Numeric::from_big(divide_rounded(&product, &excess), u32::from(MAX_SCALE));
        }
        Numeric::from_big(product, scale)
    }

    pub fn div(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        if self.is_special() || other.is_special() {
            if self.is_nan() || other.is_nan() || (self.is_infinite() && other.is_infinite()) {
                return Ok(Numeric::NAN);
            }
            if other.is_infinite() {
                return Ok(Numeric::ZERO);
            }
            return match self.signum() * other.signum() {
                0 => Err(SqlError::division_by_zero()),
                1 => Ok(Numeric::INFINITY),
                _ => Ok(Numeric::NEG_INFINITY),
            };
        }
        if other.is_zero() {
            return Err(SqlError::division_by_zero());
        }
        let scale = select_div_scale(self, other);
        self.divide_to_scale(other, scale)
    }

    /// `self / other` rounded to `scale` digits; both finite, `other` not zero.
    fn divide_to_scale(&self, other: &Numeric, scale: u32) -> Result<Numeric, SqlError> {
        let shift = i64::from(scale) - i64::from(self.scale()) + i64::from(other.scale());
        if let (Repr::Small(a, _), Repr::Small(b, _)) = (&self.0, &other.0)
            && (0..=37).contains(&shift)
            && let Some(dividend) =
                power_of_ten_i128(shift as u32).and_then(|f| f.checked_mul(i128::from(*a)))
        {
            let divisor = i128::from(*b);
            let (quotient, remainder) = (dividend / divisor, dividend % divisor);
            let away = i128::from(remainder.unsigned_abs() * 2 >= divisor.unsigned_abs());
            let sign = if (*a < 0) == (*b < 0) { 1 } else { -1 };
            return Ok(Numeric::from_i128(quotient + away * sign, scale as u16));
        }
        let (mut dividend, mut divisor) = (self.coefficient(), other.coefficient());
        match shift >= 0 {
            true => dividend *= power_of_ten(shift as u32),
            false => divisor *= power_of_ten(-shift as u32),
        }
        Numeric::from_big(divide_rounded(&dividend, &divisor), scale)
    }

    /// `div(a, b)`: the quotient truncated to an integer.
    pub fn div_trunc(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        if self.is_special() || other.is_special() {
            return self.div(other);
        }
        if other.is_zero() {
            return Err(SqlError::division_by_zero());
        }
        let (s, t) = (u32::from(self.scale()), u32::from(other.scale()));
        let quotient = (self.coefficient() * power_of_ten(t)) / (other.coefficient() * power_of_ten(s));
        Numeric::from_big(quotient, 0)
    }

    pub fn rem(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        if self.is_special() || other.is_special() {
            if self.is_nan() || other.is_nan() {
                return Ok(Numeric::NAN);
            }
            if self.is_infinite() {
                return if other.is_zero() {
                    Err(SqlError::division_by_zero())
                } else {
                    Ok(Numeric::NAN)
                };
            }
            return Ok(self.clone());
        }
        if other.is_zero() {
            return Err(SqlError::division_by_zero());
        }
        if let (Repr::Small(a, s), Repr::Small(b, t)) = (&self.0, &other.0)
            && let Some((a, b, scale)) = align(*a, *s, *b, *t)
        {
            return Ok(Numeric::from_i128(a % b, scale));
        }
        let (s, t) = (u32::from(self.scale()), u32::from(other.scale()));
        let scale = s.max(t);
        let a = self.coefficient() * power_of_ten(scale - s);
        let b = other.coefficient() * power_of_ten(scale - t);
        Numeric::from_big(a % b, scale)
    }

    /// Rounds half away from zero at `scale` digits after the point; a negative scale rounds before it.
    pub fn round(&self, scale: i32) -> Result<Numeric, SqlError> {
        self.rescale(scale.clamp(-131_073, i32::from(MAX_SCALE)), divide_rounded)
    }

    /// Cuts off toward zero.
    pub fn trunc(&self, scale: i32) -> Result<Numeric, SqlError> {
        self.rescale(scale.clamp(-131_072, i32::from(MAX_SCALE)), |a, b| a / b)
    }

    fn rescale(&self, scale: i32, divide: impl Fn(&BigInt, &BigInt) -> BigInt) -> Result<Numeric, SqlError> {
        if self.is_special() {
            return Ok(self.clone());
        }
        let shift = i64::from(scale) - i64::from(self.scale());
        if shift == 0 {
            return Ok(self.clone());
        }
        if shift > 0 {
            if let Repr::Small(coefficient, _) = self.0
                && let Some(factor) = power_of_ten_i128(shift as u32)
                && let Some(raised) = i128::from(coefficient).checked_mul(factor)
            {
                return Ok(Numeric::from_i128(raised, scale as u16));
            }
            return Numeric::from_big(self.coefficient() * power_of_ten(shift as u32), scale as u32);
        }
        let coefficient = self.coefficient();
        // Everything is cut away: no need to build a huge power.
        if -shift > digit_count(&coefficient) as i64 + 1 {
            return Ok(Numeric::new(0, scale.max(0) as u16));
        }
        let quotient = divide(&coefficient, &power_of_ten(-shift as u32));
        match scale >= 0 {
            true => Numeric::from_big(quotient, scale as u32),
            false => Numeric::from_big(quotient * power_of_ten(scale.unsigned_abs()), 0),
        }
    }

    pub fn ceil(&self) -> Result<Numeric, SqlError> {
        let cut = self.trunc(0)?;
        if !self.is_special() && cut < *self {
            cut.add(&Numeric::new(1, 0))
        } else {
            Ok(cut)
        }
    }

    pub fn floor(&self) -> Result<Numeric, SqlError> {
        let cut = self.trunc(0)?;
        if !self.is_special() && cut > *self {
            cut.sub(&Numeric::new(1, 0))
        } else {
            Ok(cut)
        }
    }

    pub fn sqrt(&self) -> Result<Numeric, SqlError> {
        let negative = || SqlError::raised("2201F", "cannot take square root of a negative number");
        if self.is_special() {
            return if self.signum() < 0 {
                Err(negative())
            } else {
                Ok(self.clone())
            };
        }
        if self.signum() < 0 {
            return Err(negative());
        }
        let weight = leading(self).0;
        let scale = (MIN_SIGNIFICANT - (2 * weight + 1))
            .max(i64::from(self.scale()))
            .clamp(0, MAX_DISPLAY_SCALE) as u32;
        // floor(sqrt(x·10^2(scale+1))), then rounded by its last digit: exact, as the server's.
        let own = u32::from(self.scale());
        let wanted = 2 * (scale + 1);
        let shifted = match wanted >= own {
            true => self.coefficient() * power_of_ten(wanted - own),
            false => self.coefficient() / power_of_ten(own - wanted),
        };
        Numeric::from_big(divide_rounded(&shifted.sqrt(), &BigInt::from(10)), scale)
    }

    /// numeric(precision, scale): rounds, and raises 22003 where the integer part is too long.
    pub fn with_typmod(&self, typmod: i32) -> Result<Numeric, SqlError> {
        if typmod < 4 {
            return Ok(self.clone());
        }
        let precision = ((typmod - 4) >> 16) & 0xffff;
        let scale = (((typmod - 4) & 0x7ff) ^ 1024) - 1024;
        let too_long = || SqlError::raised("22003", "numeric field overflow");
        if self.is_special() {
            return if self.is_nan() {
                Ok(self.clone())
            } else {
                Err(too_long())
            };
        }
        let rounded = self.round(scale)?;
        if let Repr::Small(coefficient, own) = rounded.0 {
            let limit = power_of_ten_i128((precision - scale + i32::from(own)).max(0) as u32);
            return match limit {
                Some(limit) if i128::from(coefficient).abs() >= limit && coefficient != 0 => Err(too_long()),
                _ => Ok(rounded),
            };
        }
        let digits = digit_count(&rounded.coefficient()) as i64 - i64::from(rounded.scale());
        if digits > i64::from(precision - scale) {
            Err(too_long())
        } else {
            Ok(rounded)
        }
    }

    /// The least scale that loses nothing.
    pub fn min_scale(&self) -> Option<u16> {
        (!self.is_special()).then(|| Numeric(self.reduced()).scale())
    }

    pub fn trim_scale(&self) -> Numeric {
        Numeric(self.reduced())
    }

    /// `trunc(self * 10^0)` is itself.
    pub fn is_integral(&self) -> bool {
        self.min_scale() == Some(0)
    }
}

/// Both coefficients at the larger scale, where they fit.
fn align(a: i64, s: u16, b: i64, t: u16) -> Option<(i128, i128, u16)> {
    let scale = s.max(t);
    let a = i128::from(a).checked_mul(power_of_ten_i128(u32::from(scale - s))?)?;
    let b = i128::from(b).checked_mul(power_of_ten_i128(u32::from(scale - t))?)?;
    Some((a, b, scale))
}

/// The weight of the first base-10000 digit, and that digit. Zero has weight 0 and digit 0.
fn leading(value: &Numeric) -> (i64, i64) {
    if value.is_zero() {
        return (0, 0);
    }
    let (digits, top) = match value.0 {
        Repr::Small(coefficient, _) => {
            let magnitude = coefficient.unsigned_abs();
            let digits = i64::from(magnitude.ilog10()) + 1;
            let keep = digits.min(4);
            (digits, (magnitude / 10u64.pow((digits - keep) as u32)) as i64)
        }
        _ => {
            let coefficient = value.coefficient();
            let digits = digit_count(&coefficient) as i64;
            let top = coefficient.abs() / power_of_ten((digits - digits.min(4)) as u32);
            (digits, i64::try_from(top).unwrap_or(0))
        }
    };
    let decimal_weight = digits - 1 - i64::from(value.scale());
    let weight = decimal_weight.div_euclid(4);
    let in_group = decimal_weight - 4 * weight + 1;
    let have = digits.min(4);
    let first = match in_group >= have {
        true => top * 10i64.pow((in_group - have) as u32),
        false => top / 10i64.pow((have - in_group) as u32),
    };
    (weight, first)
}

/// select_div_scale: at least 16 significant digits, and no less than either input shows.
fn select_div_scale(a: &Numeric, b: &Numeric) -> u32 {
    let ((weight1, first1), (weight2, first2)) = (leading(a), leading(b));
    let mut weight = weight1 - weight2;
    if first1 <= first2 {
        weight -= 1;
    }
    (MIN_SIGNIFICANT - weight * 4)
        .max(i64::from(a.scale()))
        .max(i64::from(b.scale()))
        .clamp(0, MAX_DISPLAY_SCALE) as u32
}

impl Numeric {
    /// Greatest common divisor of two finite numerics, for `gcd()`.
    pub fn gcd(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        if self.is_special() || other.is_special() {
            return Ok(Numeric::NAN);
        }
        let scale = u32::from(self.scale().max(other.scale()));
        let mut a = (self.coefficient() * power_of_ten(scale - u32::from(self.scale()))).abs();
        let mut b = (other.coefficient() * power_of_ten(scale - u32::from(other.scale()))).abs();
        while !b.is_zero() {
            (a, b) = (b.clone(), a % b);
        }
        Numeric::from_big(a, scale).map_err(|_| overflow())
    }
}
