//! Draws a story on a time line: a row per transaction, a bar per window, an arrow per dependency.
//!
//! In: a violation. Out: one SVG that needs nothing else.
//!
//! Always true:
//!   - columns are instants in their true order; their distance is chosen for reading, not to scale;
//!   - a bar begins where its request was sent and ends where its answer was read;
//!   - at most [`BARS_MAX`] bars are drawn; the picture says how many it left out.

use super::steps::{self, Act, Step};
use super::text::one_line;
use crate::trace::Nanos;
use crate::verdict::{Edge, Violation};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the picture will live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file of its own: carries its style.
    File,
    /// Inside a page that has the style.
    Page,
}

pub const BARS_MAX: usize = 120;
const LABEL_WIDTH: f64 = 150.0;
const LANE_HEIGHT: f64 = 96.0;
const TOP: f64 = 34.0;
const BAR_HEIGHT: f64 = 28.0;
const BAR_WIDTH_MIN: f64 = 92.0;
const BAR_WIDTH_MAX: f64 = 340.0;
const STEP: f64 = 22.0;
const CHAR_WIDTH: f64 = 6.95;

/// The style of the picture; pages that embed it include this.
pub const STYLE: &str = include_str!("page/picture.css");

pub fn picture(violation: &Violation, place: Place) -> String {
    let all = steps::of(violation);
    let shown = &all[..all.len().min(BARS_MAX)];
    let columns = columns(shown);
    let right = columns.values().copied().fold(0.0_f64, f64::max);
    let width = LABEL_WIDTH + right + 40.0;
    let height = TOP + LANE_HEIGHT * violation.transactions.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"story\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&format!(
            "{} at {}: {}",
            violation.rule, violation.level, violation.observed
        ))
    );
    if place == Place::File {
        let _ = writeln!(
            out,
            "<style>{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>"
        );
    }
    out.push_str(concat!(
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" ",
        "orient=\"auto-start-reverse\"><path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
    ));
    lanes(&mut out, violation, width);
    for step in shown {
        bar(&mut out, step, &columns);
    }
    for (index, edge) in violation.edges.iter().enumerate() {
        arrow(&mut out, violation, shown, &columns, index, edge);
    }
    if all.len() > shown.len() {
        let left_out = all.len() - shown.len();
        let _ = writeln!(
            out,
            "<text class=\"note\" x=\"8\" y=\"{:.0}\">{left_out} later steps are not drawn</text>",
            height - 10.0
        );
    }
    out.push_str("</svg>\n");
    out
}

/// A place for every instant: in order, wide enough for each bar to carry its words.
fn columns(steps: &[Step]) -> BTreeMap<Nanos, f64> {
    let mut instants: Vec<Nanos> = steps
        .iter()
        .flat_map(|s| [s.window.sent, s.window.done])
        .collect();
    instants.sort_unstable();
    instants.dedup();
    let mut at: BTreeMap<Nanos, f64> = instants
        .iter()
        .enumerate()
        .map(|(n, t)| (*t, n as f64 * STEP))
        .collect();
    let mut by_end: Vec<&Step> = steps.iter().filter(|s| s.act != Act::Begin).collect();
    by_end.sort_by_key(|s| (s.window.done, s.window.sent));
    for step in by_end {
        let words = one_line(&step.sql).chars().count().max(
            step.answer
                .lines()
                .next()
                .map_or(0, |line| line.chars().count() + 2),
        );
        let wanted = (words as f64 * CHAR_WIDTH + 18.0).clamp(BAR_WIDTH_MIN, BAR_WIDTH_MAX);
        let missing = wanted - (at[&step.window.done] - at[&step.window.sent]);
        if missing > 0.0 {
            at.range_mut(step.window.done..).for_each(|(_, x)| *x += missing);
        }
    }
    at
}

fn lanes(out: &mut String, violation: &Violation, width: f64) {
    for (index, transaction) in violation.transactions.iter().enumerate() {
        let y = TOP + LANE_HEIGHT * index as f64;
        let _ = writeln!(
            out,
            "<g class=\"lane lane{}\"><line x1=\"{LABEL_WIDTH}\" x2=\"{:.0}\" y1=\"{m:.0}\" y2=\"{m:.0}\"/>\
             <text class=\"name\" x=\"12\" y=\"{:.0}\">{}</text><text class=\"note\" x=\"12\" y=\"{:.0}\">session {}</text>\
             <text class=\"note\" x=\"12\" y=\"{:.0}\">{}</text><text class=\"note\" x=\"12\" y=\"{:.0}\">{}</text></g>",
            index % 5,
            width - 12.0,
            y + 24.0,
            escape(&transaction.name),
            y + 41.0,
            transaction.id.session.0,
            y + 56.0,
            transaction.level,
            y + 71.0,
            steps::fate(transaction),
            m = y + 32.0,
        );
    }
}

fn bar(out: &mut String, step: &Step, columns: &BTreeMap<Nanos, f64>) {
    let (left, right) = span(step, columns);
    let y = TOP + LANE_HEIGHT * step.transaction as f64 + 18.0;
    let kind = match step.act {
        Act::Begin => {
            let _ = writeln!(
                out,
                "<line class=\"begin\" x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"{:.0}\" y2=\"{:.0}\"/>",
                y - 6.0,
                y + BAR_HEIGHT + 6.0
            );
            return;
        }
        Act::Statement(_) => "statement",
        Act::Commit => "commit",
        Act::Rollback => "rollback",
    };
    let wrong = if step.culprit { " culprit" } else { "" };
    let width = right - left;
    let room = ((width - 14.0) / CHAR_WIDTH) as usize;
    let open = if step.window.done == Nanos::MAX {
        " open"
    } else {
        ""
    };
    let _ = write!(
        out,
        "<g class=\"bar {kind}{wrong}{open} lane{}\"><title>{}</title><rect x=\"{left:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"5\"/>\
         <text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
        step.transaction % 5,
        escape(&one_line(&step.sql)),
        left + 8.0,
        y + 18.0,
        escape(&cut(&one_line(&step.sql), room)),
    );
    let answer = step.answer.lines().next().unwrap_or("");
    if !answer.is_empty() {
        let more = if step.answer.lines().count() > 1 {
            " …"
        } else {
            ""
        };
        let mark = if step.culprit { "✗ " } else { "→ " };
        let words = format!("{mark}{}{more}", cut(answer, room.saturating_sub(2)));
        let _ = write!(
            out,
            "<text class=\"answer\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            left + 8.0,
            y + 46.0,
            escape(&words)
        );
    }
    out.push_str("</g>\n");
}

fn arrow(
    out: &mut String,
    violation: &Violation,
    steps: &[Step],
    columns: &BTreeMap<Nanos, f64>,
    index: usize,
    edge: &Edge,
) {
    let Some((x1, x2)) = ends(violation, steps, columns, edge) else {
        return;
    };
    let middle = |lane: usize| TOP + LANE_HEIGHT * lane as f64 + 32.0;
    let down = if edge.to > edge.from { 1.0 } else { -1.0 };
    let (y1, y2) = (middle(edge.from) + down * 15.0, middle(edge.to) - down * 17.0);
    let bend = (y2 - y1) * 0.5;
    let (x1, x2) = (x1 + index as f64 * 9.0, x2 + index as f64 * 9.0);
    let (label_x, label_y) = ((x1 + x2) / 2.0, (y1 + y2) / 2.0);
    let _ = writeln!(
        out,
        "<g class=\"edge {k}\"><title>{why}</title><path d=\"M{x1:.1} {y1:.1}C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}\" marker-end=\"url(#tip)\"/>\
         <rect x=\"{:.1}\" y=\"{:.1}\" width=\"30\" height=\"17\" rx=\"8\"/><text x=\"{label_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{k}</text></g>",
        y1 + bend,
        y2 - bend,
        label_x - 15.0,
        label_y - 9.0,
        label_y + 4.0,
        k = escape(&edge.kind),
        why = escape(&edge.why),
    );
}

/// Where an arrow starts and ends: at the commit of a writer, at the statement of a reader.
fn ends(
    violation: &Violation,
    steps: &[Step],
    columns: &BTreeMap<Nanos, f64>,
    edge: &Edge,
) -> Option<(f64, f64)> {
    let (from_reads, to_reads) = match edge.kind.as_str() {
        "rw" => (true, false),
        "wr" => (false, true),
        _ => (false, false),
    };
    Some((
        anchor(
            violation,
            steps,
            columns,
            edge.from,
            from_reads.then_some(edge.read),
        )?,
        anchor(violation, steps, columns, edge.to, to_reads.then_some(edge.read))?,
    ))
}

fn anchor(
    violation: &Violation,
    steps: &[Step],
    columns: &BTreeMap<Nanos, f64>,
    transaction: usize,
    reads: Option<Option<usize>>,
) -> Option<f64> {
    let told = violation.transactions.get(transaction)?;
    let own = || {
        steps
            .iter()
            .filter(move |s| s.transaction == transaction && s.act != Act::Begin)
    };
    let step = match reads {
        Some(known) => {
            let sent = known.and_then(|n| told.statements.get(n)).map(|s| s.window.sent);
            let reading = own().find(|s| Some(s.window.sent) == sent);
            reading
                .or_else(|| own().find(|s| s.culprit))
                .or_else(|| own().next())
        }
        None => own().find(|s| s.act == Act::Commit).or_else(|| own().next_back()),
    }?;
    let (left, right) = span(step, columns);
    Some((left + right) / 2.0)
}

fn span(step: &Step, columns: &BTreeMap<Nanos, f64>) -> (f64, f64) {
    (
        LABEL_WIDTH + columns[&step.window.sent],
        LABEL_WIDTH + columns[&step.window.done],
    )
}

/// At most `room` characters.
fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Text that stays text in XML and HTML. Control characters are not allowed in XML at all.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn every_step_and_every_edge_is_drawn() {
        let svg = picture(&sample::lost_update(), Place::File);
        assert_eq!(svg.matches("<g class=\"bar statement").count(), 4);
        assert_eq!(svg.matches("<g class=\"bar commit").count(), 2);
        assert_eq!(svg.matches("<g class=\"edge").count(), 2);
        assert_eq!(svg.matches("culprit lane").count(), 1);
        assert!(svg.contains("<style>"));
        assert!(!picture(&sample::lost_update(), Place::Page).contains("<style>"));
    }

    #[test]
    fn columns_keep_the_order_of_time() {
        let steps = steps::of(&sample::lost_update());
        let places: Vec<f64> = columns(&steps).into_values().collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
    }

    #[test]
    fn a_long_story_says_what_it_left_out() {
        let svg = picture(&sample::wide(1_000), Place::File);
        assert!(
            svg.contains("890 later steps are not drawn"),
            "{}",
            &svg[svg.len() - 200..]
        );
    }

    #[test]
    fn traffic_cannot_write_markup() {
        let mut told = sample::lost_update();
        told.transactions[0].statements[0].sql = "select '</svg><script>\u{1}'".into();
        told.edges[0].why = "\"><script>".into();
        let svg = picture(&told, Place::File);
        assert!(!svg.contains("<script") && !svg.contains('\u{1}'), "{svg}");
    }
}
