// SPDX-License-Identifier: MPL-2.0

//! The web page, what it asks for, and the figures for Prometheus.

use std::error::Error;
use std::io::Cursor;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;

use tiny_http::{Header, Request, Response, Server};

use super::state::{Shared, lock};

const PAGE: &str = include_str!("page.html");

/// Answers requests until the program ends. The address at which it does, should the port be left to the system.
pub fn serve(address: SocketAddr, state: Shared, metrics: PathBuf) -> Result<SocketAddr, Box<dyn Error>> {
    let server = Server::http(address).map_err(|err| format!("cannot listen on {address}: {err}"))?;
    let address = server.server_addr().to_ip().unwrap_or(address);
    thread::Builder::new().name("web".into()).spawn(move || {
        for request in server.incoming_requests() {
            let response = answer(&request, &state, &metrics);
            // Whoever has gone needs no answer.
            let _ = request.respond(response);
        }
    })?;
    Ok(address)
}

fn answer(request: &Request, state: &Shared, metrics: &Path) -> Response<Cursor<Vec<u8>>> {
    let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
    match path {
        "/" => reply("text/html; charset=utf-8", PAGE.into()),
        "/state.json" => {
            let since = query.strip_prefix("since=").and_then(|since| since.parse().ok());
            match serde_json::to_string(&lock(state).since(since.unwrap_or(f64::NEG_INFINITY))) {
                Ok(text) => reply("application/json", text),
                Err(err) => Response::from_string(err.to_string()).with_status_code(500),
            }
        }
        "/metrics" => match std::fs::read_to_string(metrics) {
            Ok(text) => reply("text/plain; version=0.0.4", text + &lock(state).metrics()),
            Err(err) => Response::from_string(err.to_string()).with_status_code(500),
        },
        _ => Response::from_string("not found").with_status_code(404),
    }
}

fn reply(kind: &str, text: String) -> Response<Cursor<Vec<u8>>> {
    let response = Response::from_string(text);
    match Header::from_bytes("Content-Type", kind) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}
