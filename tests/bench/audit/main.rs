//! `bench-audit`: what the audit costs, beside PostgreSQL itself and beside the paper's figures.
//!
//! In: a throw-away PostgreSQL, the workloads, this build of pgassay. Out: tables row by row with their raw numbers
//! (JSON lines) and a plot each, under `tests/bench/results`, and `tests/bench/RESULTS.md` made from all of them.
//!
//! A run is recorded once; then `pgassay check` judges the journal in a process of its own, whose CPU time is compared
//! with what the server's backends used for the same transactions in the same run.
//! Nothing here asserts a time: numbers are for people.

mod measure;
mod relay;
mod watch;
mod record;
mod judge;
mod report;
mod plot;
mod sheet;
mod page;
mod proxy;
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
use report::duration;
use sheet::{Chapter, Sheet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Parser, Debug)]
struct Args {
    /// So short that only their working is shown; results go to a temporary directory, unless --out says where
    #[arg(long)]
    smoke: bool,
    /// Measure nothing: write the page anew from what was measured
    #[arg(long)]
    page: bool,
    /// Which tables: proxy, coverage, ratio, procedures, paper, figure8, growth, ambiguity (default: all)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds of every row of the proxy's table, and the seconds of each
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Transactions of each run of the ratio table
    #[arg(long, default_value_t = 4_000)]
    transactions: u64,
    /// The same, of the table of procedures
    #[arg(long, default_value_t = 2_000)]
    calls: u64,
    /// Transactions of each client of the coverage table
    #[arg(long, default_value_t = 200)]
    each: u64,
    /// The coverage table in all modes, and with every way in which the audit can come to know the tables
    #[arg(long)]
    variants: bool,
    /// Seed of the coverage table
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these workloads in the tables of coverage, ratio, procedures, growth and in the paper's
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Of these variants, only with tables that the audit came to know like this: seen, snapshot, catalog, learn, written, blind
    #[arg(long, value_delimiter = ',')]
    tables: Vec<String>,
    /// Only these modes: of the variants of the coverage table, and in the ratio table instead of prepared
    #[arg(long, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Only these levels in the tables of ratio and procedures and in the paper's
    #[arg(long, value_delimiter = ',')]
    levels: Vec<Level>,
    /// Numbers of clients in the tables of ratio and procedures
    #[arg(long, value_delimiter = ',', default_values_t = [8, 32])]
    clients: Vec<usize>,
    /// Largest power of ten of the growth table, for recorded histories
    #[arg(long, default_value_t = 4)]
    growth: u32,
    /// The same, for generated ones
    #[arg(long, default_value_t = 6)]
    generated: u32,
    /// Transactions of each run of the paper's table; the paper's own size is 100000
    #[arg(long, default_value_t = 20_000)]
    paper: u64,
    /// Where results are written (default: tests/bench)
    #[arg(long)]
    out: Option<PathBuf>,
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

/// All tables, in the order of the page.
const CHAPTERS: &[&Chapter] = &[
    &proxy::CHAPTER,
    &coverage::CHAPTER,
    &ratio::CHAPTER,
    &ratio::PROCEDURES,
    &paper::CHAPTER,
    &figure8::CHAPTER,
    &growth::CHAPTER,
    &ambiguity::CHAPTER,
];

/// What a table will do, and about how many seconds that takes on a machine with two processors.
pub struct Forecast {
    what: String,
    seconds: f64,
}

fn main() -> ExitCode {
    // The program under measurement is this same build: `bench-audit pgassay check …` is `pgassay check …`.
    let mut words = std::env::args();
    if words.nth(1).as_deref() == Some("pgassay") {
        let words = std::iter::once("pgassay".to_owned()).chain(words);
        return pgassay::cli::main(pgassay::cli::Cli::parse_from(words));
    }
    let result = match std::env::args().nth(1).as_deref() {
        // A history that is made up and judged in a process of its own.
        Some("generated") => growth::judge_generated(std::env::args().skip(2)),
        _ => run(Args::parse()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-audit: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    for name in &args.only {
        let known: Vec<&str> = CHAPTERS.iter().map(|chapter| chapter.name).collect();
        anyhow::ensure!(
            known.contains(&name.as_str()),
            "there is no table «{name}»; known: {}",
            known.join(", ")
        );
    }
    for name in args.workloads.iter().filter(|name| *name != "pgbench") {
        pgassay_workloads::by_name(name, &pgassay_workloads::Knobs::default())?;
    }
    let temporary = tempfile::tempdir()?;
    let dir = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let out = match (&args.out, args.smoke) {
        (Some(out), _) => out.clone(),
        (None, true) => temporary.path().join("out"),
        (None, false) => PathBuf::from("tests/bench"),
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
    match bench.args.page {
        true => page::write(&bench.out),
        false => make(&bench),
    }
}

/// Table by table; the page is written anew after each.
fn make(bench: &Bench) -> anyhow::Result<()> {
    let results = bench.out.join("results");
    let only = &bench.args.only;
    let wanted = |chapter: &&&Chapter| only.is_empty() || only.iter().any(|only| only == chapter.name);
    let chapters: Vec<&Chapter> = CHAPTERS.iter().filter(wanted).copied().collect();
    let forecast: f64 = chapters
        .iter()
        .map(|chapter| (chapter.forecast)(bench).seconds)
        .sum();
    eprintln!("{} tables, about {}", chapters.len(), duration(forecast));
    let mut whole = match only.is_empty() {
        true => Some(page::Whole::begin(&results, &command(None))?),
        false => None,
    };
    let (mut times, mut failed) = (Vec::new(), Vec::new());
    for chapter in chapters {
        let forecast = (chapter.forecast)(bench);
        eprintln!(
            "== {}: {}, about {}",
            chapter.name,
            forecast.what,
            duration(forecast.seconds)
        );
        let started = Instant::now();
        let mut sheet = Sheet::open(&results, chapter)?;
        sheet.begin(&command(Some(chapter.name)))?;
        let made = (chapter.run)(bench, &mut sheet);
        let seconds = started.elapsed().as_secs_f64();
        match made {
            Ok(()) => {
                sheet.end(seconds)?;
                println!("{}", sheet.markdown());
                if let Some(whole) = &mut whole {
                    whole.took(chapter.name, seconds)?;
                }
            }
            Err(error) => {
                eprintln!("bench-audit: {}: {error:#}", chapter.name);
                failed.push(chapter.name);
            }
        }
        page::write(&bench.out)?;
        times.push(format!("{} {}", chapter.name, duration(seconds)));
    }
    eprintln!("took: {}", times.join(", "));
    eprintln!("written: {}", bench.out.join("RESULTS.md").display());
    // One table that cannot be made is no reason to do without the others.
    anyhow::ensure!(failed.is_empty(), "not made to the end: {}", failed.join(", "));
    Ok(())
}

/// What to type for this run, or for one table of it; directories are everybody's own.
fn command(only: Option<&str>) -> String {
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    for at in 1..given.len() {
        if matches!(given[at - 1].as_str(), "--keep" | "--out") {
            given[at] = "DIRECTORY".to_owned();
        }
    }
    if let Some(only) = only {
        if let Some(at) = given.iter().position(|word| word == "--only") {
            given.drain(at..(at + 2).min(given.len()));
        }
        given.retain(|word| !word.starts_with("--only="));
        given.splice(0..0, ["--only".to_owned(), only.to_owned()]);
    }
    match given.as_slice() {
        [] => "make bench".to_owned(),
        given => format!("make bench ARGS=\"{}\"", given.join(" ")),
    }
}

impl Bench {
    fn is_smoke(&self) -> bool {
        self.args.smoke
    }
}
