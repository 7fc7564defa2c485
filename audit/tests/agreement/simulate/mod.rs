//! A tiny multi-version database, written for these tests alone: it shares nothing with the audit.
//!
//! In: what each session is going to ask, and a seed that says who moves next. Out: a history that a correct
//! PostgreSQL could have produced (SERIALIZABLE is plain snapshot isolation here unless the plan asks for more, so
//! it may hold write skews).
//!
//! Sessions take turns at random, one small move each: a statement is sent; its snapshot is taken; rows are
//! locked and written one by one; a commit becomes visible; the answer arrives.
//!
//! Always true: a row belongs to one writer until that writer has ended; READ COMMITTED follows a row to its
//! newest version and looks at the condition again; REPEATABLE READ gives up (40001) instead.

pub mod database;
pub mod plan;
pub mod query;

pub use plan::{Child, Isolation, Plan, Wishes};

use crate::history::{Answer, Event, History, Pair, Statement};
use database::{Database, Holder, Need, Own};
use fastrand::Rng;
use plan::Move;
use query::{Query, Table, Unique};
use std::collections::VecDeque;

/// What is left to do of a statement that writes.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// To lock a row that was found, and to write it.
    Row(usize),
    /// To write a row that is locked, under another key.
    Rekeyed(usize),
    /// To see that nobody else has the value of a row that was written.
    Distinct(usize),
    /// To see that a row of `kv` has this key, and to hold it; which one, once it was waited for.
    Refers(i64, Option<usize>),
    /// To see who refers to a key that was set free.
    Orphans { of: i64, cascades: bool },
    /// To see that a row that refers to one that is gone is gone, too; if it cascades, to delete it.
    Orphan { row: usize, cascades: bool },
    /// To insert a row.
    Insert(Table, Pair),
}

enum Phase {
    /// Nothing under way.
    Idle,
    Sent,
    /// Snapshot taken; what is left to do, rows returned so far, rows counted so far.
    Writing {
        left: VecDeque<Task>,
        rows: Vec<Vec<Option<i64>>>,
        count: usize,
    },
    Answered(Answer),
}

struct Session {
    id: usize,
    /// Of transactions that do not say another, and of the present one.
    default: Isolation,
    level: Isolation,
    script: Vec<Vec<Move>>,
    txn: usize,
    at: usize,
    explicit: bool,
    failed: bool,
    snapshot: Option<u64>,
    own: Own,
    saved: Option<Own>,
    phase: Phase,
    statement: usize,
    waits_for: Option<(usize, Need)>,
    /// The client is gone; the server goes on with what it was asked.
    lost: bool,
}

struct Game {
    database: Database,
    history: History,
    wishes: Wishes,
}

/// Plays a plan; `seed` decides who moves next.
pub fn play(plan: &Plan, seed: u64) -> History {
    let mut rng = Rng::with_seed(seed);
    let mut sessions: Vec<Session> = plan
        .sessions
        .iter()
        .enumerate()
        .map(|(at, (level, script))| Session {
            id: at + 1,
            default: *level,
            level: *level,
            script: script.clone(),
            txn: 0,
            at: 0,
            explicit: false,
            failed: false,
            snapshot: None,
            own: Own::default(),
            saved: None,
            phase: Phase::Idle,
            statement: 0,
            waits_for: None,
            lost: false,
        })
        .collect();
    let mut game = Game {
        database: Database::new(&plan.kv, &plan.bag, plan.wishes.by_key.then(|| rng.fork())),
        history: History {
            kv: plan.kv.clone(),
            bag: plan.bag.clone(),
            distinct: plan.wishes.distinct,
            child: plan.wishes.child,
            levels: sessions.iter().map(|s| (s.id, s.level.sql())).collect(),
            ..History::default()
        },
        wishes: plan.wishes,
    };
    // One kind of history keeps statements apart, another interleaves them as much as possible.
    let eager = rng.u8(0..4);
    let mut looks = Looks::new(plan.looks);
    loop {
        let live: Vec<usize> = (0..sessions.len()).filter(|s| !sessions[*s].is_done()).collect();
        if live.is_empty() {
            looks.finish(&mut game);
            return game.history;
        }
        if looks.left > 0 && rng.u8(0..12) == 0 {
            looks.advance(&mut game);
        }
        let ready: Vec<usize> = live
            .iter()
            .copied()
            .filter(|s| !game.is_waiting(&sessions[*s]))
            .collect();
        let Some(&next) = ready.get(rng.usize(0..ready.len().max(1))) else {
            // A deadlock: one of them is the victim.
            let victim = live[rng.usize(0..live.len())];
            game.fail(&mut sessions[victim], "40P01");
            continue;
        };
        // Most of the time a statement that is under way goes on.
        let next = match ready
            .iter()
            .copied()
            .find(|s| !matches!(sessions[*s].phase, Phase::Idle))
        {
            Some(busy) if rng.u8(0..4) < eager => busy,
            _ => next,
        };
        game.advance(&mut sessions[next], &mut rng);
    }
}

/// Somebody who reads everything that is committed, now and then.
struct Looks {
    left: usize,
    phase: usize,
    statement: usize,
}

impl Looks {
    fn new(left: usize) -> Looks {
        Looks {
            left,
            phase: 0,
            statement: 0,
        }
    }

    fn advance(&mut self, game: &mut Game) {
        match self.phase {
            0 => {
                self.statement = game.history.statements.len();
                let number = game.history.looks.len();
                game.history.statements.push(Statement {
                    session: 0,
                    txn: number,
                    sql: format!("select 'look {number}'"),
                    answer: Answer::Plain,
                });
                game.history.events.push(Event::Begin(self.statement));
                self.phase = 1;
            }
            1 => {
                let (kv, bag) = game.database.committed();
                game.history.looks.push((kv, bag));
                self.phase = 2;
            }
            _ => {
                game.history.events.push(Event::End(self.statement));
                self.phase = 0;
                self.left -= 1;
            }
        }
    }

    fn finish(&mut self, game: &mut Game) {
        while self.phase != 0 {
            self.advance(game);
        }
    }
}

impl Session {
    fn is_done(&self) -> bool {
        self.txn == self.script.len()
    }

    fn current(&self) -> &Move {
        &self.script[self.txn][self.at]
    }
}

impl Game {
    fn is_waiting(&self, session: &Session) -> bool {
        session
            .waits_for
            .is_some_and(|(row, need)| self.database.is_blocked(row, session.id, need))
    }

    fn begin(&mut self, session: &mut Session, sql: String) {
        session.statement = self.history.statements.len();
        let statement = Statement {
            session: session.id,
            txn: session.id * 100 + session.txn,
            sql,
            answer: Answer::Plain,
        };
        self.history.statements.push(statement);
        self.history.events.push(Event::Begin(session.statement));
        session.phase = Phase::Sent;
    }

    fn end(&mut self, session: &mut Session, answer: Answer) {
        if !session.lost {
            self.history.statements[session.statement].answer = answer;
            self.history.events.push(Event::End(session.statement));
        }
        session.phase = Phase::Idle;
    }

    fn advance(&mut self, session: &mut Session, rng: &mut Rng) {
        let step = session.current().clone();
        match &mut session.phase {
            Phase::Idle => {
                if !session.explicit {
                    session.level = session.default;
                }
                self.begin(session, step.sql());
                if self.wishes.lost && rng.u8(0..40) == 0 {
                    self.end(session, Answer::Lost);
                    session.lost = true;
                    session.phase = Phase::Sent;
                }
            }
            Phase::Sent => match step {
                Move::Run(query) => self.start(session, &query),
                Move::Begin(level) => {
                    session.explicit = true;
                    session.level = level.unwrap_or(session.default);
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::Default(level) => {
                    session.default = level;
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::Savepoint => {
                    session.saved = Some(session.own.clone());
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::RollbackTo => {
                    let saved = session.saved.clone().expect("a savepoint was set before");
                    self.database.back_to(&mut session.own, session.id, saved);
                    session.failed = false;
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::Commit => {
                    let answer = match self.commit(session) {
                        true => Answer::Plain,
                        false => Answer::Error("40001"),
                    };
                    session.phase = Phase::Answered(answer);
                }
                Move::Rollback => {
                    session.failed = false;
                    self.database.release(&mut session.own, session.id);
                    session.phase = Phase::Answered(Answer::Plain);
                }
            },
            Phase::Writing { .. } => {
                let Move::Run(query) = step else {
                    unreachable!("only queries write")
                };
                self.write(session, &query);
            }
            Phase::Answered(answer) => {
                let answer = answer.clone();
                self.end(session, answer);
                if session.lost {
                    // Nobody asks for more, and what was not committed is undone.
                    self.database.release(&mut session.own, session.id);
                    session.txn = session.script.len();
                    return;
                }
                self.step_on(session);
            }
        }
    }

    fn step_on(&mut self, session: &mut Session) {
        session.at += 1;
        if session.failed {
            // A failed block goes to its end, or back to its savepoint if the script does so.
            let saved = session.saved.is_some();
            while !match session.current() {
                Move::Commit | Move::Rollback => true,
                Move::RollbackTo => saved,
                _ => false,
            } {
                session.at += 1;
            }
            let at = session.at;
            if matches!(session.current(), Move::Commit) {
                session.script[session.txn][at] = Move::Rollback;
            }
        }
        if session.at == session.script[session.txn].len() {
            session.txn += 1;
            session.at = 0;
            session.explicit = false;
            session.failed = false;
            session.snapshot = None;
            session.saved = None;
        }
    }

    /// Whether it could commit; otherwise it is undone.
    fn commit(&mut self, session: &mut Session) -> bool {
        let serial = self.wishes.serial && session.level == Isolation::Serializable;
        self.database.commit(
            &mut session.own,
            session.id,
            serial.then_some(session.snapshot).flatten(),
        )
    }

    /// The statement fails; so does its transaction.
    fn fail(&mut self, session: &mut Session, code: &'static str) {
        session.waits_for = None;
        match session.explicit {
            // The locks of a failed block are gone; rolling back to a savepoint brings back the earlier ones.
            true => {
                let kept = session.saved.clone().unwrap_or_default();
                self.database.back_to(&mut session.own, session.id, kept);
                session.failed = true;
            }
            false => self.database.release(&mut session.own, session.id),
        }
        session.phase = Phase::Answered(Answer::Error(code));
    }

    /// Takes the snapshot; a reader has its answer then.
    fn start(&mut self, session: &mut Session, query: &Query) {
        let now = self.database.now();
        let snapshot = match session.level {
            Isolation::ReadCommitted => now,
            _ => session.snapshot.unwrap_or(now),
        };
        session.snapshot = Some(snapshot);
        session.own.reads.extend(query.reads());
        if (self.wishes.distinct || self.wishes.child.is_some()) && query.writes() {
            session.own.reads.extend([(Table::Kv, None), (Table::Bag, None)]);
        }
        let visible = |table: Table| self.database.visible(table, &session.own, snapshot);
        let query = match query {
            Query::Blind(inner) => inner,
            query => query,
        };
        let rows: Vec<Vec<Option<i64>>> = match query {
            Query::Value(of) => {
                let found = visible(of.0).into_iter().filter(|(_, row)| of.1.holds(*row));
                found.map(|(_, (_, v))| vec![v]).collect()
            }
            Query::Rows(of) => {
                let found = visible(of.0).into_iter().filter(|(_, row)| of.1.holds(*row));
                found.map(|(_, (k, v))| vec![Some(k), v]).collect()
            }
            Query::Ordered(table) => {
                let mut found: Vec<_> = visible(*table).into_iter().map(|(_, row)| row).collect();
                found.sort_by_key(|(k, v)| (*k, v.is_none(), *v));
                found.into_iter().map(|(k, v)| vec![Some(k), v]).collect()
            }
            Query::Sum(table) => {
                let found: Vec<i64> = visible(*table).into_iter().filter_map(|(_, (_, v))| v).collect();
                vec![vec![(!found.is_empty()).then(|| found.iter().sum())]]
            }
            Query::Count(of) => {
                let found = visible(of.0).into_iter().filter(|(_, row)| of.1.holds(*row));
                vec![vec![Some(found.count() as i64)]]
            }
            Query::Insert { table, rows } => {
                let left = rows.iter().map(|row| Task::Insert(*table, *row));
                return session.work(left.collect());
            }
            Query::Upsert { rows, .. } => {
                return session.work(rows.iter().map(|row| Task::Insert(Table::Kv, *row)).collect());
            }
            Query::Copy(of) => {
                let found = visible(Table::Kv).into_iter().filter(|(_, row)| of.holds(*row));
                let left = found.map(|(_, row)| Task::Insert(Table::Bag, row)).collect();
                return session.work(left);
            }
            _ => {
                let of = query.target().expect("all others have one");
                let found = visible(of.0).into_iter().filter(|(_, row)| of.1.holds(*row));
                let left = found.map(|(id, _)| Task::Row(id)).collect();
                return session.work(left);
            }
        };
        self.answered(session, Answer::Rows(rows));
    }

    fn answered(&mut self, session: &mut Session, answer: Answer) {
        let refused = !session.explicit && !self.commit(session);
        session.phase = Phase::Answered(match refused {
            true => Answer::Error("40001"),
            false => answer,
        });
    }

    /// Locks and writes the next row, or answers when none is left.
    fn write(&mut self, session: &mut Session, query: &Query) {
        let Phase::Writing {
            mut left,
            mut rows,
            mut count,
        } = std::mem::replace(&mut session.phase, Phase::Sent)
        else {
            return;
        };
        session.waits_for = None;
        let asked = match query {
            Query::Blind(inner) => inner,
            query => query,
        };
        let Some(task) = left.pop_front() else {
            return self.finish(session, query, rows, count);
        };
        let done = match task {
            Task::Row(row) => self.write_row(session, asked, row, &mut left),
            Task::Rekeyed(row) => self.rekey(session, asked, row, &mut left),
            Task::Distinct(row) => self.compare(session, row),
            Task::Refers(k, row) => self.refer(session, k, row),
            Task::Orphans { of, cascades } => self.look_for_orphans(session, of, cascades, &mut left),
            Task::Orphan { row, cascades } => self.see_off(session, row, cascades),
            Task::Insert(table, made) => self.insert(session, asked, table, made, &mut left),
        };
        match done {
            Done::Failed(code) => return self.fail(session, code),
            Done::Waits(row, need) => {
                session.waits_for = Some((row, need));
                left.push_front(match task {
                    Task::Refers(k, _) => Task::Refers(k, Some(row)),
                    task => task,
                });
            }
            Done::Nothing => {}
            Done::Row(k, v) => {
                rows.push(vec![Some(k), v]);
                count += 1;
            }
        }
        session.phase = Phase::Writing { left, rows, count };
    }

    fn write_row(
        &mut self,
        session: &mut Session,
        query: &Query,
        row: usize,
        left: &mut VecDeque<Task>,
    ) -> Done {
        let need = match query {
            Query::Set { of, .. } | Query::Add { of, .. } if of.0 == Table::Bag || !self.wishes.distinct => {
                Need::Write
            }
            _ => Need::Whole,
        };
        if self.database.is_blocked(row, session.id, need) {
            return match query {
                Query::Lock { skip: true, .. } => Done::Nothing,
                _ => Done::Waits(row, need),
            };
        }
        if self.is_too_new(session, row) {
            return Done::Failed("40001");
        }
        let of = query.target().expect("its rows were found by it");
        let now = self.database.found(row, &session.own);
        let Some((k, v)) = now.filter(|now| of.1.holds(*now)) else {
            return Done::Nothing;
        };
        self.database.take(&mut session.own, session.id, row, need);
        let made = match query {
            Query::Set { v, .. } => Some((k, Some(*v))),
            Query::Add { d, .. } => Some((k, v.map(|v| v + d))),
            Query::Rekey { .. } => {
                left.push_front(Task::Rekeyed(row));
                return Done::Nothing;
            }
            Query::Lock { .. } => return Done::Row(k, v),
            Query::Move(_) => {
                self.database
                    .insert(&mut session.own, session.id, Table::Bag, (k, v));
                None
            }
            _ => None,
        };
        self.database.put(&mut session.own, row, made);
        if made.is_some_and(|made| made.1 != v) && of.0 == Table::Kv {
            self.is_to_be_distinct(row, left);
        }
        if let (None, Table::Kv, Some(child)) = (made, of.0, self.wishes.child) {
            let cascades = child == Child::Cascades;
            left.push_back(Task::Orphans { of: k, cascades });
        }
        let (k, v) = made.unwrap_or((k, v));
        Done::Row(k, v)
    }

    fn is_to_be_distinct(&self, row: usize, left: &mut VecDeque<Task>) {
        if self.wishes.distinct {
            left.push_front(Task::Distinct(row));
        }
    }

    fn compare(&mut self, session: &mut Session, row: usize) -> Done {
        let made = self.database.newest(row, &session.own).expect("it was written");
        match self.holder(session, Unique::Value, made, Some(row)) {
            Holder::Waits(other) => Done::Waits(other, Need::Write),
            Holder::Row(_) => Done::Failed("23505"),
            Holder::Nobody => Done::Nothing,
        }
    }

    /// The row that is referred to is looked for in the snapshot, and is held if nobody sets its key free.
    fn refer(&mut self, session: &mut Session, k: i64, waited_for: Option<usize>) -> Done {
        let now = match session.level {
            Isolation::ReadCommitted => self.database.now(),
            _ => session.snapshot.expect("taken when the statement started"),
        };
        let found = waited_for.or_else(|| {
            let mut visible = self.database.visible(Table::Kv, &session.own, now).into_iter();
            visible.find(|(_, row)| row.0 == k).map(|(id, _)| id)
        });
        let Some(row) = found else {
            return Done::Failed("23503");
        };
        if self.database.is_blocked(row, session.id, Need::Refer) {
            return Done::Waits(row, Need::Refer);
        }
        let is_own = session.own.rows.contains_key(&row);
        let distinct = self.wishes.distinct;
        if session.level != Isolation::ReadCommitted
            && !is_own
            && self.database.lost_its_keys_since(row, now, distinct)
        {
            return Done::Failed("40001");
        }
        if self
            .database
            .newest(row, &session.own)
            .is_none_or(|row| row.0 != k)
        {
            return Done::Failed("23503");
        }
        self.database.share(&mut session.own, session.id, row);
        Done::Nothing
    }

    /// Whoever refers to a key is looked for among the newest rows, whatever the snapshot.
    fn look_for_orphans(
        &mut self,
        session: &Session,
        of: i64,
        cascades: bool,
        left: &mut VecDeque<Task>,
    ) -> Done {
        let newest = |table| self.database.visible(table, &session.own, self.database.now());
        if cascades || newest(Table::Kv).iter().all(|(_, row)| row.0 != of) {
            for (row, _) in newest(Table::Bag).into_iter().filter(|(_, row)| row.0 == of) {
                left.push_front(Task::Orphan { row, cascades });
            }
        }
        Done::Nothing
    }

    fn see_off(&mut self, session: &mut Session, row: usize, cascades: bool) -> Done {
        let need = match cascades {
            true => Need::Whole,
            false => Need::Refer,
        };
        if self.database.is_blocked(row, session.id, need) {
            return Done::Waits(row, need);
        }
        let is_gone = self.database.newest(row, &session.own).is_none();
        if session.level != Isolation::ReadCommitted && !session.own.rows.contains_key(&row) {
            let snapshot = session.snapshot.expect("taken when the statement started");
            // The newest one is deleted only if it is in the snapshot, too.
            if is_gone || (cascades && self.database.changed_since(row, snapshot)) {
                return Done::Failed("40001");
            }
        }
        if is_gone {
            return Done::Nothing;
        }
        if !cascades {
            return Done::Failed("23503");
        }
        self.database.take(&mut session.own, session.id, row, Need::Whole);
        self.database.put(&mut session.own, row, None);
        Done::Nothing
    }

    fn holder(&self, session: &Session, unique: Unique, wanted: Pair, except: Option<usize>) -> Holder {
        self.database
            .holder(unique, wanted, &session.own, session.id, except)
    }

    fn rekey(&mut self, session: &mut Session, query: &Query, row: usize, left: &mut VecDeque<Task>) -> Done {
        let (Query::Rekey { to, .. }, Some((from, v))) = (query, self.database.newest(row, &session.own))
        else {
            unreachable!("the row is locked")
        };
        match self.holder(session, Unique::Key, (*to, v), Some(row)) {
            Holder::Waits(other) => Done::Waits(other, Need::Write),
            Holder::Row(_) => Done::Failed("23505"),
            Holder::Nobody => {
                if self.wishes.child.is_some() && from != *to {
                    left.push_back(Task::Orphans {
                        of: from,
                        cascades: false,
                    });
                }
                self.database.put(&mut session.own, row, Some((*to, v)));
                Done::Row(*to, v)
            }
        }
    }

    fn insert(
        &mut self,
        session: &mut Session,
        query: &Query,
        table: Table,
        made: Pair,
        left: &mut VecDeque<Task>,
    ) -> Done {
        let there = match (table, query) {
            (Table::Bag, _) => Holder::Nobody,
            (Table::Kv, Query::Upsert { on, .. }) => match self.holder(session, *on, made, None) {
                // What it does not arbitrate has to be free.
                Holder::Nobody if *on == Unique::Value => {
                    match self.holder(session, Unique::Key, made, None) {
                        Holder::Row(_) => return Done::Failed("23505"),
                        there => there,
                    }
                }
                there => there,
            },
            (Table::Kv, _) => self.holder(session, Unique::Key, made, None),
        };
        match (there, query) {
            (Holder::Waits(row), _) => Done::Waits(row, Need::Write),
            (Holder::Nobody, _) => {
                let row = self.database.insert(&mut session.own, session.id, table, made);
                match table {
                    Table::Kv => self.is_to_be_distinct(row, left),
                    Table::Bag if self.wishes.child.is_some() => left.push_back(Task::Refers(made.0, None)),
                    Table::Bag => {}
                }
                Done::Row(made.0, made.1)
            }
            (Holder::Row(row), Query::Upsert { .. }) if self.is_too_new(session, row) => {
                Done::Failed("40001")
            }
            (Holder::Row(_), Query::Upsert { nothing: true, .. }) => Done::Nothing,
            (Holder::Row(row), Query::Upsert { .. }) => {
                let (k, v) = self.database.newest(row, &session.own).expect("it is there");
                let now = (k, v.map(|v| v + 1));
                let need = match self.wishes.distinct {
                    true => Need::Whole,
                    false => Need::Write,
                };
                self.database.take(&mut session.own, session.id, row, need);
                self.database.put(&mut session.own, row, Some(now));
                if v.is_some() {
                    self.is_to_be_distinct(row, left);
                }
                Done::Row(now.0, now.1)
            }
            (Holder::Row(_), _) => Done::Failed("23505"),
        }
    }

    /// Whether the row was changed since the snapshot of a transaction that has only one.
    fn is_too_new(&self, session: &Session, row: usize) -> bool {
        let snapshot = session.snapshot.expect("taken when the statement started");
        session.level != Isolation::ReadCommitted
            && !session.own.rows.contains_key(&row)
            && self.database.changed_since(row, snapshot)
    }

    fn finish(&mut self, session: &mut Session, query: &Query, rows: Vec<Vec<Option<i64>>>, count: usize) {
        let answer = match query.returning() {
            true => Answer::Rows(rows),
            false => Answer::Tag(query.tag(count)),
        };
        self.answered(session, answer);
    }
}

impl Session {
    fn work(&mut self, left: VecDeque<Task>) {
        self.phase = Phase::Writing {
            left,
            rows: Vec::new(),
            count: 0,
        };
    }
}

/// What became of a task.
enum Done {
    Row(i64, Option<i64>),
    Nothing,
    Waits(usize, Need),
    Failed(&'static str),
}
