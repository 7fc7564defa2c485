//! The running proxy in numbers, for Prometheus.
//!
//! In: [`Live`]. Out: OpenMetrics text, or Prometheus text for readers that do not ask for it.
//!
//! Always true:
//!   - every violation series of every rule at every PostgreSQL level (and at the claimed one) exists from
//!     the start, with 0: a counter that is born with 1 never fires an `increase()` alert;
//!   - labels come from closed sets: no SQL, no identifiers, no data;
//!   - base units: seconds and bytes.

use crate::clock;
use crate::live::Live;
use hdrhistogram::Histogram;
use pgassay_audit::verdict::Violation;
use pgassay_rules::{CATALOGUE, Level};
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reasons that get a series of their own; whatever comes later is «other».
const REASONS_MAX: usize = 40;

/// Upper bounds of the buckets, in seconds: 5 µs to 10 s.
const BUCKETS: [f64; 20] = [
    5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    Plain,
}

impl Format {
    /// What the `Accept` header asks for.
    pub fn negotiate(accept: Option<&str>) -> Format {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
            _ => Format::Plain,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => OPENMETRICS,
            Format::Plain => PLAIN,
        }
    }
}

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
            Format::Plain => plain(&text),
        }
    }

    fn registry(&self, live: &Live) -> Registry {
        let mut registry = Registry::default();
        verdicts(&mut registry, live);
        self.coverage(&mut registry, live);
        audit(&mut registry, live);
        traffic(&mut registry, live);
        process(&mut registry, live);
        registry
    }

    fn coverage(&self, registry: &mut Registry, live: &Live) {
        let coverage = live.audit().summary.coverage.clone();
        let by_coverage = Family::<CoverageLabel, Counter>::default();
        for (name, count) in [
            ("checked", coverage.checked),
            ("partial", coverage.partial),
            ("unchecked", coverage.unchecked),
        ] {
            by_coverage
                .get_or_create(&CoverageLabel { coverage: name })
                .inc_by(count);
        }
        registry.register(
            "pgassay_coverage_statements",
            "Statements judged, by how much of their answer could be checked",
            by_coverage,
        );
        let by_reason = Family::<ReasonLabel, Counter>::default();
        let _ = by_reason.get_or_create(&ReasonLabel {
            reason: "other".to_owned(),
        });
        let mut known = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        for (reason, count) in &coverage.reasons {
            let class = reason_class(reason);
            if known.len() < REASONS_MAX {
                known.insert(class.clone());
            }
            let reason = if known.contains(&class) {
                class
            } else {
                "other".to_owned()
            };
            by_reason.get_or_create(&ReasonLabel { reason }).inc_by(*count);
        }
        registry.register(
            "pgassay_coverage_reasons",
            "Why statements were checked only in part or not at all",
            by_reason,
        );
    }
}

fn verdicts(registry: &mut Registry, live: &Live) {
    let (violations, claim) = (live.violations(), live.config.load().audit.claim.clone());
    let family = Family::<ViolationLabels, CounterWithExemplar<ExemplarLabels>>::default();
    for level in exported_levels(claim.as_deref(), &violations) {
        for rule in CATALOGUE {
            let _ = family.get_or_create(&ViolationLabels {
                rule: rule.name,
                level: level.name(),
            });
        }
    }
    for violation in &violations {
        let Some(rule) = pgassay_rules::anomaly::by_name(&violation.rule) else {
            continue;
        };
        let labels = ViolationLabels {
            rule: rule.name,
            level: violation.level.name(),
        };
        let exemplar = ExemplarLabels {
            violation_id: violation.id.clone(),
        };
        let at = UNIX_EPOCH + Duration::from_nanos(violation.at);
        family
            .get_or_create(&labels)
            .inc_by(1 + violation.repeats, Some(exemplar), Some(at));
    }
    registry.register(
        "pgassay_violations",
        "Confirmed violations: answers that no correct database could have given",
        family,
    );
}

/// The three levels of PostgreSQL, the claimed one, and whatever a violation names.
fn exported_levels(claim: Option<&str>, violations: &[Violation]) -> BTreeSet<Level> {
    let mut levels = BTreeSet::from([Level::ReadCommitted, Level::RepeatableRead, Level::Serializable]);
    levels.extend(claim.and_then(|claim| claim.parse::<Level>().ok()));
    levels.extend(violations.iter().map(|violation| violation.level));
    levels
}

fn audit(registry: &mut Registry, live: &Live) {
    let snapshot = live.audit().clone();
    let (stats, summary) = (snapshot.stats, snapshot.summary);
    counter(
        registry,
        "pgassay_transactions",
        "Transactions witnessed",
        summary.transactions.max(live.transactions.load(Relaxed)),
    );
    counter(
        registry,
        "pgassay_gaps",
        "Holes in the recording",
        live.gaps.load(Relaxed),
    );
    counter(
        registry,
        "pgassay_shed_records",
        "Records dropped before the audit because its queue was full",
        live.shed_records.load(Relaxed),
    );
    counter(
        registry,
        "pgassay_audit_taken_records",
        "Records that the audit has taken",
        stats.taken,
    );
    counter(
        registry,
        "pgassay_audit_judged_records",
        "Records whose verdict is known",
        stats.judged,
    );
    counter(
        registry,
        "pgassay_audit_panics",
        "Crashes of the audit, after which it went on",
        live.audit_panics.load(Relaxed),
    );
    seconds(
        registry,
        "pgassay_audit_lag_seconds",
        "Age of the oldest record not yet judged",
        lag_seconds(live),
    );
    gauge(
        registry,
        "pgassay_audit_queue_records",
        "Records waiting for the audit",
        live.audit_queue_records.load(Relaxed) as i64,
    );
    let tiers = Family::<TierLabel, Counter>::default();
    for tier in ["settled", "candidates", "solver"] {
        tiers
            .get_or_create(&TierLabel { tier })
            .inc_by(summary.tiers.get(tier).copied().unwrap_or(0));
    }
    registry.register(
        "pgassay_audit_tier_statements",
        "Statements decided, by tier",
        tiers,
    );
    let solver = Counter::<f64, AtomicU64>::default();
    solver.inc_by(stats.solver_ns as f64 / 1e9);
    registry.register(
        "pgassay_solver_seconds",
        "Seconds spent inside the solver",
        solver,
    );
    gauge(
        registry,
        "pgassay_versions_alive",
        "Row versions held in memory",
        stats.versions_alive as i64,
    );
    counter(
        registry,
        "pgassay_versions_collected",
        "Row versions that were let go",
        stats.versions_collected,
    );
    gauge(
        registry,
        "pgassay_audit_transactions_open",
        "Transactions that the audit holds open",
        stats.transactions_open as i64,
    );
}

fn traffic(registry: &mut Registry, live: &Live) {
    let count = |atomic: &AtomicU64| atomic.load(Relaxed);
    counter(
        registry,
        "pgassay_statements",
        "Statements witnessed",
        count(&live.statements).max(live.audit().summary.statements),
    );
    gauge(
        registry,
        "pgassay_connections_open",
        "Client connections open now",
        live.connections_open.load(Relaxed),
    );
    counter(
        registry,
        "pgassay_connections",
        "Client connections accepted",
        count(&live.connections_total),
    );
    counter(
        registry,
        "pgassay_connections_refused",
        "Client connections refused",
        count(&live.connections_refused),
    );
    let bytes = Family::<DirectionLabel, Counter>::default();
    bytes
        .get_or_create(&DirectionLabel {
            direction: "to_server",
        })
        .inc_by(count(&live.bytes_to_server));
    bytes
        .get_or_create(&DirectionLabel {
            direction: "to_client",
        })
        .inc_by(count(&live.bytes_to_client));
    registry.register("pgassay_bytes", "Bytes forwarded", bytes);
    counter(
        registry,
        "pgassay_messages",
        "Protocol messages forwarded",
        count(&live.messages),
    );
    counter(
        registry,
        "pgassay_unknown_messages",
        "Messages of an unknown type, forwarded all the same",
        count(&live.unknown_messages),
    );
    counter(
        registry,
        "pgassay_decode_errors",
        "Captured bytes that could not be decoded",
        count(&live.decode_errors),
    );
    counter(
        registry,
        "pgassay_lost_bytes",
        "Bytes forwarded but not captured",
        count(&live.lost_bytes),
    );
    counter(
        registry,
        "pgassay_cancel_requests",
        "Cancel requests forwarded",
        count(&live.cancel_requests),
    );
    counter(
        registry,
        "pgassay_replication_sessions",
        "Replication sessions, forwarded without recording",
        count(&live.replication_sessions),
    );
    counter(
        registry,
        "pgassay_journal_bytes",
        "Bytes written to the journal",
        count(&live.journal_bytes),
    );
    counter(
        registry,
        "pgassay_journal_errors",
        "Failed writes of the journal",
        count(&live.journal_errors),
    );
    counter(
        registry,
        "pgassay_webhooks_sent",
        "Violations told to a web hook",
        count(&live.webhooks_sent),
    );
    counter(
        registry,
        "pgassay_webhooks_failed",
        "Attempts to tell a web hook that failed",
        count(&live.webhooks_failed),
    );
    counter(
        registry,
        "pgassay_rereads",
        "Times that tables were read again because something was lost",
        count(&live.rereads),
    );
    gauge(
        registry,
        "pgassay_tables_lost",
        "Tables of which the audit has lost track",
        i64::try_from(live.audit().lost.len()).unwrap_or(i64::MAX),
    );
    let side = live.side_connection_up.load(Relaxed);
    if side >= 0 {
        gauge(
            registry,
            "pgassay_side_connection_up",
            "1 when the side connection answers, 0 when not",
            side,
        );
    }
    for (name, help, histogram) in [
        (
            "pgassay_added_latency_seconds",
            "Time that a message spent inside the proxy",
            &live.added_latency,
        ),
        (
            "pgassay_statement_latency_seconds",
            "Time from sending a statement to the end of its answer",
            &live.statement_latency,
        ),
    ] {
        let histogram = histogram.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help, Buckets::of(&histogram));
    }
}

fn process(registry: &mut Registry, live: &Live) {
    let build = Family::<BuildLabels, Gauge>::default();
    let revision = option_env!("PGASSAY_REVISION").unwrap_or("unknown");
    build
        .get_or_create(&BuildLabels {
            version: env!("CARGO_PKG_VERSION"),
            revision,
        })
        .set(1);
    registry.register("pgassay_build_info", "What is running", build);
    gauge(
        registry,
        "pgassay_ready",
        "1 when clients are served, 0 when not",
        i64::from(live.is_ready()),
    );
    if let Some(usage) = Usage::now() {
        gauge(
            registry,
            "process_resident_memory_bytes",
            "Resident memory",
            usage.resident_bytes,
        );
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(usage.cpu_seconds);
        registry.register("process_cpu_seconds", "Processor time used", cpu);
    }
    seconds(
        registry,
        "process_start_time_seconds",
        "When it started, since 1970",
        live.started_at as f64 / 1e9,
    );
}

/// For how long the oldest record has been waiting for the audit; 0 when none waits.
pub fn lag_seconds(live: &Live) -> f64 {
    match live.audit_oldest.load(Relaxed) {
        0 => 0.0,
        oldest => clock::now().saturating_sub(oldest) as f64 / 1e9,
    }
}

/// A reason without what it says about this one statement: what follows a colon, quotes or digits.
fn reason_class(reason: &str) -> String {
    let end = reason.find([':', '«', '"', '\'', '`']).unwrap_or(reason.len());
    let words: String = reason[..end]
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .take(60)
        .collect();
    let words = words.trim().trim_end_matches(['(', ',', ' ']).to_owned();
    if words.is_empty() {
        "other".to_owned()
    } else {
        words
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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ViolationLabels {
    rule: &'static str,
    level: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ExemplarLabels {
    violation_id: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CoverageLabel {
    coverage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TierLabel {
    tier: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    revision: &'static str,
}

/// An hdrhistogram of nanoseconds, read into buckets of seconds.
#[derive(Debug)]
struct Buckets {
    sum: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl Buckets {
    fn of(histogram: &Histogram<u64>) -> Buckets {
        let mut buckets: Vec<(f64, u64)> = BUCKETS.iter().map(|bound| (*bound, 0)).collect();
        buckets.push((f64::INFINITY, 0));
        let mut sum = 0.0;
        for step in histogram.iter_recorded() {
            let seconds = histogram.median_equivalent(step.value_iterated_to()) as f64 / 1e9;
            let count = step.count_since_last_iteration();
            sum += seconds * count as f64;
            if let Some(bucket) = buckets.iter_mut().find(|(bound, _)| seconds <= *bound) {
                bucket.1 += count;
            }
        }
        Buckets {
            sum,
            count: histogram.len(),
            buckets,
        }
    }
}

impl EncodeMetric for Buckets {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        encoder.encode_histogram::<NoLabelSet>(self.sum, self.count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// What the kernel says about this process.
struct Usage {
    resident_bytes: i64,
    cpu_seconds: f64,
}

impl Usage {
    fn now() -> Option<Usage> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: i64 = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program may hold spaces: fields are counted after its closing parenthesis.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        // USER_HZ is 100 on every Linux that userland can see.
        Some(Usage {
            resident_bytes: kilobytes * 1024,
            cpu_seconds: ticks as f64 / 100.0,
        })
    }
}

/// OpenMetrics text as the older Prometheus text: no exemplars, no units, no end mark, and counters are
/// declared under the name that their samples have.
fn plain(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    let counters: BTreeSet<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    for line in openmetrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let declared = line.strip_prefix("# TYPE ").map(|rest| ("# TYPE ", rest));
        let declared = declared.or_else(|| line.strip_prefix("# HELP ").map(|rest| ("# HELP ", rest)));
        match declared.and_then(|(kind, rest)| Some((kind, rest.split_once(' ')?))) {
            Some((kind, (name, rest))) if counters.contains(name) => {
                out.push_str(&format!("{kind}{name}_total {rest}"));
            }
            Some(_) => out.push_str(line),
            None => out.push_str(line.split(" # {").next().unwrap_or(line)),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use pgassay_audit::report::sample;

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
