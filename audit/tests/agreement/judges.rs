//! The two judges of a history: the streaming audit, and the reference checker over the whole of it.

use pgassay_audit::assemble::{Assembled, Assembler, End, Transaction};
use pgassay_audit::control::Control;
use pgassay_audit::explain::limits::Limits;
use pgassay_audit::explain::{Ahead, Explainer};
use pgassay_audit::points::CommitId;
use pgassay_audit::reference::base::Base;
use pgassay_audit::reference::{Case, Decision, Member, Work, points, serial};
use pgassay_audit::sequence::Sequencer;
use pgassay_audit::trace::{Nanos, Outcome, Record, SessionId};
use pgassay_audit::verdict::Summary;
use pgassay_audit::{Auditor, Settings, script};
use pgassay_rules::Level;
use pgassay_rules::profile::{AbortedReads, Profile, RealTime};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    Wrong,
    /// Not decided.
    Unknown,
}

pub fn records(text: &str) -> Vec<Record> {
    records_at(text, Level::ReadCommitted)
}

pub fn records_at(text: &str, level: Level) -> Vec<Record> {
    script::parse(text, level).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

/// What the audit says when the history passes by.
pub fn audit(text: &str) -> (Verdict, Summary) {
    audit_records(records(text))
}

/// The same, of records.
pub fn audit_records(records: Vec<Record>) -> (Verdict, Summary) {
    audit_within(records, Limits::default())
}

/// The same, with other limits.
pub fn audit_within(records: Vec<Record>, limits: Limits) -> (Verdict, Summary) {
    audit_with(
        records,
        Settings {
            limits,
            ..Settings::default()
        },
    )
}

/// The same, with other settings.
pub fn audit_with(records: Vec<Record>, settings: Settings) -> (Verdict, Summary) {
    let mut auditor = Auditor::new(settings);
    for record in records {
        auditor.take(record);
    }
    auditor.finish();
    let summary = auditor.summary();
    let coverage = &summary.coverage;
    // Which serial order explains a cycle is forgotten: those that came later may contradict it. And an unknown value agrees
    // with everything.
    let mut forgotten = ["cycle_explained", "unknown_value"].into_iter();
    let verdict = if !summary.violations.is_empty() {
        Verdict::Wrong
    } else if coverage.partial + coverage.unchecked > 0
        || forgotten.any(|reason| coverage.reasons.contains_key(reason))
    {
        Verdict::Unknown
    } else {
        Verdict::Right
    };
    (verdict, summary)
}

/// What the definition says: every order of all points of all transactions is tried.
pub fn reference(text: &str) -> Verdict {
    reference_of(records(text))
}

/// The same, of records: the first session sets everything up.
pub fn reference_of(records: Vec<Record>) -> Verdict {
    reference_by(records, "postgres")
}

/// The same, by what a profile promises.
pub fn reference_by(records: Vec<Record>, profile: &str) -> Verdict {
    decided(records, profile, true)
}

/// The same, if what the first session set up is the first state of all, as if it had been copied.
pub fn reference_after_setup(records: Vec<Record>, profile: &str) -> Verdict {
    decided(records, profile, false)
}

fn decided(records: Vec<Record>, profile: &str, with_setup: bool) -> Verdict {
    let mut assembler = Assembler::default();
    let mut assembled = Vec::new();
    for record in records {
        assembler.take(record, &mut assembled);
    }
    assembler.finish(&mut assembled);
    let transactions: Vec<Arc<Transaction>> = assembled
        .into_iter()
        .filter_map(|a| match a {
            Assembled::Ended(txn) => Some(txn),
            Assembled::Prepared(_) | Assembled::Gap(_) => None,
        })
        .collect();
    let profile = Profile::named(profile).expect("built in");
    let mut explainer = Explainer::new(profile.clone());
    let (setup, rest): (Vec<_>, Vec<_>) = transactions
        .into_iter()
        .partition(|t| t.id.session == SessionId(1));
    let (sequencer, nobody) = (Sequencer::default(), Assembler::default());
    let ahead = Ahead {
        sequencer: &sequencer,
        assembler: &nobody,
    };
    let rules = |txn: &Transaction| *profile.level(txn.level).expect("a level of the profile");
    for txn in &setup {
        explainer.judge(txn, &ahead);
    }
    // A snapshot that may be older than its statement may be older than what the set-up wrote, which is part of the trace.
    let any_earlier = |t: &Arc<Transaction>| rules(t).real_time == RealTime::AnyEarlier;
    let mut part: Vec<(Arc<Transaction>, Option<CommitId>)> = Vec::new();
    if with_setup && rest.iter().any(any_earlier) {
        let written = explainer.world().order.iter();
        let written = written.filter(|(_, commit)| !commit.rows.is_empty());
        part.extend(written.map(|(id, commit)| (commit.txn.clone(), Some(id))));
    }
    let asks = |t: &Arc<Transaction>| t.steps.iter().any(|s| s.control == Control::Data);
    part.extend(rest.into_iter().filter(asks).map(|txn| (txn, None)));
    let members: Vec<Member> = part
        .into_iter()
        .map(|(txn, commit)| Member {
            level: txn.level,
            rules: rules(&txn),
            session: explainer.session(&txn),
            txn,
            commit,
        })
        .collect();
    let decide = |members: &[Member], decider: &dyn Fn(&Case<'_>) -> Decision| {
        let start = members.iter().map(|m| m.txn.sent()).min().unwrap_or(0);
        let base = Base {
            store: &explainer.world().store,
            order: &explainer.world().order,
            members: members.iter().filter_map(|m| m.commit).collect(),
            start,
            is_deep: false,
            strays: Default::default(),
        };
        let decision = decider(&Case {
            base,
            planner: &explainer.planner,
            members,
            work: &Work::new(u64::MAX),
        });
        match decision {
            Decision::Explained(_) => Verdict::Right,
            Decision::Impossible(_) => Verdict::Wrong,
            Decision::TooLarge | Decision::Open(_) => Verdict::Unknown,
        }
    };
    let is_promised = |m: &Member| m.rules.is_serial();
    let judge = |members: &[Member]| {
        let has_committed = |m: &Member| matches!(m.txn.end, End::Committed(_));
        let real_time = members.iter().any(|m| m.rules.is_in_real_time());
        // Transactions of other levels take no part in the serial order, and what they did in between is not modelled;
        // nor whether others committed.
        let in_series = || match members.iter().all(|m| is_promised(m) && has_committed(m)) {
            true => decide(members, &|case| serial::decide(case, real_time)),
            false => Verdict::Unknown,
        };
        if members.iter().any(|m| m.rules.is_serial_alone()) {
            return in_series();
        }
        match decide(members, &points::decide) {
            Verdict::Right if members.iter().any(is_promised) => in_series(),
            by_points => by_points,
        }
    };
    // Of those whose end nobody knows, each may have committed or not.
    let open: Vec<usize> = (0..members.len())
        .filter(|m| matches!(members[*m].txn.end, End::Unknown(_)))
        .collect();
    let mut verdict = Verdict::Wrong;
    for fates in 0..1u32 << open.len().min(4) {
        let mut members = members.clone();
        for (nth, at) in open.iter().enumerate() {
            let txn = Arc::make_mut(&mut members[*at].txn);
            let window = txn.end.window();
            txn.end = match fates >> nth & 1 {
                0 => End::Committed(window),
                _ => End::Aborted(window),
            };
            // It may be done long after nobody waits for it any more.
            let lost = txn.steps.iter_mut().filter(|s| s.seen.outcome == Outcome::Lost);
            lost.for_each(|s| Arc::make_mut(&mut s.seen).window.done = Nanos::MAX);
        }
        // An aborted SERIALIZABLE transaction may have seen anything.
        let may_see = |m: &Member| m.rules.aborted_reads == AbortedReads::Anything;
        members.retain(|m| !may_see(m) || matches!(m.txn.end, End::Committed(_)));
        match judge(&members) {
            Verdict::Right => return Verdict::Right,
            Verdict::Unknown => verdict = Verdict::Unknown,
            Verdict::Wrong => {}
        }
    }
    verdict
}
