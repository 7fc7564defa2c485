//! A long history without a server: a bank's transfers with the answers that a correct database gives.
//!
//! In: how many transactions. Out: records, one after the other, as the recorder would hand them over; nothing is
//! kept, so that a history of any length costs no memory of its own.
//!
//! Eight sessions run their transactions at the same time on accounts of their own; the next eight begin when these
//! have ended. Every transaction reads a balance and writes it back, so that its answer depends on all before it.

use bytes::Bytes;
use pgassay_audit::trace::{
    Answer, Column, Observation, Outcome, Parameter, Protocol, Record, SessionFacts, SessionId, Status,
    Window,
};
use std::collections::VecDeque;
use std::sync::Arc;

const SESSIONS: u64 = 8;
const ACCOUNTS: u64 = 1_000;
const INT4: u32 = 23;
const INT8: u32 = 20;

pub struct History {
    left: u64,
    round: u64,
    now: u64,
    balances: Vec<i64>,
    sequence: Vec<u64>,
    ready: VecDeque<Record>,
    balance: Arc<[Column]>,
    texts: [Arc<str>; 4],
}

impl History {
    pub fn new(transactions: u64) -> History {
        let mut history = History {
            left: transactions,
            round: 0,
            now: 1_000,
            balances: vec![100; ACCOUNTS as usize],
            sequence: vec![0; SESSIONS as usize + 1],
            ready: VecDeque::new(),
            balance: Arc::from([Column {
                name: "balance".to_owned(),
                type_oid: INT8,
                type_modifier: -1,
                format: 0,
            }]),
            texts: [
                "BEGIN ISOLATION LEVEL REPEATABLE READ".into(),
                "SELECT balance FROM accounts WHERE id = $1".into(),
                "UPDATE accounts SET balance = balance + $1 WHERE id = $2".into(),
                "COMMIT".into(),
            ],
        };
        history.begin();
        history
    }

    /// Sessions, table and rows.
    fn begin(&mut self) {
        for session in 0..=SESSIONS {
            self.now += 1_000;
            self.ready.push_back(Record::SessionStart(SessionFacts {
                session: SessionId(session),
                at: self.now,
                user: "postgres".to_owned(),
                database: "postgres".to_owned(),
                server_version: "15.0".to_owned(),
                parameters: Vec::new(),
            }));
        }
        let create = "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)";
        self.say(
            SESSIONS,
            create.into(),
            Vec::new(),
            tag("CREATE TABLE"),
            Status::Idle,
            Status::Idle,
        );
        let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, 100)")).collect();
        let insert = format!("INSERT INTO accounts VALUES {}", rows.join(", "));
        let inserted = tag(&format!("INSERT 0 {ACCOUNTS}"));
        self.say(
            SESSIONS,
            insert.into(),
            Vec::new(),
            inserted,
            Status::Idle,
            Status::Idle,
        );
        self.mark();
    }

    /// One transaction of every session, statement by statement.
    fn round(&mut self) {
        let sessions = SESSIONS.min(self.left);
        self.left -= sessions;
        let first = self.round * 7 % (ACCOUNTS / SESSIONS) * SESSIONS;
        self.round += 1;
        let [begin, select, update, commit] = self.texts.clone();
        let (idle, block) = (Status::Idle, Status::InBlock);
        for session in 0..sessions {
            self.say(session, begin.clone(), Vec::new(), tag("BEGIN"), idle, block);
        }
        for session in 0..sessions {
            let account = first + session;
            let held = self.balances[account as usize].to_string();
            let answer = Outcome::Answer(Answer {
                columns: self.balance.clone(),
                rows: vec![vec![Some(Bytes::from(held))]],
                tag: Some("SELECT 1".to_owned()),
                ..Answer::default()
            });
            self.say(
                session,
                select.clone(),
                vec![parameter(INT4, account as i64)],
                answer,
                block,
                block,
            );
        }
        for session in 0..sessions {
            let account = first + session;
            let amount = (self.round % 19) as i64 - 9;
            self.balances[account as usize] += amount;
            let parameters = vec![parameter(INT8, amount), parameter(INT4, account as i64)];
            self.say(session, update.clone(), parameters, tag("UPDATE 1"), block, block);
        }
        for session in 0..sessions {
            self.say(session, commit.clone(), Vec::new(), tag("COMMIT"), block, idle);
        }
        self.mark();
    }

    fn say(
        &mut self,
        session: u64,
        text: Arc<str>,
        parameters: Vec<Parameter>,
        outcome: Outcome,
        before: Status,
        after: Status,
    ) {
        self.now += 1_000;
        let window = Window::new(self.now, self.now + 10_000);
        let seq = &mut self.sequence[session as usize];
        *seq += 1;
        let protocol = match parameters.is_empty() {
            true => Protocol::Simple,
            false => Protocol::Extended,
        };
        self.ready.push_back(Record::Statement(Box::new(Observation {
            session: SessionId(session),
            seq: *seq,
            text,
            part: 0,
            protocol,
            parameters,
            window,
            outcome,
            before,
            after,
            group: *seq,
            ready: window,
        })));
        if session == SESSIONS {
            self.now += 20_000;
        }
    }

    /// Everybody has ended.
    fn mark(&mut self) {
        self.now += 20_000;
        self.ready.push_back(Record::Mark { at: self.now });
    }
}

impl Iterator for History {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.ready.is_empty() && self.left > 0 {
            self.round();
        }
        self.ready.pop_front()
    }
}

fn parameter(type_oid: u32, value: i64) -> Parameter {
    Parameter {
        type_oid,
        format: 0,
        value: Some(Bytes::from(value.to_string())),
    }
}

fn tag(tag: &str) -> Outcome {
    Outcome::Answer(Answer {
        tag: Some(tag.to_owned()),
        ..Answer::default()
    })
}
