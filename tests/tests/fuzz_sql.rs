//! Random statements on a real PostgreSQL and on the interpreter: the answers agree, or are unknown.
//!
//! The seeds are those of [`pgassay_tests::seeds`].

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::fuzz_sql::{Tally, round};
use pgassay_tests::raw::Client;
use pgassay_tests::seeds::{assert_none, try_seeds};

/// Seeds that are tried when no time is given.
const ROUNDS: u64 = 20;

fn fuzz(options: Options) {
    let cluster = Cluster::start_with(options).expect("a server");
    let mut client = Client::log_in(cluster.port());
    let mut tally = Tally::default();
    let differences = try_seeds(ROUNDS, |seed| {
        round(&mut client, seed, 120, &mut tally).map_err(|difference| difference.to_string())
    });
    println!("{}", tally.report());
    assert!(tally.statements > 0, "nothing was tried");
    assert_none(&differences);
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
