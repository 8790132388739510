// SPDX-License-Identifier: MPL-2.0

//! The lists of all metrics, and of the extractors that users and models find by name.

use super::extractor::Extractor;
use super::metric::Metric;
use super::{
    adm, ansnr, cambi, ciede, cvvdp, damage, float_adm, float_motion, float_vif, moments, motion, null, psnr,
    psnr_hvs, speed, ssim, ssimulacra2, vif, xpsnr,
};

/// An entry of the list of metrics.
#[derive(Clone, Copy)]
pub struct Registration {
    /// libvmaf's extractors that it serves, with default options.
    extractors: &'static [fn() -> Extractor],
}

impl Registration {
    const fn of<M: Metric>(extractors: &'static [fn() -> Extractor]) -> Self {
        Self { extractors }
    }
}

/// All metrics, in the order of the logs. Each backend has a list of the same length.
pub const METRICS: &[Registration] = &[
    Registration::of::<vif::Vif>(&[Extractor::of::<vif::VifOptions>]),
    Registration::of::<float_vif::FloatVif>(&[Extractor::of::<float_vif::FloatVifOptions>]),
    Registration::of::<damage::Damage>(&[]),
    Registration::of::<adm::Adm>(&[Extractor::of::<adm::AdmOptions>]),
    Registration::of::<float_adm::FloatAdm>(&[Extractor::of::<float_adm::FloatAdmOptions>]),
    Registration::of::<motion::Motion>(&[Extractor::of::<motion::MotionOptions>]),
    Registration::of::<psnr::Psnr>(&[Extractor::of::<psnr::PsnrOptions>]),
    Registration::of::<xpsnr::Xpsnr>(&[Extractor::of::<xpsnr::XpsnrOptions>]),
    Registration::of::<speed::Speed>(&[Extractor::of::<speed::SpeedOptions>]),
    Registration::of::<speed::temporal::SpeedTemporal>(&[Extractor::of::<speed::temporal::TemporalOptions>]),
    Registration::of::<ssim::Ssim>(&[
        Extractor::of::<ssim::SsimOptions>,
        Extractor::of::<ssim::MsSsimOptions>,
    ]),
    Registration::of::<psnr_hvs::PsnrHvs>(&[Extractor::of::<psnr_hvs::PsnrHvsOptions>]),
    Registration::of::<ciede::Ciede>(&[Extractor::of::<ciede::CiedeOptions>]),
    Registration::of::<cambi::Cambi>(&[Extractor::of::<cambi::CambiOptions>]),
    Registration::of::<ssimulacra2::Ssimulacra2>(&[Extractor::of::<ssimulacra2::Ssimulacra2Options>]),
    Registration::of::<cvvdp::Cvvdp>(&[Extractor::of::<cvvdp::CvvdpOptions>]),
    Registration::of::<float_motion::FloatMotion>(&[Extractor::of::<float_motion::FloatMotionOptions>]),
    Registration::of::<moments::Moments>(&[
        Extractor::of::<moments::FloatPsnrOptions>,
        Extractor::of::<moments::MomentOptions>,
        Extractor::of::<null::NullOptions>,
    ]),
    Registration::of::<ansnr::Ansnr>(&[Extractor::of::<ansnr::AnsnrOptions>]),
];

impl Extractor {
    /// Returns all extractors with default options.
    pub fn all() -> impl Iterator<Item = Self> {
        METRICS.iter().flat_map(|metric| metric.extractors).map(|extractor| extractor())
    }

    /// Finds the extractor with this name in libvmaf. Its options are the defaults.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|extractor| extractor.name() == name)
    }

    /// Finds the feature with this name in models or lists. Returns its extractor, with the options that it requires,
    /// and its index.
    pub(super) fn yielding(name: &str) -> Option<(Self, usize)> {
        Self::all().find_map(|extractor| {
            let output = extractor.output(name)?;
            Some((extractor.with_feature(output), output))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::extractor::About;

    /// Updates the documentation if `UPDATE_DOCS=1` is set.
    #[test]
    fn the_list_in_the_documentation_is_that_of_the_metrics() {
        const BEGIN: &str =
            "<!-- from the metrics' `ABOUT`: UPDATE_DOCS=1 cargo test -p hipvmaf-engine -->\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let mut list =
            String::from("| `features=` | reported as | what it tells | range | equal | source |\n");
        list += "|---|---|---|---|---|---|\n";
        for extractor in Extractor::all() {
            for (i, About { reported, tells, range, equal, source }) in extractor.about().iter().enumerate() {
                let name = if i == 0 { format!("`{}`", extractor.name()) } else { String::new() };
                let cells = [&name, *reported, tells, range, equal, source];
                let row: String =
                    cells.iter().map(|cell| format!(" {cell} |").replace("  |", " |")).collect();
                list += &format!("|{row}\n");
            }
        }
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (old, after) = rest.split_once("\n\n").unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{list}\n{after}")).unwrap();
        } else {
            assert_eq!(format!("{old}\n"), list);
        }
    }
}
