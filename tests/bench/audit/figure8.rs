//! Figure 8 of the paper: k − 1 transfers, then a read, at READ COMMITTED; with the right answer and with 66.
//!
//! The recorded run is correct. The wrong one is the same journal with another number in the last answer.

use crate::judge::judge;
use crate::record::server;
use crate::report::short;
use crate::sheet::{Chapter, Sheet};
use crate::{Bench, Forecast};
use anyhow::Context;
use bytes::Bytes;
use pgassay::config::{Config, Writers};
use pgassay::serve::Running;
use pgassay::throwaway::uri;
use pgassay_audit::trace::journal::{Options as JournalOptions, Reader, Writer};
use pgassay_audit::trace::{Outcome, Record};
use serde_json::json;
use std::path::Path;

pub const CHAPTER: Chapter = Chapter {
    name: "figure8",
    title: "The paper's Figure 8: k − 1 transfers, then a read",
    about: "READ COMMITTED; accounts 1 and 2 start with 100 and 300; each transfer moves 10. Seconds of the whole \
            process `pgassay check`, for the right final balance and for 66. The paper's improved encoding stays \
            below two seconds up to k ≈ 50, its baseline exceeds 40 minutes.",
    header: &[
        "k",
        "right: seconds",
        "right: violations",
        "wrong: seconds",
        "wrong: violations",
    ],
    keys: 1,
    unit: "s",
    is_logarithmic: false,
    summary: |_| String::new(),
    forecast: |bench| Forecast {
        what: format!("journals for k of {:?}", sizes(bench)),
        seconds: 4.0 * sizes(bench).len() as f64,
    },
    run,
};

fn sizes(bench: &Bench) -> &'static [u64] {
    match bench.is_smoke() {
        true => &[10],
        false => &[10, 20, 40, 80, 160, 320, 640, 1_000],
    }
}

fn run(bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
    for k in sizes(bench) {
        let right = bench.dir.join(format!("figure8-{k}"));
        let wrong = bench.dir.join(format!("figure8-{k}-wrong"));
        record_transfers(bench, *k, &right)?;
        falsify(&right, &wrong)?;
        let (right, wrong) = (judge(&right, None)?, judge(&wrong, None)?);
        let (right_s, wrong_s) = (right.elapsed.as_secs_f64(), wrong.elapsed.as_secs_f64());
        let cells = vec![
            k.to_string(),
            short(right_s),
            right.violations().to_string(),
            short(wrong_s),
            wrong.violations().to_string(),
        ];
        let bars = vec![
            (format!("k = {k}, right"), right_s),
            (format!("k = {k}, wrong"), wrong_s),
        ];
        let raw = json!({
            "k": k, "right_s": right_s, "right_violations": right.violations(),
            "wrong_s": wrong_s, "wrong_violations": wrong.violations(),
        });
        sheet.put(cells, bars, raw)?;
    }
    Ok(())
}

fn record_transfers(bench: &Bench, k: u64, journal: &Path) -> anyhow::Result<()> {
    let server = server()?;
    let direct = server.uri();
    bench.runtime.block_on(async {
        let client = connect(&direct).await?;
        client
            .batch_execute(
                "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL); \
                 INSERT INTO accounts VALUES (1, 100), (2, 300)",
            )
            .await?;
        anyhow::Ok(())
    })?;
    let mut config = Config {
        listen: vec!["127.0.0.1:0".to_owned()],
        record_only: true,
        ..Config::default()
    };
    config.upstream = server.uri();
    config.side.uri = Some(server.uri());
    config.journal.dir = Some(journal.to_owned());
    config.admin.listen = None;
    // Nobody else knows of this server, whoever may still be listed there.
    config.audit.writers = Writers::Exclusive;
    let proxy = Running::start(config)?;
    let target = uri(proxy.port().context("the proxy has no TCP port")?);
    bench.runtime.block_on(async {
        let client = connect(&target).await?;
        for _ in 1..k {
            client
                .simple_query("BEGIN ISOLATION LEVEL READ COMMITTED")
                .await?;
            client
                .simple_query("UPDATE accounts SET balance = balance - 10 WHERE id = 1")
                .await?;
            client
                .simple_query("UPDATE accounts SET balance = balance + 10 WHERE id = 2")
                .await?;
            client.simple_query("COMMIT").await?;
        }
        client
            .simple_query("SELECT balance FROM accounts WHERE id = 2")
            .await?;
        anyhow::Ok(())
    })?;
    proxy.stop();
    Ok(())
}

async fn connect(target: &str) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(target, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Copies a journal with 66 in the last row that was returned.
fn falsify(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for record in Reader::open(from, None)? {
        records.push(record?);
    }
    let last = records.iter_mut().rev().find_map(|record| match record {
        Record::Statement(statement) => match &mut statement.outcome {
            Outcome::Answer(answer) if !answer.rows.is_empty() => Some(answer),
            _ => None,
        },
        _ => None,
    });
    last.context("no statement returned a row")?.rows[0][0] = Some(Bytes::from_static(b"66"));
    let mut writer = Writer::open(to, JournalOptions::default())?;
    for record in &records {
        writer.push(record)?;
    }
    writer.close()?;
    Ok(())
}
