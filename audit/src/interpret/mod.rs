//! SQL over a view of the state: what a statement should answer, and what it would change.
//!
//! In: a planned statement with its parameters, and a [`View`]. Out: an [`Execution`].
//!
//! Always true:
//!   - whenever all inputs are known, evaluation is plain execution;
//!   - what is not modelled widens the answer or the touched table to unknown, with a reason;
//!   - nothing here knows of time, order or versions.

pub mod expect;
mod run;
mod eval;
mod query;
mod window;
mod write;
mod constraint;
mod copy;
mod ddl;
mod routine;
pub mod portal;
pub mod compare;
pub mod memory;

pub use compare::{Difference, Learned, Match};
pub use expect::Expect;
pub use portal::{Fetch, Portal, PortalName, Portals};
pub use write::merged;

use crate::sql::plan::{AllAsks, Asks, Expr, Kind, Query};
use crate::sql::{Planned, Prepared, SessionSettings};
use crate::state::view::has_key;
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::trace::Answer;
use crate::value::compare::total_order;
use crate::value::{Collation, Context, DateStyle, TimeZone, TypeOid, Value};
use expect::{ExpectedRow, Group, Opening, Rows, Tag};
use query::{Cutting, Output, OutputRow};
pub use routine::pinned::Pinned;
use run::{Fault, Frame, Outcome, Run, Scope, Slot};
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;
use write::Written;

/// What running a statement on one view gives.
#[derive(Debug)]
pub struct Execution {
    /// Which answers are right.
    pub expect: Expect,
    pub effects: Vec<Effect>,
    /// What was read, for deciding which other transactions matter to this statement.
    pub footprint: Vec<Touch>,
    /// What was read besides by a call, where its answer says what it found.
    pub pinned: Pinned,
    /// What it depends on in what was read.
    pub asks: AllAsks,
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
    Insert {
        table: TableId,
        row: Row,
    },
    Update {
        table: TableId,
        id: RowId,
        before: Row,
        after: Row,
    },
    /// The row was updated, or left alone and not locked.
    Perhaps {
        table: TableId,
        id: RowId,
        before: Row,
        /// What both ways have in common.
        after: Row,
    },
    Delete {
        table: TableId,
        id: RowId,
        before: Row,
    },
    Truncate {
        table: TableId,
    },
    /// Something unknown was done to this table: nothing is known of its rows any more.
    Havoc {
        table: TableId,
        reason: String,
    },
    /// Whatever row had this unique key is not there any more; an insert may have taken its place.
    Absent {
        table: TableId,
        columns: Arc<[usize]>,
        key: Vec<Value>,
    },
    /// Rows of a partial table that were never seen may have changed: nothing is known to be absent any more.
    Unseen {
        table: TableId,
    },
    /// Something unknown was done, and nobody knows to which tables.
    HavocEverything {
        reason: String,
    },
    /// Transactional DDL: the catalog afterwards.
    Catalog(Arc<Catalog>),
    /// Values were drawn from a sequence, perhaps from any (`None`); what it gives next, if that is known.
    Drawn {
        sequence: Option<TableId>,
        next: Option<i64>,
    },
}

/// What the answer of a call is to the run of its routine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heed {
    /// Compared with what comes of it.
    #[default]
    Compared,
    /// The same; a run that cannot have given this answer need not be finished.
    UntilWrong,
    /// Where it finds something else it goes on as if it had found what was answered: to learn where it was.
    Believed,
}

/// Whether a condition may accept a row, long after its statement was executed.
pub type RowFilter = Arc<dyn Fn(&Row) -> bool + Send + Sync>;

/// One thing that a statement read.
#[derive(Clone)]
pub enum Touch {
    /// The rows whose `columns` equal `key` and that the filter may accept (`None`: all of them), those behind the cut
    /// left out.
    Key {
        table: TableId,
        columns: Arc<[usize]>,
        key: Vec<Value>,
        filter: Option<RowFilter>,
        cut: Option<Cut>,
    },
    /// Every row that the filter may accept (`None`: every row of the table).
    Scan {
        table: TableId,
        filter: Option<RowFilter>,
    },
}

/// The last of the rows that were asked for, in the order of a column.
#[derive(Clone, Debug)]
pub struct Cut {
    pub column: usize,
    pub last: Value,
    pub descending: bool,
}

impl Cut {
    /// Whether a row may be among those that were asked for.
    pub fn may_reach(&self, row: &Row) -> bool {
        let Some(place) = row.get(self.column).filter(|place| !place.has_unknown()) else {
            return true;
        };
        match total_order(place, &self.last) {
            Ordering::Less => !self.descending,
            Ordering::Equal => true,
            Ordering::Greater => self.descending,
        }
    }
}

impl Touch {
    pub fn table(&self) -> TableId {
        let (Touch::Key { table, .. } | Touch::Scan { table, .. }) = self;
        *table
    }

    /// Whether a row of its table may be among those that were read.
    pub fn may_find(&self, row: &Row) -> bool {
        let is_there = match self {
            Touch::Key {
                columns, key, cut, ..
            } => has_key(row, columns, key) && cut.as_ref().is_none_or(|cut| cut.may_reach(row)),
            Touch::Scan { .. } => true,
        };
        let (Touch::Key { filter, .. } | Touch::Scan { filter, .. }) = self;
        is_there && filter.as_ref().is_none_or(|accepts| accepts(row))
    }
}

impl std::fmt::Debug for Touch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Touch::Key {
                table, columns, key, ..
            } => write!(f, "Key({table:?} {columns:?} = {key:?})"),
            Touch::Scan { table, filter } => write!(f, "Scan({table:?} filtered={})", filter.is_some()),
        }
    }
}

impl<'a> Views<'a> {
    /// Both are the same.
    pub fn one(view: &'a dyn View) -> Views<'a> {
        Views {
            snapshot: view,
            latest: view,
            recheck: false,
        }
    }
}

/// Runs a planned statement. `parameters` are the client's, decoded by [`Planned::decode_parameters`].
pub fn execute(
    prepared: &Prepared,
    parameters: &[Value],
    views: Views<'_>,
    context: &Arc<Context>,
) -> Execution {
    execute_told(prepared, parameters, Told::default(), views, context)
}

/// What the trace tells besides the statement itself.
#[derive(Clone, Copy, Default)]
pub struct Told<'a> {
    /// The data that the client sent for COPY … FROM STDIN.
    pub copy: Option<&'a [u8]>,
    /// How many rows were written, as the command tag of UPDATE or DELETE says.
    pub written: Option<u64>,
    /// The whole of it.
    pub answer: Option<&'a Answer>,
    /// What it is to a call.
    pub heed: Heed,
}

impl<'a> Told<'a> {
    pub fn of(outcome: &'a crate::trace::Outcome) -> Told<'a> {
        let crate::trace::Outcome::Answer(answer) = outcome else {
            return Told::default();
        };
        let count = |tag: &str| {
            let count = tag.strip_prefix("UPDATE ").or(tag.strip_prefix("DELETE "));
            count.and_then(|count| count.parse().ok())
        };
        Told {
            copy: answer.copy.as_deref(),
            written: answer.tag.as_deref().and_then(count),
            answer: Some(answer),
            heed: Heed::Compared,
        }
    }
}

/// The same, with what its answer tells about which of the rows in doubt it wrote.
pub fn execute_told(
    prepared: &Prepared,
    parameters: &[Value],
    told: Told<'_>,
    views: Views<'_>,
    context: &Arc<Context>,
) -> Execution {
    let planned = &*prepared.planned;
    let bound = match planned.bind(parameters, &prepared.literals, context) {
        Ok(bound) => bound,
        Err(error) => {
            let expect = Expect::failure(
                error.sqlstate().unwrap_or("XX000"),
                error.to_string(),
                context.clone(),
            );
            return Execution {
                expect,
                effects: Vec::new(),
                footprint: Vec::new(),
                pinned: Pinned::default(),
                asks: AllAsks::of(&planned.asks),
                reasons: planned.reasons.clone(),
            };
        }
    };
    let mut run = Run::new(planned, bound, views, context);
    if planned.only_calls() {
        run.path = Some(Rc::default());
    }
    let nowhere = Frame::default();
    for constant in &planned.constants {
        // The server's planner computes constants first, even those that no row asks for.
        let _ = run.tolerant(
            constant,
            &Scope {
                frame: &nowhere,
                outer: None,
            },
        );
    }
    run.told.set(told.written);
    run.answered = told.answer.map(|answer| (answer, told.heed));
    let result = statement(&run, &planned.kind, told.copy);
    if result.is_err() {
        run.unpin();
    }
    let mut execution = match result {
        Ok(expect) => Execution {
            expect,
            effects: run.take_effects(),
            footprint: run.take_footprint(),
            pinned: run.take_pinned(),
            asks: run.take_asks(),
            reasons: planned.reasons.clone(),
        },
        Err(Fault::Raised { sqlstate, message }) => Execution {
            expect: Expect::failure(&sqlstate, message, context.clone()),
            effects: Vec::new(),
            footprint: run.take_footprint(),
            pinned: Pinned::default(),
            asks: run.take_asks(),
            reasons: planned.reasons.clone(),
        },
        Err(Fault::Unsure(reason)) => widened(planned, &reason, context),
        // Whoever is told what is answered says so in the answer.
        Err(Fault::Refuted { .. }) => widened(planned, "routine_over_unknown", context),
        Err(Fault::Repeated) => Execution {
            effects: Vec::new(),
            footprint: run.take_footprint(),
            asks: run.take_asks(),
            ..widened(planned, "routine_repeated", context)
        },
    };
    if planned.touches.writes_everything && execution.expect.success {
        // Something in it that is not modelled may have written anything, whatever else the statement does.
        let reason = planned.reasons.first().cloned().unwrap_or_default();
        let known = |effect: &Effect| matches!(effect, Effect::HavocEverything { .. });
        if !execution.effects.iter().any(known) {
            execution.effects.push(Effect::HavocEverything { reason });
        }
    }
    if execution.expect.success {
        let reason = planned.reasons.first().cloned().unwrap_or_default();
        let unfollowed = planned.touches.unfollowed.iter().map(|table| Effect::Havoc {
            table: *table,
            reason: reason.clone(),
        });
        execution.effects.extend(unfollowed);
    }
    execution.expect.any_data_error |= planned.many_relations;
    if planned.may_write && !execution.expect.success {
        // Which of several rows fails first, and for which reason, depends on the order they are visited in.
        execution.expect.any_error = true;
    }
    for (sqlstate, why) in run.possible.take() {
        execution.expect.may_fail(&sqlstate, why);
    }
    execution.expect.any_error |= run.any_error.get() || !planned.reasons.is_empty();
    // Rows that were never seen may violate a constraint.
    let mut touched = planned.touches.written.iter().chain(&planned.touches.read);
    let partial = |view: &dyn View, table| view.knowledge(table) != crate::state::view::Knowledge::Complete;
    execution.expect.any_error |= touched.any(|table| partial(views.latest, *table));
    for reason in run.reasons.take() {
        if !execution.reasons.contains(&reason) {
            execution.reasons.push(reason);
        }
    }
    execution
}

fn statement(run: &Run<'_>, kind: &Kind, copy: Option<&[u8]>) -> Outcome<Expect> {
    let context = run.context;
    let mut expect = Expect::success(context.clone());
    match kind {
        Kind::Select(query) => {
            let output = run.output(query, None, true)?;
            let cutting = run.cutting(query, None)?;
            expect.rows = Some(answer(run, query, output, cutting)?);
        }
        Kind::Insert(insert) => {
            let written = run.insert(insert, None)?;
            expect_written(run, written, insert.returning.as_ref(), &mut expect);
        }
        Kind::Update(update) => {
            let written = run.update(update, None)?;
            expect_written(run, written, update.returning.as_ref(), &mut expect);
        }
        Kind::Delete(delete) => {
            let written = run.delete(delete, None)?;
            expect_written(run, written, delete.returning.as_ref(), &mut expect);
        }
        Kind::Merge(merge) => {
            let written = run.merge(merge)?;
            expect_written(run, written, None, &mut expect);
        }
        Kind::Truncate { tables, cascade, .. } => {
            let mut effects = run.effects.borrow_mut();
            for table in tables {
                effects.push(Effect::Truncate { table: *table });
            }
            drop(effects);
            if !cascade {
                truncation_allowed(run, tables)?;
            }
        }
        Kind::CopyTo(copy_to) => {
            let query = &copy_to.query;
            let output = run.output(query, None, true)?;
            let cutting = run.cutting(query, None)?;
            expect.rows = Some(answer(run, query, output, cutting)?);
            expect.copy = Some(copy_to.format.clone());
        }
        Kind::CopyFrom(copy_from) => {
            let Some(data) = copy else {
                return Fault::unsure("copy_data");
            };
            let written = run.copy_from(copy_from, data)?;
            expect_written(run, written, None, &mut expect);
        }
        Kind::Call { routine, arguments } => {
            let frame = Frame::default();
            let scope = Scope {
                frame: &frame,
                outer: None,
            };
            let mut values = Vec::new();
            for argument in arguments {
                values.push(run.eval(argument, &scope)?);
            }
            expect.rows = run.call_procedure(routine, values)?;
        }
        Kind::Do { routine } => {
            run.call_routine(routine, Vec::new())?;
        }
        Kind::Rejected(sqlstate) => {
            return Err(Fault::Raised {
                sqlstate: (*sqlstate).to_owned(),
                message: "the statement is not valid".to_owned(),
            });
        }
        Kind::Unmodelled(reason) => return Fault::unsure(reason.clone()),
        Kind::Ddl(ddl) => return crate::interpret::ddl::apply(run, ddl),
        Kind::Explain => return Fault::unsure("explain"),
        Kind::Show(_) => return Fault::unsure("show"),
        Kind::Execute { .. } => return Fault::unsure("unknown_prepared_statement"),
        Kind::Fetch { .. } => return Fault::unsure("unknown_cursor"),
        Kind::DeclareCursor { .. } => return Fault::unsure("declare_cursor"),
        _ => {}
    }
    Ok(expect)
}

/// TRUNCATE of a table that others point at is refused unless they are truncated, too.
fn truncation_allowed(run: &Run<'_>, tables: &[TableId]) -> Outcome<()> {
    for table in tables {
        let Some(found) = run.views.snapshot.catalog().table(*table) else {
            continue;
        };
        if found.referenced_by.iter().any(|other| !tables.contains(other)) {
            return Err(Fault::Raised {
                sqlstate: "0A000".to_owned(),
                message: "cannot truncate a table referenced in a foreign key constraint".to_owned(),
            });
        }
    }
    Ok(())
}

fn expect_written(
    run: &Run<'_>,
    written: Written,
    returning: Option<&crate::sql::plan::Returning>,
    expect: &mut Expect,
) {
    expect.tag = Some(Tag {
        command: run.planned.tag,
        counted: true,
        min: written.min,
        max: written.max,
    });
    if let Some(returning) = returning {
        let rows = written.rows.into_iter().map(expected).collect();
        expect.rows = Some(Rows {
            groups: vec![Group { rows, take: None }],
            types: returning.types.clone(),
            names: returning.names.clone(),
            open: written.max.is_none(),
            limit: None,
            // Only the written row itself is named in the sources.
            origins: returning
                .origins
                .iter()
                .map(|origin| origin.filter(|(source, _)| *source == 0))
                .collect(),
            opening: None,
        });
    }
}

fn expected(row: OutputRow) -> ExpectedRow {
    ExpectedRow {
        values: row.values,
        certain: row.certain,
        sources: row.sources,
    }
}

/// The answer to a query: groups of rows that sort alike, with LIMIT applied to them.
fn answer(run: &Run<'_>, query: &Query, output: Output, cutting: Cutting) -> Outcome<Rows> {
    let unsure = output.open || output.rows.iter().any(|row| !row.certain);
    let cut = cutting.limit.is_some() || cutting.offset > 0;
    let (types, names) = query.describe();
    let (origins, opening) = match &query.body {
        crate::sql::plan::Body::Select(select) if select.group.is_none() => {
            let opening = if output.open && !cut {
                opening(run, select)?
            } else {
                None
            };
            let origins = match select.distinct {
                crate::sql::plan::Distinct::No => select.origins.clone(),
                // Nobody can tell which of several rows the one that is left comes from.
                _ => Arc::from([]),
            };
            (origins, opening)
        }
        _ => (Arc::from([]), None),
    };
    let visible = |row: OutputRow| {
        let mut row = expected(row);
        row.values.truncate(query.visible);
        row
    };
    let ordered = !query.order.is_empty() && !relocked(run, query);
    let mut groups = Vec::new();
    let mut rows = output.rows.into_iter();
    let ends = if ordered { output.ends } else { vec![rows.len()] };
    if cut && unsure {
        let rows: Vec<ExpectedRow> = rows.map(visible).collect();
        return Ok(Rows {
            groups: vec![Group { rows, take: None }],
            types,
            names,
            open: output.open,
            limit: Some(cutting.limit.filter(|_| !query.with_ties).unwrap_or(u64::MAX)),
            origins,
            opening: None,
        });
    }
    let first = cutting.offset as usize;
    let last = cutting
        .limit
        .map_or(usize::MAX, |limit| first.saturating_add(limit as usize));
    let mut start = 0;
    for end in ends {
        let group: Vec<ExpectedRow> = rows.by_ref().take(end - start).map(visible).collect();
        // WITH TIES: who sorts like the last one comes, too.
        let last = if query.with_ties && start < last {
            last.max(end)
        } else {
            last
        };
        let inside = end.min(last).saturating_sub(start.max(first));
        start = end;
        if group.is_empty() || (cut && inside == 0) {
            continue;
        }
        let take = (cut && inside < group.len()).then_some(inside as u64);
        groups.push(Group { rows: group, take });
    }
    Ok(Rows {
        groups,
        types,
        names,
        open: output.open,
        limit: None,
        origins,
        opening,
    })
}

/// A locking query whose rows may have changed since they were sorted.
fn relocked(run: &Run<'_>, query: &Query) -> bool {
    match &query.body {
        crate::sql::plan::Body::Select(select) => !select.locking.is_empty() && run.views_differ(),
        _ => false,
    }
}

/// What a read of one partial table by key can teach.
fn opening(run: &Run<'_>, select: &crate::sql::plan::Select) -> Outcome<Option<Arc<Opening>>> {
    use crate::sql::plan::{Access, From, RelationSource};
    let [relation] = select.relations.as_slice() else {
        return Ok(None);
    };
    let RelationSource::Table(table) = relation.source else {
        return Ok(None);
    };
    let Some(From::Scan(scan)) = &select.from else {
        return Ok(None);
    };
    if !matches!(select.distinct, crate::sql::plan::Distinct::No)
        || select.locking.iter().any(|lock| lock.skip_locked)
    {
        return Ok(None);
    }
    let mut fixed = Vec::new();
    if let Access::Lookup { columns, key } = &scan.access {
        let frame = Frame::new(1);
        let scope = Scope {
            frame: &frame,
            outer: None,
        };
        for (column, (expr, _)) in columns.iter().zip(key) {
            let value = run.eval(expr, &scope)?;
            fixed.push((*column, value));
        }
    }
    let exact = !fixed.is_empty() && scan.filter.len() == fixed.len() && select.filter.is_empty();
    let types_fit = {
        let catalog = run.views.snapshot.catalog();
        catalog.table(table).is_some_and(|found| {
            fixed.iter_mut().all(
                |(column, value)| match fit_column(value, found.columns[*column].type_oid) {
                    Some(fitted) => {
                        *value = fitted;
                        true
                    }
                    None => false,
                },
            )
        })
    };
    if !types_fit {
        return Ok(None);
    }
    Ok(Some(Arc::new(Opening {
        table,
        width: relation.width,
        fixed,
        exact,
    })))
}

fn fit_column(value: &Value, type_oid: u32) -> Option<Value> {
    use crate::value::oid;
    let number = match value {
        Value::Unknown | Value::Null => return None,
        Value::Int2(number) => i64::from(*number),
        Value::Int4(number) => i64::from(*number),
        Value::Int8(number) => *number,
        other => return Some(other.clone()),
    };
    match type_oid {
        oid::INT2 => i16::try_from(number).ok().map(Value::Int2),
        oid::INT4 => i32::try_from(number).ok().map(Value::Int4),
        oid::INT8 => Some(Value::Int8(number)),
        _ => None,
    }
}

/// Whether a row may satisfy conditions that look at it alone.
pub(super) fn may_accept(
    conditions: &[Expr],
    bound: &Arc<[Value]>,
    context: &Arc<Context>,
    place: usize,
    count: usize,
    row: &Row,
) -> bool {
    let views = Views::one(NOTHING.get_or_init(Nothing::default));
    let planned = EMPTY.get_or_init(Planned::empty);
    let run = Run::new(planned, &**bound, views, context);
    let mut frame = Frame::new(count);
    frame.slots[place] = Slot {
        row: Some(row.clone()),
        id: RowId(0),
    };
    let scope = Scope {
        frame: &frame,
        outer: None,
    };
    conditions
        .iter()
        .all(|condition| match run.eval(condition, &scope) {
            Ok(Value::Bool(false) | Value::Null) => false,
            Ok(_) | Err(_) => true,
        })
}

/// The values of expressions of a plan that read nothing: the arguments of EXECUTE.
pub(crate) fn arguments(
    planned: &Planned,
    bound: Vec<Value>,
    exprs: &[(Expr, TypeOid)],
    context: &Arc<Context>,
) -> Option<Vec<Value>> {
    let nothing = Nothing::default();
    let run = Run::new(planned, bound, Views::one(&nothing), context);
    let frame = Frame::default();
    let scope = Scope {
        frame: &frame,
        outer: None,
    };
    let values = exprs.iter().map(|(expr, _)| run.eval(expr, &scope).ok());
    values.collect()
}

/// The value of an expression that reads nothing.
pub(crate) fn constant(expr: &Expr, context: &Arc<Context>) -> Option<Value> {
    let nothing = Nothing::default();
    let run = Run::new(
        EMPTY.get_or_init(Planned::empty),
        Vec::new(),
        Views::one(&nothing),
        context,
    );
    let frame = Frame::default();
    run.eval(
        expr,
        &Scope {
            frame: &frame,
            outer: None,
        },
    )
    .ok()
}

static EMPTY: std::sync::OnceLock<Planned> = std::sync::OnceLock::new();
static NOTHING: std::sync::OnceLock<Nothing> = std::sync::OnceLock::new();

/// A view of an empty database, for expressions that read nothing.
#[derive(Default)]
struct Nothing {
    catalog: Catalog,
}

impl View for Nothing {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn knowledge(&self, _table: TableId) -> crate::state::view::Knowledge {
        crate::state::view::Knowledge::Partial
    }

    fn scan(&self, _table: TableId, _each: &mut dyn FnMut(RowId, &Row)) {}

    fn lookup(&self, _: TableId, _: &[usize], _: &[Value], _: &mut dyn FnMut(RowId, &Row)) -> bool {
        false
    }

    fn row(&self, _table: TableId, _id: RowId) -> Option<Row> {
        None
    }
}

/// What a statement may have drawn from sequences, if nothing more is known.
pub fn drawn_unknown(planned: &Planned) -> impl Iterator<Item = Effect> {
    let everything = planned.touches.draws_everything || planned.touches.writes_everything;
    let some = planned.touches.draws.iter().map(|(sequence, _)| Some(*sequence));
    some.chain(everything.then_some(None))
        .map(|sequence| Effect::Drawn { sequence, next: None })
}

/// Nothing is known of the answer, nor of what was written.
pub fn widened(planned: &Planned, reason: &str, context: &Arc<Context>) -> Execution {
    let mut effects = Vec::new();
    if planned.touches.writes_everything {
        effects.push(Effect::HavocEverything {
            reason: reason.to_owned(),
        });
    }
    for table in &planned.touches.written {
        effects.push(Effect::Havoc {
            table: *table,
            reason: reason.to_owned(),
        });
    }
    effects.extend(drawn_unknown(planned));
    let footprint = planned
        .touches
        .read
        .iter()
        .map(|table| Touch::Scan {
            table: *table,
            filter: None,
        })
        .collect();
    Execution {
        expect: Expect::anything(reason, context.clone()),
        effects,
        footprint,
        pinned: Pinned::default(),
        asks: AllAsks::of(&Arc::new(Asks::everything())),
        reasons: planned
            .reasons
            .iter()
            .cloned()
            .chain([reason.to_owned()])
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect(),
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
        collation: if catalog.collation_is_c() {
            Collation::Bytes
        } else {
            Collation::Deterministic
        },
        user_types: catalog.user_types(),
        temporary: settings.temporary.clone(),
        ..Context::defaults()
    })
}
