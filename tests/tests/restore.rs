//! What the audit has lost track of is read again on the side connection, in the midst of the traffic.

use pgassay::config::Writers;
use pgassay::live::Live;
use pgassay_audit::Settings;
use pgassay_audit::trace::{Gap, NOBODY, Record, Window};
use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::random;
use pgassay_tests::raw::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Nobody can follow what it does, so that nothing is known of any table afterwards.
const BLIND: &str = "do $$ begin execute 'update acct set v = v + 1 where k = 1'; end $$";

fn wait_for(what: &str, live: &Live, holds: impl Fn(&Live) -> bool) {
    let patience = Instant::now() + Duration::from_secs(400);
    while !holds(live) {
        assert!(Instant::now() < patience, "{what}: lost {:?}", live.audit().lost);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn proxy(cluster: &Cluster, journal: Option<&std::path::Path>) -> Proxy {
    Proxy::start_with(&cluster.address(), |config| {
        config.audit.writers = Writers::Exclusive;
        config.side.enabled = true;
        config.side.uri = Some(format!("postgresql://postgres@{}/postgres", cluster.address()));
        config.journal.dir = journal.map(|dir| dir.join("journal"));
    })
}

fn answers(client: &mut Client, sql: &str) {
    let answer = client.query(sql);
    assert!(!answer.iter().any(|m| m.tag == b'E'), "{sql}");
}

#[test]
fn a_table_that_was_lost_is_found_again() {
    let cluster = Cluster::start().unwrap();
    let mut direct = Client::log_in(cluster.port());
    answers(
        &mut direct,
        "create table acct (k int primary key, v int, t timestamptz); create table log (a int, b text); \
         create table part (k int primary key, v text) partition by range (k); \
         create table part1 partition of part for values from (0) to (10); \
         create table part2 partition of part for values from (10) to (20); \
         insert into acct values (1, 10, '2024-01-01 12:00+00'), (2, 20, null); \
         insert into log values (1, 'x'), (1, 'x'), (2, null); insert into part values (1, 'a'), (11, 'b')",
    );
    let proxy = proxy(&cluster, None);
    let mut client = Client::log_in(proxy.port());
    answers(&mut client, BLIND);
    wait_for("the audit notices", proxy.live(), |live| {
        live.audit().lost.len() >= 4 || live.rereads.load(Relaxed) > 0
    });
    // Nobody reads them as a whole.
    wait_for("everything is found again", proxy.live(), |live| {
        live.rereads.load(Relaxed) > 0 && live.audit().lost.is_empty()
    });
    let before = proxy.live().summary().coverage;
    for sql in [
        "select k, v from acct order by k",
        "select a, b, count(*) from log group by a, b order by a",
        "select k, v from part order by k",
        "insert into log values (3, 'y')",
        "update acct set v = v + 1 where v > 15",
        "delete from part where k = 3",
        "select count(*) from acct where v = 21",
        "select count(*), max(a) from log",
    ] {
        answers(&mut client, sql);
    }
    drop(client);
    let live: Arc<Live> = proxy.stop();
    let summary = live.summary();
    assert_eq!(live.audit().stats.withheld, 0, "nothing was to be kept back");
    assert_eq!(summary.violations, [], "a correct server was accused");
    let checked = summary.coverage.checked - before.checked;
    assert_eq!(checked, 8, "{:?}", summary.coverage);
}

#[test]
fn what_is_read_in_the_midst_of_traffic_accuses_nobody() {
    let options = Options::default().set("deadlock_timeout", "20ms");
    let cluster = Cluster::start_with(options).unwrap();
    let journal = tempfile::Builder::new().prefix("restore-").tempdir().unwrap();
    let proxy = proxy(&cluster, Some(journal.path()));
    let seed = 5;
    let mut setup = Client::log_in(proxy.port());
    for sql in random::schema(seed) {
        answers(&mut setup, &sql);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let port = proxy.port();
    let threads: Vec<_> = (1..=4)
        .map(|number| {
            let (stop, live) = (stop.clone(), proxy.live().clone());
            // A slow machine must be able to judge what a fast server answers: nobody runs ahead of the audit.
            let go_on = move || {
                std::thread::sleep(Duration::from_millis(15));
                while live.audit_queue_records.load(Relaxed) > 200 && !stop.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                !stop.load(Relaxed)
            };
            std::thread::spawn(move || random::run_client(seed, number, port, u64::MAX, go_on))
        })
        .collect();
    for round in 1..=2 {
        let so_far = proxy.live().rereads.load(Relaxed);
        answers(&mut setup, BLIND);
        wait_for("tables are read again", proxy.live(), |live| {
            live.rereads.load(Relaxed) > so_far
        });
        println!("round {round}: {:?} are lost", proxy.live().audit().lost);
    }
    stop.store(true, Relaxed);
    let sent: u64 = threads.into_iter().map(|t| t.join().expect("a client")).sum();
    drop(setup);
    let live = proxy.stop();
    assert_eq!(live.audit().stats.withheld, 0, "nothing was to be kept back");
    let summary = live.summary();
    println!(
        "{sent} transactions, {} statements, {:?}",
        summary.statements, summary.coverage.reasons
    );
    if !summary.violations.is_empty() {
        println!("kept in {}/journal", journal.keep().display());
    }
    let told: Vec<&str> = summary.violations.iter().map(|v| v.story.as_str()).collect();
    assert!(
        told.is_empty(),
        "a correct server was accused:\n{}",
        told.join("\n")
    );
}

/// A gap in the trace, as if everything had been lost for a moment.
fn gap(proxy: &Proxy, sent: u64) {
    let gap = Gap {
        session: Some(NOBODY),
        window: Window::new(sent, pgassay::clock::now()),
        reason: "the test says so".to_owned(),
    };
    proxy
        .running()
        .inbox()
        .send(Record::Gap(gap))
        .expect("a recorder");
}

/// Somebody changes a table while nobody looks. What is then judged by the old one accuses nobody; as soon as the
/// catalog was read again, the new one is known.
#[test]
fn a_catalog_that_was_changed_in_a_gap_is_read_again() {
    let cluster = Cluster::start().unwrap();
    let mut direct = Client::log_in(cluster.port());
    answers(
        &mut direct,
        "create table acct (k int primary key, v int); insert into acct values (1, 10); \
         create function more() returns trigger language plpgsql as 'begin new.v := new.v + 1; return new; end'",
    );
    let journal = tempfile::Builder::new().prefix("catalog-").tempdir().unwrap();
    let proxy = proxy(&cluster, Some(journal.path()));
    let mut client = Client::log_in(proxy.port());
    answers(&mut client, "select k, v from acct");
    let sent = pgassay::clock::now();
    answers(
        &mut direct,
        "alter table acct add column note text default 'new'; \
         create trigger more before insert or update on acct for each row execute function more()",
    );
    gap(&proxy, sent);
    // By the old catalog each of these is wrong.
    answers(&mut client, "insert into acct (k, v) values (2, 20)");
    answers(&mut client, "select k, v from acct where k = 2");
    answers(&mut client, "update acct set v = 30 where k = 2 returning *");
    answers(&mut client, "select * from acct order by k");
    wait_for("the catalog is read again", proxy.live(), |live| {
        live.rereads.load(Relaxed) > 0 && live.audit().wanted.is_none()
    });
    answers(&mut direct, "drop trigger more on acct");
    gap(&proxy, pgassay::clock::now());
    wait_for("it is noticed", proxy.live(), |live| {
        live.audit().wanted.is_some()
    });
    wait_for("the catalog is read again", proxy.live(), |live| {
        live.audit().wanted.is_none()
    });
    wait_for("so is the table", proxy.live(), |live| {
        live.audit().lost.is_empty()
    });
    let before = proxy.live().summary().coverage;
    answers(&mut client, "insert into acct (k, v) values (3, 30)");
    answers(&mut client, "select * from acct order by k");
    drop(client);
    let live = proxy.stop();
    let summary = live.summary();
    assert_eq!(summary.violations, [], "a correct server was accused");
    assert!(live.audit().stats.withheld > 0, "it was not put to the test");
    let checked = summary.coverage.checked - before.checked;
    assert_eq!(checked, 2, "{:?}", summary.coverage);
    let again = pgassay::cli::check::audit(&journal.path().join("journal"), None, &Settings::default());
    assert_eq!(
        again.expect("a journal").coverage,
        summary.coverage,
        "the journal tells another story"
    );
}

/// What nothing but a stale catalog speaks against is told as soon as the catalog is known to be the right one.
#[test]
fn what_is_wrong_beside_a_gap_is_told_after_all() {
    let cluster = Cluster::start().unwrap();
    let mut direct = Client::log_in(cluster.port());
    answers(
        &mut direct,
        "create table acct (k int primary key, v int); insert into acct values (1, 10)",
    );
    let proxy = proxy(&cluster, None);
    let mut client = Client::log_in(proxy.port());
    gap(&proxy, pgassay::clock::now());
    answers(&mut client, "update acct set v = 30 where k = 1 returning k, v");
    // Past the proxy, although it is told that nobody does that.
    answers(&mut direct, "update acct set v = 31 where k = 1");
    answers(&mut client, "select v from acct where k = 1");
    drop(client);
    let live = proxy.stop();
    assert_eq!(
        live.summary().violations.len(),
        1,
        "{:?}",
        live.summary().coverage
    );
}
