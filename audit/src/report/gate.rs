//! Decides whether a run passes: declared thresholds in, the exit code out.
//!
//! Always true:
//!   - a rule name that is not in the catalogue is an error, never a threshold that silently passes;
//!   - a violation counts against the run unless its rule is allowed or its fingerprint is in the baseline;
//!   - a run in which nothing was seen has coverage 0.

use crate::verdict::{CoverageSummary, Summary, Violation};
use pgassay_rules::anomaly;
use std::collections::BTreeSet;

/// What a run must hold to pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gate {
    /// Only these rules fail the run; empty: every rule does.
    pub fail_on: BTreeSet<String>,
    /// These rules never fail the run.
    pub allow: BTreeSet<String>,
    /// Fingerprints that are known already.
    pub baseline: BTreeSet<String>,
    /// Share of statements, 0 to 1, that must be checked fully.
    pub min_coverage: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Violated,
    TooLittleCoverage,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum BadGate {
    #[error("there is no rule «{0}»; known rules: {known}", known = known_rules())]
    UnknownRule(String),
    #[error("the rule «{0}» is both in fail-on and in allow; keep it in one of them")]
    Contradiction(String),
    #[error("min-coverage is a share from 0 to 1 or a percentage such as 95%, not «{0}»")]
    BadCoverage(String),
    #[error("line {line} of the baseline is not a fingerprint: «{text}»")]
    BadFingerprint { line: usize, text: String },
}

impl Verdict {
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Passed => 0,
            Verdict::Violated => 1,
            Verdict::TooLittleCoverage => 3,
        }
    }
}

impl Gate {
    /// Checks the names; rules may be separated by commas.
    pub fn new<S: AsRef<str>>(fail_on: &[S], allow: &[S]) -> Result<Gate, BadGate> {
        let gate = Gate {
            fail_on: rules(fail_on)?,
            allow: rules(allow)?,
            ..Gate::default()
        };
        match gate.fail_on.intersection(&gate.allow).next() {
            Some(both) => Err(BadGate::Contradiction(both.clone())),
            None => Ok(gate),
        }
    }

    pub fn judge(&self, summary: &Summary) -> Verdict {
        if summary.violations.iter().any(|violation| self.counts(violation)) {
            return Verdict::Violated;
        }
        match self.min_coverage {
            Some(least) if checked_share(&summary.coverage) < least => Verdict::TooLittleCoverage,
            _ => Verdict::Passed,
        }
    }

    /// Whether this violation counts against the run.
    pub fn counts(&self, violation: &Violation) -> bool {
        self.pardon(violation).is_none()
    }

    /// Why this violation does not count, if it does not.
    pub fn pardon(&self, violation: &Violation) -> Option<&'static str> {
        if self.baseline.contains(&violation.fingerprint) {
            Some("known: its fingerprint is in the baseline")
        } else if self.allow.contains(&violation.rule) {
            Some("allowed: its rule is in allow")
        } else if !self.fail_on.is_empty() && !self.fail_on.contains(&violation.rule) {
            Some("allowed: its rule is not in fail-on")
        } else {
            None
        }
    }
}

/// Reads a baseline: one fingerprint per line, `#` begins a comment.
pub fn baseline(text: &str) -> Result<BTreeSet<String>, BadGate> {
    let mut known = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let word = line.split('#').next().unwrap_or("").trim();
        if word.is_empty() {
            continue;
        }
        if !word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(BadGate::BadFingerprint {
                line: index + 1,
                text: word.to_owned(),
            });
        }
        known.insert(word.to_owned());
    }
    Ok(known)
}

/// Writes the baseline that would accept every violation of this run.
pub fn baseline_of(summary: &Summary) -> String {
    let mut text = String::from("# Fingerprints of violations that are known and do not block.\n");
    let mut seen = BTreeSet::new();
    for violation in &summary.violations {
        if seen.insert(&violation.fingerprint) {
            text.push_str(&format!(
                "{}  # {} at {}\n",
                violation.fingerprint, violation.rule, violation.level
            ));
        }
    }
    text
}

/// `0.95` or `95%`.
pub fn share(text: &str) -> Result<f64, BadGate> {
    let bad = || BadGate::BadCoverage(text.to_owned());
    let (digits, scale) = match text.trim().strip_suffix('%') {
        Some(digits) => (digits.trim(), 100.0),
        None => (text.trim(), 1.0),
    };
    let value = digits.parse::<f64>().map_err(|_| bad())? / scale;
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(bad())
    }
}

/// The share of statements whose answers were checked whole.
pub fn checked_share(coverage: &CoverageSummary) -> f64 {
    let all = coverage.checked + coverage.partial + coverage.unchecked;
    if all == 0 {
        0.0
    } else {
        coverage.checked as f64 / all as f64
    }
}

fn rules<S: AsRef<str>>(names: &[S]) -> Result<BTreeSet<String>, BadGate> {
    let words = names
        .iter()
        .flat_map(|names| names.as_ref().split(','))
        .map(str::trim)
        .filter(|n| !n.is_empty());
    words
        .map(|name| match anomaly::by_name(name) {
            Some(rule) => Ok(rule.name.to_owned()),
            None => Err(BadGate::UnknownRule(name.to_owned())),
        })
        .collect()
}

fn known_rules() -> String {
    anomaly::CATALOGUE
        .iter()
        .map(|rule| rule.name)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn an_unknown_rule_is_an_error() {
        let error = Gate::new(&["lost_updat"], &[]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no rule «lost_updat»; known rules: dirty_write,"),
            "{error}"
        );
    }

    #[test]
    fn a_rule_cannot_be_both() {
        let error = Gate::new(&["phantom"], &["phantom"]).unwrap_err();
        assert_eq!(error, BadGate::Contradiction("phantom".into()));
    }

    #[test]
    fn violations_count_unless_pardoned() {
        let summary = sample::summary();
        assert_eq!(Gate::default().judge(&summary), Verdict::Violated);
        assert_eq!(
            Gate::new(&[], &["lost_update,write_skew"])
                .unwrap()
                .judge(&summary),
            Verdict::Passed
        );
        assert_eq!(
            Gate::new(&["phantom"], &[]).unwrap().judge(&summary),
            Verdict::Passed
        );
        assert_eq!(
            Gate::new(&["write_skew"], &[]).unwrap().judge(&summary),
            Verdict::Violated
        );
        let known = baseline(&baseline_of(&summary)).unwrap();
        assert_eq!(
            Gate {
                baseline: known,
                ..Gate::default()
            }
            .judge(&summary),
            Verdict::Passed
        );
    }

    #[test]
    fn too_little_coverage_is_its_own_answer() {
        let mut summary = sample::summary();
        summary.violations.clear();
        let gate = |least| Gate {
            min_coverage: Some(least),
            ..Gate::default()
        };
        assert_eq!(gate(0.9).judge(&summary), Verdict::Passed);
        assert_eq!(gate(0.99).judge(&summary), Verdict::TooLittleCoverage);
        assert_eq!(gate(0.1).judge(&Summary::default()), Verdict::TooLittleCoverage);
    }

    #[test]
    fn shares_are_read_in_both_spellings() {
        assert_eq!(share("95%"), Ok(0.95));
        assert_eq!(share("0.5"), Ok(0.5));
        assert!(share("95").is_err() && share("x").is_err() && share("-1%").is_err());
    }

    #[test]
    fn a_baseline_names_the_bad_line() {
        let error = baseline("# ok\nabc\n{oops}\n").unwrap_err();
        assert_eq!(
            error,
            BadGate::BadFingerprint {
                line: 3,
                text: "{oops}".into()
            }
        );
    }
}
