//! `pgassay check`: audit journals, or stories in plain text.
//!
//! Exit codes: 0 nothing wrong, 1 a violation, 2 wrong usage or unreadable input, 3 nothing wrong but too
//! little coverage.

use super::{Usage, report, wait};
use crate::config::Config;
use crate::judge::Guarded;
use crate::record;
use indicatif::{ProgressBar, ProgressStyle};
use pgassay_audit::trace::Record;
use pgassay_audit::trace::journal::{Ahead, Index, Key, Reader};
use pgassay_audit::verdict::Summary;
use pgassay_audit::{Auditor, Settings, script};
use pgassay_rules::{Level, profile::Profile};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directories or segments that `pgassay proxy --journal` wrote, or stories in plain text
    #[arg(required = true, value_name = "JOURNAL")]
    journals: Vec<PathBuf>,
    /// The database profile: postgres, postgres-standby …
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Judge every transaction at this level as well: «would this have been serializable?»
    #[arg(long, value_name = "LEVEL")]
    claim: Option<String>,
    /// Worker threads; the report is the same with any number
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// The key of an encrypted journal
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    report: report::Args,
}

pub fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let mut settings = record::settings(&config).map_err(|error| Usage(format!("{error:#}")))?;
    if let Some(profile) = args.profile {
        settings.profile = profile;
    }
    if let Some(claim) = args.claim {
        settings.claim = Some(claim.parse::<Level>().map_err(|error| Usage(error.to_string()))?);
    }
    if let Some(workers) = args.workers {
        settings.workers = workers.max(1);
    }
    is_sensible(&settings)?;
    let reports = args.report.check(&config.thresholds, settings.claim)?;
    let key = match args.key_file.or(config.journal.key_file) {
        Some(file) => Some(Key::read(&file).map_err(|error| Usage(error.to_string()))?),
        None => None,
    };
    let mut summary = Summary::default();
    for path in &args.journals {
        let one = audit(path, key.as_ref(), &settings)?;
        summary = record::merged(&summary, &one);
    }
    let verdict = reports.tell(&summary)?;
    Ok(ExitCode::from(verdict.exit_code()))
}

/// A profile or a level that does not exist is told before anything is read.
pub fn is_sensible(settings: &Settings) -> Result<(), Usage> {
    let profile = Profile::named(&settings.profile).map_err(|error| Usage(error.to_string()))?;
    match settings.claim {
        Some(level) if profile.level(level).is_none() => {
            let known: Vec<&str> = profile.levels().map(|(level, _)| level.name()).collect();
            let has_it = |name: &&str| Profile::named(name).is_ok_and(|other| other.level(level).is_some());
            let others: Vec<String> = Profile::names()
                .filter(has_it)
                .map(|name| format!("; --profile {name} has it"))
                .collect();
            Err(Usage(format!(
                "the profile «{}» has no level «{level}»; it has {}{}",
                settings.profile,
                known.join(", "),
                others.concat()
            )))
        }
        _ => Ok(()),
    }
}

/// Audits one journal from its first record to its last.
pub fn audit(path: &Path, key: Option<&Key>, settings: &Settings) -> Result<Summary, Usage> {
    let mut auditor = Guarded::new(|| Auditor::new(settings.clone()));
    let mut progress = Progress::new(path);
    if is_story(path)? {
        for record in read_story(path, settings.claim)? {
            auditor.take(record);
        }
    } else {
        let reader = Reader::open(path, key.cloned()).map_err(|error| Usage(error.to_string()))?;
        let mut records = Ahead::new(reader, settings.workers);
        for record in records.by_ref() {
            auditor.take(record.map_err(|error| Usage(error.to_string()))?);
            progress.advance();
        }
        let Some(reader) = records.into_reader() else {
            return Err(Usage(format!("{}: reading crashed", path.display())));
        };
        auditor.break_off();
        for note in reader.notes() {
            tracing::warn!("{note}");
        }
        if reader.is_redacted() {
            tracing::warn!(
                "{}: values are redacted, so answers can be checked only in part",
                path.display()
            );
        }
    }
    progress.finish();
    wait::watch(|| "deciding what is still open".to_owned(), || auditor.finish());
    for crash in auditor.take_crashes() {
        tracing::error!(
            "{}: the audit crashed on transaction {} of session {} ({}); it counts as unknown",
            path.display(),
            crash.transaction.number,
            crash.transaction.session.0,
            crash.message
        );
    }
    Ok(auditor.summary())
}

/// Whether this is text that a person wrote, and not a journal.
fn is_story(path: &Path) -> Result<bool, Usage> {
    if !path.is_file() {
        return Ok(false);
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4096).read_to_end(&mut head));
    read.map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    // A segment begins with its magic and binary numbers; a text may be cut within a character.
    let is_text = match std::str::from_utf8(&head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    Ok(is_text && !head.is_empty() && !head.contains(&0))
}

fn read_story(path: &Path, claim: Option<Level>) -> Result<Vec<Record>, Usage> {
    let place = |error: &dyn std::fmt::Display| Usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| place(&error))?;
    let (story, _) = script::expectations(&text).map_err(|error| place(&error))?;
    script::parse(&story, claim.unwrap_or(Level::ReadCommitted)).map_err(|error| place(&error))
}

fn recorded(journal: &Path) -> u64 {
    let index = Index::read(journal);
    index.segments.iter().map(|segment| segment.records).sum()
}

/// Says how far it is when that takes longer than two seconds and somebody watches.
struct Progress {
    started: Instant,
    records: u64,
    /// As the journal's index has it, which need not be right.
    all: Option<u64>,
    name: String,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(path: &Path) -> Progress {
        Progress {
            started: Instant::now(),
            records: 0,
            all: Some(recorded(path)).filter(|all| *all > 0),
            name: path.display().to_string(),
            bar: None,
        }
    }

    fn advance(&mut self) {
        self.records += 1;
        if !self.records.is_multiple_of(512) {
            return;
        }
        if self.bar.is_none()
            && self.started.elapsed() > Duration::from_secs(2)
            && std::io::stderr().is_terminal()
        {
            let (bar, template) = match self.all {
                Some(all) => (
                    ProgressBar::new(all),
                    "{msg}  {bar:30} {human_pos}/{human_len} records  {per_sec}  {eta} left",
                ),
                None => (
                    ProgressBar::new_spinner(),
                    "{spinner} {msg}  {human_pos} records  {per_sec}  {elapsed}",
                ),
            };
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_message(self.name.clone());
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.records);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
