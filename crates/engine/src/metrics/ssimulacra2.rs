// SPDX-License-Identifier: MPL-2.0

//! SSIMULACRA 2.1: options, the conversion of samples to light, tables, and the formula from sums to scores.
//!
//! The metric, its constants and its weights are Jon Sneyers', of cloudinary/ssimulacra2 and libjxl (BSD-3-Clause).
//! Every operation and its rounding is fixed here, so that all backends have the same bits: blurs are filters of nine
//! taps instead of the recursion that has the same response, the term of structure has a form without cancellation,
//! and sums are integers. `mul_add` stands wherever an operation has one rounding, and nowhere else.

#![allow(clippy::excessive_precision, reason = "constants stand as they were published")]

use std::f64::consts::{FRAC_1_SQRT_2, LN_2};

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Names, Options, Row, choice, name_of};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::{Work, place};
use crate::frame::Geometry;
use crate::video::{ChromaSite, Matrix, Primaries, Range, Transfer, Video};

/// Smallest width and height.
pub const MIN_SIZE: usize = 8;
/// Most luma samples. Kernels number the samples of all scales of a picture with 32 bits.
const MOST_SAMPLES: usize = 1 << 28;
/// Most scales. Each has half the size of the one before.
pub const SCALES: usize = 6;
/// Rows of a column that are added as singles before they become integers.
pub const RUN: usize = 8;
/// Samples on each side that the blur reads.
pub const REACH: usize = 4;
/// Taps of the blur: of the sample, and of those up to four away on both sides.
pub const TAPS: [f32; REACH + 1] =
    [0.2646211054881984, 0.21292859201042205, 0.10933537277746015, 0.03601111465836417, 0.009414367809653464];
/// Weights of red, green and blue in the three mixtures whose cube roots are taken.
pub const MIXTURES: [[f32; 3]; 3] = [
    [0.3, 0.622, 0.078],
    [0.23, 0.692, 0.078],
    [0.24342268924547819, 0.20476744424496821, 0.5518098665095536],
];
/// Added to each mixture.
pub const BIAS: f32 = 0.0037930732552754493;
/// Smallest mixture: 2^-30.
pub const LEAST_MIXTURE: f32 = 1.0 / (1 << 30) as f32;
/// Added to Y: 0.01 minus the cube root of [`BIAS`].
pub const Y_OFFSET: f32 = -0.14595420;
/// Keeps the term of structure finite.
pub const C2: f32 = 0.0009;
/// Steps of a table of light between black and white. The table reaches to twice white.
pub const STEPS: usize = 1024;
/// The largest single below 2.
pub const MOST_SIGNAL: f32 = 1.99999988;

/// Options of `ssimulacra2`. `None` takes the property from the tags of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ssimulacra2Options {
    /// `matrix`: conversion of Y'CbCr to R'G'B'.
    pub matrix: Option<Matrix>,
    /// `primaries`: colours of red, green and blue.
    pub primaries: Option<Primaries>,
    /// `range`: codes of black and white.
    pub range: Option<Range>,
    /// `site`: positions of chroma samples.
    pub site: Option<ChromaSite>,
    /// `transfer`: curve of the display.
    pub transfer: Option<Curve>,
}

/// The conversion from R'G'B' to the light of a display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// A power of 2.4.
    Bt1886,
    /// IEC 61966-2-1.
    Srgb,
    /// A power of 2.2.
    Gamma22,
    /// A power of 2.8.
    Gamma28,
}

impl Curve {
    fn light(self, signal: f64) -> f64 {
        match self {
            Self::Bt1886 => signal.powf(2.4),
            Self::Srgb if signal <= 0.04045 => signal / 12.92,
            Self::Srgb => ((signal + 0.055) / 1.055).powf(2.4),
            Self::Gamma22 => signal.powf(2.2),
            Self::Gamma28 => signal.powf(2.8),
        }
    }

    /// Returns the light at the start of each step, and its distance to that of the next step.
    pub fn table(self) -> Vec<[f32; 2]> {
        let light = |i: usize| self.light(i as f64 / STEPS as f64) as f32;
        (0..2 * STEPS).map(|i| [light(i), light(i + 1) - light(i)]).collect()
    }
}

/// How chroma is brought to the size of luma along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// There is a chroma sample for each luma sample.
    Whole,
    /// There is one for every other luma sample, at its place.
    Cosited,
    /// There is one for two luma samples, between them.
    Between,
}

impl Sampling {
    fn new(subsampled: bool, cosited: bool) -> Self {
        match (subsampled, cosited) {
            (false, _) => Self::Whole,
            (true, true) => Self::Cosited,
            (true, false) => Self::Between,
        }
    }

    /// Returns the weights for luma sample `k`, and the chroma sample that the first one is for.
    pub fn taps(self, k: usize) -> ([i32; 4], isize) {
        let half = (k / 2) as isize;
        match (self, k % 2) {
            (Self::Whole, _) => ([1, 0, 0, 0], k as isize),
            (Self::Cosited, 0) => ([0, 16, 0, 0], half - 1),
            (Self::Cosited, _) => ([-1, 9, 9, -1], half - 1),
            (Self::Between, 0) => ([-3, 29, 111, -9], half - 2),
            (Self::Between, _) => ([-9, 111, 29, -3], half - 1),
        }
    }

    /// Returns the sum of the weights.
    pub fn scale(self) -> i32 {
        match self {
            Self::Whole => 1,
            Self::Cosited => 16,
            Self::Between => 128,
        }
    }
}

/// The conversion of samples to light, in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conversion {
    pub curve: Curve,
    /// The luma code of black, and the reciprocal of the number of steps to white.
    pub black: i32,
    pub luma: f32,
    /// `None` for grey pictures.
    pub chroma: Option<ChromaConversion>,
    /// From the stream's red, green and blue to those of BT.709; `None` if they are these.
    pub primaries: Option<[[f32; 3]; 3]>,
}

/// The part of a [`Conversion`] that is about chroma.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChromaConversion {
    pub columns: Sampling,
    pub rows: Sampling,
    /// True for R'G'B', whose planes are G, B and R: red and blue are without luma, and green is luma alone.
    pub is_rgb: bool,
    /// The code of grey, times the scales of both axes; that of black for R'G'B'.
    pub grey: i32,
    /// Weights of Cr and Cb, the latter for blue and green.
    pub red_cr: f32,
    pub green_cb: f32,
    pub green_cr: f32,
    pub blue_cb: f32,
}

/// Reasons why samples of a stream cannot be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error(
        "the SSIMULACRA2 metric is not defined for {0} video; convert both videos to SDR, or name another curve \
         with its option transfer if the tag is wrong"
    )]
    Transfer(&'static str),
    #[error(
        "the SSIMULACRA2 metric does not know the matrix that the video is tagged with, as for constant luminance \
         and ICtCp; name another with its option matrix if the tag is wrong"
    )]
    Matrix,
    #[error(
        "the SSIMULACRA2 metric does not know the primaries that the video is tagged with; name the nearest with its \
         option primaries"
    )]
    Primaries,
    #[error(
        "the SSIMULACRA2 metric takes chroma of 4:2:0, 4:2:2, 4:4:0 and 4:4:4, these frames have {width}x{height} \
         samples of it"
    )]
    Subsampling { width: usize, height: usize },
    #[error(
        "the SSIMULACRA2 metric takes frames of at most {MOST_SAMPLES} samples, these are {width}x{height}"
    )]
    TooLarge { width: usize, height: usize },
}

impl Conversion {
    /// Chooses the conversion for frames of a stream.
    fn new(options: &Ssimulacra2Options, video: &Video, geometry: Geometry) -> Result<Self, Refusal> {
        let Geometry { width, height, depth, .. } = geometry;
        if width.saturating_mul(height) > MOST_SAMPLES {
            return Err(Refusal::TooLarge { width, height });
        }
        let limited = range(options, video) == Range::Limited;
        let unit = 1 << (depth.bits() - 8);
        let most = depth.max() as i32;
        let (black, luma, chroma) =
            if limited { (16 * unit, 219 * unit, 224 * unit) } else { (0, most, most) };
        let chroma =
            if video.colorimetry.is_rgb() { (black, luma) } else { (1 << (depth.bits() - 1), chroma) };
        Ok(Self {
            curve: curve(options, video)?,
            black,
            luma: (1.0 / f64::from(luma)) as f32,
            chroma: ChromaConversion::new(options, video, geometry, chroma)?,
            primaries: primaries(options, video)?,
        })
    }
}

impl ChromaConversion {
    /// `grey`: its code. `steps`: between the extremes of chroma.
    fn new(
        options: &Ssimulacra2Options,
        video: &Video,
        geometry: Geometry,
        (grey, steps): (i32, i32),
    ) -> Result<Option<Self>, Refusal> {
        let Some((width, height)) = geometry.chroma else { return Ok(None) };
        // Chroma of odd pictures may be rounded down or up. The last samples are repeated where there are no others.
        let fits = |chroma: usize, luma: usize| [luma, luma / 2, luma.div_ceil(2)].contains(&chroma);
        if !fits(width, geometry.width) || !fits(height, geometry.height) {
            return Err(Refusal::Subsampling { width, height });
        }
        let site = site(options, video);
        let columns = Sampling::new(width < geometry.width, site.h_cosited);
        let rows = Sampling::new(height < geometry.height, site.v_cosited);
        let scale = columns.scale() * rows.scale();
        let unit = 1.0 / (f64::from(scale) * f64::from(steps));
        let grey = scale * grey;
        let (red, blue) = match matrix(options, video, geometry) {
            Matrix::Rgb => {
                let (red_cr, blue_cb) = (unit as f32, unit as f32);
                let (green_cb, green_cr) = (0.0, 0.0);
                return Ok(Some(Self {
                    columns,
                    rows,
                    is_rgb: true,
                    grey,
                    red_cr,
                    green_cb,
                    green_cr,
                    blue_cb,
                }));
            }
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Bt2020 => (0.2627, 0.0593),
            Matrix::Smpte240m => (0.212, 0.087),
            Matrix::Fcc => (0.30, 0.11),
            Matrix::Other => return Err(Refusal::Matrix),
        };
        let green: f64 = 1.0 - red - blue;
        Ok(Some(Self {
            columns,
            rows,
            is_rgb: false,
            grey,
            red_cr: (2.0 * (1.0 - red) * unit) as f32,
            green_cb: (-2.0 * blue * (1.0 - blue) / green * unit) as f32,
            green_cr: (-2.0 * red * (1.0 - red) / green * unit) as f32,
            blue_cb: (2.0 * (1.0 - blue) * unit) as f32,
        }))
    }
}

/// Returns the matrix; without a tag, that of the size. R'G'B' has none, whatever options say.
fn matrix(options: &Ssimulacra2Options, video: &Video, geometry: Geometry) -> Matrix {
    let of_size = if geometry.height <= 576 { Matrix::Bt601 } else { Matrix::Bt709 };
    let tagged = video.colorimetry.matrix;
    tagged.filter(|_| video.colorimetry.is_rgb()).or(options.matrix).or(tagged).unwrap_or(of_size)
}

/// Returns the curve of the display. Video that was made with the curve of a camera is shown on a display of BT.1886.
fn curve(options: &Ssimulacra2Options, video: &Video) -> Result<Curve, Refusal> {
    let tagged = || match video.colorimetry.transfer {
        None | Some(Transfer::Bt709) => Ok(Curve::Bt1886),
        Some(Transfer::Srgb) => Ok(Curve::Srgb),
        Some(Transfer::Gamma22) => Ok(Curve::Gamma22),
        Some(Transfer::Gamma28) => Ok(Curve::Gamma28),
        Some(Transfer::Linear) => Err(Refusal::Transfer("linear")),
        Some(Transfer::Pq) => Err(Refusal::Transfer("PQ")),
        Some(Transfer::Hlg) => Err(Refusal::Transfer("HLG")),
        Some(Transfer::Other) => Err(Refusal::Transfer("such (an unknown transfer function)")),
    };
    options.transfer.map_or_else(tagged, Ok)
}

/// Returns the matrix from the primaries to those of BT.709.
fn primaries(options: &Ssimulacra2Options, video: &Video) -> Result<Option<[[f32; 3]; 3]>, Refusal> {
    match named_primaries(options, video) {
        Primaries::Bt709 => Ok(None),
        Primaries::Bt2020 => Ok(Some([
            [1.66049099, -0.58764112, -0.0728498623],
            [-0.124550477, 1.13289988, -0.00834942237],
            [-0.0181507636, -0.100578897, 1.11872971],
        ])),
        Primaries::DisplayP3 => Ok(Some([
            [1.22494018, -0.224940181, 0.0],
            [-0.0420569554, 1.04205692, 0.0],
            [-0.0196375549, -0.0786360428, 1.09827363],
        ])),
        Primaries::Smpte170m => Ok(Some([
            [0.939542055, 0.0501813553, 0.0102765793],
            [0.0177722238, 0.965792835, 0.0164349135],
            [-0.00162159989, -0.00436974969, 1.00599134],
        ])),
        Primaries::Bt470bg => {
            Ok(Some([[1.04404318, -0.0440432094, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0117933787, 0.988206625]]))
        }
        Primaries::Other => Err(Refusal::Primaries),
    }
}

impl Ssimulacra2Options {
    /// Describes the conversion for frames of a stream.
    fn reading(&self, video: &Video, geometry: Geometry) -> String {
        let range = name_of(&RANGES, &Some(range(self, video)));
        let site = name_of(&SITES, &Some(site(self, video)));
        let primaries = name_of(&PRIMARIES, &Some(named_primaries(self, video)));
        let curve = curve(self, video).map_or("other", |curve| name_of(&CURVES, &Some(curve)));
        let chroma = geometry.chroma.map(|_| match matrix(self, video, geometry) {
            Matrix::Rgb => "matrix rgb, ".to_string(),
            matrix => format!("matrix {}, chroma {site}, ", name_of(&MATRICES, &Some(matrix))),
        });
        format!("{}{range} range, transfer {curve}, primaries {primaries}", chroma.unwrap_or_default())
    }
}

/// Returns the codes of black and white.
fn range(options: &Ssimulacra2Options, video: &Video) -> Range {
    options.range.unwrap_or(video.colorimetry.range_or_usual())
}

/// Returns the positions of chroma samples.
fn site(options: &Ssimulacra2Options, video: &Video) -> ChromaSite {
    options.site.or(video.chroma_site).unwrap_or(LEFT)
}

/// Returns the colours of red, green and blue.
fn named_primaries(options: &Ssimulacra2Options, video: &Video) -> Primaries {
    options.primaries.or(video.colorimetry.primaries).unwrap_or(Primaries::Bt709)
}

/// Returns the sizes of the scales of pictures of this size.
pub fn scales(width: usize, height: usize) -> impl Iterator<Item = (usize, usize)> {
    let next = |&(w, h): &(usize, usize)| (w.min(h) >= MIN_SIZE).then_some((w.div_ceil(2), h.div_ceil(2)));
    std::iter::successors(Some((width, height)), next).take(SCALES)
}

/// The pixel work for each frame pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ssimulacra2Work {
    /// Distinct options that are requested.
    pub options: Vec<Ssimulacra2Options>,
    /// The stream.
    pub video: Video,
}

impl Ssimulacra2Work {
    /// Returns the conversions for frames of the stream, one for each of the options.
    pub fn conversions(&self, geometry: Geometry) -> Result<Vec<Conversion>, Misfit> {
        let conversion = |options| Conversion::new(options, &self.video, geometry);
        let all = self.options.iter().map(conversion).collect::<Result<_, _>>();
        all.map_err(|refusal| Misfit::Other(Box::new(refusal)))
    }
}

/// The sums of a map: of its values in units of 2^-27, and of their fourth powers in units of 2^-22, 2^-54 and 2^-86,
/// each less than one of the unit before it.
pub type MapSums = [u64; 4];
/// The sums of a scale: for X, Y and B each those of the maps of lost structure, of artefacts and of lost detail.
pub type ScaleSums = [[MapSums; 3]; 3];
/// The sums of a picture pair. Those of scales that it does not have are 0.
pub type PairSums = [ScaleSums; SCALES];

/// SSIMULACRA2.
pub struct Ssimulacra2;

impl Metric for Ssimulacra2 {
    const NAME: &'static str = "ssimulacra2";
    type Work = Ssimulacra2Work;
    /// One for each of the options.
    type Sums = Vec<PairSums>;
    const HALF_SAMPLES: bool = true;
    const TAKES_RGB: bool = true;

    fn suit(work: &mut Ssimulacra2Work, video: &Video, _geometry: Geometry) {
        work.video = *video;
    }

    fn readings(work: &Ssimulacra2Work, geometry: Geometry) -> Vec<String> {
        work.options.iter().map(|options| options.reading(&work.video, geometry)).collect()
    }

    fn chroma(_work: &Ssimulacra2Work) -> bool {
        true
    }

    fn check(work: &Ssimulacra2Work, geometry: Geometry) -> Result<(), Misfit> {
        Misfit::at_least("SSIMULACRA2", MIN_SIZE, geometry)?;
        work.conversions(geometry).map(drop)
    }
}

/// The weights that are not 0, by their index: for X, Y and B, for each scale, for the mean and the norm of degree 4,
/// for each map. Pictures with fewer scales have fewer indices for each of X, Y and B.
const WEIGHTS: [(usize, f64); 52] = [
    (1, 0.0007376606707406586),
    (4, 0.0007793481682867309),
    (7, 0.0004371155730107379),
    (9, 1.1041726426657346),
    (10, 0.00066284834129271),
    (11, 0.00015231632783718752),
    (13, 0.0016406437456599754),
    (15, 1.8422455520539298),
    (16, 11.441172603757666),
    (18, 0.0007989109436015163),
    (19, 0.000176816438078653),
    (21, 1.8787594979546387),
    (22, 10.94906990605142),
    (24, 0.0007289346991508072),
    (25, 0.9677937080626833),
    (27, 0.00014003424285435884),
    (28, 0.9981766977854967),
    (29, 0.00031949755934435053),
    (30, 0.0004550992113792063),
    (33, 0.0013648766163243398),
    (39, 7.466890328078848),
    (41, 17.445833984131262),
    (42, 0.0006235601634041466),
    (45, 6.683678146179332),
    (46, 0.00037724407979611296),
    (47, 1.027889937768264),
    (48, 225.20515300849274),
    (51, 19.213238186143016),
    (52, 0.0011401524586618361),
    (53, 0.001237755635509985),
    (54, 176.39317598450694),
    (57, 24.43300999870476),
    (58, 0.28520802612117757),
    (59, 0.0004485436923833408),
    (63, 34.77906344483772),
    (64, 44.835625328877896),
    (73, 0.0008680556573291698),
    (79, 0.0005313191874358747),
    (81, 0.00016533814161379112),
    (87, 0.0004179171803251336),
    (88, 0.0017290828234722833),
    (90, 0.0020827005846636437),
    (93, 8.826982764996862),
    (94, 23.19243343998926),
    (96, 95.1080498811086),
    (97, 0.9863978034400682),
    (98, 0.9834382792465353),
    (99, 0.0012286405048278493),
    (100, 171.2667255897307),
    (101, 0.9807858872435379),
    (105, 0.0005130064588990679),
    (107, 0.00010854057858411537),
];

/// Computes the score of a frame.
pub fn score(sums: &PairSums, geometry: Geometry) -> f64 {
    let scales: Vec<_> = scales(geometry.width, geometry.height).zip(sums).collect();
    let (mut sum, mut i) = (0.0, 0);
    for channel in 0..3 {
        for ((width, height), sums) in &scales {
            let norms = sums[channel].map(|sums| norms(&sums, (width * height) as f64));
            for norm in 0..2 {
                for norms in norms {
                    sum += weight(i) * norms[norm];
                    i += 1;
                }
            }
        }
    }
    sum *= 0.9562382616834844;
    sum = (2.326765642916932 * sum - (0.020884521182843837 * sum) * sum)
        + ((6.248496625763138e-05 * sum) * sum) * sum;
    if sum > 0.0 { 100.0 - 10.0 * power(sum, 0.6276336467831387) } else { 100.0 }
}

fn weight(i: usize) -> f64 {
    WEIGHTS.iter().find(|(at, _)| *at == i).map_or(0.0, |(_, weight)| *weight)
}

/// Computes the mean of a map and its norm of degree 4.
fn norms(&[sum, high, middle, low]: &MapSums, samples: f64) -> [f64; 2] {
    let unit = |bits: i32| 2f64.powi(-bits);
    let fourth = high as f64 * unit(22) + (middle as f64 * unit(54) + low as f64 * unit(86));
    [(sum as f64 * unit(27)) / samples, (fourth / samples).sqrt().sqrt()]
}

/// Computes `x` to the power of `p` for normal `x` above 0 with additions, multiplications and divisions alone, so that
/// it does not depend on a library.
fn power(x: f64, p: f64) -> f64 {
    let bits = x.to_bits();
    // x = m 2^k, with m from the square root of 1/2 to that of 2.
    let (mut m, mut k) = (f64::from_bits(bits & ((1 << 52) - 1) | 1022 << 52), (bits >> 52) as i64 - 1022);
    if m < FRAC_1_SQRT_2 {
        (m, k) = (m * 2.0, k - 1);
    }
    let z = (m - 1.0) / (m + 1.0);
    let square = z * z;
    let mut series = 1.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        series = series * square + 1.0 / odd;
    }
    series = series * square + 1.0;
    let exponent = p * (k as f64 + (z * series) * 2.8853900817779268);
    let whole = (exponent + 0.5).floor();
    let t = (exponent - whole) * LN_2;
    let mut e = 1.0;
    for i in (1..=16).rev() {
        e = (e * t) / f64::from(i) + 1.0;
    }
    e * f64::from_bits(((whole as i64 + 1023) as u64) << 52)
}

const LEFT: ChromaSite = ChromaSite { h_cosited: true, v_cosited: false };

const MATRICES: Names<Matrix, 6> = [
    ("stream", None),
    ("601", Some(Matrix::Bt601)),
    ("709", Some(Matrix::Bt709)),
    ("2020", Some(Matrix::Bt2020)),
    ("240", Some(Matrix::Smpte240m)),
    ("fcc", Some(Matrix::Fcc)),
];
const PRIMARIES: Names<Primaries, 6> = [
    ("stream", None),
    ("709", Some(Primaries::Bt709)),
    ("2020", Some(Primaries::Bt2020)),
    ("p3", Some(Primaries::DisplayP3)),
    ("170m", Some(Primaries::Smpte170m)),
    ("470bg", Some(Primaries::Bt470bg)),
];
const RANGES: Names<Range, 3> =
    [("stream", None), ("limited", Some(Range::Limited)), ("full", Some(Range::Full))];
const SITES: Names<ChromaSite, 4> = [
    ("stream", None),
    ("left", Some(LEFT)),
    ("center", Some(ChromaSite { h_cosited: false, v_cosited: false })),
    ("topleft", Some(ChromaSite { h_cosited: true, v_cosited: true })),
];
const CURVES: Names<Curve, 5> = [
    ("stream", None),
    ("bt1886", Some(Curve::Bt1886)),
    ("srgb", Some(Curve::Srgb)),
    ("gamma22", Some(Curve::Gamma22)),
    ("gamma28", Some(Curve::Gamma28)),
];

impl Options for Ssimulacra2Options {
    const EXTRACTOR: &'static str = "ssimulacra2";
    const TABLE: &'static [Row<Self>] = &[
        choice!("matrix", "matrix", matrix, MATRICES),
        choice!("primaries", "primaries", primaries, PRIMARIES),
        choice!("range", "range", range, RANGES),
        choice!("site", "site", site, SITES),
        choice!("transfer", "transfer", transfer, CURVES),
    ];
}

impl Extract for Ssimulacra2Options {
    type Output = ();
    const FEATURES: &'static [(&'static str, ())] = &[("ssimulacra2", ())];
    const ABOUT: &'static [About] = &[About {
        reported: "`ssimulacra2`",
        tells: "visible damage of still pictures, in colour; 90 is visually lossless, 70 high, 50 medium, 30 low",
        range: "up to 100, no lower limit",
        equal: "100",
        source: "J. Sneyers, SSIMULACRA 2.1, cloudinary/ssimulacra2",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let none = Ssimulacra2Work::default();
        let index = work.extend::<Ssimulacra2, _>(none, |work| place(&mut work.options, *self));
        Ok(Box::new(Ssimulacra2Source(index)))
    }
}

/// Index in [`Ssimulacra2Work::options`].
#[derive(Clone, Copy, Debug)]
struct Ssimulacra2Source(usize);

impl Source for Ssimulacra2Source {
    fn scorer(&self, geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self(index) = *self;
        Ok(plain(move |sums| {
            let sums = sums.get::<Ssimulacra2>().and_then(|sums| sums.get(index));
            vec![sums.map_or(f64::NAN, |sums| score(sums, geometry))]
        }))
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::frame::BitDepth;
    use crate::video::Colorimetry;

    #[test]
    fn tables_of_light_are_those_of_the_specification() {
        for (curve, expected) in [
            (Curve::Bt1886, "17a669506510725bf1012fd2d90a4e347fdf84e5101bc1e0cc05476edb4144a0"),
            (Curve::Srgb, "e3ff3b0d70361234c90d423eea0fa49e9ee541607d2490a665c03b0d2d5d4d39"),
            (Curve::Gamma22, "242581caa7dda37d6f20b2fddc5fd831defa772cb99d1d90de6ad54914b1e484"),
            (Curve::Gamma28, "f476821d8181f9090a5e1e1d77c1026e1afa3f56191cc6b812348412e4fe2954"),
        ] {
            let table = curve.table();
            let mut hasher = Sha256::new();
            for [light, _] in &table {
                hasher.update(light.to_le_bytes());
            }
            // The last entry is not in the table, only its distance to the one before.
            hasher.update((curve.light(2.0) as f32).to_le_bytes());
            let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, expected, "{curve:?}");
            for (i, [light, distance]) in table.iter().enumerate() {
                let next = table.get(i + 1).map_or(curve.light(2.0) as f32, |[next, _]| *next);
                assert_eq!(*distance, next - light);
            }
        }
    }

    #[test]
    fn powers_are_near() {
        let mut x = 1e-8;
        while x < 1e4 {
            let error = power(x, 0.6276336467831387) / f64::powf(x, 0.6276336467831387) - 1.0;
            assert!(error.abs() < 4e-15, "{x} {error}");
            x *= 1.01;
        }
    }

    #[test]
    fn sums_without_differences_score_100_at_every_size() {
        for (width, height, count) in [(8, 8, 2), (8, 112, 2), (112, 112, 5), (113, 113, 6), (1920, 1080, 6)]
        {
            let geometry = Geometry { width, height, depth: BitDepth::new(8).unwrap(), chroma: None };
            assert_eq!(scales(width, height).count(), count);
            assert_eq!(score(&PairSums::default(), geometry), 100.0);
        }
    }

    fn refusal(options: Ssimulacra2Options, video: Video) -> Result<Conversion, Refusal> {
        let depth = BitDepth::new(8).unwrap();
        Conversion::new(&options, &video, Geometry { width: 64, height: 577, depth, chroma: Some((32, 288)) })
    }

    #[test]
    fn tags_choose_the_conversion_and_options_win() {
        let none = Ssimulacra2Options::default();
        let plain = refusal(none, Video::default()).unwrap();
        let tagged = |colorimetry| Video { colorimetry, ..Video::default() };
        let bt709 = Colorimetry {
            range: Some(Range::Limited),
            matrix: Some(Matrix::Bt709),
            transfer: Some(Transfer::Bt709),
            primaries: Some(Primaries::Bt709),
        };
        let site = Some(LEFT);
        assert_eq!(refusal(none, Video { chroma_site: site, ..tagged(bt709) }), Ok(plain));
        let other = Colorimetry {
            range: Some(Range::Full),
            matrix: Some(Matrix::Bt601),
            transfer: Some(Transfer::Srgb),
            primaries: Some(Primaries::Smpte170m),
        };
        let found = refusal(none, tagged(other)).unwrap();
        assert_eq!((found.black, found.curve), (0, Curve::Srgb));
        assert_ne!(found.chroma, plain.chroma);
        assert!(found.primaries.is_some());
        let options = Ssimulacra2Options {
            matrix: Some(Matrix::Bt709),
            primaries: Some(Primaries::Bt709),
            range: Some(Range::Limited),
            site,
            transfer: Some(Curve::Bt1886),
        };
        assert_eq!(refusal(options, tagged(other)), Ok(plain));
    }

    #[test]
    fn streams_without_a_defined_conversion_are_refused() {
        let refused = |colorimetry| {
            refusal(Ssimulacra2Options::default(), Video { colorimetry, ..Video::default() }).unwrap_err()
        };
        for (transfer, name) in [
            (Transfer::Pq, "PQ"),
            (Transfer::Hlg, "HLG"),
            (Transfer::Linear, "linear"),
            (Transfer::Other, "unknown"),
        ] {
            let refusal = refused(Colorimetry { transfer: Some(transfer), ..Colorimetry::default() });
            assert!(refusal.to_string().contains(name), "{refusal}");
        }
        let matrix = Colorimetry { matrix: Some(Matrix::Other), ..Colorimetry::default() };
        assert_eq!(refused(matrix), Refusal::Matrix);
        let primaries = Colorimetry { primaries: Some(Primaries::Other), ..Colorimetry::default() };
        assert_eq!(refused(primaries), Refusal::Primaries);

        let depth = BitDepth::new(8).unwrap();
        let geometry = |width, chroma| Geometry { width, height: 64, depth, chroma };
        let check = |geometry| {
            let options = vec![Ssimulacra2Options::default()];
            let work = Ssimulacra2Work { options, video: Video::default() };
            Ssimulacra2::check(&work, geometry).map_err(|misfit| misfit.to_string())
        };
        assert!(check(geometry(7, None)).unwrap_err().contains("at least 8x8"));
        assert!(check(geometry((1 << 22) + 1, None)).unwrap_err().contains("at most 268435456 samples"));
        assert_eq!(check(geometry(1 << 22, None)), Ok(()));
        assert!(check(geometry(64, Some((16, 64)))).unwrap_err().contains("16x64"));
        for chroma in [None, Some((64, 64)), Some((32, 64)), Some((32, 32)), Some((64, 32))] {
            assert_eq!(check(geometry(64, chroma)), Ok(()));
        }
        for chroma in [(32, 32), (33, 32)] {
            assert_eq!(check(geometry(65, Some(chroma))), Ok(()));
        }
    }
}
