// SPDX-License-Identifier: MPL-2.0

//! The command `models`: lists the built-in models with their purpose.

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use engine::model::{Model, builtin};
use serde::Serialize;

use score::error::Error;
use score::output;

/// A built-in model.
#[derive(Serialize)]
pub struct Described {
    name: &'static str,
    /// Size of the screen it was trained for.
    width: u32,
    height: u32,
    /// Viewing distance in screen heights.
    distance: f64,
    /// For 50 and 60 frames per second.
    high_frame_rate: bool,
    /// Purpose.
    purpose: String,
    /// Hash of the model file.
    sha256: String,
}

impl Described {
    fn new(name: &'static str) -> Result<Self, Error> {
        let model = Model::load(name).map_err(|error| Error::Failed(error.to_string()))?;
        let is_2160 = name.contains("4k") || name.ends_with("_2160");
        let distance = match name {
            _ if name.contains("1d5h") || name.contains("4k") => 1.5,
            _ if name.contains("5d0h") => 5.0,
            _ => 3.0,
        };
        let high_frame_rate = name.contains("hfr");
        let (width, height) = if is_2160 { (3840, 2160) } else { (1920, 1080) };
        Ok(Self {
            purpose: purpose(name, distance),
            sha256: model.sha256().to_owned(),
            name,
            width,
            height,
            distance,
            high_frame_rate,
        })
    }
}

/// Describes the purpose behind a name.
fn purpose(name: &str, distance: f64) -> String {
    let screen = match distance {
        5.0 => "phone",
        1.5 => "large screen, seen from near",
        _ if name.ends_with("_2160") => "UHD television, on one scale with 1080p (up to 110)",
        _ => "television",
    };
    let rest = match name {
        _ if name.ends_with("neg") => "; sharpening earns nothing",
        _ if name.contains("_b_") => "; with a confidence interval",
        _ if name.contains("hfr") => "; 50 and 60 frames per second",
        _ => "",
    };
    let float = if name.contains("float") { "; in floating point" } else { "" };
    format!("{screen}{rest}{float}")
}

/// Prints the built-in models.
pub fn list(json: bool) -> Result<(), Error> {
    let models = builtin::names().map(Described::new).collect::<Result<Vec<_>, _>>()?;
    if json {
        return output::print_json(&models);
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(["model", "screen", "seen from", "for", "SHA-256"]);
    for model in &models {
        table.add_row([
            model.name.to_owned(),
            format!("{}x{}", model.width, model.height),
            format!("{} heights", model.distance),
            model.purpose.clone(),
            // Enough to distinguish models; --json has all of it.
            model.sha256.chars().take(12).collect(),
        ]);
    }
    output::print(table)
}
