//! Records a run: server, proxy, workload; out comes a journal and what the run cost the server.
//!
//! Where `audited`, the proxy judges what it records while it goes on, and the audit is watched.

use crate::watch::{Watch, Watched};
use crate::{Bench, measure};
use anyhow::Context;
use pgassay::config::Config;
use pgassay::serve::Running;
use pgassay::throwaway::{Throwaway, find_bin, uri};
use pgassay_rules::Level;
use pgassay_workloads::{Knobs, Length, Mode, Options, Workload, by_name};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone)]
pub struct Plan {
    pub name: String,
    pub knobs: Knobs,
    pub level: Level,
    pub mode: Mode,
    pub clients: usize,
    /// Of all clients together.
    pub transactions: u64,
    pub seed: u64,
    /// Between proxy and server.
    pub delay: Duration,
    /// Judged while it runs.
    pub audited: bool,
    /// A word about the knobs, for the journal's name.
    pub about: String,
}

impl Plan {
    pub fn new(name: &str, knobs: Knobs, level: Level, clients: usize, transactions: u64) -> Plan {
        let (mode, seed, delay) = (Mode::Prepared, 1, Duration::ZERO);
        Plan {
            name: name.to_owned(),
            knobs,
            level,
            mode,
            clients,
            transactions,
            seed,
            delay,
            audited: false,
            about: String::new(),
        }
    }
}

impl Plan {
    /// Tells runs of one table apart.
    fn label(&self) -> String {
        let (name, level, clients, count) = (&self.name, self.level, self.clients, self.transactions);
        let (about, delay) = (&self.about, self.delay.as_millis());
        format!("{name}{about}-{level}-{}-{clients}-{count}-{delay}ms", self.mode)
    }
}

/// What came of it.
pub struct Recorded {
    pub journal: PathBuf,
    pub transactions: u64,
    pub refused: u64,
    /// CPU seconds of the backends that served the run.
    pub backend_cpu: f64,
    pub elapsed: Duration,
    /// The live audit, where there was one.
    pub watched: Watched,
}

/// The server of a table: as it is configured by default, except for durability, which costs no CPU.
pub fn server() -> anyhow::Result<Throwaway> {
    Throwaway::start(&[
        ("deadlock_timeout", "10ms"),
        ("shared_buffers", "128MB"),
        ("autovacuum", "off"),
    ])
}

pub fn record(bench: &Bench, server: &Throwaway, plan: &Plan) -> anyhow::Result<Recorded> {
    let journal = bench.dir.join(plan.label());
    if let Some(recorded) = bench.args.keep.as_ref().and_then(|_| Recorded::load(&journal)) {
        return Ok(recorded);
    }
    let _ = std::fs::remove_dir_all(&journal);
    let postmaster = server.pid().context("the server is not running")?;
    let is_pgbench = plan.name == "pgbench";
    let workload: Option<Arc<dyn Workload>> = if is_pgbench {
        None
    } else {
        Some(by_name(&plan.name, &plan.knobs)?.into())
    };
    // Schema and data go to the server directly; the proxy reads them when it starts.
    match &workload {
        None => pgbench(
            &["-i", "-q", "-s", "1", "--port", &server.port().to_string()],
            plan.level,
        )?,
        Some(workload) => {
            let mut options = Options::new(server.uri());
            options.mode = plan.mode;
            bench
                .runtime
                .block_on(pgassay_workloads::setup(&**workload, &options))?;
        }
    }
    let mut config = Config {
        listen: vec!["127.0.0.1:0".to_owned()],
        record_only: !plan.audited,
        ..Config::default()
    };
    config.upstream = if plan.delay.is_zero() {
        server.uri()
    } else {
        uri(bench
            .runtime
            .block_on(crate::relay::start(server.address(), plan.delay))?)
    };
    config.side.uri = Some(server.uri());
    config.journal.dir = Some(journal.clone());
    config.admin.listen = None;
    config.capture.lane_bytes_max = config.capture.lane_bytes_max.max(64 << 20);
    let proxy = Running::start(config)?;
    let port = proxy.port().context("the proxy has no TCP port")?;
    settle(&proxy);
    let watch = Watch::start(proxy.live.clone())?;
    let before = measure::cpu_of_ended_children(postmaster);
    let started = Instant::now();
    let (transactions, refused) = match &workload {
        None => {
            let each = (plan.transactions / plan.clients as u64).max(1);
            let (clients, each, port) = (plan.clients.to_string(), each.to_string(), port.to_string());
            let words = [
                "-n", "-M", "prepared", "-c", &clients, "-t", &each, "--port", &port,
            ];
            pgbench(&[&words[..], &["--max-tries", "100"]].concat(), plan.level)?;
            (
                (plan.transactions / plan.clients as u64).max(1) * plan.clients as u64,
                0,
            )
        }
        Some(workload) => {
            let mut options = Options::new(uri(port));
            options.clients = plan.clients;
            options.level = plan.level;
            options.mode = plan.mode;
            options.seed = plan.seed;
            options.length = Length::Transactions((plan.transactions / plan.clients as u64).max(1));
            let summary =
                bench
                    .runtime
                    .block_on(pgassay_workloads::run(workload.clone(), &options, |_| {}))?;
            (summary.transactions(), summary.aborts.values().sum())
        }
    };
    let elapsed = started.elapsed();
    let live = proxy.stop();
    let watched = watch.stop();
    let lost = live.lost_bytes.load(std::sync::atomic::Ordering::Relaxed);
    anyhow::ensure!(
        lost == 0,
        "{lost} bytes of {} were not captured: the run is not usable",
        plan.name
    );
    // Sessions are closed: the postmaster has waited for their backends, or will in a moment.
    std::thread::sleep(Duration::from_millis(200));
    let backend_cpu = measure::cpu_of_ended_children(postmaster) - before;
    let recorded = Recorded {
        journal,
        transactions,
        refused,
        backend_cpu,
        elapsed,
        watched,
    };
    if bench.args.keep.is_some() {
        recorded.save()?;
    }
    Ok(recorded)
}

/// A run that was kept is judged again without being recorded again.
impl Recorded {
    fn beside(journal: &Path) -> PathBuf {
        journal.with_extension("json")
    }

    fn save(&self) -> anyhow::Result<()> {
        let told = json!({
            "transactions": self.transactions, "refused": self.refused, "backend_cpu_s": self.backend_cpu,
            "run_s": self.elapsed.as_secs_f64(), "live_lag_s": self.watched.lag.as_secs_f64(),
            "live_recorder_cpu_s": self.watched.recorder_cpu, "live_audit_cpu_s": self.watched.audit_cpu,
            "live_shed": self.watched.shed,
        });
        std::fs::write(Recorded::beside(&self.journal), told.to_string()).context("cannot keep a run")
    }

    fn load(journal: &Path) -> Option<Recorded> {
        let told = std::fs::read_to_string(Recorded::beside(journal)).ok()?;
        let told: Value = serde_json::from_str(&told).ok()?;
        let count = |key: &str| told.get(key).and_then(Value::as_u64);
        let seconds = |key: &str| told.get(key).and_then(Value::as_f64);
        journal.is_dir().then_some(())?;
        Some(Recorded {
            journal: journal.to_owned(),
            transactions: count("transactions")?,
            refused: count("refused")?,
            backend_cpu: seconds("backend_cpu_s")?,
            elapsed: Duration::from_secs_f64(seconds("run_s")?),
            watched: Watched {
                lag: Duration::from_secs_f64(seconds("live_lag_s")?),
                recorder_cpu: seconds("live_recorder_cpu_s")?,
                audit_cpu: seconds("live_audit_cpu_s")?,
                shed: count("live_shed")?,
            },
        })
    }
}

/// Waits until the side connection has read the initial state, so that its work is not in the run.
pub fn settle(proxy: &Running) {
    let patience = Instant::now() + Duration::from_secs(120);
    while Instant::now() < patience {
        if proxy
            .live
            .side_connection_up
            .load(std::sync::atomic::Ordering::Relaxed)
            != 0
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
}

fn pgbench(words: &[&str], level: Level) -> anyhow::Result<()> {
    let level = pgassay_workloads::session::sql_name(level)
        .to_ascii_lowercase()
        .replace(' ', "\\ ");
    let output = Command::new(find_program("pgbench"))
        .args(words)
        .args(["--host", "127.0.0.1", "--username", "postgres", "postgres"])
        .env("PGOPTIONS", format!("-c default_transaction_isolation={level}"))
        .output()
        .context("cannot run pgbench; it comes with PostgreSQL's client programs")?;
    let told = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "pgbench failed: {told}");
    Ok(())
}

/// Beside the server's programs, where these really are, or on the PATH.
pub fn find_program(name: &str) -> PathBuf {
    let beside = |dir: PathBuf| Some(dir.join(name)).filter(|path| path.is_file());
    let bin = find_bin().ok();
    let real = bin.as_ref().and_then(|bin| {
        bin.join("postgres")
            .canonicalize()
            .ok()?
            .parent()
            .map(PathBuf::from)
    });
    bin.and_then(beside)
        .or_else(|| real.and_then(beside))
        .unwrap_or_else(|| name.into())
}
