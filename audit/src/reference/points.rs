//! Tries every order of the snapshot, lock and commit points of a case.
//!
//! Each member walks through its steps; at every turn any member may take its next point, as long as the
//! instants can still be placed inside their windows. A READ COMMITTED statement has a snapshot point and,
//! if it may write, a later lock point; a snapshot transaction has one snapshot point and a lock point per
//! writing statement; the end of a transaction is a point of its own. A point that only its own transaction can
//! notice, such as that of a statement that reads, is taken as soon as it can be and agrees. Where every key may come from
//! another state, a statement is one point, at which all states are there that were committed before it (`keys`).

use super::base::{CaseView, Delta, Instants, Me};
use super::{Case, Decision, Done, Member, NODES_MAX, execute, is_judged, overwrites_unseen, plan};
use super::{keys, state};
use crate::assemble::End;
use crate::control::Control;
use crate::explain::asked::Asked;
use crate::explain::claim::{self, Held};
use crate::explain::run::{is_statement_level, snapshot_window};
use crate::explain::session::SessionState;
use crate::interpret::{Difference, Views};
use crate::state::overlay::Overlay;
use crate::state::{Catalog, RowId, TableId, View, unique};
use crate::trace::{Nanos, Outcome, Window};
use pgassay_rules::anomaly;
use pgassay_rules::profile::{ReadPoint, Writes};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Where one member stands.
#[derive(Clone)]
pub(super) struct Walker {
    pub(super) step: usize,
    pub(super) overlay: Overlay,
    /// What it had written before each of its writes, where it need not see them.
    pub(super) earlier: Vec<Overlay>,
    pub(super) savepoints: Vec<Saved>,
    pub(super) session: SessionState,
    /// What its snapshot saw: of the statement, or of the whole transaction.
    pub(super) snapshot: Option<Rc<Delta>>,
    /// What the statements of the routine that it is calling saw so far, and the rows that they hold.
    pub(super) instants: Vec<Rc<Delta>>,
    pub(super) held: BTreeSet<(TableId, RowId)>,
    /// Rows that nobody else can have held at some time.
    pub(super) claims: Vec<Held>,
    pub(super) ended: bool,
}

/// What a member has come to when it sets a savepoint.
#[derive(Clone)]
pub(super) struct Saved {
    pub(super) name: String,
    pub(super) overlay: Overlay,
    /// How many of the overlays before there were.
    pub(super) earlier: usize,
    session: SessionState,
}

/// Where everybody stands after a point was taken.
type Taken = (Vec<Walker>, Rc<Delta>);

/// Runs of statements of which every key may come from another state, before the case is called too large.
const READINGS_MAX: u64 = 100_000;

/// Whether others can tell when a point is taken.
enum Notice {
    Others,
    Nobody { fixed: bool },
}

/// What a statement comes to.
struct Performed {
    done: Done,
    /// It calls a routine that comes to an instant which has not been taken yet.
    wanted: Option<u32>,
    /// Rows that the routine has written until then.
    held: BTreeSet<(TableId, RowId)>,
}

struct Search<'a> {
    case: &'a Case<'a>,
    nodes: u64,
    readings: u64,
    /// Some way to read what was read has not been tried.
    open: bool,
    /// States from which nothing leads to an explanation.
    dead: FxHashSet<(u64, u64)>,
    differences: Vec<(usize, usize, Difference)>,
}

/// Decides the case by trying everything.
pub fn decide(case: &Case<'_>) -> Decision {
    let walkers = case
        .members
        .iter()
        .map(|m| Walker {
            step: 0,
            overlay: Overlay::default(),
            earlier: Vec::new(),
            savepoints: Vec::new(),
            session: m.session.at(m.txn.id.number),
            snapshot: None,
            instants: Vec::new(),
            held: BTreeSet::new(),
            claims: Vec::new(),
            ended: false,
        })
        .collect();
    let mut search = Search {
        case,
        nodes: 0,
        readings: 0,
        open: false,
        dead: FxHashSet::default(),
        differences: Vec::new(),
    };
    match search.go(walkers, Rc::new(Delta::default()), 0) {
        Some(delta) => Decision::Explained((*delta).clone()),
        None if search.is_over() => Decision::TooLarge,
        None if search.open => Decision::Open("reads_by_key"),
        None => Decision::Impossible(search.differences),
    }
}

impl Search<'_> {
    /// Whether it was given up.
    fn is_over(&self) -> bool {
        self.nodes > NODES_MAX || self.readings > READINGS_MAX || self.case.work.is_over()
    }

    /// Whether somebody may still read a state of the past.
    fn looks_back(&self, walkers: &[Walker]) -> bool {
        let mut all = walkers.iter().zip(self.case.members);
        all.any(|(walker, member)| !walker.ended && member.rules.read_point == ReadPoint::Key)
    }

    fn me(&self, member: &Member) -> Me {
        match self.case.members.len() {
            1 => Me::Alone,
            _ => Me::OneOfMany(member.commit),
        }
    }

    fn go(&mut self, walkers: Vec<Walker>, committed: Rc<Delta>, now: Nanos) -> Option<Rc<Delta>> {
        self.nodes += 1;
        if !self.case.work.spend() || self.is_over() {
            return None;
        }
        let (walkers, committed) = self.take_unnoticed(walkers, committed, now)?;
        // Another order of the same points that left everybody where they are now has been tried.
        let state = state::signature(&walkers, &committed, now, self.looks_back(&walkers));
        if state.is_some_and(|state| self.dead.contains(&state)) {
            return None;
        }
        if walkers.iter().all(|w| w.ended) {
            return Some(committed);
        }
        let windows: Vec<Option<Window>> = walkers
            .iter()
            .enumerate()
            .map(|(at, w)| self.next_window(at, w))
            .collect();
        // Who must be done first is tried first: it changes nothing but how soon an explanation is found.
        let mut turns: Vec<(usize, Window)> = windows
            .iter()
            .enumerate()
            .filter_map(|(at, w)| w.map(|w| (at, w)))
            .collect();
        turns.sort_by_key(|(at, window)| (window.done, *at));
        for (at, window) in turns {
            let instant = now.max(window.sent);
            if windows.iter().flatten().any(|w| w.done < instant) {
                continue;
            }
            for (walkers, committed) in self.take(at, &walkers, &committed) {
                if let Some(found) = self.go(walkers, committed, instant) {
                    return Some(found);
                }
                if self.is_over() {
                    return None;
                }
            }
        }
        self.dead.extend(state);
        None
    }

    /// Takes every point that can be taken now and that nobody else can notice: to wait with it explains nothing
    /// that is not explained without. `None` if an answer is wrong whatever comes.
    fn take_unnoticed(
        &mut self,
        mut walkers: Vec<Walker>,
        mut committed: Rc<Delta>,
        now: Nanos,
    ) -> Option<Taken> {
        for at in 0..walkers.len() {
            while self.next_window(at, &walkers[at]).is_some_and(|w| w.sent <= now) {
                let Notice::Nobody { fixed } = self.notice(at, &walkers[at], &committed) else {
                    break;
                };
                match self.take(at, &walkers, &committed).into_iter().next() {
                    Some(taken) => (walkers, committed) = taken,
                    None if fixed => return None,
                    None => break,
                }
            }
        }
        Some((walkers, committed))
    }

    /// Who can tell when the member's next point is taken.
    fn notice(&self, at: usize, walker: &Walker, committed: &Delta) -> Notice {
        let member = &self.case.members[at];
        let txn = &member.txn;
        if is_end(txn, walker.step) {
            let silent = walker.overlay.is_empty() || !matches!(txn.end, End::Committed(_));
            return match silent {
                true => Notice::Nobody { fixed: false },
                false => Notice::Others,
            };
        }
        let step = &txn.steps[walker.step];
        if step.control != Control::Data || !is_judged(step) {
            return Notice::Nobody { fixed: false };
        }
        let view = CaseView {
            base: &self.case.base,
            delta: committed,
            own: &walker.overlay,
            me: self.me(member),
            instants: None,
        };
        let asked = plan(self.case, step, &walker.session, &view);
        let planned = &asked.prepared.planned;
        if planned.may_write || locks_rows(planned) || planned.only_calls() {
            return Notice::Others;
        }
        let by_statement = is_statement_level(&member.rules);
        if by_statement || !asked.reads_snapshot() {
            Notice::Nobody { fixed: false }
        } else if walker.snapshot.is_some() {
            // What it answers from is settled: an answer that is wrong now stays wrong.
            Notice::Nobody { fixed: true }
        } else {
            Notice::Others
        }
    }

    /// The window of the member's next point; `None` if it has ended.
    fn next_window(&self, member: usize, walker: &Walker) -> Option<Window> {
        if walker.ended {
            return None;
        }
        let txn = &self.case.members[member].txn;
        let rules = &self.case.members[member].rules;
        Some(
            txn.steps
                .get(walker.step)
                .filter(|_| !is_end(txn, walker.step))
                .map_or(txn.end.window(), |s| snapshot_window(rules, s.seen.window)),
        )
    }

    /// Takes the member's next point, in every way in which it can be taken now.
    fn take(&mut self, at: usize, before: &[Walker], committed: &Rc<Delta>) -> Vec<Taken> {
        let member = &self.case.members[at];
        let walker = &before[at];
        let is_data = !is_end(&member.txn, walker.step) && {
            let step = &member.txn.steps[walker.step];
            step.control == Control::Data && is_judged(step)
        };
        if is_data && member.rules.read_point == ReadPoint::Key {
            let latest = self.latest(member, walker, committed);
            let asked = plan(
                self.case,
                &member.txn.steps[walker.step],
                &walker.session,
                &latest,
            );
            if keys::is_read(&asked) {
                return self.take_by_key(at, before, &asked, committed);
            }
            // What a routine reads, or a cursor, is not put together from several states.
            self.open |= asked.prepared.planned.reads_snapshot || !asked.is_run();
        }
        self.take_at_once(at, before, committed).into_iter().collect()
    }

    /// The same of a statement of which every key may come from another state.
    fn take_by_key(
        &mut self,
        at: usize,
        before: &[Walker],
        asked: &Asked,
        committed: &Rc<Delta>,
    ) -> Vec<Taken> {
        let (member, walker) = (&self.case.members[at], &before[at]);
        let readings = keys::read(self.case, member, walker, committed, asked);
        self.readings += readings.runs;
        self.case.work.spend_all(readings.runs);
        self.open |= readings.open;
        if readings.done.is_empty()
            && let Some(difference) = readings.difference
        {
            self.note(at, walker.step, difference);
        }
        let done = readings.done.into_iter();
        done.filter_map(|done| self.finish(at, before, asked, done, committed, committed))
            .collect()
    }

    fn latest<'s>(&'s self, member: &Member, walker: &'s Walker, committed: &'s Delta) -> CaseView<'s> {
        CaseView {
            base: &self.case.base,
            delta: committed,
            own: &walker.overlay,
            me: self.me(member),
            instants: None,
        }
    }

    /// Takes the member's next point, or says that it cannot be taken now.
    fn take_at_once(&mut self, at: usize, before: &[Walker], committed: &Rc<Delta>) -> Option<Taken> {
        let member = &self.case.members[at];
        let mut walkers = before.to_vec();
        let txn = &member.txn;
        let walker = &mut walkers[at];
        if is_end(txn, walker.step) {
            walker.ended = true;
            let mut committed = committed.clone();
            if matches!(txn.end, End::Committed(_)) {
                let own = walker.overlay.clone();
                if self.breaks_lock(at, &walkers, &own) {
                    return None;
                }
                let next = committed.then(&own);
                if self.repeats_key(at, &next, &own) {
                    return None;
                }
                committed = Rc::new(next);
            }
            return Some((walkers, committed));
        }
        let step = &txn.steps[walker.step];
        if step.control != Control::Data {
            if matches!(step.seen.outcome, Outcome::Answer(_)) {
                let catalog = walker
                    .overlay
                    .catalog
                    .as_ref()
                    .unwrap_or(&self.case.base.store.catalog)
                    .clone();
                follow(&step.control, walker, &catalog);
                walker.session.control(&step.control, &catalog);
            }
            walker.step += 1;
            return Some((walkers, committed.clone()));
        }
        if !is_judged(step) {
            walker.step += 1;
            return Some((walkers, committed.clone()));
        }
        let by_statement = is_statement_level(&member.rules);
        let asked = {
            let latest = self.latest(member, walker, committed);
            plan(self.case, step, &walker.session, &latest)
        };
        let planned = &asked.prepared.planned;
        let writes = planned.may_write || locks_rows(planned);

        // The snapshot is a point of its own where something may come between it and the rest.
        if walker.snapshot.is_none() && asked.reads_snapshot() {
            walker.snapshot = Some(committed.clone());
            if writes || !by_statement {
                return Some((walkers, committed.clone()));
            }
        }
        let snapshot = walker.snapshot.clone().unwrap_or_else(|| committed.clone());
        let snapshot = emptied(snapshot, committed);
        let mut next = self.perform(at, walker, &asked, &snapshot, committed);
        if let Some(wanted) = next.wanted {
            // The routine goes on from here, up to where it takes the next instant.
            walker.instants.resize(wanted as usize, committed.clone());
            next = self.perform(at, walker, &asked, &snapshot, committed);
            if next.wanted.is_some() {
                walker.held = next.held;
                return Some((walkers, committed.clone()));
            }
        }
        if let Err(difference) = next.done.agrees {
            self.note(at, walker.step, difference);
            return None;
        }
        self.finish(at, before, &asked, next.done, &snapshot, committed)
    }

    /// What comes of a statement that agrees, if it is allowed.
    fn finish(
        &mut self,
        at: usize,
        before: &[Walker],
        asked: &Asked,
        done: Done,
        snapshot: &Delta,
        committed: &Rc<Delta>,
    ) -> Option<Taken> {
        let Done {
            effects,
            claims,
            change,
            ..
        } = done;
        let member = &self.case.members[at];
        let mut walkers = before.to_vec();
        let walker = &mut walkers[at];
        let forbidden = matches!(
            member.rules.writes,
            Writes::FirstUpdaterWins | Writes::NoWriteConflict
        );
        if forbidden && overwrites_unseen(&effects, snapshot, committed, &walker.overlay) {
            let difference = Difference {
                rule: &anomaly::LOST_UPDATE,
                observed: "the row was written".to_owned(),
                expected: "ERROR 40001: could not serialize access due to concurrent update".to_owned(),
            };
            self.note(at, walker.step, difference);
            return None;
        }
        if member.rules.mutual_exclusion {
            let claims = Held::of(&member.txn, &claims);
            if is_held(at, before, &claims) {
                self.note(at, walker.step, claim::difference());
                return None;
            }
            walker.claims.extend(claims);
        }
        let catalog = View::catalog(&self.latest(member, walker, committed)).clone();
        let outcome = &member.txn.steps[walker.step].seen.outcome;
        walker
            .session
            .step(&asked.prepared.planned, &change, outcome, &catalog);
        let by_key = member.rules.read_point == ReadPoint::Key;
        if by_key && !member.rules.internal && !effects.is_empty() {
            walker.earlier.push(walker.overlay.clone());
        }
        for effect in &effects {
            walker.overlay.apply(effect, walker.step);
        }
        if is_statement_level(&member.rules) {
            walker.snapshot = None;
        }
        walker.instants.clear();
        walker.held.clear();
        walker.step += 1;
        Some((walkers, committed.clone()))
    }

    /// Runs the next statement of a member, as far as its instants have been taken.
    fn perform(
        &self,
        at: usize,
        walker: &Walker,
        asked: &Asked,
        snapshot: &Delta,
        committed: &Delta,
    ) -> Performed {
        let member = &self.case.members[at];
        let by_statement = is_statement_level(&member.rules);
        let view = |delta, instants| CaseView {
            base: &self.case.base,
            delta,
            own: &walker.overlay,
            me: self.me(member),
            instants,
        };
        let instants = || Instants::new(&walker.instants);
        let read = view(snapshot, by_statement.then(instants));
        // Whether a key is taken is a matter of what is there, at every level. Where every statement has a snapshot of its
        // own, so may be what a row looks like when it is written; whoever writes from its snapshot did so at once.
        let latest = view(committed, Some(instants()));
        let views = Views {
            snapshot: &read,
            latest: &latest,
            recheck: by_statement,
        };
        let at = walker.step;
        let done = execute(asked, at, &member.txn.steps[at], &walker.session, views);
        let wanted = |view: &CaseView<'_>| view.instants.as_ref().map(|i| i.wanted.get());
        let missing = [wanted(&read), wanted(&latest)].into_iter().flatten();
        Performed {
            done,
            wanted: missing.filter(|nth| *nth > 0).min(),
            held: latest.instants.map(|i| i.held.into_inner()).unwrap_or_default(),
        }
    }

    /// Whether a commit leaves a unique key twice. Where locks keep writers apart, this says nothing more.
    fn repeats_key(&self, at: usize, committed: &Delta, own: &Overlay) -> bool {
        let member = &self.case.members[at];
        let view = CaseView {
            base: &self.case.base,
            delta: committed,
            own: &Overlay::default(),
            me: self.me(member),
            instants: None,
        };
        let mut given = unique::given(own, view.catalog()).into_iter();
        !member.rules.mutual_exclusion && given.any(|key| key.is_repeated(&view))
    }

    fn note(&mut self, member: usize, step: usize, difference: Difference) {
        if self.differences.len() < 64
            && !self
                .differences
                .iter()
                .any(|(m, s, d)| *m == member && *s == step && d.expected == difference.expected)
        {
            self.differences.push((member, step, difference));
        }
    }

    /// A commit cannot change a row that another member, which will commit, holds; where nobody holds anything, that one
    /// will have written over what it did not see.
    fn breaks_lock(&self, at: usize, walkers: &[Walker], own: &Overlay) -> bool {
        let rules = &self.case.members[at].rules;
        if !rules.mutual_exclusion && rules.writes != Writes::NoWriteConflict {
            return false;
        }
        walkers.iter().enumerate().any(|(other, walker)| {
            let commits = matches!(self.case.members[other].txn.end, End::Committed(_));
            other != at
                && !walker.ended
                && commits
                && own.tables.iter().any(|(table, written)| {
                    let held = walker.overlay.table(*table);
                    let certain = written.replaced.iter().filter(|(_, r)| !r.perhaps);
                    certain.map(|(id, _)| id).any(|id| {
                        held.is_some_and(|h| h.replaced.get(id).is_some_and(|r| !r.perhaps))
                            || walker.held.contains(&(*table, *id))
                    })
                })
        })
    }
}

/// Whether somebody else held a row at the same time, whichever of them came first.
fn is_held(at: usize, walkers: &[Walker], claims: &[Held]) -> bool {
    let others = walkers.iter().enumerate().filter(|(other, _)| *other != at);
    let mut theirs = others.flat_map(|(_, walker)| &walker.claims);
    theirs.any(|other| claims.iter().any(|held| held.excludes(other)))
}

/// The snapshot as it is now: a table that was truncated since is empty in older ones, too.
fn emptied(snapshot: Rc<Delta>, committed: &Delta) -> Rc<Delta> {
    if committed.truncated.is_subset(&snapshot.truncated) {
        return snapshot;
    }
    let mut now = (*snapshot).clone();
    for table in committed.truncated.difference(&snapshot.truncated) {
        now.truncated.insert(*table);
        now.rows.retain(|(t, _), _| t != table);
    }
    Rc::new(now)
}

/// Whether nothing but the end is left: COMMIT or ROLLBACK itself is the end's point.
fn is_end(txn: &crate::assemble::Transaction, step: usize) -> bool {
    match txn.steps.get(step) {
        None => true,
        Some(s) => {
            step + 1 == txn.steps.len()
                && matches!(
                    s.control,
                    Control::Commit { .. } | Control::Rollback { .. } | Control::PrepareTransaction(_)
                )
        }
    }
}

fn follow(control: &Control, walker: &mut Walker, catalog: &Catalog) {
    match control {
        Control::Savepoint(name) => {
            walker.savepoints.push(Saved {
                name: name.clone(),
                overlay: walker.overlay.clone(),
                earlier: walker.earlier.len(),
                session: walker.session.clone(),
            });
        }
        Control::RollbackTo(name) => {
            if let Some(at) = walker.savepoints.iter().rposition(|saved| saved.name == *name) {
                walker.savepoints.truncate(at + 1);
                let saved = &walker.savepoints[at];
                walker.overlay = saved.overlay.clone();
                walker.earlier.truncate(saved.earlier);
                walker.session.set_back(&saved.session, catalog);
            }
        }
        Control::Release(name) => {
            if let Some(at) = walker.savepoints.iter().rposition(|saved| saved.name == *name) {
                walker.savepoints.truncate(at);
            }
        }
        _ => {}
    }
}

/// Whether rows that it reads are locked, so that it reads their newest versions.
fn locks_rows(planned: &crate::sql::Planned) -> bool {
    planned.shape.to_ascii_lowercase().contains(" for ")
}
