//! `pgassay workload`: drive a database with a built-in workload.

use crate::config::Config;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    anyhow::bail!("`pgassay workload` is not part of this build")
}
