//! A tiny multi-version database, written for this test alone: it shares nothing with the audit.
//!
//! In: a seed and a level for each transaction. Out: a history that a correct PostgreSQL could have produced
//! (SERIALIZABLE is plain snapshot isolation here, so it may hold write skews).
//!
//! Sessions take turns at random, one small move each: a statement is sent; its snapshot is taken; rows are
//! locked and written one by one; a commit becomes visible; the answer arrives.
//!
//! Always true: a row belongs to one writer until that writer has ended; READ COMMITTED follows a row to its
//! newest version and looks at the condition again; REPEATABLE READ gives up (40001) instead.

use crate::history::{Answer, Event, History, Statement};
use fastrand::Rng;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    pub fn sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }
}

#[derive(Clone, Debug)]
enum Condition {
    All,
    Key(i64),
    Above(i64),
}

#[derive(Clone, Debug)]
enum Query {
    Value(i64),
    All,
    Sum,
    CountAbove(i64),
    Lock(i64),
    Set { v: i64, of: Condition, returning: bool },
    Add { d: i64, of: Condition, returning: bool },
    Insert { k: i64, v: Option<i64> },
    Upsert { k: i64, v: i64, returning: bool },
    Delete { of: Condition, returning: bool },
}

#[derive(Clone, Debug)]
enum Move {
    Begin,
    Run(Query),
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
}

/// One row from its birth to its death; a key that is inserted again is another row.
struct Row {
    k: i64,
    /// By commit number; `None` is deleted.
    versions: Vec<(u64, Option<Option<i64>>)>,
    owner: Option<usize>,
}

#[derive(Clone, Default)]
struct Own {
    /// What the transaction made of rows.
    rows: BTreeMap<usize, Option<Option<i64>>>,
    locked: Vec<usize>,
}

enum Phase {
    /// Nothing under way.
    Idle,
    Sent,
    /// Snapshot taken; rows still to be locked, rows returned so far, rows counted so far.
    Writing {
        left: Vec<usize>,
        rows: Vec<Vec<Option<i64>>>,
        count: usize,
    },
    Answered(Answer),
}

struct Session {
    id: usize,
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
    waits_for: Option<usize>,
}

struct Database {
    rows: Vec<Row>,
    clock: u64,
    history: History,
}

/// Plays random transactions of 2 to `sessions` sessions, each with 1 to `each` of them.
pub fn play(rng: &mut Rng, sessions: usize, each: usize, level: impl Fn(&mut Rng) -> Isolation) -> History {
    let keys: i64 = rng.i64(1..4);
    let initial: Vec<(i64, Option<i64>)> = (1..=keys)
        .map(|k| (k, if rng.u8(0..8) == 0 { None } else { Some(k * 10) }))
        .collect();
    let rows = initial
        .iter()
        .map(|(k, v)| Row {
            k: *k,
            versions: vec![(0, Some(*v))],
            owner: None,
        })
        .collect();
    let mut database = Database {
        rows,
        clock: 0,
        history: History {
            initial,
            ..History::default()
        },
    };
    let mut sessions: Vec<Session> = (0..rng.usize(2..=sessions))
        .map(|id| Session {
            id: id + 1,
            level: level(rng),
            script: (0..rng.usize(1..=each)).map(|_| script(rng, keys)).collect(),
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
        })
        .collect();
    database.history.levels = sessions.iter().map(|s| (s.id, s.level.sql())).collect();
    // One kind of history keeps statements apart, another interleaves them as much as possible.
    let eager = rng.u8(0..4);
    loop {
        let live: Vec<usize> = (0..sessions.len()).filter(|s| !sessions[*s].is_done()).collect();
        if live.is_empty() {
            return database.history;
        }
        let ready: Vec<usize> = live
            .iter()
            .copied()
            .filter(|s| !database.is_waiting(&sessions[*s]))
            .collect();
        let Some(&next) = ready.get(rng.usize(0..ready.len().max(1))) else {
            // A deadlock: one of them is the victim.
            let victim = live[rng.usize(0..live.len())];
            database.fail(&mut sessions[victim], "40P01");
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
        database.advance(&mut sessions[next]);
    }
}

fn script(rng: &mut Rng, keys: i64) -> Vec<Move> {
    if rng.u8(0..3) == 0 {
        return vec![Move::Run(query(rng, keys))];
    }
    let mut moves = vec![Move::Begin];
    let mut saved = false;
    for _ in 0..rng.usize(1..4) {
        match rng.u8(0..10) {
            0 if !saved => {
                saved = true;
                moves.push(Move::Savepoint);
            }
            1 if saved => moves.push(Move::RollbackTo),
            _ => moves.push(Move::Run(query(rng, keys))),
        }
    }
    moves.push(if rng.u8(0..6) == 0 {
        Move::Rollback
    } else {
        Move::Commit
    });
    moves
}

fn query(rng: &mut Rng, keys: i64) -> Query {
    let k = rng.i64(1..=keys + 1);
    let v = rng.i64(1..60);
    let of = match rng.u8(0..5) {
        0 => Condition::All,
        1 => Condition::Above(rng.i64(1..40)),
        _ => Condition::Key(k),
    };
    let returning = rng.bool();
    match rng.u8(0..14) {
        0..=2 => Query::Value(k),
        3 => Query::All,
        4 => Query::Sum,
        5 => Query::CountAbove(rng.i64(1..40)),
        6 => Query::Lock(k),
        7 => Query::Set { v, of, returning },
        8..=9 => Query::Add {
            d: rng.i64(1..5),
            of,
            returning,
        },
        10..=11 => Query::Insert {
            k,
            v: if rng.u8(0..6) == 0 { None } else { Some(v) },
        },
        12 => Query::Upsert { k, v, returning },
        _ => Query::Delete { of, returning },
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

impl Condition {
    fn sql(&self) -> String {
        match self {
            Condition::All => String::new(),
            Condition::Key(k) => format!(" where k = {k}"),
            Condition::Above(v) => format!(" where v > {v}"),
        }
    }

    fn holds(&self, k: i64, v: Option<i64>) -> bool {
        match self {
            Condition::All => true,
            Condition::Key(key) => *key == k,
            Condition::Above(bound) => v.is_some_and(|v| v > *bound),
        }
    }
}

impl Query {
    fn sql(&self) -> String {
        let back = |returning: &bool| if *returning { " returning k, v" } else { "" };
        match self {
            Query::Value(k) => format!("select v from kv where k = {k}"),
            Query::All => "select k, v from kv order by k".to_owned(),
            Query::Sum => "select sum(v) from kv".to_owned(),
            Query::CountAbove(v) => format!("select count(*) from kv where v > {v}"),
            Query::Lock(k) => format!("select v from kv where k = {k} for update"),
            Query::Set { v, of, returning } => {
                format!("update kv set v = {v}{}{}", of.sql(), back(returning))
            }
            Query::Add { d, of, returning } => {
                format!("update kv set v = v + {d}{}{}", of.sql(), back(returning))
            }
            Query::Insert { k, v } => {
                format!(
                    "insert into kv values ({k}, {})",
                    v.map_or_else(|| "null".to_owned(), |v| v.to_string())
                )
            }
            Query::Upsert { k, v, returning } => {
                format!(
                    "insert into kv values ({k}, {v}) on conflict (k) do update set v = kv.v + 1{}",
                    back(returning)
                )
            }
            Query::Delete { of, returning } => format!("delete from kv{}{}", of.sql(), back(returning)),
        }
    }

    fn returning(&self) -> bool {
        match self {
            Query::Set { returning, .. }
            | Query::Add { returning, .. }
            | Query::Upsert { returning, .. }
            | Query::Delete { returning, .. } => *returning,
            Query::Lock(_) => true,
            _ => false,
        }
    }

    fn tag(&self, count: usize) -> String {
        match self {
            Query::Insert { .. } | Query::Upsert { .. } => format!("INSERT 0 {count}"),
            Query::Delete { .. } => format!("DELETE {count}"),
            Query::Lock(_) => format!("SELECT {count}"),
            _ => format!("UPDATE {count}"),
        }
    }
}

impl Database {
    /// The row as a transaction sees it: its own version, or the newest of its snapshot.
    fn seen(&self, row: usize, own: &Own, snapshot: u64) -> Option<Option<i64>> {
        match own.rows.get(&row) {
            Some(made) => *made,
            None => self.rows[row]
                .versions
                .iter()
                .rev()
                .find(|(c, _)| *c <= snapshot)
                .and_then(|(_, v)| *v),
        }
    }

    fn changed_since(&self, row: usize, snapshot: u64) -> bool {
        self.rows[row].versions.last().is_some_and(|(c, _)| *c > snapshot)
    }

    fn owner(&self, row: usize, of: &Session) -> Option<usize> {
        self.rows[row].owner.filter(|o| *o != of.id)
    }

    fn is_waiting(&self, session: &Session) -> bool {
        session
            .waits_for
            .is_some_and(|row| self.owner(row, session).is_some())
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
        self.history.statements[session.statement].answer = answer;
        self.history.events.push(Event::End(session.statement));
        session.phase = Phase::Idle;
    }

    fn advance(&mut self, session: &mut Session) {
        let step = session.current().clone();
        match &mut session.phase {
            Phase::Idle => {
                let sql = match &step {
                    Move::Begin => format!("begin isolation level {}", session.level.sql()),
                    Move::Savepoint => "savepoint a".to_owned(),
                    Move::RollbackTo => "rollback to savepoint a".to_owned(),
                    Move::Commit => "commit".to_owned(),
                    Move::Rollback => "rollback".to_owned(),
                    Move::Run(query) => query.sql(),
                };
                self.begin(session, sql);
            }
            Phase::Sent => match step {
                Move::Run(query) => self.start(session, &query),
                Move::Begin => {
                    session.explicit = true;
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::Savepoint => {
                    session.saved = Some(session.own.clone());
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::RollbackTo => {
                    let saved = session.saved.clone().expect("a savepoint was set before");
                    for row in session.own.locked.iter().filter(|r| !saved.locked.contains(r)) {
                        self.rows[*row].owner = None;
                    }
                    session.own = saved;
                    session.failed = false;
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::Commit => {
                    self.commit(session);
                    session.phase = Phase::Answered(Answer::Plain);
                }
                Move::Rollback => {
                    session.failed = false;
                    self.release(session);
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

    fn commit(&mut self, session: &mut Session) {
        self.clock += 1;
        for (row, made) in std::mem::take(&mut session.own.rows) {
            self.rows[row].versions.push((self.clock, made));
        }
        self.release(session);
    }

    fn release(&mut self, session: &mut Session) {
        for row in &session.own.locked {
            self.rows[*row].owner = None;
        }
        session.own = Own::default();
    }

    /// The statement fails; so does its transaction.
    fn fail(&mut self, session: &mut Session, code: &'static str) {
        session.waits_for = None;
        match session.explicit {
            // The locks of a failed block are gone; rolling back to a savepoint brings back the earlier ones.
            true => {
                let kept = session.saved.clone().unwrap_or_default();
                for row in session.own.locked.iter().filter(|r| !kept.locked.contains(r)) {
                    self.rows[*row].owner = None;
                }
                session.own = kept;
                session.failed = true;
            }
            false => self.release(session),
        }
        session.phase = Phase::Answered(Answer::Error(code));
    }

    /// Takes the snapshot and answers at once, or finds the rows to be written.
    fn start(&mut self, session: &mut Session, query: &Query) {
        let by_statement = session.level == Isolation::ReadCommitted;
        let snapshot = match session.snapshot {
            Some(snapshot) if !by_statement => snapshot,
            _ => self.clock,
        };
        session.snapshot = Some(snapshot);
        let visible: Vec<(usize, i64, Option<i64>)> = (0..self.rows.len())
            .filter_map(|r| {
                self.seen(r, &session.own, snapshot)
                    .map(|v| (r, self.rows[r].k, v))
            })
            .collect();
        let rows = match query {
            Query::Value(k) => visible
                .iter()
                .filter(|(_, key, _)| key == k)
                .map(|(_, _, v)| vec![*v])
                .collect(),
            Query::All => {
                let mut rows: Vec<_> = visible.iter().map(|(_, k, v)| vec![Some(*k), *v]).collect();
                rows.sort();
                rows
            }
            Query::Sum => {
                let known: Vec<i64> = visible.iter().filter_map(|(_, _, v)| *v).collect();
                vec![vec![if known.is_empty() {
                    None
                } else {
                    Some(known.iter().sum())
                }]]
            }
            Query::CountAbove(bound) => {
                let count = visible
                    .iter()
                    .filter(|(_, _, v)| v.is_some_and(|v| v > *bound))
                    .count();
                vec![vec![Some(count as i64)]]
            }
            _ => {
                let left = match query {
                    Query::Lock(k) => find(&visible, &Condition::Key(*k)),
                    Query::Set { of, .. } | Query::Add { of, .. } | Query::Delete { of, .. } => {
                        find(&visible, of)
                    }
                    _ => Vec::new(),
                };
                session.phase = Phase::Writing {
                    left,
                    rows: Vec::new(),
                    count: 0,
                };
                return;
            }
        };
        self.answered(session, Answer::Rows(rows));
    }

    fn answered(&mut self, session: &mut Session, answer: Answer) {
        if !session.explicit {
            self.commit(session);
        }
        session.phase = Phase::Answered(answer);
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
        let snapshot = session.snapshot.expect("taken when the statement started");
        if let Query::Insert { k, .. } | Query::Upsert { k, .. } = query {
            match self.holder(*k, session) {
                Holder::Waits(row) => {
                    session.waits_for = Some(row);
                    session.phase = Phase::Writing { left, rows, count };
                }
                Holder::Nobody => {
                    let value = match query {
                        Query::Insert { v, .. } => *v,
                        Query::Upsert { v, .. } => Some(*v),
                        _ => None,
                    };
                    let row = self.rows.len();
                    self.rows.push(Row {
                        k: *k,
                        versions: Vec::new(),
                        owner: Some(session.id),
                    });
                    session.own.locked.push(row);
                    session.own.rows.insert(row, Some(value));
                    self.finish(session, query, vec![vec![Some(*k), value]], 1);
                }
                Holder::Row(row) => {
                    let Query::Upsert { .. } = query else {
                        return self.fail(session, "23505");
                    };
                    let mine = session.own.rows.contains_key(&row);
                    if session.level != Isolation::ReadCommitted && !mine && self.changed_since(row, snapshot)
                    {
                        return self.fail(session, "40001");
                    }
                    let value = self.newest(row, session).flatten().map(|v| v + 1);
                    self.take(session, row);
                    session.own.rows.insert(row, Some(value));
                    self.finish(session, query, vec![vec![Some(*k), value]], 1);
                }
            }
            return;
        }
        let Some(row) = left.first().copied() else {
            return self.finish(session, query, rows, count);
        };
        if self.owner(row, session).is_some() {
            session.waits_for = Some(row);
            session.phase = Phase::Writing { left, rows, count };
            return;
        }
        left.remove(0);
        session.waits_for = None;
        let mine = session.own.rows.contains_key(&row);
        if !mine && self.changed_since(row, snapshot) && session.level != Isolation::ReadCommitted {
            return self.fail(session, "40001");
        }
        let k = self.rows[row].k;
        let of = match query {
            Query::Set { of, .. } | Query::Add { of, .. } | Query::Delete { of, .. } => of.clone(),
            _ => Condition::Key(k),
        };
        if let Some(now) = self.newest(row, session).filter(|now| of.holds(k, *now)) {
            self.take(session, row);
            let (made, back) = match query {
                Query::Set { v, .. } => (Some(Some(Some(*v))), vec![Some(k), Some(*v)]),
                Query::Add { d, .. } => (Some(Some(now.map(|v| v + d))), vec![Some(k), now.map(|v| v + d)]),
                Query::Delete { .. } => (Some(None), vec![Some(k), now]),
                _ => (None, vec![now]),
            };
            if let Some(made) = made {
                session.own.rows.insert(row, made);
            }
            rows.push(back);
            count += 1;
        }
        session.phase = Phase::Writing { left, rows, count };
    }

    fn finish(&mut self, session: &mut Session, query: &Query, rows: Vec<Vec<Option<i64>>>, count: usize) {
        session.waits_for = None;
        let answer = if query.returning() {
            Answer::Rows(rows)
        } else {
            Answer::Tag(query.tag(count))
        };
        self.answered(session, answer);
    }

    /// The newest version: the transaction's own, or the last that was committed.
    fn newest(&self, row: usize, session: &Session) -> Option<Option<i64>> {
        match session.own.rows.get(&row) {
            Some(made) => *made,
            None => self.rows[row].versions.last().and_then(|(_, v)| *v),
        }
    }

    fn take(&mut self, session: &mut Session, row: usize) {
        self.rows[row].owner = Some(session.id);
        if !session.own.locked.contains(&row) {
            session.own.locked.push(row);
        }
    }

    /// Who has this key now, whatever a snapshot says.
    fn holder(&self, k: i64, session: &Session) -> Holder {
        for row in (0..self.rows.len()).filter(|r| self.rows[*r].k == k) {
            let committed = self.rows[row].versions.last().and_then(|(_, v)| *v);
            // Inserted, changed or deleted by somebody who has not ended: wait for it.
            if self.owner(row, session).is_some() {
                return Holder::Waits(row);
            }
            let now = match session.own.rows.get(&row) {
                Some(made) => *made,
                None => committed,
            };
            if now.is_some() {
                return Holder::Row(row);
            }
        }
        Holder::Nobody
    }
}

enum Holder {
    Nobody,
    Row(usize),
    Waits(usize),
}

fn find(visible: &[(usize, i64, Option<i64>)], of: &Condition) -> Vec<usize> {
    visible
        .iter()
        .filter(|(_, k, v)| of.holds(*k, *v))
        .map(|(r, _, _)| *r)
        .collect()
}
