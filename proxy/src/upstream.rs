//! The database behind the proxy: where it is, and how to connect to it.
//!
//! In: `HOST:PORT`, the path of a unix socket (or of its directory), or a `postgresql://` URI with libpq's
//! words. Out: a connected leg, in TLS if `sslmode` says so.
//!
//! `sslmode` means what libpq means by it, except that the default is `disable`: under authentication that
//! is passed through, TLS on the server's leg alone is something the user should have asked for.

use crate::leg::{Leg, Socket, Tcp};
use crate::tls;
use crate::wire::message;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

const PORT: u16 = 5432;

#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Tried in order.
    pub places: Vec<Place>,
    pub ssl: Ssl,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ssl {
    pub mode: SslMode,
    /// ClientHello at once, without SSLRequest (`sslnegotiation=direct`).
    pub direct: bool,
    /// A PEM file, or `system`.
    pub root: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    #[default]
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SslMode::Disable => "disable",
            SslMode::Allow => "allow",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Upstream {
    pub fn parse(text: &str) -> Result<Upstream> {
        let rest = text
            .strip_prefix("postgresql://")
            .or_else(|| text.strip_prefix("postgres://"));
        let parsed = match rest {
            Some(rest) => Self::parse_uri(rest),
            None => text
                .split(',')
                .map(Place::parse)
                .collect::<Result<_>>()
                .map(|places| Upstream {
                    places,
                    ssl: Ssl::default(),
                    user: None,
                    password: None,
                    database: None,
                }),
        };
        // The text may hold a password: it is not repeated.
        parsed.context("the upstream must be HOST:PORT, the path of a socket, or a postgresql:// URI")
    }

    fn parse_uri(rest: &str) -> Result<Upstream> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        let (user, password) = match userinfo.map(|text| text.split_once(':').unwrap_or((text, ""))) {
            Some((user, password)) => (given(user)?, given(password)?),
            None => (None, None),
        };
        let mut upstream = Upstream {
            places: Vec::new(),
            ssl: Ssl::default(),
            user,
            password,
            database: given(database)?,
        };
        let mut hosts: Vec<String> = hosts
            .split(',')
            .filter(|host| !host.is_empty())
            .map(str::to_owned)
            .collect();
        let mut ports: Vec<u16> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .with_context(|| format!("`{pair}` has no value"))?;
            let value = decode(value)?;
            match name {
                "host" => hosts = value.split(',').map(str::to_owned).collect(),
                "port" => {
                    ports = value
                        .split(',')
                        .map(|port| port.parse().with_context(|| format!("{port} is not a port")))
                        .collect::<Result<_>>()?;
                }
                "user" => upstream.user = Some(value),
                "password" => upstream.password = Some(value),
                "dbname" => upstream.database = Some(value),
                "sslmode" => upstream.ssl.mode = SslMode::parse(&value)?,
                "sslnegotiation" => upstream.ssl.direct = value == "direct",
                "sslrootcert" => upstream.ssl.root = Some(value.into()),
                "sslcert" => upstream.ssl.certificate = Some(value.into()),
                "sslkey" => upstream.ssl.key = Some(value.into()),
                // Everything else speaks to clients, and clients say it themselves.
                _ => (),
            }
        }
        if hosts.is_empty() {
            hosts.push("127.0.0.1".to_owned());
        }
        for (index, host) in hosts.iter().enumerate() {
            let mut place = Place::parse(&decode(host)?)?;
            let port = ports.get(index).or(ports.first().filter(|_| ports.len() == 1));
            match (&mut place, port) {
                (Place::Tcp { port, .. }, Some(given)) => *port = *given,
                (Place::Unix(path), Some(given)) => *path = with_port(path, *given),
                _ => (),
            }
            upstream.places.push(place);
        }
        if upstream.ssl.direct && upstream.ssl.mode < SslMode::Require {
            bail!("sslnegotiation=direct needs sslmode=require or stronger");
        }
        Ok(upstream)
    }

    /// Connects to the first place that answers.
    pub async fn connect(&self, timeout: Duration, keepalive: Option<Duration>) -> Result<Leg> {
        self.connect_as(self.ssl.mode.first(), timeout, keepalive).await
    }

    /// Whether there is another way, after the server has refused the first: that of `allow` is TLS, that of
    /// `prefer` is plain.
    pub fn may_connect_otherwise(&self, was_tls: bool) -> bool {
        self.ssl
            .mode
            .otherwise()
            .is_some_and(|other| was_tls != (other == Encryption::Tls))
            && self.places.iter().any(|place| matches!(place, Place::Tcp { .. }))
    }

    pub async fn connect_otherwise(&self, timeout: Duration, keepalive: Option<Duration>) -> Result<Leg> {
        let encryption = self.ssl.mode.otherwise().unwrap_or(self.ssl.mode.first());
        self.connect_as(encryption, timeout, keepalive).await
    }

    async fn connect_as(
        &self,
        encryption: Encryption,
        timeout: Duration,
        keepalive: Option<Duration>,
    ) -> Result<Leg> {
        let mut failures = Vec::new();
        for place in &self.places {
            match tokio::time::timeout(timeout, self.connect_to(place, encryption, keepalive)).await {
                Ok(Ok(leg)) => return Ok(leg),
                Ok(Err(error)) => failures.push(format!("{place}: {error:#}")),
                Err(_) => failures.push(format!("{place}: no answer within {} s", timeout.as_secs())),
            }
        }
        bail!("{}", failures.join("; "))
    }

    async fn connect_to(
        &self,
        place: &Place,
        encryption: Encryption,
        keepalive: Option<Duration>,
    ) -> Result<Leg> {
        let mut socket = place.open(keepalive).await?;
        let Place::Tcp { host, .. } = place else {
            // As in libpq, sslmode is ignored on a unix socket.
            return Ok(Leg::Plain(socket));
        };
        if encryption == Encryption::Plain {
            return Ok(Leg::Plain(socket));
        }
        if !self.ssl.direct {
            socket.write_all(&message::ssl_request()).await?;
            match socket.read_u8().await.context("no answer to SSLRequest")? {
                b'S' => (),
                b'N' if encryption == Encryption::TlsIfOffered => return Ok(Leg::Plain(socket)),
                b'N' => bail!(
                    "the server does not support TLS, but sslmode={} demands it: turn on `ssl` in its \
                     postgresql.conf, or weaken sslmode",
                    self.ssl.mode
                ),
                b'E' if encryption == Encryption::TlsIfOffered => {
                    return Ok(Leg::Plain(place.open(keepalive).await?));
                }
                other => bail!("unexpected answer to SSLRequest: {:?}", other as char),
            }
        }
        Ok(Leg::Server(Box::new(
            tls::connect(&self.ssl, host, socket).await?,
        )))
    }
}

impl Place {
    fn parse(text: &str) -> Result<Place> {
        let text = text.trim();
        if let Some(path) = text
            .strip_prefix("unix:")
            .or(text.starts_with('/').then_some(text))
        {
            let path = PathBuf::from(path);
            return Ok(Place::Unix(if path.is_dir() {
                with_port(&path, PORT)
            } else {
                path
            }));
        }
        let (host, port) = split_port(text)?;
        Ok(Place::Tcp {
            host: host.to_owned(),
            port: port.unwrap_or(PORT),
        })
    }

    async fn open(&self, keepalive: Option<Duration>) -> Result<Socket> {
        match self {
            Place::Tcp { host, port } => {
                let socket = TcpStream::connect((host.as_str(), *port)).await?;
                Ok(Socket::Tcp(Tcp::tuned(socket, keepalive)?))
            }
            Place::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path).await?)),
        }
    }
}

/// How to connect this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    Plain,
    TlsIfOffered,
    Tls,
}

impl SslMode {
    fn first(self) -> Encryption {
        match self {
            SslMode::Disable | SslMode::Allow => Encryption::Plain,
            SslMode::Prefer => Encryption::TlsIfOffered,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Encryption::Tls,
        }
    }

    fn otherwise(self) -> Option<Encryption> {
        match self {
            SslMode::Allow => Some(Encryption::Tls),
            SslMode::Prefer => Some(Encryption::Plain),
            _ => None,
        }
    }

    fn parse(text: &str) -> Result<SslMode> {
        Ok(match text {
            "disable" => SslMode::Disable,
            "allow" => SslMode::Allow,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            other => {
                bail!("sslmode={other} is none of disable, allow, prefer, require, verify-ca, verify-full")
            }
        })
    }
}

/// `host`, `host:port`, `v6` or `[v6]:port`.
pub fn split_port(text: &str) -> Result<(&str, Option<u16>)> {
    let port = |text: &str| {
        text.parse()
            .with_context(|| format!("`{text}` is not a port (0 to 65535)"))
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .with_context(|| format!("`{text}` has no `]`"))?;
        return Ok((host, rest.strip_prefix(':').map(port).transpose()?));
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, rest)) => Ok((host, Some(port(rest)?))),
        None => Ok((text, None)),
    }
}

/// The socket file that PostgreSQL makes for a port, in the directory that `path` is or lies in.
fn with_port(path: &std::path::Path, port: u16) -> PathBuf {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let dir = if name.starts_with(".s.PGSQL.") {
        path.parent().unwrap_or(path)
    } else {
        path
    };
    dir.join(format!(".s.PGSQL.{port}"))
}

fn given(text: &str) -> Result<Option<String>> {
    if text.is_empty() {
        Ok(None)
    } else {
        decode(text).map(Some)
    }
}

/// Percent-decoding.
fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| (byte as char).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => bail!("a % that no two hexadecimal digits follow"),
        }
    }
    String::from_utf8(bytes).context("not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        Upstream::parse(text)
            .unwrap()
            .places
            .iter()
            .map(Place::to_string)
            .collect()
    }

    #[test]
    fn reads_addresses() {
        assert_eq!(places("db"), ["db:5432"]);
        assert_eq!(places("127.0.0.1:6000"), ["127.0.0.1:6000"]);
        assert_eq!(places("[::1]:6000"), ["[::1]:6000"]);
        assert_eq!(places("::1"), ["[::1]:5432"]);
        assert_eq!(places("a:1,b:2"), ["a:1", "b:2"]);
        assert_eq!(places("/no/such/.s.PGSQL.7"), ["/no/such/.s.PGSQL.7"]);
        assert!(Upstream::parse("db:65536").is_err());
        assert!(Upstream::parse("db:x").is_err());
    }

    #[test]
    fn reads_uris() {
        let uri =
            "postgresql://me:p%40ss@db:6000/app?sslmode=verify-full&sslrootcert=/ca.pem&application_name=x";
        let upstream = Upstream::parse(uri).unwrap();
        assert_eq!(
            upstream.places,
            [Place::Tcp {
                host: "db".to_owned(),
                port: 6000
            }]
        );
        assert_eq!(upstream.user.as_deref(), Some("me"));
        assert_eq!(upstream.password.as_deref(), Some("p@ss"));
        assert_eq!(upstream.database.as_deref(), Some("app"));
        assert_eq!(upstream.ssl.mode, SslMode::VerifyFull);
        assert_eq!(upstream.ssl.root, Some(PathBuf::from("/ca.pem")));
        assert_eq!(places("postgres://"), ["127.0.0.1:5432"]);
        assert_eq!(places("postgres://a,b:7/x?port=1,2"), ["a:1", "b:2"]);
        assert_eq!(
            places("postgres:///x?host=/run/none&port=7"),
            ["/run/none/.s.PGSQL.7"]
        );
        assert_eq!(
            places("postgres://%2Frun%2Fnone/x?port=7"),
            ["/run/none/.s.PGSQL.7"]
        );
        assert!(Upstream::parse("postgres://a/?sslmode=maybe").is_err());
        assert!(Upstream::parse("postgres://a/?sslnegotiation=direct").is_err());
    }

    #[test]
    fn a_bad_uri_does_not_show_its_password() {
        let error = format!("{:#}", Upstream::parse("postgres://me:secret@db:x/").unwrap_err());
        assert!(!error.contains("secret"), "{error}");
    }
}
