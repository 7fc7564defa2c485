//! SARIF 2.1.0, for code scanners: only violations whose source line is known.
//!
//! In: a summary. Out: JSON. A violation without a source line is no result of a code scanner: it is counted in a
//! notification, so that an empty list is not taken for silence.
//!
//! Source: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard.

use super::gate::Gate;
use super::source::{self, Place};
use super::{brief, text};
use crate::verdict::{Summary, Violation};
use pgassay_rules::CATALOGUE;
use serde_json::{Value, json};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The whole run.
pub fn report(summary: &Summary, gate: &Gate, version: &str) -> Value {
    let (placed, lost): (Vec<_>, Vec<_>) = summary
        .violations
        .iter()
        .map(|violation| (violation, source::of(violation)))
        .partition(|(_, place)| place.is_some());
    let results: Vec<Value> = placed
        .iter()
        .filter_map(|(violation, place)| Some(result(violation, place.as_ref()?, gate)))
        .collect();
    let mut notifications = Vec::new();
    if !lost.is_empty() {
        let words = format!(
            "{} of {} violations are not listed here, because no statement of theirs says which line of the source \
             sent it (as sqlcommenter's file and line do). The other reports tell them.",
            lost.len(),
            summary.violations.len()
        );
        notifications.push(json!({ "level": "warning", "message": { "text": words } }));
    }
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "pgassay", "version": version, "rules": rules() } },
            "invocations": [{ "executionSuccessful": true, "toolExecutionNotifications": notifications }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rules() -> Vec<Value> {
    let rule = |rule: &&pgassay_rules::Rule| {
        json!({
            "id": rule.name,
            "name": rule.name,
            "shortDescription": { "text": rule.summary },
            "fullDescription": { "text": format!("{} ({})", rule.summary, rule.source) },
            "help": { "text": format!("The runbook is rules/runbooks/{}.md of pgassay, and on its admin address.", rule.name) },
            "defaultConfiguration": { "level": "error" },
        })
    };
    CATALOGUE.iter().map(rule).collect()
}

fn result(violation: &Violation, place: &Place, gate: &Gate) -> Value {
    let words = format!(
        "{} at {}: {}\n{}\nRight would have been: {}",
        violation.rule,
        violation.level,
        violation.observed,
        brief::of(violation),
        violation.expected.join("; or ")
    );
    let others: Vec<Value> = source::all(violation)
        .iter()
        .filter(|other| *other != place)
        .map(|other| {
            let mut location = location(other);
            location["message"] = json!({ "text": "another statement of the same story" });
            location
        })
        .collect();
    let mut result = json!({
        "ruleId": violation.rule,
        "ruleIndex": CATALOGUE.iter().position(|rule| rule.name == violation.rule),
        "level": if gate.counts(violation) { "error" } else { "note" },
        "message": { "text": words.trim_end() },
        "locations": [location(place)],
        "relatedLocations": others,
        "partialFingerprints": { "pgassay/v1": violation.fingerprint },
        "occurrenceCount": violation.repeats + 1,
        "properties": { "id": violation.id, "story": text::violation(violation, text::Paint::Plain) },
    });
    if let Some(why) = gate.pardon(violation) {
        result["suppressions"] = json!([{ "kind": "external", "justification": why }]);
    }
    result
}

fn location(place: &Place) -> Value {
    let mut artifact = json!({ "uri": uri(&place.file) });
    // A relative path is relative to the root of the sources, whatever that is to the reader.
    if !place.file.starts_with('/') {
        artifact["uriBaseId"] = json!("%SRCROOT%");
    }
    json!({ "physicalLocation": { "artifactLocation": artifact, "region": { "startLine": place.line } } })
}

fn uri(file: &str) -> String {
    let mut out = String::from(if file.starts_with('/') { "file://" } else { "" });
    for byte in file.trim_start_matches("./").bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'+' | b'@' => {
                out.push(byte as char)
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn placed() -> Summary {
        let mut summary = sample::summary();
        let told = &mut summary.violations[0];
        let (t, s) = told.culprits[0];
        let comment = " /*file='app/teller.py',line='17'*/";
        told.transactions[t].statements[s].sql.push_str(comment);
        told.transactions[0].statements[0]
            .sql
            .push_str(" /*file='app/other teller.py',line='3'*/");
        summary
    }

    #[test]
    fn only_violations_with_a_source_line_are_results() {
        let report = report(&placed(), &Gate::default(), "1.2.3");
        let run = &report["runs"][0];
        assert_eq!(run["results"].as_array().unwrap().len(), 1);
        let result = &run["results"][0];
        assert_eq!(result["ruleId"], "lost_update");
        assert_eq!(
            run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize]["id"],
            "lost_update"
        );
        let location = &result["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], "app/teller.py");
        assert_eq!(location["region"]["startLine"], 17);
        assert_eq!(
            result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            "app/other%20teller.py"
        );
        let said = run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
            .as_str()
            .unwrap();
        assert!(said.starts_with("1 of 2 violations are not listed"), "{said}");
    }

    #[test]
    fn without_any_source_line_there_is_no_result() {
        let report = report(&sample::summary(), &Gate::default(), "1.2.3");
        assert_eq!(report["runs"][0]["results"], json!([]));
    }

    #[test]
    fn what_is_allowed_is_suppressed() {
        let gate = Gate::new(&[], &["lost_update"]).unwrap();
        let report = report(&placed(), &gate, "1.2.3");
        let result = &report["runs"][0]["results"][0];
        assert_eq!(
            (
                result["level"].as_str(),
                result["suppressions"].as_array().map(Vec::len)
            ),
            (Some("note"), Some(1))
        );
    }
}
