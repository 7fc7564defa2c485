//! The few messages that the proxy itself writes or reads: the startup packets, errors, authentication.
//!
//! Source: PostgreSQL's documentation, 55.7 «Message Formats».

use bytes::{BufMut, Bytes, BytesMut};
use pgassay_audit::wire::asks_for_replication;

pub const SSL_REQUEST: u32 = 80_877_103;
pub const GSSENC_REQUEST: u32 = 80_877_104;
pub const CANCEL_REQUEST: u32 = 80_877_102;

/// PostgreSQL's own limit (MAX_STARTUP_PACKET_LENGTH).
pub const STARTUP_BYTES_MAX: u32 = 10_000;

/// What a client's first packet (or the next one, after encryption was negotiated) is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// The first byte of a TLS record.
    DirectTls,
    SslRequest,
    GssEncRequest,
    CancelRequest,
    /// A startup packet of any version; the server decides whether it speaks it.
    Startup {
        version: u32,
    },
}

/// A packet of the startup that no PostgreSQL client sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStartup {
    #[error("invalid length of startup packet: {0}")]
    Length(u32),
}

/// Reads what `buffer` begins with: the kind of packet and its length, or `None` if more bytes are needed.
pub fn first(buffer: &[u8]) -> Result<Option<(First, usize)>, BadStartup> {
    let Some(head) = buffer.first() else {
        return Ok(None);
    };
    if *head == 0x16 {
        return Ok(Some((First::DirectTls, 0)));
    }
    let Some(length) = number(buffer, 0) else {
        // Three bytes of length are enough to refuse what cannot be one.
        return if *head != 0 {
            Err(BadStartup::Length(u32::from(*head) << 24))
        } else {
            Ok(None)
        };
    };
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(BadStartup::Length(length));
    }
    if buffer.len() < length as usize {
        return Ok(None);
    }
    let version = number(buffer, 4).expect("at least 8 bytes");
    let kind = match version {
        SSL_REQUEST => First::SslRequest,
        GSSENC_REQUEST => First::GssEncRequest,
        CANCEL_REQUEST => First::CancelRequest,
        version => First::Startup { version },
    };
    if matches!(kind, First::SslRequest | First::GssEncRequest) && length != 8 {
        return Err(BadStartup::Length(length));
    }
    Ok(Some((kind, length as usize)))
}

/// The parameters of a startup packet, as far as they can be read.
pub fn startup_parameters(packet: &[u8]) -> Vec<(String, String)> {
    let mut strings = packet.get(8..).unwrap_or_default().split(|byte| *byte == 0);
    let mut parameters = Vec::new();
    while let (Some(name), Some(value)) = (strings.next(), strings.next()) {
        if name.is_empty() {
            break;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        parameters.push((text(name), text(value)));
    }
    parameters
}

/// Whether the packet asks for a replication connection, physical or logical.
pub fn is_replication(parameters: &[(String, String)]) -> bool {
    parameters
        .iter()
        .any(|(name, value)| name == "replication" && asks_for_replication(value))
}

/// FATAL ErrorResponse.
pub fn fatal(sqlstate: &str, message: &str) -> Bytes {
    let mut body = BytesMut::new();
    for (field, value) in [
        (b'S', "FATAL"),
        (b'V', "FATAL"),
        (b'C', sqlstate),
        (b'M', message),
    ] {
        body.put_u8(field);
        // A message must not end early.
        body.extend(value.bytes().filter(|byte| *byte != 0));
        body.put_u8(0);
    }
    body.put_u8(0);
    tagged(b'E', &body)
}

/// A message of the regular kind.
pub fn tagged(tag: u8, body: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(5 + body.len());
    message.put_u8(tag);
    message.put_u32(4 + body.len() as u32);
    message.put_slice(body);
    message.freeze()
}

/// SSLRequest, as we send it to the server.
pub fn ssl_request() -> [u8; 8] {
    let mut packet = [0; 8];
    packet[..4].copy_from_slice(&8u32.to_be_bytes());
    packet[4..].copy_from_slice(&SSL_REQUEST.to_be_bytes());
    packet
}

pub fn number(buffer: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(
        buffer.get(at..at + 4)?.try_into().expect("four bytes"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
        let mut packet = (8 + rest.len() as u32).to_be_bytes().to_vec();
        packet.extend(code.to_be_bytes());
        packet.extend(rest);
        packet
    }

    #[test]
    fn tells_first_packets_apart() {
        assert_eq!(first(b""), Ok(None));
        assert_eq!(first(b"\x16\x03\x01"), Ok(Some((First::DirectTls, 0))));
        assert_eq!(first(&packet(SSL_REQUEST, b"")), Ok(Some((First::SslRequest, 8))));
        assert_eq!(
            first(&packet(GSSENC_REQUEST, b"")),
            Ok(Some((First::GssEncRequest, 8)))
        );
        // Protocol 3.2 has cancel keys of up to 256 bytes.
        assert_eq!(
            first(&packet(CANCEL_REQUEST, &[7; 260])),
            Ok(Some((First::CancelRequest, 268)))
        );
        let startup = packet(0x0003_270f, b"user\0me\0\0");
        assert_eq!(
            first(&startup),
            Ok(Some((First::Startup { version: 0x0003_270f }, startup.len())))
        );
        assert_eq!(first(&startup[..startup.len() - 1]), Ok(None));
    }

    #[test]
    fn refuses_what_is_no_startup() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\0\0\0\x07abc",
            b"\x7f\xff\xff\xff",
            b"\0\x01\0\0",
            b"SSH",
        ] {
            assert!(first(bytes).is_err(), "{bytes:?}");
        }
        assert!(first(&packet(SSL_REQUEST, b"x")).is_err());
    }

    #[test]
    fn reads_parameters() {
        let startup = packet(196_608, b"user\0me\0replication\0database\0options\0-c x=y\0\0");
        let parameters = startup_parameters(&startup);
        assert_eq!(parameters[0], ("user".to_owned(), "me".to_owned()));
        assert_eq!(parameters[2].1, "-c x=y");
        assert!(is_replication(&parameters));
        assert!(!is_replication(&startup_parameters(&packet(
            196_608,
            b"user\0replication\0\0"
        ))));
        let asks = |value: &str| is_replication(&[("replication".to_owned(), value.to_owned())]);
        assert!(["true", "T", "on", "1", "y", "database"].into_iter().all(asks));
        assert!(!["false", "OFF", "of", "n", "No", "0", "f"].into_iter().any(asks));
    }
}
