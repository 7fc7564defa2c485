//! The program as a process of its own.

#![allow(dead_code, reason = "no test needs all of it")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

/// The program, with nothing from our own environment.
pub fn pgassay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgassay"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PGASSAY_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1");
    command
}

/// A proxy that records, on a free port, without admin and side connection; killed when dropped.
pub struct Proxy {
    pub child: Child,
    pub port: u16,
    pub log: BufReader<ChildStderr>,
}

impl Proxy {
    pub fn start(upstream: &str, more: &[&str]) -> Proxy {
        let mut child = pgassay()
            .args([
                "proxy",
                "--listen",
                "127.0.0.1:0",
                "--upstream",
                upstream,
                "--record-only",
            ])
            .args(["--set", "admin.listen=", "--set", "side.enabled=false"])
            .args(more)
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let line = next_line(&mut log, "listening on");
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        Proxy { child, port, log }
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads on to the next line of a log with these words.
pub fn next_line(log: &mut impl BufRead, words: &str) -> String {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(
            log.read_line(&mut line).unwrap() > 0,
            "the log ended without «{words}»"
        );
    }
    line
}
