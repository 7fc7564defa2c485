//! Tables that a file describes, where nobody may read the catalog (`audit.schema`), against a real server.

use pgassay::config::{Config, Writers};
use pgassay::serve::Running;
use pgassay_audit::Settings;
use pgassay_audit::verdict::Summary;
use pgassay_tests::cluster::Cluster;
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::Client;
use std::path::Path;

const SCHEMA: &str = "\\restrict x\n\
    SELECT pg_catalog.set_config('search_path', '', false);\n\
    CREATE TABLE public.acct (id integer NOT NULL, v integer);\n\
    ALTER TABLE public.acct OWNER TO postgres;\n\
    ALTER TABLE ONLY public.acct ADD CONSTRAINT acct_pkey PRIMARY KEY (id);\n\
    CREATE VIEW public.luck AS SELECT id, random() AS r FROM public.acct;\n";

fn answers(client: &mut Client, sql: &str) {
    let answer = client.query(sql);
    assert!(!answer.iter().any(|m| m.tag == b'E'), "{sql}");
}

/// The same traffic, whatever is known; `outside` is written past the proxy before the last question.
fn judged(schema: Option<&Path>, outside: &str, journal: Option<&Path>) -> Summary {
    let cluster = Cluster::start().unwrap();
    let mut direct = Client::log_in(cluster.port());
    answers(
        &mut direct,
        "create table acct (id int primary key, v int); insert into acct values (1, 10), (2, 20); \
         create view luck as select id, random() as r from acct",
    );
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.side.enabled = false;
        config.audit.writers = Writers::Exclusive;
        config.audit.schema = schema.map(Path::to_owned);
        config.journal.dir = journal.map(Path::to_owned);
    });
    let mut client = Client::log_in(proxy.port());
    for sql in [
        "select v from acct where id = 1",
        "update acct set v = v + 1 where id = 1",
        "select v from acct where id = 1",
        "select id, r from luck where id = 1",
        "select id, r from luck where id = 1",
    ] {
        answers(&mut client, sql);
    }
    answers(&mut direct, outside);
    answers(&mut client, "select v from acct where id = 1");
    drop(client);
    proxy.stop().summary()
}

#[test]
fn a_file_describes_the_tables() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SCHEMA).unwrap();
    let summary = judged(Some(file.path()), "select 1", None);
    assert!(summary.violations.is_empty(), "{:?}", summary.violations);
    let reasons = &summary.coverage.reasons;
    assert!(!reasons.contains_key("unknown_table"), "{reasons:?}");
    let mut shapes = summary.coverage.shapes.iter();
    let shape = shapes.find(|shape| shape.shape == "select v from acct where id = ?");
    let shape = shape.expect("the question is counted");
    assert_eq!(
        (shape.checked, shape.partial),
        (2, 1),
        "all but the first sight of a row: {reasons:?}"
    );

    let blind = judged(None, "select 1", None);
    assert!(blind.violations.is_empty(), "{:?}", blind.violations);
    assert_eq!(
        blind.coverage.reasons.get("unknown_table"),
        Some(&6),
        "a view looks like a table: {:?}",
        blind.coverage.reasons
    );
}

/// It is a promise that nobody writes past the proxy; whoever breaks it shows that answers are compared.
#[test]
fn a_row_once_seen_is_compared() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SCHEMA).unwrap();
    let summary = judged(Some(file.path()), "update acct set v = 99 where id = 1", None);
    assert_eq!(summary.violations.len(), 1, "{:?}", summary.coverage.reasons);
}

/// What a second run says of the tables takes the place of what the first one said.
#[test]
fn a_proxy_that_starts_again_tells_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let (file, journal) = (dir.path().join("schema.sql"), dir.path().join("journal"));
    std::fs::write(&file, SCHEMA).unwrap();
    let first = judged(Some(&file), "select 1", Some(&journal));
    judged(Some(&file), "select 1", Some(&journal));
    let both = pgassay::cli::check::audit(&journal, None, &Settings::default()).unwrap();
    assert!(both.violations.is_empty(), "{:?}", both.violations);
    assert_eq!(both.statements, 2 * first.statements);
    assert_eq!(
        both.coverage.checked,
        2 * first.coverage.checked,
        "{:?}",
        both.coverage.reasons
    );
}

#[test]
fn a_file_that_says_nothing_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (path, told) in [
        (file.path().to_owned(), "creates nothing"),
        (file.path().join("nowhere"), "cannot read the schema"),
    ] {
        let mut config = Config {
            listen: vec!["127.0.0.1:0".to_owned()],
            ..Config::default()
        };
        config.side.enabled = false;
        config.admin.listen = None;
        config.audit.schema = Some(path);
        let Err(error) = Running::start(config) else {
            panic!("started: {told}")
        };
        assert!(format!("{error:#}").contains(told), "{error:#}");
    }
}
