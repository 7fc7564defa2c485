//! Random interleavings of two and three sessions, step by step, on a real server and before the audit.
//!
//! In: a seed. It makes a small schema, what each session does, and in which order the steps are taken.
//! Out: the story that the server told, in the language of the golden scripts, and what the audit says to it.
//!
//! Always true:
//!   - the next step is taken when every session has answered or waits for another one, which the server says
//!     itself: no clock decides anything;
//!   - windows do not overlap but where one session waited for another: every answer must be checked and right.

pub mod generate;
pub mod play;
pub mod shrink;
pub mod tell;

use crate::raw::Client;
use pgassay_audit::verdict::Summary;
use pgassay_audit::{Auditor, Settings, script};
use pgassay_rules::Level;
use std::collections::BTreeMap;

/// What one session does in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub session: usize,
    pub sql: String,
}

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The level of transactions that do not name one.
    pub level: Level,
    pub setup: Vec<String>,
    pub sessions: usize,
    pub steps: Vec<Step>,
}

/// How much was tried and how much of it was judged.
#[derive(Debug, Default)]
pub struct Tally {
    pub stories: u64,
    pub steps: u64,
    pub waited: u64,
    pub errors: BTreeMap<String, u64>,
    pub checked: u64,
    pub partial: u64,
    pub unchecked: u64,
    pub reasons: BTreeMap<String, u64>,
    /// By reason: a seed that shows it.
    pub seeds: BTreeMap<String, u64>,
}

/// A correct server that was accused, as a story for the golden folder.
#[derive(Debug)]
pub struct Accused {
    pub seed: u64,
    pub story: String,
    pub why: String,
}

/// Plays one seed and lets the audit judge it.
pub fn round(
    stage: &mut play::Stage,
    seed: u64,
    tally: &mut Tally,
    show: Option<&str>,
) -> Result<(), Box<Accused>> {
    let plan = generate::plan(seed);
    let played = stage.play(&plan);
    let story = tell::story(&plan, &played);
    let summary = judge(&story, plan.level);
    tally.count(seed, &plan, &played, &summary);
    if let Some(reason) = show
        && summary.coverage.reasons.keys().any(|r| r.contains(reason))
    {
        println!("# seed {seed}\n{story}");
        for shape in summary.coverage.shapes.iter().filter(|s| s.reason.is_some()) {
            println!("# {:?}: {}", shape.reason, shape.shape);
        }
    }
    if summary.violations.is_empty() {
        return Ok(());
    }
    let (story, summary) = shrink::shrink(stage, plan, story, summary);
    let why = summary
        .violations
        .iter()
        .map(|v| format!("{}: {}", v.rule, v.story))
        .collect();
    Err(Box::new(Accused { seed, story, why }))
}

/// What the audit says to a story.
pub fn judge(story: &str, level: Level) -> Summary {
    let records = script::parse(story, level).unwrap_or_else(|e| panic!("{e} of\n{story}"));
    let mut auditor = Auditor::new(Settings::default());
    for record in records {
        auditor.take(record);
    }
    auditor.finish();
    auditor.summary()
}

/// Connects to a server that a stage can use alone.
pub fn stage(port: u16) -> play::Stage {
    play::Stage::new(Client::log_in(port), || Client::log_in(port))
}

impl Tally {
    fn count(&mut self, seed: u64, plan: &Plan, played: &[play::Line], summary: &Summary) {
        // What made the tables is no part of the play.
        let setup = judge(&tell::setup(plan), plan.level).coverage;
        self.stories += 1;
        for line in played {
            match line {
                play::Line::Sent { .. } => self.waited += 1,
                play::Line::Done { outcome, .. } | play::Line::Whole { outcome, .. } => {
                    self.steps += 1;
                    if let pgassay_audit::trace::Outcome::Error(error) = outcome {
                        *self.errors.entry(error.sqlstate.clone()).or_default() += 1;
                    }
                }
            }
        }
        self.checked += summary.coverage.checked.saturating_sub(setup.checked);
        self.partial += summary.coverage.partial.saturating_sub(setup.partial);
        self.unchecked += summary.coverage.unchecked.saturating_sub(setup.unchecked);
        for (reason, count) in &summary.coverage.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
            self.seeds.entry(reason.clone()).or_insert(seed);
        }
    }

    /// The share of the statements that were checked in full.
    pub fn share(&self) -> f64 {
        self.checked as f64 / (self.checked + self.partial + self.unchecked).max(1) as f64
    }

    pub fn report(&self) -> String {
        let mut text = format!(
            "{} stories, {} steps, {} of them waited; {:.2} % checked, {} partly, {} not; errors {:?}\n",
            self.stories,
            self.steps,
            self.waited,
            100.0 * self.share(),
            self.partial,
            self.unchecked,
            self.errors
        );
        for (reason, count) in &self.reasons {
            text.push_str(&format!(
                "  reason {reason}: {count} (seed {})\n",
                self.seeds[reason]
            ));
        }
        text
    }
}
