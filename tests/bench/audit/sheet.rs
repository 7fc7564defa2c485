//! A table of the results, kept row by row.
//!
//! In: rows as they are measured. Out: `results/NAME.jsonl`, whose first line tells of the last run and every other one
//! is a row with its date and commit; Markdown and a plot made from them.
//!
//! Always true: a row is on disk as soon as it was measured, and a row that was not measured this time stays as it
//! is. Rows are told apart by their first cells.

use crate::plot::Plot;
use crate::report::{commit, date, duration, machine};
use crate::{Bench, Forecast};
use anyhow::Context;
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// What is always said of a table, and how it is made.
pub struct Chapter {
    pub name: &'static str,
    pub title: &'static str,
    /// What was measured and how; no numbers that a run finds.
    pub about: &'static str,
    pub header: &'static [&'static str],
    /// So many first cells tell one row from another.
    pub keys: usize,
    pub unit: &'static str,
    /// The numbers of the plot span decades.
    pub is_logarithmic: bool,
    /// What the rows say together.
    pub summary: fn(&[Row]) -> String,
    /// What a run will do, and how long that takes.
    pub forecast: fn(&Bench) -> Forecast,
    pub run: fn(&Bench, &mut Sheet) -> anyhow::Result<()>,
}

#[derive(Clone, Default)]
pub struct Row {
    pub cells: Vec<String>,
    pub bars: Vec<(String, f64)>,
    pub raw: Value,
    /// Date and commit.
    pub measured: String,
}

impl Row {
    /// The number that a cell begins with.
    pub fn number(&self, column: usize) -> Option<f64> {
        let cell = self.cells.get(column)?.replace(',', "");
        cell.split(' ').next()?.parse().ok()
    }
}

pub struct Sheet {
    pub chapter: &'static Chapter,
    pub rows: Vec<Row>,
    /// Command, machine and duration of the last run.
    last: Value,
    dir: PathBuf,
}

impl Sheet {
    /// The table as it was left; empty if it was never made.
    pub fn open(dir: &Path, chapter: &'static Chapter) -> anyhow::Result<Sheet> {
        let mut sheet = Sheet {
            chapter,
            rows: Vec::new(),
            last: Value::Null,
            dir: dir.to_owned(),
        };
        let Ok(text) = fs::read_to_string(sheet.path("jsonl")) else {
            return Ok(sheet);
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            let line: Value = serde_json::from_str(line)
                .with_context(|| format!("{} is not JSON lines", sheet.path("jsonl").display()))?;
            match Row::from_json(&line) {
                Some(row) => sheet.rows.push(row),
                None => sheet.last = line,
            }
        }
        Ok(sheet)
    }

    pub fn begin(&mut self, command: &str) -> anyhow::Result<()> {
        self.last = json!({ "command": command, "began": date(), "commit": commit() });
        self.save()
    }

    pub fn put(&mut self, cells: Vec<String>, bars: Vec<(String, f64)>, raw: Value) -> anyhow::Result<()> {
        let header = self.chapter.header.len();
        anyhow::ensure!(
            cells.len() == header,
            "{} cells for {header} columns",
            cells.len()
        );
        let measured = format!("{}, {}", date().split(' ').next().unwrap_or_default(), commit());
        let row = Row {
            cells,
            bars,
            raw,
            measured,
        };
        place(&mut self.rows, row, self.chapter.keys);
        self.save()
    }

    pub fn end(&mut self, seconds: f64) -> anyhow::Result<()> {
        self.last["seconds"] = json!(seconds.round());
        self.last["machine"] = json!(machine());
        self.save()
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("{}.{ending}", self.chapter.name))
    }

    fn save(&self) -> anyhow::Result<()> {
        let mut text = format!("{}\n", self.last);
        for row in &self.rows {
            let _ = writeln!(text, "{}", row.to_json());
        }
        fs::write(self.path("jsonl"), text).context("cannot write results")
    }

    pub fn draw(&self) -> anyhow::Result<()> {
        let plot = Plot {
            title: self.chapter.title,
            unit: self.chapter.unit,
            bars: self.rows.iter().flat_map(|row| &row.bars).collect(),
            is_logarithmic: self.chapter.is_logarithmic,
        };
        fs::write(self.path("svg"), plot.svg()).context("cannot write a plot")
    }

    pub fn markdown(&self) -> String {
        let chapter = self.chapter;
        let mut out = format!("## {}\n\n{}\n\n", chapter.title, chapter.about);
        let summary = (chapter.summary)(&self.rows);
        if !summary.is_empty() {
            let _ = writeln!(out, "{summary}\n");
        }
        let _ = writeln!(out, "| {} | measured |", chapter.header.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(chapter.header.len() + 1));
        for row in &self.rows {
            let _ = writeln!(out, "| {} | {} |", row.cells.join(" | "), row.measured);
        }
        let _ = writeln!(out, "\n{}", self.told());
        let _ = writeln!(out, "\n![{}](results/{}.svg)", chapter.title, chapter.name);
        out
    }

    /// The last run in a sentence.
    fn told(&self) -> String {
        let of = |key: &str| self.last.get(key).and_then(Value::as_str).unwrap_or("unknown");
        let mut told = format!(
            "Last run: `{}`, {}, commit {}",
            of("command"),
            of("began"),
            of("commit")
        );
        match self.last.get("machine") {
            Some(_) => {
                let took = self.last.get("seconds").and_then(Value::as_f64);
                let took = took.map_or(String::new(), |seconds| format!(", took {}", duration(seconds)));
                let _ = write!(told, "{took}; {}.", of("machine"));
            }
            None => told.push_str("; it did not come to its end."),
        }
        told
    }
}

impl Row {
    fn to_json(&self) -> Value {
        json!({ "cells": self.cells, "bars": self.bars, "measured": self.measured, "raw": self.raw })
    }

    fn from_json(line: &Value) -> Option<Row> {
        Some(Row {
            cells: serde_json::from_value(line.get("cells")?.clone()).ok()?,
            bars: serde_json::from_value(line.get("bars")?.clone()).ok()?,
            measured: line.get("measured")?.as_str()?.to_owned(),
            raw: line.get("raw")?.clone(),
        })
    }
}

/// In the place of the row with the same keys; or behind the last of those that share the most of them.
fn place(rows: &mut Vec<Row>, row: Row, keys: usize) {
    for shared in (1..=keys).rev() {
        let alike = |other: &Row| other.cells[..shared] == row.cells[..shared];
        if let Some(at) = rows.iter().rposition(alike) {
            match shared == keys {
                true => rows[at] = row,
                false => rows.insert(at + 1, row),
            }
            return;
        }
    }
    rows.push(row);
}
