//! Random statements on a real PostgreSQL and on the interpreter: the answers agree, or are unknown.

use pgassay_tests::cluster::Cluster;
use pgassay_tests::fuzz_sql::{Tally, round};
use pgassay_tests::raw::Client;
use std::time::{Duration, Instant};

#[test]
fn the_interpreter_agrees_with_postgresql() {
    let cluster = Cluster::start().expect("a server");
    let mut client = Client::log_in(cluster.port());
    let seconds = std::env::var("PGASSAY_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(30);
    let one: Option<u64> = std::env::var("PGASSAY_FUZZ_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tally = Tally::default();
    let mut differences = Vec::new();
    let mut seed = one.unwrap_or(1);
    // The number of rounds depends on the machine; what each of them does depends on its seed alone.
    while differences.len() < 12 {
        if let Err(difference) = round(&mut client, seed, 120, &mut tally) {
            differences.push(difference.to_string());
        }
        seed += 1;
        if one.is_some() || Instant::now() >= end {
            break;
        }
    }
    println!("{}", tally.report());
    assert!(tally.statements > 0, "nothing was tried");
    assert!(
        differences.is_empty(),
        "{} differences:\n\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}
