//! Intervals: reading, printing, comparing.

use super::SqlError;
use super::datetime::{
    USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MINUTE, USECS_PER_SECOND, fraction_to_micros, push_fraction,
};
use super::text::trim_space;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

fn odd() -> SqlError {
    SqlError::not_modelled("unusual interval literal")
}

fn out_of_range() -> SqlError {
    SqlError::raised("22008", "interval out of range")
}

impl Interval {
    /// The linear value by which intervals are compared: months of 30 days, days of 24 hours.
    pub fn linear(self) -> i128 {
        (i128::from(self.months) * 30 + i128::from(self.days)) * i128::from(USECS_PER_DAY)
            + i128::from(self.micros)
    }

    /// Reads `1 year -2 mons 3 days 04:05:06.7` and its like.
    pub fn parse(text: &str) -> Result<Interval, SqlError> {
        let trimmed = trim_space(text);
        if trimmed.is_empty() {
            return Err(SqlError::raised(
                "22007",
                format!("invalid input syntax for type interval: \"{text}\""),
            ));
        }
        let (mut months, mut days, mut micros) = (0i64, 0i64, 0i128);
        let mut seen: Vec<&'static str> = Vec::new();
        let lower = trimmed.to_ascii_lowercase();
        let (body, ago) = match lower.strip_suffix(" ago") {
            Some(body) => (body.trim_end(), true),
            None => (lower.as_str(), false),
        };
        let mut words = body.split_ascii_whitespace().peekable();
        while let Some(word) = words.next() {
            if word.contains(':') {
                // A sign on the time applies to the time alone; without one the sign of "-1 day 2:00" does not carry.
                if words.peek().is_some() || seen.contains(&"time") {
                    return Err(odd());
                }
                seen.push("time");
                micros += parse_clock(word)?;
                continue;
            }
            let split = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
            let (quantity, attached) = word.split_at(split);
            let unit = match attached {
                "" => words.next().unwrap_or("second"),
                unit => unit,
            };
            let (quantity, fraction) = match quantity.split_once('.') {
                Some((whole, fraction)) => (whole, Some(fraction)),
                None => (quantity, None),
            };
            let negative = quantity.starts_with('-');
            let count: i64 = match quantity.strip_prefix('+').unwrap_or(quantity) {
                plain
                    if plain
                        .strip_prefix('-')
                        .unwrap_or(plain)
                        .bytes()
                        .all(|b| b.is_ascii_digit()) =>
                {
                    plain.parse().map_err(|_| odd())?
                }
                _ => return Err(odd()),
            };
            if count.unsigned_abs() > 1 << 31 {
                return Err(odd());
            }
            let unit = unit_name(unit).ok_or_else(odd)?;
            if seen.contains(&unit)
                || (seen.contains(&"time") && matches!(unit, "hour" | "minute" | "second"))
            {
                return Err(odd());
            }
            seen.push(unit);
            if fraction.is_some() && unit != "second" {
                return Err(odd());
            }
            match unit {
                "century" => months += count * 1200,
                "decade" => months += count * 120,
                "year" => months += count * 12,
                "month" => months += count,
                "week" => days += count * 7,
                "day" => days += count,
                "hour" => micros += i128::from(count) * i128::from(USECS_PER_HOUR),
                "minute" => micros += i128::from(count) * i128::from(USECS_PER_MINUTE),
                "second" => {
                    micros += i128::from(count) * i128::from(USECS_PER_SECOND);
                    if let Some(fraction) = fraction {
                        if fraction.is_empty()
                            || fraction.len() > 15
                            || !fraction.bytes().all(|b| b.is_ascii_digit())
                        {
                            return Err(odd());
                        }
                        let part = i128::from(fraction_to_micros(fraction));
                        micros += if negative { -part } else { part };
                    }
                }
                "millisecond" => micros += i128::from(count) * 1000,
                _ => micros += i128::from(count),
            }
        }
        if ago {
            (months, days, micros) = (-months, -days, -micros);
        }
        let interval = Interval {
            months: i32::try_from(months).map_err(|_| odd())?,
            days: i32::try_from(days).map_err(|_| odd())?,
            micros: i64::try_from(micros).map_err(|_| odd())?,
        };
        interval.checked()
    }

    /// The largest intervals mean infinity in newer servers: not modelled.
    pub fn checked(self) -> Result<Interval, SqlError> {
        let (months, days, micros) = (self.months, self.days, self.micros);
        if (months == i32::MAX && days == i32::MAX && micros == i64::MAX)
            || (months == i32::MIN && days == i32::MIN && micros == i64::MIN)
        {
            return Err(SqlError::not_modelled("infinite interval"));
        }
        Ok(self)
    }

    pub fn checked_add(self, other: Interval) -> Result<Interval, SqlError> {
        Interval {
            months: self.months.checked_add(other.months).ok_or_else(out_of_range)?,
            days: self.days.checked_add(other.days).ok_or_else(out_of_range)?,
            micros: self.micros.checked_add(other.micros).ok_or_else(out_of_range)?,
        }
        .checked()
    }

    pub fn checked_neg(self) -> Result<Interval, SqlError> {
        Interval {
            months: self.months.checked_neg().ok_or_else(out_of_range)?,
            days: self.days.checked_neg().ok_or_else(out_of_range)?,
            micros: self.micros.checked_neg().ok_or_else(out_of_range)?,
        }
        .checked()
    }

    /// As IntervalStyle `postgres` prints.
    pub fn print(self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        let (mut empty, mut before) = (true, false);
        for (value, unit) in [
            (self.months / 12, "year"),
            (self.months % 12, "mon"),
            (self.days, "day"),
        ] {
            if value != 0 {
                let space = if empty { "" } else { " " };
                let plus = if before && value > 0 { "+" } else { "" };
                let plural = if value == 1 { "" } else { "s" };
                let _ = write!(out, "{space}{plus}{value} {unit}{plural}");
                before = value < 0;
                empty = false;
            }
        }
        if empty || self.micros != 0 {
            let sign = match (self.micros < 0, before) {
                (true, _) => "-",
                (false, true) => "+",
                _ => "",
            };
            let magnitude = self.micros.unsigned_abs();
            let space = if empty { "" } else { " " };
            let _ = write!(
                out,
                "{space}{sign}{:02}:{:02}:{:02}",
                magnitude / USECS_PER_HOUR as u64,
                magnitude / USECS_PER_MINUTE as u64 % 60,
                magnitude / USECS_PER_SECOND as u64 % 60,
            );
            push_fraction(&mut out, (magnitude % USECS_PER_SECOND as u64) as i32);
        }
        out
    }
}

fn unit_name(word: &str) -> Option<&'static str> {
    Some(match word {
        "c" | "cent" | "century" | "centuries" => "century",
        "decade" | "decades" => "decade",
        "y" | "yr" | "yrs" | "year" | "years" => "year",
        "mon" | "mons" | "month" | "months" => "month",
        "w" | "week" | "weeks" => "week",
        "d" | "day" | "days" => "day",
        "h" | "hr" | "hrs" | "hour" | "hours" => "hour",
        "min" | "mins" | "minute" | "minutes" => "minute",
        "s" | "sec" | "secs" | "second" | "seconds" => "second",
        "msec" | "msecs" | "millisecond" | "milliseconds" => "millisecond",
        "usec" | "usecs" | "microsecond" | "microseconds" => "microsecond",
        _ => return None,
    })
}

fn parse_clock(word: &str) -> Result<i128, SqlError> {
    let (sign, rest) = match word.as_bytes()[0] {
        b'-' => (-1, &word[1..]),
        b'+' => (1, &word[1..]),
        _ => (1, word),
    };
    let (clock, fraction) = match rest.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (rest, None),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let digits =
        |part: &&str| !part.is_empty() && part.len() <= 6 && part.bytes().all(|b| b.is_ascii_digit());
    // Two fields with a fraction mean minutes and seconds: left to the server.
    if !parts.iter().all(digits) || !(parts.len() == 3 || (parts.len() == 2 && fraction.is_none())) {
        return Err(odd());
    }
    let number = |part: &str| part.parse::<i128>().unwrap_or(0);
    let (hours, minutes) = (number(parts[0]), number(parts[1]));
    let seconds = parts.get(2).map_or(0, |part| number(part));
    if minutes > 59 || seconds > 59 {
        return Err(odd());
    }
    let micros = match fraction {
        Some(f) if f.is_empty() || f.len() > 15 || !f.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(odd());
        }
        Some(f) => i128::from(fraction_to_micros(f)),
        None => 0,
    };
    Ok(sign * (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, printed) in [
            ("1 day", "1 day"),
            ("2 hours 5 mins", "02:05:00"),
            (
                "1 year 2 months -3 days 04:05:06.7",
                "1 year 2 mons -3 days +04:05:06.7",
            ),
            ("-1 day -00:00:01", "-1 days -00:00:01"),
            ("90 minutes", "01:30:00"),
            ("1 week ago", "-7 days"),
            ("0 seconds", "00:00:00"),
        ] {
            assert_eq!(Interval::parse(text).unwrap().print(), printed);
        }
    }
}
