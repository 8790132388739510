// SPDX-License-Identifier: MPL-2.0

//! Figures of a run as a whole: how long scoring takes, what was not verified, and the metrics file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst::{ClockTime, Structure};
use watch::compute_time::ComputeTime;
use watch::prometheus;

use super::rendition::Rendition;
use super::report::event::Event;
use super::report::figures::Figures;
use super::report::writer::Job;
use super::settings::WatchSettings;

/// Seconds back that compute times are taken from where there are no windows.
const RECENT: f64 = 60.0;
/// Quantiles of the compute time in the metrics file.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Counters and figures that concern all renditions.
pub struct Tally {
    started: Instant,
    compute_time: ComputeTime,
    /// Groups that were to be computed again and were not.
    not_verified: u64,
    /// The metrics file, if there is one.
    metrics: Option<PathBuf>,
    /// Interval of running time for which it was written last.
    interval: Option<u64>,
}

impl Tally {
    pub fn new(metrics: Option<PathBuf>) -> Self {
        Self {
            started: Instant::now(),
            compute_time: ComputeTime::default(),
            not_verified: 0,
            metrics,
            interval: None,
        }
    }

    /// Takes how long a group took.
    pub fn computed(&mut self, taken: Duration) {
        self.compute_time.push(self.now(), taken.as_secs_f64());
    }

    /// Counts groups that were to be computed again and were not.
    pub fn not_verified(&mut self, groups: u64) {
        self.not_verified += groups;
    }

    /// Starts measuring again.
    pub fn reset(&mut self) {
        self.compute_time = ComputeTime::default();
    }

    /// Forgets for which interval the metrics file was written: after a flush, running time may go back.
    pub fn flush(&mut self) {
        self.interval = None;
    }

    pub fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// Monotonic time, in seconds.
    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Returns these quantiles of the compute times within the last window.
    fn quantiles<const N: usize>(&self, watch: &WatchSettings, quantiles: [f64; N]) -> [f64; N] {
        let recent = if watch.window == 0 { RECENT } else { watch.window as f64 / 1e9 };
        self.compute_time.quantiles(recent, self.now(), quantiles)
    }

    /// Adds what concerns all renditions to the property `stats`.
    pub fn add_to(&self, stats: &mut Structure, watch: &WatchSettings) {
        stats.set("not-verified", self.not_verified);
        if let Some(mean) = self.compute_time.mean() {
            let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
            stats.set("compute-time-mean", nanoseconds(mean));
            let [p99] = self.quantiles(watch, [0.99]);
            stats.set("compute-time-p99", nanoseconds(p99));
        }
    }

    /// Returns the job that replaces the metrics file, once per interval.
    pub fn metrics_job(
        &mut self,
        now: ClockTime,
        figures: &Figures,
        renditions: &[Rendition],
        watch: &WatchSettings,
    ) -> Option<Job> {
        let path = self.metrics.clone()?;
        let interval = now.nseconds() / watch.window_interval.max(1);
        if self.interval.is_some_and(|last| interval <= last) {
            return None;
        }
        self.interval = Some(interval);
        Some(Job::Metrics(path, self.figures(figures, renditions, watch)))
    }

    /// Returns the figures for Prometheus.
    pub fn figures(
        &self,
        figures: &Figures,
        renditions: &[Rendition],
        watch: &WatchSettings,
    ) -> prometheus::Figures {
        let compute_time = self.compute_time.mean().map(|_| prometheus::ComputeTime {
            quantiles: QUANTILES.into_iter().zip(self.quantiles(watch, QUANTILES)).collect(),
            sum: self.compute_time.sum(),
            count: self.compute_time.count(),
        });
        let pads = renditions.iter().map(|rendition| pad_figures(rendition, figures)).collect();
        prometheus::Figures { pads, compute_time, not_verified: self.not_verified }
    }
}

/// Returns the figures of one rendition: of the last window, or of the whole run where there are no windows.
fn pad_figures(rendition: &Rendition, figures: &Figures) -> prometheus::Pad {
    let score = |(stat, value)| prometheus::Score { model: figures.name().into(), stat, value };
    let counts = rendition.record.counts();
    prometheus::Pad {
        name: rendition.pad.name().to_string(),
        label: rendition.label(),
        scores: rendition.recent(figures).fields().into_iter().map(score).collect(),
        frames: vec![
            ("scored", counts.scored - rendition.record.scored_again()),
            ("unpaired", counts.unpaired),
            ("skipped", counts.skipped),
            ("repeated", counts.repeated),
            ("unmatched", counts.dist_unmatched),
            ("aligning", counts.aligning),
            ("discont", counts.discont),
        ],
        alarms: rendition
            .health
            .alarms()
            .into_iter()
            .chain([(Event::Failed, rendition.is_failed())])
            .chain([(Event::OtherProgramme, rendition.alignment.is_other_programme())])
            .chain([(Event::Stalled, rendition.input.quiet.is_stalled())])
            .map(|(event, raised)| (event.name(), raised))
            .collect(),
        offset: rendition.alignment.estimate().map(|estimate| estimate.offset as f64 / 1e9),
        last_score: rendition.record.last_score_time(),
        verified: counts.verified,
        wrong: counts.wrong,
    }
}
