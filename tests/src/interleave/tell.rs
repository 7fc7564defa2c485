//! What was played, in the language of the golden scripts.

use super::Plan;
use super::play::Line;
use pgassay_audit::trace::{Answer, Outcome};

/// The whole story, with the expectation that a correct server is never accused.
pub fn story(plan: &Plan, played: &[Line]) -> String {
    let mut text = setup(plan);
    for line in played {
        text.push_str(&match line {
            Line::Whole {
                session,
                sql,
                outcome,
            } => format!("t{}: {sql} => {}\n", session + 1, answer(outcome)),
            Line::Sent { session, sql } => format!("t{}: {sql} ...\n", session + 1),
            Line::Done { session, outcome } => {
                format!("t{}: ... => {}\n", session + 1, answer(outcome))
            }
        });
    }
    text
}

/// What comes before the sessions.
pub fn setup(plan: &Plan) -> String {
    plan.setup.iter().map(|sql| format!("init: {sql}\n")).collect()
}

fn answer(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Error(error) => format!("error {}", error.sqlstate),
        Outcome::Answer(answer) if answer.columns.is_empty() => answer.tag.clone().unwrap_or_default(),
        Outcome::Answer(answer) => rows(answer),
        Outcome::Lost | Outcome::Skipped => "lost".to_owned(),
    }
}

fn rows(answer: &Answer) -> String {
    if answer.rows.is_empty() {
        return "no rows".to_owned();
    }
    let cell = |cell: &Option<bytes::Bytes>| match cell {
        None => "null".to_owned(),
        Some(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            match text.parse::<f64>() {
                Ok(_) => text.into_owned(),
                Err(_) => format!("'{}'", text.replace('\'', "''")),
            }
        }
    };
    let row = |row: &Vec<Option<bytes::Bytes>>| {
        let cells: Vec<String> = row.iter().map(cell).collect();
        format!("({})", cells.join(", "))
    };
    let rows: Vec<String> = answer.rows.iter().map(row).collect();
    rows.join(" ")
}
