// SPDX-License-Identifier: MPL-2.0

//! Properties of a stream that are not in its pictures: frame rate and colorimetry. Some metrics depend on them.

/// Properties of the reference stream. By default all are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Video {
    /// The frame rate; `None` if it is variable or unknown.
    pub rate: Option<FrameRate>,
    /// The meaning of the samples.
    pub colorimetry: Colorimetry,
    /// The positions of chroma samples.
    pub chroma_site: Option<ChromaSite>,
}

/// Frames per second as a fraction. Both parts are above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRate {
    num: u32,
    den: u32,
}

impl FrameRate {
    /// Creates a rate of `num` frames in `den` seconds; `None` if either is zero.
    pub const fn new(num: u32, den: u32) -> Option<Self> {
        if num > 0 && den > 0 { Some(Self { num, den }) } else { None }
    }

    /// Returns the numerator.
    pub const fn num(self) -> u32 {
        self.num
    }

    /// Returns the denominator.
    pub const fn den(self) -> u32 {
        self.den
    }
}

/// The meaning of samples, as tags of the stream have it; `None` for what they leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colorimetry {
    /// The codes of black and white.
    pub range: Option<Range>,
    /// The conversion between Y'CbCr and R'G'B'.
    pub matrix: Option<Matrix>,
    /// The conversion from R'G'B' to light.
    pub transfer: Option<Transfer>,
    /// The colours of red, green and blue.
    pub primaries: Option<Primaries>,
}

impl Colorimetry {
    /// Returns true if the samples are R'G'B'.
    pub fn is_rgb(&self) -> bool {
        self.matrix == Some(Matrix::Rgb)
    }

    /// Returns the range; without a tag, R'G'B' has full range, and Y'CbCr limited range.
    pub fn range_or_usual(&self) -> Range {
        self.range.unwrap_or(if self.is_rgb() { Range::Full } else { Range::Limited })
    }
}

/// The codes of black and white.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// All codes.
    Full,
    /// 16 to 235 for luma at 8 bits.
    Limited,
}

/// Matrices between Y'CbCr and R'G'B', with non-constant luminance unless it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// ITU-R BT.601.
    Bt601,
    /// ITU-R BT.709.
    Bt709,
    /// ITU-R BT.2020.
    Bt2020,
    /// SMPTE 240M.
    Smpte240m,
    /// FCC, 1953.
    Fcc,
    /// None: the samples are R'G'B'. The planes are green, blue and red, in the places of Y, Cb and Cr, all with the size and
    /// the range of luma.
    Rgb,
    /// Another one, also one that is not a matrix of Y'CbCr.
    Other,
}

/// Transfer characteristics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The curve of the camera that BT.601, BT.709, BT.2020 and SMPTE 240M share, nearly.
    Bt709,
    /// IEC 61966-2-1.
    Srgb,
    /// A power of 2.2.
    Gamma22,
    /// A power of 2.8.
    Gamma28,
    /// Samples that are proportional to light.
    Linear,
    /// SMPTE ST 2084.
    Pq,
    /// ARIB STD-B67.
    Hlg,
    /// Another one.
    Other,
}

/// The colours of red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primaries {
    /// ITU-R BT.709.
    Bt709,
    /// ITU-R BT.470 B/G, which BT.601 has for 625 lines.
    Bt470bg,
    /// SMPTE 170M, which BT.601 has for 525 lines.
    Smpte170m,
    /// ITU-R BT.2020.
    Bt2020,
    /// SMPTE EG 432-1: DCI-P3 with the white point D65.
    DisplayP3,
    /// Another one.
    Other,
}

/// The positions of chroma samples of subsampled formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChromaSite {
    /// They lie in the columns of luma samples, else between two.
    pub h_cosited: bool,
    /// They lie in the rows of luma samples, else between two.
    pub v_cosited: bool,
}
