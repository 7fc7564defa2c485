//! The benchmarks run to their end and write their tables; how long they take is nobody's business here.

use std::process::Command;

#[test]
fn benchmarks_in_small_write_their_tables() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-audit"))
        .args([
            "--smoke",
            "--only",
            "ratio,figure8,growth,ambiguity",
            "--workloads",
            "bank",
        ])
        .output()
        .expect("bench-audit starts");
    let told = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    for title in [
        "What the audit costs",
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

#[test]
fn an_unknown_table_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-audit"))
        .args(["--only", "colour"])
        .output()
        .expect("bench-audit starts");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no table «colour»"));
}
