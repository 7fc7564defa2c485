//! Long histories without a server: what eight clients say, with the answers that a correct database gives.
//!
//! In: which history, how many transactions. Out: records, round by round, as the recorder would hand them over; what
//! was handed over is not kept, so that a history of any length costs no more memory than the database's own rows that
//! are still asked for.
//!
//! Always true: the eight sessions of a round run their transactions at the same time, on rows of their own; the next
//! round begins when all of them have ended. So everything is ordered by its windows, and one right answer exists.

mod tape;
mod bank;
mod tpcc;

use pgassay_audit::trace::Record;
use tape::{Said, Tape};

/// Sessions that run transactions; one more creates and loads the tables.
pub const SESSIONS: u64 = 8;

/// A correct database, as far as its clients can tell.
trait Database {
    /// Schema and first rows, one statement after the other.
    fn load(&mut self) -> Vec<Said>;

    /// The whole of one transaction. Sessions of one round must not touch what another of them writes.
    fn transact(&mut self, session: u64, round: u64) -> Vec<Said>;
}

/// The names of all histories.
pub const NAMES: [&str; 2] = ["bank", "tpcc"];

pub struct History {
    database: Box<dyn Database>,
    tape: Tape,
    left: u64,
    round: u64,
}

impl History {
    /// `None`: there is no history of this name.
    pub fn new(name: &str, transactions: u64) -> Option<History> {
        let database: Box<dyn Database> = match name {
            "bank" => Box::new(bank::Bank::new()),
            "tpcc" => Box::new(tpcc::Tpcc::new()),
            _ => return None,
        };
        Some(History {
            database,
            tape: Tape::new(SESSIONS + 1),
            left: transactions,
            round: 0,
        })
    }

    /// Sessions, tables and rows: comes first.
    pub fn load(&mut self) -> Vec<Record> {
        self.tape.open();
        for said in self.database.load() {
            self.tape.alone(SESSIONS, said);
        }
        self.tape.take()
    }

    /// One transaction of every session; nothing when the history is over.
    pub fn round(&mut self) -> Vec<Record> {
        let sessions = SESSIONS.min(self.left);
        if sessions == 0 {
            return Vec::new();
        }
        self.left -= sessions;
        let transactions = (0..sessions)
            .map(|session| self.database.transact(session, self.round))
            .collect();
        self.round += 1;
        self.tape.together(transactions);
        self.tape.take()
    }
}
