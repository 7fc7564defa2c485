//! The server's side: evaluates expressions, many at a time, errors included.

use super::Answer;
use super::expression::{COLUMNS, with_typmod};
use super::literals::quoted;
use anyhow::{Context as _, Result};
use std::error::Error;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Separates the fields of an answer; no literal holds it.
const FIELD: char = '\u{1f}';

pub struct Server {
    client: Client,
}

/// The bytes of a value as they came.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> std::result::Result<Raw, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Server {
    /// Connects to a cluster and makes a database whose text is ordered by bytes, with a clock in UTC.
    pub async fn prepare(uri: &str) -> Result<Server> {
        let admin = connect(uri).await?;
        admin.batch_execute("DROP DATABASE IF EXISTS fuzz_values").await?;
        admin
            .batch_execute("CREATE DATABASE fuzz_values TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
            .await
            .context("cannot create the database of the value tests")?;
        let client = connect(
            &uri.replace("/postgres", "/fuzz_values")
                .replace("://fuzz_values", "://postgres"),
        )
        .await?;
        client
            .batch_execute(
                "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres';
                 SET extra_float_digits = 1; SET bytea_output = 'hex'; SET client_min_messages = error;
                 SET statement_timeout = '180s';
                 CREATE FUNCTION assigned(name text, expression text) RETURNS text LANGUAGE plpgsql AS $$
                 DECLARE answer text;
                 BEGIN
                   EXECUTE format('INSERT INTO %I VALUES (%s) RETURNING CASE WHEN c IS NOT NULL THEN concat(c) END',
                                  name, expression) INTO answer;
                   RETURN answer;
                 END $$;
                 CREATE FUNCTION attempt(expression text) RETURNS text LANGUAGE plpgsql AS $$
                 DECLARE answer text;
                 BEGIN
                   EXECUTE 'SELECT CASE WHEN x IS NULL THEN ''N'' ELSE ''V'' END || chr(31) || pg_typeof(x) || chr(31)
                            || concat(x) FROM (SELECT ' || expression || ' AS x) q' INTO answer;
                   RETURN answer;
                 EXCEPTION WHEN OTHERS THEN RETURN 'E' || chr(31) || SQLSTATE;
                 END $$",
            )
            .await?;
        for (type_oid, typmod) in COLUMNS {
            let name = with_typmod(*type_oid, *typmod);
            client
                .batch_execute(&format!("CREATE UNLOGGED TABLE \"{name}\" (c {name})"))
                .await?;
        }
        Ok(Server { client })
    }

    /// The answers to expressions, in their order.
    pub async fn evaluate(&self, expressions: &[String]) -> Result<Vec<Answer>> {
        let statement = format!(
            "SELECT attempt(e) FROM unnest(ARRAY[{}]) WITH ORDINALITY AS u(e, n) ORDER BY n",
            expressions
                .iter()
                .map(|sql| quoted(sql))
                .collect::<Vec<_>>()
                .join(", ")
        );
        let rows = self
            .client
            .simple_query(&statement)
            .await
            .context("a batch of expressions failed as a whole")?;
        let mut answers = Vec::with_capacity(expressions.len());
        for message in rows {
            if let SimpleQueryMessage::Row(row) = message {
                answers.push(read(row.get(0).context("an answer is never NULL")?));
            }
        }
        Ok(answers)
    }

    /// A constant as text and as binary; `None` where the server refuses it.
    pub async fn forms(&self, expression: &str) -> Option<(String, Vec<u8>)> {
        let text = self
            .client
            .simple_query(&format!("SELECT {expression}"))
            .await
            .ok()?;
        let text = text.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })?;
        let row = self
            .client
            .query_one(&format!("SELECT {expression}"), &[])
            .await
            .ok()?;
        Some((text, row.try_get::<_, Raw>(0).ok()?.0))
    }
}

async fn connect(uri: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(uri, NoTls).await?;
    tokio::spawn(async move {
        // The client's own calls report what goes wrong.
        let _ = connection.await;
    });
    Ok(client)
}

fn read(line: &str) -> Answer {
    let mut fields = line.splitn(3, FIELD);
    let (kind, second) = (
        fields.next().unwrap_or(""),
        fields.next().unwrap_or("").to_owned(),
    );
    let rest = fields.next().unwrap_or("").to_owned();
    match kind {
        "E" => Answer::Error(second),
        "N" => Answer::Text {
            text: None,
            type_name: second,
        },
        _ => Answer::Text {
            text: Some(rest),
            type_name: second,
        },
    }
}
