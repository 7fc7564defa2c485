//! Values on the way to a server and back, the same in every protocol mode.
//!
//! In: a `Param`, as a literal of a simple query or as a binary parameter of the type that the server inferred.
//! Out: a `Cell`, PostgreSQL's text of a value or NULL, whether it came as text or in binary.

use bytes::{BufMut, BytesMut};
use std::error::Error;
use std::fmt::Write as _;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};

type Trouble = Box<dyn Error + Sync + Send>;

/// A value that an application sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    Null,
    Int(i64),
    Text(String),
    /// `units × 10^-scale`: money and rates are exact.
    Decimal {
        units: i64,
        scale: u32,
    },
    /// Microseconds since 2000-01-01 00:00, PostgreSQL's own epoch.
    Time(i64),
    Bool(bool),
    /// Integers as an array, for procedures.
    Ints(Vec<i64>),
}

impl Param {
    /// An amount of money.
    pub fn cents(cents: i64) -> Param {
        Param::Decimal {
            units: cents,
            scale: 2,
        }
    }

    /// The literal that an application without parameters would write.
    pub fn literal(&self) -> String {
        match self {
            Param::Null => "NULL".to_owned(),
            // In parentheses: `balance -$1` must not become a comment.
            Param::Int(value) if *value < 0 => format!("({value})"),
            Param::Int(value) => value.to_string(),
            Param::Text(text) => format!("'{}'", text.replace('\'', "''")),
            Param::Decimal { units, scale } if *units < 0 => format!("({})", decimal(*units, *scale)),
            Param::Decimal { units, scale } => decimal(*units, *scale),
            Param::Time(micros) => format!("'{}'", timestamp(*micros)),
            Param::Bool(value) => value.to_string(),
            Param::Ints(values) => {
                format!(
                    "'{{{}}}'",
                    values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
                )
            }
        }
    }
}

impl From<i64> for Param {
    fn from(value: i64) -> Param {
        Param::Int(value)
    }
}

impl From<&str> for Param {
    fn from(text: &str) -> Param {
        Param::Text(text.to_owned())
    }
}

impl From<String> for Param {
    fn from(text: String) -> Param {
        Param::Text(text)
    }
}

/// Puts literals in the place of `$1`, `$2` …, outside of quotes.
pub fn interpolate(sql: &str, params: &[Param]) -> String {
    let mut out = String::with_capacity(sql.len() + 8 * params.len());
    let mut chars = sql.char_indices().peekable();
    let mut quoted = false;
    while let Some((_, c)) = chars.next() {
        if c == '\'' {
            quoted = !quoted;
        }
        if c != '$' || quoted {
            out.push(c);
            continue;
        }
        let mut number = 0;
        while let Some(digit) = chars.peek().and_then(|(_, c)| c.to_digit(10)) {
            number = number * 10 + digit as usize;
            chars.next();
        }
        match params.get(number.wrapping_sub(1)) {
            Some(param) => out.push_str(&param.literal()),
            None => {
                let _ = write!(out, "${number}");
            }
        }
    }
    out
}

impl ToSql for Param {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Trouble> {
        match (self, ty) {
            (Param::Null, _) => return Ok(IsNull::Yes),
            (Param::Int(value), &Type::INT2) => out.put_i16(i16::try_from(*value)?),
            (Param::Int(value), &Type::INT4) => out.put_i32(i32::try_from(*value)?),
            (Param::Int(value), &Type::INT8) => out.put_i64(*value),
            (Param::Int(value), &Type::NUMERIC) => put_numeric(*value, 0, out),
            (Param::Int(value), &Type::FLOAT8) => out.put_f64(*value as f64),
            (Param::Decimal { units, scale }, &Type::NUMERIC) => put_numeric(*units, *scale, out),
            (
                Param::Text(text),
                &(Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN),
            ) => out.put_slice(text.as_bytes()),
            (Param::Time(micros), &(Type::TIMESTAMP | Type::TIMESTAMPTZ)) => out.put_i64(*micros),
            (Param::Bool(value), &Type::BOOL) => out.put_u8(u8::from(*value)),
            (Param::Ints(values), &(Type::INT4_ARRAY | Type::INT8_ARRAY)) => {
                let wide = *ty == Type::INT8_ARRAY;
                out.put_i32(i32::from(!values.is_empty()));
                out.put_i32(0);
                out.put_u32(if wide { Type::INT8.oid() } else { Type::INT4.oid() });
                if !values.is_empty() {
                    out.put_i32(i32::try_from(values.len())?);
                    out.put_i32(1);
                }
                for value in values {
                    if wide {
                        out.put_i32(8);
                        out.put_i64(*value);
                    } else {
                        out.put_i32(4);
                        out.put_i32(i32::try_from(*value)?);
                    }
                }
            }
            (param, ty) => return Err(format!("cannot send {param:?} as a parameter of type {ty}").into()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// A value that came back, in PostgreSQL's text form; `None` is NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell(pub Option<String>);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Cell, Trouble> {
        let text = match *ty {
            Type::INT2 => i16::from_sql(ty, raw)?.to_string(),
            Type::INT4 => i32::from_sql(ty, raw)?.to_string(),
            Type::INT8 => i64::from_sql(ty, raw)?.to_string(),
            Type::FLOAT8 => f64::from_sql(ty, raw)?.to_string(),
            Type::BOOL => if bool::from_sql(ty, raw)? { "t" } else { "f" }.to_owned(),
            Type::NUMERIC => get_numeric(raw).ok_or("a numeric that ends too early")?,
            Type::TIMESTAMP => timestamp(i64::from_be_bytes(raw.try_into()?)),
            Type::VOID => String::new(),
            Type::INT4_ARRAY => {
                let items = Vec::<Option<i32>>::from_sql(ty, raw)?.into_iter();
                let items = items.map(|item| item.map_or("NULL".to_owned(), |item| item.to_string()));
                format!("{{{}}}", items.collect::<Vec<_>>().join(","))
            }
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => {
                std::str::from_utf8(raw)?.to_owned()
            }
            ref other => return Err(format!("cannot read a value of type {other}").into()),
        };
        Ok(Cell(Some(text)))
    }

    fn from_sql_null(_: &Type) -> Result<Cell, Trouble> {
        Ok(Cell(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// `units × 10^-scale` as PostgreSQL writes it.
pub fn decimal(units: i64, scale: u32) -> String {
    if scale == 0 {
        return units.to_string();
    }
    let unit = 10_u64.pow(scale);
    let sign = if units < 0 { "-" } else { "" };
    let magnitude = units.unsigned_abs();
    format!(
        "{sign}{}.{:0width$}",
        magnitude / unit,
        magnitude % unit,
        width = scale as usize
    )
}

/// Reads a decimal text back as units of `10^-scale`; more digits than that are cut off.
pub fn units(text: &str, scale: u32) -> Option<i64> {
    let (negative, plain) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let mut value = whole.parse::<i64>().ok()?;
    let mut digits = fraction.bytes();
    for _ in 0..scale {
        value = value
            .checked_mul(10)?
            .checked_add(i64::from(digits.next().unwrap_or(b'0') - b'0'))?;
    }
    Some(if negative { -value } else { value })
}

/// Microseconds since 2000-01-01 as `YYYY-MM-DD HH:MM:SS[.ffffff]`.
pub fn timestamp(micros: i64) -> String {
    const DAY: i64 = 86_400_000_000;
    let (days, of_day) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    // Civil from days, with March as the first month, so that the leap day is the last of its year.
    let z = days + 730_425;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let seconds = of_day / 1_000_000;
    let fraction = of_day % 1_000_000;
    let clock = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    );
    let mut text = format!("{year:04}-{month:02}-{day:02} {clock}");
    if fraction != 0 {
        let _ = write!(text, ".{}", format!("{fraction:06}").trim_end_matches('0'));
    }
    text
}

fn put_numeric(units: i64, scale: u32, out: &mut BytesMut) {
    let plain = decimal(units, scale);
    let plain = plain.trim_start_matches('-');
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    // Groups of four digits, aligned at the decimal point.
    let whole = format!("{}{whole}", "0".repeat((4 - whole.len() % 4) % 4));
    let fraction = format!("{fraction}{}", "0".repeat((4 - fraction.len() % 4) % 4));
    let digits: Vec<i16> = whole
        .as_bytes()
        .chunks(4)
        .chain(fraction.as_bytes().chunks(4))
        .map(|group| {
            group
                .iter()
                .fold(0, |value, digit| value * 10 + i16::from(digit - b'0'))
        })
        .collect();
    let mut weight = (whole.len() / 4) as i16 - 1;
    let mut digits = &digits[..];
    while let [0, rest @ ..] = digits {
        digits = rest;
        weight -= 1;
    }
    while let [rest @ .., 0] = digits {
        digits = rest;
    }
    out.put_i16(digits.len() as i16);
    out.put_i16(if digits.is_empty() { 0 } else { weight });
    out.put_u16(if units < 0 { 0x4000 } else { 0 });
    out.put_i16(scale as i16);
    for digit in digits {
        out.put_i16(*digit);
    }
}

fn get_numeric(raw: &[u8]) -> Option<String> {
    let short = |at: usize| Some(i16::from_be_bytes(raw.get(2 * at..2 * at + 2)?.try_into().ok()?));
    let (count, weight, sign, scale) = (short(0)?, short(1)?, short(2)? as u16, short(3)?);
    if sign == 0xC000 {
        return Some("NaN".to_owned());
    }
    let digit = |power: i16| {
        let at = weight - power;
        if (0..count).contains(&at) {
            short(4 + at as usize)
        } else {
            Some(0)
        }
    };
    let mut text = String::new();
    for power in (0..=weight.max(0)).rev() {
        let group = digit(power)?;
        let _ = if text.is_empty() {
            write!(text, "{group}")
        } else {
            write!(text, "{group:04}")
        };
        if text == "0" && power > 0 {
            text.clear();
        }
    }
    if scale > 0 {
        let mut fraction = String::new();
        for power in 1..=(scale + 3) / 4 {
            let _ = write!(fraction, "{:04}", digit(-power)?);
        }
        fraction.truncate(scale as usize);
        let _ = write!(text, ".{fraction}");
    }
    Some(if sign == 0x4000 { format!("-{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_survive_the_wire() {
        for (units_in, scale) in [
            (0, 2),
            (5, 2),
            (-5, 2),
            (100, 2),
            (123_456_789, 4),
            (-99_990_000, 4),
            (10_000, 0),
        ] {
            let mut out = BytesMut::new();
            put_numeric(units_in, scale, &mut out);
            let text = get_numeric(&out).unwrap();
            assert_eq!(text, decimal(units_in, scale));
            assert_eq!(units(&text, scale), Some(units_in));
        }
    }

    #[test]
    fn timestamps_are_civil() {
        assert_eq!(timestamp(0), "2000-01-01 00:00:00");
        assert_eq!(
            timestamp(59 * 86_400_000_000 + 1_500_000),
            "2000-02-29 00:00:01.5"
        );
        assert_eq!(timestamp(-1_000_000), "1999-12-31 23:59:59");
    }

    #[test]
    fn literals_stand_where_parameters_stood() {
        let sql = interpolate(
            "UPDATE a SET b = b -$1 WHERE c = $2 AND d = '$1'",
            &[Param::Int(-3), "o'x".into()],
        );
        assert_eq!(sql, "UPDATE a SET b = b -(-3) WHERE c = 'o''x' AND d = '$1'");
    }
}
