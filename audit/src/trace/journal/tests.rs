//! Whatever happens to the bytes: no panic, and never a wrong record.

use super::*;
use crate::trace::{
    Answer, Column, Gap, Nanos, Observation, Outcome, Parameter, Protocol, Record, SessionFacts, SessionId,
    Status, Window,
};
use bytes::Bytes;
use std::os::unix::fs::PermissionsExt;

fn records(count: u64) -> Vec<Record> {
    let mut random = fastrand::Rng::with_seed(count);
    let mut records = vec![Record::SessionStart(SessionFacts {
        session: SessionId(1),
        at: 5,
        user: "u".into(),
        database: "d".into(),
        server_version: "15".into(),
        parameters: vec![("TimeZone".into(), "UTC".into())],
    })];
    for seq in 0..count {
        let at = 10 + seq * 10;
        records.push(Record::Statement(Box::new(Observation {
            session: SessionId(1),
            seq,
            text: format!("select {}", random.u8(..)).into(),
            part: 0,
            protocol: Protocol::Extended,
            parameters: vec![Parameter {
                type_oid: 23,
                format: 0,
                value: Some(Bytes::from("1")),
            }],
            window: Window::new(at, at + 4),
            outcome: Outcome::Answer(Answer {
                columns: vec![Column {
                    name: "a".into(),
                    type_oid: 25,
                    type_modifier: -1,
                    format: 0,
                }]
                .into(),
                rows: vec![vec![None, Some(Bytes::from(random.alphabetic().to_string()))]],
                tag: Some("SELECT 1".into()),
                cut: None,
                copy: None,
            }),
            before: Status::Idle,
            after: Status::Idle,
            group: seq,
            ready: Window::new(at, at + 5),
        })));
        records.push(Record::Mark { at: at + 6 });
    }
    records.push(Record::SessionEnd {
        session: SessionId(1),
        at: 20 + count * 10,
    });
    records
}

/// Writes blocks of `per_block` records.
fn write(dir: &Path, records: &[Record], per_block: usize, options: Options) {
    let mut writer = Writer::open(dir, options).unwrap();
    for chunk in records.chunks(per_block) {
        for record in chunk {
            writer.push(record).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

fn read(path: &Path, key: Option<Key>) -> (Vec<Record>, Option<JournalError>, Vec<Note>) {
    let mut reader = match Reader::open(path, key) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error), Vec::new()),
    };
    let mut records = Vec::new();
    let mut failed = None;
    for record in &mut reader {
        match record {
            Ok(record) => records.push(record),
            Err(error) => failed = Some(error),
        }
    }
    (records, failed, reader.notes().to_vec())
}

fn key() -> Key {
    Key::new([3; 32])
}

#[test]
fn what_goes_in_comes_out_twice() {
    for encrypt in [None, Some(key())] {
        let dir = tempfile::tempdir().unwrap();
        let written = records(200);
        let options = Options {
            segment_bytes_max: 1000,
            encrypt: encrypt.clone(),
            ..Options::default()
        };
        write(dir.path(), &written, 7, options);
        assert!(segments(dir.path()).unwrap().len() > 3);
        for _ in 0..2 {
            let (read, error, notes) = read(dir.path(), encrypt.clone());
            assert!(error.is_none() && notes.is_empty());
            assert_eq!(read, written);
        }
        let index = Index::read(dir.path());
        assert_eq!(
            index.segments.iter().map(|e| e.records).sum::<u64>(),
            written.len() as u64
        );
        for file in segments(dir.path())
            .unwrap()
            .iter()
            .chain([&dir.path().join("index")])
        {
            assert_eq!(
                std::fs::metadata(file).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }
}

/// Recorded by the proxies of their time.
#[test]
fn journals_of_every_older_version_are_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/histories/workloads");
    let recorded: [(u32, &str); 2] = [
        (1, "bank-repeatable-read"),
        (2, "blindw-duplicates-repeatable-read"),
    ];
    assert_eq!(recorded.len() as u32, VERSION - 1, "one of each");
    for (version, name) in recorded {
        let dir = root.join(name);
        let bytes = std::fs::read(&segments(&dir).unwrap()[0]).unwrap();
        assert_eq!(
            bytes[8..12],
            version.to_le_bytes(),
            "{name} is of another version"
        );
        let (read, error, notes) = read(&dir, None);
        assert!(
            error.is_none() && notes.is_empty(),
            "{name}: {error:?}, {notes:?}"
        );
        let is_statement = |record: &&Record| matches!(record, Record::Statement(_));
        assert!(read.iter().filter(is_statement).count() > 20, "{name}");
        let copied = read.iter().filter_map(|record| match record {
            Record::Bootstrap(bootstrap) => Some(&bootstrap.tables),
            _ => None,
        });
        let rows = copied.flatten().filter_map(|table| table.rows.as_ref());
        assert!(rows.map(|rows| rows.len()).sum::<usize>() > 0, "{name}");
    }
}

#[test]
fn cut_at_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let written = records(12);
    write(dir.path(), &written, 5, Options::default());
    let file = segments(dir.path()).unwrap().remove(0);
    let whole = std::fs::read(&file).unwrap();
    let mut complete = 0;
    for length in 0..whole.len() {
        std::fs::write(&file, &whole[..length]).unwrap();
        let (read_back, error, notes) = read(dir.path(), None);
        assert!(error.is_none(), "{length}: {error:?}");
        assert_eq!(read_back, written[..read_back.len()], "{length}");
        if notes.is_empty() {
            complete += 1;
        }
        // A writer that opens the directory again cuts what the reader only skips.
        let tidy = dir.path().join("again");
        let _ = std::fs::create_dir(&tidy);
        let copy = tidy.join(segment_name(0));
        std::fs::write(&copy, &whole[..length]).unwrap();
        write(&tidy, &[Record::Mark { at: 10_000 }], 1, Options::default());
        let (again, error, notes) = read(&tidy, None);
        assert!(
            error.is_none() && (notes.is_empty() || length < format::HEADER),
            "{length}: {notes:?}"
        );
        assert_eq!(again[..read_back.len()], read_back[..]);
        assert_eq!(again.last(), Some(&Record::Mark { at: 10_000 }));
        std::fs::remove_dir_all(&tidy).unwrap();
    }
    // Cuts between blocks cannot be told from a quiet end.
    assert_eq!(complete, written.len().div_ceil(5));
}

#[test]
fn flipped_bytes_never_yield_wrong_records() {
    for encrypt in [None, Some(key())] {
        let dir = tempfile::tempdir().unwrap();
        let written = records(6);
        write(
            dir.path(),
            &written,
            5,
            Options {
                encrypt: encrypt.clone(),
                ..Options::default()
            },
        );
        let file = segments(dir.path()).unwrap().remove(0);
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            for flip in [1u8, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                std::fs::write(&file, &bytes).unwrap();
                let (read, error, notes) = read(dir.path(), encrypt.clone());
                assert_eq!(read, written[..read.len()], "byte {at}");
                assert!(error.is_some() || !notes.is_empty(), "byte {at} passed unnoticed");
            }
        }
    }
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = Reader::open(dir.path(), None).err().unwrap().to_string();
    assert!(nothing.contains("there is no journal here"), "{nothing}");
    assert!(Reader::open(&dir.path().join("none"), None).is_err());

    write(
        dir.path(),
        &records(30),
        4,
        Options {
            segment_bytes_max: 500,
            ..Options::default()
        },
    );
    let files = segments(dir.path()).unwrap();
    let whole = std::fs::read(&files[0]).unwrap();

    // In the middle of a run nothing may be torn.
    std::fs::write(&files[0], &whole[..whole.len() - 3]).unwrap();
    let error = read(dir.path(), None).1.unwrap().to_string();
    assert!(
        error.contains("segment-0000") && error.contains("at byte") && error.contains("truncate"),
        "{error}"
    );

    let mut other = whole.clone();
    other[8] = 9;
    std::fs::write(&files[0], &other).unwrap();
    let error = read(dir.path(), None).1.unwrap().to_string();
    assert!(error.contains("version 9"), "{error}");

    std::fs::write(&files[0], [b'x'; 500]).unwrap();
    let error = read(dir.path(), None).1.unwrap().to_string();
    assert!(error.contains("not a segment"), "{error}");

    std::fs::remove_file(&files[0]).unwrap();
    let (records, error, _) = read(dir.path(), None);
    assert!(error.is_none());
    let Some(Record::Gap(Gap {
        session: None,
        reason,
        ..
    })) = records.first()
    else {
        panic!("{records:?}")
    };
    assert_eq!(reason, "older segments of the journal were dropped");

    std::fs::remove_file(&files[2]).unwrap();
    let (records, _, notes) = read(dir.path(), None);
    let gaps = records.iter().filter(|r| matches!(r, Record::Gap(_))).count();
    assert_eq!((gaps, notes.len()), (2, 1));
}

#[test]
fn keys_are_asked_for_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &records(3),
        2,
        Options {
            encrypt: Some(key()),
            ..Options::default()
        },
    );
    assert!(matches!(
        read(dir.path(), None).1,
        Some(JournalError::KeyMissing(_))
    ));
    assert!(matches!(
        read(dir.path(), Some(Key::new([4; 32]))).1,
        Some(JournalError::KeyWrong(_))
    ));
    let bytes = std::fs::read(&segments(dir.path()).unwrap()[0]).unwrap();
    assert!(!bytes.windows(6).any(|w| w == b"select"));

    let file = dir.path().join("key");
    for (content, sound) in [
        (&[3u8; 32][..], true),
        (&b"03".repeat(32), true),
        (b"short", false),
    ] {
        std::fs::write(&file, content).unwrap();
        match Key::read(&file) {
            Ok(key) => assert!(sound && read(dir.path(), Some(key)).1.is_none()),
            Err(error) => assert!(!sound && error.to_string().contains("64 hexadecimal digits")),
        }
    }
}

#[test]
fn redacted_journals_say_so() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &records(3),
        2,
        Options {
            redact: Some(key()),
            ..Options::default()
        },
    );
    let reader = Reader::open(dir.path(), None).unwrap();
    assert!(reader.is_redacted());
}

#[test]
fn several_runs_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let written = records(5);
    write(dir.path(), &written, 3, Options::default());
    write(dir.path(), &written, 3, Options::default());
    let (read, error, _) = read(dir.path(), None);
    assert!(error.is_none());
    assert_eq!(read.len(), 2 * written.len() + 1);
    let Record::Gap(gap) = &read[written.len()] else {
        panic!("no gap between the runs")
    };
    assert_eq!((gap.session, gap.window.sent), (None, 70));
    let mut last: Nanos = 0;
    for record in &read {
        if let Record::Mark { at } = record {
            assert!(*at > last);
            last = *at;
        }
    }
    let sessions: Vec<u64> = read
        .iter()
        .filter_map(|r| {
            if let Record::SessionStart(f) = r {
                Some(f.session.0)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(sessions, [1, 3]);
}

#[test]
fn ticks_flush_rotate_and_drop() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        segment_age_max: 5_000,
        flush: 100,
        bytes_max: 2_000,
        ..Options::default()
    };
    let mut writer = Writer::open(dir.path(), options).unwrap();
    let kept = || -> u64 {
        let files = segments(dir.path()).unwrap();
        files.iter().map(|f| std::fs::metadata(f).unwrap().len()).sum()
    };
    writer.push(&Record::Mark { at: 1_000 }).unwrap();
    writer.tick(1_050).unwrap();
    assert!(segments(dir.path()).unwrap().is_empty());
    writer.tick(1_100).unwrap();
    assert_eq!(read(dir.path(), None).0, [Record::Mark { at: 1_000 }]);
    for step in 1..200u64 {
        writer
            .push(&Record::Mark {
                at: 1_000 + step * 1_000,
            })
            .unwrap();
        writer.tick(1_000 + step * 1_000 + 100).unwrap();
        assert!(kept() <= 2_000, "{} at step {step}", kept());
    }
    assert!(kept() > 1_000, "{}", kept());
    writer.close().unwrap();
    let (records, error, _) = read(dir.path(), None);
    assert!(error.is_none());
    assert_eq!(records.last(), Some(&Record::Mark { at: 200_000 }));
}

/// A journal smaller than a usual segment, and one whose records may be kept for less than an hour.
#[test]
fn limits_hold_however_small_they_are() {
    const SECOND: Nanos = 1_000_000_000;
    for (bytes_max, age_seconds_max) in [(40_000, 0), (0, 40)] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            bytes_max,
            age_seconds_max,
            ..Options::default()
        };
        let mut writer = Writer::open(dir.path(), options).unwrap();
        for second in 1..1_000u64 {
            writer.push(&Record::Mark { at: second * SECOND }).unwrap();
            writer.tick(second * SECOND + SECOND).unwrap();
        }
        writer.close().unwrap();
        let (records, error, _) = read(dir.path(), None);
        assert!(error.is_none());
        let first = records.iter().find_map(|record| match record {
            Record::Mark { at } => Some(at / SECOND),
            _ => None,
        });
        let files = segments(dir.path()).unwrap();
        let bytes: u64 = files.iter().map(|f| std::fs::metadata(f).unwrap().len()).sum();
        if age_seconds_max > 0 {
            // A segment goes as a whole, when the last of it is too old.
            assert!((930..970).contains(&first.unwrap()), "{first:?}");
        } else {
            assert!(bytes <= bytes_max && first > Some(1), "{bytes} from {first:?}");
        }
    }
}
