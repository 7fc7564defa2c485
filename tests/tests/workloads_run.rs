//! Every workload, small, on a real server, at all three levels and in every mode; its checks hold afterwards.

use pgassay::throwaway::Throwaway;
use pgassay_rules::Level;
use pgassay_workloads::{CATALOGUE, Knobs, Length, Mode, Options, by_name, check, run, setup};
use std::sync::Arc;

/// Small data, so that transactions meet each other.
fn knobs(name: &str) -> Knobs {
    match name {
        "bank" => Knobs::default()
            .set("accounts", 20.0)
            .set("blind", 0.3)
            .set("totals", 0.05),
        "smallbank" => Knobs::default().set("customers", 20.0).set("hot", 5.0),
        "tpcc" => Knobs::default().set("tiny", 1.0),
        _ => Knobs::default().scaled(0.05),
    }
}

async fn run_and_check(target: &str, name: &str, level: Level, mode: Mode) {
    let workload: Arc<dyn pgassay_workloads::Workload> = by_name(name, &knobs(name)).unwrap().into();
    let mut options = Options::new(target);
    options.level = level;
    options.mode = mode;
    options.clients = 4;
    options.length = Length::Transactions(40);
    setup(&*workload, &options).await.unwrap();
    let mut ticks = 0;
    let summary = run(workload.clone(), &options, |_| ticks += 1).await.unwrap();
    assert!(ticks > 0);
    let refused: u64 = summary
        .aborts
        .iter()
        .filter(|(state, _)| state.starts_with("23"))
        .map(|(_, n)| n)
        .sum();
    assert_eq!(
        summary.transactions() + summary.given_up + refused,
        160,
        "{name} {level} {mode}: {summary:?}"
    );
    let failed = check(&*workload, &options).await.unwrap();
    assert!(failed.is_empty(), "{name} at {level}, {mode}: {}", failed[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workload_keeps_its_promises_at_every_level() {
    let server = Throwaway::start(&[("deadlock_timeout", "20ms")]).unwrap();
    for (name, _, _) in CATALOGUE {
        for level in [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable] {
            run_and_check(&server.uri(), name, level, Mode::Prepared).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workload_speaks_every_mode() {
    let server = Throwaway::start(&[("deadlock_timeout", "20ms")]).unwrap();
    for (name, _, make) in CATALOGUE {
        let mut modes = vec![Mode::Simple, Mode::Extended];
        if make(&Knobs::default()).has_procedures() {
            modes.push(Mode::Procedures);
        }
        for mode in modes {
            run_and_check(&server.uri(), name, Level::RepeatableRead, mode).await;
        }
    }
}

/// The same seed gives the same transactions, whatever the other clients do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_repeats_its_run() {
    let server = Throwaway::start(&[]).unwrap();
    let mut contents = Vec::new();
    for _ in 0..2 {
        let workload: Arc<dyn pgassay_workloads::Workload> = by_name("bank", &knobs("bank")).unwrap().into();
        let mut options = Options::new(server.uri());
        options.clients = 1;
        options.length = Length::Transactions(60);
        setup(&*workload, &options).await.unwrap();
        run(workload, &options, |_| {}).await.unwrap();
        let (client, connection) = tokio_postgres::connect(&server.uri(), tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        let rows = client
            .query("SELECT id, balance FROM accounts ORDER BY id", &[])
            .await
            .unwrap();
        contents.push(
            rows.iter()
                .map(|row| (row.get(0), row.get(1)))
                .collect::<Vec<(i32, i64)>>(),
        );
    }
    assert_eq!(contents[0], contents[1]);
    assert!(contents[0].iter().any(|(_, balance)| *balance != 1_000));
}
