// SPDX-License-Identifier: MPL-2.0

//! Connections: at most 256, and a client that sends no request or reads nothing for 10 s is dropped.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

/// Largest number of connections; further ones wait.
const MOST: usize = 256;
/// Longest time for the headers of a request, and for an idle connection.
const REQUEST: Duration = Duration::from_secs(10);
/// Longest time in which a client reads nothing.
const READING: Duration = Duration::from_secs(10);
/// Pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections forever.
pub async fn accept(listener: TcpListener, router: Router) {
    let slots = Arc::new(Semaphore::new(MOST));
    while let Ok(slot) = slots.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(talk(stream, router.clone(), slot))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn talk(stream: TcpStream, router: Router, _slot: OwnedSemaphorePermit) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(READING));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_buf_size(64 * 1024);
    let connection =
        server.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    // The client is gone or was dropped.
    let _ = connection.await;
}
