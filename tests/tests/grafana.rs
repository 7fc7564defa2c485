//! Every query of every dashboard, asked of a real Prometheus that scrapes a real proxy under load.
//!
//! In: grafana/dashboards/*.json. Out: nothing, or the list of panels that would stay empty.

use pgassay_tests::cluster::{Cluster, free_port};
use pgassay_tests::proxy::Proxy;
use pgassay_workloads::{Knobs, Length, Options, by_name};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
        .to_owned()
}

/// HTTP/1.0, so that the answer comes in one piece.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

/// Prometheus with our alert rules, scraping every second; ends when it is dropped.
struct Prometheus {
    port: u16,
    server: Child,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: u16) -> Prometheus {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\nscrape_configs:\n  \
             - job_name: pgassay\n    static_configs: [{{ targets: ['127.0.0.1:{target}'] }}]\n",
            root().join("rules/alerts/pgassay.yml").display()
        );
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, config).expect("a configuration file");
        let port = free_port().expect("a free port");
        let log = fs::File::create(dir.path().join("log")).expect("a log file");
        let server = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--enable-feature=exemplar-storage")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus is installed by deploy/setup.sh");
        let prometheus = Prometheus {
            port,
            server,
            _dir: dir,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while get(port, "/-/ready").is_none_or(|body| !body.contains("Ready")) {
            assert!(Instant::now() < deadline, "prometheus does not become ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        prometheus
    }

    /// The values of an instant query; an error of Prometheus is a panic that tells it.
    fn ask(&self, expression: &str) -> Vec<f64> {
        let body = get(
            self.port,
            &format!("/api/v1/query?query={}", percent_encode(expression)),
        );
        let answer: serde_json::Value =
            serde_json::from_str(&body.expect("prometheus answers")).expect("prometheus answers in JSON");
        assert_eq!(answer["status"], "success", "{expression}\n{answer}");
        let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        series
            .iter()
            .filter_map(|one| one["value"][1].as_str()?.parse().ok())
            .collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

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
                    .replace("$__rate_interval", "20s")
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
    let admin = proxy.running().admin_address().expect("an admin address").port();
    let prometheus = Prometheus::start(admin);
    let stop = Arc::new(AtomicBool::new(false));
    let load = load(proxy.uri(), stop.clone());

    let mut waiting = queries();
    let deadline = Instant::now() + Duration::from_secs(120);
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
    let text = get(admin, "/metrics").expect("metrics");
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
