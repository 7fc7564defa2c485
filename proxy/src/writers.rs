//! Looks for sessions that bypass the proxy: whoever else is connected to the database may write to it.
//!
//! In: a side connection, and the proxy's own connections to the server ([`Own`]). Out: a
//! [`Record::Writers`] at first and whenever the answer changes.
//!
//! Always true:
//!   - a backend counts as foreign only if it was not the proxy's in two looks in a row: one of the
//!     proxy's may be listed by the server before the proxy knows its process id;
//!   - what was seen once stays seen: a foreign writer that left may have written.

use crate::bootstrap::rows;
use crate::clock;
use crate::live::Live;
use anyhow::Result;
use pgassay_audit::trace::Record;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// The proxy's connections to the server: by the process id that the server told (BackendKeyData), or by their
/// own address, which is known before the first byte is sent. A process id stays known after the connection ended;
/// an address soon belongs to somebody else.
#[derive(Debug, Default)]
pub struct Own {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    pids: Remembered<u32>,
    /// Open, or closed at that instant.
    sockets: HashMap<SocketAddr, Option<Instant>>,
}

/// The latest so many.
#[derive(Debug)]
struct Remembered<T> {
    set: HashSet<T>,
    order: VecDeque<T>,
}

/// A connection that ended is remembered until so many others came.
const REMEMBERED: usize = 50_000;
/// The server may list a connection a little longer than it lives; nobody else gets its address so soon.
const LINGERS: Duration = Duration::from_secs(20);

/// The address of an open connection to the server; see [`Own::open_socket`].
pub struct OwnSocket {
    live: Arc<Live>,
    local: SocketAddr,
}

impl<T> Default for Remembered<T> {
    fn default() -> Remembered<T> {
        Remembered {
            set: HashSet::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Remembered<T> {
    fn add(&mut self, item: T) {
        if self.set.insert(item) {
            self.order.push_back(item);
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.set.remove(&oldest);
            }
        }
    }
}

impl Own {
    pub fn add_backend(&self, pid: u32) {
        self.known().pids.add(pid);
    }

    /// The local address of a socket to the server, for as long as what is returned lives.
    pub fn open_socket(live: &Arc<Live>, local: SocketAddr) -> OwnSocket {
        let mut known = live.own.known();
        known
            .sockets
            .retain(|_, closed| closed.is_none_or(|at| at.elapsed() < LINGERS));
        known.sockets.insert(local, None);
        OwnSocket {
            live: live.clone(),
            local,
        }
    }

    fn has(&self, backend: &Backend) -> bool {
        let known = self.known();
        known.pids.set.contains(&backend.pid)
            || backend
                .from
                .and_then(|from| known.sockets.get(&from))
                .is_some_and(|closed| closed.is_none_or(|at| at.elapsed() < LINGERS))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        if let Some(closed) = self.live.own.known().sockets.get_mut(&self.local) {
            *closed = Some(Instant::now());
        }
    }
}

struct Backend {
    pid: u32,
    from: Option<SocketAddr>,
    described: String,
}

/// Remembers from look to look.
#[derive(Debug, Default)]
pub struct Watch {
    suspects: HashSet<u32>,
    foreign: BTreeMap<u32, String>,
    told: Option<usize>,
}

/// More are not named one by one.
const NAMED: usize = 20;

impl Watch {
    /// Looks once; a record if there is something new to tell.
    pub async fn look(&mut self, client: &Client, own: &Own) -> Result<Option<Record>> {
        let at = clock::now();
        let backends = list(client).await?;
        Ok(self.judge(backends, own, at))
    }

    fn judge(&mut self, backends: Vec<Backend>, own: &Own, at: u64) -> Option<Record> {
        let first = self.told.is_none();
        let mut suspects = HashSet::new();
        for backend in backends {
            if own.has(&backend) || self.foreign.contains_key(&backend.pid) {
                continue;
            }
            if self.suspects.contains(&backend.pid) {
                self.foreign.insert(backend.pid, backend.described);
            } else {
                suspects.insert(backend.pid);
            }
        }
        self.suspects = suspects;
        // At first nobody was looked at twice: no suspects is an answer, suspects are not.
        if first && !self.suspects.is_empty() && self.foreign.is_empty() {
            return None;
        }
        if self.told == Some(self.foreign.len()) {
            return None;
        }
        self.told = Some(self.foreign.len());
        let seen: Vec<String> = self.foreign.values().take(NAMED).cloned().collect();
        if !seen.is_empty() {
            tracing::warn!(
                "sessions bypass the proxy, so that only what no outside writer could explain is a violation: {}",
                seen.join("; ")
            );
        }
        Some(Record::Writers {
            at,
            exclusive: seen.is_empty(),
            seen,
        })
    }

    /// Some backend was seen only once so far: it is worth looking again soon.
    pub fn is_undecided(&self) -> bool {
        !self.suspects.is_empty()
    }
}

/// Everybody else who is connected to this database. Without the rights to see more, the server still
/// tells the process ids.
async fn list(client: &Client) -> Result<Vec<Backend>> {
    let read = rows(
        client,
        "SELECT pid, coalesce(usename, '?'), coalesce(application_name, ''), host(client_addr), client_port \
         FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL \
           AND coalesce(backend_type, 'client backend') IN ('client backend', 'logical replication worker', \
               'logical replication apply worker', 'walsender') \
           AND application_name IS DISTINCT FROM 'pgassay' \
         ORDER BY pid",
    )
    .await?;
    Ok(read
        .into_iter()
        .filter_map(|row| {
            let [pid, user, application, address, port] = <[Option<String>; 5]>::try_from(row).ok()?;
            let pid = pid?.parse().ok()?;
            let port = port.and_then(|port| port.parse::<u16>().ok());
            let from = address
                .zip(port)
                .and_then(|(address, port)| Some(SocketAddr::new(address.parse().ok()?, port)));
            let whence = from.map_or(" on the server's machine".to_owned(), |from| {
                format!(" from {from}")
            });
            let application = application
                .filter(|a| !a.is_empty())
                .map_or(String::new(), |a| format!(" ({a})"));
            let described = format!("{}{application}{whence}, process {pid}", user.unwrap_or_default());
            Some(Backend { pid, from, described })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(pid: u32, port: u16) -> Backend {
        let from = (port > 0).then(|| SocketAddr::from(([127, 0, 0, 1], port)));
        Backend {
            pid,
            from,
            described: format!("process {pid}"),
        }
    }

    fn told(record: Option<Record>) -> Option<(bool, Vec<String>)> {
        record.map(|record| match record {
            Record::Writers { exclusive, seen, .. } => (exclusive, seen),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn own_backends_are_known_by_process_or_socket() {
        let live = Arc::new(Live::new(crate::config::Config::default()));
        let own = &live.own;
        own.add_backend(1);
        let open = Own::open_socket(&live, SocketAddr::from(([127, 0, 0, 1], 50)));
        let mut watch = Watch::default();
        let all = || vec![backend(1, 0), backend(2, 50)];
        assert_eq!(told(watch.judge(all(), own, 1)), Some((true, vec![])));
        assert_eq!(told(watch.judge(all(), own, 2)), None);
        // It has ended, and the server has not noticed yet.
        drop(open);
        assert_eq!(told(watch.judge(all(), own, 3)), None);
        assert!(!watch.is_undecided());
    }

    #[test]
    fn a_stranger_is_one_that_stays_strange() {
        let own = Own::default();
        let mut watch = Watch::default();
        assert_eq!(
            told(watch.judge(vec![backend(1, 0), backend(2, 0)], &own, 1)),
            None
        );
        assert!(watch.is_undecided());
        own.add_backend(1);
        let seen = vec!["process 2".to_owned()];
        assert_eq!(
            told(watch.judge(vec![backend(1, 0), backend(2, 0)], &own, 2)),
            Some((false, seen))
        );
        // It left, but it may have written.
        assert_eq!(told(watch.judge(vec![], &own, 3)), None);
        assert_eq!(told(watch.judge(vec![backend(3, 0)], &own, 4)), None);
        assert_eq!(
            told(watch.judge(vec![backend(3, 0)], &own, 5)).map(|(e, s)| (e, s.len())),
            Some((false, 2))
        );
    }
}
