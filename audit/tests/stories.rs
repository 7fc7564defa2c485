//! Stories with known verdicts: every file under testscripts/{verdict,silent,hermitage,semantics} is told to the audit
//! at each level of each profile that it names, and must come to exactly the rules that it expects.
//!
//! A level that does not promise real time allows what was true once; one that reads by key allows skewed reads. What
//! no level allows is a violation everywhere. So that nothing of this is left open, those of verdict/ and hermitage/
//! speak of all levels.

use pgassay_audit::{Auditor, Settings, script};
use pgassay_rules::Profile;
use std::path::{Path, PathBuf};

fn stories() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let mut files = Vec::new();
    for folder in ["verdict", "silent", "hermitage", "semantics"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("the folder of stories");
        files.extend(entries.map(|e| e.expect("a readable folder").path()));
    }
    files.sort();
    files
}

/// Stories of wrong answers, told twice: with the right answer and with a wrong one.
#[test]
fn wrong_answers_are_told_beside_right_ones() {
    let expects = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("a readable story");
        let (_, expected) = script::expectations(&text).expect("expectations");
        expected.iter().all(|e| !e.rules.is_empty())
    };
    let mut pairs = 0;
    for path in stories() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let folder = path.parent().and_then(|p| p.file_name()).unwrap_or_default();
        if folder != "semantics" {
            continue;
        }
        match name.rsplit_once('_') {
            Some((story, "wrong")) => {
                assert!(expects(&path), "{name} expects nothing");
                pairs += usize::from(path.with_file_name(format!("{story}_right")).exists());
            }
            _ => assert!(!expects(&path), "{name} expects a violation"),
        }
    }
    assert!(pairs >= 40, "only {pairs} stories are told both ways");
}

/// Every story that the tables of testscripts/README.md name exists, and all of hermitage are named.
#[test]
fn the_tables_lead_to_stories() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let page = std::fs::read_to_string(root.join("README.md")).expect("a readable page");
    let folders = ["verdict/", "silent/", "hermitage/", "semantics/"];
    let named: Vec<&str> = page
        .split('`')
        .filter(|word| {
            folders
                .iter()
                .any(|f| word.starts_with(f) && word.len() > f.len())
        })
        .collect();
    let missing: Vec<&&str> = named.iter().filter(|name| !root.join(name).exists()).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
    for path in stories() {
        let name = path.strip_prefix(&root).expect("a story").to_string_lossy();
        let told = !name.starts_with("hermitage/") || named.contains(&name.as_ref());
        assert!(told, "no table names {name}");
    }
}

/// Stories of anomalies say what each of them is, at every level of every profile, once.
#[test]
fn anomalies_are_told_at_every_level() {
    let profiles: Vec<Profile> = Profile::names()
        .map(|name| Profile::named(name).expect("a built-in profile"))
        .collect();
    let mut wrong = Vec::new();
    for path in stories() {
        let folder = path.parent().and_then(|p| p.file_name()).unwrap_or_default();
        if folder != "verdict" && folder != "hermitage" {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable story");
        let (_, expected) = script::expectations(&text).expect("expectations");
        for profile in &profiles {
            for (level, _) in profile.levels() {
                let named = expected
                    .iter()
                    .filter(|e| e.claim.is_none() && e.profile == profile.name && e.level == level);
                match named.count() {
                    1 => {}
                    times => wrong.push(format!(
                        "{}: {} {level} {times} times",
                        path.display(),
                        profile.name
                    )),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "levels that a story does not name exactly once:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_story_comes_to_its_verdict() {
    let only = std::env::var("STORY").ok();
    let (mut told, mut wrong) = (0, Vec::new());
    for path in stories() {
        let name = format!(
            "{}/{}",
            path.parent()
                .and_then(|p| p.file_name())
                .unwrap_or_default()
                .to_string_lossy(),
            path.file_name().unwrap_or_default().to_string_lossy()
        );
        if only.as_ref().is_some_and(|o| !name.contains(o.as_str())) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable story");
        let (story, expected) = script::expectations(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!expected.is_empty(), "{name} expects nothing at all");
        for expectation in expected {
            told += 1;
            let records = script::parse(&story, expectation.level).unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut auditor = Auditor::new(Settings {
                profile: expectation.profile.clone(),
                claim: expectation.claim,
                ..Settings::default()
            });
            for record in records {
                auditor.take(record);
            }
            auditor.finish();
            let summary = auditor.summary();
            // Silence because the catalog may be wrong is no silence about the rest.
            let is_stale = name.contains("/catalog_");
            if is_stale != (auditor.stats().withheld > 0) {
                wrong.push(format!("{name}: {} were kept back", auditor.stats().withheld));
            }
            let mut rules: Vec<String> = summary.violations.iter().map(|v| v.rule.clone()).collect();
            rules.sort();
            rules.dedup();
            if only.is_some() {
                for violation in &summary.violations {
                    println!("{}", violation.story);
                }
                println!("{:?} {:?}", summary.coverage.reasons, summary.tiers);
            }
            if rules != expectation.rules {
                wrong.push(format!(
                    "{name} at {} {}{}: expected {:?}, found {:?}; reasons {:?}",
                    expectation.profile,
                    expectation.level,
                    expectation
                        .claim
                        .map(|c| format!(" claimed {c}"))
                        .unwrap_or_default(),
                    expectation.rules,
                    rules,
                    summary.coverage.reasons
                ));
            }
        }
    }
    assert!(told > 0, "no story was told");
    assert!(
        wrong.is_empty(),
        "{} of {told} verdicts are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!("{told} verdicts");
}
