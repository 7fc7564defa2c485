//! A server that crashes and comes back: what was committed is there, but for unlogged tables and for what nobody waited
//! for.

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::{Client, VERSION_3_0, startup};
use pgassay_tests::wait::until;
use std::process::Command;

/// A client, unless the server is not back yet.
fn connect(port: u16) -> Option<Client> {
    let mut client = Client::connect(port);
    client.send(&startup(
        VERSION_3_0,
        &[("user", "postgres"), ("database", "postgres")],
    ));
    loop {
        match client.next()?.tag {
            b'Z' => return Some(client),
            b'E' => return None,
            _ => {}
        }
    }
}

/// One of the server's processes dies, and all others with it; a client of the server that came back.
fn crash(cluster: &Cluster, proxy: &Proxy, mut client: Client) -> Client {
    let mut victim = Client::log_in(cluster.port());
    let pid = victim.rows("select pg_backend_pid()");
    let pid = String::from_utf8_lossy(&pid[0][6..]).into_owned();
    let killed = Command::new("kill").args(["-9", &pid]).status().expect("kill");
    assert!(killed.success(), "kill -9 {pid}");
    while client.next().is_some() {}
    let mut client = None;
    until("the server is back", || {
        client = connect(proxy.port());
        client.is_some()
    });
    client.expect("waited for")
}

#[test]
fn unlogged_tables_may_be_empty_afterwards() {
    // What is committed without waiting may be lost.
    let options = Options::default()
        .set("synchronous_commit", "on")
        .set("fsync", "on");
    let cluster = Cluster::start_with(options).unwrap();
    let proxy = Proxy::start_exclusive(&cluster.address());
    let mut client = Client::log_in(proxy.port());
    client.rows("create table kept (k int primary key)");
    client.rows("create unlogged table emptied (k int primary key)");
    client.rows("insert into kept values (1), (2)");
    client.rows("insert into emptied values (1), (2)");
    assert_eq!(client.rows("select k from emptied").len(), 2);

    let mut client = crash(&cluster, &proxy, client);
    assert_eq!(client.rows("select k from kept order by k").len(), 2);
    assert_eq!(client.rows("select k from emptied").len(), 0);
    client.rows("insert into emptied values (1)");
    drop(client);
    let summary = proxy.stop_silent();
    let shapes = &summary.coverage.shapes;
    let kept = shapes.iter().find(|s| s.shape.contains("from kept"));
    assert!(kept.is_some_and(|shape| shape.checked == 1), "{kept:?}");
}

#[test]
fn commits_that_nobody_waited_for_may_be_gone_afterwards() {
    // Nothing is written before somebody asks for it.
    let options = Options::default()
        .set("synchronous_commit", "off")
        .set("wal_writer_delay", "10s");
    let cluster = Cluster::start_with(options).unwrap();
    let proxy = Proxy::start_exclusive(&cluster.address());
    let mut client = Client::log_in(proxy.port());
    client.rows("create table kept (k int primary key)");
    client.rows("insert into kept values (1), (2)");
    client.rows("checkpoint");
    client.rows("insert into kept values (3)");
    assert_eq!(client.rows("select k from kept order by k").len(), 3);
    let mut client = crash(&cluster, &proxy, client);
    let left = client.rows("select k from kept order by k");
    assert_eq!(left.len(), 2, "nothing was lost, so nothing is shown here");
    client.rows("insert into kept values (3)");
    assert_eq!(client.rows("select k from kept order by k").len(), 3);
    drop(client);
    let summary = proxy.stop_silent();
    assert!(summary.gaps > 0, "nobody noticed that the server went away");
}
