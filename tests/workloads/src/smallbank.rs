//! SmallBank: customers with a checking and a savings account; six transactions of which one pair makes write skew.
//!
//! Out: transactions over `accounts_by_name`, `savings`, `checking`, in the mix of the H-Store version.
//!
//! Always true: the sum of both tables is the initial sum plus what committed transactions brought in and took out.
//!
//! Source: Alomari et al., «The Cost of Serializability on Platforms That Use Snapshot Isolation».

use crate::session::Session;
use crate::text::weighted;
use crate::{Check, Doing, Ended, Knobs, Turn, Workload};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const OPENING: i64 = 10_000;
const PENALTY: i64 = 100;

pub struct SmallBank {
    customers: i64,
    hot: i64,
    is_set_up: AtomicBool,
    net: AtomicI64,
    is_unsure: AtomicBool,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    let customers = knobs.size("customers", 1_000, "customers of the bank").max(2);
    Box::new(SmallBank {
        customers,
        hot: knobs
            .count("hot", 50, "customers that nine in ten transactions use")
            .clamp(2, customers),
        is_set_up: AtomicBool::new(false),
        net: AtomicI64::new(0),
        is_unsure: AtomicBool::new(false),
    })
}

impl Workload for SmallBank {
    fn name(&self) -> &'static str {
        "smallbank"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["customers", "savings", "checking"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session
                .batch("DROP TABLE IF EXISTS customers, savings, checking")
                .await?;
            session
                .batch("CREATE TABLE customers (custid bigint PRIMARY KEY, name varchar(64) NOT NULL UNIQUE)")
                .await?;
            for table in ["savings", "checking"] {
                session
                    .batch(&format!(
                        "CREATE TABLE {table} (custid bigint PRIMARY KEY, bal bigint NOT NULL)"
                    ))
                    .await?;
            }
            let customers = (1..=self.customers)
                .map(|id| vec![id.into(), name(id).into()])
                .collect();
            session.load("customers (custid, name)", customers).await?;
            for table in ["savings (custid, bal)", "checking (custid, bal)"] {
                let rows = (1..=self.customers)
                    .map(|id| vec![id.into(), OPENING.into()])
                    .collect();
                session.load(table, rows).await?;
            }
            self.is_set_up.store(true, Ordering::Relaxed);
            self.net.store(0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let range = if turn.chance(0.9) {
                self.hot
            } else {
                self.customers
            };
            let one = turn.rng.i64(1..=range);
            let two = 1 + (one + turn.rng.i64(0..range - 1)) % range;
            let amount = turn.rng.i64(1..=200);
            let kind = weighted(&mut turn.rng, &[15, 15, 15, 25, 15, 15]);
            session.begin().await?;
            let outcome = match kind {
                0 => amalgamate(session, one, two).await,
                1 => balance(session, one).await,
                2 => deposit_checking(session, one, amount).await,
                3 => send_payment(session, one, two, amount).await,
                4 => transact_savings(session, one, amount - 100).await,
                _ => write_check(session, one, amount).await,
            };
            let Some(change) = outcome? else {
                session.rollback().await?;
                return Ok(Ended::RolledBack);
            };
            if let Err(error) = session.commit().await {
                self.is_unsure.fetch_or(error.is_closed(), Ordering::Relaxed);
                return Err(error);
            }
            self.net.fetch_add(change, Ordering::Relaxed);
            Ok(Ended::Committed)
        })
    }

    fn checks(&self) -> Vec<Check> {
        let count = self.customers;
        let mut checks = vec![Check::new(
            "every customer has both accounts",
            format!(
                "SELECT count(*) FROM customers c JOIN savings s ON s.custid = c.custid \
                 JOIN checking k ON k.custid = c.custid HAVING count(*) <> {count}"
            ),
        )];
        if self.is_set_up.load(Ordering::Relaxed) && !self.is_unsure.load(Ordering::Relaxed) {
            let expected = 2 * count * OPENING + self.net.load(Ordering::Relaxed);
            checks.push(Check::new(
                "the total is what was there, came in and went out",
                format!(
                    "SELECT sum(s.bal + k.bal), {expected} FROM savings s JOIN checking k ON k.custid = s.custid \
                     HAVING sum(s.bal + k.bal) <> {expected}"
                ),
            ));
        }
        checks
    }
}

/// What the transaction brought into the bank; `None` when the application takes it back.
type Change = Result<Option<i64>, tokio_postgres::Error>;

const SAVINGS: &str = "SELECT bal FROM savings WHERE custid = $1";
const CHECKING: &str = "SELECT bal FROM checking WHERE custid = $1";
const ADD_CHECKING: &str = "UPDATE checking SET bal = bal + $1 WHERE custid = $2";

fn name(customer: i64) -> String {
    format!("customer{customer:09}")
}

async fn find(session: &mut Session, customer: i64) -> Result<i64, tokio_postgres::Error> {
    let find = "SELECT custid FROM customers WHERE name = $1";
    Ok(session
        .run(find, &[name(customer).into()])
        .await?
        .int(0, 0)
        .unwrap_or(customer))
}

async fn amalgamate(session: &mut Session, from: i64, to: i64) -> Change {
    let from = find(session, from).await?;
    let to = find(session, to).await?;
    let savings = session.run(SAVINGS, &[from.into()]).await?.int(0, 0).unwrap_or(0);
    let checking = session
        .run(CHECKING, &[from.into()])
        .await?
        .int(0, 0)
        .unwrap_or(0);
    session
        .run(
            "UPDATE savings SET bal = bal - $1 WHERE custid = $2",
            &[savings.into(), from.into()],
        )
        .await?;
    session
        .run(
            "UPDATE checking SET bal = bal - $1 WHERE custid = $2",
            &[checking.into(), from.into()],
        )
        .await?;
    session
        .run(ADD_CHECKING, &[(savings + checking).into(), to.into()])
        .await?;
    Ok(Some(0))
}

async fn balance(session: &mut Session, customer: i64) -> Change {
    let customer = find(session, customer).await?;
    session.run(SAVINGS, &[customer.into()]).await?;
    session.run(CHECKING, &[customer.into()]).await?;
    Ok(Some(0))
}

async fn deposit_checking(session: &mut Session, customer: i64, amount: i64) -> Change {
    let customer = find(session, customer).await?;
    session
        .run(ADD_CHECKING, &[amount.into(), customer.into()])
        .await?;
    Ok(Some(amount))
}

async fn send_payment(session: &mut Session, from: i64, to: i64, amount: i64) -> Change {
    let from = find(session, from).await?;
    let to = find(session, to).await?;
    let held = session
        .run(CHECKING, &[from.into()])
        .await?
        .int(0, 0)
        .unwrap_or(0);
    if held < amount {
        return Ok(None);
    }
    session
        .run(
            "UPDATE checking SET bal = bal - $1 WHERE custid = $2",
            &[amount.into(), from.into()],
        )
        .await?;
    session.run(ADD_CHECKING, &[amount.into(), to.into()]).await?;
    Ok(Some(0))
}

async fn transact_savings(session: &mut Session, customer: i64, amount: i64) -> Change {
    let customer = find(session, customer).await?;
    let held = session
        .run(SAVINGS, &[customer.into()])
        .await?
        .int(0, 0)
        .unwrap_or(0);
    if held + amount < 0 {
        return Ok(None);
    }
    session
        .run(
            "UPDATE savings SET bal = bal + $1 WHERE custid = $2",
            &[amount.into(), customer.into()],
        )
        .await?;
    Ok(Some(amount))
}

/// Reads both accounts and writes one: the famous skew.
async fn write_check(session: &mut Session, customer: i64, amount: i64) -> Change {
    let customer = find(session, customer).await?;
    let savings = session
        .run(SAVINGS, &[customer.into()])
        .await?
        .int(0, 0)
        .unwrap_or(0);
    let checking = session
        .run(CHECKING, &[customer.into()])
        .await?
        .int(0, 0)
        .unwrap_or(0);
    let taken = if savings + checking < amount {
        amount + PENALTY
    } else {
        amount
    };
    session
        .run(
            "UPDATE checking SET bal = bal - $1 WHERE custid = $2",
            &[taken.into(), customer.into()],
        )
        .await?;
    Ok(Some(-taken))
}
