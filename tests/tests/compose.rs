//! What the compose file starts, started here without containers: its own environment, commands and configuration files,
//! with the names of its services replaced by addresses of this machine.
//!
//! A violation must get as far as the page, Prometheus and Alertmanager, as the file promises. Images are not built
//! here, and there is no Grafana: its queries have a test of their own.

use pgassay_tests::cluster::{Cluster, Options, free_port};
use pgassay_tests::deps;
use pgassay_tests::http::{get, try_get};
use pgassay_tests::prometheus::{Alertmanager, Prometheus};
use pgassay_tests::tools::{binary, root};
use pgassay_tests::wait::until;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compose() -> Value {
    let python = deps::find("validators")
        .expect("deploy/setup.sh test")
        .join("bin/python");
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let file = root().join("deploy/compose/compose.yaml");
    let output = Command::new(python).args(["-c", script]).arg(file).output();
    serde_json::from_slice(&output.expect("Python runs").stdout).expect("the file is YAML")
}

/// `name: value` of a service.
fn environment(service: &Value) -> Vec<(String, String)> {
    let all = service["environment"].as_object().expect("an environment");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    all.iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
}

fn command(service: &Value) -> Vec<String> {
    let words = service["command"].as_array().expect("a command");
    words
        .iter()
        .map(|word| word.as_str().expect("a word").to_owned())
        .collect()
}

/// The variables that the image sets.
fn image() -> Vec<(String, String)> {
    let file = std::fs::read_to_string(root().join("deploy/docker/Dockerfile")).unwrap();
    let words = file.split_whitespace().filter_map(|word| word.split_once('='));
    let ours = words.filter(|(name, _)| name.starts_with("PGASSAY_"));
    ours.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Where the services of the file are on this machine.
struct Places(Vec<(&'static str, String)>);

impl Places {
    fn here(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, (name, place)| text.replace(name, place))
    }
}

fn pgassay(words: &[String], variables: &[(String, String)], places: &Places, dir: &Path) -> Started {
    let log = std::fs::File::create(dir.join(format!("{}.log", words[0]))).unwrap();
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
        .args(words.iter().map(|word| places.here(word)))
        .envs(variables.iter().map(|(name, value)| (name, places.here(value))))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    Started(command.spawn().expect("pgassay starts"))
}

#[test]
fn what_compose_starts_shows_a_violation_everywhere() {
    let file = compose();
    let services = &file["services"];
    let password = services["postgres"]["environment"]["POSTGRES_PASSWORD"].as_str();
    let password = password.expect("a password").to_owned();
    let cluster =
        Cluster::start_with(Options::default().password("scram-sha-256", &password)).expect("a server");
    let psql = cluster.program("psql");
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "a token of this test").unwrap();
    let (port, admin) = (free_port().unwrap(), free_port().unwrap());
    let admin_address = SocketAddr::from(([127, 0, 0, 1], admin));
    let alertmanager = std::fs::read_to_string(root().join("deploy/compose/alertmanager.yml")).unwrap();
    let alertmanager = Alertmanager::start_with(&alertmanager);
    let places = Places(vec![
        ("postgres:5432", cluster.address()),
        ("pgassay:6432", format!("127.0.0.1:{port}")),
        ("0.0.0.0:6432", format!("127.0.0.1:{port}")),
        ("pgassay:9632", admin_address.to_string()),
        ("0.0.0.0:9632", admin_address.to_string()),
        ("alertmanager:9093", alertmanager.address().to_string()),
        ("/run/secrets/admin_token", token.display().to_string()),
        ("/var/lib/pgassay", dir.path().display().to_string()),
        (
            "/etc/prometheus/rules/pgassay.yml",
            root().join("rules/alerts/pgassay.yml").display().to_string(),
        ),
    ]);
    run_psql(&psql, &cluster, &password, "postgres", "CREATE DATABASE demo");

    let variables = [image(), environment(&services["pgassay"])].concat();
    let _proxy = pgassay(&command(&services["pgassay"]), &variables, &places, dir.path());
    until("the proxy is ready", || {
        try_get(admin_address, "/readyz", &[]).is_ok_and(|answer| answer.status == 200)
    });
    let config = std::fs::read_to_string(root().join("deploy/compose/prometheus.yml")).unwrap();
    let prometheus = Prometheus::start_with(&places.here(&config));
    // A slow machine must be able to judge what a fast server answers: fewer clients than there.
    let mut workload = command(&services["workload"]);
    workload.extend(["--clients".to_owned(), "1".to_owned()]);
    let _workload = pgassay(&workload, &[], &places, dir.path());
    let bearer = [("Authorization", "Bearer a token of this test")];
    let live = || get(admin_address, "/api/live", &bearer).json();
    until("the workload is judged", || {
        live()["transactions"].as_u64() > Some(50)
    });
    assert_eq!(live()["violations"], 0, "nothing is wrong yet");
    until("Prometheus sees it", || {
        prometheus.ask("up{job=\"pgassay\"}") == [1.0]
    });

    // psql -h postgres … -c "UPDATE …": past the proxy, although the audit was told that nobody does that.
    let mischief = command(&services["mischief"]);
    assert_eq!(mischief[0], "psql");
    run_psql(
        &psql,
        &cluster,
        &password,
        "demo",
        mischief.last().expect("an update"),
    );
    until("the violation is on the page", || {
        let list = get(admin_address, "/api/violations", &bearer).json();
        list.as_array().is_some_and(|list| !list.is_empty())
    });
    until("Alertmanager has the alert", || {
        let alerts = get(alertmanager.address(), "/api/v2/alerts", &[]).json();
        let alerts = alerts.as_array().cloned().unwrap_or_default();
        alerts
            .iter()
            .any(|alert| alert["labels"]["alertname"] == "PgassayViolation")
    });
    assert_eq!(
        try_get(admin_address, "/api/violations", &[]).unwrap().status,
        401
    );
}

fn run_psql(psql: &Path, cluster: &Cluster, password: &str, database: &str, sql: &str) {
    let done = Command::new(psql)
        .args([
            "-XAtq",
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-d",
            database,
            "-c",
            sql,
        ])
        .env("PGPORT", cluster.port().to_string())
        .env("PGPASSWORD", password)
        .status();
    assert!(done.expect("psql runs").success(), "{sql}");
}
