//! `pgassay doctor`: looks at the set-up and says, line by line, what is right and what to do about the rest.
//!
//! Exit codes: 0 everything is usable (perhaps with remarks), 1 something is not.

use super::{check, report, run::without_password};
use crate::config::{Config, Redact};
use crate::record;
use crate::{side, webhook};
use pgassay_audit::report::gate::Gate;
use pgassay_audit::report::text::{Paint, grouped};
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_postgres::Client;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The database to look at (default: `upstream` of the configuration)
    #[arg(long, value_name = "URI")]
    upstream: Option<String>,
}

/// What was found, and what to do about it.
enum Line {
    Good(String),
    Note(String, String),
    Bad(String, String),
}

pub fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    if let Some(upstream) = args.upstream {
        config.upstream = upstream;
    }
    let paint = report::paint(&std::io::stdout());
    let mut failed = false;
    let mut say = |lines: Vec<Line>| {
        for line in lines {
            failed |= matches!(line, Line::Bad(..));
            println!("{}", line.told(paint));
        }
    };
    say(configuration(&config));
    say(addresses(&config));
    say(journal(&config));
    say(hooks(&config));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    say(runtime.block_on(database(&config)));
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Line {
    fn told(&self, paint: Paint) -> String {
        match self {
            Line::Good(what) => format!("{} {what}", paint.green("✓")),
            Line::Note(what, advice) => format!("{} {what}\n    {advice}", paint.yellow("!")),
            Line::Bad(what, advice) => format!("{} {what}\n    {advice}", paint.red("✗")),
        }
    }
}

fn good(what: impl Into<String>) -> Line {
    Line::Good(what.into())
}

fn note(what: impl Into<String>, advice: impl Into<String>) -> Line {
    Line::Note(what.into(), advice.into())
}

fn bad(what: impl Into<String>, advice: impl Into<String>) -> Line {
    Line::Bad(what.into(), advice.into())
}

fn configuration(config: &Config) -> Vec<Line> {
    let mut lines = Vec::new();
    let sensible = record::settings(config).map_err(|error| format!("{error:#}"));
    match sensible.and_then(|settings| check::is_sensible(&settings).map_err(|error| error.to_string())) {
        Ok(()) => {
            let claim = config.audit.claim.as_deref().map_or(String::new(), |level| {
                format!(", everything judged as {level} too")
            });
            lines.push(good(format!(
                "the configuration makes sense: profile {}{claim}",
                config.audit.profile
            )));
        }
        Err(error) => lines.push(bad(
            error,
            "Set audit.profile and audit.claim to names that exist.",
        )),
    }
    if let Err(error) = Gate::new(&config.thresholds.fail_on, &config.thresholds.allow) {
        lines.push(bad(error.to_string(), "Correct [thresholds]."));
    }
    if config.record_only {
        lines.push(note(
            "record_only is set: nothing is judged",
            "Judge later with `pgassay check`, or unset it.",
        ));
    }
    lines
}

fn addresses(config: &Config) -> Vec<Line> {
    let mut lines = Vec::new();
    for listen in config.listen.iter().filter(|address| !address.starts_with('/')) {
        lines.push(match TcpListener::bind(listen) {
            Ok(_) => good(format!("clients can be listened for on {listen}")),
            Err(error) => bad(
                format!("{listen} cannot be listened on: {error}"),
                "Another program (or a pgassay that runs already) has it: choose another `listen`.",
            ),
        });
    }
    if let Some(listen) = &config.admin.listen {
        let loopback = listen
            .to_socket_addrs()
            .is_ok_and(|mut all| all.all(|address| address.ip().is_loopback()));
        lines.push(match TcpListener::bind(listen) {
            Err(error) => bad(
                format!("the admin address {listen} cannot be listened on: {error}"),
                "Choose another admin.listen.",
            ),
            Ok(_) if loopback => good(format!(
                "the admin address {listen} can be reached from this machine only"
            )),
            Ok(_) if config.admin.token_file.is_some() || config.admin.client_ca.is_some() => good(format!(
                "the admin address {listen} asks for a token or a certificate"
            )),
            Ok(_) => note(
                format!("the admin address {listen} will serve health and metrics only"),
                "It is not loopback: set admin.token_file (or admin.client_ca) to see violations there.",
            ),
        });
    }
    lines
}

fn journal(config: &Config) -> Vec<Line> {
    let Some(dir) = &config.journal.dir else {
        return vec![note(
            "no journal is kept",
            "Set journal.dir, so that last night's violation can be looked into this morning.",
        )];
    };
    let mut lines = Vec::new();
    let probe = dir.join(".pgassay-doctor");
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&probe, b"x"));
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) => lines.push(good(format!("the journal can be written in {}", dir.display()))),
        Err(error) => {
            lines.push(bad(
                format!("the journal cannot be written in {}: {error}", dir.display()),
                "Give the directory to the user that runs pgassay.",
            ));
            return lines;
        }
    }
    if let Some(free) = free_bytes(dir) {
        let wanted = if config.journal.bytes_max == 0 {
            10 << 30
        } else {
            config.journal.bytes_max
        };
        let words = format!("{} MiB are free there", grouped(free >> 20));
        lines.push(if free > wanted {
            good(words)
        } else {
            note(
                words,
                format!(
                    "The journal may grow to {} MiB (journal.bytes_max): lower it or make room.",
                    grouped(wanted >> 20)
                ),
            )
        });
    }
    if (config.journal.encrypt || config.journal.redact == Redact::Hash) && config.journal.key_file.is_none()
    {
        lines.push(bad(
            "journal.encrypt and journal.redact need a key",
            "Set journal.key_file to a file of 32 random bytes.",
        ));
    }
    lines
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(dir).ok()?;
    Some(about.f_bavail * about.f_frsize)
}

fn hooks(config: &Config) -> Vec<Line> {
    let told = config
        .webhooks
        .iter()
        .enumerate()
        .map(|(n, hook)| match webhook::check(hook) {
            Ok(()) => good(format!("web hook {} ({}) can be used", n + 1, hook.kind)),
            Err(error) => bad(
                format!("web hook {}: {error:#}", n + 1),
                "Correct it under [[webhooks]].",
            ),
        });
    told.collect()
}

async fn database(config: &Config) -> Vec<Line> {
    let place = without_password(&config.upstream);
    let started = Instant::now();
    let upstream = match crate::upstream::Upstream::parse(&config.upstream) {
        Ok(upstream) => upstream,
        Err(error) => {
            return vec![bad(
                format!("upstream makes no sense: {error:#}"),
                "Write HOST:PORT or a postgresql:// URI.",
            )];
        }
    };
    let patience = Duration::from_secs(config.proxy.connect_seconds);
    if let Err(error) = upstream.connect(patience, None).await {
        return vec![bad(
            format!("{place} cannot be reached: {error:#}"),
            "Is the server running, the address right, and TLS as `sslmode` in the URI says?",
        )];
    }
    let mut lines = vec![good(format!(
        "{place} answers ({} ms)",
        started.elapsed().as_millis()
    ))];
    let client = match side::connect(config).await {
        Ok(client) => client,
        Err(error) => {
            lines.push(bad(
                format!("the side connection cannot log in: {error:#}"),
                "Set side.uri to a role that may log in and read; without it tables are learned from the traffic alone.",
            ));
            return lines;
        }
    };
    match inside(config, &client).await {
        Ok(more) => lines.extend(more),
        Err(error) => lines.push(bad(
            format!("the database could not be looked at: {error}"),
            "Run this again; if it stays, check the role of side.uri.",
        )),
    }
    lines
}

fn unix_seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// What the side connection can see.
async fn inside(config: &Config, client: &Client) -> Result<Vec<Line>, tokio_postgres::Error> {
    let mut lines = Vec::new();
    let asked = unix_seconds();
    let about = client
        .query_one(
            "select current_setting('server_version'), current_user::text, current_setting('default_transaction_isolation'), \
             extract(epoch from clock_timestamp())::float8, \
             pg_has_role(current_user, 'pg_read_all_stats', 'member'), pg_is_in_recovery()",
            &[],
        )
        .await?;
    let answered = unix_seconds();
    let (version, role, level): (String, String, String) = (about.get(0), about.get(1), about.get(2));
    lines.push(good(format!(
        "PostgreSQL {version}; the side connection is {role}; default level {level}"
    )));
    if about.get(5) && config.audit.profile == "postgres" {
        lines.push(note(
            "this server is a standby",
            "Set audit.profile = \"postgres-standby\": its snapshots may be old.",
        ));
    }
    // The server looked at its clock some time between question and answer.
    let theirs: f64 = about.get(3);
    let apart = (asked - theirs).max(theirs - answered).max(0.0);
    lines.push(if apart < 1.0 {
        good("the server's clock agrees with this machine's")
    } else {
        note(
            format!("the clocks are {apart:.1} s apart"),
            "Verdicts use only the proxy's clock, but logs are hard to compare: check NTP.",
        )
    });
    lines.push(if about.get(4) {
        good("sessions that bypass the proxy can be seen")
    } else {
        note(
            "sessions of other users cannot be seen, so nobody would notice who bypasses the proxy",
            format!("GRANT pg_read_all_stats TO {role}; or set audit.writers yourself."),
        )
    });
    lines.extend(bypassing(client).await?);
    lines.extend(covered(config, client).await?);
    Ok(lines)
}

async fn bypassing(client: &Client) -> Result<Vec<Line>, tokio_postgres::Error> {
    let rows = client
        .query(
            "select coalesce(nullif(application_name, ''), usename::text, '?'), count(*) from pg_stat_activity \
             where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid() \
             group by 1 order by 2 desc, 1 limit 5",
            &[],
        )
        .await?;
    if rows.is_empty() {
        return Ok(vec![good("nobody is connected past the proxy now")]);
    }
    let who: Vec<String> = rows
        .iter()
        .map(|row| format!("{} ({})", row.get::<_, String>(0), row.get::<_, i64>(1)))
        .collect();
    Ok(vec![note(
        format!(
            "there are sessions now that do not come through a proxy started later: {}",
            who.join(", ")
        ),
        "While such sessions stay, rows may change behind the proxy's back and less can be checked.",
    )])
}

/// What would be covered: which tables can be copied at start.
async fn covered(config: &Config, client: &Client) -> Result<Vec<Line>, tokio_postgres::Error> {
    let limit = i64::try_from(config.side.table_rows_max).unwrap_or(i64::MAX) as f64;
    let row = client
        .query_one(
            "select count(*), \
             count(*) filter (where not has_table_privilege(c.oid, 'select')), \
             count(*) filter (where c.reltuples > $1::float8), \
             count(*) filter (where c.relrowsecurity), \
             count(*) filter (where exists (select from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal)), \
             count(*) filter (where not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)) \
             from pg_class c join pg_namespace n on n.oid = c.relnamespace \
             where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_toast'",
            &[&limit],
        )
        .await?;
    let [tables, unreadable, large, secured, triggered, keyless]: [i64; 6] =
        std::array::from_fn(|n| row.get(n));
    let mut lines = Vec::new();
    let complete = tables - unreadable.max(0) - large;
    lines.push(good(format!(
        "{tables} tables, {} of them small enough and readable: known from the start",
        complete.max(0)
    )));
    if unreadable > 0 {
        lines.push(note(
            format!("{unreadable} tables cannot be read by this role"),
            "GRANT SELECT (or pg_read_all_data), or they are learned from the traffic.",
        ));
    }
    if large > 0 {
        lines.push(note(
            format!(
                "{large} tables have more rows than side.table_rows_max ({})",
                grouped(config.side.table_rows_max)
            ),
            "They are learned from the traffic; raise the limit if memory allows.",
        ));
    }
    for (count, what) in [
        (secured, "row security"),
        (triggered, "triggers"),
        (keyless, "no primary key"),
    ] {
        if count > 0 {
            lines.push(note(
                format!("{count} tables have {what}"),
                "Statements on them may be checked only in part.",
            ));
        }
    }
    Ok(lines)
}
