//! RESULTS.md with its plots, made from all tables that there are; nothing in it is written by hand.

use crate::CHAPTERS;
use crate::report::{commit, date, duration};
use crate::sheet::Sheet;
use anyhow::Context;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The last run of all tables: its command and how long each took.
pub struct Whole {
    path: PathBuf,
    facts: Value,
}

impl Whole {
    pub fn begin(results: &Path, command: &str) -> anyhow::Result<Whole> {
        let facts = json!({ "command": command, "began": date(), "commit": commit(), "tables": [], "is_over": false });
        let path = results.join("whole.json");
        fs::write(&path, facts.to_string()).context("cannot write results")?;
        Ok(Whole { path, facts })
    }

    pub fn took(&mut self, name: &str, seconds: f64) -> anyhow::Result<()> {
        if let Some(tables) = self.facts["tables"].as_array_mut() {
            tables.push(json!([name, seconds.round()]));
        }
        self.facts["is_over"] = json!(self.facts["tables"].as_array().map_or(0, Vec::len) == CHAPTERS.len());
        fs::write(&self.path, self.facts.to_string()).context("cannot write results")
    }
}

fn told(results: &Path) -> String {
    let read = fs::read_to_string(results.join("whole.json")).ok();
    let Some(facts) = read.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
        return "All tables have not been made by one run yet: each says when it was.".to_owned();
    };
    let of = |key: &str| facts.get(key).and_then(Value::as_str).unwrap_or("unknown");
    let tables = facts
        .get("tables")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let took = tables
        .iter()
        .map(|entry| (entry[0].as_str().unwrap_or("?"), entry[1].as_f64().unwrap_or(0.0)));
    let all: f64 = took.clone().map(|(_, seconds)| seconds).sum();
    let each: Vec<String> = took
        .map(|(name, seconds)| format!("{name} {}", duration(seconds)))
        .collect();
    let end = match facts.get("is_over").and_then(Value::as_bool) {
        Some(true) => "It took",
        _ => "It has not come to its end; so far it took",
    };
    format!(
        "The last run of everything: `{}`, begun {}, commit {}. {end} {}: {}.",
        of("command"),
        of("began"),
        of("commit"),
        duration(all),
        each.join(", ")
    )
}

pub fn write(out: &Path) -> anyhow::Result<()> {
    let results = out.join("results");
    let mut text = format!(
        "# Benchmarks\n\n{}\n\nEvery row names the day and the commit of its measurement; rows that a run does not \
         measure stay as they were. Ratios are what to compare: seconds depend on the machine. What was measured once, \
         with other tools, is in [NOTES.md](NOTES.md).\n\n",
        told(&results)
    );
    for chapter in CHAPTERS {
        let sheet = Sheet::open(&results, chapter)?;
        if !sheet.rows.is_empty() {
            sheet.draw()?;
            text.push_str(&sheet.markdown());
            text.push('\n');
        }
    }
    fs::write(out.join("RESULTS.md"), text.trim_end().to_owned() + "\n").context("cannot write RESULTS.md")
}
