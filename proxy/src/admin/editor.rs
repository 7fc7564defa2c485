//! The trace editor: a small trace as text, judged at every level by the engine that judges the traffic.
//!
//! In: a story in the language of [`pgassay_audit::script`], written by whoever sits before the page.
//! Out: the verdict at each level of a profile, the violations with their stories, and the lines that are to blame.
//!
//! Always true:
//!   - nothing recorded is read and nothing is kept;
//!   - a story is short, one is judged at a time, on a thread that relays nothing, and it is given up after a few
//!     seconds: whoever plays here cannot slow the traffic down by more than one busy thread;
//!   - the examples are the stories that the audit's own tests are judged by.

use super::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use pgassay_audit::report::{json, trace};
use pgassay_audit::script::{self, ScriptError};
use pgassay_audit::{Auditor, Settings};
use pgassay_rules::anomaly;
use pgassay_rules::profile::Profile;
use rust_embed::RustEmbed;
use serde::Deserialize;
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Bytes of a story.
pub const STORY_BYTES_MAX: usize = 64 * 1024;
/// How long a story may be thought about, and how long an answer is waited for.
const THINK: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(60);

/// Folders of examples, with what they are examples of.
const GROUPS: [(&str, &str); 4] = [
    ("verdict", "Anomalies"),
    ("hermitage", "Hermitage's tests"),
    ("silent", "Right, though it may look wrong"),
    ("semantics", "Answers of SQL, right and wrong"),
];

#[derive(RustEmbed)]
#[folder = "../audit/testscripts/"]
struct Stories;

/// Lets one story be judged at a time.
#[derive(Clone, Debug)]
pub struct Desk(Arc<Semaphore>);

impl Default for Desk {
    fn default() -> Desk {
        Desk(Arc::new(Semaphore::new(1)))
    }
}

/// Every example, by group.
pub async fn examples() -> Json<Value> {
    let groups = GROUPS.iter().map(|(folder, title)| {
        let mut names: Vec<String> = Stories::iter()
            .filter_map(|path| path.strip_prefix(&format!("{folder}/")).map(str::to_owned))
            .collect();
        names.sort();
        let stories: Vec<Value> = names
            .iter()
            .filter_map(|name| Some((name, Stories::get(&format!("{folder}/{name}"))?)))
            .map(|(name, file)| example(folder, name, &String::from_utf8_lossy(&file.data)))
            .collect();
        json!({ "folder": folder, "title": title, "stories": stories })
    });
    Json(groups.collect())
}

fn example(folder: &str, name: &str, text: &str) -> Value {
    let about: Vec<&str> = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    let story: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().starts_with("expect "))
        .collect();
    json!({
        "id": format!("{folder}/{name}"),
        "name": name,
        "about": about.join(" "),
        "summary": anomaly::by_name(name).map(|rule| rule.summary),
        "text": story.join("\n").trim_end().to_owned() + "\n",
    })
}

/// What may be promised: the built-in profiles.
pub async fn profiles() -> Json<Value> {
    let built_in =
        Profile::names().filter_map(|name| Profile::named(name).ok().map(|profile| (name, profile)));
    let told = built_in.map(|(name, profile)| json!({ "name": name, "description": profile.description }));
    Json(told.collect())
}

/// What the page sends. JSON, so that no form of another web site can send it.
#[derive(Debug, Deserialize)]
pub struct Story {
    text: String,
    /// Whose levels; PostgreSQL's if it is not said.
    profile: Option<String>,
}

/// The verdict at every level.
pub async fn judge(
    State(shared): State<Shared>,
    Json(story): Json<Story>,
) -> Result<Json<Value>, (StatusCode, Json<Value>)> {
    let busy = |what: &str| (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "what": what })));
    let turn = tokio::time::timeout(WAIT, shared.desk.0.clone().acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        return Err(busy("another story is being judged; try again in a moment"));
    };
    let judged = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let until = Instant::now() + THINK;
        std::panic::catch_unwind(AssertUnwindSafe(|| verdicts(&story, until)))
    });
    match tokio::time::timeout(WAIT, judged).await {
        Ok(Ok(Ok(Ok(value)))) => Ok(Json(value)),
        Ok(Ok(Ok(Err(trouble)))) => Err((StatusCode::UNPROCESSABLE_ENTITY, Json(trouble))),
        Ok(_) => Err((
            StatusCode::INTERNAL_SERVER_ERROR,
            Json(json!({ "what": "the audit crashed on this story; please report it as a bug" })),
        )),
        Err(_) => Err(busy("this story takes too long to judge; make it shorter")),
    }
}

fn verdicts(story: &Story, until: Instant) -> Result<Value, Value> {
    let settings = Settings {
        profile: story.profile.clone().unwrap_or(Settings::default().profile),
        ..Settings::default()
    };
    let profile = settings.validate();
    let profile = profile.map_err(|error| json!({ "what": error.to_string() }))?;
    let bad = |error: ScriptError| json!({ "line": error.line, "what": error.what });
    let (story, _) = script::expectations(&story.text).map_err(bad)?;
    let mut levels = Vec::new();
    let mut shown = Value::Null;
    for (level, _) in profile.levels() {
        let told = script::read(&story, level).map_err(bad)?;
        if shown.is_null() {
            shown = trace::picture(&told.records);
        }
        let mut auditor = Auditor::new(settings.clone());
        for record in told.records {
            if Instant::now() > until {
                return Err(json!({ "what": "this story takes too long to judge; make it shorter" }));
            }
            auditor.take(record);
        }
        auditor.finish();
        let summary = auditor.summary();
        let lines: Vec<usize> = summary
            .violations
            .iter()
            .flat_map(|v| {
                let culprits = v.culprits.iter();
                culprits.filter_map(|(t, s)| v.transactions.get(*t)?.statements.get(*s))
            })
            .filter_map(|statement| told.lines.get(&statement.window.sent).copied())
            .collect();
        let coverage = &summary.coverage;
        levels.push(json!({
            "level": level,
            "violations": summary.violations.iter().map(violation).collect::<Vec<_>>(),
            "lines": lines,
            "checked": coverage.checked,
            "partial": coverage.partial,
            "unchecked": coverage.unchecked,
            "reasons": coverage.reasons,
        }));
    }
    Ok(json!({ "levels": levels, "trace": shown }))
}

fn violation(violation: &pgassay_audit::verdict::Violation) -> Value {
    let mut value = json::violation(violation);
    if let (Value::Object(map), Some(rule)) = (&mut value, anomaly::by_name(&violation.rule)) {
        map.insert("summary".to_owned(), json!(rule.summary));
    }
    value
}
