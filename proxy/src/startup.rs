//! The beginning of a connection: encryption, startup packet, cancel requests, authentication.
//!
//! In: an accepted socket. Out: two legs and what was already read of both streams, ready for the relay;
//! or nothing, because the connection only wanted to cancel, or was refused.
//!
//! Always true:
//!   - GSSENCRequest is answered `N`: a session that the server encrypts would be opaque. SSLRequest is
//!     answered by us alone, as the configuration says. Each may come once;
//!   - bytes that follow either request before its answer are refused (somebody injected them);
//!   - the startup packet is forwarded verbatim, with every parameter and any protocol version;
//!   - a cancel key is passed through, whatever its length, and never captured.
//!
//! Source: PostgreSQL's documentation, 55.2 «Message Flow».

use crate::auth;
use crate::capture::Tap;
use crate::config::{AuthMode, CommitTimestamps, TlsMode};
use crate::inject::Inject;
use crate::knock::knock;
use crate::leg::{Leg, Rewound, Socket};
use crate::relay::{Begun, Drain, Ended, relay};
use crate::serve::Shared;
use crate::tls;
use crate::wire::message::{self, First};
use crate::writers::Own;
use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What a client wanted.
enum Wanted {
    Session {
        client: Leg,
        packet: Bytes,
        startup_bytes: usize,
    },
    Cancel {
        client: Leg,
        packet: Bytes,
    },
    /// It went away, as health checks do.
    Nothing,
}

/// A connection that cannot go on; the client is told, where the protocol still allows it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub sqlstate: &'static str,
    pub message: String,
}

impl Refusal {
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            sqlstate,
            message: message.into(),
        }
    }
}

/// Serves one connection from its first byte to its last.
pub async fn serve(socket: Socket, shared: &Shared, tap: &Tap, drain: &Drain) -> Result<Option<Ended>> {
    let config = shared.live.config.load_full();
    let patience = Duration::from_secs(config.proxy.startup_seconds);
    let negotiated = tokio::select! {
        negotiated = tokio::time::timeout(patience, negotiate(socket, shared)) => negotiated,
        // Nobody has been promised anything yet.
        () = drain.begun() => return Ok(None),
    };
    let wanted = match negotiated {
        Ok(wanted) => wanted?,
        Err(_) => {
            tracing::debug!("a client did not finish its startup within {patience:?}");
            return Ok(None);
        }
    };
    match wanted {
        Wanted::Nothing => Ok(None),
        Wanted::Cancel { client, packet } => {
            shared.live.cancel_requests.fetch_add(1, Relaxed);
            cancel(packet, shared)
                .await
                .context("a cancel request could not be forwarded")?;
            // Clients take the end of this connection as the sign that the server has seen the request.
            drop(client);
            Ok(None)
        }
        Wanted::Session {
            client,
            packet,
            startup_bytes,
        } => session(client, packet, startup_bytes, shared, tap, drain).await,
    }
}

/// Reads up to the startup packet, answering what comes before it.
async fn negotiate(socket: Socket, shared: &Shared) -> Result<Wanted> {
    let mut client = Leg::Plain(socket);
    let mut buffer = BytesMut::with_capacity(1024);
    let (mut asked_gss, mut asked_ssl) = (false, false);
    loop {
        let (kind, length) = match message::first(&buffer) {
            Ok(Some(first)) => first,
            Ok(None) => {
                if client.read_buf(&mut buffer).await? == 0 {
                    return Ok(Wanted::Nothing);
                }
                continue;
            }
            Err(error) => return refuse(client, Refusal::new("08P01", error.to_string())).await,
        };
        match kind {
            First::GssEncRequest if !asked_gss && !client.is_tls() => {
                asked_gss = true;
                if buffer.len() > length {
                    return refuse(client, early("GSSENCRequest")).await;
                }
                buffer.clear();
                client.write_all(b"N").await?;
            }
            First::SslRequest if !asked_ssl && !client.is_tls() => {
                asked_ssl = true;
                if buffer.len() > length {
                    return refuse(client, early("SSLRequest")).await;
                }
                buffer.clear();
                match (shared.identity(), client) {
                    (Some(identity), Leg::Plain(mut socket)) => {
                        socket.write_all(b"S").await?;
                        let stream = identity.accept(Rewound::new(Bytes::new(), socket)).await;
                        client = Leg::Client(Box::new(stream.context("TLS with a client")?));
                    }
                    (_, mut plain) => {
                        plain.write_all(b"N").await?;
                        client = plain;
                    }
                }
            }
            First::DirectTls if !asked_ssl && !client.is_tls() => {
                let (Some(identity), Leg::Plain(socket)) = (shared.identity(), client) else {
                    // A TLS client cannot read a PostgreSQL error.
                    return Ok(Wanted::Nothing);
                };
                asked_ssl = true;
                let rewound = Rewound::new(buffer.split().freeze(), socket);
                let stream = identity
                    .accept(rewound)
                    .await
                    .context("direct TLS with a client")?;
                let alpn = stream.get_ref().1.alpn_protocol() == Some(tls::ALPN);
                client = Leg::Client(Box::new(stream));
                if !alpn {
                    let words = "direct TLS needs the ALPN protocol `postgresql`";
                    return refuse(client, Refusal::new("08P01", words)).await;
                }
            }
            First::CancelRequest => {
                return Ok(Wanted::Cancel {
                    client,
                    packet: buffer.split_to(length).freeze(),
                });
            }
            First::Startup { .. } => {
                let mode = shared.live.config.load().tls.mode;
                if mode == TlsMode::Require && !client.is_tls() {
                    let words = "pgassay accepts TLS connections only; use sslmode=require";
                    return refuse(client, Refusal::new("28000", words)).await;
                }
                return Ok(Wanted::Session {
                    client,
                    packet: buffer.freeze(),
                    startup_bytes: length,
                });
            }
            First::DirectTls | First::SslRequest | First::GssEncRequest => {
                let words = "encryption was negotiated already";
                return refuse(client, Refusal::new("08P01", words)).await;
            }
        }
    }
}

fn early(request: &str) -> Refusal {
    Refusal::new("08P01", format!("received unencrypted data after {request}"))
}

async fn session(
    mut client: Leg,
    packet: Bytes,
    startup_bytes: usize,
    shared: &Shared,
    tap: &Tap,
    drain: &Drain,
) -> Result<Option<Ended>> {
    let config = shared.live.config.load_full();
    if shared.live.connections_open.load(Relaxed) > config.proxy.connections_max as i64 {
        shared.live.connections_refused.fetch_add(1, Relaxed);
        let words = format!(
            "pgassay serves at most {} connections",
            config.proxy.connections_max
        );
        say(&mut client, Refusal::new("53300", words)).await;
        return Ok(None);
    }
    let mut server = match shared.connect().await {
        Ok(server) => server,
        Err(error) => {
            shared.live.ready.store(false, Relaxed);
            let words = format!("pgassay could not connect to the server: {error:#}");
            say(&mut client, Refusal::new("08001", &words)).await;
            return Err(error.context("could not connect to the server"));
        }
    };
    shared.live.ready.store(true, Relaxed);

    let parameters = message::startup_parameters(&packet[..startup_bytes]);
    let replication = message::is_replication(&parameters);
    let terminates = config.auth.mode == AuthMode::Terminate;
    let strips = !terminates && !client.is_tls();
    let chooses = shared.may_connect_otherwise(server.is_tls());
    let begun = if terminates || chooses || strips && server.is_tls() {
        let answered = knock(server, &packet[..startup_bytes], shared).await?;
        server = answered.server;
        if terminates {
            let users = shared.users();
            let end_point = shared.identity().and_then(|identity| identity.end_point.clone());
            let asked = auth::Asked {
                packet: &packet,
                startup_bytes,
                said: answered.said,
                rest: answered.rest,
            };
            match auth::terminate(&mut client, &mut server, asked, &users, end_point).await {
                Ok(begun) => begun,
                Err(error) => {
                    if let Some(refusal) = error.downcast_ref::<Refusal>() {
                        say(&mut client, Refusal::new(refusal.sqlstate, &refusal.message)).await;
                    }
                    return Err(error);
                }
            }
        } else {
            let mut to_client = BytesMut::new();
            for message in answered.said {
                to_client.extend_from_slice(&if strips && server.is_tls() {
                    auth::without_plus(message)
                } else {
                    message
                });
            }
            to_client.extend_from_slice(&answered.rest);
            Begun {
                to_server: packet,
                startup_bytes,
                to_client: to_client.freeze(),
                sent_bytes: startup_bytes,
            }
        }
    } else {
        Begun {
            to_server: packet,
            startup_bytes,
            to_client: Bytes::new(),
            sent_bytes: 0,
        }
    };
    // Known before the recorder hears of it: who looks for strangers must not take this for one.
    let _own = server
        .local_address()
        .map(|local| Own::open_socket(&shared.live, local));
    let lane = if replication {
        shared.live.replication_sessions.fetch_add(1, Relaxed);
        None
    } else {
        Some(tap.open(config.capture.lane_bytes_max))
    };
    let inject = (config.commit_timestamps == CommitTimestamps::Inject && !replication)
        .then(|| Inject::new(shared.live.xids.clone()));
    Ok(Some(relay(client, server, begun, lane, inject, drain).await))
}

/// Passes a cancel request on and waits until the server has taken it.
async fn cancel(packet: Bytes, shared: &Shared) -> Result<()> {
    let mut server = shared.connect().await?;
    server.write_all(&packet).await?;
    server.flush().await?;
    let mut answer = [0; 64];
    let closed = async { while !matches!(server.read(&mut answer).await, Ok(0) | Err(_)) {} };
    let _ = tokio::time::timeout(Duration::from_secs(10), closed).await;
    Ok(())
}

async fn refuse(mut client: Leg, refusal: Refusal) -> Result<Wanted> {
    tracing::debug!("a client was refused: {refusal}");
    say(&mut client, refusal).await;
    Ok(Wanted::Nothing)
}

/// Tells the client and lets it read that before the socket closes.
pub async fn say(client: &mut Leg, refusal: Refusal) {
    let words = message::fatal(refusal.sqlstate, &refusal.message);
    let spoken = async {
        client.write_all(&words).await?;
        client.flush().await?;
        client.shutdown().await?;
        let mut rest = [0; 1024];
        while client.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(2), spoken).await;
}
