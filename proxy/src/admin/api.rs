//! The API: the audit's answers as JSON.

use super::Shared;
use crate::clock;
use crate::metrics::lag_seconds;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use pgassay_audit::report::{json, reasons};
use pgassay_audit::verdict::Violation;
use pgassay_rules::anomaly;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// The same as `pgassay check --json` prints.
pub async fn summary(State(shared): State<Shared>) -> Json<Value> {
    Json(json::summary(&shared.live.summary()))
}

#[derive(Debug, Deserialize)]
pub struct Which {
    rule: Option<String>,
    level: Option<String>,
    /// Whole violations instead of one line each.
    #[serde(default)]
    full: bool,
}

/// Every violation, the newest first.
pub async fn violations(State(shared): State<Shared>, Query(which): Query<Which>) -> Json<Value> {
    let mut found = shared.live.violations();
    found.retain(|v| which.rule.as_ref().is_none_or(|rule| *rule == v.rule));
    found.retain(|v| which.level.as_ref().is_none_or(|level| level == v.level.name()));
    found.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| a.id.cmp(&b.id)));
    let tell = if which.full {
        json::violation
    } else {
        json::headline
    };
    Json(Value::Array(found.iter().map(tell).collect()))
}

pub async fn violation(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let violation = find(&shared, &id)?;
    let mut value = json::violation(&violation);
    if let (Value::Object(map), Some(rule)) = (&mut value, anomaly::by_name(&violation.rule)) {
        map.insert("summary".to_owned(), json!(rule.summary));
        map.insert("source".to_owned(), json!(rule.source));
    }
    Ok(Json(value))
}

/// What was and was not checked, by reason and by statement shape.
pub async fn coverage(State(shared): State<Shared>) -> Json<Value> {
    let coverage = shared.live.audit().summary.coverage.clone();
    let shapes = coverage.shapes.iter().filter_map(|shape| shape.reason.as_ref());
    let all = coverage.reasons.keys().chain(shapes);
    let meanings: BTreeMap<&String, &str> = all.filter_map(|r| Some((r, reasons::meaning(r)?))).collect();
    let mut told = json!(coverage);
    told["meanings"] = json!(meanings);
    Json(told)
}

#[derive(Debug, Deserialize)]
pub struct Since {
    /// Only samples after this number.
    #[serde(default)]
    since: u64,
}

/// Numbers only: what the page polls.
pub async fn live(State(shared): State<Shared>, Query(Since { since }): Query<Since>) -> Json<Value> {
    let live = &shared.live;
    let config = live.config.load();
    let snapshot = live.audit().clone();
    let coverage = &snapshot.summary.coverage;
    let violations: u64 = snapshot.summary.violations.iter().map(|v| 1 + v.repeats).sum();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": clock::now(),
        "started_at": live.started_at,
        "ready": live.is_ready(),
        "draining": live.draining.load(Relaxed),
        "listen": live.addresses.get().unwrap_or(&config.listen),
        "profile": config.audit.profile,
        "claim": config.audit.claim,
        "record_only": config.record_only,
        "side_connection_up": live.side_connection_up.load(Relaxed),
        "connections_open": live.connections_open.load(Relaxed),
        "statements": live.statements.load(Relaxed).max(snapshot.summary.statements),
        "transactions": live.transactions.load(Relaxed).max(snapshot.summary.transactions),
        "violations": violations,
        "distinct_violations": snapshot.summary.violations.len(),
        "coverage": { "checked": coverage.checked, "partial": coverage.partial, "unchecked": coverage.unchecked },
        "tiers": snapshot.summary.tiers,
        "lag_seconds": lag_seconds(live),
        "queue": live.audit_queue_records.load(Relaxed),
        "gaps": live.gaps.load(Relaxed).max(snapshot.summary.gaps),
        "shed": live.shed_records.load(Relaxed),
        "audit_panics": live.audit_panics.load(Relaxed),
        "journal_bytes": live.journal_bytes.load(Relaxed),
        "journal_errors": live.journal_errors.load(Relaxed),
        "versions_alive": snapshot.stats.versions_alive,
        "samples": shared.history.after(since),
    }))
}

pub fn find(shared: &Shared, id: &str) -> Result<Violation, (StatusCode, String)> {
    let found = shared
        .live
        .audit()
        .summary
        .violations
        .iter()
        .find(|v| v.id == id)
        .cloned();
    found.ok_or_else(|| {
        (
            StatusCode::NOT_FOUND,
            "there is no violation with this id; /api/violations lists them\n".to_owned(),
        )
    })
}
