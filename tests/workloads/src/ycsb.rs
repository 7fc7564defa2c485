//! YCSB: reads, updates, inserts, scans and read-modify-writes of records; few keys are hot.
//!
//! Out: transactions over `usertable (ycsb_key, field0 … )`. A read-modify-write is a block, the rest run alone.
//!
//! Source: Cooper et al., «Benchmarking Cloud Serving Systems with YCSB».

use crate::session::Session;
use crate::text::{letters, weighted};
use crate::zipf::Zipf;
use crate::{Check, Doing, Ended, Knobs, Param, Turn, Workload};
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

pub struct Ycsb {
    records: i64,
    fields: usize,
    length: usize,
    /// Read, update, insert, scan, read-modify-write, in thousandths.
    mix: [u32; 5],
    keys: Zipf,
    is_set_up: AtomicBool,
    inserted: AtomicI64,
    is_unsure: AtomicBool,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    let records = knobs.size("records", 1_000, "records at the start");
    let thousandths = |share: f64| (share * 1_000.0).round() as u32;
    let mix = [
        knobs.share("read", 0.5, "share of reads"),
        knobs.share("update", 0.3, "share of updates"),
        knobs.share("insert", 0.05, "share of inserts"),
        knobs.share("scan", 0.05, "share of scans"),
        knobs.share("rmw", 0.1, "share of read-modify-writes"),
    ];
    let mut mix = mix.map(thousandths);
    if mix.iter().all(|weight| *weight == 0) {
        mix[0] = 1;
    }
    let theta = knobs.number("theta", 0.99, "skew of the keys: 0 is uniform");
    Box::new(Ycsb {
        records,
        fields: knobs.count("fields", 10, "fields of a record").min(100) as usize,
        length: knobs.count("length", 20, "letters of a field") as usize,
        mix,
        keys: Zipf::new(records as u64, theta),
        is_set_up: AtomicBool::new(false),
        inserted: AtomicI64::new(0),
        is_unsure: AtomicBool::new(false),
    })
}

impl Ycsb {
    fn key(&self, rng: &mut Rng) -> i64 {
        // Hot keys lie scattered over the table, not side by side.
        (self.keys.draw(rng).wrapping_mul(0x9E37_79B9) % self.records as u64) as i64
    }

    fn field(&self, rng: &mut Rng) -> Param {
        letters(rng, self.length, self.length).into()
    }

    fn columns(&self) -> String {
        (0..self.fields)
            .map(|field| format!("field{field}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl Workload for Ycsb {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["usertable"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session.batch("DROP TABLE IF EXISTS usertable").await?;
            let fields: String = (0..self.fields)
                .map(|field| format!(", field{field} text"))
                .collect();
            session
                .batch(&format!(
                    "CREATE TABLE usertable (ycsb_key bigint PRIMARY KEY{fields})"
                ))
                .await?;
            let mut rng = Rng::with_seed(1);
            let mut rows = Vec::new();
            for key in 0..self.records {
                let mut row: Vec<Param> = vec![key.into()];
                row.extend((0..self.fields).map(|_| self.field(&mut rng)));
                rows.push(row);
            }
            session
                .load(&format!("usertable (ycsb_key, {})", self.columns()), rows)
                .await?;
            self.is_set_up.store(true, Ordering::Relaxed);
            self.inserted.store(0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let read = format!("SELECT {} FROM usertable WHERE ycsb_key = $1", self.columns());
            let rng = &mut turn.rng;
            let kind = weighted(rng, &self.mix);
            let key = self.key(rng);
            let update = format!(
                "UPDATE usertable SET field{} = $1 WHERE ycsb_key = $2",
                rng.usize(0..self.fields)
            );
            let value = self.field(rng);
            match kind {
                0 => {
                    session.run(&read, &[key.into()]).await?;
                }
                1 => {
                    session.run(&update, &[value, key.into()]).await?;
                }
                2 => {
                    let places: String = (0..self.fields)
                        .map(|field| format!(", ${}", field + 2))
                        .collect();
                    let insert = format!(
                        "INSERT INTO usertable (ycsb_key, {}) VALUES ($1{places})",
                        self.columns()
                    );
                    let mut params = vec![];
                    params.extend((0..self.fields).map(|_| self.field(rng)));
                    params.insert(0, Param::Int(turn.unique(0)));
                    let answer = session.run(&insert, &params).await;
                    if let Err(error) = &answer {
                        self.is_unsure.fetch_or(error.is_closed(), Ordering::Relaxed);
                    }
                    answer?;
                    self.inserted.fetch_add(1, Ordering::Relaxed);
                }
                3 => {
                    let scan = "SELECT ycsb_key, field0 FROM usertable WHERE ycsb_key >= $1 \
                                ORDER BY ycsb_key LIMIT $2";
                    let limit = rng.i64(1..=20);
                    session.run(scan, &[key.into(), limit.into()]).await?;
                }
                _ => {
                    session.begin().await?;
                    session.run(&read, &[key.into()]).await?;
                    session.run(&update, &[value, key.into()]).await?;
                    session.commit().await?;
                }
            }
            Ok(Ended::Committed)
        })
    }

    fn checks(&self) -> Vec<Check> {
        if !self.is_set_up.load(Ordering::Relaxed) || self.is_unsure.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let expected = self.records + self.inserted.load(Ordering::Relaxed);
        vec![Check::new(
            "every record is there",
            format!("SELECT count(*), {expected} FROM usertable HAVING count(*) <> {expected}"),
        )]
    }
}
