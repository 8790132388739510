// SPDX-License-Identifier: MPL-2.0

//! Visual information fidelity in single precision: options, tables, and the formulas from sums to the four scale scores.
//!
//! Formulas, constants and the order of all floating point operations are those of libvmaf 3.2.0's `float_vif`
//! (BSD-2-Clause-Patent) in its plain C form. Its definition is in docs/metrics.md.

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, float, name};
use super::score::{OptionsError, Scorer, Source, plain};
use super::speed::{KERNEL_SCALES, Method, Sample, filter_size, gaussian, resample};
use super::work::{FrameSums, Work, place};
use crate::frame::Geometry;

/// Number of scales, each half as large as the one before.
pub const SCALES: usize = 4;

/// Variances below this are taken for zero.
pub const EPSILON: f32 = 1.0e-10;

/// Coefficients of the logarithm of base 2 of `1 + x` for `x` in [0, 1), the highest power first. The last one is 0.
pub const LOG2: [f32; 9] = [
    -0.012671635276421_f64 as f32,
    0.064841182402670_f64 as f32,
    -0.157048836463065_f64 as f32,
    0.257167726303123_f64 as f32,
    -0.353800560300520_f64 as f32,
    0.480131410397451_f64 as f32,
    -0.721314327952201_f64 as f32,
    1.442694803896991_f64 as f32,
    0.0,
];

/// Options of libvmaf's `float_vif`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatVifOptions {
    /// `vif_enhn_gain_limit`, 1.0..=100.0: largest gain that counts as contrast enhancement.
    pub enhn_gain_limit: f64,
    /// `vif_kernelscale`: factor on the length of the filters, one of [`KERNEL_SCALES`].
    pub kernel_scale: f64,
    /// `vif_prescale`: scaling factor of the pictures before all other steps.
    pub prescale: f64,
    /// `vif_prescale_method`.
    pub prescale_method: Method,
    /// `vif_scale1_min_val` to `vif_scale3_min_val`: smallest results.
    pub min_vals: [f64; SCALES - 1],
    /// `vif_sigma_nsq`: variance of the visual noise, in squared 8-bit steps.
    pub sigma_nsq: f64,
    /// `vif_skip_scale0`: reports 0 for scale 0.
    pub skip_scale0: bool,
}

impl Default for FloatVifOptions {
    fn default() -> Self {
        Self {
            enhn_gain_limit: 100.0,
            kernel_scale: 1.0,
            prescale: 1.0,
            prescale_method: Method::default(),
            min_vals: [0.0; SCALES - 1],
            sigma_nsq: 2.0,
            skip_scale0: false,
        }
    }
}

/// Reasons why options cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FloatVifError {
    #[error("libvmaf knows no vif_kernelscale of {0}; among others it knows 0.5, 1, 1.5, 2 and 3")]
    KernelScale(f64),
}

/// How pictures are scaled and filtered. Means and variances depend on nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filtering {
    kernel_scale: f64,
    /// Factor and method, if the pictures are resampled.
    prescale: Option<(f64, Method)>,
}

/// Parameters of the formulas that use means and variances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    pub gain_limit: f32,
    /// Variance of the visual noise.
    pub noise: f64,
}

impl Variant {
    /// Returns the factor of the distorted variance at pixels whose reference is flat.
    pub fn flat_factor(&self) -> f32 {
        let noise = self.noise as f32;
        (f64::from(noise * noise) / (255.0 * 255.0)) as f32
    }

    /// Returns the inverse of the noise if a product with it is exact, so that no quotient is needed.
    pub fn exact_inverse(&self) -> Option<f32> {
        [0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
            .into_iter()
            .find(|noise| *noise == self.noise)
            .map(|noise| 1.0 / noise as f32)
    }

    /// Returns the smallest single that is not less than the noise.
    pub fn noise_limit(&self) -> f32 {
        let noise = self.noise as f32;
        if f64::from(noise) < self.noise { noise.next_up() } else { noise }
    }
}

/// The pixel work for pictures that are filtered alike.
#[derive(Clone, Debug, PartialEq)]
pub struct FilteringWork {
    pub filtering: Filtering,
    /// The sums of scale 0 are needed.
    pub scale0: bool,
    /// At least one.
    pub variants: Vec<Variant>,
}

/// The pixel work for each frame pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FloatVifWork {
    /// One for each distinct filtering.
    pub filterings: Vec<FilteringWork>,
}

/// Numerator and denominator of each scale.
pub type ScaleSums = [[f32; 2]; SCALES];

/// The sums of each variant of each filtering of [`FloatVifWork`], in its order.
pub type FloatVifSums = Vec<Vec<ScaleSums>>;

impl FloatVifOptions {
    /// Returns how the pictures are filtered.
    pub fn filtering(&self) -> Result<Filtering, FloatVifError> {
        // The tolerance and its precision are libvmaf's.
        let is = |scale: &f64| f64::from((self.kernel_scale as f32 - *scale as f32).abs()) < 1e-3;
        if !KERNEL_SCALES.iter().any(is) {
            return Err(FloatVifError::KernelScale(self.kernel_scale));
        }
        let prescale = (self.prescale != 1.0).then_some((self.prescale, self.prescale_method));
        Ok(Filtering { kernel_scale: self.kernel_scale, prescale })
    }

    /// Returns the parameters of the formulas that use means and variances.
    pub fn variant(&self) -> Variant {
        Variant { gain_limit: self.enhn_gain_limit as f32, noise: self.sigma_nsq }
    }

    /// Computes `vif_scale0` to `vif_scale3` from the sums of these options.
    pub fn scores(&self, sums: &ScaleSums) -> [f64; SCALES] {
        let mut scores = sums.map(|[num, den]| f64::from(num) / f64::from(den));
        for (score, least) in scores[1..].iter_mut().zip(self.min_vals) {
            *score = if *score > least { *score } else { least };
        }
        if self.skip_scale0 {
            scores[0] = 0.0;
        }
        scores
    }
}

impl Filtering {
    /// Returns true for libvmaf's defaults.
    pub fn is_default(&self) -> bool {
        *self == Self { kernel_scale: 1.0, prescale: None }
    }

    /// Returns the number of taps of a scale.
    fn taps(&self, scale: usize) -> usize {
        filter_size((1 << (4 - scale)) + 1, self.kernel_scale)
    }

    /// Returns the length of an axis after prescaling.
    fn prescaled(&self, samples: usize) -> usize {
        self.prescale.map_or(samples, |(factor, _)| (samples as f64 * factor + 0.5) as usize)
    }

    /// Returns true if no filter reads beyond the samples that mirror those of an axis.
    fn fits(&self, samples: usize, scale0: bool) -> bool {
        let least = match self.prescale {
            None | Some((_, Method::Nearest)) => 1,
            Some((_, Method::Bilinear)) => 2,
            Some((_, Method::Bicubic)) => 3,
            Some((_, Method::Lanczos4)) => 6,
        };
        let reaches = |scale: usize| self.prescaled(samples) >> scale > self.taps(scale) / 2;
        samples >= least && (usize::from(!scale0)..SCALES).all(reaches)
    }

    /// Computes the tables for frames of this geometry.
    pub fn layout(&self, Geometry { width, height, .. }: Geometry) -> Layout {
        let size = (self.prescaled(width), self.prescaled(height));
        let resampling = self.prescale.filter(|_| size != (width, height)).map(|(_, method)| {
            let sources = |from: usize, to: usize| {
                let mut sources = vec![];
                (0..to).for_each(|i| resample(Some(method), i, from, to, &mut sources));
                sources
            };
            let x = sources(width, size.0);
            let spread = x.len() / size.0.max(1);
            Resampling { spread, x, y: sources(height, size.1), normalised: method == Method::Lanczos4 }
        });
        Layout {
            sizes: std::array::from_fn(|scale| (size.0 >> scale, size.1 >> scale)),
            taps: std::array::from_fn(|scale| {
                let taps = self.taps(scale);
                gaussian(taps, taps as f32 / 5.0)
            }),
            resampling,
        }
    }
}

/// Tables for pictures of one size.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Width and height of each scale.
    pub sizes: [(usize, usize); SCALES],
    /// The taps of each scale: an odd number, symmetric. They filter the scale, and before that the one above it.
    pub taps: [Vec<f32>; SCALES],
    /// How scale 0 is made of the picture, if it is resampled.
    pub resampling: Option<Resampling>,
}

/// A resampled picture: each sample is the sum, row by row, of samples times the product of their row and column weights.
#[derive(Clone, Debug)]
pub struct Resampling {
    /// Samples of the picture per resampled sample, along either axis.
    pub spread: usize,
    /// `spread` samples for each resampled column.
    pub x: Vec<Sample>,
    /// `spread` samples for each resampled row.
    pub y: Vec<Sample>,
    /// The sum is divided by that of the weights.
    pub normalised: bool,
}

/// Visual information fidelity in single precision.
pub struct FloatVif;

impl Metric for FloatVif {
    const NAME: &'static str = "float_vif";
    type Work = FloatVifWork;
    type Sums = FloatVifSums;

    fn check(work: &FloatVifWork, geometry: Geometry) -> Result<(), Misfit> {
        let least =
            |work: &FilteringWork| (1..).find(|n| work.filtering.fits(*n, work.scale0)).unwrap_or(usize::MAX);
        work.filterings.iter().try_for_each(|work| Misfit::at_least("float VIF", least(work), geometry))
    }
}

impl Options for FloatVifOptions {
    const EXTRACTOR: &'static str = "float_vif";
    const TABLE: &'static [Row<Self>] = &[
        float("vif_enhn_gain_limit", Some("egl"), |o| &mut o.enhn_gain_limit, 1.0..=100.0),
        float("vif_kernelscale", Some("ks"), |o| &mut o.kernel_scale, 0.1..=4.0),
        float("vif_prescale", Some("ps"), |o| &mut o.prescale, 0.1..=4.0),
        name(
            "vif_prescale_method",
            "pm",
            |o| o.prescale_method.name(),
            |o, name| Method::from_name(name).map(|method| o.prescale_method = method),
            &Method::NAMES,
        ),
        float("vif_scale1_min_val", Some("s1miv"), |o| &mut o.min_vals[0], 0.0..=1.0),
        float("vif_scale2_min_val", Some("s2miv"), |o| &mut o.min_vals[1], 0.0..=1.0),
        float("vif_scale3_min_val", Some("s3miv"), |o| &mut o.min_vals[2], 0.0..=1.0),
        float("vif_sigma_nsq", Some("snsq"), |o| &mut o.sigma_nsq, 0.0..=5.0),
        bool("vif_skip_scale0", Some("ssclz"), |o| &mut o.skip_scale0),
    ];
}

impl Extract for FloatVifOptions {
    /// The scale.
    type Output = usize;
    const FEATURES: &'static [(&'static str, usize)] =
        &[("vif_scale0", 0), ("vif_scale1", 1), ("vif_scale2", 2), ("vif_scale3", 3)];
    const ABOUT: &'static [About] = &[About {
        reported: "`vif_scale0` to `3`",
        tells: "the same in single precision, as models `vmaf_float_…` read it",
        range: "0 to 1; above 1 where contrast was enhanced",
        equal: "just below 1",
        source: "H. Sheikh, A. Bovik, IEEE Trans. Image Processing 2006",
    }];

    fn in_models(name: &str) -> Option<String> {
        Some(format!("VMAF_feature_{name}_score"))
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let filtering = self.filtering()?;
        let source = work.extend::<FloatVif, _>(FloatVifWork::default(), |FloatVifWork { filterings }| {
            let found = filterings.iter().position(|work| work.filtering == filtering);
            let index = found.unwrap_or_else(|| {
                filterings.push(FilteringWork { filtering, scale0: false, variants: vec![] });
                filterings.len() - 1
            });
            let work = &mut filterings[index];
            work.scale0 |= !self.skip_scale0;
            FloatVifSource {
                options: *self,
                filtering: index,
                variant: place(&mut work.variants, self.variant()),
            }
        });
        Ok(Box::new(source))
    }
}

/// `filtering`, `variant`: indices in [`FloatVifSums`].
#[derive(Clone, Copy, Debug)]
struct FloatVifSource {
    options: FloatVifOptions,
    filtering: usize,
    variant: usize,
}

impl FloatVifSource {
    fn sums<'a>(&self, sums: &'a FrameSums) -> Option<&'a ScaleSums> {
        sums.get::<FloatVif>()?.get(self.filtering)?.get(self.variant)
    }
}

impl Source for FloatVifSource {
    fn part(&self) -> String {
        self.options.suffix().replace('_', " ")
    }

    fn scorer(&self, _geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let source = *self;
        Ok(plain(move |sums| {
            let scores = source.sums(sums).map(|sums| source.options.scores(sums));
            FloatVifOptions::values(|scale| scores.map_or(f64::NAN, |scores| scores[scale]))
        }))
    }

    fn fractions(&self, sums: &FrameSums, _geometry: Geometry) -> Result<Vec<(String, f64)>, OptionsError> {
        let Some(sums) = self.sums(sums) else { return Ok(vec![]) };
        Ok(super::vif::named_fractions("vif", *sums, self.options.skip_scale0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;
    use crate::metrics::feature::Feature;

    fn options(set: &[(&str, &str)]) -> FloatVifOptions {
        let mut options = FloatVifOptions::default();
        set.iter().for_each(|(name, value)| assert_eq!(options.set(name, value), Ok(true)));
        options
    }

    /// Returns the smallest size of frames that these options take.
    fn least(set: &[(&str, &str)]) -> usize {
        let mut work = Work::default();
        options(set).plan(false, &mut work).unwrap();
        let geometry =
            |n| Geometry { width: n, height: 4000, depth: BitDepth::new(8).unwrap(), chroma: None };
        (1..).find(|n| work.check(geometry(*n)).is_ok()).unwrap()
    }

    #[test]
    fn frames_are_as_large_as_the_filters_need() {
        assert_eq!(least(&[]), 16);
        assert_eq!(least(&[("vif_skip_scale0", "true")]), 16);
        assert_eq!(least(&[("vif_kernelscale", "3.711340206")]), 56);
        assert_eq!(least(&[("vif_kernelscale", "0.5")]), 16);
        assert_eq!(least(&[("vif_prescale", "0.5")]), 31);
        assert_eq!(least(&[("vif_prescale", "4"), ("vif_prescale_method", "bicubic")]), 4);
        assert_eq!(least(&[("vif_prescale", "4"), ("vif_prescale_method", "lanczos4")]), 6);
    }

    #[test]
    fn kernel_scales_are_those_of_libvmaf() {
        let plan = |scale| options(&[("vif_kernelscale", scale)]).plan(false, &mut Work::default());
        assert!(plan("1.4999").is_ok());
        assert_eq!(
            plan("1.4").unwrap_err().to_string(),
            "libvmaf knows no vif_kernelscale of 1.4; among others it knows 0.5, 1, 1.5, 2 and 3"
        );
    }

    #[test]
    fn what_is_filtered_alike_is_filtered_once() {
        let mut work = Work::default();
        for set in [
            &[][..],
            &[("vif_enhn_gain_limit", "1"), ("vif_skip_scale0", "true")],
            &[("vif_prescale_method", "bicubic"), ("vif_scale1_min_val", "0.5")],
            &[("vif_kernelscale", "2")],
        ] {
            options(set).plan(false, &mut work).unwrap();
        }
        let FloatVifWork { filterings } = work.get::<FloatVif>().unwrap();
        let counts: Vec<_> = filterings.iter().map(|work| work.variants.len()).collect();
        assert_eq!(counts, [2, 1]);
        assert!(filterings[0].filtering.is_default() && !filterings[1].filtering.is_default());
    }

    #[test]
    fn names_are_those_of_libvmaf() {
        let set = [
            ("vif_enhn_gain_limit", "1"),
            ("vif_kernelscale", "2"),
            ("vif_prescale", "0.5"),
            ("vif_prescale_method", "bicubic"),
            ("vif_scale1_min_val", "0.1"),
            ("vif_scale2_min_val", "0.2"),
            ("vif_scale3_min_val", "0.3"),
            ("vif_sigma_nsq", "0.7"),
            ("vif_skip_scale0", "true"),
        ];
        assert_eq!(
            Feature::resolve("VMAF_feature_vif_scale2_score", set).unwrap().key,
            "vif_scale2_egl_1_ks_2_ps_0.5_pm_bicubic_s1miv_0.1_s2miv_0.2_s3miv_0.3_snsq_0.7_ssclz"
        );
        assert_eq!(Feature::resolve("vif_scale0", []).unwrap().key, "vif_scale0");
    }

    #[test]
    fn scores_of_known_sums() {
        let sums = [[3.0, 4.0], [1.0, 8.0], [0.0, 0.0], [9.0, 8.0]];
        let scores = options(&[]).scores(&sums);
        assert_eq!(scores, [0.75, 0.125, 0.0, 1.125]);
        let floors = options(&[
            ("vif_scale1_min_val", "0.25"),
            ("vif_scale2_min_val", "0.5"),
            ("vif_skip_scale0", "true"),
        ]);
        assert_eq!(floors.scores(&sums), [0.0, 0.25, 0.5, 1.125]);
    }

    #[test]
    fn the_noise_is_compared_in_double_precision() {
        for (noise, above) in
            [(2.0, 2.0f32), (0.3, 0.3f32), (0.7, 0.7f32), (0.0, 0.0), (1e-60, f32::from_bits(1))]
        {
            let limit = Variant { gain_limit: 1.0, noise }.noise_limit();
            assert!(
                f64::from(limit) >= noise && (limit == 0.0 || f64::from(limit.next_down()) < noise),
                "{noise}"
            );
            assert!((limit - above).abs() < 1e-7);
        }
    }
}
