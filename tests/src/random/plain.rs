//! Plain tables and plain statements.
//!
//! In: a seed, then a random choice. Out: CREATE TABLE and first rows; statements with parameters or literals.

use super::Traffic;
use fastrand::Rng;

/// How many keys there are: few, so that everybody meets.
pub const KEYS: i32 = 6;

/// The tables that every run has.
pub(super) fn tables(seed: u64) -> Vec<String> {
    let mut rng = Rng::with_seed(seed);
    let cascade = ["", " on delete cascade", " on delete set null"][rng.usize(0..3)];
    let amount = ["numeric(10,2)", "bigint", "double precision"][rng.usize(0..3)];
    let mut made = vec![
        "create table acct (k int primary key, v int not null default 0, s text)".to_owned(),
        "create table bag (a int, b text)".to_owned(),
        format!("create table item (id int primary key, u int unique, f int references acct (k){cascade}, flag boolean, n {amount})"),
        "create table pair (x int, y int, w int check (w >= 0), primary key (x, y))".to_owned(),
        "create table hist (id serial primary key, who int, at date default date '2024-02-29', t varchar(20))".to_owned(),
    ];
    if rng.bool() {
        made.push("create index on acct (v)".to_owned());
    }
    for k in 1..=KEYS {
        if rng.u8(0..4) != 0 {
            made.push(format!("insert into acct values ({k}, {}, 'n{k}')", k * 10));
        }
    }
    made.push("insert into bag values (1, 'x'), (1, 'x'), (2, null), (null, 'y')".to_owned());
    made.push("insert into item select k, k + 100, k, k % 2 = 0, k * 1.5 from acct where k < 4".to_owned());
    made.push(
        "insert into pair select a.k, b.k, a.k + b.k from acct a, acct b where a.k < 3 and b.k < 3"
            .to_owned(),
    );
    made
}

impl Traffic {
    pub(super) fn key(&mut self) -> i32 {
        self.rng.i32(1..=KEYS)
    }

    pub(super) fn with_parameters(&mut self) -> (String, Vec<Option<String>>) {
        let (k, v) = (self.key(), self.rng.i32(-5..50));
        let some = |n: i32| Some(n.to_string());
        match self.rng.u8(0..9) {
            0 => ("select k, v, s from acct where k = $1".to_owned(), vec![some(k)]),
            1 => (
                "update acct set v = v + $1 where k = $2 returning v".to_owned(),
                vec![some(v), some(k)],
            ),
            2 => (
                "insert into acct (k, v) values ($1, $2) on conflict (k) do nothing".to_owned(),
                vec![some(k), some(v)],
            ),
            3 => (
                "select count(*) from acct where v between $1 and $2".to_owned(),
                vec![some(v), some(v + 20)],
            ),
            4 => ("delete from bag where a = $1".to_owned(), vec![some(k)]),
            5 => (
                "insert into bag values ($1, $2)".to_owned(),
                vec![some(k), if v < 10 { None } else { Some(format!("p{v}")) }],
            ),
            6 => (
                "select id, flag, u from item where f = $1 order by id".to_owned(),
                vec![some(k)],
            ),
            7 => (
                "insert into hist (who, t) values ($1, $2) returning who, t".to_owned(),
                vec![some(k), Some("par".to_owned())],
            ),
            _ => (
                "select x, y, w from pair where x = $1 and w > $2 order by y".to_owned(),
                vec![some(k % 3), some(v / 10)],
            ),
        }
    }

    /// A statement with literals only.
    pub(super) fn plain(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..44) {
            0 => format!("select v from acct where k = {k}"),
            1 => "select k, v, s from acct order by k".to_owned(),
            2 => "select sum(v), count(*), min(s), max(v) from acct".to_owned(),
            3 => format!("select count(*) from acct where v > {v}"),
            4 => format!(
                "select a.k, i.id, i.flag from acct a left join item i on i.f = a.k where a.k <= {k} order by 1, 2"
            ),
            5 => format!(
                "select k from acct where exists (select 1 from item where f = acct.k and u > {}) order by k",
                v + 90
            ),
            6 => format!("select k, v from acct where k in (select f from item where flag) and v <> {v}"),
            7 => "select flag, count(*), sum(u) from item group by flag order by flag nulls first".to_owned(),
            8 => "select a, b, count(*) from bag group by a, b having count(*) > 1".to_owned(),
            9 => "select distinct b from bag where b is not null order by b".to_owned(),
            10 => {
                format!("select k from acct union select a from bag where a is distinct from {k} order by 1")
            }
            11 => format!(
                "select k, case when v > {v} then 'big' when v is null then 'none' else 'small' end from acct order by k desc limit 3"
            ),
            12 => format!(
                "with big as (select k, v from acct where v >= {v}) select count(*), coalesce(sum(v), 0) from big"
            ),
            13 => format!(
                "select v from acct where k = {k} for {}",
                self.pick(&["update", "no key update", "key share", "update skip locked"])
            ),
            14 => format!(
                "select k, v from acct where k in ({k}, {j}) order by k for {}",
                self.pick(&["share", "no key update skip locked", "update of acct"])
            ),
            15 | 16 => format!("update acct set v = v + 1 where k = {k}"),
            17 => format!("update acct set v = {v} where k = {k}"),
            18 => format!("update acct set v = v - {v} where k = {k} and v >= {v} returning k, v"),
            19 => format!("update acct set v = v * 2 where v < {v}"),
            20 => format!("update acct set s = s || 'x' where k = {k} and length(s) < 8 returning s"),
            21 => format!("insert into acct values ({k}, {v}, 'new')"),
            22 => format!(
                "insert into acct (k, v) values ({k}, {v}) on conflict (k) do update set v = acct.v + excluded.v returning k, v"
            ),
            23 => format!("insert into acct (k) values ({k}), ({j}) on conflict do nothing"),
            24 => format!("delete from acct where k = {k}"),
            25 => format!("delete from acct where k = {k} and v < {v} returning *"),
            26 => format!("insert into bag values ({k}, 'b{j}'), (null, null)"),
            27 => format!("update bag set b = 'c' where a = {k}"),
            28 => format!("delete from bag where a is null or a > {k}"),
            29 => "select a, b from bag".to_owned(),
            30 => format!(
                "insert into item values ({k}, {}, {j}, {}, {v})",
                100 + j,
                self.pick(&["true", "false", "null"])
            ),
            31 => format!("update item set u = {} where id = {k}", 100 + j),
            32 => format!("update item set flag = not flag, n = n + 1 where f = {k} returning id, flag"),
            33 => format!("delete from item where id = {k} returning id, u"),
            34 => format!("update item set f = {j} where id = {k}"),
            35 => "select id, u, f, flag, n from item order by id".to_owned(),
            36 => format!("insert into pair values ({}, {}, {v})", k % 4, j % 4),
            37 => format!(
                "update pair set w = w - {} where x = {} returning x, y, w",
                v.abs(),
                k % 4
            ),
            38 => format!("delete from pair where (x, y) = ({}, {})", k % 4, j % 4),
            39 => format!("insert into hist (who, t) values ({k}, 'h{j}')"),
            40 => format!("select who, count(*) from hist where who = {k} group by who"),
            41 => format!("update acct set v = i.u from item i where i.f = acct.k and acct.k = {k}"),
            42 => format!("delete from bag using acct where bag.a = acct.k and acct.v < {v}"),
            _ => format!("insert into bag select k, s from acct where k = {k}"),
        }
    }
}
