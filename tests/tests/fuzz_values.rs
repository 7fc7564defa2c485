//! Values, operators, functions, casts and aggregates against a real server: equal, or unknown.
//!
//! The same expressions on every machine; `PGASSAY_FUZZ_SECONDS` goes on for so long instead, `PGASSAY_FUZZ_SEED` makes
//! others, `PGASSAY_PG_BIN` names another server. A failure prints the seed.

use pgassay_tests::cluster::Cluster;
use pgassay_tests::fuzz_values::{Length, Server, run};
use std::time::Duration;

#[tokio::test]
async fn the_model_agrees_with_the_server() {
    let setting = |name: &str| -> Option<u64> {
        let value = std::env::var(name).ok()?;
        Some(value.parse().expect("a whole number in the environment"))
    };
    let seed = setting("PGASSAY_FUZZ_SEED").unwrap_or(1);
    let length = match setting("PGASSAY_FUZZ_SECONDS") {
        Some(seconds) => Length::Time(Duration::from_secs(seconds)),
        None => Length::Expressions(10_000),
    };
    let cluster = Cluster::start().expect("a throw-away PostgreSQL server");
    let server = Server::prepare(&cluster.uri())
        .await
        .expect("a database for the value tests");
    let report = run(&server, seed, length)
        .await
        .expect("a run of the value tests");
    println!("{}", report.table());
    println!("unresolved names: {:?}", report.unresolved);
    println!(
        "{} expressions, {:.1} % unknown, {} differences, seed {seed}",
        report.expressions,
        100.0 * report.unknown_share(),
        report.differences.len()
    );
    for difference in &report.differences {
        println!("{difference}");
    }
    assert!(report.expressions > 0, "nothing was tried");
    assert!(
        report.differences.is_empty(),
        "the model and the server differ (seed {seed})"
    );
    assert!(report.unknown_share() < 0.35, "the model says unknown too often");
}
