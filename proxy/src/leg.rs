//! One side of a connection: a socket of either kind, plain or inside TLS.
//!
//! Always true: whatever is read from or written to over TCP sends at once (no Nagle) and notices when the other
//! side is gone for good. There is no other way to make one.

use bytes::{Buf, Bytes};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected stream of bytes.
pub enum Socket {
    Tcp(Tcp),
    Unix(UnixStream),
}

/// A TCP stream that is set up for relaying.
pub struct Tcp(TcpStream);

impl Tcp {
    /// No Nagle, and keepalive probes after a silence.
    pub fn tuned(stream: TcpStream, keepalive: Option<Duration>) -> io::Result<Tcp> {
        stream.set_nodelay(true)?;
        if let Some(after) = keepalive {
            let probes = socket2::TcpKeepalive::new()
                .with_time(after)
                .with_interval(after / 3);
            socket2::SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        }
        Ok(Tcp(stream))
    }
}

/// A socket whose first bytes were already read: they are read again from here.
pub struct Rewound {
    prefix: Bytes,
    socket: Socket,
}

/// What the relay reads from and writes to.
pub enum Leg {
    Plain(Socket),
    /// TLS in which we are the server.
    Client(Box<tokio_rustls::server::TlsStream<Rewound>>),
    /// TLS in which we are the client.
    Server(Box<tokio_rustls::client::TlsStream<Socket>>),
}

impl Rewound {
    pub fn new(prefix: Bytes, socket: Socket) -> Rewound {
        Rewound { prefix, socket }
    }
}

impl Leg {
    /// Where a leg to the server comes from, as the server sees it; `None` on a unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        let socket = match self {
            Leg::Plain(socket) => socket,
            Leg::Client(stream) => &stream.get_ref().0.socket,
            Leg::Server(stream) => stream.get_ref().0,
        };
        match socket {
            Socket::Tcp(Tcp(stream)) => stream.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    pub fn is_tls(&self) -> bool {
        !matches!(self, Leg::Plain(_))
    }
}

macro_rules! each {
    ($self:expr, $kind:ident, [$($variant:ident),+], $inner:ident => $call:expr) => {
        match $self.get_mut() { $($kind::$variant($inner) => $call),+ }
    };
}

/// Both kinds alike.
macro_rules! on_either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Socket::Tcp(Tcp($stream)) => $call,
            Socket::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_either!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl AsyncRead for Rewound {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.prefix.is_empty() {
            return Pin::new(&mut this.socket).poll_read(cx, buf);
        }
        let take = this.prefix.len().min(buf.remaining());
        buf.put_slice(&this.prefix[..take]);
        this.prefix.advance(take);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

impl AsyncRead for Leg {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, Leg, [Plain, Client, Server], inner => Pin::new(inner).poll_read(cx, buf))
    }
}

impl AsyncWrite for Leg {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, Leg, [Plain, Client, Server], inner => Pin::new(inner).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, Leg, [Plain, Client, Server], inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, Leg, [Plain, Client, Server], inner => Pin::new(inner).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whatever_relays_sends_at_once_and_notices_silence() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (made, taken) = tokio::join!(TcpStream::connect(address), listener.accept());
        for stream in [made.unwrap(), taken.unwrap().0] {
            assert!(!stream.nodelay().unwrap(), "it would not show otherwise");
            let Tcp(stream) = Tcp::tuned(stream, Some(Duration::from_secs(60))).unwrap();
            assert!(stream.nodelay().unwrap());
            let socket = socket2::SockRef::from(&stream);
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        }
    }
}
