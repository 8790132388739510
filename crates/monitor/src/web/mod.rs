// SPDX-License-Identifier: MPL-2.0

//! The web server: pages, a JSON API, and metrics for Prometheus.
//!
//! It has its own thread. Clients that do not read are dropped (`connection.rs`), and other machines need a token
//! (`auth.rs`).

mod api;
mod auth;
mod connection;
mod pages;
mod report;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use parking_lot::Mutex;

use super::channel_set::ChannelSet;
use super::history::History;
use super::metrics;
use super::mutes::Mutes;
use super::state::{self, Status, wall_clock};
use super::still_store::StillStore;
use super::webhook::Deliveries;
use score::error::Error;

pub use auth::Token;

/// Longest time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests that may read the history at the same time.
const READERS: usize = 4;
/// Time after which the main loop counts as hung.
const HUNG: Duration = Duration::from_secs(30);

/// Data that answers are made from.
#[derive(Clone)]
pub struct App {
    pub channel_set: ChannelSet,
    pub history: Arc<History>,
    pub still_store: StillStore,
    pub mutes: Mutes,
    pub deliveries: Deliveries,
    /// Time of the main loop's last pass.
    pub alive: Arc<Mutex<Instant>>,
    /// Clients need a token.
    pub login: bool,
}

/// Serves requests until the program ends. Returns the actual address, also if the system chose the port.
pub fn serve(address: SocketAddr, app: App, token: Option<Token>) -> Result<SocketAddr, Error> {
    let failed = |error: std::io::Error| Error::Failed(format!("cannot listen on {address}: {error}"));
    if !address.ip().is_loopback() && token.is_none() {
        return Err(Error::Usage(format!(
            "{address} can be reached from other machines, which needs --token-file: a file with a secret of at least {} \
             characters",
            auth::SHORTEST
        )));
    }
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(READERS)
        .build()?;
    let app = App { login: token.is_some(), ..app };
    let reserved = reserved(app.clone());
    let router = router(app, token);
    thread::Builder::new().name("web".into()).spawn(move || {
        runtime.block_on(async {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => connection::accept(listener, router, reserved).await,
                Err(error) => eprintln!("error: cannot listen on {address}: {error}"),
            }
        });
    })?;
    Ok(address)
}

/// Returns the routes that need no token.
fn open() -> Router<App> {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
}

/// Returns the routes for connections beyond the largest number.
fn reserved(app: App) -> Router {
    let full = || async { (StatusCode::SERVICE_UNAVAILABLE, "too many connections\n") };
    open().fallback(full).layer(middleware::from_fn(finish)).with_state(app)
}

fn router(app: App, token: Option<Token>) -> Router {
    let token = token.map(Arc::new);
    let guarded = Router::new()
        .merge(pages::routes())
        .merge(api::routes())
        .merge(report::routes())
        .route("/metrics", get(figures))
        .layer(from_fn_with_state(token.clone(), auth::guard));
    open()
        .merge(auth::routes(token))
        .merge(guarded)
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found\n") })
        .layer(middleware::from_fn(finish))
        .with_state(app)
}

/// Limits the time of a request, and adds headers that forbid foreign content.
async fn finish(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await;
    let mut response = answer
        .unwrap_or_else(|_| (StatusCode::SERVICE_UNAVAILABLE, "the answer takes too long\n").into_response());
    let headers = response.headers_mut();
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
             connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Answers if the program is alive.
async fn healthz(State(app): State<App>) -> Response {
    if app.alive.lock().elapsed() < HUNG {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the main loop does not run\n").into_response()
    }
}

/// Answers if a channel is up.
async fn readyz(State(app): State<App>) -> Response {
    if app.channel_set.states().iter().any(|state| state.lock().status != Status::Starting) {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "all channels are starting\n").into_response()
    }
}

async fn figures(State(app): State<App>) -> Response {
    let states: Vec<state::State> =
        app.channel_set.states().iter().map(|state| state.lock().clone()).collect();
    let now = wall_clock();
    let muted = states.iter().map(|state| app.mutes.of(state, now).is_some()).collect::<Vec<_>>();
    let text = metrics::render(&states, &muted, &app.history.shown(), &app.deliveries.shown());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
