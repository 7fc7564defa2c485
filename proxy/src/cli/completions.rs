//! `pgassay completions SHELL`: a completion script on stdout.

use crate::config::Config;
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// bash, zsh, fish, elvish or powershell
    shell: Shell,
}

pub fn run(args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    clap_complete::generate(
        args.shell,
        &mut super::Cli::command(),
        "pgassay",
        &mut std::io::stdout(),
    );
    Ok(ExitCode::SUCCESS)
}
