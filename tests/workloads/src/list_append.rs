//! List-append in the manner of Jepsen and Elle: unique elements are appended to lists, whole lists are read.
//!
//! Out: transactions over `lists (id, elements)`; a list is a text with commas, as Jepsen keeps it in PostgreSQL.
//! Lists are left behind after a while, so that they do not grow without end.

use crate::session::Session;
use crate::{Check, Doing, Ended, Knobs, Turn, Workload};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct ListAppend {
    keys: u64,
    ops: u64,
    rotate: u64,
    is_set_up: AtomicBool,
    appended: AtomicU64,
    is_unsure: AtomicBool,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    Box::new(ListAppend {
        keys: knobs.count("keys", 10, "lists in use at a time") as u64,
        ops: knobs
            .count("ops", 4, "operations per transaction, at most")
            .min(64) as u64,
        rotate: knobs.count(
            "rotate",
            50,
            "transactions of a client before it moves to new lists",
        ) as u64,
        is_set_up: AtomicBool::new(false),
        appended: AtomicU64::new(0),
        is_unsure: AtomicBool::new(false),
    })
}

impl Workload for ListAppend {
    fn name(&self) -> &'static str {
        "list-append"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["lists"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session.batch("DROP TABLE IF EXISTS lists").await?;
            session
                .batch("CREATE TABLE lists (id bigint PRIMARY KEY, elements text NOT NULL)")
                .await?;
            self.is_set_up.store(true, Ordering::Relaxed);
            self.appended.store(0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let ops = turn.rng.u64(1..=self.ops);
            let mut appended = 0;
            if ops > 1 {
                session.begin().await?;
            }
            for nth in 0..ops {
                let id = (turn.serial / self.rotate * self.keys + turn.rng.u64(0..self.keys)) as i64;
                if turn.rng.bool() {
                    session
                        .run("SELECT elements FROM lists WHERE id = $1", &[id.into()])
                        .await?;
                } else {
                    let element = turn.unique(nth).to_string();
                    let append = "INSERT INTO lists (id, elements) VALUES ($1, $2) ON CONFLICT (id) \
                                  DO UPDATE SET elements = lists.elements || ',' || EXCLUDED.elements";
                    session.run(append, &[id.into(), element.into()]).await?;
                    appended += 1;
                }
            }
            if ops > 1
                && let Err(error) = session.commit().await
            {
                self.is_unsure.fetch_or(error.is_closed(), Ordering::Relaxed);
                return Err(error);
            }
            self.appended.fetch_add(appended, Ordering::Relaxed);
            Ok(Ended::Committed)
        })
    }

    fn checks(&self) -> Vec<Check> {
        if !self.is_set_up.load(Ordering::Relaxed) || self.is_unsure.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let expected = self.appended.load(Ordering::Relaxed);
        let count = "coalesce(sum(length(elements) - length(replace(elements, ',', '')) + 1), 0)";
        vec![Check::new(
            "every committed element is in a list",
            format!("SELECT {count}, {expected} FROM lists HAVING {count} <> {expected}"),
        )]
    }
}
