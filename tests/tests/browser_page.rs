//! The web page in a real browser: load, drill down, expand an arrow, download; screenshots are kept.

use pgassay::admin;
use pgassay::config::Config;
use pgassay::live::Live;
use pgassay_audit::report::{gate::Gate, html, sample};
use pgassay_tests::deps;
use pgassay_tests::tools::{artifacts, root};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_in_a_browser() {
    let Some(playwright) = deps::find("node/node_modules/playwright-core") else {
        return;
    };
    let Some(chromium) = deps::system("/usr/bin/chromium") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "correct horse battery").unwrap();
    let (live, open) = serve(None).await;
    let (_guarded, closed) = serve(Some(token)).await;
    let traffic = tokio::spawn(pretend_traffic(live));

    let report = dir.path().join("report.html");
    std::fs::write(&report, html::summary(&sample::summary(), &Gate::default())).unwrap();
    let shots = artifacts("browser");
    let output = tokio::task::spawn_blocking(move || {
        Command::new("node")
            .arg(root().join("tests/browser/page.mjs"))
            .env("PLAYWRIGHT", playwright)
            .env("CHROMIUM", chromium)
            .env("PROFILE", dir.path().join("profile"))
            .env("PAGE", format!("http://{}/", open.address))
            .env("GUARDED", format!("http://{}/", closed.address))
            .env("REPORT", report)
            .env("SHOTS", &shots)
            .output()
            .expect("node runs")
    })
    .await
    .unwrap();
    traffic.abort();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{said}\n{complained}");
    for step in [
        "overview",
        "violations",
        "story",
        "edge",
        "download",
        "coverage",
        "keyboard",
        "phone",
        "phone-steps",
        "phone-coverage",
        "wide",
        "editor",
        "editor-levels",
        "editor-profiles",
        "editor-upload",
        "runbook-page",
        "phone-editor",
        "token",
        "report",
    ] {
        assert!(
            said.contains(&format!("ok {step}")),
            "no step «{step}» in\n{said}\n{complained}"
        );
    }
}

async fn serve(token_file: Option<std::path::PathBuf>) -> (Arc<Live>, admin::Admin) {
    let mut config = Config::default();
    config.admin.listen = Some("127.0.0.1:0".to_owned());
    config.admin.token_file = token_file;
    config.audit.claim = Some("serializable".to_owned());
    let live = Arc::new(Live::new(config));
    live.ready.store(true, Relaxed);
    live.connections_open.store(12, Relaxed);
    let mut summary = sample::summary();
    summary.violations.push(sample::wide(10_000));
    // Stories are told as if they had just happened.
    for (age, violation) in summary.violations.iter_mut().enumerate() {
        violation.at = pgassay::clock::now() - age as u64 * 95_000_000_000;
    }
    live.audit().summary = summary;
    let admin = admin::start(live.clone())
        .await
        .expect("the admin server starts")
        .expect("it is configured");
    (live, admin)
}

/// Numbers that move, so that the plots have something to show.
async fn pretend_traffic(live: Arc<Live>) {
    let mut n: u64 = 0;
    loop {
        n += 1;
        live.statements.fetch_add(150 + n * 37 % 60, Relaxed);
        live.transactions.fetch_add(40 + n * 11 % 15, Relaxed);
        let _ = live
            .added_latency
            .lock()
            .unwrap()
            .record_n(20_000 + n * 977 % 30_000, 50);
        live.audit().summary.coverage.checked += 140;
        live.audit().summary.coverage.partial += n % 9;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
