//! The nouns of a plan: what a statement says, with names and types resolved.
//!
//! In: nothing; `analyze` makes these and the interpreter runs them.
//!
//! Always true:
//!   - a column is named by its query level, its relation within that level and its position;
//!   - a constant or parameter is a slot of [`Planned::binds`], computed once per execution;
//!   - an expression that is not modelled is [`Expr::Unknown`], and its reason is in [`Planned::reasons`].

mod asks;
mod expr;
mod query;
mod routine;
mod select;
mod window;
mod write;

pub use asks::{AllAsks, Asked, Asks};
pub use expr::Expr;
pub use query::{Body, Cte, CteQuery, Query, SetOperation, SortKey};
pub use routine::{Routine, Step, Variable, settle};
pub use select::{
    Access, Aggregate, Bounds, Distinct, Fit, From, Group, Locking, Relation, RelationSource, Scan, Select,
    SetFunction, Strength, is_ordered,
};
pub use window::{Bound, FrameMode, Window, WindowFrame, WindowFunction, WindowKey};
pub use write::{
    Conflict, ConflictAction, CopyFormat, CopyFrom, CopyTo, Delete, Insert, InsertValue, KeyCheck, Merge,
    MergeAction, MergeWhen, Returning, TableChecks, Update,
};

use crate::sql::config::SetConfig;
use crate::state::catalog::ForeignKey;
use crate::state::{Catalog, TableId};
use crate::trace::Outcome;
use crate::value::{CastKind, TypeOid};
use pgassay_rules::Level;
use std::sync::Arc;

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
    /// What it does depends on `session_replication_role`.
    pub heeds_role: bool,
    /// Whether it needs a snapshot (and so fixes that of a REPEATABLE READ transaction).
    pub reads_snapshot: bool,
    pub touches: Touches,
    /// Constructs that are not modelled, in the words of the coverage counters.
    pub reasons: Vec<String>,
    /// The command in its tag: `SELECT`, `INSERT 0`, `UPDATE` …
    pub tag: &'static str,
    /// The columns that can change its answer, by table; `None`: all of them.
    pub columns_read: Option<crate::state::view::Columns>,
    /// What its answer and its effects depend on.
    pub asks: Arc<Asks>,
    /// More than one relation is read.
    pub many_relations: bool,
    /// It looks at the rows of each of its tables once: neither subqueries nor WITH nor routines do so again.
    pub looks_once: bool,
    /// It calls volatile functions whose values only the answer tells.
    pub volatile: bool,
    /// What it sets without saying SET.
    pub sets: Arc<[SetConfig]>,
}

impl Planned {
    /// Whether it may change what the session has set.
    pub fn may_set(&self) -> bool {
        let sets = match &self.kind {
            Kind::Set { .. } | Kind::Reset(_) => true,
            Kind::Ddl(ddl) => ddl.is_temporary(),
            _ => false,
        };
        sets || !self.sets.is_empty() || self.touches.changes_session
    }

    /// Whether the answer says how many rows were written, and nothing else was.
    pub fn tag_tells(&self) -> bool {
        let plain = match &self.kind {
            Kind::Insert(insert) => insert.ctes.is_empty(),
            Kind::Update(update) => update.ctes.is_empty(),
            Kind::Delete(delete) => delete.ctes.is_empty(),
            Kind::Merge(merge) => merge.ctes.is_empty(),
            _ => false,
        };
        plain && !self.touches.writes_everything && self.touches.unfollowed.is_empty()
    }

    /// The variable that is appended to an array in another one, if the statement is nothing but the expression that does
    /// so.
    pub fn appends_to(&self, array: usize) -> Option<usize> {
        let Kind::Select(query) = &self.kind else {
            return None;
        };
        let Body::Select(select) = &query.body else {
            return None;
        };
        let [Expr::Call { function, arguments }] = select.targets.as_slice() else {
            return None;
        };
        let variable = |expr: &Expr| match expr {
            Expr::Bound(slot) => {
                let bind = self.binds.get(*slot)?;
                let plain = bind.casts.is_empty() && !bind.negate;
                match bind.source {
                    Source::Parameter(variable) if plain => Some(variable),
                    _ => None,
                }
            }
            _ => None,
        };
        let [old, item] = arguments.as_slice() else {
            return None;
        };
        let appends = function.name() == "array_append" && variable(old) == Some(array);
        variable(item).filter(|_| appends && select.from.is_none())
    }

    /// Whether the answer says that no row was written, so that it left nothing behind.
    pub fn wrote_nothing(&self, outcome: &Outcome) -> bool {
        let Outcome::Answer(answer) = outcome else {
            return false;
        };
        let none = answer.counts_none();
        none && self.tag_tells()
    }

    /// Whether it writes the one row of a key and looks at nothing else to find it: then it is a matter of one
    /// instant, since the newest version is written whatever the snapshot showed.
    pub fn writes_by_key(&self, catalog: &Catalog) -> bool {
        self.written_key(catalog)
            .is_some_and(|written| written.by_nothing_else)
    }

    /// Where the row is looked for that this statement holds if it has written one: the table, and the columns of a
    /// unique key. Nothing else that it looks at is found by them. With `at_once`, only if it is a matter of one
    /// instant.
    pub fn holds(&self, catalog: &Catalog, at_once: bool) -> Option<(TableId, Vec<usize>)> {
        let (table, columns) = match &self.kind {
            Kind::Insert(insert) => (insert.table, insert.arbiter()?),
            _ => {
                let written = self.written_key(catalog)?;
                let at = (written.table, written.columns);
                Some(at).filter(|_| written.by_nothing_else || !at_once)?
            }
        };
        held_by(table, columns, catalog)
    }

    /// The same for a statement that holds the row of a key if there is one: UPDATE, DELETE or FOR UPDATE.
    pub fn claims(&self, catalog: &Catalog) -> Option<(TableId, Vec<usize>)> {
        let written = self.written_key(catalog).or_else(|| self.locked_key(catalog))?;
        match written.by_nothing_else {
            true => held_by(written.table, written.columns, catalog),
            false => None,
        }
    }

    fn written_key(&self, catalog: &Catalog) -> Option<WrittenKey<'_>> {
        match &self.kind {
            Kind::Update(update) if update.ctes.is_empty() => key_of(update.table, &update.select, catalog),
            Kind::Delete(delete) if delete.ctes.is_empty() => key_of(delete.table, &delete.select, catalog),
            _ => None,
        }
    }

    fn locked_key(&self, catalog: &Catalog) -> Option<WrittenKey<'_>> {
        let Kind::Select(query) = &self.kind else {
            return None;
        };
        let Body::Select(select) = &query.body else {
            return None;
        };
        let ([relation], [lock]) = (select.relations.as_slice(), select.locking.as_slice()) else {
            return None;
        };
        let whole = query.ctes.is_empty() && query.limit.is_none() && query.offset.is_none();
        match relation.source {
            RelationSource::Table(table)
                if whole && lock.strength >= Strength::NoKeyUpdate && !lock.skip_locked =>
            {
                key_of(table, select, catalog)
            }
            _ => None,
        }
    }

    /// Whether it is a query that locks the rows that it finds.
    pub fn locks(&self) -> bool {
        match &self.kind {
            Kind::Select(query) => matches!(&query.body, Body::Select(select) if !select.locking.is_empty()),
            _ => false,
        }
    }

    /// Whether it changes nothing but rows, and of tables that are known.
    pub fn writes_only_rows(&self) -> bool {
        let plain = matches!(
            self.kind,
            Kind::Select(_) | Kind::Insert(_) | Kind::Update(_) | Kind::Delete(_)
        );
        plain && !self.touches.writes_everything && (!self.may_write || self.reasons.is_empty())
    }

    /// Whether a value that it writes is a constant, a parameter, or that of the row that was to be inserted.
    pub fn is_given(&self, expr: &Expr) -> bool {
        let excluded = matches!(self.kind, Kind::Insert(_))
            && matches!(
                expr,
                Expr::Column {
                    up: 0,
                    relation: 1,
                    ..
                }
            );
        excluded || is_flat(expr)
    }

    /// Whether it sets columns of the one row of a key to constants or parameters, and looks at nothing else.
    pub fn sets_constants(&self, catalog: &Catalog) -> bool {
        let Kind::Update(update) = &self.kind else {
            return false;
        };
        self.writes_by_key(catalog) && update.set.iter().all(|(_, expr)| is_flat(expr))
    }

    /// Whether it reads nothing but the rows of one key, which its constants and parameters say.
    pub fn looks_up(&self) -> bool {
        let Kind::Select(query) = &self.kind else {
            return false;
        };
        let (Body::Select(select), true) = (&query.body, query.ctes.is_empty()) else {
            return false;
        };
        let (Some(From::Scan(scan)), [relation]) = (&select.from, select.relations.as_slice()) else {
            return false;
        };
        matches!(relation.source, RelationSource::Table(_))
            && matches!(&scan.access, Access::Lookup { key, .. } if key.iter().all(|(expr, _)| is_flat(expr)))
    }

    /// Whether the routines that it calls have instants of their own, one after the other: then nothing but calls
    /// happens in it.
    pub fn only_calls(&self) -> bool {
        match &self.kind {
            Kind::Call { .. } | Kind::Do { .. } => true,
            Kind::Select(query) => match &query.body {
                Body::Select(select) => {
                    query.ctes.is_empty()
                        && select.from.is_none()
                        && select.relations.is_empty()
                        && select.filter.is_empty()
                        && select.group.is_none()
                        && select.targets.iter().any(calls)
                        && select
                            .targets
                            .iter()
                            .all(|target| calls(target) || is_flat(target))
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// Whether it is a call of a routine with plain arguments.
fn calls(target: &Expr) -> bool {
    matches!(target, Expr::Routine { arguments, .. } if arguments.iter().all(is_flat))
}

/// Whether it is a constant, a parameter or a part of one.
fn is_flat(expr: &Expr) -> bool {
    match expr {
        Expr::Const(_) | Expr::Bound(_) => true,
        Expr::Cast { argument, .. } => is_flat(argument),
        Expr::Subscript { array, index } => is_flat(array) && is_flat(index),
        Expr::Call { arguments, .. } => arguments.iter().all(is_flat),
        _ => false,
    }
}

/// The columns of a key, if nothing else that a write of the table looks at is found by them.
fn held_by(table: TableId, columns: &[usize], catalog: &Catalog) -> Option<(TableId, Vec<usize>)> {
    let table = catalog.table(table)?;
    let is_own_parent = |key: &ForeignKey| catalog.storage(key.target) == table.storage;
    (!table.foreign_keys.iter().any(is_own_parent)).then(|| (table.storage, columns.to_vec()))
}

/// The unique key by which a level finds one row.
fn key_of<'p>(table: TableId, select: &'p Select, catalog: &Catalog) -> Option<WrittenKey<'p>> {
    let Some(From::Scan(scan)) = &select.from else {
        return None;
    };
    let Access::Lookup { columns, .. } = &scan.access else {
        return None;
    };
    let is_key_column = |expr: &Expr| matches!(expr, Expr::Column { up: 0, column, .. } if columns.contains(&(*column as usize)));
    let is_key = |condition: &Expr| match condition {
        Expr::Equal { sides, .. } => is_key_column(&sides.0) || is_key_column(&sides.1),
        _ => false,
    };
    let unique = catalog.table(table).is_some_and(|t| t.is_unique(columns));
    let by_nothing_else =
        select.filter.is_empty() && scan.filter.len() == columns.len() && scan.filter.iter().all(is_key);
    (unique && select.relations.len() == 1).then_some(WrittenKey {
        table,
        columns,
        by_nothing_else,
    })
}

/// The unique key by which a statement finds the one row that it writes or locks.
struct WrittenKey<'p> {
    table: TableId,
    columns: &'p [usize],
    by_nothing_else: bool,
}

/// The tables that a statement may touch, known before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    pub read: Vec<TableId>,
    pub written: Vec<TableId>,
    /// Those of them that a routine writes which is not followed: nobody knows how.
    pub unfollowed: Vec<TableId>,
    /// Those of them whose rows may come, go, or get another key.
    pub moved: Vec<TableId>,
    /// Those of them in which keys may be set free.
    pub freed: Vec<TableId>,
    /// Those of them of which other rows may be written if something else is read before.
    pub astray: Vec<TableId>,
    /// It may write anything: a call of an unknown function, a table that the catalog does not know …
    pub writes_everything: bool,
    pub reads_everything: bool,
    /// Sequences that it may draw from, for the sake of which column; `None`: in an order of the server's choice.
    pub draws: Vec<(TableId, Option<usize>)>,
    /// It may draw from any sequence, or set it.
    pub draws_everything: bool,
    /// A routine that is not followed may commit before it ends.
    pub commits: bool,
    /// It may change any setting of its session.
    pub changes_session: bool,
}

impl Touches {
    /// Whatever can be touched.
    pub fn everything() -> Touches {
        Touches {
            writes_everything: true,
            reads_everything: true,
            draws_everything: true,
            commits: true,
            changes_session: true,
            ..Touches::default()
        }
    }
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

/// A change of the catalog; what it does is decided against the catalog of the view it runs on.
#[derive(Debug)]
pub struct Ddl {
    pub statement: pg_query::NodeEnum,
    /// Every table that it names is in the catalog.
    pub names_known: bool,
    /// What it names: tables, indexes, columns.
    pub names: Arc<[String]>,
    pub search_path: Vec<String>,
    pub text: Arc<str>,
}

/// Whether what depends on what it drops goes, too.
pub fn cascades(alter: &pg_query::protobuf::AlterTableStmt) -> bool {
    let cascades = pg_query::protobuf::DropBehavior::DropCascade as i32;
    alter.cmds.iter().any(|node| match &node.node {
        Some(pg_query::NodeEnum::AlterTableCmd(command)) => command.behavior == cascades,
        _ => false,
    })
}

impl Ddl {
    /// Whether it makes something in the session's own temporary schema.
    pub fn is_temporary(&self) -> bool {
        use pg_query::NodeEnum::{CreateSeqStmt, CreateStmt, CreateTableAsStmt, ViewStmt};
        let made = match &self.statement {
            CreateStmt(create) => create.relation.as_ref(),
            CreateTableAsStmt(create) => create.into.as_ref().and_then(|into| into.rel.as_ref()),
            ViewStmt(create) => create.view.as_ref(),
            CreateSeqStmt(create) => create.sequence.as_ref(),
            _ => None,
        };
        made.is_some_and(|made| {
            made.relpersistence == "t" || made.schemaname == crate::state::catalog::TEMPORARY
        })
    }
}
