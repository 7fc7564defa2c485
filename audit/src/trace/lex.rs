//! Splits SQL text into tokens, just far enough to find its words and its literals.
//!
//! In: any text, sound SQL or not. Out: tokens with their place; whitespace and comments are skipped.
//!
//! Always true: tokens do not overlap, come in order, never cut a character in two, and a literal that
//! is never closed reaches to the end of the text. Meaning is the business of PostgreSQL's own grammar,
//! elsewhere; this is for recognising BEGIN and COMMIT cheaply and for hiding literals.
//!
//! Source: PostgreSQL manual, section 4.1 "Lexical Structure". `standard_conforming_strings` is taken
//! to be on.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key word or a plain identifier.
    Word,
    /// `"…"`.
    QuotedName,
    /// `'…'`, `E'…'`, `B'…'`, `X'…'`, `N'…'`, `U&'…'`.
    String,
    /// `$$…$$` or `$tag$…$tag$`.
    Dollar,
    Number,
    /// `$1`.
    Parameter,
    /// Any other character.
    Symbol,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub place: Range<usize>,
}

pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

pub fn tokens(text: &str) -> Tokens<'_> {
    Tokens { text, at: 0 }
}

/// The single statements of a text that may hold several, split where a semicolon stands outside of everything.
pub fn statements(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for token in tokens(text) {
        if &text[token.place.clone()] == ";" {
            found.push(text[start..token.place.start].trim());
            start = token.place.end;
        }
    }
    found.push(text[start..].trim());
    found.retain(|statement| !statement.is_empty());
    found
}

/// What a statement may do to the transaction it runs in, judged by its first words only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// BEGIN, SAVEPOINT, SHOW, SET: can commit nothing.
    Harmless,
    /// COMMIT, ROLLBACK, PREPARE TRANSACTION …: ends a block.
    Ends,
    /// SELECT, INSERT, UPDATE …: commits with the transaction around it, never by itself.
    Data,
    /// VACUUM, CALL, CREATE …: may commit by itself, but not inside a block.
    Other,
    /// Perhaps more than one statement.
    Several,
}

pub fn effect(text: &str) -> Effect {
    let mut words = tokens(text).filter(|t| t.kind == Kind::Word);
    let Some(first) = words.next() else {
        return Effect::Harmless;
    };
    if has_several(text) {
        return Effect::Several;
    }
    let is = |word: &str| text[first.place.clone()].eq_ignore_ascii_case(word);
    if ["begin", "start", "savepoint", "release", "show", "set"]
        .iter()
        .any(|w| is(w))
    {
        Effect::Harmless
    } else if ["commit", "end", "rollback", "abort", "prepare"]
        .iter()
        .any(|w| is(w))
    {
        Effect::Ends
    } else if [
        "select", "insert", "update", "delete", "merge", "values", "with", "table", "fetch",
    ]
    .iter()
    .any(|w| is(w))
    {
        Effect::Data
    } else {
        Effect::Other
    }
}

/// CALL and DO: outside of a block the routine may commit more than once, and fail in the midst of it.
pub fn calls_routine(text: &str) -> bool {
    let first = words(text).next();
    first.is_some_and(|first| first.eq_ignore_ascii_case("call") || first.eq_ignore_ascii_case("do"))
}

/// … CONCURRENTLY: the same, and nobody can look into it.
pub fn is_concurrent(text: &str) -> bool {
    words(text).any(|word| word.eq_ignore_ascii_case("concurrently"))
}

/// Its key words and plain names.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = tokens(text).filter(|t| t.kind == Kind::Word);
    words.map(|t| &text[t.place])
}

/// Whether its first word begins a block.
pub fn is_begin(text: &str) -> bool {
    let first = tokens(text).find(|t| t.kind == Kind::Word);
    first.is_some_and(|first| {
        let word = &text[first.place];
        word.eq_ignore_ascii_case("begin") || word.eq_ignore_ascii_case("start")
    })
}

/// Whether the text may hold more than one statement. A semicolon inside a literal counts too: a yes may
/// be wrong, a no is not.
fn has_several(text: &str) -> bool {
    memchr::memchr(b';', text.as_bytes()).is_some_and(|at| !text[at + 1..].trim().is_empty())
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip_blank();
        let bytes = self.text.as_bytes();
        let start = self.at;
        let first = *bytes.get(start)?;
        let (kind, end) = match first {
            b'\'' => (Kind::String, self.quoted(start + 1, b'\'', false)),
            b'"' => (Kind::QuotedName, self.quoted(start + 1, b'"', false)),
            b'$' => self.dollar(start),
            b'0'..=b'9' => (Kind::Number, self.number(start)),
            b'.' if bytes.get(start + 1).is_some_and(u8::is_ascii_digit) => {
                (Kind::Number, self.number(start))
            }
            _ if starts_word(first) => self.word(start),
            _ => (Kind::Symbol, start + 1),
        };
        self.at = end;
        Some(Token {
            kind,
            place: start..end,
        })
    }
}

impl Tokens<'_> {
    fn skip_blank(&mut self) {
        let bytes = self.text.as_bytes();
        loop {
            match (bytes.get(self.at), bytes.get(self.at + 1)) {
                (Some(c), _) if c.is_ascii_whitespace() || *c == 0x0b => self.at += 1,
                (Some(b'-'), Some(b'-')) => {
                    let rest = &bytes[self.at..];
                    self.at += memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                }
                (Some(b'/'), Some(b'*')) => self.at = self.block_comment(self.at + 2),
                _ => return,
            }
        }
    }

    /// Block comments nest.
    fn block_comment(&self, mut at: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut depth = 1;
        while depth > 0 && at < bytes.len() {
            match (bytes[at], bytes.get(at + 1)) {
                (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
                (b'*', Some(b'/')) => (depth, at) = (depth - 1, at + 2),
                _ => at += 1,
            }
        }
        at.min(bytes.len())
    }

    /// From behind the opening quote to behind the closing one; a doubled quote stands for itself.
    fn quoted(&self, mut at: usize, quote: u8, backslash: bool) -> usize {
        let bytes = self.text.as_bytes();
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if backslash => at += 2,
                c if c == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
                c if c == quote => return at + 1,
                _ => at += 1,
            }
        }
        bytes.len()
    }

    fn dollar(&self, start: usize) -> (Kind, usize) {
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        if bytes.get(at).is_some_and(u8::is_ascii_digit) {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            return (Kind::Parameter, at);
        }
        while bytes.get(at).is_some_and(|c| continues_word(*c) && *c != b'$') {
            at += 1;
        }
        if bytes.get(at) != Some(&b'$') {
            return (Kind::Symbol, start + 1);
        }
        let tag = &bytes[start..=at];
        let body = &bytes[at + 1..];
        let end = memchr::memmem::find(body, tag).map_or(bytes.len(), |found| at + 1 + found + tag.len());
        (Kind::Dollar, end)
    }

    fn number(&self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut at = start;
        while let Some(&c) = bytes.get(at) {
            let exponent_sign = (c == b'+' || c == b'-')
                && at > start
                && matches!(bytes[at - 1], b'e' | b'E')
                && !bytes[start..at].iter().any(|b| matches!(b, b'x' | b'X'))
                && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
            // `1..10` is a range in PL/pgSQL, not a number.
            let range = c == b'.' && bytes.get(at + 1) == Some(&b'.');
            if range || !(c.is_ascii_alphanumeric() || c == b'.' || c == b'_' || exponent_sign) {
                break;
            }
            at += 1;
        }
        at.max(start + 1)
    }

    fn word(&self, start: usize) -> (Kind, usize) {
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        while bytes.get(at).is_some_and(|c| continues_word(*c)) {
            at += 1;
        }
        match (&bytes[start..at], bytes.get(at), bytes.get(at + 1)) {
            (b"e" | b"E", Some(b'\''), _) => (Kind::String, self.quoted(at + 1, b'\'', true)),
            (b"b" | b"B" | b"x" | b"X" | b"n" | b"N", Some(b'\''), _) => {
                (Kind::String, self.quoted(at + 1, b'\'', false))
            }
            (b"u" | b"U", Some(b'&'), Some(b'\'')) => (Kind::String, self.quoted(at + 2, b'\'', false)),
            (b"u" | b"U", Some(b'&'), Some(b'"')) => (Kind::QuotedName, self.quoted(at + 2, b'"', false)),
            _ => (Kind::Word, at),
        }
    }
}

fn starts_word(c: u8) -> bool {
    c.is_ascii_alphabetic() || c == b'_' || c >= 0x80
}

fn continues_word(c: u8) -> bool {
    starts_word(c) || c.is_ascii_digit() || c == b'$'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(text: &str) -> Vec<(Kind, &str)> {
        tokens(text).map(|t| (t.kind, &text[t.place])).collect()
    }

    #[test]
    fn finds_words_and_literals() {
        use Kind::*;
        assert_eq!(
            pieces("SELECT \"a b\", 'it''s', E'\\'', $1, $x$ $$ '$x$, 1.5e-3 -- '\n/* /* */ ' */FROM t"),
            vec![
                (Word, "SELECT"),
                (QuotedName, "\"a b\""),
                (Symbol, ","),
                (String, "'it''s'"),
                (Symbol, ","),
                (String, "E'\\''"),
                (Symbol, ","),
                (Parameter, "$1"),
                (Symbol, ","),
                (Dollar, "$x$ $$ '$x$"),
                (Symbol, ","),
                (Number, "1.5e-3"),
                (Word, "FROM"),
                (Word, "t"),
            ]
        );
    }

    #[test]
    fn judges_by_first_words() {
        for (text, expected) in [
            ("  begin isolation level serializable", Effect::Harmless),
            ("/* x */ COMMIT;", Effect::Ends),
            ("(SELECT 1)", Effect::Data),
            ("SELECT 1; COMMIT", Effect::Several),
            ("call p()", Effect::Other),
            ("VACUUM", Effect::Other),
            ("", Effect::Harmless),
        ] {
            assert_eq!(effect(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn tokens_come_in_order_and_cut_no_character(text in "[ a-zE'\"$0-9./*\\-\\\\;é漢]{0,60}") {
            let mut last = 0;
            for token in tokens(&text) {
                prop_assert!(token.place.start >= last && token.place.end > token.place.start);
                prop_assert!(text.get(token.place.clone()).is_some(), "{:?}", token);
                last = token.place.end;
            }
        }
    }
}
