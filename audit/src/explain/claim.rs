//! Which rows a statement certainly held when it was answered, and until when its transaction certainly kept them.
//!
//! In: a statement with its plan, its answer and what it did. Out: [`Claim`]s: unique keys whose row was locked, written or
//! made.
//!
//! Nothing here depends on what is known of the rows: a key is claimed that the statement or its answer says.
//!
//! A row is named by a unique key: while somebody holds it, nobody else can change that key, take the row away, or make
//! another one with the same key. So two claims to one key are claims to one row, whatever each of them saw of it.
//!
//! Always true:
//!   - what is claimed was held from the answer on at the latest, and until it was asked for what may have let go of it at
//!     the earliest;
//!   - what an answer does not name is not claimed, though it may have been locked: rows that were passed over, parents that
//!     foreign keys look for, what routines do.

use super::asked::Asked;
use crate::assemble::Transaction;
use crate::control::Control;
use crate::interpret::{Difference, Effect, Expect, Touch};
use crate::sql::Kind;
use crate::sql::plan::{Access, Body, Expr, From, Insert, InsertValue, RelationSource, Select, Strength};
use crate::state::{Catalog, TableId};
use crate::trace::{Answer, Nanos, Observation, Outcome, Status, Window};
use crate::value::{Key, Value};
use pgassay_rules::anomaly;

/// Rows of one statement that are looked at.
const ROWS_MAX: usize = 256;

/// What is wrong when somebody held a row that was not free.
pub fn difference() -> Difference {
    Difference {
        rule: &anomaly::DIRTY_WRITE,
        observed: "the row was held".to_owned(),
        expected: "to wait until the other transaction had ended".to_owned(),
    }
}

/// How a key was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// There was a row with this key, and it was locked.
    Locked(Strength),
    /// There was none, and one was made.
    Made,
}

impl Mode {
    /// Whether one of two claims has to wait for the other.
    pub fn excludes(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::Locked(a), Mode::Locked(b)) => a.excludes(b),
            // As long as one is there, or may go away, no other is made.
            (Mode::Made, _) | (_, Mode::Made) => true,
        }
    }
}

/// The row of a unique key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub table: TableId,
    pub columns: Vec<usize>,
    pub key: Vec<Key>,
}

#[derive(Clone, Debug)]
pub struct Claim {
    pub place: Place,
    pub mode: Mode,
    pub step: usize,
}

/// A claim of one transaction, and from when to when it certainly stood.
#[derive(Clone, Debug)]
pub struct Held {
    pub claim: Claim,
    pub window: Window,
}

impl Held {
    /// What a transaction certainly held of what it claimed, once it has ended.
    pub fn of(txn: &Transaction, claims: &[Claim]) -> Vec<Held> {
        if claims.is_empty() {
            return Vec::new();
        }
        let until = standing(txn);
        let held = claims.iter().filter_map(|claim| {
            let from = txn.steps[claim.step].seen.window.done;
            let until = until[claim.step].filter(|until| *until > from)?;
            Some(Held {
                claim: claim.clone(),
                window: Window::new(from, until),
            })
        });
        held.collect()
    }

    /// Whether no two transactions can have held both.
    pub fn excludes(&self, other: &Held) -> bool {
        let (a, b) = (self.window, other.window);
        self.claim.place == other.claim.place
            && self.claim.mode.excludes(other.claim.mode)
            && a.sent < b.done
            && b.sent < a.done
    }
}

/// What a statement claims that was answered inside of a transaction block.
pub fn claims(
    step: usize,
    seen: &Observation,
    asked: &Asked,
    catalog: &Catalog,
    expect: &Expect,
    footprint: &[Touch],
    effects: &[Effect],
) -> Vec<Claim> {
    let mut found = Claims {
        step,
        catalog,
        all: Vec::new(),
    };
    let (Outcome::Answer(answer), Status::InBlock, true) = (&seen.outcome, seen.before, asked.is_run())
    else {
        return found.all;
    };
    let planned = &asked.prepared.planned;
    if !planned.reasons.is_empty() {
        return found.all;
    }
    let one_row = answer.tag.as_deref().is_some_and(|tag| tag.ends_with(" 1"));
    match &planned.kind {
        Kind::Select(query) => {
            if let Body::Select(select) = &query.body
                && !select.locking.is_empty()
            {
                found.of_locks(select, answer, expect, footprint);
            }
        }
        // Whether a key was changed, which locks out one more, is not looked at.
        Kind::Update(update) if one_row && update.ctes.is_empty() => {
            found.of_write(update.table, &update.select, Strength::NoKeyUpdate, footprint);
        }
        Kind::Delete(delete) if one_row && delete.ctes.is_empty() => {
            found.of_write(delete.table, &delete.select, Strength::Update, footprint);
        }
        Kind::Insert(insert) if insert.ctes.is_empty() && insert.conflict.is_none() => {
            let is_given = |row: &Vec<Expr>| row.iter().all(|value| planned.is_given(value));
            if let Some(Body::Values(rows)) = insert.query.as_ref().map(|query| &query.body)
                && rows.iter().all(is_given)
            {
                found.of_insert(insert, effects);
            }
        }
        _ => {}
    }
    found.all
}

struct Claims<'a> {
    step: usize,
    catalog: &'a Catalog,
    all: Vec<Claim>,
}

impl Claims<'_> {
    /// Every unique key of a row of which these cells are known.
    fn add(&mut self, table: TableId, cell: impl Fn(usize) -> Option<Value>, mode: Mode) {
        let Some(table) = self.catalog.table(table) else {
            return;
        };
        for key in table.keys.iter().filter(|key| key.is_plain() && !key.deferrable) {
            let values: Option<Vec<Key>> = key
                .columns
                .iter()
                .map(|column| {
                    cell(*column).filter(|value| !value.has_unknown() && !matches!(value, Value::Null))
                })
                .map(|value| value.map(Key))
                .collect();
            let Some(values) = values.filter(|values| !values.is_empty()) else {
                continue;
            };
            let place = Place {
                table: table.storage,
                columns: key.columns.clone(),
                key: values,
            };
            if !self.all.iter().any(|c| c.place == place && c.mode == mode) {
                let step = self.step;
                self.all.push(Claim { place, mode, step });
            }
        }
    }

    /// The one row that was looked for by a unique key, and written.
    fn of_write(&mut self, table: TableId, select: &Select, strength: Strength, footprint: &[Touch]) {
        let Some(From::Scan(scan)) = select.from.as_ref().filter(|_| select.relations.len() == 1) else {
            return;
        };
        let Access::Lookup { columns: by, .. } = &scan.access else {
            return;
        };
        let storage = self.catalog.storage(table);
        let mut sought = footprint.iter().filter_map(|touch| match touch {
            Touch::Key {
                table, columns, key, ..
            } if *table == storage && columns == by => Some(key),
            _ => None,
        });
        // A key that is given up and taken again would be looked for twice.
        if let (Some(key), None) = (sought.next(), sought.next()) {
            let cell = |column: usize| by.iter().position(|of| *of == column).map(|at| key[at].clone());
            self.add(table, cell, Mode::Locked(strength));
        }
    }

    /// Rows that were given with their keys. What ON CONFLICT may have found is not claimed.
    fn of_insert(&mut self, insert: &Insert, effects: &[Effect]) {
        let storage = self.catalog.storage(insert.table);
        let is_given = |column: usize| matches!(insert.values.get(column), Some(InsertValue::Column(_)));
        for effect in effects.iter().take(ROWS_MAX) {
            match effect {
                Effect::Insert { table, row } if *table == storage => {
                    let cell = |column: usize| row.get(column).filter(|_| is_given(column)).cloned();
                    self.add(*table, cell, Mode::Made);
                }
                Effect::Drawn { .. } => {}
                // A trigger did more.
                _ => {
                    self.all.clear();
                    return;
                }
            }
        }
    }

    /// Rows that came with FOR UPDATE or FOR SHARE were locked, whichever else were.
    fn of_locks(&mut self, select: &Select, answer: &Answer, expect: &Expect, footprint: &[Touch]) {
        let Some(rows) = &expect.rows else {
            return;
        };
        let Ok(answered) = expect.decoded(rows, answer) else {
            return;
        };
        for lock in &select.locking {
            let RelationSource::Table(table) = select.relations[lock.relation].source else {
                continue;
            };
            // Where only one row was looked for, its key is known whether or not it is part of the answer.
            let sought: Vec<(usize, &Value)> = match (select.relations.as_slice(), footprint) {
                ([_], [Touch::Key { columns, key, .. }]) => columns.iter().copied().zip(key).collect(),
                _ => Vec::new(),
            };
            for row in answered.iter().take(ROWS_MAX) {
                let cell = |column: usize| {
                    let is_it = |origin: &Option<(u16, u16)>| {
                        origin.is_some_and(|(relation, of)| {
                            (relation as usize, of as usize) == (lock.relation, column)
                        })
                    };
                    let shown = select.origins.iter().position(is_it).and_then(|at| row.get(at));
                    let sought = || {
                        sought
                            .iter()
                            .find(|(of, _)| *of == column)
                            .map(|(_, value)| *value)
                    };
                    shown.or_else(sought).cloned()
                };
                self.add(table, cell, Mode::Locked(lock.strength));
            }
        }
    }
}

/// For every step of a transaction, until when it certainly held what that step had claimed: until something was asked for
/// that may have let go of it, and that found the transaction still there.
fn standing(txn: &Transaction) -> Vec<Option<Nanos>> {
    let mut until = vec![None; txn.steps.len()];
    for (at, later) in txn.steps.iter().enumerate().skip(1).rev() {
        // An error may have come of its own accord, long before anybody asked: a session that was idle for too long.
        until[at - 1] = match (&later.seen.outcome, &later.control) {
            (Outcome::Answer(_), Control::RollbackTo(_)) => Some(later.seen.window.sent),
            (Outcome::Answer(_), _) => until[at].or(Some(later.seen.window.sent)),
            _ => None,
        };
    }
    until
}
