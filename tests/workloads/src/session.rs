//! One application session: statements in, answers out, in the protocol mode that was asked for.
//!
//! Always true:
//!   - the SQL text of a workload is the same in every mode; only the way it is sent differs;
//!   - every explicit block names its isolation level in BEGIN, and the session's default is set to it as well,
//!     so that statements outside of a block run at the same level.

use crate::value::{Cell, Param, interpolate};
use anyhow::{Context, bail};
use pgassay_rules::Level;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, Statement};

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Simple queries with literals.
    Simple,
    /// The extended protocol; every statement is parsed anew.
    #[default]
    Extended,
    /// The extended protocol; every statement is parsed once per session.
    Prepared,
    /// Prepared calls of stored procedures, where the workload has them.
    Procedures,
}

impl Mode {
    pub const ALL: [Mode; 4] = [Mode::Simple, Mode::Extended, Mode::Prepared, Mode::Procedures];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Simple => "simple",
            Mode::Extended => "extended",
            Mode::Prepared => "prepared",
            Mode::Procedures => "procedures",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Mode> {
        match Mode::ALL.into_iter().find(|mode| mode.name() == text) {
            Some(mode) => Ok(mode),
            None => bail!("there is no mode «{text}»; known modes: simple, extended, prepared, procedures"),
        }
    }
}

/// The rows of an answer and the number in its command tag.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub rows: Vec<Vec<Cell>>,
    pub affected: u64,
}

impl Answer {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text in a cell of a row; `None` for NULL and for a row that is not there.
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.get(row)?.get(column)?.0.as_deref()
    }

    pub fn int(&self, row: usize, column: usize) -> Option<i64> {
        self.text(row, column)?.parse().ok()
    }

    /// A numeric as units of `10^-scale`.
    pub fn units(&self, row: usize, column: usize, scale: u32) -> Option<i64> {
        crate::value::units(self.text(row, column)?, scale)
    }
}

pub struct Session {
    client: Client,
    connection: JoinHandle<()>,
    mode: Mode,
    level: Level,
    is_in_block: bool,
    prepared: HashMap<String, Statement>,
}

impl Session {
    /// Connects and makes `level` the default of the session.
    pub async fn connect(target: &str, mode: Mode, level: Level) -> anyhow::Result<Session> {
        let (client, connection) = tokio_postgres::connect(target, NoTls)
            .await
            .with_context(|| format!("cannot connect to «{}»", without_password(target)))?;
        let connection = tokio::spawn(async move {
            // An error of the connection reaches the statement that waits for it.
            let _ = connection.await;
        });
        let session = Session {
            client,
            connection,
            mode,
            level,
            is_in_block: false,
            prepared: HashMap::new(),
        };
        let set = format!(
            "SET default_transaction_isolation = '{}'",
            sql_name(level).to_ascii_lowercase()
        );
        session
            .client
            .batch_execute(&set)
            .await
            .context("cannot set the isolation level of the session")?;
        Ok(session)
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn level(&self) -> Level {
        self.level
    }

    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    pub async fn begin(&mut self) -> Result<(), tokio_postgres::Error> {
        let begin = format!("BEGIN ISOLATION LEVEL {}", sql_name(self.level));
        self.client.batch_execute(&begin).await?;
        self.is_in_block = true;
        Ok(())
    }

    pub async fn begin_read_only(&mut self) -> Result<(), tokio_postgres::Error> {
        let begin = format!("BEGIN ISOLATION LEVEL {} READ ONLY", sql_name(self.level));
        self.client.batch_execute(&begin).await?;
        self.is_in_block = true;
        Ok(())
    }

    pub async fn commit(&mut self) -> Result<(), tokio_postgres::Error> {
        // Whatever comes back, the block is over.
        self.is_in_block = false;
        self.client.batch_execute("COMMIT").await
    }

    /// Ends a block, if one is open.
    pub async fn rollback(&mut self) -> Result<(), tokio_postgres::Error> {
        if !std::mem::take(&mut self.is_in_block) {
            return Ok(());
        }
        self.client.batch_execute("ROLLBACK").await
    }

    /// Runs statements without parameters or interest in their answers: DDL, session settings.
    pub async fn batch(&mut self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    /// Runs one statement.
    pub async fn run(&mut self, sql: &str, params: &[Param]) -> Result<Answer, tokio_postgres::Error> {
        match self.mode {
            Mode::Simple => self.run_simple(&interpolate(sql, params)).await,
            Mode::Extended => {
                let statement = self.client.prepare(sql).await?;
                self.run_prepared(&statement, params).await
            }
            Mode::Prepared | Mode::Procedures => {
                let statement = match self.prepared.get(sql) {
                    Some(statement) => statement.clone(),
                    None => {
                        let statement = self.client.prepare(sql).await?;
                        self.prepared.insert(sql.to_owned(), statement.clone());
                        statement
                    }
                };
                self.run_prepared(&statement, params).await
            }
        }
    }

    /// Inserts many rows with as few statements as is usual: `INSERT … VALUES (…), (…), …`.
    pub async fn load(&mut self, into: &str, rows: Vec<Vec<Param>>) -> Result<(), tokio_postgres::Error> {
        for chunk in rows.chunks(500) {
            let values: Vec<String> = chunk
                .iter()
                .map(|row| {
                    format!(
                        "({})",
                        row.iter().map(Param::literal).collect::<Vec<_>>().join(", ")
                    )
                })
                .collect();
            self.client
                .batch_execute(&format!("INSERT INTO {into} VALUES {}", values.join(", ")))
                .await?;
        }
        Ok(())
    }

    async fn run_simple(&mut self, sql: &str) -> Result<Answer, tokio_postgres::Error> {
        let mut answer = Answer::default();
        for message in self.client.simple_query(sql).await? {
            match message {
                SimpleQueryMessage::Row(row) => {
                    answer.rows.push(
                        (0..row.len())
                            .map(|at| Cell(row.get(at).map(str::to_owned)))
                            .collect(),
                    );
                }
                SimpleQueryMessage::CommandComplete(count) => answer.affected = count,
                _ => {}
            }
        }
        Ok(answer)
    }

    async fn run_prepared(
        &self,
        statement: &Statement,
        params: &[Param],
    ) -> Result<Answer, tokio_postgres::Error> {
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
        if statement.columns().is_empty() {
            let affected = self.client.execute(statement, &params).await?;
            return Ok(Answer {
                rows: Vec::new(),
                affected,
            });
        }
        let rows = self.client.query(statement, &params).await?;
        let mut answer = Answer {
            rows: Vec::with_capacity(rows.len()),
            affected: rows.len() as u64,
        };
        for row in rows {
            let cells = (0..row.len())
                .map(|at| row.try_get::<_, Cell>(at))
                .collect::<Result<_, _>>()?;
            answer.rows.push(cells);
        }
        Ok(answer)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Let the statements' Close and the Terminate go out: the task ends by itself once the client is gone.
        self.prepared.clear();
        if self.client.is_closed() {
            self.connection.abort();
        }
    }
}

/// The level as SQL spells it.
pub fn sql_name(level: Level) -> &'static str {
    match level {
        Level::ReadCommitted => "READ COMMITTED",
        Level::RepeatableRead => "REPEATABLE READ",
        _ => "SERIALIZABLE",
    }
}

/// A target for messages to people: passwords stay out.
fn without_password(target: &str) -> String {
    let Some((scheme, rest)) = target.split_once("://") else {
        let kept = target
            .split_whitespace()
            .filter(|word| !word.starts_with("password"));
        return kept.collect::<Vec<_>>().join(" ");
    };
    match rest.split_once('@') {
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}")
        }
        None => target.to_owned(),
    }
}
