//! `pgassay trace` on journals of real traffic: plain, encrypted, redacted; told twice, told the same.

mod started;

use pgassay::throwaway::Throwaway;
use started::{Proxy, next_line, pgassay};
use std::path::{Path, PathBuf};
use std::process::Output;

const SECRET: &str = "the secret of 4711";

/// Records a few statements with these settings.
fn record(server: &Throwaway, dir: &Path, settings: &[&str]) -> PathBuf {
    let journal = dir.join("journal");
    let mut more = vec!["--journal", journal.to_str().unwrap()];
    more.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let mut proxy = Proxy::start(&server.address(), &more);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let uri = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port);
        let (client, connection) = tokio_postgres::connect(&uri, tokio_postgres::NoTls)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        client
            .batch_execute("create temp table s(a int, b text)")
            .await
            .unwrap();
        let insert = format!("begin; insert into s values (1, '{SECRET}'); commit");
        client.batch_execute(&insert).await.unwrap();
        let found = client
            .query("select b from s where b = $1", &[&SECRET])
            .await
            .unwrap();
        assert_eq!(found[0].get::<_, &str>(0), SECRET);
        let wrong = format!("select '{SECRET}'::int");
        assert!(client.batch_execute(&wrong).await.is_err());
        drop(client);
        connection.await.unwrap().unwrap();
    });
    proxy.signal("TERM");
    next_line(&mut proxy.log, "ended");
    assert_eq!(proxy.child.wait().unwrap().code(), Some(0));
    journal
}

fn trace(arguments: &[&str], journal: &Path, key: Option<&Path>) -> Output {
    let mut command = pgassay();
    command.arg("trace").args(arguments).arg(journal);
    if let Some(key) = key {
        command.arg("--key-file").arg(key);
    }
    command.output().unwrap()
}

/// What is told, after checking that it is told the same again.
fn told(arguments: &[&str], journal: &Path, key: Option<&Path>) -> String {
    let (first, second) = (trace(arguments, journal, key), trace(arguments, journal, key));
    assert!(
        first.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&first.stderr)
    );
    assert_eq!(first, second, "{arguments:?}");
    String::from_utf8(first.stdout).unwrap()
}

const FORMS: [&[&str]; 5] = [
    &["show"],
    &["show", "--json"],
    &["stats"],
    &["stats", "--json"],
    &["cat"],
];

fn key_file(dir: &Path) -> PathBuf {
    let path = dir.join("key");
    std::fs::write(&path, "0123456789abcdef".repeat(4)).unwrap();
    path
}

#[test]
fn every_form_tells_the_same_twice() {
    let server = Throwaway::start(&[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let journal = record(&server, dir.path(), &[]);
    for form in FORMS {
        let text = told(form, &journal, None);
        assert!(text.contains("insert into s values"), "{form:?}: {text}");
        if form.contains(&"--json") || form.contains(&"cat") {
            for line in text.lines().filter(|_| !form.contains(&"stats")) {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }
    }
    assert!(told(&["cat"], &journal, None).contains(SECRET));

    // A part, twice: the parts are equal, and so is what they tell.
    let parts = ["one", "two"].map(|name| {
        let part = dir.path().join(name);
        let cut = trace(
            &["cut", "--session", "1", "--to", part.to_str().unwrap()],
            &journal,
            None,
        );
        assert!(cut.status.success(), "{}", String::from_utf8_lossy(&cut.stderr));
        told(&["cat"], &part, None)
    });
    assert!(parts[0] == parts[1] && parts[0].contains(SECRET));
}

#[test]
fn an_encrypted_journal_needs_its_key() {
    let server = Throwaway::start(&[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let key = key_file(dir.path());
    let setting = format!("journal.key_file={}", key.display());
    let journal = record(&server, dir.path(), &["journal.encrypt=true", &setting]);
    for form in FORMS {
        assert!(
            told(form, &journal, Some(&key)).contains("insert into s values"),
            "{form:?}"
        );
    }
    let without = trace(&["cat"], &journal, None);
    assert_eq!(without.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&without.stderr).contains("--key-file"));
    let other = dir.path().join("other");
    std::fs::write(&other, "f".repeat(64)).unwrap();
    let wrong = trace(&["cat"], &journal, Some(&other));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("another key"));
}

#[test]
fn a_redacted_journal_holds_no_data_and_keeps_what_is_equal() {
    let server = Throwaway::start(&[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setting = format!("journal.key_file={}", key_file(dir.path()).display());
    let journal = record(&server, dir.path(), &["journal.redact=hash", &setting]);
    for form in FORMS {
        let text = told(form, &journal, None);
        assert!(!text.contains("4711"), "{form:?}: {text}");
    }
    let lines: Vec<serde_json::Value> = told(&["cat"], &journal, None)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let text = |start: &str| {
        let found = lines.iter().find(|line| line.to_string().contains(start));
        found.unwrap_or_else(|| panic!("{start}")).to_string()
    };
    // The literal of the INSERT is the parameter and the cell of the SELECT.
    let inserted = text("insert into s values");
    let hash = inserted.split('\'').nth(3).unwrap().to_owned();
    assert_eq!(
        text("select b from s").matches(&hash).count(),
        2,
        "{hash}: {inserted}"
    );
}
