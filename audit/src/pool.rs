//! Decides clusters on threads of their own.
//!
//! In: clusters, by value. Out: for each a ticket, and against it the cluster with its outcome.
//!
//! Always true:
//!   - no more than so many clusters wait: whoever asks for one more waits for room, and nothing is dropped;
//!   - a cluster whose ticket is gone is not begun;
//!   - threads are begun when there is something to do, and end when the pool is gone.

use crate::cluster::{Cluster, Decided};
use crate::sql::Planner;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::{Arc, Weak};

/// As deep as the thread that judges a journal.
const STACK_BYTES: usize = 8 << 20;

#[derive(Default)]
pub struct Pool {
    workers: usize,
    queue_len_max: usize,
    /// As soon as there are workers.
    queue: Option<Sender<Job>>,
}

struct Job {
    cluster: Box<Cluster>,
    answer: Sender<Decided>,
    /// Gone if nobody wants to know any more.
    wanted: Weak<()>,
}

/// Where the outcome of one cluster will be.
pub struct Ticket {
    answer: Receiver<Decided>,
    /// Says to the worker that somebody waits.
    _wanted: Arc<()>,
}

impl Ticket {
    pub fn is_ready(&self) -> bool {
        !self.answer.is_empty()
    }

    pub fn wait(self) -> Decided {
        self.answer
            .recv()
            .expect("a worker answers, whatever happens to it")
    }
}

impl Pool {
    pub fn new(workers: usize, queue_len_max: usize) -> Pool {
        Pool {
            workers: workers.max(1),
            queue_len_max,
            queue: None,
        }
    }

    /// Has a cluster decided as soon as a worker is free.
    pub fn ask(&mut self, cluster: Box<Cluster>) -> Ticket {
        let (answer, decided) = bounded(1);
        let wanted = Arc::new(());
        let job = Job {
            cluster,
            answer,
            wanted: Arc::downgrade(&wanted),
        };
        if self.queue.is_none() {
            self.queue = self.begin();
        }
        let refused = match &self.queue {
            Some(queue) => queue.send(job).err().map(|refused| refused.0),
            None => Some(job),
        };
        if let Some(job) = refused {
            // There is no thread to be had: then it is done here.
            job.run(&Arc::default());
        }
        Ticket {
            answer: decided,
            _wanted: wanted,
        }
    }

    pub fn queue_len_max(&self) -> usize {
        self.queue_len_max
    }

    /// How many clusters wait for a worker.
    pub fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, Sender::len)
    }

    fn begin(&self) -> Option<Sender<Job>> {
        let (queue, jobs) = bounded::<Job>(self.queue_len_max.max(1));
        let mut begun = 0;
        for number in 0..self.workers {
            let jobs = jobs.clone();
            let work = move || {
                // Plans are made anew for every worker, so that none waits for another.
                let planner = Arc::new(Planner::new());
                jobs.iter().for_each(|job| job.run(&planner));
            };
            let thread = std::thread::Builder::new()
                .name(format!("prove-{number}"))
                .stack_size(STACK_BYTES);
            begun += usize::from(thread.spawn(work).is_ok());
        }
        (begun > 0).then_some(queue)
    }
}

impl Job {
    fn run(self, planner: &Arc<Planner>) {
        if self.wanted.strong_count() > 0 {
            // Whoever waited may be gone meanwhile.
            let _ = self.answer.send(self.cluster.decide(planner));
        }
    }
}
