//! Seats: flights, customers and reservations, after the SEATS benchmark; a seat is sold once.
//!
//! Out: transactions over `airport`, `flight`, `passenger`, `reservation`, in the mix of SEATS.
//!
//! Always true: the open seats of a flight and its reservations are its seats; nobody shares a seat.
//!
//! Source: Stonebraker and Pavlo, «The SEATS Airline Ticketing Systems Benchmark».

use crate::session::Session;
use crate::text::{letters, weighted};
use crate::{Check, Doing, Ended, Knobs, Param, Turn, Workload};
use fastrand::Rng;

pub struct Seats {
    flights: i64,
    customers: i64,
    airports: i64,
    seats: i64,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    Box::new(Seats {
        flights: knobs.size("flights", 100, "flights"),
        customers: knobs.size("customers", 1_000, "customers"),
        airports: knobs.count("airports", 10, "airports").max(2),
        seats: knobs.count("seats", 50, "seats of a flight"),
    })
}

const TABLES: &[&str] = &[
    "CREATE TABLE airport (ap_id int PRIMARY KEY, ap_code char(3) NOT NULL, ap_name varchar(64) NOT NULL)",
    "CREATE TABLE flight (f_id int PRIMARY KEY, f_depart_ap int NOT NULL REFERENCES airport (ap_id), \
     f_arrive_ap int NOT NULL REFERENCES airport (ap_id), f_depart_time timestamp NOT NULL, \
     f_base_price numeric(8,2) NOT NULL, f_seats_left int NOT NULL CHECK (f_seats_left >= 0))",
    "CREATE TABLE passenger (c_id int PRIMARY KEY, c_name varchar(64) NOT NULL, c_balance numeric(10,2) NOT NULL, \
     c_flights int NOT NULL DEFAULT 0, c_note text)",
    "CREATE TABLE reservation (r_id bigint PRIMARY KEY, r_c_id int NOT NULL REFERENCES passenger (c_id), \
     r_f_id int NOT NULL REFERENCES flight (f_id), r_seat int NOT NULL, r_price numeric(8,2) NOT NULL, \
     UNIQUE (r_f_id, r_seat))",
    "CREATE INDEX reservation_by_customer ON reservation (r_c_id)",
    "CREATE INDEX flight_by_time ON flight (f_depart_time)",
];

impl Workload for Seats {
    fn name(&self) -> &'static str {
        "seats"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["airport", "flight", "passenger", "reservation"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session
                .batch("DROP TABLE IF EXISTS reservation, passenger, flight, airport CASCADE")
                .await?;
            for table in TABLES {
                session.batch(table).await?;
            }
            let mut rng = Rng::with_seed(5);
            let rng = &mut rng;
            let airports = (1..=self.airports)
                .map(|id| {
                    vec![
                        id.into(),
                        letters(rng, 3, 3).to_uppercase().into(),
                        letters(rng, 5, 20).into(),
                    ]
                })
                .collect();
            session
                .load("airport (ap_id, ap_code, ap_name)", airports)
                .await?;
            let flights = (1..=self.flights)
                .map(|id| {
                    let from = rng.i64(1..=self.airports);
                    let to = 1 + (from + rng.i64(0..self.airports - 1)) % self.airports;
                    vec![
                        id.into(),
                        from.into(),
                        to.into(),
                        Param::Time(id * 3_600_000_000),
                        Param::cents(rng.i64(5_000..=50_000)),
                        self.seats.into(),
                    ]
                })
                .collect();
            let into = "flight (f_id, f_depart_ap, f_arrive_ap, f_depart_time, f_base_price, f_seats_left)";
            session.load(into, flights).await?;
            let customers = (1..=self.customers)
                .map(|id| vec![id.into(), letters(rng, 5, 20).into(), Param::cents(1_000_000)])
                .collect();
            session
                .load("passenger (c_id, c_name, c_balance)", customers)
                .await
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            match weighted(&mut turn.rng, &[10, 35, 20, 10, 15, 10]) {
                0 => self.find_flights(session, &mut turn).await,
                1 => self.find_open_seats(session, &mut turn).await,
                2 => self.new_reservation(session, &mut turn).await,
                3 => self.update_customer(session, &mut turn).await,
                4 => self.update_reservation(session, &mut turn).await,
                _ => self.delete_reservation(session, &mut turn).await,
            }
        })
    }

    fn checks(&self) -> Vec<Check> {
        vec![
            Check::new(
                "open seats and reservations are all seats",
                format!(
                    "SELECT f_id, f_seats_left FROM flight WHERE f_seats_left + \
                     (SELECT count(*) FROM reservation WHERE r_f_id = f_id) <> {}",
                    self.seats
                ),
            ),
            Check::new(
                "nobody shares a seat",
                "SELECT r_f_id, r_seat, count(*) FROM reservation GROUP BY r_f_id, r_seat HAVING count(*) > 1",
            ),
            Check::new(
                "a customer's flights are counted right",
                "SELECT c_id, c_flights FROM passenger WHERE c_flights <> \
                 (SELECT count(*) FROM reservation WHERE r_c_id = c_id)",
            ),
        ]
    }
}

type Outcome = Result<Ended, tokio_postgres::Error>;

impl Seats {
    async fn find_flights(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let first = turn.rng.i64(1..=self.flights);
        let airport = turn.rng.i64(1..=self.airports);
        let find = "SELECT f.f_id, f.f_seats_left, f.f_base_price, d.ap_code, a.ap_code FROM flight f \
                    JOIN airport d ON d.ap_id = f.f_depart_ap JOIN airport a ON a.ap_id = f.f_arrive_ap \
                    WHERE f.f_depart_ap = $1 AND f.f_depart_time BETWEEN $2 AND $3 AND f.f_seats_left > 0 \
                    ORDER BY f.f_id";
        let window = [
            Param::Time(first * 3_600_000_000),
            Param::Time((first + 50) * 3_600_000_000),
        ];
        session
            .run(find, &[airport.into(), window[0].clone(), window[1].clone()])
            .await?;
        Ok(Ended::Committed)
    }

    async fn find_open_seats(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let flight = turn.rng.i64(1..=self.flights);
        session.begin_read_only().await?;
        session
            .run(
                "SELECT f_base_price, f_seats_left FROM flight WHERE f_id = $1",
                &[flight.into()],
            )
            .await?;
        session
            .run(
                "SELECT r_seat FROM reservation WHERE r_f_id = $1 ORDER BY r_seat",
                &[flight.into()],
            )
            .await?;
        session.commit().await?;
        Ok(Ended::Committed)
    }

    async fn new_reservation(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let flight = turn.rng.i64(1..=self.flights);
        let customer = turn.rng.i64(1..=self.customers);
        let seat = turn.rng.i64(1..=self.seats);
        session.begin().await?;
        let taken = "SELECT r_id FROM reservation WHERE r_f_id = $1 AND r_seat = $2";
        if !session
            .run(taken, &[flight.into(), seat.into()])
            .await?
            .is_empty()
        {
            session.rollback().await?;
            return Ok(Ended::RolledBack);
        }
        let take = "UPDATE flight SET f_seats_left = f_seats_left - 1 WHERE f_id = $1 RETURNING f_base_price";
        let price = session
            .run(take, &[flight.into()])
            .await?
            .units(0, 0, 2)
            .unwrap_or(0);
        // Somebody may have been faster: then the key is taken, and the customer has to choose again.
        let insert =
            "INSERT INTO reservation (r_id, r_c_id, r_f_id, r_seat, r_price) VALUES ($1, $2, $3, $4, $5)";
        let row = [
            turn.unique(0).into(),
            customer.into(),
            flight.into(),
            seat.into(),
            Param::cents(price),
        ];
        session.run(insert, &row).await?;
        let pay =
            "UPDATE passenger SET c_balance = c_balance - $1, c_flights = c_flights + 1 WHERE c_id = $2";
        session.run(pay, &[Param::cents(price), customer.into()]).await?;
        session.commit().await?;
        Ok(Ended::Committed)
    }

    async fn update_customer(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let customer = turn.rng.i64(1..=self.customers);
        let note = letters(&mut turn.rng, 5, 40);
        session.begin().await?;
        session
            .run(
                "SELECT c_name, c_balance FROM passenger WHERE c_id = $1",
                &[customer.into()],
            )
            .await?;
        let update = "UPDATE passenger SET c_note = $1 WHERE c_id = $2";
        session.run(update, &[note.into(), customer.into()]).await?;
        session.commit().await?;
        Ok(Ended::Committed)
    }

    async fn update_reservation(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let flight = turn.rng.i64(1..=self.flights);
        let (old, new) = (turn.rng.i64(1..=self.seats), turn.rng.i64(1..=self.seats));
        let taken = "SELECT r_id FROM reservation WHERE r_f_id = $1 AND r_seat = $2";
        session.begin().await?;
        let is_free = session.run(taken, &[flight.into(), new.into()]).await?.is_empty();
        if is_free {
            let change = "UPDATE reservation SET r_seat = $1 WHERE r_f_id = $2 AND r_seat = $3";
            session
                .run(change, &[new.into(), flight.into(), old.into()])
                .await?;
        }
        session.commit().await?;
        Ok(Ended::Committed)
    }

    async fn delete_reservation(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let customer = turn.rng.i64(1..=self.customers);
        session.begin().await?;
        let find = "SELECT r_id, r_f_id FROM reservation WHERE r_c_id = $1 ORDER BY r_id LIMIT 1";
        let found = session.run(find, &[customer.into()]).await?;
        let (Some(id), Some(flight)) = (found.int(0, 0), found.int(0, 1)) else {
            session.commit().await?;
            return Ok(Ended::Committed);
        };
        let gone = session
            .run(
                "DELETE FROM reservation WHERE r_id = $1 RETURNING r_price",
                &[id.into()],
            )
            .await?;
        if let Some(price) = gone.units(0, 0, 2) {
            let open = "UPDATE flight SET f_seats_left = f_seats_left + 1 WHERE f_id = $1";
            session.run(open, &[flight.into()]).await?;
            let refund =
                "UPDATE passenger SET c_balance = c_balance + $1, c_flights = c_flights - 1 WHERE c_id = $2";
            session
                .run(refund, &[Param::cents(price), customer.into()])
                .await?;
        }
        session.commit().await?;
        Ok(Ended::Committed)
    }
}
