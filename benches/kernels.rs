// SPDX-License-Identifier: MPL-2.0

//! Milliseconds per 1080p frame of each metric's pixel work on one thread, at every level of this machine,
//! of a thumbnail, and of everything for two models on one thread and on all.

use gsthipvmaf::backend::{Backend, BackendError, Group};
use gsthipvmaf::cpu::{
    Cpu, Level, adm::Adm, cambi::Cambi, ciede, motion, psnr, psnr_hvs, speed::Speed, ssim::Ssim, vif::Vif,
};
use gsthipvmaf::engine::plan::Plan;
use gsthipvmaf::engine::thumbnail::Thumbnail;
use gsthipvmaf::frame::{BitDepth, Component, Geometry, Picture, Plane, PlanePair, Sample, Samples};
use gsthipvmaf::metrics::adm::{AdmOptions, AdmWork};
use gsthipvmaf::metrics::cambi::CambiOptions;
use gsthipvmaf::metrics::psnr_hvs::TABLES;
use gsthipvmaf::metrics::speed::{SpeedOptions, SpeedWork};
use gsthipvmaf::metrics::ssim::SsimWork;
use gsthipvmaf::metrics::vif::VifWork;
use gsthipvmaf::model::{Model, ScoreOptions};
use std::error::Error;
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
fn best<R>(mut run: impl FnMut() -> R) -> f64 {
    let once = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..10).map(once).fold(f64::INFINITY, f64::min)
}

fn measure<T: Sample + TryFrom<u32>>(
    bits: u32,
    pair: for<'a> fn(Plane<'a, T>, Plane<'a, T>) -> PlanePair<'a>,
) {
    let (Some(depth), frames) =
        (BitDepth::new(bits), [picture::<T>(bits, 0, 2), picture(bits, 0, 6), picture(bits, 2, 2)])
    else {
        return;
    };
    let planes = frames.each_ref().map(|data| Plane::new(data, WIDTH, HEIGHT, WIDTH));
    let [Some(reference), Some(distorted), Some(next)] = planes else { return };
    for level in Level::available() {
        let name = level.name();
        let work = VifWork { gain_limits: vec![100.0], scale0: true };
        if let Some(mut vif) = Vif::new(&work, WIDTH, HEIGHT, depth, 16) {
            let ms = best(|| vif.compute(level, reference, distorted));
            println!("vif    {bits:2} bit {name:6} {ms:7.3} ms");
        }
        for (label, aim) in [("adm   ", false), ("+ aim ", true)] {
            let work = AdmWork { passes: AdmOptions::default().pass(aim).into_iter().collect() };
            if let Some(mut adm) = Adm::new(&work, WIDTH, HEIGHT, depth, 1) {
                let ms = best(|| adm.compute(level, reference, distorted));
                println!("{label} {bits:2} bit {name:6} {ms:7.3} ms");
            }
        }
        // As the models of version 1 want it, and by default.
        let geometry = Geometry { width: WIDTH, height: HEIGHT, depth, chroma: None };
        let fast = CambiOptions { high_res_speedup: 1080, vis_lum_threshold: 0.06, ..Default::default() };
        for (label, options) in [("cambi ", fast), ("  slow", CambiOptions::default())] {
            if let Ok(mut cambi) = Cambi::new(&options.work(), geometry, 1) {
                let ms = best(|| cambi.compute(level, reference, distorted));
                println!("{label} {bits:2} bit {name:6} {ms:7.3} ms");
            }
        }
        let ms = best(|| motion::sad(level, reference, next, depth));
        println!("motion {bits:2} bit {name:6} {ms:7.3} ms");
        let ms = best(|| psnr::sse(level, reference, distorted));
        println!("psnr   {bits:2} bit {name:6} {ms:7.3} ms");
        let chroma = frames.each_ref().map(|data| Plane::new(data, WIDTH / 2, HEIGHT / 2, WIDTH));
        let geometry =
            Geometry { width: WIDTH, height: HEIGHT, depth, chroma: Some((WIDTH / 2, HEIGHT / 2)) };
        let options = SpeedOptions::default();
        let work =
            SpeedWork { scalings: options.scaling().into_iter().collect(), sigmas: vec![options.sigma()] };
        if let (Ok(speed), [Some(a), Some(b), _]) = (Speed::new(&work, geometry), chroma) {
            let ms = best(|| speed.compute(level, [pair(a, b), pair(b, a)]));
            println!("speed  {bits:2} bit {name:6} {ms:7.3} ms");
        }
        let geometry = Geometry { width: WIDTH, height: HEIGHT, depth, chroma: None };
        let automatic = SsimWork { scales: vec![0], multi_scale: false };
        let multi_scale = SsimWork { scales: vec![], multi_scale: true };
        for (label, work) in [("ssim   ", automatic), ("ms-ssim", multi_scale)] {
            let mut ssim = Ssim::new(&work, geometry);
            let ms = best(|| ssim.compute(level, [reference, distorted]));
            println!("{label}{bits:2} bit {name:6} {ms:7.3} ms");
        }
        let ms = best(|| psnr_hvs::errors(level, [reference, distorted], &TABLES[0]));
        println!("hvs    {bits:2} bit {name:6} {ms:7.3} ms (luma)");
        let pictures = [[reference, next, distorted], [distorted, reference, next]];
        let ms = best(|| ciede::difference(level, pictures, depth, 0.0));
        println!("ciede  {bits:2} bit {name:6} {ms:7.3} ms (4:4:4)");
    }
}

fn measure_thumbnail(bits: u32, data: &[u8]) {
    let Some(depth) = BitDepth::new(bits) else { return };
    let stride = data.len() / HEIGHT;
    let samples = Samples::Host(data);
    let luma = Component { samples, width: WIDTH, height: HEIGHT, stride, step: 1, shift: 0 };
    let ms = best(|| Thumbnail::new(&luma, depth));
    println!("thumbnail {bits:2} bit   {ms:7.3} ms");
}

/// All of a model, 8 bit, 4:2:0.
fn measure_frame(model: &str, threads: usize) -> Result<(), Box<dyn Error>> {
    let plan = Plan::new(vec![Model::load(model)?], &[], ScoreOptions::default())?;
    let mut cpu = Cpu::new(threads)?;
    let depth = BitDepth::new(8).ok_or("8 is a bit depth")?;
    let chroma = (WIDTH / 2, HEIGHT / 2);
    cpu.prepare(&plan.work, Geometry { width: WIDTH, height: HEIGHT, depth, chroma: Some(chroma) }, 1)?;
    let frames = [picture::<u8>(8, 0, 2), picture(8, 0, 6), picture(8, 2, 2)];
    let [reference, distorted, next] = frames.each_ref().map(|data| {
        let samples = Samples::Host(data);
        let luma = Component { samples, width: WIDTH, height: HEIGHT, stride: WIDTH, step: 1, shift: 0 };
        let chroma = Component { width: chroma.0, height: chroma.1, ..luma };
        Picture { luma, chroma: Some([chroma; 2]), lease: None }
    });
    let mut turn = false;
    let mut score = || -> Result<_, BackendError> {
        // The reference has to move: motion skips rows that did not.
        turn = !turn;
        let reference = if turn { &reference } else { &next }.clone();
        let ticket = cpu.submit(Group::pair(reference, distorted.clone()))?;
        cpu.wait(ticket)
    };
    score()?;
    let ms = best(score);
    println!("{model} 8 bit, {threads} threads {ms:7.3} ms");
    Ok(())
}

#[allow(
    clippy::redundant_closure,
    reason = "the variants alone would be functions of planes of one lifetime"
)]
fn main() -> Result<(), Box<dyn Error>> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(|| {
        measure::<u8>(8, |a, b| PlanePair::U8(a, b));
        measure::<u16>(10, |a, b| PlanePair::U16(a, b));
        measure_thumbnail(8, &picture(8, 0, 2));
        let words = picture::<u16>(10, 0, 2).into_iter();
        measure_thumbnail(10, &words.flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    });
    let all = std::thread::available_parallelism()?.get();
    for model in ["vmaf_v0.6.1", "vmaf_v1.0.16_3d0h"] {
        [1, all].into_iter().try_for_each(|threads| measure_frame(model, threads))?;
    }
    Ok(())
}
