//! Values, operators, functions, casts and aggregates against a real server: equal, or unknown.
//!
//! `PGASSAY_FUZZ_SECONDS` (default 15) and `PGASSAY_FUZZ_SEED` steer it; `PGASSAY_PG_BIN` names another
//! server. A failure prints the seed.

use pgassay_tests::cluster::Cluster;
use pgassay_tests::fuzz_values::{Server, run};
use std::time::Duration;

#[tokio::test]
async fn the_model_agrees_with_the_server() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |value| {
            value.parse().expect("a whole number in the environment")
        })
    };
    let seed = setting("PGASSAY_FUZZ_SEED", 1);
    let seconds = setting("PGASSAY_FUZZ_SECONDS", 15);
    let cluster = Cluster::start().expect("a throw-away PostgreSQL server");
    let server = Server::prepare(&cluster.uri())
        .await
        .expect("a database for the value tests");
    let report = run(&server, seed, Duration::from_secs(seconds))
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
    assert!(
        report.expressions > 500,
        "the server was too slow to say anything"
    );
    assert!(
        report.differences.is_empty(),
        "the model and the server differ (seed {seed})"
    );
    assert!(report.unknown_share() < 0.35, "the model says unknown too often");
}
