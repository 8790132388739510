// SPDX-License-Identifier: MPL-2.0

//! Visual information fidelity: options, tables, and the formulas from sums to the four scale scores.
//!
//! Formulas and constants are those of libvmaf 3.2.0's integer VIF (BSD-2-Clause-Patent).

use std::sync::LazyLock;

use super::extractor::{About, Extract};
use super::metric::{Metric, Misfit};
use super::options::{Options, Row, bool, float};
use super::score::{OptionsError, Scorer, Source, fractions, plain};
use super::work::{FrameSums, Work, place};
use crate::frame::Geometry;

/// Smallest width and height for which all four scales are defined.
pub const MIN_SIZE: usize = 16;

/// Filter taps of scales 0 to 3, in 1/65536; symmetric, and each set sums to 65536.
pub const TAPS: [&[u16]; 4] = [
    &[489, 935, 1640, 2640, 3896, 5274, 6547, 7455, 7784, 7455, 6547, 5274, 3896, 2640, 1640, 935, 489],
    &[1244, 3663, 7925, 12590, 14692, 12590, 7925, 3663, 1244],
    &[3571, 16004, 26386, 16004, 3571],
    &[10904, 43728, 10904],
];

/// Variance of the visual noise: two squared 8-bit steps, in 1/65536.
pub const NOISE: i32 = 1 << 17;

/// Keeps the gain finite; added to the reference variance.
pub const EPSILON: f64 = 65536.0 * 1.0e-10;

/// Computes `floor(log2(i) 2048 + 0.5)` for `i` = 32768 to 65535. The logarithm is first rounded to binary32 (a grid of
/// 2^-20 here), as in the library. The table rises in steps of 0 or 1.
pub fn log2_table() -> Vec<u16> {
    (1u64 << 15..1 << 16)
        .map(|i| {
            // Computes the binary digits of the logarithm by repeated squaring of a number in [1, 2) with 63 fraction
            // bits.
            let mut x = i << 48;
            let mut log = 15u32;
            for _ in 0..21 {
                let square = u128::from(x) * u128::from(x);
                let carry = (square >> 127) as u32;
                x = (square >> (63 + carry)) as u64;
                log = log << 1 | carry;
            }
            let single = (log + 1) >> 1;
            ((single + (1 << 8)) >> 9) as u16
        })
        .collect()
}

/// The logarithm table for look-up by the 12 highest of the 15 fraction bits of a number.
///
/// Let `u` be the exponent (plus 127) and the 15 fraction bits of a number `v`, `L(v)` the table's logarithm, and `e`
/// the entry at `(u >> 3) & 4095`. Then `((u & !0x7ff8) + e) >> 4 == L(v) + LOG2_BIAS`. An entry holds the logarithm of
/// the first of 8 neighbours and the position of the first larger one: the table rises at most once among 8.
pub static LOG2_STEPS: LazyLock<Box<[u32; 4096]>> = LazyLock::new(|| {
    let table = log2_table();
    let mut steps = Box::new([0; 4096]);
    for (entry, group) in steps.iter_mut().zip(table.chunks_exact(8)) {
        let rise = group.iter().filter(|x| **x == group[0]).count() as u32;
        *entry = (u32::from(group[0]) - 30720) * 16 + 16 - rise;
    }
    steps
});

/// Amount by which [`LOG2_STEPS`] exceeds the logarithm, in 1/2048.
pub const LOG2_BIAS: i32 = 142 * 2048 - 30720;

/// `vif_*` options of libvmaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VifOptions {
    /// `vif_enhn_gain_limit`, 1.0..=100.0: largest gain that counts as contrast enhancement.
    pub enhn_gain_limit: f64,
    /// `vif_skip_scale0`: reports 0 for scale 0.
    pub skip_scale0: bool,
}

impl Default for VifOptions {
    fn default() -> Self {
        Self { enhn_gain_limit: 100.0, skip_scale0: false }
    }
}

impl VifOptions {
    /// Computes `integer_vif_scale0` to `integer_vif_scale3` from the sums for this gain limit.
    pub fn scores(&self, sums: &[VifScaleSums; 4]) -> [f64; 4] {
        let mut scores = sums.map(|scale| scale.score());
        if self.skip_scale0 {
            scores[0] = 0.0;
        }
        scores
    }
}

/// Pixel work for VIF: the four scales, once for each distinct gain limit.
#[derive(Clone, Debug, PartialEq)]
pub struct VifWork {
    /// Distinct `vif_enhn_gain_limit` values, 1.0..=100.0, at least one.
    pub gain_limits: Vec<f64>,
    /// The statistics of scale 0 are needed.
    pub scale0: bool,
}

/// The integer sums of one scale for one gain limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VifScaleSums {
    /// Information about the reference in the distorted picture, in 1/2048 bit.
    pub num_log: i64,
    /// Information in the reference, in 1/2048 bit.
    pub den_log: i64,
    /// Number of pixels whose reference is flat.
    pub flat_count: i64,
    /// Sum of the distorted variance at those pixels, in 1/65536 of a squared 8-bit step.
    pub flat_energy: i64,
}

impl VifScaleSums {
    /// Returns preserved over available information; close to 1 for equal pictures, above 1 for enhanced contrast.
    pub fn score(&self) -> f64 {
        let [num, den] = self.fraction();
        f64::from(num / den)
    }

    /// Returns the preserved and the available information.
    fn fraction(&self) -> [f32; 2] {
        let flat = self.flat_count as f64;
        let num = self.num_log as f64 / 2048.0 + (flat - (self.flat_energy as f64 / 16384.0) / 65025.0);
        let den = self.den_log as f64 / 2048.0 + flat;
        [num as f32, den as f32]
    }
}

impl std::ops::AddAssign for VifScaleSums {
    fn add_assign(&mut self, other: Self) {
        self.num_log += other.num_log;
        self.den_log += other.den_log;
        self.flat_count += other.flat_count;
        self.flat_energy += other.flat_energy;
    }
}

/// The sums of scales 0 to 3, one per gain limit of [`VifWork`], in its order.
pub type VifSums = Vec<[VifScaleSums; 4]>;

/// Visual information fidelity.
pub struct Vif;

impl Metric for Vif {
    const NAME: &'static str = "vif";
    type Work = VifWork;
    type Sums = VifSums;

    fn check(_work: &VifWork, geometry: Geometry) -> Result<(), Misfit> {
        Misfit::at_least("VIF", MIN_SIZE, geometry)
    }
}

impl Options for VifOptions {
    const EXTRACTOR: &'static str = "vif";
    const TABLE: &'static [Row<Self>] = &[
        float("vif_enhn_gain_limit", Some("egl"), |o| &mut o.enhn_gain_limit, 1.0..=100.0),
        bool("vif_skip_scale0", Some("ssclz"), |o| &mut o.skip_scale0),
    ];
}

impl Extract for VifOptions {
    /// The scale.
    type Output = usize;
    const FEATURES: &'static [(&'static str, usize)] = &[
        ("integer_vif_scale0", 0),
        ("integer_vif_scale1", 1),
        ("integer_vif_scale2", 2),
        ("integer_vif_scale3", 3),
    ];
    const ABOUT: &'static [About] = &[About {
        reported: "`integer_vif_scale0` to `3`",
        tells: "information that survived, from fine to coarse",
        range: "0 to 1; above 1 where contrast was enhanced",
        equal: "just below 1",
        source: "H. Sheikh, A. Bovik, IEEE Trans. Image Processing 2006",
    }];

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let none = VifWork { gain_limits: vec![], scale0: false };
        let gain = work.extend::<Vif, _>(none, |work| {
            work.scale0 |= !self.skip_scale0;
            place(&mut work.gain_limits, self.enhn_gain_limit)
        });
        Ok(Box::new(VifSource { options: *self, gain }))
    }
}

/// `gain`: index in [`VifWork::gain_limits`].
#[derive(Clone, Copy, Debug)]
struct VifSource {
    options: VifOptions,
    gain: usize,
}

impl Source for VifSource {
    fn part(&self) -> String {
        format!(" gain limit {}", self.options.enhn_gain_limit)
    }

    fn scorer(&self, _geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self { options, gain } = *self;
        Ok(plain(move |sums| {
            let scores = sums.get::<Vif>().and_then(|sums| sums.get(gain)).map(|sums| options.scores(sums));
            VifOptions::values(|scale| scores.map_or(f64::NAN, |scores| scores[scale]))
        }))
    }

    fn fractions(&self, sums: &FrameSums, _geometry: Geometry) -> Result<Vec<(String, f64)>, OptionsError> {
        let Some(sums) = sums.get::<Vif>().and_then(|sums| sums.get(self.gain)) else { return Ok(vec![]) };
        let scales = sums.map(|scale| scale.fraction());
        Ok(named_fractions("integer_vif", scales, self.options.skip_scale0))
    }
}

/// Names the fractions of the scales, and of all that count.
pub(super) fn named_fractions(
    name: &str,
    mut scales: [[f32; 2]; 4],
    skip_scale0: bool,
) -> Vec<(String, f64)> {
    let counted = &scales[usize::from(skip_scale0)..];
    let sum = |part: usize| counted.iter().fold(0.0, |sum, scale| sum + f64::from(scale[part]));
    let all = [sum(0), sum(1)];
    if skip_scale0 {
        scales[0] = [0.0, -1.0];
    }
    let score = if all[1] == 0.0 { 1.0 } else { all[0] / all[1] };
    fractions(name, score, all, scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log2_table_is_the_specified_one() {
        let table = log2_table();
        assert_eq!(table.iter().map(|x| u64::from(*x)).sum::<u64>(), 1_044_032_097);
        let crc = table.iter().flat_map(|x| x.to_le_bytes()).fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(byte), |c, _| c >> 1 ^ if c & 1 == 1 { 0xedb8_8320 } else { 0 })
        });
        assert_eq!(!crc, 0x42ad_4d4f);
    }

    #[test]
    fn packed_logarithm_equals_the_table_for_every_entry() {
        for (i, expected) in log2_table().into_iter().enumerate() {
            let u = 142 << 15 | i as u32;
            let found = ((u & !0x7ff8) + LOG2_STEPS[(u >> 3 & 4095) as usize]) >> 4;
            assert_eq!(found as i32 - LOG2_BIAS, i32::from(expected));
        }
    }

    #[test]
    fn scores_of_known_sums() {
        let sums = |num_log, den_log, flat_count, flat_energy| VifScaleSums {
            num_log,
            den_log,
            flat_count,
            flat_energy,
        };
        let scales = [
            sums(1228134, 8520168, 144, 423528121),
            sums(2115163, 2128709, 40, 2786818),
            sums(543745, 545794, 10, 650590),
            sums(144363, 144901, 2, 134847),
        ];
        let expected = [0.17268498241901398, 0.993869960308075, 0.9963793754577637, 0.9963874220848083];
        assert_eq!(VifOptions::default().scores(&scales), expected);
        let skipping = VifOptions { skip_scale0: true, ..Default::default() };
        assert_eq!(skipping.scores(&scales)[..2], [0.0, expected[1]]);
    }
}
