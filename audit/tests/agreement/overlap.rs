//! Stories of clients whose statements are on their way at the same time, each of which takes effect at one instant between its
//! request and its answer: all answers are right, unless one is told to lie.

use crate::judges::{Verdict, audit_within, records};
use crate::number;
use crate::thrift::thrifty;
use fastrand::Rng;
use pgassay_audit::explain::limits::Limits;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// One statement of a client.
pub trait Act: Clone {
    /// What the statements are about.
    type State;
    /// How many clients there may be, how many statements, and how few are left when somebody may lie.
    const CLIENTS: std::ops::Range<usize>;
    const STATEMENTS: std::ops::Range<usize>;
    const LIES_BELOW: usize;

    fn random(rng: &mut Rng, fresh: i64) -> Self;

    fn sql(&self) -> String;

    /// Takes effect; returns what is answered, `lie` in place of the last number.
    fn happen(&self, state: &mut Self::State, lie: Option<i64>) -> String;

    /// Whether its answer has a number to lie about.
    fn can_lie(&self, state: &Self::State) -> bool;
}

#[derive(Clone)]
enum Client<A> {
    Idle,
    Asked(A),
    Answered(String),
}

/// A story that goes on after it was set up, and whether somebody told `lie` in it.
fn story<A: Act>(
    rng: &mut Rng,
    level: &str,
    (set_up, mut state): (String, A::State),
    lie: Option<i64>,
) -> (String, bool) {
    let mut text = set_up;
    let mut clients = vec![Client::<A>::Idle; rng.usize(A::CLIENTS)];
    for at in 0..clients.len() {
        let _ = writeln!(text, "c{at}: set default_transaction_isolation = '{level}'");
    }
    let mut lied = None;
    let mut fresh = 10;
    let mut left = rng.usize(A::STATEMENTS);
    while left > 0 || clients.iter().any(|c| !matches!(c, Client::Idle)) {
        let at = rng.usize(0..clients.len());
        clients[at] = match clients[at].clone() {
            Client::Idle if left > 0 => {
                left -= 1;
                fresh += 1;
                let act = A::random(rng, fresh);
                let _ = writeln!(text, "c{at}: {} ...", act.sql());
                Client::Asked(act)
            }
            Client::Asked(act) => {
                let may_lie = lied.is_none() && left < A::LIES_BELOW && act.can_lie(&state);
                let wrong = lie.filter(|_| may_lie);
                lied = lied.or(wrong);
                Client::Answered(act.happen(&mut state, wrong))
            }
            Client::Answered(answer) => {
                let _ = writeln!(text, "c{at}: ... => {answer}");
                Client::Idle
            }
            idle => idle,
        };
    }
    (text, lied.is_some())
}

/// What came of many stories.
#[derive(Default)]
pub struct Found {
    pub caught: usize,
    pub missed: usize,
    pub told: u64,
    pub unknown: u64,
    /// What was not known in the stories in which a lie was missed.
    why: BTreeMap<String, u64>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (caught, missed) = (self.caught, self.missed);
        write!(
            f,
            "{} of {} statements not fully checked, ",
            self.unknown, self.told
        )?;
        write!(f, "{caught} caught, {missed} missed {:?}", self.why)
    }
}

impl Found {
    /// Nobody is accused in a story in which all answers are right, with whatever limits.
    pub fn tell_right(&mut self, seed: u64, right: &str, rng: &Rng) {
        for limits in [Limits::default(), thrifty(&mut rng.clone())] {
            let (verdict, summary) = audit_within(records(right), limits);
            let rules: Vec<&String> = summary.violations.iter().map(|v| &v.rule).collect();
            assert!(
                verdict != Verdict::Wrong,
                "seed {seed} with {limits:?}: {rules:?}\n{right}"
            );
            if limits.worlds_max == Limits::default().worlds_max {
                self.told += summary.statements;
                self.unknown += summary.coverage.partial + summary.coverage.unchecked;
            }
        }
    }

    /// A story in which somebody lies, within the limits of `proof`.
    pub fn tell_wrong(&mut self, wrong: &str, proof: Limits) {
        let (verdict, summary) = audit_within(records(wrong), proof);
        if verdict == Verdict::Wrong {
            self.caught += 1;
            return;
        }
        self.missed += 1;
        for (reason, times) in summary.coverage.reasons {
            *self.why.entry(reason).or_default() += times;
        }
    }

    /// So many times the lies that were caught are more than so many times those that were missed, and so many times the
    /// statements that were not fully checked are fewer than all.
    pub fn assert_more(&self, caught_times: usize, missed_times: usize, unknown_times: u64) {
        let Found {
            caught,
            missed,
            told,
            unknown,
            ..
        } = self;
        assert!(
            caught * caught_times > missed * missed_times,
            "{caught} caught, {missed} missed"
        );
        assert!(
            unknown * unknown_times < *told,
            "{unknown} of {told} statements not fully checked"
        );
    }
}

/// Tells `cases` stories at one of the levels each: nobody is accused, with whatever limits; then with a lie, within the
/// limits of `proof`.
pub fn tell<A: Act>(
    cases: u64,
    levels: &[&str],
    set_up: impl Fn() -> (String, A::State),
    lie: i64,
    proof: Limits,
) -> Found {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let mut found = Found::default();
    for seed in first..first + cases {
        let mut rng = Rng::with_seed(seed);
        let level = levels[rng.usize(0..levels.len())];
        let (right, _) = story::<A>(&mut rng.clone(), level, set_up(), None);
        found.tell_right(seed, &right, &rng);
        let (wrong, lied) = story::<A>(&mut rng, level, set_up(), Some(lie));
        if lied {
            found.tell_wrong(&wrong, proof);
        }
    }
    println!("{cases} histories, {found}");
    found
}
