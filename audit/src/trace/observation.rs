//! The nouns of a trace.
//!
//! In: nothing; the wire decoder makes these, the journal keeps them, the audit reads them.
//!
//! Always true:
//!   - `window.sent` was read before the first byte that could start the statement was written to
//!     the server, `window.done` after the last byte of its answer was read;
//!   - within a session `seq` grows by one from record to record;
//!   - a [`Record::Mark`] promises that every request sent before it which could commit something has
//!     been recorded already (or is inside a recorded [`Gap`]).

use super::rows::{self, Rows};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Nanoseconds on the proxy's one monotonic clock.
pub type Nanos = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// No session has this number. A gap that is its own tells that something was written that nobody saw, and says nothing
/// about what the sessions have set.
pub const NOBODY: SessionId = SessionId(0);

/// How long a server may go on with what it was asked after its client was lost.
pub const LIMBO_NS: Nanos = 60_000_000_000;

/// Two instants between which something happened. `done == Nanos::MAX` means: never learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    pub sent: Nanos,
    pub done: Nanos,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    SessionStart(SessionFacts),
    Statement(Box<Observation>),
    SessionEnd {
        session: SessionId,
        at: Nanos,
    },
    Gap(Gap),
    /// Every commit-capable request sent before this instant has been recorded.
    Mark {
        at: Nanos,
    },
    /// State read on the side connection; see [`Bootstrap`].
    Bootstrap(Box<Bootstrap>),
    /// Whether somebody can write past the proxy, as far as it could see.
    Writers {
        at: Nanos,
        exclusive: bool,
        seen: Vec<String>,
    },
    /// When the server says that a transaction committed. PostgreSQL takes this time before the commit becomes
    /// visible: a hint for a search, never a proof.
    CommitTimestamp {
        session: SessionId,
        /// Of the observation that committed.
        group: u64,
        /// When its ReadyForQuery was read.
        at: Nanos,
        xid: u64,
        /// The server's clock, microseconds since 1970.
        unix_micros: i64,
    },
    /// Tables that were read again on the side connection; see [`Reread`].
    Reread(Box<Reread>),
    /// The catalog, read again on the side connection; see [`CatalogRead`].
    Catalog(Box<CatalogRead>),
    /// The server closed the connection without a word, as it does when it crashes.
    ServerGone {
        session: SessionId,
        at: Nanos,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionFacts {
    pub session: SessionId,
    pub at: Nanos,
    pub user: String,
    pub database: String,
    pub server_version: String,
    /// Startup parameters and every ParameterStatus of the start (`TimeZone`, `DateStyle`,
    /// `default_transaction_isolation` from `options` …).
    pub parameters: Vec<(String, String)>,
}

/// One statement with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    pub session: SessionId,
    pub seq: u64,
    /// The whole text of the Query or of the prepared statement. Empty with an `Outcome::Error`: what failed
    /// was no statement but Describe, Close, or the commit of an implicit transaction at Sync.
    pub text: Arc<str>,
    /// A Query may hold several statements: this is the answer to number `part` (from 0) of `text`.
    pub part: u16,
    pub protocol: Protocol,
    /// Extended protocol only.
    pub parameters: Vec<Parameter>,
    pub window: Window,
    pub outcome: Outcome,
    /// Transaction status in the ReadyForQuery before the request and after it.
    pub before: Status,
    pub after: Status,
    /// The request group (one simple Query, or everything up to one Sync) this belongs to, counted
    /// per session. Outside an explicit block a group is one implicit transaction.
    pub group: u64,
    /// When the group's end (the Query itself, or Sync) was written, and when its ReadyForQuery was read:
    /// the commit of an implicit transaction, or of a COMMIT, lies in here. (Where a COMMIT, or a
    /// statement that commits by itself, was carried out in a pipeline before Sync was written, the
    /// window begins with that statement's.) `ready.sent == Nanos::MAX`: the connection was lost before
    /// the end of the group was written, so that an implicit transaction cannot have committed.
    pub ready: Window,
}

impl Observation {
    /// When the server was done with it, at the latest.
    pub fn over_by(&self) -> Nanos {
        match (&self.outcome, self.ready.done) {
            (Outcome::Lost, _) | (_, Nanos::MAX) => self.window.sent.saturating_add(LIMBO_NS),
            (_, done) => done,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    Simple,
    Extended,
    /// Fetches from a portal that an earlier observation opened (its rows continue that one).
    Continued,
    /// FunctionCall.
    Function,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The declared type, or 0.
    pub type_oid: u32,
    /// 0 text, 1 binary.
    pub format: i16,
    /// `None` is NULL.
    pub value: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    Idle,
    InBlock,
    Failed,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    Answer(Answer),
    Error(ServerError),
    /// The connection was lost before the answer: it may or may not have happened.
    Lost,
    /// Skipped by the server after an earlier error in the same pipeline.
    Skipped,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub columns: Arc<[Column]>,
    pub rows: Vec<Cells>,
    /// `SELECT 3`, `UPDATE 0`, …; empty for an empty query; `None` for a suspended portal.
    pub tag: Option<String>,
    /// Rows beyond the capture limit: how many rows there were in all and a digest of them.
    /// When set, `rows` is a prefix.
    pub cut: Option<Cut>,
    /// Data of COPY … TO STDOUT or COPY … FROM STDIN, as text lines or binary, concatenated. What a client
    /// sends may end with a line `\.`, which is not data.
    pub copy: Option<Bytes>,
}

impl Answer {
    /// Whether its tag says that there was not a single row.
    pub fn counts_none(&self) -> bool {
        self.tag.as_deref().is_some_and(|tag| tag.ends_with(" 0"))
    }
}

/// One row: `None` is NULL.
pub type Cells = Vec<Option<Bytes>>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    pub type_modifier: i32,
    /// 0 text, 1 binary.
    pub format: i16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    pub rows: u64,
    pub digest: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerError {
    pub sqlstate: String,
    pub message: String,
    pub detail: Option<String>,
    /// Constraint and table names, where the server sent them.
    pub constraint: Option<String>,
    pub table: Option<String>,
}

/// Something that was not seen. A session's transactions that touch `window` may have written anything, and what it
/// has set, prepared or begun since is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// `None`: every session.
    pub session: Option<SessionId>,
    pub window: Window,
    pub reason: String,
}

impl Gap {
    /// Why rows are not known of tables that somebody has described.
    pub const UNREAD: &str = "what the tables of audit.schema hold was not read";

    /// Whether the catalog may have changed in it, too.
    pub fn may_hide_ddl(&self) -> bool {
        self.reason != Gap::UNREAD
    }
}

/// Catalog and contents read at start in one REPEATABLE READ transaction whose snapshot point lies in
/// `window`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bootstrap {
    pub window: Window,
    pub server_version: String,
    /// `default_transaction_isolation`, `TimeZone`, `lc_collate` … as the server reports them, and first
    /// `database`: only sessions of that database see this state.
    pub settings: Vec<(String, String)>,
    /// The catalog, as rows of the queries that `pgassay_audit::state::catalog::QUERIES` names.
    pub catalog: Vec<CatalogPart>,
    pub tables: Vec<TableCopy>,
    /// Transactions that were open, by backend, when the snapshot was taken: unknown writers until ended.
    pub open_transactions: u32,
}

/// Tables of which the audit had lost track, read again in one REPEATABLE READ transaction whose snapshot point lies
/// in `window`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reread {
    /// When it takes its turn: late enough that everything before has been recorded.
    pub at: Nanos,
    pub window: Window,
    pub tables: Vec<(TableName, TableCopy)>,
}

/// The catalog, read again because it may not be what it was taken for, in one REPEATABLE READ transaction whose
/// snapshot point lies in `window`. It was the same when all of it had been read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CatalogRead {
    /// When it takes its turn: late enough that everything before has been recorded.
    pub at: Nanos,
    pub window: Window,
    /// As in [`Bootstrap`].
    pub settings: Vec<(String, String)>,
    /// As in [`Bootstrap`]; nothing but its version, if that is the one that the audit had asked about.
    pub catalog: Vec<CatalogPart>,
}

/// The name of a query of `pgassay_audit::state::catalog::QUERIES`, and its answer.
pub type CatalogPart = (String, Vec<Vec<Option<String>>>);

/// What a table is called, without quotes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    pub schema: String,
    pub name: String,
}

/// The contents of one table in the text format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableCopy {
    /// pg_class.oid.
    pub oid: u32,
    /// Attribute names in order.
    pub columns: Vec<String>,
    /// `None`: too large; the table is partial.
    #[serde(with = "rows::perhaps")]
    pub rows: Option<Rows>,
}

impl Record {
    /// Everything later stands on it: the start of a session, or the state that was read.
    pub fn is_beginning(&self) -> bool {
        matches!(self, Record::SessionStart(_) | Record::Bootstrap(_))
    }

    /// The session that it speaks of; `None`: all of them.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Record::SessionStart(facts) => Some(facts.session),
            Record::Statement(o) => Some(o.session),
            Record::SessionEnd { session, .. }
            | Record::ServerGone { session, .. }
            | Record::CommitTimestamp { session, .. } => Some(*session),
            Record::Gap(gap) => gap.session,
            Record::Mark { .. }
            | Record::Bootstrap(_)
            | Record::Writers { .. }
            | Record::Reread(_)
            | Record::Catalog(_) => None,
        }
    }
}

impl Window {
    pub fn new(sent: Nanos, done: Nanos) -> Window {
        Window { sent, done }
    }

    /// Whatever happened in `self` happened before whatever happened in `other`.
    pub fn is_before(self, other: Window) -> bool {
        self.done < other.sent
    }

    pub fn overlaps(self, other: Window) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }

    /// The smallest window that has both in it.
    pub fn hull(self, other: Window) -> Window {
        Window::new(self.sent.min(other.sent), self.done.max(other.done))
    }
}
