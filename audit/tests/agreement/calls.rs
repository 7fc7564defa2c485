//! Calls of procedures on a few rows, all of them on their way at the same time: each statement of each has an instant of its
//! own, and what a call does depends on what it finds.
//!
//! Every call takes effect at one instant between its request and its answer, so all answers are right; then one answer shows
//! a number that nobody ever wrote.

use crate::number;
use crate::overlap::{Act, tell};
use fastrand::Rng;
use pgassay_audit::explain::limits::Limits;
use std::collections::BTreeMap;
use std::ops::Range;

const PURSES: i64 = 3;

const SET_UP: &str = "\
init: create table queue (id int primary key, v int)
init: create table tail (n int)
init: insert into tail values (6)
init: insert into queue values (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)
init: create table purse (k int primary key, v int)
init: insert into purse values (1, 100), (2, 100), (3, 100)
init: create procedure take(most int, inout taken int[]) language plpgsql as $$ declare i int; o int; begin taken := '{}'; for i in 1..most loop select id into o from queue order by id limit 1 for update; taken := array_append(taken, o); if found then delete from queue where id = o; end if; end loop; end $$
init: create procedure offer(what int, inout at int) language plpgsql as $$ begin update tail set n = tail.n + 1 returning tail.n into at; insert into queue values (at, what); end $$
init: create procedure pay(who int, amount int, inout rest int) language plpgsql as $$ begin update purse set v = v + amount where k = who returning v into rest; end $$
init: create procedure hand(one int, other int, amount int) language plpgsql as $$ begin update purse set v = v - amount where k = one; update purse set v = v + amount where k = other; end $$
init: create procedure earn(who int, inout took int, inout rest int) language plpgsql as $$ begin select id into took from queue order by id limit 1 for update; if found then delete from queue where id = took; update purse set v = v + took where k = who returning v into rest; else took := 0; select v into rest from purse where k = who; end if; end $$
init: create procedure deal(most int, inout dealt int[]) language plpgsql as $$ declare i int; o int; w int; begin dealt := '{}'; for i in 1..most loop select id into o from queue order by id limit 1 for update; dealt := array_append(dealt, o); if found then delete from queue where id = o returning v into w; update purse set v = v + 1 where k = w % 3 + 1; end if; end loop; end $$
init: create procedure count_up(inout waiting bigint, inout rich bigint) language plpgsql as $$ begin select count(*) into waiting from queue; select sum(v) into rich from purse; end $$
";

#[derive(Clone)]
enum Call {
    Take(i64),
    Offer(i64),
    Pay(i64, i64),
    Hand(i64, i64, i64),
    Earn(i64),
    /// Whose purse it fills is written where nobody is shown it.
    Deal(i64),
    CountUp,
    Purse(i64),
    Purses,
    Queue,
}

struct State {
    queue: BTreeMap<i64, i64>,
    tail: i64,
    purses: BTreeMap<i64, i64>,
}

impl Act for Call {
    type State = State;
    const CLIENTS: Range<usize> = 3..8;
    const STATEMENTS: Range<usize> = 15..40;
    const LIES_BELOW: usize = 12;

    fn random(rng: &mut Rng, fresh: i64) -> Call {
        let who = rng.i64(1..=PURSES);
        match rng.u8(0..20) {
            0..=1 => Call::Take(rng.i64(1..4)),
            2..=4 => Call::Deal(rng.i64(1..4)),
            5..=7 => Call::Offer(fresh),
            8..=10 => Call::Pay(who, fresh),
            11..=12 => Call::Hand(who, who % PURSES + 1, fresh),
            13..=15 => Call::Earn(who),
            16 => Call::CountUp,
            17 => Call::Purse(who),
            18 => Call::Purses,
            _ => Call::Queue,
        }
    }

    fn sql(&self) -> String {
        match self {
            Call::Take(most) => format!("call take({most}, null)"),
            Call::Offer(what) => format!("call offer({what}, null)"),
            Call::Pay(who, amount) => format!("call pay({who}, {amount}, null)"),
            Call::Hand(one, other, amount) => format!("call hand({one}, {other}, {amount})"),
            Call::Earn(who) => format!("call earn({who}, null, null)"),
            Call::Deal(most) => format!("call deal({most}, null)"),
            Call::CountUp => "call count_up(null, null)".to_owned(),
            Call::Purse(who) => format!("select v from purse where k = {who}"),
            Call::Purses => "select k, v from purse order by k".to_owned(),
            Call::Queue => "select id, v from queue order by id".to_owned(),
        }
    }

    fn happen(&self, state: &mut State, lie: Option<i64>) -> String {
        let pairs = |rows: &BTreeMap<i64, i64>| {
            let rows: Vec<String> = rows.iter().map(|(k, v)| format!("({k}, {v})")).collect();
            match rows.is_empty() {
                true => "no rows".to_owned(),
                false => rows.join(", "),
            }
        };
        match self {
            Call::Take(most) => {
                let mut take = || {
                    state
                        .queue
                        .pop_first()
                        .map_or("NULL".to_owned(), |(id, _)| id.to_string())
                };
                let taken: Vec<String> = (0..*most).map(|_| take()).collect();
                format!("('{{{}}}')", taken.join(","))
            }
            Call::Offer(what) => {
                state.tail += 1;
                state.queue.insert(state.tail, *what);
                format!("({})", state.tail)
            }
            Call::Pay(who, amount) => {
                let purse = state.purses.entry(*who).or_default();
                *purse += amount;
                format!("({})", lie.unwrap_or(*purse))
            }
            Call::Hand(one, other, amount) => {
                *state.purses.entry(*one).or_default() -= amount;
                *state.purses.entry(*other).or_default() += amount;
                "CALL".to_owned()
            }
            Call::Earn(who) => {
                let took = state.queue.pop_first().map_or(0, |(id, _)| id);
                let purse = state.purses.entry(*who).or_default();
                *purse += took;
                format!("({took}, {})", lie.unwrap_or(*purse))
            }
            Call::Deal(most) => {
                let mut deal = || {
                    let (id, what) = state.queue.pop_first()?;
                    *state.purses.entry(what % PURSES + 1).or_default() += 1;
                    Some(id)
                };
                let dealt = (0..*most).map(|_| deal().map_or("NULL".to_owned(), |id| id.to_string()));
                format!("('{{{}}}')", dealt.collect::<Vec<_>>().join(","))
            }
            Call::CountUp => format!("({}, {})", state.queue.len(), state.purses.values().sum::<i64>()),
            Call::Purse(who) => format!("({})", lie.unwrap_or(state.purses[who])),
            Call::Purses => pairs(&state.purses),
            Call::Queue => pairs(&state.queue),
        }
    }

    fn can_lie(&self, _: &State) -> bool {
        matches!(self, Call::Pay(..) | Call::Earn(_) | Call::Purse(_))
    }
}

fn set_up() -> (String, State) {
    let state = State {
        queue: (1..=6).map(|id| (id, 0)).collect(),
        tail: 6,
        purses: (1..=PURSES).map(|k| (k, 100)).collect(),
    };
    (SET_UP.to_owned(), state)
}

#[test]
fn calls_that_overlap_are_explained_and_a_wrong_answer_is_not() {
    let cases = number("PGASSAY_PROPTEST_CASES", 200) / 16;
    // A proof has to place every instant of every call: those that take long are left out.
    let brief = Limits {
        proof_steps_max: 20_000,
        ..Limits::default()
    };
    let levels = [
        "read committed",
        "read committed",
        "repeatable read",
        "serializable",
    ];
    let found = tell::<Call>(cases, &levels, set_up, 99_999_999, brief);
    found.assert_more(1, 1, 10);
}
