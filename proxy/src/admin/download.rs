//! One violation as a file: JSON, HTML, SVG, script, isolationtester specification, trace.

use super::{Shared, api, cut};
use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pgassay_audit::report::{html, json, markdown, script, spec, svg, text};
use pgassay_audit::verdict::Violation;

/// A picture or page of its own brings its own style, and nothing else.
const STYLE_ONLY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

pub async fn file(
    State(shared): State<Shared>,
    Path((id, file)): Path<(String, String)>,
) -> Result<Response, (StatusCode, String)> {
    let violation = api::find(&shared, &id)?;
    if file == "trace" {
        return trace(shared, violation).await;
    }
    let (kind, name, body) = match file.as_str() {
        "json" => (
            "application/json",
            "json",
            serde_json::to_string_pretty(&json::violation(&violation)).unwrap_or_default(),
        ),
        "html" => ("text/html; charset=utf-8", "html", html::violation(&violation)),
        "svg" => ("image/svg+xml", "svg", svg::picture(&violation, svg::Place::File)),
        "script" => ("text/plain; charset=utf-8", "script", script::write(&violation)),
        "spec" => ("text/plain; charset=utf-8", "spec", spec::write(&violation)),
        "text" => (
            "text/plain; charset=utf-8",
            "txt",
            text::violation(&violation, text::Paint::Plain),
        ),
        "markdown" => (
            "text/markdown; charset=utf-8",
            "md",
            markdown::violation(&violation),
        ),
        _ => {
            let words = "a violation can be had as json, html, svg, script, spec, text, markdown or trace\n";
            return Err((StatusCode::NOT_FOUND, words.to_owned()));
        }
    };
    let disposition = format!("attachment; filename=\"{}.{name}\"", file_name(&violation.id));
    let headers: [(HeaderName, String); 3] = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
        (header::CONTENT_SECURITY_POLICY, STYLE_ONLY.to_owned()),
    ];
    Ok((headers, body).into_response())
}

/// Reads the journal, which may take a while: not on the threads that relay.
async fn trace(shared: Shared, violation: Violation) -> Result<Response, (StatusCode, String)> {
    let disposition = format!("attachment; filename=\"{}.segment\"", file_name(&violation.id));
    let journal = shared.live.config.load().journal.clone();
    let bytes = tokio::task::spawn_blocking(move || cut::around(&violation, &journal)).await;
    match bytes {
        Ok(Ok(bytes)) => {
            let kind = (header::CONTENT_TYPE, "application/octet-stream".to_owned());
            Ok(([kind, (header::CONTENT_DISPOSITION, disposition)], bytes).into_response())
        }
        Ok(Err(error)) => Err((StatusCode::NOT_FOUND, format!("there is no trace: {error:#}\n"))),
        Err(_) => Err((
            StatusCode::INTERNAL_SERVER_ERROR,
            "the journal could not be read\n".to_owned(),
        )),
    }
}

fn file_name(id: &str) -> String {
    id.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect()
}
