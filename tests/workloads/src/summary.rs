//! What a run did: transactions, refusals by SQLSTATE, latency.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Summary {
    pub committed: u64,
    /// Taken back by the application itself.
    pub rolled_back: u64,
    /// Attempts that the server refused, by SQLSTATE; `connection` when the session was lost.
    pub aborts: BTreeMap<String, u64>,
    /// Transactions given up after too many refusals.
    pub given_up: u64,
    pub elapsed: Duration,
    /// Microseconds from the first attempt of a transaction to its end.
    latency: Histogram<u64>,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            committed: 0,
            rolled_back: 0,
            aborts: BTreeMap::new(),
            given_up: 0,
            elapsed: Duration::ZERO,
            latency: Histogram::new(3).expect("three significant digits are allowed"),
        }
    }
}

impl Summary {
    pub fn record_latency(&mut self, latency: Duration) {
        // The histogram grows as needed.
        let _ = self.latency.record(latency.as_micros().max(1) as u64);
    }

    pub fn record_abort(&mut self, sqlstate: &str) {
        *self.aborts.entry(sqlstate.to_owned()).or_default() += 1;
    }

    pub fn add(&mut self, other: &Summary) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.given_up += other.given_up;
        for (sqlstate, count) in &other.aborts {
            *self.aborts.entry(sqlstate.clone()).or_default() += count;
        }
        self.latency
            .add(&other.latency)
            .expect("both histograms resize themselves");
    }

    /// Transactions that came to an end, committed or taken back.
    pub fn transactions(&self) -> u64 {
        self.committed + self.rolled_back
    }

    pub fn per_second(&self) -> f64 {
        self.transactions() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Milliseconds below which this percentage of the transactions stayed.
    pub fn latency_ms(&self, percentile: f64) -> f64 {
        self.latency.value_at_percentile(percentile) as f64 / 1_000.0
    }

    /// Label and value of every line that a person wants to read.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("transactions committed".to_owned(), self.committed.to_string()),
            (
                "rolled back by the application".to_owned(),
                self.rolled_back.to_string(),
            ),
            ("per second".to_owned(), format!("{:.1}", self.per_second())),
        ];
        for (sqlstate, count) in &self.aborts {
            lines.push((format!("refused with {}", meaning(sqlstate)), count.to_string()));
        }
        if self.given_up > 0 {
            lines.push((
                "given up after too many refusals".to_owned(),
                self.given_up.to_string(),
            ));
        }
        for percentile in [50.0, 95.0, 99.0, 100.0] {
            let label = if percentile == 100.0 {
                "latency max".to_owned()
            } else {
                format!("latency p{percentile:.0}")
            };
            lines.push((label, format!("{:.2} ms", self.latency_ms(percentile))));
        }
        lines
    }

    pub fn report(&self) -> Report {
        Report {
            committed: self.committed,
            rolled_back: self.rolled_back,
            aborts: self.aborts.clone(),
            given_up: self.given_up,
            elapsed_s: self.elapsed.as_secs_f64(),
            per_second: self.per_second(),
            latency_p50_ms: self.latency_ms(50.0),
            latency_p95_ms: self.latency_ms(95.0),
            latency_p99_ms: self.latency_ms(99.0),
            latency_max_ms: self.latency_ms(100.0),
        }
    }
}

/// The summary for machines.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub committed: u64,
    pub rolled_back: u64,
    pub aborts: BTreeMap<String, u64>,
    pub given_up: u64,
    pub elapsed_s: f64,
    pub per_second: f64,
    pub latency_p50_ms: f64,
    pub latency_p95_ms: f64,
    pub latency_p99_ms: f64,
    pub latency_max_ms: f64,
}

fn meaning(sqlstate: &str) -> String {
    match sqlstate {
        "40001" => "40001 (serialization failure)".to_owned(),
        "40P01" => "40P01 (deadlock)".to_owned(),
        "23505" => "23505 (unique violation)".to_owned(),
        "23514" => "23514 (check violation)".to_owned(),
        other => other.to_owned(),
    }
}
