//! Growth: ten thousand transactions and more; the cost of one must not depend on how many came before.
//!
//! Recorded histories where recording takes minutes at most, generated ones beyond.

use crate::generated::History;
use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{Plot, Table, percent, raw, short};
use crate::{Bench, measure};
use pgassay_audit::{Auditor, Settings};
use pgassay_rules::Level;
use pgassay_workloads::Knobs;
use serde_json::json;
use std::time::Instant;

/// Statements of a generated transaction.
const STATEMENTS: u64 = 4;

pub fn run(bench: &Bench) -> anyhow::Result<Table> {
    let mut table = Table {
        title: "Growth".to_owned(),
        about: "Eight clients at REPEATABLE READ. The audit's microseconds of CPU per transaction should be flat, and \
                so should the memory of `bank`, whose tables do not grow; `tpcc` adds rows with every order, which \
                the audit keeps as the server does. «recorded»: run on a server, then judged by `pgassay check`. \
                «generated»: a correct history of transfers made up while it is judged, in one process; each line is \
                the part of one run that came after the line before."
            .to_owned(),
        command: "make bench-audit ARGS=\"--only growth\"".to_owned(),
        header: vec![
            "workload", "history", "transactions", "audit s", "audit CPU µs per transaction", "resident MiB", "ratio",
            "checked", "violations",
        ],
        rows: Vec::new(),
        raw: Vec::new(),
        plot: Plot { unit: "µs per transaction".to_owned(), ..Plot::default() },
    };
    recorded(bench, &mut table)?;
    generated(bench, &mut table)?;
    Ok(table)
}

fn recorded(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let powers = if bench.is_smoke() {
        2..=2
    } else {
        4..=bench.args.growth.max(4)
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
                "recorded".to_owned(),
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
    Ok(())
}

fn generated(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let powers = if bench.is_smoke() {
        2..=2
    } else {
        4..=bench.args.generated.max(4)
    };
    let mut auditor = Auditor::new(Settings::default());
    let mut history = History::new(10_u64.pow(*powers.end()));
    let mut done = 0;
    for power in powers {
        let until = 10_u64.pow(power);
        let (started, cpu) = (Instant::now(), measure::cpu_of_this_thread());
        while auditor.stats().judged < until * STATEMENTS {
            let mut over = true;
            for record in history.by_ref().take(2_000) {
                over = false;
                auditor.take(record);
            }
            if over {
                auditor.finish();
                break;
            }
        }
        let count = auditor.summary().transactions.saturating_sub(done);
        done += count;
        let each = (measure::cpu_of_this_thread() - cpu) * 1e6 / count.max(1) as f64;
        let summary = auditor.summary();
        let (stats, resident) = (auditor.stats(), measure::resident_mib().unwrap_or(0.0));
        let all = summary.statements.max(1) as f64;
        eprintln!(
            "generated 10^{power}: {} µs per transaction, {} MiB, {} versions alive",
            short(each),
            short(resident),
            stats.versions_alive
        );
        table.rows.push(vec![
            "bank".to_owned(),
            "generated".to_owned(),
            format!("{done} ({count} more)"),
            short(started.elapsed().as_secs_f64()),
            short(each),
            short(resident),
            "–".to_owned(),
            percent(summary.coverage.checked as f64 / all),
            summary.violations.len().to_string(),
        ]);
        table.raw.push(json!({
            "workload": "generated bank", "transactions": done, "audit_cpu_us_each": each,
            "resident_mib": resident, "versions_alive": stats.versions_alive,
            "versions_collected": stats.versions_collected, "violations": summary.violations.len(),
        }));
        table.plot.bars.push((format!("generated 10^{power}"), each));
    }
    Ok(())
}
