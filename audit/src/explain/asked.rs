//! What a statement asks for in its session: EXECUTE is the statement that was prepared, DECLARE the query of
//! its cursor, FETCH some rows of an open one.
//!
//! In: an observation and the session as it is. Out: an [`Asked`]: the plan that is really run; and, once it was
//! performed on a view, how the session goes on.
//!
//! Always true: a name that this session was not seen preparing or declaring is unknown, never an error.

use super::session::SessionState;
use crate::interpret::{self, Execution, Expect, Fetch, Heed, Pinned, Portal, PortalName, Views};
use crate::sql::plan::{AllAsks, Body, Distinct, FetchDirection, RelationSource};
use crate::sql::{Kind, Planner, Prepared};
use crate::state::{Catalog, TableId};
use crate::trace::{Observation, Outcome, Protocol};
use crate::value::{self, CastKind, SqlError, Value, oid};
use smallvec::SmallVec;
use std::sync::Arc;

/// A statement with the plan that is run for it.
pub struct Asked {
    pub prepared: Prepared,
    parameters: Vec<Value>,
    act: Act,
}

enum Act {
    Run,
    Declare {
        name: String,
        hold: bool,
    },
    Fetch(PortalName, Fetch, &'static str),
    Close(Option<String>),
    /// The statement fails, or nothing is known of it.
    Unknown(&'static str),
}

/// What a statement changes in its session, once it is known how it was answered.
pub enum Change {
    Nothing,
    /// The portal, and how much of it the same statement fetched.
    Open(PortalName, Box<Portal>, Option<Fetch>),
    Fetch(PortalName, Fetch),
    Close(Option<PortalName>),
}

/// An answer to which each row of a table gives its own part.
pub struct RowByRow {
    /// Where the rows are kept.
    pub table: TableId,
    /// A unique key, and where it is in the answer.
    pub columns: Vec<usize>,
    pub places: Vec<usize>,
    /// The order that is asked for is one of columns that are shown, or there is none.
    pub tells_order: bool,
}

impl Asked {
    pub fn of(planner: &Planner, catalog: &Catalog, seen: &Observation, session: &SessionState) -> Asked {
        let types: SmallVec<[u32; 8]> = seen.parameters.iter().map(|p| p.type_oid).collect();
        let prepared = planner.plan(catalog, &seen.text, seen.part, &session.settings, &types);
        let context = &session.context;
        let parameters = prepared.planned.decode_parameters(&seen.parameters, context);
        let act = match seen.protocol {
            Protocol::Function => Act::Unknown("function_call"),
            Protocol::Continued => {
                let name = PortalName::Bound(seen.text.clone(), seen.parameters.clone());
                Act::Fetch(name, part_of(seen), "SELECT")
            }
            Protocol::Simple | Protocol::Extended => match &prepared.planned.kind {
                Kind::Execute { name, arguments } => {
                    let found = session.prepared.get(name).cloned();
                    let executed = found.and_then(|(text, types)| {
                        let inner = planner.plan(catalog, &text, 0, &session.settings, &types);
                        let values = values(&prepared, &parameters, arguments, &inner, session)?;
                        Some((inner, values))
                    });
                    return match executed {
                        Some((prepared, parameters)) => Asked {
                            prepared,
                            parameters,
                            act: Act::Run,
                        },
                        None => Asked {
                            prepared,
                            parameters,
                            act: Act::Unknown("unknown_prepared_statement"),
                        },
                    };
                }
                Kind::DeclareCursor { name, hold, query } => {
                    let (name, hold) = (name.clone(), *hold);
                    let inner = planner.plan(catalog, query, 0, &session.settings, &types);
                    let parameters = inner.planned.decode_parameters(&seen.parameters, context);
                    return Asked {
                        prepared: inner,
                        parameters,
                        act: Act::Declare { name, hold },
                    };
                }
                Kind::Fetch {
                    name,
                    direction,
                    count,
                    is_move,
                } => {
                    let fetch = Fetch {
                        direction: *direction,
                        count: *count,
                        is_move: *is_move,
                    };
                    Act::Fetch(PortalName::Cursor(name.clone()), fetch, prepared.planned.tag)
                }
                Kind::CloseCursor(name) => Act::Close(name.clone()),
                // Nothing cannot fail: it is the commit of what was sent before it, whose constraints were deferred.
                Kind::Empty if matches!(seen.outcome, Outcome::Error(_)) => Act::Unknown("failed_commit"),
                _ => Act::Run,
            },
        };
        Asked {
            prepared,
            parameters,
            act,
        }
    }

    /// Whether it reads the state at all, rather than what was read before.
    pub fn reads_snapshot(&self) -> bool {
        !matches!(self.act, Act::Fetch(..) | Act::Close(_)) && self.prepared.planned.reads_snapshot
    }

    /// Whether the answer says that no row was written, so that it left nothing behind.
    pub fn wrote_nothing(&self, outcome: &Outcome) -> bool {
        self.prepared.planned.wrote_nothing(outcome)
    }

    /// Where the unique keys are in its answer, if that has nothing but columns of one table, each row once.
    pub fn shown_keys(&self, catalog: &Catalog) -> Vec<Vec<usize>> {
        let Kind::Select(query) = &self.prepared.planned.kind else {
            return Vec::new();
        };
        let Body::Select(select) = &query.body else {
            return Vec::new();
        };
        let plain = select.group.is_none() && select.origins.iter().all(Option::is_some);
        let [relation] = select.relations.as_slice() else {
            return Vec::new();
        };
        let RelationSource::Table(table) = relation.source else {
            return Vec::new();
        };
        let Some(table) = catalog.table(table).filter(|_| plain && self.is_run()) else {
            return Vec::new();
        };
        let place = |column: &usize| {
            let mut origins = select.origins.iter();
            origins.position(|origin| origin.is_some_and(|(_, of)| of as usize == *column))
        };
        let keys = table.keys.iter().filter(|key| key.is_plain() && !key.deferrable);
        keys.filter_map(|key| key.columns.iter().map(place).collect())
            .collect()
    }

    /// How its answer is made of rows of one table, if each row that is found gives one row to it, by which it is known,
    /// whatever other rows there are.
    pub fn row_by_row(&self, catalog: &Catalog) -> Option<RowByRow> {
        let planned = &*self.prepared.planned;
        let Kind::Select(query) = &planned.kind else {
            return None;
        };
        let Body::Select(select) = &query.body else {
            return None;
        };
        let plain = planned.looks_once
            && !planned.volatile
            && query.limit.is_none()
            && query.offset.is_none()
            && select.group.is_none()
            && select.windows.is_empty()
            && select.locking.is_empty()
            && matches!(select.distinct, Distinct::No);
        let [relation] = select.relations.as_slice() else {
            return None;
        };
        let RelationSource::Table(table) = relation.source else {
            return None;
        };
        let table = catalog.table(table).filter(|_| plain && self.is_run())?;
        let place = |column: &usize| {
            let mut shown = select.origins.iter().take(query.visible);
            shown.position(|origin| origin.is_some_and(|(_, of)| of as usize == *column))
        };
        let mut keys = table.keys.iter().filter(|key| key.is_plain() && !key.deferrable);
        let (columns, places) = keys.find_map(|key| {
            let places: Option<Vec<usize>> = key.columns.iter().map(place).collect();
            Some((key.columns.clone(), places?))
        })?;
        Some(RowByRow {
            table: table.storage,
            columns,
            places,
            tells_order: query.order.iter().all(|key| key.column < query.visible),
        })
    }

    /// Whether it is the statement itself that is run, not a part of a cursor.
    pub fn is_run(&self) -> bool {
        matches!(self.act, Act::Run)
    }

    /// Runs it on the views.
    pub fn perform(
        &self,
        seen: &Observation,
        session: &SessionState,
        views: Views<'_>,
        heed: Heed,
    ) -> (Execution, Change) {
        let context = &session.context;
        let planned = &*self.prepared.planned;
        let run = || {
            if session.settings.is_replica && planned.heeds_role {
                return interpret::widened(planned, "session_replication_role", context);
            }
            let told = interpret::Told {
                heed,
                ..interpret::Told::of(&seen.outcome)
            };
            interpret::execute_told(&self.prepared, &self.parameters, told, views, context)
        };
        match &self.act {
            Act::Unknown(reason) => (interpret::widened(planned, reason, context), Change::Nothing),
            Act::Close(name) => {
                let execution = succeeds(session);
                (execution, Change::Close(name.clone().map(PortalName::Cursor)))
            }
            Act::Fetch(name, fetch, command) => {
                let mut execution = succeeds(session);
                match session.portals.get(name) {
                    Some(portal) => {
                        execution.expect = portal.fetch(*fetch, command);
                        execution.reasons = portal.reasons().to_vec();
                    }
                    None => execution.expect = Expect::anything("unknown_cursor", context.clone()),
                }
                (execution, Change::Fetch(name.clone(), *fetch))
            }
            Act::Declare { name, hold } => {
                let Execution {
                    expect,
                    footprint,
                    asks,
                    reasons,
                    effects,
                    ..
                } = run();
                let mut execution = succeeds(session);
                execution.footprint = footprint;
                execution.asks = asks;
                execution.effects = effects;
                // What fails when rows are computed fails at a fetch; what the planner computes fails now.
                execution.expect.any_error = !expect.success || expect.any_error || !reasons.is_empty();
                let portal = match unmodelled_cursor(planned) {
                    Some(reason) => Portal::unknown(*hold, reason, expect),
                    None => Portal::new(*hold, expect, reasons),
                };
                let name = PortalName::Cursor(name.clone());
                (execution, Change::Open(name, Box::new(portal), None))
            }
            Act::Run => {
                let mut execution = run();
                let suspended =
                    matches!(&seen.outcome, Outcome::Answer(a) if a.tag.is_none() && !a.rows.is_empty());
                if !suspended || seen.protocol != Protocol::Extended {
                    return (execution, Change::Nothing);
                }
                let portal = match (&planned.kind, unmodelled_cursor(planned)) {
                    (Kind::Select(_), Some(reason)) => {
                        Portal::unknown(false, reason, execution.expect.clone())
                    }
                    _ => Portal::new(false, execution.expect.clone(), execution.reasons.clone()),
                };
                let fetch = part_of(seen);
                execution.expect = portal.fetch(fetch, planned.tag);
                let name = PortalName::Bound(seen.text.clone(), seen.parameters.clone());
                (execution, Change::Open(name, Box::new(portal), Some(fetch)))
            }
        }
    }
}

impl SessionState {
    /// Follows a statement that was answered or failed.
    pub fn follow(&mut self, change: &Change, outcome: &Outcome) {
        let succeeded = matches!(outcome, Outcome::Answer(_));
        match change {
            Change::Nothing => {}
            Change::Open(name, portal, fetch) if succeeded => {
                let portals = &mut self.change().portals;
                portals.open(name.clone(), (**portal).clone());
                if let Some(fetch) = fetch {
                    portals.fetched(name, *fetch, outcome);
                }
            }
            Change::Open(..) => {}
            Change::Fetch(name, fetch) => {
                if self.portals.get(name).is_some() {
                    self.change().portals.fetched(name, *fetch, outcome);
                }
            }
            Change::Close(name) if succeeded => self.change().portals.close(name.as_ref()),
            Change::Close(_) => {}
        }
    }
}

/// Nothing but success is expected.
fn succeeds(session: &SessionState) -> Execution {
    Execution {
        expect: Expect::success(session.context.clone()),
        effects: Vec::new(),
        footprint: Vec::new(),
        pinned: Pinned::default(),
        asks: AllAsks::default(),
        reasons: Vec::new(),
    }
}

/// How much of a portal an Execute fetched: as many rows as came, or all that were left.
fn part_of(seen: &Observation) -> Fetch {
    let count = match &seen.outcome {
        Outcome::Answer(answer) if answer.tag.is_none() => answer
            .cut
            .as_ref()
            .map_or(answer.rows.len() as i64, |cut| cut.rows as i64),
        _ => i64::MAX,
    };
    Fetch {
        direction: FetchDirection::Forward,
        count,
        is_move: false,
    }
}

/// Why the rows of a cursor are not those of its snapshot alone.
fn unmodelled_cursor(planned: &crate::sql::Planned) -> Option<&'static str> {
    match &planned.kind {
        Kind::Select(_) if planned.locks() => Some("cursor_for_update"),
        Kind::Select(_) if planned.may_write => Some("cursor_writes"),
        Kind::Select(_) => None,
        _ => Some("cursor"),
    }
}

/// The arguments of EXECUTE as the parameters of the prepared statement.
fn values(
    outer: &Prepared,
    parameters: &[Value],
    arguments: &[(crate::sql::plan::Expr, u32)],
    inner: &Prepared,
    session: &SessionState,
) -> Option<Vec<Value>> {
    let context: &Arc<_> = &session.context;
    let wanted = &inner.planned.parameter_types;
    if arguments.len() != wanted.len() {
        return None;
    }
    let bound = outer.planned.bind(parameters, &outer.literals, context).ok()?;
    let values = interpret::arguments(&outer.planned, bound, arguments, context)?;
    let typed = values.into_iter().zip(arguments).zip(wanted);
    typed
        .map(|((value, (_, from)), to)| match (&value, *from) {
            (Value::Null | Value::Unknown, _) => Some(value),
            (_, 0) => Some(Value::Unknown),
            (_, from) if from == *to => Some(value),
            (Value::Text(text), oid::UNKNOWN) => kept(value::parse(text, *to, -1, context)),
            (_, from) => kept(value::cast(&value, from, *to, -1, CastKind::Assignment, context)),
        })
        .collect()
}

/// What is not modelled is unknown; an error is for the server to raise.
fn kept(result: Result<Value, SqlError>) -> Option<Value> {
    match result {
        Ok(value) => Some(value),
        Err(SqlError::NotModelled(_)) => Some(Value::Unknown),
        Err(_) => None,
    }
}
