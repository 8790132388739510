// SPDX-License-Identifier: MPL-2.0

//! Measures each metric's pixel work on one thread in milliseconds per 1080p frame, at every instruction set of this
//! machine; of four renditions, as pairs and as a group; of a thumbnail; and of all features of two models, on one thread
//! and on all.
//!
//! `cargo bench -p hipvmaf-tools -- vif ladder` measures only benchmarks with one of these words in their name.

use std::collections::VecDeque;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use engine::backend::cpu::Cpu;
use engine::backend::{Backend, BackendError, Group};
use engine::frame::{BitDepth, Component, Geometry, Lease, Picture, Samples};
use engine::model::{Model, ScoreOptions};
use engine::plan::Plan;
use engine::random::noise as grain;
use engine::scale::{Method, Scaling};
use engine::testing::cpu::{
    Adm, Analysis, AnyPlane, Frame, Level, Plane, PlaneGroup, Sample, Scaled, Scaler, Speed, Ssim, Vif,
    difference, errors, sad, sse,
};
use engine::testing::metrics::{
    AdmOptions, AdmWork, CambiOptions, SpeedOptions, SpeedWork, SsimWork, TABLES, VifWork,
};
use watch::thumbnail::Thumbnail;

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;

/// The number of distorted pictures of a reference.
const LADDER: usize = 4;
/// The shift and the noise of a picture: of the reference, the next reference, and the distorted pictures.
const FRAMES: [(usize, u32); 2 + LADDER] = [(0, 2), (2, 2), (0, 6), (0, 4), (1, 2), (0, 12)];

/// Returns a picture of textured, smooth and flat areas with edges between them, and `noise` grey levels of grain.
fn picture<T: Sample + TryFrom<u32>>(bits: u32, shift: usize, noise: u32) -> Vec<T> {
    (0..WIDTH * HEIGHT)
        .map(|i| {
            let (x, y) = (i % WIDTH + shift, i / WIDTH);
            let texture =
                (x as f32 * 0.31).sin() * (y as f32 * 0.17).cos() * ((x / 160 + y / 120) % 3) as f32;
            let edge = if (x / 97 + y / 61) % 5 == 0 { 60.0 } else { 0.0 };
            let value =
                90.0 + 20.0 * texture + edge + (grain(1, 0, i) >> 8) as f32 * noise as f32 / 16_777_216.0;
            T::try_from((value.clamp(0.0, 255.0) * (1 << (bits - 8)) as f32) as u32).unwrap_or_default()
        })
        .collect()
}

/// Returns true if the command line names the benchmark, or none.
fn wanted(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// Returns the milliseconds of one run.
fn once<R>(run: &mut impl FnMut() -> R) -> f64 {
    let start = Instant::now();
    black_box(run());
    start.elapsed().as_secs_f64() * 1e3
}

/// Returns the best of many runs, in milliseconds.
fn report<R>(name: &str, mut run: impl FnMut() -> R) {
    if wanted(name) {
        let ms = (0..10).map(|_| once(&mut run)).fold(f64::INFINITY, f64::min);
        println!("{name:30} {ms:7.3} ms");
    }
}

/// Reports the best of many runs, in milliseconds, for distorted pictures one by one and in one group. The two take turns,
/// because the speed of the machine varies.
fn report_ladder<P, R>(name: &str, pictures: &[P], mut compute: impl FnMut(&[P]) -> R) {
    let name = format!("ladder {name}");
    if wanted(&name) {
        let mut ms = [f64::INFINITY; 2];
        for _ in 0..10 {
            let pairs = once(&mut || {
                pictures.iter().map(|picture| compute(std::slice::from_ref(picture))).collect::<Vec<_>>()
            });
            let group = once(&mut || compute(pictures));
            ms = [ms[0].min(pairs), ms[1].min(group)];
        }
        let [pairs, group] = ms;
        println!("{name:30} {pairs:7.3} ms as pairs, {group:7.3} ms as a group, {:.2}", group / pairs);
    }
}

fn measure<T: Sample + TryFrom<u32>>(
    bits: u32,
    group: for<'a> fn(Plane<'a, T>, Vec<Plane<'a, T>>) -> PlaneGroup<'a>,
) {
    let Some(depth) = BitDepth::new(bits) else { return };
    let frames = FRAMES.map(|(shift, noise)| picture::<T>(bits, shift, noise));
    let whole = frames.each_ref().map(|data| Plane::new(data, WIDTH, HEIGHT, WIDTH));
    let half = frames.each_ref().map(|data| Plane::new(data, WIDTH / 2, HEIGHT / 2, WIDTH));
    let planes: Vec<_> = whole.into_iter().flatten().collect();
    let chroma: Vec<_> = half.into_iter().flatten().collect();
    let ([reference, next, distorted @ ..], [chroma_reference, _, chroma @ ..]) = (&planes[..], &chroma[..])
    else {
        return;
    };
    let (reference, next) = (*reference, *next);
    let geometry = Geometry { width: WIDTH, height: HEIGHT, depth, chroma: None };
    let subsampled = Geometry { chroma: Some((WIDTH / 2, HEIGHT / 2)), ..geometry };
    let vif = VifWork { gain_limits: vec![100.0], scale0: true };
    let adm = |aim| AdmWork { passes: AdmOptions::default().pass(aim).into_iter().collect() };
    // The settings of the version 1 models, and the defaults.
    let fast = CambiOptions { high_res_speedup: 1080, vis_lum_threshold: 0.06, ..Default::default() };
    let options = SpeedOptions::default();
    let speed =
        SpeedWork { scalings: options.scaling().into_iter().collect(), sigmas: vec![options.sigma()] };
    let chroma_group = |distorted: &[_]| [(); 2].map(|_| group(*chroma_reference, distorted.to_vec()));
    let (automatic, multi_scale) = (
        SsimWork { scales: vec![0], ..SsimWork::default() },
        SsimWork { multi_scale: true, ..SsimWork::default() },
    );
    let colours = |plane: &_| [*plane, next, reference];

    for level in Level::available() {
        let name = |metric| format!("{metric} {bits} bit {}", level.name());
        let one = &distorted[..1];
        if let Some(mut vif) = Vif::new(&vif, WIDTH, HEIGHT, depth, 1) {
            report(&name("vif"), || vif.compute(level, 16, reference, one));
        }
        for (metric, aim) in [("adm", false), ("adm + aim", true)] {
            if let Some(mut adm) = Adm::new(&adm(aim), WIDTH, HEIGHT, depth, 1, 1) {
                report(&name(metric), || adm.compute(level, 1, reference, one));
            }
        }
        for (metric, options) in [("cambi", fast), ("cambi slow", CambiOptions::default())] {
            if let Ok(mut cambi) = Analysis::new(&options.analysis(), geometry) {
                report(&name(metric), || cambi.compute(level, 1, reference, one));
            }
        }
        report(&name("motion"), || sad(level, reference, next, depth));
        report(&name("psnr"), || sse(level, reference, one[0]));
        if let Ok(speed) = Speed::new(&speed, subsampled) {
            report(&name("speed"), || speed.compute(level, chroma_group(&chroma[..1])));
        }
        for (metric, work) in [("ssim", &automatic), ("ms-ssim", &multi_scale)] {
            let mut ssim = Ssim::new(work, geometry, 1);
            report(&name(metric), || ssim.compute(level, reference, one));
        }
        report(&name("hvs, luma"), || errors(level, reference, one, &TABLES[0]));
        let pictures = [colours(&reference), colours(&one[0])];
        report(&name("ciede 4:4:4"), || difference(level, pictures[0], &pictures[1..], depth, 0.0));
        for (metric, method) in [
            ("scale bilinear", Method::Bilinear),
            ("scale bicubic", Method::Bicubic),
            ("scale lanczos", Method::Lanczos),
        ] {
            let source = Geometry { width: 1280, height: 720, ..geometry };
            let small = Plane::new(&frames[1], source.width, source.height, WIDTH);
            if let (Ok(scaling), Some(small)) = (Scaling::new(method, source, geometry, (true, false)), small)
            {
                let (scaler, mut scaled) = (Scaler::new(&scaling), Scaled::default());
                let luma = match group(small, vec![]) {
                    PlaneGroup::U8(luma, _) => AnyPlane::U8(luma),
                    PlaneGroup::U16(luma, _) => AnyPlane::U16(luma),
                };
                report(&name(metric), || {
                    scaler.scale(level, 1, &Frame { luma, chroma: None }, &mut scaled).is_some()
                });
            }
        }
    }

    let level = Level::detect();
    let name = |metric| format!("{metric} {bits} bit {}", level.name());
    if let Some(mut vif) = Vif::new(&vif, WIDTH, HEIGHT, depth, LADDER) {
        report_ladder(&name("vif"), distorted, |distorted| vif.compute(level, 16, reference, distorted));
    }
    if let Some(mut adm) = Adm::new(&adm(false), WIDTH, HEIGHT, depth, LADDER, 1) {
        report_ladder(&name("adm"), distorted, |distorted| adm.compute(level, 1, reference, distorted));
    }
    if let Ok(speed) = Speed::new(&speed, subsampled) {
        report_ladder(&name("speed"), chroma, |distorted| speed.compute(level, chroma_group(distorted)));
    }
    for (metric, work) in [("ssim", &automatic), ("ms-ssim", &multi_scale)] {
        let mut ssim = Ssim::new(work, geometry, LADDER);
        report_ladder(&name(metric), distorted, |distorted| ssim.compute(level, reference, distorted));
    }
    report_ladder(&name("hvs, luma"), distorted, |distorted| errors(level, reference, distorted, &TABLES[0]));
    let pictures: Vec<_> = distorted.iter().map(colours).collect();
    report_ladder(&name("ciede 4:4:4"), &pictures, |distorted| {
        difference(level, colours(&reference), distorted, depth, 0.0)
    });
}

fn measure_thumbnail(bits: u32, data: &[u8]) {
    let Some(depth) = BitDepth::new(bits) else { return };
    let stride = data.len() / HEIGHT;
    let samples = Samples::Host(data);
    let luma = Component { samples, width: WIDTH, height: HEIGHT, stride, step: 1, shift: 0 };
    report(&format!("thumbnail {bits} bit"), || Thumbnail::new(&luma, depth));
}

/// Returns a group of the next reference picture. It must have moved, because motion skips equal rows.
fn group<'a>(references: &[Picture<'a>; 2], distorted: &[Picture<'a>], turns: &mut usize) -> Group<'a> {
    *turns += 1;
    let distorted = distorted.iter().cloned().enumerate().collect();
    Group { reference: references[*turns % 2].clone(), distorted, history_only: false }
}

/// Measures all features of a model for 8-bit 4:2:0 frames: in groups that overlap, one at a time, and of several
/// renditions.
fn measure_frame(model: &str, threads: usize) -> Result<(), Box<dyn Error>> {
    let plan = Plan::new(vec![Model::load(model)?], &[], ScoreOptions::default())?;
    let mut cpu = Cpu::new(threads)?;
    let depth = BitDepth::new(8).ok_or("8 is a bit depth")?;
    let chroma = (WIDTH / 2, HEIGHT / 2);
    let geometry = Geometry { width: WIDTH, height: HEIGHT, depth, chroma: Some(chroma) };
    cpu.prepare(&plan.work, geometry, &[None; LADDER])?;
    let frames = FRAMES.map(|(shift, noise)| Arc::new(picture::<u8>(8, shift, noise)));
    let [reference, next, distorted @ ..] = frames.each_ref().map(|data| {
        let samples = Samples::Host(&data[..]);
        let luma = Component { samples, width: WIDTH, height: HEIGHT, stride: WIDTH, step: 1, shift: 0 };
        let chroma = Component { width: chroma.0, height: chroma.1, ..luma };
        // SAFETY: the samples are shared and not written.
        let lease = unsafe { Lease::new(data.clone()) };
        Picture { luma, chroma: Some([chroma; 2]), lease: Some(lease) }
    });
    let references = [reference, next];
    let mut turns = 0;
    let name = format!("{model} {threads} threads");
    // The time of a group that overlaps with others.
    const GROUPS: usize = 16;
    let overlapping = format!("{name}, overlapping");
    if wanted(&overlapping) {
        let mut run = || -> Result<(), BackendError> {
            let mut tickets = VecDeque::new();
            for _ in 0..GROUPS {
                if tickets.len() == cpu.depth() {
                    tickets.pop_front().map(|ticket| cpu.wait(ticket)).transpose()?;
                }
                tickets.push_back(cpu.submit(group(&references, &distorted[..1], &mut turns))?);
            }
            tickets.into_iter().try_for_each(|ticket| cpu.wait(ticket).map(|_| ()))
        };
        let ms = (0..4).map(|_| once(&mut run)).fold(f64::INFINITY, f64::min) / GROUPS as f64;
        println!("{overlapping:30} {ms:7.3} ms");
    }
    let mut score = |distorted: &[_]| -> Result<_, BackendError> {
        let ticket = cpu.submit(group(&references, distorted, &mut turns))?;
        cpu.wait(ticket)
    };
    report(&name, || score(&distorted[..1]));
    report_ladder(&name, &distorted, score);
    Ok(())
}

#[allow(
    clippy::redundant_closure,
    reason = "the variants alone would be functions of planes of one lifetime"
)]
fn main() -> Result<(), Box<dyn Error>> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(|| {
        measure::<u8>(8, |a, b| PlaneGroup::U8(a, b));
        measure::<u16>(10, |a, b| PlaneGroup::U16(a, b));
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
