//! The model of values against a real server.
//!
//! In: a running server and a seed. Out: every expression on which the two differ, and how often the model
//! said "unknown", per function.
//!
//! An expression is made at random from literals, casts, operators, functions and aggregates, printed as
//! SQL for the server and evaluated by the model. They must agree on the text of the result, on its type
//! and on SQLSTATE; "unknown" always agrees.

mod expression;
mod literals;
mod server;

pub use expression::Expression;
pub use server::Server;

use anyhow::Result;
use pgassay_audit::value::{self, CastKind, Context, SqlError, TypeOid, Value, oid};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a run found.
#[derive(Default)]
pub struct Report {
    pub expressions: u64,
    /// One line each: expression, the model's answer, the server's.
    pub differences: Vec<String>,
    /// Per construct: how often it was known, and how often unknown.
    pub coverage: BTreeMap<String, (u64, u64)>,
    /// Names that the server resolved and the model did not.
    pub unresolved: BTreeMap<String, u64>,
}

/// An answer in the words of the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Text {
        text: Option<String>,
        type_name: String,
    },
    Error(String),
    Unknown,
    /// The model could not resolve a name.
    Unresolved(String),
}

impl Report {
    pub fn unknown_share(&self) -> f64 {
        let (known, unknown) = self
            .coverage
            .values()
            .fold((0, 0), |(k, u), (a, b)| (k + a, u + b));
        unknown as f64 / (known + unknown).max(1) as f64
    }

    /// The constructs by their share of unknown, as lines.
    pub fn table(&self) -> String {
        let mut rows: Vec<_> = self.coverage.iter().collect();
        rows.sort_by(|(_, a), (_, b)| {
            let share = |(known, unknown): &(u64, u64)| *unknown as f64 / (*known + *unknown) as f64;
            share(b).total_cmp(&share(a))
        });
        let line = |(name, (known, unknown)): (&String, &(u64, u64))| {
            format!(
                "{:>5.1} % unknown of {:>6}  {name}\n",
                100.0 * *unknown as f64 / (known + unknown) as f64,
                known + unknown
            )
        };
        rows.into_iter().map(line).collect()
    }
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    Expressions(u64),
    Time(Duration),
}

/// Runs random expressions until there are enough.
pub async fn run(server: &Server, seed: u64, length: Length) -> Result<Report> {
    let context = Context::defaults();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut report = Report::default();
    let began = Instant::now();
    check_forms(server, &context, &mut report).await?;
    let mut tried = 0;
    let enough = |tried: u64| match length {
        Length::Expressions(count) => tried >= count,
        Length::Time(time) => began.elapsed() >= time,
    };
    while !enough(tried) {
        tried += 200;
        let batch: Vec<Expression> = (0..200).map(|_| Expression::random(&mut random)).collect();
        let sql: Vec<String> = batch.iter().map(Expression::sql).collect();
        let answers = server.evaluate(&sql).await?;
        for ((expression, sql), theirs) in batch.iter().zip(&sql).zip(answers) {
            compare(expression, sql, &theirs, &context, &mut report);
        }
        if report.differences.len() > 200 {
            break;
        }
    }
    Ok(report)
}

fn compare(expression: &Expression, sql: &str, theirs: &Answer, context: &Context, report: &mut Report) {
    report.expressions += 1;
    let ours = answer(expression, context);
    let slot = report.coverage.entry(expression.construct()).or_default();
    match (&ours, theirs) {
        (Answer::Unknown, Answer::Error(code)) if !code.starts_with("42") => slot.1 += 1,
        (Answer::Unknown, Answer::Text { .. }) => slot.1 += 1,
        (Answer::Unknown, _) => {}
        (Answer::Unresolved(_), Answer::Error(_)) => {}
        (Answer::Unresolved(name), _) => *report.unresolved.entry(name.clone()).or_default() += 1,
        // Names that only some servers know, and limits of the parser, are no concern of values.
        (_, Answer::Error(code)) if code.starts_with("42") => {}
        (ours, theirs) => {
            slot.0 += 1;
            // With several errors in one expression, which comes first is the server's choice.
            // A strict function of a constant NULL is NULL before its other arguments are looked at.
            let excused = match (ours, theirs) {
                (Answer::Error(_), Answer::Error(_)) => expression.may_fail_in_part(context),
                (Answer::Error(_), Answer::Text { text: None, .. }) => sql.contains("NULL::"),
                _ => false,
            };
            if ours != theirs && !excused {
                report
                    .differences
                    .push(format!("{sql}\n    model:  {ours:?}\n    server: {theirs:?}"));
            }
        }
    }
}

/// The model's answer.
pub fn answer(expression: &Expression, context: &Context) -> Answer {
    match expression.evaluate(context) {
        Err(expression::Failure::Unresolved(name)) => Answer::Unresolved(name),
        Err(expression::Failure::Sql(SqlError::Raised { sqlstate, .. })) => {
            Answer::Error(sqlstate.to_owned())
        }
        Err(expression::Failure::Sql(SqlError::NotModelled(_))) => Answer::Unknown,
        Ok((value, type_oid)) => {
            let type_oid = if type_oid == oid::UNKNOWN {
                oid::TEXT
            } else {
                type_oid
            };
            let type_name = value::Types::BUILT_IN.name(type_oid);
            match value {
                Value::Unknown => Answer::Unknown,
                Value::Null => Answer::Text {
                    text: None,
                    type_name,
                },
                known => match value::encode_text(&known, context) {
                    Some(text) => Answer::Text {
                        text: Some(text),
                        type_name,
                    },
                    None => Answer::Unknown,
                },
            }
        }
    }
}

/// Every literal of every type in both formats of the wire: text and binary must decode to one value.
async fn check_forms(server: &Server, context: &Context, report: &mut Report) -> Result<()> {
    for (type_oid, literal) in literals::all() {
        let Some(forms) = server.forms(&literals::typed(type_oid, literal)).await else {
            continue;
        };
        report.expressions += 1;
        let from_text = value::decode(type_oid, 0, Some(forms.0.as_bytes()), context);
        let from_binary = value::decode(type_oid, 1, Some(&forms.1), context);
        let slot = report
            .coverage
            .entry(format!("decode {}", value::Types::BUILT_IN.name(type_oid)))
            .or_default();
        match (
            value::encode_text(&from_text, context),
            value::encode_text(&from_binary, context),
        ) {
            (Some(text), Some(binary)) => {
                slot.0 += 1;
                if text != forms.0 || binary != forms.0 {
                    report.differences.push(format!(
                        "decode {literal}: text {text}, binary {binary}, server {}",
                        forms.0
                    ));
                }
            }
            _ => slot.1 += 1,
        }
    }
    Ok(())
}

/// Casts as an expression tree does, for the parts of this module.
fn cast(
    value: &Value,
    from: TypeOid,
    to: TypeOid,
    typmod: i32,
    kind: CastKind,
    context: &Context,
) -> Result<Value, SqlError> {
    value::cast(value, from, to, typmod, kind, context)
}
