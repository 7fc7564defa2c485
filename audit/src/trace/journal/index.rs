//! What is in which segment. Written beside the segments, for people and for skipping.
//!
//! Always true: the segments are the truth. An entry is believed only where it agrees with the run and the length
//! of its segment; without one, the segment is read.

use super::JournalError;
use crate::trace::Nanos;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Index {
    pub segments: Vec<IndexEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexEntry {
    pub file: String,
    pub run: u64,
    pub bytes: u64,
    pub records: u64,
    pub first_at: Nanos,
    pub last_at: Nanos,
    /// Wall clock, seconds since 1970, of its last record.
    pub closed_unix: u64,
    /// How many records everything later stands on: starts of sessions, and state. Absent in what older
    /// programs wrote.
    #[serde(default)]
    pub beginnings: Option<u64>,
    /// The largest number of a session in it.
    #[serde(default)]
    pub session_max: u64,
}

const FILE: &str = "index";

impl Index {
    /// Empty if there is none or it cannot be read: the segments are the truth.
    pub fn read(dir: &Path) -> Index {
        let text = std::fs::read(dir.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// What is known about a segment of this name, run and length.
    pub fn of(&self, file: &str, run: u64, bytes: u64) -> Option<&IndexEntry> {
        let entry = self.segments.iter().find(|entry| entry.file == file)?;
        (entry.run == run && entry.bytes == bytes).then_some(entry)
    }

    /// Replaced as a whole, so that a reader sees the old one or the new one.
    pub fn write(&self, dir: &Path) -> Result<(), JournalError> {
        let new = dir.join("index.new");
        let text = serde_json::to_vec_pretty(self).expect("plain data becomes JSON");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .map_err(JournalError::io(&new, "writing the index"))?;
        file.write_all(&text)
            .map_err(JournalError::io(&new, "writing the index"))?;
        std::fs::rename(&new, dir.join(FILE)).map_err(JournalError::io(&new, "replacing the index"))
    }
}
