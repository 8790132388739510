// SPDX-License-Identifier: MPL-2.0

//! A source in the pipeline, which is removed when it fails and inserted again later.
//!
//! Nothing here waits for the source. GStreamer's threads start and stop it, since both can take as long as a network
//! timeout, and the queue after it drops surplus frames instead of blocking it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gst::ClockTime;
use gst::prelude::*;

use super::audio::{self, Audio, Heard};
use super::clip_ring::ClipRing;
use super::clock;
use super::health::{Change, Health};
use super::settings::Channel;
use super::source::{Named, Source};
use super::state::Status;
use score::Timing;
use score::decoders::Decoders;

/// Name of the message for the end of a live source.
pub const ENDED: &str = "source-ended";

/// Number of states between playing and null.
const STATES: usize = 4;

pub struct Branch {
    pub source: Named,
    /// Pad that receives the branch's frames.
    target: gst::Pad,
    /// Element that the branch takes its frames from, if it has no source of its own.
    feed: Option<gst::Element>,
    bin: Option<gst::Bin>,
    seen: Arc<Seen>,
    health: Health,
    /// The missing file was reported.
    missing: bool,
    /// Ring of the encoded video that the source sent, if clips of alarms are kept.
    pub clip_ring: Option<ClipRing>,
    /// Audio is measured.
    measures_audio: bool,
    /// Audio of the inserted source, if it is measured.
    audio: Option<Audio>,
}

/// Counters of the branch's output.
#[derive(Default)]
struct Seen {
    frames: AtomicU64,
    /// A source of finite length has ended.
    ended: AtomicBool,
}

impl Branch {
    pub fn new(source: Named, target: gst::Pad, feed: Option<gst::Element>, channel: &Channel) -> Self {
        Self {
            source,
            target,
            feed,
            bin: None,
            seen: Arc::default(),
            health: Health::new(channel.stall.0, channel.longest_pause(), Instant::now()),
            missing: false,
            clip_ring: (!channel.incident_length().is_zero())
                .then(|| ClipRing::new(channel.incident_length())),
            measures_audio: channel.audio,
            audio: None,
        }
    }

    /// Takes settings that need no restart, and another label.
    pub fn adapt(&mut self, channel: &Channel, label: Option<&String>) {
        self.health.adapt(channel.stall.0, channel.longest_pause());
        self.source.label = label.unwrap_or(&self.source.label).clone();
    }

    /// Takes another source, which is due at once. Its outages are its own.
    pub fn replace(&mut self, source: Source, channel: &Channel, pipeline: &gst::Pipeline) {
        self.remove(pipeline);
        self.source.source = source;
        self.seen = Arc::default();
        self.health = Health::new(channel.stall.0, channel.longest_pause(), Instant::now());
        self.missing = false;
    }

    /// Returns the status of the source.
    pub fn status(&self) -> Status {
        if self.has_ended() {
            Status::Ended
        } else if self.health.is_down() {
            Status::Down
        } else if self.health.is_flowing() {
            Status::Running
        } else {
            Status::Starting
        }
    }

    /// Returns true if the source has never been inserted.
    pub fn has_not_begun(&self) -> bool {
        self.bin.is_none() && self.status() == Status::Starting
    }

    /// Returns true if the source is to be inserted now. A missing file is checked for continuously.
    pub fn is_due(&self) -> bool {
        self.bin.is_none() && (self.missing || self.health.is_due(Instant::now()))
    }

    /// Returns true if the source is a file that does not exist.
    pub fn lacks_file(&self) -> bool {
        self.source.source.file().is_some_and(|file| !file.exists())
    }

    /// Notes that the file does not exist. Returns true if this was not noted before.
    pub fn miss(&mut self) -> bool {
        !std::mem::replace(&mut self.missing, true)
    }

    /// Returns true if frames are missing that should arrive.
    pub fn is_silent(&self) -> bool {
        !self.has_ended() && self.health.is_silent(Instant::now())
    }

    fn has_ended(&self) -> bool {
        self.seen.ended.load(Ordering::Relaxed)
    }

    /// Returns true if an object of the pipeline belongs to this branch.
    pub fn owns(&self, object: &gst::Object) -> bool {
        self.bin.as_ref().is_some_and(|bin| object == bin || object.has_as_ancestor(bin))
    }

    /// Inserts the source. The first frame of a source of finite length is shown at running time `start`. With a
    /// pairing, the frames of a file get the times of their partners.
    pub fn insert(
        &mut self,
        pipeline: &gst::Pipeline,
        start: ClockTime,
        timing: Option<Arc<Timing>>,
    ) -> Result<(), Box<dyn Error>> {
        // The time counts from here, even if the insertion fails.
        self.health.started(self.frames(), Instant::now());
        self.missing = false;
        // Names the pads, because a pad that seems unlinked may only be waiting for its decoder.
        let bin = gst::parse::bin_from_description(&self.source.source.description()?, false)?;
        Decoders::set_up(&bin);
        audio::keep_encoded(&bin);
        // A source that starts slowly must not change the state of the pipeline.
        bin.set_property("async-handling", true);
        let ghost = |element, pad| {
            let target = bin.by_name(element)?.static_pad(pad)?;
            let ghost = gst::GhostPad::builder_with_target(&target).ok()?.name(pad).build();
            bin.add_pad(&ghost).ok()?;
            Some(ghost)
        };
        let src = ghost("out", "src").ok_or("the source has no output")?.upcast::<gst::Pad>();
        ghost("in", "sink");
        let timed = bin.by_name("timed").and_then(|element| element.static_pad("src"));
        let timed = timed.ok_or("the source has no timestamps")?;
        match &self.source.source {
            Source::Test { .. } | Source::Encode(_) => {}
            source if source.is_live() => clock::follow(&timed, pipeline, source),
            _ => timed.set_offset(i64::try_from(start.nseconds())?),
        }
        if let Some(timing) = timing {
            let stamped = bin.by_name("timed").and_then(|element| element.static_pad("sink"));
            timing.apply(&stamped.ok_or("the source has no timestamps")?);
        }
        self.watch(&src, &bin);
        self.audio = if self.measures_audio { Audio::attach(&bin) } else { None };
        self.clip_ring.iter().for_each(|clip_ring| clip_ring.attach(&bin));
        pipeline.add(&bin)?;
        self.bin = Some(bin.clone());
        if let Some(feed) = &self.feed {
            feed.link(&bin)?;
        }
        src.link(&self.target)?;
        // A source that cannot start posts an error, or stalls.
        match self.source.source {
            Source::Test { .. } | Source::Encode(_) => bin.sync_state_with_parent()?,
            _ => bin.call_async(|bin| {
                let _ = bin.sync_state_with_parent();
            }),
        }
        Ok(())
    }

    fn frames(&self) -> u64 {
        self.seen.frames.load(Ordering::Relaxed)
    }

    /// Counts frames, and holds back the end of a live source, which would end the element's pad.
    fn watch(&self, src: &gst::Pad, bin: &gst::Bin) {
        let seen = self.seen.clone();
        src.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            seen.frames.fetch_add(1, Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        let (seen, live, bin) = (self.seen.clone(), self.source.source.is_live(), bin.downgrade());
        src.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
            if info.event().is_none_or(|event| event.type_() != gst::EventType::Eos) {
                return gst::PadProbeReturn::Ok;
            }
            if !live {
                seen.ended.store(true, Ordering::Relaxed);
                return gst::PadProbeReturn::Ok;
            }
            if let Some(bin) = bin.upgrade() {
                let message =
                    gst::message::Element::builder(gst::Structure::new_empty(ENDED)).src(&bin).build();
                // Fails only if the pipeline is stopping.
                let _ = bin.post_message(message);
            }
            gst::PadProbeReturn::Drop
        });
    }

    /// Removes the source until its next attempt. Returns true if this begins an outage.
    pub fn fail(&mut self, pipeline: &gst::Pipeline) -> bool {
        self.remove(pipeline);
        self.health.failed(Instant::now())
    }

    fn remove(&mut self, pipeline: &gst::Pipeline) {
        self.audio = None;
        let Some(bin) = self.bin.take() else { return };
        let fed = bin.static_pad("sink").and_then(|sink| sink.peer());
        // This unlinks the pads, so frames and messages that still come are dropped.
        let _ = pipeline.remove(&bin);
        if let (Some(feed), Some(pad)) = (&self.feed, fed) {
            feed.release_request_pad(&pad);
        }
        // A failed source may stop slowly or not at all; it is already out of the pipeline.
        bin.call_async(|bin| {
            // Elements that have failed to start report a failure on their way down as well, at most once for each state.
            (0..STATES).any(|_| bin.set_state(gst::State::Null).is_ok());
        });
    }

    /// Returns the audio since the last call, if it is measured and the source delivers frames.
    pub fn heard(&mut self) -> Option<Heard> {
        let runs = self.status() == Status::Running;
        let heard = self.audio.as_mut()?.heard(Instant::now());
        runs.then_some(heard)
    }

    /// Checks if frames arrive.
    pub fn check(&mut self) -> Change {
        // A rendition made from the reference is silent whenever the reference is.
        let must_deliver = self.bin.is_some() && !self.has_ended() && self.feed.is_none();
        self.health.check(self.frames(), must_deliver, Instant::now())
    }
}
