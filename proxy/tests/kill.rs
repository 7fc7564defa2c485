//! kill -9 of the proxy under load: the journal opens, and holds a prefix of what was answered.

mod started;

use pgassay::throwaway::Throwaway;
use pgassay_audit::trace::Record;
use pgassay_audit::trace::journal::Reader;
use started::Proxy;
use std::path::Path;
use std::time::{Duration, Instant};

/// The numbers that were inserted, in the order of the journal.
fn recorded(dir: &Path) -> Vec<u64> {
    let Ok(reader) = Reader::open(dir, None) else {
        return Vec::new();
    };
    let number = |text: &str| {
        text.strip_prefix("insert into k values (")?
            .strip_suffix(')')?
            .parse()
            .ok()
    };
    reader
        .map(|record| record.expect("the journal can be read up to its end"))
        .filter_map(|record| match record {
            Record::Statement(statement) => number(&statement.text),
            _ => None,
        })
        .collect()
}

#[test]
fn a_killed_proxy_leaves_a_journal_that_opens() {
    let server = Throwaway::start(&[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let more = [
        "--journal",
        journal.to_str().unwrap(),
        "--set",
        "journal.flush_ms=50",
    ];
    let mut proxy = Proxy::start(&server.address(), &more);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answered = runtime.block_on(async {
        let uri = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port);
        let (client, connection) = tokio_postgres::connect(&uri, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client.batch_execute("create table k(a int)").await.unwrap();
        let insert = async |number: u64| {
            client
                .batch_execute(&format!("insert into k values ({number})"))
                .await
        };
        for number in 0..100 {
            insert(number).await.unwrap();
        }
        // What was written this long ago is on disk, whatever happens now.
        let deadline = Instant::now() + Duration::from_secs(180);
        while recorded(&journal).len() < 100 {
            assert!(Instant::now() < deadline, "the journal is not flushed");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut number = 100;
        while insert(number).await.is_ok() {
            number += 1;
            if number == 2_000 {
                proxy.child.kill().unwrap();
                proxy.child.wait().unwrap();
            }
        }
        number
    });
    let kept = recorded(&journal);
    assert!(
        (100..=answered as usize + 1).contains(&kept.len()),
        "{} of {answered}",
        kept.len()
    );
    assert!(
        kept.iter().copied().eq(0..kept.len() as u64),
        "a prefix, without holes"
    );

    // The next run appends to the same directory, after cutting the torn tail.
    pgassay_audit::trace::journal::Writer::open(&journal, Default::default())
        .unwrap()
        .close()
        .unwrap();
    assert_eq!(recorded(&journal), kept);
}
