//! The running proxy in numbers, for Prometheus.
//!
//! In: [`Live`]. Out: OpenMetrics text, or Prometheus text for readers that do not ask for it.
//!
//! Always true:
//!   - every violation series of every rule at every PostgreSQL level (and at the claimed one) exists from
//!     the start, with 0: a counter that is born with 1 never fires an `increase()` alert;
//!   - labels come from closed sets: no SQL, no identifiers, no data;
//!   - base units: seconds and bytes.

mod audit;
mod coverage;
mod format;
mod process;
mod traffic;
mod verdict;

pub use format::{Format, OPENMETRICS, PLAIN};

use crate::clock;
use crate::live::Live;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Renders one scrape after the other. Remembers which reasons have a series, so that none vanishes.
#[derive(Debug, Default)]
pub struct Metrics {
    reasons: Mutex<BTreeSet<String>>,
}

impl Metrics {
    pub fn render(&self, live: &Live, format: Format) -> String {
        let registry = self.registry(live);
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        match format {
            Format::OpenMetrics => text,
            Format::Plain => format::plain(&text),
        }
    }

    fn registry(&self, live: &Live) -> Registry {
        let mut registry = Registry::default();
        verdict::verdicts(&mut registry, live);
        let mut known = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        coverage::coverage(&mut registry, live, &mut known);
        audit::audit(&mut registry, live);
        traffic::traffic(&mut registry, live);
        process::process(&mut registry, live);
        registry
    }
}

/// For how long the oldest record has been waiting for the audit; 0 when none waits.
pub fn lag_seconds(live: &Live) -> f64 {
    match live.audit_oldest.load(Relaxed) {
        0 => 0.0,
        oldest => clock::now().saturating_sub(oldest) as f64 / 1e9,
    }
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let metric = Counter::<u64>::default();
    metric.inc_by(value);
    registry.register(name, help, metric);
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: i64) {
    let metric = Gauge::<i64>::default();
    metric.set(value);
    registry.register(name, help, metric);
}

fn seconds(registry: &mut Registry, name: &str, help: &str, value: f64) {
    let metric = Gauge::<f64, AtomicU64>::default();
    metric.set(value);
    registry.register(name, help, metric);
}

#[cfg(test)]
mod tests {
    use super::coverage::REASONS_MAX;
    use super::*;
    use crate::config::Config;
    use pgassay_audit::report::sample;
    use pgassay_rules::CATALOGUE;

    fn scrape(live: &Live, format: Format) -> String {
        Metrics::default().render(live, format)
    }

    #[test]
    fn every_violation_series_exists_from_the_start() {
        let text = scrape(&Live::new(Config::default()), Format::Plain);
        let series: Vec<&str> = text
            .lines()
            .filter(|l| l.starts_with("pgassay_violations_total{"))
            .collect();
        assert_eq!(series.len(), CATALOGUE.len() * 3);
        assert!(series.iter().all(|line| line.ends_with(" 0")), "{series:?}");
        assert!(text.contains("# TYPE pgassay_violations_total counter"));
        assert!(!text.contains("# EOF"));
    }

    #[test]
    fn a_claimed_level_has_its_series_too() {
        let mut config = Config::default();
        config.audit.claim = Some("strict-s".to_owned());
        let text = scrape(&Live::new(config), Format::Plain);
        assert_eq!(
            text.matches("pgassay_violations_total{").count(),
            CATALOGUE.len() * 4
        );
    }

    #[test]
    fn a_violation_counts_with_its_repeats_and_leaves_its_id() {
        let live = Live::new(Config::default());
        live.audit().summary = sample::summary();
        let wanted = "pgassay_violations_total{rule=\"lost_update\",level=\"serializable\"} 3";
        let plain = scrape(&live, Format::Plain);
        assert!(plain.lines().any(|line| line == wanted), "{plain}");
        assert!(!plain.contains("v-5d1e0c94b7aa-1"));
        let open = scrape(&live, Format::OpenMetrics);
        assert!(
            open.contains(&format!("{wanted} # {{violation_id=\"v-5d1e0c94b7aa-1\"}}")),
            "{open}"
        );
        assert!(open.ends_with("# EOF\n"));
    }

    #[test]
    fn reasons_are_bounded_and_never_vanish() {
        let live = Live::new(Config::default());
        let metrics = Metrics::default();
        let count = |text: &str| text.matches("pgassay_coverage_reasons_total{").count();
        live.audit()
            .summary
            .coverage
            .reasons
            .insert("function: secret_name".to_owned(), 2);
        let text = metrics.render(&live, Format::Plain);
        assert!(
            text.contains("{reason=\"function\"} 2") && !text.contains("secret_name"),
            "{text}"
        );
        for n in 0..200u8 {
            let name = format!("{}{}", (b'a' + n % 26) as char, (b'a' + n / 26) as char);
            live.audit().summary.coverage.reasons.insert(name, 1);
        }
        let text = metrics.render(&live, Format::Plain);
        assert!(count(&text) <= REASONS_MAX + 1, "{}", count(&text));
        assert!(text.contains("{reason=\"function\"} 2"));
    }

    #[test]
    fn histograms_speak_seconds() {
        let live = Live::new(Config::default());
        live.added_latency.lock().unwrap().record_n(30_000, 5).unwrap();
        let text = scrape(&live, Format::Plain);
        assert!(
            text.contains("pgassay_added_latency_seconds_bucket{le=\"0.000025\"} 0"),
            "{text}"
        );
        assert!(
            text.contains("pgassay_added_latency_seconds_bucket{le=\"0.00005\"} 5"),
            "{text}"
        );
        assert!(text.contains("pgassay_added_latency_seconds_count 5"), "{text}");
    }

    #[test]
    fn readers_get_what_they_ask_for() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::negotiate(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::negotiate(Some("*/*")), Format::Plain);
        assert_eq!(Format::negotiate(None), Format::Plain);
    }

    #[test]
    fn the_process_is_measured() {
        let text = scrape(&Live::new(Config::default()), Format::Plain);
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
        assert!(text.contains("process_cpu_seconds_total"), "{text}");
    }
}
