// SPDX-License-Identifier: MPL-2.0

//! Additive detail measure: contrast sensitivity weights, and the way from sums to `adm2`, `aim` and `adm3`.

/// Contrast sensitivity function, `adm_csf_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CsfMode {
    /// Watson's wavelet thresholds of 1997 (mode 0).
    #[default]
    Watson,
    /// Barten at 100 cd/m² (mode 1).
    Barten,
    /// Blended curve, by table (mode 2).
    Blend,
    /// Blended curve fitted for the mean absolute error, by table (mode 3).
    BlendMae,
}

impl CsfMode {
    /// The mode with the number that models and options use; `None` above 3.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Watson, Self::Barten, Self::Blend, Self::BlendMae].get(number as usize).copied()
    }
}

/// The options of libvmaf's `adm` extractor, with its names less the `adm_` prefix, and its defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmOptions {
    /// Factor of the diagonal weights in [`CsfMode::Barten`], 0..=50.
    pub csf_diag_scale: f64,
    pub csf_mode: CsfMode,
    /// Factor of the horizontal and vertical weights in [`CsfMode::Barten`], 0..=50.
    pub csf_scale: f64,
    /// Share of `adm2` in `adm3`, 0..=1; the rest is that of `1 - aim`.
    pub dlm_weight: f64,
    /// How far detail may be enhanced and still count as restored, 1..=100.
    pub enhn_gain_limit: f64,
    /// Lower limit of `adm3`, 0..=1.
    pub min_val: f64,
    /// Noise added to numerator and denominator, per coefficient, 0..=1500.
    pub noise_weight: f64,
    /// Viewing distance in display heights, 0.75..=24.
    pub norm_view_dist: f64,
    /// Display height in pixels, 1..=4320.
    pub ref_display_height: u32,
    /// Report `aim` as 0 instead of computing it.
    pub skip_aim: bool,
    /// Leave scale 0 out of the scores.
    pub skip_scale0: bool,
}

impl Default for AdmOptions {
    fn default() -> Self {
        Self {
            csf_diag_scale: 1.0,
            csf_mode: CsfMode::Watson,
            csf_scale: 1.0,
            dlm_weight: 0.5,
            enhn_gain_limit: 100.0,
            min_val: 0.0,
            noise_weight: 0.03125,
            norm_view_dist: 3.0,
            ref_display_height: 1080,
            skip_aim: false,
            skip_scale0: false,
        }
    }
}

/// Pixel work for ADM: the pyramids and the denominator once, a numerator for each distinct pass.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmWork {
    pub passes: Vec<AdmPass>,
}

/// One way of weighting and masking: everything in the options that the pixel work depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmPass {
    /// `adm_enhn_gain_limit`, 1.0..=100.0.
    pub gain_limit: f64,
    /// Quantised weights of each scale: the one of the h and v bands, the one of the d band.
    pub weights: [[u32; 2]; 4],
    /// Whether the additive impairment (`aim`, `adm3`) is needed besides the restored detail (`adm2`).
    pub aim: bool,
}

/// The sums of one scale for the three bands h, v, d: the `acc` of the specification.
pub type BandSums = [i64; 3];

/// What a backend returns for ADM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmSums {
    /// Scales 0 to 3 of the denominator; independent of all options.
    pub reference: [BandSums; 4],
    /// One for each pass of [`AdmWork`], in its order.
    pub passes: Vec<AdmPassSums>,
}

/// Numerator sums of one pass, scales 0 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmPassSums {
    /// Restored detail masked by the additive part: the numerator of `adm2`.
    pub restored: [BandSums; 4],
    /// Additive part masked by the restored detail: the numerator of `aim`.
    pub additive: Option<[BandSums; 4]>,
}
