//! Arrays as text: `{1,2,NULL,"a b"}`.

use super::text::is_space;
use super::{Array, SqlError, TypeOid, Value};

fn malformed(text: &str) -> SqlError {
    SqlError::raised("22P02", format!("malformed array literal: \"{text}\""))
}

impl Array {
    pub fn empty(element: TypeOid) -> Array {
        Array {
            element,
            dimensions: Vec::new(),
            items: Vec::new(),
        }
    }

    /// One dimension from 1.
    pub fn vector(element: TypeOid, items: Vec<Value>) -> Array {
        match items.len() {
            0 => Array::empty(element),
            length => Array {
                element,
                dimensions: vec![(length as i32, 1)],
                items,
            },
        }
    }

    /// Reads an array literal; `read` reads one element.
    pub fn parse(
        text: &str,
        element: TypeOid,
        mut read: impl FnMut(&str) -> Result<Value, SqlError>,
    ) -> Result<Array, SqlError> {
        let bytes = text.as_bytes();
        let mut at = skip_space(bytes, 0);
        if bytes.get(at) == Some(&b'[') {
            return Err(SqlError::not_modelled("array literal with bounds"));
        }
        if bytes.get(at) != Some(&b'{') {
            return Err(malformed(text));
        }
        at = skip_space(bytes, at + 1);
        let mut items = Vec::new();
        if bytes.get(at) == Some(&b'{') {
            return Err(SqlError::not_modelled("array literal of several dimensions"));
        }
        if bytes.get(at) == Some(&b'}') {
            return match skip_space(bytes, at + 1) == bytes.len() {
                true => Ok(Array::empty(element)),
                false => Err(malformed(text)),
            };
        }
        loop {
            at = skip_space(bytes, at);
            let (word, quoted, next) = read_item(text, at)?;
            at = next;
            items.push(match !quoted && word.eq_ignore_ascii_case("null") {
                true => Value::Null,
                false => read(&word)?,
            });
            match bytes.get(at) {
                Some(b',') => at += 1,
                Some(b'}') => break,
                _ => return Err(malformed(text)),
            }
        }
        match skip_space(bytes, at + 1) == bytes.len() {
            true => Ok(Array::vector(element, items)),
            false => Err(malformed(text)),
        }
    }

    /// Prints as array_out; `print` prints one element that is not NULL.
    pub fn print(&self, mut print: impl FnMut(&Value) -> Option<String>) -> Option<String> {
        if self.dimensions.is_empty() {
            return Some("{}".to_owned());
        }
        let mut out = String::new();
        if self.dimensions.iter().any(|&(_, lower)| lower != 1) {
            for &(length, lower) in &self.dimensions {
                out += &format!("[{lower}:{}]", i64::from(lower) + i64::from(length) - 1);
            }
            out.push('=');
        }
        let mut items = self.items.iter();
        self.print_dimension(0, &mut items, &mut out, &mut print)?;
        Some(out)
    }

    fn print_dimension<'a>(
        &self,
        depth: usize,
        items: &mut impl Iterator<Item = &'a Value>,
        out: &mut String,
        print: &mut impl FnMut(&Value) -> Option<String>,
    ) -> Option<()> {
        out.push('{');
        for index in 0..self.dimensions[depth].0 {
            if index > 0 {
                out.push(',');
            }
            if depth + 1 < self.dimensions.len() {
                self.print_dimension(depth + 1, items, out, print)?;
                continue;
            }
            match items.next()? {
                Value::Null => out.push_str("NULL"),
                item => push_quoted(out, &print(item)?),
            }
        }
        out.push('}');
        Some(())
    }
}

fn push_quoted(out: &mut String, text: &str) {
    let plain = !text.is_empty()
        && !text.eq_ignore_ascii_case("null")
        && !text
            .bytes()
            .any(|b| is_space(b) || matches!(b, b'"' | b'\\' | b'{' | b'}' | b','));
    if plain {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|&b| is_space(b)) {
        at += 1;
    }
    at
}

/// One element from `at`: its text, whether any part was quoted, and the position of the delimiter.
fn read_item(text: &str, mut at: usize) -> Result<(String, bool, usize), SqlError> {
    let bytes = text.as_bytes();
    let mut word: Vec<u8> = Vec::new();
    let mut keep = 0;
    let mut quoted = false;
    if bytes.get(at) == Some(&b'"') {
        quoted = true;
        at += 1;
        loop {
            match bytes.get(at) {
                None => return Err(malformed(text)),
                Some(b'"') => break,
                Some(b'\\') => {
                    at += 1;
                    word.push(*bytes.get(at).ok_or_else(|| malformed(text))?);
                }
                Some(&b) => word.push(b),
            }
            at += 1;
        }
        at = skip_space(bytes, at + 1);
        // What follows the closing quote must be a delimiter.
        if !matches!(bytes.get(at), Some(b',' | b'}')) {
            return Err(malformed(text));
        }
        let word = String::from_utf8(word).map_err(|_| malformed(text))?;
        return Ok((word, quoted, at));
    }
    loop {
        match bytes.get(at) {
            None => return Err(malformed(text)),
            Some(b',' | b'}') => break,
            Some(b'"' | b'{') => return Err(malformed(text)),
            Some(b'\\') => {
                at += 1;
                quoted = true;
                word.push(*bytes.get(at).ok_or_else(|| malformed(text))?);
                keep = word.len();
            }
            Some(&b) => {
                word.push(b);
                if !is_space(b) {
                    keep = word.len();
                }
            }
        }
        at += 1;
    }
    word.truncate(keep);
    if word.is_empty() {
        return Err(malformed(text));
    }
    let word = String::from_utf8(word).map_err(|_| malformed(text))?;
    Ok((word, quoted, at))
}

/// `None` where a binary array has bytes left over.
pub fn malformed_binary(left_over: bool) -> Option<()> {
    (!left_over).then_some(())
}
