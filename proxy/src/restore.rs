//! Reads tables again of which the audit has lost track.
//!
//! In: what the audit says it has lost. Out: [`Record::Reread`]s for the trace.
//!
//! A gap, a statement that nobody could follow, writers whose order nobody could tell: what they may have touched is
//! unknown until it is read. Tables that no client reads as a whole would stay unknown for ever.
//!
//! Always true:
//!   - nothing is read while nothing is lost, and the connection is there only while it is needed;
//!   - a table is not read twice in a short time: the pause grows with every time, and with the time that it took.

use crate::bootstrap::{self, Limits};
use crate::live::Live;
use crate::side;
use anyhow::Result;
use pgassay_audit::trace::{Record, Reread, TableName};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Of the time there is, this part at most is spent on reading.
const SHARE: u32 = 20;

/// Restores what was lost for as long as the proxy lives.
pub async fn restore(live: Arc<Live>, inbox: crossbeam_channel::Sender<Record>) {
    let mut patience = Patience::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let config = live.config.load_full();
        if !config.side.enabled || !config.side.reread {
            continue;
        }
        let lost = live.audit().lost.clone();
        let due = patience.due(&lost, Instant::now());
        if due.is_empty() {
            continue;
        }
        let limits = Limits {
            table_rows_max: config.side.table_rows_max,
            ..Limits::default()
        };
        let began = Instant::now();
        let read = tokio::time::timeout(limits.time_max * 2, read(&live, &due, limits)).await;
        patience.spent(&due, began.elapsed(), Instant::now());
        match read {
            Ok(Ok(reread)) if reread.tables.is_empty() => {}
            Ok(Ok(reread)) => {
                live.rereads.fetch_add(1, Relaxed);
                tracing::info!(tables = reread.tables.len(), "read again what was lost track of");
                if inbox.send(Record::Reread(Box::new(reread))).is_err() {
                    return;
                }
            }
            Ok(Err(error)) => {
                tracing::info!("tables that were lost track of cannot be read again: {error:#}")
            }
            Err(_) => tracing::info!("reading tables again that were lost track of took too long"),
        }
    }
}

async fn read(live: &Live, due: &[TableName], limits: Limits) -> Result<Reread> {
    let client = side::connect(&live.config.load_full()).await?;
    bootstrap::read_again(&client, due, limits).await
}

/// When each table may be read again.
#[derive(Default)]
struct Patience {
    tables: BTreeMap<TableName, Turn>,
}

#[derive(Clone, Copy)]
struct Turn {
    next: Instant,
    pause: Duration,
}

impl Patience {
    /// The tables that are lost and may be read now. A table is not read at first sight: it may be found again by itself.
    fn due(&mut self, lost: &[TableName], now: Instant) -> Vec<TableName> {
        self.tables
            .retain(|table, turn| lost.contains(table) || now < turn.next + turn.pause);
        for table in lost {
            self.tables.entry(table.clone()).or_insert(Turn {
                next: now + LOOK_EVERY,
                pause: Duration::ZERO,
            });
        }
        let is_due = |table: &&TableName| self.tables.get(table).is_some_and(|turn| turn.next <= now);
        lost.iter().filter(is_due).cloned().collect()
    }

    /// They were read, or it was tried.
    fn spent(&mut self, tables: &[TableName], took: Duration, now: Instant) {
        for table in tables {
            if let Some(turn) = self.tables.get_mut(table) {
                let pause = (turn.pause * 2).max(PAUSE_MIN).max(took * SHARE);
                turn.pause = pause.min(PAUSE_MAX);
                turn.next = now + turn.pause;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> TableName {
        TableName {
            schema: "public".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_table_that_stays_lost_is_read_more_and_more_seldom() {
        let mut patience = Patience::default();
        let start = Instant::now();
        let mut now = start;
        let mut reads = Vec::new();
        while now < start + Duration::from_secs(3600) {
            let due = patience.due(&[named("a")], now);
            if !due.is_empty() {
                assert_eq!(due, [named("a")]);
                reads.push(now - start);
                patience.spent(&due, Duration::from_millis(10), now);
            }
            now += LOOK_EVERY;
        }
        assert_eq!(reads[0], LOOK_EVERY, "not at first sight");
        assert_eq!(reads[1] - reads[0], PAUSE_MIN);
        assert_eq!(reads[2] - reads[1], PAUSE_MIN * 2);
        let last = reads[reads.len() - 1] - reads[reads.len() - 2];
        assert_eq!(last, PAUSE_MAX);
    }

    #[test]
    fn reading_takes_a_small_part_of_the_time() {
        let mut patience = Patience::default();
        let start = Instant::now();
        patience.due(&[named("a"), named("b")], start);
        assert_eq!(patience.due(&[named("b")], start + LOOK_EVERY), [named("b")]);
        patience.spent(&[named("b")], Duration::from_secs(3), start + LOOK_EVERY);
        assert!(
            patience
                .due(&[named("b")], start + Duration::from_secs(60))
                .is_empty()
        );
        assert_eq!(
            patience.due(&[named("b")], start + Duration::from_secs(61)),
            [named("b")]
        );
    }

    #[test]
    fn what_was_found_again_is_forgotten_after_a_while() {
        let mut patience = Patience::default();
        let start = Instant::now();
        patience.due(&[named("a")], start);
        patience.spent(&[named("a")], Duration::ZERO, start + LOOK_EVERY);
        assert!(patience.due(&[], start + Duration::from_secs(8)).is_empty());
        assert_eq!(patience.tables.len(), 1, "it may be lost again soon");
        assert!(patience.due(&[], start + Duration::from_secs(12)).is_empty());
        assert_eq!(patience.tables.len(), 0);
    }
}
