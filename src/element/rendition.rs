// SPDX-License-Identifier: MPL-2.0

//! One distorted stream: its pad, what was counted and scored of it, and what is watched.

use std::path::{Path, PathBuf};

use engine::frame::Geometry;
use engine::model::pool::{Pool, Pooled};
use engine::plan::Plan;
use engine::scale::{Method, Scaling};
use engine::session::Totals;
use gst::prelude::*;
use gst::{ClockTime, Structure};
use gst_video::VideoInfo;
use watch::align::{Aligner, Estimate};
use watch::summary::Summary;
use watch::thumbnail::Thumbnail;
use watch::window::{self, Figures};

use super::caps::alike;
use super::delay::Stamp;
use super::error::Error;
use super::event::{Event, EventMessage, EventState};
use super::import::geometry;
use super::input::Input;
use super::message::{Common, Confidence, PooledMessage, Stats};
use super::monitor::Monitor;
use super::pads::{Align, HipVmafPad, PadSettings};
use super::results::Results;
use super::settings::{PoolMethod, ResultsFormat, Watch};

/// What was counted over a section or since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub scored: u64,
    pub dist_unmatched: u64,
    pub frames: window::Counts,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.scored += other.scored;
        self.dist_unmatched += other.dist_unmatched;
        self.frames.add(&other.frames);
    }
}

/// Everything that a section is condensed from.
#[derive(Default)]
struct Section {
    counts: Counts,
    /// Of the first model.
    summary: Summary,
    /// For each column of the plan.
    pools: Vec<Pool>,
    /// Duration of the scored frames, and of the last reference frame its stamp.
    duration: ClockTime,
    last: Option<Stamp>,
}

/// A distorted frame that may be shown again.
pub struct Shown {
    pub buffer: gst::Buffer,
    pub running_time: ClockTime,
}

/// One distorted stream.
pub struct Rendition {
    /// Unlike that of any other, in the life of the stream.
    pub number: u64,
    pub pad: HipVmafPad,
    pub input: Input,
    /// Whether chroma lies on columns, on rows of luma.
    pub cosited: (bool, bool),
    /// Its number in the engine, once that is set up for it.
    pub track: Option<usize>,
    /// What the engine is set up to scale its frames with.
    pub scaling: Option<Scaling>,
    /// Its last frame was paired.
    pub running: bool,
    /// It has not delivered for so long that others no longer wait for it.
    pub absent: bool,
    /// Kept where missing frames are to be repeated.
    pub shown: Option<Shown>,
    pub monitor: Monitor,
    aligner: Option<Aligner>,
    /// What the aligner was made for: the range in frames, and the duration of a frame in nanoseconds.
    aligned: (u32, u64),
    /// Nanoseconds by which `align=auto` moves the frames.
    pub correction: i64,
    results: Option<(PathBuf, Results)>,
    /// What all pairs of the results file add up to.
    pub results_totals: Totals,
    /// Counts caps changes, flushes and resets.
    pub section_number: u32,
    section: Section,
    /// Since the start.
    totals: Counts,
    summary: Summary,
    last_score: Option<f64>,
}

impl Rendition {
    pub fn new(
        number: u64,
        pad: HipVmafPad,
        watch: &Watch,
        results: Option<(&Path, ResultsFormat)>,
    ) -> Result<Self, Error> {
        let results = results.map(|(path, format)| {
            let path = results_path(path, &pad);
            match Results::create(&path, format) {
                Ok(results) => Ok((path, results)),
                Err(source) => Err(Error::Results { path, source }),
            }
        });
        Ok(Self {
            number,
            input: Input::new(pad.clone().upcast()),
            pad,
            cosited: (true, false),
            track: None,
            scaling: None,
            running: false,
            absent: false,
            shown: None,
            monitor: Monitor::new(watch),
            aligner: None,
            aligned: (0, 0),
            correction: 0,
            results: results.transpose()?,
            section_number: 0,
            section: Section::default(),
            totals: Counts::default(),
            summary: Summary::default(),
            results_totals: Totals::default(),
            last_score: None,
        })
    }

    /// How its frames are brought to the size of the reference's by this method; `None` if they have it. An error if
    /// they cannot be compared.
    pub fn scaling(&self, reference: &VideoInfo, method: Option<Method>) -> Result<Option<Scaling>, Error> {
        let distorted = self.input.info.as_ref().ok_or_else(|| Error::NoCaps(self.input.name()))?;
        let boxed = || (Box::new(reference.clone()), Box::new(distorted.clone()));
        let same_size = (reference.width(), reference.height()) == (distorted.width(), distorted.height());
        if !same_size && method.is_none() {
            let (reference, distorted) = boxed();
            return Err(Error::Size { reference, distorted });
        }
        let geometries = geometry(distorted).zip(geometry(reference));
        let comparable = alike(reference.format_info(), distorted.format_info());
        match (geometries.filter(|_| comparable), method.filter(|_| !same_size)) {
            (Some((from, to)), Some(method)) => {
                let scaling = Scaling::new(method, from, to, self.cosited);
                scaling.map(Some).map_err(|source| {
                    let (reference, distorted) = boxed();
                    Error::Scaling { reference, distorted, source }
                })
            }
            (Some(_), None) => Ok(None),
            (None, _) => {
                let (reference, distorted) = boxed();
                Err(Error::Format { reference, distorted })
            }
        }
    }

    /// Nanoseconds to add to the running time of its frames.
    pub fn offset(&self) -> i64 {
        self.pad.settings().ts_offset.saturating_add(self.correction)
    }

    /// Gets ready to look for an offset, or stops to, as the pad is set. A reference frame lasts `frame` nanoseconds.
    pub fn configure_alignment(&mut self, frame: u64) {
        let PadSettings { align, align_range, .. } = self.pad.settings();
        if align == Align::Off {
            self.aligner = None;
        } else if self.aligner.is_none() || self.aligned != (align_range, frame) {
            self.aligner = Some(Aligner::new(align_range, frame));
            self.aligned = (align_range, frame);
        }
        if align != Align::Auto {
            self.correction = 0;
        }
    }

    /// Thumbnails of its frames and of the reference's are looked at.
    pub fn wants_thumbnails(&self) -> bool {
        self.aligner.is_some() || self.monitor.wants_pictures()
    }

    /// Shows the next reference frame to the search for an offset. What it has found, if that is news.
    pub fn align_reference(&mut self, at: ClockTime, thumbnail: &Thumbnail) -> Option<EventMessage> {
        let estimate = self.aligner.as_mut()?.push_reference(at.nseconds(), thumbnail)?;
        Some(self.found(at, estimate))
    }

    /// The same for the next distorted frame; `at` is corrected already.
    pub fn align_distorted(&mut self, at: ClockTime, thumbnail: &Thumbnail) -> Option<EventMessage> {
        let uncorrected = at.nseconds().saturating_add_signed(self.correction.saturating_neg());
        let estimate = self.aligner.as_mut()?.push_distorted(uncorrected, thumbnail)?;
        Some(self.found(at, estimate))
    }

    fn found(&mut self, at: ClockTime, estimate: Estimate) -> EventMessage {
        if self.pad.settings().align == Align::Auto {
            self.correction = estimate.offset.saturating_neg();
        }
        EventMessage {
            event: Event::Alignment,
            state: EventState::Info,
            running_time: Some(at),
            value: Some(estimate.confidence),
            offset: Some(estimate.offset),
            ..EventMessage::default()
        }
    }

    /// The offset that was found, and how sure it is.
    pub fn estimate(&self) -> Option<Estimate> {
        self.aligner.as_ref()?.estimate()
    }

    /// Frames to come have nothing to do with those before.
    pub fn restart(&mut self) {
        self.input.restart();
        self.shown = None;
        if let Some(aligner) = &mut self.aligner {
            aligner.restart();
        }
    }

    /// Counts a reference frame of this section.
    pub fn stamped(&mut self, stamp: &Stamp) {
        self.section.last = Some(stamp.clone());
    }

    pub fn count(&mut self, at: ClockTime, counts: window::Counts) {
        self.section.counts.frames.add(&counts);
        self.monitor.count(at, counts);
    }

    /// Drops the frame at the head, which has no reference frame.
    pub fn drop_head(&mut self) {
        if self.input.take().is_some() {
            self.section.counts.dist_unmatched += 1;
            // It is back, if late.
            self.absent = false;
        }
    }

    /// Sets up the results file for the columns of a plan.
    pub fn begin_results(&mut self, plan: &Plan, width: usize, height: usize) -> Result<(), Error> {
        let Some((path, results)) = &mut self.results else { return Ok(()) };
        let begun = results.begin(&plan.columns, width, height);
        begun.map_err(|source| Error::Results { path: path.clone(), source })
    }

    /// Gives the results file its name. Later calls do nothing.
    pub fn finish_results(&mut self, plan: &Plan, geometry: Option<Geometry>) -> Result<(), Error> {
        let totals = std::mem::take(&mut self.results_totals);
        match self.results.take() {
            Some((path, results)) => {
                let aggregates = geometry.map(|geometry| totals.aggregates(plan, geometry));
                results
                    .finish(&aggregates.unwrap_or_default())
                    .map_err(|source| Error::Results { path, source })
            }
            None => Ok(()),
        }
    }

    /// The results file would not be complete.
    pub fn drop_results(&mut self) {
        self.results = None;
    }

    /// Takes the values of a frame, one for each column of the plan, and the score among them.
    pub fn scored(&mut self, stamp: &Stamp, values: &[f64], score: Option<f64>) -> Result<(), Error> {
        if let Some((path, results)) = &mut self.results {
            results
                .row(stamp.index, values)
                .map_err(|source| Error::Results { path: path.clone(), source })?;
        }
        let section = &mut self.section;
        section.counts.scored += 1;
        section.duration = section.duration.saturating_add(stamp.duration.unwrap_or(ClockTime::ZERO));
        section.pools.resize(values.len(), Pool::default());
        for (pool, value) in section.pools.iter_mut().zip(values) {
            pool.push(*value);
        }
        if let Some(score) = score {
            section.summary.push(score);
            self.summary.push(score);
            self.last_score = Some(score);
        }
        Ok(())
    }

    /// The part of a message or meta that follows from column values, be they of a frame or pooled.
    pub fn common(&self, plan: &Plan, values: &[f64], options: Reported) -> Common {
        let value = |column: usize| values.get(column).copied().unwrap_or(f64::NAN);
        let named = |(column, name): (usize, &str)| (name.to_string(), value(column));
        let first = plan.models.first();
        let confidence = first
            .filter(|_| options.confidence)
            .and_then(|first| first.confidence_columns())
            .map(|columns| columns.map(value))
            .map(|[stddev, low, high]| Confidence { stddev, low, high });
        let metric = |on: bool, key: &str| plan.features.iter().position(|f| on && f.key == key).map(value);
        Common {
            pad: self.pad.name().into(),
            label: self.pad.display_label(),
            model: first.map(|first| first.model.name().to_string()).unwrap_or_default(),
            section: self.section_number,
            score: first.map_or(f64::NAN, |first| value(first.column)),
            confidence,
            psnr_y: metric(options.psnr, "psnr_y"),
            ssim: metric(options.ssim, "float_ssim"),
            ms_ssim: metric(options.ms_ssim, "float_ms_ssim"),
            models: plan.models.iter().map(|m| (m.column, m.model.name())).map(named).collect(),
            // Chroma features of grey video have no value.
            features: plan
                .features
                .iter()
                .enumerate()
                .map(|(column, feature)| named((column, &feature.key)))
                .filter(|(_, value)| !value.is_nan())
                .collect(),
            ..Common::default()
        }
    }

    /// An event of this rendition.
    pub fn event(&self, event: EventMessage) -> Structure {
        let (pad, label) = (self.pad.name().into(), self.pad.display_label());
        EventMessage { pad, label, ..event }.to_structure()
    }

    /// Ends the section: what it comes to, if it had frames.
    pub fn end_section(
        &mut self,
        plan: &Plan,
        reason: &str,
        method: PoolMethod,
        options: Reported,
    ) -> Option<Structure> {
        let section = std::mem::take(&mut self.section);
        self.totals.add(&section.counts);
        let last = section.last.as_ref()?;
        let values: Vec<f64> = section.pools.iter().map(|pool| method.of(pool)).collect();
        let end =
            |time: Option<ClockTime>| Some(time?.saturating_add(last.duration.unwrap_or(ClockTime::ZERO)));
        let Counts { scored, frames, .. } = section.counts;
        let message = PooledMessage {
            common: Common {
                timestamp: end(last.timestamp),
                stream_time: end(last.stream_time),
                running_time: end(Some(last.running_time)),
                duration: Some(section.duration),
                ..self.common(plan, &values, options)
            },
            pool_method: method.nick(),
            reason: reason.into(),
            frames: scored,
            unpaired: frames.unpaired,
            skipped: frames.skipped,
            repeated: frames.repeated,
            stats: stats(&section.summary),
        };
        self.section_number += 1;
        Some(message.to_structure("pooled"))
    }

    /// What a window comes to.
    pub fn window(&self, plan: &Plan, figures: &Figures, length: u64, method: PoolMethod) -> Structure {
        let first = plan.models.first().map(|first| first.model.name().to_string()).unwrap_or_default();
        let score = method.of(&figures.summary.pool);
        let message = PooledMessage {
            common: Common {
                running_time: Some(ClockTime::from_nseconds(figures.end)),
                duration: Some(ClockTime::from_nseconds(length)),
                pad: self.pad.name().into(),
                label: self.pad.display_label(),
                models: vec![(first.clone(), score)],
                model: first,
                section: self.section_number,
                score,
                ..Common::default()
            },
            pool_method: method.nick(),
            reason: "interval".into(),
            frames: figures.summary.pool.pooled().map_or(0, |pooled| pooled.count),
            unpaired: figures.counts.unpaired,
            skipped: figures.counts.skipped,
            repeated: figures.counts.repeated,
            stats: stats(&figures.summary),
        };
        message.to_structure("window")
    }

    /// Forgets what was counted and scored since the start.
    pub fn reset_stats(&mut self) {
        self.totals = Counts::default();
        self.summary = Summary::default();
        self.last_score = None;
    }

    /// Counted since the start.
    pub fn counts(&self) -> Counts {
        let mut counts = self.totals;
        counts.add(&self.section.counts);
        counts
    }

    /// Scores since the start.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Counters and figures since the start, for the property `stats`.
    pub fn stats(&self) -> Structure {
        let counts = self.counts();
        let open = self.section.last.is_some();
        let mut s = Structure::builder("stats")
            .field("frames-scored", counts.scored)
            .field("frames-unpaired", counts.frames.unpaired)
            .field("frames-skipped", counts.frames.skipped)
            .field("frames-repeated", counts.frames.repeated)
            .field("dist-unmatched", counts.dist_unmatched)
            .field("sections", u64::from(self.section_number) + u64::from(open))
            .field("alarm", self.monitor.alarms().iter().any(|(_, raised)| *raised))
            .field_if_some("score-last", self.last_score)
            .field_if_some("offset", self.estimate().map(|estimate| estimate.offset))
            .field_if_some("offset-confidence", self.estimate().map(|estimate| estimate.confidence))
            .build();
        let mut figures = |prefix: &str, summary: &Summary| {
            for (name, value) in stats(summary).fields() {
                s.set(format!("{prefix}-{name}"), value);
            }
        };
        if counts.scored > 0 {
            figures("score", &self.summary);
        }
        if let Some(window) = self.monitor.figures() {
            figures("window", &window.summary);
        }
        s
    }
}

/// What is reported only if asked for.
#[derive(Clone, Copy, Debug)]
pub struct Reported {
    pub confidence: bool,
    pub psnr: bool,
    pub ssim: bool,
    pub ms_ssim: bool,
}

/// The file named is that of `dist_sink`; others have the name of their pad in theirs.
fn results_path(path: &Path, pad: &HipVmafPad) -> PathBuf {
    let name = pad.name();
    if name == "dist_sink" {
        return path.into();
    }
    match path.extension() {
        Some(extension) => path.with_extension(format!("{name}.{}", extension.display())),
        None => path.with_extension(name.as_str()),
    }
}

/// All not a number without scores.
pub fn stats(summary: &Summary) -> Stats {
    let nan = f64::NAN;
    let none = Pooled { count: 0, min: nan, max: nan, mean: nan, harmonic_mean: nan, stddev: nan };
    let pooled = summary.pool.pooled().unwrap_or(none);
    Stats {
        min: pooled.min,
        max: pooled.max,
        mean: pooled.mean,
        harmonic_mean: pooled.harmonic_mean,
        stddev: pooled.stddev,
        p1: summary.percentile(1.0),
        p5: summary.percentile(5.0),
        p10: summary.percentile(10.0),
        p50: summary.percentile(50.0),
    }
}
