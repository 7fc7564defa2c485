//! Random concurrent transactions on a real PostgreSQL, through the proxy: the audit must be silent.
//!
//! `PGASSAY_RANDOM_SECONDS` and `PGASSAY_RANDOM_SEED` make longer runs and repeat a seed. What a seed does is the
//! same every time, how the server interleaves it is not: the journal of a failure is kept (with `PGASSAY_RANDOM_KEEP`
//! that of every run), and `PGASSAY_RANDOM_REPLAY=DIR` judges it again.

use pgassay::config::Writers;
use pgassay_audit::Settings;
use pgassay_audit::trace::{Gap, NOBODY, Record, Window};
use pgassay_audit::verdict::Summary;
use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::random;
use pgassay_tests::raw::Client;
use std::time::{Duration, Instant};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(otherwise)
}

#[test]
fn a_correct_server_is_never_accused() {
    if let Some(journal) = std::env::var_os("PGASSAY_RANDOM_REPLAY") {
        let summary =
            pgassay::cli::check::audit(journal.as_ref(), None, &Settings::default()).expect("a journal");
        tell(&summary);
        assert!(summary.violations.is_empty(), "a correct server was accused");
        return;
    }
    let seed = number("PGASSAY_RANDOM_SEED", 1);
    let seconds = number("PGASSAY_RANDOM_SECONDS", 20);
    // A slow machine must be able to judge what a fast server answers: without seconds asked for, count.
    let most = if std::env::var_os("PGASSAY_RANDOM_SECONDS").is_some() {
        u64::MAX
    } else {
        150
    };
    let clients = number("PGASSAY_RANDOM_CLIENTS", 6);
    let options = Options::default()
        .set("deadlock_timeout", "20ms")
        .set("max_prepared_transactions", "10");
    let cluster = Cluster::start_with(options).unwrap();
    let journal = tempfile::Builder::new()
        .prefix("random-traffic-")
        .tempdir()
        .expect("a directory");
    // Nobody writes past the proxy here: every table is known completely.
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.audit.writers = Writers::Exclusive;
        config.journal.dir = Some(journal.path().join("journal"));
        // Half of the runs may read again what was lost, so that more is known; the others never look.
        config.side.enabled = seed % 2 == 1;
        config.side.uri = Some(format!("postgresql://postgres@{}/postgres", cluster.address()));
    });
    let mut setup = Client::log_in(proxy.port());
    for sql in random::schema(seed) {
        let answer = setup.query(&sql);
        assert!(
            !answer.iter().any(|m| m.tag == b'E'),
            "{sql}: {:?}",
            answer[0].field('M')
        );
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let port = proxy.port();
    let threads: Vec<_> = (1..=clients)
        .map(|number| {
            std::thread::spawn(move || random::run_client(seed, number, port, most, || Instant::now() < end))
        })
        .collect();
    let transactions: u64 = threads.into_iter().map(|t| t.join().expect("a client")).sum();
    drop(setup);
    let live = proxy.stop();
    let summary = live.summary();
    println!(
        "seed {seed}: {transactions} transactions sent, {:?}",
        random::Features::of(seed)
    );
    tell(&summary);
    let withheld = live.audit().stats.withheld;
    let asked_for = std::env::var_os("PGASSAY_RANDOM_KEEP").is_some();
    if !summary.violations.is_empty() || withheld > 0 || asked_for {
        println!(
            "PGASSAY_RANDOM_REPLAY={}/journal judges it again",
            journal.keep().display()
        );
    }
    let rules: Vec<&str> = summary.violations.iter().map(|v| v.rule.as_str()).collect();
    assert!(
        rules.is_empty(),
        "seed {seed}: a correct server was accused of {rules:?}"
    );
    // Nobody changed the catalog unseen: what is kept back for its sake is as bad.
    assert_eq!(withheld, 0, "seed {seed}: something was kept back");
    assert!(summary.transactions > 0, "nothing was judged");
}

/// Within this a change that nobody sees is over, or was given up.
const UNSEEN_NS: u64 = 3_000_000_000;

/// Somebody changes the tables past the proxy, which is not told that this can happen; the audit only knows that
/// something was lost now and then.
#[test]
fn a_catalog_that_changes_unseen_accuses_nobody() {
    let seed = number("PGASSAY_RANDOM_SEED", 1);
    let seconds = number("PGASSAY_RANDOM_SECONDS", 12);
    let options = Options::default().set("deadlock_timeout", "20ms");
    let cluster = Cluster::start_with(options).unwrap();
    let journal = tempfile::Builder::new()
        .prefix("random-catalog-")
        .tempdir()
        .expect("a directory");
    let mut direct = Client::log_in(cluster.port());
    for sql in random::schema(seed) {
        direct.query(&sql);
    }
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.audit.writers = Writers::Exclusive;
        config.side.enabled = true;
        config.side.uri = Some(format!("postgresql://postgres@{}/postgres", cluster.address()));
        config.journal.dir = Some(journal.path().join("journal"));
    });
    let end = Instant::now() + Duration::from_secs(seconds);
    let port = proxy.port();
    let threads: Vec<_> = (1..=3)
        .map(|number| {
            let go_on = move || {
                std::thread::sleep(Duration::from_millis(20));
                Instant::now() < end
            };
            std::thread::spawn(move || random::run_client(seed, number, port, u64::MAX, go_on))
        })
        .collect();
    let (mut unseen, inbox) = (random::Unseen::new(seed), proxy.running().inbox());
    // It is said before: what is judged by then cannot be taken back.
    let mut late = false;
    direct.query("set statement_timeout = '500ms'");
    while Instant::now() < end {
        for _ in 0..unseen.some() {
            let sent = pgassay::clock::now();
            let window = Window::new(sent, sent + UNSEEN_NS);
            inbox
                .send(Record::Gap(Gap {
                    session: Some(NOBODY),
                    window,
                    reason: "somebody came past the proxy".to_owned(),
                }))
                .expect("a recorder");
            direct.query(&unseen.upheaval());
            late |= pgassay::clock::now() >= window.done;
        }
        std::thread::sleep(unseen.pause());
    }
    let transactions: u64 = threads.into_iter().map(|t| t.join().expect("a client")).sum();
    let live = proxy.stop();
    let summary = live.summary();
    println!(
        "seed {seed}: {transactions} transactions sent, {} kept back, read again {} times",
        live.audit().stats.withheld,
        live.rereads.load(std::sync::atomic::Ordering::Relaxed)
    );
    tell(&summary);
    let again = pgassay::cli::check::audit(&journal.path().join("journal"), None, &Settings::default())
        .expect("a journal");
    assert_eq!(
        again.violations.len(),
        summary.violations.len(),
        "the journal tells another story"
    );
    assert_eq!(
        again.coverage, summary.coverage,
        "the journal tells another story"
    );
    if !summary.violations.is_empty() {
        println!("kept in {}/journal", journal.keep().display());
    }
    if late {
        println!(
            "the machine was too slow: something was changed later than had been said, so nothing follows"
        );
        return;
    }
    let rules: Vec<&str> = summary.violations.iter().map(|v| v.rule.as_str()).collect();
    assert!(
        rules.is_empty(),
        "seed {seed}: a correct server was accused of {rules:?}"
    );
}

/// Everything that is needed to find out why.
fn tell(summary: &Summary) {
    let coverage = &summary.coverage;
    println!(
        "{} transactions judged, {} statements: {} checked, {} partly, {} not",
        summary.transactions, summary.statements, coverage.checked, coverage.partial, coverage.unchecked
    );
    println!("tiers {:?}, gaps {}", summary.tiers, summary.gaps);
    let mut reasons: Vec<_> = coverage.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (reason, count) in reasons {
        println!("  {count:>7} {reason}");
    }
    let mut shapes: Vec<_> = coverage
        .shapes
        .iter()
        .filter(|s| s.unchecked + s.partial > 0)
        .collect();
    shapes.sort_by_key(|s| std::cmp::Reverse(s.unchecked + s.partial));
    for shape in shapes.iter().take(20) {
        println!("  {shape:?}");
    }
    for violation in &summary.violations {
        println!(
            "{} ({} more)\n{}\n",
            violation.rule, violation.repeats, violation.story
        );
        println!(
            "starts from {:?}; expected {:?}",
            violation.initial, violation.expected
        );
        for txn in &violation.transactions {
            println!(
                "{} {} committed {:?} in {:?}",
                txn.name, txn.level, txn.committed, txn.commit
            );
            for statement in &txn.statements {
                println!(
                    "    {:?} {} {:?} → {}",
                    statement.window, statement.sql, statement.parameters, statement.answer
                );
            }
        }
    }
}
