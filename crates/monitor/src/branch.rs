// SPDX-License-Identifier: MPL-2.0

//! A source in the pipeline that is taken out and put in again when it fails.
//!
//! Nothing here waits for the source. It is started and stopped by threads of GStreamer's, as both may take as long as a
//! network does, and the queue behind it drops what is too much instead of holding it up.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gst::ClockTime;
use gst::prelude::*;

use super::clock;
use super::config::Channel;
use super::health::{Change, Health};
use super::source::{Named, Source};
use super::state::Status;
use super::tape::Tape;
use score::Timing;
use score::decoders::Decoders;

/// Name of the message that says that a live source has ended.
pub const ENDED: &str = "source-ended";

pub struct Branch {
    pub source: Named,
    /// The pad that the branch's frames go to.
    target: gst::Pad,
    /// What it takes its frames from, if not from outside.
    feed: Option<gst::Element>,
    bin: Option<gst::Bin>,
    seen: Arc<Seen>,
    health: Health,
    /// It was told that the source's file does not exist.
    missing: bool,
    /// What it has sent, if that is to be kept around alarms.
    pub tape: Option<Tape>,
}

/// What has come out of the branch.
#[derive(Default)]
struct Seen {
    frames: AtomicU64,
    /// A source that has an end has reached it.
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
            health: Health::new(channel.stall, channel.retry, Instant::now()),
            missing: false,
            tape: (!channel.incidents.is_zero()).then(|| Tape::new(channel.incidents)),
        }
    }

    /// How the source is.
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

    /// It is time to put the source in. A file is looked for all the time, once it was missing.
    pub fn is_due(&self) -> bool {
        self.bin.is_none() && (self.missing || self.health.is_due(Instant::now()))
    }

    /// A file that does not exist, or not yet.
    pub fn lacks_file(&self) -> bool {
        self.source.source.file().is_some_and(|file| !file.exists())
    }

    /// Notes that the file does not exist. Whether that is news.
    pub fn miss(&mut self) -> bool {
        !std::mem::replace(&mut self.missing, true)
    }

    fn has_ended(&self) -> bool {
        self.seen.ended.load(Ordering::Relaxed)
    }

    /// An object of the pipeline belongs to this branch.
    pub fn owns(&self, object: &gst::Object) -> bool {
        self.bin.as_ref().is_some_and(|bin| object == bin || object.has_as_ancestor(bin))
    }

    /// Puts the source in. The first frame of one that has an end is shown at the running time `start`. Frames of a file that is
    /// paired with another get the times of their partners.
    pub fn insert(
        &mut self,
        pipeline: &gst::Pipeline,
        start: ClockTime,
        timing: Option<Arc<Timing>>,
    ) -> Result<(), Box<dyn Error>> {
        // Counted from now on, whatever comes of it.
        self.health.started(self.frames(), Instant::now());
        self.missing = false;
        // Pads that look unlinked may be waiting for what a decoder finds, so these are named.
        let bin = gst::parse::bin_from_description(&self.source.source.description()?, false)?;
        Decoders::set_up(&bin);
        // A source that takes its time to start must not take the pipeline out of its state.
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
        let timed = timed.ok_or("the source has no time stamps")?;
        match &self.source.source {
            Source::Test { .. } | Source::Encode(_) => {}
            source if source.is_live() => clock::follow(&timed, pipeline, source),
            _ => timed.set_offset(i64::try_from(start.nseconds())?),
        }
        if let Some(timing) = timing {
            let stamped = bin.by_name("timed").and_then(|element| element.static_pad("sink"));
            timing.apply(&stamped.ok_or("the source has no time stamps")?);
        }
        self.watch(&src, &bin);
        self.tape.iter().for_each(|tape| tape.attach(&bin));
        pipeline.add(&bin)?;
        self.bin = Some(bin.clone());
        if let Some(feed) = &self.feed {
            feed.link(&bin)?;
        }
        src.link(&self.target)?;
        // A source that cannot be started says so on the bus, or delivers nothing.
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

    /// Counts frames, and keeps the end of a live source from ending the pad that it goes to.
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
                // Refused only by a pipeline that stops.
                let _ = bin.post_message(message);
            }
            gst::PadProbeReturn::Drop
        });
    }

    /// Takes the source out, to try again in a while. Whether an outage begins with that.
    pub fn fail(&mut self, pipeline: &gst::Pipeline) -> bool {
        self.remove(pipeline);
        self.health.failed(Instant::now())
    }

    fn remove(&mut self, pipeline: &gst::Pipeline) {
        let Some(bin) = self.bin.take() else { return };
        let fed = bin.static_pad("sink").and_then(|sink| sink.peer());
        // This unlinks its pads. What it still sends goes nowhere, and what it says nobody hears.
        let _ = pipeline.remove(&bin);
        if let (Some(feed), Some(pad)) = (&self.feed, fed) {
            feed.release_request_pad(&pad);
        }
        // It has failed, so it may fail to stop as well, or take long; it is gone in any case.
        bin.call_async(|bin| {
            let _ = bin.set_state(gst::State::Null);
        });
    }

    /// Looks whether frames come.
    pub fn look(&mut self) -> Change {
        // What feeds on the reference is as silent as that.
        let must_deliver = self.bin.is_some() && !self.has_ended() && self.feed.is_none();
        self.health.look(self.frames(), must_deliver, Instant::now())
    }
}
