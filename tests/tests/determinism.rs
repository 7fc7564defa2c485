//! The same records give the same report, byte for byte: with any number of workers, live and from the journal.

use bytes::Bytes;
use pgassay_audit::trace::journal::Reader;
use pgassay_audit::trace::{Outcome, Record};
use pgassay_audit::{Auditor, Settings, Stats};
use pgassay_rules::Level;
use pgassay_tests::cluster::Cluster;
use pgassay_tests::recorded::{Traffic, record};
use std::path::Path;

fn report(records: &[Record], claim: Option<Level>, workers: usize) -> String {
    let settings = Settings {
        claim,
        workers,
        ..Settings::default()
    };
    audited(records, settings).0
}

fn audited(records: &[Record], settings: Settings) -> (String, Stats) {
    let mut auditor = Auditor::new(settings);
    for record in records {
        auditor.take(record.clone());
    }
    auditor.finish();
    let summary = auditor.summary();
    let json = serde_json::to_string_pretty(&summary).expect("a summary is JSON");
    (json, auditor.stats())
}

#[test]
fn workers_and_the_journal_change_nothing() {
    let cluster = Cluster::start().unwrap();
    for claim in [None, Some("serializable")] {
        let traffic = Traffic {
            seed: 5,
            level: "read committed",
            claim,
            clients: 4,
            rounds: 12,
        };
        let (live, records) = record(&cluster, &traffic);
        let claimed: Option<Level> = claim.map(|c| c.parse().expect("a level"));
        let one = report(&records, claimed, 1);
        for workers in [2, 8] {
            let several = report(&records, claimed, workers);
            assert!(
                one == several,
                "claim {claim:?}: {workers} workers report something else than one"
            );
        }
        let live = serde_json::to_string_pretty(&live).expect("a summary is JSON");
        let difference = live.lines().zip(one.lines()).find(|(a, b)| a != b);
        assert!(
            live == one,
            "claim {claim:?}: live and offline differ: {difference:?}"
        );
        println!(
            "claim {claim:?}: {} records, {} bytes of report",
            records.len(),
            one.len()
        );
    }
}

/// Every answer of so many has a value that nobody wrote.
fn lie(records: &mut [Record], every: usize) {
    let mut count = 0;
    for record in records {
        let Record::Statement(statement) = record else {
            continue;
        };
        let Outcome::Answer(answer) = &mut statement.outcome else {
            continue;
        };
        if let Some(cell) = answer.rows.first_mut().and_then(|row| row.last_mut()) {
            count += 1;
            if count % every == 0 {
                *cell = Some(Bytes::from("10000007"));
            }
        }
    }
}

/// Journals with many wrong answers: suspicions of one fingerprint are in flight by the dozen, proved and repeated.
#[test]
fn workers_change_nothing_about_wrong_answers() {
    for name in ["bank-read-committed", "smallbank-serializable", "transfers-wrong"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("histories/workloads")
            .join(name);
        let reader = Reader::open(&dir, None).expect("the journal opens");
        let mut records: Vec<Record> = reader.map(|r| r.expect("a readable record")).collect();
        lie(&mut records, 20);
        // One after the other, each before anything else is judged.
        let on_the_spot = Settings {
            proofs_len_max: 0,
            ..Settings::default()
        };
        let (one, stats) = audited(&records, on_the_spot);
        println!("{name}: {} records, {} proofs", records.len(), stats.proofs);
        assert!(stats.proofs > 0, "{name}: {stats:?}");
        for (workers, proofs_len_max) in [(1, 64), (2, 64), (8, 64), (8, 1)] {
            let settings = Settings {
                workers,
                proofs_len_max,
                ..Settings::default()
            };
            let (several, _) = audited(&records, settings);
            assert!(
                one == several,
                "{name}: {workers} workers report something else than one"
            );
        }
    }
}
