//! What a client asked for and has not been answered yet, and what it prepared earlier.
//!
//! The session keeps requests in the order in which they were written; the server answers in that order.
//! Names are resolved only when the server confirms (ParseComplete, BindComplete), because a message
//! behind an error is never carried out.

use super::answer::Gathering;
use super::message::Formats;
use crate::trace::{Column, Nanos, Parameter};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Debug)]
pub enum Request {
    Query {
        text: Option<Arc<str>>,
        sent: Nanos,
    },
    Parse {
        name: Bytes,
        text: Option<Arc<str>>,
        types: Vec<u32>,
        sent: Nanos,
    },
    Bind {
        portal: Bytes,
        statement: Bytes,
        parameters: Vec<Parameter>,
        formats: Formats,
        sent: Nanos,
    },
    Describe {
        is_portal: bool,
        name: Bytes,
        sent: Nanos,
    },
    Execute {
        portal: Bytes,
        sent: Nanos,
    },
    Close {
        is_portal: bool,
        name: Bytes,
        sent: Nanos,
    },
    Sync {
        sent: Nanos,
    },
    Function {
        oid: u32,
        arguments: Vec<Parameter>,
        sent: Nanos,
    },
    /// CopyDone or CopyFail: where the data of a COPY FROM STDIN ends.
    CopyEnd {
        data: Gathering,
    },
}

impl Request {
    pub fn sent(&self) -> Option<Nanos> {
        match *self {
            Request::Query { sent, .. }
            | Request::Parse { sent, .. }
            | Request::Bind { sent, .. }
            | Request::Describe { sent, .. }
            | Request::Execute { sent, .. }
            | Request::Close { sent, .. }
            | Request::Sync { sent }
            | Request::Function { sent, .. } => Some(sent),
            Request::CopyEnd { .. } => None,
        }
    }

    /// Ends with a ReadyForQuery of its own.
    pub fn ends_group(&self) -> bool {
        matches!(
            self,
            Request::Query { .. } | Request::Sync { .. } | Request::Function { .. }
        )
    }
}

/// A prepared statement. `text` is `None` when it could not be read.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub text: Option<Arc<str>>,
    pub types: Arc<[u32]>,
    /// As Describe told, all in the text format.
    pub columns: Option<Arc<[Column]>>,
    /// The same for the formats that were asked for last.
    formatted: Option<(Formats, Arc<[Column]>)>,
}

#[derive(Clone, Debug)]
pub struct Portal {
    pub text: Option<Arc<str>>,
    pub parameters: Vec<Parameter>,
    pub columns: Option<Arc<[Column]>>,
    pub formats: Formats,
    /// Of the Bind.
    pub sent: Nanos,
    /// Executed before: what follows continues that.
    pub fetched: bool,
}

impl Prepared {
    pub fn new(text: Option<Arc<str>>, types: Vec<u32>) -> Prepared {
        Prepared {
            text,
            types: types.into(),
            columns: None,
            formatted: None,
        }
    }

    pub fn describe(&mut self, columns: Option<Arc<[Column]>>) {
        self.columns = columns;
        self.formatted = None;
    }

    pub fn bind(&mut self, mut parameters: Vec<Parameter>, formats: Formats, sent: Nanos) -> Portal {
        for (parameter, oid) in parameters.iter_mut().zip(self.types.iter()) {
            parameter.type_oid = *oid;
        }
        let columns = self.formatted(&formats);
        Portal {
            text: self.text.clone(),
            parameters,
            columns,
            formats,
            sent,
            fetched: false,
        }
    }

    fn formatted(&mut self, formats: &Formats) -> Option<Arc<[Column]>> {
        let columns = self.columns.as_ref()?;
        if formats.iter().all(|f| *f == 0) {
            return Some(columns.clone());
        }
        if let Some((known, columns)) = &self.formatted
            && known == formats
        {
            return Some(columns.clone());
        }
        let formatted: Arc<[Column]> = columns
            .iter()
            .enumerate()
            .map(|(i, c)| Column {
                format: super::message::format_of(formats, i),
                ..c.clone()
            })
            .collect();
        self.formatted = Some((formats.clone(), formatted.clone()));
        Some(formatted)
    }
}

/// Named things of a session; the unnamed one stands apart because it is by far the most frequent.
#[derive(Debug)]
pub struct Named<T> {
    unnamed: Option<T>,
    named: FxHashMap<Bytes, T>,
}

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named {
            unnamed: None,
            named: FxHashMap::default(),
        }
    }
}

impl<T> Named<T> {
    pub fn get(&self, name: &[u8]) -> Option<&T> {
        if name.is_empty() {
            self.unnamed.as_ref()
        } else {
            self.named.get(name)
        }
    }

    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        if name.is_empty() {
            self.unnamed.as_mut()
        } else {
            self.named.get_mut(name)
        }
    }

    pub fn insert(&mut self, name: &[u8], value: T) {
        if name.is_empty() {
            self.unnamed = Some(value);
        } else if let Some(known) = self.named.get_mut(name) {
            *known = value;
        } else {
            // The name is copied, so that it does not keep a whole captured piece alive.
            self.named.insert(Bytes::copy_from_slice(name), value);
        }
    }

    pub fn remove(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    pub fn clear(&mut self) {
        self.unnamed = None;
        if !self.named.is_empty() {
            self.named.clear();
        }
    }
}
