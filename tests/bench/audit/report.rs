//! Numbers, durations and the machine, as people read them.

use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::sync::OnceLock;

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

/// Seconds, or minutes and seconds.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes => format!("{minutes} min {} s", seconds % 60),
    }
}

/// Now, in UTC.
pub fn date() -> String {
    said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()
}

/// The commit that was measured; with a plus if the sources were changed since.
pub fn commit() -> &'static str {
    static COMMIT: OnceLock<String> = OnceLock::new();
    COMMIT.get_or_init(|| {
        let Some(commit) = said("git", &["rev-parse", "--short", "HEAD"]) else {
            return "unknown".to_owned();
        };
        let sources = [
            "status",
            "--porcelain",
            "--",
            ":/",
            ":!/tests/bench/results",
            ":!/tests/bench/*.md",
        ];
        let is_changed = said("git", &sources).is_none_or(|changes| !changes.is_empty());
        commit + if is_changed { "+" } else { "" }
    })
}

/// What a program prints, if it succeeds.
fn said(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// How much memory the machine has.
pub fn memory_gib() -> u64 {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1_048_576
}

/// Where: a number without this is worth nothing.
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
    let memory = memory_gib();
    let postgres = pgassay::throwaway::find_bin()
        .ok()
        .and_then(|bin| said(bin.join("postgres").to_str()?, &["--version"]))
        .unwrap_or_else(|| "PostgreSQL ?".to_owned());
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
        "{profile}; {model}, {cores} processors, {memory} GiB, load average {load} at the end; \
         {postgres}, fsync off"
    )
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
