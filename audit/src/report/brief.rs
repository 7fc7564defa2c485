//! The story in a few sentences, for places that show its steps and answers beside it.

use crate::verdict::Violation;
use pgassay_rules::anomaly;

/// The wrong answers, one by one: what was asked by whom, and what it got.
pub fn answers(violation: &Violation) -> Vec<&str> {
    let observed = violation.observed.as_str();
    let names = || violation.transactions.iter().map(|t| t.name.as_str());
    // `t1 «…» → …; t2 «…» → …`, where a statement may hold semicolons of its own.
    let begins = |at: &usize| names().any(|name| observed[at + 2..].starts_with(&format!("{name} «")));
    let cuts = observed.match_indices("; ").map(|(at, _)| at).filter(begins);
    let (mut parts, mut from) = (Vec::new(), 0);
    for at in cuts {
        parts.push(&observed[from..at]);
        from = at + 2;
    }
    parts.push(&observed[from..]);
    parts
}

/// Lines of the told story that say more than a list of steps does; else what the dependencies say.
pub fn of(violation: &Violation) -> String {
    let summary = anomaly::by_name(&violation.rule).map_or("", |rule| rule.summary);
    let own: Vec<&str> = violation
        .story
        .lines()
        .filter(|line| is_sentence(line, summary))
        .collect();
    if !own.is_empty() {
        return own.join("\n");
    }
    let mut lines: Vec<String> = violation.edges.iter().map(|edge| sentence(&edge.why)).collect();
    lines.dedup();
    if lines.len() > 1 {
        lines.push("These cannot all be: no order of the transactions explains every answer.".to_owned());
    } else {
        lines.push(sentence(&format!("Answered was {}", violation.observed)));
        if let Some(right) = violation.expected.first() {
            lines.push(sentence(&format!("Right would have been {right}")));
        }
    }
    lines.join("\n")
}

fn is_sentence(line: &str, summary: &str) -> bool {
    const LISTED: [&str; 3] = ["Answered:", "Right would have been:", "Every serial order"];
    let repeats = !summary.is_empty() && line.starts_with(summary.trim_end_matches('.'));
    !line.trim().is_empty()
        && !line.starts_with(' ')
        && !repeats
        && !LISTED.iter().any(|start| line.starts_with(start))
}

/// With a capital and a full stop; names of transactions stay as they are.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    format!("{text}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn prose_is_kept_and_lists_are_not() {
        let mut told = sample::lost_update();
        assert_eq!(of(&told), told.story);
        told.story = "An update was computed from a version that another update had replaced. (lost_update, serializable).\n    0.000 ms  t1  begin\nAnswered: x.\nRight would have been: y.".into();
        let brief = of(&told);
        assert!(
            brief.starts_with("t1 wrote account(1) = 110, then t2 replaced it by 120.\n"),
            "{brief}"
        );
        assert!(brief.ends_with("explains every answer."), "{brief}");
        told.edges.clear();
        assert!(
            of(&told).contains("Right would have been if t1 came first"),
            "{}",
            of(&told)
        );
    }
}
