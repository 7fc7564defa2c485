//! Which commits did a snapshot see, if its totals are to come out as they did?
//!
//! In: commits that the windows leave open, what is known of their order, and for every number in the
//! answer what it would be without them and how much each of them adds to it. Out: a set of commits that
//! gives exactly these numbers, or the certainty that there is none.
//!
//! A sum over many rows with k overlapping commits has up to 2^k right answers: trying them one by one is
//! hopeless, one linear equation per number is not.
//!
//! Always true: running out of time is its own answer, never «none».

use z3::ast::{Bool, Int};
use z3::{Params, SatResult, Solver};

/// One number of the answer: `base + Σ deltas of the seen commits = observed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Total {
    pub base: i64,
    pub deltas: Vec<i64>,
    pub observed: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Question {
    /// How many commits are open.
    pub commits: usize,
    /// Whoever sees the first also sees the second.
    pub implies: Vec<(usize, usize)>,
    pub totals: Vec<Total>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// For every commit whether it is seen.
    Seen(Vec<bool>),
    None,
    OutOfTime,
}

/// Solves the question within `ms_max` milliseconds.
pub fn solve(question: &Question, ms_max: u32) -> Answer {
    let solver = Solver::new();
    let mut params = Params::new();
    params.set_u32("timeout", ms_max);
    solver.set_params(&params);
    let seen: Vec<Bool> = (0..question.commits)
        .map(|at| Bool::new_const(format!("seen{at}")))
        .collect();
    for (a, b) in &question.implies {
        solver.assert(seen[*a].implies(&seen[*b]));
    }
    let zero = Int::from_i64(0);
    for total in &question.totals {
        let added: Vec<Int> = total
            .deltas
            .iter()
            .enumerate()
            .filter(|(_, delta)| **delta != 0)
            .map(|(at, delta)| seen[at].ite(&Int::from_i64(*delta), &zero))
            .collect();
        let sum = Int::add(&added.iter().collect::<Vec<_>>());
        let sum = if added.is_empty() { zero.clone() } else { sum };
        solver.assert(Int::add(&[&Int::from_i64(total.base), &sum]).eq(Int::from_i64(total.observed)));
    }
    match solver.check() {
        SatResult::Unsat => Answer::None,
        SatResult::Unknown => Answer::OutOfTime,
        SatResult::Sat => {
            let Some(model) = solver.get_model() else {
                return Answer::OutOfTime;
            };
            let value = |b: &Bool| model.eval(b, true).and_then(|v| v.as_bool()).unwrap_or(false);
            Answer::Seen(seen.iter().map(value).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_one_set_that_adds_up() {
        let deltas: Vec<i64> = (0..40)
            .map(|at| 3i64.pow(at % 20) * if at < 20 { 1 } else { -1 })
            .collect();
        let observed = 1000 + deltas[3] + deltas[17] + deltas[22];
        let question = Question {
            commits: 40,
            implies: vec![],
            totals: vec![Total {
                base: 1000,
                deltas: deltas.clone(),
                observed,
            }],
        };
        let Answer::Seen(seen) = solve(&question, 60_000) else {
            panic!("there is a set")
        };
        let sum: i64 = seen
            .iter()
            .zip(&deltas)
            .filter(|(s, _)| **s)
            .map(|(_, d)| d)
            .sum();
        assert_eq!(1000 + sum, observed);
    }

    #[test]
    fn order_rules_sets_out() {
        let total = Total {
            base: 0,
            deltas: vec![1, 2],
            observed: 2,
        };
        let free = Question {
            commits: 2,
            implies: vec![],
            totals: vec![total.clone()],
        };
        assert_eq!(solve(&free, 60_000), Answer::Seen(vec![false, true]));
        // Whoever sees the second has seen the first.
        let chained = Question {
            commits: 2,
            implies: vec![(1, 0)],
            totals: vec![total],
        };
        assert_eq!(solve(&chained, 60_000), Answer::None);
    }
}
