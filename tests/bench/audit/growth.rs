//! Growth: ten thousand transactions and more; the cost of one must not depend on how many came before.
//!
//! Recorded histories where recording takes minutes at most, generated ones beyond. A generated history is made up and
//! judged in a process of its own, so that the memory is that of nobody else.

use crate::generated::{History, NAMES};
use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{memory_gib, percent, raw, short};
use crate::sheet::{Chapter, Row, Sheet};
use crate::{Bench, Forecast, measure};
use anyhow::Context;
use pgassay_audit::{Auditor, Settings};
use pgassay_rules::Level;
use pgassay_workloads::Knobs;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const CHAPTER: Chapter = Chapter {
    name: "growth",
    title: "Growth",
    about: "Eight clients at REPEATABLE READ. The audit's microseconds of CPU per transaction should be flat, and so \
            should the memory of `bank`, whose tables do not grow; `tpcc` adds rows with every order and every payment, \
            which the audit keeps as the server does. «recorded»: run on a server, then judged by `pgassay check` (one \
            warehouse with 5,000 items; peak memory). «generated»: a correct history that is made up while it is judged, \
            in a process of its own (memory at that moment, with the rows that the history itself keeps); each line is \
            the part of one run that came after the line before, without the load. The generated bank reads and changes \
            one balance per transaction. The generated TPC-C has the statements and the mix of the workload, two \
            warehouses for every client, 1,000 items and 30 customers per district. What making up a history costs is \
            measured apart.",
    header: &[
        "workload",
        "history",
        "transactions",
        "audit s",
        "audit CPU µs per transaction",
        "the history's own µs",
        "MiB",
        "ratio",
        "checked",
        "violations",
    ],
    keys: 3,
    unit: "µs per transaction",
    is_logarithmic: false,
    summary,
    forecast,
    run,
};

fn powers(bench: &Bench, largest: u32) -> RangeInclusive<u32> {
    match bench.is_smoke() {
        true => 2..=2,
        false => 4..=largest.max(4),
    }
}

/// Microseconds of a transaction, recorded and judged, and generated and judged.
const COSTS: [(&str, f64, f64); 2] = [("bank", 200.0, 10.0), ("tpcc", 3_000.0, 280.0)];

fn forecast(bench: &Bench) -> Forecast {
    let (recorded, generated) = (
        powers(bench, bench.args.growth),
        powers(bench, bench.args.generated),
    );
    let mut seconds = 0.0;
    for (_, record, generate) in COSTS.iter().filter(|(name, _, _)| bench.wants(name)) {
        for power in recorded.clone() {
            seconds += 5.0 + record * 10_f64.powi(power as i32) / 1e6;
        }
        seconds += 5.0 + generate * 10_f64.powi(*generated.end() as i32) / 1e6;
    }
    Forecast {
        what: format!(
            "recorded to 10^{}, generated to 10^{}",
            recorded.end(),
            generated.end()
        ),
        seconds,
    }
}

fn run(bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
    recorded(bench, sheet)?;
    for name in NAMES.into_iter().filter(|name| bench.wants(name)) {
        generated(bench, sheet, name)?;
    }
    Ok(())
}

fn recorded(bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
    let set_ups = [
        ("bank", Knobs::default()),
        ("tpcc", Knobs::default().scaled(0.05)),
    ];
    for (name, knobs) in set_ups.into_iter().filter(|(name, _)| bench.wants(name)) {
        for power in powers(bench, bench.args.growth) {
            let transactions = 10_u64.pow(power);
            let server = server()?;
            let plan = Plan::new(name, knobs.clone(), Level::RepeatableRead, 8, transactions);
            let recorded = record(bench, &server, &plan)?;
            drop(server);
            let judged = judge(&recorded.journal, None)?;
            let each = judged.cpu * 1e6 / recorded.transactions.max(1) as f64;
            eprintln!(
                "{name} {transactions}: {} µs per transaction, {} MiB",
                short(each),
                short(judged.peak_mib)
            );
            let cells = vec![
                name.to_owned(),
                "recorded".to_owned(),
                transactions.to_string(),
                short(judged.elapsed.as_secs_f64()),
                short(each),
                "–".to_owned(),
                short(judged.peak_mib),
                short(judged.cpu / recorded.backend_cpu.max(0.01)),
                percent(judged.checked()),
                judged.violations().to_string(),
            ];
            let bars = vec![(format!("{name} recorded 10^{power}"), each)];
            sheet.put(cells, bars, raw(&plan, &recorded, &judged))?;
            if bench.args.keep.is_none() {
                let _ = std::fs::remove_dir_all(&recorded.journal);
            }
        }
    }
    Ok(())
}

fn generated(bench: &Bench, sheet: &mut Sheet, name: &str) -> anyhow::Result<()> {
    let powers = powers(bench, bench.args.generated);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["generated", name])
        .args([powers.start().to_string(), powers.end().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process for a generated history")?;
    let out = child.stdout.take().context("no output")?;
    for line in BufReader::new(out).lines() {
        let told: Value =
            serde_json::from_str(&line?).context("a generated history told something else than JSON")?;
        let number = |key: &str| told.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        let (transactions, each) = (number("transactions"), number("audit_cpu_us_each"));
        eprintln!(
            "{name} generated {transactions}: {} µs per transaction, {} MiB, {} versions alive",
            short(each),
            short(number("resident_mib")),
            number("versions_alive")
        );
        let cells = vec![
            name.to_owned(),
            "generated".to_owned(),
            transactions.to_string(),
            short(number("seconds")),
            short(each),
            short(number("own_cpu_us_each")),
            short(number("resident_mib")),
            "–".to_owned(),
            percent(number("checked") / number("statements").max(1.0)),
            number("violations").to_string(),
        ];
        let power = transactions.log10().round();
        sheet.put(
            cells,
            vec![(format!("{name} generated 10^{power}"), each)],
            told.clone(),
        )?;
    }
    let status = child.wait()?;
    anyhow::ensure!(
        status.success(),
        "the generated history of {name} ended with {status}"
    );
    Ok(())
}

/// Makes up a history and judges it; prints a line of JSON for each power of ten. In: its name, the first power and the
/// last.
pub fn judge_generated(mut words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut word = || words.next().context("a name and two powers of ten are needed");
    let (name, first, last) = (word()?, word()?.parse::<u32>()?, word()?.parse::<u32>()?);
    let mut history = History::new(&name, 10_u64.pow(last)).context("there is no history of this name")?;
    let mut auditor = Auditor::new(Settings::default());
    let started = Instant::now();
    for record in history.load() {
        auditor.take(record);
    }
    let load = started.elapsed().as_secs_f64();
    let (loaded, mut done) = (measure::resident_mib().unwrap_or(0.0), 0);
    for power in first..=last {
        let part = judge_until(&mut auditor, &mut history, &mut done, 10_u64.pow(power));
        if power == last {
            auditor.finish();
        }
        let (summary, stats) = (auditor.summary(), auditor.stats());
        let line = json!({
            "workload": name, "history": "generated", "transactions": done, "seconds": part.seconds,
            "audit_cpu_us_each": part.audit_us, "own_cpu_us_each": part.own_us, "load_s": load,
            "loaded_mib": loaded, "resident_mib": measure::resident_mib().unwrap_or(0.0),
            "versions_alive": stats.versions_alive, "versions_collected": stats.versions_collected,
            "statements": summary.statements, "checked": summary.coverage.checked,
            "reasons": summary.coverage.reasons, "violations": summary.violations.len(), "machine_gib": memory_gib(),
        });
        println!("{line}");
    }
    Ok(())
}

/// What a part of a generated history cost.
struct Part {
    seconds: f64,
    audit_us: f64,
    own_us: f64,
}

fn judge_until(auditor: &mut Auditor, history: &mut History, done: &mut u64, until: u64) -> Part {
    let (started, cpu, before) = (Instant::now(), measure::cpu_of_this_thread(), *done);
    let mut own = Duration::ZERO;
    while *done < until {
        let making = Instant::now();
        let records = history.round();
        own += making.elapsed();
        *done += crate::generated::SESSIONS.min(until - *done);
        for record in records {
            auditor.take(record);
        }
    }
    let (all, count) = (started.elapsed(), (*done - before).max(1) as f64);
    // Whoever else uses the machine slows down both parts alike.
    let share = own.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    let each = (measure::cpu_of_this_thread() - cpu) * 1e6 / count;
    Part {
        seconds: (all - own).as_secs_f64(),
        audit_us: each * (1.0 - share),
        own_us: each * share,
    }
}

/// What ten times the largest history of TPC-C comes to, from its last two lines.
fn summary(rows: &[Row]) -> String {
    let tpcc: Vec<&Row> = rows
        .iter()
        .filter(|row| row.cells[..2] == ["tpcc", "generated"])
        .collect();
    let [.., before, last] = tpcc.as_slice() else {
        return String::new();
    };
    let of = |row: &Row, column: usize| row.number(column).unwrap_or(0.0);
    let (transactions, each) = (of(last, 2), of(last, 4) + of(last, 5));
    let grown = (of(last, 6) - of(before, 6)) / (transactions - of(before, 2)).max(1.0);
    let more = transactions * 9.0;
    let needed = (of(last, 6) + grown * more) / 1024.0;
    let held = last.raw.get("machine_gib").and_then(Value::as_f64).unwrap_or(0.0);
    let verdict = match needed > held {
        true => "so they were not run",
        false => "so they can be run",
    };
    format!(
        "The generated TPC-C grew by {} KiB per transaction between its last two lines: ten times as many transactions \
         come to about {} GiB and {} more minutes. The machine has {held} GiB, {verdict}.",
        short(grown * 1024.0),
        short(needed),
        short(each * more / 60e6)
    )
}
