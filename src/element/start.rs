// SPDX-License-Identifier: MPL-2.0

//! From settings to something that runs: models, backend, worker and files are set up at the start and taken down at the
//! stop. Everything that can fail before the first frame fails here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::EngineError;
use engine::audit::Verify;
use engine::backend::cpu::Cpu;
use engine::backend::hip::{self, Hip};
use engine::backend::{self, Backend as _, BackendError};
use engine::model::{Model, ScoreOptions};
use engine::plan::Plan;
use engine::session::Session;
use gpu::Selection;
use gst::prelude::*;
use gst::subclass::prelude::*;
use watch::output::Output as FileOutput;
use watch::prometheus;

use super::action::Action;
use super::error::Error;
use super::imp::HipVmaf;
use super::messages::{Counts, Messages};
use super::pads::{DISTORTED, HipVmafPad};
use super::report::figures::Figures;
use super::report::results::{Results, of_rendition};
use super::report::writer::{Job, Writer};
use super::settings::{Backend, Output, Settings};
use super::stall_watchdog::StallWatchdog;
use super::state::State;
use super::worker::{Distrust, Fallback, Used, WorkerThread};
use super::{CAT, lock};

/// Up to this many threads may be set on any machine, even with fewer CPUs.
const FEW_THREADS: usize = 16;

impl HipVmaf {
    /// Loads the models and decides what has to be computed for them; refuses what cannot be had.
    fn plan(settings: &Settings) -> Result<Plan, Error> {
        let (models, features) = settings.wanted()?;
        let setting = |property, reason: &str| Error::Setting { property, reason: reason.into() };
        if models.is_empty() && features.is_empty() {
            let reason = "there is nothing to compute; name a model, such as vmaf_v0.6.1, or set features";
            return Err(setting("model-filename", reason));
        }
        if settings.conf_interval && models.first().and_then(Model::bootstrap_members).is_none() {
            let name = models.first().map_or("none", Model::name);
            let reason =
                format!("{name} has no confidence interval; use a bootstrap model, such as vmaf_b_v0.6.3");
            return Err(setting("conf-interval", &reason));
        }
        let options = ScoreOptions {
            clip: !settings.disable_clip,
            transform: settings.enable_transform || settings.phone_model,
        };
        let mut plan = Plan::new(models, &features, options)?;
        if settings.output == Output::Heatmap {
            plan.add_heat_map();
        }
        Ok(plan)
    }

    /// The backend to begin with, and what to do should it fail before its first sums.
    fn backend(
        &self,
        settings: &Settings,
    ) -> Result<(Box<dyn backend::Backend>, Option<Fallback>), EngineError> {
        let cpu = || Cpu::new(threads(settings));
        if settings.backend == Backend::Cpu {
            let cpu = cpu()?;
            gst::info!(CAT, imp = self, "scoring on the {cpu}, as backend=cpu says");
            return Ok((Box::new(cpu), None));
        }
        match Hip::open(&self.selection(settings), settings.max_in_flight as usize) {
            Ok(hip) => {
                gst::info!(CAT, imp = self, "scoring on the {hip}: {}", hip.why());
                // The one that was kept open for the start may be another, as there was more to do since.
                *lock(&self.gpu) = hip.gpu().cloned();
                let fallback = (settings.backend == Backend::Auto).then(|| self.fallback(settings));
                Ok((Box::new(hip), fallback))
            }
            Err(err) if settings.backend == Backend::Hip => Err(err.into()),
            Err(err) => {
                let cpu = cpu()?;
                match &err {
                    _ if settings.device_id >= 0 => {
                        let reason = err.to_string();
                        self.warn(&Error::NoSuchDevice { device_id: settings.device_id, reason });
                    }
                    BackendError::Device(gpu::Error::NoDevice(_)) => {
                        gst::info!(CAT, imp = self, "scoring on the {cpu}: {err}");
                    }
                    _ => gst::warning!(CAT, imp = self, "scoring on the {cpu}, as {err}"),
                }
                Ok((Box::new(cpu), None))
            }
        }
    }

    /// The GPUs that the settings and the neighbours agree on.
    fn selection(&self, settings: &Settings) -> Selection {
        if settings.selection().ordinal.is_none() {
            self.ask_for_context();
        }
        lock(&self.contexts).complete(settings.selection())
    }

    /// Asks the neighbours, and then the application, which GPU they have agreed on.
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

    /// Goes on with the next GPU, or else with the CPU, and says so.
    fn fallback(&self, settings: &Settings) -> Fallback {
        let element = self.obj().downgrade();
        let (selection, depth) = (settings.selection(), settings.max_in_flight as usize);
        let threads = threads(settings);
        let mut failed = vec![];
        Box::new(move |err, gpu| {
            failed.extend(gpu);
            let (next, name): (Box<dyn backend::Backend>, _) =
                match Hip::open_besides(&selection, depth, &failed) {
                    Ok(hip) => {
                        let name = hip.to_string();
                        (Box::new(hip), name)
                    }
                    Err(_) => {
                        let cpu = Cpu::new(threads)?;
                        let name = cpu.to_string();
                        (Box::new(cpu), name)
                    }
                };
            if let Some(element) = element.upgrade() {
                gst::warning!(CAT, obj = element, "scoring on the {name}, as {err}");
            }
            Ok(next)
        })
    }

    /// Enables the audit: the CPU recomputes a random share of the groups.
    fn set_audit(&self, session: &mut Session, settings: &Settings, share: f64) {
        let verify = Verify::at_random(share, threads(settings));
        if session.gpu().is_some() {
            gst::info!(CAT, imp = self, "verifying {share} of the groups, seed {:#018x}", verify.seed);
        }
        session.set_audit(verify);
    }

    /// Loads what the settings name, and keeps the GPU open for the start. Settings may still change before that; what
    /// is wrong now is said now.
    pub(super) fn check(&self) -> Result<(), Error> {
        let settings = lock(&self.settings).clone();
        settings.check(&lock(&self.watch))?;
        Figures::new(&settings, Arc::new(Self::plan(&settings)?))?;
        if settings.backend != Backend::Cpu {
            match hip::open(&self.selection(&settings)) {
                Ok(device) => *lock(&self.gpu) = Some(device),
                Err(err) if settings.backend == Backend::Hip => {
                    return Err(EngineError::from(BackendError::from(err)).into());
                }
                // The start says what is used instead.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sets everything up for a run.
    pub(super) fn open(&self) -> Result<(), Error> {
        // First, so that all messages of the run have one order.
        let element = self.obj().downgrade();
        let post = move |message| {
            if let Some(element) = element.upgrade() {
                element.imp().post_now(message);
            }
        };
        let messages = Messages::new(self.progress.clone(), post, self.broken()).map_err(Error::Thread)?;
        *lock(&self.run().messages) = Some(Arc::new(messages));
        let (settings, tunables) = (lock(&self.settings).clone(), self.tunables());
        let plan = Arc::new(Self::plan(&settings)?);
        let figures = Figures::new(&settings, plan.clone())?;
        gst::debug!(CAT, imp = self, "{plan}");
        let (backend, fallback) = self.backend(&settings)?;
        let mut session = Session::new(plan.clone(), backend, settings.subsample);
        self.set_audit(&mut session, &settings, tunables.verify);
        let element = self.obj().downgrade();
        let report = move |err| {
            if let Some(element) = element.upgrade() {
                element.imp().file_failed(err);
            }
        };
        *lock(&self.run().writer) =
            Some(Arc::new(Writer::new(report, self.broken()).map_err(Error::Thread)?));

        let used = Used::of(&session);
        let element = self.obj().downgrade();
        let deliver = move |news| {
            if let Some(element) = element.upgrade() {
                element.imp().hear(news);
            }
        };
        let threads = threads(&settings);
        let distrust: Distrust = Box::new(move || Ok(Box::new(Cpu::new(threads)?)));
        let copiers = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            wanted => wanted,
        };
        let follow = settings.follows_input();
        let worker = WorkerThread::new(session, fallback, distrust, follow, copiers, deliver, self.broken())
            .map_err(Error::Thread)?;
        worker.jobs().verify(tunables.verify, tunables.on_wrong_score);
        let reference = self.reference().clone();
        let upcoming = self.upcoming(&reference);
        let mut state = State::new(&settings, tunables, figures, used, worker.jobs(), reference, upcoming);
        for pad in self.distorted() {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            self.open_results(number, &pad)?;
            let upcoming = self.upcoming(&pad);
            state.add(number, pad, upcoming);
        }
        if let Some(path) = &settings.metrics_filename {
            // That it cannot be written is said before the first frame.
            let failed = |source| Error::Metrics { path: path.into(), source };
            match FileOutput::create(path.as_ref()).map_err(failed)? {
                FileOutput::Stream(_) => self.write(Job::Metrics(path.into(), state.figures())),
                file => file.write(prometheus::render(&state.figures()).as_bytes()).map_err(failed)?,
            }
        }
        let element = self.obj().downgrade();
        let look = move || {
            if let Some(element) = element.upgrade() {
                element.imp().look_for_stall();
            }
        };
        let watchdog = StallWatchdog::new(self.stall_time(), look, self.broken()).map_err(Error::Thread)?;
        *lock(&self.run().watchdog) = Some(watchdog);
        *lock(&self.run().worker) = Some(worker);
        *lock(&self.run().state) = Some(state);
        self.caps_wait.begin();
        self.set_latency(gst::ClockTime::ZERO);
        Ok(())
    }

    /// Returns the function that a thread of the element calls if it panics.
    fn broken(&self) -> impl FnOnce(Error) + Send + 'static {
        let element = self.obj().downgrade();
        move |err| {
            if let Some(element) = element.upgrade() {
                element.imp().thread_failed(&err);
            }
        }
    }

    /// Takes everything down. Without an end of stream, files still get the frames that were scored.
    pub(super) fn close(&self) {
        self.caps_wait.end();
        let watchdog = lock(&self.run().watchdog).take();
        drop(watchdog);
        // Ends once everything handed over is done and reported.
        let worker = lock(&self.run().worker).take();
        drop(worker);
        let mut actions = vec![];
        let state = lock(&self.run().state).take();
        let mut stats = None;
        if let Some(mut state) = state {
            state.hear_of_results();
            state.finish_all_results(&mut actions);
            stats = Some(state.stats());
        }
        for action in actions {
            if let Action::Write(job) = action {
                self.write(job);
            }
        }
        let writer = lock(&self.run().writer).take();
        drop(writer);
        // Last, as all others have something to say.
        let messages = lock(&self.run().messages).take();
        if let Some(messages) = messages {
            messages.finish();
            if let Some(stats) = stats {
                let counts = Counts { waiting: 0, ..messages.counts() };
                *lock(&self.last_stats) = Some(counts.add_to(stats));
            }
        }
        *lock(&self.run) = Arc::default();
    }

    /// Makes the results file of a rendition, so that one that cannot be written is known before the first frame.
    pub(super) fn open_results(&self, number: u64, pad: &HipVmafPad) -> Result<(), Error> {
        let (results, provenance) = {
            let settings = lock(&self.settings);
            (settings.results(), settings.results_provenance)
        };
        let Some((path, format)) = results else { return Ok(()) };
        let path = self.results_path(&path, pad);
        match Results::create(&path, format, provenance) {
            Ok((results, kept)) => {
                if let Some(kept) = kept {
                    self.warn(&Error::ResultsFound { path, kept });
                }
                self.write(Job::Open(number, results));
                Ok(())
            }
            Err(source) => Err(Error::Results { path, source }),
        }
    }

    /// A name that no other results of this run have: the one that is set for `dist_sink`, with the label or else the name
    /// of the pad in it for others, and with a number where another has had this name before.
    fn results_path(&self, path: &Path, pad: &HipVmafPad) -> PathBuf {
        let run = self.run();
        let mut taken = lock(&run.results_paths);
        let label = pad.settings().label.filter(|label| !label.is_empty());
        let name = label.unwrap_or_else(|| pad.name().into());
        let numbered = |number: u32| match (pad.name().as_str(), number) {
            (DISTORTED, 1) => path.to_path_buf(),
            _ => of_rendition(path, &name, number),
        };
        let free = (1..).map(numbered).find(|path| !taken.contains(path)).unwrap_or_else(|| path.into());
        taken.push(free.clone());
        free
    }
}

/// Returns the number of threads; 0 is one per CPU. Many more threads than CPUs only take memory and time to start.
fn threads(settings: &Settings) -> usize {
    let wanted = settings.threads as usize;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let most = cpus.max(FEW_THREADS);
    if wanted > most {
        gst::info!(CAT, "threads={wanted} is more than {cpus} CPUs have use for: {most} are used");
    }
    wanted.min(most)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use engine::video::Video;
    use gst_video::{VideoFormat, VideoInfo};

    use super::super::memory::import::geometry;
    use super::super::worker::Setup;
    use super::*;

    /// Waits for the worker end then.
    #[test]
    fn a_panic_of_the_worker_is_reported() {
        gst::init().unwrap();
        let plan = Arc::new(HipVmaf::plan(&Settings::default()).unwrap());
        let session = Session::new(plan, Box::new(Cpu::new(1).unwrap()), 1);
        let distrust: Distrust = Box::new(|| Ok(Box::new(Cpu::new(1)?)));
        let (sender, receiver) = mpsc::channel();
        let report = move |err: Error| sender.send(err.to_string()).unwrap();
        let deaf = |_| panic!("deaf");
        let worker = WorkerThread::new(session, None, distrust, None, 1, deaf, report).unwrap();
        let info = VideoInfo::builder(VideoFormat::I420, 64, 48).build().unwrap();
        let geometry = geometry(&info).unwrap();
        let (video, renditions) = (Video::default(), vec![(0, None)]);
        worker.jobs().prepare(Setup { geometry, video, renditions, heads: vec![], patient: true });
        let text = receiver.recv().unwrap();
        assert!(text.contains("hipvmaf-score") && text.contains("deaf"), "{text}");
        assert!(worker.settled().unwrap().recv().is_err());
    }

    /// A panic in any thread of the element has this effect.
    #[test]
    fn a_panic_ends_the_run_with_an_error() {
        gst::init().unwrap();
        let element: super::super::HipVmaf = glib::Object::new();
        element.set_property("backend", Backend::Cpu);
        let bus = gst::Bus::new();
        element.set_bus(Some(&bus));
        element.set_state(gst::State::Paused).unwrap();
        let panic = Error::Panic { thread: "hipvmaf-watch", text: "number 7".into() };
        element.imp().broken()(panic);
        let error = bus.timed_pop_filtered(None, &[gst::MessageType::Error]).unwrap();
        let gst::MessageView::Error(error) = error.view() else { panic!("{error:?}") };
        assert!(error.error().message().contains("number 7"), "{error:?}");
        element.set_state(gst::State::Null).unwrap();
    }

    #[test]
    fn no_more_threads_are_started_than_there_is_use_for() {
        let of = |wanted| threads(&Settings { threads: wanted, ..Settings::default() });
        assert_eq!([0, 1, 16].map(of), [0, 1, 16]);
        assert!(of(i32::MAX as u32) <= 1 << 12);
    }
}
