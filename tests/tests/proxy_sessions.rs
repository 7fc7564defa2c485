//! What real sessions do, through the proxy: every part of the protocol, and every way to end.

use pgassay_audit::trace::journal::Reader;
use pgassay_audit::trace::{Outcome, Record};
use pgassay_tests::cluster::{Cluster, send};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::*;
use pgassay_tests::wait;
use std::io::Write;
use std::net::Shutdown;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tempfile::TempDir;

/// Parse, Bind, Execute with a row limit; the caller adds Sync or Flush.
fn execute(sql: &str, limit: u32) -> Vec<u8> {
    let parse = message(b'P', &[text(""), text(sql), vec![0, 0]].concat());
    let bind = message(b'B', &[text(""), text(""), vec![0; 6]].concat());
    let execute = message(b'E', &[text(""), limit.to_be_bytes().to_vec()].concat());
    [parse, bind, execute].concat()
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

#[test]
fn the_extended_protocol_in_all_its_forms() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut client = Client::log_in(proxy.port());

    // A pipeline of three groups in one write; the second fails, and its rest is skipped.
    let group = |sql: &str| [execute(sql, 0), sync()].concat();
    let failing = [execute("select 1/0", 0), execute("select 'skipped'", 0), sync()].concat();
    client.send(&[group("select 1"), failing, group("select 3")].concat());
    assert_eq!(tags(&client.until_ready()), "12DCZ");
    // A constant division fails while it is bound already.
    assert_eq!(tags(&client.until_ready()), "1EZ");
    assert_eq!(tags(&client.until_ready()), "12DCZ");

    // A portal with a row limit, fetched in three parts, with Flush in between.
    let more = message(b'E', &[text(""), 2u32.to_be_bytes().to_vec()].concat());
    client.send(&[execute("select generate_series(1, 5)", 2), message(b'H', b"")].concat());
    let first: Vec<Message> = (0..5).map(|_| client.next().unwrap()).collect();
    assert_eq!(tags(&first), "12DDs");
    client.send(&[more.clone(), more, sync()].concat());
    assert_eq!(tags(&client.until_ready()), "DDsDCZ");

    // Several statements in one Query, an empty one, a notice, a parameter that changes on its own.
    assert_eq!(
        tags(&client.query("select 1; select 2; insert into pg_temp.nowhere values (1); select 3")),
        "TDCTDCEZ"
    );
    assert_eq!(tags(&client.query("")), "IZ");
    assert_eq!(tags(&client.query("do $$ begin raise notice 'n'; end $$")), "NCZ");
    assert_eq!(tags(&client.query("set application_name = 'x'")), "CSZ");

    // FunctionCall: lo_creat(int4), oid 957, with one binary argument.
    let call = [
        &957u32.to_be_bytes()[..],
        &[0, 1, 0, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1],
    ]
    .concat();
    client.send(&message(b'F', &call));
    assert_eq!(tags(&client.until_ready()), "VZ");

    // A named statement, described and closed.
    let named = [
        message(b'P', &[text("s1"), text("select $1::int"), vec![0, 0]].concat()),
        message(b'D', &[b"S".to_vec(), text("s1")].concat()),
        message(b'C', &[b"S".to_vec(), text("s1")].concat()),
        sync(),
    ];
    client.send(&named.concat());
    assert_eq!(tags(&client.until_ready()), "1tT3Z");
}

#[test]
fn copy_in_copy_out_and_copy_that_fails() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut client = Client::log_in(proxy.port());
    client.query("create table c(a int primary key)");
    let begin = |client: &mut Client| {
        client.send(&message(b'Q', &text("copy c from stdin")));
        assert_eq!(client.next().unwrap().tag, b'G');
    };
    begin(&mut client);
    // The server ignores Flush and Sync in mid-copy.
    client.send(
        &[
            message(b'd', b"1\n2\n"),
            message(b'H', b""),
            sync(),
            message(b'd', b"3\n"),
            message(b'c', b""),
        ]
        .concat(),
    );
    assert_eq!(tags(&client.until_ready()), "CZ");
    begin(&mut client);
    client.send(&message(b'f', &text("changed my mind")));
    assert_eq!(tags(&client.until_ready()), "EZ");
    begin(&mut client);
    client.send(&message(b'c', b""));
    assert_eq!(tags(&client.until_ready()), "CZ");
    // It fails while the client is still sending.
    begin(&mut client);
    client.send(&message(b'd', b"not a number\n"));
    for _ in 0..50 {
        client.send(&message(b'd', b"7\n"));
    }
    client.send(&message(b'c', b""));
    assert_eq!(tags(&client.until_ready()), "EZ");
    client.send(&message(b'Q', &text("copy c to stdout")));
    assert_eq!(tags(&client.until_ready()), "HdddcCZ");
}

#[test]
fn notifications_arrive_without_being_asked_for() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut listener = Client::log_in(proxy.port());
    listener.query("listen news");
    let mut speaker = Client::log_in(proxy.port());
    speaker.query("notify news, 'hello'");
    let notification = listener.next().unwrap();
    assert_eq!(notification.tag, b'A');
    assert!(notification.body.windows(5).any(|bytes| bytes == b"hello"));
}

/// ParameterStatus, Notice and Notification may come at any time, also when nothing was asked.
#[test]
fn what_comes_unasked_arrives_at_once() {
    let unasked = [
        message(b'S', b"application_name\0another\0"),
        message(b'N', b"SWARNING\0Mof the server's own accord\0\0"),
        message(b'A', b"\0\0\0\x07news\0\0"),
    ];
    let said = unasked.concat();
    let server = FakeServer::start(move |mut stream| {
        if read_packet(&mut stream).is_err() {
            return;
        }
        stream.write_all(&[welcome(), said.clone()].concat()).unwrap();
        let mut query = [0; 6];
        while std::io::Read::read_exact(&mut stream, &mut query).is_ok() {
            let end = [message(b'I', b""), said.clone(), message(b'Z', b"I")].concat();
            stream.write_all(&end).unwrap();
        }
    });
    let proxy = Proxy::start(&server.address());
    let mut client = Client::connect(proxy.port());
    client.send(&startup(VERSION_3_0, &[("user", "me")]));
    client.until_ready();
    // Nothing was asked, nothing will be: they come all the same.
    for expected in &unasked {
        let heard = client.next().unwrap();
        assert_eq!(message(heard.tag, &heard.body), *expected);
    }
    assert_eq!(tags(&client.query("")), "ISNAZ");
    drop(client);
    let live = proxy.stop();
    let counters = [&live.decode_errors, &live.gaps, &live.unknown_messages];
    assert_eq!(counters.map(|counter| counter.load(Relaxed)), [0, 0, 0]);
    assert_eq!(live.statements.load(Relaxed), 1);
}

#[test]
fn a_row_of_a_hundred_megabytes_passes_and_is_recorded_as_cut() {
    let cluster = Cluster::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.journal.dir = Some(dir.path().to_owned());
        config.record_only = true;
        config.capture.result_bytes_max = 1 << 20;
        config.capture.lane_bytes_max = 1 << 30;
    });
    let mut client = Client::log_in(proxy.port());
    let answer = client.query("select repeat('x', 100 * 1024 * 1024)");
    assert_eq!(tags(&answer), "TDCZ");
    assert_eq!(answer[1].body.len(), 100 * 1024 * 1024 + 6);
    assert_eq!(tags(&client.query("select 1")), "TDCZ");
    drop(client);
    proxy.stop();
    let records = recorded(dir.path());
    let big = statements(&records)
        .find(|(text, _)| text.contains("repeat"))
        .unwrap();
    let Outcome::Answer(answer) = big.1 else {
        panic!("{:?}", big.1)
    };
    assert_eq!(answer.cut.as_ref().map(|cut| cut.rows), Some(1));
    assert!(
        std::fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .all(|file| file.metadata().unwrap().len() < 50 << 20)
    );
}

/// A proxy that keeps a journal.
fn recording(cluster: &Cluster) -> (Proxy, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.journal.dir = Some(dir.path().to_owned());
    });
    (proxy, dir)
}

fn recorded(dir: &Path) -> Vec<Record> {
    let reader = Reader::open(dir, None).unwrap();
    reader.map(|record| record.unwrap()).collect()
}

fn statements(records: &[Record]) -> impl Iterator<Item = (&str, &Outcome)> {
    records.iter().filter_map(|record| match record {
        Record::Statement(statement) => Some((&*statement.text, &statement.outcome)),
        _ => None,
    })
}

#[test]
fn a_slow_reader_pushes_back_on_the_server_and_memory_stays_bounded() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut slow = Client::log_in(proxy.port());
    slow.send(&message(
        b'Q',
        &text("select repeat('x', 1000000) from generate_series(1, 300)"),
    ));
    // Nobody reads, so the server must come to a stand before it has sent it all: the sockets and one buffer are full.
    let passed = || {
        let live = proxy.live();
        live.bytes_to_client.load(Relaxed) + live.lost_bytes.load(Relaxed)
    };
    let mut other = Client::log_in(proxy.port());
    let (mut last, mut rounds_without_more) = (0, 0);
    while rounds_without_more < 50 {
        // Others are served meanwhile.
        assert_eq!(tags(&other.query("select 1")), "TDCZ");
        std::thread::sleep(Duration::from_millis(10));
        let now = passed();
        // The answers to the other are not a thousand bytes each.
        let stands = now > 100_000 && now - last < 1_000;
        rounds_without_more = if stands { rounds_without_more + 1 } else { 0 };
        last = now;
        assert!(now < 100_000_000, "{now} bytes were taken that nobody reads");
    }
    assert_eq!(slow.until_ready().len(), 303);
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    // A server that answers only after it has seen the end of the client's stream.
    let server = FakeServer::start(|mut stream| {
        if read_packet(&mut stream).is_err() {
            return;
        }
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut rest).unwrap();
        assert_eq!(rest, b"Q\0\0\0\x05\0");
        stream.write_all(&welcome()).unwrap();
    });
    let proxy = Proxy::start(&server.address());
    let mut client = Client::connect(proxy.port());
    client.send(&[startup(VERSION_3_0, &[("user", "me")]), b"Q\0\0\0\x05\0".to_vec()].concat());
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tags(&client.until_closed()), "RKZ");
}

#[test]
fn unknown_messages_are_forwarded_and_counted() {
    let server = FakeServer::start(|mut stream| {
        if read_packet(&mut stream).is_err() {
            return;
        }
        // BackendKeyData may be absent.
        stream
            .write_all(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat())
            .unwrap();
        let mut query = [0; 6];
        std::io::Read::read_exact(&mut stream, &mut query).unwrap();
        let answer = [
            message(b'y', b"what is this"),
            message(b'I', b""),
            message(b'Z', b"I"),
        ]
        .concat();
        stream.write_all(&answer).unwrap();
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    let proxy = Proxy::start(&server.address());
    let mut client = Client::connect(proxy.port());
    client.send(&startup(VERSION_3_0, &[("user", "me")]));
    client.until_ready();
    assert_eq!(tags(&client.query("")), "yIZ");
    wait::until("it is counted", || {
        proxy.live().unknown_messages.load(Relaxed) == 1
    });
}

#[test]
fn a_server_that_dies_is_a_clear_error_and_a_restart_is_survived() {
    let mut cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut idle = Client::log_in(proxy.port());
    let mut busy = Client::log_in(proxy.port());
    busy.send(&message(b'Q', &text("select pg_sleep(300)")));
    cluster.stop("fast").unwrap();
    // The server's own words, and only those.
    for client in [&mut idle, &mut busy] {
        let said = client.until_closed();
        assert_eq!(
            said.iter().filter(|message| message.tag == b'E').count(),
            1,
            "{said:?}"
        );
        assert_eq!(said.last().unwrap().field('C').as_deref(), Some("57P01"));
    }
    let mut early = Client::connect(proxy.port());
    early.send(&startup(VERSION_3_0, &[("user", "postgres")]));
    assert_eq!(early.until_closed()[0].field('C').as_deref(), Some("08001"));
    cluster.launch().unwrap();
    assert_eq!(tags(&Client::log_in(proxy.port()).query("select 1")), "TDCZ");
}

#[test]
fn a_server_that_dies_without_a_word_gets_our_words_between_messages_only() {
    for (last, expected) in [(&b""[..], "RKZE"), (b"T\0\0\0\x50half a message", "RKZ")] {
        let last = last.to_vec();
        let server = FakeServer::start(move |mut stream| {
            if read_packet(&mut stream).is_ok() {
                stream.write_all(&[welcome(), last.clone()].concat()).unwrap();
            }
        });
        let proxy = Proxy::start(&server.address());
        let mut client = Client::connect(proxy.port());
        client.send(&startup(VERSION_3_0, &[("user", "me")]));
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut client.stream, &mut bytes).unwrap();
        let found = bytes.windows(5).any(|window| window == b"08006");
        assert_eq!(found, expected.ends_with('E'));
    }
}

#[test]
fn replication_connections_pass_unrecorded() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut client = Client::connect(proxy.port());
    client.send(&startup(
        VERSION_3_0,
        &[("user", "postgres"), ("replication", "true")],
    ));
    client.until_ready();
    assert_eq!(tags(&client.query("IDENTIFY_SYSTEM")), "TDCZ");
    // CopyBoth, both ways.
    let position = client.query("IDENTIFY_SYSTEM");
    let body = String::from_utf8_lossy(&position[1].body).into_owned();
    let lsn = body
        .split(|c: char| !c.is_ascii_hexdigit() && c != '/')
        .find(|word| word.contains('/'))
        .unwrap();
    client.send(&message(b'Q', &text(&format!("START_REPLICATION {lsn}"))));
    assert_eq!(client.next().unwrap().tag, b'W');
    client.send(&message(b'c', b""));
    assert!(client.until_ready().iter().any(|message| message.tag == b'c'));
    drop(client);
    assert_eq!(proxy.live().replication_sessions.load(Relaxed), 1);
    let live = proxy.stop();
    assert_eq!(live.statements.load(Relaxed), 0);
    assert_eq!(live.bytes_to_client.load(Relaxed), 0);
}

#[test]
fn unix_sockets_and_ipv6_on_both_sides() {
    let cluster = Cluster::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join(".s.PGSQL.6432");
    let proxy = Proxy::start_with(&cluster.socket().display().to_string(), |config| {
        config.listen = vec![socket.display().to_string(), "[::1]:0".to_owned()];
    });
    let stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let psql = |host: &str, port: &str| {
        let output = cluster
            .client("psql")
            .args([
                "-XAtq",
                "-h",
                host,
                "-p",
                port,
                "-U",
                "postgres",
                "-c",
                "select 42",
                "postgres",
            ])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(psql(dir.path().to_str().unwrap(), "6432"), "42");
    assert_eq!(psql("::1", &proxy.port().to_string()), "42");
    // A proxy in front of the proxy, over IPv6.
    let second = Proxy::start(&format!("[::1]:{}", proxy.port()));
    assert_eq!(tags(&Client::log_in(second.port()).query("select 1")), "TDCZ");
    drop((stream, second));
    proxy.stop();
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn a_drain_ends_idle_sessions_and_lets_transactions_finish() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| config.proxy.drain_seconds = 600);
    let mut idle = Client::log_in(proxy.port());
    let mut busy = Client::log_in(proxy.port());
    // The last that an idle client heard may be a notification.
    idle.query("listen n");
    busy.query("notify n");
    assert_eq!(idle.next().unwrap().tag, b'A');
    busy.query("begin");
    busy.query("create table d(a int)");
    let port = proxy.port();
    let live = proxy.live().clone();
    let stopping = std::thread::spawn(move || proxy.stop());
    assert_eq!(idle.until_closed()[0].field('C').as_deref(), Some("57P01"));
    assert!(live.draining.load(Relaxed));
    wait::until("nobody listens any more", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_err()
    });
    assert_eq!(tags(&busy.query("insert into d values (1)")), "CZ");
    assert_eq!(tags(&busy.query("commit")), "CZ");
    assert_eq!(busy.until_closed()[0].field('C').as_deref(), Some("57P01"));
    stopping.join().unwrap();
    assert_eq!(
        tags(&Client::log_in(cluster.port()).query("select * from d")),
        "TDCZ"
    );
}

#[test]
fn a_drain_has_a_deadline() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| config.proxy.drain_seconds = 0);
    let mut busy = Client::log_in(proxy.port());
    busy.query("begin");
    busy.send(&message(b'Q', &text("select pg_sleep(300)")));
    let stopping = std::thread::spawn(move || proxy.stop());
    assert_eq!(busy.until_closed()[0].field('C').as_deref(), Some("57P01"));
    stopping.join().unwrap();
}

#[test]
fn a_drain_does_not_wait_for_clients_that_have_not_begun() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| config.proxy.drain_seconds = 600);
    let mut silent = Client::connect(proxy.port());
    wait::until("it is accepted", || {
        proxy.live().connections_open.load(Relaxed) == 1
    });
    proxy.stop();
    assert_eq!(silent.until_closed(), []);
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    for round in 0..20 {
        let mut client = Client::log_in(proxy.port());
        match round % 4 {
            0 => client.send(b"Q\0\0\0\x7fselect"),
            1 => client.send(&message(b'Q', &text("select repeat('x', 10000000)"))),
            2 => client.send(&message(b'X', b"")),
            _ => (),
        }
    }
    wait::until("all connections are gone", || {
        proxy.live().connections_open.load(Relaxed) == 0
    });
    assert_eq!(tags(&Client::log_in(proxy.port()).query("select 1")), "TDCZ");
}

#[test]
fn what_a_client_asked_before_it_vanished_is_recorded_with_its_answer() {
    let cluster = Cluster::start().unwrap();
    let (proxy, dir) = recording(&cluster);
    let mut holder = Client::log_in(proxy.port());
    holder.query("create table r(a int); insert into r values (1)");
    holder.query("begin; update r set a = 2");
    let mut client = Client::log_in(proxy.port());
    let ask = |sql: &str| message(b'Q', &text(sql));
    client.send(&[ask("select repeat('x', 1000)"), ask("update r set a = a + 10")].concat());
    let mut watcher = Client::log_in(cluster.port());
    let waits =
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like 'update r set a = a%'";
    wait::until("it waits for the lock", || tags(&watcher.query(waits)) == "TDCZ");
    // With an answer unread the socket is reset: nobody will ever read the next one.
    drop(client);
    std::thread::sleep(Duration::from_millis(50));
    holder.query("commit");
    wait::until("it was done", || {
        tags(&watcher.query("select 1 from r where a = 12")) == "TDCZ"
    });
    drop(holder);
    wait::until("all connections are gone", || {
        proxy.live().connections_open.load(Relaxed) == 0
    });
    proxy.stop();
    let records = recorded(dir.path());
    let (_, outcome) = statements(&records)
        .find(|(text, _)| text.starts_with("update r set a = a"))
        .expect("it was recorded");
    assert!(
        matches!(outcome, Outcome::Answer(answer) if answer.tag.as_deref() == Some("UPDATE 1")),
        "{outcome:?}"
    );
}

#[test]
fn what_passed_is_recorded_with_its_windows() {
    let cluster = Cluster::start().unwrap();
    let (proxy, dir) = recording(&cluster);
    let mut client = Client::log_in(proxy.port());
    client.query("create table r(a int)");
    client.query("insert into r values (7)");
    client.query("select a from r");
    client.query("create role somebody password 'a secret'");
    drop(client);
    let live = proxy.stop();
    assert_eq!(live.statements.load(Relaxed), 4);
    assert_eq!(
        (live.gaps.load(Relaxed), live.decode_errors.load(Relaxed)),
        (0, 0)
    );
    assert!(live.journal_bytes.load(Relaxed) > 0);
    assert_eq!(live.summary().statements, 4);

    let records = recorded(dir.path());
    let windows: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Statement(statement) => Some(statement.window),
            _ => None,
        })
        .collect();
    assert_eq!(windows.len(), 4);
    assert!(windows.windows(2).all(|pair| pair[0].is_before(pair[1])));
    // Every mark keeps its promise: no later record tells of a request sent before it.
    let mut marked = 0;
    for record in &records {
        match record {
            Record::Mark { at } => marked = marked.max(*at),
            Record::Statement(statement) => assert!(statement.ready.sent >= marked),
            _ => (),
        }
    }
    assert!(marked >= windows[3].done);
    // What was answered, to the cell.
    let rows = records.iter().find_map(|record| match record {
        Record::Statement(statement) if &*statement.text == "select a from r" => match &statement.outcome {
            Outcome::Answer(answer) => Some(&answer.rows),
            _ => None,
        },
        _ => None,
    });
    let cell = rows.and_then(|rows| rows.first()?.first()?.as_deref());
    assert_eq!(cell, Some(&b"7"[..]));
    assert!(!format!("{records:?}").contains("a secret"));
}

#[test]
fn passwords_and_keys_are_not_recorded() {
    let options = pgassay_tests::cluster::Options::default().password("password", "open sesame");
    let cluster = Cluster::start_with(options).unwrap();
    let (proxy, dir) = recording(&cluster);
    let mut client = Client::connect(proxy.port());
    client.send(&startup(VERSION_3_0, &[("user", "postgres")]));
    assert_eq!(client.next().unwrap().body, [0, 0, 0, 3]);
    client.send(&message(b'p', &text("open sesame")));
    client.until_ready();
    client.query("select 1");
    drop(client);
    proxy.stop();
    let records = recorded(dir.path());
    assert_eq!(statements(&records).count(), 1);
    assert!(!format!("{records:?}").contains("sesame"));
}

#[test]
fn a_lane_that_overflows_is_a_gap_and_the_client_does_not_notice() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.capture.lane_bytes_max = 20_000
    });
    let mut client = Client::log_in(proxy.port());
    let answer = client.query("select repeat('x', 1000000) from generate_series(1, 20)");
    assert_eq!(answer.len(), 23);
    wait::until("the gap is counted", || proxy.live().gaps.load(Relaxed) > 0);
    assert!(proxy.live().lost_bytes.load(Relaxed) > 0);
    // The decoder finds its place again.
    wait::until("later statements are recorded", || {
        let before = proxy.live().statements.load(Relaxed);
        client.query("select 1");
        std::thread::sleep(Duration::from_millis(20));
        proxy.live().statements.load(Relaxed) > before
    });
}

#[test]
fn killing_a_backend_ends_one_session_only() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut victim = Client::log_in(proxy.port());
    let mut other = Client::log_in(proxy.port());
    let answer = victim.query("select pg_backend_pid()");
    let pid = String::from_utf8_lossy(&answer[1].body[6..]).parse().unwrap();
    send("TERM", pid);
    assert_eq!(victim.until_closed()[0].field('C').as_deref(), Some("57P01"));
    assert_eq!(tags(&other.query("select 1")), "TDCZ");
}
