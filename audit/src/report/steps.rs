//! Lays a story out as steps in the order in which they were sent.
//!
//! In: a violation. Out: every request of its transactions, BEGIN and COMMIT included, each with its
//! window and with its place in the story.
//!
//! Always true:
//!   - steps are ordered by the instant they were sent; within a transaction in the order of the session;
//!   - a transaction of one autocommitted statement has no BEGIN and no COMMIT step;
//!   - a BEGIN or COMMIT that the story already spells out is not added a second time; what it said is not worth
//!     showing unless it is not what everybody expects.

use crate::trace::lex::statements;
use crate::trace::{Nanos, Window};
use crate::verdict::{StoryTransaction, Violation};
use pgassay_rules::Level;

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index into the violation's transactions.
    pub transaction: usize,
    pub act: Act,
    /// With parameters as `$1`, as it was sent.
    pub sql: String,
    pub parameters: Vec<String>,
    pub window: Window,
    pub answer: String,
    /// This answer is one that no correct database gives.
    pub culprit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Begin,
    /// Index into the transaction's statements.
    Statement(usize),
    Commit,
    Rollback,
}

impl Step {
    /// Whether it is a BEGIN, COMMIT or ROLLBACK that did what it says.
    fn plain_act(&self) -> Option<Act> {
        if self.culprit {
            return None;
        }
        match self.answer.as_str() {
            "" | "BEGIN" | "START TRANSACTION" if begins(&self.sql) => Some(Act::Begin),
            "ROLLBACK" if ends(&self.sql) => Some(Act::Rollback),
            "" | "COMMIT" if ends(&self.sql) && first_word(&self.sql) != "prepare" => Some(Act::Commit),
            _ => None,
        }
    }
}

/// Every request of the story in the order in which it was sent.
pub fn of(violation: &Violation) -> Vec<Step> {
    let mut steps: Vec<(usize, Step)> = Vec::new();
    for (index, transaction) in violation.transactions.iter().enumerate() {
        let mut own = of_transaction(index, transaction);
        for step in &mut own {
            if let Act::Statement(n) = step.act {
                // A query of several statements stands for all of them.
                let same = |s: &usize| transaction.statements[*s].window.sent == step.window.sent;
                let rest = (n + 1..transaction.statements.len()).take_while(same);
                let mut own = std::iter::once(n).chain(rest.filter(|_| statements(&step.sql).len() > 1));
                step.culprit = own.any(|s| violation.culprits.contains(&(index, s)));
                step.act = step.plain_act().unwrap_or(step.act);
            }
        }
        steps.extend(own.into_iter().enumerate());
    }
    steps.sort_by_key(|(place, step)| (step.window.sent, step.transaction, *place));
    steps.into_iter().map(|(_, step)| step).collect()
}

/// The first instant of the story: times are told relative to it.
pub fn origin(violation: &Violation) -> Nanos {
    let statements = violation
        .transactions
        .iter()
        .flat_map(|t| t.statements.iter().map(|s| s.window.sent));
    let commits = violation
        .transactions
        .iter()
        .filter_map(|t| t.commit.map(|c| c.sent));
    statements.chain(commits).min().unwrap_or(0)
}

/// `+1.250 ms`, relative to the origin; «never» for what was not learned.
pub fn instant(at: Nanos, origin: Nanos) -> String {
    if at == Nanos::MAX {
        return "never".to_owned();
    }
    format!("+{:.3} ms", at.saturating_sub(origin) as f64 / 1e6)
}

/// `committed`, `rolled back` or `outcome unknown`.
pub fn fate(transaction: &StoryTransaction) -> &'static str {
    match transaction.committed {
        Some(true) => "committed",
        Some(false) => "rolled back",
        None => "outcome unknown",
    }
}

/// The SQL name of a level, as BEGIN ISOLATION LEVEL takes it.
pub fn sql_level(level: Level) -> &'static str {
    match level {
        Level::ReadCommitted | Level::Rc => "READ COMMITTED",
        Level::RepeatableRead | Level::Si | Level::StrictSi => "REPEATABLE READ",
        Level::Serializable | Level::S | Level::StrictS => "SERIALIZABLE",
    }
}

fn of_transaction(index: usize, transaction: &StoryTransaction) -> Vec<Step> {
    let steps: Vec<Step> = transaction
        .statements
        .iter()
        .enumerate()
        .map(|(n, statement)| Step {
            transaction: index,
            act: Act::Statement(n),
            sql: statement.sql.trim().trim_end_matches(';').to_owned(),
            parameters: statement.parameters.clone(),
            window: statement.window,
            answer: statement.answer.clone(),
            culprit: false,
        })
        .collect();
    let mut steps = as_sent(steps);
    if is_autocommit(transaction, &steps) {
        return steps;
    }
    let first = steps.first().map_or(0, |step| step.window.sent);
    let last = steps.last().map_or(0, |step| step.window.done);
    if !steps.first().is_some_and(|step| begins(&step.sql)) {
        let sql = format!("BEGIN ISOLATION LEVEL {}", sql_level(transaction.level));
        steps.insert(0, made(index, Act::Begin, sql, Window::new(first, first)));
    }
    if !steps.last().is_some_and(|step| ends(&step.sql)) {
        let (act, sql) = match transaction.committed {
            Some(false) => (Act::Rollback, "ROLLBACK"),
            _ => (Act::Commit, "COMMIT"),
        };
        let window = transaction.commit.unwrap_or(Window::new(last, last));
        steps.push(made(index, act, sql.to_owned(), window));
    }
    steps
}

fn made(transaction: usize, act: Act, sql: String, window: Window) -> Step {
    Step {
        transaction,
        act,
        sql,
        parameters: Vec::new(),
        window,
        answer: String::new(),
        culprit: false,
    }
}

/// One query may hold several statements, each with its own answer: it was sent once.
fn as_sent(steps: Vec<Step>) -> Vec<Step> {
    let mut sent: Vec<Step> = Vec::with_capacity(steps.len());
    for step in steps {
        match sent.last_mut() {
            Some(last)
                if last.sql == step.sql
                    && last.window.sent == step.window.sent
                    && statements(&step.sql).len() > 1 =>
            {
                last.answer = format!("{}; {}", last.answer, step.answer);
                last.window.done = last.window.done.max(step.window.done);
            }
            _ => sent.push(step),
        }
    }
    sent
}

/// One request that carried the commit: the commit was asked for before its answer was there.
fn is_autocommit(transaction: &StoryTransaction, steps: &[Step]) -> bool {
    let [only] = steps else {
        return false;
    };
    !begins(&only.sql)
        && transaction
            .commit
            .is_some_and(|commit| commit.sent < only.window.done)
}

/// Whether one of the statements begins a transaction.
fn begins(sql: &str) -> bool {
    let mut all = statements(sql).into_iter();
    all.any(|one| matches!(first_word(one).as_str(), "begin" | "start"))
}

/// Whether one of the statements ends it.
fn ends(sql: &str) -> bool {
    statements(sql).into_iter().any(one_ends)
}

fn one_ends(sql: &str) -> bool {
    let word = first_word(sql);
    let to_savepoint = sql
        .to_ascii_lowercase()
        .split_whitespace()
        .any(|word| word == "to");
    matches!(word.as_str(), "commit" | "end" | "abort" | "prepare")
        && (word != "prepare" || sql.to_ascii_lowercase().contains("transaction"))
        || (word == "rollback" && !to_savepoint)
}

fn first_word(sql: &str) -> String {
    sql.trim_start()
        .chars()
        .take_while(|c| c.is_ascii_alphabetic())
        .collect::<String>()
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn lines(violation: &Violation) -> Vec<String> {
        of(violation)
            .iter()
            .map(|s| format!("{} {}", violation.transactions[s.transaction].name, s.sql))
            .collect()
    }

    #[test]
    fn a_story_is_told_in_the_order_it_was_sent() {
        assert_eq!(
            lines(&sample::lost_update()),
            [
                "t1 BEGIN ISOLATION LEVEL READ COMMITTED",
                "t1 SELECT balance FROM account WHERE id = $1",
                "t2 BEGIN ISOLATION LEVEL READ COMMITTED",
                "t2 SELECT balance FROM account WHERE id = $1",
                "t1 UPDATE account SET balance = $1 WHERE id = $2",
                "t2 UPDATE account SET balance = $1 WHERE id = $2",
                "t1 COMMIT",
                "t2 COMMIT",
            ]
        );
    }

    #[test]
    fn an_autocommitted_statement_stands_alone() {
        let mut violation = sample::lost_update();
        violation.transactions.truncate(1);
        violation.transactions[0].statements.truncate(1);
        violation.transactions[0].commit = Some(violation.transactions[0].statements[0].window);
        assert_eq!(
            lines(&violation),
            ["t1 SELECT balance FROM account WHERE id = $1"]
        );
    }

    #[test]
    fn a_begin_that_is_there_is_not_added() {
        let mut violation = sample::lost_update();
        violation.transactions.truncate(1);
        violation.transactions[0].statements[0].sql = "begin isolation level serializable;".into();
        violation.transactions[0].statements[1].sql = "rollback".into();
        assert_eq!(
            lines(&violation),
            ["t1 begin isolation level serializable", "t1 rollback"]
        );
    }

    #[test]
    fn a_query_of_several_statements_is_sent_once() {
        let mut violation = sample::lost_update();
        violation.transactions.truncate(1);
        let told = &mut violation.transactions[0];
        let window = told.statements[0].window;
        for (statement, answer) in told.statements.iter_mut().zip(["SET", "BEGIN"]) {
            statement.sql = "set search_path = 'a;b'; begin".into();
            statement.window = window;
            statement.answer = answer.into();
        }
        violation.culprits = vec![(0, 1)];
        assert_eq!(
            lines(&violation),
            ["t1 set search_path = 'a;b'; begin", "t1 COMMIT"]
        );
        let first = of(&violation).remove(0);
        assert_eq!((first.answer.as_str(), first.culprit), ("SET; BEGIN", true));
    }

    #[test]
    fn rolling_back_to_a_savepoint_ends_nothing() {
        assert!(!ends("ROLLBACK TO SAVEPOINT a"));
        assert!(ends("rollback"));
        assert!(ends("PREPARE TRANSACTION 'x'"));
        assert!(!ends("PREPARE q AS SELECT 1"));
    }
}
