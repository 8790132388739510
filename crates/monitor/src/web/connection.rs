// SPDX-License-Identifier: MPL-2.0

//! Connections: at most 256, and a client that sends no request or reads nothing for 10 s is dropped. Beyond them, 32
//! short ones are kept for checks of health, so that slow clients do not make the program look dead.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

/// Largest number of connections.
const MOST: usize = 256;
/// Largest number of further connections, which can only check the health. Yet further ones are closed.
const RESERVED: usize = 32;
/// Longest time for the headers of a request, and for an idle connection.
const REQUEST: Duration = Duration::from_secs(10);
/// The same for reserved connections.
const RESERVED_REQUEST: Duration = Duration::from_secs(1);
/// Longest time in which a client reads nothing.
const READING: Duration = Duration::from_secs(10);
/// Pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections forever. `reserved` answers those beyond the largest number.
pub async fn accept(listener: TcpListener, router: Router, reserved: Router) {
    let [slots, further] = [MOST, RESERVED].map(|most| Arc::new(Semaphore::new(most)));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if let Ok(slot) = slots.clone().try_acquire_owned() {
            tokio::spawn(talk(stream, router.clone(), REQUEST, true, slot));
        } else if let Ok(slot) = further.clone().try_acquire_owned() {
            tokio::spawn(talk(stream, reserved.clone(), RESERVED_REQUEST, false, slot));
        }
    }
}

async fn talk(stream: TcpStream, router: Router, request: Duration, keep: bool, _slot: OwnedSemaphorePermit) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(READING));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(request).max_buf_size(64 * 1024).keep_alive(keep);
    let connection =
        server.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    // The client is gone or was dropped.
    let _ = connection.await;
}
