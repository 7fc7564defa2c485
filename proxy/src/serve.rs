//! The proxy as a whole: sockets, relays, recorder, and how it starts, reloads and ends.
//!
//! In: a [`Config`]. Out: a [`Running`] proxy with its [`Live`] state.
//!
//! `Running` owns its threads: it can be started from any thread, and everything has ended when
//! [`Running::stop`] returns.

use crate::admin::{self, Admin};
use crate::auth::Users;
use crate::capture;
use crate::config::{CommitTimestamps, Config};
use crate::leg::Leg;
use crate::listen::{self, Listener};
use crate::live::Live;
use crate::record::Recording;
use crate::relay::Drain;
use crate::restore;
use crate::schema;
use crate::side;
use crate::stamps;
use crate::threads::Relays;
use crate::tls::Identity;
use crate::upstream::Upstream;
use crate::webhook::Webhooks;
use anyhow::{Context, Result, bail};
use arc_swap::{ArcSwap, ArcSwapOption};
use pgassay_audit::trace::Record;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;

/// How long sessions that were told to end may take to say so to their clients.
const FAREWELL: Duration = Duration::from_secs(10);
/// How often files are looked at for changes.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// What every connection needs to know; parts of it are replaced on reload.
pub struct Shared {
    pub live: Arc<Live>,
    upstream: ArcSwap<Upstream>,
    identity: ArcSwapOption<Identity>,
    users: ArcSwap<Users>,
}

/// A proxy that is running.
pub struct Running {
    pub live: Arc<Live>,
    shared: Arc<Shared>,
    drain: Arc<Drain>,
    recording: Recording,
    /// The recorder goes on for as long as it is there.
    tap: capture::Tap,
    admin: Option<Admin>,
    webhooks: Option<Webhooks>,
    addresses: Vec<String>,
    relays: Relays,
    /// Of everything that is no client: admin server, side connection, watches.
    desk: Runtime,
    accepting: Vec<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// Binds, starts all threads and returns. Errors are those a person can do something about.
    pub fn start(config: Config) -> Result<Running> {
        let live = Arc::new(Live::new(config.clone()));
        let shared = Arc::new(Shared::new(&config, live.clone())?);
        let relays = Relays::start(relay_threads(&config))?;
        let desk = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("desk")
            .enable_all()
            .build()
            .context("cannot start threads")?;
        let listeners: Vec<Listener> = relays.handle().block_on(listen::bind(&config))?;
        let addresses: Vec<String> = listeners
            .iter()
            .map(|listener| listener.address.clone())
            .collect();
        let _ = live.addresses.set(addresses.clone());

        let (tap, recorder) = capture::channel(config.capture.bytes_max);
        let (commits, known) = stamps::channel();
        let recording = Recording::start(recorder, live.clone(), commits)?;
        let admin = desk.block_on(admin::start(live.clone()))?;
        if let Some(file) = &config.audit.schema {
            for record in schema::read(file, tap.session())? {
                let _ = recording.inbox.send(record);
            }
        }
        // Clients wait for the snapshot rather than overlap it; it is bounded in time.
        if let Some(record) = desk.block_on(side::prepare(&config)) {
            let _ = recording.inbox.send(record);
        }
        if let Some(record) = side::settled(&config) {
            let _ = recording.inbox.send(record);
        }
        desk.spawn(side::watch(live.clone(), recording.inbox.clone()));
        desk.spawn(restore::restore(live.clone(), recording.inbox.clone()));
        if config.commit_timestamps == CommitTimestamps::Inject {
            desk.spawn(stamps::look_up(live.clone(), known, recording.inbox.clone()));
        }
        let webhooks = Webhooks::start(live.clone())?;
        let drain = Arc::new(Drain::default());
        let mut accepting = Vec::new();
        for listener in listeners {
            let accept = listen::accept(listener, shared.clone(), tap.clone(), drain.clone());
            accepting.push(relays.handle().spawn(accept));
        }
        desk.spawn(watch(Arc::downgrade(&shared)));
        Ok(Running {
            live,
            shared,
            drain,
            recording,
            tap,
            admin,
            webhooks,
            addresses,
            relays,
            desk,
            accepting,
        })
    }

    /// Where clients connect, with the ports that were chosen.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The port of the first TCP address.
    pub fn port(&self) -> Option<u16> {
        self.addresses
            .iter()
            .filter(|address| !address.starts_with('/'))
            .find_map(|address| address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()))
    }

    /// Where metrics, health, API and page are, with the port that was chosen.
    pub fn admin_address(&self) -> Option<std::net::SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// For tasks that live as long as the proxy (the admin server, the side connection).
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.desk.handle().clone()
    }

    /// Takes records of the side connection.
    pub fn inbox(&self) -> crossbeam_channel::Sender<Record> {
        self.recording.inbox.clone()
    }

    /// Puts a new configuration into use, as far as that is possible without a restart.
    pub fn reload(&self, config: Config) -> Result<()> {
        self.shared.reload(config)
    }

    /// No new clients; idle sessions end now, others when their transaction does or time is up. Returns when
    /// everything captured is written and judged.
    pub fn stop(self) -> Arc<Live> {
        self.live.draining.store(true, Relaxed);
        for task in &self.accepting {
            task.abort();
        }
        self.drain.gently();
        let patience = Duration::from_secs(self.live.config.load().proxy.drain_seconds);
        let deadline = Instant::now() + patience;
        while self.live.connections_open.load(Relaxed) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.drain.now();
        let deadline = Instant::now() + FAREWELL;
        while self.live.connections_open.load(Relaxed) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let last = restore::look_back(self.live.clone(), self.recording.inbox.clone());
        self.desk.block_on(last);
        drop(self.tap);
        // Whatever is left is dropped together with its lane, so that the recorder sees the end.
        self.relays.stop();
        self.desk.shutdown_timeout(Duration::from_secs(5));
        self.recording.finish();
        if let Some(webhooks) = self.webhooks {
            webhooks.finish();
        }
        for path in self.addresses.iter().filter(|address| address.starts_with('/')) {
            let _ = std::fs::remove_file(path);
        }
        self.live
    }
}

impl Shared {
    fn new(config: &Config, live: Arc<Live>) -> Result<Shared> {
        Ok(Shared {
            live,
            upstream: ArcSwap::from_pointee(Upstream::parse(&config.upstream)?),
            identity: ArcSwapOption::new(identity(config)?),
            users: ArcSwap::from_pointee(users(config)?),
        })
    }

    pub async fn connect(&self) -> Result<Leg> {
        let config = self.live.config.load();
        let timeout = Duration::from_secs(config.proxy.connect_seconds);
        let keepalive = keepalive(&config);
        self.upstream.load_full().connect(timeout, keepalive).await
    }

    /// See [`Upstream::may_connect_otherwise`].
    pub fn may_connect_otherwise(&self, was_tls: bool) -> bool {
        self.upstream.load().may_connect_otherwise(was_tls)
    }

    pub async fn connect_otherwise(&self) -> Result<Leg> {
        let config = self.live.config.load();
        let timeout = Duration::from_secs(config.proxy.connect_seconds);
        let keepalive = keepalive(&config);
        self.upstream
            .load_full()
            .connect_otherwise(timeout, keepalive)
            .await
    }

    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.load_full()
    }

    pub fn users(&self) -> Arc<Users> {
        self.users.load_full()
    }

    fn reload(&self, config: Config) -> Result<()> {
        let upstream = Upstream::parse(&config.upstream)?;
        let (identity, users) = (identity(&config)?, users(&config)?);
        let old = self.live.config.load_full();
        let fixed = [
            ("listen", old.listen != config.listen),
            ("proxy.threads", old.proxy.threads != config.proxy.threads),
            ("record_only", old.record_only != config.record_only),
            (
                "commit_timestamps",
                old.commit_timestamps != config.commit_timestamps,
            ),
            ("journal", old.journal != config.journal),
            ("audit", old.audit != config.audit),
            ("side", old.side != config.side),
            ("admin", old.admin != config.admin),
        ];
        for (key, _) in fixed.iter().filter(|(_, changed)| *changed) {
            tracing::warn!("`{key}` has changed and takes effect at the next start only");
        }
        self.upstream.store(Arc::new(upstream));
        self.identity.store(identity);
        self.users.store(Arc::new(users));
        self.live.config.store(Arc::new(config));
        Ok(())
    }

    fn watched(&self) -> Vec<(PathBuf, Option<SystemTime>)> {
        let config = self.live.config.load();
        [&config.tls.certificate, &config.tls.key, &config.auth.users]
            .into_iter()
            .flatten()
            .map(|path| {
                (
                    path.clone(),
                    std::fs::metadata(path).and_then(|data| data.modified()).ok(),
                )
            })
            .collect()
    }
}

/// A relay mostly waits, and threads that wake each other cost more than they bring: one carries tens of thousands
/// of round trips per second.
fn relay_threads(config: &Config) -> usize {
    match config.proxy.threads {
        0 => std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2)),
        threads => threads,
    }
}

pub fn keepalive(config: &Config) -> Option<Duration> {
    Some(Duration::from_secs(config.proxy.keepalive_seconds)).filter(|after| !after.is_zero())
}

/// The certificate that clients are shown, if they may use TLS.
pub fn identity(config: &Config) -> Result<Option<Arc<Identity>>> {
    use crate::config::TlsMode;
    match (config.tls.mode, &config.tls.certificate, &config.tls.key) {
        (TlsMode::Disable, ..) => Ok(None),
        (_, Some(certificate), Some(key)) => Ok(Some(Arc::new(Identity::read(certificate, key)?))),
        _ => bail!("tls.mode needs tls.certificate and tls.key"),
    }
}

/// Those who may log in, where clients prove themselves to the proxy.
pub fn users(config: &Config) -> Result<Users> {
    use crate::config::AuthMode;
    match (config.auth.mode, &config.auth.users) {
        (AuthMode::Pass, _) => Ok(Users::default()),
        (AuthMode::Terminate, Some(path)) => Users::read(path),
        (AuthMode::Terminate, None) => bail!("auth.mode = \"terminate\" needs auth.users"),
    }
}

/// Reads certificate and user list again when their files change; looks for the server as long as it was not
/// there when last asked for.
async fn watch(shared: std::sync::Weak<Shared>) {
    let mut seen = match shared.upgrade() {
        Some(shared) => shared.watched(),
        None => return,
    };
    let mut missed = false;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if !shared.live.ready.load(Relaxed) {
            match shared.connect().await {
                Ok(_) => shared.live.ready.store(true, Relaxed),
                Err(error) if !missed => tracing::warn!("the server cannot be reached: {error:#}"),
                Err(_) => (),
            }
            missed = !shared.live.ready.load(Relaxed);
        }
        tokio::time::sleep(WATCH_EVERY).await;
        let now = shared.watched();
        if now == seen {
            continue;
        }
        seen = now;
        let config = shared.live.config.load_full();
        match shared.reload((*config).clone()) {
            Ok(()) => tracing::info!("certificate and user list were read again"),
            Err(error) => tracing::warn!("the old certificate and user list stay in use: {error:#}"),
        }
    }
}
