//! A query: its common table expressions, its body, its order and its limit.

use super::{Delete, Expr, Insert, Select, Update};
use crate::value::TypeOid;
use std::sync::{Arc, OnceLock};

/// A query: what a SELECT, VALUES or set operation means.
#[derive(Clone, Debug)]
pub struct Query {
    pub ctes: Vec<Cte>,
    pub body: Body,
    /// Expressions over the body's output columns are already part of the body; these name output positions.
    pub order: Vec<SortKey>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub with_ties: bool,
    /// How many of the body's output columns are answered; the others only sort.
    pub visible: usize,
    pub types: Vec<TypeOid>,
    pub names: Vec<String>,
    /// Types and names of the visible ones, shared by all answers.
    pub described: OnceLock<(Arc<[TypeOid]>, Arc<[String]>)>,
    /// Refers to a query level outside itself.
    pub correlated: bool,
    /// Its answer can differ from call to call on the same state.
    pub volatile: bool,
    /// Number of this query within its statement, for caching answers of uncorrelated subqueries.
    pub number: usize,
}

impl Query {
    /// Types and names of what is answered.
    pub fn describe(&self) -> (Arc<[TypeOid]>, Arc<[String]>) {
        let make = || {
            (
                self.types[..self.visible].into(),
                self.names[..self.visible].into(),
            )
        };
        self.described.get_or_init(make).clone()
    }
}

#[derive(Clone, Debug)]
pub struct Cte {
    pub name: String,
    pub query: CteQuery,
    pub number: usize,
}

#[derive(Clone, Debug)]
pub enum CteQuery {
    Plain(Query),
    Recursive {
        first: Query,
        next: Query,
        all: bool,
        visible: usize,
    },
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
}

#[derive(Clone, Debug)]
pub enum Body {
    Select(Box<Select>),
    Values(Vec<Vec<Expr>>),
    SetOperation {
        operation: SetOperation,
        all: bool,
        left: Box<Query>,
        right: Box<Query>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    Union,
    Intersect,
    Except,
}

#[derive(Clone, Debug)]
pub struct SortKey {
    pub column: usize,
    pub descending: bool,
    pub nulls_first: bool,
    /// Text is ordered byte by byte.
    pub collation_is_c: bool,
}
