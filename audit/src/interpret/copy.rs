//! COPY … FROM STDIN in the text format.
//!
//! Source: PostgreSQL manual, COPY, «Text Format».

use super::constraint::Batch;
use super::run::{Fault, Frame, Outcome, Run, Scope};
use super::write::Written;
use crate::sql::plan::CopyFrom;
use crate::value::{self, SqlError, Value};

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
        let mut batch = Batch::new(self);
        let mut count = 0;
        for (number, line) in text.split('\n').enumerate() {
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line == "\\." {
                break;
            }
            if (number == 0 && copy.format.header) || (line.is_empty() && copy.columns.len() != 1) {
                continue;
            }
            if line.is_empty() && text[..].ends_with('\n') && number + 1 == text.split('\n').count() {
                continue;
            }
            let cells: Vec<&str> = line.split(copy.format.delimiter as char).collect();
            if cells.len() != copy.columns.len() {
                return Err(Fault::Raised {
                    sqlstate: "22P04".to_owned(),
                    message: "wrong number of columns in COPY data".to_owned(),
                });
            }
            let mut row = vec![Value::Null; table.columns.len()];
            for (cell, column) in cells.iter().zip(&copy.columns) {
                if *cell == copy.format.null {
                    continue;
                }
                let Some(cell) = unescape(cell) else {
                    return Fault::unsure("copy_escape");
                };
                let target = &table.columns[*column];
                row[*column] = match value::parse(&cell, target.type_oid, target.type_modifier, self.context)
                {
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
            let row = batch.complete(&table, &copy.checks, row)?;
            batch.insert(&table, &copy.checks, row)?;
            count += 1;
        }
        batch.finish()?;
        Ok(Written {
            rows: Vec::new(),
            min: count,
            max: Some(count),
        })
    }
}

/// Backslash sequences; `None` for those that are not modelled.
fn unescape(cell: &str) -> Option<String> {
    if !cell.contains('\\') {
        return Some(cell.to_owned());
    }
    let mut result = String::with_capacity(cell.len());
    let mut characters = cell.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            result.push(character);
            continue;
        }
        match characters.next()? {
            'b' => result.push('\u{8}'),
            'f' => result.push('\u{c}'),
            'n' => result.push('\n'),
            'r' => result.push('\r'),
            't' => result.push('\t'),
            'v' => result.push('\u{b}'),
            '0'..='7' | 'x' => return None,
            other => result.push(other),
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn backslashes_are_read_as_the_manual_says() {
        assert_eq!(unescape("a\\tb\\\\c").as_deref(), Some("a\tb\\c"));
        assert_eq!(unescape("\\101"), None);
    }
}
