//! Stories as plain text: a trace that a person can write, read and edit.
//!
//! In: lines such as
//!
//! ```text
//! # Two clients read one balance and each writes it back.
//! init: create table account (id int primary key, balance int)
//! init: insert into account values (1, 100)
//! t1: begin
//! t2: begin
//! t1: select balance from account where id = 1 => (100)
//! t2: update account set balance = 120 where id = 1 ...
//! t1: commit
//! t2: ... => UPDATE 1
//! t2: commit => lost
//! ```
//!
//! Out: the records of a trace. Each line is a statement with its answer, and lines do not overlap in time
//! unless a statement ends in `...`: then it is under way until the line `name: ... => answer`.
//! An answer is a list of rows `(1, 'a', null)`, `no rows`, a command tag, `error SQLSTATE`, or `lost`;
//! a statement without one was answered, and nobody looked at the answer. `copy 1\ta\n` is the data of COPY.
//! `part (1) (2)` are rows of a portal with a row limit that has more; `continue statement` fetches from it again.
//! `and statement` was sent together with the one before, in a pipeline. `and sync` is the end of it, where that fails.
//! `unseen statement` was sent and is not in the trace: there is a gap in its place, of that session, or of all of them
//! if the session is called `everybody`. `shed statement` is not in the trace either; what stands in its place does not
//! say whose it was.
//!
//! A story says itself what it comes to, level by level; the levels are those of PostgreSQL unless a profile is named:
//!
//! ```text
//! expect read-committed: nothing
//! expect repeatable-read, serializable: lost_update
//! expect read-committed claimed serializable: lost_update
//! expect paper rc: nothing
//! expect paper si, strict-si, s, strict-s: lost_update
//! expect postgres-standby read-committed, repeatable-read: nothing
//! ```

use crate::trace::{
    Answer, Column, Gap, NOBODY, Nanos, Observation, Outcome, Protocol, Record, ServerError, SessionFacts,
    SessionId, Status, Window,
};
use bytes::Bytes;
use pgassay_rules::{Level, Profile};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    pub line: usize,
    pub what: String,
}

/// What a story is expected to come to at one level: of a line `expect [PROFILE] LEVEL, LEVEL [claimed LEVEL]: rule, rule`
/// (or `nothing`) there is one for each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The name of a built-in profile that has this level.
    pub profile: String,
    pub level: Level,
    pub claim: Option<Level>,
    /// Names of rules, sorted; empty: nothing wrong.
    pub rules: Vec<String>,
}

/// Separates a story from its expectations.
pub fn expectations(text: &str) -> Result<(String, Vec<Expectation>), ScriptError> {
    let mut story = String::new();
    let mut expected = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match line.trim().strip_prefix("expect ") {
            None => story.push_str(line),
            Some(rest) => expected.extend(expectations_of(rest).map_err(|what| ScriptError {
                line: number + 1,
                what,
            })?),
        }
        story.push('\n');
    }
    Ok((story, expected))
}

/// Those of one line, without its first word.
fn expectations_of(line: &str) -> Result<Vec<Expectation>, String> {
    let (levels, rules) = line
        .split_once(':')
        .ok_or("expected «expect LEVEL: rules»".to_owned())?;
    let level_named = |name: &str| name.parse::<Level>().map_err(|error| error.to_string());
    let (levels, claim) = match levels.split_once(" claimed ") {
        Some((levels, claim)) => (levels, Some(level_named(claim)?)),
        None => (levels, None),
    };
    let (profile, levels) = match levels.trim().split_once(' ') {
        Some((name, rest)) if Profile::names().any(|n| n == name) => (name, rest),
        _ => ("postgres", levels),
    };
    let promises = Profile::named(profile).map_err(|error| error.to_string())?;
    let mut names: Vec<String> = rules
        .split(',')
        .map(|r| r.trim().to_owned())
        .filter(|r| r != "nothing" && !r.is_empty())
        .collect();
    names.sort();
    if let Some(unknown) = names
        .iter()
        .find(|n| pgassay_rules::anomaly::by_name(n).is_none())
    {
        return Err(format!("there is no rule «{unknown}»"));
    }
    let expectation = |name: &str| {
        let level = level_named(name)?;
        match promises.level(level) {
            None => Err(format!("the profile «{profile}» has no level «{level}»")),
            Some(_) => Ok(Expectation {
                profile: profile.to_owned(),
                level,
                claim,
                rules: names.clone(),
            }),
        }
    };
    levels.split(',').map(expectation).collect()
}

/// How far apart two lines are.
const STEP: Nanos = 1_000_000;

struct Actor {
    id: SessionId,
    status: Status,
    seq: u64,
    /// Of the statement that began the pipeline.
    group: u64,
    /// It stands for all of them.
    is_everybody: bool,
    /// The statement under way, since when.
    started: Option<(String, Nanos)>,
}

/// A story that was read.
#[derive(Debug, Default)]
pub struct Told {
    pub records: Vec<Record>,
    /// When a statement was sent → its line, counted from 1. No two are sent at once.
    pub lines: BTreeMap<Nanos, usize>,
}

/// The records of a story; every session's transactions run at `level` unless they say otherwise.
pub fn parse(text: &str, level: Level) -> Result<Vec<Record>, ScriptError> {
    Ok(read(text, level)?.records)
}

/// The same, and which line each statement stands on.
pub fn read(text: &str, level: Level) -> Result<Told, ScriptError> {
    let mut records = Vec::new();
    let mut lines = BTreeMap::new();
    let mut actors: BTreeMap<String, Actor> = BTreeMap::new();
    let mut now: Nanos = STEP;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let fail = |what: String| ScriptError {
            line: number + 1,
            what,
        };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line
            .split_once(':')
            .ok_or_else(|| fail("expected «session: statement => answer»".to_owned()))?;
        let (name, rest) = (name.trim(), rest.trim());
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(fail(format!(
                "«{name}» is not the name of a session (letters, digits and _)"
            )));
        }
        let next = actors.len() as u64 + 1;
        let actor = actors.entry(name.to_owned()).or_insert_with(|| {
            records.push(Record::SessionStart(facts(SessionId(next), name, level, now)));
            Actor {
                id: SessionId(next),
                status: Status::Idle,
                seq: 0,
                group: 0,
                is_everybody: name == "everybody",
                started: None,
            }
        });
        now += STEP;
        let (statement, answer) = match rest.split_once("=>") {
            Some((statement, answer)) => (statement.trim(), Some(answer.trim())),
            None => (rest, None),
        };
        if statement == "..." {
            let (sql, sent) = actor
                .started
                .take()
                .ok_or_else(|| fail(format!("nothing of {name} is under way")))?;
            records.push(observe(actor, &sql, Window::new(sent, now), answer).map_err(fail)?);
        } else if let Some(sql) = statement.strip_suffix("...") {
            if actor.started.is_some() {
                return Err(fail(format!("a statement of {name} is under way already")));
            }
            lines.insert(now, number + 1);
            actor.started = Some((sql.trim().to_owned(), now));
        } else {
            if actor.started.is_some() {
                return Err(fail(format!(
                    "a statement of {name} is still under way: end it with «{name}: ... => answer»"
                )));
            }
            lines.insert(now, number + 1);
            records.push(observe(actor, statement, Window::new(now, now + STEP / 2), answer).map_err(fail)?);
        }
        now += STEP;
    }
    if let Some((name, _)) = actors.iter().find(|(_, a)| a.started.is_some()) {
        let line = text.lines().count();
        return Err(ScriptError {
            line,
            what: format!("a statement of {name} is never answered"),
        });
    }
    records.push(Record::Mark { at: now + STEP });
    Ok(Told { records, lines })
}

fn facts(session: SessionId, name: &str, level: Level, at: Nanos) -> SessionFacts {
    let parameters = [
        ("application_name", name),
        ("default_transaction_isolation", level.name()),
        ("TimeZone", "UTC"),
        ("DateStyle", "ISO, MDY"),
    ];
    SessionFacts {
        session,
        at,
        user: "story".to_owned(),
        database: "story".to_owned(),
        server_version: "15.0".to_owned(),
        parameters: parameters
            .into_iter()
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .collect(),
    }
}

fn observe(actor: &mut Actor, sql: &str, window: Window, answer: Option<&str>) -> Result<Record, String> {
    let (sql, protocol) = match sql.strip_prefix("continue ") {
        Some(sql) => (sql, Protocol::Continued),
        None if answer.is_some_and(|a| a.starts_with("part ")) => (sql, Protocol::Extended),
        None => (sql, Protocol::Simple),
    };
    let (sql, joined) = match sql.strip_prefix("and ") {
        Some("sync") => ("", true),
        Some(sql) => (sql, true),
        None => (sql, false),
    };
    let (sql, gap_of) = match (sql.strip_prefix("unseen "), sql.strip_prefix("shed ")) {
        (Some(sql), _) => (sql, Some((!actor.is_everybody).then_some(actor.id))),
        (_, Some(sql)) => (sql, Some(Some(NOBODY))),
        _ => (sql, None),
    };
    let outcome = outcome_of(sql, answer)?;
    let before = actor.status;
    actor.status = status_after(sql, before, &outcome);
    actor.seq += 1;
    if !joined {
        actor.group = actor.seq;
    }
    if let Some(session) = gap_of {
        return Ok(Record::Gap(Gap {
            session,
            window,
            reason: "the story says so".to_owned(),
        }));
    }
    Ok(Record::Statement(Box::new(Observation {
        session: actor.id,
        seq: actor.seq,
        text: Arc::from(sql),
        part: 0,
        protocol,
        parameters: Vec::new(),
        window,
        outcome,
        before,
        after: actor.status,
        group: actor.group,
        ready: window,
    })))
}

fn first_word(sql: &str) -> String {
    sql.trim_start()
        .chars()
        .take_while(|c| c.is_ascii_alphabetic())
        .collect::<String>()
        .to_ascii_lowercase()
}

fn status_after(sql: &str, before: Status, outcome: &Outcome) -> Status {
    let failed = matches!(outcome, Outcome::Error(_));
    match (first_word(sql).as_str(), before) {
        ("begin" | "start", _) if !failed => Status::InBlock,
        ("commit" | "end" | "abort", _) => Status::Idle,
        ("prepare", _) if sql.to_ascii_lowercase().starts_with("prepare transaction") => Status::Idle,
        ("rollback", _) if !sql.to_ascii_lowercase().contains(" to ") => Status::Idle,
        ("rollback", _) if !failed => Status::InBlock,
        (_, Status::InBlock) if failed => Status::Failed,
        _ => before,
    }
}

fn outcome_of(sql: &str, answer: Option<&str>) -> Result<Outcome, String> {
    let Some(text) = answer else {
        return Ok(Outcome::Answer(Answer {
            tag: plain_tag(sql),
            ..Answer::default()
        }));
    };
    if text == "lost" {
        return Ok(Outcome::Lost);
    }
    if let Some(code) = text.strip_prefix("error ") {
        let (sqlstate, message) = code.split_once(' ').unwrap_or((code, ""));
        return Ok(Outcome::Error(ServerError {
            sqlstate: sqlstate.to_owned(),
            message: message.to_owned(),
            detail: None,
            constraint: None,
            table: None,
        }));
    }
    if let Some(data) = text.strip_prefix("copy ") {
        return Ok(Outcome::Answer(Answer {
            copy: Some(Bytes::from(unescaped(data))),
            ..Answer::default()
        }));
    }
    if let Some(rows) = text.strip_prefix("part ") {
        let outcome = outcome_of(sql, Some(rows))?;
        return Ok(match outcome {
            Outcome::Answer(answer) => Outcome::Answer(Answer { tag: None, ..answer }),
            other => other,
        });
    }
    if text.starts_with('(') || text == "no rows" {
        let rows = if text == "no rows" {
            Vec::new()
        } else {
            rows_of(text)?
        };
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|r| r.len() != width) {
            return Err("the rows of an answer must have the same number of columns".to_owned());
        }
        let columns = (0..width).map(|_| Column {
            name: String::new(),
            type_oid: 0,
            type_modifier: -1,
            format: 0,
        });
        let count = rows.len();
        let tag = match first_word(sql).as_str() {
            "insert" => format!("INSERT 0 {count}"),
            "update" => format!("UPDATE {count}"),
            "delete" => format!("DELETE {count}"),
            "fetch" => format!("FETCH {count}"),
            _ => format!("SELECT {count}"),
        };
        return Ok(Outcome::Answer(Answer {
            columns: columns.collect(),
            rows,
            tag: Some(tag),
            ..Answer::default()
        }));
    }
    Ok(Outcome::Answer(Answer {
        tag: Some(text.to_owned()),
        ..Answer::default()
    }))
}

/// `\t`, `\n` and `\\` of a line of data.
fn unescaped(text: &str) -> String {
    let text = text.replace("\\\\", "\u{1}");
    text.replace("\\t", "\t")
        .replace("\\n", "\n")
        .replace('\u{1}', "\\")
}

/// The tag of commands that can only have one.
fn plain_tag(sql: &str) -> Option<String> {
    match first_word(sql).as_str() {
        "begin" | "start" => Some("BEGIN".to_owned()),
        "commit" | "end" => Some("COMMIT".to_owned()),
        "rollback" | "abort" => Some("ROLLBACK".to_owned()),
        _ => None,
    }
}

/// `(1, 'a') (2, null)`, commas between rows allowed.
fn rows_of(text: &str) -> Result<Vec<Vec<Option<Bytes>>>, String> {
    let mut rows = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.peek().is_some_and(|c| c.is_whitespace() || *c == ',') {
            chars.next();
        }
        match chars.next() {
            None => return Ok(rows),
            Some('(') => {}
            Some(other) => return Err(format!("expected a row «(…)», found «{other}»")),
        }
        let mut row = Vec::new();
        loop {
            let (mut cell, mut quoted, mut last) = (String::new(), false, ' ');
            while let Some(c) = chars.next() {
                match c {
                    '\'' if cell.trim().is_empty() && !quoted => {
                        quoted = true;
                        cell.clear();
                        loop {
                            match chars.next() {
                                Some('\'') if chars.peek() == Some(&'\'') => {
                                    chars.next();
                                    cell.push('\'');
                                }
                                Some('\'') => break,
                                Some(c) => cell.push(c),
                                None => return Err("a quoted cell does not end".to_owned()),
                            }
                        }
                    }
                    ',' | ')' => {
                        last = c;
                        break;
                    }
                    c if quoted && c.is_whitespace() => {}
                    c => cell.push(c),
                }
                last = c;
            }
            if last != ',' && last != ')' {
                return Err("a row does not end with «)»".to_owned());
            }
            let plain = cell.trim();
            row.push(match quoted {
                true => Some(Bytes::from(cell)),
                false if plain.eq_ignore_ascii_case("null") => None,
                false => Some(Bytes::from(plain.to_owned())),
            });
            if last == ')' {
                break;
            }
        }
        rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_speaks_of_several_levels_of_one_profile() {
        let (story, expected) = expectations(
            "t1: select 1 => (1)\nexpect paper si, s: stale_read\nexpect READ COMMITTED: nothing\n",
        )
        .expect("a story");
        assert_eq!(story, "t1: select 1 => (1)\n\n\n");
        let brief: Vec<_> = expected
            .iter()
            .map(|e| (e.profile.as_str(), e.level, e.rules.len()))
            .collect();
        assert_eq!(
            brief,
            [
                ("paper", Level::Si, 1),
                ("paper", Level::S, 1),
                ("postgres", Level::ReadCommitted, 0)
            ]
        );
    }

    #[test]
    fn what_cannot_be_expected_is_named_with_its_line() {
        let complaint = |line: &str| expectations(&format!("\n{line}")).expect_err(line).to_string();
        assert_eq!(
            complaint("expect paper si"),
            "line 2: expected «expect LEVEL: rules»"
        );
        assert_eq!(
            complaint("expect postgres-standby serializable: nothing"),
            "line 2: the profile «postgres-standby» has no level «serializable»"
        );
        assert_eq!(
            complaint("expect paper si: bad_luck"),
            "line 2: there is no rule «bad_luck»"
        );
        assert!(
            complaint("expect oracle si: nothing")
                .starts_with("line 2: there is no isolation level «oracle si»")
        );
    }
}
