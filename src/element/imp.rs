// SPDX-License-Identifier: MPL-2.0

//! The aggregator: properties and virtual functions. Their work is done in [`start`](super::start),
//! [`streaming`](super::streaming) and, for neighbours, [`negotiation`](super::negotiation).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use glib::subclass::Signal;
use glib::translate::{IntoGlibPtr, try_from_glib};
use gpu::Device;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_base::subclass::prelude::*;

use super::caps_wait::CapsWait;
use super::memory::context::Contexts;
use super::messages;
use super::pads::{DISTORTED, HipVmafPad, REFERENCE};
use super::progress::Progress;
use super::run::Run;
use super::settings::{
    Backend, Colorimetry, DEFAULT_MODEL, LogLevel, MissingFrame, OnResultsError, OnWrongScore, Output,
    Overload, Pairing, PoolMethod, ResultsFormat, ScaleMethod, Settings, Tunables, Vendor, WatchSettings,
};
use super::state::State;
use super::upcoming::Upcoming;
use super::{CAT, caps, lock};

/// The property that holds it.
const EXTRA_PROVENANCE: &str = "extra-provenance";

#[derive(Default, glib::Properties)]
#[properties(wrapper_type = super::HipVmaf)]
pub struct HipVmaf {
    #[property(name = "model-filename", get, set, type = Option<String>, member = model_filename,
        default = Some(DEFAULT_MODEL), mutable_ready, nick = "Model",
        blurb = "Built-in model (vmaf_v0.6.1, vmaf_v0.6.1neg, vmaf_4k_v0.6.1, vmaf_4k_v0.6.1neg, vmaf_b_v0.6.3, vmaf_v1.0.16_{,hfr_}{3d0h,5d0h,1d5h_2160,3d0h_2160}) or path of a libvmaf JSON model; none for features alone")]
    #[property(name = "extra-models", get, set, type = Option<String>, member = extra_models,
        mutable_ready, nick = "Extra models",
        blurb = "More models to score in the same pass: names or paths separated by semicolons")]
    #[property(name = "disable-clip", get, set, type = bool, member = disable_clip,
        mutable_ready, nick = "Disable clipping",
        blurb = "Do not limit scores to the range of the model, 0 to 100 as a rule")]
    #[property(name = "enable-transform", get, set, type = bool, member = enable_transform,
        mutable_ready, nick = "Enable transform",
        blurb = "Apply the score transform of the model (the phone model of the v0.6.1 family)")]
    #[property(name = "phone-model", get, set, type = bool, member = phone_model,
        mutable_ready, nick = "Phone model",
        blurb = "Score for viewing on a phone, where damage is seen less; the same as enable-transform")]
    #[property(name = "conf-interval", get, set, type = bool, member = conf_interval,
        mutable_ready, nick = "Confidence interval",
        blurb = "Report the 95 % confidence interval of the score; needs a bootstrap model such as vmaf_b_v0.6.3")]
    #[property(name = "features", get, set, type = Option<String>, member = features,
        mutable_ready, nick = "Features",
        blurb = "Further metrics by libvmaf's names, with options: name[=option=value[:option=value]...] and more after semicolons, as in psnr;adm=adm_csf_mode=2")]
    #[property(name = "score", get, set, type = Option<String>, member = score,
        mutable_ready, nick = "Score",
        blurb = "Model or feature that the score of messages, windows, alarms, statistics and the metrics file is of, cvvdp for the JOD of ColorVideoVDP (default: the first model, without models the first feature)")]
    #[property(name = "psnr", get, set, type = bool, member = psnr,
        mutable_ready, nick = "PSNR", blurb = "Compute PSNR of luma and chroma as well")]
    #[property(name = "ssim", get, set, type = bool, member = ssim,
        mutable_ready, nick = "SSIM", blurb = "Compute SSIM of luma as well")]
    #[property(name = "ms-ssim", get, set, type = bool, member = ms_ssim,
        mutable_ready, nick = "MS-SSIM", blurb = "Compute MS-SSIM of luma as well")]
    #[property(name = "enc-width", get, set, type = u32, member = enc_width, maximum = 7680,
        mutable_ready, nick = "Encoded width",
        blurb = "Width that the video was encoded at, for CAMBI (0 = that of the frames; takes enc-height too)")]
    #[property(name = "enc-height", get, set, type = u32, member = enc_height, maximum = 7680,
        mutable_ready, nick = "Encoded height",
        blurb = "Height that the video was encoded at, for CAMBI (0 = that of the frames; takes enc-width too)")]
    #[property(name = "enc-bitdepth", get, set, type = u32, member = enc_bitdepth, maximum = 16,
        mutable_ready, nick = "Encoded depth",
        blurb = "Bits per sample that the video was encoded with, for CAMBI (0 = those of the frames)")]
    #[property(name = "threads", get, set, type = u32, member = threads, maximum = i32::MAX as u32,
        mutable_ready, nick = "Threads",
        blurb = "Threads for the CPU backend, and for copying to a GPU what lies elsewhere (0 = one for each logical CPU)")]
    #[property(name = "subsample", get, set, type = u32, member = subsample, minimum = 1, maximum = 128,
        default = Settings::default().subsample, mutable_ready, nick = "Subsample",
        blurb = "Score every n-th frame to save time; motion still sees every frame")]
    #[property(name = "results-filename", get, set, type = Option<String>, member = results_filename,
        mutable_ready, nick = "Results file",
        blurb = "File for the scores of all frames, in the schema of libvmaf; has .partial behind its name until it is complete")]
    #[property(name = "results-format", get, set, type = ResultsFormat, member = results_format,
        mutable_ready, nick = "Results format",
        blurb = "Format of the results file",
        builder(ResultsFormat::default()))]
    #[property(name = "results-provisional", get, set, type = bool, member = results_provisional,
        mutable_ready, nick = "Provisional results",
        blurb = "Write scores into the results file that do not count, marked as aligning: those from before align=auto has found the offset")]
    #[property(name = "results-provenance", get, set, type = bool, member = results_provenance,
        mutable_ready, nick = "Results with provenance", default = Settings::default().results_provenance,
        blurb = "Write into the results file what made the scores, and how fast; without it, runs of the same scores have the same file")]
    #[property(name = "on-results-error", get, set, type = OnResultsError, member = on_results_error,
        mutable_ready, nick = "On results error",
        blurb = "What to do when the results file cannot be written any more, as on a full disk",
        builder(OnResultsError::default()))]
    #[property(name = "backend", get, set, type = Backend, member = backend,
        mutable_ready, nick = "Backend",
        blurb = "What computes the scores, which are the same on all",
        builder(Backend::default()))]
    #[property(name = "vendor", get, set, type = Vendor, member = vendor,
        mutable_ready, nick = "Vendor",
        blurb = "Whose GPU may be used",
        builder(Vendor::default()))]
    #[property(name = "device-id", get, set, type = i32, member = device_id, minimum = -1, default = Settings::default().device_id,
        mutable_ready, nick = "Device number",
        blurb = "Number that the vendor's runtime gives the GPU (-1 = the one with the video, else that with the least work)")]
    #[property(name = "max-in-flight", get, set, type = u32, member = max_in_flight, minimum = 1, maximum = 64,
        default = Settings::default().max_in_flight, mutable_ready, nick = "Pairs in flight",
        blurb = "How many groups the GPU works on at a time: more for throughput, fewer for memory and latency")]
    #[property(name = "attach-meta", get, set, type = bool, member = attach_meta, default = Settings::default().attach_meta,
        mutable_ready, nick = "Attach meta",
        blurb = "Hold reference frames until they can carry their scores as HipVmafScoreMeta; else they leave at once")]
    #[property(name = "attach-frames", get, set, type = bool, member = attach_frames,
        mutable_ready, nick = "Attach frames",
        blurb = "Have HipVmafScoreMeta carry the distorted frames as well that were compared with the reference frame")]
    #[property(name = "output", get, set, type = Output, member = output,
        mutable_ready, nick = "Output",
        blurb = "What leaves at the src pad; of several distorted streams, that of dist_sink",
        builder(Output::default()))]
    #[property(name = "scale-method", get, set, type = ScaleMethod, member = scale_method,
        mutable_ready, nick = "Scale method",
        blurb = "How distorted video of another size is scaled to that of the reference before it is scored",
        builder(ScaleMethod::default()))]
    #[property(name = "colorimetry", get, set, type = Colorimetry, member = colorimetry,
        mutable_ready, nick = "Colorimetry",
        blurb = "What to do where caps of both sides say that colours are coded in different ways (range, matrix, transfer, primaries)",
        builder(Colorimetry::default()))]
    #[property(name = "pairing", get, set, type = Pairing, member = pairing,
        mutable_ready, nick = "Pairing",
        blurb = "What a reference frame and the distorted frame that it is compared with have in common",
        builder(Pairing::default()))]
    #[property(name = "force-live", get, set, type = bool, member = force_live,
        construct_only, nick = "Force live",
        blurb = "Wait for no frame longer than the latency of the pipeline, even if no live source is upstream")]
    #[property(name = "metrics-filename", get, set, type = Option<String>, member = metrics_filename,
        mutable_ready, nick = "Metrics file",
        blurb = "File with figures for Prometheus, replaced as a whole once per window-interval")]
    pub(super) settings: Mutex<Settings>,

    #[property(name = "pool-method", get, set, type = PoolMethod, member = pool_method,
        mutable_playing, nick = "Pool method",
        blurb = "How the scores of many frames become one, in pooled and window messages",
        builder(PoolMethod::default()))]
    #[property(name = "frame-message", get, set, type = bool, member = frame_message,
        mutable_playing, nick = "Frame message", blurb = "Post a VMAF message for each scored frame")]
    #[property(name = "log-level", get, set = Self::set_log_level, type = LogLevel, member = log_level,
        mutable_playing, nick = "Log level",
        blurb = "How much the element tells in the debug log of GStreamer (threshold of the category hipvmaf)",
        builder(LogLevel::default()))]
    #[property(name = "pairing-tolerance", get, set, type = u64, member = pairing_tolerance, default = Tunables::default().pairing_tolerance,
        mutable_playing, nick = "Pairing tolerance",
        blurb = "Largest difference in running time, in nanoseconds, of frames that belong together (default: half a reference frame)")]
    #[property(name = "missing-frame", get, set, type = MissingFrame, member = missing_frame,
        mutable_playing, nick = "Missing frame",
        blurb = "What becomes of a reference frame that has no distorted frame",
        builder(MissingFrame::default()))]
    #[property(name = "overload", get, set, type = Overload, member = overload,
        mutable_playing, nick = "Overload",
        blurb = "What to do with pairs that come faster than they can be scored",
        builder(Overload::default()))]
    #[property(name = "ignore-inactive-pads", get, set = Self::set_ignore_inactive, type = bool,
        member = ignore_inactive_pads, mutable_playing, nick = "Ignore inactive pads",
        blurb = "In live pipelines, do not wait for streams that have never delivered a frame")]
    #[property(name = "stall-time", get, set, type = u64, member = stall_time, default = Tunables::default().stall_time,
        mutable_playing, nick = "Stall time",
        blurb = "Warn when a sink pad has had nothing for so many nanoseconds while frames wait at another one (0 = off)")]
    #[property(name = "verify", get, set, type = f64, member = verify,
        minimum = 0.0, maximum = 1.0, default = Tunables::default().verify, mutable_playing, nick = "Verify",
        blurb = "Share of the groups scored on a GPU that the CPU computes again, to compare all sums (0 = none)")]
    #[property(name = "on-wrong-score", get, set, type = OnWrongScore, member = on_wrong_score,
        mutable_playing, nick = "On wrong score",
        blurb = "What to do when a GPU has computed something else than the CPU",
        builder(OnWrongScore::default()))]
    pub(super) tunables: Mutex<Tunables>,

    #[property(name = "window", get, set, type = u64, member = window,
        mutable_playing, nick = "Window",
        blurb = "Length of the rolling window in nanoseconds, for which a VMAF message is posted once per window-interval (0 = off)")]
    #[property(name = "window-interval", get, set, type = u64, member = window_interval,
        minimum = 1_000_000, default = WatchSettings::default().window_interval, mutable_playing, nick = "Window interval",
        blurb = "Nanoseconds between messages of the rolling window, and between updates of the metrics file")]
    #[property(name = "alarm-low", get, set, type = f64, member = alarm_low,
        minimum = -1.0, maximum = 110.0, default = WatchSettings::default().alarm_low, mutable_playing, nick = "Alarm level",
        blurb = "Raise an alarm when scores stay below this (-1 = off)")]
    #[property(name = "alarm-clear", get, set, type = f64, member = alarm_clear,
        minimum = -1.0, maximum = 110.0, default = WatchSettings::default().alarm_clear, mutable_playing, nick = "Clear level",
        blurb = "Clear the alarm when scores stay at this or above (-1 = alarm-low)")]
    #[property(name = "alarm-hold", get, set, type = u64, member = alarm_hold, default = WatchSettings::default().alarm_hold,
        mutable_playing, nick = "Alarm hold",
        blurb = "Nanoseconds over which alarm-share of the scores must be low before the alarm is raised")]
    #[property(name = "clear-hold", get, set, type = u64, member = clear_hold, default = WatchSettings::default().clear_hold,
        mutable_playing, nick = "Clear hold",
        blurb = "Nanoseconds over which alarm-share of the scores must be good before the alarm is cleared")]
    #[property(name = "alarm-share", get, set, type = f64, member = alarm_share,
        minimum = 0.01, maximum = 1.0, default = WatchSettings::default().alarm_share, mutable_playing, nick = "Alarm share",
        blurb = "Share of the frames of alarm-hold, or clear-hold, that decides (1 = all of them, so that a single good frame begins the hold anew)")]
    #[property(name = "alarm-unpaired", get, set, type = bool, member = alarm_unpaired,
        mutable_playing, nick = "Alarm on unpaired frames",
        blurb = "Count reference frames without a distorted frame as low scores")]
    #[property(name = "freeze-time", get, set, type = u64, member = freeze_time,
        mutable_playing, nick = "Freeze time",
        blurb = "Report a distorted picture that stands still for so many nanoseconds while the reference moves (0 = off)")]
    #[property(name = "freeze-level", get, set, type = f64, member = freeze_level,
        minimum = 0.0, maximum = 255.0, default = WatchSettings::default().freeze_level, mutable_playing, nick = "Freeze level",
        blurb = "Mean absolute change of luma, on the scale of 8 bits, below which a picture stands still")]
    #[property(name = "black-time", get, set, type = u64, member = black_time,
        mutable_playing, nick = "Black time",
        blurb = "Report a distorted picture that is black for so many nanoseconds while the reference is not (0 = off)")]
    #[property(name = "black-level", get, set, type = f64, member = black_level,
        minimum = 0.0, maximum = 1.0, default = WatchSettings::default().black_level, mutable_playing, nick = "Black level",
        blurb = "Mean luma, from 0 to 1 of the sample range, below which a picture is black")]
    pub(super) watch: Mutex<WatchSettings>,

    #[property(name = "backend-name", get = Self::backend_name, type = Option<String>,
        nick = "Backend name", blurb = "The backend in use, when running")]
    #[property(name = "device-name", get = Self::device_name, type = Option<String>,
        nick = "Device name", blurb = "The GPU in use with its target and place on the bus, when running on one")]
    pub(super) run: Mutex<Arc<Run>>,
    /// Open from READY on.
    pub(super) gpu: Mutex<Option<Arc<Device>>>,
    pub(super) contexts: Mutex<Contexts>,
    /// Frames that were queued and results that came.
    pub(super) progress: Arc<Progress>,
    pub(super) caps_wait: Arc<CapsWait>,
    /// The latency that was reported last, in nanoseconds.
    pub(super) latency: AtomicU64,
    /// The clock and the time at which the pipeline started are known.
    pub(super) playing: AtomicBool,
    /// A buffer that goes no further than to the source pad is pushed, see [`HipVmaf::watch_source`].
    pub(super) introducing: Arc<AtomicBool>,
    /// The number that the next rendition gets; no other has it in the life of the element.
    pub(super) next_number: AtomicU64,
    /// Statistics of the last run, kept after the stop.
    pub(super) last_stats: Mutex<Option<gst::Structure>>,
    /// The frames that upstream has handed over at each sink pad, by the pad's name.
    upcoming: Mutex<HashMap<String, Arc<Upcoming>>>,
    reference: OnceLock<AggregatorPad>,
}

impl HipVmaf {
    /// Returns the present run; between stop and start one without anything in it.
    pub(super) fn run(&self) -> Arc<Run> {
        lock(&self.run).clone()
    }

    fn set_log_level(&self, level: LogLevel) {
        lock(&self.tunables).log_level = level;
        if level != LogLevel::None {
            CAT.set_threshold(level.threshold());
        }
    }

    fn backend_name(&self) -> Option<String> {
        lock(&self.run().state).as_ref().map(|state| state.used().name.to_string())
    }

    fn device_name(&self) -> Option<String> {
        lock(&self.run().state).as_ref().and_then(State::device_name)
    }

    fn stats(&self) -> gst::Structure {
        let running = lock(&self.run().state).as_ref().map(State::stats);
        let counts = self.messages().map(|messages| messages.counts()).unwrap_or_default();
        running
            .map(|stats| counts.add_to(stats))
            .or_else(|| lock(&self.last_stats).clone())
            .unwrap_or_else(|| gst::Structure::new_empty("stats"))
    }

    /// Statistics of one distorted stream.
    pub fn pad_stats(&self, pad: &HipVmafPad) -> Option<gst::Structure> {
        lock(&self.run().state).as_ref().and_then(|state| state.pad_stats(pad))
    }

    /// A copy of the settings that may change at any time.
    pub(super) fn tunables(&self) -> Tunables {
        Tunables { watch: *lock(&self.watch), ..*lock(&self.tunables) }
    }

    fn set_ignore_inactive(&self, ignore: bool) {
        lock(&self.tunables).ignore_inactive_pads = ignore;
        // Not the property's setter, which calls this.
        AggregatorExt::set_ignore_inactive_pads(self.obj().upcast_ref::<gst_base::Aggregator>(), ignore);
    }

    fn template(&self, name: &str) -> gst::PadTemplate {
        self.obj().pad_template(name).expect("the class has this template")
    }

    /// The sink pad of the reference.
    pub(super) fn reference(&self) -> &AggregatorPad {
        self.reference.get_or_init(|| {
            gst::PadBuilder::<AggregatorPad>::from_template(&self.template(REFERENCE)).build()
        })
    }

    /// The sink pads of distorted video.
    pub(super) fn distorted(&self) -> Vec<HipVmafPad> {
        self.obj().sink_pads().into_iter().filter_map(|pad| pad.downcast().ok()).collect()
    }

    /// Lets the streaming task go on with each frame that comes to a new sink pad, once the base class has queued it: a task
    /// that looks before that sees nothing, and sleeps beside a frame that has come. A probe is too early, and only the base
    /// class's own wait hears that it has queued a frame. So the function that queues frames is wrapped: it waits for room
    /// first, and returns as soon as the frame is queued.
    ///
    /// The frame is noted in [`Upcoming`] before there is room for it.
    fn watch_frames(&self, pad: &impl IsA<gst::Pad>) {
        let pad: &gst::Pad = pad.upcast_ref();
        let upcoming = self.upcoming(pad);
        let (noted, progress) = (upcoming.clone(), self.progress.clone());
        let kinds = gst::PadProbeType::EVENT_DOWNSTREAM
            | gst::PadProbeType::EVENT_FLUSH
            | gst::PadProbeType::QUERY_DOWNSTREAM
            | gst::PadProbeType::PUSH;
        pad.add_probe(kinds, move |_, info| {
            match &info.data {
                Some(gst::PadProbeData::Event(event)) => noted.event(event),
                Some(gst::PadProbeData::Query(query)) if query.is_serialized() => noted.boundary(),
                _ => return gst::PadProbeReturn::Ok,
            }
            progress.made();
            gst::PadProbeReturn::Ok
        });
        // SAFETY: a live pad, which no other thread has.
        let queue = unsafe { (*pad.as_ptr()).chainfunc }.expect("the base class takes what comes");
        let progress = self.progress.clone();
        let chain = move |pad: &gst::Pad, parent: Option<&gst::Object>, buffer: gst::Buffer| {
            let parent = parent.map_or(std::ptr::null_mut(), |parent| parent.as_ptr());
            let address = buffer.as_ptr();
            upcoming.frame(buffer.clone());
            progress.made();
            // SAFETY: what this pad was made with, called as GStreamer would call it, and given the buffer.
            let flow = unsafe { queue(pad.as_ptr(), parent, buffer.into_glib_ptr()) };
            // SAFETY: a result of GStreamer's.
            let flow: Result<gst::FlowSuccess, gst::FlowError> = unsafe { try_from_glib(flow) };
            if flow.is_err() {
                upcoming.refused(address);
            }
            progress.made();
            flow
        };
        // SAFETY: no frame can come yet, as no other thread has the pad.
        unsafe { pad.set_chain_function(chain) };
    }

    /// Returns the frames that upstream has handed over at a sink pad.
    pub(super) fn upcoming(&self, pad: &impl IsA<gst::Pad>) -> Arc<Upcoming> {
        lock(&self.upcoming).entry(pad.as_ref().name().to_string()).or_default().clone()
    }

    /// A flush waits for the streaming task, which has to hear of it. The pad is flushing by the time that the event passes.
    ///
    /// A buffer that was only pushed for what the base class sends before the first one goes no further, and no other probe
    /// sees it, as this is the first.
    fn watch_source(&self) {
        let progress = self.progress.clone();
        let source = self.obj().src_pad().clone();
        source.add_probe(gst::PadProbeType::EVENT_FLUSH, move |_, _| {
            progress.made();
            gst::PadProbeReturn::Ok
        });
        let introducing = self.introducing.clone();
        source.add_probe(gst::PadProbeType::BUFFER, move |_, _| match introducing.load(Ordering::Acquire) {
            true => gst::PadProbeReturn::Drop,
            false => gst::PadProbeReturn::Ok,
        });
    }

    /// Caps that arrive at the reference are known before the frames that are queued there have been looked at.
    fn watch_arrival(&self) {
        let caps_wait = self.caps_wait.clone();
        self.reference().add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
            if let Some(event) = info.event() {
                caps_wait.hear(event);
            }
            gst::PadProbeReturn::Ok
        });
    }
}

#[glib::object_subclass]
impl ObjectSubclass for HipVmaf {
    const NAME: &'static str = "GstHipVmaf";
    type Type = super::HipVmaf;
    type ParentType = gst_base::Aggregator;
    type Interfaces = (gst::ChildProxy,);
}

impl ObjectImpl for HipVmaf {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            // The derive macro knows no structures.
            let stats = glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                .nick("Statistics")
                .blurb("Counters and scores since the element was started")
                .read_only()
                .build();
            let extra = glib::ParamSpecBoxed::builder::<gst::Structure>(EXTRA_PROVENANCE)
                .nick("Extra provenance")
                .blurb("More about the origin of the scores, added to their provenance: fields that are strings or arrays of strings")
                .mutable_ready()
                .build();
            HipVmaf::derived_properties().iter().cloned().chain([stats, extra]).collect()
        });
        &PROPERTIES
    }

    fn property(&self, id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        match pspec.name() {
            "stats" => self.stats().to_value(),
            EXTRA_PROVENANCE => lock(&self.settings).extra_provenance.to_value(),
            _ => self.derived_property(id, pspec),
        }
    }

    fn set_property(&self, id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        match pspec.name() {
            EXTRA_PROVENANCE => lock(&self.settings).extra_provenance = value.get().unwrap_or_default(),
            _ => self.derived_set_property(id, value, pspec),
        }
        self.settings_changed();
    }

    fn signals() -> &'static [Signal] {
        static SIGNALS: LazyLock<Vec<Signal>> = LazyLock::new(|| {
            let reset = Signal::builder("reset-stats").action().class_handler(|args| {
                if let Some(element) = args.first().and_then(|arg| arg.get::<super::HipVmaf>().ok()) {
                    element.imp().reset_stats();
                }
                None
            });
            vec![reset.build()]
        });
        &SIGNALS
    }

    fn constructed(&self) {
        self.parent_constructed();
        let obj = self.obj();
        AggregatorExt::set_force_live(
            obj.upcast_ref::<gst_base::Aggregator>(),
            lock(&self.settings).force_live,
        );
        let distorted = gst::PadBuilder::<HipVmafPad>::from_template(&self.template(DISTORTED)).build();
        for pad in [self.reference(), distorted.upcast_ref()] {
            self.watch_frames(pad);
            obj.add_pad(pad).expect("the element is new and has no pad of this name");
        }
        self.watch_source();
        self.watch_arrival();
    }
}

impl GstObjectImpl for HipVmaf {}

impl ChildProxyImpl for HipVmaf {
    fn child_by_name(&self, name: &str) -> Option<glib::Object> {
        self.obj().static_pad(name).map(|pad| pad.upcast())
    }

    fn child_by_index(&self, index: u32) -> Option<glib::Object> {
        self.obj().pads().get(index as usize).map(|pad| pad.clone().upcast())
    }

    fn children_count(&self) -> u32 {
        u32::from(self.obj().num_pads())
    }
}

impl ElementImpl for HipVmaf {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Perceptual video quality (VMAF)",
                "Filter/Analyzer/Video",
                "Scores the perceptual quality of distorted video against its reference (VMAF, PSNR), frame by frame",
                "The hipvmaf developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let template = |name, direction, presence, gtype| {
                gst::PadTemplate::with_gtype(name, direction, presence, &caps::TEMPLATE, gtype)
                    .expect("the caps are valid")
            };
            use gst::PadDirection::{Sink, Src};
            use gst::PadPresence::{Always, Request};
            vec![
                template(REFERENCE, Sink, Always, AggregatorPad::static_type()),
                template(DISTORTED, Sink, Always, HipVmafPad::static_type()),
                template("dist_%u", Sink, Request, HipVmafPad::static_type()),
                template("src", Src, Always, AggregatorPad::static_type()),
            ]
        });
        TEMPLATES.as_ref()
    }

    fn request_new_pad(
        &self,
        template: &gst::PadTemplate,
        name: Option<&str>,
        caps: Option<&gst::Caps>,
    ) -> Option<gst::Pad> {
        let pad = self.parent_request_new_pad(template, name, caps)?;
        let distorted = pad.downcast_ref::<HipVmafPad>()?;
        if self.add_rendition(distorted).is_err() {
            self.parent_release_pad(&pad);
            return None;
        }
        self.obj().child_added(distorted, &distorted.name());
        Some(pad)
    }

    fn release_pad(&self, pad: &gst::Pad) {
        if let Some(distorted) = pad.downcast_ref::<HipVmafPad>() {
            self.release_rendition(distorted);
            self.obj().child_removed(distorted, &distorted.name());
        }
        lock(&self.upcoming).remove(pad.name().as_str());
        self.parent_release_pad(pad);
    }

    /// Every message of the element comes by here, those of the base class too.
    fn post_message(&self, message: gst::Message) -> bool {
        match self.messages().filter(|_| messages::is_queued(&message)) {
            Some(messages) => messages.post(message).map_or_else(|message| self.post_now(message), |()| true),
            None => self.post_now(message),
        }
    }

    fn set_context(&self, context: &gst::Context) {
        lock(&self.contexts).store(context);
        self.parent_set_context(context);
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        match transition {
            gst::StateChange::NullToReady => {
                if let Err(err) = self.check() {
                    self.post_error_message(err.message());
                    return Err(gst::StateChangeError);
                }
            }
            gst::StateChange::PausedToPlaying => {
                let now = self.obj().current_running_time();
                if let Some(state) = lock(&self.run().state).as_mut() {
                    state.begin(now);
                }
                self.playing.store(true, Ordering::Release);
            }
            gst::StateChange::PausedToReady => {
                self.run().stopping.store(true, Ordering::Release);
                self.caps_wait.end();
                self.progress.made();
            }
            _ => {}
        }
        let result = self.parent_change_state(transition);
        match transition {
            gst::StateChange::PlayingToPaused => self.playing.store(false, Ordering::Release),
            gst::StateChange::ReadyToNull => drop(lock(&self.gpu).take()),
            _ => {}
        }
        result
    }
}

/// Returns true for events that the base class queues with the frames.
fn is_queued(event: &gst::EventRef) -> bool {
    event.is_serialized() && event.type_() != gst::EventType::FlushStop
}

impl AggregatorImpl for HipVmaf {
    fn create_new_pad(
        &self,
        template: &gst::PadTemplate,
        name: Option<&str>,
        _caps: Option<&gst::Caps>,
    ) -> Option<AggregatorPad> {
        let obj = self.obj();
        let is_free = |name: &String| obj.static_pad(name).is_none();
        let numbered = || (0u32..).map(|number| format!("dist_{number}")).find(is_free);
        let name = match name {
            Some(name) if name.strip_prefix("dist_").is_some_and(|number| number.parse::<u32>().is_ok()) => {
                Some(name.to_string()).filter(is_free)
            }
            _ => numbered(),
        }?;
        let pad = gst::PadBuilder::<HipVmafPad>::from_template(template).name(name).build();
        self.watch_frames(&pad);
        // The base class adds the pad as if it had just been made by `g_object_new`, whose reference is floating, and the
        // bindings hand over one that is not: without this the pad would never be freed.
        // SAFETY: a live object with a single reference, which is handed over.
        unsafe { glib::gobject_ffi::g_object_force_floating(pad.as_ptr().cast()) };
        Some(pad.upcast())
    }

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        self.open().map_err(|err| {
            self.close();
            err.message()
        })
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        self.close();
        Ok(())
    }

    fn aggregate(&self, timeout: bool) -> Result<gst::FlowSuccess, gst::FlowError> {
        let flow = self.step_on(timeout);
        if flow == Err(gst::FlowError::Error) {
            self.wait_until_reported();
        }
        flow
    }

    fn next_time(&self) -> Option<gst::ClockTime> {
        self.wake_up()
    }

    fn flush(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.flush_all()
    }

    fn negotiate(&self) -> bool {
        // Output caps are those of the reference, set when its caps arrive.
        true
    }

    fn peek_next_sample(&self, pad: &AggregatorPad) -> Option<gst::Sample> {
        let buffer = pad.peek_buffer()?;
        let segment = pad.segment();
        let builder = gst::Sample::builder().buffer(&buffer).segment(&segment);
        Some(match pad.current_caps() {
            Some(caps) => builder.caps(&caps).build(),
            None => builder.build(),
        })
    }

    fn sink_event(&self, pad: &AggregatorPad, event: gst::Event) -> bool {
        if is_queued(&event) {
            self.upcoming(pad).end_serialized();
        }
        if event.type_() == gst::EventType::FlushStop {
            // The base class may hand out the frame at the head until then.
            let handled = self.parent_sink_event(pad, event);
            self.flush_pad(pad);
            return handled;
        }
        if let gst::EventView::Tag(tag) = event.view()
            && let Some(orientation) = tag.tag().get::<gst::tags::ImageOrientation>()
        {
            self.take_orientation(pad, Some(orientation.get()));
        }
        match event.view() {
            gst::EventView::Caps(caps) => return self.take_caps(pad, caps.caps()),
            gst::EventView::Segment(segment) => {
                self.take_segment(pad, segment.segment().clone(), event.seqnum());
            }
            // Nothing comes any more that would take the place of the last frame.
            gst::EventView::Eos(_) => self.copy_kept(pad),
            gst::EventView::StreamStart(_) => self.take_orientation(pad, None),
            // The base class makes of these what it needs, and lets none of them leave.
            gst::EventView::Gap(_) | gst::EventView::FlushStart(_) => {}
            _ if pad != self.reference() => return true,
            _ if event.is_serialized() => {
                self.take_event(event);
                return true;
            }
            _ => {}
        }
        self.parent_sink_event(pad, event)
    }

    fn sink_event_pre_queue(
        &self,
        pad: &AggregatorPad,
        event: gst::Event,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        if !is_queued(&event) {
            return self.parent_sink_event_pre_queue(pad, event);
        }
        let upcoming = self.upcoming(pad);
        upcoming.begin_serialized();
        let queued = self.parent_sink_event_pre_queue(pad, event);
        if queued.is_err() {
            upcoming.end_serialized();
        }
        self.progress.made();
        queued
    }

    fn sink_query_pre_queue(&self, pad: &AggregatorPad, query: &mut gst::QueryRef) -> bool {
        if !query.is_serialized() {
            return self.parent_sink_query_pre_queue(pad, query);
        }
        let upcoming = self.upcoming(pad);
        upcoming.begin_serialized();
        self.progress.made();
        // Returns once the query is answered.
        let answered = self.parent_sink_query_pre_queue(pad, query);
        upcoming.end_serialized();
        answered
    }

    fn sink_query(&self, pad: &AggregatorPad, query: &mut gst::QueryRef) -> bool {
        if lock(&self.contexts).answer(query) {
            return true;
        }
        match query.view_mut() {
            gst::QueryViewMut::Caps(query) => {
                self.answer_caps(pad, query);
                true
            }
            gst::QueryViewMut::AcceptCaps(query) => {
                let accepted = query.caps().is_subset(&caps::ANY);
                query.set_result(accepted);
                true
            }
            gst::QueryViewMut::Allocation(query) => {
                self.answer_allocation(pad, query);
                true
            }
            gst::QueryViewMut::Drain(query) => {
                self.drain(pad, query);
                true
            }
            _ => self.parent_sink_query(pad, query),
        }
    }

    fn src_event(&self, event: gst::Event) -> bool {
        if let gst::EventView::Latency(latency) = event.view() {
            self.run().configured_latency.store(latency.latency().nseconds(), Ordering::Relaxed);
        }
        match event.type_() {
            // A late sink must not make upstream drop frames that are to be scored.
            gst::EventType::Qos | gst::EventType::Navigation => true,
            gst::EventType::Reconfigure => {
                self.pass_on_reconfigure();
                self.parent_src_event(event)
            }
            _ => self.parent_src_event(event),
        }
    }

    fn src_query(&self, query: &mut gst::QueryRef) -> bool {
        if lock(&self.contexts).answer(query) {
            return true;
        }
        match query.view_mut() {
            gst::QueryViewMut::Position(_) | gst::QueryViewMut::Duration(_) => {
                self.reference().peer_query(query)
            }
            _ => self.parent_src_query(query),
        }
    }
}
