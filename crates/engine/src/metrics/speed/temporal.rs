// SPDX-License-Identifier: MPL-2.0

//! SpEED temporal: the difference of the spatial entropy of the changes of luma from picture to picture.
//!
//! The definition is that of libvmaf 3.2.0's `speed_temporal` (BSD-2-Clause-Patent): that of [`speed_chroma`](super), of the
//! differences of the previous picture and the present one in place of a plane. The first pair has the score 0. libvmaf does
//! not apply `speed_max_val`, which only changes the name.

use super::super::extractor::{About, Extract};
use super::super::metric::{Metric, Misfit};
use super::super::options::{Options, Row, bool, float, name};
use super::super::score::{OptionsError, Scorer, Source, plain};
use super::super::work::{Work, place};
use super::{Layout, Method, PlaneScaling, PlaneStatistics, SpeedMisfit, SpeedOptions};
use crate::frame::Geometry;

/// Options of libvmaf's `speed_temporal`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TemporalOptions {
    /// Those of `speed_chroma`; it has no `speed_weight_var_mode`.
    pub speed: SpeedOptions,
    /// `speed_use_ref_diff`: the distorted pictures change to the present reference.
    pub use_ref_diff: bool,
}

/// A kind of statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    pub scaling: PlaneScaling,
    /// The previous distorted picture is compared with the present reference.
    pub to_reference: bool,
}

/// The statistics to compute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemporalWork {
    /// The distinct kinds.
    pub changes: Vec<Change>,
    /// Variances of the neural noise for which entropies are needed; see [`SpeedOptions::sigma`].
    pub sigmas: Vec<f32>,
}

/// Statistics of a frame pair for each [`TemporalWork::changes`]: of the reference and of the distorted picture; `None` if
/// one of them follows no other.
pub type TemporalSums = Option<Vec<[PlaneStatistics; 2]>>;

/// SpEED of changes.
pub struct SpeedTemporal;

impl Metric for SpeedTemporal {
    const NAME: &'static str = "speed_temporal";
    type Work = TemporalWork;
    type Sums = TemporalSums;

    fn history(_work: &TemporalWork) -> usize {
        1
    }

    fn check(work: &TemporalWork, geometry: Geometry) -> Result<(), Misfit> {
        work.changes.iter().try_for_each(|change| change.layout(geometry).map(|_| ()))
    }
}

impl Change {
    /// Computes the tables for frames of this geometry.
    pub fn layout(&self, geometry: Geometry) -> Result<Layout, Misfit> {
        let Geometry { width, height, depth, .. } = geometry;
        match self.scaling.fits_plane((width, height)) {
            Ok(size) => Ok(self.scaling.layout_of(size, depth)),
            Err(SpeedMisfit::TooSmall { min, .. }) => {
                Err(Misfit::TooSmall { metric: "SpEED temporal", min, width, height })
            }
            Err(SpeedMisfit::NoChroma) => Err(Misfit::NoChroma { metric: "SpEED temporal" }),
        }
    }
}

impl TemporalOptions {
    /// Computes the score of a pair.
    fn score(&self, [reference, distorted]: &[PlaneStatistics; 2]) -> f64 {
        self.speed.plane(reference, distorted).unwrap_or(0.0).into()
    }
}

impl Options for TemporalOptions {
    const EXTRACTOR: &'static str = "speed_temporal";
    const TABLE: &'static [Row<Self>] = &[
        float("speed_kernelscale", Some("ks"), |o| &mut o.speed.kernel_scale, 0.1..=4.0),
        float("speed_max_val", Some("mxv"), |o| &mut o.speed.max_val, 0.0..=1000.0),
        float("speed_nn_floor", Some("nnf"), |o| &mut o.speed.nn_floor, 0.0..=1.0),
        float("speed_prescale", Some("ps"), |o| &mut o.speed.prescale, 0.1..=4.0),
        name(
            "speed_prescale_method",
            "psm",
            |o| o.speed.prescale_method.name(),
            |o, name| Method::from_name(name).map(|method| o.speed.prescale_method = method),
            &Method::NAMES,
        ),
        float("speed_sigma_nn", Some("snn"), |o| &mut o.speed.sigma_nn, 0.1..=2.0),
        bool("speed_use_ref_diff", Some("urd"), |o| &mut o.use_ref_diff),
    ];
}

impl Extract for TemporalOptions {
    type Output = ();
    const FEATURES: &'static [(&'static str, ())] = &[("speed_temporal", ())];
    const ABOUT: &'static [About] = &[About {
        reported: "`speed_temporal`",
        tells: "difference in local entropy of the changes of luma from frame to frame, at a sixteenth of their size",
        range: "0 up",
        equal: "0",
        source: "C. Bampis et al., IEEE Signal Processing Letters 2017",
    }];

    fn in_models(name: &str) -> Option<String> {
        Some(format!("Speed_temporal_feature_{name}_score"))
    }

    fn plan(&self, _costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        let change = Change { scaling: self.speed.scaling()?, to_reference: self.use_ref_diff };
        let index = work.extend::<SpeedTemporal, _>(TemporalWork::default(), |work| {
            place(&mut work.sigmas, self.speed.sigma());
            place(&mut work.changes, change)
        });
        Ok(Box::new(TemporalSource { options: *self, index }))
    }
}

/// `index`: index in [`TemporalWork::changes`].
#[derive(Clone, Copy, Debug)]
struct TemporalSource {
    options: TemporalOptions,
    index: usize,
}

impl Source for TemporalSource {
    fn scorer(&self, _geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        let Self { options, index } = *self;
        Ok(plain(move |sums| {
            vec![match sums.get::<SpeedTemporal>() {
                None => f64::NAN,
                Some(None) => 0.0,
                Some(Some(changes)) => changes.get(index).map_or(f64::NAN, |change| options.score(change)),
            }]
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::BitDepth;

    #[test]
    fn the_smallest_frames_are_named() {
        let change = |prescale| {
            let speed = SpeedOptions { prescale, ..Default::default() };
            Change { scaling: speed.scaling().unwrap(), to_reference: false }
        };
        let geometry =
            |width, height| Geometry { width, height, depth: BitDepth::new(8).unwrap(), chroma: None };
        assert!(change(1.0).layout(geometry(80, 80)).is_ok());
        for (prescale, geometry, min) in [(1.0, geometry(79, 200), 80), (0.5, geometry(200, 158), 159)] {
            let error = change(prescale).layout(geometry).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains(&format!("at least {min}x{min}"))));
        }
    }

    #[test]
    fn kinds_of_changes_are_computed_once() {
        let mut work = Work::default();
        let plain = TemporalOptions::default();
        for options in [
            plain,
            TemporalOptions { speed: SpeedOptions { sigma_nn: 0.5, ..plain.speed }, ..plain },
            TemporalOptions { use_ref_diff: true, ..plain },
        ] {
            options.plan(false, &mut work).unwrap();
        }
        let work = work.get::<SpeedTemporal>().unwrap();
        assert_eq!((work.changes.len(), &work.sigmas[..]), (2, &[0.29, 0.5][..]));
    }
}
