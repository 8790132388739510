// SPDX-License-Identifier: MPL-2.0

//! The caps that have arrived at the reference pad, for threads that need them to answer a caps query.

use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::lock;
use super::upstream::sink_pads;

/// The total time that a thread waits for the reference's caps. A thread that feeds both pads, the distorted one
/// first, would wait for itself.
const CAPS_TIMEOUT: Duration = Duration::from_secs(1);

/// After this time a thread may wait once more, and an ended one is forgotten.
const MEMORY: Duration = Duration::from_secs(60);

/// The caps that have arrived at the reference pad, even if frames before them are still queued there.
#[derive(Default)]
pub struct CapsWait {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    /// The element runs.
    running: bool,
    caps: Option<gst::Caps>,
    /// No caps will come.
    ended: bool,
    /// The times at which threads started to wait.
    begun: Vec<(ThreadId, Instant)>,
}

impl CapsWait {
    pub fn begin(&self) {
        *lock(&self.known) = Known { running: true, ..Known::default() };
    }

    /// Ends the wait of all threads.
    pub fn end(&self) {
        *lock(&self.known) = Known::default();
        self.changed.notify_all();
    }

    /// Takes an event that has arrived at the reference pad.
    pub fn hear(&self, event: &gst::EventRef) {
        match event.view() {
            gst::EventView::Caps(caps) => lock(&self.known).caps = Some(caps.caps_owned()),
            gst::EventView::Eos(_) => lock(&self.known).ended = true,
            _ => return,
        }
        self.changed.notify_all();
    }

    /// Returns the caps. Waits for them for a short time if they are missing and `can_come` returns true.
    pub fn caps(&self, can_come: impl FnOnce() -> bool) -> Option<gst::Caps> {
        let awaited = lock(&self.known).are_awaited();
        if awaited && can_come() {
            self.wait();
        }
        lock(&self.known).caps.clone()
    }

    fn wait(&self) {
        let mut known = lock(&self.known);
        let (this, now) = (thread::current().id(), Instant::now());
        known.begun.retain(|(_, begun)| now < *begun + MEMORY);
        let begun = known.begun.iter().find(|(thread, _)| *thread == this).map(|(_, begun)| *begun);
        if begun.is_none() {
            known.begun.push((this, now));
        }
        let left = (begun.unwrap_or(now) + CAPS_TIMEOUT).saturating_duration_since(now);
        let _ = self.changed.wait_timeout_while(known, left, |known| known.are_awaited());
    }
}

impl Known {
    /// Returns true if the caps are missing and may still arrive.
    fn are_awaited(&self) -> bool {
        self.running && !self.ended && self.caps.is_none()
    }
}

/// Returns true if the reference's caps can come before a query of the distorted stream for caps is answered. They cannot
///
/// - while the distorted stream is being linked: a demuxer may do that in the thread that brings the reference as well;
/// - where one source feeds both through a `tee`, or another element that asks all that comes after it for the caps that it
///   takes, and has not decided what to send.
pub fn can_come_before(reference: &gst::Pad, distorted: &gst::Pad) -> bool {
    let of_distorted = sink_pads(distorted);
    let shared = sink_pads(reference).into_iter().find(|pad| of_distorted.contains(pad));
    let asks_both = |pad: &gst::Pad| pad.pad_flags().contains(gst::PadFlags::PROXY_CAPS);
    let undecided = |pad: &gst::Pad| pad.peer().is_some_and(|source| !source.has_current_caps());
    let waits_for_answer = shared.is_some_and(|pad| asks_both(&pad) && undecided(&pad));
    !waits_for_answer && of_distorted.iter().all(gst::Pad::is_linked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_that_are_there_are_given_without_a_wait() {
        gst::init().unwrap();
        let caps_wait = CapsWait::default();
        caps_wait.begin();
        assert_eq!(caps_wait.caps(|| false), None);
        let caps = gst::Caps::new_empty_simple("video/x-raw");
        caps_wait.hear(&gst::event::Caps::new(&caps));
        assert_eq!(caps_wait.caps(|| false), Some(caps));
    }
}
