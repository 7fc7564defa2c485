//! What `check` and `run` share: when a run fails, and where its reports go.

use super::Usage;
use crate::config::Thresholds;
use anyhow::Context;
use pgassay_audit::report::gate::{self, Gate, Verdict};
use pgassay_audit::report::text::Paint;
use pgassay_audit::report::{html, json, junit, markdown, sarif, text};
use pgassay_audit::verdict::Summary;
use pgassay_rules::Level;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Thresholds and reports")]
// Flattened into another command's `Args`: two groups of one name would not be allowed.
#[group(skip)]
pub struct Args {
    /// Only these rules fail the run (default: all); may be given several times or with commas
    #[arg(long, value_name = "RULE")]
    fail_on: Vec<String>,
    /// These rules never fail the run
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Exit with 3 when less than this share of the statements was checked whole: 0.95 or 95%
    #[arg(long, value_name = "SHARE")]
    min_coverage: Option<String>,
    /// Fingerprints in this file are known and do not fail the run
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the fingerprints of this run to FILE, to be given to --baseline
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Print the summary as JSON on stdout instead of text
    #[arg(long)]
    json: bool,
    /// Write the summary as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Write JUnit XML to FILE: a test case per rule and level, skipped where nothing was judged
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write SARIF to FILE: the violations whose statements name their source line (sqlcommenter's file and line)
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Write one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown to FILE
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Annotate the GitHub job, and append to its summary ($GITHUB_STEP_SUMMARY)
    #[arg(long)]
    github: bool,
    /// Say nothing but the reports that were asked for
    #[arg(long, short)]
    quiet: bool,
}

/// Thresholds and places, checked before any work is done.
#[derive(Debug)]
pub struct Reports {
    pub gate: Gate,
    args: Args,
    claim: Option<Level>,
}

impl Args {
    /// Flags win over `[thresholds]` of the configuration. Every mistake is a usage error.
    pub fn check(self, thresholds: &Thresholds, claim: Option<Level>) -> Result<Reports, Usage> {
        let pick = |flags: &Vec<String>, configured: &Vec<String>| {
            if flags.is_empty() {
                configured.clone()
            } else {
                flags.clone()
            }
        };
        let usage = |error: gate::BadGate| Usage(error.to_string());
        let (fail_on, allow) = (
            pick(&self.fail_on, &thresholds.fail_on),
            pick(&self.allow, &thresholds.allow),
        );
        let mut gate = Gate::new(&fail_on, &allow).map_err(usage)?;
        gate.min_coverage = match (&self.min_coverage, thresholds.min_coverage) {
            (Some(text), _) => Some(gate::share(text).map_err(usage)?),
            (None, Some(share)) => Some(gate::share(&share.to_string()).map_err(usage)?),
            (None, None) => None,
        };
        if let Some(path) = self.baseline.as_ref().or(thresholds.baseline.as_ref()) {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Usage(format!("cannot read the baseline {}: {error}", path.display())))?;
            gate.baseline =
                gate::baseline(&text).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
        }
        // Nobody should wait for a run whose reports cannot be kept.
        for path in self.places() {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            if dir.is_some_and(|dir| !dir.is_dir()) {
                let place = path.display();
                return Err(Usage(format!(
                    "cannot write {place}: its directory does not exist"
                )));
            }
        }
        Ok(Reports {
            gate,
            args: self,
            claim,
        })
    }
}

impl Args {
    /// The files that were asked for.
    fn places(&self) -> impl Iterator<Item = &PathBuf> {
        [
            &self.json_file,
            &self.junit,
            &self.sarif,
            &self.html,
            &self.markdown,
            &self.write_baseline,
        ]
        .into_iter()
        .flatten()
    }
}

impl Reports {
    /// Writes everything that was asked for and says the verdict.
    pub fn tell(&self, summary: &Summary) -> anyhow::Result<Verdict> {
        self.files(summary)?;
        let mut stdout = std::io::stdout().lock();
        if self.args.json {
            writeln!(stdout, "{}", pretty(summary))?;
        } else if !self.args.quiet {
            write!(stdout, "{}", text::summary(summary, &self.gate, paint(&stdout)))?;
        }
        stdout.flush()?;
        if self.args.github {
            // Commands are read from either stream; stdout may have to stay pure JSON.
            eprint!("{}", markdown::annotations(summary, &self.gate));
        }
        Ok(self.gate.judge(summary))
    }

    fn files(&self, summary: &Summary) -> anyhow::Result<()> {
        let args = &self.args;
        if let Some(path) = &args.json_file {
            write_file(path, &(pretty(summary) + "\n"))?;
        }
        if let Some(path) = &args.junit {
            let xml = junit::report(summary, &self.gate, self.claim).context("JUnit XML")?;
            write_file(path, &xml)?;
        }
        if let Some(path) = &args.sarif {
            let report = sarif::report(summary, &self.gate, env!("CARGO_PKG_VERSION"));
            let text = serde_json::to_string_pretty(&report).context("SARIF")?;
            write_file(path, &(text + "\n"))?;
        }
        if let Some(path) = &args.html {
            write_file(path, &html::summary(summary, &self.gate))?;
        }
        if let Some(path) = &args.markdown {
            write_file(path, &markdown::summary(summary, &self.gate))?;
        }
        if let Some(path) = &args.write_baseline {
            write_file(path, &gate::baseline_of(summary))?;
        }
        if args.github
            && let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").map(PathBuf::from)
        {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
            let file = file
                .as_mut()
                .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            file.write_all(markdown::summary(summary, &self.gate).as_bytes())?;
        }
        Ok(())
    }
}

/// Colours for a terminal, unless NO_COLOR is set to anything (<https://no-color.org>).
pub fn paint(stream: &impl IsTerminal) -> Paint {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if stream.is_terminal() && !refused {
        Paint::Ansi
    } else {
        Paint::Plain
    }
}

fn pretty(summary: &Summary) -> String {
    serde_json::to_string_pretty(&json::summary(summary)).unwrap_or_default()
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    // Not 1: that would say that a violation was found.
    std::fs::write(path, text)
        .map_err(|error| Usage(format!("cannot write {}: {error}", path.display())).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgassay_audit::report::sample;

    fn thresholds() -> Thresholds {
        Thresholds {
            allow: vec!["write_skew".to_owned()],
            min_coverage: Some(0.5),
            ..Thresholds::default()
        }
    }

    #[test]
    fn the_configuration_holds_where_no_flag_says_otherwise() {
        let reports = Args::default().check(&thresholds(), None).unwrap();
        assert!(reports.gate.allow.contains("write_skew"));
        assert_eq!(reports.gate.min_coverage, Some(0.5));
        let args = Args {
            allow: vec!["phantom".to_owned()],
            min_coverage: Some("90%".to_owned()),
            ..Args::default()
        };
        let reports = args.check(&thresholds(), None).unwrap();
        assert!(!reports.gate.allow.contains("write_skew") && reports.gate.allow.contains("phantom"));
        assert_eq!(reports.gate.min_coverage, Some(0.9));
    }

    #[test]
    fn an_unknown_rule_is_wrong_usage() {
        let args = Args {
            fail_on: vec!["lost_updates".to_owned()],
            ..Args::default()
        };
        let error = args.check(&Thresholds::default(), None).unwrap_err();
        assert!(error.to_string().contains("no rule «lost_updates»"), "{error}");
    }

    #[test]
    fn every_report_is_written_from_the_same_run() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| Some(dir.path().join(name));
        let args = Args {
            json_file: place("a.json"),
            junit: place("a.xml"),
            sarif: place("a.sarif"),
            html: place("a.html"),
            markdown: place("a.md"),
            write_baseline: place("known"),
            quiet: true,
            ..Args::default()
        };
        let reports = args.check(&Thresholds::default(), None).unwrap();
        assert_eq!(reports.tell(&sample::summary()).unwrap(), Verdict::Violated);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("a.json").contains("\"lost_update\""));
        assert!(read("a.xml").contains("<testsuites"));
        assert!(read("a.sarif").contains("\"version\": \"2.1.0\""));
        assert!(read("a.html").contains("<!doctype html>"));
        assert!(read("a.md").contains("## pgassay"));
        let again = Args {
            baseline: place("known"),
            quiet: true,
            ..Args::default()
        };
        let reports = again.check(&Thresholds::default(), None).unwrap();
        assert_eq!(reports.tell(&sample::summary()).unwrap(), Verdict::Passed);
    }
}
