//! The admin address over TLS: who shows no certificate, or a stranger's, reads nothing.

use pgassay::admin::{self, Admin};
use pgassay::config::Config;
use pgassay::live::Live;
use pgassay_audit::report::sample;
use pgassay_tests::certificates::Certificates;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

async fn serve(change: impl FnOnce(&mut Config)) -> (Arc<Live>, Admin) {
    let mut config = Config::default();
    config.admin.listen = Some("127.0.0.1:0".to_owned());
    change(&mut config);
    let live = Arc::new(Live::new(config));
    live.audit().summary = sample::summary();
    let admin = admin::start(live.clone())
        .await
        .expect("the admin server starts")
        .expect("it is configured");
    (live, admin)
}

/// What openssl's client is answered; empty when the handshake fails.
fn ask(address: SocketAddr, path: &str, trusted: &Certificates, own: Option<&Certificates>) -> String {
    let mut client = Command::new("openssl");
    client
        .args(["s_client", "-quiet", "-verify_return_error", "-connect"])
        .arg(format!("127.0.0.1:{}", address.port()))
        .args(["-verify_hostname", "localhost", "-CAfile"])
        .arg(&trusted.authority)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(own) = own {
        client
            .arg("-cert")
            .arg(&own.certificate)
            .arg("-key")
            .arg(&own.key);
    }
    let mut client = client.spawn().expect("openssl is installed");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    // It may have hung up already.
    let _ = client.stdin.take().expect("a pipe").write_all(request.as_bytes());
    let output = client.wait_with_output().expect("openssl ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn asked(
    address: SocketAddr,
    path: &'static str,
    trusted: &Arc<Certificates>,
    own: Option<&Arc<Certificates>>,
) -> String {
    let (trusted, own) = (trusted.clone(), own.cloned());
    tokio::task::spawn_blocking(move || ask(address, path, &trusted, own.as_deref()))
        .await
        .expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_turns_tls_on() {
    let (ours, other) = (
        Arc::new(Certificates::make("admin")),
        Arc::new(Certificates::make("other")),
    );
    let (_live, admin) = serve(|config| {
        config.admin.certificate = Some(ours.certificate.clone());
        config.admin.key = Some(ours.key.clone());
    })
    .await;
    let answer = asked(admin.address, "/api/summary", &ours, None).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("lost_update"),
        "{answer}"
    );
    let answer = asked(admin.address, "/api/summary", &other, None).await;
    assert_eq!(answer, "", "a client that trusts somebody else hangs up");
    let plain = pgassay_tests::http::try_get(admin.address, "/api/summary", &[]);
    assert!(
        !plain.is_ok_and(|r| r.status == 200 || r.body.contains("lost_update")),
        "nothing in the clear"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_authority_for_clients_only_theirs_are_let_in() {
    let (ours, client, stranger) = (
        Arc::new(Certificates::make("admin")),
        Arc::new(Certificates::make("client")),
        Arc::new(Certificates::make("stranger")),
    );
    // Beyond loopback: without the certificate this would be closed.
    let (_live, admin) = serve(|config| {
        config.admin.listen = Some("0.0.0.0:0".to_owned());
        config.admin.certificate = Some(ours.certificate.clone());
        config.admin.key = Some(ours.key.clone());
        config.admin.client_ca = Some(client.authority.clone());
    })
    .await;
    let answer = asked(admin.address, "/api/summary", &ours, Some(&client)).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("lost_update"),
        "{answer}"
    );
    for path in ["/api/summary", "/metrics", "/"] {
        for own in [None, Some(&stranger)] {
            let answer = asked(admin.address, path, &ours, own).await;
            assert_eq!(answer, "", "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_configuration_is_refused() {
    let ours = Certificates::make("admin");
    for change in [
        |config: &mut Config, ours: &Certificates| config.admin.certificate = Some(ours.certificate.clone()),
        |config: &mut Config, ours: &Certificates| config.admin.client_ca = Some(ours.authority.clone()),
    ] {
        let mut config = Config::default();
        config.admin.listen = Some("127.0.0.1:0".to_owned());
        change(&mut config, &ours);
        let error = admin::start(Arc::new(Live::new(config)))
            .await
            .expect_err("not TLS, not plain");
        assert!(error.to_string().contains("belong together"), "{error}");
    }
}
