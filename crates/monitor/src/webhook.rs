// SPDX-License-Identifier: MPL-2.0

//! Webhooks: an HTTP POST with JSON and stills for each alarm that is raised or cleared, or an SNMP trap in its place.
//!
//! Each address has its own thread and queue, so that one that does not respond delays no other. Failed deliveries
//! are repeated in order, with growing pauses. Alarms that follow from another are not sent, nor those of muted channels.
//!
//! Alarms that wait are kept in the history, and are sent by the next run of the program if this one does not come to it. An
//! alarm may therefore be delivered twice. Addresses, which often are secrets, are kept as hashes only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, mem};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::backoff::Backoff;
use super::history::History;
use super::segments::Segment;
use super::settings::{Channel, EventKind};
use super::snmp;
use super::state::{Entry, wall_clock};
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

/// Kind of the event that a channel was muted, or is not any more.
pub const MUTE: &str = "mute";

/// Prefix of the names of kept alarms.
const KEPT: &str = "webhook/";

/// Kind of the event about a segment, which is sent only where it is asked for.
const SEGMENT: &str = "segment";

/// An event to deliver.
#[derive(Clone, Serialize, Deserialize)]
struct Alarm {
    /// Number in the order of all.
    number: u64,
    /// Hash of the address.
    to: String,
    channel: String,
    event: Entry,
    /// It waits for the end of a mute.
    held: bool,
    /// Quality of a segment, if the event is about one.
    segment: Option<Segment>,
}

impl Alarm {
    /// Returns the number of the alarm that the event is about.
    fn about(&self) -> Option<u64> {
        self.event.about.as_ref().map(|about| about.alarm)
    }

    /// Keeps it until it is delivered or given up.
    fn keep(&self, history: &History) {
        // Events can be represented in JSON.
        history.keep_value(self.name(), serde_json::to_vec(self).ok());
    }

    fn forget(&self, history: &History) {
        history.keep_value(self.name(), None);
    }

    /// Returns its name in the history. Names are in the order of numbers.
    fn name(&self) -> String {
        format!("{KEPT}{:020}", self.number)
    }
}

/// The queues of all addresses so far.
pub struct Webhooks {
    still_store: StillStore,
    queues: HashMap<String, Queue>,
    /// Alarms of muted channels, with their addresses. They are sent if they outlast the mute.
    held: Vec<(String, Alarm)>,
    deliveries: Deliveries,
    history: Arc<History>,
    /// Number of the next alarm.
    next: u64,
}

/// Alarms that wait for an address.
struct Queue {
    alarms: SyncSender<Alarm>,
    thread: JoinHandle<()>,
}

/// Deliveries by address. Clones share them.
#[derive(Clone, Default)]
pub struct Deliveries(Arc<Mutex<BTreeMap<String, Delivery>>>);

/// Deliveries to a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Delivery {
    /// The only part of the address that is no secret.
    pub host: String,
    pub delivered: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Alarms that were given up.
    pub dropped: u64,
    /// Alarms that wait, including the one being delivered.
    pub waiting: u64,
    /// Reason of the last failure, if nothing was delivered since.
    pub reason: Option<String>,
}

impl Deliveries {
    /// Returns the deliveries to each host.
    pub fn shown(&self) -> Vec<Delivery> {
        let mut hosts = BTreeMap::<String, Delivery>::new();
        for (address, of) in self.0.lock().iter() {
            let sum =
                hosts.entry(host(address)).or_insert(Delivery { host: host(address), ..Delivery::default() });
            sum.delivered += of.delivered;
            sum.failures += of.failures;
            sum.dropped += of.dropped;
            sum.waiting += of.waiting;
            sum.reason = sum.reason.take().or(of.reason.clone());
        }
        hosts.into_values().collect()
    }

    fn change<T>(&self, address: &str, change: impl FnOnce(&mut Delivery) -> T) -> T {
        change(self.0.lock().entry(address.into()).or_default())
    }
}

impl Webhooks {
    /// Creates the queues with the alarms that the last run of the program did not deliver to these channels' addresses.
    pub fn new(still_store: StillStore, history: Arc<History>, channels: &[Channel]) -> Self {
        let mut webhooks = Self {
            still_store,
            queues: HashMap::new(),
            held: vec![],
            deliveries: Deliveries::default(),
            history,
            next: 0,
        };
        webhooks.resume(channels);
        webhooks
    }

    fn resume(&mut self, channels: &[Channel]) {
        let kept = self.history.kept_values(KEPT).unwrap_or_else(|error| {
            eprintln!("error: undelivered alarms of the last run cannot be read: {error}");
            vec![]
        });
        let mut gone = 0;
        for (name, value) in kept {
            let Ok(alarm) = serde_json::from_slice::<Alarm>(&value) else {
                self.history.keep_value(name, None);
                continue;
            };
            self.next = alarm.number + 1;
            let mut addresses = channels.iter().flat_map(Channel::addresses);
            match addresses.find(|address| hash(address) == alarm.to) {
                Some(address) if alarm.held => self.held.push((address, alarm)),
                Some(address) => self.add(&address, alarm),
                None => {
                    alarm.forget(&self.history);
                    gone += 1;
                }
            }
        }
        if gone > 0 {
            eprintln!("error: the webhook of {gone} alarms of the last run is not in the settings any more");
        }
    }

    pub fn deliveries(&self) -> Deliveries {
        self.deliveries.clone()
    }

    /// Delivers the alarms among these updates. Those of muted channels wait until the channel is not muted any more.
    pub fn send(&mut self, updates: &[Update], muted: &HashSet<String>) {
        let (held, due) =
            mem::take(&mut self.held).into_iter().partition(|(_, alarm)| muted.contains(&alarm.channel));
        self.held = held;
        due.into_iter().for_each(|(address, alarm): (String, Alarm)| self.add(&address, alarm));
        for Update { channel, addresses, webhook_events, events, segments, .. } in updates {
            let segments = segments.iter().map(|segment| (of_segment(segment), Some(segment)));
            let events = events.iter().map(|event| (event.clone(), None)).chain(segments);
            for (event, segment) in events.filter(|(event, _)| is_sent(event, webhook_events)) {
                for address in addresses {
                    let (number, held) = (self.next, false);
                    let (channel, to) = (channel.clone(), hash(address));
                    let (event, segment) = (event.clone(), segment.cloned());
                    self.next += 1;
                    let is_muted = muted.contains(&channel);
                    self.sort(address, Alarm { number, to, channel, event, held, segment }, is_muted);
                }
            }
        }
    }

    /// Delivers an event, or holds it.
    fn sort(&mut self, address: &str, alarm: Alarm, muted: bool) {
        let about = alarm.about();
        let is_held = |held: &Alarm| about.is_some() && held.about() == about && held.to == alarm.to;
        let held = self.held.iter().position(|(_, held)| is_held(held));
        match (&*alarm.event.state, held) {
            // It ended without being sent.
            ("cleared", Some(at)) => self.held.remove(at).1.forget(&self.history),
            ("acknowledged", Some(_)) => {}
            ("raised", _) if muted => {
                let alarm = Alarm { held: true, ..alarm };
                alarm.keep(&self.history);
                self.held.push((address.into(), alarm));
            }
            _ => self.add(address, alarm),
        }
    }

    fn add(&mut self, address: &str, alarm: Alarm) {
        let alarm = Alarm { held: false, ..alarm };
        alarm.keep(&self.history);
        if !self.queues.contains_key(address) {
            let (sender, receiver) = sync_channel(WAITING);
            let (to, still_store, deliveries) =
                (address.to_owned(), self.still_store.clone(), self.deliveries.clone());
            let history = self.history.clone();
            let thread = thread::spawn(move || {
                let agent = agent();
                for alarm in &receiver {
                    deliver(&agent, &to, &alarm, &still_store, &deliveries);
                    alarm.forget(&history);
                    deliveries.change(&to, |of| of.waiting -= 1);
                }
            });
            self.queues.insert(address.to_owned(), Queue { alarms: sender, thread });
        }
        let Some(queue) = self.queues.get(address) else { return };
        self.deliveries.change(address, |of| of.waiting += 1);
        let name = alarm.name();
        if queue.alarms.try_send(alarm).is_err() {
            self.history.keep_value(name, None);
            self.deliveries.change(address, |of| {
                of.waiting -= 1;
                of.dropped += 1;
            });
            eprintln!("error: {} has {WAITING} alarms waiting; one was dropped", host(address));
        }
    }

    /// Waits a while for deliveries, and reports the rest as errors.
    pub fn close(self) {
        let end = Instant::now() + CLOSE_TIMEOUT;
        // Without a sender, the thread ends after the waiting alarms.
        let queues = self.queues.into_iter().map(|(address, queue)| (address, queue.thread));
        for (address, thread) in queues.collect::<Vec<_>>() {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(20));
            }
            if !thread.is_finished() {
                let count = self.deliveries.change(&address, |of| of.waiting);
                let next = if self.history.outlives() { "; they are sent at the next start" } else { "" };
                eprintln!("error: {} did not receive the last alarms ({count}){next}", host(&address));
            }
        }
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(DELIVERY_TIMEOUT)).max_redirects(0).build().into()
}

/// Returns the event about a segment.
fn of_segment(segment: &Segment) -> Entry {
    let (label, kind, state) = (segment.label.clone(), SEGMENT.into(), "info".into());
    let text = format!("quality {:.0} of 100", segment.composite);
    Entry { time: segment.begin + segment.duration, label, kind, state, text, still: None, about: None }
}

/// Returns true if an event is for a webhook with these kinds.
fn is_sent(event: &Entry, kinds: &[EventKind]) -> bool {
    if event.about.as_ref().is_some_and(|about| about.follows.is_some()) {
        return false;
    }
    let is_listed = kinds.iter().any(|kind| kind.0 == event.kind);
    is_listed || (kinds.is_empty() && (event.state != "info" || event.kind == MUTE))
}

/// Sends a test message to the webhooks of these channels. Returns a line for each, and if all were delivered.
pub fn test(channels: &[Channel]) -> Vec<(String, bool)> {
    let mut tested = HashSet::new();
    let mut lines = vec![];
    for channel in channels {
        for address in channel.addresses().into_iter().filter(|address| tested.insert(address.clone())) {
            let message = json!({
                "channel": channel.name, "label": "test", "kind": "test", "state": "info", "time": wall_clock(),
                "text": "a test of the webhook", "stills": {},
            });
            lines.push(match send(&agent(), &address, &message) {
                Ok(()) => (format!("{}: delivered", host(&address)), true),
                Err((why, _)) => (format!("{}: {why}", host(&address)), false),
            });
        }
    }
    lines
}

/// Sends a message. An error has its reason, and if the address has refused the message and will do so again.
fn send(agent: &ureq::Agent, address: &str, message: &Value) -> Result<(), (String, bool)> {
    if let Some(manager) = address.strip_prefix(snmp::SCHEME) {
        return snmp::send(manager, message).map_err(|why| (why, false));
    }
    let body = message.to_string();
    agent.post(address).content_type("application/json").send(body).map(|_| ()).map_err(|error| {
        let refused = matches!(error, ureq::Error::StatusCode(code) if (400..500).contains(&code) && code != 408 && code != 429);
        (redact::text(&error.to_string(), address), refused)
    })
}

fn deliver(
    agent: &ureq::Agent,
    address: &str,
    alarm: &Alarm,
    still_store: &StillStore,
    deliveries: &Deliveries,
) {
    // Traps have no pictures, and need not wait for them.
    let stills = (!address.starts_with(snmp::SCHEME)).then_some(still_store);
    let message = message(alarm, stills);
    let mut backoff = Backoff::new(LONGEST_PAUSE);
    let begin = Instant::now();
    while let Err((why, refused)) = send(agent, address, &message) {
        let ends = refused || begin.elapsed() > GIVE_UP_AFTER;
        let is_first = deliveries.change(address, |of| {
            of.failures += 1;
            of.dropped += u64::from(ends);
            of.reason.replace(why.clone()).is_none()
        });
        if ends {
            eprintln!("error: {} did not receive an alarm: {why}", host(address));
            return;
        }
        if is_first {
            eprintln!("error: {} does not receive an alarm, which is sent again: {why}", host(address));
        }
        thread::sleep(backoff.next_pause());
    }
    let failed = deliveries.change(address, |of| {
        of.delivered += 1;
        of.reason.take()
    });
    if failed.is_some() {
        eprintln!("{} receives alarms again", host(address));
    }
}

/// Returns the message about an alarm, with pictures of the store.
fn message(alarm: &Alarm, still_store: Option<&StillStore>) -> Value {
    let Entry { time, label, kind, state, text, still, about } = &alarm.event;
    let mut pictures = Map::new();
    if let (Some(number), Some(still_store)) = (still, still_store) {
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
        "alarm": about.as_ref().map(|about| about.alarm), "severity": about.as_ref().map(|about| about.severity),
        "since": about.as_ref().map(|about| about.since), "stills": pictures,
        "segment": alarm.segment.as_ref().map(Segment::shown),
    })
}

/// Returns the hash of an address.
fn hash(address: &str) -> String {
    Sha256::digest(address).iter().map(|byte| format!("{byte:02x}")).collect()
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
    use crate::alarms::{About, Severity};
    use crate::settings::{Settings, Webhook};
    use crate::source::Source;

    fn event(number: u64, state: &str, follows: Option<&str>) -> Entry {
        let follows = follows.map(Into::into);
        let about = About { alarm: number, severity: Severity::Major, since: 0.0, follows };
        let [label, kind, state, text] = ["low", "alarm", state, ""].map(String::from);
        Entry { time: 0.0, label, kind, state, text, still: None, about: Some(about) }
    }

    #[test]
    fn what_follows_and_other_kinds_are_not_sent() {
        let kinds = |kinds: &[&str]| kinds.iter().map(|kind| EventKind((*kind).into())).collect::<Vec<_>>();
        let alarm = event(1, "raised", None);
        assert!(is_sent(&alarm, &[]) && is_sent(&alarm, &kinds(&["source", "alarm"])));
        assert!(
            !is_sent(&alarm, &kinds(&["source"])) && !is_sent(&event(1, "raised", Some("reference")), &[])
        );
        let info = Entry { state: "info".into(), about: None, ..alarm };
        assert!(!is_sent(&info, &[]) && is_sent(&info, &kinds(&["alarm"])));
        assert!(is_sent(&Entry { kind: MUTE.into(), ..info }, &[]));
    }

    #[test]
    fn alarms_that_outlast_a_mute_are_sent_after_it() {
        // Takes connections and never answers.
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", server.local_addr().unwrap());
        let update = |events: &[Entry]| Update {
            channel: "a".into(),
            addresses: vec![address.clone()],
            webhook_events: vec![],
            score_of: String::new(),
            windows: vec![],
            events: events.into(),
            alarms: None,
            values: vec![],
            segments: vec![],
        };
        let history = Arc::new(History::open(None, Duration::from_secs(86_400)).unwrap());
        let new =
            |channels: &[Channel]| Webhooks::new(StillStore::open(None).unwrap(), history.clone(), channels);
        let mut webhooks = new(&[]);
        let waiting =
            |webhooks: &Webhooks| webhooks.deliveries.shown().iter().map(|of| of.waiting).sum::<u64>();
        let [muted, not] = [HashSet::from(["a".to_owned()]), HashSet::new()];
        webhooks.send(&[update(&[event(1, "raised", None)])], &not);
        assert_eq!(waiting(&webhooks), 1);
        // The end of what was sent is sent; what begins and ends within the mute is not.
        let all = [event(1, "cleared", None), event(2, "raised", None), event(3, "raised", None)];
        webhooks.send(&[update(&all)], &muted);
        webhooks.send(&[update(&[event(3, "cleared", None)])], &muted);
        assert_eq!(waiting(&webhooks), 2);
        // The next run of the program has the same alarms, held ones among them.
        history.write(None, false);
        let settings = Settings {
            reference: Some(Source::Encode(1)),
            webhook: Some(Webhook(address.clone())),
            ..Settings::default()
        };
        let mut next = new(&[settings.channel("a".into()).unwrap()]);
        next.send(&[], &muted);
        assert_eq!((waiting(&next), next.held.len()), (2, 1));
        next.send(&[update(&[event(2, "cleared", None)])], &muted);
        assert_eq!((waiting(&next), next.held.len()), (2, 0));
        webhooks.send(&[], &not);
        assert_eq!((waiting(&webhooks), webhooks.held.len()), (3, 0));
    }

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
