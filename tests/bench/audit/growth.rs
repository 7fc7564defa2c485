//! Growth: ten thousand to a million transactions; the cost of one must not depend on how many came before.

use crate::Bench;
use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{Plot, Table, percent, raw, short};
use pgassay_rules::Level;
use pgassay_workloads::Knobs;

pub fn run(bench: &Bench) -> anyhow::Result<Table> {
    let powers = if bench.is_smoke() {
        2..=2
    } else {
        4..=bench.args.growth.max(4)
    };
    let mut table = Table {
        title: "Growth".to_owned(),
        about: "Eight clients at REPEATABLE READ. The audit's microseconds of CPU per transaction should be flat, and \
                so should its memory."
            .to_owned(),
        command: "make bench-audit ARGS=\"--only growth\"".to_owned(),
        header: vec![
            "workload", "transactions", "audit s", "audit CPU µs per transaction", "peak MiB", "ratio to PostgreSQL",
            "checked", "violations",
        ],
        rows: Vec::new(),
        raw: Vec::new(),
        plot: Plot { unit: "µs per transaction".to_owned(), ..Plot::default() },
    };
    for (name, knobs) in [
        ("bank", Knobs::default()),
        ("tpcc", Knobs::default().scaled(0.05)),
    ] {
        for power in powers.clone() {
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
            table.rows.push(vec![
                name.to_owned(),
                recorded.transactions.to_string(),
                short(judged.elapsed.as_secs_f64()),
                short(each),
                short(judged.peak_mib),
                short(judged.cpu / recorded.backend_cpu.max(0.01)),
                percent(judged.checked()),
                judged.violations().to_string(),
            ]);
            table.raw.push(raw(&plan, &recorded, &judged));
            table.plot.bars.push((format!("{name} 10^{power}"), each));
            if bench.args.keep.is_none() {
                let _ = std::fs::remove_dir_all(&recorded.journal);
            }
        }
    }
    Ok(table)
}
