//! The client's half of a session: every message becomes a request in the queue.

use super::answer::Gathering;
use super::decoder::Around;
use super::frame::{Frame, Message, STARTUP};
use super::message::{self, Body, Startup};
use super::request::Request;
use super::session::{Confused, Encoding, Phase, Session};
use crate::trace::{Nanos, Outcome, Protocol, Window};
use bytes::Bytes;
use std::sync::Arc;

impl Session {
    pub(super) fn asked(&mut self, bytes: Bytes, at: Nanos, around: &mut Around) -> Result<(), Confused> {
        let Some(mut framer) = self.client.take() else {
            return Ok(());
        };
        let result = framer.cut(bytes, at, |frame| {
            if self.phase == Phase::Ignored {
                return Ok(());
            }
            around.counters.messages += 1;
            match frame {
                Frame::Whole(message) => {
                    let tag = message.tag as char;
                    self.ask(message, around).ok_or(Confused::Malformed(tag))
                }
                Frame::Huge {
                    tag: b'd',
                    bytes,
                    crc,
                } => {
                    self.incoming.huge(b'd', bytes, crc);
                    Ok(())
                }
                Frame::Huge { tag, .. } => Err(Confused::Unexpected(tag as char)),
            }
        });
        self.client = Some(framer);
        result
    }

    fn ask(&mut self, message: Message, around: &mut Around) -> Option<()> {
        let sent = message.first;
        let mut body = Body::of(&message);
        match message.tag {
            b'B' => {
                let message::Bind {
                    portal,
                    statement,
                    parameters,
                    formats,
                } = message::bind(body)?;
                self.enqueue(Request::Bind {
                    portal,
                    statement,
                    parameters,
                    formats,
                    sent,
                });
            }
            b'E' => self.enqueue(Request::Execute {
                portal: message::execute(body)?,
                sent,
            }),
            b'S' => self.sync(sent),
            b'Q' => {
                let text = self.text(body.string()?, around);
                self.enqueue(Request::Query { text, sent });
            }
            b'P' => {
                let message::Parse { name, text, types } = message::parse(body)?;
                let text = self.text(text, around);
                self.enqueue(Request::Parse {
                    name,
                    text,
                    types,
                    sent,
                });
            }
            b'D' => {
                let message::Target { is_portal, name } = message::target(body)?;
                self.enqueue(Request::Describe {
                    is_portal,
                    name,
                    sent,
                });
            }
            b'C' => {
                let message::Target { is_portal, name } = message::target(body)?;
                self.enqueue(Request::Close {
                    is_portal,
                    name,
                    sent,
                });
            }
            b'd' => {
                let max = around.limits.result_bytes_max;
                self.incoming.copy(body.rest(), max);
            }
            b'c' | b'f' => {
                let data = std::mem::take(&mut self.incoming);
                self.copying_in = false;
                if !self.skipping {
                    self.queue.push_back(Request::CopyEnd { data });
                }
            }
            b'F' => {
                let (oid, arguments) = message::function_call(body)?;
                self.enqueue(Request::Function { oid, arguments, sent });
            }
            STARTUP => self.startup(message::startup(body)?, around),
            // Flush only hurries the answers, Terminate ends the session; passwords and SASL messages are
            // nobody's business.
            b'H' | b'X' | b'p' => {}
            _ => around.counters.unknown_messages += 1,
        }
        Some(())
    }

    fn startup(&mut self, startup: Startup, around: &mut Around) {
        match startup {
            Startup::Cancel => {
                around.counters.cancel_requests += 1;
                self.phase = Phase::Ignored;
            }
            Startup::Session(parameters) => {
                for (name, value) in &parameters {
                    match name.as_str() {
                        "user" => self.facts.user.clone_from(value),
                        "database" => self.facts.database.clone_from(value),
                        "client_encoding" => self.encoding = Encoding::named(value),
                        "replication" if asks_for_replication(value) => {
                            around.counters.replication_sessions += 1;
                            self.phase = Phase::Ignored;
                        }
                        _ => {}
                    }
                }
                self.facts.parameters = parameters;
            }
        }
    }

    fn enqueue(&mut self, request: Request) {
        // Data behind a COPY that failed belongs to nobody.
        self.incoming = Gathering::default();
        if self.skipping {
            if let Request::Execute { sent, .. } | Request::Query { sent, .. } = request {
                let (text, protocol) = match request {
                    Request::Query { text, .. } => (text, Protocol::Simple),
                    _ => (None, Protocol::Extended),
                };
                let text = text.unwrap_or_else(|| Arc::from(""));
                self.observe(
                    Some(text),
                    protocol,
                    Vec::new(),
                    Window::new(sent, sent),
                    Outcome::Skipped,
                );
            }
            return;
        }
        if request.ends_group() {
            self.groups_open += 1;
            self.pipelines |= self.groups_open > 1;
        }
        self.queue.push_back(request);
    }

    fn sync(&mut self, sent: Nanos) {
        // While it reads copy data the server ignores Sync.
        if !self.copying_in {
            self.skipping = false;
            self.enqueue(Request::Sync { sent });
        }
    }

    fn text(&self, bytes: &[u8], around: &mut Around) -> Option<Arc<str>> {
        match self.encoding {
            Encoding::Utf8 => around.texts.text(bytes),
            _ if bytes.is_ascii() => around.texts.text(bytes),
            Encoding::Latin1 => around.texts.text(latin1(bytes).as_bytes()),
            Encoding::Other => None,
        }
    }
}

/// Whether this value of the startup parameter `replication` asks for it: PostgreSQL takes `database`, and any
/// spelling of a boolean that is no abbreviation of two. (What is neither is refused by the server.)
pub fn asks_for_replication(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let abbreviates = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    !(abbreviates("false", 1)
        || abbreviates("no", 1)
        || abbreviates("off", 2)
        || value == "0"
        || value.is_empty())
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|b| char::from(*b)).collect()
}

impl Encoding {
    /// As `client_encoding` names it.
    pub(super) fn named(name: &str) -> Encoding {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match name.to_ascii_uppercase().as_str() {
            "UTF8" | "UNICODE" | "SQLASCII" => Encoding::Utf8,
            "LATIN1" | "ISO88591" => Encoding::Latin1,
            _ => Encoding::Other,
        }
    }
}

impl Session {
    /// Turns text parameters and cells into UTF-8, as the audit expects them; says whether it could.
    pub(super) fn to_utf8(&self, parameters: &mut [crate::trace::Parameter], outcome: &mut Outcome) -> bool {
        let mut readable = true;
        let mut turn = |bytes: &mut Bytes| {
            if bytes.is_ascii() {
                return;
            }
            match self.encoding {
                Encoding::Latin1 => *bytes = latin1(bytes).into(),
                _ => readable = false,
            }
        };
        for parameter in parameters.iter_mut().filter(|p| p.format == 0) {
            parameter.value.iter_mut().for_each(&mut turn);
        }
        if let Outcome::Answer(answer) = outcome {
            let columns = answer.columns.clone();
            for row in &mut answer.rows {
                for (i, cell) in row.iter_mut().enumerate() {
                    if columns.get(i).is_none_or(|c| c.format == 0) {
                        cell.iter_mut().for_each(&mut turn);
                    }
                }
            }
            answer.copy.iter_mut().for_each(&mut turn);
        }
        readable
    }
}
