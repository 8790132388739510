// SPDX-License-Identifier: MPL-2.0

//! Milliseconds per 1080p frame and thread of each metric's pixel work, at every level of this machine.

use gsthipvmaf::cpu::{Level, adm::Adm, vif::Vif};
use gsthipvmaf::frame::{BitDepth, Plane, Sample};
use gsthipvmaf::metrics::adm::{AdmOptions, AdmWork};
use gsthipvmaf::metrics::vif::VifWork;
use std::hint::black_box;
use std::time::Instant;

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;

/// Textured, smooth and flat areas with edges between them, and `noise` grey levels of grain.
fn picture<T: Sample + TryFrom<u32>>(bits: u32, shift: usize, noise: u32) -> Vec<T> {
    let mut seed = 1u32;
    (0..WIDTH * HEIGHT)
        .map(|i| {
            let (x, y) = (i % WIDTH + shift, i / WIDTH);
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let texture =
                (x as f32 * 0.31).sin() * (y as f32 * 0.17).cos() * ((x / 160 + y / 120) % 3) as f32;
            let edge = if (x / 97 + y / 61) % 5 == 0 { 60.0 } else { 0.0 };
            let value = 90.0 + 20.0 * texture + edge + (seed >> 8) as f32 * noise as f32 / 16_777_216.0;
            T::try_from((value.clamp(0.0, 255.0) * (1 << (bits - 8)) as f32) as u32).unwrap_or_default()
        })
        .collect()
}

/// Best of many runs, in milliseconds.
fn best(mut run: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..25).map(once).fold(f64::INFINITY, f64::min)
}

fn measure<T: Sample + TryFrom<u32>>(bits: u32) {
    let (Some(depth), frames) =
        (BitDepth::new(bits), [picture::<T>(bits, 0, 2), picture(bits, 0, 6), picture(bits, 2, 2)])
    else {
        return;
    };
    let planes = frames.each_ref().map(|data| Plane::new(data, WIDTH, HEIGHT, WIDTH));
    let [Some(reference), Some(distorted), Some(_)] = planes else { return };
    for level in Level::available() {
        let name = level.name();
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        if let Some(mut vif) = Vif::new(&work, WIDTH, HEIGHT, depth, 16) {
            let ms = best(|| drop(black_box(vif.compute(level, reference, distorted))));
            println!("vif    {bits:2} bit {name:6} {ms:7.3} ms");
        }
        for (label, aim) in [("adm   ", false), ("+ aim ", true)] {
            let work = AdmWork { passes: AdmOptions::default().pass(aim).into_iter().collect() };
            if let Some(mut adm) = Adm::new(&work, WIDTH, HEIGHT, depth, 1) {
                let ms = best(|| drop(black_box(adm.compute(level, reference, distorted))));
                println!("{label} {bits:2} bit {name:6} {ms:7.3} ms");
            }
        }
    }
}

fn main() -> Result<(), rayon::ThreadPoolBuildError> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(|| {
        measure::<u8>(8);
        measure::<u16>(10);
    });
    Ok(())
}
