//! Reads a journal ahead of whoever judges it: blocks are decompressed and decoded on a thread of their own.
//!
//! In: a [`Reader`] and a number of workers. Out: the same records in the same order.
//!
//! Always true:
//!   - the records, and the error that ends them, do not depend on the number of workers;
//!   - no more than a few batches wait: memory does not grow with the journal.
//!
//! One thread is enough: reading is a small part of judging, and suspicions are proved by others.

use super::{JournalError, Reader};
use crate::trace::Record;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

const BATCH: usize = 256;
const BATCHES_WAITING: usize = 4;

type Batch = Vec<Result<Record, JournalError>>;

pub struct Ahead {
    source: Source,
}

enum Source {
    /// Read when asked.
    Here(Box<Reader>),
    There {
        batches: Receiver<Batch>,
        batch: std::vec::IntoIter<Result<Record, JournalError>>,
        thread: JoinHandle<Reader>,
    },
}

impl Ahead {
    /// With one worker everything is read by whoever asks.
    pub fn new(reader: Reader, workers: usize) -> Ahead {
        if workers <= 1 {
            return Ahead {
                source: Source::Here(Box::new(reader)),
            };
        }
        let (sender, batches) = sync_channel(BATCHES_WAITING);
        let thread = std::thread::spawn(move || {
            let mut reader = reader;
            loop {
                let batch: Batch = reader.by_ref().take(BATCH).collect();
                // Whoever reads may have had enough.
                if batch.is_empty() || sender.send(batch).is_err() {
                    return reader;
                }
            }
        });
        Ahead {
            source: Source::There {
                batches,
                batch: Vec::new().into_iter(),
                thread,
            },
        }
    }

    /// The reader, for what is to be said about the journal. `None` if its thread crashed.
    pub fn into_reader(self) -> Option<Reader> {
        match self.source {
            Source::Here(reader) => Some(*reader),
            Source::There { batches, thread, .. } => {
                drop(batches);
                thread.join().ok()
            }
        }
    }
}

impl Iterator for Ahead {
    type Item = Result<Record, JournalError>;

    fn next(&mut self) -> Option<Result<Record, JournalError>> {
        match &mut self.source {
            Source::Here(reader) => reader.next(),
            Source::There { batches, batch, .. } => batch.next().or_else(|| {
                *batch = batches.recv().ok()?.into_iter();
                batch.next()
            }),
        }
    }
}
