// SPDX-License-Identifier: MPL-2.0

//! The displays of ColorVideoVDP 0.5.7 (`display_models.json`; MIT, (c) 2024 Graphics and Displays group), without those
//! for samples that are proportional to light.

use std::borrow::Cow;
use std::f64::consts::PI;
use std::fmt;

use super::file;

/// The conversion from samples to light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eotf {
    /// sRGB, on BT.709 primaries.
    Srgb,
    /// PQ, on BT.2020 primaries.
    Pq,
    /// HLG, on BT.2020 primaries.
    Hlg,
}

/// The light of black.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Black {
    /// The ratio of white to black.
    Contrast(f64),
    /// In cd/m2.
    Level(f64),
}

/// A display, seen by a viewer.
#[derive(Clone, Debug, PartialEq)]
pub struct Display {
    /// The name for users.
    pub name: Cow<'static, str>,
    /// The conversion from samples to light.
    pub eotf: Eotf,
    /// The light of white in cd/m2.
    pub peak: f64,
    pub black: Black,
    /// The light of the room in lux.
    pub lux: f64,
    /// The share of it that the display reflects.
    pub reflectivity: f64,
    /// Pixels per degree of the field of view, a multiple of 2^-20.
    pub ppd: f64,
}

impl Display {
    const fn new(name: &'static str, eotf: Eotf, peak: f64, black: Black, lux: f64, ppd: f64) -> Self {
        Self { name: Cow::Borrowed(name), eotf, peak, black, lux, reflectivity: 0.005, ppd }
    }

    /// Finds a display of the list by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        DISPLAYS.iter().find(|display| display.name == name)
    }

    /// Finds the display that an option names: one of the list, or of a file. Returns an error as the words that follow
    /// "must be".
    pub fn chosen(text: &str) -> Result<&'static Self, String> {
        if text.contains(['@', '/']) || text.ends_with(".json") {
            return file::display(text);
        }
        let names = || DISPLAYS.each_ref().map(|display| &*display.name).join(", ");
        Self::named(text).ok_or_else(|| format!("one of {}, or FILE.json, or NAME@FILE.json", names()))
    }

    /// Returns the light of black, without reflections, in cd/m2.
    pub fn black(&self) -> f64 {
        let contrast = match self.black {
            Black::Contrast(contrast) => contrast,
            Black::Level(level) => self.peak / level,
        };
        self.peak / contrast
    }

    /// Returns the reflected light of the room in cd/m2.
    pub fn reflected(&self) -> f64 {
        self.lux / PI * self.reflectivity
    }
}

use Black::{Contrast, Level};
use Eotf::{Hlg, Pq, Srgb};

/// All displays; the first is the default.
pub static DISPLAYS: [Display; 23] = [
    Display::new("standard_4k", Srgb, 200.0, Contrast(1000.0), 250.0, 75.40244960784912),
    Display::new("standard_hdr_pq", Pq, 1500.0, Contrast(1e6), 10.0, 75.40244960784912),
    Display::new("standard_hdr_hlg", Hlg, 1500.0, Contrast(1e6), 10.0, 75.40244960784912),
    Display::new("standard_fhd", Srgb, 200.0, Contrast(1000.0), 250.0, 37.84250354766846),
    Display::new("standard_hmd", Srgb, 100.0, Level(0.1), 0.0, 13.1532621383667),
    Display::new("standard_phone", Srgb, 500.0, Level(0.05), 250.0, 120.56081581115723),
    Display::new("sdr_4k_30", Srgb, 100.0, Contrast(1000.0), 250.0, 60.54800510406494),
    Display::new("sdr_fhd_24", Srgb, 100.0, Contrast(1000.0), 250.0, 37.84250354766846),
    Display::new("htc_vive_pro", Srgb, 133.3, Level(0.1), 0.0, 13.1532621383667),
    Display::new("iphone_12_pro", Srgb, 825.0, Level(0.0004), 250.0, 159.61187744140625),
    Display::new("iphone_14_pro", Srgb, 1025.0, Level(0.0004), 250.0, 159.61187744140625),
    Display::new("iphone_14_pro_vert", Srgb, 1025.0, Level(0.0004), 250.0, 159.61187744140625),
    Display::new("iphone_14_pro_hdr", Hlg, 1590.0, Level(0.0004), 10.0, 159.61187744140625),
    Display::new("iphone_14_pro_hdr_vert", Hlg, 1590.0, Level(0.0004), 10.0, 159.61187744140625),
    Display::new("ipad_pro_12_9", Srgb, 600.0, Level(0.37), 250.0, 92.39151000976562),
    Display::new("macbook_pro_16", Srgb, 500.0, Level(0.37), 250.0, 98.79241943359375),
    Display::new("lg_oled_2017_sdr", Srgb, 272.0, Level(0.014), 100.0, 120.41073799133301),
    Display::new("lg_oled_2017_hdr", Srgb, 754.0, Level(0.038), 100.0, 120.41073799133301),
    Display::new("eizo_CG3146", Srgb, 300.0, Contrast(3000.0), 0.0, 75.19218826293945),
    Display::new("65inch_hdr_pq_4knit", Pq, 4000.0, Contrast(1e6), 5.0, 92.21926975250244),
    Display::new("65inch_hdr_pq_2Knit", Pq, 2000.0, Contrast(1e6), 5.0, 92.21926975250244),
    Display::new("65inch_hdr_pq_1Knit", Pq, 1000.0, Contrast(1e6), 5.0, 92.21926975250244),
    Display::new("lg_oled_2026_hdr_pq", Pq, 3000.0, Level(0.0005), 5.0, 102.63064193725586),
];

/// Writes the name and the numbers.
impl fmt::Display for Display {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, eotf, peak, lux, reflectivity, ppd, .. } = self;
        let eotf = match eotf {
            Srgb => "sRGB",
            Pq => "PQ",
            Hlg => "HLG",
        };
        let black = self.black();
        write!(
            f,
            "{name} ({eotf}, {peak} and {black} cd/m2, {lux} lux, reflectivity {reflectivity}, {ppd} pixels per degree)"
        )
    }
}
