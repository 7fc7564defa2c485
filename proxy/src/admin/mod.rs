//! The admin address: metrics, health, the API and the web page.
//!
//! In: [`Live`], read only. Out: HTTP.
//!
//! Always true:
//!   - health and metrics are open to whoever reaches the address and hold no recorded data;
//!   - recorded data is served on a loopback address, or to who shows the token or a client certificate,
//!     and every read of it is logged;
//!   - nothing here changes anything: there are only reads, and stories that are judged and forgotten.

mod api;
pub mod assets;
mod cut;
mod download;
mod editor;
mod guard;
mod history;
mod tls;

use crate::live::Live;
use crate::metrics::{Format, Metrics};
use anyhow::Context;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use guard::Guard;
use history::History;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The running admin server; it ends when this is dropped.
#[derive(Debug)]
pub struct Admin {
    pub address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What every handler sees.
#[derive(Clone)]
struct Shared {
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    history: Arc<History>,
    guard: Arc<Guard>,
    desk: editor::Desk,
}

/// Binds the address of the configuration and serves it; `None` when none is configured.
pub async fn start(live: Arc<Live>) -> anyhow::Result<Option<Admin>> {
    let config = live.config.load().admin.clone();
    let Some(listen) = &config.listen else {
        return Ok(None);
    };
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!("cannot listen on the admin address {listen}; is another pgassay running?")
    })?;
    let address = listener.local_addr().context("the admin address")?;
    let guard = Guard::new(&config, address)?;
    if guard.is_closed() {
        tracing::warn!(
            "the admin address {address} is not loopback and has neither admin.token_file nor admin.client_ca: \
             only health and metrics are served"
        );
    }
    let history = Arc::new(History::default());
    let sampler = tokio::spawn(history::sample(live.clone(), history.clone()));
    let shared = Shared {
        live,
        metrics: Arc::default(),
        history,
        guard: Arc::new(guard),
        desk: editor::Desk::default(),
    };
    let service = router(shared).into_make_service_with_connect_info::<tls::Peer>();
    let server = match tls::acceptor(&config)? {
        None => tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, service).await {
                tracing::error!("the admin server ended: {error}");
            }
        }),
        Some(acceptor) => {
            let listener = tls::Listener::new(listener, acceptor);
            tokio::spawn(async move {
                if let Err(error) = axum::serve(listener, service).await {
                    tracing::error!("the admin server ended: {error}");
                }
            })
        }
    };
    tracing::info!("admin on {address}: metrics, health, API and page");
    Ok(Some(Admin {
        address,
        tasks: vec![sampler, server],
    }))
}

fn router(shared: Shared) -> Router {
    let recorded = Router::new()
        .route("/api/summary", get(api::summary))
        .route("/api/violations", get(api::violations))
        .route("/api/violations/{id}", get(api::violation))
        .route("/api/violations/{id}/{file}", get(download::file))
        .route("/api/coverage", get(api::coverage))
        .layer(middleware::from_fn(guard::log_read));
    let closed = recorded
        .route("/api/live", get(api::live))
        .route("/api/examples", get(editor::examples))
        .route("/api/profiles", get(editor::profiles))
        .route("/api/judge", post(editor::judge))
        .layer(DefaultBodyLimit::max(editor::STORY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(shared.clone(), guard::admit));
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/", get(assets::index))
        .route("/page/{file}", get(assets::file))
        .route("/runbooks/{rule}", get(assets::runbook))
        .merge(closed)
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here\n") })
        .layer(middleware::from_fn(guard::headers))
        .with_state(shared)
}

async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    let text = shared.metrics.render(&shared.live, format);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

/// The process answers.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Clients are served: listening, the server reachable, not draining.
async fn readyz(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    if shared.live.is_ready() {
        (StatusCode::OK, "ready\n")
    } else if shared.live.draining.load(Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: the database could not be reached\n",
        )
    }
}
