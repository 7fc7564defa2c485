//! What the sessions of a simulated database ask for.
//!
//! Two tables: `kv (k int primary key, v int)` and `bag (a int, b int)`, which has no key. Rows of both are pairs.

use super::plan::Wishes;
use crate::history::Pair;
use fastrand::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Kv,
    Bag,
}

impl Table {
    fn columns(self) -> (&'static str, &'static str) {
        match self {
            Table::Kv => ("k", "v"),
            Table::Bag => ("a", "b"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Table::Kv => "kv",
            Table::Bag => "bag",
        }
    }
}

/// A column of `kv` in which no value comes twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unique {
    Key,
    Value,
}

impl Unique {
    fn name(self) -> &'static str {
        match self {
            Unique::Key => "k",
            Unique::Value => "v",
        }
    }

    pub fn of(self, (k, v): Pair) -> Option<i64> {
        match self {
            Unique::Key => Some(k),
            Unique::Value => v,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Condition {
    All,
    /// Of the first column.
    Is(i64),
    Either(i64, i64),
    /// Of the second column.
    Above(i64),
}

impl Condition {
    fn sql(&self, table: Table) -> String {
        let (first, second) = table.columns();
        match self {
            Condition::All => String::new(),
            Condition::Is(k) => format!(" where {first} = {k}"),
            Condition::Either(one, other) => format!(" where {first} in ({one}, {other})"),
            Condition::Above(v) => format!(" where {second} > {v}"),
        }
    }

    pub fn holds(&self, (k, v): Pair) -> bool {
        match self {
            Condition::All => true,
            Condition::Is(key) => *key == k,
            Condition::Either(one, other) => *one == k || *other == k,
            Condition::Above(bound) => v.is_some_and(|v| v > *bound),
        }
    }

    /// The values of the first column that it looks at; `None`: any.
    pub fn keys(&self) -> Option<Vec<i64>> {
        match self {
            Condition::All | Condition::Above(_) => None,
            Condition::Is(k) => Some(vec![*k]),
            Condition::Either(one, other) => Some(vec![*one, *other]),
        }
    }
}

/// A condition on the rows of a table.
#[derive(Clone, Debug)]
pub struct Of(pub Table, pub Condition);

impl Of {
    fn sql(&self) -> String {
        self.1.sql(self.0)
    }
}

#[derive(Clone, Debug)]
pub enum Query {
    /// The second column.
    Value(Of),
    Ordered(Table),
    Rows(Of),
    Sum(Table),
    Count(Of),
    Lock {
        of: Of,
        skip: bool,
    },
    Set {
        v: i64,
        of: Of,
        returning: bool,
    },
    Add {
        d: i64,
        of: Of,
        returning: bool,
    },
    /// Another key for a row.
    Rekey {
        from: i64,
        to: i64,
        returning: bool,
    },
    Insert {
        table: Table,
        rows: Vec<Pair>,
    },
    /// ON CONFLICT DO UPDATE, or DO NOTHING.
    Upsert {
        on: Unique,
        rows: Vec<Pair>,
        nothing: bool,
        returning: bool,
    },
    /// Into `bag`, from `kv`.
    Copy(Condition),
    /// From `kv` to `bag`.
    Move(Condition),
    Delete {
        of: Of,
        returning: bool,
    },
    /// Nobody who reads its text can tell what it does.
    Blind(Box<Query>),
}

impl Query {
    pub fn random(rng: &mut Rng, keys: i64, wishes: Wishes) -> Query {
        let k = rng.i64(1..=keys + 1);
        // Few values, where none may come twice.
        let (v, d, next) = match wishes.distinct {
            true => (rng.i64(1..=keys + 1) * 10, rng.i64(0..3) * 10, 10),
            false => (rng.i64(1..60), rng.i64(1..5), 1),
        };
        let table = if rng.u8(0..3) == 0 { Table::Bag } else { Table::Kv };
        let condition = match rng.u8(0..7) {
            0 => Condition::All,
            1 => Condition::Above(rng.i64(1..40)),
            2 => Condition::Either(k, rng.i64(1..=keys + 1)),
            _ => Condition::Is(k),
        };
        let null_or = |rng: &mut Rng, v| if rng.u8(0..8) == 0 { None } else { Some(v) };
        let of = Of(table, condition.clone());
        let returning = rng.bool();
        let query = match rng.u8(0..26) {
            0..=2 => Query::Value(Of(Table::Kv, Condition::Is(k))),
            3 => Query::Value(of),
            4 => Query::Ordered(table),
            5 => Query::Rows(of),
            6 => Query::Sum(table),
            7 => Query::Count(of),
            8 => Query::Lock {
                of,
                skip: rng.u8(0..3) == 0,
            },
            9..=10 => Query::Set { v, of, returning },
            11..=13 => Query::Add { d, of, returning },
            14 => Query::Rekey {
                from: k,
                to: rng.i64(1..=keys + 1),
                returning,
            },
            15..=17 => {
                let mut rows = vec![(k, null_or(rng, v))];
                if rng.u8(0..4) == 0 {
                    rows.push((k % (keys + 1) + 1, null_or(rng, v + next)));
                }
                Query::Insert { table, rows }
            }
            18..=20 => {
                let mut rows = vec![(k, null_or(rng, v))];
                if !wishes.singly && rng.bool() {
                    rows.push((k % (keys + 1) + 1, Some(v + next)));
                }
                let on = match wishes.distinct && rng.bool() {
                    true => Unique::Value,
                    false => Unique::Key,
                };
                Query::Upsert {
                    on,
                    rows,
                    nothing: rng.u8(0..3) == 0,
                    returning,
                }
            }
            21 => Query::Copy(condition),
            22 if wishes.child.is_none() => Query::Move(condition),
            _ => Query::Delete { of, returning },
        };
        match wishes.blind && query.writes() && rng.u8(0..6) == 0 {
            true => Query::Blind(Box::new(query)),
            false => query,
        }
    }

    pub fn writes(&self) -> bool {
        !matches!(
            self,
            Query::Value(_)
                | Query::Ordered(_)
                | Query::Rows(_)
                | Query::Sum(_)
                | Query::Count(_)
                | Query::Lock { .. }
        )
    }

    pub fn needs_distinct(&self) -> bool {
        match self {
            Query::Upsert { on, .. } => *on == Unique::Value,
            Query::Blind(inner) => inner.needs_distinct(),
            _ => false,
        }
    }

    pub fn sql(&self) -> String {
        let back = |table: Table, returning: &bool| match (returning, table.columns()) {
            (false, _) => String::new(),
            (true, (first, second)) => format!(" returning {first}, {second}"),
        };
        match self {
            Query::Value(of) => format!("select {} from {}{}", of.0.columns().1, of.0.name(), of.sql()),
            Query::Ordered(table) => {
                let (first, second) = table.columns();
                format!(
                    "select {first}, {second} from {} order by {first}, {second}",
                    table.name()
                )
            }
            Query::Rows(of) => {
                let (first, second) = of.0.columns();
                format!("select {first}, {second} from {}{}", of.0.name(), of.sql())
            }
            Query::Sum(table) => format!("select sum({}) from {}", table.columns().1, table.name()),
            Query::Count(of) => format!("select count(*) from {}{}", of.0.name(), of.sql()),
            Query::Lock { of, skip } => {
                let (first, second) = of.0.columns();
                let skip = if *skip { " skip locked" } else { "" };
                format!(
                    "select {first}, {second} from {}{} for update{skip}",
                    of.0.name(),
                    of.sql()
                )
            }
            Query::Set { v, of, returning } => {
                let (second, returned) = (of.0.columns().1, back(of.0, returning));
                format!("update {} set {second} = {v}{}{returned}", of.0.name(), of.sql())
            }
            Query::Add { d, of, returning } => {
                let (second, returned) = (of.0.columns().1, back(of.0, returning));
                format!(
                    "update {} set {second} = {second} + {d}{}{returned}",
                    of.0.name(),
                    of.sql()
                )
            }
            Query::Rekey { from, to, returning } => {
                format!(
                    "update kv set k = {to} where k = {from}{}",
                    back(Table::Kv, returning)
                )
            }
            Query::Insert { table, rows } => format!("insert into {} values {}", table.name(), values(rows)),
            Query::Upsert {
                on,
                rows,
                nothing,
                returning,
            } => {
                let what = if *nothing {
                    "nothing"
                } else {
                    "update set v = kv.v + 1"
                };
                let returned = back(Table::Kv, returning);
                format!(
                    "insert into kv values {} on conflict ({}) do {what}{returned}",
                    values(rows),
                    on.name()
                )
            }
            Query::Copy(of) => format!("insert into bag select k, v from kv{}", of.sql(Table::Kv)),
            Query::Move(of) => format!(
                "with gone as (delete from kv{} returning k, v) insert into bag select k, v from gone",
                of.sql(Table::Kv)
            ),
            Query::Delete { of, returning } => {
                format!("delete from {}{}{}", of.0.name(), of.sql(), back(of.0, returning))
            }
            Query::Blind(inner) => format!("do $$ begin execute '{}'; end $$", inner.sql()),
        }
    }

    pub fn returning(&self) -> bool {
        match self {
            Query::Set { returning, .. }
            | Query::Add { returning, .. }
            | Query::Rekey { returning, .. }
            | Query::Upsert { returning, .. }
            | Query::Delete { returning, .. } => *returning,
            Query::Lock { .. } => true,
            _ => false,
        }
    }

    pub fn tag(&self, count: usize) -> String {
        match self {
            Query::Insert { .. } | Query::Upsert { .. } | Query::Copy(_) | Query::Move(_) => {
                format!("INSERT 0 {count}")
            }
            Query::Delete { .. } => format!("DELETE {count}"),
            Query::Blind(_) => "DO".to_owned(),
            _ => format!("UPDATE {count}"),
        }
    }

    /// What it looks at: the keys of a table, or all of it.
    pub fn reads(&self) -> Vec<(Table, Option<Vec<i64>>)> {
        match self {
            Query::Ordered(table) | Query::Sum(table) => vec![(*table, None)],
            Query::Value(of)
            | Query::Rows(of)
            | Query::Count(of)
            | Query::Lock { of, .. }
            | Query::Set { of, .. }
            | Query::Add { of, .. }
            | Query::Delete { of, .. } => vec![(of.0, of.1.keys())],
            Query::Rekey { from, to, .. } => vec![(Table::Kv, Some(vec![*from, *to]))],
            Query::Insert { table, rows } => vec![(*table, Some(rows.iter().map(|r| r.0).collect()))],
            Query::Upsert { rows, .. } => vec![(Table::Kv, Some(rows.iter().map(|r| r.0).collect()))],
            Query::Copy(of) | Query::Move(of) => vec![(Table::Kv, of.keys())],
            Query::Blind(inner) => inner.reads(),
        }
    }

    /// The rows that it locks or writes, if it does.
    pub fn target(&self) -> Option<Of> {
        match self {
            Query::Lock { of, .. }
            | Query::Set { of, .. }
            | Query::Add { of, .. }
            | Query::Delete { of, .. } => Some(of.clone()),
            Query::Rekey { from, .. } => Some(Of(Table::Kv, Condition::Is(*from))),
            Query::Move(of) => Some(Of(Table::Kv, of.clone())),
            _ => None,
        }
    }
}

fn values(rows: &[Pair]) -> String {
    let one = |(k, v): &Pair| format!("({k}, {})", crate::history::cell(*v));
    rows.iter().map(one).collect::<Vec<_>>().join(", ")
}
