// SPDX-License-Identifier: MPL-2.0

//! Tells others of alarms as they are raised and cleared: a POST of JSON for each, with pictures if there are any.
//!
//! Each address has a thread and a queue of its own, so that one that does not answer delays no other. What cannot be delivered
//! is tried again after pauses that grow, in its order.

use std::collections::HashMap;
use std::fs;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::backoff::Backoff;
use super::gallery::{Gallery, KINDS};
use super::redact;
use super::state::Entry;

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
    queues: HashMap<String, (SyncSender<Alarm>, JoinHandle<()>)>,
}

impl Webhooks {
    pub fn new(gallery: Gallery) -> Self {
        Self { gallery, queues: HashMap::new() }
    }

    /// Tells an address of an event, if it is an alarm.
    pub fn tell(&mut self, address: &str, channel: &str, event: &Entry) {
        if event.state == "info" {
            return;
        }
        if !self.queues.contains_key(address) {
            let (sender, receiver) = sync_channel(WAITING);
            let (to, gallery) = (address.to_owned(), self.gallery.clone());
            let thread = thread::spawn(move || deliver(&to, &receiver, &gallery));
            self.queues.insert(address.to_owned(), (sender, thread));
        }
        let alarm = Alarm { channel: channel.into(), event: event.clone() };
        if self.queues.get(address).is_some_and(|(queue, _)| queue.try_send(alarm).is_err()) {
            eprintln!("error: {} has {WAITING} alarms waiting, and one was left out", host(address));
        }
    }

    /// Delivers what waits, for a while.
    pub fn close(self) {
        let end = Instant::now() + LAST;
        let threads: Vec<_> = self.queues.into_values().map(|(_, thread)| thread).collect();
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn deliver(address: &str, queue: &Receiver<Alarm>, gallery: &Gallery) {
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).max_redirects(0);
    let agent: ureq::Agent = config.build().into();
    for alarm in queue {
        let body = body(&alarm, gallery).to_string();
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
