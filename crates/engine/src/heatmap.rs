// SPDX-License-Identifier: MPL-2.0

//! The heat map: it converts damage, or visible differences, to a level of heat at each place of a picture and colours the
//! samples by it.

use crate::frame::Geometry;
use crate::metrics::cvvdp::{self, Cvvdp};
use crate::metrics::damage::{CELL, Damage, DamageSums, cells};
use crate::metrics::{FrameSums, Work};

/// Number of heat levels.
pub const LEVELS: usize = 256;

/// The colour map inferno, perceptually uniform from dark to bright: every eighth of its 256 colours as red, green and
/// blue. By Nathaniel J. Smith and Stéfan van der Walt for matplotlib, CC0.
const INFERNO: [[u8; 3]; 33] = [
    [0, 0, 4],
    [4, 3, 18],
    [11, 7, 36],
    [21, 11, 55],
    [33, 12, 74],
    [47, 10, 91],
    [61, 9, 101],
    [74, 12, 107],
    [87, 16, 110],
    [100, 21, 110],
    [113, 25, 110],
    [125, 30, 109],
    [138, 34, 106],
    [151, 39, 102],
    [163, 44, 97],
    [176, 49, 91],
    [188, 55, 84],
    [198, 61, 77],
    [208, 69, 69],
    [218, 78, 60],
    [227, 89, 51],
    [235, 100, 41],
    [241, 113, 31],
    [246, 126, 20],
    [249, 140, 10],
    [251, 155, 6],
    [252, 170, 15],
    [251, 186, 31],
    [249, 201, 50],
    [245, 217, 73],
    [242, 232, 101],
    [243, 245, 134],
    [252, 255, 164],
];

/// The loss that is shown in the last colour. An x264 encode reaches a third of it with crf 32 and half with 40.
const HOTTEST: f64 = 0.85;
/// Position in the colour map of the smallest damage. Earlier colours are as dark as the dimmed picture.
const FIRST_COLOUR: f64 = 0.3;
/// Exponent that is applied to the heat: below 1, so that moderate damage is brighter than none.
const CURVE: f64 = 0.7;
/// Remaining brightness of the picture where nothing is damaged.
const DIMMED: f64 = 0.4;
/// Opacity of the colour at the worst damage, and how fast it rises.
const OPAQUE: f64 = 0.75;
const RISE: f64 = 2.0;

/// Returns red, green and blue, 0 to 1, for a heat of 0 to 1.
fn colour(heat: f64) -> [f64; 3] {
    let at = (FIRST_COLOUR + heat.powf(CURVE) * (1.0 - FIRST_COLOUR)) * (INFERNO.len() - 1) as f64;
    let first = (at as usize).min(INFERNO.len() - 2);
    let share = at - first as f64;
    std::array::from_fn(|i| {
        let [from, to] = [INFERNO[first][i], INFERNO[first + 1][i]].map(f64::from);
        (from + (to - from) * share) / 255.0
    })
}

/// How samples encode colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoding {
    /// Weight of red in luma.
    pub red: f64,
    /// Weight of blue in luma.
    pub blue: f64,
    /// The samples of Y, Cb and Cr that encode 0.
    pub offset: [i32; 3],
    /// Differences of the samples of Y between 0 and 1, and of those of Cb and Cr between -1/2 and 1/2.
    pub scale: [i32; 3],
    /// The largest sample.
    pub max: i32,
}

/// The change of a sample at each level of heat: `gain (sample - offset) + base`.
pub struct Paint {
    offset: i32,
    max: i32,
    /// Gain, in 1/65536, and base.
    levels: [(i32, i32); LEVELS],
}

impl Paint {
    /// Computes the changes of samples of Y, Cb and Cr.
    pub fn new(encoding: &Encoding) -> [Self; 3] {
        let Encoding { red, blue, offset, scale, max } = *encoding;
        std::array::from_fn(|i| {
            let levels = std::array::from_fn(|level| {
                let heat = level as f64 / (LEVELS - 1) as f64;
                let opacity = OPAQUE * (heat * RISE).min(1.0);
                let [r, g, b] = colour(heat);
                let y = red * r + (1.0 - red - blue) * g + blue * b;
                let value = [y, (b - y) / (2.0 * (1.0 - blue)), (r - y) / (2.0 * (1.0 - red))][i];
                // The dimmed picture is grey.
                let gain = if i == 0 { DIMMED * (1.0 - opacity) } else { 0.0 };
                let base = f64::from(offset[i]) + value * opacity * f64::from(scale[i]);
                ((gain * 65536.0).round() as i32, base.round() as i32)
            });
            Self { offset: offset[i], max, levels }
        })
    }

    /// Returns the coloured sample.
    #[inline]
    pub fn apply(&self, sample: u16, level: u8) -> u16 {
        let (gain, base) = self.levels[usize::from(level)];
        // The product is below 2^31, as gains are at most [`DIMMED`].
        let kept = ((i32::from(sample) - self.offset) * gain + (1 << 15)) >> 16;
        (kept + base).clamp(0, self.max) as u16
    }
}

/// The visible difference that is shown in the last colour: 5 JOD.
const HOTTEST_VISIBLE: f64 = 0.5;

/// The sums that a heat map is made of.
#[derive(Debug)]
pub enum HeatSums {
    /// The share of information that is lost.
    Damage(DamageSums),
    /// The differences that are visible according to ColorVideoVDP.
    Visible(cvvdp::heat::Heat),
}

impl HeatSums {
    /// Adds a heat map to the work of others: of visible differences where ColorVideoVDP is computed, and else of damage.
    pub(crate) fn plan(work: &mut Work) {
        if !Cvvdp::plan_heat(work) {
            Damage::plan(work);
        }
    }

    /// Returns true if the work includes a heat map.
    pub(crate) fn are_planned(work: &Work) -> bool {
        work.get::<Damage>().is_some() || work.get::<Cvvdp>().is_some_and(|work| work.heat)
    }

    /// Takes those of a pair; `None` if there are none.
    pub(crate) fn take(work: &Work, sums: &mut FrameSums) -> Option<Self> {
        let visible = || sums.get::<Cvvdp>()?.heat(work.get::<Cvvdp>()?).map(Self::Visible);
        visible().or_else(|| sums.take::<Damage>().map(Self::Damage))
    }

    /// Computes the level of heat of each cell.
    fn levels(&self, geometry: Geometry) -> Vec<u8> {
        let level = |share: f64| (share * 255.0).round().min(255.0) as u8;
        match self {
            Self::Damage(windows) => windows.iter().map(|window| level(window.loss() / HOTTEST)).collect(),
            Self::Visible(heat) => {
                heat.map(geometry).into_iter().map(|difference| level(difference / HOTTEST_VISIBLE)).collect()
            }
        }
    }
}

/// The heat of a picture, interpolated linearly between the centres of its cells.
pub struct Heatmap {
    columns: usize,
    /// Level of heat of each cell, row by row, from 0 (no damage) to 255.
    cells: Vec<u8>,
}

impl Heatmap {
    /// Creates the heat map of a picture. Without sums nothing is shown.
    pub fn new(geometry: Geometry, sums: Option<&HeatSums>) -> Self {
        Self { columns: cells(geometry).0, cells: sums.map_or(vec![], |sums| sums.levels(geometry)) }
    }

    /// Returns the levels of luma row `y` at every `step`th of its samples, 1 or 2, including the first.
    pub fn row(&self, y: usize, step: usize, levels: &mut [u8]) {
        let Some(last) = (self.cells.len() / self.columns.max(1)).checked_sub(1) else {
            return levels.fill(0);
        };
        // In halves of a sample; cells are UNIT apart.
        let from_centre = (2 * y + 1).saturating_sub(CELL);
        let above = (from_centre / UNIT as usize).min(last);
        let share = if above < last { (from_centre % UNIT as usize) as i32 } else { 0 };
        let row = |i: usize| &self.cells[i * self.columns..(i + 1) * self.columns];
        let (above, below) = (row(above), row((above + 1).min(last)));
        let column = |i: usize| {
            let [above, below] = [above[i], below[i]].map(i32::from);
            above * UNIT + (below - above) * share
        };
        let level = |sum: i32| ((sum + UNIT * UNIT / 2) / (UNIT * UNIT)) as u8;
        let mut next = column(0);
        // Samples up to the first centre, then from centre to centre, and after the last one.
        let (first, mut rest) = levels.split_at_mut((CELL / 2 / step).min(levels.len()));
        first.fill(level(next * UNIT));
        for cell in 1..self.columns {
            let (part, others) = rest.split_at_mut((CELL / step).min(rest.len()));
            let from = std::mem::replace(&mut next, column(cell));
            for (i, to) in part.iter_mut().enumerate() {
                *to = level(from * UNIT + (next - from) * (2 * i * step + 1) as i32);
            }
            rest = others;
        }
        rest.fill(level(next * UNIT));
    }
}

/// Distance of the centres of two cells, in halves of a sample.
const UNIT: i32 = 2 * CELL as i32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    const BT709: Encoding =
        Encoding { red: 0.2126, blue: 0.0722, offset: [16, 128, 128], scale: [219, 224, 224], max: 255 };

    #[test]
    fn without_damage_the_picture_is_dim_and_grey() {
        let [y, cb, cr] = Paint::new(&BT709);
        assert_eq!([16, 116, 235].map(|sample| y.apply(sample, 0)), [16, 56, 104]);
        assert_eq!([0, 77, 255].map(|sample| (cb.apply(sample, 0), cr.apply(sample, 0))), [(128, 128); 3]);
    }

    /// Higher heat is also brighter, for viewers who do not see its colour and for grey video.
    #[test]
    fn brightness_rises_with_the_damage() {
        let [y, ..] = Paint::new(&BT709);
        let colours: Vec<_> = (0..LEVELS).map(|level| y.apply(16, level as u8)).collect();
        assert!(colours.is_sorted() && colours[255] > 170, "{colours:?}");
    }

    #[test]
    fn samples_stay_in_their_range() {
        let wide = Encoding { offset: [0, 32768, 32768], scale: [65535; 3], max: 65535, ..BT709 };
        for paint in Paint::new(&wide) {
            for level in 0..=255 {
                assert!(paint.apply(0, level) <= paint.apply(65535, level));
            }
        }
    }

    #[test]
    fn levels_are_those_of_the_cells_and_straight_between() {
        let map = Heatmap { columns: 2, cells: vec![0, 200, 100, 100] };
        let row = |y: usize, step| {
            let mut levels = vec![0; 32 / step];
            map.row(y, step, &mut levels);
            levels
        };
        let top = row(0, 1);
        assert!(top.is_sorted() && top[..8] == [0; 8] && top[24..] == [200; 8], "{top:?}");
        assert_eq!((top[15], top[16]), (94, 106));
        assert_eq!(row(31, 1), [100; 32]);
        assert_eq!(row(5, 2), top.iter().step_by(2).copied().collect::<Vec<_>>());
        let geometry = Geometry { width: 40, height: 1, depth: BitDepth::new(8).unwrap(), chroma: None };
        let mut levels = [9; 4];
        Heatmap::new(geometry, None).row(0, 1, &mut levels);
        assert_eq!(levels, [0; 4]);
    }
}
