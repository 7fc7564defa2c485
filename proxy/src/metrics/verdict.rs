//! Violations by rule and level.

use crate::live::Live;
use pgassay_audit::verdict::Violation;
use pgassay_rules::{CATALOGUE, Level};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ViolationLabels {
    rule: &'static str,
    level: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ExemplarLabels {
    violation_id: String,
}

pub(super) fn verdicts(registry: &mut Registry, live: &Live) {
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
