//! Settings against a real server: a name means the table that the session's own settings lead to.

use pgassay::config::Writers;
use pgassay_tests::cluster::Cluster;
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::{Client, VERSION_3_0, startup};

fn log_in(port: u16, user: &str) -> Client {
    let mut client = Client::connect(port);
    client.send(&startup(VERSION_3_0, &[("user", user), ("database", "postgres")]));
    client.until_ready();
    client
}

/// The first cell of the answer.
fn ask(client: &mut Client, sql: &str) -> String {
    let rows = client.rows(sql);
    rows.first()
        .map_or_else(String::new, |row| String::from_utf8_lossy(&row[6..]).into_owned())
}

#[test]
fn every_way_to_set_something_is_followed() {
    let cluster = Cluster::start().unwrap();
    let mut direct = Client::log_in(cluster.port());
    for sql in [
        "create table account (id int primary key, balance int)",
        "create schema other",
        "create table other.account (id int primary key, balance int)",
        "create schema clerk",
        "create table clerk.account (id int primary key, balance int)",
        "insert into account values (1, 10)",
        "insert into other.account values (1, 5)",
        "insert into clerk.account values (1, 7)",
        "create role clerk login superuser",
        "create role guest login superuser",
        "create role watcher login superuser",
        "alter role guest set search_path = other",
        "alter role guest set default_transaction_isolation = 'repeatable read'",
        "alter role watcher set search_path = nowhere",
        "alter role watcher set default_transaction_isolation = 'serializable'",
    ] {
        ask(&mut direct, sql);
    }
    for side in ["postgres", "watcher"] {
        let proxy = Proxy::start_with(&cluster.address(), |config| {
            config.audit.writers = Writers::Exclusive;
            config.side.enabled = true;
            config.side.uri = Some(format!("postgresql://{side}@{}/postgres", cluster.address()));
        });
        let balance = "select balance from account where id = 1";
        let mut one = Client::log_in(proxy.port());
        assert_eq!(ask(&mut one, balance), "10");
        ask(&mut one, "set search_path = other");
        ask(&mut one, "reset work_mem");
        assert_eq!(ask(&mut one, balance), "5");
        ask(&mut one, "reset all");
        assert_eq!(ask(&mut one, balance), "10");
        assert_eq!(
            ask(&mut one, "select set_config('search_path', 'other', false)"),
            "other"
        );
        assert_eq!(ask(&mut one, balance), "5");
        ask(&mut one, "discard all");
        assert_eq!(ask(&mut one, balance), "10");
        ask(&mut one, "set search_path = \"$user\", public");
        ask(&mut one, "set role clerk");
        assert_eq!(ask(&mut one, balance), "7");
        ask(&mut one, "reset role");
        assert_eq!(ask(&mut one, balance), "10");
        ask(&mut one, "begin");
        ask(&mut one, "savepoint here");
        ask(&mut one, "select set_config('search_path', 'other', true)");
        assert_eq!(ask(&mut one, balance), "5");
        ask(&mut one, "rollback to savepoint here");
        assert_eq!(ask(&mut one, balance), "10");
        ask(&mut one, "set default_transaction_isolation = 'serializable'");
        ask(&mut one, "rollback");

        // At REPEATABLE READ nobody sees the change, at READ COMMITTED everybody does.
        let mut guest = log_in(proxy.port(), "guest");
        ask(&mut guest, "begin");
        ask(&mut one, "begin");
        assert_eq!(ask(&mut guest, balance), "5");
        assert_eq!(ask(&mut one, balance), "10");
        let mut clerk = log_in(proxy.port(), "clerk");
        assert_eq!(ask(&mut clerk, balance), "7");
        ask(&mut clerk, "update public.account set balance = 11 where id = 1");
        ask(&mut clerk, "update other.account set balance = 6 where id = 1");
        assert_eq!(ask(&mut guest, balance), "5");
        assert_eq!(ask(&mut one, balance), "11");
        ask(&mut guest, "commit");
        ask(&mut one, "commit");
        ask(&mut clerk, "update public.account set balance = 10 where id = 1");
        ask(&mut clerk, "update other.account set balance = 5 where id = 1");
        // What a session leaves unfinished is judged by what it had set.
        ask(&mut one, "set search_path = other");
        ask(&mut one, "begin");
        assert_eq!(ask(&mut one, balance), "5");
        drop((one, guest, clerk));
        let summary = proxy.stop().summary();
        let told: Vec<&str> = summary.violations.iter().map(|v| v.rule.as_str()).collect();
        assert!(told.is_empty(), "read as {side}: {told:?}");
        if side == "postgres" {
            let reasons = &summary.coverage.reasons;
            assert_eq!(summary.coverage.unchecked, 0, "{reasons:?}");
        }
    }
}
