//! Conversations in, records out. Each test writes down a conversation as messages with instants and
//! compares the records with text.

use super::{Captured, Counters, Decoder, Direction, Limits};
use crate::trace::{Nanos, Outcome, Record, SessionId};
use bytes::Bytes;

/// One session's conversation under way.
pub struct Talk {
    decoder: Decoder,
    records: Vec<Record>,
    at: Nanos,
    /// Cut every piece into pieces of this many bytes (0: leave whole).
    pieces: usize,
}

const S: SessionId = SessionId(7);

impl Talk {
    fn unstarted() -> Talk {
        Talk {
            decoder: Decoder::new(Limits::default()),
            records: Vec::new(),
            at: 0,
            pieces: 0,
        }
    }

    fn start() -> Talk {
        Talk::start_with(Talk::unstarted())
    }

    fn start_with(mut talk: Talk) -> Talk {
        talk.take(Captured::Opened { session: S, at: 0 });
        talk.client(&[startup(&[("user", "u"), ("database", "d")])]);
        talk.server(&[
            m(b'R', &[0, 0, 0, 0]),
            m(b'S', b"server_version\x0015.1\0"),
            ready(b'I'),
        ]);
        talk.records.clear();
        talk.at = 100;
        talk
    }

    fn take(&mut self, captured: Captured) {
        self.decoder.take(captured, &mut self.records);
    }

    fn bytes(&mut self, direction: Direction, messages: &[Vec<u8>]) -> &mut Talk {
        self.at += 10;
        let bytes = Bytes::from(messages.concat());
        let step = if self.pieces == 0 {
            bytes.len().max(1)
        } else {
            self.pieces
        };
        for from in (0..bytes.len()).step_by(step) {
            let bytes = bytes.slice(from..bytes.len().min(from + step));
            self.take(Captured::Bytes {
                session: S,
                direction,
                at: self.at,
                bytes,
            });
        }
        self
    }

    fn client(&mut self, messages: &[Vec<u8>]) -> &mut Talk {
        self.bytes(Direction::ToServer, messages)
    }

    fn server(&mut self, messages: &[Vec<u8>]) -> &mut Talk {
        self.bytes(Direction::ToClient, messages)
    }

    fn close(&mut self) -> &mut Talk {
        self.at += 10;
        self.take(Captured::Closed {
            session: S,
            at: self.at,
            abruptly: false,
        });
        self
    }

    fn mark(&mut self) -> Option<Nanos> {
        self.at += 10;
        let mut out = Vec::new();
        self.decoder.mark(self.at, &mut out);
        let mark = out.iter().rev().find_map(|r| {
            if let Record::Mark { at } = r {
                Some(*at)
            } else {
                None
            }
        });
        self.records
            .extend(out.into_iter().filter(|r| !matches!(r, Record::Mark { .. })));
        mark
    }

    fn told(&self) -> Vec<String> {
        self.records.iter().map(line).collect()
    }
}

fn line(record: &Record) -> String {
    match record {
        Record::Statement(o) => {
            let parameters: Vec<String> = o
                .parameters
                .iter()
                .map(|p| format!("{}:{}", p.type_oid, cell(&p.value)))
                .collect();
            let outcome = match &o.outcome {
                Outcome::Answer(a) => {
                    let columns: Vec<&str> = a.columns.iter().map(|c| c.name.as_str()).collect();
                    let rows: Vec<String> = a
                        .rows
                        .iter()
                        .map(|r| format!("({})", r.iter().map(cell).collect::<Vec<_>>().join(",")))
                        .collect();
                    let mut text = format!("{:?} {}{}", a.tag, columns.join(","), rows.join(""));
                    if let Some(cut) = &a.cut {
                        text += &format!(" cut {}", cut.rows);
                    }
                    if let Some(copy) = &a.copy {
                        text += &format!(" copy {:?}", String::from_utf8_lossy(copy));
                    }
                    text
                }
                Outcome::Error(e) => format!("error {}", e.sqlstate),
                Outcome::Lost => "lost".into(),
                Outcome::Skipped => "skipped".into(),
            };
            format!(
                "{}/{}.{} {:?} {:?} [{}] {} ready {} {:?}>{:?} {}",
                o.seq,
                o.group,
                o.part,
                o.protocol,
                o.text,
                parameters.join(" "),
                span(o.window),
                span(o.ready),
                o.before,
                o.after,
                outcome.trim_end()
            )
        }
        Record::Gap(g) => format!("gap {} {}", span(g.window), g.reason),
        Record::SessionEnd { at, .. } => format!("end {at}"),
        Record::SessionStart(f) => format!("start {} {} {}", f.user, f.database, f.server_version),
        other => format!("{other:?}"),
    }
}

fn span(window: crate::trace::Window) -> String {
    let show = |at: Nanos| {
        if at == Nanos::MAX {
            "∞".to_owned()
        } else {
            at.to_string()
        }
    };
    format!("{}-{}", show(window.sent), show(window.done))
}

fn cell(cell: &Option<Bytes>) -> String {
    cell.as_ref()
        .map_or("∅".into(), |c| String::from_utf8_lossy(c).into_owned())
}

// Messages.

fn m(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as i32 + 4).to_be_bytes(), body].concat()
}

fn z(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608i32.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend(z(name));
        body.extend(z(value));
    }
    body.push(0);
    [&(body.len() as i32 + 4).to_be_bytes()[..], &body].concat()
}

fn query(text: &str) -> Vec<u8> {
    m(b'Q', &z(text))
}

fn parse(name: &str, text: &str) -> Vec<u8> {
    m(b'P', &[z(name), z(text), vec![0, 1, 0, 0, 0, 23]].concat())
}

fn bind(portal: &str, statement: &str, parameter: &str) -> Vec<u8> {
    let length = (parameter.len() as i32).to_be_bytes().to_vec();
    m(
        b'B',
        &[
            z(portal),
            z(statement),
            vec![0, 0, 0, 1],
            length,
            parameter.into(),
            vec![0, 0],
        ]
        .concat(),
    )
}

fn describe(kind: u8, name: &str) -> Vec<u8> {
    m(b'D', &[vec![kind], z(name)].concat())
}

fn execute(portal: &str) -> Vec<u8> {
    m(b'E', &[z(portal), vec![0; 4]].concat())
}

fn sync() -> Vec<u8> {
    m(b'S', &[])
}

fn columns(name: &str) -> Vec<u8> {
    let field = [
        &z(name)[..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 23, 0, 4, 255, 255, 255, 255, 0, 0],
    ]
    .concat();
    m(b'T', &[&[0, 1][..], &field].concat())
}

fn row(text: &str) -> Vec<u8> {
    m(
        b'D',
        &[&[0, 1][..], &(text.len() as i32).to_be_bytes(), text.as_bytes()].concat(),
    )
}

fn tag(text: &str) -> Vec<u8> {
    m(b'C', &z(text))
}

fn error(severity: &str, sqlstate: &str) -> Vec<u8> {
    m(
        b'E',
        &[
            z(&format!("S{severity}")),
            z(&format!("V{severity}")),
            z(&format!("C{sqlstate}")),
            vec![0],
        ]
        .concat(),
    )
}

fn ready(status: u8) -> Vec<u8> {
    m(b'Z', &[status])
}

fn parsed() -> Vec<u8> {
    m(b'1', &[])
}

fn bound() -> Vec<u8> {
    m(b'2', &[])
}

#[test]
fn startup_gives_the_facts_and_no_secrets() {
    let mut talk = Talk::unstarted();
    talk.take(Captured::Opened { session: S, at: 0 });
    talk.client(&[startup(&[("user", "u"), ("application_name", "x")])]);
    talk.server(&[m(b'R', &[0, 0, 0, 3])]);
    talk.client(&[m(b'p', &z("hunter2"))]);
    talk.server(&[
        m(b'R', &[0, 0, 0, 0]),
        m(b'S', b"server_version\x0015.1\0"),
        m(b'K', &[0, 0, 0, 42, 1, 2, 3, 4]),
        ready(b'I'),
    ]);
    assert_eq!(talk.told(), ["start u u 15.1"]);
    assert!(!format!("{:?}", talk.records).contains("hunter2"));
    assert_eq!(talk.decoder.new_backends(), [42]);
}

#[test]
fn simple_query() {
    let mut talk = Talk::start();
    talk.client(&[query("select 1")]);
    talk.server(&[columns("a"), row("1"), tag("SELECT 1"), ready(b'I')]);
    talk.client(&[query("")])
        .server(&[m(b'I', &[]), ready(b'I')])
        .close();
    assert_eq!(
        talk.told(),
        [
            r#"0/0.0 Simple "select 1" [] 110-120 ready 110-120 Idle>Idle Some("SELECT 1") a(1)"#,
            r#"1/1.0 Simple "" [] 130-140 ready 130-140 Idle>Idle Some("")"#,
            "end 150",
        ]
    );
}

#[test]
fn several_statements_share_the_query_and_its_ready() {
    let mut talk = Talk::start();
    talk.client(&[query("insert 1; select 2; bad")]);
    talk.server(&[tag("INSERT 0 1"), columns("b"), row("2")]);
    talk.server(&[
        tag("SELECT 1"),
        m(b'N', &[0]),
        error("ERROR", "42703"),
        ready(b'I'),
    ]);
    let text = "\"insert 1; select 2; bad\" []";
    assert_eq!(
        talk.told(),
        [
            format!(r#"0/0.0 Simple {text} 110-120 ready 110-130 Idle>Idle Some("INSERT 0 1")"#),
            format!(r#"1/0.1 Simple {text} 110-130 ready 110-130 Idle>Idle Some("SELECT 1") b(2)"#),
            format!(r#"2/0.2 Simple {text} 110-130 ready 110-130 Idle>Idle error 42703"#),
        ]
    );
}

#[test]
fn extended_with_parse_in_its_group_begins_at_parse() {
    let mut talk = Talk::start();
    talk.client(&[parse("", "select $1"), bind("", "", "5")]);
    talk.client(&[describe(b'P', ""), execute(""), sync()]);
    talk.server(&[parsed(), bound(), columns("a"), row("5")])
        .server(&[tag("SELECT 1"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [r#"0/0.0 Extended "select $1" [23:5] 110-140 ready 120-140 Idle>Idle Some("SELECT 1") a(5)"#]
    );
}

#[test]
fn prepared_once_executed_often() {
    let mut talk = Talk::start();
    talk.client(&[parse("s1", "select $1"), describe(b'S', "s1"), sync()]);
    talk.server(&[parsed(), m(b't', &[0, 1, 0, 0, 0, 20]), columns("a"), ready(b'I')]);
    for value in ["1", "2"] {
        talk.client(&[bind("", "s1", value), execute(""), sync()]);
        talk.server(&[bound(), row(value), tag("SELECT 1"), ready(b'I')]);
    }
    talk.client(&[m(b'C', &[vec![b'S'], z("s1")].concat()), sync()]);
    talk.server(&[m(b'3', &[]), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            r#"0/1.0 Extended "select $1" [20:1] 130-140 ready 130-140 Idle>Idle Some("SELECT 1") a(1)"#,
            r#"1/2.0 Extended "select $1" [20:2] 150-160 ready 150-160 Idle>Idle Some("SELECT 1") a(2)"#,
        ]
    );
}

/// SQL's PREPARE and DEALLOCATE share their names with the protocol's.
#[test]
fn what_sql_prepares_is_known_until_it_is_deallocated() {
    let mut talk = Talk::start();
    let say = |talk: &mut Talk, text: &str, told: &str| {
        talk.client(&[query(text)]).server(&[tag(told), ready(b'I')]);
    };
    let run = |talk: &mut Talk| {
        talk.client(&[bind("", "S 1", "1"), execute(""), sync()]);
        talk.server(&[bound(), tag("SELECT 0"), ready(b'I')]);
        talk.told().pop().unwrap()
    };
    for (forget, told) in [
        ("deallocate \"S 1\";", "DEALLOCATE"),
        ("DEALLOCATE prepare \"S 1\"", "DEALLOCATE"),
        ("deallocate all", "DEALLOCATE ALL"),
        ("discard all", "DISCARD ALL"),
    ] {
        say(&mut talk, "prepare \"S 1\" (int) as select $1", "PREPARE");
        say(&mut talk, "prepare other as select 2", "PREPARE");
        say(&mut talk, "deallocate other", "DEALLOCATE");
        let known = run(&mut talk);
        assert!(known.contains("Extended \"select $1\" [0:1]"), "{known}");
        say(&mut talk, forget, told);
        let unknown = run(&mut talk);
        assert!(unknown.contains("text is not known"), "{forget}: {unknown}");
    }
}

#[test]
fn parse_inside_a_block_widens_the_first_statement_after_it() {
    let mut talk = Talk::start();
    talk.client(&[query("begin isolation level repeatable read")])
        .server(&[tag("BEGIN"), ready(b'T')]);
    talk.client(&[parse("s", "select $1"), sync()])
        .server(&[parsed(), ready(b'T')]);
    for _ in 0..2 {
        talk.client(&[bind("", "s", "1"), execute(""), sync()]);
        talk.server(&[bound(), row("1"), tag("SELECT 1"), ready(b'T')]);
    }
    assert_eq!(
        talk.told()[1..],
        [
            r#"1/2.0 Extended "select $1" [23:1] 130-160 ready 150-160 InBlock>InBlock Some("SELECT 1") (1)"#,
            r#"2/3.0 Extended "select $1" [23:1] 170-180 ready 170-180 InBlock>InBlock Some("SELECT 1") (1)"#,
        ]
    );
}

#[test]
fn an_error_in_a_pipeline_skips_to_its_sync() {
    let mut talk = Talk::start();
    talk.client(&[
        parse("", "insert $1"),
        bind("", "", "1"),
        execute(""),
        parse("", "bad $1"),
        bind("", "", "2"),
        execute(""),
        bind("", "", "3"),
        execute(""),
        sync(),
        bind("", "", "4"),
        execute(""),
        sync(),
    ]);
    talk.server(&[
        parsed(),
        bound(),
        tag("INSERT 0 1"),
        error("ERROR", "42601"),
        ready(b'I'),
    ]);
    talk.server(&[error("ERROR", "26000"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            r#"0/0.0 Extended "insert $1" [23:1] 110-120 ready 110-120 Idle>Idle Some("INSERT 0 1")"#,
            r#"1/0.0 Extended "bad $1" [0:2] 110-120 ready 110-120 Idle>Idle error 42601"#,
            r#"2/0.0 Extended "bad $1" [0:3] 110-120 ready 110-120 Idle>Idle skipped"#,
            r#"3/1.0 Extended "insert $1" [0:4] 110-130 ready 110-130 Idle>Idle error 26000"#,
        ]
    );
}

#[test]
fn what_is_sent_after_an_error_and_before_sync_is_skipped() {
    let mut talk = Talk::start();
    talk.client(&[parse("", "bad"), m(b'H', &[])])
        .server(&[error("ERROR", "42601")]);
    talk.client(&[
        bind("", "", "1"),
        execute(""),
        query("select 1"),
        sync(),
        query("select 2"),
    ]);
    talk.server(&[ready(b'I'), tag("SELECT 1"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            r#"0/0.0 Extended "bad" [] 110-120 ready 110-140 Idle>Idle error 42601"#,
            r#"1/0.0 Extended "" [] 130-130 ready 110-140 Idle>Idle skipped"#,
            r#"2/0.0 Simple "select 1" [] 130-130 ready 110-140 Idle>Idle skipped"#,
            r#"3/1.0 Simple "select 2" [] 130-140 ready 130-140 Idle>Idle Some("SELECT 1")"#,
        ]
    );
}

#[test]
fn a_commit_that_fails_at_sync_is_told() {
    let mut talk = Talk::start();
    talk.client(&[parse("", "insert $1"), bind("", "", "1"), execute(""), sync()]);
    talk.server(&[parsed(), bound(), tag("INSERT 0 1")])
        .server(&[error("ERROR", "23503"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            r#"0/0.0 Extended "insert $1" [23:1] 110-120 ready 110-130 Idle>Idle Some("INSERT 0 1")"#,
            r#"1/0.0 Extended "" [] 110-130 ready 110-130 Idle>Idle error 23503"#,
        ]
    );
}

#[test]
fn a_portal_is_continued() {
    let mut talk = Talk::start();
    talk.client(&[query("begin")])
        .server(&[tag("BEGIN"), ready(b'T')]);
    talk.client(&[
        parse("", "select $1"),
        bind("p", "", "1"),
        describe(b'P', "p"),
        execute("p"),
        sync(),
    ]);
    talk.server(&[
        parsed(),
        bound(),
        columns("a"),
        row("1"),
        m(b's', &[]),
        ready(b'T'),
    ]);
    talk.client(&[execute("p"), sync()])
        .server(&[row("2"), tag("SELECT 1"), ready(b'T')]);
    assert_eq!(
        talk.told()[1..],
        [
            r#"1/1.0 Extended "select $1" [23:1] 130-140 ready 130-140 InBlock>InBlock None a(1)"#,
            r#"2/2.0 Continued "select $1" [23:1] 150-160 ready 150-160 InBlock>InBlock Some("SELECT 1") a(2)"#,
        ]
    );
}

#[test]
fn copy_in_and_out() {
    let mut talk = Talk::start();
    let begin = |tag: u8| m(tag, &[0, 0, 1, 0, 0]);
    talk.client(&[query("copy t from stdin")]).server(&[begin(b'G')]);
    talk.client(&[m(b'd', b"1\n")])
        .client(&[m(b'd', b"2\n"), m(b'c', &[])]);
    talk.server(&[tag("COPY 2"), ready(b'I')]);
    talk.client(&[query("copy t to stdout")]);
    talk.server(&[
        begin(b'H'),
        m(b'd', b"1\n"),
        m(b'd', b"2\n"),
        m(b'c', &[]),
        tag("COPY 2"),
        ready(b'I'),
    ]);
    // Empty, and failed on the client's wish.
    talk.client(&[query("copy t from stdin")])
        .server(&[begin(b'G')])
        .client(&[m(b'f', b"no\0")]);
    talk.server(&[error("ERROR", "57014"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            r#"0/0.0 Simple "copy t from stdin" [] 110-150 ready 110-150 Idle>Idle Some("COPY 2")  copy "1\n2\n""#,
            r#"1/1.0 Simple "copy t to stdout" [] 160-170 ready 160-170 Idle>Idle Some("COPY 2")  copy "1\n2\n""#,
            r#"2/2.0 Simple "copy t from stdin" [] 180-210 ready 180-210 Idle>Idle error 57014"#,
        ]
    );
}

#[test]
fn during_copy_in_the_server_ignores_sync() {
    let mut talk = Talk::start();
    let copy = m(b'G', &[0, 0, 1, 0, 0]);
    for fails in [false, true] {
        talk.client(&[
            parse("", "copy t from stdin"),
            bind("", "", "1"),
            execute(""),
            sync(),
        ]);
        talk.server(&[parsed(), bound(), copy.clone()]);
        talk.client(&[m(b'd', b"1\n")]);
        if fails {
            talk.server(&[error("ERROR", "22P02")]);
        }
        talk.client(&[m(b'd', b"2\n"), m(b'c', &[]), sync()]);
        talk.server(&if fails {
            vec![ready(b'I')]
        } else {
            vec![tag("COPY 2"), ready(b'I')]
        });
    }
    // The client has seen that the server copies, and sends Sync all the same: it has no answer of its own.
    talk.client(&[
        parse("", "copy t from stdin"),
        bind("", "", "1"),
        execute(""),
        m(b'H', &[]),
    ]);
    talk.server(&[parsed(), bound(), copy]);
    talk.client(&[
        m(b'd', b"1\n"),
        sync(),
        m(b'H', &[]),
        m(b'd', b"2\n"),
        m(b'c', &[]),
        sync(),
    ]);
    talk.server(&[tag("COPY 2"), ready(b'I')]);
    talk.client(&[query("select 1")])
        .server(&[tag("SELECT 1"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            r#"0/0.0 Extended "copy t from stdin" [23:1] 110-150 ready 110-150 Idle>Idle Some("COPY 2")  copy "1\n2\n""#,
            r#"1/1.0 Extended "copy t from stdin" [23:1] 160-190 ready 160-210 Idle>Idle error 22P02"#,
            r#"2/2.0 Extended "copy t from stdin" [23:1] 220-250 ready 220-250 Idle>Idle Some("COPY 2")  copy "1\n2\n""#,
            r#"3/3.0 Simple "select 1" [] 260-270 ready 260-270 Idle>Idle Some("SELECT 1")"#,
        ]
    );
}

#[test]
fn function_calls() {
    let mut talk = Talk::start();
    talk.client(&[m(b'F', &[0, 0, 3, 0xbc, 0, 0, 0, 1, 0, 0, 0, 1, b'x', 0, 0])]);
    talk.server(&[m(b'V', &[0, 0, 0, 1, b'y']), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [r#"0/0.0 Function "FUNCTION CALL 956" [0:x] 110-120 ready 110-120 Idle>Idle None (y)"#]
    );
}

#[test]
fn a_lost_connection_leaves_open_windows() {
    let mut talk = Talk::start();
    talk.client(&[query("begin")])
        .server(&[tag("BEGIN"), ready(b'T')]);
    talk.client(&[query("commit")])
        .server(&[error("FATAL", "57P01")])
        .close();
    assert_eq!(
        talk.told()[1..],
        [
            r#"1/1.0 Simple "commit" [] 130-∞ ready 130-∞ InBlock>Unknown lost"#.to_owned(),
            "end 150".to_owned()
        ]
    );

    let mut talk = Talk::start();
    talk.client(&[
        parse("", "insert $1"),
        bind("", "", "1"),
        execute(""),
        m(b'H', &[]),
    ]);
    talk.server(&[parsed(), bound(), tag("INSERT 0 1")]).close();
    assert_eq!(
        talk.told()[0],
        r#"0/0.0 Extended "insert $1" [23:1] 110-120 ready ∞-∞ Idle>Unknown Some("INSERT 0 1")"#
    );
}

#[test]
fn a_gap_ends_at_the_next_idle_ready() {
    let mut talk = Talk::start();
    talk.client(&[parse("s", "select $1"), sync()])
        .server(&[parsed(), ready(b'I')]);
    talk.client(&[query("insert 1")]);
    talk.take(Captured::Gap {
        session: S,
        from: 135,
        to: 138,
        lost_bytes: 99,
    });
    talk.server(&[ready(b'T')])
        .client(&[query("select 2")])
        .server(&[tag("SELECT 1"), ready(b'T')]);
    talk.client(&[query("commit")])
        .server(&[tag("COMMIT"), ready(b'I')]);
    talk.client(&[query("select 3")])
        .server(&[tag("SELECT 1"), ready(b'I')]);
    // What was prepared before the gap may have been replaced in it.
    talk.client(&[bind("", "s", "1"), execute(""), sync()]);
    talk.server(&[bound(), tag("SELECT 0"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            "gap 130-180 99 bytes were not captured",
            r#"0/2.0 Simple "select 3" [] 190-200 ready 190-200 Idle>Idle Some("SELECT 1")"#,
            "gap 210-220 a statement whose text is not known",
        ]
    );
}

#[test]
fn confusion_is_a_gap_and_ends() {
    let mut talk = Talk::start();
    talk.client(&[query("select 1")]).server(&[bound(), ready(b'I')]);
    assert!(talk.told().is_empty());
    talk.client(&[query("select 2")])
        .server(&[tag("SELECT 1"), ready(b'I')]);
    assert_eq!(
        talk.told(),
        [
            "gap 110-120 a message of type '2' that answers nothing that was asked",
            r#"0/1.0 Simple "select 2" [] 130-140 ready 130-140 Idle>Idle Some("SELECT 1")"#,
        ]
    );
    assert_eq!(talk.decoder.counters().decode_errors, 1);
}

#[test]
fn a_client_that_pipelines_must_be_quiet_before_it_is_believed() {
    let mut talk = Talk::start();
    talk.client(&[query("select 1"), query("select 2")]);
    talk.take(Captured::Gap {
        session: S,
        from: 115,
        to: 118,
        lost_bytes: 9,
    });
    talk.server(&[tag("SELECT 1"), ready(b'I')]);
    // The answer to come is the second one, not that of this request.
    talk.client(&[query("select 3")])
        .server(&[tag("SELECT 1"), ready(b'I')]);
    talk.server(&[tag("SELECT 1"), ready(b'I')]);
    assert!(talk.told().is_empty());
    talk.at += 2_000_000_000;
    talk.client(&[query("select 4")])
        .server(&[tag("SELECT 1"), ready(b'I')]);
    assert_eq!(talk.told().len(), 2);
    assert!(talk.told()[1].contains("select 4"));
}

#[test]
fn unknown_messages_are_counted_and_skipped() {
    let mut talk = Talk::start();
    talk.client(&[m(b'y', b"?"), query("select 1")]);
    talk.server(&[
        m(b'A', &[0; 8]),
        m(b'x', b"?"),
        tag("SELECT 1"),
        m(b'S', b"a\0b\0"),
        ready(b'I'),
    ]);
    assert_eq!(talk.told().len(), 1);
    assert_eq!(talk.decoder.counters().unknown_messages, 2);
}

#[test]
fn replication_and_cancel_pass_unrecorded() {
    for first in [
        startup(&[("user", "u"), ("replication", "database")]),
        [&16i32.to_be_bytes()[..], &80_877_102i32.to_be_bytes(), &[1; 8]].concat(),
    ] {
        let mut talk = Talk::unstarted();
        talk.take(Captured::Opened { session: S, at: 0 });
        talk.client(&[first])
            .server(&[m(b'R', &[0; 4]), ready(b'I'), m(b'W', b"\0\0\0")])
            .close();
        assert!(talk.told().is_empty());
        let Counters {
            replication_sessions,
            cancel_requests,
            decode_errors,
            ..
        } = talk.decoder.counters();
        assert_eq!((replication_sessions + cancel_requests, decode_errors), (1, 0));
    }
}

#[test]
fn large_results_are_cut() {
    let mut talk = Talk::unstarted();
    talk.decoder = Decoder::new(Limits {
        result_bytes_max: 20,
        message_bytes_max: 1000,
    });
    let mut talk = Talk::start_with(talk);
    talk.client(&[query("select 1")]);
    talk.server(&[
        columns("a"),
        row("1"),
        row("2"),
        row("3"),
        row("4"),
        tag("SELECT 4"),
        ready(b'I'),
    ]);
    assert_eq!(
        talk.told(),
        [r#"0/0.0 Simple "select 1" [] 110-120 ready 110-120 Idle>Idle Some("SELECT 4") a(1)(2) cut 4"#]
    );
}

#[test]
fn foreign_encodings_are_turned_or_refused() {
    for (encoding, expected) in [
        (
            "LATIN1",
            r#"0/0.0 Simple "select 'é'" [] 120-130 ready 120-130 Idle>Idle Some("SELECT 1") a(é)"#,
        ),
        (
            "WIN1251",
            "gap 120-130 text in a client_encoding that cannot be read",
        ),
    ] {
        let mut talk = Talk::start();
        talk.server(&[m(b'S', format!("client_encoding\0{encoding}\0").as_bytes())]);
        talk.client(&[m(b'Q', b"select '\xe9'\0")]);
        let cell = m(b'D', b"\0\x01\0\0\0\x01\xe9");
        talk.server(&[columns("a"), cell, tag("SELECT 1"), ready(b'I')]);
        assert_eq!(talk.told(), [expected]);
    }
}

#[test]
fn marks_wait_for_what_could_commit() {
    let mut talk = Talk::start();
    assert_eq!(talk.mark(), Some(110));
    // An implicit transaction under way holds the mark back …
    talk.client(&[query("insert 1")]);
    assert_eq!(talk.mark(), Some(120));
    assert_eq!(talk.mark(), None);
    talk.server(&[tag("INSERT 0 1"), ready(b'I')]);
    assert_eq!(talk.mark(), Some(160));
    // … BEGIN and what runs inside a block do not …
    talk.client(&[query("begin")]);
    assert_eq!(talk.mark(), Some(180));
    talk.server(&[tag("BEGIN"), ready(b'T')])
        .client(&[query("lock table t")]);
    assert_eq!(talk.mark(), Some(210));
    talk.server(&[tag("LOCK TABLE"), ready(b'T')]);
    // … COMMIT does.
    talk.client(&[query("commit")]);
    assert_eq!(talk.mark(), Some(230));
    talk.server(&[tag("COMMIT"), ready(b'I')]);
    // In the extended protocol it is Sync that commits.
    talk.client(&[parse("", "insert $1"), bind("", "", "1"), execute("")]);
    assert_eq!(talk.mark(), Some(270));
    talk.server(&[parsed(), bound(), tag("INSERT 0 1")])
        .client(&[sync()]);
    assert_eq!(talk.mark(), Some(290));
    talk.server(&[ready(b'I')]);
    assert_eq!(talk.mark(), Some(320));
    // Half a message may be anything.
    talk.client(&[query("insert 2")[..7].to_vec()]);
    assert_eq!(talk.mark(), Some(330));
}

#[test]
fn marks_go_on_past_a_session_that_lost_its_place() {
    let mut talk = Talk::start();
    talk.client(&[query("insert 1")])
        .server(&[bound()])
        .client(&[query("insert 2")]);
    assert_eq!(talk.mark(), Some(110));
    talk.at = 2_000_000_000;
    assert_eq!(talk.mark(), Some(2_000_000_010));
    assert_eq!(
        talk.told(),
        ["gap 110-2000000010 a message of type '2' that answers nothing that was asked"]
    );
}

/// Whatever way the streams are cut into pieces, the records are the same.
#[test]
fn pieces_do_not_matter() {
    let conversation = |pieces: usize| {
        let mut talk = Talk::start();
        talk.pieces = pieces;
        talk.client(&[
            query("begin"),
            parse("s", "select $1"),
            bind("", "s", "1"),
            execute(""),
            sync(),
        ]);
        talk.server(&[tag("BEGIN"), ready(b'T'), parsed(), bound(), row("1"), row("2")]);
        talk.server(&[tag("SELECT 2"), ready(b'T')]);
        talk.client(&[query("copy t from stdin")])
            .server(&[m(b'G', &[0, 0, 1, 0, 0])]);
        talk.client(&[m(b'd', b"1\n"), m(b'd', b"2\n"), m(b'c', &[])])
            .server(&[tag("COPY 2"), ready(b'T')]);
        talk.client(&[query("bad"), query("rollback")]);
        talk.server(&[error("ERROR", "42601"), ready(b'E'), tag("ROLLBACK"), ready(b'I')]);
        talk.close();
        talk.told()
    };
    let whole = conversation(0);
    assert_eq!(whole.len(), 6);
    for pieces in 1..40 {
        assert_eq!(conversation(pieces), whole, "pieces of {pieces}");
    }
}

proptest::proptest! {
    /// Garbage in either direction, gaps and flipped bytes: no panic, and the decoder goes on.
    #[test]
    fn garbage_is_survived(seed in 0u64..2000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut talk = Talk::start();
        for _ in 0..40 {
            let mut bytes = match random.u8(0..14) {
                0 => query("select 1"),
                1 => [parse("", "x"), bind("", "", "1"), execute(""), sync()].concat(),
                2 => [parsed(), bound(), tag("SELECT 1"), ready(b'I')].concat(),
                3 => [tag("SELECT 1"), ready(b'I')].concat(),
                4 => error("ERROR", "42601"),
                5 => [row("1"), columns("a")].concat(),
                6 => m(b'G', &[0, 0, 1, 0, 0]),
                7 => [m(b'd', b"1\n"), m(b'c', &[])].concat(),
                8 => sync(),
                9 => m(b's', &[]),
                10 => ready(b'T'),
                11 => describe(b'S', ""),
                12 => m(b'V', &[255; 4]),
                _ => (0..random.usize(0..30)).map(|_| random.u8(..)).collect(),
            };
            if random.u8(0..10) == 0 && !bytes.is_empty() {
                let at = random.usize(0..bytes.len());
                bytes[at] = random.u8(..);
            }
            if random.u8(0..20) == 0 {
                talk.take(Captured::Gap { session: S, from: talk.at, to: talk.at + 1, lost_bytes: 1 });
            }
            if random.bool() { talk.client(&[bytes]); } else { talk.server(&[bytes]); }
            talk.mark();
        }
        talk.close();
        let ended = matches!(talk.records.last(), Some(Record::SessionEnd { .. }));
        proptest::prop_assert!(ended);
        let mut seqs = talk.records.iter().filter_map(|r| match r {
            Record::Statement(o) => Some(o.seq),
            _ => None,
        });
        proptest::prop_assert!((0..).zip(&mut seqs).all(|(i, seq)| i == seq));
    }
}
