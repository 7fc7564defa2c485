//! `pgassay replay`: execute an interleaved script.

use crate::config::Config;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`pgassay replay` is not part of this build")
}
