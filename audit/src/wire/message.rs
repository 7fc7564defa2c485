//! Reads the bodies of the messages that matter.
//!
//! In: one message of a stream. Out: its fields; cells and parameters are slices of the captured piece.
//!
//! Always true: a body that is too short, or says something impossible, yields `None`; nothing is read
//! beyond the body, nothing is allocated for a count that the body cannot hold.
//!
//! Source: PostgreSQL manual, section 55.7 "Message Formats".

use super::frame::Message;
use crate::trace::{Cells, Column, Parameter, ServerError};
use bytes::Bytes;
use smallvec::SmallVec;

/// A cursor over the body of one message.
pub struct Body<'a> {
    chunk: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> Body<'a> {
    pub fn of(message: &Message<'a>) -> Body<'a> {
        Body {
            chunk: message.chunk,
            at: message.start,
            end: message.end,
        }
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.chunk[self.at..self.end]
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.fixed::<1>().map(|[b]| b)
    }

    pub fn int16(&mut self) -> Option<i16> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub fn int32(&mut self) -> Option<i32> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub fn uint32(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_be_bytes)
    }

    /// Bytes up to a zero, which is consumed.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest();
        let zero = memchr::memchr(0, rest)?;
        self.at += zero + 1;
        Some(&rest[..zero])
    }

    /// The name of a statement or portal, as a slice of the piece.
    fn name(&mut self) -> Option<Bytes> {
        let start = self.at;
        let length = self.string()?.len();
        Some(if length == 0 {
            Bytes::new()
        } else {
            self.chunk.slice(start..start + length)
        })
    }

    /// A length and as many bytes; -1 is NULL.
    #[inline]
    fn value(&mut self) -> Option<Option<Bytes>> {
        let length = self.int32()?;
        if length == -1 {
            return Some(None);
        }
        let length = usize::try_from(length).ok()?;
        if self.end - self.at < length {
            return None;
        }
        let start = self.at;
        self.at += length;
        Some(Some(if length == 0 {
            Bytes::new()
        } else {
            self.chunk.slice(start..self.at)
        }))
    }

    /// A count of items that take at least `each` bytes.
    fn count(&mut self, each: usize) -> Option<usize> {
        let count = self.int16()? as u16 as usize;
        (count * each <= self.end - self.at).then_some(count)
    }

    fn formats(&mut self) -> Option<Formats> {
        let count = self.count(2)?;
        (0..count).map(|_| self.int16()).collect()
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.rest().first_chunk::<N>()?;
        self.at += N;
        Some(*bytes)
    }
}

/// Format codes: none (all text), one (for all), or one for each.
pub type Formats = SmallVec<[i16; 4]>;

pub fn format_of(formats: &[i16], index: usize) -> i16 {
    match formats {
        [] => 0,
        [one] => *one,
        many => many.get(index).copied().unwrap_or(0),
    }
}

/// What the first message of a client asks for.
pub enum Startup {
    Session(Vec<(String, String)>),
    Cancel,
}

const CANCEL: i32 = 80_877_102;

pub fn startup(mut body: Body) -> Option<Startup> {
    match body.int32()? {
        CANCEL => Some(Startup::Cancel),
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = body.string()?;
                if name.is_empty() {
                    return Some(Startup::Session(parameters));
                }
                parameters.push((lossy(name), lossy(body.string()?)));
            }
        }
        _ => None,
    }
}

pub struct Parse<'a> {
    pub name: Bytes,
    pub text: &'a [u8],
    pub types: Vec<u32>,
}

pub fn parse<'a>(mut body: Body<'a>) -> Option<Parse<'a>> {
    let name = body.name()?;
    let text = body.string()?;
    let types = oids(&mut body)?;
    Some(Parse { name, text, types })
}

fn oids(body: &mut Body) -> Option<Vec<u32>> {
    let count = body.count(4)?;
    (0..count).map(|_| body.uint32()).collect()
}

pub struct Bind {
    pub portal: Bytes,
    pub statement: Bytes,
    pub parameters: Vec<Parameter>,
    pub formats: Formats,
}

pub fn bind(mut body: Body) -> Option<Bind> {
    let portal = body.name()?;
    let statement = body.name()?;
    let parameters = arguments(&mut body)?;
    let formats = body.formats()?;
    Some(Bind {
        portal,
        statement,
        parameters,
        formats,
    })
}

fn arguments(body: &mut Body) -> Option<Vec<Parameter>> {
    let formats = body.formats()?;
    let count = body.count(4)?;
    let mut parameters = Vec::with_capacity(count);
    for index in 0..count {
        parameters.push(Parameter {
            type_oid: 0,
            format: format_of(&formats, index),
            value: body.value()?,
        });
    }
    Some(parameters)
}

pub struct Target {
    pub is_portal: bool,
    pub name: Bytes,
}

/// Describe and Close.
pub fn target(mut body: Body) -> Option<Target> {
    let is_portal = match body.byte()? {
        b'P' => true,
        b'S' => false,
        _ => return None,
    };
    Some(Target {
        is_portal,
        name: body.name()?,
    })
}

pub fn execute(mut body: Body) -> Option<Bytes> {
    let portal = body.name()?;
    body.int32()?;
    Some(portal)
}

pub fn function_call(mut body: Body) -> Option<(u32, Vec<Parameter>)> {
    let oid = body.uint32()?;
    Some((oid, arguments(&mut body)?))
}

/// The single cell of a FunctionCallResponse.
pub fn function_result(mut body: Body) -> Option<Option<Bytes>> {
    body.value()
}

pub fn row_description(mut body: Body) -> Option<Vec<Column>> {
    let count = body.count(19)?;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        let name = lossy(body.string()?);
        let _table = body.uint32()?;
        let _attribute = body.int16()?;
        let type_oid = body.uint32()?;
        let _size = body.int16()?;
        let type_modifier = body.int32()?;
        let format = body.int16()?;
        columns.push(Column {
            name,
            type_oid,
            type_modifier,
            format,
        });
    }
    Some(columns)
}

pub fn parameter_description(mut body: Body) -> Option<Vec<u32>> {
    oids(&mut body)
}

pub fn data_row(mut body: Body) -> Option<Cells> {
    let count = body.count(4)?;
    let mut cells = Vec::with_capacity(count);
    for _ in 0..count {
        cells.push(body.value()?);
    }
    Some(cells)
}

pub fn parameter_status(mut body: Body) -> Option<(String, String)> {
    Some((lossy(body.string()?), lossy(body.string()?)))
}

/// An ErrorResponse, and whether it ends the connection (FATAL, PANIC).
pub fn error(mut body: Body) -> Option<(ServerError, bool)> {
    let mut error = ServerError {
        sqlstate: String::new(),
        message: String::new(),
        detail: None,
        constraint: None,
        table: None,
    };
    let mut localized = String::new();
    let mut severity = None;
    loop {
        let field = body.byte()?;
        if field == 0 {
            break;
        }
        let value = lossy(body.string()?);
        match field {
            b'S' => localized = value,
            b'V' => severity = Some(value),
            b'C' => error.sqlstate = value,
            b'M' => error.message = value,
            b'D' => error.detail = Some(value),
            b'n' => error.constraint = Some(value),
            b't' => error.table = Some(value),
            _ => {}
        }
    }
    // Servers before 9.6 say the severity in their own language only.
    let severity = severity.unwrap_or(localized);
    Some((error, matches!(severity.as_str(), "FATAL" | "PANIC")))
}

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body(bytes: &Bytes) -> Body<'_> {
        Body {
            chunk: bytes,
            at: 0,
            end: bytes.len(),
        }
    }

    #[test]
    fn row_with_null_and_empty() {
        let bytes = Bytes::from_static(b"\0\x03\xff\xff\xff\xff\0\0\0\0\0\0\0\x02ab");
        let cells = data_row(body(&bytes)).unwrap();
        assert_eq!(
            cells,
            vec![None, Some(Bytes::new()), Some(Bytes::from_static(b"ab"))]
        );
    }

    #[test]
    fn error_fields() {
        let bytes = Bytes::from_static(b"SFEHLER\0VERROR\0C23505\0Mdup\0DKey\0nt_pkey\0tt\0Fx.c\0\0");
        let (error, fatal) = error(body(&bytes)).unwrap();
        assert!(!fatal);
        assert_eq!(
            (error.sqlstate.as_str(), error.constraint.as_deref()),
            ("23505", Some("t_pkey"))
        );
        assert_eq!(error.detail.as_deref(), Some("Key"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = Bytes::from(bytes);
            startup(body(&bytes));
            parse(body(&bytes));
            bind(body(&bytes));
            target(body(&bytes));
            execute(body(&bytes));
            function_call(body(&bytes));
            function_result(body(&bytes));
            row_description(body(&bytes));
            parameter_description(body(&bytes));
            data_row(body(&bytes));
            parameter_status(body(&bytes));
            error(body(&bytes));
        }
    }
}
