//! Dates, times and intervals: arithmetic, date_trunc, extract, age.

use super::conversion::{instant, local};
use super::{date, float8, int4, interval, text, time, timestamp, timestamptz};
use crate::value::call::{Call, Implementation};
use crate::value::datetime::{
    self, DATE_INFINITY, DATE_NEG_INFINITY, Fields, UNIX_EPOCH_DAY, USECS_PER_DAY, check_date, check_timestamp,
    civil_from_days, date_to_timestamp, days_from_civil, days_in_month, timestamp_to_date,
};
use crate::value::interval::Interval;
use crate::value::{Numeric, SqlError, Value};

type Outcome = Result<Value, SqlError>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
}

fn unit(name: &str) -> Result<Unit, SqlError> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "microsecond" | "microseconds" => Unit::Microsecond,
        "millisecond" | "milliseconds" => Unit::Millisecond,
        "second" | "seconds" => Unit::Second,
        "minute" | "minutes" => Unit::Minute,
        "hour" | "hours" => Unit::Hour,
        "day" | "days" => Unit::Day,
        "week" | "weeks" => Unit::Week,
        "month" | "months" => Unit::Month,
        "quarter" => Unit::Quarter,
        "year" | "years" => Unit::Year,
        "decade" | "decades" => Unit::Decade,
        "century" | "centuries" => Unit::Century,
        "millennium" | "millennia" => Unit::Millennium,
        "epoch" => Unit::Epoch,
        "dow" => Unit::DayOfWeek,
        "isodow" => Unit::IsoDayOfWeek,
        "doy" => Unit::DayOfYear,
        "isoyear" => Unit::IsoYear,
        _ => return Err(SqlError::not_modelled("unusual date/time unit")),
    })
}

fn unsupported() -> SqlError {
    SqlError::raised("0A000", "unit not supported")
}

fn is_infinite(timestamp: i64) -> bool {
    timestamp == i64::MAX || timestamp == i64::MIN
}

/// Adds months (clamped to the end of the month), then days, then time.
fn add_to_local(start: i64, span: Interval) -> Result<i64, SqlError> {
    let mut at = start;
    if span.months != 0 {
        let mut fields = Fields::of_timestamp(at);
        let months = i64::from(fields.year) * 12 + i64::from(fields.month - 1) + i64::from(span.months);
        fields.year = months.div_euclid(12) as i32;
        fields.month = months.rem_euclid(12) as i32 + 1;
        fields.day = fields.day.min(days_in_month(fields.year, fields.month));
        at = fields.timestamp()?;
    }
    if span.days != 0 {
        at = check_timestamp(i128::from(at) + i128::from(span.days) * i128::from(USECS_PER_DAY))?;
    }
    Ok(at)
}

fn add_interval(start: i64, span: Interval) -> Result<i64, SqlError> {
    span.checked()?;
    if is_infinite(start) {
        return Ok(start);
    }
    let at = add_to_local(start, span)?;
    check_timestamp(i128::from(at) + i128::from(span.micros))
}

fn add_interval_zoned(start: i64, span: Interval, call: &Call<'_>) -> Result<i64, SqlError> {
    span.checked()?;
    if is_infinite(start) {
        return Ok(start);
    }
    let at = match span.months != 0 || span.days != 0 {
        true => instant(add_to_local(local(start, call)?, span)?, call)?,
        false => start,
    };
    check_timestamp(i128::from(at) + i128::from(span.micros))
}

/// The server negates without looking for overflow, or with, by version.
fn negated(span: Interval) -> Result<Interval, SqlError> {
    span.neg().map_err(|_| SqlError::not_modelled("negation of an extreme interval"))
}

fn difference(later: i64, earlier: i64) -> Outcome {
    if is_infinite(later) || is_infinite(earlier) {
        return Err(SqlError::not_modelled("difference of infinite timestamps"));
    }
    // Older servers do not look for overflow.
    let micros =
        later.checked_sub(earlier).ok_or_else(|| SqlError::not_modelled("difference of far timestamps"))?;
    Ok(justify_hours(Interval { months: 0, days: 0, micros })?.into())
}

fn justify_hours(span: Interval) -> Result<Interval, SqlError> {
    let out = || SqlError::raised("22008", "interval out of range");
    let mut days = i64::from(span.days) + span.micros / USECS_PER_DAY;
    let mut micros = span.micros % USECS_PER_DAY;
    if days > 0 && micros < 0 {
        micros += USECS_PER_DAY;
        days -= 1;
    } else if days < 0 && micros > 0 {
        micros -= USECS_PER_DAY;
        days += 1;
    }
    Ok(Interval { months: span.months, days: i32::try_from(days).map_err(|_| out())?, micros })
}

fn justify_days(span: Interval) -> Result<Interval, SqlError> {
    let out = || SqlError::raised("22008", "interval out of range");
    let mut months = i64::from(span.months) + i64::from(span.days / 30);
    let mut days = span.days % 30;
    if months > 0 && days < 0 {
        days += 30;
        months -= 1;
    } else if months < 0 && days > 0 {
        days -= 30;
        months += 1;
    }
    Ok(Interval { months: i32::try_from(months).map_err(|_| out())?, days, micros: span.micros })
}

/// Only factors that leave no fraction of a month or day: there the order of rounding is the compiler's.
fn scaled(span: Interval, factor: f64, divide: bool) -> Outcome {
    let out = || SqlError::raised("22008", "interval out of range");
    if divide && factor == 0.0 {
        return Err(SqlError::division_by_zero());
    }
    if !factor.is_finite() {
        return Err(SqlError::not_modelled("interval times a special float"));
    }
    let apply = |value: f64| if divide { value / factor } else { value * factor };
    let whole = |value: i32| -> Result<i32, SqlError> {
        let result = apply(f64::from(value));
        if result.fract() != 0.0 || result.abs() > 1e15 {
            return Err(SqlError::not_modelled("interval times a fraction"));
        }
        match (-2_147_483_648.0..2_147_483_648.0).contains(&result) {
            true => Ok(result as i32),
            false => Err(out()),
        }
    };
    let micros = apply(span.micros as f64).round_ties_even();
    let (months, days) = (whole(span.months)?, whole(span.days)?);
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&micros) {
        return Err(out());
    }
    Ok(Interval { months, days, micros: micros as i64 }.checked()?.into())
}

/// Midnight of the Monday of the week.
fn monday(days: i64) -> i64 {
    days - (days + 5).rem_euclid(7)
}

fn truncated(unit: Unit, at: i64) -> Result<i64, SqlError> {
    if is_infinite(at) {
        return Ok(at);
    }
    let mut fields = Fields::of_timestamp(at);
    if unit == Unit::Week {
        return check_timestamp(i128::from(monday(at.div_euclid(USECS_PER_DAY))) * i128::from(USECS_PER_DAY));
    }
    let depth = match unit {
        Unit::Microsecond => return Ok(at),
        Unit::Millisecond => {
            fields.micros = fields.micros / 1000 * 1000;
            return fields.timestamp();
        }
        Unit::Second => 0,
        Unit::Minute => 1,
        Unit::Hour => 2,
        Unit::Day => 3,
        Unit::Month => 4,
        Unit::Quarter => 5,
        Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium => 6,
        _ => return Err(SqlError::not_modelled("date_trunc with this unit")),
    };
    let span = |year: i32, n: i32| match year > 0 {
        true => (year + n - 1) / n * n - (n - 1),
        false => -((n - 1 - (year - 1)) / n) * n + 1,
    };
    match unit {
        Unit::Millennium => fields.year = span(span(fields.year, 1000), 100),
        Unit::Century => fields.year = span(fields.year, 100),
        Unit::Decade if fields.year > 0 => fields.year = fields.year / 10 * 10,
        Unit::Decade => fields.year = -((8 - (fields.year - 1)) / 10) * 10,
        _ => {}
    }
    if depth >= 6 {
        fields.month = 1;
    }
    if depth >= 5 {
        fields.month = 3 * ((fields.month - 1) / 3) + 1;
    }
    if depth >= 4 {
        fields.day = 1;
    }
    if depth >= 3 {
        fields.hour = 0;
    }
    if depth >= 2 {
        fields.minute = 0;
    }
    if depth >= 1 {
        fields.second = 0;
    }
    fields.micros = 0;
    fields.timestamp()
}

fn truncated_interval(unit: Unit, span: Interval) -> Outcome {
    span.checked()?;
    let unit_micros = |micros: i64| Interval { micros: span.micros / micros * micros, ..span };
    let months = |n: i32| Interval { months: span.months / n * n, days: 0, micros: 0 };
    Ok(match unit {
        Unit::Microsecond => span,
        Unit::Millisecond => unit_micros(1000),
        Unit::Second => unit_micros(1_000_000),
        Unit::Minute => unit_micros(60_000_000),
        Unit::Hour => unit_micros(3_600_000_000),
        Unit::Day => Interval { micros: 0, ..span },
        Unit::Month => months(1),
        Unit::Quarter => months(3),
        Unit::Year => months(12),
        Unit::Decade => months(120),
        Unit::Century => months(1200),
        Unit::Millennium => months(12000),
        _ => return Err(SqlError::not_modelled("date_trunc with this unit")),
    }
    .into())
}

/// What extract finds: an exact number of units of 10^-scale, or infinity, or NULL.
enum Part {
    Exact(i64, u16),
    Infinite(bool),
    Null,
}

fn iso_week(days: i64) -> (i64, i64) {
    // The ISO year is that of the week's Thursday.
    let thursday = monday(days) + 3;
    let (year, ..) = civil_from_days(thursday);
    let first = days_from_civil(year, 1, 1);
    (i64::from(year), (thursday - first) / 7 + 1)
}

fn date_field(unit: Unit, days: i64) -> Result<i64, SqlError> {
    let (year, month, day) = civil_from_days(days);
    let (year, month, day) = (i64::from(year), i64::from(month), i64::from(day));
    let era = |n: i64| if year > 0 { (year + n - 1) / n } else { -((n - 1 - (year - 1)) / n) };
    Ok(match unit {
        Unit::Day => day,
        Unit::Month => month,
        Unit::Quarter => (month - 1) / 3 + 1,
        Unit::Week => iso_week(days).1,
        Unit::Year if year > 0 => year,
        Unit::Year => year - 1,
        Unit::Decade if year >= 0 => year / 10,
        Unit::Decade => -((8 - (year - 1)) / 10),
        Unit::Century => era(100),
        Unit::Millennium => era(1000),
        Unit::IsoYear => match iso_week(days).0 {
            bc if bc <= 0 => bc - 1,
            year => year,
        },
        Unit::DayOfWeek => (days + 6).rem_euclid(7),
        Unit::IsoDayOfWeek => (days + 5).rem_euclid(7) + 1,
        Unit::DayOfYear => days - days_from_civil(year as i32, 1, 1) + 1,
        _ => return Err(unsupported()),
    })
}

fn infinite_part(unit: Unit, negative: bool) -> Part {
    match unit {
        Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium | Unit::IsoYear | Unit::Epoch => {
            Part::Infinite(negative)
        }
        _ => Part::Null,
    }
}

fn clock_part(unit: Unit, fields: &Fields) -> Option<Part> {
    let micros = i64::from(fields.second) * 1_000_000 + i64::from(fields.micros);
    Some(match unit {
        Unit::Microsecond => Part::Exact(micros, 0),
        Unit::Millisecond => Part::Exact(micros, 3),
        Unit::Second => Part::Exact(micros, 6),
        Unit::Minute => Part::Exact(fields.minute.into(), 0),
        Unit::Hour => Part::Exact(fields.hour.into(), 0),
        _ => return None,
    })
}

fn timestamp_part(unit: Unit, at: i64, epoch_of: i64) -> Result<Part, SqlError> {
    if is_infinite(at) {
        return Ok(infinite_part(unit, at < 0));
    }
    if unit == Unit::Epoch {
        let micros = epoch_of
            .checked_sub(UNIX_EPOCH_DAY * USECS_PER_DAY)
            .ok_or_else(|| SqlError::not_modelled("epoch of a far timestamp"))?;
        return Ok(Part::Exact(micros, 6));
    }
    if let Some(part) = clock_part(unit, &Fields::of_timestamp(at)) {
        return Ok(part);
    }
    Ok(Part::Exact(date_field(unit, at.div_euclid(USECS_PER_DAY))?, 0))
}

fn date_part(unit: Unit, day: i32) -> Result<Part, SqlError> {
    if matches!(unit, Unit::Microsecond | Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour) {
        return Err(unsupported());
    }
    if day == DATE_INFINITY || day == DATE_NEG_INFINITY {
        return Ok(infinite_part(unit, day < 0));
    }
    if unit == Unit::Epoch {
        return Ok(Part::Exact((i64::from(day) - UNIX_EPOCH_DAY) * 86_400, 0));
    }
    Ok(Part::Exact(date_field(unit, day.into())?, 0))
}

fn time_part(unit: Unit, time: i64) -> Result<Part, SqlError> {
    if unit == Unit::Epoch {
        return Ok(Part::Exact(time, 6));
    }
    clock_part(unit, &Fields::of_time(time)).ok_or_else(unsupported)
}

fn interval_part(unit: Unit, span: Interval) -> Result<Part, SqlError> {
    span.checked()?;
    let seconds = span.micros % 60_000_000;
    let (years, months) = (span.months / 12, span.months % 12);
    let whole = |value: i64| Ok(Part::Exact(value, 0));
    match unit {
        Unit::Microsecond => whole(seconds),
        Unit::Millisecond => Ok(Part::Exact(seconds, 3)),
        Unit::Second => Ok(Part::Exact(seconds, 6)),
        Unit::Minute => whole(span.micros / 60_000_000 % 60),
        Unit::Hour => whole(span.micros / 3_600_000_000),
        Unit::Day => whole(span.days.into()),
        Unit::Month => whole(months.into()),
        Unit::Quarter if span.months >= 0 => whole(i64::from(months) / 3 + 1),
        Unit::Year => whole(years.into()),
        Unit::Decade => whole(i64::from(years) / 10),
        Unit::Century => whole(i64::from(years) / 100),
        Unit::Millennium => whole(i64::from(years) / 1000),
        Unit::Epoch => {
            let quarter_days = 1461 * i64::from(years) + 120 * i64::from(months) + 4 * i64::from(span.days);
            let micros = (quarter_days * 21_600).checked_mul(1_000_000).and_then(|m| m.checked_add(span.micros));
            micros.map(|m| Part::Exact(m, 6)).ok_or_else(|| SqlError::not_modelled("epoch of a huge interval"))
        }
        _ => Err(SqlError::not_modelled("extract of this unit from an interval")),
    }
}

fn as_numeric(part: Part) -> Value {
    match part {
        Part::Exact(value, scale) => Value::Numeric(Numeric::new(value, scale)),
        Part::Infinite(true) => Value::Numeric(Numeric::NEG_INFINITY),
        Part::Infinite(false) => Value::Numeric(Numeric::INFINITY),
        Part::Null => Value::Null,
    }
}

/// date_part computes in floats; only what is exact there, or rounded once, is the same everywhere.
fn as_float(part: Part) -> Value {
    match part {
        Part::Exact(value, 0) => Value::Float8(value as f64),
        Part::Exact(value, scale) if value % 10i64.pow(scale.into()) == 0 => {
            Value::Float8((value / 10i64.pow(scale.into())) as f64)
        }
        Part::Exact(..) => Value::Unknown,
        Part::Infinite(true) => Value::Float8(f64::NEG_INFINITY),
        Part::Infinite(false) => Value::Float8(f64::INFINITY),
        Part::Null => Value::Null,
    }
}

/// The symbolic difference in years, months and days.
fn age(first: i64, second: i64) -> Outcome {
    if is_infinite(first) || is_infinite(second) {
        return Err(SqlError::not_modelled("age of infinite timestamps"));
    }
    let (later, earlier) = (Fields::of_timestamp(first), Fields::of_timestamp(second));
    let sign = if first < second { -1 } else { 1 };
    let part = |a: i32, b: i32| i64::from(sign) * (i64::from(a) - i64::from(b));
    let mut micros = part(later.micros, earlier.micros);
    let mut seconds = part(later.second, earlier.second);
    let mut minutes = part(later.minute, earlier.minute);
    let mut hours = part(later.hour, earlier.hour);
    let mut days = part(later.day, earlier.day);
    let mut months = part(later.month, earlier.month);
    let mut years = part(later.year, earlier.year);
    let borrow = |low: &mut i64, high: &mut i64, size: i64| {
        while *low < 0 {
            *low += size;
            *high -= 1;
        }
    };
    borrow(&mut micros, &mut seconds, 1_000_000);
    borrow(&mut seconds, &mut minutes, 60);
    borrow(&mut minutes, &mut hours, 60);
    borrow(&mut hours, &mut days, 24);
    let from = if first < second { later } else { earlier };
    borrow(&mut days, &mut months, days_in_month(from.year, from.month).into());
    borrow(&mut months, &mut years, 12);
    let time = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros;
    let sign = i64::from(sign);
    Ok(Value::Interval {
        months: (sign * (years * 12 + months)) as i32,
        days: (sign * days) as i32,
        micros: sign * time,
    })
}

/// Midnight of today in local time.
fn today(call: &Call<'_>) -> Result<Option<i32>, SqlError> {
    match call.context.now {
        Value::TimestampTz(now) => Ok(Some(timestamp_to_date(local(now, call)?))),
        _ => Ok(None),
    }
}

fn make_date(year: i32, month: i32, day: i32) -> Outcome {
    let bad = || SqlError::raised("22008", "date field value out of range");
    if year == 0 || year == i32::MIN || !(1..=12).contains(&month) {
        return Err(bad());
    }
    let astronomical = if year < 0 { year + 1 } else { year };
    if !(1..=31).contains(&day) || day > days_in_month(astronomical, month) {
        return Err(bad());
    }
    check_date(days_from_civil(astronomical, month, day)).map(Value::Date)
}

fn from_unix(seconds: f64) -> Outcome {
    let out = || SqlError::raised("22008", "timestamp out of range");
    if seconds.is_nan() {
        return Err(SqlError::raised("22008", "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Value::TimestampTz(if seconds < 0.0 { i64::MIN } else { i64::MAX }));
    }
    // A fraction may be rounded in one step or two, by the compiler.
    if seconds.fract() != 0.0 || seconds.abs() > 1e15 {
        return Err(SqlError::not_modelled("to_timestamp of a fraction"));
    }
    check_timestamp((seconds as i128 + i128::from(UNIX_EPOCH_DAY) * 86_400) * 1_000_000)
        .map(Value::TimestampTz)
        .map_err(|_| out())
}

fn date_plus(start: i32, days: i64) -> Outcome {
    if start == DATE_INFINITY || start == DATE_NEG_INFINITY {
        return Ok(Value::Date(start));
    }
    check_date(i64::from(start) + days).map(Value::Date)
}

fn time_plus(start: i64, micros: i64) -> Outcome {
    match start.checked_add(micros) {
        Some(sum) => Ok(Value::Time(sum.rem_euclid(USECS_PER_DAY))),
        None => Err(SqlError::not_modelled("time plus an extreme interval")),
    }
}

fn date_plus_time(day: i32, time: i64) -> Outcome {
    match date_to_timestamp(day)? {
        infinite if is_infinite(infinite) => Ok(Value::Timestamp(infinite)),
        midnight => check_timestamp(i128::from(midnight) + i128::from(time)).map(Value::Timestamp),
    }
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "now" => |_, c| Ok(c.context.now.clone()),
        "timestamp_pl_interval" => |a, _| Ok(Value::Timestamp(add_interval(timestamp(a, 0)?, interval(a, 1)?)?)),
        "@2548" => |a, _| Ok(Value::Timestamp(add_interval(timestamp(a, 1)?, interval(a, 0)?)?)),
        "timestamp_mi_interval" => |a, _| {
            Ok(Value::Timestamp(add_interval(timestamp(a, 0)?, negated(interval(a, 1)?)?)?))
        },
        "timestamptz_pl_interval" => |a, c| {
            Ok(Value::TimestampTz(add_interval_zoned(timestamptz(a, 0)?, interval(a, 1)?, c)?))
        },
        "@2549" => |a, c| Ok(Value::TimestampTz(add_interval_zoned(timestamptz(a, 1)?, interval(a, 0)?, c)?)),
        "timestamptz_mi_interval" => |a, c| {
            Ok(Value::TimestampTz(add_interval_zoned(timestamptz(a, 0)?, negated(interval(a, 1)?)?, c)?))
        },
        "date_pl_interval" => |a, _| {
            Ok(Value::Timestamp(add_interval(date_to_timestamp(date(a, 0)?)?, interval(a, 1)?)?))
        },
        "@2546" => |a, _| Ok(Value::Timestamp(add_interval(date_to_timestamp(date(a, 1)?)?, interval(a, 0)?)?)),
        "date_mi_interval" => |a, _| {
            Ok(Value::Timestamp(add_interval(date_to_timestamp(date(a, 0)?)?, negated(interval(a, 1)?)?)?))
        },
        "timestamp_mi" => |a, _| match (&a[0], &a[1]) {
            (Value::Timestamp(x), Value::Timestamp(y)) | (Value::TimestampTz(x), Value::TimestampTz(y)) => {
                difference(*x, *y)
            }
            _ => Err(super::mistyped()),
        },
        "date_mi" => |a, _| {
            let (x, y) = (date(a, 0)?, date(a, 1)?);
            let infinite = |d: i32| d == DATE_INFINITY || d == DATE_NEG_INFINITY;
            if infinite(x) || infinite(y) {
                return Err(SqlError::raised("22008", "cannot subtract infinite dates"));
            }
            Ok(Value::Int4(x.wrapping_sub(y)))
        },
        "date_pli" => |a, _| date_plus(date(a, 0)?, int4(a, 1)?.into()),
        "@2550" => |a, _| date_plus(date(a, 1)?, int4(a, 0)?.into()),
        "date_mii" => |a, _| date_plus(date(a, 0)?, -i64::from(int4(a, 1)?)),
        "datetime_timestamp" => |a, _| date_plus_time(date(a, 0)?, time(a, 1)?),
        "@1296" => |a, _| date_plus_time(date(a, 1)?, time(a, 0)?),
        "time_mi_time" => |a, _| Ok(Value::Interval { months: 0, days: 0, micros: time(a, 0)? - time(a, 1)? }),
        "time_pl_interval" => |a, _| time_plus(time(a, 0)?, interval(a, 1)?.micros),
        "@1848" => |a, _| time_plus(time(a, 1)?, interval(a, 0)?.micros),
        "time_mi_interval" => |a, _| time_plus(time(a, 0)?, negated(interval(a, 1)?)?.micros),
        "interval_pl" => |a, _| Ok(interval(a, 0)?.add(interval(a, 1)?)?.into()),
        "interval_mi" => |a, _| Ok(interval(a, 0)?.add(negated(interval(a, 1)?)?)?.into()),
        "interval_um" => |a, _| Ok(interval(a, 0)?.neg()?.into()),
        "interval_mul" => |a, _| scaled(interval(a, 0)?, float8(a, 1)?, false),
        "mul_d_interval" => |a, _| scaled(interval(a, 1)?, float8(a, 0)?, false),
        "interval_div" => |a, _| scaled(interval(a, 0)?, float8(a, 1)?, true),
        "interval_justify_hours" => |a, _| Ok(justify_hours(interval(a, 0)?.checked()?)?.into()),
        "interval_justify_days" => |a, _| Ok(justify_days(interval(a, 0)?.checked()?)?.into()),
        "timestamp_trunc" => |a, _| Ok(Value::Timestamp(truncated(unit(text(a, 0)?)?, timestamp(a, 1)?)?)),
        "timestamptz_trunc" => |a, c| {
            let at = local(timestamptz(a, 1)?, c)?;
            Ok(Value::TimestampTz(instant(truncated(unit(text(a, 0)?)?, at)?, c)?))
        },
        "interval_trunc" => |a, _| truncated_interval(unit(text(a, 0)?)?, interval(a, 1)?),
        "extract_timestamp" => |a, _| {
            let at = timestamp(a, 1)?;
            Ok(as_numeric(timestamp_part(unit(text(a, 0)?)?, at, at)?))
        },
        "extract_timestamptz" => |a, c| {
            let at = timestamptz(a, 1)?;
            let unit = unit(text(a, 0)?)?;
            let shown = if unit == Unit::Epoch { at } else { local(at, c)? };
            Ok(as_numeric(timestamp_part(unit, shown, at)?))
        },
        "extract_date" => |a, _| Ok(as_numeric(date_part(unit(text(a, 0)?)?, date(a, 1)?)?)),
        "extract_time" => |a, _| Ok(as_numeric(time_part(unit(text(a, 0)?)?, time(a, 1)?)?)),
        "extract_interval" => |a, _| Ok(as_numeric(interval_part(unit(text(a, 0)?)?, interval(a, 1)?)?)),
        "timestamp_part" => |a, _| {
            let at = timestamp(a, 1)?;
            Ok(as_float(timestamp_part(unit(text(a, 0)?)?, at, at)?))
        },
        "timestamptz_part" => |a, c| {
            let at = timestamptz(a, 1)?;
            let unit = unit(text(a, 0)?)?;
            let shown = if unit == Unit::Epoch { at } else { local(at, c)? };
            Ok(as_float(timestamp_part(unit, shown, at)?))
        },
        "@1384" => |a, _| {
            let at = date_to_timestamp(date(a, 1)?)?;
            Ok(as_float(timestamp_part(unit(text(a, 0)?)?, at, at)?))
        },
        "time_part" => |a, _| Ok(as_float(time_part(unit(text(a, 0)?)?, time(a, 1)?)?)),
        "interval_part" => |a, _| Ok(as_float(interval_part(unit(text(a, 0)?)?, interval(a, 1)?)?)),
        "timestamp_age" => |a, _| age(timestamp(a, 0)?, timestamp(a, 1)?),
        "timestamptz_age" => |a, c| age(local(timestamptz(a, 0)?, c)?, local(timestamptz(a, 1)?, c)?),
        "@2059" => |a, c| match today(c)? {
            Some(day) => age(date_to_timestamp(day)?, timestamp(a, 0)?),
            None => Ok(Value::Unknown),
        },
        "@1386" => |a, c| match today(c)? {
            Some(day) => age(date_to_timestamp(day)?, local(timestamptz(a, 0)?, c)?),
            None => Ok(Value::Unknown),
        },
        "make_date" => |a, _| make_date(int4(a, 0)?, int4(a, 1)?, int4(a, 2)?),
        "float8_timestamptz" => |a, _| from_unix(float8(a, 0)?),
        "date_finite" => |a, _| Ok(Value::Bool(!matches!(date(a, 0)?, DATE_INFINITY | DATE_NEG_INFINITY))),
        "timestamp_finite" => |a, _| match a[0] {
            Value::Timestamp(at) | Value::TimestampTz(at) => Ok(Value::Bool(!is_infinite(at))),
            _ => Err(super::mistyped()),
        },
        "timestamptz_zone" => |a, _| match zone(text(a, 0)?) {
            Some(zone) => datetime::instant_to_local(timestamptz(a, 1)?, zone)
                .ok_or_else(|| SqlError::not_modelled("time zone"))?
                .map(Value::Timestamp),
            None => Err(SqlError::not_modelled("AT TIME ZONE of a named zone")),
        },
        "timestamp_zone" => |a, _| match zone(text(a, 0)?) {
            Some(zone) => datetime::local_to_instant(timestamp(a, 1)?, zone)
                .ok_or_else(|| SqlError::not_modelled("time zone"))?
                .map(Value::TimestampTz),
            None => Err(SqlError::not_modelled("AT TIME ZONE of a named zone")),
        },
        _ => return None,
    })
}

fn zone(name: &str) -> Option<crate::value::TimeZone> {
    match crate::value::TimeZone::from_setting(name) {
        crate::value::TimeZone::Unknown => None,
        known => Some(known),
    }
}
