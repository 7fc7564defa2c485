//! The serialization certifier: is there one order that explains all serializable transactions?
//!
//! In: committed transactions that were promised a serial order, with what each statement read and saw and
//! what the transaction wrote. Out: a cycle of dependencies, as soon as one closes.
//!
//! An edge a → b says: in every serial order in which a's and b's statements touch the same rows, a comes
//! first. `wr` and `ww`: b saw, or overwrote, what a wrote. `rw`: a did not see what b wrote, although it
//! read where b wrote. `real-time`: a had ended when b began, which counts at some levels.
//! Edges are drawn from footprints, so there may be too many of them: a cycle is a
//! suspicion, which the reference checker confirms or dismisses by trying every serial order.
//!
//! Always true:
//!   - a node stays while a transaction that could still draw an edge to it, or to one of its ancestors,
//!     is not judged yet;
//!   - the graph of what stays is acyclic: the transaction that closed a cycle is taken out again.

use crate::assemble::Transaction;
use crate::explain::run::StepReads;
use crate::explain::session::SessionState;
use crate::interpret::Touch;
use crate::places::Places;
use crate::points::choose::Decision;
use crate::points::{CommitId, PointId};
use crate::state::overlay::Overlay;
use crate::state::{Row, TableId};
use crate::trace::{Nanos, Window};
use pgassay_rules::Level;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The kind of an edge from what had ended to what began later, where the order respects real time.
pub const REAL_TIME: &str = "real-time";

/// One row that a transaction wrote.
#[derive(Clone, Debug)]
pub struct Written {
    pub table: TableId,
    pub before: Option<Row>,
    pub after: Option<Row>,
}

/// What one statement read, and where its point lies.
#[derive(Clone, Debug)]
pub struct Read {
    pub step: usize,
    pub touches: Vec<Touch>,
    pub window: Window,
    /// Open commits that were asked about, and whether they were seen.
    pub decided: Vec<(CommitId, bool)>,
}

#[derive(Clone)]
pub struct Node {
    pub txn: Arc<Transaction>,
    pub level: Level,
    pub session: SessionState,
    pub commit: Option<CommitId>,
    pub window: Window,
    pub reads: Vec<Read>,
    pub writes: Vec<Written>,
    /// Ordinals of nodes that come later in any serial order.
    after: Vec<(u64, &'static str)>,
    ancestors: usize,
}

impl Node {
    pub fn new(
        txn: Arc<Transaction>,
        level: Level,
        session: SessionState,
        commit: Option<CommitId>,
        reads: Vec<Read>,
        writes: Vec<Written>,
    ) -> Node {
        let window = txn.end.window();
        Node {
            txn,
            level,
            session,
            commit,
            window,
            reads,
            writes,
            after: Vec::new(),
            ancestors: 0,
        }
    }

    /// The same without its edges.
    fn alone(&self) -> Node {
        Node {
            after: Vec::new(),
            ancestors: 0,
            ..self.clone()
        }
    }
}

/// Transactions of which each must come before the next, the last before the first; each with the kind of the edge to the
/// next.
pub type Cycle = Vec<(Node, &'static str)>;

/// Cycles that are told of one transaction: edges are drawn from footprints, so that the first may come to nothing.
const CYCLES_MAX: usize = 4;

#[derive(Clone, Default)]
pub struct Certifier {
    nodes: FxHashMap<u64, Node>,
    places: Places,
    /// Nodes that nobody who is kept precedes, by when they had ended.
    first: BTreeSet<(Nanos, u64)>,
    /// All nodes, by when they began.
    begun: BTreeSet<(Nanos, u64)>,
    next: u64,
}

impl Certifier {
    /// Adds a transaction; if that closes cycles, some of them, the shortest first. The new one is then taken out again.
    /// In `real_time` whatever had ended comes before what began later.
    pub fn add(&mut self, node: Node, real_time: bool) -> Vec<Cycle> {
        let ordinal = self.next;
        self.next += 1;
        let mut incoming: Vec<(u64, &'static str)> = Vec::new();
        let mut outgoing: Vec<(u64, &'static str)> = Vec::new();
        for other in self.places.meet(&node.reads, &node.writes) {
            let Some(earlier) = self.nodes.get(&other) else {
                continue;
            };
            // Whoever was explained before the new one was there has not seen it.
            for kind in edges(earlier, &node, Some(false)) {
                incoming.push((other, kind));
            }
            for kind in edges(&node, earlier, None) {
                outgoing.push((other, kind));
            }
        }
        let began = real_time.then(|| node.txn.sent());
        let mut cycles: Vec<Cycle> = Vec::new();
        let mut closing = incoming.clone();
        while cycles.len() < CYCLES_MAX
            && let Some((first, path)) = self.path(&outgoing, &closing, began)
        {
            let last = path.last().map(|(last, _)| *last);
            let members = path
                .iter()
                .map(|(member, kind)| (self.nodes[member].alone(), *kind));
            cycles.push(std::iter::once((node.alone(), first)).chain(members).collect());
            // There may be others that are closed by somebody else.
            let edges = closing.len();
            closing.retain(|(from, _)| Some(*from) != last);
            if closing.len() == edges {
                break;
            }
        }
        if !cycles.is_empty() {
            return cycles;
        }
        for (other, kind) in &incoming {
            if let Some(earlier) = self.nodes.get_mut(other) {
                earlier.after.push((ordinal, kind));
            }
        }
        for (other, _) in &outgoing {
            if let Some(later) = self.nodes.get_mut(other) {
                later.ancestors += 1;
                self.first.remove(&(later.window.done, *other));
            }
        }
        let mut node = node;
        node.after = outgoing;
        node.ancestors = incoming.len();
        self.places.add(ordinal, &node.reads, &node.writes);
        self.begun.insert((node.txn.sent(), ordinal));
        if node.ancestors == 0 {
            self.first.insert((node.window.done, ordinal));
        }
        self.nodes.insert(ordinal, node);
        cycles
    }

    /// A shortest path from one of `outgoing` to one of `incoming`: the kind of the first edge, then the
    /// nodes with the kind of the edge that leaves each. If real time counts, `began` is when the new one did.
    fn path(
        &self,
        outgoing: &[(u64, &'static str)],
        incoming: &[(u64, &'static str)],
        began: Option<Nanos>,
    ) -> Option<(&'static str, Vec<(u64, &'static str)>)> {
        let mut came: FxHashMap<u64, Option<u64>> = FxHashMap::default();
        let mut queue: std::collections::VecDeque<u64> = std::collections::VecDeque::new();
        for (node, _) in outgoing {
            if came.insert(*node, None).is_none() {
                queue.push_back(*node);
            }
        }
        while let Some(at) = queue.pop_front() {
            let ended = self.nodes.get(&at).map(|node| node.txn.end.window().done);
            let earlier = began.zip(ended).is_some_and(|(began, ended)| ended < began);
            let edge = incoming.iter().find(|(n, _)| *n == at).map(|(_, kind)| *kind);
            if let Some(last) = edge.or(earlier.then_some(REAL_TIME)) {
                let mut nodes = vec![at];
                while let Some(Some(previous)) = came.get(nodes.last()?) {
                    nodes.push(*previous);
                }
                nodes.reverse();
                let first = outgoing.iter().find(|(n, _)| *n == nodes[0])?.1;
                let mut steps = Vec::new();
                for (i, node) in nodes.iter().enumerate() {
                    let kind = match nodes.get(i + 1) {
                        Some(next) => {
                            let edge = self.nodes[node].after.iter().find(|(n, _)| n == next);
                            edge.map_or(REAL_TIME, |(_, kind)| *kind)
                        }
                        None => last,
                    };
                    steps.push((*node, kind));
                }
                return Some((first, steps));
            }
            let Some(node) = self.nodes.get(&at) else { continue };
            let later = ended.filter(|_| began.is_some()).into_iter();
            let later = later.flat_map(|ended| self.begun.range((ended + 1, 0)..));
            let next = node.after.iter().map(|(next, _)| *next);
            for next in next.chain(later.map(|(_, next)| *next)) {
                if let Entry::Vacant(free) = came.entry(next) {
                    free.insert(Some(at));
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// Drops nodes that no cycle can reach any more: no transaction that began before `horizon` is still
    /// to be judged, so nobody will ever be found to precede them.
    pub fn collect(&mut self, horizon: Nanos) {
        while let Some(&(done, oldest)) = self.first.first()
            && done < horizon
        {
            self.first.pop_first();
            let Some(gone) = self.nodes.remove(&oldest) else {
                continue;
            };
            self.begun.remove(&(gone.txn.sent(), oldest));
            self.places.remove(oldest, &gone.reads, &gone.writes);
            for (later, _) in gone.after {
                if let Some(node) = self.nodes.get_mut(&later) {
                    node.ancestors -= 1;
                    if node.ancestors == 0 {
                        self.first.insert((node.window.done, later));
                    }
                }
            }
        }
    }

    /// Where the oldest transaction that is kept began.
    pub fn oldest(&self) -> Option<Nanos> {
        self.begun.first().map(|(sent, _)| *sent)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// The kinds of edges from `a` to `b`. `unasked`: whether `a` saw `b`, where nobody asked.
fn edges(a: &Node, b: &Node, unasked: Option<bool>) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    // b saw what a wrote.
    if !a.writes.is_empty() {
        for read in &b.reads {
            if sees(read, a) == Some(true) && conflicts(read, &a.writes) {
                kinds.push("wr");
                break;
            }
        }
    }
    // a read where b wrote, and did not see it.
    if !b.writes.is_empty() {
        for read in &a.reads {
            let saw = sees(read, b).or(unasked.filter(|_| b.commit.is_some()));
            if saw == Some(false) && conflicts(read, &b.writes) {
                kinds.push("rw");
                break;
            }
        }
    }
    // Both wrote the same row, a first.
    if let (Some(first), Some(second)) = (a.commit, b.commit)
        && first < second
        && a.writes.iter().any(|w| {
            b.writes.iter().any(|o| match (&w.after, &o.before) {
                (Some(after), Some(before)) => w.table == o.table && Arc::ptr_eq(after, before),
                _ => false,
            })
        })
    {
        kinds.push("ww");
    }
    // Both wrote over the same version: whoever came second had not seen the first.
    if a.writes
        .iter()
        .any(|w| b.writes.iter().any(|o| is_over_same(w, o)))
    {
        kinds.push("rw");
    }
    kinds
}

/// Whether both wrote over the same version of a row.
pub fn is_over_same(one: &Written, other: &Written) -> bool {
    match (&one.before, &other.before) {
        (Some(a), Some(b)) => one.table == other.table && Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// Whether a statement saw a commit; `None` if nobody asked.
fn sees(read: &Read, writer: &Node) -> Option<bool> {
    let id = writer.commit?;
    if let Some((_, seen)) = read.decided.iter().find(|(c, _)| *c == id) {
        return Some(*seen);
    }
    if writer.window.done < read.window.sent {
        return Some(true);
    }
    if writer.window.sent > read.window.done {
        return Some(false);
    }
    None
}

/// Whether one of the writes is, or was, where the statement read.
fn conflicts(read: &Read, writes: &[Written]) -> bool {
    read.touches.iter().any(|touch| {
        writes.iter().any(|w| {
            let mut rows = w.before.iter().chain(&w.after);
            touch.table() == w.table && rows.any(|row| touch.may_find(row))
        })
    })
}

/// What a transaction wrote, with what it had found there before.
pub fn written(overlay: &Overlay) -> Vec<Written> {
    let mut all = Vec::new();
    for (table, own) in &overlay.tables {
        for replaced in own.replaced.values().filter(|r| !r.perhaps) {
            all.push(Written {
                table: *table,
                before: Some(replaced.before.clone()),
                after: replaced.row.clone(),
            });
        }
        for row in own.inserted.values() {
            all.push(Written {
                table: *table,
                before: None,
                after: Some(row.clone()),
            });
        }
    }
    all
}

/// The reads of an attempt, with what its points saw: one for each of the points of a statement.
pub fn reads_of<Points: IntoIterator<Item = (PointId, Window)>>(
    reads: &[StepReads],
    points_of: impl Fn(usize) -> Points,
    decisions: &[Decision],
) -> Vec<Read> {
    let reads = reads.iter().filter(|r| !r.touches.is_empty());
    reads
        .flat_map(|r| points_of(r.step).into_iter().map(move |point| (r, point)))
        .map(|(r, (point, window))| {
            let at = |d: &&Decision| d.point == point;
            // What the statements of a routine saw, if they agree.
            let inside = |d: &&Decision| {
                let differs = |o: &Decision| {
                    o.commit == d.commit
                        && (o.point == point || (o.point.is_inside(point) && o.visible != d.visible))
                };
                d.point.is_inside(point) && !decisions.iter().any(differs)
            };
            let decided = decisions
                .iter()
                .filter(|d| at(d) || inside(d))
                .map(|d| (d.commit, d.visible))
                .collect();
            Read {
                step: r.step,
                touches: r.touches.clone(),
                window,
                decided,
            }
        })
        .collect()
}
