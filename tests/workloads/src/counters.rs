//! Counters: many clients count on few rows, each increment a statement by itself, without asking for the result.
//!
//! Out: autocommit `UPDATE … n = n + 1` and reads over `counters (id, n)`. Overlapping increments leave no trace of
//! their order: this is the workload with the most open questions for a checker.

use crate::session::Session;
use crate::{Check, Doing, Ended, Knobs, Turn, Workload};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

pub struct Counters {
    rows: i64,
    reads: f64,
    returning: f64,
    is_set_up: AtomicBool,
    counted: AtomicI64,
    is_unsure: AtomicBool,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    Box::new(Counters {
        rows: knobs.count("rows", 3, "counters"),
        reads: knobs.share("reads", 0.1, "share of the transactions that read a counter"),
        returning: knobs.share(
            "returning",
            0.0,
            "share of the increments that return the new value",
        ),
        is_set_up: AtomicBool::new(false),
        counted: AtomicI64::new(0),
        is_unsure: AtomicBool::new(false),
    })
}

impl Workload for Counters {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["counters"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session.batch("DROP TABLE IF EXISTS counters").await?;
            session
                .batch("CREATE TABLE counters (id int PRIMARY KEY, n bigint NOT NULL)")
                .await?;
            let rows = (1..=self.rows).map(|id| vec![id.into(), 0.into()]).collect();
            session.load("counters (id, n)", rows).await?;
            self.is_set_up.store(true, Ordering::Relaxed);
            self.counted.store(0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let id = turn.rng.i64(1..=self.rows);
            if turn.chance(self.reads) {
                session
                    .run("SELECT n FROM counters WHERE id = $1", &[id.into()])
                    .await?;
                return Ok(Ended::Committed);
            }
            let count = if turn.chance(self.returning) {
                "UPDATE counters SET n = n + 1 WHERE id = $1 RETURNING n"
            } else {
                "UPDATE counters SET n = n + 1 WHERE id = $1"
            };
            let answer = session.run(count, &[id.into()]).await;
            if let Err(error) = &answer {
                self.is_unsure.fetch_or(error.is_closed(), Ordering::Relaxed);
            }
            answer?;
            self.counted.fetch_add(1, Ordering::Relaxed);
            Ok(Ended::Committed)
        })
    }

    fn checks(&self) -> Vec<Check> {
        if !self.is_set_up.load(Ordering::Relaxed) || self.is_unsure.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let expected = self.counted.load(Ordering::Relaxed);
        vec![Check::new(
            "every increment was counted",
            format!("SELECT sum(n), {expected} FROM counters HAVING sum(n) <> {expected}"),
        )]
    }
}
