//! The server's half of a session: every message answers the request in front of the queue.
//!
//! Source: PostgreSQL manual, section 55.2 "Message Flow", and `PostgresMain` in
//! `src/backend/tcop/postgres.c` for what is skipped after an error and during COPY.

use super::answer::{Gathering, unnamed_columns};
use super::decoder::Around;
use super::frame::{Frame, Message};
use super::message::{self, Body, lossy};
use super::request::{Prepared, Request};
use super::session::{Confused, Encoding, Phase, Session, function_text};
use crate::trace::lex::{self, Kind, Token};
use crate::trace::{Answer, Nanos, Outcome, Protocol, ServerError, Status, Window};
use bytes::Bytes;
use std::sync::Arc;

impl Session {
    pub(super) fn answered(&mut self, bytes: Bytes, at: Nanos, around: &mut Around) -> Result<(), Confused> {
        let Some(mut framer) = self.server.take() else {
            return Ok(());
        };
        let result = framer.cut(bytes, at, |frame| {
            if self.phase == Phase::Ignored {
                return Ok(());
            }
            around.counters.messages += 1;
            match frame {
                Frame::Whole(message) => self.answer(message, at, around),
                Frame::Huge { tag, bytes, crc } => {
                    self.gathering.huge(tag, bytes, crc);
                    Ok(())
                }
            }
        });
        self.server = Some(framer);
        result
    }

    fn answer(&mut self, message: Message, at: Nanos, around: &mut Around) -> Result<(), Confused> {
        let malformed = || Confused::Malformed(message.tag as char);
        let unexpected = || Confused::Unexpected(message.tag as char);
        let mut body = Body::of(&message);
        let raw = body.rest();
        // Data of a COPY that ended belongs to nobody.
        while let Some(Request::CopyEnd { .. }) = self.queue.front() {
            self.queue.pop_front();
        }
        match message.tag {
            b'D' => {
                if !self.runs_statement() {
                    return Err(unexpected());
                }
                let max = around.limits.result_bytes_max;
                self.gathering
                    .row(raw, max, || message::data_row(body))
                    .ok_or_else(malformed)?;
            }
            b'C' => {
                let tag = lossy(body.string().ok_or_else(malformed)?);
                self.complete(Some(tag), at).ok_or_else(unexpected)?;
            }
            b'Z' => self
                .ready(body.byte().ok_or_else(malformed)?, at, around)
                .ok_or_else(unexpected)?,
            b'T' => {
                let columns = around
                    .texts
                    .columns(raw, || message::row_description(body))
                    .ok_or_else(malformed)?;
                self.describe(Some(columns)).ok_or_else(unexpected)?;
            }
            b'1' => self.parsed().ok_or_else(unexpected)?,
            b'2' => self.bound().ok_or_else(unexpected)?,
            b'3' => self.closed().ok_or_else(unexpected)?,
            b't' => {
                let types = message::parameter_description(body).ok_or_else(malformed)?;
                let Some(Request::Describe {
                    is_portal: false,
                    name,
                    ..
                }) = self.queue.front()
                else {
                    return Err(unexpected());
                };
                if let Some(statement) = self.statements.get_mut(name)
                    && *statement.types != *types
                {
                    statement.types = types.into();
                }
            }
            b'n' => self.describe(None).ok_or_else(unexpected)?,
            b'I' => self.complete(Some(String::new()), at).ok_or_else(unexpected)?,
            b's' => self.complete(None, at).ok_or_else(unexpected)?,
            b'E' => {
                let (error, fatal) = message::error(body).ok_or_else(malformed)?;
                self.fail(error, fatal, at);
            }
            b'G' | b'H' => {
                if !self.runs_statement() {
                    return Err(unexpected());
                }
                self.gathering.begin_copy();
                if message.tag == b'G' {
                    self.copy_in();
                }
            }
            b'd' => self.gathering.copy(raw, around.limits.result_bytes_max),
            b'c' => {}
            b'V' => {
                let cell = message::function_result(body).ok_or_else(malformed)?;
                self.function_result(cell, at).ok_or_else(unexpected)?;
            }
            b'S' => {
                let status = message::parameter_status(body).ok_or_else(malformed)?;
                self.parameter_status(status);
            }
            b'K' => around.backends.push(body.uint32().ok_or_else(malformed)?),
            // Notices, notifications, authentication and protocol negotiation are not part of any answer.
            b'N' | b'A' | b'R' | b'v' => {}
            // CopyBoth belongs to replication, which is not followed.
            b'W' => return Err(unexpected()),
            _ => around.counters.unknown_messages += 1,
        }
        Ok(())
    }

    fn runs_statement(&self) -> bool {
        matches!(
            self.queue.front(),
            Some(Request::Query { .. } | Request::Execute { .. })
        )
    }

    /// ReadyForQuery.
    fn ready(&mut self, status: u8, at: Nanos, around: &mut Around) -> Option<()> {
        let status = match status {
            b'I' => Status::Idle,
            b'T' => Status::InBlock,
            b'E' => Status::Failed,
            _ => return None,
        };
        if self.phase == Phase::Starting {
            self.start(around);
            return Some(());
        }
        let sent = match self.queue.front()? {
            Request::Query { sent, .. } | Request::Sync { sent } | Request::Function { sent, .. } => *sent,
            _ => return None,
        };
        self.queue.pop_front();
        self.groups_open = self.groups_open.saturating_sub(1);
        self.gathering = Gathering::default();
        self.finish(status, Window::new(sent, at), around);
        Some(())
    }

    /// CommandComplete, EmptyQueryResponse (an empty tag) or PortalSuspended (none).
    fn complete(&mut self, tag: Option<String>, at: Nanos) -> Option<()> {
        let mut gathering = std::mem::take(&mut self.gathering);
        if let Some(Request::CopyEnd { .. }) = self.queue.get(1)
            && let Some(Request::CopyEnd { data }) = self.queue.remove(1)
        {
            gathering.take_copy(data);
        }
        self.copying_in = false;
        match self.queue.front()? {
            Request::Query { text, sent } => {
                let (text, sent) = (text.clone(), *sent);
                self.note_prepared(text.as_deref(), tag.as_deref());
                let sent = self.since(sent);
                let outcome = Outcome::Answer(gathering.answer(tag));
                self.observe(text, Protocol::Simple, Vec::new(), Window::new(sent, at), outcome);
                self.part = self.part.saturating_add(1);
            }
            Request::Execute { .. } => {
                let Some(Request::Execute { portal, sent }) = self.queue.pop_front() else {
                    return None;
                };
                self.executed(&portal, sent, gathering, tag, at);
            }
            _ => return None,
        }
        Some(())
    }

    fn executed(&mut self, name: &[u8], sent: Nanos, mut rows: Gathering, tag: Option<String>, at: Nanos) {
        let suspended = tag.is_none();
        let Some(portal) = self.portals.get_mut(name) else {
            // A cursor that SQL declared, or a portal bound before a gap.
            self.blind(sent, "rows of a portal that was not seen being bound");
            return;
        };
        match (&portal.columns, rows.first_row_len()) {
            (Some(columns), _) => rows.describe(columns.clone()),
            (None, Some(count)) => rows.describe(unnamed_columns(count, &portal.formats)),
            (None, None) => {}
        }
        let text = portal.text.clone();
        let (protocol, sent, parameters) = if portal.fetched {
            (Protocol::Continued, sent, portal.parameters.clone())
        } else {
            portal.fetched = true;
            // A portal that is not finished may be executed again.
            let parameters = if suspended {
                portal.parameters.clone()
            } else {
                std::mem::take(&mut portal.parameters)
            };
            (Protocol::Extended, portal.sent, parameters)
        };
        let sent = if protocol == Protocol::Extended {
            self.since(sent)
        } else {
            sent
        };
        self.note_prepared(text.as_deref(), tag.as_deref());
        let outcome = Outcome::Answer(rows.answer(tag));
        self.observe(text, protocol, parameters, Window::new(sent, at), outcome);
    }

    /// The earliest instant at which the statement that was sent then may have taken its snapshot.
    fn since(&mut self, sent: Nanos) -> Nanos {
        self.early.take().map_or(sent, |early| early.min(sent))
    }

    fn before_execute(&mut self, sent: Nanos) {
        self.early = Some(self.early.map_or(sent, |early| early.min(sent)));
    }

    fn parsed(&mut self) -> Option<()> {
        let Some(Request::Parse {
            name,
            text,
            types,
            sent,
        }) = self.pop_if(|r| matches!(r, Request::Parse { .. }))
        else {
            return None;
        };
        self.before_execute(sent);
        self.statements.insert(&name, Prepared::new(text, types));
        Some(())
    }

    fn bound(&mut self) -> Option<()> {
        let Some(Request::Bind {
            portal,
            statement,
            parameters,
            formats,
            sent,
        }) = self.pop_if(|r| matches!(r, Request::Bind { .. }))
        else {
            return None;
        };
        self.before_execute(sent);
        let bound = match self.statements.get_mut(&statement) {
            Some(prepared) => prepared.bind(parameters, formats, sent),
            // Prepared before a gap.
            None => Prepared::new(None, Vec::new()).bind(parameters, formats, sent),
        };
        self.portals.insert(&portal, bound);
        Some(())
    }

    fn closed(&mut self) -> Option<()> {
        let Some(Request::Close { is_portal, name, .. }) =
            self.pop_if(|r| matches!(r, Request::Close { .. }))
        else {
            return None;
        };
        if is_portal {
            self.portals.remove(&name);
        } else {
            self.statements.remove(&name);
        }
        Some(())
    }

    /// RowDescription or NoData.
    fn describe(&mut self, columns: Option<Arc<[crate::trace::Column]>>) -> Option<()> {
        match self.queue.front()? {
            Request::Query { .. } | Request::Execute { .. } => self.gathering.describe(columns?),
            Request::Describe { .. } => {
                let Some(Request::Describe {
                    is_portal,
                    name,
                    sent,
                }) = self.queue.pop_front()
                else {
                    return None;
                };
                self.before_execute(sent);
                if is_portal {
                    if let Some(portal) = self.portals.get_mut(&name) {
                        portal.columns = columns;
                    }
                } else if let Some(statement) = self.statements.get_mut(&name) {
                    statement.describe(columns);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// CopyInResponse: every Sync between the request and the end of the data is ignored.
    fn copy_in(&mut self) {
        let mut at = 1;
        loop {
            match self.queue.get(at) {
                Some(Request::Sync { .. }) => {
                    self.queue.remove(at);
                    self.groups_open = self.groups_open.saturating_sub(1);
                }
                Some(Request::CopyEnd { .. }) => {
                    // `complete` looks for the data right behind the request.
                    if at > 1
                        && let Some(end) = self.queue.remove(at)
                    {
                        self.queue.insert(1, end);
                    }
                    return;
                }
                Some(_) => at += 1,
                None => {
                    self.copying_in = true;
                    return;
                }
            }
        }
    }

    fn function_result(&mut self, cell: Option<Bytes>, at: Nanos) -> Option<()> {
        let Some(Request::Function { oid, arguments, sent }) = self.queue.front_mut() else {
            return None;
        };
        let (oid, arguments, sent) = (*oid, std::mem::take(arguments), *sent);
        let sent = self.since(sent);
        let outcome = Outcome::Answer(Answer {
            rows: vec![vec![cell]],
            ..Answer::default()
        });
        self.observe(
            Some(function_text(oid)),
            Protocol::Function,
            arguments,
            Window::new(sent, at),
            outcome,
        );
        Some(())
    }

    fn parameter_status(&mut self, (name, value): (String, String)) {
        match name.as_str() {
            "client_encoding" => self.encoding = Encoding::named(&value),
            "server_version" => self.facts.server_version.clone_from(&value),
            _ => {}
        }
        if self.phase == Phase::Starting {
            self.facts.parameters.push((name, value));
        }
    }

    /// ErrorResponse.
    fn fail(&mut self, error: ServerError, fatal: bool, at: Nanos) {
        self.gathering = Gathering::default();
        self.copying_in = false;
        if fatal {
            // The connection ends. Even a COMMIT may have happened, so what is unanswered stays so.
            return;
        }
        let outcome = Outcome::Error(error);
        let Some(front) = self.queue.front_mut() else {
            return;
        };
        match front {
            Request::Query { text, sent } => {
                let (text, sent) = (text.clone(), *sent);
                let sent = self.since(sent);
                self.observe(text, Protocol::Simple, Vec::new(), Window::new(sent, at), outcome);
                self.part = self.part.saturating_add(1);
            }
            Request::Function { oid, arguments, sent } => {
                let (oid, arguments, sent) = (*oid, std::mem::take(arguments), *sent);
                let window = Window::new(self.since(sent), at);
                self.observe(
                    Some(function_text(oid)),
                    Protocol::Function,
                    arguments,
                    window,
                    outcome,
                );
            }
            // The commit of an implicit transaction failed, for instance on a deferred constraint.
            Request::Sync { sent } => {
                let window = Window::new(*sent, at);
                self.observe(
                    Some(Arc::from("")),
                    Protocol::Extended,
                    Vec::new(),
                    window,
                    outcome,
                );
            }
            _ => self.fail_extended(outcome, at),
        }
    }

    /// The request in front failed; what follows it up to Sync is skipped.
    fn fail_extended(&mut self, outcome: Outcome, at: Nanos) {
        // An Execute that only runs what failed to be parsed or bound has no failure of its own.
        let blamed = self.execute_of_front();
        let index = blamed.unwrap_or(0);
        let (text, parameters, protocol) = match &self.queue[index] {
            Request::Execute { portal, .. } => {
                let protocol = self.protocol_ahead(index, portal);
                (
                    self.text_ahead(index, portal),
                    self.parameters_ahead(index, portal),
                    protocol,
                )
            }
            Request::Parse { text, .. } => (text.clone(), Vec::new(), Protocol::Extended),
            Request::Bind {
                statement,
                parameters,
                ..
            } => {
                let text = self.statements.get(statement).and_then(|s| s.text.clone());
                (
                    text.or_else(|| Some(Arc::from(""))),
                    parameters.clone(),
                    Protocol::Extended,
                )
            }
            _ => (Some(Arc::from("")), Vec::new(), Protocol::Extended),
        };
        let bound = match &self.queue[0] {
            Request::Execute { portal, .. } if protocol == Protocol::Extended => {
                self.portals.get(portal).map(|p| p.sent)
            }
            _ => None,
        };
        let sent = bound.or(self.queue[0].sent()).unwrap_or(at);
        let sent = if protocol == Protocol::Extended {
            self.since(sent)
        } else {
            sent
        };
        self.observe(text, protocol, parameters, Window::new(sent, at), outcome);

        let end = self.queue.iter().position(|r| matches!(r, Request::Sync { .. }));
        self.skipping = end.is_none();
        let end = end.unwrap_or(self.queue.len());
        for index in 1..end {
            let (text, protocol, sent) = match &self.queue[index] {
                Request::Execute { portal, sent } if blamed != Some(index) => {
                    (self.text_ahead(index, portal), Protocol::Extended, *sent)
                }
                Request::Query { text, sent } => (text.clone(), Protocol::Simple, *sent),
                _ => continue,
            };
            let parameters = match &self.queue[index] {
                Request::Execute { portal, .. } => self.parameters_ahead(index, portal),
                _ => Vec::new(),
            };
            let text = text.unwrap_or_else(|| Arc::from(""));
            self.observe(
                Some(text),
                protocol,
                parameters,
                Window::new(sent, at),
                Outcome::Skipped,
            );
        }
        let skipped = self.queue.drain(..end).filter(Request::ends_group).count();
        self.groups_open = self.groups_open.saturating_sub(skipped);
    }

    /// The Execute behind the Parse or Bind in front that depends on it, before the next Sync.
    fn execute_of_front(&self) -> Option<usize> {
        let mut portal = None;
        for (index, request) in self.queue.iter().enumerate() {
            match (request, &self.queue[0]) {
                (Request::Sync { .. }, _) => return None,
                (Request::Bind { portal: p, .. }, Request::Bind { .. }) if index == 0 => portal = Some(p),
                (
                    Request::Bind {
                        portal: p, statement, ..
                    },
                    Request::Parse { name, .. },
                ) if portal.is_none() && statement == name => {
                    portal = Some(p);
                }
                (Request::Execute { portal: p, .. }, _) if index > 0 && portal == Some(p) => {
                    return Some(index);
                }
                _ => {}
            }
        }
        None
    }

    fn pop_if(&mut self, is: impl Fn(&Request) -> bool) -> Option<Request> {
        if is(self.queue.front()?) {
            self.queue.pop_front()
        } else {
            None
        }
    }

    /// SQL's PREPARE and DEALLOCATE share their names with the protocol's.
    fn note_prepared(&mut self, text: Option<&str>, tag: Option<&str>) {
        match tag {
            Some("DEALLOCATE ALL" | "DISCARD ALL") => self.statements.clear(),
            Some("DEALLOCATE") => {
                if let Some(name) = text.and_then(deallocated) {
                    self.statements.remove(name.as_bytes());
                }
            }
            Some("PREPARE") => {
                let Some(text) = text else { return };
                let Some((name, body)) = prepare(text) else { return };
                let body = (lex::effect(text) != lex::Effect::Several).then(|| Arc::from(body));
                self.statements
                    .insert(name.as_bytes(), Prepared::new(body, Vec::new()));
            }
            _ => {}
        }
    }
}

/// The name and the statement of `PREPARE name (types) AS statement`.
fn prepare(text: &str) -> Option<(String, &str)> {
    let mut tokens = lex::tokens(text);
    let first = tokens.next()?;
    if !text[first.place].eq_ignore_ascii_case("prepare") {
        return None;
    }
    let name = tokens.next()?;
    let name = name_of(text, &name);
    let keyword =
        tokens.find(|t| t.kind == Kind::Word && text[t.place.clone()].eq_ignore_ascii_case("as"))?;
    Some((name, text[keyword.place.end..].trim_start()))
}

/// The name of `DEALLOCATE [PREPARE] name`. Where several statements share a text, nobody knows which this is.
fn deallocated(text: &str) -> Option<String> {
    let [statement] = lex::statements(text)[..] else {
        return None;
    };
    let mut tokens = lex::tokens(statement);
    let is = |token: &Token, word: &str| statement[token.place.clone()].eq_ignore_ascii_case(word);
    tokens.next().filter(|first| is(first, "deallocate"))?;
    let name = tokens.next()?;
    let name = if is(&name, "prepare") {
        tokens.next().unwrap_or(name)
    } else {
        name
    };
    Some(name_of(statement, &name))
}

fn name_of(text: &str, token: &Token) -> String {
    match token.kind {
        Kind::QuotedName => text[token.place.start + 1..token.place.end - 1].replace("\"\"", "\""),
        _ => text[token.place.clone()].to_lowercase(),
    }
}
