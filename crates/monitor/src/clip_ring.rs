// SPDX-License-Identifier: MPL-2.0

//! A ring of clips: the encoded video of the last seconds of a source, as it was before decoding.
//!
//! It is taken at the output of the parser before the decoder, for any transport: SRT, RTMP, HLS, RTSP or a file.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gst::prelude::*;
use parking_lot::Mutex;

/// Largest size held for a source, in bytes.
const MOST: usize = 64 << 20;

/// A piece of encoded video.
#[derive(Clone)]
pub struct Piece {
    at: Instant,
    pub sample: gst::Sample,
    /// Name of the parser that sent it, which can also convert it for files.
    pub parser: String,
    /// Number of the source's start; its timestamps begin anew with each.
    pub start: u32,
}

/// The last seconds of a source.
#[derive(Clone)]
pub struct ClipRing(Arc<Mutex<Held>>);

struct Held {
    length: Duration,
    pieces: VecDeque<Piece>,
    bytes: usize,
    start: u32,
    /// Nothing is removed.
    kept: bool,
}

impl ClipRing {
    /// Creates a ring of this length, extended back to the previous key frame.
    pub fn new(length: Duration) -> Self {
        Self(Arc::new(Mutex::new(Held { length, pieces: VecDeque::new(), bytes: 0, start: 0, kept: false })))
    }

    /// Records the output of the present and future parsers in a bin.
    pub fn attach(&self, bin: &gst::Bin) {
        self.0.lock().start += 1;
        for element in bin.children() {
            self.listen(&element);
        }
        let clip_ring = self.clone();
        bin.connect_deep_element_added(move |_, _, element| clip_ring.listen(element));
    }

    fn listen(&self, element: &gst::Element) {
        let kinds = gst::ElementFactoryType::PARSER | gst::ElementFactoryType::MEDIA_VIDEO;
        let Some(factory) = element.factory().filter(|factory| factory.has_type(kinds)) else { return };
        let Some(pad) = element.static_pad("src") else { return };
        let (clip_ring, parser) = (self.clone(), factory.name().to_string());
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let (Some(gst::PadProbeData::Buffer(buffer)), Some(caps)) = (&info.data, pad.current_caps()) {
                let sample = gst::Sample::builder().buffer(buffer).caps(&caps).build();
                clip_ring.0.lock().push(Instant::now(), sample, &parser);
            }
            gst::PadProbeReturn::Ok
        });
    }

    /// Stops removing old pieces until the content is taken.
    pub fn keep(&self) {
        self.0.lock().kept = true;
    }

    /// Takes the content.
    pub fn take(&self) -> Vec<Piece> {
        let mut held = self.0.lock();
        held.kept = false;
        held.pieces.iter().cloned().collect()
    }
}

impl Piece {
    /// Returns true if decoding can begin here.
    pub fn is_key(&self) -> bool {
        self.sample.buffer().is_some_and(|buffer| !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT))
    }

    fn size(&self) -> usize {
        self.sample.buffer().map_or(0, |buffer| buffer.size())
    }
}

impl Held {
    fn push(&mut self, at: Instant, sample: gst::Sample, parser: &str) {
        let piece = Piece { at, sample, parser: parser.into(), start: self.start };
        self.bytes += piece.size();
        self.pieces.push_back(piece);
        let old = |piece: &Piece| at.saturating_duration_since(piece.at) > self.length;
        // Removes everything before the last key frame that is itself old.
        let keys = self.pieces.iter().enumerate().take_while(|(_, piece)| old(piece));
        let first = keys.filter(|(_, piece)| piece.is_key()).last().map_or(0, |(i, _)| i);
        let surplus = if self.kept { 0 } else { first };
        for i in 0.. {
            if i >= surplus && self.bytes <= MOST {
                break;
            }
            let Some(piece) = self.pieces.pop_front() else { break };
            self.bytes -= piece.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(size: usize, key: bool) -> gst::Sample {
        let mut buffer = gst::Buffer::with_size(size).unwrap();
        if !key {
            buffer.get_mut().unwrap().set_flags(gst::BufferFlags::DELTA_UNIT);
        }
        gst::Sample::builder().buffer(&buffer).build()
    }

    #[test]
    fn a_tape_begins_with_a_key_frame_and_has_its_length() {
        gst::init().unwrap();
        let clip_ring = ClipRing::new(Duration::from_secs(10));
        let begin = Instant::now();
        let fill = |from: u64, to: u64| {
            for second in from..to {
                clip_ring.0.lock().push(
                    begin + Duration::from_secs(second),
                    sample(1, second % 4 == 0),
                    "h264parse",
                );
            }
        };
        fill(0, 100);
        let first = |pieces: &[Piece]| (pieces[0].at - begin).as_secs();
        let pieces = clip_ring.take();
        assert!(pieces[0].is_key() && first(&pieces) == 88, "{}", first(&pieces));
        clip_ring.keep();
        fill(100, 200);
        let pieces = clip_ring.take();
        assert_eq!((first(&pieces), pieces.len()), (88, 112));
        fill(200, 201);
        assert_eq!(first(&clip_ring.take()), 188);
    }

    #[test]
    fn a_tape_has_no_more_than_its_bytes() {
        gst::init().unwrap();
        let clip_ring = ClipRing::new(Duration::from_secs(10));
        clip_ring.keep();
        for _ in 0..5 {
            clip_ring.0.lock().push(Instant::now(), sample(MOST / 3, true), "h264parse");
        }
        assert_eq!(clip_ring.take().len(), 3);
    }
}
