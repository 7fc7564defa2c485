//! From a violation in the traffic to the pager: proxy → /metrics → Prometheus → Alertmanager → webhook.
//!
//! The server is a healthy one: its READ COMMITTED traffic is judged as if REPEATABLE READ had been claimed, so that
//! a second look which sees more than the first is a violation, in no hurry and without any race.

use pgassay::config::Writers;
use pgassay_rules::anomaly;
use pgassay_tests::cluster::Cluster;
use pgassay_tests::http::Sink;
use pgassay_tests::prometheus::{Alertmanager, Prometheus};
use pgassay_tests::proxy::Proxy;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

async fn connect(uri: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(uri, NoTls)
        .await
        .expect("the proxy accepts us");
    tokio::spawn(connection);
    client
}

/// Looks twice; in between somebody else inserts. Returns when the last COMMIT was answered.
async fn look_twice(uri: &str) -> Instant {
    let (one, other) = (connect(uri).await, connect(uri).await);
    let look = "SELECT id FROM account WHERE balance >= 100 ORDER BY id";
    other
        .batch_execute("CREATE TABLE account (id int PRIMARY KEY, balance int)")
        .await
        .unwrap();
    other
        .batch_execute("INSERT INTO account VALUES (1, 100), (2, 200)")
        .await
        .unwrap();
    one.batch_execute("BEGIN").await.unwrap();
    assert_eq!(one.query(look, &[]).await.unwrap().len(), 2);
    other
        .batch_execute("INSERT INTO account VALUES (3, 300)")
        .await
        .unwrap();
    assert_eq!(one.query(look, &[]).await.unwrap().len(), 3);
    one.batch_execute("COMMIT").await.unwrap();
    Instant::now()
}

#[test]
fn a_violation_reaches_the_pager() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.admin.listen = Some("127.0.0.1:0".to_owned());
        config.audit.claim = Some("repeatable-read".to_owned());
        // Nobody else knows of this server: what was not seen did not happen.
        config.audit.writers = Writers::Exclusive;
    });
    let pager = Sink::start(&[200]);
    let alertmanager = Alertmanager::start(pager.address);
    let prometheus = Prometheus::start(
        proxy.running().admin_address().expect("an admin address"),
        Some(&alertmanager),
    );
    // The series are seen with 0 before anything happens: that is what makes the first violation an increase.
    let deadline = Instant::now() + Duration::from_secs(180);
    while prometheus
        .ask("min(count_over_time(pgassay_violations_total[1m])) > 1")
        .is_empty()
    {
        assert!(Instant::now() < deadline, "prometheus sees no violation series");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(prometheus.ask("sum(pgassay_violations_total)"), [0.0]);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let committed = runtime.block_on(look_twice(&proxy.uri()));

    let deadline = Instant::now() + Duration::from_secs(300);
    let alert = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let request = pager.requests.recv_timeout(left).expect("the pager rings");
        let message: serde_json::Value =
            serde_json::from_str(&request.body).expect("alertmanager sends JSON");
        let alerts = message["alerts"].as_array().cloned().unwrap_or_default();
        if let Some(alert) = alerts
            .into_iter()
            .find(|alert| alert["labels"]["alertname"] == "PgassayViolation")
        {
            break alert;
        }
    };
    println!(
        "from COMMIT to the webhook: {:.1} s",
        committed.elapsed().as_secs_f64()
    );

    assert_eq!(alert["status"], "firing");
    assert_eq!(alert["labels"]["severity"], "critical");
    assert_eq!(alert["labels"]["level"], "repeatable-read");
    let rule = alert["labels"]["rule"]
        .as_str()
        .expect("the alert names its rule");
    assert!(anomaly::by_name(rule).is_some(), "{rule} is in the catalogue");
    let runbook = alert["annotations"]["runbook_url"]
        .as_str()
        .expect("the alert has a runbook");
    assert!(runbook.ends_with(&format!("/#/runbooks/{rule}")), "{runbook}");

    // What rang is what the proxy itself tells.
    let violations = proxy.live().violations();
    assert!(
        violations.iter().any(|violation| violation.rule == rule),
        "{violations:?}"
    );
}
