//! A connection that may be cut at any time.
//!
//! Always true: what is asked of a connection that is gone has no answer, and is no error.

use crate::raw::{Client, Message, VERSION_3_0, message, startup, text};
use std::io::Write;

pub struct Link {
    client: Client,
    closed: bool,
}

impl Link {
    /// Connects until somebody lets it in: whoever has just come may be terminated at once.
    pub fn open(port: u16) -> Link {
        loop {
            let mut link = Link {
                client: Client::connect(port),
                closed: false,
            };
            let who = [
                ("user", "postgres"),
                ("database", "postgres"),
                ("application_name", "random"),
            ];
            link.exchange(&startup(VERSION_3_0, &who));
            if !link.closed {
                return link;
            }
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn close(&mut self) {
        let _ = self.client.stream.shutdown(std::net::Shutdown::Both);
        self.closed = true;
    }

    /// Sends a query and leaves without waiting for its answer.
    pub fn leave(&mut self, sql: &str) {
        let _ = self.client.stream.write_all(&message(b'Q', &text(sql)));
        self.close();
    }

    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.exchange(&message(b'Q', &text(sql)))
    }

    pub fn exchange(&mut self, bytes: &[u8]) -> Vec<Message> {
        if !self.closed && self.client.stream.write_all(bytes).is_err() {
            self.closed = true;
        }
        self.until_ready()
    }

    /// Everything up to ReadyForQuery, or up to the end.
    pub fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while !self.closed {
            match self.client.next() {
                None => self.closed = true,
                Some(message) => {
                    let ready = message.tag == b'Z';
                    messages.push(message);
                    if ready {
                        break;
                    }
                }
            }
        }
        messages
    }
}
