//! `pgassay doctor`: looks at the set-up and says, line by line, what is right and what to do about the rest.
//!
//! Exit codes: 0 everything is usable (perhaps with remarks), 1 something is not.

mod here;
mod there;

use super::report;
use crate::config::Config;
use pgassay_audit::report::text::Paint;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The database to look at (default: `upstream` of the configuration)
    #[arg(long, value_name = "URI")]
    upstream: Option<String>,
}

/// What was found, and what to do about it.
enum Line {
    Good(String),
    Note(String, String),
    Bad(String, String),
}

pub fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    if let Some(upstream) = args.upstream {
        config.upstream = upstream;
    }
    let paint = report::paint(&std::io::stdout());
    let mut failed = false;
    let mut say = |lines: Vec<Line>| {
        for line in lines {
            failed |= matches!(line, Line::Bad(..));
            println!("{}", line.told(paint));
        }
    };
    say(here::configuration(&config));
    say(here::addresses(&config));
    say(here::tls(&config));
    say(here::authentication(&config));
    say(here::journal(&config));
    say(here::hooks(&config));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    say(runtime.block_on(there::database(&config)));
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Line {
    fn told(&self, paint: Paint) -> String {
        match self {
            Line::Good(what) => format!("{} {what}", paint.green("✓")),
            Line::Note(what, advice) => format!("{} {what}\n    {advice}", paint.yellow("!")),
            Line::Bad(what, advice) => format!("{} {what}\n    {advice}", paint.red("✗")),
        }
    }
}

fn good(what: impl Into<String>) -> Line {
    Line::Good(what.into())
}

fn note(what: impl Into<String>, advice: impl Into<String>) -> Line {
    Line::Note(what.into(), advice.into())
}

fn bad(what: impl Into<String>, advice: impl Into<String>) -> Line {
    Line::Bad(what.into(), advice.into())
}
