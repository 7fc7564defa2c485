//! An expression, with names, types and functions resolved.

use super::{Query, Routine};
use crate::state::TableId;
use crate::value::{CastKind, FunctionId, TypeOid, Value};
use std::sync::Arc;

/// An expression over the relations of its level and the levels outside.
#[derive(Clone, Debug)]
pub enum Expr {
    Const(Value),
    /// A slot of [`Planned::binds`](super::Planned::binds).
    Bound(usize),
    Column {
        up: u16,
        relation: u16,
        column: u16,
    },
    /// The whole row of a relation is not NULL-extended (`EXCLUDED`-style tests and count(t.*)).
    RowPresent {
        up: u16,
        relation: u16,
    },
    /// A key or aggregate of the grouped row of the level `up`.
    Grouped {
        up: u16,
        position: u16,
    },
    /// The value of a window function of this level.
    Windowed(u16),
    /// GROUPING(…) of these keys: a bit is set for each that is not in the row's grouping set.
    Grouping(Vec<u16>),
    Call {
        function: FunctionId,
        arguments: Vec<Expr>,
    },
    /// Equality of two expressions of one type, the most frequent call.
    Equal {
        sides: Box<(Expr, Expr)>,
        function: FunctionId,
        types: (TypeOid, TypeOid),
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>, bool),
    /// `IS [NOT] TRUE / FALSE / UNKNOWN`.
    BoolTest {
        argument: Box<Expr>,
        wanted: Option<bool>,
        negated: bool,
    },
    /// `IS [NOT] DISTINCT FROM`.
    Distinct {
        arguments: Box<(Expr, Expr)>,
        equal: FunctionId,
        negated: bool,
    },
    Case {
        whens: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    /// GREATEST or LEAST, by the type's `<`.
    Extreme {
        arguments: Vec<Expr>,
        less: FunctionId,
        greatest: bool,
    },
    Cast {
        argument: Box<Expr>,
        from: TypeOid,
        to: TypeOid,
        type_modifier: i32,
        kind: CastKind,
    },
    /// `argument op ANY/ALL (array)`.
    AnyArray {
        argument: Box<Expr>,
        array: Box<Expr>,
        function: FunctionId,
        all: bool,
        types: (TypeOid, TypeOid),
    },
    /// `argument IN (list)`, negated for NOT IN: one function per item.
    InList {
        argument: Box<Expr>,
        items: Vec<(FunctionId, Expr)>,
        negated: bool,
        types: (TypeOid, TypeOid),
    },
    Array {
        element: TypeOid,
        items: Vec<Expr>,
    },
    Subscript {
        array: Box<Expr>,
        index: Box<Expr>,
    },
    Exists(Box<Query>),
    Scalar(Box<Query>),
    /// `row op ANY/ALL (query)`: one function per column, all must hold.
    AnyQuery {
        arguments: Vec<Expr>,
        functions: Vec<FunctionId>,
        casts: Vec<Option<(TypeOid, TypeOid)>>,
        query: Box<Query>,
        all: bool,
    },
    /// ARRAY(query).
    ArrayQuery {
        element: TypeOid,
        query: Box<Query>,
    },
    /// `(a, b) < (c, d)` and the like: pairs with their equality and ordering functions.
    RowCompare {
        pairs: Vec<(Expr, Expr, FunctionId, FunctionId)>,
        or_equal: bool,
    },
    /// A call of a modelled routine of the user.
    Routine {
        routine: Arc<Routine>,
        arguments: Vec<Expr>,
    },
    /// The next value of a sequence, where it is known in which order they are drawn.
    Draw(TableId),
    /// Fresh and unknown: a volatile function, or something that is not modelled.
    Unknown,
}

impl Expr {
    pub fn column(relation: usize, column: usize) -> Expr {
        Expr::Column {
            up: 0,
            relation: relation as u16,
            column: column as u16,
        }
    }

    pub fn null() -> Expr {
        Expr::Const(Value::Null)
    }
}
