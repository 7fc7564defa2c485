//! Random concurrent transactions, from a seed: tables, statements, ways to send them.
//!
//! In: a seed and the number of a client. Out: what that client sends, transaction by transaction. The same
//! seed gives the same statements; how the clients interleave is up to the server.
//!
//! Always true: the statements are such as PostgreSQL understands; they may still fail by what the others did
//! (unique and foreign keys, serialization, deadlocks), which is the point.

pub mod feature;
mod link;
mod object;
mod plain;
mod session;
mod unseen;
mod upheaval;

use crate::raw::{Message, message, text};
use fastrand::Rng;
pub use feature::Features;
use link::Link;
pub use unseen::Unseen;

/// What a run starts from, made before the clients start.
pub fn schema(seed: u64) -> Vec<String> {
    let mut made = plain::tables(seed);
    made.extend(object::objects(seed, Features::of(seed)));
    if Features::of(seed).sessions {
        made.extend(session::other_schemas());
    }
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
    features: Features,
    number: u64,
    /// How many statements were prepared by name.
    prepared: u64,
    /// Transactions that were prepared, and the one that may still be.
    two_phase: u64,
    unfinished: Option<String>,
}

/// One client with its connection; runs at most `most` transactions, until told to stop.
pub fn run_client(seed: u64, number: u64, port: u16, most: u64, go_on: impl Fn() -> bool) -> u64 {
    let mut traffic = Traffic {
        rng: Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(number)),
        features: Features::of(seed),
        number,
        prepared: 0,
        two_phase: 0,
        unfinished: None,
    };
    let mut client = Link::open(port);
    let mut transactions = 0;
    while transactions < most && go_on() {
        traffic.transaction(&mut client);
        transactions += 1;
        if traffic.rng.u16(0..400) == 0 {
            // Some leave in the middle of a block; whoever has prepared something would wait for itself.
            if traffic.rng.bool() && traffic.unfinished.is_none() {
                client.query("begin; update acct set v = -1 where k = 1");
            }
            client = Link::open(port);
        }
        if traffic.features.deaths && traffic.unfinished.is_none() && traffic.rng.u16(0..60) == 0 {
            traffic.death(&mut client);
        }
        if client.is_closed() {
            client = Link::open(port);
        }
        traffic.finish_prepared(&mut client);
    }
    client.query("rollback");
    while traffic.unfinished.is_some() {
        if client.is_closed() {
            client = Link::open(port);
        }
        traffic.finish_prepared(&mut client);
    }
    transactions
}

impl Traffic {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.usize(0..from.len())]
    }

    fn transaction(&mut self, client: &mut Link) {
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
                client.exchange(&bytes);
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
                let mut last = client.exchange(&bytes);
                for _ in 0..syncs {
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

    fn block(&mut self, client: &mut Link, length: usize) {
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
        if self.features.two_phase && self.rng.u8(0..6) == 0 {
            return self.prepare_transaction(client);
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
    fn send(&mut self, client: &mut Link) -> bool {
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
                client.exchange(&bytes)
            }
            _ => {
                let mut bytes = extended("", &sql, &parameters);
                bytes.extend(message(b'S', b""));
                client.exchange(&bytes)
            }
        };
        client.is_closed() || failed(&answer)
    }

    /// A statement with literals only.
    fn statement(&mut self) -> (String, Vec<Option<String>>) {
        let features = self.features;
        let sql = match self.rng.u8(0..40) {
            0..4 if features.views => self.on_a_view(),
            4..8 if features.triggers => self.on_a_trigger(),
            8..13 if features.partitions => self.on_a_partition(),
            13..16 if features.routines => self.on_a_routine(),
            16..19 if features.merges => self.merge(),
            // Rarely, so that something is known again in between.
            19 if features.upheaval && self.rng.u8(0..6) == 0 => self.upheaval(),
            20..24 if features.sessions => self.on_a_session(),
            24..28 if features.routines => self.on_a_routine(),
            _ => self.plain(),
        };
        (sql, Vec::new())
    }

    /// The block that is open is prepared and ends later, perhaps by another session.
    fn prepare_transaction(&mut self, client: &mut Link) {
        self.two_phase += 1;
        let gid = format!("g{}_{}", self.number, self.two_phase);
        // Until it is known that it was not prepared, it may have been.
        self.unfinished = Some(gid.clone());
        let answer = client.query(&format!("prepare transaction '{gid}'"));
        if !client.is_closed() && failed(&answer) {
            self.unfinished = None;
            client.query("rollback");
            return;
        }
        match self.rng.u8(0..4) {
            0 => client.close(),
            // Nothing that could wait for the locks that are still held, or for somebody who waits for them.
            1 => drop(client.query("select 1")),
            _ => {}
        }
    }

    fn finish_prepared(&mut self, client: &mut Link) {
        let Some(gid) = self.unfinished.take() else {
            return;
        };
        let end = ["commit", "commit", "rollback"][self.rng.usize(0..3)];
        loop {
            let answer = client.query(&format!("{end} prepared '{gid}'"));
            let error = answer.iter().find(|m| m.tag == b'E').and_then(|m| m.field('C'));
            if client.is_closed() {
                self.unfinished = Some(gid);
                return;
            }
            match error.as_deref() {
                // Nobody has this one, or not any more.
                None | Some("42704") => return,
                // It was prepared in another role.
                Some("42501") => drop(client.query("reset session authorization")),
                // It was cancelled, is still in the hands of whoever prepared it, or a block is in the way: left behind
                // it would hold its locks for ever.
                Some(_) => drop(client.query("rollback")),
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Somebody else's backend is terminated or its statement cancelled, or this client dies without waiting.
    fn death(&mut self, client: &mut Link) {
        let sql = self.plain();
        match self.rng.u8(0..5) {
            0 => drop(client.query(
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where application_name = 'random' and pid <> pg_backend_pid() limit 1",
            )),
            1 => drop(client.query(
                "select pg_cancel_backend(pid) from pg_stat_activity \
                 where application_name = 'random' and pid <> pg_backend_pid() and state = 'active' limit 1",
            )),
            2 => client.leave(&sql),
            3 => {
                client.query("begin");
                client.query(&sql);
                client.leave("commit");
            }
            _ => {
                client.query("begin");
                client.leave(&sql);
            }
        }
    }
}

fn failed(answer: &[Message]) -> bool {
    answer.iter().any(|m| m.tag == b'E')
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
