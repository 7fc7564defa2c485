//! `commit_timestamps = "inject"`: clients read what they always read, and the trace knows when a transaction
//! committed by the server's clock. Without it nothing is added (see also `proxy_transparent`).

use pgassay::config::CommitTimestamps;
use pgassay_audit::trace::journal::Reader;
use pgassay_audit::trace::{Observation, Record};
use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::{Client, Message, VERSION_3_0, message, startup, text};
use pgassay_tests::sniff::Sniffer;
use pgassay_tests::wait;
use std::path::Path;

const QUESTION: &[u8] = b"pg_current_xact_id_if_assigned";

/// proxy → sniffer → server; the side connection does not pass the sniffer.
fn injecting(cluster: &Cluster, behind: &Sniffer, journal: Option<&Path>) -> Proxy {
    Proxy::start_with(&format!("127.0.0.1:{}", behind.port()), |config| {
        config.record_only = true;
        config.commit_timestamps = CommitTimestamps::Inject;
        config.side.uri = Some(cluster.uri());
        config.journal.dir = journal.map(Path::to_owned);
        config.journal.flush_ms = 50;
    })
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &text(sql))
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', &[text(name), text(sql), vec![0, 0]].concat())
}

/// Bind, Describe, Execute, Sync.
fn run(statement: &str) -> Vec<u8> {
    [
        message(b'B', &[text(""), text(statement), vec![0; 6]].concat()),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat()
}

/// What a client writes at once, and how many ReadyForQuery it waits for then.
fn script() -> Vec<(Vec<u8>, usize)> {
    let sync = message(b'S', b"");
    let prepared = [
        parse("begin", "begin"),
        parse("insert", "insert into pg_temp.t values (3)"),
        parse("commit", "COMMIT"),
        sync.clone(),
    ]
    .concat();
    let one = |sql: &str| (query(sql), 1);
    vec![
        one("set client_min_messages = log; listen n"),
        one("create temp table t(a int); create table u(a int unique deferrable initially deferred)"),
        // Asked: a simple COMMIT of a writer, and of a reader.
        one("begin"),
        one("insert into t values (1)"),
        one("COMMIT"),
        one("begin isolation level serializable; select 1"),
        one("commit work;"),
        // Asked: the extended COMMIT of the unnamed statement, and of a named one; what else is prepared stays.
        one("begin"),
        one("insert into t values (2)"),
        ([parse("", "END;"), run("")].concat(), 1),
        (prepared, 1),
        (run("begin"), 1),
        (run("insert"), 1),
        ([parse("", "select 7"), sync.clone()].concat(), 1),
        (run("commit"), 1),
        (run(""), 1),
        // Asked: notifications come with the commit, and an error at COMMIT is an error at COMMIT.
        one("begin"),
        one("notify n"),
        one("end"),
        one("begin"),
        one("insert into u values (1), (1)"),
        one("commit"),
        // Not asked: nothing was done, it has failed already, it is not alone, it is not quite a COMMIT.
        one("begin"),
        one("commit"),
        one("begin"),
        one("select 1/0"),
        one("commit"),
        one("begin; select 1; commit"),
        one("begin; insert into t values (4)"),
        ([query("select 2"), query("commit")].concat(), 2),
        one("begin; select 1"),
        one("commit and chain"),
        one("commit; select 5"),
        one("commit"),
        (
            [query("begin"), query("insert into t values (5)"), query("commit")].concat(),
            3,
        ),
        one("select count(*), sum(a) from t"),
        one("drop table u"),
    ]
}
const ASKED: usize = 6;

/// Everything after the login, without the process id in notifications.
fn play(port: u16) -> Vec<Message> {
    let mut client = Client::log_in(port);
    let mut read = Vec::new();
    for (bytes, ready) in script() {
        client.send(&bytes);
        for _ in 0..ready {
            read.extend(client.until_ready());
        }
    }
    for message in &mut read {
        if message.tag == b'A' {
            message.body.drain(..4);
        }
    }
    read
}

fn count(haystack: &[u8], needle: &[u8]) -> usize {
    haystack
        .windows(needle.len())
        .filter(|window| *window == needle)
        .count()
}

fn clients_read_the_same(options: Options) {
    let cluster = Cluster::start_with(options.set("track_commit_timestamp", "on")).unwrap();
    let behind = Sniffer::start(cluster.port());
    let proxy = injecting(&cluster, &behind, None);
    wait::until("permission", || proxy.live().xids.is_given());

    let direct = play(cluster.port());
    let through = play(proxy.port());
    for (step, (direct, through)) in direct.iter().zip(&through).enumerate() {
        assert_eq!(direct, through, "message {step}");
    }
    assert_eq!(direct.len(), through.len());

    let streams = behind.streams();
    let asked: usize = streams
        .iter()
        .map(|streams| count(&streams.to_server, QUESTION))
        .sum();
    assert_eq!(asked, ASKED);
    // The question and the COMMIT that it belongs to are neighbours.
    let neighbours = [message(b'S', b""), query("COMMIT")].concat();
    assert!(
        streams
            .iter()
            .any(|streams| count(&streams.to_server, &neighbours) == 1)
    );
}

#[test]
fn clients_read_the_same_bytes() {
    clients_read_the_same(Options::default());
}

#[test]
fn clients_read_the_same_bytes_on_another_major_version() {
    let Some(options) = Options::default().other_version() else {
        return;
    };
    clients_read_the_same(options);
}

#[test]
fn the_trace_has_the_timestamps_of_the_server() {
    let cluster = Cluster::start_with(Options::default().set("track_commit_timestamp", "on")).unwrap();
    let behind = Sniffer::start(cluster.port());
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let proxy = injecting(&cluster, &behind, Some(&journal));
    wait::until("permission", || proxy.live().xids.is_given());
    let mut client = Client::log_in(proxy.port());
    client.query("create table t(a int)");
    for number in 0..3 {
        client.query("begin");
        client.query(&format!("insert into t values ({number})"));
        client.query("commit");
    }
    let sql =
        "select (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::int8, xmin from t order by a";
    let truth: Vec<(i64, u64)> = Client::log_in(cluster.port())
        .query(sql)
        .iter()
        .filter(|message| message.tag == b'D')
        .map(|row| {
            let (first, rest) = cell(&row.body[2..]);
            let (second, _) = cell(rest);
            (first.parse().unwrap(), second.parse().unwrap())
        })
        .collect();
    let mut told = Vec::new();
    wait::until("three timestamps in the journal", || {
        told = timestamps(&journal);
        told.len() == 3
    });
    for ((stamp, xid, statement), truth) in told.iter().zip(&truth) {
        assert_eq!((*stamp, *xid), *truth);
        assert_eq!(&*statement.text, "commit");
    }
}

fn cell(bytes: &[u8]) -> (String, &[u8]) {
    let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    let (value, rest) = bytes[4..].split_at(length);
    (String::from_utf8(value.to_vec()).unwrap(), rest)
}

/// Every timestamp with the xid and the statement that it belongs to.
fn timestamps(journal: &Path) -> Vec<(i64, u64, Observation)> {
    let Ok(reader) = Reader::open(journal, None) else {
        return Vec::new();
    };
    let records: Vec<Record> = reader.map_while(Result::ok).collect();
    let statement = |wanted: (u64, u64)| {
        records.iter().find_map(|record| match record {
            Record::Statement(o) if (o.session.0, o.group) == wanted => Some((**o).clone()),
            _ => None,
        })
    };
    let stamps = records.iter().filter_map(|record| match record {
        Record::CommitTimestamp {
            session,
            group,
            xid,
            unix_micros,
            ..
        } => Some((*unix_micros, *xid, statement((session.0, *group))?)),
        _ => None,
    });
    stamps.collect()
}

#[test]
fn nothing_is_asked_where_the_server_keeps_no_timestamps() {
    let cluster = Cluster::start().unwrap();
    let behind = Sniffer::start(cluster.port());
    let proxy = injecting(&cluster, &behind, None);
    play(proxy.port());
    assert!(!proxy.live().xids.is_given());
    for streams in behind.streams() {
        assert_eq!(count(&streams.to_server, QUESTION), 0);
    }
}

/// The worst case: the question cannot be asked. One COMMIT fails, openly, and it is never asked again.
#[test]
fn a_question_that_is_refused_is_the_answer_to_one_commit_only() {
    let cluster = Cluster::start_with(Options::default().set("track_commit_timestamp", "on")).unwrap();
    let behind = Sniffer::start(cluster.port());
    let proxy = injecting(&cluster, &behind, None);
    wait::until("permission", || proxy.live().xids.is_given());
    let mut owner = Client::log_in(cluster.port());
    owner.query("create role app login; create table t(a int); grant all on t to app");
    owner.query("revoke execute on function pg_current_xact_id_if_assigned() from public");

    let mut client = Client::connect(proxy.port());
    client.send(&startup(
        VERSION_3_0,
        &[("user", "app"), ("database", "postgres")],
    ));
    client.until_ready();
    client.query("begin");
    client.query("insert into t values (1)");
    let refused = client.query("commit");
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert_eq!(refused[0].field('C').as_deref(), Some("42501"));
    assert_eq!(refused[1].body, b"I", "the transaction has ended");
    assert!(!proxy.live().xids.is_given());

    client.query("begin");
    client.query("insert into t values (2)");
    let committed = client.query("commit");
    assert_eq!(committed[0].body, text("COMMIT"));
    let rows = client.query("select a from t");
    let rows: Vec<String> = rows
        .iter()
        .filter(|m| m.tag == b'D')
        .map(|m| cell(&m.body[2..]).0)
        .collect();
    assert_eq!(rows, ["2"]);
}
