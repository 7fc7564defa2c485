//! A story as a script that several psql-like sessions replay in the same order.
//!
//! In: a violation. Out: text; and back: the text's commands, for `pgassay replay`.
//!
//! The language, line by line:
//!
//! ```text
//! -- a comment; «-- key: value» lines at the top are the header
//! setup: INSERT INTO account VALUES (1, 100);   run first, on a connection of its own
//! t1: BEGIN ISOLATION LEVEL READ COMMITTED;     send to session t1; go on when it is answered or waits for a lock
//! t1: UPDATE account                            a statement may go on in lines that are indented
//!       SET balance = 110;
//! t2: COMMIT;
//! cleanup: DROP TABLE account;                  run last
//! ```
//!
//! A session that waits for a lock is left waiting, and so are its next commands; the others go on.

use super::brief;
use super::steps::{self, Act};
use super::text::one_line;
use crate::verdict::Violation;
use pgassay_rules::{Level, anomaly};
use std::fmt::Write;

/// What a script says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The violation's rule and the level it broke, if the header names them.
    pub rule: Option<String>,
    pub level: Option<Level>,
    pub commands: Vec<Command>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub line: usize,
    /// `setup`, `cleanup`, or the name of a session.
    pub session: String,
    pub sql: String,
    /// What the server answered when the violation was seen.
    pub answered: Option<String>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum BadScript {
    #[error(
        "line {line}: «{text}» is not «SESSION: SQL»; lines that go on are indented, comments begin with --"
    )]
    NotACommand { line: usize, text: String },
    #[error("line {line}: the level «{text}» does not exist")]
    UnknownLevel { line: usize, text: String },
    #[error("line {line}: there is no rule «{text}»")]
    UnknownRule { line: usize, text: String },
    #[error("the script has no command; write lines such as «t1: SELECT 1;»")]
    Empty,
}

/// The header, what the story starts from, and its steps in the order they were sent.
pub fn write(violation: &Violation) -> String {
    let mut out = String::from("-- Replays the steps of a violation in the order in which they were sent.\n");
    out.push_str("-- Run it with: pgassay replay FILE --upstream postgresql://user@host/an-empty-database\n");
    let _ = writeln!(
        out,
        "-- violation: {}\n-- rule: {}\n-- level: {}",
        violation.id, violation.rule, violation.level
    );
    for line in brief::of(violation).lines() {
        let _ = writeln!(out, "--   {}", one_line(line));
    }
    out.push('\n');
    start(&mut out, violation);
    for step in steps::of(violation) {
        let name = &violation.transactions[step.transaction].name;
        let _ = writeln!(out, "{name}: {};", indent(&inline(&step.sql, &step.parameters)));
        if matches!(step.act, Act::Statement(_)) {
            for line in step.answer.lines() {
                let _ = writeln!(out, "--   → {}", one_line(line));
            }
            if step.culprit {
                out.push_str("--   ✗ this answer is wrong\n");
            }
        }
    }
    out.push('\n');
    let _ = writeln!(out, "-- answered: {}", one_line(&violation.observed));
    for right in &violation.expected {
        let _ = writeln!(out, "-- right: {}", one_line(right));
    }
    for sql in &violation.ground.drop {
        let _ = writeln!(out, "cleanup: {};", indent(sql));
    }
    out
}

/// What has to be there before the first step.
fn start(out: &mut String, violation: &Violation) {
    let ground = &violation.ground;
    if ground.create.is_empty() {
        out.push_str("-- What it started from is not known: run it on a copy of your database, or write lines such as\n");
        out.push_str("-- setup: INSERT INTO account VALUES (1, 100);\n");
    } else {
        out.push_str("-- It started from this, on an empty database:\n");
    }
    for remark in &ground.remarks {
        let _ = writeln!(out, "-- (!) {}", one_line(remark));
    }
    for sql in &ground.create {
        let _ = writeln!(out, "setup: {};", indent(sql));
    }
    out.push('\n');
    for (transaction, settings) in violation.transactions.iter().zip(&ground.settings) {
        for sql in settings {
            let _ = writeln!(out, "{}: {sql};", transaction.name);
        }
    }
}

/// Reads a script back.
pub fn read(text: &str) -> Result<Script, BadScript> {
    let mut script = Script::default();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(comment) = line.strip_prefix("--") {
            remark(&mut script, comment, number)?;
        } else if line.trim().is_empty() {
            continue;
        } else if line.starts_with([' ', '\t']) {
            let last = script.commands.last_mut();
            let last = last.ok_or_else(|| BadScript::NotACommand {
                line: number,
                text: line.to_owned(),
            })?;
            last.sql.push('\n');
            last.sql.push_str(line.trim_start());
        } else {
            script.commands.push(command(line, number)?);
        }
    }
    for command in &mut script.commands {
        command.sql = command.sql.trim_end().trim_end_matches(';').to_owned();
    }
    if script.commands.is_empty() {
        Err(BadScript::Empty)
    } else {
        Ok(script)
    }
}

fn remark(script: &mut Script, comment: &str, line: usize) -> Result<(), BadScript> {
    let comment = comment.trim();
    if let Some(answer) = comment.strip_prefix("→ ") {
        if let Some(last) = script.commands.last_mut() {
            let answered = last.answered.get_or_insert_with(String::new);
            if !answered.is_empty() {
                answered.push('\n');
            }
            answered.push_str(answer);
        }
    } else if !script.commands.is_empty() {
        return Ok(());
    } else if let Some(name) = comment.strip_prefix("rule: ") {
        anomaly::by_name(name).ok_or_else(|| BadScript::UnknownRule {
            line,
            text: name.to_owned(),
        })?;
        script.rule = Some(name.to_owned());
    } else if let Some(name) = comment.strip_prefix("level: ") {
        let level = name.parse().map_err(|_| BadScript::UnknownLevel {
            line,
            text: name.to_owned(),
        })?;
        script.level = Some(level);
    }
    Ok(())
}

fn command(line: &str, number: usize) -> Result<Command, BadScript> {
    let bad = || BadScript::NotACommand {
        line: number,
        text: line.to_owned(),
    };
    let (session, sql) = line.split_once(':').ok_or_else(bad)?;
    let is_name = !session.is_empty()
        && session
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    if !is_name || sql.trim().is_empty() {
        return Err(bad());
    }
    Ok(Command {
        line: number,
        session: session.to_owned(),
        sql: sql.trim().to_owned(),
        answered: None,
    })
}

/// Every line but the first is indented, so that it goes on.
fn indent(sql: &str) -> String {
    sql.lines()
        .filter(|line| !line.trim().is_empty())
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n    ")
}

/// Puts the values in the place of `$1`, `$2` …, outside of literals, quoted names and comments.
pub fn inline(sql: &str, parameters: &[String]) -> String {
    inline_as(sql, parameters, parameter)
}

/// The same, each value written down by `write`.
pub fn inline_as(sql: &str, parameters: &[String], write: impl Fn(&str) -> String) -> String {
    if parameters.is_empty() {
        return sql.to_owned();
    }
    let bytes = sql.as_bytes();
    let mut out = String::with_capacity(sql.len());
    let mut at = 0;
    while at < bytes.len() {
        if let Some(end) = opaque(sql, at) {
            out.push_str(&sql[at..end]);
            at = end;
        } else if bytes[at] == b'$' {
            let digits = sql[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = sql[at + 1..at + 1 + digits].parse().unwrap_or(0);
            match number.checked_sub(1).and_then(|n| parameters.get(n)) {
                Some(value) => out.push_str(&write(value)),
                None => out.push_str(&sql[at..at + 1 + digits]),
            }
            at += 1 + digits;
        } else {
            let next = sql[at..].chars().next().map_or(1, char::len_utf8);
            out.push_str(&sql[at..at + next]);
            at += next;
        }
    }
    out
}

/// The end of the literal, quoted name, comment or dollar quote that begins here, or of an identifier.
fn opaque(sql: &str, at: usize) -> Option<usize> {
    let rest = &sql[at..];
    let after = |start: usize, close: &str| {
        rest[start..]
            .find(close)
            .map_or(sql.len(), |n| at + start + n + close.len())
    };
    match rest.as_bytes()[0] {
        b'\'' => Some(after(1, "'")),
        b'"' => Some(after(1, "\"")),
        b'-' if rest.starts_with("--") => Some(after(2, "\n")),
        b'/' if rest.starts_with("/*") => Some(after(2, "*/")),
        b'$' => {
            let tag = rest[1..]
                .bytes()
                .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
                .count();
            let is_quote =
                rest.as_bytes().get(1 + tag) == Some(&b'$') && !rest.as_bytes()[1].is_ascii_digit();
            is_quote.then(|| after(tag + 2, &rest[..tag + 2]))
        }
        // An identifier may contain `$1`.
        b if b.is_ascii_alphabetic() || b == b'_' => Some(
            at + rest
                .bytes()
                .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$'))
                .count(),
        ),
        _ => None,
    }
}

/// A parameter as a literal of unknown type, as it is in text form.
/// A bound value as a literal that any type can be read from.
pub fn parameter(value: &str) -> String {
    match value {
        "NULL" => "NULL".to_owned(),
        known => literal(known),
    }
}

/// A text as a literal of unknown type. Lines of a script must stay lines, so a line break is written as an escape.
pub fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains(['\n', '\r']) {
        let escaped = doubled.replace('\\', "\\\\");
        return format!("E'{}'", escaped.replace('\n', "\\n").replace('\r', "\\r"));
    }
    format!("'{doubled}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_script_reads_back_what_it_wrote() {
        let text = write(&sample::lost_update());
        let script = read(&text).unwrap();
        assert_eq!(script.rule.as_deref(), Some("lost_update"));
        assert_eq!(script.level, Some(Level::Serializable));
        let lines: Vec<String> = script
            .commands
            .iter()
            .map(|c| format!("{}: {}", c.session, c.sql))
            .collect();
        assert_eq!(
            lines,
            [
                "setup: CREATE TABLE account (id integer NOT NULL, balance integer, CONSTRAINT account_pkey PRIMARY KEY (id))",
                "setup: INSERT INTO account VALUES\n(1, 100)",
                "t1: BEGIN ISOLATION LEVEL READ COMMITTED",
                "t1: SELECT balance FROM account WHERE id = '1'",
                "t2: BEGIN ISOLATION LEVEL READ COMMITTED",
                "t2: SELECT balance FROM account WHERE id = '1'",
                "t1: UPDATE account SET balance = '110' WHERE id = '1'",
                "t2: UPDATE account SET balance = '120' WHERE id = '1'",
                "t1: COMMIT",
                "t2: COMMIT",
                "cleanup: DROP TABLE account",
            ]
        );
        assert_eq!(script.commands[5].answered.as_deref(), Some("100"));
    }

    #[test]
    fn statements_of_several_lines_survive() {
        let mut told = sample::lost_update();
        told.transactions[0].statements[0].sql = "SELECT balance\nFROM account\nWHERE id = $1".into();
        let script = read(&write(&told)).unwrap();
        assert_eq!(
            script.commands[3].sql,
            "SELECT balance\nFROM account\nWHERE id = '1'"
        );
    }

    #[test]
    fn only_parameters_are_replaced() {
        let values = ["a'b".to_owned(), "NULL".to_owned()];
        assert_eq!(
            inline("select $1, '$1', \"$1\", x$1 -- $1\n, $2, $3, $$ $1 $$", &values),
            "select 'a''b', '$1', \"$1\", x$1 -- $1\n, NULL, $3, $$ $1 $$"
        );
        assert_eq!(inline("select '€$1', $1", &values), "select '€$1', 'a''b'");
        let lines = ["a\nb\\c".to_owned()];
        assert_eq!(inline("select $1", &lines), "select E'a\\nb\\\\c'");
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(
            read("t1 select 1"),
            Err(BadScript::NotACommand {
                line: 1,
                text: "t1 select 1".into()
            })
        );
        assert_eq!(
            read("-- level: best\n"),
            Err(BadScript::UnknownLevel {
                line: 1,
                text: "best".into()
            })
        );
        assert_eq!(read("-- nothing\n"), Err(BadScript::Empty));
    }
}
