//! TATP: a mobile carrier's subscriber register; many short reads, few writes.
//!
//! Out: transactions over `subscriber`, `access_info`, `special_facility`, `call_forwarding`, in the standard's mix.
//!
//! Source: «Telecom Application Transaction Processing Benchmark», version 1.0.

use crate::session::Session;
use crate::text::{digits, letters, weighted};
use crate::{Check, Doing, Ended, Knobs, Param, Turn, Workload};
use fastrand::Rng;

pub struct Tatp {
    subscribers: i64,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    Box::new(Tatp {
        subscribers: knobs.size("subscribers", 1_000, "subscribers"),
    })
}

fn subscriber_columns() -> Vec<(String, &'static str)> {
    let mut columns = vec![
        ("s_id".to_owned(), "int PRIMARY KEY"),
        ("sub_nbr".to_owned(), "varchar(15) NOT NULL UNIQUE"),
    ];
    for kind in ["bit", "hex", "byte2"] {
        columns.extend((1..=10).map(|nth| (format!("{kind}_{nth}"), "smallint")));
    }
    columns.push(("msc_location".to_owned(), "int"));
    columns.push(("vlr_location".to_owned(), "int"));
    columns
}

fn names() -> String {
    subscriber_columns()
        .into_iter()
        .map(|(name, _)| name)
        .collect::<Vec<_>>()
        .join(", ")
}

const TABLES: &[&str] = &[
    "CREATE TABLE access_info (s_id int NOT NULL REFERENCES subscriber (s_id), ai_type smallint NOT NULL, \
     data1 smallint, data2 smallint, data3 char(3), data4 char(5), PRIMARY KEY (s_id, ai_type))",
    "CREATE TABLE special_facility (s_id int NOT NULL REFERENCES subscriber (s_id), sf_type smallint NOT NULL, \
     is_active smallint NOT NULL, error_cntrl smallint, data_a smallint, data_b char(5), PRIMARY KEY (s_id, sf_type))",
    "CREATE TABLE call_forwarding (s_id int NOT NULL, sf_type smallint NOT NULL, start_time smallint NOT NULL, \
     end_time smallint, numberx varchar(15), PRIMARY KEY (s_id, sf_type, start_time), \
     FOREIGN KEY (s_id, sf_type) REFERENCES special_facility (s_id, sf_type))",
];

impl Workload for Tatp {
    fn name(&self) -> &'static str {
        "tatp"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["subscriber", "access_info", "special_facility", "call_forwarding"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session
                .batch(
                    "DROP TABLE IF EXISTS call_forwarding, special_facility, access_info, subscriber CASCADE",
                )
                .await?;
            let columns: Vec<String> = subscriber_columns()
                .into_iter()
                .map(|(name, ty)| format!("{name} {ty}"))
                .collect();
            session
                .batch(&format!("CREATE TABLE subscriber ({})", columns.join(", ")))
                .await?;
            for table in TABLES {
                session.batch(table).await?;
            }
            let mut rng = Rng::with_seed(4);
            let rng = &mut rng;
            let (mut subscribers, mut accesses, mut facilities, mut forwardings) =
                (vec![], vec![], vec![], vec![]);
            for id in 1..=self.subscribers {
                let mut row: Vec<Param> = vec![id.into(), number(id).into()];
                row.extend((0..10).map(|_| Param::Int(rng.i64(0..=1))));
                row.extend((0..10).map(|_| Param::Int(rng.i64(0..=15))));
                row.extend((0..10).map(|_| Param::Int(rng.i64(0..=255))));
                row.extend([
                    rng.i64(1..=i64::from(i32::MAX)).into(),
                    rng.i64(1..=i64::from(i32::MAX)).into(),
                ]);
                subscribers.push(row);
                for kind in 1..=rng.i64(1..=4) {
                    let text = (letters(rng, 3, 3), letters(rng, 5, 5));
                    let numbers = (rng.i64(0..=255), rng.i64(0..=255));
                    accesses.push(vec![
                        id.into(),
                        kind.into(),
                        numbers.0.into(),
                        numbers.1.into(),
                        text.0.into(),
                        text.1.into(),
                    ]);
                }
                for kind in 1..=rng.i64(1..=4) {
                    let active = i64::from(rng.u32(0..100) < 85);
                    facilities.push(vec![
                        id.into(),
                        kind.into(),
                        active.into(),
                        rng.i64(0..=255).into(),
                        rng.i64(0..=255).into(),
                        letters(rng, 5, 5).into(),
                    ]);
                    for start in 0..rng.i64(0..=3) {
                        let start = start * 8;
                        forwardings.push(vec![
                            id.into(),
                            kind.into(),
                            start.into(),
                            (start + rng.i64(1..=8)).into(),
                            digits(rng, 15, 15).into(),
                        ]);
                    }
                }
            }
            session
                .load(&format!("subscriber ({})", names()), subscribers)
                .await?;
            session
                .load(
                    "access_info (s_id, ai_type, data1, data2, data3, data4)",
                    accesses,
                )
                .await?;
            let into = "special_facility (s_id, sf_type, is_active, error_cntrl, data_a, data_b)";
            session.load(into, facilities).await?;
            session
                .load(
                    "call_forwarding (s_id, sf_type, start_time, end_time, numberx)",
                    forwardings,
                )
                .await
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let rng = &mut turn.rng;
            let subscriber = rng.i64(1..=self.subscribers);
            let (kind, start) = (rng.i64(1..=4), rng.i64(0..3) * 8);
            let end = start + rng.i64(1..=8);
            let id = Param::Int(subscriber);
            match weighted(rng, &[35, 10, 35, 2, 14, 2, 2]) {
                0 => {
                    session
                        .run(
                            &format!("SELECT {} FROM subscriber WHERE s_id = $1", names()),
                            &[id],
                        )
                        .await?;
                }
                1 => {
                    let destination = "SELECT cf.numberx FROM special_facility sf JOIN call_forwarding cf \
                         ON cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type WHERE sf.s_id = $1 AND sf.sf_type = $2 \
                         AND sf.is_active = 1 AND cf.start_time <= $3 AND cf.end_time > $4";
                    session
                        .run(destination, &[id, kind.into(), start.into(), end.into()])
                        .await?;
                }
                2 => {
                    let access =
                        "SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2";
                    session.run(access, &[id, kind.into()]).await?;
                }
                3 => {
                    let (bit, data) = (rng.i64(0..=1), rng.i64(0..=255));
                    session.begin().await?;
                    session
                        .run(
                            "UPDATE subscriber SET bit_1 = $1 WHERE s_id = $2",
                            &[bit.into(), id.clone()],
                        )
                        .await?;
                    let update = "UPDATE special_facility SET data_a = $1 WHERE s_id = $2 AND sf_type = $3";
                    if session
                        .run(update, &[data.into(), id, kind.into()])
                        .await?
                        .affected
                        == 0
                    {
                        session.rollback().await?;
                        return Ok(Ended::RolledBack);
                    }
                    session.commit().await?;
                }
                4 => {
                    let location = rng.i64(1..=i64::from(i32::MAX));
                    let update = "UPDATE subscriber SET vlr_location = $1 WHERE sub_nbr = $2";
                    session
                        .run(update, &[location.into(), number(subscriber).into()])
                        .await?;
                }
                5 => {
                    let target = digits(rng, 15, 15);
                    session.begin().await?;
                    find(session, subscriber).await?;
                    session
                        .run(
                            "SELECT sf_type FROM special_facility WHERE s_id = $1",
                            std::slice::from_ref(&id),
                        )
                        .await?;
                    // A taken key and a missing facility are part of the benchmark: the transaction fails.
                    let insert = "INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx) \
                                  VALUES ($1, $2, $3, $4, $5)";
                    session
                        .run(
                            insert,
                            &[id, kind.into(), start.into(), end.into(), target.into()],
                        )
                        .await?;
                    session.commit().await?;
                }
                _ => {
                    session.begin().await?;
                    find(session, subscriber).await?;
                    let delete =
                        "DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3";
                    session.run(delete, &[id, kind.into(), start.into()]).await?;
                    session.commit().await?;
                }
            }
            Ok(Ended::Committed)
        })
    }

    fn checks(&self) -> Vec<Check> {
        vec![
            Check::new(
                "every subscriber is there",
                format!(
                    "SELECT count(*) FROM subscriber HAVING count(*) <> {}",
                    self.subscribers
                ),
            ),
            Check::new(
                "every forwarding belongs to a facility",
                "SELECT cf.s_id, cf.sf_type FROM call_forwarding cf LEFT JOIN special_facility sf \
                 ON sf.s_id = cf.s_id AND sf.sf_type = cf.sf_type WHERE sf.s_id IS NULL",
            ),
            Check::new(
                "a forwarding ends after it starts",
                "SELECT s_id, sf_type, start_time FROM call_forwarding WHERE end_time <= start_time",
            ),
        ]
    }
}

fn number(subscriber: i64) -> String {
    format!("{subscriber:015}")
}

async fn find(session: &mut Session, subscriber: i64) -> Result<(), tokio_postgres::Error> {
    session
        .run(
            "SELECT s_id FROM subscriber WHERE sub_nbr = $1",
            &[number(subscriber).into()],
        )
        .await?;
    Ok(())
}
