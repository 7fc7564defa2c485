//! Asks the solver which commits a transaction saw, where there are too many ways to try them one by one.
//!
//! In: a world and a transaction that none of the first tries explained. Out: ways that explain it; or the certainty
//! that there is none; or nothing, if the solver has no say.
//!
//! Of the statements that read, those count to which every row gives its own part: a list of rows, a count, a sum, also
//! by group. Each of their answers is an equation over the commits that are open. A set of commits that satisfies all
//! of them is run like any other choice before it is believed; if it is wrong all the same, that is one more thing that
//! the solver is told.
//!
//! Always true: «none» is said only where no set of commits satisfies equations that every right set satisfies.

use super::Explainer;
use super::asked::Asked;
use super::budget::{Budget, spend};
use super::place::{Explanation, Explanations, Task};
use super::run::{SNAPSHOT, Scene, is_statement_level};
use super::world::World;
use crate::assemble::Step;
use crate::control::Control;
use crate::interpret::{Expect, Heed, Views};
use crate::points::{Chooser, CommitId, PointId};
use crate::solve::alone::{Alone, Without};
use crate::solve::chains::{OpenRows, open_rows};
use crate::solve::linear::Linear;
use crate::solve::smt::{self, Answer, Question};
use crate::state::overlay::Overlay;
use crate::state::reader::Reader;
use crate::state::view::Focus;
use crate::state::{Row, RowId, TableId, View};
use crate::trace::{Outcome, Status, Window};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Commits, each at every snapshot that may have seen it, beyond which the solver is not asked.
const COMMITS_MAX: usize = 256;
/// Sets of commits that are tried, and how often each of them where more than that is open.
const SETS_MAX: usize = 16;
const RUNS_MAX: usize = 16;

/// What the solver was asked, and how long it took: the only thing here that looks at a clock, and nothing is decided
/// by it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    pub questions: u64,
    pub out_of_steps: u64,
    pub time: Duration,
}

/// A question as it is put together.
struct Asking<'a> {
    world: &'a World,
    task: &'a Task,
    scene: &'a Scene<'a>,
    question: Question,
    /// The commits, and the points that may have seen them.
    places: Vec<(CommitId, PointId)>,
    numbers: BTreeMap<(CommitId, PointId), usize>,
}

impl Explainer {
    /// Which commits a transaction saw, if equations tell. `None`: they do not.
    pub(super) fn solved(
        &self,
        world: &World,
        task: &Task,
        hidden: Option<CommitId>,
        budget: &mut Budget,
    ) -> Option<Explanations> {
        let scene = world.scene(&self.planner, hidden);
        let mut asking = Asking::new(world, task, &scene);
        asking.read(budget)?;
        let mut all = Explanations::default();
        let mut certain = true;
        for _ in 0..SETS_MAX {
            let seen = match self.ask(|steps| smt::solve(&asking.question, steps)) {
                Answer::Seen(seen) => seen,
                Answer::None => {
                    all.complete = certain;
                    break;
                }
                Answer::OutOfSteps => {
                    let mut effort = self.effort.get();
                    effort.out_of_steps += 1;
                    self.effort.set(effort);
                    break;
                }
            };
            let given = asking.places.iter().copied().zip(seen.iter().copied());
            let chooser = RefCell::new(Chooser::guided(given.collect()));
            let mut tried = Explanations::default();
            self.enumerate(task, &scene, &chooser, RUNS_MAX, budget, &mut tried);
            // These together came to what they came to: other sets have one of them different.
            let used = chooser.borrow().used_given().clone();
            let used = used.iter().map(|(place, seen)| (asking.numbers[place], *seen));
            let used: Vec<(usize, bool)> = used.collect();
            certain &= tried.complete;
            all.difference = all.difference.or(tried.difference);
            let has_effects = |way: &Explanation| task.is_committed() && !way.attempt.overlay.is_empty();
            let settled = tried
                .found
                .first()
                .is_some_and(|way| !has_effects(way) || is_statement_level(&task.rules));
            if settled {
                // What else its reading statements may have seen changes nothing.
                let forced = self.ask(|steps| smt::forced(&asking.question, &seen, steps));
                for way in &mut tried.found {
                    let writes = has_effects(way);
                    way.facts.retain(|d| {
                        let at = asking.numbers.get(&(d.commit, d.point));
                        !writes && at.is_some_and(|at| forced[*at] && seen[*at] == d.visible)
                    });
                }
                all.complete = tried.complete;
                all.found = tried.found;
                break;
            }
            for way in tried.found {
                all.add(way.attempt, way.decisions, Vec::new(), task.is_committed());
            }
            if used.is_empty() {
                all.complete = certain;
                break;
            }
            asking.question.wrong.push(used);
        }
        let certain = all.complete;
        for way in &mut all.found {
            way.attempt.solved = true;
            way.facts.retain(|_| certain);
        }
        (all.complete || !all.found.is_empty()).then_some(all)
    }

    fn ask<T>(&self, ask: impl FnOnce(u32) -> T) -> T {
        let begun = Instant::now();
        let answer = ask(self.limits.solver_steps_max);
        let effort = self.effort.get();
        self.effort.set(Effort {
            questions: effort.questions + 1,
            time: effort.time + begun.elapsed(),
            ..effort
        });
        answer
    }
}

impl<'a> Asking<'a> {
    fn new(world: &'a World, task: &'a Task, scene: &'a Scene<'a>) -> Asking<'a> {
        Asking {
            world,
            task,
            scene,
            question: Question::default(),
            places: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Makes equations of what the transaction read. `None`: there are none.
    fn read(&mut self, budget: &mut Budget) -> Option<()> {
        let Task { txn, rules, session } = self.task;
        if !spend(&mut budget.runs) {
            return None;
        }
        let attempt = self.world.run_anyway(txn, rules, session, self.scene.planner);
        let beyond_rows = attempt.overlay.catalog.is_some() || attempt.overlay.havoc_everything.is_some();
        if beyond_rows || attempt.calls || attempt.changes_session {
            return None;
        }
        let by_statement = is_statement_level(rules);
        let mut snapshot: Option<Window> = None;
        for (at, step) in txn.steps.iter().enumerate() {
            let judged = step.control == Control::Data && step.seen.before != Status::Failed;
            if !judged || matches!(step.seen.outcome, Outcome::Skipped) {
                continue;
            }
            let asked = Asked::of(
                self.scene.planner,
                &self.world.store.catalog,
                &step.seen,
                &attempt.session,
            );
            if !asked.reads_snapshot() {
                continue;
            }
            let (point, window) = match by_statement {
                true => (PointId::read(at), step.seen.window),
                false => (SNAPSHOT, *snapshot.get_or_insert(step.seen.window)),
            };
            let read = Linear::of(&asked.prepared.planned).filter(|_| asked.is_run());
            if let Some(linear) = read
                && !attempt.may_have_written.contains(&linear.table)
            {
                // What cannot be told of one statement may be told of another.
                let _ = self.equate(step, &asked, &linear, point, window);
            }
            if self.places.len() > COMMITS_MAX {
                return None;
            }
        }
        if self.question.totals.is_empty() || self.places.is_empty() {
            return None;
        }
        self.question.commits = self.places.len();
        self.order();
        Some(())
    }

    /// The equations of one statement's answer.
    fn equate(
        &mut self,
        step: &Step,
        asked: &Asked,
        linear: &Linear,
        point: PointId,
        window: Window,
    ) -> Option<()> {
        let Outcome::Answer(answer) = &step.seen.outcome else {
            return None;
        };
        let (store, table) = (&self.world.store, linear.table);
        let open = open_rows(store, self.scene.order, table, window, self.scene.hidden)?;
        let expect = |view: &dyn View| {
            let views = Views {
                snapshot: view,
                latest: view,
                recheck: false,
            };
            let (execution, _) = asked.perform(&step.seen, &self.task.session, views, Heed::Compared);
            execution.expect
        };
        let lone = |id: RowId, row: Option<&Row>| {
            expect(&Alone {
                catalog: &store.catalog,
                table,
                id,
                row,
            })
        };
        if !linear.starts_at_zero(&lone(RowId(0), None)) {
            return None;
        }
        let rest = self.rest(step, asked, table, window, &open, &expect);
        let mut sums = linear.sums();
        sums.add(&rest, None, false)?;
        let mut numbers = self.numbers.clone();
        let mut places = self.places.clone();
        let mut implies = Vec::new();
        for row in &open.rows {
            let mut before = row.base.as_ref().map(|base| lone(row.id, Some(base)));
            if let Some(base) = &before {
                sums.add(base, None, false)?;
            }
            for (commit, version) in &row.versions {
                let at = *numbers.entry((*commit, point)).or_insert_with(|| {
                    places.push((*commit, point));
                    places.len() - 1
                });
                let after = version.as_ref().map(|version| lone(row.id, Some(version)));
                if let Some(after) = &after {
                    sums.add(after, Some(at), false)?;
                }
                if let Some(before) = &before {
                    sums.add(before, Some(at), true)?;
                }
                before = after;
            }
            for pair in row.versions.windows(2) {
                let (earlier, later) = (pair[0].0, pair[1].0);
                if !self.task.rules.mutual_exclusion && !self.scene.order.must_precede(earlier, later) {
                    return None;
                }
                implies.push((numbers[&(later, point)], numbers[&(earlier, point)]));
            }
        }
        let totals = sums.totals(&rest, answer)?;
        (self.numbers, self.places) = (numbers, places);
        self.question.totals.extend(totals);
        self.question.implies.extend(implies);
        for (commit, seen) in open.given {
            if let Some(at) = self.numbers.get(&(commit, point)) {
                self.question.given.push((*at, seen));
            }
        }
        Some(())
    }

    /// What is expected of the rows whose version is certain.
    fn rest(
        &self,
        step: &Step,
        asked: &Asked,
        table: TableId,
        window: Window,
        open: &OpenRows,
        expect: &dyn Fn(&dyn View) -> Expect,
    ) -> Expect {
        let own = Overlay::default();
        let chooser = RefCell::new(Chooser::default());
        let reader = Reader {
            focus: RefCell::new(Focus {
                columns: asked.prepared.planned.columns_read.clone(),
                ..Focus::default()
            }),
            ..self.scene.reader(SNAPSHOT, window, &own, &chooser, &step.seen)
        };
        let rows: BTreeSet<RowId> = open.rows.iter().map(|row| row.id).collect();
        expect(&Without {
            inner: &reader,
            table,
            rows: &rows,
        })
    }

    /// What is known of the order: whoever sees the later also sees the earlier, and goes on seeing it.
    fn order(&mut self) {
        let order = self.scene.order;
        for (a, (later, sees)) in self.places.iter().enumerate() {
            for (b, (earlier, also)) in self.places.iter().enumerate() {
                let same = later == earlier;
                if sees <= also && (a != b) && (same || order.must_precede(*earlier, *later)) {
                    self.question.implies.push((a, b));
                }
            }
        }
    }
}
