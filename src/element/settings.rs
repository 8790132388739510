// SPDX-License-Identifier: MPL-2.0

//! Settings of the user: the enumerations of the properties and the values behind them.

use std::ffi::OsStr;
use std::path::PathBuf;

use engine::metrics::Extractor;
use engine::metrics::feature::Feature;
use engine::metrics::feature_list;
use engine::model::Model;
use engine::model::pool::Pool;
use engine::scale::Method;
use glib::prelude::*;
use gpu::Selection;
use gst::ClockTime;
use watch::alarm::LowLevels;

use super::error::Error;
use super::time::running;

/// Which scores make the pooled one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafPoolMethod")]
pub enum PoolMethod {
    #[enum_value(name = "Smallest score", nick = "min")]
    Min = 1,
    #[enum_value(name = "Largest score", nick = "max")]
    Max = 2,
    #[default]
    #[enum_value(name = "Arithmetic mean", nick = "mean")]
    Mean = 3,
    #[enum_value(name = "Harmonic mean, which weighs bad frames more", nick = "harmonic_mean")]
    HarmonicMean = 4,
}

/// The format of a results file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    Json,
    Xml,
    Csv,
    /// Lines of JSON that lose nothing.
    Exact,
}

/// Format of the results file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafResultsFormat")]
pub enum ResultsFormat {
    #[default]
    #[enum_value(name = "That of the file name's extension (.xml, .csv, .json), else JSON", nick = "none")]
    None = 0,
    #[enum_value(name = "libvmaf's XML log", nick = "xml")]
    Xml = 1,
    #[enum_value(name = "libvmaf's JSON log", nick = "json")]
    Json = 2,
    #[enum_value(name = "libvmaf's CSV log", nick = "csv")]
    Csv = 3,
    #[enum_value(
        name = "Lines of JSON with all digits, to be put together with those of other parts",
        nick = "exact"
    )]
    Exact = 4,
}

/// The reaction to a results file that cannot be written any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafOnResultsError")]
pub enum OnResultsError {
    #[default]
    #[enum_value(
        name = "A warning; the rows so far are kept, and scoring goes on without the file",
        nick = "warning"
    )]
    Warning = 0,
    #[enum_value(name = "An error, which ends the stream; the rows so far are kept", nick = "error")]
    Error = 1,
}

/// Least severe messages that reach the debug log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafLogLevel")]
pub enum LogLevel {
    #[default]
    #[enum_value(name = "Leave the debug threshold as it is", nick = "none")]
    None = 0,
    #[enum_value(name = "Errors", nick = "error")]
    Error = 1,
    #[enum_value(name = "Errors and warnings", nick = "warning")]
    Warning = 2,
    #[enum_value(name = "Also what was chosen and decided", nick = "info")]
    Info = 3,
    #[enum_value(name = "Also the plan, runs, gaps, alignment and latency", nick = "debug")]
    Debug = 4,
}

impl LogLevel {
    /// The debug threshold to raise the category to.
    pub fn threshold(self) -> gst::DebugLevel {
        match self {
            Self::None => gst::DebugLevel::None,
            Self::Error => gst::DebugLevel::Error,
            Self::Warning => gst::DebugLevel::Warning,
            Self::Info => gst::DebugLevel::Info,
            Self::Debug => gst::DebugLevel::Debug,
        }
    }
}

/// The device that computes the features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafBackend")]
pub enum Backend {
    #[default]
    #[enum_value(name = "The best that is there", nick = "auto")]
    Auto = 0,
    #[enum_value(name = "A GPU through HIP", nick = "hip")]
    Hip = 1,
    #[enum_value(name = "The CPU", nick = "cpu")]
    Cpu = 2,
}

/// Whose GPU to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafVendor")]
pub enum Vendor {
    #[default]
    #[enum_value(name = "Whatever is there", nick = "any")]
    Any = 0,
    #[enum_value(name = "AMD", nick = "amd")]
    Amd = 1,
    #[enum_value(name = "NVIDIA", nick = "nvidia")]
    Nvidia = 2,
}

/// The key by which frames are paired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafPairing")]
pub enum Pairing {
    #[default]
    #[enum_value(name = "The running time", nick = "running-time")]
    RunningTime = 0,
    #[enum_value(name = "The number of the frame since the start", nick = "index")]
    Index = 1,
    #[enum_value(name = "The time code", nick = "timecode")]
    Timecode = 2,
    #[enum_value(name = "The reference timestamp", nick = "reference-timestamp")]
    ReferenceTimestamp = 3,
}

/// The treatment of a reference frame without a distorted frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafMissingFrame")]
pub enum MissingFrame {
    #[default]
    #[enum_value(name = "It is not scored", nick = "skip")]
    Skip = 0,
    #[enum_value(name = "It is compared with the last distorted frame, as a viewer saw it", nick = "repeat")]
    Repeat = 1,
    #[enum_value(name = "An error", nick = "error")]
    Error = 2,
}

/// The treatment of pairs that come faster than they can be scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafOverload")]
pub enum Overload {
    #[default]
    #[enum_value(name = "Skip them in live pipelines, else wait", nick = "auto")]
    Auto = 0,
    #[enum_value(name = "Wait, so that every pair is scored", nick = "wait")]
    Wait = 1,
    #[enum_value(name = "Leave them unscored, so that the video goes on", nick = "skip")]
    Skip = 2,
}

/// The reaction to a GPU whose results differ from the CPU's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafOnWrongScore")]
pub enum OnWrongScore {
    #[default]
    #[enum_value(name = "Post the event wrong-score, and go on", nick = "report")]
    Report = 0,
    #[enum_value(name = "Post the event, and go on with the CPU", nick = "cpu")]
    Cpu = 1,
    #[enum_value(name = "Post the event, and an error", nick = "error")]
    Error = 2,
}

/// The video that leaves at the src pad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafOutput")]
pub enum Output {
    #[default]
    #[enum_value(name = "The reference frames as they came in", nick = "reference")]
    Reference = 0,
    #[enum_value(name = "The frames of dist_sink that they are compared with", nick = "distorted")]
    Distorted = 1,
    #[enum_value(
        name = "The reference dimmed, and in colour where dist_sink is damaged or differs visibly",
        nick = "heatmap"
    )]
    Heatmap = 2,
}

/// The treatment of streams with different colorimetry in their caps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafColorimetry")]
pub enum Colorimetry {
    #[default]
    #[enum_value(name = "An error that says how to convert", nick = "strict")]
    Strict = 0,
    #[enum_value(name = "The samples are compared as they are", nick = "ignore")]
    Ignore = 1,
}

/// The method that scales distorted pictures to the size of the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafScaleMethod")]
pub enum ScaleMethod {
    #[default]
    #[enum_value(name = "Not at all: another size is an error", nick = "none")]
    None = 0,
    #[enum_value(name = "Bilinear", nick = "bilinear")]
    Bilinear = 1,
    #[enum_value(name = "Bicubic (Catmull-Rom)", nick = "bicubic")]
    Bicubic = 2,
    #[enum_value(name = "Lanczos with three lobes", nick = "lanczos")]
    Lanczos = 3,
}

impl ScaleMethod {
    /// The kernel, if pictures are scaled.
    pub fn method(self) -> Option<Method> {
        match self {
            Self::None => None,
            Self::Bilinear => Some(Method::Bilinear),
            Self::Bicubic => Some(Method::Bicubic),
            Self::Lanczos => Some(Method::Lanczos),
        }
    }
}

/// Properties that may not change while the element plays. They are read when it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    pub model_filename: Option<String>,
    pub extra_models: Option<String>,
    pub disable_clip: bool,
    pub enable_transform: bool,
    pub phone_model: bool,
    pub conf_interval: bool,
    pub features: Option<String>,
    /// The model or feature that scores, alarms and windows follow.
    pub score: Option<String>,
    pub psnr: bool,
    pub ssim: bool,
    pub ms_ssim: bool,
    /// Size and depth of the encoded video, for CAMBI; 0: those of the frames.
    pub enc_width: u32,
    pub enc_height: u32,
    pub enc_bitdepth: u32,
    pub threads: u32,
    pub subsample: u32,
    pub results_filename: Option<String>,
    pub results_format: ResultsFormat,
    /// Scores that do not count, as the offset is not known yet, are in the results too.
    pub results_provisional: bool,
    /// The results say what made the scores, and how fast.
    pub results_provenance: bool,
    /// Provenance that the application adds: how the video came to be as it is scored.
    pub extra_provenance: Option<gst::Structure>,
    pub on_results_error: OnResultsError,
    pub backend: Backend,
    pub vendor: Vendor,
    /// The runtime's number of the GPU; -1 for the best that can be used.
    pub device_id: i32,
    pub max_in_flight: u32,
    pub attach_meta: bool,
    /// The meta has the distorted frames.
    pub attach_frames: bool,
    pub output: Output,
    pub scale_method: ScaleMethod,
    pub colorimetry: Colorimetry,
    pub pairing: Pairing,
    pub force_live: bool,
    pub metrics_filename: Option<String>,
}

/// Settings of windows and alarms. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchSettings {
    /// Length of the rolling window; 0 for none.
    pub window: u64,
    pub window_interval: u64,
    /// Scores below raise the alarm, scores of at least `alarm_clear` clear it; negative for none.
    pub alarm_low: f64,
    pub alarm_clear: f64,
    pub alarm_hold: u64,
    pub clear_hold: u64,
    /// Share of the frames of a hold that decides, above 0 and at most 1.
    pub alarm_share: f64,
    /// Reference frames without a distorted frame count as low.
    pub alarm_unpaired: bool,
    /// 0 for no alarm.
    pub freeze_time: u64,
    /// Mean absolute change of 8-bit luma.
    pub freeze_level: f64,
    /// 0 for no alarm.
    pub black_time: u64,
    /// Mean luma from 0 to 1.
    pub black_level: f64,
}

impl WatchSettings {
    /// When the score alarm is raised and cleared.
    pub fn low_levels(&self) -> LowLevels {
        LowLevels {
            low: self.alarm_low,
            clear: if self.alarm_clear < 0.0 { self.alarm_low } else { self.alarm_clear },
            raise_hold: self.alarm_hold,
            clear_hold: self.clear_hold,
            share: self.alarm_share,
        }
    }
}

impl Default for WatchSettings {
    fn default() -> Self {
        const SECOND: u64 = ClockTime::SECOND.nseconds();
        Self {
            window: 0,
            window_interval: SECOND,
            alarm_low: -1.0,
            alarm_clear: -1.0,
            alarm_hold: 2 * SECOND,
            clear_hold: 5 * SECOND,
            alarm_share: 0.5,
            alarm_unpaired: false,
            freeze_time: 0,
            freeze_level: 0.1,
            black_time: 0,
            black_level: 0.07,
        }
    }
}

impl PoolMethod {
    /// The pooled value; not a number without scores.
    pub fn of(self, pool: &Pool) -> f64 {
        pool.pooled().map_or(f64::NAN, |pooled| match self {
            Self::Min => pooled.min,
            Self::Max => pooled.max,
            Self::Mean => pooled.mean,
            Self::HarmonicMean => pooled.harmonic_mean,
        })
    }
}

/// Returns the short name of a value of an enum, as users write it.
pub fn nick(value: impl ToValue) -> String {
    let value = value.to_value();
    glib::EnumValue::from_value(&value).map(|(_, value)| value.nick().to_string()).unwrap_or_default()
}

/// Properties that may change while the element plays. A step works on one copy of them, taken when it begins: what changes
/// in between counts from the next step on.
#[derive(Clone, Copy, Debug)]
pub struct Tunables {
    pub pool_method: PoolMethod,
    pub frame_message: bool,
    pub log_level: LogLevel,
    /// Nanoseconds; `u64::MAX` stands for half a reference frame.
    pub pairing_tolerance: u64,
    pub missing_frame: MissingFrame,
    pub overload: Overload,
    pub ignore_inactive_pads: bool,
    /// Nanoseconds of wall time; 0 for no warning.
    pub stall_time: u64,
    /// Share of the groups that a GPU computes which the CPU computes again, 0.0..=1.0.
    pub verify: f64,
    pub on_wrong_score: OnWrongScore,
    /// Those of windows and alarms, in the copy of a step.
    pub watch: WatchSettings,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            pool_method: PoolMethod::default(),
            frame_message: false,
            log_level: LogLevel::default(),
            pairing_tolerance: u64::MAX,
            missing_frame: MissingFrame::default(),
            overload: Overload::default(),
            ignore_inactive_pads: false,
            stall_time: 5 * ClockTime::SECOND.nseconds(),
            verify: 0.001,
            on_wrong_score: OnWrongScore::default(),
            watch: WatchSettings::default(),
        }
    }
}

impl Tunables {
    /// Returns the largest difference in time of frames that belong together; `None` for half a reference frame.
    pub fn tolerance(&self) -> Option<ClockTime> {
        (self.pairing_tolerance != u64::MAX).then(|| running(self.pairing_tolerance))
    }
}

impl Settings {
    /// Combinations that cannot be meant.
    pub fn check(&self, watch: &WatchSettings) -> Result<(), Error> {
        let setting = |property, reason: String| Err(Error::Setting { property, reason });
        let WatchSettings { window, window_interval, alarm_low, alarm_clear, .. } = *watch;
        if alarm_clear >= 0.0 && alarm_clear < alarm_low {
            let reason = format!("{alarm_clear} is below alarm-low, {alarm_low}; it must be at least that");
            return setting("alarm-clear", reason);
        }
        if window > 0 && window < window_interval {
            let reason = format!("{window} ns is shorter than window-interval, {window_interval} ns");
            return setting("window", reason);
        }
        if self.metrics_filename.is_some() && self.metrics_filename == self.results_filename {
            return setting("metrics-filename", "the file is that of results-filename".into());
        }
        Ok(())
    }

    /// The GPU that is wanted.
    pub fn selection(&self) -> Selection {
        Selection {
            vendor: match self.vendor {
                Vendor::Any => None,
                Vendor::Amd => Some(gpu::Vendor::Amd),
                Vendor::Nvidia => Some(gpu::Vendor::Nvidia),
            },
            ordinal: (self.device_id >= 0).then_some(self.device_id),
        }
    }

    /// The GPUs of which it is the one that has the video in its memory, as nothing says which it is to be.
    pub fn follows_input(&self) -> Option<Selection> {
        Some(self.selection()).filter(|all| self.backend != Backend::Cpu && all.ordinal.is_none())
    }

    /// Returns the path and format of the results file, if one is wanted.
    pub fn results(&self) -> Option<(PathBuf, FileFormat)> {
        let path = PathBuf::from(self.results_filename.as_ref()?);
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        let format = match (self.results_format, extension.as_deref().and_then(OsStr::to_str)) {
            (ResultsFormat::Xml, _) | (ResultsFormat::None, Some("xml")) => FileFormat::Xml,
            (ResultsFormat::Csv, _) | (ResultsFormat::None, Some("csv")) => FileFormat::Csv,
            (ResultsFormat::Json | ResultsFormat::None, _) => FileFormat::Json,
            (ResultsFormat::Exact, _) => FileFormat::Exact,
        };
        Some((path, format))
    }

    /// All models, the main one first, and the features that are wanted besides those that they read.
    pub fn wanted(&self) -> Result<(Vec<Model>, Vec<Feature>), Error> {
        let options = self.options()?;
        let options: Vec<_> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let extra = self.extra_models.as_deref().unwrap_or_default().split(';');
        let first = self.model_filename.as_deref().filter(|name| *name != NO_MODEL);
        let names = first.into_iter().chain(extra).map(str::trim);
        let load = |name| Model::load_with(name, &options);
        let models = names.filter(|name| !name.is_empty()).map(load).collect::<Result<_, _>>()?;

        let list = feature_list::parse(self.features.as_deref().unwrap_or_default(), &options)
            .map_err(|err| Error::Setting { property: "features", reason: err.to_string() })?;
        // The list is first, so its options have priority over those of the properties.
        let switches = [(self.psnr, "psnr"), (self.ssim, "float_ssim"), (self.ms_ssim, "float_ms_ssim")];
        let switched =
            switches.into_iter().filter(|(on, _)| *on).filter_map(|(_, name)| Extractor::named(name));
        let features = list.into_iter().chain(switched).flat_map(|extractor| extractor.features(true));
        Ok((models, features.collect()))
    }

    /// Options that hold for all extractors that have them.
    fn options(&self) -> Result<Vec<(&'static str, String)>, Error> {
        let properties = [
            ("enc-width", "enc_width", self.enc_width),
            ("enc-height", "enc_height", self.enc_height),
            ("enc-bitdepth", "enc_bitdepth", self.enc_bitdepth),
        ];
        let set = properties.into_iter().filter(|(.., value)| *value != 0);
        set.map(|(property, option, value)| {
            let value = value.to_string();
            let checked = Extractor::named("cambi").map_or(Ok(false), |mut cambi| cambi.set(option, &value));
            match checked {
                Ok(_) => Ok((option, value)),
                Err(err) => Err(Error::Setting { property, reason: err.to_string() }),
            }
        })
        .collect()
    }
}

/// The model used unless another is set.
pub const DEFAULT_MODEL: &str = "vmaf_v0.6.1";
/// The name that stands for no model.
const NO_MODEL: &str = "none";

impl Default for Settings {
    fn default() -> Self {
        Self {
            model_filename: Some(DEFAULT_MODEL.into()),
            extra_models: None,
            disable_clip: false,
            enable_transform: false,
            phone_model: false,
            conf_interval: false,
            features: None,
            score: None,
            psnr: false,
            ssim: false,
            ms_ssim: false,
            enc_width: 0,
            enc_height: 0,
            enc_bitdepth: 0,
            threads: 0,
            subsample: 1,
            results_filename: None,
            results_format: ResultsFormat::default(),
            results_provisional: false,
            results_provenance: true,
            extra_provenance: None,
            on_results_error: OnResultsError::default(),
            backend: Backend::default(),
            vendor: Vendor::default(),
            device_id: -1,
            max_in_flight: 4,
            attach_meta: true,
            attach_frames: false,
            output: Output::default(),
            scale_method: ScaleMethod::default(),
            colorimetry: Colorimetry::default(),
            pairing: Pairing::default(),
            force_live: false,
            metrics_filename: None,
        }
    }
}
