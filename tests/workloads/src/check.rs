//! The consistency checks of a workload: what must hold when no transaction is running.
//!
//! In: a query that returns the rows that break a promise. Out: the checks that returned any.

use crate::Workload;
use crate::run::{Options, spoken};
use crate::session::{Mode, Session};
use anyhow::Context;
use std::fmt;

/// One promise about the data.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    /// Returns the rows that break it; no rows when it holds.
    pub sql: String,
}

impl Check {
    pub fn new(name: impl Into<String>, sql: impl Into<String>) -> Check {
        Check {
            name: name.into(),
            sql: sql.into(),
        }
    }
}

/// A broken promise with its first offending row.
#[derive(Clone, Debug)]
pub struct Failed {
    pub check: Check,
    pub offenders: usize,
    pub first: Vec<Option<String>>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first: Vec<&str> = self
            .first
            .iter()
            .map(|cell| cell.as_deref().unwrap_or("NULL"))
            .collect();
        write!(
            f,
            "«{}» does not hold: {} rows, the first is ({})",
            self.check.name,
            self.offenders,
            first.join(", ")
        )
    }
}

/// Runs every check of the workload; returns those that do not hold.
pub async fn check(workload: &dyn Workload, options: &Options) -> anyhow::Result<Vec<Failed>> {
    let mut session = Session::connect(&options.target, Mode::Simple, options.level).await?;
    let mut failed = Vec::new();
    for check in workload.checks() {
        let answer = session
            .run(&check.sql, &[])
            .await
            .map_err(spoken)
            .with_context(|| format!("cannot run the check «{}»", check.name))?;
        if let Some(first) = answer.rows.first() {
            let first = first.iter().map(|cell| cell.0.clone()).collect();
            failed.push(Failed {
                check,
                offenders: answer.rows.len(),
                first,
            });
        }
    }
    Ok(failed)
}
