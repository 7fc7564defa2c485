//! The running proxy as the outside sees it: counters, snapshots, flags.
//!
//! In: the relay, the recorder and the audit thread write here. Out: metrics, health, API and page read.
//!
//! Always true:
//!   - counters only grow; gauges say so in their name;
//!   - whatever the relay touches per message is an atomic; locks are taken by the recorder and the
//!     audit thread, a few times per second, and by whoever looks.

use crate::clock;
use crate::config::Config;
use arc_swap::ArcSwap;
use hdrhistogram::Histogram;
use pgassay_audit::Stats;
use pgassay_audit::trace::{Nanos, TableName};
use pgassay_audit::verdict::{Summary, Violation};
use pgassay_audit::withhold::Wanted;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[derive(Debug)]
pub struct Live {
    /// Replaced as a whole on SIGHUP.
    pub config: ArcSwap<Config>,
    pub started_at: Nanos,
    /// Where clients connect, with the ports that were chosen.
    pub addresses: OnceLock<Vec<String>>,
    /// Listening, and the server was reachable when last tried.
    pub ready: AtomicBool,
    pub draining: AtomicBool,

    pub connections_open: AtomicI64,
    pub connections_total: AtomicU64,
    pub connections_refused: AtomicU64,
    pub bytes_to_server: AtomicU64,
    pub bytes_to_client: AtomicU64,
    pub messages: AtomicU64,
    pub statements: AtomicU64,
    pub transactions: AtomicU64,
    pub gaps: AtomicU64,
    pub lost_bytes: AtomicU64,
    pub unknown_messages: AtomicU64,
    pub decode_errors: AtomicU64,
    pub replication_sessions: AtomicU64,
    pub cancel_requests: AtomicU64,
    pub journal_bytes: AtomicU64,
    pub journal_errors: AtomicU64,
    /// Violations told to a web hook, and attempts that failed.
    pub webhooks_sent: AtomicU64,
    pub webhooks_failed: AtomicU64,

    /// Records waiting for the audit (gauge), dropped before it, and crashes of it.
    pub audit_queue_records: AtomicU64,
    /// When the oldest records that wait for the audit were handed over; 0 when none wait.
    pub audit_oldest: AtomicU64,
    pub shed_records: AtomicU64,
    pub audit_panics: AtomicU64,
    /// 1 up, 0 down, -1 none configured.
    pub side_connection_up: AtomicI64,
    /// How often tables were read again.
    pub rereads: AtomicU64,

    /// Whether connections may ask for xids.
    pub xids: Arc<crate::inject::Permission>,
    /// The proxy's own backends, to tell foreign ones from.
    pub own: crate::writers::Own,

    audit: Mutex<Snapshot>,
    /// Nanoseconds that messages spent inside the proxy, and nanoseconds of statement windows.
    pub added_latency: Mutex<Histogram<u64>>,
    pub statement_latency: Mutex<Histogram<u64>>,
}

/// What the audit last said.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub stats: Stats,
    pub summary: Summary,
    /// Tables of which it has lost track.
    pub lost: Vec<TableName>,
    /// The catalog may not be what it takes it for.
    pub wanted: Option<Wanted>,
    /// Latest instant that records were handed over for.
    pub taken_until: Nanos,
}

impl Live {
    pub fn new(config: Config) -> Live {
        let side_up = if config.side.enabled { 0 } else { -1 };
        Live {
            config: ArcSwap::from_pointee(config),
            started_at: clock::now(),
            addresses: OnceLock::new(),
            ready: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            connections_open: AtomicI64::new(0),
            connections_total: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            bytes_to_server: AtomicU64::new(0),
            bytes_to_client: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            statements: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
            unknown_messages: AtomicU64::new(0),
            decode_errors: AtomicU64::new(0),
            replication_sessions: AtomicU64::new(0),
            cancel_requests: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
            journal_errors: AtomicU64::new(0),
            webhooks_sent: AtomicU64::new(0),
            webhooks_failed: AtomicU64::new(0),
            audit_queue_records: AtomicU64::new(0),
            audit_oldest: AtomicU64::new(0),
            shed_records: AtomicU64::new(0),
            audit_panics: AtomicU64::new(0),
            rereads: AtomicU64::new(0),
            side_connection_up: AtomicI64::new(side_up),
            xids: Arc::default(),
            own: crate::writers::Own::default(),
            audit: Mutex::new(Snapshot::default()),
            added_latency: Mutex::new(histogram()),
            statement_latency: Mutex::new(histogram()),
        }
    }

    /// What the audit last said. A crash while the lock was held leaves usable data behind.
    pub fn audit(&self) -> MutexGuard<'_, Snapshot> {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn summary(&self) -> Summary {
        self.audit().summary.clone()
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.audit().summary.violations.clone()
    }

    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.draining.load(Ordering::Relaxed)
    }
}

/// One microsecond to one hour, two significant digits.
fn histogram() -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1_000, 3_600_000_000_000, 2).expect("the bounds are in order");
    histogram.auto(true);
    histogram
}
