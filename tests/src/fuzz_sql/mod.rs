//! The interpreter against PostgreSQL itself: random schemas, data and statements from a seed.
//!
//! The same statement runs on a real server and on the interpreter, from the same state. The server's answer must
//! be one that the interpreter expects, or the interpreter must say that it does not know. After every write the
//! tables are compared, too.

use crate::raw::{Client, Message};
use bytes::Bytes;
use fastrand::Rng;
use pgassay_audit::interpret::memory::Memory;
use pgassay_audit::interpret::{Effect, Match};
use pgassay_audit::trace::{Answer, Column, Outcome, ServerError};
use std::collections::BTreeMap;

mod generate;
mod query;
mod schema;
mod value;

use generate::Generator;
use schema::Schema;

/// How often each construct was met, and how often the interpreter did not know.
#[derive(Debug, Default)]
pub struct Tally {
    pub constructs: BTreeMap<&'static str, (u64, u64)>,
    pub reasons: BTreeMap<String, u64>,
    pub statements: u64,
    pub rejected: u64,
}

/// A difference, with everything that is needed to see it again.
#[derive(Debug)]
pub struct Difference {
    pub seed: u64,
    pub history: Vec<String>,
    pub text: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for statement in &self.history {
            writeln!(f, "{statement};")?;
        }
        write!(f, "{}", self.text)
    }
}

/// One database made from a seed, and statements on it.
pub fn round(
    client: &mut Client,
    seed: u64,
    statements: usize,
    tally: &mut Tally,
) -> Result<(), Box<Difference>> {
    let mut rng = Rng::with_seed(seed);
    let mut memory = Memory::new();
    let mut history = Vec::new();
    let schema = Schema::random(&mut rng);
    client.query("drop schema if exists public cascade; create schema public");
    for statement in schema.create() {
        history.push(statement.clone());
        let outcome = outcome(&client.query(&statement));
        if let Outcome::Error(error) = &outcome {
            return Err(fail(
                seed,
                &history,
                format!("the server refuses the schema: {error:?}"),
            ));
        }
        let (verdict, execution) = memory.observe(&statement, &outcome);
        if !matches!(verdict, Match::Agrees { .. }) {
            return Err(fail(
                seed,
                &history,
                format!("DDL is not followed: {verdict:?} {:?}", execution.reasons),
            ));
        }
    }
    for _ in 0..statements {
        let mut generator = Generator {
            rng: &mut rng,
            schema: &schema,
            depth: 0,
            construct: "",
            aliases: Vec::new(),
        };
        let statement = generator.statement();
        let construct = generator.construct;
        let outcome = outcome(&client.query(&statement));
        tally.statements += 1;
        if let Outcome::Error(error) = &outcome {
            if error.sqlstate.starts_with("42") || error.sqlstate == "55000" || error.sqlstate == "0A000" {
                // The generator made nonsense; no harm done.
                tally.rejected += 1;
                continue;
            }
        }
        let (verdict, execution) = memory.observe(&statement, &outcome);
        let entry = tally.constructs.entry(construct).or_default();
        entry.0 += 1;
        let wrote = !execution.effects.is_empty();
        match verdict {
            Match::Agrees { .. } if execution.reasons.is_empty() => {}
            Match::Agrees { .. } => {
                entry.1 += 1;
                for reason in &execution.reasons {
                    *tally.reasons.entry(reason.clone()).or_default() += 1;
                }
            }
            Match::Unknown(reason) => {
                entry.1 += 1;
                *tally.reasons.entry(reason).or_default() += 1;
            }
            Match::Differs(difference) => {
                history.push(statement);
                return Err(fail(
                    seed,
                    &history,
                    format!(
                        "{}: the server answered\n  {}\nthe interpreter expects\n  {}",
                        difference.rule.name, difference.observed, difference.expected
                    ),
                ));
            }
        }
        if matches!(outcome, Outcome::Answer(_)) && (wrote || !statement.starts_with("select")) {
            history.push(statement.clone());
            let widened = execution
                .effects
                .iter()
                .any(|effect| matches!(effect, Effect::Havoc { .. } | Effect::HavocEverything { .. }));
            resynchronise(client, &mut memory, &schema, widened, seed, &history)?;
        }
    }
    Ok(())
}

fn fail(seed: u64, history: &[String], text: String) -> Box<Difference> {
    Box::new(Difference {
        seed,
        history: history.to_vec(),
        text,
    })
}

/// Compares every table with the server's, then takes over the server's contents.
fn resynchronise(
    client: &mut Client,
    memory: &mut Memory,
    schema: &Schema,
    widened: bool,
    seed: u64,
    history: &[String],
) -> Result<(), Box<Difference>> {
    for table in schema.tables.iter().filter(|table| !table.is_view) {
        let question = format!("select * from {}", table.name);
        let outcome = outcome(&client.query(&question));
        let Outcome::Answer(answer) = &outcome else {
            continue;
        };
        if !widened {
            let execution = memory.run(&question, &[]);
            if let Match::Differs(difference) = execution.expect.compare(&outcome) {
                return Err(fail(
                    seed,
                    history,
                    format!(
                        "after this, {} holds\n  {}\nbut the interpreter thinks\n  {}",
                        table.name, difference.observed, difference.expected
                    ),
                ));
            }
        }
        let rows: Vec<Vec<Option<String>>> = answer
            .rows
            .iter()
            .map(|row| {
                row.iter()
                    .map(|cell| {
                        cell.as_ref()
                            .map(|cell| String::from_utf8_lossy(cell).into_owned())
                    })
                    .collect()
            })
            .collect();
        if let Some(found) = memory
            .catalog
            .find(None, &table.name, &["public".to_owned()])
            .map(|found| found.id)
        {
            memory.load(found, &rows);
        }
    }
    Ok(())
}

/// The messages that answer one simple query.
pub fn outcome(messages: &[Message]) -> Outcome {
    let mut answer = Answer::default();
    let (mut copied, mut copies) = (Vec::new(), false);
    for message in messages {
        match message.tag {
            b'E' => {
                return Outcome::Error(ServerError {
                    sqlstate: message.field('C').unwrap_or_default(),
                    message: message.field('M').unwrap_or_default(),
                    detail: message.field('D'),
                    constraint: None,
                    table: None,
                });
            }
            b'T' => answer.columns = columns(&message.body).into(),
            b'D' => answer.rows.push(cells(&message.body)),
            b'd' => copied.extend_from_slice(&message.body),
            b'H' => copies = true,
            b'C' => {
                answer.tag =
                    Some(String::from_utf8_lossy(&message.body[..message.body.len() - 1]).into_owned())
            }
            _ => {}
        }
    }
    answer.copy = copies.then(|| Bytes::from(copied));
    Outcome::Answer(answer)
}

fn columns(body: &[u8]) -> Vec<Column> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut at = 2;
    let mut columns = Vec::new();
    for _ in 0..count {
        let end = at
            + body[at..]
                .iter()
                .position(|byte| *byte == 0)
                .expect("a name ends");
        let name = String::from_utf8_lossy(&body[at..end]).into_owned();
        let type_oid = u32::from_be_bytes(body[end + 7..end + 11].try_into().expect("four bytes"));
        let type_modifier = i32::from_be_bytes(body[end + 13..end + 17].try_into().expect("four bytes"));
        columns.push(Column {
            name,
            type_oid,
            type_modifier,
            format: 0,
        });
        at = end + 19;
    }
    columns
}

fn cells(body: &[u8]) -> Vec<Option<Bytes>> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut at = 2;
    let mut cells = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"));
        at += 4;
        if length < 0 {
            cells.push(None);
        } else {
            cells.push(Some(Bytes::copy_from_slice(&body[at..at + length as usize])));
            at += length as usize;
        }
    }
    cells
}

impl Tally {
    /// The share of unknown per construct.
    pub fn report(&self) -> String {
        let mut text = format!(
            "{} statements, {} rejected by the server's parser\n",
            self.statements, self.rejected
        );
        for (construct, (all, unknown)) in &self.constructs {
            text.push_str(&format!(
                "  {construct:<16} {all:>7}  unknown {:>6.2} %\n",
                100.0 * *unknown as f64 / *all as f64
            ));
        }
        for (reason, count) in &self.reasons {
            text.push_str(&format!("  reason {reason}: {count}\n"));
        }
        text
    }
}
