// SPDX-License-Identifier: MPL-2.0

//! Additive detail measure: contrast sensitivity weights, and the way from sums to `adm2`, `aim` and `adm3`.

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
