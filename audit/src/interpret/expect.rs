//! Which answers to a statement are right.
//!
//! Always true:
//!   - an expectation describes a *set* of answers; `anything` is the set of all;
//!   - a row that is not `certain` may or may not be in the answer;
//!   - where `open` is set, rows that nobody has seen before may be in the answer, too.

use crate::state::{RowId, TableId};
use crate::value::{Context, TypeOid, Value};
use smallvec::SmallVec;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Expect {
    /// Every answer agrees, for this reason.
    pub anything: Option<String>,
    /// Errors that the statement may or must end in.
    pub errors: Vec<ExpectedError>,
    /// Whether it may succeed.
    pub success: bool,
    /// Errors that are not listed may occur, since something was not modelled.
    pub any_error: bool,
    /// Errors in data (class 22) may occur that no answered row explains: the server may evaluate expressions on
    /// rows that a join or another condition would have kept away.
    pub any_data_error: bool,
    /// `None`: no rows are answered.
    pub rows: Option<Rows>,
    pub tag: Option<Tag>,
    /// These are the rows of one fetch: nothing is missing where the portal is suspended.
    pub in_parts: bool,
    /// The rows come as the data of COPY … TO STDOUT.
    pub copy: Option<crate::sql::plan::CopyFormat>,
    /// How cells are read.
    pub context: Arc<Context>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedError {
    pub sqlstate: String,
    /// For a person: which row or constraint explains it.
    pub why: String,
}

/// A command tag with a count: between `min` and `max` rows (`max` is `None`: no bound known).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// `SELECT`, `INSERT 0`, `UPDATE`, … or a whole tag without a count.
    pub command: &'static str,
    pub counted: bool,
    pub min: u64,
    pub max: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Groups in the order of the answer; within a group any order is right. Unordered: one group.
    pub groups: Vec<Group>,
    pub types: Arc<[TypeOid]>,
    pub names: Arc<[String]>,
    /// Rows that were never seen may be in the answer.
    pub open: bool,
    /// LIMIT over rows of which not all are certain: rows may be missing, and no more than this many come.
    pub limit: Option<u64>,
    /// For each output column the source (index into a row's `sources`) and the column it is a copy of.
    pub origins: Arc<[Option<(u16, u16)>]>,
    /// What a never-seen row must look like, where that can be learned: see [`Opening`].
    pub opening: Option<Arc<Opening>>,
}

/// A read of one partial table by key: what rows that answer it teach.
#[derive(Clone, Debug)]
pub struct Opening {
    pub table: TableId,
    /// How many columns the table has.
    pub width: usize,
    /// Columns whose value the condition fixes.
    pub fixed: Vec<(usize, Value)>,
    /// The condition is nothing but that, so that an empty answer says that no such row exists.
    pub exact: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Group {
    pub rows: Vec<ExpectedRow>,
    /// How many of them the answer holds; `None`: all that are there.
    pub take: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct ExpectedRow {
    pub values: Vec<Value>,
    pub certain: bool,
    /// The rows of base tables that it was made from, by relation.
    pub sources: SmallVec<[(TableId, RowId); 1]>,
}

impl Expect {
    /// The statement succeeds; what it answers is filled in by the caller.
    pub fn success(context: Arc<Context>) -> Expect {
        Expect {
            anything: None,
            errors: Vec::new(),
            success: true,
            any_error: false,
            any_data_error: false,
            rows: None,
            tag: None,
            in_parts: false,
            copy: None,
            context,
        }
    }

    pub fn anything(reason: impl Into<String>, context: Arc<Context>) -> Expect {
        Expect {
            anything: Some(reason.into()),
            any_error: true,
            ..Expect::success(context)
        }
    }

    /// The statement must fail with this error.
    pub fn failure(sqlstate: &str, why: impl Into<String>, context: Arc<Context>) -> Expect {
        let mut expect = Expect::success(context);
        expect.success = false;
        expect.may_fail(sqlstate, why);
        expect
    }

    pub fn may_fail(&mut self, sqlstate: &str, why: impl Into<String>) {
        if !self.errors.iter().any(|error| error.sqlstate == sqlstate) {
            self.errors.push(ExpectedError {
                sqlstate: sqlstate.to_owned(),
                why: why.into(),
            });
        }
    }

    /// Rows that were never seen may be part of the answer, or of what was counted.
    pub fn is_open(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.open)
            || self
                .tag
                .as_ref()
                .is_some_and(|tag| tag.counted && tag.max.is_none())
    }

    /// A cell that is not known, or a row that may be missing, agreed with what came: it was not compared.
    pub fn is_loose(&self) -> bool {
        let row_is_loose = |row: &ExpectedRow| !row.certain || row.values.iter().any(Value::has_unknown);
        let rows = self
            .rows
            .iter()
            .flat_map(|rows| &rows.groups)
            .flat_map(|group| &group.rows);
        let counted = self.tag.as_ref().filter(|tag| tag.counted);
        rows.into_iter().any(row_is_loose)
            || counted.is_some_and(|tag| tag.max.is_some_and(|max| max != tag.min))
    }

    /// Nothing about this answer is open: every cell is known, every row certain.
    pub fn is_exact(&self) -> bool {
        let rows_exact = |rows: &Rows| {
            !rows.open
                && rows.limit.is_none()
                && rows.groups.iter().all(|group| {
                    group
                        .rows
                        .iter()
                        .all(|row| row.certain && !row.values.iter().any(Value::has_unknown))
                })
        };
        self.anything.is_none() && !self.any_error && self.rows.as_ref().is_none_or(rows_exact)
    }
}

impl Tag {
    pub fn exactly(command: &'static str, count: u64) -> Tag {
        Tag {
            command,
            counted: true,
            min: count,
            max: Some(count),
        }
    }

    pub fn plain(command: &'static str) -> Tag {
        Tag {
            command,
            counted: false,
            min: 0,
            max: Some(0),
        }
    }
}
