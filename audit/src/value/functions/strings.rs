//! Text and bytea functions.
//!
//! Case of letters beyond ASCII depends on the server's locale: unknown.

use super::{bytea, int4, mistyped, text};
use crate::value::call::{Call, Implementation};
use crate::value::context::Collation;
use crate::value::text::{byte_of_char, char_count};
use crate::value::{SqlError, Value, encode_text};

type Outcome = Result<Value, SqlError>;

/// Results longer than this are left to the server (which has its own limit, far above).
const MAX_RESULT: usize = 64 << 20;

fn too_long() -> SqlError {
    SqlError::not_modelled("very long text")
}

fn ascii_only(value: &str, change: impl Fn(&str) -> String) -> Outcome {
    Ok(if value.is_ascii() {
        Value::text(change(value))
    } else {
        Value::Unknown
    })
}

fn initcap(value: &str) -> String {
    let mut inside = false;
    let change = |c: char| {
        let changed = if inside {
            c.to_ascii_lowercase()
        } else {
            c.to_ascii_uppercase()
        };
        inside = c.is_ascii_alphanumeric();
        changed
    };
    value.chars().map(change).collect()
}

/// The window [start, start + length) of 1-based positions, cut at 1; `None` when it is empty.
fn window(start: i32, length: Option<i32>) -> Result<Option<(usize, Option<usize>)>, SqlError> {
    let first = start.max(1) as usize - 1;
    let Some(length) = length else {
        return Ok(Some((first, None)));
    };
    if length < 0 {
        return Err(SqlError::raised("22011", "negative substring length not allowed"));
    }
    let end = i64::from(start) + i64::from(length);
    if end > i64::from(i32::MAX) {
        return Ok(Some((first, None)));
    }
    if end < 1 {
        return Ok(None);
    }
    Ok(Some((first, Some((end as usize - 1).saturating_sub(first)))))
}

fn substring(value: &str, start: i32, length: Option<i32>) -> Outcome {
    let Some((first, count)) = window(start, length)? else {
        return Ok(Value::text(""));
    };
    let rest = &value[byte_of_char(value, first)..];
    Ok(Value::text(match count {
        Some(count) => &rest[..byte_of_char(rest, count)],
        None => rest,
    }))
}

fn subbytes(value: &[u8], start: i32, length: Option<i32>) -> Outcome {
    let Some((first, count)) = window(start, length)? else {
        return Ok(Value::Bytea([].into()));
    };
    let rest = &value[first.min(value.len())..];
    let end = count.map_or(rest.len(), |count| count.min(rest.len()));
    Ok(Value::Bytea(rest[..end].into()))
}

/// The first `count` characters, or all but the last `-count`.
fn left(value: &str, count: i32) -> &str {
    let count = match count < 0 {
        true => char_count(value).saturating_sub(count.unsigned_abs() as usize),
        false => count as usize,
    };
    &value[..byte_of_char(value, count)]
}

fn right(value: &str, count: i32) -> &str {
    let skip = match count < 0 {
        true => count.unsigned_abs() as usize,
        false => char_count(value).saturating_sub(count as usize),
    };
    &value[byte_of_char(value, skip)..]
}

fn pad(value: &str, length: i32, fill: &str, on_left: bool) -> Outcome {
    let wanted = length.max(0) as usize;
    if wanted > MAX_RESULT / 4 {
        return Err(too_long());
    }
    let have = char_count(value);
    if have >= wanted || fill.is_empty() {
        return Ok(Value::text(&value[..byte_of_char(value, wanted)]));
    }
    let padding: String = fill.chars().cycle().take(wanted - have).collect();
    Ok(Value::text(if on_left {
        padding + value
    } else {
        value.to_owned() + &padding
    }))
}

fn deterministic(call: &Call<'_>) -> Result<(), SqlError> {
    match call.collation {
        Collation::Nondeterministic => Err(SqlError::not_modelled("nondeterministic collation")),
        _ => Ok(()),
    }
}

fn position(value: &str, wanted: &str) -> i32 {
    value
        .find(wanted)
        .map_or(0, |at| char_count(&value[..at]) as i32 + 1)
}

fn split_part(value: &str, separator: &str, field: i32) -> Result<String, SqlError> {
    if field == 0 {
        return Err(SqlError::invalid_parameter("field position must not be zero"));
    }
    if value.is_empty() {
        return Ok(String::new());
    }
    if separator.is_empty() {
        return Ok(if field == 1 || field == -1 {
            value.to_owned()
        } else {
            String::new()
        });
    }
    let parts: Vec<&str> = value.split(separator).collect();
    let index = match field > 0 {
        true => Some(field as usize - 1),
        false => parts.len().checked_sub(field.unsigned_abs() as usize),
    };
    Ok(index
        .and_then(|index| parts.get(index))
        .copied()
        .unwrap_or("")
        .to_owned())
}

fn translate(value: &str, from: &str, to: &str) -> String {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let change = |c: char| match from.iter().position(|f| *f == c) {
        None => Some(c),
        Some(at) => to.get(at).copied(),
    };
    value.chars().filter_map(change).collect()
}

fn trim<'a>(value: &'a str, set: &str, start: bool, end: bool) -> &'a str {
    let in_set = |c: char| set.contains(c);
    let value = if start {
        value.trim_start_matches(in_set)
    } else {
        value
    };
    if end {
        value.trim_end_matches(in_set)
    } else {
        value
    }
}

fn printed(value: &Value, call: &Call<'_>) -> Result<Option<String>, SqlError> {
    match value {
        Value::Null => Ok(None),
        other => encode_text(other, call.context)
            .map(Some)
            .ok_or_else(|| SqlError::not_modelled("text of a value under these settings")),
    }
}

/// As a cast to text prints: booleans in full.
fn cast_to_text(value: &Value, call: &Call<'_>) -> Result<String, SqlError> {
    match value {
        Value::Bool(value) => Ok(if *value { "true" } else { "false" }.to_owned()),
        // A character(n) would lose its padding.
        Value::Text(value) if value.ends_with(' ') => Err(SqlError::not_modelled("|| of a padded text")),
        other => printed(other, call)?.ok_or_else(mistyped),
    }
}

fn quote_literal(value: &str) -> String {
    let escape = if value.contains('\\') { " E" } else { "" };
    let mut out = String::from(escape.trim_start());
    out.push('\'');
    for c in value.chars() {
        if c == '\'' || c == '\\' {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
    out
}

/// Replaces `length` characters from `start` on.
fn overlay(value: &str, new: &str, start: i32, length: i32) -> Outcome {
    if start <= 0 {
        return Err(SqlError::raised("22011", "negative substring length not allowed"));
    }
    let after = start
        .checked_add(length)
        .ok_or_else(|| SqlError::out_of_range("integer"))?;
    let head = &value[..byte_of_char(value, start as usize - 1)];
    let tail = &value[byte_of_char(value, after.max(1) as usize - 1)..];
    Ok(Value::text([head, new, tail].concat()))
}

/// format() with %s, %L and %% alone.
fn format(a: &[Value], call: &Call<'_>) -> Outcome {
    let Value::Text(template) = &a[0] else {
        return Ok(Value::Null);
    };
    let mut arguments = a[1..].iter();
    let mut out = String::new();
    let mut letters = template.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let kind = letters
            .next()
            .ok_or_else(|| SqlError::invalid_parameter("unterminated format() type specifier"))?;
        if kind == '%' {
            out.push('%');
            continue;
        }
        if !matches!(kind, 's' | 'L') {
            return Err(SqlError::not_modelled(
                "format() with positions, widths or identifiers",
            ));
        }
        let value = arguments
            .next()
            .ok_or_else(|| SqlError::invalid_parameter("too few arguments for format()"))?;
        match (kind, printed(value, call)?) {
            ('s', text) => out += &text.unwrap_or_default(),
            (_, None) => out += "NULL",
            (_, Some(text)) => out += &quote_literal(&text),
        }
    }
    Ok(Value::text(out))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "textcat" => |a, _| {
            let (left, right) = (text(a, 0)?, text(a, 1)?);
            let mut out = String::with_capacity(left.len() + right.len());
            out.push_str(left);
            out.push_str(right);
            Ok(Value::text(out))
        },
        "byteacat" => |a, _| Ok(Value::Bytea([bytea(a, 0)?, bytea(a, 1)?].concat().into())),
        "@2003" => |a, c| Ok(Value::text(text(a, 0)?.to_owned() + &cast_to_text(&a[1], c)?)),
        "@2004" => |a, c| Ok(Value::text(cast_to_text(&a[0], c)? + text(a, 1)?)),
        "textlen" => |a, _| Ok(Value::Int4(char_count(text(a, 0)?) as i32)),
        "bpcharlen" => |a, _| Ok(Value::Int4(char_count(text(a, 0)?.trim_end_matches(' ')) as i32)),
        "textoctetlen" | "bpcharoctetlen" => |a, _| Ok(Value::Int4(text(a, 0)?.len() as i32)),
        "byteaoctetlen" => |a, _| Ok(Value::Int4(bytea(a, 0)?.len() as i32)),
        "@1810" => |a, _| Ok(Value::Int4(bytea(a, 0)?.len() as i32 * 8)),
        "@1811" => |a, _| Ok(Value::Int4(text(a, 0)?.len() as i32 * 8)),
        "lower" => |a, _| ascii_only(text(a, 0)?, str::to_ascii_lowercase),
        "upper" => |a, _| ascii_only(text(a, 0)?, str::to_ascii_uppercase),
        "initcap" => |a, _| ascii_only(text(a, 0)?, initcap),
        "text_substr" => |a, _| substring(text(a, 0)?, int4(a, 1)?, Some(int4(a, 2)?)),
        "text_substr_no_len" => |a, _| substring(text(a, 0)?, int4(a, 1)?, None),
        "bytea_substr" => |a, _| subbytes(bytea(a, 0)?, int4(a, 1)?, Some(int4(a, 2)?)),
        "bytea_substr_no_len" => |a, _| subbytes(bytea(a, 0)?, int4(a, 1)?, None),
        "text_left" => |a, _| Ok(Value::text(left(text(a, 0)?, int4(a, 1)?))),
        "text_right" => |a, _| match int4(a, 1)? {
            i32::MIN => Err(SqlError::not_modelled("right of an extreme length")),
            count => Ok(Value::text(right(text(a, 0)?, count))),
        },
        "btrim" => |a, _| Ok(Value::text(trim(text(a, 0)?, text(a, 1)?, true, true))),
        "btrim1" => |a, _| Ok(Value::text(trim(text(a, 0)?, " ", true, true))),
        "ltrim" => |a, _| Ok(Value::text(trim(text(a, 0)?, text(a, 1)?, true, false))),
        "ltrim1" => |a, _| Ok(Value::text(trim(text(a, 0)?, " ", true, false))),
        "rtrim" => |a, _| Ok(Value::text(trim(text(a, 0)?, text(a, 1)?, false, true))),
        "lpad" => |a, _| pad(text(a, 0)?, int4(a, 1)?, text(a, 2)?, true),
        "@879" => |a, _| pad(text(a, 0)?, int4(a, 1)?, " ", true),
        "rpad" => |a, _| pad(text(a, 0)?, int4(a, 1)?, text(a, 2)?, false),
        "@880" => |a, _| pad(text(a, 0)?, int4(a, 1)?, " ", false),
        "replace_text" => |a, c| {
            deterministic(c)?;
            let (value, from, to) = (text(a, 0)?, text(a, 1)?, text(a, 2)?);
            if from.is_empty() {
                return Ok(a[0].clone());
            }
            if value.len().saturating_mul(to.len().max(1)) > MAX_RESULT {
                return Err(too_long());
            }
            Ok(Value::text(value.replace(from, to)))
        },
        "textpos" => |a, c| {
            deterministic(c)?;
            Ok(Value::Int4(position(text(a, 0)?, text(a, 1)?)))
        },
        "text_starts_with" => |a, c| {
            deterministic(c)?;
            Ok(Value::Bool(text(a, 0)?.starts_with(text(a, 1)?)))
        },
        "split_part" => |a, c| {
            deterministic(c)?;
            split_part(text(a, 0)?, text(a, 1)?, int4(a, 2)?).map(Value::text)
        },
        "repeat" => |a, _| {
            let (value, count) = (text(a, 0)?, int4(a, 1)?.max(0) as usize);
            if value.len().saturating_mul(count) > MAX_RESULT {
                return Err(too_long());
            }
            Ok(Value::text(value.repeat(count)))
        },
        "textoverlay" => |a, _| overlay(text(a, 0)?, text(a, 1)?, int4(a, 2)?, int4(a, 3)?),
        "textoverlay_no_len" => |a, _| {
            let new = text(a, 1)?;
            overlay(text(a, 0)?, new, int4(a, 2)?, char_count(new) as i32)
        },
        "text_format" | "text_format_nv" => format,
        "text_reverse" => |a, _| Ok(Value::text(text(a, 0)?.chars().rev().collect::<String>())),
        "translate" => |a, _| Ok(Value::text(translate(text(a, 0)?, text(a, 1)?, text(a, 2)?))),
        "ascii" => |a, c| match text(a, 0)?.chars().next() {
            None => Ok(Value::Int4(0)),
            Some(first) if c.context.utf8 || first.is_ascii() => Ok(Value::Int4(first as i32)),
            Some(_) => Ok(Value::Unknown),
        },
        "chr" => |a, c| {
            let code = int4(a, 0)?;
            match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(letter) if code > 0 && (c.context.utf8 || code < 128) => {
                    Ok(Value::text(letter.to_string()))
                }
                _ => Err(SqlError::not_modelled("chr of an unusual code")),
            }
        },
        "text_concat" => |a, c| {
            let mut out = String::new();
            for value in a {
                out += &printed(value, c)?.unwrap_or_default();
            }
            Ok(Value::text(out))
        },
        "text_concat_ws" => |a, c| {
            let Value::Text(separator) = &a[0] else {
                return Ok(Value::Null);
            };
            let mut parts = Vec::with_capacity(a.len());
            for value in &a[1..] {
                parts.extend(printed(value, c)?);
            }
            Ok(Value::text(parts.join(separator)))
        },
        "md5_text" => |a, _| Ok(Value::text(format!("{:x}", md5::compute(text(a, 0)?)))),
        "md5_bytea" => |a, _| Ok(Value::text(format!("{:x}", md5::compute(bytea(a, 0)?)))),
        "sha256_bytea" => |a, _| {
            use sha2::Digest;
            Ok(Value::Bytea(sha2::Sha256::digest(bytea(a, 0)?).as_slice().into()))
        },
        "binary_encode" => |a, _| match text(a, 1)?.to_ascii_lowercase().as_str() {
            "hex" => Ok(Value::text(hex(bytea(a, 0)?))),
            _ => Err(SqlError::not_modelled("encode in another form than hex")),
        },
        "quote_literal" => |a, _| Ok(Value::text(quote_literal(text(a, 0)?))),
        "quote_nullable" => |a, _| match &a[0] {
            Value::Null => Ok(Value::text("NULL")),
            _ => Ok(Value::text(quote_literal(text(a, 0)?))),
        },
        "pg_num_nulls" => |a, _| Ok(Value::Int4(a.iter().filter(|v| v.is_null()).count() as i32)),
        "pg_num_nonnulls" => |a, _| Ok(Value::Int4(a.iter().filter(|v| !v.is_null()).count() as i32)),
        _ => return None,
    })
}
