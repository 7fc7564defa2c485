//! On which columns a statement depends, and to which it only adds.

use pgassay_audit::interpret::memory::Memory;
use pgassay_audit::sql::plan::AllAsks;
use pgassay_audit::state::TableId;

const COLUMNS: [&str; 5] = ["id", "name", "balance", "rate", "fee"];

fn bank() -> (Memory, TableId) {
    let mut memory = Memory::new();
    for statement in [
        "create table account (id int primary key, name text, balance int, rate float8, fee numeric(6, 2))",
        "insert into account values (1, 'anna', 10, 0.5, 1.25)",
        "create procedure deposit(who int, amount int, inout held int) language plpgsql as \
         $$ begin update account set balance = balance + amount where id = who returning balance into held; end $$",
        "create procedure rename(who int, called text, amount int) language plpgsql as \
         $$ begin if called is not null then update account set name = called where id = who; \
         else update account set balance = balance + amount where id = who; end if; end $$",
    ] {
        let execution = memory.run(statement, &[]);
        assert!(execution.expect.success, "{statement}");
        execution.effects.iter().for_each(|effect| memory.apply(effect));
    }
    let table = memory.catalog.tables()[0].id;
    (memory, table)
}

/// The columns that matter to a statement; those behind the stroke matter unless everybody only adds to them.
fn asked(statement: &str) -> String {
    let (memory, table) = bank();
    let asks: AllAsks = memory.run(statement, &[]).asks;
    let named = |is_sum: bool| -> Vec<&str> {
        let all = COLUMNS.iter().enumerate();
        all.filter(|(column, _)| asks.asks_for(table, *column, is_sum))
            .map(|(_, name)| *name)
            .collect()
    };
    let (always, all) = (named(true), named(false));
    let added: Vec<&str> = all.into_iter().filter(|name| !always.contains(name)).collect();
    format!("{} | {}", always.join(" "), added.join(" "))
}

#[test]
fn a_query_asks_for_what_it_uses() {
    assert_eq!(asked("select name from account where id = 1"), "id name | ");
    assert_eq!(asked("select id from account where balance > 3"), "id balance | ");
    assert_eq!(
        asked("select name from account where id = 1 for update"),
        "id name | "
    );
    let inside = "select 1 where exists (select from account where balance = 3)";
    assert_eq!(asked(inside), "id name balance rate fee | ");
}

#[test]
fn an_update_that_adds_does_not_ask_for_what_was_there() {
    assert_eq!(
        asked("update account set balance = balance + 2 where id = 1"),
        "id | balance"
    );
    assert_eq!(
        asked("update account set balance = 2 + balance where id = 1"),
        "id | balance"
    );
    assert_eq!(
        asked("update account set balance = balance - 2, fee = fee + 1 where id = 1 returning name"),
        "id name | balance fee"
    );
}

#[test]
fn what_is_told_or_overwritten_or_not_exact_is_asked_for() {
    for statement in [
        "update account set balance = balance + 2 where id = 1 returning balance",
        "update account set balance = balance + 2 where id = 1 and balance > 3",
        "update account set balance = 7 where id = 1",
        "update account set balance = balance * 2 where id = 1",
        "update account set balance = 2 - balance where id = 1",
        "update account set balance = balance + balance where id = 1",
    ] {
        assert_eq!(asked(statement), "id balance | ", "{statement}");
    }
    // Sums of floating point numbers depend on the order.
    assert_eq!(
        asked("update account set rate = rate + 2 where id = 1"),
        "id rate | "
    );
}

#[test]
fn a_sum_that_is_rounded_is_no_sum() {
    assert_eq!(
        asked("update account set fee = fee + 0.10 where id = 1"),
        "id | fee"
    );
    let everything = "id name balance rate fee | ";
    assert_eq!(
        asked("update account set fee = fee + 0.005 where id = 1"),
        everything
    );
}

#[test]
fn a_routine_asks_for_what_its_statements_do_whether_or_not_they_are_run() {
    assert_eq!(asked("call deposit(1, 5, null)"), "id balance | ");
    assert_eq!(asked("call rename(1, null, 5)"), "id name | balance");
}

#[test]
fn an_insert_asks_for_its_key_and_a_delete_for_everything() {
    assert_eq!(asked("insert into account values (2, 'ben', 1, 1, 1)"), "id | ");
    assert_eq!(
        asked("delete from account where id = 1"),
        "id name balance rate fee | "
    );
}
