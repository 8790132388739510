// SPDX-License-Identifier: MPL-2.0

//! The definition, pixel by pixel, and its comparison with the code of each level.

use super::*;
use crate::backend::cpu::plane::AnyPlane;
use crate::backend::cpu::tests::{Picture, content};
use crate::frame::{BitDepth, Geometry};
use crate::metrics::Metric as _;
use crate::metrics::cvvdp::{CvvdpOptions, Matrix};
use crate::metrics::options::Options;
use crate::video::{FrameRate, Video};

mod naive {
    use super::*;

    /// Channels of one size.
    pub struct Planes {
        pub width: usize,
        pub height: usize,
        pub channels: Vec<Vec<f32>>,
    }

    fn map(width: usize, height: usize, value: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| value(x, y)).collect()
    }

    pub fn convert(front: &Front, [luma, cb, cr]: &[Picture; 3]) -> Planes {
        let (width, height) = (luma.width, luma.height);
        let samples = [luma, cb, cr].map(Picture::samples);
        let chroma = |i: usize, x: usize, y: usize| {
            let plane = [luma, cb, cr][i];
            let ([x1, x2], [a, b]) = interpolation(x, width, plane.width, front.cosited[0]);
            let ([y1, y2], [c, d]) = interpolation(y, height, plane.height, front.cosited[1]);
            let at = |x: usize, y: usize| {
                i32::from(samples[i][y * plane.width + x])
                    .clamp(front.chroma.low as i32, front.chroma.high as i32)
            };
            let sum = c * (a * at(x1, y1) + b * at(x2, y1)) + d * (a * at(x1, y2) + b * at(x2, y2));
            (sum as f32).mul_add(front.chroma.scale, front.chroma.offset)
        };
        let linear = |v: f32| match front.eotf {
            Eotf::Srgb => srgb(v),
            Eotf::Pq => pq(front, v),
            Eotf::Hlg => hlg(front, v),
        };
        let colour = |i: usize, x: usize, y: usize| {
            let code = u32::from(samples[0][y * width + x]).clamp(front.luma.low, front.luma.high);
            let (l, u, v) = (
                (code as f32).mul_add(front.luma.scale, front.luma.offset),
                chroma(1, x, y),
                chroma(2, x, y),
            );
            let [vr, ug, vg, ub] = front.matrix;
            let rgb = match front.is_rgb {
                true => [v, l, u],
                false => [vr.mul_add(v, l), vg.mul_add(v, ug.mul_add(u, l)), ub.mul_add(u, l)],
            };
            let mut rgb = rgb.map(|c| linear(c.clamp(0.0, 1.0)));
            if front.eotf == Eotf::Hlg {
                rgb = system(front, rgb);
            }
            let m = front.colours[i];
            m[0].mul_add(rgb[0], m[1].mul_add(rgb[1], m[2].mul_add(rgb[2], front.offsets[i])))
        };
        let channels = (0..3).map(|i| map(width, height, |x, y| colour(i, x, y))).collect();
        Planes { width, height, channels }
    }

    pub fn filter(frames: &[&Planes], taps: &[[f32; CHANNELS]]) -> Planes {
        let (width, height) = (frames[0].width, frames[0].height);
        let channel = |c: usize| {
            map(width, height, |x, y| {
                let at = |k: usize| frames[k].channels[c % 3][y * width + x];
                (1..taps.len()).fold(taps[0][c] * at(0), |sum, k| taps[k][c].mul_add(at(k), sum))
            })
        };
        Planes { width, height, channels: (0..CHANNELS).map(channel).collect() }
    }

    fn five(at: impl Fn(isize) -> f32, i: usize) -> f32 {
        let first = 2 * i as isize - 2;
        (1..5).fold(REDUCE[0] * at(first), |sum, k| REDUCE[k as usize].mul_add(at(first + k), sum))
    }

    pub fn reduce(from: &Planes) -> Planes {
        let (w, h) = (from.width, from.height);
        let (width, height) = (w.div_ceil(2), h.div_ceil(2));
        let channel = |plane: &Vec<f32>| {
            let mirrored = |y: isize| {
                let y = if y < 0 { (-1 - y) as usize } else { y as usize };
                if y < h { y } else { 2 * h - 1 - y }
            };
            let column = |x: usize, y: usize| five(|i| plane[mirrored(i) * w + x], y);
            map(width, height, |x, y| {
                let at = |i: isize| match usize::try_from(i) {
                    Err(_) => column((-1 - i) as usize, y),
                    Ok(i) if i < w => column(i, y),
                    Ok(i) => match (w % 2, h % 2, i - w) {
                        (0, 1, 0) => 5.0f32.mul_add(column(w - 1, y), column(w - 2, y)),
                        (0, 1, _) => column(w - 1, y),
                        (1, 0, 0) => 0.0,
                        (1, 0, _) => column(w - 1, y),
                        (.., 0) => column(w - 1, y),
                        _ => column(w - 2, y),
                    },
                };
                five(at, x)
            })
        };
        Planes { width, height, channels: from.channels.iter().map(channel).collect() }
    }

    fn between(at: impl Fn(usize) -> f32, n: usize, i: usize) -> f32 {
        let m = i / 2;
        let next = at((m + 1).min(n - 1));
        if i % 2 == 1 {
            return (at(m) + next) * 0.5;
        }
        0.1f32.mul_add(next, 0.8f32.mul_add(at(m), 0.1 * at(m.saturating_sub(1))))
    }

    pub fn expand(from: &Planes, width: usize, height: usize) -> Planes {
        let channel = |plane: &Vec<f32>| {
            let column = |x: usize, y: usize| between(|y| plane[y * from.width + x], from.height, y);
            map(width, height, |x, y| between(|x| column(x, y), from.width, x))
        };
        Planes { width, height, channels: from.channels.iter().map(channel).collect() }
    }

    fn mirrored(i: isize, n: usize) -> usize {
        let i = i.unsigned_abs();
        if i < n { i } else { 2 * (n - 1) - i }
    }

    fn blur(plane: &[f32], width: usize, height: usize, masking: &Masking) -> Vec<f32> {
        if width <= 6 || height <= 6 {
            return plane.iter().map(|m| m * masking.small).collect();
        }
        let sum = |taps: &[f32; BLUR], at: &dyn Fn(isize) -> f32| {
            (1..13).fold(taps[0] * at(-6), |sum, k| taps[k].mul_add(at(k as isize - 6), sum))
        };
        let rows = map(width, height, |x, y| {
            sum(&masking.horizontal, &|k| plane[y * width + mirrored(x as isize + k, width)])
        });
        map(width, height, |x, y| {
            sum(&masking.vertical, &|k| rows[mirrored(y as isize + k, height) * width + x])
        })
    }

    /// Returns the sums of a band. `pictures`: of the reference and the distorted one, each with the expanded smaller one.
    fn band(
        masking: &Masking,
        number: usize,
        level: &Level,
        pictures: [(&Planes, &Planes); 2],
    ) -> ([u64; CHANNELS], Vec<u64>) {
        let (width, height) = (level.width, level.height);
        let n = width * height;
        let node = |i: usize| {
            let luminance = larger(pictures[0].1.channels[0][i], 0.01);
            let t = log2(luminance).mul_add(masking.nodes[0], masking.nodes[1]).clamp(0.0, 31.0);
            (t.floor() as usize, t - t.floor())
        };
        let contrast = |s: usize, c: usize| -> Vec<f32> {
            let (picture, expanded) = pictures[s];
            let at = |i: usize| {
                let inverse = 1.0 / larger(expanded.channels[0][i], 0.01);
                let (node, fraction) = node(i);
                let s = exp2(fraction.mul_add(level.steps[c][node], level.sensitivity[c][node]));
                smaller((picture.channels[c][i] - expanded.channels[c][i]) * inverse, 1000.0) * s
            };
            (0..n).map(at).collect()
        };
        let contrasts = [0, 1].map(|s| [0, 1, 2, 3].map(|c| contrast(s, c)));
        let power = |c: usize| {
            let [r, t] = &contrasts;
            let least: Vec<_> = r[c].iter().zip(&t[c]).map(|(r, t)| smaller(t.abs(), r.abs())).collect();
            let blurred = blur(&least, width, height, masking);
            blurred.iter().map(|m| pow(m + masking.epsilon, masking.powers[c])).collect::<Vec<_>>()
        };
        let powers = [0, 1, 2, 3].map(power);
        let differences = [0, 1, 2, 3].map(|o| {
            let difference = |i: usize| {
                let masked = (0..4)
                    .rev()
                    .fold(masking.offsets[o], |sum, c| masking.cross[c][o].mul_add(powers[c][i], sum));
                let difference = (contrasts[1][o][i] - contrasts[0][o][i]).abs();
                let u = larger(pow(difference + masking.epsilon, masking.power) - masking.zero, 0.0);
                u / u.mul_add(masking.top, masked)
            };
            (0..n).map(difference).collect::<Vec<_>>()
        });
        let sums = differences.each_ref().map(|differences| {
            let terms = differences.iter().map(|d| {
                let v = f64::from(d * (d + masking.two_epsilons));
                (v * (1u64 << fraction(width, height)) as f64).round_ties_even() as u64
            });
            terms.sum()
        });
        (sums, heat(number, (width, height), &differences, [1.0, 1.0, 1.0, 0.8081134557723999]))
    }

    /// Sums the strengths of a level in parts of 16 x 16 samples of the picture, or of one sample.
    fn heat(
        level: usize,
        (width, height): (usize, usize),
        differences: &[Vec<f32>; CHANNELS],
        weights: [f64; CHANNELS],
    ) -> Vec<u64> {
        let side = if level < 4 { 16 >> level } else { 1 };
        let norm = |differences: [f32; CHANNELS]| {
            let fourth = |sum: f32, c: usize| {
                let x = differences[c].mul_add(weights[c] as f32, 1e-5);
                (x * x).mul_add(x * x, sum)
            };
            (0..CHANNELS).fold(1e-5f32, fourth).sqrt().sqrt()
        };
        let columns = width.div_ceil(side);
        let mut sums = vec![0; columns * height.div_ceil(side)];
        for i in 0..width * height {
            let strength = norm(differences.each_ref().map(|d| d[i])) - norm([0.0; CHANNELS]);
            sums[i / width / side * columns + i % width / side] += (strength.min(32767.0) * 65536.0) as u64;
        }
        sums
    }

    /// Returns the differences in the base band from its luminances, as [`base`] has them.
    fn base_differences(masking: &Masking, level: &Level, pictures: &[Planes; 2]) -> [Vec<f32>; CHANNELS] {
        let luminance = pictures.each_ref().map(|picture| {
            let sum = strided(picture.channels[0].iter().map(|sample| larger(*sample, 0.01)));
            (sum / (level.width * level.height) as f64) as f32
        });
        let t = log2(luminance[0]).mul_add(masking.nodes[0], masking.nodes[1]).clamp(0.0, 31.0);
        let (node, fraction) = (t.floor() as usize, t - t.floor());
        [0, 1, 2, 3].map(|c| {
            let s = exp2(fraction.mul_add(level.steps[c][node], level.sensitivity[c][node]));
            let contrast = |picture: usize, i: usize| {
                smaller(pictures[picture].channels[c][i] * (1.0 / luminance[picture]), 1000.0)
            };
            (0..level.width * level.height).map(|i| (contrast(1, i) - contrast(0, i)).abs() * s).collect()
        })
    }

    pub fn sums(
        tables: &Tables,
        geometry: Geometry,
        with_heat: bool,
        mut pictures: [Planes; 2],
    ) -> CvvdpSums {
        let (base_level, levels) = tables.levels.split_last().unwrap();
        let (mut bands, mut cells) = (vec![], vec![]);
        for (number, level) in levels.iter().enumerate() {
            let smaller = pictures.each_ref().map(reduce);
            let [a, b] = smaller.each_ref().map(|p| expand(p, level.width, level.height));
            let (sums, heat) = band(&tables.masking, number, level, [(&pictures[0], &a), (&pictures[1], &b)]);
            bands.push(sums);
            cells.extend(heat);
            pictures = smaller;
        }
        let differences = base_differences(&tables.masking, base_level, &pictures);
        let weights = [
            0.0036334486212581396,
            1.6627724170684814,
            4.11874532699585,
            0.8081134557723999 * 25.25969886779785,
        ];
        cells.extend(heat(levels.len(), (base_level.width, base_level.height), &differences, weights));
        let interleaved = |p: &Planes| -> Vec<f32> {
            (0..p.height)
                .flat_map(|y| (0..CHANNELS).map(move |c| (y, c)))
                .flat_map(|(y, c)| p.channels[c][y * p.width..][..p.width].to_vec())
                .collect()
        };
        let [r, t] = pictures.each_ref().map(interleaved);
        let (base, _) = base(&tables.masking, base_level, &r, &t, None);
        CvvdpSums::new(bands, base, if with_heat { cells } else { vec![] }, geometry)
    }
}

/// A frame of content with chroma of this size.
fn frame(
    seed: usize,
    (width, height): (usize, usize),
    (w, h): (usize, usize),
    bits: u32,
) -> [[Picture; 3]; 2] {
    let [y, cb, cr] = [(seed, width, height), (seed + 1, w, h), (seed + 2, w, h)]
        .map(|(seed, width, height)| content(seed, width, height, bits));
    let ([y, y2], [cb, cb2], [cr, cr2]) = (y, cb, cr);
    [[y, cb, cr], [y2, cb2, cr2]]
}

fn work(options: &[(&str, &str)], fps: (u32, u32), geometry: Geometry) -> CvvdpWork {
    let mut all = CvvdpOptions::default();
    for (name, value) in options {
        assert_eq!(all.set(name, value), Ok(true));
    }
    let mut work = CvvdpWork::new(all);
    let video = Video { rate: FrameRate::new(fps.0, fps.1), ..Video::default() };
    metrics::cvvdp::Cvvdp::suit(&mut work, &video, geometry);
    work
}

/// Passes a group to a prepared metric, and returns its sums.
fn take(
    metric: &mut Cvvdp,
    level: simd::Level,
    bands: usize,
    run: usize,
    reference: &[Picture; 3],
    distorted: &[(usize, &[Picture; 3])],
) -> Vec<CvvdpSums> {
    let all: Vec<_> = [reference].into_iter().chain(distorted.iter().map(|(_, picture)| *picture)).collect();
    let depth = reference[0].depth;
    let renditions: Vec<_> = distorted.iter().map(|(rendition, _)| *rendition).collect();
    let mut of = |planes: Vec<[AnyPlane<'_>; 3]>| {
        let group = |i: usize| {
            let others = planes[1..].iter().map(|picture| picture[i]);
            PlaneGroup::new(planes[0][i], others).unwrap()
        };
        let pictures = Pictures {
            level,
            depth,
            bands,
            luma: group(0),
            chroma: Some([group(1), group(2)]),
            earlier: vec![],
            renditions: &renditions,
            run,
        };
        metric.remember(&pictures);
        metric.compute(&pictures).unwrap()
    };
    if depth.bits() == 8 {
        let samples: Vec<_> = all.iter().map(|p| p.each_ref().map(Picture::bytes)).collect();
        of(samples.iter().map(|p| p.each_ref().map(|s| AnyPlane::U8(s.plane()))).collect())
    } else {
        let samples: Vec<_> = all.iter().map(|p| p.each_ref().map(Picture::words)).collect();
        of(samples.iter().map(|p| p.each_ref().map(|s| AnyPlane::U16(s.plane()))).collect())
    }
}

/// Compares the sums of frames with the definition, at each level and with one and several bands.
fn check(
    options: &[(&str, &str)],
    fps: (u32, u32),
    size: (usize, usize),
    chroma: (usize, usize),
    bits: u32,
    seed: usize,
) {
    let depth = BitDepth::new(bits).unwrap();
    let geometry = Geometry { width: size.0, height: size.1, depth, chroma: Some(chroma) };
    let mut work = work(options, fps, geometry);
    work.heat = seed % 3 != 1;
    if chroma == size && seed % 3 == 2 {
        work.matrix = Matrix::Rgb;
    }
    let tables = Tables::new(&work, geometry).unwrap();
    let frames: Vec<_> = [seed, seed + 3, seed + 6].map(|seed| frame(seed, size, chroma, bits)).into();
    let converted: Vec<_> = frames
        .iter()
        .map(|frame| frame.each_ref().map(|picture| naive::convert(&tables.front, picture)))
        .collect();
    let expected = |t: usize| {
        let n = tables.taps.len();
        let filtered = [0, 1].map(|s| {
            let frames: Vec<_> = (0..n).map(|k| &converted[(t + k + 1).saturating_sub(n)][s]).collect();
            naive::filter(&frames, &tables.taps)
        });
        naive::sums(&tables, geometry, work.heat, filtered)
    };
    let expected: Vec<_> = (0..frames.len()).map(expected).collect();
    for level in simd::Level::available() {
        for bands in [1, 3] {
            let setup = Setup { geometry, renditions: 1, bands };
            let mut metric = Cvvdp::prepare(&work, &setup).unwrap();
            for (t, ([reference, distorted], expected)) in frames.iter().zip(&expected).enumerate() {
                let sums = take(&mut metric, level, bands, t, reference, &[(0, distorted)]);
                assert_eq!(
                    sums,
                    std::slice::from_ref(expected),
                    "{level:?} {bands} bands, frame {t}, {size:?} {bits} bits {options:?}"
                );
            }
        }
    }
}

#[test]
fn sums_are_those_of_the_definition_at_every_size_format_and_depth() {
    let displays = ["standard_4k", "standard_hdr_pq", "standard_hdr_hlg", "iphone_14_pro", "standard_hmd"];
    let sizes =
        [(4usize, 4usize), (33, 47), (54, 75), (75, 54), (24, 6), (8, 12), (67, 36), (40, 40), (5, 90)];
    for (i, (width, height)) in sizes.into_iter().enumerate() {
        let chroma = match i % 4 {
            0 => (width.div_ceil(2), height.div_ceil(2)),
            1 => (width, height),
            2 => (width.div_ceil(2), height),
            _ => (width / 2, height / 2),
        };
        let options = [
            ("display", displays[i % 5]),
            ("loc", ["center", "left", "topleft"][i % 3]),
            ("matrix", ["auto", "bt601", "bt2020"][i % 3]),
            ("range", ["limited", "full"][i % 2]),
        ];
        check(
            &options,
            [(24, 1), (5, 1), (30_000, 1001)][i % 3],
            (width, height),
            chroma,
            [8, 10, 12][i % 3],
            i,
        );
    }
}

/// Renditions that come late, or miss a frame, have the sums of a clip that begins there, of both streams; a reset, the
/// number of renditions and frames before the history make no difference.
#[test]
fn histories_begin_with_the_first_frame_since_a_gap() {
    let (size, chroma, bits) = ((40, 24), (20, 12), 8);
    let geometry =
        Geometry { width: size.0, height: size.1, depth: BitDepth::new(bits).unwrap(), chroma: Some(chroma) };
    let work = work(&[], (5, 1), geometry);
    let frames: Vec<_> = (0..7).map(|seed| frame(seed, size, chroma, bits)).collect();
    let level = simd::Level::detect();
    let setup = |renditions| Setup { geometry, renditions, bands: 1 };
    let alone = |from: usize, to: usize| {
        let mut metric = Cvvdp::prepare(&work, &setup(1)).unwrap();
        let of =
            |t: usize| take(&mut metric, level, 1, t - from, &frames[t][0], &[(0, &frames[t][1])]).remove(0);
        (from..=to).map(of).last().unwrap()
    };
    let mut metric = Cvvdp::prepare(&work, &setup(2)).unwrap();
    let present = |t: usize| [t != 3, t >= 2];
    for t in 0..7 {
        // The second rendition comes first in one of the groups.
        let mut given: Vec<_> = (0..2).filter(|r| present(t)[*r]).map(|r| (r, &frames[t][1])).collect();
        if t == 6 {
            given.reverse();
        }
        let sums = take(&mut metric, level, 1, t, &frames[t][0], &given);
        for ((rendition, _), sums) in given.iter().zip(sums) {
            let from = match (rendition, t) {
                (0, 0..3) => 0,
                (0, _) => 4,
                _ => 2,
            };
            assert_eq!(sums, alone(from, t), "frame {t}, rendition {rendition}");
        }
    }
    // Three taps: two earlier frames are enough.
    assert_eq!(alone(1, 6), alone(4, 6));
    assert_ne!(alone(5, 6), alone(4, 6));
    let again = take(&mut metric, level, 1, 0, &frames[6][0], &[(0, &frames[6][1])]);
    assert_eq!(again, [alone(6, 6)]);
}
