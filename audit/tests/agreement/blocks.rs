//! Blocks that hold their rows for a while, beside writers that are over with one statement and have to wait for them: on a
//! few rows, with queries in between that show who was first, long before the block that asked them ends.
//!
//! Every statement takes effect at one instant between its request and its answer, and what a block writes at one instant of
//! its COMMIT, so all answers are right; then one answer shows a number that nobody ever wrote.

use crate::number;
use crate::overlap::Found;
use fastrand::Rng;
use pgassay_audit::explain::limits::Limits;
use std::collections::BTreeMap;
use std::fmt::Write;

const KEYS: i64 = 3;
const LIE: i64 = 999_999_999;

/// One statement; a number for a few rows.
#[derive(Clone, Copy)]
enum Act {
    Begin,
    Commit,
    Read(i64),
    All,
    Set(i64, i64),
    Upsert(i64, i64),
    Swap(i64, i64, i64),
    /// Appends a digit.
    Append(i64, i64),
    Delete(i64),
}

impl Act {
    /// Within a block, one that writes nothing below `from`, so that no two blocks wait for each other.
    fn random(rng: &mut Rng, fresh: i64, from: i64) -> Act {
        let read = Act::Read(rng.i64(1..=KEYS));
        if from > KEYS {
            return read;
        }
        let k = rng.i64(from..=KEYS);
        let few = rng.i64(1..4);
        match rng.u8(0..24) {
            0..=3 => Act::Set(k, fresh),
            4 => Act::Set(k, few),
            5..=7 => Act::Upsert(k, fresh),
            8 => Act::Upsert(k, few),
            9..=10 => Act::Swap(k, few, rng.i64(1..4)),
            11..=13 => Act::Append(k, rng.i64(1..10)),
            14 => Act::Delete(k),
            15 => Act::All,
            _ => read,
        }
    }

    fn sql(self) -> String {
        match self {
            Act::Begin => "begin".to_owned(),
            Act::Commit => "commit".to_owned(),
            Act::Read(k) => format!("select v from t where k = {k}"),
            Act::All => "select k, v from t order by k".to_owned(),
            Act::Set(k, v) => format!("update t set v = {v} where k = {k}"),
            Act::Upsert(k, v) => {
                format!("insert into t values ({k}, {v}) on conflict (k) do update set v = excluded.v")
            }
            Act::Swap(k, old, new) => format!("update t set v = {new} where k = {k} and v = {old}"),
            Act::Append(k, digit) => format!("update t set v = v % 100000 * 10 + {digit} where k = {k}"),
            Act::Delete(k) => format!("delete from t where k = {k}"),
        }
    }

    /// The row that it waits for.
    fn waits_for(self) -> Option<i64> {
        match self {
            Act::Set(k, _) | Act::Upsert(k, _) | Act::Swap(k, ..) | Act::Append(k, _) | Act::Delete(k) => {
                Some(k)
            }
            Act::Begin | Act::Commit | Act::Read(_) | Act::All => None,
        }
    }

    /// What it does to the rows, and its answer.
    fn happen(self, rows: &mut BTreeMap<i64, i64>, lie: bool) -> String {
        let updated = |cell: Option<&mut i64>, change: &dyn Fn(&mut i64)| {
            let len = usize::from(cell.is_some());
            cell.into_iter().for_each(change);
            format!("UPDATE {len}")
        };
        match self {
            Act::Begin => "BEGIN".to_owned(),
            Act::Commit => "COMMIT".to_owned(),
            Act::Read(k) => match rows.get(&k) {
                Some(v) => format!("({})", if lie { LIE } else { *v }),
                None => "no rows".to_owned(),
            },
            Act::All if rows.is_empty() => "no rows".to_owned(),
            Act::All => {
                let rows = rows.iter().map(|(k, v)| format!("({k}, {v})"));
                rows.collect::<Vec<_>>().join(" ")
            }
            Act::Set(k, v) => updated(rows.get_mut(&k), &|cell| *cell = v),
            Act::Upsert(k, v) => {
                rows.insert(k, v);
                "INSERT 0 1".to_owned()
            }
            Act::Swap(k, old, new) => updated(rows.get_mut(&k).filter(|v| **v == old), &|cell| *cell = new),
            Act::Append(k, digit) => updated(rows.get_mut(&k), &|cell| *cell = *cell % 100_000 * 10 + digit),
            Act::Delete(k) => format!("DELETE {}", usize::from(rows.remove(&k).is_some())),
        }
    }
}

#[derive(Clone, Copy)]
enum Doing {
    Nothing,
    Asked(Act),
    Answered,
}

struct Client {
    doing: Doing,
    answer: String,
    /// How many statements of its block are left.
    block: Option<usize>,
    /// What its block has written, `None` where it took the row away; and the first row that it may still write.
    own: BTreeMap<i64, Option<i64>>,
    from: i64,
}

/// A story, and whether somebody lied in it.
fn story(rng: &mut Rng, lies: bool) -> (String, bool) {
    let mut committed: BTreeMap<i64, i64> = (1..=KEYS).map(|k| (k, k)).collect();
    let mut text = "init: create table t (k int primary key, v int)\n".to_owned();
    let _ = writeln!(text, "init: insert into t values (1, 1), (2, 2), (3, 3)");
    let mut clients: Vec<Client> = (0..rng.usize(3..8))
        .map(|_| Client {
            doing: Doing::Nothing,
            answer: String::new(),
            block: None,
            own: BTreeMap::new(),
            from: 1,
        })
        .collect();
    let mut held: BTreeMap<i64, usize> = BTreeMap::new();
    let (mut fresh, mut left, mut lied) = (10, rng.usize(20..70), false);
    while left > 0
        || clients
            .iter()
            .any(|c| !matches!(c.doing, Doing::Nothing) || c.block.is_some())
    {
        let at = rng.usize(0..clients.len());
        let client = &mut clients[at];
        match client.doing {
            Doing::Nothing => {
                let act = match client.block {
                    None if left == 0 => continue,
                    None if rng.u8(0..3) == 0 => Act::Begin,
                    None => Act::random(rng, fresh, 1),
                    Some(0) => Act::Commit,
                    Some(_) => Act::random(rng, fresh, client.from),
                };
                fresh += 1;
                left = left.saturating_sub(1);
                let _ = writeln!(text, "c{at}: {} ...", act.sql());
                client.doing = Doing::Asked(act);
            }
            Doing::Asked(act) => {
                if act
                    .waits_for()
                    .is_some_and(|k| held.get(&k).is_some_and(|by| *by != at))
                {
                    continue;
                }
                let mut seen = committed.clone();
                for (k, v) in &client.own {
                    match v {
                        Some(v) => drop(seen.insert(*k, *v)),
                        None => drop(seen.remove(k)),
                    }
                }
                let lie = lies && !lied && left < 15 && matches!(act, Act::Read(k) if seen.contains_key(&k));
                lied |= lie;
                let before = seen.clone();
                client.answer = act.happen(&mut seen, lie);
                match (act, client.block) {
                    (Act::Begin, _) => client.block = Some(rng.usize(1..5)),
                    (Act::Commit, _) => {
                        for (k, v) in std::mem::take(&mut client.own) {
                            match v {
                                Some(v) => drop(committed.insert(k, v)),
                                None => drop(committed.remove(&k)),
                            }
                        }
                        held.retain(|_, by| *by != at);
                        (client.block, client.from) = (None, 1);
                    }
                    (_, None) => committed = seen,
                    (_, Some(left)) => {
                        client.block = Some(left - 1);
                        if let Some(k) = act
                            .waits_for()
                            .filter(|_| before != seen || !client.answer.ends_with(" 0"))
                        {
                            client.own.insert(k, seen.get(&k).copied());
                            held.insert(k, at);
                            client.from = client.from.max(k);
                        }
                    }
                }
                client.doing = Doing::Answered;
            }
            Doing::Answered => {
                let _ = writeln!(text, "c{at}: ... => {}", client.answer);
                client.doing = Doing::Nothing;
            }
        }
    }
    (text, lied)
}

#[test]
fn blocks_beside_quick_writers_are_told_apart_rightly() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_PROPTEST_CASES", 200) / 8;
    let mut found = Found::default();
    for seed in first..first + cases {
        let mut rng = Rng::with_seed(seed ^ 0xb10c);
        let (right, _) = story(&mut rng.clone(), false);
        found.tell_right(seed, &right, &rng);
        let (wrong, lied) = story(&mut rng, true);
        if lied {
            found.tell_wrong(&wrong, Limits::default());
        }
    }
    println!("{cases} histories, {found}");
    found.assert_more(1, 8, 5);
}
