//! `pgassay demo`: a throw-away database, the proxy and a workload, to look at.
//!
//! Three acts. First a bank at all three levels, audited at the level each transaction runs at: nothing to report.
//! Then the same bank at READ COMMITTED, asked «would this have been serializable?»: the smallest story of the
//! first violation. Then, where somebody watches, the same on the web page, until Ctrl-C. Server and data are gone
//! afterwards.

use crate::cli::report;
use crate::cli::workload::{advance, bar};
use crate::config::Config;
use crate::serve::Running;
use crate::throwaway::{Throwaway, uri};
use anyhow::Context;
use pgassay_audit::report::gate::Gate;
use pgassay_audit::report::text::{self, Paint};
use pgassay_audit::verdict::Summary;
use pgassay_rules::Level;
use pgassay_workloads::{Knobs, Length, Options, Workload};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A few seconds only, for CI
    #[arg(long)]
    pub fast: bool,
    /// Sessions that work at the same time
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// The same seed gives the same transactions
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Show the page in the end, until Ctrl-C, even if this is no terminal
    #[arg(long)]
    pub page: bool,
    /// Leave out the page
    #[arg(long, conflicts_with = "page")]
    pub no_page: bool,
}

impl Args {
    /// Nobody may be there to press Ctrl-C: then it must end by itself.
    fn shows_page(&self) -> bool {
        let watched = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.page || (watched && !self.fast && !self.no_page)
    }
}

pub fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stop = Arc::new(AtomicBool::new(false));
    // Before the server starts: from here on Ctrl-C asks us to end, instead of ending us.
    let interrupt = {
        let _guard = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?
    };
    runtime.spawn(raise(interrupt, stop.clone()));

    let paint = report::paint(&std::io::stdout());
    println!("{}", paint.dim("starting a throw-away PostgreSQL …"));
    let server = Throwaway::start(&[("deadlock_timeout", "50ms")])?;
    println!(
        "{}",
        paint.dim(&format!(
            "it listens on {}, its data are in {}",
            server.address(),
            server.dir().display()
        ))
    );
    let stage = Stage {
        args: &args,
        config: &config,
        server: &server,
        runtime: &runtime,
        stop: stop.clone(),
        paint,
    };

    println!("\n1. A bank at all three isolation levels, audited at the level each transaction runs at.\n");
    let levels = [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];
    let correct = stage.act(&levels, None)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(farewell());
    }
    print!("{}", text::summary(&correct, &Gate::default(), paint));
    if correct.violations.is_empty() {
        let is_checked = correct.coverage.checked > 0;
        let told = if is_checked {
            "Nothing to report."
        } else {
            "Nothing was checked, so there is nothing to report."
        };
        println!("\n{}", paint.green(told));
    } else {
        println!(
            "\nThis was a correct database: if you can repeat it, please report it to the authors of pgassay."
        );
        return Ok(ExitCode::FAILURE);
    }

    println!("\n2. The same bank at READ COMMITTED, with the question: would this have been serializable?\n");
    let claimed = stage.act(&[Level::ReadCommitted], Some(Level::Serializable))?;
    if stop.load(Ordering::Relaxed) {
        return Ok(farewell());
    }
    match claimed.violations.first() {
        None => {
            print!("{}", text::totals(&claimed, &Gate::default(), paint));
            println!("\nNothing was found this time; a longer run or another --seed may tell.");
        }
        Some(first) => {
            print!("{}", text::violation(first, paint));
            if claimed.violations.len() > 1 {
                println!("\n… and {} more like it.", claimed.violations.len() - 1);
            }
            println!();
            print!("{}", text::totals(&claimed, &Gate::default(), paint));
            println!(
                "\nPostgreSQL did nothing wrong: READ COMMITTED does not promise this. An application that needs it"
            );
            println!("has to ask for SERIALIZABLE.");
        }
    }
    if args.shows_page() {
        stage.page()?;
        farewell();
    }
    println!("\nAudit your own traffic:");
    println!("  pgassay proxy --listen 127.0.0.1:6432 --upstream HOST:5432");
    Ok(ExitCode::SUCCESS)
}

struct Stage<'a> {
    args: &'a Args,
    config: &'a Config,
    server: &'a Throwaway,
    runtime: &'a tokio::runtime::Runtime,
    stop: Arc<AtomicBool>,
    paint: Paint,
}

impl Stage<'_> {
    /// Runs the bank at each level through a proxy of its own; returns what the audit says.
    fn act(&self, levels: &[Level], claim: Option<Level>) -> anyhow::Result<Summary> {
        let proxy = Running::start(self.config(claim, None))?;
        let target = uri(proxy.port().context("the proxy has no TCP port")?);
        for level in levels {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.runtime.block_on(self.bank(&target, *level, &proxy))?;
        }
        println!("{}", self.paint.dim("deciding what is still open …"));
        let live = proxy.live.clone();
        let left = || {
            let waiting = live.audit_queue_records.load(Ordering::Relaxed);
            format!("judging what is left: {waiting} records")
        };
        Ok(super::wait::watch(left, || proxy.stop()).summary())
    }

    fn config(&self, claim: Option<Level>, admin: Option<String>) -> Config {
        let mut config = self.config.clone();
        config.listen = vec!["127.0.0.1:0".to_owned()];
        config.upstream = self.server.uri();
        config.side.uri = Some(self.server.uri());
        config.admin.listen = admin;
        config.audit.claim = claim.map(|level| level.name().to_owned());
        config
    }

    /// The same on the page, with a bank that works leisurely, until somebody has seen enough.
    fn page(&self) -> anyhow::Result<()> {
        println!("\n3. The same on a page, while the bank goes on.\n");
        let claim = Some(Level::Serializable);
        // Somebody may have the usual address already.
        let usual = self.config.admin.listen.clone();
        let proxy = Running::start(self.config(claim, usual))
            .or_else(|_| Running::start(self.config(claim, Some("127.0.0.1:0".to_owned()))))?;
        let target = uri(proxy.port().context("the proxy has no TCP port")?);
        let page = proxy.admin_address().context("the page has no address")?;
        println!("  look at   http://{page}");
        println!("  talk to   {target}");
        println!("\nCtrl-C ends it.");
        let worked = self.runtime.block_on(self.leisurely(&target));
        proxy.stop();
        worked
    }

    async fn leisurely(&self, target: &str) -> anyhow::Result<()> {
        let (workload, mut options) = self.workload(target, Level::ReadCommitted)?;
        options.clients = options.clients.min(3);
        options.length = Length::Transactions(15);
        pgassay_workloads::setup(&*workload, &options).await?;
        while !self.stop.load(Ordering::Relaxed) {
            pgassay_workloads::run(workload.clone(), &options, |_| ()).await?;
            options.seed += 1;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    fn workload(&self, target: &str, level: Level) -> anyhow::Result<(Arc<dyn Workload>, Options)> {
        // Few accounts, so that transactions meet each other.
        let knobs = Knobs::default()
            .set("accounts", 12.0)
            .set("read_only", 0.3)
            .set("totals", 0.05);
        let workload: Arc<dyn Workload> = pgassay_workloads::by_name("bank", &knobs)?.into();
        let mut options = Options::new(target);
        options.clients = self.args.clients.max(2);
        options.level = level;
        options.seed = self.args.seed;
        options.stop = self.stop.clone();
        Ok((workload, options))
    }

    async fn bank(&self, target: &str, level: Level, proxy: &Running) -> anyhow::Result<()> {
        let (workload, mut options) = self.workload(target, level)?;
        options.length = Length::Duration(Duration::from_millis(if self.args.fast { 700 } else { 5_000 }));
        pgassay_workloads::setup(&*workload, &options).await?;
        let bar = bar(&format!("{:16}", level.name()), &options);
        let summary = pgassay_workloads::run(workload.clone(), &options, |progress| {
            advance(&bar, &options, progress);
            let audit = proxy.live.audit();
            let told = match audit.summary.violations.len() {
                0 => "no violation".to_owned(),
                count => format!("{count} violations"),
            };
            bar.set_message(format!(
                "{} transactions, {} refused; audit: {} statements checked, {told}",
                progress.transactions, progress.aborts, audit.summary.coverage.checked
            ));
        })
        .await?;
        bar.finish_and_clear();
        let refused: u64 = summary.aborts.values().sum();
        println!(
            "  {:16} {:>7} transactions, {:.0} per second, {refused} refused and tried again, p99 {:.1} ms",
            level.name(),
            summary.committed,
            summary.per_second(),
            summary.latency_ms(99.0)
        );
        let failed = pgassay_workloads::check(&*workload, &options).await?;
        anyhow::ensure!(failed.is_empty(), "{}", failed[0]);
        Ok(())
    }
}

async fn raise(mut interrupt: tokio::signal::unix::Signal, stop: Arc<AtomicBool>) {
    while interrupt.recv().await.is_some() {
        stop.store(true, Ordering::Relaxed);
    }
}

fn farewell() -> ExitCode {
    println!("\nended; the server and its data are gone");
    ExitCode::from(130)
}
