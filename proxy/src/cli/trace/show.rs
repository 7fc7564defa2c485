//! Records as lines: for people, or as JSON for programs.

use super::Chosen;
use bytes::Bytes;
use pgassay_audit::trace::{Nanos, Observation, Outcome, Protocol, Record, Status, Window};
use serde_json::{Value, json};
use std::io::Write;

pub fn show(chosen: &mut Chosen, limit: usize, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let mut lines = 0;
    while lines < limit
        && let Some(record) = chosen.next()?
    {
        // Marks say how far the record is complete; nobody reads them.
        if matches!(record, Record::Mark { .. }) {
            continue;
        }
        if as_json {
            writeln!(out, "{}", to_json(&record))?;
        } else {
            writeln!(out, "{}", line(chosen, &record))?;
        }
        lines += 1;
    }
    Ok(())
}

pub fn cat(chosen: &mut Chosen, out: &mut impl Write) -> anyhow::Result<()> {
    while let Some(record) = chosen.next()? {
        writeln!(out, "{}", to_json(&record))?;
    }
    Ok(())
}

fn line(chosen: &Chosen, record: &Record) -> String {
    let at = |at: Nanos| format!("{:>12.6}", chosen.seconds(at));
    match record {
        Record::SessionStart(facts) => format!(
            "{} s{} starts: {} on {}, server {}",
            at(facts.at),
            facts.session.0,
            facts.user,
            facts.database,
            facts.server_version
        ),
        Record::ServerGone { session, at: end } => {
            format!(
                "{} s{} was ended by the server without a word",
                at(*end),
                session.0
            )
        }
        Record::SessionEnd { session, at: end } => format!("{} s{} ends", at(*end), session.0),
        Record::Statement(o) => {
            let part = if o.part > 0 {
                format!(" (part {})", o.part)
            } else {
                String::new()
            };
            let kind = if o.protocol == Protocol::Continued {
                " (continued)"
            } else {
                ""
            };
            let parameters: Vec<String> = o.parameters.iter().map(|p| text(&p.value, p.format)).collect();
            let parameters = if parameters.is_empty() {
                String::new()
            } else {
                format!(" [{}]", parameters.join(", "))
            };
            format!(
                "{} s{} {}{}{}{}{} → {}  {}",
                at(o.window.sent),
                o.session.0,
                status(o.before),
                shorten(&o.text, 200),
                part,
                kind,
                parameters,
                outcome(&o.outcome),
                took(o.window)
            )
        }
        Record::Gap(gap) => format!(
            "{} {} was not seen until {}: {}",
            at(gap.window.sent),
            gap.session
                .map_or("everything".to_owned(), |s| format!("s{}", s.0)),
            if gap.window.done == Nanos::MAX {
                "the end".to_owned()
            } else {
                at(gap.window.done).trim().to_owned()
            },
            gap.reason
        ),
        Record::Mark { at: mark } => format!("{} recorded so far", at(*mark)),
        Record::Bootstrap(b) => {
            let copied = b.tables.iter().filter(|t| t.rows.is_some()).count();
            format!(
                "{} state read from server {}: {} of {} tables copied, {} transactions open",
                at(b.window.sent),
                b.server_version,
                copied,
                b.tables.len(),
                b.open_transactions
            )
        }
        Record::Reread(reread) => {
            let copied = reread.tables.iter().filter_map(|(_, t)| t.rows.as_ref());
            let (tables, rows) = copied.fold((0, 0), |(tables, rows), copy| (tables + 1, rows + copy.len()));
            format!(
                "{} read again, because something was not seen: {tables} tables, {rows} rows",
                at(reread.window.sent)
            )
        }
        Record::Catalog(read) => {
            let what = match read.catalog.len() {
                0 | 1 => "it is the one that was known",
                _ => "all of it",
            };
            format!("{} catalog read again: {what}", at(read.window.sent))
        }
        Record::Writers {
            at: seen_at,
            exclusive,
            seen,
        } => {
            let who = if *exclusive {
                "nobody".to_owned()
            } else {
                seen.join("; ")
            };
            format!("{} writes past the proxy: {who}", at(*seen_at))
        }
        Record::CommitTimestamp {
            session,
            at: ended,
            xid,
            unix_micros,
            ..
        } => format!(
            "{} s{} committed as xid {xid} at {}.{:06} of the server's clock",
            at(*ended),
            session.0,
            unix_micros.div_euclid(1_000_000),
            unix_micros.rem_euclid(1_000_000)
        ),
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Idle => "",
        Status::InBlock => "· ",
        Status::Failed => "! ",
        Status::Unknown => "? ",
    }
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answer(answer) => {
            let rows: Vec<String> = answer
                .rows
                .iter()
                .take(3)
                .map(|row| {
                    let cells = row
                        .iter()
                        .enumerate()
                        .map(|(i, cell)| text(cell, answer.columns.get(i).map_or(0, |c| c.format)));
                    format!("({})", cells.collect::<Vec<_>>().join(", "))
                })
                .collect();
            let more = if answer.rows.len() > 3 { " …" } else { "" };
            let tag = answer.tag.as_deref().unwrap_or("suspended");
            let cut = answer
                .cut
                .as_ref()
                .map_or(String::new(), |cut| format!(" cut: {} rows", cut.rows));
            let copy = answer
                .copy
                .as_ref()
                .map_or(String::new(), |copy| format!(" {} bytes", copy.len()));
            format!(
                "{tag}{}{}{more}{cut}{copy}",
                if rows.is_empty() { "" } else { " " },
                rows.join(" ")
            )
        }
        Outcome::Error(error) => format!("ERROR {} {}", error.sqlstate, shorten(&error.message, 120)),
        Outcome::Lost => "never answered".to_owned(),
        Outcome::Skipped => "skipped".to_owned(),
    }
}

pub fn took(window: Window) -> String {
    if window.done == Nanos::MAX {
        return "-".to_owned();
    }
    format!("{:.3} ms", window.done.saturating_sub(window.sent) as f64 / 1e6)
}

fn text(value: &Option<Bytes>, format: i16) -> String {
    match value {
        None => "NULL".to_owned(),
        Some(bytes) if format == 0 => match std::str::from_utf8(bytes) {
            Ok(text) => shorten(text, 60),
            Err(_) => hex(bytes),
        },
        Some(bytes) => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().take(32).map(|b| format!("{b:02x}")).collect();
    format!("\\x{digits}{}", if bytes.len() > 32 { "…" } else { "" })
}

/// One line, at most so many characters.
pub fn shorten(text: &str, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// The whole record; text where it is text, `{"hex": …}` where it is not.
pub fn to_json(record: &Record) -> Value {
    match record {
        Record::Statement(o) => statement(o),
        Record::SessionStart(facts) => json!({"session_start": facts}),
        Record::ServerGone { session, at } => json!({"server_gone": {"session": session, "at": at}}),
        Record::SessionEnd { session, at } => json!({"session_end": {"session": session, "at": at}}),
        Record::Gap(gap) => json!({"gap": gap}),
        Record::Mark { at } => json!({"mark": at}),
        Record::Bootstrap(bootstrap) => json!({"bootstrap": bootstrap}),
        Record::Reread(reread) => json!({"reread": reread}),
        Record::Catalog(read) => json!({"catalog": read}),
        Record::Writers { at, exclusive, seen } => {
            json!({"writers": {"at": at, "exclusive": exclusive, "seen": seen}})
        }
        Record::CommitTimestamp {
            session,
            group,
            at,
            xid,
            unix_micros,
        } => json!({"commit_timestamp": {
            "session": session, "group": group, "at": at, "xid": xid, "unix_micros": unix_micros
        }}),
    }
}

fn statement(o: &Observation) -> Value {
    let outcome = match &o.outcome {
        Outcome::Answer(a) => {
            let rows: Vec<Vec<Value>> = a
                .rows
                .iter()
                .map(|row| {
                    let format = |i: usize| a.columns.get(i).map_or(0, |c| c.format);
                    row.iter()
                        .enumerate()
                        .map(|(i, cell)| value(cell, format(i)))
                        .collect()
                })
                .collect();
            json!({
                "tag": a.tag, "columns": a.columns, "rows": rows, "cut": a.cut,
                "copy": a.copy.as_ref().map(|copy| value(&Some(copy.clone()), 0)),
            })
        }
        Outcome::Error(error) => json!({ "error": error }),
        Outcome::Lost => json!("lost"),
        Outcome::Skipped => json!("skipped"),
    };
    let parameters: Vec<Value> = o
        .parameters
        .iter()
        .map(|p| json!({"type": p.type_oid, "format": p.format, "value": value(&p.value, p.format)}))
        .collect();
    json!({"statement": {
        "session": o.session, "seq": o.seq, "group": o.group, "part": o.part, "protocol": o.protocol,
        "text": o.text, "parameters": parameters, "window": o.window, "ready": o.ready,
        "before": o.before, "after": o.after, "outcome": outcome,
    }})
}

fn value(bytes: &Option<Bytes>, format: i16) -> Value {
    let Some(bytes) = bytes else { return Value::Null };
    match std::str::from_utf8(bytes) {
        Ok(text) if format == 0 => json!(text),
        _ => json!({"hex": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()}),
    }
}
