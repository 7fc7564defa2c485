//! Real drivers through the proxy, each with a program of its own in `tests/drivers`.
//!
//! After each the decoder must have followed everything: no errors, no gaps, nothing unknown.

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::deps;
use pgassay_tests::proxy::Proxy;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers").join(name)
}

/// Runs `command` against a proxy in front of `cluster` and looks at what was recorded.
fn drive(cluster: &Cluster, command: impl FnOnce(&Proxy) -> Command) {
    let proxy = Proxy::start_with(&cluster.address(), |config| config.record_only = true);
    let mut command = command(&proxy);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    let output = command.output().expect("the driver's program runs");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.contains("ok"), "{said}");
    let live = proxy.stop();
    assert!(live.statements.load(Relaxed) > 20);
    let troubles =
        [&live.decode_errors, &live.gaps, &live.unknown_messages].map(|counter| counter.load(Relaxed));
    assert_eq!(troubles, [0, 0, 0], "decode errors, gaps, unknown messages");
}

/// Runs a test in front of PostgreSQL as installed, and of the other major version.
fn on_every_version(test: impl Fn(&Cluster)) {
    let versions = [Some(Options::default()), Options::default().other_version()];
    for options in versions.into_iter().flatten() {
        test(&Cluster::start_with(options).unwrap());
    }
}

fn python(script: &str, uri: &str) -> Option<Command> {
    let mut command = Command::new(deps::find("python")?.join("bin/python"));
    command.arg(program(script)).arg(uri);
    Some(command)
}

#[test]
fn psycopg() {
    if deps::find("python").is_none() {
        return;
    }
    on_every_version(|cluster| {
        drive(cluster, |proxy| python("psycopg_all.py", &proxy.uri()).unwrap());
    });
}

#[test]
fn psycopg_with_protocol_3_2() {
    let (Some(options), Some(_)) = (Options::default().other_version(), deps::find("python")) else {
        return;
    };
    let cluster = Cluster::start_with(options).unwrap();
    drive(&cluster, |proxy| {
        let mut command = python("psycopg_all.py", &proxy.uri()).unwrap();
        command.arg("3.2");
        command
    });
}

#[test]
fn asyncpg() {
    if deps::find("python").is_none() {
        return;
    }
    on_every_version(|cluster| {
        drive(cluster, |proxy| python("asyncpg_all.py", &proxy.uri()).unwrap());
    });
}

#[test]
fn node_postgres() {
    let Some(packages) = deps::find("node/node_modules") else {
        return;
    };
    on_every_version(|cluster| {
        drive(cluster, |proxy| {
            let mut command = Command::new("node");
            command
                .env("NODE_PATH", &packages)
                .arg(program("node_all.js"))
                .arg(proxy.uri());
            command
        });
    });
}

#[test]
fn pgjdbc() {
    let Some(jar) = deps::system("/usr/share/java/postgresql.jar") else {
        return;
    };
    let classes = tempfile::tempdir().unwrap();
    let compiled = Command::new("javac")
        .arg("-cp")
        .arg(&jar)
        .arg("-d")
        .arg(classes.path())
        .arg(program("JdbcAll.java"))
        .output()
        .expect("javac is installed (deploy/setup.sh test)");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    // SCRAM's helper libraries, where the package keeps them.
    let class_path = format!("{}:{}:/usr/share/java/*", classes.path().display(), jar.display());
    on_every_version(|cluster| {
        drive(cluster, |proxy| {
            let mut command = Command::new("java");
            command.args(["-cp", &class_path, "JdbcAll"]);
            command.arg(format!("jdbc:postgresql://127.0.0.1:{}/postgres", proxy.port()));
            command
        });
    });
}

#[test]
fn tokio_postgres() {
    on_every_version(tokio_postgres_on);
}

fn tokio_postgres_on(cluster: &Cluster) {
    let proxy = Proxy::start_with(&cluster.address(), |config| config.record_only = true);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (mut client, connection) = tokio_postgres::connect(&proxy.uri(), tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
            .batch_execute("create table t(a int primary key, b text)")
            .await
            .unwrap();
        let transaction = client.transaction().await.unwrap();
        let insert = transaction
            .prepare("insert into t values ($1, $2)")
            .await
            .unwrap();
        // Pipelined: both are sent before either is answered.
        let (first, second) = tokio::join!(
            transaction.execute(&insert, &[&1, &"one"]),
            transaction.execute(&insert, &[&2, &"two"])
        );
        assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
        let portal = transaction.bind("select * from t order by a", &[]).await.unwrap();
        assert_eq!(transaction.query_portal(&portal, 1).await.unwrap().len(), 1);
        assert_eq!(transaction.query_portal(&portal, 5).await.unwrap().len(), 1);
        transaction.commit().await.unwrap();
        for number in 0..30 {
            let row = client.query_one("select $1::int4", &[&number]).await.unwrap();
            assert_eq!(row.get::<_, i32>(0), number);
        }
        let cancel = client.cancel_token();
        let sleep = client.batch_execute("select pg_sleep(300)");
        let cancelling = async {
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
            }
        };
        tokio::select! {
            result = sleep => assert_eq!(result.unwrap_err().code().unwrap().code(), "57014"),
            () = cancelling => (),
        }
    });
    drop(runtime);
    let live = proxy.stop();
    assert!(live.statements.load(Relaxed) > 35);
    assert_eq!(
        (live.decode_errors.load(Relaxed), live.gaps.load(Relaxed)),
        (0, 0)
    );
}
