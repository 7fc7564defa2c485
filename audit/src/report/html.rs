//! One HTML file that opens without a server and without a network.
//!
//! In: a summary (or one violation). Out: a page that holds its data, its style and its program.
//!
//! Always true:
//!   - its content policy allows this one program and this one style, by digest, and nothing from anywhere;
//!   - without scripts the stories and their pictures can still be read.

use super::gate::{Gate, Verdict, checked_share};
use super::svg::{self, Place, escape};
use super::text::{grouped, percent, plural};
use super::{brief, json, steps};
use crate::verdict::{Summary, Violation};
use pgassay_rules::anomaly;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The admin address serves these files too.
const PICTURE_CSS: &str = svg::STYLE;
const BASE_CSS: &str = include_str!("page/base.css");
const STORY_CSS: &str = include_str!("page/story.css");
const STORY_JS: &str = include_str!("page/story.js");
const REPORT_JS: &str = include_str!("page/report.js");

/// The whole run.
pub fn summary(summary: &Summary, gate: &Gate) -> String {
    let counting: Vec<&Violation> = summary.violations.iter().filter(|v| gate.counts(v)).collect();
    let verdict = match gate.judge(summary) {
        Verdict::Violated => format!(
            "<span class=\"badge wrong\">✗ {}</span>",
            plural(counting.len() as u64, "violation")
        ),
        Verdict::Passed => {
            "<span class=\"badge right\">✓ nothing wrong in what was checked</span>".to_owned()
        }
        Verdict::TooLittleCoverage => "<span class=\"badge warn\">! too little was checked</span>".to_owned(),
    };
    let coverage = &summary.coverage;
    let mut body = format!(
        "<h1>pgassay report</h1>\n<p>{verdict}</p>\n<table><tr><th class=\"number\">transactions</th><th class=\"number\">statements</th>\
         <th class=\"number\">checked</th><th class=\"number\">partly</th><th class=\"number\">unchecked</th><th class=\"number\">gaps</th></tr>\
         <tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{} ({})</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr></table>\n",
        grouped(summary.transactions),
        grouped(summary.statements),
        grouped(coverage.checked),
        percent(checked_share(coverage)),
        grouped(coverage.partial),
        grouped(coverage.unchecked),
        grouped(summary.gaps)
    );
    for violation in &summary.violations {
        section(&mut body, violation, gate.pardon(violation));
    }
    shapes(&mut body, summary);
    page("pgassay report", &body, &summary.violations)
}

/// One violation alone.
pub fn violation(violation: &Violation) -> String {
    let mut body = String::new();
    section(&mut body, violation, None);
    page(
        &format!("{} at {}", violation.rule, violation.level),
        &body,
        std::slice::from_ref(violation),
    )
}

fn section(body: &mut String, violation: &Violation, pardon: Option<&str>) {
    let summary = anomaly::by_name(&violation.rule).map_or("", |rule| rule.summary);
    let _ = write!(
        body,
        "<section>\n<h1>{} <span class=\"soft\">at {}</span></h1>\n<p>{} <span class=\"soft\">{}</span> {}</p>\n<div class=\"told\" data-id=\"{}\">\n\
         <p class=\"prose\">{}</p>\n<div class=\"answers\"><div class=\"observed\"><h3>✗ The database answered</h3>{}</div>\
         <div class=\"expected\"><h3>✓ Right would have been</h3><ul>",
        escape(&violation.rule),
        violation.level,
        escape(summary),
        escape(&violation.id),
        pardon.map_or(String::new(), |why| format!(
            "<span class=\"badge warn\">{}</span>",
            escape(why)
        )),
        escape(&violation.id),
        escape(&brief::of(violation)),
        brief::answers(violation)
            .iter()
            .map(|answer| format!("<p>{}</p>", escape(answer)))
            .collect::<String>(),
    );
    for right in &violation.expected {
        let _ = write!(body, "<li>{}</li>", escape(right));
    }
    body.push_str("</ul></div></div>\n<div class=\"still\">\n");
    body.push_str(&svg::picture(violation, Place::Page));
    body.push_str("</div>\n<ul>");
    for edge in &violation.edges {
        let name = |index: usize| violation.transactions.get(index).map_or("?", |t| t.name.as_str());
        let _ = write!(
            body,
            "<li><b>{} ─{}→ {}</b> {}</li>",
            escape(name(edge.from)),
            escape(&edge.kind),
            escape(name(edge.to)),
            escape(&edge.why)
        );
    }
    body.push_str("</ul>\n<table>\n");
    let origin = steps::origin(violation);
    for step in steps::of(violation).iter().take(svg::BARS_MAX) {
        let _ = writeln!(
            body,
            "<tr><td class=\"number\">{}</td><td>{}</td><td><code>{}</code></td><td>{}{}</td></tr>",
            steps::instant(step.window.sent, origin),
            escape(&violation.transactions[step.transaction].name),
            escape(&step.sql),
            if step.culprit { "✗ " } else { "" },
            escape(&step.answer)
        );
    }
    body.push_str("</table>\n</div>\n</section>\n");
}

fn shapes(body: &mut String, summary: &Summary) {
    if summary.coverage.shapes.is_empty() {
        return;
    }
    body.push_str("<h2>Coverage by statement shape</h2>\n<table><tr><th>statement</th><th class=\"number\">checked</th><th class=\"number\">partly</th><th class=\"number\">unchecked</th><th>why not</th></tr>\n");
    for shape in &summary.coverage.shapes {
        let _ = writeln!(
            body,
            "<tr><td><code>{}</code></td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
            escape(&shape.shape),
            grouped(shape.checked),
            grouped(shape.partial),
            grouped(shape.unchecked),
            escape(shape.reason.as_deref().unwrap_or(""))
        );
    }
    body.push_str("</table>\n");
}

fn page(title: &str, body: &str, violations: &[Violation]) -> String {
    let style = format!("{PICTURE_CSS}{BASE_CSS}{STORY_CSS}.still {{ overflow-x: auto; }}\n");
    let program = format!("{}\n{REPORT_JS}", STORY_JS.replace("export function", "function"));
    let data = serde_json::Value::Array(violations.iter().map(json::violation).collect());
    // Inside a script element only `</` and `<!--` matter; neither survives this.
    let data = data.to_string().replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <script type=\"application/json\" id=\"violations\">{data}</script>\n<script>{program}</script>\n</body>\n</html>\n",
        digest(&program),
        digest(&style),
        escape(title),
    )
}

/// Base64 of the SHA-256, as content policies want it.
fn digest(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = Sha256::digest(text.as_bytes());
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let symbol = ALPHABET[(word >> (18 - 6 * place) & 63) as usize] as char;
            out.push(if place > chunk.len() { '=' } else { symbol });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_page_holds_everything_it_needs() {
        let html = summary(&sample::summary(), &Gate::default());
        assert!(html.contains("✗ 2 violations"));
        assert!(html.contains("t2&#39;s 120 was computed from 100"), "prose");
        assert_eq!(html.matches("<svg ").count(), 2);
        for outside in ["src=\"", "href=\"http", "@import", "url(http"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn data_cannot_end_the_script_element() {
        let mut told = sample::lost_update();
        told.observed = "</script><script>alert(1)</script><!--".into();
        let html = violation(&told);
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(!html.contains("<script>alert"));
    }

    #[test]
    fn digests_are_base64_of_sha256() {
        assert_eq!(digest(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
