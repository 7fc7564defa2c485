//! Triggers against a real server: they write where no statement says so, and nowhere else.

use pgassay_tests::cluster::Cluster;
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::Client;

#[test]
fn what_triggers_write_is_not_known_and_everything_else_is() {
    let cluster = Cluster::start().unwrap();
    let mut direct = Client::log_in(cluster.port());
    for sql in [
        "create table account (id int primary key, balance int)",
        "insert into account values (1, 10), (2, 20)",
        "create table pair (x int primary key, w int)",
        "create table trail (op text, x int)",
        "create function note() returns trigger language plpgsql as \
         $$ begin insert into trail values (tg_op, new.x); return new; end $$",
        "create trigger noted after insert or update on pair for each row execute function note()",
        "create table ddl_log (tag text)",
        "create function log_it() returns event_trigger language plpgsql as \
         $$ begin insert into ddl_log values (tg_tag); end $$",
        "create event trigger logged on ddl_command_end execute function log_it()",
    ] {
        direct.rows(sql);
    }
    let proxy = Proxy::start_exclusive(&cluster.address());
    let mut client = Client::log_in(proxy.port());
    let logged = client.rows("select tag from ddl_log").len();
    client.rows("insert into pair values (1, 1), (2, 2)");
    assert_eq!(client.rows("select op, x from trail").len(), 2);
    client.rows("create table more (k int)");
    client.rows("comment on table more is 'more'");
    client.rows("alter table more add column v int");
    assert_eq!(client.rows("select tag from ddl_log").len(), logged + 3);
    assert_eq!(
        client.rows("select id, balance from account order by id").len(),
        2
    );
    drop(client);
    let summary = proxy.stop_silent();
    let shapes = &summary.coverage.shapes;
    let known = shapes.iter().find(|s| s.shape.contains("from account"));
    assert!(
        known.is_some_and(|shape| shape.checked == 1),
        "{:?}",
        summary.coverage.reasons
    );
}
