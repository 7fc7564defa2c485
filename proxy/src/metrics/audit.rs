//! The audit at work: throughput, lag, queue, tiers, memory.

use super::{counter, gauge, lag_seconds, seconds};
use crate::live::Live;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TierLabel {
    tier: &'static str,
}

pub(super) fn audit(registry: &mut Registry, live: &Live) {
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
    counter(
        registry,
        "pgassay_audit_proofs",
        "Suspicions that were decided again by the reference checker",
        stats.proofs,
    );
    gauge(
        registry,
        "pgassay_audit_proofs_open",
        "Suspicions that are being decided again beside the judging",
        stats.proofs_open as i64,
    );
    gauge(
        registry,
        "pgassay_audit_proofs_waiting",
        "Of these, the ones that wait for a worker",
        stats.proofs_waiting as i64,
    );
    counter(
        registry,
        "pgassay_audit_judged_again",
        "How often a suspect was explained after all, and what came since was judged again",
        stats.went_back,
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
