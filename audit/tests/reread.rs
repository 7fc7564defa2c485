//! Tables that are read again in the midst of the traffic: what is known afterwards, and what is not.
//!
//! In the stories below the line `side: select 'again'` stands for the snapshot of the second reading; what it saw is
//! given beside the story, and takes its turn when everything is over that began before `turn: select 'now'`.

use pgassay_audit::trace::{CatalogRead, Nanos, Record, Reread, TableCopy, TableName, Window};
use pgassay_audit::verdict::Summary;
use pgassay_audit::{Auditor, Settings, script};
use pgassay_rules::Level;

const BLIND: &str = "t1: do $$ begin execute 'update account set balance = balance + 1'; end $$";

fn copy(table: &str, columns: &[&str], rows: &[&[&str]]) -> (TableName, TableCopy) {
    let cell = |cell: &&str| (*cell != "null").then(|| (*cell).to_owned());
    let name = TableName {
        schema: "public".to_owned(),
        name: table.to_owned(),
    };
    let copy = TableCopy {
        oid: 1,
        columns: columns.iter().map(|c| (*c).to_owned()).collect(),
        rows: Some(rows.iter().map(|row| row.iter().map(cell).collect()).collect()),
    };
    (name, copy)
}

/// A reading of a catalog that has this version, and of nothing else.
fn catalog(version: &str, window: Window, at: Nanos) -> Record {
    Record::Catalog(Box::new(CatalogRead {
        at,
        window,
        settings: Vec::new(),
        catalog: vec![("version".to_owned(), vec![vec![Some(version.to_owned())]])],
    }))
}

/// The summary, and the tables that are still lost. The catalog is read with them, and is what it was before.
fn told(story: &str, tables: &[(TableName, TableCopy)]) -> (Summary, Vec<String>) {
    let records = script::parse(story, Level::ReadCommitted).expect("a story");
    let is = |record: &Record, text: &str| matches!(record, Record::Statement(o) if &*o.text == text);
    let window = |text: &str| -> Window {
        let found = records.iter().find_map(|record| match record {
            Record::Statement(o) if &*o.text == text => Some(o.window),
            _ => None,
        });
        found.expect("the story says when")
    };
    let reread = Record::Reread(Box::new(Reread {
        at: window("select 'now'").sent,
        window: window("select 'again'"),
        tables: tables.to_vec(),
    }));
    let mut auditor = Auditor::new(Settings::default());
    for record in &records {
        if let Record::Statement(blind) = record
            && blind.text.starts_with("do ")
        {
            let before = blind.window.sent - 1;
            auditor.take(catalog("1", Window::new(before, before), before));
        }
        if is(record, "select 'now'") {
            let turn = window("select 'now'").sent;
            auditor.take(catalog("1", window("select 'again'"), turn));
            auditor.take(reread.clone());
        } else if !is(record, "select 'again'") {
            auditor.take(record.clone());
        }
    }
    auditor.finish();
    let lost = auditor.lost().into_iter().map(|t| t.name).collect();
    (auditor.summary(), lost)
}

fn rules(summary: &Summary) -> Vec<&str> {
    summary.violations.iter().map(|v| v.rule.as_str()).collect()
}

fn accounts() -> (TableName, TableCopy) {
    copy("account", &["id", "balance"], &[&["1", "11"], &["2", "21"]])
}

/// A table of two accounts that somebody changed in a way that nobody can follow.
fn story(lines: &str) -> String {
    format!(
        "t1: create table account (id int primary key, balance int)\n\
         t1: insert into account values (1, 10), (2, 20) => INSERT 0 2\n{BLIND}\n{lines}"
    )
}

#[test]
fn what_was_read_again_is_known_again() {
    let right = story(
        "side: select 'again'\nturn: select 'now'\n\
         t2: select id, balance from account order by id => (1, 11) (2, 21)\n\
         t2: select count(*) from account where balance > 15 => (1)\n",
    );
    let (summary, lost) = told(&right, &[accounts()]);
    assert_eq!(rules(&summary), Vec::<&str>::new());
    assert_eq!(lost, Vec::<String>::new());
    assert_eq!(
        summary.coverage.checked, 4,
        "all but the blind one: {:?}",
        summary.coverage
    );
    let wrong = right.replace("=> (1)", "=> (2)");
    assert_eq!(rules(&told(&wrong, &[accounts()]).0), ["wrong_value"]);
}

#[test]
fn what_happened_between_the_snapshot_and_its_turn_is_not_undone() {
    let lines = "side: select 'again'\n\
         t2: delete from account where id = 2 => DELETE 1\n\
         t3: update account set balance = 5 where id = 1 => UPDATE 1\n\
         t4: insert into account values (3, 30) => INSERT 0 1\n\
         turn: select 'now'\n";
    let after = |answer: &str| {
        let asked = "t5: select id, balance from account order by id => ";
        told(&story(&format!("{lines}{asked}{answer}\n")), &[accounts()])
    };
    let (summary, lost) = after("(1, 5) (3, 30)");
    assert_eq!(rules(&summary), Vec::<&str>::new());
    assert_eq!(lost, Vec::<String>::new());
    for wrong in ["(1, 5) (2, 21) (3, 30)", "(1, 11) (3, 30)", "(1, 5)"] {
        assert_eq!(after(wrong).0.violations.len(), 1, "{wrong}");
    }
}

#[test]
fn an_older_snapshot_may_still_see_what_was_there() {
    let lines = "t6: begin isolation level repeatable read\n\
         t6: select count(*) from account => (2)\n\
         side: select 'again'\n\
         t2: delete from account where id = 2 => DELETE 1\n\
         turn: select 'now'\n\
         t6: select id, balance from account order by id => (1, 11) (2, 21)\n\
         t6: commit\n\
         t7: select id from account => (1)\n";
    let (summary, _) = told(&story(lines), &[accounts()]);
    assert_eq!(rules(&summary), Vec::<&str>::new());
}

#[test]
fn whoever_overlaps_the_snapshot_may_have_been_seen_or_not() {
    let lines = |seen: &str| {
        story(&format!(
            "t2: update account set balance = 7 where id = 1 ...\nt3: delete from account where id = 2 ...\n\
             side: select 'again'\nt2: ... => UPDATE 1\nt3: ... => DELETE 1\nturn: select 'now'\n\
             t4: select id, balance from account order by id => {seen}\n"
        ))
    };
    let before = accounts();
    let after = copy("account", &["id", "balance"], &[&["1", "7"]]);
    for read in [before, after] {
        let (summary, _) = told(&lines("(1, 7)"), &[read]);
        assert_eq!(rules(&summary), Vec::<&str>::new());
    }
}

#[test]
fn rows_without_a_key_are_known_again_unless_somebody_wrote_meanwhile() {
    let begin = "t1: create table log (a int, b text)\n\
         t1: insert into log values (1, 'x'), (1, 'x') => INSERT 0 2\n\
         t1: do $$ begin execute 'insert into log values (2, null)'; end $$\n";
    let read = copy("log", &["a", "b"], &[&["1", "x"], &["1", "x"], &["2", "null"]]);
    let end = "t3: select a, count(*) from log group by a order by a => (1, 2) (2, 1) (3, 1)\n";
    let quiet = format!(
        "{begin}side: select 'again'\nt2: insert into log values (3, 'y') => INSERT 0 1\nturn: select 'now'\n{end}"
    );
    let (summary, lost) = told(&quiet, std::slice::from_ref(&read));
    assert_eq!(rules(&summary), Vec::<&str>::new());
    assert_eq!(lost, Vec::<String>::new());
    let wrong = quiet.replace("(3, 1)", "(3, 2)");
    assert_eq!(told(&wrong, std::slice::from_ref(&read)).0.violations.len(), 1);
    let busy = format!(
        "{begin}t2: insert into log values (3, 'y') ...\nside: select 'again'\nt2: ... => INSERT 0 1\n\
         turn: select 'now'\n{end}"
    );
    let (summary, lost) = told(&busy, std::slice::from_ref(&read));
    assert_eq!(rules(&summary), Vec::<&str>::new());
    assert_eq!(lost, ["log"], "nobody can tell whether the new row is in it");
}

#[test]
fn a_table_that_looks_otherwise_by_now_is_left_alone() {
    let lines = "side: select 'again'\n\
         t2: alter table account add column note text\n\
         turn: select 'now'\n\
         t3: select id, balance, note from account order by id => (1, 11, null) (2, 21, null)\n";
    let (summary, lost) = told(&story(lines), &[accounts()]);
    assert_eq!(rules(&summary), Vec::<&str>::new());
    assert_eq!(lost, ["account"]);
}

/// Its key was changed by somebody who had begun before: the row may have any key by then.
#[test]
fn a_row_that_was_read_again_may_have_another_key_at_once() {
    let lines = "t2: begin isolation level repeatable read\n\
         t2: update account set id = 3 where id = 1 ...\n\
         side: select 'again'\n\
         turn: select 'now'\n\
         t2: ... => UPDATE 1\n\
         t2: commit\n\
         t3: update account set balance = 56 where id = 3 returning id, balance => (3, 56)\n";
    let (summary, _) = told(&story(lines), &[accounts()]);
    assert_eq!(rules(&summary), Vec::<&str>::new());
}

/// The catalog is read at `side: select 'v1'`, with the version 1 and nothing else; from `side: select 'shared'` on somebody
/// may come past the proxy. What is found, and whether the audit wants the catalog to be read again.
fn told_with_catalogs(story: &str) -> (Vec<String>, bool) {
    let records = script::parse(story, Level::ReadCommitted).expect("a story");
    let mut auditor = Auditor::new(Settings::default());
    for record in records {
        let version = match &record {
            Record::Statement(o) => o
                .text
                .strip_prefix("select 'v")
                .and_then(|t| t.strip_suffix('\'')),
            _ => None,
        };
        match (&record, version) {
            (Record::Statement(o), Some(version)) => {
                auditor.take(catalog(version, o.window, o.window.done));
            }
            (Record::Statement(o), _) if &*o.text == "select 'shared'" => {
                auditor.take(Record::Writers {
                    at: o.window.sent,
                    exclusive: false,
                    seen: Vec::new(),
                });
            }
            _ => {
                auditor.take(record);
            }
        }
    }
    let wanted = auditor.wanted().is_some();
    auditor.finish();
    let summary = auditor.summary();
    (
        summary.violations.iter().map(|v| v.rule.clone()).collect(),
        wanted,
    )
}

const KEPT: &str = "t1: create table account (id int primary key, balance int)\n\
    t1: insert into account values (1, 10) => INSERT 0 1\n\
    side: select 'v1'\n\
    t2: unseen alter table account add column note text\n\
    t1: update account set balance = 20 where id = 1 returning id, balance => (1, 20)\n\
    t1: select balance from account where id = 1 => (21)\n";

#[test]
fn what_was_found_by_a_catalog_in_doubt_is_told_when_it_is_confirmed() {
    let (found, _) = told_with_catalogs(KEPT);
    assert_eq!(found, Vec::<String>::new(), "nobody read the catalog again");
    let (found, wanted) =
        told_with_catalogs(&format!("{KEPT}side: select 'v1'\nt1: select 1\nt1: select 1\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(!wanted, "it is known to be the same");
    let (found, _) = told_with_catalogs(&format!("{KEPT}side: select 'v2'\nt1: select 1\nt1: select 1\n"));
    assert_eq!(found, Vec::<String>::new(), "it is another one");
}

#[test]
fn a_reading_from_before_says_nothing_of_what_came_after() {
    let early = KEPT.replace("t1: update", "side: select 'v1'\nt3: unseen select 1\nt1: update");
    assert_eq!(told_with_catalogs(&early).0, Vec::<String>::new());
    // Without another doubt it is all that is needed.
    let settled = KEPT.replace("t1: update", "side: select 'v1'\nt1: update");
    assert_eq!(told_with_catalogs(&settled).0.len(), 1);
}

#[test]
fn a_change_that_was_seen_makes_another_catalog() {
    let seen = format!(
        "{KEPT}t1: alter table account add column more int\nside: select 'v1'\nt1: select 1\nt1: select 1\n"
    );
    let (found, wanted) = told_with_catalogs(&seen);
    assert_eq!(
        found,
        Vec::<String>::new(),
        "a reading that cannot be right confirms nothing"
    );
    assert!(wanted);
    let temporary = seen.replace(
        "alter table account add column more int",
        "create temporary table scratch (a int)",
    );
    assert_eq!(
        told_with_catalogs(&temporary).0.len(),
        1,
        "nobody else sees those"
    );
}

/// Whoever comes past the proxy may change the catalog at any time, so that every reading confirms what is over, and no more.
#[test]
fn with_others_past_the_proxy_every_violation_waits_for_a_reading() {
    let lost_write = |value: i32| {
        format!(
            "t1: begin isolation level repeatable read\n\
             t1: insert into account values (5, 20) => INSERT 0 1\n\
             t1: select balance from account where id = 5 => ({value})\n\
             t1: rollback\n"
        )
    };
    let begin = "t1: create table account (id int primary key, balance int)\n\
         t1: insert into account values (1, 10) => INSERT 0 1\n\
         side: select 'v1'\n\
         side: select 'shared'\n";
    let end = "t1: select 1\nt1: select 1\n";
    let wrong = lost_write(21);
    let (found, wanted) = told_with_catalogs(&format!("{begin}{wrong}{end}"));
    assert_eq!((found.len(), wanted), (0, true));
    let (found, wanted) = told_with_catalogs(&format!("{begin}side: select 'v1'\n{wrong}{end}"));
    assert_eq!((found.len(), wanted), (0, true), "it was read too early");
    let (found, wanted) = told_with_catalogs(&format!("{begin}{wrong}side: select 'v1'\n{end}"));
    assert_eq!((found.len(), wanted), (1, false), "nothing more is to be had");
    let right = lost_write(20);
    let (found, wanted) = told_with_catalogs(&format!("{begin}side: select 'v1'\n{right}{end}"));
    assert_eq!((found.len(), wanted), (0, false), "it is not read without need");
}

#[test]
fn a_row_that_somebody_has_shown_since_may_be_one_of_those_deleted_unseen() {
    // t5 finds row 3 in a snapshot from before t4 has shown that it is there, and deletes what t4 left of it.
    let lines = "s6: begin\n\
         s4: begin\n\
         s4: insert into account values (1, 4), (2, 5) on conflict (id) do update set balance = account.balance + 1 ...\n\
         s6: with gone as (delete from account returning id, balance) insert into bag select id, balance from gone ...\n\
         s4: ... => INSERT 0 2\n\
         s4: commit ...\n\
         s3: insert into account values (2, 14), (3, 15) on conflict (id) do update set balance = account.balance + 1 returning id, balance ...\n\
         s5: begin\n\
         s2: insert into account values (4, null) on conflict (id) do update set balance = account.balance + 1 returning id, balance => (4, null)\n\
         s4: ... => COMMIT\n\
         side: select 'again' ...\n\
         s3: ... => (2, 6) (3, 15)\n\
         s4: begin\n\
         side: ... => (1)\n\
         s5: delete from account where id in (2, 3) ...\n\
         s4: insert into account values (2, 34), (3, 35) on conflict (id) do update set balance = account.balance + 1 returning id, balance ...\n\
         turn: select 'now'\n\
         s6: ... => INSERT 0 2\n\
         s6: commit\n\
         s4: ... => (2, 34) (3, 16)\n\
         s4: commit\n\
         s5: ... => DELETE 1\n\
         s5: insert into account values (3, 45), (4, 46) on conflict (id) do update set balance = account.balance + 1 => INSERT 0 2\n\
         s5: commit\n\
         s5: select id, balance from account order by id, balance => (2, 34) (3, 45) (4, null)\n";
    let tables = "t1: create table account (id int primary key, balance int)\n\
         t1: create table bag (a int, b int)\n\
         t1: insert into account values (77, 20) => INSERT 0 1\n";
    let again: [&[&str]; 4] = [&["1", "4"], &["2", "6"], &["4", "null"], &["3", "15"]];
    let again = copy("account", &["id", "balance"], &again);
    let (summary, _) = told(&format!("{tables}{BLIND}\n{lines}"), &[again]);
    assert_eq!(rules(&summary), Vec::<&str>::new());
}

#[test]
fn a_row_that_got_another_key_before_its_table_was_read_again_is_looked_for_under_both() {
    let lines = "t3: begin isolation level repeatable read\n\
         t2: select id, balance from account where id in (2, 1) => (1, 11)\n\
         t3: update account set id = 2 where id = 1 returning id, balance => (2, 11)\n\
         side: select 'again'\n\
         t3: update account set balance = balance + 1 => UPDATE 1\n\
         turn: select 'now'\n\
         t3: commit\n\
         t4: select count(*) from account where id = 2 => (1)\n";
    let (summary, _) = told(
        &story(lines),
        &[copy("account", &["id", "balance"], &[&["1", "11"]])],
    );
    assert_eq!(rules(&summary), Vec::<&str>::new());
}

#[test]
fn what_a_transaction_wrote_unseen_is_not_what_was_read_again_meanwhile() {
    // Nobody knows what was in the table when t3 wrote it; by the time that t3 is looked at, it was read again.
    let lines = "t3: begin\n\
         t3: update account set balance = balance + 1 => UPDATE 1\n\
         side: select 'again'\n\
         turn: select 'now'\n\
         t3: insert into seen select id, balance from account => INSERT 0 1\n\
         t3: commit\n\
         t4: select id, balance from seen => (1, 12)\n";
    let again = copy("account", &["id", "balance"], &[&["1", "11"]]);
    let made = "t1: create table seen (id int, balance int)\n";
    let (summary, _) = told(&format!("{made}{}", story(lines)), &[again]);
    assert_eq!(rules(&summary), Vec::<&str>::new());
}
