//! Table 1 and Figure 9 of «Checking Observational Correctness of Database Systems», on the same set-ups.
//!
//! Two clients with 50,000 transactions each, recorded once per level, then checked offline. The paper counts how
//! many transactions are checked within five minutes; we check them all and say how many that would be.

use crate::Bench;
use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{Plot, Table, percent, raw, short};
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

pub fn run(bench: &Bench) -> anyhow::Result<Table> {
    let transactions = if bench.is_smoke() { 200 } else { bench.args.paper };
    let mut table = Table {
        title: "The paper's Table 1 and Figure 9".to_owned(),
        about: format!(
            "Two clients, {transactions} transactions in all, recorded once, then checked offline on one machine (the \
             paper: clusters of AMD EPYC 7763, five minutes per run). «Per five minutes» is transactions ÷ seconds \
             of `pgassay check` × 300. The paper's numbers are those of its Table 1; for the bank about 10⁴ at best \
             (all transactions read-only)."
        ),
        command: "make bench-audit ARGS=\"--only paper\"".to_owned(),
        header: vec![
            "workload",
            "level",
            "transactions",
            "seconds",
            "per five minutes",
            "the paper",
            "times",
            "checked",
            "violations",
        ],
        rows: Vec::new(),
        raw: Vec::new(),
        plot: Plot {
            unit: "transactions per five minutes".to_owned(),
            is_logarithmic: true,
            ..Plot::default()
        },
    };
    let mut set_ups = set_ups();
    set_ups.retain(|(_, name, _, _)| bench.wants(name));
    if bench.is_smoke() {
        set_ups.retain(|(_, name, _, _)| *name == "tpcc");
    }
    for (label, name, knobs, figures) in set_ups {
        for (level, figure) in [Level::Serializable, Level::RepeatableRead, Level::ReadCommitted]
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
            table.rows.push(vec![
                label.to_owned(),
                level.name().to_owned(),
                recorded.transactions.to_string(),
                short(seconds),
                format!("{rate:.0}"),
                if figure > 0 {
                    figure.to_string()
                } else {
                    "–".to_owned()
                },
                if figure > 0 {
                    short(rate / figure as f64)
                } else {
                    "–".to_owned()
                },
                percent(judged.checked()),
                judged.violations().to_string(),
            ]);
            table.raw.push(raw(&plan, &recorded, &judged));
            table.plot.bars.push((format!("{label} {}", level.name()), rate));
            if bench.args.keep.is_none() {
                let _ = std::fs::remove_dir_all(&recorded.journal);
            }
        }
    }
    Ok(table)
}
