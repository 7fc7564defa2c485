//! The program from outside: exit codes, help, configuration, signals.

mod started;

use started::{Proxy, next_line, pgassay};
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    pgassay().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["no-such-command"][..],
        &["proxy", "--no-such-flag"],
        &["--config", "/no/such/file", "config", "show"],
        &["--set", "no.such.key=1", "config", "show"],
        &["--set", "upstream", "config", "show"],
        &["--set", "proxy.threads=many", "config", "show"],
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn help_names_every_command_and_examples() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    for word in [
        "proxy",
        "run",
        "check",
        "trace",
        "workload",
        "demo",
        "explain",
        "replay",
        "doctor",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(run(&["help", "proxy"]).status.success());
    assert!(text(&run(&["--version"]).stdout).starts_with("pgassay "));
}

#[test]
fn completions_and_manual_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            text(&run(&["completions", shell]).stdout).contains("pgassay"),
            "{shell}"
        );
    }
    assert!(text(&run(&["man"]).stdout).contains(".TH pgassay"));
    let dir = tempfile::tempdir().unwrap();
    assert!(
        run(&["man", "--dir", dir.path().to_str().unwrap()])
            .status
            .success()
    );
    assert!(dir.path().join("pgassay-proxy.1").exists());
}

#[test]
fn config_show_names_values_and_origins() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"upstream = 'db:1'\n[journal]\nflush_ms = 9\n")
        .unwrap();
    let path = file.path().to_str().unwrap();
    let output = pgassay()
        .args([
            "--config",
            path,
            "config",
            "show",
            "--json",
            "--set",
            "proxy.threads=3",
        ])
        .env("PGASSAY_UPSTREAM", "postgresql://me:secret@db:2")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["upstream"]["origin"], "$PGASSAY_UPSTREAM");
    assert_eq!(shown["upstream"]["value"], "postgresql://me:***@db:2");
    assert_eq!(
        (
            &shown["journal.flush_ms"]["value"],
            shown["journal.flush_ms"]["origin"].as_str()
        ),
        (&9.into(), Some(path))
    );
    assert_eq!(shown["proxy.threads"]["origin"], "--set");
    assert_eq!(shown["proxy.drain_seconds"]["origin"], "default");
    let plain = pgassay()
        .args(["--config", path, "config", "show"])
        .output()
        .unwrap();
    assert!(
        text(&plain.stdout)
            .lines()
            .any(|line| line.starts_with("journal.flush_ms = 9") && line.contains(path))
    );
}

#[test]
fn an_unknown_key_of_the_file_names_the_nearest() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[jurnal]\ndir = 'x'\n").unwrap();
    let output = run(&["--config", file.path().to_str().unwrap(), "config", "show"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("did you mean `journal.dir`"),
        "{}",
        text(&output.stderr)
    );
}

/// In front of nothing.
const NOWHERE: &str = "127.0.0.1:1";

#[test]
fn sigterm_ends_in_order() {
    let mut proxy = Proxy::start(NOWHERE, &[]);
    proxy.signal("TERM");
    next_line(&mut proxy.log, "ended");
    assert_eq!(proxy.child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", proxy.port)).is_err());
}

#[test]
fn sighup_reads_the_configuration_again() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[proxy]\nconnections_max = 0\n").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let upstream = server.local_addr().unwrap().to_string();
    let mut proxy = Proxy::start(
        NOWHERE,
        &["--config", &path, "--set", &format!("upstream={upstream}")],
    );
    let ask = |port: u16| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"\0\0\0\x10\0\x03\0\0user\0x\0\0").unwrap();
        stream
    };
    let mut refusal = String::new();
    ask(proxy.port).read_to_string(&mut refusal).unwrap();
    assert!(refusal.contains("53300"), "{refusal}");

    // A file that makes no sense changes nothing.
    std::fs::write(&path, "[proxy]\nconnections_max = 'many'\n").unwrap();
    proxy.signal("HUP");
    next_line(&mut proxy.log, "old configuration stays");
    std::fs::write(&path, "[proxy]\nconnections_max = 5\n").unwrap();
    proxy.signal("HUP");
    next_line(&mut proxy.log, "was read again");
    let _client = ask(proxy.port);
    // The packet arrives at the server (after the proxy's own look whether it is there).
    for stream in server.incoming() {
        let mut packet = Vec::new();
        stream.unwrap().take(16).read_to_end(&mut packet).unwrap();
        if packet == b"\0\0\0\x10\0\x03\0\0user\0x\0\0" {
            break;
        }
    }
}

#[test]
fn an_address_in_use_is_a_clear_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&[
        "proxy",
        "--listen",
        &address,
        "--set",
        "admin.listen=",
        "--set",
        "side.enabled=false",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("is another program using it?"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    let mut child = pgassay()
        .arg("demo")
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let line = next_line(&mut said, "it listens on");
    let (address, dir) = line
        .trim()
        .strip_prefix("it listens on ")
        .and_then(|rest| rest.split_once(", its data are in "))
        .unwrap();
    assert!(TcpStream::connect(address).is_ok() && std::path::Path::new(dir).exists());
    next_line(&mut said, "1. A bank");
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    next_line(&mut said, "the server and its data are gone");
    assert!(child.wait().unwrap().code().is_some(), "it ends by itself");
    assert!(TcpStream::connect(address).is_err() && !std::path::Path::new(dir).exists());
}
