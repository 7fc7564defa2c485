//! numeric_recv and numeric_send.

use super::{MAX_SCALE, Numeric, Repr, power_of_ten};
use num_bigint::BigInt;

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEG_INFINITY: u16 = 0xF000;

impl Numeric {
    /// Reads the wire's binary form; `None` where it is malformed.
    pub fn from_binary(bytes: &[u8]) -> Option<Numeric> {
        let word = |at: usize| {
            bytes
                .get(2 * at..2 * at + 2)
                .map(|b| u16::from_be_bytes([b[0], b[1]]))
        };
        let count = word(0)? as usize;
        let weight = i64::from(word(1)? as i16);
        let sign = word(2)?;
        let scale = word(3)?;
        if bytes.len() != 8 + 2 * count || scale > MAX_SCALE {
            return None;
        }
        match sign {
            POSITIVE | NEGATIVE => {}
            NAN => return Some(Numeric::NAN),
            INFINITY => return Some(Numeric::INFINITY),
            NEG_INFINITY => return Some(Numeric::NEG_INFINITY),
            _ => return None,
        }
        // The digits are an integer times 10000^(weight - count + 1); bring it to 10^-scale.
        let shift = 4 * (weight - count as i64 + 1) + i64::from(scale);
        let mut small: Option<i128> = Some(0);
        for index in 0..count {
            let digit = word(4 + index)?;
            if digit > 9999 {
                return None;
            }
            small = small
                .and_then(|s| s.checked_mul(10_000))
                .and_then(|s| s.checked_add(i128::from(digit)));
        }
        let signed = |negative: bool, value: i128| if negative { -value } else { value };
        if let Some(magnitude) = small
            && shift.abs() <= 37
        {
            let factor = 10i128.pow(shift.unsigned_abs() as u32);
            let scaled = if shift >= 0 {
                magnitude.checked_mul(factor)
            } else {
                Some(magnitude / factor)
            };
            if let Some(scaled) = scaled {
                return Some(Numeric::from_i128(signed(sign == NEGATIVE, scaled), scale));
            }
        }
        let mut magnitude = BigInt::from(0);
        for index in 0..count {
            magnitude = magnitude * 10_000 + word(4 + index)?;
        }
        match shift >= 0 {
            true => magnitude *= power_of_ten(shift as u32),
            false => magnitude /= power_of_ten(-shift as u32),
        }
        Numeric::from_big(
            if sign == NEGATIVE { -magnitude } else { magnitude },
            u32::from(scale),
        )
        .ok()
    }

    /// The wire's binary form.
    pub fn to_binary(&self) -> Vec<u8> {
        let special = |sign: u16| {
            [0, 0, sign, 0]
                .iter()
                .flat_map(|w: &u16| w.to_be_bytes())
                .collect()
        };
        match self.0 {
            Repr::NaN => return special(NAN),
            Repr::Infinity => return special(INFINITY),
            Repr::NegInfinity => return special(NEG_INFINITY),
            _ => {}
        }
        let scale = u32::from(self.scale());
        let padding = (4 - scale % 4) % 4;
        let digits = (self.coefficient() * power_of_ten(padding))
            .magnitude()
            .to_string();
        let lead = (4 - digits.len() % 4) % 4;
        let padded = "0".repeat(lead) + &digits;
        let groups: Vec<u16> = (0..padded.len() / 4)
            .map(|i| padded[4 * i..4 * i + 4].parse().unwrap_or(0))
            .collect();
        let mut weight = groups.len() as i64 - 1 - i64::from((scale + padding) / 4);
        let start = groups.iter().position(|&g| g != 0).unwrap_or(groups.len());
        let end = groups.iter().rposition(|&g| g != 0).map_or(start, |at| at + 1);
        weight -= start as i64;
        if start == end {
            weight = 0;
        }
        let sign = if self.signum() < 0 { NEGATIVE } else { POSITIVE };
        let head = [(end - start) as u16, weight as i16 as u16, sign, scale as u16];
        head.iter()
            .chain(&groups[start..end])
            .flat_map(|w| w.to_be_bytes())
            .collect()
    }
}
