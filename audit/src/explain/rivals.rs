//! Who else may have come before a transaction, and whether that matters.
//!
//! In: a world, a transaction whose turn it is, and the ways that explain it there. Out: its [`Rivals`]: those who were on
//! the way at the same time, may have been quicker, and wrote what it reads or writes.
//!
//! Always true: whoever is left out leaves the same behind in either order, and nobody can tell which it was.

use super::between::Between;
use super::budget::Budget;
use super::footprint::Footprint;
use super::place::{Explanations, Task, Under, last_done, wrote_nothing};
use super::world::{Taken, World, Wrote};
use super::{Ahead, Explainer, merge};
use crate::assemble::{End, Transaction};
use crate::trace::{Nanos, Outcome};
use pgassay_rules::profile::AbortedReads;
use std::sync::Arc;

/// More than so many that may all have come before one, and before each other, have more orders than are tried.
const RIVALS_MAX: usize = 6;
/// The same, where nothing explains it as things are: few of them can come first.
const RIVALS_OF_STUCK_MAX: usize = 24;

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
pub(super) enum Then {
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
pub(super) struct Rivals {
    /// Where it matters who came first.
    pub(super) rivals: Vec<Task>,
    /// Where nobody can tell.
    pub(super) alike: Vec<Arc<Transaction>>,
}

impl Explainer {
    /// Those whose turn is still to come and that may have come before, where that matters. `None` if there are too
    /// many, or one of them changes more than rows.
    pub(super) fn quicker(
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
    pub(super) fn contenders(
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
            self.take_one_place(world, task, footprint, until);
        }
    }

    /// Of a writer one place among others was taken: whoever can tell may be explained by another one, until all had ended.
    pub(super) fn take_one_place(
        &mut self,
        world: &mut World,
        task: &Task,
        footprint: Arc<Footprint>,
        until: Nanos,
    ) {
        let written = match self.spot_of(world, task, &footprint) {
            Some(spot) => Wrote::At(spot),
            None => Wrote::Rows(footprint),
        };
        let by = task.txn.id;
        world.take_one_order(&Taken { by, written, until });
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
        for other in ahead.sequencer.upcoming(done) {
            if other.id == a.txn.id || other.id == b.txn.id {
                continue;
            }
            let tells_nothing = || self.rules_of(other.level).aborted_reads == AbortedReads::Anything;
            if matches!(other.end, End::Aborted(_)) && tells_nothing() {
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
    pub(super) fn then(&mut self, world: &World, task: &Task, budget: &mut Budget) -> Then {
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
}

/// Those whose turn is still to come and who may have been quicker than it and all those `under` which it is placed.
pub(super) fn quick_before(
    world: &World,
    task: &Task,
    ahead: &Ahead<'_>,
    under: &Under,
) -> Vec<Arc<Transaction>> {
    let until = last_done(&task.txn).min(under.until);
    let hasty = ahead.sequencer.hasty_before(until);
    let is_other =
        |y: &&Arc<Transaction>| y.id != task.txn.id && !under.ids.contains(&y.id) && !world.is_ahead(y.id);
    hasty.filter(is_other).cloned().collect()
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
