//! Counts what was checked, what was not, and why.
//!
//! Always true: every statement is counted exactly once, by its shape and in the totals.

use crate::assemble::Transaction;
use crate::explain::run::Attempt;
use crate::verdict::{Coverage, ShapeCoverage, Summary};
use pgassay_rules::Level;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Shapes that are counted one by one; the rest share a line.
const SHAPES_MAX: usize = 2_000;

#[derive(Clone, Default)]
struct Counts {
    checked: u64,
    partial: u64,
    unchecked: u64,
    reasons: BTreeMap<String, u64>,
}

#[derive(Clone, Default)]
pub struct Tally {
    shapes: FxHashMap<Arc<str>, Counts>,
    reasons: BTreeMap<String, u64>,
    tiers: BTreeMap<&'static str, u64>,
    levels: BTreeMap<Level, u64>,
    checked: u64,
    partial: u64,
    unchecked: u64,
}

impl Tally {
    /// Counts the statements of a transaction; those about which a question was asked by `tier`. With a `doubt` about
    /// what all of them were judged by, nothing is wholly checked.
    pub fn count(
        &mut self,
        attempt: &Attempt,
        level: Level,
        tier: &'static str,
        doubt: Option<&'static str>,
    ) {
        for judged in attempt.judged.iter().flatten() {
            if !matches!(judged.coverage, Coverage::Unchecked(_)) {
                *self.levels.entry(level).or_default() += 1;
            }
            let tier = if tier == "solver" || judged.asked {
                tier
            } else {
                "settled"
            };
            *self.tiers.entry(tier).or_default() += 1;
            match (&judged.coverage, doubt) {
                (Coverage::Checked, Some(doubt)) => {
                    self.one(&judged.shape, &Coverage::Partial(doubt.to_owned()));
                    continue;
                }
                (coverage, _) => self.one(&judged.shape, coverage),
            }
            if judged.loose && judged.coverage == Coverage::Checked {
                // The rest of the answer was checked: it counts as such, and what was not is said beside it.
                self.reason("unknown_value");
            }
        }
    }

    /// Counts the statements of a transaction that could not be decided.
    pub fn count_unknown(&mut self, attempt: &Attempt, reason: &'static str) {
        for judged in attempt.judged.iter().flatten() {
            *self.tiers.entry("solver").or_default() += 1;
            self.one(&judged.shape, &Coverage::Unchecked(reason.to_owned()));
        }
    }

    /// Counts the statements of a transaction that was rolled back at a level at which such a transaction may
    /// have seen anything: every answer is right, and the reason is counted beside it.
    pub fn count_aborted(&mut self, txn: &Transaction) {
        for _ in &txn.steps {
            *self.tiers.entry("settled").or_default() += 1;
            self.one(&Arc::from("(rolled back, nothing promised)"), &Coverage::Checked);
        }
        *self
            .reasons
            .entry("nothing_promised_to_aborted".to_owned())
            .or_default() += txn.steps.len() as u64;
    }

    /// Counts the statements of a transaction that was not looked at.
    pub fn count_unjudged(&mut self, txn: &Transaction, reason: &str) {
        let unchecked = Coverage::Unchecked(reason.to_owned());
        for _ in &txn.steps {
            *self.tiers.entry("settled").or_default() += 1;
            self.one(&Arc::from("(not judged)"), &unchecked);
        }
    }

    /// How many statements have been counted.
    pub fn statements(&self) -> u64 {
        self.checked + self.partial + self.unchecked
    }

    /// Something that is not a statement's own coverage, but worth counting.
    pub fn reason(&mut self, reason: &str) {
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
    }

    fn one(&mut self, shape: &Arc<str>, coverage: &Coverage) {
        let full = self.shapes.len() >= SHAPES_MAX && !self.shapes.contains_key(shape);
        let key = if full {
            Arc::from("(other shapes)")
        } else {
            shape.clone()
        };
        let counts = self.shapes.entry(key).or_default();
        let reason = match coverage {
            Coverage::Checked => {
                self.checked += 1;
                counts.checked += 1;
                return;
            }
            Coverage::Partial(reason) => {
                self.partial += 1;
                counts.partial += 1;
                reason
            }
            Coverage::Unchecked(reason) => {
                self.unchecked += 1;
                counts.unchecked += 1;
                reason
            }
        };
        *counts.reasons.entry(reason.clone()).or_default() += 1;
        *self.reasons.entry(reason.clone()).or_default() += 1;
    }

    pub fn fill(&self, summary: &mut Summary) {
        summary.statements = self.statements();
        summary.tiers = self
            .tiers
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect();
        summary.coverage.checked = self.checked;
        summary.coverage.partial = self.partial;
        summary.coverage.unchecked = self.unchecked;
        summary.coverage.reasons = self.reasons.clone();
        summary.coverage.levels = self.levels.clone();
        let mut shapes: Vec<ShapeCoverage> = self
            .shapes
            .iter()
            .map(|(shape, c)| ShapeCoverage {
                shape: shape.to_string(),
                checked: c.checked,
                partial: c.partial,
                unchecked: c.unchecked,
                reason: c.reasons.iter().max_by_key(|(_, n)| **n).map(|(r, _)| r.clone()),
            })
            .collect();
        shapes.sort_by(|a, b| a.shape.cmp(&b.shape));
        summary.coverage.shapes = shapes;
    }
}
