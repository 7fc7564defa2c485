//! What a round trip costs the thread that relays: system calls, which can be counted exactly.
//!
//! The floor of a relay that waits for readiness is six: twice epoll_wait, recv and send.

mod started;

use pgassay::throwaway::Throwaway;
use started::{Proxy, next_line};
use std::io::BufReader;
use std::process::{Command, Stdio};
use std::time::Duration;

const ROUND_TRIPS: u32 = 1_000;

/// The thread of the process that has this name. A thread names itself only once it runs, so that a busy machine may
/// show it later than the process says that it listens.
fn thread_named(process: u32, name: &str) -> u32 {
    let is_named = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    for _ in 0..1_000 {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        if let Some(path) = tasks
            .flatten()
            .map(|task| task.path())
            .find(|path| is_named(path))
        {
            return path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no thread is called {name}")
}

/// The sum of the column «calls» of `strace -c`.
fn calls(summary: &str) -> u32 {
    summary
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.last().is_some_and(|name| *name != "total"))
        .filter(|words| words.len() >= 5 && words[0].parse::<f64>().is_ok())
        .map(|words| words[3].parse::<u32>().unwrap())
        .sum()
}

#[test]
fn a_round_trip_takes_six_system_calls() {
    let server = Throwaway::start(&[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let more = ["--journal", journal.to_str().unwrap(), "--set", "proxy.threads=1"];
    let proxy = Proxy::start(&server.address(), &more);
    let relay = thread_named(proxy.child.id(), "relay");
    let counted = dir.path().join("counted");
    let mut strace = match Command::new("strace")
        .args(["-c", "-o", counted.to_str().unwrap(), "-p", &relay.to_string()])
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(strace) => strace,
        Err(error) => {
            eprintln!("left out: strace cannot be run ({error}); deploy/setup.sh test installs it");
            return;
        }
    };
    let mut said = BufReader::new(strace.stderr.take().unwrap());
    if !next_line(&mut said, "strace: ").contains("attached") {
        eprintln!("left out: this machine does not let strace attach to a process");
        let _ = strace.wait();
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let uri = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port);
        let (client, connection) = tokio_postgres::connect(&uri, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        for _ in 0..ROUND_TRIPS {
            client.batch_execute("select 1").await.unwrap();
        }
    });
    let ended = Command::new("kill")
        .args(["-INT", &strace.id().to_string()])
        .status();
    assert!(ended.unwrap().success());
    strace.wait().unwrap();
    let summary = std::fs::read_to_string(&counted).unwrap();
    let each = f64::from(calls(&summary)) / f64::from(ROUND_TRIPS);
    assert!((5.9..=6.2).contains(&each), "{each} per round trip\n{summary}");
}
