//! The promises of the prose that a machine can check: every rule has its runbook, every module its header.
//!
//! In: the files of this repository. Out: nothing, or a list of everything that is untidy, in one go.

use pgassay_rules::CATALOGUE;
use pgassay_rules::profile::{
    AbortedReads, CommitOrder, CommitTimestamps, Participants, ReadPoint, RealTime, SerialOrder, Writes,
};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
        .to_owned()
}

/// Every file that belongs to the repository, without what is built or fetched: what git knows, else what is there.
fn files() -> Vec<PathBuf> {
    const SKIPPED: &[&str] = &[
        "target",
        ".git",
        ".deps",
        "artifacts",
        "node_modules",
        "histories",
        "corpus",
    ];
    if let Some(known) = known_to_git() {
        let skipped = |path: &PathBuf| short(path).split('/').any(|part| SKIPPED.contains(&part));
        return known.into_iter().filter(|path| !skipped(path)).collect();
    }
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("folder of the repository") {
            let path = entry.expect("entry of a folder").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if SKIPPED.contains(&name.as_str()) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    found
}

/// What others left in the folder, such as the log of a build, is not ours to judge.
fn known_to_git() -> Option<Vec<PathBuf>> {
    let mut list = Command::new("git");
    list.arg("-C").arg(root()).args(["ls-files", "-z"]);
    let output = list.output().ok().filter(|output| output.status.success())?;
    let names = output.stdout.split(|byte| *byte == 0);
    let mut found: Vec<PathBuf> = names
        .filter(|name| !name.is_empty())
        .map(|name| root().join(OsStr::from_bytes(name)))
        .filter(|path| path.is_file() && !path.is_symlink())
        .collect();
    found.sort();
    Some(found).filter(|found| !found.is_empty())
}

fn with_ending(ending: &str) -> Vec<PathBuf> {
    files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn assert_tidy(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "untidy:\n  {}", complaints.join("\n  "));
}

/// `PgassayAuditLagging` → `pgassay_audit_lagging`, the name of its runbook.
fn snake(alert: &str) -> String {
    let mut snake = String::new();
    for letter in alert.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

fn alerts() -> Vec<String> {
    read(&root().join("rules/alerts/pgassay.yml"))
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: ").map(str::to_owned))
        .collect()
}

#[test]
fn every_rule_has_a_runbook_that_says_everything() {
    let mut complaints = Vec::new();
    for rule in CATALOGUE {
        let path = root().join(format!("rules/runbooks/{}.md", rule.name));
        let Ok(text) = fs::read_to_string(&path) else {
            complaints.push(format!("rule {} has no runbook {}", rule.name, short(&path)));
            continue;
        };
        for part in [
            format!("# {}", rule.name),
            format!("> {}", rule.summary),
            "## What it means".to_owned(),
            "## Example".to_owned(),
            "## How to confirm".to_owned(),
            "## What to do".to_owned(),
            "## When it might be our bug".to_owned(),
        ] {
            if !text.lines().any(|line| line == part) {
                complaints.push(format!("{} lacks the line «{part}»", short(&path)));
            }
        }
    }
    assert_tidy(complaints);
}

#[test]
fn every_rule_has_a_golden_script() {
    let complaints = CATALOGUE
        .iter()
        .map(|rule| format!("audit/testscripts/verdict/{}", rule.name))
        .filter(|path| !root().join(path).exists())
        .map(|path| format!("{path} is missing: a story that breaks this rule"))
        .collect();
    assert_tidy(complaints);
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_a_reason() {
    let mut known: BTreeSet<String> = CATALOGUE.iter().map(|rule| rule.name.to_owned()).collect();
    known.insert("README".to_owned());
    let mut complaints = Vec::new();
    for alert in alerts() {
        // The alert on violations leads to the runbook of its rule.
        if alert == "PgassayViolation" {
            continue;
        }
        let name = snake(&alert);
        if !root().join(format!("rules/runbooks/{name}.md")).exists() {
            complaints.push(format!("alert {alert} has no runbook rules/runbooks/{name}.md"));
        }
        known.insert(name);
    }
    let index = read(&root().join("rules/runbooks/README.md"));
    for path in with_ending("md")
        .iter()
        .filter(|path| short(path).starts_with("rules/runbooks/"))
    {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !known.contains(&name) {
            complaints.push(format!("{} belongs to no rule and no alert", short(path)));
        }
        if name != "README" && !index.contains(&format!("({name}.md)")) {
            complaints.push(format!("rules/runbooks/README.md does not lead to {name}.md"));
        }
    }
    assert_tidy(complaints);
}

#[test]
fn every_module_has_a_header() {
    let complaints = with_ending("rs")
        .iter()
        .filter(|path| !read(path).trim_start().starts_with("//!"))
        .map(|path| format!("{} does not begin with a header (//!)", short(path)))
        .collect();
    assert_tidy(complaints);
}

#[test]
fn nothing_is_left_for_later_and_no_machine_is_named() {
    // Put together here, so that this file does not contain them itself.
    let forbidden: Vec<String> = [
        ("TO", "DO"),
        ("FIX", "ME"),
        ("todo", "!("),
        ("unimplemented", "!("),
        ("#[ign", "ore"),
        ("/wor", "k/"),
        ("/ro", "ot/"),
    ]
    .iter()
    .map(|(left, right)| format!("{left}{right}"))
    .collect();
    let mut complaints = Vec::new();
    for path in files() {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for word in forbidden.iter().filter(|word| line.contains(word.as_str())) {
                complaints.push(format!("{}:{} contains «{word}»", short(&path), number + 1));
            }
        }
    }
    assert_tidy(complaints);
}

/// Every test that tests/README.md names exists, and all sixteen pitfalls of the wire are there.
#[test]
fn every_pitfall_of_the_wire_has_a_test_that_exists() {
    let code: String = with_ending("rs").iter().map(|path| read(path)).collect();
    let page = read(&root().join("tests/README.md"));
    let is_row =
        |line: &&str| line.starts_with('|') && line[1..].trim().starts_with(|c: char| c.is_ascii_digit());
    let rows: Vec<&str> = page.lines().filter(is_row).collect();
    let numbers: Vec<u32> = rows
        .iter()
        .flat_map(|row| row[1..].split('|').next().unwrap_or("").split(','))
        .filter_map(|number| number.trim().parse().ok())
        .collect();
    assert_eq!(numbers, (1..=16).collect::<Vec<u32>>());
    let named = rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2));
    let missing = named
        .filter_map(|name| name.split_once("::"))
        .filter(|(_, test)| {
            let definition = format!("fn {test}()");
            !code.contains(&definition)
        });
    assert_tidy(
        missing
            .map(|(file, test)| format!("there is no test {file}::{test}"))
            .collect(),
    );
}

/// Links between the pages lead somewhere.
#[test]
fn links_of_the_documentation_lead_somewhere() {
    let mut complaints = Vec::new();
    for path in with_ending("md") {
        let text = read(&path);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            // The parts of the page of results are read there.
            let folder = path.parent().expect("a page lies in a folder");
            let folder = match folder.ends_with("bench/results") {
                true => folder.parent().unwrap_or(folder),
                false => folder,
            };
            if !folder.join(target).exists() {
                complaints.push(format!("{}: the link to «{target}» leads nowhere", short(&path)));
            }
        }
    }
    assert_tidy(complaints);
}

#[test]
fn every_word_of_the_profiles_is_explained() {
    let page = read(&root().join("docs/levels.md"));
    let complaints = [
        ("read_point", ReadPoint::WORDS),
        ("real_time", RealTime::WORDS),
        ("writes", Writes::WORDS),
        ("serial_order", SerialOrder::WORDS),
        ("participants", Participants::WORDS),
        ("aborted_reads", AbortedReads::WORDS),
        ("commit_timestamps", CommitTimestamps::WORDS),
        ("commit_order", CommitOrder::WORDS),
    ]
    .iter()
    .flat_map(|(key, words)| std::iter::once(*key).chain(words.iter().copied()))
    .filter(|word| !page.contains(&format!("`{word}`")))
    .map(|word| format!("docs/levels.md does not explain `{word}`"))
    .collect();
    assert_tidy(complaints);
}

/// A dashboard is read by people who did not make it: every panel says what it shows, and in which unit.
#[test]
fn every_panel_has_a_unit_and_a_description() {
    let dashboards: Vec<PathBuf> = with_ending("json")
        .into_iter()
        .filter(|path| short(path).starts_with("grafana/dashboards/"))
        .collect();
    assert_eq!(dashboards.len(), 4, "overview, violations, proxy, audit");
    let mut complaints = Vec::new();
    let mut uids = BTreeSet::new();
    for path in dashboards {
        let dashboard: serde_json::Value = serde_json::from_str(&read(&path)).expect("a dashboard is JSON");
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let uid = dashboard["uid"].as_str().unwrap_or_default();
        if uid != format!("pgassay-{name}") || !uids.insert(uid.to_owned()) {
            complaints.push(format!(
                "{}: the uid must stay pgassay-{name}, not «{uid}»",
                short(&path)
            ));
        }
        let variables: Vec<&str> = dashboard["templating"]["list"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|variable| variable["name"].as_str())
            .collect();
        for variable in ["datasource", "job", "instance"] {
            if !variables.contains(&variable) {
                complaints.push(format!("{}: lacks the variable {variable}", short(&path)));
            }
        }
        for panel in dashboard["panels"].as_array().expect("a dashboard has panels") {
            let title = panel["title"].as_str().unwrap_or_default();
            let kind = panel["type"].as_str().unwrap_or_default();
            if kind == "row" {
                continue;
            }
            if panel["description"].as_str().unwrap_or_default().is_empty() {
                complaints.push(format!("{}: panel «{title}» has no description", short(&path)));
            }
            if kind == "text" {
                continue;
            }
            if panel["fieldConfig"]["defaults"]["unit"]
                .as_str()
                .unwrap_or_default()
                .is_empty()
            {
                complaints.push(format!("{}: panel «{title}» has no unit", short(&path)));
            }
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap_or_default();
                if !expression.contains("$job") || !expression.contains("$instance") {
                    complaints.push(format!(
                        "{}: a query of «{title}» ignores the variables",
                        short(&path)
                    ));
                }
            }
        }
    }
    assert_tidy(complaints);
}

/// Helm reads only what lies inside the chart: its copies are the originals.
#[test]
fn the_chart_carries_the_rules_and_dashboards_as_they_are() {
    let mut originals = vec![root().join("rules/alerts/pgassay.yml")];
    originals.extend(
        with_ending("json")
            .into_iter()
            .filter(|path| short(path).starts_with("grafana/dashboards/")),
    );
    let complaints = originals
        .iter()
        .filter_map(|original| {
            let name = original.file_name()?;
            let copy = root().join("deploy/helm/pgassay/files").join(name);
            let same = fs::read(&copy).ok() == fs::read(original).ok();
            (!same).then(|| format!("{} is not {}: copy it", short(&copy), short(original)))
        })
        .collect();
    assert_tidy(complaints);
}

/// A sentence about a reason that nobody counts any more helps nobody.
#[test]
fn every_reason_that_has_a_sentence_is_counted_somewhere() {
    let is_source = |path: &&PathBuf| {
        short(path).starts_with("audit/src/") && !short(path).ends_with("report/reasons.rs")
    };
    let code: String = with_ending("rs")
        .iter()
        .filter(is_source)
        .map(|path| read(path))
        .collect();
    let complaints = pgassay_audit::report::reasons::names()
        .filter(|name| !code.contains(&format!("\"{name}\"")))
        .map(|name| format!("audit/src/report/reasons.rs explains «{name}», which is not counted anywhere"))
        .collect();
    assert_tidy(complaints);
}
