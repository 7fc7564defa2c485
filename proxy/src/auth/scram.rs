//! SCRAM-SHA-256 with us as the server. Source: RFC 5802, RFC 7677, and PostgreSQL's use of them.

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use postgres_protocol::authentication::sasl::{SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use sha2::{Digest, Sha256};

/// What a server keeps instead of a password.
#[derive(Clone)]
pub struct Verifier {
    iterations: u32,
    /// In base64, as it travels.
    salt: String,
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

/// One authentication.
pub struct Exchange {
    verifier: Verifier,
    /// The client's header and the data bound to, as its final message must repeat them.
    binding: Vec<u8>,
    nonce: String,
    client_first_bare: String,
    server_first: String,
}

impl Verifier {
    /// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, as in pg_authid.
    pub fn parse(text: &str) -> Option<Verifier> {
        let mut parts = text.strip_prefix("SCRAM-SHA-256$")?.split(['$', ':']);
        let iterations = parts.next()?.parse().ok().filter(|count| *count > 0)?;
        let salt = parts.next()?.to_owned();
        BASE64.decode(&salt).ok()?;
        let mut key = || BASE64.decode(parts.next()?).ok()?.try_into().ok();
        Some(Verifier {
            iterations,
            salt,
            stored_key: key()?,
            server_key: key()?,
        })
    }

    pub fn of(password: &str) -> Verifier {
        let text = postgres_protocol::password::scram_sha_256(password.as_bytes());
        Self::parse(&text).expect("the form that PostgreSQL stores")
    }

    /// Of a password that nobody knows.
    pub fn random() -> Verifier {
        Verifier {
            iterations: 4096,
            salt: BASE64.encode(random::<16>()),
            stored_key: random(),
            server_key: random(),
        }
    }
}

impl Exchange {
    /// Reads the client's first message. `end_point`: what the channel is bound to, if we offered -PLUS.
    pub fn new(
        verifier: Verifier,
        mechanism: &str,
        end_point: Option<Vec<u8>>,
        client_first: &[u8],
    ) -> Result<Exchange> {
        let text = std::str::from_utf8(client_first)?;
        let (flag, rest) = text.split_once(',').context("no gs2 header")?;
        let (authzid, bare) = rest.split_once(',').context("no gs2 header")?;
        ensure!(authzid.is_empty(), "an authorization identity is not supported");
        let mut binding = format!("{flag},{authzid},").into_bytes();
        match (mechanism, flag, end_point) {
            (SCRAM_SHA_256_PLUS, "p=tls-server-end-point", Some(hash)) => binding.extend(hash),
            (SCRAM_SHA_256, "n", _) | (SCRAM_SHA_256, "y", None) => (),
            (SCRAM_SHA_256, "y", Some(_)) => bail!("somebody took our -PLUS offer away"),
            _ => bail!("mechanism {mechanism} does not go with {flag}"),
        }
        let nonce = bare
            .split(',')
            .find_map(|part| part.strip_prefix("r="))
            .context("no nonce")?;
        ensure!(!nonce.is_empty(), "an empty nonce");
        let nonce = format!("{nonce}{}", BASE64.encode(random::<18>()));
        let server_first = format!("r={nonce},s={},i={}", verifier.salt, verifier.iterations);
        Ok(Exchange {
            verifier,
            binding,
            nonce,
            client_first_bare: bare.to_owned(),
            server_first,
        })
    }

    /// The server's first message.
    pub fn challenge(&self) -> &str {
        &self.server_first
    }

    /// Checks the client's final message; returns ours.
    pub fn verify(&mut self, client_final: &[u8]) -> Result<String> {
        let text = std::str::from_utf8(client_final)?;
        let (without_proof, proof) = text.rsplit_once(",p=").context("no proof")?;
        let mut parts = without_proof.split(',');
        let binding = parts
            .next()
            .and_then(|part| part.strip_prefix("c="))
            .context("no channel binding")?;
        let nonce = parts
            .next()
            .and_then(|part| part.strip_prefix("r="))
            .context("no nonce")?;
        ensure!(
            BASE64.decode(binding)? == self.binding,
            "channel binding does not match"
        );
        ensure!(nonce == self.nonce, "the nonce does not match");
        let proof: [u8; 32] = BASE64
            .decode(proof)?
            .try_into()
            .ok()
            .context("a proof of the wrong length")?;

        let message = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let signature = hmac(&self.verifier.stored_key, message.as_bytes());
        let mut client_key = [0; 32];
        for (key, (a, b)) in client_key.iter_mut().zip(proof.iter().zip(signature)) {
            *key = a ^ b;
        }
        let found = Sha256::digest(client_key);
        // Constant time: every byte is looked at.
        let differs = found
            .iter()
            .zip(self.verifier.stored_key)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        ensure!(differs == 0, "wrong password");
        let own = hmac(&self.verifier.server_key, message.as_bytes());
        Ok(format!("v={}", BASE64.encode(own)))
    }
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source
        .fill(&mut bytes)
        .expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

    fn authenticate(
        password: &str,
        mechanism: &str,
        ours: Option<&[u8]>,
        theirs: ChannelBinding,
    ) -> Result<()> {
        let mut client = ScramSha256::new(password.as_bytes(), theirs);
        let verifier = Verifier::of("pencil");
        let mut server = Exchange::new(verifier, mechanism, ours.map(<[u8]>::to_vec), client.message())?;
        client.update(server.challenge().as_bytes())?;
        let signature = server.verify(client.message())?;
        Ok(client.finish(signature.as_bytes())?)
    }

    #[test]
    fn the_right_password_and_no_other() {
        assert!(authenticate("pencil", SCRAM_SHA_256, None, ChannelBinding::unsupported()).is_ok());
        assert!(authenticate("pen", SCRAM_SHA_256, None, ChannelBinding::unsupported()).is_err());
    }

    #[test]
    fn the_channel_must_be_the_same() {
        let bound = |hash: &[u8]| ChannelBinding::tls_server_end_point(hash.to_vec());
        assert!(authenticate("pencil", SCRAM_SHA_256_PLUS, Some(b"x"), bound(b"x")).is_ok());
        assert!(authenticate("pencil", SCRAM_SHA_256_PLUS, Some(b"x"), bound(b"y")).is_err());
        assert!(authenticate("pencil", SCRAM_SHA_256, Some(b"x"), bound(b"x")).is_err());
        assert!(authenticate("pencil", SCRAM_SHA_256, Some(b"x"), ChannelBinding::unrequested()).is_err());
        assert!(authenticate("pencil", SCRAM_SHA_256, None, ChannelBinding::unrequested()).is_ok());
    }

    #[test]
    fn broken_messages_are_errors() {
        for first in [
            &b""[..],
            b"n",
            b"n,,",
            b"n,,r=",
            b"x,,n=,r=a",
            b"n,a=me,n=,r=a",
            b"\xff,,",
        ] {
            assert!(
                Exchange::new(Verifier::of("x"), SCRAM_SHA_256, None, first).is_err(),
                "{first:?}"
            );
        }
        let mut exchange = Exchange::new(Verifier::of("x"), SCRAM_SHA_256, None, b"n,,n=,r=abc").unwrap();
        for last in [
            &b""[..],
            b"c=biws",
            b"c=biws,r=abc,p=AAAA",
            b"c=!,r=,p=",
            b"\xff,p=",
        ] {
            assert!(exchange.verify(last).is_err(), "{last:?}");
        }
    }
}
