//! Whoever can spend little knows less, and accuses nobody for it.
//!
//! Right histories are told as by a slow network, so that as much as possible overlaps, and audited with limits so small
//! that all that keeps the search short is at work: writers that commute are taken in one order at once, worlds become
//! one as soon as there are two of them, runs run out.

use crate::judges::{Verdict, audit_within, records, reference};
use crate::{number, play};
use fastrand::Rng;
use pgassay_audit::explain::limits::Limits;
use pgassay_audit::trace::{Nanos, Record, SessionId};
use std::collections::BTreeMap;

pub fn thrifty(rng: &mut Rng) -> Limits {
    Limits {
        runs_max: *rng.choice(&[12, 48, 384]).expect("one of them"),
        detours_max: rng.usize(0..6),
        worlds_max: rng.usize(1..6),
        worlds_spare: rng.usize(0..8),
        solver_after: rng.usize(1..12),
        solver_steps_max: *rng.choice(&[1, 4_000_000]).expect("one of them"),
        proof_steps_max: *rng.choice(&[20, 400_000]).expect("one of them"),
    }
}

/// The same as seen through a network in which every message of the clients, and every answer, may have been on its way
/// for as long as its session was silent.
fn slowly(text: &str, rng: &mut Rng) -> Vec<Record> {
    let mut records = records(text);
    records.retain(|r| !matches!(r, Record::Mark { .. }));
    let mut ended: BTreeMap<SessionId, usize> = BTreeMap::new();
    for at in 0..records.len() {
        let Record::Statement(o) = &records[at] else {
            continue;
        };
        let (session, sent) = (o.session, o.window.sent);
        // The session that sets up the tables is done before anybody comes.
        if session != SessionId(1)
            && let Some(before) = ended.insert(session, at)
            && let Record::Statement(before) = &mut records[before]
            && before.window.done + 1 < sent
        {
            let between = rng.u64(before.window.done..sent - 1);
            before.window.done = between;
            before.ready.done = before.ready.done.max(between);
            if let Record::Statement(o) = &mut records[at] {
                o.window.sent = between + 1;
                o.ready.sent = o.ready.sent.min(between + 1);
            }
        }
    }
    let done = |record: &Record| -> Nanos {
        match record {
            Record::Statement(o) => o.window.done,
            _ => 0,
        }
    };
    records.sort_by_key(done);
    let last = records.iter().map(done).max().unwrap_or(0);
    records.push(Record::Mark { at: last + 1 });
    records
}

#[test]
fn whoever_can_spend_little_accuses_nobody() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_PROPTEST_CASES", 200);
    let (mut unknown, mut told) = ([0, 0], 0);
    for seed in first..first + cases {
        let (history, serializable) = play(seed, 6, 2);
        let text = history.text();
        let mut rng = Rng::with_seed(seed);
        let records = slowly(&text, &mut rng);
        for (nth, limits) in [Limits::default(), thrifty(&mut rng)].into_iter().enumerate() {
            let (verdict, summary) = audit_within(records.clone(), limits);
            told += summary.statements;
            unknown[nth] += summary.coverage.partial + summary.coverage.unchecked;
            let rules: Vec<&String> = summary.violations.iter().map(|v| &v.rule).collect();
            assert!(
                verdict != Verdict::Wrong || (serializable && reference(&text) != Verdict::Right),
                "seed {seed} with {limits:?}: {rules:?}\n{text}"
            );
        }
    }
    println!("{cases} histories, {told} statements, {unknown:?} not fully checked");
    assert!(unknown[0] <= unknown[1], "little is better than much");
}

/// Five accounts, each changed by a routine that somebody else calls, while one reader sums them up; the last of the
/// writers has its turn after the reader.
fn summed_up(seen: u32, last: u32) -> String {
    let writers = [(2, 1), (3, 2), (4, 4), (5, 8), (7, 16)];
    let mut text = "t1: create table account (id int primary key, balance int)\n\
                    t1: insert into account values (2, 100), (3, 100), (4, 100), (5, 100), (7, 100) => INSERT 0 5\n\
                    t1: create procedure add(which int, amount int) language plpgsql as $$ begin \
                    update account set balance = balance + amount where id = which; end $$\n"
        .to_owned();
    for (id, amount) in writers {
        text += &format!("t{id}: call add({id}, {amount}) ...\n");
    }
    text += "t6: select sum(balance) from account ...\n";
    for (id, _) in &writers[..4] {
        text += &format!("t{id}: ... => CALL\n");
    }
    text += &format!("t6: ... => ({})\n", 500 + seen);
    text += "t7: ... => CALL\n";
    text + &format!("t8: select balance from account where id = 7 => ({last})\n")
}

#[test]
fn a_reader_that_is_given_up_costs_nobody_else() {
    // Too few runs for all that it may have seen, and enough for the writers.
    let limits = Limits {
        runs_max: 3,
        solver_after: usize::MAX,
        ..Limits::default()
    };
    let mut given_up = 0;
    for seen in 0..16 {
        let (verdict, summary) = audit_within(records(&summed_up(seen, 116)), limits);
        assert_ne!(verdict, Verdict::Wrong, "{:?}", summary.violations);
        let reasons = &summary.coverage.reasons;
        given_up += reasons.get("too_many_orders").copied().unwrap_or(0);
        let (verdict, summary) = audit_within(records(&summed_up(seen, 115)), limits);
        assert_eq!(verdict, Verdict::Wrong, "seen {seen}: {:?}", summary.coverage);
    }
    assert!(given_up > 0, "nobody was given up");
}
