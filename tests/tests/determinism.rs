//! The same records give the same report, byte for byte: with any number of workers, live and from the journal.

use pgassay_audit::trace::Record;
use pgassay_audit::{Auditor, Settings};
use pgassay_rules::Level;
use pgassay_tests::cluster::Cluster;
use pgassay_tests::recorded::{Traffic, record};

fn report(records: &[Record], claim: Option<Level>, workers: usize) -> String {
    let mut auditor = Auditor::new(Settings {
        claim,
        workers,
        ..Settings::default()
    });
    for record in records {
        auditor.take(record.clone());
    }
    auditor.finish();
    serde_json::to_string_pretty(&auditor.summary()).expect("a summary is JSON")
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
