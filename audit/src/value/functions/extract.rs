//! date_trunc, extract and date_part.

use super::conversion::{instant, local};
use super::{date, interval, text, time, timestamp, timestamptz};
use crate::value::call::Implementation;
use crate::value::datetime::{
    DATE_INFINITY, DATE_NEG_INFINITY, Fields, UNIX_EPOCH_DAY, USECS_PER_DAY, check_timestamp,
    civil_from_days, date_to_timestamp, days_from_civil,
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

/// Midnight of the Monday of the week.
fn monday(days: i64) -> i64 {
    days - (days + 5).rem_euclid(7)
}

fn truncated(unit: Unit, at: i64) -> Result<i64, SqlError> {
    if matches!(
        unit,
        Unit::Epoch | Unit::DayOfWeek | Unit::IsoDayOfWeek | Unit::DayOfYear | Unit::IsoYear
    ) {
        return Err(SqlError::not_modelled("date_trunc with this unit"));
    }
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
    let unit_micros = |micros: i64| Interval {
        micros: span.micros / micros * micros,
        ..span
    };
    let months = |n: i32| Interval {
        months: span.months / n * n,
        days: 0,
        micros: 0,
    };
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
    let era = |n: i64| {
        if year > 0 {
            (year + n - 1) / n
        } else {
            -((n - 1 - (year - 1)) / n)
        }
    };
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
    if matches!(
        unit,
        Unit::Microsecond | Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour
    ) {
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
            let micros = (quarter_days * 21_600)
                .checked_mul(1_000_000)
                .and_then(|m| m.checked_add(span.micros));
            micros
                .map(|m| Part::Exact(m, 6))
                .ok_or_else(|| SqlError::not_modelled("epoch of a huge interval"))
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

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "timestamp_trunc" => |a, _| Ok(Value::Timestamp(truncated(unit(text(a, 0)?)?, timestamp(a, 1)?)?)),
        "timestamptz_trunc" => |a, c| {
            let at = local(timestamptz(a, 1)?, c)?;
            Ok(Value::TimestampTz(instant(
                truncated(unit(text(a, 0)?)?, at)?,
                c,
            )?))
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
        _ => return None,
    })
}
