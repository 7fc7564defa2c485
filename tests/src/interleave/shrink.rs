//! Makes a plan smaller as long as the audit still accuses the server.
//!
//! In: a plan whose story was accused. Out: the story of the smallest plan that was found, and what is said to it.

use super::play::Stage;
use super::{Plan, judge, tell};
use pgassay_audit::verdict::Summary;

/// Plays that a shrinking may cost.
const PLAYS_MAX: usize = 300;

pub fn shrink(stage: &mut Stage, mut plan: Plan, story: String, summary: Summary) -> (String, Summary) {
    let mut best = (story, summary);
    let mut plays = 0;
    let mut width = plan.steps.len() / 2;
    while width > 0 && plays < PLAYS_MAX {
        let mut at = 0;
        let mut smaller = false;
        while at + width <= plan.steps.len() && plays < PLAYS_MAX {
            let mut shorter = plan.clone();
            shorter.steps.drain(at..at + width);
            plays += 1;
            let story = tell::story(&shorter, &stage.play(&shorter));
            let summary = judge(&story, shorter.level);
            if summary.violations.is_empty() {
                at += 1;
            } else {
                (plan, best, smaller) = (shorter, (story, summary), true);
            }
        }
        if !smaller {
            width /= 2;
        }
    }
    best.0.push_str(&format!("expect {}: nothing\n", plan.level));
    best
}
