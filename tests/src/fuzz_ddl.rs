//! Changes of the catalog against PostgreSQL itself: random tables, constraints, indexes and views from a seed, made, altered,
//! renamed and dropped, with rows written and read in between.
//!
//! The interpreter follows every change on its own. What the server then refuses or accepts, and what the tables hold, must be
//! what the interpreter expects, or it must say that it does not know.

use crate::fuzz_sql::outcome;
use crate::raw::Client;
use fastrand::Rng;
use pgassay_audit::interpret::Match;
use pgassay_audit::interpret::memory::Memory;
use pgassay_audit::trace::Outcome;
use std::collections::BTreeMap;

const TABLES: &[&str] = &["t", "u", "tu", "far"];
/// Some are parts of others.
const COLUMNS: &[&str] = &["a", "b", "ab", "abc", "d"];
const NAMES: &[&str] = &["one", "two", "t_a_check", "t_a_key", "u_check", "far_b_key1"];

/// How many changes there were, and how many of them were not followed, by reason.
#[derive(Debug, Default)]
pub struct Tally {
    pub changes: u64,
    pub refused: u64,
    pub answers: u64,
    pub unknown: u64,
    pub reasons: BTreeMap<String, u64>,
}

/// Some changes, each followed by statements that can tell whether it was followed. What differs, if anything does.
pub fn round(client: &mut Client, seed: u64, changes: usize, tally: &mut Tally) -> Result<(), String> {
    let mut round = Round {
        rng: Rng::with_seed(seed),
        client,
        memory: Memory::new(),
        history: vec![format!("seed {seed}")],
        tally,
    };
    round
        .client
        .query("drop schema if exists public cascade; create schema public");
    for _ in 0..changes {
        let change = round.change();
        if !round.follow(&change)? {
            return Ok(());
        }
        for _ in 0..round.rng.usize(1..5) {
            let Some(statement) = round.statement() else { break };
            round.compare(&statement)?;
        }
        for table in round.tables() {
            round.compare(&format!("select * from {table}"))?;
        }
    }
    Ok(())
}

struct Round<'c> {
    rng: Rng,
    client: &'c mut Client,
    memory: Memory,
    history: Vec<String>,
    tally: &'c mut Tally,
}

impl Round<'_> {
    /// Changes the catalog; whether it is known what has become of it.
    fn follow(&mut self, change: &str) -> Result<bool, String> {
        let outcome = outcome(&self.client.query(change));
        if matches!(outcome, Outcome::Error(_)) {
            self.tally.refused += 1;
            return Ok(true);
        }
        self.history.push(change.to_owned());
        self.tally.changes += 1;
        let (verdict, execution) = self.memory.observe(change, &outcome);
        for reason in &execution.reasons {
            *self.tally.reasons.entry(reason.clone()).or_default() += 1;
        }
        match verdict {
            Match::Differs(difference) => {
                let (observed, expected) = (difference.observed, difference.expected);
                Err(self.differs(&format!("answered {observed}, expected {expected}")))
            }
            // Nobody is accused until the catalog was read again, unless it is known which table has become unknown.
            _ => {
                let is_local = change.starts_with("alter table") && !change.contains("cascade");
                Ok(execution.reasons.is_empty() || is_local)
            }
        }
    }

    fn compare(&mut self, statement: &str) -> Result<(), String> {
        let outcome = outcome(&self.client.query(statement));
        self.tally.answers += 1;
        self.history.push(statement.to_owned());
        match self.memory.observe(statement, &outcome).0 {
            Match::Agrees { .. } => Ok(()),
            Match::Unknown(_) => {
                self.tally.unknown += 1;
                Ok(())
            }
            Match::Differs(difference) => Err(self.differs(&format!(
                "{}: the server answered\n  {}\nthe interpreter expects\n  {}",
                difference.rule.name, difference.observed, difference.expected
            ))),
        }
    }

    fn differs(&self, what: &str) -> String {
        format!("{};\n{what}", self.history.join(";\n"))
    }

    /// The first column of what the server answers.
    fn list(&mut self, question: &str) -> Vec<String> {
        let Outcome::Answer(answer) = outcome(&self.client.query(question)) else {
            return Vec::new();
        };
        let cells = answer.rows.iter().filter_map(|row| row.first()?.as_ref());
        cells
            .map(|cell| String::from_utf8_lossy(cell).into_owned())
            .collect()
    }

    fn tables(&mut self) -> Vec<String> {
        self.list("select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'v') order by 1")
    }

    fn columns(&mut self, table: &str) -> Vec<String> {
        self.list(&format!(
            "select attname from pg_attribute where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped order by attnum"
        ))
    }

    fn one_of(&mut self, all: &[&str]) -> String {
        let at = self.rng.usize(0..all.len());
        all[at].to_owned()
    }

    fn one_found(&mut self, question: &str) -> Option<String> {
        let found = self.list(question);
        let at = self.rng.usize(0..found.len().max(1));
        found.get(at).cloned()
    }

    fn chance(&mut self, one_in: u8) -> bool {
        self.rng.u8(0..one_in) == 0
    }

    fn maybe(&mut self, one_in: u8, text: &str) -> String {
        match self.chance(one_in) {
            true => text.to_owned(),
            false => String::new(),
        }
    }

    fn some_columns(&mut self) -> String {
        let first = self.one_of(COLUMNS);
        match self.chance(3) {
            true => format!("{first}, {}", self.one_of(COLUMNS)),
            false => first,
        }
    }

    fn including(&mut self) -> String {
        match self.chance(4) {
            true => format!(" include ({})", self.one_of(COLUMNS)),
            false => String::new(),
        }
    }

    fn condition(&mut self) -> String {
        let (one, other) = (self.one_of(COLUMNS), self.one_of(COLUMNS));
        match self.rng.u8(0..5) {
            0 => format!("{one} > 0"),
            1 => format!("{one} <> {other}"),
            2 => format!("{one} + {other} < 9"),
            3 => format!("{one} is not null"),
            _ => format!("{one} < 7"),
        }
    }

    fn named(&mut self) -> String {
        match self.chance(3) {
            true => format!("constraint {} ", self.one_of(NAMES)),
            false => String::new(),
        }
    }

    /// A constraint that stands alone.
    fn constraint(&mut self) -> String {
        let (name, columns) = (self.named(), self.some_columns());
        match self.rng.u8(0..6) {
            0 => format!("{name}primary key ({columns}){}", self.including()),
            1 | 2 => format!("{name}unique ({columns}){}", self.including()),
            3 => {
                let (column, table, target) =
                    (self.one_of(COLUMNS), self.one_of(TABLES), self.one_of(COLUMNS));
                let action = self.maybe(3, " on delete cascade");
                format!("{name}foreign key ({column}) references {table} ({target}){action}")
            }
            _ => format!("{name}check ({})", self.condition()),
        }
    }

    fn column(&mut self, name: &str) -> String {
        let mut text = format!("{name} int");
        for _ in 0..self.rng.u8(0..3) {
            let more = match self.rng.u8(0..6) {
                0 => " not null".to_owned(),
                1 => format!(" default {}", self.rng.u8(0..5)),
                2 => format!(" {}unique", self.named()),
                3 => " primary key".to_owned(),
                4 => format!(" references {}", self.one_of(TABLES)),
                _ => format!(" {}check ({})", self.named(), self.condition()),
            };
            text.push_str(&more);
        }
        text
    }

    fn create(&mut self) -> String {
        let table = self.one_of(TABLES);
        let mut parts = Vec::new();
        for name in COLUMNS {
            if !self.chance(4) {
                parts.push(self.column(name));
            }
        }
        for _ in 0..self.rng.u8(0..3) {
            parts.push(self.constraint());
        }
        format!("create table {table} ({})", parts.join(", "))
    }

    fn alter(&mut self, table: &str) -> String {
        let column = self.one_of(COLUMNS);
        let cascade = self.maybe(3, " cascade");
        match self.rng.u8(0..10) {
            0 => format!("add column {}", self.column(&column)),
            1 | 2 => format!("drop column {column}{cascade}"),
            3 | 4 => format!("add {}", self.constraint()),
            5 | 6 => {
                let question = format!(
                    "select conname from pg_constraint where conrelid = '{table}'::regclass and contype <> 'n' order by 1"
                );
                let name = self.one_found(&question);
                let name = name.unwrap_or_else(|| NAMES[0].to_owned());
                format!("drop constraint {}{name}{cascade}", self.maybe(4, "if exists "))
            }
            7 => format!("alter column {column} {} not null", self.one_of(&["set", "drop"])),
            8 => format!(
                "alter column {column} {}",
                self.one_of(&["set default 3", "drop default"])
            ),
            _ => {
                let question = format!(
                    "select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = '{table}'::regclass and i.indisunique order by 1"
                );
                let index = self.one_found(&question).unwrap_or_else(|| NAMES[0].to_owned());
                format!("add {}unique using index {index}", self.named())
            }
        }
    }

    fn change(&mut self) -> String {
        let live = self.list("select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1");
        if live.is_empty() || self.chance(6) {
            return self.create();
        }
        let table = live[self.rng.usize(0..live.len())].clone();
        match self.rng.u8(0..20) {
            0..=8 => {
                let mut parts = vec![self.alter(&table)];
                if self.chance(4) {
                    parts.push(self.alter(&table));
                }
                format!("alter table {table} {}", parts.join(", "))
            }
            9 => format!("drop table {table}{}", self.maybe(2, " cascade")),
            10..=12 => {
                let name = self.maybe(3, "made ");
                let what = match self.chance(4) {
                    true => format!("({} + {})", self.one_of(COLUMNS), self.one_of(COLUMNS)),
                    false => self.some_columns(),
                };
                let including = self.including();
                let condition = match self.chance(3) {
                    true => format!(" where {}", self.condition()),
                    false => String::new(),
                };
                format!("create unique index {name}on {table} ({what}){including}{condition}")
            }
            13 => {
                let question = "select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'public'::regnamespace order by 1";
                let index = self.one_found(question).unwrap_or_else(|| "made".to_owned());
                match self.chance(2) {
                    true => format!("alter index {index} rename to {}", self.one_of(NAMES)),
                    false => format!("drop index {index}{}", self.maybe(3, " cascade")),
                }
            }
            14 => {
                let question = format!(
                    "select conname from pg_constraint where conrelid = '{table}'::regclass and contype <> 'n' order by 1"
                );
                let name = self.one_found(&question).unwrap_or_else(|| "one".to_owned());
                format!(
                    "alter table {table} rename constraint {name} to {}",
                    self.one_of(NAMES)
                )
            }
            15 => {
                let column = self.one_of(COLUMNS);
                format!(
                    "alter table {table} rename column {column} to {}",
                    self.one_of(COLUMNS)
                )
            }
            16 => format!("alter table {table} rename to {}", self.one_of(TABLES)),
            17 => {
                let columns = self.some_columns();
                format!("create or replace view seen as select {columns} from {table}")
            }
            18 => "drop view if exists seen".to_owned(),
            _ => format!(
                "create table if not exists {} (a int primary key, b int)",
                self.one_of(TABLES)
            ),
        }
    }

    /// A statement that reads or writes rows.
    fn statement(&mut self) -> Option<String> {
        let tables = self.tables();
        let table = tables.get(self.rng.usize(0..tables.len().max(1)))?.clone();
        let columns = self.columns(&table);
        if columns.is_empty() {
            return Some(format!("select count(*) from {table}"));
        }
        let column = columns[self.rng.usize(0..columns.len())].clone();
        let (one, other) = (self.rng.u8(0..6), self.rng.u8(0..6));
        Some(match self.rng.u8(0..10) {
            0..=5 => {
                let kept: Vec<String> = columns.into_iter().filter(|_| self.rng.u8(0..5) > 0).collect();
                if kept.is_empty() {
                    return Some(format!("insert into {table} default values"));
                }
                let values: Vec<String> = kept
                    .iter()
                    .map(|_| match self.rng.i8(-2..9) {
                        8 => "null".to_owned(),
                        number => number.to_string(),
                    })
                    .collect();
                format!(
                    "insert into {table} ({}) values ({})",
                    kept.join(", "),
                    values.join(", ")
                )
            }
            6 | 7 => format!(
                "update {table} set {column} = {one} where {} = {other}",
                columns[0]
            ),
            8 => format!("delete from {table} where {column} = {one}"),
            _ => format!("select {column}, count(*) from {table} group by {column} order by {column}"),
        })
    }
}

impl Tally {
    pub fn report(&self) -> String {
        let Tally {
            changes,
            refused,
            answers,
            unknown,
            ..
        } = self;
        let mut text = format!(
            "{changes} changes, {refused} more were refused; {answers} statements after them, {unknown} unknown\n"
        );
        for (reason, count) in &self.reasons {
            text.push_str(&format!("  reason {reason}: {count}\n"));
        }
        text
    }
}
