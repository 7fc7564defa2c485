//! What a told violation holds, for whoever is woken by it: the transactions that one would ask for, the arrows between
//! them, and the statement that each arrow comes from.

use pgassay_audit::verdict::Violation;
use pgassay_audit::{Auditor, Settings, script};
use pgassay_rules::Level;
use std::path::Path;

/// The violation of a story under testscripts/verdict at a level.
fn told(name: &str, level: Level) -> Violation {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testscripts/verdict")
        .join(name);
    let text = std::fs::read_to_string(&path).expect("a readable story");
    let (story, _) = script::expectations(&text).expect("a story");
    let mut auditor = Auditor::new(Settings::default());
    for record in script::parse(&story, level).expect("a story") {
        auditor.take(record);
    }
    auditor.finish();
    let mut found = auditor.summary().violations;
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

/// `t1 -rw-> t2`, sorted.
fn arrows(violation: &Violation) -> Vec<String> {
    let name = |index: usize| violation.transactions[index].name.as_str();
    let mut arrows: Vec<String> = violation
        .edges
        .iter()
        .map(|edge| format!("{} -{}-> {}", name(edge.from), edge.kind, name(edge.to)))
        .collect();
    arrows.sort();
    arrows
}

#[test]
fn a_stale_read_names_the_writer_that_it_missed() {
    let violation = told("stale_read", Level::ReadCommitted);
    assert_eq!(arrows(&violation), ["t1 -real-time-> t2", "t2 -rw-> t1"]);
    assert!(violation.transactions[0].statements[0].sql.starts_with("update"));
    assert_eq!(
        violation.observed,
        "t2 «select balance from account where id = 1» → (100)"
    );
    assert_eq!(violation.expected, ["(110)"]);
    assert_eq!(violation.initial, ["account: id = 1, balance = 100"]);
}

#[test]
fn an_aborted_read_names_the_one_that_was_rolled_back() {
    let violation = told("aborted_read", Level::ReadCommitted);
    assert_eq!(arrows(&violation), ["t1 -wr-> t2"]);
    assert_eq!(violation.transactions[0].committed, Some(false));
    assert!(
        violation.story.contains("but t1 was rolled back"),
        "{}",
        violation.story
    );
}

#[test]
fn read_skew_says_which_statement_saw_and_which_did_not() {
    let violation = told("read_skew", Level::RepeatableRead);
    assert_eq!(arrows(&violation), ["t1 -rw-> t2", "t2 -wr-> t1"]);
    let read = |kind: &str| {
        let edge = violation.edges.iter().find(|edge| edge.kind == kind).unwrap();
        &violation.transactions[0].statements[edge.read.expect("a statement")].sql
    };
    assert_eq!(read("rw"), "select balance from account where id = 1");
    assert_eq!(read("wr"), "select balance from account where id = 2");
}

#[test]
fn a_lost_update_is_read_before_and_written_over() {
    let violation = told("lost_update", Level::RepeatableRead);
    assert_eq!(arrows(&violation), ["t1 -ww-> t2", "t2 -rw-> t1"]);
}

#[test]
fn a_long_fork_shows_what_each_reader_saw() {
    let violation = told("long_fork", Level::ReadCommitted);
    assert_eq!(
        arrows(&violation),
        ["t1 -wr-> t3", "t2 -wr-> t4", "t3 -rw-> t2", "t4 -rw-> t1"]
    );
}

#[test]
fn write_skew_says_what_either_order_would_have_answered() {
    let violation = told("write_skew", Level::Serializable);
    assert_eq!(arrows(&violation), ["t1 -rw-> t2", "t2 -rw-> t1"]);
    assert_eq!(
        violation.expected,
        [
            "if t2 came first: t1 «select sum(balance) from account» → (50)",
            "if t1 came first: t2 «select sum(balance) from account» → (50)"
        ]
    );
}

#[test]
fn a_wrong_count_needs_no_arrows() {
    let violation = told("wrong_count", Level::ReadCommitted);
    assert_eq!(violation.transactions.len(), 1);
    assert_eq!(
        (violation.edges.len(), violation.expected.as_slice()),
        (0, &["UPDATE 2".to_owned()][..])
    );
}
