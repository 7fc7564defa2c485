//! Which of several overlapping commits a total saw: the solver, trying one set after the other, and the reference
//! checker say the same.
//!
//! Writers (deposits, transfers, new and vanishing rows, some of them autocommit) overlap readers that ask for sums,
//! counts, sums by group and lists of rows. What each reader saw is a random set of the commits that the order of the
//! trace allows, so its answer is right; then one number of it is changed.

use crate::judges::{Verdict, audit_within, records, reference};
use crate::number;
use fastrand::Rng;
use pgassay_audit::explain::limits::Limits;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A row: its group and its balance.
type Rows = BTreeMap<i64, (i64, i64)>;

/// What one writer does.
#[derive(Clone, Copy)]
enum Act {
    Add(i64, i64),
    Transfer(i64, i64, i64),
    Insert(i64, i64, i64),
    Delete(i64),
}

impl Act {
    fn sql(self) -> Vec<String> {
        let add = |id: i64, by: i64| format!("update t set v = v + {by} where k = {id} => UPDATE 1");
        match self {
            Act::Add(id, by) => vec![add(id, by)],
            Act::Transfer(from, to, by) => vec![add(from, -by), add(to, by)],
            Act::Insert(id, group, v) => {
                vec![format!("insert into t values ({id}, {group}, {v}) => INSERT 0 1")]
            }
            Act::Delete(id) => vec![format!("delete from t where k = {id} => DELETE 1")],
        }
    }

    fn apply(self, rows: &mut Rows) {
        let mut add = |id: i64, by: i64| {
            if let Some((_, v)) = rows.get_mut(&id) {
                *v += by;
            }
        };
        match self {
            Act::Add(id, by) => add(id, by),
            Act::Transfer(from, to, by) => {
                add(from, -by);
                add(to, by);
            }
            Act::Insert(id, group, v) => drop(rows.insert(id, (group, v))),
            Act::Delete(id) => drop(rows.remove(&id)),
        }
    }
}

const QUESTIONS: [&str; 6] = [
    "select sum(v) from t",
    "select count(*), coalesce(sum(v), 0) from t where g = 1",
    "select g, sum(v), count(*) from t group by g order by g",
    "select k, v from t where k > 1 order by k",
    "select distinct v from t order by v",
    "select max(v), sum(v) from t",
];

fn answer(question: usize, rows: &Rows) -> Vec<Vec<Option<i64>>> {
    let sum = |of: &[i64]| (!of.is_empty()).then(|| of.iter().sum());
    let all: Vec<i64> = rows.values().map(|(_, v)| *v).collect();
    let of = |group: i64| {
        let rows = rows.values().filter(|(g, _)| *g == group);
        rows.map(|(_, v)| *v).collect::<Vec<i64>>()
    };
    match question {
        0 => vec![vec![sum(&all)]],
        1 => vec![vec![Some(of(1).len() as i64), Some(of(1).iter().sum())]],
        2 => {
            let groups = [1, 2].into_iter().filter(|g| !of(*g).is_empty());
            groups
                .map(|g| vec![Some(g), sum(&of(g)), Some(of(g).len() as i64)])
                .collect()
        }
        3 => {
            let rows = rows.iter().filter(|(k, _)| **k > 1);
            rows.map(|(k, (_, v))| vec![Some(*k), Some(*v)]).collect()
        }
        4 => {
            let mut different = all;
            different.sort_unstable();
            different.dedup();
            different.into_iter().map(|v| vec![Some(v)]).collect()
        }
        _ => vec![vec![all.iter().copied().max(), sum(&all)]],
    }
}

fn in_words(rows: &[Vec<Option<i64>>]) -> String {
    let cell = |c: &Option<i64>| c.map_or_else(|| "null".to_owned(), |c| c.to_string());
    let row = |row: &Vec<Option<i64>>| format!("({})", row.iter().map(cell).collect::<Vec<_>>().join(", "));
    match rows.is_empty() {
        true => "no rows".to_owned(),
        false => rows.iter().map(row).collect::<Vec<_>>().join(" "),
    }
}

/// A story in which nothing is wrong, unless one number is changed.
fn story(rng: &mut Rng, level: &str, is_wrong: bool) -> String {
    let mut rows: Rows = (1..=5).map(|k| (k, (k % 2 + 1, 10 * k))).collect();
    let mut text = "init: create table t (k int primary key, g int not null, v int not null)\n".to_owned();
    let all: Vec<String> = rows
        .iter()
        .map(|(k, (g, v))| format!("({k}, {g}, {v})"))
        .collect();
    let _ = writeln!(text, "init: insert into t values {}", all.join(", "));
    let mut free: Vec<i64> = (1..=5).collect();
    rng.shuffle(&mut free);
    let mut acts = Vec::new();
    for fresh in 6..6 + rng.i64(2..5) {
        let by = rng.i64(1..6);
        let act = match (rng.u8(0..6), free.len()) {
            (0, _) | (_, 0) => Act::Insert(fresh, rng.i64(1..3), by),
            (1, _) => Act::Delete(free.pop().unwrap_or(1)),
            (2 | 3, 2..) => {
                let from = free.pop().unwrap_or(1);
                Act::Transfer(from, free.pop().unwrap_or(2), by)
            }
            _ => Act::Add(free.pop().unwrap_or(1), by),
        };
        acts.push(act);
    }
    let explicit: Vec<bool> = acts.iter().map(|act| act.sql().len() > 1 || rng.bool()).collect();
    for (at, act) in acts.iter().enumerate() {
        let _ = writeln!(text, "w{at}: set default_transaction_isolation = '{level}'");
        if explicit[at] {
            let _ = writeln!(text, "w{at}: begin");
            for sql in act.sql() {
                let _ = writeln!(text, "w{at}: {sql}");
            }
        }
    }
    let _ = writeln!(text, "r: set default_transaction_isolation = '{level}'");
    let single = |at: usize| {
        let sql = acts[at].sql().remove(0);
        let (sql, tag) = sql.split_once(" => ").expect("an answer");
        (sql.to_owned(), tag.to_owned())
    };
    for (at, is_explicit) in explicit.iter().enumerate() {
        let _ = match is_explicit {
            true => writeln!(text, "w{at}: commit ..."),
            false => writeln!(text, "w{at}: {} ...", single(at).0),
        };
    }
    // What is visible by now, and what each of the reader's statements makes of it.
    let mut hidden: Vec<usize> = (0..acts.len()).collect();
    let steady = level != "read committed";
    let questions = if rng.bool() { 1 } else { 2 };
    let wrong_one = rng.usize(0..questions);
    if questions > 1 {
        text.push_str("r: begin\n");
    }
    for nth in 0..questions {
        if nth == 0 || !steady {
            hidden.retain(|at| {
                let stays = rng.bool();
                if !stays {
                    acts[*at].apply(&mut rows);
                }
                stays
            });
        }
        let question = rng.usize(0..QUESTIONS.len());
        let mut right = answer(question, &rows);
        if is_wrong && nth == wrong_one {
            let row = rng.usize(0..right.len().max(1));
            if let Some(cell) = right.get_mut(row).and_then(|row| row.last_mut()) {
                *cell = Some(cell.unwrap_or(0) + rng.i64(1..9));
            }
        }
        let _ = writeln!(text, "r: {} => {}", QUESTIONS[question], in_words(&right));
    }
    if questions > 1 {
        text.push_str("r: commit\n");
    }
    for (at, is_explicit) in explicit.iter().enumerate() {
        let _ = match is_explicit {
            true => writeln!(text, "w{at}: ... => COMMIT"),
            false => writeln!(text, "w{at}: ... => {}", single(at).1),
        };
    }
    text
}

#[test]
fn the_solver_agrees_with_trying_everything() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_PROPTEST_CASES", 200) / 2;
    let at_once = Limits {
        solver_after: 1,
        ..Limits::default()
    };
    let never = Limits {
        solver_after: usize::MAX,
        ..Limits::default()
    };
    let (mut solved, mut wrong, mut right) = (0, 0, 0);
    for seed in first..first + cases {
        let mut rng = Rng::with_seed(seed);
        let level = ["read committed", "repeatable read", "serializable"][rng.usize(0..3)];
        let is_wrong = rng.bool();
        let text = story(&mut rng, level, is_wrong);
        let (by_solver, summary) = audit_within(records(&text), at_once);
        if seed % 10 == 0 {
            // Other questions were asked in between, and on another thread none was.
            let again = std::thread::scope(|scope| {
                let judge = scope.spawn(|| audit_within(records(&text), at_once));
                judge.join().expect("no panic")
            });
            assert_eq!(
                again.1, summary,
                "seed {seed}: the same records, another report\n{text}"
            );
        }
        let (by_trying, _) = audit_within(records(&text), never);
        let defined = reference(&text);
        solved += summary.tiers.get("solver").copied().unwrap_or(0);
        match defined {
            Verdict::Right => right += 1,
            Verdict::Wrong => wrong += 1,
            Verdict::Unknown => {}
        }
        let said = (by_solver, by_trying);
        assert!(
            by_solver == by_trying && (defined == Verdict::Unknown || by_solver == defined),
            "seed {seed}: {said:?}, and the reference {defined:?}; {:?}\n{text}",
            summary.coverage.reasons
        );
        assert!(
            is_wrong || by_solver == Verdict::Right,
            "seed {seed}: nothing is wrong here\n{text}"
        );
    }
    println!("{cases} stories, {right} right, {wrong} wrong, {solved} statements decided by the solver");
    assert!(solved > 0 && right > 0 && wrong > 0);
}
