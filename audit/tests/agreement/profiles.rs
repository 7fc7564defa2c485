//! Random histories, judged by what other databases promise than PostgreSQL.
//!
//! The histories are those of PostgreSQL, right ones and changed ones, told as if every transaction had run at one level of
//! another profile. Whoever is accused by the audit is accused by the reference checker, and nothing that this one calls
//! wrong is called right: what the audit does not know is counted, and is little.

use crate::history::History;
use crate::judges::{Verdict, audit_with, records_at, reference_by};
use crate::{mutate, number, play, shrink};
use fastrand::Rng;
use pgassay_audit::Settings;
use pgassay_rules::Level;
use std::collections::BTreeMap;

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
pub fn without_levels(text: &str) -> String {
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
fn the_audit_agrees_with_the_definition_of_every_other_profile() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_PROPTEST_CASES", 200) / 8;
    let mut disagreements: Vec<String> = Vec::new();
    for (profile, level) in LEVELS {
        // Right by both, wrong by both, not known to the audit although it is wrong, undecided.
        let [mut right, mut caught, mut unknown, mut undecided] = [0; 4];
        let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
        for seed in first..first + cases {
            let (history, _) = play(seed, 3, 1);
            let mut rng = Rng::with_seed(seed ^ 0x9f0f);
            let changed =
                (0..2).filter_map(|_| mutate::mutate(&history, &mut rng).map(|(changed, _)| changed));
            let changed: Vec<_> = changed.collect();
            for history in std::iter::once(&history).chain(&changed) {
                let judge = |history: &History| {
                    let text = without_levels(&history.text());
                    let settings = Settings {
                        profile: profile.to_owned(),
                        ..Settings::default()
                    };
                    let (said, summary) = audit_with(records_at(&text, level), settings);
                    (said, reference_by(records_at(&text, level), profile), summary)
                };
                let (said, defined, summary) = judge(history);
                match (said, defined) {
                    (_, Verdict::Unknown) => undecided += 1,
                    (Verdict::Wrong, Verdict::Wrong) => caught += 1,
                    (Verdict::Unknown, Verdict::Wrong) => {
                        unknown += 1;
                        for (reason, count) in &summary.coverage.reasons {
                            *reasons.entry(reason.clone()).or_default() += count;
                        }
                    }
                    (Verdict::Right | Verdict::Unknown, Verdict::Right) => right += 1,
                    (said, defined) => {
                        let small = shrink(history.clone(), |h| {
                            let (now, then, _) = judge(h);
                            (now, then) == (said, defined)
                        });
                        let rules: Vec<String> =
                            judge(&small).2.violations.into_iter().map(|v| v.rule).collect();
                        let text = without_levels(&small.text());
                        disagreements.push(format!(
                            "seed {seed}, {profile} {level}: the audit says {said:?} {rules:?}, the reference {defined:?}:\n{text}"
                        ));
                    }
                }
            }
        }
        println!(
            "{profile} {level}: {right} right, {caught} caught, {unknown} unknown {reasons:?}, {undecided} undecided"
        );
        assert!(right + caught > 0, "nothing was decided by {profile} at {level}");
        // Where every key may come from another state, there are more ways to read than are tried.
        assert!(
            match level {
                Level::Rc => undecided * 5 <= right + caught,
                _ => undecided == 0,
            },
            "the reference checker does not decide {undecided} by {profile} at {level}"
        );
        assert!(
            unknown * 20 <= caught + 20,
            "the audit does not know about {unknown} of {} by {profile} at {level}",
            caught + unknown
        );
    }
    disagreements.sort_by_key(|text| text.lines().count());
    let shown = disagreements
        .iter()
        .take(5)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        disagreements.is_empty(),
        "{} disagreements; the smallest:\n{shown}",
        disagreements.len()
    );
}
