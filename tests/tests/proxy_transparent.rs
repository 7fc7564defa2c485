//! Nothing changes on the wire: what enters the proxy leaves it, byte for byte, on both streams.

use pgassay_tests::cluster::{Cluster, USER};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::Client;
use pgassay_tests::sniff::Sniffer;
use std::time::{Duration, Instant};

/// client → sniffer → proxy → sniffer → server.
#[test]
fn both_streams_are_untouched() {
    let cluster = Cluster::start().unwrap();
    let behind = Sniffer::start(cluster.port());
    let journal = tempfile::tempdir().unwrap();
    let proxy = Proxy::start_with(&format!("127.0.0.1:{}", behind.port()), |config| {
        config.journal.dir = Some(journal.path().join("journal"));
    });
    let before = Sniffer::start(proxy.port());
    let run = |program: &str, arguments: &[&str]| {
        let output = cluster
            .client(program)
            .args(["-h", "127.0.0.1", "-p", &before.port().to_string(), "-U", USER])
            .args(arguments)
            .arg("postgres")
            .env("PGSSLMODE", "disable")
            .env("PGGSSENCMODE", "disable")
            .env("PGOPTIONS", "-c work_mem=5MB -c search_path=public")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run("pgbench", &["-i", "-q", "-s", "1"]);
    for mode in ["simple", "extended", "prepared"] {
        run("pgbench", &["-n", "-c", "3", "-t", "30", "-M", mode]);
    }
    run(
        "psql",
        &[
            "-Xq",
            "-c",
            "select 1/0",
            "-c",
            "select repeat('x', 300000) from generate_series(1, 20)",
        ],
    );
    run(
        "psql",
        &[
            "-Xq",
            "-c",
            "create table c(a int)",
            "-c",
            "copy c from stdin",
            "-c",
            "notify n",
            "-c",
            "do $$ begin raise notice 'x'; end $$",
        ],
    );
    // And one that ends without a word, in mid-message.
    let mut client = Client::log_in(before.port());
    client.send(b"Q\0\0\0\x20half a mess");
    drop(client);

    // The last bytes of a closed connection may still be on their way through the sniffers.
    let deadline = Instant::now() + Duration::from_secs(180);
    while before.streams() != behind.streams() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (before, behind) = (before.streams(), behind.streams());
    assert_eq!(before.len(), behind.len());
    assert!(before.len() > 10);
    for (before, behind) in before.iter().zip(&behind) {
        assert!(
            before.to_server == behind.to_server,
            "a stream to the server was changed"
        );
        assert!(
            before.to_client == behind.to_client,
            "a stream to the client was changed"
        );
    }
    let bytes: usize = before.iter().map(|streams| streams.to_client.len()).sum();
    assert!(bytes > 6_000_000);
}
