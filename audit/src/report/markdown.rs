//! Markdown for a job summary, and the annotations that GitHub shows beside a run.
//!
//! GitHub shows about ten annotations of a kind per step: the rest is in the job summary only.

use super::gate::{Gate, Verdict, checked_share};
use super::source;
use super::steps::{self, Act};
use super::text::{grouped, one_line, percent, plural};
use super::{brief, reasons as words};
use crate::verdict::{Summary, Violation};
use pgassay_rules::anomaly;
use std::fmt::Write;

const ANNOTATIONS: usize = 10;
/// Stories told whole in a job summary (its size is limited); the rest are headlines.
const STORIES: usize = 5;
const REASONS: usize = 10;
/// Steps of one story in a job summary.
const STEPS: usize = 60;

/// The job summary.
pub fn summary(summary: &Summary, gate: &Gate) -> String {
    let mut out = String::from("## pgassay\n\n");
    let counting: Vec<&Violation> = summary.violations.iter().filter(|v| gate.counts(v)).collect();
    let verdict = match gate.judge(summary) {
        Verdict::Violated => format!("❌ **{}**", plural(counting.len() as u64, "violation")),
        Verdict::Passed => "✅ **Nothing wrong in what was checked**".to_owned(),
        Verdict::TooLittleCoverage => "⚠️ **Too little was checked**".to_owned(),
    };
    let _ = writeln!(out, "{verdict}\n");
    let coverage = &summary.coverage;
    out.push_str(
        "| transactions | statements | checked | partly | unchecked | gaps |\n|--:|--:|--:|--:|--:|--:|\n",
    );
    let _ = writeln!(
        out,
        "| {} | {} | {} ({}) | {} | {} | {} |\n",
        grouped(summary.transactions),
        grouped(summary.statements),
        grouped(coverage.checked),
        percent(checked_share(coverage)),
        grouped(coverage.partial),
        grouped(coverage.unchecked),
        grouped(summary.gaps)
    );
    for told in counting.iter().take(STORIES) {
        out.push_str(&violation(told));
    }
    let headlines = counting.iter().skip(STORIES).map(|v| (*v, "counts"));
    let pardoned = summary
        .violations
        .iter()
        .filter_map(|v| gate.pardon(v).map(|why| (v, why)));
    let rest: Vec<(&Violation, &str)> = headlines.chain(pardoned).collect();
    if !rest.is_empty() {
        out.push_str("\n| id | rule | level | observed | |\n|---|---|---|---|---|\n");
        for (v, why) in rest {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {why} |",
                v.id,
                v.rule,
                v.level,
                cell(&v.observed)
            );
        }
    }
    if !coverage.reasons.is_empty() {
        out.push_str("\n<details><summary>Why statements were not checked</summary>\n\n");
        out.push_str("| statements | reason |\n|--:|---|\n");
        let mut reasons: Vec<_> = coverage.reasons.iter().collect();
        reasons.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
        for (reason, count) in reasons.into_iter().take(REASONS) {
            let meaning = words::meaning(reason).map_or(String::new(), |words| format!(": {words}"));
            let _ = writeln!(
                out,
                "| {} | {}{} |",
                grouped(*count),
                cell(reason),
                cell(&meaning)
            );
        }
        out.push_str("\n</details>\n");
    }
    out
}

/// One violation as a section with its steps.
pub fn violation(violation: &Violation) -> String {
    let mut out = format!("### {} at {}\n\n", violation.rule, violation.level);
    if let Some(rule) = anomaly::by_name(&violation.rule) {
        let _ = writeln!(out, "{} `{}`\n", rule.summary, violation.id);
    }
    for line in brief::of(violation).lines() {
        let _ = writeln!(out, "> {}  ", escape(line));
    }
    out.push_str("\n| when | who | statement | answer |\n|--:|---|---|---|\n");
    let origin = steps::origin(violation);
    let all = steps::of(violation);
    for step in all.iter().take(STEPS) {
        let name = &violation.transactions[step.transaction].name;
        let answer = match step.act {
            Act::Statement(_) => cell(&step.answer),
            _ => String::new(),
        };
        let answer = if step.culprit {
            format!("❌ {answer}")
        } else {
            answer
        };
        let when = steps::instant(step.window.sent, origin);
        let mut sql = code(&one_line(&step.sql));
        if !step.parameters.is_empty() {
            let _ = write!(sql, " {}", code(&format!("[{}]", step.parameters.join(", "))));
        }
        let _ = writeln!(out, "| {when} | {name} | {sql} | {answer} |");
    }
    if all.len() > STEPS {
        let _ = writeln!(out, "| | | … {} more steps | |", all.len() - STEPS);
    }
    out.push('\n');
    for answered in brief::answers(violation) {
        let _ = writeln!(out, "**Answered:** {}  ", escape(answered));
    }
    for right in &violation.expected {
        let _ = writeln!(out, "**Right:** {}  ", escape(right));
    }
    for edge in &violation.edges {
        let name = |index: usize| violation.transactions.get(index).map_or("?", |t| t.name.as_str());
        let _ = writeln!(
            out,
            "- {} —{}→ {}: {}",
            name(edge.from),
            edge.kind,
            name(edge.to),
            escape(&edge.why)
        );
    }
    out.push('\n');
    out
}

/// Workflow commands: one line per violation, errors before warnings.
pub fn annotations(summary: &Summary, gate: &Gate) -> String {
    let mut out = String::new();
    let counting: Vec<&Violation> = summary.violations.iter().filter(|v| gate.counts(v)).collect();
    for violation in counting.iter().take(ANNOTATIONS) {
        let title = property(&format!("{} at {}", violation.rule, violation.level));
        let body = message(&format!(
            "{}\n{}\n({})",
            violation.observed,
            brief::of(violation),
            violation.id
        ));
        // Where the statement says which line sent it, the annotation stands on that line.
        let place = source::of(violation).map_or(String::new(), |place| {
            format!("file={},line={},", property(&place.file), place.line)
        });
        let _ = writeln!(out, "::error {place}title={title}::{body}");
    }
    if counting.len() > ANNOTATIONS {
        let more = counting.len() - ANNOTATIONS;
        let _ = writeln!(
            out,
            "::notice title=pgassay::{more} more violations: see the job summary"
        );
    }
    if gate.judge(summary) == Verdict::TooLittleCoverage {
        let share = percent(checked_share(&summary.coverage));
        let body = message(&format!("only {share} of the statements were checked whole"));
        let _ = writeln!(out, "::warning title=pgassay coverage::{body}");
    }
    out
}

/// The runner reads `%`, line ends and (in properties) `:` and `,` as its own.
fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

/// Text that stays text in Markdown.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Text in one cell of a table.
fn cell(text: &str) -> String {
    text.lines().take(8).map(escape).collect::<Vec<_>>().join("<br>")
}

/// Code in one cell of a table. GitHub splits cells before it reads code, so `|` is escaped here too.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 { " " } else { "" };
    format!("{fence}{pad}{}{pad}{fence}", text.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_job_summary_tells_story_and_coverage() {
        let text = summary(&sample::summary(), &Gate::default());
        assert!(text.contains("❌ **2 violations**"), "{text}");
        assert!(text.contains("### lost_update at serializable"), "{text}");
        assert!(
            text.contains("| +0.400 ms | t2 | `SELECT balance FROM account WHERE id = $1` `[1]` | ❌ 100 |"),
            "{text}"
        );
        assert!(text.contains("function to\\_tsvector()"), "{text}");
    }

    #[test]
    fn annotations_keep_to_one_line_each() {
        let text = annotations(&sample::summary(), &Gate::default());
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.starts_with("::error title=lost_update at serializable::t2 read"),
            "{text}"
        );
        assert!(text.contains("%0At1 and t2 both read"), "{text}");
    }

    #[test]
    fn beyond_ten_only_a_pointer() {
        let mut many = sample::summary();
        many.violations = vec![sample::lost_update(); 14];
        let text = annotations(&many, &Gate::default());
        assert_eq!(text.lines().count(), 11);
        assert!(text.contains("4 more violations"));
    }

    #[test]
    fn traffic_cannot_write_markup() {
        let mut told = sample::lost_update();
        told.observed = "<img src=x> | ::error::".into();
        told.transactions[0].statements[0].sql = "select '`|`'".into();
        let text = violation(&told);
        assert!(text.contains("&lt;img src=x&gt; \\| ::error::"), "{text}");
        assert!(text.contains("`` select '`\\|`' ``"), "{text}");
    }
}
