//! What the proxy costs: pgbench through nothing, HAProxy, PgBouncer, a bare relay and pgassay, in interleaved rounds.
//!
//! `proxy.py` measures; here its numbers become rows.

use crate::sheet::{Chapter, Row, Sheet};
use crate::{Bench, Forecast};
use anyhow::Context;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

pub const CHAPTER: Chapter = Chapter {
    name: "proxy",
    title: "What the proxy costs",
    about: "pgbench (scale 10, fsync off), direct and through four proxies in interleaved rounds of one run, medians of the \
            rounds. pgassay records to a journal and does not judge; it and the bare relay (a relay on tokio that only \
            copies bytes) have one thread for every two processors. Throughput and latency of the proxies are ratios to \
            direct, whose own are per second and in microseconds; CPU is seconds of the proxy's process per 100,000 \
            queries; system calls were counted by strace. Goals are geometric means over all rows.",
    header: &[
        "what",
        "workload",
        "clients",
        "protocol",
        "direct",
        "HAProxy",
        "PgBouncer",
        "bare relay",
        "pgassay",
    ],
    keys: 4,
    unit: "× the bare relay's CPU",
    is_logarithmic: false,
    summary,
    forecast,
    run,
};

const TARGETS: [&str; 5] = ["direct", "haproxy", "pgbouncer", "bare relay", "pgassay"];
/// Names of what is measured, with the keys of the numbers.
const KINDS: [(&str, &str); 4] = [
    (THROUGHPUT, "tps"),
    ("median latency", "p50"),
    ("99th percentile", "p99"),
    (CPU, "cpu"),
];
const THROUGHPUT: &str = "throughput";
const CPU: &str = "CPU";
const CALLS: &str = "system calls per round trip";

/// The columns of PgBouncer, the bare relay and pgassay.
const PGBOUNCER: usize = 6;
const BARE: usize = 7;
const OURS: usize = 8;

fn sizes(bench: &Bench) -> (u64, u64, &'static str, u64) {
    match bench.is_smoke() {
        true => (1, 1, "1", 4),
        false => (bench.args.rounds, bench.args.seconds, "1,8,32", 12),
    }
}

fn forecast(bench: &Bench) -> Forecast {
    let (rounds, seconds, clients, rows) = sizes(bench);
    Forecast {
        what: format!("{rows} rows of five targets, {rounds} rounds of {seconds} s each, {clients} clients"),
        seconds: 20.0 + (rows * rounds * 5) as f64 * (seconds as f64 + 0.6) + 4.0 * 8.0,
    }
}

fn run(bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
    let (rounds, seconds, clients, _) = sizes(bench);
    let build = std::env::current_exe()?;
    let build = build.parent().context("a program lies in a directory")?;
    anyhow::ensure!(
        ["pgassay", "bare-relay"]
            .iter()
            .all(|name| build.join(name).exists()),
        "pgassay and bare-relay are not built"
    );
    let told = bench.dir.join("proxy.json");
    let status = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/proxy.py"))
        .args(["--rounds", &rounds.to_string(), "--seconds", &seconds.to_string()])
        .args(["--clients", clients, "--build"])
        .arg(build)
        .arg("--json")
        .arg(&told)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start proxy.py")?;
    anyhow::ensure!(status.success(), "proxy.py ended with {status}");
    let told: Value = serde_json::from_str(&std::fs::read_to_string(&told)?)?;
    for (kind, key) in KINDS {
        for row in told["rows"].as_array().into_iter().flatten() {
            put(sheet, kind, key, row)?;
        }
    }
    let calls = |target: &&str| told["system_calls"].get(*target).and_then(Value::as_f64);
    if TARGETS.iter().any(|target| calls(target).is_some()) {
        let mut cells = [CALLS, "select", "1", "prepared"].map(str::to_owned).to_vec();
        let counts = TARGETS.iter().map(calls);
        cells.extend(counts.map(|count| count.map_or("–".to_owned(), |count| format!("{count:.2}"))));
        sheet.put(cells, Vec::new(), told["system_calls"].clone())?;
    }
    Ok(())
}

/// One line of one kind of numbers.
fn put(sheet: &mut Sheet, kind: &str, key: &str, row: &Value) -> anyhow::Result<()> {
    let of = |target: &str| row["targets"].get(target)?.get(key)?.as_f64();
    let direct = of("direct").unwrap_or(0.0);
    let word = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
    let clients = row["clients"].to_string();
    let mut cells = vec![
        kind.to_owned(),
        word("workload"),
        clients.clone(),
        word("protocol"),
    ];
    cells.extend(TARGETS.map(|target| match (of(target), kind) {
        (None, _) => "–".to_owned(),
        (Some(_), CPU) if target == "direct" => "–".to_owned(),
        (Some(value), CPU) => format!("{value:.2}"),
        (Some(value), THROUGHPUT) if target == "direct" => format!("{value:.0} tps"),
        (Some(value), _) if target == "direct" => format!("{value:.0} µs"),
        (Some(value), _) => format!("{:.3}", value / direct.max(f64::MIN_POSITIVE)),
    }));
    let bars = match (kind, of("pgassay"), of("bare relay")) {
        (CPU, Some(ours), Some(bare)) => {
            let label = format!("{} {clients} {}", word("workload"), word("protocol"));
            vec![(label, ours / bare)]
        }
        _ => Vec::new(),
    };
    sheet.put(cells, bars, row["targets"].clone())
}

/// The geometric mean over the rows of a kind of what is ours, divided by what is another's.
fn mean(rows: &[Row], kind: &str, other: usize) -> Option<f64> {
    let ratios: Vec<f64> = rows
        .iter()
        .filter(|row| row.cells[0] == kind)
        .filter_map(|row| Some((row.number(OURS)? / row.number(other)?).ln()))
        .collect();
    (!ratios.is_empty()).then(|| (ratios.iter().sum::<f64>() / ratios.len() as f64).exp())
}

fn summary(rows: &[Row]) -> String {
    let calls = rows.iter().find(|row| row.cells[0] == CALLS);
    let calls = calls.and_then(|row| row.number(OURS));
    let goals = [
        ("at most 6.2 system calls per round trip", calls, 6.2),
        (
            "CPU per query at most 1.15 × the bare relay's",
            mean(rows, CPU, BARE),
            1.15,
        ),
        (
            "CPU per query at most PgBouncer's",
            mean(rows, CPU, PGBOUNCER),
            1.0,
        ),
        // The other way round: what is less is better.
        (
            "throughput at least 0.97 × the bare relay's",
            mean(rows, THROUGHPUT, BARE).map(|mean| -mean),
            -0.97,
        ),
    ];
    let lines = goals.iter().filter_map(|(goal, seen, limit)| {
        let seen = (*seen)?;
        let verdict = if seen <= *limit { "reached" } else { "**missed**" };
        Some(format!("| {goal} | {:.3} | {verdict} |", seen.abs()))
    });
    let lines: Vec<String> = lines.collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!(
            "| goal (recording on) | seen | |\n|---|---|---|\n{}",
            lines.join("\n")
        ),
    }
}
