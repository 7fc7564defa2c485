//! Tells a violation: from the proof, as data, to what a person reads.
//!
//! In: the transactions that prove it, the differences, the dependencies. Out: a [`Violation`].
//!
//! Always true: the prose says nothing that is not in the data.

use crate::assemble::{End, Transaction};
use crate::interpret::Difference;
use crate::reference::Member;
use crate::trace::{Nanos, Observation, Outcome};
use crate::verdict::{Edge, StoryStatement, StoryTransaction, Violation};
use pgassay_rules::{Level, Rule};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::Arc;

/// Rows of an answer that the story shows.
const ROWS_SHOWN: usize = 5;

/// What a story is made from.
pub struct Proof<'a> {
    pub rule: &'static Rule,
    pub level: Level,
    /// In any order; the story puts them in the order of their first statement.
    pub members: &'a [Member],
    /// Member, step and why it differs.
    pub differences: &'a [(usize, usize, Difference)],
    /// Member → member.
    pub edges: &'a [(usize, usize, &'static str)],
    /// Shapes of the culprits, for the fingerprint.
    pub shapes: Vec<Arc<str>>,
}

pub fn fingerprint(rule: &Rule, level: Level, shapes: &[Arc<str>]) -> String {
    let mut hash = Sha256::new();
    hash.update(rule.name);
    hash.update([0]);
    hash.update(level.name());
    let mut sorted: Vec<&Arc<str>> = shapes.iter().collect();
    sorted.sort();
    sorted.dedup();
    for shape in sorted {
        hash.update([0]);
        hash.update(shape.as_bytes());
    }
    hash.finalize()
        .iter()
        .take(16)
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

pub fn tell(proof: &Proof<'_>) -> Violation {
    let mut order: Vec<usize> = (0..proof.members.len()).collect();
    order.sort_by_key(|&m| (proof.members[m].txn.sent(), proof.members[m].txn.id));
    let place = |member: usize| order.iter().position(|&m| m == member).unwrap_or(0);
    let transactions: Vec<StoryTransaction> = order
        .iter()
        .enumerate()
        .map(|(at, &m)| {
            transaction(
                format!("t{}", at + 1),
                &proof.members[m].txn,
                proof.members[m].level,
            )
        })
        .collect();
    let mut culprits: Vec<(usize, usize)> = proof
        .differences
        .iter()
        .map(|(m, s, _)| (place(*m), *s))
        .collect();
    culprits.sort();
    culprits.dedup();
    let edges: Vec<Edge> = proof
        .edges
        .iter()
        .map(|(from, to, kind)| {
            let (from, to) = (place(*from), place(*to));
            Edge {
                from,
                to,
                kind: (*kind).to_owned(),
                why: why(kind, from, to),
            }
        })
        .collect();
    let fingerprint = fingerprint(proof.rule, proof.level, &proof.shapes);
    let observed = match proof.differences.first() {
        Some((m, s, d)) => format!("t{} statement {}: {}", place(*m) + 1, s + 1, d.observed),
        None => "answers that no serial order gives".to_owned(),
    };
    let mut expected: Vec<String> = Vec::new();
    for (m, s, d) in proof.differences {
        let text = format!("t{} statement {}: {}", place(*m) + 1, s + 1, d.expected);
        if !expected.contains(&text) && expected.len() < 8 {
            expected.push(text);
        }
    }
    let at = culprits
        .first()
        .map_or(0, |(t, s)| transactions[*t].statements[*s].window.done);
    let mut violation = Violation {
        id: format!("v-{}", &fingerprint[..12]),
        fingerprint,
        rule: proof.rule.name.to_owned(),
        level: proof.level,
        at,
        transactions,
        culprits,
        observed,
        expected,
        edges,
        initial: Vec::new(),
        story: String::new(),
        repeats: 0,
    };
    violation.story = prose(proof.rule, &violation);
    violation
}

fn transaction(name: String, txn: &Transaction, level: Level) -> StoryTransaction {
    let (committed, commit) = match txn.end {
        End::Committed(w) => (Some(true), Some(w)),
        End::Aborted(w) => (Some(false), Some(w)),
        End::Unknown(w) => (None, Some(w)),
    };
    let statements = txn.steps.iter().map(|s| statement(&s.seen)).collect();
    StoryTransaction {
        name,
        id: txn.id,
        level,
        committed,
        commit,
        statements,
    }
}

fn statement(seen: &Observation) -> StoryStatement {
    let parameters = seen.parameters.iter().map(|p| match &p.value {
        None => "NULL".to_owned(),
        Some(bytes) if p.format == 0 => String::from_utf8_lossy(bytes).into_owned(),
        Some(bytes) => binary(p.type_oid, bytes),
    });
    StoryStatement {
        sql: seen.text.to_string(),
        parameters: parameters.collect(),
        window: seen.window,
        answer: answer(&seen.outcome),
    }
}

fn binary(type_oid: u32, bytes: &bytes::Bytes) -> String {
    let context = crate::value::Context::defaults();
    let value = crate::value::decode(type_oid, 1, Some(bytes), &context);
    crate::value::encode_text(&value, &context).unwrap_or_else(|| format!("{} bytes", bytes.len()))
}

/// The answer as a person would write it down.
pub fn answer(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Lost => "the connection was lost".to_owned(),
        Outcome::Skipped => "skipped".to_owned(),
        Outcome::Error(e) => format!("ERROR {}: {}", e.sqlstate, e.message),
        Outcome::Answer(a) => {
            if a.columns.is_empty() {
                return a.tag.clone().unwrap_or_else(|| "done".to_owned());
            }
            let mut rows: Vec<String> = Vec::new();
            for row in a.rows.iter().take(ROWS_SHOWN) {
                let cells = row.iter().zip(a.columns.iter()).map(|(cell, column)| match cell {
                    None => "NULL".to_owned(),
                    Some(bytes) if column.format == 0 => String::from_utf8_lossy(bytes).into_owned(),
                    Some(bytes) => binary(column.type_oid, bytes),
                });
                rows.push(format!("({})", cells.collect::<Vec<_>>().join(", ")));
            }
            if a.rows.len() > ROWS_SHOWN {
                rows.push(format!("… {} rows", a.rows.len()));
            }
            if rows.is_empty() {
                "no rows".to_owned()
            } else {
                rows.join(" ")
            }
        }
    }
}

fn why(kind: &str, from: usize, to: usize) -> String {
    let (a, b) = (format!("t{}", from + 1), format!("t{}", to + 1));
    match kind {
        "wr" => format!("{b} saw what {a} wrote, so {a} comes first"),
        "ww" => format!("{b} overwrote what {a} wrote, so {a} comes first"),
        "rw" => format!("{a} did not see what {b} wrote where {a} read, so {a} comes first"),
        "real-time" => format!("{a} had ended before {b} began"),
        _ => format!("{a} comes before {b}"),
    }
}

fn prose(rule: &Rule, violation: &Violation) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{} ({}, {}).", rule.summary, rule.name, violation.level);
    let mut lines: Vec<(Nanos, String)> = Vec::new();
    let start = violation
        .transactions
        .iter()
        .flat_map(|t| &t.statements)
        .map(|s| s.window.sent)
        .min()
        .unwrap_or(0);
    for (t, txn) in violation.transactions.iter().enumerate() {
        for (s, statement) in txn.statements.iter().enumerate() {
            let mark = if violation.culprits.contains(&(t, s)) {
                "  ◄"
            } else {
                ""
            };
            let ms = (statement.window.sent - start) as f64 / 1e6;
            let parameters = match statement.parameters.is_empty() {
                true => String::new(),
                false => format!("  [{}]", statement.parameters.join(", ")),
            };
            lines.push((
                statement.window.sent,
                format!(
                    "  {ms:9.3} ms  {}  {}{parameters} → {}{mark}",
                    txn.name,
                    statement.sql.trim(),
                    statement.answer
                ),
            ));
        }
    }
    lines.sort();
    for (_, line) in lines {
        let _ = writeln!(text, "{line}");
    }
    if !violation.edges.is_empty() {
        let _ = writeln!(text, "Every serial order must keep all of these, and none can:");
        for edge in &violation.edges {
            let _ = writeln!(text, "  {}", edge.why);
        }
    }
    let _ = writeln!(text, "Answered: {}.", violation.observed);
    for expected in &violation.expected {
        let _ = writeln!(text, "Right would have been: {expected}.");
    }
    text
}
