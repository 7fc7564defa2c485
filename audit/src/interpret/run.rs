//! One execution of one statement: what all its parts share.

use super::routine::path::Path;
use super::{Cut, Effect, Heed, Pinned, RowFilter, Touch, Views};
use crate::sql::plan::{AllAsks, Asks, Cte, CteQuery, Expr, Kind, Planned};
use crate::state::{Row, RowId, TableId};
use crate::trace::Answer;
use crate::value::compare::identical;
use crate::value::{Context, SqlError, Value};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// How many rows and expressions one statement may look at before it counts as unknown.
const WORK_MAX: u64 = 20_000_000;

/// Key reads of one table beyond this many become one read of the whole table.
const KEYS_MAX: usize = 256;

/// Why the execution ended early.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The server raises this error for certain.
    Raised { sqlstate: String, message: String },
    /// Nothing can be said, for this reason.
    Unsure(String),
    /// What the routine answers in this variable is not what was answered.
    Refuted { variable: usize, value: Value },
    /// The routine has come to where it was before: nothing new follows.
    Repeated,
}

pub(super) type Outcome<T> = Result<T, Fault>;

/// Rows of a finished subquery or CTE.
#[derive(Debug, Default)]
pub(super) struct Derived {
    pub rows: Vec<(Row, bool)>,
    pub open: bool,
}

/// The rows of one query level at a moment: one slot per relation, or the grouped row.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub slots: SmallVec<[Slot; 2]>,
    pub grouped: Vec<Value>,
    /// Values of the level's window functions.
    pub windowed: Vec<Value>,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// `None`: extended with NULLs by an outer join.
    pub row: Option<Row>,
    pub id: RowId,
}

impl Frame {
    pub fn new(relations: usize) -> Frame {
        Frame {
            slots: smallvec![
                Slot {
                    row: None,
                    id: RowId(0)
                };
                relations
            ],
            grouped: Vec::new(),
            windowed: Vec::new(),
        }
    }
}

/// A frame and those outside it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'s> {
    pub frame: &'s Frame,
    pub outer: Option<&'s Scope<'s>>,
}

impl<'s> Scope<'s> {
    pub fn up(&self, levels: u16) -> Option<&'s Frame> {
        let mut frame = self.frame;
        let mut outer = self.outer;
        for _ in 0..levels {
            let next = outer?;
            frame = next.frame;
            outer = next.outer;
        }
        Some(frame)
    }
}

pub(super) struct Run<'a> {
    pub planned: &'a Planned,
    pub bound: Cow<'a, [Value]>,
    pub views: Views<'a>,
    pub context: &'a Arc<Context>,
    /// Answers of uncorrelated subqueries, by their number.
    pub answers: RefCell<FxHashMap<usize, Rc<Derived>>>,
    pub ctes: RefCell<FxHashMap<usize, Rc<Derived>>>,
    pub scans: RefCell<FxHashMap<TableId, Rc<Vec<(RowId, Row)>>>>,
    pub effects: RefCell<Vec<Effect>>,
    pub reasons: RefCell<Vec<String>>,
    /// Errors that the server may raise, but need not.
    pub possible: RefCell<Vec<(String, String)>>,
    /// Something unmodelled could fail in any way.
    pub any_error: Cell<bool>,
    footprint: RefCell<Footprint>,
    /// What was read besides, where the answer says what was found.
    pinned: RefCell<Pinned>,
    asks: RefCell<AllAsks>,
    work: Cell<u64>,
    pub routine_depth: usize,
    /// The instants that routines have taken so far; `None` where it is not known in which order they come.
    pub path: Option<Rc<Path>>,
    /// Several parts of the statement write: what one does the others may meet, in an order of the server's choice.
    pub several_writers: bool,
    /// How many rows the statement wrote, if its answer says so.
    pub told: Cell<Option<u64>>,
    /// Its answer, if it is known; and what that is to a call.
    pub answered: Option<(&'a Answer, Heed)>,
    /// What the sequences that were drawn from give next.
    drawn: RefCell<BTreeMap<TableId, Option<i64>>>,
    /// Rows are made in an order of the server's choice: which of them got which value is not known.
    pub is_unordered: Cell<bool>,
    /// A row that was found in its place in an order had changed when it was locked.
    pub is_unsorted: Cell<bool>,
}

#[derive(Default)]
struct Footprint {
    touches: Vec<Touch>,
    /// How many keys of a table were read; a statement has few tables.
    keys: SmallVec<[(TableId, usize); 4]>,
    whole: SmallVec<[TableId; 2]>,
}

impl<'a> Run<'a> {
    pub fn new(
        planned: &'a Planned,
        bound: impl Into<Cow<'a, [Value]>>,
        views: Views<'a>,
        context: &'a Arc<Context>,
    ) -> Run<'a> {
        Run {
            planned,
            bound: bound.into(),
            views,
            context,
            answers: RefCell::default(),
            ctes: RefCell::default(),
            scans: RefCell::default(),
            effects: RefCell::default(),
            reasons: RefCell::default(),
            possible: RefCell::default(),
            any_error: Cell::new(false),
            footprint: RefCell::default(),
            pinned: RefCell::default(),
            asks: RefCell::new(AllAsks::of(&planned.asks)),
            work: Cell::new(0),
            routine_depth: 0,
            path: None,
            several_writers: several_writers(&planned.kind),
            told: Cell::new(None),
            answered: None,
            drawn: RefCell::default(),
            is_unordered: Cell::new(false),
            is_unsorted: Cell::new(false),
        }
    }

    /// The next value of a sequence.
    pub fn draw(&self, sequence: TableId) -> Value {
        let draws = &self.planned.touches.draws;
        let once = draws.iter().filter(|(other, _)| *other == sequence).count() == 1;
        let in_order = once && !self.several_writers && self.routine_depth == 0;
        let view = self.views.latest;
        let mut drawn = self.drawn.borrow_mut();
        let next = drawn.entry(sequence).or_insert_with(|| match in_order {
            true => view.sequence(sequence),
            false => None,
        });
        let Some(value) = *next else {
            return Value::Unknown;
        };
        let known = view.catalog().table(sequence).and_then(|table| table.sequence);
        *next = known.and_then(|known| known.after(value));
        match self.is_unordered.get() {
            true => Value::Unknown,
            false => Value::Int8(value),
        }
    }

    /// What was done, also to sequences.
    pub fn take_effects(&self) -> Vec<Effect> {
        let mut effects = self.effects.take();
        let touches = &self.planned.touches;
        for (sequence, next) in self.drawn.take() {
            let sequence = Some(sequence);
            effects.push(Effect::Drawn { sequence, next });
        }
        for (sequence, _) in touches.draws.iter().filter(|(_, column)| column.is_none()) {
            let sequence = Some(*sequence);
            effects.push(Effect::Drawn { sequence, next: None });
        }
        if touches.draws_everything || touches.writes_everything {
            effects.push(Effect::Drawn {
                sequence: None,
                next: None,
            });
        }
        effects
    }

    /// Counts work, so that no statement runs forever.
    pub fn work(&self, amount: u64) -> Outcome<()> {
        let done = self.work.get() + amount;
        self.work.set(done);
        if done > WORK_MAX {
            Err(Fault::Unsure("work_budget".to_owned()))
        } else {
            Ok(())
        }
    }

    pub fn note(&self, reason: impl Into<String>) {
        let reason = reason.into();
        let mut reasons = self.reasons.borrow_mut();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }

    pub fn may_fail(&self, sqlstate: &str, message: impl Into<String>) {
        let mut possible = self.possible.borrow_mut();
        if !possible.iter().any(|(state, _)| state == sqlstate) {
            possible.push((sqlstate.to_owned(), message.into()));
        }
    }

    pub fn touch_key(&self, table: TableId, columns: &Arc<[usize]>, key: &[Value]) {
        self.touch_some(table, columns, key, None, None);
    }

    /// Rows that have the key and that the filter may accept.
    pub fn touch_key_if(
        &self,
        table: TableId,
        columns: &Arc<[usize]>,
        key: &[Value],
        filter: Option<RowFilter>,
    ) {
        self.touch_some(table, columns, key, filter, None);
    }

    /// Rows that have the key and are not behind the cut.
    pub fn touch_key_until(&self, table: TableId, columns: &Arc<[usize]>, key: &[Value], cut: Option<Cut>) {
        self.touch_some(table, columns, key, None, cut);
    }

    fn touch_some(
        &self,
        table: TableId,
        columns: &Arc<[usize]>,
        key: &[Value],
        filter: Option<RowFilter>,
        cut: Option<Cut>,
    ) {
        let mut footprint = self.footprint.borrow_mut();
        if footprint.whole.contains(&table) {
            return;
        }
        let at = match footprint.keys.iter().position(|(known, _)| *known == table) {
            Some(at) => at,
            None => {
                footprint.keys.push((table, 0));
                footprint.keys.len() - 1
            }
        };
        footprint.keys[at].1 += 1;
        if footprint.keys[at].1 > KEYS_MAX {
            footprint.whole.push(table);
            footprint
                .touches
                .retain(|touch| !matches!(touch, Touch::Key { table: other, .. } if *other == table));
            footprint.touches.push(Touch::Scan { table, filter: None });
            return;
        }
        footprint.touches.push(Touch::Key {
            table,
            columns: columns.clone(),
            key: key.to_vec(),
            filter,
            cut,
        });
    }

    pub fn touch_scan(&self, table: TableId, filter: Option<RowFilter>) {
        let mut footprint = self.footprint.borrow_mut();
        if footprint.whole.contains(&table) {
            return;
        }
        if filter.is_none() {
            footprint.whole.push(table);
        }
        footprint.touches.push(Touch::Scan { table, filter });
    }

    /// What a part of this execution read.
    pub fn touch(&self, touch: Touch) {
        match touch {
            Touch::Key {
                table,
                columns,
                key,
                filter,
                cut,
            } => self.touch_some(table, &columns, &key, filter, cut),
            Touch::Scan { table, filter } => self.touch_scan(table, filter),
        }
    }

    /// What a part of this execution read where the answer says what it found.
    pub fn pin(&self, found: Pinned) {
        self.pinned.borrow_mut().join(found);
    }

    /// What was found may have been something else after all.
    pub fn unpin(&self) {
        for touch in self.pinned.take().touches {
            self.touch(touch);
        }
    }

    pub fn take_pinned(&self) -> Pinned {
        self.pinned.take()
    }

    /// What a part of this execution asked for.
    pub fn ask(&self, asks: &AllAsks) {
        self.asks.borrow_mut().join(asks);
    }

    /// A sum was to be stored in a column and became something else: it matters what it was added to.
    pub fn ask_if_rounded(&self, table: TableId, expr: &Expr, stored: &Value, scope: &Scope<'_>) {
        if let Expr::Cast {
            argument, from, to, ..
        } = expr
            && from == to
            && matches!(**argument, Expr::Call { .. })
            && !self
                .tolerant(argument, scope)
                .is_ok_and(|sum| identical(&sum, stored) == Some(true))
        {
            self.ask(&AllAsks::of(&Arc::new(Asks::whole(table))));
        }
    }

    pub fn take_asks(&self) -> AllAsks {
        self.asks.take()
    }

    /// How many places were read so far.
    pub fn touches_len(&self) -> usize {
        self.footprint.borrow().touches.len()
    }

    /// What was read so far.
    pub fn touches(&self) -> Vec<Touch> {
        self.footprint.borrow().touches.clone()
    }

    pub fn take_footprint(&self) -> Vec<Touch> {
        std::mem::take(&mut *self.footprint.borrow_mut()).touches
    }

    /// Whether a row that was found may have changed since.
    pub fn views_differ(&self) -> bool {
        self.views.recheck
    }

    /// What a value's computation came to: an error of the server stays one, what is not modelled is unknown.
    pub fn settle(&self, result: Result<Value, SqlError>) -> Outcome<Value> {
        match result {
            Ok(value) => Ok(value),
            Err(SqlError::Raised { sqlstate, message }) => Err(Fault::Raised {
                sqlstate: sqlstate.to_owned(),
                message,
            }),
            Err(SqlError::NotModelled(reason)) => {
                self.note(reason);
                self.any_error.set(true);
                Ok(Value::Unknown)
            }
        }
    }
}

impl Fault {
    pub fn unsure<T>(reason: impl Into<String>) -> Outcome<T> {
        Err(Fault::Unsure(reason.into()))
    }
}

/// WITH holds a write, and something else writes, too.
fn several_writers(kind: &Kind) -> bool {
    let writing = |ctes: &[Cte]| {
        let writes = |cte: &&Cte| !matches!(cte.query, CteQuery::Plain(_) | CteQuery::Recursive { .. });
        ctes.iter().filter(writes).count()
    };
    match kind {
        Kind::Select(query) => writing(&query.ctes) > 1,
        Kind::Insert(insert) => writing(&insert.ctes) > 0,
        Kind::Update(update) => writing(&update.ctes) > 0,
        Kind::Delete(delete) => writing(&delete.ctes) > 0,
        Kind::Merge(merge) => writing(&merge.ctes) > 0,
        _ => false,
    }
}
