//! SQL over a view of the state: what a statement should answer, and what it would change.
//!
//! In: a planned statement with its parameters, and a [`View`]. Out: an [`Execution`].
//!
//! Always true:
//!   - whenever all inputs are known, evaluation is plain execution;
//!   - what is not modelled widens the answer or the touched table to unknown, with a reason;
//!   - nothing here knows of time, order or versions.

pub mod expect;
pub mod compare;

pub use compare::{Difference, Learned, Match};
pub use expect::Expect;

use crate::sql::{Planned, Prepared, SessionSettings};
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::value::{Collation, Context, DateStyle, TimeZone, Value};
use std::sync::Arc;

/// What running a statement on one view gives.
#[derive(Debug)]
pub struct Execution {
    /// Which answers are right.
    pub expect: Expect,
    pub effects: Vec<Effect>,
    /// What was read, for deciding which other transactions matter to this statement.
    pub footprint: Vec<Touch>,
    /// Constructs that were not modelled, in the words of the coverage counters. Empty: fully checked.
    pub reasons: Vec<String>,
}

/// The states that a statement sees. Rows are found in `snapshot`. READ COMMITTED writes and FOR UPDATE/SHARE
/// re-check them on `latest` (EvalPlanQual): that is `recheck`. A snapshot transaction does not; there a row that
/// changed since is an error (40001), which is not the interpreter's business. Unique and foreign keys and
/// ON CONFLICT look at `latest` at every level.
#[derive(Clone, Copy)]
pub struct Views<'a> {
    pub snapshot: &'a dyn View,
    pub latest: &'a dyn View,
    pub recheck: bool,
}

/// One change to the state, in the order of execution.
#[derive(Clone, Debug)]
pub enum Effect {
    Insert { table: TableId, row: Row },
    Update { table: TableId, id: RowId, before: Row, after: Row },
    Delete { table: TableId, id: RowId, before: Row },
    Truncate { table: TableId },
    /// Something unknown was done to this table: nothing is known of its rows any more.
    Havoc { table: TableId, reason: String },
    /// Something unknown was done, and nobody knows to which tables.
    HavocEverything { reason: String },
    /// Transactional DDL: the catalog afterwards.
    Catalog(Arc<Catalog>),
}

/// One thing that a statement read.
#[derive(Clone)]
pub enum Touch {
    /// The rows whose `columns` equal `key`.
    Key { table: TableId, columns: Arc<[usize]>, key: Vec<Value> },
    /// Every row that the filter may accept (`None`: every row of the table).
    Scan { table: TableId, filter: Option<Arc<dyn Fn(&Row) -> bool + Send + Sync>> },
}

impl std::fmt::Debug for Touch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Touch::Key { table, columns, key } => write!(f, "Key({table:?} {columns:?} = {key:?})"),
            Touch::Scan { table, filter } => write!(f, "Scan({table:?} filtered={})", filter.is_some()),
        }
    }
}

impl<'a> Views<'a> {
    /// Both are the same.
    pub fn one(view: &'a dyn View) -> Views<'a> {
        Views { snapshot: view, latest: view, recheck: false }
    }
}

/// Runs a planned statement. `parameters` are the client's, decoded by [`Planned::decode_parameters`].
pub fn execute(prepared: &Prepared, parameters: &[Value], views: Views<'_>, context: &Arc<Context>) -> Execution {
    execute_copy(prepared, parameters, None, views, context)
}

/// The same, with the data that the client sent for COPY … FROM STDIN.
pub fn execute_copy(
    prepared: &Prepared,
    _parameters: &[Value],
    _copy: Option<&[u8]>,
    _views: Views<'_>,
    context: &Arc<Context>,
) -> Execution {
    widened(&prepared.planned, "not_modelled", context)
}

/// Nothing is known of the answer, nor of what was written.
pub fn widened(planned: &Planned, reason: &str, context: &Arc<Context>) -> Execution {
    let mut effects = Vec::new();
    if planned.touches.writes_everything {
        effects.push(Effect::HavocEverything { reason: reason.to_owned() });
    }
    for table in &planned.touches.written {
        effects.push(Effect::Havoc { table: *table, reason: reason.to_owned() });
    }
    let footprint = planned.touches.read.iter().map(|table| Touch::Scan { table: *table, filter: None }).collect();
    Execution {
        expect: Expect::anything(reason, context.clone()),
        effects,
        footprint,
        reasons: vec![reason.to_owned()],
    }
}

/// What a session's settings and the database contribute to values.
pub fn context(catalog: &Catalog, settings: &SessionSettings, now: Value) -> Arc<Context> {
    Arc::new(Context {
        time_zone: TimeZone::from_setting(&settings.time_zone),
        now,
        date_style: DateStyle::from_setting(&settings.date_style),
        interval_style_postgres: settings.interval_style.eq_ignore_ascii_case("postgres"),
        shortest_floats: settings.extra_float_digits > 0,
        bytea_hex: settings.bytea_output.eq_ignore_ascii_case("hex"),
        collation: if catalog.collation_is_c() { Collation::Bytes } else { Collation::Deterministic },
        user_types: catalog.user_types(),
        ..Context::defaults()
    })
}
