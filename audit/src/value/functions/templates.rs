//! to_char, to_date, to_timestamp: the templates that programs use, all others not modelled.

use super::conversion::{instant, local};
use super::{text, timestamp, timestamptz};
use crate::value::call::Implementation;
use crate::value::datetime::{Fields, days_from_civil, days_in_month, is_leap};
use crate::value::{SqlError, Value};
use std::fmt::Write;

fn odd() -> SqlError {
    SqlError::not_modelled("unusual to_char template")
}

/// One piece of a date/time template.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Piece {
    Year,
    Month,
    Day,
    Hour24,
    Hour12,
    Minute,
    Second,
    Millis,
    Micros,
    Literal(char),
}

const PIECES: &[(&str, Piece)] = &[
    ("YYYY", Piece::Year),
    ("HH24", Piece::Hour24),
    ("HH12", Piece::Hour12),
    ("MM", Piece::Month),
    ("DD", Piece::Day),
    ("MI", Piece::Minute),
    ("SS", Piece::Second),
    ("MS", Piece::Millis),
    ("US", Piece::Micros),
];

fn pieces(template: &str) -> Result<Vec<Piece>, SqlError> {
    let mut rest = template;
    let mut out = Vec::new();
    while let Some(next) = rest.chars().next() {
        if let Some((name, piece)) = PIECES.iter().find(|(name, _)| rest.starts_with(name)) {
            rest = &rest[name.len()..];
            // DDD, SSSS, YYYYY and suffixes such as TH mean something else.
            if rest.starts_with(|c: char| c == name.chars().last().unwrap_or(' ')) {
                return Err(odd());
            }
            out.push(*piece);
        } else if matches!(next, '-' | '/' | ':' | '.' | ' ' | ',') {
            out.push(Piece::Literal(next));
            rest = &rest[1..];
        } else {
            return Err(odd());
        }
    }
    Ok(out)
}

fn formatted(at: i64, template: &str) -> Result<Value, SqlError> {
    if at == i64::MAX || at == i64::MIN {
        return Err(SqlError::not_modelled("to_char of infinity"));
    }
    if template.is_empty() {
        return Ok(Value::Null);
    }
    let fields = Fields::of_timestamp(at);
    if !(1..=9999).contains(&fields.year) {
        return Err(SqlError::not_modelled("to_char of a far year"));
    }
    let mut out = String::with_capacity(template.len() + 4);
    for piece in pieces(template)? {
        let _ = match piece {
            Piece::Year => write!(out, "{:04}", fields.year),
            Piece::Month => write!(out, "{:02}", fields.month),
            Piece::Day => write!(out, "{:02}", fields.day),
            Piece::Hour24 => write!(out, "{:02}", fields.hour),
            Piece::Hour12 => write!(
                out,
                "{:02}",
                if fields.hour % 12 == 0 {
                    12
                } else {
                    fields.hour % 12
                }
            ),
            Piece::Minute => write!(out, "{:02}", fields.minute),
            Piece::Second => write!(out, "{:02}", fields.second),
            Piece::Millis => write!(out, "{:03}", fields.micros / 1000),
            Piece::Micros => write!(out, "{:06}", fields.micros),
            Piece::Literal(c) => write!(out, "{c}"),
        };
    }
    Ok(Value::text(out))
}

/// Reads text that follows the template to the letter; anything looser is not modelled.
fn read(value: &str, template: &str) -> Result<Fields, SqlError> {
    let odd = || SqlError::not_modelled("text that does not follow the template exactly");
    let mut fields = Fields {
        year: 0,
        month: 1,
        day: 1,
        hour: 0,
        minute: 0,
        second: 0,
        micros: 0,
    };
    let mut rest = value;
    let mut seen = Vec::new();
    for piece in pieces(template)? {
        let width = match piece {
            Piece::Year => 4,
            Piece::Literal(c) => {
                rest = rest.strip_prefix(c).ok_or_else(odd)?;
                continue;
            }
            Piece::Month | Piece::Day | Piece::Hour24 | Piece::Minute | Piece::Second => 2,
            Piece::Hour12 | Piece::Millis | Piece::Micros => return Err(odd()),
        };
        if seen.contains(&piece) {
            return Err(odd());
        }
        seen.push(piece);
        let digits = rest
            .get(..width)
            .filter(|d| d.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(odd)?;
        let number: i32 = digits.parse().map_err(|_| odd())?;
        rest = &rest[width..];
        match piece {
            Piece::Year => fields.year = number,
            Piece::Month => fields.month = number,
            Piece::Day => fields.day = number,
            Piece::Hour24 => fields.hour = number,
            Piece::Minute => fields.minute = number,
            _ => fields.second = number,
        }
    }
    let real = fields.year > 0
        && (1..=12).contains(&fields.month)
        && (1..=days_in_month(fields.year, fields.month)).contains(&fields.day)
        && fields.hour < 24
        && fields.minute < 60
        && fields.second < 60;
    let complete = [Piece::Year, Piece::Month, Piece::Day]
        .iter()
        .all(|piece| seen.contains(piece));
    if !rest.is_empty() || !complete || !real {
        return Err(odd());
    }
    debug_assert!(fields.day <= 29 || fields.month != 2 || is_leap(fields.year));
    Ok(fields)
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "timestamp_to_char" => |a, _| formatted(timestamp(a, 0)?, text(a, 1)?),
        "timestamptz_to_char" => |a, c| formatted(local(timestamptz(a, 0)?, c)?, text(a, 1)?),
        "to_date" => |a, _| {
            let fields = read(text(a, 0)?, text(a, 1)?)?;
            Ok(Value::Date(
                days_from_civil(fields.year, fields.month, fields.day) as i32,
            ))
        },
        "to_timestamp" => |a, c| {
            let fields = read(text(a, 0)?, text(a, 1)?)?;
            instant(fields.timestamp()?, c).map(Value::TimestampTz)
        },
        _ => return None,
    })
}
