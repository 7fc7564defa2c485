//! Recorded workloads with known verdicts, without a server.

use pgassay_audit::trace::journal::Reader;
use pgassay_audit::{Auditor, Settings};
use std::path::{Path, PathBuf};

fn journals() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("histories/workloads");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

#[test]
fn recorded_workloads_keep_their_verdicts() {
    let journals = journals();
    assert!(
        journals.len() >= 12,
        "the recorded journals are missing: {journals:?}"
    );
    for journal in journals {
        let name = journal.file_name().unwrap().to_string_lossy().into_owned();
        let mut auditor = Auditor::new(Settings::default());
        for record in Reader::open(&journal, None).unwrap() {
            auditor.take(record.unwrap());
        }
        auditor.finish();
        let summary = auditor.summary();
        let told: Vec<&str> = summary
            .violations
            .iter()
            .map(|violation| violation.rule.as_str())
            .collect();
        assert_eq!(!told.is_empty(), name.ends_with("-wrong"), "{name}: {told:?}");
        let refused = summary
            .coverage
            .reasons
            .get("aborted_transaction")
            .copied()
            .unwrap_or(0);
        let share = summary.coverage.checked as f64 / (summary.statements - refused).max(1) as f64;
        // Where nobody has read the rows, each is known from its first sight on, and these runs are short.
        let in_part = name.ends_with("-catalog") || name.ends_with("-written");
        let least = if in_part { 0.4 } else { 0.9 };
        assert!(
            share > least,
            "{name}: only {share:.2} checked: {:?}",
            summary.coverage.reasons
        );
    }
}

#[test]
fn any_number_of_workers_reports_the_same() {
    for journal in journals() {
        let report = |workers| {
            let settings = Settings {
                workers,
                ..Settings::default()
            };
            let summary = pgassay::cli::check::audit(&journal, None, &settings).unwrap();
            serde_json::to_string_pretty(&summary).unwrap()
        };
        let one = report(1);
        for workers in [2, 8] {
            assert!(
                one == report(workers),
                "{}: {workers} workers report something else than one",
                journal.display()
            );
        }
    }
}
