//! `bench-audit`: what the audit costs, beside PostgreSQL itself and beside the paper's figures.
//!
//! In: a throw-away PostgreSQL, the workloads, this build of pgassay. Out: Markdown tables with their raw numbers
//! (JSON lines) and a plot each, under `tests/bench/results`, and `tests/bench/RESULTS.md` made from all of them.
//!
//! A run is recorded once, without audit; then `pgassay check` judges the journal in a process of its own, whose
//! CPU time is compared with what the server's backends used for the same transactions in the same run.
//! Nothing here asserts a time: numbers are for people.

mod measure;
mod relay;
mod watch;
mod record;
mod judge;
mod report;
mod coverage;
mod ratio;
mod paper;
mod figure8;
mod generated;
mod growth;
mod ambiguity;

use clap::Parser;
use pgassay_rules::Level;
use pgassay_workloads::Mode;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser, Debug)]
struct Args {
    /// So short that only their working is shown; results go to a temporary directory
    #[arg(long)]
    smoke: bool,
    /// Which tables: coverage, ratio, paper, figure8, growth, ambiguity (default: all)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Transactions of each run of the ratio table
    #[arg(long, default_value_t = 10_000)]
    transactions: u64,
    /// Transactions of each client of the coverage table
    #[arg(long, default_value_t = 200)]
    each: u64,
    /// The coverage table with all levels, in one mode
    #[arg(long)]
    quick: bool,
    /// Seed of the coverage table
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these workloads in the coverage, ratio and paper's tables
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Only with tables that the audit came to know like this in the coverage table: seen, snapshot, catalog, learn, written, blind
    #[arg(long, value_delimiter = ',')]
    tables: Vec<String>,
    /// Only these modes in the coverage and ratio tables (default: all there, prepared here)
    #[arg(long, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Only these levels in the ratio and paper's tables
    #[arg(long, value_delimiter = ',')]
    levels: Vec<Level>,
    /// Numbers of clients in the ratio table
    #[arg(long, value_delimiter = ',', default_values_t = [8, 32])]
    clients: Vec<usize>,
    /// Largest power of ten of the growth table, for recorded histories
    #[arg(long, default_value_t = 5)]
    growth: u32,
    /// The same, for generated ones
    #[arg(long, default_value_t = 6)]
    generated: u32,
    /// Transactions of each run of the paper's table
    #[arg(long, default_value_t = 100_000)]
    paper: u64,
    /// Where results are written
    #[arg(long, default_value = "tests/bench")]
    out: PathBuf,
    /// Keep the journals in this directory; runs that are there already are judged again, not recorded again
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// What every table needs.
pub struct Bench {
    args: Args,
    dir: PathBuf,
    out: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn wants(&self, workload: &str) -> bool {
        let wanted = &self.args.workloads;
        wanted.is_empty() || wanted.iter().any(|wanted| wanted == workload)
    }

    fn wants_level(&self, level: Level) -> bool {
        self.args.levels.is_empty() || self.args.levels.contains(&level)
    }
}

const TABLES: &[(&str, fn(&Bench) -> anyhow::Result<report::Table>)] = &[
    ("coverage", coverage::run),
    ("ratio", ratio::run),
    ("paper", paper::run),
    ("figure8", figure8::run),
    ("growth", growth::run),
    ("ambiguity", ambiguity::run),
];

fn main() -> ExitCode {
    // The program under measurement is this same build: `bench-audit pgassay check …` is `pgassay check …`.
    let mut words = std::env::args();
    if words.nth(1).as_deref() == Some("pgassay") {
        let words = std::iter::once("pgassay".to_owned()).chain(words);
        return pgassay::cli::main(pgassay::cli::Cli::parse_from(words));
    }
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-audit: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    for name in &args.only {
        let known: Vec<&str> = TABLES.iter().map(|(known, _)| *known).collect();
        anyhow::ensure!(
            known.contains(&name.as_str()),
            "there is no table «{name}»; known: {}",
            known.join(", ")
        );
    }
    let temporary = tempfile::tempdir()?;
    let dir = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let out = if args.smoke {
        temporary.path().join("out")
    } else {
        args.out.clone()
    };
    std::fs::create_dir_all(&dir)?;
    std::fs::create_dir_all(out.join("results"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bench = Bench {
        args,
        dir,
        out,
        runtime,
    };
    for (name, make) in TABLES {
        if !bench.args.only.is_empty() && !bench.args.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("== {name}");
        let table = make(&bench)?;
        table.write(&bench.out.join("results"), name)?;
        println!("{}", table.markdown());
    }
    report::assemble(&bench.out)?;
    eprintln!("written: {}", bench.out.join("RESULTS.md").display());
    Ok(())
}

impl Bench {
    fn is_smoke(&self) -> bool {
        self.args.smoke
    }
}
