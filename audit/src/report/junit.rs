//! JUnit XML: one test case per rule and level, so that a CI system shows what was and was not judged.
//!
//! Failed: a violation that counts. Skipped: no statement was judged at this level, so silence means nothing.
//! Passed: statements were judged at this level and none broke the rule.

use super::gate::Gate;
use super::text;
use crate::verdict::{Summary, Violation};
use pgassay_rules::{CATALOGUE, Level};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// The three levels of PostgreSQL, and whatever other level a violation names.
pub fn levels(summary: &Summary, claim: Option<Level>) -> Vec<Level> {
    let mut levels = vec![Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];
    levels.extend(claim);
    levels.extend(summary.violations.iter().map(|v| v.level));
    levels.sort();
    levels.dedup();
    levels
}

pub fn report(
    summary: &Summary,
    gate: &Gate,
    claim: Option<Level>,
) -> Result<String, quick_junit::SerializeError> {
    let mut report = Report::new("pgassay");
    for level in levels(summary, claim) {
        let judged = is_judged(summary, level, claim);
        let mut suite = TestSuite::new(format!("pgassay.{level}"));
        for rule in CATALOGUE {
            let found: Vec<&Violation> = summary
                .violations
                .iter()
                .filter(|v| v.rule == rule.name && v.level == level)
                .collect();
            suite.add_test_case(case(rule.name, level, &found, gate, judged));
        }
        report.add_test_suite(suite);
    }
    report.to_string()
}

/// A claimed level is asked of every transaction, any other only of those that ran at it.
fn is_judged(summary: &Summary, level: Level, claim: Option<Level>) -> bool {
    match claim == Some(level) {
        true => summary.coverage.checked + summary.coverage.partial > 0,
        false => summary.coverage.levels.get(&level).is_some_and(|n| *n > 0),
    }
}

fn case(rule: &str, level: Level, found: &[&Violation], gate: &Gate, judged: bool) -> TestCase {
    let counting: Vec<&&Violation> = found.iter().filter(|v| gate.counts(v)).collect();
    let status = if let Some(first) = counting.first() {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status
            .set_type(rule)
            .set_message(legal(&format!("{}: {}", first.id, first.observed)));
        let stories: Vec<String> = counting
            .iter()
            .map(|v| text::violation(v, text::Paint::Plain))
            .collect();
        status.set_description(legal(&stories.join("\n")));
        status
    } else if let Some(why) = found.first().and_then(|v| gate.pardon(v)) {
        skipped(why)
    } else if !judged {
        skipped("no statement was judged at this level")
    } else {
        TestCaseStatus::success()
    };
    let mut case = TestCase::new(rule, status);
    case.set_classname(format!("pgassay.{level}"));
    case
}

/// XML has no way to write these two down, not even as an escape; what else is illegal the writer leaves out itself.
fn legal(text: &str) -> String {
    text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

fn skipped(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(why);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn one_case_per_rule_and_level() {
        let xml = report(&sample::summary(), &Gate::default(), None).unwrap();
        assert_eq!(xml.matches("<testcase ").count(), CATALOGUE.len() * 3);
        assert_eq!(xml.matches("<failure ").count(), 2);
        assert!(xml.contains("failures=\"2\""), "{xml}");
        // Nobody ran at REPEATABLE READ: its suite must not look green.
        let skipped = "no statement was judged at this level";
        assert_eq!(xml.matches(skipped).count(), CATALOGUE.len());
        let suite = xml
            .split("<testsuite name=")
            .find(|s| s.starts_with("\"pgassay.repeatable-read\""));
        assert_eq!(suite.map(|s| s.matches(skipped).count()), Some(CATALOGUE.len()));
        // Claimed for all of them, it was asked of all of them.
        let claimed = report(&sample::summary(), &Gate::default(), Some(Level::RepeatableRead)).unwrap();
        assert!(!claimed.contains("<skipped"), "{claimed}");
    }

    #[test]
    fn what_was_not_judged_is_skipped() {
        let xml = report(&Summary::default(), &Gate::default(), None).unwrap();
        assert_eq!(xml.matches("<skipped ").count(), CATALOGUE.len() * 3);
    }

    #[test]
    fn a_known_violation_is_skipped_and_a_claimed_level_has_its_suite() {
        let gate = Gate::new(&[], &["lost_update", "write_skew"]).unwrap();
        let xml = report(&sample::summary(), &gate, Some(Level::StrictS)).unwrap();
        assert_eq!(xml.matches("<failure ").count(), 0);
        assert!(xml.contains("pgassay.strict-s"));
        assert!(xml.contains("its rule is in allow"));
    }
}
