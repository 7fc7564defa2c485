//! Accepts clients.
//!
//! In: addresses. Out: one task per client.
//!
//! Always true: whatever happens to one connection (an error, a panic) ends that connection alone, and
//! `connections_open` counts every task that lives.

use crate::capture::Tap;
use crate::config::Config;
use crate::leg::{Socket, Tcp};
use crate::live::Live;
use crate::relay::{Drain, Ended};
use crate::serve::{Shared, keepalive};
use crate::startup;
use crate::upstream::split_port;
use anyhow::{Context, Result, bail};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};

const PORT: u16 = 6432;

pub struct Listener {
    kind: Kind,
    /// `HOST:PORT` with the port that was chosen, or the path of the socket.
    pub address: String,
}

enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Binds every address of `listen`.
pub async fn bind(config: &Config) -> Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in &config.listen {
        if let Some(path) = address
            .strip_prefix("unix:")
            .or(address.starts_with('/').then_some(address))
        {
            listeners.push(bind_unix(Path::new(path), &config.proxy.socket_mode)?);
            continue;
        }
        let (host, port) = split_port(address).with_context(|| format!("listen = {address}"))?;
        let host = if host.is_empty() || host == "*" {
            "::"
        } else {
            host
        };
        let found = tokio::net::lookup_host((host, port.unwrap_or(PORT))).await;
        let found: Vec<_> = found.with_context(|| format!("cannot look up {host}"))?.collect();
        for address in found {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on {address}; is another program using it?"))?;
            let address = listener.local_addr()?.to_string();
            listeners.push(Listener {
                kind: Kind::Tcp(listener),
                address,
            });
        }
    }
    if listeners.is_empty() {
        bail!("`listen` is empty: clients could not connect anywhere");
    }
    Ok(listeners)
}

fn bind_unix(path: &Path, mode: &str) -> Result<Listener> {
    let path: PathBuf = if path.is_dir() {
        path.join(format!(".s.PGSQL.{PORT}"))
    } else {
        path.to_owned()
    };
    // A socket that nobody answers on is left over from a proxy that was killed.
    if path.exists() && std::os::unix::net::UnixStream::connect(&path).is_err() {
        std::fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
    let bits = u32::from_str_radix(mode.trim_start_matches("0o"), 8)
        .with_context(|| format!("proxy.socket_mode = {mode} is not an octal number"))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits))?;
    let address = path.display().to_string();
    Ok(Listener {
        kind: Kind::Unix(listener),
        address,
    })
}

/// Accepts until the task is aborted.
pub async fn accept(listener: Listener, shared: Arc<Shared>, tap: Tap, drain: Arc<Drain>) {
    loop {
        let keepalive = keepalive(&shared.live.config.load());
        let socket = match listener.next(keepalive).await {
            Ok(Some(socket)) => socket,
            Ok(None) => continue,
            Err(error) => {
                // Out of file descriptors, most likely: others may be closed meanwhile.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let open = Open::count(&shared.live);
        let (shared, tap, drain) = (shared.clone(), tap.clone(), drain.clone());
        tokio::spawn(async move {
            match startup::serve(socket, &shared, &tap, &drain).await {
                Ok(Some(Ended::ServerLost(error))) => {
                    tracing::warn!("the server closed a connection unexpectedly: {error:?}");
                }
                Ok(ended) => tracing::debug!("connection ended: {ended:?}"),
                Err(error) => tracing::warn!("connection ended: {error:#}"),
            }
            drop(open);
        });
    }
}

impl Listener {
    /// The next client; `None` if it left at once.
    async fn next(&self, keepalive: Option<Duration>) -> io::Result<Option<Socket>> {
        Ok(match &self.kind {
            Kind::Tcp(listener) => {
                let tuned = Tcp::tuned(listener.accept().await?.0, keepalive);
                let tuned = tuned.inspect_err(|error| tracing::debug!("a client left at once: {error}"));
                tuned.ok().map(Socket::Tcp)
            }
            Kind::Unix(listener) => Some(Socket::Unix(listener.accept().await?.0)),
        })
    }
}

/// One open connection, for as long as it lives.
struct Open(Arc<Live>);

impl Open {
    fn count(live: &Arc<Live>) -> Open {
        live.connections_total.fetch_add(1, Relaxed);
        live.connections_open.fetch_add(1, Relaxed);
        Open(live.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections_open.fetch_sub(1, Relaxed);
    }
}
