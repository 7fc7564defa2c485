//! JUnit reports against the schema that CI systems go by, with stories that are hard to write down in XML.

use pgassay_audit::report::gate::Gate;
use pgassay_audit::report::{junit, sample};
use pgassay_audit::verdict::Summary;
use pgassay_rules::Level;
use pgassay_tests::tools::root;
use std::path::Path;
use std::process::Command;

/// Nothing, or what is wrong with the report.
fn complaints(dir: &Path, report: &str) -> Option<String> {
    let file = dir.join("report.xml");
    std::fs::write(&file, report).unwrap();
    let output = Command::new("xmllint")
        .args(["--noout", "--nonet", "--schema"])
        .arg(root().join("tests/junit.xsd"))
        .arg(&file)
        .output()
        .expect("xmllint runs (deploy/setup.sh test installs it)");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

fn report(summary: &Summary, gate: &Gate, claim: Option<Level>) -> String {
    junit::report(summary, gate, claim).expect("a report")
}

#[test]
fn every_report_follows_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let strict = Gate::default();
    let mut nasty = sample::summary();
    for violation in &mut nasty.violations {
        let statement = &mut violation.transactions[0].statements[0];
        statement.sql = "SELECT '<a> & ]]> \u{1} \u{1b}[31m \u{7f} é 🐘'".to_owned();
        violation.observed = "\u{0}\u{8}<![CDATA[ \"quoted\" ' ]]> \u{fffe}".to_owned();
    }
    for (what, summary, claim) in [
        ("violations", sample::summary(), None),
        ("nothing was judged", Summary::default(), None),
        ("a level of the paper", sample::summary(), Some(Level::StrictS)),
        ("hard to write down", nasty, None),
    ] {
        let text = report(&summary, &strict, claim);
        assert_eq!(complaints(dir.path(), &text), None, "{what}:\n{text}");
    }
    assert!(report(&Summary::default(), &strict, None).contains("<skipped"));
    assert!(report(&sample::summary(), &strict, None).contains("<failure"));
}

#[test]
fn the_schema_refuses_what_is_not_junit() {
    let dir = tempfile::tempdir().unwrap();
    let good = report(&sample::summary(), &Gate::default(), None);
    for (what, from, to) in [
        (
            "a case without a name",
            "<testcase name=\"lost_update\"",
            "<testcase",
        ),
        (
            "a case that is there twice",
            "<testcase name=\"lost_update\"",
            "<testcase name=\"write_skew\"",
        ),
        ("an element of our own", "<testcase ", "<note/><testcase "),
        ("a number that is none", "failures=\"", "failures=\"some"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{what}");
        assert!(complaints(dir.path(), &bad).is_some(), "{what}:\n{bad}");
    }
}
