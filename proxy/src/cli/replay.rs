//! `pgassay replay SCRIPT --upstream URI`: execute a script with its interleaving, through the proxy, and say
//! whether the violation showed again.
//!
//! A step is sent when the one before it was answered, or waits for a lock (as isolationtester does it).
//! The script makes what it needs first (`setup:`), in one transaction and past the proxy, which then reads it as it
//! reads any database at start; in the end it takes it away (`cleanup:`). Exit codes: 0 it did not show, 1 it did, 2 the script or the database cannot be used.

use super::run::{server_programs, without_password};
use super::{Usage, report};
use crate::config::{Config, Writers};
use crate::serve::Running;
use crate::throwaway::Throwaway;
use anyhow::Context;
use pgassay_audit::report::script::{self, Command, Script};
use pgassay_audit::report::text::{self, Paint};
use pgassay_audit::trace::lex;
use pgassay_audit::verdict::{Summary, Violation};
use pgassay_rules::Level;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What `pgassay explain --format script` printed, perhaps edited
    script: PathBuf,
    /// An empty database where the script may do its work: never the one that matters
    #[arg(long, value_name = "URI", required_unless_present = "postgres")]
    upstream: Option<String>,
    /// Start a throw-away server: a major version, a directory of programs, or «any»
    #[arg(long, value_name = "VERSION_OR_PATH", conflicts_with = "upstream")]
    postgres: Option<String>,
    /// Leave out «setup:» and «cleanup:»: the database holds what the story needs, it is a copy of yours
    #[arg(long)]
    no_setup: bool,
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
    let mut script = script::read(&text).map_err(|error| Usage(format!("{name}: {error}")))?;
    let claim: Option<Level> = match &args.claim {
        Some(text) => Some(text.parse().map_err(|error| Usage(format!("--claim: {error}")))?),
        None => script.level,
    };
    if args.no_setup {
        script.commands.retain(|command| Part::of(command) == Part::Steps);
    }
    let server = match &args.postgres {
        Some(which) => {
            Some(Throwaway::start_from(&server_programs(which)?, &[]).context("the throw-away server")?)
        }
        None => None,
    };
    let given = server.as_ref().map(Throwaway::uri).or(args.upstream);
    config.upstream = given.unwrap_or(config.upstream);
    config.side.enabled = true;
    config.side.uri = None;
    // The script is alone with its database.
    config.audit.writers = Writers::Exclusive;
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(set_up(script, config, paint))?;
    let running = Running::start(config.clone())?;
    let port = running.port().context("the proxy has no port")?;
    let played = runtime.block_on(play(script, config, port, paint));
    let live = running.stop();
    let cleaned = runtime.block_on(clean_up(script, config, paint));
    runtime.shutdown_timeout(Duration::from_secs(2));
    played.and(cleaned)?;
    Ok(live.summary())
}

/// One session of the script.
struct Session {
    client: std::sync::Arc<Client>,
    backend: i32,
    under_way: Option<(usize, JoinHandle<String>)>,
    /// What is under way was seen waiting for a lock.
    waits: bool,
}

async fn play(script: &Script, config: &Config, port: u16, paint: Paint) -> anyhow::Result<()> {
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let watcher = connect(config, port).await?;
    let commands: Vec<&Command> = Part::Steps.in_script(script).collect();
    let mut left: VecDeque<usize> = (0..commands.len()).collect();
    while !left.is_empty() {
        for session in sessions.values_mut() {
            settle(session, &watcher, &commands, paint).await?;
        }
        // Whoever waits for a lock is overtaken by the others, and goes on when the lock is free.
        let is_free = |index: &usize| {
            let session = sessions.get(&commands[*index].session);
            session.is_none_or(|session| session.under_way.is_none())
        };
        let Some(at) = left.iter().position(is_free) else {
            let first = commands[left[0]];
            return Err(Usage(format!(
                "line {}: everybody waits for somebody else; is the order of the script possible?",
                first.line
            ))
            .into());
        };
        let index = left.remove(at).expect("it was just found");
        let command = commands[index];
        if !sessions.contains_key(&command.session) {
            let client = connect(config, port).await?;
            let backend = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
            let session = Session {
                client: client.into(),
                backend,
                under_way: None,
                waits: false,
            };
            sessions.insert(command.session.clone(), session);
        }
        let session = sessions.get_mut(&command.session).expect("it was just made");
        let (client, sql) = (session.client.clone(), command.sql.clone());
        let task = tokio::spawn(async move { answer(&client, &sql).await });
        session.under_way = Some((index, task));
        session.waits = false;
        settle(session, &watcher, &commands, paint).await?;
    }
    for session in sessions.values_mut() {
        finish(session, &commands, paint).await?;
    }
    Ok(())
}

/// All of it or nothing: what a script could not make it must not take away.
async fn set_up(script: &Script, config: &Config, paint: Paint) -> anyhow::Result<()> {
    let mut commands = Part::Setup.in_script(script).peekable();
    if commands.peek().is_none() {
        return Ok(());
    }
    let client = past_the_proxy(config).await?;
    client.batch_execute("BEGIN").await?;
    for command in commands {
        let answered = answer(&client, &command.sql).await;
        say(command, &answered, paint);
        if answered.starts_with("ERROR") {
            client.batch_execute("ROLLBACK").await?;
            let hint = match answered.contains("already exists") {
                true => {
                    "; name an empty database, or leave it out with --no-setup if the database holds what the story needs"
                }
                false => "",
            };
            return Err(Usage(format!("line {}: {answered}{hint}", command.line)).into());
        }
    }
    client.batch_execute("COMMIT").await?;
    Ok(())
}

async fn clean_up(script: &Script, config: &Config, paint: Paint) -> anyhow::Result<()> {
    let mut commands = Part::Cleanup.in_script(script).peekable();
    if commands.peek().is_none() {
        return Ok(());
    }
    let client = past_the_proxy(config).await?;
    for command in commands {
        say(command, &answer(&client, &command.sql).await, paint);
    }
    Ok(())
}

async fn past_the_proxy(config: &Config) -> Result<Client, Usage> {
    let cannot = |error: anyhow::Error| {
        let upstream = without_password(&config.upstream);
        Usage(format!("{upstream} cannot be used: {error:#}"))
    };
    crate::side::connect(config).await.map_err(cannot)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Setup,
    Steps,
    Cleanup,
}

impl Part {
    fn of(command: &Command) -> Part {
        match command.session.as_str() {
            "setup" => Part::Setup,
            "cleanup" => Part::Cleanup,
            _ => Part::Steps,
        }
    }

    fn in_script(self, script: &Script) -> impl Iterator<Item = &Command> {
        script.commands.iter().filter(move |c| Part::of(c) == self)
    }
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

/// Waits until what is under way, if anything, is done or waits for a lock.
async fn settle(
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
        if session.waits || started.elapsed() > ASK_AFTER {
            let blocked = watcher
                .query_one("select pg_blocking_pids($1) <> '{}'", &[&session.backend])
                .await?;
            if blocked.get(0) {
                if !std::mem::replace(&mut session.waits, true) {
                    say(commands[*index], "waits for a lock", paint);
                }
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
    let mut statements = lex::statements(sql).into_iter();
    let mut answers = Vec::new();
    let mut rows = Vec::new();
    let mut has_columns = false;
    for message in &messages {
        match message {
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|n| row.get(n).unwrap_or("NULL"));
                rows.push(format!("({})", cells.collect::<Vec<_>>().join(", ")));
            }
            SimpleQueryMessage::RowDescription(_) => has_columns = true,
            SimpleQueryMessage::CommandComplete(count) => {
                let words = statements.next().unwrap_or("").split_whitespace().next();
                let verb = words.unwrap_or("").to_ascii_uppercase();
                answers.push(match verb.as_str() {
                    _ if !rows.is_empty() => std::mem::take(&mut rows).join(" "),
                    _ if has_columns => "no rows".to_owned(),
                    "INSERT" => format!("INSERT 0 {count}"),
                    "UPDATE" | "DELETE" | "MERGE" => format!("{verb} {count}"),
                    _ => verb,
                });
                has_columns = false;
            }
            _ => {}
        }
    }
    answers.join("; ")
}
