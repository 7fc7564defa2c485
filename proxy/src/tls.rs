//! TLS on either leg, with rustls.
//!
//! In: PEM files and a socket. Out: a stream inside TLS, and what SCRAM's channel binding needs to know
//! about a certificate.
//!
//! Always true: a certificate that cannot be read on reload leaves the old one in use, and that is said.

use crate::leg::{Rewound, Socket};
use crate::upstream::{Ssl, SslMode};
use anyhow::{Context, Result, anyhow, bail};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use sha2::Digest;
use std::path::Path;
use std::sync::Arc;

/// What PostgreSQL 17 and later call themselves in ALPN.
pub const ALPN: &[u8] = b"postgresql";
const SYSTEM_ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Our certificate, ready to accept clients with.
#[derive(Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
    /// The hash that `tls-server-end-point` binds to; `None` if the certificate's algorithm has none.
    pub end_point: Option<Vec<u8>>,
}

impl Identity {
    pub fn read(certificate: &Path, key: &Path) -> Result<Identity> {
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| anyhow!("cannot read the private key {}: {error}", key.display()))?;
        let end_point = chain.first().and_then(|certificate| end_point_hash(certificate));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .with_context(|| format!("{} and {} do not fit", certificate.display(), key.display()))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Identity {
            config: Arc::new(config),
            end_point,
        })
    }

    pub async fn accept(&self, socket: Rewound) -> std::io::Result<tokio_rustls::server::TlsStream<Rewound>> {
        tokio_rustls::TlsAcceptor::from(self.config.clone())
            .accept(socket)
            .await
    }
}

/// TLS to the server, checked as `sslmode` says.
pub async fn connect(
    ssl: &Ssl,
    host: &str,
    socket: Socket,
) -> Result<tokio_rustls::client::TlsStream<Socket>> {
    let provider = provider();
    // As libpq: `require` with a root certificate at hand checks the chain too.
    let roots = match (&ssl.root, ssl.mode) {
        (Some(root), _) => Some(read_roots(root)?),
        (None, SslMode::VerifyCa | SslMode::VerifyFull) => Some(read_roots(Path::new("system"))?),
        (None, _) => None,
    };
    let chain = match roots {
        Some(roots) => {
            Some(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?)
        }
        None => None,
    };
    let verifier = Arc::new(Verifier {
        chain,
        name_counts: ssl.mode == SslMode::VerifyFull,
        provider: provider.clone(),
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match (&ssl.certificate, &ssl.key) {
        (Some(certificate), Some(key)) => {
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| anyhow!("cannot read sslkey {}: {error}", key.display()))?;
            builder.with_client_auth_cert(certificates(certificate)?, private)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host} is no host name"))?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
        .map_err(|error| anyhow!(refusal(&error, ssl, host)))?;
    if ssl.direct && stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        bail!("the server did not choose the ALPN protocol `postgresql`");
    }
    Ok(stream)
}

/// What `tls-server-end-point` (RFC 5929, section 4.1) hashes a certificate to: with the hash of its own
/// signature algorithm, but SHA-256 in place of MD5 and SHA-1.
pub fn end_point_hash(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let bytes: &[u8] = certificate;
    Some(match signature_oid(bytes)? {
        // md5, sha1, sha224(no PostgreSQL build uses it), sha256 with RSA; ecdsa with sha1, sha256
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 4 | 5 | 11]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => sha2::Sha256::digest(bytes).to_vec(),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 12] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => {
            sha2::Sha384::digest(bytes).to_vec()
        }
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 13] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => {
            sha2::Sha512::digest(bytes).to_vec()
        }
        _ => return None,
    })
}

/// Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OID … } … }
fn signature_oid(certificate: &[u8]) -> Option<&[u8]> {
    let (outer, _) = der(certificate, 0x30)?;
    let (_, after_tbs) = der(outer, 0x30)?;
    let (algorithm, _) = der(after_tbs, 0x30)?;
    Some(der(algorithm, 0x06)?.0)
}

/// The content of the element that `bytes` begins with, and what follows it.
fn der(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            if digits.len() > 4 {
                return None;
            }
            (
                digits
                    .iter()
                    .fold(0, |length, digit| length << 8 | usize::from(*digit)),
                rest,
            )
        }
    };
    (*head == tag).then(|| rest.split_at_checked(length))?
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| anyhow!("cannot read the certificate {}: {error}", path.display()))?;
    if chain.is_empty() {
        bail!("{} holds no certificate", path.display());
    }
    Ok(chain)
}

fn read_roots(path: &Path) -> Result<RootCertStore> {
    let path = if path == Path::new("system") {
        let found = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists());
        found.context("no system root certificates were found; set sslrootcert to a PEM file")?
    } else {
        path
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(path)?);
    Ok(roots)
}

/// Checks a server's certificate as far as `sslmode` asks for it.
#[derive(Debug)]
struct Verifier {
    /// `None` under `require` and `prefer` without a root: encryption without authentication, as in libpq.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// `verify-full`; under `verify-ca` the chain counts, the name does not.
    name_counts: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name_counts => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Why there is no TLS with the server, and what to do about it.
fn refusal(error: &std::io::Error, ssl: &Ssl, host: &str) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let Some(Error::InvalidCertificate(why)) = cause else {
        return format!("TLS with the server failed: {error}");
    };
    let mode = ssl.mode;
    let roots = match &ssl.root {
        Some(path) if path != Path::new("system") => format!("sslrootcert={}", path.display()),
        _ => "the system's root certificates (sslrootcert names others)".to_owned(),
    };
    match why {
        CertificateError::UnknownIssuer => format!(
            "sslmode={mode}: the server's certificate was not issued by an authority of {roots}; give the file of \
             the one that issued it"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "sslmode={mode}: the server's certificate is not for `{host}` ({why}); connect by a name that it \
             holds, or use sslmode=verify-ca"
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("sslmode={mode}: the server's certificate has expired ({why}); renew it")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!(
                "sslmode={mode}: the server's certificate is not valid yet ({why}); are the clocks right?"
            )
        }
        _ => format!("sslmode={mode}: the server's certificate was refused: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_is_read_with_care() {
        assert_eq!(der(&[0x30, 2, 1, 2, 9], 0x30), Some((&[1, 2][..], &[9][..])));
        assert_eq!(der(&[0x30, 0x81, 1, 7], 0x30), Some((&[7][..], &[][..])));
        for bad in [
            &[][..],
            &[0x30],
            &[0x31, 0],
            &[0x30, 2, 1],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x30, 0x82, 1],
        ] {
            assert_eq!(der(bad, 0x30), None, "{bad:?}");
        }
    }
}
