//! The side connection against a real server: one snapshot, honest copies, foreign writers.

use anyhow::Result;
use pgassay::bootstrap::{self, Limits};
use pgassay::throwaway::Throwaway;
use pgassay::writers::{Own, Watch};
use pgassay_audit::state::catalog::QUERIES;
use pgassay_audit::trace::{Bootstrap, Record, TableCopy};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

async fn connect(server: &Throwaway, user: &str) -> Result<Client> {
    let options = format!(
        "host=127.0.0.1 port={} user={user} dbname=postgres",
        server.port()
    );
    let (client, connection) = tokio_postgres::connect(&options, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn oid(client: &Client, table: &str) -> Result<u32> {
    Ok(client
        .query_one(&format!("SELECT '{table}'::regclass::oid"), &[])
        .await?
        .get(0))
}

fn table(bootstrap: &Bootstrap, oid: u32) -> Option<&TableCopy> {
    bootstrap.tables.iter().find(|table| table.oid == oid)
}

fn text(rows: &TableCopy) -> Option<Vec<String>> {
    let line = |row: Vec<Option<&str>>| {
        let cells = row.into_iter().map(|cell| cell.unwrap_or("∅"));
        cells.collect::<Vec<_>>().join("|")
    };
    rows.rows.as_ref().map(|rows| rows.iter().map(line).collect())
}

#[tokio::test]
async fn the_state_to_start_from() -> Result<()> {
    let server = Throwaway::start(&[])?;
    let admin = connect(&server, "postgres").await?;
    admin
        .batch_execute(
            "CREATE TABLE a (id int PRIMARY KEY, \"odd name\" text, t timestamptz, gone int);
             ALTER TABLE a DROP COLUMN gone;
             INSERT INTO a VALUES (1, 'x', '2020-01-01 12:00+02'), (2, NULL, NULL);
             CREATE TABLE p (k int) PARTITION BY RANGE (k);
             CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
             INSERT INTO p VALUES (5);
             CREATE TABLE big AS SELECT g FROM generate_series(1, 200) g;
             CREATE TABLE closed (s text); INSERT INTO closed VALUES ('x');
             CREATE TABLE veiled (s text); INSERT INTO veiled VALUES ('x');
             ALTER TABLE veiled ENABLE ROW LEVEL SECURITY;
             CREATE TABLE locked (s text);
             CREATE ROLE reader LOGIN;
             GRANT SELECT ON a, p, p1, big, veiled, locked TO reader",
        )
        .await?;
    let idle = connect(&server, "postgres").await?;
    idle.batch_execute("BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        .await?;

    let side = connect(&server, "reader").await?;
    let limits = Limits {
        table_rows_max: 100,
        time_max: Duration::from_secs(180),
        ..Limits::default()
    };
    let read = bootstrap::read(&side, QUERIES, limits).await?;

    let copy = |name: &'static str| {
        let (admin, read) = (&admin, &read);
        async move { Ok::<_, anyhow::Error>(table(read, oid(admin, name).await?).and_then(text)) }
    };
    let rows = vec!["1|x|2020-01-01 10:00:00+00".to_owned(), "2|∅|∅".to_owned()];
    assert_eq!(copy("a").await?, Some(rows));
    assert_eq!(
        table(&read, oid(&admin, "a").await?)
            .map(|t| t.columns.clone())
            .unwrap(),
        ["id", "odd name", "t"]
    );
    assert_eq!(copy("p1").await?, Some(vec!["5".to_owned()]));
    assert!(
        table(&read, oid(&admin, "p").await?).is_none(),
        "rows are in the partitions"
    );
    for absent in ["big", "closed", "veiled", "locked"] {
        assert_eq!(copy(absent).await?, None, "{absent}");
        assert!(table(&read, oid(&admin, absent).await?).is_some(), "{absent}");
    }
    assert!(read.window.sent < read.window.done);
    assert_eq!(read.open_transactions, 1);
    assert!(read.server_version.starts_with(|c: char| c.is_ascii_digit()));
    let setting = |name: &str| {
        read.settings
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    assert_eq!(setting("database"), Some("postgres"));
    assert_eq!(setting("default_transaction_isolation"), Some("read committed"));
    assert_eq!(read.catalog.len(), QUERIES.len());
    // Nothing stays locked.
    idle.batch_execute("COMMIT").await?;
    admin
        .batch_execute("SET lock_timeout = '5s'; ALTER TABLE a ADD COLUMN more int")
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_table_truncated_after_the_snapshot_is_not_taken_for_empty() -> Result<()> {
    let server = Throwaway::start(&[])?;
    let admin = connect(&server, "postgres").await?;
    admin
        .batch_execute("CREATE TABLE a (x int); INSERT INTO a VALUES (1); CREATE TABLE z AS SELECT generate_series(1, 99)")
        .await?;
    // The truncation waits for the snapshot by way of a catalog query that takes a lock it needs.
    let truncating = connect(&server, "postgres").await?;
    let side = connect(&server, "postgres").await?;
    side.batch_execute("SELECT pg_advisory_lock(1)").await?;
    let truncation = tokio::spawn(async move {
        truncating
            .batch_execute("SELECT pg_advisory_lock(1); TRUNCATE z; SELECT pg_advisory_unlock(1)")
            .await
    });
    // Once it waits, it is the next to get the lock, whoever else asks for it.
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while admin.query_one(waits, &[]).await?.get::<_, i64>(0) == 0 {
        assert!(!truncation.is_finished(), "it does not wait");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let queries = [
        ("release", "SELECT pg_advisory_unlock(1)"),
        ("wait", "SELECT pg_advisory_lock(1), pg_advisory_unlock(1)"),
    ];
    let read = bootstrap::read(&side, &queries, Limits::default()).await?;
    truncation.await??;
    assert_eq!(
        table(&read, oid(&admin, "a").await?).and_then(text),
        Some(vec!["1".to_owned()])
    );
    assert_eq!(table(&read, oid(&admin, "z").await?).and_then(text), None);
    Ok(())
}

#[tokio::test]
async fn foreign_writers_are_seen() -> Result<()> {
    let server = Throwaway::start(&[])?;
    let side = connect(&server, "postgres").await?;
    let ours = connect(&server, "postgres").await?;
    let own = Own::default();
    let pid: i32 = ours.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    own.add_backend(pid as u32);
    let mut watch = Watch::default();
    let told = watch.look(&side, &own).await?;
    assert!(
        matches!(told, Some(Record::Writers { exclusive: true, .. })),
        "{told:?}"
    );

    let stranger = connect(&server, "postgres").await?;
    assert!(watch.look(&side, &own).await?.is_none());
    let Some(Record::Writers { exclusive, seen, .. }) = watch.look(&side, &own).await? else {
        panic!("the stranger was not told")
    };
    assert!(
        !exclusive && seen.len() == 1 && seen[0].contains("postgres"),
        "{seen:?}"
    );
    drop(stranger);
    Ok(())
}
