//! From a violation in real traffic to somebody's phone: by Prometheus and Alertmanager, and directly.

use pgassay::config::Webhook;
use pgassay::live::Live;
use pgassay::webhook::Webhooks;
use pgassay_audit::report::sample;
use pgassay_tests::cluster::{Cluster, free_port};
use pgassay_tests::http::Sink;
use pgassay_tests::proxy::Proxy;
use pgassay_tests::tools::root;
use pgassay_tests::{deps, http, lost};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; nothing depends on it when things work.
const PATIENCE: Duration = Duration::from_secs(300);

fn hook(sink: &Sink, kind: &str) -> Webhook {
    Webhook {
        url: format!("http://{}/hook", sink.address),
        kind: kind.to_owned(),
        key_file: None,
    }
}

#[test]
fn a_violation_reaches_the_pager() {
    let Some(prometheus) = deps::system("/usr/bin/prometheus") else {
        return;
    };
    let Some(alertmanager) = deps::system("/usr/bin/prometheus-alertmanager") else {
        return;
    };
    let cluster = Cluster::start().expect("a server");
    let (pager, direct) = (Sink::start(&[200]), Sink::start(&[200]));
    let direct_hook = hook(&direct, "json");
    let proxy = Proxy::start_with(&cluster.address(), move |config| {
        config.admin.listen = Some("127.0.0.1:0".to_owned());
        config.audit.claim = Some("serializable".to_owned());
        config.audit.writers = pgassay::config::Writers::Exclusive;
        config.webhooks = vec![direct_hook];
    });
    let admin = proxy.running().admin_address().expect("an admin address");

    let dir = tempfile::tempdir().unwrap();
    let _alertmanager = start_alertmanager(&alertmanager, dir.path(), pager.address);
    let alerts = _alertmanager.address;
    let prometheus = start_prometheus(&prometheus, dir.path(), admin, alerts);
    // The series must have been seen as 0 before it is 1: that is what every later violation finds, too.
    wait_for("Prometheus sees the proxy", || {
        let query = "/api/v1/query?query=count(pgassay_violations_total%20==%200)%20by%20(job)";
        http::try_get(prometheus.address, query, &[]).is_ok_and(|answer| answer.body.contains("\"pgassay\""))
    });

    lost::both(&proxy.uri());
    let committed = Instant::now();

    let told = direct
        .requests
        .recv_timeout(PATIENCE)
        .expect("the direct hook is told");
    println!(
        "COMMIT to the direct hook: {:.2} s",
        committed.elapsed().as_secs_f64()
    );
    let told: serde_json::Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!(told["violation"]["rule"], "lost_update");
    assert_eq!(told["violation"]["level"], "serializable");

    let page = loop {
        let page = pager.requests.recv_timeout(PATIENCE).expect("the pager is told");
        // Other alerts (no traffic yet …) may come first; only a violation pages.
        if page.body.contains("PgassayViolation") {
            break page;
        }
    };
    println!(
        "COMMIT to the pager by Prometheus and Alertmanager: {:.2} s",
        committed.elapsed().as_secs_f64()
    );
    // The counter leads to the story: its exemplar is the id, and Prometheus has taken it.
    let id = told["violation"]["id"].as_str().expect("an id").to_owned();
    wait_for("Prometheus has the exemplar", || {
        let query = "/api/v1/query_exemplars?query=pgassay_violations_total&start=0&end=9999999999";
        let answer = http::try_get(prometheus.address, query, &[]);
        answer.is_ok_and(|answer| answer.body.contains(&format!("\"violation_id\":\"{id}\"")))
    });
    let page: serde_json::Value = serde_json::from_str(&page.body).unwrap();
    let alerts = page["alerts"].as_array().expect("alerts");
    let alert = alerts
        .iter()
        .find(|alert| alert["labels"]["alertname"] == "PgassayViolation")
        .expect("our alert");
    assert_eq!(alert["labels"]["rule"], "lost_update");
    assert_eq!(alert["labels"]["level"], "serializable");
    assert_eq!(alert["labels"]["severity"], "critical");
    assert!(
        alert["annotations"]["runbook_url"]
            .as_str()
            .unwrap()
            .ends_with("/#/runbooks/lost_update")
    );
}

#[test]
fn a_hook_that_fails_is_told_again_and_only_once() {
    let sink = Sink::start(&[500, 429, 200]);
    let live = live_with(&sink, "slack", None);
    let webhooks = Webhooks::start(live.clone())
        .unwrap()
        .expect("a hook is configured");
    live.audit().summary = sample::summary();
    // Two violations: one is refused twice at first, both arrive in the end.
    let mut arrived = std::collections::BTreeSet::new();
    let mut requests = 0;
    while arrived.len() < 2 || requests < 4 {
        let request = sink.requests.recv_timeout(PATIENCE).expect("a request");
        requests += 1;
        let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        arrived.insert(body["text"].as_str().unwrap().to_owned());
    }
    webhooks.finish();
    assert_eq!(arrived.len(), 2, "{arrived:?}");
    assert!(sink.requests.try_recv().is_err(), "nothing is told twice");
}

#[test]
fn what_waits_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody listens at first.
    let port = free_port().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let hook = Webhook {
        url: format!("http://{address}/"),
        kind: "json".to_owned(),
        key_file: None,
    };
    let start = || {
        let mut config = pgassay::config::Config::default();
        config.webhooks = vec![hook.clone()];
        config.journal.dir = Some(dir.path().to_owned());
        let live = Arc::new(Live::new(config));
        let webhooks = Webhooks::start(live.clone())
            .unwrap()
            .expect("a hook is configured");
        (live, webhooks)
    };
    let (live, webhooks) = start();
    live.audit().summary.violations = vec![sample::lost_update()];
    wait_for("an attempt has failed", || {
        live.webhooks_failed.load(std::sync::atomic::Ordering::Relaxed) > 0
    });
    webhooks.finish();

    let sink = Sink::start_on(
        std::net::TcpListener::bind(address).expect("the port is still free"),
        &[200],
    );
    let (_live, webhooks) = start();
    let request = sink
        .requests
        .recv_timeout(PATIENCE)
        .expect("told after the restart");
    assert!(request.body.contains("lost_update"));
    webhooks.finish();

    let (live, webhooks) = start();
    live.audit().summary.violations = vec![sample::lost_update()];
    webhooks.finish();
    assert!(
        sink.requests.try_recv().is_err(),
        "its fingerprint was told already"
    );
}

fn live_with(sink: &Sink, kind: &str, journal: Option<&Path>) -> Arc<Live> {
    let mut config = pgassay::config::Config::default();
    config.webhooks = vec![hook(sink, kind)];
    config.journal.dir = journal.map(Path::to_owned);
    Arc::new(Live::new(config))
}

/// A program that ends with the test.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(mut command: Command, address: SocketAddr, path: &str) -> Running {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let running = Running { child, address };
    wait_for(path, || {
        http::try_get(address, path, &[]).is_ok_and(|answer| answer.status == 200)
    });
    running
}

fn start_alertmanager(program: &Path, dir: &Path, pager: SocketAddr) -> Running {
    let file = dir.join("alertmanager.yml");
    let text = format!(
        "route:\n  receiver: pager\n  group_wait: 0s\n  group_interval: 1s\n  repeat_interval: 1h\n  group_by: [alertname]\n\
         receivers:\n  - name: pager\n    webhook_configs:\n      - url: http://{pager}/page\n"
    );
    std::fs::write(&file, text).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.path={}", dir.join("alertmanager").display()));
    command
        .arg(format!("--web.listen-address={address}"))
        .arg("--cluster.listen-address=");
    start(command, address, "/-/ready")
}

fn start_prometheus(program: &Path, dir: &Path, proxy: SocketAddr, alertmanager: SocketAddr) -> Running {
    let file = dir.join("prometheus.yml");
    let rules = root().join("rules/alerts/pgassay.yml");
    let text = format!(
        "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: ['{}']\n\
         alerting:\n  alertmanagers:\n    - static_configs:\n        - targets: ['{alertmanager}']\n\
         scrape_configs:\n  - job_name: pgassay\n    static_configs:\n      - targets: ['{proxy}']\n",
        rules.display()
    );
    std::fs::write(&file, text).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!(
        "--storage.tsdb.path={}",
        dir.join("prometheus").display()
    ));
    command
        .arg(format!("--web.listen-address={address}"))
        .arg("--enable-feature=exemplar-storage");
    start(command, address, "/-/ready")
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
