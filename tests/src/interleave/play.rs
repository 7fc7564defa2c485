//! Plays a plan on a real server, one step after the other.
//!
//! In: a plan. Out: lines in the order in which things happened: a statement with its answer, or a statement that
//! had to wait for another session and, later, its answer.
//!
//! Always true: while a step is taken every other session is idle or waits for a lock, as `pg_blocking_pids` says.
//! What a session should do while it waits is done when it has its answer.

use super::{Plan, Step};
use crate::fuzz_sql::outcome;
use crate::raw::{Client, message, text};
use pgassay_audit::trace::Outcome;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Line {
    Whole {
        session: usize,
        sql: String,
        outcome: Outcome,
    },
    Sent {
        session: usize,
        sql: String,
    },
    Done {
        session: usize,
        outcome: Outcome,
    },
}

/// How long an answer is awaited before the server is asked whether the session waits. It decides nothing.
const GLANCE: Duration = Duration::from_millis(2);

struct Actor {
    client: Client,
    pid: String,
    /// What is under way, and whether a line says so already.
    busy: Option<(String, bool)>,
    later: VecDeque<String>,
    /// It is in a block, and in one that failed.
    open: bool,
    failed: bool,
}

/// Three sessions and one that looks on.
pub struct Stage {
    observer: Client,
    actors: Vec<Actor>,
}

/// A stage has room for this many sessions.
pub const SESSIONS_MAX: usize = 3;

fn cell(client: &mut Client, sql: &str) -> String {
    let Outcome::Answer(answer) = outcome(&client.query(sql)) else {
        panic!("the server refuses «{sql}»");
    };
    let cell = answer.rows.first().and_then(|row| row.first().cloned().flatten());
    String::from_utf8_lossy(&cell.unwrap_or_default()).into_owned()
}

impl Stage {
    pub fn new(observer: Client, log_in: impl Fn() -> Client) -> Stage {
        let actors = (0..SESSIONS_MAX)
            .map(|_| {
                let mut client = log_in();
                let pid = cell(&mut client, "select pg_backend_pid()");
                Actor {
                    client,
                    pid,
                    busy: None,
                    later: VecDeque::new(),
                    open: false,
                    failed: false,
                }
            })
            .collect();
        Stage { observer, actors }
    }

    pub fn play(&mut self, plan: &Plan) -> Vec<Line> {
        let level = plan.level.name().replace('-', " ");
        for actor in &mut self.actors {
            actor.client.query("rollback");
            actor.client.query("discard all");
            actor
                .client
                .query(&format!("set default_transaction_isolation = '{level}'"));
            (actor.open, actor.failed) = (false, false);
        }
        self.observer
            .query("drop schema if exists public cascade; create schema public");
        for statement in &plan.setup {
            if let Outcome::Error(error) = outcome(&self.observer.query(statement)) {
                panic!("the server refuses «{statement}»: {error:?}");
            }
        }
        let mut lines = Vec::new();
        for step in &plan.steps {
            self.take(step, &mut lines);
        }
        // Whoever still waits is let through by those who end.
        while self
            .actors
            .iter()
            .any(|actor| actor.busy.is_some() || !actor.later.is_empty())
        {
            self.catch_up(&mut lines);
            for session in 0..self.actors.len() {
                // Only a plan that was cut short leaves a block open.
                if self.actors[session].busy.is_none() && self.actors[session].open {
                    self.send(session, "rollback".to_owned(), &mut lines);
                }
            }
        }
        lines
    }

    fn take(&mut self, step: &Step, lines: &mut Vec<Line>) {
        self.actors[step.session].later.push_back(step.sql.clone());
        self.catch_up(lines);
    }

    /// Every session that is free does what it was told, as long as any is.
    fn catch_up(&mut self, lines: &mut Vec<Line>) {
        while let Some(session) = self
            .actors
            .iter()
            .position(|actor| actor.busy.is_none() && !actor.later.is_empty())
        {
            let sql = self.actors[session].later.pop_front().expect("something to do");
            // A failed block takes nothing but its end: the rest would teach nobody anything.
            let ends = ["commit", "rollback"].iter().any(|word| sql.starts_with(word));
            if !self.actors[session].failed || ends {
                self.send(session, sql, lines);
            }
        }
        self.settle(lines);
    }

    fn send(&mut self, session: usize, sql: String, lines: &mut Vec<Line>) {
        let actor = &mut self.actors[session];
        actor.client.send(&message(b'Q', &text(&sql)));
        actor.busy = Some((sql, false));
        self.settle(lines);
    }

    /// Waits until every session has answered, or waits for one that has.
    fn settle(&mut self, lines: &mut Vec<Line>) {
        loop {
            // What was sent last comes first: what it sets free happens within it or after it.
            let last = self.position(|actor| matches!(actor.busy, Some((_, false))));
            if let Some(session) = last {
                if self.actors[session].has_answer() {
                    self.finish(session, lines);
                    continue;
                }
                let waits = self.waits();
                if is_stuck(session, &waits) && !self.actors[session].has_answer() {
                    let (sql, said) = self.actors[session].busy.as_mut().expect("it is busy");
                    *said = true;
                    let sql = sql.clone();
                    lines.push(Line::Sent { session, sql });
                }
                continue;
            }
            if let Some(session) = self.position(|actor| actor.busy.is_some() && actor.has_answer()) {
                self.finish(session, lines);
                continue;
            }
            let waits = self.waits();
            let busy = |actor: &mut Actor| actor.busy.is_some();
            let all_stuck = waits.keys().all(|session| is_stuck(*session, &waits));
            // An answer may have come while the server was asked.
            if all_stuck && self.position(|actor| busy(actor) && actor.has_answer()).is_none() {
                return;
            }
        }
    }

    fn position(&mut self, which: impl Fn(&mut Actor) -> bool) -> Option<usize> {
        self.actors.iter_mut().position(which)
    }

    fn finish(&mut self, session: usize, lines: &mut Vec<Line>) {
        let actor = &mut self.actors[session];
        let messages = actor.client.until_ready();
        let ready = messages.last().map_or(&b"I"[..], |ready| &ready.body);
        (actor.open, actor.failed) = (ready != b"I", ready == b"E");
        let outcome = outcome(&messages);
        lines.push(match actor.busy.take() {
            Some((sql, false)) => Line::Whole {
                session,
                sql,
                outcome,
            },
            _ => Line::Done { session, outcome },
        });
    }

    /// Who waits for whom, as the server says it; whoever has an answer waits for nobody.
    fn waits(&mut self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut waits = BTreeMap::new();
        for session in 0..self.actors.len() {
            let actor = &mut self.actors[session];
            if actor.busy.is_none() || actor.has_answer() {
                continue;
            }
            let pids = cell(
                &mut self.observer,
                &format!("select array_to_string(pg_blocking_pids({}), ' ')", actor.pid),
            );
            let blockers = pids
                .split_whitespace()
                .filter_map(|pid| self.actors.iter().position(|actor| actor.pid == pid))
                .collect();
            waits.insert(session, blockers);
        }
        waits
    }
}

/// Whether a session waits, directly or not, for one that is idle, and for no circle that the server will break.
fn is_stuck(session: usize, waits: &BTreeMap<usize, BTreeSet<usize>>) -> bool {
    fn ends(session: usize, waits: &BTreeMap<usize, BTreeSet<usize>>, path: &mut Vec<usize>) -> bool {
        if path.contains(&session) {
            return false;
        }
        let Some(blockers) = waits.get(&session) else {
            return true;
        };
        path.push(session);
        let all = !blockers.is_empty() && blockers.iter().all(|next| ends(*next, waits, path));
        path.pop();
        all
    }
    waits.contains_key(&session) && ends(session, waits, &mut Vec::new())
}

impl Actor {
    fn has_answer(&mut self) -> bool {
        let stream = &self.client.stream;
        let patience = stream.read_timeout().expect("a socket");
        stream.set_read_timeout(Some(GLANCE)).expect("a socket");
        let found = stream.peek(&mut [0]);
        stream.set_read_timeout(patience).expect("a socket");
        match found {
            Ok(_) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(error) => panic!("the server is gone: {error}"),
        }
    }
}
