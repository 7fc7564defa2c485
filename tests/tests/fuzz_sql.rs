//! Random statements on a real PostgreSQL and on the interpreter: the answers agree, or are unknown.
//!
//! The same seeds on every machine; `PGASSAY_FUZZ_SECONDS` goes on for so long instead, `PGASSAY_FUZZ_SEED` runs one
//! seed alone, `PGASSAY_FUZZ_FROM` begins with another.

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::fuzz_sql::{Tally, round};
use pgassay_tests::raw::Client;
use std::time::{Duration, Instant};

/// Seeds that are tried when no time is given.
const ROUNDS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn fuzz(options: Options) {
    let cluster = Cluster::start_with(options).expect("a server");
    let mut client = Client::log_in(cluster.port());
    let one = number("PGASSAY_FUZZ_SEED");
    let end = number("PGASSAY_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut tally = Tally::default();
    let mut differences = Vec::new();
    let first = one.or(number("PGASSAY_FUZZ_FROM")).unwrap_or(1);
    let mut seed = first;
    while differences.len() < 12 {
        if let Err(difference) = round(&mut client, seed, 120, &mut tally) {
            differences.push(difference.to_string());
        }
        seed += 1;
        let enough = match end {
            Some(end) => Instant::now() >= end,
            None => seed - first >= ROUNDS,
        };
        if one.is_some() || enough {
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
