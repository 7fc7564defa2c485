//! Which commits did a snapshot see, if its totals are to come out as they did?
//!
//! In: commits that the windows leave open, what is known of their order, and for every number in the
//! answer what it would be without them and how much each of them adds to it. Out: a set of commits that
//! gives exactly these numbers, or the certainty that there is none.
//!
//! A sum over many rows with k overlapping commits has up to 2^k right answers: trying them one by one is
//! hopeless, one linear equation per number is not.
//!
//! Always true:
//!   - running out of steps is its own answer, never «none»;
//!   - the budget is counted in steps of the solver, never in time, and every question is asked in a context of its
//!     own: the same question has the same answer on every machine, whatever was asked before.

use z3::ast::{Bool, Int};
use z3::{Config, Params, SatResult, Solver, with_z3_config};

/// One number of the answer: `base + Σ added by the seen commits`, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Total {
    pub base: i64,
    /// What a commit adds, where it adds anything.
    pub added: Vec<(usize, i64)>,
    pub is: Is,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    Exactly(i64),
    AtLeast(i64),
}

#[derive(Clone, Debug, Default)]
pub struct Question {
    /// How many commits are open: each at every snapshot that may have seen it.
    pub commits: usize,
    /// Whoever sees the first also sees the second.
    pub implies: Vec<(usize, usize)>,
    /// Whether it is seen is known.
    pub given: Vec<(usize, bool)>,
    pub totals: Vec<Total>,
    /// Sets that are known to be wrong: not all of these at once.
    pub wrong: Vec<Vec<(usize, bool)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// For every commit whether it is seen.
    Seen(Vec<bool>),
    None,
    OutOfSteps,
}

/// Solves the question within `steps_max` steps of the solver.
pub fn solve(question: &Question, steps_max: u32) -> Answer {
    alone(|| {
        let (solver, seen) = asserted(question, steps_max);
        match solver.check() {
            SatResult::Unsat => Answer::None,
            SatResult::Unknown => Answer::OutOfSteps,
            SatResult::Sat => {
                let Some(model) = solver.get_model() else {
                    return Answer::OutOfSteps;
                };
                let value = |b: &Bool| model.eval(b, true).and_then(|v| v.as_bool()).unwrap_or(false);
                Answer::Seen(seen.iter().map(value).collect())
            }
        }
    })
}

/// Of an answer to the question, the parts that every answer to it has in common, as far as `steps_max` steps for each
/// tell.
pub fn forced(question: &Question, answer: &[bool], steps_max: u32) -> Vec<bool> {
    alone(|| {
        let (solver, seen) = asserted(question, steps_max);
        let is_forced = |(at, value): (usize, &bool)| {
            let other = if *value { seen[at].not() } else { seen[at].clone() };
            matches!(solver.check_assumptions(&[other]), SatResult::Unsat)
        };
        answer.iter().enumerate().map(is_forced).collect()
    })
}

/// A context that has seen nothing: what was asked before must not change an answer.
fn alone<R: Send + Sync>(ask: impl FnOnce() -> R + Send + Sync) -> R {
    with_z3_config(&Config::new(), ask)
}

fn asserted(question: &Question, steps_max: u32) -> (Solver, Vec<Bool>) {
    let solver = Solver::new();
    let mut params = Params::new();
    params.set_u32("rlimit", steps_max);
    solver.set_params(&params);
    let seen: Vec<Bool> = (0..question.commits as u32).map(Bool::new_const).collect();
    for (a, b) in &question.implies {
        solver.assert(seen[*a].implies(&seen[*b]));
    }
    let literal = |(at, value): &(usize, bool)| {
        if *value {
            seen[*at].clone()
        } else {
            seen[*at].not()
        }
    };
    for given in &question.given {
        solver.assert(literal(given));
    }
    for wrong in &question.wrong {
        let all: Vec<Bool> = wrong.iter().map(literal).collect();
        solver.assert(Bool::and(&all.iter().collect::<Vec<_>>()).not());
    }
    let zero = Int::from_i64(0);
    for total in &question.totals {
        let mut parts = vec![Int::from_i64(total.base)];
        let added = total.added.iter().filter(|(_, adds)| *adds != 0);
        parts.extend(added.map(|(at, adds)| seen[*at].ite(&Int::from_i64(*adds), &zero)));
        let sum = Int::add(&parts.iter().collect::<Vec<_>>());
        solver.assert(match total.is {
            Is::Exactly(observed) => sum.eq(Int::from_i64(observed)),
            Is::AtLeast(least) => sum.ge(Int::from_i64(least)),
        });
    }
    (solver, seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: u32 = 20_000_000;

    fn total(base: i64, deltas: &[i64], observed: i64) -> Total {
        Total {
            base,
            added: deltas.iter().copied().enumerate().collect(),
            is: Is::Exactly(observed),
        }
    }

    #[test]
    fn finds_the_one_set_that_adds_up() {
        let deltas: Vec<i64> = (0..40)
            .map(|at| 3i64.pow(at % 20) * if at < 20 { 1 } else { -1 })
            .collect();
        let observed = 1000 + deltas[3] + deltas[17] + deltas[22];
        let question = Question {
            commits: 40,
            totals: vec![total(1000, &deltas, observed)],
            ..Question::default()
        };
        let Answer::Seen(seen) = solve(&question, STEPS) else {
            panic!("there is a set")
        };
        let all = seen.iter().zip(&deltas).filter(|(seen, _)| **seen);
        assert_eq!(1000 + all.map(|(_, delta)| delta).sum::<i64>(), observed);
        assert_eq!(
            solve(&question, STEPS),
            Answer::Seen(seen),
            "the same question, the same answer"
        );
    }

    #[test]
    fn order_rules_sets_out() {
        let free = Question {
            commits: 2,
            totals: vec![total(0, &[1, 2], 2)],
            ..Question::default()
        };
        assert_eq!(solve(&free, STEPS), Answer::Seen(vec![false, true]));
        assert_eq!(forced(&free, &[false, true], STEPS), [true, true]);
        // Whoever sees the second has seen the first.
        let chained = Question {
            implies: vec![(1, 0)],
            ..free.clone()
        };
        assert_eq!(solve(&chained, STEPS), Answer::None);
        let excluded = Question {
            wrong: vec![vec![(0, false), (1, true)]],
            ..free
        };
        assert_eq!(solve(&excluded, STEPS), Answer::None);
    }

    #[test]
    fn what_can_be_either_is_not_forced() {
        let question = Question {
            commits: 3,
            totals: vec![total(0, &[5, 5, 7], 12)],
            ..Question::default()
        };
        let Answer::Seen(seen) = solve(&question, STEPS) else {
            panic!("there is a set")
        };
        assert_eq!(forced(&question, &seen, STEPS), [false, false, true]);
    }

    #[test]
    fn out_of_steps_is_not_none() {
        // The sum of 60 odd multiples is never one short of an even one; that takes a while to see in this form.
        let deltas: Vec<i64> = (0..60).map(|at| 2 * (7 * at * at + 13 * at) + 2).collect();
        let question = Question {
            commits: 60,
            totals: vec![total(0, &deltas, deltas.iter().sum::<i64>() / 4 * 2 + 2)],
            ..Question::default()
        };
        assert_eq!(solve(&question, 10), Answer::OutOfSteps);
    }
}
