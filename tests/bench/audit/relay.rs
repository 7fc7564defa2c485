//! A relay that makes the network slow: every byte arrives so many milliseconds later, in both directions.
//!
//! Bytes keep their order and their distance: a delay lengthens windows, it does not lower the throughput of a
//! pipeline.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Listens on a free port of 127.0.0.1 and relays to `upstream` with a delay; returns the port.
pub async fn start(upstream: String, delay: Duration) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let upstream = upstream.clone();
            tokio::spawn(async move {
                if let Ok(server) = TcpStream::connect(&upstream).await {
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::join!(
                        carry(from_client, to_server, delay),
                        carry(from_server, to_client, delay)
                    );
                }
            });
        }
    });
    Ok(port)
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    delay: Duration,
) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(1_024);
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if sender
                .send((Instant::now() + delay, buffer[..count].to_vec()))
                .await
                .is_err()
            {
                break;
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            if !delay.is_zero() {
                tokio::time::sleep_until(due).await;
            }
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}
