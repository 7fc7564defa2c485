//! What a statement may have come to, where each of its rows may come from another state.
//!
//! In: a statement of a member, every state that was committed so far, and what the member itself wrote. Out: [`Readings`]:
//! everything that agrees with what was answered.
//!
//! Every combination is tried: for each row that the statement comes upon one of the versions that it had in any of these
//! states, or what the member itself left of it. An answer that is a list of rows by their key is put together key by key
//! instead: what the statement answers for the rows of one key has to do with no others; what it answers for all of those
//! that were found is compared as a whole in the end.
//!
//! Always true:
//!   - a combination is left out only where `open` says that not all were tried, or where one key would come twice;
//!   - a row that was given another key counts as two in a list by key, so that both may be there, or neither.
//!
//! Source: «Checking Observational Correctness of Database Systems», section 3.2, rule READ of figure 4.

use super::base::{Base, CaseView, Delta, Me};
use super::points::Walker;
use super::{Case, Done, Member, execute};
use crate::assemble::Step;
use crate::explain::asked::{Asked, Change, RowByRow};
use crate::interpret::{Difference, Effect, Views};
use crate::sql::Kind;
use crate::state::overlay::{OWN, Overlay};
use crate::state::view::{Focus, Knowledge, has_key};
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::trace::{Answer, Outcome};
use crate::value::compare::same_cells;
use crate::value::{Key, Value, decode};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Combinations of one statement beyond which not all are tried.
const COMBINATIONS_MAX: usize = 2_048;

/// Ids of rows that came to be two.
const TWICE: u64 = 1 << 60;

/// Everything that a statement may have come to.
#[derive(Default)]
pub(super) struct Readings {
    /// Different in what was done.
    pub done: Vec<Done>,
    /// What one of the others would have been answered instead.
    pub difference: Option<Difference>,
    /// There are ways to read that were not tried.
    pub open: bool,
    /// How often the statement was run.
    pub runs: u64,
}

/// Of rows that somebody wrote since the case began: what each of them may look like, newest first.
type Varied = BTreeMap<TableId, BTreeMap<RowId, Vec<Option<Row>>>>;

/// One combination that agrees: what was done, and the rows that were chosen.
type Agreed = (Done, BTreeMap<(TableId, RowId), Option<Row>>);

/// A statement to be read.
struct Reading<'a> {
    case: &'a Case<'a>,
    walker: &'a Walker,
    committed: &'a Delta,
    asked: &'a Asked,
    step: &'a Step,
    /// What is read; and what is there for keys to be taken, where the own rows are always there.
    read: Varied,
    there: Varied,
}

/// Whether a statement is one that reads rows by their keys.
pub(super) fn is_read(asked: &Asked) -> bool {
    let planned = &*asked.prepared.planned;
    let reads = matches!(
        planned.kind,
        Kind::Select(_) | Kind::Insert(_) | Kind::Update(_) | Kind::Delete(_) | Kind::Merge(_)
    );
    reads && asked.is_run() && !planned.only_calls()
}

/// Reads the next statement of a member.
pub(super) fn read(
    case: &Case<'_>,
    member: &Member,
    walker: &Walker,
    committed: &Rc<Delta>,
    asked: &Asked,
) -> Readings {
    let states: Vec<&Delta> = committed.and_before().collect();
    let reading = Reading {
        case,
        walker,
        committed,
        asked,
        step: &member.txn.steps[walker.step],
        read: varied(&case.base, &states, walker, member.rules.internal),
        there: varied(&case.base, &states, walker, true),
    };
    let mut readings = Readings::default();
    let view = reading.now(committed, &walker.overlay);
    readings.open |= !is_followed(asked, view.catalog()) || is_uneven(&states, &walker.overlay);
    match asked.row_by_row(view.catalog()) {
        Some(rows) if reading.by_rows(&rows, &mut readings).is_some() => {}
        _ => reading.in_every_way(&mut readings),
    }
    readings
}

/// Whether a statement reads each row once, and writes nothing but the rows that it found.
fn is_followed(asked: &Asked, catalog: &Catalog) -> bool {
    let planned = &*asked.prepared.planned;
    let touches = &planned.touches;
    let alone = |table: &TableId| {
        let table = catalog.table(*table);
        table.is_some_and(|t| t.children.is_empty() && t.parents.is_empty())
    };
    let plain = |table: &TableId| {
        let table = catalog.table(*table);
        table
            .is_some_and(|t| t.foreign_keys.is_empty() && t.referenced_by.is_empty() && t.triggers.is_empty())
    };
    planned.looks_once
        && planned.reasons.is_empty()
        && touches.read.iter().chain(&touches.written).all(alone)
        && touches.written.iter().all(plain)
}

/// Whether more than rows was changed.
fn is_uneven(states: &[&Delta], own: &Overlay) -> bool {
    let is_more = |state: &&Delta| {
        state.havoc_everything
            || !state.havoc.is_empty()
            || !state.truncated.is_empty()
            || state.catalog.is_some()
    };
    let mut tables = own.tables.values();
    states.iter().any(is_more)
        || own.catalog.is_some()
        || own.havoc_everything.is_some()
        || tables.any(|t| t.truncated || t.havoc.is_some())
}

/// What every row that was written may look like. Its own version is the only one if it `sees_own` writes.
fn varied(base: &Base<'_>, states: &[&Delta], walker: &Walker, sees_own: bool) -> Varied {
    let owns = || std::iter::once(&walker.overlay).chain(walker.earlier.iter().rev());
    let mut all = Varied::new();
    let mut add = |table: TableId, id: RowId| {
        all.entry(table).or_default().entry(id).or_default();
    };
    for state in states {
        state.rows.keys().for_each(|(table, id)| add(*table, *id));
    }
    for own in owns() {
        for (table, written) in &own.tables {
            let ids = written.replaced.keys().chain(written.inserted.keys());
            ids.for_each(|id| add(*table, *id));
        }
    }
    for (table, rows) in &mut all {
        for (id, versions) in rows {
            let own = own_version(&walker.overlay, *table, *id);
            let certain = own.is_some() && sees_own;
            let mut add = |version: Option<Row>| {
                if !versions.iter().any(|known| is_same(known, &version)) {
                    versions.push(version);
                }
            };
            own.into_iter().for_each(&mut add);
            if certain {
                continue;
            }
            owns()
                .filter_map(|own| own_version(own, *table, *id))
                .for_each(&mut add);
            states
                .iter()
                .map(|state| state.version(base, *table, *id))
                .for_each(&mut add);
        }
    }
    all
}

/// What the member itself made of a row; `None` if it left it alone.
fn own_version(own: &Overlay, table: TableId, id: RowId) -> Option<Option<Row>> {
    let own = own.table(table);
    match id.0 & OWN {
        0 => own.and_then(|own| Some(own.replaced.get(&id)?.row.clone())),
        _ => Some(own.and_then(|own| own.inserted.get(&id).cloned())),
    }
}

fn is_same(one: &Option<Row>, other: &Option<Row>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => same_cells(one, other),
        (None, None) => true,
        _ => false,
    }
}

impl<'a> Reading<'a> {
    fn now(&self, delta: &'a Delta, own: &'a Overlay) -> CaseView<'a> {
        CaseView {
            base: &self.case.base,
            delta,
            own,
            me: Me::Alone,
            instants: None,
        }
    }

    /// Tries every combination.
    fn in_every_way(&self, readings: &mut Readings) {
        let writes = self.asked.prepared.planned.may_write;
        let shows_keys = {
            let view = self.now(self.committed, &self.walker.overlay);
            !self.asked.shown_keys(view.catalog()).is_empty()
        };
        self.combine(
            &self.read,
            true,
            self.step,
            readings,
            &mut |agreed, doubled, readings| {
                if doubled {
                    // Nobody shows a key twice; whether it may be counted twice is left open.
                    readings.open |= !shows_keys;
                    return false;
                }
                let (done, _) = agreed;
                readings.open |= !matches!(done.change, Change::Nothing);
                if !readings.done.iter().any(|known| is_alike(known, &done)) {
                    readings.done.push(done);
                }
                !writes
            },
        );
    }

    /// Puts an answer together key by key; `None` if it cannot be.
    fn by_rows(&self, shown: &RowByRow, readings: &mut Readings) -> Option<()> {
        let Outcome::Answer(answer) = &self.step.seen.outcome else {
            return None;
        };
        if answer.cut.is_some() || answer.tag.is_none() {
            return None;
        }
        let answered: Option<Vec<Vec<Key>>> = (0..answer.rows.len())
            .map(|row| self.key_shown(answer, row, shown))
            .collect();
        let answered = answered?;
        let part = |is_wanted: &dyn Fn(&[Key]) -> bool| {
            let rows = answer.rows.iter().zip(&answered);
            let rows = rows.filter(|(_, key)| is_wanted(key)).map(|(row, _)| row.clone());
            self.answered(answer, rows.collect())
        };
        let of_table = self.read.get(&shown.table);
        let mut keys: BTreeMap<Vec<Key>, BTreeMap<RowId, Vec<Option<Row>>>> = BTreeMap::new();
        for (id, versions) in of_table.into_iter().flatten() {
            let of_versions: Option<Vec<Option<Vec<Key>>>> = versions
                .iter()
                .map(|version| match version {
                    Some(row) => Some(Some(key_of(row, &shown.columns)?)),
                    None => Some(None),
                })
                .collect();
            let of_versions = of_versions?;
            for key in of_versions.iter().flatten() {
                let rows = keys.entry(key.clone()).or_default();
                rows.entry(*id).or_insert_with(|| {
                    let of_key = versions.iter().zip(&of_versions);
                    let of_key =
                        of_key.map(|(version, of)| version.clone().filter(|_| of.as_ref() == Some(key)));
                    let mut versions: Vec<Option<Row>> = Vec::new();
                    for version in of_key {
                        if !versions.iter().any(|known| is_same(known, &version)) {
                            versions.push(version);
                        }
                    }
                    versions
                });
            }
        }
        // The rows that nobody wrote are there.
        let rest = part(&|key| !keys.contains_key(key));
        let mut is_right = self.first(&Varied::new(), true, &rest, readings).is_some();
        let mut found: BTreeMap<RowId, Vec<Option<Row>>> = BTreeMap::new();
        for (key, rows) in &keys {
            let only = Varied::from([(shown.table, rows.clone())]);
            let step = part(&|other| other == key.as_slice());
            let Some((_, chosen)) = self.first(&only, false, &step, readings) else {
                is_right = false;
                continue;
            };
            for ((_, id), version) in chosen {
                if version.is_some() {
                    let twice = RowId(TWICE | found.len() as u64);
                    let id = if found.contains_key(&id) { twice } else { id };
                    found.insert(id, vec![version]);
                }
            }
        }
        if !is_right {
            return Some(());
        }
        let whole = Varied::from([(shown.table, found)]);
        match self.first(&whole, true, self.step, readings) {
            Some((done, _)) => readings.done.push(done),
            // Other versions may come in another order, although they show the same.
            None => readings.open |= !shown.tells_order,
        }
        Some(())
    }

    /// The first combination that agrees with an answer, in which no key comes twice.
    fn first(&self, rows: &Varied, with_rest: bool, step: &Step, readings: &mut Readings) -> Option<Agreed> {
        let mut found = None;
        self.combine(rows, with_rest, step, readings, &mut |agreed, doubled, _| {
            if !doubled {
                found = Some(agreed);
            }
            !doubled
        });
        found
    }

    /// Runs the statement on every combination of these rows, until `take` has enough of those that agree.
    fn combine(
        &self,
        rows: &Varied,
        with_rest: bool,
        step: &Step,
        readings: &mut Readings,
        take: &mut dyn FnMut(Agreed, bool, &mut Readings) -> bool,
    ) {
        let (nothing, nobody) = (Delta::default(), Overlay::default());
        let mut script: Vec<usize> = Vec::new();
        for _ in 0..COMBINATIONS_MAX {
            let choices = Choices {
                script: std::mem::take(&mut script),
                ..Choices::default()
            };
            let view = |rows, with_rest, is_read| Mixed {
                now: self.now(self.committed, &self.walker.overlay),
                rest: self.now(&nothing, &nobody),
                varied: &self.read,
                rows,
                with_rest,
                is_read,
                choices: &choices,
            };
            let (read, there) = (view(rows, with_rest, true), view(&self.there, true, false));
            let views = Views {
                snapshot: &read,
                latest: &there,
                recheck: false,
            };
            readings.runs += 1;
            let mut done = execute(self.asked, self.walker.step, step, &self.walker.session, views);
            readings.open |= choices.moved.get() || choices.calls.get();
            let doubled = choices.has_key_twice(read.catalog());
            let Choices { made, chosen, .. } = choices;
            let difference = std::mem::replace(&mut done.agrees, Ok(())).err();
            let agreed = match difference {
                Some(difference) => {
                    readings.difference.get_or_insert(difference);
                    false
                }
                None => take((done, chosen.into_inner()), doubled, readings),
            };
            let mut made = made.into_inner();
            while made.last().is_some_and(|(choice, of)| choice + 1 == *of) {
                made.pop();
            }
            script = made.iter().map(|(choice, _)| *choice).collect();
            match script.last_mut() {
                Some(last) if !agreed => *last += 1,
                _ => return,
            }
        }
        readings.open = true;
    }

    /// The statement with only these rows answered.
    fn answered(&self, answer: &Answer, rows: Vec<crate::trace::Cells>) -> Step {
        let mut step = self.step.clone();
        let tag = Some(format!("SELECT {}", rows.len()));
        let part = Answer {
            rows,
            tag,
            ..answer.clone()
        };
        Arc::make_mut(&mut step.seen).outcome = Outcome::Answer(part);
        step
    }

    /// The key of a row of the answer, if it is known.
    fn key_shown(&self, answer: &Answer, row: usize, shown: &RowByRow) -> Option<Vec<Key>> {
        let types = &self.asked.prepared.planned.columns;
        let cell = |place: &usize| {
            let column = answer.columns.get(*place)?;
            let type_oid = match column.type_oid {
                0 => types.get(*place)?.type_oid,
                known => known,
            };
            let bytes = answer.rows[row].get(*place)?.as_deref();
            known(&decode(
                type_oid,
                column.format,
                bytes,
                &self.walker.session.context,
            ))
        };
        shown.places.iter().map(cell).collect()
    }
}

/// Whether two did the same.
fn is_alike(one: &Done, other: &Done) -> bool {
    let is_alike = |(a, b): (&Effect, &Effect)| match (a, b) {
        (Effect::Insert { table: a, row: x }, Effect::Insert { table: b, row: y }) => {
            a == b && same_cells(x, y)
        }
        (
            Effect::Update {
                table: a,
                id: i,
                after: x,
                ..
            },
            Effect::Update {
                table: b,
                id: j,
                after: y,
                ..
            },
        ) => (a, i) == (b, j) && same_cells(x, y),
        (Effect::Delete { table: a, id: i, .. }, Effect::Delete { table: b, id: j, .. }) => (a, i) == (b, j),
        _ => false,
    };
    one.effects.len() == other.effects.len() && one.effects.iter().zip(&other.effects).all(is_alike)
}

fn known(value: &Value) -> Option<Key> {
    (!value.has_unknown() && !value.is_null()).then(|| Key(value.clone()))
}

fn key_of(row: &Row, columns: &[usize]) -> Option<Vec<Key>> {
    columns.iter().map(|column| known(row.get(*column)?)).collect()
}

/// Which version of each row it is, one choice after the other, as they are asked for.
#[derive(Default)]
struct Choices {
    /// What is to be chosen; the first of all from there on.
    script: Vec<usize>,
    /// What was chosen, and of how many.
    made: RefCell<Vec<(usize, usize)>>,
    /// What was chosen for rows that are read, and for those that are there.
    chosen: RefCell<BTreeMap<(TableId, RowId), Option<Row>>>,
    there: RefCell<BTreeMap<(TableId, RowId), Option<Row>>>,
    /// Somebody gave a row another key.
    moved: Cell<bool>,
    /// Something was called that has instants of its own.
    calls: Cell<bool>,
}

impl Choices {
    /// Whether two of the rows that are read have one key.
    fn has_key_twice(&self, catalog: &Catalog) -> bool {
        let chosen = self.chosen.borrow();
        let mut met: Vec<(TableId, usize, Vec<Key>)> = Vec::new();
        for ((table, _), row) in chosen.iter() {
            let Some(row) = row else { continue };
            for (nth, columns) in keys_of(catalog, *table).enumerate() {
                let Some(key) = key_of(row, columns) else { continue };
                let key = (*table, nth, key);
                if met.contains(&key) {
                    return true;
                }
                met.push(key);
            }
        }
        false
    }
}

/// The columns of the keys that no two rows share.
fn keys_of(catalog: &Catalog, table: TableId) -> impl Iterator<Item = &[usize]> {
    let keys = catalog.table(table).into_iter().flat_map(|table| &table.keys);
    let keys = keys.filter(|key| key.is_plain() && !key.deferrable);
    keys.map(|key| &key.columns[..])
}

/// A state in which every row comes from a state of its own.
struct Mixed<'a> {
    now: CaseView<'a>,
    /// The rows that were there before the case began.
    rest: CaseView<'a>,
    /// The rows that somebody wrote, and those of them that are there.
    varied: &'a Varied,
    rows: &'a Varied,
    with_rest: bool,
    /// Whether it is read, or looked at for keys that are taken.
    is_read: bool,
    choices: &'a Choices,
}

impl Mixed<'_> {
    fn choose(&self, table: TableId, id: RowId, versions: &[Option<Row>]) -> Option<Row> {
        let chosen = match self.is_read {
            true => &self.choices.chosen,
            false => &self.choices.there,
        };
        if let Some(known) = chosen.borrow().get(&(table, id)) {
            return known.clone();
        }
        let version = match versions {
            [only] => only.clone(),
            _ => {
                let mut made = self.choices.made.borrow_mut();
                let choice = self.choices.script.get(made.len()).copied().unwrap_or(0);
                made.push((choice, versions.len()));
                versions[choice].clone()
            }
        };
        chosen.borrow_mut().insert((table, id), version.clone());
        version
    }

    /// Whether a row had different keys.
    fn has_moved(&self, table: TableId, versions: &[Option<Row>]) -> bool {
        keys_of(self.catalog(), table).any(|columns| {
            let mut keys = versions.iter().flatten().map(|row| key_of(row, columns));
            let first = keys.next();
            keys.any(|key| Some(key) != first)
        })
    }

    fn found(&self, table: TableId, wanted: Option<(&[usize], &[Value])>) -> BTreeMap<RowId, Row> {
        let varied = self.varied.get(&table);
        let mut found: BTreeMap<RowId, Row> = BTreeMap::new();
        if self.with_rest {
            let rest = self.rest.rows(table, wanted).into_iter();
            found.extend(rest.filter(|(id, _)| !varied.is_some_and(|varied| varied.contains_key(id))));
        }
        let is_wanted = |row: &Row| wanted.is_none_or(|(columns, key)| has_key(row, columns, key));
        let by_key = wanted.is_some_and(|(columns, _)| {
            keys_of(self.catalog(), table).any(|key| key.iter().all(|column| columns.contains(column)))
        });
        for (id, versions) in self.rows.get(&table).into_iter().flatten() {
            if !versions.iter().flatten().any(is_wanted) {
                continue;
            }
            if !by_key && self.is_read && self.has_moved(table, versions) {
                self.choices.moved.set(true);
            }
            if let Some(row) = self.choose(table, *id, versions).filter(is_wanted) {
                found.insert(*id, row);
            }
        }
        found
    }
}

impl View for Mixed<'_> {
    fn catalog(&self) -> &Catalog {
        self.now.catalog()
    }

    fn focus(&self, focus: Focus) -> Focus {
        if focus.nth > 0 {
            self.choices.calls.set(true);
        }
        Focus::default()
    }

    fn has_written(&self, table: TableId) -> bool {
        self.now.has_written(table)
    }

    fn knowledge(&self, table: TableId) -> Knowledge {
        self.now.knowledge(table)
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        for (id, row) in self.found(table, None) {
            each(id, &row);
        }
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        for (id, row) in self.found(table, Some((columns, key))) {
            each(id, &row);
        }
        self.now.lookup(table, columns, key, &mut |_, _| {})
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        match self.rows.get(&table).and_then(|rows| rows.get(&id)) {
            Some(versions) => self.choose(table, id, versions),
            None if self.varied.get(&table).is_some_and(|rows| rows.contains_key(&id)) => None,
            None => self.rest.row(table, id).filter(|_| self.with_rest),
        }
    }
}
