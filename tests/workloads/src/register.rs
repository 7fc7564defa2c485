//! Registers in the manner of Jepsen: reads, writes and compare-and-set of single values, alone or a few together.
//!
//! Out: transactions over `registers (id, value)`, which starts empty. One operation runs by itself, several run in
//! a block. With `values=0` every written value is unique; otherwise values repeat, which is harder to judge.

use crate::session::Session;
use crate::text::weighted;
use crate::{Check, Doing, Ended, Knobs, Turn, Workload};

pub struct Registers {
    keys: i64,
    ops: u64,
    values: i64,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    Box::new(Registers {
        keys: knobs.count("keys", 10, "registers"),
        ops: knobs
            .count("ops", 4, "operations per transaction, at most")
            .min(64) as u64,
        values: knobs.number("values", 5.0, "different values; 0 writes a new value every time") as i64,
    })
}

impl Workload for Registers {
    fn name(&self) -> &'static str {
        "register"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["registers"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session.batch("DROP TABLE IF EXISTS registers").await?;
            session
                .batch("CREATE TABLE registers (id int PRIMARY KEY, value bigint NOT NULL)")
                .await
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let ops = turn.rng.u64(1..=self.ops);
            if ops > 1 {
                session.begin().await?;
            }
            for nth in 0..ops {
                let id = turn.rng.i64(1..=self.keys);
                let value = if self.values > 0 {
                    turn.rng.i64(0..self.values)
                } else {
                    turn.unique(nth)
                };
                match weighted(&mut turn.rng, &[5, 2, 1, 2]) {
                    0 => {
                        session
                            .run("SELECT value FROM registers WHERE id = $1", &[id.into()])
                            .await?
                    }
                    1 => {
                        let upsert = "INSERT INTO registers (id, value) VALUES ($1, $2) \
                                      ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value";
                        session.run(upsert, &[id.into(), value.into()]).await?
                    }
                    2 => {
                        let update = "UPDATE registers SET value = $1 WHERE id = $2";
                        session.run(update, &[value.into(), id.into()]).await?
                    }
                    _ => {
                        let held = turn.rng.i64(0..self.values.max(2));
                        let cas = "UPDATE registers SET value = $1 WHERE id = $2 AND value = $3";
                        session.run(cas, &[value.into(), id.into(), held.into()]).await?
                    }
                };
            }
            if ops > 1 {
                session.commit().await?;
            }
            Ok(Ended::Committed)
        })
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = vec![Check::new(
            "only known registers exist",
            format!("SELECT id FROM registers WHERE id < 1 OR id > {}", self.keys),
        )];
        if self.values > 0 {
            checks.push(Check::new(
                "only written values exist",
                format!(
                    "SELECT id, value FROM registers WHERE value < 0 OR value >= {}",
                    self.values
                ),
            ));
        }
        checks
    }
}
