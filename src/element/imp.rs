// SPDX-License-Identifier: MPL-2.0

//! The aggregator: properties and virtual functions, thin over [`super::stream`].

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use engine::EngineError;
use engine::backend::cpu::Cpu;
use engine::backend::hip::Hip;
use engine::backend::{self, Backend as _, BackendError};
use engine::model::ScoreOptions;
use engine::plan::Plan;
use engine::session::Session;
use glib::subclass::Signal;
use gpu::Device;
use gst::format::Buffers;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_base::subclass::prelude::*;
use watch::prometheus;

use super::allocator::PinnedAllocator;
use super::caps::filtered;
use super::completion::{Collector, Progress};
use super::context::Contexts;
use super::delay::Heat;
use super::device_memory::Kind;
use super::error::Error;
use super::pads::HipVmafPad;
use super::painter::Painter;
use super::pairing::Step;
use super::settings::{
    Backend, DEFAULT_MODEL, Live, LogLevel, MissingFrame, Output, Overload, Pairing, PoolMethod,
    ResultsFormat, ScaleMethod, Settings, Vendor, Watch,
};
use super::stream::{Action, Clock, Fallback, Stream};
use super::{CAT, allocation, caps, lock};

#[derive(Default, glib::Properties)]
#[properties(wrapper_type = super::HipVmaf)]
pub struct HipVmaf {
    #[property(name = "model-filename", get, set, type = Option<String>, member = model_filename,
        default = Some(DEFAULT_MODEL), mutable_ready, nick = "Model",
        blurb = "Built-in model (vmaf_v0.6.1, vmaf_v0.6.1neg, vmaf_4k_v0.6.1, vmaf_4k_v0.6.1neg, vmaf_b_v0.6.3, vmaf_v1.0.16_{,hfr_}{3d0h,5d0h,1d5h_2160,3d0h_2160}) or path of a libvmaf JSON model")]
    #[property(name = "extra-models", get, set, type = Option<String>, member = extra_models,
        mutable_ready, nick = "Extra models",
        blurb = "More models to score in the same pass: names or paths separated by semicolons")]
    #[property(name = "disable-clip", get, set, type = bool, member = disable_clip,
        mutable_ready, nick = "Disable clipping",
        blurb = "Do not limit scores to the range of the model")]
    #[property(name = "enable-transform", get, set, type = bool, member = enable_transform,
        mutable_ready, nick = "Enable transform",
        blurb = "Apply the score transform of the model (the phone model of the v0.6.1 family)")]
    #[property(name = "phone-model", get, set, type = bool, member = phone_model,
        mutable_ready, nick = "Phone model",
        blurb = "Score for viewing on a phone; the same as enable-transform")]
    #[property(name = "conf-interval", get, set, type = bool, member = conf_interval,
        mutable_ready, nick = "Confidence interval",
        blurb = "Report the 95 % confidence interval of the score; needs a bootstrap model such as vmaf_b_v0.6.3")]
    #[property(name = "features", get, set, type = Option<String>, member = features,
        mutable_ready, nick = "Features",
        blurb = "Further metrics by libvmaf's names, with options: name[=option=value[:option=value]...] and more after semicolons, as in psnr;adm=adm_csf_mode=2")]
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
    #[property(name = "pool-method", get, set, type = PoolMethod, member = pool_method,
        mutable_playing, nick = "Pool method",
        blurb = "How frame scores become the pooled score",
        builder(PoolMethod::default()))]
    #[property(name = "threads", get, set, type = u32, member = threads, maximum = i32::MAX as u32,
        mutable_ready, nick = "Threads",
        blurb = "Processor threads for the CPU backend (0 = one for each processor)")]
    #[property(name = "subsample", get, set, type = u32, member = subsample, minimum = 1, maximum = 128,
        default = 1, mutable_ready, nick = "Subsample",
        blurb = "Score every n-th pair; motion still sees every frame")]
    #[property(name = "frame-message", get, set, type = bool, member = frame_message,
        mutable_playing, nick = "Frame message", blurb = "Post a VMAF message for each scored frame")]
    #[property(name = "results-filename", get, set, type = Option<String>, member = results_filename,
        mutable_ready, nick = "Results file",
        blurb = "File for the scores of all frames; appears when it is complete")]
    #[property(name = "results-format", get, set, type = ResultsFormat, member = results_format,
        mutable_ready, nick = "Results format",
        blurb = "Format of the results file",
        builder(ResultsFormat::default()))]
    #[property(name = "log-level", get, set = Self::set_log_level, type = LogLevel, member = log_level,
        mutable_playing, nick = "Log level",
        blurb = "Raise the threshold of the debug category hipvmaf",
        builder(LogLevel::default()))]
    #[property(name = "backend", get, set, type = Backend, member = backend,
        mutable_ready, nick = "Backend",
        blurb = "Where the work on pixels is done",
        builder(Backend::default()))]
    #[property(name = "vendor", get, set, type = Vendor, member = vendor,
        mutable_ready, nick = "Vendor",
        blurb = "Whose GPU to use",
        builder(Vendor::default()))]
    #[property(name = "device-id", get, set, type = i32, member = device_id, minimum = -1, default = -1,
        mutable_ready, nick = "Device number",
        blurb = "Number that the vendor's runtime gives the GPU (-1 = the first that can be used)")]
    #[property(name = "max-in-flight", get, set, type = u32, member = max_in_flight, minimum = 1, maximum = 64,
        default = 4, mutable_ready, nick = "Pairs in flight",
        blurb = "How many pairs the GPU works on at a time")]
    #[property(name = "attach-meta", get, set, type = bool, member = attach_meta, default = true,
        mutable_ready, nick = "Attach meta",
        blurb = "Hold reference frames until they can carry their scores as HipVmafScoreMeta; else they leave at once")]
    #[property(name = "output", get, set, type = Output, member = output,
        mutable_ready, nick = "Output",
        blurb = "What leaves at the src pad; of several distorted streams, that of dist_sink",
        builder(Output::default()))]
    #[property(name = "scale-method", get, set, type = ScaleMethod, member = scale_method,
        mutable_ready, nick = "Scale method",
        blurb = "How distorted video of another size is scaled to that of the reference before it is scored",
        builder(ScaleMethod::default()))]
    #[property(name = "pairing", get, set, type = Pairing, member = pairing,
        mutable_ready, nick = "Pairing",
        blurb = "What frames that belong together have in common",
        builder(Pairing::default()))]
    #[property(name = "pairing-tolerance", get, set, type = u64, member = pairing_tolerance, default = u64::MAX,
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
    #[property(name = "force-live", get, set, type = bool, member = force_live,
        construct_only, nick = "Force live",
        blurb = "Work to the clock even if no live source is upstream")]
    #[property(name = "ignore-inactive-pads", get, set = Self::set_ignore_inactive, type = bool,
        member = ignore_inactive_pads, mutable_playing, nick = "Ignore inactive pads",
        blurb = "In live pipelines, do not wait for streams that have never delivered a frame")]
    #[property(name = "metrics-filename", get, set, type = Option<String>, member = metrics_filename,
        mutable_ready, nick = "Metrics file",
        blurb = "File with figures for Prometheus, replaced as a whole once per window-interval")]
    settings: Mutex<Settings>,

    #[property(name = "window", get, set, type = u64, member = window,
        mutable_playing, nick = "Window",
        blurb = "Length of the rolling window in nanoseconds, for which a VMAF message is posted once per window-interval (0 = off)")]
    #[property(name = "window-interval", get, set, type = u64, member = window_interval,
        minimum = 1_000_000, default = 1_000_000_000, mutable_playing, nick = "Window interval",
        blurb = "Nanoseconds between messages of the rolling window, and between updates of the metrics file")]
    #[property(name = "alarm-low", get, set, type = f64, member = alarm_low,
        minimum = -1.0, maximum = 110.0, default = -1.0, mutable_playing, nick = "Alarm level",
        blurb = "Raise an alarm when scores stay below this (-1 = off)")]
    #[property(name = "alarm-clear", get, set, type = f64, member = alarm_clear,
        minimum = -1.0, maximum = 110.0, default = -1.0, mutable_playing, nick = "Clear level",
        blurb = "Clear the alarm when scores stay at this or above (-1 = alarm-low)")]
    #[property(name = "alarm-hold", get, set, type = u64, member = alarm_hold, default = 2_000_000_000,
        mutable_playing, nick = "Alarm hold",
        blurb = "Nanoseconds that scores must be low before the alarm is raised")]
    #[property(name = "clear-hold", get, set, type = u64, member = clear_hold, default = 5_000_000_000,
        mutable_playing, nick = "Clear hold",
        blurb = "Nanoseconds that scores must be good before the alarm is cleared")]
    #[property(name = "freeze-time", get, set, type = u64, member = freeze_time,
        mutable_playing, nick = "Freeze time",
        blurb = "Report a distorted picture that stands still for so many nanoseconds while the reference moves (0 = off)")]
    #[property(name = "freeze-level", get, set, type = f64, member = freeze_level,
        minimum = 0.0, maximum = 255.0, default = 0.1, mutable_playing, nick = "Freeze level",
        blurb = "Mean absolute change of luma, on the scale of 8 bits, below which a picture stands still")]
    #[property(name = "black-time", get, set, type = u64, member = black_time,
        mutable_playing, nick = "Black time",
        blurb = "Report a distorted picture that is black for so many nanoseconds while the reference is not (0 = off)")]
    #[property(name = "black-level", get, set, type = f64, member = black_level,
        minimum = 0.0, maximum = 1.0, default = 0.07, mutable_playing, nick = "Black level",
        blurb = "Mean luma, from 0 to 1 of the sample range, below which a picture is black")]
    watch: Mutex<Watch>,

    #[property(name = "backend-name", get = Self::backend_name, type = Option<String>,
        nick = "Backend name", blurb = "The backend in use, when running")]
    #[property(name = "device-name", get = Self::device_name, type = Option<String>,
        nick = "Device name", blurb = "The GPU in use, when running on one")]
    /// Between start and stop. Never locked while calling out of the element.
    stream: Mutex<Option<Stream>>,
    /// Waits for the results of an asynchronous backend.
    collector: Mutex<Option<Collector>>,
    /// Open from READY on.
    gpu: Mutex<Option<Arc<Device>>>,
    /// For page-locked memory of the GPU in use; made when somebody upstream asks.
    allocator: Mutex<Option<PinnedAllocator>>,
    contexts: Mutex<Contexts>,
    /// Of heat maps in the format of the last one.
    painter: Mutex<Option<Painter>>,
    /// Frames that arrived and results that came.
    progress: Arc<Progress>,

    /// Statistics of the last run, kept after the stop.
    last_stats: Mutex<Option<gst::Structure>>,
    reference: OnceLock<AggregatorPad>,
    /// The metrics file could not be replaced the last time.
    metrics_failed: AtomicBool,
}

impl HipVmaf {
    fn set_log_level(&self, level: LogLevel) {
        lock(&self.settings).log_level = level;
        if level != LogLevel::None {
            CAT.set_threshold(level.threshold());
        }
    }

    fn backend_name(&self) -> Option<String> {
        lock(&self.stream).as_ref().map(|stream| stream.backend_name().to_string())
    }

    fn device_name(&self) -> Option<String> {
        lock(&self.stream).as_ref().and_then(|stream| stream.device_name())
    }

    fn stats(&self) -> gst::Structure {
        let running = lock(&self.stream).as_ref().map(Stream::stats);
        running
            .or_else(|| lock(&self.last_stats).clone())
            .unwrap_or_else(|| gst::Structure::new_empty("stats"))
    }

    /// The settings that may change at any time.
    fn live(&self) -> Live {
        lock(&self.settings).live(*lock(&self.watch))
    }

    fn set_ignore_inactive(&self, ignore: bool) {
        lock(&self.settings).ignore_inactive_pads = ignore;
        // Not the property's setter, which calls this.
        AggregatorExt::set_ignore_inactive_pads(self.obj().upcast_ref::<gst_base::Aggregator>(), ignore);
    }

    /// Statistics of one distorted stream.
    pub fn pad_stats(&self, pad: &HipVmafPad) -> Option<gst::Structure> {
        lock(&self.stream).as_ref().and_then(|stream| stream.pad_stats(pad))
    }

    fn template(&self, name: &str) -> gst::PadTemplate {
        self.obj().pad_template(name).expect("the class has this template")
    }

    /// The sink pad of the reference.
    fn reference(&self) -> &AggregatorPad {
        self.reference.get_or_init(|| {
            gst::PadBuilder::<AggregatorPad>::from_template(&self.template("ref_sink")).build()
        })
    }

    /// The sink pads of distorted video.
    fn distorted(&self) -> Vec<HipVmafPad> {
        self.obj().sink_pads().into_iter().filter_map(|pad| pad.downcast().ok()).collect()
    }

    /// Frames that arrive here let the streaming task go on.
    fn watch_pad(&self, pad: &impl IsA<gst::Pad>) {
        let progress = self.progress.clone();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            progress.made();
            gst::PadProbeReturn::Ok
        });
    }

    /// The frames of one stream were flushed.
    fn flush_pad(&self, pad: &AggregatorPad) {
        // Refused only where there is nothing to forget.
        let _ = self.with_stream(|stream, _| {
            stream.flush_pad(pad);
            Ok(())
        });
    }

    fn reset_stats(&self) {
        let live = self.live();
        // Likewise.
        let _ = self.with_stream(|stream, actions| {
            stream.reset_stats(&live, actions);
            Ok(())
        });
    }

    /// Loads the models and decides what has to be computed for them; refuses what cannot be had.
    fn plan(settings: &Settings) -> Result<Plan, Error> {
        let (models, features) = settings.wanted()?;
        let setting = |property, reason: &str| Error::Setting { property, reason: reason.into() };
        let Some(first) = models.first() else {
            return Err(setting("model-filename", "no model is set; name one, such as vmaf_v0.6.1"));
        };
        if settings.conf_interval && first.bootstrap_members().is_none() {
            let reason = format!(
                "{} has no confidence interval; use a bootstrap model, such as vmaf_b_v0.6.3",
                first.name()
            );
            return Err(setting("conf-interval", &reason));
        }
        let options = ScoreOptions {
            clip: !settings.disable_clip,
            transform: settings.enable_transform || settings.phone_model,
        };
        let mut plan = Plan::new(models, &features, options)?;
        if settings.output == Output::Heatmap {
            plan.add_damage();
        }
        Ok(plan)
    }

    /// Asks the neighbours, and then whoever runs the pipeline, which GPU they have agreed on.
    fn ask_for_context(&self) {
        let obj = self.obj();
        let wanted = lock(&self.contexts).wanted();
        for kind in wanted {
            let mut query = gst::query::Context::new(kind);
            if obj.pads().iter().any(|pad| pad.peer_query(&mut query))
                && let Some(context) = query.context_owned()
            {
                return obj.set_context(&context);
            }
        }
        for kind in wanted {
            // An answer is set while the message is posted.
            let _ = obj.post_message(gst::message::NeedContext::builder(kind).src(&*obj).build());
        }
    }

    /// The backend to begin with, and what to do should it fail before its first frame.
    fn backend(
        &self,
        settings: &Settings,
    ) -> Result<(Box<dyn backend::Backend>, Option<Fallback>), EngineError> {
        let cpu = || Cpu::new(settings.threads as usize);
        if settings.backend == Backend::Cpu {
            let cpu = cpu()?;
            gst::info!(CAT, imp = self, "scoring on the {cpu}, as backend=cpu says");
            return Ok((Box::new(cpu), None));
        }
        match self.open_gpu(settings) {
            Ok(hip) => {
                gst::info!(CAT, imp = self, "scoring on the {hip}");
                let fallback = (settings.backend == Backend::Auto).then(|| self.fallback(settings));
                Ok((Box::new(hip), fallback))
            }
            Err(err) if settings.backend == Backend::Hip => Err(err.into()),
            Err(err) => {
                let cpu = cpu()?;
                gst::info!(CAT, imp = self, "scoring on the {cpu}: {err}");
                Ok((Box::new(cpu), None))
            }
        }
    }

    /// Opens the GPU that the settings and the neighbours agree on.
    fn open_gpu(&self, settings: &Settings) -> Result<Hip, BackendError> {
        if settings.selection().ordinal.is_none() {
            self.ask_for_context();
        }
        let selection = lock(&self.contexts).complete(settings.selection());
        Hip::open(&selection, settings.max_in_flight as usize)
    }

    /// Goes on with the processor, and says so.
    fn fallback(&self, settings: &Settings) -> Fallback {
        let (element, threads) = (self.obj().downgrade(), settings.threads as usize);
        Box::new(move |err| {
            let cpu = Cpu::new(threads)?;
            if let Some(element) = element.upgrade() {
                gst::warning!(CAT, obj = element, "scoring on the {cpu}, as {err}");
            }
            Ok(Box::new(cpu))
        })
    }

    /// Loads what the settings name, and keeps the GPU open for the start.
    fn check(&self, settings: &Settings) -> Result<(), Error> {
        settings.check(&lock(&self.watch))?;
        Self::plan(settings)?;
        if settings.backend != Backend::Cpu {
            match self.open_gpu(settings) {
                Ok(hip) => *lock(&self.gpu) = hip.gpu().cloned(),
                Err(err) if settings.backend == Backend::Hip => return Err(EngineError::from(err).into()),
                // The start says what is used instead.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Everything that can fail before the first frame.
    fn open(&self, settings: &Settings) -> Result<Stream, Error> {
        let plan = Self::plan(settings)?;
        let (backend, fallback) = self.backend(settings)?;
        gst::debug!(CAT, imp = self, "{plan}");
        let session = Session::new(Arc::new(plan), backend, settings.subsample);
        if let Some(path) = &settings.metrics_filename {
            let figures = prometheus::Figures::default();
            prometheus::replace(path.as_ref(), &prometheus::render(&figures))
                .map_err(|source| Error::Metrics { path: path.into(), source })?;
        }
        let mut stream = Stream::new(settings, session, fallback, self.reference().clone());
        self.distorted().into_iter().try_for_each(|pad| stream.add(pad, &self.live()))?;
        Ok(stream)
    }

    /// Runs `work` on the stream and carries out what it asks for, in order, once the lock is free.
    fn with_stream<T>(
        &self,
        work: impl FnOnce(&mut Stream, &mut Vec<Action>) -> Result<T, Error>,
    ) -> Result<T, gst::FlowError> {
        let mut actions = vec![];
        let result = match lock(&self.stream).as_mut() {
            Some(stream) if stream.has_failed() => return Err(gst::FlowError::Error),
            Some(stream) => {
                let result = work(stream, &mut actions);
                result.inspect_err(|err| actions.extend(stream.fail(err)))
            }
            None => return Err(gst::FlowError::Flushing),
        };
        let obj = self.obj();
        let mut flow = Ok(gst::FlowSuccess::Ok);
        for action in actions {
            match action {
                Action::Caps(caps) => obj.set_src_caps(&caps),
                Action::Segment(segment) => obj.update_segment(&segment),
                Action::Latency(latency) => obj.set_latency(latency, latency),
                Action::Push(buffer) if flow.is_ok() => flow = obj.finish_buffer(buffer),
                Action::Paint(buffer, heat) if flow.is_ok() => {
                    flow = self.paint(buffer, &heat).and_then(|painted| obj.finish_buffer(painted));
                }
                Action::Push(_) | Action::Paint(..) => {}
                Action::Post(structure) => {
                    let message = gst::message::Element::builder(structure).src(&*obj).build();
                    // Refused only by a bus that is flushing, when nobody listens any more.
                    let _ = obj.post_message(message);
                }
                Action::Qos { stamp, late, scored, skipped } => {
                    let late = late.map_or(0, |late| late.nseconds() as i64);
                    let message = gst::message::Qos::builder(true)
                        .running_time(stamp.running_time)
                        .stream_time(stamp.stream_time)
                        .timestamp(stamp.timestamp)
                        .duration(stamp.duration)
                        .values(late, 1.0, 1_000_000)
                        .stats(Buffers::from_u64(scored), Buffers::from_u64(skipped))
                        .src(&*obj)
                        .build();
                    let _ = obj.post_message(message);
                }
                Action::Metrics(path, figures) => self.replace_metrics(path, &figures),
                Action::Await(completion) => {
                    if let Some(collector) = &*lock(&self.collector) {
                        collector.collect_after(completion);
                    }
                }
            }
        }
        match result {
            Ok(value) => flow.map(|_| value),
            Err(err) => {
                self.post_error_message(err.message());
                Err(gst::FlowError::Error)
            }
        }
    }

    /// A reference frame as a heat map. What goes wrong is posted.
    fn paint(&self, buffer: gst::Buffer, heat: &Heat) -> Result<gst::Buffer, gst::FlowError> {
        let mut painter = lock(&self.painter);
        if painter.as_ref().is_none_or(|painter| !painter.suits(&heat.info)) {
            *painter = None;
        }
        let painted = match &mut *painter {
            Some(painter) => painter.paint(buffer, &heat.damage),
            none => Painter::new(&heat.info).and_then(|new| none.insert(new).paint(buffer, &heat.damage)),
        };
        painted.map_err(|err| {
            if let Some(stream) = lock(&self.stream).as_mut() {
                stream.fail(&err);
            }
            self.post_error_message(err.message());
            gst::FlowError::Error
        })
    }

    /// Replaces the metrics file. Scoring goes on without it; the first failure in a row is posted.
    fn replace_metrics(&self, path: PathBuf, figures: &prometheus::Figures) {
        let written = prometheus::replace(&path, &prometheus::render(figures));
        let failed = self.metrics_failed.swap(written.is_err(), Ordering::Relaxed);
        if let (Err(source), false) = (written, failed) {
            let err = Error::Metrics { path, source };
            gst::element_imp_warning!(self, gst::ResourceError::Write, ["{err}"]);
        }
    }

    /// Collects results, on the collector's thread.
    fn collect(&self) {
        let live = self.live();
        // What goes wrong is posted, and the streaming task learns of it at its next step.
        let _ = self.with_stream(|stream, actions| stream.collect(&live, actions));
        self.progress.made();
    }

    /// Waits until everything submitted is collected and posted.
    fn settle(&self) {
        let settled = lock(&self.collector).as_ref().map(Collector::settled);
        if let Some(settled) = settled {
            // An error means that the collector has ended, with nothing left to collect.
            let _ = settled.recv();
        }
    }

    /// Waits for results or frames, whatever makes this true. At once if the element stops.
    fn wait_until(&self, ready: impl Fn(&Stream) -> bool) {
        self.progress.wait_until(|| lock(&self.stream).as_ref().is_none_or(&ready));
    }

    fn clock(&self, timeout: bool) -> Clock {
        let obj = self.obj();
        let due = obj.latency().and_then(|latency| Some(obj.current_running_time()?.saturating_sub(latency)));
        Clock { due, deadline: due.filter(|_| timeout) }
    }

    /// Memory that frames can lie in, beside the system's.
    fn memories(&self) -> Vec<Kind> {
        // Before the start, a GPU may yet be found.
        let unknown = if lock(&self.settings).backend == Backend::Cpu { vec![] } else { Kind::ALL.to_vec() };
        lock(&self.stream).as_ref().map_or(unknown, Stream::memories)
    }

    /// The sink pad whose frames leave at the src pad, if they do.
    fn leaving(&self) -> Option<gst::Pad> {
        match self.output() {
            Output::Reference => Some(self.reference().clone().upcast()),
            Output::Distorted => self.obj().static_pad("dist_sink"),
            Output::Heatmap => None,
        }
    }

    fn output(&self) -> Output {
        lock(&self.settings).output
    }

    /// Answers what `ref_sink` takes: where the reference's frames travel on, they have to suit who gets them next,
    /// and so has what is painted of them.
    fn reference_caps(&self, filter: Option<&gst::CapsRef>) -> gst::Caps {
        let memories = self.memories();
        let readable = caps::readable(&memories);
        let peer = |caps: &gst::Caps| self.obj().src_pad().peer_query_caps(Some(caps));
        match self.output() {
            Output::Reference => peer(&filtered(&readable, filter)),
            Output::Distorted => filtered(&readable, filter),
            Output::Heatmap => {
                let painted = peer(&caps::readable(&[]));
                filtered(&caps::in_any_memory(&painted, &memories), filter)
            }
        }
    }

    /// Answers what `dist_sink` takes: the reference's size and depth once they are known, so that a
    /// converter upstream picks them, and any size besides where pictures are scaled. Upstream that cannot do that is
    /// offered every size and depth, and the mismatch is reported with a hint.
    fn distorted_caps(&self, pad: &AggregatorPad, filter: Option<&gst::CapsRef>) -> gst::Caps {
        let memories = self.memories();
        let scaled = lock(&self.settings).scale_method != ScaleMethod::None;
        let reference = lock(&self.stream).as_ref().and_then(|stream| stream.reference_info().cloned());
        let matching = reference.map(|info| caps::matching(&info, &memories, scaled));
        let matching = matching.map(|caps| filtered(&caps, filter)).filter(|caps| !caps.is_empty());
        let caps = matching.unwrap_or_else(|| filtered(&caps::readable(&memories), filter));
        match self.leaving() {
            Some(leaving) if leaving == *pad => self.obj().src_pad().peer_query_caps(Some(&caps)),
            _ => caps,
        }
    }

    /// Frames of a pad that can be here at once.
    fn held(&self, pad: &AggregatorPad) -> u32 {
        let held = if pad == self.reference() { Stream::held } else { Stream::held_distorted };
        lock(&self.stream).as_ref().map_or(0, held)
    }

    /// The allocator of page-locked memory for the GPU in use.
    fn pinned(&self) -> Option<PinnedAllocator> {
        let gpu = lock(&self.stream).as_ref().and_then(Stream::gpu).cloned()?;
        let mut allocator = lock(&self.allocator);
        if allocator
            .as_ref()
            .and_then(PinnedAllocator::device)
            .is_none_or(|device| !Arc::ptr_eq(device, &gpu))
        {
            *allocator = Some(PinnedAllocator::new(gpu));
        }
        allocator.clone()
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
            HipVmaf::derived_properties().iter().cloned().chain([stats]).collect()
        });
        &PROPERTIES
    }

    fn property(&self, id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        match pspec.name() {
            "stats" => self.stats().to_value(),
            _ => self.derived_property(id, pspec),
        }
    }

    fn set_property(&self, id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        self.derived_set_property(id, value, pspec)
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
        let distorted = gst::PadBuilder::<HipVmafPad>::from_template(&self.template("dist_sink")).build();
        for pad in [self.reference(), distorted.upcast_ref()] {
            self.watch_pad(pad);
            obj.add_pad(pad).expect("the element is new and has no pad of this name");
        }
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
                "HIP VMAF",
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
                template("ref_sink", Sink, Always, AggregatorPad::static_type()),
                template("dist_sink", Sink, Always, HipVmafPad::static_type()),
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
        self.watch_pad(distorted);
        let live = self.live();
        let added = self.with_stream(|stream, _| stream.add(distorted.clone(), &live));
        self.obj().child_added(distorted, &distorted.name());
        // Before the start there is no stream yet, which is no error.
        (added != Err(gst::FlowError::Error)).then_some(pad)
    }

    fn release_pad(&self, pad: &gst::Pad) {
        if let Some(distorted) = pad.downcast_ref::<HipVmafPad>() {
            let live = self.live();
            self.settle();
            // Refused only where the pad has nothing to leave behind.
            let _ = self.with_stream(|stream, actions| stream.release(distorted, &live, actions));
            self.obj().child_removed(distorted, &distorted.name());
        }
        self.parent_release_pad(pad);
    }

    fn set_context(&self, context: &gst::Context) {
        lock(&self.contexts).store(context);
        self.parent_set_context(context);
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if transition == gst::StateChange::NullToReady {
            // Settings may still change before the start; what is wrong now is said now.
            let settings = lock(&self.settings).clone();
            if let Err(err) = self.check(&settings) {
                self.post_error_message(err.message());
                return Err(gst::StateChangeError);
            }
        }
        let result = self.parent_change_state(transition);
        if transition == gst::StateChange::ReadyToNull {
            lock(&self.gpu).take();
        }
        result
    }
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
        Some(pad.upcast())
    }

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let settings = lock(&self.settings).clone();
        let stream = self.open(&settings).map_err(|err| err.message())?;
        let asynchronous = stream.is_asynchronous();
        *lock(&self.stream) = Some(stream);
        if asynchronous {
            let element = self.obj().downgrade();
            let collect = move || {
                if let Some(element) = element.upgrade() {
                    element.imp().collect();
                }
            };
            let failed =
                |err| gst::error_msg!(gst::ResourceError::Failed, ("cannot start a thread: {}", err));
            *lock(&self.collector) = Some(Collector::new(collect).map_err(failed)?);
        }
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        // Ends once everything in flight is collected, outside the lock.
        let collector = lock(&self.collector).take();
        drop(collector);
        lock(&self.allocator).take();
        lock(&self.painter).take();
        let Some(mut stream) = lock(&self.stream).take() else { return Ok(()) };
        *lock(&self.last_stats) = Some(stream.stats());
        // Without an end of stream, the file still gets the frames that were scored.
        stream.finish_results().map_err(|err| err.message())
    }

    fn aggregate(&self, timeout: bool) -> Result<gst::FlowSuccess, gst::FlowError> {
        loop {
            // A seek or a stop waits for this thread, and inputs may go on for as long as they find room.
            if self.obj().src_pad().pad_flags().contains(gst::PadFlags::FLUSHING) {
                return Err(gst_base::AGGREGATOR_FLOW_NEED_DATA);
            }
            let (live, clock) = (self.live(), self.clock(timeout));
            let step = self.with_stream(|stream, _| stream.decide(&live, clock))?;
            if matches!(step, Step::Take(_)) {
                // Lets applications look at the frames, see `peek_next_sample`.
                self.obj().selected_samples(
                    gst::ClockTime::NONE,
                    gst::ClockTime::NONE,
                    gst::ClockTime::NONE,
                    None,
                );
            }
            match step {
                Step::Take(_) => {
                    self.wait_until(|stream| stream.has_room() || Stream::may_skip(&live, clock));
                    if lock(&self.stream).as_ref().is_some_and(Stream::must_settle) {
                        self.settle();
                    }
                }
                // Frames can leave with the scores to come, unless others come first.
                Step::Wait => {
                    self.wait_until(Stream::is_busy);
                    if lock(&self.stream).as_ref().is_some_and(|stream| stream.silent(&live, clock).is_some())
                    {
                        self.settle();
                    }
                }
                Step::Finished => self.settle(),
                Step::Drop(_) => {}
            }
            self.with_stream(|stream, actions| stream.perform(&step, &live, clock, actions))?;
            match step {
                Step::Wait => return Err(gst_base::AGGREGATOR_FLOW_NEED_DATA),
                Step::Finished => return Err(gst::FlowError::Eos),
                Step::Take(_) | Step::Drop(_) => {}
            }
        }
    }

    fn next_time(&self) -> Option<gst::ClockTime> {
        let live = self.live();
        lock(&self.stream).as_ref().and_then(|stream| stream.next_time(&live))
    }

    fn flush(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        let live = self.live();
        self.settle();
        // Nothing is pushed: the frames on their way are dropped.
        self.with_stream(|stream, actions| stream.flush(&live, actions)).map(|()| gst::FlowSuccess::Ok)
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
        match event.view() {
            gst::EventView::Caps(caps) => {
                let live = self.live();
                self.settle();
                let done =
                    self.with_stream(|stream, actions| stream.set_caps(pad, caps.caps(), &live, actions));
                return done.is_ok();
            }
            gst::EventView::Segment(segment) if pad == self.reference() => {
                if let Some(stream) = lock(&self.stream).as_mut() {
                    stream.set_segment(segment.segment().clone());
                }
            }
            gst::EventView::FlushStop(_) => self.flush_pad(pad),
            _ => {}
        }
        self.parent_sink_event(pad, event)
    }

    fn sink_query(&self, pad: &AggregatorPad, query: &mut gst::QueryRef) -> bool {
        if lock(&self.contexts).answer(query) {
            return true;
        }
        let reference = self.reference();
        match query.view_mut() {
            gst::QueryViewMut::Caps(query) => {
                let filter = query.filter_owned();
                let filter = filter.as_deref();
                // Upstream that has none of the formats may come all the same: it gets an error that says
                // what to do, where a refusal would only be a failed negotiation.
                let caps = match filter {
                    Some(_) if filtered(&caps::readable(&self.memories()), filter).is_empty() => {
                        filtered(&caps::ANY, filter)
                    }
                    _ if pad == reference => self.reference_caps(filter),
                    _ => self.distorted_caps(pad, filter),
                };
                query.set_result(&caps);
                true
            }
            gst::QueryViewMut::AcceptCaps(query) => {
                let accepted = query.caps().is_subset(&caps::ANY);
                query.set_result(accepted);
                true
            }
            gst::QueryViewMut::Allocation(query) if self.leaving().is_some_and(|leaving| leaving == *pad) => {
                // Whether or not downstream has something to add.
                self.obj().src_pad().peer_query(query);
                allocation::answer(query, self.pinned().as_ref(), self.held(pad));
                true
            }
            _ => self.parent_sink_query(pad, query),
        }
    }

    fn propose_allocation(
        &self,
        pad: &AggregatorPad,
        _decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> Result<(), gst::LoggableError> {
        query.add_allocation_meta::<gst_video::VideoMeta>(None);
        allocation::answer(query, self.pinned().as_ref(), self.held(pad));
        Ok(())
    }

    fn src_event(&self, event: gst::Event) -> bool {
        match event.type_() {
            // A late sink must not make upstream drop frames that are to be scored.
            gst::EventType::Qos | gst::EventType::Navigation => true,
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
