//! `pgassay man`: the manual page on stdout, or one page per subcommand into a directory.

use crate::config::Config;
use anyhow::Context;
use clap::CommandFactory;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write pgassay.1 and a page per subcommand into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    let command = super::Cli::command();
    match args.dir {
        Some(dir) => clap_mangen::generate_to(command, &dir)
            .with_context(|| format!("cannot write manual pages to {}", dir.display()))?,
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}
