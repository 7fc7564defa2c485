//! What is still to be told, in memory and on disk.
//!
//! One file per violation and hook, written whole before it is renamed into place; and a list of what was
//! told already, one line per hook and fingerprint.

use anyhow::{Context, Result};
use pgassay_audit::verdict::Violation;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// More than this is not kept: somebody has to look by hand anyway.
const ITEMS_MAX: usize = 1_000;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);
const TOLD: &str = "told";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    pub url: String,
    pub violation: Violation,
    pub tries: u32,
}

pub struct Queue {
    dir: Option<PathBuf>,
    items: Vec<(Instant, Item)>,
    /// Hook and fingerprint.
    told: BTreeSet<String>,
}

impl Queue {
    /// Opens the queue and takes up what an earlier run left behind.
    pub fn open(dir: Option<PathBuf>) -> Result<Queue> {
        let mut queue = Queue {
            dir,
            items: Vec::new(),
            told: BTreeSet::new(),
        };
        let Some(dir) = queue.dir.clone() else {
            return Ok(queue);
        };
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir);
        made.with_context(|| format!("cannot make the queue of the web hooks, {}", dir.display()))?;
        let told = std::fs::read_to_string(dir.join(TOLD)).unwrap_or_default();
        queue.told = told.lines().map(str::to_owned).collect();
        let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
            .with_context(|| format!("cannot read {}", dir.display()))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .collect();
        files.sort();
        for file in files {
            let item = std::fs::read(&file).map_err(anyhow::Error::from);
            match item.and_then(|bytes| Ok(serde_json::from_slice::<Item>(&bytes)?)) {
                Ok(item) => queue.items.push((Instant::now(), item)),
                Err(error) => tracing::warn!("{} cannot be read and is left there: {error}", file.display()),
            }
        }
        Ok(queue)
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds a violation, unless its fingerprint was told to this hook or waits to be.
    pub fn add(&mut self, url: &str, violation: &Violation) {
        let key = key(url, &violation.fingerprint);
        let waits = self
            .items
            .iter()
            .any(|(_, item)| self::key(&item.url, &item.violation.fingerprint) == key);
        if waits || self.told.contains(&key) {
            return;
        }
        if self.items.len() >= ITEMS_MAX {
            tracing::error!(id = %violation.id, "the queue of the web hooks is full: this violation is not told to one");
            return;
        }
        let item = Item {
            url: url.to_owned(),
            violation: violation.clone(),
            tries: 0,
        };
        self.keep(&item);
        self.items.push((Instant::now(), item));
    }

    /// What may be tried now; in a hurry everything may.
    pub fn due(&mut self, hurry: bool) -> Vec<Item> {
        let now = Instant::now();
        let due = self
            .items
            .iter()
            .filter(|(at, item)| *at <= now || (hurry && item.tries == 0));
        due.map(|(_, item)| item.clone()).collect()
    }

    pub fn done(&mut self, item: &Item) {
        let key = key(&item.url, &item.violation.fingerprint);
        self.items
            .retain(|(_, other)| self::key(&other.url, &other.violation.fingerprint) != key);
        if let Some(dir) = &self.dir {
            // First told, then gone: a crash in between forgets nothing and repeats nothing.
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(dir.join(TOLD));
            let noted = file.and_then(|mut file| writeln!(file, "{key}"));
            if let Err(error) = noted {
                tracing::warn!("what was told cannot be noted in {}: {error}", dir.display());
            }
            let _ = std::fs::remove_file(place(dir, &key));
        }
        self.told.insert(key);
    }

    /// Tries again later: after 1, 2, 4 … seconds, at most every five minutes.
    pub fn later(&mut self, mut item: Item) {
        item.tries += 1;
        let wait = FIRST_WAIT
            .saturating_mul(1 << (item.tries - 1).min(16))
            .min(WAIT_MAX);
        self.keep(&item);
        let key = key(&item.url, &item.violation.fingerprint);
        for (at, other) in &mut self.items {
            if self::key(&other.url, &other.violation.fingerprint) == key {
                *at = Instant::now() + wait;
                other.tries = item.tries;
            }
        }
    }

    fn keep(&self, item: &Item) {
        let Some(dir) = &self.dir else { return };
        if let Err(error) = write(dir, item) {
            tracing::warn!(
                "the queue of the web hooks cannot be written in {}: {error:#}",
                dir.display()
            );
        }
    }
}

fn write(dir: &Path, item: &Item) -> Result<()> {
    let place = place(dir, &key(&item.url, &item.violation.fingerprint));
    let fresh = place.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&serde_json::to_vec(item)?)?;
    file.sync_all()?;
    std::fs::rename(fresh, place)?;
    Ok(())
}

fn place(dir: &Path, key: &str) -> PathBuf {
    dir.join(format!("{key}.json"))
}

/// Names a hook without telling its address, which may be a secret.
fn key(url: &str, fingerprint: &str) -> String {
    let digest = Sha256::digest(url.as_bytes());
    let hook: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let safe: String = fingerprint.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{hook}-{safe}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgassay_audit::report::sample;

    #[test]
    fn a_queue_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Queue::open(Some(dir.path().to_owned())).unwrap();
        let mut queue = open();
        queue.add("http://a/", &sample::lost_update());
        queue.add("http://a/", &sample::write_skew());
        let first = queue.due(false).remove(0);
        queue.later(first);
        drop(queue);

        let mut queue = open();
        let waiting = queue.due(false);
        assert_eq!(waiting.len(), 2);
        assert_eq!(waiting.iter().map(|item| item.tries).sum::<u32>(), 1);
        waiting.iter().for_each(|item| queue.done(item));
        drop(queue);

        let mut queue = open();
        assert!(queue.is_empty());
        queue.add("http://a/", &sample::lost_update());
        assert!(queue.is_empty(), "it was told before the restart");
        queue.add("http://b/", &sample::lost_update());
        assert!(!queue.is_empty(), "another hook was not told");
    }

    #[test]
    fn one_fingerprint_waits_once() {
        let mut queue = Queue::open(None).unwrap();
        queue.add("http://a/", &sample::lost_update());
        queue.add("http://a/", &sample::lost_update());
        assert_eq!(queue.due(false).len(), 1);
    }

    #[test]
    fn what_failed_waits() {
        let mut queue = Queue::open(None).unwrap();
        queue.add("http://a/", &sample::lost_update());
        let item = queue.due(false).remove(0);
        queue.later(item);
        assert!(queue.due(false).is_empty());
        assert!(!queue.is_empty());
    }
}
