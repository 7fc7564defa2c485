//! Who may read recorded data, and what every answer says to a browser.
//!
//! Always true:
//!   - tokens are compared in constant time;
//!   - without a token only a loopback address serves recorded data, and only to requests whose Host is an
//!     address or `localhost`: a web site that points its own name at 127.0.0.1 learns nothing;
//!   - no answer allows another origin to read it.

use super::Shared;
use super::tls::Peer;
use crate::config::Admin;
use anyhow::{Context, bail};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Debug)]
pub struct Guard {
    /// SHA-256 of the token.
    token: Option<[u8; 32]>,
    loopback: bool,
    /// Clients have shown a certificate already.
    certificate: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Closed,
    NoToken,
    WrongToken,
    ForeignHost,
}

impl Guard {
    pub fn new(config: &Admin, address: SocketAddr) -> anyhow::Result<Guard> {
        let token = match &config.token_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read admin.token_file {}", path.display()))?;
                let token = text.trim();
                if token.len() < 16 {
                    bail!(
                        "admin.token_file {} holds a token of less than 16 characters",
                        path.display()
                    );
                }
                Some(Sha256::digest(token.as_bytes()).into())
            }
        };
        let certificate = config.client_ca.is_some();
        Ok(Guard {
            token,
            loopback: address.ip().is_loopback(),
            certificate,
        })
    }

    /// Nobody can be let in.
    pub fn is_closed(&self) -> bool {
        self.token.is_none() && !self.loopback && !self.certificate
    }

    fn admits(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.token {
            Some(token) => match bearer(headers) {
                Some(shown) if same(&Sha256::digest(shown.as_bytes()).into(), token) => Ok(()),
                Some(_) => Err(Refusal::WrongToken),
                None => Err(Refusal::NoToken),
            },
            None if self.is_closed() => Err(Refusal::Closed),
            None if self.certificate || is_local_name(headers) => Ok(()),
            None => Err(Refusal::ForeignHost),
        }
    }
}

/// Lets a request pass, or says what is missing.
pub async fn admit(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let refusal = match shared.guard.admits(request.headers()) {
        Ok(()) => return next.run(request).await,
        Err(refusal) => refusal,
    };
    tracing::warn!(path = request.uri().path(), peer = %peer(&request), ?refusal, "a read was refused");
    let (status, words) = match refusal {
        Refusal::Closed => (
            StatusCode::FORBIDDEN,
            "recorded data is not served on this address: set admin.token_file or admin.client_ca, or listen on loopback\n",
        ),
        Refusal::NoToken => (
            StatusCode::UNAUTHORIZED,
            "show the token: Authorization: Bearer …\n",
        ),
        Refusal::WrongToken => (StatusCode::UNAUTHORIZED, "this is not the token\n"),
        Refusal::ForeignHost => (
            StatusCode::FORBIDDEN,
            "ask for this by address or as localhost, or set admin.token_file\n",
        ),
    };
    let mut response = (status, words).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Leaves a line for every read of recorded data.
pub async fn log_read(request: Request, next: Next) -> Response {
    let (path, peer) = (request.uri().path().to_owned(), peer(&request));
    let response = next.run(request).await;
    tracing::info!(target: "pgassay::reads", path, %peer, status = response.status().as_u16(), "recorded data was read");
    response
}

/// What a browser must not do with any of this.
pub async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        "cross-origin-opener-policy",
        HeaderValue::from_static("same-origin"),
    );
    response
}

fn peer(request: &Request) -> String {
    let info = request.extensions().get::<ConnectInfo<Peer>>();
    info.map_or("unknown".to_owned(), |info| info.0.0.to_string())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Compares digests without stopping at the first difference.
fn same(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let difference = left.iter().zip(right).fold(0u8, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0
}

fn is_local_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return true;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn asking(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let named = pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        named.collect()
    }

    fn guard(address: &str, token: Option<&str>) -> anyhow::Result<Guard> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(token.unwrap_or("").as_bytes()).unwrap();
        let token_file = token.map(|_| file.path().to_owned());
        Guard::new(
            &Admin {
                token_file,
                ..Admin::default()
            },
            address.parse().unwrap(),
        )
    }

    #[test]
    fn loopback_needs_no_token_but_a_local_name() {
        let guard = guard("127.0.0.1:1", None).unwrap();
        assert_eq!(guard.admits(&asking(&[("host", "127.0.0.1:9632")])), Ok(()));
        assert_eq!(guard.admits(&asking(&[("host", "[::1]:9632")])), Ok(()));
        assert_eq!(guard.admits(&asking(&[("host", "localhost")])), Ok(()));
        assert_eq!(
            guard.admits(&asking(&[("host", "evil.example:9632")])),
            Err(Refusal::ForeignHost)
        );
    }

    #[test]
    fn elsewhere_only_the_token_opens() {
        let closed = guard("10.0.0.1:1", None).unwrap();
        assert!(closed.is_closed());
        assert_eq!(closed.admits(&asking(&[])), Err(Refusal::Closed));
        let guard = guard("10.0.0.1:1", Some("0123456789abcdef\n")).unwrap();
        assert_eq!(guard.admits(&asking(&[])), Err(Refusal::NoToken));
        assert_eq!(
            guard.admits(&asking(&[("authorization", "Bearer 0123456789abcdeF")])),
            Err(Refusal::WrongToken)
        );
        assert_eq!(
            guard.admits(&asking(&[("authorization", "bearer 0123456789abcdef")])),
            Ok(())
        );
    }

    #[test]
    fn a_short_token_is_refused_at_start() {
        let error = guard("10.0.0.1:1", Some("secret")).unwrap_err();
        assert!(error.to_string().contains("less than 16 characters"), "{error}");
    }
}
