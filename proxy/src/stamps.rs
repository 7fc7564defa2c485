//! Commit timestamps: from the xid of a COMMIT to the time that the server noted for it.
//!
//! In: commits of known xid (see `inject`), and the side connection. Out: [`Record::CommitTimestamp`].
//!
//! Always true:
//!   - nobody asks for an xid unless this connection is up, the server keeps commit timestamps, and everybody
//!     may call the function that is asked: so the question cannot fail for a reason that could be known;
//!   - a timestamp is a hint: one that is lost (too many wait, the connection is down) is not missed.

use crate::inject::Permission;
use crate::live::Live;
use crate::side;
use anyhow::{Context, Result, bail};
use pgassay_audit::trace::Record;
use pgassay_audit::wire::Commit;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_postgres::Client;

/// Commits that may wait to be looked up.
const WAITING_MAX: usize = 1 << 16;
/// Between two looks: many commits share one.
const GATHER: Duration = Duration::from_millis(100);
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// PostgreSQL 13 and later have the function; a revoked privilege would make every COMMIT fail.
const READY: &str = "\
    SELECT pg_catalog.current_setting('track_commit_timestamp'), \
           pg_catalog.to_regprocedure('pg_catalog.pg_current_xact_id_if_assigned()') IS NOT NULL, \
           COALESCE(pg_catalog.has_function_privilege('public', \
               pg_catalog.to_regprocedure('pg_catalog.pg_current_xact_id_if_assigned()')::oid, 'EXECUTE') \
             AND pg_catalog.has_schema_privilege('public', 'pg_catalog', 'USAGE'), false)";

const LOOK_UP: &str = "\
    SELECT n, (EXTRACT(epoch FROM pg_catalog.pg_xact_commit_timestamp(x::xid8::xid)) * 1000000)::int8 \
    FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS asked(x, n)";

pub fn channel() -> (Sender<Commit>, Receiver<Commit>) {
    tokio::sync::mpsc::channel(WAITING_MAX)
}

/// Looks commits up for as long as the proxy lives.
pub async fn look_up(
    live: Arc<Live>,
    mut commits: Receiver<Commit>,
    inbox: crossbeam_channel::Sender<Record>,
) {
    let mut said = String::new();
    loop {
        let ended = serve(&live, &mut commits, &inbox).await;
        live.xids.granted.store(false, Relaxed);
        match ended {
            Ok(()) => return,
            Err(error) => {
                let words = format!("{error:#}");
                if words != said {
                    tracing::warn!("commit timestamps are not asked for: {words}");
                    said = words;
                }
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Ends well when nobody sends or listens any more.
async fn serve(
    live: &Live,
    commits: &mut Receiver<Commit>,
    inbox: &crossbeam_channel::Sender<Record>,
) -> Result<()> {
    let client = side::connect(&live.config.load_full()).await?;
    client.batch_execute("SET statement_timeout = '5s'").await?;
    allow(&client, &live.xids).await?;
    let statement = client.prepare(LOOK_UP).await?;
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            received = commits.recv_many(&mut waiting, 1 << 12) => {
                if received == 0 {
                    return Ok(());
                }
            }
            () = closed(&client) => bail!("the side connection was closed"),
        }
        tokio::time::sleep(GATHER).await;
        while let Ok(commit) = commits.try_recv() {
            waiting.push(commit);
        }
        let asked: Vec<String> = waiting.iter().map(|commit| commit.xid.to_string()).collect();
        let rows = client.query(&statement, &[&asked]).await;
        for row in rows.context("pg_xact_commit_timestamp")? {
            let (place, unix_micros): (i64, Option<i64>) = (row.get(0), row.get(1));
            // Nothing is noted for what was rolled back after all.
            let (Some(unix_micros), Some(commit)) = (unix_micros, waiting.get(place as usize - 1)) else {
                continue;
            };
            let record = Record::CommitTimestamp {
                session: commit.session,
                group: commit.group,
                at: commit.at,
                xid: commit.xid,
                unix_micros,
            };
            if inbox.send(record).is_err() {
                return Ok(());
            }
        }
        waiting.clear();
    }
}

async fn allow(client: &Client, permission: &Permission) -> Result<()> {
    let row = client.query_one(READY, &[]).await?;
    if row.get::<_, &str>(0) != "on" {
        bail!("the server has track_commit_timestamp = off (changing it needs a restart of the server)");
    }
    if !row.get::<_, bool>(1) {
        bail!("the server has no pg_current_xact_id_if_assigned(); PostgreSQL 13 and later do");
    }
    if !row.get::<_, bool>(2) {
        bail!("not everybody may call pg_current_xact_id_if_assigned() on this server");
    }
    permission.granted.store(true, Relaxed);
    tracing::info!("the xid of every explicit COMMIT is asked for along with it");
    Ok(())
}

async fn closed(client: &Client) {
    while !client.is_closed() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
