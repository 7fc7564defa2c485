//! The benchmarks run to their end and write their tables; how long they take is nobody's business here.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn bench(words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-audit"))
        .args(words)
        .output();
    output.expect("bench-audit starts")
}

fn told(output: &Output) -> String {
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn benchmarks_in_small_write_their_tables() {
    let told = told(&bench(&[
        "--smoke",
        "--only",
        "ratio,procedures,figure8,growth,ambiguity",
        "--workloads",
        "bank",
    ]));
    for title in [
        "What the audit costs, beside PostgreSQL itself",
        "What the audit costs where procedures are called",
        "The paper's Figure 8",
        "Growth",
        "High ambiguity",
    ] {
        assert!(
            told.contains(&format!("## {title}")),
            "no table «{title}»:\n{told}"
        );
    }
    // k, seconds, violations of the right journal, seconds, violations of the falsified one.
    let wrong = told
        .lines()
        .find(|line| line.starts_with("| 10 |"))
        .expect("a row for k = 10");
    let cells: Vec<&str> = wrong.split('|').map(str::trim).collect();
    assert_eq!((cells[3], cells[5]), ("0", "1"), "{wrong}");
}

/// What a generated history answers is what a correct database answers: nothing is told, nothing is left out.
fn is_checked_to_the_last_statement(history: &str) {
    let told = told(&bench(&["generated", history, "2", "3"]));
    let lines: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let transactions: Vec<&Value> = lines.iter().map(|line| &line["transactions"]).collect();
    assert_eq!(transactions, [100, 1_000]);
    for line in &lines {
        assert_eq!(line["violations"], 0, "{line}");
        assert_eq!(line["checked"], line["statements"], "{line}");
        assert_eq!(line["reasons"], serde_json::json!({}), "{line}");
    }
    // BEGIN, one statement and COMMIT are the least.
    let statements = lines[1]["statements"].as_u64();
    assert!(statements >= Some(3_000), "{statements:?}");
}

#[test]
fn the_generated_bank_is_checked_to_the_last_statement() {
    is_checked_to_the_last_statement("bank");
}

#[test]
fn the_generated_tpcc_is_checked_to_the_last_statement() {
    is_checked_to_the_last_statement("tpcc");
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bench")
}

fn copied_results() -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a directory");
    fs::create_dir(copy.path().join("results")).expect("a directory");
    for file in fs::read_dir(page().join("results")).expect("results") {
        let file = file.expect("a file").path();
        let name = file.file_name().expect("a name");
        fs::copy(&file, copy.path().join("results").join(name)).expect("a copy");
    }
    copy
}

#[test]
fn nothing_on_the_page_of_results_is_written_by_hand() {
    let copy = copied_results();
    told(&bench(&["--page", "--out", &copy.path().to_string_lossy()]));
    let made = fs::read_to_string(copy.path().join("RESULTS.md")).expect("a page");
    let kept = fs::read_to_string(page().join("RESULTS.md")).expect("a page");
    let differs = made.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(made == kept, "bench-audit --page would write: {differs:?}");
}

#[test]
fn rows_that_are_not_measured_stay() {
    let copy = copied_results();
    let rows = || {
        let text = fs::read_to_string(copy.path().join("results/growth.jsonl")).expect("rows");
        let lines = text
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect::<Vec<Value>>()
    };
    let before = rows();
    let out = copy.path().to_string_lossy().into_owned();
    let words = [
        "--smoke",
        "--only",
        "growth",
        "--workloads",
        "bank",
        "--out",
        &out,
    ];
    told(&bench(&words));
    let (new, old): (Vec<Value>, Vec<Value>) = rows().into_iter().partition(|row| row["cells"][2] == "100");
    assert_eq!(new.len(), 2, "{new:?}");
    assert_eq!(old, before);
    // Measured again, a row takes its own place.
    told(&bench(&words));
    assert_eq!(rows().len(), before.len() + 2);
}

#[test]
fn an_unknown_table_or_workload_is_refused() {
    let output = bench(&["--only", "colour"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no table «colour»"));
    let output = bench(&["--smoke", "--workloads", "colour"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no workload «colour»"));
}
