// SPDX-License-Identifier: MPL-2.0

//! Extractors that a context uses: their options, the names of their scores, and the pictures that they refuse.

use engine::frame::Geometry;
use engine::metrics::pairwise::Pairwise;
use engine::metrics::{Extractor, Work};

use crate::Errno;
use crate::dictionary::Dictionary;
use crate::log::{Level, log};
use crate::names::stored;
use crate::number::leading;
use crate::picture::{Format, Pixels};

/// Extractors with the option `debug`, which asks for the fractions behind their scores.
const WITH_FRACTIONS: [&str; 5] = ["adm", "float_adm", "vif", "float_vif", "motion"];

/// An extractor with options.
#[derive(Clone)]
pub struct Options {
    extractor: Extractor,
    has_fractions: bool,
}

impl From<&Extractor> for Options {
    fn from(extractor: &Extractor) -> Self {
        Self { extractor: extractor.clone(), has_fractions: false }
    }
}

impl Options {
    /// The extractor.
    pub fn extractor(&self) -> &Extractor {
        &self.extractor
    }

    /// Sets options; those that the extractor does not have are ignored. The first value that is refused ends it.
    pub fn set_all(&mut self, dictionary: &Dictionary) -> Result<(), Errno> {
        dictionary.iter().try_for_each(|(name, value)| self.set(name, value))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Errno> {
        match (self.extractor.name(), name) {
            (extractor, "debug") if WITH_FRACTIONS.contains(&extractor) => {
                self.has_fractions = value.parse().map_err(|_| Errno::INVALID)?;
                return Ok(());
            }
            // There are no such files here.
            ("cambi", "heatmaps_path") => return Err(Errno::INVALID),
            _ => (),
        }
        if self.extractor.set(name, value).is_ok() {
            return Ok(());
        }
        // To C, a text is the number that it begins with.
        let number = leading(value).ok_or(Errno::INVALID)?;
        self.extractor.set(name, &number).map(|_| ()).map_err(|_| Errno::INVALID)
    }
}

/// Returns the name under which the table has a feature; `None` where the options do not yield it.
pub fn stored_name(extractor: &Extractor, output: usize) -> Option<String> {
    let feature = extractor.features(true).into_iter().find(|feature| feature.output == output)?;
    Some(if extractor.suffix().is_empty() { stored(&feature.key) } else { feature.key })
}

/// Returns the name under which the table has one of the fractions of an extractor.
fn stored_fraction(extractor: &Extractor, short: &str) -> String {
    match extractor.suffix() {
        suffix if suffix.is_empty() => stored(short),
        // libvmaf's list of names with a suffix lacks this one.
        _ if (extractor.name(), short) == ("float_adm", "adm") => short.into(),
        suffix => format!("{short}{suffix}"),
    }
}

/// An extractor that a context uses.
pub struct Registered {
    options: Option<Options>,
    /// Its features in the order in which their scores are stored: number and name.
    pub outputs: Vec<(usize, String)>,
    /// It has seen a picture that it does not refuse for its format.
    pub is_initialized: bool,
    /// Totals of all its pairs.
    pub totals: Vec<u64>,
    /// Of motion: so many indices from 0 on have scores, at least.
    pub contiguous: u32,
    /// Of floating-point motion: index and difference of the latest picture.
    pub latest: Option<(u32, f64)>,
}

/// Why an extractor has no scores for a picture.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// It refuses the format, before it has seen a picture.
    Format(Errno),
    /// It refuses the picture.
    Picture(Errno),
}

impl Registered {
    /// An extractor with these options; `None` for libvmaf's `null`, which computes nothing.
    pub fn new(options: Option<Options>) -> Self {
        let mut outputs: Vec<_> = match &options {
            None => vec![],
            Some(options) => {
                let extractor = options.extractor();
                let name = |feature: engine::metrics::feature::Feature| {
                    Some((feature.output, stored_name(extractor, feature.output)?))
                };
                extractor.features(true).into_iter().filter_map(name).collect()
            }
        };
        if options.as_ref().is_some_and(|options| options.extractor().name() == "psnr") {
            // All figures of a plane, then those of the next.
            let plane =
                |(_, name): &(usize, String)| ["_y", "_cb", "_cr"].iter().position(|end| name.ends_with(end));
            outputs.sort_by_key(plane);
        }
        Self { options, outputs, is_initialized: false, totals: vec![], contiguous: 0, latest: None }
    }

    /// Returns the name under which a fraction behind its scores is stored, by its short name, if fractions are wanted.
    pub fn fraction(&self, short: &str) -> Option<String> {
        let options = self.options.as_ref().filter(|options| options.has_fractions)?;
        Some(stored_fraction(options.extractor(), short))
    }

    /// Its name in libvmaf.
    pub fn name(&self) -> &'static str {
        self.options.as_ref().map_or("null", |options| options.extractor().name())
    }

    /// Both yield the same scores under the same names.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.options, &other.options) {
            (None, None) => true,
            (Some(a), Some(b)) => a.extractor().is_same(b.extractor()),
            _ => false,
        }
    }

    /// It is computed for all pictures, also for those that subsampling leaves out.
    pub fn is_never_left_out(&self) -> bool {
        self.name() == "psnr" || self.name() == "motion" || self.compares_with_last()
    }

    /// It compares a picture with the one that was handed over before, whose index is one less.
    pub fn compares_with_last(&self) -> bool {
        ["float_motion", "speed_temporal"].contains(&self.name())
    }

    /// With threads, its errors are known when pictures are handed over.
    pub fn is_immediate(&self) -> bool {
        self.name() == "psnr"
    }

    /// It has scores of this name for pictures of this format.
    pub fn yields(&self, name: &str, format: Format) -> bool {
        self.name() != "psnr" || format.pixels != Pixels::Grey || name.ends_with("_y")
    }

    /// The first score that cannot be stored ends it.
    pub fn ends_at_first_error(&self) -> bool {
        ["motion", "cambi"].contains(&self.name())
    }

    /// Adds its work to that of others; nothing for one that computes nothing.
    pub fn plan(&self, work: &mut Work) -> Result<Option<Pairwise>, Errno> {
        let Some(options) = &self.options else { return Ok(None) };
        Pairwise::plan(options.extractor(), work).map(Some).map_err(|_| Errno::INVALID)
    }

    /// Writes what libvmaf says of a format that it refuses.
    pub fn complain(&self, format: Format) {
        if self.name() == "psnr_hvs" && format.bits > 12 {
            let text = "bpc must be less than or equal to 12";
            log(Level::Error, format_args!("psnr_hvs: invalid bitdepth ({}), {text}", format.bits));
        }
    }

    /// Says why pictures of a format have no scores, if they have none.
    pub fn refusal(&self, format: Format, geometry: Geometry) -> Option<Refusal> {
        let odd = ![8, 10, 12, 16].contains(&format.bits);
        match self.name() {
            "psnr" if odd => return Some(Refusal::Picture(Errno::INVALID)),
            "float_psnr" | "float_ansnr" if odd => return Some(Refusal::Format(Errno::MEMORY)),
            // libvmaf takes each byte for a sample then.
            "float_adm" | "float_ssim" | "float_ms_ssim" | "float_moment" | "float_motion" | "float_vif"
            | "speed_chroma" | "speed_temporal"
                if odd =>
            {
                return Some(Refusal::Picture(Errno::INVALID));
            }
            "ciede" if odd && format.pixels == Pixels::Yuv444 => {
                return Some(Refusal::Picture(Errno::INVALID));
            }
            "ciede" if odd => return Some(Refusal::Format(Errno::INVALID)),
            _ => (),
        }
        let mut work = Work::default();
        if self.plan(&mut work).is_err() {
            // libvmaf's own number for a scale of the kernel that it does not know.
            let error = if self.name() == "float_vif" { Errno(1) } else { Errno::INVALID };
            return Some(Refusal::Picture(error));
        }
        match work.check(geometry) {
            Ok(()) => None,
            // libvmaf's own number for pictures that are too small.
            Err(_) if self.name() == "float_ms_ssim" => Some(Refusal::Picture(Errno(1))),
            Err(_) if self.name() == "float_ssim" => Some(Refusal::Picture(Errno::INVALID)),
            Err(_) => Some(Refusal::Format(Errno::INVALID)),
        }
    }
}

/// Finds an extractor by libvmaf's name, with options.
pub fn named(name: &str, dictionary: Option<&Dictionary>) -> Option<Result<Registered, Errno>> {
    if name == "null" {
        return Some(Ok(Registered::new(None)));
    }
    let mut options = Options::from(&Extractor::named(name)?);
    let set = dictionary.map_or(Ok(()), |dictionary| options.set_all(dictionary));
    Some(set.map(|()| Registered::new(Some(options))))
}
