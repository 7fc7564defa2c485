//! Totals of a journal.

use super::Chosen;
use super::show::{shorten, took};
use comfy_table::{Cell, CellAlignment, Table, presets};
use pgassay_audit::trace::shape::{shape, tables};
use pgassay_audit::trace::{Nanos, Observation, Outcome, Record, SessionId, Status, Window};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::Arc;

#[derive(Default, Serialize)]
struct Totals {
    seconds: f64,
    redacted: bool,
    sessions: u64,
    statements: u64,
    rows: u64,
    errors: u64,
    lost: u64,
    cut: u64,
    gaps: u64,
    transactions: Transactions,
    slowest: Vec<Slow>,
    by_session: Vec<Group>,
    by_table: Vec<Group>,
    by_shape: Vec<Group>,
}

#[derive(Default, Serialize)]
struct Transactions {
    committed: u64,
    rolled_back: u64,
    unknown: u64,
    /// Of these, without BEGIN.
    implicit: u64,
}

#[derive(Serialize)]
struct Slow {
    session: SessionId,
    seq: u64,
    at_seconds: f64,
    milliseconds: f64,
    text: String,
    #[serde(skip)]
    window: Window,
}

#[derive(Clone, Default, Serialize)]
struct Group {
    name: String,
    statements: u64,
    rows: u64,
    errors: u64,
    milliseconds: f64,
    milliseconds_max: f64,
}

pub fn stats(chosen: &mut Chosen, top: usize, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let totals = gather(chosen, top)?;
    if as_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&totals)?)?;
        return Ok(());
    }
    tell(&totals, out)
}

fn gather(chosen: &mut Chosen, top: usize) -> anyhow::Result<Totals> {
    let mut totals = Totals {
        redacted: chosen.reader.is_redacted(),
        ..Totals::default()
    };
    let mut sessions: BTreeMap<SessionId, Group> = BTreeMap::new();
    let mut by_shape: BTreeMap<Arc<str>, Group> = BTreeMap::new();
    let mut by_table: BTreeMap<String, Group> = BTreeMap::new();
    // Texts repeat: their shape and tables are worked out once.
    let mut known: HashMap<Arc<str>, (Arc<str>, Arc<[String]>)> = HashMap::new();
    let mut shapes: HashMap<Arc<str>, Arc<[String]>> = HashMap::new();
    let mut open: HashMap<SessionId, bool> = HashMap::new();
    let mut last = 0;
    while let Some(record) = chosen.next()? {
        last = last.max(super::span(&record).1);
        let o = match record {
            Record::Statement(o) => o,
            Record::SessionStart(facts) => {
                totals.sessions += 1;
                let name = format!("s{} {} on {}", facts.session.0, facts.user, facts.database);
                sessions.insert(
                    facts.session,
                    Group {
                        name,
                        ..Group::default()
                    },
                );
                continue;
            }
            Record::Gap(_) => {
                totals.gaps += 1;
                continue;
            }
            _ => continue,
        };
        count_transaction(&o, &mut open, &mut totals.transactions);
        let one = Group::of(&o);
        totals.statements += 1;
        totals.rows += one.rows;
        totals.errors += one.errors;
        match &o.outcome {
            Outcome::Lost => totals.lost += 1,
            Outcome::Answer(a) if a.cut.is_some() => totals.cut += 1,
            _ => {}
        }
        let session = o.session;
        sessions
            .entry(session)
            .or_insert_with(|| Group::named(&format!("s{}", session.0)))
            .add(&one);
        if !known.contains_key(&o.text) {
            let shape: Arc<str> = shape(&o.text).into();
            let named = shapes
                .entry(shape.clone())
                .or_insert_with(|| tables(&o.text).into())
                .clone();
            // Texts with literals are all different: do not keep them for ever.
            if known.len() > 10_000 {
                known.clear();
            }
            known.insert(o.text.clone(), (shape, named));
        }
        let (shape, named) = &known[&o.text];
        by_shape
            .entry(shape.clone())
            .or_insert_with(|| Group::named(shape))
            .add(&one);
        for table in named.iter() {
            by_table
                .entry(table.clone())
                .or_insert_with(|| Group::named(table))
                .add(&one);
        }
        if o.window.done != Nanos::MAX {
            totals.slowest.push(Slow {
                session: o.session,
                seq: o.seq,
                at_seconds: chosen.seconds(o.window.sent),
                milliseconds: one.milliseconds,
                text: shorten(&o.text, 200),
                window: o.window,
            });
        }
        if totals.slowest.len() > 4 * top + 1000 {
            keep_slowest(&mut totals.slowest, top);
        }
    }
    keep_slowest(&mut totals.slowest, top);
    totals.seconds = chosen.seconds(last);
    totals.by_session = most(sessions.into_values(), top);
    totals.by_table = most(by_table.into_values(), top);
    totals.by_shape = most(by_shape.into_values(), top);
    Ok(totals)
}

fn keep_slowest(slowest: &mut Vec<Slow>, top: usize) {
    slowest.sort_by(|a, b| {
        let longer = b.milliseconds.total_cmp(&a.milliseconds);
        longer.then((a.session, a.seq).cmp(&(b.session, b.seq)))
    });
    slowest.truncate(top);
}

fn most(groups: impl Iterator<Item = Group>, top: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = groups.collect();
    groups.sort_by(|a, b| {
        b.milliseconds
            .total_cmp(&a.milliseconds)
            .then_with(|| a.name.cmp(&b.name))
    });
    groups.truncate(top);
    groups
}

/// A transaction is counted at its end; outside a block every group is one.
fn count_transaction(o: &Observation, open: &mut HashMap<SessionId, bool>, totals: &mut Transactions) {
    let began_explicitly = open.get(&o.session).copied().unwrap_or(false) || o.before != Status::Idle;
    match o.after {
        Status::InBlock | Status::Failed => {
            open.insert(o.session, true);
            return;
        }
        Status::Idle | Status::Unknown => {
            open.remove(&o.session);
        }
    }
    // Of several answers in a group the first one counts for it.
    if o.part > 0 {
        return;
    }
    let rolled_back = match &o.outcome {
        Outcome::Error(_) | Outcome::Skipped => true,
        Outcome::Answer(a) => matches!(a.tag.as_deref(), Some("ROLLBACK")),
        Outcome::Lost => false,
    };
    if o.after == Status::Unknown {
        totals.unknown += 1;
    } else if rolled_back {
        totals.rolled_back += 1;
    } else {
        totals.committed += 1;
    }
    if !began_explicitly {
        totals.implicit += 1;
    }
}

impl Group {
    fn named(name: &str) -> Group {
        Group {
            name: name.to_owned(),
            ..Group::default()
        }
    }

    fn of(o: &Observation) -> Group {
        let (rows, errors) = match &o.outcome {
            Outcome::Answer(a) => (a.cut.as_ref().map_or(a.rows.len() as u64, |cut| cut.rows), 0),
            Outcome::Error(_) => (0, 1),
            _ => (0, 0),
        };
        let known = o.window.done != Nanos::MAX;
        let milliseconds = if known {
            o.window.done.saturating_sub(o.window.sent) as f64 / 1e6
        } else {
            0.0
        };
        let milliseconds_max = milliseconds;
        Group {
            name: String::new(),
            statements: 1,
            rows,
            errors,
            milliseconds,
            milliseconds_max,
        }
    }

    fn add(&mut self, other: &Group) {
        self.statements += other.statements;
        self.rows += other.rows;
        self.errors += other.errors;
        self.milliseconds += other.milliseconds;
        self.milliseconds_max = self.milliseconds_max.max(other.milliseconds_max);
    }
}

fn tell(totals: &Totals, out: &mut impl Write) -> anyhow::Result<()> {
    if totals.redacted {
        writeln!(
            out,
            "This journal holds hashes instead of literals, parameters and cells.\n"
        )?;
    }
    let t = &totals.transactions;
    let mut table = plain();
    for (label, value) in [
        ("seconds", format!("{:.3}", totals.seconds)),
        ("sessions", totals.sessions.to_string()),
        ("transactions committed", t.committed.to_string()),
        ("transactions rolled back", t.rolled_back.to_string()),
        ("transactions with unknown end", t.unknown.to_string()),
        ("of these without BEGIN", t.implicit.to_string()),
        ("statements", totals.statements.to_string()),
        ("rows returned", totals.rows.to_string()),
        ("errors", totals.errors.to_string()),
        ("never answered", totals.lost.to_string()),
        ("results cut", totals.cut.to_string()),
        ("gaps", totals.gaps.to_string()),
    ] {
        table.add_row(vec![Cell::new(label), right(value)]);
    }
    writeln!(out, "{table}")?;
    for (title, groups) in [
        ("By session", &totals.by_session),
        ("By table", &totals.by_table),
        ("By shape", &totals.by_shape),
    ] {
        if groups.is_empty() {
            continue;
        }
        let mut table = plain();
        table.set_header(vec!["statements", "rows", "errors", "total ms", "max ms", ""]);
        for group in groups {
            table.add_row(vec![
                right(group.statements.to_string()),
                right(group.rows.to_string()),
                right(group.errors.to_string()),
                right(format!("{:.1}", group.milliseconds)),
                right(format!("{:.1}", group.milliseconds_max)),
                Cell::new(shorten(&group.name, 100)),
            ]);
        }
        writeln!(out, "\n{title}\n{table}")?;
    }
    if !totals.slowest.is_empty() {
        let mut table = plain();
        table.set_header(vec!["at s", "took", "session", ""]);
        for slow in &totals.slowest {
            table.add_row(vec![
                right(format!("{:.6}", slow.at_seconds)),
                right(took(slow.window)),
                right(format!("s{}", slow.session.0)),
                Cell::new(shorten(&slow.text, 100)),
            ]);
        }
        writeln!(out, "\nSlowest\n{table}")?;
    }
    Ok(())
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
