//! Finds the places that a transaction can have among the others.
//!
//! In: a world and a transaction whose turn it is. Out: the worlds in which it has been placed, none if it fits
//! nowhere.
//!
//! A transaction can come right now, in every way that explains it; or after others whose turn is still to come
//! but who may have been quicker: only those that are not spread over several requests, and only where they
//! wrote what this one reads or writes. Two orders that nobody can tell apart are tried once.

use super::between::Between;
use super::footprint::Footprint;
use super::limits::Limits;
use super::run::{Attempt, Scene, is_statement_level, run};
use super::session::SessionState;
use super::world::{Explained, Taken, World, Wrote};
use super::{Ahead, Explainer, merge};
use crate::assemble::{End, Transaction};
use crate::control::Control;
use crate::interpret::{Difference, Heed};
use crate::points::choose::Decision;
use crate::points::{Chooser, CommitId, PointId};
use crate::reference::Member;
use crate::trace::{Nanos, Outcome};
use crate::verdict::TxnId;
use pgassay_rules::profile::LevelRules;
use std::cell::RefCell;
use std::sync::Arc;

/// How many sequences of choices are tried before a transaction is given up.
const ATTEMPTS_MAX: usize = 128;
/// How many explanations are looked at, to learn what they have in common; and whether they all write the same.
const ALTERNATIVES_MAX: usize = 16;
const WRITING_ALTERNATIVES_MAX: usize = 64;
/// A run that looks at more places than this counts for several.
const PLACES_A_RUN: usize = 16;
/// Calls that look at no more places than this end early, and so many of them count for one.
const PLACES_OF_SHORT: usize = 4;
const SHORT_A_RUN: usize = 4;
/// More than so many that may all have come before one, and before each other, have more orders than are tried.
const RIVALS_MAX: usize = 6;
/// The same, where nothing explains it as things are: few of them can come first.
const RIVALS_OF_STUCK_MAX: usize = 24;

/// What part of its runs a transaction has at least, however many were in vain; and how many that were not it takes until
/// nothing is withheld.
const PATIENCE_MIN: usize = 16;
const PATIENCE_RETURNS: usize = 64;

/// What may still be spent on placing one transaction: counted in work, so that it is the same on every machine.
pub struct Budget {
    /// How many others may still be placed before it, and how many that were at first.
    detours: usize,
    detours_max: usize,
    pub(super) runs: usize,
    /// Calls that were run and did not come far.
    short: usize,
    /// Writers of which only somebody in between can tell who came first are taken in one order, from the start.
    lazy: bool,
}

impl Budget {
    pub fn of(limits: &Limits) -> Budget {
        Budget {
            detours: limits.detours_max,
            detours_max: limits.detours_max,
            runs: limits.runs_max,
            short: 0,
            lazy: false,
        }
    }

    /// What runs long counts for several; of the calls that do not come far, several count for one.
    fn charge(&mut self, attempt: &Attempt) {
        let places: usize = attempt.reads.iter().map(|read| read.touches.len()).sum();
        self.runs = self.runs.saturating_sub(places / PLACES_A_RUN);
        if attempt.calls && places <= PLACES_OF_SHORT {
            self.short += 1;
            self.runs += usize::from(!self.short.is_multiple_of(SHORT_A_RUN));
        }
    }

    fn is_lazy(&self) -> bool {
        self.lazy || self.detours < self.detours_max - self.detours_max / 6
    }

    /// For a second look, with fewer orders.
    pub fn lazy(limits: &Limits) -> Budget {
        Budget {
            lazy: true,
            ..Budget::of(limits)
        }
    }
}

/// How many runs one transaction is worth: fewer, the more were in vain of late.
#[derive(Clone, Copy, Default)]
pub struct Patience {
    withheld: usize,
}

impl Patience {
    /// A transaction was given up, or was not.
    pub fn note(&mut self, given_up: bool, limits: &Limits) {
        let most = limits.runs_max;
        self.withheld = match given_up {
            true => most.saturating_sub(((most - self.withheld.min(most)) / 2).max(most / PATIENCE_MIN)),
            false => self.withheld.saturating_sub(most / PATIENCE_RETURNS),
        };
    }

    pub fn limit(self, budget: Budget) -> Budget {
        Budget {
            runs: budget.runs.saturating_sub(self.withheld).max(1),
            ..budget
        }
    }
}

pub(super) fn spend(what: &mut usize) -> bool {
    let left = what.checked_sub(1);
    *what = left.unwrap_or(0);
    left.is_some()
}

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
}

/// Those that are placed after a transaction, if at all.
pub struct Under {
    ids: Vec<TxnId>,
    /// When the first of them had its last answer: whoever was sent later cannot have come before all of them.
    until: Nanos,
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

/// What the order of two writers changes.
enum Pair {
    /// What others find in between, or at the end.
    Different,
    /// Only what they find in between; which is what, where they were run.
    Commuting(Option<Arc<Between>>),
    /// The same, but the second is not explained before the first as things are.
    Early(Option<Arc<Between>>),
    Same,
}

/// What comes of a transaction.
enum Then {
    One(Box<World>),
    Several,
    /// It is not explained.
    None,
}

/// Whether somebody can tell the order of two writers that leave the same behind in either.
enum Watched {
    ByNobody,
    /// By none of those that have ended.
    Perhaps,
    BySomebody,
}

/// Those whose turn is still to come and that may have come before.
#[derive(Default)]
struct Rivals {
    /// Where it matters who came first.
    rivals: Vec<Task>,
    /// Where nobody can tell.
    alike: Vec<Arc<Transaction>>,
}

/// One way to explain a transaction.
pub struct Explanation {
    pub attempt: Attempt,
    pub decisions: Vec<Decision>,
    /// What all explanations that write the same have in common.
    pub(super) facts: Vec<Decision>,
    /// Commits that a writing step sees in all of them, whenever in that step: they came before its own.
    seen: Vec<(CommitId, usize)>,
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
    looked: Option<Footprint>,
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
        for way in ways.found {
            let mut world = world.clone();
            world.share_windows(&task.txn, &alike);
            placed.push(self.adopt(world, task, way));
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
                Placement::Placed(first) => {
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

    /// Those whose turn is still to come and that may have come before, where that matters. `None` if there are too
    /// many, or one of them changes more than rows.
    fn quicker(
        &mut self,
        world: &mut World,
        task: &Task,
        ways: &mut Explanations,
        ahead: &Ahead<'_>,
        under: &Under,
        budget: &mut Budget,
    ) -> Option<Rivals> {
        let unexplained = ways
            .found
            .is_empty()
            .then(|| world.run_anyway(&task.txn, &task.rules, &task.session, &self.planner));
        let writes = match (&unexplained, ways.found.first()) {
            (Some(attempt), _) => !wrote_nothing(&task.txn, attempt),
            (None, way) => way.is_some_and(|way| !way.attempt.overlay.is_empty()),
        };
        let asked = ways.found.iter().any(|way| !way.facts.is_empty());
        if !task.is_committed() || !(writes || asked) {
            // What a transaction without effects saw is tried again when the others have been placed.
            ways.found.iter_mut().for_each(|way| {
                if ahead
                    .sequencer
                    .hasty_before(last_done(&task.txn))
                    .next()
                    .is_some()
                {
                    way.facts.clear();
                }
            });
            return Some(Rivals::default());
        }
        let attempt = unexplained
            .as_ref()
            .or(ways.found.first().map(|way| &way.attempt));
        let Some(attempt) = attempt else {
            return Some(Rivals::default());
        };
        let others = quick_before(world, task, ahead, under);
        if others.is_empty() {
            return Some(Rivals::default());
        }
        let own = match ways.looked.take().filter(|_| ways.is_stuck()) {
            // Nobody else can change that nothing explains it.
            Some(looked) => looked,
            None if attempt.calls && unexplained.is_some() => {
                world.reach(&task.txn, &task.rules, &task.session, &self.planner)
            }
            None => Footprint::new(&task.txn, attempt, &world.store),
        };
        let own = Arc::new(own);
        let only_effects = unexplained.is_none() && writes;
        let rivals = self.contenders(world, task, &own, only_effects, others)?;
        if !rivals.is_empty() {
            ways.found.iter_mut().for_each(|way| way.facts.clear());
        }
        if !writes {
            return Some(Rivals::default());
        }
        let mut found = Rivals::default();
        let most = match ways.is_stuck() {
            true => RIVALS_OF_STUCK_MAX,
            false => RIVALS_MAX,
        };
        let mut after = None;
        for (rival, footprint) in rivals {
            let blind = own.is_blind && footprint.is_blind;
            let pair = match ways.found.len() {
                // None of the two notices the other, so it is not explained by it, nor is anything else.
                0 if !own.heeds(&footprint) && !footprint.heeds(&own) => Pair::Early(None),
                1 if blind && is_same(&task.txn, &rival.txn) => Pair::Same,
                1 => match self.obvious(world, (task, &own), &rival) {
                    Some(pair) => pair,
                    None if let Some(between) = Between::of_heedless(&own, &footprint) => {
                        Pair::Commuting(Some(Arc::new(between)))
                    }
                    None => self.compare(world, (task, &rival), (&own, &footprint), &mut after, budget),
                },
                _ => Pair::Different,
            };
            if !matches!(pair, Pair::Different) {
                // It may have come before all the same, and have shown what somebody else is thought to have shown.
                ways.found.iter_mut().for_each(|way| way.seen.clear());
            }
            match pair {
                // Whoever looks in between sees the same.
                Pair::Same => found.alike.push(rival.txn),
                Pair::Early(between) => {
                    self.take_one_order(world, [(task, own.clone()), (&rival, footprint)], between);
                }
                Pair::Commuting(between) => {
                    let watched = self.watched(world, (task, &rival), between.as_deref(), ahead);
                    let is_taken = match watched {
                        Watched::ByNobody => continue,
                        Watched::BySomebody => budget.is_lazy() || found.rivals.len() == RIVALS_MAX,
                        Watched::Perhaps => between.is_some() || budget.is_lazy(),
                    };
                    if is_taken {
                        let pair = [(task, own.clone()), (&rival, footprint)];
                        self.take_one_order(world, pair, between);
                    } else {
                        found.rivals.push(rival);
                    }
                }
                _ if found.rivals.len() == most => return None,
                _ => found.rivals.push(rival),
            }
        }
        Some(found)
    }

    /// Those of the others who would have mattered to a transaction with this footprint, with `only_effects`
    /// to what it wrote, had they come before. `None` if one of them changes more than rows.
    fn contenders(
        &mut self,
        world: &mut World,
        task: &Task,
        own: &Footprint,
        only_effects: bool,
        others: Vec<Arc<Transaction>>,
    ) -> Option<Vec<(Task, Arc<Footprint>)>> {
        let mut found = Vec::new();
        for other in others {
            if self.extent(world, &other).is_some_and(|extent| !extent.writes)
                || self.spot(world, &other).is_some_and(|spot| spot.misses(own))
            {
                continue;
            }
            let other = self.task(&other);
            let footprint = self.effects(world, &other);
            let matters = own.depends_on(&task.txn, &footprint, other.txn.sent(), only_effects);
            if !footprint.writes() || !matters {
                continue;
            }
            if footprint.beyond_rows {
                return None;
            }
            found.push((other, footprint));
        }
        Some(found)
    }

    /// Where somebody reads and writes that may have come before: it may be anywhere once others have come before it, if it
    /// does not do what its answers say as things are.
    pub(super) fn effects(&mut self, world: &mut World, other: &Task) -> Arc<Footprint> {
        let footprint = world.footprint(&other.txn, &other.rules, &other.session, &self.planner);
        match footprint.let_loose() {
            Some(loose) => Arc::new(loose),
            None => footprint,
        }
    }

    /// Of two writers one order is taken: whoever can tell which was first may be explained by the other one.
    fn take_one_order(
        &mut self,
        world: &mut World,
        pair: [(&Task, Arc<Footprint>); 2],
        between: Option<Arc<Between>>,
    ) {
        let until = pair.iter().map(|(task, _)| task.txn.end.window().done);
        let until = until.max().unwrap_or_default();
        if let Some(between) = between {
            let by = pair[0].0.txn.id;
            let written = Wrote::Between(between);
            return world.take_one_order(&Taken { by, written, until });
        }
        for (task, footprint) in pair {
            let written = match self.spot_of(world, task, &footprint) {
                Some(spot) => Wrote::At(spot),
                None => Wrote::Rows(footprint),
            };
            let by = task.txn.id;
            world.take_one_order(&Taken { by, written, until });
        }
    }

    /// Whether somebody may have looked between two writers and can tell which of them was first.
    fn watched(
        &mut self,
        world: &mut World,
        (a, b): (&Task, &Task),
        between: Option<&Between>,
        ahead: &Ahead<'_>,
    ) -> Watched {
        let sent = a.txn.sent().min(b.txn.sent());
        let done = a.txn.end.window().done.max(b.txn.end.window().done);
        // Those that nothing explains yet, and those whose turn is still to come.
        let waiting = self.waiting.iter().map(|waiting| &waiting.task.txn);
        let mut watchers: Vec<Arc<Transaction>> = waiting
            .filter(|other| world.waiting.contains(&other.id))
            .cloned()
            .collect();
        if !world.waiting.is_empty() && (between.is_none() || watchers.len() < world.waiting.len()) {
            return Watched::BySomebody;
        }
        for other in ahead.sequencer.upcoming() {
            if other.id == a.txn.id || other.id == b.txn.id || other.sent() > done {
                continue;
            }
            let is_plain = match between {
                Some(_) => matches!(other.end, End::Committed(_) | End::Aborted(_)),
                None => matches!(other.end, End::Committed(_)) && !other.is_spread(),
            };
            let is_over = other.end.window().done < sent;
            match (is_plain, is_over && between.is_some()) {
                (_, true) => {}
                (true, _) if !is_over => watchers.push(other.clone()),
                _ => return Watched::BySomebody,
            }
        }
        let written = world.footprint(&b.txn, &b.rules, &b.session, &self.planner);
        let at = self.spot(world, &b.txn);
        // Those first of whom it is known where they look.
        watchers.sort_by_key(|other| !world.footprints.contains_key(&other.id));
        let can_tell = watchers.iter().any(|other| {
            if let (Some(between), Some(extent)) = (between, self.extent(world, other))
                && !extent.may_tell(between)
            {
                return false;
            }
            if let (Some(at), Some(spot)) = (&at, self.spot(world, other))
                && spot.is_beside(at)
            {
                return false;
            }
            let other = self.task(other);
            let footprint = world.footprint(&other.txn, &other.rules, &other.session, &self.planner);
            match between {
                // Where its own place among writers matters it is looked for.
                Some(_) if footprint.is_blind && !other.txn.is_spread() => false,
                Some(between) => footprint.beyond_rows || footprint.tells(between),
                None => !footprint.is_blind && footprint.sees(&written),
            }
        });
        match (can_tell, ahead.assembler.open_before(done).is_empty()) {
            (true, _) => Watched::BySomebody,
            (false, true) => Watched::ByNobody,
            (false, false) => Watched::Perhaps,
        }
    }

    /// What the order of two writers changes, where their statements say it.
    fn obvious(&mut self, world: &mut World, a: (&Task, &Footprint), b: &Task) -> Option<Pair> {
        let (one, other) = (self.spot_of(world, a.0, a.1)?, self.spot(world, &b.txn)?);
        match one.commutes(&other)? {
            true => Some(Pair::Commuting(None)),
            false => Some(Pair::Different),
        }
    }

    /// What the order of two writers changes; `after` is what comes of the first one, once that is known.
    fn compare(
        &mut self,
        world: &World,
        (a, b): (&Task, &Task),
        footprints: (&Footprint, &Footprint),
        after: &mut Option<Then>,
        budget: &mut Budget,
    ) -> Pair {
        self.births.remembers = true;
        let after_b = self.then(world, b, budget);
        // Where it is not explained as things are, it may be by others that come before: what it does is the same.
        let is_early = matches!(after_b, Then::None);
        let after_b = match after_b {
            Then::One(after) => after,
            Then::None if !footprints.0.heeds(footprints.1) && !footprints.1.heeds(footprints.0) => {
                self.then_anyway(world, b)
            }
            _ => return Pair::Different,
        };
        let Then::One(after_a) = after.get_or_insert_with(|| self.then(world, a, budget)) else {
            return Pair::Different;
        };
        let after_ab = match is_early {
            true => self.then_anyway(after_a, b),
            false => match self.then(after_a, b, budget) {
                Then::One(after) => after,
                _ => return Pair::Different,
            },
        };
        let Then::One(after_ba) = self.then(&after_b, a, budget) else {
            return Pair::Different;
        };
        if !merge::same_after(&after_ab, &after_ba) {
            return Pair::Different;
        }
        if !is_early && merge::same_after(after_a, &after_b) {
            return Pair::Same;
        }
        let between = Between::of(world, (after_a, footprints.0), (&after_b, footprints.1));
        let between = Some(Arc::new(between));
        match is_early {
            true => Pair::Early(between),
            false => Pair::Commuting(between),
        }
    }

    /// The world after a transaction that it explains in one way only.
    fn then(&mut self, world: &World, task: &Task, budget: &mut Budget) -> Then {
        let mut ways = self.explanations(world, task, None, budget);
        match (ways.found.pop(), ways.found.is_empty(), ways.complete) {
            (Some(mut way), true, true) => {
                way.seen.clear();
                Then::One(Box::new(self.adopt(world.sketch(), task, way).0))
            }
            (None, _, true) => Then::None,
            _ => Then::Several,
        }
    }

    /// The world after a transaction, whether or not it explains it.
    fn then_anyway(&mut self, world: &World, task: &Task) -> Box<World> {
        let attempt = world.run_anyway(&task.txn, &task.rules, &task.session, &self.planner);
        let mut after = world.sketch();
        after.apply(&task.txn, &attempt, &mut self.births);
        Box::new(after)
    }

    /// Takes an explanation for true.
    pub fn adopt(&mut self, mut world: World, task: &Task, way: Explanation) -> (World, Arc<Explained>) {
        let Explanation {
            mut attempt,
            decisions,
            facts,
            seen,
        } = way;
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
    fn is_stuck(&self) -> bool {
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

/// Those whose turn is still to come and who may have been quicker than it and all those `under` which it is placed.
fn quick_before(world: &World, task: &Task, ahead: &Ahead<'_>, under: &Under) -> Vec<Arc<Transaction>> {
    let until = last_done(&task.txn).min(under.until);
    let hasty = ahead.sequencer.hasty_before(until);
    let is_other =
        |y: &&Arc<Transaction>| y.id != task.txn.id && !under.ids.contains(&y.id) && !world.is_ahead(y.id);
    hasty.filter(is_other).cloned().collect()
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

/// Whether two transactions asked for the very same: whoever came first did what the other would have done.
fn is_same(a: &Transaction, b: &Transaction) -> bool {
    a.level == b.level
        && a.steps.len() == b.steps.len()
        && a.steps.iter().zip(&b.steps).all(|(a, b)| {
            let tag = |o: &Outcome| match o {
                Outcome::Answer(answer) => answer.tag.clone(),
                _ => None,
            };
            a.seen.text == b.seen.text
                && a.seen.part == b.seen.part
                && a.seen.parameters == b.seen.parameters
                && tag(&a.seen.outcome) == tag(&b.seen.outcome)
        })
}

/// When the last of its statements had been answered.
fn last_done(txn: &Transaction) -> Nanos {
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
