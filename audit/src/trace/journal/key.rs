//! The one secret of a journal: encrypts its blocks and keys its hashes.

use super::JournalError;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::path::Path;

#[derive(Clone)]
pub struct Key {
    secret: [u8; 32],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    pub fn new(secret: [u8; 32]) -> Key {
        Key { secret }
    }

    /// From a file of 32 bytes or of 64 hexadecimal digits.
    pub fn read(file: &Path) -> Result<Key, JournalError> {
        let bytes = std::fs::read(file).map_err(JournalError::io(file, "reading the key"))?;
        if let Ok(secret) = <[u8; 32]>::try_from(&bytes[..]) {
            return Ok(Key { secret });
        }
        let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        let mut secret = [0; 32];
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(JournalError::KeyMalformed(file.to_owned()));
        }
        for (byte, pair) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(Key { secret })
    }

    /// Tells one key from another without telling the key.
    pub(super) fn check(&self, salt: &[u8; 16]) -> [u8; 8] {
        self.hash(b"check", salt)
    }

    /// A keyed hash; `purpose` keeps hashes of different uses apart.
    pub(super) fn hash(&self, purpose: &[u8], bytes: &[u8]) -> [u8; 8] {
        let digest = self.mac(purpose).chain_update(bytes).finalize().into_bytes();
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        short
    }

    pub(super) fn seal(&self, nonce: &Nonce, header: &[u8], plain: &[u8]) -> Vec<u8> {
        self.cipher()
            .encrypt(
                &nonce.bytes(),
                Payload {
                    msg: plain,
                    aad: header,
                },
            )
            .expect("only a message of 256 GiB is too long")
    }

    pub(super) fn open(&self, nonce: &Nonce, header: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        self.cipher()
            .decrypt(
                &nonce.bytes(),
                Payload {
                    msg: sealed,
                    aad: header,
                },
            )
            .ok()
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        let derived = self.mac(b"encrypt").finalize().into_bytes();
        XChaCha20Poly1305::new(&derived)
    }

    fn mac(&self, purpose: &[u8]) -> Hmac<Sha256> {
        let mac =
            <Hmac<Sha256> as Mac>::new_from_slice(&self.secret).expect("HMAC takes a key of any length");
        mac.chain_update([purpose.len() as u8]).chain_update(purpose)
    }
}

/// Never the same twice under one key: a random salt per segment, and the number of the block in it.
pub(super) struct Nonce {
    pub salt: [u8; 16],
    pub block: u64,
}

impl Nonce {
    fn bytes(&self) -> XNonce {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.salt);
        bytes[16..].copy_from_slice(&self.block.to_le_bytes());
        bytes.into()
    }
}
