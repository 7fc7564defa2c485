//! Tells a run and its violations on a terminal.
//!
//! In: a summary, and whether the reader sees colours. Out: lines of at most a terminal's width where
//! the traffic allows it.

use super::gate::{Gate, Verdict, checked_share};
use super::steps::{self, Act};
use super::{brief, reasons};
use crate::verdict::{CoverageSummary, Summary, Violation};
use pgassay_rules::anomaly;
use std::fmt::Write;

/// How to mark words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Ansi,
}

/// Reasons that are listed before the rest is summed up.
const REASONS_SHOWN: usize = 8;
/// Lines of one answer that are shown.
const ANSWER_LINES_SHOWN: usize = 6;

/// The whole run: every violation that counts, then the totals.
pub fn summary(summary: &Summary, gate: &Gate, paint: Paint) -> String {
    let mut out = String::new();
    for told in &summary.violations {
        match gate.pardon(told) {
            None => out.push_str(&violation(told, paint)),
            Some(why) => {
                let name = format!("{} at {}", told.rule, told.level);
                let _ = writeln!(
                    out,
                    "{} {name}  {}  {why}",
                    paint.yellow("·"),
                    paint.dim(&told.id)
                );
            }
        }
        out.push('\n');
    }
    out.push_str(&totals(summary, gate, paint));
    out
}

/// The last lines: the verdict, how much was judged, and why the rest was not.
pub fn totals(summary: &Summary, gate: &Gate, paint: Paint) -> String {
    let mut out = String::new();
    let seen = format!(
        "{}, {}",
        plural(summary.transactions, "transaction"),
        plural(summary.statements, "statement")
    );
    let counting = summary.violations.iter().filter(|v| gate.counts(v)).count();
    let pardoned = summary.violations.len() - counting;
    let verdict = match gate.judge(summary) {
        Verdict::Violated => paint.red(&format!("✗ {}", plural(counting as u64, "violation"))),
        Verdict::Passed => paint.green("✓ nothing wrong in what was checked"),
        Verdict::TooLittleCoverage => paint.yellow(&format!(
            "! too little was checked: {}",
            percent(checked_share(&summary.coverage))
        )),
    };
    let _ = writeln!(out, "{verdict}  {seen}");
    if pardoned > 0 {
        let _ = writeln!(out, "  {} known or allowed", plural(pardoned as u64, "violation"));
    }
    out.push_str(&coverage(&summary.coverage, paint));
    let decided: u64 = summary.tiers.values().sum();
    if decided > 0 {
        let tiers: Vec<String> = ["settled", "candidates", "solver"]
            .iter()
            .filter_map(|name| summary.tiers.get(*name).map(|n| (name, n)))
            .map(|(name, n)| format!("{} {name}", percent(*n as f64 / decided as f64)))
            .collect();
        let _ = writeln!(out, "  decided   {}", tiers.join(" · "));
    }
    if let Some(first) = summary.violations.iter().find(|v| gate.counts(v)) {
        let _ = writeln!(
            out,
            "  what now  pgassay explain {}    what it means, and what to do",
            first.rule
        );
        let _ = writeln!(
            out,
            "            pgassay explain {} --journal DIR    the story again, with scripts that try to reproduce it",
            first.id
        );
    }
    if summary.gaps > 0 {
        let gaps = plural(summary.gaps, "hole");
        let _ = writeln!(
            out,
            "  gaps      {}",
            paint.yellow(&format!("{gaps} in the recording"))
        );
    }
    out
}

/// One violation: what, who, the steps in order, what was answered and what would have been right.
pub fn violation(violation: &Violation, paint: Paint) -> String {
    let mut out = String::new();
    let title = format!("✗ {} at {}", violation.rule, violation.level);
    let _ = writeln!(out, "{}  {}", paint.red(&title), paint.dim(&violation.id));
    if let Some(rule) = anomaly::by_name(&violation.rule) {
        let _ = writeln!(out, "  {}", rule.summary);
    }
    // What the dependencies say is said with them, below.
    let because: Vec<&str> = violation.edges.iter().map(|edge| edge.why.as_str()).collect();
    let told = brief::of(violation);
    let (conclusion, prose): (Vec<&str>, Vec<&str>) = told
        .lines()
        .filter(|line| !because.contains(&line.trim_end_matches('.')))
        .partition(|line| !because.is_empty() && line.starts_with("No order of "));
    if !prose.is_empty() {
        out.push('\n');
    }
    for line in prose {
        let _ = writeln!(out, "  {}", visible(line));
    }
    if !violation.initial.is_empty() {
        let _ = writeln!(out, "\n  {}", paint.dim("starting from"));
        for row in &violation.initial {
            let _ = writeln!(out, "    {row}");
        }
    }
    let _ = writeln!(
        out,
        "\n  {}",
        paint.dim("what happened, in the order it was sent")
    );
    let origin = steps::origin(violation);
    for step in steps::of(violation) {
        let name = &violation.transactions[step.transaction].name;
        let when = steps::instant(step.window.sent, origin);
        let lane = paint.lane(step.transaction, name);
        let _ = writeln!(
            out,
            "    {}  {lane}  {}",
            paint.dim(&format!("{when:>14}")),
            one_line(&step.sql)
        );
        let indent = " ".repeat(22 + name.chars().count());
        if !step.parameters.is_empty() {
            let _ = writeln!(out, "{indent}{}", paint.dim(&bound(&step.parameters)));
        }
        if matches!(step.act, Act::Statement(_)) {
            out.push_str(&answer(&step.answer, step.culprit, &indent, paint));
        }
    }
    out.push('\n');
    for (index, answered) in brief::answers(violation).iter().enumerate() {
        let label = if index == 0 { "answered" } else { "and     " };
        let _ = writeln!(out, "  {}  {answered}", paint.red(label));
    }
    for (index, right) in violation.expected.iter().enumerate() {
        let label = if index == 0 { "right   " } else { "or      " };
        let _ = writeln!(out, "  {}  {right}", paint.green(label));
    }
    if !violation.edges.is_empty() {
        let _ = writeln!(out, "\n  {}", paint.dim("because"));
        for edge in &violation.edges {
            let name = |index: usize| violation.transactions.get(index).map_or("?", |t| t.name.as_str());
            let _ = writeln!(
                out,
                "    {} ─{}→ {}  {}",
                name(edge.from),
                edge.kind,
                name(edge.to),
                edge.why
            );
        }
        for line in conclusion {
            let _ = writeln!(out, "    {}", visible(line));
        }
    }
    let who: Vec<String> = violation
        .transactions
        .iter()
        .map(|t| {
            format!(
                "{} session {} {} {}",
                t.name,
                t.id.session.0,
                t.level,
                steps::fate(t)
            )
        })
        .collect();
    let _ = writeln!(out, "\n  {}", paint.dim(&who.join(" · ")));
    if violation.repeats > 0 {
        let _ = writeln!(
            out,
            "  {}",
            paint.dim(&format!("seen again {}", times(violation.repeats)))
        );
    }
    out
}

fn coverage(coverage: &CoverageSummary, paint: Paint) -> String {
    let mut out = String::new();
    let all = coverage.checked + coverage.partial + coverage.unchecked;
    if all == 0 {
        return format!("  coverage  {}\n", paint.yellow("no statement was judged"));
    }
    let part = |n: u64| percent(n as f64 / all as f64);
    let _ = writeln!(
        out,
        "  coverage  {} checked · {} partly · {} unchecked",
        part(coverage.checked),
        part(coverage.partial),
        part(coverage.unchecked)
    );
    let mut counted: Vec<(&String, &u64)> = coverage.reasons.iter().collect();
    counted.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
    for (index, (name, count)) in counted.iter().take(REASONS_SHOWN).enumerate() {
        // Some are counted beside statements that were checked.
        let label = match index {
            0 if coverage.checked == all => "noted",
            0 => "why not",
            _ => "",
        };
        let meaning = reasons::meaning(name).map_or(String::new(), |words| paint.dim(&format!("  {words}")));
        let _ = writeln!(out, "  {label:<8}  {:>9}  {name}{meaning}", grouped(**count));
    }
    if counted.len() > REASONS_SHOWN {
        let rest: u64 = counted[REASONS_SHOWN..].iter().map(|(_, count)| **count).sum();
        let _ = writeln!(
            out,
            "            {:>9}  {} other reasons",
            grouped(rest),
            counted.len() - REASONS_SHOWN
        );
    }
    out
}

fn answer(text: &str, culprit: bool, indent: &str, paint: Paint) -> String {
    let mut out = String::new();
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().take(ANSWER_LINES_SHOWN).enumerate() {
        let mark = match (index, culprit) {
            (0, true) => "✗ ",
            (0, false) => "→ ",
            _ => "  ",
        };
        let line = visible(line);
        let line = if culprit { paint.red(&line) } else { line };
        let _ = writeln!(out, "{indent}{mark}{line}");
    }
    if lines.len() > ANSWER_LINES_SHOWN {
        let _ = writeln!(out, "{indent}  … {} more lines", lines.len() - ANSWER_LINES_SHOWN);
    }
    out
}

fn bound(parameters: &[String]) -> String {
    let bound: Vec<String> = parameters
        .iter()
        .enumerate()
        .map(|(n, value)| format!("${} = {}", n + 1, visible(value)))
        .collect();
    bound.join(", ")
}

/// SQL on one line, without characters that would move the cursor.
pub fn one_line(sql: &str) -> String {
    visible(&sql.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Traffic must not be able to write escape sequences to somebody's terminal.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `98.2 %`; never rounded up to 100 or down to 0 when it is not.
pub fn percent(share: f64) -> String {
    let text = format!("{:.1} %", share * 100.0);
    match text.as_str() {
        "100.0 %" if share < 1.0 => "99.9 %".to_owned(),
        "0.0 %" if share > 0.0 => "<0.1 %".to_owned(),
        "100.0 %" => "100 %".to_owned(),
        "0.0 %" => "0 %".to_owned(),
        _ => text,
    }
}

/// `1 violation`, `2,345 violations`.
pub fn plural(count: u64, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{} {noun}s", grouped(count))
    }
}

fn times(count: u64) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{} times", grouped(count))
    }
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        match self {
            Paint::Plain => text.to_owned(),
            Paint::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    pub fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    pub fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// One colour per transaction of a story.
    fn lane(self, index: usize, text: &str) -> String {
        self.wrap(["36", "35", "34", "33", "32"][index % 5], text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_violation_reads_as_a_story() {
        let text = violation(&sample::lost_update(), Paint::Plain);
        for line in [
            "✗ lost_update at serializable  v-5d1e0c94b7aa-1",
            "  t1 and t2 both read account(1) = 100.",
            "         +0.400 ms  t2  SELECT balance FROM account WHERE id = $1",
            "                        → 100",
            "  answered  t2 read balance = 100 of account(1) and wrote 120",
            "  or        if t2 came first, t1 reads 120",
            "    t2 ─rw→ t1  t2 read account(1) = 100, the version that t1 then replaced",
            "  seen again 2 times",
        ] {
            assert!(text.lines().any(|l| l == line), "no line «{line}» in\n{text}");
        }
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn traffic_cannot_colour_a_terminal() {
        let mut told = sample::lost_update();
        told.transactions[0].statements[0].answer = "\x1b[2Jgone".into();
        told.transactions[0].statements[0].sql = "select '\x07'".into();
        let text = violation(&told, Paint::Plain);
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text}");
    }

    #[test]
    fn totals_say_what_was_not_checked() {
        let text = totals(&sample::summary(), &Gate::default(), Paint::Plain);
        assert!(
            text.contains("✗ 2 violations  4,096 transactions, 16,384 statements"),
            "{text}"
        );
        assert!(
            text.contains("97.0 % checked · 2.4 % partly · 0.5 % unchecked"),
            "{text}"
        );
        assert!(
            text.contains("why not         400  table log is partial"),
            "{text}"
        );
        assert!(text.contains("solver"), "{text}");
        let nothing = totals(&Summary::default(), &Gate::default(), Paint::Plain);
        assert!(nothing.contains("no statement was judged"), "{nothing}");
    }

    #[test]
    fn a_share_is_never_rounded_to_perfection() {
        assert_eq!(percent(0.99999), "99.9 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.0001), "<0.1 %");
    }
}
