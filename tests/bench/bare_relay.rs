//! The yardstick of the benchmark: the barest relay that tokio can be, which records nothing.
//!
//! `bare-relay LISTEN UPSTREAM`

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: bare-relay LISTEN UPSTREAM");
    };
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (mut client, _) = listener.accept().await?;
        let upstream = upstream.clone();
        tokio::spawn(async move {
            let mut server = TcpStream::connect(upstream).await?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            copy_bidirectional(&mut client, &mut server).await
        });
    }
}
