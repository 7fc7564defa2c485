//! A command that is run, waited for, and never left behind.
//!
//! Without a terminal the command gets a process group of its own, so that everything it started can be
//! ended with it. With a terminal it stays in ours: it may read from the terminal, and Ctrl-C reaches it
//! directly.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::{IsTerminal, Result};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Code(u8),
    Signal(u8),
}

/// SIGINT and SIGTERM from now on only counted.
pub struct Signals {
    interrupts: Arc<AtomicUsize>,
    terminations: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
}

impl Signals {
    pub fn catch() -> Result<Signals> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let signals = Signals {
            interrupts: Arc::default(),
            terminations: Arc::default(),
            _runtime: runtime,
        };
        for (kind, count) in [
            (SignalKind::interrupt(), signals.interrupts.clone()),
            (SignalKind::terminate(), signals.terminations.clone()),
        ] {
            let _guard = signals._runtime.enter();
            let mut stream = signal(kind)?;
            signals._runtime.spawn(async move {
                while stream.recv().await.is_some() {
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        Ok(signals)
    }

    fn counts(&self) -> (usize, usize) {
        (self.interrupts.load(Relaxed), self.terminations.load(Relaxed))
    }
}

/// Runs the command to its end; passes signals on; ends what it leaves behind.
pub fn run(mut command: Command, signals: &Signals) -> Result<Ended> {
    let own_group = !std::io::stdin().is_terminal();
    if own_group {
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let mut asked = (0, 0);
    let mut deadline = None;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let now = signals.counts();
        if now != asked {
            let (interrupted, terminated) = (now.0 > asked.0, now.1 > asked.1);
            // The terminal has already told a command in our group about the first Ctrl-C.
            if terminated {
                send(pid, own_group, Signal::TERM);
            } else if interrupted && own_group {
                send(pid, own_group, Signal::INT);
            }
            if deadline.is_some() {
                send(pid, own_group, Signal::KILL);
            }
            deadline.get_or_insert(Instant::now() + GRACE);
            asked = now;
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            send(pid, own_group, Signal::KILL);
        }
        std::thread::sleep(TICK);
    };
    if own_group {
        end_group(pid);
    }
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(u8::try_from(code).unwrap_or(1)),
        (None, Some(number)) => Ended::Signal(u8::try_from(number).unwrap_or(0)),
        (None, None) => Ended::Code(1),
    })
}

/// Whatever the command left behind in its group.
fn end_group(group: Pid) {
    if kill_process_group(group, Signal::TERM).is_err() {
        return;
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        if rustix::process::test_kill_process_group(group).is_err() {
            return;
        }
        std::thread::sleep(TICK);
    }
    let _ = kill_process_group(group, Signal::KILL);
}

fn send(pid: Pid, group: bool, signal: Signal) {
    // It may have ended meanwhile.
    let _ = if group {
        kill_process_group(pid, signal)
    } else {
        kill_process(pid, signal)
    };
}
