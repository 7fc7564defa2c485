//! Changes one answer of a history.

use crate::history::{Answer, History};
use fastrand::Rng;

/// The kinds, for the table that is printed.
pub const KINDS: [&str; 7] = [
    "value",
    "row dropped",
    "row added",
    "row doubled",
    "order",
    "tag",
    "stale value",
];

/// One answer changed at random, and how; `None` if there was nothing to change.
pub fn mutate(history: &History, rng: &mut Rng) -> Option<(History, &'static str)> {
    let mut changed = history.clone();
    let data: Vec<usize> = (0..history.statements.len())
        .filter(|s| history.statements[*s].answer != Answer::Plain)
        .collect();
    if data.is_empty() {
        return None;
    }
    let at = data[rng.usize(0..data.len())];
    let past: Vec<i64> = history
        .statements
        .iter()
        .filter_map(|s| last_value(&s.answer))
        .collect();
    let sql = history.statements[at].sql.clone();
    let kind = match &mut changed.statements[at].answer {
        Answer::Rows(rows) => match rng.u8(0..7) {
            0 | 1 if !rows.is_empty() => {
                let row = rng.usize(0..rows.len());
                let cell = rows[row].len() - 1;
                rows[row][cell] = match rows[row][cell] {
                    Some(_) if rng.u8(0..5) == 0 => None,
                    Some(v) => Some(v + rng.i64(1..4)),
                    None => Some(rng.i64(0..4)),
                };
                "value"
            }
            2 if !rows.is_empty() && !sql.contains("sum(") && !sql.contains("count(") => {
                let row = rng.usize(0..rows.len());
                rows.remove(row);
                "row dropped"
            }
            3 if !rows.is_empty() => {
                let row = rows[rng.usize(0..rows.len())].clone();
                rows.push(row);
                "row doubled"
            }
            4 => {
                let width = if sql.contains("k, v") || sql.contains("a, b") {
                    2
                } else {
                    1
                };
                rows.push((0..width).map(|_| Some(rng.i64(1..50))).collect());
                "row added"
            }
            5 if rows.len() > 1 => {
                rows.reverse();
                "order"
            }
            _ if !rows.is_empty() && !past.is_empty() => {
                let row = rng.usize(0..rows.len());
                let cell = rows[row].len() - 1;
                rows[row][cell] = Some(past[rng.usize(0..past.len())]);
                "stale value"
            }
            _ => return None,
        },
        Answer::Tag(tag) => {
            let (command, count) = tag.rsplit_once(' ')?;
            let count: i64 = count.parse().ok()?;
            let other = if count > 0 && rng.bool() {
                count - 1
            } else {
                count + 1
            };
            *tag = format!("{command} {other}");
            "tag"
        }
        Answer::Error(_) | Answer::Plain | Answer::Lost => return None,
    };
    (changed.statements[at].answer != history.statements[at].answer).then_some((changed, kind))
}

fn last_value(answer: &Answer) -> Option<i64> {
    match answer {
        Answer::Rows(rows) => rows.last()?.last().copied().flatten(),
        _ => None,
    }
}
