// SPDX-License-Identifier: MPL-2.0

//! Access: unrestricted on this machine, with a token from elsewhere.
//!
//! Programs send it as `Authorization: Bearer …`. The login page gives browsers a cookie with a hash of the token, so
//! that the browser does not store the token itself.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Form, Router};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::App;
use score::error::Error;

/// Shortest token, in characters.
pub const SHORTEST: usize = 16;
const COOKIE: &str = "hipvmaf";
const LOGIN: &str = "/login";
const PAGE: &str = include_str!("login.html");

/// The secret that clients must send.
pub struct Token {
    bearer: String,
    /// Content of the cookie.
    cookie: String,
}

impl Token {
    /// Reads the first line of a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|error| {
            Error::Failed(format!("cannot read the token in {}: {error}", path.display()))
        })?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < SHORTEST || !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Error::Usage(format!(
                "{} has no token in its first line: at least {SHORTEST} letters, digits or signs, as from `openssl rand -hex 32`",
                path.display()
            )));
        }
        Ok(Self::new(token))
    }

    fn new(token: &str) -> Self {
        let mut cookie = String::new();
        for byte in Sha256::digest(format!("hipvmaf monitor\n{token}")) {
            // Writing to a string does not fail.
            let _ = write!(cookie, "{byte:02x}");
        }
        Self { bearer: token.into(), cookie }
    }

    fn is(&self, token: &str) -> bool {
        same(&self.bearer, token)
    }

    /// Returns true if a request has the token.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let texts = |name| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let mut bearers = texts(header::AUTHORIZATION).filter_map(|text| text.strip_prefix("Bearer "));
        let mut cookies = texts(header::COOKIE)
            .flat_map(|text| text.split(';'))
            .filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='));
        bearers.any(|token| self.is(token)) || cookies.any(|cookie| same(&self.cookie, cookie))
    }
}

/// Compares in constant time.
fn same(secret: &str, given: &str) -> bool {
    secret.as_bytes().ct_eq(given.as_bytes()).into()
}

/// Passes permitted requests on.
pub async fn guard(State(token): State<Option<Arc<Token>>>, request: Request, next: Next) -> Response {
    let Some(token) = token else { return next.run(request).await };
    if token.admits(request.headers()) {
        return next.run(request).await;
    }
    let wants_page = request.headers().get(header::ACCEPT);
    if wants_page.and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("text/html")) {
        return Redirect::to(LOGIN).into_response();
    }
    let ask = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, ask, "this needs the token: Authorization: Bearer TOKEN\n").into_response()
}

#[derive(Deserialize)]
struct Given {
    token: String,
}

/// Returns the routes of the login page.
pub fn routes(token: Option<Arc<Token>>) -> Router<App> {
    let page = || async { Html(PAGE) };
    Router::new().route(LOGIN, get(page).post(move |form| login(token, form)))
}

async fn login(token: Option<Arc<Token>>, Form(given): Form<Given>) -> Response {
    // Without a token there is nothing to log in to.
    let Some(token) = token else { return Redirect::to("/").into_response() };
    if !token.is(given.token.trim()) {
        let page = PAGE.replace("<!--wrong-->", "<p role=\"alert\">That is not the token.</p>");
        return (StatusCode::UNAUTHORIZED, Html(page)).into_response();
    }
    let cookie = format!("{COOKIE}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict", token.cookie);
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_admitted() {
        let token = Token::new("0123456789abcdef");
        let admits = |name: header::HeaderName, value: &str| {
            token.admits(&HeaderMap::from_iter([(name, value.parse().unwrap())]))
        };
        assert!(admits(header::AUTHORIZATION, "Bearer 0123456789abcdef"));
        assert!(admits(header::COOKIE, &format!("a=b; {COOKIE}={}", token.cookie)));
        for wrong in
            ["Bearer 0123456789abcdeF", "Bearer ", "Bearer 0123456789abcdef0", "0123456789abcdef", "Basic x"]
        {
            assert!(!admits(header::AUTHORIZATION, wrong), "{wrong}");
        }
        for wrong in ["hipvmaf=0123456789abcdef", "hipvmaf=", "other=x"] {
            assert!(!admits(header::COOKIE, wrong), "{wrong}");
        }
        assert!(!token.admits(&HeaderMap::new()));
    }

    #[test]
    fn a_short_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, good) in
            [("", false), ("short\n", false), ("0123 56789abcdef", false), (" 0123456789abcdef\nx", true)]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(Token::read(&path).is_ok(), good, "{text:?}");
        }
    }
}
