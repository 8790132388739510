// SPDX-License-Identifier: MPL-2.0

//! Choice of the model for a video.

use engine::model::Model;

use super::probe::Video;
use crate::error::Error;

/// Largest size for models trained for 1080 lines.
const LARGE: (u32, u32) = (2560, 1440);
/// Frame rate above which models for high frame rates are used.
const FAST: f64 = 45.0;
/// Smallest size for models of version 1, in one direction and in both.
const SMALLEST: u32 = 216;
const SMALLEST_SHORT: u32 = 160;

/// A model, with the reason if it was chosen automatically.
pub struct Choice {
    /// Built-in name or path.
    pub name: String,
    /// Reason for the choice.
    pub why: Option<String>,
}

/// The name for no model.
pub const NONE: &str = "none";

/// Returns the requested models, with `auto` and `auto-v0` replaced by those for this reference.
pub fn choose(wanted: &[String], reference: Option<&Video>) -> Result<Vec<Choice>, Error> {
    let choose = |name: &String| match (name.as_str(), reference) {
        ("auto", Some(video)) => Ok(version_1(video)),
        ("auto-v0", Some(video)) => Ok(version_0(video)),
        _ => {
            Model::load(name).map_err(|error| Error::Usage(error.to_string()))?;
            Ok(Choice { name: name.clone(), why: None })
        }
    };
    wanted.iter().map(choose).collect()
}

/// Returns true if a choice depends on the reference.
pub fn is_open(wanted: &[String]) -> bool {
    wanted.iter().any(|name| name == "auto" || name == "auto-v0")
}

fn is_large(video: &Video) -> bool {
    video.width > LARGE.0 || video.height > LARGE.1
}

fn version_0(video: &Video) -> Choice {
    let (name, screen) =
        if is_large(video) { ("vmaf_4k_v0.6.1", "2160p") } else { ("vmaf_v0.6.1", "1080p or less") };
    Choice {
        name: name.into(),
        why: Some(format!("the original is {}x{}: {screen}", video.width, video.height)),
    }
}

fn version_1(video: &Video) -> Choice {
    let (width, height) = (video.width, video.height);
    if width.max(height) < SMALLEST || width.min(height) < SMALLEST_SHORT {
        let why = format!("the original is {width}x{height}, which is too small for the models of version 1");
        return Choice { why: Some(why), ..version_0(video) };
    }
    let rate = video.frames_per_second().unwrap_or(0.0);
    let (fast, speed) = if rate > FAST { ("hfr_", ", high frame rate") } else { ("", "") };
    let (screen, size) = if is_large(video) { ("1d5h_2160", "2160p") } else { ("3d0h", "1080p or less") };
    let of_rate = if rate > 0.0 { format!(" at {rate:.6}") } else { String::new() };
    let of_rate = of_rate.trim_end_matches('0').trim_end_matches('.');
    Choice {
        name: format!("vmaf_v1.0.16_{fast}{screen}"),
        why: Some(format!("the original is {width}x{height}{of_rate}: {size}{speed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str, width: u32, height: u32, rate: Option<(i32, i32)>) -> String {
        let rate = rate.map(|(numer, denom)| gst::Fraction::new(numer, denom));
        let video = Video { rate, ..Video::like("", width, height) };
        let choice = choose(&[name.into()], Some(&video)).unwrap().remove(0);
        Model::load(&choice.name).unwrap();
        choice.name
    }

    #[test]
    fn size_and_rate_decide() {
        assert_eq!(chosen("auto", 1920, 1080, Some((24000, 1001))), "vmaf_v1.0.16_3d0h");
        assert_eq!(chosen("auto", 1280, 720, Some((60, 1))), "vmaf_v1.0.16_hfr_3d0h");
        assert_eq!(chosen("auto", 3840, 1600, Some((25, 1))), "vmaf_v1.0.16_1d5h_2160");
        assert_eq!(chosen("auto", 3840, 2160, Some((60000, 1001))), "vmaf_v1.0.16_hfr_1d5h_2160");
        assert_eq!(chosen("auto", 1920, 1080, None), "vmaf_v1.0.16_3d0h");
        assert_eq!(chosen("auto", 160, 90, Some((25, 1))), "vmaf_v0.6.1");
        assert_eq!(chosen("auto-v0", 1920, 1080, Some((60, 1))), "vmaf_v0.6.1");
        assert_eq!(chosen("auto-v0", 4096, 2160, None), "vmaf_4k_v0.6.1");
        assert_eq!(chosen("vmaf_b_v0.6.3", 4096, 2160, None), "vmaf_b_v0.6.3");
        assert!(matches!(choose(&["vmaf_v9".into()], None), Err(Error::Usage(_))));
    }
}
