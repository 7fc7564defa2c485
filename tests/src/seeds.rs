//! The seeds of a fuzz test.
//!
//! In: how many are tried, and what is tried with each. Out: what differed, by no more than a dozen of them.
//!
//! The same seeds on every machine; `PGASSAY_FUZZ_SECONDS` goes on for so long instead, `PGASSAY_FUZZ_SEED` runs one seed
//! alone, `PGASSAY_FUZZ_FROM` begins with another.

use std::time::{Duration, Instant};

/// More differences than these are seldom looked at.
const DIFFERENCES_MAX: usize = 12;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

pub fn try_seeds(rounds: u64, mut round: impl FnMut(u64) -> Result<(), String>) -> Vec<String> {
    let one = number("PGASSAY_FUZZ_SEED");
    let end = number("PGASSAY_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = one.or(number("PGASSAY_FUZZ_FROM")).unwrap_or(1);
    let mut differences = Vec::new();
    for seed in first.. {
        differences.extend(round(seed).err());
        let enough = match end {
            Some(end) => Instant::now() >= end,
            None => seed + 1 - first >= rounds,
        };
        if one.is_some() || enough || differences.len() >= DIFFERENCES_MAX {
            break;
        }
    }
    differences
}

/// Fails with all that differed, if anything did.
pub fn assert_none(differences: &[String]) {
    assert!(
        differences.is_empty(),
        "{} differences:\n\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}
