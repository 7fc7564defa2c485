//! Tables as Markdown, raw numbers as JSON lines, plots as SVG, and all of them as RESULTS.md.

use anyhow::Context;
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One table of the results.
pub struct Table {
    pub title: String,
    /// What was measured and how, in a few sentences.
    pub about: String,
    pub command: String,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// One JSON object per row.
    pub raw: Vec<Value>,
    pub plot: Plot,
}

/// Bars, one per row: a label and a number.
#[derive(Default)]
pub struct Plot {
    pub unit: String,
    pub bars: Vec<(String, f64)>,
    /// The numbers span decades.
    pub is_logarithmic: bool,
}

impl Table {
    pub fn markdown(&self) -> String {
        let mut out = format!("## {}\n\n{}\n\n", self.title, self.about);
        let _ = writeln!(out, "| {} |", self.header.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(self.header.len()));
        for row in &self.rows {
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
        let _ = writeln!(out, "\nCommand: `{}`\n\n{}", self.command, machine());
        out
    }

    pub fn write(&self, dir: &Path, name: &str) -> anyhow::Result<()> {
        let mut text = self.markdown();
        if !self.plot.bars.is_empty() {
            fs::write(dir.join(format!("{name}.svg")), self.plot.svg(&self.title))?;
            let _ = writeln!(text, "\n![{}](results/{name}.svg)", self.title);
        }
        fs::write(dir.join(format!("{name}.md")), text)?;
        let lines: Vec<String> = self.raw.iter().map(Value::to_string).collect();
        fs::write(dir.join(format!("{name}.jsonl")), lines.join("\n") + "\n")?;
        Ok(())
    }
}

impl Plot {
    fn svg(&self, title: &str) -> String {
        let (left, bar, width) = (260.0, 16.0, 420.0);
        let height = 40.0 + self.bars.len() as f64 * (bar + 4.0) + 10.0;
        let scale = |value: f64| {
            if self.is_logarithmic {
                (1.0 + value.max(0.0)).log10()
            } else {
                value
            }
        };
        let most = self
            .bars
            .iter()
            .map(|(_, value)| scale(*value))
            .fold(f64::MIN_POSITIVE, f64::max);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<text x=\"8\" y=\"18\" font-size=\"13\">{}{}</text>\n",
            left + width + 110.0,
            escape(title),
            if self.is_logarithmic { " (logarithmic)" } else { "" }
        );
        for (at, (label, value)) in self.bars.iter().enumerate() {
            let y = 32.0 + at as f64 * (bar + 4.0);
            let length = (scale(*value) / most * width).max(1.0);
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{left}\" y=\"{y}\" \
                 width=\"{length:.1}\" height=\"{bar}\" fill=\"#4477aa\"/><text x=\"{}\" y=\"{}\">{} {}</text>",
                left - 6.0,
                y + 12.0,
                escape(label),
                left + length + 6.0,
                y + 12.0,
                short(*value),
                escape(&self.unit)
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Where and when: a number without this is worth nothing.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")
                .and_then(|rest| rest.split_once(':'))
        })
        .map_or("unknown processor", |(_, name)| name.trim())
        .to_owned();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")
                .and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok())
        })
        .map_or(0, |kib| kib / 1_048_576);
    let said = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let postgres = pgassay::throwaway::find_bin()
        .ok()
        .and_then(|bin| said(bin.join("postgres").to_str()?, &["--version"]))
        .unwrap_or_else(|| "PostgreSQL ?".to_owned());
    let commit = said("git", &["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let date = said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default();
    let profile = if cfg!(debug_assertions) {
        "debug build"
    } else {
        "release build"
    };
    let load = read("/proc/loadavg")
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    format!(
        "{date}, commit {commit}, {profile}; {model}, {cores} processors, {memory} GiB, load average {load} at the end; \
         {postgres}, fsync off"
    )
}

/// The part of a Markdown text under one heading of the second order, with its heading.
fn section(text: &str, heading: &str) -> Option<String> {
    let start = format!("## {heading}\n");
    let at = text.find(&start)?;
    let rest = &text[at + start.len()..];
    let end = rest.find("\n## ").unwrap_or(rest.len());
    Some(format!("{start}{}", rest[..end].trim_end()))
}

/// Makes RESULTS.md from every table that has been written, whoever wrote it. The proxy's benchmark writes its section
/// itself: that one stays as it is.
pub fn assemble(out: &Path) -> anyhow::Result<()> {
    let mut text = String::from(
        "# Benchmarks\n\nMade by `make bench`; each table names its command, machine, date and commit. Ratios are \
         what to compare: seconds depend on the machine.\n\n",
    );
    let results = out.join("results");
    let before = fs::read_to_string(out.join("RESULTS.md")).unwrap_or_default();
    if let Some(proxy) = section(&before, "proxy") {
        text.push_str(&proxy);
        text.push_str("\n\n");
    }
    let known = ["coverage", "ratio", "paper", "figure8", "growth", "ambiguity"];
    let mut names: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    let mut others: Vec<String> = fs::read_dir(&results)
        .context("no results")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".md").map(str::to_owned))
        .filter(|name| !known.contains(&name.as_str()))
        .collect();
    others.sort();
    names.extend(others);
    for name in names {
        if let Ok(table) = fs::read_to_string(results.join(format!("{name}.md"))) {
            text.push_str(table.trim_end());
            text.push_str("\n\n");
        }
    }
    fs::write(out.join("RESULTS.md"), text.trim_end().to_owned() + "\n").context("cannot write RESULTS.md")
}

/// The raw numbers of one judged run.
pub fn raw(
    what: &crate::record::Plan,
    recorded: &crate::record::Recorded,
    judged: &crate::judge::Judged,
) -> Value {
    json!({
        "workload": what.name, "level": what.level.name(), "clients": what.clients, "mode": what.mode.name(),
        "transactions": recorded.transactions, "refused": recorded.refused,
        "run_s": recorded.elapsed.as_secs_f64(), "backend_cpu_s": recorded.backend_cpu,
        "audit_cpu_s": judged.cpu, "audit_s": judged.elapsed.as_secs_f64(), "audit_peak_mib": judged.peak_mib,
        "checked": judged.checked(), "tiers": judged.tiers(), "violations": judged.violations(),
        "live_recorder_cpu_s": recorded.watched.recorder_cpu, "live_audit_cpu_s": recorded.watched.audit_cpu,
        "live_lag_s": recorded.watched.lag.as_secs_f64(), "live_shed": recorded.watched.shed,
        "reasons": judged.reasons(10),
    })
}
