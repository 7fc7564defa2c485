//! One level of SELECT: the relations, how they are found and combined, and how their rows are grouped.

use super::{Expr, Query, Window};
use crate::state::TableId;
use crate::value::{Collation, ResolvedAggregate, TypeOid, oid};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Select {
    /// The relations of this level; slots of the frame.
    pub relations: Vec<Relation>,
    pub from: Option<From>,
    /// Conditions that no part of `from` could take over.
    pub filter: Vec<Expr>,
    /// Every condition of WHERE and of inner joins, for re-checking a row that changed.
    pub recheck: Vec<Expr>,
    /// All joins are inner joins of base tables, so that `recheck` is the whole truth.
    pub recheckable: bool,
    pub group: Option<Group>,
    /// Window functions, over the rows or groups of this level.
    pub windows: Vec<Window>,
    /// Over the grouped row if there is a group, else over the relations.
    pub targets: Vec<Expr>,
    pub distinct: Distinct,
    pub locking: Vec<Locking>,
    /// Which base table's column each target is, where it is exactly that.
    pub origins: Arc<[Option<(u16, u16)>]>,
}

impl Select {
    /// Finds the rows that a statement writes: nothing is grouped, nothing is answered.
    pub fn of_rows(
        relations: Vec<Relation>,
        from: From,
        filter: Vec<Expr>,
        recheck: Vec<Expr>,
        recheckable: bool,
    ) -> Select {
        Select {
            relations,
            from: Some(from),
            filter,
            recheck,
            recheckable,
            group: None,
            windows: Vec::new(),
            targets: Vec::new(),
            distinct: Distinct::No,
            locking: Vec::new(),
            origins: Arc::from([]),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Distinct {
    No,
    All,
    /// Positions of targets.
    On(Vec<usize>),
}

#[derive(Clone, Debug)]
pub struct Group {
    pub keys: Vec<Expr>,
    pub aggregates: Vec<Aggregate>,
    pub having: Vec<Expr>,
    /// There is no GROUP BY: one row, even of nothing.
    pub plain: bool,
    /// GROUPING SETS, ROLLUP and CUBE: the keys of each set; empty if there is only the one with all of them.
    pub sets: Vec<Vec<usize>>,
}

#[derive(Clone, Debug)]
pub struct Aggregate {
    /// `None`: not modelled.
    pub function: Option<Arc<ResolvedAggregate>>,
    pub collation: Option<Collation>,
    pub arguments: Vec<Expr>,
    pub star: bool,
    pub distinct: bool,
    pub filter: Option<Expr>,
    pub order: Vec<(Expr, bool, bool)>,
}

/// One entry of FROM.
#[derive(Clone, Debug)]
pub struct Relation {
    pub alias: String,
    pub source: RelationSource,
    pub width: usize,
}

#[derive(Clone, Debug)]
pub enum RelationSource {
    /// Rows are read from the storage of this table.
    Table(TableId),
    Query(Box<Query>),
    Cte(usize),
    /// The working table of a recursive CTE.
    Working(usize),
    /// A function in FROM: rows of one column, or `None` if not modelled.
    Function {
        function: SetFunction,
        arguments: Vec<Expr>,
        ordinality: bool,
    },
    /// Nothing is known of it.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetFunction {
    GenerateSeries,
    Unnest,
}

/// How the relations of a level are combined.
#[derive(Clone, Debug)]
pub enum From {
    Scan(Scan),
    /// For every row on the left, the rows on the right (which may refer to the left).
    Inner(Box<From>, Box<From>),
    /// The conditions of ON are part of `right`.
    Left {
        left: Box<From>,
        right: Box<From>,
        right_relations: Vec<usize>,
    },
    Filter(Box<From>, Vec<Expr>),
    Full {
        left: Box<From>,
        right: Box<From>,
        on: Vec<Expr>,
        left_relations: Vec<usize>,
        right_relations: Vec<usize>,
    },
}

#[derive(Clone, Debug)]
pub struct Scan {
    pub relation: usize,
    pub access: Access,
    /// Conditions to be checked as soon as a row of this relation is there.
    pub filter: Vec<Expr>,
    /// Those of them that look at this relation alone, for the footprint.
    pub own: Arc<[Expr]>,
    /// Bounds of one more column, which the conditions imply.
    pub bounds: Option<Bounds>,
    /// No row can make a condition raise an error: rows that are not looked at change nothing.
    pub never_fails: bool,
}

/// The rows between two values of a column whose order is known, both included.
#[derive(Clone, Debug)]
pub struct Bounds {
    pub column: usize,
    pub lower: Option<(Expr, Fit)>,
    pub upper: Option<(Expr, Fit)>,
}

#[derive(Clone, Debug)]
pub enum Access {
    All,
    /// Rows whose `columns` equal the values of `key`.
    Lookup {
        columns: Arc<[usize]>,
        key: Vec<(Expr, Fit)>,
    },
    /// Rows whose `column` equals one of the values, or one of the elements of an array (`array`).
    AnyOf {
        column: usize,
        values: Vec<(Expr, Fit)>,
        array: bool,
    },
}

/// Types whose values are kept in the order in which the server sorts them, whatever its collation.
pub fn is_ordered(type_oid: TypeOid) -> bool {
    matches!(
        type_oid,
        oid::INT2 | oid::INT4 | oid::INT8 | oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::NUMERIC
    )
}

/// How the value of a key is made comparable with the column it is looked up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Same,
    /// An integer of another width: as this type, or no row at all.
    Integer(TypeOid),
    /// char(n): blanks are filled up to this many characters.
    Pad(usize),
}

#[derive(Clone, Debug)]
pub struct Locking {
    pub relation: usize,
    pub skip_locked: bool,
    pub no_wait: bool,
    pub strength: Strength,
}

/// How a row is locked, from weak to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

impl Strength {
    /// Whether no two transactions hold one row like this at the same time: the table of the manual, section 13.3.2.
    pub fn excludes(self, other: Strength) -> bool {
        let (weak, strong) = (self.min(other), self.max(other));
        match weak {
            Strength::KeyShare => strong == Strength::Update,
            Strength::Share => strong >= Strength::NoKeyUpdate,
            Strength::NoKeyUpdate | Strength::Update => true,
        }
    }
}
