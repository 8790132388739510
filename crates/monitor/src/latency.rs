// SPDX-License-Identifier: MPL-2.0

//! Latency of scores: from the arrival of the next frame, which the element needs, to the message.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::message::{FrameMessage, VmafMessage};
use parking_lot::Mutex;

/// Number of arrivals remembered for each pad.
const REMEMBERED: usize = 500;

/// Arrival times at a sink pad, by running time.
struct Arrivals {
    pad: String,
    label: String,
    frames: VecDeque<(ClockTime, Instant)>,
    /// Latencies in milliseconds.
    latencies: Vec<f64>,
}

/// Measures latencies of a running element.
#[derive(Clone)]
pub struct Latency(Arc<Mutex<Vec<Arrivals>>>);

impl Latency {
    /// Begins to measure. Messages are timed in the thread that posts them.
    pub fn new(element: &gst::Element, bus: &gst::Bus) -> Self {
        let latency = Self(Arc::default());
        for pad in element.sink_pads() {
            let label =
                if pad.has_property("label") { pad.property::<Option<String>>("label") } else { None };
            let name = pad.name().to_string();
            let i = {
                let mut pads = latency.0.lock();
                pads.push(Arrivals {
                    label: label.unwrap_or(name.clone()),
                    pad: name,
                    frames: VecDeque::new(),
                    latencies: vec![],
                });
                pads.len() - 1
            };
            let pads = latency.0.clone();
            pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
                let now = Instant::now();
                if let Some(at) = info.buffer().and_then(|buffer| running_time(pad, buffer)) {
                    let frames = &mut pads.lock()[i].frames;
                    frames.push_back((at, now));
                    if frames.len() > REMEMBERED {
                        frames.pop_front();
                    }
                }
                gst::PadProbeReturn::Ok
            });
        }
        let posted = latency.clone();
        bus.set_sync_handler(move |_, message| {
            let now = Instant::now();
            if let Some(Ok(VmafMessage::Frame(frame))) = message.structure().map(VmafMessage::try_from) {
                posted.posted(&frame, now);
            }
            gst::BusSyncReply::Pass
        });
        latency
    }

    fn posted(&self, frame: &FrameMessage, now: Instant) {
        let mut pads = self.0.lock();
        let next = |pads: &[Arrivals], pad: &str, after: Option<ClockTime>| {
            let frames = &pads.iter().find(|arrivals| arrivals.pad == pad)?.frames;
            // Paired frames differ by up to half a frame duration.
            let after = after? + frame.duration.unwrap_or(ClockTime::ZERO) / 2;
            frames.iter().find(|(at, _)| *at > after).map(|(_, arrived)| *arrived)
        };
        let reference = next(&pads, "ref_sink", frame.running_time);
        let distorted = next(&pads, &frame.pad, frame.dist_running_time);
        // The last frame before a gap has no next frame.
        if let (Some(reference), Some(distorted)) = (reference, distorted)
            && let Some(arrivals) = pads.iter_mut().find(|arrivals| arrivals.pad == frame.pad)
        {
            let taken = now.saturating_duration_since(reference.max(distorted));
            arrivals.latencies.push(taken.as_secs_f64() * 1e3);
        }
    }

    /// Returns percentiles for each rendition.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        table.set_header(["ms from next frame to score", "frames", "p50", "p90", "p99", "max"]);
        for arrivals in self.0.lock().iter_mut().filter(|arrivals| arrivals.pad != "ref_sink") {
            let sorted = &mut arrivals.latencies;
            sorted.sort_by(f64::total_cmp);
            let at =
                |q: f64| sorted.get(((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1)));
            let mut row = vec![arrivals.label.clone(), sorted.len().to_string()];
            row.extend([0.5, 0.9, 0.99, 1.0].map(|q| at(q).map_or("-".into(), |ms| format!("{ms:.2}"))));
            table.add_row(row);
        }
        table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        table
    }
}

fn running_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<ClockTime>()?.to_running_time(buffer.pts()?)
}
