//! The page in a real browser, with violations that the engine itself found in real traffic through the proxy.
//!
//! PostgreSQL does nothing wrong here: transactions run at READ COMMITTED and are judged as if they had been promised
//! to be serializable. One of them runs ten thousand statements.

use pgassay::config::Writers;
use pgassay_tests::cluster::Cluster;
use pgassay_tests::lost::connect;
use pgassay_tests::proxy::Proxy;
use pgassay_tests::tools::{artifacts, root};
use pgassay_tests::{deps, http};
use std::process::Command;
use std::time::{Duration, Instant};

/// Statements of the longest story.
const MANY: usize = 10_000;

async fn prepare(uri: &str) {
    let setup = connect(uri).await;
    for table in ["account", "doctor", "wide"] {
        let sql = format!(
            "create table {table} (id int primary key, balance int); insert into {table} values (1, 100), (2, 200)"
        );
        setup.batch_execute(&sql).await.expect("a table");
    }
}

/// Two clients read one balance and each writes it back.
async fn lost_update(uri: &str) {
    let (one, two) = (connect(uri).await, connect(uri).await);
    for client in [&one, &two] {
        client.batch_execute("begin").await.unwrap();
        let sql = "select balance from account where id = $1";
        client.query_one(sql, &[&1i32]).await.unwrap();
    }
    for (client, balance) in [(&one, 110i32), (&two, 120)] {
        let sql = "update account set balance = $1 where id = $2";
        client.execute(sql, &[&balance, &1i32]).await.unwrap();
        client.batch_execute("commit").await.unwrap();
    }
}

/// Each looks at both, and changes the one that the other looked at.
async fn write_skew(uri: &str) {
    let (one, two) = (connect(uri).await, connect(uri).await);
    for client in [&one, &two] {
        client.batch_execute("begin").await.unwrap();
        let sql = "select sum(balance) from doctor";
        client.query_one(sql, &[]).await.unwrap();
    }
    for (client, id) in [(&one, 1i32), (&two, 2)] {
        let sql = "update doctor set balance = balance - 250 where id = $1";
        client.execute(sql, &[&id]).await.unwrap();
    }
    for client in [&one, &two] {
        client.batch_execute("commit").await.unwrap();
    }
}

/// A lost update with ten thousand looks at another row in between.
async fn wide(uri: &str) {
    let (one, two) = (connect(uri).await, connect(uri).await);
    for client in [&one, &two] {
        client.batch_execute("begin").await.unwrap();
        client
            .query_one("select balance from wide where id = 1", &[])
            .await
            .unwrap();
    }
    let look = two
        .prepare("select balance from wide where id = $1")
        .await
        .unwrap();
    for _ in 0..MANY {
        two.query_one(&look, &[&2i32]).await.unwrap();
    }
    for (client, sql) in [
        (&one, "update wide set balance = 110 where id = 1"),
        (&two, "update wide set balance = 120 where id = 1"),
    ] {
        client.execute(sql, &[]).await.unwrap();
        client.batch_execute("commit").await.unwrap();
    }
}

#[test]
fn violations_of_real_traffic_are_shown() {
    let Some(playwright) = deps::find("node/node_modules/playwright-core") else {
        return;
    };
    let Some(chromium) = deps::system("/usr/bin/chromium") else {
        return;
    };
    let cluster = Cluster::start().expect("a server");
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.admin.listen = Some("127.0.0.1:0".to_owned());
        config.journal.dir = Some(journal.clone());
        config.audit.claim = Some("serializable".to_owned());
        config.audit.writers = Writers::Exclusive;
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let uri = proxy.uri();
        prepare(&uri).await;
        lost_update(&uri).await;
        write_skew(&uri).await;
        wide(&uri).await;
    });
    let admin = proxy.running().admin_address().expect("an admin address");
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let list = http::get(admin, "/api/violations", &[]).json();
        let list = list.as_array().unwrap();
        let longest = list
            .iter()
            .filter_map(|v| v["statements"].as_u64())
            .max()
            .unwrap_or(0);
        if list.len() >= 3 && longest > MANY as u64 {
            break;
        }
        let live = http::get(admin, "/api/live", &[]).body;
        assert!(Instant::now() < deadline, "found {list:?}; {live}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let output = Command::new("node")
        .arg(root().join("tests/browser/real.mjs"))
        .env("PLAYWRIGHT", playwright)
        .env("CHROMIUM", chromium)
        .env("PROFILE", dir.path().join("profile"))
        .env("PAGE", format!("http://{admin}/"))
        .env("SHOTS", artifacts("browser-real"))
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{said}\n{complained}");
    for step in [
        "overview",
        "lost-update",
        "edge",
        "downloads",
        "write-skew",
        "keyboard",
        "dark",
        "phone",
        "wide",
    ] {
        assert!(
            said.contains(&format!("ok {step}")),
            "no step «{step}» in\n{said}\n{complained}"
        );
    }
}
