//! Replaces data by keyed hashes that keep equality: what was equal stays equal, what it was is gone.
//!
//! In: a record. Out: the same record, in which string and number literals of SQL, parameters, result
//! cells, copied rows and the quoted parts of error messages are hashes. The shape of every statement,
//! its windows, tags, names of tables and columns, and NULL stay: which answers changed between which
//! instants can still be audited, what `a + 1` should have been cannot.
//!
//! Always true: a value is hashed by its text form, so that `'5'`, `5`, a text cell `5`, a text parameter
//! `5` and a binary int4 5 give the same hash.

use super::key::Key;
use crate::trace::lex::{Kind, tokens};
use crate::trace::{Observation, Outcome, Parameter, Record, ServerError, TableCopy};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt::Write;

pub struct Redactor {
    key: Key,
}

impl Redactor {
    pub fn new(key: Key) -> Redactor {
        Redactor { key }
    }

    pub fn redact<'a>(&self, record: &'a Record) -> Cow<'a, Record> {
        match record {
            Record::Statement(o) => Cow::Owned(Record::Statement(Box::new(self.observation(o)))),
            Record::Bootstrap(bootstrap) => {
                let mut bootstrap = bootstrap.clone();
                bootstrap.tables.iter_mut().for_each(|copy| self.copy_of(copy));
                Cow::Owned(Record::Bootstrap(bootstrap))
            }
            Record::Reread(reread) => {
                let mut reread = reread.clone();
                reread.tables.iter_mut().for_each(|(_, copy)| self.copy_of(copy));
                Cow::Owned(Record::Reread(reread))
            }
            other => Cow::Borrowed(other),
        }
    }

    fn observation(&self, observation: &Observation) -> Observation {
        let mut o = observation.clone();
        o.text = self.sql(&o.text).into();
        for parameter in &mut o.parameters {
            self.parameter(parameter);
        }
        match &mut o.outcome {
            Outcome::Answer(answer) => {
                let columns = answer.columns.clone();
                for row in &mut answer.rows {
                    for (i, cell) in row.iter_mut().enumerate() {
                        let (oid, format) = columns.get(i).map_or((0, 0), |c| (c.type_oid, c.format));
                        *cell = cell.take().map(|bytes| self.value(oid, format, &bytes));
                    }
                }
                if columns.iter().any(|c| c.format != 0) {
                    answer.columns = columns.iter().cloned().map(as_text).collect();
                }
                if let Some(copy) = &mut answer.copy {
                    *copy = self.copy(copy);
                }
            }
            Outcome::Error(error) => self.error(error),
            Outcome::Lost | Outcome::Skipped => {}
        }
        o
    }

    fn copy_of(&self, table: &mut TableCopy) {
        let hash = |cell: Option<&str>| cell.map(|text| self.hash(text.as_bytes()));
        let hashed = |row: Vec<Option<&str>>| row.into_iter().map(hash).collect();
        table.rows = table.rows.take().map(|rows| rows.iter().map(hashed).collect());
    }

    /// Literals by hashes in quotes; every other character stays.
    pub fn sql(&self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut copied = 0;
        let mut words: [&str; 2] = ["", ""];
        let mut is_settings = false;
        let mut is_definition = false;
        let mut is_first = true;
        for token in tokens(text) {
            let piece = &text[token.place.clone()];
            if is_first {
                let is = |list: &[&str]| list.iter().any(|w| piece.eq_ignore_ascii_case(w));
                is_settings = is(&["set", "reset", "show", "begin", "start", "discard"]);
                is_definition = is(&["create", "alter", "drop", "comment"]);
            }
            // A text may hold several statements.
            is_first = piece == ";";
            // `SET app.user = …` is the application's own, and may be data.
            is_settings &= piece != ".";
            // What lies between tokens is blank or comment; comments may quote data.
            let between = &text[copied..token.place.start];
            redacted.push_str(if between.trim().is_empty() { between } else { " " });
            copied = token.place.end;
            let structural = ["by", "limit", "offset", "first", "next"]
                .iter()
                .any(|w| words[1].eq_ignore_ascii_case(w));
            match token.kind {
                Kind::String | Kind::Dollar if !is_settings => {
                    let _ = write!(redacted, "'{}'", self.hash(&unquote(piece)));
                }
                Kind::Number if !is_settings && !is_definition && !structural => {
                    let _ = write!(redacted, "'{}'", self.hash(piece.as_bytes()));
                }
                _ => redacted.push_str(piece),
            }
            // `ORDER BY 1, 2` goes on behind the comma.
            if piece != "," && token.kind != Kind::Number {
                words = [words[1], piece];
            }
        }
        redacted
    }

    fn parameter(&self, parameter: &mut Parameter) {
        parameter.value = parameter
            .value
            .take()
            .map(|v| self.value(parameter.type_oid, parameter.format, &v));
        parameter.format = 0;
    }

    fn value(&self, type_oid: u32, format: i16, bytes: &[u8]) -> Bytes {
        if format == 0 {
            self.hash(bytes)
        } else {
            self.hash(&text_form(type_oid, bytes))
        }
        .into()
    }

    /// Lines and fields stay; a binary copy is hashed as a whole.
    fn copy(&self, data: &[u8]) -> Bytes {
        if data.starts_with(b"PGCOPY\n\xff") {
            return self.hash(data).into();
        }
        let mut redacted = String::with_capacity(data.len());
        for line in data.split_inclusive(|b| *b == b'\n') {
            let (line, end) = line.strip_suffix(b"\n").map_or((line, ""), |line| (line, "\n"));
            for (i, field) in line.split(|b| *b == b'\t').enumerate() {
                if i > 0 {
                    redacted.push('\t');
                }
                match field {
                    b"\\N" | b"\\." => redacted.push_str(&String::from_utf8_lossy(field)),
                    field => redacted.push_str(&self.hash(field)),
                }
            }
            redacted.push_str(end);
        }
        redacted.into()
    }

    /// Errors carry data too: `Key (email)=(…) already exists`, `invalid input syntax … "abc"`.
    fn error(&self, error: &mut ServerError) {
        error.detail = error.detail.take().map(|detail| self.hash(detail.as_bytes()));
        let names = [error.constraint.as_deref(), error.table.as_deref()];
        let mut message = String::new();
        for (i, piece) in error.message.split('"').enumerate() {
            if i > 0 {
                message.push('"');
            }
            if i % 2 == 1 && !names.contains(&Some(piece)) {
                message.push_str(&self.hash(piece.as_bytes()));
            } else {
                message.push_str(piece);
            }
        }
        error.message = message;
    }

    fn hash(&self, bytes: &[u8]) -> String {
        format!("h{:016x}", u64::from_be_bytes(self.key.hash(b"redact", bytes)))
    }
}

fn as_text(column: crate::trace::Column) -> crate::trace::Column {
    crate::trace::Column { format: 0, ..column }
}

/// What a literal stands for, as far as its quotes say.
fn unquote(literal: &str) -> Cow<'_, [u8]> {
    if let Some(rest) = literal.strip_prefix('$') {
        let tag = rest.find('$').map_or(0, |at| at + 2);
        let body = literal
            .get(tag..literal.len().saturating_sub(tag))
            .unwrap_or_default();
        return Cow::Borrowed(body.as_bytes());
    }
    let start = literal.find('\'').map_or(0, |at| at + 1);
    let end = if literal.len() > start && literal.ends_with('\'') {
        literal.len() - 1
    } else {
        literal.len()
    };
    let body = &literal[start..end.max(start)];
    if body.contains("''") {
        Cow::Owned(body.replace("''", "'").into_bytes())
    } else {
        Cow::Borrowed(body.as_bytes())
    }
}

/// The text form of the binary values that are as often sent as text.
fn text_form(type_oid: u32, bytes: &[u8]) -> Cow<'_, [u8]> {
    let number = match (type_oid, bytes.len()) {
        (16, 1) => return Cow::Borrowed(if bytes[0] == 0 { b"f" } else { b"t" }),
        (21, 2) => i64::from(i16::from_be_bytes([bytes[0], bytes[1]])),
        (23, 4) => i64::from(i32::from_be_bytes(bytes.try_into().unwrap_or_default())),
        (20, 8) => i64::from_be_bytes(bytes.try_into().unwrap_or_default()),
        _ => return Cow::Borrowed(bytes),
    };
    Cow::Owned(number.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Answer, Column, Protocol, SessionId, Status, Window};

    fn redactor() -> Redactor {
        Redactor::new(Key::new([7; 32]))
    }

    #[test]
    fn shape_stays_and_literals_go() {
        let r = redactor();
        let (five, ann) = (r.hash(b"5"), r.hash(b"it's"));
        assert_eq!(
            r.sql("SELECT a /* ann */ FROM t WHERE id = 5 AND n IN ('it''s', $1) ORDER BY 1, 2 LIMIT 10"),
            format!("SELECT a FROM t WHERE id = '{five}' AND n IN ('{ann}', $1) ORDER BY 1, 2 LIMIT 10")
        );
        assert_eq!(r.sql("SET TimeZone = 'UTC'"), "SET TimeZone = 'UTC'");
        // Of several statements, each is judged by its own first word; settings of the application are data.
        assert_eq!(
            r.sql("begin; insert into t values ('it''s'); set TimeZone = 'UTC'; set app.user = 'it''s'"),
            format!("begin; insert into t values ('{ann}'); set TimeZone = 'UTC'; set app.user = '{ann}'")
        );
        assert_eq!(
            r.sql("create table t (a varchar(10))"),
            "create table t (a varchar(10))"
        );
    }

    #[test]
    fn equal_values_stay_equal_in_every_form() {
        let r = redactor();
        let five = Bytes::from(r.hash(b"5"));
        assert_eq!(r.value(23, 1, &5i32.to_be_bytes()), five);
        assert_eq!(r.value(20, 1, &5i64.to_be_bytes()), five);
        assert_eq!(r.value(25, 0, b"5"), five);
        assert!(r.sql("select '5'").contains(std::str::from_utf8(&five).unwrap()));
        assert_ne!(r.value(25, 0, b"6"), five);
        let other = Redactor::new(Key::new([8; 32]));
        assert_ne!(other.value(25, 0, b"5"), five);
    }

    #[test]
    fn nothing_of_the_data_is_left() {
        let secret = "xyzzy-secret";
        let cell = || Some(Bytes::from(secret));
        let column = Column {
            name: "c".into(),
            type_oid: 25,
            type_modifier: -1,
            format: 0,
        };
        let answer = Answer {
            columns: vec![column].into(),
            rows: vec![vec![cell(), None]],
            tag: Some("SELECT 1".into()),
            cut: None,
            copy: Some(format!("1\t{secret}\n\\N\t{secret}\n").into()),
        };
        let error = ServerError {
            sqlstate: "23505".into(),
            message: format!("bad value \"{secret}\" of \"k\""),
            detail: Some(format!("Key (c)=({secret})")),
            constraint: Some("k".into()),
            table: None,
        };
        for outcome in [Outcome::Answer(answer), Outcome::Error(error)] {
            let record = Record::Statement(Box::new(Observation {
                session: SessionId(1),
                seq: 0,
                text: format!("select c -- {secret}\n from t where c = '{secret}' or c = $${secret}$$")
                    .into(),
                part: 0,
                protocol: Protocol::Extended,
                parameters: vec![Parameter {
                    type_oid: 25,
                    format: 1,
                    value: cell(),
                }],
                window: Window::new(1, 2),
                outcome,
                before: Status::Idle,
                after: Status::Idle,
                group: 0,
                ready: Window::new(1, 2),
            }));
            let redacted = format!("{:?}", redactor().redact(&record));
            assert!(!redacted.contains("xyzzy"), "{redacted}");
            assert!(redacted.contains("from t where c ="));
        }
    }
}
