//! An hour of traffic needs no more memory than a minute of it: what is remembered does not grow with what was judged.

use pgassay_audit::trace::{Nanos, Record, SessionId};
use pgassay_audit::{Auditor, Settings, Stats, script};
use pgassay_rules::Level;

/// Plays `rounds` times the same story, and tells what is remembered in the end.
fn remembered(round: &str, rounds: usize, level: Level) -> Stats {
    let mut story = String::from(
        "init: create table account (id int primary key, balance int)\n\
         init: insert into account values (1, 100), (2, 200)\n",
    );
    (0..rounds).for_each(|_| story.push_str(round));
    let mut auditor = Auditor::new(Settings::default());
    for record in script::parse(&story, level).expect("a story") {
        auditor.take(record);
    }
    let stats = auditor.stats();
    auditor.finish();
    let summary = auditor.summary();
    assert!(summary.violations.is_empty(), "{:?}", summary.violations);
    assert_eq!(summary.coverage.unchecked, 0);
    stats
}

fn is_flat(round: &str, level: Level) {
    let (few, many) = (remembered(round, 100, level), remembered(round, 1_000, level));
    assert!(many.judged > 9 * few.judged);
    let most = |few: u64| 2 * few + 100;
    assert!(
        many.transactions_remembered <= most(few.transactions_remembered),
        "{few:?} {many:?}"
    );
    assert!(
        many.versions_alive <= most(few.versions_alive),
        "{few:?} {many:?}"
    );
}

#[test]
fn readers_that_did_not_see_an_earlier_commit_are_forgotten_like_all_others() {
    // Each round leaves an edge from whoever ends later to whoever ended earlier.
    let round = "t1: begin\n\
                 t1: select id from account where id = 1 => (1)\n\
                 t2: update account set balance = 7 where id = 1 => UPDATE 1\n\
                 t1: select id from account where id = 2 => (2)\n\
                 t1: commit\n";
    for level in [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable] {
        is_flat(round, level);
    }
}

#[test]
fn increments_that_nobody_can_tell_apart_are_forgotten_too() {
    let round = "t1: update account set balance = balance + 1 where id = 1 ...\n\
                 t2: update account set balance = balance - 1 where id = 1 => UPDATE 1\n\
                 t2: update account set balance = balance - 1 where id = 2 ...\n\
                 t1: ... => UPDATE 1\n\
                 t1: update account set balance = balance + 1 where id = 2 => UPDATE 1\n\
                 t2: ... => UPDATE 1\n";
    is_flat(round, Level::ReadCommitted);
}

#[test]
fn rows_that_come_and_go_are_forgotten() {
    let round = "t1: insert into account values (3, 0) => INSERT 0 1\n\
                 t2: delete from account where id = 3 => DELETE 1\n";
    for level in [Level::ReadCommitted, Level::Serializable] {
        is_flat(round, level);
    }
}

/// Between `before` and `after` so much else happens that what is not needed any more is forgotten.
fn is_silent_later(before: &str, after: &str) {
    let mut story = format!(
        "init: create table bag (a int)\ninit: insert into bag values (1)\ninit: create table log (n int)\n{before}"
    );
    (0..200).for_each(|_| story.push_str("t2: insert into log values (1)\n"));
    story.push_str(after);
    for level in [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable] {
        let mut auditor = Auditor::new(Settings::default());
        for record in script::parse(&story, level).expect("a story") {
            auditor.take(record);
        }
        auditor.finish();
        let summary = auditor.summary();
        assert!(summary.violations.is_empty(), "{:?}", summary.violations);
        assert_eq!(summary.coverage.unchecked, 0, "{:?}", summary.coverage.reasons);
    }
}

/// What it must be compared with is what was there when it looked, however long ago, and whoever ended since.
#[test]
fn a_prepared_transaction_keeps_what_it_saw() {
    is_silent_later(
        "t1: begin\n\
         t1: delete from bag where a = 2 => DELETE 0\n\
         t1: prepare transaction 'p'\n\
         t2: insert into bag values (2)\n",
        "t3: rollback prepared 'p'\n",
    );
}

#[test]
fn a_statement_that_takes_long_keeps_what_it_saw() {
    is_silent_later(
        "t1: select a from bag ...\n\
         t2: insert into bag values (2)\n",
        "t1: ... => (1)\n",
    );
}

/// Whoever looks at a recording that is still being made, or that was broken off, lacks what had no answer yet.
#[test]
fn a_recording_that_ends_in_midst_accuses_nobody_of_what_it_lacks() {
    let story = "init: create table account (id int primary key, balance int)\n\
                 init: insert into account values (1, 0)\n\
                 t1: update account set balance = 1 where id = 1 ...\n\
                 t2: select balance from account where id = 1 => (1)\n\
                 t1: ... => UPDATE 1\n";
    let records = script::parse(story, Level::ReadCommitted).expect("a story");
    let is_update = |record: &Record| matches!(record, Record::Statement(s) if s.text.starts_with("update"));
    let under_way = records.iter().find_map(|record| match record {
        Record::Statement(s) if is_update(record) => Some(s.window.sent),
        _ => None,
    });
    let is_mark = |record: &Record| matches!(record, Record::Mark { .. });
    let mut cut: Vec<Record> = records
        .into_iter()
        .filter(|r| !is_update(r) && !is_mark(r))
        .collect();
    cut.push(Record::Mark {
        at: under_way.expect("an update") - 1,
    });
    let found = |records: &[Record]| {
        let mut auditor = Auditor::new(Settings::default());
        records
            .iter()
            .for_each(|record| drop(auditor.take(record.clone())));
        if let Some(gap) = auditor.broken_off() {
            auditor.take(gap);
        }
        auditor.finish();
        let summary = auditor.summary();
        (summary.violations.len(), summary.gaps)
    };
    assert_eq!(found(&cut), (0, 1));
    // Nobody is there any more: then it is whole, and wrong.
    let sessions: Vec<SessionId> = cut
        .iter()
        .filter_map(|record| match record {
            Record::SessionStart(facts) => Some(facts.session),
            _ => None,
        })
        .collect();
    for session in sessions {
        cut.push(Record::SessionEnd {
            session,
            at: Nanos::MAX - 1,
        });
    }
    assert_eq!(found(&cut), (1, 0));
}

#[test]
fn what_fires_at_tables_that_nobody_follows_any_more_is_remembered_once() {
    let mut story = String::from(
        "init: create table account (id int primary key, balance int)\n\
         init: create table note (id int primary key)\n\
         init: create function fires() returns trigger language plpgsql as $$ begin return new; end $$\n\
         init: create trigger fired before insert on account for each row execute function fires()\n",
    );
    // Each time either of them may fire what the other one fires.
    (0..200).for_each(|_| story.push_str("t1: alter table account inherit note\n"));
    story.push_str("t1: delete from account\n");
    let mut auditor = Auditor::new(Settings::default());
    for record in script::parse(&story, Level::ReadCommitted).expect("a story") {
        auditor.take(record);
    }
    auditor.finish();
    let reasons = auditor.summary().coverage.reasons;
    assert!(reasons.contains_key("alter_partition"), "{reasons:?}");
}
