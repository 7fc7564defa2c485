//! The threads that relay, apart from all others: what the admin server or the side connection do makes no client
//! wait.
//!
//! In: how many. Out: a handle to spawn on.
//!
//! One thread runs a scheduler made for one: it has nobody to share work with, and every round trip is the cheaper
//! for it.

use anyhow::{Context, Result};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// How long what still runs may take to be dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Running until they are stopped.
pub struct Relays {
    handle: Handle,
    kind: Kind,
}

enum Kind {
    One {
        thread: JoinHandle<()>,
        /// Dropping it ends the thread.
        until: oneshot::Sender<()>,
    },
    Many(Runtime),
}

impl Relays {
    pub fn start(threads: usize) -> Result<Relays> {
        if threads > 1 {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder
                .worker_threads(threads)
                .thread_name("relay")
                .enable_all()
                .build();
            let runtime = runtime.context("cannot start threads")?;
            return Ok(Relays {
                handle: runtime.handle().clone(),
                kind: Kind::Many(runtime),
            });
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a thread")?;
        let handle = runtime.handle().clone();
        let (until, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("relay".to_owned());
        let thread = thread.spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(PATIENCE);
        });
        Ok(Relays {
            handle,
            kind: Kind::One {
                thread: thread.context("cannot start a thread")?,
                until,
            },
        })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Drops whatever still runs.
    pub fn stop(self) {
        match self.kind {
            Kind::Many(runtime) => runtime.shutdown_timeout(PATIENCE),
            Kind::One { thread, until } => {
                drop(until);
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Sends when it is dropped.
    struct Last(mpsc::Sender<&'static str>);

    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    #[test]
    fn one_or_many_do_what_they_are_given_and_drop_the_rest() {
        for threads in [1, 3] {
            let relays = Relays::start(threads).unwrap();
            let (sender, said) = mpsc::channel();
            let last = Last(sender.clone());
            relays.handle().spawn(async move {
                let _last = last;
                let _ = sender.send("begun");
                std::future::pending::<()>().await;
            });
            assert_eq!(said.recv(), Ok("begun"));
            relays.stop();
            assert_eq!(said.recv(), Ok("dropped"));
            assert!(said.recv().is_err(), "nothing holds the other end");
        }
    }
}
