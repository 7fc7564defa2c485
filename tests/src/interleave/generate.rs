//! What the sessions do, from a seed.
//!
//! Out: a plan: few rows and few keys, so that the sessions meet; transactions at the three levels, mixed; reads,
//! writes, upserts, locks, savepoints; and one order of the steps.
//!
//! Always true: every statement is one that the server understands; every answer that it can give is determined by
//! the order of the steps (but for rows without an order).

use super::play::SESSIONS_MAX;
use super::{Plan, Step};
use fastrand::Rng;
use pgassay_rules::Level;

/// How many keys there are at most.
const KEYS: i32 = 4;

pub fn plan(seed: u64) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let sessions = 2 + usize::from(rng.u8(0..3) == 0);
    let sessions = sessions.min(SESSIONS_MAX);
    let levels = [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];
    let setup = setup(&mut rng);
    let keys = rng.i32(1..=KEYS);
    let theme = ["", "acct", "acct", "item", "bag", "pair"][rng.usize(0..6)];
    let mut writer = Writer { rng, keys, theme };
    let mut scripts: Vec<Vec<String>> = (0..sessions).map(|_| writer.session()).collect();
    let mut steps = Vec::new();
    while scripts.iter().any(|script| !script.is_empty()) {
        let session = writer.rng.usize(0..sessions);
        // Now and then a session goes on for a while, so that some stories are almost serial.
        for _ in 0..[1, 1, 1, 3][writer.rng.usize(0..4)] {
            if !scripts[session].is_empty() {
                let sql = scripts[session].remove(0);
                steps.push(Step { session, sql });
            }
        }
    }
    Plan {
        level: levels[writer.rng.usize(0..3)],
        setup,
        sessions,
        steps,
    }
}

fn setup(rng: &mut Rng) -> Vec<String> {
    let cascade = [
        "",
        " on delete cascade",
        " on delete set null",
        " on update cascade",
    ][rng.usize(0..4)];
    let mut made = vec![
        "create table acct (k int primary key, v int not null default 0, s text collate \"C\")".to_owned(),
        format!(
            "create table item (id int primary key, u int unique, f int references acct (k){cascade}, n numeric(8,2))"
        ),
        "create table bag (a int, b text collate \"C\")".to_owned(),
        "create table pair (x int, y int, w int check (w >= 0), primary key (x, y))".to_owned(),
    ];
    let rows: Vec<String> = (1..=KEYS)
        .filter(|_| rng.u8(0..4) != 0)
        .map(|k| format!("({k}, {}, 'n{k}')", k * 10))
        .collect();
    if !rows.is_empty() {
        made.push(format!("insert into acct values {}", rows.join(", ")));
    }
    made.push("insert into item select k, k + 100, k, k * 1.5 from acct where k < 4".to_owned());
    if rng.bool() {
        made.push("insert into bag values (1, 'x'), (1, 'x'), (2, null), (null, 'y')".to_owned());
    }
    made.push("insert into pair values (1, 1, 2), (1, 2, 3), (2, 1, 3)".to_owned());
    made
}

struct Writer {
    rng: Rng,
    /// The keys that are used: the fewer, the more the sessions meet.
    keys: i32,
    /// The table that most of the statements are about.
    theme: &'static str,
}

impl Writer {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.usize(0..from.len())]
    }

    fn session(&mut self) -> Vec<String> {
        let mut script = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            match self.rng.u8(0..4) {
                0 => script.push(self.statement()),
                _ => self.block(&mut script),
            }
        }
        script
    }

    fn block(&mut self, script: &mut Vec<String>) {
        let level = self.pick(&[
            "",
            " isolation level read committed",
            " isolation level read committed",
            " isolation level repeatable read",
            " isolation level serializable",
        ]);
        script.push(format!("begin{level}"));
        let mut saved = false;
        for _ in 0..self.rng.usize(2..6) {
            match self.rng.u8(0..12) {
                0 if !saved => {
                    script.push("savepoint here".to_owned());
                    saved = true;
                }
                1 if saved => script.push("rollback to savepoint here".to_owned()),
                2 if saved => {
                    script.push("release savepoint here".to_owned());
                    saved = false;
                }
                _ => script.push(self.statement()),
            }
        }
        if saved && self.rng.bool() {
            script.push("rollback to savepoint here".to_owned());
            script.push(self.statement());
        }
        script.push(
            self.pick(&["commit", "commit", "commit", "commit", "rollback"])
                .to_owned(),
        );
    }

    fn key(&mut self) -> i32 {
        self.rng.i32(1..=self.keys)
    }

    fn statement(&mut self) -> String {
        let tries = (0..6).map(|_| self.any_statement()).collect::<Vec<_>>();
        let on_theme = tries.iter().find(|sql| sql.contains(self.theme));
        on_theme.unwrap_or(&tries[0]).clone()
    }

    fn any_statement(&mut self) -> String {
        match self.rng.u8(0..20) {
            0..=4 => self.read(),
            5..=7 => self.locking_read(),
            8..=14 => self.update(),
            15 => self.insert(),
            16..=17 => self.upsert(),
            _ => self.delete(),
        }
    }

    /// A condition on `acct`, whose columns may be prefixed.
    fn condition(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..11) {
            0..=4 => format!("k = {k}"),
            5 => format!("k in ({k}, {j})"),
            6 => format!("v > {v}"),
            7 => format!("v <= {v} and k <> {k}"),
            8 => format!("k = (select max(f) from item where id <= {k})"),
            9 => format!("exists (select 1 from item where f = acct.k and u > {})", 100 + j),
            _ => format!("k between {} and {}", k.min(j), k.max(j)),
        }
    }

    fn read(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..16) {
            0..=2 => format!("select v from acct where k = {k}"),
            3 => format!("select k, v, s from acct where {} order by k", self.condition()),
            4 => "select k, v, s from acct order by k".to_owned(),
            5 => "select sum(v), count(*), min(s), max(v) from acct".to_owned(),
            6 => format!("select count(*) from acct where v > {v}"),
            7 => format!(
                "select a.k, i.id, i.n from acct a left join item i on i.f = a.k where a.k <= {k} order by 1, 2"
            ),
            8 => format!(
                "select a, b, count(*) from bag where a is distinct from {k} group by a, b order by 1, 2"
            ),
            9 => "select a, b from bag".to_owned(),
            10 => format!("select id, u, f, n from item where u > {} order by id", 98 + j),
            11 => format!(
                "select id, n from item where f = {k} or u = {} order by id",
                100 + j
            ),
            12 => format!("select x, y, w from pair where x = {} order by y", k % 3),
            13 => format!("select k from acct union select a from bag where a <> {k} order by 1"),
            14 => format!(
                "select k, (select count(*) from item where f = acct.k) from acct where v <= {v} order by v, k limit 2"
            ),
            _ => format!(
                "with rich as (select k, v from acct where v >= {v}) select count(*), coalesce(sum(v), 0) from rich"
            ),
        }
    }

    fn locking_read(&mut self) -> String {
        let strength = self.pick(&["update", "update", "no key update", "share", "key share"]);
        let wait = self.pick(&["", "", "", "", " nowait", " skip locked"]);
        let (k, j) = (self.key(), self.key());
        match self.rng.u8(0..5) {
            0 | 1 => format!("select v from acct where k = {k} for {strength}{wait}"),
            2 => format!(
                "select k, v from acct where {} order by k for {strength}{wait}",
                self.condition()
            ),
            3 => format!("select id, u from item where f = {k} order by id for {strength}{wait}"),
            _ => format!(
                "select a.v, i.id from acct a join item i on i.f = a.k where a.k in ({k}, {j}) order by i.id for {strength} of a{wait}"
            ),
        }
    }

    fn update(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        let returning = self.pick(&["", "", " returning k, v", " returning *"]);
        let condition = self.condition();
        match self.rng.u8(0..18) {
            0..=2 => format!("update acct set v = v + 1 where k = {k}{returning}"),
            3 => format!("update acct set v = {v} where {condition}{returning}"),
            4 => format!("update acct set v = v - {v} where k = {k} and v >= {v}{returning}"),
            5 => format!("update acct set v = v * 2 where {condition}{returning}"),
            6 => format!("update acct set s = s || 'x' where {condition}{returning}"),
            7 => format!("update acct set v = (select count(*) from item) where k = {k}{returning}"),
            8 => format!("update acct set k = {j} where k = {k}{returning}"),
            9 => format!("update acct set v = i.u from item i where i.f = acct.k and acct.k = {k}"),
            10 => format!("update item set u = {} where id = {k}", 100 + j),
            11 => format!("update item set f = {j} where id = {k} returning id, f"),
            12 => format!("update item set n = n + 1 where f = {k} returning id, n"),
            13 => format!("update item set f = null where u > {}", 100 + j),
            14 => format!("update bag set b = 'c' where a = {k}"),
            15 => format!("update bag set a = {j} where b = 'x' and a = {k}"),
            16 => format!(
                "update pair set w = w - {} where x = {} returning x, y, w",
                j,
                k % 3
            ),
            _ => format!(
                "update pair set y = {} where (x, y) = ({}, {})",
                k % 3,
                k % 3,
                j % 3
            ),
        }
    }

    fn insert(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..11) {
            0..=2 => format!("insert into acct values ({k}, {v}, 'new')"),
            3 => format!("insert into acct (k, v) values ({k}, {v}), ({j}, {k}) returning k"),
            4 => format!("insert into acct select {k}, count(*), 'c' from acct where v > {v}"),
            5 | 6 => format!("insert into item values ({k}, {}, {j}, {v})", 100 + self.key()),
            7 => format!("insert into item (id, f) values ({k}, {j}) returning id, u, f"),
            8 => format!("insert into bag values ({k}, 'b{j}'), (null, null)"),
            9 => format!("insert into bag select k, s from acct where {}", self.condition()),
            _ => format!("insert into pair values ({}, {}, {v})", k % 3, j % 3),
        }
    }

    fn upsert(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        let returning = self.pick(&["", "", " returning *"]);
        match self.rng.u8(0..8) {
            0 | 1 => format!(
                "insert into acct (k, v) values ({k}, {v}) on conflict (k) do update set v = acct.v + excluded.v{returning}"
            ),
            2 => format!(
                "insert into acct values ({k}, {v}, 'up') on conflict (k) do update set s = excluded.s where acct.v < {v}{returning}"
            ),
            3 => format!(
                "insert into acct (k) values ({k}), ({}) on conflict do nothing{returning}",
                k % KEYS + 1
            ),
            4 => format!(
                "insert into item (id, u) values ({k}, {}) on conflict do nothing{returning}",
                100 + j
            ),
            5 => format!(
                "insert into item (id, u) values ({k}, {}) on conflict (u) do update set n = 7{returning}",
                100 + j
            ),
            6 => format!(
                "insert into pair values ({}, {}, {v}) on conflict (x, y) do update set w = pair.w + 1{returning}",
                k % 3,
                j % 3
            ),
            _ => format!(
                "merge into acct using (values ({k}, {v})) as new (k, v) on acct.k = new.k \
                 when matched then update set v = acct.v + new.v when not matched then insert (k, v) values (new.k, new.v)"
            ),
        }
    }

    fn delete(&mut self) -> String {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        match self.rng.u8(0..9) {
            0 | 1 => format!("delete from acct where k = {k}"),
            2 => format!("delete from acct where {} returning k, v", self.condition()),
            3 | 4 => format!("delete from item where id = {k} returning id, u"),
            5 => format!("delete from item where f = {k}"),
            6 => format!("delete from bag where a is null or a > {k}"),
            7 => format!("delete from bag using acct where bag.a = acct.k and acct.v < {v}"),
            _ => format!("delete from pair where (x, y) = ({}, {})", k % 3, j % 3),
        }
    }
}
