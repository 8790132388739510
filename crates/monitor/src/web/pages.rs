// SPDX-License-Identifier: MPL-2.0

//! Pages with their scripts and styles. All are part of the program; none come from other servers.

use axum::Router;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use axum::routing::get;

use super::App;

const OVERVIEW: &str = include_str!("../../assets/pages/overview.html");
const CHANNEL: &str = include_str!("../../assets/pages/channel.html");

/// Scripts and styles: path, content type and text.
const ASSETS: [(&str, &str, &str); 6] = [
    ("/assets/monitor.css", "text/css", include_str!("../../assets/pages/monitor.css")),
    ("/assets/common.js", "text/javascript", include_str!("../../assets/pages/common.js")),
    ("/assets/overview.js", "text/javascript", include_str!("../../assets/pages/overview.js")),
    ("/assets/channel.js", "text/javascript", include_str!("../../assets/pages/channel.js")),
    ("/assets/uplot.css", "text/css", score::UPLOT_CSS),
    ("/assets/uplot.js", "text/javascript", score::UPLOT_JS),
];

pub fn routes() -> Router<App> {
    let pages = Router::new()
        .route("/", get(|| async { Html(OVERVIEW) }))
        .route("/channel", get(|| async { Html(CHANNEL) }));
    ASSETS.into_iter().fold(pages, |router, (path, kind, text)| {
        let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
        router.route(path, get(move || async move { (headers, text).into_response() }))
    })
}
