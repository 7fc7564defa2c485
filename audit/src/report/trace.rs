//! A whole trace, right or wrong, in the form in which the page draws a violation: a lane per session.
//!
//! In: records. Out: JSON with `transactions` (the lanes) and `statements` (the steps), as in [`super::json`].
//!
//! Always true: steps are in the order in which they were sent, and nothing is marked as wrong.

use crate::story;
use crate::trace::{Nanos, Outcome, Record, SessionId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The sessions and statements of a trace.
pub fn picture(records: &[Record]) -> Value {
    let mut lanes: BTreeMap<SessionId, usize> = BTreeMap::new();
    let mut sessions = Vec::new();
    for record in records {
        let Record::SessionStart(facts) = record else {
            continue;
        };
        let parameter = |name: &str| facts.parameters.iter().find(|(n, _)| n == name).map(|(_, v)| v);
        lanes.insert(facts.session, sessions.len());
        sessions.push(json!({
            "name": parameter("application_name").map_or("?", |name| name.as_str()),
            "session": facts.session.0,
            "level": parameter("default_transaction_isolation").map_or("", |level| level.as_str()),
        }));
    }
    let mut statements: Vec<(Nanos, Value)> = Vec::new();
    for record in records {
        let Record::Statement(seen) = record else { continue };
        let done = (seen.window.done != Nanos::MAX).then_some(seen.window.done);
        let nobody_looked =
            matches!(&seen.outcome, Outcome::Answer(a) if a.tag.is_none() && a.columns.is_empty());
        let answer = if nobody_looked {
            String::new()
        } else {
            story::answer(&seen.outcome)
        };
        let step = json!({
            "transaction": lanes.get(&seen.session),
            "act": act(&seen.text),
            "sql": seen.text.as_ref(),
            "parameters": [],
            "window": { "sent": seen.window.sent, "done": done },
            "answer": answer,
            "culprit": false,
        });
        statements.push((seen.window.sent, step));
    }
    statements.sort_by_key(|(sent, _)| *sent);
    let statements: Vec<Value> = statements.into_iter().map(|(_, step)| step).collect();
    json!({ "transactions": sessions, "statements": statements, "edges": [] })
}

fn act(sql: &str) -> &'static str {
    let words: Vec<String> = sql
        .split_whitespace()
        .map(|w| w.trim_end_matches(';').to_ascii_lowercase())
        .collect();
    match words.first().map(String::as_str) {
        Some("begin" | "start") => "begin",
        Some("commit" | "end") => "commit",
        Some("rollback" | "abort") if !words.iter().any(|w| w == "to") => "rollback",
        _ => "statement",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;
    use pgassay_rules::Level;

    #[test]
    fn sessions_are_lanes_and_statements_are_in_order() {
        let text =
            "init: create table a (k int)\nt1: begin\nt2: select k from a ...\nt1: rollback\nt2: ... => (1)";
        let shown = picture(&script::parse(text, Level::Serializable).unwrap());
        let names: Vec<&str> = shown["transactions"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|lane| lane["name"].as_str())
            .collect();
        assert_eq!(names, ["init", "t1", "t2"]);
        let acts: Vec<&str> = shown["statements"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|step| step["act"].as_str())
            .collect();
        assert_eq!(acts, ["statement", "begin", "statement", "rollback"]);
        assert_eq!(shown["statements"][2]["answer"], "(1)");
        assert_eq!(shown["statements"][0]["answer"], "");
    }
}
