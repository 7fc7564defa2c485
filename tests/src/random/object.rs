//! What stands behind a name that is not a plain table: views, triggers, partitions, routines.
//!
//! In: a seed and the features of the run. Out: the statements that make them, and statements that use them.

use super::{Features, Traffic};
use fastrand::Rng;

pub(super) fn objects(seed: u64, features: Features) -> Vec<String> {
    let mut rng = Rng::with_seed(seed ^ 0x006f_626a_6563_7473);
    let mut made = Vec::new();
    if features.views {
        let check = ["", " with check option"][rng.usize(0..2)];
        made.push(format!(
            "create view rich as select k, v, s from acct where v >= 10{check}"
        ));
        made.push(
            "create view totals as select f, count(*) as n, sum(u) as u from item group by f".to_owned(),
        );
        made.push(
            "create view owned as select a.k, a.v, i.id, i.flag from acct a join item i on i.f = a.k"
                .to_owned(),
        );
    }
    if features.triggers {
        made.push("create table trail (op text, x int, was int, becomes int)".to_owned());
        made.push(
            "create function note() returns trigger language plpgsql as $$ begin \
             if tg_op = 'DELETE' then insert into trail values (tg_op, old.x, old.w, null); \
             elsif tg_op = 'INSERT' then insert into trail values (tg_op, new.x, null, new.w); \
             else insert into trail values (tg_op, new.x, old.w, new.w); end if; return null; end $$"
                .to_owned(),
        );
        made.push(
            "create trigger noted after insert or update or delete on pair for each row execute function note()"
                .to_owned(),
        );
        if rng.bool() {
            made.push(
                "create function tidy() returns trigger language plpgsql as $$ begin \
                 if new.w = 13 then return null; end if; \
                 if new.w > 50 then new.w := 50; end if; return new; end $$"
                    .to_owned(),
            );
            made.push(
                "create trigger tidied before insert or update on pair for each row execute function tidy()"
                    .to_owned(),
            );
        }
        if rng.bool() {
            made.push("create table tally (n int)".to_owned());
            made.push("insert into tally values (0)".to_owned());
            made.push(
                "create function count_it() returns trigger language plpgsql as $$ begin \
                 update tally set n = n + 1; return null; end $$"
                    .to_owned(),
            );
            made.push(
                "create trigger counted after insert or delete on bag for each statement execute function count_it()"
                    .to_owned(),
            );
        }
    }
    if features.partitions {
        made.extend(partitions(&mut rng).into_iter().map(str::to_owned));
    }
    if features.routines {
        made.extend(ROUTINES.iter().map(|text| (*text).to_owned()));
    }
    made
}

fn partitions(rng: &mut Rng) -> Vec<&'static str> {
    let mut made = match rng.u8(0..3) {
        0 => vec![
            "create table part (k int, d int, v int, primary key (k, d)) partition by range (d)",
            "create table part1 partition of part for values from (minvalue) to (3)",
            "create table part2 partition of part for values from (3) to (5)",
        ],
        1 => vec![
            "create table part (k int, d int, v int, primary key (k, d)) partition by list (d)",
            "create table part1 partition of part for values in (0, 1, 2)",
            "create table part2 partition of part for values in (3, 4)",
        ],
        _ => vec![
            "create table part (k int, d int, v int, primary key (k, d)) partition by hash (d)",
            "create table part1 partition of part for values with (modulus 2, remainder 0)",
            "create table part2 partition of part for values with (modulus 2, remainder 1)",
        ],
    };
    if !made[0].ends_with("hash (d)") && rng.bool() {
        made.push("create table part3 partition of part default");
    }
    made.push("insert into part values (1, 1, 10), (1, 3, 20), (2, 2, 30)");
    made
}

const ROUTINES: &[&str] = &[
    "create function balance(a int) returns int language sql stable as 'select v from acct where k = a'",
    "create procedure pay(a int, b int, n int) language plpgsql as $$ begin \
     update acct set v = v - n where k = a; \
     if not found then raise exception 'no account %', a; end if; \
     update acct set v = v + n where k = b; end $$",
    "create function bump(a int) returns int language plpgsql as $$ declare r int; begin \
     select v into r from acct where k = a for update; \
     if not found then insert into acct values (a, 0, 'bumped'); return 0; end if; \
     update acct set v = r + 1 where k = a; return r + 1; end $$",
    "create function put(a int, n int) returns text language plpgsql as $$ begin \
     insert into acct (k, v) values (a, n); return 'new'; \
     exception when unique_violation then update acct set v = n where k = a; return 'old'; end $$",
    "create procedure steps(a int) language plpgsql as $$ begin \
     update acct set v = v + 1 where k = a; commit; update acct set v = v + 1 where k = a; end $$",
    "create function drain(limit_of int) returns setof int language plpgsql as $$ declare r record; begin \
     for r in select k, v from acct where v > limit_of order by k loop \
     update acct set v = limit_of where k = r.k; return next r.k; end loop; end $$",
    "create table queue (id int primary key, v int)",
    "create table tail (n int)",
    "insert into tail values (0)",
    "create procedure offer(n int, inout at int) language plpgsql as $$ begin \
     update tail set n = tail.n + 1 returning tail.n into at; insert into queue values (at, offer.n); end $$",
    "create procedure take(most int, inout taken int[]) language plpgsql as $$ declare i int; o int; begin \
     taken := '{}'; for i in 1..most loop \
     select id into o from queue order by id limit 1 for update; taken := array_append(taken, o); \
     if found then delete from queue where id = o; end if; end loop; end $$",
    "create procedure snatch(inout id_of int, inout v_of int) language plpgsql as $$ begin \
     select id, v into id_of, v_of from queue order by id desc limit 1; \
     if id_of is not null then delete from queue where id = id_of; \
     update acct set v = v + v_of where k = id_of % 6; end if; end $$",
    "create procedure charge(a int, n int, inout was int, inout rest int, inout how text) language plpgsql as $$ begin \
     how := 'none'; select v into was from acct where k = a for update; if not found then return; end if; \
     if was < n then how := 'poor'; rest := was; return; end if; \
     update acct set v = v - n where k = a returning v into rest; how := 'paid'; end $$",
    "create procedure peek(inout ids int[], inout total bigint) language plpgsql as $$ declare o int; begin \
     for o in select id from queue order by id limit 3 loop ids := array_append(ids, o); end loop; \
     select sum(v) into total from queue; end $$",
];

impl Traffic {
    /// A statement on a view, if the run has views.
    pub(super) fn on_a_view(&mut self) -> String {
        let (k, v) = (self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..8) {
            0 => "select k, v from rich order by k".to_owned(),
            1 => format!("update rich set v = v - {v} where k = {k} returning k, v"),
            2 => format!("insert into rich values ({k}, {v}, 'rich')"),
            3 => format!("delete from rich where k = {k}"),
            4 => "select f, n, u from totals order by f".to_owned(),
            5 => "select k, id, flag from owned where v > 0 order by 1, 2".to_owned(),
            6 => format!(
                "insert into rich (k, v) values ({k}, {v}) on conflict (k) do update set v = excluded.v"
            ),
            _ => format!("select count(*) from rich r join totals t on t.f = r.k where r.k <> {k}"),
        }
    }

    /// A statement that fires triggers, or looks at what they did.
    pub(super) fn on_a_trigger(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..6) {
            0 => "select op, x, count(*) from trail group by op, x order by op, x".to_owned(),
            1 => format!("insert into pair values ({}, {}, {v})", k % 4, j % 4),
            2 => format!("update pair set w = w + {v} where x = {}", k % 4),
            3 => format!("delete from pair where w > {v}"),
            4 => format!("insert into bag values ({k}, 't')"),
            _ => format!(
                "insert into pair values ({}, {}, 13), ({}, {}, 1) on conflict do nothing",
                k % 4,
                j % 4,
                j % 4,
                k % 4
            ),
        }
    }

    pub(super) fn on_a_partition(&mut self) -> String {
        let (k, d, v) = (self.key() % 3, self.key() - 1, self.rng.i32(-5..60));
        match self.rng.u8(0..12) {
            0 => "select k, d, v from part order by k, d".to_owned(),
            1 => format!("select v from part where k = {k} and d = {d}"),
            2 => format!("insert into part values ({k}, {d}, {v})"),
            3 => format!(
                "insert into part values ({k}, {d}, {v}) on conflict (k, d) do update set v = part.v + 1 returning v"
            ),
            4 => format!("update part set d = {d} where k = {k} and v < {v}"),
            5 => format!("update part set v = v + 1 where d = {d} returning k, v"),
            6 => format!("delete from part where k = {k} and d <> {d}"),
            7 => "select count(*), sum(v) from part1".to_owned(),
            8 => format!("insert into part2 values ({k}, {d}, {v})"),
            9 => format!("update part1 set v = {v} where k = {k}"),
            10 => format!("select v from part where d = {d} order by k for update"),
            _ => format!("update part set d = (d + 1) % 5 where k = {k} returning d"),
        }
    }

    pub(super) fn on_a_routine(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..18) {
            0 => format!("select balance({k}), balance({j})"),
            1 | 2 => format!("call pay({k}, {j}, {v})"),
            3 | 4 => format!("select bump({k})"),
            5 => format!("select put({k}, {v})"),
            6 => format!("call steps({k})"),
            7 => format!("select * from drain({})", v + 20),
            8..11 => format!("call offer({v}, null)"),
            11..13 => format!("call take({}, null)", k % 3 + 1),
            13 => "call snatch(null, null)".to_owned(),
            14 | 15 => format!("call charge({k}, {v}, null, null, null)"),
            16 => "call peek('{}', null)".to_owned(),
            _ => "select count(*), min(id), max(id) from queue".to_owned(),
        }
    }

    pub(super) fn merge(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..8) {
            0 | 1 => format!(
                "merge into acct a using (values ({k}, {v}), ({j}, 1)) s (k, n) on a.k = s.k \
                 when matched and a.v > 60 then delete when matched then update set v = a.v + s.n \
                 when not matched then insert values (s.k, s.n, 'merged')"
            ),
            2 => "merge into acct using item on item.f = acct.k when matched and flag then update set v = item.u \
                  when matched then do nothing"
                .to_owned(),
            3 => format!(
                "merge into bag b using acct a on b.a = a.k when matched and a.v < {v} then delete \
                 when not matched and a.k = {k} then insert values (a.k, a.s)"
            ),
            4 => format!(
                "insert into acct (k, v) values ({k}, {v}), ({j}, 1) on conflict (k) do update set v = excluded.v \
                 where acct.v <> excluded.v returning k, v"
            ),
            5 => format!(
                "insert into acct (k, v) select x, w from (values (1, {v}), (2, 2), (3, 3)) w (x, w) \
                 on conflict (k) do update set v = acct.v + 1"
            ),
            6 => format!(
                "insert into item (id, u) values ({k}, {}), ({j}, {}) on conflict (u) do update set flag = true returning id",
                100 + j,
                100 + k
            ),
            _ => format!(
                "insert into acct (k, v) values ({k}, 1), ({j}, 2), ({}, 3) on conflict do nothing returning k",
                k % 6 + 1
            ),
        }
    }
}
