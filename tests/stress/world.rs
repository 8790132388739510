// SPDX-License-Identifier: MPL-2.0

//! An element in a random pipeline, and the random actions on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use gst::ClockTime;
use gst::prelude::*;
use gst_check::TestClock;

use crate::Story;
use crate::ledger::{Ledger, REACH};
use crate::neighbours::{Door, Seen, Source, bus, channel, sink};
use crate::pictures::{ALIVE, Announced, FRAME, NUMBERS, Picture, QUALITIES, SIZES, Table, Trouble, common};
use crate::random::Random;

/// Kinds of events, and their relative frequency.
const HAPPENINGS: [(&str, usize); 23] = [
    ("tunable", 6),
    ("enabled", 4),
    ("offset", 3),
    ("label", 1),
    ("align", 1),
    ("request", 2),
    ("release", 2),
    ("reference-size", 2),
    ("size", 4),
    ("trouble", 2),
    ("flush", 2),
    ("flush-pad", 2),
    ("segment", 2),
    ("gap", 4),
    ("lost", 4),
    ("dead", 2),
    ("silence", 1),
    ("end", 1),
    ("state", 2),
    ("wild", 2),
    ("crop", 2),
    ("slow-handler", 1),
    ("blocked", 1),
];

/// A wrong timestamp is this far ahead.
const WILD: ClockTime = ClockTime::from_seconds(3600);
/// The running time at which an element is added to a running pipeline.
const JOINED: ClockTime = ClockTime::from_seconds(600);

/// Properties that may change while playing. Without live sources, none of them prevents a pair from being scored.
const TUNABLES: [(&str, &[&str]); 15] = [
    ("window", &["0", "1000000000", "2000000000"]),
    ("window-interval", &["40000000", "200000000", "1000000000"]),
    ("alarm-low", &["-1", "40", "90"]),
    ("alarm-clear", &["-1", "95"]),
    ("alarm-hold", &["0", "200000000"]),
    ("clear-hold", &["0", "200000000"]),
    ("freeze-time", &["0", "200000000"]),
    ("freeze-level", &["0.1", "2"]),
    ("black-time", &["0", "200000000"]),
    ("black-level", &["0.07", "0.6"]),
    ("pool-method", &["min", "max", "mean", "harmonic_mean"]),
    ("missing-frame", &["skip", "repeat"]),
    ("overload", &["auto", "wait"]),
    ("pairing-tolerance", &["18446744073709551615", "12000000"]),
    ("ignore-inactive-pads", &["false", "true"]),
];

const OFFSETS: [i64; 5] = [0, 0, 40_000_000, -40_000_000, 200_000_000];
const OUTPUTS: [&str; 4] = ["reference", "reference", "heatmap", "distorted"];

/// The number of pending jobs of a source at which the test waits for it.
const BACKLOG: usize = 16;
/// The number of frames of a pad that the element may hold.
const KEPT: usize = 32;
/// The number of waits for a past time that count as a busy loop.
const IN_VAIN: usize = 200;
/// The limit of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// An input of the element.
struct Stream {
    /// The quality of a rendition; `None` for the reference.
    quality: Option<usize>,
    name: String,
    source: Source,
    size: usize,
    /// The frame rate in the caps, which changes to get new caps.
    fps: i32,
    cropped: bool,
    offset: i64,
    enabled: bool,
    trouble: Option<Trouble>,
    /// The rendition cannot be scored up to this frame.
    until: u64,
    /// The stream sends nothing up to this frame.
    dead_until: u64,
    /// The next frame has a wrong timestamp.
    wild: bool,
    /// The last frame with a wrong timestamp.
    went_wild: Option<u64>,
    ended: bool,
}

/// The kind of a pipeline.
struct Kind {
    live: bool,
    /// Caps announce the rate, and frames have a duration.
    has_rate: bool,
    /// The largest delay of frames, for each side, in ms.
    jitter: [u64; 2],
    /// Seconds of stream time per second of running time.
    rate: f64,
    /// The running time at which the element is added.
    joined: ClockTime,
    /// One thread sends the reference and the first rendition, as behind a tee without queues.
    shared: bool,
}

impl Kind {
    fn new(random: &mut Random, without: &[String]) -> Self {
        let live = random.percent(50);
        let mut is = |name: &str, percent| random.percent(percent) && !without.iter().any(|not| not == name);
        let has_rate = !is("rateless", 40);
        let jitter = [if is("jitter", 40) { 11 } else { 0 }, if is("jitter", 40) { 11 } else { 5 }];
        let joined = if is("joined", 25) { JOINED } else { ClockTime::ZERO };
        let (shared, other_rate) = (is("shared", 20), is("rate", 40));
        let rate = if other_rate { *random.pick(&[0.5, 2.0, 4.0]) } else { 1.0 };
        Self { live, has_rate, jitter, rate, joined, shared }
    }
}

/// An element with all that surrounds it, and what is expected of it. Its many fields are the surroundings.
pub struct World<'a> {
    story: &'a Story,
    random: Random,
    without: &'a [String],
    kind: Kind,
    element: gst::Element,
    clock: TestClock,
    sink: gst::Pad,
    door: Arc<Door>,
    /// Downstream is blocked up to this frame.
    shut_until: u64,
    /// The application is slow up to this frame.
    slow: Arc<AtomicBool>,
    seen: Receiver<Seen>,
    streams: Vec<Stream>,
    ledger: Ledger,
    folder: tempfile::TempDir,
    /// The number of the next frame, and of the first one since the start.
    now: u64,
    start: u64,
    base: ClockTime,
    metas: bool,
    output: &'static str,
    eos: bool,
    /// An error was posted, and nothing else is expected.
    failed: bool,
}

impl<'a> World<'a> {
    pub fn new(story: &'a Story, seed: u64, number: u64, without: &'a [String], table: Table) -> Self {
        let mut random = Random::new(seed, number);
        let kind = Kind::new(&mut random, without);
        let element = gst::ElementFactory::make("hipvmaf").build().expect("registered");
        common(&element);
        let (sender, seen) = channel();
        let (slow, door) = (Arc::new(AtomicBool::new(false)), Arc::<Door>::default());
        element.set_bus(Some(&bus(sender.clone(), slow.clone())));
        let clock = TestClock::new();
        element.set_clock(Some(&clock)).expect("any clock will do");
        let sink = sink(&element.static_pad("src").expect("always there"), sender, door.clone());
        let folder = tempfile::tempdir().expect("a place for files");
        let mut world = Self {
            story,
            random,
            without,
            kind,
            element,
            clock,
            sink,
            door,
            shut_until: 0,
            slow,
            seen,
            streams: vec![],
            ledger: Ledger::new(table),
            folder,
            now: 0,
            start: 0,
            base: ClockTime::ZERO,
            metas: true,
            output: OUTPUTS[0],
            eos: false,
            failed: false,
        };
        world.connect("ref_sink", None);
        world.connect("dist_sink", Some(0));
        for _ in 0..world.random.within(0..QUALITIES) {
            world.request();
        }
        world
    }

    /// Runs this many frames. Returns the table of expected scores, the faults, and a summary.
    pub fn run(mut self, frames: u64) -> (Table, Vec<String>, String) {
        self.begin();
        while self.now < frames && !self.is_over() {
            if self.random.percent(15) {
                self.happen();
            }
            self.feed();
            self.settle();
            self.ask();
            self.check_frames();
            if self.now.is_multiple_of(40) {
                self.check_idle();
            }
            self.now += 1;
            self.story.heart.beat();
        }
        if !self.is_over() {
            self.end();
        }
        self.open();
        let _ = self.element.set_state(gst::State::Null);
        let _ = self.sink.set_active(false);
        self.listen();
        if self.ledger.faults.is_empty() {
            self.check_results();
        }
        self.streams.clear();
        let summary = format!("{} frames, {}", self.now, self.ledger.summary());
        (self.ledger.table, self.ledger.faults, summary)
    }

    fn is_over(&self) -> bool {
        self.failed || !self.ledger.faults.is_empty()
    }

    fn say(&self, text: String) {
        self.story.say(format!("frame {}: {text}", self.now));
    }

    /// Returns the running time of a frame.
    fn time(&self, frame: u64) -> ClockTime {
        self.kind.joined + FRAME * (frame - self.start)
    }

    fn connect(&mut self, name: &str, quality: Option<usize>) {
        let pad = self.element.static_pad(name).expect("it exists");
        let shared = self.streams.first().filter(|_| self.kind.shared && self.streams.len() == 1);
        let source = Source::new(&pad, self.kind.live, self.kind.rate, shared.map(|first| &first.source));
        if quality.is_some() {
            self.ledger.add(name, self.time(self.now) + FRAME * REACH);
        }
        self.streams.push(Stream {
            quality,
            name: name.into(),
            source,
            size: 0,
            fps: 25,
            cropped: false,
            offset: 0,
            enabled: true,
            trouble: None,
            until: 0,
            dead_until: 0,
            wild: false,
            went_wild: None,
            ended: false,
        });
    }

    /// Sets the properties that cannot change while playing, and starts the element.
    fn begin(&mut self) {
        self.metas = self.random.percent(80);
        self.output = OUTPUTS[self.random.within(0..OUTPUTS.len())];
        let threads = *self.random.pick(&["1", "2"]);
        let in_flight = *self.random.pick(&["1", "4"]);
        let metas = if self.metas { "true" } else { "false" };
        self.folder = tempfile::tempdir().expect("a place for files");
        let path = |name: &str| self.folder.path().join(name).to_string_lossy().into_owned();
        let settings = [
            ("attach-meta", metas),
            ("output", self.output),
            ("threads", threads),
            ("max-in-flight", in_flight),
            ("results-filename", &path("results.json")),
            ("metrics-filename", &path("hipvmaf.prom")),
        ];
        for (name, value) in settings {
            self.element.set_property_from_str(name, value);
        }
        let Kind { live, has_rate, jitter, rate, joined, shared } = self.kind;
        self.say(format!(
            "start, live: {live}, has a rate: {has_rate}, jitter {jitter:?} ms, rate {rate}, joined at {joined}, shared thread: \
             {shared}, {:?}",
            &settings[..4]
        ));
        self.start = self.now;
        self.base = self.clock.time();
        self.clock.set_time(self.base + joined);
        self.ledger.begin(joined);
        self.element.set_base_time(self.base);
        self.eos = false;
        if self.element.set_state(gst::State::Playing).is_err() {
            return self.ledger.fault("the element does not play".into());
        }
        for stream in &mut self.streams {
            (stream.dead_until, stream.wild, stream.ended) = (0, false, false);
            stream.source.restart(ClockTime::ZERO, joined);
        }
    }

    /// Sends the next frame on each pad.
    fn feed(&mut self) {
        let at = self.time(self.now);
        if self.kind.live {
            self.advance_to(self.base + at);
        }
        if self.door.is_shut() && self.now >= self.shut_until {
            self.open();
        }
        let reference = &self.streams[0];
        let sends = |stream: &Stream, now: u64| !stream.ended && now >= stream.dead_until;
        // The time of the reference frame, if it is sent.
        let mut reference_at = sends(reference, self.now).then_some(at);
        for i in 0..self.streams.len() {
            let jitter = self.kind.jitter[usize::from(i > 0)];
            let jitter = ClockTime::from_mseconds(*self.random.pick(&[0, 0, jitter]));
            let stream = &mut self.streams[i];
            if stream.trouble.is_some() && self.now >= stream.until {
                stream.trouble = None;
                // Short frames have valid caps, and only new caps end the failure.
                stream.fps = 75 - stream.fps;
            }
            if !sends(stream, self.now) {
                continue;
            }
            let number = match stream.quality {
                None => self.now as i64,
                Some(_) => self.now as i64 + stream.offset / FRAME.nseconds() as i64,
            };
            let number = number.rem_euclid(NUMBERS as i64) as usize;
            let picture = Picture { number, size: stream.size, quality: stream.quality };
            let mut buffer = picture.buffer(stream.trouble, stream.cropped);
            let is_wild = std::mem::take(&mut stream.wild);
            let time = if is_wild { WILD + at } else { at + jitter };
            let fields = buffer.make_mut();
            fields.set_pts(time);
            fields.set_duration(Some(FRAME).filter(|_| self.kind.has_rate));
            let Stream { fps, cropped, .. } = *stream;
            let fps = gst::Fraction::approximate_f64(f64::from(fps) / self.kind.rate).expect("a few frames");
            let announced = Announced { fps, has_rate: self.kind.has_rate, cropped };
            let caps = picture.caps(stream.trouble, announced);
            if stream.quality.is_none() {
                // Without a distorted frame, no frame leaves.
                let leaves = self.output != "distorted";
                if is_wild {
                    self.ledger.wild(time);
                } else {
                    self.ledger.reference(time, picture, leaves);
                }
                reference_at = Some(time).filter(|_| !is_wild);
            } else if !is_wild {
                let plain = stream.enabled && stream.offset == 0 && stream.trouble.is_none();
                let owed = reference_at.filter(|_| plain && !self.kind.live);
                self.ledger.distorted(&stream.name, time, picture, stream.trouble, owed);
            }
            stream.source.frame(caps, buffer);
        }
    }

    fn backlog(&self) -> usize {
        self.streams.iter().map(|stream| stream.source.backlog()).sum()
    }

    /// Waits until the element has done everything that it can.
    fn settle(&mut self) {
        let begun = Instant::now();
        let mut in_vain = 0;
        while !self.is_over() {
            let rests = if self.kind.live {
                let next = self.clock.peek_next_pending_id().map(|id| id.time());
                let due = next.is_some_and(|next| next <= self.clock.time());
                if due {
                    in_vain += 1;
                    self.check_delay();
                    self.clock.process_next_clock_id();
                }
                if in_vain > IN_VAIN {
                    self.ledger.fault(format!("a busy loop: woken for {next:?} again and again"));
                }
                !due && (self.backlog() == 0 || next.is_some() || self.door.is_shut())
            } else {
                // While a pad has no frame, the frames of the others may have to wait.
                let backlog = |stream: &Stream| stream.source.backlog();
                self.streams.iter().all(|stream| backlog(stream) <= BACKLOG)
                    || self.streams.iter().any(|stream| !stream.ended && backlog(stream) == 0)
            };
            self.listen();
            if rests {
                return;
            }
            if begun.elapsed() > STEP_TIMEOUT {
                let waiting = self.streams.iter().map(|stream| (&stream.name, stream.source.backlog()));
                let text = format!("hangs: nothing is taken any more, {:?}", waiting.collect::<Vec<_>>());
                self.ledger.fault(text);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// If the clock moves on before a reference frame is sent, as on a busy machine, the frame may be too late for the
    /// motion of the frames beside it.
    fn check_delay(&mut self) {
        let mut reference = self.streams.iter().filter(|stream| stream.quality.is_none());
        if self.kind.live && reference.any(|stream| stream.source.backlog() > 0) {
            self.ledger.disturb_all(self.time(self.now));
        }
    }

    /// Reads the outputs that the neighbours have seen.
    fn listen(&mut self) {
        while let Ok(seen) = self.seen.try_recv() {
            match seen {
                Seen::Message(structure) => {
                    let now = self.time(self.now.max(self.start));
                    self.ledger.message(&structure, now);
                }
                Seen::Left(left) => self.ledger.left(&left, self.metas),
                Seen::Eos => self.eos = true,
                Seen::Error(text) => {
                    self.failed = true;
                    self.ledger.fault(format!("an error: {text}"));
                }
            }
        }
    }

    /// Waits for all pending messages, and reads them.
    fn hear_out(&mut self) {
        let begun = Instant::now();
        let waiting = || {
            let stats = self.element.property::<gst::Structure>("stats");
            stats.get::<u64>("messages-waiting").is_ok_and(|waiting| waiting > 0)
        };
        while waiting() && begun.elapsed() < STEP_TIMEOUT {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.listen();
    }

    /// Moves the clock to a time, through all deadlines before it.
    fn advance_to(&mut self, time: ClockTime) {
        let mut in_vain = 0;
        while !self.is_over() {
            let (found, ids) = self.clock.timed_wait_for_multiple_pending_ids(1, 20);
            let first = ids.iter().map(gst::ClockId::time).min().filter(|_| found);
            let Some(deadline) = first.filter(|deadline| *deadline <= time) else { break };
            in_vain = if deadline <= self.clock.time() { in_vain + 1 } else { 0 };
            if in_vain > IN_VAIN {
                self.ledger.fault(format!("a busy loop: woken for {deadline} again and again"));
            }
            self.clock.set_time(deadline.max(self.clock.time()));
            self.check_delay();
            self.clock.process_next_clock_id();
            self.listen();
        }
        self.clock.set_time(time.max(self.clock.time()));
    }

    /// Reads properties and sends queries, which the element answers at any time.
    fn ask(&mut self) {
        self.element.property::<gst::Structure>("stats");
        let stream = self.random.within(0..self.streams.len());
        let pad = self.element.static_pad(&self.streams[stream].name).expect("it is connected");
        pad.query_caps(None);
        if self.streams[stream].quality.is_some() {
            pad.property::<Option<gst::Structure>>("stats");
        }
        let src = self.element.static_pad("src").expect("always there");
        src.query(gst::query::Latency::new().get_mut().expect("a new query"));
        if self.random.percent(2) {
            self.element.emit_by_name::<()>("reset-stats", &[]);
        }
        if self.random.percent(2) {
            self.sink.push_event(gst::event::Reconfigure::new());
        }
    }

    /// Checks that the element does not hold more and more frames.
    fn check_frames(&mut self) {
        // A source's thread may not have run yet; its frames are not in the element.
        let waiting: usize = self.streams.iter().map(|stream| stream.source.own_backlog()).sum();
        let kept = ALIVE.load(Ordering::SeqCst).saturating_sub(waiting);
        if kept > self.streams.len() * KEPT {
            self.ledger.fault(format!("the element keeps {kept} frames of {} pads", self.streams.len()));
        }
    }

    /// Checks that the element sleeps while no frames arrive.
    fn check_idle(&mut self) {
        // Work in progress may take a moment.
        let busy = || {
            let before = cpu_time();
            std::thread::sleep(Duration::from_millis(50));
            cpu_time() - before > Duration::from_millis(30)
        };
        if (0..20).all(|_| busy()) {
            self.ledger.fault("a busy loop: it computes for a second without new frames".into());
        }
    }

    /// Ends all streams, and checks that everything is done.
    fn end(&mut self) {
        self.open();
        self.say("all streams end".into());
        for stream in &mut self.streams {
            if !stream.ended {
                stream.source.end();
            }
        }
        let begun = Instant::now();
        while !self.eos && !self.is_over() {
            self.story.heart.beat();
            if self.kind.live {
                self.now += 1;
                self.advance_to(self.base + self.time(self.now));
            }
            self.listen();
            if begun.elapsed() > STEP_TIMEOUT {
                self.ledger.fault("hangs: the end of the streams does not come".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if !self.is_over() {
            self.ledger.end();
        }
    }

    /// Checks that the results file of the first rendition has the frames that were scored.
    fn check_results(&mut self) {
        let path = self.folder.path().join("results.json");
        let text = std::fs::read_to_string(&path).ok();
        let rows = match text.as_deref().map(serde_json::from_str::<serde_json::Value>) {
            None => 0,
            Some(Err(err)) => return self.ledger.fault(format!("the results file: {err}")),
            Some(Ok(json)) => json["frames"].as_array().map_or(0, Vec::len) as u64,
        };
        let expected = self.ledger.rows;
        if rows != expected {
            let files: Vec<_> = std::fs::read_dir(self.folder.path())
                .into_iter()
                .flatten()
                .flatten()
                .map(|file| (file.file_name(), file.metadata().map_or(0, |found| found.len())))
                .collect();
            self.ledger
                .fault(format!("the results file has {rows} rows, {expected} frames were scored: {files:?}"));
        }
    }

    /// Performs a random action.
    fn happen(&mut self) {
        let all: usize = HAPPENINGS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.within(0..all);
        let chosen = HAPPENINGS.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        let Some((name, _)) = chosen.filter(|(name, _)| !self.without.iter().any(|not| not == name)) else {
            return;
        };
        // Any input, and any distorted one.
        let any = self.random.within(0..self.streams.len());
        let distorted = self.random.within(1..self.streams.len());
        // While a shared thread waits for one pad, it sends nothing to the other.
        let depends = |i: usize| self.kind.shared && i < 2;
        match *name {
            "tunable" => self.tune(),
            "enabled" => self.switch(distorted),
            "offset" if !depends(distorted) => self.offset(distorted),
            "label" => self.set(distorted, "label", "another"),
            "align" => {
                let align = *self.random.pick(&["off", "detect"]);
                self.set(distorted, "align", align);
            }
            "request" if self.streams.len() <= QUALITIES => self.request(),
            "release" if distorted > 1 => self.release(distorted),
            "reference-size" => self.resize(0),
            "size" => self.resize(distorted),
            "trouble" if distorted > 1 => self.trouble(distorted),
            "flush" => self.flush(),
            "flush-pad" if !depends(any) => self.flush_pad(any),
            "segment" => self.segment(any),
            "gap" if !depends(any) => self.lose(any, true),
            "lost" if !depends(any) => self.lose(any, false),
            "dead" if self.kind.live && !depends(any) => self.die(any),
            "silence" if self.kind.live => (0..self.streams.len()).for_each(|i| self.die(i)),
            "end" if distorted > 1 => self.end_of(distorted),
            "state" => self.change_state(),
            "wild" if !depends(any) => self.go_wild(any),
            "crop" => self.crop(any),
            "slow-handler" => self.slow_down(),
            "blocked" if self.kind.live => self.shut(),
            _ => {}
        }
        self.listen();
    }

    fn set(&mut self, i: usize, name: &str, value: &str) {
        let stream = &self.streams[i];
        self.say(format!("{}::{name} = {value}", stream.name));
        if let Some(pad) = self.element.static_pad(&stream.name) {
            pad.set_property_from_str(name, value);
        }
    }

    fn tune(&mut self) {
        let (name, values) = *self.random.pick(&TUNABLES);
        let value = *self.random.pick(values);
        self.say(format!("{name} = {value}"));
        self.element.set_property_from_str(name, value);
    }

    fn switch(&mut self, i: usize) {
        self.disturb(i);
        let enabled = !self.streams[i].enabled;
        self.streams[i].enabled = enabled;
        self.set(i, "enabled", if enabled { "true" } else { "false" });
    }

    fn offset(&mut self, i: usize) {
        self.disturb(i);
        let offset = *self.random.pick(&OFFSETS);
        self.streams[i].offset = offset;
        let name = self.streams[i].name.clone();
        if let Some(rendition) = self.ledger.rendition(&name) {
            // The last offset is in force.
            rendition.offsets.retain(|earlier| *earlier != offset);
            rendition.offsets.push(offset);
        }
        self.set(i, "ts-offset", &offset.to_string());
    }

    fn disturb(&mut self, i: usize) {
        let (name, now) = (self.streams[i].name.clone(), self.time(self.now));
        if self.streams[i].quality.is_some() {
            self.ledger.disturb(&name, now)
        } else {
            self.ledger.disturb_all(now)
        }
    }

    fn request(&mut self) {
        let pad = self.element.request_pad_simple("dist_%u").expect("pads can be had");
        let taken: Vec<_> = self.streams.iter().map(|stream| stream.quality).collect();
        let free = (0..QUALITIES).find(|quality| !taken.contains(&Some(*quality)));
        self.connect(&pad.name(), free);
        self.say(format!("{} comes", pad.name()));
        if self.element.current_state() == gst::State::Playing {
            let at = self.time(self.now);
            let start = FRAME * self.random.within(0..1000) as u64;
            if let Some(stream) = self.streams.last() {
                stream.source.restart(start, at);
            }
        }
    }

    fn release(&mut self, i: usize) {
        let stream = self.streams.remove(i);
        self.say(format!("{} goes", stream.name));
        if let Some(pad) = self.element.static_pad(&stream.name) {
            let _ = stream.source.pad.unlink(&pad);
            self.element.release_request_pad(&pad);
        }
        self.hear_out();
        self.ledger.remove(&stream.name);
    }

    fn resize(&mut self, i: usize) {
        let size = self.random.within(0..SIZES.len());
        self.streams[i].size = size;
        self.say(format!("{} is {:?}", self.streams[i].name, SIZES[size]));
    }

    fn trouble(&mut self, i: usize) {
        self.disturb(i);
        let all = [Trouble::Interlaced, Trouble::Deep, Trouble::Short, Trouble::Overlay];
        let trouble = *self.random.pick(&all);
        let until = self.now + self.random.within(1..12) as u64;
        let stream = &mut self.streams[i];
        (stream.trouble, stream.until) = (Some(trouble), until);
        // The effect lasts beyond its end.
        let (name, end) = (stream.name.clone(), self.time(until));
        self.say(format!("{name} is in trouble: {trouble:?} until {until}"));
        self.ledger.disturb(&name, end.max(self.time(self.now)));
    }

    fn go_wild(&mut self, i: usize) {
        // Two such timestamps in a row are a new position of the stream.
        if self.streams[i].went_wild.is_some_and(|frame| self.now < frame + 3) {
            return;
        }
        (self.streams[i].wild, self.streams[i].went_wild) = (true, Some(self.now));
        self.say(format!("the next frame of {} has a wrong timestamp", self.streams[i].name));
    }

    fn crop(&mut self, i: usize) {
        let stream = &mut self.streams[i];
        stream.cropped = !stream.cropped;
        let text = format!("frames of {} have a border: {}", stream.name, stream.cropped);
        self.say(text);
    }

    fn slow_down(&mut self) {
        let slow = !self.slow.load(Ordering::Relaxed);
        self.slow.store(slow, Ordering::Relaxed);
        self.say(format!("the application is slow: {slow}"));
    }

    fn shut(&mut self) {
        self.shut_until = self.now + self.random.within(2..16) as u64;
        self.door.shut(true);
        self.say(format!("downstream takes nothing until {}", self.shut_until));
    }

    fn open(&mut self) {
        if self.door.is_shut() {
            // Frames that were held back arrive late, as soon as there is room.
            self.ledger.disturb_all(self.time(self.now));
        }
        self.door.shut(false);
    }

    /// Seeks: pending frames are dropped.
    fn flush(&mut self) {
        self.open();
        let at = self.time(self.now);
        let start = FRAME * self.random.within(0..1000) as u64;
        self.say(format!("flush to {start}"));
        self.ledger.disturb_all(at);
        let seqnum = gst::Seqnum::next();
        self.streams.iter().for_each(|stream| stream.source.flush_start(seqnum));
        self.streams.iter().for_each(|stream| stream.source.forget());
        self.ledger.flushed();
        self.streams.iter().for_each(|stream| stream.source.flush_stop(seqnum));
        for stream in &mut self.streams {
            stream.ended = false;
            stream.source.segment(start, at);
        }
        // Later frames are independent of everything before.
        self.hear_out();
        self.ledger.begin_runs();
    }

    fn flush_pad(&mut self, i: usize) {
        self.open();
        let at = self.time(self.now);
        self.disturb(i);
        let stream = &mut self.streams[i];
        let seqnum = gst::Seqnum::next();
        stream.source.flush_start(seqnum);
        stream.source.forget();
        if stream.quality.is_none() {
            self.ledger.flushed();
        }
        stream.source.flush_stop(seqnum);
        stream.ended = false;
        let start = FRAME * self.random.within(0..1000) as u64;
        stream.source.segment(start, at);
        let name = stream.name.clone();
        self.say(format!("{name} is flushed"));
    }

    fn segment(&mut self, i: usize) {
        let at = self.time(self.now);
        let start = FRAME * self.random.within(0..1000) as u64;
        let stream = &self.streams[i];
        if !stream.ended {
            stream.source.segment(start, at);
            self.say(format!("{} goes on at {start}", stream.name));
        }
    }

    fn lose(&mut self, i: usize, announced: bool) {
        let frames = if announced { 1 } else { self.random.within(1..4) as u64 };
        let at = self.time(self.now);
        let stream = &mut self.streams[i];
        if stream.ended {
            return;
        }
        stream.dead_until = stream.dead_until.max(self.now + frames);
        if announced {
            stream.source.gap(at);
        }
        let text = format!("{} loses {frames} frames, announced: {announced}", stream.name);
        self.say(text);
    }

    fn die(&mut self, i: usize) {
        let until = self.now + self.random.within(5..40) as u64;
        self.streams[i].dead_until = until;
        self.say(format!("{} is dead until {until}", self.streams[i].name));
    }

    fn end_of(&mut self, i: usize) {
        let stream = &mut self.streams[i];
        if !stream.ended {
            stream.ended = true;
            stream.source.end();
            let text = format!("{} ends", stream.name);
            self.say(text);
        }
    }

    fn change_state(&mut self) {
        self.open();
        if !self.kind.live && self.random.percent(50) {
            self.say("pause".into());
            for state in [gst::State::Paused, gst::State::Playing] {
                if self.element.set_state(state).is_err() {
                    self.ledger.fault(format!("the element does not go to {state:?}"));
                }
            }
            return;
        }
        if self.element.set_state(gst::State::Ready).is_err() {
            self.ledger.fault("the element does not stop".into());
        }
        self.streams.iter().for_each(|stream| stream.source.forget());
        self.listen();
        self.check_results();
        self.ledger.restart();
        self.begin();
        self.ledger.disturb_all(self.time(self.now));
    }
}

/// Returns the CPU time of this process.
fn cpu_time() -> Duration {
    // SAFETY: a plain structure, for which zeros are valid, and whose address is valid for a write.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
