//! Random concurrent transactions, from a seed: tables, statements, ways to send them.
//!
//! In: a seed and the number of a client. Out: what that client sends, transaction by transaction. The same
//! seed gives the same statements; how the clients interleave is up to the server.
//!
//! Always true: the statements are such as PostgreSQL understands; they may still fail by what the others did
//! (unique and foreign keys, serialization, deadlocks), which is the point.

use crate::raw::{Client, Message, message, text};
use fastrand::Rng;

/// How many keys there are: few, so that everybody meets.
const KEYS: i32 = 6;

/// The tables of a run, made before the clients start.
pub fn schema(seed: u64) -> Vec<String> {
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

/// How a transaction is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Every statement by itself.
    Autocommit,
    /// BEGIN … COMMIT or ROLLBACK.
    Block,
    /// One Query with several statements.
    Multi,
    /// Several Executes before one Sync.
    Pipeline,
    /// BEGIN, statements and COMMIT in one pipeline.
    PipelinedBlock,
}

pub struct Traffic {
    rng: Rng,
    /// How many statements were prepared by name.
    prepared: u64,
}

/// One client with its connection; runs at most `most` transactions, until told to stop.
pub fn run_client(seed: u64, number: u64, port: u16, most: u64, go_on: impl Fn() -> bool) -> u64 {
    let mut traffic = Traffic {
        rng: Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(number)),
        prepared: 0,
    };
    let mut client = Client::log_in(port);
    let mut transactions = 0;
    while transactions < most && go_on() {
        traffic.transaction(&mut client);
        transactions += 1;
        if traffic.rng.u16(0..400) == 0 {
            // Some leave in the middle of a block.
            if traffic.rng.bool() {
                client.query("begin; update acct set v = -1 where k = 1");
            }
            drop(client);
            client = Client::log_in(port);
        }
    }
    client.query("rollback");
    transactions
}

impl Traffic {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.usize(0..from.len())]
    }

    fn transaction(&mut self, client: &mut Client) {
        let way = [
            Way::Autocommit,
            Way::Autocommit,
            Way::Block,
            Way::Block,
            Way::Block,
            Way::Multi,
            Way::Pipeline,
            Way::PipelinedBlock,
        ][self.rng.usize(0..8)];
        let length = self.rng.usize(1..5);
        match way {
            Way::Autocommit => {
                if self.rng.u8(0..10) == 0 {
                    let level = self.level();
                    client.query(&format!("set default_transaction_isolation = '{level}'"));
                }
                self.send(client);
            }
            Way::Block => self.block(client, length),
            Way::Multi => {
                let sql: Vec<String> = (0..length).map(|_| self.statement().0).collect();
                client.query(&sql.join("; "));
            }
            Way::Pipeline => {
                let mut bytes = Vec::new();
                for _ in 0..length {
                    let (sql, _) = self.statement();
                    bytes.extend(extended("", &sql, &[]));
                }
                bytes.extend(message(b'S', b""));
                client.send(&bytes);
                client.until_ready();
            }
            Way::PipelinedBlock => {
                let mut bytes = extended("", &format!("begin isolation level {}", self.level()), &[]);
                for _ in 0..length {
                    let (sql, _) = self.statement();
                    bytes.extend(extended("", &sql, &[]));
                    if self.rng.u8(0..3) == 0 {
                        bytes.extend(message(b'S', b""));
                    }
                }
                let syncs = count_syncs(&bytes);
                bytes.extend(extended("", "commit", &[]));
                bytes.extend(message(b'S', b""));
                client.send(&bytes);
                let mut last = Vec::new();
                for _ in 0..=syncs {
                    last = client.until_ready();
                }
                if status(&last) != b'I' {
                    client.query("rollback");
                }
            }
        }
    }

    fn level(&mut self) -> &'static str {
        self.pick(&[
            "read committed",
            "read committed",
            "repeatable read",
            "serializable",
        ])
    }

    fn block(&mut self, client: &mut Client, length: usize) {
        match self.rng.u8(0..6) {
            0 => drop(client.query("begin")),
            1 => {
                client.query("begin");
                let level = self.level();
                client.query(&format!("set transaction isolation level {level}"));
            }
            2 => {
                let level = self.level();
                client.query(&format!("start transaction isolation level {level}, read write"));
            }
            _ => {
                let level = self.level();
                client.query(&format!("begin isolation level {level}"));
            }
        }
        let mut saved = false;
        for _ in 0..length {
            if !saved && self.rng.u8(0..5) == 0 {
                client.query("savepoint here");
                saved = true;
            }
            let failed = self.send(client);
            if failed {
                if saved && self.rng.bool() {
                    client.query("rollback to savepoint here");
                    continue;
                }
                if self.rng.bool() {
                    // The server refuses everything until the end of the block.
                    client.query("select k from acct");
                }
                client.query(["commit", "rollback"][self.rng.usize(0..2)]);
                return;
            }
            if saved {
                match self.rng.u8(0..6) {
                    0 => drop(client.query("rollback to savepoint here")),
                    1 => {
                        client.query("release savepoint here");
                        saved = false;
                    }
                    _ => {}
                }
            }
        }
        client.query(
            [
                "commit",
                "commit",
                "commit",
                "end",
                "rollback",
                "commit and chain",
            ][self.rng.usize(0..6)],
        );
        client.query("rollback");
    }

    /// Sends one statement in one of the ways; whether it failed.
    fn send(&mut self, client: &mut Client) -> bool {
        let (sql, parameters) = match self.rng.bool() {
            true => self.statement(),
            false => self.with_parameters(),
        };
        let answer = match (parameters.is_empty(), self.rng.u8(0..3)) {
            (true, 0 | 1) => client.query(&sql),
            (_, 2) => {
                self.prepared += 1;
                let name = format!("p{}", self.prepared);
                let mut bytes = extended(&name, &sql, &parameters);
                let mut close = vec![b'S'];
                close.extend(text(&name));
                bytes.extend(message(b'C', &close));
                bytes.extend(message(b'S', b""));
                client.send(&bytes);
                client.until_ready()
            }
            _ => {
                let mut bytes = extended("", &sql, &parameters);
                bytes.extend(message(b'S', b""));
                client.send(&bytes);
                client.until_ready()
            }
        };
        answer.iter().any(|m| m.tag == b'E')
    }

    fn key(&mut self) -> i32 {
        self.rng.i32(1..=KEYS)
    }

    fn with_parameters(&mut self) -> (String, Vec<Option<String>>) {
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
    fn statement(&mut self) -> (String, Vec<Option<String>>) {
        let (k, j, v) = (self.key(), self.key(), self.rng.i32(-5..60));
        let sql = match self.rng.u8(0..44) {
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
            13 => format!("select v from acct where k = {k} for update"),
            14 => format!("select k, v from acct where k in ({k}, {j}) order by k for share"),
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
        };
        (sql, Vec::new())
    }
}

/// Parse, Bind, Describe and Execute, all in text.
pub fn extended(name: &str, sql: &str, parameters: &[Option<String>]) -> Vec<u8> {
    let mut parse = [text(name), text(sql)].concat();
    parse.extend([0, 0]);
    let mut bind = [text(""), text(name)].concat();
    bind.extend([0, 0]);
    bind.extend((parameters.len() as u16).to_be_bytes());
    for parameter in parameters {
        match parameter {
            None => bind.extend((-1i32).to_be_bytes()),
            Some(value) => {
                bind.extend((value.len() as i32).to_be_bytes());
                bind.extend(value.as_bytes());
            }
        }
    }
    bind.extend([0, 0]);
    let mut execute = text("");
    execute.extend([0; 4]);
    [
        message(b'P', &parse),
        message(b'B', &bind),
        message(b'D', b"P\0"),
        message(b'E', &execute),
    ]
    .concat()
}

fn count_syncs(bytes: &[u8]) -> usize {
    let (mut at, mut syncs) = (0, 0);
    while at < bytes.len() {
        syncs += usize::from(bytes[at] == b'S');
        let length = u32::from_be_bytes(bytes[at + 1..at + 5].try_into().expect("four bytes"));
        at += 1 + length as usize;
    }
    syncs
}

fn status(messages: &[Message]) -> u8 {
    messages
        .iter()
        .rev()
        .find(|m| m.tag == b'Z')
        .and_then(|m| m.body.first().copied())
        .unwrap_or(b'I')
}
