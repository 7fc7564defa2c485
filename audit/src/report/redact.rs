//! A violation without the data of the application.
//!
//! What stays: the rule, the level, the shapes of the statements (literals gone), windows, dependencies and
//! which answers were wrong. What goes: literals, parameters, answers, and prose that may quote them.

use crate::trace::lex::{Kind, tokens};
use crate::verdict::Violation;
use pgassay_rules::anomaly;

const GONE: &str = "(redacted)";

pub fn violation(violation: &Violation) -> Violation {
    let mut kept = violation.clone();
    for transaction in &mut kept.transactions {
        for statement in &mut transaction.statements {
            statement.sql = sql(&statement.sql);
            statement
                .parameters
                .iter_mut()
                .for_each(|value| *value = GONE.to_owned());
            statement.answer = GONE.to_owned();
        }
    }
    kept.observed = format!("an answer that no correct database gives {GONE}");
    kept.expected.clear();
    kept.initial.clear();
    kept.ground = Default::default();
    for edge in &mut kept.edges {
        edge.why = format!("a dependency of kind {} {GONE}", edge.kind);
    }
    let summary = anomaly::by_name(&kept.rule).map_or("", |rule| rule.summary);
    kept.story = format!("{summary}\nValues are left out: journal.redact is set.");
    kept
}

/// SQL whose literals are `?` and whose comments are gone.
fn sql(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for token in tokens(text) {
        let between = &text[end..token.place.start];
        out.push_str(if between.trim().is_empty() { between } else { " " });
        match token.kind {
            Kind::String | Kind::Dollar | Kind::Number => out.push('?'),
            _ => out.push_str(&text[token.place.clone()]),
        }
        end = token.place.end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{html, json, sample, script, text};

    #[test]
    fn no_report_of_a_redacted_violation_holds_a_value() {
        let mut told = sample::write_skew();
        told.transactions[0].statements[1].sql =
            "UPDATE doctors SET pay = 4711 WHERE /* for bob */ name = 'alice'".into();
        let kept = violation(&told);
        for report in [
            text::violation(&kept, text::Paint::Plain),
            json::violation(&kept).to_string(),
            html::violation(&kept),
            script::write(&kept),
        ] {
            for value in ["alice", "4711", "bob"] {
                assert!(!report.contains(value), "{value} in {report}");
            }
        }
        assert_eq!(
            kept.transactions[0].statements[1].sql,
            "UPDATE doctors SET pay = ? WHERE name = ?"
        );
        assert_eq!((kept.id, kept.rule), (told.id, told.rule));
    }
}
