//! `pgassay replay SCRIPT --upstream URI`: execute a script with its interleaving, through the proxy, and say
//! whether the violation showed again.
//!
//! A step is sent when the one before it was answered, or waits for a lock (as isolationtester does it).
//! Exit codes: 0 it did not show, 1 it did, 2 the script or the database cannot be used.

use super::{Usage, report, run::without_password};
use crate::config::Config;
use crate::serve::Running;
use anyhow::Context;
use pgassay_audit::report::script::{self, Command, Script};
use pgassay_audit::report::text::{self, Paint};
use pgassay_audit::verdict::{Summary, Violation};
use pgassay_rules::Level;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What `pgassay explain --format script` printed, perhaps edited
    script: PathBuf,
    /// A database where the script may do its work: never the one that matters
    #[arg(long, value_name = "URI")]
    upstream: String,
    /// The level to judge at (default: the one in the script)
    #[arg(long, value_name = "LEVEL")]
    claim: Option<String>,
    /// How often to try
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u32,
}

const STEP_MAX: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(5);
/// A statement that is not done after this long is asked about: does it wait for a lock?
const ASK_AFTER: Duration = Duration::from_millis(50);

pub fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    let name = args.script.display().to_string();
    let text = std::fs::read_to_string(&args.script)
        .map_err(|error| Usage(format!("cannot read {name}: {error}")))?;
    let script = script::read(&text).map_err(|error| Usage(format!("{name}: {error}")))?;
    let claim: Option<Level> = match &args.claim {
        Some(text) => Some(text.parse().map_err(|error| Usage(format!("--claim: {error}")))?),
        None => script.level,
    };
    config.upstream = args.upstream;
    config.listen = vec!["127.0.0.1:0".to_owned()];
    config.admin.listen = None;
    config.audit.claim = claim.map(|level| level.name().to_owned());
    config.webhooks.clear();
    config.journal.dir = None;
    let paint = report::paint(&std::io::stdout());
    for time in 1..=args.times.max(1) {
        if args.times > 1 {
            println!("{}", paint.dim(&format!("time {time} of {}", args.times)));
        }
        let summary = once(&script, &config, paint)?;
        if let Some(found) = shown(&script, &summary) {
            println!("\n{}", text::violation(found, paint));
            println!(
                "{}",
                paint.red(&format!("✗ it showed again: {} at {}", found.rule, found.level))
            );
            return Ok(ExitCode::FAILURE);
        }
        for other in &summary.violations {
            println!("\n{}", text::violation(other, paint));
        }
    }
    let what = script.rule.as_deref().unwrap_or("a violation");
    println!("\n{}", paint.green(&format!("✓ {what} did not show")));
    Ok(ExitCode::SUCCESS)
}

/// The violation that the script is about, or any when it is about none.
fn shown<'a>(script: &Script, summary: &'a Summary) -> Option<&'a Violation> {
    let wanted = |violation: &&Violation| script.rule.as_ref().is_none_or(|rule| *rule == violation.rule);
    summary.violations.iter().find(wanted)
}

fn once(script: &Script, config: &Config, paint: Paint) -> anyhow::Result<Summary> {
    let running = Running::start(config.clone())?;
    let port = running.port().context("the proxy has no port")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let played = runtime.block_on(play(script, config, port, paint));
    runtime.shutdown_timeout(Duration::from_secs(2));
    let live = running.stop();
    played?;
    Ok(live.summary())
}

/// One session of the script.
struct Session {
    client: std::sync::Arc<Client>,
    backend: i32,
    under_way: Option<(usize, JoinHandle<String>)>,
}

async fn play(script: &Script, config: &Config, port: u16, paint: Paint) -> anyhow::Result<()> {
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let watcher = connect(config, port).await?;
    let place = |name: &str| match name {
        "setup" => 0,
        "cleanup" => 2,
        _ => 1,
    };
    let mut commands: Vec<&Command> = script.commands.iter().collect();
    commands.sort_by_key(|command| place(&command.session));
    let mut part = 0;
    for (index, command) in commands.iter().enumerate() {
        if place(&command.session) != part {
            part = place(&command.session);
            finish_all(&mut sessions, &commands, paint).await?;
        }
        if !sessions.contains_key(&command.session) {
            let client = connect(config, port).await?;
            let backend = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
            let session = Session {
                client: client.into(),
                backend,
                under_way: None,
            };
            sessions.insert(command.session.clone(), session);
        }
        let session = sessions.get_mut(&command.session).expect("it was just made");
        finish(session, &commands, paint).await?;
        let (client, sql) = (session.client.clone(), command.sql.clone());
        let task = tokio::spawn(async move { answer(&client, &sql).await });
        session.under_way = Some((index, task));
        wait(session, &watcher, &commands, paint).await?;
    }
    finish_all(&mut sessions, &commands, paint).await
}

async fn connect(config: &Config, port: u16) -> anyhow::Result<Client> {
    let upstream =
        crate::upstream::Upstream::parse(&config.upstream).map_err(|error| Usage(format!("{error:#}")))?;
    let mut options = tokio_postgres::Config::new();
    let or = |given: Option<String>, name: &str| given.or_else(|| std::env::var(name).ok());
    options
        .host("127.0.0.1")
        .port(port)
        .user(or(upstream.user, "PGUSER").unwrap_or_else(|| "postgres".to_owned()));
    if let Some(password) = or(upstream.password, "PGPASSWORD") {
        options.password(password);
    }
    if let Some(database) = or(upstream.database, "PGDATABASE") {
        options.dbname(database);
    }
    let connected = options.connect(NoTls).await;
    let (client, connection) = connected.map_err(|error| {
        Usage(format!(
            "{} cannot be used: {error}",
            without_password(&config.upstream)
        ))
    })?;
    tokio::spawn(connection);
    Ok(client)
}

/// Waits until the statement is done or waits for a lock.
async fn wait(
    session: &mut Session,
    watcher: &Client,
    commands: &[&Command],
    paint: Paint,
) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let Some((index, task)) = &session.under_way else {
            return Ok(());
        };
        if task.is_finished() {
            return finish(session, commands, paint).await;
        }
        if started.elapsed() > ASK_AFTER {
            let blocked = watcher
                .query_one("select pg_blocking_pids($1) <> '{}'", &[&session.backend])
                .await?;
            if blocked.get(0) {
                say(commands[*index], "waits for a lock", paint);
                return Ok(());
            }
        }
        if started.elapsed() > STEP_MAX {
            let command = commands[*index];
            return Err(Usage(format!(
                "line {}: no answer for {} s",
                command.line,
                STEP_MAX.as_secs()
            ))
            .into());
        }
        tokio::time::sleep(TICK).await;
    }
}

async fn finish_all(
    sessions: &mut BTreeMap<String, Session>,
    commands: &[&Command],
    paint: Paint,
) -> anyhow::Result<()> {
    for session in sessions.values_mut() {
        finish(session, commands, paint).await?;
    }
    Ok(())
}

async fn finish(session: &mut Session, commands: &[&Command], paint: Paint) -> anyhow::Result<()> {
    let Some((index, task)) = session.under_way.take() else {
        return Ok(());
    };
    let command = commands[index];
    let answered = tokio::time::timeout(STEP_MAX, task).await.map_err(|_| {
        Usage(format!(
            "line {}: it waits for ever; is the order of the script possible?",
            command.line
        ))
    })?;
    say(
        command,
        &answered.unwrap_or_else(|error| format!("ERROR {error}")),
        paint,
    );
    Ok(())
}

fn say(command: &Command, answer: &str, paint: Paint) {
    let now = text::one_line(answer);
    let then = command.answered.as_deref().map(text::one_line);
    let differs = match then {
        Some(then) if then != now && now != "waits for a lock" => paint.yellow(&format!("   (then: {then})")),
        _ => String::new(),
    };
    println!("  {:>8}: {}", command.session, text::one_line(&command.sql));
    println!("            → {now}{differs}");
}

/// The answer in the words that stories use.
async fn answer(client: &Client, sql: &str) -> String {
    let messages = match client.simple_query(sql).await {
        Ok(messages) => messages,
        Err(error) => {
            return match error.as_db_error() {
                Some(db) => format!("ERROR {}: {}", db.code().code(), db.message()),
                None => format!("ERROR {error}"),
            };
        }
    };
    let mut rows = Vec::new();
    let mut has_columns = false;
    let mut count = 0;
    for message in &messages {
        match message {
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|n| row.get(n).unwrap_or("NULL"));
                rows.push(format!("({})", cells.collect::<Vec<_>>().join(", ")));
            }
            SimpleQueryMessage::RowDescription(_) => has_columns = true,
            SimpleQueryMessage::CommandComplete(n) => count = *n,
            _ => {}
        }
    }
    if !rows.is_empty() {
        return rows.join(" ");
    }
    let verb = sql.split_whitespace().next().unwrap_or("").to_ascii_uppercase();
    match verb.as_str() {
        _ if has_columns => "no rows".to_owned(),
        "INSERT" => format!("INSERT 0 {count}"),
        "UPDATE" | "DELETE" | "MERGE" => format!("{verb} {count}"),
        _ => verb,
    }
}
