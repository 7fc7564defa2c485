//! A small history as data: what each session asked, what it was answered, and which statements overlapped.
//!
//! In: events of the simulated database, in order. Out: the text of a story.
//!
//! Always true: a statement's `Begin` comes before its `End`, and a session has one statement under way.

use crate::simulate::Child;
use std::fmt::Write;

/// A row: both tables have two columns, and the first is never NULL.
pub type Pair = (i64, Option<i64>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Rows; `None` is NULL.
    Rows(Vec<Vec<Option<i64>>>),
    Tag(String),
    Error(&'static str),
    /// Transaction control: nobody looks at the answer.
    Plain,
    /// The connection was lost.
    Lost,
}

/// One statement with its answer.
#[derive(Clone, Debug)]
pub struct Statement {
    pub session: usize,
    /// Which transaction of the history it belongs to.
    pub txn: usize,
    pub sql: String,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Begin(usize),
    End(usize),
}

#[derive(Clone, Debug, Default)]
pub struct History {
    /// What is in the tables when it begins.
    pub kv: Vec<Pair>,
    pub bag: Vec<Pair>,
    /// The second column of `kv` is unique, too.
    pub distinct: bool,
    /// The rows of `bag` refer to those of `kv`.
    pub child: Option<Child>,
    /// What somebody on the side saw of both, in the statements of session 0, one after the other.
    pub looks: Vec<(Vec<Pair>, Vec<Pair>)>,
    /// Each session's isolation level.
    pub levels: Vec<(usize, &'static str)>,
    pub statements: Vec<Statement>,
    pub events: Vec<Event>,
}

impl History {
    /// The history without some statements.
    pub fn without(&self, dropped: impl Fn(usize) -> bool) -> History {
        let mut kept = self.clone();
        kept.events.retain(|e| match e {
            Event::Begin(s) | Event::End(s) => !dropped(*s),
        });
        kept
    }

    /// The statements that are part of it, in order of their begin.
    pub fn present(&self) -> Vec<usize> {
        let begun = self.events.iter().filter_map(|e| match e {
            Event::Begin(s) => Some(*s),
            Event::End(_) => None,
        });
        begun.collect()
    }

    pub fn setup(&self) -> String {
        let unique = if self.distinct { " unique" } else { "" };
        let child = match self.child {
            None => "",
            Some(Child::Keeps) => " references kv",
            Some(Child::Cascades) => " references kv on delete cascade",
        };
        let mut text = format!(
            "init: create table kv (k int primary key, v int{unique})\n\
             init: create table bag (a int{child}, b int)\n"
        );
        for (name, rows) in [("kv", &self.kv), ("bag", &self.bag)] {
            let rows: Vec<String> = rows.iter().map(|(k, v)| format!("({k}, {})", cell(*v))).collect();
            if !rows.is_empty() {
                let (all, count) = (rows.join(", "), rows.len());
                let _ = writeln!(text, "init: insert into {name} values {all} => INSERT 0 {count}");
            }
        }
        for (session, level) in &self.levels {
            let _ = writeln!(text, "s{session}: set default_transaction_isolation = '{level}'");
        }
        text
    }

    /// The story, set-up included.
    pub fn text(&self) -> String {
        let mut text = self.setup();
        for (at, event) in self.events.iter().enumerate() {
            match *event {
                Event::Begin(s) => {
                    let Statement {
                        session, sql, answer, ..
                    } = &self.statements[s];
                    let end = if self.events.get(at + 1) == Some(&Event::End(s)) {
                        answer_of(answer)
                    } else {
                        " ...".to_owned()
                    };
                    let _ = writeln!(text, "{}: {sql}{end}", name(*session));
                }
                Event::End(s) => {
                    if at > 0 && self.events[at - 1] == Event::Begin(s) {
                        continue;
                    }
                    let Statement {
                        session, answer, sql, ..
                    } = &self.statements[s];
                    let answer = match (answer, sql.split(' ').next()) {
                        (Answer::Plain, Some(word)) => format!(" => {}", word.to_ascii_uppercase()),
                        (answer, _) => answer_of(answer),
                    };
                    let _ = writeln!(text, "{}: ...{answer}", name(*session));
                }
            }
        }
        text
    }
}

fn name(session: usize) -> String {
    match session {
        0 => "side".to_owned(),
        n => format!("s{n}"),
    }
}

pub fn cell(value: Option<i64>) -> String {
    value.map_or_else(|| "null".to_owned(), |v| v.to_string())
}

fn answer_of(answer: &Answer) -> String {
    match answer {
        Answer::Plain => String::new(),
        Answer::Lost => " => lost".to_owned(),
        Answer::Tag(tag) => format!(" => {tag}"),
        Answer::Error(code) => format!(" => error {code}"),
        Answer::Rows(rows) if rows.is_empty() => " => no rows".to_owned(),
        Answer::Rows(rows) => {
            let rows: Vec<String> = rows
                .iter()
                .map(|row| {
                    format!(
                        "({})",
                        row.iter().map(|c| cell(*c)).collect::<Vec<_>>().join(", ")
                    )
                })
                .collect();
            format!(" => {}", rows.join(" "))
        }
    }
}
