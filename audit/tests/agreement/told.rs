//! Stories that are told to the audit are told to the reference checker, too: both come to the same.

use crate::judges::{Verdict, audit_records, records_at, reference_of};
use pgassay_audit::script::{self, Expectation};
use std::path::Path;

/// Longer ones have too many orders to be tried.
const LINES_MAX: usize = 24;

#[test]
fn both_judges_come_to_the_same_verdict_of_every_story() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let (mut told, mut undecided, mut wrong) = (0, 0, Vec::new());
    for folder in ["verdict", "silent", "hermitage"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("the folder of stories");
        let mut paths: Vec<_> = entries.map(|e| e.expect("a readable folder").path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).expect("a readable story");
            let (story, expected) = script::expectations(&text).expect("a story");
            // What nobody saw cannot be tried, nor what a procedure committed before it failed; types and columns are made before
            // the story begins; the reference does not hand settings on
            // from one transaction to the next, and knows nothing of deferred constraints.
            let untried = [
                " unseen ",
                "alter type",
                "alter column",
                "; commit;",
                "search_path",
                "session authorization",
                "session_replication_role",
                "standard_conforming_strings",
                "initially deferred",
                "transaction snapshot",
                " rename ",
            ];
            if untried.iter().any(|what| story.contains(what)) || story.lines().count() > LINES_MAX {
                continue;
            }
            let promised = |e: &&Expectation| e.claim.is_none() && e.profile == "postgres";
            for expectation in expected.iter().filter(promised) {
                let records = records_at(&story, expectation.level);
                let (said, _) = audit_records(records.clone());
                let defined = reference_of(records);
                told += 1;
                match (said, defined) {
                    (_, Verdict::Unknown) => undecided += 1,
                    (Verdict::Wrong, Verdict::Wrong)
                    | (Verdict::Right | Verdict::Unknown, Verdict::Right) => {}
                    _ => wrong.push(format!(
                        "{} at {}: the audit says {said:?}, the reference {defined:?}",
                        path.display(),
                        expectation.level
                    )),
                }
            }
        }
    }
    println!("{told} stories, {undecided} undecided");
    assert!(
        wrong.is_empty(),
        "{} disagreements:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(undecided * 10 <= told, "{undecided} of {told} are undecided");
}
