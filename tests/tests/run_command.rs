//! `pgassay run` and its neighbours from outside: the environment, the exit codes, and that nothing is left.

use pgassay_tests::certificates::Certificates;
use pgassay_tests::cluster::{Cluster, Options, send};
use pgassay_tests::lost;
use pgassay_tests::tools::{binary, root};
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
        (
            &["run", "--junit", "/nowhere/junit.xml", "--", "true"],
            "its directory does not exist",
        ),
        (
            &["run", "--upstream", "http://db", "--", "true"],
            "HOST:PORT, the path of a socket, or a postgresql:// URI",
        ),
        (&["explain", "lost_updat"], "did you mean lost_update?"),
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

/// One psql that looks twice, and starts another in between, which changes what it looks at: read skew, if a snapshot had
/// been promised. Every program of it finds the proxy in its environment.
fn looks_twice(cluster: &Cluster, dir: &Path) -> String {
    let file = dir.join("twice.sql");
    let script = "create table account (id int primary key, balance int);\n\
         insert into account values (1, 100);\n\
         begin;\n\
         select balance from account where id = 1;\n\
         \\! psql -XAtqc 'update account set balance = 90 where id = 1'\n\
         select balance from account where id = 1;\n\
         commit;\n";
    std::fs::write(&file, script).unwrap();
    let psql = cluster.program("psql");
    let bin = psql.parent().expect("a folder of programs").display();
    format!(
        "PATH={bin}:$PATH psql -XAtq -v ON_ERROR_STOP=1 -f {}",
        file.display()
    )
}

#[test]
fn a_violation_fails_the_run_and_is_in_every_report() {
    let cluster = Cluster::start().expect("a server");
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).display().to_string();
    let command = looks_twice(&cluster, dir.path());
    let uri = cluster.uri();
    let run = ["run", "--upstream", &uri, "--set", "audit.writers=exclusive"];
    let claim = ["--claim", "repeatable-read", "--min-coverage", "90%"];
    let reports = [
        "--json-file",
        &place("r.json"),
        "--junit",
        &place("r.xml"),
        "--sarif",
        &place("r.sarif"),
        "--html",
        &place("r.html"),
        "--markdown",
        &place("r.md"),
        "--write-baseline",
        &place("known"),
    ];
    let sh = ["--", "sh", "-c", &command];
    let (code, out, err) = output(&[&run[..], &claim, &reports, &sh].concat());
    assert_eq!(code, 1, "{out}{err}");
    for words in [
        "✗ read_skew at repeatable-read",
        "answered  t1 «select balance from account where id = 1» → (90)",
        "what now  pgassay explain read_skew  ",
        "✗ 1 violation",
    ] {
        assert!(out.contains(words), "{words} in\n{out}");
    }
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read("r.json")).expect("JSON");
    assert_eq!(json["violations"][0]["rule"], "read_skew");
    let levels = json["coverage"]["levels"].as_object().expect("levels").keys();
    assert_eq!(levels.collect::<Vec<_>>(), ["read-committed"]);
    // Two suites were asked for, by the traffic and by the claim; the third says that it was not.
    let junit = read("r.xml");
    assert_eq!(junit.matches("<failure").count(), 1, "{junit}");
    assert_eq!(
        junit.matches("no statement was judged at this level").count(),
        pgassay_rules::CATALOGUE.len(),
        "{junit}"
    );
    assert!(read("r.sarif").contains("1 of 1 violations are not listed"));
    assert!(read("r.html").contains("read_skew") && read("r.md").contains("read_skew"));

    // Known already, or allowed, or not asked for: the same run passes. Each time from an empty database.
    let again = format!(
        "PATH={}:$PATH",
        cluster.program("psql").parent().unwrap().display()
    );
    let again = format!("{again} psql -XAtqc 'drop table account' && {command}");
    let sh = ["--", "sh", "-c", &again];
    let (code, out, err) = output(&[&run[..], &claim, &["--baseline", &place("known")], &sh].concat());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("1 violation known or allowed"), "{out}");
    let (code, out, err) = output(&[&run[..], &sh].concat());
    assert_eq!(code, 0, "READ COMMITTED allows it: {out}{err}");
    // The command's own failure comes first.
    let failing = format!("{again}; exit 5");
    let sh = ["--", "sh", "-c", &failing];
    assert_eq!(output(&[&run[..], &claim, &sh].concat()).0, 5);
}

/// What the templates for GitHub and GitLab do with their inputs, done here.
#[test]
fn the_templates_of_ci_systems_run_it() {
    let cluster = Cluster::start().expect("a server");
    let dir = tempfile::tempdir().unwrap();
    let command = looks_twice(&cluster, dir.path());
    let (reports, summary) = (dir.path().join("reports"), dir.path().join("summary.md"));
    let github = |inputs: &[(&str, &str)]| {
        let mut step = Command::new(root().join("deploy/github-action/run.sh"));
        step.env("INPUT_BINARY", binary())
            .env("INPUT_REPORTS", &reports)
            .env("GITHUB_STEP_SUMMARY", &summary)
            .envs(inputs.iter().copied())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        let output = step.output().expect("the step runs");
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        (output.status.code(), said)
    };
    let (code, said) = github(&[("INPUT_RUN", &command), ("INPUT_UPSTREAM", &cluster.uri())]);
    assert_eq!(code, Some(0), "{said}");
    for file in ["report.json", "junit.xml", "report.sarif", "report.html"] {
        assert!(reports.join(file).exists(), "{file}");
    }
    assert!(
        std::fs::read_to_string(&summary)
            .unwrap()
            .starts_with("## pgassay")
    );
    // A server of its own; a pipe that fails; a rule that does not exist; too little seen.
    let (code, said) = github(&[("INPUT_RUN", "false | true")]);
    assert_eq!(code, Some(1), "{said}");
    let (code, said) = github(&[("INPUT_RUN", "true"), ("INPUT_ALLOW", "phantom lost_updates")]);
    assert_eq!(
        (code, said.contains("no rule «lost_updates»")),
        (Some(2), true),
        "{said}"
    );
    let (code, said) = github(&[("INPUT_RUN", "true"), ("INPUT_MIN_COVERAGE", "0.5")]);
    assert_eq!(
        (code, said.contains("::warning title=pgassay coverage::")),
        (Some(3), true),
        "{said}"
    );

    let python = pgassay_tests::deps::find("validators")
        .expect("deploy/setup.sh test")
        .join("bin/python");
    let print =
        "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1]))['.pgassay'], sys.stdout)";
    let template = root().join("deploy/gitlab/pgassay.gitlab-ci.yml");
    let job = Command::new(python)
        .args(["-c", print])
        .arg(template)
        .output()
        .expect("Python runs");
    let job: serde_json::Value = serde_json::from_slice(&job.stdout).expect("the template is YAML");
    let lines: Vec<&str> = job["script"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|l| l.as_str())
        .collect();
    let variables = job["variables"].as_object().unwrap().iter();
    let again = format!(
        "PATH={}:$PATH psql -XAtqc 'drop table account' && {command}",
        cluster.program("psql").parent().unwrap().display()
    );
    let path = format!(
        "{}:{}",
        binary().parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let done = Command::new("sh")
        .args(["-ec", &lines.join("\n")])
        .current_dir(dir.path())
        .envs(variables.map(|(name, value)| (name, value.as_str().expect("a text"))))
        .env("PGASSAY_RUN_UPSTREAM", cluster.uri())
        .env("PGASSAY_RUN_MIN_COVERAGE", "0.9")
        .env("PGASSAY_RUN_COMMAND", again)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    assert!(done.status.success(), "{done:?}");
    assert!(
        done.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(dir.path().join("pgassay-reports/junit.xml").exists());
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
    let (code, out, err) = output(&["explain", "lost_update"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("## What to do"), "{out}");
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
    for words in [
        "✓ clients speak without TLS, on this machine only",
        "✓ authentication is passed through",
        "✓ the server is spoken to without TLS (sslmode=disable)",
        "✓ the admin address 127.0.0.1:0 can be reached from this machine only",
        "sessions that bypass the proxy can be seen",
        "✓ nobody is connected past the proxy now",
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

/// Every line that a set-up can earn with TLS, users, a role with few rights, a stranger, and tables of all kinds.
#[test]
fn the_doctor_looks_at_everything() {
    let ours = Certificates::make("server");
    let cluster = Cluster::start_with(Options::default().tls(&ours)).expect("a server");
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).display().to_string();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stranger = runtime.block_on(async {
        let stranger = lost::connect(&cluster.uri()).await;
        let tables = "create table plain (id int primary key); create table keyless (id int); \
             create table hidden (id int primary key); create table veiled (id int primary key); \
             alter table veiled enable row level security; \
             create function f() returns trigger language plpgsql as 'begin return new; end'; \
             create trigger t before insert on plain for each row execute function f(); \
             create role reader login; grant select on plain, keyless, veiled to reader";
        stranger.batch_execute(tables).await.expect("tables");
        stranger
    });
    std::fs::write(place("users"), "\"app\" \"secret\"\n").unwrap();
    let address = cluster.address();
    let doctor = |uri: &str, set: &[String]| {
        let mut words = vec!["doctor".to_owned(), "--upstream".to_owned(), uri.to_owned()];
        for each in set {
            words.extend(["--set".to_owned(), each.clone()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        output(&words)
    };
    let mut set: Vec<String> = vec![
        "listen=127.0.0.1:0".to_owned(),
        "admin.listen=127.0.0.1:0".to_owned(),
        format!("tls.certificate={}", ours.certificate.display()),
        format!("tls.key={}", ours.key.display()),
        "tls.mode=require".to_owned(),
        "auth.mode=terminate".to_owned(),
        format!("auth.users={}", place("users")),
        format!("journal.dir={}", place("journal")),
        "journal.bytes_max=1".to_owned(),
    ];
    let root = ours.authority.display();
    let checked = format!("postgresql://reader@{address}/postgres?sslmode=verify-full&sslrootcert={root}");
    let (code, out, err) = doctor(&checked, &set);
    assert_eq!(code, 0, "{out}{err}");
    for words in [
        "✓ clients must use TLS; the certificate and its key fit",
        "✓ clients prove themselves to pgassay: 1 in the user list",
        "✓ the journal can be written in",
        "MiB are free there",
        "✓ the server is spoken to in TLS, its certificate is checked (sslmode=verify-full)",
        "the side connection is reader",
        "! sessions of other users cannot be seen",
        "GRANT pg_read_all_stats TO reader",
        "! 1 tables cannot be read by this role",
        "! 1 tables have row security",
        "! 1 tables have triggers",
        "! 1 tables have no primary key",
    ] {
        assert!(out.contains(words), "{words} in\n{out}");
    }
    // The other way round: nobody is checked, and somebody is there.
    let unchecked = format!("postgresql://postgres@{address}/postgres?sslmode=require");
    let (code, out, err) = doctor(&unchecked, &set);
    assert_eq!(code, 0, "{out}{err}");
    for words in [
        "! the server is spoken to in TLS, whoever it is",
        "! sessions are connected to this database already: ",
    ] {
        assert!(out.contains(words), "{words} in\n{out}");
    }
    drop(stranger);

    // What is wrong is told, all of it.
    std::fs::write(place("users"), "nonsense\n").unwrap();
    let other = Certificates::make("other");
    set[3] = format!("tls.key={}", other.key.display());
    set.push("thresholds.fail_on=lost_updates".to_owned());
    set.push("journal.dir=/proc/nowhere".to_owned());
    let wrong = format!(
        "postgresql://reader@{address}/postgres?sslmode=verify-full&sslrootcert={}",
        other.authority.display()
    );
    let (code, out, _) = doctor(&wrong, &set);
    assert_eq!(code, 1, "{out}");
    for words in [
        "✗ there is no rule «lost_updates»",
        "✗ clients cannot be offered TLS",
        "✗ clients cannot be authenticated",
        "✗ the journal cannot be written in /proc/nowhere",
        "cannot be reached",
    ] {
        assert!(out.contains(words), "{words} in\n{out}");
    }
    let nobody = format!("postgresql://nobody@{address}/postgres");
    let (code, out, _) = doctor(
        &nobody,
        &[
            "listen=127.0.0.1:0".to_owned(),
            "admin.listen=127.0.0.1:0".to_owned(),
        ],
    );
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("✗ the side connection cannot log in") && out.contains("Set side.uri"),
        "{out}"
    );
}
