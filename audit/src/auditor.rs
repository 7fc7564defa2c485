//! The door: records in, findings and totals out.

use crate::trace::Record;
use crate::verdict::{Summary, Violation};
use pgassay_rules::Level;

/// What the audit is told before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The database profile: `postgres`, `postgres-standby`, …
    pub profile: String,
    /// Judge every transaction at this level instead of the one on the wire.
    pub claim: Option<Level>,
    pub workers: usize,
    /// Milliseconds that the solver may spend on one cluster.
    pub solve_ms_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { profile: "postgres".to_owned(), claim: None, workers: 1, solve_ms_max: 2_000 }
    }
}

/// Gauges of the audit's inside, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Records taken, and records whose verdict is known.
    pub taken: u64,
    pub judged: u64,
    /// Latest instant on the proxy's clock that is fully judged.
    pub judged_until: u64,
    pub versions_alive: u64,
    pub versions_collected: u64,
    pub transactions_open: u64,
    pub solver_ns: u64,
}

/// Takes records in the order of the trace and tells what it found.
pub struct Auditor {
    summary: Summary,
    stats: Stats,
}

impl Auditor {
    pub fn new(_settings: Settings) -> Auditor {
        Auditor { summary: Summary::default(), stats: Stats::default() }
    }

    /// Takes one record as far as it can be taken now; returns what was found wrong.
    pub fn take(&mut self, record: Record) -> Vec<Violation> {
        self.stats.taken += 1;
        if let Record::Statement(_) = record {
            self.summary.statements += 1;
            self.summary.coverage.unchecked += 1;
        }
        Vec::new()
    }

    /// No more records will come: decides everything that is still open.
    pub fn finish(&mut self) -> Vec<Violation> {
        Vec::new()
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }
}
