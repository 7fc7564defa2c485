//! The web page, embedded: plain HTML, CSS and modules, no build step, nothing from outside.
//!
//! The page itself holds no recorded data, so it is served to whoever asks; it asks for the token itself.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;
use std::borrow::Cow;

#[derive(RustEmbed)]
#[folder = "src/admin/page/"]
struct Page;

/// The picture, its story and its style are shared with the stand-alone report.
#[derive(RustEmbed)]
#[folder = "../audit/src/report/page/"]
struct Report;

#[derive(RustEmbed)]
#[folder = "../rules/runbooks/"]
struct Runbooks;

/// What to do about a rule, in Markdown.
pub async fn runbook(Path(rule): Path<String>) -> Response {
    match runbook_of(&rule) {
        Some(text) => ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response(),
        None => (StatusCode::NOT_FOUND, "there is no such runbook\n").into_response(),
    }
}

/// The runbook of a rule or an alert.
pub fn runbook_of(name: &str) -> Option<String> {
    let file = Runbooks::get(&format!("{name}.md"))?;
    Some(String::from_utf8_lossy(&file.data).into_owned())
}

pub async fn index() -> Response {
    file(Path("index.html".to_owned())).await
}

pub async fn file(Path(name): Path<String>) -> Response {
    let found = Page::get(&name).or_else(|| Report::get(&name));
    let body: Option<Cow<'static, [u8]>> = found.map(|file| file.data);
    match body {
        Some(body) => ([(header::CONTENT_TYPE, kind(&name))], body.into_owned()).into_response(),
        None => (StatusCode::NOT_FOUND, "the page has no such part\n").into_response(),
    }
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
