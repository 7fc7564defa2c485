//! Tells a violation: from the proof, as data, to what a person reads.
//!
//! In: the transactions that prove it, the differences, the dependencies. Out: a [`Violation`].
//!
//! Always true: the prose says nothing that is not in the data.

use crate::assemble::{End, Transaction};
use crate::explain::world::World;
use crate::interpret::Difference;
use crate::points::CommitId;
use crate::reference::Member;
use crate::relate::Relation;
use crate::report::script::{inline_as, parameter};
use crate::state::{Row, TableId};
use crate::trace::{Observation, Outcome};
use crate::value::{Context, Value, encode_text};
use crate::verdict::{Edge, Ground, StoryStatement, StoryTransaction, Violation};
use pgassay_rules::{Level, Rule, anomaly};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::Arc;

/// Rows of an answer that the story shows.
const ROWS_SHOWN: usize = 5;
/// Rows of the state that it shows.
const INITIAL_SHOWN: usize = 12;

/// What a story is made from.
pub struct Proof<'a> {
    pub rule: &'static Rule,
    pub level: Level,
    /// In any order; the story puts them in the order of their first statement.
    pub members: &'a [Member],
    /// Member, step and why it differs.
    pub differences: &'a [(usize, usize, Difference)],
    /// Member → member.
    pub edges: &'a [Relation],
    /// Shapes of the culprits, for the fingerprint.
    pub shapes: Vec<Arc<str>>,
    /// The rows that the story starts from, as text.
    pub initial: Vec<String>,
    /// The same as SQL; its settings are those of the members.
    pub ground: Ground,
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
        .map(|(from, to, kind, read)| {
            let (from, to) = (place(*from), place(*to));
            // Where an update is lost, what the second one «read» of the first is the row that it writes over.
            let over = *kind == "wr" && proof.rule.name == anomaly::LOST_UPDATE.name;
            let kind = if over { &"ww" } else { kind };
            Edge {
                from,
                to,
                kind: (*kind).to_owned(),
                why: why(kind, (from, to), *read, &transactions),
                read: read.or_else(|| {
                    let own = reader(kind, from, to)?;
                    let culprit = culprits.iter().find(|(culprit, _)| *culprit == own);
                    culprit.map(|(_, s)| *s)
                }),
            }
        })
        .collect();
    let fingerprint = fingerprint(proof.rule, proof.level, &proof.shapes);
    let observed = observed(proof, place, &transactions);
    let expected = expected(proof, place, &transactions);
    let at = culprits
        .first()
        .map_or(0, |(t, s)| transactions[*t].statements[*s].window.done);
    let mut ground = proof.ground.clone();
    let settings = order.iter().map(|&m| proof.ground.settings.get(m).cloned());
    ground.settings = settings.map(Option::unwrap_or_default).collect();
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
        initial: proof.initial.clone(),
        ground,
        story: String::new(),
        repeats: 0,
    };
    violation.story = prose(proof.rule, &violation);
    violation
}

/// Statements that the box of the observed answers names.
const OBSERVED_SHOWN: usize = 3;
/// Right answers that are listed.
const EXPECTED_SHOWN: usize = 8;

/// The differences in the order in which the story tells its transactions, with their places there.
fn in_order<'a>(proof: &Proof<'a>, place: impl Fn(usize) -> usize) -> Vec<((usize, usize), &'a Difference)> {
    let placed = proof
        .differences
        .iter()
        .map(|(m, s, difference)| ((place(*m), *s), difference));
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by_key(|(at, _)| *at);
    placed
}

/// What was answered to what, for each statement whose answer is wrong.
fn observed(proof: &Proof<'_>, place: impl Fn(usize) -> usize, told: &[StoryTransaction]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut seen: Vec<(usize, usize)> = Vec::new();
    for (at, difference) in in_order(proof, place) {
        if seen.contains(&at) || seen.len() == OBSERVED_SHOWN {
            continue;
        }
        seen.push(at);
        lines.push(format!("{} → {}", asked(told, at), difference.observed));
    }
    match lines.is_empty() {
        true => "answers that no serial order gives".to_owned(),
        false => lines.join("; "),
    }
}

/// Which answers would have been right. Where several statements differ, each says whose it is.
fn expected(proof: &Proof<'_>, place: impl Fn(usize) -> usize, told: &[StoryTransaction]) -> Vec<String> {
    let first = proof.differences.first().map(|(m, s, _)| (*m, *s));
    let only_one = proof.differences.iter().all(|(m, s, _)| Some((*m, *s)) == first);
    let mut lines: Vec<String> = Vec::new();
    for (at, difference) in in_order(proof, place) {
        let other = (told.len() == 2).then(|| &told[1 - at.0].name);
        let text = match (only_one, other) {
            (true, _) => difference.expected.clone(),
            // Alone it was right: only after the other one would it have been answered differently.
            (false, Some(other)) => {
                format!(
                    "if {other} came first: {} → {}",
                    asked(told, at),
                    difference.expected
                )
            }
            (false, None) => format!("{} → {}", asked(told, at), difference.expected),
        };
        if !lines.contains(&text) && lines.len() < EXPECTED_SHOWN {
            lines.push(text);
        }
    }
    lines
}

/// `t1 «select 1»`, with the parameters in their places.
fn asked(told: &[StoryTransaction], (transaction, statement): (usize, usize)) -> String {
    let txn = &told[transaction];
    let sql = txn
        .statements
        .get(statement)
        .map_or_else(String::new, |s| inline_as(&s.sql, &s.parameters, plainly));
    let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    let sql = sql.trim_end_matches([';', ' ']);
    format!("{} «{}»", txn.name, shortened(sql))
}

/// A parameter as a person would write it: numbers without quotes.
fn plainly(value: &str) -> String {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let number = digits.len() < 20 && digits.starts_with(|c: char| c.is_ascii_digit());
    match number && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        true => value.to_owned(),
        false => parameter(value),
    }
}

/// The transaction whose reading makes the dependency.
fn reader(kind: &str, from: usize, to: usize) -> Option<usize> {
    match kind {
        "rw" => Some(from),
        "wr" => Some(to),
        _ => None,
    }
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

fn why(kind: &str, (from, to): (usize, usize), read: Option<usize>, told: &[StoryTransaction]) -> String {
    let (a, b) = (format!("t{}", from + 1), format!("t{}", to + 1));
    let answered = read
        .and_then(|n| told[to].statements.get(n))
        .map(|s| s.window.done);
    let asked_to_commit = told[from].commit.map(|window| window.sent);
    let too_early = answered
        .zip(asked_to_commit)
        .is_some_and(|(answered, asked)| answered < asked);
    match kind {
        "wr" if told[from].committed == Some(false) => {
            format!("{b} saw what {a} wrote, but {a} was rolled back: nobody may see that")
        }
        "wr" if too_early => {
            format!("{b} saw what {a} wrote before {a} asked to commit: nobody may see that yet")
        }
        "wr" => format!("{b} saw what {a} wrote, so {a} comes first"),
        "ww" => format!("{b} wrote over what {a} had written, so {a} comes first"),
        "rw" => format!("{a} read what was there before {b} wrote, so {a} comes first"),
        "real-time" => format!("{a} had committed, and its client knew, before {b} asked: {a} comes first"),
        _ => format!("{a} comes before {b}"),
    }
}

/// A few sentences; steps and answers are in the data, for whoever shows them.
fn prose(rule: &Rule, violation: &Violation) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", rule.summary);
    for edge in &violation.edges {
        let _ = writeln!(text, "{}.", edge.why);
    }
    let names: Vec<&str> = violation.transactions.iter().map(|t| t.name.as_str()).collect();
    match (violation.edges.len() < 2, names.as_slice()) {
        (false, _) => {
            let _ = writeln!(text, "No order of {} keeps all of that.", listed(&names));
        }
        (true, [only]) => {
            let _ = writeln!(text, "No state that {only} may have read gives this answer.");
        }
        (true, _) => {
            let _ = writeln!(text, "No order of {} gives this answer.", listed(&names));
        }
    }
    text
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

fn shortened(sql: &str) -> String {
    const SHOWN: usize = 120;
    match sql.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &sql[..at]),
        None => sql.to_owned(),
    }
}

/// The rows that the members of a story found, as text.
pub fn initial_rows(members: &[Member], world: &World) -> Vec<String> {
    let commits: Vec<CommitId> = members.iter().filter_map(|m| m.commit).collect();
    let mut lines = Vec::new();
    for commit in commits.iter().filter_map(|id| world.order.get(*id)) {
        for (table, id) in &commit.rows {
            let Some(kept) = world.store.tables.get(table) else {
                continue;
            };
            let Some(chain) = kept.chain(*id) else { continue };
            let below = chain
                .versions
                .iter()
                .take_while(|v| !commits.contains(&v.commit))
                .last();
            let Some(row) = below.and_then(|v| v.row.as_ref()) else {
                continue;
            };
            let line = row_in_words(*table, row, world);
            if !lines.contains(&line) && lines.len() < INITIAL_SHOWN {
                lines.push(line);
            }
        }
    }
    lines
}

fn row_in_words(table: TableId, row: &Row, world: &World) -> String {
    let context = Context::defaults();
    let words = |value: &Value| match value {
        Value::Unknown => "?".to_owned(),
        Value::Null => "NULL".to_owned(),
        known => encode_text(known, &context).unwrap_or_else(|| "?".to_owned()),
    };
    let catalog = &world.store.catalog;
    let found = catalog.table(table);
    let name = found.map_or_else(|| "table".to_owned(), |t| t.name.clone());
    let columns = found.map_or(&[][..], |t| &t.columns);
    let cells = row.iter().enumerate().map(|(at, value)| match columns.get(at) {
        Some(column) => format!("{} = {}", column.name, words(value)),
        None => words(value),
    });
    format!("{name}: {}", cells.collect::<Vec<_>>().join(", "))
}
