//! Dates, times and timestamps: the calendar, reading and printing.
//!
//! Reading takes the ISO forms that programs write; any other spelling that the server might understand is
//! "not modelled" rather than an error.

use super::context::{Context, TimeZone};
use super::text::trim_space;
use super::{SqlError, Value};

pub const USECS_PER_DAY: i64 = 86_400_000_000;
pub const USECS_PER_HOUR: i64 = 3_600_000_000;
pub const USECS_PER_MINUTE: i64 = 60_000_000;
pub const USECS_PER_SECOND: i64 = 1_000_000;
/// 2000-01-01 as a Julian day.
pub const POSTGRES_EPOCH_JDATE: i64 = 2_451_545;
/// 1970-01-01, in days from 2000-01-01.
pub const UNIX_EPOCH_DAY: i64 = -10_957;

pub const DATE_INFINITY: i32 = i32::MAX;
pub const DATE_NEG_INFINITY: i32 = i32::MIN;
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
pub const TIMESTAMP_NEG_INFINITY: i64 = i64::MIN;
/// The first and the first-too-late instants: 4714-11-24 BC and 294277-01-01.
const MIN_TIMESTAMP: i64 = -211_813_488_000_000_000;
const END_TIMESTAMP: i64 = 9_223_371_331_200_000_000;
/// Days from 4714-11-24 BC, and 5874898-01-01.
const MIN_DATE: i64 = -POSTGRES_EPOCH_JDATE;
const END_DATE: i64 = 2_147_483_494 - POSTGRES_EPOCH_JDATE;

/// A broken-down instant. The year is astronomical: 0 is 1 BC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub year: i32,
    pub month: i32,
    pub day: i32,
    pub hour: i32,
    pub minute: i32,
    pub second: i32,
    pub micros: i32,
}

/// Days from 2000-01-01 of a day in the proleptic Gregorian calendar.
pub fn days_from_civil(year: i32, month: i32, day: i32) -> i64 {
    let (mut year, mut month) = (i64::from(year), i64::from(month));
    if month <= 2 {
        year -= 1;
        month += 12;
    }
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month - 3) + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 730_425
}

pub fn civil_from_days(days: i64) -> (i32, i32, i32) {
    let shifted = days + 730_425;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year as i32, month as i32, day as i32)
}

pub fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub fn days_in_month(year: i32, month: i32) -> i32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Fields {
    /// Of a timestamp (in its own or in local time).
    pub fn of_timestamp(timestamp: i64) -> Fields {
        let days = timestamp.div_euclid(USECS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        Fields {
            year,
            month,
            day,
            ..Fields::of_time(timestamp.rem_euclid(USECS_PER_DAY))
        }
    }

    pub fn of_time(time: i64) -> Fields {
        Fields {
            year: 0,
            month: 0,
            day: 0,
            hour: (time / USECS_PER_HOUR) as i32,
            minute: (time / USECS_PER_MINUTE % 60) as i32,
            second: (time / USECS_PER_SECOND % 60) as i32,
            micros: (time % USECS_PER_SECOND) as i32,
        }
    }

    pub fn time_of_day(&self) -> i64 {
        i64::from(self.hour) * USECS_PER_HOUR
            + i64::from(self.minute) * USECS_PER_MINUTE
            + i64::from(self.second) * USECS_PER_SECOND
            + i64::from(self.micros)
    }

    /// Back to a timestamp; 22008 where it is out of range.
    pub fn timestamp(&self) -> Result<i64, SqlError> {
        check_timestamp(
            days_from_civil(self.year, self.month, self.day) as i128 * i128::from(USECS_PER_DAY)
                + i128::from(self.time_of_day()),
        )
    }
}

pub fn timestamp_out_of_range() -> SqlError {
    SqlError::raised("22008", "timestamp out of range")
}

pub fn check_timestamp(micros: i128) -> Result<i64, SqlError> {
    match (i128::from(MIN_TIMESTAMP)..i128::from(END_TIMESTAMP)).contains(&micros) {
        true => Ok(micros as i64),
        false => Err(timestamp_out_of_range()),
    }
}

pub fn check_date(days: i64) -> Result<i32, SqlError> {
    match (MIN_DATE..END_DATE).contains(&days) {
        true => Ok(days as i32),
        false => Err(SqlError::raised("22008", "date out of range")),
    }
}

/// The timestamp at midnight of a date.
pub fn date_to_timestamp(date: i32) -> Result<i64, SqlError> {
    match date {
        DATE_INFINITY => Ok(TIMESTAMP_INFINITY),
        DATE_NEG_INFINITY => Ok(TIMESTAMP_NEG_INFINITY),
        days => check_timestamp(i128::from(days) * i128::from(USECS_PER_DAY))
            .map_err(|_| SqlError::raised("22008", "date out of range for timestamp")),
    }
}

pub fn timestamp_to_date(timestamp: i64) -> i32 {
    match timestamp {
        TIMESTAMP_INFINITY => DATE_INFINITY,
        TIMESTAMP_NEG_INFINITY => DATE_NEG_INFINITY,
        finite => finite.div_euclid(USECS_PER_DAY) as i32,
    }
}

/// A local timestamp as an instant, and back. `None` where the zone's rules are not known.
pub fn local_to_instant(local: i64, zone: TimeZone) -> Option<Result<i64, SqlError>> {
    shift(local, zone, -1)
}

pub fn instant_to_local(instant: i64, zone: TimeZone) -> Option<Result<i64, SqlError>> {
    shift(instant, zone, 1)
}

fn shift(timestamp: i64, zone: TimeZone, sign: i64) -> Option<Result<i64, SqlError>> {
    if timestamp == TIMESTAMP_INFINITY || timestamp == TIMESTAMP_NEG_INFINITY {
        return Some(Ok(timestamp));
    }
    match zone {
        TimeZone::Fixed(east) => Some(check_timestamp(
            i128::from(timestamp) + i128::from(sign * i64::from(east) * USECS_PER_SECOND),
        )),
        TimeZone::Unknown => None,
    }
}

/// What a date, time or timestamp literal says.
#[derive(Clone, Copy, Debug)]
pub enum Literal {
    Infinity,
    NegInfinity,
    Epoch,
    /// Date, time of day in microseconds (up to 24:00:00) and seconds east of Greenwich.
    Point {
        days: i64,
        time: Option<i64>,
        east: Option<i32>,
    },
}

fn odd_literal() -> SqlError {
    SqlError::not_modelled("unusual date/time literal")
}

fn field_out_of_range(text: &str) -> SqlError {
    SqlError::raised("22008", format!("date/time field value out of range: \"{text}\""))
}

/// Reads a date with an optional time and zone.
pub fn parse_literal(text: &str, kind: &str) -> Result<Literal, SqlError> {
    let trimmed = trim_space(text);
    if trimmed.is_empty() {
        return Err(SqlError::raised(
            "22007",
            format!("invalid input syntax for type {kind}: \"{text}\""),
        ));
    }
    match trimmed.to_ascii_lowercase().as_str() {
        "infinity" => return Ok(Literal::Infinity),
        "-infinity" => return Ok(Literal::NegInfinity),
        "epoch" => return Ok(Literal::Epoch),
        _ => {}
    }
    let (body, bc) = match trimmed.strip_suffix(" BC") {
        Some(body) => (trim_space(body), true),
        None => (trimmed, false),
    };
    let date_end = body
        .find(|c: char| !c.is_ascii_digit() && c != '-')
        .unwrap_or(body.len());
    let mut parts = body[..date_end].split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(odd_literal());
    };
    let plain = |part: &str, least: usize, most: usize| part.len() >= least && part.len() <= most;
    if !plain(year, 4, 7) || !plain(month, 1, 2) || !plain(day, 1, 2) {
        return Err(odd_literal());
    }
    let number = |part: &str| part.parse::<i32>().map_err(|_| odd_literal());
    let (year, month, day) = (number(year)?, number(month)?, number(day)?);
    if year == 0 {
        return Err(field_out_of_range(text));
    }
    let year = if bc { 1 - year } else { year };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || day > days_in_month(year, month) {
        return Err(field_out_of_range(text));
    }
    let days = days_from_civil(year, month, day);
    let rest = &body[date_end..];
    if rest.is_empty() {
        return Ok(Literal::Point {
            days,
            time: None,
            east: None,
        });
    }
    let rest = rest
        .strip_prefix(['T', 't'])
        .unwrap_or_else(|| rest.trim_start_matches(' '));
    let (time, east) = parse_time_and_zone(rest, text)?;
    Ok(Literal::Point {
        days,
        time: Some(time),
        east,
    })
}

/// Reads `HH:MM[:SS[.ffffff]]` with an optional zone.
pub fn parse_time_and_zone(text: &str, whole: &str) -> Result<(i64, Option<i32>), SqlError> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.')
        .unwrap_or(text.len());
    let (clock, zone) = (&text[..end], text[end..].trim_start_matches(' '));
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (clock, None),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    if !(2..=3).contains(&parts.len()) || parts.iter().any(|p| p.is_empty() || p.len() > 2) {
        return Err(odd_literal());
    }
    if fraction.is_some_and(|f| parts.len() != 3 || f.is_empty() || f.len() > 15 || f.contains(['.', ':'])) {
        return Err(odd_literal());
    }
    let number = |part: &str| part.parse::<i64>().map_err(|_| odd_literal());
    let (hour, minute) = (number(parts[0])?, number(parts[1])?);
    let second = parts.get(2).map_or(Ok(0), |part| number(part))?;
    let micros = fraction.map_or(0, fraction_to_micros);
    let east = match zone {
        "" => None,
        zone => Some(parse_zone(zone)?),
    };
    // A leap second of 60 is the next minute; 24:00:00 is the end of the day.
    if minute > 59 || second > 60 || hour > 24 || (hour == 24 && (minute > 0 || second > 0 || micros > 0)) {
        return Err(field_out_of_range(whole));
    }
    if second == 60 && micros > 0 {
        return Err(field_out_of_range(whole));
    }
    Ok((
        hour * USECS_PER_HOUR + minute * USECS_PER_MINUTE + second * USECS_PER_SECOND + micros,
        east,
    ))
}

/// The server reads the fraction as a float and rounds it.
pub fn fraction_to_micros(fraction: &str) -> i64 {
    let value: f64 = format!("0.{fraction}").parse().unwrap_or(0.0);
    (value * 1_000_000.0).round_ties_even() as i64
}

fn parse_zone(zone: &str) -> Result<i32, SqlError> {
    if zone.eq_ignore_ascii_case("z") || zone.eq_ignore_ascii_case("utc") || zone.eq_ignore_ascii_case("gmt")
    {
        return Ok(0);
    }
    let sign = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return Err(odd_literal()),
    };
    let rest = &zone[1..];
    let parts: Vec<&str> = match rest.contains(':') {
        true => rest.split(':').collect(),
        false if rest.len() == 4 && rest.is_ascii() => vec![&rest[..2], &rest[2..]],
        false => vec![rest],
    };
    if parts.len() > 3
        || parts
            .iter()
            .any(|p| p.is_empty() || p.len() > 2 || !p.bytes().all(|b| b.is_ascii_digit()))
    {
        return Err(odd_literal());
    }
    let mut seconds = 0;
    for (part, unit) in parts.iter().zip([3600, 60, 1]) {
        let value: i32 = part.parse().map_err(|_| odd_literal())?;
        if (unit == 3600 && value > 15) || (unit != 3600 && value > 59) {
            return Err(odd_literal());
        }
        seconds += value * unit;
    }
    Ok(sign * seconds)
}

pub fn parse_date(text: &str, context: &Context) -> Result<Value, SqlError> {
    iso_or_unknown(context)?;
    Ok(Value::Date(match parse_literal(text, "date")? {
        Literal::Infinity => DATE_INFINITY,
        Literal::NegInfinity => DATE_NEG_INFINITY,
        Literal::Epoch => UNIX_EPOCH_DAY as i32,
        Literal::Point { time: Some(_), .. } => return Err(odd_literal()),
        Literal::Point { days, .. } => check_date(days)
            .map_err(|_| SqlError::raised("22008", format!("date out of range: \"{text}\"")))?,
    }))
}

pub fn parse_timestamp(text: &str, typmod: i32, context: &Context) -> Result<Value, SqlError> {
    iso_or_unknown(context)?;
    let timestamp = match parse_literal(text, "timestamp")? {
        Literal::Infinity => TIMESTAMP_INFINITY,
        Literal::NegInfinity => TIMESTAMP_NEG_INFINITY,
        Literal::Epoch => UNIX_EPOCH_DAY * USECS_PER_DAY,
        Literal::Point { days, time, .. } => {
            check_timestamp(i128::from(days) * i128::from(USECS_PER_DAY) + i128::from(time.unwrap_or(0)))?
        }
    };
    Ok(Value::Timestamp(round_timestamp(timestamp, typmod)?))
}

pub fn parse_timestamptz(text: &str, typmod: i32, context: &Context) -> Result<Value, SqlError> {
    iso_or_unknown(context)?;
    let timestamp = match parse_literal(text, "timestamp with time zone")? {
        Literal::Infinity => TIMESTAMP_INFINITY,
        Literal::NegInfinity => TIMESTAMP_NEG_INFINITY,
        Literal::Epoch => UNIX_EPOCH_DAY * USECS_PER_DAY,
        Literal::Point { days, time, east } => {
            let east = match (east, context.time_zone) {
                (Some(east), _) => east,
                (None, TimeZone::Fixed(east)) => east,
                (None, TimeZone::Unknown) => return Err(SqlError::not_modelled("time zone of the session")),
            };
            let local = i128::from(days) * i128::from(USECS_PER_DAY) + i128::from(time.unwrap_or(0));
            check_timestamp(local)?;
            check_timestamp(local - i128::from(east) * i128::from(USECS_PER_SECOND))?
        }
    };
    Ok(Value::TimestampTz(round_timestamp(timestamp, typmod)?))
}

pub fn parse_time(text: &str, typmod: i32) -> Result<Value, SqlError> {
    let trimmed = trim_space(text);
    if trimmed.is_empty() {
        return Err(SqlError::raised(
            "22007",
            format!("invalid input syntax for type time: \"{text}\""),
        ));
    }
    let (time, zone) = parse_time_and_zone(trimmed, text)?;
    if zone.is_some() {
        return Err(odd_literal());
    }
    Ok(Value::Time(round_time(time, typmod)))
}

fn iso_or_unknown(context: &Context) -> Result<(), SqlError> {
    // A year of four digits in front is read the same under every field order.
    let _ = context;
    Ok(())
}

/// timestamp(p): rounds half away from zero at p digits of the second.
pub fn round_timestamp(timestamp: i64, typmod: i32) -> Result<i64, SqlError> {
    if !(0..6).contains(&typmod) || timestamp == TIMESTAMP_INFINITY || timestamp == TIMESTAMP_NEG_INFINITY {
        return Ok(timestamp);
    }
    // The server does not look at the range again.
    Ok(round_micros(timestamp, typmod))
}

pub fn round_time(time: i64, typmod: i32) -> i64 {
    if (0..6).contains(&typmod) {
        round_micros(time, typmod)
    } else {
        time
    }
}

/// Half away from zero, at `digits` digits of the second.
pub fn round_micros(micros: i64, digits: i32) -> i64 {
    let unit = 10i64.pow((6 - digits) as u32);
    let half = unit / 2;
    match micros >= 0 {
        true => micros.saturating_add(half) / unit * unit,
        false => -((-micros).saturating_add(half) / unit * unit),
    }
}

fn push_date(out: &mut String, year: i32, month: i32, day: i32) {
    use std::fmt::Write;
    let shown = if year > 0 { year } else { 1 - year };
    let _ = write!(out, "{shown:04}-{month:02}-{day:02}");
}

fn push_time(out: &mut String, time: i64) {
    use std::fmt::Write;
    let fields = Fields::of_time(time);
    let _ = write!(
        out,
        "{:02}:{:02}:{:02}",
        fields.hour, fields.minute, fields.second
    );
    push_fraction(out, fields.micros);
}

pub fn push_fraction(out: &mut String, micros: i32) {
    use std::fmt::Write;
    if micros != 0 {
        let _ = write!(out, ".{micros:06}");
        while out.ends_with('0') {
            out.pop();
        }
    }
}

pub fn print_date(date: i32) -> String {
    match date {
        DATE_INFINITY => "infinity".to_owned(),
        DATE_NEG_INFINITY => "-infinity".to_owned(),
        days => {
            let (year, month, day) = civil_from_days(i64::from(days));
            let mut out = String::with_capacity(10);
            push_date(&mut out, year, month, day);
            if year <= 0 {
                out.push_str(" BC");
            }
            out
        }
    }
}

pub fn print_time(time: i64) -> String {
    let mut out = String::with_capacity(15);
    push_time(&mut out, time);
    out
}

/// Prints a local timestamp, with its zone where it has one.
pub fn print_timestamp(local: i64, east: Option<i32>) -> String {
    use std::fmt::Write;
    match local {
        TIMESTAMP_INFINITY => return "infinity".to_owned(),
        TIMESTAMP_NEG_INFINITY => return "-infinity".to_owned(),
        _ => {}
    }
    let mut out = String::with_capacity(32);
    let (year, month, day) = civil_from_days(local.div_euclid(USECS_PER_DAY));
    push_date(&mut out, year, month, day);
    out.push(' ');
    push_time(&mut out, local.rem_euclid(USECS_PER_DAY));
    if let Some(east) = east {
        let (sign, away) = if east < 0 { ('-', -east) } else { ('+', east) };
        let _ = write!(out, "{sign}{:02}", away / 3600);
        if away % 3600 != 0 {
            let _ = write!(out, ":{:02}", away / 60 % 60);
        }
        if away % 60 != 0 {
            let _ = write!(out, ":{:02}", away % 60);
        }
    }
    if year <= 0 {
        out.push_str(" BC");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_round_trip() {
        assert_eq!(days_from_civil(2000, 1, 1), 0);
        assert_eq!(days_from_civil(1970, 1, 1), UNIX_EPOCH_DAY);
        for days in (-2_451_545..4_000_000).step_by(317) {
            let (y, m, d) = civil_from_days(days);
            assert_eq!(days_from_civil(y, m, d), days);
        }
        assert_eq!(print_date(days_from_civil(-4712, 1, 1) as i32), "4713-01-01 BC");
    }
}
