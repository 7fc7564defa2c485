//! Cuts a statement into tokens and lifts its constants out: the text becomes a shape.
//!
//! In: the text of a query and the number of the statement in it. Out: [`Shape`]: the text with `?` in place of
//! each constant, the constants with their places, and a key that also tells their lexical classes.
//!
//! Always true:
//!   - two statements with the same key differ in nothing but the values of their constants;
//!   - a constant whose value could be read in more than one way (escapes, continuation lines) is not lifted;
//!   - PostgreSQL's own scanner decides in doubt: this one only has to agree with it where it lifts.
//!
//! Source: PostgreSQL manual §4.1 Lexical Structure.

/// A statement with its constants lifted out.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// For people and for fingerprints.
    pub text: String,
    /// One letter per constant: `i` int4, `l` int8, `n` numeric, `s` string.
    pub classes: String,
    pub literals: Vec<Literal>,
    /// Where the statement lies in the query.
    pub start: usize,
    pub end: usize,
}

/// A constant as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    pub class: Class,
    /// Digits, or the string without its quotes.
    pub text: String,
    /// Offset from the start of the query.
    pub location: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Int4,
    Int8,
    Numeric,
    String,
}

impl Class {
    pub fn letter(self) -> char {
        match self {
            Class::Int4 => 'i',
            Class::Int8 => 'l',
            Class::Numeric => 'n',
            Class::String => 's',
        }
    }
}

/// The shape of statement number `part` (empty statements do not count), or `None` if there is none or the text
/// cannot be cut safely.
pub fn shape(query: &str, part: u16) -> Option<Shape> {
    let mut scanner = Scanner {
        bytes: query.as_bytes(),
        query,
        at: 0,
    };
    let mut number = 0;
    loop {
        let shape = scanner.statement(number == part)?;
        if shape.text.is_empty() {
            if scanner.at >= scanner.bytes.len() {
                return None;
            }
            continue;
        }
        if number == part {
            return Some(shape);
        }
        number += 1;
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    query: &'a str,
    at: usize,
}

impl Scanner<'_> {
    /// Reads up to the next semicolon at depth zero, and over it.
    fn statement(&mut self, wanted: bool) -> Option<Shape> {
        let mut shape = Shape {
            text: String::with_capacity(if wanted { 128 } else { 0 }),
            ..Shape::default()
        };
        let mut depth = 0i32;
        let mut space = false;
        let mut previous_string_end: Option<usize> = None;
        while self.at < self.bytes.len() {
            let start = self.at;
            let byte = self.bytes[start];
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0c | 0x0b => {
                    self.at += 1;
                    space = true;
                    continue;
                }
                b'-' if self.peek(1) == b'-' => {
                    while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
                        self.at += 1;
                    }
                    space = true;
                    continue;
                }
                b'/' if self.peek(1) == b'*' => {
                    self.comment()?;
                    space = true;
                    continue;
                }
                b';' if depth == 0 => {
                    self.at += 1;
                    shape.end = start;
                    return Some(shape);
                }
                _ => {}
            }
            if shape.text.is_empty() {
                shape.start = start;
            } else if space {
                shape.text.push(' ');
            }
            space = false;
            let continues = previous_string_end
                .take()
                .is_some_and(|end| byte == b'\'' && self.bytes[end..start].contains(&b'\n'));
            match byte {
                b'\'' => {
                    self.string(false)?;
                    previous_string_end = Some(self.at);
                    let inner = &self.query[start + 1..self.at - 1];
                    if continues {
                        // Two strings on two lines are one: PostgreSQL's parser must see them.
                        return None;
                    }
                    let text = if inner.contains('\'') {
                        inner.replace("''", "'")
                    } else {
                        inner.to_owned()
                    };
                    shape.lift(Class::String, text, start);
                }
                b'"' => {
                    self.at += 1;
                    loop {
                        match self.peek(0) {
                            b'"' if self.peek(1) == b'"' => self.at += 2,
                            b'"' => break,
                            0 if self.at >= self.bytes.len() => return None,
                            _ => self.at += 1,
                        }
                    }
                    self.at += 1;
                    shape.text.push_str(&self.query[start..self.at]);
                }
                b'$' => self.dollar(&mut shape)?,
                b'0'..=b'9' => self.number(&mut shape)?,
                b'.' if self.peek(1).is_ascii_digit() => self.number(&mut shape)?,
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => {
                    while matches!(self.peek(0), b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$' | 0x80..)
                    {
                        self.at += 1;
                    }
                    let word = &self.query[start..self.at];
                    if self.peek(0) == b'\'' && is_string_prefix(word) {
                        // E'', B'', X'', N'': kept as they are.
                        self.string(word.eq_ignore_ascii_case("e"))?;
                        shape.text.push_str(&self.query[start..self.at]);
                    } else if word.eq_ignore_ascii_case("atomic")
                        || word.eq_ignore_ascii_case("u")
                            && self.peek(0) == b'&'
                            && matches!(self.peek(1), b'\'' | b'"')
                    {
                        return None;
                    } else {
                        // Keywords and names fold to lower case; bytes beyond ASCII are left alone.
                        for character in word.chars() {
                            shape.text.push(character.to_ascii_lowercase());
                        }
                    }
                }
                _ => {
                    match byte {
                        b'(' | b'[' => depth += 1,
                        b')' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    shape.text.push(byte as char);
                }
            }
        }
        shape.end = self.at;
        Some(shape)
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn comment(&mut self) -> Option<()> {
        let mut depth = 0;
        loop {
            if self.at >= self.bytes.len() {
                return None;
            } else if self.peek(0) == b'/' && self.peek(1) == b'*' {
                depth += 1;
                self.at += 2;
            } else if self.peek(0) == b'*' && self.peek(1) == b'/' {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    return Some(());
                }
            } else {
                self.at += 1;
            }
        }
    }

    /// Stands on the opening quote; leaves behind the closing one.
    fn string(&mut self, escapes: bool) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek(0) {
                b'\'' if self.peek(1) == b'\'' => self.at += 2,
                b'\'' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' if escapes => self.at += 2,
                0 if self.at >= self.bytes.len() => return None,
                _ => self.at += 1,
            }
        }
    }

    fn dollar(&mut self, shape: &mut Shape) -> Option<()> {
        let start = self.at;
        self.at += 1;
        if self.peek(0).is_ascii_digit() {
            while self.peek(0).is_ascii_digit() {
                self.at += 1;
            }
            shape.text.push_str(&self.query[start..self.at]);
            return Some(());
        }
        while matches!(self.peek(0), b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | 0x80..) {
            self.at += 1;
        }
        if self.peek(0) != b'$' {
            return None;
        }
        self.at += 1;
        let tag = &self.query[start..self.at];
        let end = self.query[self.at..].find(tag)?;
        let body = self.query[self.at..self.at + end].to_owned();
        self.at += end + tag.len();
        shape.lift(Class::String, body, start);
        Some(())
    }

    fn number(&mut self, shape: &mut Shape) -> Option<()> {
        let start = self.at;
        let mut whole = true;
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            whole = false;
            self.at += 1;
            while self.peek(0).is_ascii_digit() {
                self.at += 1;
            }
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                whole = false;
                self.at += 1 + sign;
                while self.peek(0).is_ascii_digit() {
                    self.at += 1;
                }
            }
        }
        if matches!(self.peek(0), b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..) {
            // 0x1F, 1_000 and junk: the parser must see them.
            return None;
        }
        let text = self.query[start..self.at].to_owned();
        let class = match text.parse::<i64>() {
            Ok(value) if whole && i32::try_from(value).is_ok() => Class::Int4,
            Ok(_) if whole => Class::Int8,
            _ => Class::Numeric,
        };
        shape.lift(class, text, start);
        Some(())
    }
}

impl Shape {
    fn lift(&mut self, class: Class, text: String, location: usize) {
        self.text.push('?');
        self.classes.push(class.letter());
        self.literals.push(Literal {
            class,
            text,
            location,
        });
    }
}

fn is_string_prefix(word: &str) -> bool {
    word.len() == 1
        && matches!(
            word.as_bytes()[0],
            b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'n' | b'N'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(query: &str, part: u16) -> Option<(String, String, Vec<String>)> {
        shape(query, part).map(|shape| {
            (
                shape.text,
                shape.classes,
                shape.literals.into_iter().map(|literal| literal.text).collect(),
            )
        })
    }

    #[test]
    fn constants_are_lifted_by_class() {
        let (text, classes, literals) =
            cut("SELECT a+1, 'it''s', 2.5, 5000000000 FROM \"T\" -- x 9\n", 0).unwrap();
        assert_eq!(text, "select a+?, ?, ?, ? from \"T\"");
        assert_eq!(classes, "isnl");
        assert_eq!(literals, ["1", "it's", "2.5", "5000000000"]);
    }

    #[test]
    fn statements_are_counted_without_empty_ones() {
        assert_eq!(cut("begin;; select $1; /* ; */ end;", 1).unwrap().0, "select $1");
        assert_eq!(cut("begin;; select $1; /* ; */ end;", 2).unwrap().0, "end");
        assert_eq!(cut("begin;", 1), None);
    }

    #[test]
    fn what_cannot_be_cut_safely_is_left_to_the_parser() {
        assert_eq!(cut("select 'a'\n'b'", 0), None);
        assert_eq!(cut("select u&'x'", 0), None);
        assert_eq!(cut("select 0x1F", 0), None);
        assert_eq!(cut("select 'open", 0), None);
    }

    #[test]
    fn dollar_quotes_and_names() {
        let (text, _, literals) = cut("do $x$ begin; end $x$; select 1", 0).unwrap();
        assert_eq!(text, "do ?");
        assert_eq!(literals, [" begin; end "]);
        assert_eq!(
            cut("select E'a\\'b', t1.x", 0).unwrap().0,
            "select E'a\\'b', t1.x"
        );
    }
}
