//! LIKE and ILIKE. Regular expressions are not modelled.

use super::{bytea, mistyped, text};
use crate::value::call::{Call, Implementation};
use crate::value::context::Collation;
use crate::value::{SqlError, Value};

#[derive(Clone, Copy, PartialEq)]
enum Match {
    Yes,
    No,
    /// The text ran out: no later starting point can match either.
    Abort,
}

fn lone_escape() -> SqlError {
    SqlError::raised("22025", "LIKE pattern must not end with escape character")
}

/// The length of the character that starts at the front of `text`.
fn step(text: &[u8], by_character: bool) -> usize {
    if !by_character {
        return 1;
    }
    1 + text[1..].iter().take_while(|b| **b & 0xc0 == 0x80).count()
}

/// The server's matcher, step for step: an error in the pattern is raised only where it would meet it.
fn matches(mut text: &[u8], mut pattern: &[u8], by_character: bool) -> Result<Match, SqlError> {
    if pattern == b"%" {
        return Ok(Match::Yes);
    }
    while let (Some(&letter), Some(&wanted)) = (text.first(), pattern.first()) {
        match wanted {
            b'\\' => {
                pattern = &pattern[1..];
                match pattern.first() {
                    None => return Err(lone_escape()),
                    Some(&literal) if literal != letter => return Ok(Match::No),
                    Some(_) => {}
                }
            }
            b'%' => {
                pattern = &pattern[1..];
                while let Some(&next) = pattern.first() {
                    match next {
                        b'%' => {}
                        b'_' if text.is_empty() => return Ok(Match::Abort),
                        b'_' => text = &text[step(text, by_character)..],
                        _ => break,
                    }
                    pattern = &pattern[1..];
                }
                let first = match pattern {
                    [] => return Ok(Match::Yes),
                    [b'\\'] => return Err(lone_escape()),
                    [b'\\', literal, ..] => *literal,
                    [literal, ..] => *literal,
                };
                while let Some(&letter) = text.first() {
                    if letter == first {
                        match matches(text, pattern, by_character)? {
                            Match::No => {}
                            decided => return Ok(decided),
                        }
                    }
                    text = &text[step(text, by_character)..];
                }
                return Ok(Match::Abort);
            }
            b'_' => {
                text = &text[step(text, by_character)..];
                pattern = &pattern[1..];
                continue;
            }
            _ if wanted != letter => return Ok(Match::No),
            _ => {}
        }
        text = &text[1..];
        pattern = &pattern[1..];
    }
    if !text.is_empty() {
        return Ok(Match::No);
    }
    Ok(if pattern.iter().all(|b| *b == b'%') {
        Match::Yes
    } else {
        Match::Abort
    })
}

fn like(a: &[Value], call: &Call<'_>) -> Result<bool, SqlError> {
    if call.collation == Collation::Nondeterministic {
        return Err(SqlError::not_modelled("LIKE under a nondeterministic collation"));
    }
    Ok(matches(text(a, 0)?.as_bytes(), text(a, 1)?.as_bytes(), true)? == Match::Yes)
}

fn bytes_like(a: &[Value]) -> Result<bool, SqlError> {
    Ok(matches(bytea(a, 0)?, bytea(a, 1)?, false)? == Match::Yes)
}

/// `None` where the case of letters depends on the locale.
fn ilike(a: &[Value], call: &Call<'_>) -> Result<Option<bool>, SqlError> {
    if call.collation == Collation::Nondeterministic {
        return Err(SqlError::not_modelled("ILIKE under a nondeterministic collation"));
    }
    let (value, pattern) = (text(a, 0)?, text(a, 1)?);
    if !value.is_ascii() || !pattern.is_ascii() {
        return Ok(None);
    }
    let (value, pattern) = (value.to_ascii_lowercase(), pattern.to_ascii_lowercase());
    Ok(Some(
        matches(value.as_bytes(), pattern.as_bytes(), true)? == Match::Yes,
    ))
}

/// Rewrites a pattern with another escape character to one with a backslash.
fn like_escape(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let mut letters = escape.chars();
    let escape = match (letters.next(), letters.next()) {
        (None, _) => return Ok(pattern.replace('\\', "\\\\")),
        (Some(letter), None) => letter,
        _ => return Err(SqlError::raised("22025", "invalid escape string")),
    };
    if escape == '\\' {
        return Ok(pattern.to_owned());
    }
    let mut out = String::with_capacity(pattern.len());
    let mut after_escape = false;
    for letter in pattern.chars() {
        if letter == escape && !after_escape {
            out.push('\\');
            after_escape = true;
        } else if letter == '\\' {
            out.push('\\');
            if !after_escape {
                out.push('\\');
            }
            after_escape = false;
        } else {
            out.push(letter);
            after_escape = false;
        }
    }
    Ok(out)
}

fn truth(known: Option<bool>) -> Value {
    known.map_or(Value::Unknown, Value::Bool)
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "textlike" | "namelike" => |a, c| Ok(Value::Bool(like(a, c)?)),
        "textnlike" | "namenlike" => |a, c| Ok(Value::Bool(!like(a, c)?)),
        "bytealike" => |a, _| Ok(Value::Bool(bytes_like(a)?)),
        "byteanlike" => |a, _| Ok(Value::Bool(!bytes_like(a)?)),
        "texticlike" | "nameiclike" => |a, c| Ok(truth(ilike(a, c)?)),
        "texticnlike" | "nameicnlike" => |a, c| Ok(truth(ilike(a, c)?.map(|matched| !matched))),
        "like_escape" => |a, _| match a {
            [Value::Text(pattern), Value::Text(escape)] => like_escape(pattern, escape).map(Value::text),
            _ => Err(mistyped()),
        },
        _ => return None,
    })
}
