//! Floats as text: read like float8in, printed shortest like the server with extra_float_digits = 1.

use super::SqlError;
use super::text::trim_space;
use num_bigint::BigInt;

/// Reads a float8.
pub fn parse_float8(text: &str) -> Result<f64, SqlError> {
    let digits = match shape(text, "double precision")? {
        Shape::Special(value) => return Ok(value),
        Shape::Digits(digits) => digits,
    };
    let value: f64 = digits
        .parse()
        .map_err(|_| SqlError::invalid_text("double precision", text))?;
    check(value.is_infinite(), value == 0.0, digits, "double precision")?;
    Ok(value)
}

/// Reads a float4.
pub fn parse_float4(text: &str) -> Result<f32, SqlError> {
    let digits = match shape(text, "real")? {
        Shape::Special(value) => return Ok(value as f32),
        Shape::Digits(digits) => digits,
    };
    let value: f32 = digits.parse().map_err(|_| SqlError::invalid_text("real", text))?;
    check(value.is_infinite(), value == 0.0, digits, "real")?;
    Ok(value)
}

enum Shape<'a> {
    Special(f64),
    Digits(&'a str),
}

fn shape<'a>(text: &'a str, kind: &str) -> Result<Shape<'a>, SqlError> {
    let invalid = || SqlError::invalid_text(kind, text);
    let trimmed = trim_space(text);
    let (negative, rest) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, &trimmed[1..]),
        Some(b'+') => (false, &trimmed[1..]),
        Some(_) => (false, trimmed),
        None => return Err(invalid()),
    };
    match rest.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => {
            return Ok(Shape::Special(if negative {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }));
        }
        "nan" if rest.len() == trimmed.len() => return Ok(Shape::Special(f64::NAN)),
        // The C library may take these; hexadecimal floats too.
        other if other.starts_with("nan") || other.starts_with("0x") => {
            return Err(SqlError::not_modelled("unusual float literal"));
        }
        _ => {}
    }
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 {
        return Err(invalid());
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.is_empty() || !digits(unsigned) {
            return Err(invalid());
        }
    }
    Ok(Shape::Digits(trimmed))
}

fn check(infinite: bool, zero: bool, digits: &str, kind: &str) -> Result<(), SqlError> {
    let mantissa = digits.split(['e', 'E']).next().unwrap_or(digits);
    let underflow = zero && mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b));
    match infinite || underflow {
        true => Err(SqlError::raised(
            "22003",
            format!("\"{digits}\" is out of range for type {kind}"),
        )),
        false => Ok(()),
    }
}

pub fn print_float8(value: f64) -> String {
    if let Some(special) = special(value.is_nan(), value.is_infinite(), value < 0.0) {
        return special.to_owned();
    }
    let mut printed = closest(
        format!("{value:e}"),
        |digits| format!("{value:.digits$e}"),
        |s| s.parse() == Ok(value),
    );
    let bits = value.to_bits();
    if bits & 1 == 0 && value != 0.0 && on_boundary(&printed, midpoints(bits & !(1 << 63), 52, 1075)) {
        printed = longer(
            &printed,
            |digits| format!("{value:.digits$e}"),
            |s| s.parse() == Ok(value),
        );
    }
    layout(&printed, 15)
}

pub fn print_float4(value: f32) -> String {
    if let Some(special) = special(value.is_nan(), value.is_infinite(), value < 0.0) {
        return special.to_owned();
    }
    let mut printed = closest(
        format!("{value:e}"),
        |digits| format!("{value:.digits$e}"),
        |s| s.parse() == Ok(value),
    );
    let bits = value.to_bits();
    if bits & 1 == 0
        && value != 0.0
        && on_boundary(&printed, midpoints(u64::from(bits & !(1 << 31)), 23, 150))
    {
        printed = longer(
            &printed,
            |digits| format!("{value:.digits$e}"),
            |s| s.parse() == Ok(value),
        );
    }
    layout(&printed, 6)
}

fn special(nan: bool, infinite: bool, negative: bool) -> Option<&'static str> {
    match (nan, infinite, negative) {
        (true, ..) => Some("NaN"),
        (_, true, true) => Some("-Infinity"),
        (_, true, false) => Some("Infinity"),
        _ => None,
    }
}

/// The numbers halfway to the neighbours of a positive float, as (integer, power of two).
fn midpoints(bits: u64, mantissa_bits: u32, bias: i64) -> [(BigInt, i64); 2] {
    let fraction = bits & ((1 << mantissa_bits) - 1);
    let biased = (bits >> mantissa_bits) as i64;
    let (mantissa, exponent) = match biased {
        0 => (fraction, 1 - bias),
        _ => (fraction | 1 << mantissa_bits, biased - bias),
    };
    // Below a power of two the neighbour is at half the distance.
    let lower = match fraction == 0 && biased > 1 {
        true => (BigInt::from(4 * mantissa - 1), exponent - 2),
        false => (BigInt::from(2 * mantissa - 1), exponent - 1),
    };
    [lower, (BigInt::from(2 * mantissa + 1), exponent - 1)]
}

/// Whether the printed decimal lies exactly halfway to a neighbour. Such a decimal reads back only by
/// the rule "ties to even", which the server's printer does not rely on.
fn on_boundary(printed: &str, midpoints: [(BigInt, i64); 2]) -> bool {
    let (mantissa, exponent) = printed
        .trim_start_matches('-')
        .split_once('e')
        .expect("scientific form");
    let fraction = mantissa
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len() as i64);
    let digits: BigInt = mantissa.replace('.', "").parse().expect("digits");
    let exponent: i64 = exponent.parse::<i64>().expect("exponent") - fraction;
    midpoints.into_iter().any(|(integer, power)| {
        let (mut left, mut right) = (digits.clone(), integer);
        match exponent >= 0 {
            true => left *= BigInt::from(10).pow(exponent as u32),
            false => right *= BigInt::from(10).pow(-exponent as u32),
        }
        match power >= 0 {
            true => right <<= power as u64,
            false => left <<= -power as u64,
        }
        left == right
    })
}

/// Of two decimals of the shortest length that are equally close, the server takes the even one.
fn closest(shortest: String, round: impl Fn(usize) -> String, reads_back: impl Fn(&str) -> bool) -> String {
    let mantissa = shortest.split('e').next().unwrap_or(&shortest);
    let rounded = round(mantissa.bytes().filter(u8::is_ascii_digit).count() - 1);
    if reads_back(&rounded) { rounded } else { shortest }
}

/// The shortest correctly rounded form that reads back and is not the boundary itself.
fn longer(printed: &str, round: impl Fn(usize) -> String, reads_back: impl Fn(&str) -> bool) -> String {
    let bare = |text: &str| {
        let (mantissa, exponent) = text.split_once('e').expect("scientific form");
        let mantissa = if mantissa.contains('.') {
            mantissa.trim_end_matches('0').trim_end_matches('.')
        } else {
            mantissa
        };
        format!("{mantissa}e{exponent}")
    };
    (0..18)
        .map(round)
        .find(|candidate| reads_back(candidate) && bare(candidate) != printed)
        .unwrap_or_else(|| printed.to_owned())
}

/// From scientific form to the server's: plain between 1e-4 and 10^`limit`, else with a signed exponent of
/// two digits or more.
fn layout(printed: &str, limit: i32) -> String {
    let (mantissa, exponent) = printed.split_once('e').expect("scientific form");
    let exponent: i32 = exponent.parse().expect("exponent");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let mut digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    while digits.len() > 1 && digits.ends_with('0') {
        digits.pop();
    }
    if digits == "0" {
        return format!("{sign}0");
    }
    if exponent < -4 || exponent >= limit {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs());
    }
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        return format!("{sign}{digits}{}", "0".repeat(whole - digits.len()));
    }
    let (whole, fraction) = digits.split_at(whole);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_the_server_does() {
        for (value, text) in [
            (0.1, "0.1"),
            (-0.0, "-0"),
            (1e15, "1e+15"),
            (123456789012345.0, "123456789012345"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1e23, "9.999999999999999e+22"),
            (5e22, "4.9999999999999996e+22"),
            (5e-324, "5e-324"),
            (1.5e300, "1.5e+300"),
            (1.0 / 33554432.0, "2.9802322387695312e-08"),
        ] {
            assert_eq!(print_float8(value), text);
        }
        assert_eq!(print_float4(1e6), "1e+06");
        assert_eq!(print_float4(0.1), "0.1");
        assert_eq!(print_float4(16777216.0), "1.6777216e+07");
    }
}
