//! The command line: one file per subcommand.
//!
//! Exit codes: 0 fine, 1 a violation or a failure, 2 wrong usage (a flag or the configuration), 3 too
//! little coverage.

pub mod proxy;
pub mod run;
pub mod check;
pub mod trace;
pub mod explain;
pub mod replay;
pub mod workload;
pub mod demo;
pub mod doctor;
pub mod alerts;
pub mod config;
pub mod completions;
pub mod man;
mod log;
mod report;
mod child;
mod wait;

use crate::config::{Loaded, Override};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// A transparent PostgreSQL proxy that audits every answer.
///
/// Point an application at pgassay instead of at its database. Nothing changes for it, while pgassay
/// records every statement and asks: could any correct database have answered like this?
#[derive(Debug, Parser)]
#[command(
    name = "pgassay",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        pgassay proxy --listen 127.0.0.1:6432 --upstream 127.0.0.1:5432 --journal ./journal\n  \
        pgassay run --upstream postgresql://127.0.0.1/app -- make test\n  \
        pgassay check ./journal\n  \
        pgassay demo"
)]
pub struct Cli {
    /// Configuration file (TOML)
    #[arg(long, global = true, env = "PGASSAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any key of the configuration, e.g. --set journal.flush_ms=200
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stand between clients and their database; record and audit
    Proxy(proxy::Args),
    /// Run a command against a proxied database and fail on violations
    Run(run::Args),
    /// Audit a journal, a trace or another tool's history
    Check(check::Args),
    /// Look into a journal: show, stats, cut, cat
    Trace(trace::Args),
    /// Tell the story of a violation
    Explain(explain::Args),
    /// Execute an interleaved script and say whether the violation shows again
    Replay(replay::Args),
    /// Drive a database with a built-in workload
    Workload(workload::Args),
    /// A throw-away database, the proxy and a workload, to look at
    Demo(demo::Args),
    /// Check the set-up: each line says what is wrong and what to do
    Doctor(doctor::Args),
    /// Print the Prometheus alert rules
    Alerts(alerts::Args),
    /// Look at the configuration
    Config(config::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print the manual page
    Man(man::Args),
}

/// Runs the command; errors are told on stderr.
pub fn main(cli: Cli) -> ExitCode {
    let loaded = match load(&cli) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("pgassay: {error:#}");
            return ExitCode::from(2);
        }
    };
    log::start(&log_of(&cli.command, &loaded));
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let config = loaded.config.clone();
    let done = match cli.command {
        Command::Proxy(args) => proxy::run(args, loaded),
        Command::Run(args) => run::run(args, config),
        Command::Check(args) => check::run(args, config),
        Command::Trace(args) => trace::run(args, config),
        Command::Explain(args) => explain::run(args, config),
        Command::Replay(args) => replay::run(args, config),
        Command::Workload(args) => workload::run(args, config),
        Command::Demo(args) => demo::run(args, config),
        Command::Doctor(args) => doctor::run(args, config),
        Command::Alerts(args) => alerts::run(args, config),
        Command::Config(args) => self::config::run(args, loaded),
        Command::Completions(args) => completions::run(args, config),
        Command::Man(args) => man::run(args, config),
    };
    done.unwrap_or_else(|error| {
        eprintln!("pgassay: {error:#}");
        match error.downcast_ref::<Usage>() {
            Some(_) => ExitCode::from(2),
            None => ExitCode::FAILURE,
        }
    })
}

/// Only the proxy tells of its daily life; commands that end speak for themselves.
fn log_of(command: &Command, loaded: &Loaded) -> crate::config::Log {
    let mut log = loaded.config.log.clone();
    if !matches!(command, Command::Proxy(_)) && !loaded.origins.contains_key("log.level") {
        log.level = "warn,pgassay::violations=off".to_owned();
    }
    log
}

/// The user asked for something that makes no sense: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

fn load(cli: &Cli) -> anyhow::Result<Loaded> {
    let mut flags = match &cli.command {
        Command::Proxy(args) => args.overrides(),
        _ => Vec::new(),
    };
    for text in &cli.set {
        flags.push(Override::parse(text)?);
    }
    Loaded::load(cli.config.as_deref(), flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }
}
