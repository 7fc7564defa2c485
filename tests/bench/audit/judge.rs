//! Judges a journal with `pgassay check` in a process of its own, and measures that process.

use crate::measure;
use anyhow::Context;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub struct Judged {
    pub cpu: f64,
    pub elapsed: Duration,
    pub peak_mib: f64,
    pub summary: Value,
}

impl Judged {
    pub fn count(&self, pointer: &str) -> u64 {
        self.summary.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    pub fn violations(&self) -> usize {
        self.summary
            .get("violations")
            .and_then(Value::as_array)
            .map_or(0, Vec::len)
    }

    /// Share of the statements that were fully checked.
    pub fn checked(&self) -> f64 {
        let all: u64 = ["checked", "partial", "unchecked"]
            .iter()
            .map(|kind| self.count(&format!("/coverage/{kind}")))
            .sum();
        self.count("/coverage/checked") as f64 / all.max(1) as f64
    }

    /// Shares of the tiers: settled, candidates, solver.
    pub fn tiers(&self) -> [f64; 3] {
        let counts =
            ["settled", "candidates", "solver"].map(|tier| self.count(&format!("/tiers/{tier}")) as f64);
        let all = counts.iter().sum::<f64>().max(1.0);
        counts.map(|count| count / all)
    }

    /// The most frequent reasons for not checking, with their counts.
    pub fn reasons(&self, most: usize) -> Vec<String> {
        let Some(reasons) = self
            .summary
            .pointer("/coverage/reasons")
            .and_then(Value::as_object)
        else {
            return Vec::new();
        };
        let mut reasons: Vec<(&String, u64)> = reasons
            .iter()
            .map(|(reason, count)| (reason, count.as_u64().unwrap_or(0)))
            .collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons
            .into_iter()
            .take(most)
            .map(|(reason, count)| format!("{reason} ({count})"))
            .collect()
    }
}

pub fn judge(journal: &Path, claim: Option<&str>) -> anyhow::Result<Judged> {
    let started = Instant::now();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["pgassay", "check"])
        .arg(journal)
        .arg("--json")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(claim) = claim {
        command.args(["--claim", claim]);
    }
    let before = measure::cpu_of_ended_children(std::process::id());
    let mut check = command.spawn().context("cannot start pgassay check")?;
    let mut out = check.stdout.take().context("no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let mut peak_mib: f64 = 0.0;
    let status = loop {
        peak_mib = measure::peak_mib(check.id()).unwrap_or(0.0).max(peak_mib);
        if let Some(status) = check.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let elapsed = started.elapsed();
    let cpu = measure::cpu_of_ended_children(std::process::id()) - before;
    let text = reader
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    // 0 nothing wrong, 1 violation, 3 little coverage: each is a verdict.
    anyhow::ensure!(
        matches!(status.code(), Some(0 | 1 | 3)),
        "pgassay check ended with {status}"
    );
    let summary =
        serde_json::from_str(&text).context("pgassay check --json printed something else than JSON")?;
    Ok(Judged {
        cpu,
        elapsed,
        peak_mib,
        summary,
    })
}
