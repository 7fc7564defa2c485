//! What was answered to transactions whose turn is still to come, heard early.
//!
//! In: worlds that differ in what they hold under some key, and the answers of transactions that are under way or wait for
//! their turn. Out: fewer worlds: those are given up in which nothing can explain such an answer.
//!
//! A block is judged when it ends. What its queries have shown long before tells orders apart that would otherwise have to
//! be kept side by side until then:
//!
//!   ```text
//!   t1  ├─ append 1 to x ─────┤                      who came first, t1 or t2?
//!   t2     ├─ append 2 to x ──────┤
//!   t3  begin …                     ├ x = 0,2,1 ┤ …… commit
//!   ```
//!
//! Always true:
//!   - only answers are heard whose transaction has not written what they show, and that nobody still to come can have
//!     changed, rightly or wrongly ordered;
//!   - an answer that nothing explains in any world is left to its own turn.

use super::asked::Asked;
use super::budget::Budget;
use super::extent::is_plain;
use super::footprint::Footprint;
use super::merge::Named;
use super::place::Task;
use super::run::{self, Attempt, is_guessed};
use super::spot::Spot;
use super::world::World;
use super::{Ahead, Explainer, merge, witness};
use crate::assemble::{End, Step, Transaction, UnderWay};
use crate::control::Control;
use crate::interpret::Heed;
use crate::points::Chooser;
use crate::state::{Row, RowId, TableId};
use crate::trace::{Nanos, Outcome, SessionId, Status};
use crate::value::Value;
use crate::verdict::{Coverage, TxnId};
use pgassay_rules::profile::{AbortedReads, ReadPoint, RealTime};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// Sequences of choices that are tried before an answer is taken for explained.
const TRIES_MAX: usize = 32;
/// Others still to come that are tried in all orders.
const RIVALS_MAX: usize = 3;
/// Answers that a world is known to explain.
const HEARD_MAX: usize = 64;
/// Answers that are heard at a time.
const ANSWERS_MAX: usize = 256;

/// One that has ended; `None` if nobody can tell what it should have seen.
fn ended(txn: &Transaction) -> Option<UnderWay<'_>> {
    let is_known = !txn.vague && !txn.torn && !txn.borrows;
    is_known.then_some(UnderWay {
        id: txn.id,
        level: txn.level,
        facts: &txn.facts,
        steps: &txn.steps,
    })
}

/// A query for the row of one key, and its answer.
pub struct Early {
    by: TxnId,
    step: usize,
    /// The query alone, as if it were a transaction.
    task: Task,
    looked: Footprint,
    table: TableId,
    columns: Arc<[usize]>,
    key: Vec<Value>,
    done: Nanos,
}

impl Early {
    /// The rows that it may be about.
    fn rows(&self, world: &World) -> SmallVec<[RowId; 4]> {
        let kept = world.store.tables.get(&self.table);
        kept.map(|kept| kept.candidates(&self.columns, &self.key))
            .unwrap_or_default()
    }

    /// How many versions there are, and the last of them: as long as they stay the same, so does what may have been seen, or
    /// it becomes less.
    fn state(&self, world: &World) -> (usize, u64) {
        let kept = world.store.tables.get(&self.table);
        let rows = self.rows(world);
        let chains = rows.iter().filter_map(|id| kept?.chain(*id));
        chains.fold((rows.len(), 0), |(len, last), chain| {
            let newest = chain.versions.last().map_or(0, |version| version.commit.0);
            (len + 1_000 * chain.versions.len(), last.max(newest))
        })
    }
}

/// What is heard in the turn of one transaction.
#[derive(Clone, Default)]
pub struct Listening {
    /// Whose turn it is.
    judged: Option<Arc<Transaction>>,
    /// `None`: nobody wanted to know yet.
    answers: Option<Arc<[Arc<Early>]>>,
    /// Those still to come that may have committed before the last of the answers.
    beside: Arc<[Arc<Transaction>]>,
}

/// What is understood of a transaction under way.
#[derive(Clone, Default)]
pub struct Heard {
    /// Steps that were looked at; none after one that is not understood.
    steps: usize,
    is_over: bool,
    written: Vec<Arc<Spot>>,
    answers: Vec<Arc<Early>>,
    looks: Vec<Look>,
}

/// Where a statement looks that was sent at some time; `None`: anywhere.
#[derive(Clone)]
struct Look {
    sent: Nanos,
    at: Option<Arc<Spot>>,
    answer: Option<Arc<Early>>,
}

impl Explainer {
    /// The turn of a transaction begins.
    pub(super) fn listen(&mut self, judged: &Arc<Transaction>) {
        self.listening = Listening {
            judged: Some(judged.clone()),
            ..Listening::default()
        };
    }

    /// What there is to be heard, up to where everything is recorded that was committed before.
    fn answers(&mut self, world: &World, ahead: &Ahead<'_>) -> Arc<[Arc<Early>]> {
        if let Some(answers) = &self.listening.answers {
            return answers.clone();
        }
        let Some(judged) = self.listening.judged.take() else {
            return Arc::default();
        };
        let database = &judged.facts.database;
        let done = Some(judged.end.window().done).filter(|done| *done != Nanos::MAX);
        // From then on something else has happened that nobody was told of.
        let until = done.into_iter().chain(ahead.sequencer.next_other()).min();
        let until = until.unwrap_or_default();
        let mut upcoming: Vec<&Arc<Transaction>> = ahead.sequencer.upcoming(until).collect();
        let may_come =
            |txn: &Arc<Transaction>| !matches!(txn.end, End::Aborted(_)) && txn.end.window().sent <= until;
        let beside = upcoming.iter().copied().filter(|txn| may_come(txn));
        self.listening.beside = beside.cloned().collect();
        upcoming.retain(|txn| txn.facts.database == *database);
        let mut under_way = ahead.assembler.under_way();
        under_way.retain(|told| told.facts.database == *database);
        let waiting = self.waiting.iter().map(|waiting| waiting.task.txn.id);
        let there = upcoming.iter().map(|txn| txn.id).chain(waiting);
        let there: FxHashSet<TxnId> = there.chain(under_way.iter().map(|told| told.id)).collect();
        self.foreseen.heard.retain(|id, _| there.contains(id));
        // Whatever a session does to itself, its later statements mean something else.
        let mut unclear: FxHashSet<SessionId> = FxHashSet::default();
        let mut found: Vec<Arc<Early>> = Vec::new();
        for txn in upcoming {
            let told = ended(txn).filter(|_| !unclear.contains(&txn.id.session));
            if !told.is_some_and(|told| self.hear_one(world, &told, &mut found)) {
                unclear.insert(txn.id.session);
            }
        }
        for told in under_way {
            if !unclear.contains(&told.id.session) {
                self.hear_one(world, &told, &mut found);
            }
        }
        found.retain(|early| early.done < until);
        found.sort_by_key(|early| (early.done, early.by));
        found.truncate(ANSWERS_MAX);
        let answers: Arc<[Arc<Early>]> = found.into();
        self.listening.answers = Some(answers.clone());
        answers
    }

    /// Whether all that it did is understood; its answers are `found`.
    fn hear_one(&mut self, world: &World, told: &UnderWay<'_>, found: &mut Vec<Arc<Early>>) -> bool {
        if let Some(heard) = self.foreseen.heard.get(&told.id)
            && (heard.is_over || heard.steps == told.steps.len())
        {
            found.extend(heard.answers.iter().cloned());
            return !heard.is_over;
        }
        let mut heard = self.foreseen.heard.remove(&told.id).unwrap_or_default();
        while !heard.is_over && heard.steps < told.steps.len() {
            let step = &told.steps[heard.steps];
            self.hear_step(world, told, step, &mut heard);
            heard.steps += 1;
            let is_refused = matches!(&step.seen.outcome, Outcome::Error(e) if e.sqlstate.starts_with("40"));
            if heard.is_over && !is_refused {
                heard.looks.push(Look {
                    sent: step.seen.window.sent,
                    at: None,
                    answer: None,
                });
            }
        }
        let is_clear = !heard.is_over;
        found.extend(heard.answers.iter().cloned());
        self.foreseen.heard.insert(told.id, heard);
        is_clear
    }

    fn hear_step(&mut self, world: &World, told: &UnderWay<'_>, step: &Step, heard: &mut Heard) {
        match &step.control {
            Control::Data => {}
            Control::Begin { .. } | Control::Commit { .. } => return,
            _ => {
                heard.is_over = true;
                return;
            }
        }
        let txn = Arc::new(Transaction {
            id: told.id,
            level: told.level,
            read_only: false,
            vague: false,
            torn: false,
            borrows: false,
            explicit: false,
            facts: told.facts.clone(),
            steps: vec![step.clone()],
            end: End::Aborted(step.seen.window),
        });
        let task = self.task(&txn);
        let catalog = &world.store.catalog;
        let asked = Asked::of(&self.planner, catalog, &step.seen, &task.session);
        let planned = &*asked.prepared.planned;
        let is_answered =
            matches!(step.seen.outcome, Outcome::Answer(_)) && step.seen.before != Status::Failed;
        if !is_answered || !asked.is_run() || !is_plain(planned) {
            heard.is_over = true;
            return;
        }
        if planned.may_write && asked.wrote_nothing(&step.seen.outcome) {
            return;
        }
        let attempt = world.run_anyway(&txn, &task.rules, &task.session, &self.planner);
        let looked = Footprint::new(&txn, &attempt, &world.store);
        let spot = Spot::of(&task, &looked, catalog, &self.planner);
        let spot = spot.map(Arc::new);
        if planned.may_write {
            match spot {
                // Whatever it finds there is the newest.
                Some(spot) => heard.written.push(spot),
                // Where it wrote is not known: nothing after that is heard.
                None => heard.is_over = true,
            }
            return;
        }
        if spot.is_some() && !heard.written.iter().all(|written| written.misses(&looked)) {
            // It finds what it has written itself.
            return;
        }
        let mut look = Look {
            sent: step.seen.window.sent,
            at: spot,
            answer: None,
        };
        if look.at.is_some()
            && is_heard_at(&task)
            && is_whole(step)
            && !planned.locks()
            && let Some((table, columns, key)) = looked.only_key(0)
        {
            let early = Arc::new(Early {
                by: told.id,
                step: heard.steps,
                done: step.seen.window.done,
                table,
                columns: columns.clone(),
                key: key.to_vec(),
                looked,
                task,
            });
            heard.answers.push(early.clone());
            look.answer = Some(early);
        }
        heard.looks.push(look);
    }

    /// Worlds become one where they differ in nothing that somebody may still ask for, or all that will be asked for is known
    /// to be answered rightly in both.
    pub(super) fn forget_unasked(&mut self, worlds: &mut Vec<World>, ahead: &Ahead<'_>) {
        // Few can be kept.
        if worlds.len() <= self.limits.worlds_max / 4 {
            return;
        }
        self.answers(&worlds[0], ahead);
        let waiting: Vec<Arc<Transaction>> = self.waiting.iter().map(|w| w.task.txn.clone()).collect();
        for txn in &waiting {
            match ended(txn) {
                Some(told) => drop(self.hear_one(&worlds[0], &told, &mut Vec::new())),
                None => return,
            }
        }
        // Of each world once, though it is compared with all others.
        let certain: RefCell<FxHashMap<(usize, TxnId, usize), bool>> = RefCell::default();
        let asks = |pair: [Named<'_>; 2], table: TableId, row: &Row, until: Nanos| {
            let heard = self.foreseen.heard.values().flat_map(|heard| &heard.looks);
            let early = heard.filter(|look| look.sent <= until);
            let mut answered = Vec::new();
            for look in early.filter(|look| look.at.as_ref().is_none_or(|at| at.may_be_at(table, row))) {
                let answer = look.answer.as_ref()?;
                let is_right = |(world, name): Named<'_>| {
                    let known = certain.borrow().get(&(name, answer.by, answer.step)).copied();
                    known.unwrap_or_else(|| {
                        let is_right = self.is_certain(world, &answer.task);
                        certain
                            .borrow_mut()
                            .insert((name, answer.by, answer.step), is_right);
                        is_right
                    })
                };
                if !pair.into_iter().all(is_right) {
                    return None;
                }
                answered.push((answer.by, answer.step));
            }
            Some(answered)
        };
        merge::forget_unasked(worlds, asks);
    }

    /// Gives up those of several worlds that an answer contradicts, unless it contradicts all of them.
    pub(super) fn hear<T: merge::HasWorld>(&mut self, worlds: &mut Vec<T>, ahead: &Ahead<'_>) {
        if worlds.len() < 2 {
            return;
        }
        // Of each row once, though many ask for it.
        let mut agreed: FxHashMap<(TableId, RowId), bool> = FxHashMap::default();
        for early in self.answers(worlds[0].world_mut(), ahead).iter() {
            let is_same_everywhere = {
                let all: Vec<&World> = worlds.iter_mut().map(|any| &*any.world_mut()).collect();
                let (first, others) = (all[0], &all[1..]);
                let rows = early.rows(first);
                let mut is_agreed = |id: RowId| {
                    let row = (early.table, id);
                    let known = agreed.entry(row);
                    *known.or_insert_with(|| others.iter().all(|other| merge::is_agreed(first, other, row)))
                };
                others.iter().all(|other| early.rows(other) == rows) && rows.iter().all(|id| is_agreed(*id))
            };
            if is_same_everywhere {
                continue;
            }
            let contradicted = worlds
                .iter_mut()
                .map(|any| self.is_contradicted(any.world_mut(), early));
            let contradicted: Vec<bool> = contradicted.collect();
            if contradicted.contains(&false) && contradicted.contains(&true) {
                let mut contradicted = contradicted.into_iter();
                let mut gone: Vec<T> = worlds
                    .extract_if(.., |_| contradicted.next() == Some(true))
                    .collect();
                agreed.clear();
                witness::testify_early(early.by, worlds, &mut gone);
            }
        }
    }

    /// Whether an answer contradicts a world.
    pub(super) fn is_contradicted_by_any(&mut self, world: &mut World, ahead: &Ahead<'_>) -> bool {
        let answers = self.answers(world, ahead);
        let about = answers.iter().filter(|early| {
            let mut rows = early.rows(world).into_iter();
            rows.any(|id| world.changed.contains(&(early.table, id)))
        });
        let about: Vec<Arc<Early>> = about.cloned().collect();
        about.iter().any(|early| self.is_contradicted(world, early))
    }

    /// Whether nothing explains an answer in a world, nor can anybody who is still to come there.
    fn is_contradicted(&mut self, world: &mut World, early: &Early) -> bool {
        let heard = (early.by, early.step, early.state(world));
        if world.heard.contains(&heard) {
            return false;
        }
        if self.is_explained(world, &early.task) {
            // More than is there now it will not be asked for; nor is much of it remembered.
            if world.heard.len() == HEARD_MAX {
                world.heard.remove(0);
            }
            world.heard.push(heard);
            return false;
        }
        let txn = &early.task.txn;
        if world.may_show_crowd(txn, &early.looked) {
            return false;
        }
        if let Some(mut other) = world.otherwise(txn) {
            other.slipped.clear();
            if !self.is_contradicted(&mut other, early) {
                return false;
            }
        }
        let touches = early.looked.touches();
        if is_guessed(touches, &world.store, txn.sent()) || world.may_be_otherwise(txn, &early.looked) {
            return false;
        }
        // Whoever is still to come writes after the last who has written.
        let kept = world.store.tables.get(&early.table);
        let newest = early
            .rows(world)
            .into_iter()
            .filter_map(|id| kept?.chain(id)?.versions.last().map(|version| version.commit));
        let is_hidden = newest
            .filter_map(|commit| world.order.get(commit))
            .any(|commit| commit.lo > early.done);
        let mut rivals = Vec::new();
        for other in self.listening.beside.clone().iter() {
            let in_time = other.id != early.by && other.end.window().sent <= early.done;
            if !in_time || world.is_ahead(other.id) {
                continue;
            }
            match self.extent(world, other) {
                None => return false,
                Some(extent) if !extent.writes || is_hidden => {}
                Some(_) => match self.spot(world, other) {
                    Some(spot) if spot.misses(&early.looked) => {}
                    Some(_) if rivals.len() < RIVALS_MAX && matches!(other.end, End::Committed(_)) => {
                        rivals.push(self.task(other));
                    }
                    _ => return false,
                },
            }
        }
        !self.may_explain(world, early, &rivals)
    }

    /// Whether some of those who are still to come may explain an answer, in whichever order they do.
    fn may_explain(&mut self, world: &World, early: &Early, rivals: &[Task]) -> bool {
        for (at, rival) in rivals.iter().enumerate() {
            let mut ways = self.explanations(world, rival, None, &mut Budget::of(&self.limits));
            if !ways.complete || ways.found.is_empty() {
                return true;
            }
            for way in ways.found.drain(..) {
                let (after, _) = self.adopt(world.sketch(), rival, way);
                let others: Vec<Task> = rivals[..at].iter().chain(&rivals[at + 1..]).cloned().collect();
                if self.is_explained(&after, &early.task) || self.may_explain(&after, early, &others) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether some choice of what was visible explains an answer, without anything that is not known.
    fn is_certain(&self, world: &World, task: &Task) -> bool {
        let is_checked = |attempt: &Attempt| {
            let mut judged = attempt.judged.iter().flatten();
            judged.all(|judged| judged.coverage == Coverage::Checked && !judged.loose)
        };
        self.find(world, task, is_checked) == Some(true)
    }

    /// Whether some choice of what was visible explains an answer, or too many would have to be tried.
    fn is_explained(&self, world: &World, task: &Task) -> bool {
        self.find(world, task, |_| true).unwrap_or(true)
    }

    /// Whether some choice of what was visible explains an answer in a way that is `wanted`; `None` if too many would have to
    /// be tried.
    fn find(&self, world: &World, task: &Task, wanted: impl Fn(&Attempt) -> bool) -> Option<bool> {
        let scene = world.scene(&self.planner, None);
        let chooser = RefCell::new(Chooser::default());
        for _ in 0..TRIES_MAX {
            let (txn, rules, session) = (&task.txn, &task.rules, &task.session);
            let attempt = run::run(txn, rules, &scene, session, &chooser, Heed::UntilWrong);
            if attempt.wrong.is_none() && !chooser.borrow().is_contradiction() && wanted(&attempt) {
                return Some(true);
            }
            if !chooser.borrow_mut().next() {
                return Some(false);
            }
        }
        None
    }
}

/// Whether what a transaction is answered at its level depends on nothing but the commits before, and its own writes.
fn is_heard_at(task: &Task) -> bool {
    let rules = &task.rules;
    rules.read_point == ReadPoint::Statement
        && rules.real_time == RealTime::Strict
        && rules.aborted_reads == AbortedReads::Snapshot
}

/// Whether all of the answer came, and is kept.
fn is_whole(step: &Step) -> bool {
    matches!(&step.seen.outcome, Outcome::Answer(answer) if answer.tag.is_some() && answer.cut.is_none())
}
