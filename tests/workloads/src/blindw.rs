//! BlindW: read-only and write-only transactions over keys, as the papers on checkers use it.
//!
//! Out: transactions over `kv (k, v)`. Written values are unique, or with `duplicates` drawn from a few, which
//! leaves checkers that infer who wrote what with open questions.
//!
//! Source: Tan et al., «Cobra: Making Transactional Key-Value Stores Verifiably Serializable», §6.

use crate::session::Session;
use crate::{Check, Doing, Ended, Knobs, Turn, Workload};

pub struct BlindW {
    keys: i64,
    ops: u64,
    read_only: f64,
    values: i64,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    let duplicates = knobs.flag("duplicates", false, "values repeat");
    let values = knobs.count("values", 100, "different values when they repeat");
    Box::new(BlindW {
        keys: knobs.size("keys", 1_000, "keys"),
        ops: knobs.count("ops", 8, "operations per transaction").min(64) as u64,
        read_only: knobs.share("read_only", 0.5, "share of the transactions that only read"),
        values: if duplicates { values } else { 0 },
    })
}

impl Workload for BlindW {
    fn name(&self) -> &'static str {
        "blindw"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["kv"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session.batch("DROP TABLE IF EXISTS kv").await?;
            session
                .batch("CREATE TABLE kv (k int PRIMARY KEY, v bigint NOT NULL)")
                .await?;
            let rows = (1..=self.keys).map(|key| vec![key.into(), 0.into()]).collect();
            session.load("kv (k, v)", rows).await
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let is_read = turn.chance(self.read_only);
            session.begin().await?;
            for nth in 0..self.ops {
                let key = turn.rng.i64(1..=self.keys);
                if is_read {
                    session
                        .run("SELECT v FROM kv WHERE k = $1", &[key.into()])
                        .await?;
                } else {
                    let value = if self.values > 0 {
                        turn.rng.i64(0..self.values)
                    } else {
                        turn.unique(nth)
                    };
                    session
                        .run("UPDATE kv SET v = $1 WHERE k = $2", &[value.into(), key.into()])
                        .await?;
                }
            }
            session.commit().await?;
            Ok(Ended::Committed)
        })
    }

    fn checks(&self) -> Vec<Check> {
        vec![Check::new(
            "every key is there once",
            format!(
                "SELECT count(*) FROM kv HAVING count(*) <> {0} OR min(k) <> 1 OR max(k) <> {0}",
                self.keys
            ),
        )]
    }
}
