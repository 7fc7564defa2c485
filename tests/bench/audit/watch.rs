//! Watches the audit of a running proxy: how far it is behind, and what its threads have used.
//!
//! In: the proxy's live state. Out: the longest lag, and the CPU seconds of the threads `recorder` (decoding) and
//! `audit` (judging), sampled until told to stop.

use crate::measure;
use pgassay::clock;
use pgassay::live::Live;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a live audit came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    /// The longest that handed-over records waited for their verdict.
    pub lag: Duration,
    pub recorder_cpu: f64,
    pub audit_cpu: f64,
    /// Records that the audit's queue could not take.
    pub shed: u64,
}

pub struct Watch {
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Watched>,
}

impl Watch {
    pub fn start(live: Arc<Live>) -> anyhow::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, over) = (live.clone(), stop.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let mut most = Watched::default();
            while !over.load(Relaxed) {
                match watched.audit_oldest.load(Relaxed) {
                    0 => {}
                    at => {
                        most.lag = most
                            .lag
                            .max(Duration::from_nanos(clock::now().saturating_sub(at)))
                    }
                }
                // Threads that have ended tell nothing any more: the last number counts.
                most.recorder_cpu = measure::cpu_of_thread("recorder").max(most.recorder_cpu);
                most.audit_cpu = measure::cpu_of_thread("audit").max(most.audit_cpu);
                std::thread::sleep(Duration::from_millis(10));
            }
            most
        })?;
        Ok(Watch { live, stop, thread })
    }

    pub fn stop(self) -> Watched {
        self.stop.store(true, Relaxed);
        let mut watched = self.thread.join().unwrap_or_default();
        watched.shed = self.live.shed_records.load(Relaxed);
        watched
    }
}
