// SPDX-License-Identifier: MPL-2.0

//! Finds the delay of the distorted video by its content.
//!
//! Each distorted thumbnail is compared with the reference thumbnails at all lags in range, and votes. The comparison
//! uses the picture itself, without its mean and at the best fitting contrast, and not its change: in smooth movement
//! all changes look alike, while means of large cells survive almost any coding. The vote against a lag is the
//! logarithm of its unexplained variance relative to that of the best lag. So a still scene, which any lag explains,
//! has no effect; a damaged frame, which no lag explains, has little; and a misleading frame (a cut, a repetition)
//! counts at most `MOST`. A lag is accepted if its lead in votes over every other lag is clear, and if it explains
//! the picture.
//!
//! If moving pictures are explained by no lag at all, they are another programme (`Kinship`). Coding hardly changes the
//! means of large cells, so low quality is explained; black and frozen pictures of either side say nothing.

use std::collections::VecDeque;

use crate::thumbnail::{CELLS, Thumbnail};

/// Longest range in frames.
pub const MAX_RANGE: u32 = 250;

/// Noise level: a mean square error of the cells, in 8-bit steps.
const NOISE: f32 = 0.01;

/// Largest vote of one frame.
const MOST: f32 = 4.0;

/// Votes decay over this many changing frames.
const MEMORY: f32 = 64.0;

/// The explanation of the picture is averaged over this many changing frames.
const RECENT: f32 = 8.0;

/// Largest sum of votes against a lag, so that a lag that was wrong for hours can soon be right.
const LIMIT: f32 = 20.0;

/// Number of changing frames that must have voted.
const ENOUGH: f32 = 16.0;

/// Lead in votes for a confidence of 63 %; twice this gives 86 %, and so on.
const LEAD: f32 = 2.0;

/// The second best lag must leave a tenth more unexplained in the usual frame, or its votes give no lead. Encoders
/// may show movements late, and many frames with the same small error prove nothing.
const CLEAR: f32 = 0.1;

/// Confidence at which a lag is accepted. On the clips of docs/alignment.md, no wrong lag comes close to it.
const SURE: f64 = 0.75;

/// Variance of the cells, in squared 8-bit steps, below which a picture is too plain to be recognised.
const PLAIN: f32 = 16.0;

/// Mean square change of the cells from frame to frame above which a picture moves.
const MOVING: f32 = 0.1;

/// Number of moving frames over which the unexplained share is averaged, and that are needed for a first result.
const KINSHIP_MEMORY: u16 = 32;
const KINSHIP_ENOUGH: u16 = 64;

/// Unexplained share of the variance at the best lag above which the videos are unrelated, and below which they are
/// related again.
pub const UNRELATED: f32 = 0.5;
const RELATED: f32 = 0.3;

/// Lags examined outside the range on both sides. If the true lag is out of range, the best lag is at the end of the
/// range and must not be accepted.
const MARGIN: usize = 2;

/// Largest number of frames compared per push; it is one if frames arrive in step.
const ROWS_PER_PUSH: usize = 2;

/// A delay of the distorted video.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Running time of a distorted frame minus that of the reference frame with the same content, in ns. Adding
    /// `-offset` to the distorted running time aligns the two.
    pub offset: i64,
    /// The offset in frames of the reference, rounded.
    pub frames: i32,
    /// Confidence from 0 to 1.
    pub confidence: f64,
    /// Running time in ns of the first distorted frame with this offset, if it replaces another one and is not clock
    /// drift.
    pub since: Option<u64>,
}

/// A thumbnail without its mean.
struct Shot {
    running_time: u64,
    cells: Box<[f32; CELLS]>,
    /// Sum of the squared cells.
    energy: f32,
    /// Weight of the frame's vote, from 0 (a repetition) to 1.
    weight: f32,
    /// It differs from the frame before.
    moves: bool,
}

/// Evidence that the videos show the same, at any lag.
#[derive(Clone, Copy, Debug, Default)]
struct Kinship {
    /// Mean unexplained share of the variance at the best lag, over the last moving frames.
    unexplained: f32,
    /// Moving frames so far.
    frames: u16,
    is_unrelated: bool,
}

impl Kinship {
    fn add(&mut self, unexplained: f32) {
        self.frames = (self.frames + 1).min(KINSHIP_ENOUGH);
        self.unexplained += (unexplained - self.unexplained) / f32::from(self.frames.min(KINSHIP_MEMORY));
        if self.frames == KINSHIP_ENOUGH {
            self.is_unrelated = self.unexplained > if self.is_unrelated { RELATED } else { UNRELATED };
        }
    }
}

/// Evidence about a lag. Older votes decay.
#[derive(Clone, Copy, Debug)]
struct Lag {
    /// Sum of the votes against the lag.
    against: f32,
    /// Sum of the weights of the votes.
    weight: f32,
    /// Unexplained share of the variance of recent pictures, 0 to 1.
    unexplained: f32,
    /// Excess of the votes against the accepted lag over those against this one, from the frame that maximises it
    /// (Page's cumulative sum test).
    rise: f32,
    /// Running time of that frame.
    since: u64,
}

impl Default for Lag {
    fn default() -> Self {
        Self { against: 0.0, weight: 0.0, unexplained: 1.0, rise: 0.0, since: 0 }
    }
}

/// Finds the delay from the thumbnails of both sides.
///
/// Frames should arrive roughly in step: a frame votes when the reference is ahead by the range, and references are
/// kept for one and a half times all lags. For each lag, memory is 4.6 kB, and time is one comparison of 576 cells.
pub struct Aligner {
    range: usize,
    frame: i64,
    reference: VecDeque<Shot>,
    /// Frames that wait for the reference, oldest first.
    distorted: VecDeque<Shot>,
    /// Running time and cells of the newest distorted frame.
    previous: Option<(u64, Box<[f32; CELLS]>)>,
    /// Usual change of the distorted picture per frame: a root mean square, in 8-bit steps.
    usual_change: f32,
    /// Evidence about each lag, from `-range - MARGIN` to `range + MARGIN` frames.
    lags: Vec<Lag>,
    /// Unexplained variance of the voting frame at each lag; NaN without a reference.
    row: Vec<f32>,
    /// Phase between the two clocks in ns; within half a frame.
    phase: i64,
    /// The latest result.
    claimed: Option<Estimate>,
    kinship: Kinship,
}

impl Aligner {
    /// Searches offsets of up to `range` frames, at most 250, in both directions. `frame` is the frame duration in
    /// ns.
    pub fn new(range: u32, frame: u64) -> Self {
        let range = range.min(MAX_RANGE) as usize;
        let lags = 2 * (range + MARGIN) + 1;
        Self {
            range,
            // Limited, so that the times of all lags fit.
            frame: frame.clamp(1, i64::MAX as u64 / 1024) as i64,
            reference: VecDeque::new(),
            distorted: VecDeque::new(),
            previous: None,
            usual_change: 0.0,
            lags: vec![Lag::default(); lags],
            row: vec![f32::NAN; lags],
            phase: 0,
            claimed: None,
            kinship: Kinship::default(),
        }
    }

    /// Adds the next reference frame by its running time in ns. Returns the estimate when it is first accepted, and
    /// when it changes.
    pub fn push_reference(&mut self, running_time: u64, thumbnail: &Thumbnail) -> Option<Estimate> {
        self.follow_time(self.reference.back().map(|last| last.running_time), running_time);
        if self.reference.len() == 3 * self.lags.len() / 2 {
            self.reference.pop_front();
        }
        let mut shot = Shot::new(running_time, thumbnail);
        shot.moves = self.reference.back().is_some_and(|last| change(&shot.cells, &last.cells) > MOVING);
        self.reference.push_back(shot);
        self.vote()
    }

    /// Adds the next distorted frame by its running time in ns, without any correction.
    pub fn push_distorted(&mut self, running_time: u64, thumbnail: &Thumbnail) -> Option<Estimate> {
        self.follow_time(self.previous.as_ref().map(|last| last.0), running_time);
        if self.distorted.len() == self.lags.len() {
            self.distorted.pop_front();
        }
        let mut shot = Shot::new(running_time, thumbnail);
        shot.weight = self.weight(&mut shot);
        self.previous = Some((running_time, shot.cells.clone()));
        self.distorted.push_back(shot);
        self.vote()
    }

    /// Starts again, for frames unrelated to those before. A step back in time does the same.
    pub fn restart(&mut self) {
        *self = Self::new(self.range as u32, self.frame as u64);
    }

    fn follow_time(&mut self, last: Option<u64>, next: u64) {
        if last.is_some_and(|last| next < last) {
            self.restart();
        }
    }

    /// Returns the latest result with its current confidence: 0 if another lag is more likely now.
    pub fn estimate(&self) -> Option<Estimate> {
        let Estimate { frames, .. } = self.claimed?;
        let confidence = self.best().filter(|best| best.0 == frames).map_or(0.0, |best| best.1);
        Some(self.estimated(frames, confidence))
    }

    /// Returns the unexplained share of the pictures, from 0 to 1, if they match those of the reference at no lag.
    pub fn unrelated(&self) -> Option<f64> {
        self.kinship.is_unrelated.then(|| self.kinship.unexplained.into())
    }

    /// Returns true if enough moving pictures were seen since the last start to tell another programme.
    pub fn knows_kinship(&self) -> bool {
        self.kinship.frames == KINSHIP_ENOUGH
    }

    /// Returns true if there was a result since the last start.
    pub fn has_found(&self) -> bool {
        self.claimed.is_some()
    }

    /// Returns the most likely lag, accepted or not. Its confidence stays low if the content is ambiguous, the true
    /// lag is out of range, or the videos are unrelated.
    pub fn guess(&self) -> Option<Estimate> {
        self.best().map(|(frames, confidence)| self.estimated(frames, confidence))
    }

    fn estimated(&self, frames: i32, confidence: f64) -> Estimate {
        Estimate { offset: i64::from(frames) * self.frame + self.phase, frames, confidence, since: None }
    }

    /// Notes if a frame moves, and returns its weight: its change relative to the usual change, since repetitions would vote for a
    /// wrong lag.
    fn weight(&mut self, shot: &mut Shot) -> f32 {
        let Some((_, previous)) = &self.previous else { return 0.0 };
        let change = change(&shot.cells, previous);
        shot.moves = change > MOVING;
        self.usual_change += (change.sqrt() - self.usual_change) / 16.0;
        change / (change + 0.25 * self.usual_change * self.usual_change + NOISE)
    }

    /// Lets those frames vote whose range the reference has passed.
    fn vote(&mut self) -> Option<Estimate> {
        let reach = (self.range + MARGIN + 1) as u64 * self.frame as u64;
        let mut voted = false;
        for _ in 0..ROWS_PER_PUSH {
            let newest = self.reference.back()?.running_time;
            let complete = |shot: &Shot| newest >= shot.running_time.saturating_add(reach);
            if !self.distorted.front().is_some_and(complete) {
                break;
            }
            let Some(shot) = self.distorted.pop_front() else { break };
            self.follow_phase(&shot);
            self.compare(&shot);
            voted = true;
        }
        let (frames, confidence) = self.best().filter(|best| voted && best.1 >= SURE)?;
        let estimate = self.estimated(frames, confidence);
        let known =
            self.claimed.is_some_and(|last| last.offset.abs_diff(estimate.offset) <= self.frame as u64 / 2);
        if known {
            return None;
        }
        let changed = self.claimed.is_some_and(|last| last.frames != frames);
        let since = self.lags.get(self.index(frames)).filter(|_| changed).map(|lag| lag.since);
        self.lags.iter_mut().for_each(|lag| lag.rise = 0.0);
        let estimate = Estimate { since, ..estimate };
        self.claimed = Some(estimate);
        Some(estimate)
    }

    /// Returns the index of a lag in frames.
    fn index(&self, frames: i32) -> usize {
        (frames + (self.range + MARGIN) as i32) as usize
    }

    /// Adapts the phase, so that the frames are in the middle of each lag although the clocks may differ by any part
    /// of a frame and drift.
    fn follow_phase(&mut self, shot: &Shot) {
        let deltas = self.reference.iter().map(|reference| delta(shot, reference));
        let Some(nearest) = deltas.min_by_key(|delta| delta.abs()) else { return };
        let half = self.frame / 2;
        let off = (nearest - self.phase + half).rem_euclid(self.frame) - half;
        let first = self.lags.iter().all(|lag| lag.weight == 0.0);
        self.phase += if first { off } else { off / 16 };
        let turns = (self.phase + half).div_euclid(self.frame);
        if turns != 0 {
            // After half a frame, the same offset has another number.
            self.phase -= turns * self.frame;
            let (rotate, gone): (fn(&mut [Lag]), _) = if turns > 0 {
                (|lags| lags.rotate_right(1), 0)
            } else {
                (|lags| lags.rotate_left(1), self.lags.len() - 1)
            };
            rotate(&mut self.lags);
            self.lags[gone] = Lag::default();
            if let Some(claimed) = &mut self.claimed {
                claimed.frames += turns as i32;
            }
        }
    }

    /// Compares a frame with the reference at all lags.
    fn compare(&mut self, shot: &Shot) {
        self.row.fill(f32::NAN);
        let end = (self.range + MARGIN) as i64;
        let (mut compared, mut moving, mut is_plain) = (0, 0, shot.is_plain());
        for reference in &self.reference {
            let lag = (delta(shot, reference) - self.phase + self.frame / 2).div_euclid(self.frame);
            if let Some(row) = usize::try_from(lag + end).ok().and_then(|lag| self.row.get_mut(lag)) {
                *row = row.min(shot.unexplained(reference));
                compared += 1;
                moving += usize::from(reference.moves);
                is_plain |= reference.is_plain();
            }
        }
        let least = self.row.iter().fold(f32::INFINITY, |least, row| least.min(*row));
        let variance = (shot.energy / CELLS as f32).max(NOISE);
        if shot.moves && 2 * moving > compared && !is_plain {
            self.kinship.add((least / variance).min(1.0));
        }
        let keep = 1.0 - shot.weight / MEMORY;
        let vote = |row: f32| ((row + NOISE) / (least + NOISE)).ln().min(MOST);
        let claimed = self.claimed.and_then(|claimed| self.row.get(self.index(claimed.frames)));
        let claimed = claimed.filter(|row| !row.is_nan()).map(|row| vote(*row));
        for (lag, row) in self.lags.iter_mut().zip(&self.row).filter(|(_, row)| !row.is_nan()) {
            let vote = vote(*row);
            if let Some(claimed) = claimed {
                lag.since = if lag.rise > 0.0 { lag.since } else { shot.running_time };
                lag.rise = (lag.rise + shot.weight * (claimed - vote)).max(0.0);
            }
            lag.against = lag.against * keep + shot.weight * vote;
            lag.unexplained += ((row / variance).min(1.0) - lag.unexplained) * shot.weight / RECENT;
            lag.weight = lag.weight * keep + shot.weight;
        }
        let fewest = self.lags.iter().fold(f32::INFINITY, |fewest, lag| fewest.min(lag.against));
        for lag in &mut self.lags {
            lag.against = lag.against.min(fewest + LIMIT);
        }
    }

    /// Returns the lag in range with the fewest votes against it, with its confidence.
    fn best(&self) -> Option<(i32, f64)> {
        let heard = self.lags.iter().fold(ENOUGH, |most, lag| most.max(lag.weight / 2.0));
        let lags = self.lags.iter().enumerate().filter(|(_, lag)| lag.weight >= heard);
        let [mut best, mut second] = [(0, f32::INFINITY); 2];
        for (index, lag) in lags {
            let against = lag.against / lag.weight;
            if against < best.1 {
                (best, second) = ((index, against), best);
            } else if against < second.1 {
                second = (index, against);
            }
        }
        let (index, against) = best;
        let end = self.lags.len() - MARGIN;
        if !(MARGIN..end).contains(&index) || second.1.is_infinite() {
            return None;
        }
        let lag = &self.lags[index];
        let lead = (second.1 - against - CLEAR).max(0.0) * lag.weight;
        let explained = 1.0 - lag.unexplained;
        let frames = index as i32 - (self.range + MARGIN) as i32;
        Some((frames, f64::from(explained * (1.0 - (-lead / LEAD).exp()))))
    }
}

impl Shot {
    fn new(running_time: u64, thumbnail: &Thumbnail) -> Self {
        let mut cells = Box::new(thumbnail.cells().map(|cell| f32::from(cell) / 256.0));
        let mean = cells.iter().sum::<f32>() / CELLS as f32;
        cells.iter_mut().for_each(|cell| *cell -= mean);
        let energy = product(&cells, &cells);
        Self { running_time, cells, energy, weight: 0.0, moves: false }
    }

    fn is_plain(&self) -> bool {
        self.energy < PLAIN * CELLS as f32
    }

    /// Returns the mean square of the picture minus the reference at the best fitting contrast.
    fn unexplained(&self, reference: &Self) -> f32 {
        let product = product(&self.cells, &reference.cells).max(0.0);
        // A flat picture explains nothing.
        let explained = product * product / reference.energy.max(NOISE);
        (self.energy - explained).max(0.0) / CELLS as f32
    }
}

/// Returns the delay of the distorted frame in ns.
fn delta(distorted: &Shot, reference: &Shot) -> i64 {
    let delta = i128::from(distorted.running_time) - i128::from(reference.running_time);
    // Far beyond any range.
    const FAR: i128 = i64::MAX as i128 / 4;
    delta.clamp(-FAR, FAR) as i64
}

/// Returns the mean square change of cells.
fn change(a: &[f32; CELLS], b: &[f32; CELLS]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>() / CELLS as f32
}

/// Returns the scalar product of cells, in an order that can be vectorised.
fn product(a: &[f32; CELLS], b: &[f32; CELLS]) -> f32 {
    let mut sums = [0.0; 16];
    for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use engine::random::unit_hash;
    use proptest::prelude::*;

    use super::*;

    const FRAME: u64 = 40_000_000;
    const RANGE: u32 = 12;

    fn random(seed: usize) -> f64 {
        unit_hash(0, seed as u64)
    }

    /// A scene at frame `n`: drifting shapes that never repeat.
    fn moving(n: usize) -> impl Fn(usize, usize) -> f64 {
        let t = n as f64;
        move |x, y| {
            let (x, y) = (x as f64, y as f64);
            110.0
                + 40.0 * (x * 0.4 + t * 0.11).sin() * (y * 0.3 - t * 0.07).cos()
                + 25.0 * ((x - y) * 0.2 + 3.0 * (t * 0.045).sin()).sin()
        }
    }

    /// Changes the scene every 30 frames.
    fn programme(n: usize) -> impl Fn(usize, usize) -> f64 {
        let (scene, picture) = (n / 30, moving(n + 1000 * (n / 30)));
        move |x, y| {
            let turned = if scene.is_multiple_of(2) { picture(x, y) } else { picture(31 - x, y) };
            turned + 30.0 * random(scene) - 15.0
        }
    }

    /// Adds noise of this many steps, new in every frame.
    fn noisy(picture: impl Fn(usize, usize) -> f64, noise: f64, seed: usize) -> impl Fn(usize, usize) -> f64 {
        move |x, y| picture(x, y) + noise * (2.0 * random(x + 32 * y + 576 * seed) - 1.0)
    }

    /// Returns the results for this many frames on both sides; a side may omit frames.
    fn run(
        aligner: &mut Aligner,
        frames: usize,
        reference: impl Fn(usize) -> Option<Thumbnail>,
        distorted: impl Fn(usize) -> Option<Thumbnail>,
    ) -> Vec<Estimate> {
        let mut estimates = vec![];
        for i in 0..frames {
            let time = (1000 + i as u64) * FRAME;
            estimates.extend(reference(i).and_then(|picture| aligner.push_reference(time, &picture)));
            estimates.extend(distorted(i).and_then(|picture| aligner.push_distorted(time, &picture)));
        }
        estimates
    }

    fn frames(estimates: &[Estimate]) -> Vec<i32> {
        estimates.iter().map(|estimate| estimate.frames).collect()
    }

    fn programme_at(n: usize) -> Option<Thumbnail> {
        Some(Thumbnail::synthetic(programme(n)))
    }

    #[test]
    fn every_offset_is_found() {
        for offset in (-12..=12i32).step_by(4) {
            let mut aligner = Aligner::new(RANGE, FRAME);
            let late = |n: usize| n.checked_add_signed(-offset as isize);
            let found = run(&mut aligner, 120, programme_at, |n| programme_at(late(n)?));
            assert_eq!(frames(&found), [offset]);
            assert_eq!(found[0].offset, i64::from(offset) * FRAME as i64);
            assert!(aligner.estimate().unwrap().confidence > 0.95, "{:?}", aligner.estimate());
        }
    }

    #[test]
    fn damage_does_not_mislead() {
        // Darker, flatter, noisy, one frame in seven lost and one in five repeated.
        let distorted = |n: usize| {
            let shown = if n.is_multiple_of(5) { n - 1 } else { n } - 7;
            let picture = programme(shown);
            let picture = noisy(move |x, y| 10.0 + 0.5 * picture(x, y), 0.5, n);
            (!n.is_multiple_of(7)).then(|| Thumbnail::synthetic(picture))
        };
        let mut aligner = Aligner::new(RANGE, FRAME);
        let found = run(&mut aligner, 200, programme_at, |n| if n < 10 { None } else { distorted(n) });
        assert_eq!(frames(&found), [7]);
    }

    #[test]
    fn no_claim_where_the_content_does_not_tell() {
        type Side = fn(usize) -> Option<Thumbnail>;
        let cases: [(&str, Side, Side); 5] = [
            (
                "still",
                |n| Some(Thumbnail::synthetic(noisy(moving(0), 0.05, 2 * n))),
                |n| Some(Thumbnail::synthetic(noisy(moving(0), 0.05, 2 * n + 1))),
            ),
            (
                "grey",
                |_| Some(Thumbnail::synthetic(|_, _| 16.0)),
                |_| Some(Thumbnail::synthetic(|_, _| 16.0)),
            ),
            ("unrelated", programme_at, |n| Some(Thumbnail::synthetic(programme(n + 100_000)))),
            ("out of range", programme_at, |n| programme_at(n.checked_sub(17)?)),
            (
                "periodic",
                |n| Some(Thumbnail::synthetic(moving(n % 8))),
                |n| Some(Thumbnail::synthetic(moving(n % 8))),
            ),
        ];
        for (name, reference, distorted) in cases {
            let mut aligner = Aligner::new(RANGE, FRAME);
            assert_eq!(run(&mut aligner, 400, reference, distorted), [], "{name}");
            assert!(aligner.guess().is_none_or(|guess| guess.confidence < 0.5), "{name}");
        }
    }

    #[test]
    fn another_programme_is_distinguished_from_damage() {
        let other = |n: usize| Some(Thumbnail::synthetic(programme(n + 100_000)));
        let bad = |n: usize| {
            let picture = programme(n - 3);
            Some(Thumbnail::synthetic(noisy(move |x, y| 30.0 + 0.4 * picture(x, y), 8.0, n)))
        };
        let black = |_: usize| Some(Thumbnail::synthetic(|_, _| 16.0));
        let frozen = |n: usize| Some(Thumbnail::synthetic(noisy(programme(0), 0.1, n)));
        type Side<'a> = &'a dyn Fn(usize) -> Option<Thumbnail>;
        let cases: [(&str, Side, Side, bool); 8] = [
            ("the same", &programme_at, &programme_at, false),
            ("another", &programme_at, &other, true),
            ("low quality", &programme_at, &bad, false),
            ("black", &programme_at, &black, false),
            ("frozen", &programme_at, &frozen, false),
            ("nothing", &programme_at, &|_| None, false),
            ("black reference", &black, &programme_at, false),
            ("frozen reference", &frozen, &programme_at, false),
        ];
        for (name, reference, distorted, expected) in cases {
            let mut aligner = Aligner::new(RANGE, FRAME);
            let late = |n: usize| if n < 3 { None } else { distorted(n) };
            run(&mut aligner, 200, reference, late);
            assert_eq!(aligner.unrelated().is_some(), expected, "{name} {:?}", aligner.kinship);
            // Whatever it was, the right programme is recognised.
            let time = (2000..2200).map(|n| (n as u64 * FRAME, programme_at(n).unwrap()));
            for (time, picture) in time {
                aligner.push_reference(time, &picture);
                aligner.push_distorted(time, &picture);
            }
            assert_eq!(aligner.unrelated(), None, "{name} {:?}", aligner.kinship);
        }
    }

    #[test]
    fn changes_are_followed() {
        let mut aligner = Aligner::new(RANGE, FRAME);
        let late = |n: usize| if n < 300 { n - 3 } else { n - 8 };
        let found = run(&mut aligner, 400, programme_at, |n| (n >= 3).then(|| programme_at(late(n)))?);
        assert_eq!(frames(&found), [3, 8]);
        // The first five frames after the change repeat earlier ones, which carry no information.
        let since = found[1].since.unwrap() / FRAME - 1000;
        assert_eq!(found[0].since, None);
        assert!((298..=306).contains(&since), "{since}");
    }

    #[test]
    fn drifting_clocks_are_followed() {
        // The distorted clock gains one frame in 200, and the content follows it.
        let mut aligner = Aligner::new(RANGE, FRAME);
        let mut found = vec![];
        for i in 0..1200u64 {
            let (time, picture) = ((1000 + i) * FRAME, Thumbnail::synthetic(programme(i as usize)));
            let drift = i * FRAME / 200;
            let estimates =
                [aligner.push_reference(time, &picture), aligner.push_distorted(time + drift, &picture)];
            for estimate in estimates.into_iter().flatten() {
                assert!((estimate.offset - drift as i64).unsigned_abs() < FRAME / 2, "{estimate:?} at {i}");
                found.push(estimate);
            }
        }
        assert!(
            found.iter().all(|estimate| estimate.since.is_none()),
            "a drift is no other pairing: {found:?}"
        );
        // Reported at every half frame.
        assert!((11..=13).contains(&found.len()), "{found:?}");
        assert_eq!(found.last().map(|estimate| estimate.frames), Some(6));
    }

    #[test]
    fn half_the_frame_rate_is_no_obstacle() {
        let mut aligner = Aligner::new(RANGE, FRAME);
        let distorted = |n: usize| programme_at((n & !1).checked_sub(4)?);
        assert_eq!(frames(&run(&mut aligner, 200, programme_at, distorted)), [4]);
    }

    #[test]
    fn time_that_steps_back_starts_afresh() {
        let mut aligner = Aligner::new(RANGE, FRAME);
        let late = |by: usize| move |n: usize| programme_at(n.checked_sub(by)?);
        assert_eq!(frames(&run(&mut aligner, 100, programme_at, late(2))), [2]);
        assert_eq!(frames(&run(&mut aligner, 100, programme_at, late(5))), [5]);
        aligner.restart();
        assert_eq!(aligner.estimate(), None);
    }

    proptest! {
        #[test]
        fn any_times_are_taken_in_bounded_memory(
            pushes in proptest::collection::vec((any::<bool>(), any::<u64>(), 0usize..40), 0..100),
            steps: bool,
            range in 0u32..20,
            frame: u64,
        ) {
            let mut aligner = Aligner::new(range, frame);
            let (mut now, lags) = (0u64, aligner.lags.len());
            for (reference, time, content) in pushes {
                // Random times, or steps of up to four frames.
                now = if steps { now.saturating_add(time % frame.saturating_mul(4).max(1)) } else { time };
                let picture = Thumbnail::synthetic(moving(content));
                let push = if reference { Aligner::push_reference } else { Aligner::push_distorted };
                if let Some(estimate) = push(&mut aligner, now, &picture) {
                    prop_assert!(estimate.frames.unsigned_abs() <= range);
                    prop_assert!((SURE..=1.0).contains(&estimate.confidence));
                }
                prop_assert!(aligner.reference.len() <= 3 * lags / 2 && aligner.distorted.len() <= lags);
            }
        }
    }
}
