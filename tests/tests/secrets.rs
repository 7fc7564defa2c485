//! With `journal.redact = "hash"` a value of the application appears nowhere: not on disk, not on the page, not in a
//! report, not in a log line, not in what the pager is told.
//!
//! The traffic is real and so is the violation: every place that could tell its story is asked for it.

use pgassay_tests::cluster::{Cluster, free_port, send};
use pgassay_tests::http::{Sink, get, try_get};
use pgassay_tests::lost::connect;
use pgassay_tests::tools::binary;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Values that must not get out; the number is one that nothing else has.
const TEXT: &str = "hunter2-4f1c";
const NUMBER: &str = "918273645";
const PATIENCE: Duration = Duration::from_secs(300);

/// Two clients lose an update of secret values; a third fails on a secret key. Names are not secret.
async fn traffic(uri: &str) {
    let setup = connect(uri).await;
    let table = "create table vault (id int primary key, word text unique, amount int)";
    setup.batch_execute(table).await.unwrap();
    let row = format!("insert into vault values (1, '{TEXT}', 1), (2, 'other', 2)");
    setup.batch_execute(&row).await.unwrap();
    drop(setup);
    let (one, two) = (connect(uri).await, connect(uri).await);
    let read = format!("select amount, word from vault where word = '{TEXT}' /* {TEXT} */");
    for client in [&one, &two] {
        client.batch_execute("begin").await.unwrap();
        client.simple_query(&read).await.unwrap();
    }
    let text: &str = TEXT;
    let amount: i32 = NUMBER.parse().unwrap();
    for client in [&one, &two] {
        let sql = "update vault set amount = $1 where word = $2";
        assert_eq!(client.execute(sql, &[&amount, &text]).await.unwrap(), 1);
        client.batch_execute("commit").await.unwrap();
    }
    let twice = format!("insert into vault values (3, '{TEXT}', {NUMBER})");
    let refused = one
        .simple_query(&twice)
        .await
        .expect_err("the word is there already");
    let detail = format!("{:?}", refused.as_db_error().and_then(|e| e.detail()));
    assert!(
        detail.contains(TEXT),
        "the server itself says it in its errors: {detail}"
    );
}

#[test]
fn a_secret_value_appears_nowhere() {
    let cluster = Cluster::start().expect("a server");
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    std::fs::write(place("key"), "0123456789abcdef".repeat(4)).unwrap();
    let hooks = ["json", "slack", "pagerduty"].map(|kind| (kind, Sink::start(&[200])));
    let (port, admin) = (free_port().unwrap(), free_port().unwrap());
    let mut config = format!(
        "listen = [\"127.0.0.1:{port}\"]\nupstream = \"{}\"\n\
         [admin]\nlisten = \"127.0.0.1:{admin}\"\n\
         [audit]\nclaim = \"serializable\"\nwriters = \"exclusive\"\n\
         [side]\nuri = \"{}\"\n\
         [log]\nlevel = \"debug\"\n\
         [journal]\ndir = \"{}\"\nredact = \"hash\"\nkey_file = \"{}\"\n",
        cluster.address(),
        cluster.uri(),
        place("journal").display(),
        place("key").display()
    );
    for (kind, sink) in &hooks {
        config.push_str(&format!(
            "[[webhooks]]\nurl = \"http://{}/\"\nkind = \"{kind}\"\nkey_file = \"{}\"\n",
            sink.address,
            place("key").display()
        ));
    }
    std::fs::write(place("pgassay.toml"), config).unwrap();
    let log = std::fs::File::create(place("log")).unwrap();
    let mut proxy = Command::new(binary())
        .args(["proxy", "--config"])
        .arg(place("pgassay.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("the proxy starts");
    let admin = SocketAddr::from(([127, 0, 0, 1], admin));
    wait_for("the proxy is ready", || {
        try_get(admin, "/readyz", &[]).is_ok_and(|r| r.status == 200)
    });
    let uri = format!("postgresql://postgres@127.0.0.1:{port}/postgres");
    tokio::runtime::Runtime::new().unwrap().block_on(traffic(&uri));
    wait_for("the violation is found", || {
        get(admin, "/api/live", &[]).json()["violations"] != 0
    });

    wait_for("the journal is on the disk", || {
        let files = std::fs::read_dir(place("journal")).map(|entries| entries.flatten().collect::<Vec<_>>());
        files.is_ok_and(|files| {
            files
                .iter()
                .any(|file| file.file_name().to_string_lossy().starts_with("segment-"))
        })
    });

    let mut told = Vec::new();
    for (kind, sink) in &hooks {
        let request = sink.requests.recv_timeout(PATIENCE).expect("the hook is told");
        told.push((
            format!("the {kind} hook"),
            format!("{:?} {}", request.headers, request.body),
        ));
    }
    told.extend(pages(admin));
    send("TERM", proxy.id());
    proxy.wait().expect("it ends");
    told.extend(reports(dir.path()));
    for entry in std::fs::read_dir(place("journal")).unwrap().flatten() {
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        told.push((
            entry.path().display().to_string(),
            String::from_utf8_lossy(&bytes).into_owned(),
        ));
    }
    let log = std::fs::read_to_string(place("log")).unwrap();
    assert!(
        log.contains("recorded data was read") && log.contains("/api/violations"),
        "{log}"
    );
    told.push(("the log".to_owned(), log));
    for (name, text) in &told {
        for secret in [TEXT, NUMBER] {
            assert!(!text.contains(secret), "{secret} in {name}:\n{text}");
        }
    }
    assert!(told.len() > 20, "only {} places were looked at", told.len());
}

/// Everything that the admin address serves.
fn pages(admin: SocketAddr) -> Vec<(String, String)> {
    let list = get(admin, "/api/violations", &[]).json();
    let ids: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|v| v["id"].as_str())
        .collect();
    assert!(!ids.is_empty());
    let mut paths: Vec<String> = [
        "/metrics",
        "/api/summary",
        "/api/violations?full=true",
        "/api/coverage",
        "/api/live",
    ]
    .map(str::to_owned)
    .into();
    for id in ids {
        paths.push(format!("/api/violations/{id}"));
        for kind in [
            "json", "html", "svg", "script", "spec", "text", "markdown", "trace",
        ] {
            paths.push(format!("/api/violations/{id}/{kind}"));
        }
    }
    let answers = paths.into_iter().map(|path| {
        let answer = get(admin, &path, &[("Accept", "application/openmetrics-text")]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        (path, answer.body)
    });
    answers.collect()
}

/// What is made of the journal afterwards.
fn reports(dir: &Path) -> Vec<(String, String)> {
    let place = |name: &str| dir.join(name).display().to_string();
    let (journal, key) = (place("journal"), place("key"));
    let files = ["r.json", "r.xml", "r.html", "r.md", "r.sarif"];
    let flags = ["--json-file", "--junit", "--html", "--markdown", "--sarif"];
    let mut arguments = vec![
        "check".to_owned(),
        journal.clone(),
        "--key-file".to_owned(),
        key.clone(),
        "--claim".to_owned(),
        "serializable".to_owned(),
        "--github".to_owned(),
    ];
    for (flag, file) in flags.iter().zip(files) {
        arguments.extend([(*flag).to_owned(), place(file)]);
    }
    let mut made = vec![("check".to_owned(), run(&arguments))];
    made.push((
        "trace show".to_owned(),
        run(&[
            "trace".to_owned(),
            "show".to_owned(),
            journal,
            "--key-file".to_owned(),
            key,
        ]),
    ));
    for file in files {
        let text = std::fs::read_to_string(place(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        made.push((file.to_owned(), text));
    }
    made
}

fn run(arguments: &[String]) -> String {
    let output = Command::new(binary())
        .args(arguments)
        .output()
        .expect("pgassay runs");
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
