//! Finds the places that a transaction can have among the others.
//!
//! In: a world and a transaction whose turn it is. Out: the worlds in which it has been placed, none if it fits
//! nowhere.
//!
//! A transaction can come right now, in every way that explains it; or after others whose turn is still to come
//! but who may have been quicker: only those that are not spread over several requests, and only where they
//! wrote what this one reads or writes. Two orders that nobody can tell apart are tried once.

use super::budget::{Budget, spend};
use super::footprint::Footprint;
use super::rivals::{Rivals, quick_before};
use super::run::{Attempt, Scene, is_statement_level, run};
use super::session::SessionState;
use super::world::{Explained, World};
use super::{Ahead, Explainer, merge};
use crate::assemble::{End, Step, Transaction};
use crate::control::Control;
use crate::interpret::{Difference, Heed};
use crate::points::choose::Decision;
use crate::points::{Chooser, CommitId, PointId};
use crate::reference::Member;
use crate::trace::{Nanos, Outcome};
use crate::verdict::{Coverage, TxnId};
use pgassay_rules::profile::LevelRules;
use std::cell::RefCell;
use std::sync::Arc;

/// How many sequences of choices are tried before a transaction is given up.
const ATTEMPTS_MAX: usize = 128;
/// How many explanations are looked at, to learn what they have in common; and whether they all write the same.
const ALTERNATIVES_MAX: usize = 16;
const WRITING_ALTERNATIVES_MAX: usize = 64;

/// A transaction with what is needed to run it.
#[derive(Clone)]
pub struct Task {
    pub txn: Arc<Transaction>,
    pub rules: LevelRules,
    pub session: SessionState,
}

impl Task {
    pub fn member(&self, commit: Option<crate::points::CommitId>) -> Member {
        Member {
            txn: self.txn.clone(),
            level: self.txn.level,
            rules: self.rules,
            session: self.session.clone(),
            commit,
        }
    }

    pub fn is_committed(&self) -> bool {
        matches!(self.txn.end, End::Committed(_))
    }

    /// Whether it was answered nothing but that it cannot be done beside others: all that this tells is that there are some.
    fn is_only_refused(&self) -> bool {
        let data = self.txn.steps.iter().filter(|step| step.control == Control::Data);
        let is_refused = |step: &Step| match &step.seen.outcome {
            Outcome::Error(error) => error.sqlstate.starts_with("40"),
            Outcome::Skipped => true,
            _ => false,
        };
        !self.is_committed() && data.into_iter().all(is_refused)
    }
}

/// Those that are placed after a transaction, if at all.
pub struct Under {
    pub(super) ids: Vec<TxnId>,
    /// When the first of them had its last answer: whoever was sent later cannot have come before all of them.
    pub(super) until: Nanos,
}

impl Default for Under {
    fn default() -> Under {
        Under {
            ids: Vec::new(),
            until: Nanos::MAX,
        }
    }
}

impl Under {
    fn and(&self, task: &Task) -> Under {
        let ids = self.ids.iter().copied().chain([task.txn.id]);
        Under {
            ids: ids.collect(),
            until: self.until.min(last_done(&task.txn)),
        }
    }

    /// Others that are not placed before it either.
    fn and_all(mut self, others: &[Task]) -> Under {
        self.ids.extend(others.iter().map(|other| other.txn.id));
        self
    }
}

/// What became of a transaction in one world.
pub enum Placement {
    Placed(Vec<(World, Arc<Explained>)>),
    /// No order explains it; the first difference found is as good as any.
    Nowhere(World, Difference, usize),
    /// More orders than there is time for.
    GivenUp(World),
}

/// One way to explain a transaction.
pub struct Explanation {
    pub attempt: Attempt,
    pub decisions: Vec<Decision>,
    /// What all explanations that write the same have in common.
    pub(super) facts: Vec<Decision>,
    /// Commits that a writing step sees in all of them, whenever in that step: they came before its own.
    pub(super) seen: Vec<(CommitId, usize)>,
}

#[derive(Default)]
pub struct Explanations {
    /// They differ in what they write.
    pub found: Vec<Explanation>,
    pub difference: Option<(Difference, usize)>,
    /// Whether there are no others.
    pub(super) complete: bool,
    /// How many ways were found, though they write the same; and whether there are others that come to the same.
    alternatives: usize,
    repeated: bool,
    /// Where the runs that explain nothing had looked, until it was plain that they do not.
    pub(super) looked: Option<Footprint>,
}

impl Explainer {
    /// Every way to explain a transaction in a world, as far as they write different things.
    pub fn explanations(
        &self,
        world: &World,
        task: &Task,
        hidden: Option<crate::points::CommitId>,
        budget: &mut Budget,
    ) -> Explanations {
        let scene = world.scene(&self.planner, hidden);
        let chooser = RefCell::new(Chooser::default());
        let mut all = Explanations::default();
        let first = self.limits.solver_after.min(ATTEMPTS_MAX);
        let over = self.enumerate(task, &scene, &chooser, first, budget, &mut all);
        if !over
            && first < ATTEMPTS_MAX
            && all.found.is_empty()
            && let Some(mut solved) = self.solved(world, task, hidden, budget)
        {
            solved.difference = all.difference.or(solved.difference);
            return solved;
        }
        if !over {
            self.enumerate(task, &scene, &chooser, ATTEMPTS_MAX - first, budget, &mut all);
        }
        if !all.complete || all.repeated {
            all.found.iter_mut().for_each(|e| e.facts.clear());
        }
        if !all.complete {
            all.found.iter_mut().for_each(|e| e.seen.clear());
        }
        all
    }

    /// Tries the next sequences of choices; whether there is nothing more to try, or no need to.
    pub(super) fn enumerate(
        &self,
        task: &Task,
        scene: &Scene<'_>,
        chooser: &RefCell<Chooser>,
        tries: usize,
        budget: &mut Budget,
        all: &mut Explanations,
    ) -> bool {
        for _ in 0..tries {
            if !spend(&mut budget.runs) {
                return true;
            }
            let (txn, rules, session) = (&task.txn, &task.rules, &task.session);
            let mut attempt = run(txn, rules, scene, session, chooser, Heed::UntilWrong);
            budget.charge(&attempt);
            match attempt.wrong.take() {
                _ if chooser.borrow().is_repeated() => {
                    all.look(task, &attempt, scene);
                    all.repeated = true;
                }
                None if !chooser.borrow().is_contradiction() => {
                    let decisions = chooser.borrow().decisions().to_vec();
                    let free = decisions.is_empty();
                    let writing = match attempt.overlay.is_empty() || !task.is_committed() {
                        true => None,
                        false => Some(attempt.wrote.clone()),
                    };
                    let seen = match is_statement_level(&task.rules) {
                        true => seen_in(&decisions, &attempt.wrote),
                        false => Vec::new(),
                    };
                    all.add(attempt, decisions, seen, task.is_committed());
                    all.alternatives += 1;
                    if free {
                        all.complete = true;
                        return true;
                    }
                    if task.is_only_refused() {
                        return true;
                    }
                    let most = match &writing {
                        Some(_) => WRITING_ALTERNATIVES_MAX,
                        None => ALTERNATIVES_MAX,
                    };
                    if all.alternatives == most {
                        return true;
                    }
                    if let Some(writing) = writing
                        && is_statement_level(&task.rules)
                    {
                        // What its other statements saw does not change what it wrote, nor is it certain.
                        all.found.iter_mut().for_each(|e| e.facts.clear());
                        let matters = |point: PointId| writing.contains(&point.step());
                        if !chooser.borrow_mut().next_among(matters) {
                            all.complete = true;
                            return true;
                        }
                        continue;
                    }
                }
                None => all.look(task, &attempt, scene),
                Some((step, difference)) => {
                    all.look(task, &attempt, scene);
                    all.difference.get_or_insert((difference, step));
                }
            }
            if !chooser.borrow_mut().next() {
                all.complete = true;
                return true;
            }
        }
        false
    }

    /// Places a transaction whose turn it is, before those `under` which it is placed.
    pub fn place(
        &mut self,
        world: World,
        task: &Task,
        ahead: &Ahead<'_>,
        budget: &mut Budget,
        under: &Under,
    ) -> Placement {
        let ways = self.explanations(&world, task, None, budget);
        self.place_by(ways, world, task, ahead, budget, under)
    }

    /// The same, when it is known what explains it in this world.
    fn place_by(
        &mut self,
        mut ways: Explanations,
        mut world: World,
        task: &Task,
        ahead: &Ahead<'_>,
        budget: &mut Budget,
        under: &Under,
    ) -> Placement {
        if ways.found.is_empty() && !ways.complete {
            return Placement::GivenUp(world);
        }
        self.unteach(&mut world, task, &mut ways, ahead);
        let Some(Rivals { rivals, alike }) = self.quicker(&mut world, task, &mut ways, ahead, under, budget)
        else {
            return Placement::GivenUp(world);
        };
        let has_effects = |way: &Explanation| task.is_committed() && !way.attempt.overlay.is_empty();
        if !ways.complete && ways.found.first().is_some_and(has_effects) {
            return Placement::GivenUp(world);
        }
        let mut difference = ways.difference;
        let mut placed: Vec<(World, Arc<Explained>)> = Vec::new();
        if rivals.is_empty() && ways.found.len() <= 1 {
            return match ways.found.pop() {
                Some(way) => {
                    world.share_windows(&task.txn, &alike);
                    Placement::Placed(vec![self.adopt(world, task, way)])
                }
                None => nowhere(world, difference),
            };
        }
        self.births.remembers = true;
        let (slipped, rivals) = match ways.found.len() {
            1 => self.overwritten(&mut world, task, rivals, ahead, budget),
            _ => (Vec::new(), rivals),
        };
        for way in ways.found {
            let mut world = world.clone();
            world.share_windows(&task.txn, &alike);
            world.slipped.extend(slipped.iter().cloned());
            world
                .firsts
                .extend(rivals.iter().map(|rival| (task.txn.id, rival.txn.id)));
            placed.push(self.adopt(world, task, way));
        }
        // It may be that a rival had slipped under somebody who came before.
        for rival in &rivals {
            if !world.may_slip(rival.txn.id) {
                continue;
            }
            if world.crowd_of(rival.txn.id).is_some() {
                return Placement::GivenUp(world);
            }
            let Some(next) = world.with_slipped(rival.txn.id) else {
                continue;
            };
            if !spend(&mut budget.detours) {
                return Placement::GivenUp(world);
            }
            match self.place(next, task, ahead, budget, under) {
                Placement::Placed(more) => placed.extend(more),
                Placement::GivenUp(_) => return Placement::GivenUp(world),
                Placement::Nowhere(_, found, step) => {
                    difference.get_or_insert((found, step));
                }
            }
        }
        // One of them is the first: before it comes none of the others.
        let below = under.and(task).and_all(&rivals);
        for (rival, ways) in self.promising(&mut world, rivals, ahead, budget, &below) {
            if !spend(&mut budget.detours) {
                return Placement::GivenUp(world);
            }
            match self.place_by(ways, world.clone(), &rival, ahead, budget, &below) {
                Placement::Nowhere(..) => {}
                Placement::GivenUp(_) => return Placement::GivenUp(world),
                Placement::Placed(mut first) => {
                    self.hear(&mut first, ahead);
                    for (mut next, explained) in first {
                        next.ahead.push(explained);
                        match self.place(next, task, ahead, budget, under) {
                            Placement::Placed(more) => placed.extend(more),
                            Placement::GivenUp(_) => return Placement::GivenUp(world),
                            Placement::Nowhere(_, found, step) => {
                                difference.get_or_insert((found, step));
                            }
                        }
                    }
                }
            }
            merge::drop_twins(&mut placed, |(world, _)| world);
        }
        self.hear(&mut placed, ahead);
        match placed.is_empty() {
            true => nowhere(world, difference),
            false => Placement::Placed(placed),
        }
    }

    /// Those of the rivals that may be the first of them in this world, and what explains them: where nothing explains a
    /// rival, and it takes one of the others to change that, it is looked at again when that one is in its place.
    fn promising(
        &mut self,
        world: &mut World,
        rivals: Vec<Task>,
        ahead: &Ahead<'_>,
        budget: &mut Budget,
        under: &Under,
    ) -> Vec<(Task, Explanations)> {
        let mut tried = Vec::new();
        for rival in rivals {
            let ways = self.explanations(world, &rival, None, budget);
            tried.push((rival, ways));
        }
        tried.retain(|(rival, ways)| match &ways.looked {
            Some(looked) if ways.is_stuck() => {
                self.leads_elsewhere(world, rival, looked, ahead, budget, under)
            }
            _ => true,
        });
        tried
    }

    /// Whether somebody may come first in this world, and so before a rival that nothing explains yet.
    fn leads_elsewhere(
        &mut self,
        world: &mut World,
        rival: &Task,
        looked: &Footprint,
        ahead: &Ahead<'_>,
        budget: &mut Budget,
        under: &Under,
    ) -> bool {
        let mut met = under.and(rival);
        let others = quick_before(world, rival, ahead, &met);
        let Some(mut stuck) = self.contenders(world, rival, looked, false, others) else {
            return true;
        };
        while let Some((task, _)) = stuck.pop() {
            if met.ids.contains(&task.txn.id) {
                continue;
            }
            met.ids.push(task.txn.id);
            let ways = self.explanations(world, &task, None, budget);
            let Some(looked) = ways.looked.as_ref().filter(|_| ways.is_stuck()) else {
                return true;
            };
            let others = quick_before(world, &task, ahead, &met);
            match self.contenders(world, &task, looked, false, others) {
                Some(others) => stuck.extend(others),
                None => return true,
            }
        }
        false
    }

    /// What somebody whose turn is still to come may have written is not learned: nobody can tell whose it is.
    fn unteach(&mut self, world: &mut World, task: &Task, ways: &mut Explanations, ahead: &Ahead<'_>) {
        if ways.found.iter().all(|way| way.attempt.lessons.is_empty()) {
            return;
        }
        for other in quick_before(world, task, ahead, &Under::default()) {
            if self.extent(world, &other).is_some_and(|extent| !extent.writes) {
                continue;
            }
            if let Some(spot) = self.spot(world, &other) {
                for way in &mut ways.found {
                    way.attempt.lessons.retain(|lesson| spot.leaves(lesson));
                }
                continue;
            }
            let other = self.task(&other);
            let footprint = world.footprint(&other.txn, &other.rules, &other.session, &self.planner);
            for way in &mut ways.found {
                way.attempt
                    .lessons
                    .retain(|lesson| !footprint.beyond_rows && !footprint.may_write_table(lesson.table()));
            }
        }
    }

    /// Takes an explanation for true.
    pub fn adopt(&mut self, mut world: World, task: &Task, way: Explanation) -> (World, Arc<Explained>) {
        let Explanation {
            mut attempt,
            decisions,
            facts,
            seen,
        } = way;
        world.answered.retain(|(txn, step)| {
            let is_own = *txn == task.txn.id;
            if let Some(Some(judged)) = attempt.judged.get_mut(*step).filter(|_| is_own) {
                judged.coverage = Coverage::Checked;
                judged.loose = false;
            }
            !is_own
        });
        if !attempt.overlay.is_empty() {
            attempt.written = crate::certify::written(&attempt.overlay);
        }
        let commit = world.apply(&task.txn, &attempt, &mut self.births);
        world.record(&attempt, &decisions, &facts, &mut self.births, || {
            task.member(commit)
        });
        if let Some(own) = commit.filter(|_| !seen.is_empty()) {
            let witness = Arc::new(task.member(commit));
            for (before, step) in seen {
                let done = task.txn.steps[step].seen.window.done;
                world.order.seen_by(before, done, &witness);
                world.order.precede(before, own);
            }
        }
        world.take_witness(task);
        let explained = Arc::new(Explained {
            txn: task.txn.clone(),
            commit,
            attempt,
            decisions,
        });
        (world, explained)
    }

    pub fn task(&mut self, txn: &Arc<Transaction>) -> Task {
        Task {
            txn: txn.clone(),
            rules: self.rules_of(txn.level),
            session: self.session(txn),
        }
    }
}

impl Explanations {
    /// A run has explained nothing.
    fn look(&mut self, task: &Task, attempt: &Attempt, scene: &Scene<'_>) {
        if self.found.is_empty() {
            let footprint = Footprint::new(&task.txn, attempt, scene.store);
            self.looked.get_or_insert_default().join(footprint);
        }
    }

    /// Nothing explains it as things are.
    pub(super) fn is_stuck(&self) -> bool {
        self.found.is_empty() && self.complete
    }

    pub(super) fn add(
        &mut self,
        attempt: Attempt,
        decisions: Vec<Decision>,
        seen: Vec<(CommitId, usize)>,
        committed: bool,
    ) {
        let same =
            |other: &&mut Explanation| !committed || other.attempt.overlay.writes_same(&attempt.overlay);
        match self.found.iter_mut().find(same) {
            Some(known) => {
                known.facts.retain(|d| decisions.contains(d));
                known.seen.retain(|commit| seen.contains(commit));
            }
            None => self.found.push(Explanation {
                attempt,
                facts: decisions.clone(),
                decisions,
                seen,
            }),
        }
    }
}

/// The commits that were seen, and in which step; none if other steps had a choice, too, since those are not tried in all
/// ways.
fn seen_in(decisions: &[Decision], steps: &[usize]) -> Vec<(CommitId, usize)> {
    let mut seen: Vec<(CommitId, usize)> = Vec::new();
    for decision in decisions {
        let at = (decision.commit, decision.point.step());
        if !steps.contains(&at.1) {
            return Vec::new();
        }
        if decision.visible && !seen.contains(&at) {
            seen.push(at);
        }
    }
    seen
}

fn nowhere(world: World, difference: Option<(Difference, usize)>) -> Placement {
    match difference {
        Some((difference, step)) => Placement::Nowhere(world, difference, step),
        None => Placement::GivenUp(world),
    }
}

/// When the last of its statements had been answered.
pub(super) fn last_done(txn: &Transaction) -> Nanos {
    let data = txn.steps.iter().filter(|s| s.control == Control::Data);
    data.map(|s| s.seen.window.done)
        .max()
        .unwrap_or(txn.end.window().done)
}

/// Whether its answers say that it wrote nothing.
pub fn wrote_nothing(txn: &Transaction, attempt: &Attempt) -> bool {
    attempt
        .wrote
        .iter()
        .all(|&step| match &txn.steps[step].seen.outcome {
            Outcome::Answer(answer) => answer.counts_none(),
            _ => true,
        })
}
