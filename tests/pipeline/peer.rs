// SPDX-License-Identifier: MPL-2.0

//! The same decoded frames through a released libvmaf: that of ffmpeg in the Python package
//! imageio-ffmpeg (`make unit` installs it and sets the path of Python).

use std::process::Command;

use serde_json::Value;

use crate::common::clip::{Clip, clips};
use crate::common::score_clip;
use crate::process::{Function, functions};

/// Tests in this process.
pub const TESTS: &[Function] =
    functions![a_released_libvmaf_prints_the_same_numbers, a_released_libvmaf_prints_the_same_v1_scores];

/// Scores a clip with both. The models are separated by semicolons.
#[track_caller]
fn compare(clip: &Clip, models: &str, features: &str) {
    let python = std::env::var("HIPVMAF_PYTHON")
        .expect("HIPVMAF_PYTHON has to name a Python with imageio-ffmpeg; run the tests with `make unit`");
    let deep = if clip.depth > 8 { format!("{}le", clip.depth) } else { String::new() };
    let chroma = match clip.halved {
        (false, _) => "444",
        (true, false) => "422",
        (true, true) => "420",
    };
    let folder = tempfile::tempdir().unwrap();
    let [reference, distorted] = [false, true].map(|distorted| {
        let path = folder.path().join(if distorted { "dist.yuv" } else { "ref.yuv" });
        let frames = (0..clip.frames).flat_map(|t| clip.bytes(t, distorted));
        std::fs::write(&path, frames.collect::<Vec<u8>>()).unwrap();
        path
    });
    let run = Command::new(&python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/peer.py"))
        .args([&reference, &distorted])
        .args([clip.width.to_string(), clip.height.to_string()])
        .args([format!("yuv{chroma}p{deep}"), models.replace(';', ","), features.to_string()])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}: {}", clip.name, String::from_utf8_lossy(&run.stderr));
    let peer: Vec<Value> = serde_json::from_slice(&run.stdout).unwrap();

    let report =
        score_clip(&[("model-filename", ""), ("extra-models", models), ("features", features)], clip);
    assert_eq!(report.frames.len(), peer.len());
    for (frame, peer) in report.frames.iter().zip(&peer) {
        for (name, value) in frame.models.iter().chain(&frame.features) {
            let peer = peer[name].as_f64().unwrap_or_else(|| panic!("libvmaf reports no {name}"));
            // ffmpeg prints six decimals.
            assert!(
                (value - peer).abs() <= 5.01e-7,
                "{}, frame {}: {name} {value}, libvmaf {peer}",
                clip.name,
                frame.index
            );
        }
    }
}

fn a_released_libvmaf_prints_the_same_numbers() {
    let models = "vmaf_v0.6.1;vmaf_v0.6.1neg;vmaf_4k_v0.6.1;vmaf_4k_v0.6.1neg";
    for name in ["176x144_420_8bit", "176x144_420_10bit", "96x64_420_12bit"] {
        let clip = clips().into_iter().find(|clip| clip.name == name).unwrap();
        compare(
            &clip,
            models,
            "psnr;adm=adm_csf_mode=3:adm_norm_view_dist=5;motion=motion_moving_average=true",
        );
    }
}

/// Banded clips, each with a size, depth and chroma format, at widths at which libvmaf's vector code is right.
fn a_released_libvmaf_prints_the_same_v1_scores() {
    let models: Vec<String> = ["3d0h", "5d0h", "1d5h_2160", "3d0h_2160"]
        .iter()
        .flat_map(|view| ["", "hfr_"].map(|rate| format!("vmaf_v1.0.16_{rate}{view}")))
        .collect();
    for (width, height, depth, chroma) in [
        (640, 360, 8, "420"),
        (704, 480, 10, "420"),
        (480, 360, 10, "422"),
        (352, 288, 8, "444"),
        (720, 576, 8, "422"),
        (854, 480, 10, "444"),
    ] {
        let clip = Clip::banded(width, height, depth, chroma, 4);
        compare(&clip, &models.join(";"), "cambi;speed_chroma;motion=motion_five_frame_window=true");
    }
}
