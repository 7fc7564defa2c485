//! Dates, times and intervals: arithmetic, date_trunc, extract, age.

use super::conversion::{instant, local};
use super::{date, float8, int4, interval, text, time, timestamp, timestamptz};
use crate::value::call::{Call, Implementation};
use crate::value::datetime::{
    self, DATE_INFINITY, DATE_NEG_INFINITY, Fields, UNIX_EPOCH_DAY, USECS_PER_DAY, check_date,
    check_timestamp, date_to_timestamp, days_from_civil, days_in_month, timestamp_to_date,
};
use crate::value::interval::Interval;
use crate::value::{SqlError, Value};

type Outcome = Result<Value, SqlError>;

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
    span.checked_neg()
        .map_err(|_| SqlError::not_modelled("negation of an extreme interval"))
}

fn difference(later: i64, earlier: i64) -> Outcome {
    if is_infinite(later) || is_infinite(earlier) {
        return Err(SqlError::not_modelled("difference of infinite timestamps"));
    }
    // Older servers do not look for overflow.
    let micros = later
        .checked_sub(earlier)
        .ok_or_else(|| SqlError::not_modelled("difference of far timestamps"))?;
    Ok(justify_hours(Interval {
        months: 0,
        days: 0,
        micros,
    })?
    .into())
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
    Ok(Interval {
        months: span.months,
        days: i32::try_from(days).map_err(|_| out())?,
        micros,
    })
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
    Ok(Interval {
        months: i32::try_from(months).map_err(|_| out())?,
        days,
        micros: span.micros,
    })
}

fn justify_interval(span: Interval) -> Result<Interval, SqlError> {
    let out = || SqlError::raised("22008", "interval out of range");
    let mut days = i64::from(span.days) + span.micros / USECS_PER_DAY;
    let mut micros = span.micros % USECS_PER_DAY;
    let mut months = i64::from(span.months) + days / 30;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
        days += 30;
        months -= 1;
    } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
        days -= 30;
        months += 1;
    }
    if days > 0 && micros < 0 {
        micros += USECS_PER_DAY;
        days -= 1;
    } else if days < 0 && micros > 0 {
        micros -= USECS_PER_DAY;
        days += 1;
    }
    Ok(Interval {
        months: i32::try_from(months).map_err(|_| out())?,
        days: days as i32,
        micros,
    })
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
    Ok(Interval {
        months,
        days,
        micros: micros as i64,
    }
    .checked()?
    .into())
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
    borrow(
        &mut days,
        &mut months,
        days_in_month(from.year, from.month).into(),
    );
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

/// Fields within their ranges and whole seconds; the rest is left to the server.
fn make_timestamp(a: &[Value], _: &Call<'_>) -> Outcome {
    let Value::Date(day) = make_date(int4(a, 0)?, int4(a, 1)?, int4(a, 2)?)? else {
        return Err(super::mistyped());
    };
    let (hour, minute, second) = (int4(a, 3)?, int4(a, 4)?, float8(a, 5)?);
    if !(0..24).contains(&hour)
        || !(0..60).contains(&minute)
        || !(0.0..60.0).contains(&second)
        || second.fract() != 0.0
    {
        return Err(SqlError::not_modelled("make_timestamp with unusual fields"));
    }
    date_plus_time(
        day,
        ((i64::from(hour) * 60 + i64::from(minute)) * 60 + second as i64) * 1_000_000,
    )
}

/// years, months, weeks, days, hours, mins, secs; those left out are 0.
fn make_interval(a: &[Value], _: &Call<'_>) -> Outcome {
    let field = |index: usize| {
        if index < a.len() {
            int4(a, index).map(i64::from)
        } else {
            Ok(0)
        }
    };
    let seconds = if a.len() > 6 { float8(a, 6)? } else { 0.0 };
    let odd = || SqlError::not_modelled("make_interval with unusual fields");
    if seconds.fract() != 0.0 || seconds.abs() > 1e9 {
        return Err(odd());
    }
    let months = field(0)? * 12 + field(1)?;
    let days = field(2)? * 7 + field(3)?;
    let seconds = (field(4)? * 60 + field(5)?) * 60 + seconds as i64;
    Ok(Interval {
        months: i32::try_from(months).map_err(|_| odd())?,
        days: i32::try_from(days).map_err(|_| odd())?,
        micros: seconds.checked_mul(1_000_000).ok_or_else(odd)?,
    }
    .checked()?
    .into())
}

fn from_unix(seconds: f64) -> Outcome {
    let out = || SqlError::raised("22008", "timestamp out of range");
    if seconds.is_nan() {
        return Err(SqlError::raised("22008", "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Value::TimestampTz(if seconds < 0.0 {
            i64::MIN
        } else {
            i64::MAX
        }));
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
        "timestamp_pl_interval" => {
            |a, _| Ok(Value::Timestamp(add_interval(timestamp(a, 0)?, interval(a, 1)?)?))
        }
        "@2548" => |a, _| Ok(Value::Timestamp(add_interval(timestamp(a, 1)?, interval(a, 0)?)?)),
        "timestamp_mi_interval" => |a, _| {
            Ok(Value::Timestamp(add_interval(
                timestamp(a, 0)?,
                negated(interval(a, 1)?)?,
            )?))
        },
        "timestamptz_pl_interval" => |a, c| {
            Ok(Value::TimestampTz(add_interval_zoned(
                timestamptz(a, 0)?,
                interval(a, 1)?,
                c,
            )?))
        },
        "@2549" => |a, c| {
            Ok(Value::TimestampTz(add_interval_zoned(
                timestamptz(a, 1)?,
                interval(a, 0)?,
                c,
            )?))
        },
        "timestamptz_mi_interval" => |a, c| {
            Ok(Value::TimestampTz(add_interval_zoned(
                timestamptz(a, 0)?,
                negated(interval(a, 1)?)?,
                c,
            )?))
        },
        "date_pl_interval" => |a, _| {
            Ok(Value::Timestamp(add_interval(
                date_to_timestamp(date(a, 0)?)?,
                interval(a, 1)?,
            )?))
        },
        "@2546" => |a, _| {
            Ok(Value::Timestamp(add_interval(
                date_to_timestamp(date(a, 1)?)?,
                interval(a, 0)?,
            )?))
        },
        "date_mi_interval" => |a, _| {
            Ok(Value::Timestamp(add_interval(
                date_to_timestamp(date(a, 0)?)?,
                negated(interval(a, 1)?)?,
            )?))
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
        "time_mi_time" => |a, _| {
            Ok(Value::Interval {
                months: 0,
                days: 0,
                micros: time(a, 0)? - time(a, 1)?,
            })
        },
        "time_pl_interval" => |a, _| time_plus(time(a, 0)?, interval(a, 1)?.micros),
        "@1848" => |a, _| time_plus(time(a, 1)?, interval(a, 0)?.micros),
        "time_mi_interval" => |a, _| time_plus(time(a, 0)?, negated(interval(a, 1)?)?.micros),
        "interval_pl" => |a, _| Ok(interval(a, 0)?.checked_add(interval(a, 1)?)?.into()),
        "interval_mi" => |a, _| Ok(interval(a, 0)?.checked_add(negated(interval(a, 1)?)?)?.into()),
        "interval_um" => |a, _| Ok(interval(a, 0)?.checked_neg()?.into()),
        "interval_mul" => |a, _| scaled(interval(a, 0)?, float8(a, 1)?, false),
        "mul_d_interval" => |a, _| scaled(interval(a, 1)?, float8(a, 0)?, false),
        "interval_div" => |a, _| scaled(interval(a, 0)?, float8(a, 1)?, true),
        "interval_justify_hours" => |a, _| Ok(justify_hours(interval(a, 0)?.checked()?)?.into()),
        "interval_justify_interval" => |a, _| Ok(justify_interval(interval(a, 0)?.checked()?)?.into()),
        "interval_justify_days" => |a, _| Ok(justify_days(interval(a, 0)?.checked()?)?.into()),
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
        "make_timestamp" => make_timestamp,
        "make_interval" => make_interval,
        "float8_timestamptz" => |a, _| from_unix(float8(a, 0)?),
        "date_finite" => |a, _| {
            Ok(Value::Bool(!matches!(
                date(a, 0)?,
                DATE_INFINITY | DATE_NEG_INFINITY
            )))
        },
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
