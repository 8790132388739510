// SPDX-License-Identifier: MPL-2.0

//! The `VMAF` element message: what the element posts, and a typed parser for applications.
//!
//! ```no_run
//! # let bus: gst::Bus = unimplemented!();
//! use gsthipvmaf::message::VmafMessage;
//!
//! for message in bus.iter_timed(None) {
//!     match message.structure().map(VmafMessage::try_from) {
//!         Some(Ok(VmafMessage::Frame(frame))) => println!("frame {}: {}", frame.index, frame.score),
//!         Some(Ok(VmafMessage::Pooled(pooled))) => println!("all: {}", pooled.score),
//!         _ => {}
//!     }
//! }
//! ```

use gst::prelude::*;
use gst::{ClockTime, Structure, StructureRef};
pub use watch::counts::Counts;

use super::named::named;

/// Name of the message structure, the same as that of GStreamer's own `vmaf` element.
pub const NAME: &str = "VMAF";

/// Named values in their reported order.
pub type Values = Vec<(String, f64)>;

named! {
    /// The fate of a frame.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ScoreState {
        /// The frame has a score.
        Scored = "scored",
        /// The frame has a score that does not count: the offset of the distorted video is not known yet (`align=auto`), so
        /// the pair may be wrong.
        Aligning = "aligning",
        /// The frame has a score that does not count: reference frames beside it are missing, so its motion is not that of the
        /// stream.
        Discont = "discont",
        /// There was no distorted frame to compare the frame with.
        #[default]
        Unpaired = "unpaired",
        /// The pair was skipped on purpose (`subsample`), or because pairs came faster than they could be scored
        /// (`overload`).
        Skipped = "skipped",
        /// The frame had to leave before its score existed (live pipelines); the score is in the message.
        Late = "late",
        /// The distorted stream cannot be scored; the event `failed` says why.
        Failed = "failed",
    }
}

/// A message of the element.
#[derive(Clone, Debug, PartialEq)]
pub enum VmafMessage {
    /// Score of one frame, of type `frame`.
    Frame(FrameMessage),
    /// Figures of a section that has ended, of type `pooled`.
    Pooled(PooledMessage),
    /// Figures of the rolling window at the end of an interval, of type `window`.
    Window(PooledMessage),
}

/// Fields of every message: its place in the stream, and its scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Common {
    /// Presentation timestamp of the scored reference frame; pooled: of the end of the last one; not for windows.
    pub timestamp: Option<ClockTime>,
    pub stream_time: Option<ClockTime>,
    pub running_time: Option<ClockTime>,
    /// Duration of the frame; pooled: of all scored frames together; of a window: its length.
    pub duration: Option<ClockTime>,
    /// Sink pad of the distorted stream.
    pub pad: String,
    /// The user's name for that stream; the pad name unless set.
    pub label: String,
    /// Name of the score: that of a model or a feature. See the property `score`.
    pub model: String,
    /// Counts caps changes, flushes and resets of this stream, from 0.
    pub section: u32,
    /// The score: of a model within its range, mostly 0..=100, unless its clipping is disabled; of a feature in its unit.
    pub score: f64,
    /// Bounds of the 95 % confidence interval and the bootstrap standard deviation, with `conf-interval`.
    pub confidence: Option<Confidence>,
    /// Luma PSNR in dB, with `psnr`.
    pub psnr_y: Option<f64>,
    /// Luma SSIM, with `ssim`.
    pub ssim: Option<f64>,
    /// Luma MS-SSIM, with `ms-ssim`.
    pub ms_ssim: Option<f64>,
    /// Score by model name.
    pub models: Values,
    /// Feature values, named as in libvmaf's logs.
    pub features: Values,
}

/// Spread of a bootstrap model's score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Confidence {
    pub low: f64,
    pub high: f64,
    pub stddev: f64,
}

/// Score of one frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameMessage {
    pub common: Common,
    /// Number of the reference frame since the element was started, from 0, paired or not.
    pub index: i32,
    /// [`ScoreState::Scored`], or [`ScoreState::Aligning`] or [`ScoreState::Discont`] if the score does not count.
    pub state: ScoreState,
    /// Running time of the distorted frame it was compared with.
    pub dist_running_time: Option<ClockTime>,
    /// The frame is the first or the last of an unbroken run of pairs.
    pub discont: bool,
    /// The distorted frame stands in for a missing one (`missing-frame=repeat`).
    pub repeated: bool,
    /// Time from handing the pair to the engine to having its score, which includes the wait for the next pair.
    pub compute_time: ClockTime,
}

/// Scores of a section or window condensed into one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PooledMessage {
    pub common: Common,
    /// The pooling of `score`, `psnr_y`, `ssim` and `ms_ssim`: `min`, `max`, `mean` or `harmonic_mean`.
    pub pool_method: String,
    /// Why now: `eos`, `flush`, `caps`, `reset` or `released`; of a window `interval`.
    pub reason: String,
    /// Numbers of frames by result.
    pub counts: Counts,
    pub stats: Stats,
    /// Figures of all scored frames together that are no mean of values of frames, named as in results files: `cvvdp` in
    /// JOD, `axpsnr_y` and `apsnr_y` in dB and the like. After new caps of the reference, a window has those of the frames
    /// since then.
    pub aggregates: Values,
    /// Origin of the scores: version, backend and device, models with SHA-256 of their files, settings. Not in windows.
    pub provenance: Option<Structure>,
}

/// Distribution of the score over the pooled frames. Percentiles are exact in windows, else accurate to 1/4096 of their
/// value. Of a score that is no mean of frames (`cvvdp`), `mean` is the score, there is no `harmonic_mean`, and the others
/// are those of single frames in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub harmonic_mean: f64,
    pub stddev: f64,
    pub p1: f64,
    pub p5: f64,
    pub p10: f64,
    pub p50: f64,
}

impl std::ops::Deref for FrameMessage {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl std::ops::Deref for PooledMessage {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// `values` as a structure of doubles.
pub(crate) fn values_structure(name: &str, values: &Values) -> Structure {
    Structure::from_iter(name, values.iter().map(|(key, value)| (key.as_str(), value.to_send_value())))
}

/// The doubles in field `name` of a structure; empty when there is no such field.
pub(crate) fn values_field(s: &StructureRef, name: &str) -> Values {
    s.get::<Structure>(name)
        .map(|inner| inner.iter().filter_map(|(key, v)| Some((key.to_string(), v.get().ok()?))).collect())
        .unwrap_or_default()
}

impl Common {
    fn to_structure(&self, kind: &str) -> Structure {
        let time = |t: Option<ClockTime>| t.map(ClockTime::nseconds);
        let mut s = Structure::builder(NAME)
            .field_if_some("timestamp", time(self.timestamp))
            .field_if_some("stream-time", time(self.stream_time))
            .field_if_some("running-time", time(self.running_time))
            .field_if_some("duration", time(self.duration))
            .field("score", self.score)
            .field("type", kind)
            .field("pad", &self.pad)
            .field("label", &self.label)
            .field("model", &self.model)
            .field("section", self.section)
            .field_if_some("psnr-y", self.psnr_y)
            .field_if_some("ssim", self.ssim)
            .field_if_some("ms-ssim", self.ms_ssim)
            .build();
        if let Some(c) = &self.confidence {
            s.set("ci-low", c.low);
            s.set("ci-high", c.high);
            s.set("bootstrap-stddev", c.stddev);
        }
        s.set("models", values_structure("models", &self.models));
        s.set("features", values_structure("features", &self.features));
        s
    }

    fn parse(s: &StructureRef) -> Result<Self, ParseError> {
        let time = |name| s.get::<u64>(name).ok().map(ClockTime::from_nseconds);
        Ok(Self {
            timestamp: time("timestamp"),
            stream_time: time("stream-time"),
            running_time: time("running-time"),
            duration: time("duration"),
            pad: field(s, "pad")?,
            label: field(s, "label")?,
            model: field(s, "model")?,
            section: field(s, "section")?,
            score: field(s, "score")?,
            confidence: match (s.get("ci-low"), s.get("ci-high"), s.get("bootstrap-stddev")) {
                (Ok(low), Ok(high), Ok(stddev)) => Some(Confidence { low, high, stddev }),
                _ => None,
            },
            psnr_y: s.get("psnr-y").ok(),
            ssim: s.get("ssim").ok(),
            ms_ssim: s.get("ms-ssim").ok(),
            models: values_field(s, "models"),
            features: values_field(s, "features"),
        })
    }
}

impl FrameMessage {
    pub(crate) fn to_structure(&self) -> Structure {
        let mut s = self.common.to_structure("frame");
        s.set("index", self.index);
        s.set("state", self.state.name());
        s.set("discont", self.discont);
        s.set("repeated", self.repeated);
        s.set("compute-time", self.compute_time.nseconds());
        if let Some(time) = self.dist_running_time {
            s.set("dist-running-time", time.nseconds());
        }
        s
    }
}

impl Stats {
    /// Field names and where their values are, in reported order.
    fn fields_mut(&mut self) -> [(&'static str, &mut f64); 9] {
        [
            ("min", &mut self.min),
            ("max", &mut self.max),
            ("mean", &mut self.mean),
            ("harmonic-mean", &mut self.harmonic_mean),
            ("stddev", &mut self.stddev),
            ("p1", &mut self.p1),
            ("p5", &mut self.p5),
            ("p10", &mut self.p10),
            ("p50", &mut self.p50),
        ]
    }

    /// Field names and values, in reported order.
    pub(crate) fn fields(mut self) -> [(&'static str, f64); 9] {
        self.fields_mut().map(|(name, value)| (name, *value))
    }

    fn parse(s: &StructureRef) -> Result<Self, ParseError> {
        let mut stats = Self::default();
        for (name, value) in stats.fields_mut() {
            *value = field(s, name)?;
        }
        Ok(stats)
    }
}

impl PooledMessage {
    /// `kind`: `pooled` or `window`.
    pub(crate) fn to_structure(&self, kind: &str) -> Structure {
        let mut s = self.common.to_structure(kind);
        s.set("pool-method", &self.pool_method);
        s.set("reason", &self.reason);
        for (name, count) in self.counts.in_messages() {
            s.set(name, count);
        }
        s.set("coverage", self.counts.coverage());
        for (name, value) in self.stats.fields() {
            s.set(name, value);
        }
        s.set("aggregates", values_structure("aggregates", &self.aggregates));
        if let Some(provenance) = &self.provenance {
            s.set("provenance", provenance);
        }
        s
    }

    fn parse(s: &StructureRef, common: Common) -> Result<Self, ParseError> {
        Ok(Self {
            common,
            pool_method: field(s, "pool-method")?,
            reason: field(s, "reason")?,
            counts: Counts::of_message(|name| field(s, name))?,
            stats: Stats::parse(s)?,
            aggregates: values_field(s, "aggregates"),
            provenance: s.get("provenance").ok(),
        })
    }
}

/// Why a structure is no message of this element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("the structure is named {found}, not {expected}")]
    Name { found: String, expected: &'static str },
    #[error("unknown message type {0}")]
    Type(String),
    #[error("field {name}: {reason}")]
    Field { name: &'static str, reason: String },
}

pub(crate) fn field<T: for<'a> glib::value::FromValue<'a> + 'static>(
    s: &StructureRef,
    name: &'static str,
) -> Result<T, ParseError> {
    s.get(name).map_err(|err| ParseError::Field { name, reason: err.to_string() })
}

fn state(s: &StructureRef) -> Result<ScoreState, ParseError> {
    let name = field::<String>(s, "state")?;
    let unknown = || ParseError::Field { name: "state", reason: format!("{name} is none") };
    ScoreState::parse(&name).ok_or_else(unknown)
}

impl TryFrom<&StructureRef> for VmafMessage {
    type Error = ParseError;

    fn try_from(s: &StructureRef) -> Result<Self, ParseError> {
        if s.name() != NAME {
            return Err(ParseError::Name { found: s.name().to_string(), expected: NAME });
        }
        let common = Common::parse(s)?;
        match field::<String>(s, "type")?.as_str() {
            "frame" => Ok(Self::Frame(FrameMessage {
                common,
                index: field(s, "index")?,
                state: state(s)?,
                dist_running_time: s.get("dist-running-time").ok().map(ClockTime::from_nseconds),
                discont: field(s, "discont")?,
                repeated: field(s, "repeated")?,
                compute_time: ClockTime::from_nseconds(field(s, "compute-time")?),
            })),
            "pooled" => PooledMessage::parse(s, common).map(Self::Pooled),
            "window" => PooledMessage::parse(s, common).map(Self::Window),
            other => Err(ParseError::Type(other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common() -> Common {
        Common {
            timestamp: Some(ClockTime::from_seconds(3600)),
            running_time: Some(ClockTime::from_mseconds(40)),
            duration: None,
            pad: "dist_sink".into(),
            label: "720p".into(),
            model: "vmaf_b_v0.6.3".into(),
            section: 2,
            score: 83.85628400042145,
            confidence: Some(Confidence { low: 80.5, high: 86.25, stddev: 1.5 }),
            psnr_y: Some(34.5),
            ssim: Some(0.9375),
            ms_ssim: Some(0.96875),
            models: vec![("vmaf_b_v0.6.3".into(), 83.85628400042145), ("vmaf_v0.6.1neg".into(), 82.0)],
            features: vec![("integer_adm2".into(), 0.9620839149029907)],
            ..Common::default()
        }
    }

    #[test]
    fn messages_survive_the_bus() {
        gst::init().unwrap();
        let frame = FrameMessage {
            common: common(),
            index: 7,
            state: ScoreState::Aligning,
            dist_running_time: Some(ClockTime::from_mseconds(41)),
            discont: true,
            repeated: true,
            compute_time: ClockTime::from_mseconds(3),
        };
        assert_eq!(VmafMessage::try_from(&*frame.to_structure()), Ok(VmafMessage::Frame(frame)));
        let pooled = PooledMessage {
            common: common(),
            pool_method: "harmonic_mean".into(),
            reason: "eos".into(),
            counts: Counts {
                scored: 10,
                unpaired: 2,
                skipped: 1,
                aligning: 4,
                discont: 2,
                repeated: 0,
                dist_unmatched: 6,
                verified: 3,
                wrong: 1,
            },
            provenance: Some(Structure::builder("provenance").field("version", "0.1.0").build()),
            stats: Stats { min: 1.0, max: 2.0, mean: 1.5, p50: 1.25, ..Stats::default() },
            aggregates: vec![("cvvdp".into(), 8.089723), ("axpsnr_y".into(), 41.5)],
        };
        let parse = |kind| VmafMessage::try_from(&*pooled.to_structure(kind));
        assert_eq!(parse("pooled"), Ok(VmafMessage::Pooled(pooled.clone())));
        assert_eq!(parse("window"), Ok(VmafMessage::Window(pooled.clone())));
    }

    #[test]
    fn foreign_structures_are_refused_with_the_reason() {
        gst::init().unwrap();
        let parse = |s: Structure| VmafMessage::try_from(&*s).unwrap_err().to_string();
        assert_eq!(parse(Structure::new_empty("level")), "the structure is named level, not VMAF");
        assert!(parse(Structure::new_empty(NAME)).starts_with("field pad:"));
        let mut unknown = PooledMessage::default().to_structure("pooled");
        unknown.set("type", "sometimes");
        assert_eq!(parse(unknown), "unknown message type sometimes");
    }
}
