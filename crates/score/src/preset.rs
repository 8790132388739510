// SPDX-License-Identifier: MPL-2.0

//! Models and metrics of the presets, for a video, and advice for HDR.

use super::args::{Args, Preset};
use super::model::NONE;
use super::probe::Video;
use crate::error::Error;

/// Least width and height for MS-SSIM.
const MS_SSIM: u32 = 176;

/// Models and features to compute.
pub struct Requested {
    /// Names of models.
    pub models: Vec<String>,
    /// Features with their options.
    pub features: Vec<String>,
}

impl Requested {
    /// Returns what the arguments and the preset ask for.
    pub fn of(args: &Args, video: &Video) -> Result<Self, Error> {
        let (mut models, mut features) = (args.models.clone(), args.features.clone());
        if let Some(preset) = args.preset {
            let of_preset = if video.hdr { vec![] } else { self::models(preset) };
            models.extend(of_preset.into_iter().filter(|model| !args.models.contains(model)));
            let is_asked = |feature: &String| args.features.iter().any(|asked| name(asked) == name(feature));
            features.extend(self::features(preset, video).into_iter().filter(|feature| !is_asked(feature)));
        }
        if models.iter().any(|model| model == NONE) {
            models.retain(|model| model != NONE);
            if !models.is_empty() && args.preset.is_none() {
                return Err(Error::Usage("--model none leaves no other model".into()));
            }
            models.clear();
        }
        if models.is_empty() && features.is_empty() {
            return Err(Error::Usage("without a model there has to be a metric: --feature".into()));
        }
        Ok(Self { models, features })
    }

    /// Returns advice for HDR video that VMAF is asked for.
    pub fn advice(&self, video: &Video) -> Option<String> {
        let transfer = video.hdr_transfer()?;
        let has_metric = self.features.iter().any(|feature| name(feature) == "cvvdp");
        (!has_metric).then(|| {
            format!(
                "the original is HDR ({transfer}), which VMAF has no model for: ColorVideoVDP scores it with \
                 --feature {} (and --model none leaves VMAF out)",
                cvvdp(video, "")
            )
        })
    }
}

/// Returns the name of a feature without its options.
fn name(feature: &str) -> &str {
    feature.split('=').next().unwrap_or(feature)
}

fn models(preset: Preset) -> Vec<String> {
    let names: &[&str] = match preset {
        Preset::Hd => &["vmaf_v0.6.1"],
        Preset::Uhd => &["vmaf_4k_v0.6.1"],
        Preset::Phone => &["vmaf_v1.0.16_5d0h"],
        Preset::All => &["auto-v0", "auto"],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn features(preset: Preset, video: &Video) -> Vec<String> {
    let (names, display): (&[&str], _) = match preset {
        Preset::Hd => (&["ssimulacra2", "xpsnr"], "standard_fhd"),
        Preset::Uhd => (&["ssimulacra2", "xpsnr"], "standard_4k"),
        Preset::Phone => (&["xpsnr"], "standard_phone"),
        Preset::All => (
            &[
                "psnr=enable_apsnr=true",
                "float_ssim",
                "float_ms_ssim",
                "psnr_hvs",
                "ciede",
                "cambi",
                "ssimulacra2",
                "xpsnr",
            ],
            "standard_4k",
        ),
    };
    let fits = |feature: &&&str| **feature != "float_ms_ssim" || video.width.min(video.height) >= MS_SSIM;
    let mut features: Vec<_> = names.iter().filter(fits).map(|name| (*name).to_owned()).collect();
    // It needs a constant rate.
    features.extend(video.rate.map(|_| cvvdp(video, display)));
    features
}

/// Returns ColorVideoVDP with the display that suits the video: this one for SDR.
fn cvvdp(video: &Video, display: &str) -> String {
    let display = match video.hdr_transfer() {
        Some("PQ") => "standard_hdr_pq",
        Some(_) => "standard_hdr_hlg",
        None => display,
    };
    format!("cvvdp=display={display}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &[&str], video: &Video) -> Result<Requested, Error> {
        Requested::of(&args(words), video)
    }

    fn args(words: &[&str]) -> Args {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        #[command(no_binary_name = true)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        Line::try_parse_from([&["a", "b"][..], words].concat()).unwrap().args
    }

    fn video(colorimetry: Option<&str>) -> Video {
        let rate = Some(gst::Fraction::new(25, 1));
        Video {
            hdr: colorimetry.is_some(),
            colorimetry: colorimetry.map(Into::into),
            rate,
            ..Video::like("", 320, 180)
        }
    }

    #[test]
    fn presets_add_to_what_is_asked_for() {
        let sdr = video(None);
        let hd = wanted(&["--preset", "hd"], &sdr).unwrap();
        assert_eq!(
            (hd.models, hd.features),
            (
                vec!["vmaf_v0.6.1".into()],
                ["ssimulacra2", "xpsnr", "cvvdp=display=standard_fhd"].map(Into::into).to_vec()
            )
        );
        let own =
            wanted(&["--preset", "4k", "--model", "auto", "--feature", "cvvdp=display=sdr_4k_30"], &sdr)
                .unwrap();
        assert_eq!(
            (own.models, own.features),
            (
                vec!["auto".into(), "vmaf_4k_v0.6.1".into()],
                ["cvvdp=display=sdr_4k_30", "ssimulacra2", "xpsnr"].map(Into::into).to_vec()
            )
        );
        assert_eq!(wanted(&[], &sdr).unwrap().models, ["vmaf_v0.6.1"]);
        let all = wanted(&["--preset", "all"], &Video { rate: None, ..Video::like("", 320, 160) }).unwrap();
        assert!(
            !all.features.iter().any(|of| of.starts_with("cvvdp") || of == "float_ms_ssim"),
            "{:?}",
            all.features
        );
    }

    #[test]
    fn hdr_is_scored_on_its_display() {
        let [pq, hlg] = ["bt2100-pq", "bt2100-hlg"].map(|colorimetry| video(Some(colorimetry)));
        let hd = wanted(&["--preset", "hd"], &pq).unwrap();
        assert_eq!(
            (hd.models.len(), hd.features.last().map(String::as_str)),
            (0, Some("cvvdp=display=standard_hdr_pq"))
        );
        let plain = wanted(&[], &hlg).unwrap();
        assert!(plain.advice(&hlg).unwrap().contains("--feature cvvdp=display=standard_hdr_hlg "));
        assert_eq!(wanted(&["--feature", "cvvdp"], &hlg).unwrap().advice(&hlg), None);
        assert_eq!(plain.advice(&video(None)), None);
    }

    #[test]
    fn without_a_model_there_is_a_metric() {
        let sdr = video(None);
        let none = wanted(&["--model", "none", "--feature", "xpsnr"], &sdr).unwrap();
        assert_eq!((none.models.len(), none.features.len()), (0, 1));
        assert!(wanted(&["--model", "none"], &sdr).is_err());
        assert!(wanted(&["--model", "none", "--model", "vmaf_v0.6.1"], &sdr).is_err());
    }
}
