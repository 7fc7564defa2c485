//! The admin address from outside: what it serves, to whom, and what it says to a browser.

use pgassay::admin::{self, Admin};
use pgassay::config::Config;
use pgassay::live::Live;
use pgassay_audit::report::sample;
use pgassay_tests::http::{get, post, try_get};
use pgassay_tests::wait;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_the_proxy() {
    let (live, admin) = serve(|_| ()).await;
    assert_eq!(get(admin.address, "/healthz", &[]).status, 200);
    assert_eq!(get(admin.address, "/readyz", &[]).status, 503);
    live.ready.store(true, Relaxed);
    assert_eq!(get(admin.address, "/readyz", &[]).status, 200);
    live.draining.store(true, Relaxed);
    let response = get(admin.address, "/readyz", &[]);
    assert_eq!((response.status, response.body.as_str()), (503, "draining\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_negotiated() {
    let (_live, admin) = serve(|_| ()).await;
    let plain = get(admin.address, "/metrics", &[]);
    assert!(
        plain
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    assert!(
        plain
            .body
            .contains("pgassay_violations_total{rule=\"lost_update\",level=\"serializable\"} 3\n")
    );
    let open = get(
        admin.address,
        "/metrics",
        &[("Accept", "application/openmetrics-text; version=1.0.0")],
    );
    assert!(
        open.header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    assert!(open.body.ends_with("# EOF\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_tells_what_check_tells() {
    let (_live, admin) = serve(|_| ()).await;
    let summary = get(admin.address, "/api/summary", &[]).json();
    assert_eq!(summary, pgassay_audit::report::json::summary(&sample::summary()));
    let list = get(admin.address, "/api/violations?rule=write_skew", &[]).json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    let id = list[0]["id"].as_str().unwrap();
    let whole = get(admin.address, &format!("/api/violations/{id}"), &[]).json();
    assert_eq!(whole["rule"], "write_skew");
    assert_eq!(whole["statements"].as_array().unwrap().len(), 8);
    assert_eq!(get(admin.address, "/api/violations/v-none", &[]).status, 404);
    let live = get(admin.address, "/api/live", &[]).json();
    assert_eq!(
        (live["violations"].as_u64(), live["distinct_violations"].as_u64()),
        (Some(4), Some(2))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violation_can_be_taken_away() {
    let (_live, admin) = serve(|_| ()).await;
    for (kind, begin) in [
        ("json", "{"),
        ("html", "<!doctype html>"),
        ("svg", "<svg "),
        ("script", "-- Replays"),
        ("spec", "# lost_update"),
        ("text", "✗ lost_update"),
        ("markdown", "### lost_update"),
    ] {
        let response = get(
            admin.address,
            &format!("/api/violations/v-5d1e0c94b7aa-1/{kind}"),
            &[],
        );
        assert_eq!(response.status, 200, "{kind}");
        assert!(
            response.body.starts_with(begin),
            "{kind}: {}",
            &response.body[..40]
        );
        let disposition = response.header("content-disposition").unwrap();
        assert!(
            disposition.starts_with("attachment; filename=\"v-5d1e0c94b7aa-1."),
            "{disposition}"
        );
    }
    assert_eq!(
        get(admin.address, "/api/violations/v-5d1e0c94b7aa-1/exe", &[]).status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_is_told_to_be_strict() {
    let (_live, admin) = serve(|_| ()).await;
    for path in ["/", "/page/app.js", "/api/live", "/metrics", "/nothing"] {
        let response = get(admin.address, path, &[("Origin", "http://elsewhere.example")]);
        let policy = response
            .header("content-security-policy")
            .unwrap_or_else(|| panic!("{path} has no policy"));
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{path}: {policy}"
        );
        assert_eq!(
            response.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        assert_eq!(response.header("access-control-allow-origin"), None, "{path}");
    }
    let page = get(admin.address, "/", &[]).body;
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("style="),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_opens_everything_beyond_health_and_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "correct horse battery\n").unwrap();
    let (_live, admin) = serve(|config| config.admin.token_file = Some(file.clone())).await;
    for path in ["/metrics", "/healthz", "/"] {
        assert_eq!(get(admin.address, path, &[]).status, 200, "{path}");
    }
    for path in [
        "/api/summary",
        "/api/violations",
        "/api/live",
        "/api/violations/v-5d1e0c94b7aa-1/json",
    ] {
        assert_eq!(get(admin.address, path, &[]).status, 401, "{path}");
        let wrong = get(
            admin.address,
            path,
            &[("Authorization", "Bearer correct horse battero")],
        );
        assert_eq!(wrong.status, 401, "{path}");
        assert!(!wrong.body.contains("lost_update"));
        let right = get(
            admin.address,
            path,
            &[("Authorization", "Bearer correct horse battery")],
        );
        assert_eq!(right.status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_name_for_loopback_learns_nothing() {
    let (_live, admin) = serve(|_| ()).await;
    assert_eq!(
        get(admin.address, "/api/summary", &[("Host", "rebound.example")]).status,
        403
    );
    assert_eq!(
        get(admin.address, "/api/summary", &[("Host", "localhost:9632")]).status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_other_addresses_serve_numbers_only() {
    let (_live, admin) = serve(|config| config.admin.listen = Some("0.0.0.0:0".to_owned())).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], admin.address.port()));
    assert_eq!(get(address, "/metrics", &[]).status, 200);
    assert_eq!(get(address, "/api/summary", &[]).status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_the_proxy() {
    let (_live, admin) = serve(|_| ()).await;
    let address = admin.address;
    drop(admin);
    wait::until("it answers no more", || {
        try_get(address, "/healthz", &[]).is_err()
    });
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

#[tokio::test(flavor = "multi_thread")]
async fn the_editor_has_an_example_of_every_rule() {
    let (_live, admin) = serve(|_| ()).await;
    let groups = get(admin.address, "/api/examples", &[]).json();
    let anomalies = groups[0]["stories"].as_array().unwrap();
    for rule in pgassay_rules::anomaly::CATALOGUE {
        let found = anomalies.iter().find(|story| story["name"] == rule.name);
        let story = found.unwrap_or_else(|| panic!("no example of {}", rule.name));
        assert!(!story["about"].as_str().unwrap().is_empty(), "{}", rule.name);
        let mut lines = story["text"].as_str().unwrap().lines();
        assert!(!lines.any(|line| line.starts_with("expect ")), "{}", rule.name);
    }
    assert!(groups.as_array().unwrap().len() >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_story_is_judged_at_every_level() {
    let (_live, admin) = serve(|_| ()).await;
    let judge = |text: &str| {
        let body = serde_json::json!({ "text": text }).to_string();
        post(admin.address, "/api/judge", &[JSON], &body)
    };
    let story = "init: create table account (id int primary key, balance int)\n\
                 init: insert into account values (1, 100)\n\
                 # t1 looks twice\n\
                 t1: begin\n\
                 t1: select balance from account => (100)\n\
                 t2: update account set balance = 110 => UPDATE 1\n\
                 t1: select balance from account => (110)\n\
                 t1: commit\n";
    let answer = judge(story);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told = answer.json();
    let rules = |told: &serde_json::Value| -> Vec<String> {
        let levels = told["levels"].as_array().unwrap().iter();
        levels
            .map(|level| {
                level["violations"][0]["rule"]
                    .as_str()
                    .unwrap_or("nothing")
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(rules(&told), ["nothing", "read_skew", "read_skew"]);
    assert_eq!(
        told["levels"][1]["lines"],
        serde_json::json!([7]),
        "the line to blame"
    );
    assert_eq!(told["trace"]["statements"].as_array().unwrap().len(), 7);
    let mended = judge(&story.replace("=> (110)", "=> (100)"));
    assert_eq!(rules(&mended.json()), ["stale_read", "nothing", "nothing"]);

    let bad = judge("t1: select 1 => (1)\nnonsense");
    assert_eq!((bad.status, bad.json()["line"].as_u64()), (422, Some(2)));
    let long = judge(&"# nothing\n".repeat(20_000));
    assert_eq!(long.status, 413);
    let body = serde_json::json!({ "text": story }).to_string();
    let form = post(
        admin.address,
        "/api/judge",
        &[("Content-Type", "text/plain")],
        &body,
    );
    assert_eq!(
        form.status, 415,
        "what another site's form can send is not judged"
    );
    let rebound = post(
        admin.address,
        "/api/judge",
        &[JSON, ("Host", "rebound.example")],
        &body,
    );
    assert_eq!(rebound.status, 403);
}
