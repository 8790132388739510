// SPDX-License-Identifier: MPL-2.0

//! The same decoded frames through a released libvmaf: the one in ffmpeg, from the Python package
//! imageio-ffmpeg (`make unit` brings it and says where Python is).

use std::process::Command;

use serde_json::Value;

use crate::common::clip::clips;
use crate::common::score_clip;

const MODELS: [&str; 4] = ["vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1", "vmaf_4k_v0.6.1neg"];

#[test]
fn a_released_libvmaf_prints_the_same_numbers() {
    let python = std::env::var("HIPVMAF_PYTHON")
        .expect("HIPVMAF_PYTHON has to name a Python with imageio-ffmpeg; run the tests with `make unit`");
    let formats = [
        ("176x144_420_8bit", "yuv420p"),
        ("176x144_420_10bit", "yuv420p10le"),
        ("96x64_420_12bit", "yuv420p12le"),
    ];
    for (name, pix_fmt) in formats {
        let clip = clips().into_iter().find(|clip| clip.name == name).unwrap();
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
            .args([pix_fmt, &MODELS.join(",")])
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let peer: Vec<Value> = serde_json::from_slice(&run.stdout).unwrap();

        let report = score_clip(&[("extra-models", &MODELS[1..].join(";")), ("psnr", "true")], &clip);
        assert_eq!(report.frames.len(), peer.len());
        for (frame, peer) in report.frames.iter().zip(&peer) {
            for (name, value) in frame.models.iter().chain(&frame.features) {
                let peer = peer[name].as_f64().unwrap_or_else(|| panic!("libvmaf reports no {name}"));
                // Six printed decimals.
                assert!(
                    (value - peer).abs() <= 5.01e-7,
                    "frame {}: {name} {value}, libvmaf {peer}",
                    frame.index
                );
            }
        }
    }
}
