//! `pgassay check` with input that it cannot use: it says what is wrong and where, exits with 2, and writes nothing.

use pgassay_audit::script;
use pgassay_audit::trace::journal::{Options, Writer};
use pgassay_rules::Level;
use pgassay_tests::tools::binary;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const STORY: &str = "\
init: create table t (id int primary key, v int)
init: insert into t values (1, 10), (2, 20)
a: begin
a: update t set v = 11 where id = 1 => UPDATE 1
b: select v from t where id = 1 => (10)
a: commit
b: select v from t where id = 1 => (11)
";

/// A journal of two segments in a directory of its own.
fn journal(dir: &Path) -> PathBuf {
    let journal = dir.join("journal");
    let records = script::parse(STORY, Level::ReadCommitted).expect("a story");
    let options = Options {
        segment_bytes_max: 1,
        ..Options::default()
    };
    let mut writer = Writer::open(&journal, options).expect("a journal");
    for chunk in records.chunks(6) {
        for record in chunk {
            writer.push(record).expect("a record is written");
        }
        writer.flush().expect("a block is written");
    }
    writer.close().expect("the journal is closed");
    journal
}

fn segments(journal: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(journal).expect("the journal");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("segment-"))
    });
    found.sort();
    found
}

/// Runs the check with a report file; says how it ended and whether anything was written.
fn check(dir: &Path, arguments: &[&str]) -> (i32, String, bool) {
    let report = dir.join("report.json");
    let mut command = Command::new(binary());
    command
        .arg("check")
        .args(arguments)
        .args(["--json-file", report.to_str().expect("a path")])
        .stdin(Stdio::null())
        .env("NO_COLOR", "1");
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("pgassay runs");
    let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code().expect("an exit code"), said, report.exists())
}

/// It must fail with 2, say all of this, and leave no report.
fn refuses(dir: &Path, arguments: &[&str], says: &[&str]) {
    let (code, said, wrote) = check(dir, arguments);
    assert_eq!(code, 2, "{arguments:?}: {said}");
    assert!(!wrote, "{arguments:?}: a report was written");
    for expected in says {
        assert!(
            said.contains(expected),
            "{arguments:?} does not say «{expected}»: {said}"
        );
    }
}

#[test]
fn a_sound_journal_is_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = journal(dir.path());
    let (code, said, wrote) = check(dir.path(), &[journal.to_str().unwrap()]);
    assert_eq!((code, wrote), (0, true), "{said}");
    assert!(segments(&journal).len() > 1, "the journal has one segment only");
}

#[test]
fn damaged_bytes_are_named_with_their_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = journal(dir.path());
    let first = segments(&journal).remove(0);
    let mut bytes = std::fs::read(&first).expect("a segment");
    let place = bytes.len() - 10;
    bytes[place] ^= 0x55;
    std::fs::write(&first, &bytes).expect("damage");
    let name = first.file_name().unwrap().to_str().unwrap();
    refuses(
        dir.path(),
        &[journal.to_str().unwrap()],
        &[name, "at byte", "damaged"],
    );
}

#[test]
fn a_segment_that_ends_too_early_is_named_with_its_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = journal(dir.path());
    let first = segments(&journal).remove(0);
    let bytes = std::fs::read(&first).expect("a segment");
    std::fs::write(&first, &bytes[..bytes.len() - 7]).expect("damage");
    let name = first.file_name().unwrap().to_str().unwrap();
    refuses(
        dir.path(),
        &[journal.to_str().unwrap()],
        &[name, "at byte", "ends within it"],
    );
    // Not even the header is there: the recorder was stopped while it began the segment.
    std::fs::write(&first, &bytes[..9]).expect("damage");
    let (code, said, _) = check(dir.path(), &[journal.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(name) && said.contains("less than a header"),
        "{said}"
    );
}

#[test]
fn an_unfinished_end_is_read_up_to_there_and_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = journal(dir.path());
    let last = segments(&journal).pop().expect("a segment");
    let bytes = std::fs::read(&last).expect("a segment");
    std::fs::write(&last, &bytes[..bytes.len() - 7]).expect("damage");
    let (code, said, _) = check(dir.path(), &[journal.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("unfinished block"), "{said}");
}

#[test]
fn another_version_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = journal(dir.path());
    let first = segments(&journal).remove(0);
    let mut bytes = std::fs::read(&first).expect("a segment");
    // The magic comes first, then the version; the header's checksum is not looked at before it.
    bytes[8] = bytes[8].wrapping_add(9);
    std::fs::write(&first, &bytes).expect("another version");
    let name = first.file_name().unwrap().to_str().unwrap();
    refuses(dir.path(), &[journal.to_str().unwrap()], &[name, "version"]);
}

#[test]
fn what_is_no_journal_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let nowhere = dir.path().join("nowhere");
    refuses(dir.path(), &[nowhere.to_str().unwrap()], &["nowhere"]);
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("a directory");
    refuses(dir.path(), &[empty.to_str().unwrap()], &["empty", "no journal"]);
    let rubbish = dir.path().join("segment-00000000000000000001");
    std::fs::write(&rubbish, [0_u8, 159, 146, 150].repeat(64)).expect("rubbish");
    refuses(
        dir.path(),
        &[rubbish.to_str().unwrap()],
        &["segment-0000", "not a segment"],
    );
    let story = dir.path().join("story");
    std::fs::write(&story, "a: select 1 => (1)\nthis is no line of a story\n").expect("a story");
    refuses(dir.path(), &[story.to_str().unwrap()], &["story", "line 2"]);
}

#[test]
fn a_profile_or_level_that_does_not_exist_is_told_with_those_that_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = journal(dir.path());
    let path = journal.to_str().unwrap();
    refuses(
        dir.path(),
        &[path, "--profile", "oracle"],
        &["oracle", "postgres"],
    );
    refuses(
        dir.path(),
        &[path, "--claim", "chaos"],
        &["chaos", "serializable"],
    );
    refuses(
        dir.path(),
        &[path, "--profile", "postgres-standby", "--claim", "serializable"],
        &["postgres-standby", "serializable", "repeatable-read"],
    );
}
