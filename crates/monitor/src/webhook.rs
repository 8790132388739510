// SPDX-License-Identifier: MPL-2.0

//! Tells others of alarms as they are raised and cleared: a POST of JSON for each, with pictures if there are any.
//!
//! Each address has a thread and a queue of its own, so that one that does not answer delays no other. What cannot be delivered
//! is tried again after pauses that grow, in its order.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::backoff::Backoff;
use super::gallery::{Gallery, KINDS};
use super::news::News;
use super::state::Entry;
use score::redact;

/// Alarms that wait for an address; more are left out.
const WAITING: usize = 1000;
/// How long a delivery may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest pause between attempts, and how long one alarm is tried.
const LONGEST: Duration = Duration::from_secs(60);
const TRIED: Duration = Duration::from_secs(3600);
/// How long pictures are waited for.
const PICTURES: Duration = Duration::from_secs(5);
/// How long to wait for deliveries when the program ends.
const LAST: Duration = Duration::from_secs(5);

/// What is to be told.
struct Alarm {
    channel: String,
    event: Entry,
}

/// All addresses that something was sent to.
pub struct Webhooks {
    gallery: Gallery,
    queues: HashMap<String, Queue>,
}

/// What waits for an address.
struct Queue {
    alarms: SyncSender<Alarm>,
    /// How many of them there are, the one that is being told included.
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Webhooks {
    pub fn new(gallery: Gallery) -> Self {
        Self { gallery, queues: HashMap::new() }
    }

    /// Tells of what is an alarm among these.
    pub fn tell(&mut self, news: &[News]) {
        for News { channel, webhook, events, .. } in news {
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
            let (to, gallery) = (address.to_owned(), self.gallery.clone());
            let waiting = Arc::<AtomicUsize>::default();
            let left = waiting.clone();
            let thread = thread::spawn(move || {
                let agent = agent();
                for alarm in &receiver {
                    deliver(&agent, &to, &alarm, &gallery);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            });
            self.queues.insert(address.to_owned(), Queue { alarms: sender, waiting, thread });
        }
        let Some(queue) = self.queues.get(address) else { return };
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        if queue.alarms.try_send(alarm).is_err() {
            queue.waiting.fetch_sub(1, Ordering::Relaxed);
            eprintln!("error: {} has {WAITING} alarms waiting, and one was left out", host(address));
        }
    }

    /// Delivers what waits, for a while, and says what could not be.
    pub fn close(self) {
        let end = Instant::now() + LAST;
        // Without a sender, a thread ends after what waits.
        let queues = self.queues.into_iter().map(|(address, queue)| (address, queue.waiting, queue.thread));
        for (address, waiting, thread) in queues.collect::<Vec<_>>() {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(20));
            }
            if !thread.is_finished() {
                let count = waiting.load(Ordering::Relaxed);
                eprintln!("error: {} was not told of the last alarms ({count})", host(&address));
            }
        }
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).max_redirects(0).build().into()
}

fn deliver(agent: &ureq::Agent, address: &str, alarm: &Alarm, gallery: &Gallery) {
    let body = body(alarm, gallery).to_string();
    let mut backoff = Backoff::new(LONGEST);
    let begin = Instant::now();
    while let Err(error) = agent.post(address).content_type("application/json").send(&body) {
        // What was refused is refused again.
        let refused = matches!(error, ureq::Error::StatusCode(code) if (400..500).contains(&code) && code != 408 && code != 429);
        if refused || begin.elapsed() > TRIED {
            let why = redact::text(&error.to_string(), address);
            eprintln!("error: {} was not told of an alarm: {why}", host(address));
            break;
        }
        thread::sleep(backoff.next_pause());
    }
}

/// What is sent of an alarm.
fn body(alarm: &Alarm, gallery: &Gallery) -> Value {
    let Entry { time, label, kind, state, text, still } = &alarm.event;
    let mut pictures = Map::new();
    if let Some(number) = still {
        let end = Instant::now() + PICTURES;
        // They appear together.
        while gallery.path(*number, KINDS[0]).is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(50));
        }
        for kind in KINDS {
            if let Some(picture) = gallery.path(*number, kind).and_then(|path| fs::read(path).ok()) {
                pictures.insert(kind.into(), glib::base64_encode(&picture).as_str().into());
            }
        }
    }
    json!({
        "channel": alarm.channel, "label": label, "kind": kind, "state": state, "text": text, "time": time,
        "stills": pictures,
    })
}

/// All of an address that may be printed: the rest is often a secret.
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
