// SPDX-License-Identifier: MPL-2.0

//! Motion of the reference: options, and the formulas from differences of blurred frames to `motion2` and `motion3`.
//!
//! Formulas are those of libvmaf 3.2.0's integer motion (BSD-2-Clause-Patent).

use std::collections::VecDeque;

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, float};
use super::score::{OptionsError, Scorer, Source, Values};
use super::work::{FrameSums, Work};
use crate::frame::Geometry;

/// Smallest width and height whose blur is defined.
pub const MIN_SIZE: usize = 3;

/// `motion_*` options of libvmaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionOptions {
    /// `motion_blend_factor`, 0.0..=1.0: share that is kept of the value above the offset.
    pub blend_factor: f64,
    /// `motion_blend_offset`, 0.0..=1000.0.
    pub blend_offset: f64,
    /// `motion_five_frame_window`: compare with the frame before the previous one.
    pub five_frame_window: bool,
    /// `motion_force_zero`: report 0 for everything.
    pub force_zero: bool,
    /// `motion_fps_weight`, 0.0..=5.0.
    pub fps_weight: f64,
    /// `motion_max_val`, 0.0..=10000.0.
    pub max_val: f64,
    /// `motion_moving_average`: `motion3` is the mean of two frames.
    pub moving_average: bool,
}

impl Default for MotionOptions {
    fn default() -> Self {
        Self {
            blend_factor: 1.0,
            blend_offset: 40.0,
            five_frame_window: false,
            force_zero: false,
            fps_weight: 1.0,
            max_val: 10000.0,
            moving_average: false,
        }
    }
}

impl MotionOptions {
    /// Returns the pixel work for these options.
    pub fn work(&self) -> MotionWork {
        let used = !self.force_zero;
        MotionWork { lag1: used && !self.five_frame_window, lag2: used && self.five_frame_window }
    }

    /// Returns how many later frames may be needed before the scores of a frame are final.
    pub fn lookahead(&self) -> usize {
        if self.force_zero { 0 } else { self.lag() }
    }

    /// Returns how many earlier frames the scores of a frame depend on. The first frames of a run have special scores,
    /// so a frame with fewer frames before it has other scores than in a longer run.
    pub fn lookback(&self) -> usize {
        match (self.force_zero, self.five_frame_window) {
            (true, _) => 0,
            (false, five) => (if five { 3 } else { 1 }) + usize::from(self.moving_average),
        }
    }

    /// Returns the distance of the compared frames.
    fn lag(&self) -> usize {
        1 + usize::from(self.five_frame_window)
    }

    /// Returns the score of a sum of absolute differences in a plane of `area` samples.
    pub(super) fn score(&self, sum: u64, area: f64) -> f64 {
        (sum as f64 / 256.0 / area * self.fps_weight).min(self.max_val)
    }

    /// Applies blending and the limit of `motion3`.
    pub(super) fn blend(&self, x: f64) -> f64 {
        (x * self.blend_factor + (1.0 - self.blend_factor) * self.blend_offset.min(x)).min(self.max_val)
    }
}

/// Distances of the frames to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MotionWork {
    /// Against the previous frame.
    pub lag1: bool,
    /// Against the frame before that (`motion_five_frame_window`).
    pub lag2: bool,
}

impl MotionWork {
    /// Returns how many earlier frames have to be kept.
    pub fn lags(&self) -> usize {
        if self.lag2 { 2 } else { usize::from(self.lag1) }
    }
}

/// Sums of absolute differences of blurred frames; `None` if the run has no earlier frame or the work did not request
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MotionSums {
    pub lag1: Option<u64>,
    pub lag2: Option<u64>,
}

/// The final scores of one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionScores {
    /// Index of the frame in its run.
    pub frame: u64,
    /// `VMAF_integer_feature_motion_sad_score`, and `integer_motion`.
    pub sad: f64,
    /// `integer_motion2`.
    pub motion2: f64,
    /// `integer_motion3`.
    pub motion3: f64,
}

/// Turns the sums of a run of frames into scores, each as soon as no later frame can change it.
#[derive(Clone, Debug)]
pub struct MotionStream {
    options: MotionOptions,
    /// Luma samples of a frame.
    area: f64,
    /// Frames pushed.
    pushed: u64,
    /// Frames returned.
    done: u64,
    /// SAD scores of the last frames: that of frame `i` at `i % 4`.
    sads: [f64; 4],
    /// `motion3` of the frames without a frame to compare with; known from the first frame that has one.
    opening: f64,
    /// `motion3` of the last frame returned, before averaging.
    previous: f64,
}

impl MotionStream {
    /// Starts a run of frames with luma planes of this size.
    pub fn new(options: MotionOptions, width: usize, height: usize) -> Self {
        let area = (width * height) as f64;
        Self { options, area, pushed: 0, done: 0, sads: [0.0; 4], opening: 0.0, previous: 0.0 }
    }

    /// Takes the sums of the next frame. Returns the frames that have become final, in order.
    pub fn push(&mut self, sums: &MotionSums) -> Vec<MotionScores> {
        let options = &self.options;
        let sum = if options.five_frame_window { sums.lag2 } else { sums.lag1 };
        let score = match sum {
            Some(sad) if !options.force_zero => options.score(sad, self.area),
            _ => 0.0,
        };
        self.sads[self.pushed as usize % 4] = score;
        if self.pushed == self.lag() {
            self.opening = options.blend(score);
        }
        self.pushed += 1;
        let lag = self.lag();
        let ready = match self.pushed {
            n if options.force_zero => n,
            n if n <= lag => 0,
            n => n - 1,
        };
        (self.done..ready).map(|_| self.next(false)).collect()
    }

    /// Ends the run. Returns the frames that were waiting for later ones. The next frame starts a new run.
    pub fn finish(&mut self) -> Vec<MotionScores> {
        let rest = (self.done..self.pushed).map(|_| self.next(true)).collect();
        *self = Self { area: self.area, ..Self::new(self.options, 0, 0) };
        rest
    }

    fn lag(&self) -> u64 {
        self.options.lag() as u64
    }

    /// Computes the scores of the next frame to return; `last` if no frame follows it.
    fn next(&mut self, last: bool) -> MotionScores {
        let (frame, lag) = (self.done, self.lag());
        let sad = |i: u64| self.sads[i as usize % 4];
        let first = (frame + 1).saturating_sub(lag);
        let (motion2, current) = if frame < lag || self.options.force_zero {
            (0.0, self.opening)
        } else {
            let motion2 = match first {
                _ if last => sad(frame),
                first if first < lag => sad(frame + 1),
                first => sad(first).min(sad(frame + 1)),
            };
            (motion2, self.options.blend(motion2))
        };
        let averaged = self.options.moving_average && frame >= lag;
        let motion3 = if averaged { (current + self.previous) / 2.0 } else { current };
        let scores = MotionScores { frame, sad: sad(frame), motion2, motion3 };
        self.previous = current;
        self.done += 1;
        scores
    }
}

/// Motion of the reference.
pub struct Motion;

impl Metric for Motion {
    const NAME: &'static str = "motion";
    type Work = MotionWork;
    type Sums = MotionSums;
    const OF_REFERENCE: bool = true;

    fn lags(work: &MotionWork) -> usize {
        work.lags()
    }

    fn check(_work: &MotionWork, geometry: Geometry) -> Result<(), Misfit> {
        Misfit::at_least("motion", MIN_SIZE, geometry)
    }
}

impl Options for MotionOptions {
    const EXTRACTOR: &'static str = "motion";
    const TABLE: &'static [Row<Self>] = &[
        float("motion_blend_factor", Some("mbf"), |o| &mut o.blend_factor, 0.0..=1.0),
        float("motion_blend_offset", Some("mbo"), |o| &mut o.blend_offset, 0.0..=1000.0),
        bool("motion_five_frame_window", Some("mffw"), |o| &mut o.five_frame_window),
        bool("motion_force_zero", Some("force_0"), |o| &mut o.force_zero),
        float("motion_fps_weight", Some("mfw"), |o| &mut o.fps_weight, 0.0..=5.0),
        float("motion_max_val", Some("mmxv"), |o| &mut o.max_val, 0.0..=10000.0),
        bool("motion_moving_average", Some("mma"), |o| &mut o.moving_average),
    ];
}

/// Identifies a feature of [`MotionOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionOutput {
    Sad,
    Motion2,
    Motion3,
}

impl Extract for MotionOptions {
    type Output = MotionOutput;
    const FEATURES: &'static [(&'static str, MotionOutput)] = &[
        // The only long name for which libvmaf has no short form.
        ("VMAF_integer_feature_motion_sad_score", MotionOutput::Sad),
        ("integer_motion2", MotionOutput::Motion2),
        ("integer_motion3", MotionOutput::Motion3),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`integer_motion2`, `integer_motion3`, `VMAF_integer_feature_motion_sad_score`",
        tells: "how much the **reference** moves: no measure of quality, but what hides faults",
        range: "0 up, 8-bit steps",
        equal: "0 when still",
        source: "",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let new = self.work();
        work.extend::<Motion, _>(MotionWork::default(), |work| {
            work.lag1 |= new.lag1;
            work.lag2 |= new.lag2;
        });
        Ok(Box::new(MotionSource(*self)))
    }
}

#[derive(Clone, Copy, Debug)]
struct MotionSource(MotionOptions);

impl Source for MotionSource {
    fn lookahead(&self) -> usize {
        self.0.lookahead()
    }

    fn lookback(&self) -> usize {
        self.0.lookback()
    }

    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        Ok(Box::new(MotionStream::new(self.0, geometry.width, geometry.height)))
    }
}

impl MotionScores {
    fn values(self) -> Values {
        MotionOptions::values(|output| match output {
            MotionOutput::Sad => self.sad,
            MotionOutput::Motion2 => self.motion2,
            MotionOutput::Motion3 => self.motion3,
        })
    }
}

impl Scorer for MotionStream {
    fn boxed(&self) -> Box<dyn Scorer> {
        Box::new(self.clone())
    }

    fn push(&mut self, sums: &FrameSums, run: usize, ready: &mut VecDeque<Values>) {
        // Backends compare with the earlier reference pictures even if this rendition lacked them.
        let sums = sums.get::<Motion>().copied().unwrap_or_default();
        let sums = MotionSums { lag1: sums.lag1.filter(|_| run >= 1), lag2: sums.lag2.filter(|_| run >= 2) };
        ready.extend(MotionStream::push(self, &sums).into_iter().map(MotionScores::values));
    }

    fn finish(&mut self, ready: &mut VecDeque<Values>) {
        ready.extend(MotionStream::finish(self).into_iter().map(MotionScores::values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the definition over a whole run: SAD score, motion2 and motion3 of every frame.
    fn defined(options: &MotionOptions, sums: &[u64], area: f64) -> Vec<[f64; 3]> {
        let (n, lag) = (sums.len(), options.lag());
        if options.force_zero {
            return vec![[0.0; 3]; n];
        }
        let sad = |i: usize| {
            let score = (sums[i] as f64 / 256.0) / area * options.fps_weight;
            if i < lag { 0.0 } else { score.min(options.max_val) }
        };
        let motion2 = |i: usize| match (i, lag) {
            (i, lag) if i < lag => 0.0,
            (i, _) if i == n - 1 => sad(i),
            (i, 1) => sad(i).min(sad(i + 1)),
            (2, _) => sad(3),
            (i, _) => sad(i - 1).min(sad(i + 1)),
        };
        let plain = |i: usize| match i {
            i if i >= lag => options.blend(motion2(i)),
            _ if n > lag => options.blend(sad(lag)),
            _ => 0.0,
        };
        let motion3 = |i: usize| match options.moving_average && i >= lag {
            true => (plain(i) + plain(i - 1)) / 2.0,
            false => plain(i),
        };
        (0..n).map(|i| [sad(i), motion2(i), motion3(i)]).collect()
    }

    /// Returns every combination of the switches with some values.
    fn option_sets() -> impl Iterator<Item = MotionOptions> {
        (0..32).map(|i| {
            let on = |bit: u32| i >> bit & 1 == 1;
            MotionOptions {
                blend_factor: if on(0) { 0.4 } else { 1.0 },
                blend_offset: 9.0,
                five_frame_window: on(1),
                force_zero: i > 25,
                fps_weight: if on(2) { 1.3 } else { 1.0 },
                max_val: if on(3) { 18.0 } else { 10000.0 },
                moving_average: on(4),
            }
        })
    }

    #[test]
    fn streams_of_all_lengths_and_options_follow_the_definition() {
        let sums: Vec<u64> = (0..12u64).map(|i| i * i * 7919 % 101 * 100_000).collect();
        for options in option_sets() {
            let mut stream = MotionStream::new(options, 100, 10);
            for n in 0..=sums.len() {
                let mut found = Vec::new();
                for (i, sum) in sums[..n].iter().enumerate() {
                    let known = |lag| (i >= lag).then_some(*sum);
                    found.extend(stream.push(&MotionSums { lag1: known(1), lag2: known(2) }));
                    let waiting = i + 1 - found.len();
                    assert!(waiting <= options.lookahead(), "{options:?}");
                }
                found.extend(stream.finish());
                let scores: Vec<_> = found.iter().map(|s| [s.sad, s.motion2, s.motion3]).collect();
                assert_eq!(scores, defined(&options, &sums[..n], 1000.0), "{options:?} {n}");
                assert!(found.iter().map(|s| s.frame).eq(0..n as u64));
            }
        }
    }

    /// A frame can be scored apart from its run, with as many frames before and behind it as the options need.
    #[test]
    fn parts_of_a_run_have_the_scores_of_the_whole() {
        let sums: Vec<u64> = (0..16u64).map(|i| i * i * 7919 % 101 * 100_000).collect();
        for options in option_sets() {
            let whole = defined(&options, &sums, 1000.0);
            let (before, behind) = (options.lookback(), options.lookahead());
            for from in before..sums.len() - behind {
                let part = defined(&options, &sums[from - before..=from + behind], 1000.0);
                assert_eq!(part[before], whole[from], "{options:?} {from}");
            }
        }
    }

    #[test]
    fn work_follows_the_window() {
        let plain = MotionOptions::default();
        assert_eq!(plain.work(), MotionWork { lag1: true, lag2: false });
        let five = MotionOptions { five_frame_window: true, ..plain };
        assert_eq!(five.work(), MotionWork { lag1: false, lag2: true });
        assert_eq!(MotionOptions { force_zero: true, ..five }.work(), MotionWork::default());
    }
}
