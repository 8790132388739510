// SPDX-License-Identifier: MPL-2.0

//! Requests of the [state](super::state): everything that must not be done while its lock is held.

use gst::{ClockTime, Structure};

use super::downstream::{Heat, Stamp};
use super::error::Error;
use super::pads::HipVmafPad;
use super::report::writer::Job;

/// Something to be done once no lock is held. Actions are carried out in order.
pub enum Action {
    /// Sets the caps of the source pad.
    Caps(gst::Caps),
    /// Sets the segment of the source pad.
    Segment(gst::Segment),
    /// Announces how long frames are held back.
    Latency(ClockTime),
    /// Pushes a frame.
    Push(gst::Buffer),
    /// Pushes an event of upstream.
    Event(gst::Event),
    /// Pushes a heat map of this reference frame.
    Paint(gst::Buffer, Heat),
    /// Posts an element message.
    Post(Structure),
    /// Posts a warning.
    Warn(Error),
    /// Posts a QoS message about a pair that was left out, with the numbers of frames that were scored and left out so far.
    Qos { stamp: Stamp, late: Option<ClockTime>, scored: u64, skipped: u64 },
    /// Passes a job to the thread that writes files.
    Write(Job),
    /// Asks upstream of a rendition for caps like these. [`Streams::renegotiates`](super::streams::Streams::renegotiates) is
    /// called with the answer.
    Reconfigure { rendition: u64, pad: HipVmafPad, matching: gst::Caps },
    /// Drops buffers, which may free memory of a GPU.
    Release(Vec<gst::Buffer>),
}

/// Actions in the order in which they are to be carried out.
pub type Actions = Vec<Action>;
