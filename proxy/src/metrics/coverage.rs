//! How much of the traffic is judged, and why the rest is not.

use crate::live::Live;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;

/// Reasons that get a series of their own; whatever comes later is «other».
pub(super) const REASONS_MAX: usize = 40;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CoverageLabel {
    coverage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: String,
}

/// `known`: the reasons that have a series already.
pub(super) fn coverage(registry: &mut Registry, live: &Live, known: &mut BTreeSet<String>) {
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
