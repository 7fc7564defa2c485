//! Runs a workload: many clients, each with its own session and its own stream of transactions.
//!
//! In: a workload and options. Out: a summary; progress on the way.
//!
//! A refusal that asks for another attempt (40001, 40P01) gets one, with the same content; a refusal that belongs
//! to the application's life (a taken key, a failed check) ends that transaction; anything else ends the run.
//! A lost session is opened again, the way a pool would.

use crate::session::{Mode, Session};
use crate::summary::Summary;
use crate::{Ended, Turn, Workload};
use anyhow::{Context, bail};
use fastrand::Rng;
use pgassay_rules::Level;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many transactions of each client.
    Transactions(u64),
    Duration(Duration),
}

#[derive(Clone, Debug)]
pub struct Options {
    /// A connection URI or a libpq connection string.
    pub target: String,
    pub clients: usize,
    pub length: Length,
    pub level: Level,
    pub mode: Mode,
    pub seed: u64,
    /// Ends the run early when it becomes true.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    pub fn new(target: impl Into<String>) -> Options {
        Options {
            target: target.into(),
            clients: 4,
            length: Length::Transactions(100),
            level: Level::ReadCommitted,
            mode: Mode::default(),
            seed: 1,
            stop: Arc::default(),
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub transactions: u64,
    pub aborts: u64,
    pub elapsed: Duration,
}

/// More attempts than this and an application gives up.
const ATTEMPTS_MAX: u32 = 100;

#[derive(Default)]
struct Counters {
    transactions: AtomicU64,
    aborts: AtomicU64,
}

/// Creates the schema and the data.
pub async fn setup(workload: &dyn Workload, options: &Options) -> anyhow::Result<()> {
    let mut session = Session::connect(&options.target, options.mode, Level::ReadCommitted).await?;
    // `DROP … IF EXISTS` would tell about what is not there.
    session.batch("SET client_min_messages = warning").await?;
    workload
        .setup(&mut session)
        .await
        .map_err(spoken)
        .with_context(|| format!("cannot set up {}", workload.name()))
}

/// Tables of the database that `setup` would replace.
pub async fn in_the_way(workload: &dyn Workload, options: &Options) -> anyhow::Result<Vec<String>> {
    let mut session = Session::connect(&options.target, Mode::Simple, Level::ReadCommitted).await?;
    let names: Vec<String> = workload.tables().iter().map(|name| format!("'{name}'")).collect();
    let find = format!(
        "SELECT relname FROM pg_class WHERE relname IN ({}) AND relkind IN ('r', 'p', 'v', 'm') \
         AND pg_table_is_visible(oid) ORDER BY relname",
        names.join(", ")
    );
    let found = session.run(&find, &[]).await.map_err(spoken)?;
    Ok((0..found.rows.len())
        .filter_map(|row| found.text(row, 0).map(str::to_owned))
        .collect())
}

/// Runs the workload to its end and calls `progress` a few times per second.
pub async fn run(
    workload: Arc<dyn Workload>,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> anyhow::Result<Summary> {
    if options.mode == Mode::Procedures && !workload.has_procedures() {
        bail!(
            "{} has no stored procedures; choose another --mode",
            workload.name()
        );
    }
    let mut sessions = Vec::new();
    for _ in 0..options.clients {
        sessions.push(Session::connect(&options.target, options.mode, options.level).await?);
    }
    let counters = Arc::new(Counters::default());
    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for (client, session) in sessions.into_iter().enumerate() {
        let (workload, options, counters) = (workload.clone(), options.clone(), counters.clone());
        clients.spawn(async move {
            let stop = options.stop.clone();
            let result = one_client(workload, options, client, session, started, counters).await;
            if result.is_err() {
                // One client that cannot go on ends the run of all.
                stop.store(true, Ordering::Relaxed);
            }
            result
        });
    }
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let mut total = Summary::default();
    let mut trouble = None;
    loop {
        tokio::select! {
            ended = clients.join_next() => match ended {
                None => break,
                Some(ended) => match ended.context("a client of the workload panicked")? {
                    Ok(summary) => total.add(&summary),
                    Err(error) => trouble = Some(error),
                },
            },
            _ = tick.tick() => progress(at(&counters, started)),
        }
    }
    progress(at(&counters, started));
    if let Some(error) = trouble {
        return Err(error);
    }
    total.elapsed = started.elapsed();
    Ok(total)
}

fn at(counters: &Counters, started: Instant) -> Progress {
    Progress {
        transactions: counters.transactions.load(Ordering::Relaxed),
        aborts: counters.aborts.load(Ordering::Relaxed),
        elapsed: started.elapsed(),
    }
}

async fn one_client(
    workload: Arc<dyn Workload>,
    options: Options,
    client: usize,
    mut session: Session,
    started: Instant,
    counters: Arc<Counters>,
) -> anyhow::Result<Summary> {
    let mut summary = Summary::default();
    // Each client draws from its own stream, so its transactions do not depend on the others' speed.
    let mut seeds = Rng::with_seed(options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (client as u64 + 1));
    let mut serial = 0;
    while !is_over(&options, serial, started) {
        let turn = Turn {
            client,
            serial,
            rng: Rng::with_seed(seeds.u64(..)),
        };
        let began = Instant::now();
        let mut attempts = 0;
        loop {
            match workload.transact(&mut session, turn.clone()).await {
                Ok(Ended::Committed) => summary.committed += 1,
                Ok(Ended::RolledBack) => summary.rolled_back += 1,
                Err(error) => {
                    counters.aborts.fetch_add(1, Ordering::Relaxed);
                    attempts += 1;
                    let again = recover(&options, &mut session, &mut summary, error).await?;
                    if again && attempts < ATTEMPTS_MAX {
                        continue;
                    }
                    summary.given_up += u64::from(again);
                }
            }
            break;
        }
        summary.record_latency(began.elapsed());
        counters.transactions.fetch_add(1, Ordering::Relaxed);
        serial += 1;
    }
    Ok(summary)
}

fn is_over(options: &Options, serial: u64, started: Instant) -> bool {
    options.stop.load(Ordering::Relaxed)
        || match options.length {
            Length::Transactions(count) => serial >= count,
            Length::Duration(duration) => started.elapsed() >= duration,
        }
}

/// Brings the session back into order after a refusal; tells whether to try the transaction again.
async fn recover(
    options: &Options,
    session: &mut Session,
    summary: &mut Summary,
    error: tokio_postgres::Error,
) -> anyhow::Result<bool> {
    if error.is_closed() || session.is_lost() {
        summary.record_abort("connection");
        *session = reconnect(options, &error).await?;
        return Ok(false);
    }
    let Some(sqlstate) = error.code().map(|code| code.code().to_owned()) else {
        return Err(error).context("the client library could not send or read a statement");
    };
    summary.record_abort(&sqlstate);
    session
        .rollback()
        .await
        .map_err(spoken)
        .context("cannot roll back")?;
    match sqlstate.as_str() {
        "40001" | "40P01" => Ok(true),
        // A taken key, a failed check, a missing parent: the application tells its user and goes on.
        _ if sqlstate.starts_with("23") => Ok(false),
        _ => Err(spoken(error).context("the server refused a statement")),
    }
}

async fn reconnect(options: &Options, lost: &tokio_postgres::Error) -> anyhow::Result<Session> {
    let mut last = None;
    for _ in 0..50 {
        match Session::connect(&options.target, options.mode, options.level).await {
            Ok(session) => return Ok(session),
            Err(error) => last = Some(error),
        }
        if options.stop.load(Ordering::Relaxed) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let last = last.expect("at least one attempt was made");
    Err(last.context(format!(
        "the session was lost ({lost}) and could not be opened again"
    )))
}

/// The server's own words instead of «db error».
pub fn spoken(error: tokio_postgres::Error) -> anyhow::Error {
    match error.as_db_error() {
        Some(db) => {
            let mut words = format!("{} {}: {}", db.severity(), db.code().code(), db.message());
            if let Some(detail) = db.detail() {
                words.push_str(&format!(" ({detail})"));
            }
            if let Some(context) = db.where_() {
                words.push_str(&format!(" [{context}]"));
            }
            anyhow::anyhow!(words)
        }
        None => error.into(),
    }
}
