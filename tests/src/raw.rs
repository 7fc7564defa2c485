//! The protocol by hand: a client that sends any bytes, and a server that answers any.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

pub const VERSION_3_0: u32 = 3 << 16;
pub const VERSION_3_2: u32 = 3 << 16 | 2;

/// Nobody waits longer than this, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// One message: tag and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub tag: u8,
    pub body: Vec<u8>,
}

pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
        Self::over(stream)
    }

    pub fn over(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Client { stream }
    }

    /// Connects and logs in as the superuser, up to the first ReadyForQuery.
    pub fn log_in(port: u16) -> Client {
        let mut client = Self::connect(port);
        client.send(&startup(
            VERSION_3_0,
            &[("user", "postgres"), ("database", "postgres")],
        ));
        client.until_ready();
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the peer reads");
    }

    /// The bodies of the rows of an answer, which must come.
    pub fn rows(&mut self, sql: &str) -> Vec<Vec<u8>> {
        let answer = self.query(sql);
        if let Some(error) = answer.iter().find(|m| m.tag == b'E') {
            panic!("{sql}: {:?}", error.field('M'));
        }
        let rows = answer.into_iter().filter(|m| m.tag == b'D');
        rows.map(|row| row.body.to_vec()).collect()
    }

    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(&message(b'Q', &text(sql)));
        self.until_ready()
    }

    pub fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).expect("an answer");
        byte[0]
    }

    /// The next message, or `None` if the peer has closed.
    pub fn next(&mut self) -> Option<Message> {
        let mut header = [0; 5];
        match self.stream.read_exact(&mut header) {
            Ok(()) => (),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(error) => panic!("no message: {error}"),
        }
        let length = u32::from_be_bytes(header[1..].try_into().expect("four bytes"));
        let mut body = vec![0; length as usize - 4];
        self.stream.read_exact(&mut body).expect("a whole message");
        Some(Message { tag: header[0], body })
    }

    pub fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.next().unwrap_or_else(|| panic!("closed after {messages:?}"));
            messages.push(message);
            if messages.last().is_some_and(|message| message.tag == b'Z') {
                return messages;
            }
        }
    }

    /// Everything until the peer closes.
    pub fn until_closed(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

impl Message {
    /// A field of an ErrorResponse: `C` the SQLSTATE, `M` the message.
    pub fn field(&self, name: char) -> Option<String> {
        let mut fields = self.body.split(|byte| *byte == 0);
        let field = fields.find(|field| field.first() == Some(&(name as u8)))?;
        Some(String::from_utf8_lossy(&field[1..]).into_owned())
    }
}

pub fn tags(messages: &[Message]) -> String {
    messages.iter().map(|message| message.tag as char).collect()
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A string with its zero.
pub fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// A packet without a tag: startup, SSLRequest, CancelRequest.
pub fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = (rest.len() as u32 + 8).to_be_bytes().to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body: Vec<u8> = parameters
        .iter()
        .flat_map(|(name, value)| [text(name), text(value)].concat())
        .collect();
    body.push(0);
    packet(version, &body)
}

pub fn ssl_request() -> Vec<u8> {
    packet(80_877_103, b"")
}

pub fn gssenc_request() -> Vec<u8> {
    packet(80_877_104, b"")
}

/// A server that is a closure: it gets every connection in turn.
pub struct FakeServer {
    pub port: u16,
}

impl FakeServer {
    pub fn start(serve: impl Fn(TcpStream) + Send + 'static) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = stream.set_read_timeout(Some(PATIENCE));
                serve(stream);
            }
        });
        FakeServer { port }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// Reads one packet without a tag.
pub fn read_packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut rest)?;
    Ok([&length[..], &rest].concat())
}

/// AuthenticationOk, a key, ReadyForQuery.
pub fn welcome() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]),
        message(b'Z', b"I"),
    ]
    .concat()
}
