//! `pgassay check`: audit a journal.

use crate::config::Config;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`pgassay check` is not part of this build")
}
