//! TLS for the admin address; with `admin.client_ca` clients must show a certificate of it.
//!
//! Handshakes run beside each other: a client that dawdles keeps nobody waiting.

use crate::config::Admin;
use anyhow::{Context, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// `None` without a certificate.
pub fn acceptor(config: &Admin) -> anyhow::Result<Option<TlsAcceptor>> {
    let (certificate, key) = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) if config.client_ca.is_none() => return Ok(None),
        _ => bail!("admin.certificate and admin.key belong together, and admin.client_ca needs both"),
    };
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read admin.key {}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .context("the TLS versions of the admin address")?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots
                    .add(root)
                    .with_context(|| format!("admin.client_ca {}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.context("admin.client_ca")?)
        }
    };
    let config = builder
        .with_single_cert(chain, key)
        .context("admin.certificate does not fit admin.key")?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .collect();
    let chain = chain.with_context(|| format!("{} is not a PEM file", path.display()))?;
    if chain.is_empty() {
        bail!("{} holds no certificate", path.display());
    }
    Ok(chain)
}

/// Yields connections whose handshake is done.
pub struct Listener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Listener {
    pub fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Listener {
        let address = listener
            .local_addr()
            .unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)));
        let (sender, ready) = mpsc::channel(64);
        tokio::spawn(accept(listener, acceptor, sender));
        Listener { address, ready }
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    sender: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    while !sender.is_closed() {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let _ = sender.send((stream, peer)).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, "TLS with the admin address failed: {error}"),
                Err(_) => tracing::debug!(%peer, "TLS with the admin address took too long"),
            }
        });
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task ends only with the process.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, Listener>> for Peer {
    fn connect_info(stream: axum::serve::IncomingStream<'_, Listener>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

/// Who is asking.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: axum::serve::IncomingStream<'_, TcpListener>) -> Peer {
        Peer(*stream.remote_addr())
    }
}
