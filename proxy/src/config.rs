//! The configuration: what every knob is called, what it is by default, and who set it.
//!
//! In: defaults < TOML file < environment (`PGASSAY_…`) < flags. Out: one [`Config`] and, for every key,
//! its [`Origin`].
//!
//! Always true:
//!   - every key has a default, so `pgassay config show` lists them all;
//!   - a key of the file or of `--set` that does not exist is an error that names the nearest one;
//!   - the environment variable of a key is `PGASSAY_` and the key in capitals with `_` for `.`:
//!     `journal.dir` is `PGASSAY_JOURNAL_DIR`. An unknown variable is a warning only, because others set
//!     such names too (Kubernetes gives every pod `PGASSAY_PORT` beside a service called pgassay).

mod load;
mod nearest;

pub use load::{Loaded, Origin, Override};

use pgassay_audit::explain::limits::Limits;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Where clients connect: `HOST:PORT`, `[V6]:PORT` or the path of a unix socket; several are allowed.
    pub listen: Vec<String>,
    /// The database: `HOST:PORT`, the path of a socket, or a `postgresql://` URI (with `sslmode`).
    pub upstream: String,
    /// Record without auditing.
    pub record_only: bool,
    /// `off`, or `inject`: the xid is asked for along with every COMMIT, on a server with
    /// `track_commit_timestamp`.
    pub commit_timestamps: CommitTimestamps,
    pub proxy: Proxy,
    pub tls: Tls,
    pub auth: Auth,
    pub capture: Capture,
    pub journal: Journal,
    pub audit: Audit,
    pub side: Side,
    pub admin: Admin,
    pub thresholds: Thresholds,
    /// Where violations are sent directly.
    pub webhooks: Vec<Webhook>,
    pub log: Log,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitTimestamps {
    /// Nothing changes on the wire.
    #[default]
    Off,
    Inject,
}

/// Sockets and limits of the relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Proxy {
    /// More clients than this are told `53300 too_many_connections`.
    pub connections_max: usize,
    /// Seconds that open sessions get to finish after SIGTERM before they are ended.
    pub drain_seconds: u64,
    /// Seconds a client may take to finish TLS and its startup packet.
    pub startup_seconds: u64,
    /// Seconds the server may take to accept a connection.
    pub connect_seconds: u64,
    /// Seconds of silence before TCP keepalive probes start; 0 turns them off.
    pub keepalive_seconds: u64,
    /// Threads that relay; 0 means one for every two processors (the recorder and the audit have their own).
    pub threads: usize,
    /// Permissions of a unix socket that is listened on, in octal.
    pub socket_mode: String,
}

/// TLS towards clients. (Towards the server, `sslmode` in the upstream URI decides.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tls {
    /// `disable`, `allow` (clients choose) or `require`.
    pub mode: TlsMode,
    /// PEM files, read again when they change and on SIGHUP.
    pub certificate: Option<PathBuf>,
    /// The private key that belongs to it.
    pub key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    Disable,
    Allow,
    Require,
}

/// Who proves who they are to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Auth {
    /// `pass` relays authentication between client and server untouched; `terminate` checks clients
    /// against `users` and logs in upstream itself.
    pub mode: AuthMode,
    /// A file of `"user" "password"` or `"user" "SCRAM-SHA-256$…"` lines, as PgBouncer's userlist.
    pub users: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    Pass,
    Terminate,
}

/// Bounds of what is kept beside the bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capture {
    /// Captured bytes that one connection may have waiting; beyond it there is a recorded gap.
    pub lane_bytes_max: usize,
    /// The same for all connections together.
    pub bytes_max: usize,
    /// Beyond this a result is recorded as a prefix, a row count and a digest.
    pub result_bytes_max: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Journal {
    /// The directory; without one nothing is written to disk.
    pub dir: Option<PathBuf>,
    /// A segment that has grown to this size is closed and a new one begun.
    pub segment_bytes_max: u64,
    /// Retention: beyond this the oldest segments go; 0 keeps everything.
    pub bytes_max: u64,
    /// Segments older than this go, too; 0 keeps them.
    pub age_seconds_max: u64,
    /// At most this much is lost by a kill -9.
    pub flush_ms: u64,
    /// `none`, or `hash`: keyed hashes instead of literals, parameters and cells; equal stays equal.
    pub redact: Redact,
    /// 32 bytes (or 64 hex digits) for `redact = hash` and for `encrypt`.
    pub key_file: Option<PathBuf>,
    /// Encrypt everything at rest with the key of `key_file`.
    pub encrypt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redact {
    None,
    Hash,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audit {
    /// The database profile: `postgres`, `postgres-standby` …
    pub profile: String,
    /// Judge every transaction at this level instead of the one on the wire.
    pub claim: Option<String>,
    /// Threads that prove suspicions beside the judging; with more than one a journal is also read ahead. The verdicts
    /// are the same with any number.
    pub workers: usize,
    /// Suspicions that may wait for one of them; beyond it the judging waits. With 0 each is proved before anything
    /// else is judged.
    pub proofs_len_max: usize,
    /// Runs of one transaction, and of others beside it, before it counts as unknown (`too_many_orders`).
    pub runs_max: usize,
    /// Others that are placed before one transaction, before it counts as unknown.
    pub detours_max: usize,
    /// Worlds that are kept side by side while it is open in which order things were written (four times as many for a
    /// short time); beyond it what they differ in becomes unknown.
    pub worlds_max: usize,
    /// Steps (Z3's `rlimit`) that the solver may take for one question: work, not time, so that verdicts are the same
    /// everywhere.
    pub solver_steps_max: u32,
    /// Steps that the reference checker may take for one suspicion, in all worlds together; beyond it the suspicion
    /// counts as unknown (`story_too_long`).
    pub proof_steps_max: u64,
    /// Records that may wait for the audit; beyond it they are shed, as a gap.
    pub queue_len_max: usize,
    /// The same bound in bytes.
    pub queue_bytes_max: usize,
    /// Does anybody write past the proxy? `exclusive`: no. `shared`: perhaps. `auto`: look for them.
    pub writers: Writers,
    /// A file of DDL (`pg_dump --schema-only`) that describes the tables, where the side connection may not.
    pub schema: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Writers {
    Auto,
    Exclusive,
    Shared,
}

/// The side connection: reads the catalog and the initial contents, looks for outside writers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Side {
    /// Off: every table is learned from the traffic alone.
    pub enabled: bool,
    /// A `postgresql://` URI; default: the upstream with the usual PG… variables.
    pub uri: Option<String>,
    /// Tables with more rows than this are not copied at start.
    pub table_rows_max: u64,
    /// Tables of which the audit has lost track, and a catalog that is in doubt, are read again.
    pub reread: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Admin {
    /// `HOST:PORT` of metrics, health, API and page; without it there is none.
    pub listen: Option<String>,
    /// A file with the bearer token that everything beyond health and metrics asks for.
    pub token_file: Option<PathBuf>,
    /// PEM files that turn on TLS; with `client_ca` clients must show a certificate of it.
    pub certificate: Option<PathBuf>,
    /// The private key that belongs to it.
    pub key: Option<PathBuf>,
    /// The authority whose client certificates are let in.
    pub client_ca: Option<PathBuf>,
}

/// When `run` and `check` fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thresholds {
    /// Only these rules fail the run (default: all).
    pub fail_on: Vec<String>,
    /// These rules never fail the run.
    pub allow: Vec<String>,
    /// Least share of statements (0 to 1) that must be checked.
    pub min_coverage: Option<f64>,
    /// A file of known fingerprints.
    pub baseline: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Where violations are posted to: `http://` or `https://`.
    pub url: String,
    /// `json`, `slack` or `pagerduty`.
    #[serde(default = "json")]
    pub kind: String,
    /// PagerDuty's routing key, or a bearer token.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

fn json() -> String {
    "json".to_owned()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `pgassay=debug`.
    pub level: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: vec!["127.0.0.1:6432".to_owned()],
            upstream: "127.0.0.1:5432".to_owned(),
            record_only: false,
            commit_timestamps: CommitTimestamps::Off,
            proxy: Proxy::default(),
            tls: Tls::default(),
            auth: Auth::default(),
            capture: Capture::default(),
            journal: Journal::default(),
            audit: Audit::default(),
            side: Side::default(),
            admin: Admin::default(),
            thresholds: Thresholds::default(),
            webhooks: Vec::new(),
            log: Log::default(),
        }
    }
}

impl Default for Proxy {
    fn default() -> Proxy {
        Proxy {
            connections_max: 10_000,
            drain_seconds: 30,
            startup_seconds: 60,
            connect_seconds: 10,
            keepalive_seconds: 60,
            threads: 0,
            socket_mode: "0770".to_owned(),
        }
    }
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            mode: TlsMode::Disable,
            certificate: None,
            key: None,
        }
    }
}

impl Default for Auth {
    fn default() -> Auth {
        Auth {
            mode: AuthMode::Pass,
            users: None,
        }
    }
}

impl Default for Capture {
    fn default() -> Capture {
        Capture {
            lane_bytes_max: 8 << 20,
            bytes_max: 256 << 20,
            result_bytes_max: 4 << 20,
        }
    }
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            dir: None,
            segment_bytes_max: 64 << 20,
            bytes_max: 10 << 30,
            age_seconds_max: 0,
            flush_ms: 1_000,
            redact: Redact::None,
            key_file: None,
            encrypt: false,
        }
    }
}

impl Default for Audit {
    fn default() -> Audit {
        Audit {
            profile: "postgres".to_owned(),
            claim: None,
            workers: 1,
            proofs_len_max: 64,
            runs_max: Limits::default().runs_max,
            detours_max: Limits::default().detours_max,
            worlds_max: Limits::default().worlds_max,
            solver_steps_max: Limits::default().solver_steps_max,
            proof_steps_max: Limits::default().proof_steps_max,
            queue_len_max: 1 << 16,
            queue_bytes_max: 256 << 20,
            writers: Writers::Auto,
            schema: None,
        }
    }
}

impl Default for Side {
    fn default() -> Side {
        Side {
            enabled: true,
            uri: None,
            table_rows_max: 1_000_000,
            reread: true,
        }
    }
}

impl Default for Admin {
    fn default() -> Admin {
        Admin {
            listen: Some("127.0.0.1:9632".to_owned()),
            token_file: None,
            certificate: None,
            key: None,
            client_ca: None,
        }
    }
}

impl Default for Log {
    fn default() -> Log {
        Log {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}
