//! `pgassay workload`: drive a database with a built-in workload.
//!
//! In: a workload by name and the address of a server or of the proxy before it.
//! Out: the workload's traffic, a progress bar while a person watches, a summary, its consistency checks.

use crate::cli::Usage;
use crate::config::Config;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use pgassay_rules::Level;
use pgassay_workloads::{CATALOGUE, Knobs, Length, Mode, Options, Progress, Summary, Workload};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    pgassay workload --list\n  \
    pgassay workload bank --target postgresql://postgres@127.0.0.1:6432/postgres --clients 8 --duration 30s\n  \
    pgassay workload tpcc --target \"$URI\" --transactions 1000 --level serializable --knob tiny=1 --mode procedures")]
pub struct Args {
    /// Which workload; --list shows them with their knobs
    #[arg(required_unless_present = "list")]
    pub name: Option<String>,
    /// Show the workloads and their knobs
    #[arg(long)]
    pub list: bool,
    /// The server, or the proxy before it: a URI or a connection string
    #[arg(
        long,
        env = "PGASSAY_TARGET",
        value_name = "URI",
        required_unless_present = "list"
    )]
    pub target: Option<String>,
    /// Sessions that work at the same time
    #[arg(long, default_value_t = 4)]
    pub clients: usize,
    /// How long to run: 30s, 5m, 1h, 500ms
    #[arg(long, value_name = "D", value_parser = duration, conflicts_with = "transactions")]
    pub duration: Option<Duration>,
    /// How many transactions each client runs
    #[arg(long, value_name = "N")]
    pub transactions: Option<u64>,
    /// Isolation level: read-committed, repeatable-read, serializable
    #[arg(long, default_value = "read-committed")]
    pub level: Level,
    /// The same seed gives the same transactions
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Make the data so many times larger or smaller than usual (tpcc: warehouses)
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// How statements are sent: simple, extended, prepared, procedures
    #[arg(long, default_value = "extended")]
    pub mode: Mode,
    /// Turn a knob of the workload, e.g. --knob read_only=20%
    #[arg(long = "knob", value_name = "KEY=VALUE")]
    pub knobs: Vec<String>,
    /// Drop and create the workload's tables even if there are tables of these names
    #[arg(long)]
    pub replace: bool,
    /// Use the schema and data of an earlier run
    #[arg(long)]
    pub no_setup: bool,
    /// Only create schema and data
    #[arg(long, conflicts_with = "no_setup")]
    pub setup_only: bool,
    /// Leave out the consistency checks after the run
    #[arg(long)]
    pub no_check: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    if args.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let usage = |error: anyhow::Error| anyhow::Error::new(Usage(format!("{error:#}")));
    if !matches!(
        args.level,
        Level::ReadCommitted | Level::RepeatableRead | Level::Serializable
    ) {
        return Err(usage(anyhow::anyhow!(
            "PostgreSQL has no level «{}»: choose read-committed, repeatable-read or serializable",
            args.level
        )));
    }
    let knobs = Knobs::parse(&args.knobs).map_err(usage)?.scaled(args.scale);
    let workload: Arc<dyn Workload> = pgassay_workloads::by_name(name, &knobs).map_err(usage)?.into();
    if args.mode == Mode::Procedures && !workload.has_procedures() {
        return Err(usage(anyhow::anyhow!(
            "{name} has no stored procedures; choose another --mode"
        )));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options {
        target: args.target.clone().unwrap_or_default(),
        clients: args.clients.max(1),
        length: match (args.duration, args.transactions) {
            (Some(duration), _) => Length::Duration(duration),
            (None, Some(count)) => Length::Transactions(count),
            (None, None) => Length::Duration(Duration::from_secs(10)),
        },
        level: args.level,
        mode: args.mode,
        seed: args.seed,
        stop: stop.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async move {
        stop_on_interrupt(stop);
        drive(workload, &options, &args).await
    })
}

async fn drive(workload: Arc<dyn Workload>, options: &Options, args: &Args) -> anyhow::Result<ExitCode> {
    if !args.no_setup {
        if !args.replace {
            let taken = pgassay_workloads::in_the_way(&*workload, options).await?;
            anyhow::ensure!(
                taken.is_empty(),
                "the database already has {}: give --replace to drop and create it, or --no-setup to use it as it is",
                taken.join(", ")
            );
        }
        pgassay_workloads::setup(&*workload, options).await?;
    }
    if args.setup_only {
        return Ok(ExitCode::SUCCESS);
    }
    let bar = bar(workload.name(), options);
    let summary = pgassay_workloads::run(workload.clone(), options, |progress| {
        advance(&bar, options, progress)
    })
    .await;
    bar.finish_and_clear();
    let summary = summary?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary.report())?);
    } else {
        println!("{}", table(&summary));
    }
    if args.no_check {
        return Ok(ExitCode::SUCCESS);
    }
    let failed = pgassay_workloads::check(&*workload, options).await?;
    for failed in &failed {
        eprintln!("pgassay: {failed}");
    }
    if failed.is_empty() && !args.json {
        println!("consistency checks: all {} hold", workload.checks().len());
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The summary as people read it.
pub fn table(summary: &Summary) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    for (label, value) in summary.lines() {
        let value = comfy_table::Cell::new(value).set_alignment(comfy_table::CellAlignment::Right);
        table.add_row(vec![comfy_table::Cell::new(label), value]);
    }
    table.to_string()
}

/// A bar on a terminal; nothing elsewhere.
pub fn bar(name: &str, options: &Options) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (length, style) = match options.length {
        Length::Transactions(count) => (
            count * options.clients as u64,
            "{prefix} {bar:30} {human_pos}/{human_len} transactions, {per_sec}, {msg}",
        ),
        Length::Duration(duration) => (duration.as_millis() as u64, "{prefix} {bar:30} {elapsed} {msg}"),
    };
    let style = ProgressStyle::with_template(style).expect("the templates above are well-formed");
    ProgressBar::new(length)
        .with_style(style)
        .with_prefix(name.to_owned())
}

pub fn advance(bar: &ProgressBar, options: &Options, progress: Progress) {
    let aborts = progress.aborts;
    match options.length {
        Length::Transactions(_) => {
            bar.set_position(progress.transactions);
            bar.set_message(format!("{aborts} refused"));
        }
        Length::Duration(_) => {
            bar.set_position(progress.elapsed.as_millis() as u64);
            bar.set_message(format!(
                "{} transactions, {aborts} refused",
                progress.transactions
            ));
        }
    }
}

/// The first Ctrl-C lets the clients finish their transactions; the second ends the program.
fn stop_on_interrupt(stop: Arc<AtomicBool>) {
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if stop.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        }
    });
}

fn list() {
    for (name, about, make) in CATALOGUE {
        println!("{name:12} {about}");
        let knobs = Knobs::default();
        let workload = make(&knobs);
        for (key, default, meaning) in knobs.described() {
            println!("    {key:14} {meaning} [{default}]");
        }
        if workload.has_procedures() {
            println!("    --mode procedures is possible");
        }
    }
}

/// `30s`, `5m`, `1h`, `500ms`; a bare number is seconds.
pub fn duration(text: &str) -> anyhow::Result<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .with_context(|| format!("«{text}» is not a duration: write 30s, 5m or 1h"))?;
    let seconds = match &text[digits.len()..] {
        "ms" => number / 1_000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3_600.0,
        unit => anyhow::bail!("«{unit}» is not a unit of time: write ms, s, m or h"),
    };
    Duration::try_from_secs_f64(seconds).with_context(|| format!("«{text}» is not a duration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(duration("1.5m").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert!(duration("-1s").is_err() && duration("3 weeks").is_err());
    }

    #[test]
    fn every_workload_can_be_made() {
        for (name, _, _) in CATALOGUE {
            assert_eq!(
                pgassay_workloads::by_name(name, &Knobs::default())
                    .unwrap()
                    .name(),
                *name
            );
        }
        let unknown = pgassay_workloads::by_name("bank", &Knobs::default().set("colour", 1.0));
        assert!(unknown.err().unwrap().to_string().contains("it has: accounts"));
    }
}
