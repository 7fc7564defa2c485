//! Keeps what the audit crashed on, so that it can be seen again.
//!
//! In: a crash, with the records of those who were there. Out: a small journal under `crashes/` in the directory of the
//! journal, for `pgassay check` and `pgassay trace`.
//!
//! Always true: there are never more than a few of them; what comes later is only said.

use crate::config;
use crate::keep;
use anyhow::{Context, Result};
use pgassay_audit::explain::crash::Crash;
use pgassay_audit::trace::journal::Writer;
use std::path::{Path, PathBuf};

/// Crashes of which the records are kept.
const KEPT_MAX: usize = 8;

/// Says that the audit crashed, and keeps the records if there is a journal and room.
pub fn keep(journal: &config::Journal, crash: &Crash) {
    let what = format!(
        "the audit crashed on transaction {} of session {} ({}); it counts as unknown",
        crash.transaction.number, crash.transaction.session.0, crash.message
    );
    let Some(dir) = &journal.dir else {
        tracing::error!("{what}");
        return;
    };
    match write(journal, dir, crash) {
        Ok(Some(place)) => tracing::error!("{what}; its records are in {}", place.display()),
        Ok(None) => tracing::error!("{what}; records of {KEPT_MAX} crashes are kept already"),
        Err(error) => tracing::error!("{what}; its records could not be kept: {error:#}"),
    }
}

fn write(journal: &config::Journal, dir: &Path, crash: &Crash) -> Result<Option<PathBuf>> {
    let free = (1..=KEPT_MAX)
        .map(|n| dir.join("crashes").join(n.to_string()))
        .find(|place| !place.exists());
    let Some(place) = free else { return Ok(None) };
    std::fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
    let mut writer = Writer::open(&place, keep::options(journal)?)?;
    for record in &crash.records {
        writer.push(record)?;
    }
    writer.close()?;
    Ok(Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgassay_audit::script;
    use pgassay_audit::trace::Record;
    use pgassay_audit::trace::journal::Reader;
    use pgassay_audit::verdict::TxnId;
    use pgassay_rules::Level;

    #[test]
    fn records_of_a_few_crashes_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = config::Journal {
            dir: Some(dir.path().to_owned()),
            ..config::Journal::default()
        };
        let records = script::parse("t1: select 1 => (1)\n", Level::ReadCommitted).expect("a story");
        let Some(Record::Statement(statement)) = records.iter().find(|r| matches!(r, Record::Statement(_)))
        else {
            panic!("{records:?}")
        };
        let crash = Crash {
            transaction: TxnId {
                session: statement.session,
                number: 1,
            },
            message: "an assertion".into(),
            records: records.clone(),
        };
        for _ in 0..KEPT_MAX + 3 {
            keep(&journal, &crash);
        }
        let kept = std::fs::read_dir(dir.path().join("crashes")).expect("crashes");
        assert_eq!(kept.count(), KEPT_MAX);
        let reader = Reader::open(&dir.path().join("crashes/1"), None).expect("a journal");
        let read: Vec<Record> = reader.map(|record| record.expect("a record")).collect();
        let statements = |all: &[Record]| {
            let all = all.iter().filter(|r| matches!(r, Record::Statement(_)));
            all.cloned().collect::<Vec<_>>()
        };
        assert_eq!(statements(&read), statements(&records));
        let whole = Reader::open(dir.path(), None);
        assert!(
            whole.is_err() || whole.is_ok_and(|mut reader| reader.next().is_none()),
            "they are no part of the journal"
        );
    }
}
