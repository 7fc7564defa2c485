//! `pgassay proxy`: stand between clients and their database.

use crate::config::{Loaded, Override};
use crate::serve::Running;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where clients connect: HOST:PORT, [V6]:PORT or the path of a unix socket; may be given several times
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// The database: HOST:PORT, the path of a socket, or a postgresql:// URI
    #[arg(long, value_name = "ADDR_OR_URI")]
    upstream: Option<String>,
    /// Write what was witnessed to this directory
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Metrics, health, API and web page: HOST:PORT
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Record without auditing
    #[arg(long)]
    record_only: bool,
}

impl Args {
    pub fn overrides(&self) -> Vec<Override> {
        let mut overrides = Vec::new();
        if !self.listen.is_empty() {
            overrides.push(Override::new("listen", self.listen.join(","), "--listen"));
        }
        if let Some(upstream) = &self.upstream {
            overrides.push(Override::new("upstream", upstream, "--upstream"));
        }
        if let Some(dir) = &self.journal {
            overrides.push(Override::new("journal.dir", dir.display(), "--journal"));
        }
        if let Some(admin) = &self.admin {
            overrides.push(Override::new("admin.listen", admin, "--admin"));
        }
        if self.record_only {
            overrides.push(Override::new("record_only", true, "--record-only"));
        }
        overrides
    }
}

/// Runs until SIGTERM or SIGINT; a second one ends without waiting. SIGHUP reads the configuration again.
pub fn run(_args: Args, mut loaded: Loaded) -> anyhow::Result<ExitCode> {
    let running = Running::start(loaded.config.clone())?;
    let handle = running.handle();
    // Before anybody is told that we are there, and may send one.
    let mut signals = handle.block_on(async { Signals::new() })?;
    for address in running.addresses() {
        tracing::info!("listening on {address}");
    }
    while let Signal::Reload = handle.block_on(signals.next()) {
        let reloaded = loaded
            .reload()
            .and_then(|new| running.reload(new.config.clone()).map(|()| new));
        match reloaded {
            Ok(new) => {
                tracing::info!("the configuration was read again");
                loaded = new;
            }
            Err(error) => tracing::error!("the old configuration stays in use: {error:#}"),
        }
    }
    let seconds = running.live.config.load().proxy.drain_seconds;
    tracing::info!("ending: open transactions get {seconds} s to finish; once more to end at once");
    // A thread of its own: the signals' runtime is about to end.
    std::thread::spawn(|| {
        let again = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = again {
            runtime.block_on(async {
                if let Ok(mut signals) = Signals::new() {
                    while !matches!(signals.next().await, Signal::Stop) {}
                    std::process::exit(1);
                }
            });
        }
    });
    let live = running.stop();
    let summary = live.summary();
    tracing::info!(
        connections = live.connections_total.load(Relaxed),
        statements = live.statements.load(Relaxed),
        violations = summary.violations.len(),
        "ended"
    );
    Ok(ExitCode::SUCCESS)
}

enum Signal {
    Reload,
    Stop,
}

struct Signals {
    hangup: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
        }
    }
}
