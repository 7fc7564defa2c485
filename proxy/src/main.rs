//! The program on a page: parse the command, call one module.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    pgassay::cli::main(pgassay::cli::Cli::parse())
}
