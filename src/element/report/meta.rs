// SPDX-License-Identifier: MPL-2.0

//! The scores that travel with each reference buffer, as the custom meta `HipVmafScoreMeta`.
//!
//! ```no_run
//! # let buffer: gst::Buffer = unimplemented!();
//! use gsthipvmaf::meta::ScoreMeta;
//!
//! if let Some(meta) = ScoreMeta::from_buffer(&buffer) {
//!     for pad in &meta.scores {
//!         println!("frame {} {}: {:?}", meta.index, pad.label, pad.score);
//!     }
//! }
//! ```

use gst::meta::CustomMeta;
use gst::{BufferRef, ClockTime, Structure, StructureRef};

pub use super::message::ScoreState;
use super::message::{Values, values_field, values_structure};

/// Field of a distorted frame.
const FRAME: &str = "frame";

/// Name under which the meta is registered.
pub const NAME: &str = "HipVmafScoreMeta";

/// Score of one distorted stream for the frame that carries the meta.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PadScore {
    /// Sink pad of the distorted stream.
    pub pad: String,
    /// The user's name for it; the pad name unless set.
    pub label: String,
    /// Counts caps changes, flushes and resets of this stream, from 0; as in its messages.
    pub section: u32,
    pub state: ScoreState,
    /// Score of the first model, present when `state` is [`ScoreState::Scored`], [`ScoreState::Aligning`]
    /// or [`ScoreState::Discont`].
    pub score: Option<f64>,
    /// Score by model name.
    pub models: Values,
    /// Feature values, named as in libvmaf's logs.
    pub features: Values,
}

/// The meta's content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreMeta {
    /// Number of the reference frame since the element was started, from 0.
    pub index: i32,
    /// The section of `dist_sink`; each entry of `scores` has its own.
    pub section: u32,
    pub running_time: Option<ClockTime>,
    /// One entry for each distorted stream.
    pub scores: Vec<PadScore>,
}

/// Registers the meta; once per process, at plugin load.
pub(crate) fn register() {
    if !CustomMeta::is_registered(NAME) {
        CustomMeta::register(NAME, &[]);
    }
}

impl PadScore {
    fn to_structure(&self) -> Structure {
        Structure::builder("score")
            .field("pad", &self.pad)
            .field("label", &self.label)
            .field("section", self.section)
            .field("state", self.state.name())
            .field_if_some("score", self.score)
            .field("models", values_structure("models", &self.models))
            .field("features", values_structure("features", &self.features))
            .build()
    }

    fn parse(s: &StructureRef) -> Option<Self> {
        Some(Self {
            pad: s.get("pad").ok()?,
            label: s.get("label").ok()?,
            section: s.get("section").ok()?,
            state: ScoreState::parse(s.get("state").ok()?)?,
            score: s.get("score").ok(),
            models: values_field(s, "models"),
            features: values_field(s, "features"),
        })
    }
}

impl ScoreMeta {
    /// The scores a buffer carries, if it went through the element.
    pub fn from_buffer(buffer: &BufferRef) -> Option<Self> {
        let meta = CustomMeta::from_buffer(buffer, NAME).ok()?;
        let s = meta.structure();
        let scores = s.get::<&StructureRef>("scores").ok()?;
        Some(Self {
            index: s.get("index").ok()?,
            section: s.get("section").ok()?,
            running_time: s.get("running-time").ok().map(ClockTime::from_nseconds),
            scores: scores.iter().filter_map(|(_, value)| PadScore::parse(value.get().ok()?)).collect(),
        })
    }

    /// The distorted frame that was compared with the one that carries the meta, if it was wanted
    /// (`attach-frames`) and there was one; by the name of the sink pad that it came through.
    pub fn frame(buffer: &BufferRef, pad: &str) -> Option<gst::Sample> {
        let meta = CustomMeta::from_buffer(buffer, NAME).ok()?;
        let scores = meta.structure().get::<&StructureRef>("scores").ok()?;
        scores.get::<&StructureRef>(pad).ok()?.get(FRAME).ok()
    }

    /// Gives a buffer the meta, with frames by the names of their pads.
    pub(crate) fn attach(
        &self,
        buffer: &mut BufferRef,
        frames: impl IntoIterator<Item = (glib::GString, gst::Sample)>,
    ) -> Result<(), glib::BoolError> {
        let mut meta = CustomMeta::add(buffer, NAME)?;
        let s = meta.mut_structure();
        s.set("index", self.index);
        s.set("section", self.section);
        if let Some(time) = self.running_time {
            s.set("running-time", time.nseconds());
        }
        // Not a list, which PyGObject cannot read. The structures are moved in: copies of all features would take as long
        // as all else that is done for a frame here.
        let mut scores = Structure::new_empty("scores");
        let mut frames: Vec<_> = frames.into_iter().collect();
        for score in &self.scores {
            let mut of_pad = score.to_structure();
            if let Some(found) = frames.iter().position(|(pad, _)| *pad == score.pad) {
                of_pad.set(FRAME, frames.swap_remove(found).1);
            }
            scores.set(score.pad.as_str(), of_pad);
        }
        s.set("scores", scores);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_survives_buffer_copies() {
        gst::init().unwrap();
        register();
        let meta = ScoreMeta {
            index: 3,
            section: 1,
            running_time: Some(ClockTime::from_mseconds(120)),
            scores: vec![
                PadScore {
                    pad: "dist_sink".into(),
                    label: "720p".into(),
                    section: 1,
                    state: ScoreState::Scored,
                    score: Some(91.5),
                    models: vec![("vmaf_v0.6.1".into(), 91.5)],
                    features: vec![("integer_adm2".into(), 0.75)],
                },
                PadScore { pad: "dist_0".into(), label: "dist_0".into(), ..PadScore::default() },
            ],
        };
        let mut buffer = gst::Buffer::with_size(16).unwrap();
        let distorted = gst::Sample::builder().buffer(&gst::Buffer::with_size(7).unwrap()).build();
        meta.attach(buffer.make_mut(), [("dist_0".into(), distorted)]).unwrap();
        let copy = buffer.copy();
        assert_eq!(ScoreMeta::from_buffer(&copy), Some(meta));
        assert_eq!(ScoreMeta::frame(&copy, "dist_0").unwrap().buffer().unwrap().size(), 7);
        assert!(ScoreMeta::frame(&copy, "dist_sink").is_none());
        assert_eq!(ScoreMeta::from_buffer(&gst::Buffer::new()), None);
    }
}
