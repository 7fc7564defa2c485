//! The nouns of a plan: what a statement says, with names and types resolved.
//!
//! In: nothing; `analyze` makes these and the interpreter runs them.
//!
//! Always true:
//!   - a column is named by its query level, its relation within that level and its position;
//!   - a constant or parameter is a slot of [`Planned::binds`], computed once per execution;
//!   - an expression that is not modelled is [`Expr::Unknown`], and its reason is in [`Planned::reasons`].

use crate::state::TableId;
use crate::state::catalog::Function;
use crate::trace::Outcome;
use crate::value::{CastKind, Collation, FunctionId, ResolvedAggregate, TypeOid, Value, oid};
use pgassay_rules::Level;
use std::sync::{Arc, OnceLock};

/// A statement, ready to be run on any view whose catalog it was made for.
#[derive(Debug)]
pub struct Planned {
    /// Normalised text with `?` for every constant: for coverage and fingerprints.
    pub shape: Arc<str>,
    pub kind: Kind,
    /// Types of the client's parameters, as far as they could be inferred (0: not).
    pub parameter_types: Vec<TypeOid>,
    pub binds: Vec<Bind>,
    /// Calls over constants and parameters alone that can fail.
    pub constants: Vec<Expr>,
    /// The columns of the answer; empty if it has none.
    pub columns: Arc<[OutputColumn]>,
    pub may_write: bool,
    /// Whether it needs a snapshot (and so fixes that of a REPEATABLE READ transaction).
    pub reads_snapshot: bool,
    pub touches: Touches,
    /// Constructs that are not modelled, in the words of the coverage counters.
    pub reasons: Vec<String>,
    /// The command in its tag: `SELECT`, `INSERT 0`, `UPDATE` …
    pub tag: &'static str,
    /// More than one relation is read.
    pub many_relations: bool,
    /// It calls volatile functions whose values only the answer tells.
    pub volatile: bool,
}

impl Planned {
    /// Whether the answer says how many rows were written, and nothing else was.
    pub fn tag_tells(&self) -> bool {
        let plain = match &self.kind {
            Kind::Insert(insert) => insert.ctes.is_empty(),
            Kind::Update(update) => update.ctes.is_empty(),
            Kind::Delete(delete) => delete.ctes.is_empty(),
            Kind::Merge(merge) => merge.ctes.is_empty(),
            _ => false,
        };
        plain && !self.touches.writes_everything
    }

    /// Whether the answer says that no row was written, so that it left nothing behind.
    pub fn wrote_nothing(&self, outcome: &Outcome) -> bool {
        let Outcome::Answer(answer) = outcome else {
            return false;
        };
        let none = answer.tag.as_deref().is_some_and(|tag| tag.ends_with(" 0"));
        none && self.tag_tells()
    }

    /// Whether it writes the one row of a key and looks at nothing else to find it: then it is a matter of one
    /// instant, since the newest version is written whatever the snapshot showed.
    pub fn writes_by_key(&self, catalog: &crate::state::Catalog) -> bool {
        let (table, select, ctes) = match &self.kind {
            Kind::Update(update) => (update.table, &update.select, &update.ctes),
            Kind::Delete(delete) => (delete.table, &delete.select, &delete.ctes),
            _ => return false,
        };
        let Some(From::Scan(scan)) = &select.from else {
            return false;
        };
        let Access::Lookup { columns, .. } = &scan.access else {
            return false;
        };
        let is_key_column = |expr: &Expr| matches!(expr, Expr::Column { up: 0, column, .. } if columns.contains(&(*column as usize)));
        let is_key = |condition: &Expr| match condition {
            Expr::Equal { sides, .. } => is_key_column(&sides.0) || is_key_column(&sides.1),
            _ => false,
        };
        let unique = catalog.table(table).is_some_and(|t| t.is_unique(columns));
        unique
            && ctes.is_empty()
            && select.relations.len() == 1
            && select.filter.is_empty()
            && scan.filter.len() == columns.len()
            && scan.filter.iter().all(is_key)
    }
}

/// The tables that a statement may touch, known before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    pub read: Vec<TableId>,
    pub written: Vec<TableId>,
    /// It may write anything: a call of an unknown function, a table that the catalog does not know …
    pub writes_everything: bool,
    pub reads_everything: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    pub name: String,
    pub type_oid: TypeOid,
}

/// What kind of statement it is.
#[derive(Debug)]
pub enum Kind {
    Empty,
    Begin {
        level: Option<Level>,
        read_only: Option<bool>,
        deferrable: Option<bool>,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    PrepareTransaction(String),
    CommitPrepared(String),
    RollbackPrepared(String),
    /// SET TRANSACTION, or SET SESSION CHARACTERISTICS AS TRANSACTION (`session`).
    SetTransaction {
        level: Option<Level>,
        read_only: Option<bool>,
        deferrable: Option<bool>,
        snapshot: Option<String>,
        session: bool,
    },
    /// `value` is `None` for DEFAULT, or where it is not a plain value.
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    /// `None`: RESET ALL.
    Reset(Option<String>),
    Show(String),
    Discard {
        all: bool,
    },
    /// The statement's own text, to be planned again when it is executed.
    Prepare {
        name: String,
        types: Vec<TypeOid>,
        text: Arc<str>,
    },
    /// Arguments are expressions of this plan, with their types.
    Execute {
        name: String,
        arguments: Vec<(Expr, TypeOid)>,
    },
    /// `None`: all.
    Deallocate(Option<String>),
    /// The query is planned from its own text.
    DeclareCursor {
        name: String,
        hold: bool,
        query: Arc<str>,
    },
    Fetch {
        name: String,
        direction: FetchDirection,
        count: i64,
        is_move: bool,
    },
    CloseCursor(Option<String>),
    Lock {
        tables: Vec<TableId>,
        mode: i32,
    },
    Select(Box<Query>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Merge(Box<Merge>),
    Truncate {
        tables: Vec<TableId>,
        restart: bool,
        cascade: bool,
    },
    CopyTo(Box<CopyTo>),
    CopyFrom(Box<CopyFrom>),
    Ddl(Box<Ddl>),
    /// CALL of a procedure whose body is modelled.
    Call {
        routine: Arc<Routine>,
        arguments: Vec<Expr>,
    },
    /// DO with a body that is modelled.
    Do {
        routine: Arc<Routine>,
    },
    /// EXPLAIN without ANALYZE: reads nothing, and its text is not modelled.
    Explain,
    /// Statements without an effect on what is modelled: LISTEN, NOTIFY, VACUUM, ANALYZE, COMMENT, GRANT …
    Harmless {
        tag: &'static str,
    },
    /// The server must reject it with this SQLSTATE, whatever the state is.
    Rejected(&'static str),
    Unmodelled(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchDirection {
    Forward,
    Backward,
    Absolute,
    Relative,
}

/// How the value of one slot comes about.
#[derive(Clone, Debug)]
pub struct Bind {
    pub source: Source,
    /// Applied one after the other.
    pub casts: Vec<BindCast>,
    pub negate: bool,
}

#[derive(Clone, Debug)]
pub struct BindCast {
    pub from: TypeOid,
    pub to: TypeOid,
    pub type_modifier: i32,
    pub kind: CastKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's `$n`, from 0.
    Parameter(usize),
    /// A constant that was lifted out of the text.
    Literal(usize),
}

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

/// A window function with its OVER.
#[derive(Clone, Debug)]
pub struct Window {
    pub function: WindowFunction,
    pub partition: Vec<Expr>,
    pub order: Vec<WindowKey>,
    pub frame: WindowFrame,
}

#[derive(Clone, Debug)]
pub enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(Expr),
    /// lag (`back`) and lead.
    Shifted {
        value: Expr,
        offset: Option<Expr>,
        default: Option<Expr>,
        back: bool,
    },
    First(Expr),
    Last(Expr),
    Nth(Expr, Expr),
    Aggregate(Aggregate),
}

#[derive(Clone, Debug)]
pub struct WindowKey {
    pub expr: Expr,
    pub key: SortKey,
}

#[derive(Clone, Debug)]
pub struct WindowFrame {
    pub mode: FrameMode,
    pub start: Bound,
    pub end: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMode {
    Rows,
    Range,
    Groups,
}

#[derive(Clone, Debug)]
pub enum Bound {
    /// UNBOUNDED PRECEDING
    First,
    Before(Expr),
    /// CURRENT ROW
    Current,
    After(Expr),
    /// UNBOUNDED FOLLOWING
    Last,
}

impl Window {
    /// Every expression in it, to be turned into one over the grouped row.
    pub fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        let mut exprs: Vec<&mut Expr> = self.partition.iter_mut().collect();
        exprs.extend(self.order.iter_mut().map(|order| &mut order.expr));
        match &mut self.function {
            WindowFunction::Ntile(expr) | WindowFunction::First(expr) | WindowFunction::Last(expr) => {
                exprs.push(expr);
            }
            WindowFunction::Shifted {
                value,
                offset,
                default,
                ..
            } => {
                exprs.push(value);
                exprs.extend(offset.iter_mut().chain(default));
            }
            WindowFunction::Nth(value, place) => exprs.extend([value, place]),
            WindowFunction::Aggregate(aggregate) => {
                exprs.extend(aggregate.arguments.iter_mut().chain(&mut aggregate.filter));
            }
            _ => {}
        }
        for bound in [&mut self.frame.start, &mut self.frame.end] {
            if let Bound::Before(expr) | Bound::After(expr) = bound {
                exprs.push(expr);
            }
        }
        exprs
    }
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

#[derive(Clone, Debug)]
pub struct SortKey {
    pub column: usize,
    pub descending: bool,
    pub nulls_first: bool,
    /// Text is ordered byte by byte.
    pub collation_is_c: bool,
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
    /// FOR UPDATE or FOR NO KEY UPDATE; otherwise a share lock.
    pub exclusive: bool,
}

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

/// A change of the catalog; what it does is decided against the catalog of the view it runs on.
#[derive(Debug)]
pub struct Ddl {
    pub statement: pg_query::NodeEnum,
    pub search_path: Vec<String>,
    pub text: Arc<str>,
}

/// A body in SQL or PL/pgSQL that is modelled.
#[derive(Debug)]
pub struct Routine {
    pub function: Option<Arc<Function>>,
    pub name: String,
    /// Types of all variables; the arguments come first.
    pub variables: Vec<Variable>,
    pub inputs: usize,
    pub body: Vec<Step>,
    pub returns: TypeOid,
    pub returns_void: bool,
    /// Positions of OUT and INOUT arguments.
    pub outputs: Vec<usize>,
    pub procedure: bool,
}

#[derive(Debug)]
pub struct Variable {
    pub name: String,
    pub type_oid: TypeOid,
    pub type_modifier: i32,
    pub default: Option<Arc<Planned>>,
}

/// A statement of PL/pgSQL. Embedded SQL is planned with the variables as its parameters.
#[derive(Debug)]
pub enum Step {
    Assign {
        variable: usize,
        value: Arc<Planned>,
    },
    Run {
        statement: Arc<Planned>,
        into: Option<Vec<usize>>,
        strict: bool,
    },
    If {
        branches: Vec<(Arc<Planned>, Vec<Step>)>,
        otherwise: Vec<Step>,
    },
    Loop {
        body: Vec<Step>,
        label: Option<String>,
    },
    While {
        condition: Arc<Planned>,
        body: Vec<Step>,
        label: Option<String>,
    },
    ForRange {
        variable: usize,
        also: Vec<usize>,
        from: Arc<Planned>,
        to: Arc<Planned>,
        by: Option<Arc<Planned>>,
        reverse: bool,
        body: Vec<Step>,
        label: Option<String>,
    },
    ForQuery {
        targets: Vec<usize>,
        query: Arc<Planned>,
        body: Vec<Step>,
        label: Option<String>,
    },
    Exit {
        condition: Option<Arc<Planned>>,
        is_exit: bool,
        label: Option<String>,
    },
    Return(Option<Arc<Planned>>),
    Raise {
        sqlstate: Option<String>,
        is_error: bool,
    },
    GetRowCount(usize),
    Commit,
    Rollback,
    Nothing,
}

/// An expression over the relations of its level and the levels outside.
#[derive(Clone, Debug)]
pub enum Expr {
    Const(Value),
    /// A slot of [`Planned::binds`].
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
