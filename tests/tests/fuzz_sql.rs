//! Random statements on a real PostgreSQL and on the interpreter: the answers agree, or are unknown.
//!
//! `PGASSAY_FUZZ_SECONDS` says how long, `PGASSAY_FUZZ_SEED` runs one seed alone, `PGASSAY_FUZZ_FROM` begins with another.

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::fuzz_sql::{Tally, round};
use pgassay_tests::raw::Client;
use std::time::{Duration, Instant};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn fuzz(options: Options) {
    let cluster = Cluster::start_with(options).expect("a server");
    let mut client = Client::log_in(cluster.port());
    let seconds = number("PGASSAY_FUZZ_SECONDS").unwrap_or(15);
    let one = number("PGASSAY_FUZZ_SEED");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tally = Tally::default();
    let mut differences = Vec::new();
    let mut seed = one.or(number("PGASSAY_FUZZ_FROM")).unwrap_or(1);
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

#[test]
fn the_interpreter_agrees_with_postgresql() {
    fuzz(Options::default());
}

#[test]
fn the_interpreter_agrees_with_another_version() {
    if let Some(options) = Options::default().other_version() {
        fuzz(options);
    }
}
