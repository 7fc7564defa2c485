//! `pgassay run -- COMMAND…`: run a command against a proxied database and fail on violations.
//!
//! Exit codes: COMMAND's own when it failed (128 + N when signal N ended it), else 0 nothing wrong, 1 a
//! violation, 2 wrong usage or an unreachable database, 3 too little coverage.
//!
//! Always true: when this returns, the command, what it left behind in its process group, the proxy and the
//! throw-away server have ended.

use super::child::{self, Ended};
use super::{Usage, check, report, wait};
use crate::config::Config;
use crate::record;
use crate::serve::Running;
use crate::throwaway::{self, Throwaway};
use crate::upstream::Upstream;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "COMMAND finds the proxy in PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE and DATABASE_URL.\n\n\
    Examples:\n  \
    pgassay run --upstream postgresql://127.0.0.1/app -- make test\n  \
    pgassay run --postgres 15 --claim serializable --html report.html -- ./integration-tests\n  \
    pgassay run --upstream \"$STAGING\" --env 'JDBC_URL=jdbc:postgresql://{host}:{port}/{database}' -- mvn verify"
)]
pub struct Args {
    /// The database: a postgresql:// URI or HOST:PORT (default: `upstream` of the configuration)
    #[arg(long, value_name = "URI", conflicts_with = "postgres")]
    upstream: Option<String>,
    /// A throw-away server of this major version, or with the programs of this directory («any»: what is found)
    #[arg(long, value_name = "VERSION_OR_PATH")]
    postgres: Option<String>,
    /// Set one more variable; {host} {port} {user} {password} {database} {url} are filled in
    #[arg(long, value_name = "NAME=TEMPLATE")]
    env: Vec<String>,
    /// Keep what was witnessed in this directory
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Serve metrics, API and page meanwhile: HOST:PORT
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// The database profile: postgres, postgres-standby …
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Judge every transaction at this level as well: «would this have been serializable?»
    #[arg(long, value_name = "LEVEL")]
    claim: Option<String>,
    #[command(flatten)]
    report: report::Args,
    /// What to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    let templates = args
        .env
        .iter()
        .map(|text| template(text))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(profile) = args.profile {
        config.audit.profile = profile;
    }
    if args.claim.is_some() {
        config.audit.claim = args.claim;
    }
    let settings = record::settings(&config).map_err(|error| Usage(format!("{error:#}")))?;
    check::is_sensible(&settings)?;
    let reports = args.report.check(&config.thresholds, settings.claim)?;
    // Ctrl-C must find us ready before anything is started that would have to be ended.
    let signals = child::Signals::catch()?;

    let server = match &args.postgres {
        Some(which) => {
            Some(Throwaway::start_from(&server_programs(which)?, &[]).context("the throw-away server")?)
        }
        None => None,
    };
    config.upstream = match (&server, args.upstream) {
        (Some(server), _) => server.uri(),
        (None, Some(upstream)) => upstream,
        (None, None) => config.upstream,
    };
    let upstream = Upstream::parse(&config.upstream).map_err(|error| Usage(format!("{error:#}")))?;
    config.listen = vec!["127.0.0.1:0".to_owned()];
    config.admin.listen = args.admin;
    config.journal.dir = args.journal.or(config.journal.dir);
    // Whoever is still connected after the command has ended is left over.
    config.proxy.drain_seconds = config.proxy.drain_seconds.min(5);

    let connect_seconds = config.proxy.connect_seconds;
    let running = Running::start(config)?;
    is_reachable(&running, connect_seconds)?;
    let place = Place::new(&upstream, running.port().context("the proxy has no port")?);

    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    place.set(&mut command);
    for (name, text) in &templates {
        command.env(name, place.fill(text));
    }
    let ended = child::run(command, &signals)
        .map_err(|error| Usage(format!("cannot run {}: {error}", args.command[0])));
    let live = running.live.clone();
    let left = || {
        let waiting = live.audit_queue_records.load(Relaxed);
        format!("judging what is left: {waiting} records")
    };
    let live = wait::watch(left, || running.stop());
    drop(server);
    let ended = ended?;

    let verdict = reports.tell(&live.summary())?;
    Ok(match ended {
        Ended::Code(0) => ExitCode::from(verdict.exit_code()),
        Ended::Code(code) => {
            eprintln!("pgassay: the command ended with {code}");
            ExitCode::from(code)
        }
        Ended::Signal(signal) => {
            eprintln!("pgassay: the command was ended by signal {signal}");
            ExitCode::from(128u8.saturating_add(signal))
        }
    })
}

fn template(text: &str) -> Result<(String, String), Usage> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Usage(format!("--env {text}: expected NAME=TEMPLATE"))),
    }
}

/// The directory with `initdb` and `postgres`.
pub fn server_programs(which: &str) -> Result<PathBuf, Usage> {
    let has_server = |dir: &Path| dir.join("initdb").is_file() && dir.join("postgres").is_file();
    if which == "any" {
        return throwaway::find_bin().map_err(|error| Usage(format!("{error:#}")));
    }
    let given = PathBuf::from(which);
    let mut places = vec![given.clone(), given.join("bin")];
    if which.bytes().all(|b| b.is_ascii_digit()) {
        places = vec![
            format!("/usr/lib/postgresql/{which}/bin").into(),
            format!("/usr/pgsql-{which}/bin").into(),
            format!("/opt/homebrew/opt/postgresql@{which}/bin").into(),
            format!("/usr/local/opt/postgresql@{which}/bin").into(),
        ];
    }
    let tried: Vec<String> = places.iter().map(|dir| dir.display().to_string()).collect();
    places.into_iter().find(|dir| has_server(dir)).ok_or_else(|| {
        Usage(format!(
            "--postgres {which}: no programs initdb and postgres in {}",
            tried.join(" or ")
        ))
    })
}

fn is_reachable(running: &Running, seconds: u64) -> Result<(), Usage> {
    let deadline = Instant::now() + Duration::from_secs(seconds + 1);
    while !running.live.ready.load(Relaxed) {
        if Instant::now() > deadline {
            let upstream = &running.live.config.load().upstream;
            return Err(Usage(format!(
                "the database {} cannot be reached",
                without_password(upstream)
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// `postgresql://user:secret@host/db` → `postgresql://user@host/db`.
pub fn without_password(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return uri.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((who, host)) => {
            let user = who.split(':').next().unwrap_or("");
            format!("{scheme}://{user}@{host}{}", &rest[end..])
        }
        None => uri.to_owned(),
    }
}

/// How a client reaches the proxy.
struct Place {
    port: u16,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
}

impl Place {
    /// What the URI does not say, the environment may.
    fn new(upstream: &Upstream, port: u16) -> Place {
        let or = |given: &Option<String>, name: &str| given.clone().or_else(|| std::env::var(name).ok());
        Place {
            port,
            user: or(&upstream.user, "PGUSER"),
            password: or(&upstream.password, "PGPASSWORD"),
            database: or(&upstream.database, "PGDATABASE"),
        }
    }

    fn set(&self, command: &mut Command) {
        // These would lead past the proxy, or ask it for a TLS that this hop does not need.
        for name in [
            "PGHOSTADDR",
            "PGSERVICE",
            "PGSERVICEFILE",
            "PGSSLMODE",
            "PGSSLROOTCERT",
            "PGREQUIRESSL",
        ] {
            command.env_remove(name);
        }
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("DATABASE_URL", self.url());
        for (name, value) in [
            ("PGUSER", &self.user),
            ("PGPASSWORD", &self.password),
            ("PGDATABASE", &self.database),
        ] {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
    }

    fn url(&self) -> String {
        let user = self.user.as_deref().map(escape).unwrap_or_default();
        let password = self
            .password
            .as_deref()
            .map(|p| format!(":{}", escape(p)))
            .unwrap_or_default();
        let at = if user.is_empty() && password.is_empty() {
            ""
        } else {
            "@"
        };
        let database = self.database.as_deref().map(escape).unwrap_or_default();
        format!(
            "postgresql://{user}{password}{at}127.0.0.1:{}/{database}",
            self.port
        )
    }

    fn fill(&self, template: &str) -> String {
        let plain = |value: &Option<String>| value.clone().unwrap_or_default();
        template
            .replace("{host}", "127.0.0.1")
            .replace("{port}", &self.port.to_string())
            .replace("{user}", &plain(&self.user))
            .replace("{password}", &plain(&self.password))
            .replace("{database}", &plain(&self.database))
            .replace("{url}", &self.url())
    }
}

/// Percent-encodes what may not stand in a part of a URI.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let word = |text: &str| Some(text.to_owned());
        Place {
            port: 7000,
            user: word("app"),
            password: word("p@ss:/"),
            database: word("shop"),
        }
    }

    #[test]
    fn a_command_is_told_where_the_proxy_is() {
        assert_eq!(place().url(), "postgresql://app:p%40ss%3A%2F@127.0.0.1:7000/shop");
        assert_eq!(
            place().fill("jdbc:postgresql://{host}:{port}/{database}?user={user}"),
            "jdbc:postgresql://127.0.0.1:7000/shop?user=app"
        );
        let bare = Place {
            port: 1,
            user: None,
            password: None,
            database: None,
        };
        assert_eq!(bare.url(), "postgresql://127.0.0.1:1/");
    }

    #[test]
    fn passwords_are_not_told() {
        assert_eq!(
            without_password("postgresql://a:b@h:1/d?x=y@z"),
            "postgresql://a@h:1/d?x=y@z"
        );
        assert_eq!(without_password("127.0.0.1:5432"), "127.0.0.1:5432");
        assert_eq!(without_password("postgres://h/d"), "postgres://h/d");
    }

    #[test]
    fn a_server_that_is_not_there_is_wrong_usage() {
        let error = server_programs("3").unwrap_err().to_string();
        assert!(error.contains("/usr/lib/postgresql/3/bin"), "{error}");
    }
}
