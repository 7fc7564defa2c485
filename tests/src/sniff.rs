//! A relay that keeps every byte of every connection: put one on each side of the proxy and compare.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Both streams of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    pub to_server: Vec<u8>,
    pub to_client: Vec<u8>,
}

pub struct Sniffer {
    port: u16,
    seen: Arc<Mutex<Vec<Arc<Mutex<Streams>>>>>,
}

impl Sniffer {
    pub fn start(upstream_port: u16) -> Sniffer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", upstream_port)) else {
                    continue;
                };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let streams = Arc::new(Mutex::new(Streams::default()));
                kept.lock().expect("no panic").push(streams.clone());
                let (client2, server2) = (
                    client.try_clone().expect("a socket"),
                    server.try_clone().expect("a socket"),
                );
                let streams2 = streams.clone();
                std::thread::spawn(move || {
                    copy(client, server, |bytes| {
                        streams
                            .lock()
                            .expect("no panic")
                            .to_server
                            .extend_from_slice(bytes);
                    })
                });
                std::thread::spawn(move || {
                    copy(server2, client2, |bytes| {
                        streams2
                            .lock()
                            .expect("no panic")
                            .to_client
                            .extend_from_slice(bytes);
                    })
                });
            }
        });
        Sniffer { port, seen }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The streams of all connections so far that said anything, sorted so that two sniffers can be compared.
    pub fn streams(&self) -> Vec<Streams> {
        let seen = self.seen.lock().expect("no panic");
        let mut streams: Vec<Streams> = seen
            .iter()
            .map(|streams| streams.lock().expect("no panic").clone())
            .collect();
        streams.retain(|streams| *streams != Streams::default());
        streams.sort_by(|a, b| (&a.to_client, &a.to_server).cmp(&(&b.to_client, &b.to_server)));
        streams
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut keep: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        keep(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
