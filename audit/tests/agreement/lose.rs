//! Takes away from a trace what the audit is to do without.
//!
//! In: the records of a whole history, and a seed. Out: the same with holes, each of them told as the proxy tells it: a
//! session that lost its place until it was idle again, or everything for a while.
//!
//! Always true: what is left is true, and a mark promises no more than it may.

use crate::history::{History, Pair, cell};
use fastrand::Rng;
use pgassay_audit::trace::{
    CatalogRead, Gap, NOBODY, Nanos, Record, Reread, SessionId, Status, TableCopy, TableName, Window,
};

/// What is taken away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// What was in the tables at first.
    pub beginning: bool,
    /// Sessions that lose their place for a while.
    pub places: usize,
    /// Everything for a while.
    pub everything: usize,
}

impl Losses {
    pub fn random(rng: &mut Rng) -> Losses {
        Losses {
            beginning: rng.bool(),
            places: if rng.bool() { 0 } else { rng.usize(0..3) },
            everything: usize::from(rng.u8(0..4) == 0),
        }
    }

    pub fn smaller(self) -> Vec<Losses> {
        let mut all = Vec::new();
        if self.beginning {
            all.push(Losses {
                beginning: false,
                ..self
            });
        }
        if self.places > 0 {
            all.push(Losses {
                places: self.places - 1,
                ..self
            });
        }
        if self.everything > 0 {
            all.push(Losses {
                everything: 0,
                ..self
            });
        }
        all
    }
}

/// The session that sets up the tables.
const INIT: SessionId = SessionId(1);

/// The records of `history` with holes.
pub fn lose(history: &History, losses: Losses, seed: u64) -> Vec<Record> {
    let mut rng = Rng::with_seed(seed);
    let mut records = crate::judges::records(&history.text());
    records.retain(|r| !matches!(r, Record::Mark { .. }));
    look(history, &mut records, &mut rng);
    let at = records.iter().map(done_of).max().unwrap_or(0) + 1;
    records.push(catalog(Window::new(at, at), at));
    // Nothing of the set-up but what it says about the catalog may get lost.
    let set_up = records.iter().rposition(is_set_up).map_or(0, |at| at + 1);
    for _ in 0..losses.everything {
        lose_everything(&mut records, set_up, &mut rng);
    }
    for _ in 0..losses.places {
        lose_place(&mut records, set_up, &mut rng);
    }
    let at = records[..set_up].iter().map(done_of).max().unwrap_or(0) + 1;
    if losses.beginning {
        let gap = Gap {
            session: Some(INIT),
            window: Window::new(at + 1, at + 1),
            reason: "nobody saw how it began".to_owned(),
        };
        records.insert(set_up, Record::Gap(gap));
    }
    records.insert(set_up, catalog(Window::new(at, at), at));
    mark(records, &mut rng)
}

/// Somebody reads that the catalog is what it always is here.
fn catalog(window: Window, at: Nanos) -> Record {
    Record::Catalog(Box::new(CatalogRead {
        at,
        window,
        settings: Vec::new(),
        catalog: vec![("version".to_owned(), vec![vec![Some("the only one".to_owned())]])],
    }))
}

fn is_set_up(record: &Record) -> bool {
    matches!(record, Record::Statement(o) if o.session == INIT)
}

/// When it was sent, if it may have committed something.
fn sent_of(record: &Record) -> Option<Nanos> {
    match record {
        Record::Statement(o) if o.before != Status::Idle && o.after != Status::Idle => None,
        Record::Statement(o) => Some(o.window.sent),
        Record::Gap(gap) => Some(gap.window.sent),
        _ => None,
    }
}

fn done_of(record: &Record) -> Nanos {
    match record {
        Record::Statement(o) => o.window.done,
        Record::Gap(gap) => gap.window.done,
        Record::Reread(reread) => reread.window.done,
        Record::Catalog(read) => read.window.done,
        _ => 0,
    }
}

/// What somebody on the side saw is a second reading; when it takes its turn is open.
fn look(history: &History, records: &mut Vec<Record>, rng: &mut Rng) {
    let mut at = 0;
    while at < records.len() {
        at += 1;
        let Record::Statement(seen) = &records[at - 1] else {
            continue;
        };
        let Some(number) = seen
            .text
            .strip_prefix("select 'look ")
            .and_then(|t| t.strip_suffix('\''))
        else {
            continue;
        };
        let (kv, bag) = &history.looks[number.parse::<usize>().expect("a number")];
        let mut tables = vec![copy("kv", ["k", "v"], kv), copy("bag", ["a", "b"], bag)];
        if rng.u8(0..4) == 0 {
            tables.remove(rng.usize(0..2));
        }
        let (window, turn) = (seen.window, seen.window.done + rng.u64(1..20) * 1_000_000);
        records[at - 1] = Record::Reread(Box::new(Reread {
            at: turn,
            window,
            tables,
        }));
        if rng.bool() {
            records.insert(at - 1, catalog(window, turn));
            at += 1;
        }
    }
}

fn copy(table: &str, columns: [&str; 2], rows: &[Pair]) -> (TableName, TableCopy) {
    let name = TableName {
        schema: "public".to_owned(),
        name: table.to_owned(),
    };
    let text = |value: Option<i64>| value.map(|v| cell(Some(v)));
    let copy = TableCopy {
        oid: 1,
        columns: columns.map(str::to_owned).to_vec(),
        rows: Some(rows.iter().map(|(k, v)| vec![text(Some(*k)), text(*v)]).collect()),
    };
    (name, copy)
}

/// Takes away what `is_lost` says, and puts a gap in its place.
fn hide(records: &mut Vec<Record>, lost: &[usize], session: Option<SessionId>) {
    let windows = lost.iter().filter_map(|at| match &records[*at] {
        Record::Statement(o) => Some(Window::new(o.window.sent, o.over_by().max(o.window.done))),
        _ => None,
    });
    let window = windows.reduce(|a, b| Window::new(a.sent.min(b.sent), a.done.max(b.done)));
    let (Some(window), Some(last)) = (window, lost.last().copied()) else {
        return;
    };
    records[last] = Record::Gap(Gap {
        session,
        window,
        reason: "nobody saw it".to_owned(),
    });
    for at in lost[..lost.len() - 1].iter().rev() {
        records.remove(*at);
    }
}

/// One session's records from somewhere on until it is idle.
fn lose_place(records: &mut Vec<Record>, from: usize, rng: &mut Rng) {
    let statements: Vec<usize> = (from..records.len())
        .filter(|at| matches!(&records[*at], Record::Statement(_)))
        .collect();
    if statements.is_empty() {
        return;
    }
    let first = statements[rng.usize(0..statements.len())];
    let session = records[first].session();
    let mut lost = Vec::new();
    for (at, record) in records.iter().enumerate().skip(first) {
        let Record::Statement(seen) = record else {
            continue;
        };
        if Some(seen.session) != session {
            continue;
        }
        lost.push(at);
        if seen.after == Status::Idle && rng.u8(0..3) != 0 {
            break;
        }
    }
    // Without an idle end the session was lost for good, which is as well.
    hide(records, &lost, session);
}

/// All statements that were recorded in some time.
fn lose_everything(records: &mut Vec<Record>, from: usize, rng: &mut Rng) {
    if from >= records.len() {
        return;
    }
    let first = rng.usize(from..records.len());
    let last = rng.usize(first..records.len().min(first + 12));
    let lost: Vec<usize> = (first..=last)
        .filter(|at| matches!(&records[*at], Record::Statement(_)))
        .collect();
    // The proxy tells whose settings may have changed, if it could read what it dropped.
    let is_set = |at: &&usize| matches!(&records[**at], Record::Statement(o) if o.text.starts_with("set "));
    let plain = lost.iter().find(is_set).is_none();
    hide(records, &lost, plain.then_some(NOBODY));
}

/// Says now and then how far everything is recorded.
fn mark(records: Vec<Record>, rng: &mut Rng) -> Vec<Record> {
    let often = rng.u8(1..5);
    let mut marked = Vec::new();
    for at in 0..records.len() {
        marked.push(records[at].clone());
        if rng.u8(0..often) == 0 {
            let now = records[..=at].iter().map(done_of).max().unwrap_or(0);
            let open = records[at + 1..].iter().filter_map(sent_of).min();
            marked.push(Record::Mark {
                at: open.unwrap_or(Nanos::MAX).min(now),
            });
        }
    }
    marked
}

/// The records, for a person.
pub fn tell(records: &[Record]) -> String {
    let ms = |at: Nanos| at as f64 / 1e6;
    let span = |w: Window| format!("{:>6.1} {:>6.1}", ms(w.sent), ms(w.done));
    let mut lines = Vec::new();
    for record in records {
        match record {
            Record::Statement(o) => {
                let answer = match &o.outcome {
                    pgassay_audit::trace::Outcome::Answer(a) => {
                        let row = |row: &Vec<Option<bytes::Bytes>>| {
                            let cells = row.iter().map(|c| match c {
                                Some(c) => String::from_utf8_lossy(c).into_owned(),
                                None => "null".to_owned(),
                            });
                            format!("({})", cells.collect::<Vec<_>>().join(", "))
                        };
                        let rows: Vec<String> = a.rows.iter().map(row).collect();
                        format!("{} {}", a.tag.as_deref().unwrap_or(""), rows.join(" "))
                    }
                    pgassay_audit::trace::Outcome::Error(e) => format!("error {}", e.sqlstate),
                    other => format!("{other:?}"),
                };
                lines.push(format!(
                    "{} s{} {} => {answer}",
                    span(o.window),
                    o.session.0,
                    o.text
                ));
            }
            Record::Gap(gap) => {
                let who = gap
                    .session
                    .map_or("everybody".to_owned(), |s| format!("s{}", s.0));
                lines.push(format!("{} gap of {who}", span(gap.window)));
            }
            Record::Reread(r) => {
                let rows = |c: &TableCopy| {
                    format!(
                        "{:?}",
                        c.rows.iter().flat_map(|rows| rows.iter()).collect::<Vec<_>>()
                    )
                };
                let tables: Vec<String> = r
                    .tables
                    .iter()
                    .map(|(n, c)| format!("{} {}", n.name, rows(c)))
                    .collect();
                lines.push(format!(
                    "{} read again, turn at {}: {}",
                    span(r.window),
                    ms(r.at),
                    tables.join("; ")
                ));
            }
            Record::Catalog(r) => lines.push(format!(
                "{} catalog read again, turn at {}",
                span(r.window),
                ms(r.at)
            )),
            Record::Mark { at } => lines.push(format!("{:>6.1} mark", ms(*at))),
            _ => {}
        }
    }
    lines.join("\n").replace("Some(", "").replace("\")", "\"")
}
