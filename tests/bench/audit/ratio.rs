//! The audit's CPU beside the server's own: every workload, every level, few and many clients.

use crate::Bench;
use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{Plot, Table, percent, raw, short};
use pgassay_rules::Level;
use pgassay_workloads::{CATALOGUE, Knobs, Mode, by_name};

pub fn run(bench: &Bench) -> anyhow::Result<Table> {
    let mut levels = vec![Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];
    levels.retain(|level| bench.wants_level(*level));
    if bench.is_smoke() {
        levels.truncate(1);
    }
    let mut names = vec!["pgbench"];
    names.extend(CATALOGUE.iter().map(|(name, _, _)| *name));
    let (clients, transactions) = if bench.is_smoke() {
        (vec![4], 200)
    } else {
        (bench.args.clients.clone(), bench.args.transactions)
    };
    let modes = match bench.args.modes.as_slice() {
        [] => vec![Mode::Prepared],
        modes => modes.to_vec(),
    };
    let mut table = Table {
        title: "What the audit costs, beside PostgreSQL itself".to_owned(),
        about: "CPU seconds of `pgassay check` on the recorded journal, divided by the CPU seconds that PostgreSQL's \
                backends used for the same transactions in the same run. The check includes reading the journal and \
                the initial contents of the tables. «live» is the same for the audit's own thread inside the proxy, \
                while the run went on; «lag» is the longest that a record then waited for its verdict, all processes \
                sharing this machine. Goal: at most 0.25."
            .to_owned(),
        command: "make bench-audit".to_owned(),
        header: vec![
            "workload", "level", "mode", "clients", "transactions", "PostgreSQL CPU s", "audit CPU s", "ratio", "live", "lag ms",
            "shed", "checked", "settled", "candidates", "solver", "violations", "peak MiB",
        ],
        rows: Vec::new(),
        raw: Vec::new(),
        plot: Plot { unit: "× PostgreSQL".to_owned(), ..Plot::default() },
    };
    for name in names {
        if !bench.wants(name) {
            continue;
        }
        let runs = levels.iter().flat_map(|level| {
            let modes = modes.iter().filter(|mode| has_mode(name, **mode));
            modes.map(move |mode| (*level, *mode))
        });
        for (level, mode) in runs {
            for clients in &clients {
                // A server of its own for each run: no run pays for another's dead rows.
                let server = server()?;
                let mut plan = Plan::new(name, knobs(name), level, *clients, transactions);
                plan.mode = mode;
                plan.audited = true;
                let recorded = record(bench, &server, &plan)?;
                drop(server);
                let judged = judge(&recorded.journal, None)?;
                let ratio = judged.cpu / recorded.backend_cpu.max(0.01);
                let tiers = judged.tiers();
                eprintln!(
                    "{name:12} {:16} {:10} {clients:3} clients: ratio {}, checked {}, {} violations; {}",
                    level.name(),
                    mode.name(),
                    short(ratio),
                    percent(judged.checked()),
                    judged.violations(),
                    judged.reasons(3).join("; ")
                );
                table.rows.push(vec![
                    name.to_owned(),
                    level.name().to_owned(),
                    mode.name().to_owned(),
                    clients.to_string(),
                    recorded.transactions.to_string(),
                    short(recorded.backend_cpu),
                    short(judged.cpu),
                    short(ratio),
                    short(recorded.watched.audit_cpu / recorded.backend_cpu.max(0.01)),
                    recorded.watched.lag.as_millis().to_string(),
                    recorded.watched.shed.to_string(),
                    percent(judged.checked()),
                    percent(tiers[0]),
                    percent(tiers[1]),
                    percent(tiers[2]),
                    judged.violations().to_string(),
                    short(judged.peak_mib),
                ]);
                table.raw.push(raw(&plan, &recorded, &judged));
                table
                    .plot
                    .bars
                    .push((format!("{name} {} {mode} {clients}", level.name()), ratio));
                if bench.args.keep.is_none() {
                    let _ = std::fs::remove_dir_all(&recorded.journal);
                }
            }
        }
    }
    Ok(table)
}

/// pgbench sends what it sends; procedures are for those that have them.
fn has_mode(name: &str, mode: Mode) -> bool {
    match mode {
        Mode::Prepared => true,
        Mode::Procedures => by_name(name, &Knobs::default()).is_ok_and(|workload| workload.has_procedures()),
        Mode::Simple | Mode::Extended => name != "pgbench",
    }
}

/// The usual sizes; TPC-C without its long population.
pub fn knobs(name: &str) -> Knobs {
    match name {
        "tpcc" => Knobs::default().scaled(0.05),
        _ => Knobs::default(),
    }
}
