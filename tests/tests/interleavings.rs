//! Random interleavings of two and three sessions on a real PostgreSQL, at all levels: no answer of it is ever
//! called wrong, and nearly all of them are checked.
//!
//! `PGASSAY_INTERLEAVE_SECONDS` says how long, `PGASSAY_INTERLEAVE_SEED` plays one seed alone, `PGASSAY_INTERLEAVE_FROM`
//! begins with another, `PGASSAY_INTERLEAVE_SHOW=reason` prints the stories of which something was not checked for
//! that reason.

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::interleave::{Tally, round, stage};
use std::time::{Duration, Instant};

/// Stories that are played when nobody says how long.
const STORIES: u64 = 60;

/// As long as the order of the steps is known, almost nothing may be left open.
const CHECKED_MIN: f64 = 0.9;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn play(options: Options) {
    let options = options
        .set("deadlock_timeout", "1ms")
        .set("autovacuum", "off")
        .set("fsync", "off");
    let cluster = Cluster::start_with(options).expect("a server");
    let mut stage = stage(cluster.port());
    let one = number("PGASSAY_INTERLEAVE_SEED");
    let first = one.or(number("PGASSAY_INTERLEAVE_FROM")).unwrap_or(1);
    let end =
        number("PGASSAY_INTERLEAVE_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let show = std::env::var("PGASSAY_INTERLEAVE_SHOW").ok();
    let mut tally = Tally::default();
    let mut accused = Vec::new();
    for seed in first.. {
        if let Err(story) = round(&mut stage, seed, &mut tally, show.as_deref()) {
            accused.push(format!("# seed {}\n{}\n{}", story.seed, story.story, story.why));
        }
        let enough = match end {
            Some(end) => Instant::now() >= end,
            None => tally.stories >= STORIES,
        };
        if enough || one.is_some() || accused.len() >= 6 {
            break;
        }
    }
    println!("{}", tally.report());
    assert!(
        accused.is_empty(),
        "{} stories of a correct server were accused:\n\n{}",
        accused.len(),
        accused.join("\n\n")
    );
    if one.is_none() {
        assert!(tally.waited > 0, "nobody ever waited: the sessions did not meet");
        assert!(
            tally.share() >= CHECKED_MIN,
            "too little was checked:\n{}",
            tally.report()
        );
    }
}

#[test]
fn no_interleaving_is_accused() {
    play(Options::default());
}

#[test]
fn no_interleaving_of_another_version_is_accused() {
    if let Some(options) = Options::default().other_version() {
        play(options);
    }
}
