// SPDX-License-Identifier: MPL-2.0

//! Connections, as many as are good for this machine, and none for longer than its client takes part.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

/// Connections at a time; more have to wait.
const MOST: usize = 256;
/// How long the headers of a request may take, and a connection may be kept without one.
const REQUEST: Duration = Duration::from_secs(10);
/// How long a client may read nothing of what it has asked for.
const READING: Duration = Duration::from_secs(10);
/// After an error of the system, as of too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes connections for ever.
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
    // Whoever has gone, or was cut off, needs no answer.
    let _ = connection.await;
}
