//! The bank server: deposits, withdrawals, transfers, withdrawals with overdraft, balance checks.
//!
//! In: how many accounts there are and which share of them is used, how many writes are blind (not preceded by a
//! read of the same rows), how many transactions only read.
//! Out: transactions over `accounts (id, balance)`, as plain statements or as stored procedures.
//!
//! Always true: every change of a balance is relative or guarded, so the sum of all balances is the initial sum
//! plus what the committed transactions brought in and took out, at every isolation level.
//!
//! Source: «Checking Observational Correctness of Database Systems», §2 and §8.3.

use crate::session::{Mode, Session};
use crate::{Check, Doing, Ended, Knobs, Turn, Workload};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// What every account starts with.
const OPENING: i64 = 1_000;
/// What an overdraft costs.
const FEE: i64 = 5;

pub struct Bank {
    accounts: i64,
    /// Only the first so many accounts are used.
    used: i64,
    blind: f64,
    read_only: f64,
    totals: f64,
    is_set_up: AtomicBool,
    /// What committed transactions brought in, less what they took out.
    net: AtomicI64,
    /// A COMMIT whose outcome was never learnt: the sum is no longer known.
    is_unsure: AtomicBool,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    let accounts = knobs.size("accounts", 1_000, "accounts in the bank");
    let accessed = knobs.share("accessed", 1.0, "share of the accounts that transactions use");
    Box::new(Bank {
        accounts,
        used: ((accounts as f64 * accessed).round() as i64)
            .max(2)
            .min(accounts.max(2)),
        blind: knobs.share("blind", 0.0, "share of the writes that do not read first"),
        read_only: knobs.share(
            "read_only",
            0.2,
            "share of the transactions that only read a balance",
        ),
        totals: knobs.share("totals", 0.0, "share of the transactions that sum all balances"),
        is_set_up: AtomicBool::new(false),
        net: AtomicI64::new(0),
        is_unsure: AtomicBool::new(false),
    })
}

impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["accounts"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session.batch("DROP TABLE IF EXISTS accounts").await?;
            session
                .batch("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)")
                .await?;
            let rows = (1..=self.accounts.max(2))
                .map(|id| vec![id.into(), OPENING.into()])
                .collect();
            session.load("accounts (id, balance)", rows).await?;
            if session.mode() == Mode::Procedures {
                for procedure in PROCEDURES {
                    session.batch(procedure).await?;
                }
            }
            self.is_set_up.store(true, Ordering::Relaxed);
            self.net.store(0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let account = turn.rng.i64(1..=self.used);
            let amount = turn.rng.i64(1..=100);
            if turn.chance(self.totals) {
                session.run("SELECT sum(balance) FROM accounts", &[]).await?;
                return Ok(Ended::Committed);
            }
            if turn.chance(self.read_only) {
                let check = if session.mode() == Mode::Procedures {
                    "SELECT bank_balance($1)"
                } else {
                    "SELECT balance FROM accounts WHERE id = $1"
                };
                session.run(check, &[account.into()]).await?;
                return Ok(Ended::Committed);
            }
            let blind = turn.chance(self.blind);
            let kind = turn.rng.u32(0..4);
            let other = 1 + (account + turn.rng.i64(0..self.used - 1)) % self.used;
            let outcome = if session.mode() == Mode::Procedures {
                call(session, kind, account, other, amount).await
            } else {
                match kind {
                    0 => deposit(session, account, amount, blind).await,
                    1 => withdraw(session, account, amount, blind).await,
                    2 => transfer(session, account, other, amount, blind).await,
                    _ => withdraw_overdraft(session, account, amount).await,
                }
            };
            match outcome {
                Ok(change) => {
                    self.net.fetch_add(change, Ordering::Relaxed);
                    Ok(Ended::Committed)
                }
                Err(error) => {
                    if error.is_closed() {
                        self.is_unsure.store(true, Ordering::Relaxed);
                    }
                    Err(error)
                }
            }
        })
    }

    fn has_procedures(&self) -> bool {
        true
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = vec![Check::new(
            "every account is there once",
            format!(
                "SELECT count(*) FROM accounts HAVING count(*) <> {0} OR min(id) <> 1 OR max(id) <> {0}",
                self.accounts.max(2)
            ),
        )];
        if self.is_set_up.load(Ordering::Relaxed) && !self.is_unsure.load(Ordering::Relaxed) {
            let expected = self.accounts.max(2) * OPENING + self.net.load(Ordering::Relaxed);
            checks.push(Check::new(
                "the total is what was there, came in and went out",
                format!("SELECT sum(balance), {expected} FROM accounts HAVING sum(balance) <> {expected}"),
            ));
        }
        checks
    }
}

type Change = Result<i64, tokio_postgres::Error>;

const READ: &str = "SELECT balance FROM accounts WHERE id = $1";
const ADD: &str = "UPDATE accounts SET balance = balance + $1 WHERE id = $2";
const TAKE: &str = "UPDATE accounts SET balance = balance - $1 WHERE id = $2";
const TAKE_IF_COVERED: &str = "UPDATE accounts SET balance = balance - $1 WHERE id = $2 AND balance >= $1";

async fn deposit(session: &mut Session, account: i64, amount: i64, blind: bool) -> Change {
    if blind {
        session.run(ADD, &[amount.into(), account.into()]).await?;
        return Ok(amount);
    }
    session.begin().await?;
    session.run(READ, &[account.into()]).await?;
    session.run(ADD, &[amount.into(), account.into()]).await?;
    session.commit().await?;
    Ok(amount)
}

async fn withdraw(session: &mut Session, account: i64, amount: i64, blind: bool) -> Change {
    if blind {
        let answer = session
            .run(TAKE_IF_COVERED, &[amount.into(), account.into()])
            .await?;
        return Ok(-amount * answer.affected as i64);
    }
    session.begin().await?;
    let held = session.run(READ, &[account.into()]).await?.int(0, 0).unwrap_or(0);
    let mut taken = 0;
    if held >= amount {
        taken = session
            .run(TAKE_IF_COVERED, &[amount.into(), account.into()])
            .await?
            .affected;
    }
    session.commit().await?;
    Ok(-amount * taken as i64)
}

async fn transfer(session: &mut Session, from: i64, to: i64, amount: i64, blind: bool) -> Change {
    session.begin().await?;
    if !blind {
        let both = "SELECT id, balance FROM accounts WHERE id IN ($1, $2) ORDER BY id";
        session.run(both, &[from.into(), to.into()]).await?;
    }
    session.run(TAKE, &[amount.into(), from.into()]).await?;
    session.run(ADD, &[amount.into(), to.into()]).await?;
    session.commit().await?;
    Ok(0)
}

async fn withdraw_overdraft(session: &mut Session, account: i64, amount: i64) -> Change {
    session.begin().await?;
    let held = session.run(READ, &[account.into()]).await?.int(0, 0).unwrap_or(0);
    let taken = if held >= amount { amount } else { amount + FEE };
    session.run(TAKE, &[taken.into(), account.into()]).await?;
    session.commit().await?;
    Ok(-taken)
}

async fn call(session: &mut Session, kind: u32, account: i64, other: i64, amount: i64) -> Change {
    match kind {
        0 => {
            session
                .run("CALL bank_deposit($1, $2)", &[account.into(), amount.into()])
                .await?;
            Ok(amount)
        }
        1 => {
            let answer = session
                .run("CALL bank_withdraw($1, $2, 0)", &[account.into(), amount.into()])
                .await?;
            Ok(-answer.int(0, 0).unwrap_or(0))
        }
        2 => {
            let params = [account.into(), other.into(), amount.into()];
            session.run("CALL bank_transfer($1, $2, $3)", &params).await?;
            Ok(0)
        }
        _ => {
            let params = [account.into(), amount.into()];
            let answer = session
                .run("CALL bank_withdraw_overdraft($1, $2, 0)", &params)
                .await?;
            Ok(-answer.int(0, 0).unwrap_or(0))
        }
    }
}

const PROCEDURES: &[&str] = &[
    "CREATE OR REPLACE FUNCTION bank_balance(account int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  held bigint;
BEGIN
  SELECT balance INTO held FROM accounts WHERE id = account;
  RETURN held;
END $$",
    "CREATE OR REPLACE PROCEDURE bank_deposit(account int, amount bigint) LANGUAGE plpgsql AS $$
BEGIN
  UPDATE accounts SET balance = balance + amount WHERE id = account;
END $$",
    "CREATE OR REPLACE PROCEDURE bank_withdraw(account int, amount bigint, INOUT taken bigint)
LANGUAGE plpgsql AS $$
DECLARE
  held bigint;
BEGIN
  SELECT balance INTO held FROM accounts WHERE id = account;
  IF held >= amount THEN
    UPDATE accounts SET balance = balance - amount WHERE id = account;
    taken := amount;
  ELSE
    taken := 0;
  END IF;
END $$",
    "CREATE OR REPLACE PROCEDURE bank_transfer(source int, target int, amount bigint) LANGUAGE plpgsql AS $$
BEGIN
  UPDATE accounts SET balance = balance - amount WHERE id = source;
  UPDATE accounts SET balance = balance + amount WHERE id = target;
END $$",
    "CREATE OR REPLACE PROCEDURE bank_withdraw_overdraft(account int, amount bigint, INOUT taken bigint)
LANGUAGE plpgsql AS $$
DECLARE
  held bigint;
BEGIN
  SELECT balance INTO held FROM accounts WHERE id = account;
  taken := amount;
  IF held < amount THEN
    taken := amount + 5;
  END IF;
  UPDATE accounts SET balance = balance - taken WHERE id = account;
END $$",
];
