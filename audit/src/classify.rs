//! Gives a violation the name that the literature has for it.
//!
//! In: what was proved impossible. Out: a rule of the catalogue.
//!
//! The name is found by asking which weaker promise *would* have explained the answer: an older
//! snapshot is a stale read, another snapshot within the same transaction is read skew or a phantom,
//! somebody's rolled back write is an aborted read. If nothing would, it is a matter of semantics, and the
//! difference itself names the rule.

use crate::assemble::{Step, Transaction};
use crate::certify::{Node, REAL_TIME, is_over_same};
use crate::explain::run::{Scene, run};
use crate::explain::session::SessionState;
use crate::explain::world::World;
use crate::explain::{Explainer, Suspect};
use crate::interpret::Heed;
use crate::points::{Chooser, CommitId, Order};
use crate::trace::{Nanos, Observation, Window};
use crate::verdict::Coverage;
use pgassay_rules::profile::{LevelRules, Profile, ReadPoint, Writes};
use pgassay_rules::{Level, Rule, anomaly};
use std::cell::RefCell;
use std::sync::Arc;

/// Rules about content, which another view of the state may explain.
fn is_about_content(rule: &Rule) -> bool {
    ["missing_row", "extra_row", "wrong_value", "wrong_count"].contains(&rule.name)
}

/// Names what was proved in `world`, where the suspect itself is `commit`.
pub fn suspect(
    suspect: &Suspect,
    world: &World,
    commit: Option<CommitId>,
    explainer: &Explainer,
) -> &'static Rule {
    let place = Place {
        world,
        commit,
        explainer,
    };
    let found = suspect.difference.rule;
    if !is_about_content(found) {
        return found;
    }
    let txn = &suspect.txn;
    let weak = statement_snapshots();
    // Every answer alone is fine, had nobody waited for anybody, but not together with what others saw?
    let unlocked = LevelRules {
        mutual_exclusion: false,
        writes: match suspect.rules.writes {
            Writes::FirstUpdaterWins | Writes::NoWriteConflict => Writes::Any,
            other => other,
        },
        ..suspect.rules
    };
    if explains_in(suspect, txn, &unlocked, &place, &world.order.without_facts()) {
        // What one writer made of a row was not there for the next one.
        return match writes(&txn.steps[suspect.step].seen.text) {
            true => &anomaly::LOST_UPDATE,
            false => &anomaly::LONG_FORK,
        };
    }
    // Another snapshot for this statement alone?
    if suspect.rules.read_point != ReadPoint::Statement
        && suspect.step > 0
        && explains(suspect, txn, &weak, &place)
    {
        let rows = ["missing_row", "extra_row", "wrong_count"].contains(&found.name);
        return if rows {
            &anomaly::PHANTOM
        } else {
            &anomaly::READ_SKEW
        };
    }
    // Without what it wrote itself?
    let alone = only_step(txn, suspect.step, |window| window);
    if suspect.step > 0 && explains(suspect, &alone, &weak, &place) {
        return &anomaly::INTERNAL;
    }
    let past = only_step(txn, suspect.step, |window| Window::new(0, window.done));
    if explains(suspect, &past, &weak, &place) {
        return &anomaly::STALE_READ;
    }
    // With the writes of a transaction that was rolled back, or not yet committed?
    if rolled_back(suspect, world, commit, explainer).is_some() {
        return &anomaly::ABORTED_READ;
    }
    if let Some((_, rule)) = unfinished(suspect, world, commit, explainer) {
        return rule;
    }
    let future = only_step(txn, suspect.step, |window| {
        Window::new(window.sent, Nanos::MAX - 1)
    });
    if explains(suspect, &future, &weak, &place) {
        return &anomaly::FUTURE_READ;
    }
    if found.name == "wrong_value" && !txn.steps[suspect.step].seen.text.contains('(') {
        return &anomaly::GARBAGE_READ;
    }
    found
}

/// The transaction that was rolled back and whose writes the suspect saw, if there is one.
pub fn rolled_back(
    suspect: &Suspect,
    world: &World,
    commit: Option<CommitId>,
    explainer: &Explainer,
) -> Option<Arc<Transaction>> {
    let place = Place {
        world,
        commit,
        explainer,
    };
    let weak = statement_snapshots();
    // Whoever began after the answer had nothing to show.
    let answered = suspect.txn.steps[suspect.step].seen.window.done;
    let mut writers = explainer
        .recent_aborted()
        .filter(|other| other.sent() <= answered);
    let seen = |other: &&Arc<Transaction>| {
        let grafted = graft(other, usize::MAX, &suspect.txn, suspect.step);
        explains(suspect, &grafted, &weak, &place)
    };
    writers.find(seen).cloned()
}

/// The transaction whose writes the suspect saw before it had finished, and what that is called.
pub fn unfinished(
    suspect: &Suspect,
    world: &World,
    commit: Option<CommitId>,
    explainer: &Explainer,
) -> Option<(Arc<Transaction>, &'static Rule)> {
    let place = Place {
        world,
        commit,
        explainer,
    };
    let (txn, weak) = (&suspect.txn, statement_snapshots());
    let asked = txn.steps[suspect.step].seen.window.sent;
    // What had ended was there already: whoever sees it twice sees nobody's work.
    let was_open = |other: &&Arc<Transaction>| other.id != txn.id && other.end.window().done >= asked;
    for other in explainer.recent_committed().filter(was_open) {
        for keep in 1..other.steps.len() {
            if explains(suspect, &graft(other, keep, txn, suspect.step), &weak, &place) {
                let more = other.steps[keep..].iter().any(|s| writes(&s.seen.text));
                let rule = match (more, saw(other, txn)) {
                    (true, _) => &anomaly::INTERMEDIATE_READ,
                    (false, true) => &anomaly::CIRCULAR_INFORMATION_FLOW,
                    (false, false) => &anomaly::FUTURE_READ,
                };
                return Some((other.clone(), rule));
            }
        }
    }
    None
}

/// What READ COMMITTED promises: the weakest view that another snapshot could have given.
pub fn statement_snapshots() -> LevelRules {
    let profile = Profile::named("postgres").expect("the profile is built in");
    let rules = profile.level(Level::ReadCommitted);
    LevelRules {
        mutual_exclusion: false,
        ..*rules.expect("the profile has this level")
    }
}

fn step_with(step: &Step, window: impl Fn(Window) -> Window) -> Step {
    let seen = Observation {
        window: window(step.seen.window),
        ..(*step.seen).clone()
    };
    Step {
        control: step.control.clone(),
        seen: Arc::new(seen),
    }
}

/// The one step, as a transaction of its own.
pub fn only_step(txn: &Transaction, step: usize, window: impl Fn(Window) -> Window) -> Transaction {
    Transaction {
        steps: vec![step_with(&txn.steps[step], window)],
        ..txn.clone()
    }
}

/// The first `keep` steps of another transaction, then the step in question.
fn graft(other: &Transaction, keep: usize, txn: &Transaction, step: usize) -> Transaction {
    let mut steps: Vec<Step> = other.steps.iter().take(keep).cloned().collect();
    steps.push(step_with(&txn.steps[step], |w| w));
    Transaction { steps, ..txn.clone() }
}

fn writes(text: &str) -> bool {
    let word: String = text
        .trim_start()
        .chars()
        .take_while(|c| c.is_ascii_alphabetic())
        .collect();
    ["insert", "update", "delete", "merge", "with", "copy", "truncate"]
        .contains(&word.to_ascii_lowercase().as_str())
}

/// Whether `other`, too, was under way while `txn` wrote, and read after it.
fn saw(other: &Transaction, txn: &Transaction) -> bool {
    let first_write = txn.steps.iter().find(|s| writes(&s.seen.text));
    first_write.is_some_and(|w| {
        other.steps.iter().any(|s| {
            !writes(&s.seen.text)
                && s.control == crate::control::Control::Data
                && s.seen.window.sent > w.seen.window.done
        })
    })
}

/// Whether the last step of `variant` agrees under some choice.
fn explains(suspect: &Suspect, variant: &Transaction, rules: &LevelRules, place: &Place<'_>) -> bool {
    explains_in(suspect, variant, rules, place, &place.world.order)
}

/// Where a suspect is looked at.
struct Place<'a> {
    world: &'a World,
    commit: Option<CommitId>,
    explainer: &'a Explainer,
}

fn explains_in(
    suspect: &Suspect,
    variant: &Transaction,
    rules: &LevelRules,
    place: &Place<'_>,
    order: &Order,
) -> bool {
    let scene = Scene {
        store: &place.world.store,
        order,
        planner: &place.explainer.planner,
        hidden: place.commit,
    };
    let chooser = RefCell::new(Chooser::default());
    let last = if variant.steps.len() == suspect.txn.steps.len() {
        suspect.step
    } else {
        variant.steps.len() - 1
    };
    for _ in 0..64 {
        let attempt = run(variant, rules, &scene, &suspect.session, &chooser, Heed::Compared);
        // An answer that only agrees because something is unknown explains nothing.
        let firm = attempt.judged[last]
            .as_ref()
            .is_some_and(|j| j.coverage == Coverage::Checked);
        let wrong_here = attempt.wrong_steps.contains(&last);
        if firm && !wrong_here && !chooser.borrow().is_contradiction() {
            return true;
        }
        if !chooser.borrow_mut().next() {
            return false;
        }
    }
    false
}

/// Names a cycle by its edges.
pub fn cycle(cycle: &[(Node, &'static str)]) -> &'static Rule {
    let rw = cycle.iter().filter(|(_, kind)| *kind == "rw").count();
    if cycle.iter().any(|(_, kind)| *kind == REAL_TIME) {
        return &anomaly::SERIALIZATION;
    }
    if rw == 0 {
        let all_ww = cycle.iter().all(|(_, kind)| *kind == "ww");
        return if all_ww {
            &anomaly::DIRTY_WRITE
        } else {
            &anomaly::CIRCULAR_INFORMATION_FLOW
        };
    }
    let share_a_row = cycle.iter().enumerate().any(|(at, (node, kind))| {
        let (next, _) = &cycle[(at + 1) % cycle.len()];
        *kind == "rw" && overwrite_same(node, next)
    });
    if share_a_row {
        return &anomaly::LOST_UPDATE;
    }
    if rw == 1 {
        &anomaly::READ_SKEW
    } else {
        &anomaly::WRITE_SKEW
    }
}

/// Whether both wrote a version of the same row.
fn overwrite_same(a: &Node, b: &Node) -> bool {
    let chained = |x: &Node, y: &Node| {
        x.writes.iter().any(|w| {
            y.writes.iter().any(|o| match (&w.after, &o.before) {
                (Some(after), Some(before)) => w.table == o.table && Arc::ptr_eq(after, before),
                _ => false,
            })
        })
    };
    let over_same = || {
        a.writes
            .iter()
            .any(|w| b.writes.iter().any(|o| is_over_same(w, o)))
    };
    chained(a, b) || chained(b, a) || over_same()
}

/// The shape of the statement whose answer is wrong.
pub fn shape(suspect: &Suspect, explainer: &Explainer) -> Arc<str> {
    shape_of(&suspect.txn.steps[suspect.step], &suspect.session, explainer)
}

fn shape_of(step: &Step, session: &SessionState, explainer: &Explainer) -> Arc<str> {
    let types: Vec<u32> = step.seen.parameters.iter().map(|p| p.type_oid).collect();
    let catalog = &explainer.world().store.catalog;
    let plan = explainer.planner.plan(
        catalog,
        &step.seen.text,
        step.seen.part,
        &session.settings,
        &types,
    );
    plan.planned.shape.clone()
}

/// The statement shapes of a cycle, for its fingerprint.
pub fn shapes(cycle: &[(Node, &'static str)], explainer: &Explainer) -> Vec<Arc<str>> {
    let mut shapes = Vec::new();
    for (node, _) in cycle {
        for step in &node.txn.steps {
            if step.control != crate::control::Control::Data {
                continue;
            }
            shapes.push(shape_of(step, &node.session, explainer));
        }
    }
    shapes
}
