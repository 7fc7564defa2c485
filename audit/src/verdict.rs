//! What the audit concludes, as data. Sentences are rendered from it elsewhere.

use crate::trace::{Nanos, SessionId, Window};
use pgassay_rules::Level;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A transaction, named by its session and its number within that session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxnId {
    pub session: SessionId,
    pub number: u64,
}

/// What can be said about one statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coverage {
    Checked,
    /// Some of the answer was unknown; the reason names the construct.
    Partial(String),
    Unchecked(String),
}

/// No correct database could have answered like this. Everything a person needs to see why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// `v-` and the first 12 hex digits of the fingerprint, then an ordinal among equals.
    pub id: String,
    /// Stable across runs of the same defect: rule, level, statement shapes.
    pub fingerprint: String,
    /// A name of the catalogue in `pgassay-rules`.
    pub rule: String,
    pub level: Level,
    /// When the offending answer arrived, on the proxy's clock.
    pub at: Nanos,
    /// The two to five transactions that prove it, in order of their first statement.
    pub transactions: Vec<StoryTransaction>,
    /// Index pairs (transaction, statement) of the statements whose answers are wrong.
    pub culprits: Vec<(usize, usize)>,
    /// What was answered, in words.
    pub observed: String,
    /// Which answers would have been right.
    pub expected: Vec<String>,
    /// Dependencies drawn on the time line.
    pub edges: Vec<Edge>,
    /// The rows the story starts from, `table: column = value, …`, as text.
    pub initial: Vec<String>,
    /// The same start as SQL, for scripts that replay the story.
    #[serde(default)]
    pub ground: Ground,
    /// The story in prose, plain text, several lines.
    pub story: String,
    /// How many times the same fingerprint was seen after this one.
    pub repeats: u64,
}

/// What brings the start of a story about on an empty database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ground {
    /// Statements, in order.
    pub create: Vec<String>,
    /// Statements that take it away again, in order.
    pub drop: Vec<String>,
    /// For each transaction of the story: what its session has to set first.
    pub settings: Vec<Vec<String>>,
    /// What is missing, or made up.
    pub remarks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoryTransaction {
    /// `t1`, `t2` … as the prose calls it.
    pub name: String,
    pub id: TxnId,
    pub level: Level,
    pub committed: Option<bool>,
    pub commit: Option<Window>,
    pub statements: Vec<StoryStatement>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoryStatement {
    pub sql: String,
    pub parameters: Vec<String>,
    pub window: Window,
    /// The answer as text: rows, tag or error.
    pub answer: String,
}

/// `from` must come before `to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Index into `transactions`.
    pub from: usize,
    pub to: usize,
    /// `ww`, `wr`, `rw`, `real-time`, `session`.
    pub kind: String,
    /// A sentence: why.
    pub why: String,
    /// The statement of the reader that says so, if one does: an index into its statements.
    #[serde(default)]
    pub read: Option<usize>,
}

/// Totals of a run: what `pgassay check --json` prints and `/api/summary` serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub transactions: u64,
    pub statements: u64,
    pub violations: Vec<Violation>,
    pub coverage: CoverageSummary,
    /// `settled`, `candidates`, `solver`: statements decided by each tier.
    pub tiers: BTreeMap<String, u64>,
    pub gaps: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoverageSummary {
    pub checked: u64,
    pub partial: u64,
    pub unchecked: u64,
    /// Why not checked, or only partly, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Statements checked, whole or in part, by the level that their transaction ran at.
    #[serde(default)]
    pub levels: BTreeMap<Level, u64>,
    /// By statement shape: the same three counts, and the most frequent reason.
    pub shapes: Vec<ShapeCoverage>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapeCoverage {
    pub shape: String,
    pub checked: u64,
    pub partial: u64,
    pub unchecked: u64,
    pub reason: Option<String>,
}
