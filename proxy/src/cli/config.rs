//! `pgassay config show`: the effective configuration and where each value came from.

use crate::config::{Loaded, Origin};
use clap::Subcommand;
use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print every key with its value and its origin
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args, loaded: Loaded) -> anyhow::Result<ExitCode> {
    let Command::Show { json } = args.command;
    let text = if json { as_json(&loaded) } else { as_text(&loaded) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn as_text(loaded: &Loaded) -> String {
    let entries = loaded.entries();
    let lines: Vec<(String, &Origin)> = entries
        .iter()
        .map(|(key, value, origin)| {
            let value = if value.is_null() {
                "(unset)".to_owned()
            } else {
                value.to_string()
            };
            (format!("{key} = {value}"), origin)
        })
        .collect();
    let width = lines
        .iter()
        .map(|(line, _)| line.chars().count())
        .max()
        .unwrap_or(0)
        .min(64);
    lines
        .iter()
        .map(|(line, origin)| format!("{line:width$}  # {origin}\n"))
        .collect()
}

fn as_json(loaded: &Loaded) -> String {
    let object: serde_json::Map<String, Value> = loaded
        .entries()
        .into_iter()
        .map(|(key, value, origin)| {
            (
                key,
                serde_json::json!({ "value": value, "origin": origin.to_string() }),
            )
        })
        .collect();
    let mut text = serde_json::to_string_pretty(&object).expect("a map is plain data");
    text.push('\n');
    text
}
