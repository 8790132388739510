// SPDX-License-Identifier: MPL-2.0

//! Fragmented MP4 whose header gives a duration shorter than its fragments: only the first fragment, or without the
//! delay of B-frames. GStreamer 1.22 ends the stream there and silently drops the remaining frames.

use std::path::Path;

use gst::prelude::*;

use super::boxes::Boxes;

/// Upper limit for the size of a header.
const LARGEST: u64 = 64 << 20;

/// Makes a decoder show all frames of a fragmented file without an edit list.
pub fn open_end(decoder: &gst::Element, uri: Option<&str>) {
    let path = uri.and_then(|uri| glib::filename_from_uri(uri).ok()).map(|(path, _)| path);
    let (Some(bin), Some(true)) = (decoder.downcast_ref::<gst::Bin>(), path.as_deref().map(is_open)) else {
        return;
    };
    bin.connect_deep_element_added(|_, _, element| {
        if element.factory().is_some_and(|factory| factory.name() == "qtdemux") {
            element.connect_pad_added(|_, pad| {
                pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, |_, info| {
                    if let Some(gst::PadProbeData::Event(event)) = &mut info.data
                        && let Some(open) = without_end(event)
                    {
                        *event = open;
                    }
                    gst::PadProbeReturn::Ok
                });
            });
        }
    });
}

fn without_end(event: &gst::Event) -> Option<gst::Event> {
    let gst::EventView::Segment(segment) = event.view() else { return None };
    let mut open = segment.segment().downcast_ref::<gst::ClockTime>()?.clone();
    open.set_stop(gst::ClockTime::NONE);
    Some(
        gst::event::Segment::builder(&open)
            .seqnum(event.seqnum())
            .running_time_offset(event.running_time_offset())
            .build(),
    )
}

/// Returns true if a file has fragments and no edit list.
fn is_open(path: &Path) -> bool {
    header(path).is_some_and(|header| {
        let has = |name: &[u8]| header.windows(name.len()).any(|bytes| bytes == name);
        has(b"mvex") && !has(b"elst")
    })
}

/// Reads the box `moov` of an MP4 file.
fn header(path: &Path) -> Option<Vec<u8>> {
    let mut boxes = Boxes::open(path)?;
    let header = boxes.by_ref().take(64).find(|of| of.name == *b"moov")?;
    boxes.body(&header, LARGEST)
}
