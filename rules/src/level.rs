//! The isolation levels that a transaction can run at, or be claimed to run at.
//!
//! The first three are PostgreSQL's own. The other five are the levels of «Checking Observational
//! Correctness of Database Systems» (§6, figures 6 and 7), for any other database.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// PostgreSQL READ COMMITTED (READ UNCOMMITTED behaves the same).
    ReadCommitted,
    /// PostgreSQL REPEATABLE READ: one snapshot, first updater wins.
    RepeatableRead,
    /// PostgreSQL SERIALIZABLE: REPEATABLE READ plus a serial order.
    Serializable,
    /// The paper's RC.
    Rc,
    /// The paper's SI: some snapshot of the past.
    Si,
    /// The paper's strict SI: the snapshot is the one at the start.
    StrictSi,
    /// The paper's S: some serial order.
    S,
    /// The paper's strict S: a serial order that respects real time.
    StrictS,
}

impl Level {
    pub const ALL: [Level; 8] = [
        Level::ReadCommitted,
        Level::RepeatableRead,
        Level::Serializable,
        Level::Rc,
        Level::Si,
        Level::StrictSi,
        Level::S,
        Level::StrictS,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read-committed",
            Level::RepeatableRead => "repeatable-read",
            Level::Serializable => "serializable",
            Level::Rc => "rc",
            Level::Si => "si",
            Level::StrictSi => "strict-si",
            Level::S => "s",
            Level::StrictS => "strict-s",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "there is no isolation level «{0}»; known levels: read-committed, repeatable-read, serializable, rc, si, strict-si, s, strict-s"
)]
pub struct UnknownLevel(pub String);

impl FromStr for Level {
    type Err = UnknownLevel;

    /// Accepts PostgreSQL's spelling too: `READ COMMITTED`, `read_committed`.
    fn from_str(text: &str) -> Result<Level, UnknownLevel> {
        let plain = text.trim().to_ascii_lowercase().replace([' ', '_'], "-");
        if plain == "read-uncommitted" {
            return Ok(Level::ReadCommitted);
        }
        Level::ALL
            .into_iter()
            .find(|level| level.name() == plain)
            .ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}
