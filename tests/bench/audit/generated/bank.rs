//! A bank's deposits: every transaction reads a balance and changes it, so that its answer depends on all before it.

use super::tape::{Prepared, Said, Talk};
use super::{Database, SESSIONS};
use bytes::Bytes;
use std::sync::Arc;

const ACCOUNTS: u64 = 1_000;
const INT4: u32 = 23;
const INT8: u32 = 20;

pub struct Bank {
    balances: Vec<i64>,
    begin: Arc<str>,
    commit: Arc<str>,
    select: Prepared,
    update: Prepared,
}

impl Bank {
    pub fn new() -> Bank {
        Bank {
            balances: vec![100; ACCOUNTS as usize],
            begin: "BEGIN ISOLATION LEVEL REPEATABLE READ".into(),
            commit: "COMMIT".into(),
            select: Prepared::new(
                "SELECT balance FROM accounts WHERE id = $1",
                &[INT4],
                &[("balance", INT8, -1)],
            ),
            update: Prepared::new(
                "UPDATE accounts SET balance = balance + $1 WHERE id = $2",
                &[INT8, INT4],
                &[],
            ),
        }
    }
}

impl Database for Bank {
    fn load(&mut self) -> Vec<Said> {
        let create = "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)";
        let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, 100)")).collect();
        let insert = format!("INSERT INTO accounts VALUES {}", rows.join(", "));
        vec![
            Said::alone(create, "CREATE TABLE"),
            Said::alone(&insert, &format!("INSERT 0 {ACCOUNTS}")),
        ]
    }

    /// Every session has accounts of its own in every round.
    fn transact(&mut self, session: u64, round: u64) -> Vec<Said> {
        let account = round * 7 % (ACCOUNTS / SESSIONS) * SESSIONS + session;
        let id = Bytes::from(account.to_string());
        let balance = &mut self.balances[account as usize];
        let amount = (round % 19) as i64 - 9;
        let mut talk = Talk::begin(&self.begin);
        let held = Bytes::from(balance.to_string());
        talk.ask(&self.select, [id.clone()], vec![vec![Some(held)]]);
        *balance += amount;
        let amount = Bytes::from(amount.to_string());
        talk.change(&self.update, [amount, id], "UPDATE 1");
        talk.end(&self.commit)
    }
}
