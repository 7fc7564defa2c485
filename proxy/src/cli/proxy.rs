//! `pgassay proxy`: stand between clients and their database.

use crate::config::{Loaded, Override};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where clients connect: HOST:PORT, [V6]:PORT or the path of a unix socket; may be given several times
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// The database: HOST:PORT, the path of a socket, or a postgresql:// URI
    #[arg(long, value_name = "ADDR_OR_URI")]
    upstream: Option<String>,
    /// Write what was witnessed to this directory
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Metrics, health, API and web page: HOST:PORT
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Record without auditing
    #[arg(long)]
    record_only: bool,
}

impl Args {
    pub fn overrides(&self) -> Vec<Override> {
        let mut overrides = Vec::new();
        if !self.listen.is_empty() {
            overrides.push(Override::new("listen", self.listen.join(","), "--listen"));
        }
        if let Some(upstream) = &self.upstream {
            overrides.push(Override::new("upstream", upstream, "--upstream"));
        }
        if let Some(dir) = &self.journal {
            overrides.push(Override::new("journal.dir", dir.display(), "--journal"));
        }
        if let Some(admin) = &self.admin {
            overrides.push(Override::new("admin.listen", admin, "--admin"));
        }
        if self.record_only {
            overrides.push(Override::new("record_only", true, "--record-only"));
        }
        overrides
    }
}

pub fn run(_args: Args, _loaded: Loaded) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the proxy is not part of this build")
}
