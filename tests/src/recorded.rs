//! Traffic on a real server, recorded by the proxy: a small bank, in the simple and the extended protocol.
//!
//! In: a seed, a level, how much. Out: what the live audit said, and the records of the journal.

use crate::cluster::Cluster;
use crate::proxy::Proxy;
use crate::random::extended;
use crate::raw::{Client, Message, message};
use fastrand::Rng;
use pgassay::config::Writers;
use pgassay_audit::trace::Record;
use pgassay_audit::trace::journal::Reader;
use pgassay_audit::verdict::Summary;

pub struct Traffic {
    pub seed: u64,
    /// The level of the explicit blocks, and what it is claimed to be.
    pub level: &'static str,
    pub claim: Option<&'static str>,
    pub clients: u64,
    pub rounds: usize,
}

/// Tables, filled through the proxy so that the audit knows them completely.
const SETUP: [&str; 8] = [
    "drop table if exists branch, teller, account, history",
    "create table branch (bid int primary key, balance int not null)",
    "create table teller (tid int primary key, bid int references branch (bid), balance int not null)",
    "create table account (aid int primary key, bid int, balance int not null, note text)",
    "create table history (tid int, aid int, delta int)",
    "insert into branch values (1, 0), (2, 0)",
    "insert into teller values (1, 1, 0), (2, 1, 0), (3, 2, 0)",
    "insert into account select 1, 1, 100, 'a' union select 2, 1, 100, 'b' union select 3, 2, 100, null union select 4, 2, 100, 'd'",
];

/// Runs the traffic; what the live audit said and what the journal holds.
pub fn record(cluster: &Cluster, traffic: &Traffic) -> (Summary, Vec<Record>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        config.journal.dir = Some(dir.path().to_owned());
        config.audit.writers = Writers::Exclusive;
        config.audit.claim = traffic.claim.map(str::to_owned);
    });
    let mut setup = Client::log_in(proxy.port());
    for sql in SETUP {
        assert!(!failed(&setup.query(sql)), "{sql}");
    }
    drop(setup);
    let port = proxy.port();
    std::thread::scope(|scope| {
        for number in 0..traffic.clients {
            scope.spawn(move || client(traffic, number, port));
        }
    });
    let summary = proxy.stop().summary();
    let reader = Reader::open(dir.path(), None).expect("the journal opens");
    let records = reader.map(|r| r.expect("a readable record")).collect();
    (summary, records)
}

fn failed(answer: &[Message]) -> bool {
    answer.iter().any(|m| m.tag == b'E')
}

fn client(traffic: &Traffic, number: u64, port: u16) {
    let mut rng = Rng::with_seed(traffic.seed * 100 + number);
    let mut client = Client::log_in(port);
    for _ in 0..traffic.rounds {
        let (a, b, t, d) = (rng.i32(1..5), rng.i32(1..5), rng.i32(1..4), rng.i32(-50..50));
        match rng.u8(0..8) {
            0 => drop(client.query("select aid, balance, note from account order by aid")),
            1 => drop(client.query("select sum(balance), count(*) from account")),
            2 => drop(client.query("select a.aid, t.tid from account a join teller t on t.bid = a.bid where a.balance > 0 order by 1, 2")),
            3 => drop(ask(&mut client, "select balance from account where aid = $1", &[a])),
            4 => drop(ask(&mut client, "update account set balance = balance + $1 where aid = $2 returning balance", &[d, a])),
            // TPC-B in small.
            5 | 6 => {
                client.query(&format!("begin isolation level {}", traffic.level));
                let ok = !failed(&ask(&mut client, "update account set balance = balance + $1 where aid = $2", &[d, a]))
                    && !failed(&ask(&mut client, "select balance from account where aid = $1", &[a]))
                    && !failed(&ask(&mut client, "update teller set balance = balance + $1 where tid = $2", &[d, t]))
                    && !failed(&ask(&mut client, "update branch set balance = balance + $1 where bid = $2", &[d, 1 + t / 3]))
                    && !failed(&ask(&mut client, "insert into history values ($1, $2, $3)", &[t, a, d]));
                client.query(if ok { "commit" } else { "rollback" });
            }
            // Read, think, write back: a lost update unless the level forbids it.
            _ => {
                client.query(&format!("begin isolation level {}", traffic.level));
                let read = ask(&mut client, "select balance from account where aid = $1", &[b]);
                let ok = !failed(&read)
                    && !failed(&ask(&mut client, "update account set balance = $1 where aid = $2", &[number_in(&read) + 1, b]));
                client.query(if ok { "commit" } else { "rollback" });
            }
        }
    }
}

fn number_in(answer: &[Message]) -> i32 {
    let row = answer.iter().find(|m| m.tag == b'D');
    row.and_then(|m| std::str::from_utf8(m.body.get(6..)?).ok()?.parse().ok())
        .unwrap_or(0)
}

fn ask(client: &mut Client, sql: &str, parameters: &[i32]) -> Vec<Message> {
    let parameters: Vec<Option<String>> = parameters.iter().map(|p| Some(p.to_string())).collect();
    let mut bytes = extended("", sql, &parameters);
    bytes.extend(message(b'S', b""));
    client.send(&bytes);
    client.until_ready()
}
