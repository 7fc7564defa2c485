//! The smallest HTTP client and server that the tests need: one request per connection, on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

/// Nobody waits longer than this for an answer, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }
}

/// GET with more headers than Host.
pub fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    try_get(address, path, headers).unwrap_or_else(|error| panic!("GET {path} from {address}: {error}"))
}

pub fn try_get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Response> {
    ask(address, "GET", path, headers, "")
}

/// POST with more headers than Host and Content-Length.
pub fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    ask(address, "POST", path, headers, body)
        .unwrap_or_else(|error| panic!("POST {path} to {address}: {error}"))
}

fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if method != "GET" {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    let mut answer = BufReader::new(stream);
    let (status, headers) = head(&mut answer)?;
    let mut body = Vec::new();
    if headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked")
    {
        loop {
            let mut size = String::new();
            answer.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            answer.read_exact(&mut chunk)?;
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else {
        answer.read_to_end(&mut body)?;
    }
    let status = status
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    Ok(Response {
        status,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// A server that says `status` to everything and hands over the bodies it was sent.
pub struct Sink {
    pub address: SocketAddr,
    pub requests: mpsc::Receiver<Request>,
}

#[derive(Debug)]
pub struct Request {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Sink {
    /// `statuses` are answered in order, the last one for ever.
    pub fn start(statuses: &'static [u16]) -> Sink {
        Self::start_on(TcpListener::bind("127.0.0.1:0").expect("a free port"), statuses)
    }

    pub fn start_on(listener: TcpListener, statuses: &'static [u16]) -> Sink {
        let address = listener.local_addr().expect("an address");
        let (sender, requests) = mpsc::channel();
        std::thread::spawn(move || {
            let mut statuses = statuses.iter();
            let mut status = 200;
            for stream in listener.incoming().flatten() {
                status = *statuses.next().unwrap_or(&status);
                if let Ok(request) = serve(stream, status) {
                    if sender.send(request).is_err() {
                        return;
                    }
                }
            }
        });
        Sink { address, requests }
    }
}

fn serve(stream: TcpStream, status: u16) -> std::io::Result<Request> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let (line, headers) = head(&mut reader)?;
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let answer = format!("HTTP/1.1 {status} so\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes())?;
    Ok(Request {
        line,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

fn head(reader: &mut impl BufRead) -> std::io::Result<(String, Vec<(String, String)>)> {
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return Ok((first.trim_end().to_owned(), headers)),
        }
    }
}
