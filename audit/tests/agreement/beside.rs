//! Suspicions are proved beside the judging, and the report is the one of an audit that proves each on the spot.
//!
//! Histories with several wrong answers are judged with little to spend, so that there are suspicions that are proved,
//! such that are explained after all, and such that cannot be decided, many of them in flight at the same time.

use crate::judges::records;
use crate::thrift::thrifty;
use crate::{mutate, number, play};
use fastrand::Rng;
use pgassay_audit::explain::limits::Limits;
use pgassay_audit::trace::Record;
use pgassay_audit::{Auditor, Settings, Stats};

/// The report; outcomes are also taken over where chance says so.
fn report(
    records: &[Record],
    limits: Limits,
    workers: usize,
    proofs_len_max: usize,
    chance: &mut Rng,
) -> (String, Stats) {
    let mut auditor = Auditor::new(Settings {
        limits,
        workers,
        proofs_len_max,
        ..Settings::default()
    });
    let mut found = Vec::new();
    for record in records {
        found.extend(auditor.take(record.clone()));
        if chance.u8(0..8) == 0 {
            found.extend(auditor.rest());
        }
    }
    found.extend(auditor.finish());
    let summary = auditor.summary();
    let mut told: Vec<&String> = found.iter().map(|v| &v.id).collect();
    let mut kept: Vec<&String> = summary.violations.iter().map(|v| &v.id).collect();
    told.sort();
    kept.sort();
    assert_eq!(told, kept, "each is told once");
    (
        serde_json::to_string_pretty(&summary).expect("JSON"),
        auditor.stats(),
    )
}

#[test]
fn it_is_told_as_if_it_were_proved_on_the_spot() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_PROPTEST_CASES", 200) / 4;
    let (mut proofs, mut went_back) = (0, 0);
    for seed in first..first + cases {
        let (mut history, _) = play(seed, 6, 3);
        let mut rng = Rng::with_seed(seed ^ 0xbe51de);
        for _ in 0..rng.usize(1..5) {
            if let Some((changed, _)) = mutate::mutate(&history, &mut rng) {
                history = changed;
            }
        }
        let records = records(&history.text());
        let limits = thrifty(&mut rng);
        let (on_the_spot, _) = report(&records, limits, 1, 0, &mut rng);
        for workers in [1, 2, 8] {
            let (beside, stats) = report(&records, limits, workers, workers, &mut rng);
            assert!(
                beside == on_the_spot,
                "seed {seed} with {limits:?} and {workers} workers\n{}",
                history.text()
            );
            proofs += stats.proofs;
            went_back += stats.went_back;
        }
    }
    println!("{cases} histories, {proofs} proofs, {went_back} times judged again");
    assert!(proofs > 0, "nothing was proved");
}
