// SPDX-License-Identifier: MPL-2.0

//! Pictures with numbers. The scores of a pair identify the numbers of both pictures; `Table` has the expected scores.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gst::ClockTime;
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gsthipvmaf::message::{FrameMessage, Values, VmafMessage};

pub const FRAME: ClockTime = ClockTime::from_mseconds(40);

/// The number of different pictures. Frames use them in turn.
pub const NUMBERS: usize = 12;
pub const SIZES: [(usize, usize); 2] = [(64, 48), (96, 64)];
/// The quantisation steps of renditions.
const STEPS: [usize; 4] = [16, 24, 36, 64];
pub const QUALITIES: usize = STEPS.len();

/// The parameters of one side's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Picture {
    pub number: usize,
    /// An index into [`SIZES`].
    pub size: usize,
    /// The quantisation step; `None` for the reference.
    pub quality: Option<usize>,
}

/// A property of frames that prevents a rendition from being scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Interlaced,
    Deep,
    Short,
    Overlay,
}

/// The caps of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// The frame rate, or `max-framerate` if the caps have no rate.
    pub fps: gst::Fraction,
    pub has_rate: bool,
    /// The picture is a part of the frame, with a crop meta.
    pub cropped: bool,
}

impl Announced {
    pub fn plain() -> Self {
        Self { fps: gst::Fraction::new(25, 1), has_rate: true, cropped: false }
    }
}

/// The margins of cropped frames: left and right of the picture, above and below it.
const BORDER: (usize, usize) = (8, 4);

/// The number of frames that exist, in the element or on their way.
pub static ALIVE: AtomicUsize = AtomicUsize::new(0);

struct Tracked(Vec<u8>);

impl Tracked {
    fn new(bytes: Vec<u8>) -> Self {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Self(bytes)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn info(format: VideoFormat, (width, height): (usize, usize), fps: gst::Fraction) -> VideoInfo {
    VideoInfo::builder(format, width as u32, height as u32).fps(fps).build().expect("a plain format")
}

impl Picture {
    /// Returns the width and the height of the frames of such pictures.
    fn stored(&self, cropped: bool) -> (usize, usize) {
        let (width, height) = SIZES[self.size];
        if cropped { (width + 2 * BORDER.0, height + 2 * BORDER.1) } else { (width, height) }
    }

    /// Returns the caps of such frames.
    pub fn caps(&self, trouble: Option<Trouble>, announced: Announced) -> gst::Caps {
        let format = if trouble == Some(Trouble::Deep) { VideoFormat::I42010le } else { VideoFormat::I420 };
        let fps = if announced.has_rate { announced.fps } else { gst::Fraction::new(0, 1) };
        let mut caps = info(format, self.stored(announced.cropped), fps).to_caps().expect("a plain format");
        if !announced.has_rate {
            caps.make_mut().set("max-framerate", announced.fps);
        }
        if trouble == Some(Trouble::Interlaced) {
            caps.make_mut().set("interlace-mode", "interleaved");
        }
        caps
    }

    fn sample(&self, x: usize, y: usize) -> u8 {
        let (width, height) = SIZES[self.size];
        let (x, y, t) = ((x * 64 / width) as f64, (y * 48 / height) as f64, self.number as f64);
        let waves = 40.0 * (x * 0.2 + t * 0.9).sin() * (y * 0.15 - t * 0.7).cos();
        let drift = 25.0 * ((x - y) * 0.1 + 3.0 * (t * 0.5).sin()).sin();
        let sample = (120.0 + waves + drift) as usize;
        match self.quality {
            None => sample as u8,
            Some(quality) => (sample / STEPS[quality] * STEPS[quality] + STEPS[quality] / 2).min(255) as u8,
        }
    }

    pub fn buffer(&self, trouble: Option<Trouble>, cropped: bool) -> gst::Buffer {
        let info = info(VideoFormat::I420, self.stored(cropped), gst::Fraction::new(25, 1));
        let mut bytes = vec![128; info.size()];
        let (width, height) = SIZES[self.size];
        let (left, top) = if cropped { BORDER } else { (0, 0) };
        // The samples around the picture differ from frame to frame.
        let luma = info.stride()[0] as usize * info.height() as usize;
        bytes[..luma].fill(60 + self.number as u8);
        for (y, row) in bytes.chunks_mut(info.stride()[0] as usize).skip(top).take(height).enumerate() {
            let row = &mut row[left..left + width];
            row.iter_mut().enumerate().for_each(|(x, sample)| *sample = self.sample(x, y));
        }
        match trouble {
            Some(Trouble::Deep) => bytes.resize(2 * info.size(), 0),
            Some(Trouble::Short) => bytes.truncate(info.size() / 2),
            Some(Trouble::Interlaced | Trouble::Overlay) | None => {}
        }
        let mut buffer = gst::Buffer::from_slice(Tracked::new(bytes));
        let fields = buffer.make_mut();
        if cropped {
            let rectangle = [left, top, width, height].map(|samples| samples as u32);
            gst_video::VideoCropMeta::add(fields, rectangle.into());
        }
        if trouble == Some(Trouble::Overlay) {
            add_overlay(fields);
        }
        buffer
    }
}

/// Attaches an overlay composition, as a caption is.
fn add_overlay(buffer: &mut gst::BufferRef) {
    use gst_video::{VideoOverlayComposition, VideoOverlayFormatFlags, VideoOverlayRectangle};
    let mut pixels = gst::Buffer::from_slice(vec![255u8; 8 * 8 * 4]);
    let format = VideoFormat::Bgra;
    gst_video::VideoMeta::add(pixels.make_mut(), gst_video::VideoFrameFlags::empty(), format, 8, 8)
        .expect("a plain format");
    let flags = VideoOverlayFormatFlags::empty();
    let rectangle = VideoOverlayRectangle::new_raw(&pixels, 0, 0, 8, 8, flags);
    let overlay = VideoOverlayComposition::new(Some(&rectangle)).expect("one rectangle");
    gst_video::video_meta::VideoOverlayCompositionMeta::add(buffer, &overlay);
}

/// The scores that are expected of a pair. Motion depends on the frames around it, and so does the score of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The features of the pair alone: all but motion.
    pub features: Values,
    /// The scores of the pair in a run of all numbers in order.
    pub in_run: Option<FrameMessage>,
}

/// Returns the features of a message that depend on its pair alone.
pub fn lasting(features: &Values) -> Values {
    features.iter().filter(|(name, _)| !name.contains("motion")).cloned().collect()
}

/// The expected scores of pairs, computed on first use.
#[derive(Default)]
pub struct Table(HashMap<(Picture, Picture), Arc<Expected>>);

/// Sets the properties that all elements share, so that their scores can be compared.
pub fn common(element: &gst::Element) {
    let backend = std::env::var("HIPVMAF_TEST_BACKEND").unwrap_or("cpu".into());
    element.set_property_from_str("backend", &backend);
    element.set_property_from_str("scale-method", "bicubic");
    element.set_property("psnr", true);
    element.set_property("frame-message", true);
}

impl Table {
    pub fn expected(&mut self, reference: Picture, distorted: Picture) -> Arc<Expected> {
        let pair = (reference, distorted);
        if let Some(known) = self.0.get(&pair) {
            return known.clone();
        }
        if reference.number == distorted.number {
            self.fill(reference, distorted);
            return self.0[&pair].clone();
        }
        let features = lasting(&score(&[pair])[0].features);
        self.0.entry(pair).or_insert(Arc::new(Expected { features, in_run: None })).clone()
    }

    /// Scores the pairs of all numbers.
    fn fill(&mut self, reference: Picture, distorted: Picture) {
        let pair = |i: usize| {
            let number = i % NUMBERS;
            (Picture { number, ..reference }, Picture { number, ..distorted })
        };
        let run: Vec<_> = (0..2 * NUMBERS + 2).map(pair).collect();
        for message in score(&run).into_iter().skip(NUMBERS).take(NUMBERS) {
            let features = lasting(&message.features);
            let expected = Expected { features, in_run: Some(message.clone()) };
            self.0.insert(pair(message.index as usize), Arc::new(expected));
        }
    }
}

/// Scores an unbroken run of pairs by itself.
fn score(pairs: &[(Picture, Picture)]) -> Vec<FrameMessage> {
    let pipeline = gst::Pipeline::new();
    let element = gst::ElementFactory::make("hipvmaf").build().expect("registered");
    common(&element);
    let sink = gst::ElementFactory::make("fakesink").build().expect("a core element");
    pipeline.add_many([&element, &sink]).expect("new elements");
    element.link(&sink).expect("it takes anything");
    let sources = ["ref_sink", "dist_sink"].map(|pad| {
        let source = gst_app::AppSrc::builder().format(gst::Format::Time).build();
        pipeline.add(&source).expect("a new element");
        source.link_pads(Some("src"), &element, Some(pad)).expect("it takes video");
        source
    });
    pipeline.set_state(gst::State::Playing).expect("the element plays");
    for (i, (reference, distorted)) in pairs.iter().enumerate() {
        for (source, picture) in sources.iter().zip([reference, distorted]) {
            let mut buffer = picture.buffer(None, false);
            buffer.make_mut().set_pts(FRAME * i as u64);
            let caps = picture.caps(None, Announced::plain());
            let sample = gst::Sample::builder().buffer(&buffer).caps(&caps).build();
            source.push_sample(&sample).expect("it takes all");
        }
    }
    sources.iter().for_each(|source| {
        source.end_of_stream().expect("it has not ended");
    });
    let mut messages = vec![];
    for message in pipeline.bus().expect("pipelines have one").iter_timed(ClockTime::from_seconds(60)) {
        match message.view() {
            gst::MessageView::Element(element) => {
                let message = element.structure().map(VmafMessage::try_from);
                if let Some(Ok(VmafMessage::Frame(frame))) = message {
                    messages.push(frame);
                }
            }
            gst::MessageView::Error(error) => panic!("pairs alone: {error:?}"),
            gst::MessageView::Eos(_) => break,
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).expect("it stops");
    assert_eq!(messages.len(), pairs.len(), "pairs alone");
    messages
}
