//! Reads tables again of which the audit has lost track, and the catalog, if it is in doubt.
//!
//! In: what the audit says it has lost. Out: [`Record::Reread`]s and [`Record::Catalog`]s for the trace.
//!
//! A gap, a statement that nobody could follow, writers whose order nobody could tell: what they may have touched is
//! unknown until it is read. Tables that no client reads as a whole would stay unknown for ever.
//!
//! Always true:
//!   - nothing is read while nothing is lost, and the connection is there only while it is needed;
//!   - nothing is read twice in a short time: the pause grows with every time, and with the time that it took.

use crate::bootstrap::{self, Again, Limits};
use crate::live::{Live, Snapshot};
use crate::side;
use pgassay_audit::trace::{Record, TableName};
use pgassay_audit::withhold::Wanted;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it takes until what was captured last is judged, on a machine that is not busy.
const LAST_WORDS: Duration = Duration::from_millis(200);
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Of the time there is, this part at most is spent on reading.
const SHARE: u32 = 20;

/// Restores what was lost for as long as the proxy lives.
pub async fn restore(live: Arc<Live>, inbox: crossbeam_channel::Sender<Record>) {
    let mut patience = Patience::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !may_read(&live) {
            continue;
        }
        let (lost, wanted) = lost(&live.audit());
        let due = patience.due(&lost, Instant::now());
        if due.is_empty() {
            continue;
        }
        let tables: Vec<TableName> = due.iter().filter_map(What::table).cloned().collect();
        let wanted = wanted.filter(|_| due.contains(&What::Catalog));
        let began = Instant::now();
        let read = read(&live, &tables, wanted.as_ref()).await;
        patience.spent(&due, began.elapsed(), Instant::now());
        if let Some(read) = read
            && !hand_over(&live, read, &inbox)
        {
            return;
        }
    }
}

/// Nobody is there any more: what is kept back because of the catalog is told now, or never.
pub async fn look_back(live: Arc<Live>, inbox: crossbeam_channel::Sender<Record>) {
    if !may_read(&live) {
        return;
    }
    // By then the audit has said what it wants.
    tokio::time::sleep(LAST_WORDS).await;
    let wanted = live.audit().wanted.clone();
    if let Some(wanted) = wanted
        && let Some(read) = read(&live, &[], Some(&wanted)).await
    {
        hand_over(&live, read, &inbox);
    }
}

fn may_read(live: &Live) -> bool {
    let config = live.config.load();
    config.side.enabled && config.side.reread
}

fn lost(audit: &Snapshot) -> (Vec<What>, Option<Wanted>) {
    let catalog = audit.wanted.iter().map(|_| What::Catalog);
    let tables = audit.lost.iter().cloned().map(What::Table);
    (catalog.chain(tables).collect(), audit.wanted.clone())
}

async fn read(live: &Live, tables: &[TableName], wanted: Option<&Wanted>) -> Option<Again> {
    let config = live.config.load_full();
    let limits = Limits {
        table_rows_max: config.side.table_rows_max,
        ..Limits::default()
    };
    let read = async {
        let client = side::connect(&config).await?;
        bootstrap::read_again(&client, tables, wanted, limits).await
    };
    match tokio::time::timeout(limits.time_max * 2, read).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(error)) => {
            tracing::info!("what was lost track of cannot be read again: {error:#}");
            None
        }
        Err(_) => {
            tracing::info!("reading again what was lost track of took too long");
            None
        }
    }
}

/// `false` if nobody takes it any more.
fn hand_over(live: &Live, read: Again, inbox: &crossbeam_channel::Sender<Record>) -> bool {
    let tables = read.tables.tables.len();
    if tables == 0 && read.catalog.is_none() {
        return true;
    }
    live.rereads.fetch_add(1, Relaxed);
    tracing::info!(
        tables,
        catalog = read.catalog.is_some(),
        "read again what was lost track of"
    );
    // What is in the tables is told by the catalog.
    let catalog = read.catalog.map(|read| Record::Catalog(Box::new(read)));
    let tables = (tables > 0).then(|| Record::Reread(Box::new(read.tables)));
    catalog
        .into_iter()
        .chain(tables)
        .all(|record| inbox.send(record).is_ok())
}

/// What can be lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Catalog,
    Table(TableName),
}

impl What {
    fn table(&self) -> Option<&TableName> {
        match self {
            What::Catalog => None,
            What::Table(table) => Some(table),
        }
    }
}

/// When each of them may be read again.
#[derive(Default)]
struct Patience {
    turns: BTreeMap<What, Turn>,
}

#[derive(Clone, Copy)]
struct Turn {
    next: Instant,
    pause: Duration,
}

impl Patience {
    /// What is lost and may be read now. Nothing is read at first sight: it may be found again by itself.
    fn due(&mut self, lost: &[What], now: Instant) -> Vec<What> {
        self.turns
            .retain(|what, turn| lost.contains(what) || now < turn.next + turn.pause);
        for what in lost {
            self.turns.entry(what.clone()).or_insert(Turn {
                next: now + LOOK_EVERY,
                pause: Duration::ZERO,
            });
        }
        let is_due = |what: &&What| self.turns.get(what).is_some_and(|turn| turn.next <= now);
        lost.iter().filter(is_due).cloned().collect()
    }

    /// They were read, or it was tried.
    fn spent(&mut self, what: &[What], took: Duration, now: Instant) {
        for what in what {
            if let Some(turn) = self.turns.get_mut(what) {
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

    fn named(name: &str) -> What {
        What::Table(TableName {
            schema: "public".to_owned(),
            name: name.to_owned(),
        })
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
        assert_eq!(patience.turns.len(), 1, "it may be lost again soon");
        assert!(patience.due(&[], start + Duration::from_secs(12)).is_empty());
        assert_eq!(patience.turns.len(), 0);
    }
}
