//! Runs one transaction on the state, under one sequence of choices.
//!
//! In: a transaction, the store, the order of the commits and a [`Chooser`]. Out: an [`Attempt`]: what it
//! wrote, what its answers taught, and the first answer that does not agree.
//!
//! Always true: the store is not changed; the same choices give the same attempt.

use super::asked::Asked;
use super::claim::{self, Claim};
use super::crash;
use super::session::SessionState;
use crate::assemble::{End, Step, Transaction};
use crate::control::Control;
use crate::interpret::{self, Difference, Effect, Execution, Heed, Learned, Match, Touch, Views};
use crate::points::{Chooser, CommitId, Order, PointId};
use crate::sql::plan::{AllAsks, Ddl};
use crate::sql::{self, Kind, Planned, Planner};
use crate::state::overlay::{OWN, Overlay};
use crate::state::reader::Reader;
use crate::state::store::Store;
use crate::state::unique::{self, Given};
use crate::state::view::Focus;
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::trace::{Nanos, Observation, Outcome, Status, Window};
use crate::value::Value;
use crate::value::compare::same_cells;
use crate::verdict::Coverage;
use pg_query::NodeEnum;
use pgassay_rules::anomaly;
use pgassay_rules::profile::{LevelRules, ReadPoint, RealTime, Writes};
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rows of one transaction of which it is remembered that it held them.
const CLAIMS_MAX: usize = 1_024;

/// What a run reads besides the transaction itself.
pub struct Scene<'a> {
    pub store: &'a Store,
    pub order: &'a Order,
    pub planner: &'a Planner,
    /// This transaction's own commit, when it has been applied already: it does not see itself.
    pub hidden: Option<CommitId>,
}

impl<'a> Scene<'a> {
    /// What a statement sees at `point`, somewhere in `window`.
    pub fn reader(
        &self,
        point: PointId,
        window: Window,
        own: &'a Overlay,
        chooser: &'a RefCell<Chooser>,
        seen: &'a Observation,
    ) -> Reader<'a> {
        Reader {
            store: self.store,
            order: self.order,
            window,
            point,
            statement: seen.window,
            own,
            hidden: self.hidden,
            chooser,
            providers: RefCell::default(),
            eager: false,
            held: None,
            claims: false,
            observed: &seen.outcome,
            shown: OnceCell::new(),
            unsure: Cell::default(),
            focus: RefCell::default(),
            claimed: RefCell::default(),
        }
    }
}

/// What an answer said about the state.
#[derive(Clone, Debug)]
pub enum Lesson {
    /// An unknown cell of a version.
    Cell {
        table: TableId,
        id: RowId,
        row: Row,
        column: usize,
        value: Value,
        from: Nanos,
    },
    /// A row that was never seen before, there since `since` at the latest.
    Row {
        table: TableId,
        row: Row,
        since: Nanos,
        from: Nanos,
    },
    /// Every row with this key is known from `since` on.
    Absent {
        table: TableId,
        columns: Vec<usize>,
        key: Vec<Value>,
        since: Nanos,
        from: Nanos,
    },
}

impl Lesson {
    pub fn table(&self) -> TableId {
        let (Lesson::Cell { table, .. } | Lesson::Row { table, .. } | Lesson::Absent { table, .. }) = self;
        *table
    }
}

/// What one statement came to.
#[derive(Clone, Debug)]
pub struct Judged {
    pub coverage: Coverage,
    /// A question of order was asked on the way.
    pub asked: bool,
    /// A value that was not known agreed with what came.
    pub loose: bool,
    pub shape: Arc<str>,
}

/// What one step read, for the certifier.
#[derive(Clone, Debug)]
pub struct StepReads {
    pub step: usize,
    pub touches: Vec<Touch>,
    /// The same, where the answer says what was found there.
    pub pinned: Vec<Touch>,
    pub asks: AllAsks,
    pub providers: SmallVec<[CommitId; 8]>,
}

#[derive(Clone)]
pub struct Attempt {
    pub overlay: Overlay,
    pub judged: Vec<Option<Judged>>,
    pub lessons: Vec<Lesson>,
    pub reads: Vec<StepReads>,
    /// The first step whose answer no right answer agrees with.
    pub wrong: Option<(usize, Difference)>,
    /// All such steps, where the run went on.
    pub wrong_steps: Vec<usize>,
    /// Steps that wrote rows.
    pub wrote: Vec<usize>,
    /// Of these, the ones that make rows, or write those that are in their way.
    pub inserted: Vec<usize>,
    /// Instants at which the answer says what was found.
    pub pinned: Vec<PointId>,
    /// Rows that it certainly held, where two transactions cannot.
    pub claims: Vec<Claim>,
    /// Where rows that it replaced were locked, if that was inside of a routine.
    pub held: Vec<((TableId, RowId), PointId)>,
    /// Tables that it may have written, whether or not it is known what; and those that it may have read, `None`: any.
    pub may_have_written: Vec<TableId>,
    pub may_have_read: Option<Vec<TableId>>,
    /// Those in which rows may have come, gone, or got another key, and by which step; and those of which other rows may have been
    /// written, had something else been read.
    pub may_have_moved: Vec<(usize, TableId)>,
    pub astray: Vec<TableId>,
    /// It called routines that may write.
    pub calls: bool,
    /// It may have changed the catalog in a way that nobody followed.
    pub unfollowed: bool,
    /// What it names where it changes the catalog for everybody.
    pub upheaval: Vec<String>,
    /// What it saw was found by the solver.
    pub solved: bool,
    /// The run crashed, and said this.
    pub crash: Option<Arc<str>>,
    /// What it wrote in the end, for the certifier.
    pub written: Vec<crate::certify::Written>,
    /// Where the transaction's points lie.
    pub windows: Vec<(PointId, Window)>,
    /// The session's settings while it runs, and those that stay when it commits.
    pub session: SessionState,
    pub lasting: SessionState,
    /// Its settings are not those that the session had before.
    pub changes_session: bool,
    /// All or part of it may have been undone before the end.
    is_undone: bool,
}

/// The one snapshot of REPEATABLE READ and SERIALIZABLE.
pub const SNAPSHOT: PointId = PointId::SNAPSHOT;

/// Whether every statement has a snapshot of its own, or more than one.
pub fn is_statement_level(rules: &LevelRules) -> bool {
    rules.read_point != ReadPoint::Transaction
}

/// Where the snapshot point of a statement with this window may lie.
pub fn snapshot_window(rules: &LevelRules, statement: Window) -> Window {
    match rules.real_time {
        RealTime::Strict => statement,
        RealTime::AnyEarlier => Window::new(0, statement.done),
    }
}

impl Attempt {
    pub fn new(txn: &Transaction, session: &SessionState) -> Attempt {
        Attempt {
            overlay: Overlay::of(txn.sent()),
            judged: vec![None; txn.steps.len()],
            lessons: Vec::new(),
            reads: Vec::new(),
            wrong: None,
            wrong_steps: Vec::new(),
            wrote: Vec::new(),
            inserted: Vec::new(),
            pinned: Vec::new(),
            claims: Vec::new(),
            held: Vec::new(),
            may_have_written: Vec::new(),
            may_have_read: Some(Vec::new()),
            may_have_moved: Vec::new(),
            astray: Vec::new(),
            calls: false,
            unfollowed: false,
            upheaval: Vec::new(),
            solved: false,
            crash: None,
            written: Vec::new(),
            windows: Vec::new(),
            session: session.at(txn.id.number),
            lasting: session.clone(),
            changes_session: false,
            is_undone: !matches!(txn.end, End::Committed(_))
                || txn
                    .steps
                    .iter()
                    .any(|step| matches!(step.control, Control::Savepoint(_))),
        }
    }
}

/// Runs `txn`; how far is a matter of what its answers are to it. A run that crashes says nothing.
pub fn run(
    txn: &Transaction,
    rules: &LevelRules,
    scene: &Scene<'_>,
    session: &SessionState,
    chooser: &RefCell<Chooser>,
    heed: Heed,
) -> Attempt {
    // Nothing but the chooser is changed by a run, and that holds nothing that could be half done.
    let ran = AssertUnwindSafe(|| run_through(txn, rules, scene, session, chooser, heed));
    catch_unwind(ran).unwrap_or_else(|panic| crash::widened(txn, scene, session, &*panic))
}

fn run_through(
    txn: &Transaction,
    rules: &LevelRules,
    scene: &Scene<'_>,
    session: &SessionState,
    chooser: &RefCell<Chooser>,
    heed: Heed,
) -> Attempt {
    let mut attempt = Attempt::new(txn, session);
    let mut savepoints: Vec<Saved> = Vec::new();
    let mut snapshot: Option<Window> = None;
    for (at, step) in txn.steps.iter().enumerate() {
        match &step.control {
            Control::Data => {}
            control => {
                if matches!(step.seen.outcome, Outcome::Answer(_)) {
                    let catalog = attempt.overlay.catalog.as_ref().unwrap_or(&scene.store.catalog);
                    let catalog = catalog.clone();
                    follow(control, &mut attempt, &mut savepoints, &catalog);
                    attempt.session.control(control, &catalog);
                    attempt.lasting.control(control, &catalog);
                }
                attempt.judged[at] = Some(Judged {
                    coverage: Coverage::Checked,
                    asked: false,
                    loose: false,
                    shape: word_of(&step.seen.text),
                });
                continue;
            }
        }
        #[cfg(test)]
        crash::if_told("run", &step.seen.text);
        run_step(at, step, rules, scene, chooser, &mut attempt, &mut snapshot, heed);
        if attempt.wrong.is_some() && heed == Heed::UntilWrong {
            break;
        }
        if chooser.borrow().is_over() {
            break;
        }
    }
    if matches!(txn.end, End::Committed(_)) && attempt.wrong.is_none() {
        hold(txn, rules, scene, chooser, &mut attempt);
        if !rules.mutual_exclusion && !rules.is_serial() {
            give_keys(scene, &mut attempt);
        }
    }
    attempt.changes_session = !attempt.session.is(session) || !attempt.lasting.is(session);
    attempt
}

/// What a transaction has come to when it sets a savepoint.
struct Saved {
    name: String,
    overlay: Overlay,
    session: SessionState,
    lasting: SessionState,
}

/// Transaction control, as far as it concerns what was written and set.
fn follow(control: &Control, attempt: &mut Attempt, savepoints: &mut Vec<Saved>, catalog: &Catalog) {
    let find = |savepoints: &[Saved], name: &str| savepoints.iter().rposition(|saved| saved.name == name);
    match control {
        Control::Savepoint(name) => savepoints.push(Saved {
            name: name.clone(),
            overlay: attempt.overlay.clone(),
            session: attempt.session.clone(),
            lasting: attempt.lasting.clone(),
        }),
        Control::RollbackTo(name) => match find(savepoints, name) {
            Some(at) => {
                savepoints.truncate(at + 1);
                let saved = &savepoints[at];
                let drawn = std::mem::take(&mut attempt.overlay.drawn);
                attempt.overlay = saved.overlay.clone();
                attempt.overlay.drawn = drawn;
                attempt.session.set_back(&saved.session, catalog);
                attempt.lasting.set_back(&saved.lasting, catalog);
            }
            // It was set unseen, before or after what was set since.
            None => {
                attempt.session.blur(catalog);
                attempt.lasting.blur(catalog);
            }
        },
        Control::Release(name) => {
            if let Some(at) = find(savepoints, name) {
                savepoints.truncate(at);
            }
        }
        _ => {}
    }
}

fn run_step(
    at: usize,
    step: &Step,
    rules: &LevelRules,
    scene: &Scene<'_>,
    chooser: &RefCell<Chooser>,
    attempt: &mut Attempt,
    snapshot: &mut Option<Window>,
    heed: Heed,
) {
    let seen = &step.seen;
    let unchecked = |reason: &str, shape: Arc<str>| {
        Some(Judged {
            coverage: Coverage::Unchecked(reason.to_owned()),
            asked: false,
            loose: false,
            shape,
        })
    };
    if matches!(seen.outcome, Outcome::Skipped) {
        attempt.judged[at] = unchecked("skipped", word_of(&seen.text));
        return;
    }
    if seen.before == Status::Failed {
        attempt.judged[at] = unchecked("failed_block", word_of(&seen.text));
        return;
    }
    let catalog = attempt
        .overlay
        .catalog
        .clone()
        .unwrap_or_else(|| scene.store.catalog.clone());
    let asked_for = Asked::of(scene.planner, &catalog, seen, &attempt.session);
    let planned = &asked_for.prepared.planned;
    let shape = planned.shape.clone();
    let succeeded = matches!(seen.outcome, Outcome::Answer(_));
    match &mut attempt.may_have_read {
        Some(read) if !planned.touches.reads_everything => read.extend(&planned.touches.read),
        any => *any = None,
    }

    let by_statement = is_statement_level(rules);
    let window = if by_statement {
        seen.window
    } else {
        *snapshot.get_or_insert(seen.window)
    };
    if !by_statement && !asked_for.reads_snapshot() && *snapshot == Some(seen.window) {
        *snapshot = None;
    }
    let read_point = if by_statement { PointId::read(at) } else { SNAPSHOT };
    let lock_point = PointId::lock(at);
    let asked_before = chooser.borrow().decisions().len();

    let (execution, change, providers, held) = {
        // Who has written nothing may have found a row that had moved by the time that it was locked.
        let nothing = asked_for.wrote_nothing(&seen.outcome);
        let by_key = by_statement && !nothing && planned.writes_by_key(&catalog);
        // A row that was written had been waited for; or else its newest version was in the snapshot.
        let waits = match rules.writes {
            Writes::EvalPlanQual => by_statement && rules.mutual_exclusion,
            Writes::FirstUpdaterWins | Writes::NoWriteConflict => !by_statement,
            _ => false,
        };
        // What is undone is held no longer, be it by an error, long before the end.
        let waits = waits && !attempt.is_undone;
        let held = match waits && succeeded && !nothing {
            true => planned.holds(&catalog, by_statement),
            false => None,
        };
        let reader = |point, window, eager| Reader {
            eager,
            held: held
                .as_ref()
                .filter(|_| eager || !by_statement)
                .map(|(table, columns)| (*table, &columns[..])),
            claims: waits && succeeded,
            focus: RefCell::new(Focus {
                columns: planned.columns_read.clone(),
                ..Focus::default()
            }),
            ..scene.reader(point, window, &attempt.overlay, chooser, seen)
        };
        let read = match by_key {
            true => reader(lock_point, seen.window, true),
            false => reader(read_point, window, false),
        };
        let latest = reader(lock_point, seen.window, true);
        let views = Views {
            snapshot: &read,
            latest: &latest,
            recheck: by_statement,
        };
        let (execution, change) = asked_for.perform(seen, &attempt.session, views, heed);
        let providers = read.providers.into_inner();
        (execution, change, providers, latest.claimed.into_inner())
    };
    attempt.session.step(planned, &change, &seen.outcome, &catalog);
    if succeeded && !matches!(planned.kind, Kind::Set { local: true, .. }) {
        attempt.lasting.adjust(&planned.kind, &catalog);
    }
    attempt.lasting.configure(planned, &seen.outcome, false, &catalog);
    attempt.windows.push((read_point, window));
    attempt.windows.push((lock_point, seen.window));
    let Execution {
        expect,
        mut effects,
        footprint,
        pinned,
        asks,
        reasons,
    } = execution;
    let asked = chooser.borrow().decisions().len() > asked_before;
    let drawn: Vec<Effect> = match succeeded {
        true => {
            let is_drawn = |effect: &mut Effect| matches!(effect, Effect::Drawn { .. });
            effects.extract_if(.., is_drawn).collect()
        }
        false => interpret::drawn_unknown(planned).collect(),
    };
    drawn.iter().for_each(|effect| attempt.overlay.apply(effect, at));

    let loose = succeeded && expect.is_loose();
    let coverage = match expect.compare(&seen.outcome) {
        Match::Agrees { learned } => {
            follow_sequences(&learned, &effects, planned, &catalog, scene, attempt);
            teach(
                learned,
                &mut effects,
                scene,
                attempt,
                read_point,
                window,
                seen,
                chooser,
            );
            match reasons.first() {
                // Rows that nobody has seen may be part of the answer: what is known was compared, no more.
                None if expect.is_open() => Coverage::Partial("unseen_rows".to_owned()),
                // Had it not agreed, nobody would have been accused.
                None if is_guessed(&footprint, scene.store, window.sent) => {
                    Coverage::Partial("state_was_guessed".to_owned())
                }
                None => Coverage::Checked,
                Some(reason) => Coverage::Partial(reason.clone()),
            }
        }
        Match::Unknown(reason) => Coverage::Unchecked(reason),
        Match::Differs(_) if may_be_deferred(at, seen, planned, &catalog) => {
            Coverage::Unchecked("failed_commit".to_owned())
        }
        Match::Differs(difference) => {
            attempt.wrong_steps.push(at);
            if attempt.wrong.is_none() {
                attempt.wrong = Some((at, difference));
            }
            Coverage::Checked
        }
    };
    if asked_for.wrote_nothing(&seen.outcome) {
        effects.clear();
    }
    let lost = matches!(seen.outcome, Outcome::Lost);
    if lost {
        effects = of_the_lost(planned, &effects, &attempt.session);
    }
    if succeeded && rules.mutual_exclusion && attempt.claims.len() < CLAIMS_MAX {
        let claims = claim::claims(at, seen, &asked_for, &catalog, &expect, &footprint, &effects);
        attempt.claims.extend(claims);
    }
    if succeeded || lost {
        if planned.may_write {
            attempt.wrote.push(at);
            if matches!(planned.kind, Kind::Insert(_)) {
                attempt.inserted.push(at);
            }
            attempt
                .may_have_written
                .extend(planned.touches.written.iter().copied());
            let moved = planned.touches.moved.iter();
            attempt.may_have_moved.extend(moved.map(|table| (at, *table)));
            attempt.astray.extend(&planned.touches.astray);
            if !expect.success {
                // It should have failed: nobody knows what it has done instead.
                attempt.astray.extend(&planned.touches.written);
            }
            attempt.calls |= planned.only_calls();
        }
        let is_anything = |effect: &Effect| matches!(effect, Effect::HavocEverything { .. });
        let is_followed = |ddl: &Ddl| match &ddl.statement {
            // Its rows are not followed; what the table is, is.
            NodeEnum::CreateTableAsStmt(_) => matches!(coverage, Coverage::Partial(_)),
            // Nothing more is known of the tables that it names; everything else stays what it is.
            NodeEnum::AlterTableStmt(alter) => ddl.names_known && !sql::plan::cascades(alter),
            _ => false,
        };
        if let Kind::Ddl(ddl) = &planned.kind
            && !ddl.is_temporary()
        {
            attempt.upheaval.extend(ddl.names.iter().cloned());
        }
        let is_half_known = match &planned.kind {
            Kind::Ddl(ddl) => coverage != Coverage::Checked && !is_followed(ddl),
            _ => false,
        };
        attempt.unfollowed |= is_half_known || effects.iter().any(is_anything);
        for effect in &effects {
            attempt.overlay.apply(effect, at);
        }
        for (place, point) in held {
            if !attempt.held.iter().any(|(known, _)| *known == place) {
                attempt.held.push((place, point));
            }
        }
    }
    if by_statement {
        let instants = pinned.instants.iter();
        attempt.pinned.extend(instants.map(|nth| read_point.inside(*nth)));
    }
    attempt.reads.push(StepReads {
        step: at,
        touches: footprint,
        pinned: pinned.touches,
        asks,
        providers,
    });
    attempt.judged[at] = Some(Judged {
        coverage,
        asked,
        loose,
        shape,
    });
}

/// What a statement may have done, or may still do, whose answer was lost.
fn of_the_lost(planned: &Planned, effects: &[Effect], session: &SessionState) -> Vec<Effect> {
    const REASON: &str = "lost_answer";
    let mut unknown = interpret::widened(planned, REASON, &session.context).effects;
    if effects.iter().any(|e| matches!(e, Effect::Catalog(_))) {
        let reason = REASON.to_owned();
        unknown.push(Effect::HavocEverything { reason });
    }
    unknown
}

/// What the rows that it leaves written say about the commits that wrote them before.
fn hold(
    txn: &Transaction,
    rules: &LevelRules,
    scene: &Scene<'_>,
    chooser: &RefCell<Chooser>,
    attempt: &mut Attempt,
) {
    let held: Vec<(TableId, RowId, usize)> = attempt
        .overlay
        .tables
        .iter()
        .flat_map(|(table, own)| {
            let certain = own.replaced.iter().filter(|(_, r)| !r.perhaps);
            certain.map(|(id, r)| (*table, *id, r.step))
        })
        .collect();
    for (table, id, step) in held {
        if attempt.wrong.is_none() {
            lock(
                table,
                id,
                step,
                txn.steps[step].seen.window,
                rules,
                scene,
                chooser,
                attempt,
            );
        }
    }
}

/// No key that it gives to a row is left twice, where nobody would have waited for whoever has it.
fn give_keys(scene: &Scene<'_>, attempt: &mut Attempt) {
    let catalog = attempt.overlay.catalog.as_ref().unwrap_or(&scene.store.catalog);
    let given = unique::given(&attempt.overlay, catalog);
    let taken = |key: &&Given| key.is_taken(&attempt.overlay, scene.store, scene.hidden);
    let (None, Some(key)) = (&attempt.wrong, given.iter().find(taken)) else {
        return;
    };
    let looks = |read: &&StepReads| {
        let mut touches = read.touches.iter();
        touches.any(|touch| match touch {
            Touch::Key { table, key: of, .. } => *table == key.table && same_cells(of, &key.key),
            Touch::Scan { .. } => false,
        })
    };
    let step = attempt.reads.iter().find(looks).map(|read| read.step);
    let Some(step) = step.or(attempt.wrote.last().copied()) else {
        return;
    };
    let difference = Difference {
        rule: &anomaly::MISSING_ERROR,
        observed: "the key was given to a row".to_owned(),
        expected: "ERROR 23505: another row has it".to_owned(),
    };
    attempt.wrong = Some((step, difference));
}

fn lock(
    table: TableId,
    id: RowId,
    at: usize,
    statement: Window,
    rules: &LevelRules,
    scene: &Scene<'_>,
    chooser: &RefCell<Chooser>,
    attempt: &mut Attempt,
) {
    let Some(chain) = scene.store.tables.get(&table).and_then(|t| t.chain(id)) else {
        return;
    };
    let below = scene
        .hidden
        .and_then(|own| chain.versions.iter().position(|v| v.commit == own));
    let below = &chain.versions[..below.unwrap_or(chain.versions.len())];
    let newest = below.iter().rev().find(|v| !v.perhaps);
    let Some(newest) = newest.filter(|v| v.commit >= scene.order.settled()) else {
        return;
    };
    let Some(commit) = scene.order.get(newest.commit).filter(|c| !c.maybe) else {
        return;
    };
    let held = attempt.held.iter().find(|(place, _)| *place == (table, id));
    let lock_point = held.map_or(PointId::lock(at), |(_, point)| *point);
    let snapshot = attempt
        .windows
        .iter()
        .find(|(p, _)| *p == SNAPSHOT)
        .map_or(statement, |(_, w)| *w);
    let waits = Difference {
        rule: &anomaly::DIRTY_WRITE,
        observed: "the row was written".to_owned(),
        expected: "to wait until the other transaction had ended".to_owned(),
    };
    let conflict = Difference {
        rule: &anomaly::LOST_UPDATE,
        observed: "the row was written".to_owned(),
        expected: "ERROR 40001: could not serialize access due to concurrent update".to_owned(),
    };
    if commit.lo > statement.done {
        if rules.mutual_exclusion {
            attempt.wrong = Some((at, waits));
        } else if rules.writes == Writes::NoWriteConflict {
            attempt.wrong = Some((at, conflict));
        }
        return;
    }
    let (point, window, difference) = match rules.writes {
        Writes::EvalPlanQual if rules.mutual_exclusion => (lock_point, statement, waits),
        Writes::FirstUpdaterWins | Writes::NoWriteConflict => (SNAPSHOT, snapshot, conflict),
        _ => return,
    };
    let seen = if commit.hi < window.sent {
        true
    } else if commit.lo > window.done {
        false
    } else {
        chooser
            .borrow_mut()
            .require(scene.order, newest.commit, point, window, true)
    };
    if !seen {
        attempt.wrong = Some((at, difference));
    }
}

/// Follows what an answer taught.
fn teach(
    learned: Vec<Learned>,
    effects: &mut [Effect],
    scene: &Scene<'_>,
    attempt: &mut Attempt,
    point: PointId,
    window: Window,
    seen: &Observation,
    chooser: &RefCell<Chooser>,
) {
    for lesson in learned {
        match lesson {
            Learned::Written {
                effect,
                column,
                value,
            } => {
                if let Some(Effect::Insert { row, .. } | Effect::Update { after: row, .. }) =
                    effects.get_mut(effect)
                {
                    let mut cells = row.to_vec();
                    if let Some(cell) = cells.get_mut(column) {
                        *cell = value;
                    }
                    *row = cells.into();
                }
            }
            Learned::Cell {
                table,
                row: id,
                column,
                value,
            } => {
                let own = attempt.overlay.table(table);
                if id.0 & OWN != 0 || own.is_some_and(|o| o.replaced.contains_key(&id)) {
                    attempt.overlay.learn(table, id, column, &value);
                    continue;
                }
                let row = scene
                    .reader(point, window, &attempt.overlay, chooser, seen)
                    .row(table, id);
                if let Some(row) = row {
                    attempt.lessons.push(Lesson::Cell {
                        table,
                        id,
                        row,
                        column,
                        value,
                        from: window.sent,
                    });
                }
            }
            // What a transaction that wrote there itself saw is not the committed state.
            Learned::Row { table, .. } | Learned::Absent { table, .. }
                if attempt.overlay.table(table).is_some() || attempt.overlay.havoc_everything.is_some() => {}
            Learned::Row { table, values } => {
                attempt.lessons.push(Lesson::Row {
                    table,
                    row: values.into(),
                    since: window.done,
                    from: window.sent,
                });
            }
            Learned::Absent { table, columns, key } => {
                attempt.lessons.push(Lesson::Absent {
                    table,
                    columns,
                    key,
                    since: window.done,
                    from: window.sent,
                });
            }
        }
    }
}

/// Keys that an answer returned say how far their sequences are, if nobody else draws from them.
fn follow_sequences(
    learned: &[Learned],
    effects: &[Effect],
    planned: &Planned,
    catalog: &Catalog,
    scene: &Scene<'_>,
    attempt: &mut Attempt,
) {
    let Kind::Insert(insert) = &planned.kind else {
        return;
    };
    // A row that was not inserted has drawn, too.
    if scene.store.sequences.is_none() || insert.conflict.is_some() || planned.touches.draws_everything {
        return;
    }
    for lesson in learned {
        let Learned::Written {
            effect,
            column,
            value,
        } = lesson
        else {
            continue;
        };
        let Some(Effect::Insert { .. }) = effects.get(*effect) else {
            continue;
        };
        let mut draws = planned.touches.draws.iter();
        let Some((sequence, _)) = draws.find(|(_, of)| *of == Some(*column)) else {
            continue;
        };
        let value = match value {
            Value::Int2(value) => i64::from(*value),
            Value::Int4(value) => i64::from(*value),
            Value::Int8(value) => *value,
            _ => continue,
        };
        let Some(known) = catalog.table(*sequence).and_then(|table| table.sequence) else {
            continue;
        };
        let so_far = attempt.overlay.drawn.next(*sequence).flatten();
        let next = known.after(value);
        let further = match (so_far, next) {
            (Some(so_far), Some(next)) => (next - so_far) * known.increment.signum() > 0,
            _ => true,
        };
        if further {
            attempt.overlay.drawn.from.insert(*sequence, next);
        }
    }
}

/// Whether something that was read had to be guessed.
pub fn is_guessed<'t>(touches: impl IntoIterator<Item = &'t Touch>, store: &Store, sent: Nanos) -> bool {
    touches.into_iter().any(|touch| {
        let kept = store.tables.get(&touch.table());
        let Some(kept) = kept.filter(|kept| kept.is_guessed(sent)) else {
            return false;
        };
        let width = store.catalog.table(touch.table()).map(|t| t.columns.len());
        let at = match touch {
            Touch::Key { columns, key, .. } => Some((&**columns, &**key)),
            Touch::Scan { .. } => None,
        };
        kept.is_guessed_among(at, |row| touch.may_find(row), width, sent)
    })
}

/// The first word, in capitals: the shape of what was not planned.
fn word_of(text: &str) -> Arc<str> {
    let word: String = text
        .trim_start()
        .chars()
        .take_while(|c| c.is_ascii_alphabetic())
        .collect();
    Arc::from(word.to_ascii_uppercase())
}

/// Whether a statement may have failed by what others before it had left to be checked: the last one of an implicit
/// transaction fails for all of them, since it commits; SET CONSTRAINTS for those of its transaction.
fn may_be_deferred(at: usize, seen: &Observation, planned: &Planned, catalog: &Catalog) -> bool {
    let Outcome::Error(error) = &seen.outcome else {
        return false;
    };
    let commits = seen.before == Status::Idle && at > 0;
    let checks = matches!(planned.kind, Kind::Harmless { tag } if tag == "SET CONSTRAINTS");
    let is_constraint = error.sqlstate.starts_with("23");
    (commits || checks)
        && catalog.tables().iter().any(|table| {
            // A constraint trigger may say anything.
            let deferrable = table.keys.iter().any(|key| key.deferrable)
                || table.foreign_keys.iter().any(|key| key.deferrable);
            (is_constraint && deferrable) || !table.triggers.is_empty()
        })
}
