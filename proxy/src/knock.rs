//! Sends the startup packet and reads the server's first word; where `sslmode` leaves a choice and the server
//! refuses the first, tries the other.
//!
//! In: a connected leg and the startup packet. Out: a leg on which the packet was sent, and what the server has
//! said to it.
//!
//! Always true: as with libpq, `allow` tries plain and then TLS, `prefer` TLS and then plain. Only a refusal by
//! pg_hba.conf (28000) before any authentication is tried again: nothing of the client's was used up by then.
//! When both are refused, the client reads the first refusal.

use crate::auth::read_message;
use crate::leg::Leg;
use crate::serve::Shared;
use anyhow::Result;
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;

/// The server's door, after knocking.
pub struct Answered {
    pub server: Leg,
    /// NegotiateProtocolVersion, if there was one, and the message after it; none if the server closed.
    pub said: Vec<Bytes>,
    /// What was read beyond these.
    pub rest: BytesMut,
}

pub async fn knock(server: Leg, startup: &[u8], shared: &Shared) -> Result<Answered> {
    let first = ask(server, startup).await?;
    if !first.refuses() || !shared.may_connect_otherwise(first.server.is_tls()) {
        return Ok(first);
    }
    let second = match shared.connect_otherwise().await {
        Ok(server) => ask(server, startup).await,
        Err(error) => Err(error),
    };
    match second {
        Ok(second) if !second.refuses() => Ok(second),
        Ok(_) => Ok(first),
        Err(error) => {
            tracing::debug!("the server refused, and could not be asked otherwise: {error:#}");
            Ok(first)
        }
    }
}

async fn ask(mut server: Leg, startup: &[u8]) -> Result<Answered> {
    server.write_all(startup).await?;
    server.flush().await?;
    let (mut said, mut rest) = (Vec::new(), BytesMut::new());
    while let Some(message) = read_message(&mut server, &mut rest).await? {
        let negotiates = message[0] == b'v';
        said.push(message);
        if !negotiates {
            break;
        }
    }
    Ok(Answered { server, said, rest })
}

impl Answered {
    /// pg_hba.conf has no place for this client on this kind of connection.
    fn refuses(&self) -> bool {
        self.said.last().is_some_and(|message| {
            message[0] == b'E'
                && message[5..]
                    .split(|byte| *byte == 0)
                    .any(|field| field == b"C28000")
        })
    }
}
