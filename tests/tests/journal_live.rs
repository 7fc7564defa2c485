//! From a real server's traffic to a journal and back: what programs said is what the journal says.

use pgassay_audit::trace::journal::Reader;
use pgassay_audit::trace::lex;
use pgassay_audit::trace::{Observation, Outcome, Protocol, Record, Rows, SessionId, Status};
use pgassay_tests::cluster::{Cluster, USER};
use pgassay_tests::proxy::Proxy;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn run(mut program: Command, port: u16, arguments: &[&str], input: &str) -> String {
    let mut child = program
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", USER])
        .args(arguments)
        .arg("postgres")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A proxy that records to `dir`, with its side connection.
fn proxy(cluster: &Cluster, dir: &Path) -> Proxy {
    let uri = format!("postgresql://{USER}@{}/postgres", cluster.address());
    Proxy::start_with(&cluster.address(), |config| {
        config.record_only = true;
        config.journal.dir = Some(dir.to_owned());
        config.side.enabled = true;
        config.side.uri = Some(uri);
    })
}

fn read(dir: &Path) -> Vec<Record> {
    let mut reader = Reader::open(dir, None).unwrap();
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    assert!(reader.notes().is_empty());
    records
}

fn statements(records: &[Record]) -> Vec<&Observation> {
    records
        .iter()
        .filter_map(|r| {
            if let Record::Statement(o) = r {
                Some(&**o)
            } else {
                None
            }
        })
        .collect()
}

/// What holds of every trace.
fn check(records: &[Record]) {
    let mut next: BTreeMap<SessionId, u64> = BTreeMap::new();
    let mut last = BTreeMap::new();
    let mut mark = 0;
    for record in records {
        match record {
            Record::Gap(gap) => panic!("{gap:?}"),
            Record::Mark { at } => {
                assert!(*at > mark);
                mark = *at;
            }
            Record::Statement(o) => {
                let seq = next.entry(o.session).or_default();
                assert_eq!(o.seq, *seq);
                *seq += 1;
                assert!(
                    o.window.sent < o.window.done && o.window.done <= o.ready.done,
                    "{o:?}"
                );
                // A mark promises that nothing before it can still be committed.
                let writes = o.before == Status::Idle && lex::effect(&o.text) != lex::Effect::Harmless;
                assert!(!writes || o.ready.sent >= mark, "{mark} {o:?}");
                let before = last.insert(o.session, (o.ready.done, o.after));
                if let Some((done, after)) = before {
                    let same_group = done == o.ready.done;
                    assert!(same_group || done <= o.ready.sent, "{o:?}");
                    assert!(same_group || after == o.before, "{o:?}");
                }
            }
            _ => {}
        }
    }
}

#[test]
fn psql_is_recorded_word_for_word() {
    let cluster = Cluster::start().unwrap();
    run(
        cluster.client("psql"),
        cluster.port(),
        &["-Xq"],
        "create table t (a int, b text); insert into t values (0, 'old')",
    );
    let dir = tempfile::tempdir().unwrap();
    let proxy = proxy(&cluster, dir.path());
    let script = "select a, b from t;\n\
        begin; insert into t values (1, null) returning b; commit;\n\
        copy t from stdin;\n2\ttwo\n3\tthree\n\\.\n\
        copy (select a from t order by a) to stdout;\n\
        select 1/0;\nalter user postgres password 'hunter2';\n\
        select 1 \\; select 2 \\; select 'x' where false;\n";
    run(cluster.client("psql"), proxy.port(), &["-Xq"], script);
    let live = proxy.stop();
    assert_eq!(live.decode_errors.load(std::sync::atomic::Ordering::Relaxed), 0);

    let records = read(dir.path());
    check(&records);
    let Some(Record::Bootstrap(bootstrap)) = records.iter().find(|r| matches!(r, Record::Bootstrap(_)))
    else {
        panic!("no bootstrap")
    };
    assert_eq!(bootstrap.tables.len(), 1);
    assert_eq!(
        bootstrap.tables[0].rows,
        Some(Rows::from_iter([vec![
            Some("0".to_owned()),
            Some("old".to_owned())
        ]]))
    );
    let told: Vec<String> = statements(&records)
        .iter()
        .map(|o| {
            let text = match &o.outcome {
                Outcome::Answer(a) => {
                    let cell = |c: &Option<bytes::Bytes>| {
                        c.as_ref()
                            .map_or("∅".into(), |c| String::from_utf8_lossy(c).into_owned())
                    };
                    let rows: Vec<String> = a
                        .rows
                        .iter()
                        .map(|r| r.iter().map(cell).collect::<Vec<_>>().join(","))
                        .collect();
                    // Some versions of psql send the end marker of the file format as well.
                    let data = |c: &bytes::Bytes| String::from_utf8_lossy(c).replace("\\.\n", "");
                    let copy = a
                        .copy
                        .as_ref()
                        .map_or(String::new(), |c| format!(" {:?}", data(c)));
                    format!("{} [{}]{copy}", a.tag.as_deref().unwrap_or("-"), rows.join(";"))
                }
                Outcome::Error(e) => e.sqlstate.clone(),
                other => format!("{other:?}"),
            };
            format!("{} .{} {:?}>{:?}: {text}", o.text, o.part, o.before, o.after)
        })
        .collect();
    assert_eq!(
        told,
        [
            "select a, b from t; .0 Idle>Idle: SELECT 1 [0,old]",
            "begin; .0 Idle>InBlock: BEGIN []",
            "insert into t values (1, null) returning b; .0 InBlock>InBlock: INSERT 0 1 [∅]",
            "commit; .0 InBlock>Idle: COMMIT []",
            "copy t from stdin; .0 Idle>Idle: COPY 2 [] \"2\\ttwo\\n3\\tthree\\n\"",
            "copy (select a from t order by a) to stdout; .0 Idle>Idle: COPY 4 [] \"0\\n1\\n2\\n3\\n\"",
            "select 1/0; .0 Idle>Idle: 22012",
            "alter user postgres password '***'; .0 Idle>Idle: ALTER ROLE []",
            "select 1 ; select 2 ; select 'x' where false; .0 Idle>Idle: SELECT 1 [1]",
            "select 1 ; select 2 ; select 'x' where false; .1 Idle>Idle: SELECT 1 [2]",
            "select 1 ; select 2 ; select 'x' where false; .2 Idle>Idle: SELECT 0 []",
        ]
    );
    assert_eq!(read(dir.path()), records, "reading twice gives the same");
}

#[test]
fn pgbench_is_recorded_in_all_three_modes() {
    let cluster = Cluster::start().unwrap();
    run(
        cluster.client("pgbench"),
        cluster.port(),
        &["-i", "-q", "-s", "1"],
        "",
    );
    for mode in ["simple", "extended", "prepared"] {
        let dir = tempfile::tempdir().unwrap();
        let proxy = proxy(&cluster, dir.path());
        run(
            cluster.client("pgbench"),
            proxy.port(),
            &["-n", "-c", "4", "-j", "2", "-t", "50", "-M", mode],
            "",
        );
        proxy.stop();
        let records = read(dir.path());
        check(&records);
        let statements = statements(&records);
        let mut by_kind: BTreeMap<&str, usize> = BTreeMap::new();
        for o in &statements {
            let Outcome::Answer(answer) = &o.outcome else {
                panic!("{o:?}")
            };
            let word = answer.tag.as_deref().unwrap_or("-").split(' ').next().unwrap();
            *by_kind.entry(word).or_default() += 1;
            let extended = o.text.contains("$1");
            assert!(
                !extended || (o.protocol == Protocol::Extended && !o.parameters.is_empty()),
                "{o:?}"
            );
        }
        assert_eq!(by_kind["UPDATE"], 600, "{mode} {by_kind:?}");
        assert_eq!((by_kind["INSERT"], by_kind["COMMIT"]), (200, 200), "{mode}");
        // Every balance that was asked for came back, with its column.
        let balances = statements
            .iter()
            .filter(|o| o.text.starts_with("SELECT abalance"))
            .count();
        assert_eq!(balances, 200, "{mode}");
        for o in statements
            .iter()
            .filter(|o| o.text.starts_with("SELECT abalance"))
        {
            let Outcome::Answer(answer) = &o.outcome else {
                panic!("{o:?}")
            };
            assert_eq!((answer.rows.len(), answer.columns.len()), (1, 1), "{mode}");
        }
    }
}
