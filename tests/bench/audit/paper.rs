//! Table 1 and Figure 9 of «Checking Observational Correctness of Database Systems», on the same set-ups.
//!
//! Two clients, recorded once per level, then checked offline; 50,000 transactions each is the paper's size. The paper
//! counts how many transactions are checked within five minutes; we check them all and say how many that would be.

use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{percent, raw, short};
use crate::sheet::{Chapter, Row, Sheet};
use crate::{Bench, Forecast};
use pgassay_rules::Level;
use pgassay_workloads::Knobs;

/// Name, knobs, and the paper's figures at Serializable, SI and RC (0: the paper gives a curve, not a number).
fn set_ups() -> Vec<(&'static str, &'static str, Knobs, [u64; 3])> {
    let bank = || Knobs::default().set("accounts", 1_000.0);
    vec![
        ("Twitter", "twitter", Knobs::default(), [2_860, 2_810, 496]),
        ("RUBiS", "rubis", Knobs::default(), [451, 397, 311]),
        (
            "TPC-C",
            "tpcc",
            Knobs::default().set("tiny", 1.0),
            [445, 394, 121],
        ),
        ("bank, default", "bank", bank(), [0; 3]),
        (
            "bank, 0.2 % of the rows",
            "bank",
            bank().set("accessed", 0.002),
            [0; 3],
        ),
        (
            "bank, 50 % blind writes",
            "bank",
            bank().set("blind", 0.5),
            [0; 3],
        ),
        (
            "bank, 100 % blind writes",
            "bank",
            bank().set("blind", 1.0),
            [0; 3],
        ),
        (
            "bank, 50 % read-only",
            "bank",
            bank().set("read_only", 0.5),
            [11_500; 3],
        ),
        (
            "bank, 100 % read-only",
            "bank",
            bank().set("read_only", 1.0),
            [10_000; 3],
        ),
    ]
}

pub const CHAPTER: Chapter = Chapter {
    name: "paper",
    title: "The paper's Table 1 and Figure 9",
    about: "Two clients, recorded once, then checked offline on one machine (the paper: clusters of AMD EPYC 7763, \
            50,000 transactions of each client, five minutes per run; rows of 100,000 transactions are of that size). \
            «Per five minutes» is transactions ÷ seconds of the whole process `pgassay check` × 300. TPC-C is the \
            paper's tiny set-up; its journals hold many more transactions, which were rolled back and tried again: they \
            are judged, too, but not counted. The paper's numbers are those of its Table 1; for the bank it gives a \
            curve: about 11,500 transactions where half of them only read, 10,000 where all do.",
    header: &[
        "workload",
        "level",
        "transactions",
        "seconds",
        "peak MiB",
        "checked",
        "violations",
        "per five minutes",
        "the paper",
        "times as many",
    ],
    keys: 3,
    unit: "transactions per five minutes",
    is_logarithmic: true,
    summary,
    forecast,
    run,
};

const LEVELS: [Level; 3] = [Level::Serializable, Level::RepeatableRead, Level::ReadCommitted];

fn transactions(bench: &Bench) -> u64 {
    if bench.is_smoke() { 200 } else { bench.args.paper }
}

fn wanted(bench: &Bench) -> Vec<(&'static str, &'static str, Knobs, [u64; 3])> {
    let mut set_ups = set_ups();
    set_ups.retain(|(_, name, _, _)| bench.wants(name));
    if bench.is_smoke() {
        set_ups.retain(|(_, name, _, _)| *name == "tpcc");
    }
    set_ups
}

fn forecast(bench: &Bench) -> Forecast {
    let set_ups = wanted(bench);
    let levels = LEVELS.iter().filter(|level| bench.wants_level(**level)).count() as f64;
    let cost = |name: &str| if name == "tpcc" { 5.0 } else { 0.5 };
    let each = set_ups
        .iter()
        .map(|(_, name, _, _)| 2.5 + cost(name) * transactions(bench) as f64 / 1e3);
    Forecast {
        what: format!(
            "{} set-ups at {levels} levels, {} transactions each",
            set_ups.len(),
            transactions(bench)
        ),
        seconds: each.sum::<f64>() * levels,
    }
}

/// Thousands apart.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn summary(rows: &[Row]) -> String {
    let times = rows.iter().filter_map(|row| Some((row.number(9)?, row)));
    let Some((least, row)) = times.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return String::new();
    };
    let violations: f64 = rows.iter().filter_map(|row| row.number(6)).sum();
    format!(
        "At least {} times as many as the paper's ({}, {}, {} transactions). Violations: {violations}.",
        grouped(least),
        row.cells[0],
        row.cells[1],
        row.cells[2]
    )
}

fn run(bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
    let transactions = transactions(bench);
    for (label, name, knobs, figures) in wanted(bench) {
        for (level, figure) in LEVELS
            .into_iter()
            .zip(figures)
            .filter(|(level, _)| bench.wants_level(*level))
        {
            let server = server()?;
            let mut plan = Plan::new(name, knobs.clone(), level, 2, transactions);
            plan.about = label.chars().filter(char::is_ascii_alphanumeric).collect();
            let recorded = record(bench, &server, &plan)?;
            drop(server);
            let judged = judge(&recorded.journal, None)?;
            let seconds = judged.elapsed.as_secs_f64();
            let rate = recorded.transactions as f64 / seconds.max(1e-9) * 300.0;
            eprintln!(
                "{label:26} {:16} {} s, checked {}",
                level.name(),
                short(seconds),
                percent(judged.checked())
            );
            let times = match figure {
                0 => ["–".to_owned(), "–".to_owned()],
                _ => [grouped(figure as f64), grouped(rate / figure as f64)],
            };
            let mut cells = vec![
                label.to_owned(),
                level.name().to_owned(),
                transactions.to_string(),
                short(seconds),
                short(judged.peak_mib),
                percent(judged.checked()),
                judged.violations().to_string(),
                grouped(rate),
            ];
            cells.extend(times);
            let bars = vec![(format!("{label} {} {transactions}", level.name()), rate)];
            sheet.put(cells, bars, raw(&plan, &recorded, &judged))?;
            if bench.args.keep.is_none() {
                let _ = std::fs::remove_dir_all(&recorded.journal);
            }
        }
    }
    Ok(())
}
