// SPDX-License-Identifier: MPL-2.0

//! The caps that have arrived at the reference pad, for those who cannot go on without them.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock;

/// How long distorted streams wait for the reference's caps, all in all. Where one thread feeds both pads, it would wait
/// for itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// The caps that have arrived at the reference pad, be it that frames before them are still queued there.
#[derive(Default)]
pub struct Arrival {
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
    /// When the waiting is over, once somebody has begun to wait.
    until: Option<Instant>,
}

impl Arrival {
    pub fn begin(&self) {
        *lock(&self.known) = Known { running: true, ..Known::default() };
    }

    /// Nobody has to wait any more.
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

    /// The caps, waited for if they can be expected to come soon.
    pub fn caps(&self) -> Option<gst::Caps> {
        let mut known = lock(&self.known);
        let until = *known.until.get_or_insert_with(|| Instant::now() + PATIENCE);
        let unknown = |known: &mut Known| known.running && !known.ended && known.caps.is_none();
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(known, left, unknown);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        known.caps.clone()
    }
}
