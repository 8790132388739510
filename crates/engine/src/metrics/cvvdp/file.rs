// SPDX-License-Identifier: MPL-2.0

//! Displays from a file: JSON as pycvvdp's `display_models.json`, an object with a display for each name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use super::display::{Black, Display, Eotf};

/// Largest file in bytes.
const LARGEST: u64 = 1 << 20;
/// Metres in an inch.
const INCH: f64 = 0.0254;
/// The ratio of white to black of a display that says nothing about it.
const CONTRAST: f64 = 500.0;
/// The reflectivity of a display that says nothing about it.
const REFLECTIVITY: f64 = 0.005;

/// The fields of a display that pycvvdp reads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "source")]
    _source: Option<String>,
    colorspace: Option<String>,
    resolution: [f64; 2],
    max_luminance: f64,
    min_luminance: Option<f64>,
    contrast: Option<f64>,
    #[serde(rename = "E_ambient")]
    ambient: Option<f64>,
    k_refl: Option<f64>,
    exposure: Option<f64>,
    pixels_per_degree: Option<f64>,
    fov_diagonal: Option<f64>,
    viewing_distance_meters: Option<f64>,
    viewing_distance_inches: Option<f64>,
    diagonal_size_meters: Option<f64>,
    diagonal_size_inches: Option<f64>,
}

/// Finds the display that an option names as `FILE`, if the file has one display, or `NAME@FILE`. Returns an error as the
/// words that follow "must be".
pub fn display(text: &str) -> Result<&'static Display, String> {
    let (name, path) = text.split_once('@').map_or((None, text), |(name, path)| (Some(name), path));
    let text = read(path).map_err(|error| format!("a file of displays that can be read ({error})"))?;
    let displays: BTreeMap<String, Value> = serde_json::from_str(&text)
        .map_err(|error| format!("a file like pycvvdp's display_models.json ({error})"))?;
    let found = match name {
        Some(name) => displays.get_key_value(name),
        None => displays.iter().next().filter(|_| displays.len() == 1),
    };
    let Some((name, fields)) = found else {
        let names = displays.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(format!("NAME@{path} with the name of a display in this file: {names}"));
    };
    let wrong = |problem| format!("a display that can be used: {name} {problem}");
    let fields = Fields::deserialize(fields).map_err(|error| wrong(format!("has a mistake ({error})")))?;
    fields.display(name).map(kept).map_err(wrong)
}

fn read(path: &str) -> io::Result<String> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(io::Error::other("it is no regular file, or has more than 1 MiB"));
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// Keeps a display for the life of the process; equal ones once.
fn kept(display: Display) -> &'static Display {
    static KEPT: Mutex<Vec<&'static Display>> = Mutex::new(vec![]);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.iter().find(|known| ***known == display) {
        return known;
    }
    let display: &'static Display = Box::leak(Box::new(display));
    kept.push(display);
    display
}

impl Fields {
    fn display(&self, name: &str) -> Result<Display, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err("has a name with other characters than letters, digits, _, - and .".into());
        }
        if self.exposure.is_some_and(|exposure| exposure != 1.0) {
            return Err("has an exposure other than 1".into());
        }
        let eotf = self.eotf()?;
        let peak = within("max_luminance", self.max_luminance, 0.1, 10_000.0)?;
        let black = match (self.min_luminance, self.contrast) {
            (Some(level), _) => Black::Level(within("min_luminance", level, 1e-9, peak)?),
            (None, contrast) => Black::Contrast(within("contrast", contrast.unwrap_or(CONTRAST), 1.0, 1e12)?),
        };
        let lux = within("E_ambient", self.ambient.unwrap_or(0.0), 0.0, 1e6)?;
        if eotf == Eotf::Hlg && peak > 1000.0 && lux == 0.0 {
            return Err("needs an E_ambient above 0, on which HLG depends above 1000 cd/m2".into());
        }
        let reflectivity = within("k_refl", self.k_refl.unwrap_or(REFLECTIVITY), 0.0, 1.0)?;
        let ppd = self.ppd()?;
        Ok(Display { name: name.to_string().into(), eotf, peak, black, lux, reflectivity, ppd })
    }

    fn eotf(&self) -> Result<Eotf, String> {
        match self.colorspace.as_deref() {
            None | Some("sRGB" | "BT.709") => Ok(Eotf::Srgb),
            Some("BT.2020-PQ") => Ok(Eotf::Pq),
            Some("BT.2020-HLG") => Ok(Eotf::Hlg),
            Some(other) => Err(format!(
                "has the colorspace {other}; it can be sRGB, BT.709, BT.2020-PQ or BT.2020-HLG, and no linear one"
            )),
        }
    }

    /// Returns the pixels per degree in the middle of the display, as a multiple of 2^-20 on which no library of
    /// functions has an influence.
    fn ppd(&self) -> Result<f64, String> {
        let [width, height] = self.resolution;
        let width = within("resolution", width, 1.0, 1e6)?;
        let height = within("resolution", height, 1.0, 1e6)?;
        // The size of a pixel for a viewer at a distance of 1.
        let pixel = if let Some(fov) = self.fov_diagonal {
            let fov = within("fov_diagonal", fov, 1.0, 179.0)?;
            2.0 * (fov * 0.5).to_radians().tan() / (width * width + height * height).sqrt()
        } else {
            let distance = self.viewing_distance_meters.or(self.viewing_distance_inches.map(|d| d * INCH));
            let diagonal = self.diagonal_size_meters.or(self.diagonal_size_inches.map(|d| d * INCH));
            match (distance, diagonal) {
                (Some(distance), Some(diagonal)) => {
                    let distance = within("viewing distance", distance, 0.001, 1e4)?;
                    let diagonal = within("diagonal size", diagonal, 0.001, 1e4)?;
                    let ratio = width / height;
                    ratio * (diagonal * diagonal / (1.0 + ratio * ratio)).sqrt() / width / distance
                }
                _ if self.pixels_per_degree.is_some() => 1.0,
                _ => {
                    return Err(
                        "needs pixels_per_degree, or fov_diagonal, or both diagonal_size_inches and \
                                viewing_distance_meters (or …_meters and …_inches)"
                            .into(),
                    );
                }
            }
        };
        let of_pixel = 1.0 / (2.0 * (0.5 * pixel).atan().to_degrees());
        let ppd = within("pixels_per_degree", self.pixels_per_degree.unwrap_or(of_pixel), 1.0, 1000.0)?;
        Ok((ppd * UNITS).round() / UNITS)
    }
}

/// Steps of pixels per degree.
const UNITS: f64 = (1u32 << 20) as f64;

fn within(field: &str, value: f64, least: f64, most: f64) -> Result<f64, String> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("has {value} as {field}, which must be from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Parses `text` as a file; `name` is of a display in it.
    fn parsed(text: &str, name: &str) -> Result<&'static Display, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        display(&if name.is_empty() { path.to_string() } else { format!("{name}@{path}") })
    }

    /// Those of pycvvdp 0.5.7, which the list has with the numbers of the specification.
    #[test]
    fn displays_of_pycvvdp_are_those_of_the_list() {
        let file = r#"{
            "standard_4k": {"name": "30-inch 4K monitor", "resolution": [3840, 2160], "viewing_distance_meters": 0.7472,
                "diagonal_size_inches": 30, "max_luminance": 200, "contrast": 1000, "E_ambient": 250, "source": "none"},
            "standard_hmd": {"name": "VR", "resolution": [1440, 1600], "fov_diagonal": 110.0,
                "viewing_distance_meters": 3, "max_luminance": 100, "min_luminance": 0.1},
            "iphone_14_pro_hdr_vert": {"colorspace": "BT.2020-HLG", "resolution": [1170, 2532],
                "viewing_distance_inches": 20, "diagonal_size_inches": 6.1, "max_luminance": 1590,
                "min_luminance": 0.0004, "E_ambient": 10},
            "lg_oled_2026_hdr_pq": {"colorspace": "BT.2020-PQ", "resolution": [3840, 2160],
                "pixels_per_degree": 102.6306419, "max_luminance": 3000, "min_luminance": 0.0005, "E_ambient": 5}
        }"#;
        for name in ["standard_4k", "standard_hmd", "iphone_14_pro_hdr_vert", "lg_oled_2026_hdr_pq"] {
            assert_eq!(parsed(file, name), Display::named(name).ok_or_else(String::new), "{name}");
        }
        assert!(std::ptr::eq(parsed(file, "standard_hmd").unwrap(), parsed(file, "standard_hmd").unwrap()));
        let error = parsed(file, "").unwrap_err();
        assert!(
            error.ends_with(": iphone_14_pro_hdr_vert, lg_oled_2026_hdr_pq, standard_4k, standard_hmd"),
            "{error}"
        );
    }

    #[test]
    fn fields_that_are_left_out_have_the_defaults_of_pycvvdp() {
        let tv =
            parsed(r#"{"tv": {"resolution": [64, 48], "pixels_per_degree": 50, "max_luminance": 300}}"#, "");
        let tv = tv.unwrap();
        let expected = Display {
            name: "tv".into(),
            eotf: Eotf::Srgb,
            peak: 300.0,
            black: Black::Contrast(500.0),
            lux: 0.0,
            reflectivity: 0.005,
            ppd: 50.0,
        };
        assert_eq!(*tv, expected);
        let more = r#"{"tv": {"resolution": [64, 48], "pixels_per_degree": 50, "max_luminance": 300, "min_luminance": 3,
            "contrast": 9, "k_refl": 0.01, "E_ambient": 100, "exposure": 1}}"#;
        let tv = parsed(more, "tv").unwrap();
        assert_eq!((tv.black(), tv.reflected()), (3.0, 100.0 / std::f64::consts::PI * 0.01));
    }

    #[test]
    fn mistakes_in_files_are_named() {
        let base = r#""resolution": [64, 48], "pixels_per_degree": 50, "max_luminance": 300"#;
        let with = |more: &str| format!(r#"{{"tv": {{{base}, {more}}}}}"#);
        for (text, name, expected) in [
            (format!(r#"{{"tv": {{{base}}}}}"#), "vt", "NAME@"),
            ("{}".into(), "", "NAME@"),
            ("[1]".into(), "tv", "display_models.json"),
            (with(r#""colorspace": "BT.709-linear""#), "", "BT.709-linear; it can be sRGB"),
            (with(r#""E_ambiant": 5"#), "", "unknown field `E_ambiant`"),
            (with(r#""E_ambient": -5"#), "", "-5 as E_ambient, which must be from 0"),
            (with(r#""min_luminance": 301"#), "", "301 as min_luminance"),
            (with(r#""contrast": 0"#), "", "0 as contrast"),
            (with(r#""k_refl": 2"#), "", "2 as k_refl"),
            (with(r#""exposure": 2"#), "", "exposure"),
            (r#"{"tv": {"max_luminance": 300, "pixels_per_degree": 50}}"#.into(), "", "`resolution`"),
            (r#"{"tv": {"resolution": [64, 48], "pixels_per_degree": 50}}"#.into(), "", "`max_luminance`"),
            (r#"{"tv": {"resolution": [64, 48], "max_luminance": 300}}"#.into(), "", "fov_diagonal"),
            (
                r#"{"tv": {"resolution": [64, 48], "max_luminance": 300, "viewing_distance_meters": 1}}"#.into(),
                "",
                "diagonal_size_inches",
            ),
            (
                r#"{"tv": {"resolution": [64, 48], "max_luminance": 2000, "pixels_per_degree": 9, "colorspace": "BT.2020-HLG"}}"#
                    .into(),
                "",
                "E_ambient",
            ),
            (r#"{"my tv": {"resolution": [64, 48], "max_luminance": 300, "pixels_per_degree": 9}}"#.into(), "", "letters"),
        ] {
            let error = parsed(&text, name).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(display("tv@/nonexistent/displays.json").unwrap_err().contains("No such file"));
        assert!(display("/").unwrap_err().contains("no regular file"));
    }
}
