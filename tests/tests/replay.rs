//! A story stands on its own ground: its scripts make what they need on an empty database, and show it again.

use pgassay::config::Writers;
use pgassay_tests::cluster::Cluster;
use pgassay_tests::lost::connect;
use pgassay_tests::proxy::Proxy;
use pgassay_tests::tools::binary;
use std::path::Path;
use std::process::{Command, Stdio};

/// Everything that a table can lean on, so that all of it has to be made again.
const SCHEMA: &str = r#"
create schema "Shop";
create type "Shop".colour as enum ('red', 'it''s {blue}');
create domain "Shop".amount as numeric(10, 2) not null;
create sequence "Shop".numbers;
create function "Shop".half(n numeric) returns numeric language sql immutable as $$ select n / 2 $$;
create table "Shop".customer (id int generated always as identity primary key, "full name" text collate "C");
create table "Shop"."order" (
    id bigint primary key default nextval('"Shop".numbers'),
    customer int not null references "Shop".customer on delete cascade,
    colour "Shop".colour not null default 'red',
    tags text[] not null default '{}',
    price "Shop".amount,
    half numeric generated always as ("Shop".half(price)) stored,
    note varchar(40),
    made timestamptz not null default '2024-02-29 12:00:00+00',
    check (price >= 0),
    unique (customer, note)
);
create unique index on "Shop"."order" (lower(note)) where note is not null;
create table "Shop".log (day date, text text) partition by range (day);
create table "Shop".log_old partition of "Shop".log for values from (minvalue) to ('2024-01-01');
create table "Shop".log_new partition of "Shop".log for values from ('2024-01-01') to (maxvalue);
create view "Shop".total as select customer, sum(price) as sum from "Shop"."order" group by customer;
insert into "Shop".customer ("full name") values ('Ann'), ('Bo''b');
insert into "Shop"."order" (customer, price, note, tags) values
    (1, 100, E'two\nlines', '{a,"b}"}'), (1, 20, 'back\slash', '{}'), (2, 5, null, '{}');
insert into "Shop".log values ('2023-05-05', 'old'), ('2024-05-05', 'new');
create table bystander (id int primary key);
"#;

fn psql(cluster: &Cluster, database: &str, sql: &str) -> String {
    let output = Command::new(cluster.program("psql"))
        .args([
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            &uri(cluster, database),
            "-c",
            sql,
        ])
        .output()
        .expect("psql runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn uri(cluster: &Cluster, database: &str) -> String {
    format!("postgresql://postgres@{}/{database}", cluster.address())
}

fn pgassay(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
    let output = command.output().expect("pgassay runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("an exit code");
    (code, text(&output.stdout), text(&output.stderr))
}

/// Two clients read one sum through a view and each writes on the strength of it: a legal write skew at REPEATABLE READ.
async fn skew(uri: &str) {
    let (one, two) = (connect(uri).await, connect(uri).await);
    for client in [&one, &two] {
        let begin = "set search_path = \"Shop\"; begin isolation level repeatable read";
        client.batch_execute(begin).await.expect("begin");
    }
    for client in [&one, &two] {
        let sums = client
            .simple_query("select sum from total where customer = 1")
            .await;
        sums.expect("a sum");
        client
            .simple_query("select text from log where day = '2024-05-05'")
            .await
            .expect("a row");
    }
    let updates = [
        "update \"order\" set price = price + 1, tags = '{x}' where id = 1",
        "update \"order\" set price = price + 2 where id = 2",
    ];
    for (client, update) in [&one, &two].into_iter().zip(updates) {
        client.batch_execute(update).await.expect("an update");
        client.batch_execute("commit").await.expect("commit");
    }
}

#[test]
fn a_story_makes_the_ground_that_it_stands_on() {
    let cluster = Cluster::start().expect("a server");
    let dir = tempfile::tempdir().unwrap();
    psql(&cluster, "postgres", SCHEMA);
    psql(&cluster, "postgres", "create database empty");
    let journal = dir.path().join("journal");
    let kept = journal.clone();
    let proxy = Proxy::start_with(&uri(&cluster, "postgres"), move |config| {
        config.journal.dir = Some(kept);
        config.side.enabled = true;
        config.audit.claim = Some("serializable".to_owned());
        config.audit.writers = Writers::Exclusive;
    });
    tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(skew(&proxy.uri()));
    let found = proxy.stop().violations();
    let rules: Vec<&str> = found.iter().map(|v| v.rule.as_str()).collect();
    assert_eq!(rules, ["write_skew"]);

    let explain = |format: &str| {
        let journal = journal.display().to_string();
        let claim = ["--claim", "serializable", "--format", format];
        let (code, out, err) =
            pgassay(&[&["explain", &found[0].id, "--journal", &journal][..], &claim].concat());
        assert_eq!(code, 0, "{err}");
        out
    };
    let script = explain("script");
    assert!(
        !script.contains("bystander"),
        "only what the story needs: {script}"
    );
    let file = dir.path().join("story.script").display().to_string();
    std::fs::write(&file, &script).unwrap();
    replays(&cluster, &file, &script);

    let spec = explain("spec");
    let told = isolationtester(&cluster, dir.path(), &spec);
    assert!(!told.contains("ERROR"), "{told}\n{spec}");
    // Both saw the same sum, as in the story.
    assert_eq!(told.matches("\n120.00\n").count(), 2, "{told}\n{spec}");
    assert_eq!(left(&cluster), "", "teardown takes everything away: {spec}");
}

fn replays(cluster: &Cluster, file: &str, script: &str) {
    let empty = uri(cluster, "empty");
    for round in 1..=2 {
        let (code, out, err) = pgassay(&["replay", file, "--upstream", &empty]);
        assert_eq!(code, 1, "round {round}: {out}{err}\n{script}");
        assert!(
            out.contains("it showed again: write_skew at serializable"),
            "{out}"
        );
        assert!(!out.contains("(then:"), "the same answers as then: {out}");
        assert_eq!(left(cluster), "", "cleanup takes everything away: {out}");
    }
    let (code, out, err) = pgassay(&["replay", file, "--upstream", &empty, "--claim", "repeatable-read"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("write_skew did not show"), "{out}");

    // What is there already is neither changed nor taken away.
    let (code, out, err) = pgassay(&["replay", file, "--upstream", &uri(cluster, "postgres")]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(
        err.contains("already exists") && err.contains("--no-setup"),
        "{err}"
    );
    assert_eq!(
        psql(cluster, "postgres", "select count(*) from \"Shop\".\"order\""),
        "3"
    );
    // On a copy of the database it needs no setup.
    psql(cluster, "postgres", "create database copy");
    psql(cluster, "copy", SCHEMA);
    let (code, out, err) = pgassay(&["replay", file, "--upstream", &uri(cluster, "copy"), "--no-setup"]);
    assert_eq!(code, 1, "{out}{err}");
    assert_eq!(
        psql(cluster, "copy", "select count(*) from \"Shop\".\"order\""),
        "3"
    );
}

/// Relations that somebody left behind in the empty database.
fn left(cluster: &Cluster) -> String {
    let relations = "select string_agg(relname, ', ') from pg_class c join pg_namespace n on n.oid = relnamespace \
         where nspname !~ '^pg_' and nspname <> 'information_schema'";
    psql(cluster, "empty", relations)
}

/// PostgreSQL's own, from the packages of the client.
fn isolationtester(cluster: &Cluster, dir: &Path, spec: &str) -> String {
    let programs = cluster.program("psql");
    let home = programs
        .parent()
        .and_then(Path::parent)
        .expect("a home of the programs");
    let place = "pgxs/src/test/isolation/isolationtester";
    let candidates = ["lib", "lib/postgresql"].map(|lib| home.join(lib).join(place));
    let tester = candidates.iter().find(|path| path.exists());
    let tester = tester.unwrap_or_else(|| panic!("none of {candidates:?} is there"));
    let file = dir.join("story.spec");
    std::fs::write(&file, spec).unwrap();
    let output = Command::new(tester)
        .arg(format!(
            "dbname=empty host=127.0.0.1 port={} user=postgres",
            cluster.port()
        ))
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .expect("isolationtester runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{told}{err}\n{spec}");
    told
}
