//! `pgassay trace`: look into a journal.

mod show;
mod stats;
mod cut;

use super::Usage;
use crate::config::Config;
use pgassay_audit::trace::journal::{JournalError, Key, Reader};
use pgassay_audit::trace::{Nanos, Record, SessionId, Window};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// What was said, one line each
    Show {
        #[command(flatten)]
        input: Input,
        /// Stop after so many lines
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
    /// Totals: sessions, transactions, slowest statements, by table, by shape
    Stats {
        #[command(flatten)]
        input: Input,
        /// Rows of each list
        #[arg(long, value_name = "N", default_value_t = 10)]
        top: usize,
        #[arg(long)]
        json: bool,
    },
    /// Write a smaller journal
    Cut {
        #[command(flatten)]
        input: Input,
        /// The directory of the new journal
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Every record, whole, as JSON
    Cat {
        #[command(flatten)]
        input: Input,
        /// It is JSON anyway
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Input {
    /// A directory that `pgassay proxy --journal` wrote, or one of its segments
    journal: PathBuf,
    /// Only this session; may be given several times
    #[arg(long, value_name = "N")]
    session: Vec<u64>,
    /// Only what ended so many seconds after the journal's beginning, or later
    #[arg(long, value_name = "SECONDS")]
    from: Option<f64>,
    /// Only what began before so many seconds after the journal's beginning
    #[arg(long, value_name = "SECONDS")]
    until: Option<f64>,
    /// The key of an encrypted journal
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

pub fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let done = match args.command {
        Command::Show { input, limit, json } => show::show(
            &mut input.open(&config)?,
            limit.unwrap_or(usize::MAX),
            json,
            &mut out,
        ),
        Command::Stats { input, top, json } => stats::stats(&mut input.open(&config)?, top, json, &mut out),
        Command::Cut { input, to } => cut::cut(&mut input.open(&config)?, &to, &mut out),
        Command::Cat { input, json: _ } => show::cat(&mut input.open(&config)?, &mut out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        // `pgassay trace cat … | head` is no failure.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The chosen part of a journal.
struct Chosen {
    reader: Reader,
    sessions: Vec<SessionId>,
    from: Option<Nanos>,
    until: Option<Nanos>,
    /// The first instant of the journal, from which seconds are counted.
    beginning: Option<Nanos>,
    told: usize,
}

impl Input {
    fn open(self, config: &Config) -> anyhow::Result<Chosen> {
        let key = match self.key_file.as_ref().or(config.journal.key_file.as_ref()) {
            Some(file) => Some(Key::read(file).map_err(usage)?),
            None => None,
        };
        let seconds = |seconds: f64| {
            if seconds.is_finite() && seconds >= 0.0 {
                Ok((seconds * 1e9) as Nanos)
            } else {
                Err(Usage(format!("{seconds} is not a number of seconds")))
            }
        };
        Ok(Chosen {
            reader: Reader::open(&self.journal, key).map_err(usage)?,
            sessions: self.session.into_iter().map(SessionId).collect(),
            from: self.from.map(seconds).transpose()?,
            until: self.until.map(seconds).transpose()?,
            beginning: None,
            told: 0,
        })
    }
}

/// A journal that cannot be read is wrong input.
fn usage(error: JournalError) -> Usage {
    Usage(error.to_string())
}

impl Chosen {
    /// The next record that was asked for.
    fn next(&mut self) -> anyhow::Result<Option<Record>> {
        loop {
            let record = self.reader.next().transpose().map_err(usage)?;
            for note in &self.reader.notes()[self.told..] {
                eprintln!("pgassay: {note}");
            }
            self.told = self.reader.notes().len();
            let Some(record) = record else { return Ok(None) };
            let (first, last) = span(&record);
            let beginning = *self.beginning.get_or_insert_with(|| {
                let instant = |seconds: Option<Nanos>| seconds.map(|s| first.saturating_add(s));
                let until = instant(self.until).unwrap_or(Nanos::MAX);
                self.reader
                    .narrow(Window::new(instant(self.from).unwrap_or(0), until));
                first
            });
            let early = self
                .from
                .is_some_and(|from| last < beginning.saturating_add(from));
            let late = self
                .until
                .is_some_and(|until| first >= beginning.saturating_add(until));
            // What a session said at its start, and the state, belong to all that follows.
            let needed = record.is_beginning() && !late;
            if self.is_of_sessions(&record) && (needed || !(early || late)) {
                return Ok(Some(record));
            }
        }
    }

    fn is_of_sessions(&self, record: &Record) -> bool {
        let is_chosen = |session| self.sessions.contains(&session);
        self.sessions.is_empty() || record.session().is_none_or(is_chosen)
    }

    fn seconds(&self, at: Nanos) -> f64 {
        at.saturating_sub(self.beginning.unwrap_or(at)) as f64 / 1e9
    }
}

/// The instants that a record speaks of; one that was never learned is not counted.
fn span(record: &Record) -> (Nanos, Nanos) {
    let (first, last) = match record {
        Record::SessionStart(facts) => (facts.at, facts.at),
        Record::Statement(o) => (o.window.sent, o.window.done),
        Record::SessionEnd { at, .. }
        | Record::ServerGone { at, .. }
        | Record::Mark { at }
        | Record::Writers { at, .. }
        | Record::CommitTimestamp { at, .. } => (*at, *at),
        Record::Gap(gap) => (gap.window.sent, gap.window.done),
        Record::Bootstrap(bootstrap) => (bootstrap.window.sent, bootstrap.window.done),
        Record::Reread(reread) => (reread.window.sent, reread.window.done),
        Record::Catalog(read) => (read.window.sent, read.window.done),
    };
    (first, if last == Nanos::MAX { first } else { last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgassay_audit::trace::journal::{Options, Writer};
    use pgassay_audit::trace::{Answer, Observation, Outcome, Protocol, ServerError, SessionFacts, Status};
    use std::path::Path;

    /// One session per number, each with a transaction and an error.
    fn journal(dir: &Path) {
        let mut writer = Writer::open(dir, Options::default()).unwrap();
        let second = 1_000_000_000;
        for n in 1..=2u64 {
            let session = SessionId(n);
            let mut at = n * 10 * second;
            let facts = SessionFacts {
                session,
                at,
                user: "u".into(),
                database: "d".into(),
                server_version: "15".into(),
                parameters: vec![],
            };
            writer.push(&Record::SessionStart(facts)).unwrap();
            let error = ServerError {
                sqlstate: "42P01".into(),
                message: "no such table".into(),
                detail: None,
                constraint: None,
                table: None,
            };
            let steps = [
                ("begin", Status::Idle, Status::InBlock, Ok(("BEGIN", vec![]))),
                (
                    "select a from t where id = 7",
                    Status::InBlock,
                    Status::InBlock,
                    Ok(("SELECT 1", vec!["x"])),
                ),
                ("commit", Status::InBlock, Status::Idle, Ok(("COMMIT", vec![]))),
                ("select 1 from nowhere", Status::Idle, Status::Idle, Err(error)),
            ];
            for (seq, (text, before, after, outcome)) in steps.into_iter().enumerate() {
                at += second;
                let outcome = match outcome {
                    Err(error) => Outcome::Error(error),
                    Ok((tag, cells)) => Outcome::Answer(Answer {
                        rows: cells
                            .into_iter()
                            .map(|cell| vec![Some(cell.into()), None])
                            .collect(),
                        tag: Some(tag.into()),
                        ..Answer::default()
                    }),
                };
                let window = Window::new(at, at + second / 4);
                let observation = Observation {
                    session,
                    seq: seq as u64,
                    text: text.into(),
                    part: 0,
                    protocol: Protocol::Simple,
                    parameters: vec![],
                    window,
                    outcome,
                    before,
                    after,
                    group: seq as u64,
                    ready: window,
                };
                writer.push(&Record::Statement(Box::new(observation))).unwrap();
            }
            writer
                .push(&Record::SessionEnd {
                    session,
                    at: at + second,
                })
                .unwrap();
        }
        writer.close().unwrap();
    }

    fn input(dir: &Path) -> Input {
        Input {
            journal: dir.to_owned(),
            session: vec![],
            from: None,
            until: None,
            key_file: None,
        }
    }

    fn told(input: Input, tell: impl Fn(&mut Chosen, &mut Vec<u8>) -> anyhow::Result<()>) -> String {
        let mut out = Vec::new();
        tell(&mut input.open(&Config::default()).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn show_tells_one_line_each() {
        let dir = tempfile::tempdir().unwrap();
        journal(dir.path());
        let mut chosen = input(dir.path());
        chosen.session = vec![2];
        let text = told(chosen, |chosen, out| show::show(chosen, 5, false, out));
        assert_eq!(
            text,
            "   10.000000 s2 starts: u on d, server 15\n   \
             11.000000 s2 begin → BEGIN  250.000 ms\n   \
             12.000000 s2 · select a from t where id = 7 → SELECT 1 (x, NULL)  250.000 ms\n   \
             13.000000 s2 · commit → COMMIT  250.000 ms\n   \
             14.000000 s2 select 1 from nowhere → ERROR 42P01 no such table  250.000 ms\n"
        );
        let lines = told(input(dir.path()), show::cat);
        assert_eq!(lines.lines().count(), 12);
        for line in lines.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn stats_count() {
        let dir = tempfile::tempdir().unwrap();
        journal(dir.path());
        let text = told(input(dir.path()), |chosen, out| {
            stats::stats(chosen, 4, true, out)
        });
        let totals: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(totals["sessions"], 2);
        assert_eq!(totals["statements"], 8);
        assert_eq!(totals["errors"], 2);
        assert_eq!(totals["transactions"]["committed"], 2);
        assert_eq!(totals["transactions"]["rolled_back"], 2);
        let tables: Vec<&str> = totals["by_table"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|t| t["name"].as_str())
            .collect();
        assert_eq!(tables, ["nowhere", "t"]);
        assert!(text.contains("select a from t where id = ?"), "{text}");
        let plain = told(input(dir.path()), |chosen, out| {
            stats::stats(chosen, 3, false, out)
        });
        assert!(
            plain.contains("transactions committed") && plain.contains("Slowest"),
            "{plain}"
        );
    }

    #[test]
    fn cut_by_time_and_session() {
        let dir = tempfile::tempdir().unwrap();
        journal(dir.path());
        let part = dir.path().join("part");
        let mut chosen = input(dir.path());
        (chosen.session, chosen.from, chosen.until) = (vec![1], Some(1.5), Some(3.5));
        told(chosen, |chosen, out| cut::cut(chosen, &part, out));
        let text = told(input(&part), |chosen, out| show::show(chosen, 99, false, out));
        let kept: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split(" s1 ").nth(1))
            .collect();
        assert_eq!(kept.len(), 3, "{text}");
        assert!(kept[0].starts_with("starts") && kept[2].contains("commit"));
        // Nothing is written over.
        let mut again = input(dir.path()).open(&Config::default()).unwrap();
        assert!(cut::cut(&mut again, &part, &mut Vec::new()).is_err());
    }

    /// With the index and without it the same is told; with it, less is read.
    #[test]
    fn the_index_saves_reading() {
        let dir = tempfile::tempdir().unwrap();
        let small = Options {
            segment_bytes_max: 1,
            ..Options::default()
        };
        let mut writer = Writer::open(dir.path(), small).unwrap();
        let whole = tempfile::tempdir().unwrap();
        journal(whole.path());
        for record in Reader::open(whole.path(), None).unwrap() {
            writer.push(&record.unwrap()).unwrap();
            // A segment of its own for every record.
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        let part = || {
            let mut chosen = input(dir.path());
            (chosen.from, chosen.until) = (Some(3.5), Some(12.5));
            chosen.open(&Config::default()).unwrap()
        };
        let told = |mut chosen: Chosen| {
            let mut out = Vec::new();
            show::cat(&mut chosen, &mut out).unwrap();
            (String::from_utf8(out).unwrap(), chosen.reader.skipped())
        };
        let (with, skipped) = told(part());
        // Three statements before, three records after; the start of the first session is told.
        assert_eq!(skipped, 6, "{with}");
        assert_eq!(with.lines().count(), 6, "{with}");
        assert_eq!(told(part()).0, with);
        std::fs::remove_file(dir.path().join("index")).unwrap();
        assert_eq!(told(part()), (with.clone(), 0));
        // An index that speaks of other files is not believed.
        std::fs::write(dir.path().join("index"), "{\"segments\": []}").unwrap();
        assert_eq!(told(part()), (with, 0));
    }

    #[test]
    fn what_is_no_journal_is_wrong_usage() {
        let dir = tempfile::tempdir().unwrap();
        let error = input(dir.path()).open(&Config::default()).err().unwrap();
        assert!(error.downcast_ref::<Usage>().is_some());
        assert!(error.to_string().contains("there is no journal here"));
    }
}
