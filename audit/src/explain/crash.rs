//! A crash of the audit costs one transaction.
//!
//! In: a transaction whose run panicked. Out: an attempt that says nothing: every answer agrees with it, and what it may
//! have written is unknown.
//!
//! Always true: what nobody knows how to run is not run again to find out what it did.

use super::asked::Asked;
use super::run::{Attempt, Judged, Scene};
use super::session::SessionState;
use crate::assemble::{Step, Transaction};
use crate::control::Control;
use crate::interpret::{self, Effect};
use crate::sql::{Kind, Planned};
use crate::trace::{Observation, Record};
use crate::verdict::{Coverage, TxnId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Why its statements are not checked.
pub const REASON: &str = "audit_crashed";

/// What a panic said.
pub fn message(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Arc::from(text.unwrap_or("nothing"))
}

/// An attempt that agrees with everything.
pub fn widened(
    txn: &Transaction,
    scene: &Scene<'_>,
    session: &SessionState,
    panic: &(dyn Any + Send),
) -> Attempt {
    let mut attempt = Attempt::new(txn, session);
    attempt.crash = Some(message(panic));
    let catalog = &scene.store.catalog;
    for (at, step) in txn.steps.iter().enumerate() {
        attempt.judged[at] = Some(Judged {
            coverage: Coverage::Unchecked(REASON.to_owned()),
            asked: false,
            loose: false,
            shape: Arc::from("(the audit crashed)"),
        });
        if step.control != Control::Data {
            continue;
        }
        match planned(step, scene, session) {
            Some(planned) => {
                if !matches!(
                    planned.kind,
                    Kind::Select(_) | Kind::Insert(_) | Kind::Update(_) | Kind::Delete(_) | Kind::Merge(_)
                ) {
                    attempt.session.blur(catalog);
                    attempt.lasting.blur(catalog);
                    attempt.unfollowed = true;
                }
                attempt.unfollowed |= planned.touches.writes_everything;
                interpret::drawn_unknown(&planned).for_each(|effect| attempt.overlay.apply(&effect, at));
                if planned.may_write {
                    attempt.wrote.push(at);
                    let written = planned.touches.written.iter().copied();
                    attempt.may_have_written.extend(written.clone());
                    attempt
                        .may_have_moved
                        .extend(written.clone().map(|table| (at, table)));
                    attempt.astray.extend(written);
                    let unknown = interpret::widened(&planned, REASON, &session.context).effects;
                    unknown
                        .iter()
                        .for_each(|effect| attempt.overlay.apply(effect, at));
                }
            }
            None => {
                // Not even what it says is known.
                attempt.wrote.push(at);
                attempt.unfollowed = true;
                let reason = REASON.to_owned();
                attempt.overlay.apply(&Effect::HavocEverything { reason }, at);
                attempt.session.blur(catalog);
                attempt.lasting.blur(catalog);
            }
        }
    }
    attempt.changes_session = !attempt.session.is(session) || !attempt.lasting.is(session);
    attempt
}

fn planned(step: &Step, scene: &Scene<'_>, session: &SessionState) -> Option<Arc<Planned>> {
    let plan = || {
        Asked::of(scene.planner, &scene.store.catalog, &step.seen, session)
            .prepared
            .planned
    };
    catch_unwind(AssertUnwindSafe(plan)).ok()
}

/// A crash, with what is needed to see it again.
#[derive(Clone, Debug)]
pub struct Crash {
    pub transaction: TxnId,
    pub message: Arc<str>,
    /// Those who were there, in order of time.
    pub records: Vec<Record>,
}

impl Crash {
    /// `others` overlapped the one in whose turn it happened.
    pub fn new<'t>(
        txn: &'t Arc<Transaction>,
        message: Arc<str>,
        others: impl IntoIterator<Item = &'t Arc<Transaction>>,
    ) -> Crash {
        let (sent, done) = (txn.sent(), txn.end.window().done);
        let mut all = vec![txn];
        for other in others {
            let overlaps = other.end.window().done >= sent && other.sent() <= done;
            if overlaps && !all.iter().any(|known| known.id == other.id) {
                all.push(other);
            }
        }
        let mut records: Vec<Record> = Vec::new();
        let mut statements: Vec<&Observation> = Vec::new();
        for txn in all {
            let start = Record::SessionStart((*txn.facts).clone());
            if !records.contains(&start) {
                records.push(start);
            }
            statements.extend(txn.steps.iter().map(|step| &*step.seen));
        }
        statements.sort_by_key(|seen| (seen.window.sent, seen.session, seen.seq, seen.part));
        records.extend(
            statements
                .into_iter()
                .map(|s| Record::Statement(Box::new(s.clone()))),
        );
        records.push(Record::Mark { at: done });
        Crash {
            transaction: txn.id,
            message,
            records,
        }
    }
}

/// Panics where a test has written so into a statement.
#[cfg(test)]
pub fn if_told(place: &str, text: &str) {
    assert!(
        !text.contains(&format!("crash in {place}")),
        "as the test asked for"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Auditor, Settings, script};
    use pgassay_rules::Level;

    const SETUP: &str = "init: create table a (k int primary key, v int)\n\
                         init: insert into a values (1, 10), (2, 20)\n\
                         init: create table b (k int primary key, v int)\n\
                         init: insert into b values (1, 100)\n";

    fn audited(story: &str) -> Auditor {
        let records = script::parse(&format!("{SETUP}{story}"), Level::RepeatableRead).expect("a story");
        let mut auditor = Auditor::new(Settings::default());
        for record in records {
            auditor.take(record);
        }
        auditor.finish();
        auditor
    }

    fn rules(auditor: &Auditor) -> Vec<String> {
        auditor
            .summary()
            .violations
            .iter()
            .map(|v| v.rule.clone())
            .collect()
    }

    #[test]
    fn a_reader_that_crashes_costs_nothing_else() {
        let mut auditor = audited(
            "t1: select v from a where k = 1 /* crash in run */ => (77)\n\
             t2: select v from a where k = 1 => (10)\n\
             t3: select v from a where k = 2 => (21)\n",
        );
        assert_eq!(
            rules(&auditor),
            ["garbage_read"],
            "what was known before is still known"
        );
        let summary = auditor.summary();
        assert_eq!(summary.coverage.reasons.get(REASON), Some(&1));
        assert_eq!((summary.statements, summary.coverage.unchecked), (7, 1));
        assert_eq!(auditor.stats().crashes, 1);
        let crashes = auditor.take_crashes();
        let [crash] = crashes.as_slice() else {
            panic!("{crashes:?}")
        };
        assert_eq!(&*crash.message, "as the test asked for");
        let kept = crash
            .records
            .iter()
            .filter(|r| matches!(r, Record::Statement(s) if s.text.contains("crash in run")));
        assert_eq!(kept.count(), 1);
    }

    #[test]
    fn what_a_writer_that_crashes_wrote_is_unknown_and_nothing_else_is() {
        let auditor = audited(
            "t1: begin\n\
             t1: update a set v = v + 1 where k = 1 /* crash in run */ => UPDATE 1\n\
             t1: commit\n\
             t2: select v from a where k = 1 => (4711)\n\
             t3: select v from b where k = 1 => (101)\n",
        );
        assert_eq!(rules(&auditor), ["garbage_read"]);
        assert!(auditor.summary().violations[0].observed.contains("(101)"));
        assert_eq!(auditor.stats().crashes, 1);
    }

    #[test]
    fn a_crash_beside_overlapping_writers_accuses_nobody() {
        let auditor = audited(
            "t1: update a set v = v + 1 where k = 1 ...\n\
             t2: update a set v = v * 2 where k = 1 /* crash in run */ ...\n\
             t3: select v from a where k = 1 => (22)\n\
             t1: ... => UPDATE 1\n\
             t2: ... => UPDATE 1\n\
             t4: select v from a where k = 1 => (21)\n",
        );
        assert_eq!(rules(&auditor), [""; 0]);
        assert!(auditor.stats().crashes > 0);
    }

    #[test]
    fn a_crash_while_placing_loses_what_was_known_and_goes_on() {
        let mut auditor = audited(
            "t1: select v from a where k = 1 /* crash in place */ => (77)\n\
             t2: select v from b where k = 1 => (4711)\n\
             t3: insert into b values (5, 50) => INSERT 0 1\n\
             t4: select v from b where k = 5 => (51)\n",
        );
        assert_eq!(
            rules(&auditor),
            ["garbage_read"],
            "what was learned after it is judged as ever"
        );
        let summary = auditor.summary();
        assert_eq!(
            summary.statements, 8,
            "every statement is counted, and counted once"
        );
        assert_eq!(summary.coverage.reasons.get(REASON), Some(&1));
        assert_eq!(auditor.take_crashes().len(), 1);
    }

    #[test]
    fn a_crash_while_proving_costs_one_suspicion() {
        let mut auditor = audited(
            "t1: select v from a where k = 1 /* crash in prove */ => (77)\n\
             t2: select v from b where k = 1 => (101)\n\
             t3: select k, v from a where k = 2 => (2, 21)\n",
        );
        assert_eq!(
            rules(&auditor),
            ["garbage_read"; 2],
            "what was known is known, and others are proved"
        );
        let summary = auditor.summary();
        assert_eq!(summary.coverage.reasons.get(REASON), Some(&1));
        assert_eq!((summary.statements, summary.coverage.unchecked), (7, 1));
        assert_eq!((auditor.stats().crashes, auditor.stats().proofs), (1, 3));
        let crashes = auditor.take_crashes();
        let [crash] = crashes.as_slice() else {
            panic!("{crashes:?}")
        };
        let kept = crash
            .records
            .iter()
            .filter(|r| matches!(r, Record::Statement(s) if s.text.contains("crash in prove")));
        assert_eq!(kept.count(), 1);
    }

    #[test]
    fn crashes_without_end_are_for_somebody_else() {
        let story: String = (0..9)
            .map(|n| format!("t{n}: select v from a where k = 1 /* crash in place */ => (10)\n"))
            .collect();
        let ended = catch_unwind(AssertUnwindSafe(|| audited(&story)));
        assert!(ended.is_err());
    }
}
