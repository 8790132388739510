// SPDX-License-Identifier: MPL-2.0

//! Plays clips through the element and collects its output.

pub mod clip;
pub mod device;
pub mod gate;
pub mod rig;

use std::sync::{Arc, Mutex, Once};

use clip::{Clip, Samples};
use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoFrameRef, VideoInfo, VideoMeta};
use gsthipvmaf::event::{self, EventMessage};
use gsthipvmaf::message::{FrameMessage, PooledMessage, VmafMessage};
use gsthipvmaf::meta::{ScoreMeta, ScoreState};

/// The frame rate of all clips.
pub const FPS: u64 = 25;
pub const FRAME: gst::ClockTime = gst::ClockTime::from_mseconds(1000 / FPS);

pub fn init() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        gst::init().unwrap();
        gsthipvmaf::plugin_register_static().unwrap();
    });
}

/// Frames for a sink pad. Their caps may change.
#[derive(Clone, Default)]
pub struct Input(pub Vec<gst::Sample>);

impl Input {
    /// Returns one side of a clip in its own planar format.
    pub fn planar(clip: &Clip, distorted: bool) -> Self {
        Self::new(clip, distorted, planar_format(clip))
    }

    /// Returns one side of a clip, packed into any format of its depth.
    pub fn new(clip: &Clip, distorted: bool, format: VideoFormat) -> Self {
        let pictures = (0..clip.frames).map(|t| clip.planes(t, distorted));
        Self::pictures(format, (clip.width, clip.height), pictures)
    }

    /// Returns frames of these Y, Cb and Cr samples in any format of their depth.
    pub fn pictures(
        format: VideoFormat,
        (width, height): (usize, usize),
        pictures: impl Iterator<Item = [Samples; 3]>,
    ) -> Self {
        init();
        let info = VideoInfo::builder(format, width as u32, height as u32)
            .fps(gst::Fraction::new(FPS as i32, 1))
            .build()
            .unwrap();
        let caps = info.to_caps().unwrap();
        let sample = |(t, planes): (usize, [Samples; 3])| {
            let mut buffer = pack(&planes, &info);
            let buffer_ref = buffer.get_mut().unwrap();
            buffer_ref.set_pts(FRAME * t as u64);
            buffer_ref.set_duration(FRAME);
            gst::Sample::builder().buffer(&buffer).caps(&caps).build()
        };
        Self(pictures.enumerate().map(sample).collect())
    }

    /// Returns grey video of 64x48 pixels with these samples.
    pub fn drawn(frames: usize, sample: impl Fn(usize, usize, usize) -> u8) -> Self {
        Self::drawn_at((64, 48), frames, sample)
    }

    /// Returns the same with this size.
    pub fn drawn_at(
        (width, height): (usize, usize),
        frames: usize,
        sample: impl Fn(usize, usize, usize) -> u8,
    ) -> Self {
        init();
        let info = VideoInfo::builder(VideoFormat::I420, width as u32, height as u32)
            .fps(gst::Fraction::new(FPS as i32, 1))
            .build()
            .unwrap();
        let caps = info.to_caps().unwrap();
        let draw = |t: usize| {
            let mut data = vec![128; info.size()];
            for (y, row) in data.chunks_mut(info.stride()[0] as usize).take(height).enumerate() {
                row[..width].iter_mut().enumerate().for_each(|(x, pixel)| *pixel = sample(t, x, y));
            }
            let mut buffer = gst::Buffer::from_mut_slice(data);
            let buffer_ref = buffer.get_mut().unwrap();
            buffer_ref.set_pts(FRAME * t as u64);
            buffer_ref.set_duration(FRAME);
            gst::Sample::builder().buffer(&buffer).caps(&caps).build()
        };
        Self((0..frames).map(draw).collect())
    }

    /// Keeps some of the frames, with their timestamps.
    pub fn keep(&self, keep: impl Fn(usize) -> bool) -> Self {
        Self(self.0.iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, s)| s.clone()).collect())
    }

    /// Returns the frames in other memory, with a caps feature for it.
    pub fn moved(&self, feature: &str, mut memory: impl FnMut(&[u8]) -> gst::Memory) -> Self {
        let move_one = |sample: &gst::Sample| {
            let old = sample.buffer().unwrap();
            let mut buffer = gst::Buffer::new();
            let new = buffer.get_mut().unwrap();
            old.copy_into(new, gst::BufferCopyFlags::TIMESTAMPS, ..).unwrap();
            new.append_memory(memory(&old.map_readable().unwrap()));
            // Without the memory, its metas are not copied.
            if let Some(meta) = old.meta::<VideoMeta>() {
                let (flags, format) = (meta.video_frame_flags(), meta.format());
                let (width, height) = (meta.width(), meta.height());
                VideoMeta::add_full(new, flags, format, width, height, meta.offset(), meta.stride()).unwrap();
            }
            let mut caps = sample.caps_owned().unwrap();
            caps.make_mut().set_features(0, Some(gst::CapsFeatures::new([feature])));
            gst::Sample::builder().buffer(&buffer).caps(&caps).build()
        };
        Self(self.0.iter().map(move_one).collect())
    }

    /// Returns the frames with DRM format caps.
    pub fn with_drm_caps(&self, format: &str) -> Self {
        self.with_caps(|caps| {
            caps.set("format", "DMA_DRM");
            caps.set("drm-format", format);
        })
    }

    /// Returns the frames with other caps.
    pub fn with_caps(&self, change: impl Fn(&mut gst::CapsRef)) -> Self {
        let replace = |sample: &gst::Sample| {
            let mut caps = sample.caps_owned().unwrap();
            change(caps.make_mut());
            gst::Sample::builder().buffer(&sample.buffer_owned().unwrap()).caps(&caps).build()
        };
        Self(self.0.iter().map(replace).collect())
    }

    /// Returns the frames with changed buffers.
    pub fn changed(&self, change: impl Fn(usize, &mut gst::BufferRef)) -> Self {
        let replace = |(i, sample): (usize, &gst::Sample)| {
            let mut buffer = sample.buffer_owned().unwrap();
            change(i, buffer.make_mut());
            gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build()
        };
        Self(self.0.iter().enumerate().map(replace).collect())
    }

    /// Returns the frames without a rate: neither the caps nor the buffers have their duration.
    pub fn unannounced(&self) -> Self {
        let bare = self.changed(|_, buffer| buffer.set_duration(None));
        bare.with_caps(|caps| caps.set("framerate", gst::Fraction::new(0, 1)))
    }

    /// Returns the frames with other timestamps.
    pub fn retimed(&self, pts: impl Fn(usize) -> Option<gst::ClockTime>) -> Self {
        self.changed(|i, buffer| buffer.set_pts(pts(i)))
    }

    /// Appends another input, with its timestamps moved.
    pub fn then(&self, next: &Self) -> Self {
        let offset = self.0.len() as u64;
        let moved = next.retimed(|i| Some(FRAME * (offset + i as u64)));
        Self(self.0.iter().chain(&moved.0).cloned().collect())
    }
}

/// Returns the planar format of a clip's samples.
pub fn planar_format(clip: &Clip) -> VideoFormat {
    match (clip.depth, clip.halved) {
        (8, (true, true)) => VideoFormat::I420,
        (8, (true, false)) => VideoFormat::Y42b,
        (8, _) => VideoFormat::Y444,
        (10, (true, true)) => VideoFormat::I42010le,
        (10, (true, false)) => VideoFormat::I42210le,
        (10, _) => VideoFormat::Y44410le,
        (12, (true, true)) => VideoFormat::I42012le,
        (12, (true, false)) => VideoFormat::I42212le,
        (12, _) => VideoFormat::Y44412le,
        _ => VideoFormat::Gray16Le,
    }
}

fn pack(planes: &[Samples; 3], info: &VideoInfo) -> gst::Buffer {
    let mut buffer = gst::Buffer::with_size(info.size()).unwrap();
    let mut frame = VideoFrameRef::from_buffer_ref_writable(buffer.get_mut().unwrap(), info).unwrap();
    let format = info.format_info();
    for (component, samples) in planes.iter().enumerate().take(format.n_components() as usize) {
        let plane = format.plane()[component];
        let stride = frame.plane_stride()[plane as usize] as usize;
        let size = if info.comp_depth(0) > 8 { 2 } else { 1 };
        let second = format.poffset()[component] > 0;
        let (offset, step) = (if second { size } else { 0 }, format.pixel_stride()[component] as usize);
        let data = frame.plane_data_mut(plane).unwrap();
        for (y, row) in samples.data.chunks(samples.width).enumerate() {
            for (x, sample) in row.iter().enumerate() {
                let bytes = (sample << format.shift()[component]).to_le_bytes();
                let at = y * stride + offset + x * step;
                data[at..at + size].copy_from_slice(&bytes[..size]);
            }
        }
    }
    drop(frame);
    buffer
}

/// The output of the element.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub frames: Vec<FrameMessage>,
    pub pooled: Vec<PooledMessage>,
    pub windows: Vec<PooledMessage>,
    pub events: Vec<EventMessage>,
    pub buffers: Vec<gst::Buffer>,
    pub stats: Option<gst::Structure>,
}

/// Returns the entries of a buffer's metadata as structures, including those that the parser does not know.
#[track_caller]
pub fn entries(buffer: &gst::BufferRef) -> Vec<gst::Structure> {
    let meta =
        gst::meta::CustomMeta::from_buffer(buffer, gsthipvmaf::meta::NAME).expect("a buffer has its meta");
    let entries = meta.structure().get::<gst::Structure>("scores").unwrap();
    entries.iter().map(|(_, entry)| entry.get().unwrap()).collect()
}

impl Report {
    pub fn metas(&self) -> Vec<ScoreMeta> {
        self.buffers
            .iter()
            .map(|buffer| ScoreMeta::from_buffer(buffer).expect("every buffer has its meta"))
            .collect()
    }

    pub fn scores(&self) -> Vec<f64> {
        self.frames.iter().map(|frame| frame.score).collect()
    }

    /// Returns the scores of a distorted pad.
    pub fn scores_of(&self, pad: &str) -> Vec<f64> {
        self.frames.iter().filter(|frame| frame.pad == pad).map(|frame| frame.score).collect()
    }

    /// Returns the state of each frame that left, on its first pad.
    pub fn states(&self) -> Vec<ScoreState> {
        self.metas().iter().map(|meta| meta.scores[0].state).collect()
    }
}

/// An error of the element.
#[derive(Debug)]
pub struct Failure {
    pub error: glib::Error,
    pub text: String,
    /// The events before the error.
    pub events: Vec<EventMessage>,
}

/// A pipeline of two sources, the element and a sink.
pub struct Bench {
    pub pipeline: gst::Pipeline,
    pub element: gst::Element,
    sources: [gst_app::AppSrc; 2],
    buffers: Arc<Mutex<Vec<gst::Buffer>>>,
}

impl Bench {
    /// Makes a pipeline with frame messages and these properties, given as text.
    pub fn new(properties: &[(&str, &str)]) -> Self {
        init();
        let element =
            gst::ElementFactory::make("hipvmaf").name("h").property("frame-message", true).build().unwrap();
        // The default depends on the machine.
        let backend = std::env::var("HIPVMAF_TEST_BACKEND").unwrap_or("cpu".into());
        element.set_property_from_str("backend", &backend);
        for (name, value) in properties {
            element.set_property_from_str(name, value);
        }
        let pipeline = gst::Pipeline::new();
        let buffers = Arc::new(Mutex::new(vec![]));
        let collected = buffers.clone();
        let sink = gst_app::AppSink::builder()
            .sync(false)
            .callbacks(
                gst_app::AppSinkCallbacks::builder()
                    .new_sample(move |sink| {
                        let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
                        collected.lock().unwrap().extend(sample.buffer_owned());
                        Ok(gst::FlowSuccess::Ok)
                    })
                    .build(),
            )
            .build();
        let source = |name| gst_app::AppSrc::builder().name(name).format(gst::Format::Time).build();
        let sources = ["ref", "dist"].map(source);
        pipeline.add(&element).unwrap();
        pipeline.add(&sink).unwrap();
        element.link(&sink).unwrap();
        for (source, pad) in sources.iter().zip(["ref_sink", "dist_sink"]) {
            pipeline.add(source).unwrap();
            source.link_pads(Some("src"), &element, Some(pad)).unwrap();
        }
        Self { pipeline, element, sources, buffers }
    }

    /// Plays both inputs without an end, and waits until all their pairs are scored.
    pub fn begin(&self, reference: &Input, distorted: &Input) {
        self.pipeline.set_state(gst::State::Playing).unwrap();
        for (source, input) in self.sources.iter().zip([reference, distorted]) {
            for sample in &input.0 {
                source.push_sample(sample).unwrap();
            }
        }
        let paired = || self.element.property::<gst::Structure>("stats").get::<u64>("frames-scored");
        while paired() != Ok(reference.0.len() as u64 - 1) {
            std::thread::yield_now();
        }
    }

    /// Plays both inputs to the end.
    pub fn run(&self, reference: &Input, distorted: &Input) -> Result<Report, Failure> {
        self.buffers.lock().unwrap().clear();
        let started = self.pipeline.set_state(gst::State::Playing);
        if started.is_ok() {
            for (source, input) in self.sources.iter().zip([reference, distorted]) {
                for sample in &input.0 {
                    // Pushing is refused once the element has failed; the bus has the error.
                    let _ = source.push_sample(sample);
                }
                let _ = source.end_of_stream();
            }
        }
        let report = self.collect();
        let stats = self.element.property("stats");
        report.map(|report| Report { stats: Some(stats), ..report })
    }

    /// Reads the bus up to the end of the stream.
    pub fn collect(&self) -> Result<Report, Failure> {
        let mut report = Report::default();
        let bus = self.pipeline.bus().unwrap();
        while let Some(message) = bus.timed_pop(gst::ClockTime::from_seconds(60)) {
            match message.view() {
                gst::MessageView::Element(element) => {
                    let structure = element.structure().unwrap();
                    if structure.name() == event::NAME {
                        report.events.push(EventMessage::try_from(structure).unwrap());
                        continue;
                    }
                    match VmafMessage::try_from(structure).unwrap() {
                        VmafMessage::Frame(frame) => report.frames.push(frame),
                        VmafMessage::Pooled(pooled) => report.pooled.push(pooled),
                        VmafMessage::Window(window) => report.windows.push(window),
                    }
                }
                gst::MessageView::Error(error) => {
                    let _ = self.pipeline.set_state(gst::State::Null);
                    let text = error.error().message().to_string();
                    return Err(Failure { error: error.error(), text, events: report.events });
                }
                gst::MessageView::Eos(_) => {
                    report.buffers = self.buffers.lock().unwrap().clone();
                    return Ok(report);
                }
                _ => {}
            }
        }
        panic!("neither an error nor an end of stream after a minute");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// Returns the scores that these frames have in the whole stream.
pub fn scores_within(sides: &(Input, Input), frames: std::ops::Range<usize>) -> Vec<f64> {
    score(&[], &sides.0, &sides.1).unwrap().scores()[frames].to_vec()
}

/// Plays a pair of inputs through a new element.
pub fn score(properties: &[(&str, &str)], reference: &Input, distorted: &Input) -> Result<Report, Failure> {
    Bench::new(properties).run(reference, distorted)
}

/// Plays a clip through a new element.
pub fn score_clip(properties: &[(&str, &str)], clip: &Clip) -> Report {
    score(properties, &Input::planar(clip, false), &Input::planar(clip, true)).unwrap()
}

/// Returns a sample of a moving picture that never repeats, of any length.
pub fn moving(t: usize, x: usize, y: usize) -> u8 {
    let scene = t / 30;
    let grain = (x * 31 + y * 17 + scene * 7) % 23;
    let x = if scene.is_multiple_of(2) { x } else { 63 - x } as f64 + 300.0 * scene as f64;
    let (t, y) = (t as f64, y as f64);
    let waves = 40.0 * (x * 0.2 + t * 0.22).sin() * (y * 0.15 - t * 0.14).cos();
    let drift = 25.0 * ((x - y) * 0.1 + 3.0 * (t * 0.09).sin()).sin();
    (110.0 + waves + drift) as u8 + grain as u8
}

/// Returns a sample after very bad coding.
pub fn coarse(sample: u8) -> u8 {
    sample / 64 * 64 + 32
}

/// Returns drawn frames of 64x48 pixels with two bits more.
pub fn deep(input: &Input) -> Input {
    let info = VideoInfo::builder(VideoFormat::I42010le, 64, 48)
        .fps(gst::Fraction::new(FPS as i32, 1))
        .build()
        .unwrap();
    let caps = info.to_caps().unwrap();
    let deep = input.0.iter().map(|sample| {
        let old = sample.buffer().unwrap();
        let data = old.map_readable().unwrap();
        let data: Vec<u8> = data.iter().flat_map(|v| (u16::from(*v) << 2).to_le_bytes()).collect();
        let mut buffer = gst::Buffer::from_mut_slice(data);
        old.copy_into(buffer.get_mut().unwrap(), gst::BufferCopyFlags::TIMESTAMPS, ..).unwrap();
        gst::Sample::builder().buffer(&buffer).caps(&caps).build()
    });
    Input(deep.collect())
}

/// Returns the number of this thread.
pub fn thread_id() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}

/// Returns true while a thread of this process sleeps.
pub fn is_asleep(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("Linux");
    // The state is after the name, which may contain anything.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}

/// Returns the flushing seek to the start that players send.
pub fn seek_to_start() -> gst::Event {
    let (start, stop) = (gst::ClockTime::ZERO, gst::ClockTime::NONE);
    gst::event::Seek::new(1.0, gst::SeekFlags::FLUSH, gst::SeekType::Set, start, gst::SeekType::None, stop)
}

/// Polls until the condition holds; panics after a minute. For conditions without a signal to wait for.
#[track_caller]
pub fn until(mut happened: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !happened() {
        assert!(std::time::Instant::now() < end, "nothing after a minute");
        std::thread::yield_now();
    }
}

/// Returns frames of [`moving`], and the same after [`coarse`].
pub fn sides(frames: usize) -> (Input, Input) {
    (Input::drawn(frames, moving), Input::drawn(frames, |t, x, y| coarse(moving(t, x, y))))
}
