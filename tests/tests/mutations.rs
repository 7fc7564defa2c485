//! Correct recorded traffic with one answer changed so that no execution explains it: the audit must say so.
//!
//! Every change is wrong whatever the order of the transactions: a value that is out of reach of all deposits,
//! a row less or more of a table whose rows never come or go, another count of rows that are always there.
//! `PGASSAY_MUTATIONS` sets how many are tried, `PGASSAY_RANDOM_SEED` where to begin.
//!
//! The traffic was recorded once, by four clients at a time on a real server, and lies in `tests/histories/mutations`:
//! how much of it can be judged depends on how it was interleaved, and that shall not be another one on every machine.
//! `PGASSAY_RECORD=1` records it anew.

use bytes::Bytes;
use fastrand::Rng;
use pgassay_audit::trace::journal::{Options, Reader, Writer};
use pgassay_audit::trace::{Answer, Outcome, Record};
use pgassay_audit::verdict::Summary;
use pgassay_audit::{Auditor, Settings};
use pgassay_tests::cluster::Cluster;
use pgassay_tests::recorded::{Traffic, record};
use std::collections::BTreeMap;
use std::path::Path;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(otherwise)
}

fn audit(records: &[Record]) -> Summary {
    let mut auditor = Auditor::new(Settings::default());
    for record in records {
        auditor.take(record.clone());
    }
    auditor.finish();
    auditor.summary()
}

/// Out of reach: every deposit is below a hundred.
const FAR: i64 = 10_000_000;

/// Changes the answer; how, or `None` if it offers no occasion.
fn change(text: &str, answer: &mut Answer, rng: &mut Rng) -> Option<&'static str> {
    let rows = answer.rows.len();
    let aggregate = text.contains("sum(");
    let kind = rng.u8(0..6);
    let done = match kind {
        0 if rows > 0 => {
            let row = rng.usize(0..rows);
            let cell = rng.usize(0..answer.rows[row].len());
            let old = answer.rows[row][cell]
                .as_ref()
                .and_then(|b| std::str::from_utf8(b).ok());
            let new = match old.and_then(|t| t.parse::<i64>().ok()) {
                Some(n) => (n + FAR).to_string(),
                None => "never written".to_owned(),
            };
            answer.rows[row][cell] = Some(Bytes::from(new));
            "value"
        }
        1 if rows > 0 => {
            let row = rng.usize(0..rows);
            let cell = rng.usize(0..answer.rows[row].len());
            answer.rows[row][cell].take()?;
            "value to NULL"
        }
        2 if rows > 0 && !aggregate => {
            answer.rows.remove(rng.usize(0..rows));
            answer.tag = Some(retag(answer));
            "row dropped"
        }
        3 if rows > 0 => {
            let row = answer.rows[rng.usize(0..rows)].clone();
            answer.rows.push(row);
            answer.tag = Some(retag(answer));
            "row doubled"
        }
        4 if rows > 1 && text.contains("order by") => {
            answer.rows.reverse();
            "order"
        }
        5 if text.starts_with("update") && !text.contains("returning") => {
            let zero = answer.tag.as_deref() == Some("UPDATE 0");
            answer.tag = Some(if zero { "UPDATE 2" } else { "UPDATE 0" }.to_owned());
            "count"
        }
        _ => return None,
    };
    Some(done)
}

fn retag(answer: &Answer) -> String {
    let word = answer
        .tag
        .as_deref()
        .and_then(|t| t.split(' ').next())
        .unwrap_or("SELECT")
        .to_owned();
    format!("{word} {}", answer.rows.len())
}

/// The recorded traffic of four clients at this level.
fn history(level: &'static str, seed: u64) -> Vec<Record> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("histories/mutations")
        .join(level.replace(' ', "-"));
    if std::env::var_os("PGASSAY_RECORD").is_some() {
        let traffic = Traffic {
            seed,
            level,
            claim: None,
            clients: 4,
            rounds: 6,
        };
        let (_, records) = record(&Cluster::start().expect("a server"), &traffic);
        let _ = std::fs::remove_dir_all(&dir);
        let mut writer = Writer::open(&dir, Options::default()).expect("a journal");
        for record in &records {
            writer.push(record).expect("a record is written");
        }
        writer.close().expect("the journal is closed");
    }
    let reader = Reader::open(&dir, None).expect("the journal opens");
    reader.map(|record| record.expect("a readable record")).collect()
}

#[test]
fn wrong_answers_are_caught() {
    let seed = number("PGASSAY_RANDOM_SEED", 1);
    let wanted = number("PGASSAY_MUTATIONS", 60);
    // By kind: tried, caught.
    let mut table: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    let mut missed = Vec::new();
    for (at, level) in ["read committed", "repeatable read", "serializable"]
        .into_iter()
        .enumerate()
    {
        let records = history(level, 1 + at as u64);
        let right = audit(&records);
        let coverage = &right.coverage;
        println!(
            "{level}: {} statements, {} checked, {} partly, {} not {:?}",
            right.statements, coverage.checked, coverage.partial, coverage.unchecked, coverage.reasons
        );
        assert!(
            right.violations.is_empty(),
            "{level}: {}",
            right.violations[0].story
        );
        let data: Vec<usize> = (0..records.len())
            .filter(|r| match &records[*r] {
                // The answers of aborted SERIALIZABLE transactions promise nothing.
                Record::Statement(seen) => {
                    matches!(seen.outcome, Outcome::Answer(_))
                        && ["select", "update"].iter().any(|w| seen.text.starts_with(w))
                        && !(level == "serializable" && is_aborted(&records, *r))
                }
                _ => false,
            })
            .collect();
        let mut rng = Rng::with_seed(seed + at as u64);
        let mut tried = 0;
        while tried < wanted / 3 {
            let target = data[rng.usize(0..data.len())];
            let mut changed = records.clone();
            let Record::Statement(seen) = &mut changed[target] else {
                continue;
            };
            let text = seen.text.clone();
            let Outcome::Answer(answer) = &mut seen.outcome else {
                continue;
            };
            let Some(kind) = change(&text, answer, &mut rng) else {
                continue;
            };
            tried += 1;
            let row = table.entry(kind).or_default();
            row[0] += 1;
            let summary = audit(&changed);
            if summary.violations.is_empty() {
                missed.push(format!("{level}, {kind}: {text} {:?}", summary.coverage.reasons));
            } else {
                row[1] += 1;
            }
        }
    }
    println!("{:<16}{:>8}{:>8}", "answer", "changed", "caught");
    for (kind, [tried, caught]) in &table {
        println!("{kind:<16}{tried:>8}{caught:>8}");
    }
    let tried: u64 = table.values().map(|r| r[0]).sum();
    assert!(
        missed.len() as u64 * 100 <= tried,
        "{} of {tried} were missed:\n{}",
        missed.len(),
        missed.join("\n")
    );
}

/// Whether the transaction that this statement belongs to was rolled back.
fn is_aborted(records: &[Record], at: usize) -> bool {
    let Record::Statement(seen) = &records[at] else {
        return false;
    };
    let later = records.iter().filter_map(|r| match r {
        Record::Statement(other) if other.session == seen.session && other.seq >= seen.seq => Some(other),
        _ => None,
    });
    let end = later
        .filter(|o| {
            matches!(&*o.text, "commit" | "rollback")
                || o.text.starts_with("begin")
                || matches!(o.outcome, Outcome::Error(_))
        })
        .min_by_key(|o| o.seq);
    end.is_some_and(|o| &*o.text == "rollback" || matches!(o.outcome, Outcome::Error(_)))
}
