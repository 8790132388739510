// SPDX-License-Identifier: MPL-2.0

//! Finds which frames of two videos show the same, in their order.
//!
//! A dynamic program over a band around what the timestamps or the numbers of the frames say: a pair costs what its pictures
//! differ beyond the noise of the encoding, and so does a frame without a partner, least where it repeats the one before.
//! Costs within the noise are equal, and equal costs are decided by what the timestamps or the numbers say, so that scenes
//! that stand still move nothing.

use super::scan::Shot;

/// What frames are taken to belong together before their pictures are compared in detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// The distorted frame with the number of the reference frame and so many more.
    Number(i64),
    /// The distorted frame that comes later by so many nanoseconds.
    Time(i64),
}

/// Distances are kept in this part of an 8-bit step.
const STEP: f32 = 128.0;
/// Costs are counted in this part of a unit, so that those within the noise are equal.
const UNIT: f32 = 64.0;
/// Cost of a reference frame without a partner, and of a distorted one that shows nothing of the reference, that shows what
/// another one does, or that repeats the frame before it. The first two together cost more than the worst pair: a spoilt
/// frame is scored as one. A lost frame in whose place another is shown again costs less.
const LOST: u32 = 64;
const SPOILT: u32 = 144;
const COPY: u32 = 40;
const REPEAT: u32 = 16;
/// A distorted frame that costs no more with its best partner than this shows something of the reference.
const SHOWN: u32 = 32;
/// What a pair costs at most, in units.
const WORST: f32 = 3.0;
/// By how much of the noise a pair may differ more without cost.
const FREE: f32 = 0.1;
/// Noise that is always expected, in 8-bit steps.
const LEAST_NOISE: f32 = 0.3;
/// Frames around one whose noise counts.
const AROUND: usize = 24;
/// How far pairs may be from the guess, besides the difference of the numbers of frames.
const REACH: usize = 48;
/// Repeated frames differ by no more than this, in 8-bit steps.
const SAME: f32 = 0.25;
/// Departing from the guess has to leave no more than this part of the differences.
const DECISIVE: f32 = 0.6;
/// The same where the numbers of frames differ, so that some have to depart from it.
const LIKELY: f32 = 0.85;

/// Two videos.
#[derive(Clone, Copy)]
pub struct Sides<'a> {
    pub reference: &'a [Shot],
    pub distorted: &'a [Shot],
}

impl Sides<'_> {
    pub fn distance(&self, i: usize, j: usize) -> f32 {
        self.reference[i].picture.distance(&self.distorted[j].picture)
    }

    /// The distorted frame that a guess gives a reference frame, which may lie outside.
    fn guessed(&self, guess: Guess, i: usize) -> i64 {
        match guess {
            Guess::Number(shift) => i as i64 + shift,
            Guess::Time(offset) => {
                let at = self.reference[i].time as i64 + offset;
                let next = self.distorted.partition_point(|shot| (shot.time as i64) < at);
                let distance = |j: usize| self.distorted.get(j).map(|shot| (shot.time as i64).abs_diff(at));
                let before = next.checked_sub(1);
                match (before, before.and_then(distance), distance(next)) {
                    (Some(before), Some(early), Some(late)) if early < late => before as i64,
                    (Some(_), Some(early), None) if early > self.typical(false) => next as i64,
                    (Some(before), Some(_), None) => before as i64,
                    (None, _, Some(late)) if late > self.typical(false) => -1,
                    _ => next as i64,
                }
            }
        }
    }

    /// The same where the frame exists and is not nearer to another reference frame.
    pub fn guessed_pair(&self, guess: Guess, i: usize) -> Option<usize> {
        let j = usize::try_from(self.guessed(guess, i)).ok().filter(|j| *j < self.distorted.len())?;
        let Guess::Time(offset) = guess else { return Some(j) };
        let away = |i: usize| {
            Some((self.reference.get(i)?.time as i64 + offset).abs_diff(self.distorted[j].time as i64))
        };
        let own = away(i)?;
        let nearer = |other: Option<usize>| other.and_then(away).is_some_and(|other| other < own);
        let shared_before = i.checked_sub(1).and_then(away) == Some(own);
        (!nearer(i.checked_sub(1)) && !nearer(Some(i + 1)) && !shared_before).then_some(j)
    }

    /// How far apart frames are, in the middle.
    pub fn typical(&self, of_reference: bool) -> u64 {
        let shots = if of_reference { self.reference } else { self.distorted };
        let mut distances: Vec<_> = shots.windows(2).map(|pair| pair[1].time - pair[0].time).collect();
        let middle = distances.len() / 2;
        if distances.is_empty() { 40_000_000 } else { *distances.select_nth_unstable(middle).1 }
    }
}

/// Chooses the guess that leaves the least differences in frames from all over the videos, of equal ones the first.
pub fn guess(sides: &Sides, wanted: &[Guess]) -> Guess {
    const SAMPLES: usize = 64;
    let count = sides.reference.len();
    let samples: Vec<_> = (0..SAMPLES.min(count)).map(|k| k * count / SAMPLES.min(count)).collect();
    let strange = stranger(sides, &samples);
    let cost = |guess: Guess| {
        let of_sample = |i: &usize| match usize::try_from(sides.guessed(guess, *i)) {
            Ok(j) if j < sides.distorted.len() => sides.distance(*i, j).min(strange * 2.0),
            // Where there is no frame it is no better than a stranger would be.
            _ => strange * 0.75,
        };
        samples.iter().map(of_sample).sum::<f32>()
    };
    // Where numbers of frames differ, being better often is enough.
    let often = |guess: Guess, best: Guess| {
        let both = samples.iter().filter_map(|i| {
            let partner =
                |guess| usize::try_from(sides.guessed(guess, *i)).ok().filter(|j| *j < sides.distorted.len());
            let (own, other) = (partner(guess)?, partner(best)?);
            (own != other).then(|| sides.distance(*i, own) < sides.distance(*i, other))
        });
        let (won, all) = both.fold((0, 0), |(won, all), wins| (won + usize::from(wins), all + 1));
        sides.reference.len() != sides.distorted.len() && all >= 8 && won * 10 >= all * 7
    };
    let mut best = (Guess::Number(0), f32::INFINITY);
    for guess in wanted {
        let cost = cost(*guess);
        // Not for the noise of an encoding.
        if cost < best.1 * 0.9 - 0.01 || cost < best.1 && often(*guess, best.0) {
            best = (*guess, cost);
        }
    }
    best.0
}

/// How much frames differ that have nothing to do with each other, in the middle.
pub fn stranger(sides: &Sides, samples: &[usize]) -> f32 {
    let count = sides.distorted.len();
    let mut distances: Vec<_> =
        samples.iter().map(|i| sides.distance(*i, (i * 7919 + count / 2 + 13) % count)).collect();
    let middle = distances.len() / 2;
    if distances.is_empty() { 0.0 } else { *distances.select_nth_unstable_by(middle, f32::total_cmp).1 }
}

/// The distorted frames that may belong to each reference frame, with their distances.
struct Band {
    /// First distorted frame of each row.
    first: Vec<usize>,
    width: usize,
    distances: Vec<u16>,
}

impl Band {
    fn new(sides: &Sides, guess: Guess) -> Self {
        let (rows, columns) = (sides.reference.len(), sides.distorted.len());
        let reach = REACH + rows.abs_diff(columns).min(1000);
        let width = (2 * reach + 1).min(columns);
        let place = |i: usize| {
            let centre = sides.guessed(guess, i) - reach as i64;
            usize::try_from(centre).unwrap_or(0).min(columns - width)
        };
        let first: Vec<_> = (0..rows).map(place).collect();
        let mut distances = Vec::with_capacity(rows * width);
        for (i, first) in first.iter().enumerate() {
            distances.extend((*first..first + width).map(|j| (sides.distance(i, j) * STEP) as u16));
        }
        Self { first, width, distances }
    }

    fn row(&self, i: usize) -> &[u16] {
        &self.distances[i * self.width..(i + 1) * self.width]
    }

    /// The least distance of each distorted frame, and the reference frame that has it.
    fn least(&self, columns: usize) -> Vec<(u16, usize)> {
        let mut least = vec![(u16::MAX, 0); columns];
        for (i, first) in self.first.iter().enumerate() {
            for (least, distance) in least[*first..].iter_mut().zip(self.row(i)) {
                *least = (*least).min((*distance, i));
            }
        }
        least
    }

    /// How much frames that belong together differ around each reference frame: the middle of the least distances of rows
    /// or of columns, of which those of the side with more frames have no partners.
    fn noise(&self, of_columns: &[u16]) -> Vec<f32> {
        let columns = of_columns.len();
        let of_rows: Vec<u16> =
            (0..self.first.len()).map(|i| self.row(i).iter().copied().min().unwrap_or(0)).collect();
        let middle = |values: &[u16], at: usize| {
            let around = at.saturating_sub(AROUND)..(at + AROUND + 1).min(values.len());
            let mut around = values.get(around).unwrap_or_default().to_vec();
            let middle = around.len() / 2;
            if around.is_empty() { u16::MAX } else { *around.select_nth_unstable(middle).1 }
        };
        let at = |i: usize| {
            let centre = (self.first[i] + self.width / 2).min(columns.saturating_sub(1));
            f32::from(middle(&of_rows, i).min(middle(of_columns, centre))) / STEP
        };
        (0..self.first.len()).map(at).collect()
    }
}

/// A cost: of the pictures, and where those are equal by how much the guess is missed.
type Cost = (u32, f32);

const NEVER: Cost = (u32::MAX, f32::MAX);

fn add(cost: Cost, more: u32, missed: f32) -> Cost {
    if cost == NEVER { NEVER } else { (cost.0.saturating_add(more), cost.1 + missed) }
}

fn less(a: Cost, b: Cost) -> bool {
    (a.0, a.1.to_bits()) < (b.0, b.1.to_bits())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    Pair,
    Lost,
    Extra,
}

/// Gives each reference frame the distorted frame that shows the same, if there is one.
pub fn align(sides: &Sides, guess: Guess) -> Vec<Option<usize>> {
    let (rows, columns) = (sides.reference.len(), sides.distorted.len());
    if rows == 0 || columns == 0 {
        return vec![None; rows];
    }
    let band = Band::new(sides, guess);
    let found = cheapest(sides, guess, &band);
    settle(sides, guess, found)
}

fn pair_cost(distance: u16, noise: f32) -> u32 {
    let excess = (f32::from(distance) / STEP - noise) / (noise + LEAST_NOISE);
    ((excess - FREE).clamp(0.0, WORST) * UNIT) as u32
}

/// Frames that repeat the one before.
pub fn repeats(shots: &[Shot]) -> Vec<bool> {
    let same = |pair: &[Shot]| pair[0].picture.distance(&pair[1].picture) <= SAME;
    std::iter::once(false).chain(shots.windows(2).map(same)).take(shots.len()).collect()
}

fn cheapest(sides: &Sides, guess: Guess, band: &Band) -> Vec<Option<usize>> {
    let (rows, columns) = (sides.reference.len(), sides.distorted.len());
    let (lost, extra) = (repeats(sides.reference), repeats(sides.distorted));
    let least = band.least(columns);
    let noise = band.noise(&least.iter().map(|(distance, _)| *distance).collect::<Vec<_>>());
    let of_extra = |j: usize| match least[j] {
        _ if extra[j] => REPEAT,
        (distance, i) if pair_cost(distance, noise[i]) <= SHOWN => COPY,
        _ => SPOILT,
    };
    let of_extra: Vec<_> = (0..columns).map(of_extra).collect();
    let of_lost = |i: usize| if lost[i] { REPEAT } else { LOST };
    let frame = sides.typical(true).max(1) as f32;
    let missed = |i: usize, j: usize| match guess {
        Guess::Number(shift) => (i as i64 + shift).abs_diff(j as i64) as f32,
        Guess::Time(offset) => {
            let at = sides.reference[i].time as i64 + offset;
            at.abs_diff(sides.distorted[j].time as i64) as f32 / frame
        }
    };
    // Row `i`: so many reference frames are behind, and so many distorted ones by the place in the row.
    let lowest = |i: usize| band.first[i.saturating_sub(1)];
    let states = band.width + 1;
    let mut moves = vec![Move::Extra; (rows + 1) * states];
    let mut before: Vec<Cost> = vec![NEVER; states];
    let skipped = |until: usize| of_extra[..until].iter().sum::<u32>();
    before[0] = (skipped(lowest(0)), 0.0);
    for place in 1..states.min(columns - lowest(0) + 1) {
        before[place] = add(before[place - 1], of_extra[lowest(0) + place - 1], 0.0);
    }
    for i in 1..=rows {
        let (from, first) = (lowest(i - 1), lowest(i));
        let mut now = vec![NEVER; states];
        for place in 0..states {
            let j = first + place;
            let earlier = |j: usize| j.checked_sub(from).and_then(|at| before.get(at)).copied();
            let mut best = (NEVER, Move::Extra);
            let mut consider = |cost: Cost, how: Move| {
                if less(cost, best.0) {
                    best = (cost, how);
                }
            };
            if let (Some(own), Some(cost)) = (j.checked_sub(1), j.checked_sub(1).and_then(earlier))
                && let Some(distance) =
                    own.checked_sub(band.first[i - 1]).and_then(|at| band.row(i - 1).get(at))
            {
                consider(add(cost, pair_cost(*distance, noise[i - 1]), missed(i - 1, own)), Move::Pair);
            }
            if let Some(cost) = earlier(j) {
                consider(add(cost, of_lost(i - 1), 0.0), Move::Lost);
            }
            if place > 0 && j <= columns {
                consider(add(now[place - 1], of_extra[j - 1], 0.0), Move::Extra);
            }
            now[place] = best.0;
            moves[i * states + place] = best.1;
        }
        before = now;
    }
    // Distorted frames behind the last pair have no partner.
    let last = lowest(rows);
    let end = |place: &usize| {
        let behind: u32 = of_extra[last + place..].iter().sum();
        add(before[*place], behind, 0.0)
    };
    let ends = (0..states).filter(|place| last + place <= columns && before[*place] != NEVER);
    // A pause that is longer than the band is wide has no way through.
    let Some(end) = ends.min_by(|a, b| end(a).0.cmp(&end(b).0).then(end(a).1.total_cmp(&end(b).1))) else {
        return (0..rows).map(|i| sides.guessed_pair(guess, i)).collect();
    };
    let mut j = last + end;
    let (mut i, mut pairs) = (rows, vec![None; rows]);
    while i > 0 {
        let Some(place) = j.checked_sub(lowest(i)) else { break };
        match moves.get(i * states + place) {
            Some(Move::Pair) => {
                (i, j) = (i - 1, j - 1);
                pairs[i] = Some(j);
            }
            Some(Move::Lost) => i -= 1,
            Some(Move::Extra) if j > 0 => j -= 1,
            _ => break,
        }
    }
    pairs
}

/// Returns to the guess where departing from it between two places, or all along, is not decisive.
fn settle(sides: &Sides, guess: Guess, mut pairs: Vec<Option<usize>>) -> Vec<Option<usize>> {
    let guessed: Vec<_> = (0..pairs.len()).map(|i| sides.guessed_pair(guess, i)).collect();
    let same = sides.reference.len() == sides.distorted.len();
    let least = if same { DECISIVE } else { LIKELY };
    let mut i = 0;
    while i < pairs.len() {
        let run = (i..pairs.len()).take_while(|k| pairs[*k] != guessed[*k]).count();
        let both =
            (i..i + run).filter_map(|k| Some((sides.distance(k, pairs[k]?), sides.distance(k, guessed[k]?))));
        let (found, expected) = both.fold((0.0, 0.0), |(a, b), (found, expected)| (a + found, b + expected));
        let lost = (i..i + run).filter(|k| pairs[*k].is_none() && guessed[*k].is_some()).count();
        let whole = run > lost;
        if run > 0 && whole && found > expected * least {
            pairs[i..i + run].copy_from_slice(&guessed[i..i + run]);
        }
        i += run.max(1);
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::super::scan::{CELLS, Small};
    use super::*;

    /// Frames by what they show and when: each cell is of the number by chance, with noise from `seed`.
    fn shots(shown: &[(u64, u64)], seed: u64, noise: u16) -> Vec<Shot> {
        let of = |(number, time): &(u64, u64)| {
            let mut picture = fastrand::Rng::with_seed(*number);
            let mut coding = fastrand::Rng::with_seed(seed * 1000 + time);
            let cells = std::array::from_fn::<u16, CELLS, _>(|_| {
                20_000 + picture.u16(0..8000) + coding.u16(0..=noise)
            });
            Shot { time: *time, position: *time, picture: Small(cells) }
        };
        shown.iter().map(of).collect()
    }

    fn film(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        numbers.into_iter().zip(0..).map(|(number, place)| (number, place * 40)).collect()
    }

    /// The numbers that are paired wrongly, and those of reference frames without a partner.
    fn aligned(reference: &[(u64, u64)], distorted: &[(u64, u64)], guess: Guess) -> (usize, Vec<u64>) {
        let [own, other] = [shots(reference, 1, 0), shots(distorted, 2, 900)];
        let pairs = align(&Sides { reference: &own, distorted: &other }, guess);
        let partners = pairs.iter().zip(reference);
        let wrong = partners.clone().filter(|(j, (number, _))| j.is_some_and(|j| distorted[j].0 != *number));
        let without = partners.clone().filter(|(j, _)| j.is_none()).map(|(_, (number, _))| *number);
        (wrong.count(), without.collect())
    }

    #[test]
    fn lost_and_repeated_frames_are_found() {
        let whole = film(0..90);
        assert_eq!(aligned(&whole, &whole, Guess::Number(0)), (0, vec![]));
        let lost = film((0..90).filter(|number| ![7, 50, 51].contains(number)));
        assert_eq!(aligned(&whole, &lost, Guess::Number(0)), (0, vec![7, 50, 51]));
        let repeated =
            film((0..90).flat_map(|number| std::iter::repeat_n(number, 1 + usize::from(number % 30 == 9))));
        assert_eq!(aligned(&whole, &repeated, Guess::Number(0)), (0, vec![]));
        let frozen = film((0..90).map(|number| if number % 20 == 9 { number - 1 } else { number }));
        assert_eq!(aligned(&whole, &frozen, Guess::Number(0)), (0, vec![9, 29, 49, 69, 89]));
    }

    #[test]
    fn pictures_that_stand_still_follow_the_guess() {
        let still = film(std::iter::repeat_n(3, 60));
        assert_eq!(aligned(&still, &still, Guess::Number(0)), (0, vec![]));
        // What one of them lacks is where its timestamps say.
        let times: Vec<_> = still.iter().copied().filter(|(_, time)| *time != 800).collect();
        let [own, other] = [shots(&still, 1, 0), shots(&times, 2, 900)];
        let pairs = align(&Sides { reference: &own, distorted: &other }, Guess::Time(0));
        assert_eq!(pairs.iter().position(Option::is_none), Some(20));
    }

    #[test]
    fn a_spoilt_frame_is_scored_as_one() {
        let whole = film(0..60);
        let spoilt = film((0..60).map(|number| if number == 30 { 1000 } else { number }));
        assert_eq!(aligned(&whole, &spoilt, Guess::Number(0)), (1, vec![]));
    }
}
