//! What a person sees at a terminal and a program does not: colours, progress, a page at the end of the demo.

use pgassay_tests::cluster::{Cluster, send};
use pgassay_tests::http::get;
use pgassay_tests::tools::{binary, root};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Runs it under `script`, which gives it a terminal, with these variables.
fn at_a_terminal(arguments: &str, variables: &[(&str, &str)]) -> String {
    let mut script = Command::new("script");
    script
        .args([
            "-qec",
            &format!("{} {arguments}", binary().display()),
            "/dev/null",
        ])
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    let output = script.output().expect("script runs (it is part of util-linux)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn piped(arguments: &[&str]) -> String {
    let output = Command::new(binary())
        .args(arguments)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .expect("pgassay runs");
    let parts = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    parts.concat()
}

#[test]
fn colours_are_for_terminals_and_for_those_who_want_them() {
    let journal = root().join("tests/histories/workloads/transfers-wrong");
    let journal = journal.display().to_string();
    let check = format!("check {journal}");
    let told = at_a_terminal(&check, &[]);
    assert!(told.contains("\x1b[1;31m✗ "), "{told}");
    let told = at_a_terminal(&check, &[("NO_COLOR", "1")]);
    assert!(told.contains("✗ ") && !told.contains("\x1b["), "{told}");
    let told = piped(&["check", &journal]);
    assert!(told.contains("✗ ") && !told.contains("\x1b["), "{told}");
}

#[test]
fn progress_is_shown_to_whoever_watches() {
    let cluster = Cluster::start().expect("a server");
    let workload = |more: &str| {
        format!(
            "workload bank --target {} --duration 3s --clients 1 {more}",
            cluster.uri()
        )
    };
    let told = at_a_terminal(&workload(""), &[]);
    assert!(told.contains('█') && told.contains("transactions"), "{told}");
    let arguments = workload("--replace");
    let told = piped(&arguments.split_whitespace().collect::<Vec<_>>());
    assert!(
        !told.contains('█') && !told.contains('\r') && !told.contains('\x1b'),
        "{told}"
    );
    assert!(told.contains("consistency checks: all"), "{told}");
}

#[test]
fn the_demo_ends_by_itself_where_nobody_watches() {
    let told = piped(&["demo", "--fast"]);
    for words in [
        "Nothing to report.",
        "2. The same bank at READ COMMITTED",
        "Audit your own traffic:",
    ] {
        assert!(told.contains(words), "{words} in\n{told}");
    }
    assert!(!told.contains('\x1b') && !told.contains("Ctrl-C"), "{told}");
}

#[test]
fn the_demo_shows_its_page_until_it_is_ended() {
    let mut demo = Command::new(binary())
        .args(["demo", "--fast", "--page", "--set", "admin.listen=127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("pgassay runs");
    let mut lines = BufReader::new(demo.stdout.take().expect("a pipe"));
    let address: SocketAddr = loop {
        let mut line = String::new();
        assert_ne!(
            lines.read_line(&mut line).expect("it speaks"),
            0,
            "it ended early"
        );
        if let Some(address) = line.trim().strip_prefix("look at   http://") {
            break address.parse().expect("an address");
        }
    };
    assert!(get(address, "/", &[]).body.contains("<title>pgassay</title>"));
    let live = get(address, "/api/live", &[]).json();
    assert_eq!(live["claim"], "serializable");
    let listen = live["listen"][0].as_str().expect("an address");
    assert!(!listen.ends_with(":0"), "the port that was chosen: {listen}");
    send("INT", demo.id());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("it speaks");
    assert!(rest.contains("the server and its data are gone"), "{rest}");
    assert_eq!(demo.wait().expect("it ends").code(), Some(0));
}
