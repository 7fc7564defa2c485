//! TPC-C: a wholesale supplier with five transactions in the standard's mix.
//!
//! In: the number of warehouses, districts, customers and items (`tiny` is the set-up of the paper: 1 warehouse,
//! 2 districts, 3 customers per district, 1 item). A scale below 1 shrinks customers and items of one warehouse,
//! a scale above 1 is the number of warehouses.
//! Out: transactions over the standard's nine tables, as plain statements or as functions in PL/pgSQL.
//!
//! Always true: the twelve consistency conditions (clause 3.3.2), before and after any run at any level.
//!
//! Source: TPC Benchmark C, revision 5.11.

pub mod schema;
pub mod statements;
mod transactions;
mod procedures;
mod checks;

use crate::session::{Mode, Session};
use crate::text::weighted;
use crate::{Check, Doing, Ended, Knobs, Turn, Workload};
use fastrand::Rng;

pub struct Tpcc {
    warehouses: i64,
    districts: i64,
    customers: i64,
    items: i64,
    foreign_keys: bool,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    let scale = knobs.scale();
    let shrunk = |count: i64| ((count as f64 * scale.min(1.0)).round() as i64).max(1);
    let tiny = knobs.flag(
        "tiny",
        false,
        "1 warehouse, 2 districts, 3 customers per district, 1 item",
    );
    let pick = |usual: i64, small: i64| if tiny { small } else { usual };
    Box::new(Tpcc {
        warehouses: knobs.count("warehouses", pick((scale as i64).max(1), 1), "warehouses"),
        districts: knobs
            .count("districts", pick(10, 2), "districts per warehouse")
            .min(10),
        customers: knobs.count("customers", pick(shrunk(3_000), 3), "customers per district"),
        items: knobs.count("items", pick(shrunk(100_000), 1), "items"),
        foreign_keys: knobs.flag("foreign_keys", true, "declare the standard's foreign keys"),
    })
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn tables(&self) -> &'static [&'static str] {
        &[
            "warehouse",
            "district",
            "customer",
            "history",
            "orders",
            "new_order",
            "item",
            "stock",
            "order_line",
        ]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            schema::create(self, session).await?;
            schema::load(self, session).await?;
            if session.mode() == Mode::Procedures {
                procedures::create(session).await?;
            }
            Ok(())
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let procedures = session.mode() == Mode::Procedures;
            // A client has its home warehouse, as a terminal does.
            let home = 1 + turn.client as i64 % self.warehouses;
            match weighted(&mut turn.rng, &[45, 43, 4, 4, 4]) {
                0 => {
                    let order = transactions::Order::draw(self, home, &mut turn);
                    if procedures {
                        procedures::new_order(session, &order).await
                    } else {
                        transactions::new_order(session, &order).await
                    }
                }
                1 => {
                    let payment = transactions::Payment::draw(self, home, &mut turn);
                    if procedures {
                        procedures::payment(session, &payment).await
                    } else {
                        transactions::payment(session, &payment).await
                    }
                }
                2 => {
                    let carrier = turn.rng.i64(1..=10);
                    let time = self.time(&turn);
                    if procedures {
                        procedures::delivery(session, home, self.districts, carrier, time).await
                    } else {
                        transactions::delivery(session, home, self.districts, carrier, time).await
                    }
                }
                3 => {
                    let district = turn.rng.i64(1..=self.districts);
                    let who = self.draw_customer(&mut turn.rng);
                    if procedures {
                        procedures::order_status(session, home, district, &who).await
                    } else {
                        transactions::order_status(session, home, district, &who).await
                    }
                }
                _ => {
                    let district = 1 + turn.client as i64 % self.districts;
                    let threshold = turn.rng.i64(10..=20);
                    if procedures {
                        procedures::stock_level(session, home, district, threshold).await
                    } else {
                        transactions::stock_level(session, home, district, threshold).await
                    }
                }
            }
        })
    }

    fn has_procedures(&self) -> bool {
        true
    }

    fn checks(&self) -> Vec<Check> {
        checks::all()
    }
}

/// A customer as the terminal's user names it: by number, or six times in ten by last name.
enum Customer {
    Number(i64),
    Name(String),
}

impl Tpcc {
    fn draw_customer(&self, rng: &mut Rng) -> Customer {
        if rng.u32(0..100) < 60 {
            let number = non_uniform(rng, 255, 0, 999) % self.customers.min(1_000);
            Customer::Name(last_name(number))
        } else {
            Customer::Number(self.draw_customer_number(rng))
        }
    }

    fn draw_customer_number(&self, rng: &mut Rng) -> i64 {
        1 + (non_uniform(rng, 1_023, 1, 3_000) - 1) % self.customers
    }

    fn draw_item(&self, rng: &mut Rng) -> i64 {
        1 + (non_uniform(rng, 8_191, 1, 100_000) - 1) % self.items
    }

    /// The terminal's clock: it follows from the turn, so that a run can be repeated.
    fn time(&self, turn: &Turn) -> i64 {
        const START: i64 = 820_454_400_000_000;
        START + turn.serial as i64 * 1_000_000 + turn.client as i64
    }
}

/// NURand of clause 2.1.6, with C = 123.
pub fn non_uniform(rng: &mut Rng, a: i64, low: i64, high: i64) -> i64 {
    (((rng.i64(0..=a) | rng.i64(low..=high)) + 123) % (high - low + 1)) + low
}

/// The last name of clause 4.3.2.3.
pub fn last_name(number: i64) -> String {
    const SYLLABLES: [&str; 10] = [
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
    ];
    let syllable = |digit: i64| SYLLABLES[(digit % 10) as usize];
    format!(
        "{}{}{}",
        syllable(number / 100),
        syllable(number / 10),
        syllable(number)
    )
}
