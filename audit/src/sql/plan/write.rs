//! INSERT, UPDATE, DELETE, MERGE and COPY: which rows, which values, and what a write must respect.

use super::{Body, Cte, Expr, Query, Select};
use crate::state::TableId;
use crate::value::TypeOid;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Insert {
    pub ctes: Vec<Cte>,
    pub table: TableId,
    /// The query's output column for each table column, or how else it is filled.
    pub values: Vec<InsertValue>,
    /// `None`: DEFAULT VALUES.
    pub query: Option<Query>,
    pub conflict: Option<Conflict>,
    pub returning: Option<Returning>,
    pub checks: Arc<TableChecks>,
}

impl Insert {
    /// The columns of the unique key by which `ON CONFLICT DO UPDATE` of a single row finds the row that it writes.
    pub fn arbiter(&self) -> Option<&[usize]> {
        let conflict = self.conflict.as_ref()?;
        let [key] = conflict.keys.as_deref()? else {
            return None;
        };
        let writes = matches!(&conflict.action, ConflictAction::Update { filter, .. } if filter.is_empty());
        let one_row = matches!(&self.query.as_ref()?.body, Body::Values(rows) if rows.len() == 1);
        let key = self.checks.keys.get(*key)?;
        let plain = key.modelled && key.predicate.is_none() && key.expressions.is_none();
        (writes && one_row && plain).then_some(&key.columns[..])
    }
}

#[derive(Clone, Debug)]
pub enum InsertValue {
    /// Output column of the query, cast already.
    Column(usize),
    /// Default expression.
    Default(Expr),
}

#[derive(Clone, Debug)]
pub struct Conflict {
    /// Index of the unique key that arbitrates; `None`: any.
    pub keys: Option<Vec<usize>>,
    pub action: ConflictAction,
}

#[derive(Clone, Debug)]
pub enum ConflictAction {
    Nothing,
    /// Relation 0 is the existing row, relation 1 is `excluded`.
    Update {
        set: Vec<(usize, Expr)>,
        filter: Vec<Expr>,
    },
    Unmodelled(String),
}

#[derive(Clone, Debug)]
pub struct Update {
    pub ctes: Vec<Cte>,
    pub table: TableId,
    /// Finds the rows: relation 0 is the target.
    pub select: Select,
    pub set: Vec<(usize, Expr)>,
    pub returning: Option<Returning>,
    pub checks: Arc<TableChecks>,
}

#[derive(Clone, Debug)]
pub struct Delete {
    pub ctes: Vec<Cte>,
    pub table: TableId,
    pub select: Select,
    pub returning: Option<Returning>,
    pub checks: Arc<TableChecks>,
}

#[derive(Debug)]
pub struct Merge {
    pub ctes: Vec<Cte>,
    pub table: TableId,
    /// The source is relation 1 and the target relation 0; `select` joins source LEFT JOIN target.
    pub select: Select,
    pub whens: Vec<MergeWhen>,
    pub checks: Arc<TableChecks>,
}

#[derive(Debug)]
pub struct MergeWhen {
    pub matched: bool,
    pub condition: Option<Expr>,
    pub action: MergeAction,
}

#[derive(Debug)]
pub enum MergeAction {
    Update(Vec<(usize, Expr)>),
    Delete,
    Insert(Vec<Expr>),
    Nothing,
}

/// RETURNING, over the same relations as the statement; relation 0 is the row after the change (before it, for
/// DELETE).
#[derive(Clone, Debug)]
pub struct Returning {
    pub targets: Vec<Expr>,
    pub origins: Arc<[Option<(u16, u16)>]>,
    pub types: Arc<[TypeOid]>,
    pub names: Arc<[String]>,
}

/// Everything that a write to a table must respect, compiled once. Relation 0 is the row.
#[derive(Debug, Default)]
pub struct TableChecks {
    pub checks: Vec<(String, Expr)>,
    pub generated: Vec<(usize, Expr)>,
    /// Key expressions and predicates, parallel to the table's keys; `None` where not modelled.
    pub keys: Vec<KeyCheck>,
    /// Why writes are not modelled at all.
    pub unmodelled: Option<String>,
    /// Default expressions of the columns, for SET DEFAULT.
    pub defaults: Vec<Option<Expr>>,
    /// For a partition written directly: its own condition.
    pub partition: Option<Expr>,
}

#[derive(Debug)]
pub struct KeyCheck {
    pub columns: Vec<usize>,
    /// Where the key is not of plain columns.
    pub expressions: Option<Vec<Expr>>,
    pub predicate: Option<Expr>,
    pub modelled: bool,
}

#[derive(Debug)]
pub struct CopyTo {
    pub query: Query,
    pub format: CopyFormat,
}

#[derive(Debug)]
pub struct CopyFrom {
    pub table: TableId,
    pub columns: Vec<usize>,
    pub format: CopyFormat,
    /// Default expressions for the columns that are not in the data.
    pub defaults: Vec<(usize, Expr)>,
    pub filter: Vec<Expr>,
    pub checks: Arc<TableChecks>,
}

#[derive(Clone, Debug)]
pub struct CopyFormat {
    pub csv: bool,
    pub delimiter: u8,
    pub null: String,
    pub header: bool,
    pub quote: u8,
    pub escape: u8,
    pub modelled: bool,
    /// STDIN or STDOUT, not a file of the server.
    pub from_stdin: bool,
}

impl Default for CopyFormat {
    fn default() -> CopyFormat {
        CopyFormat {
            csv: false,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            header: false,
            quote: b'"',
            escape: b'"',
            modelled: true,
            from_stdin: true,
        }
    }
}
