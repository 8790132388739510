// SPDX-License-Identifier: MPL-2.0

//! Webhooks: an HTTP POST with JSON and stills for each alarm that is raised or cleared.
//!
//! Each address has its own thread and queue, so that one that does not respond delays no other. Failed deliveries
//! are repeated in order, with growing pauses.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::backoff::Backoff;
use super::state::Entry;
use super::still_store::{KINDS, StillStore};
use super::updates::Update;
use score::redact;

/// Alarms that may wait for an address; further ones are dropped.
const WAITING: usize = 1000;
/// Longest time for a delivery.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest pause between attempts, and time after which an alarm is given up.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const GIVE_UP_AFTER: Duration = Duration::from_secs(3600);
/// Longest wait for the stills of an alarm.
const STILLS_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for deliveries at the end of the program.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An alarm to deliver.
struct Alarm {
    channel: String,
    event: Entry,
}

/// The queues of all addresses so far.
pub struct Webhooks {
    still_store: StillStore,
    queues: HashMap<String, Queue>,
}

/// Alarms that wait for an address.
struct Queue {
    alarms: SyncSender<Alarm>,
    /// Number of alarms, including the one being delivered.
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Webhooks {
    pub fn new(still_store: StillStore) -> Self {
        Self { still_store, queues: HashMap::new() }
    }

    /// Delivers the alarms among these updates.
    pub fn send(&mut self, updates: &[Update]) {
        for Update { channel, webhook, events, .. } in updates {
            let Some(address) = webhook else { continue };
            let alarms = events.iter().filter(|event| event.state != "info");
            alarms.for_each(|event| {
                self.add(address, Alarm { channel: channel.clone(), event: event.clone() })
            });
        }
    }

    fn add(&mut self, address: &str, alarm: Alarm) {
        if !self.queues.contains_key(address) {
            let (sender, receiver) = sync_channel(WAITING);
            let (to, still_store) = (address.to_owned(), self.still_store.clone());
            let waiting = Arc::<AtomicUsize>::default();
            let left = waiting.clone();
            let thread = thread::spawn(move || {
                let agent = agent();
                for alarm in &receiver {
                    deliver(&agent, &to, &alarm, &still_store);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            });
            self.queues.insert(address.to_owned(), Queue { alarms: sender, waiting, thread });
        }
        let Some(queue) = self.queues.get(address) else { return };
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        if queue.alarms.try_send(alarm).is_err() {
            queue.waiting.fetch_sub(1, Ordering::Relaxed);
            eprintln!("error: {} has {WAITING} alarms waiting; one was dropped", host(address));
        }
    }

    /// Waits a while for deliveries, and reports the rest as errors.
    pub fn close(self) {
        let end = Instant::now() + CLOSE_TIMEOUT;
        // Without a sender, the thread ends after the waiting alarms.
        let queues = self.queues.into_iter().map(|(address, queue)| (address, queue.waiting, queue.thread));
        for (address, waiting, thread) in queues.collect::<Vec<_>>() {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(20));
            }
            if !thread.is_finished() {
                let count = waiting.load(Ordering::Relaxed);
                eprintln!("error: {} did not receive the last alarms ({count})", host(&address));
            }
        }
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(DELIVERY_TIMEOUT)).max_redirects(0).build().into()
}

fn deliver(agent: &ureq::Agent, address: &str, alarm: &Alarm, still_store: &StillStore) {
    let body = body(alarm, still_store).to_string();
    let mut backoff = Backoff::new(LONGEST_PAUSE);
    let begin = Instant::now();
    while let Err(error) = agent.post(address).content_type("application/json").send(&body) {
        // An address that refuses a request will refuse it again.
        let refused = matches!(error, ureq::Error::StatusCode(code) if (400..500).contains(&code) && code != 408 && code != 429);
        if refused || begin.elapsed() > GIVE_UP_AFTER {
            let why = redact::text(&error.to_string(), address);
            eprintln!("error: {} did not receive an alarm: {why}", host(address));
            break;
        }
        thread::sleep(backoff.next_pause());
    }
}

/// Returns the JSON for an alarm.
fn body(alarm: &Alarm, still_store: &StillStore) -> Value {
    let Entry { time, label, kind, state, text, still } = &alarm.event;
    let mut pictures = Map::new();
    if let Some(number) = still {
        let end = Instant::now() + STILLS_TIMEOUT;
        // All pictures of a still appear together.
        while still_store.path(*number, KINDS[0]).is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(50));
        }
        for kind in KINDS {
            if let Some(picture) = still_store.path(*number, kind).and_then(|path| fs::read(path).ok()) {
                pictures.insert(kind.into(), glib::base64_encode(&picture).as_str().into());
            }
        }
    }
    json!({
        "channel": alarm.channel, "label": label, "kind": kind, "state": state, "text": text, "time": time,
        "stills": pictures,
    })
}

/// Returns the part of an address that may be printed. The rest is often a secret.
fn host(address: &str) -> String {
    let shown = redact::uri(address);
    let end = shown.match_indices('/').nth(2).map_or(shown.len(), |(i, _)| i);
    shown[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_is_printed() {
        for (address, shown) in [
            ("https://hooks.example.org/services/secret?x=secret", "https://hooks.example.org"),
            ("http://user:secret@host:8080", "http://host:8080"),
        ] {
            assert_eq!(host(address), shown);
        }
    }
}
