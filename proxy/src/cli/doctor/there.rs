//! What the database itself shows: whether it answers, in TLS or not, who we are there, what could be covered.

use super::{Line, bad, good, note};
use crate::cli::run::without_password;
use crate::config::Config;
use crate::side;
use crate::upstream::{SslMode, Upstream};
use pgassay_audit::report::text::grouped;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_postgres::Client;

pub(super) async fn database(config: &Config) -> Vec<Line> {
    let place = without_password(&config.upstream);
    let started = Instant::now();
    let upstream = match Upstream::parse(&config.upstream) {
        Ok(upstream) => upstream,
        Err(error) => {
            return vec![bad(
                format!("upstream makes no sense: {error:#}"),
                "Write HOST:PORT or a postgresql:// URI.",
            )];
        }
    };
    let patience = Duration::from_secs(config.proxy.connect_seconds);
    let leg = match upstream.connect(patience, None).await {
        Ok(leg) => leg,
        Err(error) => {
            return vec![bad(
                format!("{place} cannot be reached: {error:#}"),
                "Is the server running, the address right, and TLS as `sslmode` in the URI says?",
            )];
        }
    };
    let mut lines = vec![
        good(format!("{place} answers ({} ms)", started.elapsed().as_millis())),
        encryption(&upstream, leg.is_tls()),
    ];
    drop(leg);
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

fn encryption(upstream: &Upstream, is_tls: bool) -> Line {
    let (mode, root) = (upstream.ssl.mode, upstream.ssl.root.is_some());
    match is_tls {
        false => good(format!("the server is spoken to without TLS (sslmode={mode})")),
        true if mode >= SslMode::VerifyCa || root => good(format!(
            "the server is spoken to in TLS, its certificate is checked (sslmode={mode})"
        )),
        true => note(
            format!("the server is spoken to in TLS, whoever it is (sslmode={mode})"),
            "Use sslmode=verify-full and sslrootcert, so that nobody else can answer in its place.",
        ),
    }
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
            "sessions are connected to this database already: {}",
            who.join(", ")
        ),
        "Those that do not come through pgassay may change rows behind its back; while they stay, less can be checked. \
         (A pgassay that is running shows its own clients here, too.)",
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
