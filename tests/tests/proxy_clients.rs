//! Programs that everybody has, through the proxy: psql and pgbench.

use pgassay_tests::cluster::{Cluster, Options, USER};
use pgassay_tests::proxy::Proxy;
use std::process::Command;

fn run(mut program: Command, port: u16, arguments: &[&str]) -> String {
    let output = program
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", USER])
        .args(arguments)
        .arg("postgres")
        .output()
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{arguments:?}\n{out}\n{err}");
    out.into_owned()
}

/// PostgreSQL as installed, and the other major version with the programs of the first.
fn clusters() -> impl Iterator<Item = Cluster> {
    let versions = [Some(Options::default()), Options::default().other_version()];
    let versions = versions.into_iter().flatten();
    versions.map(|options| Cluster::start_with(options).unwrap())
}

#[test]
fn psql_works() {
    clusters().for_each(|cluster| psql_works_on(&cluster));
}

fn psql_works_on(cluster: &Cluster) {
    let proxy = Proxy::start(&cluster.address());
    let psql = |sql: &str| {
        run(
            cluster.client("psql"),
            proxy.port(),
            &["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql],
        )
    };
    assert_eq!(psql("select 40 + 2"), "42\n");
    assert_eq!(psql("select 1; select 2"), "1\n2\n");
    psql("create table t(a int primary key, b text)");
    assert_eq!(
        psql("begin; insert into t values (1, 'x') returning b; commit"),
        "x\n"
    );
    assert_eq!(psql("copy (select generate_series(1, 3)) to stdout"), "1\n2\n3\n");
    assert_eq!(psql("show application_name"), "psql\n");
}

#[test]
fn pgbench_works_in_all_three_modes() {
    clusters().for_each(|cluster| pgbench_works_on(&cluster));
}

fn pgbench_works_on(cluster: &Cluster) {
    let proxy = Proxy::start(&cluster.address());
    run(cluster.client("pgbench"), proxy.port(), &["-i", "-q", "-s", "1"]);
    for mode in ["simple", "extended", "prepared"] {
        let out = run(
            cluster.client("pgbench"),
            proxy.port(),
            &["-n", "-c", "4", "-j", "2", "-t", "50", "-M", mode],
        );
        assert!(
            out.contains("number of transactions actually processed: 200/200"),
            "{out}"
        );
    }
}
