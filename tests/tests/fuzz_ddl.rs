//! Random changes of the catalog on a real PostgreSQL and on the interpreter: what the server then accepts and answers agrees, or is
//! unknown.
//!
//! The seeds are those of [`pgassay_tests::seeds`].

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::fuzz_ddl::{Tally, round};
use pgassay_tests::raw::Client;
use pgassay_tests::seeds::{assert_none, try_seeds};

/// Seeds that are tried when no time is given.
const ROUNDS: u64 = 40;

fn fuzz(options: Options) {
    let cluster = Cluster::start_with(options).expect("a server");
    let mut client = Client::log_in(cluster.port());
    let mut tally = Tally::default();
    let differences = try_seeds(ROUNDS, |seed| round(&mut client, seed, 30, &mut tally));
    println!("{}", tally.report());
    assert!(tally.answers > tally.unknown, "nothing was compared");
    assert_none(&differences);
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
