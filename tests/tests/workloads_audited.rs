//! Every workload through the proxy with the audit running: a correct server gives no violation, and nearly
//! everything is checked; a claim that the server never made is found out.
//!
//! How much of a run can be checked depends on how its transactions met, which nobody decides: a few that meet badly
//! may leave one run mostly open. So the floor is one for all runs together.

use pgassay::config::Config;
use pgassay::serve::Running;
use pgassay::throwaway::{Throwaway, uri};
use pgassay_audit::verdict::Summary;
use pgassay_rules::Level;
use pgassay_tests::wait;
use pgassay_workloads::{CATALOGUE, Knobs, Length, Mode, Options, Workload, by_name, check, run, setup};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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

fn proxy(server: &Throwaway, claim: Option<Level>) -> Running {
    let mut config = Config {
        listen: vec!["127.0.0.1:0".to_owned()],
        ..Config::default()
    };
    config.upstream = server.uri();
    config.side.uri = Some(server.uri());
    config.admin.listen = None;
    config.audit.claim = claim.map(|level| level.name().to_owned());
    let proxy = Running::start(config).unwrap();
    wait::until("the side connection looks for other writers", || {
        proxy.live.side_connection_up.load(Ordering::Relaxed) == 1
    });
    proxy
}

/// Waits until the server has forgotten the sessions that prepared the data: they are no writers beside the proxy.
async fn alone(server: &Throwaway) {
    // A name that the proxy knows: this session may outlive its client by a moment, too.
    let client = connect(&format!("{}?application_name=pgassay", server.uri())).await;
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    while client.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn audited(
    runtime: &tokio::runtime::Runtime,
    server: &Throwaway,
    name: &str,
    level: Level,
    mode: Mode,
) -> Summary {
    let workload: Arc<dyn Workload> = by_name(name, &knobs(name)).unwrap().into();
    let mut options = Options::new(server.uri());
    options.level = level;
    options.mode = mode;
    options.clients = 4;
    options.length = Length::Transactions(15);
    runtime.block_on(async {
        setup(&*workload, &options).await.unwrap();
        alone(server).await;
    });
    let proxy = proxy(server, None);
    options.target = uri(proxy.port().unwrap());
    runtime.block_on(async {
        run(workload.clone(), &options, |_| {}).await.unwrap();
        let failed = check(&*workload, &options).await.unwrap();
        assert!(failed.is_empty(), "{name} at {level}, {mode}: {}", failed[0]);
    });
    let summary = proxy.stop().summary();
    let told: Vec<&str> = summary
        .violations
        .iter()
        .map(|violation| violation.story.as_str())
        .collect();
    assert!(
        told.is_empty(),
        "{name} at {level}, {mode}: false alarms on a correct server\n{}",
        told.join("\n")
    );
    assert!(summary.statements > 60, "{name} at {level}, {mode}: {summary:?}");
    summary
}

#[test]
fn a_correct_server_is_found_correct() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Throwaway::start(&[("deadlock_timeout", "20ms")]).unwrap();
    let variants = [
        (Level::ReadCommitted, Mode::Prepared),
        (Level::RepeatableRead, Mode::Extended),
        (Level::Serializable, Mode::Simple),
    ];
    let (mut all_checked, mut all_statements) = (0, 0);
    for (name, _, _) in CATALOGUE {
        for (level, mode) in variants {
            let summary = audited(&runtime, &server, name, level, mode);
            let coverage = &summary.coverage;
            let share = coverage.checked as f64 / summary.statements.max(1) as f64;
            println!(
                "{name:12} {:16} {:5.1} % checked {:?}",
                level.name(),
                share * 100.0,
                coverage.reasons
            );
            assert!(
                coverage.checked > 0,
                "{name} at {level}, {mode}: nothing was checked: {:?}",
                coverage.reasons
            );
            all_checked += coverage.checked;
            all_statements += summary.statements;
        }
    }
    let share = all_checked as f64 / all_statements as f64;
    println!("all together: {:.1} % checked", share * 100.0);
    assert!(share > 0.8, "only {share:.2} of all statements were checked");
}

/// Two clients read a balance and each writes it back: allowed at READ COMMITTED, never serializable.
#[test]
fn a_lost_update_contradicts_a_claim() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Throwaway::start(&[]).unwrap();
    runtime.block_on(async {
        let client = connect(&server.uri()).await;
        client
            .batch_execute("CREATE TABLE accounts (id int PRIMARY KEY, balance int); INSERT INTO accounts VALUES (1, 100)")
            .await
            .unwrap();
    });
    for (claim, expected) in [(None, None), (Some(Level::Serializable), Some("lost_update"))] {
        let proxy = proxy(&server, claim);
        runtime.block_on(async {
            let target = uri(proxy.port().unwrap());
            let (one, two) = (connect(&target).await, connect(&target).await);
            for client in [&one, &two] {
                client
                    .simple_query("BEGIN ISOLATION LEVEL READ COMMITTED")
                    .await
                    .unwrap();
                client
                    .simple_query("SELECT balance FROM accounts WHERE id = 1")
                    .await
                    .unwrap();
            }
            one.simple_query("UPDATE accounts SET balance = 110 WHERE id = 1")
                .await
                .unwrap();
            one.simple_query("COMMIT").await.unwrap();
            two.simple_query("UPDATE accounts SET balance = 120 WHERE id = 1")
                .await
                .unwrap();
            two.simple_query("COMMIT").await.unwrap();
            one.simple_query("UPDATE accounts SET balance = 100 WHERE id = 1")
                .await
                .unwrap();
        });
        let told: Vec<String> = proxy
            .stop()
            .summary()
            .violations
            .into_iter()
            .map(|violation| violation.rule)
            .collect();
        assert_eq!(
            told.first().map(String::as_str),
            expected,
            "claim {claim:?}: {told:?}"
        );
    }
}

async fn connect(target: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(target, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}
