//! COPY … FROM STDIN and COPY … TO STDOUT, in the text and CSV formats.

mod lines;

pub(super) use lines::lines;

use super::constraint::Batch;
use super::run::{Fault, Frame, Outcome, Run, Scope, Slot};
use super::write::Written;
use crate::sql::plan::{CopyFormat, CopyFrom};
use crate::state::{Row, RowId};
use crate::trace::{Answer, Column};
use crate::value::{self, SqlError, TypeOid, Value};
use bytes::Bytes;

impl Run<'_> {
    pub(super) fn copy_from(&self, copy: &CopyFrom, data: &[u8]) -> Outcome<Written> {
        let table = self.table_of(copy.table)?;
        let Ok(text) = std::str::from_utf8(data) else {
            return Fault::unsure("copy_encoding");
        };
        let frame = Frame::default();
        let scope = Scope {
            frame: &frame,
            outer: None,
        };
        let Some(lines) = lines(text, &copy.format, copy.columns.len()) else {
            return Fault::unsure("copy_syntax");
        };
        let mut batch = Batch::new(self);
        let (mut min, mut max) = (0, 0);
        for cells in lines {
            if cells.len() != copy.columns.len() {
                return Err(Fault::Raised {
                    sqlstate: "22P04".to_owned(),
                    message: "wrong number of columns in COPY data".to_owned(),
                });
            }
            let mut row = vec![Value::Null; table.columns.len()];
            for (cell, column) in cells.iter().zip(&copy.columns) {
                let Some(cell) = cell else { continue };
                let target = &table.columns[*column];
                row[*column] = match value::parse(cell, target.type_oid, target.type_modifier, self.context) {
                    Ok(value) => value,
                    Err(SqlError::NotModelled(reason)) => {
                        self.note(reason);
                        Value::Unknown
                    }
                    Err(error) => self.settle(Err(error))?,
                };
            }
            for (column, expr) in &copy.defaults {
                row[*column] = self.eval(expr, &scope)?;
            }
            if !copy.filter.is_empty() {
                let mut frame = Frame::new(1);
                frame.slots[0] = Slot {
                    row: Some(Row::from(row.clone())),
                    id: RowId(0),
                };
                let scope = Scope {
                    frame: &frame,
                    outer: None,
                };
                match self.admits(&copy.filter, &scope, true)? {
                    None => continue,
                    Some(true) => {}
                    Some(false) => return Fault::unsure("copy_where_unknown"),
                }
            }
            let row = batch.complete(&table, &copy.checks, row)?;
            batch.insert(&table, &copy.checks, row)?;
            min += 1;
            max += 1;
        }
        batch.finish()?;
        Ok(Written {
            rows: Vec::new(),
            min,
            max: Some(max),
        })
    }
}

/// What COPY … TO STDOUT sent, as the rows of a query's answer. `None`: it cannot be read.
pub(super) fn as_rows(answer: &Answer, format: &CopyFormat, types: &[TypeOid]) -> Option<Answer> {
    let text = std::str::from_utf8(answer.copy.as_deref()?).ok()?;
    let rows = lines(text, format, types.len())?;
    if rows.iter().any(|row| row.len() != types.len()) {
        return None;
    }
    let columns = types.iter().map(|type_oid| Column {
        name: String::new(),
        type_oid: *type_oid,
        type_modifier: -1,
        format: 0,
    });
    let count = rows.len();
    let cells = |row: Vec<Option<String>>| row.into_iter().map(|cell| cell.map(Bytes::from)).collect();
    Some(Answer {
        columns: columns.collect(),
        rows: rows.into_iter().map(cells).collect(),
        tag: Some(answer.tag.clone().unwrap_or_else(|| format!("COPY {count}"))),
        cut: answer.cut.clone(),
        copy: None,
    })
}
