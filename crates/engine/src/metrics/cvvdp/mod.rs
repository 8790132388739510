// SPDX-License-Identifier: MPL-2.0

//! ColorVideoVDP: visible differences of colours, in space and time, on a display.
//!
//! The definition is that of `cvvdp` 0.5.7 (MIT, (c) 2024 Graphics and Displays group; R. Mantiuk et al., ACM Transactions on
//! Graphics 2024), with an arithmetic of its own that is the same everywhere: functions are polynomials, products and
//! sums are fused only where it is said, and sums of bands are integers.
//!
//! Each frame has a distortion `q`. Numbers of just-objectionable differences (JOD) are those of a whole clip: they follow
//! from the mean of a function of `q`, and their own mean is meaningless.

mod csf;
mod display;
mod double;
mod file;
pub mod float;
pub mod heat;
pub mod tables;

use std::sync::Arc;

use self::display::{DISPLAYS, Display};
use self::double::pow;
use self::tables::{EPSILON, half, sizes};
use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Names, Options, Row, bool, choice, name_of, text};
use super::score::{OptionsError, Pooled, Scorer, Source, plain};
use super::work::{FrameSums, Work};
use crate::frame::Geometry;
use crate::video::{self, FrameRate, Video};

pub use self::display::Eotf;

/// Channels: achromatic, red-green, violet-yellow, and the changes of the achromatic one.
pub const CHANNELS: usize = 4;
/// Smallest width and height.
pub const MIN_SIZE: usize = 4;
/// The highest frame rate.
const MAX_RATE: u32 = 240;
/// Most earlier frames that a frame depends on.
pub const MAX_HISTORY: usize = 2 * (MAX_RATE as usize / 8);

/// Weights of the channels, and of their base bands.
const CHANNEL_WEIGHTS: [f64; CHANNELS] = [1.0, 1.0, 1.0, 0.8081134557723999];
const BASE_WEIGHTS: [f64; CHANNELS] =
    [0.0036334486212581396, 1.6627724170684814, 4.11874532699585, 25.25969886779785];
/// The distortion of a still picture, relative to that of a video.
const STILL: f64 = 0.577918291091919;
/// The constants between distortion and JOD.
const JOD_FACTOR: f64 = 0.0439569391310215;
const JOD_POWER: f64 = 0.9302042722702026;

/// Matrices between Y'CbCr and R'G'B' that it takes, and none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    Bt601,
    Bt709,
    Bt2020,
    /// The samples are R'G'B'.
    Rgb,
}

/// Options of `cvvdp`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CvvdpOptions {
    /// `display`: the display on which the video is seen.
    pub display: &'static Display,
    /// `loc`: the chroma samples lie in the columns, and in the rows, of luma samples.
    loc: Option<[bool; 2]>,
    /// `matrix`: the matrix.
    matrix: Option<Matrix>,
    /// `range`: the samples have full range.
    range: Option<bool>,
    /// `still`: each frame is a still picture, and has a JOD.
    still: bool,
}

const SITES: Names<[bool; 2], 4> = [
    ("center", Some([false, false])),
    ("left", Some([true, false])),
    ("topleft", Some([true, true])),
    ("tag", None),
];
const MATRICES: Names<Matrix, 4> = [
    ("auto", None),
    ("bt601", Some(Matrix::Bt601)),
    ("bt709", Some(Matrix::Bt709)),
    ("bt2020", Some(Matrix::Bt2020)),
];
const RANGES: Names<bool, 3> = [("auto", None), ("full", Some(true)), ("limited", Some(false))];

impl Default for CvvdpOptions {
    fn default() -> Self {
        Self { display: &DISPLAYS[0], loc: Some([false; 2]), matrix: None, range: None, still: false }
    }
}

impl Options for CvvdpOptions {
    const EXTRACTOR: &'static str = "cvvdp";
    const TABLE: &'static [Row<Self>] = &[
        text(
            "display",
            "display",
            |o| &o.display.name,
            |o, text| Display::chosen(text).map(|display| o.display = display),
        ),
        choice!("loc", "loc", loc, SITES),
        choice!("matrix", "matrix", matrix, MATRICES),
        choice!("range", "range", range, RANGES),
        bool("still", Some("still"), |o| &mut o.still),
    ];
}

/// The options, and what depends on the stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CvvdpWork {
    pub options: CvvdpOptions,
    pub matrix: Matrix,
    /// The samples have full range.
    pub full: bool,
    /// The chroma samples lie in the columns, and in the rows, of luma samples.
    pub cosited: [bool; 2],
    /// The sums of the heat map are computed.
    pub heat: bool,
    rate: Option<FrameRate>,
}

/// The frame rate is unknown, or too high.
#[derive(Debug, thiserror::Error)]
enum RateError {
    #[error(
        "the cvvdp metric needs a constant frame rate, and that of this video is variable or unknown; convert the video to a constant rate, or give the option still=true if its frames are still pictures"
    )]
    Unknown,
    #[error("the cvvdp metric takes at most {MAX_RATE} frames per second, these are {} in {} seconds", .0.num(), .0.den())]
    High(FrameRate),
}

impl CvvdpWork {
    pub fn new(options: CvvdpOptions) -> Self {
        let mut work = Self {
            options,
            matrix: Matrix::Bt709,
            full: false,
            cosited: [false; 2],
            heat: false,
            rate: None,
        };
        work.suit(&Video::default());
        work
    }

    fn suit(&mut self, video: &Video) {
        let colorimetry = video.colorimetry;
        let tagged = match colorimetry.matrix {
            Some(video::Matrix::Bt2020) => Matrix::Bt2020,
            _ => Matrix::Bt709,
        };
        let is_rgb = colorimetry.is_rgb();
        self.matrix = if is_rgb { Matrix::Rgb } else { self.options.matrix.unwrap_or(tagged) };
        self.full = self.options.range.unwrap_or(colorimetry.range_or_usual() == video::Range::Full);
        let site = || video.chroma_site.map_or([false; 2], |site| [site.h_cosited, site.v_cosited]);
        self.cosited = self.options.loc.unwrap_or_else(site);
        self.rate = video.rate;
    }

    /// Describes the display, and how samples become light.
    fn reading(&self, geometry: Geometry) -> String {
        let range = if self.full { "full" } else { "limited" };
        let site = name_of(&SITES, &Some(self.cosited));
        let chroma = geometry.chroma.map(|_| match self.matrix {
            Matrix::Rgb => "matrix rgb, ".to_string(),
            matrix => format!("matrix {}, chroma {site}, ", name_of(&MATRICES, &Some(matrix))),
        });
        let time = match self.rate {
            _ if self.options.still => ", still pictures".to_string(),
            Some(rate) => format!(", {}/{} frames per second", rate.num(), rate.den()),
            None => String::new(),
        };
        format!("0.5.7 on {}, {}{range} range{time}", self.options.display, chroma.unwrap_or_default())
    }

    /// Returns the frame rate, if the metric is defined for it; `None` for still pictures.
    pub fn rate(&self) -> Result<Option<FrameRate>, Misfit> {
        if self.options.still {
            return Ok(None);
        }
        let rate = self.rate.ok_or_else(|| Misfit::Other(RateError::Unknown.into()))?;
        if u64::from(rate.num()) > u64::from(MAX_RATE) * u64::from(rate.den()) {
            return Err(Misfit::Other(RateError::High(rate).into()));
        }
        Ok(Some(rate))
    }
}

/// The sums of one pair.
#[derive(Clone, Debug, PartialEq)]
pub struct CvvdpSums {
    /// For each band but the base, the sum of each channel in units of [`unit`].
    pub bands: Vec<[u64; CHANNELS]>,
    /// The bits of the sums of the base band, in double precision.
    pub base: [u64; CHANNELS],
    /// The distortion of the frame, which follows from these.
    pub distortion: f64,
    /// The sums of the [heat map](heat); empty if it is not asked for.
    heat: Arc<[u64]>,
}

impl CvvdpSums {
    pub fn new(
        bands: Vec<[u64; CHANNELS]>,
        base: [u64; CHANNELS],
        heat: Vec<u64>,
        geometry: Geometry,
    ) -> Self {
        let distortion = distortion(&bands, &base, geometry);
        Self { bands, base, distortion, heat: heat.into() }
    }
}

/// Returns the number of fractional binary digits of the sums of a band with this size: as many as never overflow.
pub fn fraction(width: usize, height: usize) -> u32 {
    30.min(45 - (width * height - 1).checked_ilog2().map_or(0, |digits| digits + 1))
}

/// ColorVideoVDP.
pub struct Cvvdp;

impl Cvvdp {
    /// Adds the heat map to the work. Returns false if the work has no ColorVideoVDP.
    pub fn plan_heat(work: &mut Work) -> bool {
        let Some(own) = work.get::<Self>().cloned() else { return false };
        work.set::<Self>(CvvdpWork { heat: true, ..own });
        true
    }
}

impl Metric for Cvvdp {
    const NAME: &'static str = "cvvdp";
    type Work = CvvdpWork;
    type Sums = CvvdpSums;
    const HALF_SAMPLES: bool = true;
    const TAKES_RGB: bool = true;

    fn suit(work: &mut CvvdpWork, video: &Video, _geometry: Geometry) {
        work.suit(video);
    }

    /// The display decides how samples become light, whatever the stream says.
    fn doubt(work: &CvvdpWork, video: &Video) -> Option<String> {
        use video::Transfer::{Hlg, Pq};
        let (video, suited) = match video.colorimetry.transfer? {
            Pq => ("PQ", "standard_hdr_pq"),
            Hlg => ("HLG", "standard_hdr_hlg"),
            _ => ("SDR", "standard_4k"),
        };
        let display = work.options.display;
        let shown = match display.eotf {
            Eotf::Srgb => "SDR",
            Eotf::Pq => "PQ",
            Eotf::Hlg => "HLG",
        };
        (shown != video).then(|| {
            let name = &display.name;
            format!("the video is {video}, and cvvdp shows it on {name}, which takes {shown}: choose another display, such as cvvdp=display={suited}")
        })
    }

    fn readings(work: &CvvdpWork, geometry: Geometry) -> Vec<String> {
        vec![work.reading(geometry)]
    }

    fn chroma(_work: &CvvdpWork) -> bool {
        true
    }

    fn history(work: &CvvdpWork) -> usize {
        work.rate().map_or(MAX_HISTORY, |rate| rate.map_or(0, |rate| 2 * half(rate) as usize))
    }

    fn check(work: &CvvdpWork, geometry: Geometry) -> Result<(), Misfit> {
        Misfit::at_least("cvvdp", MIN_SIZE, geometry)?;
        work.rate().map(|_| ())
    }
}

/// Identifies a feature of [`CvvdpOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CvvdpOutput {
    /// The distortion of a frame.
    Distortion,
    /// The JOD of a still picture.
    Jod,
}

impl Extract for CvvdpOptions {
    type Output = CvvdpOutput;
    const FEATURES: &'static [(&'static str, CvvdpOutput)] =
        &[("cvvdp_q", CvvdpOutput::Distortion), (JOD, CvvdpOutput::Jod)];
    const ABOUT: &'static [About] = &[About {
        reported: "`cvvdp_q`; at the end `cvvdp`; with `still=true` only `cvvdp`, for each frame",
        tells: "visible differences in colour, space and time on a display ([below](#colorvideovdp)): distortion of a frame; JOD of all frames together, or of a still picture",
        range: "0 upwards, less is better; JOD up to 10",
        equal: "0; 10 JOD",
        source: "R. Mantiuk et al., ACM Transactions on Graphics 2024",
    }];

    fn lacks(&self, output: CvvdpOutput) -> Option<&'static str> {
        match (output, self.still) {
            (CvvdpOutput::Distortion, true) => Some("still=false"),
            (CvvdpOutput::Jod, false) => Some("still"),
            _ => None,
        }
    }

    fn yielding(output: CvvdpOutput) -> Self {
        Self { still: output == CvvdpOutput::Jod, ..Self::default() }
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let own = CvvdpWork::new(*self);
        match work.get::<Cvvdp>() {
            Some(other) if *other != own => {
                return Err("cvvdp takes one display, and one set of options, at a time".into());
            }
            _ => work.set::<Cvvdp>(own),
        }
        Ok(Box::new(CvvdpSource { still: self.still, weight: self.weight() }))
    }
}

impl CvvdpOptions {
    /// Returns the weight of all differences.
    fn weight(&self) -> f64 {
        if self.still { STILL } else { 1.0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct CvvdpSource {
    still: bool,
    weight: f64,
}

impl Source for CvvdpSource {
    fn scorer(&self, _geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let weight = self.weight;
        Ok(plain(move |sums| {
            let q = sums.get::<Cvvdp>().map_or(f64::NAN, |sums| sums.distortion * weight);
            CvvdpOptions::values(|output| match output {
                CvvdpOutput::Distortion => q,
                CvvdpOutput::Jod => jod(q),
            })
        }))
    }

    /// Returns what a pair adds to the sum behind the JOD: whole units, fractions of 2^-32, and the count of frames. Sums
    /// of integers are the same for chunks of a clip in any order. Still pictures have no JOD together.
    fn totals(&self, sums: &FrameSums, _geometry: Geometry) -> Vec<u64> {
        if self.still {
            return vec![];
        }
        sums.get::<Cvvdp>().map_or([0; 3], |sums| amounts(sums.distortion)).into()
    }

    /// Returns the JOD of the frames as parts of their video, also of a single one.
    fn aggregates(&self, totals: &[u64], _geometry: Geometry) -> Vec<(&'static str, f64)> {
        match totals {
            [whole, parts, frames @ (1..)] => vec![(JOD, pooled(*whole, *parts, *frames))],
            _ => vec![],
        }
    }

    fn pooled(&self, output: usize) -> Option<Pooled> {
        let is_distortion = CvvdpOptions::FEATURES.get(output)?.1 == CvvdpOutput::Distortion;
        (is_distortion && !self.still).then_some(Pooled { name: JOD, of_pair: jod_of_frame })
    }
}

/// The name of the JOD of frames together, or of a still picture.
const JOD: &str = "cvvdp";

/// Computes the JOD of a frame of a video from its distortion, `cvvdp_q`.
pub fn jod_of_frame(q: f64) -> f64 {
    jod(root(term(q)))
}

/// Computes the JOD of frames of a video together from the distortion of each; NaN without frames.
pub fn jod_of_frames(distortions: impl IntoIterator<Item = f64>) -> f64 {
    let add = |sums: [u64; 3], more: [u64; 3]| std::array::from_fn(|i| sums[i].wrapping_add(more[i]));
    let [whole, parts, frames] = distortions.into_iter().map(amounts).fold([0; 3], add);
    pooled(whole, parts, frames)
}

/// Computes what a frame adds to the sum behind the JOD.
fn term(q: f64) -> f64 {
    (q + EPSILON) * (q + EPSILON) - EPSILON * EPSILON
}

fn amounts(q: f64) -> [u64; 3] {
    let term = term(q);
    let whole = term.floor();
    [whole as u64, ((term - whole) * PART).round() as u64, 1]
}

/// Fractions in a unit of [`amounts`].
const PART: f64 = (1u64 << 32) as f64;

/// Computes the JOD of frames from the sum of their amounts.
fn pooled(whole: u64, parts: u64, frames: u64) -> f64 {
    let mean = (whole as f64 + parts as f64 / PART) / frames as f64;
    jod(root(mean))
}

fn root(mean: f64) -> f64 {
    (mean + EPSILON).sqrt() - EPSILON.sqrt()
}

/// Computes the JOD of a distortion.
pub fn jod(q: f64) -> f64 {
    if q <= 0.1 {
        10.0 - JOD_FACTOR * pow(0.1, JOD_POWER - 1.0) * q
    } else {
        10.0 - JOD_FACTOR * pow(q, JOD_POWER)
    }
}

/// Computes a norm of fourth powers.
fn norm(values: impl Iterator<Item = f64>) -> f64 {
    let e4 = (EPSILON * EPSILON) * (EPSILON * EPSILON);
    let fourth = |sum: f64, value: f64| {
        let square = (value + EPSILON) * (value + EPSILON);
        sum + (square * square - e4)
    };
    (values.fold(0.0, fourth) + EPSILON).sqrt().sqrt() - EPSILON.sqrt().sqrt()
}

/// Returns the differences in each band of a channel; the last one is that of the base.
fn differences(
    bands: &[[u64; CHANNELS]],
    base: &[u64; CHANNELS],
    channel: usize,
    geometry: Geometry,
) -> impl Iterator<Item = f64> {
    let samples = |(width, height): (usize, usize)| (width * height) as f64;
    let sizes = || sizes(geometry.width, geometry.height);
    let band = move |((width, height), band): ((usize, usize), &[u64; CHANNELS])| {
        let sum = band[channel] as f64 / (1u64 << fraction(width, height)) as f64;
        root(sum / samples((width, height)))
    };
    let base = f64::from_bits(base[channel]);
    let base = sizes().nth(bands.len()).map(|size| root(base / samples(size)));
    sizes().zip(bands).map(band).chain(base)
}

/// Computes the distortion of a frame.
fn distortion(bands: &[[u64; CHANNELS]], base: &[u64; CHANNELS], geometry: Geometry) -> f64 {
    norm((0..CHANNELS).map(|channel| {
        let weight = CHANNEL_WEIGHTS[channel];
        let weight = |band| if band < bands.len() { weight } else { weight * BASE_WEIGHTS[channel] };
        norm(differences(bands, base, channel, geometry).enumerate().map(|(band, q)| q * weight(band)))
    }))
}

#[cfg(test)]
mod tests;
