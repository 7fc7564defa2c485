//! Proves a suspicion again before it is told.
//!
//! In: a transaction that the fast path could not explain, or a cycle of dependencies. Out: the smallest
//! set of transactions that the reference checker, too, finds impossible; or an explanation; or nothing,
//! when the story is too large to be decided.
//!
//! The case starts with the suspects alone. Whenever the reference checker stumbles over a version whose
//! writer is not in the case and may have come after its start, that writer joins, until nothing is
//! missing: so every transaction that could have written what the story reads is part of it. Where nothing but answers says
//! which of several wrote last, all of these have to be part of it, too, and those who gave the answers: what the fast path
//! made of them is not relied on, unless there are too many.

use crate::assemble::End;
use crate::certify::Node;
use crate::exclude::Who;
use crate::explain::world::World;
use crate::explain::{Explainer, Suspect};
use crate::interpret::{Difference, Touch};
use crate::points::CommitId;
use crate::points::order::Commit;
use crate::reference::base::{Base, Delta};
use crate::reference::{Case, Decision, Member, Work, points, serial};
use crate::slice::Slice;
use crate::trace::Nanos;
use pgassay_rules::Level;
use std::sync::Arc;

/// Members beyond which a case is not decided.
const POINTS_MEMBERS_MAX: usize = 14;
const SERIAL_MEMBERS_MAX: usize = 10;
/// The same, where they are cut down to one row.
const CUT_MEMBERS_MAX: usize = 24;

/// The first commit of a trace: while it is open, none has been forgotten.
const FIRST: CommitId = CommitId(1);

pub enum Confirmed {
    /// No order explains it. The differences met, each with its member and step.
    Impossible {
        members: Vec<Member>,
        differences: Vec<(usize, usize, Difference)>,
    },
    Explained {
        members: Vec<Member>,
        delta: Delta,
    },
    Unknown(&'static str),
}

/// Decides a suspect by every order of points, or by every serial order if that is all that was promised, in one world,
/// where it is `commit`; together with `others` that it is about as well.
pub fn suspect(
    suspect: &Suspect,
    others: &[Who],
    world: &World,
    commit: Option<CommitId>,
    explainer: &Explainer,
    work: &Work,
) -> Confirmed {
    let first = Member {
        txn: suspect.txn.clone(),
        level: suspect.level,
        rules: suspect.rules,
        session: suspect.session.clone(),
        commit,
    };
    let mut members = vec![first];
    for Who { txn, leaves } in others {
        let commit = world.commit_of(txn);
        if *leaves && commit.is_none() {
            return Confirmed::Unknown("story_forgotten");
        }
        members.push(Member {
            txn: txn.clone(),
            level: txn.level,
            rules: explainer.rules_of(txn.level),
            session: explainer.session_of(txn),
            commit,
        });
    }
    let serial = suspect.rules.is_serial_alone();
    let members_max = match serial {
        true => SERIAL_MEMBERS_MAX,
        false => POINTS_MEMBERS_MAX,
    };
    if members.len() > members_max {
        return Confirmed::Unknown("story_too_large");
    }
    let real_time = suspect.rules.is_in_real_time();
    let decide = |case: &Case<'_>| match serial {
        // A serial order has those who committed; whether others did is not tried.
        true if case.members.iter().any(|m| !has_committed(m)) => Decision::TooLarge,
        true => serial::decide(case, real_time),
        false => points::decide(case),
    };
    let place = Place {
        world,
        explainer,
        work,
        slice: None,
        is_deep: false,
    };
    let confirmed = place.weigh(members.clone(), members_max, decide);
    if !others.is_empty() {
        return confirmed;
    }
    match &confirmed {
        Confirmed::Unknown("story_too_large" | "story_too_long") => {
            place.close_cut(suspect, &members[0]).unwrap_or(confirmed)
        }
        // Whoever reads it asks for those who wrote at the same time as what was seen, or was not; and how it is known who
        // came last. Where that is not enough to prove it again, nothing is proved.
        Confirmed::Impossible { members, .. } => {
            let deep = Place {
                is_deep: true,
                slice: None,
                ..place
            };
            match deep.weigh(members.clone(), members_max, decide) {
                deeper @ Confirmed::Impossible { .. } => deeper,
                Confirmed::Explained { .. } => Confirmed::Unknown("order_left_open"),
                Confirmed::Unknown(_) => confirmed,
            }
        }
        _ => confirmed,
    }
}

fn has_committed(member: &Member) -> bool {
    matches!(member.txn.end, End::Committed(_))
}

/// The members, and everybody who said something about when their commits became visible. Whoever wrote something that is
/// part of the settled state by now cannot be taken out of it any more.
fn with_witnesses(members: &[Member], world: &World, of: impl Fn(&Commit) -> &[Arc<Member>]) -> Vec<Member> {
    let mut all = members.to_vec();
    let is_open = |witness: &Member| witness.commit.is_none_or(|id| world.order.get(id).is_some());
    for member in members {
        let Some(commit) = member.commit.and_then(|id| world.order.get(id)) else {
            continue;
        };
        for witness in of(commit).iter().filter(|witness| is_open(witness)) {
            if !all.iter().any(|m| m.txn.id == witness.txn.id) {
                all.push((**witness).clone());
            }
        }
    }
    all
}

/// Decides a cycle by every serial order.
pub fn cycle(
    nodes: &[(Node, &'static str)],
    explainer: &Explainer,
    participates: impl Fn(Level) -> bool,
    real_time: bool,
    work: &Work,
) -> Confirmed {
    let members: Vec<Member> = nodes
        .iter()
        .map(|(n, _)| Member {
            txn: n.txn.clone(),
            level: n.level,
            rules: explainer.rules_of(n.level),
            session: n.session.clone(),
            commit: n.commit,
        })
        .collect();
    let place = Place {
        world: explainer.world(),
        explainer,
        work,
        slice: None,
        is_deep: false,
    };
    let confirmed = place.close(members, SERIAL_MEMBERS_MAX, &|case: &Case<'_>| {
        serial::decide(case, real_time)
    });
    match confirmed {
        // Writers without the promise take no part in the serial order; what they did in between is not
        // modelled here.
        Confirmed::Impossible { members, .. }
            if members.iter().any(|m| !participates(m.level))
                || place.is_interfered(nodes, &participates) =>
        {
            Confirmed::Unknown("mixed_levels")
        }
        other => other,
    }
}

/// One world, with what is known beside it.
struct Place<'a> {
    world: &'a World,
    explainer: &'a Explainer,
    work: &'a Work,
    /// The row to which everybody who joins is cut down.
    slice: Option<Slice<'a>>,
    /// Those join, too, whose order is known by nothing but answers.
    is_deep: bool,
}

impl Place<'_> {
    /// Whether somebody without the promise wrote where those of a cycle read, at the same time. What became of rows that
    /// nobody has seen does not tell who wrote them.
    fn is_interfered(&self, nodes: &[(Node, &'static str)], participates: impl Fn(Level) -> bool) -> bool {
        let began = nodes.iter().map(|(n, _)| n.txn.sent()).min();
        let ended = nodes.iter().map(|(n, _)| n.txn.end.window().done).max();
        let (Some(began), Some(ended)) = (began, ended) else {
            return false;
        };
        let touches: Vec<&Touch> = nodes
            .iter()
            .flat_map(|(n, _)| &n.reads)
            .flat_map(|r| &r.touches)
            .collect();
        let beside = self
            .world
            .order
            .iter()
            .map(|(_, commit)| commit)
            .filter(|commit| {
                !participates(commit.txn.level)
                    && commit.observed.done >= began
                    && commit.observed.sent <= ended
            });
        for Commit { txn, .. } in beside {
            let rules = self.explainer.rules_of(txn.level);
            let session = self.explainer.session_of(txn);
            let planner = &self.explainer.planner;
            let footprint = self.world.reach(txn, &rules, &session, planner);
            if touches.iter().any(|touch| footprint.was_at(touch)) {
                return true;
            }
        }
        false
    }

    /// Decides a case; where something explains it, also with those whose answers may rule that out.
    fn weigh(
        &self,
        members: Vec<Member>,
        members_max: usize,
        decide: impl Fn(&Case<'_>) -> Decision,
    ) -> Confirmed {
        let mut confirmed = self.close(members, members_max, &decide);
        let Confirmed::Explained { members, .. } = &confirmed else {
            return confirmed;
        };
        let deciders = with_witnesses(members, self.world, |commit| &commit.deciders);
        let all = with_witnesses(&deciders, self.world, |commit| &commit.witnesses);
        // One will do, most of the time.
        let one = deciders[members.len()..]
            .iter()
            .filter(|_| self.is_deep)
            .map(|decider| {
                let members = members.iter().chain([decider]);
                members.cloned().collect()
            });
        let more: Vec<Vec<Member>> = one.chain([deciders.clone(), all]).collect();
        for witnessed in more {
            let Confirmed::Explained { members, .. } = &confirmed else {
                break;
            };
            if witnessed.len() <= members.len() || witnessed.len() > members_max {
                continue;
            }
            match self.close(witnessed, members_max, &decide) {
                Confirmed::Unknown(_) => {}
                // What one of them does not rule out another one may.
                Confirmed::Explained { .. } if self.is_deep => {}
                decided => confirmed = decided,
            }
        }
        confirmed
    }

    /// Decides a case together with everybody whose versions it stumbles upon.
    fn close(
        &self,
        mut members: Vec<Member>,
        members_max: usize,
        decide: &impl Fn(&Case<'_>) -> Decision,
    ) -> Confirmed {
        let Place {
            world,
            explainer,
            work,
            ..
        } = self;
        loop {
            // A snapshot that may be older than its statement may have seen any state since the trace began; those that
            // are forgotten cannot be ruled out.
            // Where a serial order is all that is promised, what is known of the state may be one of several that were.
            let any_earlier = members.iter().any(|m| m.rules.may_read_older());
            if any_earlier && world.order.settled() > FIRST {
                return Confirmed::Unknown("older_states_forgotten");
            }
            let first = members.iter().map(|m| m.txn.sent()).min();
            let start: Nanos = first.filter(|_| !any_earlier).unwrap_or(0);
            let base = Base {
                store: &world.store,
                order: &world.order,
                members: members.iter().filter_map(|m| m.commit).collect(),
                start,
                is_deep: self.is_deep,
                strays: Default::default(),
            };
            let case = Case {
                base,
                planner: &explainer.planner,
                members: &members,
                work,
            };
            let decision = decide(&case);
            let strays: Vec<CommitId> = case.base.strays.take().into_iter().collect();
            if strays.is_empty() {
                if any_earlier && matches!(decision, Decision::Impossible(_)) {
                    let Some(all) = self.with_writers(&members) else {
                        return Confirmed::Unknown("older_states_forgotten");
                    };
                    if all.len() > members_max {
                        return Confirmed::Unknown("story_too_large");
                    }
                    if all.len() > members.len() {
                        members = all;
                        continue;
                    }
                }
                return match decision {
                    Decision::Explained(delta) => Confirmed::Explained { members, delta },
                    Decision::Impossible(differences) => Confirmed::Impossible { members, differences },
                    Decision::TooLarge => Confirmed::Unknown("story_too_long"),
                    Decision::Open(reason) => Confirmed::Unknown(reason),
                };
            }
            if members.len() + strays.len() > members_max {
                return Confirmed::Unknown("story_too_large");
            }
            for id in strays {
                let Some(commit) = world.order.get(id) else {
                    return Confirmed::Unknown("story_forgotten");
                };
                let writer = self.writer(id, commit);
                match &self.slice {
                    None => members.push(writer),
                    Some(slice) => match slice.cut(&writer) {
                        Some((writer, _)) => members.push(writer),
                        None => return Confirmed::Unknown("story_too_large"),
                    },
                }
            }
        }
    }

    /// Decides a suspect and those who wrote the row that it is wrong about, without all else that they did. `None` unless
    /// that is impossible already.
    fn close_cut(&self, suspect: &Suspect, member: &Member) -> Option<Confirmed> {
        let slice = Slice::of(suspect, member, self.world, self.explainer)?;
        let (cut, kept) = slice.cut(member)?;
        let place = Place {
            slice: Some(slice),
            ..*self
        };
        let confirmed = place.close(vec![cut], CUT_MEMBERS_MAX, &points::decide);
        let Confirmed::Impossible { members, differences } = confirmed else {
            return None;
        };
        // It is told of them as they were.
        let whole = members[1..].iter().map(|cut| {
            let id = cut.commit?;
            Some(self.writer(id, self.world.order.get(id)?))
        });
        let whole: Option<Vec<Member>> = std::iter::once(Some(member.clone())).chain(whole).collect();
        let own = differences.into_iter().filter(|(at, _, _)| *at == 0);
        Some(Confirmed::Impossible {
            members: whole?,
            differences: own
                .map(|(at, step, difference)| (at, kept[step], difference))
                .collect(),
        })
    }

    fn writer(&self, id: CommitId, commit: &Commit) -> Member {
        Member {
            txn: commit.txn.clone(),
            level: commit.txn.level,
            rules: self.explainer.rules_of(commit.txn.level),
            session: self.explainer.session_of(&commit.txn),
            commit: Some(id),
        }
    }

    /// The members, and everybody else who wrote one of their tables: whoever may have read an older state may have found
    /// other rows than those that he is known to have written. `None` if nobody knows the tables.
    fn with_writers(&self, members: &[Member]) -> Option<Vec<Member>> {
        let mut members = members.to_vec();
        let mut next = 0;
        while let Some(member) = members.get(next) {
            next += 1;
            let tables = self.explainer.tables_of(&member.txn)?;
            for (id, commit) in self.world.order.iter() {
                let writer = self.writer(id, commit);
                let is_member = members.iter().any(|m| m.txn.id == commit.txn.id);
                if !is_member
                    && writer.rules.may_read_older()
                    && self.explainer.may_write(&commit.txn, &tables)
                {
                    members.push(writer);
                }
            }
        }
        Some(members)
    }
}
