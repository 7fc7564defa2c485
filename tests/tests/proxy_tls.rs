//! TLS and authentication, each leg on or off: what works is what the table in `auth.rs` says.

use pgassay::config::{AuthMode, Config, TlsMode};
use pgassay_tests::certificates::Certificates;
use pgassay_tests::cluster::{Cluster, Options};
use pgassay_tests::proxy::Proxy;
use pgassay_tests::raw::{Client, VERSION_3_0, message, startup, text};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PASSWORD: &str = "a pässword";

/// One query with psql; the error's text if it failed.
fn psql(cluster: &Cluster, port: u16, options: &str) -> Result<String, String> {
    let output = cluster
        .client("psql")
        .args(["-XAtq", "-c", "select 40 + 2"])
        .arg(format!(
            "host=127.0.0.1 port={port} user=postgres dbname=postgres {options}"
        ))
        .env("PGPASSWORD", PASSWORD)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn answered() -> Result<String, String> {
    Ok("42".to_owned())
}

fn secured(config: &mut Config, certificates: &Certificates, mode: TlsMode) {
    config.tls.mode = mode;
    config.tls.certificate = Some(certificates.certificate.clone());
    config.tls.key = Some(certificates.key.clone());
}

fn upstream(cluster: &Cluster, parameters: &str) -> String {
    format!("postgresql://127.0.0.1:{}/?{parameters}", cluster.port())
}

#[test]
fn every_password_method_passes_through_plain_legs() {
    for method in ["password", "md5", "scram-sha-256"] {
        let cluster = Cluster::start_with(Options::default().password(method, PASSWORD)).unwrap();
        let proxy = Proxy::start(&cluster.address());
        assert_eq!(
            psql(&cluster, proxy.port(), "sslmode=disable"),
            answered(),
            "{method}"
        );
        let wrong = psql(&cluster, proxy.port(), "sslmode=disable password=wrong").unwrap_err();
        assert!(wrong.contains("password authentication failed"), "{wrong}");
    }
}

#[test]
fn tls_to_the_client_and_plain_to_the_server() {
    let own = Certificates::make("proxy");
    let cluster = Cluster::start_with(Options::default().password("scram-sha-256", PASSWORD)).unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        secured(config, &own, TlsMode::Require)
    });
    let root = format!("sslrootcert={}", own.authority.display());
    assert_eq!(psql(&cluster, proxy.port(), "sslmode=require"), answered());
    assert_eq!(
        psql(&cluster, proxy.port(), &format!("sslmode=verify-full {root}")),
        answered()
    );
    assert_eq!(
        psql(&cluster, proxy.port(), "sslmode=require channel_binding=disable"),
        answered()
    );
    // The server offers no channel binding, so a client that insists refuses.
    assert!(psql(&cluster, proxy.port(), "sslmode=require channel_binding=require").is_err());
    let plain = psql(&cluster, proxy.port(), "sslmode=disable").unwrap_err();
    assert!(plain.contains("TLS connections only"), "{plain}");
    let stranger = Certificates::make("stranger");
    let root = format!("sslrootcert={}", stranger.authority.display());
    assert!(psql(&cluster, proxy.port(), &format!("sslmode=verify-full {root}")).is_err());
}

#[test]
fn plain_to_the_client_and_tls_to_the_server() {
    let theirs = Certificates::make("server");
    let stranger = Certificates::make("stranger");
    let options = Options::default()
        .tls(&theirs)
        .password("scram-sha-256", PASSWORD);
    let cluster = Cluster::start_with(options).unwrap();
    let root = |path: &Path| format!("sslrootcert={}", path.display());
    for (parameters, works) in [
        ("sslmode=require".to_owned(), true),
        ("sslmode=prefer".to_owned(), true),
        ("sslmode=allow".to_owned(), true),
        (format!("sslmode=verify-ca&{}", root(&theirs.authority)), true),
        (format!("sslmode=verify-full&{}", root(&theirs.authority)), true),
        (format!("sslmode=verify-ca&{}", root(&stranger.authority)), false),
        (
            format!("sslmode=verify-full&{}", root(&stranger.authority)),
            false,
        ),
        (format!("sslmode=require&{}", root(&stranger.authority)), false),
    ] {
        let proxy = Proxy::start(&upstream(&cluster, &parameters));
        let answer = psql(&cluster, proxy.port(), "sslmode=disable");
        assert_eq!(answer.is_ok(), works, "{parameters}: {answer:?}");
        if works {
            let mut client = tokio_query(
                proxy.port(),
                "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
            );
            let encrypted = client.pop().unwrap();
            assert_eq!(encrypted == "t", !parameters.contains("allow"), "{parameters}");
        }
    }
}

/// The first column of a query's rows, by a driver that is not libpq.
fn tokio_query(port: u16, sql: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(port)
            .user("postgres")
            .password(PASSWORD)
            .dbname("postgres");
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let rows = client.simple_query(sql).await.unwrap();
        rows.iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .collect()
    })
}

const MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// Which of the six modes get in, and whether in TLS, where the server takes one kind of connection only.
#[test]
fn every_sslmode_finds_the_way_that_libpq_would() {
    let theirs = Certificates::make("server");
    for (kind, expected) in [
        (
            "hostssl",
            [None, Some(true), Some(true), Some(true), Some(true), Some(true)],
        ),
        (
            "hostnossl",
            [Some(false), Some(false), Some(false), None, None, None],
        ),
        (
            "host",
            [
                Some(false),
                Some(false),
                Some(true),
                Some(true),
                Some(true),
                Some(true),
            ],
        ),
    ] {
        let mut options = Options::default()
            .tls(&theirs)
            .password("scram-sha-256", PASSWORD);
        options.hba = vec![format!("{kind} all all all scram-sha-256")];
        let cluster = Cluster::start_with(options).unwrap();
        for (mode, expected) in MODES.into_iter().zip(expected) {
            let parameters = format!("sslmode={mode}&sslrootcert={}", theirs.authority.display());
            let proxy = Proxy::start(&upstream(&cluster, &parameters));
            match (psql(&cluster, proxy.port(), "sslmode=disable"), expected) {
                (answer @ Ok(_), Some(_)) => assert_eq!(answer, answered()),
                (Err(error), None) => {
                    let word = if kind == "hostssl" {
                        "no encryption"
                    } else {
                        "SSL encryption"
                    };
                    assert!(
                        error.contains("no pg_hba.conf entry") && error.contains(word),
                        "{error}"
                    );
                }
                (answer, _) => panic!("{kind}, {mode}: {answer:?}"),
            }
            if let Some(encrypted) = expected {
                let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
                let answer = tokio_query(proxy.port(), sql).pop().unwrap();
                assert_eq!(answer == "t", encrypted, "{kind}, {mode}");
            }
        }
    }
}

/// The retry is the proxy's own business: it works where the proxy logs in itself, and for the side connection.
#[test]
fn allow_retries_where_authentication_is_terminated_and_on_the_side() {
    let (own, theirs) = (Certificates::make("proxy"), Certificates::make("server"));
    let mut options = Options::default()
        .tls(&theirs)
        .password("scram-sha-256", PASSWORD);
    options.hba = vec!["hostssl all all all scram-sha-256".to_owned()];
    let cluster = Cluster::start_with(options).unwrap();
    let users = own.directory().join("users");
    std::fs::write(&users, format!("\"postgres\" \"{PASSWORD}\"\n")).unwrap();
    let allow = upstream(&cluster, "sslmode=allow");
    let proxy = Proxy::start_with(&allow, |config| {
        secured(config, &own, TlsMode::Allow);
        config.auth.mode = AuthMode::Terminate;
        config.auth.users = Some(users.clone());
    });
    assert_eq!(
        psql(&cluster, proxy.port(), "sslmode=require channel_binding=require"),
        answered()
    );

    let uri = format!(
        "postgresql://postgres:{PASSWORD}@127.0.0.1:{}/postgres?sslmode=allow",
        cluster.port()
    );
    let config = Config {
        upstream: uri,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let encrypted: bool = runtime.block_on(async {
        let client = pgassay::side::connect(&config).await.unwrap();
        let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        client.query_one(sql, &[]).await.unwrap().get(0)
    });
    assert!(encrypted);
}

#[test]
fn a_certificate_that_is_refused_says_why_and_what_to_do() {
    let (theirs, stranger) = (Certificates::make("server"), Certificates::make("stranger"));
    let options = Options::default()
        .tls(&theirs)
        .set("listen_addresses", "127.0.0.1,127.0.0.2");
    let cluster = Cluster::start_with(options).unwrap();
    let refused = |host: &str, mode: &str, root: &Path| {
        let uri = format!(
            "postgresql://{host}:{}/?sslmode={mode}&sslrootcert={}",
            cluster.port(),
            root.display()
        );
        let proxy = Proxy::start(&uri);
        psql(&cluster, proxy.port(), "sslmode=disable")
    };
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = refused("127.0.0.1", mode, &stranger.authority).unwrap_err();
        let said = error.contains("was not issued by an authority of sslrootcert=") && error.contains(mode);
        assert!(
            said && error.contains("could not connect to the server"),
            "{error}"
        );
    }
    assert_eq!(refused("127.0.0.2", "verify-ca", &theirs.authority), answered());
    let error = refused("127.0.0.2", "verify-full", &theirs.authority).unwrap_err();
    assert!(
        error.contains("is not for `127.0.0.2`") && error.contains("verify-ca"),
        "{error}"
    );
    let error = refused("127.0.0.1", "verify-full", Path::new("/no/such/file")).unwrap_err();
    assert!(error.contains("/no/such/file"), "{error}");
}

#[test]
fn sslmode_demands_what_it_says() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(&upstream(&cluster, "sslmode=require"));
    let error = psql(&cluster, proxy.port(), "sslmode=disable").unwrap_err();
    assert!(error.contains("does not support TLS"), "{error}");
    let proxy = Proxy::start(&upstream(&cluster, "sslmode=prefer"));
    assert_eq!(psql(&cluster, proxy.port(), "sslmode=disable"), answered());
}

#[test]
fn tls_on_both_legs_needs_the_servers_certificate_or_a_user_list() {
    let (own, theirs) = (Certificates::make("proxy"), Certificates::make("server"));
    let options = Options::default()
        .tls(&theirs)
        .password("scram-sha-256", PASSWORD);
    let cluster = Cluster::start_with(options).unwrap();
    let both = upstream(&cluster, "sslmode=require");

    // Our own certificate: SCRAM binds to a certificate that the server does not know.
    let proxy = Proxy::start_with(&both, |config| secured(config, &own, TlsMode::Allow));
    assert!(psql(&cluster, proxy.port(), "sslmode=require").is_err());
    assert_eq!(
        psql(&cluster, proxy.port(), "sslmode=require channel_binding=disable"),
        answered()
    );

    // The server's own: everything passes.
    let proxy = Proxy::start_with(&both, |config| secured(config, &theirs, TlsMode::Allow));
    for binding in ["prefer", "require", "disable"] {
        let options = format!("sslmode=require channel_binding={binding}");
        assert_eq!(psql(&cluster, proxy.port(), &options), answered(), "{binding}");
    }

    // A user list: the client proves itself to us.
    let users = own.directory().join("users");
    std::fs::write(&users, format!("\"postgres\" \"{PASSWORD}\"\n")).unwrap();
    let proxy = Proxy::start_with(&both, |config| {
        secured(config, &own, TlsMode::Allow);
        config.auth.mode = AuthMode::Terminate;
        config.auth.users = Some(users.clone());
    });
    for binding in ["prefer", "require", "disable"] {
        let options = format!("sslmode=require channel_binding={binding}");
        assert_eq!(psql(&cluster, proxy.port(), &options), answered(), "{binding}");
    }
    assert_eq!(psql(&cluster, proxy.port(), "sslmode=disable"), answered());
    for options in ["sslmode=require password=wrong", "sslmode=require user=stranger"] {
        let error = psql(&cluster, proxy.port(), options).unwrap_err();
        assert!(
            error.contains("password authentication failed"),
            "{options}: {error}"
        );
    }
}

#[test]
fn termination_logs_in_by_whatever_the_server_asks_for() {
    for method in ["trust", "password", "md5", "scram-sha-256"] {
        let cluster = Cluster::start_with(Options::default().password(method, PASSWORD)).unwrap();
        let users = cluster.directory().join("users");
        std::fs::write(&users, format!("\"postgres\" \"{PASSWORD}\"\n")).unwrap();
        let proxy = Proxy::start_with(&cluster.address(), |config| {
            config.auth.mode = AuthMode::Terminate;
            config.auth.users = Some(users.clone());
        });
        assert_eq!(
            psql(&cluster, proxy.port(), "sslmode=disable"),
            answered(),
            "{method}"
        );
        assert!(
            psql(&cluster, proxy.port(), "sslmode=disable password=wrong").is_err(),
            "{method}"
        );
        // The server's own words about what comes after authentication reach the client.
        let error = psql(&cluster, proxy.port(), "sslmode=disable dbname=nowhere").unwrap_err();
        assert!(error.contains("\"nowhere\" does not exist"), "{error}");
        // A proof by hand that is not one.
        let mut client = Client::connect(proxy.port());
        client.send(&startup(VERSION_3_0, &[("user", "postgres")]));
        assert_eq!(client.next().unwrap().tag, b'R');
        client.send(&message(b'p', &text("nonsense")));
        assert_eq!(
            client.until_closed()[0].field('C').as_deref(),
            Some("08P01"),
            "{method}"
        );
    }
}

#[test]
fn a_new_certificate_is_picked_up_without_a_restart() {
    let (first, second) = (Certificates::make("first"), Certificates::make("second"));
    let cluster = Cluster::start_with(Options::default().password("scram-sha-256", PASSWORD)).unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        secured(config, &first, TlsMode::Allow)
    });
    let verify = |authority: &Path| {
        let options = format!("sslmode=verify-full sslrootcert={}", authority.display());
        psql(&cluster, proxy.port(), &options)
    };
    assert_eq!(verify(&first.authority), answered());
    // Half of a new pair is not used.
    std::fs::copy(&second.certificate, &first.certificate).unwrap();
    let mut config = (**proxy.live().config.load()).clone();
    assert!(proxy.running().reload(config.clone()).is_err());
    assert_eq!(verify(&first.authority), answered());
    std::fs::copy(&second.key, &first.key).unwrap();
    config.proxy.connections_max = 77;
    proxy.running().reload(config).unwrap();
    assert_eq!(verify(&second.authority), answered());
    assert!(verify(&first.authority).is_err());
    assert_eq!(proxy.live().config.load().proxy.connections_max, 77);
}

#[test]
fn newer_drivers_cancel_and_connect_directly_over_tls() {
    let Some(python) = pgassay_tests::deps::find("python") else {
        return;
    };
    let own = Certificates::make("proxy");
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        secured(config, &own, TlsMode::Require)
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers/psycopg_tls.py");
    let root = own.authority.display();
    let uri = format!(
        "{}?sslmode=verify-full&sslnegotiation=direct&sslrootcert={root}",
        proxy.uri()
    );
    let output = Command::new(python.join("bin/python"))
        .arg(script)
        .arg(uri)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        proxy
            .live()
            .cancel_requests
            .load(std::sync::atomic::Ordering::Relaxed)
            > 0
    );
}

#[test]
fn direct_tls_needs_alpn() {
    let own = Certificates::make("proxy");
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start_with(&cluster.address(), |config| {
        secured(config, &own, TlsMode::Require)
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let first_tag = |alpn: Vec<Vec<u8>>| {
        runtime.block_on(async {
            use rustls::pki_types::pem::PemObject;
            let mut roots = rustls::RootCertStore::empty();
            roots
                .add(rustls::pki_types::CertificateDer::from_pem_file(&own.authority).unwrap())
                .unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = alpn;
            let socket = tokio::net::TcpStream::connect(("127.0.0.1", proxy.port()))
                .await
                .unwrap();
            let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let mut stream = connector.connect(name, socket).await.unwrap();
            let _ = stream
                .write_all(&startup(VERSION_3_0, &[("user", "postgres")]))
                .await;
            let _ = stream.flush().await;
            stream.read_u8().await.unwrap()
        })
    };
    assert_eq!(first_tag(vec![b"postgresql".to_vec()]), b'R');
    assert_eq!(first_tag(Vec::new()), b'E');
}
