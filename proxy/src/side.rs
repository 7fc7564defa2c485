//! The side connection: reads the state to start from, then watches for writers that bypass the proxy.
//!
//! In: the configuration, and the proxy's own connections. Out: records for the trace.
//!
//! Always true: it is never needed. If it fails the proxy says so, and tables are learned from the traffic.

use crate::bootstrap::{self, Limits};
use crate::clock;
use crate::config::{Config, Writers};
use crate::leg::Leg;
use crate::live::Live;
use crate::upstream::Upstream;
use crate::writers::Watch;
use anyhow::{Context, Result};
use pgassay_audit::state::catalog::QUERIES;
use pgassay_audit::trace::{Record, Rows};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// Between two looks for foreign writers.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// When a backend was seen for the first time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(10);

/// Reads the state to start from. Meant to be waited for before the first client is let in: then nothing
/// that passes the proxy overlaps the snapshot. Takes no longer than its limits say, and a warning is the
/// worst that comes of it.
pub async fn prepare(config: &Config) -> Option<Record> {
    if !config.side.enabled {
        return None;
    }
    let limits = Limits {
        table_rows_max: config.side.table_rows_max,
        ..Limits::default()
    };
    let read = async {
        let client = connect(config).await?;
        bootstrap::read(&client, QUERIES, limits).await
    };
    match tokio::time::timeout(limits.time_max * 2, read).await {
        Ok(Ok(bootstrap)) => {
            let copied = bootstrap.tables.iter().filter(|t| t.rows.is_some()).count();
            let rows: usize = bootstrap
                .tables
                .iter()
                .filter_map(|t| t.rows.as_ref())
                .map(Rows::len)
                .sum();
            tracing::info!(
                tables = bootstrap.tables.len(),
                copied,
                rows,
                "read the state to start from"
            );
            Some(Record::Bootstrap(Box::new(bootstrap)))
        }
        Ok(Err(error)) => {
            tracing::warn!(
                "the state to start from cannot be read, so tables are learned from the traffic: {error:#} \
                 (side.uri names a role that may read; side.enabled = false silences this)"
            );
            None
        }
        Err(_) => {
            tracing::warn!(
                "reading the state to start from took too long; tables are learned from the traffic"
            );
            None
        }
    }
}

/// What is known of foreign writers without looking for them: to be told before the first client is let in.
pub fn settled(config: &Config) -> Option<Record> {
    let (exclusive, seen) = match config.audit.writers {
        Writers::Auto if config.side.enabled => return None,
        Writers::Exclusive => (true, Vec::new()),
        Writers::Auto | Writers::Shared => (
            false,
            vec!["nobody looked (audit.writers, side.enabled)".to_owned()],
        ),
    };
    Some(Record::Writers {
        at: clock::now(),
        exclusive,
        seen,
    })
}

/// Watches for foreign writers for as long as the proxy lives, where that is not settled.
pub async fn watch(live: Arc<Live>, inbox: crossbeam_channel::Sender<Record>) {
    let config = live.config.load_full();
    if settled(&config).is_some() {
        return;
    }
    let mut watch = Watch::default();
    let mut failed = false;
    loop {
        let looked = match connect(&config).await {
            Ok(client) => look(&client, &mut watch, &inbox, &live).await,
            Err(error) => Err(error),
        };
        live.side_connection_up.store(0, Relaxed);
        match looked {
            Ok(()) => return,
            Err(error) if !failed => {
                failed = true;
                tracing::warn!(
                    "the side connection is down, so foreign writers are not looked for: {error:#}"
                );
                // Nobody looked: somebody may write.
                let seen = vec!["the side connection is down".to_owned()];
                if inbox
                    .send(Record::Writers {
                        at: clock::now(),
                        exclusive: false,
                        seen,
                    })
                    .is_err()
                {
                    return;
                }
            }
            Err(_) => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Looks again and again; ends well when nobody listens any more.
async fn look(
    client: &Client,
    watch: &mut Watch,
    inbox: &crossbeam_channel::Sender<Record>,
    live: &Live,
) -> Result<()> {
    client.batch_execute("SET statement_timeout = '5s'").await?;
    loop {
        let news = watch.look(client, &live.own).await?;
        live.side_connection_up.store(1, Relaxed);
        if let Some(record) = news
            && inbox.send(record).is_err()
        {
            return Ok(());
        }
        tokio::time::sleep(if watch.is_undecided() {
            LOOK_AGAIN
        } else {
            LOOK_EVERY
        })
        .await;
    }
}

/// Connects as `side.uri` says, or to the upstream with the usual PG… variables.
pub async fn connect(config: &Config) -> Result<Client> {
    let place = config.side.uri.as_deref().unwrap_or(&config.upstream);
    let upstream = Upstream::parse(place).context("the side connection")?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = upstream
        .user
        .clone()
        .or_else(|| variable("PGUSER"))
        .or_else(|| variable("USER"))
        .unwrap_or_else(|| "postgres".to_owned());
    let mut options = tokio_postgres::Config::new();
    options.user(&user).application_name("pgassay");
    let database = upstream.database.clone().or_else(|| variable("PGDATABASE"));
    options.dbname(database.as_deref().unwrap_or(&user));
    if let Some(password) = upstream.password.clone().or_else(|| variable("PGPASSWORD")) {
        options.password(password);
    }
    let leg = upstream.connect(CONNECT, None).await?;
    let was_tls = leg.is_tls();
    let mut logged_in = log_in(&options, leg).await;
    // As for clients: `sslmode` may leave another way.
    if logged_in.as_ref().is_err_and(is_refusal) && upstream.may_connect_otherwise(was_tls) {
        logged_in = log_in(&options, upstream.connect_otherwise(CONNECT, None).await?).await;
    }
    logged_in.with_context(|| format!("cannot log in as {user}"))
}

async fn log_in(options: &tokio_postgres::Config, leg: Leg) -> Result<Client> {
    let (client, connection) = tokio::time::timeout(CONNECT, options.connect_raw(leg, NoTls))
        .await
        .context("the server does not answer")??;
    tokio::spawn(async move {
        // The client learns of it by its next question.
        if let Err(error) = connection.await {
            tracing::debug!("the side connection ended: {error}");
        }
    });
    Ok(client)
}

/// By pg_hba.conf.
fn is_refusal(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<tokio_postgres::Error>()
        .and_then(tokio_postgres::Error::code)
        == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}
