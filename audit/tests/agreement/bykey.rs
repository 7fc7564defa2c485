//! Random histories of a database that reads each row from another state, and writes what it makes of it.
//!
//! That is all that the level `rc` of the profile `paper` promises, so nobody is accused there: neither by the audit nor by
//! the reference checker. How often an answer was really mixed is told by `si`, which allows no such thing.

use crate::judges::{Verdict, audit_with, records_at, reference_after_setup, reference_by};
use crate::number;
use crate::profiles::without_levels;
use crate::simulate::{self, Isolation, Plan, Wishes};
use fastrand::Rng;
use pgassay_audit::Settings;
use pgassay_rules::Level;

const PAPER: &str = "paper";

fn audit_at(text: &str, level: Level) -> Verdict {
    let settings = Settings {
        profile: PAPER.to_owned(),
        ..Settings::default()
    };
    audit_with(records_at(text, level), settings).0
}

#[test]
fn rows_of_several_states_are_right_by_rc() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_PROPTEST_CASES", 200) / 2;
    let wishes = Wishes {
        by_key: true,
        ..Wishes::default()
    };
    // Right by the audit, right by the reference checker, wrong at a level that reads one state.
    let [mut audited, mut defined, mut mixed] = [0u64; 3];
    for seed in first..first + cases {
        let mut rng = Rng::with_seed(seed ^ 0xb1e5);
        let each = rng.usize(1..5);
        let plan = Plan::random(&mut rng, 3, each, wishes, |_| Isolation::ReadCommitted);
        let text = without_levels(&simulate::play(&plan, rng.u64(..)).text());
        let said = audit_at(&text, Level::Rc);
        assert!(
            said != Verdict::Wrong,
            "seed {seed}: the audit calls it wrong\n{text}"
        );
        let by_definition = reference_by(records_at(&text, Level::Rc), PAPER);
        assert!(
            by_definition != Verdict::Wrong,
            "seed {seed}: the reference checker calls it wrong\n{text}"
        );
        audited += u64::from(said == Verdict::Right);
        defined += u64::from(by_definition == Verdict::Right);
        mixed += u64::from(audit_at(&text, Level::Si) == Verdict::Wrong);
    }
    println!("{cases} histories, {mixed} mixed; right by the audit {audited}, by the reference {defined}");
    assert!(mixed * 10 > cases, "only {mixed} of {cases} were mixed");
    assert!(audited * 2 > cases, "the audit knows about {audited} of {cases}");
    assert!(
        defined * 10 > cases * 9,
        "the reference checker knows about {defined} of {cases}"
    );
}

/// Of rows that were there in every state, what is answered.
#[test]
fn a_row_that_was_always_there_is_not_missing() {
    let setup = "init: create table kv (k int primary key, v int)\n\
         init: insert into kv values (1, 10), (2, 20), (3, 30) => INSERT 0 3\n\
         s1: update kv set v = 11 where k = 1 => UPDATE 1\n\
         s2: update kv set v = 5 where k = 3 => UPDATE 1\n\
         s3: delete from kv where k = 3 => DELETE 1\n";
    let told = |asked: &str| {
        let text = format!("{setup}s4: {asked}\n");
        reference_after_setup(records_at(&text, Level::Rc), PAPER)
    };
    let right = [
        "select k, v from kv => (1, 11) (2, 20)",
        "select k, v from kv => (1, 10) (2, 20)",
        "select k, v from kv order by k => (1, 10) (2, 20) (3, 5)",
        "select k, v from kv where v > 8 => (1, 11) (2, 20) (3, 30)",
        "select k, v from kv where v > 8 => (1, 11) (2, 20)",
        "select k from kv where v > 10 => (1) (2)",
        "select k from kv where v > 10 => (2)",
        "select count(*) from kv => (3)",
        "select count(*) from kv where v > 10 => (1)",
        "select sum(v) from kv => (36)",
        "select max(v) from kv => (30)",
        "update kv set v = 0 where v > 10 => UPDATE 3",
        "delete from kv where v > 10 => DELETE 1",
        "update kv set v = v + 1 returning k, v => (1, 11) (2, 21) (3, 6)",
    ];
    let wrong = [
        // The second row is missing.
        "select k, v from kv => (1, 11) (3, 30)",
        "select k, v from kv => no rows",
        "select k from kv where v > 10 => (1)",
        // It was never like this.
        "select k, v from kv => (1, 11) (2, 21)",
        "select k, v from kv order by k => (1, 12) (2, 20) (3, 5)",
        "select k from kv where v > 11 => (1) (2)",
        "select k, v from kv => (1, 11) (2, 20) (4, 40)",
        // Each key comes once, in the order that was asked for.
        "select k, v from kv => (1, 10) (1, 11) (2, 20)",
        "select k, v from kv order by k => (2, 20) (1, 10)",
        "select count(*) from kv => (4)",
        "select count(*) from kv => (1)",
        "select sum(v) from kv => (37)",
        "select max(v) from kv => (11)",
        "update kv set v = 0 where v > 10 => UPDATE 0",
        "delete from kv where v > 10 => DELETE 4",
        "update kv set v = v + 1 returning k, v => (1, 11) (2, 20) (3, 6)",
    ];
    for asked in right {
        assert_eq!(told(asked), Verdict::Right, "{asked}");
    }
    for asked in wrong {
        assert_eq!(told(asked), Verdict::Wrong, "{asked}");
    }
    // Of these not every way to read is tried.
    let open = [
        "select count(*) from kv where v > (select min(v) from kv) => (5)",
        "select a.k from kv a join kv b on a.k = b.k => (1) (2) (4)",
        "select k from kv union select v from kv => (7)",
    ];
    for asked in open {
        assert_eq!(told(asked), Verdict::Unknown, "{asked}");
    }
}
