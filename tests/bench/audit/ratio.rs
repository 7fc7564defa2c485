//! The audit's CPU beside the server's own: every workload, every level, few and many clients.

use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{percent, raw, short};
use crate::sheet::{Chapter, Row, Sheet};
use crate::{Bench, Forecast};
use pgassay_rules::Level;
use pgassay_workloads::{CATALOGUE, Knobs, Mode, by_name};

const HEADER: &[&str] = &[
    "workload",
    "level",
    "mode",
    "clients",
    "transactions",
    "PostgreSQL CPU s",
    "audit CPU s",
    "ratio",
    "live",
    "lag ms",
    "shed",
    "checked",
    "settled",
    "candidates",
    "solver",
    "violations",
    "peak MiB",
];

/// What the audit may cost.
const GOAL: f64 = 0.25;

pub const CHAPTER: Chapter = Chapter {
    name: "ratio",
    title: "What the audit costs, beside PostgreSQL itself",
    about: "CPU seconds of `pgassay check` on the recorded journal, divided by the CPU seconds that PostgreSQL's \
            backends used for the same transactions in the same run. The check includes reading the journal and the \
            initial contents of the tables. «live» is the same for the audit's own thread inside the proxy, while the \
            run went on; «lag» is the longest that a record then waited for its verdict, all processes sharing this \
            machine. Goal: at most 0.25.",
    header: HEADER,
    keys: 4,
    unit: "× PostgreSQL",
    is_logarithmic: false,
    summary,
    forecast: |bench| bench.ratio().forecast(),
    run: |bench, sheet| bench.ratio().run(bench, sheet),
};

pub const PROCEDURES: Chapter = Chapter {
    name: "procedures",
    title: "What the audit costs where procedures are called",
    about: "The workloads that can be called as stored procedures, one call a transaction (new orders of TPC-C in a \
            block); the columns are those of the table before. A call of TPC-C tells little of what it read, and does \
            what five to fifty statements do.",
    header: HEADER,
    keys: 4,
    unit: "× PostgreSQL",
    is_logarithmic: false,
    summary,
    forecast: |bench| bench.procedures().forecast(),
    run: |bench, sheet| bench.procedures().run(bench, sheet),
};

/// Which runs a table is made of.
struct Runs {
    names: Vec<&'static str>,
    levels: Vec<Level>,
    modes: Vec<Mode>,
    clients: Vec<usize>,
    transactions: u64,
}

impl Bench {
    fn ratio(&self) -> Runs {
        let modes = match self.args.modes.as_slice() {
            [] => vec![Mode::Prepared],
            modes => modes.to_vec(),
        };
        self.runs(modes, self.args.transactions)
    }

    fn procedures(&self) -> Runs {
        let mut runs = self.runs(vec![Mode::Procedures], self.args.calls);
        runs.names.retain(|name| has_mode(name, Mode::Procedures));
        runs
    }

    fn runs(&self, modes: Vec<Mode>, transactions: u64) -> Runs {
        let mut levels = vec![Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];
        levels.retain(|level| self.wants_level(*level));
        let mut names = vec!["pgbench"];
        names.extend(CATALOGUE.iter().map(|(name, _, _)| *name));
        names.retain(|name| self.wants(name));
        let (mut clients, mut transactions) = (self.args.clients.clone(), transactions);
        if self.is_smoke() {
            levels.truncate(1);
            (clients, transactions) = (vec![4], 200);
        }
        Runs {
            names,
            levels,
            modes,
            clients,
            transactions,
        }
    }
}

impl Runs {
    /// A server for each run, and then milliseconds per transaction, with those of its verdict.
    fn forecast(&self) -> Forecast {
        let each = self.levels.len() * self.modes.len() * self.clients.len();
        let cost = |name: &&str| match *name {
            "tpcc" => 3.8,
            "pgbench" => 3.1,
            _ => 0.5,
        };
        let names = self.names.iter();
        let seconds: f64 = names
            .map(|name| 2.5 + cost(name) * self.transactions as f64 / 1e3)
            .sum();
        Forecast {
            what: format!(
                "{} runs of {} transactions (workloads: {})",
                each * self.names.len(),
                self.transactions,
                self.names.join(", ")
            ),
            seconds: seconds * each as f64,
        }
    }

    fn run(&self, bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
        for name in self.names.iter().copied() {
            for level in self.levels.iter().copied() {
                let modes = self.modes.iter().filter(|mode| has_mode(name, **mode));
                for mode in modes.copied() {
                    for clients in self.clients.iter().copied() {
                        let mut plan = Plan::new(name, knobs(name), level, clients, self.transactions);
                        plan.mode = mode;
                        plan.audited = true;
                        measure(bench, sheet, &plan)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn measure(bench: &Bench, sheet: &mut Sheet, plan: &Plan) -> anyhow::Result<()> {
    // A server of its own for each run: no run pays for another's dead rows.
    let server = server()?;
    let recorded = record(bench, &server, plan)?;
    drop(server);
    let judged = judge(&recorded.journal, None)?;
    let ratio = judged.cpu / recorded.backend_cpu.max(0.01);
    let tiers = judged.tiers();
    let (name, level, mode, clients) = (&plan.name, plan.level.name(), plan.mode.name(), plan.clients);
    eprintln!(
        "{name:12} {level:16} {mode:10} {clients:3} clients: ratio {}, checked {}, {} violations; {}",
        short(ratio),
        percent(judged.checked()),
        judged.violations(),
        judged.reasons(3).join("; ")
    );
    let cells = vec![
        name.clone(),
        level.to_owned(),
        mode.to_owned(),
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
    ];
    let bars = vec![(format!("{name} {level} {mode} {clients}"), ratio)];
    sheet.put(cells, bars, raw(plan, &recorded, &judged))?;
    if bench.args.keep.is_none() {
        let _ = std::fs::remove_dir_all(&recorded.journal);
    }
    Ok(())
}

fn summary(rows: &[Row]) -> String {
    let mut ratios: Vec<(f64, String)> = rows
        .iter()
        .filter_map(|row| Some((row.number(7)?, row.cells[..4].join(" "))))
        .collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(median), Some((largest, whose))) = (ratios.get(ratios.len() / 2), ratios.last()) else {
        return String::new();
    };
    let reached = ratios.iter().filter(|(ratio, _)| *ratio <= GOAL).count();
    let violations: f64 = rows.iter().filter_map(|row| row.number(15)).sum();
    let checked = rows.iter().filter_map(|row| row.number(11)).fold(100.0, f64::min);
    format!(
        "Of {} rows {reached} are at most {GOAL}; the median is {}, the largest {} ({whose} clients). Violations: \
         {violations}. Checked, at least: {checked:.1} %.",
        ratios.len(),
        short(median.0),
        short(*largest)
    )
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
