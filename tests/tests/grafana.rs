//! Every query of every dashboard, asked of a real Prometheus that scrapes a real proxy under load.
//!
//! In: grafana/dashboards/*.json. Out: nothing, or the list of panels that would stay empty.

use pgassay_tests::cluster::Cluster;
use pgassay_tests::http;
use pgassay_tests::prometheus::Prometheus;
use pgassay_tests::proxy::Proxy;
use pgassay_tests::tools::root;
use pgassay_workloads::{Knobs, Length, Options, by_name};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Dashboard, panel and expression with the variables filled in.
fn queries() -> Vec<(String, String, String)> {
    let mut queries = Vec::new();
    for entry in fs::read_dir(root().join("grafana/dashboards")).expect("the folder of dashboards") {
        let text = fs::read_to_string(entry.expect("a dashboard").path()).expect("a dashboard is a file");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("a dashboard is JSON");
        for panel in dashboard["panels"].as_array().expect("a dashboard has panels") {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let mut expression = target["expr"].as_str().expect("a target has a query").to_owned();
                for variable in ["job", "instance", "rule", "level"] {
                    expression = expression.replace(&format!("${variable}\""), ".*\"");
                }
                let expression = expression
                    .replace("$__rate_interval", "60s")
                    .replace("$__range", "5m");
                assert!(
                    !expression.contains('$'),
                    "a variable that this test does not know: {expression}"
                );
                queries.push((name(&dashboard["uid"]), name(&panel["title"]), expression));
            }
        }
    }
    assert!(queries.len() > 40, "only {} queries", queries.len());
    queries
}

fn name(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Runs the bank through the proxy until told to stop.
fn load(target: String, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        runtime.block_on(async {
            let knobs = Knobs::default().set("accounts", 50.0);
            let workload: Arc<dyn pgassay_workloads::Workload> =
                by_name("bank", &knobs).expect("the bank exists").into();
            let mut options = Options::new(&target);
            options.clients = 2;
            options.length = Length::Transactions(20);
            pgassay_workloads::setup(&*workload, &options)
                .await
                .expect("the bank opens");
            while !stop.load(Ordering::Relaxed) {
                pgassay_workloads::run(workload.clone(), &options, |_| ())
                    .await
                    .expect("the bank works");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    })
}

#[test]
fn every_panel_has_data() {
    let cluster = Cluster::start().unwrap();
    let journal = tempfile::tempdir().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.admin.listen = Some("127.0.0.1:0".to_owned());
        config.journal.dir = Some(journal.path().join("journal"));
        config.side.enabled = true;
        config.side.uri = Some(cluster.uri());
    });
    let admin = proxy.running().admin_address().expect("an admin address");
    let prometheus = Prometheus::start(admin, None);
    let stop = Arc::new(AtomicBool::new(false));
    let load = load(proxy.uri(), stop.clone());

    let mut waiting = queries();
    let deadline = Instant::now() + Duration::from_secs(400);
    while !waiting.is_empty() && Instant::now() < deadline && !load.is_finished() {
        std::thread::sleep(Duration::from_secs(1));
        waiting
            .retain(|(_, _, expression)| !prometheus.ask(expression).iter().any(|value| value.is_finite()));
    }
    stop.store(true, Ordering::Relaxed);
    load.join().expect("the load did not fail");
    assert!(waiting.is_empty(), "without data: {waiting:#?}");

    // The alert on violations has a series of every rule to watch, and none of them fires.
    let rules = pgassay_rules::CATALOGUE.len();
    assert_eq!(
        prometheus.ask("count(count by (rule) (pgassay_violations_total))"),
        [rules as f64]
    );
    assert_eq!(prometheus.ask("sum(pgassay_violations_total)"), [0.0]);
    assert_eq!(prometheus.ask("ALERTS{severity=\"critical\"}"), [0.0; 0]);

    // promtool reads what we export.
    let text = http::get(admin, "/metrics", &[]).body;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics", "--extended"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed by deploy/setup.sh");
    promtool
        .stdin
        .take()
        .expect("a pipe")
        .write_all(text.as_bytes())
        .expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
