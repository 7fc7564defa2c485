//! The first packets of a connection, good and bad, by hand.
//!
//! The pitfalls of proxies for PostgreSQL that others fell into, and where each is tested: tests/README.md.

use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::*;
use pgassay_tests::wait;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};

const ME: &[(&str, &str)] = &[("user", "postgres"), ("database", "postgres")];

#[test]
fn gss_then_ssl_then_startup() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut client = Client::connect(proxy.port());
    client.send(&gssenc_request());
    assert_eq!(client.byte(), b'N');
    client.send(&ssl_request());
    assert_eq!(client.byte(), b'N');
    client.send(&startup(VERSION_3_0, ME));
    assert_eq!(client.until_ready()[0].tag, b'R');
    assert_eq!(tags(&client.query("select 1")), "TDCZ");
}

#[test]
fn ssl_then_gss_works_too_but_each_only_once() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    for (first, second) in [
        (ssl_request(), gssenc_request()),
        (gssenc_request(), ssl_request()),
    ] {
        let mut client = Client::connect(proxy.port());
        client.send(&first);
        assert_eq!(client.byte(), b'N');
        client.send(&second);
        assert_eq!(client.byte(), b'N');
        client.send(&first);
        assert_eq!(client.until_closed()[0].field('C').as_deref(), Some("08P01"));
    }
}

#[test]
fn bytes_behind_an_encryption_request_are_refused() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    for request in [ssl_request(), gssenc_request()] {
        let mut client = Client::connect(proxy.port());
        client.send(&[request, startup(VERSION_3_0, ME)].concat());
        let answer = client.until_closed();
        assert_eq!(answer[0].field('C').as_deref(), Some("08P01"));
        assert!(
            answer[0].field('M').unwrap().contains("unencrypted data"),
            "{answer:?}"
        );
    }
}

#[test]
fn garbage_gets_a_clear_error_and_harms_nobody() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut bystander = Client::log_in(proxy.port());
    let absurd: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x7f\xff\xff\xff\0\x03\0\0",
        b"\xff\xff\xff\xff\0\x03\0\0",
        b"\0\0\0\x07\0\x03\0",
        b"\0\0\0\0\0\0\0\0",
        b"\0\0\x27\x11\0\x03\0\0",
    ];
    for bytes in absurd {
        let mut client = Client::connect(proxy.port());
        client.send(bytes);
        let answer = client.until_closed();
        assert_eq!(answer[0].field('C').as_deref(), Some("08P01"), "{bytes:?}");
    }
    // A TLS client that we have no certificate for cannot read an error: it is closed.
    let mut client = Client::connect(proxy.port());
    client.send(b"\x16\x03\x01\0\x05hello");
    assert_eq!(client.until_closed(), []);
    // Clients that leave in the middle of the startup.
    for bytes in [&b""[..], b"\0", b"\0\0\0\x20\0\x03"] {
        let mut client = Client::connect(proxy.port());
        client.send(bytes);
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.until_closed(), []);
    }
    assert_eq!(tags(&bystander.query("select 1")), "TDCZ");
}

#[test]
fn random_bytes_do_no_harm() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut bystander = Client::log_in(proxy.port());
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..60 {
        let mut client = if round % 2 == 0 {
            Client::connect(proxy.port())
        } else {
            Client::log_in(proxy.port())
        };
        let mut bytes = vec![0; random.usize(1..3_000)];
        random.fill(&mut bytes);
        // After the startup the server is the one to complain; either side may close first.
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(Shutdown::Write);
        let _ = client.stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(tags(&bystander.query("select 1")), "TDCZ");
}

#[test]
fn the_startup_packet_is_forwarded_verbatim() {
    let (sender, packets) = mpsc::channel();
    let server = FakeServer::start(move |mut stream| {
        if let Ok(packet) = read_packet(&mut stream) {
            sender.send(packet).unwrap();
            stream.write_all(&welcome()).unwrap();
        }
    });
    let proxy = Proxy::start(&server.address());
    for packet in [
        startup(
            VERSION_3_0,
            &[
                ("user", "me"),
                ("options", "-c geqo=off --search_path=a,b"),
                ("extra_float_digits", "2"),
            ],
        ),
        startup(VERSION_3_2, &[("user", "me"), ("_pq_.unheard_of", "yes")]),
        startup(
            3 << 16 | 9999,
            &[("user", "Ünï"), ("database", ""), ("replication", "false")],
        ),
        startup(4 << 16, &[("user", "me")]),
        // Not even the terminator is ours to judge.
        packet(VERSION_3_0, b"user\0me\0no value"),
    ] {
        let mut client = Client::connect(proxy.port());
        // In two halves, as a slow network would.
        client.send(&packet[..5]);
        client.send(&packet[5..]);
        client.until_ready();
        // The first connection may be the proxy's own look whether the server is there.
        let seen = packets.recv().unwrap();
        assert_eq!(seen, packet);
    }
}

#[test]
fn a_newer_protocol_is_negotiated_by_the_server_exactly_once() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let ask = |port: u16| {
        let mut client = Client::connect(port);
        let options = &[("user", "postgres"), ("database", "postgres"), ("_pq_.test", "1")];
        client.send(&startup(3 << 16 | 9999, options));
        let answer = client.until_ready();
        answer
            .into_iter()
            .filter(|message| message.tag == b'v')
            .collect::<Vec<_>>()
    };
    let through = ask(proxy.port());
    assert_eq!(through.len(), 1);
    assert_eq!(through, ask(cluster.port()));
    // The old protocol is refused by the server, in the old protocol's words.
    let refusal = |port: u16| {
        let mut client = Client::connect(port);
        client.send(&startup(2 << 16, ME));
        let mut bytes = Vec::new();
        client.stream.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let through = refusal(proxy.port());
    assert!(!through.is_empty());
    assert_eq!(through, refusal(cluster.port()));
}

#[test]
fn cancel_requests_pass_with_keys_of_any_length() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let server = FakeServer::start(move |mut stream| {
        if let Ok(packet) = read_packet(&mut stream) {
            kept.lock().unwrap().push(packet);
        }
    });
    let proxy = Proxy::start(&server.address());
    let keys: Vec<Vec<u8>> = [4, 32, 256]
        .iter()
        .map(|length| [&[0, 0, 0, 9][..], &vec![7; *length]].concat())
        .collect();
    for key in &keys {
        let mut client = Client::connect(proxy.port());
        client.send(&packet(80_877_102, key));
        assert_eq!(client.until_closed(), []);
    }
    let expected: Vec<Vec<u8>> = keys.iter().map(|key| packet(80_877_102, key)).collect();
    wait::until("all are passed on", || *seen.lock().unwrap() == expected);
    wait::until("all are counted", || {
        proxy.live().cancel_requests.load(Relaxed) == 3
    });
    let live = proxy.stop();
    assert_eq!(
        live.bytes_to_server.load(Relaxed),
        0,
        "cancel keys are not captured"
    );
}

#[test]
fn a_running_query_is_cancelled() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut client = Client::connect(proxy.port());
    client.send(&startup(VERSION_3_0, ME));
    let key = client
        .until_ready()
        .into_iter()
        .find(|message| message.tag == b'K')
        .unwrap()
        .body;
    client.send(&message(b'Q', &text("select pg_sleep(300)")));
    // The statement may not have started yet when the first request arrives.
    let cancel = {
        let (port, key) = (proxy.port(), key);
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stop = done.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                Client::connect(port).send(&packet(80_877_102, &key));
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        (done, thread)
    };
    let answer = client.until_ready();
    cancel.0.store(true, Relaxed);
    cancel.1.join().unwrap();
    let error = answer.iter().find(|message| message.tag == b'E').unwrap();
    assert_eq!(error.field('C').as_deref(), Some("57014"));
}

#[test]
fn too_many_clients_are_told_so() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| config.proxy.connections_max = 2);
    let first = Client::log_in(proxy.port());
    let _second = Client::log_in(proxy.port());
    let mut third = Client::connect(proxy.port());
    third.send(&startup(VERSION_3_0, ME));
    assert_eq!(third.until_closed()[0].field('C').as_deref(), Some("53300"));
    drop(first);
    // The place is free again, as soon as the proxy has seen it.
    loop {
        let mut client = Client::connect(proxy.port());
        client.send(&startup(VERSION_3_0, ME));
        if client.next().unwrap().tag == b'R' {
            break;
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_a_clear_error() {
    let port = pgassay_tests::cluster::free_port().unwrap();
    let proxy = Proxy::start(&format!("127.0.0.1:{port}"));
    let mut client = Client::connect(proxy.port());
    client.send(&startup(VERSION_3_0, ME));
    let answer = client.until_closed();
    assert_eq!(answer[0].field('C').as_deref(), Some("08001"));
    assert!(
        answer[0].field('M').unwrap().contains(&port.to_string()),
        "{answer:?}"
    );
    assert!(!proxy.live().is_ready());
}

#[test]
fn another_major_version_works_with_its_newer_protocol() {
    let Some(options) = Options::default().other_version() else {
        return;
    };
    let cluster = Cluster::start_with(options).unwrap();
    let proxy = Proxy::start(&cluster.address());
    let mut client = Client::connect(proxy.port());
    client.send(&startup(VERSION_3_2, ME));
    let answer = client.until_ready();
    assert!(answer.iter().all(|message| message.tag != b'v'), "3.2 is spoken");
    let key = &answer.iter().find(|message| message.tag == b'K').unwrap().body;
    assert!(key.len() > 8, "a longer key");
    assert_eq!(tags(&client.query("select 1")), "TDCZ");
}
