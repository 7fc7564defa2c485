//! The stories of PostgreSQL's levels, judged by what other profiles promise.
//!
//! A level that does not promise real time allows what was true once; one that reads by key allows skewed reads. What
//! no level allows is a violation everywhere.

use pgassay_audit::{Auditor, Settings, script};
use pgassay_rules::Level;

/// The rules that a story breaks at a level of a profile.
fn judge(story: &str, profile: &str, level: Level) -> Vec<String> {
    let path = format!("{}/testscripts/verdict/{story}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the story exists");
    let (text, _) = script::expectations(&text).expect("a story");
    let told = script::read(&text, level).expect("a story");
    let mut auditor = Auditor::new(Settings {
        profile: profile.to_owned(),
        ..Settings::default()
    });
    for record in told.records {
        auditor.take(record);
    }
    auditor.finish();
    let found = auditor.summary().violations;
    found.into_iter().map(|violation| violation.rule).collect()
}

#[track_caller]
fn allows(story: &str, profile: &str, levels: &[Level]) {
    for level in levels {
        let found = judge(story, profile, *level);
        assert!(found.is_empty(), "{story} by {profile} at {level}: {found:?}");
    }
}

#[track_caller]
fn forbids(story: &str, profile: &str, levels: &[Level]) {
    for level in levels {
        let found = judge(story, profile, *level);
        assert!(!found.is_empty(), "{story} by {profile} at {level}");
    }
}

const STANDBY: [Level; 2] = [Level::ReadCommitted, Level::RepeatableRead];

#[test]
fn a_standby_may_lag_but_it_may_not_invent() {
    allows("stale_read", "postgres-standby", &STANDBY);
    allows("read_skew", "postgres-standby", &[Level::ReadCommitted]);
    forbids("read_skew", "postgres-standby", &[Level::RepeatableRead]);
    forbids("garbage_read", "postgres-standby", &STANDBY);
    forbids("aborted_read", "postgres-standby", &STANDBY);
}

#[test]
fn only_strict_levels_of_the_paper_promise_real_time() {
    allows("stale_read", "paper", &[Level::Rc, Level::Si, Level::S]);
    forbids("stale_read", "paper", &[Level::StrictSi, Level::StrictS]);
}

#[test]
fn the_levels_of_the_paper_forbid_what_they_are_known_for() {
    let snapshots = [Level::Si, Level::StrictSi, Level::S, Level::StrictS];
    allows("read_skew", "paper", &[Level::Rc]);
    forbids("read_skew", "paper", &snapshots);
    allows("lost_update", "paper", &[Level::Rc]);
    forbids("lost_update", "paper", &snapshots);
    allows("write_skew", "paper", &[Level::Rc, Level::Si, Level::StrictSi]);
    forbids("write_skew", "paper", &[Level::S, Level::StrictS]);
    allows("long_fork", "paper", &[Level::Rc]);
    forbids("long_fork", "paper", &snapshots);
    forbids("garbage_read", "paper", &[Level::Rc]);
    forbids("garbage_read", "paper", &snapshots);
}
