//! The last quarter of an hour, once a second: what the plots of the page show.

use crate::clock;
use crate::live::Live;
use crate::metrics::lag_seconds;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SAMPLES_MAX: usize = 900;
const EVERY: Duration = Duration::from_secs(1);

/// One second of the proxy's life. Counters are what they grew by since the sample before.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    pub number: u64,
    pub at: u64,
    /// How long this sample took to come, in seconds.
    pub seconds: f64,
    pub statements: u64,
    pub transactions: u64,
    pub bytes: u64,
    pub violations: u64,
    pub checked: u64,
    pub partial: u64,
    pub unchecked: u64,
    pub added_p50_seconds: f64,
    pub added_p99_seconds: f64,
    pub statement_p99_seconds: f64,
    pub lag_seconds: f64,
    pub queue: u64,
    pub connections: i64,
}

#[derive(Debug, Default)]
pub struct History {
    samples: Mutex<VecDeque<Sample>>,
}

impl History {
    pub fn after(&self, number: u64) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples
            .iter()
            .filter(|sample| sample.number > number)
            .cloned()
            .collect()
    }

    fn push(&self, sample: Sample) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }
}

/// Takes samples for as long as the proxy lives.
pub async fn sample(live: Arc<Live>, history: Arc<History>) {
    let mut before = Totals::of(&live);
    let mut number = 0;
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tick.tick().await;
    loop {
        tick.tick().await;
        number += 1;
        let now = Totals::of(&live);
        history.push(now.since(&before, &live, number));
        before = now;
    }
}

/// The counters at one instant.
struct Totals {
    at: u64,
    statements: u64,
    transactions: u64,
    bytes: u64,
    violations: u64,
    coverage: [u64; 3],
    added: Histogram<u64>,
    statement: Histogram<u64>,
}

impl Totals {
    fn of(live: &Live) -> Totals {
        let (violations, coverage, statements, transactions) = {
            let audit = live.audit();
            let coverage = &audit.summary.coverage;
            (
                audit.summary.violations.iter().map(|v| 1 + v.repeats).sum(),
                [coverage.checked, coverage.partial, coverage.unchecked],
                audit.summary.statements,
                audit.summary.transactions,
            )
        };
        Totals {
            at: clock::now(),
            statements: live.statements.load(Relaxed).max(statements),
            transactions: live.transactions.load(Relaxed).max(transactions),
            bytes: live.bytes_to_server.load(Relaxed) + live.bytes_to_client.load(Relaxed),
            violations,
            coverage,
            added: live
                .added_latency
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            statement: live
                .statement_latency
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    fn since(&self, before: &Totals, live: &Live, number: u64) -> Sample {
        let grown = |now: u64, then: u64| now.saturating_sub(then);
        let added = newer(&self.added, &before.added);
        let statement = newer(&self.statement, &before.statement);
        Sample {
            number,
            at: self.at,
            seconds: grown(self.at, before.at) as f64 / 1e9,
            statements: grown(self.statements, before.statements),
            transactions: grown(self.transactions, before.transactions),
            bytes: grown(self.bytes, before.bytes),
            violations: grown(self.violations, before.violations),
            checked: grown(self.coverage[0], before.coverage[0]),
            partial: grown(self.coverage[1], before.coverage[1]),
            unchecked: grown(self.coverage[2], before.coverage[2]),
            added_p50_seconds: added.value_at_quantile(0.5) as f64 / 1e9,
            added_p99_seconds: added.value_at_quantile(0.99) as f64 / 1e9,
            statement_p99_seconds: statement.value_at_quantile(0.99) as f64 / 1e9,
            lag_seconds: lag_seconds(live),
            queue: live.audit_queue_records.load(Relaxed),
            connections: live.connections_open.load(Relaxed),
        }
    }
}

/// What was recorded since; everything, when the older one does not fit (it was cleared meanwhile).
fn newer(now: &Histogram<u64>, before: &Histogram<u64>) -> Histogram<u64> {
    let mut difference = now.clone();
    match difference.subtract(before) {
        Ok(()) => difference,
        Err(_) => now.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_sample_tells_what_grew() {
        let live = Live::new(Config::default());
        live.added_latency
            .lock()
            .unwrap()
            .record_n(1_000_000, 100)
            .unwrap();
        let before = Totals::of(&live);
        live.statements.fetch_add(7, Relaxed);
        live.added_latency.lock().unwrap().record_n(20_000, 10).unwrap();
        let sample = Totals::of(&live).since(&before, &live, 3);
        assert_eq!((sample.number, sample.statements), (3, 7));
        assert!(
            (1.9e-5..2.2e-5).contains(&sample.added_p99_seconds),
            "{}",
            sample.added_p99_seconds
        );
    }

    #[test]
    fn history_is_bounded() {
        let history = History::default();
        (1..=2_000).for_each(|number| {
            history.push(Sample {
                number,
                ..Sample::default()
            })
        });
        assert_eq!(history.after(0).len(), SAMPLES_MAX);
        assert_eq!(history.after(1_990).len(), 10);
    }
}
