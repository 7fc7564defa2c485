//! Authentication, where it cannot simply be passed through.
//!
//! | client's leg | server's leg | what passes                                                          |
//! |--------------|--------------|----------------------------------------------------------------------|
//! | plain        | plain        | everything, untouched                                                |
//! | TLS          | plain        | everything but `channel_binding=require`                             |
//! | plain        | TLS          | everything; `SCRAM-SHA-256-PLUS` is taken out of the server's offer, |
//! |              |              | because clients refuse it on a plain connection                      |
//! | TLS          | TLS          | SCRAM binds to the certificate that the client saw: works if we hold |
//! |              |              | the server's own, or under `channel_binding=disable`; else           |
//! |              |              | `auth.mode = "terminate"`                                            |
//!
//! Client certificates cannot be passed through: the server sees ours.
//!
//! Terminating means: the client proves itself to us (SCRAM, with channel binding to our certificate), by
//! the user list; then we log in to the server as the same user with the listed password.
//!
//! Always true: nothing of this is captured; the relay's streams begin with the startup packet on one side
//! and with AuthenticationOk on the other.

pub mod scram;
mod users;

pub use users::Users;

use crate::leg::Leg;
use crate::relay::Begun;
use crate::startup::Refusal;
use crate::tls;
use crate::wire::message::{self, number, tagged};
use anyhow::{Context, Result, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ChannelBinding, ScramSha256};
use scram::Exchange;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use users::Secret;

/// No message of an authentication is longer (PG_MAX_AUTH_TOKEN_LENGTH).
const MESSAGE_BYTES_MAX: u32 = 65_535;

const OK: u32 = 0;
const CLEARTEXT: u32 = 3;
const MD5: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// Takes `SCRAM-SHA-256-PLUS` out of the server's offer, if this is one.
pub fn without_plus(offer: Bytes) -> Bytes {
    if offer[0] != b'R' || number(&offer, 5) != Some(SASL) {
        return offer;
    }
    let mut body = BytesMut::new();
    body.put_u32(SASL);
    for name in mechanisms(&offer).filter(|name| *name != sasl::SCRAM_SHA_256_PLUS.as_bytes()) {
        body.put_slice(name);
        body.put_u8(0);
    }
    body.put_u8(0);
    tagged(b'R', &body)
}

fn mechanisms(offer: &Bytes) -> impl Iterator<Item = &[u8]> {
    offer[9..]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
}

/// What the client and the server have said so far; the startup packet was sent.
pub struct Asked<'a> {
    /// Begins with the startup packet, which has this length.
    pub packet: &'a Bytes,
    pub startup_bytes: usize,
    pub said: Vec<Bytes>,
    pub rest: BytesMut,
}

/// Lets the client prove itself by the user list, and logs in upstream with the listed password.
pub async fn terminate(
    client: &mut Leg,
    server: &mut Leg,
    asked: Asked<'_>,
    users: &Users,
    end_point: Option<Vec<u8>>,
) -> Result<Begun> {
    let (startup, early) = asked.packet.split_at(asked.startup_bytes);
    let parameters = message::startup_parameters(startup);
    let user = parameters
        .iter()
        .find(|(name, _)| name == "user")
        .map(|(_, user)| user.clone());
    let user =
        user.ok_or_else(|| Refusal::new("28000", "no PostgreSQL user name specified in startup packet"))?;

    // Version negotiation comes before authentication, and is the client's business.
    let mut offer = None;
    for message in asked.said {
        if message[0] == b'v' {
            client.write_all(&message).await?;
        } else {
            offer = Some(message);
        }
    }
    let offer = offer.context("the server closed the connection during authentication")?;

    let mut from_server = asked.rest;
    let mut from_client = BytesMut::from(early);
    let end_point = end_point.filter(|_| matches!(client, Leg::Client(_)));
    check_client(client, &mut from_client, &user, users, end_point).await?;
    let mut to_client = match log_in(server, &mut from_server, offer, &user, users).await? {
        Login::Accepted(ok) => BytesMut::from(&ok[..]),
        Login::Refused(error) => BytesMut::from(&error[..]),
    };
    to_client.extend_from_slice(&from_server);
    // What the client may have sent beyond its proof belongs to the relay.
    let mut to_server = BytesMut::from(startup);
    to_server.extend_from_slice(&from_client);
    Ok(Begun {
        to_server: to_server.freeze(),
        startup_bytes: asked.startup_bytes,
        to_client: to_client.freeze(),
        sent_bytes: asked.startup_bytes,
    })
}

/// SCRAM with us as the server. AuthenticationOk is left to the upstream to say.
async fn check_client(
    client: &mut Leg,
    input: &mut BytesMut,
    user: &str,
    users: &Users,
    end_point: Option<Vec<u8>>,
) -> Result<()> {
    let wrong = || {
        Refusal::new(
            "28P01",
            format!("password authentication failed for user \"{user}\""),
        )
    };
    let mut offer = BytesMut::new();
    offer.put_u32(SASL);
    if end_point.is_some() {
        offer.put_slice(sasl::SCRAM_SHA_256_PLUS.as_bytes());
        offer.put_u8(0);
    }
    offer.put_slice(sasl::SCRAM_SHA_256.as_bytes());
    offer.put_slice(b"\0\0");
    client.write_all(&tagged(b'R', &offer)).await?;
    client.flush().await?;

    let first = read_response(client, input).await?;
    let broken = || Refusal::new("08P01", "malformed SCRAM message");
    let name_end = first.iter().position(|byte| *byte == 0).ok_or_else(broken)?;
    let mechanism = std::str::from_utf8(&first[..name_end])
        .map_err(|_| broken())?
        .to_owned();
    let initial = first.get(name_end + 5..).ok_or_else(broken)?;
    let verifier = users.verifier(user);
    let mut exchange = Exchange::new(verifier, &mechanism, end_point, initial).map_err(|_| broken())?;
    client
        .write_all(&authentication(SASL_CONTINUE, exchange.challenge().as_bytes()))
        .await?;
    client.flush().await?;

    let proof = read_response(client, input).await?;
    // A user that is not listed goes through the same motions, so that names cannot be guessed.
    let signature = exchange.verify(&proof).map_err(|_| wrong())?;
    if !users.knows(user) {
        return Err(wrong().into());
    }
    client
        .write_all(&authentication(SASL_FINAL, signature.as_bytes()))
        .await?;
    client.flush().await?;
    Ok(())
}

enum Login {
    Accepted(Bytes),
    Refused(Bytes),
}

/// Whatever the server asks for, answered with the listed password.
async fn log_in(
    server: &mut Leg,
    input: &mut BytesMut,
    offer: Bytes,
    user: &str,
    users: &Users,
) -> Result<Login> {
    let password = || match users.secret(user) {
        Some(Secret::Password(password)) => Ok(password.as_bytes()),
        _ => Err(Refusal::new(
            "28000",
            format!(
                "pgassay cannot log in as \"{user}\": the server asks for a password, and the user list has \
                 only a SCRAM verifier"
            ),
        )),
    };
    let mut scram: Option<ScramSha256> = None;
    let mut next = offer;
    loop {
        if next[0] == b'E' {
            return Ok(Login::Refused(next));
        }
        if next[0] == b'R' {
            let body = next.get(9..).unwrap_or_default();
            let answer = match number(&next, 5).context("a short Authentication message")? {
                OK => return Ok(Login::Accepted(next)),
                CLEARTEXT => Some([password()?, b"\0"].concat()),
                MD5 => {
                    let salt: [u8; 4] = body.try_into().context("a salt of the wrong length")?;
                    Some([md5_hash(user.as_bytes(), password()?, salt).as_bytes(), b"\0"].concat())
                }
                SASL => {
                    let plus = mechanisms(&next).any(|name| name == sasl::SCRAM_SHA_256_PLUS.as_bytes());
                    let end_point = server_end_point(server).filter(|_| plus);
                    let (name, binding) = match end_point {
                        Some(hash) => (
                            sasl::SCRAM_SHA_256_PLUS,
                            ChannelBinding::tls_server_end_point(hash),
                        ),
                        None if server.is_tls() && !plus => {
                            (sasl::SCRAM_SHA_256, ChannelBinding::unrequested())
                        }
                        None => (sasl::SCRAM_SHA_256, ChannelBinding::unsupported()),
                    };
                    let state = scram.insert(ScramSha256::new(password()?, binding));
                    let mut answer = [name.as_bytes(), b"\0"].concat();
                    answer.put_u32(state.message().len() as u32);
                    answer.put_slice(state.message());
                    Some(answer)
                }
                SASL_CONTINUE => {
                    let state = scram.as_mut().context("a SASL challenge without an offer")?;
                    state.update(body)?;
                    Some(state.message().to_vec())
                }
                SASL_FINAL => {
                    scram
                        .as_mut()
                        .context("a SASL outcome without an offer")?
                        .finish(body)?;
                    None
                }
                other => bail!(Refusal::new(
                    "28000",
                    format!("the server asks for authentication method {other}, which pgassay cannot answer")
                )),
            };
            if let Some(answer) = answer {
                server.write_all(&tagged(b'p', &answer)).await?;
                server.flush().await?;
            }
        }
        next = read_message(server, input)
            .await?
            .context("the server closed the connection during authentication")?;
    }
}

fn server_end_point(server: &Leg) -> Option<Vec<u8>> {
    let Leg::Server(stream) = server else { return None };
    tls::end_point_hash(stream.get_ref().1.peer_certificates()?.first()?)
}

fn authentication(kind: u32, body: &[u8]) -> Bytes {
    tagged(b'R', &[&kind.to_be_bytes(), body].concat())
}

async fn read_response(client: &mut Leg, input: &mut BytesMut) -> Result<Bytes> {
    let mut message = read_message(client, input)
        .await?
        .context("the client left during authentication")?;
    if message[0] != b'p' {
        bail!(Refusal::new("08P01", "expected a SASL response"));
    }
    message.advance(5);
    Ok(message)
}

/// One whole message, with its header; `None` at the end of the stream.
pub async fn read_message(leg: &mut Leg, input: &mut BytesMut) -> Result<Option<Bytes>> {
    loop {
        if let Some(length) = number(input, 1) {
            if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
                bail!(Refusal::new(
                    "08P01",
                    format!("invalid message length {length} during authentication")
                ));
            }
            if input.len() > length as usize {
                return Ok(Some(input.split_to(1 + length as usize).freeze()));
            }
        }
        if leg.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plus_offer_is_taken_out() {
        let offer = authentication(SASL, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
        assert_eq!(without_plus(offer), authentication(SASL, b"SCRAM-SHA-256\0\0"));
        let md5 = authentication(MD5, b"salt");
        assert_eq!(without_plus(md5.clone()), md5);
    }
}
