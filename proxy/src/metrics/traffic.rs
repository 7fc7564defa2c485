//! What passes through: connections, statements, bytes, latencies; and what is kept of it.

use super::{counter, gauge};
use crate::live::Live;
use hdrhistogram::Histogram;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the buckets, in seconds: 5 µs to 10 s.
const BUCKETS: [f64; 20] = [
    5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

pub(super) fn traffic(registry: &mut Registry, live: &Live) {
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
        "Times that tables or the catalog were read again because something was lost",
        count(&live.rereads),
    );
    counter(
        registry,
        "pgassay_violations_withheld",
        "Violations that were kept back because the catalog may have gone stale",
        live.audit().stats.withheld,
    );
    gauge(
        registry,
        "pgassay_catalog_in_doubt",
        "1 while the catalog may not be what it is taken for, and should be read again",
        i64::from(live.audit().wanted.is_some()),
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
