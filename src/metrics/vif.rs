// SPDX-License-Identifier: MPL-2.0

//! Visual information fidelity: tables, and the way from sums to the four scale scores.

/// Options of the integer VIF extractor; names, ranges and keys as in libvmaf 3.2.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VifOptions {
    pub enhn_gain_limit: f64,
    pub skip_scale0: bool,
}

impl Default for VifOptions {
    fn default() -> Self {
        Self { enhn_gain_limit: 100.0, skip_scale0: false }
    }
}

/// Pixel work for VIF: the four scales, once for each distinct enhancement gain limit.
#[derive(Clone, Debug, PartialEq)]
pub struct VifWork {
    /// Distinct `vif_enhn_gain_limit` values, 1.0..=100.0, at least one.
    pub gain_limits: Vec<f64>,
    /// Whether the statistics of scale 0 are needed.
    pub scale0: bool,
}

/// The integer sums of one scale for one gain limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VifScaleSums {
    pub num_log: i64,
    pub den_log: i64,
    pub flat_count: i64,
    pub flat_energy: i64,
}

/// Per gain limit of [`VifWork`], in its order: the sums of scales 0 to 3.
pub type VifSums = Vec<[VifScaleSums; 4]>;
