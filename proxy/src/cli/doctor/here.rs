//! What can be looked at without the database: configuration, addresses, certificates, users, the journal's disk.

use super::{Line, bad, good, note};
use crate::cli::check;
use crate::config::{AuthMode, Config, Redact, TlsMode};
use crate::upstream::{SslMode, Upstream};
use crate::{record, serve, webhook};
use pgassay_audit::report::gate::Gate;
use pgassay_audit::report::text::grouped;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;

pub(super) fn configuration(config: &Config) -> Vec<Line> {
    let mut lines = Vec::new();
    let sensible = record::settings(config).map_err(|error| format!("{error:#}"));
    match sensible.and_then(|settings| check::is_sensible(&settings).map_err(|error| error.to_string())) {
        Ok(()) => {
            let claim = config.audit.claim.as_deref().map_or(String::new(), |level| {
                format!(", everything judged as {level} too")
            });
            lines.push(good(format!(
                "the configuration makes sense: profile {}{claim}",
                config.audit.profile
            )));
        }
        Err(error) => lines.push(bad(
            error,
            "Set audit.profile and audit.claim to names that exist.",
        )),
    }
    if let Err(error) = Gate::new(&config.thresholds.fail_on, &config.thresholds.allow) {
        lines.push(bad(error.to_string(), "Correct [thresholds]."));
    }
    if config.record_only {
        lines.push(note(
            "record_only is set: nothing is judged",
            "Judge later with `pgassay check`, or unset it.",
        ));
    }
    lines
}

pub(super) fn addresses(config: &Config) -> Vec<Line> {
    let mut lines = Vec::new();
    for listen in config.listen.iter().filter(|address| !address.starts_with('/')) {
        lines.push(match TcpListener::bind(listen) {
            Ok(_) => good(format!("clients can be listened for on {listen}")),
            Err(error) => bad(
                format!("{listen} cannot be listened on: {error}"),
                "Another program (or a pgassay that runs already) has it: choose another `listen`.",
            ),
        });
    }
    if let Some(listen) = &config.admin.listen {
        let loopback = is_loopback(listen);
        lines.push(match TcpListener::bind(listen) {
            Err(error) => bad(
                format!("the admin address {listen} cannot be listened on: {error}"),
                "Choose another admin.listen.",
            ),
            Ok(_) if loopback => good(format!(
                "the admin address {listen} can be reached from this machine only"
            )),
            Ok(_) if config.admin.token_file.is_some() || config.admin.client_ca.is_some() => good(format!(
                "the admin address {listen} asks for a token or a certificate"
            )),
            Ok(_) => note(
                format!("the admin address {listen} will serve health and metrics only"),
                "It is not loopback: set admin.token_file (or admin.client_ca) to see violations there.",
            ),
        });
    }
    lines
}

/// TLS on the side of the clients; that of the server is seen when it is asked.
pub(super) fn tls(config: &Config) -> Vec<Line> {
    let beyond = config
        .listen
        .iter()
        .any(|listen| !listen.starts_with('/') && !is_loopback(listen));
    let mode = config.tls.mode;
    vec![match serve::identity(config) {
        Err(error) => bad(
            format!("clients cannot be offered TLS: {error:#}"),
            "Set tls.certificate and tls.key to PEM files that belong together and that pgassay may read.",
        ),
        Ok(None) if beyond => note(
            "clients of other machines speak in the clear (tls.mode = \"disable\")",
            "Set tls.mode, tls.certificate and tls.key, unless the network itself is trusted.",
        ),
        Ok(None) => good("clients speak without TLS, on this machine only"),
        Ok(Some(_)) if mode == TlsMode::Require => {
            good("clients must use TLS; the certificate and its key fit")
        }
        Ok(Some(_)) => good("clients may use TLS; the certificate and its key fit"),
    }]
}

pub(super) fn authentication(config: &Config) -> Vec<Line> {
    let users = match (config.auth.mode, serve::users(config)) {
        (_, Err(error)) => {
            return vec![bad(
                format!("clients cannot be authenticated: {error:#}"),
                "Set auth.users to a list of \"user\" \"password\" lines, or auth.mode to \"pass\".",
            )];
        }
        (AuthMode::Pass, Ok(_)) => None,
        (AuthMode::Terminate, Ok(users)) => Some(users),
    };
    let Some(users) = users else {
        let upstream = Upstream::parse(&config.upstream);
        let to_server = upstream.is_ok_and(|upstream| upstream.ssl.mode >= SslMode::Prefer);
        return vec![if to_server && config.tls.mode != TlsMode::Disable {
            note(
                "authentication is passed through with TLS on both sides",
                "SCRAM then needs the server's own certificate here, or channel_binding=disable at the clients, or \
                 auth.mode = \"terminate\" (docs/authentication.md).",
            )
        } else {
            good("authentication is passed through: pgassay never learns a password")
        }];
    };
    vec![match users.is_empty() {
        true => bad(
            "auth.users lists nobody: no client could log in",
            "Write \"user\" \"password\" lines into it, or set auth.mode to \"pass\".",
        ),
        false => good(format!(
            "clients prove themselves to pgassay: {} in the user list",
            users.len()
        )),
    }]
}

fn is_loopback(listen: &str) -> bool {
    let addresses = listen.to_socket_addrs();
    addresses.is_ok_and(|mut all| all.all(|address| address.ip().is_loopback()))
}

pub(super) fn journal(config: &Config) -> Vec<Line> {
    let Some(dir) = &config.journal.dir else {
        return vec![note(
            "no journal is kept",
            "Set journal.dir, so that last night's violation can be looked into this morning.",
        )];
    };
    let mut lines = Vec::new();
    let probe = dir.join(".pgassay-doctor");
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&probe, b"x"));
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) => lines.push(good(format!("the journal can be written in {}", dir.display()))),
        Err(error) => {
            lines.push(bad(
                format!("the journal cannot be written in {}: {error}", dir.display()),
                "Give the directory to the user that runs pgassay.",
            ));
            return lines;
        }
    }
    if let Some(free) = free_bytes(dir) {
        let wanted = if config.journal.bytes_max == 0 {
            10 << 30
        } else {
            config.journal.bytes_max
        };
        let words = format!("{} MiB are free there", grouped(free >> 20));
        lines.push(if free > wanted {
            good(words)
        } else {
            note(
                words,
                format!(
                    "The journal may grow to {} MiB (journal.bytes_max): lower it or make room.",
                    grouped(wanted >> 20)
                ),
            )
        });
    }
    if (config.journal.encrypt || config.journal.redact == Redact::Hash) && config.journal.key_file.is_none()
    {
        lines.push(bad(
            "journal.encrypt and journal.redact need a key",
            "Set journal.key_file to a file of 32 random bytes.",
        ));
    }
    lines
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(dir).ok()?;
    Some(about.f_bavail * about.f_frsize)
}

pub(super) fn hooks(config: &Config) -> Vec<Line> {
    let told = config
        .webhooks
        .iter()
        .enumerate()
        .map(|(n, hook)| match webhook::check(hook) {
            Ok(()) => good(format!("web hook {} ({}) can be used", n + 1, hook.kind)),
            Err(error) => bad(
                format!("web hook {}: {error:#}", n + 1),
                "Correct it under [[webhooks]].",
            ),
        });
    told.collect()
}
