//! Reads the state to start from: catalog, settings and the contents of tables, in one snapshot.
//!
//! In: a side connection to the server. Out: a [`Bootstrap`] record, whose snapshot point lies in its window.
//!
//! Always true:
//!   - it only reads, in one READ ONLY transaction with a statement and a lock timeout;
//!   - a table is locked (ACCESS SHARE) only while it is being copied: the savepoint around each copy is
//!     rolled back, which gives the lock back at once;
//!   - a copy is complete or absent. It is absent if the table is too large, if time is up, if the role may
//!     not read all of it (privileges, row security), or if the table was rewritten or truncated since the
//!     snapshot, because such a table looks empty to an older snapshot.

use crate::clock;
use anyhow::{Context, Result, bail};
use pgassay_audit::state::catalog::{QUERIES, VERSION};
use pgassay_audit::trace::{
    Bootstrap, CatalogPart, CatalogRead, Packer, Reread, Rows, TableCopy, TableName, Window,
};
use pgassay_audit::withhold::{Wanted, version_of};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, SimpleQueryMessage};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of one table.
    pub table_rows_max: u64,
    pub table_bytes_max: u64,
    /// Of all tables together.
    pub bytes_max: u64,
    /// No copy is begun after this long, and none goes on for half as long again.
    pub time_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            table_rows_max: 1_000_000,
            table_bytes_max: 256 << 20,
            bytes_max: 1 << 30,
            time_max: Duration::from_secs(20),
        }
    }
}

type Answer = Vec<Vec<Option<String>>>;

/// Settings of the side connection that decide how values look as text. What differs from them in a
/// client's session is that session's affair.
const LOOKS: &str = "SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; \
    SET bytea_output = 'hex'; SET extra_float_digits = 3; SET search_path = pg_catalog; \
    SET client_encoding = 'UTF8'; SET row_security = off";

const FETCH_ROWS: usize = 5_000;

/// Nothing takes longer than this, or waits longer for a lock.
const PATIENCE: &str = "SET statement_timeout = '30s'; SET lock_timeout = '5s'; \
    SET idle_in_transaction_session_timeout = '60s'";
/// Nobody waits that long for a single table.
const PATIENCE_PER_TABLE: &str = "SET lock_timeout = '500ms'";

/// What was read again, in one snapshot.
pub struct Again {
    /// `None` if nobody asked for it, or if it was changed while it was read.
    pub catalog: Option<CatalogRead>,
    pub tables: Reread,
}

/// Reads some tables again, those that can be had of them, and the catalog, if it is wanted.
pub async fn read_again(
    client: &Client,
    names: &[TableName],
    wanted: Option<&Wanted>,
    limits: Limits,
) -> Result<Again> {
    let began = Instant::now();
    client.batch_execute(PATIENCE).await?;
    client.batch_execute(LOOKS).await?;
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let read = async {
        let sent = clock::now();
        rows(client, "SELECT pg_catalog.pg_current_snapshot()")
            .await
            .context("taking the snapshot")?;
        let window = Window::new(sent, clock::now());
        let catalog = match wanted {
            Some(wanted) => catalog(client, wanted).await?,
            None => Vec::new(),
        };
        let mut lost = list(client).await.context("listing tables")?;
        lost.retain(|table| names.contains(&table.called));
        let called: Vec<(u32, TableName)> = lost.iter().map(|t| (t.oid, t.called.clone())).collect();
        let copies = copies(client, lost, limits, began).await?;
        let tables = copies
            .into_iter()
            .filter(|copy| copy.rows.is_some())
            .filter_map(|copy| {
                let (_, name) = called.iter().find(|(oid, _)| *oid == copy.oid)?;
                Some((name.clone(), copy))
            });
        anyhow::Ok((window, catalog, tables.collect()))
    };
    let read = read.await;
    // Whatever happened, nothing stays open.
    client.batch_execute("ROLLBACK").await?;
    let (window, catalog, tables) = read?;
    let is_whole = wanted.is_some() && is_still(client, &catalog).await?;
    let settings = match catalog.len() {
        0 | 1 => Vec::new(),
        _ => settings(client).await.context("reading pg_settings")?,
    };
    let at = clock::now() + DUE_AFTER.as_nanos() as u64;
    Ok(Again {
        catalog: is_whole.then_some(CatalogRead {
            at,
            window,
            settings,
            catalog,
        }),
        tables: Reread { at, window, tables },
    })
}

/// The catalog; nothing but its version, if that is known.
async fn catalog(client: &Client, wanted: &Wanted) -> Result<Vec<CatalogPart>> {
    let version = rows(client, VERSION)
        .await
        .context("reading the version of the catalog")?;
    let mut parts = vec![("version".to_owned(), version)];
    if wanted.known.as_deref() == version_of(&parts) {
        return Ok(parts);
    }
    for (name, sql) in QUERIES.iter().filter(|(name, _)| *name != "version") {
        let rows = rows(client, sql)
            .await
            .with_context(|| format!("reading the catalog ({name})"))?;
        parts.push(((*name).to_owned(), rows));
    }
    Ok(parts)
}

/// Whether the catalog is what it was when it was read. Definitions are written out by the server as they are now, not
/// as they were in the snapshot: what was changed meanwhile cannot be relied on.
async fn is_still(client: &Client, parts: &[CatalogPart]) -> Result<bool> {
    let version = rows(client, VERSION)
        .await
        .context("reading the version of the catalog")?;
    let now = vec![("version".to_owned(), version)];
    Ok(version_of(&now) == version_of(parts))
}

/// By then everything that was sent before has been recorded.
const DUE_AFTER: Duration = Duration::from_secs(1);

/// `queries` name the parts of the catalog, as `pgassay_audit::state::catalog::QUERIES` does.
pub async fn read(client: &Client, queries: &[(&str, &str)], limits: Limits) -> Result<Bootstrap> {
    let began = Instant::now();
    client.batch_execute(PATIENCE).await?;
    let settings = settings(client).await.context("reading pg_settings")?;
    client.batch_execute(LOOKS).await?;
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let read = read_snapshot(client, queries, limits, began, settings).await;
    // Whatever happened, nothing stays open.
    client.batch_execute("ROLLBACK").await?;
    let mut bootstrap = read?;
    if version_of(&bootstrap.catalog).is_some() && !is_still(client, &bootstrap.catalog).await? {
        bootstrap.catalog.retain(|(name, _)| name != "version");
    }
    client.batch_execute("RESET ALL").await?;
    Ok(bootstrap)
}

async fn read_snapshot(
    client: &Client,
    queries: &[(&str, &str)],
    limits: Limits,
    began: Instant,
    settings: Vec<(String, String)>,
) -> Result<Bootstrap> {
    // The first statement takes the snapshot. Open transactions are those that hold a virtual transaction
    // id, which everybody may see, and the prepared ones.
    let sent = clock::now();
    let first = rows(
        client,
        "SELECT (SELECT count(DISTINCT l.virtualtransaction) FROM pg_locks l \
                 JOIN pg_stat_activity a ON a.pid = l.pid \
                 WHERE l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_backend_pid() \
                   AND a.datname = current_database() AND a.usesysid IS NOT NULL) \
              + (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()), \
         current_setting('server_version')",
    )
    .await
    .context("taking the snapshot")?;
    let window = Window::new(sent, clock::now());
    let cell = |i: usize| {
        first
            .first()
            .and_then(|row| row.get(i).cloned().flatten())
            .unwrap_or_default()
    };
    let open_transactions = cell(0).parse().unwrap_or(u32::MAX);
    let server_version = cell(1);

    let mut catalog = Vec::new();
    for (name, sql) in queries {
        let rows = rows(client, sql)
            .await
            .with_context(|| format!("reading the catalog ({name})"))?;
        catalog.push(((*name).to_owned(), rows));
    }
    let tables = list(client).await.context("listing tables")?;
    let tables = copies(client, tables, limits, began).await?;
    Ok(Bootstrap {
        window,
        server_version,
        settings,
        catalog,
        tables,
        open_transactions,
    })
}

/// Copies tables in the snapshot that was taken.
async fn copies(
    client: &Client,
    tables: Vec<Table>,
    limits: Limits,
    began: Instant,
) -> Result<Vec<TableCopy>> {
    client.batch_execute(PATIENCE_PER_TABLE).await?;
    let mut copied = Vec::new();
    let mut left = limits.bytes_max;
    for table in tables {
        let timely = began.elapsed() < limits.time_max;
        let copy = if timely && table.may_fit(limits) {
            let allowed = Limits {
                table_bytes_max: limits.table_bytes_max.min(left),
                ..limits
            };
            table.copy(client, allowed, began).await?
        } else {
            None
        };
        let rows = match copy {
            Some((rows, bytes)) => {
                left = left.saturating_sub(bytes);
                Some(rows)
            }
            None => {
                tracing::info!(table = table.name, "not copied; it is learned from the traffic");
                None
            }
        };
        copied.push(TableCopy {
            oid: table.oid,
            columns: table.columns,
            rows,
        });
    }
    copied.sort_by_key(|table| table.oid);
    Ok(copied)
}

/// Every setting as a new session gets it, and the name of the database.
async fn settings(client: &Client) -> Result<Vec<(String, String)>> {
    let read = rows(
        client,
        "SELECT 'database', current_database() UNION ALL \
         (SELECT name, coalesce(reset_val, setting) FROM pg_settings \
          WHERE name NOT IN ('application_name', 'statement_timeout', 'lock_timeout', \
                             'idle_in_transaction_session_timeout') ORDER BY name)",
    )
    .await?;
    Ok(read
        .into_iter()
        .filter_map(|row| match <[Option<String>; 2]>::try_from(row) {
            Ok([Some(name), Some(value)]) => Some((name, value)),
            _ => None,
        })
        .collect())
}

struct Table {
    oid: u32,
    /// Quoted, with its schema.
    name: String,
    called: TableName,
    columns: Vec<String>,
    /// Quoted, in order.
    select: String,
    estimated_rows: f64,
    bytes: u64,
}

/// Tables that hold rows: partitions rather than what they are part of; the smallest first.
async fn list(client: &Client) -> Result<Vec<Table>> {
    let read = rows(
        client,
        "SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.reltuples, \
                c.relpages::bigint * current_setting('block_size')::bigint, \
                (SELECT string_agg(quote_ident(a.attname), ',' ORDER BY a.attnum) FROM pg_attribute a \
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), \
                (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a \
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), \
                has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'), \
                n.nspname, c.relname \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname <> 'information_schema' \
           AND n.nspname !~ '^pg_' ORDER BY 4, 1",
    )
    .await?;
    let mut tables = Vec::new();
    for row in read {
        let mut cells = row.into_iter();
        let mut next = || cells.next().flatten();
        let (oid, name, rows, bytes) = (next(), next(), next(), next());
        let (select, columns, allowed) = (next(), next(), next());
        let (schema, called) = (next(), next());
        let Some(oid) = oid.and_then(|oid| oid.parse().ok()) else {
            bail!("a table without an oid")
        };
        let bytes = bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(u64::MAX);
        tables.push(Table {
            oid,
            name: name.unwrap_or_default(),
            called: TableName {
                schema: schema.unwrap_or_default(),
                name: called.unwrap_or_default(),
            },
            columns: columns
                .map(|json| serde_json::from_str(&json))
                .transpose()?
                .unwrap_or_default(),
            select: select.unwrap_or_default(),
            estimated_rows: rows.and_then(|rows| rows.parse().ok()).unwrap_or(-1.0),
            bytes: if allowed.as_deref() == Some("t") {
                bytes
            } else {
                u64::MAX
            },
        });
    }
    Ok(tables)
}

impl Table {
    /// Judged by statistics that may be old: the copy itself counts.
    fn may_fit(&self, limits: Limits) -> bool {
        self.estimated_rows <= limits.table_rows_max as f64 * 1.5
            && self.bytes <= limits.table_bytes_max.saturating_mul(8)
    }

    /// The rows, and how many bytes of text they are; `None` if they cannot be had, or are too many.
    async fn copy(&self, client: &Client, limits: Limits, began: Instant) -> Result<Option<(Rows, u64)>> {
        client.batch_execute("SAVEPOINT pgassay_table").await?;
        let copied = self.copy_within(client, limits, began).await;
        client
            .batch_execute("ROLLBACK TO pgassay_table; RELEASE pgassay_table")
            .await?;
        copied.or_else(|error| {
            // The server said no to this table; only a broken connection ends the whole.
            if error
                .downcast_ref::<tokio_postgres::Error>()
                .is_some_and(|e| e.as_db_error().is_some())
            {
                tracing::info!(table = self.name, "cannot be copied: {error:#}");
                return Ok(None);
            }
            Err(error)
        })
    }

    async fn copy_within(
        &self,
        client: &Client,
        limits: Limits,
        began: Instant,
    ) -> Result<Option<(Rows, u64)>> {
        let declare = format!(
            "DECLARE pgassay_rows NO SCROLL CURSOR FOR SELECT {} FROM ONLY {}",
            self.select, self.name
        );
        client.batch_execute(&declare).await?;
        let fetch = format!("FETCH {FETCH_ROWS} FROM pgassay_rows");
        let mut packer = Packer::default();
        loop {
            let before = packer.len();
            for message in client.simple_query(&fetch).await? {
                if let SimpleQueryMessage::Row(row) = message {
                    packer.push((0..row.len()).map(|i| row.get(i)));
                }
            }
            let too_large =
                packer.len() as u64 > limits.table_rows_max || packer.text_len() > limits.table_bytes_max;
            if too_large || began.elapsed() > limits.time_max * 3 / 2 {
                return Ok(None);
            }
            if packer.len() - before < FETCH_ROWS {
                break;
            }
        }
        // The lock is still held. pg_class is read in the snapshot, the function looks at the present.
        let same = rows(
            client,
            &format!(
                "SELECT relfilenode = pg_relation_filenode(oid) FROM pg_class WHERE oid = {}",
                self.oid
            ),
        )
        .await?;
        let same = same.first().and_then(|row| row.first().cloned().flatten());
        let bytes = packer.text_len();
        Ok((same.as_deref() == Some("t")).then(|| (packer.finish(), bytes)))
    }
}

/// All rows of one statement, as text.
pub(crate) async fn rows(client: &Client, sql: &str) -> Result<Answer> {
    let messages = client.simple_query(sql).await?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect())
            }
            _ => None,
        })
        .collect())
}
