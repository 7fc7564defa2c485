//! What the sessions are going to do, before anybody knows who will be quicker.

use super::query::Query;
use crate::history::Pair;
use fastrand::Rng;

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

    fn random(rng: &mut Rng) -> Isolation {
        match rng.u8(0..4) {
            0 | 1 => Isolation::ReadCommitted,
            2 => Isolation::RepeatableRead,
            _ => Isolation::Serializable,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Move {
    /// At the session's own level, or at another.
    Begin(Option<Isolation>),
    Default(Isolation),
    Run(Query),
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
}

impl Move {
    pub fn sql(&self) -> String {
        match self {
            Move::Begin(None) => "begin".to_owned(),
            Move::Begin(Some(level)) => format!("begin isolation level {}", level.sql()),
            Move::Default(level) => format!("set default_transaction_isolation = '{}'", level.sql()),
            Move::Savepoint => "savepoint a".to_owned(),
            Move::RollbackTo => "rollback to savepoint a".to_owned(),
            Move::Commit => "commit".to_owned(),
            Move::Rollback => "rollback".to_owned(),
            Move::Run(query) => query.sql(),
        }
    }
}

/// What may happen besides reading and writing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// SERIALIZABLE is what it says.
    pub serial: bool,
    /// Statements that nobody can follow.
    pub blind: bool,
    /// Clients that go away in the midst of a statement.
    pub lost: bool,
    /// Levels change from transaction to transaction.
    pub mixed: bool,
    /// ON CONFLICT of one row only.
    pub singly: bool,
    /// Every row that is read may be that of another state.
    pub by_key: bool,
    /// The second column of `kv` is unique, too.
    pub distinct: bool,
    /// The rows of `bag` refer to those of `kv`.
    pub child: Option<Child>,
}

/// What becomes of the rows that refer to one that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    Keeps,
    Cascades,
}

impl Child {
    pub fn random(rng: &mut Rng) -> Option<Child> {
        match rng.u8(0..6) {
            0 => Some(Child::Keeps),
            1 => Some(Child::Cascades),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub kv: Vec<Pair>,
    pub bag: Vec<Pair>,
    pub sessions: Vec<(Isolation, Vec<Vec<Move>>)>,
    /// How often somebody reads everything on the side.
    pub looks: usize,
    pub wishes: Wishes,
}

impl Plan {
    /// 2 to `sessions` sessions, each with 1 to `each` transactions.
    pub fn random(
        rng: &mut Rng,
        sessions: usize,
        each: usize,
        wishes: Wishes,
        level: impl Fn(&mut Rng) -> Isolation,
    ) -> Plan {
        let keys: i64 = rng.i64(1..4);
        let value = |rng: &mut Rng, v| if rng.u8(0..8) == 0 { None } else { Some(v) };
        Plan {
            kv: (1..=keys).map(|k| (k, value(rng, k * 10))).collect(),
            bag: (0..rng.i64(0..4))
                .map(|n| (n % keys.min(2) + 1, value(rng, 5 * (n / 2 + 1))))
                .collect(),
            sessions: (0..rng.usize(2..=sessions))
                .map(|_| {
                    let own = level(rng);
                    let script = (0..rng.usize(1..=each)).map(|_| script(rng, keys, wishes));
                    (own, script.collect())
                })
                .collect(),
            looks: 0,
            wishes,
        }
    }

    fn has_upsert_on_value(&self) -> bool {
        let moves = self
            .sessions
            .iter()
            .flat_map(|(_, script)| script.iter().flatten());
        moves
            .into_iter()
            .any(|m| matches!(m, Move::Run(query) if query.needs_distinct()))
    }

    /// Plans with a little less in them.
    pub fn smaller(&self) -> Vec<Plan> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Plan)| {
            let mut plan = self.clone();
            change(&mut plan);
            all.push(plan);
        };
        for (s, (_, script)) in self.sessions.iter().enumerate() {
            if self.sessions.len() > 1 {
                with(&|p| drop(p.sessions.remove(s)));
            }
            for (t, moves) in script.iter().enumerate() {
                with(&|p| drop(p.sessions[s].1.remove(t)));
                for (m, step) in moves.iter().enumerate() {
                    if moves.len() == 1 {
                        continue;
                    }
                    match step {
                        Move::Run(_) | Move::RollbackTo => with(&|p| drop(p.sessions[s].1[t].remove(m))),
                        Move::Savepoint if !moves.iter().any(|m| matches!(m, Move::RollbackTo)) => {
                            with(&|p| drop(p.sessions[s].1[t].remove(m)))
                        }
                        _ => {}
                    }
                }
                if let [Move::Begin(_), query @ Move::Run(_), Move::Commit] = moves.as_slice() {
                    with(&|p| p.sessions[s].1[t] = vec![query.clone()]);
                }
            }
        }
        for at in 0..self.kv.len() {
            with(&|p| {
                let (k, _) = p.kv.remove(at);
                if p.wishes.child.is_some() {
                    p.bag.retain(|(a, _)| *a != k);
                }
            });
        }
        for at in 0..self.bag.len() {
            with(&|p| {
                p.bag.remove(at);
            });
        }
        if self.looks > 0 {
            with(&|p| p.looks -= 1);
        }
        if self.wishes.lost {
            with(&|p| p.wishes.lost = false);
        }
        if self.wishes.child.is_some() {
            with(&|p| p.wishes.child = None);
        }
        if self.wishes.distinct && !self.has_upsert_on_value() {
            with(&|p| p.wishes.distinct = false);
        }
        all
    }
}

fn script(rng: &mut Rng, keys: i64, wishes: Wishes) -> Vec<Move> {
    match rng.u8(0..12) {
        0..=3 => return vec![Move::Run(Query::random(rng, keys, wishes))],
        4 if wishes.mixed => return vec![Move::Default(Isolation::random(rng))],
        _ => {}
    }
    let level = (wishes.mixed && rng.bool()).then(|| Isolation::random(rng));
    let mut moves = vec![Move::Begin(level)];
    let mut saved = false;
    for _ in 0..rng.usize(1..4) {
        match rng.u8(0..10) {
            0 if !saved => {
                saved = true;
                moves.push(Move::Savepoint);
            }
            1 if saved => moves.push(Move::RollbackTo),
            _ => moves.push(Move::Run(Query::random(rng, keys, wishes))),
        }
    }
    moves.push(match rng.u8(0..6) {
        0 => Move::Rollback,
        _ => Move::Commit,
    });
    moves
}
