//! The summary as JSON: what `pgassay check --json` prints and the admin address serves.
//!
//! Always true:
//!   - the order of keys is fixed: the same verdict gives the same bytes;
//!   - each violation has `statements[]`: its steps in the order they were sent;
//!   - windows are nanoseconds since the violation's `origin` (small enough for every JSON reader to keep
//!     exact); `null` is an end that was never learned. `origin` and `at` are nanoseconds since 1970.

use super::brief;
use super::steps::{self, Act};
use crate::trace::{Nanos, Window};
use crate::verdict::{Summary, Violation};
use serde_json::{Value, json};

/// The whole run.
pub fn summary(summary: &Summary) -> Value {
    let coverage = &summary.coverage;
    json!({
        "transactions": summary.transactions,
        "statements": summary.statements,
        "violations": summary.violations.iter().map(violation).collect::<Vec<_>>(),
        "coverage": {
            "checked": coverage.checked,
            "partial": coverage.partial,
            "unchecked": coverage.unchecked,
            "reasons": coverage.reasons,
            "levels": coverage.levels,
            "shapes": coverage.shapes,
        },
        "tiers": summary.tiers,
        "gaps": summary.gaps,
    })
}

/// One violation, whole.
pub fn violation(violation: &Violation) -> Value {
    let origin = steps::origin(violation);
    let window = |window: Window| relative(window, origin);
    json!({
        "id": violation.id,
        "fingerprint": violation.fingerprint,
        "rule": violation.rule,
        "level": violation.level,
        "at": violation.at,
        "origin": origin,
        "repeats": violation.repeats,
        "transactions": violation.transactions.iter().map(|t| json!({
            "name": t.name,
            "session": t.id.session.0,
            "number": t.id.number,
            "level": t.level,
            "committed": t.committed,
            "commit": t.commit.map(window),
            // When each statement was sent: what an edge's `read` points into.
            "reads": t.statements.iter().map(|s| s.window.sent.saturating_sub(origin)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "statements": steps::of(violation).iter().map(|step| json!({
            "transaction": step.transaction,
            "act": act(step.act),
            "sql": step.sql,
            "parameters": step.parameters,
            "window": window(step.window),
            "answer": step.answer,
            "culprit": step.culprit,
        })).collect::<Vec<_>>(),
        "observed": violation.observed,
        "answers": brief::answers(violation),
        "expected": violation.expected,
        "edges": violation.edges,
        "initial": violation.initial,
        "story": violation.story,
        "brief": brief::of(violation),
    })
}

/// One line of a list of violations: everything but the story itself.
pub fn headline(violation: &Violation) -> Value {
    json!({
        "id": violation.id,
        "fingerprint": violation.fingerprint,
        "rule": violation.rule,
        "level": violation.level,
        "at": violation.at,
        "repeats": violation.repeats,
        "transactions": violation.transactions.len(),
        "statements": violation.transactions.iter().map(|t| t.statements.len()).sum::<usize>(),
        "observed": violation.observed,
        "answers": brief::answers(violation),
    })
}

fn act(act: Act) -> &'static str {
    match act {
        Act::Begin => "begin",
        Act::Statement(_) => "statement",
        Act::Commit => "commit",
        Act::Rollback => "rollback",
    }
}

fn relative(window: Window, origin: Nanos) -> Value {
    let done = (window.done != Nanos::MAX).then(|| window.done.saturating_sub(origin));
    json!({ "sent": window.sent.saturating_sub(origin), "done": done })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_promised_names_are_there() {
        let value = summary(&sample::summary());
        for key in [
            "transactions",
            "statements",
            "violations",
            "coverage",
            "tiers",
            "gaps",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        for key in ["checked", "partial", "unchecked", "reasons"] {
            assert!(value["coverage"].get(key).is_some(), "{key}");
        }
        let first = &value["violations"][0];
        for key in [
            "id",
            "rule",
            "level",
            "transactions",
            "statements",
            "observed",
            "expected",
            "story",
        ] {
            assert!(first.get(key).is_some(), "{key}");
        }
        assert_eq!(first["level"], "serializable");
        assert_eq!(first["statements"][3]["culprit"], true);
        assert_eq!(
            first["statements"][3]["window"],
            json!({ "sent": 400_000, "done": 560_000 })
        );
        assert_eq!(
            first["statements"][0]["sql"],
            "BEGIN ISOLATION LEVEL READ COMMITTED"
        );
    }

    #[test]
    fn an_end_that_was_never_learned_is_null() {
        let mut told = sample::lost_update();
        told.transactions[1].commit = Some(Window::new(5_000_000, Nanos::MAX));
        assert_eq!(violation(&told)["transactions"][1]["commit"]["done"], Value::Null);
    }
}
