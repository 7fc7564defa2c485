//! What else a run has, besides plain tables: chosen by the seed.

use fastrand::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Views that can be written, and views that cannot.
    pub views: bool,
    pub triggers: bool,
    pub partitions: bool,
    /// Functions and procedures.
    pub routines: bool,
    /// MERGE, and ON CONFLICT of several rows.
    pub merges: bool,
    /// DDL in the midst of the traffic.
    pub upheaval: bool,
    /// PREPARE TRANSACTION.
    pub two_phase: bool,
    /// Backends are terminated, statements cancelled, clients die without waiting for their answers.
    pub deaths: bool,
    /// Settings, roles, cursors, PREPARE.
    pub sessions: bool,
}

impl Features {
    /// Each of them in half of the runs.
    pub fn of(seed: u64) -> Features {
        let mut rng = Rng::with_seed(seed ^ 0x0066_6561_7475_7265);
        Features {
            views: rng.bool(),
            triggers: rng.bool(),
            partitions: rng.bool(),
            routines: rng.bool(),
            merges: rng.bool(),
            upheaval: rng.bool(),
            two_phase: rng.bool(),
            deaths: rng.bool(),
            sessions: rng.bool(),
        }
    }
}
