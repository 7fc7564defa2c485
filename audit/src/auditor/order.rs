//! Puts explained transactions into the serial order that they were promised.
//!
//! In: what was explained, in the one world there is or in each of several. Out: charges of cycles, as soon as one closes.
//!
//! Always true: nobody is charged where one of the worlds has a serial order.

use super::Auditor;
use crate::assemble::End;
use crate::certify::{self, Cycle, Node};
use crate::cluster::Charge;
use crate::explain::run::{SNAPSHOT, is_statement_level};
use crate::explain::world::{Explained, World};
use crate::points::PointId;
use crate::verdict::Violation;

impl Auditor {
    /// Adds an explained transaction to the serialization graph.
    pub(super) fn certify(&mut self, explained: &Explained, found: &mut Vec<Violation>) {
        if let Some(node) = self.node_of(explained, self.explainer.world()) {
            let real_time = self.is_in_real_time(node.level);
            let cycles = self.certifier.add(node, real_time);
            self.cycle(cycles, found);
        }
    }

    /// Adds what was explained in several ways, when nobody will tell any more which of them it was: nothing is wrong if
    /// there is a serial order in one of them.
    pub(super) fn certify_apart(&mut self, found: &mut Vec<Violation>) {
        let mut first: Option<Vec<Cycle>> = None;
        let ways = self.explainer.uncertified();
        for (way, world) in ways.iter().zip(self.explainer.worlds()) {
            let mut certifier = self.certifier.clone();
            let nodes = way.iter().filter_map(|explained| self.node_of(explained, world));
            let mut closed = nodes.map(|node| {
                let real_time = self.is_in_real_time(node.level);
                certifier.add(node, real_time)
            });
            match closed.find(|cycles| !cycles.is_empty()) {
                Some(cycles) => drop(first.get_or_insert(cycles)),
                None => return,
            }
        }
        self.cycle(first.unwrap_or_default(), found);
    }

    /// A committed transaction as a part of the serial order that it was promised, as it was explained in `world`.
    fn node_of(&self, explained: &Explained, world: &World) -> Option<Node> {
        let Explained {
            txn,
            commit,
            attempt,
            decisions,
        } = explained;
        if !self.explainer.is_serial(txn.level) || !matches!(txn.end, End::Committed(_)) {
            return None;
        }
        let rules = self.rules_of(txn.level);
        let by_statement = is_statement_level(&rules);
        let points_of = |step: usize| {
            let wrote = attempt.wrote.contains(&step);
            let point = match (by_statement, wrote) {
                (true, true) => PointId::lock(step),
                (true, false) => PointId::read(step),
                (false, _) => SNAPSHOT,
            };
            // Who has a key, or refers to one, is asked of the newest rows. Where more than a serial order is promised, the
            // server lets both commit.
            let newest = (!by_statement && wrote && rules.is_serial_alone()).then(|| PointId::lock(step));
            let placed = move |point: PointId| {
                let window = attempt.windows.iter().find(|(p, _)| *p == point).map(|(_, w)| *w);
                (point, window.unwrap_or(txn.steps[step].seen.window))
            };
            std::iter::once(point).chain(newest).map(placed)
        };
        let reads = certify::reads_of(&attempt.reads, points_of, decisions);
        if reads.is_empty() && attempt.written.is_empty() {
            return None;
        }
        let session = self.explainer.session_of(txn);
        let mut node = Node::new(
            txn.clone(),
            txn.level,
            session,
            *commit,
            reads,
            attempt.written.clone(),
        );
        if let Some(placed) = commit.and_then(|commit| world.order.get(commit)) {
            // Where its place is, which may be that of somebody who did the same.
            node.window = placed.observed;
        }
        Some(node)
    }

    /// The first of the cycles that is proved will be told.
    fn cycle(&mut self, cycles: Vec<Cycle>, found: &mut Vec<Violation>) {
        if let Some((node, _)) = cycles.first().and_then(|cycle| cycle.first()) {
            let level = self.settings.claim.unwrap_or(node.level);
            self.accuse(Charge::Cycle { cycles, level }, found);
        }
    }
}
