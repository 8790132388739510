// SPDX-License-Identifier: MPL-2.0

//! Motion of the reference in floating point: options, and the formulas from differences of blurred pictures to `motion2` and
//! `motion3`.
//!
//! Formulas and filters are those of libvmaf 3.2.0's `float_motion` (BSD-2-Clause-Patent). A sample `v` of `bits` bits is
//! `v / 2^(bits - 8) - 128`. A picture is filtered along its columns, then along its rows, with row and column `-i` being
//! `i`, and `n - 1 + i` being `n - 1 - i`, where there are `n`. The absolute differences to the picture before are added from
//! the left in each row, then those of the rows from above, and divided by the number of samples. All of this is in single
//! precision, and rounded at each step.

use std::collections::VecDeque;

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, float, number};
use super::score::{OptionsError, Scorer, Source, Values};
use super::work::{FrameSums, Work, place};
use crate::frame::Geometry;

/// Smallest width and height; libvmaf reads outside of smaller pictures.
const MIN_SIZE: usize = 3;
/// The widest halved picture.
const MAX_HALF_WIDTH: usize = 7680;

/// Taps of a filter.
pub const TAPS: usize = 5;

/// The low-pass filter for `motion_filter_size`. Those with fewer taps have zeros around them, which change no sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// 1.
    None,
    /// 3.
    Three,
    /// All others.
    Five,
}

impl Filter {
    /// Returns its taps.
    #[allow(clippy::excessive_precision, reason = "written as in libvmaf")]
    pub fn taps(self) -> [f32; TAPS] {
        match self {
            Self::None => [0.0, 0.0, 1.0, 0.0, 0.0],
            Self::Three => [0.0, 0.166378498, 0.667243004, 0.166378498, 0.0],
            Self::Five => [0.054488685, 0.244201342, 0.402619947, 0.244201342, 0.054488685],
        }
    }
}

/// Options of libvmaf's `float_motion`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatMotionOptions {
    /// `debug`: also reports `motion`.
    pub debug: bool,
    /// `motion_add_scale1`: adds the difference of the pictures at half their size.
    pub add_scale1: bool,
    /// `motion_add_uv`: adds the differences of Cb and Cr.
    pub add_uv: bool,
    /// `motion_blend_factor`, 0.0..=1.0: share that is kept of the value above the offset.
    pub blend_factor: f64,
    /// `motion_blend_offset`, 0.0..=1000.0.
    pub blend_offset: f64,
    /// `motion_filter_size`, 0..=9.
    pub filter_size: u32,
    /// `motion_force_zero`: reports 0 for everything.
    pub force_zero: bool,
    /// `motion_fps_weight`, 0.0..=5.0.
    pub fps_weight: f64,
    /// `motion_max_val`, 0.0..=10000.0.
    pub max_val: f64,
}

impl Default for FloatMotionOptions {
    fn default() -> Self {
        Self {
            debug: true,
            add_scale1: false,
            add_uv: false,
            blend_factor: 1.0,
            blend_offset: 40.0,
            filter_size: 5,
            force_zero: false,
            fps_weight: 1.0,
            max_val: 10000.0,
        }
    }
}

impl FloatMotionOptions {
    /// Returns the differences that are needed.
    pub(super) fn difference(&self) -> Difference {
        let filter = match self.filter_size {
            1 => Filter::None,
            3 => Filter::Three,
            _ => Filter::Five,
        };
        Difference { filter, half: self.add_scale1, chroma: self.add_uv }
    }

    /// Returns `motion` or `motion2` for a difference.
    pub(super) fn limited(&self, difference: f64) -> f64 {
        (difference * self.fps_weight).min(self.max_val)
    }

    /// Returns `motion3` for a difference.
    pub(super) fn blended(&self, difference: f64) -> f64 {
        let x = difference * self.fps_weight;
        (x * self.blend_factor + (1.0 - self.blend_factor) * self.blend_offset.min(x)).min(self.max_val)
    }
}

/// A kind of difference between two pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    pub filter: Filter,
    /// Includes that of the filtered pictures at half their size.
    pub half: bool,
    /// Includes those of Cb and Cr.
    pub chroma: bool,
}

/// The distinct kinds of differences to compute.
pub type FloatMotionWork = Vec<Difference>;

/// The difference to the picture before of each kind; `None` if the run has no earlier picture.
pub type FloatMotionSums = Vec<Option<f64>>;

/// Motion of the reference in floating point.
pub struct FloatMotion;

impl Metric for FloatMotion {
    const NAME: &'static str = "float_motion";
    type Work = FloatMotionWork;
    type Sums = FloatMotionSums;
    const OF_REFERENCE: bool = true;

    fn chroma(work: &FloatMotionWork) -> bool {
        work.iter().any(|difference| difference.chroma)
    }

    fn lags(work: &FloatMotionWork) -> usize {
        usize::from(!work.is_empty())
    }

    /// Backends keep earlier luma; chroma is kept by the metric.
    fn history(work: &FloatMotionWork) -> usize {
        usize::from(Self::chroma(work))
    }

    fn check(work: &FloatMotionWork, geometry: Geometry) -> Result<(), Misfit> {
        work.iter().try_for_each(|difference| difference.check(geometry))
    }
}

/// Reasons why options cannot be used with frames.
#[derive(Debug, thiserror::Error)]
enum HalfError {
    #[error("float_motion with motion_add_scale1 takes frames of at most {max} columns, these have {0}", max = 2 * MAX_HALF_WIDTH)]
    Wide(usize),
    #[error(
        "float_motion takes motion_add_uv together with motion_add_scale1 only for chroma planes as wide as luma: for others libvmaf reads memory that it has not written"
    )]
    Narrow,
}

impl Difference {
    fn check(&self, geometry: Geometry) -> Result<(), Misfit> {
        let metric = "float_motion";
        Misfit::at_least(metric, MIN_SIZE, geometry)?;
        if self.half && half(geometry.width) > MAX_HALF_WIDTH {
            return Err(Misfit::Other(Box::new(HalfError::Wide(geometry.width))));
        }
        if !self.chroma {
            return Ok(());
        }
        let (width, height) = geometry.chroma.ok_or(Misfit::NoChroma { metric })?;
        if self.half && width < geometry.width {
            return Err(Misfit::Other(Box::new(HalfError::Narrow)));
        }
        if width.min(height) < MIN_SIZE {
            return Err(Misfit::ChromaTooSmall { metric, min: MIN_SIZE, width, height });
        }
        Ok(())
    }
}

/// Returns half of a number of samples, rounded up.
pub fn half(samples: usize) -> usize {
    samples.div_ceil(2)
}

/// Divides the sum of the absolute differences by the number of samples.
pub fn mean(sum: f32, (width, height): (usize, usize)) -> f32 {
    sum / (width * height) as f32
}

/// Turns the differences of a run of frames into values, each as soon as no later frame can change it.
#[derive(Clone, Debug)]
struct Stream {
    options: FloatMotionOptions,
    /// Index of the difference in [`FloatMotionWork`].
    index: usize,
    /// The difference of the latest frame, 0 for the first of a run; `None` before it.
    latest: Option<f64>,
    /// The latest frame is the first of its run.
    is_first: bool,
}

impl Stream {
    fn take(&mut self, difference: Option<f64>, ready: &mut VecDeque<Values>) {
        let difference = difference.unwrap_or(0.0);
        if self.options.force_zero {
            ready.push_back(FloatMotionOptions::values(|_| 0.0));
            return;
        }
        self.next(Some(difference), ready);
        self.is_first = self.latest.is_none();
        self.latest = Some(difference);
    }

    /// Appends the values of the latest frame, which that with the difference `next` follows.
    fn next(&self, next: Option<f64>, ready: &mut VecDeque<Values>) {
        let Some(latest) = self.latest else { return };
        let options = &self.options;
        let least = next.map_or(latest, |next| if latest < next { latest } else { next });
        let blended = if self.is_first { next.unwrap_or(0.0) } else { least };
        ready.push_back(FloatMotionOptions::values(|output| match output {
            FloatMotionOutput::Motion => options.limited(latest),
            FloatMotionOutput::Motion2 if self.is_first => 0.0,
            FloatMotionOutput::Motion2 => options.limited(least),
            FloatMotionOutput::Motion3 => options.blended(blended),
        }));
    }
}

impl Scorer for Stream {
    fn boxed(&self) -> Box<dyn Scorer> {
        Box::new(self.clone())
    }

    fn push(&mut self, sums: &FrameSums, run: usize, ready: &mut VecDeque<Values>) {
        // Backends compare with the earlier reference picture even if this rendition lacked it.
        let sums = sums.get::<FloatMotion>().filter(|_| run >= 1);
        self.take(sums.and_then(|sums| sums.get(self.index).copied().flatten()), ready);
    }

    fn finish(&mut self, ready: &mut VecDeque<Values>) {
        self.next(None, ready);
        self.latest = None;
    }
}

impl Options for FloatMotionOptions {
    const EXTRACTOR: &'static str = "float_motion";
    const TABLE: &'static [Row<Self>] = &[
        bool("debug", None, |o| &mut o.debug),
        bool("motion_add_scale1", Some("mdc"), |o| &mut o.add_scale1),
        bool("motion_add_uv", Some("mau"), |o| &mut o.add_uv),
        float("motion_blend_factor", Some("mbf"), |o| &mut o.blend_factor, 0.0..=1.0),
        float("motion_blend_offset", Some("mbo"), |o| &mut o.blend_offset, 0.0..=1000.0),
        number!("motion_filter_size", Some("mfs"), filter_size, 0..=9),
        bool("motion_force_zero", Some("force_0"), |o| &mut o.force_zero),
        float("motion_fps_weight", Some("mfw"), |o| &mut o.fps_weight, 0.0..=5.0),
        float("motion_max_val", Some("mmxv"), |o| &mut o.max_val, 0.0..=10000.0),
    ];
}

/// Identifies a feature of [`FloatMotionOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatMotionOutput {
    Motion2,
    Motion,
    Motion3,
}

impl Extract for FloatMotionOptions {
    type Output = FloatMotionOutput;
    const FEATURES: &'static [(&'static str, FloatMotionOutput)] = &[
        ("motion2", FloatMotionOutput::Motion2),
        ("motion", FloatMotionOutput::Motion),
        ("motion3", FloatMotionOutput::Motion3),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`motion2`, `motion3`; without `debug=false` also `motion`",
        tells: "how much the **reference** moves, as `motion` says it",
        range: "0 up, 8-bit steps",
        equal: "0 when still",
        source: "",
    }];

    fn lacks(&self, output: FloatMotionOutput) -> Option<&'static str> {
        (output == FloatMotionOutput::Motion && !self.debug).then_some("debug")
    }

    fn in_models(name: &str) -> Option<String> {
        Some(format!("VMAF_feature_{name}_score"))
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let index = work.extend::<FloatMotion, _>(vec![], |work| {
            if self.force_zero { 0 } else { place(work, self.difference()) }
        });
        Ok(Box::new(FloatMotionSource { options: *self, index }))
    }
}

#[derive(Clone, Copy, Debug)]
struct FloatMotionSource {
    options: FloatMotionOptions,
    index: usize,
}

impl Source for FloatMotionSource {
    fn lookahead(&self) -> usize {
        usize::from(!self.options.force_zero)
    }

    fn lookback(&self) -> usize {
        usize::from(!self.options.force_zero)
    }

    fn scorer(&self, _geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self { options, index } = *self;
        Ok(Box::new(Stream { options, index, latest: None, is_first: false }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    /// Computes the definition over a whole run: `motion2`, `motion` and `motion3` of every frame.
    fn defined(options: &FloatMotionOptions, differences: &[f64]) -> Vec<Values> {
        let n = differences.len();
        if options.force_zero {
            return vec![vec![0.0; 3]; n];
        }
        let weighted = |i: usize| if i == 0 { 0.0 } else { differences[i] * options.fps_weight };
        let least = |i: usize| weighted(i).min(weighted((i + 1).min(n - 1)));
        let blend = |x: f64| {
            let above = x * options.blend_factor + (1.0 - options.blend_factor) * x.min(options.blend_offset);
            above.min(options.max_val)
        };
        let frame = |i: usize| {
            let motion2 = if i == 0 { 0.0 } else { least(i).min(options.max_val) };
            let motion3 = match i {
                0 if n > 1 => blend(weighted(1)),
                0 => 0.0,
                i => blend(least(i)),
            };
            vec![motion2, weighted(i).min(options.max_val), motion3]
        };
        (0..n).map(frame).collect()
    }

    #[test]
    fn streams_of_all_lengths_follow_the_definition() {
        let differences: Vec<f64> = (0..12u32).map(|i| f64::from(i * i * 7919 % 101) / 3.0).collect();
        let plain = FloatMotionOptions::default();
        for options in [
            plain,
            FloatMotionOptions { force_zero: true, ..plain },
            FloatMotionOptions { fps_weight: 1.3, max_val: 18.0, ..plain },
            FloatMotionOptions { blend_factor: 0.4, blend_offset: 9.0, max_val: 15.0, ..plain },
        ] {
            let mut stream = Stream { options, index: 0, latest: None, is_first: false };
            for n in 0..=differences.len() {
                let mut found = VecDeque::new();
                for (i, difference) in differences[..n].iter().enumerate() {
                    stream.take((i > 0).then_some(*difference), &mut found);
                    assert_eq!(i + 1 - found.len(), usize::from(!options.force_zero), "{options:?}");
                }
                stream.finish(&mut found);
                assert_eq!(Vec::from(found), defined(&options, &differences[..n]), "{options:?} {n}");
            }
        }
    }

    #[test]
    fn frames_that_libvmaf_reads_outside_of_are_refused() {
        let depth = BitDepth::new(8).unwrap();
        let geometry = |width, height, chroma| Geometry { width, height, depth, chroma };
        let plain = Difference { filter: Filter::Five, half: false, chroma: false };
        let (half, chroma) = (Difference { half: true, ..plain }, Difference { chroma: true, ..plain });
        let both = Difference { half: true, ..chroma };
        for (difference, geometry, reason) in [
            (plain, geometry(3, 3, None), ""),
            (plain, geometry(2, 30, None), "at least 3x3"),
            (plain, geometry(30, 2, None), "at least 3x3"),
            (half, geometry(15360, 3, None), ""),
            (half, geometry(15361, 3, None), "at most 15360 columns, these have 15361"),
            (chroma, geometry(6, 6, Some((3, 3))), ""),
            (chroma, geometry(6, 4, Some((3, 2))), "chroma planes of at least 3x3"),
            (chroma, geometry(6, 6, None), "needs chroma"),
            (both, geometry(6, 6, Some((6, 3))), ""),
            (both, geometry(6, 6, Some((3, 6))), "as wide as luma"),
        ] {
            let error = difference.check(geometry).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(reason) && reason.is_empty() == error.is_empty(), "{error}: {reason}");
        }
    }

    #[test]
    fn variants_of_a_difference_are_computed_once() {
        let mut work = Work::default();
        let plain = FloatMotionOptions::default();
        for options in [
            plain,
            FloatMotionOptions { filter_size: 4, max_val: 3.0, ..plain },
            FloatMotionOptions { filter_size: 3, ..plain },
            FloatMotionOptions { force_zero: true, add_uv: true, ..plain },
        ] {
            options.plan(false, &mut work).unwrap();
        }
        let five = Difference { filter: Filter::Five, half: false, chroma: false };
        let three = Difference { filter: Filter::Three, ..five };
        assert_eq!(work.get::<FloatMotion>(), Some(&vec![five, three]));
    }
}
