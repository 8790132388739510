// SPDX-License-Identifier: MPL-2.0

//! Access: unrestricted on this machine, with a token from elsewhere.
//!
//! Without a token, requests must name this machine by `localhost` or an address. Otherwise a foreign page whose name
//! is resolved to 127.0.0.1 (DNS rebinding) could read everything through the browser of this machine's user.
//!
//! Programs send the token as `Authorization: Bearer …`. The login page gives browsers a cookie with a hash of the token, so
//! that the browser does not store the token itself.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
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
const LOGOUT: &str = "/logout";
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
        let mut bearers = texts(header::AUTHORIZATION)
            .filter_map(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
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

/// Returns true if a request names this machine by `localhost` or an address, or names none.
fn is_local(headers: &HeaderMap) -> bool {
    let is_local = |host: &str| {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let name = host.to_ascii_lowercase();
        address.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
    };
    headers.get_all(header::HOST).iter().all(|host| {
        let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        host.is_some_and(|host| is_local(host.host()))
    })
}

/// Passes permitted requests on.
pub async fn guard(State(token): State<Option<Arc<Token>>>, request: Request, next: Next) -> Response {
    let Some(token) = token else {
        return match is_local(request.headers()) {
            true => next.run(request).await,
            false => {
                let text = "without --token-file, this monitor answers to localhost and addresses only\n";
                (StatusCode::MISDIRECTED_REQUEST, text).into_response()
            }
        };
    };
    if token.admits(request.headers()) {
        return next.run(request).await;
    }
    let wants_page = request.headers().get(header::ACCEPT);
    if wants_page.and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("text/html")) {
        let asked = request.uri().path_and_query().map_or("/", |asked| asked.as_str());
        // All other characters of a path may stand in a query.
        let asked = asked.replace('%', "%25").replace('&', "%26").replace('+', "%2B");
        return Redirect::to(&format!("{LOGIN}?next={asked}")).into_response();
    }
    let ask = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, ask, "this needs the token: Authorization: Bearer TOKEN\n").into_response()
}

#[derive(Deserialize)]
struct Given {
    token: String,
}

/// Page to show after the login.
#[derive(Deserialize)]
struct Target {
    next: Option<String>,
}

impl Target {
    /// Returns the path, or `/` if it is none of this server.
    fn path(&self) -> &str {
        let own = |path: &&str| {
            path.starts_with('/')
                && !path.starts_with("//")
                && path.chars().all(|c| c.is_ascii_graphic() && c != '\\')
        };
        self.next.as_deref().filter(own).unwrap_or("/")
    }
}

/// Returns the routes for login and logout.
pub fn routes(token: Option<Arc<Token>>) -> Router<App> {
    let page = || async { Html(PAGE) };
    Router::new()
        .route(LOGIN, get(page).post(move |target, form| login(token, target, form)))
        .route(LOGOUT, post(logout))
}

/// Returns a cookie with this content and age. It is sent with links from elsewhere, but not with their forms.
fn cookie(content: &str, seconds: u32) -> [(header::HeaderName, String); 1] {
    let cookie = format!("{COOKIE}={content}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax");
    [(header::SET_COOKIE, cookie)]
}

async fn logout() -> Response {
    (cookie("", 0), Redirect::to(LOGIN)).into_response()
}

async fn login(
    token: Option<Arc<Token>>,
    Query(target): Query<Target>,
    Form(given): Form<Given>,
) -> Response {
    // Without a token there is nothing to log in to.
    let Some(token) = token else { return Redirect::to("/").into_response() };
    if !token.is(given.token.trim()) {
        let page = PAGE.replace("<!--wrong-->", "<p role=\"alert\">That is not the token.</p>");
        return (StatusCode::UNAUTHORIZED, Html(page)).into_response();
    }
    (cookie(&token.cookie, 31_536_000), Redirect::to(target.path())).into_response()
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
        for scheme in ["Bearer", "bearer", "BEARER "] {
            assert!(admits(header::AUTHORIZATION, &format!("{scheme} 0123456789abcdef")), "{scheme}");
        }
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
    fn only_names_of_this_machine_are_local() {
        let local = |host: &str| is_local(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]));
        for host in
            ["localhost", "LocalHost:8080", "a.localhost", "127.0.0.1:8080", "[::1]:8080", "192.0.2.7"]
        {
            assert!(local(host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "xlocalhost", "", "a b"]
        {
            assert!(!local(host), "{host}");
        }
        assert!(is_local(&HeaderMap::new()));
    }

    #[test]
    fn a_login_leads_to_pages_of_this_server_only() {
        let path = |next: &str| Target { next: Some(next.into()) }.path().to_owned();
        assert_eq!(path("/channel?name=a%20b"), "/channel?name=a%20b");
        for foreign in
            ["https://evil.example", "//evil.example", "/\\evil.example", "evil", "", "/a\nb", "/\u{e4}"]
        {
            assert_eq!(path(foreign), "/", "{foreign}");
        }
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
