//! `pgassay run` and its neighbours from outside: the environment, the exit codes, and that nothing is left.

use pgassay_tests::cluster::{Cluster, send};
use pgassay_tests::lost;
use pgassay_tests::tools::binary;
use pgassay_tests::wait;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn pgassay(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

fn output(arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = pgassay(arguments).output().expect("pgassay runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

fn is_alive(pid: &str) -> bool {
    // A process that nobody has waited for yet is dead all the same.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn the_command_finds_the_proxy_and_its_code_is_ours() {
    let cluster = Cluster::start().expect("a server");
    let upstream = format!("postgresql://postgres:p%40ss@{}/postgres", cluster.address());
    let run = [
        "run",
        "--upstream",
        &upstream,
        "--env",
        "JDBC=jdbc:postgresql://{host}:{port}/{database}",
        "--quiet",
        "--",
    ];
    let with = |command: &[&str]| output(&[&run[..], command].concat());

    let (code, out, err) = with(&[
        "sh",
        "-c",
        "echo \"$PGHOST $PGUSER $PGPASSWORD $PGDATABASE $DATABASE_URL $JDBC\"; echo $PGPORT",
    ]);
    assert_eq!(code, 0, "{err}");
    let mut lines = out.lines();
    let (first, port) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(
        first,
        format!(
            "127.0.0.1 postgres p@ss postgres postgresql://postgres:p%40ss@127.0.0.1:{port}/postgres jdbc:postgresql://127.0.0.1:{port}/postgres"
        )
    );
    assert_ne!(port, cluster.port().to_string());
    assert_eq!(with(&["sh", "-c", "exit 7"]).0, 7);
    let (code, _, err) = with(&["sh", "-c", "kill -9 $$"]);
    assert_eq!((code, err.contains("ended by signal 9")), (137, true), "{err}");
    let (code, _, err) = with(&["no-such-program-anywhere"]);
    assert_eq!(
        (code, err.contains("cannot run no-such-program-anywhere")),
        (2, true),
        "{err}"
    );

    let psql = cluster.program("psql").display().to_string();
    let (code, out, err) = with(&[&psql, "-XAtc", "select 40 + 2"]);
    assert_eq!((code, out.trim()), (0, "42"), "{err}");
}

#[test]
fn mistakes_are_told_before_anything_starts() {
    for (arguments, words) in [
        (
            &["run", "--fail-on", "lost_updates", "--", "true"][..],
            "no rule «lost_updates»",
        ),
        (
            &["run", "--claim", "best", "--", "true"],
            "no isolation level «best»",
        ),
        (
            &["run", "--profile", "oracel", "--", "true"],
            "no built-in profile",
        ),
        (
            &["run", "--min-coverage", "95", "--", "true"],
            "min-coverage is a share",
        ),
        (
            &["run", "--env", "NOTHING", "--", "true"],
            "expected NAME=TEMPLATE",
        ),
        (
            &["run", "--postgres", "3", "--", "true"],
            "/usr/lib/postgresql/3/bin",
        ),
        (
            &["run", "--baseline", "/nowhere/known", "--", "true"],
            "cannot read the baseline",
        ),
        (&["check", "/nowhere/journal"], "/nowhere/journal"),
        (&["check", "/etc/passwd"], "/etc/passwd"),
        (&["run"], "COMMAND"),
    ] {
        let (code, out, err) = output(arguments);
        assert_eq!(code, 2, "{arguments:?}: {out}{err}");
        assert!(err.contains(words), "{arguments:?}: {err}");
    }
}

#[test]
fn a_throw_away_server_comes_and_goes_and_silence_is_not_coverage() {
    let run = ["run", "--postgres", "any", "--min-coverage", "50%", "--"];
    let (code, out, err) = output(&[&run[..], &["sh", "-c", "echo $PGPORT"]].concat());
    assert_eq!(code, 3, "nothing was seen: {out}{err}");
    assert!(out.contains("too little was checked"), "{out}");
}

#[test]
fn nothing_is_left_running() {
    let cluster = Cluster::start().expect("a server");
    let uri = cluster.uri();
    let (code, out, err) = output(&[
        "run",
        "--upstream",
        &uri,
        "--quiet",
        "--",
        "sh",
        "-c",
        "sleep 1000 & echo $!",
    ]);
    assert_eq!(code, 0, "{err}");
    // What was killed may take a moment to be gone; by itself it would stay for longer than anybody waits here.
    wait::until("the command's child is gone", || !is_alive(out.trim()));

    for (signal, wanted) in [("INT", 130), ("TERM", 143)] {
        let script = "echo $$; sleep 1000 & wait";
        let mut child = pgassay(&["run", "--upstream", &uri, "--quiet", "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("pgassay runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .expect("the command speaks");
        send(signal, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(wanted), "{signal}");
        wait::until("the command is gone", || !is_alive(line.trim()));
    }
}

/// One recorded violation, looked at in every way.
#[test]
fn a_violation_is_told_the_same_everywhere() {
    let cluster = Cluster::start().expect("a server");
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let kept = journal.clone();
    let proxy = pgassay_tests::proxy::Proxy::start_with(&cluster.address(), move |config| {
        config.journal.dir = Some(kept);
        config.admin.listen = Some("127.0.0.1:0".to_owned());
        config.audit.claim = Some("serializable".to_owned());
        config.audit.writers = pgassay::config::Writers::Exclusive;
    });
    lost::both(&proxy.uri());
    let live = proxy.stop();
    let found = live.violations();
    assert_eq!(
        found.iter().map(|v| v.rule.as_str()).collect::<Vec<_>>(),
        ["lost_update"]
    );
    let id = found[0].id.clone();

    looked_into(&journal, &id, dir.path());
    replayed(&journal, &id, dir.path(), &cluster.uri());
}

fn looked_into(journal: &Path, id: &str, dir: &Path) {
    let journal = journal.display().to_string();
    let known = dir.join("known").display().to_string();
    let place = |name: &str| dir.join(name).display().to_string();
    let check = ["check", &journal, "--claim", "serializable"];
    let with = |more: &[&str]| output(&[&check[..], more].concat());

    assert_eq!(output(&["check", &journal]).0, 0, "READ COMMITTED allows it");
    let (code, out, _) = with(&[
        "--html",
        &place("r.html"),
        "--junit",
        &place("r.xml"),
        "--write-baseline",
        &known,
    ]);
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("✗ lost_update at serializable") && out.contains(id),
        "{out}"
    );
    assert!(std::fs::read_to_string(dir.join("r.html")).unwrap().contains(id));
    assert!(
        std::fs::read_to_string(dir.join("r.xml"))
            .unwrap()
            .contains("<failure")
    );
    assert_eq!(with(&["--allow", "lost_update"]).0, 0);
    assert_eq!(with(&["--fail-on", "phantom"]).0, 0);
    assert_eq!(with(&["--baseline", &known]).0, 0);

    let reports: Vec<String> = ["1", "2", "8"]
        .iter()
        .map(|n| with(&["--json", "--workers", n]).1)
        .collect();
    assert!(
        reports.iter().all(|report| *report == reports[0]),
        "the number of workers changes nothing"
    );
    let json: serde_json::Value = serde_json::from_str(&reports[0]).expect("pure JSON");
    assert_eq!(json["violations"][0]["id"], id);

    let (code, out, err) = output(&["explain", id, "--journal", &journal, "--claim", "serializable"]);
    assert_eq!(code, 0, "{err}");
    for words in ["✗ lost_update at serializable", "t1: ", "permutation t1_1"] {
        assert!(out.contains(words), "{words} in {out}");
    }
    let (code, _, err) = output(&[
        "explain",
        "v-none",
        "--journal",
        &journal,
        "--claim",
        "serializable",
    ]);
    assert_eq!((code, err.contains(id)), (2, true), "{err}");

    let summary = dir.join("summary.md");
    let github = pgassay(&[&check[..], &["--github", "--quiet"]].concat())
        .env("GITHUB_STEP_SUMMARY", &summary)
        .output()
        .expect("pgassay runs");
    assert!(String::from_utf8_lossy(&github.stderr).contains("::error title=lost_update at serializable::"));
    assert!(
        std::fs::read_to_string(summary)
            .unwrap()
            .contains("### lost_update at serializable")
    );
}

/// The script shows the violation again, judged at the level that was claimed, and not at the one that allows it.
fn replayed(journal: &Path, id: &str, dir: &Path, upstream: &str) {
    let journal = journal.display().to_string();
    let (_, script, _) = output(&[
        "explain",
        id,
        "--journal",
        &journal,
        "--claim",
        "serializable",
        "--format",
        "script",
    ]);
    let file = dir.join("again.script");
    std::fs::write(&file, script).unwrap();
    let file = file.display().to_string();
    let (code, out, err) = output(&["replay", &file, "--postgres", "any"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(
        out.contains("it showed again: lost_update at serializable"),
        "{out}"
    );
    let (code, out, err) = output(&["replay", &file, "--postgres", "any", "--claim", "read-committed"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("lost_update did not show"), "{out}");
    let nonsense = dir.join("nonsense").display().to_string();
    std::fs::write(&nonsense, "this is no script\n").unwrap();
    let (code, _, err) = output(&["replay", &nonsense, "--upstream", upstream]);
    assert_eq!((code, err.contains("line 1")), (2, true), "{err}");
}

#[test]
fn the_doctor_says_what_to_do() {
    let cluster = Cluster::start().expect("a server");
    let free = ["--set", "listen=127.0.0.1:0", "--set", "admin.listen=127.0.0.1:0"];
    let uri = cluster.uri();
    let (code, out, err) = output(&[&["doctor", "--upstream", &uri][..], &free].concat());
    assert_eq!(code, 0, "{out}{err}");
    for words in [
        "✓ the configuration makes sense",
        "answers (",
        "✓ PostgreSQL ",
        "clock agrees",
        "0 tables",
        "no journal is kept",
    ] {
        assert!(out.contains(words), "{words} in\n{out}");
    }
    let nowhere = format!("127.0.0.1:{}", pgassay_tests::cluster::free_port().unwrap());
    let more = [
        "--set",
        "audit.profile=postgrse",
        "--set",
        "admin.listen=0.0.0.0:0",
    ];
    let (code, out, _) = output(&[&["doctor", "--upstream", &nowhere][..], &free, &more].concat());
    assert_eq!(code, 1, "{out}");
    for words in [
        "✗ ",
        "cannot be reached",
        "Is the server running",
        "health and metrics only",
    ] {
        assert!(out.contains(words), "{words} in\n{out}");
    }
}
