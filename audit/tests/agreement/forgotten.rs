//! Whoever knows less accuses nobody whom the whole truth does not accuse.
//!
//! The simulated database plays what is right; the audit sees it with holes: it begins without what was in the tables,
//! loses sessions or everything for a while, cannot follow some statements, never learns whether some commits
//! happened, and is given what somebody read in the midst of it. It must be silent. And when one answer is changed, it may
//! only say what the reference checker, which is shown everything, says too.
//!
//! `PGASSAY_FORGOTTEN_CASES` sets how many histories are played, `PGASSAY_PROPTEST_SEED` where to begin.

use crate::history::History;
use crate::judges::{Verdict, audit_records, reference};
use crate::lose::{Losses, lose, tell};
use crate::simulate::{self, Child, Isolation, Plan, Wishes};
use crate::{mutate, number};
use fastrand::Rng;
use pgassay_audit::report;
use pgassay_audit::trace::Record;
use pgassay_audit::verdict::Summary;

/// How often a smaller plan is played before it is believed to be harmless.
const TRIES: u64 = 30;

#[derive(Clone, Debug)]
struct Case {
    plan: Plan,
    losses: Losses,
}

impl Case {
    fn random(rng: &mut Rng) -> Case {
        // Where everybody is promised a serial order, nobody who is not excuses those who are.
        let all_serializable = rng.u8(0..3) == 0;
        let wishes = Wishes {
            serial: true,
            blind: rng.bool(),
            lost: rng.u8(0..4) == 0,
            mixed: rng.bool() && !all_serializable,
            singly: false,
            by_key: false,
            distinct: rng.u8(0..3) == 0,
            child: Child::random(rng),
        };
        let levels = [
            Isolation::ReadCommitted,
            Isolation::RepeatableRead,
            Isolation::Serializable,
        ];
        let (sessions, each) = [(3, 4), (4, 6), (6, 8)][rng.usize(0..3)];
        let lowest = if all_serializable { 2 } else { 0 };
        let level = |rng: &mut Rng| levels[rng.usize(lowest..3)];
        let mut plan = Plan::random(rng, sessions, each, wishes, level);
        plan.looks = if rng.bool() { 0 } else { rng.usize(0..4) };
        Case {
            plan,
            losses: Losses::random(rng),
        }
    }

    /// The trace that one game leaves.
    fn records(&self, seed: u64) -> Vec<Record> {
        lose(&simulate::play(&self.plan, seed), self.losses, seed)
    }

    fn judge(&self, seed: u64) -> Result<Summary, String> {
        let records = self.records(seed);
        let (verdict, summary) = audit_records(records.clone());
        match verdict {
            Verdict::Wrong => Err(format!("{}\n{}", tell(&records), told(&summary))),
            _ => Ok(summary),
        }
    }

    /// With a little less in it.
    fn smaller(&self) -> Vec<Case> {
        let losses = self.losses.smaller().into_iter();
        let losses = losses.map(|losses| Case {
            losses,
            ..self.clone()
        });
        let plans = self.plan.smaller().into_iter();
        let plans = plans.map(|plan| Case { plan, ..self.clone() });
        losses.chain(plans).collect()
    }

    /// The trace of the smallest case that is still accused.
    fn shrink(mut self, mut seed: u64, mut story: String) -> String {
        let (mut at, mut since) = (0, 0);
        loop {
            let smaller = self.smaller();
            if since >= smaller.len() {
                break;
            }
            at %= smaller.len();
            let seeds = std::iter::once(seed).chain(0..TRIES);
            let mut accused = seeds.filter_map(|seed| Some((seed, smaller[at].judge(seed).err()?)));
            match accused.next() {
                Some(found) => {
                    self = smaller[at].clone();
                    (seed, story) = found;
                    since = 0;
                }
                None => (at, since) = (at + 1, since + 1),
            }
        }
        // The shortest of the traces that it leaves.
        let stories = (0..TRIES * 4).filter_map(|seed| self.judge(seed).err());
        stories.min_by_key(String::len).unwrap_or(story)
    }
}

fn told(summary: &Summary) -> String {
    let all = summary.violations.iter().map(report::markdown::violation);
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn whoever_knows_less_accuses_nobody() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_FORGOTTEN_CASES", 200);
    let (mut statements, mut checked) = (0, 0);
    let mut accused = Vec::new();
    for seed in first..first + cases {
        let case = Case::random(&mut Rng::with_seed(seed));
        match case.judge(seed) {
            Ok(summary) => {
                statements += summary.statements;
                checked += summary.coverage.checked;
            }
            Err(story) => {
                println!("seed {seed} is accused");
                accused.push((seed, case, story));
            }
        }
    }
    println!("{cases} histories, {statements} statements, {checked} of them checked");
    let shown: Vec<String> = accused
        .iter()
        .take(number("PGASSAY_FORGOTTEN_SHOWN", 3) as usize)
        .map(|(seed, case, story)| format!("seed {seed}:\n{}", case.clone().shrink(*seed, story.clone())))
        .collect();
    assert!(
        accused.is_empty(),
        "{} right histories of {cases} are accused:\n{}",
        accused.len(),
        shown.join("\n\n")
    );
    assert!(checked > 0, "nothing was checked at all");
}

/// The history without what was read on the side.
fn plain(history: &History) -> History {
    history.without(|s| history.statements[s].session == 0)
}

#[test]
fn whoever_knows_less_says_nothing_that_the_whole_truth_does_not() {
    let first = number("PGASSAY_PROPTEST_SEED", 1);
    let cases = number("PGASSAY_FORGOTTEN_CASES", 200);
    let (mut caught, mut silent, mut undecided) = (0, 0, 0);
    let mut wrong = Vec::new();
    for seed in first..first + cases {
        let mut rng = Rng::with_seed(seed);
        let wishes = Wishes {
            // The reference checker does not tell the instants of several rows apart.
            singly: true,
            distinct: rng.u8(0..3) == 0,
            child: Child::random(&mut rng),
            ..Wishes::default()
        };
        let level = if rng.bool() {
            Isolation::ReadCommitted
        } else {
            Isolation::RepeatableRead
        };
        let mut plan = Plan::random(&mut rng, 3, 1, wishes, |_| level);
        plan.looks = rng.usize(0..2);
        let history = simulate::play(&plan, rng.u64(..));
        let losses = Losses::random(&mut rng);
        let Some((changed, kind)) = mutate::mutate(&history, &mut rng) else {
            continue;
        };
        let records = lose(&changed, losses, rng.u64(..));
        let (verdict, summary) = audit_records(records.clone());
        if verdict != Verdict::Wrong {
            silent += 1;
            continue;
        }
        match reference(&plain(&changed).text()) {
            Verdict::Wrong => caught += 1,
            Verdict::Unknown => undecided += 1,
            Verdict::Right => {
                wrong.push(format!(
                    "seed {seed}, {kind}:\n{}\n{}",
                    tell(&records),
                    told(&summary)
                ));
            }
        }
    }
    println!("{caught} accused and wrong, {silent} not accused, {undecided} not decided");
    wrong.sort_by_key(String::len);
    assert!(
        wrong.is_empty(),
        "{} of {cases} are accused though they are right:\n{}",
        wrong.len(),
        wrong.iter().take(3).cloned().collect::<Vec<_>>().join("\n\n")
    );
    assert!(caught > 0, "nothing was caught at all");
}
