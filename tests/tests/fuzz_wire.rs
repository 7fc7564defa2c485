//! A short run of every fuzz target over its corpus (`tests/fuzz/corpus`), seeded. PGASSAY_FUZZ_SEED and
//! PGASSAY_FUZZ_ROUNDS make it another one, or a longer one.

use pgassay_tests::fuzz_wire::{TARGETS, Target, mutate};
use std::path::Path;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn run(name: &str, rounds: u64) {
    let target: &Target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let rounds = variable("PGASSAY_FUZZ_ROUNDS", rounds);
    mutate(target, &corpus, variable("PGASSAY_FUZZ_SEED", 1), rounds as usize);
}

#[test]
fn frame() {
    run("frame", 20_000);
}

#[test]
fn startup() {
    run("startup", 20_000);
}

#[test]
fn scram() {
    run("scram", 2_000);
}

#[test]
fn certificate() {
    run("certificate", 10_000);
}

#[test]
fn inject() {
    run("inject", 10_000);
}

#[test]
fn decode() {
    run("decode", 4_000);
}

#[test]
fn sql() {
    run("sql", 5_000);
}

#[test]
fn journal() {
    run("journal", 1_000);
}

#[test]
fn upstream() {
    run("upstream", 5_000);
}

/// Every target is run here, and has a program for libFuzzer.
#[test]
fn every_target_is_run() {
    let here =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz_wire.rs")).unwrap();
    let programs =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml")).unwrap();
    for target in TARGETS {
        assert!(
            here.contains(&format!("run(\"{}\",", target.name)),
            "{}",
            target.name
        );
        assert!(
            programs.contains(&format!("name = \"{}\"", target.name)),
            "{}",
            target.name
        );
    }
}
