//! JSON documents: reading with the server's strictness, and jsonb's canonical text.
//!
//! A jsonb keeps one value per key (the last), orders keys by length and then by bytes, keeps numbers as
//! numeric, and prints with a blank after colon and comma.

use super::{Numeric, SqlError};
use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(Numeric),
    String(String),
    Array(Vec<Json>),
    /// In the order of jsonb: shorter keys first, then by bytes.
    Object(Vec<(String, Json)>),
}

fn invalid() -> SqlError {
    SqlError::raised("22P02", "invalid input syntax for type json")
}

/// The deepest nesting that is followed; deeper documents are not modelled.
const MAX_DEPTH: usize = 512;

/// Reads a document as jsonb: duplicate keys are merged and keys sorted.
pub fn parse_jsonb(text: &str) -> Result<Json, SqlError> {
    read(text, false)
}

fn read(text: &str, lenient: bool) -> Result<Json, SqlError> {
    let mut reader = Reader {
        bytes: text.as_bytes(),
        text,
        at: 0,
        depth: 0,
        lenient,
    };
    let value = reader.value()?;
    reader.space();
    if reader.at != text.len() {
        return Err(invalid());
    }
    Ok(value)
}

/// Checks a document of type json, which keeps its text.
pub fn check_json(text: &str) -> Result<(), SqlError> {
    read(text, true).map(drop)
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    depth: usize,
    /// json keeps its text: numbers of any size and escapes that are no character are fine.
    lenient: bool,
}

impl Reader<'_> {
    fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Json, SqlError> {
        self.space();
        match self.bytes.get(self.at) {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                let word = match &rest[..end] {
                    "null" => Json::Null,
                    "true" => Json::Bool(true),
                    "false" => Json::Bool(false),
                    _ => return Err(invalid()),
                };
                self.at += end;
                Ok(word)
            }
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Json, SqlError>) -> Result<Json, SqlError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(SqlError::not_modelled("deeply nested json"));
        }
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn array(&mut self) -> Result<Json, SqlError> {
        let mut items = Vec::new();
        if self.eat(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value()?);
            if self.eat(b']') {
                return Ok(Json::Array(items));
            }
            if !self.eat(b',') {
                return Err(invalid());
            }
        }
    }

    fn object(&mut self) -> Result<Json, SqlError> {
        let mut members = Vec::new();
        if self.eat(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(invalid());
            }
            let key = self.string()?;
            if !self.eat(b':') {
                return Err(invalid());
            }
            members.push((key, self.value()?));
            if self.eat(b'}') {
                return Ok(Json::object(members));
            }
            if !self.eat(b',') {
                return Err(invalid());
            }
        }
    }

    fn number(&mut self) -> Result<Json, SqlError> {
        let start = self.at;
        let digits = |reader: &mut Self| {
            let from = reader.at;
            while reader.bytes.get(reader.at).is_some_and(u8::is_ascii_digit) {
                reader.at += 1;
            }
            reader.at > from
        };
        self.at += usize::from(self.bytes[self.at] == b'-');
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => {
                digits(self);
            }
            _ => return Err(invalid()),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            if !digits(self) {
                return Err(invalid());
            }
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !digits(self) {
                return Err(invalid());
            }
        }
        // A number must not run into a word.
        if self
            .bytes
            .get(self.at)
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80)
        {
            return Err(invalid());
        }
        if self.lenient {
            return Ok(Json::Null);
        }
        Numeric::parse(&self.text[start..self.at]).map(Json::Number)
    }

    fn string(&mut self) -> Result<String, SqlError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self
                .bytes
                .get(self.at)
                .is_some_and(|&b| b >= 0x20 && b != b'"' && b != b'\\')
            {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    out.push(c);
                }
                _ => return Err(invalid()),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SqlError> {
        let byte = *self.bytes.get(self.at).ok_or_else(invalid)?;
        self.at += 1;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex()?;
                if self.lenient {
                    return Ok('?');
                }
                if high == 0 {
                    return Err(SqlError::raised("22P05", "unsupported Unicode escape sequence"));
                }
                if !(0xd800..0xe000).contains(&high) {
                    return char::from_u32(high).ok_or_else(invalid);
                }
                if high >= 0xdc00 || self.bytes.get(self.at..self.at + 2) != Some(b"\\u") {
                    return Err(invalid());
                }
                self.at += 2;
                let low = self.hex()?;
                if !(0xdc00..0xe000).contains(&low) {
                    return Err(invalid());
                }
                char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or_else(invalid)?
            }
            _ => return Err(invalid()),
        })
    }

    fn hex(&mut self) -> Result<u32, SqlError> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or_else(invalid)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(invalid());
        }
        self.at += 4;
        u32::from_str_radix(std::str::from_utf8(digits).map_err(|_| invalid())?, 16).map_err(|_| invalid())
    }
}

fn key_order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

impl Json {
    /// An object from members in the order given: sorted, the last of equal keys kept.
    pub fn object(members: Vec<(String, Json)>) -> Json {
        let mut sorted = members;
        sorted.sort_by(|(a, _), (b, _)| key_order(a, b));
        let mut kept: Vec<(String, Json)> = Vec::with_capacity(sorted.len());
        for (key, value) in sorted {
            match kept.last_mut() {
                Some(last) if last.0 == key => last.1 = value,
                _ => kept.push((key, value)),
            }
        }
        Json::Object(kept)
    }

    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The element at an index; a negative one counts from the end.
    pub fn at(&self, index: i64) -> Option<&Json> {
        match self {
            Json::Array(items) => {
                let index = if index < 0 {
                    items.len() as i64 + index
                } else {
                    index
                };
                usize::try_from(index).ok().and_then(|index| items.get(index))
            }
            _ => None,
        }
    }

    /// jsonb's text form.
    pub fn print(&self) -> String {
        let mut out = String::new();
        self.push(&mut out);
        out
    }

    fn push(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(number) => *out += &number.to_string(),
            Json::String(text) => push_json_string(out, text),
            Json::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    item.push(out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    push_json_string(out, key);
                    out.push_str(": ");
                    value.push(out);
                }
                out.push('}');
            }
        }
    }

    /// As `->>` gives it: strings bare, null as SQL NULL.
    pub fn as_text(&self) -> Option<String> {
        match self {
            Json::Null => None,
            Json::String(text) => Some(text.clone()),
            other => Some(other.print()),
        }
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
    }

    /// `self @> other`.
    pub fn contains(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Array(items), Json::Array(wanted)) => wanted.iter().all(|w| contains_item(items, w)),
            // A top-level array contains a bare scalar.
            (Json::Array(items), scalar) if !matches!(scalar, Json::Object(_)) => {
                contains_item(items, scalar)
            }
            (a, b) => a.contains_strictly(b),
        }
    }

    fn contains_strictly(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Object(_), Json::Object(wanted)) => wanted
                .iter()
                .all(|(key, value)| self.get(key).is_some_and(|own| own.contains_strictly(value))),
            (Json::Array(items), Json::Array(wanted)) => wanted.iter().all(|w| contains_item(items, w)),
            (a, b) => a == b,
        }
    }
}

fn contains_item(items: &[Json], wanted: &Json) -> bool {
    items.iter().any(|item| item.contains_strictly(wanted))
}

/// A JSON string literal, escaped as the server does it.
pub fn push_json_string(out: &mut String, text: &str) {
    use std::fmt::Write;
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
