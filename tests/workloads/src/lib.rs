//! Traffic as applications send it: the workloads of the papers, on tokio-postgres.
//!
//! In: the address of a server (or of the proxy before it), a workload by name, its knobs, a seed.
//! Out: transactions on that server, a summary, and the workload's own consistency checks afterwards.
//!
//! Always true:
//!   - the transactions of a client follow from seed and client number alone, whatever the answers' timing;
//!   - a transaction that the server refuses with 40001 or 40P01 is tried again with the same content;
//!   - statements stay within ordinary SQL: what applications write, not what tests invent.

pub mod value;
pub mod session;
pub mod knobs;
pub mod summary;
pub mod run;
pub mod check;
pub mod zipf;
pub mod text;
pub mod bank;
pub mod smallbank;
pub mod register;
pub mod list_append;
pub mod blindw;
pub mod counters;
pub mod ycsb;
pub mod twitter;
pub mod tpcc;
pub mod rubis;
pub mod tatp;
pub mod seats;

use fastrand::Rng;
use std::future::Future;
use std::pin::Pin;

pub use check::{Check, Failed, check};
pub use knobs::Knobs;
pub use run::{Length, Options, Progress, in_the_way, run, setup};
pub use session::{Answer, Mode, Session};
pub use summary::Summary;
pub use value::{Cell, Param};

pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, tokio_postgres::Error>> + Send + 'a>>;

/// Whose turn it is: what a transaction is made from, the same at every attempt.
#[derive(Clone, Debug)]
pub struct Turn {
    pub client: usize,
    /// The number of this transaction in its client, from 0.
    pub serial: u64,
    pub rng: Rng,
}

impl Turn {
    /// A number that no other transaction of the run uses; `nth` counts within the transaction, below 64.
    pub fn unique(&self, nth: u64) -> i64 {
        (((self.client as u64 + 1) << 42) | (self.serial << 6) | nth) as i64
    }

    /// True with this probability.
    pub fn chance(&mut self, share: f64) -> bool {
        self.rng.f64() < share
    }
}

/// How a transaction ended, when the server did not refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Committed,
    /// The application took it back, as TPC-C does with one order in a hundred.
    RolledBack,
}

/// A schema with data, a stream of transactions over it, and what must hold afterwards.
pub trait Workload: Send + Sync {
    fn name(&self) -> &'static str;

    /// The tables that `setup` replaces.
    fn tables(&self) -> &'static [&'static str];

    /// Creates schema and data, replacing what an earlier run left.
    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()>;

    /// Runs one transaction: begins and ends it too.
    fn transact<'a>(&'a self, session: &'a mut Session, turn: Turn) -> Doing<'a, Ended>;

    /// Whether the workload has stored procedures.
    fn has_procedures(&self) -> bool {
        false
    }

    /// What must hold when no transaction is running.
    fn checks(&self) -> Vec<Check>;
}

type Maker = fn(&Knobs) -> Box<dyn Workload>;

/// Every workload with one line about it.
pub const CATALOGUE: &[(&str, &str, Maker)] = &[
    (
        "bank",
        "deposits, withdrawals, transfers, overdrafts and balance checks",
        bank::make,
    ),
    (
        "smallbank",
        "checking and savings accounts; write skew below SERIALIZABLE",
        smallbank::make,
    ),
    (
        "register",
        "reads, writes and compare-and-set of single values",
        register::make,
    ),
    (
        "list-append",
        "appends to lists and reads of whole lists",
        list_append::make,
    ),
    (
        "blindw",
        "read-only and write-only transactions over keys",
        blindw::make,
    ),
    (
        "counters",
        "increments of few rows, each by itself",
        counters::make,
    ),
    ("ycsb", "reads, updates, inserts, scans; zipfian keys", ycsb::make),
    ("twitter", "new tweets, follows and timelines", twitter::make),
    (
        "tpcc",
        "a wholesale supplier: the five transactions of TPC-C",
        tpcc::make,
    ),
    (
        "rubis",
        "an auction site: users, items, purchases, comments",
        rubis::make,
    ),
    ("tatp", "a mobile carrier's subscriber register", tatp::make),
    ("seats", "flights, customers and reservations", seats::make),
];

/// Makes a workload; an unknown name or knob is an error that names the known ones.
pub fn by_name(name: &str, knobs: &Knobs) -> anyhow::Result<Box<dyn Workload>> {
    let Some((_, _, make)) = CATALOGUE.iter().find(|(known, _, _)| *known == name) else {
        let known: Vec<&str> = CATALOGUE.iter().map(|(known, _, _)| *known).collect();
        anyhow::bail!(
            "there is no workload «{name}»; known workloads: {}",
            known.join(", ")
        );
    };
    let workload = make(knobs);
    knobs.finish(name)?;
    Ok(workload)
}
