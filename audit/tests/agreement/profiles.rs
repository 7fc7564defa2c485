//! Random histories, judged by what other databases promise than PostgreSQL.
//!
//! The histories are those of PostgreSQL, right ones and changed ones, told as if every transaction had run at one level of
//! another profile. Whoever is accused by the audit is accused by the reference checker.

use crate::judges::{Verdict, audit_with, records_at, reference_by};
use crate::{mutate, number, play};
use fastrand::Rng;
use pgassay_audit::Settings;
use pgassay_rules::Level;

const LEVELS: [(&str, Level); 7] = [
    ("paper", Level::Rc),
    ("paper", Level::Si),
    ("paper", Level::StrictSi),
    ("paper", Level::S),
    ("paper", Level::StrictS),
    ("postgres-standby", Level::ReadCommitted),
    ("postgres-standby", Level::RepeatableRead),
];

/// The same with no level of its own.
fn without_levels(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.contains("set default_transaction_isolation"));
    let plain = lines.map(|line| match line.split_once("begin isolation level") {
        Some((session, _)) => format!("{session}begin"),
        None => line.to_owned(),
    });
    plain.map(|line| line + "\n").collect()
}

#[test]
fn nobody_is_accused_whom_the_definition_of_another_profile_does_not_accuse() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_PROPTEST_CASES", 200) / 8;
    for (profile, level) in LEVELS {
        // Right by both, wrong by both, not known to the audit although it is wrong, missed by it, undecided.
        let [mut right, mut caught, mut unknown, mut missed, mut undecided] = [0; 5];
        for seed in first..first + cases {
            let (history, _) = play(seed, 3, 1);
            let mut rng = Rng::with_seed(seed ^ 0x9f0f);
            let changed =
                (0..2).filter_map(|_| mutate::mutate(&history, &mut rng).map(|(changed, _)| changed));
            let changed: Vec<_> = changed.collect();
            for history in std::iter::once(&history).chain(&changed) {
                let text = without_levels(&history.text());
                let settings = Settings {
                    profile: profile.to_owned(),
                    ..Settings::default()
                };
                let (said, summary) = audit_with(records_at(&text, level), settings);
                let defined = reference_by(records_at(&text, level), profile);
                let rules: Vec<&str> = summary.violations.iter().map(|v| v.rule.as_str()).collect();
                match (said, defined) {
                    (_, Verdict::Unknown) => undecided += 1,
                    (Verdict::Wrong, Verdict::Wrong) => caught += 1,
                    (Verdict::Unknown, Verdict::Wrong) => unknown += 1,
                    (Verdict::Right, Verdict::Wrong) => missed += 1,
                    (Verdict::Right | Verdict::Unknown, Verdict::Right) => right += 1,
                    (Verdict::Wrong, Verdict::Right) => {
                        panic!("seed {seed}, {profile} {level}: only the audit accuses {rules:?}\n{text}")
                    }
                }
            }
        }
        println!(
            "{profile} {level}: {right} right, {caught} caught, {unknown} unknown, {missed} missed, {undecided} undecided"
        );
        assert!(right + caught > 0, "nothing was decided by {profile} at {level}");
        // Where a snapshot may be older than its statement, it may be older than the tables: the reference checker takes
        // those for given, the audit does not.
        if level == Level::StrictSi {
            assert_eq!(missed, 0, "by {profile} at {level}");
        }
    }
}
