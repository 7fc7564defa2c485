//! `pgassay run`: run a command against a proxied database.

use crate::config::Config;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`pgassay run` is not part of this build")
}
