//! Puts what sessions say into windows of time, and makes records of it.
//!
//! In: statements with their answers, by session. Out: records in the order in which their answers came.
//!
//! Always true: within a session a statement is sent after the answer to the one before it; the statements that
//! sessions say together overlap, those that follow do not.

use bytes::Bytes;
use pgassay_audit::trace::{
    Answer, Cells, Column, Observation, Outcome, Parameter, Protocol, Record, SessionFacts, SessionId,
    Status, Window,
};
use std::sync::Arc;

/// Between the statements of two sessions, in nanoseconds.
const APART: u64 = 1_000;
/// From a statement to its answer.
const ANSWER: u64 = 20_000;

/// A statement with its answer, not yet said by anybody.
pub struct Said {
    text: Arc<str>,
    parameters: Vec<Parameter>,
    answer: Answer,
    before: Status,
    after: Status,
}

impl Said {
    /// A statement by itself, as a simple query.
    pub fn alone(text: &str, tag: &str) -> Said {
        Said {
            text: text.into(),
            parameters: Vec::new(),
            answer: answer(tag.to_owned()),
            before: Status::Idle,
            after: Status::Idle,
        }
    }
}

/// A prepared statement: its text, the types of its parameters and the columns of its answer.
pub struct Prepared {
    text: Arc<str>,
    types: Vec<u32>,
    columns: Arc<[Column]>,
}

impl Prepared {
    /// Columns are name, type and type modifier.
    pub fn new(text: &str, types: &[u32], columns: &[(&str, u32, i32)]) -> Prepared {
        let columns = columns.iter().map(|(name, type_oid, type_modifier)| Column {
            name: (*name).to_owned(),
            type_oid: *type_oid,
            type_modifier: *type_modifier,
            format: 0,
        });
        Prepared {
            text: text.into(),
            types: types.to_vec(),
            columns: columns.collect(),
        }
    }
}

/// One transaction as it is said.
pub struct Talk {
    said: Vec<Said>,
}

impl Talk {
    pub fn begin(text: &Arc<str>) -> Talk {
        let begin = Said {
            text: text.clone(),
            parameters: Vec::new(),
            answer: answer("BEGIN".to_owned()),
            before: Status::Idle,
            after: Status::InBlock,
        };
        Talk { said: vec![begin] }
    }

    /// A statement that returns rows.
    pub fn ask<const N: usize>(&mut self, statement: &Prepared, values: [Bytes; N], rows: Vec<Cells>) {
        let answer = Answer {
            columns: statement.columns.clone(),
            tag: Some(format!("SELECT {}", rows.len())),
            rows,
            ..Answer::default()
        };
        self.say(statement, values, answer);
    }

    /// A statement that writes.
    pub fn change<const N: usize>(&mut self, statement: &Prepared, values: [Bytes; N], tag: &str) {
        self.say(statement, values, answer(tag.to_owned()));
    }

    fn say<const N: usize>(&mut self, statement: &Prepared, values: [Bytes; N], answer: Answer) {
        debug_assert_eq!(statement.types.len(), N, "{}", statement.text);
        let parameters = statement.types.iter().zip(values).map(|(oid, value)| Parameter {
            type_oid: *oid,
            format: 0,
            value: Some(value),
        });
        self.said.push(Said {
            text: statement.text.clone(),
            parameters: parameters.collect(),
            answer,
            before: Status::InBlock,
            after: Status::InBlock,
        });
    }

    /// COMMIT or ROLLBACK.
    pub fn end(mut self, text: &Arc<str>) -> Vec<Said> {
        self.said.push(Said {
            text: text.clone(),
            parameters: Vec::new(),
            answer: answer(text.to_string()),
            before: Status::InBlock,
            after: Status::Idle,
        });
        self.said
    }
}

fn answer(tag: String) -> Answer {
    Answer {
        tag: Some(tag),
        ..Answer::default()
    }
}

pub struct Tape {
    now: u64,
    /// How many statements every session has said.
    sequence: Vec<u64>,
    records: Vec<Record>,
}

impl Tape {
    pub fn new(sessions: u64) -> Tape {
        Tape {
            now: APART,
            sequence: vec![0; sessions as usize],
            records: Vec::new(),
        }
    }

    /// Every session connects.
    pub fn open(&mut self) {
        for session in 0..self.sequence.len() as u64 {
            self.now += APART;
            self.records.push(Record::SessionStart(SessionFacts {
                session: id(session),
                at: self.now,
                user: "postgres".to_owned(),
                database: "postgres".to_owned(),
                server_version: "15.0".to_owned(),
                parameters: Vec::new(),
            }));
        }
        self.now += APART;
    }

    /// One statement that nobody else is beside.
    pub fn alone(&mut self, session: u64, said: Said) {
        self.say(session, said);
        self.pass();
        self.records.push(Record::Mark { at: self.now });
    }

    /// The first statements of all sessions at the same time, then their second ones, until the last has ended.
    pub fn together(&mut self, transactions: Vec<Vec<Said>>) {
        let mut transactions: Vec<_> = transactions.into_iter().map(Vec::into_iter).collect();
        loop {
            let mut over = true;
            for (session, rest) in (0..).zip(&mut transactions) {
                if let Some(said) = rest.next() {
                    self.say(session, said);
                    over = false;
                }
            }
            if over {
                break;
            }
            self.pass();
        }
        self.records.push(Record::Mark { at: self.now });
    }

    /// All records since the last time.
    pub fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    fn say(&mut self, session: u64, said: Said) {
        let sent = self.now + session * APART;
        let window = Window::new(sent, sent + ANSWER);
        let seq = &mut self.sequence[session as usize];
        *seq += 1;
        let protocol = match said.parameters.is_empty() {
            true => Protocol::Simple,
            false => Protocol::Extended,
        };
        self.records.push(Record::Statement(Box::new(Observation {
            session: id(session),
            seq: *seq,
            text: said.text,
            part: 0,
            protocol,
            parameters: said.parameters,
            window,
            outcome: Outcome::Answer(said.answer),
            before: said.before,
            after: said.after,
            group: *seq,
            ready: window,
        })));
    }

    /// Until every answer has come.
    fn pass(&mut self) {
        self.now += ANSWER + (self.sequence.len() as u64 + 1) * APART;
    }
}

/// No session has the number 0.
fn id(session: u64) -> SessionId {
    SessionId(session + 1)
}
