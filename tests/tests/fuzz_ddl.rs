//! Random changes of the catalog on a real PostgreSQL and on the interpreter: what the server then accepts and answers agrees, or is
//! unknown.
//!
//! The same seeds on every machine; `PGASSAY_FUZZ_SECONDS` goes on for so long instead, `PGASSAY_FUZZ_SEED` runs one seed alone,
//! `PGASSAY_FUZZ_FROM` begins with another.

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::fuzz_ddl::{Tally, round};
use pgassay_tests::raw::Client;
use std::time::{Duration, Instant};

/// Seeds that are tried when no time is given.
const ROUNDS: u64 = 40;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn fuzz(options: Options) {
    let cluster = Cluster::start_with(options).expect("a server");
    let mut client = Client::log_in(cluster.port());
    let one = number("PGASSAY_FUZZ_SEED");
    let end = number("PGASSAY_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = one.or(number("PGASSAY_FUZZ_FROM")).unwrap_or(1);
    let mut tally = Tally::default();
    let mut differences = Vec::new();
    let mut seed = first;
    while differences.len() < 12 {
        differences.extend(round(&mut client, seed, 30, &mut tally).err());
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
    assert!(tally.answers > tally.unknown, "nothing was compared");
    assert!(
        differences.is_empty(),
        "{} differences:\n\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

#[test]
fn changes_of_the_catalog_are_followed() {
    fuzz(Options::default());
}

#[test]
fn changes_of_the_catalog_are_followed_with_another_version() {
    if let Some(options) = Options::default().other_version() {
        fuzz(options);
    }
}
