// SPDX-License-Identifier: MPL-2.0

//! A source in the pipeline that is taken out and put in again when it fails.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::source::{Named, Source};

/// How long to wait before a failed source is tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// Name of the message that says that a live source has ended.
pub const ENDED: &str = "source-ended";

pub struct Branch {
    pub source: Named,
    /// The pad that the branch's frames go to.
    target: gst::Pad,
    /// What it takes its frames from, if not from outside.
    feed: Option<gst::Element>,
    bin: Option<gst::Bin>,
    frames: Arc<AtomicU64>,
    /// Number of frames when last looked, and since when it is that.
    seen: (u64, Instant),
    /// When to try again.
    retry: Option<Instant>,
}

/// What has become of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    Stalled,
    Restarted,
}

impl Branch {
    pub fn new(source: Named, target: gst::Pad, feed: Option<gst::Element>) -> Self {
        Self {
            source,
            target,
            feed,
            bin: None,
            frames: Arc::default(),
            seen: (0, Instant::now()),
            retry: None,
        }
    }

    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    pub fn is_down(&self) -> bool {
        self.bin.is_none()
    }

    /// An object of the pipeline belongs to this branch.
    pub fn owns(&self, object: &gst::Object) -> bool {
        self.bin.as_ref().is_some_and(|bin| object == bin || object.has_as_ancestor(bin))
    }

    /// Puts the source in. A pipeline that runs takes it along.
    pub fn insert(&mut self, pipeline: &gst::Pipeline) -> Result<(), Box<dyn Error>> {
        // Pads that look unlinked may be waiting for what a decoder finds, so these are named.
        let bin = gst::parse::bin_from_description(&self.source.source.description()?, false)?;
        let ghost = |element, pad| {
            let target = bin.by_name(element)?.static_pad(pad)?;
            let ghost = gst::GhostPad::builder_with_target(&target).ok()?.name(pad).build();
            bin.add_pad(&ghost).ok()?;
            Some(ghost)
        };
        let src = ghost("out", "src").ok_or("the source has no output")?.upcast::<gst::Pad>();
        ghost("in", "sink");
        self.watch(&src, &bin);
        if !self.source.source.is_live()
            && let Some(now) = pipeline.current_running_time()
        {
            // Its time starts from 0, which was a while ago.
            src.set_offset(i64::try_from(now.nseconds())?);
        }
        pipeline.add(&bin)?;
        if let Some(feed) = &self.feed {
            feed.link(&bin)?;
        }
        src.link(&self.target)?;
        self.bin = Some(bin.clone());
        self.seen = (self.frames(), Instant::now());
        self.retry = None;
        bin.sync_state_with_parent()?;
        Ok(())
    }

    /// Counts frames, and keeps the end of a live source from ending the pad that it goes to.
    fn watch(&self, src: &gst::Pad, bin: &gst::Bin) {
        let frames = self.frames.clone();
        src.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            frames.fetch_add(1, Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        if !self.source.source.is_live() {
            return;
        }
        let bin = bin.downgrade();
        src.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
            if info.event().is_none_or(|event| event.type_() != gst::EventType::Eos) {
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

    /// Takes the source out, to try again in a while.
    pub fn remove(&mut self, pipeline: &gst::Pipeline) {
        self.retry = Some(Instant::now() + PAUSE);
        let Some(bin) = self.bin.take() else { return };
        if let Some(feed) = &self.feed
            && let Some(pad) = bin.static_pad("sink").and_then(|sink| sink.peer())
        {
            unlink(&pad);
            feed.release_request_pad(&pad);
        }
        // It has failed, so it may fail to stop as well; it is gone in any case.
        let _ = bin.set_state(gst::State::Null);
        let _ = pipeline.remove(&bin);
    }

    /// Looks whether frames come, and tries again when it is time to. Live sources that deliver nothing for `stall`
    /// are taken out.
    pub fn tick(&mut self, pipeline: &gst::Pipeline, stall: Duration) -> Change {
        if self.retry.is_some_and(|retry| retry <= Instant::now()) {
            if self.insert(pipeline).is_err() {
                self.remove(pipeline);
            }
            return Change::Restarted;
        }
        let frames = self.frames();
        if frames != self.seen.0 {
            self.seen = (frames, Instant::now());
        }
        // What feeds on the reference is as silent as that.
        let can_stall = self.bin.is_some()
            && self.source.source.is_live()
            && !matches!(self.source.source, Source::Encode(_));
        if can_stall && self.seen.1.elapsed() > stall {
            self.remove(pipeline);
            return Change::Stalled;
        }
        Change::None
    }
}

/// Unlinks a source pad between two frames.
fn unlink(pad: &gst::Pad) {
    let (idle, unlinked) = mpsc::channel();
    pad.add_probe(gst::PadProbeType::IDLE, move |pad, _| {
        if let Some(peer) = pad.peer() {
            // Not linked any more is as good, and so is that nobody waits.
            let _ = pad.unlink(&peer);
        }
        let _ = idle.send(());
        gst::PadProbeReturn::Remove
    });
    // An error means that the pad has gone.
    let _ = unlinked.recv();
}
