// SPDX-License-Identifier: MPL-2.0

//! The sums of the GPU backend equal those of the CPU, and the sums of a group equal those of its pairs, for all
//! contents, sizes and depths.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use gpu::Selection;
use hipvmaf_engine::backend::cpu::Cpu;
use hipvmaf_engine::backend::hip::Hip;
use hipvmaf_engine::backend::{Backend, BackendError, Group};
use hipvmaf_engine::frame::{BitDepth, Component, Geometry, Lease, Picture, Samples};
use hipvmaf_engine::metrics::{Extractor, FrameSums, Work, feature_list};
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::random::noise;
use hipvmaf_engine::scale::{self, Scaling};
use hipvmaf_engine::testing::metrics::{
    Adm, AdmOptions, AdmWork, Cambi, CambiOptions, CambiWork, Ciede, CiedeWork, Damage, DamageWork, Eotf,
    Method, Motion, MotionWork, Psnr, PsnrHvs, PsnrHvsWork, PsnrWork, Speed, SpeedOptions, SpeedWork, Ssim,
    SsimWork, Vif, VifWork, Xpsnr, XpsnrWork,
};
use hipvmaf_engine::video::{Colorimetry, FrameRate, Matrix, Video};
use proptest::prelude::*;

/// Frames of one size, consecutive in memory, each with Y, Cb and Cr.
struct Clip {
    geometry: Geometry,
    /// Unused low bits of the samples.
    shift: u32,
    /// Cb and Cr share their rows.
    interleaved: bool,
    frames: Vec<Arc<Vec<u8>>>,
}

impl Clip {
    /// Creates content of one kind: noise, texture, a flat picture, a black and white picture, or equal pictures.
    fn new(kind: u32, distorted: bool, width: usize, height: usize, bits: u32, frames: usize) -> Self {
        let depth = BitDepth::new(bits).unwrap();
        let geometry =
            Geometry { width, height, depth, chroma: Some((width.div_ceil(2), height.div_ceil(2))) };
        let (shift, interleaved) =
            if kind % 2 == 1 && (bits == 10 || bits == 12) { (16 - bits, true) } else { (0, kind % 2 == 1) };
        let mut clip = Self { geometry, shift, interleaved, frames: vec![] };
        for t in 0..frames {
            let sample = |plane: usize, x: usize, y: usize| {
                let grain = noise(t as u32 * 7 + plane as u32 + 100 * u32::from(distorted), x, y);
                let (u, v) = (x + 3 * t, y + t);
                let texture = (u * u / 9 + v * 7 + u * v / 16) as u32 % 200;
                let value = match (kind, distorted) {
                    (0, _) => grain >> 8,
                    (1, _) | (5, false) => (texture << (bits - 8)) + (grain >> 29 << (bits - 8)) / 2,
                    (2, _) => 100 << (bits - 8),
                    // Steps of few codes over flat areas. Dark areas also have grain.
                    (6, _) => ((30 + u / 19 + v / 23) as u32) << (bits - 8),
                    (7, _) => ((16 + (u / 40 + v / 30) % 90) as u32 + (grain >> 30) / 3) << (bits - 8),
                    (3, _) => {
                        if (x / 5 + y / (3 + usize::from(distorted)) + t).is_multiple_of(2) {
                            u32::MAX
                        } else {
                            0
                        }
                    }
                    _ => texture << (bits - 8),
                };
                value & depth.max()
            };
            let mut data = vec![];
            let mut put = |value: u32| match bits {
                8 => data.push(value as u8),
                _ => data.extend(((value << shift) as u16).to_le_bytes()),
            };
            (0..height).for_each(|y| (0..width).for_each(|x| put(sample(0, x, y))));
            for plane in 1..3 {
                for (x, y) in
                    (0..height.div_ceil(2)).flat_map(|y| (0..width.div_ceil(2)).map(move |x| (x, y)))
                {
                    if interleaved {
                        if plane == 1 {
                            put(sample(1, x, y));
                            put(sample(2, x, y));
                        }
                    } else {
                        put(sample(plane, x, y));
                    }
                }
            }
            clip.frames.push(Arc::new(data));
        }
        clip
    }

    fn picture(&self, frame: usize) -> Picture<'_> {
        let Geometry { width, height, chroma, .. } = self.geometry;
        let size = self.geometry.sample_size();
        let data = &self.frames[frame][..];
        let component = |start: usize, width: usize, height: usize, step: usize| Component {
            samples: Samples::Host(&data[start * size..]),
            width,
            height,
            stride: width * step * size,
            step,
            shift: self.shift,
        };
        let (w, h) = chroma.unwrap_or_default();
        let start = width * height;
        let chroma = match self.interleaved {
            true => [component(start, w, h, 2), component(start + 1, w, h, 2)],
            false => [component(start, w, h, 1), component(start + w * h, w, h, 1)],
        };
        Picture { luma: component(0, width, height, 1), chroma: Some(chroma), lease: None }
    }
}

/// How the next group is submitted and fetched.
#[derive(Clone, Debug)]
struct Step {
    /// The pictures of the group are leased; otherwise they are borrowed.
    leased: bool,
    /// The group begins a run.
    reset: bool,
    history_only: bool,
    distorted: usize,
    /// Number of groups in flight that are fetched after it, the last one first.
    fetched: usize,
}

fn step() -> impl Strategy<Value = Step> {
    (any::<bool>(), 0..6, 0..4, 0..3usize, 0..4usize).prop_map(
        |(leased, reset, score, distorted, fetched)| Step {
            leased,
            reset: reset == 0,
            history_only: score == 0,
            distorted,
            fetched,
        },
    )
}

/// For each of two bit depths that are processed differently, a clip and two distorted ones.
static CLIPS: LazyLock<[[Clip; 3]; 2]> = LazyLock::new(|| {
    [8, 10]
        .map(|bits| [(1, false), (1, true), (0, true)].map(|(kind, d)| Clip::new(kind, d, 97, 64, bits, 7)))
});

/// Computes the sums of groups in the order of submission.
fn sums_of_steps(
    threads: usize,
    clips: &'static [Clip; 3],
    steps: &[Step],
    (one_by_one, history): (bool, bool),
) -> Vec<Vec<FrameSums>> {
    let mut work = work(&[100.0], true, true);
    work.set::<PsnrHvs>(PsnrHvsWork);
    work.set::<Xpsnr>(XpsnrWork { second_order: true });
    if history {
        work = cvvdp("cvvdp", 10, clips[0].geometry, true);
    }
    let mut cpu = Cpu::new(threads).unwrap();
    cpu.prepare(&work, clips[0].geometry, &[None, None]).unwrap();
    let mut sums = vec![vec![]; steps.len()];
    let mut waiting = vec![];
    for (i, step) in steps.iter().enumerate() {
        if step.reset {
            cpu.reset();
        }
        let t = i % clips[0].frames.len();
        let picture = |clip: &'static Clip| {
            // SAFETY: the memory is shared, and nothing changes it.
            let lease = || unsafe { Lease::new(clip.frames[t].clone()) };
            Picture { lease: (step.leased && !one_by_one).then(lease), ..clip.picture(t) }
        };
        let distorted = clips[1..][..step.distorted].iter().map(picture).enumerate().collect();
        let group = Group { reference: picture(&clips[0]), distorted, history_only: step.history_only };
        waiting.push((i, cpu.submit(group).unwrap()));
        let left = if one_by_one { 0 } else { waiting.len().saturating_sub(step.fetched) };
        let most = left.min(cpu.depth() - 1);
        while waiting.len() > most {
            let (i, ticket) = waiting.pop().unwrap();
            sums[i] = cpu.wait(ticket).unwrap();
        }
    }
    waiting.into_iter().for_each(|(i, ticket)| sums[i] = cpu.wait(ticket).unwrap());
    sums
}

/// Groups that are computed in parallel and fetched in any order have the same sums as one by one.
pub fn of_overlapping_groups_are_those_of_groups_alone() {
    let groups = proptest::collection::vec(step(), 1..16);
    let config = ProptestConfig { cases: 48, ..ProptestConfig::default() };
    proptest!(config, |(steps in groups, threads in 1..6usize, deep in any::<bool>(), history in any::<bool>())| {
        let clips = &CLIPS[usize::from(deep)];
        let overlapping = sums_of_steps(threads, clips, &steps, (false, history));
        prop_assert_eq!(overlapping, sums_of_steps(1, clips, &steps, (true, history)));
    });
}

/// A backend that is dropped or prepared again waits for groups in flight, and threads that wait for them return.
pub fn groups_in_flight_end_with_their_backend() {
    let clips = &CLIPS[0];
    let work = work(&[100.0], false, true);
    let mut cpu = Cpu::new(2).unwrap();
    for again in [true, true, false] {
        cpu.prepare(&work, clips[0].geometry, &[None]).unwrap();
        let keep = Arc::new(());
        let picture = |clip: &'static Clip| {
            // SAFETY: clips are never freed or changed.
            let lease = unsafe { Lease::new(keep.clone()) };
            Picture { lease: Some(lease), ..clip.picture(0) }
        };
        let tickets: Vec<_> = (0..cpu.depth())
            .map(|_| cpu.submit(Group::pair(picture(&clips[0]), picture(&clips[1]))).unwrap())
            .collect();
        let full = cpu.submit(Group::pair(picture(&clips[0]), picture(&clips[1])));
        assert!(matches!(full, Err(BackendError::Full)));
        let completions: Vec<_> = tickets.iter().map(|ticket| cpu.completion(*ticket).unwrap()).collect();
        let waiting = std::thread::spawn(|| completions.into_iter().for_each(|complete| complete()));
        if again {
            cpu.prepare(&work, clips[0].geometry, &[None]).unwrap();
            assert!(matches!(cpu.poll(tickets[0]), Err(BackendError::UnknownTicket)));
        } else {
            cpu = Cpu::new(1).unwrap();
        }
        waiting.join().unwrap();
        assert_eq!(Arc::strong_count(&keep), 1, "a lease is held");
    }
}

/// A distorted clip, and how it is scaled.
type Scaled = (Clip, Option<Scaling>);

/// Computes all sums of a clip, with a break after two thirds. Every third pair is not scored. Every other frame is
/// also compared with itself, every fourth lacks the first of several others, and every fifth has no distorted picture.
fn sums(backend: &mut dyn Backend, work: &Work, reference: &Clip, distorted: &[Scaled]) -> Vec<FrameSums> {
    let scalings = distorted.iter().map(|(_, scaling)| *scaling).chain([None]);
    backend.prepare(work, reference.geometry, &scalings.collect::<Vec<_>>()).unwrap();
    let mut waiting = VecDeque::new();
    let mut sums = vec![];
    let frames = reference.frames.len();
    for t in 0..frames {
        if t == frames * 2 / 3 {
            backend.reset();
        }
        if waiting.len() == backend.depth() {
            sums.extend(backend.wait(waiting.pop_front().unwrap()).unwrap());
        }
        let reference = reference.picture(t);
        let others = distorted.iter().map(|(clip, _)| clip.picture(t)).enumerate();
        let others = others.skip(usize::from(t % 4 == 3 && distorted.len() > 1));
        let itself = (t % 2 == 1).then(|| (distorted.len(), reference.clone()));
        let distorted = others.chain(itself).filter(|_| t % 5 != 2).collect();
        waiting.push_back(backend.submit(Group { reference, distorted, history_only: t % 3 == 2 }).unwrap());
    }
    sums.extend(waiting.into_iter().flat_map(|ticket| backend.wait(ticket).unwrap()));
    sums
}

fn work(gain_limits: &[f64], aim: bool, lag2: bool) -> Work {
    let pass = |gain: &f64| {
        let options = AdmOptions { enhn_gain_limit: *gain, ..Default::default() };
        options.pass(aim).unwrap()
    };
    let mut work = Work::default()
        .with::<Vif>(VifWork { gain_limits: gain_limits.to_vec(), scale0: true })
        .with::<Adm>(AdmWork { passes: gain_limits.iter().map(pass).collect() })
        .with::<Motion>(MotionWork { lag1: true, lag2 })
        .with::<Psnr>(PsnrWork { chroma: true })
        .with::<Ssim>(SsimWork { scales: vec![0], ..SsimWork::default() })
        .with::<Ciede>(CiedeWork);
    if aim || lag2 {
        work.set::<Damage>(DamageWork);
    }
    work
}

/// Returns the work of SpEED chroma alone, for planes scaled in these ways.
fn speed(options: &[SpeedOptions]) -> Work {
    let scalings = options.iter().map(|options| options.scaling().unwrap()).collect();
    Work::default().with::<Speed>(SpeedWork { scalings, sigmas: vec![0.29, 0.1] })
}

/// Compares the sums of a clip on the GPU with the CPU's, with one and with several pairs in flight.
fn check(work: &Work, kind: u32, (width, height): (usize, usize), bits: u32, frames: usize) {
    let [reference, distorted] = [false, true].map(|d| Clip::new(kind, d, width, height, bits, frames));
    check_clips(work, kind, &reference, &[(distorted, None)]);
}

/// Compares the sums of groups of several distorted clips on the GPU with the CPU's, with one, several or many groups in
/// flight.
fn check_clips(work: &Work, kind: u32, reference: &Clip, distorted: &[Scaled]) {
    let expected = sums(&mut Cpu::new(1).unwrap(), work, reference, distorted);
    let Geometry { width, height, depth, .. } = reference.geometry;
    let bits = depth.bits();
    // The software device is slow: one depth for each case, another for the next one.
    let depth = [1, 3, 8][(width + height + bits as usize / 2) % 3];
    let mut hip = Hip::open(&Selection::default(), depth).unwrap();
    let found = sums(&mut hip, work, reference, distorted);
    assert_eq!(found.len(), expected.len());
    for (t, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let of = format!("{width}x{height} {bits} bit, kind {kind}, {depth} in flight, frame {t}, {work:?}");
        assert_eq!(found.differences(expected), [""; 0], "{of}");
    }
}

pub fn of_groups_are_those_of_the_pairs() {
    let sizes = [(33, 33), (47, 34), (121, 75), (217, 81), (320, 241), (193, 214)];
    groups_are_pairs(&sizes, |threads| Cpu::new(threads).unwrap());
}

pub fn of_groups_equal_the_processors() {
    let sizes = [(33, 33), (121, 75), (320, 241)];
    groups_are_pairs(&sizes, |depth| Hip::open(&Selection::default(), depth).unwrap());
}

/// Compares the sums of groups of two and three pictures with the CPU's sums of the pairs, in turn in a backend that expects
/// this many and in one that expects more.
fn groups_are_pairs<B: Backend>(sizes: &[(usize, usize)], open: impl Fn(usize) -> B) {
    let banding = CambiOptions { full_ref: true, ..Default::default() };
    for (i, (width, height)) in sizes.iter().copied().enumerate() {
        for (j, bits) in [8, 10, 16].into_iter().enumerate() {
            let kind = (2 * i + j) as u32;
            let mut work = work(&[100.0, 1.0], i % 2 == 0, true);
            if bits <= 12 {
                work.set::<PsnrHvs>(PsnrHvsWork);
                work.set::<Xpsnr>(XpsnrWork { second_order: i.is_multiple_of(2) });
            }
            if height > 200 && width > 300 {
                work.set::<Speed>(speed(&[SpeedOptions::default()]).get::<Speed>().unwrap().clone());
            }
            if width > 216 {
                work.set::<Cambi>(CambiWork { analyses: vec![banding.analysis()] });
            }
            if width.min(height) > 176 {
                work.set::<Ssim>(SsimWork { scales: vec![0, 2], multi_scale: true, every_luminance: false });
            }
            let clip = |kind, distorted| Clip::new(kind % 8, distorted, width, height, bits, 3);
            let reference = clip(kind, false);
            let renditions = [clip(kind, true), clip(kind + 1, true), clip(kind, false)];
            let sums = |backend: &mut dyn Backend, renditions: &[Clip], expected: usize| {
                backend.prepare(&work, reference.geometry, &vec![None; expected]).unwrap();
                let frame = |t| {
                    let distorted = renditions.iter().map(|clip| clip.picture(t)).enumerate().collect();
                    let reference = reference.picture(t);
                    let ticket =
                        backend.submit(Group { reference, distorted, history_only: t == 1 }).unwrap();
                    backend.wait(ticket).unwrap()
                };
                (0..3).map(frame).collect::<Vec<_>>()
            };
            let mut cpu = Cpu::new(1).unwrap();
            let pairs = renditions.each_ref().map(|clip| sums(&mut cpu, std::slice::from_ref(clip), 1));
            for (n, expected, threads) in [[(2, 2, 1), (3, 3, 3)], [(2, 3, 3), (3, 3, 1)]][(i + j) % 2] {
                let group = sums(&mut open(threads), &renditions[..n], expected);
                for t in 0..3 {
                    let pairs: Vec<_> = pairs[..n].iter().flat_map(|sums| &sums[t]).collect();
                    let group: Vec<_> = group[t].iter().collect();
                    assert_eq!(
                        group, pairs,
                        "{width}x{height} {bits} bit, {n} of {expected}, frame {t}, {work:?}"
                    );
                }
            }
        }
    }
}

pub fn equal_the_processors() {
    let sizes = [(33, 33), (34, 47), (35, 90), (121, 33), (130, 61), (176, 144), (251, 99), (320, 37)];
    let works = [
        work(&[100.0], false, false),
        work(&[100.0, 1.0], false, true),
        work(&[1.0, 100.0, 1.5, 2.0, 7.0], true, false),
    ];
    for (i, (width, height)) in sizes.into_iter().enumerate() {
        for bits in [8, 10, 12, 16] {
            let kind = (i as u32 + bits / 2) % 6;
            let mut work = works[(i + bits as usize / 2) % 3].clone();
            if bits <= 12 {
                work.set::<PsnrHvs>(PsnrHvsWork);
                work.set::<Xpsnr>(XpsnrWork { second_order: i.is_multiple_of(2) });
            }
            check(&work, kind, (width, height), bits, 5);
        }
    }
}

/// All metrics with default options.
pub fn of_every_metric_equal_the_processors() {
    let features: Vec<_> = Extractor::all().flat_map(|extractor| extractor.features(true)).collect();
    let mut plan = Plan::new(vec![], &features, ScoreOptions::default()).unwrap();
    plan.add_heat_map();
    plan.work.set::<Damage>(DamageWork);
    for bits in [8, 10] {
        let [reference, distorted, other] =
            [(5, false), (5, true), (0, true)].map(|(kind, d)| Clip::new(kind, d, 331, 217, bits, 3));
        let video = Video { rate: FrameRate::new(25, 1), ..Video::default() };
        let work = plan.work.suited(&video, reference.geometry);
        check_clips(&work, 5, &reference, &[(distorted, None), (other, None)]);
    }
}

/// Upscaling and downscaling, odd sizes, planar and interleaved, low and high bits.
pub fn of_scaled_pictures_equal_the_processors() {
    let (width, height) = (131, 75);
    let sizes = [[(64, 37), (200, 111)], [(131, 16), (33, 80)], [(17, 152), (262, 150)]];
    let methods = [scale::Method::Bilinear, scale::Method::Bicubic, scale::Method::Lanczos];
    for (i, sizes) in sizes.into_iter().enumerate() {
        for (j, bits) in [8, 10, 12, 16].into_iter().enumerate() {
            let mut work = work(&[100.0], false, false);
            if bits <= 12 {
                work.set::<Xpsnr>(XpsnrWork { second_order: false });
            }
            let kind = [0, 1, 3, 5][(i + j) % 4];
            let cosited = (i % 2 == 0, j % 2 == 1);
            let reference = Clip::new(kind, false, width, height, bits, 4);
            let distorted = sizes.map(|(width, height)| {
                let clip = Clip::new(kind, true, width, height, bits, 4);
                let method = methods[(i + j) % 3];
                let scaling = Scaling::new(method, clip.geometry, reference.geometry, cosited);
                (clip, Some(scaling.unwrap()))
            });
            check_clips(&work, kind, &reference, &distorted);
        }
    }
}

pub fn of_speed_chroma_equal_the_processors() {
    let plain = SpeedOptions::default();
    let prescaled =
        |prescale, prescale_method| SpeedOptions { prescale, prescale_method, kernel_scale: 2.0, ..plain };
    let works = [
        speed(&[plain]),
        speed(&[plain, prescaled(0.8, Method::Bilinear)]),
        speed(&[prescaled(1.5, Method::Bicubic), prescaled(0.9, Method::Nearest)]),
        speed(&[prescaled(0.75, Method::Lanczos4)]),
    ];
    // Most are textured; flat ones have singular covariances.
    let kinds = [0, 1, 4, 5, 1, 2, 5, 0];
    let sizes = [(320, 240), (483, 321), (641, 363), (1200, 322)];
    for (i, (width, height)) in sizes.into_iter().enumerate() {
        for (j, bits) in [8, 10, 12, 16].into_iter().enumerate() {
            check(&works[(i + j) % 4], kinds[(3 * i + j) % 8], (width, height), bits, 5);
        }
    }
    // More than a block keeps in shared memory, as in pictures of 8192x4320.
    check(&speed(&[prescaled(4.0, Method::Nearest)]), 1, (1100, 900), 8, 1);
}

/// All threads that wait for a group return when its sums are there, and when its backend is dropped.
pub fn groups_end_for_all_who_wait() {
    let [reference, distorted] = [false, true].map(|d| Clip::new(1, d, 320, 240, 8, 1));
    let work = speed(&[SpeedOptions::default()]);
    let group = || Group::pair(reference.picture(0), distorted.picture(0));
    let mut cpu = Cpu::new(1).unwrap();
    cpu.prepare(&work, reference.geometry, &[None]).unwrap();
    let ticket = cpu.submit(group()).unwrap();
    let expected = cpu.wait(ticket).unwrap();
    for depth in [1, 3] {
        let mut hip = Hip::open(&Selection::default(), depth).unwrap();
        hip.prepare(&work, reference.geometry, &[None]).unwrap();
        let others = |hip: &Hip, ticket| {
            [0, 1].map(|_| std::thread::spawn(hip.completion(ticket).unwrap())).into_iter()
        };
        for _ in 0..16 {
            let ticket = hip.submit(group()).unwrap();
            let waiting = others(&hip, ticket);
            hip.completion(ticket).unwrap()();
            let found = hip.poll(ticket).unwrap().expect("the sums, as they were waited for");
            assert_eq!(found[0].differences(&expected[0]), [""; 0]);
            assert!(matches!(hip.poll(ticket), Err(BackendError::UnknownTicket)));
            waiting.for_each(|waiting| waiting.join().unwrap());
        }
        let ticket = hip.submit(group()).unwrap();
        let waiting: Vec<_> = (0..2).map(|_| std::thread::spawn(hip.completion(ticket).unwrap())).collect();
        drop(hip);
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
    }
}

pub fn banding_equals_the_processors() {
    let default = CambiOptions { full_ref: true, ..Default::default() };
    let v1 = CambiOptions { high_res_speedup: 1080, vis_lum_threshold: 0.06, ..Default::default() };
    let work = |options: &[CambiOptions]| {
        let analyses = options.iter().map(CambiOptions::analysis).collect();
        Work::default().with::<Cambi>(CambiWork { analyses })
    };
    let works = [
        work(&[default, v1]),
        work(&[
            CambiOptions { topk: 0.01, window_size: 127, ..default },
            CambiOptions { max_log_contrast: 5, tvi_threshold: 0.002, cambi_topk: 0.2, ..default },
        ]),
        work(&[
            CambiOptions { enc_width: 220, enc_height: 70, src_width: 217, src_height: 68, ..default },
            CambiOptions { max_log_contrast: 0, enc_bitdepth: 8, eotf: Eotf::Pq, ..default },
        ]),
    ];
    for (i, size) in [(217, 75), (256, 72), (239, 131)].into_iter().enumerate() {
        for (j, bits) in [8, 10, 16].into_iter().enumerate() {
            check(&works[(i + j) % 3], 6 + (i as u32 + j as u32) % 2, size, bits, 3);
        }
    }
    check(&work(&[CambiOptions { window_size: 127, ..default }]), 6, (620, 460), 8, 1);
    // Halved.
    check(&work(&[v1]), 6, (2304, 901), 8, 1);
}
/// Larger pictures: the scales of MS-SSIM and the factors of SSIM, with more than one block of each kernel.
pub fn similarity_equals_the_processors() {
    let mut cpu = Cpu::new(1).unwrap();
    let mut hip = Hip::open(&Selection::default(), 3).unwrap();
    for (i, (width, height)) in [(177, 181), (391, 389)].into_iter().enumerate() {
        for bits in [8, 10, 12] {
            let scales = vec![0, 1, 2, 3, 10];
            let ssim = SsimWork { scales, multi_scale: true, every_luminance: bits != 10 };
            let work = Work::default().with::<Ssim>(ssim).with::<PsnrHvs>(PsnrHvsWork);
            let kind = (i as u32 + bits) % 6;
            let [reference, distorted] = [false, true].map(|d| Clip::new(kind, d, width, height, bits, 1));
            let distorted = [(distorted, None)];
            let expected = sums(&mut cpu, &work, &reference, &distorted);
            assert_eq!(
                sums(&mut hip, &work, &reference, &distorted),
                expected,
                "{width}x{height} {bits} bit"
            );
        }
    }
}

/// All options of float ADM that the kernels know, from the smallest frames on.
pub fn float_adm_equals_the_processors() {
    let list =
        "float_adm;float_adm=adm_enhn_gain_limit=1.2:adm_csf_mode=2;float_adm=adm_bypass_cm=1:adm_f1s0=2";
    let extractors = feature_list::parse(list, &[]).unwrap();
    for (i, (width, height)) in [(17, 17), (34, 65), (131, 75), (300, 171)].into_iter().enumerate() {
        for (j, bits) in [8, 10, 12, 16].into_iter().enumerate() {
            let features = |extractor: &Extractor| extractor.features((i + j) % 3 != 0);
            let features: Vec<_> = extractors.iter().flat_map(features).collect();
            let work = Plan::new(vec![], &features, ScoreOptions::default()).unwrap().work;
            let kind = [0, 1, 2, 3, 4, 5][(4 * i + j) % 6];
            let [reference, distorted] = [false, true].map(|d| Clip::new(kind, d, width, height, bits, 3));
            let other = Clip::new((kind + 1) % 6, true, width, height, bits, 3);
            check_clips(&work, kind, &reference, &[(distorted, None), (other, None)]);
        }
    }
}

/// Returns the work of ColorVideoVDP with these options, for frames of this rate.
fn cvvdp(options: &str, rate: u32, geometry: Geometry, heat: bool) -> Work {
    let rate = FrameRate::new(rate, 1);
    cvvdp_of(options, Video { rate, ..Video::default() }, geometry, heat)
}

/// Returns the work of ColorVideoVDP with these options, for such a stream.
fn cvvdp_of(options: &str, video: Video, geometry: Geometry, heat: bool) -> Work {
    let features: Vec<_> =
        feature_list::parse(options, &[]).unwrap().iter().flat_map(|e| e.features(true)).collect();
    let mut plan = Plan::new(vec![], &features, ScoreOptions::default()).unwrap();
    if heat {
        plan.add_heat_map();
    }
    plan.work.suited(&video, geometry)
}

/// All curves of displays, bands that are masked without taps, odd sizes, histories with gaps, scaled and still pictures.
pub fn cvvdp_equals_the_processors() {
    let displays = [
        "standard_4k",
        "standard_hdr_pq",
        "standard_hdr_hlg:range=full",
        "iphone_14_pro:loc=topleft",
        "standard_fhd:still=true",
    ];
    for (i, (width, height)) in [(97, 64), (54, 75), (130, 33), (6, 40), (61, 50)].into_iter().enumerate() {
        for bits in [8, 10] {
            let kind = (i as u32 + bits / 2) % 8;
            let [reference, distorted, other] =
                [(kind, false, width), (kind, true, width), (0, true, 2 * width + 16)]
                    .map(|(kind, d, width)| Clip::new(kind, d, width, height, bits, 11));
            let method = scale::Method::Bilinear;
            let scaling = Scaling::new(method, other.geometry, reference.geometry, (true, false));
            let heat = bits == 10 || i == 2;
            let work =
                cvvdp(&format!("cvvdp=display={}", displays[i]), [5, 24][i % 2], reference.geometry, heat);
            let mut others = vec![(distorted, None)];
            others.extend(scaling.ok().map(|scaling| (other, Some(scaling))));
            check_clips(&work, kind, &reference, &others);
        }
    }
}

/// All curves of displays, both ranges, 8 and more bits.
pub fn cvvdp_of_rgb_equals_the_processors() {
    let displays = ["standard_4k", "standard_hdr_pq:range=limited", "standard_hdr_hlg"];
    for (i, (width, height)) in [(97, 64), (54, 75), (130, 33)].into_iter().enumerate() {
        for bits in [8, 10] {
            let mut both = [false, true].map(|d| Clip::new(0, d, width, 3 * height, bits, 4));
            for clip in &mut both {
                // The luma of a picture of three times the height, and nothing else.
                clip.geometry = Geometry { height, chroma: Some((width, height)), ..clip.geometry };
            }
            let [reference, distorted] = both;
            let colorimetry = Colorimetry { matrix: Some(Matrix::Rgb), ..Colorimetry::default() };
            let video = Video { rate: FrameRate::new(5, 1), colorimetry, ..Video::default() };
            let options = format!("cvvdp=display={}", displays[i]);
            let work = cvvdp_of(&options, video, reference.geometry, false);
            check_clips(&work, 0, &reference, &[(distorted, None)]);
        }
    }
}

/// All kinds of content, sizes from one block of few samples on, and large ones, which have another high pass.
pub fn xpsnr_equals_the_processors() {
    let work = |i: usize| Work::default().with::<Xpsnr>(XpsnrWork { second_order: i.is_multiple_of(2) });
    let sizes = [(16, 16), (44, 46), (49, 45), (131, 75), (352, 288), (645, 479)];
    for (i, size) in sizes.into_iter().enumerate() {
        for bits in [8, 10, 12, 14] {
            check(&work(i + bits as usize / 2), (i as u32 + bits / 2) % 8, size, bits, 5);
        }
    }
    check(&work(0), 0, (4099, 577), 8, 3);
}

/// Returns the work of a list of features.
fn listed(list: &str) -> Work {
    let extractors = feature_list::parse(list, &[]).unwrap();
    let features: Vec<_> = extractors.iter().flat_map(|extractor| extractor.features(true)).collect();
    Plan::new(vec![], &features, ScoreOptions::default()).unwrap().work
}

/// All kinds of content, sizes from the smallest on, rows of more columns than a block has at a time, and several variants.
pub fn float_vif_equals_the_processors() {
    let works = [
        listed("float_vif"),
        listed("float_vif=vif_sigma_nsq=0.3;float_vif=vif_enhn_gain_limit=1;float_vif=vif_sigma_nsq=0"),
        listed("float_vif=vif_skip_scale0=true"),
    ];
    let sizes = [(16, 17), (121, 33), (128, 40), (131, 16), (255, 61), (391, 70), (23, 90)];
    for (i, size) in sizes.into_iter().enumerate() {
        for (j, bits) in [8, 10, 12, 16].into_iter().enumerate() {
            check(&works[(i + j) % 3], (3 * i + j) as u32 % 8, size, bits, 2);
        }
    }
}

/// Pictures that one thread copies at once, and that several threads copy in bands.
pub fn copies_of_several_threads_equal_the_processors() {
    let work = Work::default().with::<Psnr>(PsnrWork { chroma: true });
    for (kind, (width, height), bits) in [(0, (1000, 603), 8), (1, (901, 401), 10), (2, (1700, 310), 8)] {
        let [reference, distorted] = [false, true].map(|d| Clip::new(kind, d, width, height, bits, 2));
        let distorted = [(distorted, None)];
        let expected = sums(&mut Cpu::new(1).unwrap(), &work, &reference, &distorted);
        for copiers in [1, 2, 16] {
            let mut hip = Hip::open(&Selection::default(), 2).unwrap();
            hip.set_copiers(copiers);
            assert_eq!(
                sums(&mut hip, &work, &reference, &distorted),
                expected,
                "{width}x{height}, {copiers}"
            );
        }
    }
}
